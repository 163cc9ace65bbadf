"""The Report: what it says, in every form, and the laws its numbers keep."""

import json
import re
import sys
from dataclasses import FrozenInstanceError, fields, replace
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace

import pytest
from reports_by_hand import A100, WARPS, N, a_report, a_run, access, flops, pipes, traffic

from solcourse import report as reports
from solcourse.diagnosis import doubtful_figures, filled_warps, float32_sol_time_s, nsight_throughputs
from solcourse.errors import SolcourseError, UnknownName
from solcourse.hardware import devices
from solcourse.hot_lines import dram_bytes_of_line, weights
from solcourse.report import Report
from solcourse.report_text import WIDTH, bar, line_table
from solcourse.simt.records import AccessCounts, Counts, LineCounts
from solcourse.work import Work

DESIGNED = (
    "kernel, device, origin, time_s, interval_s, launch_s, sol_time_s, sol_score, attainable_score, baseline_s, anchored_score, bound, "
    "bounds, occupancy, registers, registers_source, work, counts, traffic, lines, sampled_blocks"
)


class Visible(HTMLParser):
    """The text of a page, and its tags, checked for balance."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def page_of(report: Report) -> str:
    return report._repr_mimebundle_()["text/html"]


# ---------------------------------------------------------------------------------------------------------- the record
def test_the_fields_are_those_of_the_public_interface():
    assert set(DESIGNED.split(", ")) <= {field.name for field in fields(Report)}


def test_a_report_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        a_report().time_s = 1.0


def test_equal_reports_are_equal_whatever_arrays_they_came_from():
    assert a_report() == a_report()
    assert a_report() != a_report(time_s=23e-6)


def test_repr_is_one_line():
    assert repr(a_report()) == "<Report: copy_strided on A100-SXM4-80GB, predicted 22.0 µs, SOL score 0.19>"


def test_a_report_is_json_in_base_units():
    report = a_report(baseline_s=40e-6, anchored_score=0.66)
    said = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert said["device"] == A100
    assert said["time_s"] == 22e-6
    assert said["bounds"]["dram"] == 18.5e-6
    assert said["counts"]["global_load"]["sectors"] == 32 * WARPS
    assert said["lines"][0] == {"file": "lesson.py", "line": 14, "text": "dst[i] = src[i * 8]"} | {
        key: said["lines"][0][key] for key in ("share", "counts")
    }
    assert said["explanation"]["waste"] == pytest.approx(8 * N / (36 * N))
    assert said["advice"][0]["kind"] == "scattered"
    assert {field.name for field in fields(Report)} - {"run", "prediction"} <= set(said)


def test_infinity_becomes_null_in_json():
    said = json.dumps(a_report(anchored_score=float("inf"), baseline_s=1.0).to_dict(), allow_nan=False)
    assert json.loads(said)["anchored_score"] is None


def test_a_line_is_found_by_its_number_and_a_wrong_number_names_the_lines():
    assert a_report().line(14).counts.global_load.sectors_per_request == 32.0
    with pytest.raises(SolcourseError, match=r"Line 13 .*\[12, 14\]"):
        a_report().line(13)


# ------------------------------------------------------------------------------------------------------------ as text
def test_text_says_everything_that_the_issue_asks_for():
    text = str(a_report(baseline_s=40e-6, anchored_score=0.67))
    for said in (
        "copy_strided on A100-SXM4-80GB: predicted, cold cache",
        "4,096 blocks of 256 threads",
        "predicted time        22.0 µs (17.6 µs to 27.5 µs)",
        "bounds, predicted",
        "predicted SOL score   0.19 of an attainable 0.85",
        "T_SOL 4.11 µs = 8.39 MB at 2.04 TB/s",  # 2 x 4 MiB at 2,039 GB/s
        "0.67 against a baseline of 40.0 µs",
        "DRAM bandwidth (dram)",
        "R = waste x rate x idle: 0.19 = 0.22 x 0.94 x 0.90",
        "theoretical 64 of 64 warps per SM (100.0 %), 8 blocks, limited by warps; 4.74 waves",
        "16 per thread (estimated)",
        "source lines, hottest first",
    ):
        assert said in text, said
    assert re.search(r"global_load\.sectors_per_request +32 +l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld\.ratio", text)
    assert re.search(r"global_load\.sectors +1,048,576 +l1tex__t_sectors_pipe_lsu_mem_global_op_ld\.sum", text)


def test_exact_and_estimated_counts_are_told_apart():
    exact, estimated = re.split("estimated, and what Nsight Compute calls it", str(a_report()))
    assert "counted exactly" in exact
    assert "global_store.sectors" in exact
    assert "warp_instructions" not in exact
    for name in ("warp_instructions", "l1_hit_rate", "dram_read_bytes"):
        assert name in estimated


def test_names_beside_the_counts_follow_the_device():
    assert "dram__bytes_read.sum" in str(a_report())
    assert "dram__bytes_op_read.sum" in str(a_report(on="GeForce RTX 5090"))


def test_counts_that_are_zero_are_not_listed():
    text = str(a_report())
    assert "shared_load" not in text
    assert "flops" not in text


def test_hottest_line_comes_first_with_its_text():
    rows = re.findall(r"^ +(1[24]) +(\d+) %.*  (\S.*)$", str(a_report()), re.MULTILINE)
    assert [(line, text) for line, _, text in rows] == [("14", "dst[i] = src[i * 8]"), ("12", "i = cuda.grid(1)")]
    assert int(rows[0][1]) > 90


def test_empty_columns_of_the_line_table_are_left_out():
    head, rows = line_table(a_report())
    assert head == ("line", "share", "requests", "sectors", "per load", "per store", "FLOPs")
    assert rows[0][0][2:] == ("65,536", "1,179,648", "32.0", "4.0", "")  # 2 x 32,768 requests; 32,768 x (32 + 4) sectors


def test_text_fits_the_width_except_source_lines_and_metric_names():
    for line in str(a_report(sampled_blocks=64, work_given=False)).splitlines():
        assert len(line) <= WIDTH or "__" in line or line.startswith("  predicted SOL"), line


def test_origin_is_said_everywhere_and_never_both():
    report = a_report(origin="measured", launch_s=0.0)
    assert "measured" in str(report)
    assert "predicted" not in str(report)
    assert "cold cache" not in str(report)
    assert "bounds, traffic and occupancy are the model's" in str(report)


def test_a_sampled_report_says_from_how_many_blocks_it_speaks():
    assert "64 of 4,096 blocks ran; counts are scaled to the grid, outputs are incomplete" in str(a_report(sampled_blocks=64))
    assert "sampled" not in str(a_report())


def test_a_ledger_that_nobody_gave_is_named_as_the_engines():
    assert "T_SOL is from what the engine saw" in " ".join(str(a_report(work_given=False)).split())
    assert "what the engine saw" not in str(a_report())


def test_flagged_figures_are_counted_once_and_only_those_that_are_used():
    for gpu in devices():
        report = a_report(on=gpu.name)
        figures = doubtful_figures(report)
        assert set(figures) <= gpu.flagged
        assert ("lat_dram" in figures) == ("lat_dram" in gpu.flagged)
        assert not {"lat_fp64", "lat_smem", "l2_slices", "sfu_lanes_sm"} & set(figures)  # the copy uses none of them
        text = " ".join(str(report).split())
        assert text.count("not from a data sheet") == bool(figures)
        assert (f"{len(figures)} of the model's figures" in text) == bool(figures)
    everything = Counts(pipes=pipes(fp64=1), shared_load=access(0), global_load=access(4))
    assert {"lat_fp64", "lat_smem"} <= set(doubtful_figures(a_report(counts=everything)))


def test_a_score_above_one_is_an_alarm_with_a_diagnosis():
    # T_SOL 4.11 µs; 3 µs is faster than light: R = 1.37, and 8 MB fit in 40 MiB of L2
    report = a_report(time_s=3e-6)
    assert report.alarm.sol_score == pytest.approx(1.371, abs=1e-3)
    for form in (str(report), Visible(page_of(report)).text):
        assert "1.37" in form
        assert "cache-resident" in form
    assert a_report().alarm is None
    assert "ALARM" not in str(a_report())


def test_a_baseline_at_the_speed_of_light_has_no_anchored_score():
    assert "none: the baseline is at T_SOL" in str(a_report(baseline_s=4e-6, anchored_score=None))


def test_a_measurement_without_work_has_no_score_and_says_what_to_give():
    report = reports.measured("k", A100, 22e-6, (21e-6, 23e-6))
    assert report.sol_score is None
    assert report.alarm is None
    for form in (str(report), Visible(page_of(report)).text):
        assert "give work= for a score" in form
        assert "unknown" in form
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["sol_time_s"] is None


def test_bar_is_as_long_as_its_fraction():
    assert (bar(0.0, 8), bar(0.5, 8), bar(1.0, 8), bar(2.0, 8)) == ("", "████", "████████", "████████")
    assert bar(1e-9, 8) == "▏"


# ------------------------------------------------------------------------------------------------------------ as HTML
def test_html_is_balanced_and_holds_what_the_text_holds():
    seen = Visible(page_of(a_report()))
    for said in (
        "copy_strided",
        "predicted",
        "0.19",
        "attainable 0.85",
        "22.0 µs",
        "dst[i] = src[i * 8]",
        "l1tex__t_sectors",
        "estimated",
        "exact",
    ):
        assert said in seen.text, said
    assert seen.tags.count("svg") == 2
    assert "script" not in seen.tags
    assert "style" not in seen.tags


def test_html_escapes_what_comes_from_the_kernel():
    evil = "if a < b & c: x['<script>alert(1)</script>'] = \"q\""
    run = a_run(8)
    lines = (LineCounts("<f>.py", 14, evil, run.lines[1].counts),)
    page = page_of(a_report(run=replace(run, lines=lines), lines=lines, kernel="<b>kernel</b>", registers_source="a < b"))
    seen = Visible(page)
    assert evil in seen.text
    assert "<b>kernel</b>" in seen.text
    assert "script" not in seen.tags
    assert "b" not in seen.tags


def test_html_sets_no_colour_that_one_theme_would_hide():
    page = page_of(a_report())
    assert not re.search(r'(?<![-\w])(?:color|background)\s*:\s*(?!inherit|transparent|#0072B2)[^;"]+', page)
    assert "currentColor" in page


def test_without_pictures_the_numbers_are_still_there():
    """An untrusted notebook drops SVG."""
    page = re.sub(r"<svg.*?</svg>", "", page_of(a_report()), flags=re.DOTALL)
    text = Visible(page).text
    for said in ("0.19", "0.85", "22.0 µs", "4.11 µs", "DRAM bandwidth binds"):
        assert said in text


def test_html_stays_small():
    assert len(page_of(a_report()).encode()) < 40_000


# ----------------------------------------------------------------------------------------------------------- hot lines
def test_shares_are_fractions_and_sum_to_all_but_the_start():
    shares = [hot.share for hot in a_report().hot_lines]
    assert all(0 <= share <= 1 for share in shares)
    assert sum(shares) == pytest.approx(1 - weights(a_report().bounds)["launch"])
    assert sum(weights(a_report().bounds).values()) == pytest.approx(1)


def test_weights_take_the_largest_of_each_group():
    # core: issue and pipe_fma; fma hides issue. (2^3, 1^3) / 9; L2 and atomics are one group as well
    assert weights({"issue": 0.5, "pipe_fma": 2.0, "dram": 1.0}) == pytest.approx({"pipe_fma": 8 / 9, "dram": 1 / 9})
    assert weights({"l2": 1.0, "atomic": 2.0}) == {"atomic": 1.0}
    assert weights({}) == {}
    assert weights({"dram": 0.0}) == {}


def test_start_up_is_added_to_the_time_and_belongs_to_no_line():
    # 1 µs of start, then a body of 3 µs
    assert weights({"launch": 1e-6, "dram": 3e-6}) == pytest.approx({"launch": 0.25, "dram": 0.75})
    assert weights({"launch": 1e-6}) == {"launch": 1.0}


@pytest.mark.parametrize("bound", ["dram", "l1", "latency", "l2"])
def test_weight_is_the_part_of_the_time_that_falls_with_the_bound(bound):
    """d ln T / d ln C by a small difference, T = start + (sum C^3)^(1/3)."""
    bounds = {"launch": 1e-6, "dram": 5e-6, "l1": 4e-6, "latency": 2e-6, "l2": 3e-6, "pipe_alu": 3e-6, "issue": 1e-6}

    def time(values):
        return values["launch"] + sum(values[name] ** 3 for name in ("dram", "l1", "latency", "l2")) ** (1 / 3)

    change = time(bounds | {bound: bounds[bound] * 1.0001}) / time(bounds) - 1
    assert weights(bounds)[bound] == pytest.approx(change / 0.0001, rel=1e-3)


def test_latency_that_nothing_hides_has_all_of_the_body():
    assert weights({"latency": 5e-6, "dram": 1e-6}, waiting=0.5) == {"latency": 1.0}
    assert weights({"latency": 5e-6, "dram": 4e-6}, waiting=1.0) == pytest.approx({"latency": 125 / 189, "dram": 64 / 189})


def test_share_does_not_depend_on_the_order_of_lines():
    run = a_run(8)
    turned = replace(run, lines=run.lines[::-1])
    assert a_report(run=turned, lines=turned.lines).hot_lines == a_report().hot_lines


def test_a_line_that_moves_all_bytes_answers_for_all_of_a_dram_bound_kernel():
    report = a_report(bounds={"dram": 1e-5})
    assert [(hot.line, hot.share) for hot in report.hot_lines] == [(14, 1.0), (12, 0.0)]


def test_a_line_that_computes_answers_for_an_issue_bound_kernel():
    # line 12: 4 of 8 warp instructions
    report = a_report(bounds={"issue": 1e-5}, bound="issue")
    assert [(hot.line, hot.share) for hot in report.hot_lines] == [(12, 0.5), (14, 0.5)]


def test_cache_hits_take_the_bytes_off_a_line():
    missed = a_report(traffic=traffic(l1_hit_by_site=(0.75, 0.0)))
    # load: 32 sectors x 0.25, store: 4; x 32,768 requests x 32 B
    assert dram_bytes_of_line(missed, "lesson.py", 14) == pytest.approx((32 * 0.25 + 4) * WARPS * 32)
    assert dram_bytes_of_line(a_report(), "lesson.py", 14) == pytest.approx(36 * WARPS * 32)


# -------------------------------------------------------------------------------------------------------------- advice
def changed(**counts) -> dict:
    """Line 14 with other counts, as run, lines and counts of a report."""
    run = a_run(1)
    line = replace(run.lines[1], counts=replace(run.lines[1].counts, **counts))
    whole = replace(run.counts, **counts)
    sites = (whole.global_load, whole.global_store)
    run = replace(run, lines=(run.lines[0], line), counts=whole, site_counts=sites)
    return {"run": run, "lines": run.lines, "counts": whole}


COALESCED = {"time_s": 6e-6, "traffic": traffic(4 * N, 4 * N), **changed()}
FIRES = {
    "alarm": {"time_s": 3e-6},
    "float64": dict(COALESCED, **changed(flops=flops(fp64=2 * N))),
    "scattered": {},
    "bank_conflicts": dict(COALESCED, **changed(shared_load=AccessCounts(WARPS, 0, 32 * WARPS, 31 * WARPS, 128 * WARPS))),
    "small_blocks": dict(COALESCED, block=(3, 1, 1), grid=(256, 1, 1)),
    "few_blocks": dict(COALESCED, grid=(4, 1, 1)),
    "tail": dict(COALESCED, grid=(108 * 8 + 1, 1, 1)),
    "divergence": dict(COALESCED, **changed(divergent_branches=5, thread_instructions=8 * WARPS * 10)),
    "occupancy": dict(
        COALESCED, bound="latency", occupancy=replace(a_report().occupancy, warps_per_sm=16, fraction=0.25, limiter="shared_memory")
    ),
    "spills": dict(COALESCED, spill_bytes=64),
    "local_memory": dict(COALESCED, **changed(local_load=access(4), local_store=access(4))),
    "atomics": dict(COALESCED, bound="atomic", run=replace(COALESCED["run"], same_address_atomics=1000)),
    "index_arithmetic": dict(COALESCED, bound="issue", **changed(flops=flops(fp32=N), int_ops=20 * N)),
    "refetched": dict(COALESCED, traffic=traffic(12 * N, 4 * N)),
    "at_the_ceiling": dict(COALESCED, time_s=4.9e-6),
    "reuse": dict(COALESCED, time_s=60e-6, bound="lsu", **changed(global_load=access(4, 16 * WARPS))),
    "shared_loads": dict(COALESCED, bound="lsu", **changed(shared_load=access(0, 8 * WARPS), flops=flops(fp32=64 * 4 * WARPS))),
    "bound": dict(COALESCED, time_s=30e-6, bound="lsu"),
    "too_small": dict(COALESCED, bounds={"launch": 5e-6, "dram": 3e-6}),
}


@pytest.mark.parametrize("kind", FIRES)
def test_each_rule_fires_where_it_should(kind):
    said = {advice.kind: advice for advice in a_report(**FIRES[kind]).advice}
    assert kind in said
    assert said[kind].text in " ".join(str(a_report(**FIRES[kind])).replace("  - ", " ").split()) or kind == "alarm"


@pytest.mark.parametrize("kind", FIRES)
def test_no_rule_fires_on_a_kernel_that_does_the_thing_well(kind):
    assert kind not in {advice.kind for advice in a_report(**COALESCED).advice}


def test_every_rule_has_a_case_here():
    from solcourse.advice import RULES

    assert len(RULES) < len(FIRES)


def test_advice_names_the_line_and_the_numbers():
    (scattered,) = [advice for advice in a_report().advice if advice.kind == "scattered"]
    assert scattered.line == 14
    assert scattered.text.startswith("Line 14: each load of src pulls 32.0 sectors where 4 would do")
    (conflicts,) = [advice for advice in a_report(**FIRES["bank_conflicts"]).advice if advice.kind == "bank_conflicts"]
    assert "32.0 wavefronts per shared-memory request where 1 would do" in conflicts.text


def test_float64_advice_says_how_much_slower_this_gpu_is():
    fires = {key: value for key, value in FIRES["float64"].items() if key != "time_s"}
    # T4: 8.14 / 0.254 TFLOP/s = 32; A100: 19.49 / 9.75 = 2
    fires["bounds"] = {"pipe_fp64": 9e-4}
    assert "32.0x slower" in a_report(on="Tesla T4", time_s=1e-3, **fires).advice[0].text
    assert "2.00x slower" in a_report(time_s=1e-3, **fires).advice[0].text


def test_float64_arrays_are_no_mistake():
    run = FIRES["float64"]["run"]
    sites = tuple(replace(site, size=8) for site in run.program.sites)
    report = a_report(**FIRES["float64"] | {"run": replace(run, program=replace(run.program, sites=sites))})
    assert "float64" not in {advice.kind for advice in report.advice}


def test_one_lane_that_stores_is_not_scattered():
    """A block's single result: 1 sector, 4 bytes. No layout does better."""
    one = AccessCounts(4096, 4096, 4096, 0, 4 * 4096)
    assert "scattered" not in {a.kind for a in a_report(**COALESCED | changed(global_load=access(4, 100), global_store=one)).advice}


