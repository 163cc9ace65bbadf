"""Memory of the numba.cuda language: local, shared and constant arrays, views, layouts, aliases, empty arrays."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32, float64, int8, int16, int32, int64

from solcourse.verbs import use_engine

TILE = 16


@cuda.jit
def local_array_sorted(x, out):
    """A dynamic index keeps the array in local memory."""
    i = cuda.grid(1)
    mine = cuda.local.array(8, int32)
    for k in range(8):
        mine[k] = x[i, k]
    for a in range(1, 8):
        v = mine[a]
        b = a - 1
        while b >= 0 and mine[b] > v:
            mine[b + 1] = mine[b]
            b -= 1
        mine[b + 1] = v
    for k in range(8):
        out[i, k] = mine[k]


@pytest.mark.parametrize(("grid", "block"), [(1, 32), (2, 256), (1, 1024), (3, 40)])
def test_local_arrays_belong_to_a_thread(launch, rng, grid, block):
    """Up to 32 warps in a block, each lane with an array of its own."""
    x = rng.integers(-99, 99, (grid * block, 8)).astype(np.int32)
    out = np.zeros_like(x)
    launch(local_array_sorted[grid, block], x, out)
    np.testing.assert_array_equal(out, np.sort(x, axis=1))


@cuda.jit
def local_array_across_barriers(out):
    t = cuda.threadIdx.x
    mine = cuda.local.array((2, 3), float64)
    cache = cuda.shared.array(256, float64)
    for r in range(2):
        for s in range(3):
            mine[r, s] = t * 10 + r * 3 + s
    for step in range(6):
        cache[t] = mine[step // 3, step % 3]
        cuda.syncthreads()
        mine[step // 3, step % 3] += cache[(t + 32) % 256]
        cuda.syncthreads()
    total = 0.0
    for r in range(2):
        for s in range(3):
            total += mine[(r + t) % 2, s]
    out[t] = total


def test_local_arrays_survive_barriers_in_eight_warps(launch):
    out = np.zeros(256)
    launch(local_array_across_barriers[1, 256], out)
    t = np.arange(256)
    np.testing.assert_array_equal(out, 6 * 10 * t + 15 + 6 * 10 * ((t + 32) % 256) + 15)  # 0 + 1 + ... + 5 = 15


@cuda.jit
def two_tiles_on_one_line(a, b, c):
    tile_a, tile_b = cuda.shared.array((TILE, TILE), float32), cuda.shared.array((TILE, TILE), float32)
    j, i = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for start in range(0, a.shape[1], TILE):
        tile_a[y, x] = a[i, start + x]
        tile_b[y, x] = b[start + y, j]
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    c[i, j] = total


def test_shared_arrays_on_one_source_line_are_two_arrays(launch, rng):
    """numba's simulator gives both the same memory."""
    a, b = rng.uniform(-1, 1, (32, 48)).astype(np.float32), rng.uniform(-1, 1, (48, 64)).astype(np.float32)
    c = np.full((32, 64), np.nan, np.float32)
    launch(two_tiles_on_one_line[(4, 2), (TILE, TILE)], a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, atol=1e-5)


