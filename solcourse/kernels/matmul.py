"""Matrix product C = A B, the reuse ladder: every element of A and B is needed N or M times; where from?

From memory in two orders (naive, coalesced), from a shared tile, then from registers: each step loads less per FMA.
All kernels take any M, N, K; what lies outside the matrices counts as zero inside a tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import cuda, float32, uint32

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
M3, N3, T3 = 128, 64, 4  # the smaller one: the block's part of C, and the columns each thread owns


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


@dataclass(frozen=True)
class Tile:
    """Who owns what: blocks block_m x block_n of C, threads rows x columns of it; the tiles of A and B are `depth` deep.

    a_kept   how shared memory keeps A's tile: "as it is" [block_m][depth], "padded" [block_m][depth + 1], "transposed" [depth][block_m + 4]
    apart    a thread's columns of C lie apart, and those of neighbouring lanes side by side; else a thread's are side by side
    """

    block_m: int
    block_n: int
    depth: int
    rows: int
    columns: int
    a_kept: str = "as it is"
    apart: bool = True

    @property
    def across(self) -> int:
        """Threads along a row of C."""
        return self.block_n // self.columns

    @property
    def threads(self) -> int:
        return self.across * (self.block_m // self.rows)

    @property
    def shape_a(self) -> tuple[int, int]:
        shapes = {
            "as it is": (self.block_m, self.depth),
            "padded": (self.block_m, self.depth + 1),
            "transposed": (self.depth, self.block_m + 4),
        }
        return shapes[self.a_kept]

    @property
    def shared_bytes(self) -> int:
        return 4 * (math.prod(self.shape_a) + self.depth * self.block_n)

    def launch(self, m: int, n: int, k: int) -> tuple[tuple[int, int], int]:
        return (ceil_div(n, self.block_n), ceil_div(m, self.block_m)), self.threads


def register_tiled(name: str, tile: Tile, says: str) -> Any:
    """A kernel for any M, N, K. says: its docstring.

    Every load of a step is made before the first store: they are under way together. Indices are unsigned, as in transpose_unsigned;
    so are the bounds, because numba compares signed with unsigned in float64.
    """
    block_m, block_n, depth, rows, columns, across = tile.block_m, tile.block_n, tile.depth, tile.rows, tile.columns, tile.across
    threads, shape_a, transposed = tile.threads, tile.shape_a, tile.a_kept == "transposed"
    down_a, down_b = threads // depth, threads // block_n  # rows of a tile that the block fills at a time
    turns_a, turns_b = ceil_div(block_m, down_a), ceil_div(depth, down_b)
    whole = block_m % down_a == 0 and depth % down_b == 0
    first_column, step = (1, across) if tile.apart else (columns, 1)

    def product(a, b, c):
        tile_a, tile_b = cuda.shared.array(shape_a, float32), cuda.shared.array((depth, block_n), float32)
        totals = cuda.local.array((rows, columns), float32)
        of_a, of_b = cuda.local.array(rows, float32), cuda.local.array(columns, float32)
        next_a, next_b = cuda.local.array(turns_a, float32), cuda.local.array(turns_b, float32)
        t = uint32(cuda.threadIdx.x)
        m, n, inner = uint32(c.shape[0]), uint32(c.shape[1]), uint32(a.shape[1])
        row, column = uint32(cuda.blockIdx.y * block_m), uint32(cuda.blockIdx.x * block_n)
        y, x = uint32(t // across * rows), uint32(t % across * first_column)
        ya, xa, yb, xb = uint32(t // depth), uint32(t % depth), uint32(t // block_n), uint32(t % block_n)
        for r in range(rows):
            for s in range(columns):
                totals[r, s] = float32(0.0)
        for start in range(0, inner, depth):
            for r in range(turns_a):
                i, k = uint32(row + ya + r * down_a), uint32(start + xa)
                next_a[r] = a[i, k] if i < m and k < inner and (whole or ya + r * down_a < block_m) else float32(0.0)
            for r in range(turns_b):
                k, j = uint32(start + yb + r * down_b), uint32(column + xb)
                next_b[r] = b[k, j] if k < inner and j < n and (whole or yb + r * down_b < depth) else float32(0.0)
            for r in range(turns_a):
                if whole or ya + r * down_a < block_m:
                    if transposed:
                        tile_a[xa, ya + r * down_a] = next_a[r]
                    else:
                        tile_a[ya + r * down_a, xa] = next_a[r]
            for r in range(turns_b):
                if whole or yb + r * down_b < depth:
                    tile_b[yb + r * down_b, xb] = next_b[r]
            cuda.syncthreads()
            for k in range(depth):
                for r in range(rows):
                    of_a[r] = tile_a[k, y + r] if transposed else tile_a[y + r, k]
                for s in range(columns):
                    of_b[s] = tile_b[k, x + s * step]
                for r in range(rows):
                    for s in range(columns):
                        totals[r, s] += of_a[r] * of_b[s]
            cuda.syncthreads()
        for r in range(rows):
            for s in range(columns):
                i, j = uint32(row + y + r), uint32(column + x + s * step)
                if i < m and j < n:
                    c[i, j] = totals[r, s]

    product.__name__ = product.__qualname__ = name
    product.__doc__ = says
    return cuda.jit(product)


SQUARE, HALF = Tile(M2, N2, K2, T2, T2), Tile(M3, N3, K2, T2, T3)
matmul_register_2d = register_tiled(
    "matmul_register_2d", replace(SQUARE, apart=False),
    "Each thread owns 8 x 8 neighbours: 16 shared loads serve 64 FMAs. Four lanes meet in a bank of B, two rows of A in another.",
)  # fmt: skip
matmul_register_2d_interleaved = register_tiled(
    "matmul_register_2d_interleaved", SQUARE,
    "A thread's 8 columns lie 16 apart: lanes are neighbours in shared memory (no conflicts in B) and in C.",
)  # fmt: skip
matmul_register_2d_padded = register_tiled(
    "matmul_register_2d_padded", replace(SQUARE, a_kept="padded"),
    "A's tile is one word wider: the two rows that a warp reads no longer meet in one bank.",
)  # fmt: skip
matmul_register_2d_transposed = register_tiled(
    "matmul_register_2d_transposed", replace(SQUARE, a_kept="transposed"),
    "A's tile is turned instead (and padded against conflicts of the stores): a thread's 8 elements of A are neighbours.",
)  # fmt: skip
matmul_register_2d_8x4 = register_tiled(
    "matmul_register_2d_8x4", replace(HALF, a_kept="transposed"),
    "Half the totals: half as many loads again for each FMA, and so few registers that twice the warps are resident.",
)  # fmt: skip


def _make(rng: np.random.Generator, m: int, n: int, k: int, dtype=np.float32) -> tuple:
    return random_array(rng, (m, k), dtype), random_array(rng, (k, n), dtype), poisoned((m, n), dtype)


def _x_on_rows(m: int, n: int, k: int) -> tuple:
    return (ceil_div(m, BLOCK), ceil_div(n, BLOCK)), (BLOCK, BLOCK)


def _x_on_columns(m: int, n: int, k: int) -> tuple:
    return (ceil_div(n, BLOCK), ceil_div(m, BLOCK)), (BLOCK, BLOCK)


ODD = ((64, 64, 64), (1, 1, 1), (17, 33, 50))
LARGE_TILES = ((128, 128, 32), (1, 1, 1), (70, 131, 19))


def _case(kernel, launch, shapes=ODD, **more) -> Case:
    return Case(kernel, _make, launch, reference, work, (2,), shapes, tolerance=1e-5, **more)


CASES = {
    "matmul_naive": _case(matmul_naive, _x_on_rows, dtypes=(np.float32, np.float64)),
    "matmul_coalesced": _case(matmul_coalesced, _x_on_columns, dtypes=(np.float32, np.float64)),
    "matmul_tiled": _case(matmul_tiled, _x_on_columns),
    "matmul_tiled_exact": _case(matmul_tiled_exact, _x_on_columns, ((64, 64, 64), (32, 48, 16))),
    "matmul_register_1d": _case(matmul_register_1d, Tile(M1, N1, K1, T1, 1).launch, LARGE_TILES),
    "matmul_register_2d": _case(matmul_register_2d, SQUARE.launch, LARGE_TILES),
    "matmul_register_2d_interleaved": _case(matmul_register_2d_interleaved, SQUARE.launch, LARGE_TILES),
    "matmul_register_2d_padded": _case(matmul_register_2d_padded, SQUARE.launch, LARGE_TILES),
    "matmul_register_2d_transposed": _case(matmul_register_2d_transposed, SQUARE.launch, LARGE_TILES),
    "matmul_register_2d_8x4": _case(matmul_register_2d_8x4, HALF.launch, LARGE_TILES),
}
