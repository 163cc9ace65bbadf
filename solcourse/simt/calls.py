"""What each call becomes: one row per intrinsic, piece of inline assembly and library function, in CALLS or, by the start of the name, FAMILIES.

Functions that numba declares and a GPU's libraries define with a body of their own are in half.py, libdevice.py and arrays.py; what a
row costs is in costs.py.
"""

from __future__ import annotations

from collections.abc import Callable

from solcourse.simt import local_arrays, marks, overflow, printing
from solcourse.simt.ir import Const, Instr
from solcourse.simt.ops import bits_of, fused, ignore, intrinsic, library
from solcourse.simt.pieces import LANE_IDS


def print_line(e, i: Instr) -> str:
    """vprintf(format, arguments): a record for each active lane (printing.py)."""
    nbytes = max((e.plan.local_sizes[name] for kind, name in e.roots.of(i.args[1]) if kind == "local"), default=0)
    name = f"print.{nbytes}"
    e.helpers.setdefault(name, printing.function(nbytes))
    e.declared["llvm.memcpy"] = printing.DECLARATION
    e.plan.prints = True
    form, arguments = (e.value(a, True, "ptr") for a in i.args)
    e.line(f"call void @{name}(ptr %t, <32 x i64> {form}, <32 x i64> {arguments}, i32 {e.mask()})")
    return e.constant(i.type, 0, e.is_vector(i))


def sreg(e, i: Instr) -> str:
    return e.special(i.attr[0].removeprefix("simt.sreg."), i)


def shuffle(e, i: Instr) -> object:
    """shfl.sync(mask, mode, value, b, c): where each lane reads, by the PTX definition; out of range a lane keeps its own."""
    mode = ("idx", "up", "down", "bfly")[int(i.args[1].value)]
    value = e.value(i.args[2], True, "i32")
    b, c = e.value(i.args[3], True, "i32"), e.value(i.args[4], True, "i32")
    v = "<32 x i32>"
    lane = LANE_IDS
    bval = e.op(f"and {v} {b}, {e.constant('i32', 31, True)}")
    cval = e.op(f"and {v} {c}, {e.constant('i32', 31, True)}")
    seg0 = e.op(f"lshr {v} {c}, {e.constant('i32', 8, True)}")
    seg = e.op(f"and {v} {seg0}, {e.constant('i32', 31, True)}")
    outside = e.op(f"xor {v} {seg}, {e.constant('i32', -1, True)}")
    low = e.op(f"and {v} {lane}, {seg}")
    high0 = e.op(f"and {v} {cval}, {outside}")
    high = e.op(f"or {v} {low}, {high0}")
    if mode == "idx":
        within = e.op(f"and {v} {bval}, {outside}")
        j = e.op(f"or {v} {low}, {within}")
    else:
        j = e.op(f"{ {'up': 'sub', 'down': 'add', 'bfly': 'xor'}[mode] } {v} {lane}, {bval}")
    ok = e.op(f"icmp {'sge' if mode == 'up' else 'sle'} {v} {j}, {high}")
    source = e.op(f"select <32 x i1> {ok}, {v} {j}, {v} {lane}")
    if e.checks:
        _check_meeting(e, i, strong=False, source=source)
    return (e.permute(value, "i32", source), ok)


def vote(e, i: Instr) -> object:
    """vote.sync(mask, mode, predicate): {ballot, boolean} of the active lanes, the same in each of them."""
    if e.checks:
        _check_meeting(e, i, strong=False)
    bits, mask = e.active_bits(i.args[2]), e.mask()
    mode = ("all", "any", "eq", "ballot")[int(i.args[1].value)]
    none, every = e.op(f"icmp eq i32 {bits}, 0"), e.op(f"icmp eq i32 {bits}, {mask}")
    answer = {"any": lambda: e.op(f"xor i1 {none}, true"), "all": lambda: every, "ballot": lambda: every,
              "eq": lambda: e.op(f"or i1 {none}, {every}")}[mode]()  # fmt: skip
    vector = e.is_vector(i)
    return (e.broadcast(bits, "i32"), e.broadcast(answer, "i1")) if vector else (bits, answer)


