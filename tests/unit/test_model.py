"""Bounds, waves, tail and the time they give. Every bound by hand on a device of round numbers; laws on the real ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from handmade_runs import LANE, copy_run, load, make_run, op, program, store

from solcourse import model
from solcourse.errors import UnknownName, WorkError
from solcourse.hardware import device, devices
from solcourse.model import BOUNDS, attainable_time_s, dram_eta, predict
from solcourse.occupancy import occupancy
from solcourse.simt.records import AccessCounts, Counts
from solcourse.traffic import traffic
from solcourse.work import Work

A100 = device("A100-SXM4-80GB")
# 10 SMs at 1 GHz: a cycle is a nanosecond
ROUND = replace(
    A100, name="round", sms=10, boost_mhz=1000, clock_derate=1.0, dram_gbs_spec=100, l2_bytes_clk=1000, l2_slices=8,
    launch_us_stream=2.0, block_turnaround_cyc=330.0, fp32_lanes_sm=64, int32_lanes_sm=64, fp64_lanes_sm=32, sfu_lanes_sm=16,
)  # fmt: skip
COMPUTE = program([([op(0)], ())], ())


def predicted(run, gpu=ROUND, registers=32):
    fits = occupancy(gpu, run.threads_per_block, registers, run.shared_bytes)
    return predict(run, traffic(run, gpu, fits), gpu, fits)


def only(blocks=800, block=256, **counts):
    """A launch with the given counts, one basic block, no memory. 800 blocks of 256 threads are 10 full waves on ROUND (8 x 10)."""
    return make_run(COMPUTE, blocks, block, lambda b, w: [], counts=Counts(**counts))


# ------------------------------------------------------------------------------------------------------ bounds, one by one
@pytest.mark.parametrize(
    ("bound", "counts", "seconds"),
    [
        # N / (4 schedulers x 10 SMs) cycles of 1 ns
        ("issue", {"warp_instructions": 40_000_000}, 1e-3),
        # 32 N / (lanes x SMs)
        ("pipe_fma", {"pipes": {"fma": 20_000_000}}, 1e-3),
        ("pipe_alu", {"pipes": {"alu": 20_000_000}}, 1e-3),
        ("pipe_fp64", {"pipes": {"fp64": 10_000_000}}, 1e-3),
        ("pipe_xu", {"pipes": {"xu": 5_000_000}}, 1e-3),
        ("pipe_cbu", {"pipes": {"cbu": 20_000_000}}, 1e-3),
        # __syncthreads: 16 threads per clock
        ("pipe_adu", {"pipes": {"adu": 5_000_000}}, 1e-3),
        # one load/store instruction per clock and SM
        ("lsu", {"pipes": {"lsu": 10_000_000}}, 1e-3),
        # one wavefront per clock and SM; shared memory and L1 share the stage: 4 + 6 million
        ("l1", {"shared_load": AccessCounts(wavefronts=4_000_000), "global_load": AccessCounts(wavefronts=6_000_000)}, 1e-3),
        # a shared atomic reads and writes: two passes
        ("l1", {"shared_atomic": AccessCounts(wavefronts=5_000_000)}, 1e-3),
        # a stored sector takes 1 clock on the way to L2
        ("fill", {"global_store": AccessCounts(sectors=10_000_000)}, 1e-3),
        # a sector of atomics per slice and clock: 8 slices
        ("atomic", {"global_atomic": AccessCounts(sectors=8_000_000)}, 1e-3),
        ("launch", {}, 2e-6),
    ],
)
def test_a_bound_is_its_work_over_its_rate(bound, counts, seconds):
    p = predicted(only(**counts))
    assert p.bounds[bound] == pytest.approx(seconds)
    if bound != "launch":
        assert p.bound == bound
        assert p.time_s >= seconds


def test_dram_and_l2_bounds_are_bytes_over_rate():
    run = copy_run(8000)  # 8000 x 256 x 4 bytes each way
    p, moved = predicted(run), 2 * 8000 * 1024
    assert p.bounds["dram"] == pytest.approx(moved / (100e9 * dram_eta(ROUND, 1, 1)))
    assert p.bounds["l2"] == pytest.approx(moved / (1000 * 1e9))
    assert p.bounds["fill"] == pytest.approx(moved / 32 / 10 * 1e-9)
    assert p.bound == "dram"


def test_operations_on_one_address_go_one_per_clock():
    p = predicted(replace(only(), same_address_atomics=1_000_000))
    assert p.bounds["atomic"] == pytest.approx(1e-3)
    assert p.interval_s[1] / p.time_s > 1.5  # recalled constants: a wider interval
    assert "atomics: recalled rates" in p.interval_why


def test_latency_is_waves_times_the_stay_of_a_block():
    # chain of 100 FMAs: 99 x 4 + 1 = 397 cycles, plus turnaround 330 - 51 for the prologue - half of 211 (L2) for stores it does not
    # have: 570.5 ns; 800 blocks / (10 SMs x 8) = 10 waves
    chain = [op(i, (i - 1,) if i else (), "fma") for i in range(100)]
    run = make_run(program([(chain, ())], ()), 800, 256, lambda b, w: [], counts=Counts())
    p = predicted(run)
    assert (p.warp_cycles, p.block_cycles, p.waves) == (397, 570.5, 10)
    assert p.bounds["latency"] == pytest.approx(5705e-9)
    # every FMA but the first reads one register; 8 warps x 99 / (2 banks x 4 partitions) are less
    assert p.bounds["register_file"] == pytest.approx(800 * 8 * 99 / 8 / 10 * 1e-9)


def test_a_load_waits_for_where_its_sectors_come_from():
    one = program([([op(0), load(1, 0, 0), op(2, (1,))], ())], ("global_load",))
    far = predicted(make_run(one, 80, 256, lambda b, w: [(0, 128 * (8 * b + w) + 4 * LANE)]), A100)
    twice = [(0, 4 * LANE)] * 50
    near = predicted(make_run(one, 1, 32, lambda b, w: twice, executions=[1]), A100)
    assert far.warp_cycles == pytest.approx(A100.lat_dram, abs=15)
    # of 50 requests the first comes from DRAM and the rest from L1
    assert near.warp_cycles == pytest.approx((A100.lat_dram + 49 * A100.lat_l1) / 50, abs=15)


def test_bank_conflicts_lengthen_the_loads_they_hit():
    prog = program([([op(0), load(1, 0, 0, "shared"), op(2, (1,))], ())], ("shared_load",))

    def run(wavefronts):
        r = make_run(prog, 8, 256, lambda b, w: [])
        return replace(r, site_counts=(AccessCounts(requests=64, wavefronts=64 * wavefronts),))

    assert predicted(run(32)).warp_cycles - predicted(run(1)).warp_cycles == 31


# -------------------------------------------------------------------------------------------------------- the combination
def test_the_body_lies_between_the_largest_bound_and_their_sum():
    p = predicted(copy_run(8000, traced=80, instructions=200))
    parts = [s for name, s in p.bounds.items() if name != "launch"]
    assert max(parts) < p.body_s < sum(parts)
    assert p.time_s == p.body_s + p.bounds["launch"]


def test_two_equal_bounds_cost_the_cube_root_of_two():
    # 40 M instructions over 40 schedulers, and 8 M sectors of atomics over 8 slices: 1 ms each, one in the SMs, one in L2
    both = predicted(only(warp_instructions=40_000_000, global_atomic=AccessCounts(sectors=8_000_000)))
    one = predicted(only(warp_instructions=40_000_000))
    assert both.body_s / one.body_s == pytest.approx(2 ** (1 / 3), rel=1e-3)


def test_units_of_an_sm_work_side_by_side():
    """A40 loads doubles with stride 4 in 8.0 cycles, of which FP64 and L1 each take 8.0 (l1-access-a40)."""
    both = predicted(only(warp_instructions=40_000_000, shared_load=AccessCounts(wavefronts=10_000_000)))
    assert both.body_s == pytest.approx(predicted(only(warp_instructions=40_000_000)).body_s)


def test_only_waiting_for_memory_competes_with_dram():
    """Stores wait for nothing: a kernel that only writes takes the longer of its latency and its bytes, not their norm."""
    stores = program([([store(0, 0, 0)], ())], ("global_store",))
    run = make_run(stores, 8000, 256, lambda b, w: [(0, 128 * (8 * b + w) + 4 * LANE)], traced=80)
    p = predicted(run)
    parts = [max(p.bounds[n] for n in names) for names in model.GROUPS]
    assert p.bounds["latency"] > 0.1 * max(parts)
    assert p.body_s == pytest.approx(max(p.bounds["latency"], sum(x**3 for x in parts) ** (1 / 3)), rel=0.02)


@pytest.mark.parametrize(("n", "most"), [(1, 0.0), (2, 0.5642), (4, 1.0294), (8, 1.4236), (32, 2.0697)])
def test_the_slowest_of_some_lines(n, most):
    assert model._expected_most(n) == pytest.approx(most, rel=0.05)  # tables of order statistics of the normal distribution


def test_bounds_of_one_group_do_not_add_up():
    alone = predicted(only(warp_instructions=40_000_000)).body_s
    assert predicted(only(warp_instructions=40_000_000, pipes={"fma": 19_000_000})).body_s == pytest.approx(alone)


def test_every_bound_is_named_and_the_winner_is_the_largest():
    p = predicted(copy_run(64), A100)
    assert tuple(p.bounds) == BOUNDS
    assert p.bounds[p.bound] == max(p.bounds.values())


def test_the_interval_encloses_the_time_and_says_what_makes_it_wide():
    p = predicted(copy_run(8000, traced=80))
    factor = p.interval_s[1] / p.time_s
    assert 1.1 < factor < 2
    assert p.interval_s[0] == pytest.approx(p.time_s / factor)
    assert p.interval_why[0] == "DRAM's reached rate"


def test_an_interval_is_wider_where_less_is_known():
    def width(gpu=ROUND, **more):
        run = copy_run(8000, traced=80)
        fits = occupancy(gpu, run.threads_per_block, 48, 0)
        p = predict(run, traffic(run, gpu, fits), gpu, fits, **more)
        return p.interval_s[1] / p.time_s

    assert width(replace(ROUND, flagged=frozenset({"dram_eta_copy"}))) > width(replace(ROUND, flagged=frozenset()))
    assert width(estimated_registers=True) > width()  # 48 registers: they decide how many blocks fit


def test_a_small_launch_has_a_wide_interval_because_of_its_start():
    p = predicted(copy_run(1), A100)
    assert p.interval_s[1] / p.time_s > 1.3
    assert "start-up is much of so short a time" in p.interval_why


# ---------------------------------------------------------------------------------------------------------- waves and tail
def test_one_block_more_than_a_wave_waits_for_one_block_more():
    full, more = predicted(copy_run(80)), predicted(copy_run(81))
    assert full.waves == 1
    assert more.tail_s >= (more.block_cycles - 1) * 1e-9
    assert more.time_s > 1.3 * full.body_s + full.bounds["launch"]


def test_a_small_launch_is_bound_by_start_up_and_one_block():
    p = predicted(copy_run(1), A100)
    assert p.bound == "launch"
    assert p.body_s == pytest.approx(p.block_cycles / A100.clock_hz, rel=0.05)


def test_the_last_wave_waits_for_the_slowest_block():
    body = [op(8, (), "none", 0, "none", phi=((0, 0), (1, 9))), op(9, (8,), "fma")]
    prog = program([([op(0)], (1,)), (body, (1, 2), 1), ([op(99, (9,))], ())], ())
    even = np.full((80, 8, 3), (1, 100, 1))
    uneven = even.copy()
    uneven[-1, 0, 1] = 10_000  # one warp of one block: 40,000 cycles instead of 400
    alike = predicted(make_run(prog, 80, 256, lambda b, w: [], executions=even, counts=Counts()))
    lopsided = predicted(make_run(prog, 80, 256, lambda b, w: [], executions=uneven, counts=Counts()))
    assert lopsided.time_s - alike.time_s > 35_000e-9
    assert lopsided.warp_cycles == alike.warp_cycles  # the median block has not changed


def test_more_blocks_never_take_less():
    times = [predicted(copy_run(n), A100).time_s for n in (1, 2, 108, 109, 864, 865, 1000, 2000)]
    assert times == sorted(times)


# --------------------------------------------------------------------------------------------------- occupancy and barriers
def barrier_run(shared):
    ops = [op(0), load(1, 0, 0), op(2, (1,)), op(-1, (), "lsu", 1, "barrier"), op(3, (2,))]
    prog = program([(ops, ())], ("global_load",), shared=shared)
    return make_run(prog, 8000, 256, lambda b, w: [(0, 128 * (8 * b + w) + 4 * LANE)], traced=80, instructions=2000)


def test_more_resident_blocks_hide_what_a_barrier_exposes():
    # 160 KiB of shared memory leave one block per SM, 60 KiB two
    assert predicted(barrier_run(160_000)).body_s > 1.05 * predicted(barrier_run(60_000)).body_s


def test_a_larger_grid_with_barriers_never_takes_less():
    """From one block on an SM to two the other block fills gaps, and none of the two is done sooner than one alone."""
    ops = [op(0), load(1, 0, 0), op(2, (1,)), op(-1, (), "adu", 1, "barrier"), *(op(k, (k - 1,)) for k in range(3, 200))]
    prog = program([(ops, ())], ("global_load",))

    def seconds(blocks):
        run = make_run(prog, blocks, 256, lambda b, w: [(0, 128 * (8 * b + w) + 4 * LANE)], traced=min(blocks, 40), instructions=200 * 8)
        return predicted(run, A100).time_s

    times = [seconds(n) for n in (54, 107, 108, 109, 150, 215, 216, 217, 432, 864, 865)]
    assert times == sorted(times)


def test_lower_occupancy_never_helps():
    times = [predicted(copy_run(8000, traced=80), A100, registers).time_s for registers in (32, 64, 128, 255)]
    assert times == sorted(times)


def test_warps_needed_is_latency_over_the_tightest_pipe():
    chain = [op(i, (i - 1,) if i else (), "fma") for i in range(101)]  # 401 cycles
    run = make_run(program([(chain, ())], ()), 800, 256, lambda b, w: [], counts=Counts(warp_instructions=40 * 800 * 8))
    # 40 instructions per warp over 4 schedulers are 10 cycles of an SM; 100 registers read, over 8 banks, 12.5
    assert predicted(run).warps_needed == pytest.approx(401 / 12.5)


def test_one_warp_uses_one_scheduler():
    # one warp per SM cannot fill four: 1000 instructions take 1000 cycles, not 250
    p = predicted(only(blocks=10, block=32, warp_instructions=10_000))
    assert p.bounds["issue"] == pytest.approx(1000e-9)


# ---------------------------------------------------------------------------------------------------------------- DRAM rate
def test_the_rate_follows_the_mix_of_reads_and_writes():
    for gpu in devices():
        read, copy, write = dram_eta(gpu, 1, 0), dram_eta(gpu, 1, 1), dram_eta(gpu, 0, 1)
        assert 0.5 < copy <= 1
        assert copy <= read <= 1
        assert min(read, copy) <= dram_eta(gpu, 3, 1) <= max(read, copy)
        assert min(write, copy) <= dram_eta(gpu, 1, 3) <= max(write, copy)


def test_the_copy_that_was_measured_is_predicted_back():
    """1 GiB of float64, block 1024, on A100-80: 1732 GB/s of 2039 (te42kyfo/gpu-benches; what dram_eta_copy was read from)."""
    run = copy_run(131072, 1024, size=8, traced=216, instructions=12)
    p = predicted(run, A100)
    assert 2**31 / p.body_s / 1e9 == pytest.approx(1732, rel=0.03)


# ------------------------------------------------------------------------------------------------------------------- sanity
N = 2**26


def strided(stride):
    return copy_run(N // 256, stride=stride, traced=64, instructions=15, compulsory=(4 * N, 4 * N))


def sol_score(run, gpu):
    return run.compulsory_bytes / gpu.dram_bytes_per_s / predicted(run, gpu).time_s


def test_a_large_copy_comes_near_the_speed_of_light():
    for gpu in devices():
        # B200 would need more bytes in flight than one float32 per thread: 2048 threads x 8 bytes in 1300 cycles are half of its rate
        assert (0.4 if gpu.name.startswith("B200") else 0.6) < sol_score(strided(1), gpu) < 0.97, gpu.name


def test_strides_cost_what_their_sectors_cost():
    unit, two, eight, sixteen = (predicted(strided(s), A100).time_s for s in (1, 2, 8, 16))
    assert two / unit == pytest.approx(1.5, abs=0.2)  # 3 sectors' worth moved instead of 2
    assert eight / unit == pytest.approx(4.5, rel=0.2)  # 9 instead of 2
    assert sixteen / eight == pytest.approx(17 / 9, rel=0.1)  # 64-byte pairs: 17 instead of 9


def test_no_prediction_beats_the_attainable_time():
    work = Work.read("src", 4 * N) + Work.write("dst", 4 * N)
    for gpu in devices():
        ceiling = attainable_time_s(work, gpu)
        assert ceiling > work.compulsory_bytes / gpu.dram_bytes_per_s
        for size, n in ((4, N), (8, N // 2)):
            run = copy_run(n // 256, size=size, traced=64, instructions=5)
            assert predicted(run, gpu).time_s > ceiling, gpu.name


def test_attainable_time_of_compute_is_the_peak_at_the_sustained_clock():
    gpu = device("Tesla T4")
    seconds = attainable_time_s(Work.flop("fp32", 8.14e12), gpu)
    assert seconds == pytest.approx(1 / gpu.clock_derate, rel=1e-4)


def test_nothing_can_be_attained_for_nothing():
    with pytest.raises(WorkError, match="neither bytes nor FLOPs"):
        attainable_time_s(Work(), A100)
    with pytest.raises(UnknownName):
        attainable_time_s(Work.read("x", 1), "A100-SXM4-81GB")


def test_a_prediction_is_the_same_to_the_last_digit():
    assert predicted(strided(3), A100) == predicted(strided(3), A100)


def test_doubtful_figures_behind_the_winner_are_named():
    gpu = replace(A100, flagged=frozenset({"dram_eta_copy", "lat_smem"}))
    assert predicted(strided(1), gpu).flagged == ("dram_eta_copy",)


def test_stalls_add_up_to_the_warp_s_cycles():
    p = predicted(strided(1), A100)
    assert sum(p.stalls.values()) == pytest.approx(p.warp_cycles)
    assert max(p.stalls, key=p.stalls.get) == "long_scoreboard"


def test_every_bound_knows_which_figures_it_rests_on():
    assert set(model._INPUTS) == set(BOUNDS)


def test_an_empty_launch_record_takes_the_start_up_time():
    run = make_run(program([([store(0, 0, 0)], ())], ("global_store",)), 1, 32, lambda b, w: [])
    assert predicted(run).time_s >= 2e-6