def scattered(**changes) -> str:
    return next((advice.text for advice in a_report(**changes).advice if advice.kind == "scattered"), "")


def test_scattered_advice_says_when_the_caches_absorb_it_and_when_they_are_what_binds():
    # DRAM moves no more than it must in all three; what differs is the bound
    little = traffic(4 * N, 4 * N)
    assert "The caches absorb it here" in scattered(traffic=little)
    assert "every sector passes through L2, and that binds (8.00 µs)" in scattered(traffic=little, bound="l2")
    assert "every sector passes through L1, and that binds (3.00 µs)" in scattered(traffic=little, bound="l1")
    assert "passes" not in scattered()
    assert "caches" not in scattered()


def test_scattered_advice_without_an_engine_run_speaks_of_the_line():
    assert scattered(run=None, lines=a_run(8).lines, kernel="k") == scattered().replace(" of src", "")


def test_misaligned_by_one_element_is_not_worth_a_word():
    report = a_report(**COALESCED | changed(global_load=access(5)))  # 5 sectors instead of 4
    assert "scattered" not in {advice.kind for advice in report.advice}


# ----------------------------------------------------------------------------------------------- from a run to a report
@pytest.fixture
def model(monkeypatch):
    """Stand-ins for registers, traffic and the model that keep what they were called with."""
    seen: dict = {}

    def registers_on(gpu, program, run, threads_per_block, override=None):
        seen["registers"] = (gpu.cc, override)
        return SimpleNamespace(count=override or 20, spill_bytes=0, source="given" if override else "estimated")

    def traffic_of(run, device, occupancy, cache="cold"):
        seen["traffic"] = (device.name, occupancy.blocks_per_sm, cache)
        return traffic(4 * N, 4 * N)

    def predict(run, moved, device, occupancy, *, estimated_registers=False):
        seen["predict"] = (device.name, moved.dram_read_bytes)
        time_s = 1e6 / device.dram_bytes_per_s * 20
        return SimpleNamespace(
            time_s=time_s, interval_s=(time_s / 1.25, time_s * 1.25), launch_s=0.0, bounds={"dram": time_s}, bound="dram", waves=4.7
        )

    def attainable_time_s(work, device):
        return work.compulsory_bytes / (0.8 * device.dram_bytes_per_s)

    for name, members in (
        ("registers", {"registers_on": registers_on}),
        ("traffic", {"traffic": traffic_of}),
        ("model", {"predict": predict, "attainable_time_s": attainable_time_s}),
    ):
        module = ModuleType(f"solcourse.{name}")
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return seen


