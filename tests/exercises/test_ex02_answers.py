"""Wrong, wasteful and cheating answers to ex02, each made from the solution by a small edit, each failing for its own reason."""

from __future__ import annotations

import pytest

TILE = "tile = cuda.shared.array((32, 33), float32)"
SAVE = "tile[ty + k, tx] = a[top + ty + k, left + tx]"
TAKE = "out[left + ty + k, top + tx] = tile[tx, ty + k]"
FROM = "if top + ty + k < a.shape[0] and left + tx < a.shape[1]:"
TO = "if left + ty + k < out.shape[0] and top + tx < out.shape[1]:"
BARRIER = "    cuda.syncthreads()\n"
FIRST = "left, top = uint32(cuda.blockIdx.x * 32), uint32(cuda.blockIdx.y * 32)"
TURNED = "tile[tx, ty + k]"
SWIZZLE = [("tile[ty + k, tx] =", "tile[ty + k, tx ^ (ty + k)] ="), (f"= {TURNED}", "= tile[tx, (ty + k) ^ tx]")]
TURN_EARLY = [("tile[ty + k, tx] =", f"{TURNED} ="), (f"= {TURNED}", "= tile[ty + k, tx]")]
THREADS = "uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)"
LOOP = "    for k in range(0, 32, 8):\n"
GRID = "return ((columns + 31) // 32, (rows + 31) // 32), (32, 8)"

LOADS, STORES = "sectors per global load request", "sectors per global store request"
SHARED_LOADS, SHARED_STORES = "bank conflicts in shared loads", "bank conflicts in shared stores"
SHARED_ATOMICS = "bank conflicts in shared atomics"
READ, WRITTEN = "bytes of global loads", "bytes of global stores"
ELEMENTS = 2048 * 1024

pytestmark = pytest.mark.slow  # a compilation for each answer


def gates(verdict) -> dict[str, float]:
    return {gate.name: gate.got for gate in verdict.gates}


def failing(verdict) -> set[str]:
    return {gate.name for gate in verdict.gates if not gate.passed}


def test_the_stub_is_right_and_stores_32_sectors_per_request(judge, stub):
    verdict = judge("ex02", stub("ex02"))
    assert verdict.correct
    assert failing(verdict) == {STORES}
    assert gates(verdict)[STORES] == 32
    assert "out[column, row + k]" in str(verdict)


def test_the_solution_moves_every_element_once_and_nobody_waits_at_a_bank(judge, solution):
    verdict = judge("ex02", solution("ex02"))
    assert verdict.passed, str(verdict)
    assert gates(verdict) == {
        LOADS: 4,
        STORES: 4,
        SHARED_LOADS: 0,
        SHARED_STORES: 0,
        SHARED_ATOMICS: 0,
        READ: 4 * ELEMENTS,
        WRITTEN: 4 * ELEMENTS,
    }


# Right at every size, and wasteful. name -> (edits, the gates that fail with what they count, words of the message)
REQUESTS = ELEMENTS // 32
WASTEFUL = {
    "a tile without padding": ([(TILE, TILE.replace("33", "32"))], {SHARED_LOADS: 31 * REQUESTS}, "tile[tx, ty + k]"),
    "a padding of two": ([(TILE, TILE.replace("33", "34"))], {SHARED_LOADS: REQUESTS}, "tile[tx, ty + k]"),
    # lane tx holds row tx: its words are 34 apart in the store instead
    "turned while storing, padded by two": (
        [*TURN_EARLY, (TILE, TILE.replace("33", "34"))],
        {SHARED_STORES: REQUESTS},
        "tile[tx, ty + k] =",
    ),
    "columns added into a tile of zeros": (
        [
            (TILE, TILE.replace("33", "32")),
            (FIRST, f"{FIRST}\n    for k in range(0, 32, 8):\n        tile[ty + k, tx] = float32(0)\n    cuda.syncthreads()"),
            (SAVE, "cuda.atomic.add(tile, (tx, ty + k), a[top + ty + k, left + tx])"),
            (f"= {TURNED}", "= tile[ty + k, tx]"),
        ],
        {SHARED_ATOMICS: None},
        "cuda.atomic.add",
    ),
    "padding and swizzle": (
        SWIZZLE,
        {SHARED_LOADS: None},
        "tile[tx, (ty + k) ^ tx]",
    ),
    "the tile for nothing: rows read, columns written": (
        [(TAKE, "out[left + tx, top + ty + k] = tile[ty + k, tx]"), (TO, "if left + tx < out.shape[0] and top + ty + k < out.shape[1]:")],
        {STORES: 32},
        "out[left + tx, top + ty + k]",
    ),
    "a diagonal of the tile: no conflict, scattered stores": (
        [
            (TILE, TILE.replace("33", "32")),
            (TO, "c = (tx + ty + k) & uint32(31)\n        if left + c < out.shape[0] and top + tx < out.shape[1]:"),
            (TAKE, "out[left + c, top + tx] = tile[tx, c]"),
        ],
        {STORES: 32},
        "out[left + c, top + tx]",
    ),
    "no tile, the loads jump": (
        [(FROM, "if False:"), (TAKE, TAKE.replace("tile[tx, ty + k]", "a[top + tx, left + ty + k]"))],
        {LOADS: 32},
        "a[top + tx, left + ty + k]",
    ),
    "every block twice": (
        [(GRID, GRID.replace("(rows + 31) // 32)", "(rows + 31) // 32, 2)"))],
        {READ: 8 * ELEMENTS, WRITTEN: 8 * ELEMENTS},
        "More than the work needs",
    ),
    # a warp takes two rows of 16 words, 33 apart: all but one of the banks of the second are banks of the first
    "squares of 16": (
        [("* 32)", "* 16)"), ("range(0, 32, 8)", "range(0, 16, 8)"), (GRID, "return ((columns + 15) // 16, (rows + 15) // 16), (16, 8)")],
        {SHARED_LOADS: None, SHARED_STORES: None},
        "tile",
    ),
}


