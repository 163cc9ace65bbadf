"""Planted reads of memory that nobody wrote: shared cells, local arrays, cuda.device_array. The twins write each cell they read."""

from __future__ import annotations

import numpy as np
from numba import complex64, cuda, float32, from_dtype, int8, int32
from planted import fault, ramp, zeros

UNWRITTEN = "uninitialized_read"
LOCAL = ("mine", "a local array")
PAIR = np.dtype([("a", np.int32), ("b", np.int32)])
pair = from_dtype(PAIR)


def io(n: int, m: int | None = None):
    return lambda: (ramp(n), zeros(m or n))


def block_sums(x, out):
    return np.add.reduceat(x, np.arange(0, x.size, 64))


# ----------------------------------------------------------------------------------------------------------- halos, tiles


def three_point(x, out):
    padded = np.pad(x, 1)
    return padded[:-2] + padded[1:-1] + padded[2:]


@fault(UNWRITTEN, array="s", grid=2, block=64, args=io(128), expect=three_point)
def halo_not_loaded(x, out):
    s = cuda.shared.array(66, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t + 1] = x[i]
    cuda.syncthreads()
    out[i] = s[t] + s[t + 1] + s[t + 2]  # fault


@halo_not_loaded.twin
def halo_loaded(x, out):
    s = cuda.shared.array(66, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t + 1] = x[i]
    if t == 0:
        s[0] = x[i - 1] if i > 0 else 0
    if t == 63:
        s[65] = x[i + 1] if i + 1 < x.size else 0
    cuda.syncthreads()
    out[i] = s[t] + s[t + 1] + s[t + 2]


@fault(UNWRITTEN, array="s", grid=2, block=64, args=io(128), expect=three_point)
def halo_loaded_on_one_side(x, out):
    s = cuda.shared.array(66, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t + 1] = x[i]
    if t == 0:
        s[0] = x[i - 1] if i > 0 else 0
    cuda.syncthreads()
    left, middle = s[t], s[t + 1]
    out[i] = left + middle + s[t + 2]  # fault


