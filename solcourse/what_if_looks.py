"""AllDevices and Sensitivity as text, HTML and JSON: sentences and a table each, and in HTML the figure that says the same."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solcourse import report_html, report_text, units, what_if_figures
from solcourse import report_words as words
from solcourse.errors import SolcourseError
from solcourse.figures import bound_words, interval
from solcourse.report_json import _plain
from solcourse.what_if import Move, Point, Sensitivity, Sweep

if TYPE_CHECKING:
    from solcourse.all_devices import AllDevices
    from solcourse.occupancy import Occupancy
    from solcourse.report import Report

DEVICES = ("device", "predicted", "interval", "bound", "SOL score", "attainable", "occupancy", "limited by")
SWEEPS = ("resource", "now", "1 % more of it", "a quarter", "half", "double", "4 times", "no limit", "another bound wins")
SHOWN = (0.25, 0.5, 2.0, 4.0)
SMALL = 0.005  # percent: below it an elasticity reads as none


# --------------------------------------------------------------------------------------------------------------- words
def _title(report: Report) -> str:
    launch = words.launch_in_words(report)
    return f"predicted, {report.cache} cache{'; ' + launch if launch else ''}"


def _sampled(report: Report) -> list[str]:
    return [said for said in (words.sampling_in_words(report),) if said]


def _occupancy(held: Occupancy | None) -> tuple[str, str]:
    return (units.percent(held.fraction), held.limiter.replace("_", " ")) if held else (units.UNKNOWN, "")


def device_rows(shown: AllDevices) -> list[tuple[str, ...]]:
    """The cells of DEVICES, fastest first; the device of the report that it came from is marked with a star."""
    rows: list[tuple[str, ...]] = []
    for report in shown:
        star = " *" if report.device == shown.source.device else ""
        low, high = report.interval_s
        times = (units.seconds(report.time_s), f"{units.seconds(low)} to {units.seconds(high)}")
        scores = (units.score(report.sol_score), units.score(report.attainable_score))
        rows.append((report.device.name + star, *times, bound_words(report.bound), *scores, *_occupancy(report.occupancy)))
    return rows


def _device_notes(shown: AllDevices) -> list[str]:
    source = shown.source
    said = [f"* the device of the report; the kernel ran once, on the engine, and every time is predicted from the same {_counts(source)}."]
    if source.origin == "measured":
        said.append(f"Measured on {source.device.name}: {interval(source)}.")
    if len({report.bound for report in shown}) > 1:
        said.append("A SOL score says how much of its own device a kernel uses: a slower device may well have the better score.")
    return said + _sampled(source)


def _unfit(shown: AllDevices) -> list[str]:
    """Where it cannot run, reason by reason."""
    by_reason: dict[str, list[str]] = {}
    for missing in shown.unfit:
        by_reason.setdefault(missing.reason, []).append(missing.device.name)
    return [f"Cannot run on {', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _counts(report: Report) -> str:
    return "counts" if report.sampled_blocks is None else f"counts of {report.sampled_blocks:,} blocks"


def change_words(elasticity: float) -> str:
    """What 1 % more of a resource does to the time: "0.72 % less"."""
    if abs(elasticity) < SMALL:
        return "no change"
    return f"{units.score(abs(elasticity))} % {'less' if elasticity < 0 else 'more'}"


def move_words(sweep: Sweep, bound: str) -> str:
    """Which bound takes over with more and with less of a resource: "latency from 1.97x; L2 bandwidth below 0.41x"."""
    about = "about " if sweep.resource.replays else ""

    def said(move: Move, side: str) -> str:
        return f"{bound_words(move.bound)} {side} {about}{units.factor(move.factor)}"

    parts = [said(sweep.up, "from")] if sweep.up else []
    if not sweep.up and sweep.endless.bound not in ("", bound):
        parts.append(f"{bound_words(sweep.endless.bound)} somewhere beyond 4x")
    parts += [said(sweep.down, "below")] if sweep.down else []
    return "; ".join(parts) or "none"


def _time(point: Point | None) -> str:
    if point is None:
        return ""
    return "no block fits" if point.time_s is None else units.seconds(point.time_s)


def sweep_rows(shown: Sensitivity) -> list[tuple[str, ...]]:
    """The cells of SWEEPS for the resources that matter, the one that pays most first."""
    rows: list[tuple[str, ...]] = []
    for sweep in shown.sweeps:
        if sweep.matters:
            times = (_time(sweep.at(factor)) for factor in SHOWN)
            changed = (change_words(sweep.elasticity), *times, _time(sweep.endless), move_words(sweep, shown.report.bound))
            rows.append((sweep.resource.words, sweep.now, *changed))
    return rows


def sayings(shown: Sensitivity) -> list[str]:
    """What the table says, in sentences."""
    report, said = shown.report, []
    best = shown.sweeps[0]
    if best.elasticity < -SMALL:
        said.append(
            f"1 % more {best.resource.words} takes {units.score(-best.elasticity)} % off the predicted time on {report.device.name}: "
            f"no other resource does more."
        )
    nearest = shown.nearest
    if nearest is None:
        said.append(
            f"No resource of {report.device.name} moves the bound, up to four times as much of it: {bound_words(report.bound)} stays."
        )
    else:
        sweep, move = nearest
        said.append(
            f"The bound moves first with {units.factor(move.factor)} the {sweep.resource.words}: then {bound_words(move.bound)} wins."
        )
    start = report.bounds.get("launch", 0.0)
    if start > 0.05 * report.time_s:
        said.append(f"{units.seconds(start)} of {units.seconds(report.time_s)} are the kernel's start, which nothing here changes.")
    idle = [sweep.resource.words for sweep in shown.sweeps if not sweep.matters]
    if idle:
        said.append(f"Without effect from a quarter to four times and beyond: {', '.join(idle)}.")
    rising = [sweep.resource.words for sweep in shown.sweeps if _rises(sweep)]
    if rising:
        why = "the blocks then fill the last wave worse, or share an SM with fewer others"
        said.append(f"More is not always faster with {' and '.join(rising)}: {why}.")
    return said


def _rises(sweep: Sweep) -> bool:
    times = [point.time_s for point in (*sweep.points, sweep.endless) if point.time_s is not None]
    return any(after > before * (1 + EPS) for before, after in zip(times, times[1:], strict=False))


EPS = 1e-3


def _scales(shown: Sensitivity) -> list[str]:
    said = [f"{sweep.resource.words}: {sweep.resource.scales}." for sweep in shown.sweeps]
    slopes = "Slopes are taken at 1 for rates and the clock, and between half and double where caches and waves act in jumps."
    return [*said, f"One resource at a time. {slopes}"]


def _base(shown: Sensitivity) -> str:
    report = shown.report
    return f"Now {interval(report)}, {bound_words(report.bound)} wins; all times are predicted, each with an interval as wide"


# ---------------------------------------------------------------------------------------------------------------- text
def _columns(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]) -> Iterator[str]:
    """A table as aligned lines; the columns in `left` to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        cells = [cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        yield ("  " + "  ".join(cells)).rstrip()


def devices_text(shown: AllDevices) -> str:
    """The comparison as text, at most a little over 110 columns."""
    out = [f"{shown.source.kernel} on {len(shown)} GPUs, fastest first: {_title(shown.source)}", ""]
    out += _columns(DEVICES, device_rows(shown), (0, 3, 7)) if shown.reports else ["  It can run on none of them."]
    out.append("")
    for said in [*_unfit(shown), *_device_notes(shown)]:
        out += report_text._wrapped(said, "  ")
    return "\n".join(out)


def sensitivity_text(shown: Sensitivity) -> str:
    """The sweeps as text: the sentences, then a table."""
    report = shown.report
    out = [f"{report.kernel} on {report.device.name}: what its time depends on; {_title(report)}"]
    out += [*report_text._wrapped(_base(shown), "  "), ""]
    for said in [*sayings(shown), *_sampled(report)]:
        out += report_text._wrapped(said)
    rows = sweep_rows(shown)
    if rows:
        out += ["", *_columns(SWEEPS, rows, (0, 8))]
    out += ["", "what changes with what"]
    for said in _scales(shown):
        out += report_text._wrapped(said)
    return "\n".join(out)


# ---------------------------------------------------------------------------------------------------------------- HTML
def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int], caption: str) -> str:
    cells = [[escape(cell) for cell in row] for row in rows]
    aligns = ["left" if i in left else "right" for i in range(len(head))]
    return f'<div style="overflow-x:auto">{report_html._table(head, cells, aligns, caption)}</div>'