def test_a_run_goes_through_registers_occupancy_traffic_and_model(model):
    report = reports.predicted(a_run(1), A100)
    assert model["registers"] == ("8.0", None)
    assert model["traffic"] == (A100, 8, "cold")  # 2,048 threads / 256
    assert model["predict"] == (A100, 4 * N)
    assert report.origin == "predicted"
    assert report.attainable_score == pytest.approx(0.8)
    assert report.sol_score == pytest.approx(report.sol_time_s / report.time_s)


def test_without_work_t_sol_is_what_the_engine_saw(model):
    report = reports.predicted(a_run(8), A100)
    assert not report.work_given
    assert report.work.compulsory_bytes == 8 * N
    assert report.sol_time_s == pytest.approx(8 * N / 2.039e12)
    given = reports.predicted(a_run(8), A100, work=Work.read("x", 16 * N))
    assert given.work_given
    assert given.sol_time_s == pytest.approx(2 * report.sol_time_s)


def test_explanation_multiplies_to_the_score(model):
    report = reports.predicted(a_run(8), A100)
    assert report.explanation.sol_score == pytest.approx(report.sol_score)


def test_the_same_run_on_another_device_has_the_same_counts_and_another_time(model):
    report = reports.predicted(a_run(8), A100, work=Work.read("x", 4 * N), registers=32, baseline_s=1e-3, cache="warm")
    other = report.on("Tesla T4")
    assert (other.counts, other.lines, other.work) == (report.counts, report.lines, report.work)
    assert other.device.name == "Tesla T4"
    assert other.time_s > report.time_s
    assert model["registers"] == ("7.5", 32)
    assert model["traffic"][2] == "warm"
    assert other.baseline_s is None  # a time on an A100 says nothing about a T4
    assert replace(report, baseline_s=None, anchored_score=None) == other.on(A100)


