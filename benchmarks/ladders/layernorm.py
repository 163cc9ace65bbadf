"""llm.c's layer norm forward, 8192 rows of 768 float32: a warp per row, a block per row, and three kernels. L2 is flushed between runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import cuda, float32, int32, uint32, uint64
from numba.cuda import libdevice

from .common import F32, FULL, ONE, WARP, ZERO, Entry, Launch, gbs, one

LEFT_OUT = {
    ("layernorm-llmc-a100", "kernel6 before"): "16-byte global accesses: no numba twin",
    ("layernorm-llmc-a100", "kernel6 after"): "16-byte global accesses: no numba twin",
}
ROWS, C = 8192, 768
EPS = float32(1e-5)
MANY = 1640  # blocks run: some for each SM one after the other, which find weight and bias in its L1, as nearly all of the launch do


@cuda.jit(device=True, inline=True)
def warp_total(value):
    """The sum of all lanes, in each of them."""
    value += cuda.shfl_xor_sync(FULL, value, 16)
    value += cuda.shfl_xor_sync(FULL, value, 8)
    value += cuda.shfl_xor_sync(FULL, value, 4)
    value += cuda.shfl_xor_sync(FULL, value, 2)
    return value + cuda.shfl_xor_sync(FULL, value, 1)


@cuda.jit
def layernorm_warp(out, mean, rstd, x, weight, bias, rows, n):
    """A warp per row, three reads of it."""
    t, n = uint32(cuda.threadIdx.x), uint64(n)
    lane = uint64(t & uint32(31))
    index = uint64(uint32(cuda.blockIdx.x)) * uint64(uint32(cuda.blockDim.x) >> uint32(5)) + uint64(t >> uint32(5))
    if index >= uint64(rows):
        return
    row = index * n
    total = float32(0.0)
    i = lane
    while i < n:
        total += x[row + i]
        i += WARP
    m = libdevice.fast_fdividef(warp_total(total), float32(int32(n)))
    if lane == ZERO:
        mean[index] = m
    total = float32(0.0)
    i = lane
    while i < n:
        off = x[row + i] - m
        total += off * off
        i += WARP
    s = libdevice.rsqrtf(libdevice.fast_fdividef(warp_total(total), float32(int32(n))) + EPS)
    if lane == ZERO:
        rstd[index] = s
    i = lane
    while i < n:
        out[row + i] = s * (x[row + i] - m) * weight[i] + bias[i]
        i += WARP


@cuda.jit
def layernorm_block(out, mean, rstd, x, weight, bias, n):
    """A block per row, sums of x and of x squared in one read, a second for the result."""
    sums = cuda.shared.array(32, float32)
    squares = cuda.shared.array(32, float32)
    t, size, n = uint64(cuda.threadIdx.x), uint64(cuda.blockDim.x), uint64(n)
    lane, warp, warps = t & uint64(31), t >> uint64(5), size >> uint64(5)
    row = uint64(cuda.blockIdx.x) * n
    total, square = float32(0.0), float32(0.0)
    i = t
    while i < n:
        value = x[row + i]
        total += value
        square += value * value
        i += size
    sums[warp] = warp_total(total)
    squares[warp] = warp_total(square)
    cuda.syncthreads()
    total = warp_total(sums[lane] if lane < warps else float32(0.0))
    square = warp_total(squares[lane] if lane < warps else float32(0.0))
    m = libdevice.fast_fdividef(total, float32(int32(n)))
    s = libdevice.rsqrtf(libdevice.fast_fdividef(square, float32(int32(n))) - m * m + EPS)
    if t == ZERO:
        mean[cuda.blockIdx.x] = m
        rstd[cuda.blockIdx.x] = s
    i = t
    while i < n:
        out[row + i] = s * (x[row + i] - m) * weight[i] + bias[i]
        i += size


@cuda.jit(device=True, inline=True)
def tree(held, t, size):
    """held[0]: the sum of (size,) shared floats; the source waits once more than it has to."""
    cuda.syncthreads()
    step = size >> uint64(1)
    while step >= ONE:
        cuda.syncthreads()
        if t < step:
            held[t] += held[t + step]
        step >>= ONE


@cuda.jit
def row_mean(mean, x, n):
    held = cuda.shared.array(64, float32)
    t, size, n = uint64(cuda.threadIdx.x), uint64(cuda.blockDim.x), uint64(n)
    row = uint64(cuda.blockIdx.x) * n
    total = float32(0.0)
    i = t
    while i < n:
        total += x[row + i]
        i += size
    held[t] = total
    tree(held, t, size)
    if t == ZERO:
        mean[cuda.blockIdx.x] = libdevice.fast_fdividef(held[0], float32(int32(n)))


@cuda.jit
def row_rstd(rstd, x, mean, n):
    held = cuda.shared.array(64, float32)
    t, size, n = uint64(cuda.threadIdx.x), uint64(cuda.blockDim.x), uint64(n)
    row = uint64(cuda.blockIdx.x) * n
    m = mean[cuda.blockIdx.x]
    total = float32(0.0)
    i = t
    while i < n:
        off = x[row + i] - m
        total += off * off
        i += size
    held[t] = total
    tree(held, t, size)
    if t == ZERO:
        rstd[cuda.blockIdx.x] = libdevice.rsqrtf(libdevice.fast_fdividef(held[0], float32(int32(n))) + EPS)


@cuda.jit
def normalize(out, x, mean, rstd, weight, bias, n):
    """A thread per element: a division by the width of a row, and its remainder."""
    i = uint32(uint32(cuda.blockIdx.x) * uint32(cuda.blockDim.x) + uint32(cuda.threadIdx.x))
    row = uint32(i // uint32(n))
    column = uint32(i - row * uint32(n))
    out[i] = rstd[row] * (x[i] - mean[row]) * weight[column] + bias[column]


def _args(*sizes: int):
    return lambda: (*(np.zeros(k, F32) for k in (ROWS * C, ROWS, ROWS, ROWS * C, C, C)), *sizes)


def entries() -> Iterator[Entry]:
    rate = gbs(8 * ROWS * C)
    for gpu, size in (("RTX 3090", 32), ("H100", 256), ("RTX A4000", 32)):
        yield one("layernorm-llmc-best", gpu, "kernel3", layernorm_warp, ROWS * 32 // size, size, _args(ROWS, C), rate, sample=MANY)
    for gpu in ("RTX 3090", "H100"):
        yield one("layernorm-llmc-best", gpu, "kernel5", layernorm_block, ROWS, 256, _args(C), rate, sample=MANY)
    n = ROWS * C
    three = (
        Launch(row_mean, ROWS, 64, lambda: (np.zeros(ROWS, F32), np.zeros(n, F32), C), sample=MANY),
        Launch(row_rstd, ROWS, 64, lambda: (np.zeros(ROWS, F32), np.zeros(n, F32), np.zeros(ROWS, F32), C), sample=MANY),
        Launch(
            normalize, n // 256, 256, lambda: (*(np.zeros(k, F32) for k in (n, n, ROWS, ROWS, C, C)), C), sample=MANY
        ),
    )  # fmt: skip
    yield Entry("layernorm-llmc-best", "RTX A4000", "kernel2", three, rate)
