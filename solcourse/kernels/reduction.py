"""Reduction: n numbers into one sum, in the classic steps. Each kernel repairs what the one before wastes.

The first kernels leave one partial sum per block; the last adds into a single number with one atomic per block.
The steps follow M. Harris, "Optimizing Parallel Reduction in CUDA".
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work

THREADS = 256
WARP = 32
WARPS = THREADS // WARP
FULL_MASK = 0xFFFFFFFF
LANE = WARP - 1  # t & LANE is the lane of thread t: `%` and `//` of numba's signed integers cost a correction each
WARP_BITS = 5  # t >> WARP_BITS is its warp
PER_THREAD = 8  # elements that make a thread of a grid-stride launch worth starting
MOST_BLOCKS = 864  # 8 for each SM of an A100: more would set up more loops and send more atomics, and gain nothing


def work(n: int) -> Work:
    return Work.read("x", 4 * n) + Work.write("sum", 4) + Work.flop("fp32", max(0, n - 1))


@cuda.jit
def reduce_interleaved(x, partial):
    """A tree over neighbours: in the first step every other lane works, in the second every fourth, and the others wait for them.

    `t & (2*step - 1)` is `t % (2*step)` without the division: what is to be seen here are the idle lanes.
    """
    cache = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    cache[t] = x[i] if i < x.size else float32(0.0)
    cuda.syncthreads()
    step = 1
    while step < THREADS:
        if t & (2 * step - 1) == 0:
            cache[t] += cache[t + step]
        cuda.syncthreads()
        step *= 2
    if t == 0:
        partial[cuda.blockIdx.x] = cache[0]


@cuda.jit
def reduce_strided(x, partial):
    """The working lanes stand together, so whole warps retire; but lane t works on 2*step*t: bank conflicts instead."""
    cache = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    cache[t] = x[i] if i < x.size else float32(0.0)
    cuda.syncthreads()
    step = 1
    while step < THREADS:
        at = 2 * step * t
        if at < THREADS:
            cache[at] += cache[at + step]
        cuda.syncthreads()
        step *= 2
    if t == 0:
        partial[cuda.blockIdx.x] = cache[0]


@cuda.jit
def reduce_sequential(x, partial):
    """Adds the upper half to the lower: lanes together, and neighbours in shared memory. No conflicts."""
    cache = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    cache[t] = x[i] if i < x.size else float32(0.0)
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if t < step:
            cache[t] += cache[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        partial[cuda.blockIdx.x] = cache[0]


@cuda.jit
def reduce_first_add(x, partial):
    """Two elements per thread, added on the way in: half the blocks, and no half that idles from the first step."""
    cache = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * (2 * THREADS) + t
    first = x[i] if i < x.size else float32(0.0)
    second = x[i + THREADS] if i + THREADS < x.size else float32(0.0)
    cache[t] = first + second
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if t < step:
            cache[t] += cache[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        partial[cuda.blockIdx.x] = cache[0]


@cuda.jit
def reduce_last_warp(x, partial):
    """The last 32 sums pass through registers, lane to lane: five barriers less."""
    cache = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * (2 * THREADS) + t
    first = x[i] if i < x.size else float32(0.0)
    second = x[i + THREADS] if i + THREADS < x.size else float32(0.0)
    cache[t] = first + second
    cuda.syncthreads()
    step = THREADS // 2
    while step >= WARP:
        if t < step:
            cache[t] += cache[t + step]
        cuda.syncthreads()
        step //= 2
    if t < WARP:
        total = cache[t]
        while step > 0:
            total += cuda.shfl_down_sync(FULL_MASK, total, step)
            step //= 2
        if t == 0:
            partial[cuda.blockIdx.x] = total


@cuda.jit
def reduce_shuffle(x, partial):
    """Every warp sums through shuffles, then one warp sums the warps: one barrier, one word of shared memory per warp."""
    cache = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * (2 * THREADS) + t
    first = x[i] if i < x.size else float32(0.0)
    second = x[i + THREADS] if i + THREADS < x.size else float32(0.0)
    total = first + second
    step = WARP // 2
    while step > 0:
        total += cuda.shfl_down_sync(FULL_MASK, total, step)
        step //= 2
    if t & LANE == 0:
        cache[t >> WARP_BITS] = total
    cuda.syncthreads()
    if t < WARP:
        total = cache[t] if t < WARPS else float32(0.0)
        step = WARP // 2
        while step > 0:
            total += cuda.shfl_down_sync(FULL_MASK, total, step)
            step //= 2
        if t == 0:
            partial[cuda.blockIdx.x] = total


@cuda.jit
def reduce_grid_stride(x, total_of_all):
    """As many elements per thread as it takes, then shuffles, then one atomic per block: one launch for any n."""
    cache = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    total = float32(0.0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += x[i]
    step = WARP // 2
    while step > 0:
        total += cuda.shfl_down_sync(FULL_MASK, total, step)
        step //= 2
    if t & LANE == 0:
        cache[t >> WARP_BITS] = total
    cuda.syncthreads()
    if t < WARP:
        total = cache[t] if t < WARPS else float32(0.0)
        step = WARP // 2
        while step > 0:
            total += cuda.shfl_down_sync(FULL_MASK, total, step)
            step //= 2
        if t == 0:
            cuda.atomic.add(total_of_all, 0, total)


def _partial_sums(per_block: int):
    def reference(x: np.ndarray, partial: np.ndarray) -> np.ndarray:  # (n,) -> (blocks,)
        padded = np.zeros(partial.size * per_block)
        padded[: x.size] = x
        return padded.reshape(partial.size, per_block).sum(1).astype(x.dtype)

    return reference


def _sum(x: np.ndarray, total_of_all: np.ndarray) -> np.ndarray:  # (n,) (1,) -> (1,)
    return total_of_all + x.sum(keepdims=True, dtype=np.float64).astype(x.dtype)


def _step(kernel, per_block: int, **more) -> Case:
    def make(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
        return random_array(rng, n, dtype), poisoned(ceil_div(n, per_block), dtype)

    def launch(n: int) -> tuple:
        return ceil_div(n, per_block), THREADS

    return Case(kernel, make, launch, _partial_sums(per_block), work, (1,), SHAPES, tolerance=1e-5, **more)


def _make_single(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return random_array(rng, n, dtype), np.zeros(1, dtype)


SHAPES = ((2048,), (1,), (255,), (3001,))


def _blocks(n: int) -> int:
    """Of a grid-stride launch: as many as the data feeds, at most as many as keep a GPU busy."""
    return min(ceil_div(n, PER_THREAD * THREADS), MOST_BLOCKS)


CASES = {
    "reduce_interleaved": _step(reduce_interleaved, THREADS),
    "reduce_strided": _step(reduce_strided, THREADS),
    "reduce_sequential": _step(reduce_sequential, THREADS),
    "reduce_first_add": _step(reduce_first_add, 2 * THREADS),
    "reduce_last_warp": _step(reduce_last_warp, 2 * THREADS, warp_level=True),
    "reduce_shuffle": _step(reduce_shuffle, 2 * THREADS, warp_level=True),
    "reduce_grid_stride": Case(
        reduce_grid_stride, _make_single, lambda n: (_blocks(n), THREADS), _sum, work, (1,), SHAPES, tolerance=1e-5, warp_level=True
    ),
}
