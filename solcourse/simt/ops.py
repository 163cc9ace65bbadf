"""What each instruction becomes: one small function per operation, in TABLE. Calls are in calls.py.

Every function takes the emitter and the instruction and returns the text of the result value, scalar when the instruction is
uniform, a 32-lane vector otherwise. Lanes that are masked off compute too, so nothing here may trap on any input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from solcourse.errors import UnsupportedKernel
from solcourse.simt.ir import Const, Instr, leaf_range, leaves

FLOATS = ("half", "float", "double")


def unsupported(i: Instr, what: str) -> UnsupportedKernel:
    return UnsupportedKernel(
        f"{what} (line {i.line} of {i.file}) is not supported by this engine yet. Nothing ran. "
        "The kernel is valid numba.cuda: it will run on a GPU.",
        file=i.file,
        line=i.line,
    )


def bits_of(t: str) -> int:
    return {"half": 16, "float": 32, "double": 64, "ptr": 64}.get(t) or int(t[1:])


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def binary(e, i: Instr) -> str:
    a, b = e.pair(i)
    return e.op(f"{i.op} {e.type(i)} {a}, {b}")


def shift(e, i: Instr) -> str:
    """Shifts by the width or more are clamped, as PTX does (LLVM would call them poison)."""
    a, b = e.pair(i)
    t, width = e.type(i), bits_of(i.type)
    if isinstance(i.args[1], Const):
        return e.op(f"{i.op} {t} {a}, {b}") if 0 <= int(i.args[1].value or 0) < width else e.splat_const(i, 0)
    limit = e.splat_const(i, width - 1)
    fits = e.op(f"icmp ule {t} {b}, {limit}")
    amount = e.op(f"select {e.bool_type(i)} {fits}, {t} {b}, {t} {limit if i.op == 'ashr' else e.splat_const(i, 0)}")
    shifted = e.op(f"{i.op} {t} {a}, {amount}")
    return shifted if i.op == "ashr" else e.op(f"select {e.bool_type(i)} {fits}, {t} {shifted}, {t} {e.splat_const(i, 0)}")


def divide(e, i: Instr) -> str:
    """Integer division that never traps: x / 0 gives all ones (remainder x), MIN / -1 wraps. A masked-off lane divides by 1."""
    a, b = e.pair(i)
    t, bt = e.type(i), e.bool_type(i)
    one, zero, ones = e.splat_const(i, 1), e.splat_const(i, 0), e.splat_const(i, -1)
    bad = e.op(f"icmp eq {t} {b}, {zero}")
    if i.op in ("sdiv", "srem"):
        minus = e.op(f"icmp eq {t} {b}, {ones}")
        bad_or = e.op(f"or {bt} {bad}, {minus}")
    else:
        bad_or = bad
    known = isinstance(i.args[1], Const) and i.args[1].value not in (0, -1, None)
    safe = b if known else e.op(f"select {bt} {bad_or}, {t} {one}, {t} {b}")
    if not known and e.is_vector(i):
        safe = e.op(f"select {bt} {e.mask_vector()}, {t} {safe}, {t} {one}")
    q = e.op(f"{i.op} {t} {a}, {safe}")
    if known:
        return q
    if i.op in ("sdiv", "udiv"):
        if i.op == "sdiv":
            negated = e.op(f"sub {t} {zero}, {a}")
            q = e.op(f"select {bt} {minus}, {t} {negated}, {t} {q}")
        return e.op(f"select {bt} {bad}, {t} {ones}, {t} {q}")
    if i.op == "srem":
        q = e.op(f"select {bt} {minus}, {t} {zero}, {t} {q}")
    return e.op(f"select {bt} {bad}, {t} {a}, {t} {q}")


def float_remainder(e, i: Instr) -> str:
    return library(e, i, "fmod" if i.type == "double" else "fmodf", i.args)


def compare(e, i: Instr) -> str:
    predicate, t = i.attr
    vector = e.is_vector(i)
    a, b = (e.value(x, vector, t) for x in i.args)
    return e.op(f"{i.op} {predicate} {e.text_type(t, vector)} {a}, {b}")


def select(e, i: Instr) -> object:
    vector = e.is_vector(i)
    cond = i.args[0]
    wide = vector and e.varies(cond)
    if not isinstance(i.type, str):
        chosen = f"select {e.text_type('i1', wide)} {e.value(cond, wide, 'i1')}"
        pairs = zip(leaves(i.type), *(e.aggregate(x, i.type, vector) for x in i.args[1:]), strict=True)
        return tuple(e.op(f"{chosen}, {e.text_type(t, vector)} {a}, {e.text_type(t, vector)} {b}") for t, a, b in pairs)
    a, b = (e.value(x, vector, i.type) for x in i.args[1:])
    return e.op(f"select {e.text_type('i1', wide)} {e.value(cond, wide, 'i1')}, {e.type(i)} {a}, {e.type(i)} {b}")


def cast(e, i: Instr) -> str:
    source, target = e.memory_type(i.attr), e.memory_type(i.type)
    vector = e.is_vector(i)
    value = e.value(i.args[0], vector, i.attr)
    if source == target and i.op in ("ptrtoint", "inttoptr", "bitcast", "addrspacecast", "trunc", "zext"):
        return value
    op = i.op
    if op in ("ptrtoint", "inttoptr"):
        op = "trunc" if bits_of(source) > bits_of(target) else "zext"
    st, tt = e.text_type(source, vector), e.text_type(target, vector)
    if op == "fptrunc" and (source, target) == ("double", "half"):
        return double_to_half(e, value, vector)
    if op in ("fptosi", "fptoui"):  # PTX saturates; it has no conversion to 8 bits: those are the low half of 16
        narrow, target = target, "i16" if target == "i8" else target
        made_type = e.text_type(target, vector)
        name = f"llvm.{op}.sat.{e.mangle(target, vector)}.{e.mangle(source, vector)}"
        made = e.call(name, made_type, [(st, value)])
        if source == "double" or target == "i64":  # PTX: NaN gives the lowest bit pattern of the width, not 0, where one side has 64 bits
            nan = e.op(f"fcmp uno {st} {value}, {value}")
            lowest = e.constant(target, -(1 << (bits_of(target) - 1)), vector)
            made = e.op(f"select {e.text_type('i1', vector)} {nan}, {made_type} {lowest}, {made_type} {made}")
        return made if narrow == target else e.op(f"trunc {made_type} {made} to {tt}")
    return e.op(f"{op} {st} {value} to {tt}")


def negate(e, i: Instr) -> str:
    return e.op(f"fneg {e.type(i)} {e.value(i.args[0], e.is_vector(i), i.type)}")


def freeze(e, i: Instr) -> object:
    if not isinstance(i.type, str):
        return e.aggregate(i.args[0], i.type, e.is_vector(i))
    return e.value(i.args[0], e.is_vector(i), i.type)


def address(e, i: Instr) -> str:
    """getelementptr as integer arithmetic."""
    offset, variable = i.attr
    vector = e.is_vector(i)
    base = e.value(i.args[0], e.varies(i.args[0]), "ptr")
    scalar, wide = (None, base) if e.varies(i.args[0]) else (base, None)
    for operand, (t, scale) in zip(i.args[1:], variable, strict=True):
        varies = e.varies(operand)
        x = e.value(operand, varies, t)
        if t != "i64":
            x = e.op(f"{'sext' if bits_of(t) < 64 else 'trunc'} {e.text_type(t, varies)} {x} to {e.text_type('i64', varies)}")
        if scale != 1:
            x = e.op(f"mul {e.text_type('i64', varies)} {x}, {e.constant('i64', scale, varies)}")
        if varies:
            wide = x if wide is None else e.op(f"add <32 x i64> {wide}, {x}")
        else:
            scalar = x if scalar is None else e.op(f"add i64 {scalar}, {x}")
    if offset:
        scalar = str(offset) if scalar is None else e.op(f"add i64 {scalar}, {offset}")
    if not vector:
        return str(scalar)
    if scalar is None:
        return str(wide)
    return e.op(f"add <32 x i64> {wide}, {e.broadcast(scalar, 'i64')}") if wide else e.broadcast(scalar, "i64")


def extract(e, i: Instr) -> Any:
    source, path = i.attr
    start, stop = leaf_range(source, path)
    parts = e.aggregate(i.args[0], source, e.is_vector(i))[start:stop]
    return parts[0] if isinstance(i.type, str) else parts


def insert(e, i: Instr) -> object:
    vector, (member, path) = e.is_vector(i), i.attr
    start, stop = leaf_range(i.type, path)
    parts = list(e.aggregate(i.args[0], i.type, vector))
    parts[start:stop] = [e.value(i.args[1], vector, member)] if isinstance(member, str) else e.aggregate(i.args[1], member, vector)
    return tuple(parts)


def intrinsic(name: str) -> Callable:
    """An LLVM intrinsic of one type, overloaded by vector width."""

    def emit(e, i: Instr, args=None, types=None) -> str:
        args = i.args if args is None else args
        types = i.attr[1] if types is None else types
        vector = e.is_vector(i)
        operands = []
        for a, t in zip(args, types, strict=True):
            immediate = t == "i1" and isinstance(a, Const)  # the flag of ctlz, cttz, abs
            operands.append((("i1", e.constant("i1", a.value, False))) if immediate else (e.text_type(t, vector), e.value(a, vector, t)))
        return e.call(f"llvm.{name}.{e.mangle(i.type, vector)}", e.type(i), operands)

    return emit


def library(e, i: Instr, symbol: str, args, types=None) -> str:
    """A scalar function of the C library, lane by lane for the active lanes."""
    types = types or [i.type] * len(args)
    vector = e.is_vector(i)
    operands = [(t, e.value(a, vector, t)) for a, t in zip(args, types, strict=True)]
    if not vector:
        return e.call(symbol, i.type, operands)
    return e.call_lanes(symbol, i.type, operands)


def ignore(e, i: Instr) -> str:
    return ""


def double_to_half(e, x: str, vector: bool) -> str:
    """Rounded once: through float32 rounded to odd, since few CPUs, and not every C library, convert float64 to float16."""
    d, f, n, b = (e.text_type(t, vector) for t in ("double", "float", "i32", "i1"))
    near = e.op(f"fptrunc {d} {x} to {f}")
    back = e.op(f"fpext {f} {near} to {d}")
    size, size_back = (e.call(f"llvm.fabs.{e.mangle('double', vector)}", d, [(d, v)]) for v in (x, back))
    above, inexact = e.op(f"fcmp ogt {d} {size_back}, {size}"), e.op(f"fcmp one {d} {back}, {x}")
    bits = e.op(f"bitcast {f} {near} to {n}")
    down = e.op(f"sub {n} {bits}, {e.op(f'zext {b} {above} to {n}')}")
    odd = e.op(f"or {n} {down}, {e.op(f'zext {b} {inexact} to {n}')}")
    return e.op(f"fptrunc {f} {e.op(f'bitcast {n} {odd} to {f}')} to {e.text_type('half', vector)}")


def fused(e, i: Instr) -> str:
    if i.type == "half":
        vector = e.is_vector(i)
        h, d = e.text_type("half", vector), e.text_type("double", vector)
        a, b, c = (e.op(f"fpext {h} {e.value(x, vector, 'half')} to {d}") for x in i.args[:3])
        return double_to_half(e, e.op(f"fadd {d} {e.op(f'fmul {d} {a}, {b}')}, {c}"), vector)
    return intrinsic("fma")(e, i, i.args[:3], [i.type] * 3)


TABLE: dict[str, Callable] = {
    **dict.fromkeys("add sub mul and or xor fadd fsub fmul fdiv".split(), binary),
    **dict.fromkeys("shl lshr ashr".split(), shift),
    **dict.fromkeys("sdiv udiv srem urem".split(), divide),
    "frem": float_remainder, "fneg": negate, "icmp": compare, "fcmp": compare, "select": select, "freeze": freeze,
    **dict.fromkeys("sext zext trunc fptosi fptoui sitofp uitofp fpext fptrunc ptrtoint inttoptr bitcast addrspacecast".split(), cast),
    "getelementptr": address, "extractvalue": extract, "insertvalue": insert, "fma": fused, "fence": ignore,
}  # fmt: skip
