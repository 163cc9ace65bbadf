"""A random kernel as a typed tree: what the generator makes, and what the writer, the oracle and the shrinker read.

Types: b bool, i4 i8 u4 u8 integers by bytes, f4 f8 floats. `bits` (high, low) bounds a value: |value| <= 2**high, a multiple of
2**low. It keeps every kernel's result one number whatever the compiler does: signed overflow is undefined in numba, so no
integer expression may overflow int64; a multiply and an add may fuse, so every float sum and product is exact. An inexact
float has bits None and is only an operand of `quantised`. `uniform`: the same in every thread of a block.

Glossary: own (an element that one thread alone touches), slot (which of a thread's own elements), gid (global thread number),
tid (thread number in its block), nt (threads per block), total (threads of the grid).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

INTEGERS = ("i4", "i8", "u4", "u8")
FLOATS = ("f4", "f8")
NAMES = {"b": "bool", "i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "i8": "int64",
         "u4": "uint32", "u8": "uint64", "f4": "float32", "f8": "float64"}  # fmt: skip
DTYPES = {t: np.dtype(name) for t, name in NAMES.items()}
MANTISSA = {"f4": 24, "f8": 53}
# what variables and array elements of a type hold: an invariant that every assignment re-establishes
HELD = {"b": (1, 0), "i1": (7, 0), "u1": (8, 0), "i2": (15, 0), "u2": (16, 0), "i4": (31, 0), "u4": (32, 0), "i8": (40, 0),
        "u8": (64, 0), "f4": (7, -4), "f8": (7, -4)}  # fmt: skip
SAFE = 62  # bits of the largest signed intermediate


@dataclass(frozen=True)
class Expr:
    op: str
    type: str
    args: tuple[Expr, ...] = ()
    attr: Any = None
    uniform: bool = False
    bits: tuple[int, int] | None = None


@dataclass(frozen=True)
class Stmt:
    """What each op needs is in kernel_source.STATEMENTS; bodies are lists of statements."""

    op: str
    exprs: tuple[Expr, ...] = ()
    bodies: tuple[tuple[Stmt, ...], ...] = ()
    attr: Any = None


@dataclass(frozen=True)
class Variable:
    name: str
    type: str
    init: Expr


@dataclass(frozen=True)
class Array:
    """role: in, special (infinities, NaN, ...), const, local, shared, out, slot, acc, big or raw.

    size: elements (local, shared, const, acc), or slots per thread (out, raw); shape for 2-D ones. op: of an acc or slot array.
    """

    name: str
    role: str
    dtype: str
    size: int = 1
    shape: tuple[int, ...] = ()
    order: str = "C"
    layout: str = ""
    op: str = ""


@dataclass(frozen=True)
class Function:
    name: str
    parameters: tuple[tuple[str, str], ...]  # (name, type); type "array:f4" for an input array, "local:i4" for a local one
    result: str
    variables: tuple[Variable, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class Kernel:
    seed: int
    ndim: int
    arrays: tuple[Array, ...]
    scalars: tuple[tuple[str, str], ...]
    variables: tuple[Variable, ...]
    functions: tuple[Function, ...]
    body: tuple[Stmt, ...]

    def array(self, name: str) -> Array:
        return next(a for a in self.arrays if a.name == name)


@dataclass(frozen=True)
class Launch:
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    data_seed: int
    plain: bool = False  # small whole numbers in every array, for a reproducer that a person reads

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


# ---- numba's promotion rules ----------------------------------------------------------------------------------------


def is_int(t: str) -> bool:
    return t in INTEGERS


def is_float(t: str) -> bool:
    return t in FLOATS


def promoted(a: str, b: str) -> str:
    """Of + - * // % & | ^: two unsigned give uint64, other integers int64; float32 stays only with float32."""
    if is_float(a) or is_float(b):
        return "f4" if a == b == "f4" else "f8"
    return "u8" if a[0] == b[0] == "u" else "i8"


def fits(bits: tuple[int, int] | None, t: str) -> bool:
    """Whether an intermediate of these bits has one exact value in type t."""
    if bits is None:
        return False
    if is_float(t):
        return bits[0] - bits[1] <= MANTISSA[t] and bits[0] < 100
    return t[0] == "u" or t == "b" or bits[0] <= SAFE


# ---- constructors: the type, the bits and the uniformity follow from the operands ------------------------------------


def node(op: str, t: str, args: tuple[Expr, ...], bits, attr: Any = None) -> Expr:
    return Expr(op, t, args, attr, all(a.uniform for a in args), bits)


def const(t: str, value: Any) -> Expr:
    if is_float(t):
        bits = HELD[t]
    else:
        bits = (max(1, abs(int(value)).bit_length()), 0)
    return Expr("const", t, (), value, True, bits)


