"""One launch on the CPU engine: kernel IR and bound arguments in, an EngineRun out. The door of solcourse.simt."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable
from typing import Any

from solcourse.errors import LaunchError, SolcourseError
from solcourse.simt import hazards, printing
from solcourse.simt.arguments import BoundArguments
from solcourse.simt.checking import Watch
from solcourse.simt.compiler import Compiled, compile_warp
from solcourse.simt.counting import interpret
from solcourse.simt.faults import Dim, Launch, fault_of
from solcourse.simt.frontend import KernelIR
from solcourse.simt.machine import Raw, launch_grid
from solcourse.simt.records import WARP, EngineRun, Finding, Residency

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
    compiled = compile_warp(kernel, counters=counters, rows_uniform=block[0] % WARP == 0)
    launch, raw = _run(
        kernel, compiled, bound, grid, block, dynamic_shared_bytes, sample_blocks, residency,
        counters=counters, threads=threads, limit_s=limit_s, total_s=total_s,
    )  # fmt: skip
    fault = fault_of(launch, raw)
    if fault:
        raise fault
    return interpret(launch, raw, counters, math.prod(grid) / (launch.sampled or math.prod(grid)))


def sanitize(
    kernel: KernelIR,
    bound: BoundArguments,
    grid: Dim,
    block: Dim,
    dynamic_shared_bytes: int = 0,
    *,
    function: Callable | None = None,
    sample_blocks: int | None = None,
    limit_s: float = 30.0,
    total_s: float | None = None,
    residency: Callable[[Compiled], Residency] | None = None,
    again: Callable[[], BoundArguments] | None = None,
) -> tuple[Finding, ...]:
    """Run with every check on, one thread, and say what is wrong: memcheck, racecheck, initcheck, synccheck. Arrays are written.

    A stray access ends the launch; all that was seen before it is told with it. What the kernel does wrong is not raised.
    function: the kernel's Python function, for the shapes of its shared arrays. again: gives the same arguments once more, as they were:
    then a second run finds out who touched the elements of the findings, for their pictures. Other parameters as of `execute`.
    Raises UnsupportedKernel, LaunchError (nothing ran; also where the shadow memory would be too large); RunawayKernel on Ctrl-C; and
    what the kernel itself raised where it was made with debug=True.
    """
    compiled = compile_warp(kernel, counters=False, rows_uniform=block[0] % WARP == 0, checks=True)

    def run(arguments: BoundArguments, watches: tuple[Watch, ...] = ()) -> tuple[Launch, Raw]:
        return _run(
            kernel, compiled, arguments, grid, block, dynamic_shared_bytes, sample_blocks, residency,
            counters=False, threads=1, limit_s=limit_s, total_s=total_s, checks=True, watches=watches,
        )  # fmt: skip

    launch, raw = run(bound)
    fault = fault_of(launch, raw)
    if fault and (raw.stopped == "interrupted" or not isinstance(fault, SolcourseError)):
        raise fault
    told = hazards.findings(launch, raw, function)
    watches = hazards.watches(told)
    if again is None or not watches:
        return tuple(t.finding for t in told)
    launch, raw = run(again(), watches)
    return hazards.with_touches(launch, told, raw.checked.seen if raw.checked else ())


def _run(
    kernel: KernelIR,
    compiled: Compiled,
    bound: BoundArguments,
    grid: Dim,
    block: Dim,
    dynamic_shared_bytes: int,
    sample_blocks: int | None,
    residency: Callable[[Compiled], Residency] | None,
    **options: Any,
) -> tuple[Launch, Raw]:
    total = math.prod(grid)
    sampled = _sampled(sample_blocks, total)
    count = sampled or total
    twins = 2 if options.get("checks") and compiled.program.local_bytes else 1  # local_arrays.py
    _check_memory(kernel, compiled, dynamic_shared_bytes, twins)
    room = _room(compiled, total, block, residency)
    first = 0 if compiled.plan.crosses else (total - count) // 2
    raw = launch_grid(compiled, bound, grid, block, dynamic_shared_bytes, first=first, count=count, room=room.blocks, **options)
    if not options.get("watches"):  # a second look
        printing.show(printing.lines(raw.printed, _strings(compiled), raw.error[6] if raw.error else None))
    return Launch(kernel, compiled, bound, grid, block, dynamic_shared_bytes, room, sampled), raw


def _sampled(sample_blocks: int | None, total: int) -> int | None:
    """How many blocks run, None: all."""
    count = None if sample_blocks is None else operator.index(sample_blocks)
    if count is not None and count < 1:
        raise LaunchError(f"sample_blocks is {count}: at least one block has to run.")
    return count if count is not None and count < total else None


def _check_memory(kernel: KernelIR, c: Compiled, dynamic_shared_bytes: int, twins: int) -> None:
    local = c.program.local_bytes // twins
    if local > MOST_LOCAL_BYTES:
        raise LaunchError(
            f"Kernel {kernel.name} declares {local:,} bytes of local arrays; no GPU gives a thread more than {MOST_LOCAL_BYTES:,} (512 KiB). "
            "Make them smaller, or use an array argument with a part for each thread. Nothing ran.",
            file=kernel.file,
            line=kernel.first_line,
        )
    shared = c.program.static_shared_bytes + dynamic_shared_bytes
    if shared > MOST_SHARED_BYTES:
        raise LaunchError(
            f"Kernel {kernel.name} asks for {shared:,} bytes of shared memory per block ({dynamic_shared_bytes:,} of them dynamic); "
            f"no GPU gives a block more than {MOST_SHARED_BYTES:,}. Make the arrays smaller, or the block do less. Nothing ran.",
            file=kernel.file,
            line=kernel.first_line,
        )


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


def _strings(c: Compiled) -> dict[int, str]:
    """The text at the address of each constant, for the kernels that print."""
    if not c.plan.prints:
        return {}
    return {a: ctypes.string_at(a, size).split(b"\0")[0].decode(errors="replace") for a, size in c.constants.values()}
