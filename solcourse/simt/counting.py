"""The machine's raw counters -> an EngineRun: counts of each memory site, of each source line, and of the whole launch."""

from __future__ import annotations

import linecache

import numpy as np

from solcourse.simt.compiler import Compiled
from solcourse.simt.faults import Launch, barrier_findings
from solcourse.simt.machine import Raw
from solcourse.simt.observe import ACTIVE_LANES, DIVERGENT, EXECUTIONS
from solcourse.simt.records import ACCESS_KINDS, FLOP_TYPES, PIPES, AccessCounts, Counts, EngineRun, LineCounts


def interpret(launch: Launch, raw: Raw, counters: bool, scale: float) -> EngineRun:
    """scale: blocks of the grid to blocks that ran."""
    c = launch.compiled
    executions = raw.executions[:, EXECUTIONS]
    sites = _site_counts(c, raw, scale)
    lines = _line_counts(c, raw, sites, scale) if counters else ()
    return EngineRun(
        program=c.program,
        grid=launch.grid,
        block=launch.block,
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        counts=_sum([line.counts for line in lines]),
        lines=lines,
        site_counts=sites,
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
    )


def _whole(x: float) -> int:
    return int(round(x))


def _scaled(values: np.ndarray, scale: float) -> np.ndarray:
    return values if scale == 1 else np.rint(values * scale).astype(np.int64)


def _site_counts(c: Compiled, raw: Raw, scale: float) -> tuple[AccessCounts, ...]:
    result = []
    for k, site in enumerate(c.program.sites):
        runs, lanes, _ = raw.executions[c.site_nodes[k]]
        sectors, wavefronts, conflicts, own_runs, own_lanes = raw.sites[k].tolist()
        if k in c.several_sites:
            runs, lanes = own_runs, own_lanes
        if k in c.uniform_sites:  # one address: one sector, one pass (8-byte ones count passes as they run)
            sectors = int(runs) if site.kind.startswith("global") else 0
            wavefronts = wavefronts or int(runs)
        values = (int(runs), sectors, wavefronts, conflicts, int(lanes) * site.size)
        result.append(AccessCounts(*(_whole(v * scale) for v in values)))
    return tuple(result)


def _line_counts(c: Compiled, raw: Raw, sites: tuple[AccessCounts, ...], scale: float) -> tuple[LineCounts, ...]:
    runs, lanes, diverged = (_scaled(raw.executions[:, k], scale) for k in (EXECUTIONS, ACTIVE_LANES, DIVERGENT))
    by_run = {m: c.static[m] @ runs for m in ("issue", "branches", "barriers", *(f"pipe.{p}" for p in PIPES))}
    by_lane = {m: c.static[m] @ lanes for m in ("issue", "ints", "table_flops", *(f"flops.{t}" for t in FLOP_TYPES))}
    split = (c.static["branches"] > 0) @ diverged
    access: dict[tuple[int, str], AccessCounts] = {}
    row_of = {place: k for k, place in enumerate(c.lines)}
    for site, of_site in zip(c.program.sites, sites, strict=True):
        key = row_of[(site.file, site.line)], site.kind
        access[key] = access.get(key, AccessCounts()) + of_site
    result = []
    for row, (file, line) in enumerate(c.lines):
        counts = Counts(
            warp_instructions=int(by_run["issue"][row]),
            thread_instructions=int(by_lane["issue"][row]),
            flops={t: int(by_lane[f"flops.{t}"][row]) for t in FLOP_TYPES},
            library_flops=int(by_lane["table_flops"][row]),
            int_ops=int(by_lane["ints"][row]),
            branches=int(by_run["branches"][row]),
            divergent_branches=int(split[row]),
            barriers=int(by_run["barriers"][row]),
            pipes={p: int(by_run[f"pipe.{p}"][row]) for p in PIPES},
            **{kind: access.get((row, kind), AccessCounts()) for kind in ACCESS_KINDS},  # type: ignore[arg-type]
        )
        result.append(LineCounts(file, line, linecache.getline(file, line).strip(), counts))
    return tuple(sorted(result, key=lambda r: (r.file, r.line)))


def _sum(parts: list[Counts]) -> Counts:
    if not parts:
        return Counts()

    def total(name: str) -> int:
        return sum(getattr(p, name) for p in parts)

    def merged(name: str, keys: tuple[str, ...]) -> dict[str, int]:
        return {k: sum(getattr(p, name)[k] for p in parts) for k in keys}

    plain = "warp_instructions thread_instructions library_flops int_ops branches divergent_branches barriers".split()
    return Counts(
        **{n: total(n) for n in plain},  # type: ignore[arg-type]
        flops=merged("flops", FLOP_TYPES),
        pipes=merged("pipes", PIPES),
        **{kind: sum((getattr(p, kind) for p in parts), AccessCounts()) for kind in ACCESS_KINDS},  # type: ignore[arg-type]
    )
