"""The ladder of lesson 02: the 32 passes of a transpose go from one memory to the next before they go away."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import solcourse as sol
from solcourse.kernels import cases
from solcourse.panels.parts import launch as configured
from solcourse.panels.parts import predict, room

LADDER = cases("transpose")
SIDE, A100 = 8192, "A100-SXM4-80GB"
SOLUTION = Path(__file__).resolve().parents[2] / "solutions" / "ex02_transpose.py"


def per_request(access) -> float:
    return access.wavefronts / access.requests if access.requests else 0.0


def counts_of(case, rng, rows: int, columns: int):
    return sol.profile(configured(case.kernel, *case.launch(rows, columns)), *case.make(rng, rows, columns)).counts


@pytest.fixture(scope="module")
def counted():
    """Counts of each step on 64 x 128: 8 tiles, 256 requests each way."""
    rng = np.random.default_rng(2)
    return {name: counts_of(case, rng, 64, 128) for name, case in LADDER.items()}


@pytest.fixture(scope="module")
def predicted():
    """name -> Report of 2^26 elements on an A100."""

    def report(kernel, grid, block):
        arrays = tuple(room("float32", role, SIDE * SIDE).reshape(SIDE, SIDE) for role in ("src", "dst"))
        return predict(kernel, grid, block, arrays, device=A100, work=LADDER["transpose_naive"].work(SIDE, SIDE))

    found = {name: report(case.kernel, *case.launch(SIDE, SIDE)) for name, case in LADDER.items()}
    solution = runpy.run_path(str(SOLUTION))
    return found | {"solution": report(solution["transpose"], *solution["launch"](SIDE, SIDE))}


# Wavefronts per request of global loads, global stores, shared loads, shared stores. A warp's row: 128 bytes, 1. A column of the matrix:
# 32 lines, 32. A column of a tile [32][32]: one bank, 32; of [32][33], or swizzled: 32 banks, 1.
PASSES = {
    "transpose_copy": (1, 1, 0, 0),
    "transpose_naive": (1, 32, 0, 0),
    "transpose_by_columns": (32, 1, 0, 0),
    "transpose_tiled": (1, 1, 32, 1),
    "transpose_swizzled": (1, 1, 1, 1),
    "transpose_padded": (1, 1, 1, 1),
    "transpose_unsigned": (1, 1, 1, 1),
}


def test_every_step_is_described():
    assert list(PASSES) == list(LADDER)


@pytest.mark.parametrize("name", PASSES)
def test_where_the_passes_are(counted, name):
    counts = counted[name]
    accesses = (counts.global_load, counts.global_store, counts.shared_load, counts.shared_store)
    assert tuple(map(per_request, accesses)) == PASSES[name]
    assert [access.requests for access in accesses[:2]] == [64 * 128 // 32] * 2
    assert [access.sectors / access.requests for access in accesses[:2]] == [4 * min(passes, 8) for passes in PASSES[name][:2]]
    assert sum(access.bank_conflicts for access in accesses[2:]) == 256 * max(0, PASSES[name][2] - 1)
    assert all(access.bytes == 4 * 64 * 128 for access in accesses if access.requests)
    assert counts.barriers == (8 * 8 if accesses[2].requests else 0)  # tiles x warps


def test_the_first_tiling_moves_the_passes_and_keeps_their_number(counted):
    made = [counted[name] for name in ("transpose_naive", "transpose_by_columns", "transpose_tiled")]
    assert [made[0].global_store.wavefronts, made[1].global_load.wavefronts, made[2].shared_load.wavefronts] == [32 * 256] * 3


def test_unsigned_indices_halve_the_instructions_and_leave_the_accesses(counted):
    padded, unsigned = counted["transpose_padded"], counted["transpose_unsigned"]
    for kind in ("global_load", "global_store", "shared_load", "shared_store"):
        assert getattr(padded, kind) == getattr(unsigned, kind)
    assert unsigned.warp_instructions < 0.65 * padded.warp_instructions


def test_each_cure_is_worth_something_on_a_large_matrix(predicted):
    """Naive: L2 takes each 4 bytes as a sector. By columns and tiled: 2^26 passes in L1 and shared memory. Then DRAM."""
    steps = ("transpose_naive", "transpose_tiled", "transpose_swizzled", "transpose_padded", "transpose_unsigned")
    times = [predicted[name].time_s for name in steps]
    assert all(later < 0.95 * earlier for earlier, later in zip(times, times[1:], strict=False)), times
    assert predicted["transpose_naive"].bound == "l2"
    for name in ("transpose_by_columns", "transpose_tiled"):
        assert predicted[name].bound == "l1"
        # one pass a clock: 2^26 passes by 108 SMs at 1.41 GHz
        assert predicted[name].bounds["l1"] > 2**26 / (108 * 1.41e9)
    assert predicted["transpose_unsigned"].bound == "dram"


def test_the_first_tiling_is_no_faster_than_reading_columns_through_l1(predicted):
    assert 0.9 < predicted["transpose_by_columns"].time_s / predicted["transpose_tiled"].time_s < 1.1


def test_every_step_moves_the_compulsory_bytes_of_dram(predicted):
    for name, report in predicted.items():
        assert report.dram_bytes == pytest.approx(2 * 4 * SIDE**2, rel=0.02), name


def test_the_best_step_and_the_solution_reach_nine_tenths_of_what_is_attainable(predicted):
    best, solution, copy = (predicted[name] for name in ("transpose_unsigned", "solution", "transpose_copy"))
    for report in (best, solution):
        assert report.sol_score > 0.9 * report.attainable_score
    assert best.time_s < 1.005 * solution.time_s
    assert best.time_s < 1.03 * copy.time_s


def sectors_of_rows(rows: int, columns: int) -> int:
    """Of 4-byte elements, in requests of 32 columns: a request from element e on touches sectors e // 8 to (e + its length - 1) // 8."""
    starts = [(row * columns + c, min(32, columns - c)) for row in range(rows) for c in range(0, columns, 32)]
    return sum((start + length - 1) // 8 - start // 8 + 1 for start, length in starts)


@pytest.mark.parametrize(("rows", "columns"), [(256, 256), (255, 255), (257, 255), (256, 260)])
def test_odd_rows_straddle_sectors_and_no_bank_conflicts_come_of_it(rows, columns):
    case, copy = LADDER["transpose_unsigned"], LADDER["transpose_copy"]
    rng = np.random.default_rng(2)
    odd = counts_of(case, rng, rows, columns)
    assert odd.global_load.sectors == sectors_of_rows(rows, columns)
    assert odd.global_store.sectors == sectors_of_rows(columns, rows)
    assert odd.shared_load.bank_conflicts == odd.shared_store.bank_conflicts == 0
    copied = counts_of(copy, rng, rows, columns)
    assert copied.global_load.sectors == odd.global_load.sectors  # no kernel whose warps read 32 columns does better


def test_rows_of_odd_length_need_4_875_sectors_for_a_full_request():
    """Their first elements lie at each of the 8 places of a sector in turn: at one 32 elements fill 4 sectors, at seven they touch 5."""
    full = [(row * 1025 + c) % 8 for row in range(8) for c in range(0, 1024, 32)]
    assert sum(4 if place == 0 else 5 for place in full) / len(full) == 4.875
