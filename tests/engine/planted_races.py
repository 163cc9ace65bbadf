"""Planted races in shared memory: missing barriers, lanes out of step, lost updates; twins that tempt a checker to accuse them."""

from __future__ import annotations

import numpy as np
from numba import complex64, cuda, float32, float64, from_dtype, int8, int32
from planted import FULL, LOST, RAW, SAME, WAR, WAW, fault, ramp, zeros

PAIR = np.dtype([("a", np.int32), ("b", np.int32)])
pair = from_dtype(PAIR)
BINS = 32


def io(n: int, dtype=np.int32):
    return lambda: (ramp(n, dtype=dtype), zeros(n, dtype=dtype))


def reversed_blocks(threads: int):
    return lambda x, out: x.reshape(-1, threads)[:, ::-1].ravel()


# ------------------------------------------------------------------------------------------------ a barrier before the read


@fault(RAW, array="s", grid=2, block=64, args=io(128), expect=reversed_blocks(64))
def reverse(x, out):
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]  # fault
    out[i] = s[63 - t]  # fault


@reverse.twin
def reverse_synced(x, out):
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]
    cuda.syncthreads()
    out[i] = s[63 - t]


@fault(RAW, array="s", grid=3, block=64, args=io(192), expect=reversed_blocks(64))
def fence_for_barrier(x, out):
    """A fence orders what one thread writes; it waits for nobody."""
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]  # fault
    cuda.threadfence_block()
    out[i] = s[63 - t]  # fault


@fence_for_barrier.twin
def fence_and_barrier(x, out):
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]
    cuda.threadfence_block()
    cuda.syncthreads()
    out[i] = s[63 - t]


def sums_of_three(x, out):
    rows = x.reshape(-1, 128)
    sums = rows.copy()
    sums[:, 1:-1] += rows[:, :-2] + rows[:, 2:]
    return sums.ravel()


@fault(RAW, array="s", grid=2, block=128, args=io(256), expect=sums_of_three)
def sum_of_three(x, out):
    s = cuda.shared.array(128, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]  # fault
    total = x[i]
    if 0 < t < 127:
        total += s[t - 1] + s[t + 1]  # fault
    out[i] = total


@sum_of_three.twin
def sum_of_three_synced(x, out):
    s = cuda.shared.array(128, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]
    total = x[i]
    cuda.syncthreads()
    if 0 < t < 127:
        total += s[t - 1] + s[t + 1]
    out[i] = total


