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

from .constants import constant
from .simt.records import PIPES, Op, Program

HOIST = int(constant("hoist"))
UNROLL, UNROLL_LOADS = int(constant("unroll")), int(constant("unroll_loads"))
UNROLL_MAX_SLOTS = int(constant("unroll_most_slots"))
CHAIN_ILP = constant("chain_ilp")
BARRIER_CYCLES = constant("barrier")
SHORT = 4  # machine instructions of one operation that are issued one after another: 64-bit arithmetic in halves

STALLS = ("selected", "wait", "long_scoreboard", "short_scoreboard", "math_pipe_throttle", "barrier")
_SELECTED, _WAIT, _LONG, _SHORT, _THROTTLE, _BARRIER = range(6)
_CAUSE = {
    "none": _WAIT, "alu": _WAIT, "fp64": _WAIT, "xu": _SHORT, "shared": _SHORT,
    "global": _LONG, "local": _LONG, "atomic": _LONG, "barrier": _BARRIER,
}  # fmt: skip
_CLASSES = tuple(_CAUSE)
_PIPE_INDEX = {name: i for i, name in enumerate(PIPES)}
_REGISTER_PIPES = ("fma", "alu", "fp64")
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

    unrolled  (n, the body of n iterations as one piece), falling, as far as the compiler is expected to make them
    """

    header: int
    last: int
    items: tuple[int | Loop, ...]
    defines: tuple[int, ...]
    unrolled: tuple[tuple[int, tuple[Step, ...]], ...]

    @property
    def innermost(self) -> bool:
        return not any(isinstance(item, Loop) for item in self.items)


@dataclass(frozen=True)
class Schedule:
    """A program as the walk sees it. stall_weight: per site, the part of a stall that one request of it is (traffic.py); together: the
    sites whose requests the warp waits for at the same place, counted as often as they are under way there."""

    blocks: tuple[tuple[Step, ...], ...]
    items: tuple[int | Loop, ...]
    slots: tuple[int, ...]  # issue slots of each basic block
    barriers: tuple[int, ...]
    stall_weight: tuple[float, ...]
    together: tuple[tuple[int, ...], ...] = ()
    operands: tuple[int, ...] = ()  # that one execution of each basic block reads from the register file


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


def _unrolled(blocks: Sequence[int], steps: Sequence[Sequence[Step]], program: Program) -> tuple[tuple[int, tuple[Step, ...]], ...]:
    """Loop.unrolled of a straight loop body; () where ptxas would leave the loop rolled."""
    body = [step for b in blocks for step in steps[b]]
    slots = sum(step.slots for step in body)
    if not any(step.loads for step in body) or slots > UNROLL_MAX_SLOTS or any(step.fences == "all" for step in body):
        return ()
    if not _constant_step(blocks, body, program):
        return ()
    most = UNROLL if any(step.fences for step in body) else UNROLL_LOADS
    counts = [n for n in (UNROLL_LOADS, UNROLL_LOADS // 2, UNROLL) if n <= most and n * slots <= UNROLL * UNROLL_MAX_SLOTS]
    header = _around(blocks, program)
    return tuple((n, _copies(body, header, set(blocks), n)) for n in counts)


def _copies(body: Sequence[Step], header: dict[int, dict[int, int]], inside: set[int], copies: int) -> tuple[Step, ...]:
    """So many iterations of a loop body, one after another, each with values of its own."""
    own = {step.dest for step in body if step.dest >= 0}
    out: list[Step] = []
    for copy in range(copies):
        # the last copy keeps its names: the next round and the code behind the loop read them
        here = 0 if copy == copies - 1 else (copy + 1) * _COPY
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


def _around(blocks: Sequence[int], program: Program) -> dict[int, dict[int, int]]:
    """The values that come around the loop of these blocks: value -> {block it comes from: value there}."""
    inside = set(blocks)
    return {op.dest: dict(op.phi) for op in program.blocks[blocks[0]].ops if any(b not in inside for b, _ in op.phi)}


def _constant_step(blocks: Sequence[int], body: Sequence[Step], program: Program) -> bool:
    """Whether what ends the loop counts in constant steps: not by a value from outside such as gridDim, and not by what is loaded."""
    made = {step.dest: step for step in body if step.dest >= 0}
    inside = set(blocks)
    around = {dest: [v for b, v in pairs.items() if b in inside] for dest, pairs in _around(blocks, program).items()}
    counters = {p for step in body if step.branch for p in _reached(step.sources, made, around)[0]}
    if not counters:
        return False
    for counter in counters:
        _, loads, outside = _reached(around[counter], made, around)
        if loads or outside:
            return False
    return not any(_reached(step.sources, made, around)[1] for step in body if step.branch)


def _reached(sources: Iterable[int], made: dict[int, Step], around: dict[int, list[int]]) -> tuple[set[int], bool, bool]:
    """What values of a loop's body depend on: (values that come around the loop, whether a load, whether anything from outside)."""
    phis: set[int] = set()
    loads = outside = False
    todo, seen = list(sources), set(sources)
    while todo:
        x = todo.pop()
        if x in around:
            phis.add(x)
        elif x in made:
            loads |= made[x].loads
            todo += [v for v in made[x].sources if v not in seen]
            seen.update(made[x].sources)
        else:
            outside = True
    return phis, loads, outside


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
        defines += sorted({step.dest for _, piece in unrolled for step in piece if step.dest >= _COPY})
        items.append(Loop(b, span[1], inner, tuple(defines), unrolled))
        b = span[1] + 1
    return tuple(items)


