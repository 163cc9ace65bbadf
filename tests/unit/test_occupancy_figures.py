"""The dial of occupancy: its numbers, its limiters, and that what it draws is what it says."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
from reports_by_hand import A100, a_report, a_run

import solcourse as sol
from solcourse import stills, svg
from solcourse.errors import SolcourseError
from solcourse.occupancy import occupancy
from solcourse.occupancy_figures import LIMIT_WORDS, dial


def label_of(picture):
    return html.unescape(re.search(r'aria-label="([^"]*)"', picture)[1])


def orange_marks(picture):
    return len(re.findall(f'<path d="M202 [^"]*" fill="{svg.ORANGE}"', picture))


def widths(picture, fill):
    return [float(width) for width in re.findall(rf'<rect [^>]*width="([\d.]+)" height="14" fill="{fill}"', picture)]


def test_the_dial_says_its_numbers_and_what_limits():
    # 40 x 32 = 1280 registers a warp; 16384 // 1280 = 12 warps x 4 partitions = 48 warps
    picture = dial(occupancy(A100, 256, 40, 0))
    said = label_of(picture)
    assert "75.0 %, 48 of 64 warps on an SM, 6 blocks of 8 warps (sm__maximum_warps_per_active_cycle_pct)" in said
    assert "Limited by registers. " in said
    assert "warps 8, block slots 32, registers 6, shared memory 164" in said
    assert ">6 limits</text>" in picture
    assert orange_marks(picture) == 1


def test_every_limiter_is_marked_by_word_shape_and_colour():
    # 1024 threads: 2 blocks by warps, 2 by registers (32 x 1024 x 2 = 65536), 2 by shared memory (164 // 81)
    picture = dial(occupancy(A100, 1024, 32, 80 * 1024))
    assert "Limited by warps and registers and shared memory." in label_of(picture)
    assert orange_marks(picture) == picture.count(" limits</text>") == len(widths(picture, svg.ORANGE)) == 3


def test_bars_are_as_long_as_the_blocks_and_end_at_the_slots():
    fits = occupancy(A100, 256, 40, 0)  # 32 slots; shared memory would allow 164
    blue, orange = widths(dial(fits), svg.BLUE), widths(dial(fits), svg.ORANGE)
    assert blue[0] / orange[0] == pytest.approx(8 / 6, rel=0.01)
    assert blue[1] == blue[2] == pytest.approx(orange[0] * 32 / 6, rel=0.01)
    assert ">164</text>" in dial(fits)


def test_every_limit_of_every_device_has_words_and_a_metric():
    for device in sol.devices():
        picture = dial(occupancy(device, 64, 24, 4096))
        metrics = [LIMIT_WORDS[name][1] for name in occupancy(device, 64, 24, 4096).limits]
        assert all(f">{metric}</text>" in picture for metric in metrics)
        assert len(metrics) >= 4


def test_the_arc_ends_where_the_fraction_is():
    def end(threads, registers):
        arcs = re.findall(r"A72 72 0 0 1 ([\d.]+) ([\d.]+)", dial(occupancy(A100, threads, registers, 0)))
        return tuple(float(n) for n in arcs[1])

    assert end(256, 32) == (172, 128)  # 100 %: the right end, 100 + 72
    assert end(512, 64) == (100, 56)  # 50 %: 2 blocks of 16 warps, the top, 128 - 72


def test_a_report_shows_its_launch():
    said = str(sol.show.occupancy(a_report()))
    assert "on A100-SXM4-80GB: 100.0 %" in said
    assert "copy_strided: blocks of 256 threads. 16 registers a thread (estimated)" in said
    assert "This grid is small" not in said


def test_a_small_grid_is_named():
    said = str(sol.show.occupancy(a_report(run=a_run(grid=(54, 1, 1)), grid=(54, 1, 1), waves=54 / 864)))
    assert "fills at most 8 of the 64 warps" in said


def test_a_report_without_occupancy_is_refused():
    with pytest.raises(SolcourseError, match="occupancy is unknown"):
        sol.show.occupancy(replace(a_report(), occupancy=None))


def test_a_still_can_draw_it():
    picture = dial(occupancy("H200-SXM", 96, 255, 50_000), note="one\ntwo")
    canvas = stills.Canvas(*stills.size_of(picture))
    canvas.draw(picture)
    assert canvas.drawn > 20
