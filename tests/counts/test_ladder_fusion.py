"""The ladders of lesson 07: each fusion moves exactly the counts the lesson says it moves, and the predicted times follow."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from solcourse import verbs
from solcourse.kernels import case, fusion, layernorm
from solcourse.panels import fusion as panel
from solcourse.panels.parts import launch, predict, room

ROOT = Path(__file__).resolve().parents[2]
ROWS, COLUMNS, DEPTH = 128, 512, 64
SIZE = ROWS * COLUMNS
WARPS = SIZE // 32
A100 = "A100-SXM4-80GB"
OPENING = {"size": 2**26, "steps": 4, "rows": 16384, "columns": 4096, "depth": 4096}


def counts(name: str, *shape: int):
    one = case(name)
    grid, block = one.launch(*shape)
    arguments = one.make(np.random.default_rng(1), *shape)
    expected = one.expected(arguments)
    report = verbs.profile(launch(one.kernel, grid, block), *arguments)
    assert one.wrong(arguments, expected) == []
    return report.counts


def moved(*all_counts) -> tuple[int, int]:
    """(bytes loaded, bytes stored) of launches together."""
    return sum(c.global_load.bytes for c in all_counts), sum(c.global_store.bytes for c in all_counts)


def times(operation: str, **settings) -> tuple[list[float], float]:
    """(seconds of each launch apart, seconds fused), predicted for A100."""
    plan = panel.PLANS[operation][1]({**OPENING, **settings}, None)
    apart, fused = panel.reports(plan, plan.apart, A100), panel.reports(plan, [plan.fused], A100)[0]
    return [report.time_s for report in apart], fused.time_s


# ---- counts
@pytest.mark.parametrize("steps", [1, 4, 9])
def test_a_chain_loads_and_stores_once_however_long(steps):
    x, out = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    report = verbs.profile(fusion.chain[fusion.on_chain(SIZE)], x, np.float32(2), np.float32(1), steps, out)
    assert moved(report.counts) == (4 * SIZE, 4 * SIZE)
    assert report.counts.flops["fp32"] == 2 * steps * SIZE


def test_bias_gelu_fused_saves_a_store_and_a_load_of_every_element():
    apart = [counts(name, ROWS, COLUMNS) for name in ("add_bias", "gelu")]
    fused = counts("bias_gelu", ROWS, COLUMNS)
    # requests of a warp apart: x, bias; t. Fused: x, bias
    assert [c.global_load.requests for c in (*apart, fused)] == [2 * WARPS, WARPS, 2 * WARPS]
    assert [c.global_store.requests for c in (*apart, fused)] == [WARPS, WARPS, WARPS]
    assert fused.global_load.sectors_per_request == fused.global_store.sectors_per_request == 4
    assert fused.flops["fp32"] == sum(c.flops["fp32"] for c in apart)


@pytest.mark.parametrize(
    ("name", "late"),
    [  # bytes loaded at the end: bias by a thread for each of its T columns, which serves T rows; residual for every element
        ("matmul_bias_gelu", 4 * SIZE // fusion.T),
        ("matmul_residual", 4 * SIZE),
        ("matmul_bias_gelu_residual", 4 * SIZE + 4 * SIZE // fusion.T),
    ],
)
def test_an_epilogue_adds_what_it_reads_and_stores_nothing_more(name, late):
    plain, fused = (counts(kernel, ROWS, COLUMNS, DEPTH) for kernel in ("matmul_plain", name))
    blocks = (ROWS // fusion.M) * (COLUMNS // fusion.N)
    tiles = 4 * blocks * (fusion.M + fusion.N) * DEPTH  # each block fetches its rows of A and its columns of B
    assert moved(plain) == (tiles, 4 * SIZE)  # what `plain` does not use is not loaded
    assert moved(fused) == (tiles + late, 4 * SIZE)
    assert fused.barriers == plain.barriers == blocks * 8 * 2 * DEPTH // fusion.K  # 8 warps, two a step
    assert fused.shared_load == plain.shared_load
    assert fused.flops["fp32"] > plain.flops["fp32"] == 2 * SIZE * DEPTH
    assert fused.flops["fp64"] == 0


def test_a_row_kept_in_shared_memory_is_loaded_once():
    shape = ROWS, COLUMNS
    apart = [counts(name, *shape) for name in ("dropout", "add", "row_means", "row_scales", "normalise")]
    fused = counts("dropout_residual_layernorm", *shape)
    # matrices loaded: x; d, residual; h; h; h, mean, scale, weight, bias (those of a row or column by every lane); and in row_scales the
    # mean by every thread of a row
    assert moved(*apart) == ((1 + 2 + 1 + 1 + 5) * 4 * SIZE + 4 * ROWS * layernorm.THREADS, 3 * 4 * SIZE + 2 * 4 * ROWS)
    assert moved(fused) == ((2 + 2) * 4 * SIZE, 4 * SIZE)  # x, residual; weight, bias
    assert fused.shared_load.bytes >= 2 * 4 * SIZE  # for the deviation, and for the result


# ---- predicted times on A100, 2^26 elements
@pytest.mark.parametrize(("operation", "saved"), [("chain", 0.65), ("bias_gelu", 0.4), ("layernorm", 0.6)])
def test_where_memory_binds_time_falls_with_the_bytes(operation, saved):
    """Of the bytes 3/4, 1/2 and 2/3 are saved."""
    apart, fused = times(operation)
    assert 1 - fused / sum(apart) > saved
    assert fused < 1.5 * max(apart)


@pytest.mark.parametrize("operation", ["matmul_bias_gelu", "matmul_residual", "matmul_all"])
@pytest.mark.parametrize("depth", [512, 4096])
def test_an_epilogue_costs_little_on_top_of_the_product(operation, depth):
    """4096 x 16384 results: at most 10 % more than the product alone, and less than product and passes."""
    apart, fused = times(operation, depth=depth)
    assert fused < 1.10 * apart[0]
    assert fused < sum(apart)


def test_the_product_reaches_half_of_the_fp32_peak():
    """So that an epilogue hides behind a good product, not behind a slow one."""
    apart, _ = times("matmul_residual", rows=4096)
    assert 2 * 4096**3 / apart[0] > 0.5 * 19.49e12


def test_the_ladder_ends_at_least_as_well_as_the_exercise():
    m = n = k = 1024
    theirs = runpy.run_path(str(ROOT / "solutions" / "ex07_fusion.py"))
    shapes = {"A": (m, k), "B": (k, n), "bias": (n,), "residual": (m, n)}
    arguments = (*panel.placed(shapes).values(), room("float32", "dst", m * n).reshape(m, n))
    tile = theirs["TILE"]
    tiled = predict(theirs["matmul_bias_gelu_residual"], (n // tile, m // tile), (tile, tile), arguments, device=A100)
    _, best = times("matmul_all", rows=m, columns=n, depth=k)
    assert best < tiled.time_s
