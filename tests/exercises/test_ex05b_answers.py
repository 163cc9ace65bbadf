"""Wrong and cheating answers to ex05b, each made from the solution by a small edit, each failing for its own reason."""

from __future__ import annotations

import pytest

N, BINS = 2**20, 64
ZERO = """    for b in range(cuda.threadIdx.x, counts.size, cuda.blockDim.x):
        private[b] = 0
    cuda.syncthreads()
"""
COUNT = "cuda.atomic.add(private, value, 1)"
AFTER = f"            {COUNT}\n    cuda.syncthreads()\n"
DELIVER = "cuda.atomic.add(counts, b, private[b])"
DELIVERY = f"    for b in range(cuda.threadIdx.x, counts.size, cuda.blockDim.x):\n        {DELIVER}"
INSIDE = "if value >= 0 and value < counts.size:"
LOOP = "for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):"
BLOCKS = "min((n + 16 * THREADS - 1) // (16 * THREADS), 864)"

pytestmark = pytest.mark.slow  # a compilation for each answer


def failing(verdict) -> set[str]:
    return {gate.name for gate in verdict.gates if not gate.passed}


def test_the_stub_delivers_every_value_by_itself(judge, stub):
    verdict = judge("ex05b", stub("ex05b"))
    assert verdict.correct
    assert failing(verdict) == {"global atomics per block", "bytes of global atomics"}
    assert 128 < verdict.gates[0].got < 256  # those of 256 values that lie inside


def test_the_solution_delivers_one_number_for_each_bin(judge, solution):
    verdict = judge("ex05b", solution("ex05b"))
    assert verdict.passed, str(verdict)
    got = {gate.name: gate.got for gate in verdict.gates}
    assert got["global atomics per block"] == BINS
    assert got["bytes of global atomics"] == 4 * BINS * got["blocks"] == 4 * BINS * 256
    assert got["bytes of global loads"] == 4 * N


WRONG_RESULT = {
    "counters that nobody sets to zero": ((ZERO, ""), "hazard", "private"),
    "no barrier before counting": ((ZERO, ZERO.replace("    cuda.syncthreads()\n", "")), "hazard", "private"),
    "no barrier before delivering": ((AFTER, f"            {COUNT}\n"), "hazard", "private"),
    "counting without atomics": ((COUNT, "private[value] += 1"), "hazard", "private"),
    "delivering without atomics": ((DELIVER, "counts[b] += private[b]"), "hazard", "counts"),
    "negative values": ((INSIDE, "if value < counts.size:"), "hazard", "private[255]"),
    "values above the bins": ((INSIDE, "if value >= 0:"), "hazard", "which no thread of block 0 has written"),
    "values outside count in the outermost bins": (
        (f"{INSIDE}\n            {COUNT}", "cuda.atomic.add(private, min(max(value, 0), counts.size - 1), 1)"), "result", "counts",
    ),
    "values a little outside only": (
        (
            ("array(MOST_BINS, int32)", "array(1024, int32)"),
            (ZERO, ZERO.replace("counts.size", "1024")),
            (f"{INSIDE}\n            {COUNT}", COUNT.replace("value", "value + 256")),
            (DELIVER, DELIVER.replace("private[b]", "private[b + 256]")),
        ), "bounds", "private",
    ),
    "nine bits of a value": ((INSIDE, "if (value & 511) < counts.size:\n            value = value & 511"), "result", "counts"),
    "the bins of the counted launch": ((DELIVERY, DELIVERY.replace("counts.size", "64")), "bounds", "counts"),
    "the ragged end left out": ((LOOP, LOOP.replace("values.size", "values.size // 32 * 32")), "result", "counts"),
    "what stood there is lost": ((DELIVER, "cuda.atomic.max(counts, b, private[b])"), "result", "counts"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_RESULT)
def test_a_wrong_answer_is_told_why(judge, solution, edited, name):
    change, stage, said = WRONG_RESULT[name]
    changes = (change,) if isinstance(change[0], str) else change
    verdict = judge("ex05b", edited(solution("ex05b"), *changes))
    assert not verdict.passed
    assert verdict.stage == stage, str(verdict)
    assert said in f"{verdict.problem} {verdict.line_text}", str(verdict)


STRETCH = """per = (values.size + cuda.gridsize(1) - 1) // cuda.gridsize(1)
    for i in range(cuda.grid(1) * per, min(cuda.grid(1) * per + per, values.size)):"""
WASTEFUL = {
    "a value for each thread": ((BLOCKS, "(n + THREADS - 1) // THREADS"), "bytes of global atomics"),
    "one block": ((BLOCKS, "1"), "blocks"),
    "each value counted in global memory": ((f"{COUNT}\n", "cuda.atomic.add(counts, value, 1)\n"), "global atomics per block"),
    "a stretch of neighbours for each thread": ((LOOP, STRETCH), "sectors of global loads"),
}


@pytest.mark.parametrize("name", WASTEFUL)
def test_a_wasteful_answer_fails_at_its_gate(judge, solution, edited, name):
    change, gate = WASTEFUL[name]
    verdict = judge("ex05b", edited(solution("ex05b"), change))
    assert verdict.stage == "counts", str(verdict)
    assert gate in failing(verdict), str(verdict)


GOOD = {
    "a copy for each lane of four": (
        ("array(MOST_BINS, int32)", "array((MOST_BINS, 4), int32)\n    copy = cuda.threadIdx.x & 3"),
        ("private[b] = 0", "for k in range(4):\n            private[b, k] = 0"),
        (COUNT, "cuda.atomic.add(private, (value, copy), 1)"),
        (DELIVER, "cuda.atomic.add(counts, b, private[b, 0] + private[b, 1] + private[b, 2] + private[b, 3])"),
    ),
    "larger blocks, nothing delivered for empty bins": (
        ("THREADS = 256", "THREADS = 512"),
        (DELIVER, "if private[b] > 0:\n            cuda.atomic.add(counts, b, private[b])"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_other_good_designs_pass(judge, solution, edited, name):
    verdict = judge("ex05b", edited(solution("ex05b"), *GOOD[name]))
    assert verdict.passed, str(verdict)
