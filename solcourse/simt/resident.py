"""Blocks that wait for each other: which of them are resident, which goes on next, and when none ever can.

A block all of whose warps spin, or wait for the whole grid, is suspended, and others run. Blocks start in index order, up to as
many as are resident together; then sweeps over the suspended ones, up and down in turn, so that a chain of waits resolves in one
sweep whichever way it points. One thread does it all, so the order is always the same.

Deadlock: a sweep in which no memory changed and no warp got further, and after which every warp's saved state is what it was after
the sweep before, but for counts of a loop's turns that the loop does not look at. The machine would repeat that sweep for ever.
(Where threads change memory as they wait the state may never repeat: then the time limit ends the launch.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from solcourse.errors import LaunchError
from solcourse.simt import shadow
from solcourse.simt.checking import BlockShadow
from solcourse.simt.compiler import Compiled
from solcourse.simt.layout import (
    AT_GRID,
    CHANGED_GLOBAL,
    CONTINUED,
    DONE,
    ENDED,
    FAILED,
    FRESH,
    LAUNCH,
    RELEASED,
    SAVED_ENDED,
    SAVED_MASKS,
    THREAD,
)
from solcourse.simt.records import WARP

LOOP, LANES, BARRIER, GRID = "loop", "lanes", "barrier", "grid"
# what the thread's record holds of the block at hand: where its memory is, and its barriers
MEMORY = slice(THREAD["shared"] // 8, THREAD["saved"] // 8 + 1)  # shared, local, saved
BARRIERS = slice(THREAD["sum0"] // 8, THREAD["arrival"] // 8 + 1)  # sum0, sum1, phase, arrival
BLOCK, ENTER = THREAD["block"] // 8, THREAD["enter"] // 8
MOST_BYTES = hasattr(os, "sysconf") and os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 or 4 << 30  # of resident blocks


@dataclass(frozen=True, slots=True)
class Wait:
    """Threads of one block that wait at one line. kind: LOOP, LANES (for others of the warp), BARRIER (for the block) or GRID."""

    kind: str
    line: int
    block: int
    warps: int
    threads: int


@dataclass(frozen=True, slots=True)
class Stuck:
    """Why a launch cannot go on, or (deadlock=False) what waited when it was stopped. started, ended: numbers of blocks.
    headless: blocks that wait for the grid without their first thread."""

    waits: tuple[Wait, ...]
    started: int
    ended: int
    headless: tuple[int, ...]
    deadlock: bool

    @property
    def block(self) -> int:
        return min(w.block for w in self.waits)


class _Room:
    """Memory of one resident block, and the block in it."""

    def __init__(self, memory: np.ndarray, saved: np.ndarray, local: int, shared: int):
        self.contents = memory  # saved state, local, shared memory
        self.saved, self.shared = saved, shared
        self.memory = np.array([shared, local, memory.ctypes.data], np.int64).data
        self.barriers = np.zeros(4, np.int64).data
        self.block, self.code = -1, DONE
        self.shadow: BlockShadow | None = None  # of a build with checks
        self.traced: list[np.ndarray] | None = None  # requests, piece by piece
        self.cut = False  # some of them are missing

    def digest(self, idle: list[tuple[int, int]]) -> bytes:
        """Of everything that decides what the block does next, but for global memory. idle: see Plan."""
        saved = self.saved.copy()
        for start, end in idle:
            saved[:, start // 4 : end // 4] = 0
        return blake2b(saved.data, digest_size=16).digest() + blake2b(self.contents[saved.nbytes :].data, digest_size=16).digest()


class Residents:
    """Runs one worker's blocks. `take(nbytes)` gives memory for one more resident block."""

    def __init__(self, c: Compiled, worker, launch: np.ndarray, take: Callable[[int], np.ndarray], room: int):
        self.c, self.worker, self.launch, self.take = c, worker, launch, take
        self.record = worker.record.data
        self.allocs = worker.rows.reshape(-1).data
        self.address = worker.record.ctypes.data
        self.limit, self.tracing = room, self["trace_limit"] > 0
        self.warps, self.shared_bytes = int(launch[LAUNCH["warps"] // 8]), int(launch[LAUNCH["shared_bytes"] // 8])
        self.call = c.function()
        self.resident: list[_Room] = []
        self.free: list[_Room] = []
        self.taken: list[np.ndarray] = []
        self.shared_rows = [
            (k * worker.rows.shape[1], c.plan.shared_offsets[n]) for k, (kind, n) in enumerate(c.plan.rows) if kind == "shared"
        ]
        self.ended: list[tuple[int, list[np.ndarray], bool]] = []  # traced blocks that were suspended, and whether requests are missing
        self.cut: int | None = None  # the block that was not suspended of which requests are missing
        self.started = 0
        self.released = False

    def run(self) -> Stuck | None:
        """All blocks there are. Returns what waits where, if the launch could not end or was stopped."""
        up, before = False, None
        while True:
            started = self.started
            code = self._start()
            if code != FAILED and self.resident:
                up = not up
                self["moves"], left = 0, len(self.resident)
                code = self._sweep(up)
            if code == FAILED or self._stopped():
                return self._stuck(False)
            if not self.resident or code == DONE:
                break
            if self["moves"] & CHANGED_GLOBAL or len(self.resident) < left or self.started > started or self._open_grid():
                before = None
                continue
            now = [r.digest(self.c.plan.idle) for r in self.resident]
            if now == before:
                stuck, end = self._stuck(True), LAUNCH["end"] // 8
                if stuck:  # blocks behind it need not run
                    self.launch[end] = min(int(self.launch[end]), stuck.block - int(self.launch[LAUNCH["first"] // 8]))
                return stuck
            before = now
        self._order_trace()
        return None

    def _stopped(self) -> bool:
        return bool(self.launch[LAUNCH["stop"] // 8])

    def __getitem__(self, name: str) -> int:
        return self.record[THREAD[name] // 8]

    def __setitem__(self, name: str, value: int) -> None:
        self.record[THREAD[name] // 8] = value

    # ---- blocks

    def _new_room(self) -> _Room:
        """Only what is compared later is cleared. Raises LaunchError instead of filling the machine's memory."""
        size = self.c.plan.saved_bytes
        saved, local = size * self.warps, -(-self.c.plan.local_bytes * WARP * self.warps // 64) * 64
        each, count = saved + local + self.shared_bytes, len(self.resident) + 1
        if each * count > MOST_BYTES:
            program = self.c.program
            raise LaunchError(
                f"In kernel {program.kernel}, {count:,} blocks wait for each other and hold {each * count / 2**30:.1f} GiB, "
                f"{each / 2**20:.1f} MiB each (local memory of their threads above all); the engine takes at most half of this machine's memory. "
                f"Launch fewer or smaller blocks, or make the local arrays smaller.",
                file=program.file,
            )
        memory = self.take(each + 64)
        self.taken.append(memory)
        memory = memory[:each]
        memory[:] = 0
        at = memory.ctypes.data
        room = _Room(memory, memory[:saved].view(np.int32).reshape(self.warps, size // 4), at + saved, at + saved + local)
        room.shadow = BlockShadow(self.worker.shadow) if self.worker.shadow else None
        return room

    def _enter(self, r: _Room, way: int) -> int:
        record = self.record
        record[ENTER], record[MEMORY] = way, r.memory
        for row, offset in self.shared_rows:
            self.allocs[row] = r.shared + offset
        if way != FRESH:
            record[BLOCK], record[BARRIERS] = r.block, r.barriers
        if r.shadow:
            r.shadow.place(self.worker)
        if way == RELEASED:
            self["arrival"] = 0
            if r.shadow:
                shadow.functions()["simt_barrier"].ctypes(self.address)
        dead = self["trace_dead"]
        code = self.call(self.address)
        if self["trace_dead"] > dead:
            self.cut = int(self.worker.traced[self["blocks_count"] - 1, 0])
        if code == DONE:  # no block is left, or the launch was stopped: r is as it was
            return code
        r.code, r.block, r.barriers[:] = code, record[BLOCK], record[BARRIERS]
        if code != FAILED and self.tracing:
            self._trace_piece(r, way)
        return code

    def _start(self) -> int:
        """Start blocks until as many are resident as can be; DONE when no block is left."""
        while len(self.resident) < self.limit:
            if self.launch[LAUNCH["next"] // 8] >= self._count():
                return DONE
            r = self.free.pop() if self.free else self._new_room()
            code = self._enter(r, FRESH)
            if code in (DONE, FAILED):
                self.free.append(r)
                return code
            self.started += 1
            self.resident.append(r)
        return ENDED

    def _sweep(self, up: bool) -> int:
        """Each block that spins, or whose grid barrier has opened, goes on for a while."""
        release, self.released = self.released, False
        for r in self.resident[:: 1 if up else -1]:
            if r.code == AT_GRID and not release:
                continue
            code = self._enter(r, RELEASED if r.code == AT_GRID else CONTINUED)
            if code in (FAILED, DONE):
                return code
            if code == ENDED:
                self.resident.remove(r)
                self.free.append(r)
        return ENDED

    def _open_grid(self) -> bool:
        """The grid's barrier opens when every block of the launch is there."""
        all_here = len(self.resident) == self._count() and all(r.code == AT_GRID for r in self.resident)
        self.released = all_here and all(self._has_first_thread(r) for r in self.resident)
        self.launch[LAUNCH["done"] // 8] += self.released  # progress, for the time limit
        if self.released and self.worker.shadow:
            self.worker.shadow.forget_order()
        return self.released

    def _count(self) -> int:
        return int(self.launch[LAUNCH["end"] // 8])

    # ---- who waits where

    def _masks(self, r: _Room) -> Iterator[tuple[str, int, np.ndarray]]:
        """(kind, line, mask of each warp) of every place where a warp of the block can wait."""
        plan, c = self.c.plan, self.c
        masks, barriers = r.saved[:, SAVED_MASKS // 4 :].view(np.uint32), len(c.barrier_lines)
        alive = r.saved[:, 0] != SAVED_ENDED
        for n, line in enumerate(c.barrier_lines):
            here = alive & (r.saved[:, 0] == n + 1) if plan.lockstep else alive
            yield GRID if n in plan.grid_barriers else BARRIER, line, np.where(here, masks[:, n], 0)
        if plan.spins:
            for k, line in enumerate(c.block_lines):
                kind, at = (LANES, plan.meetings[k]) if k in plan.meetings else (LOOP, line)
                yield kind, at, np.where(alive, masks[:, barriers + k], 0)

    def _has_first_thread(self, r: _Room) -> bool:
        """CUDA's grid barrier is told of a block by its thread (0, 0, 0); if that has returned, nobody does."""
        warp, plan = r.saved[0], self.c.plan
        if warp[0] == SAVED_ENDED:
            return False
        here = (int(warp[0]) - 1,) if plan.lockstep else plan.grid_barriers
        return any(warp[SAVED_MASKS // 4 + n] & 1 for n in here)

    def _stuck(self, deadlock: bool) -> Stuck | None:
        waits = [
            Wait(kind, line, r.block, int(np.count_nonzero(masks)), int(np.bitwise_count(masks).sum()))
            for r in self.resident
            if r.code != FAILED
            for kind, line, masks in self._masks(r)
            if masks.any()
        ]
        if not waits:
            return None
        started = min(self._count(), int(self.launch[LAUNCH["next"] // 8]))
        headless = tuple(r.block for r in self.resident if r.code == AT_GRID and not self._has_first_thread(r))
        return Stuck(tuple(waits), started, started - len(self.resident), headless, deadlock)

    # ---- the Trace, whose blocks are in one piece each, in order

    def _trace_piece(self, r: _Room, way: int) -> None:
        """Take what the block has just traced out of the buffer, which then holds the less."""
        if way == FRESH:
            r.traced, r.cut = [] if self["trace_end"] else None, False
        if r.traced is None:
            return
        if self["trace"] >= self["trace_limit"]:
            self["trace_dead"] = 1
        start, end = self["trace_from"], self["trace"]
        r.traced.append(self._requests(start, end))
        r.cut |= bool(self["trace_dead"])
        self["trace"] = start
        self["trace_limit"] -= end - start
        if r.code == ENDED:
            self.ended.append((self["block"], r.traced, r.cut))

    def _requests(self, start: int, end: int) -> np.ndarray:
        base = self.worker.requests.ctypes.data
        return self.worker.requests.view(np.uint64)[(start - base) // 8 : (end - base) // 8].copy()

    def _order_trace(self) -> None:
        """Blocks that were suspended ended in another order than they began. The Trace ends before the first that is not whole."""
        if not self.ended:
            return
        notes = self.worker.traced
        count, base = self["blocks_count"], self.worker.requests.ctypes.data
        whole = [(int(n), [self._requests(int(a), int(b))], int(n) == self.cut) for n, a, b in notes[:count]]
        parts = sorted(whole + self.ended, key=lambda part: part[0])
        cut = next((k for k, (*_, cut) in enumerate(parts) if cut), len(parts))
        parts = parts[: max(1, cut)]  # as elsewhere, a first block that is cut is all there is
        at, buffer = 0, self.worker.requests.view(np.uint64)
        for n, (block, pieces, _) in enumerate(parts):
            requests = np.concatenate(pieces)
            buffer[at : at + len(requests)] = requests
            notes[n] = block, base + 8 * at, base + 8 * (at + len(requests))
            at += len(requests)
        self["trace"], self["blocks_count"] = base + 8 * at, len(parts)
