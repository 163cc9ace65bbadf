"""Every function of numba.cuda.libdevice gives the value of its definition: exact where it is exact, else within stated ulps."""

from __future__ import annotations

import importlib
import math
from fractions import Fraction

import numpy as np
import pytest
from numba import cuda
from numba.cuda import libdevice

TABLE = importlib.import_module("numba.cuda.libdevicefuncs").functions
DTYPES = {"int16": np.int16, "int32": np.int32, "int64": np.int64, "float32": np.float32, "float64": np.float64}

X = np.array([0.3, -0.7, 0.0, 1.0, -2.5, 1e-3, 3.75, -0.125, 0.5, 2.0, -12.0, 7.3, 1.5, -1.0, 21.0, 0.9])
Y = np.array([1.7, 0.6, 2.0, -3.0, 0.4, 5.0, -0.75, 0.3, -0.5, 3.0, 12.0, 0.2, -1.5, 1.0, 0.01, 0.1])
Z = np.array([2.0, 1e8, -3.0, 0.1, 1e-9, 7.7, 0.0, -1.0, 5.5, -6.0, 1.0, 1e20, 0.25, 3.0, -4.4, 0.7])
I = np.array([0, 1, -1, 7, -8, 2**31 - 1, -(2**31), 12345, -99999, 2**23 + 5, 255, 3, 2**30, -(2**30), 16777216, 2], np.int64)
J = np.array([5, -3, 2**31 - 1, -7, 3, 2**31 - 1, 2**31 - 1, -12, 77, 2**25 + 1, -1, -5, 9, 11, 2**24, -(2**31)], np.int64)
POSITIVE = {*["log", "log1p", "log2", "log10", "sqrt", "rsqrt", "rcbrt", "frsqrt_rn"],
            *["j0", "j1", "y0", "y1", "jn", "yn", "tgamma", "lgamma", "erfcx"]}  # fmt: skip
RANGE = {"acos": 1, "asin": 1, "atanh": 0.9, "erfinv": 1, "erfcinv": 2, "normcdfinv": 1, "exp": 5, "sinh": 5, "cosh": 5, "exp10": 5}


def u32(x: int) -> int:
    return x & 0xFFFFFFFF


def s32(x: int) -> int:
    return (x + 2**31) % 2**32 - 2**31


def s64(x: int) -> int:
    return (x + 2**63) % 2**64 - 2**63


def s24(x: int) -> int:
    return (x + 2**23) % 2**24 - 2**23


def bits(value, source, target):
    return np.array(value, source).view(target).item()


