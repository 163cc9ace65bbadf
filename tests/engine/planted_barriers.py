"""Planted barriers that some threads pass by, and shuffles, votes and masks of lanes that are not there; legal early returns as twins."""

from __future__ import annotations

import numpy as np
from numba import cuda, int32
from planted import FULL, fault, ramp, zeros

BARRIER, DEADLOCK = "divergent_barrier", "deadlock"
INACTIVE, NOT_IN_MASK = "inactive_lane", "lane_not_in_mask"


def io(n: int):
    return lambda: (ramp(n), zeros(n))


# -------------------------------------------------------------------------------------------------------------- in branches


@fault(BARRIER, block=64, args=io(64), expect=lambda x, out: x.reshape(32, 2)[:, ::-1].ravel())
def barrier_of_even_threads(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[t ^ 1]
    if t % 2 == 0:
        cuda.syncthreads()  # fault


@barrier_of_even_threads.twin
def barrier_of_all_threads(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    if t % 2 == 0:
        s[t] = x[t]
    cuda.syncthreads()
    if t % 2 == 1:
        s[t] = x[t]
        out[t] = s[t - 1]
    cuda.syncthreads()
    if t % 2 == 0:
        out[t] = s[t + 1]


@fault(BARRIER, grid=2, block=64, args=io(128), expect=lambda x, out: x)
def barrier_of_one_warp(x, out):
    """All lanes of the warp are there, and the other warp is not."""
    t, i = cuda.threadIdx.x, cuda.grid(1)
    out[i] = x[i]
    if t < 32:
        cuda.syncthreads()  # fault


@barrier_of_one_warp.twin
def barrier_of_one_block(x, out):
    """Which way to go is the same for the whole block."""
    i = cuda.grid(1)
    out[i] = x[i]
    if cuda.blockIdx.x == 1:
        cuda.syncthreads()


@fault(BARRIER, grid=2, block=64, args=io(100), expect=lambda x, out: np.concatenate([x[:64][::-1], x[64:] * 0]))
def barrier_within_the_guard(x, out):
    """The threads of the last block beyond the array never come."""
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.size:
        s[t] = x[i]
        cuda.syncthreads()  # fault
        out[i] = s[63 - t] if cuda.blockIdx.x == 0 else 0


@barrier_within_the_guard.twin
def barrier_after_the_guard(x, out):
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.size:
        s[t] = x[i]
    cuda.syncthreads()
    if i < x.size:
        out[i] = s[63 - t] if cuda.blockIdx.x == 0 else 0


@fault(BARRIER, block=(8, 8), args=lambda: (ramp(8, 8), zeros(8, 8)), expect=lambda a, out: np.maximum(a, a.T))
def barrier_below_the_diagonal(a, out):
    tile = cuda.shared.array((8, 8), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    tile[y, x] = a[y, x]
    cuda.syncthreads()
    out[y, x] = max(tile[y, x], tile[x, y])
    if x < y:
        cuda.syncthreads()  # fault


@barrier_below_the_diagonal.twin
def branch_between_barriers(a, out):
    tile = cuda.shared.array((8, 8), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    tile[y, x] = a[y, x]
    cuda.syncthreads()
    if x < y:
        tile[y, x] = max(tile[y, x], tile[x, y])
    cuda.syncthreads()
    out[y, x] = tile[y, x] if x <= y else tile[x, y]


@fault(BARRIER, block=64, args=io(64), expect=lambda x, out: 32)
def counting_barrier_in_a_branch(x, out):
    t = cuda.threadIdx.x
    large = 0
    if t >= 16:
        large = cuda.syncthreads_count(1 if x[t] > 32 else 0)  # fault
    out[t] = large


@counting_barrier_in_a_branch.twin
def counting_barrier(x, out):
    t = cuda.threadIdx.x
    out[t] = cuda.syncthreads_count(1 if x[t] > 32 else 0)


@fault(BARRIER, block=96, args=io(96), expect=lambda x, out: 1)
def voting_barrier_in_a_branch(x, out):
    t = cuda.threadIdx.x
    any_large = 0
    if x[t] % 2 == 1:
        any_large = 1 if cuda.syncthreads_or(1 if x[t] > 90 else 0) else 0  # fault
    out[t] = any_large


@voting_barrier_in_a_branch.twin
def voting_barrier(x, out):
    t = cuda.threadIdx.x
    out[t] = 1 if cuda.syncthreads_or(1 if x[t] > 90 else 0) else 0


@cuda.jit(device=True)
def swapped_with_neighbour(s, t):
    cuda.syncthreads()  # fault
    return s[t ^ 1]


@fault(
    BARRIER,
    block=64,
    helpers=(swapped_with_neighbour,),
    args=io(64),
    expect=lambda x, out: np.where(x > 32, x.reshape(32, 2)[:, ::-1].ravel(), 0),
)
def barrier_of_a_device_function(x, out):
    """Nobody sees the barrier at the call."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if x[t] > 32:
        out[t] = swapped_with_neighbour(s, t)
    else:
        out[t] = 0


@barrier_of_a_device_function.twin
def device_function_called_by_all(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    swapped = swapped_with_neighbour(s, t)
    if x[t] > 32:
        out[t] = swapped
    else:
        out[t] = 0


@fault(BARRIER, severity="warning", block=64, args=io(64), expect=lambda x, out: x[::-1])
def a_barrier_in_each_branch(x, out):
    """The hardware counts arrivals, wherever they are; the language promises nothing."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = x[t]
        cuda.syncthreads()  # fault
    else:
        s[t] = x[t]
        cuda.syncthreads()  # fault
    out[t] = s[63 - t]


@a_barrier_in_each_branch.twin
def a_barrier_after_both_branches(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = x[t]
    else:
        s[t] = 1 * x[t]
    cuda.syncthreads()
    out[t] = s[63 - t]


@fault(BARRIER, severity="warning", grid=2, block=64, args=io(128), expect=lambda x, out: np.where(x % 2 == 1, x + 1, x - 1))
def a_barrier_for_odd_and_one_for_even_threads(x, out):
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]
    if t % 2 == 0:
        cuda.syncthreads()  # fault
        out[i] = s[t + 1]
    else:
        cuda.syncthreads()  # fault
        out[i] = s[t - 1]


@a_barrier_for_odd_and_one_for_even_threads.twin
def a_barrier_for_odd_and_one_for_even_blocks(x, out):
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]
    if cuda.blockIdx.x % 2 == 0:
        cuda.syncthreads()
        out[i] = s[t ^ 1]
    else:
        cuda.syncthreads()
        out[i] = s[t ^ 1]


# ----------------------------------------------------------------------------------------------------------------- in loops


def rotated_three_times(x, out):
    return np.roll(x, -3)


@fault(BARRIER, block=64, args=io(64), expect=rotated_three_times)
def trips_that_differ_by_lane(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    for _ in range(1 + t % 3):
        cuda.syncthreads()  # fault
    out[t] = s[(t + 3) % 64]


@trips_that_differ_by_lane.twin
def trips_of_the_block(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    for _ in range(3):
        cuda.syncthreads()
        value = s[(t + 1) % 64]
        cuda.syncthreads()
        s[t] = value
    out[t] = s[t]


@fault(BARRIER, block=96, args=io(96), expect=lambda x, out: 6 * x)
def trips_that_differ_by_warp(x, out):
    t = cuda.threadIdx.x
    total = 0
    for k in range(1 + t // 32):
        total += (k + 1) * x[t]
        cuda.syncthreads()  # fault
    out[t] = total


@trips_that_differ_by_warp.twin
def work_that_differs_by_warp(x, out):
    t = cuda.threadIdx.x
    total = 0
    for k in range(3):
        total += (k + 1) * x[t]
        for _ in range(t // 32):
            total += 0
        cuda.syncthreads()
    out[t] = total


@fault(BARRIER, block=64, args=lambda: (ramp(100), zeros(100)), expect=lambda x, out: x)
def stride_loop_with_a_barrier(x, out):
    """36 threads make two trips, the others one."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    for i in range(t, x.size, 64):
        s[t] = x[i]
        cuda.syncthreads()  # fault
        out[i] = s[t]


@stride_loop_with_a_barrier.twin
def stride_loop_of_whole_tiles(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    for first in range(0, x.size, 64):
        if first + t < x.size:
            s[63 - t] = x[first + t]
        cuda.syncthreads()
        if first + t < x.size:
            out[first + t] = s[63 - t]
        cuda.syncthreads()


@fault(BARRIER, block=64, args=lambda: (ramp(64) % 4, zeros(64)), expect=lambda x, out: x)
def leaving_a_loop_one_by_one(x, out):
    t = cuda.threadIdx.x
    left = x[t]
    rounds = 0
    while True:
        if left == 0:
            break
        left -= 1
        rounds += 1
        cuda.syncthreads()  # fault
    out[t] = rounds


@leaving_a_loop_one_by_one.twin
def leaving_a_loop_together(x, out):
    t = cuda.threadIdx.x
    left = x[t]
    rounds = 0
    while cuda.syncthreads_or(1 if left > 0 else 0):
        if left > 0:
            left -= 1
            rounds += 1
    out[t] = rounds


@fault(BARRIER, block=64, args=lambda: (ramp(3, 64) % 5 - 1, zeros(64)), expect=lambda x, out: np.where(x >= 0, x, 0).sum(0))
def continue_past_a_barrier(x, out):
    t = cuda.threadIdx.x
    total = 0
    for k in range(3):
        if x[k, t] < 0:
            continue
        total += x[k, t]
        cuda.syncthreads()  # fault
    out[t] = total


@continue_past_a_barrier.twin
def no_continue_past_a_barrier(x, out):
    t = cuda.threadIdx.x
    total = 0
    for k in range(3):
        if x[k, t] >= 0:
            total += x[k, t]
        cuda.syncthreads()
    out[t] = total


# ----------------------------------------------------------------------------------------------- returns, grids, dead locks


@fault(BARRIER, block=64, args=lambda: (ramp(64), zeros(1)), expect=lambda x, out: x[:40].sum())
def barriers_of_the_first_threads(x, out):
    """The threads that have no more to do pass by the barrier in the branch, and end."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 40:
        for _ in range(2):
            cuda.syncthreads()  # fault
        if t == 0:
            for k in range(40):
                out[0] += s[k]


@barriers_of_the_first_threads.twin
def return_before_barriers(x, out):
    """Threads that have returned are not waited for."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    if t >= 40:
        return
    s[t] = x[t]
    cuda.syncthreads()
    if t == 0:
        for k in range(40):
            out[0] += s[k]


@fault(BARRIER, grid=3, block=64, args=lambda: (ramp(150), zeros(150)), expect=lambda x, out: np.where(x <= 128, x, 0))
def some_pass_by_and_work_on(x, out):
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.size and t < 50:
        cuda.syncthreads()  # fault
    if i < x.size:
        out[i] = x[i]


@some_pass_by_and_work_on.twin
def blocks_return_as_a_whole(x, out):
    """The last block leaves before the barrier."""
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if (cuda.blockIdx.x + 1) * 64 > x.size:
        return
    s[63 - t] = x[i]
    cuda.syncthreads()
    out[i] = s[63 - t]


@fault(DEADLOCK, grid=3, block=32, args=io(96), expect=lambda x, out: x[::-1])
def grid_barrier_of_some_blocks(x, out):
    i = cuda.grid(1)
    out[x.size - 1 - i] = x[i]
    if cuda.blockIdx.x > 0:
        cuda.cg.this_grid().sync()  # fault


@grid_barrier_of_some_blocks.twin
def grid_barrier_of_all_blocks(x, out):
    i = cuda.grid(1)
    if cuda.blockIdx.x > 0:
        out[x.size - 1 - i] = x[i]
    cuda.cg.this_grid().sync()
    if cuda.blockIdx.x == 0:
        out[x.size - 1 - i] = x[i]


@fault(DEADLOCK, block=64, args=io(64), expect=lambda x, out: np.where(x <= 32, x + 32, 0))
def each_warp_waits_for_the_other(x, out):
    """The first waits for a flag that the second raises behind the barrier, where it waits for the first."""
    ready = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    out[t] = 0
    if t == 0:
        ready[0] = 0
    cuda.syncthreads()
    if t < 32:
        while cuda.atomic.add(ready, 0, 0) == 0:  # fault
            pass
        out[t] = x[t + 32]
    cuda.syncthreads()  # fault
    if t == 63:
        cuda.atomic.exch(ready, 0, 1)


@each_warp_waits_for_the_other.twin
def first_warp_waits_for_the_second(x, out):
    ready = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    out[t] = 0
    if t == 0:
        ready[0] = 0
    cuda.syncthreads()
    if t < 32:
        while cuda.atomic.add(ready, 0, 0) == 0:
            pass
        out[t] = x[t + 32]
    elif t == 63:
        cuda.atomic.exch(ready, 0, 1)
    cuda.syncthreads()


@fault(DEADLOCK, grid=2, block=32, args=lambda: (zeros(1), zeros(64)), expect=lambda flag, out: 1)
def flag_that_nobody_raises(flag, out):
    """Thread 32 of block 0 was to raise it, but blocks have 32 threads."""
    t = cuda.threadIdx.x
    if cuda.blockIdx.x == 0 and t == 32:
        cuda.atomic.exch(flag, 0, 1)
    while cuda.atomic.add(flag, 0, 0) == 0:  # fault
        pass
    out[cuda.grid(1)] = 1


@flag_that_nobody_raises.twin
def flag_that_the_last_thread_raises(flag, out):
    """Raised by the last lane of the last block: all others wait, and the launch ends."""
    if cuda.grid(1) == out.size - 1:
        cuda.atomic.exch(flag, 0, 1)
    while cuda.atomic.add(flag, 0, 0) == 0:
        pass
    out[cuda.grid(1)] = 1


# -------------------------------------------------------------------------------------------------- shuffles of absent lanes


@fault(INACTIVE, args=io(32), expect=lambda x, out: np.where(np.arange(32) < 16, x + np.roll(x, -8), 0))
def shuffle_in_a_branch(x, out):
    """Lanes 16 to 23 are read, and are not there."""
    t = cuda.threadIdx.x
    out[t] = 0
    if t < 16:
        out[t] = x[t] + cuda.shfl_down_sync(FULL, x[t], 8)  # fault


@shuffle_in_a_branch.twin
def shuffle_before_a_branch(x, out):
    t = cuda.threadIdx.x
    other = cuda.shfl_down_sync(FULL, x[t], 8)
    out[t] = 0
    if t < 16:
        out[t] = x[t] + other


@fault(INACTIVE, args=io(32), expect=lambda x, out: np.where(np.arange(32) < 16, x[:16].sum(), x))
def one_shuffle_of_a_full_warp_in_half_a_warp(x, out):
    t = cuda.threadIdx.x
    total = x[t]
    if t < 16:
        total += cuda.shfl_xor_sync(0xFFFF, total, 8)
        total += cuda.shfl_xor_sync(FULL, total, 4)  # fault
        total += cuda.shfl_xor_sync(0xFFFF, total, 2)
        total += cuda.shfl_xor_sync(0xFFFF, total, 1)
    out[t] = total


@one_shuffle_of_a_full_warp_in_half_a_warp.twin
def shuffles_of_half_a_warp(x, out):
    t = cuda.threadIdx.x
    total = x[t]
    if t < 16:
        for step in (8, 4, 2, 1):
            total += cuda.shfl_xor_sync(0xFFFF, total, step)
    out[t] = total


def sums_of_48(x, out):
    return np.concatenate([np.full(32, x[:32].sum()), np.full(16, x[32:].sum())])


@fault(INACTIVE, block=48, args=io(48), expect=sums_of_48)
def shuffle_in_half_a_warp(x, out):
    """The second warp has 16 lanes; they read 16 that do not exist."""
    t = cuda.threadIdx.x
    total = x[t]
    for step in (16, 8, 4, 2, 1):
        total += cuda.shfl_xor_sync(FULL, total, step)  # fault
    out[t] = total


@shuffle_in_half_a_warp.twin
def shuffle_among_those_there(x, out):
    t = cuda.threadIdx.x
    total = x[t]
    if t < 32:
        for step in (16, 8, 4, 2, 1):
            total += cuda.shfl_xor_sync(FULL, total, step)
    else:
        for step in (8, 4, 2, 1):
            total += cuda.shfl_xor_sync(0xFFFF, total, step)
    out[t] = total


@fault(INACTIVE, args=io(32), expect=lambda x, out: np.where(x <= 20, x[0], 0))
def shuffle_from_a_lane_that_returned(x, out):
    t = cuda.threadIdx.x
    if x[t] > 20:
        return
    out[t] = cuda.shfl_sync(FULL, x[t], 31)  # fault


@shuffle_from_a_lane_that_returned.twin
def shuffle_from_a_lane_that_stayed(x, out):
    t = cuda.threadIdx.x
    if x[t] > 20:
        return
    out[t] = cuda.shfl_sync(0xFFFFF, x[t], 0)


@fault(INACTIVE, grid=2, block=64, args=io(128), expect=lambda x, out: np.where(x % 2 == 1, x + 2 - 4 * ((x - 1) // 2 % 2), 0))
def exchange_among_even_lanes(x, out):
    t, i = cuda.threadIdx.x, cuda.grid(1)
    out[i] = 0
    if t % 2 == 0:
        out[i] = cuda.shfl_xor_sync(0x55555555, x[i], 1)  # fault


@exchange_among_even_lanes.twin
def exchange_of_even_lanes(x, out):
    t, i = cuda.threadIdx.x, cuda.grid(1)
    out[i] = 0
    if t % 2 == 0:
        out[i] = cuda.shfl_xor_sync(0x55555555, x[i], 2)


@fault(INACTIVE, args=lambda: (ramp(32) % 4, zeros(32)), expect=lambda x, out: 3 * x)
def shuffles_of_unequal_number(x, out):
    t = cuda.threadIdx.x
    total = 0
    for _ in range(x[t]):
        total += cuda.shfl_sync(FULL, 3, 0)  # fault
    out[t] = total


@shuffles_of_unequal_number.twin
def shuffles_of_equal_number(x, out):
    t = cuda.threadIdx.x
    total = 0
    for k in range(4):
        three = cuda.shfl_sync(FULL, 3, 0)
        if k < x[t]:
            total += three
    out[t] = total


# ---------------------------------------------------------------------------------------------------------- votes and masks


@fault(INACTIVE, args=io(32), expect=lambda x, out: x + np.where(np.arange(32) < 16, 16, 0))
def ballot_in_a_branch(x, out):
    t = cuda.threadIdx.x
    count = 0
    if t < 16:
        count = cuda.popc(cuda.ballot_sync(FULL, x[t] > 0))  # fault
    out[t] = x[t] + count


@ballot_in_a_branch.twin
def ballot_of_those_in_the_branch(x, out):
    t = cuda.threadIdx.x
    count = 0
    if t < 16:
        count = cuda.popc(cuda.ballot_sync(cuda.activemask(), x[t] > 0))
    out[t] = x[t] + count


@fault(INACTIVE, block=64, args=io(64), expect=lambda x, out: np.where(x % 4 == 1, 1, 0))
def vote_in_a_branch(x, out):
    t = cuda.threadIdx.x
    alike = 0
    if x[t] % 4 == 1:
        alike = 1 if cuda.all_sync(FULL, x[t] > 0) else 0  # fault
    out[t] = alike


@vote_in_a_branch.twin
def vote_of_the_active_lanes(x, out):
    t = cuda.threadIdx.x
    mask = cuda.ballot_sync(FULL, x[t] % 4 == 1)
    alike = 0
    if x[t] % 4 == 1:
        alike = 1 if cuda.all_sync(mask, x[t] > 0) else 0
    out[t] = alike


@fault(INACTIVE, args=lambda: (ramp(32) // 8, zeros(32)), expect=lambda x, out: np.where(x == 0, 7, np.where(x < 4, 8, 1)))
def match_in_a_branch(x, out):
    t = cuda.threadIdx.x
    alike = 1
    if x[t] < 4:
        alike = cuda.popc(cuda.match_any_sync(FULL, x[t]))  # fault
    out[t] = alike


@match_in_a_branch.twin
def match_of_those_in_the_branch(x, out):
    t = cuda.threadIdx.x
    mask = cuda.ballot_sync(FULL, x[t] < 4)
    alike = 1
    if x[t] < 4:
        alike = cuda.popc(cuda.match_any_sync(mask, x[t]))
    out[t] = alike


@fault(INACTIVE, args=io(32), expect=lambda x, out: np.where(np.arange(32) < 16, x[15 - np.arange(32) % 16], 0))
def syncwarp_in_a_branch(x, out):
    s = cuda.shared.array(16, int32)
    t = cuda.threadIdx.x
    value = 0
    if t < 16:
        s[t] = x[t]
        cuda.syncwarp()  # fault
        value = s[15 - t]
    out[t] = value


@syncwarp_in_a_branch.twin
def syncwarp_of_those_in_the_branch(x, out):
    s = cuda.shared.array(16, int32)
    t = cuda.threadIdx.x
    value = 0
    if t < 16:
        s[t] = x[t]
        cuda.syncwarp(0xFFFF)
        value = s[15 - t]
    out[t] = value


@fault(NOT_IN_MASK, args=io(32), expect=lambda x, out: np.where(np.arange(32) < 16, x + x[0], x))
def shuffle_by_lanes_outside_the_mask(x, out):
    t = cuda.threadIdx.x
    out[t] = x[t] + cuda.shfl_sync(0xFFFF, x[t], 0)  # fault


@shuffle_by_lanes_outside_the_mask.twin
def shuffle_by_lanes_of_the_mask(x, out):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t < 16:
        out[t] = x[t] + cuda.shfl_sync(0xFFFF, x[t], 0)


@fault(NOT_IN_MASK, block=64, args=io(64), expect=lambda x, out: np.where(np.arange(64) % 32 < 31, 31, 0))
def ballot_with_one_lane_missing(x, out):
    """0x7FFFFFFF has 31 ones."""
    t = cuda.threadIdx.x
    out[t] = cuda.popc(cuda.ballot_sync(0x7FFFFFFF, x[t] > 0))  # fault


@ballot_with_one_lane_missing.twin
def ballot_without_the_last_lane(x, out):
    t = cuda.threadIdx.x
    out[t] = 0
    if t % 32 < 31:
        out[t] = cuda.popc(cuda.ballot_sync(0x7FFFFFFF, x[t] > 0))


@fault(NOT_IN_MASK, args=io(32), expect=lambda x, out: x[(np.arange(32) // 8) * 8 + 7 - np.arange(32) % 8])
def syncwarp_of_another_group(x, out):
    """Groups of 8 lanes; each waits for the next group instead of its own."""
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    group = t // 8
    s[t] = x[t]
    cuda.syncwarp()
    cuda.syncwarp(0xFF << (8 * ((group + 1) % 4)))  # fault
    out[t] = s[group * 8 + 7 - t % 8]


@syncwarp_of_another_group.twin
def syncwarp_of_its_group(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    group = t // 8
    s[t] = x[t]
    cuda.syncwarp(0xFF << (8 * group))
    out[t] = s[group * 8 + 7 - t % 8]


@fault(NOT_IN_MASK, args=io(32), expect=lambda x, out: np.where(x > 10, x[10], 0))
def mask_of_another_condition(x, out):
    t = cuda.threadIdx.x
    mask = cuda.ballot_sync(FULL, x[t] > 10)
    out[t] = 0
    if x[t] > 8:
        out[t] = cuda.shfl_sync(mask, x[t], 10)  # fault


@mask_of_another_condition.twin
def mask_of_the_condition(x, out):
    t = cuda.threadIdx.x
    mask = cuda.ballot_sync(FULL, x[t] > 10)
    out[t] = 0
    if x[t] > 10:
        out[t] = cuda.shfl_sync(mask, x[t], 10)
