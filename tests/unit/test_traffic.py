"""Caches and DRAM: what a traced launch moves on a device. Bytes are summed in comments."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from handmade_runs import LANE, copy_run, load, make_run, op, program, store

from solcourse import cache_trace, cachesim
from solcourse.errors import UnknownName, WorkError
from solcourse.hardware import device
from solcourse.occupancy import occupancy
from solcourse.simt.records import Arrays, Trace
from solcourse.traffic import traffic, traffics, warm_up

A100 = device("A100-SXM4-80GB")
LOAD, STORE, ATOMIC = "global_load", "global_store", "global_atomic"


def moved(run, gpu=A100, cache="cold", l1_bytes=None):
    fits = occupancy(gpu, run.threads_per_block, 32, run.shared_bytes)
    return traffic(run, gpu, fits if l1_bytes is None else replace(fits, l1_bytes=l1_bytes), cache)


def reader(kinds=(LOAD,), waits=True):
    """A program with the given sites; where it waits, each address is computed from what was loaded before."""
    ops = [op(0)]
    address = 0
    for i, kind in enumerate(kinds):
        if kind.endswith("store"):
            ops.append(store(address, 0, i))
        else:
            ops.append(load(10 + 2 * i, address, i, "atomic" if kind == ATOMIC else "global"))
            if waits:
                address = 11 + 2 * i
                ops.append(op(address, (10 + 2 * i,)))
    return program([(ops, ())], kinds)


def one_warp(addresses, kinds=(LOAD,), **options):
    """One block of one warp that makes the given requests: [(site, addresses)]."""
    return make_run(reader(kinds), 1, 32, lambda b, w: addresses, **options)


def line(i):
    return 128 * i + 4 * LANE


# ------------------------------------------------------------------------------------------------------------ streaming
def test_a_unit_stride_copy_moves_its_compulsory_bytes_and_hits_nothing():
    t = moved(copy_run(2048))  # 2048 x 256 x 4 bytes each way
    assert (t.dram_read_bytes, t.dram_write_bytes) == (1 << 21, 1 << 21)
    assert t.l1_hit_rate == 0
    assert t.l2_hit_rate == 0.5  # every load misses, every store counts as a hit, as in ncu
    assert t.l2_bytes == 2 << 21
    assert t.exact


@pytest.mark.parametrize(("stride", "factor"), [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 16)])
def test_strided_reads_cost_every_sector_and_pairs_of_64_bytes_on_hbm(stride, factor):
    # stride s < 8 touches s times the sectors; from 8 on each element has a sector of its own, and from 16 on a 64-byte pair
    t = moved(copy_run(4096, stride=stride))
    assert t.dram_read_bytes == factor << 22
    assert t.dram_write_bytes == 1 << 22


def test_gddr_fetches_single_sectors():
    t = moved(copy_run(4096, stride=16), device("RTX A6000"))
    assert t.dram_read_bytes == 8 << 22


def test_an_offset_of_one_hardly_changes_dram():
    # a warp's fifth sector is its neighbour's first: in L1 or L2 already
    aligned, shifted = moved(copy_run(4096)), moved(copy_run(4096, offset=1))
    assert shifted.l2_bytes > aligned.l2_bytes
    assert shifted.dram_read_bytes == pytest.approx(aligned.dram_read_bytes, rel=0.001)


@pytest.mark.parametrize("kind", [LOAD, STORE])
def test_an_array_that_l2_holds_goes_through_dram_once_in_whatever_order_it_is_touched(kind):
    # 2^20 words, each once: every window touches other words of the same sectors
    order = np.random.default_rng(5).permutation(1 << 20).reshape(4096, 8, 32)
    run = make_run(reader((kind,)), 4096, 256, lambda b, w: [(0, 4 * order[b, w])])
    size = 4 << 20
    t = moved(replace(run, arrays=Arrays(size * (kind == LOAD), size * (kind == STORE), size)))
    assert not t.exact
    assert t.dram_bytes == size


def fields(layout, blocks=1024):
    """Three float32 fields of a record, one element per thread: array of structures or structure of arrays."""

    def access(b, w):
        i = 256 * b + 32 * w + LANE
        where = [12 * i + 4 * f for f in range(3)] if layout == "aos" else [(f << 30) + 4 * i for f in range(3)]
        return list(enumerate(where))

    return make_run(reader((LOAD,) * 3), blocks, 256, access)


def test_all_fields_of_an_aos_cost_the_dram_bytes_of_an_soa():
    aos, soa = moved(fields("aos")), moved(fields("soa"))
    assert aos.dram_read_bytes == soa.dram_read_bytes == 3 * 4 * 256 * 1024
    assert aos.l1_hit_rate == pytest.approx(2 / 3, abs=0.01)  # the other two fields' sectors came with the first
    assert soa.l1_hit_rate == 0


# ------------------------------------------------------------------------------------------------------------------- L1
def test_a_line_asked_for_again_hits_l1():
    t = moved(one_warp([(0, line(0)), (0, line(0))]))
    assert t.l1_hit_rate == 0.5
    assert t.l2_bytes == 128


def test_l1_misses_by_sector_not_by_line():
    t = moved(one_warp([(0, line(0)[:8]), (0, line(0)[8:16])]))
    assert t.l1_hit_rate == 0
    assert t.l1_miss_sectors == 2


def test_a_store_does_not_bring_its_line_into_l1():
    t = moved(one_warp([(1, line(0)), (0, line(0))], (LOAD, STORE)))
    assert t.l1_hit_by_site == (0.0, 0.0)
    assert t.l2_hit_by_site == (1.0, 1.0)  # the store left its bytes in L2
    assert t.dram_read_bytes == 0


def test_a_store_leaves_a_line_in_l1_valid():
    t = moved(one_warp([(0, line(0)), (1, line(0)), (0, line(0))], (LOAD, STORE)))
    assert t.l1_hit_by_site[0] == 0.5


def test_atomics_bypass_l1():
    t = moved(one_warp([(0, line(0)), (1, line(0)), (1, line(0))], (LOAD, ATOMIC)))
    assert t.l1_hit_rate == 0  # one load, which missed
    assert t.l2_sectors == 4 + 4 + 4
    assert t.dram_write_bytes == 128


def test_local_memory_is_written_back_from_l1_only_when_it_is_evicted():
    requests = [(1, line(i)) for i in range(8)] + [(0, line(i)) for i in range(8)]
    kept = moved(one_warp(requests, ("local_load", "local_store")))
    assert kept.l1_hit_rate == 1
    assert kept.l2_bytes == 0
    spilled = moved(one_warp(requests, ("local_load", "local_store")), l1_bytes=4 * 128)
    assert spilled.l2_bytes == 32 * 4 * (8 + 8)  # every line leaves before it is read again, and comes back


def sweep(lines, times):
    return one_warp([(0, line(i)) for _ in range(times) for i in range(lines)])


def test_a_sweep_that_fits_l1_hits_and_one_line_more_never_does():
    assert moved(sweep(64, 4), l1_bytes=64 * 128).l1_hit_rate == 0.75
    assert moved(sweep(65, 4), l1_bytes=64 * 128).l1_hit_rate == 0  # LRU loses a cyclic sweep entirely


def test_a_larger_l1_never_hits_less():
    rng = np.random.default_rng(1)
    chosen = rng.integers(0, 200, 2000)
    run = one_warp([(0, line(i)) for i in chosen])
    rates = [moved(run, l1_bytes=128 * n).l1_hit_rate for n in (1, 8, 32, 100, 150, 200)]
    assert rates == sorted(rates)
    assert rates[-1] == 1 - len(set(chosen.tolist())) / 2000  # all but the first touch


def test_l1_is_per_sm():
    """Two blocks read the same lines: on two SMs each misses for itself, on one SM the second block hits."""
    run = make_run(reader(), 2, 32, lambda b, w: [(0, line(i)) for i in range(16)])
    assert moved(run).l1_hit_rate == 0
    assert moved(run, replace(A100, sms=1)).l1_hit_rate == 0.5


# ---------------------------------------------------------------------------------------------------------- order of warps
def two_warps(waits):
    """Each of two warps asks twice for its own line; the L1 holds one line."""
    prog = reader((LOAD, LOAD), waits)
    return make_run(prog, 1, 64, lambda b, w: [(0, line(w)), (1, line(w))])


def test_a_warp_runs_to_its_first_stall():
    assert moved(two_warps(waits=False)).levels_by_site[1] == (0.0, 0.0, 1.0)  # both requests at once: the data is on its way
    assert moved(two_warps(waits=True)).levels_by_site[1] == (1.0, 0.0, 0.0)  # it waits after the first: the data is there


def test_a_line_takes_its_place_in_l1_when_its_data_arrives():
    """L1 holds one line. What the other warp has asked for pushes nothing out as long as it is under way."""
    assert moved(two_warps(waits=True), l1_bytes=128).l1_hit_by_site == (0.0, 1.0)
    late = [(0, line(0)), (1, line(1)), (0, line(0))]  # one warp: line 1 arrives, line 0 leaves
    assert moved(one_warp(late, (LOAD, LOAD)), l1_bytes=128).l1_hit_rate == 0


def test_a_hit_on_a_sector_under_way_waits_for_it():
    t = moved(two_warps(waits=False))
    assert t.levels_by_site[1] == (0.0, 0.0, 1.0)  # an L1 hit by ncu's count, but DRAM by its time
    assert t.l1_hit_by_site[1] == 1


def test_barriers_hold_warps_back():
    """Warp 1 reads after the barrier what warp 0 read before it: warp 0's eight lines are in L1 by then."""
    prog = reader((LOAD, LOAD))
    before = [(0, line(i)) for i in range(8)]
    run = make_run(prog, 1, 64, lambda b, w: before if w == 0 else [(1, line(7))])
    free = moved(run)
    words = run.trace.words
    # as the engine writes it when a barrier separates them: warp 1 (nothing), then warp 0 again
    after = np.concatenate([words[-2:], words[:-2]])
    held = moved(replace(run, trace=replace(run.trace, words=after)))
    assert free.l1_hit_by_site[1] == 0  # its turn comes before warp 0 is at line 7
    assert held.l1_hit_by_site[1] == 0  # and first of all when it stands first
    barrier = np.concatenate([words, words[:2]])  # warp 0, warp 1, barrier, warp 0 reads line 0 again
    assert moved(replace(run, trace=replace(run.trace, words=barrier, offsets=np.array([0, len(barrier)])))).l1_hit_by_site[0] > 0


