"""Runs compiled warp code over a grid: memory for the threads, the launch record, blocks spread over cores, raw counters back."""

from __future__ import annotations

import os
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from solcourse.simt.arguments import BoundArguments
from solcourse.simt.compiler import Compiled, call
from solcourse.simt.layout import (
    ALLOC, ALLOC_BYTES, LAUNCH, LAUNCH_BYTES, MEMO_BYTES, MEMO_WAYS, THREAD, THREAD_BYTES, TRACED_BYTES,
)  # fmt: skip
from solcourse.simt.observe import ROW
from solcourse.simt.records import LINE_BYTES, WARP, Trace

TRACE_WORDS = 1 << 22  # bound of the Trace: 32 MiB of line words; beyond it whole blocks are left out
TRACE_BLOCKS = 1 << 17
EXEC_ROWS_BYTES = 4 << 20  # bound of the per-warp execution counts
VIRTUAL_BASE = 1 << 21  # line number of the first array in the virtual address space
POLL_S = 0.05


@dataclass(slots=True)
class Raw:
    """What came back, before interpretation. error: (kind, site, lane, offset, mask, size, block, warp) or None."""

    executions: np.ndarray  # (basic blocks, ROW)
    warp_rows: np.ndarray  # (kept blocks, warps, basic blocks) executions
    sites: np.ndarray  # (sites, 3) sectors, wavefronts, conflicts
    trace: Trace
    read_bytes: int
    written_bytes: int
    same_address_atomics: int
    divergent_barrier: tuple[int, int] | None
    error: tuple[int, ...] | None
    stopped: str = ""
    keep: list = field(default_factory=list)


