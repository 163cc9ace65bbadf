"""Planted races in global memory, within a block and across the blocks of a launch, and twins whose blocks keep to their own cells."""

from __future__ import annotations

import numpy as np
from numba import cuda, int32
from planted import LOST, RAW, SAME, WAR, WAW, fault, ramp, zeros

PAIR = np.dtype([("a", np.int32), ("b", np.int32)])


def pairs(n: int) -> np.ndarray:
    made = np.zeros(n, PAIR)
    made["a"], made["b"] = ramp(n), 10 * ramp(n)
    return made


# ------------------------------------------------------------------------------------------------------ stencils, in place


def two_sums(x, out):
    sums = x.copy()
    sums[1:-1] = x[:-2] + x[2:]
    return sums


@fault(WAR, array="x", block=64, args=lambda: (ramp(64),), expect=lambda x: np.append(x[1:], x[-1]))
def shift_in_place(x):
    i = cuda.grid(1)
    if i < x.size - 1:
        x[i] = x[i + 1]  # fault


@shift_in_place.twin
def shift_in_place_synced(x):
    i = cuda.grid(1)
    value = x[i]
    if i < x.size - 1:
        value = x[i + 1]
    cuda.syncthreads()
    x[i] = value


@fault(WAR, array="x", grid=4, block=32, args=lambda: (ramp(128), zeros(128)), expect=two_sums)
def stencil_across_blocks(x, out):
    """The barrier orders each block; its edge cells belong to the neighbours."""
    i = cuda.grid(1)
    total = x[i]
    if 0 < i < x.size - 1:
        total = x[i - 1] + x[i + 1]  # fault
    cuda.syncthreads()
    x[i] = total  # fault
    out[i] = total


@stencil_across_blocks.twin
def stencil_to_another_array(x, out):
    i = cuda.grid(1)
    if 0 < i < x.size - 1:
        out[i] = x[i - 1] + x[i + 1]
    else:
        out[i] = x[i]


def blurred(a, *_):
    new = a.copy()
    new[1:-1, 1:-1] = (a[:-2, 1:-1] + a[2:, 1:-1]) // 2
    return new


@fault(WAR, array="a", grid=(2, 2), block=(8, 8), args=lambda: (ramp(16, 16), zeros(16, 16)), expect=blurred)
def blur_in_place(a, out):
    x, y = cuda.grid(2)
    if 0 < x < 15 and 0 < y < 15:
        a[y, x] = (a[y - 1, x] + a[y + 1, x]) // 2  # fault
    out[y, x] = 0


@blur_in_place.twin
def blur(a, out):
    x, y = cuda.grid(2)
    if 0 < x < 15 and 0 < y < 15:
        out[y, x] = (a[y - 1, x] + a[y + 1, x]) // 2
    else:
        out[y, x] = a[y, x]


@fault(WAR, array="a", grid=(2, 2), block=(8, 8), args=lambda: (ramp(16, 16),), expect=lambda a: a.T)
def transpose_in_place(a):
    x, y = cuda.grid(2)
    a[y, x] = a[x, y]  # fault


@transpose_in_place.twin
def transpose_by_pairs(a):
    """Each pair of cells belongs to one thread."""
    x, y = cuda.grid(2)
    if x < y:
        a[y, x], a[x, y] = a[x, y], a[y, x]


@fault(WAR, array="x", block=64, args=lambda: (ramp(64),), expect=lambda x: x[::-1])
def reverse_in_place(x):
    i = cuda.grid(1)
    value = x[x.size - 1 - i]  # fault
    x[i] = value  # fault


@reverse_in_place.twin
def reverse_by_pairs(x):
    i = cuda.grid(1)
    if i < x.size // 2:
        j = x.size - 1 - i
        x[i], x[j] = x[j], x[i]