def _wrap(parts: Sequence[str]) -> str:
    return f'<div class="sol-report" style="line-height:1.45;max-width:72em">{"".join(parts)}</div>'


def devices_html(shown: AllDevices) -> str:
    """The comparison as one HTML fragment: figure, the same as a table, and where it cannot run."""
    source = shown.source
    head = f"<div><strong>{escape(source.kernel)}</strong> on {len(shown)} GPUs: {escape(_title(source))}</div>"
    table = _table(DEVICES, device_rows(shown), (0, 3, 7), "Predicted time by GPU, fastest first") if shown.reports else ""
    return _wrap([head, what_if_figures.devices(shown), table, report_html._list([*_unfit(shown), *_device_notes(shown)])])


def sensitivity_html(shown: Sensitivity) -> str:
    """The sweeps as one HTML fragment: the sentences, the figure, the same as a table, and what scales with what folded away."""
    report = shown.report
    title = f"<strong>{escape(report.kernel)}</strong> on {escape(report.device.name)}: what its time depends on; {escape(_title(report))}"
    rows = sweep_rows(shown)
    said = report_html._list([_base(shown), *sayings(shown), *_sampled(report)])
    table = _table(SWEEPS, rows, (0, 8), f"Predicted time on {report.device.name} with more or less of one resource") if rows else ""
    picture = what_if_figures.sensitivity(shown) if rows else ""
    return _wrap(
        [f"<div>{title}</div>", said, picture, table, report_html._folded("What changes with what", report_html._list(_scales(shown)))]
    )


