"""Atomics, exactly: a request of one warp, its sectors, and how often one address is hit."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

from solcourse.kernels import cases
from solcourse.kernels.histogram import BINS, BLOCKS, histogram_global, histogram_shared


@cuda.jit
def add_at(index, out):
    i = cuda.grid(1)
    cuda.atomic.add(out, index[i], 1)


@pytest.mark.parametrize(
    ("index", "sectors", "hits"),
    [
        (np.zeros(128), 1, 4),  # all lanes at one address: combined in the warp, 4 warps
        (np.arange(128), 4, 1),  # neighbours
        (np.arange(128) * 8, 32, 1),  # a sector each
        (np.arange(128) % 32, 4, 4),  # every warp hits the same 32 addresses
        (np.arange(128) // 2, 2, 1),  # pairs of lanes share an address; 16 words = 2 sectors
    ],
)
def test_global_atomics_cost_the_sectors_they_touch(launch, index, sectors, hits):
    run = launch(add_at[2, 64], index.astype(np.int64), np.zeros(1024, np.int32))
    access = run.counts.global_atomic
    assert (access.requests, access.sectors, access.bytes) == (4, 4 * sectors, 128 * 4)
    assert run.same_address_atomics == hits
    assert run.counts.global_store.requests == 0
    assert run.counts.global_load.requests == 4  # the index


def test_kernels_without_atomics_have_none(launch, rng):
    c = cases("vector_add")["vector_add"]
    run = launch(c.configured(1024), *c.make(rng, 1024))
    assert run.counts.global_atomic.requests == run.counts.shared_atomic.requests == run.same_address_atomics == 0


def test_a_global_histogram_makes_one_atomic_per_element(launch, rng):
    data, bins = rng.integers(0, BINS, 4096).astype(np.uint8), np.zeros(BINS, np.int32)
    run = launch(histogram_global[16, 256], data, bins)
    assert run.counts.global_atomic.requests == 4096 // 32
    assert run.counts.global_atomic.bytes == 4 * 4096
    assert run.counts.global_atomic.sectors == sum(len(set(warp // 8)) for warp in data.reshape(-1, 32))
    combined = np.zeros(BINS, int)  # after combining in the warp: how many warps hold the value
    for warp in data.reshape(-1, 32):
        combined[np.unique(warp)] += 1
    assert run.same_address_atomics == combined.max()


def test_a_shared_histogram_makes_as_many_global_atomics_as_bins_per_block(launch, rng):
    """256 threads per block, one bin each: 8 requests of 4 sectors per block; every bin once per block."""
    data, bins = rng.integers(0, BINS, 20000).astype(np.uint8), np.zeros(BINS, np.int32)
    run = launch(histogram_shared[BLOCKS, 256], data, bins)
    assert run.counts.global_atomic.requests == BLOCKS * BINS // 32
    assert run.counts.global_atomic.sectors == BLOCKS * BINS // 8
    assert run.counts.global_atomic.bytes == BLOCKS * BINS * 4
    assert run.same_address_atomics == BLOCKS
    assert run.counts.shared_atomic.bytes == 20000 * 4


def test_a_shared_histogram_of_one_value_queues_in_every_warp(launch):
    """4096 equal elements: 128 requests of 32 lanes at one address, 32 passes each."""
    run = launch(histogram_shared[BLOCKS, 256], np.full(4096, 7, np.uint8), np.zeros(BINS, np.int32))
    assert (run.counts.shared_atomic.requests, run.counts.shared_atomic.wavefronts) == (128, 128 * 32)


def test_a_reduction_may_make_one_atomic_per_block(launch, rng):
    c = cases("reduction")["reduce_grid_stride"]
    run = launch(c.configured(5000), *c.make(rng, 5000))
    access = run.counts.global_atomic
    assert access.requests == access.sectors == run.blocks == run.same_address_atomics
    assert access.bytes == 4 * run.blocks
