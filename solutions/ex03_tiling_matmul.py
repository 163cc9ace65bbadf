"""Exercise 03: fetch once, use often.

Goal
    Two kernels compute C = A B, and both fetch two floats from memory for each multiply-add (FMA).
    Part 1: let the threads of a block share what they fetch, so that `tiled` needs a sixteenth of that.
    Part 2: let each thread of `register_tiled` own several elements of C, so that shared memory, too, gives
    fewer than 0.5 floats for an FMA. You may begin with the kernels of the lesson.

Requirements
    Part 1 (counted on m, n, k = 128, 256, 192)
    - at most 1/8 of a float is fetched from memory for each FMA, in whole sectors
    - two barriers for every 16 steps of k are enough
    Part 2 (counted on 256, 256, 128)
    - fewer than 0.5 floats are loaded from shared memory for each FMA, at most 1/16 from memory, none from local memory
    Both
    - 2 m n k float32 FLOPs, and each element of C stored once
    - right for any m, n and k, in bounds, without a race, in one launch
    Change kernels and launches as you like, sizes of blocks and tiles too; keep the names and the parameters.

Hints
    There are three to each part, each plainer than the last: under the Score button in lesson 03, or
    `solcourse check ex03 --hint 1`.
"""

### BEGIN SOLUTION
from numba import cuda, float32, uint32  # noqa: I001
### STUB
# from numba import cuda, float32
### END SOLUTION

TILE = 16  # threads of a block each way, in part 1


@cuda.jit
def tiled(a, b, c):  # a (m, k) float32, b (k, n) float32, c (m, n) float32
    j, i = cuda.grid(2)
    total = float32(0.0)
    ### BEGIN SOLUTION
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    for start in range(0, a.shape[1], TILE):
        tile_a[y, x] = a[i, start + x] if i < a.shape[0] and start + x < a.shape[1] else float32(0.0)
        tile_b[y, x] = b[start + y, j] if start + y < b.shape[0] and j < b.shape[1] else float32(0.0)
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    ### STUB
    # if i < a.shape[0] and j < b.shape[1]:
    #     for k in range(a.shape[1]):
    #         total += a[i, k] * b[k, j]
    ### END SOLUTION
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = total


