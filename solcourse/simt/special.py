"""Functions of libdevice that no C library has, in Python; compiled for the CPU the first time a kernel needs one.

Within a few units in the last place of the true value. `provide` is the door.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import llvmlite.binding as llvm
import numba

compiled = numba.njit(error_model="numpy")

_ROOT_2, _ROOT_PI = math.sqrt(2), math.sqrt(math.pi)
_HALF_ROOT_LOW = -4.833646656726457e-17  # sqrt(1/2) less its double


@compiled
def _split(x: float) -> tuple[float, float]:
    """x as a sum of two numbers of 26 bits, whose products are exact."""
    big = x * 134217729.0
    high = big - (big - x)
    return high, x - high


@compiled
def _inverse_tail(y: float) -> float:
    """x > 0 with erfc(x) = y, for 0 < y <= 1: Winitzki's estimate, then Halley's method."""
    log = math.log(y * (2 - y))
    middle = 4.3307467508 + log / 2  # 2 / (0.147 pi)
    x = math.sqrt(math.sqrt(middle * middle - log / 0.147) - middle)
    for _ in range(3):
        slope = math.exp(-x * x)
        if slope == 0.0:
            return x
        error = (math.erfc(x) - y) / slope * (_ROOT_PI / -2)
        x -= error / (1 + x * error)
    return x


@compiled
def erfinv(y: float) -> float:
    """x with erf(x) = y."""
    size = abs(y)
    if size > 1 or y != y:
        return math.nan
    if size == 1:
        return math.copysign(math.inf, y)
    if size >= 0.5:
        return math.copysign(_inverse_tail(1 - size), y)
    x = y * (_ROOT_PI / 2)
    for _ in range(5):
        error = (math.erf(x) - y) * math.exp(x * x) * (_ROOT_PI / 2)
        x -= error / (1 + x * error)
    return x


@compiled
def erfcinv(y: float) -> float:
    """x with erfc(x) = y."""
    if y < 0 or y > 2 or y != y:
        return math.nan
    if y == 0 or y == 2:
        return math.copysign(math.inf, 1 - y)
    if y < 0.5:
        return _inverse_tail(y)
    return erfinv(1 - y) if y <= 1.5 else -_inverse_tail(2 - y)


@compiled
def erfcx(x: float) -> float:
    """exp(x^2) erfc(x). From 10 on by its asymptotic series; below with what x * x loses."""
    if x >= 10:
        if x > 1e10:
            return 1 / (x * _ROOT_PI)
        term = total = 1.0
        for k in range(1, 30):
            term *= -(2 * k - 1) / (2 * x * x)
            total += term
            if abs(term) < 1e-17:
                break
        return total / (x * _ROOT_PI)
    if x < -27:
        return math.inf if x == x else x
    high, low = _split(x)
    square = x * x
    rest = ((high * high - square) + 2 * high * low) + low * low
    return math.exp(square) * (1 + rest) * math.erfc(x)


@compiled
def normcdf(x: float) -> float:
    """The normal distribution: erfc(-x / sqrt 2) / 2, with what the quotient loses."""
    if x < -38.6 or x > 10 or x != x:
        return x if x != x else 0.0 if x < 0 else 1.0
    root = _ROOT_2 / 2
    z = -x * root
    (a, b), (c, d) = _split(-x), _split(root)
    rest = ((a * c - z) + a * d + b * c) + b * d - x * _HALF_ROOT_LOW
    return (math.erfc(z) - 2 / _ROOT_PI * math.exp(-z * z) * rest) / 2


@compiled
def normcdfinv(p: float) -> float:
    return -_ROOT_2 * erfcinv(2 * p)


@compiled
def sinpi(x: float) -> float:
    """sin(pi x), exact where it is 0, 1 or -1."""
    if math.isinf(x) or x != x:
        return math.nan
    r = abs(x) - 2 * math.floor(abs(x) / 2)  # exact
    sign = math.copysign(1.0, x)
    if r > 1:
        r, sign = r - 1, -sign
    if r > 0.5:
        r = 1 - r
    return sign * (math.cos(math.pi * (0.5 - r)) if r > 0.25 else math.sin(math.pi * r))


@compiled
def cospi(x: float) -> float:
    """cos(pi x), exact where it is 0, 1 or -1."""
    if math.isinf(x) or x != x:
        return math.nan
    r = abs(x) - 2 * math.floor(abs(x) / 2)  # exact
    if r > 1:
        r = 2 - r
    if r <= 0.25:
        return math.cos(math.pi * r)
    if r < 0.75:
        return math.sin(math.pi * (0.5 - r))
    return -math.cos(math.pi * (1 - r))


_FUNCTIONS = {f"simt_{f.__name__}": f for f in (erfinv, erfcinv, erfcx, normcdf, normcdfinv, sinpi, cospi)}
_LOCK = threading.Lock()
_MADE: dict[str, Any] = {}


def provide(symbol: str) -> bool:
    """Makes a function callable from native code by its symbol, simt_NAME. False: there is none of that name."""
    if symbol not in _FUNCTIONS:
        return False
    with _LOCK:
        if symbol not in _MADE:
            _MADE[symbol] = numba.cfunc("float64(float64)", error_model="numpy")(_FUNCTIONS[symbol].py_func)
            llvm.add_symbol(symbol, _MADE[symbol].address)
    return True
