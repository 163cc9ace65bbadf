"""Types of the numba.cuda language: every numeric dtype as scalar and array, and arithmetic with numba's meaning."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from numba import cuda, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32

from solcourse.simt import frontend

SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float32, np.float64]
COMPLEX = [np.complex64, np.complex128]
EVERY = [np.bool_, *SIGNED, *UNSIGNED, *FLOATS, *COMPLEX]


@cuda.jit
def scalar_to_array(value, x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i]
        if i % 2:
            out[i] = value


@pytest.mark.parametrize("dtype", EVERY)
def test_scalars_and_arrays_of_every_type(launch, rng, dtype):
    extreme = {
        "i": lambda: np.iinfo(dtype).min,
        "u": lambda: np.iinfo(dtype).max,
        "b": lambda: True,
        "f": lambda: -1.25,
        "c": lambda: 2 - 3j,
    }
    value = np.dtype(dtype).type(extreme[np.dtype(dtype).kind]())
    x = rng.integers(0, 100, 70).astype(dtype)
    out = np.zeros(70, dtype)
    launch(scalar_to_array[3, 32], value, x, out)
    np.testing.assert_array_equal(out, np.where(np.arange(70) % 2 == 1, value, x))
    assert out.dtype == dtype


@cuda.jit
def python_scalars(b, i, f, c, out):
    if b:
        out[0] = i
        out[1] = f
        out[2] = c.real
        out[3] = c.imag


def test_python_scalars(launch):
    out = np.zeros(4)
    launch(python_scalars[1, 1], True, -(2**40), 0.1, 1.5 - 2.5j, out)
    np.testing.assert_array_equal(out, [-(2.0**40), 0.1, 1.5, -2.5])


@cuda.jit
def integer_arithmetic(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = x[i] + y[i]
        out[i, 1] = x[i] - y[i]
        out[i, 2] = x[i] * y[i]
        out[i, 3] = x[i] // y[i]
        out[i, 4] = x[i] % y[i]
        out[i, 5] = x[i] & y[i]
        out[i, 6] = x[i] | y[i]
        out[i, 7] = x[i] ^ y[i]
        out[i, 8] = ~x[i]
        out[i, 9] = -x[i]
        out[i, 10] = x[i] << 3
        out[i, 11] = x[i] >> 2
        out[i, 12] = x[i] < y[i]
        out[i, 13] = abs(x[i])


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_integer_arithmetic_and_the_sign_of_division(launch, rng, dtype):
    """Floor division and modulo as Python's; results wrap to the width of the output."""
    x = rng.integers(np.iinfo(dtype).min // 2, np.iinfo(dtype).max // 2, 96, dtype=dtype)
    y = rng.integers(max(-9, np.iinfo(dtype).min), 9, 96).astype(dtype)
    y[y == 0] = 3
    out = np.zeros((96, 14), dtype)
    launch(integer_arithmetic[3, 32], x, y, out)

    def wrapped(value: int) -> int:
        bits = 8 * np.dtype(dtype).itemsize
        value &= (1 << bits) - 1
        return value - (1 << bits) if np.dtype(dtype).kind == "i" and value >> (bits - 1) else value

    def one(a: int, b: int) -> list[int]:
        both = [a + b, a - b, a * b, a // b, a % b, a & b, a | b, a ^ b, ~a, -a, a << 3, a >> 2, a < b, abs(a)]
        return [wrapped(int(v)) for v in both]

    wanted = np.array([one(int(a), int(b)) for a, b in zip(x, y, strict=True)], dtype=dtype)
    np.testing.assert_array_equal(out, wanted)


@cuda.jit
def division_by_zero(x, y, xf, yf, out, outf):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = x[i] // y[i]
        out[i, 1] = x[i] % y[i]
        outf[i, 0] = xf[i] / yf[i]
        outf[i, 1] = x[i] / y[i]


def test_division_by_zero_raises_nothing(launch):
    """numba's error model outside debug mode: integers give 0, floats an infinity or NaN. A GPU stops nowhere here."""
    x, y = np.array([7, -7, 0, 8]), np.array([0, 0, 0, 2])
    out, outf = np.full((4, 2), -1), np.full((4, 2), -1.0)
    launch(division_by_zero[1, 32], x, y, x.astype(float), y.astype(float), out, outf)
    np.testing.assert_array_equal(out, [[0, 0], [0, 0], [0, 0], [4, 0]])
    np.testing.assert_array_equal(outf, [[np.inf] * 2, [-np.inf] * 2, [np.nan] * 2, [4.0] * 2])


@cuda.jit
def float_arithmetic(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = x[i] + y[i]
        out[i, 1] = x[i] - y[i]
        out[i, 2] = x[i] * y[i]
        out[i, 3] = x[i] / y[i]
        out[i, 4] = x[i] // y[i]
        out[i, 5] = x[i] % y[i]
        out[i, 6] = -x[i]
        out[i, 7] = abs(x[i])


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_arithmetic(launch, rng, dtype):
    x, y = rng.uniform(-9, 9, (2, 96)).astype(dtype)
    out = np.zeros((96, 8), dtype)
    launch(float_arithmetic[3, 32], x, y, out)
    wanted = np.stack([x + y, x - y, x * y, x / y, x // y, x % y, -x, abs(x)], 1)
    np.testing.assert_allclose(out, wanted, rtol=4 * np.finfo(dtype).eps, atol=8 * np.finfo(dtype).eps)


@cuda.jit
def absorbs(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = (x[i] + y[i]) - x[i]


def test_float32_stays_float32(launch):
    """1 + 1e-8 is 1 in float32 and not in float64."""
    for dtype, wanted in ((np.float32, 0.0), (np.float64, (1 + 1e-8) - 1)):
        out = np.full(32, np.nan, dtype)
        launch(absorbs[1, 32], np.ones(32, dtype), np.full(32, 1e-8, dtype), out)
        np.testing.assert_array_equal(out, np.full(32, wanted))


@cuda.jit
def mixed(i32, f32, u8, out32, out64):
    i = cuda.grid(1)
    if i < i32.size:
        out64[i, 0] = i32[i] / 3
        out64[i, 1] = f32[i] * 2.5
        out64[i, 2] = i32[i] * i32[i]
        out64[i, 3] = u8[i] - 200
        out32[i, 0] = f32[i] * float32(0.1)
        out32[i, 1] = u8[i] / float32(7)
        out32[i, 2] = i32[i]


def test_mixed_types_promote_as_in_numba(launch, rng):
    """int32 * int32 is 64 bits wide; an integer array and / give float64; float32 with a float32 constant stays float32."""
    i32 = rng.integers(-(2**31), 2**31 - 1, 64).astype(np.int32)
    f32, u8 = rng.uniform(-1, 1, 64).astype(np.float32), rng.integers(0, 255, 64).astype(np.uint8)
    out32, out64 = np.zeros((64, 3), np.float32), np.zeros((64, 4))
    launch(mixed[2, 32], i32, f32, u8, out32, out64)
    wide = i32.astype(np.int64)
    np.testing.assert_allclose(out64, np.stack([wide / 3, f32 * np.float64(2.5), wide * wide, u8.astype(np.int64) - 200], 1), rtol=1e-15)
    np.testing.assert_allclose(out32, np.stack([f32 * np.float32(0.1), u8 / np.float32(7), i32.astype(np.float32)], 1), rtol=1e-6)


@cuda.jit
def casts(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = int8(x[i])
        out[i, 1] = uint8(x[i])
        out[i, 2] = int16(x[i])
        out[i, 3] = uint16(x[i])
        out[i, 4] = int32(x[i])
        out[i, 5] = uint32(x[i])
        out[i, 6] = int64(float64(x[i]) * 0.5)
        out[i, 7] = int64(float32(x[i]))


def test_casts_wrap_and_truncate(launch, rng):
    x = rng.integers(-(2**40), 2**40, 64)
    out = np.zeros((64, 8), np.int64)
    launch(casts[2, 32], x, out)
    narrow = [x.astype(t).astype(np.int64) for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)]
    wanted = [*narrow, np.trunc(x * 0.5).astype(np.int64), x.astype(np.float32).astype(np.int64)]
    np.testing.assert_array_equal(out, np.stack(wanted, 1))


@cuda.jit
def booleans(p, q, out):
    i = cuda.grid(1)
    if i < p.size:
        out[i, 0] = p[i] and not q[i]
        out[i, 1] = p[i] or q[i]
        out[i, 2] = p[i] != q[i]
        out[i, 3] = p[i] & q[i]
        out[i, 4] = True if p[i] else q[i]


def test_boolean_arrays(launch, rng):
    p, q = rng.integers(0, 2, (2, 64)).astype(np.bool_)
    out = np.zeros((64, 5), np.bool_)
    launch(booleans[2, 32], p, q, out)
    np.testing.assert_array_equal(out, np.stack([p & ~q, p | q, p != q, p & q, p | q], 1))
    assert set(out.view(np.uint8).ravel()) <= {0, 1}


@cuda.jit
def complex_arithmetic(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = x[i] + y[i]
        out[i, 1] = x[i] * y[i]
        out[i, 2] = x[i] / y[i]
        out[i, 3] = x[i].conjugate() - y[i]
        out[i, 4] = complex(x[i].imag, y[i].real)
        out[i, 5] = abs(x[i])


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_arithmetic(launch, rng, dtype):
    x, y = (rng.uniform(-2, 2, (2, 64)) + 1j * rng.uniform(0.5, 2, (2, 64))).astype(dtype)
    out = np.zeros((64, 6), dtype)
    launch(complex_arithmetic[2, 32], x, y, out)
    wanted = np.stack([x + y, x * y, x / y, x.conj() - y, x.imag + 1j * y.real, abs(x)], 1)
    np.testing.assert_allclose(out, wanted, rtol=1e-6 if dtype == np.complex64 else 1e-14)


Scale = collections.namedtuple("Scale", ["factor", "shift"])


@cuda.jit
def takes_tuples(arrays, numbers, scale, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = arrays[0][i] + arrays[1][i] * numbers[1] + numbers[0] + scale.factor * scale.shift


def test_tuples_and_named_tuples_of_arrays_and_scalars(launch, rng):
    x, y = rng.integers(-9, 9, 50), rng.uniform(-9, 9, 50)
    out = np.zeros(50)
    launch(takes_tuples[2, 32], (x, y), (3, 0.5), Scale(2.0, np.int8(-4)), out)
    np.testing.assert_allclose(out, x + y * 0.5 + 3 - 8)


@cuda.jit
def writes_through_a_tuple(arrays):
    i = cuda.grid(1)
    if i < arrays[0].size:
        arrays[1][i] = arrays[0][i] + 1


def test_arrays_in_tuples_are_written_back(launch):
    x, out = np.arange(40), np.zeros(40, np.int64)
    launch(writes_through_a_tuple[2, 32], (x, out))
    np.testing.assert_array_equal(out, np.arange(40) + 1)


POINT = np.dtype([("x", np.float32), ("y", np.float64), ("k", np.int16)], align=True)


@cuda.jit
def records(points, out):
    i = cuda.grid(1)
    if i < points.size:
        out[i] = points[i].x + points[i].y * points[i].k
        points[i].k = i


def test_records(launch, rng):
    points = np.zeros(50, POINT)
    points["x"], points["y"], points["k"] = rng.uniform(-1, 1, 50), rng.uniform(-1, 1, 50), rng.integers(-9, 9, 50)
    wanted = points["x"] + points["y"] * points["k"]
    out = np.zeros(50)
    launch(records[2, 32], points, out)
    np.testing.assert_allclose(out, wanted, rtol=1e-6)
    np.testing.assert_array_equal(points["k"], np.arange(50))


@cuda.jit
def halves(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * y[i] + x[i]


def test_float16(launch, rng):
    x, y = rng.uniform(-2, 2, (2, 64)).astype(np.float16)
    out = np.zeros(64, np.float16)
    launch(halves[2, 32], x, y, out)
    np.testing.assert_allclose(out, x.astype(float) * y + x, rtol=2e-3, atol=2e-3)


@cuda.jit
def accumulates(x, out):
    i = cuda.grid(1)
    total = float32(0)
    for k in range(x.size):
        total += x[k]
    out[i] = total


def test_float32_accumulator_saturates_at_two_to_the_24(launch):
    x, out = np.array([2.0**24, 1, 1, 1], np.float32), np.zeros(32, np.float32)
    launch(accumulates[1, 32], x, out)
    np.testing.assert_array_equal(out, np.full(32, 2.0**24))


@cuda.jit
def subnormals(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * float32(0.5)


def test_subnormals_are_kept(launch):
    x = np.full(32, 1e-40, np.float32)
    out = np.zeros(32, np.float32)
    launch(subnormals[1, 32], x, out)
    np.testing.assert_array_equal(out, x * np.float32(0.5))


@cuda.jit
def to_eight_bits(x, unsigned, signed):
    i = cuda.grid(1)
    if i < x.size:
        unsigned[i] = x[i]
        signed[i] = int8(x[i])


def test_floats_become_eight_bit_integers_by_way_of_sixteen(launch):
    """PTX converts to 16 bits, saturating, and stores the low byte: 300 is 0x12c, 70,000 saturates at 0xffff (and 0x7fff)."""
    x = np.array([3.9, 300.7, -1.0, 70000.0, -70000.0])
    unsigned, signed = np.zeros(5, np.uint8), np.zeros(5, np.int8)
    launch(to_eight_bits[1, 32], x, unsigned, signed)
    np.testing.assert_array_equal(unsigned, [3, 0x2C, 0, 0xFF, 0])
    np.testing.assert_array_equal(signed, [3, 0x2C, -1, -1, 0])


@cuda.jit
def square(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] ** 2


def test_a_square_that_wraps_around_is_converted_as_the_wrapped_value(launch):
    """numba-cuda types x**2 of an int64 as float64: int64(float64(wrapped square)). numba's own numba.cuda keeps it an int64."""
    x = np.array([5068040008753533402, 3], np.int64)
    out = np.zeros(2, np.int64)
    launch(square[1, 32], x, out)
    wrapped = (int(x[0]) ** 2 + 2**63) % 2**64 - 2**63
    assert wrapped < 0
    np.testing.assert_array_equal(out, [int(float(wrapped)) if frontend.front_end() == "numba-cuda" else wrapped, 9])
