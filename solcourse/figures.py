"""Pictures of results: pure functions, record -> SVG string. The definition of what each picture shows.

gauge, bounds: one Report. roofline: a path of Reports. sector_map, sectors, bank_map: one warp's access (access_maps.py, bank_maps.py);
one kernel on many devices: what_if_figures.py. Every picture carries its numbers in words, in its `aria-label`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from solcourse import roofline as sol
from solcourse import svg, units
from solcourse.access_maps import sector_map, sectors
from solcourse.bank_maps import bank_map
from solcourse.diagnosis import float32_sol_time_s, ranked_bounds, ties
from solcourse.hardware import Device
from solcourse.hardware import device as find_device

if TYPE_CHECKING:
    from solcourse.report import Report

__all__ = ["bank_map", "bounds", "gauge", "roofline", "sector_map", "sectors"]

# Plain words for the model's bounds
BOUND_WORDS = {
    "issue": "instruction issue",
    "register_file": "register file",
    "lsu": "load/store unit",
    "l1": "L1 and shared data",
    "fill": "L1 fill",
    "l2": "L2 bandwidth",
    "dram": "DRAM bandwidth",
    "latency": "latency",
    "atomic": "atomics",
    "constant": "constant cache",
    "launch": "kernel start",
}
MOST_BARS = 8
Scale = Callable[[float], float]


def bound_words(name: str) -> str:
    """A bound in plain words: "dram" is "DRAM bandwidth", "pipe_fma" is "fma pipe"."""
    return f"{name.removeprefix('pipe_')} pipe" if name.startswith("pipe_") else BOUND_WORDS.get(name, name)


def interval(report: Report) -> str:
    """The time with its interval: "412 µs (329 µs to 515 µs)"."""
    low, high = report.interval_s
    return f"{units.seconds(report.time_s)} ({units.seconds(low)} to {units.seconds(high)})"


# --------------------------------------------------------------------------------------------------------------- gauge
def gauge(report: Report) -> str:
    """R between 0 and 1, with the ceiling that is attainable on this device and the interval of the prediction."""
    width, left, span, y = 440, 12, 416, 40
    score, ceiling = report.sol_score or 0.0, report.attainable_score or 0.0
    top = max(1.0, 1.05 * score)

    def x(value: float) -> float:
        return left + span * min(max(value / top, 0.0), 1.0)

    low, high = ((report.sol_time_s or 0.0) / t for t in reversed(report.interval_s))
    alarm, binds = score > 1, f"; {bound_words(report.bound)} binds" if report.bound else ""
    light = units.seconds(report.sol_time_s) + (" in float64" if float32_sol_time_s(report) is not None else "")
    children = [
        svg.text(left, 25, units.score(score) if report.sol_score is not None else "?", size=24, font_weight="bold"),
        svg.text(left + 92, 25, f"SOL score, {report.origin}" + (": impossible" if alarm else "")),
        svg.text(left + span, 25, report.device.name, size=11, anchor="end"),
        svg.rect(left, y, span, 18, opacity=svg.BEHIND),
        svg.rect(left, y, x(score) - left, 18, svg.ORANGE if alarm else svg.BLUE),
        svg.path(f"M{svg.num(x(low))} {y + 9}H{svg.num(x(high))}M{svg.num(x(low))} {y + 5}v8M{svg.num(x(high))} {y + 5}v8", stroke=svg.INK)
        if high > low
        else "",
        svg.line(x(ceiling), y - 5, x(ceiling), y + 23, svg.GREEN, stroke_width=3) if ceiling else "",
        *_gauge_ticks(x, y + 34, ceiling),
        svg.text(left, y + 54, f"{interval(report)}; T_SOL {light}{binds}", size=11),
    ]
    label = (
        f"SOL score {units.score(report.sol_score)} {report.origin} on {report.device.name}, "
        f"attainable {units.score(report.attainable_score)}; "
        f"time {interval(report)}, T_SOL {light}{binds}"
    )
    return svg.document(width, y + 62, label, children)


def _gauge_ticks(x: Scale, y: float, ceiling: float) -> list[str]:
    """0, 0.5, 1 and the name of the ceiling, on whichever side of its mark there is room; 0.5 gives way to it."""
    name, long = f"attainable {units.score(ceiling)}", 96
    to_left = x(ceiling) - 6 - long > x(0) + 12
    start = x(ceiling) - 6 - long if to_left else x(ceiling) + 6
    taken = ceiling > 0 and start - 14 < x(0.5) < start + long + 14
    ticks = [svg.text(x(0), y, "0", size=11, opacity=svg.FAINT)]
    if not to_left or x(ceiling) < x(1) - 6:
        ticks.append(svg.text(x(1), y, "1", size=11, anchor="end", opacity=svg.FAINT))
    if not taken:
        ticks.append(svg.text(x(0.5), y, "0.5", size=11, anchor="middle", opacity=svg.FAINT))
    if ceiling:
        ticks.append(svg.text(x(ceiling) + (-6 if to_left else 6), y, name, size=11, anchor="end" if to_left else None))
    return ticks


# -------------------------------------------------------------------------------------------------------------- bounds
def bounds(report: Report, least: float = 0.01) -> str:
    """What each resource alone would take, longest first, beside T_SOL and the whole time. The winner is orange.

    least   bounds below this part of the longest are left out
    """
    shown = shown_bounds(report, least)
    left, span, row, top = 150, 200, 20, 26
    most = max([report.time_s, *(t for _, t in shown)])

    def x(time_s: float) -> float:
        return left + span * time_s / most

    children = [
        svg.text(12, 15, f"Bounds, {report.origin}", font_weight="bold"),
        svg.text(440, 15, report.device.name, size=11, anchor="end"),
    ]
    for n, (name, time_s) in enumerate(shown):
        y = top + n * row
        wins = name == report.bound
        place = " wins" if wins else " ties" if ties(report, name) else ""
        children.append(svg.text(left - 6, y + 12, bound_words(name), anchor="end", font_weight="bold" if wins else None))
        children.append(svg.rect(left, y + 1, x(time_s) - left, row - 6, svg.ORANGE if wins else svg.BLUE))
        children.append(svg.text(left + span + 12, y + 12, units.seconds(time_s) + place))
    bottom = top + len(shown) * row + 2
    light = x(report.sol_time_s or 0.0)
    children += [
        svg.line(light, top - 2, light, bottom, svg.GREEN, stroke_width=2),
        svg.line(x(report.time_s), top - 2, x(report.time_s), bottom, stroke_dasharray="3 3"),
        svg.line(12, bottom + 13, 26, bottom + 13, svg.GREEN, stroke_width=2),
        svg.text(31, bottom + 17, f"T_SOL {units.seconds(report.sol_time_s)}", size=11),
        svg.line(left, bottom + 13, left + 14, bottom + 13, stroke_dasharray="3 3"),
        svg.text(left + 19, bottom + 17, f"{report.origin} {units.seconds(report.time_s)}", size=11),
    ]
    said = ", ".join(f"{bound_words(name)} {units.seconds(time_s)}" for name, time_s in shown)
    label = (
        f"Bounds {report.origin} on {report.device.name}: {bound_words(report.bound)} wins. {said}. "
        f"T_SOL {units.seconds(report.sol_time_s)}, time {units.seconds(report.time_s)}"
    )
    return svg.document(452, bottom + 26, label, children)


def shown_bounds(report: Report, least: float = 0.01) -> list[tuple[str, float]]:
    """The bounds worth a bar, longest first: at least `least` x the longest, at most MOST_BARS, always the winner, before its ties."""
    ranked = ranked_bounds(report, least)
    return [row for n, row in enumerate(ranked) if n < MOST_BARS or row[0] == report.bound]


# ------------------------------------------------------------------------------------------------------------ roofline
def roofline_points(attempts: Sequence[Report]) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """(attempts, their speeds of light) as (x, y) points of a roofline on which both kinds of loss can be seen. All need some work.

    With FLOPs, an attempt is at (needed FLOPs / DRAM bytes it moved, needed FLOPs / its time), its speed of light at
    (needed FLOPs / compulsory bytes, needed FLOPs / T_SOL). Where DRAM binds, the way to the right is waste, the way up to the roof
    is rate x idle. Where no attempt has FLOPs, bytes take their place: x is useful bytes / moved bytes, the light is at x = 1.
    """
    points, lights = [], []
    by_bytes = counts_bytes(attempts)
    for report in attempts:
        needed = float(report.work.compulsory_bytes if by_bytes else report.work.total_flops)
        compulsory = float(report.work.compulsory_bytes) or 1.0
        points.append((needed / (report.dram_bytes or compulsory), needed / report.time_s))
        lights.append((needed / compulsory, needed / (report.sol_time_s or report.time_s)))
    return points, lights


def drawable(attempts: Iterable[Report]) -> list[Report]:
    """The attempts that have a place on a roofline: those whose work is known and not empty."""
    return [report for report in attempts if report.sol_time_s]


def counts_bytes(attempts: Sequence[Report]) -> bool:
    """Whether the roofline of these attempts counts useful bytes, because none of them has FLOPs."""
    return not any(report.work.total_flops for report in attempts)


def main_kind(attempts: Sequence[Report], default: str = "fp32") -> str:
    """The kind of FLOP that would take the last attempt longest; it picks the flat roof."""
    for report in reversed(attempts):
        flops = {kind: n / report.device.peak_flops_per_s(kind) for kind, n in report.work.flops.items() if n}
        if flops:
            return max(flops, key=lambda kind: flops[kind])
    return default


def _log_scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (end - start) * (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))


def roofline_limits(gpu: Device, attempts: Sequence[Report]) -> tuple[tuple[float, float], tuple[float, float]]:
    """((lowest, highest x), (lowest, highest y)) that hold every point and some of both roofs."""
    points, lights = roofline_points(attempts)
    roof = gpu.dram_bytes_per_s
    by_bytes = bool(attempts) and counts_bytes(attempts)
    ridge = 1.0 if by_bytes else sol.ridge_point(gpu, main_kind(attempts))
    xs = [x for x, _ in (*points, *lights)] or [ridge]
    ys = [y for _, y in (*points, *lights)] or [roof * ridge]
    low = min(xs) / 2 if by_bytes else min(min(xs) / 2, ridge / 16)
    high = 2.0 if by_bytes else max(2 * max(xs), 8 * ridge)
    return (low, max(high, 1.2 * max(xs))), (min(min(ys) / 2, roof * low), max(ys + [roof * ridge]) * 2)


def log_ticks(low: float, high: float, steps: Sequence[int] = (1, 2, 5)) -> list[float]:
    """1, 2, 5 times powers of ten inside the limits, or only powers of ten where that gives three and more."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**n for n in decades if low <= 10.0**n <= high]
    return tens if len(tens) >= 3 else [m * 10.0**n for n in decades for m in steps if low <= m * 10.0**n <= high]


