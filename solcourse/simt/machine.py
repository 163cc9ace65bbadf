"""Runs compiled warp code over a grid: memory for the threads, the launch record, blocks spread over cores, raw counters back."""

from __future__ import annotations

import math
import os
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from solcourse.simt import recording
from solcourse.simt.addressable import Addressable
from solcourse.simt.arguments import BoundArguments
from solcourse.simt.checking import Checked, Shadow, Watch
from solcourse.simt.compiler import Compiled, call
from solcourse.simt.layout import (
    ERROR_BOUNDS,
    LAUNCH,
    LAUNCH_BYTES,
    MEMO,
    MEMO_BYTES,
    MEMO_WAYS,
    SITE_BYTES,
    THREAD,
    THREAD_BYTES,
    TOTALS_BYTES,
    TRACED_BYTES,
)  # fmt: skip
from solcourse.simt.observe import ACTIVE_LANES, DIVERGENT, EXECUTIONS, ROW
from solcourse.simt.pieces import CHUNK
from solcourse.simt.pool import CLEAN, MEMORY, aligned
from solcourse.simt.printing import BUFFER_BYTES
from solcourse.simt.recording import TRACE_BLOCKS, RecordedTrace
from solcourse.simt.records import WARP, Trace
from solcourse.simt.resident import Residents, Stuck

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

EXEC_ROWS_BYTES = 256 << 10  # bound of the per-warp execution counts
POLL_S = 0.05


@dataclass(slots=True)
class Raw:
    """What came back, before interpretation. error: (kind, site, lane, offset, mask, size, block, warp) or None."""

    executions: np.ndarray  # (basic blocks, ROW)
    warp_rows: np.ndarray  # (kept blocks, warps, basic blocks) executions
    sites: np.ndarray  # (sites, 5) sectors, wavefronts, conflicts, and requests and lanes of sites in plan.several_sites
    trace: Trace
    touched: list[tuple[int, int, int]]  # per allocation: distinct bytes read before written, distinct bytes written, its size
    same_address_atomics: int
    divergent_barrier: tuple[int, int] | None
    bypassed_barrier: int | None
    error: tuple[int, ...] | None
    raised: tuple[int, int, int] | None  # status code, block, thread of a kernel's own exception
    printed: list[tuple[bytes, int]]  # per worker: records of printing.py, lines lost
    stopped: str = ""
    stuck: Stuck | None = None
    checked: Checked | None = None  # of a build with checks


@cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # cannot be imported when the interpreter is at its end

    return ThreadPoolExecutor(max_workers=64, thread_name_prefix="simt")