@fault(RAW, array="steps", args=lambda: (ramp(32), zeros(32), zeros(32)), expect=lambda x, steps, out: x * x[::-1])
def scratch_in_a_warp(x, steps, out):
    t = cuda.threadIdx.x
    steps[t] = x[t]  # fault
    out[t] = x[t] * steps[31 - t]  # fault


@scratch_in_a_warp.twin
def scratch_in_a_warp_synced(x, steps, out):
    """syncwarp orders global memory too."""
    t = cuda.threadIdx.x
    steps[t] = x[t]
    cuda.syncwarp()
    out[t] = x[t] * steps[31 - t]


@fault(RAW, array="steps", block=96, args=lambda: (ramp(96), zeros(96), zeros(96)), expect=lambda x, steps, out: x * x[::-1])
def scratch_in_a_block(x, steps, out):
    t = cuda.threadIdx.x
    steps[t] = x[t]  # fault
    cuda.syncwarp()
    out[t] = x[t] * steps[95 - t]  # fault


@scratch_in_a_block.twin
def scratch_in_a_block_synced(x, steps, out):
    t = cuda.threadIdx.x
    steps[t] = x[t]
    cuda.syncthreads()
    out[t] = x[t] * steps[95 - t]


@fault(WAR, array="x", grid=3, block=32, args=lambda: (ramp(96),), expect=lambda x: np.repeat(x[::32], 32) + x)
def first_of_the_block_to_all(x):
    """All read the first cell, and its own thread overwrites it."""
    i = cuda.grid(1)
    x[i] += x[i - cuda.threadIdx.x]  # fault


@first_of_the_block_to_all.twin
def first_of_the_block_to_all_synced(x):
    i = cuda.grid(1)
    first = x[i - cuda.threadIdx.x]
    cuda.syncthreads()
    x[i] += first


# -------------------------------------------------------------------------------------------------- blocks and other blocks


