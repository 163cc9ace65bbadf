"""The kernel as records: a Function of Blocks of Instrs, and its types. ir_text.py makes them of LLVM's printed IR.

Types are strings ("i32", "float", "ptr", "<4 x float>" is ("vector", 4, "float")); aggregates are tuples of types. Operands are
`%name` strings (SSA values), or Const / Address records. Poison-generating flags (nsw, inbounds, ...) are dropped: lanes that
are masked off may overflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "i128": 16, "half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}


@dataclass(frozen=True, slots=True)
class Const:
    """A constant: `value` is an int, a float, a tuple of leaves for an aggregate, or None for an aggregate of zeros, undef or poison."""

    type: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a global variable plus a constant number of bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction. `attr` holds what is not an operand: a predicate, callee, phi's blocks, GEP's offsets, indices."""

    op: str
    dest: Any  # str, or None where there is no result
    type: Any  # of the result, or of the stored value
    args: tuple
    line: int
    file: str
    attr: Any = None


@dataclass(slots=True)
class Block:
    name: str
    instrs: list[Instr] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Global:
    """A global variable. space: 1 global, 3 shared, 4 constant; init: the initialiser's text, '' when external."""

    name: str
    space: int
    type: Any
    init: str
    constant: bool
    align: int

    @property
    def size(self) -> int:
        return type_size(self.type)


@dataclass(slots=True)
class Function:
    name: str
    params: list[tuple[Any, str]]
    blocks: list[Block]
    globals: dict[str, Global]
    file: str
    callees: dict[str, Function] = field(default_factory=dict)  # of an entry: functions that could not be inlined


def type_size(t: Any) -> int:
    """Bytes of a type in memory, with the natural alignment of its members."""
    if isinstance(t, str):
        return SIZES.get(t) or (int(t[1:]) + 7) // 8
    if t[0] in ("array", "vector"):
        return t[1] * type_size(t[2])
    return -(-_offsets(t)[-1] // type_align(t)) * type_align(t)


def type_align(t: Any) -> int:
    if isinstance(t, str):
        return type_size(t)
    if t[0] in ("array", "vector"):
        return type_align(t[2])
    return 1 if t[0] == "packed" else max((type_align(m) for m in t[1]), default=1)


def member_offset(t: tuple, index: int) -> int:
    """Bytes before an element of an aggregate."""
    return index * type_size(t[2]) if t[0] in ("array", "vector") else _offsets(t)[index]


def _offsets(t: tuple) -> list[int]:
    """Where each member of a struct starts, and where the last one ends."""
    starts, end = [], 0
    for member in t[1]:
        align = 1 if t[0] == "packed" else type_align(member)
        starts.append(-(-end // align) * align)
        end = starts[-1] + type_size(member)
    return [*starts, end]


def members(t: tuple) -> list:
    """The types of an aggregate's elements, in order."""
    return [t[2]] * t[1] if t[0] in ("array", "vector") else list(t[1])


def leaves(t: Any) -> list[str]:
    """The scalars of a type, in order: an aggregate is handled as the flat list of them."""
    return [t] if isinstance(t, str) else [leaf for m in members(t) for leaf in leaves(m)]


def leaf_range(t: Any, path: tuple[int, ...]) -> tuple[int, int]:
    """Which leaves of t the member at `path` is: from, to (not included)."""
    start = 0
    for k in path:
        start += sum(len(leaves(m)) for m in members(t)[:k])
        t = members(t)[k]
    return start, start + len(leaves(t))


def type_text(t: Any) -> str:
    """The type as LLVM writes it (address spaces dropped)."""
    if isinstance(t, str):
        return t
    if t[0] == "array":
        return f"[{t[1]} x {type_text(t[2])}]"
    if t[0] == "vector":
        return f"<{t[1]} x {type_text(t[2])}>"
    body = ", ".join(type_text(m) for m in t[1])
    return f"<{{ {body} }}>" if t[0] == "packed" else f"{{ {body} }}"
