"""What the checks saw -> Findings, in a learner's words: one for each kind and pair of source lines, with a count and an example.

Which of two accesses comes first in the program, and so whether a hazard is a read after a write or a write after a read, is told by the
barriers: the way between them that no barrier is on is the one that lacks it. Where that does not tell, the run does.
"""

from __future__ import annotations

import linecache
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import le
from typing import Any, NamedTuple

import numpy as np

from solcourse.simt import remedies, shadow
from solcourse.simt.arguments import Allocation
from solcourse.simt.checking import Event, Place, Seen, Watch, views
from solcourse.simt.declared import shapes_of
from solcourse.simt.faults import Dim, Launch, barrier_findings, deadlock, fault_of
from solcourse.simt.layout import ERROR_BOUNDS
from solcourse.simt.machine import Raw
from solcourse.simt.records import WARP, Finding, Site, Touch
from solcourse.simt.remedies import Hazard
from solcourse.simt.strays import by_threads_alone, covered, element_of, negative_index, stray

MOST_WATCHED = 8  # elements that the second run looks at
_RACES = {
    shadow.READ_AFTER_WRITE: "read_after_write",
    shadow.WRITE_AFTER_READ: "write_after_read",
    shadow.WRITE_AFTER_WRITE: "write_after_write",
    shadow.SAME_VALUE: "same_value_write",
}
_ACTIONS = {shadow.LOAD: "read", shadow.STORE: "write", shadow.ATOMIC: "atomic", shadow.WAITING: "read"}


@dataclass(frozen=True, slots=True)
class Told:
    """A finding, and the element to look at again for its picture."""

    finding: Finding
    watch: Watch | None = None


def findings(launch: Launch, raw: Raw, function: Callable | None) -> list[Told]:
    """All there is to say about a launch of the checks build: errors before warnings, then by line."""
    teller = _Teller(launch, raw, function)
    told = [*teller.races(), *teller.uninitialized()]
    others = [*teller.faults(), *teller.misaligned(), *teller.notes(), *teller.barriers()]
    if not any(f.severity == "error" for f in (*others, *(t.finding for t in told))):
        others += teller.unwritten()
    elif any(f.kind == "out_of_bounds" for f in others):  # the launch ended before the arrays were written: only the text can tell
        others += teller.not_reached()
    told = _causes([*told, *(Told(f) for f in others)])
    return sorted(told, key=lambda t: _order(t.finding, launch.file))


def _causes(told: list[Told]) -> list[Told]:
    """Without what only follows from another finding: an element is read before it was written where nothing makes the reader wait for
    the writer, and an index that has overflowed leaves the array."""
    races = {(f.array, f.file, line) for f in (t.finding for t in told) if f.check == "racecheck" for line in (f.line, f.other_line)}
    overflows = {(f.file, f.line) for f in (t.finding for t in told) if f.kind == "index_overflow"}
    return [
        t
        for t in told
        if not (t.finding.kind == "uninitialized_read" and (t.finding.array, t.finding.file, t.finding.line) in races)
        and not (t.finding.kind in ("out_of_bounds", "wrapped_index") and (t.finding.file, t.finding.line) in overflows)
    ]


def _order(f: Finding, file: str) -> tuple:
    return f.severity != "error", f.file != file, f.line, f.other_line or 0, f.kind, f.array


def watches(told: Sequence[Told]) -> tuple[Watch, ...]:
    """The elements to look at in a second run."""
    return tuple(dict.fromkeys(t.watch for t in told if t.watch is not None))[:MOST_WATCHED]


def with_touches(launch: Launch, told: Sequence[Told], seen: Sequence[Seen]) -> tuple[Finding, ...]:
    """The findings, with what the second run saw of their elements."""
    looked_at = watches(told)
    touches: dict[Watch, list[Touch]] = {}
    for one in seen:
        p = one.place
        touch = Touch(
            one.phase, launch.block_at(p.block), launch.thread_at(p.thread), launch.compiled.program.sites[p.site].line, _ACTIONS[one.kind]
        )
        touches.setdefault(looked_at[one.watch], []).append(touch)
    return tuple(replace(t.finding, touches=tuple(touches.get(t.watch, ()))) if t.watch else t.finding for t in told)