def round_rate(text: str) -> str:
    """A rate that is a round number, without its zeros: "20.0 TFLOP/s" is "20 TFLOP/s"."""
    number, _, unit = text.partition(" ")
    return f"{float(number):g} {unit}"


def _axes(x: Scale, y: Scale, xlim: tuple[float, float], ylim: tuple[float, float], by_bytes: bool) -> list[str]:
    left, right, top, bottom = x(xlim[0]), x(xlim[1]), y(ylim[1]), y(ylim[0])
    rate = units.bytes_per_s if by_bytes else units.flops_per_s
    xticks, yticks = log_ticks(*xlim), log_ticks(*ylim)
    grid = "".join(f"M{svg.num(x(t))} {svg.num(bottom)}V{svg.num(top)}" for t in xticks)
    grid += "".join(f"M{svg.num(left)} {svg.num(y(t))}H{svg.num(right)}" for t in yticks)
    labels = [svg.text(x(t), bottom + 14, f"{t:g}", anchor="middle") for t in xticks]
    labels += [svg.text(left - 5, y(t) + 4, round_rate(rate(t)), anchor="end") for t in yticks]
    axis = "useful bytes / bytes moved by DRAM" if by_bytes else "needed FLOP / bytes moved by DRAM"
    return [
        svg.path(grid, stroke=svg.INK, opacity=svg.PALE),
        svg.group(labels, font_size=11, opacity=svg.FAINT),
        svg.text(right, bottom + 30, axis, size=11, anchor="end"),
    ]