INTEGERS = {  # name -> the definition over Python integers; unsigned ones take and give two's complement
    "abs": abs, "llabs": abs, "min": min, "max": max, "llmin": min, "llmax": max,
    "umin": lambda x, y: s32(min(u32(x), u32(y))), "umax": lambda x, y: s32(max(u32(x), u32(y))),
    "ullmin": lambda x, y: s64(min(x % 2**64, y % 2**64)), "ullmax": lambda x, y: s64(max(x % 2**64, y % 2**64)),
    "popc": lambda x: u32(x).bit_count(), "popcll": lambda x: (x % 2**64).bit_count(),
    "clz": lambda x: 32 - u32(x).bit_length(), "clzll": lambda x: 64 - (x % 2**64).bit_length(),
    "ffs": lambda x: (u32(x) & -u32(x)).bit_length(), "ffsll": lambda x: (x & -x).bit_length(),
    "brev": lambda x: s32(int(f"{u32(x):032b}"[::-1], 2)), "brevll": lambda x: s64(int(f"{x % 2**64:064b}"[::-1], 2)),
    "hadd": lambda x, y: (x + y) >> 1, "rhadd": lambda x, y: (x + y + 1) >> 1,
    "uhadd": lambda x, y: s32((u32(x) + u32(y)) >> 1), "urhadd": lambda x, y: s32((u32(x) + u32(y) + 1) >> 1),
    "mulhi": lambda x, y: (x * y) >> 32, "umulhi": lambda x, y: s32((u32(x) * u32(y)) >> 32),
    "mul64hi": lambda x, y: (x * y) >> 64, "umul64hi": lambda x, y: s64(((x % 2**64) * (y % 2**64)) >> 64),
    "mul24": lambda x, y: s32(s24(x) * s24(y)), "umul24": lambda x, y: s32((x % 2**24) * (y % 2**24)),
    "sad": lambda x, y, z: s32(abs(x - y) + z), "usad": lambda x, y, z: s32(abs(u32(x) - u32(y)) + z),
    "byte_perm": lambda x, y, s: s32(sum(((u32(x) | u32(y) << 32) >> 8 * (u32(s) >> 4 * k & 7) & 255) << 8 * k for k in range(4))),
}  # fmt: skip
BITS = {
    "float_as_int": lambda x: bits(x, np.float32, np.int32), "int_as_float": lambda x: bits(x, np.int32, np.float32),
    "double_as_longlong": lambda x: bits(x, np.float64, np.int64), "longlong_as_double": lambda x: bits(x, np.int64, np.float64),
    "double2loint": lambda x: s32(bits(x, np.float64, np.int64)), "double2hiint": lambda x: bits(x, np.float64, np.int64) >> 32,
    "hiloint2double": lambda x, y: bits(x << 32 | u32(y), np.int64, np.float64),
    "float2half_rn": lambda x: bits(x, np.float16, np.int16), "half2float": lambda x: float(bits(x, np.int16, np.float16)),
    "int2double_rn": float, "uint2double_rn": lambda x: float(u32(x)),
    "isnand": math.isnan, "isnanf": math.isnan, "isinfd": math.isinf, "isinff": math.isinf,
    "isfinited": math.isfinite, "finitef": math.isfinite,
    "signbitd": lambda x: math.copysign(1, x) < 0, "signbitf": lambda x: math.copysign(1, x) < 0,
    "ilogb": lambda x: math.frexp(x)[1] - 1 if x else -(2**31), "logb": lambda x: math.frexp(x)[1] - 1 if x else -math.inf,
    "saturatef": lambda x: min(max(x, 0), 1), "llrint": round, "llround": lambda x: int(math.copysign(math.floor(abs(x) + 0.5), x)),
    "fabs": abs, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "rint": round, "nearbyint": round,
    "round": lambda x: math.copysign(math.floor(abs(x) + 0.5), x), "copysign": math.copysign, "fmin": min, "fmax": max,
    "fdim": lambda x, y: x - y if x > y else 0.0, "fmod": math.fmod, "remainder": math.remainder,
    "ldexp": lambda x, n: math.ldexp(x, n % 12), "scalbn": lambda x, n: math.ldexp(x, n % 12),
    "frexp": math.frexp, "modf": math.modf, "nextafter": math.nextafter,
}  # fmt: skip
NUMBERS = {  # within 4 ulps (the fast ones within 40 of float32)
    "erfinv": None, "erfcinv": None, "normcdfinv": None,
    "erfcx": lambda x: math.exp(x * x) * (1 + float(Fraction(x) ** 2 - Fraction(x * x))) * math.erfc(x),
    "normcdf": lambda x: _normal(x), "exp10": lambda x: 10.0**x, "exp2": lambda x: 2.0**x, "cbrt": np.cbrt,
    "rcbrt": lambda x: 1 / np.cbrt(x), "rsqrt": lambda x: 1 / math.sqrt(x), "tgamma": math.gamma, "frsqrt_rn": lambda x: 1 / math.sqrt(x),
    "sinpi": lambda x: math.sin(math.pi * math.remainder(x, 2)), "cospi": lambda x: math.cos(math.pi * math.remainder(x, 2)),
    "sincos": lambda x: (math.sin(x), math.cos(x)), "powi": lambda x, n: x**n, "fdivide": lambda x, y: x / y,
    "sincospi": lambda x: (math.sin(math.pi * math.remainder(x, 2)), math.cos(math.pi * math.remainder(x, 2))),
    "fma": lambda x, y, z: float(Fraction(x) * Fraction(y) + Fraction(z)),
    **{n: getattr(math, n) for n in ("exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "erf",
        "erfc", "asin", "acos", "atan", "asinh", "acosh", "atanh", "lgamma", "sqrt", "pow", "atan2", "hypot")},
}  # fmt: skip
ELSEWHERE = {"remquo", "j0", "j1", "y0", "y1", "jn", "yn"}


