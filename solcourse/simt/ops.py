"""What each instruction becomes: one small function per operation, one table row per intrinsic and library call.

Every function takes the emitter and the instruction and returns the text of the result value, scalar when the instruction is
uniform, a 32-lane vector otherwise. Lanes that are masked off compute too, so nothing here may trap on any input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from solcourse.errors import UnsupportedKernel
from solcourse.simt import printing
from solcourse.simt.ir import Const, Instr, leaf_range, leaves
from solcourse.simt.pieces import LANE_IDS

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


_PLAIN_WORDS = {
    "asm brkpt;": "breakpoint() (a stop for cuda-gdb)",
}


def described(i: Instr) -> str:
    """What an instruction without a table row is, for the message that refuses it."""
    if i.op != "call":
        return f"The LLVM instruction `{i.op}`"
    if i.attr[0].startswith("NRT_"):
        return "Memory allocated inside a kernel (a copy, np.zeros ...: use cuda.local.array or an array argument)"
    return _PLAIN_WORDS.get(i.attr[0], f"The call of `{i.attr[0]}`")


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


# ---- calls ----------------------------------------------------------------------------------------------------------


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


def ignore(e, i: Instr) -> str:
    return ""


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
    return (e.permute(value, "i32", source), ok)


def vote(e, i: Instr) -> object:
    """vote.sync(mask, mode, predicate): {ballot, boolean} of the active lanes, the same in each of them."""
    bits, mask = e.active_bits(i.args[2]), e.mask()
    mode = ("all", "any", "eq", "ballot")[int(i.args[1].value)]
    none, every = e.op(f"icmp eq i32 {bits}, 0"), e.op(f"icmp eq i32 {bits}, {mask}")
    answer = {"any": lambda: e.op(f"xor i1 {none}, true"), "all": lambda: every, "ballot": lambda: every,
              "eq": lambda: e.op(f"or i1 {none}, {every}")}[mode]()  # fmt: skip
    vector = e.is_vector(i)
    return (e.broadcast(bits, "i32"), e.broadcast(answer, "i1")) if vector else (bits, answer)


def match(e, i: Instr) -> object:
    """match.any / match.all.sync(mask, value)."""
    t = i.attr[1][1]
    same = e.match_any(e.value(i.args[1], True, t), t)
    if ".any." in i.attr[0]:
        return same
    ok = e.op(f"icmp eq <32 x i32> {same}, {e.broadcast(e.mask(), 'i32')}")
    return (e.op(f"select <32 x i1> {ok}, <32 x i32> {same}, <32 x i32> zeroinitializer"), ok)


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

LIBM = {n: n for n in (*_UNARY, *_BINARY_LIB)}


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
    "vprintf": print_line, "asm activemask.b32 $0;": active_mask, "asm nanosleep.u32 $0;": lambda e, i: "",
}  # fmt: skip

# LLVM intrinsics that are the same operation on vectors
_SAME = "smax smin umax umin abs fabs fma fmuladd sqrt ctpop ctlz cttz fshl fshr bswap bitreverse minnum maxnum minimum maximum copysign floor ceil trunc rint nearbyint round roundeven canonicalize uadd.sat sadd.sat usub.sat ssub.sat".split()
_LLVM_LIBM = "exp exp2 exp10 log log2 log10 sin cos tan pow sinh cosh tanh asin acos atan atan2".split()
_IGNORED = (
    "llvm.lifetime",
    "llvm.assume",
    "llvm.dbg",
    "llvm.experimental.noalias",
    "llvm.donothing",
    "llvm.nvvm.membar",
    "llvm.nvvm.bar.warp.sync",
)


def find_call(name: str) -> Callable | None:
    """The table row for a callee, None when there is none."""
    if name in CALLS:
        return CALLS[name]
    if name.startswith("simt.sreg."):
        return sreg
    if name.startswith(_IGNORED):
        return ignore
    if name == "llvm.nvvm.shfl.sync.i32":
        return shuffle
    if name == "llvm.nvvm.vote.sync":
        return vote
    if name.startswith("llvm.nvvm.match."):
        return match
    if name.startswith("asm mov.u32 $0, %"):
        return special_asm
    if name.startswith("llvm.nvvm.sqrt.rn."):
        return intrinsic("sqrt")
    if name.startswith("llvm.nvvm.fma.rn."):
        return fused
    if name.startswith("llvm.nvvm.fabs"):
        return intrinsic("fabs")
    if name.startswith("llvm."):
        base = name[5:].rsplit(".", 1)[0]
        if base in _SAME:
            return intrinsic("fma" if base == "fmuladd" else base)
        if base in _LLVM_LIBM:
            return lambda e, i: library(e, i, base + ("f" if i.type == "float" else ""), i.args)
    return None


TABLE: dict[str, Callable] = {
    **dict.fromkeys("add sub mul and or xor fadd fsub fmul fdiv".split(), binary),
    **dict.fromkeys("shl lshr ashr".split(), shift),
    **dict.fromkeys("sdiv udiv srem urem".split(), divide),
    "frem": float_remainder, "fneg": negate, "icmp": compare, "fcmp": compare, "select": select, "freeze": freeze,
    **dict.fromkeys("sext zext trunc fptosi fptoui sitofp uitofp fpext fptrunc ptrtoint inttoptr bitcast addrspacecast".split(), cast),
    "getelementptr": address, "extractvalue": extract, "insertvalue": insert, "fma": fused, "fence": ignore,
}  # fmt: skip
