"""libdevice, NVIDIA's library of device functions (`__nv_...`), where the C library or one LLVM instruction is not enough.

Bodies in LLVM IR, inlined like device functions: integers, bits, conversions, and functions with several results. What the C
library has, and arithmetic that rounds up, down or to zero, are rows of calls.py; what no C library has is in special.py.
Sources of the definitions: the CUDA Math API's and libdevice's reference pages.
"""

from __future__ import annotations

# name: (result, parameters, code); `{T}` float or double, `{I}` the integer of its width, `{f}` "f" or "", `{M}` f32 or f64
_INTEGERS = {
    "hadd": ("i32", "i32 %x, i32 %y", "%a = and i32 %x, %y\n%b = xor i32 %x, %y\n%c = ashr i32 %b, 1\n%r = add i32 %a, %c"),
    "uhadd": ("i32", "i32 %x, i32 %y", "%a = and i32 %x, %y\n%b = xor i32 %x, %y\n%c = lshr i32 %b, 1\n%r = add i32 %a, %c"),
    "rhadd": ("i32", "i32 %x, i32 %y", "%a = or i32 %x, %y\n%b = xor i32 %x, %y\n%c = ashr i32 %b, 1\n%r = sub i32 %a, %c"),
    "urhadd": ("i32", "i32 %x, i32 %y", "%a = or i32 %x, %y\n%b = xor i32 %x, %y\n%c = lshr i32 %b, 1\n%r = sub i32 %a, %c"),
    "mul24": ("i32", "i32 %x, i32 %y", "%a = shl i32 %x, 8\n%b = ashr i32 %a, 8\n%c = shl i32 %y, 8\n%d = ashr i32 %c, 8\n%r = mul i32 %b, %d"),
    "umul24": ("i32", "i32 %x, i32 %y", "%a = and i32 %x, 16777215\n%b = and i32 %y, 16777215\n%r = mul i32 %a, %b"),
    "sad": ("i32", "i32 %x, i32 %y, i32 %z",
            "%a = sub i32 %x, %y\n%b = sub i32 %y, %x\n%c = icmp sgt i32 %x, %y\n%d = select i1 %c, i32 %a, i32 %b\n%r = add i32 %d, %z"),
    "usad": ("i32", "i32 %x, i32 %y, i32 %z",
             "%a = sub i32 %x, %y\n%b = sub i32 %y, %x\n%c = icmp ugt i32 %x, %y\n%d = select i1 %c, i32 %a, i32 %b\n%r = add i32 %d, %z"),
    "float_as_int": ("i32", "float %x", "%r = bitcast float %x to i32"),
    "int_as_float": ("float", "i32 %x", "%r = bitcast i32 %x to float"),
    "double_as_longlong": ("i64", "double %x", "%r = bitcast double %x to i64"),
    "longlong_as_double": ("double", "i64 %x", "%r = bitcast i64 %x to double"),
    "double2loint": ("i32", "double %x", "%a = bitcast double %x to i64\n%r = trunc i64 %a to i32"),
    "double2hiint": ("i32", "double %x", "%a = bitcast double %x to i64\n%b = lshr i64 %a, 32\n%r = trunc i64 %b to i32"),
    "hiloint2double": ("double", "i32 %x, i32 %y",
                       "%a = zext i32 %x to i64\n%b = shl i64 %a, 32\n%c = zext i32 %y to i64\n%d = or i64 %b, %c\n%r = bitcast i64 %d to double"),
    "float2half_rn": ("i16", "float %x", "%a = fptrunc float %x to half\n%r = bitcast half %a to i16"),
    "half2float": ("float", "i16 %x", "%a = bitcast i16 %x to half\n%r = fpext half %a to float"),
    "int2double_rn": ("double", "i32 %x", "%r = sitofp i32 %x to double"),
    "uint2double_rn": ("double", "i32 %x", "%r = uitofp i32 %x to double"),
}  # fmt: skip


