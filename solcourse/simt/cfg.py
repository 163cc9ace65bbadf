"""Control flow of the kernel: execution order, loops, which values are uniform, who may be waiting where, what is live.

The order is what makes lanes reconverge: the machine always runs the lowest-numbered block that has waiting lanes (SIMD
re-convergence at thread frontiers), loops are contiguous and end in their only latch, so in a reducible graph a block runs
once per iteration of its loops, for all lanes that pass it in that iteration. That law (`lockstep`) is what lets a value
that is the same in all lanes live in one scalar, and lets other values be written without a mask.
"""

from __future__ import annotations

import heapq
from collections.abc import Container
from dataclasses import dataclass, field

from solcourse.simt.graph import dominators, execution_order
from solcourse.simt.ir import Const, Function, Instr

BARRIER = "barrier"  # pseudo terminator: lanes park here, attr = the call's Instr


@dataclass(slots=True)
class Node:
    """A basic block, after splitting at barriers. term is br, ret, unreachable or BARRIER."""

    name: str
    phis: list[Instr]
    body: list[Instr]
    term: Instr
    succs: list[int] = field(default_factory=list)
    preds: list[int] = field(default_factory=list)
    loops: tuple[int, ...] = ()  # headers of the loops around it, outermost first
    last: bool = False  # a meeting, which runs when no lane waits anywhere but at meetings


@dataclass(slots=True)
class Cfg:
    """nodes in execution order; divergent: SSA names that differ between lanes; waiting[b]: blocks that may hold lanes while b runs."""

    nodes: list[Node]
    lockstep: bool
    divergent: set[str]
    divergent_branches: set[int]
    waiting: list[set[int]]
    live_in: list[set[str]]
    cross: set[str]  # SSA names that are read in another block than the one that defines them (phis included)
    defs: dict[str, Instr]
    spins: dict[int, list[Instr]]  # latch of each loop that may wait for another lane, warp or block -> what it looks at
    leaders: list[int]  # per block, the first block that runs exactly when it does, with the same lanes


def is_barrier(i: Instr) -> bool:
    return i.op == "call" and (i.attr[0].startswith("llvm.nvvm.barrier") or is_grid_sync(i))


def is_grid_sync(i: Instr) -> bool:
    """The barrier of the whole grid: this_grid().sync()."""
    return i.op == "call" and i.attr[0] == "cudaCGSynchronize"


def is_meeting(i: Instr) -> bool:
    """An operation of a warp for which the lanes of its mask, the first argument, wait for each other."""
    return i.op == "call" and i.attr[0].startswith(("llvm.nvvm.bar.warp.sync", "llvm.nvvm.shfl.sync", "llvm.nvvm.vote", "llvm.nvvm.match"))


def build(function: Function, sources) -> Cfg:
    """The analysed graph. `sources(instr)`: True when the result differs between lanes by itself, None when it never does
    (a vote), False when it differs only if an operand does."""
    nodes, lockstep = _ordered(_split(function))
    lockstep &= not _redefined(nodes)  # recursion: activations of different depth share the slots
    dom = _post_dominators(nodes)
    divergent, branches = _divergence(nodes, sources, dom, lockstep)
    waiting = _waiting(nodes, branches, ())
    if _meets_apart(nodes, waiting):
        nodes, lockstep = _ordered(_split(function, "each"), meetings_last=True)[0], False
    elif _spins(nodes) and any(is_meeting(i) for n in nodes for i in n.body):
        nodes, lockstep = _ordered(_split(function, "first"))[0], False
    spins, dom = _spins(nodes), _post_dominators(nodes)
    defs = {i.dest: i for n in nodes for i in (*n.phis, *n.body) if i.dest}
    if lockstep and (spins or not _barriers_keep_lockstep(nodes, waiting)):
        lockstep = False
    if not lockstep:
        divergent, branches = _divergence(nodes, sources, dom, False)
        posts = tuple(n.succs[0] for n in nodes if n.term.op == BARRIER)
        waiting = _waiting(nodes, branches, posts, spins)
    cross = _cross(nodes, defs)
    leaders = _leaders(nodes, dom) if lockstep else list(range(len(nodes)))
    return Cfg(nodes, lockstep, divergent, branches, waiting, _live(nodes, cross), cross, defs, spins, leaders)


