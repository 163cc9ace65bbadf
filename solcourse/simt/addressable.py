"""The arrays that a launch can address, as rows for the generated code (layout.ALLOC), and what it read and wrote of them."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

from solcourse.simt.arguments import BoundArguments
from solcourse.simt.compiler import Compiled, distinct_bits
from solcourse.simt.layout import ALLOC, ALLOC_BYTES, LINE_UP
from solcourse.simt.pool import CLEAN, MEMORY
from solcourse.simt.records import LINE_BYTES, Trace

if TYPE_CHECKING:
    from solcourse.simt.machine import Worker

VIRTUAL_BASE = 1 << 21  # line number of the first array in the virtual address space


class Addressable:
    """ALLOC rows, and per worker the maps of words read and written."""

    def __init__(self, c: Compiled, bound: BoundArguments, dynamic: int, counters: bool, sampled: bool):
        self.c, self.counters, self.sampled = c, counters, sampled
        self.allocations = list(bound.allocations)
        self.lines = []
        line = VIRTUAL_BASE
        for a in self.allocations:  # 512-byte aligned, as cudaMalloc's are at least
            self.lines.append(line)
            line += -(-max(a.nbytes, 1) // 512) * 4
        self.pointers = [int(v) for t, v in bound.values if t in ("ptr", "i8*") or t.endswith("*")]
        self.of_param = [self._find(p) for p in self.pointers]
        reached = zip((k for k, (kind, _) in enumerate(c.plan.rows) if kind == "param"), self.of_param, strict=False)
        rows = [(k, index) for k, index in reached if index is not None]
        self.read = {index for k, index in rows if k in c.plan.read_rows}  # allocations the kernel may read, by any parameter
        self.written = {index for k, index in rows if k in c.plan.written_rows}
        self.atomic = {index for k, index in rows if k in c.plan.atomic_rows}
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
                row[0], row[1], row[ALLOC["line"] // 8] = a.address, a.nbytes, self.lines[index] << LINE_UP
                if self.counters:
                    if index not in maps:
                        lines = -(-a.nbytes // LINE_BYTES) + 1
                        words = -(-a.nbytes // 4) + 2
                        read = self._bitmap(lines) if index in self.read else None
                        written = self._bitmap(lines) if index in self.written else None
                        stamp, count = (self._map(words) if index in self.atomic else None for _ in range(2))
                        maps[index] = (read, written, stamp, count)
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

    def place_shared(self, worker: Worker) -> None:
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
            if index in self.atomic:
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
