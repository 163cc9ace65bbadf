"""The panel of lesson 07 and its pictures: what is counted, what is said, and that the gap opens and closes where it should."""

from __future__ import annotations

import re

import pytest

from solcourse import panels, show
from solcourse.errors import UnknownName
from solcourse.ledger_figures import MOST_SEGMENTS, MOST_TENSORS, bytes_of, launches, ledger, light_s, saved, tensors
from solcourse.panels import fusion, parts
from solcourse.roofline import sol_time_s
from solcourse.work import Work, fuse

N = 1000
SCALE = Work.read("x", 4 * N) + Work.write("t", 4 * N)
ADD = Work.read("t", 4 * N) + Work.read("b", 4 * N) + Work.write("y", 4 * N)


def label(svg: str) -> str:
    return re.search(r'aria-label="([^"]*)"', svg)[1]


@pytest.fixture(scope="module")
def panel():
    return panels.panel("fusion")


def with_(panel, **settings):
    return {**panel.settings, **settings}


def shares(panel, **settings) -> tuple[float, float]:
    """(bytes, time) saved, from what the picture says."""
    chosen = with_(panel, **settings)
    said = label(panel.pictures(chosen, panel.profile(chosen))["launches"])
    numbers = re.search(r"(-?[\d.]+) % of the bytes saved, (-?[\d.]+) % of the time", said)
    same = fusion.both(chosen["operation"], **settings_of(chosen))
    assert (float(numbers[1]), float(numbers[2])) == pytest.approx((100 * same.bytes_saved, 100 * same.time_saved), abs=0.06)
    return float(numbers[1]), float(numbers[2])


def settings_of(chosen) -> dict[str, int]:
    return {name: chosen[name] for name in fusion.OPENING}


# ---- the ledger
def test_a_ledger_says_every_tensor_the_sums_and_what_is_saved():
    said = label(ledger({"apart": [SCALE, ADD], "fused": fuse(SCALE, ADD)}))
    assert "apart: x 4.00 kB r, t 8.00 kB r+w, b 4.00 kB r, y 4.00 kB w; 20.0 kB in all" in said
    assert "fused: x 4.00 kB r, t none, b 4.00 kB r, y 4.00 kB w; 12.0 kB in all" in said
    assert "Saved: 40.0 % of the bytes, 40.0 % of T_SOL. apart: limited by DRAM." in said


def test_launches_have_a_speed_of_light_each():
    """The sum of maxima: a product bound by its FLOPs and a sum bound by its bytes. One ledger would hide the bytes behind the FLOPs."""
    product = Work.read("A", 8e6) + Work.flop("fp32", 1e12)
    assert light_s([product, ADD]) == pytest.approx(sol_time_s(product, "A100-SXM4-80GB") + sol_time_s(ADD, "A100-SXM4-80GB"))
    assert light_s([product, ADD]) > light_s(product + ADD)
    assert bytes_of([product, ADD]) == bytes_of(product + ADD)


def test_many_tensors_share_a_row_and_lose_no_byte():
    names = [f"t{i}" for i in range(MOST_TENSORS + 5)]
    works = [Work.read(a, 8) + Work.write(b, 8) for a, b in zip(names, names[1:], strict=False)]
    rows = tensors({"apart": works})
    assert len(rows) == MOST_TENSORS
    assert list(rows)[-2:] == ["6 others", names[-1]]
    assert sum(map(sum, (row["apart"] for row in rows.values()))) == bytes_of(works)
    assert len(tensors({"apart": works[: MOST_TENSORS - 1]})) == MOST_TENSORS
    assert "others" not in label(ledger({"apart": works[: MOST_TENSORS - 1]}))


def test_one_ledger_alone_saves_nothing_and_an_empty_one_is_nothing_to_divide_by():
    assert "Saved" not in label(ledger({"alone": SCALE}))
    assert saved(0.0, 0.0) == 0.0
    assert saved(4.0, 5.0) == -0.25


def test_show_gives_lessons_the_same_picture():
    shown = show.bytes(apart=[SCALE, ADD], fused=fuse(SCALE, ADD), device="H100-SXM5-80GB")
    assert "Ledger of bytes on H100-SXM5-80GB. apart: x 4.00 kB r" in str(shown)
    assert "40.0 % of the bytes" in shown.markup


# ---- the launches
def test_a_picture_of_many_launches_stays_small(panel):
    apart = [panel.profile(panel.settings)] * (MOST_SEGMENTS + 1)
    svg = launches(apart, apart[0], [SCALE] * len(apart), SCALE)
    assert svg.count("<rect") == 2 + 2 + 2 + 2  # start-ups, bodies; of the fused one; the shares; the legend
    assert f"{len(apart)} launches apart take" in label(svg)


