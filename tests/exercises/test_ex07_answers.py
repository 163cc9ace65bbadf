"""Wrong and cheating answers to ex07, each made from the solution or the stub by a small edit, each failing for its own reason."""

from __future__ import annotations

import pytest

STORE = "c[i, j] = gelu(total + bias[j]) + residual[i, j]"
GUARD = "    if i < c.shape[0] and j < c.shape[1]:\n        c[i, j] = gelu"
LAUNCH = "matmul_bias_gelu_residual[grid, block](a, b, bias, residual, out)"
LOADED = "for start in range(0, a.shape[1], TILE):"
DEF = "\ndef forward("

M, N, K, TILE = 256, 512, 96, 16
MATRIX = 4 * M * N
PRODUCT = 2 * 4 * M * N * K // TILE  # each thread loads one element of A and one of B a tile

pytestmark = pytest.mark.slow  # a compilation for each answer


def gates(verdict) -> dict[str, float]:
    return {gate.name: gate.got for gate in verdict.gates}


def failing(verdict) -> set[str]:
    return {gate.name for gate in verdict.gates if not gate.passed}


def test_the_stub_makes_three_launches_and_stores_three_matrices(judge, stub):
    verdict = judge("ex07", stub("ex07"))
    assert verdict.correct
    assert failing(verdict) == {"kernel launches", *MOVED}
    got = gates(verdict)
    assert got["kernel launches"] == 3
    assert got["bytes of global stores"] == 3 * MATRIX
    assert got["bytes of global loads"] == PRODUCT + 4 * MATRIX  # product, bias; activated, residual
    assert "3 launches, one after the other" in " ".join(verdict.notes)
    assert verdict.report.kernel == "matmul"


def test_the_solution_stores_the_result_and_nothing_else(judge, solution):
    verdict = judge("ex07", solution("ex07"))
    assert verdict.passed, str(verdict)
    got = gates(verdict)
    assert got["kernel launches"] == 1
    assert got["bytes of global stores"] == MATRIX
    assert got["bytes of global loads"] == PRODUCT + 2 * MATRIX  # bias, residual
    assert verdict.report.kernel == "matmul_bias_gelu_residual"


# name -> (edits of the solution, what fails, words of the message)
GRID = "((n + TILE - 1) // TILE, (m + TILE - 1) // TILE)"
BARRIER_AFTER = "            total += tile_a[y, k] * tile_b[k, x]\n        cuda.syncthreads()\n"
WRONG_RESULT = {
    "no guard": ((GUARD, "    if True:\n        c[i, j] = gelu"), "bounds", "bias"),
    "a race: no barrier before the next tile": ((BARRIER_AFTER, BARRIER_AFTER.split("        cuda.sync")[0]), "hazard", "tile_"),
    "the ragged last tile left out": ((LOADED, "for start in range(0, a.shape[1] // TILE * TILE, TILE):"), "result", "out"),
    "the depth of the counted size": ((LOADED, "for start in range(0, 96, TILE):"), "result", "k = 131"),
    "the bias of the row": (("bias[j]", "bias[i]"), "result", "out"),
    "the residual inside GELU": ((STORE, "c[i, j] = gelu(total + bias[j] + residual[i, j])"), "result", "out"),
    "the grid turned round": ((GRID, "((m + TILE - 1) // TILE, (n + TILE - 1) // TILE)"), "result", "out"),
    "an input as a temporary": ((STORE, STORE.replace("c[", "residual[", 1) + "\n        c[i, j] = residual[i, j]"), "result", "residual"),
    "another name": (("def forward(", "def backward("), "names", "forward"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_RESULT)
def test_a_wrong_answer_is_told_why(judge, solution, edited, name):
    change, stage, said = WRONG_RESULT[name]
    verdict = judge("ex07", edited(solution("ex07"), change))
    assert not verdict.passed
    assert verdict.stage == stage, str(verdict)
    assert said in verdict.problem


SECOND = """

@cuda.jit
def add(x, residual, out):
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j] + residual[i, j]

"""
TWO = (
    (STORE, "c[i, j] = gelu(total + bias[j])"),
    (DEF, SECOND + DEF),
    (LAUNCH, f"{LAUNCH}\n    add[grid, block](out, residual, out)"),
)
THROUGH_MEMORY = (
    (STORE, "c[i, j] = total\n        cuda.threadfence()\n        c[i, j] = gelu(c[i, j] + bias[j]) + residual[i, j]"),
)  # fmt: skip
RESIDUAL_TWICE = (
    ("        c[i, j] = gelu", "        early = residual[i, j]\n        cuda.threadfence()\n        c[i, j] = gelu"),
    ("+ residual[i, j]", "+ HALF * (early + residual[i, j])"),
)
ON_THE_HOST = (
    (LAUNCH, "z = a @ b + bias\n    out[:] = HALF * z * (ONE + np.tanh(SCALE * (z + CUBE * z * z * z))) + residual"),
)  # fmt: skip
LIBRARY_PRODUCT = (
    ("gelu(total + bias[j])", "gelu(a[i, j] + bias[j])"),
    (LOADED, "for start in range(0, 0, TILE):"),
    (LAUNCH, LAUNCH.replace("(a, b,", "(a @ b, b,")),
)

MOVED = {"bytes of global stores", "bytes of global loads"}
WASTE = {
    "the residual in a launch of its own": (TWO, {"kernel launches", *MOVED}),
    "one launch that goes through memory all the same": (THROUGH_MEMORY, MOVED),
    "the residual read twice": (RESIDUAL_TWICE, {"bytes of global loads"}),
    "NumPy does it": (ON_THE_HOST, {"kernel launches", *MOVED, "fp32 FLOPs"}),
    "NumPy does the product": (LIBRARY_PRODUCT, {"fp32 FLOPs"}),
}


@pytest.mark.parametrize("name", WASTE)
def test_a_right_answer_that_wastes_or_cheats_fails_the_gate_meant_for_it(judge, solution, edited, name):
    changes, wanted = WASTE[name]
    verdict = judge("ex07", edited(solution("ex07"), *changes))
    assert verdict.stage == "counts", str(verdict)
    assert failing(verdict) == wanted, str(verdict)


OTHER_DESIGNS = {
    "larger tiles": (("TILE = 16", "TILE = 32"),),
    "the bias once a block": (
        ("    total = float32(0.0)\n", "    biases = cuda.shared.array(TILE, float32)\n    total = float32(0.0)\n"
         "    if y == 0 and j < c.shape[1]:\n        biases[x] = bias[j]\n    cuda.syncthreads()\n"),
        ("bias[j])", "biases[x])"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_DESIGNS)
def test_other_designs_pass(judge, solution, edited, name):
    verdict = judge("ex07", edited(solution("ex07"), *OTHER_DESIGNS[name]))
    assert verdict.passed, str(verdict)