def leaf(op: str, t: str, attr: Any, uniform: bool, bits=None) -> Expr:
    return Expr(op, t, (), attr, uniform, bits or HELD[t])


def cast(t: str, a: Expr) -> Expr:
    if a.type == t:
        return a
    if a.bits is None:
        return node("cast", t, (a,), None)
    high, low = a.bits
    if t == "b":
        return node("cast", t, (a,), (1, 0))
    if is_float(t):
        bits = (high, low) if high - low <= MANTISSA[t] else None
    elif is_float(a.type):
        bits = (high, 0)
    elif t[0] == "u" and a.type[0] != "u" and a.type != "b":
        bits = (8 * int(t[1]), 0)
    else:
        bits = (min(high, 8 * int(t[1]) - (t[0] == "i")), 0)
    return node("cast", t, (a,), bits)


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """An arithmetic or bitwise operation; bits None (a float) or too many (an integer) when it is not exact."""
    t = promoted(a.type, b.type)
    if a.bits is None or b.bits is None:
        return node("bin", t, (a, b), None, op)
    (ha, la), (hb, lb) = a.bits, b.bits
    unsigned = t == "u8"
    if op in ("+", "-"):
        bits = (max(ha, hb) + 1, min(la, lb))
    elif op == "*":
        bits = (ha + hb, la + lb)
    elif op == "//":
        bits = (ha - (lb if is_float(t) else 0) + 1, 0)
    elif op == "%":
        bits = (hb, min(la, lb))
    else:
        masks = [x.bits[0] for x in (a, b) if op == "&" and x.op == "const" and x.attr >= 0]
        bits = (min(masks, default=max(ha, hb) + 1), 0)
    if unsigned:
        bits = (64, 0)
    return node("bin", t, (a, b), bits, op)


def shift(op: str, a: Expr, b: Expr, most: int) -> Expr:
    """a << (b & most), a >> (b & most): of the left operand's signedness, 64 bits."""
    if a.type[0] == "u":
        return node("shift", "u8", (a, b), (64, 0), (op, most))
    return node("shift", "i8", (a, b), (a.bits[0] + (most if op == "<<" else 0), 0), (op, most))


def power(a: Expr, n: int) -> Expr:
    t = a.type if is_float(a.type) else "i8"
    return node("power", t, (a,), a.bits and (a.bits[0] * n, a.bits[1] * n), n)


def unary(op: str, a: Expr) -> Expr:
    """- ~ abs: computed in the operand's type, then widened: uint64 for an unsigned operand of -, else int64; abs stays."""
    if op == "abs":
        return node("unary", a.type, (a,), a.bits, op)
    if is_float(a.type):
        return node("unary", a.type, (a,), a.bits, op)
    if op == "-" and a.type[0] == "u":
        return node("unary", "u8", (a,), (64, 0), op)
    return node("unary", "i8", (a,), (a.bits[0] + 1, 0), op)


def compare(op: str, a: Expr, b: Expr) -> Expr:
    return node("cmp", "b", (a, b), (1, 0), op)


def logical(op: str, *args: Expr) -> Expr:
    return node("logic", "b", args, (1, 0), op)


def widest(*args: Expr):
    if any(a.bits is None for a in args):
        return None
    return max(a.bits[0] for a in args), min(a.bits[1] for a in args)


def select(op: str, c: Expr, a: Expr, b: Expr) -> Expr:
    """op: ternary or selp."""
    return node(op, a.type, (c, a, b), widest(a, b))


def extreme(op: str, a: Expr, b: Expr) -> Expr:
    return node("extreme", a.type, (a, b), widest(a, b), op)


def quantised(a: Expr) -> Expr:
    """Any finite float, as a multiple of 1/16 within 100: the same for every correctly rounded input."""
    return node("quantised", a.type, (a,), HELD[a.type])


def inexact(op: str, t: str, *args: Expr) -> Expr:
    """/ sqrt *: correctly rounded, so one result, but not for use in a sum."""
    return node("inexact", t, args, None, op)


# ---- walking --------------------------------------------------------------------------------------------------------


def expressions(e: Expr) -> Iterator[Expr]:
    yield e
    for a in e.args:
        yield from expressions(a)


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for s in body:
        yield s
        for inner in s.bodies:
            yield from statements(inner)


def all_expressions(body: tuple[Stmt, ...]) -> Iterator[Expr]:
    for s in statements(body):
        for e in s.exprs:
            yield from expressions(e)


def with_body(kernel: Kernel, body: tuple[Stmt, ...]) -> Kernel:
    return replace(kernel, body=body)