# ------------------------------------------------------------------------------------------------------------------- L2
def small_l2(lines):
    return replace(A100, l2_mib=lines * 128 / 1024**2, chip="one partition")


def test_l2_keeps_what_fits_between_two_sweeps():
    twice = sweep(512, 2)
    assert moved(twice, small_l2(512), l1_bytes=128).dram_read_bytes == 512 * 128
    assert moved(twice, small_l2(511), l1_bytes=128).dram_read_bytes == 2 * 512 * 128  # LRU loses a cyclic sweep entirely


def test_a_larger_l2_never_fetches_more():
    rng = np.random.default_rng(2)
    table = rng.integers(0, 400, (64, 8, 8))
    run = make_run(reader((LOAD,) * 8), 64, 256, lambda b, w: [(k, line(table[b, w, k])) for k in range(8)])
    read = [moved(run, small_l2(n)).dram_read_bytes for n in (16, 64, 128, 256, 400)]
    assert read == sorted(read, reverse=True)
    assert read[-1] == 128 * len(np.unique(table))


def test_an_incomplete_sector_that_leaves_l2_is_read_first():
    """4 of a sector's 32 bytes are written and evicted: DRAM fetches a 64-byte pair to merge it, and writes 32 bytes."""

    def access(b, w):
        return [(0, np.array([128 * b]))] if w == 0 else []

    run = make_run(program([([op(0), store(0, 0, 0)], ())], (STORE,)), 512, 256, access)
    t = moved(run, small_l2(16))
    assert t.dram_write_bytes == 512 * 32
    assert t.dram_read_bytes == (512 - 16) * 64  # the last 16 lines stay in L2
    assert t.dirty_left_bytes == 16 * 32
    whole = make_run(program([([op(0), store(0, 0, 0)], ())], (STORE,)), 512, 32, lambda b, w: [(0, line(b))])
    assert moved(whole, small_l2(16)).dram_read_bytes == 0


