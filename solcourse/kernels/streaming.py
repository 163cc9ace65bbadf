"""Streaming, out = factor x, in five steps: the same bytes each time. What changes is how many loads one thread has under way at once.

Little's law: bytes in flight = latency x bandwidth. They come from many warps with one load each, or from fewer warps with several.
numba cannot promise that x and out do not overlap, so no load moves above a store: a thread must read first what it wants in flight.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work

THREADS = 256
BLOCK_SIZES = (32, 64, 128, 256, 512, 1024)  # every kernel here takes any of them
BLOCKS = 432  # of the grid-stride launch: four for each SM of an A100
FOUR, EIGHT = 4, 8


def reference(x: np.ndarray, out: np.ndarray, factor: float) -> np.ndarray:  # (n,) -> (n,)
    return factor * x


def work(n: int) -> Work:
    return Work.read("x", 4 * n) + Work.write("out", 4 * n) + Work.flop("fp32", n)


@cuda.jit
def scale(x, out, factor):
    """One element per thread: one load in flight, so only many warps can keep the memory busy."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = factor * x[i]


@cuda.jit
def scale_grid_stride(x, out, factor):
    """A grid of fixed size walks over the data. Each turn still waits for its load before the next turn's: one in flight."""
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = factor * x[i]


@cuda.jit
def scale_four_in_turn(x, out, factor):
    """Four elements per thread, a block's width apart. Each is stored before the next is loaded: still one in flight."""
    first = cuda.blockIdx.x * cuda.blockDim.x * FOUR + cuda.threadIdx.x
    for k in range(FOUR):
        i = first + k * cuda.blockDim.x
        if i < out.size:
            out[i] = factor * x[i]


@cuda.jit
def scale_four(x, out, factor):
    """The same four, all loaded before the first is stored: four in flight, held in registers."""
    held = cuda.local.array(FOUR, float32)
    first = cuda.blockIdx.x * cuda.blockDim.x * FOUR + cuda.threadIdx.x
    for k in range(FOUR):
        i = first + k * cuda.blockDim.x
        if i < out.size:
            held[k] = x[i]
    for k in range(FOUR):
        i = first + k * cuda.blockDim.x
        if i < out.size:
            out[i] = factor * held[k]


@cuda.jit
def scale_eight(x, out, factor):
    """Eight in flight: half as many threads, more registers for each, and little left to gain."""
    held = cuda.local.array(EIGHT, float32)
    first = cuda.blockIdx.x * cuda.blockDim.x * EIGHT + cuda.threadIdx.x
    for k in range(EIGHT):
        i = first + k * cuda.blockDim.x
        if i < out.size:
            held[k] = x[i]
    for k in range(EIGHT):
        i = first + k * cuda.blockDim.x
        if i < out.size:
            out[i] = factor * held[k]


def _make(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return random_array(rng, n, dtype), poisoned(n, dtype), np.dtype(dtype).type(1.5)


def _case(kernel, blocks) -> Case:
    return Case(
        kernel, _make, lambda n: (blocks(n), THREADS), reference, work, outputs=(1,), shapes=((8192,), (1,), (33,), (5000,)), tolerance=1e-6
    )


CASES = {
    "scale": _case(scale, lambda n: ceil_div(n, THREADS)),
    "scale_grid_stride": _case(scale_grid_stride, lambda n: min(BLOCKS, ceil_div(n, THREADS))),
    "scale_four_in_turn": _case(scale_four_in_turn, lambda n: ceil_div(n, FOUR * THREADS)),
    "scale_four": _case(scale_four, lambda n: ceil_div(n, FOUR * THREADS)),
    "scale_eight": _case(scale_eight, lambda n: ceil_div(n, EIGHT * THREADS)),
}