def test_what_grows_by_fusing_is_said_and_drawn_as_no_bar(panel):
    one = panel.profile(panel.settings)
    svg = launches([one], one, SCALE, SCALE + ADD)
    assert "-150.0 % of the bytes saved, 0.0 % of the time" in label(svg)
    assert "1 launch apart takes" in label(svg)
    assert 'width="-' not in svg


# ---- the panel
def test_the_panel_opens_with_both_ways_and_their_numbers(panel):
    report = panel.profile(panel.settings)
    pictures = panel.pictures(panel.settings, report)
    assert set(pictures) == {"ledger", "launches"}
    for svg in pictures.values():
        assert 'role="img" aria-label="' in svg
    words = panel.words(panel.settings, report)
    assert "Apart: 4 launches" in words
    assert "75.0 % of the bytes" in words
    assert panel.line(panel.settings).endswith("# 4 launches, or 1")
    assert report.work.compulsory_bytes == 8 * 2**26
    assert panel.label(panel.settings) == "chain of 4"
    assert panel.label(with_(panel, operation="matmul_all", depth=64)) == "K 64, all"


@pytest.mark.parametrize("operation", fusion.PLANS)
def test_every_operation_runs_both_ways_and_its_ledgers_agree(panel, operation):
    """What goes in and comes out is the same; fused, nothing between is left, and no FLOP is lost."""
    settings = with_(panel, operation=operation, rows=256, columns=256, depth=64, size=2**14)
    plan = fusion.PLANS[operation][1](settings, None)
    apart = sum(plan.works)
    between = {t.name for t in apart.terms if t.direction == "read"} & {t.name for t in apart.terms if t.direction == "write"}
    assert between
    assert not between & {t.name for t in plan.fused.work.terms}
    kept = {(t.name, t.direction, t.bytes) for t in apart.terms if t.name not in between}
    assert kept == {(t.name, t.direction, t.bytes) for t in plan.fused.work.terms}
    assert apart.flops == plan.fused.work.flops
    assert panel.profile(settings).kernel == plan.fused.kernel.py_func.__name__
    assert f"Apart: {len(plan.apart)} launches" in panel.words(settings, None)


def test_memory_bound_passes_save_in_time_what_they_save_in_bytes(panel):
    for settings in ({"steps": 8}, {"operation": "bias_gelu"}, {"operation": "layernorm"}):
        by_bytes, by_time = shares(panel, **settings)
        assert by_bytes - 6 < by_time <= by_bytes + 1


def test_the_gap_opens_as_the_product_grows_deep(panel):
    """K multiply-adds an element hide the bytes that fusing saves; at K = 8 there is nothing to hide behind."""
    gaps = [by_bytes - by_time for by_bytes, by_time in (shares(panel, operation="matmul_residual", depth=k) for k in (8, 64, 1024))]
    assert gaps[0] < 5 < gaps[1] < 20 < 35 < gaps[2]


def test_small_launches_save_start_up_whatever_the_bytes(panel):
    settings = with_(panel, operation="matmul_residual", rows=1, depth=64)
    by_bytes, by_time = shares(panel, operation="matmul_residual", rows=1, depth=64)
    assert by_time > 3 * by_bytes
    assert "find data of the one before in L2" in panel.words(settings, None)
    assert "in L2" not in panel.words(panel.settings, None)


def test_the_device_changes_times_and_not_runs(panel):
    before = fusion.sampled.cache_info().misses
    a, b = (panel.profile(with_(panel, device=device)) for device in ("Tesla T4", "H100-SXM5-80GB"))
    assert a.time_s > 3 * b.time_s
    assert fusion.sampled.cache_info().misses - before <= 2  # one step, and all steps


def test_the_learners_kernel_takes_the_place_of_the_chain():
    from numba import cuda

    @cuda.jit
    def twice(x, scale, shift, steps, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + x[i] + shift

    mine = panels.panel("fusion", twice)
    assert mine.profile(with_(mine, size=2**14)).kernel == "twice"
    assert mine.profile(with_(mine, size=2**14, operation="bias_gelu")).kernel == "bias_gelu"


def test_both_ways_by_name_and_a_wrong_name_is_told():
    both = fusion.both("bias_gelu", rows=256)
    assert len(both.apart) == 2
    assert both.apart_s == sum(report.time_s for report in both.apart) > both.fused.time_s
    assert both is fusion.both("bias_gelu", rows=256)
    with pytest.raises(UnknownName, match="bias_gelu"):
        fusion.both("bias_glue")
    with pytest.raises(UnknownName, match="rows"):
        fusion.both("bias_gelu", row=256)


def test_tensors_of_a_launch_do_not_overlap():
    arrays = fusion.placed({"x": (3, 5), "y": (7,)})
    arrays["x"][:], arrays["y"][:] = 1, 2
    assert (arrays["x"] == 1).all()
    assert arrays["x"].shape == (3, 5)
    assert parts.MOST_READ > 17 * parts.LARGEST  # 16 steps
