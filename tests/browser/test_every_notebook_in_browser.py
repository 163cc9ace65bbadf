"""Every notebook in real JupyterLab: no error anywhere, no widget left empty, and every panel worked by keyboard alone."""

from __future__ import annotations

import re

import pytest
from lab_server import ERRORS, REPOSITORY

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
pytestmark = pytest.mark.browser
NOTEBOOKS = sorted(path.name for path in (REPOSITORY / "notebooks").glob("*.ipynb"))
# What JupyterLab itself says in the console, whatever the notebook: (pattern of the whole message, why it is none of ours).
NOT_OURS: tuple[tuple[str, str], ...] = ()
# (cell id, what is wrong) of every widget view without content; cells out of sight are scrolled to, as they are drawn only then
EMPTY = """async () => {
    const empty = [], cells = jupyterapp.shell.currentWidget.content.widgets;
    const views = cell => [...cell.node.querySelectorAll('.jp-OutputArea-output')].filter(view => view.querySelector('.jupyter-widgets'));
    const wanted = cell => {
        const outputs = cell.model.type === 'code' ? cell.model.outputs : {length: 0};
        let count = 0;
        for (let n = 0; n < outputs.length; n++) count += 'application/vnd.jupyter.widget-view+json' in outputs.get(n).data;
        return count;
    };
    const wrong = view => {
        const box = view.getBoundingClientRect(), words = view.innerText.trim();
        if (box.height < 8 || box.width < 8) return 'has no size';
        if (/^Loading widget|Error displaying widget|Error creating widget/.test(words)) return words;
        return words || view.querySelector('svg, img, input, select') ? null : 'shows nothing';
    };
    for (const cell of cells) {
        const count = wanted(cell);
        if (!count) continue;
        cell.node.scrollIntoView();
        let said = ['is missing'];
        for (let tries = 0; tries < 100; tries++) {
            said = views(cell).map(wrong).filter(words => words !== null);
            if (views(cell).length >= count && !said.length) break;
            await new Promise(done => setTimeout(done, 50));
        }
        if (views(cell).length < count) said.push('is missing');
        empty.push(...said.map(words => [cell.model.id, words]));
    }
    return empty;
}"""
WIDGETS = ".sol-dashboard, .sol-guess, .sol-task, .sol-exercise"
CONTROLS = "input:enabled, select:enabled, textarea:enabled, button:enabled, .slider:not([disabled]) .noUi-handle"
ROLES = r"- (slider|combobox|button|textbox|checkbox|radio|spinbutton)\b(.*)"
# all that a panel says: what is written, and what a screen reader is told in place of its pictures; and the buttons pressed, as one
# may have nothing left to do
SAID = """root => root.dataset.clicks + root.querySelector('.sol-panel').innerText + root.querySelector('.sol-error')?.innerText
    + [...root.querySelectorAll('[role=img]')].map(picture => picture.getAttribute('aria-label')).join()"""
WORDS = "root => ['.sol-line', '.sol-values', '.sol-error'].map(part => root.querySelector(part)?.innerText).join()"
# makes the cell of a panel the active one, as the arrow keys do
TO_CELL = """root => {
    const notebook = jupyterapp.shell.currentWidget.content;
    notebook.activeCellIndex = notebook.widgets.findIndex(cell => cell.node.contains(root));
    notebook.mode = 'command';
    notebook.activate();
}"""


def complaint(kind: str, text: str) -> str | None:
    """What a console message complains of; None where it is no error or none of ours."""
    ours = kind == "error" and not any(re.fullmatch(pattern, text) for pattern, _ in NOT_OURS)
    return f"console: {text}" if ours else None


@pytest.fixture(scope="module", params=NOTEBOOKS)
def walk(request, chromium, lab):
    """(page, complaints) of a notebook, every cell run."""
    page = chromium.new_page(viewport={"width": 1300, "height": 1000})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.extend(filter(None, [complaint(message.type, message.text)])))
    page.on("pageerror", lambda error: complaints.append(f"page: {error}"))
    lab.run_all(page, request.param)
    page.set_default_timeout(20_000)
    yield page, complaints
    page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")  # its memory is the next one's
    page.close()


def test_errors_are_complaints_and_other_messages_are_not(monkeypatch):
    assert complaint("error", "Uncaught TypeError") == "console: Uncaught TypeError"
    assert complaint("log", "hello") is None
    monkeypatch.setitem(globals(), "NOT_OURS", (("known .*", "a reason"),))
    assert complaint("error", "known fault") is None
    assert complaint("error", "an unknown, or known fault")