def _roofs(x: Scale, y: Scale, gpu: Device, kind: str, xlim: tuple[float, float], by_bytes: bool) -> list[str]:
    roof = gpu.dram_bytes_per_s
    ridge = 1.0 if by_bytes else sol.ridge_point(gpu, kind)
    corner = (x(ridge), y(roof * ridge))
    children = [svg.polyline([(x(xlim[0]), y(roof * xlim[0])), corner, (x(xlim[1]), corner[1])], stroke_width=2)]
    if not by_bytes:  # words beside the ridge: the far end is where compute-bound kernels have their star
        peak = f"{kind} {units.flops_per_s(roof * ridge)}"
        room = corner[0] + 120 < x(xlim[1])
        children.append(svg.text(corner[0] + (4 if room else -4), corner[1] - 7, peak, size=11, anchor=None if room else "end"))
    x1, y1 = x(xlim[0]), y(roof * xlim[0])
    angle = math.degrees(math.atan2(y(roof * ridge) - y1, x(ridge) - x1))
    at = (x1 + 0.1 * (x(ridge) - x1), y1 + 0.1 * (y(roof * ridge) - y1) - 7)
    turn = f"rotate({svg.num(angle)} {svg.num(at[0])} {svg.num(at[1])})"
    children.append(svg.text(*at, f"DRAM {units.bytes_per_s(roof)}", size=11, transform=turn))
    return children