def _normal(x: float) -> float:
    """erfc(z) / 2 at z = -x / sqrt(2), by its slope from the float that is nearest to z."""
    exact = Fraction(-x) * Fraction(math.isqrt(2 * 10**80), 2 * 10**40)
    z = float(exact)
    return (math.erfc(z) - 2 / math.sqrt(math.pi) * math.exp(-z * z) * float(exact - Fraction(z))) / 2


def stem(name: str) -> str:
    """The name its double form has, without `fast_`."""
    bare = name.removeprefix("__nv_").removeprefix("fast_")
    return bare if bare in BITS or bare in INTEGERS else bare[:-1] if bare.endswith("f") and bare != "erf" else bare


def is_rounded(name: str) -> bool:
    return name.endswith(("_rn", "_rd", "_ru", "_rz")) and name[5:] not in (*BITS, "frsqrt_rn")


def test_the_tables_name_every_function_numba_has():
    unknown = [n for n in TABLE if not is_rounded(n) and not {n[5:], stem(n)} & {*INTEGERS, *BITS, *NUMBERS, *ELSEWHERE}]
    assert unknown == []
    assert len(TABLE) > 300


def kernel_of(names: list[str]):
    """One kernel that calls all these functions, which take the same types, on element i of its inputs."""
    result, parameters = TABLE[names[0]]
    inputs = [p for p in parameters if not p.is_ptr]
    outs, lines, scope = [], [], {"cuda": cuda}
    for n, name in enumerate(names):
        result, parameters = TABLE[name]
        types = [result] * (str(result) != "none") + [p.ty for p in parameters if p.is_ptr]
        scope[f"f{n}"] = getattr(libdevice, name[5:])
        lines.append(f"    r = f{n}({', '.join(f'x{k}[i]' for k in range(len(inputs)))})")
        for k, t in enumerate(types):
            lines.append(f"    o{len(outs)}[i] = r{f'[{k}]' if len(types) > 1 else ''}")
            outs.append((name, t))
    heads = [*(f"x{k}" for k in range(len(inputs))), *(f"o{k}" for k in range(len(outs)))]
    exec(f"def kernel({', '.join(heads)}):\n    i = cuda.grid(1)\n" + "\n".join(lines), scope)
    return cuda.jit(scope["kernel"]), [str(p.ty) for p in inputs], outs


def domain(name: str) -> str | float:
    """Which inputs a function can take: those of RANGE go up to this number."""
    bare = stem(name)
    return "positive" if bare in POSITIVE else bare if bare in ("acosh", "pow") else RANGE.get(bare, "")


def groups(wanted, size: int = 12) -> list:
    by_types: dict[tuple, list[str]] = {}
    for name in TABLE:
        if wanted(name):
            key = domain(name), tuple(str(p.ty) for p in TABLE[name][1] if not p.is_ptr)
            by_types.setdefault(key, []).append(name)
    parts = [names[k : k + size] for names in by_types.values() for k in range(0, len(names), size)]
    return [pytest.param(p, id=f"{p[0][5:]}-{p[-1][5:]}") for p in parts]


def inputs_for(name: str, types: list[str]) -> list[np.ndarray]:
    made = []
    for t, x, i in zip(types, (X, Y, Z), (I, J, I[::-1]), strict=False):
        if t.startswith("float"):
            match domain(name):
                case "positive":
                    x = np.abs(x) + 0.01
                case "acosh":
                    x = np.abs(x) + 1
                case "pow":
                    x = np.abs(x) + 0.1 if x is X else x
                case float() | int() as limit:
                    x = (x % 1.0 + 0.001) * 0.99 * limit
            made.append(x.astype(DTYPES[t]))
        elif t == "int16":
            made.append(X.astype(np.float16).view(np.int16))
        elif len(types) == 2 and types[0].startswith("float"):  # an exponent
            made.append((i % 12).astype(np.int32))
        else:
            made.append(i.astype(DTYPES[t]) if t == "int32" else (i * (2**33 + 7)).astype(np.int64))
    return made


