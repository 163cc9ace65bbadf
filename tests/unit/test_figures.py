"""The SVG figures: well-formed, small, readable by eye and ear, and true to the numbers they draw."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports_by_hand import A100, N, a_report, a_run, traffic

from solcourse import access_maps, bank_maps, figures, svg, units
from solcourse.errors import UnknownName, WorkError
from solcourse.hardware import devices
from solcourse.work import Work

SVG = "{http://www.w3.org/2000/svg}"
MATMUL = Work.read("A", 4 * 4096**2) + Work.read("B", 4 * 4096**2) + Work.write("C", 4 * 4096**2) + Work.flop("fp32", 2 * 4096**3)
MEASURED = a_report(origin="measured", kernel="copy<&>")
MATMULS = [
    a_report(time_s=t, work=MATMUL, traffic=traffic(b, 4 * 4096**2), kernel=f"step_{n}")
    for n, (t, b) in enumerate([(0.11, 40e9), (0.011, 1e9)])
]
ROW = [4 * lane for lane in range(32)]

PICTURES = {
    "gauge": lambda: figures.gauge(a_report()),
    "gauge measured": lambda: figures.gauge(MEASURED),
    "gauge alarm": lambda: figures.gauge(a_report(time_s=3e-6)),
    "gauge without work": lambda: figures.gauge(a_report(sol_time_s=None, sol_score=None, attainable_score=None, work=Work.read("x", 1))),
    "bounds": lambda: figures.bounds(a_report()),
    "bounds measured": lambda: figures.bounds(MEASURED),
    "roofline empty": lambda: figures.roofline(A100),
    "roofline bytes": lambda: figures.roofline(A100, [a_report(), a_report(time_s=5e-6, traffic=traffic(4 * N, 4 * N))]),
    "roofline flops": lambda: figures.roofline(A100, MATMULS),
    "roofline long": lambda: figures.roofline(A100, [a_report(time_s=t * 1e-6) for t in range(5, 17)]),
    "sectors row": lambda: figures.sector_map(ROW, 4),
    "sectors strided": lambda: figures.sector_map([64 * lane for lane in range(32)], 4, fetch_bytes=64),
    "sectors of structs": lambda: figures.sector_map([12 * lane for lane in range(32)], 4),
    "sectors random": lambda: figures.sector_map([4 * int(i) for i in np.random.default_rng(1).integers(0, 10**6, 32)], 4),
    "sectors half": lambda: figures.sector_map(ROW[:16], 4),
    "sectors none": lambda: figures.sector_map([None] * 32, 4),
    "sectors traced": lambda: figures.sectors(a_run(8), fetch_bytes=64),
    "banks column": lambda: figures.bank_map([128 * lane for lane in range(32)], 4),
    "banks padded": lambda: figures.bank_map([132 * lane for lane in range(32)], 4),
    "banks wide": lambda: figures.bank_map([16 * lane for lane in range(32)], 16),
    "banks off": lambda: figures.bank_map([None, 4, None, *[128 * lane for lane in range(20)]], 4),
    "banks none": lambda: figures.bank_map([], 4),
    "banks not used": lambda: bank_maps.bank_counts(a_run(8)),
}


def label_of(picture: str) -> str:
    return ET.fromstring(picture).attrib["aria-label"]


def rects(picture: str, fill: str) -> list[dict[str, str]]:
    return [dict(e.attrib) for e in ET.fromstring(picture).iter(SVG + "rect") if e.attrib["fill"] == fill]


def words(picture: str) -> list[str]:
    return [e.text or "" for e in ET.fromstring(picture).iter(SVG + "text")]


# ----------------------------------------------------------------------------------------------------- every picture
@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_well_formed_small_and_says_its_numbers(name):
    picture = PICTURES[name]()
    root = ET.fromstring(picture)
    assert root.tag == SVG + "svg"
    assert root.attrib["role"] == "img"
    assert len(root.attrib["aria-label"]) > 20
    assert len(picture.encode()) <= 6144
    assert "nan" not in picture.replace("lane ", "")
    assert "script" not in picture


@pytest.mark.parametrize("name", PICTURES)
def test_text_is_the_pages_colour_or_that_of_the_shape_it_stands_on(name):
    """A fixed colour for words would vanish in one of the two themes."""
    picture = PICTURES[name]()
    root = ET.fromstring(picture)
    assert root.attrib["fill"] == "currentColor"
    allowed = {None, "#fff", "#000"} if "roofline" in name or "banks" in name else {None}
    assert {e.attrib.get("fill") for e in root.iter(SVG + "text")} <= allowed
    colours = set(re.findall(r'(?:fill|stroke)="([^"]*)"', picture))
    assert colours <= {"currentColor", "none", "#fff", "#000", svg.BLUE, svg.ORANGE, svg.GREEN}


@pytest.mark.parametrize("name", PICTURES)
def test_everything_is_drawn_inside_the_frame(name):
    root = ET.fromstring(PICTURES[name]())
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for e in root.iter():
        if e.tag == SVG + "rect":
            assert float(e.attrib["x"]) + float(e.attrib["width"]) <= width + 0.5
            assert float(e.attrib["y"]) + float(e.attrib["height"]) <= height + 0.5
        if e.tag == SVG + "text" and "transform" not in e.attrib:
            size = float(e.attrib.get("font-size", 12))
            x, long = float(e.attrib["x"]), 0.45 * size * len(e.text or "")  # 0.45 em a letter: less than any font's mean
            anchor = e.attrib.get("text-anchor")
            left = x - {"end": long, "middle": long / 2}.get(anchor, 0)
            assert left >= -1, e.text
            assert left + long <= width + 1, e.text
            assert 0 < float(e.attrib["y"]) <= height, e.text


def test_words_from_a_kernel_are_escaped():
    picture = figures.roofline(A100, [MEASURED])
    assert "copy&lt;&amp;&gt;" in picture
    assert "copy<&>" in label_of(picture)


# ---------------------------------------------------------------------------------------------------------- the gauge
def test_gauge_bar_is_as_long_as_the_score():
    for time_s in (6e-6, 22e-6, 100e-6):
        report = a_report(time_s=time_s)
        (bar,) = rects(figures.gauge(report), svg.BLUE)
        assert float(bar["width"]) == pytest.approx(416 * report.sol_score, abs=0.1)


def test_gauge_says_origin_device_score_attainable_time_and_winner():
    # T_SOL = 8,388,608 B / 2.039 TB/s = 4.11 µs; R = 4.11 / 22.0 = 0.19
    label = label_of(figures.gauge(a_report()))
    for said in ("0.19", "predicted", A100, "attainable 0.85", "22.0 µs", "17.6 µs to 27.5 µs", "T_SOL 4.11 µs", "DRAM bandwidth"):
        assert said in label
    assert "measured" in label_of(figures.gauge(MEASURED))


def test_gauge_does_not_clip_an_impossible_score():
    # 4.114 µs / 3 µs = 1.37
    picture = figures.gauge(a_report(time_s=3e-6))
    assert "1.37" in words(picture)
    assert "SOL score, predicted: impossible" in words(picture)
    assert A100 in words(picture)
    assert rects(picture, svg.ORANGE)
    assert not rects(picture, svg.BLUE)


# ---------------------------------------------------------------------------------------------------------- the bounds
def test_bounds_bars_are_proportional_and_only_the_winner_is_orange():
    report = a_report()
    picture = figures.bounds(report)
    (winner,) = rects(picture, svg.ORANGE)
    others = [float(bar["width"]) for bar in rects(picture, svg.BLUE)]
    scale = 200 / report.time_s  # the whole time is the longest thing drawn
    assert float(winner["width"]) == pytest.approx(18.5e-6 * scale, abs=0.1)
    assert others == pytest.approx([t * scale for t in (9e-6, 8e-6, 6.1e-6, 3e-6, 1.6e-6, 0.43e-6, 0.4e-6)], abs=0.1)
    assert "18.5 µs wins" in words(picture)


def test_bounds_below_one_percent_are_left_out_but_never_the_winner():
    bounds = {"dram": 1e-3, "l1": 0.9e-5, "latency": 0.5e-3}
    assert dict(figures.shown_bounds(a_report(bounds=bounds))) == {"dram": 1e-3, "latency": 0.5e-3}
    assert "l1" in dict(figures.shown_bounds(a_report(bounds=bounds, bound="l1")))


def test_bounds_have_plain_words():
    assert figures.bound_words("dram") == "DRAM bandwidth"
    assert figures.bound_words("pipe_fma") == "fma pipe"


# -------------------------------------------------------------------------------------------------------- the roofline
@pytest.mark.parametrize("report", [a_report(), a_report(time_s=5e-6, traffic=traffic(4 * N, 4 * N))])
def test_on_the_roofline_right_is_waste_and_up_is_rate_times_idle(report):
    ((x, y),), ((light_x, light_y),) = figures.roofline_points([report])
    assert x / light_x == pytest.approx(report.explanation.waste)
    assert y / (report.device.dram_bytes_per_s * x) == pytest.approx(report.explanation.rate * report.explanation.idle)
    assert y / light_y == pytest.approx(report.sol_score)
    assert (light_x, light_y) == pytest.approx((1.0, report.device.dram_bytes_per_s))


def test_compute_bound_attempts_are_below_the_flat_roof_by_their_score():
    points, lights = figures.roofline_points(MATMULS)
    for (_, y), (_, light_y), report in zip(points, lights, MATMULS, strict=True):
        assert light_y == pytest.approx(report.device.fp32_flops_per_s)
        assert y / light_y == pytest.approx(report.sol_score)


def test_roofline_says_every_attempt_and_the_last_is_orange():
    picture = figures.roofline(A100, MATMULS)
    assert "1: step_0" in label_of(picture)
    assert f"2: step_1 {units.score(MATMULS[1].sol_score)}" in label_of(picture)
    circles = [e.attrib["fill"] for e in ET.fromstring(picture).iter(SVG + "circle")]
    assert circles == [svg.BLUE, svg.ORANGE]


def test_roofline_of_float64_work_has_the_float64_roof():
    work = Work.read("x", 1e6) + Work.flop("fp64", 1e12) + Work.flop("fp32", 1e11)
    assert "fp64 9.75 TFLOP/s" in label_of(figures.roofline(A100, [a_report(work=work, time_s=1.0)]))


def test_an_attempt_without_work_has_no_place_on_the_roofline():
    unknown = replace(a_report(), sol_time_s=None, sol_score=None, attainable_score=None)
    assert figures.roofline(A100, [unknown]) == figures.roofline(A100)


def test_roofline_of_an_unknown_device_offers_the_nearest():
    with pytest.raises(UnknownName, match="A100"):
        figures.roofline("A100-SXM4")


# ------------------------------------------------------------------------------------------------------ sectors, banks
@pytest.mark.parametrize(
    ("addresses", "size", "sectors"),
    [
        (ROW, 4, 4),  # 32 x 4 B = 128 B = 4 x 32 B
        ([a + 4 for a in ROW], 4, 5),  # bytes 4..131 straddle one more
        ([2 * a for a in ROW], 4, 8),  # 256 B touched
        ([8 * a for a in ROW], 4, 32),  # one sector each
        ([16 * a for a in ROW], 4, 32),  # never more than one each
        ([2 * a for a in ROW], 8, 8),  # float64: 32 x 8 B = 256 B
        ([3 * a for a in ROW], 4, 12),  # structs of three floats: 384 B
        ([0] * 32, 4, 1),  # broadcast
        ([], 4, 0),
    ],
)
def test_sectors_of_known_patterns(addresses, size, sectors):
    assert len(access_maps.sector_masks(addresses, size)) == sectors
    noun = "no lane is active" if not sectors else f"{sectors} sector{'s' if sectors > 1 else ''}:"
    assert noun in label_of(figures.sector_map(addresses, size))


@given(st.lists(st.integers(0, 4000), min_size=1, max_size=32), st.sampled_from([1, 2, 4, 8, 16]), st.randoms())
def test_permuting_lanes_changes_no_sector_and_sectors_hold_all_bytes(indices, size, random):
    addresses = [i * size for i in indices]
    shuffled = random.sample(addresses, len(addresses))
    masks = access_maps.sector_masks(addresses, size)
    assert masks == access_maps.sector_masks(shuffled, size)
    useful = size * len(set(addresses))
    assert sum(mask.bit_count() for mask in masks.values()) == useful
    assert len(masks) * 32 >= useful


@pytest.mark.parametrize(
    ("addresses", "size", "wavefronts"),
    [
        (ROW, 4, 1),
        ([128 * lane for lane in range(32)], 4, 32),  # a column of [32][32]: every lane in bank 0
        ([132 * lane for lane in range(32)], 4, 1),  # a column of [32][33]: bank = lane
        ([8 * lane for lane in range(32)], 4, 2),  # stride 2: banks 0, 2 ... twice
        ([8 * lane for lane in range(32)], 8, 2),  # float64: two half-warps
        ([16 * lane for lane in range(32)], 16, 4),  # 16 bytes: four quarter-warps
        ([0] * 32, 4, 1),  # one word for all: a broadcast
        (list(range(32)), 1, 1),  # 32 bytes in 8 words
        ([], 4, 0),
    ],
)  # fmt: skip
def test_wavefronts_of_known_patterns(addresses, size, wavefronts):
    assert access_maps.wavefronts(addresses, size) == wavefronts
    assert f"{wavefronts} wavefront{'' if wavefronts == 1 else 's'}," in label_of(figures.bank_map(addresses, size))


@given(st.lists(st.integers(0, 500), min_size=1, max_size=32), st.sampled_from([4, 8, 16]))
def test_wavefronts_are_never_below_the_necessary_nor_above_the_lanes(indices, size):
    addresses = [i * size for i in indices]
    needed = access_maps.necessary_wavefronts(addresses, size)
    assert 1 <= needed <= max(1, size // 4)
    assert needed <= access_maps.wavefronts(addresses, size) <= max(len(addresses), needed)


def test_bank_map_colours_what_a_better_layout_saves():
    assert svg.ORANGE in figures.bank_map([128 * lane for lane in range(32)], 4)
    assert svg.ORANGE not in figures.bank_map([132 * lane for lane in range(32)], 4)
    assert "31 bank conflicts (1 would do)" in label_of(figures.bank_map([128 * lane for lane in range(32)], 4))


def test_the_bank_map_names_the_word_of_every_lane_and_the_pass_of_those_that_wait():
    seen = words(figures.bank_map([4 * 34 * lane for lane in range(32)], 4))  # lanes 16 and up meet lanes 0 and up: 34 * 16 = 17 * 32
    assert {f"{34 * lane}" for lane in range(16)} | {f"{34 * lane}, pass 2" for lane in range(16, 32)} <= set(seen)
    assert "pass" not in " ".join(words(figures.bank_map(ROW, 4))).replace("first pass", "")
    assert "16 words in bank 0" in label_of(figures.bank_map([256 * lane for lane in range(32)], 8))  # of one half-warp


def test_lanes_that_are_off_are_said_to_be_off():
    assert words(PICTURES["banks off"]()).count("off") == 32 - 21


@pytest.mark.parametrize(
    ("addresses", "size", "passes"),
    [
        ([128 * lane for lane in range(32)], 4, list(range(1, 33))),  # one bank, 32 words
        ([132 * lane for lane in range(32)], 4, [1] * 32),
        ([0] * 32, 4, [1] * 32),  # one word for all
        ([0, 128, 0, 128], 4, [1, 2, 1, 2]),  # two words, each for two lanes
        ([8 * lane for lane in range(32)], 8, [1] * 16 + [2] * 16),  # half-warps, one after the other
        ([256 * lane for lane in range(32)], 8, [*range(1, 17), *range(17, 33)]),
    ],
)
def test_the_pass_that_serves_a_lane(addresses, size, passes):
    served = access_maps.lane_passes(access_maps.bank_passes(addresses, size))
    assert [served[lane][0] for lane in range(len(addresses))] == passes


@given(st.lists(st.integers(0, 300), min_size=1, max_size=32), st.sampled_from([1, 2, 4, 8, 16]))
def test_the_last_pass_is_the_number_of_wavefronts_and_someone_waits_where_there_are_conflicts(indices, size):
    addresses = [i * size for i in indices]
    served = access_maps.lane_passes(access_maps.bank_passes(addresses, size))
    took = access_maps.wavefronts(addresses, size)
    assert set(served) == set(range(len(indices)))
    assert max(number for number, _ in served.values()) == took
    assert any(waits for _, waits in served.values()) == (took > access_maps.necessary_wavefronts(addresses, size))


def test_dram_that_opens_64_bytes_is_mentioned_only_where_it_costs():
    # stride 8: 32 sectors side by side are 16 pieces of 64 B, nothing more; stride 16: every second sector, 32 x 64 = 2,048 B
    assert "DRAM" not in label_of(figures.sector_map([32 * lane for lane in range(32)], 4, fetch_bytes=64))
    assert "DRAM, 64 at a time: 2,048" in label_of(figures.sector_map([64 * lane for lane in range(32)], 4, fetch_bytes=64))


@pytest.mark.parametrize("stride", [1, 2, 8, 16])
def test_a_traced_request_shows_the_sectors_of_its_pattern(stride):
    wanted = access_maps.sector_masks([4 * stride * lane for lane in range(32)], 4)
    (masks,) = access_maps.traced_requests(a_run(stride).trace, 0)
    assert masks == wanted
    label = label_of(figures.sectors(a_run(stride)))
    assert label.startswith("One warp's load of src, line 14, 4 bytes per lane")
    assert f"{len(wanted)} sectors: {32 * len(wanted):,} bytes fetched, 128 used" in label


def test_a_store_writes_and_fetches_nothing():
    masks = access_maps.sector_masks([64 * lane for lane in range(32)], 4)  # 32 sectors, 4 bytes in each
    markup = access_maps._sector_figure(masks, "a store", None, 64, stored=True)
    assert "32 sectors: 128 of their 1,024 bytes written (12.5 %)" in label_of(markup)
    assert "fetched" not in markup
    assert "DRAM" not in markup


def test_sectors_of_a_line_without_global_memory_say_so():
    assert "nothing is fetched" in label_of(figures.sectors(a_run(8), line=12))


def test_more_than_a_warp_is_refused():
    with pytest.raises(WorkError, match="at most 32 lanes"):
        figures.sector_map(range(33), 4)
    with pytest.raises(WorkError, match="1 to 16 bytes"):
        figures.bank_map([0], 32)


@pytest.mark.parametrize("gpu", [gpu.name for gpu in devices()])
def test_gauge_bounds_and_roofline_show_origin_device_and_the_bound_that_wins(gpu):
    report = a_report(on=gpu, time_s=90e-6)
    for picture in (figures.gauge(report), figures.bounds(report), figures.roofline(gpu, [report])):
        seen = " ".join(words(picture))
        assert gpu in seen
        assert "predicted" in seen
        assert "DRAM bandwidth" in seen


# --------------------------------------------------------------------------------------------------------- small print
def test_bounds_can_leave_out_the_short_ones():
    assert [name for name, _ in figures.shown_bounds(a_report(), 0.2)] == ["dram", "latency", "l2", "fill"]  # 3.7 µs and more
    assert "kernel start" not in words(figures.bounds(a_report(), 0.2))


def test_a_tie_is_marked_and_the_winner_is_drawn_first():
    picture = figures.bounds(a_report(bounds={"l1": 18.6e-6, "dram": 18.5e-6, "l2": 8e-6}))
    names = [w for w in words(picture) if w in figures.BOUND_WORDS.values()]
    assert names == ["DRAM bandwidth", "L1 and shared data", "L2 bandwidth"]
    assert {"18.5 µs wins", "18.6 µs ties", "8.00 µs"} <= set(words(picture))


def test_attempts_of_one_kernel_are_named_once_and_told_apart_by_their_intensity():
    def attempt(degree):
        work = Work.read("x", 4 * N) + Work.write("y", 4 * N) + Work.flop("fp32", 2 * degree * N)
        return a_report(kernel="polynomial", work=work, traffic=traffic(4 * N, 4 * N))

    seen = " ".join(words(figures.roofline(A100, [attempt(8), attempt(32), attempt(256)])))
    assert seen.count("polynomial") == 1
    for said in ("1: ", "2 FLOP/B", "8.00 FLOP/B", "64.0 FLOP/B"):  # 2 x 8 / 8 bytes
        assert said.replace("2 FLOP", "2.00 FLOP") in seen
    assert "…" not in seen


def test_attempts_of_different_kernels_keep_their_names():
    seen = " ".join(words(figures.roofline(A100, MATMULS)))
    assert "1: step_0" in seen
    assert "2: step_1" in seen


def test_a_long_path_gives_up_its_first_steps_not_its_last():
    seen = " ".join(words(figures.roofline(A100, [a_report(time_s=t * 1e-6, kernel=f"a_long_kernel_{t}") for t in range(5, 17)])))
    assert "…" in seen
    assert "a_long_kernel_16" in seen
    assert "a_long_kernel_5" not in seen


def test_the_gauge_says_that_the_limit_is_float64s():
    run = a_run(1)
    run = replace(run, counts=replace(run.counts, flops={"fp16": 0, "fp32": 0, "fp64": 2**30}))
    work = Work.read("x", 8 * N) + Work.flop("fp64", 2**30)
    report = a_report(run=run, counts=run.counts, work=work, work_given=False, time_s=2e-3, on="GeForce RTX 3090")
    assert "in float64" in label_of(figures.gauge(report))
    assert "in float64" not in label_of(figures.gauge(a_report()))


def test_the_gauge_drops_its_last_tick_where_the_ceiling_is_named_there():
    assert "1" not in words(figures.gauge(a_report(attainable_score=0.999, time_s=4.12e-6)))
    assert "1" in words(figures.gauge(a_report()))
