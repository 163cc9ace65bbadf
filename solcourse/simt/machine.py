"""Runs compiled warp code over a grid: memory for the threads, the launch record, blocks spread over cores, raw counters back."""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from solcourse.simt.arguments import BoundArguments
from solcourse.simt.compiler import Compiled, call, distinct_bits, expand_trace
from solcourse.simt.layout import (
    ALLOC,
    ALLOC_BYTES,
    LAUNCH,
    LAUNCH_BYTES,
    MEMO_BYTES,
    MEMO_WAYS,
    THREAD,
    THREAD_BYTES,
    TOTALS_BYTES,
    TRACED_BYTES,
)  # fmt: skip
from solcourse.simt.observe import ACTIVE_LANES, DIVERGENT, EXECUTIONS, ROW
from solcourse.simt.printing import BUFFER_BYTES
from solcourse.simt.records import LINE_BYTES, WARP, Trace
from solcourse.simt.resident import Residents, Stuck
from solcourse.simt.runtime import CHUNK

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

TRACE_WORDS = 1 << 20  # bound of the Trace: 8 MiB, lines of half a million requests; beyond it whole blocks are left out
TRACE_BLOCKS = 1 << 17
EXEC_ROWS_BYTES = 256 << 10  # bound of the per-warp execution counts
VIRTUAL_BASE = 1 << 21  # line number of the first array in the virtual address space
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
    keep: list = field(default_factory=list)


