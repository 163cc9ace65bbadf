"""The counter table: every count has a row, every row a value, every name the form of an ncu metric."""

import re
from dataclasses import fields

import pytest
from reports_by_hand import a_report

from solcourse.counters import COUNTERS, UNITS, counter, ncu_name, ncu_words, value
from solcourse.errors import UnknownName
from solcourse.simt.records import ACCESS_KINDS, FLOP_TYPES, PIPES, Counts

METRIC = re.compile(r"(l1tex|smsp|sm|lts|dram|gpu|launch)__[a-z0-9_]+(\{[a-z_,]+\}[a-z_]*)?(\.(sum|ratio|pct))?")


def test_every_count_has_a_row():
    for field in fields(Counts):
        rows = [name for name in COUNTERS if name.split(".")[1:2] == [field.name]]
        wanted = {"flops": len(FLOP_TYPES), "pipes": len(PIPES)}.get(field.name, 1)
        assert len(rows) >= wanted, field.name


@pytest.mark.parametrize("kind", ACCESS_KINDS)
def test_shared_memory_has_wavefronts_and_no_sectors_and_cached_memory_has_sectors(kind):
    shared = kind.startswith("shared")
    assert (f"counts.{kind}.sectors" in COUNTERS) == (not shared)
    assert f"counts.{kind}.requests" in COUNTERS
    assert (f"counts.{kind}.bank_conflicts" in COUNTERS) or not shared


def test_every_row_has_a_value_in_a_report():
    report = a_report()
    for name in COUNTERS:
        assert value(report, name) is not None, name


def test_every_ncu_name_has_the_form_of_a_metric_and_every_unit_is_known():
    for row in COUNTERS.values():
        assert row.unit in UNITS
        assert row.meaning
        assert not row.ncu or all(METRIC.fullmatch(part) for part in row.ncu.removesuffix(" / 32").split(" / ")), row.ncu
    assert [row.name for row in COUNTERS.values() if not row.ncu] == ["counts.barriers", "counts.library_flops"]


def test_requests_sectors_flops_and_barriers_are_exact_and_instructions_and_hit_rates_are_not():
    for kind in ACCESS_KINDS:
        assert counter(f"counts.{kind}.requests").exact
    for name in ("counts.global_load.sectors", "counts.shared_store.wavefronts", "counts.flops.fp32", "counts.barriers"):
        assert counter(name).exact
    estimated = ("counts.warp_instructions", "counts.pipes.fma", "traffic.l1_hit_rate", "traffic.dram_read_bytes", "registers", "time_s")
    for name in estimated:
        assert not counter(name).exact


def test_sectors_per_request_is_named_as_lesson_01_names_it():
    name = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{}.ratio"
    assert ncu_name("counts.global_load.sectors_per_request") == name.format("ld")
    assert ncu_name("counts.global_store.sectors_per_request") == name.format("st")


def test_flops_say_how_ncus_metrics_add():
    name = "smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum"
    assert ncu_name("counts.flops.fp32") == name
    assert ncu_words("counts.flops.fp32") == f"fadd + fmul + 2 x ffma: {name}"
    assert ncu_words("counts.global_load.sectors") == ncu_name("counts.global_load.sectors")


def test_sectors_per_atomic_divide_the_same_two_metrics_as_the_counts():
    sectors, requests = ncu_name("counts.global_atomic.sectors"), ncu_name("counts.global_atomic.requests")
    assert ncu_name("counts.global_atomic.sectors_per_request") == f"{sectors} / {requests}"
    assert ncu_name("counts.global_atomic.sector_efficiency").endswith(f" / {sectors} / 32")


def test_global_atomics_are_two_metrics_in_ncu():
    assert ncu_name("counts.global_atomic.requests") == "l1tex__t_requests_pipe_lsu_mem_global_op_{atom,red}.sum"
    assert ncu_name("counts.shared_atomic.bank_conflicts") == "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum"


@pytest.mark.parametrize(
    ("name", "cc", "wanted"),
    [
        ("counts.global_load.wavefronts", 8.9, "l1tex__data_pipe_lsu_wavefronts_mem_lg_cmd_read.sum"),
        ("counts.global_load.wavefronts", 9.0, "l1tex__data_pipe_lsu_wavefronts_mem_lgds_cmd_read.sum"),
        ("counts.global_load.bank_conflicts", 10.0, ""),
        ("counts.shared_load.bank_conflicts", 10.0, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"),
        ("traffic.dram_write_bytes", 10.0, "dram__bytes_write.sum"),
        ("traffic.dram_write_bytes", 12.0, "dram__bytes_op_write.sum"),
    ],
)
def test_names_follow_the_chip(name, cc, wanted):
    assert ncu_name(name, cc) == wanted


def test_a_wrong_name_offers_the_nearest():
    with pytest.raises(UnknownName, match=r"counts\.global_load\.sectors"):
        counter("counts.global_load.sector")
