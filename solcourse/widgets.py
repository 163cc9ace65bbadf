"""The live panels: ipywidgets wired to figures, and the only module that imports ipywidgets.

Every panel is a VBox that also carries a picture and a plain sentence, so that a saved, converted or untrusted notebook,
or a test without a browser, still shows what it said.
"""

from __future__ import annotations

import asyncio
import base64
import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import ipywidgets as ipw

from solcourse import panels
from solcourse.errors import SolcourseError
from solcourse.lesson import Guess, same, short
from solcourse.panels import frames
from solcourse.panels.parts import Control, Panel
from solcourse.tasks import Marked, Task, mark

KEPT_FRAMES = 128  # settings a dashboard remembers: some kilobytes each, and sliding back costs no prediction
# ipywidgets' sliders have no accessible name, tell a screen reader the number of the option in place of the option, and are
# followed by a readout that can be edited to no effect. JupyterLab takes a dropdown's arrow keys for its own: it leaves the cell.
FOR_KEYS_AND_EARS = """
let tries = 0;
const timer = setInterval(() => {
    for (const handle of document.querySelectorAll('.sol-dashboard .noUi-handle:not([aria-label])')) {
        const slider = handle.closest('.widget-slider'), readout = slider.querySelector('.widget-readout');
        const say = () => {
            handle.setAttribute('aria-valuetext', readout.textContent);
            readout.contentEditable = 'false';
        };
        handle.setAttribute('aria-label', slider.querySelector('.widget-label').textContent);
        new MutationObserver(say).observe(readout, {childList: true, characterData: true, subtree: true});
        say();
    }
    for (const list of document.querySelectorAll('.sol-dashboard select')) list.dataset.lmSuppressShortcuts = 'true';
    if (++tries === 50) clearInterval(timer);
}, 100);
"""
POLL_S = 0.2  # how often a watched file is looked at: needs no dependency and works on network mounts


class LivePanel(ipw.VBox):
    """A VBox that describes itself in text, and as a picture, wherever widgets cannot live."""

    def describe(self) -> str:
        """What the panel says now, as plain text."""
        return ""

    def still(self) -> bytes | None:
        """What the panel shows now as a PNG; None where there is nothing to draw."""
        return None

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle["text/plain"] = self.describe()
        picture = self.still()
        if picture is not None:
            bundle["image/png"] = base64.b64encode(picture).decode("ascii")
        return bundle


class Dashboard(LivePanel):
    """A Panel with its controls. A change of any control predicts again and redraws; the path of attempts grows."""

    def __init__(self, panel: Panel):
        self.panel = panel
        self.attempts: list[Any] = []
        self.frame: frames.Frame | None = None
        self._still: tuple[frames.Frame, bytes] | None = None  # the picture of a frame is drawn once, and only when it is asked for
        self._drawn: dict[tuple[Any, ...], frames.Frame] = {}  # by settings: the engine says the same twice
        self.error: BaseException | None = None
        self.controls = {control.name: _control(control) for control in panel.controls}
        self.picture = ipw.HTML()
        self.message = ipw.HTML()
        for widget in self.controls.values():
            widget.observe(lambda _: self.refresh(), "value")
        sliders = [self.controls[c.name] for c in panel.controls if c.slider]
        choices = [self.controls[c.name] for c in panel.controls if not c.slider]
        if panel.path:
            clear = ipw.Button(
                description="Clear path", tooltip="Forget the attempts drawn on the roofline", layout=ipw.Layout(width="100px")
            )
            clear.on_click(lambda _: self.clear())
            choices.append(clear)
        wrap = ipw.Layout(flex_flow="row wrap", grid_gap="2px 14px", align_items="center")
        title = ipw.HTML(f'<strong style="font-size:1.1em">{html.escape(panel.title)}</strong>')
        rows = [title, ipw.Box(sliders, layout=wrap), ipw.Box(choices, layout=wrap), self.message, self.picture]
        super().__init__([*rows, _script(FOR_KEYS_AND_EARS)])
        self.add_class("sol-dashboard")
        self.refresh(opening=True)

    @property
    def settings(self) -> dict[str, Any]:
        return {name: widget.value for name, widget in self.controls.items()}

    def refresh(self, *, opening: bool = False) -> None:
        """Predict for the current settings and redraw; an error is shown in the panel, above the last good picture.

        On opening, what is not the learner's error is raised: a test that only runs the cell must see it.
        """
        for name, widget in self.controls.items():
            widget.disabled = name in self.panel.idle(self.settings)
        try:
            frame = self._draw().along(self.attempts)
        except Exception as error:
            if opening and not isinstance(error, SolcourseError):
                raise
            self.error = error
            self.message.value = frames.error_html(error)
            return
        self.error, self.frame = None, frame
        self.attempts = frames.path(self.attempts, frame.report)
        self.message.value = ""
        self.picture.value = frame.html

    def _draw(self) -> frames.Frame:
        """The frame of the present settings, predicted only once for each."""
        key = tuple(self.settings.values())
        if key not in self._drawn:
            if len(self._drawn) >= KEPT_FRAMES:
                del self._drawn[next(iter(self._drawn))]
            self._drawn[key] = frames.draw(self.panel, self.settings)
        return self._drawn[key]

    def predict(self, **changes: Any) -> Any:
        """The Report for the panel's opening settings with some changed; the panel itself stays as it is. Raises UnknownName.

        Opening settings, not the present ones: what a lesson asserts must not depend on where a learner left the sliders.
        """
        for name in changes:
            self.panel.control(name)
        return self.panel.profile({**self.panel.settings, **changes})

    def clear(self) -> None:
        """Forget the path, then draw the current point alone."""
        self.attempts = []
        self.refresh()

    def describe(self) -> str:
        if self.error is not None:
            return str(self.error)
        return f"{self.panel.title}\n{self.frame.line}\n{self.frame.values}" if self.frame else self.panel.title

    def still(self) -> bytes | None:
        if self.frame is None:
            return None
        if self._still is None or self._still[0] is not self.frame:
            self._still = self.frame, frames.still(self.frame, self.panel.title)
        return self._still[1]


