"""Vector add, the first kernel of every course: one thread, one element. 12 bytes for 1 FLOP: memory decides."""

from __future__ import annotations

import numpy as np
from numba import cuda

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work

THREADS = 256


def reference(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> np.ndarray:  # (n,) (n,) -> (n,)
    return x + y


def work(n: int) -> Work:
    return Work.read("x", 4 * n) + Work.read("y", 4 * n) + Work.write("out", 4 * n) + Work.flop("fp32", n)


@cuda.jit
def vector_add(x, y, out):
    """Unit stride: a warp's 32 float32 are 128 neighbouring bytes, 4 sectors per request."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


def _make(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return random_array(rng, n, dtype), random_array(rng, n, dtype), poisoned(n, dtype)


def _launch(n: int) -> tuple:
    return ceil_div(n, THREADS), THREADS


INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
CASES = {
    "vector_add": Case(
        vector_add, _make, _launch, reference, work, outputs=(2,), shapes=((4096,), (1,), (31,), (1000,), (4097,)),
        dtypes=(np.float32, np.float64, *INTEGERS, np.complex64, np.complex128),
    )
}  # fmt: skip
