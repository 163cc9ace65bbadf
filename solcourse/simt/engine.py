"""One launch on the CPU engine: kernel IR and bound arguments in, an EngineRun out. The door of solcourse.simt."""

from __future__ import annotations

import ctypes
import linecache
import math
import operator
from collections.abc import Callable

import numpy as np

from solcourse.errors import BarrierError, LaunchError, OutOfBounds, RunawayKernel
from solcourse.simt import printing
from solcourse.simt.arguments import Allocation, BoundArguments
from solcourse.simt.compiler import Compiled, compile_warp
from solcourse.simt.frontend import KernelIR
from solcourse.simt.layout import ERROR_BOUNDS
from solcourse.simt.machine import Raw, launch_grid
from solcourse.simt.observe import ACTIVE_LANES, DIVERGENT, EXECUTIONS
from solcourse.simt.records import (
    ACCESS_KINDS,
    FLOP_TYPES,
    PIPES,
    WARP,
    AccessCounts,
    Counts,
    EngineRun,
    Finding,
    LineCounts,
    Residency,
    Site,
)  # fmt: skip
from solcourse.simt.recursion import RECURSION, STACK_BYTES
from solcourse.simt.resident import BARRIER, GRID, LANES, LOOP, Stuck

Dim = tuple[int, int, int]
MOST_LOCAL_BYTES = 512 * 1024  # per thread. Source: CUDA programming guide, technical specifications per compute capability
MOST_SHARED_BYTES = 227 * 1024  # of any GPU, per block. Source: CUDA programming guide, compute capability 9.0 and 10.0


def execute(
    kernel: KernelIR,
    bound: BoundArguments,
    grid: Dim,
    block: Dim,
    dynamic_shared_bytes: int = 0,
    *,
    counters: bool = True,
    sample_blocks: int | None = None,
    threads: int | None = None,
    limit_s: float = 30.0,
    total_s: float | None = None,
    residency: Callable[[Compiled], Residency] | None = None,
) -> EngineRun:
    """Run every block (or `sample_blocks` consecutive ones from the middle of the grid) and count what it did.

    The caller's arrays are written as on a GPU. With counters=False accesses are bounds-checked and nothing is counted.
    limit_s: seconds without any block finishing after which the launch is stopped; total_s: seconds in all, None: no limit.
    residency: how many blocks of the kernel a device holds at once, asked where blocks wait for each other; None: the largest GPU.
    A sample of a kernel whose blocks wait for each other is taken from the start of the grid: those wait for earlier ones as a rule.
    Raises OutOfBounds, BarrierError, RunawayKernel, UnsupportedKernel (nothing ran), LaunchError (nothing ran), and what the kernel
    itself raised where it was made with debug=True.
    """
    total = grid[0] * grid[1] * grid[2]
    sample_blocks = None if sample_blocks is None else operator.index(sample_blocks)
    if sample_blocks is not None and sample_blocks < 1:
        raise LaunchError(f"sample_blocks is {sample_blocks}: at least one block has to run.")
    sampled = sample_blocks if sample_blocks is not None and sample_blocks < total else None
    count = sampled or total
    compiled = compile_warp(kernel, counters=counters, rows_uniform=block[0] % WARP == 0)
    local = compiled.program.local_bytes
    if local > MOST_LOCAL_BYTES:
        raise LaunchError(
            f"Kernel {kernel.name} declares {local:,} bytes of local arrays; no GPU gives a thread more than {MOST_LOCAL_BYTES:,} (512 KiB). "
            "Make them smaller, or use an array argument with a part for each thread. Nothing ran.",
            file=kernel.file,
            line=kernel.first_line,
        )
    shared = compiled.program.static_shared_bytes + dynamic_shared_bytes
    if shared > MOST_SHARED_BYTES:
        raise LaunchError(
            f"Kernel {kernel.name} asks for {shared:,} bytes of shared memory per block ({dynamic_shared_bytes:,} of them dynamic); "
            f"no GPU gives a block more than {MOST_SHARED_BYTES:,}. Make the arrays smaller, or the block do less. Nothing ran.",
            file=kernel.file,
            line=kernel.first_line,
        )
    first = 0 if compiled.plan.crosses else (total - count) // 2
    room = _room(compiled, total, block, residency)
    raw = launch_grid(
        compiled, bound, grid, block, dynamic_shared_bytes, counters=counters, first=first, count=count, threads=threads, limit_s=limit_s,
        total_s=total_s, room=room.blocks,
    )  # fmt: skip
    printing.show(printing.lines(raw.printed, _strings(compiled), raw.error[6] if raw.error else None))
    if raw.raised and not raw.error and not raw.stopped:
        raise _exception(kernel, grid, block, raw.raised)
    if raw.stuck and raw.stuck.deadlock and not raw.error:
        raise _deadlock(compiled, grid, raw.stuck, room, sampled)
    if raw.error or raw.stopped:
        raise _failure(kernel, compiled, bound, grid, block, dynamic_shared_bytes, raw, limit_s)
    return _interpret(compiled, grid, block, dynamic_shared_bytes, raw, counters, sampled, total / count)


