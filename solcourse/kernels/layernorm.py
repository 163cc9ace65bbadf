"""Dropout, then the residual, then LayerNorm, out = LN(residual + dropout(x)): five passes over memory, and one.

A row's mean is needed before its deviation, and both before its result: three passes apart. Kept in shared memory, a row comes once.
Layer normalisation: J. L. Ba, J. R. Kiros, G. E. Hinton, arXiv 1607.06450.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda, float32, uint32

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.kernels.fusion import on_matrix
from solcourse.work import Work

THREADS = 256  # on a row
WARPS = THREADS // 32
WIDEST = 4096  # columns that the kernel in one pass has room for
FULL_MASK = 0xFFFFFFFF
EPS, ONE, ZERO = np.float32(1e-5), np.float32(1.0), np.float32(0.0)
KEEP = 0.9  # of the elements; the others become 0, and those kept grow, so that the mean stays
CUT, GROWN = np.uint32(round((1 - KEEP) * 2**32)), np.float32(1 / KEEP)


@cuda.jit(device=True)
def dropped(value, index, seed):
    """value / KEEP or 0, by a hash of (index, seed): any kernel, and a backward pass, gets the same without a mask in memory."""
    h = uint32(uint32(index) * uint32(2654435761) + seed)
    h = uint32((h ^ (h >> uint32(15))) * uint32(2246822519))
    h = h ^ (h >> uint32(13))
    return value * GROWN if h >= CUT else ZERO


@cuda.jit(device=True)
def block_sum(value, held):
    """The sum over the block, in every thread. held: (WARPS,) of shared memory, free again afterwards."""
    lane = cuda.threadIdx.x % 32
    step = 16
    while step > 0:
        value += cuda.shfl_xor_sync(FULL_MASK, value, step)
        step //= 2
    if lane == 0:
        held[cuda.threadIdx.x // 32] = value
    cuda.syncthreads()
    value = held[lane % WARPS]
    step = WARPS // 2
    while step > 0:
        value += cuda.shfl_xor_sync(FULL_MASK, value, step)
        step //= 2
    cuda.syncthreads()
    return value


# --------------------------------------------------------------------------------------------------------- pass by pass
@cuda.jit
def dropout(x, seed, out):
    """The first of five passes."""
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = dropped(x[i, j], i * out.shape[1] + j, seed)


@cuda.jit
def row_means(x, mean):
    """A block sums a row."""
    held = cuda.shared.array(WARPS, float32)
    row, total = cuda.blockIdx.x, ZERO
    for j in range(cuda.threadIdx.x, x.shape[1], THREADS):
        total += x[row, j]
    total = block_sum(total, held)
    if cuda.threadIdx.x == 0:
        mean[row] = total / float32(x.shape[1])


@cuda.jit
def row_scales(x, mean, scale):
    """1 / the standard deviation of each row: the second time that x is read."""
    held = cuda.shared.array(WARPS, float32)
    row, total = cuda.blockIdx.x, ZERO
    for j in range(cuda.threadIdx.x, x.shape[1], THREADS):
        off = x[row, j] - mean[row]
        total += off * off
    total = block_sum(total, held)
    if cuda.threadIdx.x == 0:
        scale[row] = ONE / math.sqrt(total / float32(x.shape[1]) + EPS)


@cuda.jit
def normalise(x, mean, scale, weight, bias, out):
    """The third time."""
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = (x[i, j] - mean[i]) * scale[i] * weight[j] + bias[j]


# ------------------------------------------------------------------------------------------------------------- in one pass
@cuda.jit
def dropout_residual_layernorm(x, seed, residual, weight, bias, out):
    """All of it: a row is made once, waits in shared memory for its mean and its deviation, and leaves. At most WIDEST columns."""
    kept = cuda.shared.array(WIDEST, float32)
    held = cuda.shared.array(WARPS, float32)
    row, columns, total = cuda.blockIdx.x, x.shape[1], ZERO
    for j in range(cuda.threadIdx.x, columns, THREADS):
        value = residual[row, j] + dropped(x[row, j], row * columns + j, seed)
        kept[j] = value
        total += value
    mean = block_sum(total, held) / float32(columns)
    total = ZERO
    for j in range(cuda.threadIdx.x, columns, THREADS):
        off = kept[j] - mean
        total += off * off
    scale = ONE / math.sqrt(block_sum(total, held) / float32(columns) + EPS)
    for j in range(cuda.threadIdx.x, columns, THREADS):
        out[row, j] = (kept[j] - mean) * scale * weight[j] + bias[j]


# -------------------------------------------------------------------------------------------------------------- references
def dropout_reference(x: np.ndarray, seed: np.uint32) -> np.ndarray:
    h = np.arange(x.size, dtype=np.uint32).reshape(x.shape) * np.uint32(2654435761) + seed
    h = (h ^ (h >> np.uint32(15))) * np.uint32(2246822519)
    return np.where(h ^ (h >> np.uint32(13)) >= CUT, x * GROWN, ZERO)


def layernorm_reference(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt(wide.var(1, keepdims=True) + EPS)
    return ((wide - wide.mean(1, keepdims=True)) * scale * weight + bias).astype(np.float32)


# -------------------------------------------------------------------------------------------------------------- ledgers
def passes(rows: int, columns: int) -> dict[str, Work]:
    """The ledgers of the five kernels, by name, in order. FLOPs as one would write them down."""
    size, row, column, flop = 4 * rows * columns, 4 * rows, 4 * columns, rows * columns
    return {
        "dropout": Work.read("x", size) + Work.write("d", size) + Work.flop("fp32", flop),
        "add": Work.read("d", size) + Work.read("residual", size) + Work.write("h", size) + Work.flop("fp32", flop),
        "row_means": Work.read("h", size) + Work.write("mean", row) + Work.flop("fp32", flop),
        "row_scales": Work.read("h", size) + Work.read("mean", row) + Work.write("scale", row) + Work.flop("fp32", 3 * flop),
        "normalise": Work.read("h", size) + Work.read("mean", row) + Work.read("scale", row) + Work.read("weight", column)
        + Work.read("bias", column) + Work.write("out", size) + Work.flop("fp32", 4 * flop),
    }  # fmt: skip


def work(rows: int, columns: int) -> Work:
    """Of all five as one: what passes between them costs nothing."""
    size = 4 * rows * columns
    read = Work.read("x", size) + Work.read("residual", size) + Work.read("weight", 4 * columns) + Work.read("bias", 4 * columns)
    return read + Work.write("out", size) + Work.flop("fp32", 10 * rows * columns)


# ----------------------------------------------------------------------------------------------------------------- cases
SEED = np.uint32(20260)
SHAPES = ((16, 256), (1, 1), (7, 33), (5, 1030))


def _matrix(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return random_array(rng, (rows, columns), np.float32)


def _means(rng: np.random.Generator, rows: int, columns: int, dtype=np.float32) -> tuple:
    return _matrix(rng, rows, columns), poisoned(rows, dtype)


def _scales(rng: np.random.Generator, rows: int, columns: int, dtype=np.float32) -> tuple:
    x = _matrix(rng, rows, columns)
    return x, x.mean(1, dtype=np.float32), poisoned(rows, dtype)


def _last(rng: np.random.Generator, rows: int, columns: int, dtype=np.float32) -> tuple:
    x, weight, bias = _matrix(rng, rows, columns), *random_array(rng, (2, columns), dtype)
    return x, x.mean(1), (1 / np.sqrt(x.var(1) + EPS)).astype(dtype), weight, bias, poisoned(x.shape, dtype)


def _all(rng: np.random.Generator, rows: int, columns: int, dtype=np.float32) -> tuple:
    x, residual = _matrix(rng, rows, columns), _matrix(rng, rows, columns)
    weight, bias = random_array(rng, (2, columns), dtype)
    return x, SEED, residual, weight, bias, poisoned(x.shape, dtype)


def _scales_reference(x: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return (1 / np.sqrt(x.astype(np.float64).var(1) + EPS)).astype(np.float32)


def on_rows(rows: int, columns: int) -> tuple:
    """A block for each row."""
    return ceil_div(rows, 1), THREADS


def _case(kernel, make, launch, reference, of: str, position: int, **more) -> Case:
    ledger = work if of == "all" else lambda rows, columns: passes(rows, columns)[of]
    return Case(kernel, make, launch, reference, ledger, (position,), SHAPES, tolerance=2e-5, **more)


CASES = {
    "dropout": _case(
        dropout, lambda rng, rows, columns, dtype=np.float32: (_matrix(rng, rows, columns), SEED, poisoned((rows, columns), dtype)),
        on_matrix, lambda x, seed, out: dropout_reference(x, seed), "dropout", 2,
    ),
    "row_means": _case(row_means, _means, on_rows, lambda x, mean: x.mean(1, dtype=np.float64), "row_means", 1, warp_level=True),
    "row_scales": _case(row_scales, _scales, on_rows, _scales_reference, "row_scales", 2, warp_level=True),
    "normalise": _case(
        normalise, _last, on_matrix, lambda x, mean, scale, weight, bias, out: layernorm_reference(x, weight, bias), "normalise", 5,
    ),
    "dropout_residual_layernorm": _case(
        dropout_residual_layernorm, _all, on_rows,
        lambda x, seed, residual, weight, bias, out: layernorm_reference(residual + dropout_reference(x, seed), weight, bias),
        "all", 5, warp_level=True,
    ),
}  # fmt: skip