def _after_fork() -> None:
    """A forked child has none of its parent's threads."""
    _pool.cache_clear()
    MEMORY.renew()
    CLEAN.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Worker:
    """The memory of one worker."""

    def __init__(self, c: Compiled, launch: np.ndarray, rows: np.ndarray, warps: int, shared_bytes: int, counters: bool, traced: int):
        plan, sites, nodes = c.plan, len(c.program.sites), len(c.program.blocks)
        self.record = aligned(THREAD_BYTES).view(np.int64)
        self.memo = MEMORY.take(max(1, sites) * SITE_BYTES if counters else 64)
        self.totals = np.zeros((max(1, sites), TOTALS_BYTES // 8), np.int64)
        self.exec = np.zeros((nodes, ROW), np.int64)
        self.shared = aligned(shared_bytes + 64)
        self.local = aligned(plan.local_bytes * WARP * (warps if plan.has_barriers else 1) + 64)
        self.saved = aligned(plan.saved_bytes * warps + 64)
        self.scratch = aligned(2 * WARP * 8)
        self.dummy = aligned(8 * 80)
        self.rows = rows.copy()
        # a request becomes two words of a Trace at least: a full buffer is more than fits into one
        requests, shaped = (recording.TRACE_WORDS // 2 + 1, recording.TRACE_WORDS + len(c.uniform_shapes)) if traced else (0, 0)
        self.requests, self.shapes = (MEMORY.take(8 * (n + CHUNK), zero=False) for n in (requests, shaped))
        if traced:
            self.shapes[: c.uniform_shapes.nbytes].view(np.int64)[:] = c.uniform_shapes
        self.traced_block = MEMORY.take(max(1, traced) * TRACED_BYTES, zero=False)
        self.traced = self.traced_block[: max(1, traced) * TRACED_BYTES].view(np.int64).reshape(-1, TRACED_BYTES // 8)
        put = {
            "launch": launch.ctypes.data, "exec": self.exec.ctypes.data, "exec_common": self.exec.ctypes.data,
            "shared": self.shared.ctypes.data, "local": self.local.ctypes.data, "saved": self.saved.ctypes.data,
            "scratch": self.scratch.ctypes.data, "dummy": self.dummy.ctypes.data, "memo": self.memo.ctypes.data,
            "totals": self.totals.ctypes.data, "allocs": self.rows.ctypes.data, "blocks": self.traced.ctypes.data,
            "trace": self.requests.ctypes.data, "trace_limit": self.requests.ctypes.data + 8 * requests,
            "shapes": self.shapes.ctypes.data, "shapes_used": len(c.uniform_shapes), "shapes_limit": shaped,
        }  # fmt: skip
        self.shadow: Shadow | None = None
        self.printed = aligned(BUFFER_BYTES if plan.prints else 8, zero=False)
        put |= {"print_at": self.printed.ctypes.data, "print_end": self.printed.ctypes.data + len(self.printed)}
        for name, value in put.items():
            self.record[THREAD[name] // 8] = value

    def __getitem__(self, name: str) -> int:
        return int(self.record[THREAD[name] // 8])


def launch_grid(
    c: Compiled,
    bound: BoundArguments,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    dynamic_shared_bytes: int,
    *,
    counters: bool,
    first: int,
    count: int,
    threads: int | None,
    limit_s: float,
    total_s: float | None = None,
    room: int = 1,
    checks: bool = False,
    watches: tuple[Watch, ...] = (),
) -> Raw:
    """Runs blocks first .. first + count - 1 of the grid. room: how many of them are resident together, where they may wait for others.
    checks: of a build with checks, on one thread; watches: cells whose accesses are wanted."""
    plan = c.plan
    warps = -(-math.prod(block) // WARP)
    tables, masks = _thread_indices(block)
    shared_bytes = -(-plan.shared_bytes // 16) * 16 + dynamic_shared_bytes
    workers = (
        1 if plan.ordered or checks else max(1, min(threads or cores(), count, count * warps // 64))
    )  # a few warps run sooner than a thread starts
    traced = min(count, TRACE_BLOCKS) if counters else 0
    row_bytes = len(c.program.blocks) * ROW * 8
    kept = min(traced, max(1, EXEC_ROWS_BYTES // (row_bytes * warps))) if counters else 0
    exec_memory = MEMORY.take(kept * warps * row_bytes)
    exec_rows = exec_memory[: kept * warps * row_bytes].view(np.int64).reshape(kept, warps, len(c.program.blocks), ROW)
    launch = aligned(LAUNCH_BYTES).view(np.int64)
    args = np.array([_bits(t, v) for t, v in bound.values] or [0], np.uint64)
    values = {
        "end": count, "chunk": 1 if plan.waits else max(1, min(64, count // (workers * 32))), "grid_x": grid[0], "grid_y": grid[1], "grid_z": grid[2],
        "block_x": block[0], "block_y": block[1], "block_z": block[2], "warps": warps,
        "tid_x": tables[0].ctypes.data, "tid_y": tables[1].ctypes.data, "tid_z": tables[2].ctypes.data, "masks": masks.ctypes.data,
        "dynamic_shared": dynamic_shared_bytes, "shared_bytes": shared_bytes, "local_bytes": plan.local_bytes * WARP,
        "saved_bytes": plan.saved_bytes, "exec_rows": exec_rows.ctypes.data, "exec_rows_blocks": kept, "exec_row_bytes": row_bytes,
        "first": first, "args": args.ctypes.data, "trace_blocks": traced,
    }  # fmt: skip
    for name, value in values.items():
        launch[LAUNCH[name] // 8] = value
    arrays = Addressable(c, bound, dynamic_shared_bytes, counters, count < math.prod(grid))
    shadow = (
        Shadow(c, arrays, tuple(g * b for g, b in zip(grid, block, strict=True)), warps, first, count, shared_bytes, watches)
        if checks
        else None
    )
    crew = []
    for _ in range(workers):
        worker = Worker(c, launch, arrays.rows(), warps, shared_bytes, counters, traced)
        arrays.place_shared(worker)
        crew.append(worker)
        if shadow:
            worker.shadow = shadow
            shadow.place(worker, launch)
    stopped, stuck = _run(c, crew, launch, limit_s, total_s, room if plan.crosses else 1)
    raw = _collect(c, crew, exec_rows, arrays, masks, int(launch[LAUNCH["end"] // 8]))
    MEMORY.give([exec_memory])
    raw.stopped, raw.stuck = stopped, stuck
    if shadow:
        raw.checked = shadow.finish()
    if stuck and stuck.deadlock and raw.error and stuck.block <= raw.error[6]:  # of two faults the one in the lower block
        raw.error = None
    return raw


def _work(c: Compiled, worker: Worker, launch: np.ndarray, room: int) -> Stuck | None:
    """One worker's blocks. Returns what waits for ever, or waited when the launch was stopped."""
    if not c.plan.waits:
        call(c.entry, worker.record.ctypes.data)
        return None
    blocks = Residents(c, worker, launch, MEMORY.take, room)
    try:
        return blocks.run()
    finally:
        MEMORY.give(blocks.taken)


def _run(c: Compiled, crew: list[Worker], launch: np.ndarray, limit_s: float, total_s: float | None, room: int) -> tuple[str, Stuck | None]:
    """Runs the workers; watches for a launch that makes no progress and for Ctrl-C. Returns why it was stopped, or '', and what waits."""
    stop, done = LAUNCH["stop"] // 8, LAUNCH["done"] // 8
    reason, seen, since = "", 0, time.monotonic()
    begun = since
    try:
        jobs = [_pool().submit(_work, c, w, launch, room) for w in crew]
    except RuntimeError:  # in an atexit function: no thread can be started any more, and nobody watches
        return "", min((s for w in crew if (s := _work(c, w, launch, room))), key=lambda s: s.block, default=None)
    while True:
        try:
            with suppress(TimeoutError):
                stuck = [s for job in jobs if (s := job.result(timeout=POLL_S))]
                return reason, min(stuck, key=lambda s: s.block, default=None)
            now = time.monotonic()
            if launch[done] != seen:
                seen, since = int(launch[done]), now
            if not reason and now - since > limit_s:
                reason = f"no block finished for {limit_s:g} s"
                launch[stop] = 1
            if not reason and total_s is not None and now - begun > total_s:
                reason = f"it had run for {total_s:g} s"
                launch[stop] = 1
        except KeyboardInterrupt:  # wherever it strikes: nobody leaves before the workers, whose memory would go
            reason = "interrupted"
            launch[stop] = 1


@cache
def _thread_indices(block: tuple[int, int, int]) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """threadIdx of every lane of every warp, 64-byte aligned, and the mask of lanes that exist."""
    n = block[0] * block[1] * block[2]
    warps = -(-n // WARP)
    t = np.arange(warps * WARP)
    parts = (t % block[0], t // block[0] % block[1], t // (block[0] * block[1]))
    tables = []
    for part in parts:
        table = aligned(warps * WARP * 4).view(np.int32)
        table[:] = part
        tables.append(table)
    alive = (t < n).reshape(warps, WARP)
    masks = (alive * (1 << np.arange(WARP, dtype=np.uint64))).sum(axis=1).astype(np.uint32)
    return (tables[0], tables[1], tables[2]), masks


def _bits(t: str, value: int | float) -> int:
    if t == "double":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    if t == "float":
        return struct.unpack("<I", struct.pack("<f", np.float32(value)))[0]
    if t == "half":
        return struct.unpack("<H", struct.pack("<e", np.float16(value)))[0]
    return int(value) & (2**64 - 1)


def _collect(c: Compiled, crew: list[Worker], exec_rows: np.ndarray, arrays: Addressable, masks: np.ndarray, count: int) -> Raw:
    """The workers' records added up, and their memory given back. masks: of each warp's lanes; count: blocks that ran."""
    error, counted = _error(crew), arrays.counters
    empty = Trace(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint64))
    trace = RecordedTrace(crew) if counted and not error else empty
    if trace is empty:
        MEMORY.give([b for w in crew for b in (w.requests, w.shapes, w.traced_block)])
    touched, most = arrays.totals(trace, count) if counted and not error else ([], 0)
    executions, warp_rows = _executions(c, crew, exec_rows, masks, count, counted)
    raw = Raw(
        executions=executions,
        warp_rows=warp_rows,
        sites=_sites(crew, len(c.program.sites), counted),
        trace=trace,
        touched=touched,
        same_address_atomics=most,
        divergent_barrier=min(
            (((w["divergent"] >> 32) - 1, (w["divergent"] & 0xFFFFFFFF) - 1) for w in crew if w["divergent"]), default=None
        ),
        bypassed_barrier=min((w["bypassed"] - 1 for w in crew if w["bypassed"]), default=None),
        error=error,
        raised=min(((w["raised_block"], w["raised_thread"], w["raised"]) for w in crew if w["raised"]), default=None),
        printed=[(w.printed[: w["print_at"] - w.printed.ctypes.data].tobytes(), w["print_lost"]) for w in crew] if c.plan.prints else [],
    )
    MEMORY.give([w.memo for w in crew] + arrays.keep)
    return raw


def _executions(
    c: Compiled, crew: list[Worker], exec_rows: np.ndarray, masks: np.ndarray, count: int, counted: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Of each basic block, and of each warp of the kept blocks; what the leaders counted is also their followers'."""
    of_rows = np.einsum("rc->c", exec_rows.reshape(-1, len(c.program.blocks) * ROW))  # twice as fast as sum()
    executions = of_rows.reshape(-1, ROW) + sum(w.exec for w in crew)
    if not counted:
        return executions, np.zeros((0, len(masks), len(executions)), np.int64)
    executions[0, EXECUTIONS] = count * len(masks)
    executions[0, ACTIVE_LANES] = count * int(np.bitwise_count(masks).sum())
    exec_rows[:, :, 0, EXECUTIONS] = 1
    executions[:, :DIVERGENT] = executions[c.leaders, :DIVERGENT]
    return executions, exec_rows[..., EXECUTIONS][..., c.leaders]


def _sites(crew: list[Worker], count: int, counted: bool) -> np.ndarray:
    """What each memory site has cost: what was flushed from its remembered patterns, and what they hold."""
    sites = np.zeros((max(1, count), TOTALS_BYTES // 8), np.int64)
    for w in crew:
        sites += w.totals
        if counted and count:
            memo = np.ndarray((count, MEMO_WAYS, MEMO_BYTES // 8), np.int64, w.memo, strides=(SITE_BYTES, MEMO_BYTES, 8))
            hits, costs = MEMO["hits"] // 8, MEMO["sectors"] // 8  # and the wavefronts and conflicts behind them
            sites[:, :3] += np.einsum("sw,swk->sk", memo[:, :, hits], memo[:, :, costs : costs + 3])
    return sites


def _error(crew: list[Worker]) -> tuple[int, ...] | None:
    """Raw.error: of a stray access rather than of a stopped loop, and of the lowest block."""
    fields = "error error_site error_lane error_offset error_mask error_size block warp".split()
    errors = [tuple(w[name] for name in fields) for w in crew if w["error"]]
    return min(errors, key=lambda e: (e[0] != ERROR_BOUNDS, e[6]), default=None)
