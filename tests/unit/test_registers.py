"""Registers per thread and where the number comes from: given, shipped, compiled, or estimated and labelled so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade_runs import copy_run, program

from solcourse import compiled_registers as memory
from solcourse import registers as module
from solcourse import toolchain
from solcourse.errors import LaunchError
from solcourse.hardware import device, devices
from solcourse.registers import TABLE_CCS, access_pattern, estimate, registers, registers_on, table
from solcourse.simt.records import Source

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


# ------------------------------------------------------------------------------------------------------- options that cap them
def with_options(**options):
    return replace(RUN.program, source=Source((), "entry", options))


def test_max_registers_caps_the_estimate_and_says_that_it_may_spill():
    many = replace(RUN, registers_live=200)
    free, capped = registers(with_options(), many, "8.0"), registers(with_options(max_registers=32), many, "8.0")
    assert (free.count, free.source) == (estimate(200), "estimated")
    assert capped.count == 32 < free.count
    assert "max_registers" in capped.source
    assert capped.is_estimated
    assert registers(with_options(max_registers=255), many, "8.0") == free


@pytest.mark.parametrize(("bounds", "most"), [(1024, 64), ((1024, 2), 32), ((256, 4), 64), ((100,), 255)])  # 65,536 / threads / blocks
def test_launch_bounds_cap_the_estimate(bounds, most):
    assert registers(with_options(launch_bounds=bounds), replace(RUN, registers_live=10_000), "8.0").count == most


def test_a_kernel_with_a_cap_is_not_looked_up_by_name():
    capped = replace(with_options(max_registers=24), kernel="copy", file="/any/where/kernels/copy.py")
    assert registers(capped, RUN, "8.0").source.startswith("estimated")
    assert registers(replace(capped, source=None), RUN, "8.0").source == "table"


def test_an_estimate_never_keeps_the_only_block_from_fitting():
    a100, many = device("A100-SXM4-80GB"), replace(RUN, registers_live=300)
    assert estimate(300) > 64
    assert registers_on(a100, many.program, many, 1024).count == 64  # 65,536 / 1,024
    assert registers_on(a100, many.program, many, 1024, override=200).count == 200  # what is given is believed, and refused


# ------------------------------------------------------------------------------------------------------ a compiler that is asked
@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """A compiler of 41 registers and 8 bytes of spills; it notes what it was asked. Its memory is empty, its file in tmp_path."""
    asked: list[str] = []

    def ask(program, cc):
        asked.append(cc)
        return module.Usage(41, 8)

    forget(monkeypatch)
    monkeypatch.setattr(memory, "_ask", ask)
    monkeypatch.setattr(memory, "path", lambda: tmp_path / "registers.txt")
    monkeypatch.setattr(toolchain, "installed", lambda: True)
    monkeypatch.setattr(toolchain, "version", lambda *names: "compiler 1")
    return asked


def forget(monkeypatch):
    """As a new process does."""
    monkeypatch.setattr(memory, "_KNOWN", {})
    monkeypatch.setattr(memory, "_READ", set())


OWN = replace(RUN.program, source=Source(("some IR",), "entry", {}))


def test_a_learners_kernel_is_compiled_where_the_compiler_is_installed(compiler):
    assert registers(OWN, RUN, "8.0") == module.Registers(41, 8, "compiled")
    assert not registers(OWN, RUN, "8.0").is_estimated
    assert registers(OWN, RUN, "6.1") == module.Registers(41, 8, "compiled (cc 7.5)")
    assert compiler == ["8.0", "7.5"]


def test_a_reference_kernel_is_looked_up_whatever_is_installed(compiler):
    shipped = replace(OWN, fingerprint=row()["keys"][0])
    assert registers(shipped, RUN, "8.0").source == "table"
    by_source = replace(OWN, source=replace(OWN.source, key=row()["keys"][0]))
    assert registers(by_source, RUN, "8.0").source == "table"
    assert compiler == []


def test_it_is_asked_once_per_compute_capability_for_all_devices(compiler):
    for gpu in [*devices(), *devices()]:
        registers(OWN, RUN, gpu.cc)
    assert sorted(compiler) == sorted({toolchain.proxy(gpu.cc) for gpu in devices()})


def test_another_process_does_not_ask_again(compiler, monkeypatch):
    first = registers(OWN, RUN, "8.0")
    forget(monkeypatch)
    assert registers(OWN, RUN, "8.0") == first
    assert compiler == ["8.0"]


def test_a_changed_kernel_and_a_new_compiler_are_asked(compiler, monkeypatch):
    registers(OWN, RUN, "8.0")
    registers(replace(OWN, fingerprint="changed"), RUN, "8.0")
    monkeypatch.setattr(toolchain, "version", lambda *names: "compiler 2")
    registers(OWN, RUN, "8.0")
    assert compiler == ["8.0"] * 3


def test_a_spoilt_file_is_no_trouble(compiler, monkeypatch, tmp_path):
    registers(OWN, RUN, "8.0")
    good = (tmp_path / "registers.txt").read_bytes()
    (tmp_path / "registers.txt").write_bytes(b"\xff\x00 nonsense\n" + b"a" * 32 + b" 999 0\n" + b"b" * 32 + b" x 0\n\n" + good)
    forget(monkeypatch)
    registers(OWN, RUN, "8.0")
    assert compiler == ["8.0"]
    assert len(memory._KNOWN) == 1


def test_a_file_that_grew_too_long_forgets_its_older_half(compiler, monkeypatch, tmp_path):
    for k in range(10):
        registers(replace(OWN, fingerprint=f"{k}"), RUN, "8.0")
    lines = (tmp_path / "registers.txt").read_text().splitlines()
    monkeypatch.setattr(memory, "MOST_BYTES", 100)
    forget(monkeypatch)
    registers(replace(OWN, fingerprint="9"), RUN, "8.0")
    assert (tmp_path / "registers.txt").read_text().splitlines() == lines[5:]
    assert len(compiler) == 10


def test_nothing_is_kept_where_nobody_may_write(compiler, monkeypatch):
    monkeypatch.setattr(memory, "path", lambda: None)
    assert registers(OWN, RUN, "8.0").count == 41
    forget(monkeypatch)
    assert registers(OWN, RUN, "8.0").count == 41
    assert compiler == ["8.0", "8.0"]


def test_the_users_cache_folder_is_taken_where_the_package_is_read_only(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_user_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(memory.os, "access", lambda folder, mode: folder == tmp_path / "cache")
    assert memory.path() == tmp_path / "cache" / "registers.txt"
    monkeypatch.setattr(memory.os, "access", lambda folder, mode: False)
    assert memory.path() is None


def test_a_broken_compiler_is_no_error_and_is_named(compiler, monkeypatch):
    def fails(*args):
        raise toolchain.ToolTrouble("nvJitLink failed: the library is too old")

    monkeypatch.undo()
    forget(monkeypatch)
    monkeypatch.setattr(memory, "path", lambda: None)
    monkeypatch.setattr(toolchain, "installed", lambda: True)
    monkeypatch.setattr(toolchain, "nvvm_ptx", fails)
    found = registers(OWN, RUN, "8.0")
    assert (found.count, found.source) == (estimate(RUN.registers_live), "estimated, because nvJitLink failed: the library is too old")
    assert found.is_estimated


def test_without_the_compiler_it_is_an_estimate_like_any_other(compiler, monkeypatch):
    monkeypatch.setattr(toolchain, "installed", lambda: False)
    assert registers(OWN, RUN, "8.0").source == "estimated"
    assert compiler == []