def _path(x: Scale, y: Scale, attempts: Sequence[Report]) -> list[str]:
    points, lights = roofline_points(attempts)
    placed = [(x(px), y(py)) for px, py in points]
    goal = lights[-1]
    ceiling = (goal[0], goal[1] * (attempts[-1].attainable_score or 1.0))
    cx, cy = x(ceiling[0]), y(ceiling[1])
    children = [svg.line(cx - 14, cy, cx + 14, cy, svg.GREEN, stroke_width=2), svg.star(x(goal[0]), y(goal[1]), 9, svg.GREEN)]
    if len(placed) > 1:
        children.append(svg.polyline(placed, stroke_width=1.2, opacity=svg.FAINT))
    for n, (px, py) in enumerate(placed):
        last = n == len(placed) - 1
        fill = svg.ORANGE if last else svg.BLUE
        children.append(svg.circle(px, py, 7.5 if last else 7, fill))
        if len(placed) < 100:
            children.append(svg.text(px, py + 4, str(n + 1), size=11, anchor="middle", fill=svg.ON[fill]))
    return children


def roofline(device: str | Device, attempts: Iterable[Report] = ()) -> str:
    """The roofline of `device` with the path of the attempts on it, the last one orange. See `roofline_points`.

    The star is the last attempt's speed of light, the green bar under it what is attainable. All attempts should be for `device`.
    """
    gpu, attempts = find_device(device), drawable(attempts)
    by_bytes = bool(attempts) and counts_bytes(attempts)
    kind = main_kind(attempts)
    width, height, left = 440, 264, 74
    xlim, ylim = roofline_limits(gpu, attempts)
    x, y = _log_scale(*xlim, left, width - 12), _log_scale(*ylim, height - 40, 24)
    children = [
        svg.text(12, 15, f"Roofline, {attempts[-1].origin if attempts else 'data sheet'}", font_weight="bold"),
        svg.text(width - 12, 15, gpu.name, size=11, anchor="end"),
        *_axes(x, y, xlim, ylim, by_bytes),
        *_roofs(x, y, gpu, kind, xlim, by_bytes),
    ]
    said = f"Roofline of {gpu.name}: DRAM {units.bytes_per_s(gpu.dram_bytes_per_s)}"
    said += "" if by_bytes else f", {kind} {units.flops_per_s(gpu.peak_flops_per_s(kind))}"
    if attempts:
        children += _path(x, y, attempts)
        title, steps = attempt_names(attempts)
        if attempts[-1].bound:
            steps[-1] += f" ({bound_words(attempts[-1].bound)} binds)"
        rows = _wrapped([f"{title}: {steps[0]}", *steps[1:]] if title else steps, 72)
        children += [svg.text(12, height + 8 + 15 * n, row, size=11) for n, row in enumerate(rows)]
        height += 15 * (len(rows) - 1)
        said += f". SOL scores of the attempts: {', '.join(steps)}; attainable {units.score(attempts[-1].attainable_score)}"
    return svg.document(width, height + 16, said, children)


def attempt_names(attempts: Sequence[Report]) -> tuple[str, list[str]]:
    """(the name that all share, "" where they differ; "1: name 0.65" for each, without a shared name).

    Attempts of one kernel that need different FLOPs per byte are told apart by these.
    """
    names = {report.kernel for report in attempts}
    shared = names.pop() if len(names) == 1 and len(attempts) > 1 else ""
    needs = [units.intensity(r.work.arithmetic_intensity) for r in attempts]
    apart = bool(shared) and len(set(needs)) > 1
    each = []
    for n, (report, need) in enumerate(zip(attempts, needs, strict=True), 1):
        name = "" if shared else f"{svg.shorten(report.kernel, 24)} "
        each.append(f"{n}: {name}{units.score(report.sol_score)}{f' at {need}' if apart else ''}")
    return svg.shorten(shared, 24), each


def _wrapped(steps: Sequence[str], length: int, most: int = 3) -> list[str]:
    """The steps as rows of at most `length` characters; where they need more than `most` rows, the first ones give way to an ellipsis."""
    rows: list[str] = []
    for step in steps:
        if rows and len(f"{rows[-1]} · {step}") <= length:
            rows[-1] += f" · {step}"
        else:
            rows.append(step)
    return rows if len(rows) <= most else ["… " + rows[-most], *rows[1 - most :]]
