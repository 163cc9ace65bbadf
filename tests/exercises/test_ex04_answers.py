"""ex04: bigger blocks, stores between loads, loads of the wrong thing, unrolling for show: each fails for its own reason."""

from __future__ import annotations

import pytest

OCCUPANCY, FLIGHT, LOADS = "theoretical occupancy", "loads of raw in flight per thread", "sectors of global loads"
STORED, BLOCKS, RAW = "bytes of global stores", "blocks", "bytes of loads of raw"
N = 2**23

LOOP = """    for first in range(cuda.grid(1), out.size, 8 * step):
        for k in range(8):
            if first + k * step < out.size:
                held[k] = raw[first + k * step]
        for k in range(8):
            if first + k * step < out.size:
                out[first + k * step] = table[held[k]]
"""
IN_TURN = """    for first in range(cuda.grid(1), out.size, 8 * step):
        for k in range(8):
            if first + k * step < out.size:
                out[first + k * step] = table[raw[first + k * step]]
"""
NEIGHBOURS = """    for first in range(8 * cuda.grid(1), out.size, 8 * step):
        for k in range(8):
            if first + k < out.size:
                held[k] = raw[first + k]
        for k in range(8):
            if first + k < out.size:
                out[first + k] = table[held[k]]
"""
ONCE = """    first = cuda.grid(1)
    for k in range(8):
        if first + k * step < out.size:
            held[k] = raw[first + k * step]
    for k in range(8):
        if first + k * step < out.size:
            out[first + k * step] = table[held[k]]
    for i in range(first + 8 * step, out.size, step):
        out[i] = table[raw[i]]
"""
FULL_TURNS = """    for first in range(cuda.grid(1), out.size - 7 * step, 8 * step):
        for k in range(8):
            held[k] = raw[first + k * step]
        for k in range(8):
            out[first + k * step] = table[held[k]]
"""
SHOW = """    for i in range(cuda.grid(1), out.size, step):
        for k in range(8):
            held[k] = raw[min(i + k * step, out.size - 1)]
        nothing = (held[1] | held[2] | held[3] | held[4] | held[5] | held[6] | held[7]) >> 14
        out[i] = table[held[0] + nothing]
"""
# sectors enough for it, where fewer blocks fetch fewer curves
HALF_FOR_SHOW = """    i = cuda.grid(1)
    while i + step < out.size:
        a, b, c, d = raw[i], raw[i + step], raw[i + 32], raw[i + step - 32]
        nothing = (c | d) >> 14
        out[i], out[i + step] = table[a + nothing], table[b + nothing]
        i += 2 * step
    while i < out.size:
        out[i] = table[raw[i]]
        i += step
"""
FOUR_NAMED = """    for first in range(cuda.grid(1), out.size, 4 * step):
        if first + 3 * step < out.size:
            a, b, c, d = raw[first], raw[first + step], raw[first + 2 * step], raw[first + 3 * step]
            out[first], out[first + step] = table[a], table[b]
            out[first + 2 * step], out[first + 3 * step] = table[c], table[d]
        else:
            for i in range(first, out.size, step):
                out[i] = table[raw[i]]
"""
BLOCK_APART = """    width = cuda.blockDim.x
    for tile in range(cuda.blockIdx.x * 8 * width, out.size, 8 * step):
        first = tile + cuda.threadIdx.x
        for k in range(8):
            if first + k * width < out.size:
                held[k] = raw[first + k * width]
        for k in range(8):
            if first + k * width < out.size:
                out[first + k * width] = table[held[k]]
"""
ALONE = """    for i in range(cuda.grid(1), out.size, step):
        out[i] = table[raw[i]]
"""
CURVE = """    for entry in range(cuda.threadIdx.x, ENTRIES, cuda.blockDim.x):
        table[entry] = curve[entry]
"""
CURVE_BY_EIGHT = """    for entry in range(cuda.threadIdx.x, ENTRIES, 8 * cuda.blockDim.x):
        for k in range(8):
            held[k] = curve[entry + k * cuda.blockDim.x]
        for k in range(8):
            table[entry + k * cuda.blockDim.x] = held[k]
"""
HELD = "    held = cuda.local.array(8, uint16)\n"
WIDE = ("threads = 256", "threads = 1024")

