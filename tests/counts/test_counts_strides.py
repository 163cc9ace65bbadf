"""Constant strides, which the engine looks for first, beside everything else at the same place: any start, width and mask."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numba import cuda

WARP, SECTOR, WORD, BANKS = 32, 32, 4, 32
BLOCKS, THREADS, VISITS = 12, 64, 9
STRIDES = [1, 2, 3, 5, 8, 31, 32, 33]


def reader(stride, dtype, shared):
    """A kernel that reads x[start + stride * thread] in every `every`-th of the first `width` threads."""
    t = numba.from_dtype(np.dtype(dtype))
    size = 64 * stride + 512

    @cuda.jit
    def from_global(x, start, width, every, out):
        b, i = cuda.blockIdx.x, cuda.threadIdx.x
        total = t(0)
        for k in range(start.shape[1]):
            if i < width[b, k] and i % every[b, k] == 0:
                total += x[start[b, k] + stride * i]
        out[b, i] = total

    @cuda.jit
    def from_shared(x, start, width, every, out):
        tile = cuda.shared.array(size, t)
        b, i = cuda.blockIdx.x, cuda.threadIdx.x
        for k in range(i, size, cuda.blockDim.x):
            tile[k] = x[k]
        cuda.syncthreads()
        total = t(0)
        for k in range(start.shape[1]):
            if i < width[b, k] and i % every[b, k] == 0:
                total += tile[start[b, k] + stride * i]
        out[b, i] = total

    return (from_shared if shared else from_global), size


def requests(start, width, every, stride):
    """The element indices of each request's active lanes."""
    for b in range(BLOCKS):
        for k in range(VISITS):
            for warp in range(THREADS // WARP):
                lane = np.arange(WARP * warp, WARP * (warp + 1))
                on = (lane < width[b, k]) & (lane % every[b, k] == 0)
                if on.any():
                    yield lane[on], start[b, k] + stride * lane[on]


def passes(lanes, index, size):
    """Shared memory: the most different words that one bank is asked for; 8-byte elements go by half-warps."""
    total = 0
    for half in (lanes % WARP < 16, lanes % WARP >= 16) if size == 8 else (lanes >= 0,):
        first = index[half] * size // WORD
        words = np.unique(np.concatenate([first, first + 1]) if size == 8 else first)
        total += np.bincount(words % BANKS).max() if len(words) else 0
    return total


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("shared", [False, True], ids=["global", "shared"])
def test_every_request_costs_what_the_definition_says(launch, dtype, stride, shared):
    rng = np.random.default_rng(1000 * stride + np.dtype(dtype).itemsize)
    kernel, size = reader(stride, dtype, shared)
    start = rng.integers(0, 400, (BLOCKS, VISITS))
    width = rng.choice([64, 64, 64, 32, 50, 5], (BLOCKS, VISITS))
    every = rng.choice([1, 1, 1, 2, 3], (BLOCKS, VISITS))
    x, out = rng.integers(0, 3, size).astype(dtype), np.zeros((BLOCKS, THREADS), dtype)
    run = launch(kernel[BLOCKS, THREADS], x, start, width, every, out)
    item = np.dtype(dtype).itemsize
    every_request = list(requests(start, width, every, stride))
    array, kind = ("tile", "shared_load") if shared else ("x", "global_load")
    sites = [run.site_counts[s.index] for s in run.program.sites if (s.array, s.kind) == (array, kind)]
    assert sum(c.requests for c in sites) == len(every_request)
    assert sum(c.bytes for c in sites) == item * sum(len(lanes) for lanes, _ in every_request)
    if shared:
        assert sum(c.wavefronts for c in sites) == sum(passes(lanes, index, item) for lanes, index in every_request)
    else:
        assert sum(c.sectors for c in sites) == sum(len(np.unique(index * item // SECTOR)) for _, index in every_request)
    expected = np.zeros((BLOCKS, THREADS), dtype)
    for b in range(BLOCKS):
        for k in range(VISITS):
            i = np.arange(THREADS)
            on = (i < width[b, k]) & (i % every[b, k] == 0)
            expected[b, on] += x[start[b, k] + stride * i[on]]
    np.testing.assert_array_equal(out, expected)