# of any GPU, per SM and in all: an upper bound. Source: CUDA programming guide, compute capabilities; the largest chips sold
MOST_SMS, MOST_SM_BLOCKS, MOST_SM_WARPS = 192, 32, 64


def _room(c: Compiled, total: int, block: Dim, residency: Callable[[Compiled], Residency] | None) -> Residency:
    """How many blocks are resident together; a launch whose grid synchronises has to fit as a whole."""
    if not (c.plan.crosses or c.plan.grid_line):
        return Residency(1, "")
    per_sm = min(MOST_SM_BLOCKS, MOST_SM_WARPS // -(-math.prod(block) // WARP))
    room = residency(c) if residency else Residency(MOST_SMS * per_sm, f"no GPU has more than {MOST_SMS} SMs x {per_sm} such blocks")
    if c.plan.grid_line and total > room.blocks:
        raise LaunchError(
            f"Kernel {c.program.kernel} is launched cooperatively, for cuda.cg.this_grid() at line {c.plan.grid_line}: all of its {total:,} blocks "
            f"have to be resident at once, but at most {room.blocks:,} fit ({room.why}). A GPU refuses it too "
            f"(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE). Launch at most {room.blocks:,} blocks and let each do more of the work. Nothing ran.",
            file=c.program.file,
            line=c.plan.grid_line,
        )
    return room


# ---- counts ---------------------------------------------------------------------------------------------------------


def _interpret(c: Compiled, grid: Dim, block: Dim, dynamic: int, raw: Raw, counters: bool, sampled: int | None, scale: float) -> EngineRun:
    executions = raw.executions[:, EXECUTIONS]
    sites = _site_counts(c, raw, scale)
    lines = _line_counts(c, raw, sites, scale) if counters else ()
    return EngineRun(
        program=c.program,
        grid=grid,
        block=block,
        dynamic_shared_bytes=dynamic,
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
        sampled_blocks=sampled,
        findings=_barrier_findings(c, raw),
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


# ---- what went wrong ------------------------------------------------------------------------------------------------


def _barrier_findings(c: Compiled, raw: Raw) -> tuple[Finding, ...]:
    findings = []
    if raw.divergent_barrier is not None:
        a, b = (c.barrier_lines[k] for k in raw.divergent_barrier)
        findings.append(
            Finding(
                kind="divergent_barrier",
                severity="warning",
                message=f"Threads of one block waited at different barriers (lines {a} and {b}) and were matched with each other.",
                hint="GPUs since Volta count arrivals wherever they are; let all threads pass the same syncthreads().",
                file=c.program.file,
                line=b,
                other_line=a,
            )
        )
    elif raw.bypassed_barrier is not None:
        line = c.barrier_lines[raw.bypassed_barrier]
        findings.append(
            Finding(
                kind="divergent_barrier",
                severity="warning",
                message=f"Only some threads of a warp reach the barrier at line {line}; others pass by it and go on working.",
                hint="CUDA allows syncthreads() in a branch only if all threads of the block take it, or the others have returned. "
                "Move the barrier out of the branch or loop.",
                file=c.program.file,
                line=line,
            )
        )
    return tuple(findings)


def _strings(c: Compiled) -> dict[int, str]:
    """The text at the address of each constant, for the kernels that print."""
    if not c.plan.prints:
        return {}
    return {a: ctypes.string_at(a, size).split(b"\0")[0].decode(errors="replace") for a, size in c.constants.values()}


def _exception(kernel: KernelIR, grid: Dim, block: Dim, raised: tuple[int, int, int]) -> BaseException:
    """The exception of the first block's first thread that raised one, worded as numba words it."""
    linear, thread, code = raised
    unknown = f"unknown error {code} in native function (a device function raised it; numba keeps a kernel's own exceptions only)"
    kind, values, place = kernel.exceptions.get(code, (SystemError, (unknown,), None))
    tid, ctaid = (list(reversed(_coordinates(n, extent))) for n, extent in ((thread, block), (linear, grid)))
    where = f"In function {place[0]!r}, file {place[1]}, line {place[2]}, " if place else ""
    prefix = f"{where}tid={tid} ctaid={ctaid}"
    return kind(f"{prefix}: {values[0]}", *values[1:]) if values else kind(prefix)


def _failure(
    kernel: KernelIR, c: Compiled, bound: BoundArguments, grid: Dim, block: Dim, dynamic: int, raw: Raw, limit_s: float
) -> Exception:
    if raw.error and raw.error[0] == ERROR_BOUNDS:
        finding = _stray(kernel, c, bound, grid, block, dynamic, raw.error)
        return OutOfBounds(f"{finding.message} {finding.hint}", finding=finding, file=finding.file, line=finding.line)
    if raw.error:
        line = c.block_lines[raw.error[1]]
        text = linecache.getline(c.program.file, line).strip()
        at = _coordinates(raw.error[6], grid)
        what = "was interrupted" if raw.stopped == "interrupted" else f"did not finish: {raw.stopped}"
        others = f"Other blocks were suspended: {_waits(c, raw.stuck)}. " if raw.stuck else ""
        return RunawayKernel(
            f"Kernel {kernel.name} {what}. It was in the loop at line {line} ({text}), block {_show(at)}. {others}"
            "Check that the loop's condition can become false for every thread.",
            interrupted=raw.stopped == "interrupted",
            file=c.program.file,
            line=line,
        )
    if raw.stuck:
        what = "was interrupted" if raw.stopped == "interrupted" else f"did not finish: {raw.stopped}"
        return RunawayKernel(
            f"Kernel {kernel.name} {what}. {_waits(c, raw.stuck)}. Check that what they wait for can happen.",
            file=c.program.file,
            line=_foremost(raw.stuck)[1],
        )
    blocks, threads = grid[0] * grid[1] * grid[2], block[0] * block[1] * block[2]
    return RunawayKernel(
        f"Kernel {kernel.name} was stopped: {raw.stopped}. It was launched with {blocks:,} blocks of {threads:,} threads: "
        f"{blocks * threads:,} in all. Is the grid right for the size of the arrays?",
        interrupted=raw.stopped == "interrupted",
        file=kernel.file,
        line=kernel.first_line,
    )


_PLACES = {LOOP: "in the loop", LANES: "for other lanes of their warp", BARRIER: "at the barrier", GRID: "at the grid's barrier"}


def _by_place(stuck: Stuck) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """(kind, line) -> first block, blocks, warps, threads that wait there; loops first, then by threads."""
    found: dict[tuple[str, int], list] = {}
    for w in stuck.waits:
        found.setdefault((w.kind, w.line), []).append(w)
    rows = {key: (min(w.block for w in ws), len(ws), sum(w.warps for w in ws), sum(w.threads for w in ws)) for key, ws in found.items()}
    return dict(sorted(rows.items(), key=lambda row: (row[0][0] != LOOP, -row[1][3], row[0][1])))


def _foremost(stuck: Stuck) -> tuple[str, int]:
    return next(iter(_by_place(stuck)))


def _waits(c: Compiled, stuck: Stuck) -> str:
    """ "3 blocks (6 warps, 96 threads) wait in the loop at line 7 (`while ...`), first block 0; 1 block ..." """
    parts = []
    for (kind, line), (first, blocks, warps, threads) in _by_place(stuck).items():
        text = linecache.getline(c.program.file, line).strip()
        who = f"{_some(blocks, 'block')} ({_some(warps, 'warp')}, {_some(threads, 'thread')}) wait{'s' * (blocks == 1)}"
        parts.append(f"{who} {_PLACES[kind]} at line {line}{f' (`{text}`)' if text else ''}, first block {first}")
    return "; ".join(parts)


def _some(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _deadlock(c: Compiled, grid: Dim, stuck: Stuck, room: Residency, sampled: int | None) -> Exception:
    """Threads wait for what no thread can do any more."""
    kind, line = _foremost(stuck)
    at = _coordinates(stuck.block, grid)
    message = f"Deadlock in kernel {c.program.kernel}: no thread can go on. {_waits(c, stuck)}."
    hint = "Check the order in which locks are taken, and that another thread sets what these wait for."
    if kind != LOOP:
        hint = "Every thread of a block, or of the grid, has to reach the barrier."
    if c.plan.crosses:
        left = math.prod(grid) - stuck.started
        message += f" {_some(stuck.ended, 'block')} returned." if stuck.ended else ""
        if sampled:
            message += f" Only {sampled:,} of {math.prod(grid):,} blocks ran (sample_blocks)."
            hint = "If they wait for blocks that are not part of the sample, run all of them: sample_blocks=None."
        elif left > 0:
            message += f" {_some(left, 'block')} never started: {room.blocks:,} are resident at once ({room.why}), and none of them ends."
            hint = (
                "Blocks may wait only for blocks that are resident with them, or that started earlier: launch fewer, or take work in order."
            )
        elif stuck.headless:
            message += f" Thread (0, 0, 0) of block {_show(_coordinates(stuck.headless[0], grid))} has returned; grid.sync() needs it."
    if kind == LOOP:
        return RunawayKernel(f"{message} {hint}", file=c.program.file, line=line)
    finding = Finding("deadlock", "error", message, hint, file=c.program.file, line=line, block=at)
    return BarrierError(f"{message} {hint}", finding=finding, file=c.program.file, line=line)


def _coordinates(linear: int, extent: Dim) -> Dim:
    return linear % extent[0], linear // extent[0] % extent[1], linear // (extent[0] * extent[1])


def _show(dim: Dim) -> str:
    return f"({dim[0]}, {dim[1]}, {dim[2]})"


GUARD = "A GPU would not have said anything. Guard the access, for example `if i < x.size:`, or check the index."


def _stray(kernel: KernelIR, c: Compiled, bound: BoundArguments, grid: Dim, block: Dim, dynamic: int, error: tuple[int, ...]) -> Finding:
    _, site_index, lane, offset, mask, _, linear, warp = error
    site = c.program.sites[site_index]
    at, thread = _coordinates(linear, grid), _coordinates(warp * WARP + lane, block)
    verb = {"load": "reads", "store": "writes", "atomic": "updates"}[site.kind.rsplit("_", 1)[1]]
    allocation = next((a for a in bound.allocations if a.name == site.array), None)
    is_dynamic = site.kind.startswith("shared") and allocation is None and not c.array_bytes.get(site.array, 0)
    index, element, extent = _element(site, allocation, offset, c.array_bytes.get(site.array, 0))
    hint = GUARD
    if is_dynamic:
        extent = f"{dynamic // site.size} elements in the {dynamic:,} bytes of dynamic shared memory of this launch"
        hint = (
            f"{kernel.name}[grid, block, stream, bytes] gives each block that many bytes; at least {offset + site.size:,} are needed here."
        )
    text = linecache.getline(site.file, site.line).strip()
    if site.array == RECURSION:
        return Finding(
            kind="stack_overflow",
            severity="error",
            message=f"The recursion in kernel {kernel.name}, line {site.line}{f' (`{text}`)' if text else ''}, is too deep: thread "
            f"{_show(thread)} of block {_show(at)} needs more than the {STACK_BYTES >> 10} KiB of stack that a thread has here.",
            hint="Does every call come nearer to the case that ends it? A GPU gives a thread 1 KiB by default, and a loop needs none.",
            file=site.file,
            line=site.line,
            block=at,
            thread=thread,
            array=site.array,
        )
    where = f"{site.array}[{element}]" if allocation is not None else f"element {element} of {site.array or 'an array'}"
    lanes = bin(mask & 0xFFFFFFFF).count("1")
    more = f" ({lanes} lanes of this warp do)" if lanes > 1 else ""
    message = (
        f"Out-of-bounds access in kernel {kernel.name}, line {site.line}{f' (`{text}`)' if text else ''}: thread {_show(thread)} of block {_show(at)} "
        f"{verb} {where}, but the array has {extent}{more}."
    )
    return Finding(
        kind="out_of_bounds",
        severity="error",
        message=message,
        hint=hint,
        file=site.file,
        line=site.line,
        block=at,
        thread=thread,
        array=site.array,
        index=int(index),
        count=lanes,
    )


def _element(site: Site, allocation: Allocation | None, offset: int, nbytes: int) -> tuple[int, str, str]:
    """(flat index, index as written, the array's extent) of the byte `offset` of the allocation that a site strayed from."""
    if allocation is None:
        index = offset // site.size
        return index, str(index), f"{nbytes // site.size} elements" if nbytes else "another size"
    view = getattr(allocation.array, "engine_view", allocation.array)
    strides = getattr(view, "strides", None)
    if not strides or any(s == 0 for s in strides) or len(strides) < 2:
        index = offset // (allocation.itemsize or site.size)
        size = math.prod(allocation.shape)
        return index, str(index), f"{size} elements" if len(allocation.shape) <= 1 else f"shape {allocation.shape}"
    left = allocation.address + offset - view.ctypes.data
    parts = [0] * len(strides)
    for axis in sorted(range(len(strides)), key=lambda a: -abs(strides[a])):  # the slowest axis takes what lies beyond
        parts[axis], left = divmod(left, strides[axis]) if strides[axis] > 0 else (-(left // -strides[axis]), left % -strides[axis])
    return offset // (allocation.itemsize or site.size), ", ".join(map(str, parts)), f"shape {view.shape}"
