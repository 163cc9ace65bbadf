"""How long one warp needs when it is alone: a walk over the program with a scoreboard. The definition of lam and of its stalls.

In-order issue, one instruction per clock. An operation issues when its operands are ready and its pipe is free:

    issue(i) = max(issue(i-1) + 1, pipe_free[pipe], ready(operands));  ready = issue + latency(class)

The engine says how often a warp executed each basic block, not in which order. So the walk goes over the blocks in index order, and
over a loop's body two or three times; the last round stands for all others. What the compiler behind NVVM (ptxas) does to a body is
imitated: loads move up to the first place where the warp would wait anyway, and small rolled loops run four iterations at a time.
Source of the rules: model.md section 2.2 of the project's design notes, after Volkov's and Zhang & Owens' single-warp analyses.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .simt.records import PIPES, Op, Program

# Figures without a published source; each is a guess (or recalled) and none was fitted to a ladder.
HOIST = 8  # guess: loads that ptxas keeps in flight at once within one basic block
UNROLL = 4  # read off SASS: ptxas unrolls small rolled loops four times (model.md section 3)
UNROLL_MAX_SLOTS = 64  # guess: the largest body it does that to
CHAIN_ILP = 2.0  # guess: independent instructions inside the expansion of one operation (division, sine, ...)
BARRIER_CYCLES = 25.0  # recalled: 20-30 cycles from the last arrival to the first instruction behind it

STALLS = ("selected", "wait", "long_scoreboard", "short_scoreboard", "math_pipe_throttle", "barrier")
_SELECTED, _WAIT, _LONG, _SHORT, _THROTTLE, _BARRIER = range(6)
_CAUSE = {
    "none": _WAIT, "alu": _WAIT, "fp64": _WAIT, "xu": _SHORT, "shared": _SHORT,
    "global": _LONG, "local": _LONG, "atomic": _LONG, "barrier": _BARRIER,
}  # fmt: skip
_CLASSES = tuple(_CAUSE)
_PIPE_INDEX = {name: i for i, name in enumerate(PIPES)}
_COPY = 1 << 32  # SSA numbers of the second, third ... copy of an unrolled body


class Step(NamedTuple):
    """One operation, ready to be walked. pipe -1: no pipe; kind: index into _CLASSES; space: what it reads or writes, '' if nothing."""

    dest: int
    sources: tuple[int, ...]
    pipe: int
    slots: int
    kind: int
    site: int
    loads: bool
    fences: str  # memory that no load may move above this step: "global", "shared", "local", "all" or ""
    space: str
    branch: bool


@dataclass(frozen=True)
class Loop:
    """A range of basic blocks with a way back to its first. items: blocks (int) and inner loops, in order.

    unrolled  the body of UNROLL iterations as one piece where the compiler is expected to make one, else ()
    """

    header: int
    last: int
    items: tuple[int | Loop, ...]
    defines: tuple[int, ...]
    unrolled: tuple[Step, ...]

    @property
    def innermost(self) -> bool:
        return not any(isinstance(item, Loop) for item in self.items)


@dataclass(frozen=True)
class Schedule:
    """A program as the walk sees it. stall_weight: per site, the part of a stall that one request of it is (traffic.py)."""

    blocks: tuple[tuple[Step, ...], ...]
    items: tuple[int | Loop, ...]
    slots: tuple[int, ...]  # issue slots of each basic block
    barriers: tuple[int, ...]
    stall_weight: tuple[float, ...]


@dataclass(frozen=True)
class Latencies:
    """Cycles by class, and by site for memory. `busy` is how long one warp instruction keeps its pipe from the same warp."""

    alu: float
    fp64: float
    xu: float
    busy: tuple[float, ...]  # by PIPES
    site: tuple[float, ...]  # result latency of each site
    site_busy: tuple[float, ...]  # cycles that one request of each site occupies the data stage
    barrier: float = BARRIER_CYCLES


@dataclass(frozen=True)
class Walk:
    """cycles: what the warp needs alone (lam). stalls: the same cycles by cause (keys: STALLS)."""

    cycles: float
    stalls: dict[str, float]


def _step(op: Op, program: Program) -> Step:
    kind = program.sites[op.site].kind if op.site >= 0 else ""
    space = kind.split("_")[0]
    writes = kind.endswith(("store", "atomic"))
    fences = "all" if op.latency == "barrier" else space if writes else ""
    sources = tuple(value for _, value in op.phi) if op.phi else op.sources
    pipe = _PIPE_INDEX.get(op.pipe, -1) if op.issue else -1
    return Step(
        op.dest, sources, pipe, op.issue, _CLASSES.index(op.latency), op.site,
        kind.endswith("load"), fences, space, op.pipe == "cbu" and op.latency != "barrier",
    )  # fmt: skip


def _closure(steps: Sequence[Step], index: int, at: dict[int, int], done: set[int], outstanding: set[int]) -> list[int] | None:
    """The steps still needed before step `index` can issue, in order; None where one of them would have to wait for a load."""
    needed: set[int] = set()
    todo = [index]
    while todo:
        i = todo.pop()
        if i in needed:
            continue
        if i != index and (steps[i].loads or steps[i].fences or len(needed) > 64):
            return None
        needed.add(i)
        for source in steps[i].sources:
            if source in outstanding:
                return None
            if source in at and at[source] not in done:
                todo.append(at[source])
    return sorted(needed)


def hoist_loads(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Order of issue inside one piece of straight code: where the warp would wait for a load, later loads are issued first.

    A load never passes a store, an atomic (same memory) or a barrier: numba has no `restrict`. At most HOIST are in flight.
    """
    at = {step.dest: i for i, step in enumerate(steps) if step.dest >= 0}
    done: set[int] = set()
    order: list[int] = []
    outstanding: set[int] = set()
    loads = [i for i, step in enumerate(steps) if step.loads]

    def issue(i: int) -> None:
        done.add(i)
        order.append(i)
        if steps[i].loads:
            outstanding.add(steps[i].dest)

    for i, step in enumerate(steps):
        if i in done:
            continue
        if outstanding and any(source in outstanding for source in step.sources):
            fenced: set[str] = set()
            reached = i
            for j in loads:
                if j < i or j in done or len(outstanding) >= HOIST:
                    continue
                fenced.update(s.fences for s in steps[reached:j] if s.fences)
                reached = j
                if "all" in fenced:
                    break
                if steps[j].space in fenced:
                    continue
                for k in _closure(steps, j, at, done, outstanding) or ():
                    issue(k)
            outstanding.clear()
        if i not in done:
            issue(i)
    return tuple(steps[i] for i in order)


