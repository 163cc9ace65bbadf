"""Every exercise can be begun, failed, and solved; and what a check of several launches, or of several parts, says."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from solcourse import course, exercises, stubs
from solcourse.verdict import Verdict

NAMES = sorted(course.names(Path(__file__).resolve().parents[2]))
Judge = Callable[[str, str], Verdict]


@pytest.mark.parametrize("name", NAMES)
def test_a_stub_runs_and_fails(in_course: Path, name: str):
    verdict = exercises.check(name)
    assert not verdict.passed, f"{name} passes as it is handed out"
    assert verdict.stage == "counts", str(verdict)  # right, clean and slow: nothing to repair before one can begin
    assert verdict.report is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_solution_passes_and_answers_soon(judge: Judge, solution, name: str):
    verdict = judge(name, solution(name))
    assert verdict.passed, str(verdict)
    assert verdict.clean
    assert not verdict.findings
    assert all(gate.passed for gate in verdict.gates)
    started = time.process_time()  # not the clock on the wall: other tests run beside this one
    assert exercises.check(name).passed
    print(f"\n{name}: {time.process_time() - started:.1f} s of CPU time, warm")


# ---- exercises made for these tests

TESTS = """
### BEGIN HIDDEN TESTS
import numpy as np

from solcourse.grading import Exercise, blocks, bytes_moved, launches, loads_in_flight, occupancy, per_block, words_per_fma
from solcourse.work import Work


def arguments(rows, columns, rng):
    return {
        "x": rng.random((rows, columns), dtype=np.float32),
        "total": rng.random(columns, dtype=np.float32),
        "out": np.empty((rows, columns), np.float32),
    }


def reference(x, total, out):
    return {"total": total + x.sum(0), "out": 2 * x + 1}


def gates(rows, columns):
    return (launches(at_most=1), bytes_moved("global_store", at_least=1, at_most=4 * (rows + 1) * columns))


def work(rows, columns):
    return Work.read("x", 4 * rows * columns) + Work.write("out", 4 * rows * columns)


HINTS = ("a first hint, long enough to be one, or so it seems",) * 3
FUSED = Exercise(
    program="forward", arguments=arguments, outputs=("total", "out"), accumulators=("total",), reference=reference,
    sizes=((5, 3), (1, 1)), gate_size=(32, 64), gates=gates, work=work, hints=HINTS, after="well done", title="fused",
)
SCALED = Exercise(
    kernel="scale", arguments=lambda n, rng: {"x": rng.random(n, dtype=np.float32), "out": np.empty(n, np.float32)}, outputs=("out",),
    reference=lambda x, out: {"out": 2 * x}, sizes=(33,), gate_size=1024, title="scaled", hints=HINTS,
    gates=lambda n: (
        loads_in_flight(at_least=1), occupancy(at_most=1.0), words_per_fma("global_load", at_most=1e6),
        per_block("loads", lambda c: c.global_load.bytes / 4, at_most=256, advice="twice"), blocks(at_least=4),
    ),
    work=lambda n: Work.read("x", 4 * n) + Work.write("out", 4 * n),
)
EXERCISE = (SCALED, FUSED)
### END HIDDEN TESTS
"""
BODY = '''"""Exercise 77: made up.

Goal
    Nothing.
