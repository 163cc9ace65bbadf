"""Pictures a person keeps: matplotlib versions of the figures. The only module that imports matplotlib's drawing, and only when called.

Each takes records and returns axes; `axes.figure.savefig("name.png")` keeps it. No pyplot state is touched. Pass `ax` to draw into a figure
of your own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from solcourse import roofline as sol
from solcourse import units
from solcourse.figures import (
    attempt_names,
    bound_words,
    counts_bytes,
    drawable,
    interval,
    log_ticks,
    main_kind,
    roofline_limits,
    roofline_points,
    round_rate,
    shown_bounds,
)
from solcourse.hardware import Device
from solcourse.hardware import device as find_device
from solcourse.svg import BLUE, GREEN, ORANGE, shorten

if TYPE_CHECKING:
    from solcourse.report import Report


def _axes(ax: Any, size: tuple[float, float]) -> Any:
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").subplots()


def _seconds_axis(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda t, _: units.seconds(t)))


def bounds(report: Report, ax: Any = None) -> Any:
    """What each resource alone would take, beside T_SOL and the time with its interval. Returns the axes."""
    ranked = shown_bounds(report)
    ax = _axes(ax, (6.4, 1.6 + 0.3 * len(ranked)))
    names, times = [bound_words(name) for name, _ in ranked], [t for _, t in ranked]
    ax.barh(names, times, color=[ORANGE if name == report.bound else BLUE for name, _ in ranked])
    ax.invert_yaxis()
    ax.axvspan(*report.interval_s, color="0.5", alpha=0.15, lw=0)
    ax.axvline(report.time_s, color="0.3", ls="--", label=f"{report.origin} {interval(report)}")
    if report.sol_time_s:
        ax.axvline(report.sol_time_s, color=GREEN, lw=2, label=f"T_SOL {units.seconds(report.sol_time_s)}")
    ax.set_xlim(0, 1.05 * max([report.interval_s[1], *times]))
    _seconds_axis(ax.xaxis)
    score = f"SOL score {units.score(report.sol_score)} of an attainable {units.score(report.attainable_score)}"
    ax.set_title(f"{report.kernel} on {report.device.name}, {report.origin}\n{score}", fontsize=10)
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.45, -0.16), ncols=2, frameon=False)
    return ax


def _draw_roofs(ax: Any, gpu: Device, kind: str, xlim: tuple[float, float], by_bytes: bool) -> None:
    roof, ridge = gpu.dram_bytes_per_s, 1.0 if by_bytes else sol.ridge_point(gpu, kind)
    flat = "" if by_bytes else f", {kind} {units.flops_per_s(roof * ridge)}"
    xs = [xlim[0], ridge, xlim[1]]
    ax.plot(xs, [roof * xlim[0], roof * ridge, roof * ridge], color="0.2", lw=2, label=f"DRAM {units.bytes_per_s(roof)}{flat}")


def _draw_path(ax: Any, attempts: Sequence[Report]) -> None:
    points, lights = roofline_points(attempts)
    last = attempts[-1]
    ax.plot(*zip(*points, strict=True), color="0.5", lw=1)
    _, each = attempt_names(attempts)
    for n, ((x, y), report) in enumerate(zip(points, attempts, strict=True), 1):
        color = ORANGE if n == len(points) else BLUE
        name, _, rest = each[n - 1].partition(": ")
        label = f"{name} {shorten(report.kernel, 28)}: SOL score {rest.removeprefix(shorten(report.kernel, 24)).strip()}"
        ax.plot(x, y, "o", color=color, ms=9, label=label if len(points) <= 8 or n == len(points) else None)
        ax.annotate(str(n), (x, y), color="white", fontsize=7, ha="center", va="center")
    ax.plot(*lights[-1], "*", color=GREEN, ms=14, label="speed of light")
    x, y = lights[-1]
    ax.plot(
        x, y * (last.attainable_score or 1.0), "_", color=GREEN, ms=16, mew=2, label=f"attainable ({units.score(last.attainable_score)})"
    )


def roofline(device: str | Device, attempts: Iterable[Report] = (), ax: Any = None) -> Any:
    """The roofline of `device` with the path of the attempts, the last one orange. Returns the axes. See figures.roofline_points."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    gpu, attempts = find_device(device), drawable(attempts)
    by_bytes = bool(attempts) and counts_bytes(attempts)
    xlim, ylim = roofline_limits(gpu, attempts)
    ax = _axes(ax, (6.4, 4.2))
    ax.set_xscale("log")
    ax.set_yscale("log")
    _draw_roofs(ax, gpu, main_kind(attempts), xlim, by_bytes)
    if attempts:
        _draw_path(ax, attempts)
    ax.set(xlim=xlim, ylim=ylim, xlabel=f"{'useful bytes' if by_bytes else 'needed FLOP'} / bytes moved by DRAM")
    rate = units.bytes_per_s if by_bytes else units.flops_per_s
    for axis, limits, form in ((ax.yaxis, ylim, lambda value, _: round_rate(rate(value))), (ax.xaxis, xlim, lambda value, _: f"{value:g}")):
        axis.set_major_locator(FixedLocator(log_ticks(*limits)))
        axis.set_major_formatter(FuncFormatter(form))
        axis.set_minor_locator(NullLocator())
    ax.grid(alpha=0.2)
    ax.set_title(f"Roofline of {gpu.name}, {attempts[-1].origin if attempts else 'data sheet'}", fontsize=10)
    ax.legend(fontsize=7, loc="lower right")
    return ax


def what_if(reports: Iterable[Report], ax: Any = None) -> Any:
    """One kernel on many devices, fastest first: the time, and the part of it that is T_SOL. Returns the axes."""
    ranked = sorted(reports, key=lambda r: (r.time_s, r.device.name))
    ax = _axes(ax, (6.4, 1.2 + 0.24 * len(ranked)))
    names, origin = [r.device.name for r in ranked], ranked[0].origin if ranked else "predicted"
    bars = ax.barh(names, [r.time_s for r in ranked], color="0.75", label=origin)
    ax.barh(names, [min(r.sol_time_s or 0.0, r.time_s) for r in ranked], color=BLUE, label="T_SOL")
    ax.bar_label(bars, [f" {units.seconds(r.time_s)}, {units.score(r.sol_score)}" for r in ranked], fontsize=8)
    ax.invert_yaxis()
    ax.margins(x=0.2)
    _seconds_axis(ax.xaxis)
    ax.set_title(f"Time and SOL score by device, {origin}", fontsize=10)
    ax.legend(fontsize=8, loc="upper right")
    return ax