# ---------------------------------------------------------------------------------------------------------------- JSON
def devices_dict(shown: AllDevices) -> dict[str, Any]:
    """Seconds, fractions and counts by device, fastest first."""

    def row(report: Report) -> dict[str, Any]:
        names = ("time_s", "interval_s", "bound", "bounds", "sol_time_s", "sol_score", "attainable_score", "registers", "registers_source")
        return {"device": report.device.name, **{name: _plain(getattr(report, name)) for name in names}} | {
            "occupancy": _plain(report.occupancy),
            "traffic": _plain(report.traffic),
        }

    unfit = [{"device": missing.device.name, "reason": missing.reason} for missing in shown.unfit]
    source = shown.source
    head: dict[str, Any] = {"kernel": source.kernel, "origin": "predicted", "cache": source.cache, "report_of": source.device.name}
    head |= {"grid": list(source.grid), "block": list(source.block), "sampled_blocks": source.sampled_blocks}
    return {**head, "devices": [row(report) for report in shown], "cannot_run": unfit}


def sensitivity_dict(shown: Sensitivity) -> dict[str, Any]:
    """Seconds by factor for each resource; an infinite factor is left out and called "endless"."""

    def point(one: Point) -> dict[str, Any]:
        return {"factor": one.factor if math.isfinite(one.factor) else None, "time_s": one.time_s, "bound": one.bound}

    def row(sweep: Sweep) -> dict[str, Any]:
        return {
            "resource": sweep.resource.name,
            "words": sweep.resource.words,
            "now": sweep.now,
            "elasticity": sweep.elasticity,
            "points": [point(one) for one in sweep.points],
            "endless": point(sweep.endless),
            "up": _plain(sweep.up),
            "down": _plain(sweep.down),
            "scales": sweep.resource.scales,
        }

    report = shown.report
    head: dict[str, Any] = {"kernel": report.kernel, "device": report.device.name, "origin": "predicted", "cache": report.cache}
    head |= {"time_s": report.time_s, "interval_s": list(report.interval_s), "bound": report.bound}
    return {**head, "resources": [row(sweep) for sweep in shown.sweeps]}


# ---------------------------------------------------------------------------------------------------------------- files
def save(shown: AllDevices | Sensitivity, path: str | Path) -> Path:
    """Writes `shown` as .html, .txt or .json. Raises SolcourseError for another ending, OSError where the file cannot be written."""
    target = Path(path)
    if target.suffix not in (".html", ".txt", ".json"):
        raise SolcourseError(f"It is saved as .html, .txt or .json, not as {target.name!r}.")
    if target.suffix == ".html":
        fragment = sensitivity_html(shown) if isinstance(shown, Sensitivity) else devices_html(shown)
        title = f"{shown.report.kernel} on {shown.report.device.name}" if isinstance(shown, Sensitivity) else shown.source.kernel
        content = report_html._PAGE.format(title=escape(f"{title}, predicted"), body=fragment)
    elif target.suffix == ".txt":
        content = f"{shown}\n"
    else:
        content = json.dumps(shown.to_dict(), allow_nan=False, indent=1, ensure_ascii=False) + "\n"
    target.write_text(content, encoding="utf-8")
    return target
