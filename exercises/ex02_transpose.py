"""Exercise 02: turn the corner.

Goal
    `transpose` writes out[j, i] = a[i, j] for a matrix of any size. It is right. It reads along the rows of `a`, 4 sectors per
    request, and writes down the columns of `out`: there each of the 32 lanes opens a sector of its own. Make both sides 4,
    with what lies between them free of bank conflicts.

Requirements
    - 4 sectors per request, for the loads and for the stores (counted on 2048 x 1024)
    - 0 bank conflicts, in loads and in stores of shared memory
    - one pass: every element read once, every element written once, in one launch
    - right for any number of rows and columns, in bounds, without a race
    Change the kernel and `launch` as you like; keep their names and their parameters.

Hints
    There are three, each plainer than the last: under the Score button in lesson 02, or `solcourse check ex02 --hint 1`.
"""

from numba import cuda


@cuda.jit
def transpose(a, out):  # a (rows, columns) float32, out (columns, rows) float32
    column = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    row = cuda.blockIdx.y * 32 + cuda.threadIdx.y
    for k in range(0, 32, 8):  # 8 threads along y: each takes 4 of 32 rows
        if row + k < a.shape[0] and column < a.shape[1]:
            out[column, row + k] = a[row + k, column]


def launch(rows, columns):
    """The grid and the block for a matrix of rows x columns: ((blocks along x, along y), (threads along x, along y))."""
    return ((columns + 31) // 32, (rows + 31) // 32), (32, 8)