def test_a_baseline_gives_the_anchored_score(model):
    report = reports.predicted(a_run(8), A100)
    # S = 0.5 at the baseline
    assert reports.predicted(a_run(8), A100, baseline_s=report.time_s).anchored_score == pytest.approx(0.5)


def test_a_measured_report_with_a_run_keeps_the_counts_and_its_own_time(model):
    report = reports.measured("k", A100, 30e-6, (29e-6, 31e-6), run=a_run(8), work=Work.read("x", 8 * N))
    assert report.origin == "measured"
    assert (report.time_s, report.interval_s) == (30e-6, (29e-6, 31e-6))
    assert report.counts.global_load.sectors == 32 * WARPS
    assert report.sol_score == pytest.approx(8 * N / 2.039e12 / 30e-6)
    assert report.explanation.sol_score == pytest.approx(report.sol_score)


def test_a_kernel_that_needs_nothing_scores_zero_not_an_error(model):
    run = replace(a_run(1), compulsory_read_bytes=0, compulsory_write_bytes=0, counts=Counts(pipes=pipes(alu=5)), lines=())
    report = reports.predicted(run, A100)
    assert (report.sol_time_s, report.sol_score) == (0.0, 0.0)
    assert "nothing has to be moved or computed" in str(report)
    assert Visible(page_of(report)).text