def match(e, i: Instr) -> object:
    """match.any / match.all.sync(mask, value)."""
    if e.checks:
        _check_meeting(e, i, strong=False)
    t = i.attr[1][1]
    same = e.match_any(e.value(i.args[1], True, t), t)
    if ".any." in i.attr[0]:
        return same
    ok = e.op(f"icmp eq <32 x i32> {same}, {e.broadcast(e.mask(), 'i32')}")
    return (e.op(f"select <32 x i1> {ok}, <32 x i32> {same}, <32 x i32> zeroinitializer"), ok)


def warp_barrier(e, i: Instr) -> None:
    """bar.warp.sync(mask): nothing to do for lanes in lock step; cfg.py sees to those that are not."""
    if e.checks:
        _check_meeting(e, i, strong=True)


def _check_meeting(e, i: Instr, *, strong: bool, source: str = "") -> None:
    """An operation for which the lanes of its mask, the first argument, meet. source: the lane that each reads from, by a shuffle.

    Lanes that have returned, or that the block never had, may be named, but not read from: a block of 48 threads has half a last warp."""
    e.meet(i, strong=strong)
    key = f"checked {i.line} {i.args[0]} {i.args[3:]}" if source else ""
    if key in e.env:  # the other half of a shuffle of 64 bits
        return
    e.env[key or "checked"] = ""
    v, w, here = "<32 x i32>", "<32 x i64>", e.broadcast(e.mask(), "i32")
    named = e.value(i.args[0], True, "i32")

    def wide(vector: str) -> str:
        return e.op(f"zext {v} {vector} to {w}")

    own = e.op(f"and {v} {e.op(f'lshr {v} {named}, {LANE_IDS}')}, {e.constant('i32', 1, True)}")
    e.note("lane_not_in_mask", i, _active(e, e.op(f"icmp eq {v} {own}, zeroinitializer")), wide(named), wide(here))
    reads = "0"
    if source:
        there = e.op(f"lshr {v} {e.op(f'and {v} {named}, {here}')}, {source}")
        absent = e.op(f"icmp eq {v} {e.op(f'and {v} {there}, ' + e.constant('i32', 1, True))}, zeroinitializer")
        other = e.op(f"icmp ne {v} {source}, {LANE_IDS}")
        reads = _active(e, e.op(f"and <32 x i1> {absent}, {other}"))
        e.note("inactive_lane", i, reads, wide(source), e.constant("i64", -1, True))
    elsewhere = e.elsewhere(i)
    if elsewhere != "0":
        missing = e.op(f"and {v} {named}, {e.broadcast(elsewhere, 'i32')}")
        waiting = _active(e, e.op(f"icmp ne {v} {missing}, zeroinitializer"))
        waiting = e.op(f"and i32 {waiting}, {e.op(f'xor i32 {reads}, -1')}")  # one finding is enough for a lane
        e.note("inactive_lane", i, waiting, wide(named), wide(e.op(f"xor {v} {named}, {missing}")))


def _active(e, condition: str) -> str:
    """The active lanes for which a vector of booleans is true, as an i32."""
    bits = e.op(f"bitcast <32 x i1> {e.op(f'freeze <32 x i1> {condition}')} to i32")  # lanes that are off may be poison
    return e.op(f"and i32 {bits}, {e.mask()}")


def fence(e, i: Instr) -> None:
    if e.checks:
        e.fence("cta" in i.attr[0])


def wrapped(e, i: Instr) -> None:
    """A negative index that counts from the end of its array, and is an element of it; others stray, which the access finds."""
    if e.checks:
        lanes = e.active_bits(i.args[0])
        with e.seldom(lanes):
            index, extent = (e.value(a, True, "i64") for a in i.args[1:])
            inside = e.op(f"icmp sge <32 x i64> {e.op(f'add <32 x i64> {index}, {extent}')}, zeroinitializer")
            e.note("wrapped_index", i, e.op(f"and i32 {_active(e, inside)}, {lanes}"), index, extent)


def returned(e, i: Instr) -> None:
    if e.checks:
        e.returned(i)


