"""Sectors of global memory, exactly: a request costs as many 32-byte sectors as its active lanes touch."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

from solcourse.kernels import cases
from solcourse.kernels.coalescing import column_sums, field_aos, field_soa, length_aos, length_soa, row_sums, row_sums_warp
from solcourse.kernels.copy import copy, copy_gather, copy_offset, copy_strided
from solcourse.kernels.transpose import transpose_naive
from solcourse.verbs import use_engine

N = 1024  # 32 full warps
WARPS = N // 32


def arrays(n: int, dtype=np.float32, m: int = N):
    return np.arange(n).astype(dtype), np.zeros(m, dtype)


@pytest.mark.parametrize(
    ("dtype", "sectors"),
    [
        (np.int8, 1),  # 32 lanes * 1 byte = 32 bytes = 1 sector
        (np.int16, 2),  # 32 * 2 / 32
        (np.float32, 4),  # 32 * 4 / 32
        (np.float64, 8),  # 32 * 8 / 32
        (np.uint64, 8),
    ],
)
def test_unit_stride_costs_the_bytes_and_no_more(launch, dtype, sectors):
    src, dst = arrays(N, dtype)
    run = launch(copy[4, 256], src, dst)
    for access in (run.counts.global_load, run.counts.global_store):
        assert access.requests == WARPS
        assert access.sectors == WARPS * sectors
        assert access.bytes == N * src.itemsize
        assert access.sectors_per_request == sectors
        assert access.sector_efficiency == 1.0


def strided_sectors(stride: int) -> int:
    """Up to stride 8 all sectors between the first and the last are touched: 31 * stride words apart, 8 words each; then 32."""
    return 31 * stride // 8 + 1 if stride <= 8 else 32


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 31, 32, 33, 64])
def test_sectors_grow_with_the_stride_up_to_32(launch, stride):
    src, dst = arrays(N * stride)
    run = launch(copy_strided[4, 256], src, dst, stride)
    assert run.counts.global_load.sectors == WARPS * strided_sectors(stride)
    assert run.counts.global_load.requests == WARPS
    assert run.counts.global_load.bytes == N * 4  # what the lanes asked for does not change
    assert run.counts.global_store.sectors == WARPS * 4


def test_stride_2_costs_8_and_stride_8_costs_32():
    """The table of the lesson: 1 -> 31/8 + 1 = 4, 2 -> 62/8 + 1 = 8, 4 -> 124/8 + 1 = 16, 8 -> 248/8 + 1 = 32."""
    assert [strided_sectors(s) for s in (1, 2, 4, 8, 16)] == [4, 8, 16, 32, 32]


@cuda.jit
def copy_strided_from(src, dst, stride, offset):
    i = cuda.grid(1)
    dst[i] = src[i * stride + offset]


@pytest.mark.parametrize("stride", [8, 11, 16, 40])
@pytest.mark.parametrize("offset", range(9))
def test_from_stride_8_on_it_is_32_at_any_base(launch, stride, offset):
    src, dst = arrays(N * stride + 8)
    run = launch(copy_strided_from[4, 256], src, dst, stride, offset)
    assert run.counts.global_load.sectors == WARPS * 32


@pytest.mark.parametrize("offset", [0, 1, 2, 7, 8, 9, 16, 31, 32])
def test_an_offset_costs_one_sector_more_unless_a_multiple_of_8(launch, offset):
    """128 bytes that start inside a sector end inside another: 4 + 1."""
    src, dst = arrays(N + offset)
    run = launch(copy_offset[4, 256], src, dst, offset)
    assert run.counts.global_load.sectors == WARPS * (4 if offset % 8 == 0 else 5)
    assert run.counts.global_store.sectors == WARPS * 4


def test_offset_of_float64_straddles_too(launch):
    """256 bytes from byte 8 on: 8 + 1 sectors."""
    src, dst = arrays(N + 1, np.float64)
    assert launch(copy_offset[4, 256], src, dst, 1).counts.global_load.sectors == WARPS * 9


@cuda.jit
def copy_slice(src, dst):
    i = cuda.grid(1)
    tail = src[1:]
    dst[i] = tail[i]


def test_a_view_made_in_the_kernel_straddles_as_an_offset_does(launch):
    src, dst = arrays(N + 1)
    assert launch(copy_slice[4, 256], src, dst).counts.global_load.sectors == WARPS * 5


@pytest.mark.parametrize("byte", range(0, 68, 4))
def test_numpy_arrays_at_any_alignment_count_as_cudamalloc_memory(launch, byte):
    """Every argument is an allocation of its own, 256-byte aligned: 4 sectors, wherever NumPy put it."""
    views = []
    for shift in (byte, 68 - byte):
        buffer = np.zeros(4 * N + 256, np.uint8)
        start = -buffer.ctypes.data % 64 + shift
        views.append(buffer[start : start + 4 * N].view(np.float32))
    run = launch(copy[4, 256], *views)
    assert run.counts.global_load.sectors == run.counts.global_store.sectors == WARPS * 4


def test_one_field_of_an_array_of_structs_costs_12(launch):
    """Lanes 12 bytes apart: 32 * 12 / 32 = 12 sectors, a third used."""
    run = launch(field_aos[8, 128], np.ones((N, 3), np.float32), np.zeros(N, np.float32))
    assert run.counts.global_load.sectors == WARPS * 12
    assert run.counts.global_load.sector_efficiency == pytest.approx(1 / 3)


def test_every_field_of_an_array_of_structs_costs_12(launch):
    """Three requests per warp, 12 each: 36. That two of three hit the cache is not the request's affair."""
    run = launch(length_aos[8, 128], np.ones((N, 3), np.float32), np.zeros(N, np.float32))
    assert run.counts.global_load.requests == WARPS * 3
    assert run.counts.global_load.sectors == WARPS * 3 * 12
    assert run.counts.global_load.sectors_per_request == 12


