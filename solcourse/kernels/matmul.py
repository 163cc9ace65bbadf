"""Matrix product C = A B, the reuse ladder: every element of A and B is needed N or M times; where from?

From memory in two orders (naive, coalesced), from a shared tile, then from registers: each step loads less per FMA.
All kernels take any M, N, K; what lies outside the matrices counts as zero inside a tile.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work

BLOCK = 16  # the square blocks of the first kernels
TILE = 16  # the tile of the tiled ones
M1 = N1 = 64  # 1-D register tile: the block's part of C ...
K1 = 8  # ... the depth of a step ...
T1 = 8  # ... and the rows each thread owns
M2 = N2 = 128  # 2-D register tile: the block's part of C ...
K2 = 8  # ... the depth of a step ...
T2 = 8  # ... and the rows and columns each thread owns
COLUMNS2 = N2 // T2  # threads along a row of C
THREADS1 = M1 * N1 // T1
THREADS2 = M2 * N2 // T2**2
M2_PADDED = M2 + 4


def reference(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:  # (m, k) (k, n) -> (m, n)
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(c.dtype)


def work(m: int, n: int, k: int) -> Work:
    return Work.read("A", 4 * m * k) + Work.read("B", 4 * k * n) + Work.write("C", 4 * m * n) + Work.flop("fp32", 2 * m * n * k)


@cuda.jit
def matmul_naive(a, b, c):
    """One thread per element, threadIdx.x along the rows: lanes read A and write C a row apart. Two lines differ below."""
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        total = float32(0.0)
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total


@cuda.jit
def matmul_coalesced(a, b, c):
    """threadIdx.x along the columns: A is a broadcast, B and C are 4 sectors per request. Still two loads for each FMA."""
    j, i = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        total = float32(0.0)
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total


@cuda.jit
def matmul_tiled(a, b, c):
    """A block keeps a tile of A and one of B in shared memory: each element is fetched once per block, not once per thread."""
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    j, i = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for start in range(0, a.shape[1], TILE):
        tile_a[y, x] = a[i, start + x] if i < a.shape[0] and start + x < a.shape[1] else float32(0.0)
        tile_b[y, x] = b[start + y, j] if start + y < b.shape[0] and j < b.shape[1] else float32(0.0)
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = total


@cuda.jit
def matmul_tiled_exact(a, b, c):
    """matmul_tiled without its guards: M, N and K must be multiples of TILE. What the guards cost, and the textbook form."""
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    j, i = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for start in range(0, a.shape[1], TILE):
        tile_a[y, x] = a[i, start + x]
        tile_b[y, x] = b[start + y, j]
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    c[i, j] = total


@cuda.jit
def matmul_register_1d(a, b, c):
    """Each thread owns 8 elements of a column of C: one load of B from shared memory serves 8 FMAs."""
    tile_a = cuda.shared.array((M1, K1), float32)
    tile_b = cuda.shared.array((K1, N1), float32)
    totals = cuda.local.array(T1, float32)
    t = cuda.threadIdx.x
    row, column = cuda.blockIdx.y * M1, cuda.blockIdx.x * N1
    y, x = t // N1 * T1, t % N1
    for r in range(T1):
        totals[r] = float32(0.0)
    for start in range(0, a.shape[1], K1):
        i, k = row + t // K1, start + t % K1
        tile_a[t // K1, t % K1] = a[i, k] if i < a.shape[0] and k < a.shape[1] else float32(0.0)
        k, j = start + t // N1, column + t % N1
        tile_b[t // N1, t % N1] = b[k, j] if k < b.shape[0] and j < b.shape[1] else float32(0.0)
        cuda.syncthreads()
        for k in range(K1):
            of_b = tile_b[k, x]
            for r in range(T1):
                totals[r] += tile_a[y + r, k] * of_b
        cuda.syncthreads()
    for r in range(T1):
        if row + y + r < c.shape[0] and column + x < c.shape[1]:
            c[row + y + r, column + x] = totals[r]


@cuda.jit
def matmul_register_2d(a, b, c):
    """Each thread owns 8 x 8 elements of C: 16 shared loads serve 64 FMAs. Owning neighbours, lanes meet in the same banks."""
    tile_a = cuda.shared.array((M2, K2), float32)
    tile_b = cuda.shared.array((K2, N2), float32)
    totals = cuda.local.array((T2, T2), float32)
    of_a, of_b = cuda.local.array(T2, float32), cuda.local.array(T2, float32)
    t = cuda.threadIdx.x
    row, column = cuda.blockIdx.y * M2, cuda.blockIdx.x * N2
    y, x = t // COLUMNS2 * T2, t % COLUMNS2 * T2
    for r in range(T2):
        for s in range(T2):
            totals[r, s] = float32(0.0)
    for start in range(0, a.shape[1], K2):
        for e in range(t, M2 * K2, THREADS2):
            i, k = row + e // K2, start + e % K2
            tile_a[e // K2, e % K2] = a[i, k] if i < a.shape[0] and k < a.shape[1] else float32(0.0)
        for e in range(t, K2 * N2, THREADS2):
            k, j = start + e // N2, column + e % N2
            tile_b[e // N2, e % N2] = b[k, j] if k < b.shape[0] and j < b.shape[1] else float32(0.0)
        cuda.syncthreads()
        for k in range(K2):
            for r in range(T2):
                of_a[r] = tile_a[y + r, k]
            for s in range(T2):
                of_b[s] = tile_b[k, x + s]
            for r in range(T2):
                for s in range(T2):
                    totals[r, s] += of_a[r] * of_b[s]
        cuda.syncthreads()
    for r in range(T2):
        for s in range(T2):
            if row + y + r < c.shape[0] and column + x + s < c.shape[1]:
                c[row + y + r, column + x + s] = totals[r, s]


@cuda.jit
def matmul_register_2d_interleaved(a, b, c):
    """The 8 columns of a thread lie COLUMNS2 apart: lanes are neighbours in shared memory (no conflicts) and in C."""
    tile_a = cuda.shared.array((M2, K2), float32)
    tile_b = cuda.shared.array((K2, N2), float32)
    totals = cuda.local.array((T2, T2), float32)
    of_a, of_b = cuda.local.array(T2, float32), cuda.local.array(T2, float32)
    t = cuda.threadIdx.x
    row, column = cuda.blockIdx.y * M2, cuda.blockIdx.x * N2
    y, x = t // COLUMNS2 * T2, t % COLUMNS2
    for r in range(T2):
        for s in range(T2):
            totals[r, s] = float32(0.0)
    for start in range(0, a.shape[1], K2):
        for e in range(t, M2 * K2, THREADS2):
            i, k = row + e // K2, start + e % K2
            tile_a[e // K2, e % K2] = a[i, k] if i < a.shape[0] and k < a.shape[1] else float32(0.0)
        for e in range(t, K2 * N2, THREADS2):
            k, j = start + e // N2, column + e % N2
            tile_b[e // N2, e % N2] = b[k, j] if k < b.shape[0] and j < b.shape[1] else float32(0.0)
        cuda.syncthreads()
        for k in range(K2):
            for r in range(T2):
                of_a[r] = tile_a[y + r, k]
            for s in range(T2):
                of_b[s] = tile_b[k, x + s * COLUMNS2]
            for r in range(T2):
                for s in range(T2):
                    totals[r, s] += of_a[r] * of_b[s]
        cuda.syncthreads()
    for r in range(T2):
        for s in range(T2):
            if row + y + r < c.shape[0] and column + x + s * COLUMNS2 < c.shape[1]:
                c[row + y + r, column + x + s * COLUMNS2] = totals[r, s]


@cuda.jit
def matmul_register_2d_transposed(a, b, c):
    """A transposed (and padded) in shared memory: the two rows a warp reads of A no longer meet in one bank."""
    tile_a = cuda.shared.array((K2, M2_PADDED), float32)
    tile_b = cuda.shared.array((K2, N2), float32)
    totals = cuda.local.array((T2, T2), float32)
    of_a, of_b = cuda.local.array(T2, float32), cuda.local.array(T2, float32)
    t = cuda.threadIdx.x
    row, column = cuda.blockIdx.y * M2, cuda.blockIdx.x * N2
    y, x = t // COLUMNS2 * T2, t % COLUMNS2
    for r in range(T2):
        for s in range(T2):
            totals[r, s] = float32(0.0)
    for start in range(0, a.shape[1], K2):
        for e in range(t, M2 * K2, THREADS2):
            i, k = row + e // K2, start + e % K2
            tile_a[e % K2, e // K2] = a[i, k] if i < a.shape[0] and k < a.shape[1] else float32(0.0)
        for e in range(t, K2 * N2, THREADS2):
            k, j = start + e // N2, column + e % N2
            tile_b[e // N2, e % N2] = b[k, j] if k < b.shape[0] and j < b.shape[1] else float32(0.0)
        cuda.syncthreads()
        for k in range(K2):
            for r in range(T2):
                of_a[r] = tile_a[k, y + r]
            for s in range(T2):
                of_b[s] = tile_b[k, x + s * COLUMNS2]
            for r in range(T2):
                for s in range(T2):
                    totals[r, s] += of_a[r] * of_b[s]
        cuda.syncthreads()
    for r in range(T2):
        for s in range(T2):
            if row + y + r < c.shape[0] and column + x + s * COLUMNS2 < c.shape[1]:
                c[row + y + r, column + x + s * COLUMNS2] = totals[r, s]


def _make(rng: np.random.Generator, m: int, n: int, k: int, dtype=np.float32) -> tuple:
    return random_array(rng, (m, k), dtype), random_array(rng, (k, n), dtype), poisoned((m, n), dtype)


def _x_on_rows(m: int, n: int, k: int) -> tuple:
    return (ceil_div(m, BLOCK), ceil_div(n, BLOCK)), (BLOCK, BLOCK)


def _x_on_columns(m: int, n: int, k: int) -> tuple:
    return (ceil_div(n, BLOCK), ceil_div(m, BLOCK)), (BLOCK, BLOCK)


def _in_one_dimension(rows: int, columns: int, threads: int):
    return lambda m, n, k: ((ceil_div(n, columns), ceil_div(m, rows)), threads)


ODD = ((64, 64, 64), (1, 1, 1), (17, 33, 50))
LARGE_TILES = ((128, 128, 32), (1, 1, 1), (70, 131, 19))


def _case(kernel, launch, shapes=ODD, **more) -> Case:
    return Case(kernel, _make, launch, reference, work, (2,), shapes, tolerance=1e-5, **more)


CASES = {
    "matmul_naive": _case(matmul_naive, _x_on_rows, dtypes=(np.float32, np.float64)),
    "matmul_coalesced": _case(matmul_coalesced, _x_on_columns, dtypes=(np.float32, np.float64)),
    "matmul_tiled": _case(matmul_tiled, _x_on_columns),
    "matmul_tiled_exact": _case(matmul_tiled_exact, _x_on_columns, ((64, 64, 64), (32, 48, 16))),
    "matmul_register_1d": _case(matmul_register_1d, _in_one_dimension(M1, N1, THREADS1), LARGE_TILES),
    "matmul_register_2d": _case(matmul_register_2d, _in_one_dimension(M2, N2, THREADS2), LARGE_TILES),
    "matmul_register_2d_interleaved": _case(matmul_register_2d_interleaved, _in_one_dimension(M2, N2, THREADS2), LARGE_TILES),
    "matmul_register_2d_transposed": _case(matmul_register_2d_transposed, _in_one_dimension(M2, N2, THREADS2), LARGE_TILES),
}