def launch_tiled(m, n, k):
    """The grid and the block for C (m, n): ((blocks along x, along y), (threads along x, along y))."""
    return ((n + TILE - 1) // TILE, (m + TILE - 1) // TILE), (TILE, TILE)


### BEGIN SOLUTION
SIDE, DEPTH = 64, 8  # part 2: a block owns SIDE x SIDE elements of C; its tiles are DEPTH deep
ROWS, COLUMNS = 8, 4  # a thread owns ROWS x COLUMNS elements of C, its columns ACROSS apart
PITCH = DEPTH + 1  # of A's tile: the two rows that a warp reads lie in two banks
ACROSS = SIDE // COLUMNS
THREADS = ACROSS * (SIDE // ROWS)
FROM_A, FROM_B = THREADS // DEPTH, THREADS // SIDE  # rows of each tile that the block fetches at a time
### STUB
# SIDE = 16  # threads of a block each way, in part 2
### END SOLUTION


@cuda.jit
def register_tiled(a, b, c):  # a (m, k) float32, b (k, n) float32, c (m, n) float32
    ### BEGIN SOLUTION
    tile_a = cuda.shared.array((SIDE, PITCH), float32)
    tile_b = cuda.shared.array((DEPTH, SIDE), float32)
    totals = cuda.local.array((ROWS, COLUMNS), float32)
    of_a, of_b = cuda.local.array(ROWS, float32), cuda.local.array(COLUMNS, float32)
    m, n, inner = uint32(c.shape[0]), uint32(c.shape[1]), uint32(a.shape[1])
    t = uint32(cuda.threadIdx.x)
    top, left = uint32(cuda.blockIdx.y * SIDE), uint32(cuda.blockIdx.x * SIDE)
    y, x = uint32(t // ACROSS * ROWS), uint32(t % ACROSS)
    ya, xa, yb, xb = uint32(t // DEPTH), uint32(t % DEPTH), uint32(t // SIDE), uint32(t % SIDE)
    for r in range(ROWS):
        for s in range(COLUMNS):
            totals[r, s] = float32(0.0)
    for start in range(0, inner, DEPTH):
        for r in range(0, SIDE, FROM_A):
            i, k = uint32(top + ya + r), uint32(start + xa)
            tile_a[ya + r, xa] = a[i, k] if i < m and k < inner else float32(0.0)
        for r in range(0, DEPTH, FROM_B):
            k, j = uint32(start + yb + r), uint32(left + xb)
            tile_b[yb + r, xb] = b[k, j] if k < inner and j < n else float32(0.0)
        cuda.syncthreads()
        for k in range(DEPTH):
            for r in range(ROWS):
                of_a[r] = tile_a[y + r, k]
            for s in range(COLUMNS):
                of_b[s] = tile_b[k, x + s * ACROSS]
            for r in range(ROWS):
                for s in range(COLUMNS):
                    totals[r, s] += of_a[r] * of_b[s]
        cuda.syncthreads()
    for r in range(ROWS):
        for s in range(COLUMNS):
            i, j = uint32(top + y + r), uint32(left + x + s * ACROSS)
            if i < m and j < n:
                c[i, j] = totals[r, s]
    ### STUB
    # j, i = cuda.grid(2)
    # if i < a.shape[0] and j < b.shape[1]:
    #     total = float32(0.0)
    #     for k in range(a.shape[1]):
    #         total += a[i, k] * b[k, j]
    #     c[i, j] = total
    ### END SOLUTION


def launch_register_tiled(m, n, k):
    """The grid and the block for C (m, n): ((blocks along x, along y), threads), the threads a number or (along x, along y)."""
    ### BEGIN SOLUTION
    threads = THREADS
    ### STUB
    # threads = (SIDE, SIDE)
    ### END SOLUTION
    return ((n + SIDE - 1) // SIDE, (m + SIDE - 1) // SIDE), threads


### BEGIN HIDDEN TESTS
import math  # noqa: E402

import numpy as np  # noqa: E402

from solcourse.grading import Exercise, GateSpec, barriers, bytes_moved, flops, sectors, words_per_fma  # noqa: E402
from solcourse.work import Work  # noqa: E402


def arguments(m, n, k, rng):
    return {
        "a": rng.uniform(-1, 1, (m, k)).astype(np.float32),
        "b": rng.uniform(-1, 1, (k, n)).astype(np.float32),
        "c": np.empty((m, n), np.float32),
    }


def reference(a, b, c):
    return {"c": (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)}


def work(m, n, k):
    return Work.read("a", 4 * m * k) + Work.read("b", 4 * k * n) + Work.write("c", 4 * m * n) + Work.flop("fp32", 2 * m * n * k)


def fetched(m, n, k, at_most):
    """Gates of both parts: at_most bytes come from memory, in a fifth more sectors than that needs; the work, and no more."""
    return (
        bytes_moved("global_load", at_least=4 * k * (m + n), at_most=at_most),
        sectors("global_load", at_most=at_most * 6 // 5 // 32),
        bytes_moved("global_store", exactly=4 * m * n),
        flops("fp32", at_least=2 * m * n * k, at_most=2 * m * n * k * 6 // 5),
    )


def tiled_gates(m, n, k):
    """A block of 16 x 16 fetches 2 floats for 16 FMAs of a thread, and meets twice for each 16 steps of k."""
    return (*fetched(m, n, k, 4 * m * n * k // 8 * 6 // 5), barriers(at_most=2 * (m * n // 32) * (k // 16) * 6 // 5))


def register_gates(m, n, k):
    """Whatever the shape: of 8 x 4 elements a thread loads 12 words for 32 FMAs, of 4 x 5 it is 0.45; a block of 32 x 32 fetches 1/16."""
    return (
        words_per_fma("shared_load", at_most=0.45),
        *fetched(m, n, k, 4 * m * n * k // 16),
        GateSpec(
            "bytes of local loads", lambda run: run.counts.local_load.bytes, -math.inf, 0, "",
            "The elements a thread owns have left its registers: they stay there only if each index is known when the kernel is compiled.",
            lambda counts: counts.local_load.bytes,
        ),
    )  # fmt: skip


PRODUCT = {"arguments": arguments, "outputs": ("c",), "reference": reference, "work": work, "rtol": 1e-4, "atol": 1e-4}
EXERCISE = (
    Exercise(
        kernel="tiled",
        launch="launch_tiled",
        title="a tile for a block",
        sizes=((1, 1, 1), (17, 33, 50), (40, 16, 31), (5, 70, 16)),
        gate_size=(128, 256, 192),
        gates=tiled_gates,
        hints=(
            "Take the 16 threads of a block that share i: each of them fetches the same row of A. And the 16 that share j? How often "
            "does a block fetch each number it needs, and where could it keep them?",
            "March along k in steps of TILE. In each step every thread fetches one element of A and one of B for all, they meet, each "
            "adds TILE products out of shared memory, and they meet again. What must stand in the tile where A or B has ended?",
            "Two tiles of TILE x TILE. Thread (x, y) puts a[i, start + x] at [y, x] of the first, b[start + y, j] at [y, x] of the "
            "second, or 0 where either index is too large: zeros add nothing. Nobody may leave before the last barrier, whatever i and j.",
        ),
        after="Part 2 is open now: in the same file.",
        **PRODUCT,
    ),
    Exercise(
        kernel="register_tiled",
        launch="launch_register_tiled",
        title="a tile for a thread",
        sizes=((1, 1, 1), (70, 131, 19), (64, 65, 8), (129, 30, 33)),
        gate_size=(256, 256, 128),
        gates=register_gates,
        hints=(
            "A thread that owns R elements of one column loads R + 1 words for R FMAs: never fewer than one. What does a thread that owns "
            "R rows and S columns load, and for how many FMAs?",
            "8 rows and 4 columns: 12 words for 32 FMAs. Let 128 threads own 64 x 64 of C. A tile of 64 x 8 has more elements than the "
            "block has threads: each fetches four, whole rows of threads apart. The guard of the store becomes one for each element.",
            "For each k of the tile: 8 elements of A into one small cuda.local.array, 4 of B into another, then two nested loops over "
            "totals[r, s]. Bounds of all these loops must be constants, or the arrays leave the registers. Let the columns of a thread "
            "lie 16 apart, so that neighbouring lanes load, and store, neighbours.",
        ),
        after="Both memories are quiet now. Which bar is the longest? Lesson 04: what a warp waits for when nothing is busy.",
        **PRODUCT,
    ),
)
### END HIDDEN TESTS