def unwritten(e, i: Instr) -> None:
    if e.checks:
        lanes = _active(e, e.value(i.args[0], True, "i1"))
        e.note("uninitialized_read", i, lanes, e.op(f"zext <32 x i32> {e.value(i.args[1], True, 'i32')} to <32 x i64>"))


def index_overflow(e, i: Instr) -> None:
    if e.checks:
        happened, index, meant = (e.value(a, True, t) for a, t in zip(i.args, i.attr[1], strict=True))
        e.note("index_overflow", i, _active(e, happened), index, meant)


def special_asm(e, i: Instr) -> str:
    """mov.u32 $0, %register;"""
    register = i.attr[0].split("%")[1].rstrip(";")
    return e.dynamic_shared_bytes() if register == "dynamic_smem_size" else e.special(register.replace("_", "."), i)


def _everywhere(e, i: Instr, scalar: str) -> str:
    return e.broadcast(scalar, i.type) if e.is_vector(i) else scalar


def active_mask(e, i: Instr) -> str:
    return _everywhere(e, i, e.mask())


def reverse_bits(e, i: Instr) -> str:
    return intrinsic("bitreverse")(e, i, i.args, [i.type])


def count_leading(e, i: Instr) -> str:
    source = i.attr[1][0]
    vector = e.is_vector(i)
    x = e.value(i.args[0], vector, source)
    st = e.text_type(source, vector)
    n = e.call(f"llvm.ctlz.{e.mangle(source, vector)}", st, [(st, x), ("i1", "false")])
    return e.op(f"trunc {st} {n} to {e.type(i)}") if source == "i64" else n


def population(e, i: Instr) -> str:
    source = i.attr[1][0]
    vector = e.is_vector(i)
    st = e.text_type(source, vector)
    n = e.call(f"llvm.ctpop.{e.mangle(source, vector)}", st, [(st, e.value(i.args[0], vector, source))])
    return e.op(f"trunc {st} {n} to {e.type(i)}") if source == "i64" else n


def find_first(e, i: Instr) -> str:
    """1 + the index of the lowest set bit, 0 for 0."""
    source = i.attr[1][0]
    vector = e.is_vector(i)
    st, x = e.text_type(source, vector), e.value(i.args[0], vector, source)
    n = e.call(f"llvm.cttz.{e.mangle(source, vector)}", st, [(st, x), ("i1", "false")])
    plus = e.op(f"add {st} {n}, {e.constant(source, 1, vector)}")
    none = e.op(f"icmp eq {st} {x}, {e.constant(source, 0, vector)}")
    n = e.op(f"select {e.text_type('i1', vector)} {none}, {st} {e.constant(source, 0, vector)}, {st} {plus}")
    return e.op(f"trunc {st} {n} to {e.type(i)}") if source == "i64" else n


def reciprocal_root(e, i: Instr) -> str:
    t, vector = e.type(i), e.is_vector(i)
    root = e.call(f"llvm.sqrt.{e.mangle(i.type, vector)}", t, [(t, e.value(i.args[0], vector, i.type))])
    return e.op(f"fdiv {t} {e.constant(i.type, 1.0, vector)}, {root}")


def round_to_integer(name: str) -> Callable:
    """llrint and llround: round in the float type, then convert."""

    def emit(e, i: Instr) -> str:
        source = i.attr[1][0]
        vector = e.is_vector(i)
        st, tt = e.text_type(source, vector), e.type(i)
        rounded = e.call(f"llvm.{name}.{e.mangle(source, vector)}", st, [(st, e.value(i.args[0], vector, source))])
        return e.call(f"llvm.fptosi.sat.{e.mangle(i.type, vector)}.{e.mangle(source, vector)}", tt, [(st, rounded)])

    return emit


