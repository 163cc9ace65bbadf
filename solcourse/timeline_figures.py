"""The picture of a Timeline: a row for each warp's place, and how full the issue slot is. A pure function, record -> SVG string.

A state has a shape as well as a colour: a box, a thick, a dashed, a dotted and a thin line, and nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from solcourse import svg, units
from solcourse.errors import SolcourseError
from solcourse.timeline import STATES, Timeline, timeline

if TYPE_CHECKING:
    from solcourse.report import Report


class Look(NamedTuple):
    """How a state is drawn and said. ncu: its names for such warps, with smsp__average_warps_issue_stalled_ before them."""

    words: str
    ncu: str
    stroke: str
    width: float
    dashes: str | None
    opacity: float | None


LOOKS = {
    "issued": Look("issues", "selected", svg.BLUE, 9, None, None),
    "memory": Look("waits for memory", "long_scoreboard, drain", svg.ORANGE, 4, None, None),
    "barrier": Look("waits at a barrier", "barrier", svg.GREEN, 5, "4 2", None),
    "dependency": Look("waits for a pipe, L1 or arithmetic", "wait, throttles, ...", svg.INK, 1, None, svg.FAINT),
    "not_selected": Look("could issue, another warp does", "not_selected", svg.INK, 5, "1 2", None),
    "finished": Look("no warp: the next block is not here yet, or there is none", "", svg.INK, 0, None, None),
}
_LEFT, _SPAN, _ROW, _TOP, _SLOT, _BINS = 58, 380, 13, 44, 30, 76
_LATER, _LONGEST, _SHORTEST = 2000, 1000, 400  # cycles: the latest start, the longest and the shortest window that nobody asked for


def window(stay: float, single: bool) -> tuple[int, int]:
    """(start, cycles) that show how a kernel runs whose blocks stay so long: a block and a quarter, after the first ones have gone by.

    single   no block follows the first ones: then from the start

    >>> window(660.8, False), window(90000.0, False), window(500.0, True)
    ((700, 900), (2000, 1000), (0, 700))
    """
    start = 0 if single and stay < _LATER else min(100 * math.ceil(stay / 100), _LATER)
    return start, min(max(100 * math.ceil(1.25 * stay / 100), _SHORTEST), _LONGEST)


def of_report(report: Report, cycles: int | None = None, start: int | None = None) -> str:
    """What one scheduler of the report's device does in cycles start..start + cycles of the launch; None: see `window`.

    Raises SolcourseError for a report without an engine run.
    """
    if report.run is None or report.occupancy is None:
        raise SolcourseError("This report was measured without an engine run: profile the kernel to see what its warps do.")
    stay = report.prediction.block_cycles if report.prediction is not None else 1000.0
    begin, length = window(stay, (report.waves or 0.0) <= 1.0)
    begin, length = begin if start is None else start, length if cycles is None else cycles
    if begin < 0 or not 0 < length <= 10_000 or begin > 100_000:
        raise SolcourseError(f"A timeline of {length} cycles from {begin}: 1 to 10,000 cycles can be shown, from 0 to 100,000.")
    shown = timeline(report.run, report.traffic, report.device, report.occupancy, length, begin)
    return picture(shown, report.kernel, report.device.name)


def picture(shown: Timeline, kernel: str = "", device: str = "") -> str:
    """A row for each place, the issue slot below them, and what the shapes mean, each with its share of all the warps' time."""
    bottom = _TOP + _ROW * len(shown.places)
    end = shown.start + shown.cycles
    head = f"One scheduler, predicted: {svg.shorten(kernel, 28)}" if kernel else "One scheduler, predicted"
    where = f"cycles {shown.start:,} to {end:,}, {len(shown.places)} warps at a time"
    issues = f"An instruction is issued in {units.percent(shown.issue_utilisation)} of the cycles"
    leaves = (
        "The oldest warp that can issue does. A request takes its",
        "instruction's mean latency, and longer where this partition's",
        "share of L2 or DRAM is taken. The other partitions and SMs are",
        "taken to do the same. Left out: register banks, constant cache.",
    )
    legend = bottom + _SLOT + 40
    children = [
        svg.text(12, 16, head, font_weight="bold"),
        svg.text(12, 33, where, size=11, opacity=svg.FAINT),
        svg.text(_LEFT + _SPAN, 33, device, size=11, anchor="end"),
        *_grid(shown, bottom),
        *_rows(shown),
        *_slot(shown, bottom + 6),
        svg.text(12, legend, issues, font_weight="bold"),
        svg.text(
            12,
            legend + 15,
            "ncu: smsp__issue_active. Below: the warps' time, and ncu's stalls",
            size=11,
            opacity=svg.FAINT,
        ),
        *_legend(shown, legend + 34),
        *(svg.text(12, legend + 140 + 15 * n, line, size=11, opacity=svg.FAINT) for n, line in enumerate(leaves)),
    ]
    shares = ", ".join(f"{LOOKS[state].words} {units.percent(share)}" for state, share in shown.shares.items())
    label = f"{head}{f' on {device}' if device else ''}; {where}. {issues}. The warps' time: {shares}"
    return svg.document(_LEFT + _SPAN + 18, legend + 193, label, children)


