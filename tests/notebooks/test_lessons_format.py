"""What every lesson file keeps to, before any cell is run: nothing stored, nothing private, one idea a cell."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

COURSE = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((COURSE / "notebooks").glob("*.ipynb"))
KERNEL_LINES, OTHER_LINES, WORDS = 25, 7, 90


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def text(cell: dict) -> str:
    return "".join(cell["source"])


def complaints(notebook: list[dict]) -> list[str]:
    """Everything a list of cells does that a lesson may not do, as "cell: complaint"."""
    found = []

    def say(cell: dict, what: str) -> None:
        found.append(f"{cell.get('id')}: {what}")

    ids = [cell.get("id", "") for cell in notebook]
    for cell in notebook:
        if not re.fullmatch(r"l\d\d-[a-z0-9-]+", cell.get("id", "")) or ids.count(cell["id"]) > 1:
            say(cell, "needs an id of its own that says what it is")
        source = text(cell)
        if re.search(r"(?<![\w.])/(home|root|tmp|usr|work|Users|mnt)/|[A-Z]:\\", source):
            say(cell, "names a path of one machine")
        if cell["cell_type"] == "markdown":
            prose = re.sub(r"^\|.*$|\$\$.*?\$\$", "", source, flags=re.M | re.S)
            if len(prose.split()) > WORDS and cell is not notebook[-2]:
                say(cell, f"has {len(prose.split())} words, at most {WORDS}")
            continue
        if cell["outputs"] or cell["execution_count"] is not None:
            say(cell, "has stored outputs")
        if re.search(r"^\s*[!%]|matplotlib|subprocess|urllib|time\.(time|perf_counter)", source, re.M):
            say(cell, "draws, times, downloads or leaves Python")
        limit = KERNEL_LINES if "@cuda.jit" in source else OTHER_LINES
        lines = sum(bool(line.strip()) for line in source.splitlines())
        if lines > limit:
            say(cell, f"has {lines} lines, at most {limit}")
    return found


def unanswered(notebook: list[dict]) -> set[str]:
    """Names of bets that are never revealed, or revealed before they are made."""
    code = [text(cell) for cell in notebook if cell["cell_type"] == "code"]
    made: dict[str, int] = {}
    for n, source in enumerate(code):
        for name in re.findall(r"^(\w+) = sol\.guess\(", source, re.M):
            made[name] = n
    told = {name: n for n, source in enumerate(code) for name in re.findall(r"(\w+)\.reveal\(", source)}
    return {name for name, n in made.items() if told.get(name, -1) <= n}


def unfolded(notebook: list[dict]) -> set[str]:
    """Ids of code cells that give an answer away before it is asked for.

    Results of bets and the last cell are folded. JupyterLab shows the first line of a folded cell: a comment, then.
    """
    telling = [c for c in notebook if c["cell_type"] == "code" and re.search(r"\.reveal\(|assert_solved\(", text(c))]
    return {
        cell["id"]
        for cell in telling
        if not cell["metadata"].get("jupyter", {}).get("source_hidden") or not re.match(r"# |sol\.assert_solved", text(cell))
    }


def test_there_are_lessons_to_look_at():
    assert [path.name[:2] for path in NOTEBOOKS][:2] == ["00", "01"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_keeps_to_the_house_rules(path):
    assert complaints(cells(path)) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_has_25_to_45_cells(path):
    assert 25 <= len(cells(path)) <= 45


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_ends_with_the_proof_that_it_can_be_solved(path):
    last = cells(path)[-1]
    assert last["metadata"]["tags"] == ["remove-cell"]
    own = rf'"ex{path.name[:2]}[a-z]?"'
    assert re.fullmatch(rf"sol\.assert_solved\({own}(, {own})*\)", text(last))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_bet_is_made_before_its_result(path):
    assert unanswered(cells(path)) == set()
    assert any("sol.guess(" in text(cell) for cell in cells(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_code_of_a_result_is_folded_until_the_bet_is_made(path):
    assert unfolded(cells(path)) == set()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_lesson_links_to_is_there(path):
    links = re.findall(r"\]\(([^)]+)\)", "".join(text(cell) for cell in cells(path) if cell["cell_type"] == "markdown"))
    assert links
    for link in links:
        target = (path.parent / link.replace("exercises/mine/", "exercises/")).resolve()
        assert target.exists(), link


def test_the_rules_can_say_no():
    def code(source, **more):
        return {"cell_type": "code", "id": "l99-x", "metadata": {}, "source": [source], "outputs": [], "execution_count": None} | more

    prose = {"cell_type": "markdown", "id": "l99-y", "source": ["word " * 91]}
    bad = [
        code("x = 1", outputs=[{}]),
        code("x = 1", id="L1"),
        code("!ls"),
        code("%timeit f()"),
        code("import matplotlib"),
        code("open('/home/me/x')"),
        code("x = 1\n" * 8),
        code("@cuda.jit\n" + "x = 1\n" * 25),
    ]
    for cell in bad:
        assert complaints([cell, code("pass", id="l99-z")]), cell["source"]
    assert complaints([prose, code("pass"), code("pass", id="l99-z")])
    assert not complaints([code("pass")])
    assert unanswered([code('bet = sol.guess("?", [1])')]) == {"bet"}
    assert unanswered([code("bet.reveal(1)"), code('bet = sol.guess("?", [1])')]) == {"bet"}
    assert unanswered([code('bet = sol.guess("?", [1])'), code("bet.reveal(1)")]) == set()
    folded = {"metadata": {"jupyter": {"source_hidden": True}}}
    assert unfolded([code("# The answer\nbet.reveal(1)")]) == {"l99-x"}
    assert unfolded([code("assert x == 8\nbet.reveal(x)", **folded)]) == {"l99-x"}
    assert unfolded([code("# The answer\nbet.reveal(1)", **folded)]) == set()