def test_an_unknown_device_is_refused_with_the_nearest_name(model):
    with pytest.raises(UnknownName, match="H100-SXM5-80GB"):
        reports.predicted(a_run(1), "H100-SMX5-80GB")


def test_a_report_without_a_run_cannot_move_to_another_device():
    with pytest.raises(SolcourseError, match="profile the kernel"):
        reports.measured("k", A100, 1e-3, (1e-3, 1e-3)).on("Tesla T4")


# --------------------------------------------------------------------------------------------------- with the real model
@pytest.fixture(scope="module")
def coalesced() -> Report:
    return reports.predicted(a_run(1), A100)


@pytest.fixture(scope="module")
def strided() -> Report:
    return reports.predicted(a_run(8), A100)


def test_the_winner_is_the_longest_bound_and_no_bound_exceeds_the_time(coalesced, strided):
    for report in (coalesced, strided):
        assert report.bound == max(report.bounds, key=lambda name: report.bounds[name])
        assert max(report.bounds.values()) <= report.time_s
        assert report.interval_s[0] < report.time_s < report.interval_s[1]


def test_a_stride_costs_time_but_not_work(coalesced, strided):
    assert strided.sol_time_s == coalesced.sol_time_s
    assert strided.time_s > 1.5 * coalesced.time_s
    assert strided.explanation.waste < 0.5 < coalesced.explanation.waste


