"""The picture of who touched a cell: every access is drawn, folded or said to be left out, and the two that clash are the right two."""

import random
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solcourse import svg
from solcourse.simt.records import Finding, Touch
from solcourse.touch_map import touch_map
from solcourse.touches import clash

SVG = "{http://www.w3.org/2000/svg}"
BLOCK = (0, 0, 0)


def touch(phase, x, line, action, y=0, block=BLOCK):
    return Touch(phase, block, (x, y, 0), line, action)


def hazard(kind, touches, second, first, element="tile[3, 4]", **more):
    """A finding whose two parties are the touches numbered `first` and `second`."""
    a, b = touches[first], touches[second]
    places = {"line": b.line, "block": b.block, "thread": b.thread}
    others = {"other_line": a.line, "other_block": a.block, "other_thread": a.thread}
    given = {"array": "tile", "space": "shared", "element": element, "touches": tuple(touches), **places, **others, **more}
    return Finding(kind, "error", "", "", **given)


# A tiled matmul without its second barrier: the writer fills the cell (0), 16 threads read it (1-16), and it goes on to the next tile (17)
LOAD, USE = 13, 17
TILE = [touch(0, 4, LOAD, "write", y=3), *(touch(1, x, USE, "read", y=3) for x in range(16)), touch(1, 4, LOAD, "write", y=3)]
TILE += [touch(2, x, USE, "read", y=3) for x in range(16)]
MATMUL = hazard("write_after_read", TILE, second=17, first=6)
# s[0] += 1 by two lanes: both read (1, 2), both write (3, 4)
ADD = [touch(0, 0, 8, "write"), touch(1, 0, 10, "read"), touch(1, 1, 10, "read"), touch(1, 0, 10, "write"), touch(1, 1, 10, "write")]
LOST = hazard("lost_update", ADD, second=4, first=3, element="s[0]")
# block 0 writes x[63], block 1 reads it as its left neighbour; each has its own barriers
NEIGHBOURS = [touch(5, 63, 8, "write"), touch(0, 0, 7, "read", block=(1, 0, 0))]
BLOCKS = hazard("read_after_write", NEIGHBOURS, second=1, first=0, element="x[63]", space="global")
ATOMIC = [touch(0, 0, 5, "write"), *(touch(1, x, 9, "atomic") for x in range(300)), touch(1, 0, 12, "read")]
COUNTER = hazard("read_after_write", ATOMIC, second=301, first=300, element="count[0]")
WARP = [touch(1, 16, 10, "read"), touch(1, 16, 10, "write"), touch(1, 0, 11, "read"), touch(1, 16, 11, "read")]
SAME_WARP = hazard("read_after_write", WARP, second=2, first=1, element="red[16]")
UNWRITTEN = Finding("uninitialized_read", "error", "", "", line=9, block=BLOCK, thread=(7, 0, 0), touches=(touch(1, 7, 9, "read"),))
MANY = [touch(i // 512, i * 7 % 256, 13 if i % 16 == 0 else 17, "write" if i % 16 == 0 else "read") for i in range(4096)]
LONG = hazard("write_after_read", MANY, second=32, first=31)
HOSTILE = "a<b>&\"'\x00\x1b</svg><script>alert(1)</script>"

FINDINGS = {
    "matmul": MATMUL,
    "lost update": LOST,
    "blocks": BLOCKS,
    "atomic": COUNTER,
    "same warp": SAME_WARP,
    "unwritten": UNWRITTEN,
    "4096 touches": LONG,
    "hostile": hazard("write_after_write", ADD, second=4, first=3, element=HOSTILE * 9, file=HOSTILE),
    "nobody": Finding("read_after_write", "error", "", "", array="x", index=7),
    "others": Finding("write_after_write", "error", "", "", line=99, other_line=98, touches=tuple(ADD)),
    "many lines": hazard("write_after_write", [touch(0, n, 1000 + n, "write") for n in range(40)], second=20, first=19),
}


def root_of(finding):
    return ET.fromstring(touch_map(finding))


def groups(root, **attributes):
    """The marks: (what it is when pointed at, its number, x, y, element)."""
    found = []
    for g in root.iter(SVG + "g"):
        if "data-touch" in g.attrib and all(g.attrib.get(f"data-{k}") == v for k, v in attributes.items()):
            words = g.find(SVG + "text")
            found.append((g.find(SVG + "title").text, words.text, float(words.attrib["x"]), float(words.attrib["y"]), g))
    return found


def texts(root):
    return [e.text or "" for e in root.iter(SVG + "text")]


def bars(root):
    """x of each barrier, left to right."""
    return [float(re.match(r"M([\d.]+)", e.attrib["d"])[1]) for e in root.iter(SVG + "path") if "data-barrier" in e.attrib]


def ends(root):
    """The first and the last point of the line that joins the two."""
    (link,) = [e.attrib["d"] for e in root.iter(SVG + "path") if "data-link" in e.attrib]
    points = [tuple(map(float, p.split())) for p in link.removeprefix("M").split("L")]
    return points[0], points[-1]


def shaded(root):
    """(left, right) of the shaded phase."""
    (box,) = [e.attrib for e in root.iter(SVG + "rect") if "data-phase" in e.attrib]
    return float(box["x"]), float(box["x"]) + float(box["width"])


# ----------------------------------------------------------------------------------------------------- every picture
@pytest.mark.parametrize("name", FINDINGS)
def test_every_picture_is_well_formed_and_says_itself_in_words(name):
    picture = touch_map(FINDINGS[name])
    root = ET.fromstring(picture)
    assert root.tag == SVG + "svg"
    assert root.attrib["role"] == "img"
    assert len(root.attrib["aria-label"]) > 20
    assert len(picture.encode()) <= 9216
    assert "<script" not in picture
    if FINDINGS[name].touches:
        assert root.find(SVG + "title").text
        assert "line" in root.find(SVG + "desc").text


@pytest.mark.parametrize("name", FINDINGS)
def test_words_are_in_the_pages_colour(name):
    picture = touch_map(FINDINGS[name])
    assert not any("fill" in e.attrib for e in ET.fromstring(picture).iter(SVG + "text"))
    assert set(re.findall(r'(?:fill|stroke)="([^"]*)"', picture)) <= {"currentColor", "none", svg.BLUE, svg.ORANGE, svg.GREEN}


def contrast(a, b):
    """WCAG 2.1's contrast ratio of two sRGB colours."""
    lights = []
    for colour in (a, b):
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
        lights.append(0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def rgb(text):
    return tuple(int(text[i : i + 2], 16) for i in (1, 3, 5))


@pytest.mark.parametrize("page", ["#ffffff", "#111111"], ids=["light", "dark"])
def test_marks_stand_out_on_both_themes_and_on_the_shade(page):
    (shade,) = [e for e in root_of(MATMUL).iter(SVG + "rect") if "data-phase" in e.attrib]
    opacity = float(shade.attrib["fill-opacity"])
    under = tuple(opacity * f + (1 - opacity) * b for f, b in zip(rgb(shade.attrib["fill"]), rgb(page), strict=True))
    for colour in (svg.BLUE, svg.ORANGE, svg.GREEN):
        assert contrast(rgb(colour), rgb(page)) >= 3  # WCAG 1.4.11, graphical objects
        assert contrast(rgb(colour), under) >= 3


@pytest.mark.parametrize("name", FINDINGS)
def test_everything_is_drawn_inside_the_frame_640_wide(name):
    root = root_of(FINDINGS[name])
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert width == 640
    for e in root.iter(SVG + "text"):
        size = float(e.attrib.get("font-size", 12))
        x, long = float(e.attrib["x"]), 0.45 * size * len(e.text or "")  # 0.45 em a letter: less than any font's mean
        left = x - {"end": long, "middle": long / 2}.get(e.attrib.get("text-anchor"), 0)
        assert left >= -1, e.text
        assert left + long <= width + 1, e.text
        assert 0 < float(e.attrib["y"]) <= height - 4, e.text
        assert size >= 11
    for e in root.iter(SVG + "rect"):
        assert float(e.attrib["x"]) + float(e.attrib["width"]) <= width
        assert float(e.attrib["y"]) + float(e.attrib["height"]) <= height


# ------------------------------------------------------------------------------------------------------- the two that clash
@pytest.mark.parametrize(
    ("finding", "first", "second"),
    [
        (MATMUL, "thread (5, 3, 0) reads it at line 17", "thread (4, 3, 0) writes it at line 13"),
        (LOST, "thread (0, 0, 0) writes it at line 10", "thread (1, 0, 0) writes it at line 10"),
        (BLOCKS, "block (0, 0, 0) thread (63, 0, 0) writes it at line 8", "block (1, 0, 0) thread (0, 0, 0) reads it at line 7"),
        (COUNTER, "thread (299, 0, 0) updates it at line 9", "thread (0, 0, 0) reads it at line 12"),
        (SAME_WARP, "thread (16, 0, 0) writes it at line 10", "thread (0, 0, 0) reads it at line 11"),
    ],
)
def test_the_two_that_clash_are_ringed_joined_and_in_the_shade(finding, first, second):
    root = root_of(finding)
    marks = {words: (x, y, g) for words, _, x, y, g in groups(root, clash="")}
    assert set(marks) == {first, second}
    rings = {w: next(c.attrib for c in g.iter(SVG + "circle") if c.attrib["r"] == "11") for w, (_, _, g) in marks.items()}
    assert all(r["stroke"] == svg.ORANGE for r in rings.values())
    for end, words in zip(ends(root), (first, second), strict=True):
        assert end[0] == float(rings[words]["cx"])
        assert abs(end[1] - float(rings[words]["cy"])) == 11
    left, right = shaded(root)
    assert all(left < float(r["cx"]) < right for r in rings.values())
    said = root.attrib["aria-label"]
    for words in (first, second):
        assert words.split(" reads")[0].split(" writes")[0].split(" updates")[0].lower() in said.lower()
        assert words.rsplit(" ", 2)[1] + " " + words.rsplit(" ", 1)[1] in said


def test_the_shade_ends_at_the_barriers():
    root = root_of(MATMUL)
    left, right = shaded(root)
    assert bars(root)[:2] == [left, right]


def test_a_pair_is_never_taken_across_a_barrier():
    """The nearest write before the read is a barrier away; the one in its phase is farther."""
    touches = [touch(1, 1, 5, "write"), touch(1, 9, 6, "write"), touch(2, 2, 7, "read"), touch(3, 3, 5, "write"), touch(3, 2, 7, "read")]
    finding = Finding("read_after_write", "error", "", "", line=7, other_line=5, touches=tuple(touches))
    assert clash(finding) == (3, 4)


def test_of_several_pairs_the_nearest_is_taken():
    touches = [touch(1, 1, 5, "write"), touch(1, 9, 6, "read"), touch(1, 2, 7, "read"), touch(2, 1, 5, "write"), touch(2, 2, 7, "read")]
    finding = Finding("read_after_write", "error", "", "", line=7, other_line=5, touches=tuple(touches))
    assert clash(finding) == (3, 4)


def test_named_threads_go_before_nearer_ones():
    touches = [touch(0, 5, 7, "read"), touch(0, 6, 7, "read"), touch(0, 1, 9, "write")]
    assert clash(hazard("write_after_read", touches, second=2, first=0)) == (0, 2)
    unnamed = Finding("write_after_read", "error", "", "", line=9, other_line=7, touches=tuple(touches))
    assert clash(unnamed) == (1, 2)


def test_two_atomics_do_not_clash_and_a_thread_does_not_clash_with_itself():
    atomics = [touch(0, 0, 9, "atomic"), touch(0, 1, 9, "atomic")]
    assert clash(hazard("write_after_write", atomics, second=1, first=0)) == ()
    mine = [touch(0, 0, 9, "write"), touch(0, 0, 9, "write")]
    assert clash(hazard("write_after_write", mine, second=1, first=0)) == ()
    mixed = [touch(0, 0, 8, "write"), touch(0, 1, 9, "atomic")]
    assert clash(hazard("write_after_write", mixed, second=1, first=0)) == (0, 1)


def test_another_blocks_accesses_are_no_part_of_a_hazard_within_one():
    there = [touch(0, x, 17, "read", y=3, block=(1, 0, 0)) for x in range(5)]
    mixed = hazard("write_after_read", [*there, *TILE], second=22, first=11)
    assert touch_map(mixed) == touch_map(MATMUL)


def test_a_finding_about_one_access_rings_it_and_joins_nothing():
    root = root_of(UNWRITTEN)
    assert [words for words, *_ in groups(root, clash="")] == ["thread (7, 0, 0) reads it at line 9"]
    assert "data-link" not in touch_map(UNWRITTEN)
    assert "no thread has written it before" in root.attrib["aria-label"]


def test_nothing_is_claimed_where_the_touches_do_not_hold_the_finding():
    root = root_of(FINDINGS["others"])
    assert not groups(root, clash="")
    assert "5 accesses" in root.attrib["aria-label"]


# --------------------------------------------------------------------------------------------------------------- marks, rows
def test_write_read_and_atomic_differ_in_shape_not_only_in_colour():
    shapes = {}
    for finding in (MATMUL, COUNTER):
        for action in ("write", "read", "atomic"):
            for *_, g in groups(root_of(finding), touch=action):
                own = [c for c in g if c.tag not in (SVG + "title", SVG + "text") and c.attrib.get("r") != "11"]
                shapes.setdefault(action, set()).add((own[0].tag.removeprefix(SVG), own[0].attrib["fill"]))
    assert shapes == {"write": {("rect", svg.BLUE)}, "read": {("circle", "none")}, "atomic": {("path", svg.GREEN)}}


def test_each_mark_has_its_line_number():
    assert {(g.attrib["data-touch"], number) for _, number, *_, g in groups(root_of(LOST))} == {
        ("write", "8"), ("read", "10"), ("write", "10")
    }  # fmt: skip


def test_barriers_part_the_phases():
    """Phases 0, 1 and 2 of the matmul: two barriers, with the marks of each phase on its side of them."""
    root = root_of(MATMUL)
    assert [t for t in texts(root) if t.startswith("phase")] == ["phase 0", "phase 1", "phase 2"]
    first, second = bars(root)
    xs = sorted({x for _, _, x, *_ in groups(root)})
    assert [sum(x < first for x in xs), sum(first < x < second for x in xs), sum(x > second for x in xs)] == [1, 3, 1]
    # three label places in phase 1: reads, the ringed read, whose number stands 4 pixels farther right, and the ringed write


def test_barriers_without_an_access_between_are_counted():
    root = root_of(hazard("write_after_write", [touch(0, 0, 5, "read"), *(touch(4, x, 7, "write") for x in (1, 2))], second=2, first=1))
    assert len(bars(root)) == 1
    assert "4 barriers" in texts(root)


def test_blocks_are_not_parted_by_barriers():
    root = root_of(BLOCKS)
    assert bars(root) == []
    assert {"block (0, 0, 0) thread (63, 0, 0)", "block (1, 0, 0) thread (0, 0, 0)", "blocks run in any order"} <= set(texts(root))
    assert "x[63], between blocks" in texts(root)


def test_threads_beyond_the_rows_are_folded_with_their_number():
    """300 threads update, 2 of them clash with rows of their own, 3 more have rows: 295 share the last."""
    root = root_of(COUNTER)
    assert "and 295 more threads" in texts(root)
    assert ("295 more threads update it here (line 9)", "×295") in [(words, number) for words, number, *_ in groups(root)]
    assert "Last row: 295 more threads update it here (line 9)." in texts(root)


def test_a_kernel_that_comes_round_again_says_so():
    said = root_of(MATMUL).attrib["aria-label"]
    assert "no barrier lies between, on the way round to line 13 again" in said
    forward = [touch(1, 3, 11, "read"), touch(1, 16, 10, "write"), touch(1, 0, 11, "read")]  # line 11 is not reached by going back
    for finding in (SAME_WARP, hazard("read_after_write", forward, second=2, first=1)):
        assert "round" not in root_of(finding).attrib["aria-label"]


def test_source_lines_stand_beside_their_marks(tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text("\n" * 7 + "    s[t] = 0\n\n        s[x[i] < 3] += 1 & 1\n", encoding="utf-8")
    found = hazard("lost_update", ADD, second=4, first=3, file=str(source))
    assert {"s[t] = 0", "s[x[i] < 3] += 1 & 1", "write, line 8", "read, line 10", "write, line 10"} <= set(texts(root_of(found)))


@given(st.integers(0, 10**6), st.integers(1, 120), st.integers(1, 40), st.integers(1, 4))
def test_every_access_is_drawn_folded_or_said_to_be_left_out(seed, count, threads, lines):
    dice = random.Random(seed)
    phases = sorted(dice.randrange(6) for _ in range(count))
    touches = [touch(p, dice.randrange(threads), dice.randrange(1, lines + 1), dice.choice(["read", "write", "atomic"])) for p in phases]
    finding = Finding("read_after_write", "error", "", "", element="x[1]", touches=tuple(touches))
    pair = clash(finding)
    if pair:
        a, b = (touches[i] for i in pair)
        assert a.phase == b.phase
        assert a.thread != b.thread
        assert {a.action, b.action} & {"write", "atomic"}
    root = root_of(finding)
    drawn = groups(root)
    one = [number for words, number, *_ in drawn if "more thread" not in words]
    folded = sum(int(words.split()[0].replace(",", "")) for words, *_ in drawn if "more thread" in words)
    left_out = [int(re.match(r"⋯ ([\d,]+) of", t)[1].replace(",", "")) for t in texts(root) if t.startswith("⋯ ")]
    assert len(one) + folded + sum(left_out) == count
    assert len(groups(root, clash="")) == len(pair)
    at = [(x, g.find(SVG + "title").text) for _, _, x, _, g in drawn]
    assert len({x for x, _ in at}) <= 2 * 7  # steps, with a ringed mark's number a little farther right
