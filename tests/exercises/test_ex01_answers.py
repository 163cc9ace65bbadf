"""ex01 graded on the engine: every plausible wrong answer fails for its own reason, other good ones pass."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from solcourse import exercises
from solcourse.verdict import Verdict

NUMBERS = 4 * 2**20  # of ex01's counted image

Grade = Callable[[str], Verdict]

pytestmark = pytest.mark.slow  # a compilation for each answer


@pytest.fixture
def ex01(in_course: Path) -> Grade:
    """ex01(kernel and launch as text) -> Verdict; a launch of a thread per number is added where the text has none."""
    launch = "def launch(n_pixels):\n    return (4 * n_pixels + 255) // 256, 256\n"

    def grade(text: str) -> Verdict:
        text = textwrap.dedent(text)
        text = text if "def launch" in text else f"{text}\n\n{launch}"
        exercises.learner_file("ex01").write_text("from numba import cuda\n\n\n@cuda.jit\n" + text.lstrip())
        return exercises.check("ex01", limit_s=2)

    return grade


def test_ex01_pulls_16_sectors_before_and_4_after(in_course: Path, monkeypatch: pytest.MonkeyPatch):
    # stub: 32 lanes x 16 bytes = 512 bytes = 16 sectors of 32;  solution: 32 x 4 = 128 bytes = 4 sectors. Requests: numbers / 32 each way
    for solved, sectors in (("0", 16), ("1", 4)):
        monkeypatch.setenv("SOLCOURSE_SOLUTIONS", solved)
        got = {gate.name: gate.got for gate in exercises.check("ex01").gates}
        assert got == {
            "sectors per global load request": sectors,
            "sectors per global store request": sectors,
            "fp32 FLOPs": 2 * NUMBERS,
            "bytes of global loads": 4 * NUMBERS,
            "bytes of global stores": 4 * NUMBERS,
        }


def test_ex01_solution_is_predicted_faster_than_its_stub(in_course: Path, monkeypatch: pytest.MonkeyPatch):
    slow = exercises.check("ex01").report
    monkeypatch.setenv("SOLCOURSE_SOLUTIONS", "1")
    fast = exercises.check("ex01").report
    assert slow is not None
    assert fast is not None
    assert fast.time_s < slow.time_s
    assert slow.sol_score < fast.sol_score <= 1
    assert fast.origin == "predicted"


def test_the_failing_gate_names_the_line_that_costs_most(in_course: Path):
    verdict = exercises.check("ex01")
    text = exercises.learner_file("ex01").read_text().splitlines()
    for gate in verdict.gates:
        assert gate.passed or text[gate.line - 1].strip() == gate.text == "out[pixel, channel] = (pixels[pixel, channel] - mean) * scale"
    assert sum(not gate.passed for gate in verdict.gates) == 2


BLOCK_4_64 = """
    def normalise(pixels, mean, scale, out):
        channel, pixel = cuda.grid(2)
        if pixel < out.shape[0]:
            out[pixel, channel] = (pixels[pixel, channel] - mean) * scale

    def launch(n_pixels):
        return (1, (n_pixels + 63) // 64), (4, 64)
"""
GRID_STRIDE = """
    def normalise(pixels, mean, scale, out):
        t = cuda.grid(1)
        while t < out.size:
            out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale
            t += cuda.gridsize(1)

    def launch(n_pixels):
        return 432, 128
"""
STAGED = """
    def normalise(pixels, mean, scale, out):
        tile = cuda.shared.array(1024, 'float32')
        t = cuda.threadIdx.x
        first = cuda.blockIdx.x * 1024
        for part in range(4):
            number = first + part * 256 + t
            if number < out.size:
                tile[part * 256 + t] = (pixels[number // 4, number % 4] - mean) * scale
        cuda.syncthreads()
        for part in range(4):
            number = first + part * 256 + t
            if number < out.size:
                out[number // 4, number % 4] = tile[part * 256 + t]

    def launch(n_pixels):
        return (n_pixels + 255) // 256, 256
"""


@pytest.mark.parametrize("text", [BLOCK_4_64, GRID_STRIDE, STAGED], ids=["block of (4, 64)", "grid-stride", "through shared memory"])
def test_other_good_answers_pass_too(ex01: Grade, text: str):
    verdict = ex01(text)
    assert verdict.passed, str(verdict)


# What a learner might well write: (text, stage reached, gates not passed, what the verdict says)
LOADS, STORES = "sectors per global load request", "sectors per global store request"
FLOPS, LOADED, STORED = "fp32 FLOPs", "bytes of global loads", "bytes of global stores"
WRONG: dict[str, tuple[str, str, set[str], str]] = {
    "axes of the block swapped": (
        """
        def normalise(pixels, mean, scale, out):
            pixel, channel = cuda.grid(2)
            if pixel < out.shape[0]:
                out[pixel, channel] = (pixels[pixel, channel] - mean) * scale

        def launch(n_pixels):
            return ((n_pixels + 63) // 64, 1), (64, 4)
        """,
        "counts", {LOADS, STORES}, "got 16",
    ),
    "only the loads repaired, through shared memory": (
        """
        def normalise(pixels, mean, scale, out):
            tile = cuda.shared.array(1024, 'float32')
            t = cuda.threadIdx.x
            for part in range(4):
                number = cuda.blockIdx.x * 1024 + part * 256 + t
                if number < out.size:
                    tile[part * 256 + t] = pixels[number // 4, number % 4]
            cuda.syncthreads()
            pixel = cuda.grid(1)
            if pixel < out.shape[0]:
                for channel in range(4):
                    out[pixel, channel] = (tile[4 * t + channel] - mean) * scale

        def launch(n_pixels):
            return (n_pixels + 255) // 256, 256
        """,
        "counts", {STORES}, "out[pixel, channel] = (tile",
    ),
    "launch forgotten": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t < out.size:
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale

        def launch(n_pixels):
            return (n_pixels + 255) // 256, 256
        """,
        "result", set(), "Only the first 512 of 1,028 elements",
    ),
    "guard forgotten": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale
        """,
        "bounds", set(), "pixels",
    ),
    "guard one too wide": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t <= out.size:
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale
        """,
        "bounds", set(), "pixels",
    ),
    "guard counts pixels": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t < out.shape[0]:
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale
        """,
        "result", set(), "Only the first",
    ),
    "three channels": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t < out.size:
                out[t // 4, t % 4] = (pixels[t // 4, t % 3] - mean) * scale
        """,
        "result", set(), "should be",
    ),
    "columns first": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            n = out.shape[0]
            if t < out.size:
                out[t % n, t // n] = (pixels[t % n, t // n] - mean) * scale
        """,
        "counts", {LOADS, STORES}, "got 16",
    ),
    "right at multiples of 256 only": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale

        def launch(n_pixels):
            return max(1, 4 * n_pixels // 256), 256
        """,
        "bounds", set(), "line",
    ),
    "in double precision": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t < out.size:
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) / (1.0 / scale)
        """,
        "counts", {FLOPS}, "float64",
    ),
    "a warp for eight numbers": (
        """
        def normalise(pixels, mean, scale, out):
            lane = cuda.threadIdx.x % 32
            t = cuda.grid(1) // 32 * 8 + lane
            if lane < 8 and t < out.size:
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale

        def launch(n_pixels):
            return (4 * n_pixels + 63) // 64, 256
        """,
        "counts", {LOADS, STORES}, "got 1",
    ),
    "shifted by one number": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t < out.size:
                n = (t + 1) % out.size
                out[n // 4, n % 4] = (pixels[n // 4, n % 4] - mean) * scale
        """,
        "counts", {LOADS, STORES}, "got 5",
    ),
    "read twice": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t < out.size:
                again = pixels[t // 4, 3 - t % 4]
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale + (mean - mean) * again
        """,
        "counts", {LOADED}, "again = pixels[t // 4, 3 - t % 4]",
    ),
    "in place": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t < out.size:
                pixels[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale
                out[t // 4, t % 4] = pixels[t // 4, t % 4]
        """,
        "result", set(), "changed its input pixels",
    ),
    "nothing done": (
        """
        def normalise(pixels, mean, scale, out):
            pass
        """,
        "result", set(), "was never written",
    ),
    "the whole answer in one thread, at small sizes": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if out.size < 20000 and t == 0:
                for pixel in range(out.shape[0]):
                    for channel in range(4):
                        out[pixel, channel] = (pixels[pixel, channel] - mean) * scale
        """,
        "result", set(), "n_pixels = 1,048,576",
    ),
    "a loop that never ends": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            while t < out.size:
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale
        """,
        "time", set(), "line",
    ),
    "a thread that waits for one that waits at a barrier": (
        """
        def normalise(pixels, mean, scale, out):
            ready = cuda.shared.array(256, 'int32')
            ready[cuda.threadIdx.x] = 0
            cuda.syncthreads()
            while cuda.threadIdx.x >= 32 and ready[0] == 0:
                ready[cuda.threadIdx.x] = 1
            cuda.syncthreads()
            ready[0] = 1
            t = cuda.grid(1)
            if t < out.size:
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale
        """,
        "time", set(), "line",
    ),
    "a dictionary in the kernel": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t < out.size:
                where = {"pixel": t // 4}
                out[where["pixel"], t % 4] = pixels[where["pixel"], t % 4]
        """,
        "compile", set(), "",
    ),
    "a name that does not exist": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t < an_array.size:
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale
        """,
        "compile", set(), "an_array",
    ),
    "too many threads": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t < out.size:
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale

        def launch(n_pixels):
            return (n_pixels + 511) // 512, 2048
        """,
        "launch", set(), "1024",
    ),
    "no blocks": (
        """
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t < out.size:
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale

        def launch(n_pixels):
            return 4 * n_pixels // 256, 256
        """,
        "launch", set(), "at least 1",
    ),
    "fewer parameters": (
        """
        def normalise(pixels, out):
            t = cuda.grid(1)
            if t < out.size:
                out[t // 4, t % 4] = pixels[t // 4, t % 4]
        """,
        "names", set(), "takes (pixels, out)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_answer_fails_for_its_own_reason(ex01: Grade, mistake: str):
    text, stage, gates, says = WRONG[mistake]
    verdict = ex01(text)
    assert not verdict.passed
    assert verdict.stage == stage, str(verdict)
    assert {gate.name for gate in verdict.gates if not gate.passed} == gates, str(verdict)
    assert says in str(verdict), str(verdict)
    assert verdict.next_hint
    assert verdict.correct is (stage == "counts")
    assert verdict.clean is (stage in ("counts", "result"))


@pytest.mark.parametrize(
    "mistake",
    ["guard forgotten", "a loop that never ends", "a name that does not exist", "a thread that waits for one that waits at a barrier"],
)
def test_what_stops_a_kernel_is_told_with_the_learners_line(ex01: Grade, mistake: str):
    verdict = ex01(WRONG[mistake][0])
    wanted = {
        "guard forgotten": "out[t // 4",
        "a loop that never ends": "while t < out.size|out[t // 4",
        "a name that does not exist": "an_array",
        "a thread that waits for one that waits at a barrier": "while cuda.threadIdx.x|ready[cuda.threadIdx.x]",
    }[mistake]
    assert verdict.line is not None, str(verdict)
    assert any(words in verdict.line_text for words in wanted.split("|")), str(verdict)


def test_a_warning_of_the_engine_is_shown_and_does_not_fail(ex01: Grade):
    verdict = ex01("""
        def normalise(pixels, mean, scale, out):
            t = cuda.grid(1)
            if t % 2 == 0:
                cuda.syncthreads()
            else:
                cuda.syncthreads()
            if t < out.size:
                out[t // 4, t % 4] = (pixels[t // 4, t % 4] - mean) * scale
    """)
    assert verdict.passed, str(verdict)
    assert [finding.severity for finding in verdict.findings] == ["warning"]
    assert verdict.findings[0].message in str(verdict)


def test_the_guard_advised_is_in_the_learners_own_names_and_said_once(ex01: Grade):
    verdict = ex01(WRONG["guard forgotten"][0])
    assert "`if i < pixels.size:`" in verdict.next_hint
    assert str(verdict).count("if i <") == 2  # for elements, and for rows
    assert verdict.next_hint not in verdict.problem


def test_a_slip_in_a_name_is_not_lectured_on_what_kernels_know(ex01: Grade):
    verdict = ex01(WRONG["a name that does not exist"][0])
    assert "Repair the name" in verdict.next_hint


def test_a_stray_access_names_block_thread_array_and_index(ex01: Grade):
    verdict = ex01(WRONG["guard forgotten"][0])
    (finding,) = verdict.findings
    # one pixel: 4 numbers; thread 4 is the first that asks for pixel 1
    assert (finding.kind, finding.severity, finding.array) == ("out_of_bounds", "error", "pixels")
    assert finding.block == (0, 0, 0)
    assert finding.thread == (4, 0, 0)
    assert finding.index == 4


def test_a_bad_answer_leaves_the_next_check_unharmed(ex01: Grade):
    for mistake in ("guard forgotten", "a loop that never ends", "a name that does not exist"):
        assert not ex01(WRONG[mistake][0]).passed
    assert ex01(BLOCK_4_64).passed


def test_a_check_repeats_to_the_last_digit(in_course: Path):
    first, second = exercises.check("ex01"), exercises.check("ex01")
    assert str(first) == str(second)


def test_a_changed_text_is_judged_in_a_second_of_cpu_time(ex01: Grade):
    ex01(BLOCK_4_64)  # warm: numba is imported
    started = time.process_time()  # not the clock on the wall: other tests run beside this one
    assert ex01(GRID_STRIDE).passed
    assert time.process_time() - started < 2  # about 0.7 s on an idle machine