@cuda.jit
def shared_of_many_types(x, out):
    a = cuda.shared.array(64, int8)
    b = cuda.shared.array(64, float64)
    c = cuda.shared.array((4, 16), int16)
    d = cuda.shared.array(3, float32)
    t = cuda.threadIdx.x
    a[t], b[t], c[t // 16, t % 16] = t, x[t] / 3, -t
    if t < 3:
        d[t] = t + 0.5
    cuda.syncthreads()
    u = 63 - t
    out[t] = a[u] + b[u] + c[u // 16, u % 16] * 1000 + d[t % 3]


def test_shared_arrays_of_several_types_do_not_overlap(launch, rng):
    x, out = rng.uniform(-1, 1, 64), np.zeros(64)
    launch(shared_of_many_types[1, 64], x, out)
    u = 63 - np.arange(64)
    np.testing.assert_allclose(out, u + x[u] / 3 - 1000.0 * u + np.arange(64) % 3 + 0.5, rtol=1e-13)


@cuda.jit
def shared_is_per_block(out):
    cache = cuda.shared.array(64, int32)
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    cache[t] = b * 100 + t
    cuda.syncthreads()
    out[b, t] = cache[(t + 1) % 64]


def test_every_block_has_its_own_shared_memory(launch):
    out = np.zeros((200, 64), np.int32)
    launch(shared_is_per_block[200, 64], out)
    np.testing.assert_array_equal(out, np.add.outer(np.arange(200) * 100, (np.arange(64) + 1) % 64))


@cuda.jit
def dynamic_shared(x, out):
    floats = cuda.shared.array(0, float32)
    integers = cuda.shared.array(0, int32)
    t, n = cuda.threadIdx.x, cuda.blockDim.x
    floats[t] = x[t]
    integers[n + t] = t
    cuda.syncthreads()
    out[t] = floats[n - 1 - t] + integers[n + (t + 1) % n]


@pytest.mark.parametrize("threads", [32, 50, 256])
def test_dynamic_shared_memory_has_the_size_of_the_launch(launch, rng, threads):
    x, out = rng.uniform(-1, 1, threads).astype(np.float32), np.zeros(threads)
    launch(dynamic_shared[1, threads, 0, 8 * threads], x, out)
    t = np.arange(threads)
    np.testing.assert_allclose(out, x[::-1] + (t + 1.0) % threads, rtol=1e-6)


@cuda.jit
def two_dimensional(a, out):
    x, y = cuda.grid(2)
    if y < a.shape[0] and x < a.shape[1]:
        out[y, x] = 2 * a[y, x] + a.shape[0] * 1000 + a.ndim


@pytest.mark.parametrize("order_a", "CF")
@pytest.mark.parametrize("order_out", "CF")
def test_c_and_fortran_order(launch, rng, order_a, order_out):
    a = np.asarray(rng.integers(-9, 9, (37, 21)), order=order_a)
    out = np.zeros((37, 21), np.int64, order=order_out)
    launch(two_dimensional[(1, 5), (32, 8)], a, out)
    np.testing.assert_array_equal(out, 2 * a + 37002)


@cuda.jit
def three_dimensional(a, out):
    x, y, z = cuda.grid(3)
    if x < a.shape[2] and y < a.shape[1] and z < a.shape[0]:
        out[x, y, z] = a[z, y, x]


def test_three_dimensional_arrays(launch, rng):
    a = rng.integers(-9, 9, (5, 9, 13))
    out = np.zeros((13, 9, 5), np.int64)
    launch(three_dimensional[(2, 2, 2), (8, 8, 4)], a, out)
    np.testing.assert_array_equal(out, a.T)


@cuda.jit
def sums_and_sizes(a, out):
    i = cuda.grid(1)
    if i == 0:
        out[0], out[1] = a.size, a.shape[0]
        total = 0.0
        for k in range(a.shape[0]):
            total += a[k]
        out[2] = total
    if i < a.size:
        a[i] = 5.0


@pytest.mark.parametrize("n", [0, 1, 40])
def test_empty_arrays_are_legal(launch, n):
    a, out = np.ones(n), np.full(3, -1.0)
    launch(sums_and_sizes[2, 32], a, out)
    np.testing.assert_array_equal(out, [n, n, n])
    np.testing.assert_array_equal(a, np.full(n, 5.0))


@cuda.jit
def views(a, out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        row = a[i]
        out[i, 0] = row[3]
        tail = a[i, 2:]
        out[i, 1] = tail[0] + tail.size
        column = a[:, 1]
        out[i, 2] = column[i]
        every_other = a[i, ::2]
        out[i, 3] = every_other[1]
        backwards = a[i, ::-1]
        out[i, 4] = backwards[0]
        block = a[i // 2 * 2 : i // 2 * 2 + 2, 1:4]
        out[i, 5] = block[i % 2, 2] + block.shape[0] * block.shape[1] * 1000
        out[i, 6:8] = 7
        out[i, 8] = a.T[4, i]


def test_views_made_inside_the_kernel(launch, rng):
    a = rng.integers(-99, 99, (60, 7))
    out = np.zeros((60, 9), np.int64)
    launch(views[2, 32], a, out)
    seven = np.full(60, 7)
    wanted = [a[:, 3], a[:, 2] + 5, a[:, 1], a[:, 2], a[:, 6], a[:, 3] + 6000, seven, seven, a[:, 4]]
    np.testing.assert_array_equal(out, np.stack(wanted, 1))


@cuda.jit
def wraps_around(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i - x.size] + x[-1]


def test_negative_indices_wrap_around(launch, rng):
    x, out = rng.integers(-9, 9, 50), np.zeros(50, np.int64)
    launch(wraps_around[2, 32], x, out)
    np.testing.assert_array_equal(out, x + x[-1])


@cuda.jit
def views_of_shared(x, out):
    cache = cuda.shared.array((4, 32), float32)
    t = cuda.threadIdx.x
    row = cache[t // 32]
    row[t % 32] = x[t]
    cuda.syncthreads()
    half = cache[:, 16:]
    out[t] = half[(t + 1) % 4, t % 16] + cache[0, 1:][3]


def test_views_of_shared_arrays(launch, rng):
    x, out = rng.uniform(-1, 1, 128).astype(np.float32), np.zeros(128, np.float32)
    launch(views_of_shared[1, 128], x, out)
    t = np.arange(128)
    np.testing.assert_array_equal(out, x.reshape(4, 32)[(t + 1) % 4, 16 + t % 16] + x[4])


@cuda.jit
def pick_a_space(x, out):
    """One pointer, two address spaces: chosen at run time."""
    cache = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    cache[t] = -x[t]
    cuda.syncthreads()
    source = cache[:] if x[t] > 0 else x[:64]
    out[t] = source[63 - t]


def test_a_pointer_may_be_shared_or_global(launch, rng):
    x, out = rng.uniform(-1, 1, 64).astype(np.float32), np.zeros(64, np.float32)
    launch(pick_a_space[1, 64], x, out)
    np.testing.assert_array_equal(out, np.where(x > 0, -x[::-1], x[::-1]))


@cuda.jit
def reads_one_writes_the_other(x, y, shift):
    i = cuda.grid(1)
    if i + shift < x.size:
        y[i] = x[i + shift] * 2


def test_the_same_array_twice(launch, rng):
    """In place: both arguments are one memory."""
    x = rng.integers(-9, 9, 64)
    wanted = 2 * x
    launch(reads_one_writes_the_other[1, 64], x, x, 0)
    np.testing.assert_array_equal(x, wanted)


@cuda.jit
def writes_then_reads_the_other(x, y):
    i = cuda.grid(1)
    x[i] = i
    cuda.syncthreads()
    y[i] += x[(i + 1) % 64] * 100


def test_a_host_array_passed_twice_is_two_copies_and_the_last_wins(launch):
    """As in numba: each argument is copied to the device, and written back in the order of the arguments."""
    x = np.zeros(64, np.int64)
    launch(writes_then_reads_the_other[1, 64], x, x)
    np.testing.assert_array_equal(x, (np.arange(64) + 1) % 64 * 100)


def test_a_device_array_passed_twice_is_one_memory(launch):
    """y[i] += 100 * x[i + 1] on one array: what the neighbour holds is its index, or more once it has been added to."""
    with use_engine():
        x = cuda.to_device(np.zeros(64, np.int64))
        launch(writes_then_reads_the_other[1, 64], x, x)
        got, i = x.copy_to_host(), np.arange(64)
    np.testing.assert_array_equal(got % 100, i)
    assert (got // 100 >= (i + 1) % 64).all()


@cuda.jit
def shift_down(x, y):
    i = cuda.grid(1)
    value = x[i]
    cuda.syncthreads()
    y[i] = value


def test_overlapping_views_of_a_device_array(launch):
    with use_engine():
        x = cuda.to_device(np.arange(65))
        launch(shift_down[1, 64], x[1:], x[:64])
        np.testing.assert_array_equal(x.copy_to_host(), np.r_[np.arange(1, 65), 64])


@pytest.mark.parametrize("offset", [0, 1, 3, 4, 60])
def test_numpy_arrays_at_any_alignment(launch, offset):
    buffer = np.zeros(4096, np.uint8)
    start = -buffer.ctypes.data % 64 + 4 * offset
    x = buffer[start : start + 400].view(np.float32)
    x[:] = np.arange(100)
    out = np.zeros(100, np.float32)
    launch(reads_one_writes_the_other[4, 32], x, out, 0)
    np.testing.assert_array_equal(out, 2 * np.arange(100))


@cuda.jit
def outputs_of_64(a, b, out):
    acc = cuda.local.array((8, 8), float32)
    i = cuda.grid(1)
    for r in range(8):
        for s in range(8):
            acc[r, s] = 0
    for k in range(a.shape[1]):
        for r in range(8):
            for s in range(8):
                acc[r, s] += a[i, k] * b[r, s]
    for r in range(8):
        for s in range(8):
            out[i, r, s] = acc[r, s]


def test_a_register_tile_is_private_in_every_warp(launch, rng):
    """64 accumulators a thread, 16 warps."""
    a, b = rng.integers(-9, 9, (512, 5)).astype(np.float32), rng.integers(-9, 9, (8, 8)).astype(np.float32)
    out = np.full((512, 8, 8), np.nan, np.float32)
    launch(outputs_of_64[1, 512], a, b, out)
    np.testing.assert_array_equal(out, a.sum(1)[:, None, None] * b)


@cuda.jit
def scatter_int64(index, out):
    i = cuda.grid(1)
    out[index[i]] = int64(i) << 33


def test_64_bit_values_survive(launch, rng):
    index, out = rng.permutation(96), np.zeros(96, np.int64)
    launch(scatter_int64[3, 32], index, out)
    wanted = np.zeros(96, np.int64)
    wanted[index] = np.arange(96) << 33
    np.testing.assert_array_equal(out, wanted)


@cuda.jit
def same_address(out):
    out[0] = cuda.threadIdx.x + 1


def test_of_many_writes_to_one_word_exactly_one_wins(launch):
    out = np.zeros(2, np.int32)
    launch(same_address[1, 32], out)
    assert 1 <= out[0] <= 32
    assert out[1] == 0
