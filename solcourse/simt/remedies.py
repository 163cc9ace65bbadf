"""What to do about a hazard, a barrier that some threads pass by, an element nobody has written: one rule for each situation.

A rule says what to do where it fits, and "" where not; the first that fits wins. What it needs to know of the kernel beyond the two
accesses it reads off the kernel's text (sources.py), and where that does not tell, the last rule is plain.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass

from solcourse.simt.checking import Place
from solcourse.simt.faults import Launch
from solcourse.simt.records import WARP, Site
from solcourse.simt.sources import AXES, Source, Unknown, coordinates, source_at

ANY_ORDER = "Blocks of one launch run in any order"


@dataclass(frozen=True)
class Hazard:
    """Two accesses in the program's order, `a` by `first` before `b` by `second`. apart: 0 in one warp, 1 in one block, 2 in two blocks;
    looks: a plain read, and the compare-and-swap that checks what it saw; in_loop: b is in a loop."""

    kind: str
    launch: Launch
    first: Place
    second: Place
    a: Site
    b: Site
    array: str
    element: str
    space: str
    apart: int
    weak: bool
    looks: bool
    in_loop: bool

    @property
    def source(self) -> Source | None:
        """The function that both lines are in."""
        here = source_at(self.b.file, self.b.line)
        return here if source_at(self.a.file, self.a.line) is here else None

    @property
    def lines(self) -> str:
        return f"line {self.a.line} and line {self.b.line}"

    @property
    def has_barriers(self) -> bool:
        return bool(self.launch.compiled.barrier_lines)

    @property
    def one_warp(self) -> bool:
        return self.apart == 0 and not self.across

    @property
    def across(self) -> bool:
        return self.first.block != self.second.block

    def differs(self) -> set[str]:
        """In which coordinates the two threads differ: "threadIdx.x", "blockIdx.y"."""
        at = self.launch
        pairs = (
            ("threadIdx", at.thread_at(self.first.thread), at.thread_at(self.second.thread)),
            ("blockIdx", at.block_at(self.first.block), at.block_at(self.second.block)),
        )
        return {f"{name}.{AXES[k]}" for name, one, two in pairs for k in range(3) if one[k] != two[k]}

    def index(self) -> tuple[str, set[str]] | None:
        """The index at the second line as written, and what it varies with, where the line has one only."""
        found = self.source.indices(self.b.line, self.array) if self.source else []
        if len(found) != 1 or self.source is None:
            return None
        return ast.unparse(found[0]).strip("()") if isinstance(found[0], ast.Tuple) else ast.unparse(found[0]), self.source.depends(
            found[0]
        )


def remedy(h: Hazard) -> str:
    return next(text for text in (rule(h) for rule in _RULES) if text)


# ---- the index, or who writes -------------------------------------------------------------------------------------------------


def _index_forgets_the_block(h: Hazard) -> str:
    """`i = cuda.threadIdx.x`, in global memory and a grid of several blocks."""
    index, differs = h.index(), h.differs()
    if not h.across or index is None or any(d.startswith("threadIdx") for d in differs) or "data" in index[1] or not index[1]:
        return ""
    text, varies = index
    if varies & differs or not any(d.startswith("threadIdx") for d in varies):
        return ""
    grid = "cuda.grid(1)" if math.prod(h.launch.grid[1:]) == 1 and math.prod(h.launch.block[1:]) == 1 else "cuda.grid(2)"
    said = f"The index `{text}` is the same in every block: use {grid}, which counts the threads of the whole grid"
    update = _atomic(h)
    return f"{said}; or, if the blocks are to add up, {update}." if update and h.kind == "lost_update" else f"{said}."


def _index_forgets_an_axis(h: Hazard) -> str:
    """In a block with two axes, the index has one of them."""
    index, differs = h.index(), h.differs()
    if h.kind not in ("write_after_write", "same_value_write", "lost_update") or h.across or index is None or "data" in index[1]:
        return ""
    text, varies = index
    if varies & differs or not any(d.startswith("threadIdx") for d in varies):
        return ""
    axis = sorted(differs)[0]
    once = f"or let one of these threads write, `if cuda.{axis} == 0:`"
    return f"The index `{text}` does not depend on cuda.{axis}, so threads that differ only there share an element: use it too, {once}."


def _atomic(h: Hazard) -> str:
    """ "cuda.atomic.add(s, 0, 1)" for the line `s[0] += 1`; "" where no atomic operation does it."""
    update = h.source.update(h.b.line, h.array) if h.source else None
    return f"cuda.atomic.{update.name}({h.array}, {update.at}, {update.value})" if update and update.name else ""


def _lost_update(h: Hazard) -> str:
    if h.kind != "lost_update":
        return ""
    update = h.source.update(h.b.line, h.array) if h.source else None
    if update and not update.name:
        return f"CUDA has no atomic operation for this: let one thread do it, or give each thread its own element of {h.array}."
    whole = _atomic(h) or f"an atomic operation, such as cuda.atomic.add({h.array}, index, value)"
    owner = ", or let one thread add the values up" if h.space == "shared" else ""
    return f"Use {whole}{owner}: a barrier does not make `+=` one step."


def _same_value(h: Hazard) -> str:
    if h.kind != "same_value_write":
        return ""
    return "Harmless as long as the values are the same. It is clearer, and costs less, if one thread writes."


def _one_should_write(h: Hazard) -> str:
    """`out[0] = s[0]` by all threads, or by one of every block."""
    index = h.index()
    if h.kind != "write_after_write" or index is None or "data" in index[1] or any(d.startswith("threadIdx") for d in index[1]):
        return ""
    if not h.across:
        return f"All threads that come here write {h.element}: let one of them do it, `if cuda.threadIdx.x == 0:`."
    if index[1]:
        return ""
    return f"Every block writes {h.element}: give each its own element, {h.array}[cuda.blockIdx.x], or let one thread of the grid write."


def _look_before_a_swap(h: Hazard) -> str:
    swapped = "Harmless where the compare-and-swap refuses what was read too early or too late"
    return f"{swapped}; cuda.atomic.cas({h.array}, index, 0, 0) reads without a race." if h.looks else ""


# ---- blocks ---------------------------------------------------------------------------------------------------------------------


def _fence_of_the_last_block(h: Hazard) -> str:
    """The block that counts as the last one reads what the others have written."""
    if not h.across or h.kind != "read_after_write" or h.source is None or h.source.calls("threadfence"):
        return ""
    between = [c for c in h.source.calls("") if ".atomic." in ast.unparse(c.func) and h.a.line < c.lineno < h.b.line]
    if not between:
        return ""
    return f"Put cuda.threadfence() between line {h.a.line} and the atomic operation at line {between[0].lineno}: whoever sees the count then sees the data too."


def _blocks(h: Hazard) -> str:
    if not h.across:
        return ""
    if h.first.atomic and not h.second.atomic:
        return f"Other blocks may still update {h.array}; it is complete when the kernel has ended: do line {h.b.line} in a second launch, or on the host."
    if h.second.atomic and not h.first.atomic and h.kind == "write_after_read":
        return f"Other blocks may update {h.array} already: use what the atomic operation returns, or read it in a launch before this one."
    if h.second.atomic and not h.first.atomic:
        return f"{ANY_ORDER}: set {h.array} before the launch, or in a kernel of its own, and let this one use atomic operations only."
    if h.kind == "write_after_write":
        return f"{ANY_ORDER}: give each element to one thread. Do the ranges of two blocks overlap?"
    if h.kind == "read_after_write" and h.a.line != h.b.line:
        return f"{ANY_ORDER}, and syncthreads() waits for no other block: end the kernel before line {h.b.line}, and do the rest in a second launch."
    return f"{ANY_ORDER}, and syncthreads() waits for no other block: write to another array than {h.array}."


# ---- within a block ---------------------------------------------------------------------------------------------------------------


def _weak(h: Hazard) -> str:
    return f"A shuffle, vote or match does not order memory: put cuda.syncwarp() between {h.lines}." if h.weak else ""


def _two_writers(h: Hazard) -> str:
    if h.kind != "write_after_write" or h.first.atomic or h.second.atomic:
        return ""
    if h.a.line == h.b.line and not h.in_loop:
        return "Let one thread write each element: here two have the same index."
    return f"Let one thread write each element; or, if they are to write in turn: {_lower(_barrier(h))}"


def _mixed(h: Hazard) -> str:
    if h.first.atomic == h.second.atomic:
        return ""
    return f"An atomic operation keeps out other atomic ones only. {_barrier(h)}"


def _barrier(h: Hazard) -> str:
    """Where the barrier goes, and which it is."""
    source, a, b = h.source, h.a.line, h.b.line
    loop = source.loop(a, b) if source else None
    next_turn = h.in_loop and (b < a or (a == b and h.kind != "write_after_read")) and (loop is not None or source is None)
    inside = [s for s in (source.branches(a, b) if source else []) if not next_turn or loop is None or s.lineno > loop.lineno]
    by_warp = h.one_warp and (not h.has_barriers or (bool(inside) and all(_of_whole_warps(h, s.test) for s in inside)))
    alone = math.prod(h.launch.block) <= WARP
    barrier = "cuda.syncwarp()" if by_warp and (not alone or inside) else "cuda.syncthreads()"
    step = "The lanes of a warp are not in lock step: " if by_warp else ""
    inside = [] if barrier == "cuda.syncwarp()" and by_warp and all(_of_whole_warps(h, s.test) for s in inside) else inside
    if next_turn:
        does = {"read_after_write": "reads what this one writes", "write_after_read": "overwrites what this one may still have to read"}
        what = f"The next turn of the loop {does.get(h.kind, 'writes again')}: "
        return f"{what}put {barrier} at the end of the loop's body{_out_of(inside[:1])}."
    if a == b:
        after = f"Read into a variable first, put {barrier} after that{_out_of(inside[:1])}, and then write; or write to another array than the one that is read."
        return step + (_lower(after) if step else after)
    if inside:
        return f"End the `if` of line {inside[-1].lineno} before line {b}, put {barrier} there, and begin it anew: every thread of the block must reach the barrier."
    only = [s for n in (a, b) for s in (source.branches(n) if source else []) if s not in source.branches(a, b)]  # type: ignore[union-attr]
    put = f"ut {barrier} between {h.lines}{_out_of(only[:1])}."
    return f"{step}p{put}" if step else f"P{put}"


def _out_of(branches: list[ast.If]) -> str:
    return f", outside of the `if` at line {branches[0].lineno}" if branches else ""


def _of_whole_warps(h: Hazard, test: ast.expr) -> bool:
    """Whether all lanes of the second thread's warp find the same value of a test."""
    start, at = h.second.thread // WARP * WARP, h.launch
    found = set()
    for thread in range(start, min(start + WARP, math.prod(at.block))):
        known = coordinates(at.grid, at.block, at.block_at(h.second.block), at.thread_at(thread))
        try:
            found.add(bool(h.source.value(test, known)) if h.source else None)
        except Unknown:
            return False
    return len(found) == 1