@pytest.mark.parametrize("name", WASTEFUL)
def test_a_right_answer_that_wastes_fails_at_its_gate(judge, solution, edited, name):
    edits, wanted, says = WASTEFUL[name]
    verdict = judge("ex02", edited(solution("ex02"), *edits))
    assert verdict.stage == "counts", str(verdict)
    assert verdict.correct
    assert failing(verdict) == set(wanted), str(verdict)
    for gate, count in wanted.items():
        assert count is None or gates(verdict)[gate] == count, gate
    assert says in str(verdict), str(verdict)


# Not right, or not safe: name -> (edits, stage, words of the message)
WRONG = {
    "no barrier": ([(BARRIER, "")], "hazard", "tile"),
    "a barrier for those with an element only": (
        [(BARRIER, ""), (SAVE, f"{SAVE}\n            cuda.syncthreads()")],
        "hazard",
        "every thread of the block must reach the barrier",
    ),
    "leaves before the barrier": (
        [("    tx, ty =", "    if cuda.grid(2)[0] >= a.shape[1]:\n        return\n    tx, ty =")],
        "result",
        "out",
    ),
    "no guard while reading": ([(FROM, "if True:")], "bounds", "a"),
    "no guard while writing": ([(TO, "if True:")], "bounds", "out"),
    "the guard of a used for out": ([(TO, FROM)], "bounds", "the array has shape (33, 31)"),
    "block indices not turned": (
        [
            ("out[left + ty + k, top + tx]", "out[top + ty + k, left + tx]"),
            (TO, "if top + ty + k < out.shape[0] and left + tx < out.shape[1]:"),
        ],
        "result",
        "out",
    ),
    "the tile not turned": ([("tile[tx, ty + k]", "tile[ty + k, tx]")], "result", "out"),
    "square matrices only": ([(GRID, "return ((rows + 31) // 32, (rows + 31) // 32), (32, 8)")], "result", "out"),
    "whole tiles only": ([(GRID, "return (max(1, columns // 32), max(1, rows // 32)), (32, 8)")], "result", "out"),
    "the counted size in the code": ([(TO, "if left + ty + k < 1024 and top + tx < 2048:")], "bounds", "out"),
    "a quarter of the rows": ([(f"{LOOP}        {TO}", f"    for k in range(0, 8, 8):\n        {TO}")], "result", "out"),
    "numpy instead of a kernel": (
        [("@cuda.jit\n", ""), ("    tile = cuda", "    out[...] = a.T\n    return\n    tile = cuda")],
        "names",
        "transpose",
    ),
    "the transposed view": ([("    tx, ty =", "    out = a.T\n    tx, ty =")], "result", "never written"),
    "too much shared memory": (
        [
            (TILE, TILE.replace("(32, 33)", "(32, 993)")),
        ],
        "launch",
        "shared",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_fails_for_its_own_reason(judge, solution, edited, name):
    edits, stage, says = WRONG[name]
    verdict = judge("ex02", edited(solution("ex02"), *edits))
    assert not verdict.passed
    assert verdict.stage == stage, str(verdict)
    assert says in str(verdict), str(verdict)
    assert verdict.next_hint


# Other designs that are as good.
SIGNED = [(THREADS, "cuda.threadIdx.x, cuda.threadIdx.y"), (FIRST, "left, top = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32")]
DESIGNS = {
    "signed indices": SIGNED,
    "swizzled": [*SWIZZLE, (TILE, TILE.replace("33", "32"))],
    "turned while storing": TURN_EARLY,
    "a thread for each element": [("range(0, 32, 8)", "range(0, 32, 32)"), (GRID, GRID.replace("(32, 8)", "(32, 32)"))],
    "a row of 256 threads": [
        (THREADS, "uint32(cuda.threadIdx.x & 31), uint32(cuda.threadIdx.x >> 5)"),
        (GRID, GRID.replace("(32, 8)", "256")),
    ],
    "grid turned round": [
        (FIRST, FIRST.replace("left, top", "top, left")),
        (GRID, "return ((rows + 31) // 32, (columns + 31) // 32), (32, 8)"),
    ],
}


@pytest.mark.parametrize("name", DESIGNS)
def test_another_good_design_passes(judge, solution, edited, name):
    verdict = judge("ex02", edited(solution("ex02"), *DESIGNS[name]))
    assert verdict.passed, str(verdict)


def test_unsigned_indices_are_worth_what_the_last_words_say(judge, solution, edited):
    unsigned, signed = (judge("ex02", text) for text in (solution("ex02"), edited(solution("ex02"), *SIGNED)))
    assert "nearer to 0.5 than to 0.6" in str(unsigned)
    assert "half the instructions" in str(unsigned)
    assert signed.report.sol_score < 0.55 < unsigned.report.sol_score
    assert 0.45 < unsigned.report.counts.warp_instructions / signed.report.counts.warp_instructions < 0.6
