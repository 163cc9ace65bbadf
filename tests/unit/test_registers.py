"""Registers per thread and where the number comes from: given, shipped, or estimated and labelled so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade_runs import copy_run, program

from solcourse import registers as module
from solcourse.errors import LaunchError
from solcourse.hardware import devices
from solcourse.registers import TABLE_CCS, access_pattern, estimate, registers, table

RUN = copy_run(1)


def row():
    return next(r for r in table() if r["kernel"].endswith("copy.py copy") and "load4" in r["access"])


def test_what_is_given_wins_over_everything():
    shipped = replace(RUN.program, fingerprint=row()["keys"][0])
    assert registers(shipped, RUN, "8.0", override=77) == module.Registers(77, 0, "given")


@pytest.mark.parametrize("wrong", [0, 256, -1, 32.0, True])
def test_an_impossible_number_is_refused(wrong):
    with pytest.raises(LaunchError, match="1 to 255"):
        registers(RUN.program, RUN, "8.0", override=wrong)


def test_a_reference_kernel_is_known_by_its_fingerprint_in_any_file():
    shipped = replace(RUN.program, fingerprint=row()["keys"][-1], file="/somewhere/else.py")
    found = registers(shipped, RUN, "8.0")
    assert (found.count, found.source) == (row()["registers"]["8.0"], "table")


def test_it_is_known_by_file_name_and_accesses_under_another_front_end():
    shipped = replace(RUN.program, fingerprint="another", kernel="copy", file="/any/where/kernels/copy.py")
    assert registers(shipped, RUN, "8.0").source == "table"
    assert registers(replace(shipped, file="/any/where/mine/copy.py"), RUN, "8.0").source == "estimated"
    wider = replace(program([((), ())], ("global_load", "global_store"), size=16), kernel="copy", file="/any/where/kernels/copy.py")
    assert registers(wider, RUN, "8.0").source == "estimated"


def test_a_file_of_another_system_is_recognised():
    shipped = replace(RUN.program, kernel="copy", file="C:\\course\\solcourse\\kernels\\copy.py")
    assert registers(shipped, RUN, "8.0").source == "table"


def test_what_cuda_13_no_longer_compiles_for_takes_the_oldest_it_does():
    shipped = replace(RUN.program, fingerprint=row()["keys"][0])
    assert registers(shipped, RUN, "7.0").source == "table (cc 7.5)"


def test_a_learners_kernel_is_estimated_and_says_so():
    found = registers(RUN.program, RUN, "8.0")
    assert (found.count, found.source) == (estimate(RUN.registers_live), "estimated")


def test_the_estimate_grows_with_the_live_values_and_stays_in_bounds():
    for cc in ("8.0", "12.0"):
        grown = [estimate(n, cc) for n in range(2000)]
        assert grown == sorted(grown)
        assert grown[0] == 16
        assert grown[-1] == 255
        assert all(n % 8 == 0 for n in grown if n != 255)


def test_every_device_has_a_row_or_a_proxy():
    shipped = replace(RUN.program, fingerprint=row()["keys"][0])
    assert all(registers(shipped, RUN, gpu.cc).source.startswith("table") for gpu in devices())


def test_the_table_is_whole():
    assert len(table()) > 40
    for r in table():
        assert set(r["registers"]) == set(TABLE_CCS), r["kernel"]
        assert r["keys"]
        assert all(1 <= n <= 255 for n in r["registers"].values())
    every = [key for r in table() for key in r["keys"]]
    assert len(every) == len(set(every))


def test_access_patterns_tell_types_apart():
    assert access_pattern(RUN.program) == "global_load4 global_store4"
    assert access_pattern(copy_run(1, size=8).program) == "global_load8 global_store8"
