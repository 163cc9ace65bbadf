"""Planted accesses out of bounds, indices that wrap around or overflow, misaligned views; twins go up to the edge and no further."""

from __future__ import annotations

import numpy as np
from numba import cuda, float32, float64, int32
from planted import fault, ramp, zeros

OUT, WRAPPED, OVERFLOW = "out_of_bounds", "wrapped_index", "index_overflow"
LOCAL = ("mine", "a local array")
CONSTANT = ("table", "a constant array")
PAIR = np.dtype([("a", np.int32), ("b", np.int32)])
SQUARES = np.arange(8, dtype=np.int32) ** 2


def io(n: int, m: int | None = None):
    return lambda: (ramp(n), zeros(m or n))


def doubled(x, out):
    return 2 * x


# ----------------------------------------------------------------------------------------------------------------- guards


@fault(OUT, array=("x", "out"), grid=2, block=64, args=io(100), expect=doubled)
def no_guard(x, out):
    i = cuda.grid(1)
    out[i] = 2 * x[i]  # fault


@no_guard.twin
def guarded(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 2 * x[i]


@fault(OUT, array=("x", "out"), grid=2, block=64, args=io(100), expect=doubled)
def guard_off_by_one(x, out):
    i = cuda.grid(1)
    if i <= x.size:
        out[i] = 2 * x[i]  # fault


@guard_off_by_one.twin
def guard_by_early_return(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    out[i] = 2 * x[i]


@fault(OUT, array="x", grid=2, block=32, args=io(64), expect=lambda x, out: np.append(x[:-1] + x[1:], x[-1]))
def neighbour_of_the_last(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + x[i + 1]  # fault


@neighbour_of_the_last.twin
def neighbour_of_all_but_the_last(x, out):
    i = cuda.grid(1)
    if i < x.size - 1:
        out[i] = x[i] + x[i + 1]
    elif i == x.size - 1:
        out[i] = x[i]


@fault(OUT, array=("a", "out"), grid=(2, 3), block=(16, 8), args=lambda: (ramp(20, 32), zeros(20, 32)), expect=doubled)
def guard_with_and(a, out):
    """Rows 20 to 23 do not exist; a thread leaves only where both indices are too large."""
    x, y = cuda.grid(2)
    if x >= a.shape[1] and y >= a.shape[0]:
        return
    out[y, x] = 2 * a[y, x]  # fault


@guard_with_and.twin
def guard_with_or(a, out):
    x, y = cuda.grid(2)
    if x >= a.shape[1] or y >= a.shape[0]:
        return
    out[y, x] = 2 * a[y, x]


@fault(OUT, array=("a", "out"), grid=(2, 3), block=(16, 8), args=lambda: (ramp(20, 32), zeros(20, 32)), expect=doubled)
def guard_with_or_around_the_work(a, out):
    x, y = cuda.grid(2)
    if x < a.shape[1] or y < a.shape[0]:
        out[y, x] = 2 * a[y, x]  # fault


@guard_with_or_around_the_work.twin
def guard_with_and_around_the_work(a, out):
    x, y = cuda.grid(2)
    if x < a.shape[1] and y < a.shape[0]:
        out[y, x] = 2 * a[y, x]


@fault(OUT, array=("a", "out"), grid=(4, 1), block=(8, 16), args=lambda: (ramp(12, 32), zeros(12, 32)), expect=doubled)
def guard_of_one_dimension(a, out):
    x, y = cuda.grid(2)
    if x < a.shape[1]:
        out[y, x] = 2 * a[y, x]  # fault


@guard_of_one_dimension.twin
def guard_of_both_dimensions(a, out):
    x, y = cuda.grid(2)
    if x < a.shape[1] and y < a.shape[0]:
        out[y, x] = 2 * a[y, x]


@fault(OUT, array="a", grid=(2, 1), block=(16, 8), args=lambda: (ramp(8, 24), zeros(8)), expect=lambda a, out: a.sum(1))
def guard_of_rows_only(a, out):
    """In all rows but the last, what is beyond the end is the next row: wrong, but there."""
    x, y = cuda.grid(2)
    if y < a.shape[0]:
        cuda.atomic.add(out, y, a[y, x])  # fault


@guard_of_rows_only.twin
def guard_of_rows_and_columns(a, out):
    x, y = cuda.grid(2)
    if y < a.shape[0] and x < a.shape[1]:
        cuda.atomic.add(out, y, a[y, x])


@fault(OUT, array="a", grid=(3, 2), block=(8, 8), args=lambda: (ramp(16, 24), zeros(16, 24)), expect=doubled)
def indices_swapped(a, out):
    x, y = cuda.grid(2)
    if x < a.shape[1] and y < a.shape[0]:
        out[y, x] = 2 * a[x, y]  # fault


@indices_swapped.twin
def indices_in_order(a, out):
    x, y = cuda.grid(2)
    if x < a.shape[1] and y < a.shape[0]:
        out[y, x] = 2 * a[y, x]


@fault(OUT, array="out", grid=(2, 3), block=(8, 8), args=lambda: (ramp(24, 16), zeros(16, 24)), expect=lambda a, out: a.T)
def transposed_to_the_wrong_shape(a, out):
    x, y = cuda.grid(2)
    if x < a.shape[1] and y < a.shape[0]:
        out[y, x] = a[y, x]  # fault


@transposed_to_the_wrong_shape.twin
def transposed(a, out):
    x, y = cuda.grid(2)
    if x < a.shape[1] and y < a.shape[0]:
        out[x, y] = a[y, x]


@fault(OUT, array=("a", "out"), grid=(1, 1, 2), block=(4, 4, 4), args=lambda: (ramp(6, 4, 4), zeros(6, 4, 4)), expect=doubled)
def third_dimension(a, out):
    x, y, z = cuda.grid(3)
    out[z, y, x] = 2 * a[z, y, x]  # fault


@third_dimension.twin
def third_dimension_guarded(a, out):
    x, y, z = cuda.grid(3)
    if z < a.shape[0]:
        out[z, y, x] = 2 * a[z, y, x]


@fault(OUT, array=("x", "out"), block=32, args=io(120), expect=doubled)
def last_chunk(x, out):
    """32 chunks of 4 are 128."""
    first = 4 * cuda.threadIdx.x
    for i in range(first, first + 4):
        out[i] = 2 * x[i]  # fault


@last_chunk.twin
def last_chunk_cut(x, out):
    first = 4 * cuda.threadIdx.x
    for i in range(first, min(first + 4, x.size)):
        out[i] = 2 * x[i]


@fault(OUT, array="a", block=32, args=lambda: (ramp(32, 7), zeros(32)), expect=lambda a, out: a.sum(1))
def rows_one_column_too_long(a, out):
    """Seen only in the last row: the others read the next row's first number."""
    row = cuda.grid(1)
    total = 0
    for k in range(a.shape[1] + 1):
        total += a[row, k]  # fault
    out[row] = total


@rows_one_column_too_long.twin
def rows(a, out):
    row = cuda.grid(1)
    total = 0
    for k in range(a.shape[1]):
        total += a[row, k]
    out[row] = total


@fault(
    OUT,
    array="x",
    grid=2,
    block=32,
    args=lambda: (ramp(50), np.append(np.arange(63), 50), zeros(64)),
    expect=lambda x, at, out: np.where(at < 50, x[at % 50], 0),
)
def gather(x, at, out):
    """The indices are data, and some are wrong."""
    i = cuda.grid(1)
    if at[i] <= 50:
        out[i] = x[at[i]]  # fault


@gather.twin
def gather_checked(x, at, out):
    i = cuda.grid(1)
    if at[i] < x.size:
        out[i] = x[at[i]]


@fault(OUT, array="bins", grid=2, block=32, args=lambda: (ramp(64) % 11, zeros(10)), expect=lambda x, bins: np.bincount(x)[:10])
def atomic_beyond_the_bins(x, bins):
    cuda.atomic.add(bins, x[cuda.grid(1)], 1)  # fault


@atomic_beyond_the_bins.twin
def atomic_into_the_bins(x, bins):
    value = x[cuda.grid(1)]
    if value < bins.size:
        cuda.atomic.add(bins, value, 1)


@fault(OUT, array="rows", block=32, args=lambda: (np.zeros(20, PAIR), zeros(32)), expect=lambda rows, out: 0)
def records(rows, out):
    i = cuda.grid(1)
    out[i] = rows[i].b  # fault


@records.twin
def records_guarded(rows, out):
    i = cuda.grid(1)
    if i < rows.size:
        out[i] = rows[i].b


@fault(
    OUT,
    array="z",
    grid=2,
    block=32,
    args=lambda: (ramp(64, dtype=np.complex64), zeros(64, dtype=np.complex64)),
    expect=lambda z, out: np.append(z[1:], z[0]),
)
def complex_shift(z, out):
    i = cuda.grid(1)
    out[i] = z[i + 1]  # fault


@complex_shift.twin
def complex_rotation(z, out):
    i = cuda.grid(1)
    out[i] = z[(i + 1) % z.size]


@fault(OUT, array="x", grid=2, block=32, args=io(64), expect=lambda x, out: np.append(np.zeros(40), x[:-40]))
def far_before_the_start(x, out):
    """Too far for numba's wrap-around to lead back into the array."""
    i = cuda.grid(1)
    out[i] = x[i - 200]  # fault


@far_before_the_start.twin
def delayed(x, out):
    i = cuda.grid(1)
    if i >= 40:
        out[i] = x[i - 40]
    else:
        out[i] = 0


# ------------------------------------------------------------------------------------------------- shared, local, constant


@fault(OUT, array="s", block=64, args=io(64, 32), expect=lambda x, out: x[:32][::-1])
def shared_too_small(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # fault
    cuda.syncthreads()
    if t < 32:
        out[t] = s[31 - t]


@shared_too_small.twin
def shared_for_half_the_block(x, out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        out[t] = s[31 - t]


@fault(OUT, array="s", grid=2, block=64, args=io(128), expect=lambda x, out: np.roll(x.reshape(2, 64), -1, axis=1).ravel())
def shared_neighbour(x, out):
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]
    cuda.syncthreads()
    out[i] = s[t + 1]  # fault


@shared_neighbour.twin
def shared_neighbour_around(x, out):
    s = cuda.shared.array(64, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]
    cuda.syncthreads()
    out[i] = s[(t + 1) % 64]


@fault(OUT, array="left", block=32, args=io(32), expect=lambda x, out: 3 * np.roll(x, -1))
def into_the_next_shared_array(x, out):
    """The cell behind the first array belongs to the second."""
    left = cuda.shared.array(32, int32)
    right = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    left[t] = x[t]
    right[t] = 2 * x[t]
    cuda.syncthreads()
    out[t] = left[t + 1] + right[(t + 1) % 32]  # fault


@into_the_next_shared_array.twin
def two_shared_arrays(x, out):
    left = cuda.shared.array(32, int32)
    right = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    left[t] = x[t]
    right[t] = 2 * x[t]
    cuda.syncthreads()
    out[t] = left[(t + 1) % 32] + right[(t + 1) % 32]


@fault(OUT, array="tile", block=(8, 16), args=lambda: (ramp(16, 8), zeros(16, 8)), expect=doubled)
def tile_of_the_wrong_height(a, out):
    tile = cuda.shared.array((8, 8), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    tile[y, x] = a[y, x]  # fault
    out[y, x] = 2 * a[y, x]


@tile_of_the_wrong_height.twin
def tile_of_the_right_height(a, out):
    tile = cuda.shared.array((16, 8), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    tile[y, x] = a[y, x]
    out[y, x] = 2 * tile[y, x]


@fault(OUT, array="bins", block=32, args=lambda: (ramp(32) % 9, zeros(8)), expect=lambda x, out: np.bincount(x)[:8])
def shared_bins(x, out):
    bins = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    if t < 8:
        bins[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(bins, x[t], 1)  # fault
    cuda.syncthreads()
    if t < 8:
        out[t] = bins[t]


@shared_bins.twin
def shared_bins_checked(x, out):
    bins = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    if t < 8:
        bins[t] = 0
    cuda.syncthreads()
    if x[t] < 8:
        cuda.atomic.add(bins, x[t], 1)
    cuda.syncthreads()
    if t < 8:
        out[t] = bins[t]


@fault(OUT, array="cells", block=64, shared_bytes=64 * 4, args=io(64), expect=lambda x, out: np.roll(x, -1))
def dynamic_neighbour(x, out):
    cells = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    cells[t] = x[t]
    cuda.syncthreads()
    out[t] = cells[t + 1]  # fault


@dynamic_neighbour.twin
def dynamic_neighbour_around(x, out):
    cells = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    cells[t] = x[t]
    cuda.syncthreads()
    out[t] = cells[(t + 1) % 64]


@fault(OUT, array="cells", block=64, shared_bytes=64 * 4, args=lambda: (ramp(64, dtype=np.float32), zeros(64)), expect=lambda x, out: x)
def dynamic_of_a_wider_type(x, out):
    """64 float32 were asked for, and float64 are stored."""
    cells = cuda.shared.array(0, float64)
    t = cuda.threadIdx.x
    cells[t] = x[t]  # fault
    out[t] = x[t]


@dynamic_of_a_wider_type.twin
def dynamic_of_the_right_type(x, out):
    cells = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    cells[t] = x[t]
    out[t] = cells[t]


@fault(OUT, array=LOCAL, block=32, args=lambda: (ramp(32) % 5, zeros(32)), expect=lambda x, out: np.where(x < 4, x * x, 0))
def local_array(x, out):
    mine = cuda.local.array(4, int32)
    t = cuda.threadIdx.x
    for k in range(4):
        mine[k] = k * k
    out[t] = mine[x[t]]  # fault


@local_array.twin
def local_array_checked(x, out):
    mine = cuda.local.array(4, int32)
    t = cuda.threadIdx.x
    for k in range(4):
        mine[k] = k * k
    if x[t] < 4:
        out[t] = mine[x[t]]


@fault(OUT, array=LOCAL, grid=2, block=32, args=lambda: (1 + ramp(64) % 6, zeros(64)), expect=lambda x, out: x)
def local_stack(x, out):
    """Threads push as many numbers as they are told."""
    mine = cuda.local.array(4, int32)
    i = cuda.grid(1)
    top = 0
    for k in range(x[i]):
        mine[top] = k  # fault
        top += 1
    out[i] = mine[0] + top


@local_stack.twin
def local_stack_of_enough(x, out):
    mine = cuda.local.array(6, int32)
    i = cuda.grid(1)
    top = 0
    for k in range(x[i]):
        mine[top] = k
        top += 1
    out[i] = mine[0] + top


@fault(OUT, array=CONSTANT, block=32, args=lambda: (ramp(32) % 9, zeros(32)), expect=lambda x, out: (x % 8) ** 2)
def constant_table(x, out):
    table = cuda.const.array_like(SQUARES)
    t = cuda.threadIdx.x
    out[t] = table[x[t]]  # fault


@constant_table.twin
def constant_table_around(x, out):
    table = cuda.const.array_like(SQUARES)
    t = cuda.threadIdx.x
    out[t] = table[x[t] % 8]


# ------------------------------------------------------------------------------------------------------------------- tiles


def two_matrices(n: int):
    return lambda: (ramp(n, n, dtype=np.float32), ramp(n, n, dtype=np.float32), zeros(n, n, dtype=np.float32))


@fault(OUT, array="a", grid=(2, 2), block=(8, 8), args=two_matrices(12), expect=lambda a, b, c: a @ b)
def last_tiles_of_a_unguarded(a, b, c):
    """12 is no multiple of 8: the second tiles stick out below and to the right."""
    a_s = cuda.shared.array((8, 8), float32)
    b_s = cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    n = a.shape[0]
    total = float32(0.0)
    for tile in range(2):
        a_s[ty, tx] = a[y, tile * 8 + tx]  # fault
        b_s[ty, tx] = b[tile * 8 + ty, x] if x < n and tile * 8 + ty < n else float32(0.0)
        cuda.syncthreads()
        for k in range(8):
            total += a_s[ty, k] * b_s[k, tx]
        cuda.syncthreads()
    if x < n and y < n:
        c[y, x] = total


@last_tiles_of_a_unguarded.twin
def last_tiles_of_a_guarded(a, b, c):
    a_s = cuda.shared.array((8, 8), float32)
    b_s = cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    n = a.shape[0]
    total = float32(0.0)
    for tile in range(2):
        a_s[ty, tx] = a[y, tile * 8 + tx] if y < n and tile * 8 + tx < n else float32(0.0)
        b_s[ty, tx] = b[tile * 8 + ty, x] if x < n and tile * 8 + ty < n else float32(0.0)
        cuda.syncthreads()
        for k in range(8):
            total += a_s[ty, k] * b_s[k, tx]
        cuda.syncthreads()
    if x < n and y < n:
        c[y, x] = total


@fault(OUT, array="b", grid=(2, 2), block=(8, 8), args=two_matrices(12), expect=lambda a, b, c: a @ b)
def last_tiles_of_b_unguarded(a, b, c):
    """The guard is of the row that a thread computes, not of the one it loads."""
    a_s = cuda.shared.array((8, 8), float32)
    b_s = cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    n = a.shape[0]
    total = float32(0.0)
    for tile in range(2):
        a_s[ty, tx] = a[y, tile * 8 + tx] if y < n and tile * 8 + tx < n else float32(0.0)
        b_s[ty, tx] = b[tile * 8 + ty, x] if y < n and x < n else float32(0.0)  # fault
        cuda.syncthreads()
        for k in range(8):
            total += a_s[ty, k] * b_s[k, tx]
        cuda.syncthreads()
    if x < n and y < n:
        c[y, x] = total


@last_tiles_of_b_unguarded.twin
def last_tiles_of_b_guarded(a, b, c):
    a_s = cuda.shared.array((8, 8), float32)
    b_s = cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    n = a.shape[0]
    total = float32(0.0)
    for tile in range(2):
        a_s[ty, tx] = a[y, tile * 8 + tx] if y < n and tile * 8 + tx < n else float32(0.0)
        b_s[ty, tx] = b[tile * 8 + ty, x] if x < n and tile * 8 + ty < n else float32(0.0)
        cuda.syncthreads()
        for k in range(8):
            total += a_s[ty, k] * b_s[k, tx]
        cuda.syncthreads()
    if x < n and y < n:
        c[y, x] = total


def three_point(x, out):
    padded = np.pad(x, 1)
    return padded[:-2] + padded[1:-1] + padded[2:]


@fault(OUT, array="x", grid=2, block=32, args=io(64), expect=three_point)
def right_halo(x, out):
    s = cuda.shared.array(34, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t + 1] = x[i]
    if t == 0:
        s[0] = x[i - 1] if i > 0 else 0
    if t == 31:
        s[33] = x[i + 1]  # fault
    cuda.syncthreads()
    out[i] = s[t] + s[t + 1] + s[t + 2]


@right_halo.twin
def right_halo_guarded(x, out):
    s = cuda.shared.array(34, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t + 1] = x[i]
    if t == 0:
        s[0] = x[i - 1] if i > 0 else 0
    if t == 31:
        s[33] = x[i + 1] if i + 1 < x.size else 0
    cuda.syncthreads()
    out[i] = s[t] + s[t + 1] + s[t + 2]


# -------------------------------------------------------------------------------------------------------- negative indices


@fault(WRAPPED, array="x", severity="warning", grid=2, block=32, args=io(64), expect=three_point)
def left_halo(x, out):
    """x[-1] of the first block is the last element of all."""
    s = cuda.shared.array(34, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t + 1] = x[i]
    if t == 0:
        s[0] = x[i - 1]  # fault
    if t == 31:
        s[33] = x[i + 1] if i + 1 < x.size else 0
    cuda.syncthreads()
    out[i] = s[t] + s[t + 1] + s[t + 2]


@left_halo.twin
def left_halo_guarded(x, out):
    s = cuda.shared.array(34, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t + 1] = x[i]
    if t == 0:
        s[0] = x[i - 1] if i > 0 else 0
    if t == 31:
        s[33] = x[i + 1] if i + 1 < x.size else 0
    cuda.syncthreads()
    out[i] = s[t] + s[t + 1] + s[t + 2]


@fault(WRAPPED, array="x", severity="warning", grid=2, block=32, args=io(64), expect=lambda x, out: x - np.roll(x, 1))
def difference_to_the_left(x, out):
    i = cuda.grid(1)
    out[i] = x[i] - x[i - 1]  # fault


@difference_to_the_left.twin
def difference_to_the_left_around(x, out):
    """A literal -1 means the last element, and is meant."""
    i = cuda.grid(1)
    if i == 0:
        out[i] = x[i] - x[-1]
    else:
        out[i] = x[i] - x[i - 1]


@fault(WRAPPED, array="out", severity="warning", block=64, args=io(64), expect=lambda x, out: np.roll(x, -1))
def written_to_the_left(x, out):
    i = cuda.grid(1)
    out[i - 1] = x[i]  # fault


@written_to_the_left.twin
def written_to_the_left_around(x, out):
    i = cuda.grid(1)
    if i == 0:
        out[-1] = x[0]
    else:
        out[i - 1] = x[i]


@fault(
    WRAPPED,
    array="a",
    severity="warning",
    block=(8, 8),
    args=lambda: (ramp(8, 8), zeros(8, 8)),
    expect=lambda a, out: a - np.vstack([a[:1], a[:-1]]),
)
def row_above(a, out):
    x, y = cuda.grid(2)
    out[y, x] = a[y, x] - a[y - 1, x]  # fault


@row_above.twin
def row_above_clamped(a, out):
    x, y = cuda.grid(2)
    out[y, x] = a[y, x] - a[max(y - 1, 0), x]


@fault(WRAPPED, array="s", severity="warning", block=64, args=io(64), expect=lambda x, out: np.append(0, x[:-1]))
def shared_to_the_left(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[t - 1]  # fault


@shared_to_the_left.twin
def shared_to_the_left_guarded(x, out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[t - 1] if t > 0 else 0


@fault(
    WRAPPED,
    array="x",
    severity="warning",
    block=32,
    args=lambda: (ramp(32), -(ramp(32) % 2), zeros(32)),
    expect=lambda x, at, out: np.where(at < 0, 0, x[0]),
)
def index_of_minus_one(x, at, out):
    """-1 in the table stands for `none`."""
    i = cuda.grid(1)
    out[i] = x[at[i]]  # fault


@index_of_minus_one.twin
def index_of_minus_one_checked(x, at, out):
    i = cuda.grid(1)
    if at[i] >= 0:
        out[i] = x[at[i]]


@fault(
    WRAPPED, array=LOCAL, severity="warning", block=32, args=lambda: (ramp(32) % 4, zeros(32)), expect=lambda x, out: np.maximum(x - 1, 0)
)
def local_to_the_left(x, out):
    mine = cuda.local.array(4, int32)
    t = cuda.threadIdx.x
    for k in range(4):
        mine[k] = k
    out[t] = mine[x[t] - 1]  # fault


@local_to_the_left.twin
def local_to_the_left_clamped(x, out):
    mine = cuda.local.array(4, int32)
    t = cuda.threadIdx.x
    for k in range(4):
        mine[k] = k
    out[t] = mine[max(x[t] - 1, 0)]


# ---------------------------------------------------------------------------------------------------------- index overflow


@fault(OVERFLOW, array="x", grid=2, block=32, args=lambda: (2**32, ramp(64), zeros(64)), expect=lambda first, x, out: 0)
def window_in_32_bits(first, x, out):
    """Element 2**32 + t does not exist; in 32 bits it is element t."""
    t = cuda.grid(1)
    i = np.int32(first + t)
    if i < x.size:
        out[t] = x[i]  # fault


@window_in_32_bits.twin
def window_in_64_bits(first, x, out):
    t = cuda.grid(1)
    i = first + t
    if i < x.size:
        out[t] = x[i]


@fault(OVERFLOW, OUT, array="x", grid=2, block=32, args=lambda: (2**31, ramp(64), zeros(64)), expect=lambda first, x, out: 0)
def negative_past_the_guard(first, x, out):
    """2**31 in 32 bits is negative, so less than any size."""
    t = cuda.grid(1)
    i = np.int32(first + t)
    if i < x.size:
        out[t] = x[i]  # fault


@negative_past_the_guard.twin
def beyond_the_guard(first, x, out):
    t = cuda.grid(1)
    i = np.int64(first + t)
    if i < x.size:
        out[t] = x[i]


@fault(OVERFLOW, array="out", block=(8, 8), args=lambda: (2**30, zeros(8)), expect=lambda pitch, out: 1)
def pitch_in_32_bits(pitch, out):
    """Row 4 begins at 4 * 2**30 = 2**32, which is 0 in 32 bits."""
    x, y = cuda.grid(2)
    at = np.int32(y * pitch + x)
    if y < 5 and 0 <= at < 8:
        cuda.atomic.max(out, at, 1)  # fault


@pitch_in_32_bits.twin
def pitch_in_64_bits(pitch, out):
    x, y = cuda.grid(2)
    at = y * pitch + x
    if y < 5 and 0 <= at < 8:
        cuda.atomic.max(out, at, 1)


@fault(OVERFLOW, array="x", grid=2, block=32, args=lambda: (ramp(256), zeros(64)), expect=lambda x, out: x[(200 + np.arange(64)) % 256])
def index_in_one_byte(x, out):
    """100 + 28 and more do not fit int8."""
    i = cuda.grid(1)
    at = np.int8(100 + i)
    out[i] = x[at]  # fault


@index_in_one_byte.twin
def index_in_one_unsigned_byte(x, out):
    """Unsigned numbers wrap around on purpose."""
    i = cuda.grid(1)
    at = np.uint8(200 + i)
    out[i] = x[at]


@fault(
    OVERFLOW,
    array="x",
    block=32,
    args=lambda: (2**32 - 16, ramp(64), zeros(32)),
    expect=lambda start, x, out: x[((np.arange(32) * 2654435761).astype(np.int32) >> 7) & 63],
)
def negative_by_overflow(start, x, out):
    """From lane 0 on the index is -16 + t: it wraps into the array's end, and none of it was meant."""
    t = cuda.grid(1)
    at = np.int32(start + t)
    if at < 16:
        out[t] = x[at]  # fault


@negative_by_overflow.twin
def hashed(start, x, out):
    """A hash is meant to overflow."""
    t = cuda.grid(1)
    mixed = np.int32(t * 2654435761)
    out[t] = x[(mixed >> 7) & 63]


# -------------------------------------------------------------------------------------------------------------- misaligned


def float64_view(offset: int):
    """float64 (32,) at a byte offset of device memory, and an output."""
    raw = cuda.to_device(np.zeros(33 * 8, np.uint8))
    return raw[offset : offset + 32 * 8].view(np.float64), cuda.to_device(zeros(32, dtype=np.float64))


@fault(
    "misaligned",
    array="x",
    block=32,
    args=lambda: float64_view(4),
    twin_args=lambda: float64_view(8),
    expect=lambda x, out: 1,
)
def view_at_an_odd_offset(x, out):
    i = cuda.grid(1)
    out[i] = x[i] + 1  # fault


@view_at_an_odd_offset.twin
def view_at_an_even_offset(x, out):
    i = cuda.grid(1)
    out[i] = x[i] + 1


# -------------------------------------------------------------------------------------------------------------- recursion


@cuda.jit(device=True)
def steps_down(n):
    if n == 0:
        return 0
    return 1 + steps_down(n - 2)  # fault


@cuda.jit(device=True)
def steps_to_the_ground(n):
    if n <= 0:
        return 0
    return 1 + steps_to_the_ground(n - 2)


@fault(
    "stack_overflow",
    array="the stack of recursive calls",
    helpers=(steps_down,),
    args=lambda: (ramp(32), zeros(32)),
    expect=lambda x, out: (x + 1) // 2,
)
def recursion_past_its_end(x, out):
    """From an odd number, two at a time, one never meets zero."""
    i = cuda.grid(1)
    out[i] = steps_down(np.int64(x[i]))


@recursion_past_its_end.twin
def recursion_to_its_end(x, out):
    i = cuda.grid(1)
    out[i] = steps_to_the_ground(np.int64(x[i]))
