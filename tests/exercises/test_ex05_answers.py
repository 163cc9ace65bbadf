"""Wrong and cheating answers to ex05, each made from the solution by a small edit, each failing for its own reason."""

from __future__ import annotations

import pytest

N = 2**20
LOOP = "for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):"
BARRIER = "    cuda.syncthreads()\n"
DELIVERY = "cuda.atomic.add(total, 0, mine)"
ONE = f"if t == 0:\n            {DELIVERY}"
LAUNCH = "min((n + 8 * THREADS - 1) // (8 * THREADS), 864)"
GATHER = "for other in range(32, THREADS, 32):\n            mine += cache[t + other]"
TAIL = "    if t < 32:"  # from here on the sum of a block is made and delivered

pytestmark = pytest.mark.slow  # a compilation for each answer


def failing(verdict) -> set[str]:
    return {gate.name for gate in verdict.gates if not gate.passed}


def test_the_stub_makes_an_atomic_for_every_thread(judge, stub):
    verdict = judge("ex05", stub("ex05"))
    assert verdict.correct
    assert failing(verdict) == {"global atomics per block", "bytes of global atomics"}
    assert verdict.gates[0].got == 256
    assert "cuda.atomic.add(total, 0, difference * difference)" in verdict.gates[0].text


def test_the_solution_sends_one_thread_of_each_block(judge, solution):
    verdict = judge("ex05", solution("ex05"))
    assert verdict.passed, str(verdict)
    got = {gate.name: gate.got for gate in verdict.gates}
    assert got["global atomics per block"] == got["divergent branches per block"] == 1
    assert got["bytes of global loads"] == 2 * 4 * N
    # 3 each; warp 0 of 512 blocks adds 7 rows of 32; four shuffles and, for lane 0 alone, a fifth; the atomic
    assert got["fp32 FLOPs"] == 3 * N + 512 * (7 * 32 + 4 * 32 + 1 + 1)


