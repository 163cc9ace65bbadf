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

from numba import cuda, float32

TILE = 16  # threads of a block each way, in part 1


@cuda.jit
def tiled(a, b, c):  # a (m, k) float32, b (k, n) float32, c (m, n) float32
    j, i = cuda.grid(2)
    total = float32(0.0)
    if i < a.shape[0] and j < b.shape[1]:
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = total


def launch_tiled(m, n, k):
    """The grid and the block for C (m, n): ((blocks along x, along y), (threads along x, along y))."""
    return ((n + TILE - 1) // TILE, (m + TILE - 1) // TILE), (TILE, TILE)


SIDE = 16  # threads of a block each way, in part 2


@cuda.jit
def register_tiled(a, b, c):  # a (m, k) float32, b (k, n) float32, c (m, n) float32
    j, i = cuda.grid(2)
    if i < a.shape[0] and j < b.shape[1]:
        total = float32(0.0)
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total


def launch_register_tiled(m, n, k):
    """The grid and the block for C (m, n): ((blocks along x, along y), threads), the threads a number or (along x, along y)."""
    threads = (SIDE, SIDE)
    return ((n + SIDE - 1) // SIDE, (m + SIDE - 1) // SIDE), threads
