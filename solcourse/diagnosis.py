"""What a report's numbers mean together, as numbers: what sentences, advice and pictures rest on. The record of a piece of Advice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from solcourse import roofline
from solcourse.simt.records import ACCESS_KINDS, WARP, Counts
from solcourse.work import Work

if TYPE_CHECKING:
    from solcourse.report import Report

NOTABLE = 0.1  # of the kernel's total: below that a line is left alone
TIE = 0.99  # a bound this near to the longest shares its place: the counts behind both are no better than that
COSTS = 0.4  # a bound below this part of the time adds less than 3 % to it: 0.4^3 / 3
# ncu's two families of "SOL %": which bounds are inside each. gpu__compute_memory_throughput holds DRAM as well
_COMPUTE = ("issue", "pipe_fma", "pipe_alu", "pipe_fp64", "pipe_xu", "pipe_cbu", "pipe_adu", "lsu")
_MEMORY = ("l1", "l2")


@dataclass(frozen=True)
class Advice:
    """kind: the rule; text: what was seen and what to try; line: the source line it speaks of, 0 for the whole launch."""

    kind: str
    text: str
    line: int = 0


def ranked_bounds(report: Report, least: float = 0.01) -> list[tuple[str, float]]:
    """(name, seconds) of the bounds of at least `least` x the longest, longest first; always the winner, before its ties."""
    top = max(report.bounds.values(), default=0.0)
    kept = [(name, t) for name, t in report.bounds.items() if t > 0 and (t >= least * top or name == report.bound)]
    return sorted(kept, key=lambda item: (not (item[0] == report.bound and ties(report, item[0])), -item[1], item[0]))


def ties(report: Report, name: str) -> bool:
    """Whether the bound is as long as the longest, within 1 %."""
    return report.bounds.get(name, 0.0) >= TIE * max(report.bounds.values(), default=0.0) > 0


def nsight_throughputs(report: Report) -> tuple[tuple[str, float, str], ...]:
    """("Compute (SM)" and "Memory" throughput, fraction of the elapsed time that the busiest unit of that family is at work, its bound),
    the busier first: what Nsight Compute's "SOL %" would be, estimated. Empty without bounds, and where atomics bind (no such unit).

    ncu: sm__throughput and gpu__compute_memory_throughput, .avg.pct_of_peak_sustained_elapsed. Blind to waste. DRAM counts by bytes / data
    sheet, as dram__throughput does. Source: the breakdown of both metrics in NVIDIA's profiler library.
    """
    if not report.bounds or report.bound == "atomic":
        return ()
    compute = {name: report.bounds.get(name, 0.0) for name in _COMPUTE}
    memory = {name: report.bounds.get(name, 0.0) for name in _MEMORY}
    memory["dram"] = (report.dram_bytes or 0.0) / report.device.dram_bytes_per_s
    rows = []
    for family, busy in (("Compute (SM)", compute), ("Memory", memory)):
        name = max(busy, key=lambda bound: busy[bound])
        rows.append((family, min(busy[name] / report.time_s, 1.0), name))
    return tuple(sorted(rows, key=lambda row: -row[1]))


def filled_warps(report: Report) -> int | None:
    """Warps on the busiest SM where the grid has too few blocks to fill what occupancy allows; None where it fills it, or is not known."""
    held, blocks = report.occupancy, report.grid[0] * report.grid[1] * report.grid[2]
    if held is None or not blocks or not held.blocks_per_sm:
        return None
    placed = -(-blocks // report.device.sms)
    return placed * (held.warps_per_sm // held.blocks_per_sm) if placed < held.blocks_per_sm else None


# ------------------------------------------------------------------------------------------------------ float64 by accident
def accidental_float64(report: Report) -> int:
    """float64 operations of a kernel whose global memory holds nothing wider than 4 bytes; 0 where there is no such sign."""
    sites = [site for site in report.run.program.sites if site.kind.startswith("global")] if report.run else []
    return report.counts.flops.get("fp64", 0) if sites and max(site.size for site in sites) <= 4 else 0


def float32_sol_time_s(report: Report) -> float | None:
    """T_SOL if the accidental float64 were float32, seconds. None where nothing is accidental, T_SOL is the same, or the caller gave it."""
    if report.work_given or not report.sol_time_s or not accidental_float64(report):
        return None
    flops = dict(report.work.flops)
    flops["fp32"] = flops.get("fp32", 0) + flops.pop("fp64", 0)
    light = roofline.sol_time_s(Work(report.work.terms, flops), report.device)
    return light if light < report.sol_time_s else None


def float64_costs(report: Report) -> bool:
    """Whether float64's pipe, or the conversions to and from it (xu), take a part of the time that shows."""
    longest = max(report.bounds.get("pipe_fp64", 0.0), report.bounds.get("pipe_xu", 0.0))
    return longest > COSTS * report.time_s or float32_sol_time_s(report) is not None


