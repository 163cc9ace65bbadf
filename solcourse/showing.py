"""sol.show: one call for each picture a lesson points at. Records in, something that shows itself out.

Each answer is SVG for eyes and a sentence for ears, terminals and saved notebooks.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from solcourse import figures, svg, units
from solcourse.errors import SolcourseError
from solcourse.hardware import DEFAULT_DEVICE, Device, devices
from solcourse.work import Work, side_by_side


@dataclass(frozen=True)
class Shown:
    """A picture or table with the same facts in words."""

    markup: str = field(repr=False)
    words: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": f'<div class="sol-shown">{self.markup}</div>', "text/plain": self.words}

    def __str__(self) -> str:
        return self.words


def _picture(markup: str) -> Shown:
    """An SVG figure, with its aria-label as the words."""
    label = re.search(r'aria-label="([^"]*)"', markup)
    return Shown(markup, html.unescape(label[1]) if label else "")


def causes(reports: Mapping[str, Any]) -> str:
    """R = waste x rate x idle for several reports: one row each, three bars whose product is the score.

    Raises SolcourseError for a report that cannot be explained (nothing moved, or nothing needed).
    """
    left, span, gap, row, top = 96, 112, 14, 24, 40
    names = (("waste", "needed / moved"), ("rate", "speed / peak"), ("idle", "active / elapsed"))
    children, said = [], []
    for column, (name, meaning) in enumerate(names):
        x = left + column * (span + gap)
        children.append(svg.text(x, 16, name, font_weight="bold"))
        children.append(svg.text(x, 31, meaning, size=11, opacity=svg.FAINT))
    at_score = left + 3 * (span + gap)
    children.append(svg.text(at_score, 16, "= R", font_weight="bold"))
    for n, (label, report) in enumerate(reports.items()):
        if report.explanation is None:
            raise SolcourseError(f"{label}: this score cannot be taken apart, because the kernel moved or needed nothing.")
        y = top + n * row
        children.append(svg.text(left - 8, y + 13, svg.shorten(label, 15), anchor="end"))
        worst = report.explanation.worst
        for column, (name, _) in enumerate(names):
            x, value = left + column * (span + gap), getattr(report.explanation, name)
            children.append(svg.rect(x, y, span, row - 6, opacity=svg.BEHIND))
            fill = svg.ORANGE if name == worst else svg.BLUE
            children.append(svg.rect(x, y, span * min(value, 1.0), row - 6, fill))
            inside = value > 0.45
            ink = {"fill": svg.ON[fill]} if inside else {}
            children.append(svg.text(x + (6 if inside else span * value + 5), y + 13, units.score(value), size=11, **ink))
        children.append(svg.text(at_score, y + 13, units.score(report.sol_score), font_weight="bold"))
        parts = ", ".join(f"{name} {units.score(getattr(report.explanation, name))}" for name, _ in names)
        said.append(f"{label}: {parts}, R {units.score(report.sol_score)}")
    origin = next(iter(reports.values())).origin if reports else "predicted"
    bottom = top + len(reports) * row
    children.append(svg.text(left, bottom + 12, f"{origin}; orange: the smallest of the three", size=11, opacity=svg.FAINT))
    return svg.document(at_score + 44, bottom + 20, f"R = waste x rate x idle, {origin}. " + "; ".join(said), children)


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]).rstrip()


def _cell(tag: str, column: int, text: str) -> str:
    return f'<{tag} style="text-align:{"right" if column else "left"};padding:2px 14px 2px 0">{html.escape(text)}</{tag}>'


def _table(rows: list[tuple[str, ...]]) -> Shown:
    """Rows of text, the first of them the head, as an HTML table and as aligned columns; numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    body = ""
    for number, row in enumerate(rows):
        cells = "".join(_cell("td" if number else "th", column, text) for column, text in enumerate(row))
        body += f'<tr style="background:transparent">{cells}</tr>'
    return Shown(f'<table style="border-collapse:collapse;margin:0">{body}</table>', "\n".join(_aligned(row, widths) for row in rows))


