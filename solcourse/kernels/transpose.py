"""Transpose: both orders are needed, so one side must be strided, unless a tile in shared memory turns the corner.

A block of 32 x 8 threads moves a tile of 32 x 32, four rows per thread. The ladder: the copy that sets the mark, naive and naive the
other way round, tiled (coalesced, but 32 lanes in one bank), swizzled and padded (two cures for that), unsigned (fewer instructions).
The 32 passes per request go from global stores to global loads to shared loads before they go away.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32, uint32

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work

TILE = 32
ROWS = 8  # threads along y; each handles TILE // ROWS rows
PADDED = TILE + 1


def reference(a: np.ndarray, out: np.ndarray) -> np.ndarray:  # (rows, columns) -> (columns, rows)
    return a.T


def work(rows: int, columns: int) -> Work:
    size = 4 * rows * columns
    return Work.read("a", size) + Work.write("out", size)


@cuda.jit
def transpose_copy(a, out):  # (rows, columns) -> (rows, columns)
    """Not a transpose: the same tile-wise walk without turning, the speed a transpose can hope for."""
    x = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    y = cuda.blockIdx.y * TILE + cuda.threadIdx.y
    for k in range(0, TILE, ROWS):
        if y + k < a.shape[0] and x < a.shape[1]:
            out[y + k, x] = a[y + k, x]


@cuda.jit
def transpose_naive(a, out):
    """Reads rows, 4 sectors; writes columns, 32 sectors of which an eighth is used."""
    x = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    y = cuda.blockIdx.y * TILE + cuda.threadIdx.y
    for k in range(0, TILE, ROWS):
        if y + k < a.shape[0] and x < a.shape[1]:
            out[x, y + k] = a[y + k, x]


@cuda.jit
def transpose_by_columns(a, out):
    """Naive the other way round: reads columns, 32 sectors, of which L1 keeps the rest for the next rows; writes rows, 4 sectors."""
    x = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    y = cuda.blockIdx.y * TILE + cuda.threadIdx.y
    for k in range(0, TILE, ROWS):
        if y + k < a.shape[1] and x < a.shape[0]:
            out[y + k, x] = a[x, y + k]


@cuda.jit
def transpose_tiled(a, out):
    """Through a [32][32] tile: 4 sectors both ways, but a column of the tile lies in one bank: 32 wavefronts per request."""
    tile = cuda.shared.array((TILE, TILE), float32)
    x = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    y = cuda.blockIdx.y * TILE + cuda.threadIdx.y
    for k in range(0, TILE, ROWS):
        if y + k < a.shape[0] and x < a.shape[1]:
            tile[cuda.threadIdx.y + k, cuda.threadIdx.x] = a[y + k, x]
    cuda.syncthreads()
    x = cuda.blockIdx.y * TILE + cuda.threadIdx.x
    y = cuda.blockIdx.x * TILE + cuda.threadIdx.y
    for k in range(0, TILE, ROWS):
        if y + k < a.shape[1] and x < a.shape[0]:
            out[y + k, x] = tile[cuda.threadIdx.x, cuda.threadIdx.y + k]


@cuda.jit
def transpose_swizzled(a, out):
    """No padding: element (r, c) is kept in column c XOR r. Rows and columns both touch 32 banks, and no word is wasted."""
    tile = cuda.shared.array((TILE, TILE), float32)
    x = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    y = cuda.blockIdx.y * TILE + cuda.threadIdx.y
    for k in range(0, TILE, ROWS):
        if y + k < a.shape[0] and x < a.shape[1]:
            tile[cuda.threadIdx.y + k, cuda.threadIdx.x ^ (cuda.threadIdx.y + k)] = a[y + k, x]
    cuda.syncthreads()
    x = cuda.blockIdx.y * TILE + cuda.threadIdx.x
    y = cuda.blockIdx.x * TILE + cuda.threadIdx.y
    for k in range(0, TILE, ROWS):
        if y + k < a.shape[1] and x < a.shape[0]:
            out[y + k, x] = tile[cuda.threadIdx.x, (cuda.threadIdx.y + k) ^ cuda.threadIdx.x]


@cuda.jit
def transpose_padded(a, out):
    """One unused column, [32][33]: row r starts in bank r, so a column touches every bank once: 1 wavefront."""
    tile = cuda.shared.array((TILE, PADDED), float32)
    x = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    y = cuda.blockIdx.y * TILE + cuda.threadIdx.y
    for k in range(0, TILE, ROWS):
        if y + k < a.shape[0] and x < a.shape[1]:
            tile[cuda.threadIdx.y + k, cuda.threadIdx.x] = a[y + k, x]
    cuda.syncthreads()
    x = cuda.blockIdx.y * TILE + cuda.threadIdx.x
    y = cuda.blockIdx.x * TILE + cuda.threadIdx.y
    for k in range(0, TILE, ROWS):
        if y + k < a.shape[1] and x < a.shape[0]:
            out[y + k, x] = tile[cuda.threadIdx.x, cuda.threadIdx.y + k]


@cuda.jit
def transpose_unsigned(a, out):
    """Padded, with indices that cannot be negative: no check whether an index counts from the end, half the instructions."""
    tile = cuda.shared.array((TILE, PADDED), float32)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    left, top = uint32(cuda.blockIdx.x * TILE), uint32(cuda.blockIdx.y * TILE)
    x = left + tx
    y = top + ty
    for k in range(0, TILE, ROWS):
        if y + k < a.shape[0] and x < a.shape[1]:
            tile[ty + k, tx] = a[y + k, x]
    cuda.syncthreads()
    x = top + tx
    y = left + ty
    for k in range(0, TILE, ROWS):
        if y + k < a.shape[1] and x < a.shape[0]:
            out[y + k, x] = tile[tx, ty + k]


def _make(rng: np.random.Generator, rows: int, columns: int, dtype=np.float32) -> tuple:
    return random_array(rng, (rows, columns), dtype), poisoned((columns, rows), dtype)


def _make_copy(rng: np.random.Generator, rows: int, columns: int, dtype=np.float32) -> tuple:
    return random_array(rng, (rows, columns), dtype), poisoned((rows, columns), dtype)


def _launch(rows: int, columns: int) -> tuple:
    return (ceil_div(columns, TILE), ceil_div(rows, TILE)), (TILE, ROWS)


def _case(kernel, make=_make, reference=reference, launch=_launch, **more) -> Case:
    return Case(kernel, make, launch, reference, work, (1,), ((64, 96), (1, 1), (33, 31), (45, 101)), **more)


CASES = {
    "transpose_copy": _case(transpose_copy, _make_copy, lambda a, out: a, dtypes=(np.float32, np.float64, np.int16)),
    "transpose_naive": _case(transpose_naive, dtypes=(np.float32, np.float64, np.int16)),
    "transpose_by_columns": _case(transpose_by_columns, launch=lambda rows, columns: _launch(columns, rows)),
    "transpose_tiled": _case(transpose_tiled),
    "transpose_swizzled": _case(transpose_swizzled),
    "transpose_padded": _case(transpose_padded),
    "transpose_unsigned": _case(transpose_unsigned),
}