def _split(function: Function, meetings: str = "") -> list[Node]:
    """Blocks that end at barriers. meetings: "first": one begins with a meeting where its lanes may not have met before, so a block
    runs on from there as a whole; "each": every meeting is a block of its own."""
    raw: list[tuple[str, list[Instr]]] = []
    last_part: dict[str, str] = {}
    for block in function.blocks:
        name, part, run = block.name, 0, []
        met: set[object] = set()  # masks
        for i in block.instrs:
            if is_barrier(i):
                run.append(Instr(BARRIER, None, "void", (), i.line, i.file, i))
                raw.append((name, run))
                part += 1
                name, run, met = f"{block.name}.after{part}", [], set()
                continue
            apart = meetings == "each" and is_meeting(i)
            if apart or (meetings and is_meeting(i) and i.args[0] not in met):
                met.add(i.args[0])
                for instrs in ([], [i]) if apart else ([],):  # what is before it, and the meeting by itself
                    part += 1
                    after = f"{block.name}.after{part}"
                    raw.append((name, [*run, *instrs, Instr("br", None, "void", (), i.line, i.file, (after,))]))
                    name, run = after, []
            if not apart:
                run.append(i)
        raw.append((name, run))
        last_part[block.name] = name
    index = {name: k for k, (name, _) in enumerate(raw)}
    nodes = []
    for k, (name, instrs) in enumerate(raw):
        phis = [_rename_preds(i, last_part) for i in instrs if i.op == "phi"]
        term = instrs[-1]
        node = Node(name, phis, [i for i in instrs[:-1] if i.op != "phi"], term)
        if term.op == "br":
            node.succs = [index[t] for t in dict.fromkeys(term.attr)]
        elif term.op == BARRIER:
            node.succs = [k + 1]
        nodes.append(node)
    return nodes


def _rename_preds(phi: Instr, last_part: dict[str, str]) -> Instr:
    return Instr("phi", phi.dest, phi.type, phi.args, phi.line, phi.file, tuple(last_part[p] for p in phi.attr))


def _ordered(nodes: list[Node], meetings_last: bool = False) -> tuple[list[Node], bool]:
    """The nodes in execution order, numbered anew, and whether their loops keep lanes in lock step."""
    order = execution_order([n.succs for n in nodes])
    for n, loops in zip(nodes, order.loops, strict=True):
        n.loops = loops
        n.last = meetings_last and any(is_meeting(i) for i in n.body)
    return _renumber(nodes, sorted(order.blocks, key=lambda b: nodes[b].last)), order.one_latch


def _meets_apart(nodes: list[Node], waiting: list[set[int]]) -> bool:
    """Whether lanes may be at one syncwarp() while others of their warp are on the way to another, in the other branch of an `if`."""
    ahead: list[set[int]] = [{k} for k in range(len(nodes))]
    for k in reversed(range(len(nodes))):
        ahead[k] |= set().union(*(ahead[s] for s in nodes[k].succs if s > k))
    meetings = {k for k, n in enumerate(nodes) if any(is_meeting(i) and "bar.warp" in i.attr[0] for i in n.body)}
    return any(ahead[w] & meetings - ahead[m] for m in meetings for w in waiting[m])


def _renumber(nodes: list[Node], order: list[int]) -> list[Node]:
    new = {old: k for k, old in enumerate(order)}
    names = {nodes[old].name for old in order}
    result = [nodes[old] for old in order]
    for n in result:
        n.succs, n.preds = [new[s] for s in n.succs], []
        n.loops = tuple(new[h] for h in n.loops)
        n.phis = [_drop_dead(p, names) for p in n.phis]
    for k, n in enumerate(result):
        for s in n.succs:
            result[s].preds.append(k)
    return result


