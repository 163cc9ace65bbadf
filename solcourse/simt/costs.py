"""How many machine instructions an IR operation becomes, on which pipe, and its FLOPs: one table, an estimate by design.

The optimised IR is not SASS. Rows follow what NVPTX code generation does with 64-bit integers (two 32-bit halves), addresses
(folded into IMAD.WIDE or LEA) and library calls. Everything marked (guess) is a guess; FLOPs of add, mul and fma are exact.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from solcourse.simt.ir import Const, Function, Instr


@dataclass(frozen=True, slots=True)
class Cost:
    """issue slots, pipe and latency class (records.Op), FLOPs per lane, whether those come from a table, integer operations; others: the
    part of the slots that is on other pipes than `pipe`."""

    issue: int
    pipe: str
    latency: str
    flops: int = 0
    table: bool = False
    ints: int = 0
    others: tuple[tuple[str, int], ...] = ()

    @property
    def by_pipe(self) -> tuple[tuple[str, int], ...]:
        """(pipe, slots) of each."""
        return ((self.pipe, self.issue - sum(n for _, n in self.others)), *self.others)


FREE = Cost(0, "none", "none")
_ALU, _ALU2 = Cost(1, "alu", "alu", ints=1), Cost(2, "alu", "alu", ints=1)
_SEL, _SEL2 = Cost(1, "alu", "alu"), Cost(2, "alu", "alu")


def _float(t: object, issue: int, flops: int) -> Cost:
    if t == "double":
        return Cost(issue, "fp64", "fp64", flops)
    return Cost(issue, "fma", "alu", flops)


def _double_root(issue: int, flops: int) -> Cost:
    """Division and roots of doubles: a MUFU for the first bits, then a chain of fp64 operations. Slots on fp64 from ilp-tlp-v100, whose
    DDIV takes the time of 6.5 DFMAs at 32 warps and DSQRT that of 8.6."""
    return Cost(issue, "fp64", "fp64", flops, True, others=(("xu", 1), ("alu", 1)))


_INT64 = {"add": 2, "sub": 2, "and": 2, "or": 2, "xor": 2, "shl": 2, "lshr": 2, "ashr": 1, "mul": 4,
          "sdiv": 70, "udiv": 70, "srem": 70, "urem": 70}  # fmt: skip  # (guess), from a trial against SASS
# 32-bit division and remainder: one chain through the reciprocal of a float, read in SASS (sm_75 to sm_90)
_DIVIDE32 = Cost(18, "alu", "xu", ints=1, others=(("fma", 7), ("xu", 3)))

# by a constant: a multiplication by its reciprocal, or shifts where it is a power of two. (32 bits, 64 bits), counted in the SASS of
# x // 12 and x // 32 for all four integer types (sm_80), without what numba adds for rounding down
_BY_CONSTANT = {"udiv": (2, 9), "urem": (3, 12), "sdiv": (3, 11), "srem": (5, 14)}
_BY_POWER = {"udiv": (1, 2), "urem": (1, 2), "sdiv": (3, 5), "srem": (4, 7)}

# library calls: (issue slots float, issue slots double, FLOPs counted); (guess), but for sin, cos, tan, log and exp of doubles:
# fp64 instructions counted in the PTX that NVVM makes, and a few others
_LIBRARY = {
    "exp": (6, 18, 8), "exp2": (3, 16, 8), "exp10": (7, 20, 8), "expm1": (12, 24, 10), "log": (10, 34, 10), "log2": (10, 34, 10),
    "log10": (11, 36, 10), "log1p": (12, 38, 10), "sin": (16, 22, 12), "cos": (16, 22, 12), "tan": (24, 42, 16), "sinh": (18, 40, 14),
    "cosh": (18, 40, 14), "tanh": (14, 40, 12), "asin": (16, 40, 12), "acos": (16, 40, 12), "atan": (16, 36, 12), "atan2": (24, 60, 16),
    "asinh": (24, 50, 16), "acosh": (24, 50, 16), "atanh": (24, 50, 16), "pow": (30, 90, 20), "cbrt": (14, 30, 10), "erf": (20, 50, 16),
    "erfc": (28, 60, 20), "tgamma": (40, 90, 30), "lgamma": (40, 90, 30), "fmod": (20, 40, 10), "hypot": (12, 30, 8), "remainder": (20, 40, 10),
    "erfinv": (30, 70, 20), "erfcinv": (30, 70, 20), "erfcx": (28, 60, 20), "normcdf": (30, 64, 20), "normcdfinv": (30, 70, 20),
    "sinpi": (12, 22, 12), "cospi": (12, 22, 12), **dict.fromkeys(("j0", "j1", "y0", "y1"), (40, 80, 30)), "jn": (80, 160, 60), "yn": (80, 160, 60),
}  # fmt: skip
# of these slots, how many single-precision calls have on the XU: read in SASS, or recalled (guess)
_MUFU = {"exp": 1, "exp2": 1, "exp10": 1, "expm1": 1, "tanh": 2, "sinh": 2, "cosh": 2, "pow": 2, "hypot": 1, "cbrt": 2, "erf": 1, "erfc": 2,
         "sqrt": 1, "rsqrt": 1, "div": 1, "rcp": 1}  # fmt: skip
_FAST = {"exp": (3, 1), "exp10": (3, 1), "log": (3, 1), "log2": (2, 1), "log10": (3, 1), "sin": (2, 1), "cos": (2, 1), "tan": (4, 3),
         "pow": (5, 2)}  # fmt: skip  # __nv_fast_*: slots, of them on the XU
_ROOT = {"sqrt": (6, 11, 1), "rsqrt": (4, 10, 1), "div": (9, 9, 1), "rcp": (8, 8, 1)}
_ONE = {"fabs", "floor", "ceil", "trunc", "rint", "nearbyint", "copysign", "minnum", "maxnum", "fmin", "fmax", "round", "roundeven"}


_ROUNDED = re.compile(r"__nv_[df]?(add|sub|mul|ma|div|rcp|sqrt)f?_r[nzud]$")
_ROUNDED_FLOPS = {"add": 1, "sub": 1, "mul": 1, "ma": 2}


def library_name(callee: str) -> str:
    """The bare function: __nv_expf, __nv_fast_expf, llvm.exp.f32 -> exp."""
    if callee.startswith("llvm."):
        return callee[5:].rsplit(".", 1)[0]
    name = callee.removeprefix("__nv_").removeprefix("fast_")
    return name[:-1] if name.endswith("f") and name[:-1] in (_LIBRARY | _ROOT | dict.fromkeys(_ONE | {"fma"})) else name


def _is_low(x: object, known: Collection[str]) -> bool:
    """Whether the upper half of a 64-bit operand is zero: one of the values known to be so, or a small constant."""
    return x in known or (isinstance(x, Const) and x.value is not None and 0 <= int(x.value) < 1 << 32)


def narrow(function: Function) -> set[str]:
    """The 64-bit values whose upper half is known to be zero: ptxas computes with the lower one alone."""
    values = [i for b in function.blocks for i in b.instrs if i.type == "i64" and i.dest]
    known = {i.dest for i in values if i.op in ("zext", "and", "or", "xor", "phi", "select", "lshr", "urem", "udiv")}

    def low(x: object) -> bool:
        return _is_low(x, known)

    def holds(i: Instr) -> bool:
        if i.op == "zext":
            return i.attr in ("i1", "i8", "i16", "i32")
        if i.op in ("and", "urem"):
            return any(map(low, i.args))
        if i.op == "select":
            return all(map(low, i.args[1:]))
        return low(i.args[0]) if i.op in ("lshr", "udiv") else all(map(low, i.args))

    before = -1
    while before != len(known):  # around loops: assume that it holds, until something says that it does not
        before = len(known)
        known -= {i.dest for i in values if i.dest in known and not holds(i)}
    return known


def _divide(i: Instr, wide: bool, low: Collection[str]) -> Cost:
    """Integer division and remainder."""
    by = i.args[1]
    if isinstance(by, Const) and by.value is not None and int(by.value) > 0:
        slots = (_BY_POWER if int(by.value).bit_count() == 1 else _BY_CONSTANT)[i.op][wide and not all(_is_low(a, low) for a in i.args)]
        return Cost(slots, "alu", "alu", ints=1, others=(("fma", slots // 2),))
    if not wide or (i.op in ("udiv", "urem") and all(_is_low(a, low) for a in i.args)):
        return _DIVIDE32
    return Cost(_INT64[i.op], "alu", "alu", ints=1)


def cost_of(i: Instr, space: str | None = None, low: Collection[str] = ()) -> Cost:
    """The row of one instruction. `space` is given for memory instructions; low: values whose upper 32 bits are zero."""
    op, t = i.op, i.type
    wide = t in ("i64", "ptr")
    if op in ("sdiv", "udiv", "srem", "urem"):
        return _divide(i, wide, low)
    if op in ("and", "or", "xor", "select", "icmp", "lshr") and (wide or op == "icmp"):
        args = i.args[1:] if op == "select" else i.args
        if all(_is_low(a, low) for a in args):
            return _SEL if op == "select" else _ALU
    if op in ("load", "store"):
        if space == "constant":
            return Cost(1, "alu", "alu")
        return Cost(1, "lsu", "shared" if space == "shared" else space or "global")
    if op in ("atomicrmw", "cmpxchg"):
        return Cost(1, "lsu", "shared" if space == "shared" else "atomic", 1 if i.attr[0] == "fadd" else 0)
    if op in ("fadd", "fsub", "fmul"):
        return _float(t, 1, 1)
    if op == "fma":
        return _float(t, 1, 2)
    if op == "fneg":
        return FREE if i.attr == "free" else _float(t, 1, 0)
    if op == "fdiv":
        return _double_root(_ROOT["div"][1], 1) if t == "double" else Cost(9, "fma", "xu", 1, others=(("xu", 1),))
    if op == "frem":
        return Cost(40, "fp64", "fp64", 1, True) if t == "double" else Cost(20, "fma", "alu", 1, True)
    if op in _INT64:
        if op == "mul":
            return Cost(4 if wide else 1, "fma", "alu", ints=1)
        return Cost(_INT64[op] if wide else 1, "alu", "alu", ints=1)
    if op in ("icmp", "fcmp"):
        if i.attr[1] == "double":
            return Cost(1, "fp64", "fp64")
        return _ALU2 if i.attr[1] in ("i64", "ptr") else _ALU if op == "icmp" else _SEL
    if op == "select":
        return FREE if t == "i1" else _SEL2 if wide or t == "double" else _SEL
    if op == "getelementptr":
        if not i.args[1:]:
            return FREE  # an immediate offset of the access
        return Cost(len(i.args[1:]), "fma", "alu", ints=1)  # IMAD.WIDE: base + index x size in one instruction
    if op in ("sext", "zext"):
        return Cost(1, "alu", "alu") if wide and op == "sext" else FREE
    if op in ("sitofp", "uitofp", "fptosi", "fptoui", "fpext", "fptrunc"):
        return Cost(1, "xu", "xu")
    if op == "br":
        return Cost(1, "cbu", "alu")
    if op == "ret":
        return Cost(1, "cbu", "none")
    if op == "barrier":
        return Cost(1, "adu", "barrier")
    if op == "call":
        return _call(i)
    return FREE


def _call(i: Instr) -> Cost:
    name = i.attr[0]
    if name.startswith("simt.sreg."):
        return Cost(0 if name.endswith(("ntid.x", "ntid.y", "ntid.z")) else 1, "alu", "alu")
    if "shfl" in name:
        return Cost(1, "lsu", "shared")
    if name.startswith(("llvm.nvvm.vote", "asm activemask", "llvm.nvvm.match")):
        return Cost(1, "alu", "alu")
    if name.startswith("llvm.nvvm.bar.warp.sync"):
        return Cost(1, "cbu", "alu")
    if name.startswith("llvm.nvvm.fma"):
        return _float(i.type, 1, 2)
    rounded = _ROUNDED.match(name)
    if rounded and rounded[1] in _ROUNDED_FLOPS:  # as the operator that rounds to nearest
        return _float(i.type, 1, _ROUNDED_FLOPS[rounded[1]])
    bare = rounded[1] if rounded else library_name(name)
    double = i.type == "double"
    if bare in ("fma", "fmuladd"):
        return _float(i.type, 1, 2)
    if bare in _LIBRARY or bare in _ROOT or "sqrt" in name:
        single, wide, flops = _LIBRARY.get(bare) or _ROOT.get(bare, _ROOT["sqrt"])
        mufu = _MUFU.get(bare, 1 if "sqrt" in name else 0)
        if name.startswith("__nv_fast_") and bare in _FAST:
            single, mufu = _FAST[bare]
        if double and bare not in _LIBRARY:
            return _double_root(wide, flops)
        if double:
            return Cost(wide, "fp64", "fp64", flops, True)
        return Cost(single, "fma", "xu", flops, True, others=(("xu", mufu),) if mufu else ())
    if bare in _ONE:
        return _float(i.type, 1, 0)
    if bare.startswith(("popc", "ctpop", "clz", "ctlz", "ffs", "cttz", "brev", "bitreverse")):
        return Cost(1, "xu", "xu", ints=1)
    if bare.split(".")[0] in ("smax", "smin", "umax", "umin", "abs", "min", "max", "fshl", "fshr"):
        return _ALU2 if i.type == "i64" else _ALU
    return FREE if name.startswith("llvm.") else Cost(8, "alu", "alu")


def flop_type(i: Instr) -> str | None:
    """ "fp16", "fp32" or "fp64" for the operation's FLOPs."""
    t = i.attr[1] if i.op == "atomicrmw" else i.type
    return {"half": "fp16", "float": "fp32", "double": "fp64"}.get(t) if isinstance(t, str) else None
