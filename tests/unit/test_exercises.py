"""From a learner's file to a verdict: finding, copying, loading, gating and telling. A stand-in plays the engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from solcourse import course, exercises, grading, learner, stubs, trial
from solcourse.errors import CourseNotFound, SolcourseError, UnknownName
from solcourse.grading import Gate, bytes_moved, flops, sectors_per_request
from solcourse.learner import Unfinished
from solcourse.simt.records import AccessCounts, Counts, LineCounts
from solcourse.verdict import CLEAN, Verdict

ROOT = Path(__file__).resolve().parents[2]
N = 4 * 2**20  # numbers in the counted image of ex01


@pytest.fixture
def in_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the course's exercises, as the working folder, with the learner's folder in it."""
    for folder in ("exercises", "solutions"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("mine", "__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOLCOURSE_MINE")
    monkeypatch.delenv("SOLCOURSE_SOLUTIONS", raising=False)
    return tmp_path


def counts(sectors: int = 4, fp32: int = 2 * N, stored: int = 4 * N) -> Counts:
    """The counts of ex01 at its gate size: N / 32 requests each way."""
    requests = N // 32
    return Counts(
        flops=MappingProxyType({"fp16": 0, "fp32": fp32, "fp64": 0}),
        global_load=AccessCounts(requests, sectors * requests, 0, 0, 4 * N),
        global_store=AccessCounts(requests, sectors * requests, 0, 0, stored),
    )


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Plays the engine: `compute(args)` writes the outputs, `counts` are what it then claims to have counted."""
    stand_in = SimpleNamespace(counts=counts(), launches=[])

    def compute(args: tuple) -> None:
        args[3][...] = (args[0] - args[1]) * args[2]

    def execute(spec: object, args: tuple, limit_s: float) -> SimpleNamespace:
        stand_in.launches.append(spec)
        stand_in.compute(args)
        file = spec.dispatcher.py_func.__code__.co_filename
        lines = (LineCounts(file, 7, "cheap", Counts()), LineCounts(file, 8, "dear", stand_in.counts))
        return SimpleNamespace(counts=stand_in.counts, lines=lines, findings=())

    stand_in.compute = compute
    monkeypatch.setattr(trial, "execute", execute)
    monkeypatch.setattr(exercises, "_predicted", lambda *_: (None, None))
    return stand_in


# ---------------------------------------------------------------------------------------------- the course on disk


def test_the_course_is_found_from_any_folder_below(in_course: Path):
    (in_course / "notebooks" / "deep").mkdir(parents=True)
    assert course.find(in_course / "notebooks" / "deep") == in_course
    assert course.find() == in_course


def test_outside_the_course_the_error_says_where_it_looked(tmp_path: Path):
    with pytest.raises(CourseNotFound, match=str(tmp_path)):
        course.find(tmp_path)


@pytest.mark.parametrize("name", ["ex01", "EX01", "ex01_coalescing", "ex01_coalescing.py", "exercises/mine/ex01_coalescing.py"])
def test_an_exercise_has_one_file_by_any_of_its_names(in_course: Path, name: str):
    assert course.file_name(in_course, name) == "ex01_coalescing.py"


def test_what_is_answered_inside_a_lesson_says_so(in_course: Path):
    (in_course / "notebooks").mkdir()
    (in_course / "notebooks" / "00_speed_of_light.ipynb").touch()
    for name in ("ex00", "ex00.saxpy"):
        with pytest.raises(UnknownName, match=r"answered inside notebooks/00_speed_of_light\.ipynb"):
            exercises.check(name)


def test_a_wrong_name_offers_the_nearest(in_course: Path):
    with pytest.raises(UnknownName, match="Did you mean 'ex05b'"):
        exercises.check("ex5b")


def test_first_use_copies_the_stub_and_later_use_keeps_the_work(in_course: Path):
    mine = exercises.learner_file("ex01")
    assert mine == in_course / "exercises" / "mine" / "ex01_coalescing.py"
    mine.write_text("work = 1\n")
    assert exercises.learner_file("ex01").read_text() == "work = 1\n"


def test_the_learners_folder_can_lie_elsewhere(in_course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOLCOURSE_MINE", str(tmp_path / "home" / "me"))
    assert exercises.learner_file("ex01").parent == tmp_path / "home" / "me"


# ---------------------------------------------------------------------------------------------- solutions and stubs


def test_a_hole_without_a_stub_raises_in_the_stub():
    text = "def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION\n"
    scope: dict = {}
    exec(stubs.stub(text), scope)
    with pytest.raises(NotImplementedError):
        scope["f"]()


def test_solved_and_stub_differ_in_the_holes_only():
    text = "a = 1\n### BEGIN SOLUTION\nb = 2\n### STUB\n# b = 0\n### END SOLUTION\nc = 3\n"
    text += "### BEGIN HIDDEN TESTS\nd = 4\n### END HIDDEN TESTS\n"
    assert stubs.solved(text) == "a = 1\nb = 2\nc = 3\n"
    assert stubs.stub(text) == "a = 1\nb = 0\nc = 3\n"


@pytest.mark.parametrize(
    "text",
    [
        "### BEGIN SOLUTION\nx = 1\n",  # never closed
        "### END SOLUTION\n",
        "### STUB\n",
        "### BEGIN SOLUTION\n### BEGIN HIDDEN TESTS\n",
        "### BEGIN SOLUTOIN\n",  # a slip must not give the answer away
        "### BEGIN SOLUTION\n### STUB\nx = 1\n### END SOLUTION\n",  # not commented out
    ],
)
def test_a_marker_out_of_place_is_an_error(text: str):
    with pytest.raises(SolcourseError):
        stubs.stub(text)


def test_every_exercise_has_three_hints_and_a_goal(in_course: Path):
    for name in exercises.names():
        sheet = exercises.sheet(name)
        assert [len(part.hints) for part in sheet.parts] == [3] * len(sheet.parts)
        assert all(part.title for part in sheet.parts) or len(sheet.parts) == 1
        assert all(len(hint) > 40 for hint in sheet.hints)
        assert sheet.title
        assert "Goal\n" in sheet.text
        assert "Requirements\n" in sheet.text


# ------------------------------------------------------------------------------------------------ loading the file


def load(text: str, tmp_path: Path, limit_s: float = 10.0):
    return learner.load(tmp_path / "ex99_try.py", textwrap.dedent(text), limit_s)


@pytest.mark.parametrize(
    ("text", "stage", "line", "says"),
    [
        ("x = 1\ndef f(:\n", "syntax", 2, "Syntax"),
        ("def f():\nx = 1\n", "syntax", 2, "Indentation"),
        ("x = 1\x00\n", "syntax", None, "null bytes"),
        ("import numpy\nimport no_such_thing\n", "import", 2, "no_such_thing"),
        ("from no_such_thing import x\n", "import", 1, "no_such_thing"),
        ("x = 1\n\nx / 0\n", "error", 3, "ZeroDivisionError"),
        ("def f():\n    return undefined\nf()\n", "error", 2, "undefined"),
        ("import sys\nsys.exit(3)\n", "error", 2, "exit"),
        ("raise KeyboardInterrupt\n", "error", 1, "KeyboardInterrupt"),
        ("def f(): f()\nf()\n", "error", 1, "RecursionError"),
        ("raise NotImplementedError('your code here')\n", "unfinished", 1, "your code here"),
        ("from solcourse.kernels import coalescing\n", "import", 1, "own file"),
        ("import solcourse.kernels.copy\n", "import", 1, "own file"),
        ("def f():\n    from solutions import ex01_coalescing\n", "import", 2, "own file"),
        ("import importlib\n", "import", 1, "own file"),
        ("text = open('solutions/ex01_coalescing.py').read()\n", "import", 1, "open"),
        ("__import__('solutions')\n", "import", 1, "__import__"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_load_is_told_with_its_line(tmp_path: Path, text: str, stage: str, line: int | None, says: str):
    with pytest.raises(Unfinished) as told:
        load(text, tmp_path)
    assert (told.value.stage, told.value.line) == (stage, line)
    assert says in told.value.message


@pytest.mark.parametrize("body", ["pass", "x = [i for i in range(10)]", "\n    try:\n        x = 1\n    except Exception:\n        pass"])
def test_an_endless_file_is_stopped_at_its_line(tmp_path: Path, body: str):
    started = time.monotonic()
    with pytest.raises(Unfinished, match="does a loop never end") as told:
        load(f"x = 1\nwhile True: {body}\n", tmp_path, limit_s=0.3)
    assert told.value.stage == "time"
    assert told.value.line is not None
    assert told.value.line >= 2
    assert time.monotonic() - started < 5


def test_what_is_loaded_is_the_text_that_was_read(tmp_path: Path):
    import inspect

    module = load("def f():\n    return 'first'\n", tmp_path)
    (tmp_path / "ex99_try.py").write_text("# another text by now\n")
    assert "first" in inspect.getsource(module.f)
    assert module.__name__ == "ex99_try"


def test_a_main_block_does_not_run(tmp_path: Path):
    load("if __name__ == '__main__':\n    raise SystemExit\n", tmp_path)


def test_a_file_that_goes_to_another_folder_does_not_take_the_course_along(in_course: Path, tmp_path: Path):
    (away := tmp_path / "away").mkdir()
    loads = f"import os\nos.chdir({str(away)!r})\n"
    learner.load(tmp_path / "ex.py", loads, 5)
    assert Path.cwd() == in_course
    with pytest.raises(Unfinished):
        learner.load(tmp_path / "ex.py", f"{loads}raise ValueError\n", 5)
    assert Path.cwd() == in_course


def test_a_kernel_with_a_signature_loads_without_a_gpu(tmp_path: Path):
    module = load("from numba import cuda\n@cuda.jit('void(float32[::1])')\ndef k(x): x[0] = 1\n", tmp_path)
    assert learner.kernel(module, "k", ["x"]) is module.k


def test_numbas_simulator_is_named_when_it_was_left_on(in_course: Path):
    code = "import sys; from solcourse import exercises; print(exercises.check('ex01'))"
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "NUMBA_ENABLE_CUDASIM" in done.stdout
    assert "not yet" in done.stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "no `k`"),
        ("k = None", "is None"),
        ("def k(a, b): pass", "write @cuda.jit above it"),
        ("import numba\n@numba.njit\ndef k(a, b): pass", "@cuda.jit"),
        ("from numba import cuda\n@cuda.jit(device=True)\ndef k(a, b): pass", "@cuda.jit"),
        ("from numba import cuda\n@cuda.jit\ndef k(a): pass", "`k` takes (a) and is called with (a, b)"),
        ("from numba import cuda\n@cuda.jit\ndef k(a, b, c): pass", "takes (a, b, c)"),
    ],
)
def test_a_kernel_that_is_none_is_told(tmp_path: Path, text: str, says: str):
    module = load(text, tmp_path)
    with pytest.raises(Unfinished) as told:
        learner.kernel(module, "k", ["a", "b"])
    assert told.value.stage == "names"
    assert says in told.value.message


# --------------------------------------------------------------------------------------------------------- gates


def judged(spec: grading.GateSpec, whole: Counts, *lines: tuple[int, Counts]) -> Gate:
    return spec.judge(SimpleNamespace(counts=whole, lines=[LineCounts("f.py", n, f"text {n}", c) for n, c in lines]), "f.py")


def test_a_gate_names_the_line_that_costs_most():
    few, many = Counts(global_load=AccessCounts(10, 40)), Counts(global_load=AccessCounts(10, 320))
    gate = judged(sectors_per_request("global_load", 4), Counts(global_load=AccessCounts(20, 360)), (5, few), (9, many))
    # (40 + 320) sectors / 20 requests = 18
    assert gate == Gate("sectors per global load request", "4", 18.0, 9, False, "text 9", gate.advice)
    assert gate.advice


def test_a_gate_blames_no_line_of_another_file():
    spec = sectors_per_request("global_load", 4)
    run = SimpleNamespace(counts=counts(16), lines=[LineCounts("numba.py", 3, "", counts(16))])
    assert spec.judge(run, "f.py").line is None


@pytest.mark.parametrize(("sectors", "passed"), [(4, True), (5, False), (3, False), (0, False)])
def test_sectors_per_request_has_two_sides(sectors: int, passed: bool):
    """Fewer sectors than a full warp pulls means idle lanes; none at all means that nothing was read."""
    assert judged(sectors_per_request("global_load", 4), Counts(global_load=AccessCounts(10, 10 * sectors))).passed is passed


def test_a_kernel_that_did_nothing_passes_no_gate():
    specs = (
        sectors_per_request("global_load", 4),
        flops("fp32", at_least=1),
        bytes_moved("global_store", exactly=4),
        bytes_moved("global_load", at_least=1),
    )
    assert [judged(spec, Counts()).passed for spec in specs] == [False] * 4


def test_a_gate_says_what_it_wants():
    said = [
        bytes_moved("global_load", exactly=16).wanted,
        bytes_moved("global_load", at_least=10, at_most=12).wanted,
        flops("fp32", at_least=8388608).wanted,
        grading.bank_conflicts("shared_load").wanted,
        grading.barriers(at_most=2).wanted,
    ]
    assert said == ["16", "10 to 12", "at least 8,388,608", "at most 0", "at most 2"]


def test_a_gate_on_an_unknown_access_is_an_error():
    with pytest.raises(ValueError, match="global_load"):
        sectors_per_request("global_laod", 4)


# ------------------------------------------------------------------------------------------------------- verdicts


def test_right_and_fast_passes(in_course: Path, engine: SimpleNamespace):
    verdict = exercises.check("ex01")
    assert verdict.passed, str(verdict)
    assert verdict.correct
    assert verdict.clean
    assert verdict.stage == "passed"
    assert len(engine.launches) == len(verdict.sizes) + 1
    assert "Lesson 02" in verdict.next_hint
    assert verdict.hint_number == 0


def test_right_but_slow_is_told_with_counts_line_and_hint(in_course: Path, engine: SimpleNamespace):
    engine.counts = counts(sectors=16)
    verdict = exercises.check("ex01")
    assert not verdict.passed
    assert verdict.correct
    assert verdict.clean
    assert [(g.name, g.wanted, g.got, g.line) for g in verdict.gates if not g.passed] == [
        ("sectors per global load request", "4", 16.0, 8),
        ("sectors per global store request", "4", 16.0, 8),
    ]
    assert verdict.next_hint == verdict.hints[0]
    assert "solcourse check ex01 --hint 1" in str(verdict)


def test_hints_become_plainer_with_every_new_text(in_course: Path, engine: SimpleNamespace):
    engine.counts = counts(sectors=16)
    mine = exercises.learner_file("ex01")
    stub = mine.read_text()
    seen = []
    for change in ("", "", "# 1\n", "x = 1 / 0\n", "# 2\n", "# 3\n", "# 4\n"):
        mine.write_text(stub + change)
        verdict = exercises.check("ex01")
        seen.append(verdict.hint_number)
    # the same text again is no attempt, and a file that does not load is none either
    assert seen == [1, 1, 2, 0, 3, 3, 3]


def wrong(args: tuple) -> None:
    args[3][...] = 7


def half(args: tuple) -> None:
    args[3][: len(args[3]) // 2 + 1] = (args[0] - args[1])[: len(args[3]) // 2 + 1] * args[2]


def gaps(args: tuple) -> None:
    args[3][::2] = ((args[0] - args[1]) * args[2])[::2]


def stray(args: tuple) -> None:
    args[3][...] = (args[0] - args[1]) * args[2]
    args[3].base[:4] = 1  # in front of the output


def greedy(args: tuple) -> None:
    args[3][...] = (args[0] - args[1]) * args[2]
    args[0][0, 0] = 0


@pytest.mark.parametrize(
    ("compute", "stage", "says"),
    [
        (wrong, "result", "out[0, 0] is 7 and should be"),
        # 31 // 2 + 1 = 16 rows of 4
        (half, "result", "Only the first 64 of 124 elements of out were written (n_pixels = 31)."),
        (gaps, "result", "out[1, 0] was never written, one of 60 of 124 elements (n_pixels = 31)"),
        (stray, "bounds", "memory around out was written to"),
        (greedy, "result", "changed its input pixels"),
        (lambda args: None, "result", "out[0, 0] was never written"),
    ],
)
def test_wrong_results_are_told_with_element_and_size(in_course: Path, engine: SimpleNamespace, compute: Callable, stage: str, says: str):
    engine.compute = compute
    verdict = exercises.check("ex01")
    assert (verdict.passed, verdict.correct, verdict.stage) == (False, False, stage)
    assert says in verdict.problem
    assert verdict.gates == ()  # counts of a wrong kernel would mislead


def test_a_kernel_right_at_small_sizes_only_is_caught_at_the_counted_one(in_course: Path, engine: SimpleNamespace):
    def compute(args: tuple) -> None:
        args[3][:5000] = (args[0][:5000] - args[1]) * args[2]

    engine.compute = compute
    verdict = exercises.check("ex01")
    assert not verdict.correct
    assert "Only the first 20,000 of 4,194,304" in verdict.problem
    assert "n_pixels = 1,048,576" in verdict.problem
    assert verdict.line is None  # what wrote nothing is no line of the kernel
    assert "Does `launch` start enough threads" in verdict.next_hint
    assert "which thread is to write out[5000, 0]?" in verdict.next_hint
    assert verdict.gates == ()


def test_a_fault_of_our_own_is_a_verdict_that_owns_up(in_course: Path, engine: SimpleNamespace):
    engine.compute = lambda args: {}["missing"]
    verdict = exercises.check("ex01")
    assert (verdict.passed, verdict.stage) == (False, "fault")
    assert "KeyError: 'missing' (test_exercises.py" in verdict.problem
    assert "not your mistake" in verdict.next_hint


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("n_pixels / 256, 256", "divide with //"),
        ("None", "wanted: blocks, threads"),
        ("256", "wanted: blocks, threads"),
        ("(1, 2, 3, 4, 5)", "wanted: blocks, threads"),
        ("(1 / 0, 1)", "ZeroDivisionError"),
        ("('a', 'b')", "numba says"),
    ],
)
def test_a_launch_that_makes_no_sense_is_told(in_course: Path, engine: SimpleNamespace, returned: str, says: str):
    mine = exercises.learner_file("ex01")
    mine.write_text(mine.read_text().replace("return blocks, threads", f"return {returned}"))
    verdict = exercises.check("ex01")
    assert verdict.stage in ("launch", "error")
    assert says in verdict.problem
    assert verdict.line is not None


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"# \xe9\n", "\ufeff# byte order mark\n".encode()])
def test_any_bytes_make_a_verdict(in_course: Path, engine: SimpleNamespace, content: bytes):
    exercises.learner_file("ex01").write_bytes(content)
    assert exercises.check("ex01").stage in ("syntax", "names")


def test_nothing_can_be_kept_and_the_verdict_still_comes(in_course: Path, engine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    blocked = in_course / "a file"
    blocked.touch()
    monkeypatch.setenv("SOLCOURSE_MINE", str(blocked / "mine"))
    verdict = exercises.check("ex01")
    assert verdict.passed
    assert len(verdict.notes) == 2
    assert "SOLCOURSE_MINE" in verdict.notes[0]


def test_solutions_mode_checks_the_solution_and_keeps_nothing(in_course: Path, engine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOLCOURSE_SOLUTIONS", "1")
    exercises.learner_file("ex01").write_text("not Python")
    verdict = exercises.check("ex01")
    assert verdict.passed
    assert verdict.file == "solutions/ex01_coalescing.py"
    assert not (course.mine(in_course) / "progress.json").exists()


def test_an_unknown_device_is_told_before_anything_runs(in_course: Path, engine: SimpleNamespace):
    with pytest.raises(UnknownName, match="A100"):
        exercises.check("ex01", device="A1000")
    assert engine.launches == []


def verdict_with(**changes: object) -> Verdict:
    fields: dict = {
        "exercise": "ex01", "passed": False, "correct": True, "clean": True, "gates": (), "findings": (), "report": None,
        "next_hint": "go on", "title": "a <title>", "file": "exercises/mine/ex01.py", "stage": "counts", "problem": "", "line": None,
        "line_text": "", "sizes": (1, 31), "gate_size": 1024, "attempts": 1, "hints": ("h1", "h2", "h3"),
    }  # fmt: skip
    return Verdict(**{**fields, **changes})


def test_text_and_html_say_the_same_and_what_clean_means():
    gate = Gate("sectors per request", "4", 16.0, 40, False, "out[i] = x[j] < y", "think")
    verdict = verdict_with(gates=(gate,))
    text, page = str(verdict), verdict._repr_html_()
    for words in ("wanted 4", "line 40", "think", CLEAN):
        assert words in text
        assert words in page
    assert "x[j] &lt; y" in page
    assert "a &lt;title&gt;" in page
    assert "not yet" in text


def test_what_was_not_reached_is_not_called_wrong():
    text = str(verdict_with(stage="syntax", correct=False, clean=False, problem="Syntax: invalid.", line=3, line_text="def f(:"))
    assert "correct  not yet reached" in text
    assert "clean    not yet reached" in text
    assert "line 3: def f(:" in text
    assert "--hint" not in text


def test_html_takes_its_text_colour_from_the_page():
    page = verdict_with()._repr_html_()
    assert "color:black" not in page
    assert "background" not in page


def test_guard_zones_lie_on_both_sides():
    guarded = trial._Guarded(np.arange(6, dtype=np.float64).reshape(2, 3), poisoned=False)
    assert guarded.intact()
    assert (guarded.value == np.arange(6).reshape(2, 3)).all()
    assert guarded.value.flags.c_contiguous
    for position in (0, trial.GUARD * 8 - 1, -trial.GUARD * 8, -1):
        guarded.buffer[position] ^= 1
        assert not guarded.intact()
        guarded.buffer[position] ^= 1
    assert guarded.intact()
