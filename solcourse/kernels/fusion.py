"""Fusion: what one kernel hands to the next goes through memory, a write and a read; inside one kernel it stays in a register.

An element-wise chain; bias + GELU, apart and together; a matrix product that finishes its result before it stores it (its epilogue):
bias + GELU, the residual of an output projection (o_proj), and all three.
GELU in its tanh form: D. Hendrycks, K. Gimpel, "Gaussian error linear units", arXiv 1606.08415.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float32

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work, fuse

THREADS = 256
ROW = (32, 8)  # a block of the kernels on matrices: each of its warps takes 32 columns of a row, and all want the same bias
STEPS = 4  # of the chain, where a case needs a number
ONE, HALF = np.float32(1.0), np.float32(0.5)  # a Python float would make float64 of everything it meets
TANH_SCALE, TANH_CUBE = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)
GELU_FLOPS = 9  # x x x c + x, times the scale, tanh as one, plus 1, times x / 2

M, N, K = 64, 64, 8  # of the product: the block's part of C, and the depth of a step
T = 4  # rows and columns of C that a thread owns, the columns COLUMNS apart
COLUMNS = N // T
TILE_THREADS = M * N // T**2
FETCHED = M * K // TILE_THREADS  # elements of a tile that each thread brings, of A as of B
M_PADDED = M + 4


# -------------------------------------------------------------------------------------------------------- element-wise
def chain_work(n: int, steps: int = STEPS) -> Work:
    return Work.read("x", 4 * n) + Work.write("out", 4 * n) + Work.flop("fp32", 2 * n * steps)


@cuda.jit
def chain(x, scale, shift, steps, out):
    """`steps` (int32) times value * scale + shift, in a register. One step a launch is the unfused chain."""
    i = cuda.grid(1)
    if i < out.size:
        value = x[i]
        for _ in range(steps):
            value = value * scale + shift
        out[i] = value


@cuda.jit(device=True)
def gelu_of(x):
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))"""
    return HALF * x * (ONE + math.tanh(TANH_SCALE * (x + TANH_CUBE * x * x * x)))


@cuda.jit
def add_bias(x, bias, out):
    """(rows, columns) + (columns,): the first of two passes."""
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j] + bias[j]


@cuda.jit
def gelu(x, out):
    """The second pass: reads what the first has just written."""
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = gelu_of(x[i, j])


@cuda.jit
def bias_gelu(x, bias, out):
    """Both in one pass."""
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = gelu_of(x[i, j] + bias[j])


@cuda.jit
def add(x, residual, out):
    """(rows, columns) + (rows, columns)."""
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j] + residual[i, j]


# ------------------------------------------------------------------------------------------------- matmul with epilogue
@cuda.jit(device=True)
def plain(total, bias, residual):
    """Nothing: C = A B alone, to compare with."""
    return total


@cuda.jit(device=True)
def with_bias_gelu(total, bias, residual):
    """GELU(A B + bias): the first half of a transformer's MLP. The bias is added where the result leaves."""
    return gelu_of(total + bias)


@cuda.jit(device=True)
def with_residual(total, bias, residual):
    """A B + residual: the output projection of attention (o_proj) and what it is added to."""
    return total + residual


@cuda.jit(device=True)
def with_all(total, bias, residual):
    """GELU(A B + bias) + residual, one launch instead of three."""
    return gelu_of(total + bias) + residual


