"""Directed graphs of numbered blocks: dominators, loops, and the order in which the machine runs blocks. Knows no instructions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Edges = Sequence[list[int]] | Mapping[int, list[int]]  # block -> the blocks behind it


def reverse_post_order(entry: int, succs: Edges) -> list[int]:
    """Every block that `entry` reaches, each before those behind it but for the edges back to a loop's start."""
    done, seen, stack = [], {entry}, [(entry, iter(succs[entry]))]
    while stack:
        block, behind = stack[-1]
        for s in behind:
            if s not in seen:
                seen.add(s)
                stack.append((s, iter(succs[s])))
                break
        else:
            done.append(block)
            stack.pop()
    return done[::-1]


def predecessors(blocks: Iterable[int], succs: Edges) -> dict[int, list[int]]:
    preds: dict[int, list[int]] = {b: [] for b in blocks}
    for b in preds:
        for s in succs[b]:
            preds[s].append(b)
    return preds


def dominators(count: int, entry: int, succs: Edges) -> list[int | None]:
    """Immediate dominators (Cooper, Harvey, Kennedy); None where `entry` does not lead."""
    order = reverse_post_order(entry, succs)
    rank = {b: k for k, b in enumerate(order)}
    preds = predecessors(order, succs)
    idom: list[int | None] = [None] * count
    idom[entry] = entry

    def meet(x: int, y: int) -> int:
        while x != y:
            while rank[x] > rank[y]:
                x = idom[x]  # type: ignore[assignment]
            while rank[y] > rank[x]:
                y = idom[y]  # type: ignore[assignment]
        return x

    changed = True
    while changed:
        changed = False
        for b in order[1:]:
            first, *others = (p for p in preds[b] if idom[p] is not None)
            new = first
            for p in others:
                new = meet(new, p)
            if new != idom[b]:
                idom[b], changed = new, True
    return idom


@dataclass(frozen=True, slots=True)
class Order:
    """blocks: in execution order; loops: of each block the headers of the loops around it, outermost first; one_latch: whether the
    graph is reducible, and each loop has one block that leads back to its header."""

    blocks: list[int]
    loops: list[tuple[int, ...]]
    one_latch: bool


def execution_order(succs: Sequence[list[int]]) -> Order:
    """Loops contiguous, their latches last. An irreducible graph has no loops here, and its reverse post-order."""
    order = reverse_post_order(0, succs)
    rank = {b: k for k, b in enumerate(order)}
    around: list[tuple[int, ...]] = [()] * len(succs)
    latches = _latches(succs, order, rank)
    if latches is None:
        return Order(order, around, False)
    members = _members(latches, predecessors(order, succs))
    for b in order:
        around[b] = tuple(sorted((h for h in members if b in members[h]), key=lambda h: -len(members[h])))
    blocks = _arranged(set(order), 0, 0, succs, rank, around, members)
    return Order(blocks, around, all(len(ends) == 1 for ends in latches.values()))


def _latches(succs: Sequence[list[int]], order: list[int], rank: dict[int, int]) -> dict[int, list[int]] | None:
    """Of each loop's header the blocks that lead back to it; None: the graph is irreducible."""
    idom = dominators(len(succs), 0, succs)
    latches: dict[int, list[int]] = {}
    for b in order:
        for s in (s for s in succs[b] if rank[s] <= rank[b]):
            above = b
            while rank[above] > rank[s]:
                above = idom[above]  # type: ignore[assignment]
            if above != s:
                return None
            latches.setdefault(s, []).append(b)
    return latches


def _members(latches: dict[int, list[int]], preds: dict[int, list[int]]) -> dict[int, set[int]]:
    """Of each loop's header the blocks of the loop."""
    members: dict[int, set[int]] = {}
    for header, ends in latches.items():
        body, todo = {header}, [e for e in ends if e != header]
        while todo:
            b = todo.pop()
            if b not in body:
                body.add(b)
                todo.extend(preds[b])
        members[header] = body
    return members


def _arranged(
    region: set[int],
    entry: int,
    depth: int,
    succs: Edges,
    rank: dict[int, int],
    around: list[tuple[int, ...]],
    members: dict[int, set[int]],
) -> list[int]:
    """Topological order of a region whose loops at this depth are collapsed into one item each."""

    def item(b: int) -> int:
        return around[b][depth] if len(around[b]) > depth else b

    behind: dict[int, list[int]] = {}
    for b in sorted(region, key=rank.__getitem__):
        a = item(b)
        behind.setdefault(a, [])
        for s in succs[b]:
            if s in region and s != entry and item(s) != a and item(s) not in behind[a]:
                behind[a].append(item(s))
    result = []
    for a in reverse_post_order(item(entry), behind):
        loop = len(around[a]) > depth and around[a][depth] == a
        result.extend(_arranged(members[a], a, depth + 1, succs, rank, around, members) if loop else [a])
    return result