# (changes to the solution, stage, gates not passed, words of the verdict)
WRONG: dict[str, tuple[list[tuple[str, str]], str, set[str], str]] = {
    "each number stored before the next is read": ([(LOOP, IN_TURN)], "counts", {FLIGHT}, "got 1"),
    "two at a time": ([("range(8)", "range(2)"), ("8 * step", "2 * step")], "counts", {FLIGHT}, "got 2"),
    "more warps instead": ([(LOOP, ALONE), WIDE], "counts", {OCCUPANCY, FLIGHT}, "not with more threads"),
    "eight neighbours for each thread": ([(LOOP, NEIGHBOURS)], "counts", {LOADS, "sectors of global stores"}, "neighbouring lanes"),
    "many in flight in the first turn only": ([(LOOP, ONCE)], "counts", {FLIGHT}, "got 1"),
    "many loads of the curve": ([(HELD, ""), (CURVE, HELD + CURVE_BY_EIGHT), (LOOP, ALONE)], "counts", {FLIGHT}, "got 1"),
    "loads for show": ([(LOOP, SHOW)], "counts", {LOADS, RAW}, "nothing fetched twice"),
    "half of the loads for show": ([(LOOP, HALF_FOR_SHOW), ("4 * 108", "108")], "counts", {RAW}, "nobody uses"),
    "the curve read from memory, blocks of one warp": (
        [(CURVE, ""), ("table[held[k]]", "curve[held[k]]"), ("threads = 256", "threads = 32")], "counts", {LOADS}, "neighbouring lanes",
    ),
    "a curve for each small block": (
        [("min(4 * 108, (n + threads - 1) // threads)", "(n + 8 * threads - 1) // (8 * threads)")], "counts", {LOADS}, "More sectors",
    ),
    "one block": ([("min(4 * 108, (n + threads - 1) // threads)", "1")], "counts", {BLOCKS}, "108 SMs"),
    "whole turns only": ([(LOOP, FULL_TURNS)], "result", set(), "never written"),
    "no guard": (
        [("            if first + k * step < out.size:\n    ", "")], "bounds", set(), "raw",
    ),
    "no barrier": ([("    cuda.syncthreads()\n", "")], "hazard", set(), "table"),
    "the counted size only": ([("out.size", str(N))], "bounds", set(), "raw"),
}  # fmt: skip

DESIGNS: dict[str, list[tuple[str, str]]] = {
    "four named values, and a loop for the rest": [(LOOP, FOUR_NAMED)],
    "a block's width apart": [(LOOP, BLOCK_APART)],
    "half as many threads a block": [("threads = 256", "threads = 128")],
}

pytestmark = pytest.mark.slow  # a compilation for each answer


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_answer_fails_for_its_own_reason(judge, solution, edited, mistake: str):
    changes, stage, gates, says = WRONG[mistake]
    verdict = judge("ex04", edited(solution("ex04"), *changes))
    assert not verdict.passed
    assert verdict.stage == stage, str(verdict)
    assert {gate.name for gate in verdict.gates if not gate.passed} == gates, str(verdict)
    assert says in str(verdict), str(verdict)
    assert verdict.next_hint


@pytest.mark.parametrize("design", DESIGNS)
def test_other_good_answers_pass_too(judge, solution, edited, design: str):
    verdict = judge("ex04", edited(solution("ex04"), *DESIGNS[design]))
    assert verdict.passed, str(verdict)


def test_the_stub_lacks_loads_in_flight_and_nothing_else(judge, stub, solution):
    slow, fast = judge("ex04", stub("ex04")), judge("ex04", solution("ex04"))
    assert [gate.name for gate in slow.gates if not gate.passed] == [FLIGHT]
    got = {gate.name: gate.got for gate in fast.gates}
    # 32 KiB of curve and 1 KiB of the system's: 4 blocks of 8 warps, of 64; data: 2 bytes each, 32 a sector; the curve 1024 sectors a block
    assert got == {
        OCCUPANCY: 0.5,
        FLIGHT: 8,
        RAW: 2 * N,
        LOADS: N // 16 + 432 * 1024,
        "sectors of global stores": N // 16,
        STORED: 2 * N,
        BLOCKS: 432,
    }
    assert {gate.name: gate.got for gate in slow.gates} == got | {FLIGHT: 1}
    assert fast.report.time_s < 0.7 * slow.report.time_s
    assert (slow.report.bound, fast.report.bound != "launch") == ("latency", True)
