"""Wrong and cheating answers to both parts of ex03, each made from the solution by a small edit, each failing for its own reason."""

from __future__ import annotations

import pytest

M1, N1, K1 = 128, 256, 192  # counted in part 1
M2, N2, K2 = 256, 256, 128  # and in part 2
FMAS1, FMAS2 = M1 * N1 * K1, M2 * N2 * K2
MEMORY = {"bytes of global loads", "sectors of global loads"}

TILED, REGISTER = "part 1 of 2, a tile for a block", "part 2 of 2, a tile for a thread"

pytestmark = pytest.mark.slow  # a compilation for each answer


def gates(verdict) -> dict[str, float]:
    return {gate.name: gate.got for gate in verdict.gates}


def failing(verdict) -> set[str]:
    return {gate.name for gate in verdict.gates if not gate.passed}


def test_the_stub_fetches_two_floats_for_each_fma(judge, stub):
    verdict = judge("ex03", stub("ex03"))
    assert verdict.part == TILED
    assert verdict.correct
    assert failing(verdict) == MEMORY
    assert gates(verdict)["bytes of global loads"] == 2 * 4 * FMAS1
    assert "total += a[i, k] * b[k, j]" in str(verdict)


def test_the_solution_passes_both_parts(judge, solution):
    verdict = judge("ex03", solution("ex03"))
    assert verdict.passed, str(verdict)
    assert verdict.part == REGISTER
    got = gates(verdict)
    assert got["words of shared loads per FMA"] == 12 / 32
    assert got["bytes of global loads"] == 4 * FMAS2 // 32
    assert got["fp32 FLOPs"] == 2 * FMAS2


def after_part_1(solution: str, stub: str) -> str:
    """The solution of part 1 with the stub of part 2."""
    return (
        stub[: stub.index("TILE = 16")] + solution[solution.index("TILE = 16") : solution.index("SIDE, ")] + stub[stub.index("SIDE = ") :]
    )


def test_the_stub_of_part_2_fetches_two_floats_as_well(judge, solution, stub):
    verdict = judge("ex03", after_part_1(solution("ex03"), stub("ex03")))
    assert verdict.part == REGISTER
    assert verdict.correct
    assert failing(verdict) == MEMORY


# ---- part 1

GUARD_A = "a[i, start + x] if i < a.shape[0] and start + x < a.shape[1] else float32(0.0)"
GUARD_B = "b[start + y, j] if start + y < b.shape[0] and j < b.shape[1] else float32(0.0)"
STORE1 = "    if i < c.shape[0] and j < c.shape[1]:\n        c[i, j] = total\n"
MEETING1 = "            total += tile_a[y, k] * tile_b[k, x]\n        cuda.syncthreads()\n"
STEPS1 = "for start in range(0, a.shape[1], TILE):"
TURN1 = "for k in range(TILE):"
ADD1 = "total += tile_a[y, k] * tile_b[k, x]"

