"""Which lanes work: a block's steps, lane by lane and warp by warp, and the average of each source line. Records in, SVG out.

Glossary: a lane is *at work* when its result is needed, *busy in vain* when it executes and nobody wants its result, *idle* when it
waits for other lanes of its warp; a warp has *left* a step when none of its lanes executes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solcourse import svg
from solcourse.simt.records import WARP, LineCounts

WIDTH, LEFT, TOP, ROW = 440, 12, 48, 16
LANES, CELL = 74, 6  # x of the strip of lanes, width of a lane
WARPS, WARPS_WIDTH = 280, 72  # x of the strip of warps, and all its width
AT_LANES, AT_PASSES = 384, 430  # where the numbers end
FULL = (1 << WARP) - 1
MOST_LINES = 14


@dataclass(frozen=True)
class Step:
    """What one step does, warp by warp of a block.

    active   masks of the lanes that execute it, 0 for a warp that has left
    needed   masks of those whose result is needed: all of `active`, where not given
    passes   through shared memory, all its loads and stores together; conflicts: those beyond the necessary ones
    """

    label: str
    active: tuple[int, ...]
    needed: tuple[int, ...] | None = None
    passes: int = 0
    conflicts: int = 0

    @property
    def wanted(self) -> tuple[int, ...]:
        return self.active if self.needed is None else self.needed

    @property
    def lanes(self) -> int:
        """Lanes that execute it, of all warps."""
        return sum(mask.bit_count() for mask in self.active)

    @property
    def warps(self) -> int:
        return sum(map(bool, self.active))

    def __str__(self) -> str:
        working = sum(mask.bit_count() for mask in self.wanted)
        vain = f", {self.lanes - working} in vain" if self.lanes > working else ""
        passes = f", {self.passes} passes through shared memory" if self.passes else ""
        return f"{self.label}: {self.lanes} lanes in {self.warps} of {len(self.active)} warps{vain}{passes}"


def _bits(mask: int) -> Iterator[int]:
    return (lane for lane in range(WARP) if mask >> lane & 1)


def steps(rows: Sequence[Step], title: str) -> str:
    """The strip: a row for each step; the lanes of warp 0, all warps of the block, and how many lanes execute it."""
    wide = min(12.0, WARPS_WIDTH / len(rows[0].active))
    bottom = TOP + len(rows) * ROW
    boxes: dict[str, list[tuple[float, float]]] = {"work": [], "vain": [], "idle": [], "left": []}
    bars, tracks, labels = [], [], []
    for n, row in enumerate(rows):
        y = TOP + n * ROW
        labels += [
            svg.text(LANES - 6, y + 10, row.label, size=11, anchor="end"),
            svg.text(AT_LANES, y + 10, f"{row.lanes:,}", size=11, anchor="end"),
            svg.text(AT_PASSES, y + 10, f"{row.passes:,}" if row.passes else "-", size=11, anchor="end"),
        ]
        active, wanted = row.active[0], row.wanted[0]
        kinds = {"work": active & wanted, "vain": active & ~wanted, "idle": FULL & ~active if active else 0, "left": 0 if active else FULL}
        for kind, mask in kinds.items():
            boxes[kind] += [(LANES + lane * CELL, y + 1) for lane in _bits(mask)]
        for warp, mask in enumerate(row.active):
            x, high = WARPS + warp * wide, 11 * mask.bit_count() / WARP
            tracks.append((x, y + 1))
            if mask:
                bars.append(f"M{svg.num(x)} {svg.num(y + 12)}v-{svg.num(max(high, 1.5))}h{svg.num(wide - 1)}V{svg.num(y + 12)}z")
    size = (CELL - 1, 11)
    children = [
        svg.text(LEFT, 18, title, font_weight="bold"),
        svg.text(LANES, 40, "lanes of warp 0", size=11, opacity=svg.FAINT),
        svg.text(WARPS, 40, "warps", size=11, opacity=svg.FAINT),
        svg.text(AT_LANES, 40, "lanes", size=11, anchor="end", opacity=svg.FAINT),
        svg.text(AT_PASSES, 40, "passes", size=11, anchor="end", opacity=svg.FAINT),
        svg.path(svg.boxes(boxes["work"], *size), svg.BLUE),
        svg.path(svg.boxes(boxes["vain"], *size), svg.ORANGE, stroke=svg.INK, stroke_width=0.6),
        svg.path(svg.boxes(boxes["idle"], *size), stroke=svg.INK, opacity=svg.FAINT),
        svg.path(svg.boxes(boxes["left"], *size), svg.INK, opacity=svg.BEHIND),
        svg.path(svg.boxes(tracks, wide - 1, 11), svg.INK, opacity=svg.BEHIND),
        svg.path("".join(bars), svg.BLUE),
        *labels,
        *_legend(bottom + 16, {kind: bool(places) for kind, places in boxes.items()}),
    ]
    said = "; ".join(map(str, rows))
    return svg.document(WIDTH, bottom + 24, f"{title}. {said}", children)


def _legend(y: float, shown: dict[str, bool]) -> Iterator[str]:
    x = float(LEFT)
    looks: dict[str, tuple[str, str, dict[str, object]]] = {
        "work": ("at work", svg.BLUE, {}),
        "vain": ("busy in vain", svg.ORANGE, {"stroke": svg.INK, "stroke_width": 0.6}),
        "idle": ("idle, waits for its warp", "none", {"stroke": svg.INK, "opacity": svg.FAINT}),
        "left": ("its warp has left", svg.INK, {"opacity": svg.BEHIND}),
    }
    for kind, (words, fill, look) in looks.items():
        if shown[kind]:
            yield svg.path(svg.boxes([(x, y - 9)], CELL - 1, 11), fill, **look)
            yield svg.text(x + 10, y, words, size=11)
            x += 24 + 6.2 * len(words)


def averages(lines: Sequence[LineCounts], title: str = "Average active lanes, line by line") -> str:
    """The strip of each source line that executes something: how many of 32 lanes take part in its instructions, on average.

    Of more than MOST_LINES lines those with the most instructions are shown, in the order of the source.
    """
    ran = [line for line in lines if line.counts.warp_instructions]
    hottest = sorted(ran, key=lambda line: -line.counts.warp_instructions)[:MOST_LINES]
    left, cell = 244, 5
    full: list[tuple[float, float]] = []
    track: list[tuple[float, float]] = []
    labels, parts, said = [], [], []
    shown = [line for line in ran if line in hottest]
    for n, line in enumerate(shown):
        y, lanes = 30 + n * ROW, line.counts.average_active_lanes
        track += [(left + lane * cell, y + 1) for lane in range(WARP)]
        full += [(left + lane * cell, y + 1) for lane in range(int(lanes))]
        rest = (lanes - int(lanes)) * (cell - 1)
        if rest > 0.3:
            parts.append(svg.rect(left + int(lanes) * cell, y + 1, rest, 11, svg.BLUE))
        text = line.text or f"line {line.line}"
        labels.append(svg.text(LEFT, y + 10, svg.shorten(text, 34), size=11, font_family="monospace"))
        labels.append(svg.text(WIDTH - 4, y + 10, f"{lanes:.1f}", size=11, anchor="end"))
        said.append(f"{text}: {lanes:.1f}")
    children = [
        svg.text(LEFT, 18, title, font_weight="bold"),
        svg.text(WIDTH - 4, 18, "of 32", size=11, anchor="end", opacity=svg.FAINT),
        svg.path(svg.boxes(track, cell - 1, 11), svg.INK, opacity=svg.BEHIND),
        svg.path(svg.boxes(full, cell - 1, 11), svg.BLUE),
        *parts,
        *labels,
    ]
    return svg.document(WIDTH, 34 + len(shown) * ROW, f"{title}, of 32. " + "; ".join(said), children)