def test_every_cell_runs_and_no_widget_is_empty(walk):
    page, complaints = walk
    assert page.evaluate(ERRORS) == []
    assert page.evaluate(EMPTY) == []
    assert complaints == []


def test_an_empty_widget_is_found(walk):
    page, _ = walk
    if not page.locator(WIDGETS).count():
        pytest.skip("this notebook has no widgets")
    page.locator(WIDGETS).first.evaluate("root => { window.solHidden = root; root.style.display = 'none'; }")
    try:
        assert page.evaluate(EMPTY.replace("tries < 100", "tries < 2"))
    finally:
        page.evaluate("() => { window.solHidden.style.display = ''; }")


def test_every_control_has_a_name(walk):
    page, complaints = walk
    for root in page.locator(WIDGETS).all():
        root.locator(".noUi-handle[aria-label]").or_(root).last.wait_for()
        page.wait_for_function("root => !root.querySelector('.noUi-handle:not([aria-label])')", arg=root.element_handle())
        controls = re.findall(ROLES, root.aria_snapshot())
        assert len(controls) >= root.locator(CONTROLS).locator("visible=true").count() > 0
        assert [role for role, rest in controls if not re.match(r' "[^"]', rest)] == []


def test_every_panel_is_worked_by_keyboard_alone(walk):
    page, complaints = walk
    for root in page.locator(".sol-dashboard").all():
        root.evaluate("root => root.addEventListener('click', event => { root.dataset.clicks = event.target.innerText; })")
        controls = root.locator(CONTROLS)
        for n, control in enumerate(controls.all()):
            control.evaluate("(node, n) => { node.dataset.solControl = n; }", n)
        root.evaluate(TO_CELL)
        reached: list[str] = []
        for _ in range(2 * controls.count() + 12):  # the cell's tool bar comes first, and readouts lie between
            page.keyboard.press("Tab")
            at = page.evaluate("() => document.activeElement?.dataset.solControl ?? null")
            if at is not None:
                reached.append(at)
                turn(page, root, controls.nth(int(at)))
                assert page.evaluate("() => document.activeElement.dataset.solControl") == at  # turning it does not lose it
            if len(reached) == controls.count():
                break
        assert reached == [str(n) for n in range(controls.count())]
    assert complaints == []


def turn(page, root, control) -> None:
    """Moves a control by a step and back again, or presses it; each must be answered."""
    there, back = keys(control)
    before, words = root.evaluate(SAID), root.evaluate(WORDS)
    page.keyboard.press(there)
    answered(page, root, f"({SAID})(root) !== told", before, control)
    if back:
        page.keyboard.press(back)
        answered(page, root, f"({WORDS})(root) === told", words, control)


def answered(page, root, condition: str, told: str, control) -> None:
    """Waits until a panel says what it should. Fails with the control's name where it never does."""
    try:
        page.wait_for_function(f"([root, told]) => {condition}", arg=[root.element_handle(), told])
    except playwright.TimeoutError:
        name = "node => [node.ariaLabel ?? node.labels?.[0]?.innerText ?? node.innerText, node.value ?? node.ariaValueText].join()"
        pytest.fail(f"{control.evaluate(name)}: the panel does not answer; it says {root.evaluate(WORDS)}")


def keys(control) -> tuple[str, str]:
    """(what makes a control do something, whatever end it stands at; what undoes that)"""
    tag = control.evaluate("node => node.tagName")
    if tag == "BUTTON":
        return "Enter", ""
    down, up = ("ArrowUp", "ArrowDown") if tag == "SELECT" else ("ArrowLeft", "ArrowRight")
    last = """node => node.matches('select') ? node.selectedIndex === node.options.length - 1
        : node.getAttribute('aria-valuenow') === node.getAttribute('aria-valuemax')"""
    return (down, up) if control.evaluate(last) else (up, down)


def test_bets_tasks_and_hints_are_worked_by_keyboard_alone(walk):
    page, complaints = walk
    for guess in page.locator(".sol-guess").all():
        guess.locator("button").first.focus()
        page.keyboard.press("Enter")
        guess.locator(".sol-bet", has_text="Your bet").wait_for()
    for task in page.locator(".sol-task").all():
        task.locator("input").focus()
        page.keyboard.type("1 + 1")
        page.keyboard.press("Enter")
        task.locator(".sol-marked", has_text="✘").wait_for()
    for exercise in page.locator(".sol-exercise").all():
        exercise.locator("button", has_text="Hint 1").focus()
        page.keyboard.press("Space")
        exercise.locator("[role=status]").first.wait_for()
    assert complaints == []
