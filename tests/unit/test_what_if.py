"""One launch on all GPUs, and what its time depends on: true to single predictions, to laws, and to what the pictures say."""

import json
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from handmade_runs import copy_run, load, make_run, op, program, store
from reports_by_hand import a_report

import solcourse as sol
from solcourse import report, scripts, units, what_if, what_if_figures
from solcourse.__main__ import main
from solcourse.errors import SolcourseError, UnknownName
from solcourse.figures import BOUND_WORDS
from solcourse.hardware import device, devices
from solcourse.kernels import case
from solcourse.model import dram_eta
from solcourse.occupancy import occupancy
from solcourse.resources import FINE, RESOURCES, with_dram_eta_of
from solcourse.simt.records import Counts
from solcourse.traffic import traffic

SVG = "{http://www.w3.org/2000/svg}"
A100 = "A100-SXM4-80GB"
RATES = ("dram", "l2_rate", "clock")
COPY = report.predicted(copy_run(4096, traced=512), A100)
# 100 KiB of shared memory in a block: A100 has 163, T4 64, P100 48
LARGE = report.predicted(copy_run(128, dynamic_shared_bytes=100 * 1024), A100)
BY_NAME = {resource.name: resource for resource in RESOURCES}


@pytest.fixture(scope="module")
def everywhere():
    return COPY.on_all()


@pytest.fixture(scope="module")
def swept():
    return COPY.sensitivity()


def label_of(picture):
    return ET.fromstring(picture).attrib["aria-label"]


def words_of(picture):
    return [e.text or "" for e in ET.fromstring(picture).iter(SVG + "text")]


class _Cells(HTMLParser):
    """The texts of a fragment's table cells."""

    def __init__(self):
        super().__init__()
        self.cells, self.inside = [], False

    def handle_starttag(self, tag, attrs):
        self.inside = self.inside or tag in ("td", "th")
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self.inside:
            self.cells[-1] += data


def cells_of(fragment):
    parser = _Cells()
    parser.feed(fragment)
    return parser.cells


# --------------------------------------------------------------------------------------------------------- on every device
def test_each_device_has_the_report_that_it_would_have_alone(everywhere):
    assert {r.device for r in everywhere} == set(devices())
    for name in ("Tesla T4", "H100-SXM5-80GB", A100):
        assert everywhere[name] == COPY.on(name)
    assert all(r.run is COPY.run and r.origin == "predicted" for r in everywhere)


def test_the_fastest_comes_first_whatever_the_order_asked_in():
    names = ["Tesla T4", A100, "B200-SXM-180GB"]
    times = [r.time_s for r in COPY.on_all()]
    assert times == sorted(times)
    some = COPY.on_all([*names, "tesla t4"])
    assert [r.device.name for r in some] == names[::-1]
    assert str(some) == str(COPY.on_all(names[::-1]))


def test_a_device_without_room_is_listed_with_the_reason_and_not_dropped():
    shown = LARGE.on_all()
    missing = {unfit.device.name: unfit.reason for unfit in shown.unfit}
    assert {"Tesla T4", "Tesla P100-SXM2-16GB"} <= missing.keys()
    assert {r.device.name for r in shown} | missing.keys() == {d.name for d in devices()}
    assert missing["Tesla T4"].startswith("102400 bytes of shared memory per block > 65536 (64 KiB)")
    below_the_table = shown._repr_mimebundle_()["text/html"].rpartition("</table>")[2]
    for said in (" ".join(str(shown).split()), below_the_table):  # once for all that have the same room
        assert re.search(r"Cannot run on [^:]*Tesla T4[^:]*: 102400 bytes of shared memory per block (>|&gt;) 65536", said)
        assert said.count("98304 (96 KiB)") == 1
    assert "Cannot run on Tesla T4: 102400 bytes" in label_of(what_if_figures.devices(shown))
    assert any(row["device"] == "Tesla T4" and "65536" in row["reason"] for row in shown.to_dict()["cannot_run"])
    with pytest.raises(SolcourseError, match=r"cannot run on Tesla T4: 102400 bytes"):
        shown["Tesla T4"]


