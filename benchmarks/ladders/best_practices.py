"""The CUDA C++ Best Practices Guide's products with an inner size of 32 (chapter on shared memory): outer-product-bpg-v100, aat-bpg-v100.

The guide states neither M nor N: each row counts relative to its ladder's last. 1024 is taken, and a warm L2; the ratios hardly depend
on it. The inner loop is over a constant: nvcc unrolls all 32 steps, and so does numba.
The place in B is a running sum, as in the SASS.
Bytes are what the guide calls effective bandwidth: A, B and C once each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import cuda, float32, uint64

from benchmarks.ladders.common import F32, Entry, gbs, one

LEFT_OUT: dict[tuple[str, str], str] = {}
N = 1024  # of M and N
TILE = 32
CELLS = TILE * TILE
SIDE = uint64(TILE)


@cuda.jit
def outer_simple(a, b, c, n):
    row = uint64(cuda.blockIdx.y) * SIDE + uint64(cuda.threadIdx.y)
    col = uint64(cuda.blockIdx.x) * SIDE + uint64(cuda.threadIdx.x)
    total, at = float32(0.0), col
    for i in range(TILE):
        total += a[row * SIDE + uint64(i)] * b[at]
        at += uint64(n)
    c[row * uint64(n) + col] = total


@cuda.jit
def outer_a_shared(a, b, c, n):
    tile = cuda.shared.array(CELLS, float32, alignment=16)
    tx, ty = uint64(cuda.threadIdx.x), uint64(cuda.threadIdx.y)
    row, col = uint64(cuda.blockIdx.y) * SIDE + ty, uint64(cuda.blockIdx.x) * SIDE + tx
    tile[ty * SIDE + tx] = a[row * SIDE + tx]
    cuda.syncwarp()
    total, at = float32(0.0), col
    for i in range(TILE):
        total += tile[ty * SIDE + uint64(i)] * b[at]
        at += uint64(n)
    c[row * uint64(n) + col] = total


@cuda.jit
def outer_ab_shared(a, b, c, n):
    tile = cuda.shared.array(CELLS, float32, alignment=16)
    tile_b = cuda.shared.array(CELLS, float32, alignment=16)
    tx, ty = uint64(cuda.threadIdx.x), uint64(cuda.threadIdx.y)
    row, col = uint64(cuda.blockIdx.y) * SIDE + ty, uint64(cuda.blockIdx.x) * SIDE + tx
    tile[ty * SIDE + tx] = a[row * SIDE + tx]
    tile_b[ty * SIDE + tx] = b[ty * uint64(n) + col]
    cuda.syncthreads()
    total = float32(0.0)
    for i in range(TILE):
        total += tile[ty * SIDE + uint64(i)] * tile_b[uint64(i) * SIDE + tx]
    c[row * uint64(n) + col] = total


@cuda.jit
def aat_simple(a, c, n):
    row = uint64(cuda.blockIdx.y) * SIDE + uint64(cuda.threadIdx.y)
    col = uint64(cuda.blockIdx.x) * SIDE + uint64(cuda.threadIdx.x)
    total = float32(0.0)
    for i in range(TILE):
        total += a[row * SIDE + uint64(i)] * a[col * SIDE + uint64(i)]
    c[row * uint64(n) + col] = total


def aat_shared(width: int) -> Any:
    """The transposed tile is stored by columns, `width` apart: 32 meets one bank, 33 all of them."""
    pitch, cells = uint64(width), TILE * width

    @cuda.jit
    def aat(a, c, n):
        tile = cuda.shared.array(CELLS, float32, alignment=16)
        turned = cuda.shared.array(cells, float32, alignment=16)
        tx, ty = uint64(cuda.threadIdx.x), uint64(cuda.threadIdx.y)
        row, col = uint64(cuda.blockIdx.y) * SIDE + ty, uint64(cuda.blockIdx.x) * SIDE + tx
        tile[ty * SIDE + tx] = a[row * SIDE + tx]
        turned[tx * pitch + ty] = a[(uint64(cuda.blockIdx.x) * SIDE + ty) * SIDE + tx]
        cuda.syncthreads()
        total = float32(0.0)
        for i in range(TILE):
            total += tile[ty * SIDE + uint64(i)] * turned[uint64(i) * pitch + tx]
        c[row * uint64(n) + col] = total

    return aat


AAT_CONFLICTS, AAT_PADDED = aat_shared(32), aat_shared(33)


def entries() -> Iterator[Entry]:
    moved = 4 * (2 * TILE * N + N * N)
    shape = {"grid": (N // TILE, N // TILE), "block": (TILE, TILE), "value": gbs(moved), "sample": 256, "cache": "warm"}

    def outer() -> tuple:
        return np.zeros(TILE * N, F32), np.zeros(TILE * N, F32), np.zeros(N * N, F32), N

    def aat() -> tuple:
        return np.zeros(TILE * N, F32), np.zeros(N * N, F32), N

    for label, kernel in (("C=AB simple", outer_simple), ("C=AB A tile", outer_a_shared), ("C=AB A and B", outer_ab_shared)):
        yield one("outer-product-bpg-v100", "Tesla V100", label, kernel, args=outer, **shape)
    for label, kernel in (("C=AA^T simple", aat_simple), ("C=AA^T smem, 32", AAT_CONFLICTS), ("C=AA^T smem padded", AAT_PADDED)):
        yield one("aat-bpg-v100", "Tesla V100", label, kernel, args=aat, **shape)
