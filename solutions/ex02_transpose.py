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

### BEGIN SOLUTION
from numba import cuda, float32, uint32  # noqa: I001
### STUB
# from numba import cuda
### END SOLUTION


@cuda.jit
def transpose(a, out):  # a (rows, columns) float32, out (columns, rows) float32
    ### BEGIN SOLUTION
    tile = cuda.shared.array((32, 33), float32)  # 33: element (r, c) lies in bank (r + c) % 32, a column in all 32
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    left, top = uint32(cuda.blockIdx.x * 32), uint32(cuda.blockIdx.y * 32)
    for k in range(0, 32, 8):
        if top + ty + k < a.shape[0] and left + tx < a.shape[1]:
            tile[ty + k, tx] = a[top + ty + k, left + tx]
    cuda.syncthreads()
    for k in range(0, 32, 8):
        if left + ty + k < out.shape[0] and top + tx < out.shape[1]:
            out[left + ty + k, top + tx] = tile[tx, ty + k]
    ### STUB
    # column = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    # row = cuda.blockIdx.y * 32 + cuda.threadIdx.y
    # for k in range(0, 32, 8):  # 8 threads along y: each takes 4 of 32 rows
    #     if row + k < a.shape[0] and column < a.shape[1]:
    #         out[column, row + k] = a[row + k, column]
    ### END SOLUTION


def launch(rows, columns):
    """The grid and the block for a matrix of rows x columns: ((blocks along x, along y), (threads along x, along y))."""
    return ((columns + 31) // 32, (rows + 31) // 32), (32, 8)


### BEGIN HIDDEN TESTS
import numpy as np  # noqa: E402

from solcourse.grading import Exercise, bank_conflicts, bytes_moved, sectors_per_request  # noqa: E402
from solcourse.work import Work  # noqa: E402


def arguments(rows, columns, rng):
    return {"a": rng.random((rows, columns), dtype=np.float32), "out": np.empty((columns, rows), np.float32)}


def reference(a, out):
    return {"out": a.T}


def gates(rows, columns):
    return (
        sectors_per_request("global_load", 4),
        sectors_per_request("global_store", 4),
        bank_conflicts("shared_load"),
        bank_conflicts("shared_store"),
        bank_conflicts("shared_atomic"),  # adding into a tile of zeros is a store, too
        bytes_moved("global_load", exactly=4 * rows * columns),
        bytes_moved("global_store", exactly=4 * rows * columns),
    )


EXERCISE = Exercise(
    kernel="transpose",
    arguments=arguments,
    outputs=("out",),
    reference=reference,
    sizes=((1, 1), (32, 64), (31, 33), (1, 77), (100, 257), (130, 64)),
    gate_size=(2048, 1024),
    gates=gates,
    work=lambda rows, columns: Work.read("a", 4 * rows * columns) + Work.write("out", 4 * rows * columns),
    hints=(
        "Swapping the two sides moves the jump from the stores to the loads and keeps it. A warp has to read along a row of `a`, and write "
        "along a row of `out`: other elements than those it has read. So the elements must wait, between the two, in a place that every "
        "thread of the block can reach. How many elements must a block hold so that both sides have full rows of 32?",
        "Keep a square of 32 x 32 in shared memory. Rows of `a` become rows of the square; then all threads wait for each other, whether "
        "they had an element to bring or not; then each warp takes a column. The square of block (x, y) comes from column 32 x and row "
        "32 y of `a`. Where in `out` does it belong, and which of the two sizes does each guard have to ask for? And: a column whose "
        "elements lie 32 words apart has all of them in one bank.",
        "With tx, ty for threadIdx and left, top for 32 times blockIdx.x and .y: `tile = cuda.shared.array((32, 33), float32)`; first "
        "`tile[ty + k, tx] = a[top + ty + k, left + tx]` for k = 0, 8, 16, 24, guarded by the shape of `a`; `cuda.syncthreads()` outside "
        "of every if; then `out[left + ty + k, top + tx] = tile[tx, ty + k]`, guarded by the shape of `out`.",
    ),
    after="Both sides in full sectors, and the 32 passes gone. Is your score nearer to 0.5 than to 0.6? Then look at the indices: "
    "unsigned, they cost half the instructions. Lesson 03: a tile whose elements are read not once but 32 times.",
)
### END HIDDEN TESTS
