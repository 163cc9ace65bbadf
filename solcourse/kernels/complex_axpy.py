"""Complex saxpy in complex64. numba loads the real parts, then the imaginary parts: 8 sectors each, the same 8 twice."""

from __future__ import annotations

import numpy as np
from numba import cuda

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work

THREADS = 256


def reference(a: complex, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> np.ndarray:  # (n,) (n,) -> (n,)
    return a * x + y


def work(n: int) -> Work:
    """A complex multiplication is 4 multiplies and 2 adds, the addition 2 adds."""
    return Work.read("x", 8 * n) + Work.read("y", 8 * n) + Work.write("out", 8 * n) + Work.flop("fp32", 8 * n)


@cuda.jit
def complex_axpy(a, x, y, out):
    """An array of structs of which every field is used: twice the requests, and the cache serves the second of each pair."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


def _make(rng: np.random.Generator, n: int, dtype=np.complex64) -> tuple:
    return np.dtype(dtype).type(0.5 - 2j), random_array(rng, n, dtype), random_array(rng, n, dtype), poisoned(n, dtype)


CASES = {
    "complex_axpy": Case(
        complex_axpy, _make, lambda n: (ceil_div(n, THREADS), THREADS), reference, work, outputs=(3,),
        shapes=((4096,), (1,), (777,)), dtypes=(np.complex64, np.complex128), tolerance=1e-6,
    )
}  # fmt: skip
