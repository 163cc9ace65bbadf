"""The dial of theoretical occupancy and what limits it: a pure function, record -> SVG string.

The definition of how an Occupancy is drawn and said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from solcourse import svg, units
from solcourse.diagnosis import filled_warps
from solcourse.errors import SolcourseError
from solcourse.occupancy import Occupancy

if TYPE_CHECKING:
    from solcourse.report import Report

# resource -> (plain words, ncu's metric)
LIMIT_WORDS = {
    "warps": ("warps", "launch__occupancy_limit_warps"),
    "blocks": ("block slots", "launch__occupancy_limit_blocks"),
    "registers": ("registers", "launch__occupancy_limit_registers"),
    "shared_memory": ("shared memory", "launch__occupancy_limit_shared_mem"),
    "barriers": ("barriers", "launch__occupancy_limit_barriers"),
}
METRIC = "sm__maximum_warps_per_active_cycle_pct"
_X, _Y, _R, _WIDE = 100, 128, 72, 18  # the dial: centre, radius, width of its band
_LEFT, _SPAN, _ROW, _TOP = 332, 56, 34, 42  # the bars


def limits_in_words(occupancy: Occupancy) -> str:
    """What stops another block: "registers", "warps and shared memory"."""
    return " and ".join(LIMIT_WORDS[name][0] for name in occupancy.limiters)


def _at(fraction: float, radius: float) -> tuple[float, float]:
    """A place on the dial: 0 to the left, 0.5 above, 1 to the right."""
    angle = math.pi * (1 - fraction)
    return _X + radius * math.cos(angle), _Y - radius * math.sin(angle)


def _band(fraction: float, opacity: float | None = None, stroke: str = svg.INK) -> str:
    (x0, y0), (x1, y1) = _at(0.0, _R), _at(fraction, _R)
    d = f"M{svg.num(x0)} {svg.num(y0)}A{_R} {_R} 0 0 1 {svg.num(x1)} {svg.num(y1)}"
    return svg.path(d, stroke_width=_WIDE, stroke=stroke, opacity=opacity)


def _dial(occupancy: Occupancy) -> Iterator[str]:
    yield _band(1.0, opacity=svg.BEHIND)
    yield _band(occupancy.fraction, stroke=svg.BLUE)
    yield svg.line(*_at(occupancy.fraction, _R - 16), *_at(occupancy.fraction, _R + 16), stroke_width=3)
    for part, anchor in ((0.0, "middle"), (0.25, "end"), (0.5, "middle"), (0.75, None), (1.0, "middle")):
        x, y = _at(part, _R + 18)
        low = part in (0.0, 1.0)
        name = f"{100 * part:.0f}" + (" %" if part == 1 else "")
        yield svg.text(_at(part, _R)[0] if low else x, _Y + 15 if low else y + 3, name, size=11, anchor=anchor, opacity=svg.FAINT)
    yield svg.text(_X, _Y - 8, units.percent(occupancy.fraction), size=22, anchor="middle", font_weight="bold")
    yield svg.text(_X, _Y + 36, f"{occupancy.warps_per_sm} of {occupancy.max_warps} warps on an SM", anchor="middle")
    yield svg.text(_X, _Y + 53, blocks_in_words(occupancy), anchor="middle")


def blocks_in_words(occupancy: Occupancy) -> str:
    """
    >>> from solcourse.occupancy import occupancy
    >>> blocks_in_words(occupancy("A100-SXM4-80GB", 256, 40, 0))
    '6 blocks of 8 warps'
    """
    blocks, warps = occupancy.blocks_per_sm, occupancy.warps_per_sm // occupancy.blocks_per_sm
    return f"{blocks} block{'s' * (blocks != 1)} of {warps} warp{'s' * (warps != 1)}"


def _bars(occupancy: Occupancy) -> Iterator[str]:
    """A bar per limit. More blocks than there are slots never fit, so the axis ends there: a longer bar has an arrow for its end."""
    slots = occupancy.limits["blocks"]
    for n, (name, blocks) in enumerate(occupancy.limits.items()):
        y, binds = _TOP + n * _ROW, name in occupancy.limiters
        words, metric = LIMIT_WORDS[name]
        bold = "bold" if binds else None
        end = _LEFT + _SPAN * min(blocks / slots, 1.0)
        if binds:
            yield svg.path(f"M{_LEFT - 130} {y + 3}l9 5l-9 5z", svg.ORANGE)
        yield svg.text(_LEFT - 8, y + 12, words, anchor="end", font_weight=bold)
        yield svg.rect(_LEFT, y + 1, end - _LEFT, 14, svg.ORANGE if binds else svg.BLUE)
        if blocks > slots:
            yield svg.path(f"M{svg.num(end)} {y + 1}l7 7l-7 7z", svg.BLUE)
        yield svg.text(end + 12, y + 12, f"{blocks}" + (" limits" if binds else ""), font_weight=bold)
        yield svg.text(_LEFT - 113, y + 27, metric, size=11, opacity=svg.FAINT)


def dial(occupancy: Occupancy, title: str = "Theoretical occupancy", note: str = "") -> str:
    """Resident warps as a part of what the SM can hold, beside the blocks that each resource alone would allow.

    note   lines below: of which kernel, with how many registers
    """
    limits = limits_in_words(occupancy)
    bottom = max(_TOP + _ROW * len(occupancy.limits), _Y + 60)
    notes = [*(note.splitlines()), f"In ncu: {METRIC}"]
    children = [
        svg.text(12, 16, title, font_weight="bold"),
        svg.text(_LEFT - 113, 32, "blocks that each resource would allow", size=11, opacity=svg.FAINT),
        *_dial(occupancy),
        *_bars(occupancy),
        *(svg.text(12, bottom + 14 + 16 * n, svg.shorten(line, 68), size=11, opacity=svg.FAINT) for n, line in enumerate(notes)),
    ]
    each = ", ".join(f"{LIMIT_WORDS[name][0]} {blocks}" for name, blocks in occupancy.limits.items())
    label = (
        f"{title}: {units.percent(occupancy.fraction)}, {occupancy.warps_per_sm} of {occupancy.max_warps} warps on an SM, "
        f"{blocks_in_words(occupancy)} ({METRIC}). Limited by {limits}. Blocks that each resource alone would allow: {each}"
        + "".join(f". {line}" for line in note.splitlines())
    )
    return svg.document(452, bottom + 8 + 16 * len(notes), label, children)


def of_report(report: Report) -> str:
    """The dial of a report's launch. Raises SolcourseError where its occupancy is not known."""
    fits = report.occupancy
    if fits is None:
        raise SolcourseError("This report was measured without an engine run, so its occupancy is unknown: profile the kernel to see it.")
    threads = math.prod(report.block)
    held = f"{report.registers} registers a thread ({report.registers_source})" if report.registers else "registers unknown"
    used = report.run.shared_bytes if report.run is not None else 0
    shared = f", {units.binary_size(used)} of shared memory a block" if used else ""
    note = f"{svg.shorten(report.kernel, 30)}: blocks of {threads} threads{shared}\n{held}"
    filled = filled_warps(report)
    if filled is not None:
        note += f"\nThis grid is small: it fills at most {filled} of the {fits.max_warps} warps"
    return dial(fits, f"Theoretical occupancy on {report.device.name}", note)
