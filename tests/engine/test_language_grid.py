"""Where a thread is: grids and blocks of one to three dimensions, and every register that says so."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda


@cuda.jit
def where_3d(out):
    x, y, z = cuda.grid(3)
    nx, ny, nz = cuda.gridsize(3)
    i = (z * ny + y) * nx + x
    out[i, 0], out[i, 1], out[i, 2] = cuda.threadIdx.x, cuda.threadIdx.y, cuda.threadIdx.z
    out[i, 3], out[i, 4], out[i, 5] = cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
    out[i, 6], out[i, 7], out[i, 8] = cuda.blockDim.x, cuda.blockDim.y, cuda.blockDim.z
    out[i, 9], out[i, 10], out[i, 11] = cuda.gridDim.x, cuda.gridDim.y, cuda.gridDim.z
    out[i, 12], out[i, 13], out[i, 14] = x, y, z


@pytest.mark.parametrize(
    ("grid", "block"),
    [((1, 1, 1), (1, 1, 1)), ((3, 2, 2), (4, 3, 2)), ((2, 1, 3), (33, 1, 1)), ((1, 3, 1), (1, 40, 1)), ((2, 2, 2), (5, 1, 7))],
)
def test_every_thread_knows_its_place(launch, grid, block):
    nx, ny, nz = (g * b for g, b in zip(grid, block, strict=True))
    out = np.full((nx * ny * nz, 15), -1, np.int32)
    launch(where_3d[grid, block], out)
    z, y, x = (v.ravel() for v in np.meshgrid(np.arange(nz), np.arange(ny), np.arange(nx), indexing="ij"))
    place = np.stack([x, y, z], 1)
    wanted = np.concatenate([place % block, place // block, np.tile([*block, *grid], (x.size, 1)), place], axis=1)
    np.testing.assert_array_equal(out, wanted)


@cuda.jit
def where_1d(out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = i + 1000 * cuda.gridsize(1)


@pytest.mark.parametrize(("grid", "block"), [(1, 1), (1, 1024), (7, 33), (130, 64)])
def test_one_dimension(launch, grid, block):
    out = np.full(grid * block - (grid * block) // 3, -1, np.int64)
    launch(where_1d[grid, block], out)
    np.testing.assert_array_equal(out, np.arange(out.size) + 1000 * grid * block)


@cuda.jit
def where_2d(out):
    x, y = cuda.grid(2)
    nx, ny = cuda.gridsize(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = x + 1000 * y + 1000000 * (nx + ny)


def test_two_dimensions_with_a_ragged_edge(launch):
    out = np.full((35, 50), -1, np.int64)
    launch(where_2d[(4, 5), (16, 8)], out)
    np.testing.assert_array_equal(out, np.add.outer(1000 * np.arange(35), np.arange(50)) + 1000000 * (64 + 40))


@cuda.jit
def lanes(out):
    t = (cuda.threadIdx.z * cuda.blockDim.y + cuda.threadIdx.y) * cuda.blockDim.x + cuda.threadIdx.x
    out[t] = cuda.laneid


def test_lanes_count_x_first_then_y_then_z(launch):
    out = np.full(60, -1, np.int32)
    launch(lanes[1, (5, 4, 3)], out)
    np.testing.assert_array_equal(out, np.arange(60) % 32)


@cuda.jit
def size_of_a_warp(out):
    out[0] = cuda.warpsize


def test_a_warp_has_32_lanes(launch):
    out = np.zeros(1, np.int32)
    launch(size_of_a_warp[1, 1], out)
    assert out[0] == 32


@cuda.jit
def arithmetic_on_registers(out):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    back = cuda.blockDim.x - 1 - cuda.threadIdx.x
    if i < out.size:
        out[i] = (cuda.threadIdx.x - 5) * 10 + back // 2


def test_registers_take_part_in_signed_arithmetic(launch):
    out = np.zeros(96, np.int64)
    launch(arithmetic_on_registers[3, 32], out)
    t = np.arange(96) % 32
    np.testing.assert_array_equal(out, (t - 5) * 10 + (31 - t) // 2)


@cuda.jit
def one_per_block(out):
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] += cuda.blockIdx.x


def test_every_block_runs_exactly_once(launch):
    out = np.ones(5000, np.int64)
    launch(one_per_block[5000, 32], out)
    np.testing.assert_array_equal(out, 1 + np.arange(5000))