def _aligned(nbytes: int, zero: bool = True) -> np.ndarray:
    raw = (np.zeros if zero else np.empty)(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


class Memory:
    """Blocks of memory kept for the next launch: fresh pages cost more than most launches do.

    clean: blocks are zero when taken and must be zero when given back."""

    KEEP_BYTES = 256 << 20

    def __init__(self, clean: bool = False) -> None:
        self._clean = clean
        self._free: dict[int, list[np.ndarray]] = {}
        self._kept = 0
        self._lock = threading.Lock()

    def renew(self) -> None:
        """After a fork: the lock may have been held by a thread that is no more."""
        self._lock = threading.Lock()

    def take(self, nbytes: int, zero: bool = True) -> np.ndarray:
        """At least nbytes, 64-byte aligned; zeroed unless zero=False."""
        size = 1 << max(12, (nbytes - 1).bit_length())
        with self._lock:
            if self._free.get(size):
                self._kept -= size
                block = self._free[size].pop()
            else:
                return _aligned(size, zero or self._clean)
        if zero and not self._clean:
            block[:nbytes] = 0
        return block

    def give(self, blocks: list[np.ndarray]) -> None:
        with self._lock:
            for b in blocks:
                if self._kept + len(b) <= self.KEEP_BYTES:
                    self._kept += len(b)
                    self._free.setdefault(len(b), []).append(b)


MEMORY, CLEAN = Memory(), Memory(clean=True)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one worker traced. notes: (blocks, 3) index, address of the first request, words; addresses of shapes and of the end."""

    notes: np.ndarray
    shapes: int
    end: int


class RecordedTrace(Trace):
    """A Trace still in the workers' buffers; put together when it is first read, buffers given back when it is dropped."""

    _parts: list[_Part]

    def __init__(self, crew: list[_Thread]):
        self.__dict__["_parts"] = [_Part(w.traced[: w["blocks_count"]].copy(), w.shapes.ctypes.data, w["trace"]) for w in crew]
        weakref.finalize(self, MEMORY.give, [b for w in crew for b in (w.requests, w.shapes)])

    @cached_property
    def _made(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _assemble(self._parts)

    @property
    def blocks(self) -> np.ndarray:  # type: ignore[override]
        return self._made[0]

    @property
    def offsets(self) -> np.ndarray:  # type: ignore[override]
        return self._made[1]

    @property
    def words(self) -> np.ndarray:  # type: ignore[override]
        return self._made[2]

    def __reduce__(self):
        return Trace, (self.blocks, self.offsets, self.words)


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


class _Thread:
    """The memory of one worker."""

    def __init__(self, c: Compiled, launch: np.ndarray, rows: np.ndarray, warps: int, shared_bytes: int, counters: bool, traced: int):
        plan, sites, nodes = c.plan, len(c.program.sites), len(c.program.blocks)
        self.record = _aligned(THREAD_BYTES).view(np.int64)
        self.memo_bytes = max(1, sites) * MEMO_WAYS * MEMO_BYTES if counters else 64
        self.memo = MEMORY.take(self.memo_bytes)
        self.totals = np.zeros((max(1, sites), TOTALS_BYTES // 8), np.int64)
        self.exec = np.zeros((nodes, ROW), np.int64)
        self.shared = _aligned(shared_bytes + 64)
        self.local = _aligned(plan.local_bytes * WARP * (warps if plan.has_barriers else 1) + 64)
        self.saved = _aligned(plan.saved_bytes * warps + 64)
        self.scratch = _aligned(WARP * 8)
        self.dummy = _aligned(8 * 80)
        self.rows = rows.copy()
        self.requests, self.shapes = (MEMORY.take(8 * (TRACE_WORDS + slack), zero=False) if traced else _aligned(64) for slack in (2, 80))
        self.traced_block = MEMORY.take(max(1, traced) * TRACED_BYTES, zero=False)
        self.traced = self.traced_block[: max(1, traced) * TRACED_BYTES].view(np.int64).reshape(-1, TRACED_BYTES // 8)
        put = {
            "launch": launch.ctypes.data, "exec": self.exec.ctypes.data, "exec_common": self.exec.ctypes.data,
            "shared": self.shared.ctypes.data, "local": self.local.ctypes.data, "saved": self.saved.ctypes.data,
            "scratch": self.scratch.ctypes.data, "dummy": self.dummy.ctypes.data, "memo": self.memo.ctypes.data,
            "totals": self.totals.ctypes.data, "allocs": self.rows.ctypes.data, "blocks": self.traced.ctypes.data,
            "trace": self.requests.ctypes.data, "shapes": self.shapes.ctypes.data, "trace_limit": TRACE_WORDS if traced else 0,
        }  # fmt: skip
        self.printed = _aligned(BUFFER_BYTES if plan.prints else 8, zero=False)
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
) -> Raw:
    """Runs blocks first .. first + count - 1 of the grid. room: how many of them are resident together, where they may wait for others."""
    plan = c.plan
    per_block = block[0] * block[1] * block[2]
    warps = -(-per_block // WARP)
    tables, masks = _thread_indices(block)
    shared_bytes = -(-plan.shared_bytes // 16) * 16 + dynamic_shared_bytes
    workers = 1 if plan.ordered else max(1, min(threads or cores(), -(-count // 32)))  # a few blocks run sooner than a thread starts
    traced = min(count, TRACE_BLOCKS) if counters else 0
    row_bytes = len(c.program.blocks) * ROW * 8
    kept = min(traced, max(1, EXEC_ROWS_BYTES // (row_bytes * warps))) if counters else 0
    exec_rows = np.zeros((kept, warps, len(c.program.blocks), ROW), np.int64)
    launch = _aligned(LAUNCH_BYTES).view(np.int64)
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
    maps = _Maps(c, bound, dynamic_shared_bytes, counters, count < grid[0] * grid[1] * grid[2])
    crew = []
    for _ in range(workers):
        rows = maps.rows()
        worker = _Thread(c, launch, rows, warps, shared_bytes, counters, traced)
        maps.place_shared(worker)
        crew.append(worker)
    stopped, stuck = _run(c, crew, launch, limit_s, total_s, room if plan.crosses else 1)
    raw = _collect(c, crew, launch, exec_rows, maps, stopped, (tables, masks, args, bound))
    raw.stuck = stuck
    if stuck and stuck.deadlock and raw.error and stuck.block <= raw.error[6]:  # of two faults the one in the lower block
        raw.error = None
    return raw


def _work(c: Compiled, worker: _Thread, launch: np.ndarray, room: int) -> Stuck | None:
    """One worker's blocks. Returns what waits for ever, or waited when the launch was stopped."""
    if not c.plan.waits:
        call(c.entry, worker.record.ctypes.data)
        return None
    blocks = Residents(c, worker, launch, MEMORY.take, room)
    try:
        return blocks.run()
    finally:
        MEMORY.give(blocks.taken)


def _run(
    c: Compiled, crew: list[_Thread], launch: np.ndarray, limit_s: float, total_s: float | None, room: int
) -> tuple[str, Stuck | None]:
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
        table = _aligned(warps * WARP * 4).view(np.int32)
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


class _Maps:
    """ALLOC rows, and per worker the maps of words read and written."""

    def __init__(self, c: Compiled, bound: BoundArguments, dynamic: int, counters: bool, sampled: bool):
        self.c, self.counters, self.sampled = c, counters, sampled
        self.allocations = list(bound.allocations)
        self.lines = []
        line = VIRTUAL_BASE
        for a in self.allocations:  # 512-byte aligned, as cudaMalloc's are at least
            self.lines.append(line)
            line += -(-max(a.nbytes, 1) // 512) * 4
        pointers = [v for t, v in bound.values if t in ("ptr", "i8*") or t.endswith("*")]
        self.of_param = [self._find(int(p)) for p in pointers]
        reached = zip((k for k, (kind, _) in enumerate(c.plan.rows) if kind == "param"), self.of_param, strict=False)
        rows = [(k, index) for k, index in reached if index is not None]
        self.read = {index for k, index in rows if k in c.plan.read_rows}  # allocations the kernel may read, by any parameter
        self.written = {index for k, index in rows if k in c.plan.written_rows}
        self.atomics = any(s.kind == "global_atomic" for s in c.program.sites)
        self.maps: list[dict[int, tuple[Any, ...]]] = []
        self.keep: list = []
        self.bitmaps: list[np.ndarray] = []
        self.dynamic = dynamic

    def _find(self, p: int) -> int | None:
        empty = None
        for k, a in enumerate(self.allocations):
            if a.address <= p < a.address + a.nbytes:
                return k
            if p and p == a.address and empty is None:
                empty = k
        return empty

    def rows(self) -> np.ndarray:
        """A fresh (rows, 8) table, with this worker's own maps."""
        plan = self.c.plan
        table = np.zeros((len(plan.rows), ALLOC_BYTES // 8), np.int64)
        maps: dict[int, tuple[Any, ...]] = {}
        param = 0
        for k, (kind, name) in enumerate(plan.rows):
            row = table[k]
            if kind == "param":
                index = self.of_param[param]
                param += 1
                if index is None:
                    continue
                a = self.allocations[index]
                row[0], row[1], row[ALLOC["line"] // 8] = a.address, a.nbytes, self.lines[index]
                if self.counters:
                    if index not in maps:
                        lines = -(-a.nbytes // LINE_BYTES) + 1
                        words = -(-a.nbytes // 4) + 2 if self.atomics else 1
                        read = self._bitmap(lines) if index in self.read else None
                        written = self._bitmap(lines) if index in self.written else None
                        maps[index] = (read, written, self._map(words), self._map(words))
                    for m, column in zip(maps[index], ("read", "written", "stamp", "count"), strict=True):
                        row[ALLOC[column] // 8] = 0 if m is None else m.ctypes.data
            elif kind == "constant":
                row[0], row[1] = self.c.constants[name]
            elif kind == "local":
                row[1] = plan.local_sizes[name]
                row[ALLOC["spare"] // 8] = plan.local_bytes
        self.maps.append(maps)
        return table

    def _map(self, n: int) -> np.ndarray:
        if self.sampled:  # a few blocks of a launch that may reach over many GiB: pages that are not touched must cost nothing
            return np.frombuffer(mmap.mmap(-1, 4 * n), np.uint32)  # the heap would hand out, and clear, used pages
        block = MEMORY.take(4 * n)
        self.keep.append(block)
        return block[: 4 * n].view(np.uint32)

    def _bitmap(self, lines: int) -> np.ndarray:
        """One uint32 for each line, and some more to fill whole vectors; zero again after totals()."""
        n = -(-lines // 16) * 16
        if self.sampled:
            return self._map(n)
        block = CLEAN.take(4 * n)
        self.bitmaps.append(block)
        return block[: 4 * n].view(np.uint32)

    def place_shared(self, worker: _Thread) -> None:
        plan = self.c.plan
        base = worker.shared.ctypes.data
        for k, (kind, name) in enumerate(plan.rows):
            if kind == "shared":
                worker.rows[k, 0] = base + plan.shared_offsets[name]
                worker.rows[k, 1] = plan.shared_sizes.get(name) or self.dynamic

    def totals(self, trace: Trace, blocks: int) -> tuple[list[tuple[int, int, int]], int]:
        """(per allocation: distinct bytes read before written, distinct bytes written, size), most atomics on one address."""
        touched, most = [], 0
        lines = self._lines(trace, blocks)
        for index in self.maps[0] if self.maps else ():
            each = [maps[index] for maps in self.maps]
            read, written = (self._distinct([maps[k] for maps in each if maps[k] is not None], index, lines) for k in (0, 1))
            touched.append((4 * read, 4 * written, self.allocations[index].nbytes))
            if self.atomics:
                most = max(most, int(sum(maps[3] for maps in each).max(initial=0)))
        CLEAN.give(self.bitmaps)
        return touched, most

    def _distinct(self, maps: list[np.ndarray], index: int, lines: np.ndarray | None) -> int:
        """Bits set in any of the bitmaps, of a sample only those of `lines`; clears the bitmaps of a whole launch."""
        if not maps or not self.sampled:
            return distinct_bits([m.ctypes.data for m in maps], len(maps[0]) // 2 if maps else 0)
        where: slice | np.ndarray = slice(None)
        if lines is not None:
            here = lines - self.lines[index]
            where = here[(here >= 0) & (here < len(maps[0]))]
        return int(np.bitwise_count(np.bitwise_or.reduce([m[where] for m in maps])).sum(dtype=np.int64))

    def _lines(self, trace: Trace, blocks: int) -> np.ndarray | None:
        """Every line a sampled launch touched, where its trace is complete; else None, for all lines there are."""
        if not self.sampled or len(trace.blocks) != blocks:
            return None
        words = trace.words
        return np.unique((words[words >> np.uint64(63) == 0] >> np.uint64(32)).astype(np.int64))


def _collect(c: Compiled, crew: list[_Thread], launch, exec_rows: np.ndarray, maps: _Maps, stopped: str, keep: tuple) -> Raw:
    executions = exec_rows.sum(axis=(0, 1), dtype=np.int64)
    sites = np.zeros((max(1, len(c.program.sites)), TOTALS_BYTES // 8), np.int64)
    divergent = bypassed = None
    for w in crew:
        executions = executions + w.exec
        sites += w.totals
        if maps.counters and c.program.sites:
            memo = w.memo[: w.memo_bytes].view(np.int64).reshape(len(c.program.sites), MEMO_WAYS, MEMO_BYTES // 8)
            sites[:, :3] += (memo[:, :, 0:1] * memo[:, :, 4:7]).sum(axis=1)
        if w["bypassed"]:
            bypassed = min(w["bypassed"] - 1, bypassed if bypassed is not None else w["bypassed"])
        if w["divergent"]:
            pair = (w["divergent"] >> 32) - 1, (w["divergent"] & 0xFFFFFFFF) - 1
            divergent = min(divergent or pair, pair)
    errors = [
        (w["block"], *(w[n] for n in ("error", "error_site", "error_lane", "error_offset", "error_mask", "error_size")), w["warp"])
        for w in crew
        if w["error"]
    ]
    error = None
    if errors:
        errors.sort(key=lambda e: (e[1] != 1, e[0]))  # stray accesses first, lowest block first
        block, *rest, warp = errors[0]
        error = (*rest, block, warp)
    raised = min(((w["raised_block"], w["raised_thread"], w["raised"]) for w in crew if w["raised"]), default=None)
    printed = [(w.printed[: w["print_at"] - w.printed.ctypes.data].tobytes(), w["print_lost"]) for w in crew] if c.plan.prints else []
    trace = (
        RecordedTrace(crew) if maps.counters and not error else Trace(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint64))
    )
    touched, most = maps.totals(trace, int(launch[LAUNCH["end"] // 8])) if maps.counters and not error else ([], 0)
    MEMORY.give([b for w in crew for b in (w.memo, w.traced_block)] + maps.keep)
    warp_rows = exec_rows[..., EXECUTIONS]
    if maps.counters:
        count, masks = int(launch[LAUNCH["end"] // 8]), keep[1]
        executions[0, EXECUTIONS] = count * len(masks)
        executions[0, ACTIVE_LANES] = count * int(np.bitwise_count(masks).sum())
        warp_rows[..., 0] = 1
        executions[:, :DIVERGENT] = executions[c.leaders, :DIVERGENT]
        warp_rows = warp_rows[..., c.leaders]
    return Raw(executions, warp_rows, sites, trace, touched, most, divergent, bypassed, error, raised, printed, stopped, keep=[keep])


def _assemble(parts: list[_Part]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The longest run of traced blocks, from the first, that fits the bound: the same whatever thread ran which block.

    A first block that does not fit by itself is cut at its last whole request."""
    notes = np.concatenate([np.column_stack((p.notes, np.append(p.notes[1:, 1], p.end)[: len(p.notes)], np.full(len(p.notes), k)))
                            for k, p in enumerate(parts)])  # fmt: skip
    if len(parts) > 1:
        notes = notes[np.argsort(notes[:, 0], kind="stable")]
    if not len(notes):
        return np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint64)
    gaps = np.flatnonzero(np.diff(notes[:, 0]) != 1)
    notes = notes[: gaps[0] + 1] if len(gaps) else notes
    ends = np.cumsum(notes[:, 2])
    n = int(np.searchsorted(ends, TRACE_WORDS, side="right"))
    cut = n == 0  # the worker that ran the first block has nothing else in its buffer before it
    notes, ends = (notes[:1], np.array([TRACE_WORDS])) if cut else (notes[:n], ends[:n])
    words = np.empty(int(ends[-1]) + CHUNK, np.uint64)
    at = words.ctypes.data
    # blocks are handed out in chunks: expand what one worker traced in one go as one piece
    follows = (notes[1:, 4] == notes[:-1, 4]) & (notes[1:, 1] == notes[:-1, 3])
    first = np.concatenate(([0], np.flatnonzero(~follows) + 1))
    last = np.concatenate((first[1:], [len(notes)])) - 1
    for a, b in zip(first.tolist(), last.tolist(), strict=True):
        at = expand_trace(int(notes[a, 1]), int(notes[b, 3]), parts[int(notes[a, 4])].shapes, at)
    size = (at - words.ctypes.data) // 8
    offsets = np.concatenate(([0], [size] if cut else ends)).astype(np.int64)
    return notes[:, 0].copy(), offsets, words[:size]


__all__ = ["Raw", "launch_grid"]
