"""Random schedules of accesses, barriers and warp meetings: what the sanitizer says of them against full vector clocks.

One kernel executes whatever schedule its arguments hold. The oracle knows of every access what happened before it: in the same thread,
at a barrier of the block, at a meeting of lanes. Two accesses of one cell race where neither happened before the other.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from numba import cuda, float64, int8, int32

from solcourse.simt import arguments, engine, frontend

NOTHING, READ, WRITE, ATOMIC = range(4)
GO_ON, BARRIER, WARP, LANES, SHUFFLE = range(5)  # what follows a step, for all threads alike
CELLS = 40
TYPES = {"int8": int8, "int32": int32, "float64": float64}
ACTIONS = {READ: "seen += s[", WRITE: "s[cells[at, k]] = ", ATOMIC: "cuda.atomic.add(s"}


@cache
def schedule_kernel(dtype: str, shared: bool, atomics: bool):
    """Each thread goes through its row of `ops`, all through `meets`: mask 0xffffffff is a whole warp."""
    kind = TYPES[dtype]

    @cuda.jit
    def schedule(memory, ops, cells, values, meets, masks, out):
        s = cuda.shared.array(CELLS, kind) if shared else memory
        thread = cuda.threadIdx.x
        at = cuda.grid(1)
        lane = thread & 31
        seen = 0
        for k in range(ops.shape[1]):
            op = ops[at, k]
            if op == READ:
                seen += s[cells[at, k]]
            elif op == WRITE:
                s[cells[at, k]] = values[at, k]
            elif op == ATOMIC and atomics:
                cuda.atomic.add(s, cells[at, k], 1)
            meet = meets[k]
            if meet == BARRIER:
                cuda.syncthreads()
            elif meet == WARP:
                cuda.syncwarp()
            elif meet == LANES:
                if (masks[k] >> lane) & 1:
                    cuda.syncwarp(masks[k])
            elif meet == SHUFFLE:
                seen += cuda.shfl_sync(0xFFFFFFFF, lane, 0)
        out[at] = seen

    return schedule


@cache
def line_ops() -> dict[int, int]:
    """Source line -> which of READ, WRITE, ATOMIC is there."""
    lines, first = inspect.getsourcelines(schedule_kernel("int32", True, True).py_func)
    return {first + n: op for n, text in enumerate(lines) for op, part in ACTIONS.items() if part in text}


@dataclass
class Schedule:
    """ops, cells, values: (threads of all blocks, steps); meets, masks: (steps,)."""

    dtype: str
    shared: bool
    blocks: int
    block: int
    ops: np.ndarray
    cells: np.ndarray
    values: np.ndarray
    meets: np.ndarray
    masks: np.ndarray

    @property
    def steps(self) -> int:
        return self.ops.shape[1]

    def findings(self):
        k = schedule_kernel(self.dtype, self.shared, self.dtype != "int8")
        memory = np.zeros(CELLS, self.dtype)
        args = (memory, self.ops, self.cells, self.values, self.meets, self.masks, np.zeros(len(self.ops), np.int64))
        configured = k[self.blocks, self.block]
        spec = frontend.launch_of(configured)
        compiled = frontend.compile_kernel(k, frontend.argument_types(k, args))
        return engine.sanitize(compiled, arguments.bind(compiled, args), spec.grid, spec.block, 0, function=k.py_func)


@dataclass(frozen=True)
class Access:
    block: int
    thread: int
    step: int
    op: int
    value: int


class Oracle:
    """clocks[strong or weak][global thread][step]: the last step of every thread of the block that happened before."""

    def __init__(self, s: Schedule):
        self.s = s
        self.accesses: dict[tuple, list[Access]] = defaultdict(list)
        for at, k in zip(*np.nonzero(s.ops), strict=True):
            block, thread = divmod(int(at), s.block)
            cell = (block if s.shared else None, int(s.cells[at, k]))
            self.accesses[cell].append(Access(block, thread, int(k), int(s.ops[at, k]), int(s.values[at, k])))
        self.strong, self.weak = self._clocks(False), self._clocks(True)

    def _clocks(self, weak: bool) -> np.ndarray:
        """[step, thread, other]: the last step of `other` that is known to be over when `thread` takes that step; in each block."""
        s = self.s
        now, found = np.full((s.block, s.block), -1), []
        for k in range(s.steps):
            found.append(now.copy())
            now[np.arange(s.block), np.arange(s.block)] = k
            for group in self._groups(k, weak):
                now[group] = now[group].max(axis=0, initial=-1)
        return np.array(found)

    def _groups(self, k: int, weak: bool) -> list[np.ndarray]:
        threads = np.arange(self.s.block)
        meet, mask = self.s.meets[k], int(self.s.masks[k])
        if meet == BARRIER:
            return [threads]
        if meet == WARP or (meet == SHUFFLE and weak):
            return [threads[threads // 32 == w] for w in np.unique(threads // 32)]
        if meet == LANES:
            return [threads[(threads // 32 == w) & (mask >> threads % 32 & 1 == 1)] for w in np.unique(threads // 32)]
        return []

    def before(self, a: Access, b: Access, weak: bool = False) -> bool:
        clocks = self.weak if weak else self.strong
        if a.block != b.block:
            return False
        if a.thread == b.thread:
            return a.step < b.step
        return clocks[b.step, b.thread, a.thread] >= a.step

    def race(self, a: Access, b: Access, weak: bool = False) -> bool:
        if (a.block, a.thread) == (b.block, b.thread) or a.op == b.op == READ or a.op == b.op == ATOMIC:
            return False
        return not self.before(a, b, weak) and not self.before(b, a, weak)

    def races(self) -> dict[int, list[tuple[Access, Access]]]:
        """Cell -> its racing pairs."""
        found: dict[int, list[tuple[Access, Access]]] = defaultdict(list)
        for (_, cell), accesses in self.accesses.items():
            found[cell] += [(a, b) for n, a in enumerate(accesses) for b in accesses[:n] if self.race(a, b)]
        return {cell: pairs for cell, pairs in found.items() if pairs}

    def severe(self, races: dict[int, list[tuple[Access, Access]]]) -> bool:
        """Whether there is a race that is more than a warning: no shuffle lies between, and not each thread writes the same."""
        pairs = [pair for pairs in races.values() for pair in pairs]
        return any(self.race(a, b, weak=True) and not (a.op == b.op == WRITE and a.value == b.value) for a, b in pairs)

    def unwritten_reads(self) -> tuple[dict[int, int], set[int]]:
        """Cells that a thread reads (an atomic operation does, too) before any write can have come, and with which operation;
        cells that it reads before a write need have come."""
        never, perhaps = {}, set()
        for (_, cell), accesses in self.accesses.items():
            writes = [a for a in accesses if a.op != READ]
            for a in accesses:
                if a.op == WRITE:
                    continue
                others = [w for w in writes if w is not a]
                if all(self.before(a, w) for w in others):
                    never[cell] = a.op
                if not any(self.before(w, a) for w in others):
                    perhaps.add(cell)
        return never, perhaps


# ---- schedules --------------------------------------------------------------------------------------------------------------


def _meetings(r: np.random.Generator, steps: int, weights: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    meets = r.choice(5, steps, p=weights).astype(np.int32)
    masks = np.array([0xFFFF, 0xFFFF0000, 0x00FF00FF, 0x0000000F, 0x80000001], np.int64)
    return meets, r.choice(masks, steps)


def sparse(r: np.random.Generator, dtype: str, shared: bool, blocks: int, block: int, crowd: bool = False) -> Schedule:
    """A few accesses of few cells, anywhere. crowd: several threads may update one cell with atomic operations."""
    steps, threads, cells = int(r.integers(2, 9)), blocks * block, int(r.choice([1, 3, CELLS]))
    ops = np.zeros((threads, steps), np.int32)
    at = r.integers(0, cells, ops.shape)
    for _ in range(int(r.integers(2, 9))):
        ops[r.integers(threads), r.integers(steps)] = r.choice([READ, READ, WRITE, ATOMIC])
    for _ in range(int(r.choice([0, 0, 1, 2]))):  # the lanes of a warp, together
        first, k = int(r.integers(threads)), r.integers(steps)
        ops[first : first + 32, k] = r.choice([READ, WRITE, ATOMIC])
    if not crowd:
        updates = np.argwhere(ops == ATOMIC)
        owner = {int(at[t, k]): t for t, k in updates}
        for t, k in updates:
            ops[t, k] = ATOMIC if owner[int(at[t, k])] == t else READ
    return _finished(r, dtype, shared, blocks, block, ops, at, (0.2, 0.3, 0.2, 0.2, 0.1))


def crowded(r: np.random.Generator, dtype: str, shared: bool, blocks: int, block: int) -> Schedule:
    return sparse(r, dtype, shared, blocks, block, crowd=True)


def phased(r: np.random.Generator, dtype: str, shared: bool, blocks: int, block: int) -> Schedule:
    """In each step a cell has one owner, or only readers; a barrier after most steps, so that few schedules race and most nearly do."""
    steps, threads = int(r.integers(3, 8)), blocks * block
    ops, cells = np.zeros((threads, steps), np.int32), np.zeros((threads, steps), np.int64)
    for k in range(steps):
        turn = int(r.integers(CELLS))
        cells[:, k] = (np.arange(threads) + turn) % CELLS
        for b in range(blocks):
            part = min(block, CELLS // blocks)
            mine = np.arange(part) + b * block
            cells[mine, k] = (np.arange(part) + turn) % part + b * part
            ops[mine, k] = WRITE if k == 0 else r.choice([READ, WRITE, ATOMIC, NOTHING])
        if r.random() < 0.3 and k:
            ops[:, k], cells[:, k] = READ, cells[0, k]
    weights = (0.0, 1.0, 0.0, 0.0, 0.0) if block > 32 or r.random() < 0.3 else (0.0, 0.3, 0.7, 0.0, 0.0)
    s = _finished(r, dtype, shared, blocks, block, ops, cells, weights)
    if not shared and blocks > 1:  # readers of one cell in all blocks are no race if nobody writes it
        s.ops[s.ops == ATOMIC] = READ
    if r.random() < 0.6:  # and one thing that is wrong, or not
        k = int(r.integers(steps))
        s.meets[k] = r.choice([GO_ON, WARP, LANES, SHUFFLE])
    return s


def _finished(r, dtype, shared, blocks, block, ops, cells, weights) -> Schedule:
    meets, masks = _meetings(r, ops.shape[1], weights)
    values = 10 * np.arange(100, ops.size + 100).reshape(ops.shape) if r.random() < 0.7 else np.full(ops.shape, 7)
    if dtype == "int8":
        ops[ops == ATOMIC] = WRITE
        values = values // 10 % 127
    return Schedule(dtype, shared, blocks, block, ops, cells.astype(np.int32), values.astype(np.int32), meets, masks)


SHAPES = [("int32", True, 1, 5), ("int32", True, 1, 32), ("int32", True, 2, 48), ("int32", True, 1, 96), ("int8", True, 1, 48),
          ("float64", True, 1, 96), ("int32", False, 1, 96), ("int32", False, 3, 32), ("int32", False, 2, 48), ("int8", False, 2, 5),
          ("float64", False, 3, 48)]  # fmt: skip


def check(s: Schedule) -> tuple[bool, bool, str]:
    """Whether the schedule races, whether it reads what is not written, and what is wrong with what the sanitizer says."""
    oracle, findings = Oracle(s), s.findings()
    races = oracle.races()
    never, perhaps = oracle.unwritten_reads() if s.shared else ({}, set())
    wrong = []
    hazards = [f for f in findings if f.check == "racecheck"]
    if bool(hazards) != bool(races):
        wrong.append(f"races: {[(cell, *pairs[0]) for cell, pairs in races.items()]}, said: {[f.message for f in hazards]}")
    if hazards and oracle.severe(races) and all(f.severity == "warning" and f.kind != "same_value_write" for f in hazards):
        wrong.append(f"only a warning: {hazards[0].message}")
    for f in hazards:
        wrong += _wrong(oracle, races, f)
    unwritten = [f for f in findings if f.kind == "uninitialized_read"]
    raced = {line_ops()[line] for f in hazards for line in (f.line, f.other_line)}
    if not unwritten and any(op not in raced for op in never.values()):  # where a race is named it is the cause
        wrong.append(f"reads of cells {sorted(never)} before any write are not seen")
    wrong += [f"{f.message} It may" for f in unwritten if f.index not in perhaps]
    wrong += [f.message for f in findings if f not in hazards and f not in unwritten and f.kind != "unwritten"]
    return bool(races), bool(never), "\n".join(wrong)


def _wrong(oracle: Oracle, races: dict, f) -> list[str]:
    """What is untrue in a finding of racecheck."""
    if f.index not in races:
        return [f"{f.message} Not a race: {f.index}, races are on {sorted(races)}"]
    parties = {(f.block[0], f.thread[0]): f.line, (f.other_block[0], f.other_thread[0]): f.other_line}
    ops = line_ops()
    named = [
        (a, b) for a, b in races[f.index]
        if {(x.block, x.thread): ops[parties[x.block, x.thread]] for x in (a, b) if (x.block, x.thread) in parties}
        == {(a.block, a.thread): a.op, (b.block, b.thread): b.op}
    ]  # fmt: skip
    if f.kind == "lost_update":
        return [] if any({(a.block, a.thread), (b.block, b.thread)} == set(parties) for a, b in races[f.index]) else [f.message]
    if not named:
        return [f"{f.message} {f.kind}: those two do not"]
    kinds = {tuple(sorted((a.op, b.op))) for a, b in named}
    writes = kinds <= {(WRITE, WRITE), (WRITE, ATOMIC)}
    if (f.kind in ("write_after_write", "same_value_write")) != writes:
        return [f"{f.kind}, but {kinds}"]
    equal = [a.op == b.op == WRITE and a.value == b.value for a, b in named]
    if f.kind == "same_value_write" and not any(equal):
        return [f"{f.message} the values differ"]
    weakly = [not oracle.race(a, b, weak=True) for a, b in named]
    severe = f.severity == "error"
    if f.kind != "same_value_write" and severe in weakly and (not severe) not in weakly:
        return [f"{f.severity}: {f.message}"]
    return []


def counted(make, shape, schedules: int) -> None:
    r = np.random.default_rng([SHAPES.index(shape), (sparse, phased, crowded).index(make)])
    kinds = set()
    for n in range(schedules):
        races, _, wrong = check(make(r, *shape))
        assert not wrong, f"schedule {n}: {wrong}"
        kinds.add(races)
    assert kinds == {True, False}, "schedules of one sort only"


each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}-{'shared' if s[1] else 'global'}-{s[2]}x{s[3]}")


@each_shape
@pytest.mark.parametrize("make", [sparse, phased, crowded])
def test_the_sanitizer_says_what_vector_clocks_say(make, shape):
    counted(make, shape, 15)


# ---- one schedule each ------------------------------------------------------------------------------------------------------


def schedule(block: int, *steps: tuple, shared: bool = True, blocks: int = 1) -> Schedule:
    """steps: what follows it (a mask: those lanes meet), then {thread: (op, value)} on cell 0."""
    ops = np.zeros((blocks * block, len(steps)), np.int32)
    values = np.zeros_like(ops)
    masks = np.zeros(len(steps), np.int64)
    meets = np.zeros(len(steps), np.int32)
    for k, (meet, accesses) in enumerate(steps):
        meets[k], masks[k] = (LANES, meet) if meet > SHUFFLE else (meet, 0)
        for thread, (op, value) in accesses.items():
            ops[thread, k], values[thread, k] = op, value
    return Schedule("int32", shared, blocks, block, ops, np.zeros_like(ops), values, meets, masks)


def all_of(threads, op: int, value: int = 0) -> dict:
    return dict.fromkeys(threads, (op, value))


FIRST = (BARRIER, {0: (WRITE, 1)})
ONE_BY_ONE: dict[str, tuple[Any, ...]] = {
    "the last thread reads what all update": (64, FIRST, (GO_ON, all_of(range(64), ATOMIC)), (GO_ON, {63: (READ, 0)})),
    "the last thread writes what all update": (64, FIRST, (GO_ON, all_of(range(64), ATOMIC)), (GO_ON, {63: (WRITE, 3)})),
    "a warp updates, meets and reads, another updates": (
        64, FIRST, (WARP, all_of(range(64), ATOMIC)), (GO_ON, {40: (READ, 0)})),
    "the last thread overwrites what all set": (64, (GO_ON, all_of(range(64), WRITE, 7)), (GO_ON, {63: (WRITE, 5)})),
    "half a warp of readers meets before one of it writes": (
        32, FIRST, (GO_ON, all_of(range(32), READ)), (0xFFFF0000, {}), (GO_ON, {16: (WRITE, 2)})),
    "an update and a write that leaves the same": (64, (BARRIER, {0: (WRITE, 0)}), (GO_ON, {0: (ATOMIC, 0)}), (GO_ON, {32: (WRITE, 1)})),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_a_hazard_that_a_short_memory_may_lose(name):
    block, *steps = ONE_BY_ONE[name]
    s = schedule(block, *steps)
    races, _, wrong = check(s)
    assert races
    assert not wrong, wrong
    assert "error" in {f.severity for f in s.findings()}


@pytest.mark.parametrize("between", [BARRIER, WARP, 0x80000001])
def test_what_is_ordered_is_no_hazard(between):
    s = schedule(32, (between, {0: (WRITE, 1)}), (between, {31: (READ, 0)}), (between, {0: (WRITE, 2)}), (BARRIER, {31: (ATOMIC, 0)}))
    assert check(s) == (False, False, "")
    assert s.findings() == ()
