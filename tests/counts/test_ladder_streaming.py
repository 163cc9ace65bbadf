"""The ladder of lesson 04: the bytes stay, what changes is how many loads one thread has under way."""

from __future__ import annotations

import numpy as np
import pytest

import solcourse as sol
from solcourse.grading import in_flight
from solcourse.kernels import cases, streaming
from solcourse.panels.parts import launch, room

LADDER = cases("streaming")
ONE, FOUR, EIGHT = "scale", "scale_four", "scale_eight"
LARGE, A100, B200 = 2**26, "A100-SXM4-80GB", "B200-SXM-180GB"
N = 2**19


@pytest.fixture(scope="module")
def ran():
    """The engine's runs at N elements, all blocks."""
    rng = np.random.default_rng(4)
    found = {}
    for name, case in LADDER.items():
        blocks, threads = case.launch(N)
        found[name] = sol.profile(launch(case.kernel, blocks, threads), *case.make(rng, N)).run
    return found


@pytest.fixture(scope="module")
def predicted():
    """Of 2^26 elements on the A100, from a sample of the blocks; of the grid-stride launch fewer, for each has much to do."""
    x, out = room("float32", "src", LARGE), room("float32", "dst", LARGE)
    found = {}
    for name, case in LADDER.items():
        blocks, threads = case.launch(LARGE)
        few = 2 if name == "scale_grid_stride" else 16
        found[name] = sol.profile(
            launch(case.kernel, blocks, threads), x, out, np.float32(2), work=streaming.work(LARGE), sample_blocks=few
        )
    return found


@pytest.mark.parametrize("name", LADDER)
def test_every_step_moves_the_same_bytes(ran, name):
    """N / 32 requests each way, 32 lanes x 4 bytes = 4 sectors each; one multiplication per element."""
    counts = ran[name].counts
    for kind in (counts.global_load, counts.global_store):
        assert (kind.requests, kind.sectors, kind.bytes) == (N // 32, N // 8, 4 * N)
    assert counts.flops["fp32"] == N
    assert counts.local_load.requests == counts.local_store.requests == 0  # held in registers, not in memory


def test_loads_in_flight_are_those_before_the_first_store(ran):
    # in turn: a store stands between two loads, and numba cannot say that x and out are apart
    assert {name: in_flight(run) for name, run in ran.items()} == {
        ONE: 1, "scale_grid_stride": 1, "scale_four_in_turn": 1, FOUR: 4, EIGHT: 8,
    }  # fmt: skip


def test_blocks_fall_as_elements_per_thread_rise(ran):
    assert {name: run.blocks for name, run in ran.items()} == {
        ONE: N // 256, "scale_grid_stride": 432, "scale_four_in_turn": N // 1024, FOUR: N // 1024, EIGHT: N // 2048,
    }  # fmt: skip


def test_fewer_blocks_make_fewer_instructions(ran):
    """Index, guard and end of a thread are paid once for all its elements."""
    each = {name: run.counts.warp_instructions for name, run in ran.items()}
    assert each[EIGHT] < each[FOUR] < each["scale_four_in_turn"] < each[ONE]


def test_the_steps_are_predicted_in_order(predicted):
    times = {name: report.time_s for name, report in predicted.items()}
    assert times[EIGHT] < times[FOUR] < times["scale_four_in_turn"] < times[ONE]
    # 4 of 8 blocks' places taken, one load in flight in each: a fixed grid alone gains nothing
    assert times["scale_grid_stride"] > times[ONE]


def test_the_best_step_is_near_what_is_attainable(predicted):
    best = predicted[EIGHT]
    assert best.sol_score >= 0.98 * best.attainable_score


def test_latency_binds_one_load_where_memory_is_fast(predicted):
    one, eight = predicted[ONE].on(B200), predicted[EIGHT].on(B200)
    assert (one.bound, eight.bound) == ("latency", "dram")
    assert one.time_s > 1.6 * eight.time_s


def half(kernel, elements: int):
    """At half occupancy on an A100: 40 KiB a block leave room for 4 blocks of 8 warps."""
    blocks = LARGE // (streaming.THREADS * elements)
    x, out = room("float32", "src", LARGE), room("float32", "dst", LARGE)
    return sol.profile(kernel[blocks, streaming.THREADS, 0, 40 * 1024], x, out, np.float32(2), sample_blocks=16)


def test_four_loads_at_half_occupancy_beat_one_at_full(predicted):
    one, four = half(streaming.scale, 1), half(streaming.scale_four, 4)
    assert one.occupancy.fraction == four.occupancy.fraction == 0.5
    assert four.time_s < predicted[ONE].time_s < one.time_s


def test_blocks_of_one_warp_run_into_the_block_slots():
    """32 slots x 1 warp = 32 of 64 warps; from 64 threads on the warps are all there, and a larger block changes nothing."""
    x, out = room("float32", "src", LARGE), room("float32", "dst", LARGE)
    swept = {
        threads: sol.profile(streaming.scale[LARGE // threads, threads], x, out, np.float32(2), sample_blocks=2**12 // threads)
        for threads in streaming.BLOCK_SIZES
    }
    assert (swept[32].occupancy.fraction, swept[32].occupancy.limiter) == (0.5, "blocks")
    assert [report.occupancy.fraction for report in swept.values()] == [0.5, 1, 1, 1, 1, 1]
    assert swept[32].time_s > 1.2 * swept[64].time_s
    assert max(r.time_s for r in swept.values() if r is not swept[32]) < 1.01 * swept[256].time_s
