"""Short ifs are predicated, not branched: which blocks, and whose executions their instructions are issued with.

ptxas makes no branch of an if whose sides have a few simple instructions: every warp issues them, and the lanes for which the condition
does not hold are switched off. So they cost their slots wherever the if is reached, and no branch. What they do (requests, FLOPs) is counted
where lanes do it. Read in the SASS of reductions and scans (sm_75 to sm_90).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from solcourse.simt.ir import Instr

MOST_SLOTS = 7  # disassembly: the longest side that was seen without a branch
_SIMPLE_CALLS = ("llvm.", "simt.sreg.")
_NEVER = ("llvm.nvvm.bar", "llvm.nvvm.shfl", "llvm.nvvm.vote", "llvm.nvvm.match")


def _simple(i: Instr) -> bool:
    if i.op == "call":
        return i.attr[0].startswith(_SIMPLE_CALLS) and not i.attr[0].startswith(_NEVER)
    return i.op not in ("cmpxchg", "fence")


def homes(nodes: Sequence[Any], slots: Callable[[Instr], int]) -> tuple[list[int], set[int]]:
    """(for each basic block, the one with whose executions its instructions are issued; the blocks whose branch goes): a block itself, or
    the one that ends in the if. What follows an if, and is reached in no other way, is straight code with it.

    nodes: cfg.Node in order of execution; slots: of an instruction, as the cost table has it.
    """
    home = list(range(len(nodes)))
    succs = [list(node.succs) for node in nodes]
    size = [sum(map(slots, node.body)) for node in nodes]
    plain = [all(map(_simple, node.body)) and node.term.op == "br" for node in nodes]
    gone: set[int] = set()

    def side(k: int, a: int, join: int) -> bool:
        """Whether block a is a side of the if at the end of k that meets the rest at `join`."""
        return a > k and home[a] == a and nodes[a].preds == [k] and not nodes[a].phis and plain[a] and succs[a] == [join]

    def take(k: int, blocks: Sequence[int]) -> None:
        for a in blocks:
            home[:] = [k if h == a else h for h in home]

    for k in range(len(nodes) - 1, -1, -1):  # inner ifs, and later ones, first
        if len(succs[k]) != 2 or nodes[k].term.op != "br":
            continue
        a, b = succs[k]
        if side(k, a, b):
            sides, join = [a], b
        elif side(k, b, a):
            sides, join = [b], a
        elif len(succs[a]) == 1 and side(k, a, succs[a][0]) and side(k, b, succs[a][0]):
            sides, join = [a, b], succs[a][0]
        else:
            continue
        if join <= k or any(size[s] > MOST_SLOTS for s in sides):
            continue
        gone.update((k, *sides))
        take(k, sides)
        size[k] += sum(size[s] for s in sides)
        plain[k] &= all(plain[s] for s in sides)
        succs[k] = [join]
        if set(nodes[join].preds) <= {k, *sides} and home[join] == join:
            take(k, [join])
            size[k] += size[join]
            plain[k] &= plain[join]
            succs[k] = succs[join]
    return home, gone