def results(launch, names: list[str]):
    kernel, types, outs = kernel_of(names)
    inputs = inputs_for(names[0], types)
    made = [np.zeros(16, DTYPES[str(t)]) for _, t in outs]
    launch(kernel[1, 16], *inputs, *made, counters=False)
    rows = list(zip(*(x.tolist() for x in inputs), strict=True))
    for name in names:
        yield name, rows, [a for a, (n, _) in zip(made, outs, strict=True) if n == name]


def as_columns(values: list) -> list[list]:
    return [list(c) for c in zip(*values, strict=True)] if isinstance(values[0], tuple) else [values]


@pytest.mark.parametrize("names", groups(lambda n: n[5:] in INTEGERS or {n[5:], stem(n)} & {*BITS}))
def test_integers_bits_and_exact_functions_are_exact(launch, names):
    for name, rows, made in results(launch, names):
        definition = INTEGERS.get(name[5:]) or BITS.get(name[5:]) or BITS[stem(name)]
        wanted = as_columns([definition(*row) for row in rows])
        if stem(name) == "nextafter":
            wanted = [[np.nextafter(*(made[0].dtype.type(v) for v in row)) for row in rows]]
        for got, column in zip(made, wanted, strict=True):
            if got.dtype.kind == "i" and stem(name)[:5] in ("isnan", "isinf", "isfin", "finit", "signb"):
                got, column = got != 0, [bool(c) for c in column]  # any value that is not 0 is true
            np.testing.assert_array_equal(got, np.array(column).astype(got.dtype), err_msg=name)


@pytest.mark.parametrize("names", groups(lambda n: NUMBERS.get(stem(n)) or NUMBERS.get(n[5:])))
def test_real_functions_are_within_four_ulps(launch, names):
    for name, rows, made in results(launch, names):
        definition = NUMBERS.get(stem(name)) or NUMBERS[name[5:]]
        wanted = as_columns([definition(*row) for row in rows])
        for got, column in zip(made, wanted, strict=True):
            close = np.array(column, np.float64).astype(got.dtype)
            error = np.abs(got.astype(np.float64) - np.array(column)) / np.spacing(np.abs(close)).astype(np.float64)
            loose = {"lgamma": 1e-14, "cospi": 1e-15, "sinpi": 1e-15, "sincospi": 1e-15}.get(stem(name).removesuffix("f"), 0)
            flat = np.abs(got - column) < loose  # near a zero: the reference's own error
            assert np.all((error <= (40 if "fast" in name else 4)) | flat | (got == close)), (name, rows, got, column)


@pytest.mark.parametrize("t", [np.float32, np.float64])
def test_inverse_error_functions_undo_their_functions(launch, t):
    """erf(erfinv(y)) = y: an error of 2 ulps of x is one of 2 |x f'(x) / f(x)| ulps of y, and 2 more of erf itself."""
    f = "f" if t is np.float32 else ""
    inverse, tail, normal = (getattr(libdevice, n + f) for n in ("erfinv", "erfcinv", "normcdfinv"))

    @cuda.jit
    def kernel(y, a, b, c):
        i = cuda.grid(1)
        a[i], b[i], c[i] = inverse(y[i]), tail(y[i]), normal(y[i])

    y = np.concatenate((np.linspace(0.001, 0.999, 61), [1e-30, 1e-10, 1 - 1e-7])).astype(t)
    a, b, c = (np.zeros(64, t) for _ in range(3))
    launch(kernel[1, 64], y, a, b, c, counters=False)
    eps = np.finfo(t).eps
    for x, f_of, slope in ((a, math.erf, 2 / math.sqrt(math.pi)), (b, math.erfc, 2 / math.sqrt(math.pi))):
        for want, at in zip(y.astype(float), x.astype(float), strict=True):
            allowed = (2 * abs(at) * slope * math.exp(-at * at) + 2 * want) * eps
            assert abs(f_of(at) - want) <= allowed, (want, at)
    for want, at in zip(y.astype(float), c.astype(float), strict=True):
        slope = math.exp(-at * at / 2) / math.sqrt(2 * math.pi)
        allowed = (3 * abs(at) * slope + 2 * want + at * at * want * (at < 0)) * eps  # the argument of erfc is rounded too
        assert abs(math.erfc(-at / math.sqrt(2)) / 2 - want) <= allowed, (want, at)


