"""The figures' SVG as PNG: shapes where a browser draws them, everything unknown refused by name."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="stills are drawn with matplotlib")

from solcourse import stills, svg

BLACK, WHITE = (0, 0, 0), (255, 255, 255)
BLUE = (0x00, 0x72, 0xB2)


def painted(*children: str, width: float = 40, height: float = 30, **options) -> np.ndarray:
    """(height, width, 3) of a picture at a pixel each."""
    canvas = stills.Canvas(width, height, sharpness=1.0, **options)
    canvas.draw(svg.document(width, height, "a picture", children))
    return np.asarray(canvas.pixels())


def at(pixels: np.ndarray, x: int, y: int) -> tuple[int, ...]:
    return tuple(int(n) for n in pixels[y, x])


def box_of(pixels: np.ndarray) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) of what is not white; the ends are the first white ones."""
    rows, columns = np.nonzero((pixels < 128).any(axis=-1))
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


def test_a_rect_is_where_it_was_put():
    pixels = painted(svg.rect(5, 10, 20, 8, svg.BLUE))
    assert box_of(pixels) == (5, 10, 25, 18)
    assert at(pixels, 15, 14) == BLUE


def test_boxes_are_as_many_rects():
    corners = [(2, 2), (12, 2), (22, 14)]
    assert np.array_equal(painted(svg.path(svg.boxes(corners, 8, 6), svg.BLUE)), painted(*(svg.rect(*c, 8, 6, svg.BLUE) for c in corners)))


@pytest.mark.parametrize(
    "d",
    [
        "M5 5H25V17H5Z",
        "M5 5h20v12h-20z",
        "M5 5L25 5L25 17L5 17z",
        "m5 5l20 0l0 12l-20 0z",
        "M5,5 25,5 25,17 5,17z",  # more places after M are lines
        "m5 5 20 0 0 12-20 0z",
        "M5 5C10 5 20 5 25 5Q25 10 25 17L5 17z",
        "M5 5c5 0 15 0 20 0q0 5 0 12h-20z",
    ],
)
def test_one_box_in_every_spelling(d):
    assert box_of(painted(svg.path(d, svg.INK))) == (5, 5, 25, 17)


@pytest.mark.parametrize(
    ("d", "box"),
    [
        ("M10 15a10 10 0 1 0 20 0a10 10 0 1 0-20 0z", (10, 5, 30, 25)),  # a circle of two halves
        ("M20 5A10 10 0 0 1 30 15L20 15z", (20, 5, 30, 15)),  # clockwise from the top to the right: a quarter
        ("M20 5A10 10 0 1 0 30 15L20 15z", (10, 5, 30, 25)),  # the other way round: the other three
        ("M10 15A10 5 0 0 1 30 15z", (10, 10, 30, 15)),  # the upper half of a flat ellipse
        ("M10 15A1 1 0 0 1 30 15z", (10, 5, 30, 15)),  # too small to reach: grown
    ],
)
def test_arcs_go_the_way_they_are_told(d, box):
    assert box_of(painted(svg.path(d, svg.INK))) == pytest.approx(box, abs=1)


