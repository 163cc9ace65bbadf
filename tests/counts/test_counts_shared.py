"""Wavefronts of shared memory, exactly: 32 banks of 4 bytes, one pass for each distinct word in the busiest bank."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import cuda, float32, float64, int8, int16, int32

from solcourse.kernels import cases
from solcourse.kernels.matmul import TILE

TILES, ROWS = 6, 32  # a 64 x 96 matrix; each tile is written and read in 32 requests


def shared_of(launch, kernel, *args, threads=32):
    run = launch(kernel[1, threads], *args)
    return run.counts.shared_load, run.counts.shared_store


@pytest.mark.parametrize(("name", "wavefronts"), [("transpose_tiled", 32), ("transpose_padded", 1), ("transpose_swizzled", 1)])
def test_padding_and_swizzling_remove_bank_conflicts(launch, rng, name, wavefronts):
    """A column of [32][32] lies in one bank: 32 passes. In [32][33] row r starts in bank r: 1 pass. Rows are free in all."""
    c = cases("transpose")[name]
    run = launch(c.configured(64, 96), *c.make(rng, 64, 96))
    load, store = run.counts.shared_load, run.counts.shared_store
    assert (load.requests, load.wavefronts) == (TILES * ROWS, TILES * ROWS * wavefronts)
    assert load.bank_conflicts == TILES * ROWS * (wavefronts - 1)
    assert (store.requests, store.wavefronts, store.bank_conflicts) == (TILES * ROWS, TILES * ROWS, 0)
    assert load.bytes == store.bytes == 64 * 96 * 4
    assert load.sectors == store.sectors == 0


def make_strided(kind, size: int):
    @cuda.jit
    def strided(stride, shift, out):
        cache = cuda.shared.array(size, kind)
        t = cuda.threadIdx.x
        for k in range(t, size, 32):
            cache[k] = k % 100
        cuda.syncthreads()
        out[t] = cache[(t * stride + shift) % size]  # the load under test

    return strided


def strided_load(launch, counts_at, kind, stride, shift=0):
    kernel = make_strided(kind, 2048)
    run = launch(kernel[1, 32], stride, shift, np.zeros(32))
    return counts_at(run, kernel, "the load under test").shared_load


@pytest.mark.parametrize("stride", [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 24, 31, 32, 33, 48, 64])
def test_conflicts_of_a_stride_are_its_common_divisor_with_32(launch, counts_at, stride):
    """Lanes t and u meet in a bank when 32 divides (t - u) * stride; stride 0 is a broadcast, one word, one pass."""
    load = strided_load(launch, counts_at, float32, stride)
    wavefronts = math.gcd(stride, 32) if stride else 1
    assert (load.requests, load.wavefronts, load.bank_conflicts) == (1, wavefronts, wavefronts - 1)


@pytest.mark.parametrize("stride", [1, 2, 4, 16, 32])
def test_a_shift_changes_no_conflict(launch, counts_at, stride):
    assert strided_load(launch, counts_at, float32, stride, shift=5).wavefronts == math.gcd(stride, 32)


@pytest.mark.parametrize(
    ("stride", "wavefronts"),
    [
        (1, 2),  # each half-warp: 16 lanes * 2 words = 32 words, one per bank: 1 pass; two halves
        (2, 4),  # words 4 apart: 16 * 4 = 64 words wide, 2 per bank, and two halves
        (3, 2),  # 6 words apart: 3 is odd, every bank pair once
        (4, 8),  # 8 words apart: 4 per bank, two halves
        (16, 32),  # all 16 lanes of a half in one bank pair
        (0, 2),  # a broadcast: one pass per half
    ],
)
def test_float64_goes_in_two_halves(launch, counts_at, stride, wavefronts):
    """Two wavefronts are the least for 32 lanes of 8 bytes, not a conflict."""
    load = strided_load(launch, counts_at, float64, stride)
    assert (load.requests, load.wavefronts, load.bank_conflicts) == (1, wavefronts, wavefronts - 2)


@pytest.mark.parametrize(
    ("kind", "stride", "wavefronts"),
    [
        (int8, 1, 1),  # four lanes share a word, 8 words in 8 banks
        (int8, 4, 1),  # 32 words
        (int8, 8, 2),  # 2 words apart
        (int8, 64, 16),  # 16 words apart: banks 0 and 16
        (int16, 1, 1),  # two lanes share a word
        (int16, 2, 1),
        (int16, 64, 32),  # 32 words apart: one bank
    ],
)
def test_lanes_in_one_word_do_not_conflict(launch, counts_at, kind, stride, wavefronts):
    assert strided_load(launch, counts_at, kind, stride).wavefronts == wavefronts


@cuda.jit
def half_active(out, stride):
    cache = cuda.shared.array(1024, float32)
    t = cuda.threadIdx.x
    if t % 2 == 0:
        cache[t * stride] = t  # even lanes
    cuda.syncthreads()
    if t < 8:
        out[t] = cache[t * stride * 2]  # eight lanes


def test_only_active_lanes_conflict(launch, counts_at):
    """Stride 2: 16 even lanes, 4 words apart: 2 per bank. Eight lanes, 4 words apart: words 0, 4 ... 28, no conflict."""
    run = launch(half_active[1, 32], np.zeros(32, np.float32), 2)
    assert counts_at(run, half_active, "even lanes").shared_store.wavefronts == 2
    load = counts_at(run, half_active, "eight lanes").shared_load
    assert (load.wavefronts, load.bytes) == (1, 8 * 4)


@cuda.jit
def whole_column(out):
    tile = cuda.shared.array((32, 32), float32)
    t = cuda.threadIdx.x
    for k in range(32):
        tile[k, t] = t  # rows
    cuda.syncthreads()
    total = float32(0)
    for k in range(32):
        total += tile[t, k]  # columns
    out[t] = total


def test_column_of_a_32_by_32_tile_takes_32_wavefronts(launch, counts_at):
    """32 requests each way; 32 * 1 passes down the rows, 32 * 32 across."""
    run = launch(whole_column[1, 32], np.zeros(32, np.float32))
    rows = counts_at(run, whole_column, "# rows").shared_store
    assert (rows.requests, rows.wavefronts) == (32, 32)
    columns = counts_at(run, whole_column, "# columns").shared_load
    assert (columns.requests, columns.wavefronts, columns.bank_conflicts) == (32, 1024, 992)


def test_tiled_matmul_loads_twice_per_fma(launch, rng):
    """M = N = K = 32, tile 16: 4 blocks of 8 warps, 2 steps. Stores: 2 per warp and step. Loads: 2 * 16 per warp and step.

    A warp is two rows of 16 threads. tile_b[k, x]: 16 words, each read by both rows: 1 pass. tile_a[y, k]: two words, 16 apart
    (rows y and y + 1 of a tile 16 wide): two banks, 1 pass. Stores: 32 neighbouring words, 1 pass.
    """
    c = cases("matmul")["matmul_tiled_exact"]
    run = launch(c.configured(32, 32, 32), *c.make(rng, 32, 32, 32))
    warps, steps = 4 * 8, 32 // TILE
    store, load = run.counts.shared_store, run.counts.shared_load
    assert (store.requests, store.wavefronts) == (warps * steps * 2, warps * steps * 2)
    assert (load.requests, load.wavefronts) == (warps * steps * 2 * TILE, warps * steps * 2 * TILE)
    assert load.bytes == warps * steps * 2 * TILE * 32 * 4


def test_a_register_tile_needs_a_quarter_of_a_load_per_fma(launch, rng):
    """128 x 128 x 16: 8 warps, K = 16 steps of 16 loads and 64 FMAs. 16 / 64 = 0.25, against 2 for the plain tile."""
    for name in ("matmul_register_2d", "matmul_register_2d_interleaved", "matmul_register_2d_transposed"):
        c = cases("matmul")[name]
        run = launch(c.configured(128, 128, 16), *c.make(rng, 128, 128, 16))
        assert run.counts.shared_load.requests == 8 * 16 * 16, name
        assert run.counts.local_load.requests == run.counts.local_store.requests == 0, name  # the tile is in registers
        assert run.counts.flops["fp32"] == 2 * 128 * 128 * 16, name


def test_who_owns_which_elements_decides_the_conflicts(launch, rng):
    """128 x 128 x 8, one block of 8 warps, per k: 8 loads of tile_a and 8 of tile_b per warp.

    tile_b[k, x + s], a thread's columns side by side: 16 lanes 8 words apart over 128 words: 4 words per bank, 4 passes.
    Interleaved: 16 neighbours, 1 pass. tile_a[y + r, k] in [128][8]: rows y and y + 8, 64 words apart, one bank: 2 passes.
    Transposed [8][132]: 8 words apart: 1 pass.
    """
    loads = 8 * 8 * 8  # warps * k * loads of each tile
    for name, passes_a, passes_b in (
        ("matmul_register_2d", 2, 4),
        ("matmul_register_2d_interleaved", 2, 1),
        ("matmul_register_2d_transposed", 1, 1),
    ):
        c = cases("matmul")[name]
        run = launch(c.configured(128, 128, 8), *c.make(rng, 128, 128, 8))
        assert run.counts.shared_load.wavefronts == loads * (passes_a + passes_b), name


def test_reduction_trees_conflict_in_the_strided_step_only(launch, rng):
    """One block of 256: at step s, 128 / s lanes read words 2 s t + s and 2 s t, and write 2 s t.

    Strided: 256 / (2 s) lanes in ceil(lanes / 32) warps, each with min(2 s, 32) lanes per bank, at most the lanes there are.
    """
    for name in ("reduce_interleaved", "reduce_sequential"):
        c = cases("reduction")[name]
        run = launch(c.configured(256), *c.make(rng, 256))
        assert run.counts.shared_load.bank_conflicts == run.counts.shared_store.bank_conflicts == 0, name
    c = cases("reduction")["reduce_strided"]
    run = launch(c.configured(256), *c.make(rng, 256))
    conflicts = 0
    for s in (1, 2, 4, 8, 16, 32, 64, 128):
        lanes = 128 // s
        for warp in range(0, lanes, 32):
            words = [2 * s * t for t in range(warp, min(warp + 32, lanes))]
            conflicts += max(sum(w % 32 == bank for w in words) for bank in range(32)) - 1
    assert conflicts > 20
    assert run.counts.shared_store.bank_conflicts == conflicts


@cuda.jit
def add_shared(index, out):
    cache = cuda.shared.array(1024, int32)
    t = cuda.threadIdx.x
    for k in range(t, 1024, 32):
        cache[k] = 0
    cuda.syncthreads()
    cuda.atomic.add(cache, index[t], 1)
    cuda.syncthreads()
    out[t] = cache[t]


@pytest.mark.parametrize(
    ("index", "wavefronts"),
    [
        (np.arange(32), 1),  # 32 words in 32 banks
        (np.zeros(32), 32),  # one word: the lanes queue up
        (np.arange(32) // 2, 2),  # 16 words, two lanes each
        (np.arange(32) % 4, 8),  # 4 words, eight lanes each
    ],
)
def test_shared_atomics_queue_up_at_one_address(launch, index, wavefronts):
    run = launch(add_shared[1, 32], index.astype(np.int64), np.zeros(32, np.int32))
    access = run.counts.shared_atomic
    assert (access.requests, access.wavefronts, access.bytes) == (1, wavefronts, 32 * 4)