_RULES: tuple[Callable[[Hazard], str], ...] = (
    _look_before_a_swap, _index_forgets_the_block, _index_forgets_an_axis, _lost_update, _same_value, _one_should_write, _fence_of_the_last_block, _blocks,
    _weak, _two_writers, _mixed, _barrier,
)  # fmt: skip


# ---- barriers that some pass by, elements that nobody has written ---------------------------------------------------------------------


def of_barrier(file: str, line: int) -> str:
    """A barrier at a line that some threads pass by."""
    every, source = "every thread of the block must reach the barrier, or a GPU may hang", source_at(file, line)
    branches, loop = (source.branches(line), source.loop(line)) if source else ([], None)
    if loop is not None and source is not None and not (branches and branches[-1].lineno > loop.lineno):
        ways = [loop.iter if isinstance(loop, ast.For) else loop.test]  # type: ignore[attr-defined]
        if any(source.of_threads(way) for way in ways):
            return f"Give the loop at line {loop.lineno} the same number of turns in every thread, and guard what is in it: {every}."
        left = [n.lineno for n in ast.walk(loop) if isinstance(n, ast.Break | ast.Continue)]
        if left:
            return f"Let no thread leave the loop's body at line {left[0]} before the barrier; guard the work instead: {every}."
    if branches:
        return f"Move the barrier out of the `if` at line {branches[-1].lineno}: {every}."
    return f"Move the barrier to where all threads come, out of branches and of loops whose number of turns differs: {every}."


def of_unwritten(space: str, array: str, site: Site) -> str:
    """An element that is read and that nobody has written."""
    if space != "shared":
        return "cuda.device_array() leaves the memory as it was: copy data to it, or let a kernel fill it first."
    source = source_at(site.file, site.line)
    stores = [s for s in source.stores(array) if s.lineno != site.line] if source else []
    for store in stores if source else ():
        guards = [g for g in source.guards(store.lineno) if source.of_threads(g.test)]  # type: ignore[union-attr]
        if guards and guards[-1].passes:
            test = ast.unparse(guards[-1].test)
            return f"Line {store.lineno} writes {array} only `if {test}`: write a value otherwise too, such as 0, or read only what was written."
        if guards:
            return f"Threads that leave at line {guards[-1].line} do not come to line {store.lineno}, so their elements stay unwritten: let them write 0 first."
    if source and not stores:
        return f"Nothing sets {array} before it is used: write a value, such as 0, to each element first, and then put cuda.syncthreads()."
    return "Shared memory begins with whatever was there before: write all elements that are read, the edges too."


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