def test_no_prediction_is_faster_than_light(coalesced, strided):
    for report in (coalesced, strided):
        for gpu in devices():
            there = report.on(gpu)
            assert 0 < there.sol_score <= 1, gpu.name
            assert there.attainable_score <= 1
            assert there.alarm is None


def test_on_is_deterministic_and_returns_to_itself(strided):
    assert strided.on("Tesla T4").on(A100) == strided
    assert str(strided.on(A100)) == str(strided)


def test_every_form_of_a_real_prediction_can_be_made_on_every_device(coalesced):
    for gpu in devices():
        there = coalesced.on(gpu)
        assert gpu.name in str(there)
        assert gpu.name in Visible(page_of(there)).text
        assert json.dumps(there.to_dict(), allow_nan=False)


def test_what_a_warp_waits_for_is_told(strided):
    assert re.search(r"one warp +alone [\d,]+ cycles: \d+ % waiting for global or local memory \(long_scoreboard\)", str(strided))


def test_given_registers_are_used_and_named():
    report = reports.predicted(a_run(1), A100, registers=128)
    # 128 x 32 = 4,096 registers a warp: 16 warps of 64 fit
    assert (report.registers, report.registers_source, report.occupancy.fraction) == (128, "given", 0.25)
    assert report.on(A100).registers == 128


# ------------------------------------------------------------------------------------------- what the numbers mean together
def test_nsights_sol_is_the_busiest_unit_of_each_family_whatever_was_useful():
    # the fma pipe alone needs 996 of 1,150 µs; L1 661; DRAM moves 12.6 MB: 12.6e6 / 2.039e12 = 6.2 µs
    bounds = {"pipe_fma": 996e-6, "issue": 789e-6, "l1": 661e-6, "dram": 6.5e-6}
    report = a_report(time_s=1150e-6, bounds=bounds, bound="pipe_fma", traffic=traffic(8_400_000, 4_200_000))
    compute, memory = nsight_throughputs(report)
    assert compute == ("Compute (SM)", pytest.approx(996 / 1150), "pipe_fma")
    assert memory == ("Memory", pytest.approx(661 / 1150), "l1")
    for form in (str(report), Visible(page_of(report)).text):
        assert "about 87 % Compute (SM) (fma pipe) and 57 % Memory (L1 and shared data) here" in " ".join(form.split())


def test_nsights_memory_throughput_of_a_streaming_kernel_is_its_dram_bytes_per_second():
    # 8 MiB / 5 µs / 2.039 TB/s = 0.82
    family, busy, name = nsight_throughputs(a_report(time_s=5e-6, traffic=traffic(4 * N, 4 * N), bounds={"dram": 4.5e-6}))[0]
    assert (family, busy, name) == ("Memory", pytest.approx(8 * N / 5e-6 / 2.039e12), "dram")


def test_where_atomics_bind_or_nothing_was_predicted_nsights_sol_is_not_guessed():
    assert nsight_throughputs(a_report(bound="atomic")) == nsight_throughputs(a_report(bounds={})) == ()
    assert "Nsight Compute's" not in str(a_report(bound="atomic"))


def accidental(**changes) -> Report:
    """float64 on arrays of float32, its pipe binding: 2^30 FLOPs. RTX 3090: fp64 556 GFLOP/s, fp32 35.6 TFLOP/s."""
    doubles = changed(flops=flops(fp64=2**30))
    work = Work.read("x", 4 * N) + Work.write("y", 4 * N) + Work.flop("fp64", 2**30)
    known = {"on": "GeForce RTX 3090", "time_s": 1.95e-3, "bounds": {"pipe_fp64": 1.94e-3}, "bound": "pipe_fp64", "work": work}
    return a_report(**COALESCED | doubles | known | {"work_given": False, "attainable_score": 0.99} | changes)


