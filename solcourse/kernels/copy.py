"""Copies: the same bytes asked for in four patterns. What a warp's 32 addresses share decides what a request costs."""

from __future__ import annotations

import numpy as np
from numba import cuda

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work

THREADS = 256
STRIDE = 3
OFFSET = 1


def work(n: int) -> Work:
    return Work.read("src", 4 * n) + Work.write("dst", 4 * n)


def gather_work(n: int) -> Work:
    return work(n) + Work.read("index", 4 * n)


@cuda.jit
def copy(src, dst):
    """Unit stride: 4 sectors per request for 4-byte elements, 8 for 8-byte ones; nothing fetched is wasted."""
    i = cuda.grid(1)
    if i < dst.size:
        dst[i] = src[i]


@cuda.jit
def copy_strided(src, dst, stride):
    """Lane i reads element i*stride: sectors per request grow with the stride up to 32, one for each lane."""
    i = cuda.grid(1)
    if i < dst.size:
        dst[i] = src[i * stride]


@cuda.jit
def copy_offset(src, dst, offset):
    """The window moves by `offset` elements: a warp straddles one more sector unless the offset is a multiple of 8 floats."""
    i = cuda.grid(1)
    if i < dst.size:
        dst[i] = src[i + offset]


@cuda.jit
def copy_gather(src, index, dst):
    """The addresses come from memory: up to one sector per lane, whatever the data."""
    i = cuda.grid(1)
    if i < dst.size:
        dst[i] = src[index[i]]


def _pair(rng: np.random.Generator, wanted: int, n: int, dtype) -> tuple:
    return random_array(rng, wanted, dtype), poisoned(n, dtype)


def _make(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return _pair(rng, n, n, dtype)


def _make_strided(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return *_pair(rng, n * STRIDE, n, dtype), STRIDE


def _make_offset(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return *_pair(rng, n + OFFSET, n, dtype), OFFSET


def _make_gather(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    src, dst = _pair(rng, n, n, dtype)
    return src, rng.permutation(n).astype(np.int32), dst


def _launch(n: int) -> tuple:
    return ceil_div(n, THREADS), THREADS


SHAPES = ((4096,), (1,), (31,), (1023,))
DTYPES = (np.float32, np.float64, np.int8, np.int16, np.int32, np.uint64, np.bool_, np.complex64, np.complex128)
FEW = (np.float32, np.int8, np.complex128)
CASES = {
    "copy": Case(copy, _make, _launch, lambda src, dst: src, work, (1,), SHAPES, DTYPES),
    "copy_strided": Case(copy_strided, _make_strided, _launch, lambda src, dst, stride: src[::stride], work, (1,), SHAPES, FEW),
    "copy_offset": Case(copy_offset, _make_offset, _launch, lambda src, dst, offset: src[offset:], work, (1,), SHAPES, FEW),
    "copy_gather": Case(copy_gather, _make_gather, _launch, lambda src, index, dst: src[index], gather_work, (2,), SHAPES, FEW),
}
