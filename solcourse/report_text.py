"""A Report as plain text: what a terminal, a log and a screen reader get. At most WIDTH columns where the source lines allow it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from solcourse import measured_words, units
from solcourse import report_words as words
from solcourse.counters import COUNTERS, Counter, ncu_words, value
from solcourse.diagnosis import ties
from solcourse.figures import bound_words, interval, shown_bounds
from solcourse.simt.records import ACCESS_KINDS

if TYPE_CHECKING:
    from solcourse.hot_lines import HotLine
    from solcourse.report import Report

WIDTH = 110
BAR = 40
MOST_LINES = 12


def bar(fraction: float, width: int = BAR) -> str:
    """A bar of block characters, at least a sliver for anything above 0."""
    eighths = round(8 * width * min(max(fraction, 0.0), 1.0))
    if fraction > 0:
        eighths = max(eighths, 1)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def shown(counter: Counter, number: Any) -> str:
    """A counter's value with its unit."""
    forms = {"bytes": units.size, "fraction": units.percent, "seconds": units.seconds}
    if counter.unit == "ratio":
        return f"{number:.2f}".rstrip("0").rstrip(".") if number is not None else units.UNKNOWN
    return forms.get(counter.unit, units.count)(number)


def above_one(report: Report, counter: Counter) -> str:
    """Why more bytes can be used than were fetched; "" where they were not."""
    broadcast = counter.name.endswith("sector_efficiency") and value(report, counter.name) > 1
    return "lanes share bytes (a broadcast)" if broadcast else ""


def counter_rows(report: Report, *, every: bool = False) -> list[tuple[str, str, str, Counter]]:
    """(short name, value, ncu's name on this device, counter) of the counts that are not 0; `every` adds wavefronts of L1 and bytes."""
    rows = []
    for name, counter in COUNTERS.items():
        if not name.startswith("counts.") or not _wanted(report, name, every):
            continue
        number = value(report, name)
        if number:
            rows.append((name.removeprefix("counts."), shown(counter, number), ncu_words(name, float(report.device.cc)), counter))
    return rows


def _wanted(report: Report, name: str, every: bool) -> bool:
    part = name.split(".")
    if part[1] in ACCESS_KINDS:
        if not getattr(report.counts, part[1]).requests:
            return False
        if part[1] == "global_atomic" and part[2] == "sector_efficiency":
            return every  # how many of an atomic's bytes are used tells a beginner nothing
        key_parts = ("requests", "wavefronts", "bank_conflicts") if part[1].startswith("shared") else ("requests", "sectors")
        return every or part[2] in (*key_parts, "sectors_per_request", "sector_efficiency")
    return every or part[1] not in ("pipes", "thread_instructions", "library_flops")


def traffic_rows(report: Report) -> list[tuple[str, str, str, Counter]]:
    """(short name, value, ncu's name on this device, counter) of the caches and DRAM; empty where they are not known."""
    rows = []
    for name, counter in COUNTERS.items() if report.traffic is not None else ():
        if name.startswith("traffic."):
            text = shown(counter, value(report, name))
            rows.append((name.removeprefix("traffic."), text, ncu_words(name, float(report.device.cc)), counter))
    return rows


# requests and sectors: global and local memory; the two columns after "shared" are shared memory's as well
LINE_HEAD = ("line", "share", "requests", "sectors", "per load", "per store", "per atomic", "shared", "waves/req", "conflicts", "FLOPs")
ALWAYS = ("line", "share", "requests", "sectors", "FLOPs")  # so that two kernels' tables can be laid side by side


def _line_cells(hot: HotLine) -> tuple[str, ...]:
    """The columns of LINE_HEAD: sectors per request of each kind; requests, wavefronts and conflicts of shared memory."""
    counts = hot.counts
    loads = counts.global_load + counts.local_load
    stores = counts.global_store + counts.local_store
    every = loads + stores + counts.global_atomic
    shared = counts.shared_load + counts.shared_store + counts.shared_atomic
    return (
        str(hot.line),
        f"{100 * hot.share:.0f} %" if hot.share >= 0.005 else "",
        units.count(every.requests) if every.requests else "",
        units.count(every.sectors) if every.sectors else "",
        *(f"{kind.sectors_per_request:.1f}" if kind.sectors else "" for kind in (loads, stores, counts.global_atomic)),
        units.count(shared.requests) if shared.requests else "",
        f"{shared.wavefronts / shared.requests:.1f}" if shared.requests else "",
        units.count(shared.bank_conflicts) if shared.bank_conflicts else "",
        units.count(counts.total_flops) if counts.total_flops else "",
    )


def line_table(report: Report) -> tuple[tuple[str, ...], list[tuple[tuple[str, ...], HotLine]]]:
    """(head, rows of (cells, line)), hottest first. Columns of a kind of access that no line has are left out."""
    rows = [(_line_cells(hot), hot) for hot in report.hot_lines]
    kept = [i for i, title in enumerate(LINE_HEAD) if title in ALWAYS or any(cells[i] for cells, _ in rows)]
    return tuple(LINE_HEAD[i] for i in kept), [(tuple(cells[i] for i in kept), hot) for cells, hot in rows]


