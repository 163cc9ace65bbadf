"""What went wrong in a launch, as the learner's error: a stray access, a loop without end, a deadlock, an exception of the kernel's own.

`fault_of` says what to raise after a launch, `barrier_findings` what to note where it ran through. Each error says what happened,
where (source line, block, thread), and what to try.
"""

from __future__ import annotations

import linecache
import math
from dataclasses import dataclass

from solcourse.errors import BarrierError, OutOfBounds, RunawayKernel
from solcourse.simt.arguments import BoundArguments
from solcourse.simt.compiler import Compiled
from solcourse.simt.frontend import KernelIR
from solcourse.simt.layout import ERROR_BOUNDS
from solcourse.simt.machine import Raw
from solcourse.simt.records import Finding, Residency
from solcourse.simt.resident import BARRIER, GRID, LANES, LOOP, Stuck
from solcourse.simt.strays import stray

Dim = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Launch:
    """What was launched. room: how many blocks were resident together; sampled: how many ran, None: all."""

    kernel: KernelIR
    compiled: Compiled
    bound: BoundArguments
    grid: Dim
    block: Dim
    dynamic_shared_bytes: int
    room: Residency
    sampled: int | None

    @property
    def file(self) -> str:
        return self.kernel.file

    def text(self, line: int) -> str:
        """The kernel's source at a line, '' where it cannot be read."""
        return linecache.getline(self.file, line).strip()

    def block_at(self, linear: int) -> Dim:
        return _coordinates(linear, self.grid)

    def thread_at(self, linear: int) -> Dim:
        return _coordinates(linear, self.block)


def fault_of(launch: Launch, raw: Raw) -> BaseException | None:
    """What the launch has to raise. A stray access goes before all others, a stop by the limits or Ctrl-C before what it cut short."""
    if raw.error and raw.error[0] == ERROR_BOUNDS:
        finding = stray(launch, raw.error)
        return OutOfBounds(f"{finding.message} {finding.hint}", finding=finding, file=finding.file, line=finding.line)
    if raw.raised and not raw.error and not raw.stopped:
        return _raised(launch, raw.raised)
    if raw.stuck and raw.stuck.deadlock and not raw.error:
        return _deadlock(launch, raw.stuck)
    return _stopped(launch, raw) if raw.error or raw.stopped else None


def barrier_findings(c: Compiled, raw: Raw) -> tuple[Finding, ...]:
    """Barriers that not all threads of a block, or a warp, met at."""
    if raw.divergent_barrier is not None:
        a, b = (c.barrier_lines[k] for k in raw.divergent_barrier)
        message = f"Threads of one block waited at different barriers (lines {a} and {b}) and were matched with each other."
        hint = "GPUs since Volta count arrivals wherever they are; let all threads pass the same syncthreads()."
        return (Finding("divergent_barrier", "warning", message, hint, file=c.program.file, line=b, other_line=a),)
    if raw.bypassed_barrier is not None:
        line = c.barrier_lines[raw.bypassed_barrier]
        message = f"Only some threads of a warp reach the barrier at line {line}; others pass by it and go on working."
        hint = (
            "CUDA allows syncthreads() in a branch only if all threads of the block take it, or the others have returned. "
            "Move the barrier out of the branch or loop."
        )
        return (Finding("divergent_barrier", "warning", message, hint, file=c.program.file, line=line),)
    return ()


def _coordinates(linear: int, extent: Dim) -> Dim:
    return linear % extent[0], linear // extent[0] % extent[1], linear // (extent[0] * extent[1])


def _show(dim: Dim) -> str:
    return f"({dim[0]}, {dim[1]}, {dim[2]})"