def _x(shown: Timeline, cycle: float) -> float:
    return _LEFT + _SPAN * (cycle - shown.start) / shown.cycles


def _grid(shown: Timeline, bottom: float) -> Iterator[str]:
    step = next(s for s in (20, 50, 100, 200, 500, 1000, 2000) if shown.cycles / s <= 8)
    ticks = range(-(-shown.start // step) * step, shown.start + shown.cycles + 1, step)
    below = bottom + 6 + _SLOT
    yield svg.path("".join(f"M{svg.num(_x(shown, t))} {_TOP}V{below}" for t in ticks), stroke=svg.INK, opacity=svg.BEHIND)
    yield svg.group((svg.text(_x(shown, t), below + 13, f"{t:,}", anchor="middle") for t in ticks), font_size=11, opacity=svg.FAINT)


def _rows(shown: Timeline) -> Iterator[str]:
    ways: dict[str, list[str]] = {state: [] for state in STATES}
    news, named = [], -1
    for n, spans in enumerate(shown.places):
        y = _TOP + _ROW * n + _ROW / 2
        for start, end, state in spans:
            ways[state].append(f"M{svg.num(_x(shown, start))} {svg.num(y)}H{svg.num(_x(shown, end))}")
        news += [f"M{svg.num(_x(shown, at))} {svg.num(y - 6)}v12" for at in shown.starts[n] if at > shown.start]
        if shown.blocks[n] != named:
            named = shown.blocks[n]
            if n:
                yield svg.line(8, y - _ROW / 2, _LEFT + _SPAN, y - _ROW / 2, opacity=svg.BEHIND)
            yield svg.text(_LEFT - 6, y + 4, f"block {named}", size=11, anchor="end", opacity=svg.FAINT)
    for state in reversed(STATES[:-1]):
        look = LOOKS[state]
        if ways[state]:
            way = "".join(ways[state])
            yield svg.path(way, stroke=look.stroke, stroke_width=look.width, stroke_dasharray=look.dashes, opacity=look.opacity)
    if news:
        yield svg.path("".join(news), stroke=svg.INK, stroke_width=2)


def _slot(shown: Timeline, top: float) -> Iterator[str]:
    """How much of each stretch of cycles has an issue, as a bar."""
    width = shown.cycles / _BINS
    filled = [0.0] * _BINS
    for start, end, state in (span for spans in shown.places for span in spans):
        if state == "issued":
            for cycle in range(start, end):
                filled[min(int((cycle - shown.start) / width), _BINS - 1)] += 1
    wide = _SPAN / _BINS
    bars = "".join(
        f"M{svg.num(_LEFT + wide * n)} {top + _SLOT}v-{svg.num(_SLOT * min(1.0, count / width))}h{svg.num(wide)}V{top + _SLOT}z"
        for n, count in enumerate(filled)
        if count
    )
    yield svg.path(f"M{_LEFT} {top}h{_SPAN}M{_LEFT} {top + _SLOT}h{_SPAN}", stroke=svg.INK, opacity=svg.FAINT)
    yield svg.path(bars, svg.BLUE)
    yield svg.text(_LEFT - 6, top + 9, "100 %", size=11, anchor="end", opacity=svg.FAINT)
    yield svg.text(_LEFT - 6, top + 24, "issue slot", size=11, anchor="end", opacity=svg.FAINT)


def _legend(shown: Timeline, y: float) -> Iterator[str]:
    for n, (state, share) in enumerate(shown.shares.items()):
        look, at = LOOKS[state], y + 17 * n
        if look.width:
            sample = f"M14 {at - 4}h24"
            yield svg.path(sample, stroke=look.stroke, stroke_width=look.width, stroke_dasharray=look.dashes, opacity=look.opacity)
        yield svg.text(88, at, units.percent(share), size=11, anchor="end", font_weight="bold")
        yield svg.text(96, at, look.words, size=11)
        if look.ncu:
            yield svg.text(286, at, look.ncu, size=11, opacity=svg.FAINT)