def _high_product(bits: int, extend: str) -> tuple[str, str, str]:
    t, wide = f"i{bits}", f"i{2 * bits}"
    code = f"%a = {extend} {t} %x to {wide}\n%b = {extend} {t} %y to {wide}\n%c = mul {wide} %a, %b\n%d = lshr {wide} %c, {bits}\n%r = trunc {wide} %d to {t}"
    return t, f"{t} %x, {t} %y", code


_INTEGERS |= {"mulhi": _high_product(32, "sext"), "umulhi": _high_product(32, "zext"),
              "mul64hi": _high_product(64, "sext"), "umul64hi": _high_product(64, "zext")}  # fmt: skip


def _byte_perm() -> tuple[str, str, str]:
    """Byte k of the result is the byte of y:x that nibble k of the selector names (its top bit is ignored)."""
    code = "%xw = zext i32 %x to i64\n%yw = zext i32 %y to i64\n%yu = shl i64 %yw, 32\n%both = or i64 %xw, %yu\n%r.0 = add i32 0, 0\n"
    for k in range(4):
        code += f"%n{k} = lshr i32 %z, {4 * k}\n%s{k} = and i32 %n{k}, 7\n%b{k} = shl i32 %s{k}, 3\n%w{k} = zext i32 %b{k} to i64\n"
        code += (
            f"%v{k} = lshr i64 %both, %w{k}\n%t{k} = trunc i64 %v{k} to i32\n%o{k} = and i32 %t{k}, 255\n%p{k} = shl i32 %o{k}, {8 * k}\n"
        )
        code += f"%r{f'.{k + 1}' if k < 3 else ''} = or i32 %r.{k}, %p{k}\n"
    return "i32", "i32 %x, i32 %y, i32 %z", code


_INTEGERS["byte_perm"] = _byte_perm()

_ROUND = {"rn": "rint", "rd": "floor", "ru": "ceil", "rz": "trunc"}


def _to_integers() -> dict[str, tuple[str, str, str]]:
    rows = {}
    for source, mangled in (("float", "f32"), ("double", "f64")):
        for target, (t, op) in {
            "int": ("i32", "fptosi"),
            "uint": ("i32", "fptoui"),
            "ll": ("i64", "fptosi"),
            "ull": ("i64", "fptoui"),
        }.items():
            for mode, name in _ROUND.items():
                code = f"%a = call {source} @llvm.{name}.{mangled}({source} %x)\n%r = {op} {source} %a to {t}"
                rows[f"{source}2{target}_{mode}"] = (t, f"{source} %x", code)
    return rows


