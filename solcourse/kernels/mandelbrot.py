"""Mandelbrot: every pixel loops as long as it likes, and a warp loops as long as its slowest lane."""

from __future__ import annotations

import numpy as np
from numba import cuda, float32

from solcourse.kernels.case import Case, ceil_div, poisoned
from solcourse.work import Work

BLOCK_X, BLOCK_Y = 32, 8
LEFT, BOTTOM, WIDTH = -2.0, -1.25, 3.0
ITERATIONS = 50
FOUR = np.float32(4.0)


def reference(left: float, bottom: float, step: float, iterations: int, out: np.ndarray) -> np.ndarray:  # -> (rows, columns)
    rows, columns = out.shape
    c_re = (np.arange(columns, dtype=np.float32) * step + left)[None, :].repeat(rows, 0)
    c_im = (np.arange(rows, dtype=np.float32) * step + bottom)[:, None].repeat(columns, 1)
    re, im, count = np.zeros_like(c_re), np.zeros_like(c_im), np.zeros(out.shape, out.dtype)
    inside = np.ones(out.shape, bool)
    for _ in range(iterations):
        inside &= re * re + im * im <= FOUR
        product = re * im
        re, im = np.where(inside, re * re - im * im + c_re, re), np.where(inside, product + product + c_im, im)
        count += inside
    return count


def work(rows: int, columns: int) -> Work:
    """Only what is written is compulsory: how many FLOPs a pixel takes depends on the picture (7 to 9 per iteration)."""
    return Work.write("out", 4 * rows * columns)


@cuda.jit
def mandelbrot(left, bottom, step, iterations, out):  # -> (rows, columns) int32
    """Data-dependent trip counts: active lanes fall as pixels escape; neighbours that agree cost nothing."""
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        c_re = float32(column) * step + left
        c_im = float32(row) * step + bottom
        re = float32(0.0)
        im = float32(0.0)
        count = 0
        while count < iterations and re * re + im * im <= FOUR:
            product = re * im
            re = re * re - im * im + c_re
            im = product + product + c_im
            count += 1
        out[row, column] = count


def _make(rng: np.random.Generator, rows: int, columns: int, dtype=np.int32) -> tuple:
    step = np.float32(WIDTH / columns)
    return np.float32(LEFT), np.float32(BOTTOM), step, ITERATIONS, poisoned((rows, columns), dtype)


CASES = {
    "mandelbrot": Case(
        mandelbrot, _make, lambda rows, columns: ((ceil_div(columns, BLOCK_X), ceil_div(rows, BLOCK_Y)), (BLOCK_X, BLOCK_Y)),
        reference, work, outputs=(4,), shapes=((64, 64), (1, 1), (45, 71)), dtypes=(np.int32, np.uint8, np.int64), mismatches=0.01,
    )
}  # fmt: skip