def matmul(name: str, epilogue: Any) -> Any:
    """A register-tiled product (kernels/matmul.py builds one up) that stores epilogue(total, bias, residual) where it would store total.

    Loads first, uses after: of the tiles, so that a step waits for memory once; of the residual, a row at a time, because the compiler may
    not move a load over a store, and a thread would wait for each in turn. (All rows at once take 72 registers instead of 64, and with
    them one of the four blocks an SM holds.) What an epilogue does not use is not loaded.
    """

    def kernel(a, b, bias, residual, c):
        tile_a = cuda.shared.array((K, M_PADDED), float32)
        tile_b = cuda.shared.array((K, N), float32)
        totals = cuda.local.array((T, T), float32)
        of_a, of_b = cuda.local.array(T, float32), cuda.local.array(T, float32)
        of_bias, late = cuda.local.array(T, float32), cuda.local.array(T, float32)
        next_a, next_b = cuda.local.array(FETCHED, float32), cuda.local.array(FETCHED, float32)
        m, n, depth, t = c.shape[0], c.shape[1], a.shape[1], cuda.threadIdx.x
        row, column = cuda.blockIdx.y * M, cuda.blockIdx.x * N
        y, x = t // COLUMNS * T, t % COLUMNS
        for r in range(T):
            for s in range(T):
                totals[r, s] = float32(0.0)
        for start in range(0, depth, K):
            for e in range(FETCHED):  # outside the matrices: some element, then 0 instead. No branch, so nothing waits
                i, k = row + (t + e * TILE_THREADS) // K, start + (t + e * TILE_THREADS) % K
                value = a[min(i, m - 1), min(k, depth - 1)]
                next_a[e] = value if i < m and k < depth else float32(0.0)
            for e in range(FETCHED):
                k, j = start + (t + e * TILE_THREADS) // N, column + (t + e * TILE_THREADS) % N
                value = b[min(k, depth - 1), min(j, n - 1)]
                next_b[e] = value if k < depth and j < n else float32(0.0)
            cuda.syncthreads()
            for e in range(FETCHED):
                tile_a[(t + e * TILE_THREADS) % K, (t + e * TILE_THREADS) // K] = next_a[e]
                tile_b[(t + e * TILE_THREADS) // N, (t + e * TILE_THREADS) % N] = next_b[e]
            cuda.syncthreads()
            for k in range(K):
                for r in range(T):
                    of_a[r] = tile_a[k, y + r]
                for s in range(T):
                    of_b[s] = tile_b[k, x + s * COLUMNS]
                for r in range(T):
                    for s in range(T):
                        totals[r, s] += of_a[r] * of_b[s]
        for s in range(T):
            of_bias[s] = bias[min(column + x + s * COLUMNS, n - 1)]
        for r in range(T):
            i = row + y + r
            for s in range(T):
                late[s] = residual[min(i, m - 1), min(column + x + s * COLUMNS, n - 1)]
            for s in range(T):
                j = column + x + s * COLUMNS
                if i < m and j < n:
                    c[i, j] = epilogue(totals[r, s], of_bias[s], late[s])

    kernel.__name__ = kernel.__qualname__ = name
    kernel.__doc__ = epilogue.py_func.__doc__
    return cuda.jit(kernel)


matmul_plain = matmul("matmul_plain", plain)
matmul_bias_gelu = matmul("matmul_bias_gelu", with_bias_gelu)
matmul_residual = matmul("matmul_residual", with_residual)
matmul_bias_gelu_residual = matmul("matmul_bias_gelu_residual", with_all)


# ---------------------------------------------------------------------------------------------------------------- ledgers
def bias_work(m: int, n: int) -> Work:
    return Work.read("x", 4 * m * n) + Work.read("bias", 4 * n) + Work.write("t", 4 * m * n) + Work.flop("fp32", m * n)


def gelu_work(m: int, n: int) -> Work:
    return Work.read("t", 4 * m * n) + Work.write("out", 4 * m * n) + Work.flop("fp32", GELU_FLOPS * m * n)


def add_work(m: int, n: int) -> Work:
    return Work.read("x", 4 * m * n) + Work.read("residual", 4 * m * n) + Work.write("out", 4 * m * n) + Work.flop("fp32", m * n)


def matmul_work(m: int, n: int, k: int, bias: bool = False, residual: bool = False) -> Work:
    """A B, with the bias and GELU, with the residual, where asked for."""
    work = Work.read("A", 4 * m * k) + Work.read("B", 4 * k * n) + Work.write("out", 4 * m * n) + Work.flop("fp32", 2 * m * n * k)
    if bias:
        work = work + Work.read("bias", 4 * n) + Work.flop("fp32", (1 + GELU_FLOPS) * m * n)
    return work + Work.read("residual", 4 * m * n) + Work.flop("fp32", m * n) if residual else work


# --------------------------------------------------------------------------------------------------------------- references
def gelu_reference(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))


def matmul_reference(bias: bool = False, residual: bool = False) -> Callable[..., np.ndarray]:
    def reference(a, b, bias_, residual_, c):
        made = a.astype(np.float64) @ b.astype(np.float64)
        made = gelu_reference(made + bias_) if bias else made
        return (made + residual_ if residual else made).astype(c.dtype)

    return reference


def chain_reference(x: np.ndarray, scale: np.float32, shift: np.float32, steps: int, out: np.ndarray) -> np.ndarray:
    value = x.astype(np.float64)
    for _ in range(steps):
        value = value * scale + shift
    return value.astype(x.dtype)


# -------------------------------------------------------------------------------------------------------------------- cases
def on_chain(n: int) -> tuple:
    return ceil_div(n, THREADS), THREADS


def on_matrix(m: int, n: int) -> tuple:
    """A thread for each element of a matrix (m, n)."""
    return (ceil_div(n, ROW[0]), ceil_div(m, ROW[1])), ROW


def on_tiles(m: int, n: int, k: int) -> tuple:
    return (ceil_div(n, N), ceil_div(m, M)), TILE_THREADS


def _chain(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return random_array(rng, n, dtype), np.float32(0.75), np.float32(-1.25), np.int32(STEPS), poisoned(n, dtype)


def _matrices(*more: str) -> Callable[..., tuple]:
    """x, then the bias or the residual, then the output."""

    def make(rng: np.random.Generator, m: int, n: int, dtype=np.float32) -> tuple:
        shapes: dict[str, Any] = {"bias": n, "residual": (m, n)}
        return 3 * random_array(rng, (m, n), dtype), *(random_array(rng, shapes[name], dtype) for name in more), poisoned((m, n), dtype)

    return make


def _product(bias: bool, residual: bool) -> Callable[..., tuple]:
    """A, B, bias, residual, C. What an epilogue does not use is empty: nothing may ask for it."""

    def make(rng: np.random.Generator, m: int, n: int, k: int, dtype=np.float32) -> tuple:
        shapes: tuple[Any, ...] = ((m, k), (k, n), n if bias else 0, (m, n) if residual else (0, 0))
        return *(random_array(rng, shape, dtype) for shape in shapes), poisoned((m, n), dtype)

    return make


def _element(kernel: Any, more: tuple[str, ...], reference: Any, work: Any) -> Case:
    return Case(kernel, _matrices(*more), on_matrix, reference, work, (1 + len(more),), ((64, 96), (1, 1), (13, 45)), tolerance=1e-6)


def _tile(kernel: Any, bias: bool = False, residual: bool = False) -> Case:
    def work(m: int, n: int, k: int) -> Work:
        return matmul_work(m, n, k, bias, residual)

    shapes = ((128, 128, 32), (1, 1, 1), (70, 131, 19), (64, 7, 9))
    return Case(kernel, _product(bias, residual), on_tiles, matmul_reference(bias, residual), work, (4,), shapes, tolerance=1e-5)


CASES = {
    "chain": Case(chain, _chain, on_chain, chain_reference, chain_work, (4,), ((4096,), (1,), (777,)), tolerance=1e-6),
    "add_bias": _element(add_bias, ("bias",), lambda x, bias, out: x + bias, bias_work),
    "gelu": _element(gelu, (), lambda x, out: gelu_reference(x), gelu_work),
    "bias_gelu": _element(
        bias_gelu, ("bias",), lambda x, bias, out: gelu_reference(x + bias), lambda m, n: fuse(bias_work(m, n), gelu_work(m, n)),
    ),
    "add": _element(add, ("residual",), lambda x, residual, out: x + residual, add_work),
    "matmul_plain": _tile(matmul_plain),
    "matmul_bias_gelu": _tile(matmul_bias_gelu, bias=True),
    "matmul_residual": _tile(matmul_residual, residual=True),
    "matmul_bias_gelu_residual": _tile(matmul_bias_gelu_residual, bias=True, residual=True),
}  # fmt: skip
