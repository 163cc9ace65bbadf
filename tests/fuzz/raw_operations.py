"""Operations on any float, infinities and NaN too: as text, and in NumPy. Their results are only stored, never used again.

name -> (text, NumPy, how the result is compared: "bits" but for a NaN's, "value" (zeros are equal), "near" (last places differ)).
x, y, z are elements of one float type; `text` sees them as names, NumPy as scalars of that type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np


def rounded(value: Fraction, t: type) -> np.floating:
    """The float of type t nearest to a fraction, ties to even."""
    if value == 0:
        return t(0)
    info = np.finfo(t)
    exponent = max(value.numerator.bit_length() - value.denominator.bit_length(), int(info.minexp))
    if abs(value) < Fraction(2) ** exponent:
        exponent = max(exponent - 1, int(info.minexp))
    ulp = Fraction(2) ** (exponent - info.nmant)
    whole = math.floor(value / ulp)
    rest = value / ulp - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
        whole += 1
    result = whole * ulp
    return t(np.copysign(np.inf, float(value > 0) - 0.5)) if abs(result) > Fraction(float(info.max)) else t(float(result))


def fused(x, y, z):
    """x * y + z, rounded once. The product of finite factors is finite here, however large."""
    if not (np.isfinite(x) and np.isfinite(y)):
        with np.errstate(all="ignore"):
            return x * y + z
    if not np.isfinite(z):
        return z
    return rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), type(x))


def modulo(x, y):
    """Python's %: the sign of y. By zero: NaN."""
    if y == 0:
        return np.fmod(x, y)
    rest = np.fmod(x, y)
    if rest != 0:
        return rest + y if (rest < 0) != (y < 0) else rest
    return np.copysign(type(x)(0), y)


def _one(f: Callable) -> Callable:
    return lambda x, y, z: f(x)


RAW: dict[str, tuple[str, Callable, str]] = {
    "add": ("x + y", lambda x, y, z: x + y, "bits"),
    "subtract": ("x - y", lambda x, y, z: x - y, "bits"),
    "multiply": ("x * y", lambda x, y, z: x * y, "bits"),
    "divide": ("x / y", lambda x, y, z: x / y, "bits"),
    "negate": ("-x", lambda x, y, z: -x, "bits"),
    "abs": ("abs(x)", _one(np.abs), "bits"),
    "fabs": ("math.fabs(x)", _one(np.fabs), "bits"),
    "sqrt": ("math.sqrt(x)", _one(np.sqrt), "bits"),
    "floor": ("math.floor(x)", _one(np.floor), "bits"),
    "ceil": ("math.ceil(x)", _one(np.ceil), "bits"),
    "trunc": ("math.trunc(x)", _one(np.trunc), "bits"),
    "copysign": ("math.copysign(x, y)", lambda x, y, z: np.copysign(x, y), "bits"),
    "less": ("x if x < y else y", lambda x, y, z: x if x < y else y, "bits"),
    "not_less": ("y if not x < y else x", lambda x, y, z: y if not x < y else x, "bits"),
    "at_least": ("x if x >= y else z", lambda x, y, z: x if x >= y else z, "bits"),
    "equal": ("x if x == y else z", lambda x, y, z: x if x == y else z, "bits"),
    "unequal": ("x if x != y else z", lambda x, y, z: x if x != y else z, "bits"),
    "between": ("x if y < x < z else y", lambda x, y, z: x if y < x < z else y, "bits"),
    "isnan": ("y if math.isnan(x) else x", lambda x, y, z: y if np.isnan(x) else x, "bits"),
    "isinf": ("y if math.isinf(x) else x", lambda x, y, z: y if np.isinf(x) else x, "bits"),
    "isfinite": ("x if math.isfinite(x) else y", lambda x, y, z: x if np.isfinite(x) else y, "bits"),
    "modulo": ("x % y", lambda x, y, z: modulo(x, y), "value"),
    "fma": ("cuda.fma(x, y, z)", lambda x, y, z: fused(x, y, z), "value"),
    "exp": ("math.exp(x)", _one(np.exp), "near"),
    "log": ("math.log(x)", _one(np.log), "near"),
    "sin": ("math.sin(x)", _one(np.sin), "near"),
    "cos": ("math.cos(x)", _one(np.cos), "near"),
    "tanh": ("math.tanh(x)", _one(np.tanh), "near"),
    "atan2": ("math.atan2(x, y)", lambda x, y, z: np.arctan2(x, y), "near"),
    "hypot": ("math.hypot(x, y)", lambda x, y, z: np.hypot(x, y), "near"),
    "pow": ("x ** y", lambda x, y, z: np.power(x, y), "near"),
}  # fmt: skip
KINDS = ("bits", "value", "near")


def operands_of(name: str) -> set[str]:
    """Which of x, y, z the text of an operation has."""
    return set(re.findall(r"\b[xyz]\b", RAW[name][0]))


def evaluate(name: str, x, y, z):
    with np.errstate(all="ignore"):
        return type(x)(RAW[name][1](x, y, z))
