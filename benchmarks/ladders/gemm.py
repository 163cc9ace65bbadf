"""Matrix products in float32, from one element per thread to warp tiles: sgemm-boehm-a6000, sgemm-xgemm-3090, matmul-sample-tile32.

Each step is coded as its CUDA C++ is: the same blocks, tiles in shared memory, elements per thread, guards, and `C = alpha A B + beta C`
(xGeMM multiplies the old C by a literal 0, which the compiler must keep). The loop through a tile is written out by `unrolled` where
nvcc unrolls it: NVVM leaves numba's rolled, and only neighbours in straight code become one 16-byte load from shared memory (which needs
the tiles' alignment). With that the SASS of both is the same in the inner loop: 512 FFMA and 32 LDS.128 per 8 columns in gemm_square,
594 instructions a round against 628, and as many registers (125 against 128).
Two liberties. float4 loads from global memory, which numba cannot say, are two 8-byte loads, and their halves come out of the bits:
two requests instead of one, the same sectors and wavefronts. And all sources use 32-bit indices; these here are 64 bits wide.
Both repositories repeat a launch, so L2 is warm. xGeMM waits for the device after each launch: its small sizes hold that wait, too.
A few blocks of each grid are run, to full depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32, uint32, uint64
from numba.cuda import libdevice

from benchmarks.ladders.common import F32, ONE, WARP, ZERO, Entry, gflops, one

_CUBLAS = "library call"
_UNNAMED = "double buffering: the source gives neither tile sizes nor the variant that was timed"
_OLD = "GPU below compute capability 6.0"
LEFT_OUT = {
    ("sgemm-boehm-a6000", "0 cuBLAS"): _CUBLAS,
    ("sgemm-boehm-a6000", "11 "): _UNNAMED,
    ("sgemm-xgemm-3090", "cuBLAS"): _CUBLAS,
    ("matmul-sample-tile32", "GTX 580"): _OLD,
    ("matmul-sample-tile32", "Tesla K20c"): _OLD,
    ("matmul-sample-tile32", "GT 730M"): _OLD,
}
TILE = 32
CELLS = TILE * TILE
SIDE = uint64(TILE)
HALF = uint64(32)  # bits
K0, K1, K2, K3, K4 = (uint64(k) for k in range(5))


def unrolled(step: Any, deep: int, width: int = 8) -> Any:
    """step(tile_a, tile_b, own, row, col, k) for k = 0 ... deep - 1, `width` (1, 4 or 8) at a time in straight code.

    nvcc unrolls all 16 of Boehm's deeper tiles; 512 FFMA in a row are what the counts need, and compile in seconds. Those of xGeMM, with
    their guards, it leaves rolled.
    """
    end, stride = uint64(deep), uint64(width)

    @cuda.jit(device=True, forceinline=True)
    def four(tile_a, tile_b, own, row, col, k):
        step(tile_a, tile_b, own, row, col, k)
        step(tile_a, tile_b, own, row, col, k + K1)
        step(tile_a, tile_b, own, row, col, k + K2)
        step(tile_a, tile_b, own, row, col, k + K3)

    @cuda.jit(device=True, forceinline=True)
    def eight(tile_a, tile_b, own, row, col, k):
        four(tile_a, tile_b, own, row, col, k)
        four(tile_a, tile_b, own, row, col, k + K4)

    chosen = {1: step, 4: four, 8: eight}[width]

    @cuda.jit(device=True, forceinline=True)
    def once(tile_a, tile_b, own, row, col):
        chosen(tile_a, tile_b, own, row, col, K0)

    @cuda.jit(device=True, forceinline=True)
    def several(tile_a, tile_b, own, row, col):
        k = ZERO
        while k < end:
            chosen(tile_a, tile_b, own, row, col, k)
            k += stride

    return once if deep == width else several


# ------------------------------------------------------------------------------------------------------ one element per thread
def gemm_naive(rows_in_x: bool, linear: bool = False) -> Any:
    """Each thread one element of C, 32 x 32 of them per block. rows_in_x: threadIdx.x counts rows, so that a warp reads a column of A.

    linear: the block is one-dimensional, and rows are counted by blockIdx.x.
    """

    @cuda.jit
    def naive(a, b, c, n, alpha, beta):
        size = uint64(n)
        if linear:
            t = uint64(cuda.threadIdx.x)
            row, col = uint64(cuda.blockIdx.x) * SIDE + t // SIDE, uint64(cuda.blockIdx.y) * SIDE + t % SIDE
        else:
            x = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
            y = uint64(cuda.blockIdx.y) * uint64(cuda.blockDim.y) + uint64(cuda.threadIdx.y)
            row, col = (x, y) if rows_in_x else (y, x)
        if row < size and col < size:
            total = float32(0.0)
            k, at = ZERO, col  # at: k * size + col, a running sum as in the SASS
            while k < size:
                total += a[row * size + k] * b[at]
                k += ONE
                at += size
            c[row * size + col] = alpha * total + beta * c[row * size + col]

    return naive


def gemm_tile(linear: bool, guarded: bool, scaled: bool = True) -> Any:
    """32 x 32 tiles of A and B in shared memory, one element per thread.

    linear: a one-dimensional block, rows counted by blockIdx.x; guarded: each element is checked against the edge;
    scaled: `alpha A B + beta C`, else C is written only.
    """

    @cuda.jit
    def tiled(a, b, c, n, alpha, beta):
        tile_a = cuda.shared.array(CELLS, float32, alignment=16)
        tile_b = cuda.shared.array(CELLS, float32, alignment=16)
        size = uint64(n)
        if linear:
            t = uint64(cuda.threadIdx.x)
            tx, ty = t % SIDE, t // SIDE
            row, col = uint64(cuda.blockIdx.x) * SIDE + ty, uint64(cuda.blockIdx.y) * SIDE + tx
        else:
            tx, ty = uint64(cuda.threadIdx.x), uint64(cuda.threadIdx.y)
            row, col = uint64(cuda.blockIdx.y) * SIDE + ty, uint64(cuda.blockIdx.x) * SIDE + tx
        total = float32(0.0)
        start = ZERO
        while start < size:
            if guarded:
                tile_a[ty * SIDE + tx] = a[row * size + start + tx] if row < size and start + tx < size else float32(0.0)
                tile_b[ty * SIDE + tx] = b[(start + ty) * size + col] if start + ty < size and col < size else float32(0.0)
            else:
                tile_a[ty * SIDE + tx] = a[row * size + start + tx]
                tile_b[ty * SIDE + tx] = b[(start + ty) * size + col]
            cuda.syncthreads()
            for k in range(TILE):
                total += tile_a[ty * SIDE + uint64(k)] * tile_b[uint64(k) * SIDE + tx]
            cuda.syncthreads()
            start += SIDE
        if not guarded or (row < size and col < size):
            c[row * size + col] = alpha * total + beta * c[row * size + col] if scaled else total

    return tiled


# --------------------------------------------------------------------------------------------------- several elements per thread
def gemm_rows(guarded: bool) -> Any:
    """64 x 64 of C by 512 threads, each 8 elements of a column; tiles 64 x 8 and 8 x 64."""
    side, depth, per = uint64(64), uint64(8), uint64(8)

    @cuda.jit(device=True, forceinline=True)
    def step(tile_a, tile_b, own, row, col, k):
        value = tile_b[k * side + col]
        for i in range(8):
            own[i] += tile_a[(row * per + uint64(i)) * depth + k] * value

    tile = unrolled(step, 8)

    @cuda.jit
    def rows(a, b, c, n, alpha, beta):
        tile_a = cuda.shared.array(512, float32, alignment=16)
        tile_b = cuda.shared.array(512, float32, alignment=16)
        own = cuda.local.array(8, float32)
        size = uint64(n)
        t = uint64(cuda.threadIdx.x)
        col, row = t % side, t // side
        ax, ay = t % depth, t // depth
        left, top = uint64(cuda.blockIdx.x) * side, uint64(cuda.blockIdx.y) * side
        for i in range(8):
            own[i] = float32(0.0)
        start = ZERO
        while start < size:
            if guarded:
                tile_a[ay * depth + ax] = a[(top + ay) * size + start + ax] if top + ay < size and start + ax < size else float32(0.0)
                tile_b[row * side + col] = (
                    b[(start + row) * size + left + col] if start + row < size and left + col < size else float32(0.0)
                )
            else:
                tile_a[ay * depth + ax] = a[(top + ay) * size + start + ax]
                tile_b[row * side + col] = b[(start + row) * size + left + col]
            cuda.syncthreads()
            tile(tile_a, tile_b, own, row, col)
            cuda.syncthreads()
            start += depth
        for i in range(8):
            y, x = top + row * per + uint64(i), left + col
            if not guarded or (y < size and x < size):
                c[y * size + x] = alpha * own[i] + beta * c[y * size + x]

    return rows


def gemm_square(deep: int, guarded: bool) -> Any:
    """128 x 128 of C by 256 threads, 8 x 8 each; A's tile as it lies in memory, `deep` columns of it."""
    side, depth, per, columns = uint64(128), uint64(deep), uint64(8), uint64(16)
    times, cells = 128 * deep // 256, 128 * deep
    step_a, step_b = uint64(256 // deep), uint64(2)

    @cuda.jit(device=True, forceinline=True)
    def step(tile_a, tile_b, own, row, col, k):
        part_a, part_b = cuda.local.array(8, float32), cuda.local.array(8, float32)
        for i in range(8):
            part_a[i] = tile_a[(row * per + uint64(i)) * depth + k]
        for i in range(8):
            part_b[i] = tile_b[k * side + col * per + uint64(i)]
        for i in range(8):
            for j in range(8):
                own[8 * i + j] += part_a[i] * part_b[j]

    tile = unrolled(step, deep, 1 if guarded else 8)

    @cuda.jit
    def square(a, b, c, n, alpha, beta):
        tile_a = cuda.shared.array(cells, float32, alignment=16)
        tile_b = cuda.shared.array(cells, float32, alignment=16)
        own = cuda.local.array(64, float32)
        size = uint64(n)
        t = uint64(cuda.threadIdx.x)
        col, row = t % columns, t // columns
        ax, ay, bx, by = t % depth, t // depth, t % side, t // side
        left, top = uint64(cuda.blockIdx.x) * side, uint64(cuda.blockIdx.y) * side
        for i in range(64):
            own[i] = float32(0.0)
        start = ZERO
        while start < size:
            for i in range(times):
                y = ay + uint64(i) * step_a
                if not guarded or (top + y < size and start + ax < size):
                    tile_a[y * depth + ax] = a[(top + y) * size + start + ax]
                else:
                    tile_a[y * depth + ax] = float32(0.0)
            for i in range(times):
                y = by + uint64(i) * step_b
                if not guarded or (start + y < size and left + bx < size):
                    tile_b[y * side + bx] = b[(start + y) * size + left + bx]
                else:
                    tile_b[y * side + bx] = float32(0.0)
            cuda.syncthreads()
            tile(tile_a, tile_b, own, row, col)
            cuda.syncthreads()
            start += depth
        for i in range(8):
            for j in range(8):
                y, x = top + row * per + uint64(i), left + col * per + uint64(j)
                if not guarded or (y < size and x < size):
                    c[y * size + x] = alpha * own[8 * i + j] + beta * c[y * size + x]

    return square


# ------------------------------------------------------------------------------------------- wide loads, A turned in shared memory
@cuda.jit(device=True, inline=True)
def low(bits):
    return libdevice.int_as_float(uint32(bits))


@cuda.jit(device=True, inline=True)
def high(bits):
    return libdevice.int_as_float(uint32(bits >> HALF))


# where a thread's `i`-th of 8 columns of the tile of B lies, and where column x of the tile is stored; row k of the tile is `pitch` long
def _plain(thread, i):
    return thread * uint64(8) + uint64(i)


def _as_is(x):
    return x


def _dealt(thread, i):
    return uint64(i) * uint64(16) + thread


def _deal(x):
    return (x % uint64(8)) * uint64(16) + x // uint64(8)


def gemm_wide(deep: int, pitch: int = 128, dealt: bool = False, guarded: bool = False) -> Any:
    """As gemm_square, but with 16 bytes per load (here 2 x 8) and A's tile turned, so that a thread's 8 rows are neighbours.

    pitch: length of a row of B's tile; dealt: a thread's 8 columns lie 16 apart in B's tile, and the threads' side by side;
    guarded: each load is checked against the edge, and so is each element of C, which is not loaded 16 bytes at a time.
    """
    side, depth, quads, row_b, columns = uint64(128), uint64(deep), uint64(deep // 4), uint64(pitch), uint64(16)
    times, cells_a, cells_b = 128 * deep // 1024, deep * 128, deep * pitch
    step_a, step_b = uint64(1024 // deep), uint64(8)
    four, three, two = uint64(4), uint64(3), uint64(2)
    read = cuda.jit(device=True, inline=True)(_dealt if dealt else _plain)
    place = cuda.jit(device=True, inline=True)(_deal if dealt else _as_is)

    @cuda.jit(device=True, forceinline=True)
    def step(tile_a, tile_b, own, row, col, k):
        part_a, part_b = cuda.local.array(8, float32), cuda.local.array(8, float32)
        for i in range(8):
            part_a[i] = tile_a[k * side + row * uint64(8) + uint64(i)]
        for i in range(8):
            part_b[i] = tile_b[k * row_b + read(col, i)]
        for i in range(8):
            for j in range(8):
                own[8 * i + j] += part_a[i] * part_b[j]

    tile = unrolled(step, deep, 1 if guarded else 8)

    @cuda.jit
    def wide(a, b, c, n, alpha, beta):  # a, b: pairs of float32 as uint64; c too unless guarded
        tile_a = cuda.shared.array(cells_a, float32, alignment=16)
        tile_b = cuda.shared.array(cells_b, float32, alignment=16)
        own = cuda.local.array(64, float32)
        size = uint64(n)
        t = uint64(cuda.threadIdx.x)
        col, row = t % columns, t // columns
        ax, ay, bx, by = t % quads * four, t // quads, t % WARP * four, t // WARP
        left, top = uint64(cuda.blockIdx.x) * side, uint64(cuda.blockIdx.y) * side
        for i in range(64):
            own[i] = float32(0.0)
        start = ZERO
        while start < size:
            for i in range(times):
                y = ay + uint64(i) * step_a
                if not guarded or (top + y < size and start + ax < size):
                    at = ((top + y) * size + start + ax) // two
                    first, second = a[at], a[at + ONE]
                    tile_a[ax * side + y] = low(first)
                    tile_a[(ax + ONE) * side + y] = high(first)
                    tile_a[(ax + two) * side + y] = low(second)
                    tile_a[(ax + three) * side + y] = high(second)
            for i in range(times):
                y = by + uint64(i) * step_b
                if not guarded or (start + y < size and left + bx < size):
                    at = ((start + y) * size + left + bx) // two
                    first, second = b[at], b[at + ONE]
                    tile_b[y * row_b + place(bx)] = low(first)
                    tile_b[y * row_b + place(bx + ONE)] = high(first)
                    tile_b[y * row_b + place(bx + two)] = low(second)
                    tile_b[y * row_b + place(bx + three)] = high(second)
            cuda.syncthreads()
            tile(tile_a, tile_b, own, row, col)
            cuda.syncthreads()
            start += depth
        for i in range(8):
            y, x = top + row * uint64(8) + uint64(i), left + col * uint64(8)
            for j in range(8):
                if not guarded or (y < size and x + uint64(j) < size):
                    c[y * size + x + uint64(j)] = alpha * own[8 * i + j] + beta * c[y * size + x + uint64(j)]

    return wide


@cache
def gemm_warp_tile() -> Any:
    """128 x 128 of C by 4 warps, each 64 x 64: a thread has 8 rows, and 4 columns in each of 4 strips of 16; tiles 16 deep."""
    side, depth, eight, four, two, sixteen, sixty_four = (uint64(x) for x in (128, 16, 8, 4, 2, 16, 64))
    three = uint64(3)
    step_a, step_b = WARP, four

    @cuda.jit(device=True, forceinline=True)
    def step(tile_a, tile_b, own, row, col, k):
        part_a, part_b = cuda.local.array(8, float32), cuda.local.array(16, float32)
        for i in range(8):
            part_a[i] = tile_a[k * side + row + uint64(i)]
        for strip in range(4):
            for j in range(4):
                part_b[4 * strip + j] = tile_b[k * side + col + uint64(strip) * sixteen + uint64(j)]
        for strip in range(4):
            for i in range(8):
                for j in range(4):
                    own[16 * i + 4 * strip + j] += part_a[i] * part_b[4 * strip + j]

    tile = unrolled(step, 16, 4)

    @cuda.jit
    def warp_tile(a, b, c, n, alpha, beta):  # a, b: pairs of float32 as uint64
        tile_a = cuda.shared.array(2048, float32, alignment=16)
        tile_b = cuda.shared.array(2048, float32, alignment=16)
        own = cuda.local.array(128, float32)
        size = uint64(n)
        t = uint64(cuda.threadIdx.x)
        warp, lane = t // WARP, t % WARP
        row, col = warp // two * sixty_four + lane // four * eight, warp % two * sixty_four + lane % four * four
        ax, ay, bx, by = t % four * four, t // four, t % WARP * four, t // WARP
        left, top = uint64(cuda.blockIdx.x) * side, uint64(cuda.blockIdx.y) * side
        for i in range(128):
            own[i] = float32(0.0)
        start = ZERO
        while start < size:
            for i in range(4):
                y = ay + uint64(i) * step_a
                at = ((top + y) * size + start + ax) // two
                first, second = a[at], a[at + ONE]
                tile_a[ax * side + y] = low(first)
                tile_a[(ax + ONE) * side + y] = high(first)
                tile_a[(ax + two) * side + y] = low(second)
                tile_a[(ax + three) * side + y] = high(second)
            for i in range(4):
                y = by + uint64(i) * step_b
                at = ((start + y) * size + left + bx) // two
                first, second = b[at], b[at + ONE]
                tile_b[y * side + bx] = low(first)
                tile_b[y * side + bx + ONE] = high(first)
                tile_b[y * side + bx + two] = low(second)
                tile_b[y * side + bx + three] = high(second)
            cuda.syncthreads()
            tile(tile_a, tile_b, own, row, col)
            cuda.syncthreads()
            start += depth
        for strip in range(4):
            for i in range(8):
                for j in range(4):
                    at = (top + row + uint64(i)) * size + left + col + uint64(strip) * sixteen + uint64(j)
                    c[at] = alpha * own[16 * i + 4 * strip + j] + beta * c[at]

    return warp_tile


# --------------------------------------------------------------------------------------------------------------------- entries
def _matrices(n: int, wide: bool = False) -> Callable[[], tuple]:
    """(a, b, c, n, alpha, beta); wide: a and b as pairs."""
    pairs = (n * n // 2, np.uint64) if wide else (n * n, F32)
    return lambda: (np.zeros(*pairs), np.zeros(*pairs), np.zeros(n * n, F32), n, F32(0.5), F32(3.0))


def _entry(ladder: str, gpu: str, label: str, kernel: Any, n: int, side: int, block: Any, sample: int, wide: bool = False) -> Entry:
    return one(
        ladder, gpu, label, kernel, (-(-n // side),) * 2, block, _matrices(n, wide), gflops(2 * n**3), size=f"M=N=K={n}", sample=sample,
        cache="warm",
    )  # fmt: skip


def _boehm() -> Iterator[Entry]:
    square = (TILE, TILE)
    for label, kernel, side, block, wide in (
        ("1 naive", gemm_naive(rows_in_x=True), TILE, square, False),
        ("2 gmem", gemm_naive(rows_in_x=False, linear=True), TILE, 1024, False),
        ("3 smem", gemm_tile(linear=True, guarded=False), TILE, 1024, False),
        ("4 1D", gemm_rows(guarded=False), 64, 512, False),
        ("5 2D", gemm_square(8, guarded=False), 128, 256, False),
        ("6 vectorized", gemm_wide(8), 128, 256, True),
        ("7 bank", gemm_wide(8, dealt=True), 128, 256, True),
        ("8 bank", gemm_wide(8, pitch=133), 128, 256, True),
        ("9 autotuned", gemm_wide(16), 128, 256, True),
        ("10 warptiling", gemm_warp_tile(), 128, 128, True),
    ):
        yield _entry("sgemm-boehm-a6000", "RTX A6000", label, kernel, 4096, side, block, 4, wide)


def _xgemm() -> Iterator[Entry]:
    square = (TILE, TILE)
    steps = (
        ("naive", gemm_naive(rows_in_x=True), TILE, square, False),
        ("coalesced", gemm_naive(rows_in_x=False), TILE, square, False),
        ("smem tile", gemm_tile(linear=False, guarded=True), TILE, square, False),
        ("64x64x8", gemm_rows(guarded=True), 64, 512, False),
        ("128x128x16", gemm_square(16, guarded=True), 128, 256, False),
        ("05 + float4", gemm_wide(16, guarded=True), 128, 256, True),
    )
    for n in (512, 1024, 2048, 4096):
        for label, kernel, side, block, wide in steps:
            yield _entry("sgemm-xgemm-3090", "RTX 3090", label, kernel, n, side, block, 8 if n < 2048 else 4, wide)


def _sample() -> Iterator[Entry]:
    """NVIDIA's matrixMul: C = A B, 300 launches in a row. 320 x 320 times 320 x 640 in the rows with the default sizes."""
    kernel = gemm_tile(linear=False, guarded=False, scaled=False)
    for n in (64, 128, 256, 512, 1024, 2048, 4096):
        yield _entry("matmul-sample-tile32", "RTX 3090", "matrixMulCUDA", kernel, n, TILE, (TILE, TILE), 8)
    for gpu in ("Tesla P100-PCIE-16GB", "GTX 1060 3GB"):
        yield one(
            "matmul-sample-tile32", gpu, "matrixMulCUDA", _oblong(), (20, 10), (TILE, TILE), _oblong_matrices, gflops(2 * 320 * 320 * 640),
            sample=20, cache="warm",
        )  # fmt: skip


@cache
def _oblong() -> Any:
    """gemm_tile for C (320, 640) = A (320, 320) B (320, 640)."""

    @cuda.jit
    def tiled(a, b, c, width_a, width_b):
        tile_a = cuda.shared.array(CELLS, float32, alignment=16)
        tile_b = cuda.shared.array(CELLS, float32, alignment=16)
        inner, width = uint64(width_a), uint64(width_b)
        tx, ty = uint64(cuda.threadIdx.x), uint64(cuda.threadIdx.y)
        row, col = uint64(cuda.blockIdx.y) * SIDE + ty, uint64(cuda.blockIdx.x) * SIDE + tx
        total = float32(0.0)
        start = ZERO
        while start < inner:
            tile_a[ty * SIDE + tx] = a[row * inner + start + tx]
            tile_b[ty * SIDE + tx] = b[(start + ty) * width + col]
            cuda.syncthreads()
            for k in range(TILE):
                total += tile_a[ty * SIDE + uint64(k)] * tile_b[uint64(k) * SIDE + tx]
            cuda.syncthreads()
            start += SIDE
        c[row * width + col] = total

    return tiled


def _oblong_matrices() -> tuple:
    return np.zeros(320 * 320, F32), np.zeros(320 * 640, F32), np.zeros(320 * 640, F32), 320, 640


def entries() -> Iterator[Entry]:
    yield from _boehm()
    yield from _xgemm()
    yield from _sample()