def _drop_dead(phi: Instr, names: set[str]) -> Instr:
    keep = [(a, p) for a, p in zip(phi.args, phi.attr, strict=True) if p in names]
    return Instr("phi", phi.dest, phi.type, tuple(a for a, _ in keep), phi.line, phi.file, tuple(p for _, p in keep))


def _post_dominators(nodes: list[Node]) -> list[int | None]:
    """Immediate post-dominators; len(nodes) is the virtual exit, None where no exit is reachable."""
    n = len(nodes)
    reverse: list[list[int]] = [[] for _ in range(n + 1)]
    for k, node in enumerate(nodes):
        for s in node.succs or [n]:
            reverse[s].append(k)
    return dominators(n + 1, n, reverse)


def _leaders(nodes: list[Node], post: list[int | None]) -> list[int]:
    """Blocks a, b with a dominating b, b post-dominating a and the same loops around run together: count only the first."""
    idom = dominators(len(nodes), 0, [n.succs for n in nodes])

    def above(table: list[int | None], a: int, b: int) -> bool:
        while table[b] is not None and table[b] != b:
            b = table[b]  # type: ignore[assignment]
            if a == b:
                return True
        return False

    leaders = list(range(len(nodes)))
    for b in range(len(nodes)):
        d = b
        while d != 0 and idom[d] is not None:
            d = idom[d]  # type: ignore[assignment]
            if nodes[d].loops == nodes[b].loops and above(post, b, d):
                leaders[b] = leaders[d]
                break
    return leaders


def _divergence(nodes: list[Node], sources, post: list[int | None], lockstep: bool) -> tuple[set[str], set[int]]:
    divergent: set[str] = set()
    branches: set[int] = set()
    name_of = {n.name: k for k, n in enumerate(nodes)}
    if not lockstep:  # only what is the same at any time, in any iteration, may stay scalar
        divergent |= {p.dest for n in nodes for p in n.phis if p.dest}
        divergent |= {i.dest for n in nodes for i in n.body if i.dest and (i.op == "load" or (i.op == "call" and not _invariant_call(i)))}
        divergent |= {n.term.attr.dest for n in nodes if n.term.op == BARRIER and n.term.attr.dest}
    joins: dict[int, set[int]] = {}
    changed = True
    while changed:
        changed = False
        for k, n in enumerate(nodes):
            for i in (*n.phis, *n.body):
                if not i.dest or i.dest in divergent:
                    continue
                own = sources(i)
                if own or (not (own is None and lockstep) and any(isinstance(a, str) and a in divergent for a in i.args)):
                    divergent.add(i.dest)
                    changed = True
            t = n.term
            if t.op == "br" and len(n.succs) == 2 and k not in branches and isinstance(t.args[0], str) and t.args[0] in divergent:
                branches.add(k)
                changed = True
                joins[k] = _joins(nodes, k)
                for j in joins[k]:
                    divergent |= {p.dest for p in nodes[j].phis if p.dest and not _same(p)}
                ipdom = post[k]
                for header in n.loops:
                    inside = ipdom is not None and ipdom < len(nodes) and header in nodes[ipdom].loops
                    if not inside:  # lanes leave this loop in different iterations
                        for m in nodes:
                            if header not in m.loops and any(header in nodes[p].loops for p in m.preds):
                                divergent |= {p.dest for p in m.phis if p.dest and any(header in nodes[name_of[q]].loops for q in p.attr)}
    return divergent, branches


def _invariant_call(i: Instr) -> bool:
    return i.attr[0].startswith(
        ("simt.sreg.ctaid", "simt.sreg.nctaid", "simt.sreg.ntid", "simt.sreg.warpsize", "asm mov.u32 $0, %dynamic_smem_size")
    )


def _same(phi: Instr) -> bool:
    return len(set(phi.args)) == 1


