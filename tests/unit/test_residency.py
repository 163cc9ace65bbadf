"""What launches leave in L2 for the next: bytes between two touches of the same byte, summed in comments."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from handmade_runs import copy_run

from solcourse.hardware import device
from solcourse.occupancy import occupancy
from solcourse.residency import L2Contents, Touched, touched
from solcourse.traffic import Resident, traffic

MIB = 1 << 20


def reads(mib):
    return Touched(mib * MIB, True, False)


def writes(mib):
    return Touched(mib * MIB, False, True)


def states(capacity_mib, *launches):
    """(part read, part rewritten) found by each launch."""
    l2 = L2Contents(capacity_mib * MIB)
    return [(found.read, found.rewritten) for found in map(l2.launch, launches)]


def test_the_first_launch_finds_nothing():
    assert states(40, {1: reads(1), 2: writes(1)}) == [(0, 0)]


def test_what_a_launch_wrote_is_there_for_the_next_to_read():
    produced, consumed = {1: reads(4), 2: writes(4)}, {2: reads(4), 3: writes(4)}
    assert states(40, produced, consumed)[1] == (1, 0)  # 3 is new: nothing of it to rewrite


def test_data_that_was_only_read_is_not_written_back_twice_when_it_is_overwritten():
    back_and_forth = [{1: reads(4), 2: writes(4)}, {2: reads(4), 1: writes(4)}, {1: reads(4), 2: writes(4)}]
    assert states(40, *back_and_forth) == [(0, 0), (1, 0), (1, 1)]


def test_a_launch_between_pushes_out_what_does_not_fit_beside_it():
    step, other = {1: reads(8)}, {2: reads(32)}
    assert states(40, step, other, step)[2] == (1, 0)  # 8 + 32 fit into 40
    assert states(39, step, other, step)[2] == (0, 0)  # and not into 39


def test_a_sweep_that_is_larger_than_l2_finds_nothing_of_the_sweep_before():
    assert states(40, {1: reads(41)}, {1: reads(41)})[1] == (0, 0)


def test_what_was_touched_last_survives_where_the_launch_before_was_too_large():
    # between the bytes at x of array 1: (1 - x) 60 of array 2, which the second launch does not touch, and 10: below 40 from x = 1/2 on
    assert states(40, {1: reads(10), 2: reads(60)}, {1: reads(10)})[1] == (0.5, 0)


def test_many_launches_are_forgotten_again():
    l2 = L2Contents(10 * MIB)
    for address in range(1000):
        l2.launch({address: reads(1)})
    assert len(l2._last) <= 12


@dataclass
class Allocation:
    name: str
    address: int
    nbytes: int


def named(run, *names):
    sites = tuple(replace(site, array=name) for site, name in zip(run.program.sites, names, strict=True))
    return replace(run, program=replace(run.program, sites=sites))


def test_who_reads_and_who_writes_comes_from_the_program():
    run = named(copy_run(1024), "src", "dst")  # 1 MiB each way
    found = touched(run, [Allocation("src", 1, MIB), Allocation("dst", 2, MIB), Allocation("unused", 3, MIB)])
    assert found == {1: Touched(MIB, True, False), 2: Touched(MIB, False, True)}


def test_of_a_larger_allocation_only_a_part_is_touched():
    run = named(copy_run(1024), "src", "dst")
    found = touched(run, [Allocation("src", 1, 4 * MIB), Allocation("dst", 2, 4 * MIB)])
    assert found[1].nbytes == found[2].nbytes == MIB


@pytest.mark.parametrize("traced", [None, 64])
def test_traffic_falls_from_cold_to_nothing_with_what_l2_holds(traced):
    run, gpu = copy_run(1024, traced=traced), device("A100-SXM4-80GB")
    fits = occupancy(gpu, 256, 32, 0)
    cold, half, full = (traffic(run, gpu, fits, cache) for cache in ("cold", Resident(0.5, 0.0), Resident(1.0, 1.0)))
    assert half.dram_read_bytes == pytest.approx(cold.dram_read_bytes / 2)
    assert half.dram_write_bytes == cold.dram_write_bytes
    assert half.levels_by_site[0] == pytest.approx((0, 0.5, 0.5))
    assert full.dram_bytes == 0
    assert (half.cache, full.l2_hit_rate) == ("50 % warm", 1.0)
