"""A polynomial by Horner's rule: 2 FLOPs per degree on 8 bytes, so a high degree is compute-bound.

1 + x + x^2 + ... + x^degree. The chain of FMAs is the catch: each waits for the one before, until several run side by side.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work

THREADS = 256
DEGREE = 64
ONE = np.float32(1.0)  # a Python literal 1.0 would be float64, and turn the whole chain into float64
CHAINS = 4


def reference(x: np.ndarray, out: np.ndarray, degree: int) -> np.ndarray:  # (n,) -> (n,)
    return np.polyval(np.ones(degree + 1), x.astype(np.float64)).astype(x.dtype)


def work(n: int, degree: int = DEGREE) -> Work:
    return Work.read("x", 4 * n) + Work.write("out", 4 * n) + Work.flop("fp32", 2 * degree * n)


@cuda.jit
def polynomial(x, out, degree):
    """One chain per thread: `degree` FMAs, each waiting for the last."""
    i = cuda.grid(1)
    if i < out.size:
        value = x[i]
        total = ONE
        for _ in range(degree):
            total = total * value + ONE
        out[i] = total


@cuda.jit
def polynomial_float64_literal(x, out, degree):
    """The same with the literal 1.0: float64 all along the chain, by accident."""
    i = cuda.grid(1)
    if i < out.size:
        value = x[i]
        total = 1.0
        for _ in range(degree):
            total = total * value + 1.0
        out[i] = total


@cuda.jit
def polynomial_four_chains(x, out, degree):
    """Four elements per thread, a grid apart: four independent FMAs are always ready, with a quarter of the threads."""
    i = cuda.grid(1)
    size = cuda.gridsize(1)
    if i + 3 * size < out.size:
        a, b, c, d = x[i], x[i + size], x[i + 2 * size], x[i + 3 * size]
        p = q = r = s = ONE
        for _ in range(degree):
            p = p * a + ONE
            q = q * b + ONE
            r = r * c + ONE
            s = s * d + ONE
        out[i], out[i + size], out[i + 2 * size], out[i + 3 * size] = p, q, r, s
    else:
        for j in range(i, out.size, size):
            value = x[j]
            total = ONE
            for _ in range(degree):
                total = total * value + ONE
            out[j] = total


def _make(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return random_array(rng, n, dtype), poisoned(n, dtype), DEGREE


def _launch(n: int) -> tuple:
    return ceil_div(n, THREADS), THREADS


def _launch_chains(n: int) -> tuple:
    return ceil_div(n, CHAINS * THREADS), THREADS


def _case(kernel, launch, dtypes=(np.float32,)) -> Case:
    return Case(kernel, _make, launch, reference, work, (1,), ((4096,), (1,), (999,)), dtypes, tolerance=1e-5)


CASES = {
    "polynomial": _case(polynomial, _launch),
    "polynomial_float64_literal": _case(polynomial_float64_literal, _launch, (np.float32, np.float64)),
    "polynomial_four_chains": _case(polynomial_four_chains, _launch_chains),
}
