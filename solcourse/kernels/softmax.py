"""Row softmax, exp(x - max) / sum: who shares a row, and how often it is read.

A thread, a block, a warp per row, each in three passes (maximum, sum, quotient); then maximum and sum in one, online.
Online softmax: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", arXiv 1805.02867.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda, float32

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work

THREADS = 128
WARP = 32
FULL_MASK = 0xFFFFFFFF
LOWEST = np.float32(-np.inf)


def reference(x: np.ndarray, out: np.ndarray) -> np.ndarray:  # (rows, columns) -> (rows, columns)
    wide = x.astype(np.float64)
    raised = np.exp(wide - wide.max(1, keepdims=True))
    return (raised / raised.sum(1, keepdims=True)).astype(x.dtype)


def work(rows: int, columns: int) -> Work:
    """Per element: compare, subtract, exp, add, divide, each counted as one FLOP."""
    size = rows * columns
    return Work.read("x", 4 * size) + Work.write("out", 4 * size) + Work.flop("fp32", 5 * size)


@cuda.jit
def softmax_thread_per_row(x, out):
    """A thread walks its row three times: lanes are a row apart, 32 sectors for every request."""
    i = cuda.grid(1)
    if i < x.shape[0]:
        highest = LOWEST
        for j in range(x.shape[1]):
            if x[i, j] > highest:
                highest = x[i, j]
        total = float32(0.0)
        for j in range(x.shape[1]):
            total += math.exp(x[i, j] - highest)
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - highest) / total


@cuda.jit
def softmax_block_per_row(x, out):
    """A block walks a row: 4 sectors per request; maximum and sum are trees in shared memory, a barrier for each step."""
    cache = cuda.shared.array(THREADS, float32)
    i, t = cuda.blockIdx.x, cuda.threadIdx.x
    highest = LOWEST
    for j in range(t, x.shape[1], THREADS):
        if x[i, j] > highest:
            highest = x[i, j]
    cache[t] = highest
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if t < step and cache[t + step] > cache[t]:
            cache[t] = cache[t + step]
        cuda.syncthreads()
        step //= 2
    highest = cache[0]
    cuda.syncthreads()
    total = float32(0.0)
    for j in range(t, x.shape[1], THREADS):
        total += math.exp(x[i, j] - highest)
    cache[t] = total
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if t < step:
            cache[t] += cache[t + step]
        cuda.syncthreads()
        step //= 2
    total = cache[0]
    for j in range(t, x.shape[1], THREADS):
        out[i, j] = math.exp(x[i, j] - highest) / total


@cuda.jit
def softmax_warp_per_row(x, out):
    """A warp walks a row: the trees are shuffles, and there is no barrier and no shared memory."""
    i, lane = cuda.grid(1) // WARP, cuda.threadIdx.x % WARP
    if i < x.shape[0]:
        highest = LOWEST
        for j in range(lane, x.shape[1], WARP):
            if x[i, j] > highest:
                highest = x[i, j]
        step = WARP // 2
        while step > 0:
            other = cuda.shfl_xor_sync(FULL_MASK, highest, step)
            if other > highest:
                highest = other
            step //= 2
        total = float32(0.0)
        for j in range(lane, x.shape[1], WARP):
            total += math.exp(x[i, j] - highest)
        step = WARP // 2
        while step > 0:
            total += cuda.shfl_xor_sync(FULL_MASK, total, step)
            step //= 2
        for j in range(lane, x.shape[1], WARP):
            out[i, j] = math.exp(x[i, j] - highest) / total


@cuda.jit
def softmax_online(x, out):
    """Maximum and sum in one pass: when the maximum rises, what was summed so far shrinks to fit. Two reads instead of three."""
    i, lane = cuda.grid(1) // WARP, cuda.threadIdx.x % WARP
    if i < x.shape[0]:
        highest = LOWEST
        total = float32(0.0)
        for j in range(lane, x.shape[1], WARP):
            value = x[i, j]
            if value > highest:
                total *= math.exp(highest - value)
                highest = value
            total += math.exp(value - highest)
        step = WARP // 2
        while step > 0:
            other = cuda.shfl_xor_sync(FULL_MASK, highest, step)
            other_total = cuda.shfl_xor_sync(FULL_MASK, total, step)
            if other > highest:
                total = total * math.exp(highest - other) + other_total
                highest = other
            elif other_total > float32(0.0):
                total += other_total * math.exp(other - highest)
            step //= 2
        for j in range(lane, x.shape[1], WARP):
            out[i, j] = math.exp(x[i, j] - highest) / total


def _make(rng: np.random.Generator, rows: int, columns: int, dtype=np.float32) -> tuple:
    return 10 * random_array(rng, (rows, columns), dtype), poisoned((rows, columns), dtype)


def _case(kernel, launch, **more) -> Case:
    shapes = ((16, 256), (1, 1), (7, 33), (130, 45))
    return Case(kernel, _make, launch, reference, work, (1,), shapes, tolerance=1e-6, **more)


def _warp_launch(rows: int, columns: int) -> tuple:
    return ceil_div(rows * WARP, THREADS), THREADS


CASES = {
    "softmax_thread_per_row": _case(softmax_thread_per_row, lambda rows, columns: (ceil_div(rows, THREADS), THREADS)),
    "softmax_block_per_row": _case(softmax_block_per_row, lambda rows, columns: (rows, THREADS)),
    "softmax_warp_per_row": _case(softmax_warp_per_row, _warp_launch, warp_level=True),
    "softmax_online": _case(softmax_online, _warp_launch, warp_level=True),
}