# ---- words ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Spot:
    """An element in words: the array's name, "tile[3, 4]", its flat index, and where it lives."""

    array: str
    element: str
    index: int
    space: str


class _Seen(NamedTuple):
    """A hazard's event. turned: the access that came second in the run comes first in the program; kind: in the program's order."""

    event: Event
    turned: bool
    kind: str


_Groups = dict[tuple, list[_Seen]]  # (kind, first line, second line, array) -> what was seen there; a line is (file, number)


class _Teller:
    """One launch, what was seen of it, and the names of things."""

    def __init__(self, launch: Launch, raw: Raw, function: Callable | None):
        self.launch, self.raw, self.c = launch, raw, launch.compiled
        assert raw.checked is not None
        self.checked = raw.checked
        self.events = raw.checked.events
        self.shapes = shapes_of(function, "shared.array")
        self.views = views(self.c, launch.bound)
        self.locals = list(shapes_of(function, "local.array"))

    # ---- names

    def site(self, k: int) -> Site:
        return self.c.program.sites[k]

    def thread(self, p: Place, of_block: bool = False) -> str:
        """ "thread 12", "thread (3, 4)", "thread 12 of block 5"."""
        said = f"thread {_index(self.launch.thread_at(p.thread), self.launch.block)}"
        return f"{said} of block {_index(self.launch.block_at(p.block), self.launch.grid)}" if of_block else said

    def at(self, line: int, file: str) -> str:
        text = linecache.getline(file, line).strip()
        return f"line {line} (`{text}`)" if text else f"line {line}"

    def spot(self, e: Event) -> _Spot:
        """The element that an event is about."""
        site = self.site(e.me.site)
        space = site.kind.partition("_")[0]
        allocation = self.allocation(e.row)
        if allocation is not None:
            view = self.views.get(e.row)
            at = view.index_of(allocation.address + e.offset) if view else None
            if view and at:
                return _Spot(view.name, f"{view.name}[{', '.join(map(str, at))}]", int(np.ravel_multi_index(at, view.shape)), space)
            index, element, _ = element_of(site, allocation, e.offset, 0)
            return _Spot(allocation.name, f"{allocation.name}[{element}]", int(index), space)
        name = self.c.row_names[e.row] if 0 <= e.row < len(self.c.row_names) else site.array
        shape, itemsize = self.shapes.get(name, ((), 0))
        index = e.offset // (itemsize or site.size)
        inside = len(shape) > 1 and index < math.prod(shape)
        written = ", ".join(str(n) for n in np.unravel_index(index, shape)) if inside else str(index)
        return _Spot(name, f"{name}[{written}]" if name.isidentifier() else f"element {written} of {name}", index, space)

    def allocation(self, row: int) -> Allocation | None:
        index = self.checked.allocations.get(row)
        return None if index is None else self.launch.bound.allocations[index]

    def local(self, e: Event) -> str:
        """The local array that a note is about."""
        return self.locals[e.value] if e.value < len(self.locals) else ""

    def finding(self, kind: str, severity: str, message: str, hint: str, site: Site, me: Place, **more: Any) -> Finding:
        return Finding(
            kind, severity, message, hint, file=site.file, line=site.line,
            block=self.launch.block_at(me.block), thread=self.launch.thread_at(me.thread), **more,
        )  # fmt: skip

    # ---- memcheck

    def faults(self) -> list[Finding]:
        """What ended the launch: a stray access, a deadlock, a loop without end."""
        raw, launch = self.raw, self.launch
        if raw.error and raw.error[0] == ERROR_BOUNDS:
            return [stray(launch, raw.error)]
        if raw.stuck and raw.stuck.deadlock and not raw.error:
            return [deadlock(launch, raw.stuck)]
        error = None if raw.raised and not raw.error else fault_of(launch, raw)
        if error is None:
            return []
        line = getattr(error, "line", None) or launch.kernel.first_line
        return [
            Finding("runaway", "error", str(error), "Does every turn of the loop bring it nearer to its end?", file=launch.file, line=line)
        ]

    def misaligned(self) -> list[Finding]:
        found = []
        for e in self.events:
            if e.kind == shadow.MISALIGNED:
                site, spot = self.site(e.me.site), self.spot(e)
                message = (
                    f"{self.thread(e.me, True)} accesses {site.size} bytes of {spot.array} at byte {e.offset}, at {self.at(site.line, site.file)}; "
                    f"a GPU needs a multiple of {e.value} there, and ends the kernel with an error."
                )
                hint = "Does the array begin in the middle of another one? Copy it to an array of its own."
                found.append(
                    self.finding(
                        "misaligned", "error", _capital(message), hint, site, e.me, array=spot.array, count=e.count, space=spot.space
                    )
                )
        return found

    # ---- racecheck

    def races(self) -> list[Told]:
        """Hazards, the two sides of each in the program's order."""
        groups: _Groups = {}
        for e in self.events:
            if e.kind not in _RACES:
                continue
            turned = self._is_turned(e)
            kind = _RACES[e.kind]
            if turned and kind in ("read_after_write", "write_after_read"):
                kind = "write_after_read" if kind == "read_after_write" else "read_after_write"
            first, second = (e.me, e.other) if turned else (e.other, e.me)
            a, b = self.site(first.site), self.site(second.site)
            key = (kind, (a.file, a.line), (b.file, b.line), self.spot(e).array)
            groups.setdefault(key, []).append(_Seen(e, turned, kind))
        self._join_updates(groups)
        for key in [k for k in groups if k[0] == "same_value_write" and ("write_after_write", *k[1:]) in groups]:
            groups["write_after_write", *key[1:]] += groups.pop(key)  # not always the same one
        self._join_kinds(groups)
        return [self._race(key, group) for key, group in groups.items()]

    def _join_updates(self, groups: _Groups) -> None:
        """`x[i] += 1` by several threads: they overwrite each other, with values made of what they have read there. One finding."""
        for key in [k for k in groups if k[0] in ("write_after_write", "same_value_write")]:
            _, first, second, array = key
            if first != second or key not in groups:
                continue
            reads = [k for k in groups if k[3] == array and second in k[1:3] and self._are_updates(groups[k], second)]
            if reads:
                lines = next((k[1:3] for k in reads if k[1] == k[2]), None) or reads[0][1:3]
                joined = [pair for k in reads for pair in groups.pop(k)]
                for kind in ("write_after_write", "same_value_write"):
                    joined = groups.pop((kind, first, second, array), []) + joined  # whose threads both write: the example
                groups.setdefault(("lost_update", *lines, array), []).extend(joined)

    def _are_updates(self, group: list[_Seen], store: tuple[str, int]) -> bool:
        """Whether hazards are those of threads that read an element, and write at the line `store` what they have made of it."""
        for e, *_ in group:
            if e.kind in (shadow.READ_AFTER_WRITE, shadow.WRITE_AFTER_READ):
                read, write = (e.me, e.other) if e.kind == shadow.READ_AFTER_WRITE else (e.other, e.me)
                site = self.site(write.site)
                if (site.file, site.line) == store and (write.site in self.fed.get(read.site, ()) or self._decides(read.site, write.site)):
                    return True
        return False

    @cached_property
    def makers(self) -> dict[int, set[int]]:
        """Value -> the memory sites whose loads it is made of."""
        makers: dict[int, set[int]] = {}
        ops = [op for block in self.c.program.blocks for op in block.ops]
        changed = True
        while changed:
            changed = False
            for op in ops:
                sources = (*op.sources, *(value for _, value in op.phi))
                made = set().union(*(makers.get(v, set()) for v in sources)) if op.site < 0 else {op.site}
                if op.dest >= 0 and not made <= makers.get(op.dest, set()):
                    makers[op.dest] = makers.get(op.dest, set()) | made
                    changed = True
        return makers

    @cached_property
    def fed(self) -> dict[int, set[int]]:
        """Memory site that loads -> the sites that store a value made of what it loaded."""
        fed: dict[int, set[int]] = {}
        for op in (op for block in self.c.program.blocks for op in block.ops if op.site >= 0 and op.dest < 0):
            pointer = isinstance(self.c.plan.sites[op.site][0].args[0], str)  # then the first source is where, not what
            for load in set().union(*(self.makers.get(v, set()) for v in op.sources[pointer:])):
                fed.setdefault(load, set()).add(op.site)
        return fed

    @cached_property
    def deciding(self) -> dict[int, set[int]]:
        """Basic block that ends in a branch -> the memory sites whose loads its condition is made of."""
        return {
            k: set().union(*(self.makers.get(v, set()) for v in block.ops[-1].sources))
            for k, block in enumerate(self.c.program.blocks)
            if len(block.successors) == 2
        }

    def _decides(self, load: int, store: int) -> bool:
        """Whether a store is made or not by what was loaded: `if x[i] > most[0]: most[0] = x[i]`."""
        goal, blocks = int(self.c.site_nodes[store]), self.c.program.blocks
        for k, loads in self.deciding.items():
            if load in loads and sum(s == goal or goal in self._ahead(s, k) for s in blocks[k].successors) == 1:
                return True
        return False

    def _ahead(self, start: int, without: int) -> set[int]:
        """The basic blocks that follow one without coming by another."""
        seen: set[int] = set()
        todo = [start]
        while todo:
            node = todo.pop()
            if node not in seen and node != without:
                seen.add(node)
                todo += self.c.program.blocks[node].successors
        return seen

    def _join_kinds(self, groups: _Groups) -> None:
        """One barrier is missing between two lines, whichever of them reads; and where one is missing between a and b, and between b
        and c, those two also are between a and c."""
        for key in [k for k in groups if k[0] == "write_after_read" and ("read_after_write", *k[1:]) in groups]:
            groups["read_after_write", *key[1:]] += groups.pop(key)
        pairs = {(k[1], k[2], k[3]) for k in groups if k[1][0] == k[2][0] and k[1] < k[2]}
        for key in [k for k in groups if (k[1], k[2], k[3]) in pairs]:
            _, a, c, array = key
            if any((a, b, array) in pairs and (b, c, array) in pairs for _, b, _ in pairs if a < b < c):
                del groups[key]

    def _is_turned(self, e: Event) -> bool:
        """Whether the access that came second in this run comes first in the program."""
        if e.me.site == e.other.site:
            return False
        barriers = set() if e.apart == 2 else set(self.c.barrier_nodes)  # of two blocks neither waits for the other
        there, back = self._open_way(e.other.site, e.me.site, barriers), self._open_way(e.me.site, e.other.site, barriers)
        return back and not there

    def _open_way(self, a: int, b: int, barriers: set[int]) -> bool:
        """Whether the program can come from one memory site to another without a barrier of the block."""
        start, goal = int(self.c.site_nodes[a]), int(self.c.site_nodes[b])
        if start == goal and a < b:
            return True
        seen, todo = set(), [] if start in barriers else list(self.c.program.blocks[start].successors)
        while todo:
            node = todo.pop()
            if node == goal:
                return True
            if node not in seen:
                seen.add(node)
                todo += [] if node in barriers else self.c.program.blocks[node].successors
        return False

    def _race(self, key: tuple, group: list[_Seen]) -> Told:
        kind, *lines, _ = key
        of_kind = {"lost_update": ("write_after_write", "same_value_write")}.get(kind, (kind,))  # whose threads do all of it
        wanted = [seen for seen in group if seen.kind in of_kind] or group
        e, turned, _ = min(wanted, key=lambda seen: (seen.event.weak, -seen.event.apart, -seen.event.count))
        first, second = (e.me, e.other) if turned else (e.other, e.me)
        there = {(x.file, x.line): x for seen in group for x in (self.site(seen.event.other.site), self.site(seen.event.me.site))}
        spot, (a, b) = self.spot(e), (there[line] for line in lines)
        apart, weak = first.block != second.block, all(seen.event.weak for seen in group)
        message = self._happens(kind, first, second, a, b, spot)
        # a plain look before a compare-and-swap is checked by the swap itself
        looks = {first.atomic, second.atomic} == {True, False} and kind != "write_after_write" and self._swaps(first, second)
        severity = "warning" if weak or looks or kind == "same_value_write" else "error"
        hazard = Hazard(
            kind, self.launch, first, second, a, b, spot.array, spot.element, spot.space, e.apart, e.weak, looks, self._in_loop(second.site),
        )  # fmt: skip
        finding = self.finding(
            kind, severity, message, remedies.remedy(hazard), b, second,
            other_line=a.line, other_block=self.launch.block_at(first.block), other_thread=self.launch.thread_at(first.thread),
            array=spot.array, index=spot.index, count=sum(seen.event.count for seen in group), space=spot.space, element=spot.element,
        )  # fmt: skip
        return Told(finding, Watch(e.row, e.offset, None if apart else second.block))

    def _swaps(self, first: Place, second: Place) -> bool:
        """Whether the atomic one of two accesses is a compare-and-swap."""
        i = self.c.plan.sites[first.site if first.atomic else second.site][0]
        return i.op == "cmpxchg"

    def _happens(self, kind: str, first: Place, second: Place, a: Site, b: Site, spot: _Spot) -> str:
        """What the two do, in the program's order; those of one kind by their numbers."""
        apart, one_line = first.block != second.block, (a.file, a.line) == (b.file, b.line)
        one, two = self.thread(first, apart), self.thread(second, apart)
        here, there = self.line(b), "there" if one_line else f"at {self.line(a)}"
        if kind == "read_after_write":
            return _capital(f"{two} reads {spot.element} at {here} while {one} may not yet have {_written(first)} it {there}.")
        if kind == "write_after_read":
            return _capital(f"{two} {_writes(second)} {spot.element} at {here} while {one} may still have to read it {there}.")
        if first.atomic != second.atomic:
            return _capital(f"{two} {_writes(second)} {spot.element} at {here} while {one} may not yet have {_written(first)} it {there}.")
        if one_line:
            one, two = (one, two) if (first.block, first.thread) < (second.block, second.thread) else (two, one)
            both, where = (
                f"{one} and {two}" if apart else f"threads {one.removeprefix('thread ')} and {two.removeprefix('thread ')}",
                f" at {here}",
            )
        else:
            both, where = f"{one} at {self.line(a)} and {two} at {here}", ""
        if kind == "lost_update" and not one_line:
            return _capital(
                f"{one} and {two} both read {spot.element} at {self.line(a)}, change it and write it back at {here}: one of the updates can be lost."
            )
        if kind == "lost_update":
            return _capital(f"{both} both read {spot.element}, change it and write it back{where}: one of the updates can be lost.")
        if kind == "same_value_write":
            return _capital(f"{both} both write {spot.element}{where}; each time the value was the same.")
        return _capital(f"{both} both write {spot.element}{where}: which value stays is a matter of chance.")

    def line(self, site: Site) -> str:
        """ "line 12", or where the kernel calls into another file "line 12 of helpers.py"."""
        return f"line {site.line}" if site.file == self.launch.file else f"line {site.line} of {os.path.basename(site.file)}"

    def _in_loop(self, site: int) -> bool:
        return self.c.program.blocks[int(self.c.site_nodes[site])].loop_depth > 0

    # ---- initcheck

    def uninitialized(self) -> list[Told]:
        groups: dict[tuple, list[Event]] = {}
        for e in self.events:
            if e.kind == shadow.UNINITIALIZED:
                site = self.site(e.me.site)
                groups.setdefault((site.file, site.line, self.spot(e).array), []).append(e)
        found = []
        for group in groups.values():
            e = group[0]
            site, spot = self.site(e.me.site), self.spot(e)
            if spot.space == "shared":
                who = f"no thread of block {_index(self.launch.block_at(e.me.block), self.launch.grid)} has written"
            else:
                who = "nobody has written since the array was made"
            message = (
                f"{self.thread(e.me, True)} reads {spot.element} at {self.line(site)}, which {who}: the result can change from run to run."
            )
            hint = remedies.of_unwritten(spot.space, spot.array, site)
            finding = self.finding(
                "uninitialized_read", "error", _capital(message), hint, site, e.me, array=spot.array, index=spot.index,
                count=sum(other.count for other in group), space=spot.space, element=spot.element,
            )  # fmt: skip
            found.append(Told(finding, Watch(e.row, e.offset, e.me.block if spot.space == "shared" else None)))
        return found

    # ---- what is noted (Plan.notes)

    def notes(self) -> list[Finding]:
        groups: dict[tuple[str, str, int, str], list[Event]] = {}
        for e in self.events:
            if e.kind == shadow.NOTE:
                kind, line, file, array = self.c.plan.notes[e.me.site]
                groups.setdefault((kind, file, line, self.local(e) if kind == "uninitialized_read" else array), []).append(e)
        found = []
        for (kind, file, line, array), group in groups.items():
            e, count = group[0], sum(other.count for other in group)
            severity, message, hint = _NOTES[kind](self, e, self.at(line, file))
            block, thread = self.launch.block_at(e.me.block), self.launch.thread_at(e.me.thread)
            found.append(
                Finding(kind, severity, _capital(message), hint, file=file, line=line, block=block, thread=thread, array=array, count=count)
            )
        return found

    # ---- synccheck

    def barriers(self) -> list[Finding]:
        found, lines = [], set()
        for e in self.events:
            if e.kind != shadow.PASSED_BY:
                continue
            line, arrived, total = self.c.barrier_lines[e.me.site], e.value, math.prod(self.launch.block)
            if line in lines:
                continue
            lines.add(line)
            block = self.launch.block_at(e.me.block)
            rest = f"the other {e.other_value}" if arrived + e.other_value == total else str(e.other_value)
            message = (
                f"{arrived} of {total} threads of block {_index(block, self.launch.grid)} wait at {self.at(line, self.launch.file)}, "
                f"but {rest} passed by it and have ended."
            )
            hint = remedies.of_barrier(self.launch.file, line)
            found.append(Finding("divergent_barrier", "error", message, hint, file=self.launch.file, line=line, block=block, count=e.count))
        return found + [f for f in barrier_findings(self.c, self.raw) if f.line not in lines]

    def guard(self, e: Event) -> str:
        """The condition that keeps a negative index out."""
        _, line, file, _ = self.c.plan.notes[e.me.site]
        written = negative_index(self.launch, file, line, e.value, self.launch.block_at(e.me.block), self.launch.thread_at(e.me.thread))
        return f"`if {written or 'index'} >= 0:`"

    # ---- what the grid does not reach

    def unwritten(self) -> list[Finding]:
        """An array of which exactly as much was written, along an axis, as the launch has threads there: the rest has no thread."""
        found = []
        for index, cells in self.checked.written.items():
            a, cell = self.launch.bound.allocations[index], 1 << self.checked.step[index]
            whole = math.prod(a.shape) * a.itemsize == a.nbytes and cell <= a.itemsize and a.nbytes and not a.viewed_in_part
            read = any(row in self.c.plan.loaded_rows for row, other in self.checked.allocations.items() if other == index)
            if whole and not read and by_threads_alone(self.launch, a) and isinstance(a.array, np.ndarray) and a.array.flags.c_contiguous:
                found += self._uncovered(a, np.asarray(np.any(cells[: a.nbytes // cell].reshape(*a.shape, -1), axis=-1)))
        return found

    def _uncovered(self, a: Allocation, written: np.ndarray) -> list[Finding]:
        axes = range(written.ndim)
        ends = [int(np.flatnonzero(written.any(axis=tuple({*axes} - {axis}))).max(initial=-1)) + 1 for axis in axes]
        return self._short(a, ends) if written[tuple(map(slice, ends))].all() else []

    def not_reached(self) -> list[Finding]:
        """The same, of a launch that a stray access has ended: from the kernel's text."""
        ends = [(a, covered(self.launch, a)) for a in self.launch.bound.allocations if not a.viewed_in_part]
        return [f for a, reached in ends if all(map(le, reached, a.shape)) for f in self._short(a, reached)]

    def _short(self, a: Allocation, ends: Sequence[int]) -> list[Finding]:
        threads = {g * b for g, b in zip(self.launch.grid, self.launch.block, strict=True) if g * b > 1}
        short = [axis for axis, end in enumerate(ends) if end < a.shape[axis]]
        if not short or not all(ends[axis] in threads for axis in short):
            return []
        axis, size = short[0], a.shape[short[0]]
        what = "elements" if len(a.shape) == 1 else ("rows", "columns", "layers")[min(axis, 2)]
        message = (
            f"The last {size - ends[axis]:,} {what} of {a.name} are never written: it has {size:,}, the grid {ends[axis]:,} threads there."
        )
        hint = f"Round the number of blocks up, ({a.name}.shape[{axis}] + threads - 1) // threads, and guard the index in the kernel."
        return [Finding("unwritten", "warning", message, hint, file=self.launch.file, line=self.launch.kernel.first_line, array=a.name)]


# ---- the words of notes: (severity, message, hint) -----------------------------------------------------------------------------


def _wrapped_index(t: _Teller, e: Event, where: str) -> tuple[str, str, str]:
    message = f"{t.thread(e.me, True)} uses the index {e.value} at {where}: as in Python that counts from the end, and means {e.value + e.other_value}."
    return "warning", message, f"Numba compiles that rule in, so a GPU does the same. If it is not meant, guard the access: {t.guard(e)}."


def _unwritten_local(t: _Teller, e: Event, where: str) -> tuple[str, str, str]:
    message = f"{t.thread(e.me, True)} reads an element of {t.local(e) or 'a local array'} at {where} that it has not written."
    return "warning", message, "A local array holds nothing to rely on (numba happens to begin it with zeros): write every element first."


def _index_overflow(t: _Teller, e: Event, where: str) -> tuple[str, str, str]:
    message = f"The index of {t.thread(e.me, True)} at {where} does not fit into its integer type, and has become {e.value}."
    return (
        "error",
        message,
        "Compute it with 64 bits: np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x, and no np.int32(...) on the way.",
    )


def _inactive_lane(t: _Teller, e: Event, where: str) -> tuple[str, str, str]:
    lane = e.me.thread % WARP
    if e.other_value == -1:
        message = f"{t.thread(e.me, True)} (lane {lane}) reads from lane {e.value} at {where}, but that lane does not take part: what it gets is undefined."
    else:
        missing = [k for k in range(WARP) if (e.value & ~e.other_value) >> k & 1]
        message = (
            f"{t.thread(e.me, True)} (lane {lane}) names lanes in its mask at {where} that do not come there, lane {missing[0] if missing else '?'} for one: "
            "a GPU may wait for them for ever."
        )
    return "error", message, "Move it out of the branch, so that all lanes of the mask reach it, or make the mask of those that do."


def _lane_not_in_mask(t: _Teller, e: Event, where: str) -> tuple[str, str, str]:
    message = f"{t.thread(e.me, True)} (lane {e.me.thread % WARP}) at {where} passes a mask that does not name its own lane: {e.value & 0xFFFFFFFF:#010x}."
    return "error", message, "The mask names the lanes that take part; 0xffffffff is all of them."


_NOTES: dict[str, Callable[[_Teller, Event, str], tuple[str, str, str]]] = {
    "wrapped_index": _wrapped_index, "uninitialized_read": _unwritten_local, "index_overflow": _index_overflow, "inactive_lane": _inactive_lane, "lane_not_in_mask": _lane_not_in_mask,
}  # fmt: skip


def _index(at: Dim, extent: Dim) -> str:
    """ "12" in one dimension, "(3, 4)" in two."""
    used = max((k + 1 for k in range(3) if extent[k] > 1), default=1)
    return str(at[0]) if used == 1 else f"({', '.join(map(str, at[:used]))})"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _written(p: Place) -> str:
    return "updated" if p.atomic else "written"


def _writes(p: Place) -> str:
    return "updates" if p.atomic else "writes"
