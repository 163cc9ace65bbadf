"""Exact counts of an access whose lanes go to different memory spaces: a request to each space it really reaches."""

from __future__ import annotations

import numpy as np
from numba import cuda, float32


@cuda.jit
def even_lanes_shared_odd_lanes_global(x, out):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = 10 * x[t]
    cuda.syncthreads()
    source = tile if t % 2 == 0 else x
    out[t] = source[t]


def test_a_pointer_by_lane_asks_both_spaces(launch, counts_at):
    """2 warps: 16 lanes each from shared, 16 from global; every second word of 128 bytes still touches 4 sectors."""
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run = launch(even_lanes_shared_odd_lanes_global[1, 64], x, out)
    np.testing.assert_array_equal(out, np.where(np.arange(64) % 2 == 0, 10 * x, x))
    counts = counts_at(run, even_lanes_shared_odd_lanes_global, "out[t] =")
    assert (counts.shared_load.requests, counts.shared_load.wavefronts, counts.shared_load.bytes) == (2, 2, 2 * 16 * 4)
    assert (counts.global_load.requests, counts.global_load.sectors, counts.global_load.bytes) == (2, 2 * 4, 2 * 16 * 4)


@cuda.jit
def one_block_shared_the_other_global(x, out):
    tile = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    tile[t] = 7
    cuda.syncthreads()
    source = tile if cuda.blockIdx.x == 0 else x
    out[cuda.grid(1)] = source[t]


def test_a_pointer_by_block_asks_one_space_each(launch, counts_at):
    x, out = np.arange(32, dtype=np.float32), np.zeros(64, np.float32)
    run = launch(one_block_shared_the_other_global[2, 32], x, out)
    np.testing.assert_array_equal(out, np.concatenate((np.full(32, 7), x)))
    counts = counts_at(run, one_block_shared_the_other_global, "= source[t]")
    assert (counts.shared_load.requests, counts.global_load.requests, counts.global_load.sectors) == (1, 1, 4)