def test_a_device_that_was_not_asked_for_is_refused_by_name(everywhere):
    with pytest.raises(UnknownName, match=r"A100"):
        COPY.on_all([A100])["Tesla T4"]
    with pytest.raises(UnknownName, match=r"T5"):
        COPY.on_all(["Tesla T5"])


def test_one_device_may_stand_alone():
    assert [r.device.name for r in COPY.on_all("Tesla T4")] == ["Tesla T4"] == [r.device.name for r in COPY.on_all(device("Tesla T4"))]
    with pytest.raises(UnknownName, match=r"named 3\."):
        COPY.on_all(3)


def test_nowhere_to_run_is_said():
    nowhere = LARGE.on_all(["Tesla T4"])
    assert len(nowhere) == 0
    assert "It can run on none of them" in str(nowhere)
    ET.fromstring(what_if_figures.devices(nowhere))


def test_without_an_engine_run_both_say_so():
    measured = a_report(run=None, origin="measured")
    with pytest.raises(SolcourseError, match=r"profile the kernel"):
        measured.on_all()
    with pytest.raises(SolcourseError, match=r"profile the kernel"):
        measured.sensitivity()


def test_a_measured_time_is_not_taken_for_a_predicted_one():
    measured = report.measured("copy", A100, 77e-6, (76e-6, 78e-6), run=COPY.run)
    shown = measured.on_all([A100, "Tesla T4"])
    assert shown[A100].time_s == COPY.time_s
    assert "Measured on A100-SXM4-80GB: 77.0 µs (76.0 µs to 78.0 µs)" in str(shown)
    assert measured.sensitivity().report.time_s == COPY.time_s


def test_text_and_page_say_the_same_numbers_with_their_devices(everywhere):
    text, page = str(everywhere), cells_of(everywhere._repr_mimebundle_()["text/html"])
    assert "predicted, cold cache" in text
    for r in everywhere:
        low, high = (units.seconds(t) for t in r.interval_s)
        name = r.device.name + (" *" if r.device.name == A100 else "")
        row = [name, units.seconds(r.time_s), f"{low} to {high}"]
        line = next(line for line in text.splitlines() if line.strip().startswith(name + "  "))
        at = page.index(name)
        assert page[at : at + 3] == row
        assert all(cell in line for cell in row)
        assert units.score(r.sol_score) in line
        assert r.occupancy.limiter.replace("_", " ") in line


# -------------------------------------------------------------------------------------------------------------- its figure
def test_the_figure_holds_every_row_in_order_and_marks_the_reports_device(everywhere):
    picture = what_if_figures.devices(everywhere)
    names = [r.device.name for r in everywhere]
    assert [w for w in words_of(picture) if w in names] == names
    bold = {e.text for e in ET.fromstring(picture).iter(SVG + "text") if e.attrib.get("font-weight") == "bold"}
    assert bold & set(names) == {A100}
    assert all(f"{r.device.name} {units.seconds(r.time_s)}" in label_of(picture) for r in everywhere)
    assert ET.fromstring(picture).find(SVG + "title").text.startswith("handmade: predicted time by GPU")


def test_time_is_logarithmic_and_whiskers_are_the_interval(everywhere):
    root = ET.fromstring(what_if_figures.devices(everywhere))
    marks = [float(m[1]) for e in root.iter(SVG + "path") if (m := re.match(r"translate\((\S+)", e.attrib.get("transform", "")))]
    ends = [
        [float(x) for x in m.groups()] for e in root.iter(SVG + "path") if (m := re.match(r"M(\S+) \S+H([\d.]+)M\S+ \S+v6M", e.attrib["d"]))
    ]
    assert len(ends) == len(everywhere)
    first, last = everywhere.reports[0], everywhere.reports[-1]
    decade = (marks[len(ends) - 1] - marks[0]) / math.log10(last.time_s / first.time_s)
    for r, x, (low, high) in zip(everywhere, marks, ends, strict=False):
        assert x - marks[0] == pytest.approx(decade * math.log10(r.time_s / first.time_s), abs=0.2)
        assert high - low == pytest.approx(decade * math.log10(r.interval_s[1] / r.interval_s[0]), abs=0.3)


