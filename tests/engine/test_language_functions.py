"""Device functions, closures, globals, constants, and the math module."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import cuda, float32

FACTOR = 7
PAIR = (3, 0.5)
TABLE = np.array([5.0, -1.0, 2.5, 9.0, 0.25, 6.0, 7.0], np.float32)
MATRIX = np.arange(12, dtype=np.int32).reshape(3, 4)


@cuda.jit(device=True)
def square(v):
    return v * v


@cuda.jit(device=True)
def clamp(v, low, high):
    if v < low:
        return low
    if v > high:
        return high
    return v


@cuda.jit(device=True)
def divide(v, d):
    return v // d, v % d


@cuda.jit(device=True)
def fill(row, value):
    for k in range(row.size):
        row[k] = value + k


@cuda.jit(device=True)
def sum_of_squares(row):
    total = 0
    for k in range(row.size):
        total += square(row[k])
    return total


@cuda.jit
def calls(x, out):
    i = cuda.grid(1)
    if i < x.size:
        quotient, rest = divide(x[i], 7)
        out[i] = square(clamp(x[i], -3, 10)) + 1000 * quotient + 100000 * rest


def test_device_functions_with_branches_and_several_results(launch, rng):
    x, out = rng.integers(-50, 50, 100), np.zeros(100, np.int64)
    launch(calls[4, 32], x, out)
    np.testing.assert_array_equal(out, np.clip(x, -3, 10) ** 2 + 1000 * (x // 7) + 100000 * (x % 7))


@cuda.jit
def calls_on_rows(a, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = sum_of_squares(a[i])
        fill(a[i], i)


def test_device_functions_take_views(launch, rng):
    a, out = rng.integers(-9, 9, (70, 5)), np.zeros(70, np.int64)
    wanted = (a**2).sum(1)
    launch(calls_on_rows[3, 32], a, out)
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(a, np.add.outer(np.arange(70), np.arange(5)))


def make_scaled(factor, function):
    @cuda.jit
    def scaled(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = factor * function(x[i])

    return scaled


def test_closures_are_constants_of_the_kernel(launch, rng):
    x = rng.integers(-9, 9, 50)
    for factor in (2, 5):
        out = np.zeros(50, np.int64)
        launch(make_scaled(factor, square)[2, 32], x, out)
        np.testing.assert_array_equal(out, factor * x * x)


@cuda.jit
def uses_globals(out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = FACTOR * i + PAIR[0] * PAIR[1] + TABLE[i % 7] + MATRIX[i % 3, i % 4]


def test_globals_scalars_tuples_and_arrays(launch):
    out = np.zeros(64)
    launch(uses_globals[2, 32], out)
    i = np.arange(64)
    np.testing.assert_allclose(out, FACTOR * i + 1.5 + TABLE[i % 7] + MATRIX[i % 3, i % 4])


@cuda.jit
def uses_constant_arrays(out):
    i = cuda.grid(1)
    table = cuda.const.array_like(TABLE)
    matrix = cuda.const.array_like(MATRIX)
    if i < out.size:
        out[i] = table[i % 7] * matrix[i % 3, (i // 3) % 4]


def test_constant_arrays(launch):
    out = np.zeros(64, np.float32)
    launch(uses_constant_arrays[2, 32], out)
    i = np.arange(64)
    np.testing.assert_array_equal(out, TABLE[i % 7] * MATRIX[i % 3, (i // 3) % 4])


UNARY = {
    "sqrt": (np.sqrt, 0.0, 50.0), "exp": (np.exp, -5.0, 5.0), "expm1": (np.expm1, -1.0, 1.0), "log": (np.log, 0.1, 50.0),
    "log2": (np.log2, 0.1, 50.0), "log10": (np.log10, 0.1, 50.0), "log1p": (np.log1p, -0.5, 5.0), "sin": (np.sin, -9.0, 9.0),
    "cos": (np.cos, -9.0, 9.0), "tan": (np.tan, -1.4, 1.4), "asin": (np.arcsin, -1.0, 1.0), "acos": (np.arccos, -1.0, 1.0),
    "atan": (np.arctan, -9.0, 9.0), "sinh": (np.sinh, -3.0, 3.0), "cosh": (np.cosh, -3.0, 3.0), "tanh": (np.tanh, -3.0, 3.0),
    "asinh": (np.arcsinh, -3.0, 3.0), "acosh": (np.arccosh, 1.0, 9.0), "atanh": (np.arctanh, -0.9, 0.9), "fabs": (np.fabs, -9.0, 9.0),
    "erf": (np.vectorize(math.erf), -2.0, 2.0), "erfc": (np.vectorize(math.erfc), -2.0, 2.0),
    "gamma": (np.vectorize(math.gamma), 0.5, 5.0), "lgamma": (np.vectorize(math.lgamma), 0.5, 5.0),
    "floor": (np.floor, -9.0, 9.0), "ceil": (np.ceil, -9.0, 9.0), "trunc": (np.trunc, -9.0, 9.0),
}  # fmt: skip
BINARY = {
    "pow": (np.power, 0.1, 4.0), "atan2": (np.arctan2, -3.0, 3.0), "fmod": (np.fmod, 0.5, 9.0),
    "hypot": (np.hypot, -3.0, 3.0), "copysign": (np.copysign, -3.0, 3.0),
}  # fmt: skip


def map_of_six(functions):
    f0, f1, f2, f3, f4, f5 = functions

    @cuda.jit
    def six(x, out):
        i = cuda.grid(1)
        if i < out.shape[0]:
            out[i, 0] = f0(x[i, 0])
            out[i, 1] = f1(x[i, 1])
            out[i, 2] = f2(x[i, 2])
            out[i, 3] = f3(x[i, 3])
            out[i, 4] = f4(x[i, 4])
            out[i, 5] = f5(x[i, 5])

    return six


@cuda.jit
def five_of_two(x, y, out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i, 0] = math.pow(x[i, 0], y[i, 0])
        out[i, 1] = math.atan2(x[i, 1], y[i, 1])
        out[i, 2] = math.fmod(x[i, 2], y[i, 2])
        out[i, 3] = math.hypot(x[i, 3], y[i, 3])
        out[i, 4] = math.copysign(x[i, 4], y[i, 4])


def assert_within_ulps(got, wanted, names):
    tolerance = 16 * np.finfo(got.dtype).eps
    for k, name in enumerate(names):
        np.testing.assert_allclose(got[:, k], wanted[k], rtol=tolerance, atol=tolerance, err_msg=name)


SIX = 6
GROUPS = [(list(UNARY) * 2)[k : k + SIX] for k in range(0, len(UNARY), SIX)]  # the last one is filled from the front


def test_every_function_is_in_a_group():
    assert {name for group in GROUPS for name in group} == set(UNARY)
    assert {len(group) for group in GROUPS} == {SIX}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: "-".join(names))
def test_math_functions_within_a_few_ulp(launch, rng, names, dtype):
    x = np.stack([rng.uniform(*UNARY[name][1:], 100) for name in names], 1).astype(dtype)
    out = np.zeros((100, SIX), dtype)
    launch(map_of_six([getattr(math, name) for name in names])[4, 32], x, out)
    assert_within_ulps(out, [UNARY[name][0](x[:, k].astype(np.float64)) for k, name in enumerate(names)], names)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_math_functions_of_two_arguments(launch, rng, dtype):
    x, y = (np.stack([rng.uniform(low, high, 100) for _, low, high in BINARY.values()], 1).astype(dtype) for _ in range(2))
    out = np.zeros((100, len(BINARY)), dtype)
    launch(five_of_two[4, 32], x, y, out)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    assert_within_ulps(out, [reference(wide_x[:, k], wide_y[:, k]) for k, (reference, *_) in enumerate(BINARY.values())], BINARY)


@cuda.jit
def predicates(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = math.isnan(x[i])
        out[i, 1] = math.isinf(x[i])
        out[i, 2] = math.isfinite(x[i])
        out[i, 3] = x[i] == x[i]
        out[i, 4] = x[i] < 1.0
        out[i, 5] = not (x[i] >= 1.0)
        out[i, 6] = x[i] != 0.0


def test_nan_and_infinity_compare_as_ieee_says(launch):
    x = np.array([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 5e-324, -3.0])
    out = np.zeros((x.size, 7), np.bool_)
    launch(predicates[1, 32], x, out)
    wanted = np.stack([np.isnan(x), np.isinf(x), np.isfinite(x), x == x, x < 1, ~(x >= 1), x != 0], 1)
    np.testing.assert_array_equal(out, wanted)


@cuda.jit
def builtins(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = abs(x[i])
        out[i, 1] = min(x[i], y[i])
        out[i, 2] = max(x[i], y[i])
        out[i, 3] = round(x[i])
        out[i, 4] = int(x[i])
        out[i, 5] = float32(x[i])
        out[i, 6] = max(x[i], y[i], 2.0)
        out[i, 7] = x[i] ** 2
        out[i, 8] = x[i] ** 3


def test_builtins(launch, rng):
    x, y = rng.uniform(-9, 9, (2, 60))
    out = np.zeros((60, 9))
    launch(builtins[2, 32], x, y, out)
    wanted = [abs(x), np.minimum(x, y), np.maximum(x, y), np.rint(x), np.trunc(x), x.astype(np.float32), np.maximum(np.maximum(x, y), 2)]
    np.testing.assert_allclose(out, np.stack([*wanted, x**2, x**3], 1), rtol=1e-14)


@cuda.jit
def intrinsics(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = cuda.popc(x[i])
        out[i, 1] = cuda.clz(x[i])
        out[i, 2] = cuda.ffs(x[i])
        out[i, 3] = cuda.brev(x[i])


def test_bit_intrinsics(launch, rng):
    x = rng.integers(0, 2**32, 64, dtype=np.uint64).astype(np.uint32)
    x[0] = 0
    out = np.zeros((64, 4), np.int64)
    launch(intrinsics[2, 32], x, out)

    def bits(v):
        text = f"{v:032b}"
        return text.count("1"), len(text) - len(text.lstrip("0")), (len(text) - text.rindex("1") if v else 0), int(text[::-1], 2)

    wanted = np.array([bits(int(v)) for v in x])
    np.testing.assert_array_equal(out.astype(np.uint32), wanted.astype(np.uint32))


@cuda.jit
def fused(x, y, z, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = cuda.fma(x[i], y[i], z[i])
        out[i, 1] = cuda.cbrt(x[i])
        out[i, 2] = cuda.selp(x[i] < 0.0, y[i], z[i])


def test_fma_rounds_once(launch, rng):
    """x*y - round(x*y) is 0 with two roundings, and the rounding error with one."""
    x, y = rng.uniform(-2, 2, (2, 64)).astype(np.float32)
    z = -(x * y)
    out = np.zeros((64, 3), np.float32)
    launch(fused[2, 32], x, y, z, out)
    exact = x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)
    assert (exact != 0).any()
    np.testing.assert_array_equal(out[:, 0], exact.astype(np.float32))
    np.testing.assert_allclose(out[:, 1], np.cbrt(x), rtol=1e-6)
    np.testing.assert_array_equal(out[:, 2], np.where(x < 0, y, z))