def test_a_score_against_float64_by_accident_is_no_ceiling_and_says_so():
    report = accidental()
    assert report.sol_score > 0.95 * report.attainable_score
    light = 2**30 / report.device.fp32_flops_per_s  # 30.2 µs, against 8.96 µs for the bytes
    assert float32_sol_time_s(report) == pytest.approx(light)
    assert "at_the_ceiling" not in {advice.kind for advice in report.advice}
    for form in (str(report), Visible(page_of(report)).text):
        assert "score is against float64's limit; in float32 T_SOL would be 30.2 µs" in " ".join(form.split())
    assert report.to_dict()["float32_sol_time_s"] == pytest.approx(light)


def test_a_ledger_of_float64_that_the_caller_gave_is_no_accident():
    assert float32_sol_time_s(accidental(work_given=True)) is None
    assert float32_sol_time_s(a_report()) is None
    assert "WARNING" not in str(a_report())


def test_float64_where_dram_binds_costs_nothing_and_the_ceiling_stands():
    run = changed(flops=flops(fp64=2 * N))
    report = a_report(**COALESCED | run | {"time_s": 4.9e-6, "work_given": False, "bounds": {"dram": 4.4e-6, "pipe_fp64": 0.2e-6}})
    said = {advice.kind: advice.text for advice in report.advice}
    assert "It costs nothing here (DRAM bandwidth binds)" in said["float64"]
    assert "slower" not in said["float64"]
    assert "at_the_ceiling" in said


def test_a_grid_too_small_to_fill_the_occupancy_says_what_it_fills():
    # 432 blocks on 108 SMs: 4 of the 8 blocks of 8 warps that fit, 32 of 64 warps
    report = a_report(grid=(432, 1, 1), waves=0.5)
    assert filled_warps(report) == 32
    for form in (str(report), Visible(page_of(report)).text):
        assert "this grid fills at most 32 of 64 (50.0 %)" in " ".join(form.split())
    assert filled_warps(a_report(grid=(864, 1, 1))) is None
    assert "this grid" not in str(a_report())


def test_a_small_grid_whose_latency_binds_is_told_to_bring_more_blocks():
    report = a_report(**COALESCED | {"grid": (324, 1, 1), "bound": "latency"})  # 3 blocks of 8 warps per SM
    (said,) = [advice.text for advice in report.advice if advice.kind == "occupancy"]
    assert "24 of 64 warps (the grid has no more blocks)" in said


def test_occupancy_limited_by_estimated_registers_is_itself_estimated():
    held = replace(a_report().occupancy, limiter="registers")
    assert "limited by registers (estimated)" in str(a_report(occupancy=held))
    assert "limited by registers;" in str(a_report(occupancy=held, registers_source="table"))
    assert "(estimated);" not in str(a_report())


def test_more_than_all_bytes_used_is_explained_as_a_broadcast():
    # 16 lanes share a float: 2 sectors, 128 bytes of lanes
    report = a_report(**COALESCED | changed(global_load=access(2)))
    assert re.search(r"sector_efficiency +200\.0 %.*\n +above 100 %: lanes share bytes \(a broadcast\)", str(report))
    assert "lanes share bytes (a broadcast)" in Visible(page_of(report)).text
    assert "above 100 %" not in str(a_report())


def test_flops_say_in_the_text_how_ncus_counts_add():
    report = a_report(**COALESCED | changed(flops=flops(fp32=2 * N)))
    assert re.search(r"flops\.fp32 +2,097,152   fadd \+ fmul \+ 2 x ffma: smsp__", str(report))


def test_the_way_from_the_longest_bound_to_the_time_is_told():
    text = " ".join(str(a_report()).split())
    assert "The time, 22.0 µs, is longer than the longest of them: resources overlap only in part, and the start of 1.60 µs" in text
    assert "is longer than" not in str(a_report(time_s=18.6e-6))
    assert "is longer than" not in str(a_report(origin="measured"))
    half = " ".join(str(a_report(prediction=SimpleNamespace(dram_eta=0.87, stalls={}))).split())
    assert "DRAM counts at 87 % of its data sheet" in half


def test_of_two_bounds_that_tie_the_winner_is_first():
    bounds = {"l1": 525.3e-6, "lsu": 525e-6, "issue": 248e-6}
    report = a_report(time_s=674e-6, bounds=bounds, bound="lsu")
    rows = re.findall(r"^  (\S.*?) +[\d.]+ µs  █[^ ]* *(wins|ties|)$", str(report), re.MULTILINE)
    assert rows == [("load/store unit", "wins"), ("L1 and shared data", "ties"), ("instruction issue", "")]


def test_pipes_are_explained_where_they_are_shown():
    assert "cbu: branches" in str(a_report(bounds={"pipe_cbu": 9e-6, "dram": 1e-5}))
    assert "cbu" not in str(a_report())