@fault(
    RAW,
    array="tile",
    grid=(2, 3),
    block=(16, 16),
    args=lambda: (ramp(48, 32), zeros(32, 48)),
    expect=lambda a, out: a.T,
)
def transpose(a, out):
    tile = cuda.shared.array((16, 17), int32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    bx, by = cuda.blockIdx.x * 16, cuda.blockIdx.y * 16
    tile[ty, tx] = a[by + ty, bx + tx]  # fault
    out[bx + ty, by + tx] = tile[tx, ty]  # fault


@transpose.twin
def transpose_synced(a, out):
    tile = cuda.shared.array((16, 17), int32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    bx, by = cuda.blockIdx.x * 16, cuda.blockIdx.y * 16
    tile[ty, tx] = a[by + ty, bx + tx]
    cuda.syncthreads()
    out[bx + ty, by + tx] = tile[tx, ty]


@fault(
    RAW,
    array="cube",
    block=(4, 4, 4),
    args=lambda: (ramp(4, 4, 4), zeros(4, 4, 4)),
    expect=lambda a, out: a[::-1],
)
def flip_a_cube(a, out):
    cube = cuda.shared.array((4, 4, 4), int32)
    x, y, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.threadIdx.z
    cube[z, y, x] = a[z, y, x]  # fault
    out[z, y, x] = cube[3 - z, y, x]  # fault


@flip_a_cube.twin
def flip_a_cube_synced(a, out):
    cube = cuda.shared.array((4, 4, 4), int32)
    x, y, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.threadIdx.z
    cube[z, y, x] = a[z, y, x]
    cuda.syncthreads()
    out[z, y, x] = cube[3 - z, y, x]


@fault(RAW, array="factor", grid=2, block=64, args=io(128), expect=lambda x, out: x * np.repeat(x[::64], 64))
def broadcast(x, out):
    factor = cuda.shared.array(1, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t == 0:
        factor[0] = x[i]  # fault
    out[i] = x[i] * factor[0]  # fault


@broadcast.twin
def broadcast_synced(x, out):
    """All threads read one cell, which nobody writes any more."""
    factor = cuda.shared.array(1, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t == 0:
        factor[0] = x[i]
    cuda.syncthreads()
    out[i] = x[i] * factor[0]


@fault(RAW, array="factor", block=96, args=io(96), expect=lambda x, out: x * 96)
def broadcast_from_the_last_warp(x, out):
    factor = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        factor[0] = 1
    cuda.syncthreads()
    if t == cuda.blockDim.x - 1:
        factor[0] = x[t]  # fault
    out[t] = x[t] * factor[0]  # fault


@broadcast_from_the_last_warp.twin
def broadcast_from_the_last_warp_synced(x, out):
    factor = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        factor[0] = 1
    cuda.syncthreads()
    if t == cuda.blockDim.x - 1:
        factor[0] = x[t]
    cuda.syncthreads()
    out[t] = x[t] * factor[0]


@fault(RAW, array="s", block=64, args=io(64), expect=lambda x, out: np.roll(x, 1))
def shift(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[(t + 1) % 64] = x[t]  # fault
    out[t] = s[t]  # fault


@shift.twin
def shift_synced(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[(t + 1) % 64] = x[t]
    cuda.syncthreads()
    out[t] = s[t]


@fault(RAW, WAR, array="s", grid=2, block=128, args=lambda: (ramp(256), zeros(2)), expect=lambda x, out: x.reshape(2, 128).sum(1))
def tree(x, out):
    s = cuda.shared.array(128, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]
    cuda.syncthreads()
    step = 64
    while step > 0:
        if t < step:
            s[t] += s[t + step]  # fault
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


@tree.twin
def tree_synced(x, out):
    """The last read needs no barrier of its own: thread 0 wrote what it reads."""
    s = cuda.shared.array(128, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]
    step = 64
    while step > 0:
        cuda.syncthreads()
        if t < step:
            s[t] += s[t + step]
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


@fault(RAW, array="s", block=64, args=lambda: (ramp(64), zeros(1)), expect=lambda x, out: x.sum())
def tree_read_by_another(x, out):
    """The last addition is thread 0's, and thread 1 reads it."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    step = 32
    while step > 0:
        cuda.syncthreads()
        if t < step:
            s[t] += s[t + step]  # fault
        step //= 2
    if t == 1:
        out[0] = s[0]  # fault


@tree_read_by_another.twin
def tree_read_by_another_synced(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    step = 32
    while step > 0:
        cuda.syncthreads()
        if t < step:
            s[t] += s[t + step]
        step //= 2
    cuda.syncthreads()
    if t == 1:
        out[0] = s[0]


@fault(WAR, array="s", block=64, args=io(64), expect=lambda x, out: np.cumsum(x))
def scan_in_place(x, out):
    """Within one statement: lane t reads s[t - step] while lane t - step writes it."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < 64:
        if t >= step:
            s[t] += s[t - step]  # fault
        cuda.syncthreads()
        step *= 2
    out[t] = s[t]


@scan_in_place.twin
def scan_in_ping_pong(x, out):
    """Two rows in turn: one barrier a step is enough."""
    s = cuda.shared.array((2, 64), int32)
    t = cuda.threadIdx.x
    s[0, t] = x[t]
    cuda.syncthreads()
    now = 0
    step = 1
    while step < 64:
        s[1 - now, t] = s[now, t]
        if t >= step:
            s[1 - now, t] += s[now, t - step]
        cuda.syncthreads()
        now = 1 - now
        step *= 2
    out[t] = s[now, t]


@fault(WAR, array="s", block=64, args=io(64), expect=lambda x, out: np.cumsum(x))
def scan_through_a_register(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < 64:
        before = 0
        if t >= step:
            before = s[t - step]  # fault
        s[t] += before  # fault
        cuda.syncthreads()
        step *= 2
    out[t] = s[t]


@scan_through_a_register.twin
def scan_through_a_register_synced(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < 64:
        before = 0
        if t >= step:
            before = s[t - step]
        cuda.syncthreads()
        s[t] += before
        cuda.syncthreads()
        step *= 2
    out[t] = s[t]


@fault(RAW, WAR, WAW, array="s", block=64, args=lambda: (ramp(64)[::-1].copy(), zeros(64)), expect=lambda x, out: np.sort(x))
def odd_even_sort(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    for turn in range(64):
        if t % 2 == turn % 2 and t < 63:
            left, right = s[t], s[t + 1]  # fault
            s[t] = min(left, right)  # fault
            s[t + 1] = max(left, right)  # fault
    cuda.syncthreads()
    out[t] = s[t]


@odd_even_sort.twin
def odd_even_sort_synced(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    for turn in range(64):
        if t % 2 == turn % 2 and t < 63:
            left, right = s[t], s[t + 1]
            s[t] = min(left, right)
            s[t + 1] = max(left, right)
        cuda.syncthreads()
    out[t] = s[t]


def smoothed(x, out):
    for _ in range(3):
        x = np.concatenate([x[:1], (x[:-2] + x[2:]) // 2, x[-1:]])
    return x


@fault(WAR, array="s", block=64, args=io(64), expect=smoothed)
def smooth_in_place(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    for _ in range(3):
        if 0 < t < 63:
            s[t] = (s[t - 1] + s[t + 1]) // 2  # fault
        cuda.syncthreads()
    out[t] = s[t]


@smooth_in_place.twin
def smooth_in_two_steps(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    for _ in range(3):
        new = s[t]
        if 0 < t < 63:
            new = (s[t - 1] + s[t + 1]) // 2
        cuda.syncthreads()
        s[t] = new
        cuda.syncthreads()
    out[t] = s[t]


def mean_of_four(a, out):
    new = a.copy()
    new[1:-1, 1:-1] = (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]) / 4
    return new


@fault(
    WAR,
    array="tile",
    block=(8, 8),
    args=lambda: (ramp(8, 8, dtype=np.float32), zeros(8, 8, dtype=np.float32)),
    expect=mean_of_four,
)
def heat_in_place(a, out):
    tile = cuda.shared.array((8, 8), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    tile[y, x] = a[y, x]
    cuda.syncthreads()
    if 0 < x < 7 and 0 < y < 7:
        tile[y, x] = (tile[y - 1, x] + tile[y + 1, x] + tile[y, x - 1] + tile[y, x + 1]) / 4  # fault
    out[y, x] = tile[y, x]


@heat_in_place.twin
def heat_in_two_tiles(a, out):
    tile = cuda.shared.array((8, 8), float32)
    new = cuda.shared.array((8, 8), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    tile[y, x] = a[y, x]
    new[y, x] = a[y, x]
    cuda.syncthreads()
    if 0 < x < 7 and 0 < y < 7:
        new[y, x] = (tile[y - 1, x] + tile[y + 1, x] + tile[y, x - 1] + tile[y, x + 1]) / 4
    out[y, x] = new[y, x]


# --------------------------------------------------------------------------------------------------------------- tile loops


def two_matrices(n: int):
    return lambda: (ramp(n, n, dtype=np.float32), ramp(n, n, dtype=np.float32), zeros(n, n, dtype=np.float32))


@fault(RAW, array=("a_s", "b_s"), grid=(2, 2), block=(8, 8), args=two_matrices(16), expect=lambda a, b, c: a @ b)
def matmul_without_first_barrier(a, b, c):
    a_s = cuda.shared.array((8, 8), float32)
    b_s = cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for tile in range(2):
        a_s[ty, tx] = a[y, tile * 8 + tx]  # fault
        b_s[ty, tx] = b[tile * 8 + ty, x]  # fault
        for k in range(8):
            total += a_s[ty, k] * b_s[k, tx]  # fault
        cuda.syncthreads()
    c[y, x] = total


@matmul_without_first_barrier.twin
def matmul(a, b, c):
    a_s = cuda.shared.array((8, 8), float32)
    b_s = cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for tile in range(2):
        a_s[ty, tx] = a[y, tile * 8 + tx]
        b_s[ty, tx] = b[tile * 8 + ty, x]
        cuda.syncthreads()
        for k in range(8):
            total += a_s[ty, k] * b_s[k, tx]
        cuda.syncthreads()
    c[y, x] = total


@fault(WAR, array=("a_s", "b_s"), grid=(2, 1), block=(8, 16), args=two_matrices(16), expect=lambda a, b, c: a @ b)
def matmul_without_second_barrier(a, b, c):
    """Each warp may load its part of the next tile while another still reads this one."""
    a_s = cuda.shared.array((16, 16), float32)
    b_s = cuda.shared.array((16, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for tile in range(2):
        if ty < 8:
            b_s[ty, tx] = b[tile * 8 + ty, x]  # fault
        a_s[ty, tx] = a[y, tile * 8 + tx]  # fault
        cuda.syncthreads()
        for k in range(8):
            total += a_s[ty, k] * b_s[k, tx]  # fault
    c[y, x] = total


@matmul_without_second_barrier.twin
def matmul_with_second_barrier(a, b, c):
    a_s = cuda.shared.array((16, 16), float32)
    b_s = cuda.shared.array((16, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for tile in range(2):
        if ty < 8:
            b_s[ty, tx] = b[tile * 8 + ty, x]
        a_s[ty, tx] = a[y, tile * 8 + tx]
        cuda.syncthreads()
        for k in range(8):
            total += a_s[ty, k] * b_s[k, tx]
        cuda.syncthreads()
    c[y, x] = total


@fault(WAR, array=("a_s", "b_s"), grid=(4, 4), block=(4, 4), args=two_matrices(16), expect=lambda a, b, c: a @ b)
def matmul_without_second_barrier_in_a_warp(a, b, c):
    """A block of half a warp: right on every GPU before Volta, and in lock step."""
    a_s = cuda.shared.array((4, 4), float32)
    b_s = cuda.shared.array((4, 4), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for tile in range(4):
        a_s[ty, tx] = a[y, tile * 4 + tx]  # fault
        b_s[ty, tx] = b[tile * 4 + ty, x]  # fault
        cuda.syncthreads()
        for k in range(4):
            total += a_s[ty, k] * b_s[k, tx]  # fault
    c[y, x] = total


@matmul_without_second_barrier_in_a_warp.twin
def matmul_with_second_barrier_in_a_warp(a, b, c):
    a_s = cuda.shared.array((4, 4), float32)
    b_s = cuda.shared.array((4, 4), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for tile in range(4):
        a_s[ty, tx] = a[y, tile * 4 + tx]
        b_s[ty, tx] = b[tile * 4 + ty, x]
        cuda.syncthreads()
        for k in range(4):
            total += a_s[ty, k] * b_s[k, tx]
        cuda.syncwarp(0xFFFF)
    c[y, x] = total


def weighted(x, out):
    """Each thread t of a block adds x[tile, (t + 1) % 64] of every tile."""
    return np.roll(x.reshape(3, 64), -1, axis=1).sum(0)


@fault(WAR, array="s", block=64, args=lambda: (ramp(192), zeros(64)), expect=weighted)
def sum_over_tiles(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    total = 0
    for tile in range(3):
        s[t] = x[tile * 64 + t]  # fault
        cuda.syncthreads()
        total += s[(t + 1) % 64]  # fault
    out[t] = total


@sum_over_tiles.twin
def sum_over_tiles_synced(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    total = 0
    for tile in range(3):
        s[t] = x[tile * 64 + t]
        cuda.syncthreads()
        total += s[(t + 1) % 64]
        cuda.syncthreads()
    out[t] = total


@fault(RAW, WAR, array="s", args=lambda: (ramp(96), zeros(32)), expect=lambda x, out: x.reshape(3, 32)[:, ::-1].sum(0))
def prefetch(x, out):
    s = cuda.shared.array((2, 32), int32)
    t = cuda.threadIdx.x
    total = 0
    s[0, t] = x[t]
    cuda.syncthreads()
    for tile in range(3):
        if tile < 2:
            s[(tile + 1) % 2, t] = x[(tile + 1) * 32 + t]  # fault
        total += s[tile % 2, 31 - t]  # fault
    out[t] = total


@prefetch.twin
def prefetch_synced(x, out):
    """Double buffering: one barrier for each tile, since reads and writes are of different halves."""
    s = cuda.shared.array((2, 32), int32)
    t = cuda.threadIdx.x
    total = 0
    s[0, t] = x[t]
    cuda.syncthreads()
    for tile in range(3):
        if tile < 2:
            s[(tile + 1) % 2, t] = x[(tile + 1) * 32 + t]
        total += s[tile % 2, 31 - t]
        cuda.syncthreads()
    out[t] = total


@fault(WAR, array="busy", block=64, args=lambda: (ramp(64) % 5, zeros(64)), expect=lambda x, out: x.max())
def rounds_until_done(x, out):
    """The flag is lowered for the next round while others have yet to read it."""
    busy = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    left = x[t]
    rounds = 0
    for _ in range(6):
        if t == 0:
            busy[0] = 0  # fault
        cuda.syncthreads()
        if left > 0:
            cuda.atomic.max(busy, 0, 1)
        cuda.syncthreads()
        if busy[0] == 1:  # fault
            rounds += 1
        left -= 1
    out[t] = rounds


@rounds_until_done.twin
def rounds_until_done_synced(x, out):
    busy = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    left = x[t]
    rounds = 0
    while True:
        if t == 0:
            busy[0] = 0
        cuda.syncthreads()
        if left > 0:
            cuda.atomic.max(busy, 0, 1)
        cuda.syncthreads()
        if busy[0] == 0:
            break
        cuda.syncthreads()
        rounds += 1
        left -= 1
    out[t] = rounds


# ------------------------------------------------------------------------------------------------------------ warps, syncwarp


@fault(RAW, array="s", block=64, args=lambda: (ramp(64), zeros(32)), expect=lambda x, out: x[:32])
def syncwarp_for_syncthreads(x, out):
    """Written in the first warp, read in the last."""
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = x[t]  # fault
    cuda.syncwarp()
    if t >= 32:
        out[t - 32] = s[t - 32]  # fault


@syncwarp_for_syncthreads.twin
def syncthreads_between_warps(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = x[t]
    cuda.syncthreads()
    if t >= 32:
        out[t - 32] = s[t - 32]


@fault(RAW, array="s", block=64, args=lambda: (ramp(64), zeros(32)), expect=lambda x, out: x[32:])
def syncwarp_for_syncthreads_backwards(x, out):
    """Written in the last warp, read in the first: whoever runs warps in order sees the read first."""
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = 0
    cuda.syncthreads()
    if t >= 32:
        s[t - 32] = x[t]  # fault
    cuda.syncwarp()
    if t < 32:
        out[t] = s[t]  # fault


@syncwarp_for_syncthreads_backwards.twin
def syncthreads_between_warps_backwards(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = 0
    cuda.syncthreads()
    if t >= 32:
        s[t - 32] = x[t]
    cuda.syncthreads()
    if t < 32:
        out[t] = s[t]


@fault(RAW, array="s", args=lambda: (ramp(32), zeros(1)), expect=lambda x, out: x.sum())
def last_warp_unrolled(x, out):
    """Volatile-style reduction: since Volta the lanes of a warp need not be in step."""
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 16:
        s[t] += s[t + 16]  # fault
    if t < 8:
        s[t] += s[t + 8]  # fault
    if t < 4:
        s[t] += s[t + 4]  # fault
    if t < 2:
        s[t] += s[t + 2]  # fault
    if t < 1:
        out[0] = s[0] + s[1]  # fault


@last_warp_unrolled.twin
def last_warp_unrolled_synced(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 16:
        s[t] += s[t + 16]
    cuda.syncwarp()
    if t < 8:
        s[t] += s[t + 8]
    cuda.syncwarp()
    if t < 4:
        s[t] += s[t + 4]
    cuda.syncwarp()
    if t < 2:
        s[t] += s[t + 2]
    cuda.syncwarp()
    if t < 1:
        out[0] = s[0] + s[1]


@fault(WAR, array="s", block=64, args=lambda: (ramp(64), zeros(1)), expect=lambda x, out: x.sum())
def last_warp_in_one_statement(x, out):
    """All 32 lanes add: lane 0 reads s[16] while lane 16 writes it, and no syncwarp after the statement helps."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        step = 32
        while step > 0:
            s[t] += s[t + step]  # fault
            cuda.syncwarp()
            step //= 2
    if t == 0:
        out[0] = s[0]


@last_warp_in_one_statement.twin
def last_warp_read_sync_write(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        step = 32
        while step > 0:
            other = s[t + step]
            cuda.syncwarp()
            s[t] += other
            cuda.syncwarp()
            step //= 2
    if t == 0:
        out[0] = s[0]


@fault(RAW, array="s", block=64, args=lambda: (ramp(64), zeros(1)), expect=lambda x, out: x.sum())
def tree_of_syncwarps(x, out):
    """The first step adds what the other warp wrote."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    step = 32
    while step > 0:
        cuda.syncwarp()
        if t < step:
            s[t] += s[t + step]  # fault
        step //= 2
    if t == 0:
        out[0] = s[0]


@tree_of_syncwarps.twin
def tree_of_both_barriers(x, out):
    """From 16 on, all that is added is one warp's."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        cuda.syncwarp()
        step //= 2
    if t == 0:
        out[0] = s[0]


@fault(RAW, array="s", args=io(32), expect=lambda x, out: np.roll(x, 16))
def syncwarp_of_half_the_lanes(x, out):
    """Each half waits for itself, and reads what the other half wrote."""
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    if t < 16:
        cuda.syncwarp(0x0000FFFF)
    else:
        cuda.syncwarp(0xFFFF0000)
    out[t] = s[t ^ 16]  # fault


@syncwarp_of_half_the_lanes.twin
def syncwarp_of_all_lanes(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp(0xFFFFFFFF)
    out[t] = s[t ^ 16]


@fault(RAW, array="s", args=lambda: (ramp(32), zeros(16)), expect=lambda x, out: x[:16][::-1])
def syncwarp_mask_too_small(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    if t < 8:
        cuda.syncwarp(0x00FF)
    if t < 16:
        out[t] = s[15 - t]  # fault


@syncwarp_mask_too_small.twin
def syncwarp_mask_that_covers(x, out):
    """Half a warp by itself: a partial mask is enough."""
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    if t < 16:
        cuda.syncwarp(0xFFFF)
        out[t] = s[15 - t]


@fault(RAW, WAW, array="s", block=128, args=io(128), expect=reversed_blocks(32))
def private_regions_overlap(x, out):
    """A region of its own for each warp, 16 cells apart."""
    s = cuda.shared.array(128, int32)
    t = cuda.threadIdx.x
    lane, warp = t % 32, t // 32
    s[warp * 16 + lane] = x[t]  # fault
    cuda.syncwarp()
    out[t] = s[warp * 16 + 31 - lane]  # fault


@private_regions_overlap.twin
def private_regions(x, out):
    s = cuda.shared.array(128, int32)
    t = cuda.threadIdx.x
    lane, warp = t % 32, t // 32
    s[warp * 32 + lane] = x[t]
    cuda.syncwarp()
    out[t] = s[warp * 32 + 31 - lane]


@fault(RAW, array="sums", block=128, args=lambda: (ramp(128), zeros(128)), expect=lambda x, out: x.sum())
def sums_of_warps(x, out):
    sums = cuda.shared.array(4, int32)
    t = cuda.threadIdx.x
    value = x[t]
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(FULL, value, step)
    if t % 32 == 0:
        sums[t // 32] = value  # fault
    out[t] = sums[0] + sums[1] + sums[2] + sums[3]  # fault


@sums_of_warps.twin
def sums_of_warps_synced(x, out):
    sums = cuda.shared.array(4, int32)
    t = cuda.threadIdx.x
    value = x[t]
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(FULL, value, step)
    if t % 32 == 0:
        sums[t // 32] = value
    cuda.syncthreads()
    out[t] = sums[0] + sums[1] + sums[2] + sums[3]


@fault(RAW, array="s", severity="warning", args=io(32), expect=lambda x, out: x[::-1] + np.roll(x, 1))
def shuffle_as_separator(x, out):
    """A shuffle exchanges registers; it is no promise about memory."""
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    other = cuda.shfl_sync(FULL, x[t], (t + 31) % 32)
    out[t] = s[31 - t] + other  # fault


@shuffle_as_separator.twin
def shuffle_and_syncwarp(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    other = cuda.shfl_sync(FULL, x[t], (t + 31) % 32)
    cuda.syncwarp()
    out[t] = s[31 - t] + other


@fault(RAW, array="s", severity="warning", args=io(32), expect=lambda x, out: x[::-1] + 32)
def ballot_as_separator(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    positive = cuda.popc(cuda.ballot_sync(FULL, x[t] > 0))
    out[t] = s[31 - t] + positive  # fault


@ballot_as_separator.twin
def ballot_and_syncwarp(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    positive = cuda.popc(cuda.ballot_sync(FULL, x[t] > 0))
    cuda.syncwarp()
    out[t] = s[31 - t] + positive


@fault(RAW, array="s", severity="warning", args=io(32), expect=lambda x, out: x[::-1])
def vote_as_separator(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    if cuda.all_sync(FULL, x[t] > 0):
        out[t] = s[31 - t]  # fault


@vote_as_separator.twin
def vote_and_syncwarp(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    if cuda.all_sync(FULL, x[t] > 0):
        out[t] = s[31 - t]


@fault(RAW, array="s", block=64, args=io(64), expect=lambda x, out: x[::-1] + 64)
def count_of_the_warp_for_that_of_the_block(x, out):
    """A ballot counts, and separates, only one warp."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    positive = cuda.popc(cuda.ballot_sync(FULL, x[t] > 0))
    out[t] = s[63 - t] + positive  # fault


@count_of_the_warp_for_that_of_the_block.twin
def count_of_the_block(x, out):
    """syncthreads_count is a barrier too."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    positive = cuda.syncthreads_count(1 if x[t] > 0 else 0)
    out[t] = s[63 - t] + positive


# ------------------------------------------------------------------------------------- several writers: histograms, flags


def histogram_of(x, out):
    return np.bincount(x, minlength=BINS)


def binned(n: int):
    return lambda: ((ramp(n) * 7) % 10, zeros(BINS))


@fault(LOST, array="bins", block=64, args=binned(64), expect=histogram_of)
def histogram_without_atomics(x, out):
    bins = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    if t < BINS:
        bins[t] = 0
    cuda.syncthreads()
    bins[x[t]] += 1  # fault
    cuda.syncthreads()
    if t < BINS:
        out[t] = bins[t]


@histogram_without_atomics.twin
def histogram_with_atomics(x, out):
    bins = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    if t < BINS:
        bins[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(bins, x[t], 1)
    cuda.syncthreads()
    if t < BINS:
        out[t] = bins[t]


@fault(WAW, array="bins", block=96, args=binned(96), expect=histogram_of)
def histogram_zeroed_without_barrier(x, out):
    bins = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    if t < BINS:
        bins[t] = 0  # fault
    cuda.atomic.add(bins, x[t], 1)  # fault
    cuda.syncthreads()
    if t < BINS:
        out[t] = bins[t]


@histogram_zeroed_without_barrier.twin
def histogram_zeroed(x, out):
    bins = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    for b in range(t, BINS, cuda.blockDim.x):
        bins[b] = 0
    cuda.syncthreads()
    cuda.atomic.add(bins, x[t], 1)
    cuda.syncthreads()
    if t < BINS:
        out[t] = bins[t]


@fault(RAW, array="bins", grid=2, block=64, args=lambda: ((ramp(128) * 7) % 10, zeros(BINS)), expect=histogram_of)
def histogram_read_without_barrier(x, out):
    bins = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    if t < BINS:
        bins[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(bins, x[cuda.grid(1)], 1)  # fault
    if t < BINS:
        cuda.atomic.add(out, t, bins[t])  # fault


@histogram_read_without_barrier.twin
def histogram_per_block(x, out):
    bins = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    if t < BINS:
        bins[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(bins, x[cuda.grid(1)], 1)
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(out, t, bins[t])


@fault(
    WAR,
    WAW,
    array="bins",
    block=64,
    args=lambda: ((ramp(3, 64) * 7) % 10, zeros(3, BINS)),
    expect=lambda x, out: np.array([np.bincount(row, minlength=BINS) for row in x]),
)
def histogram_rounds(x, out):
    """The bins are emptied for the next round, and at once filled by whoever is first."""
    bins = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    if t < BINS:
        bins[t] = 0
    cuda.syncthreads()
    for turn in range(3):
        cuda.atomic.add(bins, x[turn, t], 1)  # fault
        cuda.syncthreads()
        if t < BINS:
            out[turn, t] = bins[t]  # fault
            bins[t] = 0  # fault


@histogram_rounds.twin
def histogram_rounds_synced(x, out):
    bins = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    if t < BINS:
        bins[t] = 0
    cuda.syncthreads()
    for turn in range(3):
        cuda.atomic.add(bins, x[turn, t], 1)
        cuda.syncthreads()
        if t < BINS:
            out[turn, t] = bins[t]
            bins[t] = 0
        cuda.syncthreads()


@fault(LOST, array="s", block=2, args=lambda: (zeros(1),), expect=lambda out: 2)
def two_threads_add(out):
    s = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        s[0] = 0
    cuda.syncthreads()
    s[0] += 1  # fault
    cuda.syncthreads()
    if t == 0:
        out[0] = s[0]


@two_threads_add.twin
def two_threads_add_atomically(out):
    s = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        s[0] = 0
    cuda.syncthreads()
    cuda.atomic.add(s, 0, 1)
    cuda.syncthreads()
    if t == 0:
        out[0] = s[0]


@fault(WAW, array="n", block=64, args=io(64), expect=lambda x, out: np.arange(64) < 32)
def compaction(x, out):
    n = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        n[0] = 0  # fault
    if x[t] % 2 == 0:
        out[cuda.atomic.add(n, 0, 1)] = 1  # fault


@compaction.twin
def compaction_synced(x, out):
    """Each thread draws a place of its own."""
    n = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        n[0] = 0
    cuda.syncthreads()
    if x[t] % 2 == 0:
        out[cuda.atomic.add(n, 0, 1)] = 1


@fault(
    LOST,
    array="sums",
    block=(16, 16),
    args=lambda: (ramp(16, 16), zeros(4, 4)),
    expect=lambda a, out: a.reshape(4, 4, 4, 4).sum((1, 3)),
)
def sums_of_patches(a, out):
    sums = cuda.shared.array((4, 4), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if x < 4 and y < 4:
        sums[y, x] = 0
    cuda.syncthreads()
    sums[y // 4, x // 4] += a[y, x]  # fault
    cuda.syncthreads()
    if x < 4 and y < 4:
        out[y, x] = sums[y, x]


@sums_of_patches.twin
def sums_of_patches_with_atomics(a, out):
    sums = cuda.shared.array((4, 4), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if x < 4 and y < 4:
        sums[y, x] = 0
    cuda.syncthreads()
    cuda.atomic.add(sums, (y // 4, x // 4), a[y, x])
    cuda.syncthreads()
    if x < 4 and y < 4:
        out[y, x] = sums[y, x]


@fault(LOST, array="s", block=64, args=lambda: (ramp(64), zeros(32)), expect=lambda x, out: x[:32] + x[32:])
def update_by_two_warps(x, out):
    """No two lanes of a warp meet; the same lane of both warps does."""
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = 0
    cuda.syncthreads()
    s[t % 32] += x[t]  # fault
    cuda.syncthreads()
    if t < 32:
        out[t] = s[t]


@update_by_two_warps.twin
def update_by_one_warp_after_the_other(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = x[t]
    cuda.syncthreads()
    if t >= 32:
        s[t - 32] += x[t]
    cuda.syncthreads()
    if t < 32:
        out[t] = s[t]


@fault(WAW, array="winner", args=lambda: (ramp(32), zeros(1)), expect=lambda x, out: 6)
def all_lanes_write(x, out):
    winner = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if x[t] > 5:
        winner[0] = x[t]  # fault
    cuda.syncthreads()
    if t == 0:
        out[0] = winner[0]


@all_lanes_write.twin
def one_lane_writes(x, out):
    winner = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if x[t] == 6:
        winner[0] = x[t]
    cuda.syncthreads()
    if t == 0:
        out[0] = winner[0]


@fault(WAW, array="s", block=64, args=lambda: (ramp(64), zeros(32)), expect=lambda x, out: x[32:])
def both_warps_write(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t % 32] = x[t]  # fault
    cuda.syncthreads()
    if t < 32:
        out[t] = s[t]


@both_warps_write.twin
def second_warp_writes(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t >= 32:
        s[t % 32] = x[t]
    cuda.syncthreads()
    if t < 32:
        out[t] = s[t]


@fault(WAW, array="s", block=64, args=lambda: (ramp(64), zeros(64)), expect=lambda x, out: np.where(np.arange(64) == 0, -1, x))
def two_statements_write(x, out):
    """Every thread fills its cell, and the last thread marks the first cell, at once."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    if t == 63:
        s[0] = -1  # fault
    cuda.syncthreads()
    out[t] = s[t]


@two_statements_write.twin
def two_statements_write_synced(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t == 63:
        s[0] = -1
    cuda.syncthreads()
    out[t] = s[t]


@fault(SAME, array="found", severity="warning", block=64, args=lambda: (ramp(64), zeros(64)), expect=lambda x, out: 1)
def flag_set_by_many(x, out):
    found = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        found[0] = 0
    cuda.syncthreads()
    if x[t] % 3 == 0:
        found[0] = 1  # fault
    cuda.syncthreads()
    out[t] = found[0]


@flag_set_by_many.twin
def flag_by_vote(x, out):
    t = cuda.threadIdx.x
    found = cuda.syncthreads_or(1 if x[t] % 3 == 0 else 0)
    out[t] = 1 if found else 0


@fault(SAME, array="found", severity="warning", grid=2, block=64, args=lambda: (ramp(128), zeros(2)), expect=lambda x, out: [0, 1])
def flag_set_by_two_warps(x, out):
    """One thread of each warp, the same value: never seen within an instruction."""
    found = cuda.shared.array(1, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t == 0:
        found[0] = 0
    cuda.syncthreads()
    if x[i] > 64 and t % 32 == 5:
        found[0] = 1  # fault
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = found[0]


@flag_set_by_two_warps.twin
def flag_set_by_atomics(x, out):
    found = cuda.shared.array(1, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t == 0:
        found[0] = 0
    cuda.syncthreads()
    if x[i] > 64 and t % 32 == 5:
        cuda.atomic.max(found, 0, 1)
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = found[0]


# ----------------------------------------------------------------------------------- types, dynamic memory, several arrays


@fault(RAW, array="s", args=io(32, np.int8), expect=lambda x, out: x.reshape(16, 2)[:, ::-1].ravel())
def bytes_of_a_neighbour(x, out):
    s = cuda.shared.array(32, int8)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    out[t] = s[t ^ 1]  # fault


@bytes_of_a_neighbour.twin
def bytes_of_its_own(x, out):
    """Four threads write the bytes of one word, and each reads its own again: no race."""
    s = cuda.shared.array(32, int8)
    t = cuda.threadIdx.x
    s[t ^ 1] = x[t]
    out[t ^ 1] = s[t ^ 1]


@fault(RAW, array="s", block=64, args=io(64, np.float64), expect=reversed_blocks(64))
def float64_reverse(x, out):
    s = cuda.shared.array(64, float64)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    cuda.syncwarp()
    out[t] = s[63 - t]  # fault


@float64_reverse.twin
def float64_reverse_synced(x, out):
    s = cuda.shared.array(64, float64)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[63 - t]


@fault(RAW, array="s", args=io(32, np.complex64), expect=lambda x, out: x * np.roll(x, -1))
def complex_products(x, out):
    s = cuda.shared.array(32, complex64)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    out[t] = x[t] * s[(t + 1) % 32]  # fault


@complex_products.twin
def complex_products_synced(x, out):
    s = cuda.shared.array(32, complex64)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    out[t] = x[t] * s[(t + 1) % 32]


@fault(RAW, array="s", args=io(32), expect=lambda x, out: x + 2 * x[::-1])
def fields_of_another(x, out):
    s = cuda.shared.array(32, pair)
    t = cuda.threadIdx.x
    s[t].a = x[t]
    s[31 - t].b = 2 * x[t]  # fault
    out[t] = s[t].a + s[t].b  # fault


@fields_of_another.twin
def fields_apart(x, out):
    """Two threads write one record, each a field of its own."""
    s = cuda.shared.array(32, pair)
    t = cuda.threadIdx.x
    s[t].a = x[t]
    s[31 - t].b = 2 * x[t]
    here = s[t].a
    cuda.syncwarp()
    out[t] = here + s[t].b


@fault(
    RAW,
    array=("cells", "dynamic shared memory"),
    block=64,
    shared_bytes=64 * 4,
    args=io(64),
    expect=reversed_blocks(64),
)
def dynamic_reverse(x, out):
    cells = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    cells[t] = x[t]  # fault
    out[t] = cells[63 - t]  # fault


@dynamic_reverse.twin
def dynamic_reverse_synced(x, out):
    cells = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    cells[t] = x[t]
    cuda.syncthreads()
    out[t] = cells[63 - t]


@fault(
    WAW,
    array=("cells", "first", "second"),
    block=64,
    shared_bytes=128 * 4,
    args=io(64),
    expect=lambda x, out: x[::-1] - x,
)
def slices_overlap(x, out):
    cells = cuda.shared.array(0, int32)
    first, second = cells[:64], cells[32:96]
    t = cuda.threadIdx.x
    first[t] = x[t]  # fault
    second[t] = -x[t]  # fault
    cuda.syncthreads()
    out[t] = first[63 - t] + second[t]


@slices_overlap.twin
def slices_apart(x, out):
    cells = cuda.shared.array(0, int32)
    first, second = cells[:64], cells[64:128]
    t = cuda.threadIdx.x
    first[t] = x[t]
    second[t] = -x[t]
    cuda.syncthreads()
    out[t] = first[63 - t] + second[t]


@fault(RAW, array="right", block=64, args=io(64), expect=lambda x, out: x + x[::-1])
def second_of_two_arrays(x, out):
    left, right = cuda.shared.array(64, int32), cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    left[t] = x[t]
    right[t] = x[t]  # fault
    out[t] = left[t] + right[63 - t]  # fault


@second_of_two_arrays.twin
def two_arrays_synced(x, out):
    left, right = cuda.shared.array(64, int32), cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    left[t] = x[t]
    right[t] = x[t]
    cuda.syncthreads()
    out[t] = left[t] + right[63 - t]
