"""Sums: Harris' seven steps and a shuffle on a V100, rows of a batch on an RTX 3090, the two samples of the CUDA toolkit.

Indices are 32-bit as in the sources (`uint32`, widened once for a global access, never for a shared one).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import cuda, float32, float64, int32, uint32, uint64

from .common import F32, FULL, Entry, Launch, gbs, one, times, zeros

LEFT_OUT: dict[tuple[str, str], str] = {}
T = 256
B = uint32(T)
U0, U1, U2, U31, U32 = uint32(0), uint32(1), uint32(2), uint32(31), uint32(32)


@cuda.jit(device=True, inline=True)
def warp_sum(total):
    total += cuda.shfl_down_sync(FULL, total, 16)
    total += cuda.shfl_down_sync(FULL, total, 8)
    total += cuda.shfl_down_sync(FULL, total, 4)
    total += cuda.shfl_down_sync(FULL, total, 2)
    return total + cuda.shfl_down_sync(FULL, total, 1)


# ----------------------------------------------------------------------------------------- the classic steps, first stage
@cuda.jit
def reduce_modulo(x, partial):
    held = cuda.shared.array(T, float32)
    t, size = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    held[t] = x[uint32(uint32(cuda.blockIdx.x) * size + t)]
    cuda.syncthreads()
    step = uint64(1)
    while step < uint64(size):  # blockDim, not a constant: the loop and its modulo stay, as in the source
        if t % uint32(step + step) == U0:  # truncated here, so that the modulo stays one of 32 bits
            held[t] += held[uint32(t + uint32(step))]
        cuda.syncthreads()
        step += step
    if t == U0:
        partial[cuda.blockIdx.x] = held[t]


@cuda.jit
def reduce_strided(x, partial):
    held = cuda.shared.array(T, float32)
    t, size = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    held[t] = x[uint32(uint32(cuda.blockIdx.x) * size + t)]
    cuda.syncthreads()
    step = U1
    while step < size:
        i = uint32(U2 * step * t)
        if i < size:
            held[i] += held[uint32(i + step)]
        cuda.syncthreads()
        step = uint32(step * U2)
    if t == U0:
        partial[cuda.blockIdx.x] = held[t]


@cuda.jit
def reduce_sequential(x, partial):
    held = cuda.shared.array(T, float32)
    t, size = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    held[t] = x[uint32(uint32(cuda.blockIdx.x) * size + t)]
    cuda.syncthreads()
    step = uint32(size >> U1)
    while step > U0:
        if t < step:
            held[t] += held[uint32(t + step)]
        cuda.syncthreads()
        step = uint32(step >> U1)
    if t == U0:
        partial[cuda.blockIdx.x] = held[t]


@cuda.jit
def reduce_first_add(x, partial):
    held = cuda.shared.array(T, float32)
    t, size = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    i = uint32(uint32(cuda.blockIdx.x) * size * U2 + t)
    held[t] = x[i] + x[uint32(i + size)]
    cuda.syncthreads()
    step = uint32(size >> U1)
    while step > U0:
        if t < step:
            held[t] += held[uint32(t + step)]
        cuda.syncthreads()
        step = uint32(step >> U1)
    if t == U0:
        partial[cuda.blockIdx.x] = held[t]


@cuda.jit(device=True, inline=True)
def last_warp(held, t):
    """Volatile in the source: each step stores, though the next one reads what this lane has in a register. A warp at a time."""
    held[t] += held[uint32(t + U32)]
    cuda.syncwarp()
    held[t] += held[uint32(t + uint32(16))]
    cuda.syncwarp()
    held[t] += held[uint32(t + uint32(8))]
    cuda.syncwarp()
    held[t] += held[uint32(t + uint32(4))]
    cuda.syncwarp()
    held[t] += held[uint32(t + U2)]
    cuda.syncwarp()
    held[t] += held[uint32(t + U1)]


@cuda.jit
def reduce_last_warp(x, partial):
    held = cuda.shared.array(T, float32)
    t, size = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    i = uint32(uint32(cuda.blockIdx.x) * size * U2 + t)
    held[t] = x[i] + x[uint32(i + size)]
    cuda.syncthreads()
    step = uint32(size >> U1)
    while step > U32:
        if t < step:
            held[t] += held[uint32(t + step)]
        cuda.syncthreads()
        step = uint32(step >> U1)
    if t < U32:
        last_warp(held, t)
    if t == U0:
        partial[cuda.blockIdx.x] = held[0]


@cuda.jit(device=True, inline=True)
def unrolled_tree(held, t):
    if t < uint32(128):
        held[t] += held[uint32(t + uint32(128))]
    cuda.syncthreads()
    if t < uint32(64):
        held[t] += held[uint32(t + uint32(64))]
    cuda.syncthreads()
    if t < U32:
        last_warp(held, t)


@cuda.jit
def reduce_unrolled(x, partial):
    held = cuda.shared.array(T, float32)
    t, size = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    i = uint32(uint32(cuda.blockIdx.x) * size * U2 + t)
    held[t] = x[i] + x[uint32(i + size)]
    cuda.syncthreads()
    unrolled_tree(held, t)
    if t == U0:
        partial[cuda.blockIdx.x] = held[0]


def reduce_many(per_thread: int, shuffle: bool) -> Any:
    """`per_thread` elements of each thread, a block apart, in a loop of constant length: the source unrolls it."""
    mine = uint32(T * per_thread)

    @cuda.jit
    def many_then_tree(x, partial):
        held = cuda.shared.array(T, float32)
        t = uint32(cuda.threadIdx.x)
        base = uint64(uint32(uint32(cuda.blockIdx.x) * mine + t))
        total = float32(0.0)
        for k in range(per_thread):
            total += x[base + uint64(k * T)]
        held[t] = total
        cuda.syncthreads()
        unrolled_tree(held, t)
        if t == U0:
            partial[cuda.blockIdx.x] = held[0]

    @cuda.jit
    def many_then_shuffle(x, partial):
        sums = cuda.shared.array(32, float32)
        t = uint32(cuda.threadIdx.x)
        base = uint64(uint32(uint32(cuda.blockIdx.x) * mine + t))
        total = float32(0.0)
        for k in range(per_thread):
            total += x[base + uint64(k * T)]
        total = warp_sum(total)
        if t & U31 == U0:
            sums[t >> uint32(5)] = total
        cuda.syncthreads()
        total = sums[t & U31] if t < uint32(cuda.blockDim.x) >> uint32(5) else float32(0.0)
        if t < U32:
            total += cuda.shfl_down_sync(FULL, total, 4)
            total += cuda.shfl_down_sync(FULL, total, 2)
            total += cuda.shfl_down_sync(FULL, total, 1)
        if t == U0:
            partial[cuda.blockIdx.x] = total

    return many_then_shuffle if shuffle else many_then_tree


MANY, SHUFFLED = reduce_many(128, False), reduce_many(128, True)


# ------------------------------------------------------------------------------------------------------------ rows of a batch
@cuda.jit
def rows_tree(x, out, n):
    """A block of 256 per row; size_t indices, a guard in the loop, the tree unrolled."""
    held = cuda.shared.array(T, float32)
    t = uint64(cuda.threadIdx.x)
    row, n = uint64(cuda.blockIdx.x) * uint64(n), uint64(n)
    rounds = (n + uint64(T - 1)) >> uint64(8)
    total = float32(0.0)
    i, at = uint64(0), t
    while i < rounds:
        if at < n:
            total += x[row + at]
        at += uint64(T)
        i += uint64(1)
    held[t] = total
    cuda.syncthreads()
    for k in range(8):
        if t < uint64(T >> (k + 1)):
            held[t] += held[t + uint64(T >> (k + 1))]
        cuda.syncthreads()
    if t == uint64(0):
        out[cuda.blockIdx.x] = held[0]


@cuda.jit
def rows_shuffle(x, out, n):
    sums = cuda.shared.array(8, float32, alignment=16)
    t = uint64(cuda.threadIdx.x)
    row, n = uint64(cuda.blockIdx.x) * uint64(n), uint64(n)
    rounds = (n + uint64(T - 1)) >> uint64(8)
    total = float32(0.0)
    i, at = uint64(0), t
    while i < rounds:
        if at < n:
            total += x[row + at]
        at += uint64(T)
        i += uint64(1)
    total = warp_sum(total)
    if t & uint64(31) == uint64(0):
        sums[t >> uint64(5)] = total
    cuda.syncthreads()
    total = float32(0.0)
    for k in range(8):
        total += sums[k]
    if t == uint64(0):
        out[cuda.blockIdx.x] = total


# ------------------------------------------------------------------------------------------------------------ toolkit samples
def sample_reduce(size: int) -> Any:
    """reduce6 for powers of two, int32: pairs of elements a block apart, grid stride, a tree down to the last warp, shuffles.

    All of its barriers stay even where the block is too small for the step.
    """
    b, cells = uint32(size), max(size, 64)

    @cuda.jit
    def reduce_pairs(x, out, n):
        held = cuda.shared.array(cells, int32)
        t, n = uint32(cuda.threadIdx.x), uint32(n)
        i = uint32(uint32(cuda.blockIdx.x) * b * U2 + t)
        step = uint32(uint32(cuda.gridDim.x) * b * U2)
        total = int32(0)
        while i < n:
            total = int32(total + x[i])
            j = uint32(i + b)
            if j < n:
                total = int32(total + x[j])
            i = uint32(i + step)
        held[t] = total
        cuda.syncthreads()
        cuda.syncthreads()
        if size >= 256 and t < uint32(128):
            total = int32(total + held[uint32(t + uint32(128))])
            held[t] = total
        cuda.syncthreads()
        if size >= 128 and t < uint32(64):
            total = int32(total + held[uint32(t + uint32(64))])
            held[t] = total
        cuda.syncthreads()
        if t < U32:
            if size >= 64:
                total = int32(total + held[uint32(t + U32)])
            total = warp_sum(total)
        if t == U0:
            out[cuda.blockIdx.x] = total

    return reduce_pairs


PAIRS, PAIRS_LAST = sample_reduce(256), sample_reduce(32)


@cuda.jit
def reduce_doubles(x, out, n):
    """A block of 1024 per SM, sums in float64; the barrier of the whole grid behind it is left out (some microseconds of 1 ms)."""
    held = cuda.shared.array(1024, float64)
    t = uint32(cuda.threadIdx.x)
    i, n = uint32(uint32(cuda.blockIdx.x) * uint32(1024) + t), uint32(n)
    step = uint32(uint32(cuda.gridDim.x) * uint32(1024))
    total = float64(0.0)
    while i < n:
        total += float64(x[i])
        i = uint32(i + step)
    held[t] = total
    cuda.syncthreads()
    held[t] = warp_sum(held[t])
    cuda.syncthreads()
    if t == U0:
        total = float64(0.0)
        for k in range(0, 1024, 32):
            total += held[k]
        held[0] = total
    cuda.syncthreads()
    if t == U0:
        out[cuda.blockIdx.x] = float32(held[0])


# ----------------------------------------------------------------------------------------------------------------- entries
STEPS = {
    "reduce0": (reduce_modulo, 1), "reduce1": (reduce_strided, 1), "reduce2": (reduce_sequential, 1), "reduce3": (reduce_first_add, 2),
    "reduce4": (reduce_last_warp, 2), "reduce5": (reduce_unrolled, 2), "reduce6": (MANY, 128), "reduce7": (SHUFFLED, 128),
}  # fmt: skip


def entries() -> Iterator[Entry]:
    n = 2**25
    for label, (kernel, each) in STEPS.items():
        blocks = n // (T * each)
        yield one("reduce-liu-v100", "Tesla V100", label, kernel, blocks, T, zeros(n, blocks), times(1e9))
    rows, width = 2048, 2**18
    for label, kernel in (("V1", rows_tree), ("V2", rows_shuffle)):
        args = lambda: (np.zeros(rows * width, F32), np.zeros(rows, F32), width)  # noqa: E731
        yield one("reduce-leimao-3090", "RTX 3090", label, kernel, rows, T, args, times(1e3), sample=16)
    ints, floats = 2**24, 2**25
    first = Launch(PAIRS, 64, 256, lambda: (np.zeros(ints, np.int32), np.zeros(64, np.int32), ints), sample=20)
    last = Launch(PAIRS_LAST, 1, 32, lambda: (np.zeros(64, np.int32), np.zeros(1, np.int32), 64), sample=None, cache="warm")
    yield Entry("reduce-sample-1650s", "GTX 1650 SUPER", "cuda-samples reduction kernel 6", (first, last), gbs(4 * ints))
    yield one(
        "reduce-sample-1650s", "GTX 1650 SUPER", "reductionMultiBlockCG", reduce_doubles, 20, 1024,
        lambda: (np.zeros(floats, F32), np.zeros(20, F32), floats), times(1e3), sample=2,
    )  # fmt: skip