def test_both_halves_of_l2_keep_shared_data():
    """All blocks sweep twice over the same 256 lines: of 300, two partitions that copy them leave 150."""
    lines = 256

    def access(b, w):
        return [(0, line(i)) for i in (*range(lines), *range(lines))]

    run = make_run(reader(), 16, 32, access)
    fits = replace(small_l2(300), sms=16)
    halved = replace(fits, chip="GA100")
    assert moved(run, fits, l1_bytes=128).dram_read_bytes == lines * 128
    assert moved(run, halved, l1_bytes=128).dram_read_bytes == 2 * lines * 128


def test_warm_keeps_what_the_last_launch_left():
    small = copy_run(1024)  # 2 MiB, all of it stays in L2
    assert moved(small, cache="warm").dram_bytes == 0
    assert moved(small).dram_bytes == 2 << 20


def test_warm_does_not_help_a_sweep_beyond_l2_and_writes_back_each_byte_once():
    gpu = replace(A100, l2_mib=0.25)
    t = moved(copy_run(1024), gpu, cache="warm")
    assert t.dram_read_bytes == 1 << 20
    assert t.dram_write_bytes == pytest.approx(1 << 20, rel=0.01)


def partial_sums(blocks=3000):
    """Each block reads 1 KiB of its own and writes one number: 32 blocks share each line of the output, 8 each sector."""

    def access(b, w):
        own = (0, 1024 * b + 128 * w + 4 * LANE)
        return [own, (1, np.array([(1 << 34) + 4 * b]))] if w == 0 else [own]

    return make_run(program([([op(0), load(1, 0, 0), store(0, 1, 1)], ())], (LOAD, STORE)), blocks, 256, access)


