"""Layout and direction: arrays of structs against structs of arrays, rows against columns.

Coalescing is about 32 lanes at one instant, not about one thread over time.
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


def field_work(n: int) -> Work:
    return Work.read("points.x", 4 * n) + Work.write("out", 4 * n)


def length_work(n: int) -> Work:
    """3 multiplies, 2 adds and a square root, counted as one FLOP."""
    return Work.read("points", 12 * n) + Work.write("out", 4 * n) + Work.flop("fp32", 6 * n)


def row_work(rows: int, columns: int) -> Work:
    return Work.read("a", 4 * rows * columns) + Work.write("out", 4 * rows) + Work.flop("fp32", rows * max(0, columns - 1))


def column_work(rows: int, columns: int) -> Work:
    return Work.read("a", 4 * rows * columns) + Work.write("out", 4 * columns) + Work.flop("fp32", columns * max(0, rows - 1))


@cuda.jit
def field_aos(points, out):  # (n, 3) -> (n,)
    """One field of an array of structs: 32 lanes 12 bytes apart, 12 sectors, a third of each used."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = points[i, 0]


@cuda.jit
def field_soa(points, out):  # (3, n) -> (n,)
    """One field of a struct of arrays: neighbours again, 4 sectors."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = points[0, i]


@cuda.jit
def length_aos(points, out):  # (n, 3) -> (n,)
    """All three fields of an array of structs: 12 sectors each, but the same 12, so the cache serves two of three requests."""
    i = cuda.grid(1)
    if i < out.size:
        x, y, z = points[i, 0], points[i, 1], points[i, 2]
        out[i] = math.sqrt(x * x + y * y + z * z)


@cuda.jit
def length_soa(points, out):  # (3, n) -> (n,)
    """All three fields of a struct of arrays: 4 sectors each, 12 in all, no cache needed."""
    i = cuda.grid(1)
    if i < out.size:
        x, y, z = points[0, i], points[1, i], points[2, i]
        out[i] = math.sqrt(x * x + y * y + z * z)


@cuda.jit
def row_sums(a, out):  # (rows, columns) -> (rows,)
    """One thread per row. Each thread walks neighbours, but at any instant the lanes are a row apart: 32 sectors."""
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0.0)
        for j in range(a.shape[1]):
            total += a[i, j]
        out[i] = total


@cuda.jit
def column_sums(a, out):  # (rows, columns) -> (columns,)
    """One thread per column. Each thread jumps a row at a time, and the lanes are neighbours: 4 sectors."""
    j = cuda.grid(1)
    if j < out.size:
        total = float32(0.0)
        for i in range(a.shape[0]):
            total += a[i, j]
        out[j] = total


@cuda.jit
def row_sums_warp(a, out):  # (rows, columns) -> (rows,)
    """One warp per row: lanes read neighbours, then add up through shuffles. Rows at 4 sectors per request."""
    i = cuda.grid(1) // WARP
    lane = cuda.threadIdx.x % WARP
    if i < out.size:
        total = float32(0.0)
        for j in range(lane, a.shape[1], WARP):
            total += a[i, j]
        step = WARP // 2
        while step > 0:
            total += cuda.shfl_down_sync(FULL_MASK, total, step)
            step //= 2
        if lane == 0:
            out[i] = total


def _lengths(axis: int):
    return lambda points, out: np.sqrt((points.astype(np.float64) ** 2).sum(axis)).astype(points.dtype)


def _sums(axis: int):
    return lambda a, out: a.sum(axis, dtype=np.float64).astype(a.dtype)


def _aos(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return random_array(rng, (n, 3), dtype), poisoned(n, dtype)


def _soa(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return random_array(rng, (3, n), dtype), poisoned(n, dtype)


def _rows(rng: np.random.Generator, rows: int, columns: int, dtype=np.float32) -> tuple:
    return random_array(rng, (rows, columns), dtype), poisoned(rows, dtype)


def _columns(rng: np.random.Generator, rows: int, columns: int, dtype=np.float32) -> tuple:
    return random_array(rng, (rows, columns), dtype), poisoned(columns, dtype)


def _points_launch(n: int) -> tuple:
    return ceil_div(n, THREADS), THREADS


def _points(kernel, make, reference, work, tolerance=0.0) -> Case:
    return Case(kernel, make, _points_launch, reference, work, (1,), ((1024,), (1,), (1001,)), (np.float32, np.float64), tolerance)


def _matrix(kernel, make, launch, axis, work, **more) -> Case:
    return Case(kernel, make, launch, _sums(axis), work, (1,), ((128, 64), (1, 1), (77, 45), (130, 257)), tolerance=1e-5, **more)


CASES = {
    "field_aos": _points(field_aos, _aos, lambda points, out: points[:, 0], field_work),
    "field_soa": _points(field_soa, _soa, lambda points, out: points[0], field_work),
    "length_aos": _points(length_aos, _aos, _lengths(1), length_work, 1e-6),
    "length_soa": _points(length_soa, _soa, _lengths(0), length_work, 1e-6),
    "row_sums": _matrix(row_sums, _rows, lambda rows, columns: (ceil_div(rows, THREADS), THREADS), 1, row_work),
    "column_sums": _matrix(column_sums, _columns, lambda rows, columns: (ceil_div(columns, THREADS), THREADS), 0, column_work),
    "row_sums_warp": _matrix(
        row_sums_warp, _rows, lambda rows, columns: (ceil_div(rows * WARP, THREADS), THREADS), 1, row_work, warp_level=True
    ),
}
