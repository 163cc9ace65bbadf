"""Exercise 05: one sum, without a queue.

Goal
    `squared_distance` adds to total[0] the sum of (a[i] - b[i]) ** 2: how far apart two vectors are. It is right at every size.
    But every thread carries its own number to the one address that all others want too. Let each block agree on one number first.

Requirements
    - 1 atomic addition to global memory per block (counted on 2**20 elements), and in all no more than one for every 256 elements
    - at most 1 divergent branch per block: lanes retire by whole warps; only whoever delivers the sum may be alone
    - enough blocks for a GPU: at least 108, one for each SM of an A100
    - the same work: every element read once, side by side, and 3 float32 FLOPs on each
    - right for any number of elements, in bounds, without a race, in one launch; total[0] keeps what it held before
    Change the kernel and `launch` as you like; keep their names and their parameters.

Hints
    There are three, each plainer than the last: under the Score button in lesson 05, or `solcourse check ex05 --hint 1`.
"""

### BEGIN SOLUTION
from numba import cuda, float32

### STUB
# from numba import cuda
### END SOLUTION

THREADS = 256


@cuda.jit
def squared_distance(a, b, total):  # a, b (n,) float32, total (1,) float32
    ### BEGIN SOLUTION
    cache = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    mine = float32(0.0)
    for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
        apart = a[i] - b[i]
        mine += apart * apart
    cache[t] = mine
    cuda.syncthreads()
    if t < 32:
        for other in range(32, THREADS, 32):
            mine += cache[t + other]
        step = 16
        while step > 0:
            mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, step)
            step //= 2
        if t == 0:
            cuda.atomic.add(total, 0, mine)
    ### STUB
    # i = cuda.grid(1)
    # if i < a.size:
    #     difference = a[i] - b[i]
    #     cuda.atomic.add(total, 0, difference * difference)
    ### END SOLUTION


def launch(n):
    """The grid and the block for n elements: blocks, threads."""
    ### BEGIN SOLUTION
    blocks = min((n + 8 * THREADS - 1) // (8 * THREADS), 864)
    ### STUB
    # blocks = (n + THREADS - 1) // THREADS
    ### END SOLUTION
    return blocks, THREADS


### BEGIN HIDDEN TESTS
import numpy as np  # noqa: E402

from solcourse.grading import Exercise, GateSpec, blocks, bytes_moved, flops, per_block, sectors  # noqa: E402
from solcourse.work import Work  # noqa: E402


def arguments(n, rng):
    """total holds something: a sum that starts at 0 by itself would lose it. No square is tiny: the stub adds a million one by one, and
    float32 rounds tiny ones away."""
    return {
        "a": rng.random(n, dtype=np.float32),
        "b": 2 + rng.random(n, dtype=np.float32),
        "total": rng.uniform(1, 2, 1).astype(np.float32),
    }


def reference(a, b, total):
    return {"total": (total + np.sum((a.astype(np.float64) - b) ** 2)).astype(np.float32)}


def gates(n):
    return (
        # exactly one: blocks that do nothing would make the numbers per block look better
        GateSpec(
            "global atomics per block",
            lambda run: run.counts.global_atomic.bytes / 4 / max(1, run.blocks),
            1,
            1,
            "Some blocks deliver nothing. A block without elements is none too few: start only those that have some.",
            "Many threads of a block add to global memory. Let them add up what they have among themselves, in shared memory or by "
            "shuffles, and send one of them.",
            lambda counts: counts.global_atomic.bytes,
        ),
        per_block(
            "divergent branches",
            lambda counts: counts.divergent_branches,
            at_most=1,
            advice="In some warp, some lanes go one way and some the other. A branch that whole warps take, `t < 32` or `t < 64`, splits "
            "none; one that picks a lane from every warp splits them all. A choice that loads, `cache[t] if t < 8 else 0`, "
            "is a branch, too.",
        ),
        bytes_moved("global_atomic", at_most=4 * n // 256),
        blocks(at_least=108),
        # a design may start with its first element instead of 0, which saves an addition for each thread
        flops("fp32", at_least=3 * n - n // 4),
        bytes_moved("global_load", at_least=8 * n, at_most=8 * n * 6 // 5),
        sectors("global_load", at_least=8 * n // 32, at_most=8 * n // 32 * 6 // 5),
    )


EXERCISE = Exercise(
    kernel="squared_distance",
    arguments=arguments,
    outputs=("total",),
    accumulators=("total",),
    reference=reference,
    sizes=(1, 31, 33, 257, 1000, 4099),
    gate_size=2**20,
    gates=gates,
    work=lambda n: Work.read("a", 4 * n) + Work.read("b", 4 * n) + Work.write("total", 4) + Work.flop("fp32", 3 * n),
    rtol=1e-4,
    hints=(
        "Follow one block of 256 threads. How many of its numbers have to leave it? Where could the others have met before? "
        "Shared memory belongs to a block, and lanes of one warp can even hand registers to each other.",
        "Any tree of the lesson brings a block's numbers together. Watch its branch once fewer threads work than a warp has lanes, and "
        "the branch that picks one lane of every warp: both split warps. What if all 32 lanes went on to the end?",
        "Every thread leaves its sum in a shared array of 256. After the barrier warp 0 stays: each of its lanes adds the seven words that "
        "lie 32, 64 ... 224 further on, then five shuffles bring 32 sums to lane 0, which makes the atomic addition. For fewer atomics, "
        "let a grid of at most 864 blocks stride over the data.",
    ),
    after="One divergent branch per block. The lesson's last kernel has ten and is as fast: with much data, memory binds both.",
)
### END HIDDEN TESTS