"""
from numba import cuda
import numpy as np


@cuda.jit
def scale(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = np.float32(2) * x[i]


@cuda.jit
def shift(x, out):
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = np.float32(2) * x[i, j] + np.float32(1)


@cuda.jit
def copy(x, out):
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j]


@cuda.jit
def columns(x, total):
    j = cuda.grid(1)
    if j < total.size:
        for i in range(x.shape[0]):
            total[j] += x[i, j]


@cuda.jit
def both(x, total, out):
    j = cuda.grid(1)
    if j < total.size:
        added = np.float32(0)
        for i in range(x.shape[0]):
            added += x[i, j]
            out[i, j] = np.float32(2) * x[i, j] + np.float32(1)
        total[j] += added


def launch(n):
    return (n + 255) // 256, 256


def forward(x, total, out):
    ANSWER
'''
ANSWERS = {
    "two launches": "shift[((x.shape[1] + 31) // 32, x.shape[0]), (32, 1)](x, out); columns[(total.size + 31) // 32, 32](x, total)",
    "one launch": "both[(total.size + 31) // 32, 32](x, total, out)",
    "on the host": "total += x.sum(0); out[...] = 2 * x + 1",
    "out of bounds": "both[(total.size + 31) // 32, 32](x, total[:0], out); columns[1, 32](x[:, :0], total)",
    "an error": "raise ValueError('oh')",
    "caught": "try:\n        stray[1, 64](x, total)\n    except Exception:\n        pass",
    "a temporary": (
        "made = cuda.device_array(out.shape, np.float32); grid, block = ((x.shape[1] + 31) // 32, x.shape[0]), (32, 1); "
        "shift[grid, block](x, made); copy[grid, block](made, out); columns[grid[0], 32](x, total)"
    ),
    "an empty temporary": (
        "made = cuda.device_array(out.shape, np.float32); grid, block = ((x.shape[1] + 31) // 32, x.shape[0]), (32, 1); "
        "copy[grid, block](made, out)"
    ),
    "overwritten": "both[(total.size + 31) // 32, 32](x, total, out); total[...] = x.sum(0)",
}


@pytest.fixture
def made_up(in_course: Path, judge: Judge):
    """made_up(answer, (old, new) ...) -> Verdict of an exercise with two parts, the second a program of several launches."""
    (in_course / "solutions" / "ex77_made_up.py").write_text(BODY.replace("ANSWER", ANSWERS["one launch"]) + TESTS)
    (in_course / "exercises" / "ex77_made_up.py").write_text(BODY)

    def check(answer: str, *changes: tuple[str, str]) -> Verdict:
        text = BODY.replace("ANSWER", ANSWERS[answer])
        text = text.replace("def launch", "@cuda.jit\ndef stray(x, total):\n    total[cuda.grid(1)] = x[0, 0]\n\n\ndef launch")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return judge("ex77", text)

    return check


def test_one_launch_passes_and_the_verdict_is_of_the_whole(made_up):
    verdict = made_up("one launch")
    assert verdict.passed, str(verdict)
    assert verdict.gate_size == (32, 64)
    assert "2 odd sizes and 32 x 64" in str(verdict)
    assert "All 2 parts pass" in str(verdict)
    assert [gate.got for gate in verdict.gates] == [1, 4 * 33 * 64]


def test_two_launches_are_counted_and_priced_together(made_up):
    verdict = made_up("two launches")
    assert verdict.stage == "counts"
    got = {gate.name: (gate.got, gate.passed) for gate in verdict.gates}
    assert got["kernel launches"] == (2, False)
    # out once, and total for every row: the rows are added one by one in memory
    assert got["bytes of global stores"] == (4 * (32 * 64 + 32 * 64), False)
    assert "2 launches, one after the other" in verdict.notes[0]
    assert verdict.part == "part 2 of 2, fused"
    assert (verdict.hint_number, verdict.first_hint) == (1, 3)
    assert "--hint 4" in str(verdict)


@pytest.mark.parametrize(
    ("answer", "stage", "says"),
    [
        ("on the host", "counts", "No kernel was launched"),
        ("out of bounds", "bounds", "total"),
        ("an error", "error", "ValueError while calling forward: oh"),
        ("caught", "bounds", "total"),
        ("overwritten", "result", "total[0] is"),
        ("a temporary", "counts", "kernel launches: wanted 1, got 3"),  # what one launch has written, the next may read
        ("an empty temporary", "hazard", "nobody has written"),
    ],
)
def test_a_program_fails_for_its_own_reason(made_up, answer: str, stage: str, says: str):
    verdict = made_up(answer)
    assert verdict.stage == stage, str(verdict)
    assert says in str(verdict)
    assert not verdict.passed


def test_gates_count_what_they_say(made_up):
    twice = ("out[i] = np.float32(2) * x[i]\n", "out[i] = x[i] + x[out.size - 1 - i]\n        out[i] = np.float32(2) * x[i]\n")
    verdict = made_up("one launch", twice)
    # 1024 elements in 4 blocks, each read from two places: 512 a block; the compiler may find the second read of x[i] in its register
    assert {gate.name: (gate.got, gate.passed) for gate in verdict.gates} == {
        "loads in flight per thread": (2, True),
        "theoretical occupancy": (1, True),  # 256 threads, few registers: 8 blocks of 8 warps
        "words of global loads per FMA": (verdict.gates[2].got, True),
        "loads per block": (verdict.gates[3].got, False),
        "blocks": (4, True),
    }
    assert verdict.gates[3].got >= 512


def test_an_endless_program_is_stopped(made_up, monkeypatch):
    monkeypatch.setattr(exercises, "check", partial(exercises.check, limit_s=0.3))
    verdict = made_up("an error", ("raise ValueError('oh')", "while True: pass"))
    assert verdict.stage == "time"
    assert "calling forward" in verdict.problem


def test_the_first_part_comes_first(made_up):
    verdict = made_up("one launch", ("np.float32(2) * x[i]\n", "np.float32(3) * x[i]\n"))
    assert verdict.stage == "result"
    assert verdict.part == "part 1 of 2, scaled"
    assert "n = 33" in verdict.problem
    assert "part 1 of 2" in verdict._repr_html_()


def test_functions_take_what_they_are_called_with(made_up):
    assert (
        "`forward` takes (x, out) and is called with (x, total, out)"
        in made_up("an error", ("forward(x, total, out)", "forward(x, out)")).problem
    )
    assert "`launch` takes () and is called with (n)" in made_up("one launch", ("launch(n)", "launch()")).problem


def test_hints_of_all_parts_are_numbered_on(made_up):
    made_up("one launch")
    assert exercises.hint("ex77", 6)
    assert len(exercises.sheet("ex77").hints) == 6


def test_stubs_are_made_of_every_exercise(in_course: Path):
    assert stubs.write(in_course) == []
