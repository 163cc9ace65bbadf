"""float16: numba-cuda calls C++ functions of cuda_fp16.h through shims; here each declared shim gets a body in LLVM IR.

A shim is `i32 name(result*, operand*...)`, halves as i16. Bodies are inlined by the optimiser like any device function. Shims
that are not in the tables stay declared, and are refused by name when the kernel is compiled.
"""

from __future__ import annotations

import re

from solcourse.simt.bodies import completed

_BINARY = {"pl": "fadd", "mi": "fsub", "ml": "fmul", "dv": "fdiv"}
_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_NAMED_BINARY = {
    f"__h{n}{tail}": op for n, op in (("add", "fadd"), ("sub", "fsub"), ("mul", "fmul"), ("div", "fdiv")) for tail in ("", "_rn")
}
_NAMED_COMPARE = {f"__h{n}": p for n, p in _COMPARE.items()} | {f"__h{n}u": "u" + p[1:] for n, p in _COMPARE.items()}
_UNARY = {"hsqrt": "sqrt", "hceil": "ceil", "hfloor": "floor", "hrint": "rint", "htrunc": "trunc", "hexp": "exp", "hexp2": "exp2",
          "hlog": "log", "hlog2": "log2", "hlog10": "log10", "hsin": "sin", "hcos": "cos", "__habs": "fabs", "hexp10": "exp10"}  # fmt: skip
_CONVERT = {"d": "double", "f": "float", "i": "i32", "j": "u32", "l": "i64", "m": "u64", "x": "i64", "y": "u64", "s": "i16", "t": "u16"}


def body_of(name: str, parameters: str) -> str | None:
    """The definition of a shim, None when it is not known. For bodies.with_bodies."""
    body = _body(name) if name.endswith("_nbst") else None
    if body is None:
        return None
    params = ", ".join(["ptr %r", *(f"ptr %p{k}" for k in range(parameters.count(",")))])
    return f'define internal i32 @"{name}"({params}) alwaysinline {{\n{body}  ret i32 0\n}}\n'


def _load(k: int, t: str = "half") -> str:
    return f"  %a{k} = load {t}, ptr %p{k}\n"


def _body(name: str) -> str | None:
    two = _load(0) + _load(1)
    m = re.match(r"_Z(\w\w)RK6__halfS1__nbst$", name)
    if m and m.group(1) in _BINARY:
        return two + f"  %v = {_BINARY[m.group(1)]} half %a0, %a1\n  store half %v, ptr %r\n"
    if m and m.group(1) in _COMPARE:
        return two + _truth(_COMPARE[m.group(1)])
    if name == "_ZngRK6__half_nbst":
        return _load(0) + "  %v = fneg half %a0\n  store half %v, ptr %r\n"
    m = re.match(r"_ZN6__halfC1E(\w)_nbst$", name)
    if m and m.group(1) in _CONVERT:
        return _from(_CONVERT[m.group(1)])
    m = re.match(r"_ZL(\d+)(\w+)_nbst$", name)
    return _named(m.group(2)[: int(m.group(1))]) if m else None


def _named(base: str) -> str | None:
    two = _load(0) + _load(1)
    if base in _NAMED_BINARY:
        return two + f"  %v = {_NAMED_BINARY[base]} half %a0, %a1\n  store half %v, ptr %r\n"
    if base in _NAMED_COMPARE:
        return two + _truth(_NAMED_COMPARE[base])
    if base in ("__hfma", "__hmax", "__hmin"):
        op = {"__hfma": "fma", "__hmax": "maxnum", "__hmin": "minnum"}[base]
        third = _load(2) if op == "fma" else ""
        args = ", ".join(f"half %a{k}" for k in range(3 if op == "fma" else 2))
        return two + third + f"  %v = call half @llvm.{op}.f16({args})\n  store half %v, ptr %r\n"
    if base == "__hneg":
        return _load(0) + "  %v = fneg half %a0\n  store half %v, ptr %r\n"
    if base in _UNARY:  # computed in float32 and rounded once
        code = _load(0) + "  %w = fpext half %a0 to float\n"
        return code + f"  %x = call float @llvm.{_UNARY[base]}.f32(float %w)\n  %v = fptrunc float %x to half\n  store half %v, ptr %r\n"
    if base in ("hrcp", "hrsqrt"):
        root = "  %x = call float @llvm.sqrt.f32(float %w)\n" if base == "hrsqrt" else "  %x = fadd float %w, -0.0\n"
        code = _load(0) + "  %w = fpext half %a0 to float\n" + root
        return code + "  %y = fdiv float 1.0, %x\n  %v = fptrunc float %y to half\n  store half %v, ptr %r\n"
    if base in ("__float2half", "__float2half_rn", "__double2half"):
        return _from("double" if "double" in base else "float")
    return None