@pytest.mark.parametrize(("kernel", "fields"), [(field_soa, 1), (length_soa, 3)])
def test_a_struct_of_arrays_costs_4_per_field(launch, kernel, fields):
    run = launch(kernel[8, 128], np.ones((3, N), np.float32), np.zeros(N, np.float32))
    assert run.counts.global_load.requests == WARPS * fields
    assert run.counts.global_load.sectors == WARPS * fields * 4


def test_a_thread_per_row_costs_32_and_a_thread_per_column_4(launch):
    """128 x 64: 4 warps times 64 steps; lanes 64 * 4 bytes apart. 2 warps times 128 steps; lanes neighbours."""
    a = np.ones((128, 64), np.float32)
    rows = launch(row_sums[1, 128], a, np.zeros(128, np.float32)).counts.global_load
    assert (rows.requests, rows.sectors) == (4 * 64, 4 * 64 * 32)
    columns = launch(column_sums[1, 64], a, np.zeros(64, np.float32)).counts.global_load
    assert (columns.requests, columns.sectors) == (2 * 128, 2 * 128 * 4)


def test_a_warp_per_row_costs_4(launch):
    """128 rows of 64 columns: a warp reads 32 neighbours twice."""
    run = launch(row_sums_warp[32, 128], np.ones((128, 64), np.float32), np.zeros(128, np.float32))
    assert run.counts.global_load.requests == 128 * 2
    assert run.counts.global_load.sectors == 128 * 2 * 4
    assert run.counts.global_store.requests == 128  # lane 0 of each warp
    assert run.counts.global_store.sectors == 128


def test_one_misaligned_row_is_what_an_odd_width_costs(launch):
    """Rows of 33 floats start at word 33 r: aligned to a sector for every eighth row only. 7 * 5 + 4 = 39 per 8 rows."""
    a = np.ones((8, 33), np.float32)

    @cuda.jit
    def first_warp_of_each_row(a, out):
        out[cuda.blockIdx.x, cuda.threadIdx.x] = a[cuda.blockIdx.x, cuda.threadIdx.x]

    run = launch(first_warp_of_each_row[8, 32], a, np.zeros((8, 32), np.float32))
    assert run.counts.global_load.sectors == 7 * 5 + 4
    assert run.counts.global_store.sectors == 8 * 4


def test_naive_transpose_reads_4_and_writes_32(launch):
    """64 x 96: 6 tiles of 32 rows, a request each; lanes write 64 * 4 bytes apart."""
    run = launch(transpose_naive[(3, 2), (32, 8)], np.ones((64, 96), np.float32), np.zeros((96, 64), np.float32))
    assert (run.counts.global_load.requests, run.counts.global_load.sectors) == (6 * 32, 6 * 32 * 4)
    assert (run.counts.global_store.requests, run.counts.global_store.sectors) == (6 * 32, 6 * 32 * 32)


@pytest.mark.parametrize("name", ["transpose_copy", "transpose_tiled", "transpose_padded", "transpose_swizzled"])
def test_every_other_transpose_moves_4_both_ways(launch, rng, name):
    c = cases("transpose")[name]
    run = launch(c.configured(64, 96), *c.make(rng, 64, 96))
    for access in (run.counts.global_load, run.counts.global_store):
        assert (access.requests, access.sectors) == (6 * 32, 6 * 32 * 4)


@cuda.jit
def broadcast(x, dst, at):
    i = cuda.grid(1)
    dst[i] = x[at]