def _some(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _quoted(text: str) -> str:
    return f" (`{text}`)" if text else ""


# ---- exceptions of the kernel's own -----------------------------------------------------------------------------------


def _raised(launch: Launch, raised: tuple[int, int, int]) -> BaseException:
    """The exception of the first block's first thread that raised one, worded as numba words it."""
    linear, thread, code = raised
    unknown = f"unknown error {code} in native function (a device function raised it; numba keeps a kernel's own exceptions only)"
    kind, values, place = launch.kernel.exceptions.get(code, (SystemError, (unknown,), None))
    tid, ctaid = list(reversed(launch.thread_at(thread))), list(reversed(launch.block_at(linear)))
    where = f"In function {place[0]!r}, file {place[1]}, line {place[2]}, " if place else ""
    prefix = f"{where}tid={tid} ctaid={ctaid}"
    return kind(f"{prefix}: {values[0]}", *values[1:]) if values else kind(prefix)


# ---- launches that do not end -----------------------------------------------------------------------------------------


def _stopped(launch: Launch, raw: Raw) -> Exception:
    """A loop without end, threads that still waited, or more blocks than there was time for."""
    name, interrupted = f"Kernel {launch.kernel.name}", raw.stopped == "interrupted"
    what = f"{name} was interrupted." if interrupted else f"{name} did not finish: {raw.stopped}."
    if raw.error:
        line = launch.compiled.block_lines[raw.error[1]]
        others = f"Other blocks were suspended: {_waits(launch, raw.stuck)}. " if raw.stuck else ""
        message = f"{what} It was in the loop at line {line} ({launch.text(line)}), block {_show(launch.block_at(raw.error[6]))}. {others}"
        message += "Check that the loop's condition can become false for every thread."
        return RunawayKernel(message, interrupted=interrupted, file=launch.file, line=line)
    if raw.stuck:
        message = f"{what} {_waits(launch, raw.stuck)}. Check that what they wait for can happen."
        return RunawayKernel(message, interrupted=interrupted, file=launch.file, line=_foremost(raw.stuck)[1])
    blocks, threads = math.prod(launch.grid), math.prod(launch.block)
    return RunawayKernel(
        f"{name} was stopped: {raw.stopped}. It was launched with {blocks:,} blocks of {threads:,} threads: "
        f"{blocks * threads:,} in all. Is the grid right for the size of the arrays?",
        interrupted=interrupted,
        file=launch.file,
        line=launch.kernel.first_line,
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


def _waits(launch: Launch, stuck: Stuck) -> str:
    """ "3 blocks (6 warps, 96 threads) wait in the loop at line 7 (`while ...`), first block 0; 1 block ..." """
    parts = []
    for (kind, line), (first, blocks, warps, threads) in _by_place(stuck).items():
        who = f"{_some(blocks, 'block')} ({_some(warps, 'warp')}, {_some(threads, 'thread')}) wait{'s' * (blocks == 1)}"
        parts.append(f"{who} {_PLACES[kind]} at line {line}{_quoted(launch.text(line))}, first block {first}")
    return "; ".join(parts)


def _deadlock(launch: Launch, stuck: Stuck) -> Exception:
    finding = deadlock(launch, stuck)
    said = f"{finding.message} {finding.hint}"
    if _foremost(stuck)[0] == LOOP:
        return RunawayKernel(said, file=launch.file, line=finding.line)
    return BarrierError(said, finding=finding, file=launch.file, line=finding.line)


def deadlock(launch: Launch, stuck: Stuck) -> Finding:
    """Threads wait for what no thread can do any more. other_line: where others wait."""
    kind, line = _foremost(stuck)
    message = f"Deadlock in kernel {launch.kernel.name}: no thread can go on. {_waits(launch, stuck)}."
    hint = "Check the order in which locks are taken, and that another thread sets what these wait for."
    if kind != LOOP:
        hint = "Every thread of a block, or of the grid, has to reach the barrier."
    if launch.compiled.plan.crosses:
        room, total = launch.room, math.prod(launch.grid)
        left = total - stuck.started
        message += f" {_some(stuck.ended, 'block')} returned." if stuck.ended else ""
        if launch.sampled:
            message += f" Only {launch.sampled:,} of {total:,} blocks ran (sample_blocks)."
            hint = "If they wait for blocks that are not part of the sample, run all of them: sample_blocks=None."
        elif left > 0:
            message += f" {_some(left, 'block')} never started: {room.blocks:,} are resident at once ({room.why}), and none of them ends."
            hint = (
                "Blocks may wait only for blocks that are resident with them, or that started earlier: launch fewer, or take work in order."
            )
        elif stuck.headless:
            message += f" Thread (0, 0, 0) of block {_show(launch.block_at(stuck.headless[0]))} has returned; grid.sync() needs it."
    elsewhere = min((w.line for w in stuck.waits if w.line != line), default=None)
    block = launch.block_at(stuck.block)
    return Finding("deadlock", "error", message, hint, file=launch.file, line=line, block=block, other_line=elsewhere)
