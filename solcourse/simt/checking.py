"""The shadow memory of one launch: how large, where, and what shadow.py found, as records.

Of an array that the kernel writes, each cell (the smallest piece the kernel accesses of it) has two words of 8 bytes for the last writes,
and if the kernel reads it too, two more for the last reads, and two for atomic operations if there are any: 16 to 48 bytes for 4 bytes
of float32. Arrays that are only read need none.
All of it at once is bounded by MOST_BYTES; a sample of the blocks touches, and needs, only what those blocks access.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from solcourse.errors import LaunchError
from solcourse.simt import shadow
from solcourse.simt.arguments import Allocation, BoundArguments
from solcourse.simt.compiler import Compiled
from solcourse.simt.layout import ALLOC, ALLOC_BYTES, LAUNCH, THREAD
from solcourse.simt.pool import MEMORY, aligned
from solcourse.simt.shadow import STATE

if TYPE_CHECKING:
    from solcourse.simt.addressable import Addressable
    from solcourse.simt.machine import Worker

_PHYSICAL = hasattr(os, "sysconf") and os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") or 8 << 30
MOST_BYTES = min(4 << 30, _PHYSICAL // 4)
# where a row says where the words are: of the last writes, of reads, of atomic operations, of earlier writes
_WORDS = [ALLOC[name] // 8 for name in ("written", "read", "line", "spare")]
PRESENT = 16  # in ALLOC "count": the array has a shadow


@dataclass(frozen=True, slots=True)
class Place:
    """Who accessed: block by its index in the grid, thread by its index in the block."""

    block: int
    thread: int
    site: int
    atomic: bool


@dataclass(frozen=True, slots=True)
class Event:
    """What shadow.py saw. kind: of shadow.py; weak: only a shuffle, vote or match lies between; apart: 0 in one warp, 1 in one block, 2 in
    two; me, other: the access and the one before it; row: of the array in Plan.rows, -1: none; offset: of the cell, in bytes."""

    kind: int
    weak: bool
    apart: int
    count: int
    me: Place
    other: Place
    row: int
    offset: int
    value: int
    other_value: int


@dataclass(frozen=True, slots=True)
class Watch:
    """A cell whose accesses are to be remembered. block: index in the grid; None: whatever block."""

    row: int
    offset: int
    block: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """One access to a watched cell. phase: barriers that its block had passed."""

    watch: int
    place: Place
    kind: int
    phase: int


@dataclass(frozen=True, slots=True)
class Checked:
    """What the shadow of a launch holds in the end. allocations: of the rows (Plan.rows) of pointer parameters, by index in the launch's
    allocations; written: which cells of an allocation the kernel wrote, of those it can write and has perhaps too few threads for;
    nothing for a sample."""

    events: list[Event]
    seen: list[Seen]
    allocations: dict[int, int]
    written: dict[int, np.ndarray]
    step: dict[int, int]  # of an allocation: log2 of its cells' bytes


class BlockShadow:
    """Of one block at a time: who it is and where it is (shadow.STATE), its ticks, what its lanes know, its shared memory's words."""

    def __init__(self, s: Shadow):
        self.state = aligned(shadow.STATE_BYTES).view(np.int64)
        matrix = shadow.KNOWN_BYTES * s.warps if s.plan.meets else 0
        self.known = aligned(2 * matrix + 64)
        self.words = aligned(48 * s.shared_cells + 64)
        put = {
            "watch": s.watch.ctypes.data if s.watches else 0,
            "known": matrix and self.known.ctypes.data,
            "weak": matrix and self.known.ctypes.data + matrix,
            "release": s.release.ctypes.data if s.fenced else 0,
            "acquired": s.acquired.ctypes.data if s.fenced else 0,
            "events": s.events.ctypes.data,
            "serial": s.serial.ctypes.data,
        }
        for name, value in put.items():
            self.state[STATE[name] // 8] = value
        base, n = self.words.ctypes.data, s.shared_cells
        self.rows = [
            (k, base + 8 * cell, base + 8 * n + 16 * cell, (base + 24 * n + 16 * cell) * s.shared_atomics, base + 40 * n + 8 * cell)
            for k, cell in ((k, offset >> s.shared_step) for k, offset in s.shared_rows.items())
        ]

    def place(self, worker: Worker) -> None:
        """This is the block that the worker runs."""
        worker.record[THREAD["shadow"] // 8] = self.state.ctypes.data
        for k, *words in self.rows:
            worker.rows[k, _WORDS] = words


class Shadow:
    """Of a launch. extents: threads along each axis of the grid. Raises LaunchError where it would be too large."""

    def __init__(
        self, c: Compiled, arrays: Addressable, extents: tuple[int, ...], warps: int, first: int, count: int, shared_bytes: int,
        watches: Iterable[Watch],
    ):  # fmt: skip
        self.c, self.plan, self.arrays, self.warps, self.first = c, c.plan, arrays, warps, first
        self.taken: list[np.ndarray] = []
        self.fenced = self.plan.fences or self.plan.spins
        self._layout(shared_bytes, count)
        self.events = MEMORY.take(8 * shadow.EVENT_WORDS * shadow.EVENTS)[: 8 * shadow.EVENT_WORDS * shadow.EVENTS].view(np.int64)
        fenced = count + 2 if self.fenced else 0
        self.release, self.acquired = np.zeros(fenced * shadow.FENCES, np.int64), np.zeros(fenced, np.int64)
        self.serial = np.zeros(1, np.int64)
        self.watches = tuple(watches)
        self.extents = extents
        self.seen = np.zeros((shadow.TOUCHES, 4), np.int64)
        self.watch = np.zeros(3 + 3 * len(self.watches), np.int64)
        self.cells: dict[
            int, list[np.ndarray]
        ] = {}  # allocation -> words of writes, of reads, of atomic operations; empty where there are none
        self.before: dict[int, np.ndarray] = {}  # allocation -> cells written before the grid met
        self.block: BlockShadow | None = None

    def _layout(self, shared_bytes: int, count: int) -> None:
        plan, kinds = self.plan, [kind for kind, _ in self.plan.rows]
        sizes = {k: plan.cell_bytes.get(k, 8) for k in range(len(kinds))}
        shared = [k for k, kind in enumerate(kinds) if kind == "shared"]
        self.shared_step = _step(min((sizes[k] for k in shared), default=8))
        self.shared_cells = (shared_bytes >> self.shared_step) + 2 if shared else 0
        self.shared_atomics = any(k in plan.atomic_rows for k in shared)
        self.shared_rows = {k: plan.shared_offsets[plan.rows[k][1]] for k in shared}
        params = [k for k, kind in enumerate(kinds) if kind == "param"]
        self.param_rows = [(k, index) for k, index in zip(params, self.arrays.of_param, strict=True) if index is not None]
        self.pointers = dict(zip(params, self.arrays.pointers, strict=True))
        self.step = {index: _step(min(sizes[k] for k, other in self.param_rows if other == index)) for _, index in self.param_rows}
        loaded = {index for k, index in self.param_rows if k in plan.loaded_rows}
        self.sizes = {
            index: [n * ((self.arrays.allocations[index].nbytes >> self.step[index]) + 2)
                    for n in (1, 2 * (index in loaded), 2 * (index in self.arrays.atomic), 1)]
            for index in sorted(self.arrays.written)
        }  # fmt: skip
        needed = {index: 8 * sum(sizes) for index, sizes in self.sizes.items()}
        if count > shadow.MOST_BLOCKS:
            raise self._too_large(f"{count:,} blocks are more than the {shadow.MOST_BLOCKS:,} that can be told apart")
        if len(self.c.program.sites) >= shadow.MOST_SITES:
            raise self._too_large(f"the kernel has more than {shadow.MOST_SITES:,} memory instructions", sample=False)
        if sum(needed.values()) > MOST_BYTES and not self.arrays.sampled:
            largest = max(needed, key=lambda index: needed[index])
            raise self._too_large(
                f"remembering who accessed what takes {sum(needed.values()) / 2**30:.1f} GiB, {needed[largest] / 2**30:.1f} of it for "
                f"{self.arrays.allocations[largest].name}; the limit is {MOST_BYTES / 2**30:.1f} GiB"
            )

    def _too_large(self, why: str, sample: bool = True) -> LaunchError:
        program = self.c.program
        advice = "Check some of its blocks, sol.sanitize(..., sample_blocks=64), or a launch on smaller arrays." if sample else ""
        return LaunchError(
            f"{program.kernel} cannot be checked as a whole: {why}. {advice} Nothing ran.".replace("  ", " "), file=program.file
        )

    def _words(self, n: int) -> np.ndarray:
        if n == 0:
            return np.zeros(0, np.int64)
        if self.arrays.sampled:  # pages that are not touched must cost nothing
            return np.frombuffer(mmap.mmap(-1, 8 * n), np.int64)
        block = MEMORY.take(8 * n)
        self.taken.append(block)
        return block[: 8 * n].view(np.int64)

    def place(self, worker: Worker, launch: np.ndarray) -> None:
        """Gives the launch's only worker its shadow."""
        launch[LAUNCH["shadow_rows"] // 8] = self.plan.find_rows
        self.base = worker.rows.ctypes.data
        # few elements are ever written twice: memory that nobody touches costs nothing, as long as it is fresh
        self.cells = {index: [*map(self._words, sizes[:3]), np.zeros(sizes[3], np.int64)] for index, sizes in self.sizes.items()}
        for k, index in self.param_rows:
            step, row = self.step[index], worker.rows[k]
            written = self.arrays.allocations[index].initialised
            row[_WORDS] = [w.ctypes.data if len(w) else 0 for w in self.cells[index]] if index in self.cells else 0
            row[ALLOC["stamp"] // 8] = 0 if written is None else written.ctypes.data
            askew = self.pointers[k] - self.arrays.allocations[index].address & (1 << step) - 1  # then each access is to be looked at
            row[ALLOC["count"] // 8] = step | PRESENT if index in self.cells or written is not None or askew else 0
        for k in self.shared_rows:
            worker.rows[k, ALLOC["count"] // 8] = self.shared_step | shadow.SHARED_BIT | PRESENT
        self.watch[:3] = len(self.watches), 0, self.seen.ctypes.data
        for n, w in enumerate(self.watches):
            self.watch[3 + 3 * n : 6 + 3 * n] = (
                self.base + w.row * ALLOC_BYTES,
                w.offset,
                0 if w.block is None else w.block - self.first + 1,
            )
        self.block = BlockShadow(self)
        self.block.place(worker)

    def forget_order(self) -> None:
        """The whole grid has met: what was accessed before is ordered before what follows."""
        for index, words in self.cells.items():
            self.before[index] = self._written(index)
            for w in words:
                w.fill(0)

    def _written(self, index: int) -> np.ndarray:
        """Which cells of an allocation have been written; remembered there, if it asks."""
        allocation, step = self.arrays.allocations[index], self.step[index]
        writes, _, updates, _ = self.cells[index]
        written = (writes != 0) | self.before.get(index, np.False_)
        if len(updates):
            written |= updates[::2] != 0
        if allocation.initialised is not None:
            allocation.initialised[np.repeat(written, 1 << step)[: allocation.nbytes]] = 1
        return written

    def finish(self) -> Checked:
        """What was seen. The memory is given back."""
        rows = self.events.reshape(-1, shadow.EVENT_WORDS)
        events = [self._event(row) for row in rows[rows[:, 0] != 0].tolist()]
        seen = [Seen(k, self._place(word), kind, phase) for k, word, kind, phase in self.seen[: int(self.watch[1])].tolist()]
        written: dict[int, np.ndarray] = {}
        for index in self.cells:
            short = not self.arrays.sampled and _may_be_short(self.arrays.allocations[index], self.extents)
            if short or self.arrays.allocations[index].initialised is not None:
                cells = self._written(index)
                written |= {index: cells} if short else {}
        MEMORY.give([*self.taken, self.events.view(np.uint8)])
        self.taken, self.cells = [], {}
        events.sort(key=lambda e: (e.kind, e.me.site, e.other.site))
        return Checked(events, seen, dict(self.param_rows), written, self.step)

    def _event(self, row: list[int]) -> Event:
        key, count, me, other, offset, at, value, other_value = row
        kind = key - 1 >> 32
        index = (at - self.base) // ALLOC_BYTES if at else -1
        first, second = self._place(me), self._place(other)
        site, other_site = key - 1 & 0xFFFF, key - 1 >> 16 & 0xFFFF
        first, second = (Place(p.block, p.thread, n, p.atomic) for p, n in ((first, site), (second, other_site)))
        kind, apart, weak = kind % shadow.WEAK, kind // shadow.APART, bool(kind & shadow.WEAK)
        return Event(kind, weak, apart, count, first, second, index, offset, value, other_value)

    def _place(self, word: int) -> Place:
        block, site = (word >> shadow.BLOCK_UP) - 1 + self.first, word >> shadow.SITE_UP & shadow.MOST_SITES - 1
        return Place(block, word >> shadow.THREAD_UP & 1023, site, bool(word & 1))


@dataclass(frozen=True, slots=True)
class View:
    """An array argument as the kernel sees it, for naming its elements."""

    name: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def index_of(self, address: int) -> tuple[int, ...] | None:
        """Of the element that holds a byte; None where it is in none, or strides do not tell."""
        left, index = address - self.address, [0] * len(self.shape)
        for axis in sorted(range(len(self.shape)), key=lambda a: -self.strides[a]):
            if self.strides[axis] > 0:
                index[axis], left = divmod(left, self.strides[axis])
        return tuple(index) if all(0 <= i < n for i, n in zip(index, self.shape, strict=True)) else None


def views(c: Compiled, bound: BoundArguments) -> dict[int, View]:
    """Row of an array parameter -> the array, as its flattened parts say: `%x.4` its data, `%x.5.k` its shape, `%x.6.k` its strides."""
    parts = {name: int(value) for name, (_, value) in zip(c.parameters, bound.values, strict=False) if not isinstance(value, float)}
    found = {}
    for row, (kind, name) in enumerate(c.plan.rows):
        stem = name.removesuffix(".4")
        if kind != "param" or stem == name:
            continue
        shape, strides = (tuple(parts[p] for k in range(16) if (p := f"{stem}.{n}.{k}") in parts) for n in (5, 6))
        if len(shape) == len(strides):
            found[row] = View(c.row_names[row], parts[name], shape, strides)
    return found


def _may_be_short(a: Allocation, extents: tuple[int, ...]) -> bool:
    """Whether the grid has fewer threads, along some axis, than the array has elements along some."""
    return any(1 < threads < n for threads in extents for n in a.shape)


def _step(nbytes: int) -> int:
    """log2 of a cell's bytes: 1, 2, 4 or 8."""
    return min(3, int(math.log2(max(1, nbytes))))