@halo_loaded_on_one_side.twin
def halo_loaded_by_a_loop(x, out):
    """66 cells, filled by 64 threads."""
    s = cuda.shared.array(66, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    first = i - t - 1
    for k in range(t, 66, 64):
        s[k] = x[first + k] if 0 <= first + k < x.size else 0
    cuda.syncthreads()
    out[i] = s[t] + s[t + 1] + s[t + 2]


def sums_of_nine(a, out):
    p = np.pad(a, 1)
    n, m = a.shape
    return sum(p[dy : dy + n, dx : dx + m] for dy in range(3) for dx in range(3))


@fault(UNWRITTEN, array="tile", block=(8, 8), args=lambda: (ramp(8, 8), zeros(8, 8)), expect=sums_of_nine)
def corners_of_the_halo(a, out):
    """The sides are filled, and a box of nine needs the corners."""
    tile = cuda.shared.array((10, 10), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    tile[y + 1, x + 1] = a[y, x]
    if x == 0:
        tile[y + 1, 0] = 0
        tile[y + 1, 9] = 0
    if y == 0:
        tile[0, x + 1] = 0
        tile[9, x + 1] = 0
    cuda.syncthreads()
    total = 0
    for dy in range(3):
        for dx in range(3):
            total += tile[y + dy, x + dx]  # fault
    out[y, x] = total


@corners_of_the_halo.twin
def whole_halo(a, out):
    tile = cuda.shared.array((10, 10), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    for k in range(y * 8 + x, 100, 64):
        row, column = k // 10 - 1, k % 10 - 1
        inside = 0 <= row < 8 and 0 <= column < 8
        tile[row + 1, column + 1] = a[row, column] if inside else 0
    cuda.syncthreads()
    total = 0
    for dy in range(3):
        for dx in range(3):
            total += tile[y + dy, x + dx]
    out[y, x] = total


def two_matrices(n: int):
    return lambda: (ramp(n, n, dtype=np.float32), ramp(n, n, dtype=np.float32), zeros(n, n, dtype=np.float32))


@fault(UNWRITTEN, array=("a_s", "b_s"), grid=(2, 2), block=(8, 8), args=two_matrices(12), expect=lambda a, b, c: a @ b)
def last_tile_not_filled(a, b, c):
    """Cells beyond the matrices are left as they are, not set to zero."""
    a_s = cuda.shared.array((2, 8, 8), float32)
    b_s = cuda.shared.array((2, 8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    n = a.shape[0]
    total = float32(0.0)
    for tile in range(2):
        if y < n and tile * 8 + tx < n:
            a_s[tile, ty, tx] = a[y, tile * 8 + tx]
        if x < n and tile * 8 + ty < n:
            b_s[tile, ty, tx] = b[tile * 8 + ty, x]
        cuda.syncthreads()
        for k in range(8):
            total += a_s[tile, ty, k] * b_s[tile, k, tx]  # fault
        cuda.syncthreads()
    if x < n and y < n:
        c[y, x] = total


@last_tile_not_filled.twin
def last_tile_filled_with_zeros(a, b, c):
    a_s = cuda.shared.array((2, 8, 8), float32)
    b_s = cuda.shared.array((2, 8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    n = a.shape[0]
    total = float32(0.0)
    for tile in range(2):
        a_s[tile, ty, tx] = a[y, tile * 8 + tx] if y < n and tile * 8 + tx < n else float32(0.0)
        b_s[tile, ty, tx] = b[tile * 8 + ty, x] if x < n and tile * 8 + ty < n else float32(0.0)
        cuda.syncthreads()
        for k in range(8):
            total += a_s[tile, ty, k] * b_s[tile, k, tx]
        cuda.syncthreads()
    if x < n and y < n:
        c[y, x] = total


@fault(UNWRITTEN, array="tile", block=(8, 8), args=lambda: (ramp(8, 8), zeros(8, 8)), expect=lambda a, out: a.T)
def first_row_only(a, out):
    tile = cuda.shared.array((8, 8), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if y == 0:
        tile[y, x] = a[y, x]
    cuda.syncthreads()
    out[y, x] = tile[x, y]  # fault


@first_row_only.twin
def row_by_row(a, out):
    tile = cuda.shared.array((8, 8), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if y == 0:
        for row in range(8):
            tile[row, x] = a[row, x]
    cuda.syncthreads()
    out[y, x] = tile[x, y]


@fault(UNWRITTEN, array="s", args=lambda: (ramp(96), zeros(32)), expect=lambda x, out: x.reshape(3, 32)[:, ::-1].sum(0))
def first_buffer_not_filled(x, out):
    """Double buffering that begins with the second tile."""
    s = cuda.shared.array((2, 32), int32)
    t = cuda.threadIdx.x
    total = 0
    for tile in range(3):
        if tile < 2:
            s[(tile + 1) % 2, t] = x[(tile + 1) * 32 + t]
        total += s[tile % 2, 31 - t]  # fault
        cuda.syncthreads()
    out[t] = total


@first_buffer_not_filled.twin
def first_buffer_filled(x, out):
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


# --------------------------------------------------------------------------------------------------- sums, bins, flags


@fault(UNWRITTEN, array="s", grid=2, block=64, args=io(100, 2), expect=block_sums)
def tree_past_the_end(x, out):
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.size:
        s[t] = x[i]
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            s[t] += s[t + step]  # fault
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


@tree_past_the_end.twin
def tree_within_the_end(x, out):
    """The cells past the end stay unwritten, and unread."""
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.size:
        s[t] = x[i]
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step and i + step < x.size:
            s[t] += s[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


@fault(UNWRITTEN, array="bins", block=64, args=lambda: (ramp(64) % 10, zeros(16)), expect=lambda x, out: np.bincount(x, minlength=16))
def bins_not_zeroed(x, out):
    bins = cuda.shared.array(16, int32)
    t = cuda.threadIdx.x
    cuda.atomic.add(bins, x[t], 1)  # fault
    cuda.syncthreads()
    if t < 10:
        out[t] = bins[t]


@bins_not_zeroed.twin
def bins_zeroed(x, out):
    bins = cuda.shared.array(16, int32)
    t = cuda.threadIdx.x
    if t < 16:
        bins[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(bins, x[t], 1)
    cuda.syncthreads()
    if t < 16:
        out[t] = bins[t]


@fault(UNWRITTEN, array="s", block=64, args=lambda: (ramp(192), zeros(64)), expect=lambda x, out: x.reshape(3, 64).sum(0))
def sums_not_zeroed(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    for k in range(3):
        s[t] += x[k * 64 + t]  # fault
    out[t] = s[t]


@sums_not_zeroed.twin
def sums_zeroed(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = 0
    for k in range(3):
        s[t] += x[k * 64 + t]
    out[t] = s[t]


@fault(UNWRITTEN, array="found", grid=2, block=64, args=io(128, 2), expect=lambda x, out: [0, 1])
def flag_not_lowered(x, out):
    """Only a block that finds something writes its flag."""
    found = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if x[cuda.grid(1)] == 100:
        found[0] = 1
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = found[0]  # fault


@flag_not_lowered.twin
def flag_lowered(x, out):
    found = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        found[0] = 0
    cuda.syncthreads()
    if x[cuda.grid(1)] == 100:
        found[0] = 1
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = found[0]


@fault(UNWRITTEN, array="sums", block=128, args=io(128, 1), expect=lambda x, out: x.sum())
def sums_of_absent_warps(x, out):
    """Four warps leave four sums, and 32 lanes read 32."""
    sums = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    value = x[t]
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, step)
    if t % 32 == 0:
        sums[t // 32] = value
    cuda.syncthreads()
    if t < 32:
        value = sums[t]  # fault
        for step in (16, 8, 4, 2, 1):
            value += cuda.shfl_xor_sync(0xFFFFFFFF, value, step)
        if t == 0:
            out[0] = value


@sums_of_absent_warps.twin
def sums_of_present_warps(x, out):
    sums = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    value = x[t]
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, step)
    if t % 32 == 0:
        sums[t // 32] = value
    cuda.syncthreads()
    if t < 32:
        value = sums[t] if t < 4 else 0
        for step in (16, 8, 4, 2, 1):
            value += cuda.shfl_xor_sync(0xFFFFFFFF, value, step)
        if t == 0:
            out[0] = value


@fault(UNWRITTEN, array="s", block=64, args=io(64), expect=lambda x, out: x + np.where(x % 2 == 1, 0, np.roll(x, 1)))
def cells_of_even_threads(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    if t % 2 == 0:
        s[t] = x[t]
    cuda.syncthreads()
    out[t] = x[t] + s[t]  # fault


@cells_of_even_threads.twin
def cells_of_even_threads_read_by_odd(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    if t % 2 == 0:
        s[t] = x[t]
    cuda.syncthreads()
    out[t] = x[t] + (s[t - 1] if t % 2 == 1 else 0)


# ------------------------------------------------------------------------------------------------------------------- types


@fault(UNWRITTEN, array="s", args=lambda: (ramp(32, dtype=np.int8), zeros(32, dtype=np.int8)), expect=lambda x, out: np.repeat(x[::2], 2))
def odd_bytes(x, out):
    s = cuda.shared.array(32, int8)
    t = cuda.threadIdx.x
    if t % 2 == 0:
        s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[t]  # fault


@odd_bytes.twin
def even_bytes(x, out):
    s = cuda.shared.array(32, int8)
    t = cuda.threadIdx.x
    if t % 2 == 0:
        s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[t - t % 2]


@fault(UNWRITTEN, array="s", args=io(32), expect=lambda x, out: x + x[::-1])
def other_field(x, out):
    s = cuda.shared.array(32, pair)
    t = cuda.threadIdx.x
    s[t].a = x[t]
    cuda.syncthreads()
    here = s[t].a
    out[t] = here + s[31 - t].b  # fault


@other_field.twin
def same_field(x, out):
    s = cuda.shared.array(32, pair)
    t = cuda.threadIdx.x
    s[t].a = x[t]
    cuda.syncthreads()
    here = s[t].a
    out[t] = here + s[31 - t].a


@fault(
    UNWRITTEN,
    array="s",
    args=lambda: (ramp(31, dtype=np.complex64), zeros(32, dtype=np.complex64)),
    expect=lambda z, out: np.append(z, 0)[::-1],
)
def last_complex(z, out):
    s = cuda.shared.array(32, complex64)
    t = cuda.threadIdx.x
    if t < z.size:
        s[t] = z[t]
    cuda.syncthreads()
    out[t] = s[31 - t]  # fault


@last_complex.twin
def last_complex_zero(z, out):
    s = cuda.shared.array(32, complex64)
    t = cuda.threadIdx.x
    s[t] = z[t] if t < z.size else complex64(0.0)
    cuda.syncthreads()
    out[t] = s[31 - t]


@fault(UNWRITTEN, array="cells", block=64, shared_bytes=128 * 4, args=io(64), expect=lambda x, out: 2 * x[::-1])
def dynamic_second_half(x, out):
    cells = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    cells[t] = x[t]
    cuda.syncthreads()
    out[t] = cells[63 - t]
    out[t] += cells[127 - t]  # fault


@dynamic_second_half.twin
def dynamic_both_halves(x, out):
    cells = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    cells[t] = x[t]
    cells[64 + t] = x[t]
    cuda.syncthreads()
    out[t] = cells[63 - t]
    out[t] += cells[127 - t]


# ------------------------------------------------------------------------------------------------------------ local arrays


@fault(UNWRITTEN, array=LOCAL, severity="warning", args=lambda: (ramp(32) % 4, zeros(32)), expect=lambda x, out: x * x)
def last_local_element(x, out):
    mine = cuda.local.array(4, int32)
    t = cuda.threadIdx.x
    for k in range(3):
        mine[k] = k * k
    out[t] = mine[x[t]]  # fault


@last_local_element.twin
def all_local_elements(x, out):
    mine = cuda.local.array(4, int32)
    t = cuda.threadIdx.x
    for k in range(4):
        mine[k] = k * k
    out[t] = mine[x[t]]


def remainders(x, out):
    return np.stack([np.bincount(row % 4, minlength=4) for row in x])


@fault(UNWRITTEN, array=LOCAL, severity="warning", args=lambda: (ramp(32, 8), zeros(32, 4)), expect=remainders)
def local_counts_not_zeroed(x, out):
    mine = cuda.local.array(4, int32)
    t = cuda.threadIdx.x
    for k in range(x.shape[1]):
        mine[x[t, k] % 4] += 1  # fault
    for k in range(4):
        out[t, k] = mine[k]


@local_counts_not_zeroed.twin
def local_counts_zeroed(x, out):
    mine = cuda.local.array(4, int32)
    t = cuda.threadIdx.x
    for k in range(4):
        mine[k] = 0
    for k in range(x.shape[1]):
        mine[x[t, k] % 4] += 1
    for k in range(4):
        out[t, k] = mine[k]


@fault(UNWRITTEN, array=LOCAL, severity="warning", grid=2, args=io(64), expect=lambda x, out: np.where(x > 40, x, 0))
def local_written_under_a_condition(x, out):
    mine = cuda.local.array((2, 2), int32)
    i = cuda.grid(1)
    if x[i] > 40:
        mine[i % 2, 1] = x[i]
    out[i] = mine[i % 2, 1]  # fault


@local_written_under_a_condition.twin
def local_read_under_the_condition(x, out):
    mine = cuda.local.array((2, 2), int32)
    i = cuda.grid(1)
    if x[i] > 40:
        mine[i % 2, 1] = x[i]
    out[i] = mine[i % 2, 1] if x[i] > 40 else 0


# ------------------------------------------------------------------------------------------------------- cuda.device_array


@fault(
    UNWRITTEN,
    array="total",
    grid=2,
    block=32,
    args=lambda: (cuda.to_device(ramp(64)), cuda.device_array(1, np.int32)),
    twin_args=lambda: (cuda.to_device(ramp(64)), cuda.to_device(zeros(1))),
    expect=lambda x, total: x.sum(),
)
def atomics_on_device_array(x, total):
    cuda.atomic.add(total, 0, x[cuda.grid(1)])  # fault


@atomics_on_device_array.twin
def atomics_on_a_zero(x, total):
    cuda.atomic.add(total, 0, x[cuda.grid(1)])


@fault(
    UNWRITTEN,
    array="y",
    grid=2,
    block=32,
    args=lambda: (ramp(64), cuda.device_array(64, np.int32)),
    expect=lambda x, y: 2 * x,
)
def added_to_device_array(x, y):
    i = cuda.grid(1)
    y[i] += x[i]  # fault


@added_to_device_array.twin
def written_to_device_array(x, y):
    i = cuda.grid(1)
    y[i] = x[i]
    y[i] += x[i]


@fault(
    UNWRITTEN,
    array="steps",
    block=(8, 8),
    args=lambda: (ramp(8, 8), cuda.device_array((8, 8), np.int32), zeros(8, 8)),
    expect=lambda a, steps, out: np.where(np.indices((8, 8)).min(0) > 0, 2 * a, 0),
)
def border_of_device_array(a, steps, out):
    """Only the inside is written, and the row above is read."""
    x, y = cuda.grid(2)
    if x > 0 and y > 0:
        steps[y, x] = 2 * a[y, x]
    cuda.syncthreads()
    out[y, x] = steps[y, max(x - 1, 0)]  # fault


@border_of_device_array.twin
def inside_of_device_array(a, steps, out):
    x, y = cuda.grid(2)
    if x > 0 and y > 0:
        steps[y, x] = 2 * a[y, x]
    cuda.syncthreads()
    if x > 0 and y > 0:
        out[y, x] = steps[y, x]
    else:
        out[y, x] = 0


def half_copied(n: int):
    """device_array of which the host has filled the first half."""
    d = cuda.device_array(n, np.float32)
    d[: n // 2].copy_to_device(ramp(n // 2, dtype=np.float32))
    return d, cuda.device_array(n, np.float32)


@fault(UNWRITTEN, array="x", grid=2, block=32, args=lambda: half_copied(64), expect=lambda x, y: np.where(np.arange(64) < 32, 2 * x, 0))
def half_of_device_array(x, y):
    i = cuda.grid(1)
    y[i] = 2 * x[i]  # fault


@half_of_device_array.twin
def copied_half_of_device_array(x, y):
    i = cuda.grid(1)
    if i < x.size // 2:
        y[i] = 2 * x[i]
    else:
        y[i] = 0


# ------------------------------------------------------------------------------------------------------- never written


@fault("unwritten", array="out", severity="warning", grid=1, block=64, args=io(100), expect=lambda x, out: 2 * x)  # fault
def grid_too_small(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 2 * x[i]


@grid_too_small.twin
def grid_that_strides(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = 2 * x[i]


def matrices():
    return ramp(16, 20), zeros(16, 20)


@fault("unwritten", array="out", severity="warning", grid=(2, 2), block=(8, 8), args=matrices, expect=lambda a, out: a)  # fault
def tiles_rounded_down(a, out):
    """20 columns in tiles of 8 are two tiles and a half."""
    x, y = cuda.grid(2)
    if x < a.shape[1] and y < a.shape[0]:
        out[y, x] = a[y, x]


@tiles_rounded_down.twin
def tiles_with_the_rest(a, out):
    x, y = cuda.grid(2)
    if y < a.shape[0]:
        for column in range(x, a.shape[1], 16):
            out[y, column] = a[y, column]