# ------------------------------------------------------------------------------------------------------------ ratios
def requests(counts: Counts, place: str = "") -> int:
    """Memory requests of all kinds whose name begins with `place`."""
    return sum(getattr(counts, kind).requests for kind in ACCESS_KINDS if kind.startswith(place))


def flop_time_s(report: Report) -> float:
    """Seconds that the FLOPs alone need at peak: the longest of the pipes."""
    flops = {kind: n for kind, n in report.counts.flops.items() if n}
    return max((n / report.device.peak_flops_per_s(kind) for kind, n in flops.items()), default=0.0)


def shared_loads_per_fma(report: Report) -> float:
    """Warp-level loads from shared memory per 32 FMAs (2 FLOPs each); 0 without FLOPs."""
    flops = report.counts.total_flops
    return report.counts.shared_load.requests / (flops / 2 / WARP) if flops else 0.0


def loads_per_byte(report: Report) -> float:
    """Bytes that the lanes load from global memory / distinct bytes read: how often the average byte is asked for; 0 where not known."""
    distinct = report.run.compulsory_read_bytes if report.run else 0
    return report.counts.global_load.bytes / distinct if distinct else 0.0


# --------------------------------------------------------------------------------------------------- figures of the device
_FIGURES: dict[str, Callable[[Report], object]] = {
    **dict.fromkeys(("clock_derate", "lat_alu", "block_turnaround_cyc", "launch_us_stream"), lambda r: True),
    **dict.fromkeys(("dram_fetch_bytes", "l2_bytes_clk", "lat_l1", "lat_l2", "lat_dram"), lambda r: requests(r.counts, "global")),
    "dram_eta_copy": lambda r: r.traffic and r.traffic.dram_read_bytes and r.traffic.dram_write_bytes,
    "dram_eta_read": lambda r: r.traffic and r.traffic.dram_read_bytes > r.traffic.dram_write_bytes,
    "dram_eta_write": lambda r: r.traffic and r.traffic.dram_write_bytes > r.traffic.dram_read_bytes,
    "l1_load_bytes_clk_sm": lambda r: r.counts.global_load.requests,
    "l2_slices": lambda r: r.counts.global_atomic.requests,
    "smem_bytes_clk_sm": lambda r: requests(r.counts, "shared"),
    "lat_smem": lambda r: requests(r.counts, "shared"),
    "lat_fp64": lambda r: r.counts.pipes.get("fp64", 0),
    "int32_lanes_sm": lambda r: r.counts.pipes.get("alu", 0),
    "sfu_lanes_sm": lambda r: r.counts.pipes.get("xu", 0),
}


def doubtful_figures(report: Report) -> list[str]:
    """The device's figures that this prediction uses and no data sheet gives: recalled, derived, guessed or a sister's."""
    if not report.bounds:
        return []
    return [name for name, used in _FIGURES.items() if name in report.device.flagged and used(report)]
