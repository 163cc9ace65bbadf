"""How much of the time each source line answers for: the definition of a line's share.

The time after start-up is a soft maximum of the bounds, T = (C_1^p + C_2^p + ...)^(1/p) over four groups (model.py), or the latency
alone where that is longer. If a line's demand on resource x falls by 1 %, T falls by (its part of x) x C_x^p / sum(C^p) percent.
That, summed over the resources, is the line's share: estimated, as the bounds are, and independent of the order of lines. Shares of a
kernel sum to 1, or to less where part of the time (kernel start) belongs to no line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from solcourse.model import GROUPS, P_NORM
from solcourse.simt.records import ACCESS_KINDS, SECTOR_BYTES, Counts, LineCounts, Site

if TYPE_CHECKING:
    from solcourse.report import Report

Where = tuple[str, int]  # file, line
_GROUPS = {bound: names[0] for names in GROUPS for bound in names}  # a group goes by its first bound
_CACHED_KINDS = tuple(kind for kind in ACCESS_KINDS if not kind.startswith("shared"))


@dataclass(frozen=True)
class HotLine:
    """A source line, its counts and its share of the time, 0..1."""

    file: str
    line: int
    text: str
    counts: Counts
    share: float


def _group(bound: str) -> str:
    return _GROUPS.get(bound, bound)


def weights(bounds: Mapping[str, float], waiting: float = 1.0) -> dict[str, float]:
    """Bound -> share of the time. waiting: the part of the latency that competes with L2 and DRAM (Prediction.waiting).

    Start-up ("launch") comes before everything else and has its own part; of the rest, a bound has C^p / sum(C^p): the largest of each
    group counts, the others of it are hidden behind it.
    """
    start = bounds.get("launch", 0.0)
    largest: dict[str, str] = {}
    for name in bounds:
        if name == "launch":
            continue
        group = _group(name)
        if group not in largest or bounds[name] > bounds[largest[group]]:
            largest[group] = name
    top = max((bounds[name] for name in largest.values()), default=0.0)
    if top <= 0:
        return {"launch": 1.0} if start > 0 else {}
    powers = {name: (bounds[name] / top) ** P_NORM * (waiting if name == "latency" else 1.0) for name in largest.values()}
    total = sum(powers.values())
    if bounds.get("latency", 0.0) >= top * total ** (1 / P_NORM):  # nothing hides any of it
        powers, total = {"latency": 1.0}, 1.0
    body = top * total ** (1 / P_NORM) / (start + top * total ** (1 / P_NORM))
    shares = {name: body * power / total for name, power in powers.items() if power > 0}
    return shares | {"launch": 1 - body} if start > 0 else shares


def hit_rate(rates: Any, site: int) -> float:
    """The hit rate of one site from a sequence or mapping by site; 0 where it is not known."""
    if rates is None:
        return 0.0
    if isinstance(rates, Mapping):
        return float(rates.get(site, 0.0))
    return float(rates[site]) if site < len(rates) else 0.0


def _sectors_below_l1(report: Report, site: Site) -> float:
    """Sectors that the site asks of L2: load misses, and every store and atomic."""
    assert report.run is not None
    sectors = report.run.site_counts[site.index].sectors
    missed = 1 - hit_rate(getattr(report.traffic, "l1_hit_by_site", None), site.index) if site.kind.endswith("_load") else 1.0
    return sectors * missed


def _demand(report: Report, of_site: Callable[[Site], float], kinds: Sequence[str] = _CACHED_KINDS) -> dict[Where, float]:
    demand: dict[Where, float] = {}
    for site in report.run.program.sites if report.run is not None else ():
        if site.kind in kinds:
            demand[site.file, site.line] = demand.get((site.file, site.line), 0.0) + of_site(site)
    return demand


def _dram_sectors(report: Report) -> dict[Where, float]:
    rates = getattr(report.traffic, "l2_hit_by_site", None)
    return _demand(report, lambda site: _sectors_below_l1(report, site) * (1 - hit_rate(rates, site.index)))


def _latency(counts: Counts, report: Report) -> float:
    """Cycles that a warp waits, pipelining ignored: it decides between lines, not how long they take."""
    gpu = report.device
    shared = counts.shared_load.requests + counts.shared_atomic.requests
    memory = counts.global_load.requests + counts.local_load.requests + counts.global_atomic.requests
    return gpu.lat_alu * counts.warp_instructions + gpu.lat_smem * shared + gpu.lat_l2 * memory


def _by_counts(report: Report, of_counts: Callable[[Counts], float]) -> dict[Where, float]:
    return {(line.file, line.line): float(of_counts(line.counts)) for line in report.lines}


def _data_wavefronts(counts: Counts) -> float:
    return sum(getattr(counts, kind).wavefronts for kind in ACCESS_KINDS if kind != "global_atomic")


def demand(report: Report, bound: str) -> dict[Where, float]:
    """(file, line) -> how much of the resource behind `bound` that line uses, in any unit; empty for a bound of no line."""
    if bound.startswith("pipe_"):
        return _by_counts(report, lambda c: c.pipes.get(bound.removeprefix("pipe_"), 0))
    match bound:
        case "issue":
            return _by_counts(report, lambda c: c.warp_instructions)
        case "lsu":
            return _by_counts(report, lambda c: sum(getattr(c, kind).requests for kind in ACCESS_KINDS))
        case "register_file":
            return _by_counts(report, lambda c: sum(c.pipes.get(pipe, 0) for pipe in ("fma", "alu", "fp64")))
        case "l1":
            return _by_counts(report, _data_wavefronts)
        case "fill" | "l2":
            return _demand(report, lambda site: _sectors_below_l1(report, site))
        case "dram":
            return _dram_sectors(report)
        case "constant":
            return _demand(report, lambda site: _passes(report, site), ("constant_load",))
        case "latency":
            return _by_counts(report, lambda c: _latency(c, report))
        case "atomic":
            return _by_counts(report, lambda c: c.global_atomic.sectors + c.shared_atomic.wavefronts)
    return {}


def _passes(report: Report, site: Site) -> float:
    """Different addresses that warps ask constant memory for."""
    assert report.run is not None
    return report.run.site_counts[site.index].wavefronts


def hot_lines(report: Report) -> tuple[HotLine, ...]:
    """The report's lines with their shares, hottest first; lines of equal share in their order in the source."""
    shares: dict[Where, float] = {}
    for bound, weight in weights(report.bounds, getattr(report.prediction, "waiting", 1.0)).items():
        used = demand(report, bound)
        total = sum(used.values())
        for where, amount in used.items():
            if total > 0:
                shares[where] = shares.get(where, 0.0) + weight * amount / total
    lines = _merged(report.lines)
    hot = [HotLine(c.file, c.line, c.text, c.counts, shares.get((c.file, c.line), 0.0)) for c in lines]
    return tuple(sorted(hot, key=lambda h: (-round(h.share, 9), h.file, h.line)))


def _merged(lines: Sequence[LineCounts]) -> list[LineCounts]:
    """One record for each source line; the engine gives one already, unless a line was inlined from several places."""
    seen: dict[Where, LineCounts] = {}
    for line in lines:
        seen.setdefault((line.file, line.line), line)
    return list(seen.values())


def dram_bytes_of_line(report: Report, file: str, line: int) -> float:
    """Bytes that DRAM moves for one line, estimated from the hit rates of its accesses."""
    return SECTOR_BYTES * _dram_sectors(report).get((file, line), 0.0)
