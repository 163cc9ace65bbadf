"""The machine's raw counters -> an EngineRun: counts of each memory site, of each source line, and of the whole launch."""

from __future__ import annotations

import linecache

import numpy as np

from solcourse.simt.compiler import METRICS, Compiled
from solcourse.simt.faults import Launch, barrier_findings
from solcourse.simt.machine import Raw
from solcourse.simt.observe import ACTIVE_LANES, DIVERGENT, EXECUTIONS
from solcourse.simt.records import ACCESS_KINDS, FLOP_TYPES, PIPES, AccessCounts, Arrays, Counts, EngineRun, LineCounts


def interpret(launch: Launch, raw: Raw, counters: bool, scale: float) -> EngineRun:
    """scale: blocks of the grid to blocks that ran."""
    c = launch.compiled
    executions = raw.executions[:, EXECUTIONS]
    sites = _sites(c, raw, scale)
    total, lines = _lines(c, raw, sites, scale) if counters else (Counts(), ())
    return EngineRun(
        program=c.program,
        grid=launch.grid,
        block=launch.block,
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        counts=total,
        lines=lines,
        site_counts=tuple(AccessCounts(*row) for row in sites.tolist()),
        trace=raw.trace,
        block_executions=_scaled(executions, scale),
        warp_executions=raw.warp_rows,
        # of a sample: scaled, but never more than the array holds
        compulsory_read_bytes=sum(min(_whole(read * scale), max(read, size)) for read, _, size in raw.touched),
        compulsory_write_bytes=sum(min(_whole(written * scale), max(written, size)) for _, written, size in raw.touched),
        same_address_atomics=_whole(raw.same_address_atomics * scale),
        registers_live=c.registers_live,
        sampled_blocks=launch.sampled,
        findings=barrier_findings(c, raw),
        arrays=_arrays(raw) if counters else None,
    )


def _arrays(raw: Raw) -> Arrays:
    sizes = [(size * (read > 0), size * (written > 0), size * (read + written > 0)) for read, written, size in raw.touched]
    return Arrays(*(sum(column) for column in zip(*sizes, strict=True))) if sizes else Arrays(0, 0, 0)


def _whole(x: float) -> int:
    return int(round(x))


def _scaled(values: np.ndarray, scale: float) -> np.ndarray:
    return values if scale == 1 else np.rint(values * scale).astype(np.int64)


def _sites(c: Compiled, raw: Raw, scale: float) -> np.ndarray:
    """(sites, 5) int64: the fields of AccessCounts."""
    result = np.zeros((len(c.program.sites), 5), np.int64)
    for row, k, site, own in zip(result, c.site_nodes.tolist(), c.program.sites, raw.sites.tolist(), strict=False):
        if site.index in c.part_sites:
            continue
        runs, lanes, _ = raw.executions[k].tolist()
        sectors, wavefronts, conflicts, own_runs, own_lanes = own
        if site.index in c.several_sites:
            runs, lanes = own_runs, own_lanes
        if site.index in c.uniform_sites:  # one address: one sector, one pass (wider ones count passes as they run)
            sectors = runs if site.kind.startswith("global") else 0
            wavefronts = wavefronts or runs
        row[:] = runs, sectors, wavefronts, conflicts, lanes * site.size
    return _scaled(result, scale)


def _lines(c: Compiled, raw: Raw, sites: np.ndarray, scale: float) -> tuple[Counts, tuple[LineCounts, ...]]:
    """Of the launch, and of each source line."""
    runs, lanes, diverged = (_scaled(raw.executions[:, k], scale) for k in (EXECUTIONS, ACTIVE_LANES, DIVERGENT))
    by_run, by_lane = c.static @ runs, c.static @ lanes  # (metrics, lines)
    split = (c.static[METRICS.index("branches")] > 0) @ diverged
    access = np.zeros((len(c.lines), len(ACCESS_KINDS) + 1, 5), np.int64)
    np.add.at(access, c.site_cells, sites)
    access = access[:, :-1]
    each = [_counts(*parts) for parts in zip(by_run.T.tolist(), by_lane.T.tolist(), split.tolist(), access.tolist(), strict=True)]
    lines = [LineCounts(file, line, linecache.getline(file, line).strip(), k) for (file, line), k in zip(c.lines, each, strict=True)]
    total = _counts(by_run.sum(1).tolist(), by_lane.sum(1).tolist(), int(split.sum()), access.sum(0).tolist())
    return total, tuple(sorted(lines, key=lambda r: (r.file, r.line)))


_AT = {metric: k for k, metric in enumerate(METRICS)}
_FLOPS, _PIPES = ([(name, _AT[f"{what}.{name}"]) for name in names] for what, names in (("flops", FLOP_TYPES), ("pipe", PIPES)))
_NONE = AccessCounts()


def _counts(by_run: list[int], by_lane: list[int], split: int, access: list[list[int]]) -> Counts:
    return Counts(
        by_run[_AT["issue"]],
        by_lane[_AT["issue"]],
        {name: by_lane[k] for name, k in _FLOPS},
        by_lane[_AT["table_flops"]],
        by_lane[_AT["ints"]],
        by_run[_AT["branches"]],
        split,
        by_run[_AT["barriers"]],
        {name: by_run[k] for name, k in _PIPES},
        *(AccessCounts(*values) if any(values) else _NONE for values in access),
    )
