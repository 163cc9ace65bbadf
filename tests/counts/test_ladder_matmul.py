"""The ladder of lesson 03: each step fetches less for each FMA, from memory, then from shared memory; then the rest stops binding."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import solcourse as sol
from solcourse.kernels import cases
from solcourse.kernels.matmul import HALF, SQUARE
from solcourse.panels.parts import launch, room

LADDER = cases("matmul")
M, N, K = 128, 256, 64
FMAS = M * N * K
SIDE, A100 = 4096, "A100-SXM4-80GB"
SOLUTION = Path(__file__).resolve().parents[2] / "solutions" / "ex03_tiling_matmul.py"

pytestmark = pytest.mark.slow  # long compilations


@pytest.fixture(scope="module")
def counted():
    """Counts of each step on a product of whole tiles."""
    rng = np.random.default_rng(3)
    return {name: sol.profile(launch(case.kernel, *case.launch(M, N, K)), *case.make(rng, M, N, K)).counts for name, case in LADDER.items()}


@pytest.fixture(scope="module")
def predicted():
    """name -> Report of 4096 x 4096 x 4096 on an A100, from four blocks to full depth."""
    arrays = [room("float32", role, SIDE * SIDE).reshape(SIDE, SIDE) for role in ("src", "src", "dst")]

    def report(kernel, grid, block):
        work = LADDER["matmul_naive"].work(SIDE, SIDE, SIDE)
        return sol.profile(launch(kernel, grid, block), *arrays, device=A100, work=work, sample_blocks=4)

    found = {name: report(case.kernel, *case.launch(SIDE, SIDE, SIDE)) for name, case in LADDER.items() if name != "matmul_tiled_exact"}
    solution = runpy.run_path(str(SOLUTION))
    return found | {"solution": report(solution["register_tiled"], *solution["launch_register_tiled"](SIDE, SIDE, SIDE))}


def of_blocks(rows: int, columns: int) -> float:
    """Words fetched from memory for each FMA where blocks own rows x columns of C: an element of A serves a row of them."""
    return 1 / rows + 1 / columns


# Per FMA: words loaded from memory, words loaded from shared memory, and passes through shared memory (lanes of a request in one).
# A thread of rows x columns: rows + columns words for rows * columns FMAs. Passes of the 8 x 8: 2 for each of A's 8, 4 for each of B's.
STEPS = {
    "matmul_naive": (2, 0, 0),
    "matmul_coalesced": (2, 0, 0),
    "matmul_tiled": (of_blocks(16, 16), 2, 2),
    "matmul_tiled_exact": (of_blocks(16, 16), 2, 2),
    "matmul_register_1d": (of_blocks(64, 64), 9 / 8, 9 / 8),
    "matmul_register_2d": (of_blocks(128, 128), 16 / 64, (2 * 8 + 4 * 8) / 64),
    "matmul_register_2d_interleaved": (of_blocks(128, 128), 16 / 64, (2 * 8 + 8) / 64),
    "matmul_register_2d_padded": (of_blocks(128, 128), 16 / 64, 16 / 64),
    "matmul_register_2d_transposed": (of_blocks(128, 128), 16 / 64, 16 / 64),
    "matmul_register_2d_8x4": (of_blocks(128, 64), 12 / 32, 12 / 32),
}


def test_every_step_is_described():
    assert list(STEPS) == list(LADDER)


@pytest.mark.parametrize("name", STEPS)
def test_what_an_fma_costs(counted, name):
    counts = counted[name]
    from_memory, from_shared, passes = STEPS[name]
    assert counts.global_load.bytes == 4 * FMAS * from_memory
    assert counts.shared_load.bytes == 4 * FMAS * from_shared
    assert 32 * counts.shared_load.wavefronts == FMAS * passes
    assert counts.flops["fp32"] == 2 * FMAS
    assert counts.global_store.bytes == 4 * M * N
    # what comes from memory is stored into shared memory once
    assert counts.shared_store.bytes == (counts.global_load.bytes if from_shared else 0)
    assert counts.local_load.requests == counts.local_store.requests == 0  # the totals are in registers


def test_threads_along_a_row_make_it_2_sectors_a_request_instead_of_17(counted):
    """A warp is 2 x 16 threads. Naive: 16 rows of A, each element in a sector of its own, and 2 neighbours of B: (16 + 1) / 2 on average.

    Coalesced: 2 elements of A, 2 sectors; 16 neighbours of B, 2 sectors.
    """
    assert counted["matmul_naive"].global_load.sectors_per_request == (16 + 1) / 2
    assert counted["matmul_coalesced"].global_load.sectors_per_request == 2
    assert all(counted[name].global_load.sectors_per_request == 4 for name in list(STEPS)[2:])


TILES = {"padded": SQUARE, "8x4": HALF}


def test_larger_register_tiles_need_fewer_barriers(counted):
    """Two a step for each warp."""
    made = {"matmul_tiled": (16, 16, 16, 1), "matmul_register_1d": (64, 64, 8, 8)}
    made |= {f"matmul_register_2d_{name}": (t.block_m, t.block_n, t.depth, t.rows * t.columns) for name, t in TILES.items()}
    for name, (rows, columns, depth, per_thread) in made.items():
        warps = M // rows * (N // columns) * (rows * columns // per_thread // 32)
        assert counted[name].barriers == 2 * warps * (K // depth), name


def test_what_is_kept_of_a_costs_its_stores_little(counted):
    """A warp stores 4 rows x 8 columns of A's tile. [128][8]: 32 neighbours. [128][9]: the 4th row comes round to a bank of the 1st, 2.
    [8][132]: banks 4 k + i, all different."""
    conflicts = {
        name: counted[f"matmul_register_2d_{name}"].shared_store.bank_conflicts for name in ("interleaved", "padded", "transposed")
    }
    of_a = 4 * FMAS / 128 / 4 / 32  # requests that store A's tile
    assert conflicts == {"interleaved": 0, "padded": of_a, "transposed": 0}


def test_the_ladder_falls_on_a_large_product(predicted):
    steps = ("naive", "coalesced", "tiled", "register_1d", "register_2d", "register_2d_interleaved", "register_2d_8x4")
    times = [predicted[f"matmul_{name}"].time_s for name in steps]
    assert all(later < 0.9 * earlier for earlier, later in zip(times, times[1:], strict=False)), times


def test_the_first_tiling_moves_the_bottleneck_into_shared_memory(predicted):
    """A sixteenth of the loads from memory, and half the time at best: two words an FMA come out of shared memory, a pass for each 32."""
    coalesced, tiled = predicted["matmul_coalesced"], predicted["matmul_tiled"]
    assert tiled.counts.global_load.bytes * 16 == coalesced.counts.global_load.bytes
    assert 0.5 < tiled.time_s / coalesced.time_s < 0.75
    assert tiled.bound == "l1"
    assert tiled.bounds["l1"] > 2 * SIDE**3 / 32 / (108 * 1.41e9)
    assert tiled.sol_score < 0.25


def test_conflicts_bind_only_while_they_are_the_longest(predicted):
    apart, padded, transposed = (predicted[f"matmul_register_2d_{name}"] for name in ("interleaved", "padded", "transposed"))
    assert predicted["matmul_register_2d"].bound == "l1"
    assert padded.bounds["l1"] < 0.8 * apart.bounds["l1"]
    assert transposed.bounds["l1"] < 0.8 * apart.bounds["l1"]
    assert apart.bound != "l1"
    assert padded.time_s == pytest.approx(apart.time_s, rel=0.02)


def test_fewer_totals_leave_room_for_twice_the_warps(predicted):
    square, half = predicted["matmul_register_2d_transposed"], predicted["matmul_register_2d_8x4"]
    assert square.occupancy.fraction == 0.25
    assert half.occupancy.fraction == 2 * square.occupancy.fraction
    assert square.occupancy.limiter == half.occupancy.limiter == "registers"
    assert half.counts.shared_load.bytes == 1.5 * square.counts.shared_load.bytes


def test_the_best_step_and_the_solution_pass_half_of_the_peak(predicted):
    best, solution = predicted["matmul_register_2d_8x4"], predicted["solution"]
    assert best.sol_score > 0.8
    assert solution.sol_score > 0.6
    assert best.time_s < 1.005 * solution.time_s


def test_a_tiles_sizes_say_what_it_takes():
    assert (SQUARE.threads, SQUARE.across, SQUARE.shared_bytes) == (256, 16, 4 * 2 * 128 * 8)
    assert (HALF.threads, HALF.across) == (256, 16)
    assert HALF.launch(4096, 4096, 4096) == ((64, 32), 256)
    assert HALF.launch(1, 65, 1) == ((2, 1), 256)