def test_an_arc_lies_on_its_circle():
    points = stills.arc((10, 15), (10, 10, 0, 1, 1), (20, 25))
    assert [np.hypot(x - 20, y - 15) for x, y in points[2::3]] == pytest.approx([10] * (len(points) // 3))
    assert points[-1] == pytest.approx((20, 25))


def test_a_circle_and_a_star_are_round_their_middle():
    assert box_of(painted(svg.circle(20, 15, 8))) == pytest.approx((12, 7, 28, 23), abs=1)
    assert box_of(painted(svg.star(20, 15, 10, svg.INK))) == pytest.approx((10, 5, 30, 25), abs=2)


def test_round_corners_are_cut_off():
    pixels = painted(svg.rect(5, 5, 20, 20, rx=6))
    assert box_of(pixels) == (5, 5, 25, 25)
    assert at(pixels, 5, 5) == at(pixels, 24, 24) == WHITE
    assert at(pixels, 15, 15) == BLACK


def test_lines_are_as_wide_and_dashed_as_they_are_told():
    assert box_of(painted(svg.line(5, 10, 35, 10, stroke_width=4))) == (5, 8, 35, 12)
    dashed = painted(svg.line(0, 10, 40, 10, stroke_width=2, stroke_dasharray="5 5"))
    assert [at(dashed, x, 10) == BLACK for x in (2, 7, 12, 17)] == [True, False, True, False]


def test_opacity_multiplies_down_the_groups():
    grey = at(painted(svg.group([svg.rect(0, 0, 9, 9, opacity=0.5)], opacity=0.5)), 4, 4)
    assert grey == pytest.approx((191, 191, 191), abs=1)  # 255 * (1 - 0.25)
    half = at(painted(svg.rect(0, 0, 9, 9, fill_opacity=0.5)), 4, 4)
    assert half == pytest.approx((128, 128, 128), abs=1)


def test_later_shapes_cover_earlier_ones_and_words_stand_on_both():
    pixels = painted(svg.rect(0, 0, 30, 30, svg.BLUE), svg.text(5, 24, "#", size=24, fill="#fff"), svg.rect(0, 0, 30, 12, svg.ORANGE))
    assert (pixels[:12, :30] == (0xD5, 0x5E, 0x00)).all()  # also where the word reaches up
    assert (pixels[12:, :30] == 255).any()


def test_transforms_are_done_from_right_to_left():
    box = svg.rect(0, 0, 10, 4)
    assert box_of(painted(svg.group([box], transform="translate(6 8)"))) == (6, 8, 16, 12)
    assert box_of(painted(svg.group([box], transform="translate(20 5) rotate(90)"))) == (16, 5, 20, 15)
    assert box_of(painted(svg.group([box], transform="rotate(90 20 10) translate(20 10)"))) == (16, 10, 20, 20)
    assert box_of(painted(svg.group([box], transform="scale(2)"))) == (0, 0, 20, 8)


def test_words_have_their_anchor_size_and_weight():
    left, top, right, bottom = box_of(painted(svg.text(50, 20, "xxxx"), width=100))
    assert left == pytest.approx(50, abs=2)
    assert bottom == pytest.approx(20, abs=1)
    end = box_of(painted(svg.text(50, 20, "xxxx", anchor="end"), width=100))
    assert end[2] == pytest.approx(50, abs=2)
    middle = box_of(painted(svg.group([svg.text(50, 20, "xxxx")], text_anchor="middle"), width=100))
    assert (middle[0] + middle[2]) / 2 == pytest.approx(50, abs=2)
    wide = box_of(painted(svg.text(5, 25, "xxxx", size=24), width=100))
    assert wide[2] - wide[0] == pytest.approx(2 * (right - left), rel=0.15)
    assert (painted(svg.text(5, 20, "xxxx", font_weight="bold")) < 128).sum() > (painted(svg.text(5, 20, "xxxx")) < 128).sum()


def test_words_turn_with_their_group():
    left, top, right, bottom = box_of(painted(svg.text(20, 5, "xxx", transform="rotate(90 20 5)"), height=60))
    assert bottom - top > right - left  # they run down the page
    assert top == pytest.approx(5, abs=2)


def test_a_dollar_is_a_dollar():
    assert painted(svg.text(2, 20, "$x$ and $y$"), width=90).min() == 0  # not a formula, whose error would be raised


def test_ink_and_paper_are_the_pages():
    pixels = painted(svg.rect(0, 0, 9, 9), ink=(1, 1, 1, 1), paper="#111111")
    assert at(pixels, 4, 4) == WHITE
    assert at(pixels, 30, 20) == (0x11, 0x11, 0x11)


@pytest.mark.parametrize(
    ("child", "named"),
    [
        ('<ellipse cx="1" cy="1" rx="1" ry="2"/>', "<ellipse>"),
        ('<image href="x.png"/>', "<image>"),
        ('<text x="1" y="1"><tspan>a</tspan></text>', "<tspan>"),
        ('<rect x="1" y="1" width="2" height="2" filter="url(#f)"/>', "'filter' of <rect>"),
        ('<path d="M0 0S1 1 2 2"/>', "'S1 1 2 2'"),
        ('<path d="M0 0L1"/>', "'L1'"),
        ('<path d="M0 0A2 1 30 0 1 2 2"/>', "turned ellipse"),
        ('<g transform="skewX(4)"/>', "skewX"),
    ],
)
def test_what_only_a_browser_draws_is_refused_by_name(child, named):
    with pytest.raises(ValueError, match="stills cannot draw") as error:
        painted(child)
    assert named in str(error.value)


def test_a_png_has_few_colours_and_the_canvas_size():
    from PIL import Image

    canvas = stills.Canvas(40, 30, sharpness=2.0)
    canvas.draw(svg.document(40, 30, "a box", [svg.rect(5, 5, 10, 10, svg.BLUE)]))
    image = Image.open(io.BytesIO(canvas.png()))
    assert image.size == (80, 60)
    assert len(image.getcolors()) <= stills.COLOURS
    assert image.convert("RGB").getpixel((20, 20)) == pytest.approx(BLUE, abs=3)
    assert image.convert("RGB").getpixel((70, 50)) == WHITE