def test_erfcx_of_negative_numbers(launch):
    """erfcx(-x) = 2 exp(x^2) - erfcx(x)."""
    f = libdevice.erfcx

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        out[i] = f(-x[i]) + f(x[i])

    x = np.array([0.1, 0.5, 1, 2, 4.5, 5, 8])
    out = np.zeros(7)
    launch(kernel[1, 7], x, out)
    np.testing.assert_allclose(out, [2 * math.exp(v * v) * (1 + float(Fraction(v) ** 2 - Fraction(v * v))) for v in x.tolist()], rtol=1e-15)


@pytest.mark.parametrize("name", ["erfinv", "erfcinv", "normcdfinv"])
def test_inverse_error_functions_have_their_poles(launch, name):
    f = getattr(libdevice, name)

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        out[i] = f(x[i])

    out = np.zeros(6)
    launch(kernel[1, 6], np.array([0.0, 1.0, 2.0, -1.0, -1.5, np.nan]), out)
    inf, nan = np.inf, np.nan
    wanted = {
        "erfinv": [0, inf, nan, -inf, nan, nan],
        "erfcinv": [inf, 0, -inf, nan, nan, nan],
        "normcdfinv": [-inf, inf, nan, nan, nan, nan],
    }
    np.testing.assert_array_equal(out, wanted[name])


def _float_of(value: Fraction, t, mode: str) -> float:
    """The float of type t nearest to an exact value, below it, above it, or towards zero."""
    near = t(float(value)) if t is np.float64 else _nearest32(value)
    if mode == "rn" or Fraction(float(near)) == value:
        return near
    up = mode == "ru" or (mode == "rz" and value < 0)
    if up:
        return near if Fraction(float(near)) > value else np.nextafter(near, t(np.inf))
    return near if Fraction(float(near)) < value else np.nextafter(near, t(-np.inf))


def _nearest32(value: Fraction):
    guess = np.float32(float(value))
    around = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    return min(around, key=lambda v: (abs(Fraction(float(v)) - value), int(v.view(np.int32)) & 1))


EXACT = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y, "rcp": lambda x: 1 / x,
         "fma": lambda x, y, z: x * y + z, "fmaf": lambda x, y, z: x * y + z}  # fmt: skip


@pytest.mark.parametrize("names", groups(lambda n: is_rounded(n) and "2" not in n, 8))
def test_arithmetic_rounds_in_the_direction_its_name_says(launch, names):
    for name, rows, (got,) in results(launch, names):
        operation, mode = name[5:].rsplit("_", 1)
        operation = operation if operation.startswith("fma") else operation[1:]
        for row, value in zip(rows, got, strict=True):
            if 0.0 in row[-1:] and operation in ("div", "rcp"):
                continue
            if operation == "sqrt":
                if row[0] < 0:
                    continue
                below = _float_of(Fraction(math.isqrt(int(Fraction(row[0]) * 2**400)), 2**200), got.dtype.type, "rd")
                exact = Fraction(float(below)) ** 2 == Fraction(row[0])
                above = below if exact else np.nextafter(below, got.dtype.type(np.inf))
                wanted = {"rd": below, "rz": below, "ru": above, "rn": got.dtype.type(np.sqrt(got.dtype.type(row[0])))}[mode]
            else:
                wanted = _float_of(EXACT[operation](*map(Fraction, row)), got.dtype.type, mode)
            assert value == wanted, (name, row, value, wanted)


@pytest.mark.parametrize("names", groups(lambda n: is_rounded(n) and "2" in n, 8))
def test_conversions_round_in_the_direction_their_names_say(launch, names):
    whole = {"rn": round, "rd": math.floor, "ru": math.ceil, "rz": math.trunc}
    for name, rows, (got,) in results(launch, names):
        source, mode = name[5:].rsplit("_", 1)
        source, target = source.split("2")
        for (x,), value in zip(rows, got, strict=True):
            if target in ("float", "double"):
                x = x % 2**32 if source == "uint" else x % 2**64 if source == "ull" else x
                wanted = _float_of(Fraction(x), got.dtype.type, mode)
            else:
                wanted = whole[mode](x)
                if target[0] == "u":
                    wanted = max(wanted, 0)  # saturates
            assert value == wanted, (name, x, value, wanted)


