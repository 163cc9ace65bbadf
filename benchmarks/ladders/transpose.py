"""Transposes of 1024 x 1024 float32, launched a hundred times on the same two arrays: 8 MB, more than the L2 of these GPUs holds.

blog    tile 32 x 32, block 32 x 8, four rows per thread: NVIDIA-developer-blog/code-samples
sample  tile 16 x 16, block 16 x 16: cuda-samples of CUDA 11. Its coarse- and fine-grained steps transpose only the order of the
        tiles, or only inside each tile
Indices are 32-bit as in the sources: `int32`, widened once for the access.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import cuda, float32, int32, uint32

from .common import F32, Entry, gbs, one

LEFT_OUT = {("transpose-blog-1024-dram", "Tesla K20m"): "GPU below compute capability 6.0"}
N = 1024
TILE, ROWS = int32(32), 8
S = int32(16)


# -------------------------------------------------------------------------------------------------------------------- blog
@cuda.jit
def blog_copy(out, x):
    i = int32(cuda.blockIdx.x) * TILE + int32(cuda.threadIdx.x)
    j = int32(cuda.blockIdx.y) * TILE + int32(cuda.threadIdx.y)
    width = int32(cuda.gridDim.x) * TILE
    for k in range(0, 32, ROWS):
        at = uint32((j + int32(k)) * width + i)
        out[at] = x[at]


@cuda.jit
def blog_copy_shared(out, x):
    tile = cuda.shared.array(32 * 32, float32)
    tx, ty = int32(cuda.threadIdx.x), int32(cuda.threadIdx.y)
    i, j = int32(cuda.blockIdx.x) * TILE + tx, int32(cuda.blockIdx.y) * TILE + ty
    width = int32(cuda.gridDim.x) * TILE
    for k in range(0, 32, ROWS):
        tile[uint32((ty + int32(k)) * TILE + tx)] = x[uint32((j + int32(k)) * width + i)]
    cuda.syncthreads()
    for k in range(0, 32, ROWS):
        out[uint32((j + int32(k)) * width + i)] = tile[uint32((ty + int32(k)) * TILE + tx)]


@cuda.jit
def blog_naive(out, x):
    i = int32(cuda.blockIdx.x) * TILE + int32(cuda.threadIdx.x)
    j = int32(cuda.blockIdx.y) * TILE + int32(cuda.threadIdx.y)
    width = int32(cuda.gridDim.x) * TILE
    for k in range(0, 32, ROWS):
        out[uint32(i * width + j + int32(k))] = x[uint32((j + int32(k)) * width + i)]


def blog_tiled(pitch: int) -> Any:
    """Tile [32][pitch]: 32 makes a column of it one bank, 33 does not."""
    step, cells = int32(pitch), 32 * pitch

    @cuda.jit
    def transpose_tiled(out, x):
        tile = cuda.shared.array(cells, float32)
        tx, ty = int32(cuda.threadIdx.x), int32(cuda.threadIdx.y)
        bx, by = int32(cuda.blockIdx.x) * TILE, int32(cuda.blockIdx.y) * TILE
        width = int32(cuda.gridDim.x) * TILE
        for k in range(0, 32, ROWS):
            tile[uint32((ty + int32(k)) * step + tx)] = x[uint32((by + ty + int32(k)) * width + bx + tx)]
        cuda.syncthreads()
        for k in range(0, 32, ROWS):
            out[uint32((bx + ty + int32(k)) * width + by + tx)] = tile[uint32(tx * step + ty + int32(k))]

    return transpose_tiled


# ------------------------------------------------------------------------------------------------------------------ sample
@cuda.jit
def sample_copy(out, x, width):
    i = int32(cuda.blockIdx.x) * S + int32(cuda.threadIdx.x)
    j = int32(cuda.blockIdx.y) * S + int32(cuda.threadIdx.y)
    at = uint32(i + int32(width) * j)
    out[at] = x[at]


@cuda.jit
def sample_copy_shared(out, x, width):
    tile = cuda.shared.array(16 * 16, float32)
    tx, ty = int32(cuda.threadIdx.x), int32(cuda.threadIdx.y)
    i, j = int32(cuda.blockIdx.x) * S + tx, int32(cuda.blockIdx.y) * S + ty
    at = uint32(i + int32(width) * j)
    inside = i < int32(width) and j < int32(width)
    if inside:
        tile[uint32(ty * S + tx)] = x[at]
    cuda.syncthreads()
    if inside:
        out[at] = tile[uint32(ty * S + tx)]


@cuda.jit
def sample_naive(out, x, width):
    i = int32(cuda.blockIdx.x) * S + int32(cuda.threadIdx.x)
    j = int32(cuda.blockIdx.y) * S + int32(cuda.threadIdx.y)
    out[uint32(j + int32(width) * i)] = x[uint32(i + int32(width) * j)]


def sample_tiled(pitch: int, grain: str = "") -> Any:
    """grain: "fine" moves tiles nowhere, "coarse" turns nothing inside them, "diagonal" takes the tiles in another order."""
    step, cells = int32(pitch), 16 * pitch
    fine, coarse, diagonal = (grain == name for name in ("fine", "coarse", "diagonal"))

    @cuda.jit
    def transpose_tiled(out, x, width):
        tile = cuda.shared.array(cells, float32)
        tx, ty = int32(cuda.threadIdx.x), int32(cuda.threadIdx.y)
        bx, by = int32(cuda.blockIdx.x), int32(cuda.blockIdx.y)
        if diagonal:
            bx, by = int32(uint32(bx + by) % uint32(cuda.gridDim.x)), bx
        tile[uint32(ty * step + tx)] = x[uint32(bx * S + tx + (by * S + ty) * int32(width))]
        if not fine:
            bx, by = by, bx
        cuda.syncthreads()
        if coarse:
            value = tile[uint32(ty * step + tx)]
        else:
            value = tile[uint32(tx * step + ty)]
        out[uint32(bx * S + tx + (by * S + ty) * int32(width))] = value

    return transpose_tiled


BLOG = {
    "copy": blog_copy, "shared memory copy": blog_copy_shared, "naive transpose": blog_naive,
    "coalesced transpose": blog_tiled(32), "conflict-free transpose": blog_tiled(33),
}  # fmt: skip
SAMPLE_STEPS = {
    "simple copy": sample_copy, "shared memory copy": sample_copy_shared, "naive": sample_naive, "coalesced": sample_tiled(16),
    "optimized": sample_tiled(17), "coarse-grained": sample_tiled(17, "coarse"), "fine-grained": sample_tiled(17, "fine"),
    "diagonal": sample_tiled(17, "diagonal"),
}  # fmt: skip


def entries() -> Iterator[Entry]:
    rate = gbs(8 * N * N)
    for label, kernel in BLOG.items():
        args = lambda: (np.zeros(N * N, F32), np.zeros(N * N, F32))  # noqa: E731
        yield one(
            "transpose-blog-1024-dram", "GTX 1060 6GB", label, kernel, (32, 32), (32, 8), args, rate, sample=None, cache="warm"
        )  # fmt: skip
    for gpu in ("GTX 1650 SUPER", "GTX 1650 SUPER (second run)", "T4G"):
        for label, kernel in SAMPLE_STEPS.items():
            args = lambda: (np.zeros(N * N, F32), np.zeros(N * N, F32), N)  # noqa: E731
            yield one(
                "transpose-sample-1024-turing", gpu, label, kernel, (64, 64), (16, 16), args, rate, sample=None, cache="warm"
            )  # fmt: skip