_FLOATS = {
    "frexp": ("{T}", "{T} %x, ptr %e",  # a subnormal number is first multiplied by a power of two
              "%bits = bitcast {T} %x to {I}\n%size = and {I} %bits, {NOSIGN}\n%zero = icmp eq {I} %size, 0\n%big = icmp uge {I} %size, {INF}\n"
              "%odd = or i1 %zero, %big\n%small = icmp ult {I} %size, {ONE_EXPONENT}\n%scaled = fmul {T} %x, {LIFT}\n%sbits = bitcast {T} %scaled to {I}\n"
              "%use = select i1 %small, {I} %sbits, {I} %bits\n%less = select i1 %small, {I} {LIFTED}, {I} {HALF_EXPONENT}\n"
              "%mag = and {I} %use, {NOSIGN}\n%exp = lshr {I} %mag, {MANTISSA}\n%e0 = sub {I} %exp, %less\n%e1 = {TO_I32} %e0{END}\n"
              "%e2 = select i1 %odd, i32 0, i32 %e1\nstore i32 %e2, ptr %e\n%frac = and {I} %use, {FRACTION}\n%half = or {I} %frac, {HALF}\n"
              "%m = bitcast {I} %half to {T}\n%r = select i1 %odd, {T} %x, {T} %m"),
    "ilogb": ("i32", "{T} %x",
              "%bits = bitcast {T} %x to {I}\n%size = and {I} %bits, {NOSIGN}\n%nan = icmp ugt {I} %size, {INF}\n%inf = icmp eq {I} %size, {INF}\n"
              "%zero = icmp eq {I} %size, 0\n%low = or i1 %nan, %zero\n%small = icmp ult {I} %size, {ONE_EXPONENT}\n%scaled = fmul {T} %x, {LIFT}\n"
              "%sbits = bitcast {T} %scaled to {I}\n%use = select i1 %small, {I} %sbits, {I} %bits\n%less = select i1 %small, {I} {LIFTED}, {I} {HALF_EXPONENT}\n"
              "%mag = and {I} %use, {NOSIGN}\n%exp = lshr {I} %mag, {MANTISSA}\n%e0 = sub {I} %exp, %less\n%e1 = {TO_I32} %e0{END}\n%e2 = sub i32 %e1, 1\n"
              "%e3 = select i1 %inf, i32 2147483647, i32 %e2\n%r = select i1 %low, i32 -2147483648, i32 %e3"),
    "modf": ("{T}", "{T} %x, ptr %whole",
             "%w = call {T} @llvm.trunc.{M}({T} %x)\nstore {T} %w, ptr %whole\n%d = fsub {T} %x, %w\n%none = fcmp oeq {T} %x, %w\n"
             "%s = select i1 %none, {T} 0.0, {T} %d\n%signed = call {T} @llvm.copysign.{M}({T} %s, {T} %x)\n%nan = fcmp uno {T} %x, %x\n"
             "%r = select i1 %nan, {T} %x, {T} %signed"),
    "sincos": ("void", "{T} %x, ptr %s, ptr %c",
               "%a = call {T} @__nv_sin{f}({T} %x)\nstore {T} %a, ptr %s\n%b = call {T} @__nv_cos{f}({T} %x)\nstore {T} %b, ptr %c"),
    "sincospi": ("void", "{T} %x, ptr %s, ptr %c",
                 "%a = call {T} @__nv_sinpi{f}({T} %x)\nstore {T} %a, ptr %s\n%b = call {T} @__nv_cospi{f}({T} %x)\nstore {T} %b, ptr %c"),
    "rcbrt": ("{T}", "{T} %x", "%a = call {T} @__nv_cbrt{f}({T} %x)\n%r = fdiv {T} 1.0, %a"),
    "remquo": ("{T}", "{T} %x, {T} %y, ptr %quotient",  # the quotient's sign and low three bits: x modulo 8 y has the same ones
               "%r = call {T} @__nv_remainder{f}({T} %x, {T} %y)\n%y8 = fmul {T} %y, 8.0\n%m = frem {T} %x, %y8\n%d = fsub {T} %m, %r\n%q = fdiv {T} %d, %y\n"
               "%near = call {T} @llvm.rint.{M}({T} %q)\n%size = call {T} @llvm.fabs.{M}({T} %near)\n%small = fcmp olt {T} %size, 16.0\n"
               "%safe = select i1 %small, {T} %size, {T} 0.0\n%n = fptosi {T} %safe to i32\n%low = and i32 %n, 7\n%minus = sub i32 0, %low\n"
               "%down = fcmp olt {T} %near, 0.0\n%signed = select i1 %down, i32 %minus, i32 %low\nstore i32 %signed, ptr %quotient"),
    "powi": ("{T}", "{T} %x, i32 %n",  # by squaring, as libdevice does it
             "%minus = sub i32 0, %n\n%down = icmp slt i32 %n, 0\n%size = select i1 %down, i32 %minus, i32 %n\nbr label %loop\nloop:\n"
             "%base = phi {T} [ %x, %entry ], [ %base1, %more ]\n%left = phi i32 [ %size, %entry ], [ %left1, %more ]\n"
             "%acc = phi {T} [ 1.0, %entry ], [ %acc1, %more ]\n%bit = and i32 %left, 1\n%odd = icmp ne i32 %bit, 0\n%product = fmul {T} %acc, %base\n"
             "%acc1 = select i1 %odd, {T} %product, {T} %acc\n%left1 = lshr i32 %left, 1\n%last = icmp eq i32 %left1, 0\n"
             "br i1 %last, label %end, label %more\nmore:\n%base1 = fmul {T} %base, %base\nbr label %loop\nend:\n%over = fdiv {T} 1.0, %acc1\n"
             "%r = select i1 %down, {T} %over, {T} %acc1"),
    # the half of a symmetric function that a float needs is exact enough in double
    **{name: ("float", "float %x", f"%a = fpext float %x to double\n%b = call double @__nv_{name[:-1]}(double %a)\n%r = fptrunc double %b to float")
       for name in "erfinvf erfcinvf erfcxf normcdff normcdfinvf sinpif cospif j0f j1f y0f y1f".split()},
    **{name: ("float", "i32 %n, float %x",
              f"%a = fpext float %x to double\n%b = call double @__nv_{name[:-1]}(i32 %n, double %a)\n%r = fptrunc double %b to float")
       for name in ("jnf", "ynf")},
    "frsqrt_rn": ("float", "float %x",
                  "%a = fpext float %x to double\n%b = call double @llvm.sqrt.f64(double %a)\n%c = fdiv double 1.0, %b\n%r = fptrunc double %c to float"),
    "fast_fdividef": ("float", "float %x, float %y", "%r = fdiv float %x, %y"),
    "fast_sincosf": ("void", "float %x, ptr %s, ptr %c",
                     "%a = call float @__nv_fast_sinf(float %x)\nstore float %a, ptr %s\n%b = call float @__nv_fast_cosf(float %x)\nstore float %b, ptr %c"),
    "saturatef": ("float", "float %x",  # NaN becomes 0
                  "%up = fcmp ogt float %x, 0.0\n%a = select i1 %up, float %x, float 0.0\n%over = fcmp ogt float %a, 1.0\n"
                  "%r = select i1 %over, float 1.0, float %a"),
}  # fmt: skip