# ------------------------------------------------------------------------------------------------------------ the parts
def _head(report: Report) -> Iterator[str]:
    cache = f", {report.cache} cache" if report.origin == "predicted" or report.timing else ""
    yield f"{report.kernel} on {report.device.name}: {report.origin}{cache}"
    yield from filter(None, (words.launch_in_words(report), words.sampling_in_words(report)))
    yield ""
    launching = f"; launching it takes the host {units.seconds(report.launch_s)} more" if report.launch_s else ""
    yield _fact(f"{report.origin} time", f"{interval(report)}{launching}")
    light = f"T_SOL {units.seconds(report.sol_time_s)} = {words.light_in_words(report)}"
    score = f"{units.score(report.sol_score)} of an attainable {units.score(report.attainable_score)}; {light}"
    yield _fact(f"{report.origin} SOL score", score)
    yield _fact("", _gauge(report))
    yield from _wrapped(words.attainable_in_words(report), _fact("attainable (|)", ""))
    yield from _wrapped(words.float64_warning(report), _fact("WARNING", ""))
    if report.baseline_s is not None:
        anchored = "none: the baseline is at T_SOL" if report.anchored_score is None else units.score(report.anchored_score)
        yield _fact("anchored score", f"{anchored} against a baseline of {units.seconds(report.baseline_s)} (0.5 there, 1 at T_SOL)")
    if report.bound:
        yield _fact("bound", f"{bound_words(report.bound)} ({report.bound})")
    for said in (*([str(report.alarm)] if report.alarm else []), *measured_words.alarms(report)):
        yield from _wrapped(said, _fact("ALARM", ""))


def _measurement(report: Report) -> Iterator[str]:
    rows = measured_words.facts(report)
    if rows:
        yield ""
    for name, said in rows:
        yield from _wrapped(said, _fact(name, ""))
    for said in measured_words.doubts(report):
        yield from _wrapped(said, _fact("in doubt", ""))


def _fact(name: str, value: str) -> str:
    return f"  {name:<19}   {value}"


def _gauge(report: Report) -> str:
    cells = list(bar(report.sol_score or 0.0).ljust(BAR, "·"))
    if report.attainable_score:
        cells[min(round(report.attainable_score * BAR), BAR - 1)] = "|"
    return f"0 {''.join(cells)} 1"


def _bounds(report: Report) -> Iterator[str]:
    ranked = shown_bounds(report)
    if ranked:
        yield ""
        yield words.bounds_title(report)
    longest = max((t for _, t in ranked), default=1.0)
    for name, time_s in ranked:
        place = "  wins" if name == report.bound else "  ties" if ties(report, name) else ""
        yield f"  {bound_words(name):<18} {units.seconds(time_s):>8}  {bar(time_s / longest)}{place}"
    for said in (*words.bounds_in_words(report), words.pipes_in_words(report)):
        yield from _wrapped(said, "  ")


def _explanation(report: Report) -> Iterator[str]:
    rows = words.explanation_in_words(report)
    if rows:
        yield ""
        factors = " x ".join(units.score(v) for _, v, _ in rows)
        yield f"R = waste x rate x idle: {units.score(report.sol_score)} = {factors}"
        for name, number, meaning in rows:
            yield f"  {name:<6} {units.score(number):>5}  {meaning}"
    if words.nsight_in_words(report):
        yield from _wrapped(words.nsight_in_words(report), "  ")


def _resources(report: Report) -> Iterator[str]:
    rows = [
        ("occupancy", "; ".join(words.occupancy_in_words(report))),
        ("one warp", words.waiting_in_words(report)),
        ("registers", words.registers_in_words(report)),
    ]
    if any(said for _, said in rows):
        yield ""
    for name, said in rows:
        yield from _wrapped(said, f"{name:<11}")


def _counters(report: Report) -> Iterator[str]:
    rows = counter_rows(report)
    tables = [
        ("counted exactly", [r for r in rows if r[3].exact]),
        ("estimated", [r for r in rows if not r[3].exact] + traffic_rows(report)),
    ]
    for title, table in tables:
        if table:
            yield ""
            yield f"{title}, and what Nsight Compute calls it"
        for name, text, ncu, counter in table:
            yield f"  {name:<34} {text:>13}   {ncu or '(no counter of its own)'}".rstrip()
            if above_one(report, counter):
                yield f"  {'':<34} {'':>13}   above 100 %: {above_one(report, counter)}"


def _lines(report: Report) -> Iterator[str]:
    head, rows = line_table(report)
    if not rows:
        return
    yield ""
    yield "source lines, hottest first (share of the time: estimated)"
    widths = [max(len(title), *(len(cells[i]) for cells, _ in rows)) for i, title in enumerate(head)]
    yield "  " + "  ".join(title.rjust(w) for title, w in zip(head, widths, strict=True)) + "  source"
    for cells, hot in rows[:MOST_LINES]:
        yield "  " + "  ".join(cell.rjust(w) for cell, w in zip(cells, widths, strict=True)) + f"  {hot.text}"
    if len(rows) > MOST_LINES:
        yield f"  ... and {len(rows) - MOST_LINES} lines more (report.hot_lines)"


def _wrapped(words: str, first: str = "  - ") -> Iterator[str]:
    """The words on lines of at most WIDTH; no line for no words."""
    yield from textwrap.wrap(words, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False)


def _sayings(title: str, sayings: Sequence[str]) -> Iterator[str]:
    if sayings:
        yield ""
        yield title
    for saying in sayings:
        yield from _wrapped(saying)


def text(report: Report) -> str:
    """The whole report as text, most important first."""
    parts = [_head, _measurement, _bounds, _explanation, _resources, _counters, _lines]
    out = [line for part in parts for line in part(report)]
    out += _sayings("what the counts say", [a.text for a in report.advice if a.kind != "alarm"])
    out += _sayings("notes", words.notes(report))
    return "\n".join(out)