def _script(source: str) -> ipw.Output:
    """JavaScript that the page runs once when it shows the panel; where scripts are not allowed, nothing is missing but what it adds."""
    data = {"application/javascript": source}
    return ipw.Output(outputs=({"output_type": "display_data", "data": data, "metadata": {}},), layout=ipw.Layout(display="none"))


def _control(control: Control) -> Any:
    style = {"description_width": "72px"}
    if control.slider:
        layout = ipw.Layout(width="360px")
        return ipw.SelectionSlider(
            options=control.options, value=control.value, description=control.label, style=style, layout=layout, tooltip=control.note
        )
    width = "330px" if max(len(label) for label, _ in control.options) > 12 else "190px"
    return ipw.Dropdown(
        options=control.options,
        value=control.value,
        description=control.label,
        style=style,
        layout=ipw.Layout(width=width),
        tooltip=control.note,
    )


def dashboard(name: str, kernel: Any = None) -> Dashboard:
    """The live panel of that name. Raises UnknownName."""
    return Dashboard(panels.panel(name, kernel))


# --------------------------------------------------------------------------------------------------------------- guess


class GuessPanel(LivePanel):
    """The buttons of a lesson.Guess. The chosen one is marked; after the reveal, the right one too."""

    def __init__(self, guess: Guess):
        self.guess = guess
        self.buttons = [ipw.Button(description=short(option), layout=ipw.Layout(width="auto")) for option in guess.options]
        for button, option in zip(self.buttons, guess.options, strict=True):
            button.on_click(lambda _, option=option: guess.choose(option))
        self.said = ipw.HTML()
        question = ipw.HTML(f"<span>{html.escape(guess.question)}</span>")
        wrap = ipw.Layout(flex_flow="row wrap", align_items="center")
        super().__init__([question, ipw.Box([*self.buttons, self.said], layout=wrap)])
        self.add_class("sol-guess")
        guess.listen(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Marks the buttons as the guess now stands."""
        for button, option in zip(self.buttons, self.guess.options, strict=True):
            chosen, right = option == self.guess.answer, self.guess.revealed and same(option, self.guess.truth)
            button.button_style = "success" if right else "info" if chosen else ""
            button.icon = "check" if right else "hand-o-right" if chosen else ""
        said = "" if self.guess.answer is None else f"Your bet: <strong>{html.escape(short(self.guess.answer))}</strong>"
        self.said.value = f'<span class="sol-bet" role="status" style="padding-left:8px">{said}</span>'

    def describe(self) -> str:
        return repr(self.guess)


# --------------------------------------------------------------------------------------------------------------- tasks


def hints_html(hints: Sequence[str]) -> str:
    """Hints, each behind a fold of its own, in one row."""
    folds = (f"<details><summary>Hint {n}</summary>{html.escape(hint)}</details>" for n, hint in enumerate(hints, 1))
    return f'<div style="display:flex;flex-wrap:wrap;gap:2px 20px;line-height:1.45">{"".join(folds)}</div>'


class TaskPanel(LivePanel):
    """A sum to do by hand: a line to type it in, marked on Enter or by the button, with hints folded."""

    def __init__(self, task: Task, marked: Callable[[Task, str], Marked]):
        self.task, self.marked = task, marked
        self.result = mark(task, None)
        layout = ipw.Layout(width="min(560px, 90%)")
        self.box = ipw.Text(placeholder="a number or a sum, such as 4 * 2**20 / 1e12", description="answer", layout=layout)
        self.box.style.description_width = "initial"
        self.box.continuous_update = False
        self.box.observe(lambda _: self.check(), "value")
        button = ipw.Button(description="Check", button_style="primary", layout=ipw.Layout(width="90px"))
        button.on_click(lambda _: self.check())
        self.said = ipw.HTML()
        question = ipw.HTML(f'<div style="line-height:1.45">{task.question}</div>')
        super().__init__([question, ipw.HBox([self.box, button]), self.said, ipw.HTML(hints_html(task.hints))])
        self.add_class("sol-task")
        self.show()

    def check(self) -> None:
        """Marks what is in the box."""
        self.result = self.marked(self.task, self.box.value)
        self.show()

    def show(self) -> None:
        """Writes the marking under the box."""
        sign = {True: "✔ ", False: "✘ ", None: ""}[self.result.passed]
        self.said.value = f'<div class="sol-marked" role="status" style="line-height:1.45">{sign}{self.result.message}</div>'

    def describe(self) -> str:
        return f"{self.task.plain_question}\n{self.result}"


# ----------------------------------------------------------------------------------------------------------- exercises


def stamp(path: Path) -> tuple[int, int] | None:
    """What changes when a file is saved: its time and size. None while there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


async def watch(path: Path, saved: Callable[[], bool], poll_s: float) -> None:
    """Calls `saved` after each change of the file, until it returns False."""
    before = stamp(path)
    while True:
        await asyncio.sleep(poll_s)
        now = stamp(path)
        if now is not None and now != before:
            before = now
            if not saved():
                return


def folded_hints(hints: Sequence[str], read: Callable[[int], object] = lambda number: None) -> ipw.VBox:
    """Hints, each behind a button of its own, in order. `read` is told the number of a hint when it is opened.

    Buttons, because the headings of ipywidgets' Accordion cannot be reached by keyboard.
    """
    buttons = [ipw.ToggleButton(description=f"Hint {n}", layout=ipw.Layout(width="90px")) for n in range(1, len(hints) + 1)]
    pages = [ipw.HTML(layout=ipw.Layout(display="none")) for _ in hints]

    def turn(number: int, shown: bool) -> None:
        page = pages[number - 1]
        page.value = f'<div role="status" style="line-height:1.45;white-space:pre-line">{html.escape(hints[number - 1])}</div>'
        page.layout.display = None if shown else "none"
        if shown:
            read(number)

    for n, button in enumerate(buttons, 1):
        button.observe(lambda change, n=n: turn(n, change["new"]), "value")
    return ipw.VBox([ipw.HBox(buttons), *pages])


class ExercisePanel(LivePanel):
    """An exercise: where its file is, a Score button, a new verdict on every save, hints folded, the path of attempts."""

    _live: ClassVar[dict[str, ExercisePanel]] = {}  # the newest panel of each exercise: only it follows the file

    def __init__(self, name: str):
        from solcourse import course, exercises

        self.name = name
        self.verdict: Any = None
        self.attempts: list[Any] = []
        self.home = course.find()
        self.path = course.learner_file(self.home, name)
        self.button = ipw.Button(description="Score", button_style="primary", icon="play", layout=ipw.Layout(width="110px"))
        self.button.on_click(lambda _: self.score())
        where = course.shown(self.path, self.home)
        self.said = ipw.HTML(
            f"<span>Edit <code>{html.escape(where)}</code> and save it, or press the button. To see both, drag the file's tab to the "
            "right edge of the window.</span>"
        )
        self.picture = ipw.HTML()
        sheet = exercises.sheet(name, self.home)
        self.hints = folded_hints(sheet.hints, lambda number: exercises.hint(name, number))
        super().__init__([ipw.HBox([self.button, self.said], layout=ipw.Layout(align_items="center")), self.picture, self.hints])
        self.add_class("sol-exercise")
        self.follow()

    def follow(self) -> None:
        """Scores again on every save, as long as this is the newest panel of its exercise. Does nothing outside a notebook."""
        self._live[self.name] = self
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self.watcher = loop.create_task(watch(self.path, self.saved, POLL_S))

    def saved(self) -> bool:
        """The file was saved: score it, unless a newer panel does. Returns whether to go on watching."""
        if self._live.get(self.name) is not self:
            return False
        self.score()
        return True

    def score(self) -> None:
        """Checks the learner's file and shows the verdict."""
        from solcourse import exercises

        self.button.disabled = True
        try:
            self.verdict = exercises.check(self.name)
        except Exception as error:  # a watcher has nobody to raise to: what went wrong is shown where the learner looks
            self.picture.value = frames.error_html(error)
            return
        finally:
            self.button.disabled = False
        if self.verdict.report is not None:
            self.attempts = frames.path(self.attempts, frames.attempt(self.verdict.report, self.verdict.report.kernel))
        self.hints.layout.display = "none" if self.verdict.passed else None  # who has passed needs no hint
        self.picture.value = frames.verdict_html(self.verdict, self.attempts)

    def describe(self) -> str:
        return str(self.verdict) if self.verdict is not None else f"Exercise {self.name}: not scored yet."