def _back_edges(program: Program) -> list[tuple[int, int]]:
    """Loops as (header, last) ranges, outer ones first; ranges that cross are widened until they nest."""
    last: dict[int, int] = {}
    for block in program.blocks:
        for successor in block.successors:
            if successor <= block.index:
                last[successor] = max(last.get(successor, 0), block.index)
    ranges = sorted(last.items(), key=lambda r: (r[0], -r[1]))
    for i in range(len(ranges) - 1, -1, -1):
        header, end = ranges[i]
        for h, e in ranges[i + 1 :]:
            if h <= end < e:
                end = e
        ranges[i] = (header, end)
    return ranges


def _unrolled(blocks: Sequence[int], steps: Sequence[Sequence[Step]], program: Program) -> tuple[Step, ...]:
    """UNROLL copies of a straight loop body as one list, or () where ptxas would leave the loop rolled."""
    body = [step for b in blocks for step in steps[b]]
    if not any(step.loads for step in body) or sum(step.slots for step in body) > UNROLL_MAX_SLOTS:
        return ()
    if any(step.fences == "all" for step in body):
        return ()
    own = {step.dest for step in body if step.dest >= 0}
    loaded: set[int] = set()
    for _ in range(2):  # twice: a value may come around the back edge
        for step in body:
            if step.loads or any(source in loaded for source in step.sources):
                loaded.add(step.dest)
    if any(step.branch and any(source in loaded for source in step.sources) for step in body):
        return ()  # the number of iterations depends on what is loaded
    header = {op.dest: dict(op.phi) for op in program.blocks[blocks[0]].ops if op.phi}
    inside = set(blocks)
    out: list[Step] = []
    for copy in range(UNROLL):
        # the last copy keeps its names: the next round and the code behind the loop read them
        here = 0 if copy == UNROLL - 1 else (copy + 1) * _COPY
        before = 0 if copy == 0 else copy * _COPY
        for step in body:
            if step.dest in header and copy > 0:
                sources = tuple(v + before if v in own else v for b, v in header[step.dest].items() if b in inside)
            elif step.dest in header:
                sources = step.sources
            else:
                sources = tuple(source + here if source in own else source for source in step.sources)
            dest = step.dest + here if step.dest >= 0 else -1
            out.append(step._replace(dest=dest, sources=sources))
    return hoist_loads(out)


