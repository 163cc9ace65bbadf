"""Histogram: atomics, and where they meet. In global memory everybody meets; in shared memory a block; then a warp; then nobody.

Values are 0 .. BINS - 1. A warp's atomics on one word, or on words of one bank, pass one after the other.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, int32

from solcourse.kernels.case import Case, ceil_div
from solcourse.work import Work

BINS = 256
THREADS = 256
WARPS = THREADS // 32
BLOCKS = 8  # of the launches whose grid strides over the data, at the least
PER_THREAD = 32  # elements per thread before a launch takes more blocks: each block has BINS counters to hand over
MOST_BLOCKS = 864  # 8 for each SM of an A100
LANES = 32


def reference(data: np.ndarray, bins: np.ndarray) -> np.ndarray:  # (n,) (BINS,) -> (BINS,)
    return bins + np.bincount(data, minlength=bins.size).astype(bins.dtype)


def work(n: int) -> Work:
    """The bins are read and written once; the data is one byte per element."""
    return Work.read("data", n) + Work.read("bins", 4 * BINS) + Work.write("bins", 4 * BINS)


@cuda.jit
def histogram_global(data, bins):  # (n,) uint8, (BINS,) int32
    """One atomic on global memory per element: equal values queue up at one address, over the whole chip."""
    i = cuda.grid(1)
    if i < data.size:
        cuda.atomic.add(bins, data[i], 1)


@cuda.jit
def histogram_shared(data, bins):
    """A private histogram per block in shared memory: BINS global atomics per block, however much data."""
    private = cuda.shared.array(BINS, int32)
    for b in range(cuda.threadIdx.x, BINS, cuda.blockDim.x):
        private[b] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), data.size, cuda.gridsize(1)):
        cuda.atomic.add(private, data[i], 1)
    cuda.syncthreads()
    for b in range(cuda.threadIdx.x, BINS, cuda.blockDim.x):
        cuda.atomic.add(bins, b, private[b])


@cuda.jit
def histogram_per_warp(data, bins):
    """A private histogram per warp: other warps never meet, for eight times the shared memory. Lanes of one warp meet as before."""
    private = cuda.shared.array((WARPS, BINS), int32)
    warp = cuda.threadIdx.x // 32
    for b in range(cuda.threadIdx.x, BINS, cuda.blockDim.x):
        for w in range(WARPS):
            private[w, b] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), data.size, cuda.gridsize(1)):
        cuda.atomic.add(private, (warp, data[i]), 1)
    cuda.syncthreads()
    for b in range(cuda.threadIdx.x, BINS, cuda.blockDim.x):
        total = int32(0)
        for w in range(WARPS):
            total += private[w, b]
        cuda.atomic.add(bins, b, total)


@cuda.jit
def histogram_per_lane(data, bins):
    """A private histogram per lane, each in a bank of its own: lanes of one warp never meet, whatever the data is."""
    private = cuda.shared.array((BINS, LANES), int32)
    t = cuda.threadIdx.x
    lane = t & (LANES - 1)
    for b in range(t >> 5, BINS, WARPS):
        private[b, lane] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), data.size, cuda.gridsize(1)):
        cuda.atomic.add(private, (data[i], lane), 1)
    cuda.syncthreads()
    for b in range(t, BINS, cuda.blockDim.x):
        total = int32(0)
        for k in range(LANES):
            total += private[b, (lane + k) & (LANES - 1)]  # each lane starts in its own bank
        cuda.atomic.add(bins, b, total)


def _blocks(n: int) -> int:
    """Of a launch whose grid strides over the data."""
    return min(max(BLOCKS, ceil_div(n, PER_THREAD * THREADS)), MOST_BLOCKS)


def _make(rng: np.random.Generator, n: int, dtype=np.uint8) -> tuple:
    return rng.integers(0, BINS, n).astype(dtype), np.zeros(BINS, np.int32)


def _case(kernel, launch) -> Case:
    shapes = ((4096,), (1,), (1000,), (5001,))
    return Case(kernel, _make, launch, reference, work, (1,), shapes, dtypes=(np.uint8, np.int32, np.int64))


CASES = {
    "histogram_global": _case(histogram_global, lambda n: (ceil_div(n, THREADS), THREADS)),
    "histogram_shared": _case(histogram_shared, lambda n: (_blocks(n), THREADS)),
    "histogram_per_warp": _case(histogram_per_warp, lambda n: (_blocks(n), THREADS)),
    "histogram_per_lane": _case(histogram_per_lane, lambda n: (_blocks(n), THREADS)),
}
