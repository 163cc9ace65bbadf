"""Pictures of AllDevices and Sensitivity: pure functions, record -> SVG string.

devices: one kernel's predicted time on many GPUs. sensitivity: the time against the factor on one resource, a line for each.
Colour never says anything alone: a bound has a shape and is named in its row, a line is labelled and dashed in its own way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from solcourse import svg, units
from solcourse.figures import bound_words, interval, log_ticks, round_rate

if TYPE_CHECKING:
    from solcourse.all_devices import AllDevices
    from solcourse.report import Report
    from solcourse.what_if import Sensitivity, Sweep

PURPLE, AMBER, SKY = "#B8639A", "#B57D00", "#2E8FCB"  # Okabe and Ito's hues, dark enough for a white page
Scale = Callable[[float], float]


class Family(NamedTuple):
    """Bounds that are drawn alike."""

    words: str
    shape: str  # path data around (0, 0)
    color: str


_SQUARE, _DIAMOND, _TRIANGLE = "M-4-4h8v8h-8z", "M0-6L6 0L0 6L-6 0z", "M0-5.5L5.5 4.5H-5.5z"
_DOT, _CROSS, _BAR = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z", "M-2-5h4v3h3v4h-3v3h-4v-3h-3v-4h3z", "M-2-6h4v12h-4z"
FAMILIES = {
    "dram": Family("DRAM bandwidth", _DOT, svg.BLUE),
    "cache": Family("caches", _SQUARE, svg.GREEN),
    "core": Family("instructions and pipes", _DIAMOND, svg.ORANGE),
    "latency": Family("latency", _TRIANGLE, PURPLE),
    "atomic": Family("atomics", _CROSS, AMBER),
    "launch": Family("kernel start", _BAR, svg.INK),
}
_CACHES = ("l1", "fill", "l2")


def family(bound: str) -> Family:
    """How a bound is drawn."""
    return FAMILIES.get(bound) or FAMILIES["cache" if bound in _CACHES else "core"]


def _mark(x: float, y: float, kind: Family) -> str:
    return svg.path(kind.shape, kind.color, transform=f"translate({svg.num(x)} {svg.num(y)})")


def _named(title: str, children: Sequence[str]) -> list[str]:
    return [f"<title>{escape(title)}</title>", *children]


def _log(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (end - start) * math.log(value / low) / math.log(high / low)


def _time_ticks(low: float, high: float, least: int) -> list[float]:
    """Round times between the limits, closer together where they would be fewer than `least`."""
    ticks = log_ticks(low, high)
    if len(ticks) >= least:
        return ticks
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [t for n in decades for m in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if low <= (t := m * 10.0**n) <= high]


# ------------------------------------------------------------------------------------------------------- on every device
def devices(shown: AllDevices) -> str:
    """A row per GPU, fastest first: the time with its interval on a logarithmic axis, the winning bound's mark, T_SOL as a green bar."""
    width, left, right, row, top = 720, 168, 430, 18, 58
    lights = [r.sol_time_s for r in shown if r.sol_time_s]
    ends = [*lights, *(t for r in shown for t in r.interval_s)] or [1e-6, 1e-5]
    low, high = min(ends) / 1.1, max(ends) * 1.1
    x = _log(low, high, left, right)
    bottom = top + row * (len(shown.reports) + len(shown.unfit))
    ticks = _spaced(_time_ticks(low, high, 2), x, 52)
    grid = "".join(f"M{svg.num(x(t))} {top - 4}V{top + row * len(shown.reports)}" for t in ticks)
    head = [svg.text(x(t), top - 9, round_rate(units.seconds(t)), anchor="middle") for t in ticks]
    head += [svg.text(at, top - 9, name, anchor="end") for at, name in ((500, "time"), (570, "SOL score"))]
    rows: list[str] = []
    for n, report in enumerate(shown):
        rows += _device_row(report, top + n * row + row / 2, x, report.device == shown.source.device)
    for n, missing in enumerate(shown.unfit, len(shown.reports)):
        y = top + n * row + row / 2 + 4
        rows += [
            svg.text(left - 8, y, missing.device.name, anchor="end"),
            svg.text(left, y, f"cannot run: {svg.shorten(missing.reason, 78)}"),
        ]
    title = f"{svg.shorten(shown.source.kernel, 40)}: predicted time by GPU, {shown.source.cache} cache"
    children = [
        svg.text(12, 16, title, font_weight="bold"),
        svg.path(grid, stroke=svg.INK, opacity=svg.PALE),
        svg.group([*head, svg.text(586, top - 9, "bound that wins")], font_size=11, opacity=svg.FAINT),
        svg.group(rows, font_size=11),
        svg.group(_legend(shown, left, bottom + 18), font_size=11),
    ]
    return svg.document(width, bottom + 42, f"{title}. {_devices_said(shown)}", _named(title, children))