# name -> (edits of the solution, stage, words of the message)
WRONG_1 = {
    "no guard on the loads": (((GUARD_A, "a[i, start + x]"), (GUARD_B, "b[start + y, j]")), "bounds", "a["),
    "no guard on the store": (((STORE1, "    c[i, j] = total\n"),), "bounds", "c["),
    "a race: the next tile overwrites this one": (((MEETING1, MEETING1.split("        cuda.sync")[0]),), "hazard", "tile_"),
    "a race: the tile is read before it is full": (
        (("        cuda.syncthreads()\n        for k in range(TILE)", "        for k in range(TILE)"),), "hazard", "tile_",
    ),
    "threads outside C leave before the barrier": (((STEPS1, f"if i >= c.shape[0] or j >= c.shape[1]:\n        return\n    {STEPS1}"),),
                                                   "hazard", "Threads that leave"),
    "the ragged last tile left out": (((STEPS1, "for start in range(0, a.shape[1] // TILE * TILE, TILE):"),), "result", "c["),
    "the depth of the counted size": (((STEPS1, "for start in range(0, 192, TILE):"), ("start + x < a.shape[1]", "start + x < 192")),
                                      "bounds", "a["),
    "beyond the end, the last element instead of zero": (
        ((GUARD_A, "a[min(i, a.shape[0] - 1), min(start + x, a.shape[1] - 1)]"),
         (GUARD_B, "b[min(start + y, b.shape[0] - 1), min(j, b.shape[1] - 1)]")), "result", "c[",
    ),
    "the grid turned round": (
        (("((n + TILE - 1) // TILE, (m + TILE - 1) // TILE)", "((m + TILE - 1) // TILE, (n + TILE - 1) // TILE)"),), "result", "c",
    ),
    "half of the products": (((TURN1, "for k in range(0, TILE, 2):"),), "result", "c["),
    "NumPy inside the kernel": (((ADD1, "total += np.sum(a[i] * b[:, j])"), ("from numba", "import numpy as np\nfrom numba")),
                                "compile", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_1)
def test_a_wrong_tile_for_a_block_is_told_why(judge, solution, edited, name):
    changes, stage, said = WRONG_1[name]
    verdict = judge("ex03", edited(solution("ex03"), *changes))
    assert verdict.part == TILED
    assert (verdict.stage, verdict.passed) == (stage, False), str(verdict)
    assert said in str(verdict)


WASTE_1 = {
    "A is read from memory all the same": (((ADD1, "total += (a[i, start + k] if start + k < a.shape[1] and i < a.shape[0] else "
                                                   "float32(0.0)) * tile_b[k, x]"),), MEMORY),
    "a barrier for each step of k": (((f"            {ADD1}\n", f"            {ADD1}\n            cuda.syncthreads()\n"),), {"barriers"}),
    "in double": (((ADD1, "total += np.float64(tile_a[y, k]) * tile_b[k, x]"), ("from numba", "import numpy as np\nfrom numba"),
                   ("total = float32(0.0)", "total = 0.0")), {"fp32 FLOPs"}),
    "the product twice": (((f"            {ADD1}\n", f"            {ADD1}\n        for k in range(TILE):\n"
                            "            half += tile_a[y, TILE - 1 - k] * tile_b[TILE - 1 - k, x]\n"),
                           ("    total = float32(0.0)\n", "    total = half = float32(0.0)\n"),
                           ("c[i, j] = total\n", "c[i, j] = float32(0.5) * (total + half)\n")), {"fp32 FLOPs"}),
    "tiles of 4 x 4": ((("TILE = 16", "TILE = 4"),), MEMORY | {"barriers"}),
    "the tile is filled along columns": (
        (("tile_a[y, x] = " + GUARD_A, "tile_a[x, y] = a[i - y + x, start + y] if i - y + x < a.shape[0] and start + y < a.shape[1] "
                                       "else float32(0.0)"),), {"sectors of global loads"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WASTE_1)
def test_a_wasteful_tile_for_a_block_fails_the_gate_meant_for_it(judge, solution, edited, name):
    changes, wanted = WASTE_1[name]
    verdict = judge("ex03", edited(solution("ex03"), *changes))
    assert verdict.part == TILED
    assert verdict.stage == "counts", str(verdict)
    assert failing(verdict) == wanted, str(verdict)


# ---- part 2

SHALLOW = ("SIDE, DEPTH = 64, 8", "SIDE, DEPTH = 64, 4")  # right as well, and sooner compiled
ADD2 = "totals[r, s] += of_a[r] * of_b[s]"
MEETING2 = f"                    {ADD2}\n        cuda.syncthreads()\n"

WRONG_2 = {
    "a race: no barrier before the next tile": (((MEETING2, MEETING2.split("        cuda.sync")[0]),), "hazard", "tile_"),
    "the guard of A looks at rows only": ((("a[i, k] if i < m and k < inner", "a[i, k] if i < m"),), "bounds", "a["),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_2)
def test_a_wrong_tile_for_a_thread_is_told_why(judge, solution, edited, name):
    changes, stage, said = WRONG_2[name]
    verdict = judge("ex03", edited(solution("ex03"), SHALLOW, *changes))
    assert verdict.part == REGISTER
    assert (verdict.stage, verdict.passed) == (stage, False), str(verdict)
    assert said in str(verdict)


WORDS = "words of shared loads per FMA"
BORROWED = (
    ("@cuda.jit\ndef register_tiled(a, b, c):", "@cuda.jit\ndef unused(a, b, c):"),
    ("def launch_register_tiled", "register_tiled = tiled\n\n\ndef launch_register_tiled"),
    ("    threads = THREADS\n    return ((n + SIDE - 1) // SIDE, (m + SIDE - 1) // SIDE), threads", "    return launch_tiled(m, n, k)"),
)  # fmt: skip
WASTE_2 = {
    "part 1 once more": (BORROWED, {WORDS, *MEMORY}),
    "4 x 4: half a load is not fewer": ((("ROWS, COLUMNS = 8, 4", "ROWS, COLUMNS = 4, 4"),), {WORDS}),
    "A straight from memory": ((("of_a[r] = tile_a[y + r, k]", "of_a[r] = a[min(top + y + r, m - 1), min(start + k, inner - 1)]"),),
                              MEMORY),
    "a thread finds its totals by an index": (
        (("for s in range(COLUMNS):\n                    totals", "for s in range(min(COLUMNS, n)):\n                    totals"),),
        {"bytes of local loads"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WASTE_2)
def test_a_wasteful_tile_for_a_thread_fails_the_gate_meant_for_it(judge, solution, edited, name):
    changes, wanted = WASTE_2[name]
    verdict = judge("ex03", edited(solution("ex03"), SHALLOW, *changes))
    assert verdict.part == REGISTER
    assert verdict.stage == "counts", str(verdict)
    assert failing(verdict) == wanted, str(verdict)


OTHER_DESIGNS = {
    "larger tiles for a block, 4 x 8 for a thread": (("TILE = 16", "TILE = 32"), ("ROWS, COLUMNS = 8, 4", "ROWS, COLUMNS = 4, 8")),
    "A's tile transposed, deeper": (
        ("SIDE, DEPTH = 64, 8", "SIDE, DEPTH = 64, 16"), ("PITCH = DEPTH + 1", "PITCH = SIDE + 4"), ("(SIDE, PITCH)", "(DEPTH, PITCH)"),
        ("tile_a[ya + r, xa]", "tile_a[xa, ya + r]"), ("tile_a[y + r, k]", "tile_a[k, y + r]"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_DESIGNS)
def test_other_designs_pass(judge, solution, edited, name):
    verdict = judge("ex03", edited(solution("ex03"), *OTHER_DESIGNS[name]))
    assert verdict.passed, str(verdict)
