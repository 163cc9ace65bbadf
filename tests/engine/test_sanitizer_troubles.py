"""What people run into with races, barriers, bounds and uninitialised memory: the sanitizer names it, at its line, and says what to do.

Each test is one kind of public trouble, in a kernel of our own; test_troubles.py has the kinds that are no fault of the kernel.
"""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32, int32

import solcourse as sol

T, W = 8, 4
BINS = 6


def ramp(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def only(findings):
    (finding,) = findings
    return finding


# ------------------------------------------------------------------------------------------------------- lost updates (B01, B04)
@cuda.jit
def count_in_shared(out):
    s = cuda.shared.array(1, float32)
    if cuda.threadIdx.x == 0:
        s[0] = 0
    cuda.syncthreads()
    s[0] += 1
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[0] = s[0]


def test_barriers_around_an_update_do_not_make_it_whole(line_of):
    found = only(sol.sanitize(count_in_shared[1, 2], zeros(1)))
    assert (found.kind, found.severity, found.element, found.space) == ("lost_update", "error", "s[0]", "shared")
    assert found.line == found.other_line == line_of(count_in_shared, "s[0] += 1")
    assert {found.thread, found.other_thread} == {(0, 0, 0), (1, 0, 0)}
    assert "Threads 0 and 1 both read s[0], change it and write it back" in found.message
    assert "cuda.atomic.add(s, 0, 1)" in found.hint
    assert "a barrier does not make `+=` one step" in found.hint


@cuda.jit
def project(pixel, weight, image):
    ray = cuda.grid(1)
    p = pixel[ray]
    image[p // BINS, p % BINS] += weight[ray]


def test_rays_that_add_to_one_pixel_lose_updates(line_of):
    pixel = np.arange(4 * 64) % 20  # 20 pixels, 256 rays
    found = only(sol.sanitize(project[4, 64], pixel, ramp(256), zeros(4, BINS)))
    assert (found.kind, found.severity, found.array) == ("lost_update", "error", "image")
    assert found.line == line_of(project, "+=")
    y, x = divmod(found.index, BINS)
    assert found.element == f"image[{y}, {x}]"
    assert found.count > 100
    assert f"both read image[{y}, {x}]" in found.message
    assert "cuda.atomic.add(image, (p // BINS, p % BINS), weight[ray])" in found.hint
    ray, other = (64 * b[0] + t[0] for b, t in ((found.block, found.thread), (found.other_block, found.other_thread)))
    assert pixel[ray] == pixel[other] == found.index


# ------------------------------------------------------------------------------------------------------ tiles in turns (B02, B10)
@cuda.jit
def matmul_one_barrier(a, b, c):
    a_s = cuda.shared.array((W, W), float32)
    b_s = cuda.shared.array((W, W), float32)
    col, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range(a.shape[1] // W):
        a_s[ty, tx] = a[row, k * W + tx]
        b_s[ty, tx] = b[k * W + ty, col]
        cuda.syncthreads()
        for j in range(W):
            total += a_s[ty, j] * b_s[j, tx]
    c[row, col] = total


def test_the_second_barrier_of_tiles_is_missed_though_the_result_is_right(line_of):
    a, b, c = ramp(8, 8), ramp(8, 8)[::-1].copy(), zeros(8, 8)
    sol.run(matmul_one_barrier[(2, 2), (W, W)], a, b, c)
    np.testing.assert_array_equal(c, a @ b)  # a block is one warp, which is in lock step here
    found = sol.sanitize(matmul_one_barrier[(2, 2), (W, W)], a, b, zeros(8, 8))
    assert [(f.kind, f.severity, f.array) for f in found] == [("write_after_read", "error", name) for name in ("a_s", "b_s")]
    reads = line_of(matmul_one_barrier, "total +=")
    assert [(f.other_line, f.line) for f in found] == [(reads, line_of(matmul_one_barrier, f"{name}[ty, tx] =")) for name in ("a_s", "b_s")]
    for f in found:
        assert f"{f.element} at line {f.line} while" in f.message
        assert f"may still have to read it at line {reads}" in f.message
        assert "put cuda.syncthreads() at the end of the loop's body" in f.hint


def test_one_tile_is_one_turn_and_has_no_hazard():
    assert sol.sanitize(matmul_one_barrier[1, (W, W)], ramp(W, W), ramp(W, W), zeros(W, W)) == []


@cuda.jit
def matmul_edges(a, b, c):
    a_s = cuda.shared.array((T, T), float32)
    b_s = cuda.shared.array((T, T), float32)
    col, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range((a.shape[1] + T - 1) // T):
        if row < a.shape[0] and k * T + tx < a.shape[1]:
            a_s[ty, tx] = a[row, k * T + tx]
        if col < b.shape[1] and k * T + ty < b.shape[0]:
            b_s[ty, tx] = b[k * T + ty, col]
        cuda.syncthreads()
        for j in range(T):
            total += a_s[ty, j] * b_s[j, tx]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = total


@pytest.mark.parametrize("n", [12, 20])
def test_the_edges_of_tiles_that_nobody_fills_make_the_result_vary(line_of, n: int):
    found = sol.sanitize(matmul_edges[(-(-n // T),) * 2, (T, T)], ramp(n, n), ramp(n, n), zeros(n, n))
    assert {(f.kind, f.severity, f.line) for f in found} == {("uninitialized_read", "error", line_of(matmul_edges, "total +="))}
    assert {f.array for f in found} == {"a_s", "b_s"}
    for f in found:
        assert "has written: the result can change from run to run" in f.message
        assert f"Line {line_of(matmul_edges, f'{f.array}[ty, tx] =')} writes {f.array} only `if" in f.hint
        assert "write a value otherwise too, such as 0" in f.hint


def test_tiles_that_fit_have_edges_that_are_filled():
    assert sol.sanitize(matmul_edges[(2, 2), (T, T)], ramp(16, 16), ramp(16, 16), zeros(16, 16)) == []


# ------------------------------------------------------------------------------------------------------- lanes out of step (B07)
@cuda.jit
def last_steps(x, out):
    red = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    red[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        red[t] += red[t + 32]
        red[t] += red[t + 16]
        red[t] += red[t + 8]
        red[t] += red[t + 4]
        red[t] += red[t + 2]
        red[t] += red[t + 1]
    if t == 0:
        out[0] = red[0]


def test_a_warp_needs_syncwarp_between_the_last_steps_of_a_reduction(line_of):
    found = sol.sanitize(last_steps[1, 64], ramp(64), zeros(1))
    first, last = line_of(last_steps, "t + 32"), line_of(last_steps, "t + 1]")
    steps = [f for f in found if f.kind == "read_after_write"]
    assert {(first + k, first + k + 1) for k in range(last - first)} <= {(f.other_line, f.line) for f in steps}
    assert {(f.array, f.severity) for f in found} == {("red", "error")}
    for f in found:
        assert max(f.thread[0], f.other_thread[0]) < 32
        assert "The lanes of a warp are not in lock step" in f.hint
        assert "cuda.syncwarp()" in f.hint
        assert "syncthreads" not in f.hint  # half of the block is not there


# --------------------------------------------------------------------------------------------- guards and bounds (B08, B17, B20)
@cuda.jit
def matmul_and(a, b, c):
    a_s = cuda.shared.array((T, T), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    if x >= c.shape[0] and y >= c.shape[1]:
        return
    total = float32(0)
    for k in range(b.shape[0] // T):
        a_s[tx, ty] = a[x, k * T + ty]
        cuda.syncthreads()
        for j in range(T):
            total += a_s[tx, j] * b[k * T + j, y]
        cuda.syncthreads()
    c[x, y] = total


def test_and_for_or_in_a_guard_is_told_where_it_stands(line_of):
    found = only(sol.sanitize(matmul_and[(3, 3), (T, T)], ramp(20, 24), ramp(24, 20), zeros(20, 20)))
    assert (found.kind, found.severity, found.array) == ("out_of_bounds", "error", "a")
    assert found.line == line_of(matmul_and, "= a[x")
    assert (found.block, found.thread) == ((2, 0, 0), (4, 0, 0))  # x = 2 * 8 + 4 = 20
    assert "thread (4, 0, 0) of block (2, 0, 0) reads a[20, 0], but the array has shape (20, 24)" in found.message
    guard = line_of(matmul_and, " and ")
    assert found.hint.startswith(f"The guard at line {guard}, ")
    assert found.hint.endswith("lets it through: `and` should be `or`.")


@cuda.jit
def double_or(a, total):
    x, y = cuda.grid(2)
    if x < a.shape[0] or y < a.shape[1]:
        cuda.atomic.add(total, 0, a[x, y])


@cuda.jit
def right_and(a, out):
    x, y = cuda.grid(2)
    if x < a.shape[0] and y < a.shape[1]:
        out[x] = a[x + 1, y]


def test_or_for_and_around_an_access_is_told_and_a_right_and_is_not_blamed(line_of):
    found = only(sol.sanitize(double_or[(2, 2), (T, T)], ramp(12, 12), zeros(1)))
    assert f"The guard at line {line_of(double_or, ' or ')}" in found.hint
    assert "`or` should be `and`" in found.hint
    found = only(f for f in sol.sanitize(right_and[(2, 1), (T, 1)], ramp(12, 1), zeros(12)) if f.severity == "error")
    assert "should be" not in found.hint
    assert "does not cover this index: `if x + 1 < a.shape[0] and y < a.shape[1]:` would" in found.hint


@cuda.jit
def too_far(x, n):
    i = cuda.grid(1)
    if i <= n:
        x[i] = 1


@cuda.jit
def returns_too_late(x):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i > x.size:
        return
    x[i] = 1


@cuda.jit
def before_the_first(x, out):
    i = cuda.grid(1)
    out[i] = x[i - 100]


@pytest.mark.parametrize(
    ("launch", "args", "guard", "hint"),
    [
        (too_far[1, 64], (zeros(60), 60), "i <= n", "`<=` should be `<`"),
        (returns_too_late[2, 32], (zeros(60),), "i > x.size", "`>` should be `>=`"),
    ],
    ids=["under", "leaves"],
)
def test_a_guard_that_is_one_too_far_is_told(launch, args, guard: str, hint: str, line_of):
    found = only(sol.sanitize(launch, *args))
    assert found.kind == "out_of_bounds"
    assert found.index == 60
    assert f"`{guard}`, lets it through: {hint}" in found.hint


def test_an_index_far_below_zero_is_guarded_from_below():
    found = only(sol.sanitize(before_the_first[1, 32], ramp(64), zeros(32)))
    assert (found.kind, found.array) == ("out_of_bounds", "x")
    assert "`if i - 100 >= 0:`" in found.hint


@cuda.jit
def set_all(x):
    x[cuda.grid(1)] = 1


def test_what_a_gpu_passes_over_in_silence_is_said(line_of):
    found = only(sol.sanitize(set_all[2, 32], zeros(40)))
    assert (found.kind, found.severity, found.array, found.index) == ("out_of_bounds", "error", "x", 40)
    assert found.line == line_of(set_all, "x[")
    assert (found.block, found.thread) == ((1, 0, 0), (8, 0, 0))
    assert "A GPU would not have said anything." in found.message
    assert "There are 64 threads for 40 elements" in found.hint
    assert "`if cuda.grid(1) < x.size:`" in found.hint


@cuda.jit
def matmul_of_whole_tiles(a, b, c):
    a_s = cuda.shared.array((T, T), float32)
    b_s = cuda.shared.array((T, T), float32)
    col, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range((a.shape[1] + T - 1) // T):
        a_s[ty, tx] = a[row, k * T + tx]
        b_s[ty, tx] = b[k * T + ty, col]
        cuda.syncthreads()
        for j in range(T):
            total += a_s[ty, j] * b_s[j, tx]
        cuda.syncthreads()
    c[row, col] = total


@cuda.jit
def copy_guarded(a, c):
    col, row = cuda.grid(2)
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = a[row, col]


def test_a_grid_too_small_and_loads_past_the_end_are_two_findings(line_of):
    # 20 // 8 = 2 blocks: rows 16-19 have no thread; the third tile reaches to row 24
    found = sol.sanitize(matmul_of_whole_tiles[(20 // T, 20 // T), (T, T)], ramp(20, 20), ramp(20, 20), zeros(20, 20))
    assert [(f.kind, f.severity, f.array) for f in found] == [("out_of_bounds", "error", "b"), ("unwritten", "warning", "c")]
    stray, unwritten = found
    assert stray.line == line_of(matmul_of_whole_tiles, "b_s[ty, tx] =")
    assert "`if k * T + ty < b.shape[0] and col < b.shape[1]:`" in stray.hint
    assert "The last 4 rows of c are never written: it has 20, the grid 16 threads there." in unwritten.message
    assert "Round the number of blocks up" in unwritten.hint


def test_a_grid_too_small_is_told_without_a_stray_access_too_and_one_too_large_is_no_fault():
    small, large = ((20 // T,) * 2, (-(-20 // T),) * 2)
    found = only(sol.sanitize(copy_guarded[small, (T, T)], ramp(20, 20), zeros(20, 20)))
    assert (found.kind, found.severity, found.array) == ("unwritten", "warning", "c")
    assert sol.sanitize(copy_guarded[large, (T, T)], ramp(20, 20), zeros(20, 20)) == []


# ------------------------------------------------------------------------------------------------- divergent barriers (B13, B14)
@cuda.jit
def barrier_in_branch(x, out):
    s = cuda.shared.array(64, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i]
    if t < 16:
        s[t] += 1
        cuda.syncthreads()
    out[i] = s[t]


def test_a_barrier_in_a_branch_is_told_with_how_many_reached_it(line_of):
    found = only(sol.sanitize(barrier_in_branch[3, 64], ramp(192), zeros(192)))
    assert (found.kind, found.severity, found.count) == ("divergent_barrier", "error", 3)
    assert found.line == line_of(barrier_in_branch, "syncthreads")
    assert f"16 of 64 threads of block 0 wait at line {found.line}" in found.message
    assert f"out of the `if` at line {line_of(barrier_in_branch, 'if t < 16')}" in found.hint


@cuda.jit
def exchange_by_even_threads(x, out):
    s = cuda.shared.array(32, float32)
    tx = cuda.threadIdx.x
    s[tx] = x[tx]
    cuda.syncthreads()
    if tx % 2 == 0:
        a = s[tx]
        cuda.syncthreads()
        s[tx ^ 1] = a
        out[tx] = a


def test_threads_that_wait_for_those_that_have_ended_are_counted_and_nothing_hangs(line_of):
    found = only(sol.sanitize(exchange_by_even_threads[1, 32], ramp(32), zeros(32)))
    assert (found.kind, found.severity) == ("divergent_barrier", "error")
    branch = line_of(exchange_by_even_threads, "% 2")
    assert found.line == branch + 2
    assert f"16 of 32 threads of block 0 wait at line {found.line}" in found.message
    assert "but the other 16 passed by it and have ended" in found.message
    assert f"line {branch}" in found.hint
    assert "a GPU may hang" in found.hint


@cuda.jit
def leaves_early(x, out):
    s = cuda.shared.array(64, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i >= x.size:
        return
    s[t] = x[i]
    cuda.syncthreads()
    out[i] = s[t]


def test_an_early_return_before_a_barrier_is_legal():
    assert sol.sanitize(leaves_early[2, 64], ramp(100), zeros(100)) == []


# ------------------------------------------------------------------------------------------------------ stale shared cells (B15)
@cuda.jit
def block_sums(a, out):
    cache = cuda.shared.array(T, float32)
    i, local = cuda.grid(1), cuda.threadIdx.x
    if i < a.size:
        cache[local] = a[i]
    cuda.syncthreads()
    p = 1
    while p < T:
        if local % (2 * p) == 0 and i < a.size:  # and i + p < a.size
            cache[local] += cache[local + p]
        cuda.syncthreads()
        p *= 2
    if local == 0:
        out[cuda.blockIdx.x] = cache[0]


def test_a_shared_cell_that_its_block_has_not_written_is_told_with_the_block(line_of):
    found = only(sol.sanitize(block_sums[2, T], ramp(13), zeros(2)))  # cells 5, 6 and 7 of block 1 are stale
    assert (found.kind, found.severity, found.array, found.space) == ("uninitialized_read", "error", "cache", "shared")
    assert found.line == line_of(block_sums, "+=")
    assert found.block == (1, 0, 0)
    assert found.element in ("cache[5]", "cache[6]")
    assert f"reads {found.element} at line {found.line}, which no thread of block 1 has written" in found.message
    assert f"Line {line_of(block_sums, '= a[i]')} writes cache only `if i < a.size`" in found.hint
    assert sol.sanitize(block_sums[2, T], ramp(16), zeros(2)) == []


# ---------------------------------------------------------------------------------------------- dynamic shared memory (B51)
@cuda.jit
def halves_of_dynamic(x, out):
    whole = cuda.shared.array(0, float32)
    n = cuda.blockDim.x
    first, second = whole[:n], whole[n : 2 * n]
    t = cuda.threadIdx.x
    first[t] = x[t]
    second[t] = 2 * x[t]
    cuda.syncthreads()
    out[t] = first[n - 1 - t] + second[n - 1 - t]


def test_slices_of_dynamic_shared_memory_are_not_taken_for_one_another():
    x, out = ramp(64), zeros(64)
    assert sol.sanitize(halves_of_dynamic[1, 64, 0, 2 * 64 * 4], x, out) == []
    sol.run(halves_of_dynamic[1, 64, 0, 2 * 64 * 4], x, out)
    np.testing.assert_array_equal(out, 3 * x[::-1])


def test_slices_longer_than_the_dynamic_memory_are_told_with_the_bytes(line_of):
    found = only(sol.sanitize(halves_of_dynamic[1, 64, 0, 96 * 4], ramp(64), zeros(64)))
    assert (found.kind, found.line) == ("out_of_bounds", line_of(halves_of_dynamic, "second[t] ="))
    assert "writes element 96 of whole, but the array has 96 elements in the 384 bytes of dynamic shared memory" in found.message
    assert "halves_of_dynamic[grid, block, stream, bytes] gives each block that many bytes" in found.hint


# --------------------------------------------------------------------------------------------------------------- overflow (B57)
@cuda.jit
def index_in_32_bits(out):
    i = int32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    if i == 7:
        out[i] = 1
    elif i < 0:
        out[i & 7] = out[i]


@cuda.jit
def index_in_64_bits(out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = 1


def test_a_32_bit_index_that_wraps_is_found_in_the_middle_of_a_grid_of_five_billion_threads(line_of):
    out = np.zeros(8)
    found = sol.sanitize(index_in_32_bits[22121216, 256], out, sample_blocks=2)
    overflow = only(f for f in found if f.kind == "index_overflow")
    assert (overflow.severity, overflow.line) == ("error", line_of(index_in_32_bits, "= out[i]"))
    assert "does not fit into its integer type" in overflow.message
    assert "64 bits" in overflow.hint
    assert sol.sanitize(index_in_64_bits[22121216, 256], out, sample_blocks=2) == []


# -------------------------------------------------------------------------------------------------------------- grid sync (B62)
@cuda.jit
def exchange_over_the_grid(x, out):
    grid = cuda.cg.this_grid()
    col, row = cuda.grid(2)
    x[row, col] = row * 4 + col
    grid.sync()
    out[row, col] = x[1 - row, 3 - col]


@cuda.jit
def exchange_within_blocks_only(x, out):
    col, row = cuda.grid(2)
    x[row, col] = row * 4 + col
    cuda.syncthreads()
    out[row, col] = x[1 - row, 3 - col]


def test_the_grids_barrier_orders_blocks_of_two_dimensions_and_syncthreads_does_not(line_of):
    x, out = zeros(2, 4), zeros(2, 4)
    assert sol.sanitize(exchange_over_the_grid[(2, 1), (2, 2)], x, out) == []
    sol.run(exchange_over_the_grid[(2, 1), (2, 2)], x, out)
    np.testing.assert_array_equal(out, np.arange(8).reshape(2, 4)[::-1, ::-1])
    found = only(sol.sanitize(exchange_within_blocks_only[(2, 1), (2, 2)], zeros(2, 4), zeros(2, 4)))
    assert (found.kind, found.array) == ("read_after_write", "x")
    assert found.block != found.other_block
    assert "syncthreads() waits for no other block" in found.hint