class Show:
    """The pictures and tables of the lessons; the instance is `sol.show`."""

    def sectors(self, report: Any, line: int | None = None) -> Shown:
        """One request of the hottest memory instruction (of `line`, where one is given) and the sectors it pulls."""
        return _picture(figures.sectors(report.run, line, fetch_bytes=report.device.dram_fetch_bytes))

    def banks(self, report: Any, words: Sequence[int] = (), line: int | None = None) -> Shown:
        """One request of the busiest access to shared memory (of `line`): the word that each lane asks for, and its bank.

        words   of each lane, one for 4-byte elements. Drawn where the engine's count agrees; else, and without words, the counts are.
        """
        from solcourse.bank_maps import banks, shared_accesses

        size = next((access.size for access in shared_accesses(report.run, line)), 4)
        return _picture(banks(report.run, [[4 * word for word in words]] if words else [], size, line=line))

    def gauge(self, report: Any) -> Shown:
        """The SOL score with its interval and what is attainable."""
        return _picture(figures.gauge(report))

    def bounds(self, report: Any) -> Shown:
        """What each resource alone would take; the longest wins."""
        return _picture(figures.bounds(report))

    def roofline(self, *reports: Any) -> Shown:
        """The reports as a path on the roofline of the last one's device; a mapping {name: report} gives them names of their own.

        Raises SolcourseError where there is nothing to draw.
        """
        steps: list[Any] = []
        for item in reports:
            steps += [replace(report, kernel=name) for name, report in item.items()] if isinstance(item, Mapping) else [item]
        if not steps:
            raise SolcourseError("A roofline needs at least one report: sol.show.roofline(report).")
        return _picture(figures.roofline(steps[-1].device, steps))

    def explained(self, reports: Mapping[str, Any]) -> Shown:
        """R = waste x rate x idle, one row for each named report."""
        return _picture(causes(reports))

    def what_if(self, report: Any) -> Shown:
        """The same launch on every device the course knows."""
        from solcourse import what_if_figures

        return _picture(what_if_figures.devices(report.on_all()))

    def occupancy(self, report: Any) -> Shown:
        """How many warps an SM holds at once, and what stops it from holding more.

        Raises SolcourseError for a report without an occupancy.
        """
        from solcourse import occupancy_figures

        return _picture(occupancy_figures.of_report(report))

    def tiles(self, *reports: Any) -> Shown:
        """What an FMA costs in launches: words from shared memory and from memory. Mappings {name: report} give names of their own."""
        from solcourse.tile_figures import of_report, table

        named = [item if isinstance(item, Mapping) else {item.kernel: item} for item in reports]
        return _picture(table([of_report(name, report) for group in named for name, report in group.items()]))

    def lanes(self, report: Any) -> Shown:
        """How many of a warp's 32 lanes take part in the instructions of each source line, on average."""
        from solcourse import lane_figures

        return _picture(lane_figures.averages(report.lines))

    def timeline(self, report: Any, cycles: int | None = None, start: int | None = None) -> Shown:
        """What the warps of one scheduler do, cycle by cycle, predicted: `cycles` of them from cycle `start` of the launch on.

        Raises SolcourseError for a report without an engine run.
        """
        from solcourse import timeline_figures

        return _picture(timeline_figures.of_report(report, cycles, start))

    def lines(self, report: Any) -> Shown:
        """The source lines with what each costs, hottest first."""
        from solcourse.report_text import line_table

        head, rows = line_table(report)
        return _table([("source", *head), *((hot.text, *cells) for cells, hot in rows)])

    def ledger(self, **ledgers: Work) -> Shown:
        """Ledgers side by side: every tensor that crosses the memory bus, with its bytes, and the sums."""
        head, *terms = side_by_side(**ledgers)
        rows = [head, *((term, *(units.size(float(cell)) for cell in cells)) for term, *cells in terms)]
        rows.append(("FLOPs", *(units.flops(work.total_flops) for work in ledgers.values())))
        return _table(rows)

    def bytes(self, *, device: str | Device = DEFAULT_DEVICE, **ledgers: Any) -> Shown:
        """Ledgers as bars, tensor by tensor, with T_SOL and what the last saves of the first: each a Work, or a list with one a launch."""
        from solcourse import ledger_figures

        return _picture(ledger_figures.ledger(ledgers, device))

    def devices(self, *names: str | Device) -> Shown:
        """Data-sheet peaks of the named devices, or of all: FLOP/s, bytes/s, and the ridge point between them."""
        from solcourse.hardware import device
        from solcourse.roofline import ridge_point

        chosen = [device(name) for name in names] or devices()
        rows: list[tuple[str, ...]] = [("device", "fp32", "DRAM", "ridge point")]
        for gpu in chosen:
            rates = (units.flops_per_s(gpu.fp32_flops_per_s), units.bytes_per_s(gpu.dram_bytes_per_s), units.intensity(ridge_point(gpu)))
            rows.append((gpu.name, *rates))
        return _table(rows)


show = Show()