def _tree(ranges: list[tuple[int, int]], first: int, last: int, steps, program: Program) -> tuple[int | Loop, ...]:
    items: list[int | Loop] = []
    b = first
    while b <= last:
        span = next((r for r in ranges if r[0] == b), None)
        if span is None:
            items.append(b)
            b += 1
            continue
        inner = _tree([r for r in ranges if r[0] >= b and r[1] <= span[1] and r != span], b, span[1], steps, program)
        blocks = [item for item in inner if isinstance(item, int)]
        straight = len(blocks) == len(inner)
        unrolled = _unrolled(blocks, steps, program) if straight else ()
        defines = [step.dest for i in range(b, span[1] + 1) for step in steps[i] if step.dest >= 0]
        defines += [step.dest for step in unrolled if step.dest >= _COPY]
        items.append(Loop(b, span[1], inner, tuple(defines), unrolled))
        b = span[1] + 1
    return tuple(items)


def _loops(items: Iterable[int | Loop]) -> Iterable[Loop]:
    for item in items:
        if isinstance(item, Loop):
            yield item
            yield from _loops(item.items)


def _stalls(pieces: Iterable[Sequence[Step]], sites: int) -> tuple[list[int], list[int]]:
    """Per site: how often it is the last request before the warp waits for a load it has issued, and how often it occurs."""
    stalls, seen = [0] * sites, [0] * sites
    outstanding: set[int] = set()
    recent = -1
    sequence = [step for piece in pieces for step in piece]
    for again in (False, True):  # the second time with what is under way from the first: back edges
        for step in sequence:
            if outstanding and any(source in outstanding for source in step.sources):
                if not step.slots:  # a phi or another free operation hands the value on
                    outstanding.add(step.dest)
                else:
                    if again and recent >= 0:
                        stalls[recent] += 1
                    outstanding.clear()
            if step.site >= 0 and step.space in ("global", "local"):
                recent = step.site
                seen[recent] += again
                if step.dest >= 0:
                    outstanding.add(step.dest)
    return stalls, seen


def _stall_weights(pieces: Sequence[Sequence[Step]], loops: Iterable[Loop], sites: int) -> tuple[float, ...]:
    """The part of a stall that one request of each site is: 1 where the warp waits behind it, 0 where it goes on, 1/4 where it waits
    at every fourth, because four iterations of the loop are issued together."""
    stalls, seen = _stalls(pieces, sites)
    weight = [min(1.0, a / b) if b else 0.0 for a, b in zip(stalls, seen, strict=True)]
    for loop in loops:
        if loop.unrolled:
            stalls, seen = _stalls([loop.unrolled], sites)
            weight = [min(1.0, a / b) if b else old for a, b, old in zip(stalls, seen, weight, strict=True)]
    return tuple(weight)


_MEMO: dict[int, tuple[weakref.ref, Schedule]] = {}


def schedule(program: Program) -> Schedule:
    """The program prepared for `walk`; made once per Program."""
    known = _MEMO.get(id(program))
    if known and known[0]() is program:
        return known[1]
    raw = [[_step(op, program) for op in block.ops] for block in program.blocks]
    ordered = tuple(hoist_loads(steps) for steps in raw)
    items = _tree(_back_edges(program), 0, len(raw) - 1, raw, program)
    barrier = _CLASSES.index("barrier")
    made = Schedule(
        blocks=ordered,
        items=items,
        slots=tuple(sum(step.slots for step in steps) for steps in raw),
        barriers=tuple(sum(step.kind == barrier for step in steps) for steps in raw),
        stall_weight=_stall_weights(ordered, tuple(_loops(items)), len(program.sites)),
    )
    key = id(program)
    _MEMO[key] = weakref.ref(program), made
    weakref.finalize(program, _MEMO.pop, key, None)
    return made


class _State:
    """Where the walk is: the clock, when each value is ready and what it waits for, when each pipe is free, cycles by cause."""

    __slots__ = ("clock", "ready", "cause", "free", "stalls")

    def __init__(self) -> None:
        self.clock = 0.0
        self.ready: dict[int, float] = {}
        self.cause: dict[int, int] = {}
        self.free = [0.0] * (len(PIPES) + 1)
        self.stalls = [0.0] * len(STALLS)