def _loops(items: Iterable[int | Loop]) -> Iterable[Loop]:
    for item in items:
        if isinstance(item, Loop):
            yield item
            yield from _loops(item.items)


def _stalls(pieces: Iterable[Sequence[Step]], sites: int) -> tuple[list[int], list[int], list[tuple[int, ...]]]:
    """Per site: how often it is the last request before the warp waits for a load it has issued, how often it occurs, and the loads that
    are under way when it is waited for (sites, as often as they are)."""
    stalls, seen = [0] * sites, [0] * sites
    together: list[tuple[int, ...]] = [(k,) for k in range(sites)]
    outstanding: set[int] = set()
    waiting: list[int] = []
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
                        for site in waiting:
                            together[site] = max(together[site], tuple(waiting), key=len)
                    outstanding.clear()
                    waiting.clear()
            if step.site >= 0 and step.space in ("global", "local"):
                recent = step.site
                seen[recent] += again
                if step.dest >= 0:
                    outstanding.add(step.dest)
                    waiting.append(recent)
    return stalls, seen, together


def _stall_weights(
    pieces: Sequence[Sequence[Step]], loops: Iterable[Loop], sites: int
) -> tuple[tuple[float, ...], tuple[tuple[int, ...], ...]]:
    """The part of a stall that one request of each site is: 1 where the warp waits behind it, 0 where it goes on, 1/4 where it waits
    at every fourth, because four iterations of the loop are issued together (or 16); and what is waited for together."""
    stalls, seen, together = _stalls(pieces, sites)
    weight = [min(1.0, a / b) if b else 0.0 for a, b in zip(stalls, seen, strict=True)]
    for loop in loops:
        if loop.unrolled:
            stalls, seen, loaded = _stalls([loop.unrolled[0][1]], sites)
            weight = [min(1.0, a / b) if b else old for a, b, old in zip(stalls, seen, weight, strict=True)]
            together = [new if b else old for new, b, old in zip(loaded, seen, together, strict=True)]
    return tuple(weight), tuple(together)


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
    weights, together = _stall_weights(ordered, tuple(_loops(items)), len(program.sites))
    made = Schedule(
        blocks=ordered,
        items=items,
        slots=tuple(sum(step.slots for step in steps) for steps in raw),
        barriers=tuple(sum(step.kind == barrier for step in steps) for steps in raw),
        stall_weight=weights,
        together=together,
        operands=tuple(register_operands(block.ops) for block in program.blocks),
    )
    key = id(program)
    _MEMO[key] = weakref.ref(program), made
    weakref.finalize(program, _MEMO.pop, key, None)
    return made


def register_operands(ops: Sequence[Op]) -> int:
    """Operands that one execution of these operations reads from the register file. An operand in the same place as in the instruction
    before comes from the reuse cache; an operation that is several machine instructions reads two operands in each."""
    reads = 0
    before: tuple[int, ...] = ()
    for op in ops:
        if not op.issue or op.pipe not in _REGISTER_PIPES:
            before = op.sources if op.issue else before
            continue
        fresh = [a for k, a in enumerate(op.sources) if (before[k : k + 1] or (-1,))[0] != a]
        reads += len(fresh) if op.issue == 1 else 2 * op.issue
        before = op.sources
    return reads


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
    by_kind = [(lat.fp64 if name == "fp64" else lat.alu) / CHAIN_ILP for name in _CLASSES]
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
            chain = slots - 1 if slots <= SHORT else (slots - 1) * by_kind[kind]
            ready[dest] = start + chain + (lat.site[site] if site >= 0 else fixed[kind])
            cause[dest] = _KIND_CAUSE[kind]
    s.clock = clock


_KIND_CAUSE = tuple(_CAUSE.values())


def _scale(s: _State, clock: float, stalls: list[float], factor: float, defines: Iterable[int]) -> None:
    """Stretch what happened since `clock` (and `stalls`) to `factor` times, together with the values defined in it."""
    shift = (factor - 1.0) * (s.clock - clock)
    s.clock += shift
    s.free = [t + shift if t > clock else t for t in s.free]
    s.stalls = [old + factor * (new - old) for new, old in zip(s.stalls, stalls, strict=True)]
    for dest in defines:
        if dest in s.ready:
            s.ready[dest] += shift


def _walk_loop(loop: Loop, per_round: float, e: Sequence[float], s: _State, sched: Schedule, lat: Latencies, fixed) -> None:
    """All iterations of a loop: the first ones step by step, the others like the last of these."""
    blocks = [item for item in loop.items if isinstance(item, int)]
    whole = all(e[b] >= 0.75 * e[loop.header] for b in blocks if sched.slots[b])
    copies, together = next(((n, piece) for n, piece in loop.unrolled if whole and per_round >= n), (1, ()))
    rounds = per_round / copies
    explicit = 3 if loop.innermost else 2
    done = 0
    while done < explicit and done < rounds:
        clock, stalls = s.clock, list(s.stalls)
        if together:
            _run(together, s, lat, fixed)
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
