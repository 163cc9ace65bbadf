"""Exercise 05b: a histogram, without a queue.

Goal
    `histogram` counts how often each value 0 .. bins - 1 stands in `values`, and adds that to `counts`. Other values, negative ones
    too, count nowhere. It is right. But each value costs an atomic addition in global memory. Let blocks count for themselves first.

Requirements
    - per block, at most as many global atomics as there are bins (counted on 2**20 values and 64 bins)
    - and in all no more than one for every 8 values: a block must count enough to be worth its delivery
    - enough blocks for a GPU: at least 108
    - every value read once, side by side
    - right for any number of values, whatever they are, and for 1 to 256 bins; in bounds, without a race, in one launch;
      `counts` keeps what it held before
    Change the kernel and `launch` as you like; keep their names and their parameters.

Hints
    There are three, each plainer than the last: under the Score button in lesson 05, or `solcourse check ex05b --hint 1`.
"""

### BEGIN SOLUTION
from numba import cuda, int32

### STUB
# from numba import cuda
### END SOLUTION

THREADS = 256
MOST_BINS = 256


@cuda.jit
def histogram(values, counts):  # values (n,) int32, counts (bins,) int32
    ### BEGIN SOLUTION
    private = cuda.shared.array(MOST_BINS, int32)
    for b in range(cuda.threadIdx.x, counts.size, cuda.blockDim.x):
        private[b] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        value = values[i]
        if value >= 0 and value < counts.size:
            cuda.atomic.add(private, value, 1)
    cuda.syncthreads()
    for b in range(cuda.threadIdx.x, counts.size, cuda.blockDim.x):
        cuda.atomic.add(counts, b, private[b])
    ### STUB
    # i = cuda.grid(1)
    # if i < values.size and 0 <= values[i] < counts.size:
    #     cuda.atomic.add(counts, values[i], 1)
    ### END SOLUTION


def launch(n, bins):
    """The grid and the block for n values: blocks, threads."""
    ### BEGIN SOLUTION
    blocks = min((n + 16 * THREADS - 1) // (16 * THREADS), 864)
    ### STUB
    # blocks = (n + THREADS - 1) // THREADS
    ### END SOLUTION
    return blocks, THREADS


### BEGIN HIDDEN TESTS
import numpy as np  # noqa: E402

from solcourse.grading import Exercise, blocks, bytes_moved, per_block, sectors  # noqa: E402
from solcourse.work import Work  # noqa: E402


def arguments(n, bins, rng):
    """One value in three lies outside, on either side, a few as far as can be. Counts that are not 0: they must be added to."""
    outside = bins // 4 + 1
    values = rng.integers(-outside, bins + outside, n).astype(np.int32)
    counts = rng.integers(1, 100, bins).astype(np.int32)
    values[rng.choice(n, n // 50, replace=False)] = rng.choice(np.array([-(2**31), 2**31 - 1], np.int32), n // 50)
    return {"values": values, "counts": counts}


def reference(values, counts):
    inside = values[(values >= 0) & (values < counts.size)]
    return {"counts": counts + np.bincount(inside, minlength=counts.size).astype(np.int32)}


def gates(n, bins):
    return (
        per_block(
            "global atomics",
            lambda counts: counts.global_atomic.bytes / 4,
            at_most=bins,
            advice="A block has no more to say than one number for each bin. Who adds to global memory more often, at this line?",
        ),
        bytes_moved("global_atomic", at_most=4 * n // 8),
        blocks(at_least=108),
        bytes_moved("global_load", at_least=4 * n, at_most=4 * n * 6 // 5),
        sectors("global_load", at_least=4 * n // 32, at_most=4 * n // 32 * 6 // 5),
    )


EXERCISE = Exercise(
    kernel="histogram",
    arguments=arguments,
    outputs=("counts",),
    accumulators=("counts",),
    reference=reference,
    sizes=((1, 1), (31, 16), (257, 64), (1000, 100), (4099, 256), (5001, 7)),
    gate_size=(2**20, 64),
    gates=gates,
    work=lambda n, bins: Work.read("values", 4 * n) + Work.read("counts", 4 * bins) + Work.write("counts", 4 * bins),
    hints=(
        "Two threads of one block that see the same value wait for each other at the far end of the chip. Which memory is nearer, and "
        "shared by just these threads?",
        "Three phases with a barrier between them: set the block's own counters to zero, count into them, deliver them. All counters "
        "belong to all threads, so the first and the last phase are loops over bins, a thread taking every 256th. A value outside must "
        "not reach any counter.",
        "Zero `private[b]` for b from threadIdx.x up to the number of bins in steps of blockDim.x; let the grid stride over the values "
        "with cuda.atomic.add(private, value, 1); then add private[b] to the result for the same b. Let `launch` give each thread some "
        "16 values.",
    ),
    after="Lanes of a warp that see the same value still wait for each other, in shared memory. "
    "The lesson's histogram with a copy per lane removes that, too.",
)
### END HIDDEN TESTS