def _layout(bits: int, mantissa: int) -> dict[str, str]:
    """Constants of an IEEE format."""
    bias = (1 << (bits - mantissa - 2)) - 1
    sign, one = 1 << (bits - 1), 1 << mantissa
    exponents = ((1 << (bits - 1 - mantissa)) - 1) << mantissa
    lift = mantissa + 1
    return {
        "T": "float" if bits == 32 else "double", "I": f"i{bits}", "f": "f" if bits == 32 else "", "M": f"f{bits}",
        "NOSIGN": str(sign - 1), "INF": str(exponents), "ONE_EXPONENT": str(one), "MANTISSA": str(mantissa), "LIFT": f"{2.0**lift:.1f}",
        "HALF_EXPONENT": str(bias - 1), "LIFTED": str(bias - 1 + lift), "FRACTION": str(sign | (one - 1)), "TO_I32": "add i32" if bits == 32 else "trunc i64", "END": ", 0" if bits == 32 else " to i32", "HALF": str((bias - 1) << mantissa),
    }  # fmt: skip


def _bodies() -> dict[str, tuple[str, str, str]]:
    rows = {**_INTEGERS, **_to_integers()}
    for name, row in _FLOATS.items():
        if "{T}" not in "".join(row):
            rows[name] = row
            continue
        for bits, mantissa in ((32, 23), (64, 52)):
            result, parameters, code = (part.format(**_layout(bits, mantissa)) for part in row)
            rows[name + ("f" if bits == 32 else "")] = result, parameters, code
    return rows


BODIES = _bodies()


def body_of(name: str, _: str) -> str | None:
    """The definition of a libdevice function, None when this file has none. For bodies.with_bodies."""
    row = BODIES.get(name.removeprefix("__nv_")) if name.startswith("__nv_") else None
    if row is None:
        return None
    result, parameters, code = row
    lines = "".join(line + "\n" if line.endswith(":") else f"  {line}\n" for line in code.strip().split("\n"))
    last = "ret void" if result == "void" else f"ret {result} %r"
    return f"define internal {result} @{name}({parameters}) alwaysinline {{\nentry:\n{lines}  {last}\n}}\n"