def _joins(nodes: list[Node], branch: int) -> set[int]:
    """Blocks that two disjoint paths from the two sides of a branch reach."""
    labels = {s: s for s in nodes[branch].succs}
    joins: set[int] = set()
    todo = list(labels)
    heapq.heapify(todo)
    while todo:
        b = heapq.heappop(todo)
        if b == branch:
            continue
        for s in nodes[b].succs:
            if s not in labels:
                labels[s] = labels[b]
                heapq.heappush(todo, s)
            elif labels[s] != labels[b] and s not in joins:
                joins.add(s)
                labels[s] = s
                heapq.heappush(todo, s)
    return joins


def transitions(nodes: list[Node], b: int, branches: set[int], waiting: set[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Per outcome of b's terminator: (blocks that receive lanes, candidates for the next block in order; the last is certain
    unless there is none). A uniform branch has one outcome per target."""
    n = nodes[b]
    if n.term.op == "br":
        if n.last:  # then the other meetings at which lanes wait, before any lane goes on
            others = sorted(w for w in waiting if w > b)
            (s,) = n.succs
            return [((s,), (*others, *sorted({w for w in waiting if w < s} | {s})))]
        outcomes = [tuple(sorted(n.succs))] if b in branches else [(s,) for s in n.succs]
        return [(o, tuple(sorted({w for w in waiting if w < o[-1]} | set(o)))) for o in outcomes]
    return [((), tuple(sorted(waiting)))]


def _spins(nodes: list[Node]) -> dict[int, list[Instr]]:
    """Latches of loops in which a branch depends on the result of an atomic operation made in the loop, or on a load next to a
    memory fence or a sleep, be it by way of memory (one thread looks, and tells its block): a lock, a flag, a queue. Lanes that wait
    there must let others run. With the operations looked at."""
    result = {}
    for k, latch in enumerate(nodes):
        for header in latch.succs:
            if header > k:
                continue
            loop = [n for n in nodes if header in n.loops]
            fenced = any(
                i.op == "fence" or (i.op == "call" and ("membar" in i.attr[0] or "sleep" in i.attr[0])) for n in loop for i in n.body
            )
            looks = [i for n in loop for i in n.body if i.op in ("atomicrmw", "cmpxchg") or (fenced and i.op == "load")]
            tainted = {i.dest for i in looks}
            size = -1
            while tainted and size != len(tainted):
                size = len(tainted)
                if any(i.op == "store" and i.args[1] in tainted for n in loop for i in n.body):
                    tainted |= {i.dest for n in loop for i in n.body if i.op == "load"}
                tainted |= {
                    i.dest for n in loop for i in (*n.phis, *n.body) if i.dest and any(a in tainted for a in i.args if isinstance(a, str))
                }
            if any(n.term.op == "br" and n.term.args and n.term.args[0] in tainted for n in loop):
                result[k] = looks
    return result


def counters(nodes: list[Node]) -> set[str]:
    """Values that loops only count with: nothing in any loop around them reads them but their own sums with constants. However
    long a loop turns, they do not change what it does."""
    found: set[str] = set()
    for n in (n for n in nodes if n.loops):
        inside = [m for m in nodes if n.loops[0] in m.loops]
        for phi in n.phis:
            chain, size = {phi.dest}, 0
            while len(chain) != size:
                size = len(chain)
                users = [i for m in inside for i in (*m.phis, *m.body, m.term) if chain & {a for a in _reads(i) if isinstance(a, str)}]
                chain |= {i.dest for i in users}
            sums = all(i.op == "phi" or (i.op in ("add", "sub") and any(isinstance(a, Const) for a in i.args)) for i in users)
            found |= chain if sums else set()
    return found


def _reads(i: Instr) -> tuple:
    return i.attr.args if i.op == BARRIER else i.args


def _waiting(nodes: list[Node], branches: set[int], resumed: tuple[int, ...], spins: Container[int] = ()) -> list[set[int]]:
    waiting: list[set[int]] = [set() for _ in nodes]
    for r in resumed:
        waiting[r] |= {x for x in resumed if x > r}
    changed = True
    while changed:
        changed = False
        for b in range(len(nodes)):
            for receive, candidates in transitions(nodes, b, branches, waiting[b]):
                pending = waiting[b] | set(receive)
                for n, c in enumerate(candidates):
                    more = pending - {*candidates[: n + 1]} - waiting[c]
                    if more:
                        waiting[c] |= more
                        changed = True
                if b in spins and receive:  # after some turns any other block may go first
                    for c in pending:
                        more = pending - {c} - waiting[c]
                        if more:
                            waiting[c] |= more
                            changed = True
    return waiting


def _barriers_keep_lockstep(nodes: list[Node], waiting: list[set[int]]) -> bool:
    """Whether lanes that are elsewhere while others park at a barrier can only run to the exit, outside its loops."""
    for b, n in enumerate(nodes):
        if n.term.op != BARRIER:
            continue
        seen, todo = set(waiting[b]), list(waiting[b])
        if any(set(nodes[w].loops) & set(n.loops) for w in todo):
            return False
        while todo:
            x = todo.pop()
            if nodes[x].term.op == BARRIER:
                return False
            for s in nodes[x].succs:
                if s not in seen:
                    seen.add(s)
                    todo.append(s)
    return True


def _redefined(nodes: list[Node]) -> set[str]:
    """Values with several definitions (recursion.py)."""
    seen: set[str] = set()
    return {i.dest for n in nodes for i in (*n.phis, *n.body) if i.dest and (i.dest in seen or seen.add(i.dest))}  # type: ignore[func-returns-value]


def _cross(nodes: list[Node], defs: dict[str, Instr]) -> set[str]:
    home = {i.dest: k for k, n in enumerate(nodes) for i in (*n.phis, *n.body) if i.dest}
    cross = {p.dest for n in nodes for p in n.phis if p.dest} | _redefined(nodes)
    name_of = {n.name: k for k, n in enumerate(nodes)}
    for k, n in enumerate(nodes):
        term_args = n.term.attr.args if n.term.op == BARRIER else n.term.args
        for i in n.body:
            cross |= {a for a in i.args if isinstance(a, str) and home.get(a, k) != k}
        cross |= {a for a in term_args if isinstance(a, str) and home.get(a, k) != k}
        if n.term.op == BARRIER and n.term.attr.dest:
            home[n.term.attr.dest] = k
        for p in n.phis:
            for a, q in zip(p.args, p.attr, strict=True):
                if isinstance(a, str) and a in home and home[a] != name_of[q]:
                    cross.add(a)
    for n in nodes:
        if n.term.op == BARRIER and n.term.attr.dest:
            cross.add(n.term.attr.dest)
    return {c for c in cross if c in defs or any(n.term.op == BARRIER and n.term.attr.dest == c for n in nodes)}


def _live(nodes: list[Node], cross: set[str]) -> list[set[str]]:
    """Cross-block values that are read at or after the start of each block before being written."""
    index = {n.name: k for k, n in enumerate(nodes)}
    use: list[set[str]] = []
    kill: list[set[str]] = []
    edge_use: list[set[str]] = [set() for _ in nodes]
    for n in nodes:
        defined: set[str] = set()
        used: set[str] = set()
        term_args = n.term.attr.args if n.term.op == BARRIER else n.term.args
        for args, dest in [*((i.args, i.dest) for i in n.body), (term_args, None)]:
            used |= {a for a in args if isinstance(a, str) and a in cross and a not in defined}
            if dest:
                defined.add(dest)
        phi = {p.dest for p in n.phis if p.dest}
        use.append(used)
        kill.append(defined)
        for p in n.phis:
            for a, q in zip(p.args, p.attr, strict=True):
                if isinstance(a, str) and a in cross:
                    edge_use[index[q]].add(a)
        use[-1] |= phi & used
    live: list[set[str]] = [set() for _ in nodes]
    changed = True
    while changed:
        changed = False
        for k in reversed(range(len(nodes))):
            n = nodes[k]
            out = set(edge_use[k])
            for s in n.succs:
                out |= live[s] - {p.dest for p in nodes[s].phis if p.dest}
            new = use[k] | (out - kill[k])
            # a phi's slot is written on the edge into its block, so it is live at the block's start if read there or later
            if not new <= live[k]:
                live[k] |= new
                changed = True
    return live