def _aligned(nbytes: int, zero: bool = True) -> np.ndarray:
    raw = (np.zeros if zero else np.empty)(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=64, thread_name_prefix="simt")


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Thread:
    """The memory of one worker."""

    def __init__(self, c: Compiled, launch: np.ndarray, rows: np.ndarray, warps: int, shared_bytes: int, counters: bool, traced: int):
        plan, sites, nodes = c.plan, len(c.program.sites), len(c.program.blocks)
        self.record = _aligned(THREAD_BYTES).view(np.int64)
        self.memo = _aligned(max(1, sites) * MEMO_WAYS * MEMO_BYTES if counters else 64)
        self.totals = np.zeros((max(1, sites), 3), np.int64)
        self.exec = np.zeros((nodes, ROW), np.int64)
        self.shared = _aligned(shared_bytes + 64)
        self.local = _aligned(plan.local_bytes * WARP * (warps if plan.has_barriers else 1) + 64)
        self.saved = _aligned(plan.saved_bytes * warps + 64)
        self.scratch = _aligned(WARP * 8)
        self.dummy = _aligned(8 * 80)
        self.rows = rows.copy()
        self.words = np.empty(TRACE_WORDS if traced else 1, np.uint64)
        self.traced = np.zeros((max(1, traced), TRACED_BYTES // 8), np.int64)
        put = {
            "launch": launch.ctypes.data, "exec": self.exec.ctypes.data, "exec_common": self.exec.ctypes.data,
            "shared": self.shared.ctypes.data, "local": self.local.ctypes.data, "saved": self.saved.ctypes.data,
            "scratch": self.scratch.ctypes.data, "dummy": self.dummy.ctypes.data, "memo": self.memo.ctypes.data,
            "totals": self.totals.ctypes.data, "allocs": self.rows.ctypes.data, "blocks": self.traced.ctypes.data,
            "trace": self.words.ctypes.data, "trace_limit": self.words.ctypes.data + (8 * TRACE_WORDS if traced else 0),
        }  # fmt: skip
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
) -> Raw:
    """Runs blocks first .. first + count - 1 of the grid."""
    plan = c.plan
    per_block = block[0] * block[1] * block[2]
    warps = -(-per_block // WARP)
    tables, masks = _thread_indices(block)
    shared_bytes = -(-plan.shared_bytes // 16) * 16 + dynamic_shared_bytes
    workers = 1 if plan.ordered else max(1, min(threads or cores(), count))
    traced = min(count, TRACE_BLOCKS) if counters else 0
    row_bytes = len(c.program.blocks) * ROW * 8
    kept = min(traced, max(1, EXEC_ROWS_BYTES // (row_bytes * warps))) if counters else 0
    exec_rows = np.zeros((kept, warps, len(c.program.blocks), ROW), np.int64)
    launch = _aligned(LAUNCH_BYTES).view(np.int64)
    args = np.array([_bits(t, v) for t, v in bound.values] or [0], np.uint64)
    values = {
        "end": count, "chunk": max(1, min(64, count // (workers * 32))), "grid_x": grid[0], "grid_y": grid[1], "grid_z": grid[2],
        "block_x": block[0], "block_y": block[1], "block_z": block[2], "warps": warps,
        "tid_x": tables[0].ctypes.data, "tid_y": tables[1].ctypes.data, "tid_z": tables[2].ctypes.data, "masks": masks.ctypes.data,
        "dynamic_shared": dynamic_shared_bytes, "shared_bytes": shared_bytes, "local_bytes": plan.local_bytes * WARP,
        "saved_bytes": plan.saved_bytes, "exec_rows": exec_rows.ctypes.data, "exec_rows_blocks": kept, "exec_row_bytes": row_bytes,
        "first": first, "args": args.ctypes.data, "trace_blocks": traced,
    }  # fmt: skip
    for name, value in values.items():
        launch[LAUNCH[name] // 8] = value
    maps = _Maps(c, bound, dynamic_shared_bytes, counters)
    crew = []
    for _ in range(workers):
        rows = maps.rows()
        worker = _Thread(c, launch, rows, warps, shared_bytes, counters, traced)
        maps.place_shared(worker)
        crew.append(worker)
    stopped = _run(c, crew, launch, limit_s)
    return _collect(c, crew, launch, exec_rows, maps, stopped, (tables, masks, args, bound))


def _run(c: Compiled, crew: list[_Thread], launch: np.ndarray, limit_s: float) -> str:
    """Runs the workers; watches for a launch that makes no progress and for Ctrl-C. Returns why it was stopped, or ''."""
    jobs = [_pool().submit(call, c.entry, w.record.ctypes.data) for w in crew]
    stop, done = LAUNCH["stop"] // 8, LAUNCH["done"] // 8
    reason, seen, since = "", 0, time.monotonic()
    while True:
        try:
            for job in jobs:
                job.result(timeout=POLL_S)
            return reason
        except TimeoutError:
            now = time.monotonic()
            if launch[done] != seen:
                seen, since = int(launch[done]), now
            if not reason and now - since > limit_s:
                reason = f"no block finished for {limit_s:g} s"
                launch[stop] = 1
            if any(w["error"] for w in crew):
                launch[stop] = 1
        except KeyboardInterrupt:
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

    def __init__(self, c: Compiled, bound: BoundArguments, dynamic: int, counters: bool):
        self.c, self.counters = c, counters
        self.allocations = list(bound.allocations)
        self.lines = []
        line = VIRTUAL_BASE
        for a in self.allocations:  # 512-byte aligned, as cudaMalloc's are at least
            self.lines.append(line)
            line += -(-max(a.nbytes, 1) // 512) * 4
        pointers = [v for t, v in bound.values if t in ("ptr", "i8*") or t.endswith("*")]
        self.of_param = [self._find(int(p)) for p in pointers]
        self.atomics = any(s.kind == "global_atomic" for s in c.program.sites)
        self.maps: list[dict[int, tuple[np.ndarray, ...]]] = []
        self.keep: list = []
        self.dynamic = dynamic

    def _find(self, p: int) -> int | None:
        best = None
        for k, a in enumerate(self.allocations):
            if a.address <= p < a.address + a.nbytes or (p == a.address and best is None and p):
                if best is None or self.allocations[best].nbytes == 0:
                    best = k
        return best

    def rows(self) -> np.ndarray:
        """A fresh (rows, 8) table, with this worker's own maps."""
        plan = self.c.plan
        table = np.zeros((len(plan.rows), ALLOC_BYTES // 8), np.int64)
        maps: dict[int, tuple[np.ndarray, ...]] = {}
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
                        maps[index] = (np.zeros(lines, np.uint32), np.zeros(lines, np.uint32), np.zeros(words, np.uint32), np.zeros(words, np.uint32))
                    for m, column in zip(maps[index], ("read", "written", "stamp", "count")):
                        row[ALLOC[column] // 8] = m.ctypes.data
            elif kind == "constant":
                row[0], row[1] = self.c.constants[name]
            elif kind == "local":
                row[1] = plan.local_sizes[name]
                row[ALLOC["spare"] // 8] = plan.local_bytes
        self.maps.append(maps)
        return table

    def place_shared(self, worker: _Thread) -> None:
        plan = self.c.plan
        base = worker.shared.ctypes.data
        for k, (kind, name) in enumerate(plan.rows):
            if kind == "shared":
                worker.rows[k, 0] = base + plan.shared_offsets[name]
                worker.rows[k, 1] = plan.shared_sizes.get(name) or self.dynamic

    def totals(self) -> tuple[int, int, int]:
        """Distinct bytes read before written, distinct bytes written, most atomics on one address."""
        read = written = 0
        most = 0
        for index, first in self.maps[0].items() if self.maps else ():
            for which in range(2):
                words = first[which]
                for other in self.maps[1:]:
                    words = words | other[index][which]
                n = 4 * int(np.bitwise_count(words).sum(dtype=np.int64))
                read, written = (read + n, written) if which == 0 else (read, written + n)
            if self.atomics:
                counts = first[3]
                for other in self.maps[1:]:
                    counts = counts + other[index][3]
                most = max(most, int(counts.max(initial=0)))
        return read, written, most


def _collect(c: Compiled, crew: list[_Thread], launch, exec_rows: np.ndarray, maps: _Maps, stopped: str, keep: tuple) -> Raw:
    executions = exec_rows.sum(axis=(0, 1), dtype=np.int64)
    sites = np.zeros((max(1, len(c.program.sites)), 3), np.int64)
    divergent = None
    for w in crew:
        executions = executions + w.exec
        sites += w.totals
        if maps.counters and c.program.sites:
            memo = w.memo.view(np.int64).reshape(len(c.program.sites), MEMO_WAYS, MEMO_BYTES // 8)
            sites += (memo[:, :, 0:1] * memo[:, :, 4:7]).sum(axis=1)
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
    read, written, most = maps.totals() if maps.counters and not error else (0, 0, 0)
    trace = _trace(crew) if maps.counters and not error else Trace(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint64))
    return Raw(executions, exec_rows[..., 0], sites, trace, read, written, most, divergent, error, stopped, [keep])


def _trace(crew: list[_Thread]) -> Trace:
    """The longest run of traced blocks, from the first, that fits the bound: the same whatever thread ran which block."""
    notes = np.concatenate([np.column_stack((w.traced[: w["blocks_count"]], np.full(w["blocks_count"], k))) for k, w in enumerate(crew)])
    notes = notes[np.argsort(notes[:, 0], kind="stable")]
    if not len(notes):
        return Trace(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint64))
    together = np.flatnonzero(notes[:, 0] != notes[0, 0] + np.arange(len(notes)))
    notes = notes[: together[0]] if len(together) else notes
    ends = np.cumsum(notes[:, 2])
    n = int(np.searchsorted(ends, TRACE_WORDS, side="right"))
    notes, ends = notes[:n], ends[:n]
    words = np.empty(int(ends[-1]) if n else 0, np.uint64)
    bases = np.array([w.words.ctypes.data for w in crew])
    starts = (notes[:, 1] - bases[notes[:, 3]]) // 8
    if len(crew) == 1 and n:
        words = crew[0].words[int(starts[0]) : int(starts[0]) + len(words)].copy()
    else:
        for start, size, end, k in zip(starts.tolist(), notes[:, 2].tolist(), ends.tolist(), notes[:, 3].tolist()):
            words[end - size : end] = crew[k].words[start : start + size]
    return Trace(notes[:, 0].copy(), np.concatenate(([0], ends)).astype(np.int64), words)


__all__ = ["Raw", "launch_grid", "threading"]