def float_class(e, i: Instr, test: str) -> str:
    source = i.attr[1][0]
    vector = e.is_vector(i)
    st, x = e.text_type(source, vector), e.value(i.args[0], vector, source)
    size = e.call(f"llvm.fabs.{e.mangle(source, vector)}", st, [(st, x)])
    infinity = e.constant(source, float("inf"), vector)
    bit = {
        "isnan": lambda: e.op(f"fcmp uno {st} {x}, {x}"),
        "isinf": lambda: e.op(f"fcmp oeq {st} {size}, {infinity}"),
        "isfinite": lambda: e.op(f"fcmp olt {st} {size}, {infinity}"),
        "signbit": lambda: e.op(
            f"icmp slt {e.text_type('i' + str(bits_of(source)), vector)} "
            f"{e.op(f'bitcast {st} {x} to ' + e.text_type('i' + str(bits_of(source)), vector))}, "
            f"{e.constant('i' + str(bits_of(source)), 0, vector)}"
        ),
    }[test]()
    return e.op(f"zext {e.text_type('i1', vector)} {bit} to {e.type(i)}")


def rounded(op: str, mode: str) -> Callable:
    """fadd, fsub, fmul, fdiv, sqrt, fma, a reciprocal or a conversion, rounded to nearest ("rn"), up, down, or to zero; never fused."""

    def emit(e, i: Instr) -> str:
        vector = e.is_vector(i)
        types = i.attr[1]
        operands = [(e.text_type(t, vector), e.value(a, vector, t)) for a, t in zip(i.args, types, strict=True)]
        if op == "rcp":
            operands = [(e.type(i), e.splat_const(i, 1.0)), *operands]
        return e.rounded("fdiv" if op == "rcp" else op, mode, e.type(i), operands, (i.type, types[0], vector))

    return emit


_UNARY = "exp exp2 log log2 log10 sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh exp10 expm1 log1p cbrt erf erfc tgamma lgamma logb".split()
_BINARY_LIB = "pow atan2 fmod hypot remainder nextafter fdim ldexp scalbn".split()
_DOUBLE_ONLY = "j0 j1 jn y0 y1 yn".split()  # their floats: libdevice.py, as for what special.py has
_SPECIAL = "erfinv erfcinv erfcx normcdf normcdfinv sinpi cospi".split()
_VECTOR = {"sqrt": "sqrt", "fabs": "fabs", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "nearbyint": "nearbyint",
           "fmin": "minnum", "fmax": "maxnum", "copysign": "copysign", "round": "round"}  # fmt: skip


def _library_row(symbol: str) -> Callable:
    return lambda e, i: library(e, i, symbol, i.args, list(i.attr[1]))