@pytest.mark.parametrize("run", [copy_run(2048), copy_run(700, stride=3), partial_sums()], ids=["copy", "strided", "sums"])
@pytest.mark.parametrize("gpu", [A100, device("Tesla T4"), small_l2(20000)], ids=["A100", "T4", "small L2"])
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_streams_come_out_as_if_they_were_replayed(monkeypatch, run, gpu, cache):
    at_once = moved(run, gpu, cache)
    monkeypatch.setattr(cachesim, "streams", lambda window, machine: False)
    again = replace(run, trace=replace(run.trace))  # nothing is known of this one yet
    replayed = moved(again, gpu, cache)
    # which lines are the last in L2, and so how much of it is dirty at the end, depends on the order
    assert replace(at_once, dirty_left_bytes=0, dram_write_bytes=0) == replace(replayed, dirty_left_bytes=0, dram_write_bytes=0)
    assert at_once.dram_write_bytes == pytest.approx(replayed.dram_write_bytes, rel=0.1)


# -------------------------------------------------------------------------------------------------------- windows and scale
@pytest.mark.parametrize("stride", [1, 2, 16])
def test_a_window_of_blocks_speaks_for_the_grid(stride):
    whole, window = moved(copy_run(8192, stride=stride)), moved(copy_run(8192, stride=stride, traced=64, first=4000))
    for name in ("l2_bytes", "dram_read_bytes", "dram_write_bytes", "l1_hit_rate", "l2_hit_rate"):
        assert getattr(window, name) == pytest.approx(getattr(whole, name), rel=0.01), name
    assert not window.exact


def test_data_shared_by_all_windows_is_fetched_once_when_it_fits():
    """512 blocks read the same 64 KiB: 16 traced blocks must not be scaled to 32 times 64 KiB."""

    def access(b, w):
        return [(0, line(64 * w + i)) for i in range(64)]

    whole = make_run(reader(), 512, 256, access, compulsory=(1 << 16, 0))
    window = make_run(reader(), 512, 256, access, traced=16, compulsory=(1 << 16, 0))
    assert moved(whole).dram_read_bytes == 1 << 16
    assert moved(window).dram_read_bytes == pytest.approx(1 << 16, rel=0.01)
    assert moved(window).levels_by_site[0][2] < 0.1  # later blocks find it in L2
    assert moved(window).l2_hit_rate > 0.9