WRONG_RESULT = {
    "one element too far": ((LOOP, LOOP.replace("a.size", "a.size + 1")), "bounds", "a[i] - b[i]"),
    "the size of the counted launch": ((LOOP, LOOP.replace("a.size", "2**20")), "bounds", "a[i] - b[i]"),
    "a race: no barrier before the others' sums are read": ((BARRIER, ""), "hazard", "cache"),
    "a race: no atomic": ((DELIVERY, "total[0] += mine"), "hazard", "total"),
    "the largest sum of a block": ((DELIVERY, DELIVERY.replace("add", "max")), "result", "total[0]"),
    "warp 0 alone": ((GATHER, "pass"), "result", "total[0]"),
    "the ragged end left out": ((LOOP, LOOP.replace("a.size", "a.size // 32 * 32")), "result", "n = 1"),
    "every other element, twice": ((LOOP, LOOP.replace("cuda.gridsize(1)", "2 * cuda.gridsize(1)")), "result", "total[0]"),
    "lanes that are not there asked to shuffle": ((TAIL, "    if t < 16:"), "hazard", "shfl"),
    "another name": (("def squared_distance(", "def distance("), "names", "squared_distance"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_RESULT)
def test_a_wrong_answer_is_told_why(judge, solution, edited, name):
    change, stage, said = WRONG_RESULT[name]
    verdict = judge("ex05", edited(solution("ex05"), change))
    assert not verdict.passed
    assert verdict.stage == stage, str(verdict)
    assert said in f"{verdict.problem} {verdict.line_text}", str(verdict)


TREE = """    step = THREADS // 2
    while step > 0:
        if t < step:
            cache[t] += cache[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        cuda.atomic.add(total, 0, cache[0])
"""
SHUFFLES = """    step = 16
    while step > 0:
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, step)
        step //= 2
    if t & 31 == 0:
        cuda.atomic.add(total, 0, mine)
"""


def with_tail(text: str, tail: str) -> str:
    """The solution with another way to bring a block's numbers together."""
    start, end = text.index(TAIL), text.index("\n\ndef launch")
    return text[:start] + tail + text[end:]


STRETCH = """per = (a.size + cuda.gridsize(1) - 1) // cuda.gridsize(1)
    for i in range(cuda.grid(1) * per, min(cuda.grid(1) * per + per, a.size)):"""
WASTEFUL = {
    "one block": ((LAUNCH, "1"), "blocks"),
    "one thread reads everything": ((LOOP, "for i in range(0 if cuda.grid(1) == 0 else a.size, a.size):"), "sectors of global loads"),
    "a stretch of neighbours for each thread": ((LOOP, STRETCH), "sectors of global loads"),
    "float64 by accident": (("mine = float32(0.0)", "mine = 0.0"), "fp32 FLOPs"),
}


@pytest.mark.parametrize("name", WASTEFUL)
def test_a_wasteful_answer_fails_at_its_gate(judge, solution, edited, name):
    change, gate = WASTEFUL[name]
    verdict = judge("ex05", edited(solution("ex05"), change))
    assert verdict.stage == "counts", str(verdict)
    assert gate in failing(verdict), str(verdict)


def test_a_tree_down_to_one_thread_splits_warps(judge, solution):
    """Steps 16, 8, 4, 2, 1 leave some lanes of warp 0 behind, and one lane delivers."""
    verdict = judge("ex05", with_tail(solution("ex05"), TREE))
    assert failing(verdict) == {"divergent branches per block"}
    assert verdict.gates[1].got == 5 + 1


def test_an_atomic_for_every_warp_is_eight_too_many(judge, solution):
    verdict = judge("ex05", with_tail(solution("ex05"), SHUFFLES))
    assert failing(verdict) == {"global atomics per block", "divergent branches per block"}
    assert [gate.got for gate in verdict.gates[:2]] == [8, 8]
    assert "picks a lane from every warp" in verdict.gates[1].advice


def test_a_block_for_every_element_is_no_reduction(judge, stub, edited):
    """An atomic for each element, spread over so many blocks that each makes one."""
    verdict = judge("ex05", edited(stub("ex05"), ("blocks = (n + THREADS - 1) // THREADS", "blocks = n")))
    assert failing(verdict) == {"bytes of global atomics"}


def test_blocks_that_do_nothing_do_not_make_up_for_others(judge, solution, edited):
    """Of six blocks one works, with six divergent branches."""
    verdict = judge(
        "ex05",
        edited(
            with_tail(solution("ex05"), TREE),
            ("    cache = cuda", "    if cuda.blockIdx.x % 6 != 0:\n        return\n    cache = cuda"),
            (
                "(cuda.grid(1), a.size, cuda.gridsize(1))",
                "(cuda.blockIdx.x // 6 * THREADS + cuda.threadIdx.x, a.size, cuda.gridsize(1) // 6)",
            ),
            ("return blocks, THREADS", "return 6 * blocks, THREADS"),
        ),
    )
    assert failing(verdict) == {"global atomics per block"}
    assert "deliver nothing" in str(verdict)


def test_nothing_added_at_the_counted_size_is_a_wrong_result(judge, solution, edited):
    verdict = judge("ex05", edited(solution("ex05"), (LOOP, LOOP.replace("a.size", "(a.size if a.size < 2**20 else 0)"))))
    assert (verdict.stage, verdict.passed) == ("result", False)
    assert "n = 1,048,576" in verdict.problem


GOOD = {
    "a tree of whole warps, then shuffles": ("""    step = THREADS // 2
    while step >= 32:
        if t < step:
            cache[t] += cache[t + step]
        cuda.syncthreads()
        step //= 2
    if t < 32:
        mine = cache[t]
        step = 16
        while step > 0:
            mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, step)
            step //= 2
        if t == 0:
            cuda.atomic.add(total, 0, mine)
""", ()),
    "larger blocks, butterflies": ("""    if t < 32:
        for other in range(32, THREADS, 32):
            mine += cache[t + other]
        step = 1
        while step < 32:
            mine += cuda.shfl_xor_sync(0xFFFFFFFF, mine, step)
            step *= 2
        if t == 0:
            cuda.atomic.add(total, 0, mine)
""", (("THREADS = 256", "THREADS = 512"),)),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_other_good_designs_pass(judge, solution, edited, name):
    tail, changes = GOOD[name]
    verdict = judge("ex05", edited(with_tail(solution("ex05"), tail), *changes))
    assert verdict.passed, str(verdict)