@fault(RAW, array="half", grid=2, block=64, args=lambda: (ramp(128), zeros(128), zeros(128)), expect=lambda x, half, out: x[::-1] // 2)
def two_phases(x, half, out):
    """syncthreads is taken for a barrier of the grid."""
    i = cuda.grid(1)
    half[i] = x[i] // 2  # fault
    cuda.syncthreads()
    out[i] = half[x.size - 1 - i]  # fault


@two_phases.twin
def two_phases_with_grid_sync(x, half, out):
    i = cuda.grid(1)
    half[i] = x[i] // 2
    cuda.cg.this_grid().sync()
    out[i] = half[x.size - 1 - i]


@fault(RAW, array="half", grid=2, block=32, args=lambda: (ramp(64), zeros(64), zeros(64)), expect=lambda x, half, out: x[::-1] // 2)
def fence_for_grid_sync(x, half, out):
    i = cuda.grid(1)
    half[i] = x[i] // 2  # fault
    cuda.threadfence()
    out[i] = half[x.size - 1 - i]  # fault


@fence_for_grid_sync.twin
def blocks_within_their_own(x, half, out):
    """The partner is in the same block."""
    i = cuda.grid(1)
    half[x.size - 1 - i] = x[i] // 2
    cuda.threadfence()
    out[x.size - 1 - i] = half[x.size - 1 - i]


def rolled(x, y):
    for _ in range(4):
        x = np.roll(x, -33)
    return x


@fault(RAW, WAR, array=("x", "y"), grid=2, block=32, args=lambda: (zeros(64), ramp(64)), expect=lambda y, x: rolled(x, y))
def ping_pong_without_grid_sync(y, x):
    i = cuda.grid(1)
    grid = cuda.cg.this_grid()
    grid.sync()
    for _ in range(2):
        y[i] = x[(i + 33) % x.size]  # fault
        cuda.syncthreads()
        x[i] = y[(i + 33) % x.size]  # fault
        cuda.syncthreads()


@ping_pong_without_grid_sync.twin
def ping_pong_with_grid_sync(y, x):
    i = cuda.grid(1)
    grid = cuda.cg.this_grid()
    for _ in range(2):
        y[i] = x[(i + 33) % x.size]
        grid.sync()
        x[i] = y[(i + 33) % x.size]
        grid.sync()


@fault(WAW, array="out", grid=3, block=34, args=lambda: (ramp(3), zeros(98)), expect=lambda rows, out: np.repeat(rows, [32, 32, 34]))
def halo_written_twice(rows, out):
    """Each block writes two cells of the next one's."""
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    out[b * 32 + t] = rows[b]  # fault


@halo_written_twice.twin
def halo_written_once(rows, out):
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if t < 32 or b == 2:
        out[b * 32 + t] = rows[b]


@fault(
    WAW,
    array="out",
    grid=(2, 2),
    block=(9, 9),
    args=lambda: (ramp(17, 17), zeros(17, 17)),
    expect=lambda a, out: a,
)
def tiles_overlap(a, out):
    """Neighbouring tiles share a row and a column, and each writes its own number there."""
    x = cuda.blockIdx.x * 8 + cuda.threadIdx.x
    y = cuda.blockIdx.y * 8 + cuda.threadIdx.y
    out[y, x] = a[y, x] + cuda.blockIdx.x + 2 * cuda.blockIdx.y  # fault


@tiles_overlap.twin
def tiles_apart(a, out):
    x = cuda.blockIdx.x * 8 + cuda.threadIdx.x
    y = cuda.blockIdx.y * 8 + cuda.threadIdx.y
    own_x = cuda.threadIdx.x < 8 or cuda.blockIdx.x == 1
    own_y = cuda.threadIdx.y < 8 or cuda.blockIdx.y == 1
    if own_x and own_y:
        out[y, x] = a[y, x]


@fault(WAW, array="out", grid=2, block=64, args=lambda: (ramp(128), zeros(1)), expect=lambda x, out: 77)
def all_threads_write(x, out):
    i = cuda.grid(1)
    if x[i] >= 77:
        out[0] = x[i]  # fault


@all_threads_write.twin
def one_thread_writes(x, out):
    i = cuda.grid(1)
    if x[i] == 77:
        out[0] = x[i]


@fault(WAW, array="out", grid=3, block=64, args=lambda: (ramp(192), zeros(64)), expect=lambda x, out: x.reshape(3, 64).sum(0))
def every_block_writes_the_same_cells(x, out):
    """threadIdx where the index in the grid is meant: no two threads of a block meet."""
    t, i = cuda.threadIdx.x, cuda.grid(1)
    out[t] = x[i]  # fault


@every_block_writes_the_same_cells.twin
def every_block_adds_to_the_same_cells(x, out):
    t, i = cuda.threadIdx.x, cuda.grid(1)
    cuda.atomic.add(out, t, x[i])


@fault(WAW, array="out", grid=2, block=32, args=lambda: (ramp(64), zeros(256)), expect=lambda x, out: np.repeat(x, 4))
def chunks_overlap(x, out):
    """One element too many in each chunk: the first of the next."""
    i = cuda.grid(1)
    for j in range(4 * i, min(4 * i + 5, out.size)):
        out[j] = x[i]  # fault


@chunks_overlap.twin
def chunks(x, out):
    i = cuda.grid(1)
    for j in range(4 * i, 4 * i + 4):
        out[j] = x[i]


@fault(WAW, array="out", grid=2, block=64, args=lambda: (ramp(256), zeros(256)), expect=lambda x, out: x + np.repeat([0, 1], 128))
def halves_overlap(x, out):
    """The second half begins 8 elements early."""
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    start, stop = (0, 128) if b == 0 else (120, 256)
    for i in range(start + t, stop, 64):
        out[i] = x[i] + b  # fault


@halves_overlap.twin
def halves(x, out):
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    start, stop = (0, 128) if b == 0 else (128, 256)
    for i in range(start + t, stop, 64):
        out[i] = x[i] + b


@fault(WAW, array="out", grid=300, block=32, args=lambda: (ramp(9600), zeros(9600)), expect=lambda x, out: x)
def blocks_far_apart(x, out):
    """Blocks 0 and 299 write the same cells, and no others do."""
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    out[b % 299 * 32 + t] = x[b * 32 + t]  # fault


@blocks_far_apart.twin
def blocks_in_reverse(x, out):
    b, t = 299 - cuda.blockIdx.x, cuda.threadIdx.x
    out[b * 32 + t] = x[b * 32 + t]


@fault(SAME, array="found", severity="warning", grid=2, block=32, args=lambda: (ramp(64), zeros(1)), expect=lambda x, found: 1)
def flag_set_by_many(x, found):
    i = cuda.grid(1)
    if x[i] % 7 == 0:
        found[0] = 1  # fault


@flag_set_by_many.twin
def flag_by_atomics(x, found):
    i = cuda.grid(1)
    if x[i] % 7 == 0:
        cuda.atomic.max(found, 0, 1)


@fault(SAME, array="n", severity="warning", grid=4, block=32, args=lambda: (ramp(128), zeros(1)), expect=lambda x, n: 128)
def size_written_by_every_block(x, n):
    if cuda.threadIdx.x == 0:
        n[0] = x.size  # fault


@size_written_by_every_block.twin
def size_written_once(x, n):
    if cuda.grid(1) == 0:
        n[0] = x.size


# ----------------------------------------------------------------------------------------------------------- lost updates


@fault(LOST, array="total", grid=2, block=64, args=lambda: (ramp(128), zeros(1)), expect=lambda x, total: x.sum())
def sum_without_atomics(x, total):
    i = cuda.grid(1)
    if i < x.size:
        total[0] += x[i]  # fault


@sum_without_atomics.twin
def sum_with_atomics(x, total):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(total, 0, x[i])


@fault(LOST, array="counter", grid=2, block=32, args=lambda: (zeros(1),), expect=lambda counter: 64)
def counter_in_two_statements(counter):
    now = counter[0]  # fault
    counter[0] = now + 1  # fault


@counter_in_two_statements.twin
def counter_by_atomics(counter):
    cuda.atomic.add(counter, 0, 1)


def scattered(index, x, out):
    return np.bincount(index, x, minlength=out.size)


@fault(LOST, array="out", block=64, args=lambda: (ramp(64) % 16, ramp(64), zeros(16)), expect=scattered)
def scatter(index, x, out):
    i = cuda.grid(1)
    out[index[i]] += x[i]  # fault


@scatter.twin
def scatter_with_atomics(index, x, out):
    i = cuda.grid(1)
    cuda.atomic.add(out, index[i], x[i])


@fault(LOST, array="out", block=64, args=lambda: (ramp(64) % 32, ramp(64), zeros(32)), expect=scattered)
def scatter_that_meets_between_warps(index, x, out):
    i = cuda.grid(1)
    out[index[i]] += x[i]  # fault


@scatter_that_meets_between_warps.twin
def scatter_that_meets_between_warps_with_atomics(index, x, out):
    i = cuda.grid(1)
    cuda.atomic.add(out, index[i], x[i])


@fault(LOST, array="out", grid=3, block=64, args=lambda: (np.arange(192) % 64, ramp(192), zeros(64)), expect=scattered)
def scatter_that_meets_between_blocks(index, x, out):
    i = cuda.grid(1)
    out[index[i]] += x[i]  # fault


@scatter_that_meets_between_blocks.twin
def scatter_that_never_meets(index, x, out):
    """Each thread gathers what belongs into its own cell."""
    i = cuda.grid(1)
    if i < out.size:
        for k in range(x.size):
            if index[k] == i:
                out[i] += x[k]


@fault(
    LOST,
    array="image",
    grid=(2, 2),
    block=(8, 8),
    args=lambda: (ramp(16, 16, dtype=np.float32), zeros(8, 8, dtype=np.float32)),
    expect=lambda weight, image: weight.reshape(8, 2, 8, 2).sum((1, 3)),
)
def splat(weight, image):
    x, y = cuda.grid(2)
    image[y // 2, x // 2] += weight[y, x]  # fault


@splat.twin
def splat_with_atomics(weight, image):
    x, y = cuda.grid(2)
    cuda.atomic.add(image, (y // 2, x // 2), weight[y, x])


@fault(LOST, array="sums", grid=(2, 1), block=(8, 8), args=lambda: (ramp(8, 16), zeros(16)), expect=lambda a, sums: a.sum(0))
def column_sums(a, sums):
    x, y = cuda.grid(2)
    sums[x] += a[y, x]  # fault


@column_sums.twin
def column_sums_by_one_thread_each(a, sums):
    x, y = cuda.grid(2)
    if y == 0:
        for row in range(a.shape[0]):
            sums[x] += a[row, x]


@fault(LOST, array="x", grid=2, block=32, args=lambda: (ramp(256),), expect=lambda x: 3 * x)
def stride_of_a_block(x):
    """Both blocks go through the whole array."""
    for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
        x[i] *= 3  # fault


@stride_of_a_block.twin
def stride_of_the_grid(x):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        x[i] *= 3


@fault(LOST, array="best", grid=2, block=32, args=lambda: (ramp(64) * 37 % 64, zeros(1)), expect=lambda x, best: x.max())
def maximum_by_hand(x, best):
    i = cuda.grid(1)
    if x[i] > best[0]:  # fault
        best[0] = x[i]  # fault


@maximum_by_hand.twin
def maximum_by_atomics(x, best):
    cuda.atomic.max(best, 0, x[cuda.grid(1)])


# ---------------------------------------------------------------------------------------------------- atomics, fences, locks


@fault(WAW, array="total", grid=3, block=32, args=lambda: (ramp(96), zeros(1)), expect=lambda x, total: x.sum())
def zeroed_by_the_first_thread(x, total):
    """Whoever comes before thread 0 adds in vain."""
    i = cuda.grid(1)
    if i == 0:
        total[0] = 0  # fault
    cuda.atomic.add(total, 0, x[i])  # fault


@zeroed_by_the_first_thread.twin
def zeroed_by_the_host(x, total):
    cuda.atomic.add(total, 0, x[cuda.grid(1)])


@fault(RAW, array="total", grid=2, block=32, args=lambda: (ramp(64), zeros(1), zeros(1)), expect=lambda x, total, out: x.sum())
def read_after_atomics_of_other_blocks(x, total, out):
    i = cuda.grid(1)
    cuda.atomic.add(total, 0, x[i])  # fault
    cuda.syncthreads()
    if i == x.size - 1:
        out[0] = total[0]  # fault


@read_after_atomics_of_other_blocks.twin
def read_after_grid_sync(x, total, out):
    i = cuda.grid(1)
    cuda.atomic.add(total, 0, x[i])
    cuda.cg.this_grid().sync()
    if i == x.size - 1:
        out[0] = total[0]


@fault(RAW, array="bins", block=64, args=lambda: (ramp(64) % 8, zeros(8), zeros(8)), expect=lambda x, bins, out: [8] * 8)
def read_after_atomics_of_the_block(x, bins, out):
    t = cuda.threadIdx.x
    cuda.atomic.add(bins, x[t], 1)  # fault
    if t < 8:
        out[t] = bins[t]  # fault


@read_after_atomics_of_the_block.twin
def read_after_atomics_of_the_block_synced(x, bins, out):
    t = cuda.threadIdx.x
    cuda.atomic.add(bins, x[t], 1)
    cuda.syncthreads()
    if t < 8:
        out[t] = bins[t]


def block_sums():
    return ramp(4, 32), zeros(4), zeros(1), zeros(1)


@fault(RAW, array="partial", grid=4, block=32, args=block_sums, expect=lambda x, partial, arrived, out: x.sum())
def last_block_without_fence(x, partial, arrived, out):
    """The ticket may be seen before the partial sum."""
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if t == 0:
        total = 0
        for k in range(32):
            total += x[b, k]
        partial[b] = total  # fault
        if cuda.atomic.add(arrived, 0, 1) == cuda.gridDim.x - 1:
            for k in range(cuda.gridDim.x):
                out[0] += partial[k]  # fault


@last_block_without_fence.twin
def last_block_with_fence(x, partial, arrived, out):
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if t == 0:
        total = 0
        for k in range(32):
            total += x[b, k]
        partial[b] = total
        cuda.threadfence()
        if cuda.atomic.add(arrived, 0, 1) == cuda.gridDim.x - 1:
            for k in range(cuda.gridDim.x):
                out[0] += partial[k]


@fault(RAW, array="partial", grid=4, block=32, args=block_sums, expect=lambda x, partial, arrived, out: x.sum())
def whole_last_block_without_fence(x, partial, arrived, out):
    """All threads of the last block read, behind a barrier: what thread 0 was told holds for them."""
    last = cuda.shared.array(1, int32)
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if t == 0:
        total = 0
        for k in range(32):
            total += x[b, k]
        partial[b] = total  # fault
        last[0] = cuda.atomic.add(arrived, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and t < cuda.gridDim.x:
        cuda.atomic.add(out, 0, partial[t])  # fault


@whole_last_block_without_fence.twin
def whole_last_block_with_fence(x, partial, arrived, out):
    last = cuda.shared.array(1, int32)
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if t == 0:
        total = 0
        for k in range(32):
            total += x[b, k]
        partial[b] = total
        cuda.threadfence()
        last[0] = cuda.atomic.add(arrived, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and t < cuda.gridDim.x:
        cuda.atomic.add(out, 0, partial[t])


@fault(RAW, array="partial", grid=4, block=32, args=block_sums, expect=lambda x, partial, arrived, out: x.sum())
def last_block_with_fence_of_the_block(x, partial, arrived, out):
    """threadfence_block speaks to the threads of one block only."""
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if t == 0:
        partial[b] = x[b, 0]  # fault
        cuda.threadfence_block()
        if cuda.atomic.add(arrived, 0, 1) == cuda.gridDim.x - 1:
            for k in range(cuda.gridDim.x):
                out[0] += partial[k]  # fault


@last_block_with_fence_of_the_block.twin
def last_block_with_fence_of_the_grid(x, partial, arrived, out):
    """Every thread adds to its block's sum first."""
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    cuda.atomic.add(partial, b, x[b, t])
    cuda.syncthreads()
    if t == 0:
        cuda.threadfence()
        if cuda.atomic.add(arrived, 0, 1) == cuda.gridDim.x - 1:
            for k in range(cuda.gridDim.x):
                out[0] += partial[k]


@fault(RAW, array="partial", grid=4, block=32, args=block_sums, expect=lambda x, partial, arrived, out: x.sum())
def block_of_highest_index_for_the_last(x, partial, arrived, out):
    """The block of the highest index need not be the last to run."""
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if t == 0:
        total = 0
        for k in range(32):
            total += x[b, k]
        partial[b] = total  # fault
        cuda.threadfence()
        if b == cuda.gridDim.x - 1:
            for k in range(cuda.gridDim.x):
                out[0] += partial[k]  # fault


@block_of_highest_index_for_the_last.twin
def every_thread_of_the_last_block_fences(x, partial, arrived, out):
    """The sums come from all threads; each fences before the barrier, and thread 0 draws the ticket."""
    last = cuda.shared.array(1, int32)
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    cuda.atomic.add(partial, b, x[b, t])
    cuda.threadfence()
    cuda.syncthreads()
    if t == 0:
        last[0] = cuda.atomic.add(arrived, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and t == 0:
        for k in range(cuda.gridDim.x):
            out[0] += partial[k]


@fault(LOST, array="counter", grid=4, block=32, args=lambda: (zeros(1), zeros(1)), expect=lambda lock, counter: 128)
def lock_without_fence(lock, counter):
    done = False
    while not done:
        if cuda.atomic.cas(lock, 0, 0, 1) == 0:
            counter[0] += 1  # fault
            cuda.atomic.exch(lock, 0, 0)
            done = True


@lock_without_fence.twin
def lock_with_fences(lock, counter):
    done = False
    while not done:
        if cuda.atomic.cas(lock, 0, 0, 1) == 0:
            cuda.threadfence()
            counter[0] += 1
            cuda.threadfence()
            cuda.atomic.exch(lock, 0, 0)
            done = True


@fault(RAW, array="data", grid=2, block=32, args=lambda: (zeros(1), zeros(32), zeros(32)), expect=lambda flag, data, out: 5 * ramp(32))
def message_without_fence(flag, data, out):
    """Block 0 raises a flag, and block 1 waits for it."""
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if b == 0:
        data[t] = 5 * (t + 1)  # fault
        cuda.syncthreads()
        if t == 0:
            cuda.atomic.exch(flag, 0, 1)
    else:
        if t == 0:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
        cuda.syncthreads()
        out[t] = data[t]  # fault


@message_without_fence.twin
def message_with_fence(flag, data, out):
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if b == 0:
        data[t] = 5 * (t + 1)
        cuda.threadfence()
        cuda.syncthreads()
        if t == 0:
            cuda.atomic.exch(flag, 0, 1)
    else:
        if t == 0:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
            cuda.threadfence()
        cuda.syncthreads()
        out[t] = data[t]


# ------------------------------------------------------------------------------------------------------------------- types


@fault(WAR, array="x", args=lambda: (ramp(32, dtype=np.int8),), expect=lambda x: x + 1)
def bytes_of_a_neighbour(x):
    i = cuda.grid(1)
    x[i] = x[i ^ 1] + 1  # fault


@bytes_of_a_neighbour.twin
def bytes_of_its_own(x):
    i = cuda.grid(1)
    x[i] = x[i] + 1


@fault(WAR, array="z", block=64, args=lambda: (ramp(64, dtype=np.complex64),), expect=lambda z: z * z[::-1])
def complex_in_place(z):
    i = cuda.grid(1)
    z[i] = z[i] * z[63 - i]  # fault


@complex_in_place.twin
def complex_in_place_synced(z):
    i = cuda.grid(1)
    product = z[i] * z[63 - i]
    cuda.syncthreads()
    z[i] = product


@fault(
    WAR,
    array="rows",
    block=64,
    args=lambda: (pairs(64), zeros(64)),
    expect=lambda rows, out: rows["b"],
)
def same_field_of_another(rows, out):
    i = cuda.grid(1)
    rows[i].a = rows[63 - i].a  # fault
    out[i] = rows[i].b


@same_field_of_another.twin
def different_fields(rows, out):
    """One thread writes a field of a record while another reads its other field."""
    i = cuda.grid(1)
    rows[63 - i].a = 0
    out[i] = rows[i].b


@fault(
    WAW, array="out", grid=2, block=16, args=lambda: (ramp(32, dtype=np.float64), zeros(8, dtype=np.float64)), expect=lambda x, out: x[::4]
)
def float64_written_by_four(x, out):
    i = cuda.grid(1)
    out[i // 4] = x[i]  # fault


@float64_written_by_four.twin
def float64_written_by_one_of_four(x, out):
    i = cuda.grid(1)
    if i % 4 == 0:
        out[i // 4] = x[i]
