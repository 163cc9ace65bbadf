"""The ladders of lesson 05: each step of the reduction, the histogram and the scan moves the counts that it says it moves."""

from __future__ import annotations

import numpy as np
import pytest

import solcourse as sol
from solcourse.access_maps import necessary_wavefronts, wavefronts
from solcourse.kernels import cases, histogram, reduction, scan
from solcourse.panels.parts import launch as configured

LADDER = cases("reduction")
BLOCKS = 4
LARGE = 2**26


@pytest.fixture(scope="module")
def counted():
    """Counts per block of each step: 256 threads, whole blocks."""
    rng = np.random.default_rng(5)
    found = {}
    for name, case in LADDER.items():
        n = BLOCKS * (2**20 // case.launch(2**20)[0])
        run = sol.profile(case.configured(n), *case.make(rng, n)).run
        assert run.blocks == BLOCKS
        found[name] = run.counts
    return found


def per_block(count: int) -> float:
    return count / BLOCKS


def tree(counts):
    """Accesses of the tree alone, per block: without the first store of every warp and the last load of the sum."""
    return per_block(counts.shared_load.requests) - 1, per_block(counts.shared_store.requests) - 8


def test_there_are_seven_steps():
    assert len(LADDER) == 7


def test_the_tree_over_neighbours_keeps_every_warp_at_it_for_five_steps(counted):
    """Steps 1 to 16 leave working lanes in all 8 warps, then 4, 2 and 1 warps: 5 x 8 + 7 = 47, two loads and a store each."""
    assert tree(counted["reduce_interleaved"]) == (2 * 47, 47)
    # a branch diverges where some lanes work and some do not: in each of the 47, and where thread 0 writes
    assert per_block(counted["reduce_interleaved"].divergent_branches) == 47 + 1


def test_working_lanes_that_stand_together_retire_whole_warps(counted):
    """Lanes at work: 128, 64, 32, then 16, 8, 4, 2, 1 in one warp: 4 + 2 + 1 + 5 = 12 warps, of which 5 are split."""
    for name in ("reduce_strided", "reduce_sequential"):
        assert tree(counted[name]) == (2 * 12, 12)
        assert per_block(counted[name].divergent_branches) == 5 + 1


def test_the_strided_tree_pays_in_bank_conflicts_what_it_saves_in_requests(counted):
    """As many passes of loads as the tree over neighbours: 94. There each request was one pass; here they are fewer and longer."""
    passes = 0
    for step in (1, 2, 4, 8, 16, 32, 64, 128):
        lanes = 128 // step
        for first in range(0, lanes, 32):
            words = [4 * 2 * step * t for t in range(first, min(first + 32, lanes))]
            assert necessary_wavefronts(words, 4) == 1
            passes += 2 * wavefronts(words, 4)
    assert passes == 94
    assert per_block(counted["reduce_strided"].shared_load.wavefronts) - 1 == passes
    assert per_block(counted["reduce_interleaved"].shared_load.wavefronts) - 1 == passes
    assert counted["reduce_interleaved"].shared_load.bank_conflicts == 0


def test_adding_the_upper_half_to_the_lower_has_no_conflicts(counted):
    for kind in ("shared_load", "shared_store"):
        assert getattr(counted["reduce_strided"], kind).bank_conflicts > 0
        assert getattr(counted["reduce_sequential"], kind).bank_conflicts == 0


def test_two_elements_a_thread_halve_the_blocks_and_leave_the_tree(counted):
    assert LADDER["reduce_first_add"].launch(LARGE)[0] == LADDER["reduce_sequential"].launch(LARGE)[0] / 2
    one, two = counted["reduce_sequential"], counted["reduce_first_add"]
    assert tree(two) == tree(one)
    assert two.barriers == one.barriers
    assert two.global_load.requests == 2 * one.global_load.requests  # of as many blocks with twice the elements


def test_the_last_warp_needs_no_barriers(counted):
    """8 warps wait once at first and once after each step: 9 times; with three steps (128, 64, 32) 4 times."""
    assert per_block(counted["reduce_first_add"].barriers) == 8 * 9
    assert per_block(counted["reduce_last_warp"].barriers) == 8 * 4
    # all its 32 lanes take part to the end: only the branch of thread 0 diverges
    assert per_block(counted["reduce_last_warp"].divergent_branches) == 1


def test_shuffles_leave_one_barrier_and_one_word_per_warp(counted):
    counts = counted["reduce_shuffle"]
    assert per_block(counts.barriers) == 8
    assert (per_block(counts.shared_store.requests), per_block(counts.shared_load.requests)) == (8, 1)
    assert per_block(counts.shared_store.bytes) == 8 * 4
    # the price: every warp picks its lane 0, so each diverges once; then 8 lanes of the last warp, then its lane 0
    assert per_block(counts.divergent_branches) == 8 + 2


def test_a_grid_stride_leaves_one_atomic_per_block_and_no_second_launch(counted):
    counts = counted["reduce_grid_stride"]
    assert per_block(counts.global_atomic.requests) == per_block(counts.global_atomic.bytes) / 4 == 1
    assert counts.global_store.requests == 0
    assert per_block(counts.global_load.requests) == 8 * reduction.PER_THREAD
    grid, _ = LADDER["reduce_grid_stride"].launch(LARGE)
    assert grid == reduction.MOST_BLOCKS < LADDER["reduce_shuffle"].launch(LARGE)[0] / 100


@pytest.fixture(scope="module")
def predicted():
    """A100 at 2^26 elements, from a sample of the blocks."""
    found, x = {}, np.zeros(LARGE, np.float32)
    for name, case in LADDER.items():
        grid, block = case.launch(LARGE)
        out = np.zeros(1 if name == "reduce_grid_stride" else grid, np.float32)
        found[name] = sol.profile(configured(case.kernel, grid, block), x, out, work=case.work(LARGE), sample_blocks=32)
    return found


def test_each_step_is_predicted_to_be_faster_than_the_one_before(predicted):
    times = [report.time_s for report in predicted.values()]
    assert times == sorted(times, reverse=True)


def test_the_last_step_and_only_that_is_bound_by_memory(predicted):
    assert [name for name, report in predicted.items() if report.bound == "dram"] == ["reduce_grid_stride"]
    best = predicted["reduce_grid_stride"]
    assert best.sol_score >= 0.9 * best.attainable_score


# ----------------------------------------------------------------------------------------------------------- histogram
def histograms(data: np.ndarray, blocks: int = 8) -> dict:
    found = {}
    for name, case in cases("histogram").items():
        grid = -(-data.size // 256) if name == "histogram_global" else blocks
        found[name] = sol.profile(configured(case.kernel, grid, 256), data, np.zeros(256, np.int32)).counts
    return found


def test_private_counters_bring_the_global_atomics_down_to_the_bins_of_each_block(rng):
    """2^16 elements; 8 blocks with 256 counters each."""
    counts = histograms(rng.integers(0, 256, 2**16).astype(np.uint8))
    atomics = {name: c.global_atomic.bytes // 4 for name, c in counts.items()}
    assert atomics == {"histogram_global": 2**16} | dict.fromkeys(list(counts)[1:], 8 * 256)


def test_a_copy_per_warp_removes_no_pass_and_a_copy_per_lane_removes_all(rng):
    """2048 requests of shared atomics; one value makes 32 passes of each, unless each lane has a bank of its own."""
    for data in (rng.integers(0, 256, 2**16).astype(np.uint8), np.full(2**16, 7, np.uint8)):
        counts = {name: c.shared_atomic for name, c in histograms(data).items()}
        assert counts["histogram_shared"].requests == 2**16 // 32
        assert counts["histogram_per_warp"].wavefronts == counts["histogram_shared"].wavefronts > 3 * counts["histogram_shared"].requests
        assert counts["histogram_per_lane"].wavefronts == counts["histogram_per_lane"].requests
    assert counts["histogram_shared"].wavefronts == 32 * 2**16 // 32
    others = histograms(data)["histogram_per_lane"]
    assert others.shared_load.bank_conflicts == others.shared_store.bank_conflicts == 0


# ---------------------------------------------------------------------------------------------------------------- scan
def scans(rng) -> dict:
    """Counts per block of the three ways."""
    found = {}
    for name, case in cases("scan").items():
        if name != "add_offsets":
            found[name] = sol.profile(configured(case.kernel, 1, 256), *case.make(rng, 256)).counts
    return found


def test_half_the_adds_can_cost_more_barriers_than_they_save(rng):
    """Hillis and Steele: 255 + 254 + 252 + ... + 128 = 8 x 256 - 255. Work-efficient: 255 up, 256 - 9 down. Barriers: 8 warps."""
    counts = scans(rng)
    assert counts["scan_hillis_steele"].flops["fp32"] == 8 * 256 - 255
    assert counts["scan_work_efficient"].flops["fp32"] == 255 + 256 - 9
    assert counts["scan_hillis_steele"].barriers == 8 * (1 + 2 * 8)
    assert counts["scan_work_efficient"].barriers == 8 * (1 + 8 + 7)
    assert counts["scan_shuffle"].barriers == 8 * 2
    assert [c.shared_load.bank_conflicts > 0 for c in counts.values()] == [False, True, False]


def test_three_launches_scan_everything(rng):
    """Blocks, then the blocks' totals in one block, then the totals before each block added to it."""
    n = 256 * 100 + 17
    x = rng.integers(-9, 9, n).astype(np.float32)
    parts, out, (totals, scanned), rest = np.empty_like(x), np.empty_like(x), np.empty((2, 101), np.float32), np.empty(1, np.float32)
    sol.run(configured(scan.scan_shuffle, 101, 256), x, parts, totals)
    sol.run(configured(scan.scan_shuffle, 1, 256), totals, scanned, rest)
    sol.run(configured(scan.add_offsets, 101, 256), parts, scanned, out)
    assert (out == np.cumsum(x)).all()
    assert rest[0] == x.sum()


def test_launches_grow_with_the_data_up_to_what_fills_a_gpu():
    for case, most in (
        (LADDER["reduce_grid_stride"], reduction.MOST_BLOCKS),
        (cases("histogram")["histogram_shared"], histogram.MOST_BLOCKS),
    ):
        assert case.launch(5000)[0] < case.launch(2**20)[0] < case.launch(LARGE)[0] == most
