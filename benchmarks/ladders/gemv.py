"""y = A x, A 4096 x 8192 in float32: sgemv-maharshi-1050ti.

One thread, one warp, then two warps per row; the sums go over a warp by shuffles, over the block through shared memory. The source
times a single launch with events (no launch before it in the stream): L2 is cold.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import cuda, float32, uint64

from benchmarks.ladders.common import F32, FULL, ONE, WARP, ZERO, Entry, one, times

LEFT_OUT = {
    ("sgemv-maharshi-1050ti", "block per row, float4"): "16-byte global accesses: no numba twin",
    ("sgemv-maharshi-1050ti", "cuBLAS"): "library call",
}
M, N = 4096, 8192


@cuda.jit(device=True, inline=True)
def warp_sum(total):
    total += cuda.shfl_down_sync(FULL, total, 16)
    total += cuda.shfl_down_sync(FULL, total, 8)
    total += cuda.shfl_down_sync(FULL, total, 4)
    total += cuda.shfl_down_sync(FULL, total, 2)
    return total + cuda.shfl_down_sync(FULL, total, 1)


@cuda.jit
def gemv_naive(a, x, y, n):
    row = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
    if row < uint64(y.size):
        total = float32(0.0)
        col = ZERO
        while col < uint64(n):
            total += a[row * uint64(n) + col] * x[col]
            col += ONE
        y[row] = total


@cuda.jit
def gemv_warp(a, x, y, n):
    row, t = uint64(cuda.blockIdx.x), uint64(cuda.threadIdx.x)
    if row < uint64(y.size):
        total = float32(0.0)
        col = t
        while col < uint64(n):
            total += a[row * uint64(n) + col] * x[col]
            col += uint64(cuda.blockDim.x)
        total = warp_sum(total)
        if t == ZERO:
            y[row] = total


@cuda.jit
def gemv_block(a, x, y, n):
    sums = cuda.shared.array(32, float32)
    row, t = uint64(cuda.blockIdx.x), uint64(cuda.threadIdx.x)
    if row < uint64(y.size):
        total = float32(0.0)
        col = t
        while col < uint64(n):
            total += a[row * uint64(n) + col] * x[col]
            col += uint64(cuda.blockDim.x)
        total = warp_sum(total)
        if t % WARP == ZERO:
            sums[t // WARP] = total
        cuda.syncthreads()
        if t < WARP:
            total = sums[t] if t < uint64(cuda.blockDim.x) // WARP else float32(0.0)
            total = warp_sum(total)
            if t == ZERO:
                y[row] = total


def _operands() -> tuple:
    return np.zeros(M * N, F32), np.zeros(N, F32), np.zeros(M, F32), N


def entries() -> Iterator[Entry]:
    gpu = "GTX 1050 Ti (112.1 GB/s)"
    for label, kernel, grid, block, sample in (
        ("naive", gemv_naive, M // 1024, 1024, None),
        ("warp per row", gemv_warp, M, 32, 192),
        ("block per row, warp", gemv_block, M, 64, 192),
    ):
        yield one("sgemv-maharshi-1050ti", gpu, label, kernel, grid, block, _operands, times(1e3), sample=sample)