def test_after_a_rounded_operation_the_rest_rounds_to_nearest(launch):
    up = libdevice.dadd_ru

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        out[i, 0] = up(x[i], 1e-30)
        out[i, 1] = x[i] + 1e-30

    out = np.zeros((32, 2))
    launch(kernel[1, 32], np.ones(32), out)
    assert np.all(out == [np.nextafter(1, 2), 1.0])
    assert 1.0 + 1e-30 == 1.0  # and so does Python


def test_a_rounded_product_and_sum_are_not_fused(launch):
    """(1 + e)^2 - (1 + 2e): e^2 when fused, 0 when the product is rounded first."""
    product = libdevice.dmul_rn

    @cuda.jit
    def kernel(x, y, out):
        out[0] = product(x[0], x[0]) - y[0]
        out[1] = x[0] * x[0] - y[0]

    e = 2.0**-30
    out = np.zeros(2)
    launch(kernel[1, 1], np.array([1 + e]), np.array([1 + 2 * e]), out)
    assert out.tolist() == [0.0, e * e]


@pytest.mark.parametrize("t", [np.float32, np.float64])
def test_remquo_gives_the_remainder_and_the_low_bits_of_the_quotient(launch, t):
    f = libdevice.remquof if t is np.float32 else libdevice.remquo

    @cuda.jit
    def kernel(x, y, r, q):
        i = cuda.grid(1)
        r[i], q[i] = f(x[i], y[i])

    x, y = np.array([10, -10, 29.5, 7, 1e6, -100.25]).astype(t), np.array([3, 3, 4, -2, 7, 0.5]).astype(t)
    r, q = np.zeros(6, t), np.zeros(6, np.int32)
    launch(kernel[1, 6], x, y, r, q)
    assert r.tolist() == [math.remainder(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    quotients = [round((a - c) / b) for a, b, c in zip(x.tolist(), y.tolist(), r.tolist(), strict=True)]
    assert q.tolist() == [int(math.copysign(abs(n) % 8, n)) for n in quotients]


@pytest.mark.parametrize("f", ["", "f"])
def test_bessel_functions_obey_their_recurrence_and_wronskian(launch, f):
    """J0 + J2 = 2 J1 / x, Y0 + Y2 = 2 Y1 / x, J1 Y0 - J0 Y1 = 2 / (pi x)."""
    j0, j1, jn, y0, y1, yn = (getattr(libdevice, n + f) for n in ("j0", "j1", "jn", "y0", "y1", "yn"))

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        v = x[i]
        out[i, 0], out[i, 1], out[i, 2] = j0(v), j1(v), jn(2, v)
        out[i, 3], out[i, 4], out[i, 5] = y0(v), y1(v), yn(2, v)

    t = np.float32 if f else np.float64
    x = np.linspace(0.5, 20, 32).astype(t)
    out = np.zeros((32, 6), t)
    launch(kernel[1, 32], x, out)
    a, b, c, d, e, g = out.astype(float).T
    size = 1e-5 if f else 1e-13
    np.testing.assert_allclose(a + c, 2 * b / x, atol=size)
    np.testing.assert_allclose(d + g, 2 * e / x, atol=size)
    np.testing.assert_allclose(b * d - a * e, 2 / (math.pi * x.astype(float)), atol=size)


def test_frexp_and_ilogb_of_what_is_not_normal(launch):
    """Subnormal numbers, zeros, infinities and NaN."""
    frexp, ilogb = libdevice.frexp, libdevice.ilogb

    @cuda.jit
    def kernel(x, m, e, n):
        i = cuda.grid(1)
        m[i], e[i] = frexp(x[i])
        n[i] = ilogb(x[i])

    x = np.array([5e-324, -1e-310, 0.0, -0.0, np.inf, -np.inf, np.nan])
    m, e, n = np.zeros(7), np.zeros(7, np.int32), np.zeros(7, np.int32)
    launch(kernel[1, 7], x, m, e, n)
    wanted = np.frexp(x)
    np.testing.assert_array_equal(m, wanted[0])
    assert e.tolist() == [*wanted[1][:4].tolist(), 0, 0, 0]
    low, high = -(2**31), 2**31 - 1
    assert n.tolist() == [-1074, math.frexp(-1e-310)[1] - 1, low, low, high, high, low]
