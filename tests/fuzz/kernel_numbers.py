"""Numbers as a GPU has them, in plain Python: wrapped integers, rounded floats, what atomics and warp operations do to them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

from kernel_tree import NAMES


def _wrapper(t: str) -> Callable[[int], int]:
    if t == "b":
        return bool
    width = 8 * int(t[1])
    mask, half = (1 << width) - 1, 1 << (width - 1)
    if t[0] == "u":
        return lambda x: x & mask
    return lambda x: x if -half <= x < half else ((x + half) & mask) - half


# integers as two's complement numbers of a type
WRAP = {t: _wrapper(t) for t in NAMES if t[0] != "f"}


def wrap(t: str, x: int) -> int:
    return WRAP[t](x)


def single(x: float) -> float:
    return ctypes.c_float(x).value


def _converter(t: str) -> Callable[[Any], Any]:
    if t == "f4":
        return lambda x: single(float(x))
    if t in ("f8", "b"):
        return float if t == "f8" else bool
    done = WRAP[t]
    return lambda x: done(int(x))


# the value of any type, converted to a type
TO = {t: _converter(t) for t in NAMES}


def to(t: str, x: Any) -> Any:
    return TO[t](x)


def floor_divide(a: int, b: int) -> int:
    return a // b if b else 0


def floor_modulo(a: int, b: int) -> int:
    return a % b if b else 0


INTEGER = {
    "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "&": int.__and__, "|": int.__or__, "^": int.__xor__,
    "//": floor_divide, "%": floor_modulo,
}  # fmt: skip
FLOAT = {"+": float.__add__, "-": float.__sub__, "*": float.__mul__, "//": lambda a, b: float(a // b), "%": lambda a, b: a % b}
COMPARE = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip


def clamped_floor(x: float) -> float:
    return float(math.floor(min(max(x, -100.0), 100.0)))


def leading_zeros(x: int, width: int) -> int:
    return width - (x & ((1 << width) - 1)).bit_length()


def reversed_bits(x: int, width: int) -> int:
    return int(format(x & ((1 << width) - 1), f"0{width}b")[::-1], 2)


def bit_operation(op: str, t: str, x: int) -> int:
    width = 8 * int(t[1])
    x &= (1 << width) - 1
    match op:
        case "popc":
            return x.bit_count()
        case "clz":
            return leading_zeros(x, width)
        case "ffs":
            return (x & -x).bit_length()
        case "brev":
            return reversed_bits(x, width)
    raise AssertionError(op)


# ---- what threads do together -----------------------------------------------------------------------------------------


def combined(op: str, a, b):
    if op in ("min", "max"):
        return min(a, b) if op == "min" else max(a, b)
    return FLOAT[op](a, b) if isinstance(a, float) else INTEGER[op](a, b)


def updated(op: str, t: str, old, operands: list):
    """What an atomic leaves behind."""
    x = operands[0]
    match op:
        case "add":
            new = old + x
        case "sub":
            new = old - x
        case "max" | "nanmax":
            new = max(old, x)
        case "min" | "nanmin":
            new = min(old, x)
        case "and_":
            new = old & x
        case "or_":
            new = old | x
        case "xor":
            new = old ^ x
        case "exch":
            new = x
        case "inc":
            new = 0 if old >= x else old + 1
        case "dec":
            new = x if old == 0 or old > x else old - 1
        case "cas":
            new = operands[1] if old == x else old
        case _:
            raise AssertionError(op)
    return to(t, new)


def warp_operation(op: str, t: str, lane: int, lanes: list[tuple]):
    """What a lane gets; lanes: the operands of all 32."""
    mine = lanes[lane]
    if op.startswith("shfl"):
        n = mine[1] & 31
        source = {"shfl_sync": n, "shfl_xor_sync": lane ^ n, "shfl_up_sync": lane - n, "shfl_down_sync": lane + n}[op]
        return lanes[source if 0 <= source < 32 else lane][0]
    values = [x[0] for x in lanes]
    bits = sum(1 << k for k, v in enumerate(values) if v)
    match op:
        case "any_sync":
            return any(values)
        case "all_sync":
            return all(values)
        case "eq_sync":
            return len({bool(v) for v in values}) == 1
        case "ballot_sync":
            return wrap("i4", bits)
        case "ballot_rank":
            return (bits & ((1 << lane) - 1)).bit_count()
        case "match_any_sync":
            return wrap("i4", sum(1 << k for k, v in enumerate(values) if v == values[lane]))
    raise AssertionError(op)
