"""Compulsory bytes as the engine sees them: distinct bytes read before being written, and distinct bytes written."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32

from solcourse.kernels import cases
from solcourse.kernels.copy import copy, copy_offset, copy_strided
from solcourse.kernels.vector_add import vector_add

N = 1024


def compulsory(launch, kernel, *args, grid=4, block=256):
    run = launch(kernel[grid, block], *args)
    return run.compulsory_read_bytes, run.compulsory_write_bytes


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("n", [N, 1000])
def test_a_copy_reads_and_writes_every_byte_once(launch, dtype, n):
    """At a resolution of 4 bytes; 1000 int16 are 2000 bytes, a multiple of 4."""
    size = n * np.dtype(dtype).itemsize
    assert compulsory(launch, copy, np.ones(n, dtype), np.zeros(n, dtype)) == (size, size)


def test_what_is_read_many_times_counts_once(launch, rng):
    """64 x 64 x 64: 4 blocks per row and column read each element 4 times from memory. A and B 16 KiB each, C 16 KiB."""
    for name in ("matmul_naive", "matmul_tiled"):
        c = cases("matmul")[name]
        run = launch(c.configured(64, 64, 64), *c.make(rng, 64, 64, 64))
        assert (run.compulsory_read_bytes, run.compulsory_write_bytes) == (2 * 64 * 64 * 4, 64 * 64 * 4)
        assert run.compulsory_bytes == c.work(64, 64, 64).compulsory_bytes


def test_a_strided_copy_reads_what_it_uses(launch):
    """Not the sectors it wastes."""
    assert compulsory(launch, copy_strided, np.ones(3 * N, np.float32), np.zeros(N, np.float32), 3) == (4 * N, 4 * N)


def test_an_offset_copy_reads_n_elements(launch):
    assert compulsory(launch, copy_offset, np.ones(N + 5, np.float32), np.zeros(N, np.float32), 5) == (4 * N, 4 * N)


@cuda.jit
def increment(x):
    i = cuda.grid(1)
    x[i] += float32(1)


@cuda.jit
def write_then_read(x, y):
    i = cuda.grid(1)
    x[i] = i
    y[i] = x[i] * float32(2) + x[i]


@cuda.jit
def broadcast(x, y):
    y[cuda.grid(1)] = x[7]


@cuda.jit
def write_twice(y):
    i = cuda.grid(1)
    y[i // 2] = 3


@cuda.jit
def count_all(bins):
    cuda.atomic.add(bins, cuda.grid(1) % 16, 1)


def test_in_place_reads_and_writes(launch):
    assert compulsory(launch, increment, np.ones(N, np.float32)) == (4 * N, 4 * N)


def test_what_the_kernel_has_written_itself_need_not_be_read(launch):
    assert compulsory(launch, write_then_read, np.zeros(N, np.float32), np.zeros(N, np.float32)) == (0, 8 * N)


def test_a_broadcast_word_is_4_bytes(launch):
    assert compulsory(launch, broadcast, np.ones(N, np.float32), np.zeros(N, np.float32)) == (4, 4 * N)


def test_a_word_written_twice_is_written_once(launch):
    assert compulsory(launch, write_twice, np.zeros(N, np.float32)) == (0, 2 * N)


def test_an_atomic_reads_and_writes(launch):
    assert compulsory(launch, count_all, np.zeros(N, np.int32)) == (16 * 4, 16 * 4)


def test_shared_memory_is_not_compulsory(launch, rng):
    c = cases("transpose")["transpose_padded"]
    run = launch(c.configured(64, 96), *c.make(rng, 64, 96))
    assert run.compulsory_bytes == c.work(64, 96).compulsory_bytes == 2 * 64 * 96 * 4


def test_one_array_passed_twice_is_read_twice(launch):
    """Host arrays: two arguments are two copies on the device."""
    x = np.ones(N, np.float32)
    assert compulsory(launch, vector_add, x, x, np.zeros(N, np.float32)) == (8 * N, 4 * N)


@pytest.mark.parametrize("name", [n for n in cases() if not n.startswith(("copy_strided", "copy_offset", "reduce", "field"))])
def test_the_engine_sees_what_the_ledger_says(launch, rng, name):
    """At a regular size, for every reference kernel whose arrays are all used."""
    c = cases()[name]
    shape = c.shapes[0]
    run = launch(c.configured(*shape), *c.make(rng, *shape))
    assert run.compulsory_bytes == c.work(*shape).compulsory_bytes