def _float_rows() -> dict[str, Callable]:
    rows: dict[str, Callable] = {}
    for suffix in ("", "f"):
        for n in (*_UNARY, *_BINARY_LIB):
            rows[f"__nv_{n}{suffix}"] = _library_row(n + suffix)
        for n in ("sin", "cos", "tan", "exp", "exp10", "log", "log2", "log10", "pow"):
            rows[f"__nv_fast_{n}f"] = _library_row(n + "f")
        for n, llvm in _VECTOR.items():
            rows[f"__nv_{n}{suffix}"] = intrinsic(llvm)
        rows[f"__nv_rsqrt{suffix}"] = reciprocal_root
        rows[f"__nv_llrint{suffix}"] = round_to_integer("rint")
        rows[f"__nv_llround{suffix}"] = round_to_integer("round")
        rows[f"__nv_fma{suffix}"] = fused
        for n in ("isnan", "isinf", "signbit"):
            tail = {"": "d", "f": "f"}[suffix]
            rows[f"__nv_{n}{tail}"] = lambda e, i, n=n: float_class(e, i, n)
        rows[f"__nv_{'isfinited' if not suffix else 'finitef'}"] = lambda e, i: float_class(e, i, "isfinite")
        rows["__nv_signbitd"] = lambda e, i: float_class(e, i, "signbit")
    rows |= {f"__nv_{n}": _library_row(n) for n in _DOUBLE_ONLY} | {f"__nv_{n}": _library_row(f"simt_{n}") for n in _SPECIAL}
    for mode in ("rn", "rd", "ru", "rz"):
        for n, op in {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rcp": "rcp", "sqrt": "sqrt"}.items():
            rows |= {f"__nv_{t}{n}_{mode}": rounded(op, mode) for t in "fd"}
        rows |= {f"__nv_{t}_{mode}": rounded("fma", mode) for t in ("fma", "fmaf")}
        rows |= {f"__nv_{n}_{mode}": rounded("sitofp", mode) for n in ("int2float", "ll2float", "ll2double")}
        rows |= {f"__nv_{n}_{mode}": rounded("uitofp", mode) for n in ("uint2float", "ull2float", "ull2double")}
        rows[f"__nv_double2float_{mode}"] = rounded("fptrunc", mode)
    return rows


def absolute(e, i: Instr) -> str:
    return intrinsic("abs")(e, i, (i.args[0], Const("i1", 0)), (i.type, "i1"))


CALLS: dict[str, Callable] = {
    **_float_rows(),
    "__nv_abs": absolute, "__nv_llabs": absolute,
    "__nv_popc": population, "__nv_popcll": population, "__nv_clz": count_leading, "__nv_clzll": count_leading,
    "__nv_ffs": find_first, "__nv_ffsll": find_first, "__nv_brev": reverse_bits, "__nv_brevll": reverse_bits,
    "__nv_min": intrinsic("smin"), "__nv_max": intrinsic("smax"), "__nv_umin": intrinsic("umin"), "__nv_umax": intrinsic("umax"),
    "__nv_llmin": intrinsic("smin"), "__nv_llmax": intrinsic("smax"), "__nv_ullmin": intrinsic("umin"), "__nv_ullmax": intrinsic("umax"),
    "cudaCGGetIntrinsicHandle": lambda e, i: e.constant(i.type, 1, e.is_vector(i)),  # this_grid(); cfg.py knows its sync()
    marks.WRAPPED: wrapped, marks.RETURNED: returned, local_arrays.UNWRITTEN: unwritten, overflow.INDEX: index_overflow,
    "llvm.nvvm.shfl.sync.i32": shuffle, "llvm.nvvm.vote.sync": vote, "vprintf": print_line, "asm activemask.b32 $0;": active_mask, "asm nanosleep.u32 $0;": ignore,
}  # fmt: skip

# LLVM intrinsics that are the same operation on vectors
_SAME = "smax smin umax umin abs fabs fma fmuladd sqrt ctpop ctlz cttz fshl fshr bswap bitreverse minnum maxnum minimum maximum copysign floor ceil trunc rint nearbyint round roundeven canonicalize uadd.sat sadd.sat usub.sat ssub.sat".split()
_LLVM_LIBM = "exp exp2 exp10 log log2 log10 sin cos tan pow sinh cosh tanh asin acos atan atan2".split()


def _of_library(name: str) -> Callable:
    return lambda e, i: library(e, i, name + ("f" if i.type == "float" else ""), i.args)


# names with a type or a register at their end, by their start
FAMILIES: dict[str, Callable] = {
    **dict.fromkeys(
        "llvm.lifetime llvm.assume llvm.dbg llvm.experimental.noalias llvm.donothing".split(), ignore
    ),
    "llvm.nvvm.membar": fence, "llvm.nvvm.bar.warp.sync": warp_barrier, "simt.sreg.": sreg, "asm mov.u32 $0, %": special_asm,
    "llvm.nvvm.match.": match, "llvm.nvvm.sqrt.rn.": intrinsic("sqrt"), "llvm.nvvm.fma.rn.": fused, "llvm.nvvm.fabs": intrinsic("fabs"),
}  # fmt: skip
_LLVM = {n: intrinsic("fma" if n == "fmuladd" else n) for n in _SAME} | {n: _of_library(n) for n in _LLVM_LIBM}  # llvm.NAME.TYPE


def find_call(name: str) -> Callable | None:
    """The row for a callee, None when there is none."""
    if name in CALLS:
        return CALLS[name]
    family = next((row for start, row in FAMILIES.items() if name.startswith(start)), None)
    return family or (_LLVM.get(name[5:].rsplit(".", 1)[0]) if name.startswith("llvm.") else None)


_PLAIN_WORDS = {"asm brkpt;": "breakpoint() (a stop for cuda-gdb)"}


def described(name: str) -> str:
    """What a call without a row is, for the message that refuses it."""
    if name.startswith("NRT_"):
        return "Memory allocated inside a kernel (a copy, np.zeros ...: use cuda.local.array or an array argument)"
    return _PLAIN_WORDS.get(name, f"The call of `{name}`")