def _run(steps: Sequence[Step], s: _State, lat: Latencies, fixed: Sequence[float]) -> None:
    ready, cause, free, stalls, clock = s.ready, s.cause, s.free, s.stalls, s.clock
    long_chain = lat.alu / CHAIN_ILP
    for dest, sources, pipe, slots, kind, site, _, fences, _, _ in steps:
        start, why = clock if slots else 0.0, _WAIT
        for source in sources:
            r = ready.get(source, 0.0)
            if r > start:
                start, why = r, cause[source]
        if not slots:  # free: the value is there when its operands are
            if fences == "all":
                stalls[_BARRIER] += lat.barrier
                clock += lat.barrier
            elif dest >= 0:
                ready[dest], cause[dest] = start, why
            continue
        if pipe >= 0 and free[pipe] > start:
            start, why = free[pipe], _THROTTLE
        stalls[why] += start - clock
        stalls[_SELECTED] += slots
        clock = start + slots
        if pipe >= 0:
            busy = lat.busy[pipe] * slots
            free[pipe] = start + (max(busy, lat.site_busy[site]) if site >= 0 else busy)
        if fences == "all":
            stalls[_BARRIER] += lat.barrier
            clock += lat.barrier
        if dest >= 0:
            chain = slots - 1 if slots <= 2 else (slots - 1) * long_chain
            ready[dest] = start + chain + (lat.site[site] if site >= 0 else fixed[kind])
            cause[dest] = _KIND_CAUSE[kind]
    s.clock = clock


_KIND_CAUSE = tuple(_CAUSE.values())


def _scale(s: _State, clock: float, stalls: list[float], factor: float, defines: Iterable[int]) -> None:
    """Stretch what happened since `clock` (and `stalls`) to `factor` times, together with the values defined in it."""
    shift = (factor - 1.0) * (s.clock - clock)
    s.clock += shift
    s.stalls = [old + factor * (new - old) for new, old in zip(s.stalls, stalls, strict=True)]
    for dest in defines:
        if dest in s.ready:
            s.ready[dest] += shift


def _walk_loop(loop: Loop, per_round: float, e: Sequence[float], s: _State, sched: Schedule, lat: Latencies, fixed) -> None:
    """All iterations of a loop: the first ones step by step, the others like the last of these."""
    blocks = [item for item in loop.items if isinstance(item, int)]
    together = loop.unrolled and per_round >= UNROLL and all(e[b] >= 0.75 * e[loop.header] for b in blocks)
    rounds = per_round / UNROLL if together else per_round
    explicit = 3 if loop.innermost else 2
    done = 0
    while done < explicit and done < rounds:
        clock, stalls = s.clock, list(s.stalls)
        if together:
            _run(loop.unrolled, s, lat, fixed)
        else:
            _walk_items(loop.items, e[loop.header], e, s, sched, lat, fixed)
        done += 1
        if done == explicit or done >= rounds:  # the last one stands for those that are left, or for a part of one
            _scale(s, clock, stalls, 1.0 + rounds - done, loop.defines)


def _walk_items(items, reference: float, e: Sequence[float], s: _State, sched: Schedule, lat: Latencies, fixed) -> None:
    for item in items:
        if isinstance(item, Loop):
            if e[item.header] > 0:
                _walk_loop(item, e[item.header] / reference, e, s, sched, lat, fixed)
            continue
        often = e[item] / reference
        if often <= 0:
            continue
        clock, stalls = s.clock, list(s.stalls)
        steps = sched.blocks[item]
        _run(steps, s, lat, fixed)
        if often != 1.0:
            _scale(s, clock, stalls, often, (step.dest for step in steps if step.dest >= 0))


def walk(sched: Schedule, executions: Sequence[float], lat: Latencies) -> Walk:
    """Cycles of one warp that executed basic block b `executions[b]` times.

    >>> from solcourse.simt.records import BasicBlock
    >>> chain = tuple(Op(i, (i - 1,), "fma", 1, "alu", -1, 0) for i in range(1, 11))  # ten FMAs, each on the one before
    >>> program = Program("k", "", (BasicBlock(0, chain, (), 0),), (), 0, 0, "")
    >>> walk(schedule(program), [1], Latencies(4, 8, 20, (2.0,) * 6, (), ())).cycles  # 9 x 4 cycles, then one issue
    37.0
    """
    state = _State()
    by_class = {"alu": lat.alu, "fp64": lat.fp64, "xu": lat.xu, "none": 0.0, "barrier": 0.0}
    fixed = [by_class.get(name, lat.alu) for name in _CLASSES]
    _walk_items(sched.items, 1.0, [float(x) for x in executions], state, sched, lat, fixed)
    return Walk(state.clock, dict(zip(STALLS, state.stalls, strict=True)))