def long_run(blocks=64, turns=2000):
    """Each warp reads one line of its own over and over, then writes it elsewhere: blocks too long for a window."""

    def access(b, w):
        own = 8 * b + w
        return [(0, line(own))] * turns + [(1, (1 << 34) + line(own))]

    prog = program([([op(0), load(1, 0, 0), store(0, 1, 1)], ())], (LOAD, STORE))
    size = 128 * 8 * blocks
    return make_run(prog, blocks, 256, access, compulsory=(size, size))


def test_long_blocks_are_cut_short_and_what_is_cut_off_is_still_counted():
    run = long_run()
    t = moved(run)
    assert not t.exact
    assert t.traced_blocks == cache_trace.FEWEST
    assert t.l1_hit_rate == pytest.approx(1, abs=0.01)
    assert t.dram_read_bytes == pytest.approx(run.compulsory_read_bytes, rel=0.01)
    assert t.dram_write_bytes == run.compulsory_write_bytes  # the stores come last: none of them is in the window


def test_several_devices_at_once_are_each_as_it_is_alone():
    run = copy_run(600, stride=3, offset=1)
    places = [(gpu, occupancy(gpu, 256, 32, 0)) for gpu in map(device, ("A100-SXM4-80GB", "Tesla T4", "GeForce RTX 4090"))]
    together = traffics(run, places)
    assert together == tuple(traffic(replace(run, trace=replace(run.trace)), *place) for place in places)
    assert len(set(together)) == 3


def test_blocks_too_large_for_the_trace_still_move_their_distinct_bytes():
    run = copy_run(64)
    bare = replace(run, trace=Trace(np.array([], np.int64), np.array([0]), np.array([], np.uint64)))
    t = moved(bare)
    assert (t.dram_read_bytes, t.dram_write_bytes, t.traced_blocks, t.exact) == (1 << 16, 1 << 16, 0, False)
    assert t.l2_sectors == moved(run).l2_sectors


def test_replaying_twice_gives_the_same_record():
    run = copy_run(512, stride=3)
    assert moved(run) == moved(run)


def test_a_launch_that_touches_no_memory_moves_nothing():
    run = make_run(program([([op(0)], ())], ()), 8, 64, lambda b, w: [])
    assert (moved(run).dram_bytes, moved(run).l2_bytes, moved(run).l1_hit_rate) == (0, 0, 0.0)


def test_blocks_without_requests_are_passed_over():
    run = make_run(reader(), 300, 32, lambda b, w: [(0, line(b))] if b % 3 == 0 else [])
    assert moved(run).dram_read_bytes == 100 * 128


def test_tag_wavefronts_are_the_fullest_of_four_sets():
    # 32 lanes on 32 lines: 4 sets; lines 0..31 hash evenly, 8 each; one line: 1
    scattered = one_warp([(0, 128 * LANE)])
    assert moved(scattered).tag_wavefronts == 8
    assert moved(one_warp([(0, line(0))])).tag_wavefronts == 1


# --------------------------------------------------------------------------------------------------------------- the edges
def test_an_unknown_cache_state_is_refused():
    with pytest.raises(WorkError, match="'cold', 'warm'"):
        moved(copy_run(1), cache="hot")


def test_an_unknown_device_is_refused():
    with pytest.raises(UnknownName):
        traffic(copy_run(1), "A100-SXM4-80GBs", occupancy(A100, 256, 32, 0))


def test_importing_traffic_and_model_does_not_load_numba():
    code = "import sys, solcourse.traffic, solcourse.model, solcourse.registers; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_warming_up_compiles_everything_that_a_replay_needs():
    warm_up()
    compiled = (cache_trace._count, cache_trace._index, cachesim._replay)
    known = [len(f.signatures) for f in compiled]
    moved(sweep(8, 2))
    assert [len(f.signatures) for f in compiled] == known == [1, 1, 1]


def test_compiling_works_where_no_folder_can_be_written(monkeypatch):
    calls = []

    def no_cache(cache=False, **options):
        calls.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(cache_trace, "njit", no_cache)
    assert cache_trace.compiled(len) is len
    assert calls == [True, False]