def test_every_bound_has_a_shape_and_each_family_its_own():
    shapes = {what_if_figures.family(name).shape for name in BOUND_WORDS} | {what_if_figures.family("pipe_fma").shape}
    assert len(shapes) == len(what_if_figures.FAMILIES) == len({f.color for f in what_if_figures.FAMILIES.values()})
    assert what_if_figures.family("l2") == what_if_figures.family("fill") != what_if_figures.family("dram")
    assert what_if_figures.family("pipe_xu") == what_if_figures.family("issue")


def test_names_are_escaped():
    odd = replace(COPY, kernel="copy<&>")
    for shown in (odd.on_all([A100, "Tesla T4"]), odd.sensitivity()):
        page = shown._repr_mimebundle_()["text/html"]
        assert "copy<&>" not in page
        assert "copy&lt;&amp;&gt;" in page
    ET.fromstring(what_if_figures.devices(odd.on_all([A100])))
    ET.fromstring(what_if_figures.sensitivity(odd.sensitivity()))


# ---------------------------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize("kind", ["on_all", "sensitivity"])
def test_both_are_saved_as_page_text_and_numbers(kind, tmp_path):
    shown = getattr(COPY, kind)()
    page = shown.save(tmp_path / "x.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "prefers-color-scheme: dark" in page
    assert (tmp_path / "x.html").stat().st_size < 100_000
    assert shown.save(tmp_path / "x.txt").read_text(encoding="utf-8") == f"{shown}\n"
    numbers = json.loads(shown.save(tmp_path / "x.json").read_text(encoding="utf-8"))
    assert numbers == json.loads(json.dumps(shown.to_dict(), allow_nan=False))
    assert (numbers["kernel"], numbers["origin"]) == ("handmade", "predicted")
    with pytest.raises(SolcourseError, match=r"\.html, \.txt or \.json, not as 'x\.png'"):
        shown.save(tmp_path / "x.png")


def test_saved_numbers_are_the_records(everywhere, swept):
    rows = everywhere.to_dict()["devices"]
    assert [(row["device"], row["time_s"], row["bound"]) for row in rows] == [(r.device.name, r.time_s, r.bound) for r in everywhere]
    for row, sweep in zip(swept.to_dict()["resources"], swept.sweeps, strict=True):
        assert [point["time_s"] for point in row["points"]] == [point.time_s for point in sweep.points]
        assert row["endless"]["factor"] is None


# -------------------------------------------------------------------------------------------------------------- sweeps
def test_as_it_is_the_time_is_the_reports_own(swept):
    for sweep in swept.sweeps:
        now = sweep.at(1.0)
        assert (now.factor, now.time_s, now.bound) == (1.0, COPY.time_s, COPY.bound)
        assert [point.factor for point in sweep.points] == sorted(point.factor for point in sweep.points)


def test_each_rate_shortens_its_own_bound_in_proportion_and_no_other(swept):
    for factor in FINE:
        faster = swept["dram"].at(factor).bounds
        assert faster["dram"] == pytest.approx(COPY.bounds["dram"] / factor, rel=1e-9)
        assert {k: v for k, v in faster.items() if k != "dram"} == {k: v for k, v in COPY.bounds.items() if k != "dram"}
        wider = swept["l2_rate"].at(factor).bounds
        assert wider["l2"] == pytest.approx(COPY.bounds["l2"] / factor, rel=1e-9)
        assert wider["dram"] == pytest.approx(COPY.bounds["dram"], rel=1e-9)
        quicker = swept["clock"].at(factor).bounds
        for name in ("issue", "lsu", "fill", "l2"):
            assert quicker[name] == pytest.approx(COPY.bounds[name] / factor, rel=1e-9)
        for name in ("dram", "launch"):
            assert quicker[name] == pytest.approx(COPY.bounds[name], rel=1e-9)


def test_a_faster_clock_leaves_dram_its_nanoseconds():
    gpu = device(A100)
    faster, _ = BY_NAME["clock"].change(COPY, 2.0)
    assert faster.clock_hz == 2 * gpu.clock_hz
    assert (faster.lat_dram - faster.lat_l2) / faster.clock_hz == pytest.approx((gpu.lat_dram - gpu.lat_l2) / gpu.clock_hz)
    assert (faster.lat_l2, faster.launch_us_stream, faster.dram_gbs_spec) == (gpu.lat_l2, gpu.launch_us_stream, gpu.dram_gbs_spec)


def test_dram_and_clock_together_make_the_whole_body_shorter():
    # everything but the start is work over a rate that one of the two sets (no load: no latency of DRAM's in nanoseconds), so
    # Euler's theorem: the two elasticities add up to -(time without the start) / time
    stores = program([([op(0), store(0, 0, 0)], ())], ("global_store",))
    lanes = 4 * np.arange(32)
    run = make_run(stores, 5000, 256, lambda b, w: [(0, 1024 * b + 128 * w + lanes)], traced=256, instructions=100)
    for name in (A100, "Tesla T4"):
        base = report.predicted(run, name)
        shown = base.sensitivity()
        together = shown["dram"].elasticity + shown["clock"].elasticity
        assert together == pytest.approx(-(base.time_s - base.bounds["launch"]) / base.time_s, abs=2e-3)
        assert min(shown["dram"].elasticity, shown["clock"].elasticity) > -1


@pytest.mark.parametrize("name", [A100, "Tesla T4", "GeForce RTX 4090", "B200-SXM-180GB"])
@pytest.mark.parametrize("resource", [*RATES, "sms"])
@pytest.mark.parametrize("factor", [0.25, 2.0, 1e6])
def test_what_dram_reaches_is_held_when_something_else_changes(name, resource, factor):
    gpu = device(name)
    changed, _ = BY_NAME[resource].change(replace(COPY, device=gpu, occupancy=occupancy(gpu, 256, 16, 0)), factor)
    held = with_dram_eta_of(gpu, changed)
    for mix in ((1, 0), (1, 1), (0, 1), (3, 1)):
        assert dram_eta(held, *mix) == pytest.approx(dram_eta(gpu, *mix), rel=1e-9)


def test_another_bound_takes_over_where_both_are_equal(swept):
    asked = what_if._Asked(COPY)
    moves = [(sweep, move) for sweep in swept.sweeps if not sweep.resource.replays for move in (sweep.up, sweep.down) if move]
    assert moves
    for sweep, move in moves:
        there = asked.point(sweep.resource, move.factor).bounds
        top = sorted(there.values())
        assert there[move.bound] == pytest.approx(top[-1], rel=0.03)
        assert top[-2] == pytest.approx(top[-1], rel=0.03)
        assert move.bound != COPY.bound


def test_the_nearest_move_is_the_smallest_growth(swept):
    sweep, move = swept.nearest
    assert move.factor == min(s.up.factor for s in swept.sweeps if s.up)
    assert f"The bound moves first with {units.factor(move.factor)} the {sweep.resource.words}" in str(swept)


@pytest.mark.slow
def test_a_smaller_l2_loses_what_a_block_reads_twice():
    # 4096 lines = 512 KiB, read twice by one block: more than its SM's L1, less than an L2 of 1 MiB, more than a quarter of one
    gpu = replace(device(A100), name="small L2", l2_mib=1.0, chip="one partition")
    one = program([([op(0), load(1, 0, 0), op(2, (1,))], ())], ("global_load",))
    lanes = 4 * np.arange(32)

    def twice(_, warp):
        return [(0, 128 * (warp * 128 + i) + lanes) for _ in range(2) for i in range(128)]

    run = make_run(one, 1, 1024, twice, executions=[256], compulsory=(512 * 1024, 0))
    shown = report.predicted(run, gpu).sensitivity()
    quarter, now, four = (shown["l2_size"].at(f).bounds["dram"] for f in (0.25, 1, 4))
    assert quarter == pytest.approx(2 * now, rel=0.05)
    assert four == now
    assert shown["l2_size"].elasticity <= 0


def test_the_caches_see_what_the_sweep_says_they_see():
    run, fits, gpu = COPY.run, COPY.occupancy, device(A100)
    seen = traffic(run, gpu, fits)
    for name in ("dram", "l2_rate"):  # held, because they would see the same
        changed, same = BY_NAME[name].change(COPY, 4.0)
        assert same == fits
        assert replace(traffic(run, changed, fits), device=gpu.name) == seen
    assert {r.name for r in RESOURCES if r.replays} == {"sms", "l2_size", "l1_size", "registers", "shared"}
    _, larger = BY_NAME["l1_size"].change(COPY, 2.0)
    assert larger.l1_bytes == 2 * fits.l1_bytes
    more, _ = BY_NAME["sms"].change(COPY, 2.0)
    assert (more.sms, more.l2_bytes_clk, more.l2_mib) == (216, 2 * gpu.l2_bytes_clk, gpu.l2_mib)
    assert more.fp32_tflops == 2 * gpu.fp32_tflops


def test_registers_and_shared_memory_act_through_resident_blocks():
    # 1024 threads x 64 registers are the whole register file: half of it holds no block, and twice as much holds two
    full = report.predicted(copy_run(128, 1024), A100, registers=64)
    sweep = full.sensitivity()["registers"]
    assert [point.time_s is None for point in sweep.points] == [True, True, False, False, False]
    assert sweep.span == math.inf
    assert "no block fits" in str(full.sensitivity())
    assert "Cross: no block fits with less register file." in words_of(what_if_figures.sensitivity(full.sensitivity()))
    assert BY_NAME["registers"].change(full, 2.0)[1].blocks_per_sm == 2
    # 164 KiB hold one block of 100 + 1 KiB; four times as much holds six
    assert LARGE.occupancy.blocks_per_sm == 1
    assert BY_NAME["shared"].change(LARGE, 4.0)[1].blocks_per_sm == 6
    assert BY_NAME["shared"].change(LARGE, 4.0)[1].limiter == "shared_memory"


@pytest.mark.parametrize("name", ["Tesla T4", A100, "GeForce RTX 4090"])
@pytest.mark.parametrize(
    "kernel", ["copy_gather", "transpose_naive", "transpose_padded", "matmul_tiled", "reduce_shuffle", "histogram_shared", "row_sums"]
)
def test_more_bandwidth_never_slows_a_kernel(kernel, name, rng):
    c = case(kernel)
    shape = c.shapes[0]
    shown = sol.profile(c.configured(*shape), *c.make(rng, *shape), device=name).sensitivity()
    for resource in (*RATES, "l2_size", "l1_size"):
        sweep = shown[resource]
        times = [point.time_s for point in (*sweep.points, sweep.endless)]
        for before, after in zip(times, times[1:], strict=False):
            assert after <= before * (1 + 1e-9), f"{resource}: {times}"
        assert sweep.elasticity <= 1e-9


# ------------------------------------------------------------------------------------------------------ words and the figure
def test_the_table_has_what_matters_and_the_sentences_the_rest(swept):
    text, page = str(swept), swept._repr_mimebundle_()["text/html"]
    cells = cells_of(page)
    for sweep in swept.sweeps:
        if sweep.matters:
            at = cells.index(sweep.resource.words)
            assert cells[at + 1] == sweep.now
            assert units.seconds(sweep.at(0.25).time_s) in cells[at : at + 9]
        else:
            assert sweep.resource.words not in cells
            assert re.search(rf"Without effect [^.]*{sweep.resource.words}", " ".join(text.split()))
    assert f"on {A100}: what its time depends on; predicted" in text
    best = swept.sweeps[0]
    assert best.resource.name == "dram"
    assert f"1 % more DRAM bandwidth takes {units.score(-best.elasticity)} % off the predicted time" in text


def test_a_launch_that_only_starts_says_that_nothing_helps():
    tiny = report.predicted(copy_run(1), A100).sensitivity()
    assert tiny.report.bound == "launch"
    assert "are the kernel's start, which nothing here changes" in " ".join(str(tiny).split())
    idle = report.predicted(make_run(program([([op(0)], ())], ()), 1, 32, lambda b, w: [], counts=Counts()), A100)
    assert "moves the bound, up to four times as much of it: kernel start stays" in " ".join(str(idle.sensitivity()).split())


def test_an_unknown_resource_is_refused_with_those_there_are(swept):
    with pytest.raises(SolcourseError, match=r"no resource 'tensor'.*dram"):
        swept["tensor"]
    assert swept["DRAM bandwidth"] is swept["dram"]


def test_the_figure_has_a_labelled_line_for_each_resource_that_matters(swept):
    picture = what_if_figures.sensitivity(swept)
    root, said = ET.fromstring(picture), label_of(picture)
    drawn = [sweep for sweep in swept.sweeps if sweep.matters]
    lines = [e for e in root.iter(SVG + "path") if e.attrib.get("stroke-width") == "2" and e.attrib.get("stroke-linejoin")]
    assert len(lines) == len(drawn)
    looks = [(e.attrib["stroke"], e.attrib.get("stroke-dasharray")) for e in lines]
    assert len({dash for _, dash in looks}) == len(looks) == len({color for color, _ in looks})
    for sweep in drawn:
        assert sweep.resource.words in words_of(picture)
        assert f"{sweep.resource.words} {units.seconds(sweep.points[0].time_s)} at 0.25" in said
    heights = [float(e.attrib["y"]) for e in root.iter(SVG + "text") if e.text in {sweep.resource.words for sweep in drawn}]
    assert all(b - a >= 13.9 for a, b in zip(sorted(heights), sorted(heights)[1:], strict=False))
    rings = [e for e in root.iter(SVG + "circle") if e.attrib["fill"] == "none"]
    assert len(rings) == sum(move is not None for sweep in drawn for move in (sweep.up, sweep.down))


def test_lines_fall_to_the_right_where_more_is_faster(swept):
    root = ET.fromstring(what_if_figures.sensitivity(swept))
    first = next(e for e in root.iter(SVG + "path") if e.attrib.get("stroke-linejoin"))
    points = [tuple(map(float, pair.split())) for pair in first.attrib["d"][1:].split("L")]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert points[-1][1] > points[0][1]  # y grows downwards


# ------------------------------------------------------------------------------------------------------------- the command
def test_device_all_goes_with_profile_only(capsys):
    assert main(["run", "--device", "all", "program.py"]) == 2
    assert main(["run", "--device", "all", "--sanitize", "program.py"]) == 2
    assert capsys.readouterr().err.count("--device all predicts times for every GPU") == 2


def test_device_all_is_passed_on_to_the_program():
    settings = json.loads(scripts.environment({}, A100, profile=True, on_all=True)[scripts.SETTINGS])
    assert (settings["device"], settings["on_all"]) == (A100, True)


def test_a_profile_on_all_devices_ends_each_kernel_with_all_of_them(rng):
    c = case("copy")
    with sol.use_engine(profile=True) as engine:
        c.configured(4096)(*c.make(rng, 4096))
    plain = str(engine.launches)
    engine.launches.on_all = True
    assert str(engine.launches).startswith(plain)
    shown = str(engine.launches.kernels[0].heaviest.on_all())
    assert str(engine.launches).endswith(shown)
    assert "Predicted time by GPU" in engine.launches._repr_mimebundle_()["text/html"]


def test_the_lessons_picture_is_the_one_of_all_devices(everywhere):
    assert sol.show.what_if(COPY).words == label_of(what_if_figures.devices(everywhere))


def test_the_records_are_public():
    assert isinstance(COPY.on_all([A100]), sol.AllDevices)
    assert isinstance(COPY.sensitivity(), sol.Sensitivity)
