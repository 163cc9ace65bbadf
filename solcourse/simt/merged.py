"""Neighbouring shared-memory accesses that NVVM makes one instruction of: LDS.64, LDS.128, STS.64, STS.128. The definition of Merged.

Accesses of one basic block to consecutive places behind one pointer, the first of them known to be aligned to the whole, become one
request of 8 or 16 bytes per lane. The engine still moves the values one by one; one access, at the lowest address, is counted for all:
the first of a group of loads, the last of a group of stores, moved to where the instruction would be. numba declares shared arrays with
their elements' alignment, so that this happens where a kernel asks for it: cuda.shared.array(..., alignment=16).
Source: LLVM's load-store vectoriser for NVPTX (vectors of 2 and 4 elements, up to 128 bits).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from solcourse.simt.ir import Address, Block, Const, Function, Instr, type_size

Place = tuple[str, tuple[tuple[str, int], ...]]  # a root; variables and what they are multiplied by
MANY = 16  # zero bits beyond these do not matter
_ARITHMETIC = ("add", "sub", "or", "xor", "phi", "select", "and", "mul", "shl", "zext", "sext", "trunc", "freeze")
_TOUCH = ("atomicrmw", "cmpxchg", "fence")
_FREE_CALLS = ("llvm.nvvm.fma", "llvm.fma", "llvm.fmuladd", "llvm.s", "llvm.u", "llvm.m", "llvm.f", "simt.sreg.", "__nv_")


@dataclass(frozen=True, slots=True)
class Merged:
    """`attr` of a load or store that is part of one instruction. bytes: of the whole per lane, 0 where `lead`'s access counts for it.

    align  what the access itself is aligned to; lead: of a load, the value that arrives with this one; "" for the one that counts
    """

    align: int | None
    bytes: int
    lead: str = ""


def align_of(i: Instr) -> int | None:
    """What a load or store is known to be aligned to, None where nothing is known."""
    if i.op not in ("load", "store"):
        return None
    if isinstance(i.attr, Merged):
        return i.attr.align
    return i.attr if isinstance(i.attr, int) else None  # recursion.py marks its own loads


def is_part(i: Instr) -> bool:
    """Whether another access is counted for this one."""
    return isinstance(i.attr, Merged) and not i.attr.bytes


def merge(function: Function, is_shared: Callable[[object], bool]) -> None:
    """Marks the groups of every block, and moves the counted access of each to its place. is_shared: of a pointer."""
    places = Places(function)
    for block in function.blocks:
        for op in ("load", "store"):
            for piece in _pieces(block, op, is_shared):
                for group in _groups(piece, places):
                    _mark(block, group, places)


def _pieces(block: Block, op: str, is_shared: Callable[[object], bool]) -> list[list[Instr]]:
    """Runs of shared loads, or of shared stores, that nothing separates: what may be one instruction."""
    pieces: list[list[Instr]] = [[]]
    for i in block.instrs:
        mine = i.op == op and isinstance(i.type, str) and i.type != "i1" and is_shared(i.args[0])
        if mine:
            pieces[-1].append(i)
        elif _separates(i, op, is_shared):
            pieces.append([])
    return [p for p in pieces if len(p) > 1]


def _separates(i: Instr, op: str, is_shared: Callable[[object], bool]) -> bool:
    if i.op == "call":
        return not i.attr[0].startswith(_FREE_CALLS)
    if i.op in ("load", "store"):
        return is_shared(i.args[0]) and (i.op == "store" or op == "store")
    return i.op in _TOUCH


class Places:
    """Addresses as sums: a root, variables times constants, and a constant; and what their alignment is known to be."""

    def __init__(self, function: Function):
        self.made = {i.dest: i for b in function.blocks for i in b.instrs if i.dest}
        self.globals = function.globals
        self._zeros: dict[str, int] = {}
        self._steps: dict[str, int] = {}  # a choice between two constants, as a variable: how far apart they are
        self._sums: dict[tuple[object, int, bool], tuple[dict[str, int], int]] = {}

    def of(self, pointer: object) -> tuple[Place, int]:
        """(what the address depends on, bytes behind it)."""
        terms: dict[str, int] = {}
        offset = 0
        while isinstance(pointer, str) and (i := self.made.get(pointer)) and i.op in ("getelementptr", "addrspacecast", "bitcast"):
            if i.op == "getelementptr":
                offset += i.attr[0]
                for index, (t, scale) in zip(i.args[1:], i.attr[1], strict=True):
                    more, constant = self._sum(index, scale, t == "i64")
                    _add(terms, more)
                    offset += constant
            pointer = i.args[0]
        if isinstance(pointer, Address):
            offset, pointer = offset + pointer.offset, pointer.name
        return (str(pointer), tuple(sorted((v, k) for v, k in terms.items() if k))), offset

    def _sum(self, x: object, scale: int, whole: bool) -> tuple[dict[str, int], int]:
        """scale times x: terms, and a constant. whole: 64 bits, so that nothing wraps before it is scaled."""
        if isinstance(x, Const):
            return {}, scale * int(x.value or 0)
        if (x, scale, whole) not in self._sums:
            i = self.made.get(x) if whole and isinstance(x, str) else None
            parts = self._parts(i, scale) if i is not None and i.type == "i64" else None
            self._sums[x, scale, whole] = ({str(x): scale}, 0) if parts is None else parts
        return self._sums[x, scale, whole]

    def _parts(self, i: Instr, scale: int) -> tuple[dict[str, int], int] | None:
        """scale times the result of i, if it is a sum."""
        a, b = (*i.args, None, None)[:2]
        number = int(b.value or 0) if isinstance(b, Const) else None
        if i.op == "add" or (i.op == "or" and number is not None and number >> self.zeros(a) == 0):
            return _together(self._sum(a, scale, True), self._sum(b, scale, True))
        if i.op == "sub":
            return _together(self._sum(a, scale, True), self._sum(b, -scale, True))
        if i.op == "shl" and number is not None:
            return self._sum(a, scale << number, True)
        if i.op == "mul" and number is not None:
            return self._sum(a, scale * number, True)
        if i.op == "select":  # numba's index that may be negative: x, or x plus the array's length
            (terms, yes), (others, no) = (self._sum(arm, scale, True) for arm in i.args[1:])
            if terms == others:
                step = f"{i.args[0]} ? {yes - no} : 0"
                self._steps[step] = yes - no
                return _together((terms, no), ({step: 1}, 0))
        return None

    def zeros(self, x: object) -> int:
        """How many of the lowest bits of a number are known to be zero, at most MANY."""
        if x in self._steps:
            return self.zeros(Const("i64", self._steps[str(x)]))
        if isinstance(x, Const):
            value = int(x.value or 0)
            return min(MANY, (value & -value).bit_length() - 1) if value else MANY
        if not self._zeros:  # all at once, because of values that come around loops: assume the best, and lower what does not hold
            whole = [i for i in self.made.values() if isinstance(i.type, str) and i.type.startswith("i") and i.op in _ARITHMETIC]
            self._zeros = {i.dest: MANY for i in whole} | {"": 0}
            lowered = True
            while lowered:
                before = dict(self._zeros)
                self._zeros |= {i.dest: self._zeros_of(i) for i in whole}
                lowered = before != self._zeros
        return self._zeros.get(x, 0) if isinstance(x, str) else 0

    def _zeros_of(self, i: Instr) -> int:
        if i.op in ("add", "sub", "or", "xor", "phi"):
            return min(map(self.zeros, i.args))
        if i.op == "select":
            return min(map(self.zeros, i.args[1:]))
        if i.op == "and":
            return max(map(self.zeros, i.args))
        if i.op == "mul":
            return min(MANY, sum(map(self.zeros, i.args)))
        if i.op == "shl" and isinstance(i.args[1], Const):
            return min(MANY, self.zeros(i.args[0]) + int(i.args[1].value or 0))
        return self.zeros(i.args[0]) if i.op in ("zext", "sext", "trunc", "freeze") else 0

    def alignment(self, place: Place, offset: int) -> int:
        """Bytes, a power of two."""
        root, terms = place
        base = self.globals[root].align if root in self.globals else 1
        low = min((self.zeros(v) + (k & -k).bit_length() - 1 for v, k in terms), default=MANY)
        return min(base & -base, 1 << low, offset & -offset or 1 << MANY)


def _add(terms: dict[str, int], more: dict[str, int]) -> None:
    for name, k in more.items():
        terms[name] = terms.get(name, 0) + k


def _together(a: tuple[dict[str, int], int], b: tuple[dict[str, int], int]) -> tuple[dict[str, int], int]:
    terms = dict(a[0])
    _add(terms, b[0])
    return {name: k for name, k in terms.items() if k}, a[1] + b[1]


def _groups(piece: list[Instr], places: Places) -> list[list[Instr]]:
    """Groups of 2 or 4 accesses, ascending by address."""
    families: dict[tuple[Place, int], dict[int, Instr]] = {}
    for i in piece:
        place, offset = places.of(i.args[0])
        families.setdefault((place, type_size(i.type)), {}).setdefault(offset, i)
    found = []
    for (place, size), at in families.items():
        taken: set[int] = set()
        for wide in (16, 8, 4, 2):
            for offset in sorted(at):
                group = [offset + k for k in range(0, wide, size)]
                if 2 <= len(group) <= 4 and all(o in at and o not in taken for o in group) and places.alignment(place, offset) >= wide:
                    taken.update(group)
                    found.append([at[o] for o in group])
    return found


def _mark(block: Block, group: list[Instr], places: Places) -> None:
    lead, *others = group
    size = sum(type_size(i.type) for i in group)
    made = {id(lead): replace(lead, attr=Merged(align_of(lead), size))}
    made |= {id(i): replace(i, attr=Merged(align_of(i), 0, lead.dest or "")) for i in others}
    order = [k for k, i in enumerate(block.instrs) if id(i) in made]
    place = order[0] if lead.op == "load" else order[-1]
    instrs = [made.get(id(i), i) for i in block.instrs]
    own = instrs.index(made[id(lead)])
    instrs.insert(place, instrs.pop(own))
    if lead.op == "load" and own > place:  # what its address is made of must come before it
        behind = {i.dest: k for k, i in enumerate(instrs[place + 1 :], place + 1) if i.dest}
        needed: set[int] = set()
        todo = [a for a in lead.args if a in behind]
        while todo:
            k = behind[todo.pop()]
            needed.add(k)
            todo += [a for a in instrs[k].args if isinstance(a, str) and a in behind and behind[a] not in needed]
        early = [instrs[k] for k in sorted(needed)]
        late = [i for k, i in enumerate(instrs[place:], place) if k not in needed]
        instrs = [*instrs[:place], *early, *late]
    block.instrs = instrs