def _spaced(ticks: Sequence[float], x: Scale, apart: float) -> list[float]:
    """The ticks without those whose labels would touch the one before."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or x(tick) - x(kept[-1]) >= apart:
            kept.append(tick)
    return kept


def _device_row(report: Report, y: float, x: Scale, marked: bool) -> list[str]:
    bold = "bold" if marked else None
    low, high = (svg.num(x(t)) for t in report.interval_s)
    mid = svg.num(y)
    light = report.sol_time_s
    name = report.device.name
    return [
        svg.text(160, y + 4, name, anchor="end", font_weight=bold),
        svg.line(x(light), y - 6, x(light), y + 6, svg.GREEN, stroke_width=3) if light else "",
        svg.path(f"M{low} {mid}H{high}M{low} {svg.num(y - 3)}v6M{high} {svg.num(y - 3)}v6", stroke=svg.INK),
        _mark(x(report.time_s), y, family(report.bound)),
        svg.text(500, y + 4, units.seconds(report.time_s), anchor="end", font_weight=bold),
        svg.text(570, y + 4, units.score(report.sol_score), anchor="end", font_weight=bold),
        svg.text(586, y + 4, bound_words(report.bound)),
    ]


def _legend(shown: AllDevices, left: float, y: float) -> list[str]:
    """What the marks mean, for those that are drawn, over two rows."""
    families = list(dict.fromkeys(family(report.bound) for report in shown))
    parts, at = [], 20.0
    for kind in families:
        parts += [_mark(at, y - 4, kind), svg.text(at + 10, y, kind.words)]
        at += 26 + 6.2 * len(kind.words)
    parts += [svg.line(20, y + 8, 20, y + 20, svg.GREEN, stroke_width=3), svg.text(30, y + 18, "T_SOL on that device")]
    parts.append(svg.text(left, y + 18, "whiskers: the interval of the prediction. Bold: the device of the report"))
    return parts


def _devices_said(shown: AllDevices) -> str:
    def said(r: Report) -> str:
        return f"{r.device.name} {interval(r)}, {bound_words(r.bound)} wins, SOL score {units.score(r.sol_score)}"

    cannot = [f"Cannot run on {missing.device.name}: {missing.reason}" for missing in shown.unfit]
    return ". ".join([*("; ".join(map(said, shown)),), *cannot])


# ----------------------------------------------------------------------------------------------- more or less of a resource
_LINES = ((svg.BLUE, None), (svg.ORANGE, "8 3"), (svg.GREEN, "2 3"), (PURPLE, "10 3 2 3"), (AMBER, "5 5"), (SKY, "12 4"), (svg.INK, "1 4"))


def sensitivity(shown: Sensitivity) -> str:
    """The predicted time against the factor on one resource, both logarithmic: a labelled line for each resource that matters.

    A ring is where another bound takes over. Resources without effect are named, not drawn.
    """
    report, sweeps = shown.report, [sweep for sweep in shown.sweeps if sweep.matters]
    idle = [sweep.resource.words for sweep in shown.sweeps if not sweep.matters]
    ends = [sweep.resource.words for sweep in sweeps if sweep.points[0].time_s is None]
    width, left, right, top, bottom = 700, 140, 610, 36, 326
    times = [p.time_s for sweep in sweeps for p in sweep.points if p.time_s is not None] or [report.time_s]
    low, high = min(times) / 1.06, max(times) * 1.06
    x, y = _log(0.25, 4.0, left, right), _log(low, high, bottom, top)
    factors = ((0.25, "a quarter"), (0.5, "half"), (1.0, "as it is"), (2.0, "double"), (4.0, "4 times"))
    grid = "".join(f"M{svg.num(x(f))} {bottom}V{top}" for f, _ in factors)
    ticks = _spaced(list(reversed(_time_ticks(low, high, 4))), y, 16)
    grid += "".join(f"M{left} {svg.num(y(t))}H{right}" for t in ticks)
    labels = [svg.text(x(f), bottom + 16, name, anchor="middle") for f, name in factors]
    labels += [svg.text(right + 8, y(t) + 4, round_rate(units.seconds(t))) for t in ticks]
    title = f"{svg.shorten(report.kernel, 36)} on {report.device.name}: predicted time with more or less of one resource"
    foot = f"Ring: another bound takes over. As it is: {units.seconds(report.time_s)}, {bound_words(report.bound)} wins."
    notes = [foot, f"Cross: no block fits with less {' or '.join(ends)}." if ends else "", f"No effect: {', '.join(idle)}." if idle else ""]
    notes = [svg.shorten(note, 92) for note in notes if note]
    children = [
        svg.text(12, 16, title, font_weight="bold"),
        svg.path(grid, stroke=svg.INK, opacity=svg.PALE),
        svg.line(x(1), top, x(1), bottom, opacity=svg.FAINT),
        svg.group(labels, font_size=11, opacity=svg.FAINT),
        *_curves(sweeps, x, y),
        *(svg.text(left, bottom + 36 + 16 * n, note, size=11) for n, note in enumerate(notes)),
    ]
    said = "; ".join(_sweep_said(sweep) for sweep in sweeps)
    label = f"{title}. {foot} {said}{'. No effect: ' + ', '.join(idle) if idle else ''}"
    return svg.document(width, bottom + 28 + 16 * len(notes), label, _named(title, children))


def _curves(sweeps: Sequence[Sweep], x: Scale, y: Scale) -> list[str]:
    """The lines, each with its name at its left end; names that would touch are moved apart and led to their line."""
    starts = []
    for sweep, look in zip(sweeps, _LINES * 2, strict=False):
        points = [(x(min(max(p.factor, 0.25), 4.0)), y(p.time_s)) for p in sweep.points if p.time_s is not None]
        starts.append((points[0][1], sweep, look, points))
    starts.sort(key=lambda start: start[0])
    parts, words = [], []
    places = _apart([start[0] for start in starts], 14, 40, 330)
    for (at, sweep, (color, dash), points), place in zip(starts, places, strict=True):
        parts.append(svg.polyline(points, color, stroke_width=2, stroke_dasharray=dash, stroke_linejoin="round"))
        for move in (sweep.up, sweep.down):
            if move is not None:
                height = _between(points, x(min(max(move.factor, 0.25), 4.0)))
                parts.append(svg.circle(x(min(max(move.factor, 0.25), 4.0)), height, 4, "none", stroke=color, stroke_width=2))
        parts.append(svg.polyline([(126, place), (133, place), (x(0.25), at)], color, stroke_width=1))
        if points[0][0] > x(0.25) + 1:
            left, top = points[0][0] - 4, at - 4
            parts.append(svg.path(f"M{svg.num(left)} {svg.num(top)}l8 8m0-8l-8 8", stroke=color, stroke_width=2))
        words.append(svg.text(123, place + 4, sweep.resource.words, anchor="end"))
    return [*parts, svg.group(words, font_size=11)]


def _apart(wanted: Sequence[float], gap: float, least: float, most: float) -> list[float]:
    """Places near the wanted ones (ascending), at least `gap` apart and between the limits."""
    places: list[float] = []
    for at in wanted:
        places.append(max(at, least, places[-1] + gap if places else least))
    for i in range(len(places) - 1, -1, -1):
        places[i] = min(places[i], most if i == len(places) - 1 else places[i + 1] - gap)
    return places


def _between(points: Sequence[tuple[float, float]], at: float) -> float:
    """The height of a line through the points at x = `at`."""
    for (x1, y1), (x2, y2) in zip(points, points[1:], strict=False):
        if x1 <= at <= x2:
            return y1 + (y2 - y1) * (at - x1) / (x2 - x1) if x2 > x1 else y1
    return points[-1][1] if at > points[-1][0] else points[0][1]


def _sweep_said(sweep: Sweep) -> str:
    ends = [(p.factor, p.time_s) for p in (sweep.points[0], sweep.points[-1])]
    times = ", ".join(f"{units.seconds(t) if t is not None else 'no block fits'} at {units.factor(f)}" for f, t in ends)
    moves = [f"{bound_words(m.bound)} from {units.factor(m.factor)}" for m in (sweep.up, sweep.down) if m is not None]
    return f"{sweep.resource.words} {times}{', ' + ' and '.join(moves) if moves else ''}"