def test_a_broadcast_costs_one_sector(launch):
    """All lanes read one word: 128 bytes asked for, 32 fetched."""
    src, dst = arrays(8)
    run = launch(broadcast[4, 256], src, dst, 5)
    assert run.counts.global_load.requests == WARPS
    assert run.counts.global_load.sectors == WARPS
    assert run.counts.global_load.sector_efficiency == 4.0


def test_a_partial_warp_costs_what_its_lanes_touch(launch):
    """n = 1000: 31 full warps of 4 sectors, then 8 lanes: 32 bytes, 1 sector. 31 * 4 + 1 = 125."""
    src, dst = arrays(1000, m=1000)
    run = launch(copy[4, 256], src, dst)
    for access in (run.counts.global_load, run.counts.global_store):
        assert (access.requests, access.sectors, access.bytes) == (32, 125, 4000)


@pytest.mark.parametrize("threads", [1, 31, 33, 48, 100])
def test_a_block_that_is_no_multiple_of_32(launch, threads):
    """The last warp of each block is short, and the next block starts where it ended."""
    src, dst = arrays(8 * threads, m=8 * threads)
    run = launch(copy[8, threads], src, dst)
    requests = sectors = 0
    for block in range(8):
        for start in range(0, threads, 32):
            first = block * threads + start
            last = block * threads + min(start + 32, threads) - 1
            requests += 1
            sectors += last // 8 - first // 8 + 1
    assert (run.counts.global_load.requests, run.counts.global_load.sectors) == (requests, sectors)


def test_lanes_of_a_two_dimensional_block_count_x_first(launch):
    """Block (16, 2): a warp covers two rows of 16 floats, 64 bytes each: 2 + 2 sectors. Block (4, 8): eight rows, 8 sectors."""

    @cuda.jit
    def copy_2d(src, dst):
        x, y = cuda.grid(2)
        dst[y, x] = src[y, x]

    for block, sectors in (((32, 1), 4), ((16, 2), 4), ((8, 4), 4), ((4, 8), 8), ((2, 16), 16), ((1, 32), 32)):
        grid = (64 // block[0], 64 // block[1])
        run = launch(copy_2d[grid, block], np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32))
        assert run.counts.global_load.sectors == 64 * 64 // 32 * sectors, block


def test_fortran_order_turns_the_answer_round(launch):
    """Lanes along the rows of a Fortran array are neighbours: 4 sectors, 32 in C order."""

    @cuda.jit
    def down_the_rows(a, out):
        i, j = cuda.grid(2)
        out[i, j] = a[i, j]

    out = np.zeros((64, 8), np.float32)
    for order, sectors in (("F", 4), ("C", 32)):
        a = np.ones((64, 8), np.float32, order=order)
        load = launch(down_the_rows[(2, 8), (32, 1)], a, out).counts.global_load
        assert load.requests == 16
        assert load.sectors == 16 * sectors


def test_complex64_is_loaded_in_two_halves_of_8_sectors(launch):
    """numba makes two 4-byte loads, lanes 8 bytes apart: 2 requests of 32 * 8 / 32 = 8 sectors."""
    src, dst = np.ones(N, np.complex64), np.zeros(N, np.complex64)
    run = launch(copy[4, 256], src, dst)
    for access in (run.counts.global_load, run.counts.global_store):
        assert (access.requests, access.sectors, access.bytes) == (2 * WARPS, 2 * WARPS * 8, 8 * N)


def test_scattered_lanes_cost_a_sector_each(launch):
    """index = a permutation that sends neighbours 64 words apart."""
    src, dst = arrays(N)
    index = (np.arange(N) * 64 % N + np.arange(N) * 64 // N).astype(np.int32)
    run = launch(copy_gather[4, 256], src, index, dst)
    lanes = index.reshape(-1, 32)
    wanted = sum(len(set(warp // 8)) for warp in lanes) + WARPS * 4  # the gather, and the index itself
    assert run.counts.global_load.sectors == wanted
    np.testing.assert_array_equal(dst, src[index])


def test_views_of_device_arrays_keep_their_offset_and_stride(launch):
    """A host array is copied to an allocation of its own; a view of a device array stays where it is."""
    host = np.arange(2 * N + 8, dtype=np.float32)
    with use_engine():
        device, dst = cuda.to_device(host), cuda.device_array(N, np.float32)
        for view, sectors in ((device[:N], 4), (device[1 : N + 1], 5), (device[8 : N + 8], 4), (device[: 2 * N : 2], 8)):
            run = launch(copy[4, 256], view, dst)
            assert run.counts.global_load.sectors == WARPS * sectors
            np.testing.assert_array_equal(dst.copy_to_host(), view.copy_to_host())