def _truth(predicate: str) -> str:
    return f"  %c = fcmp {predicate} half %a0, %a1\n  %v = zext i1 %c to i8\n  store i8 %v, ptr %r\n"


def _from(kind: str) -> str:
    if kind in ("float", "double"):
        return _load(0, kind) + f"  %v = fptrunc {kind} %a0 to half\n  store half %v, ptr %r\n"
    t = "i" + kind[1:]
    return _load(0, t) + f"  %v = {'u' if kind[0] == 'u' else 's'}itofp {t} %a0 to half\n  store half %v, ptr %r\n"


# ---- inline PTX: conversions (both front ends), arithmetic and comparison (numba's built-in numba.cuda) -----------------------

_ASM = re.compile(r'call (\w+) asm (?:sideeffect )?"([^"]*f16[^"]*)", *"[^"]*" *\(')
_PTX_TYPES = {"f16": "half", "f32": "float", "f64": "double", **{f"{s}{w}": f"i{w}" for s in "su" for w in (8, 16, 32, 64)}}
_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul"}


def without_assembly(text: str) -> str:
    """The module with the known pieces of float16 assembly replaced by functions that do the same; others stay."""
    made: dict[str, str] = {}

    def replace(m: re.Match) -> str:
        name = "simt." + re.sub(r"\W+", ".", m.group(2).replace("\\0A", " ").replace("\\0a", " "))[:60].strip(".")
        body = _assembly(m.group(2))
        if body is None:
            return m.group(0)
        made[name] = f'define internal {m.group(1)} @"{name}"({body[0]}) alwaysinline {{\n{body[1]}}}\n'
        return f'call {m.group(1)} @"{name}"('

    text = _ASM.sub(replace, text)
    return completed(text, list(made.values()))


def _halves(n: int) -> tuple[str, str]:
    return ", ".join(f"i16 %i{k}" for k in range(n)), "".join(f"  %a{k} = bitcast i16 %i{k} to half\n" for k in range(n))


def _assembly(asm: str) -> tuple[str, str] | None:
    """(parameters, body) of the function an assembly string stands for."""
    give = "  %o = bitcast half %v to i16\n  ret i16 %o\n"
    m = re.search(r"\b(add|sub|mul|neg|abs|fma)(?:\.rn)?\.f16\b", asm)
    if m and "setp" not in asm:
        params, code = _halves({"neg": 1, "abs": 1, "fma": 3}.get(m.group(1), 2))
        op = {
            "neg": "fneg half %a0",
            "abs": "call half @llvm.fabs.f16(half %a0)",
            "fma": "call half @llvm.fma.f16(half %a0, half %a1, half %a2)",
        }.get(m.group(1)) or f"{_ARITHMETIC[m.group(1)]} half %a0, %a1"
        return params, code + f"  %v = {op}\n" + give
    m = re.search(r"setp\.(eq|ne|lt|le|gt|ge)\.f16", asm)
    if m:
        params, code = _halves(2)
        return params, code + f"  %c = fcmp {_COMPARE[m.group(1)]} half %a0, %a1\n  %o = zext i1 %c to i16\n  ret i16 %o\n"
    m = re.match(r"cvt(?:\.rni|\.rn)?\.(\w+)\.(\w+) ", asm)
    return _conversion(m.group(1), m.group(2)) if m else None


def _conversion(to: str, source: str) -> tuple[str, str] | None:
    if to not in _PTX_TYPES or source not in _PTX_TYPES:
        return None
    t, s = _PTX_TYPES[to], _PTX_TYPES[source]
    if to == "f16":
        op = "fptrunc" if s in ("float", "double") else "uitofp" if source[0] == "u" else "sitofp"
        return f"{s} %a0", f"  %v = {op} {s} %a0 to half\n  %o = bitcast half %v to i16\n  ret i16 %o\n"
    params, code = _halves(1)
    if t in ("float", "double"):
        return params, code + f"  %v = fpext half %a0 to {t}\n  ret {t} %v\n"
    near = code + "  %w = fpext half %a0 to float\n  %n = call float @llvm.rint.f32(float %w)\n"  # .rni: to the nearest integer
    return params, near + f"  %v = fpto{'u' if to[0] == 'u' else 's'}i float %n to {t}\n  ret {t} %v\n"
