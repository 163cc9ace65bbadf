"""Saxpy, out = a x + y: one element per thread, then a grid of fixed size that strides over all of them."""

from __future__ import annotations

import numpy as np
from numba import cuda

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work

THREADS = 256
BLOCKS = 8  # of the grid-stride launch, kept small so that even small tests stride; a GPU wants a few per SM


def reference(a: float, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> np.ndarray:  # (n,) (n,) -> (n,)
    return a * x + y


def work(n: int) -> Work:
    return Work.read("x", 4 * n) + Work.read("y", 4 * n) + Work.write("out", 4 * n) + Work.flop("fp32", 2 * n)


@cuda.jit
def saxpy(a, x, y, out):
    """One thread per element: the grid grows with the data."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@cuda.jit
def saxpy_grid_stride(a, x, y, out):
    """The grid keeps its size and walks over the data; neighbouring lanes still read neighbouring elements."""
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = a * x[i] + y[i]


def _make(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return np.dtype(dtype).type(1.5), random_array(rng, n, dtype), random_array(rng, n, dtype), poisoned(n, dtype)


def _case(kernel, launch) -> Case:
    return Case(
        kernel, _make, launch, reference, work, outputs=(3,), shapes=((8192,), (1,), (33,), (5000,)),
        dtypes=(np.float32, np.float64, np.complex64), tolerance=1e-6,
    )  # fmt: skip


CASES = {
    "saxpy": _case(saxpy, lambda n: (ceil_div(n, THREADS), THREADS)),
    "saxpy_grid_stride": _case(saxpy_grid_stride, lambda n: (BLOCKS, THREADS)),
}