def test_attainable_is_explained():
    assert "DRAM below its data sheet's rate costs time" in str(a_report())
    assert "moving its bytes costs time too" in str(a_report(work=Work.flop("fp32", 1e9)))
    assert "attainable (|)" not in str(a_report(attainable_score=None))


def test_html_folds_what_a_first_look_does_not_need():
    page = page_of(a_report())
    first_look = Visible(re.sub(r"<details.*?</details>", "", page, flags=re.DOTALL)).text
    for said in ("predicted", "0.19", "attainable 0.85", "18.5 µs wins", "dst[i] = src[i * 8]", "Line 14: each load"):
        assert said in first_look, said
    # 3 µs, 1.6 µs, 0.43 µs, 0.4 µs of 18.5 µs are below 20 %
    for said in ("waste", "load/store unit", "not from a data sheet", "Registers", "l1tex__"):
        assert said not in first_look, said
        assert said in Visible(page).text, said
    assert "What the bounds mean, and 4 more" in page
    assert "outputs are incomplete" in re.sub(r"<details.*?</details>", "", page_of(a_report(sampled_blocks=64)), flags=re.DOTALL)


def test_gaps_without_advice_name_the_bound_and_the_line():
    (said,) = a_report(**FIRES["bound"]).advice
    assert said.text.startswith("Bound by load/store unit (430 ns of 30.0 µs, ")
    assert "in line 14" in said.text
    assert a_report(**FIRES["bound"] | {"time_s": 6e-6}).advice == ()  # 0.69 of 0.85: no gap worth a word


def test_integer_advice_compares_the_pipe_with_what_the_flops_need():
    case = dict(COALESCED, bound="pipe_fma", bounds={"pipe_fma": 10e-6}, **changed(flops=flops(fp32=2 * N), int_ops=5 * N))
    (said,) = [advice.text for advice in a_report(**case).advice if advice.kind == "index_arithmetic"]
    # 2^21 FLOPs / 19.49 TFLOP/s = 108 ns
    assert "the fma pipe is busy for 10.0 µs, though the FLOPs alone need 108 ns: 2.5 integer operations for each FLOP" in said
    needed = case | {"bounds": {"pipe_fma": 0.2e-6}}
    assert "index_arithmetic" not in {advice.kind for advice in a_report(**needed).advice}


def test_reuse_advice_says_how_often_a_byte_is_asked_for():
    # 16 x 32,768 requests x 128 B of 4 MiB: each byte 16 times
    (said,) = [advice for advice in a_report(**FIRES["reuse"]).advice if advice.kind == "reuse"]
    assert "ask for each byte 16 times on average (src in line 14)" in said.text
    assert said.line == 14


def test_atomics_advice_says_that_warps_merge_first():
    assert "after each warp has merged its own" in " ".join(a.text for a in a_report(**FIRES["atomics"]).advice)


def test_lines_tell_kinds_of_memory_apart():
    counts = Counts(global_load=access(4, 10), global_atomic=access(1, 5), shared_load=access(0, 7, wavefronts=2))
    line = LineCounts("lesson.py", 14, "both", counts)
    head, ((cells, _),) = line_table(a_report(run=None, lines=(line,), kernel="k"))
    said = dict(zip(head, cells, strict=True))
    # 15 requests of global memory, 10 x 4 + 5 x 1 sectors; 7 of shared memory in 2 passes each
    assert (said["requests"], said["sectors"], said["per load"], said["per atomic"]) == ("15", "45", "4.0", "1.0")
    assert (said["shared"], said["waves/req"]) == ("7", "2.0")
    assert "per store" not in said


def test_the_ledger_names_the_direction_apart_from_the_tensor():
    text = Visible(page_of(a_report(work=reports.work_of(a_run(1)), work_given=False))).text
    assert "read: distinct bytes" in text
    assert "write: distinct bytes" in text


# ---------------------------------------------------------------------------------------------------------------- files
def test_a_saved_page_stands_alone_in_both_themes(tmp_path):
    saved = a_report(kernel="<k>").save(tmp_path / "r.html").read_text(encoding="utf-8")
    assert saved.startswith("<!DOCTYPE html>")
    assert "prefers-color-scheme: dark" in saved
    assert "<title>&lt;k&gt; on A100-SXM4-80GB, predicted</title>" in saved
    assert page_of(a_report(kernel="<k>")) in saved
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<script|<link", saved)


def test_a_report_is_saved_as_text_and_as_numbers(tmp_path):
    assert a_report().save(str(tmp_path / "r.txt")).read_text(encoding="utf-8") == f"{a_report()}\n"
    assert json.loads(a_report().save(tmp_path / "r.json").read_text(encoding="utf-8")) == a_report().to_dict()


def test_another_ending_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(SolcourseError, match=r"\.html, \.txt, \.json, not as 'r\.pdf'"):
        a_report().save(tmp_path / "r.pdf")
    assert not list(tmp_path.iterdir())


def test_the_cause_comes_before_the_tail():
    case = FIRES["reuse"] | {"grid": (108 * 8 + 1, 1, 1)}
    kinds = [advice.kind for advice in a_report(**case).advice]
    assert kinds.index("reuse") < kinds.index("tail")
