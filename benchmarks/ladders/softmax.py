"""Row softmax: thread, block and warp per row. GTX 1050 Ti (exact expf and division), RTX 4060 Laptop (--use_fast_math).

The rows of the first two steps are run to a part of their length, and the time is scaled: it is the loops' only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from math import exp

import numpy as np
from numba import cuda, float32, uint32, uint64
from numba.cuda import libdevice

from .common import F32, FULL, ONE, WARP, ZERO, Entry, one, times

LEFT_OUT = {("softmax-maharshi-1050ti", "PyTorch"): "library call"}
T = 1024
LOWEST = float32(-math.inf)


# --------------------------------------------------------------------------------------------------------- a thread per row
@cuda.jit
def softmax_thread(x, out, pitch, n):
    """x, out: (rows * pitch,), of which n columns are worked on."""
    row, n = uint64(uint32(cuda.threadIdx.x)) * uint64(pitch), uint64(n)
    largest, total = LOWEST, float32(0.0)
    i = ZERO
    while i < n:
        largest = max(largest, x[row + i])
        i += ONE
    i = ZERO
    while i < n:
        total += exp(x[row + i] - largest)
        i += ONE
    i = ZERO
    while i < n:
        out[row + i] = exp(x[row + i] - largest) / total
        i += ONE


@cuda.jit
def softmax_thread_online(x, out, pitch, n):
    row, n = uint64(uint32(cuda.threadIdx.x)) * uint64(pitch), uint64(n)
    largest, total = LOWEST, float32(0.0)
    i = ZERO
    while i < n:
        value = x[row + i]
        if value > largest:
            total *= exp(largest - value)
            largest = value
        total += exp(value - largest)
        i += ONE
    i = ZERO
    while i < n:
        out[row + i] = exp(x[row + i] - largest) / total
        i += ONE


# ---------------------------------------------------------------------------------------------------------- a block per row
@cuda.jit
def softmax_block_shared(x, out, n):
    held = cuda.shared.array(T, float32)
    t, size = uint64(cuda.threadIdx.x), uint64(cuda.blockDim.x)
    row, n = uint64(cuda.blockIdx.x) * uint64(n), uint64(n)
    largest, total = LOWEST, float32(0.0)
    i = t
    while i < n:
        value = x[row + i]
        if value > largest:
            total *= exp(largest - value)
            largest = value
        total += exp(value - largest)
        i += size
    cuda.syncthreads()
    held[t] = largest
    cuda.syncthreads()
    step = size >> ONE
    while step > ZERO:
        if t < step:
            held[t] = max(held[t], held[t + step])
        cuda.syncthreads()
        step >>= ONE
    top = held[0]
    cuda.syncthreads()
    held[t] = total * exp(largest - top)
    cuda.syncthreads()
    step = size >> ONE
    while step > ZERO:
        if t < step:
            held[t] += held[t + step]
        cuda.syncthreads()
        step >>= ONE
    norm = held[0]
    cuda.syncthreads()
    i = t
    while i < n:
        out[row + i] = exp(x[row + i] - top) / norm
        i += size


@cuda.jit(device=True, inline=True)
def warp_max(value):
    value = max(value, cuda.shfl_down_sync(FULL, value, 16))
    value = max(value, cuda.shfl_down_sync(FULL, value, 8))
    value = max(value, cuda.shfl_down_sync(FULL, value, 4))
    value = max(value, cuda.shfl_down_sync(FULL, value, 2))
    return max(value, cuda.shfl_down_sync(FULL, value, 1))


@cuda.jit(device=True, inline=True)
def warp_sum(value):
    value += cuda.shfl_down_sync(FULL, value, 16)
    value += cuda.shfl_down_sync(FULL, value, 8)
    value += cuda.shfl_down_sync(FULL, value, 4)
    value += cuda.shfl_down_sync(FULL, value, 2)
    return value + cuda.shfl_down_sync(FULL, value, 1)


@cuda.jit
def softmax_block_shuffled(x, out, n):
    held = cuda.shared.array(T, float32)  # as large as in the source, which uses 32 of it
    t, size = uint64(cuda.threadIdx.x), uint64(cuda.blockDim.x)
    row, n = uint64(cuda.blockIdx.x) * uint64(n), uint64(n)
    warps = (size + WARP - ONE) // WARP
    largest, total = LOWEST, float32(0.0)
    i = t
    while i < n:
        value = x[row + i]
        if value > largest:
            total *= exp(largest - value)
            largest = value
        total += exp(value - largest)
        i += size
    cuda.syncthreads()
    value = warp_max(largest)
    if t % WARP == ZERO:
        held[t // WARP] = value
    cuda.syncthreads()
    if t < WARP:
        value = warp_max(held[t] if t < warps else LOWEST)
        if t == ZERO:
            held[0] = value
    cuda.syncthreads()
    top = held[0]
    cuda.syncthreads()
    value = warp_sum(total * exp(largest - top))
    if t % WARP == ZERO:
        held[t // WARP] = value
    cuda.syncthreads()
    if t < WARP:
        value = warp_sum(held[t] if t < warps else float32(0.0))
        if t == ZERO:
            held[0] = value
    cuda.syncthreads()
    norm = held[0]
    cuda.syncthreads()
    i = t
    while i < n:
        out[row + i] = exp(x[row + i] - top) / norm
        i += size


# -------------------------------------------------------------------------------------------- a warp per row, fast mathematics
@cuda.jit(device=True, inline=True)
def merge_down(largest, total, step):
    """(maximum, sum) of this lane and of the one `step` above, scaled to the larger maximum."""
    other, more = cuda.shfl_down_sync(FULL, largest, step), cuda.shfl_down_sync(FULL, total, step)
    if other > largest:
        total *= libdevice.fast_expf(largest - other)
        largest = other
    else:
        more *= libdevice.fast_expf(other - largest)
    return largest, total + more


@cuda.jit(device=True, inline=True)
def merged(largest, total):
    largest, total = merge_down(largest, total, 16)
    largest, total = merge_down(largest, total, 8)
    largest, total = merge_down(largest, total, 4)
    largest, total = merge_down(largest, total, 2)
    largest, total = merge_down(largest, total, 1)
    return cuda.shfl_sync(FULL, largest, 0), cuda.shfl_sync(FULL, total, 0)


@cuda.jit
def softmax_warp_online(x, out, n):
    lane, n = uint64(cuda.threadIdx.x), uint64(n)  # a block of one warp
    row = uint64(cuda.blockIdx.x) * n
    largest, total = LOWEST, float32(0.0)
    i = lane
    while i < n:
        value = x[row + i]
        bigger = max(largest, value)
        total = total * libdevice.fast_expf(largest - bigger) + libdevice.fast_expf(value - bigger)
        largest = bigger
        i += WARP
    largest, total = merged(largest, total)
    i = lane
    while i < n:
        out[row + i] = libdevice.fast_fdividef(libdevice.fast_expf(x[row + i] - largest), total)
        i += WARP


@cuda.jit
def softmax_warp_four(x, out, n):
    """Four loads at a time, indices clamped to the row; a reciprocal in the place of the divisions."""
    lane, n = uint64(cuda.threadIdx.x), uint64(n)
    row = uint64(cuda.blockIdx.x) * n
    last = n - ONE
    largest, total = LOWEST, float32(0.0)
    i = lane
    while i < n:
        a, b = x[row + i], x[row + min(i + uint64(32), last)]
        c, d = x[row + min(i + uint64(64), last)], x[row + min(i + uint64(96), last)]
        bigger = max(largest, a)
        if i + uint64(32) < n:
            bigger = max(bigger, b)
        if i + uint64(64) < n:
            bigger = max(bigger, c)
        if i + uint64(96) < n:
            bigger = max(bigger, d)
        total = total * libdevice.fast_expf(largest - bigger) + libdevice.fast_expf(a - bigger)
        if i + uint64(32) < n:
            total += libdevice.fast_expf(b - bigger)
        if i + uint64(64) < n:
            total += libdevice.fast_expf(c - bigger)
        if i + uint64(96) < n:
            total += libdevice.fast_expf(d - bigger)
        largest = bigger
        i += uint64(128)
    largest, total = merged(largest, total)
    scale = libdevice.fast_fdividef(float32(1.0), total)
    i = lane
    while i < n:
        a, b = x[row + i], x[row + min(i + uint64(32), last)]
        c, d = x[row + min(i + uint64(64), last)], x[row + min(i + uint64(96), last)]
        out[row + i] = libdevice.fast_expf(a - largest) * scale
        if i + uint64(32) < n:
            out[row + i + uint64(32)] = libdevice.fast_expf(b - largest) * scale
        if i + uint64(64) < n:
            out[row + i + uint64(64)] = libdevice.fast_expf(c - largest) * scale
        if i + uint64(96) < n:
            out[row + i + uint64(96)] = libdevice.fast_expf(d - largest) * scale
        i += uint64(128)


# ----------------------------------------------------------------------------------------------------------------- entries
def normal(rows: int, n: int, touched: int) -> np.ndarray:
    """(rows * n,) float32, normal where the sampled rows are: how often a maximum is replaced depends on it."""
    x = np.zeros(rows * n, F32)
    x[:touched] = np.random.default_rng(5).standard_normal(touched, F32)
    return x


def maharshi() -> Iterator[Entry]:
    ladder, gpu, rows, n, part = "softmax-maharshi-1050ti", "GTX 1050 Ti", 1024, 32768, 512

    def columns():
        x = np.zeros((rows, n), F32)
        x[:, :part] = np.random.default_rng(5).standard_normal((rows, part), F32)
        return x.ravel(), np.zeros(rows * n, F32), n, part

    for label, kernel in (("naive", softmax_thread), ("online softmax", softmax_thread_online)):
        yield one(ladder, gpu, label, kernel, 1, 1024, columns, times(1e3 * n / part), sample=None)
    for label, kernel in (("block per row, smem", softmax_block_shared), ("block per row, shuffle", softmax_block_shuffled)):
        args = lambda: (normal(rows, n, 8 * n), np.zeros(rows * n, F32), n)  # noqa: E731
        yield one(ladder, gpu, label, kernel, rows, 1024, args, times(1e3), sample=8)


def llmc() -> Iterator[Entry]:
    """Block size "best": 32, the best for kernel 8 where another publisher lists all (llm.c PR 576, within 2 % of 64)."""
    rows, n = 8192, 50257
    for label, kernel in (("kernel8", softmax_warp_online), ("kernel9", softmax_warp_four)):
        args = lambda: (normal(rows, n, 16 * n), np.zeros(rows * n, F32), n)  # noqa: E731
        yield one("softmax-llmc-4060laptop", "RTX 4060 Laptop", label, kernel, rows, 32, args, times(1e3), sample=16)


def entries() -> Iterator[Entry]:
    yield from maharshi()
    yield from llmc()
