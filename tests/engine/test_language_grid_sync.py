"""this_grid().sync(): all blocks of a cooperative launch meet, see each other's writes, and have to fit the device together."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32, int32

import solcourse as sol
from solcourse.errors import BarrierError, LaunchError


@cuda.jit
def smoothed_20_times(x, y):
    """x (n,), y (n,): three-point mean, ends kept; x holds the result after an even number of steps."""
    g = cuda.cg.this_grid()
    first, step = cuda.grid(1), cuda.gridsize(1)
    for turn in range(20):
        a, b = (x, y) if turn % 2 == 0 else (y, x)
        for i in range(first, x.size, step):
            if 0 < i < x.size - 1:
                b[i] = (a[i - 1] + a[i] + a[i + 1]) / 3.0
            else:
                b[i] = a[i]
        g.sync()


def smoothed(x: np.ndarray, turns: int) -> np.ndarray:
    for _ in range(turns):
        y = x.copy()
        y[1:-1] = (x[:-2] + x[1:-1] + x[2:]) / 3.0
        x = y
    return x


@pytest.mark.parametrize(("n", "blocks", "threads"), [(1000, 8, 32), (1001, 3, 96), (4096, 32, 64), (7, 2, 40)])
def test_a_stencil_iterated_with_grid_sync_equals_numpy(launch, rng, n, blocks, threads):
    x = rng.random(n)
    got = x.copy()
    launch(smoothed_20_times[blocks, threads], got, np.zeros(n))
    np.testing.assert_allclose(got, smoothed(x, 20), rtol=1e-13)


@cuda.jit
def reversed_rows(m):
    """Each thread reads what the opposite thread of the grid wrote in the row before."""
    g = cuda.cg.this_grid()
    dx, dy, dz = cuda.gridDim.x * cuda.blockDim.x, cuda.gridDim.y * cuda.blockDim.y, cuda.gridDim.z * cuda.blockDim.z
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    z = cuda.blockIdx.z * cuda.blockDim.z + cuda.threadIdx.z
    column = (z * dy + y) * dx + x
    for row in range(1, m.shape[0]):
        m[row, column] = m[row - 1, dx * dy * dz - 1 - column] + column % 7
        g.sync()


@pytest.mark.parametrize(
    ("grid", "block"),
    [(6, 32), ((2, 1), (2, 2)), ((3, 2), (8, 5)), ((2, 3, 2), (4, 2, 3)), ((1, 1, 4), (3, 3, 4)), (1, 64), ((4, 2), 33)],
)
def test_all_threads_of_grids_of_any_shape_meet(launch, grid, block):
    """numba issue 8740: blocks of (2, 2) did not synchronise."""
    columns = int(np.prod(grid) * np.prod(block))
    m = np.zeros((21, columns), np.int64)
    launch(reversed_rows[grid, block], m)
    expected = np.zeros_like(m)
    for row in range(1, 21):
        expected[row] = expected[row - 1, ::-1] + np.arange(columns) % 7
    np.testing.assert_array_equal(m, expected)


@cuda.jit
def both_barriers(x, sums, out):
    """Block sums in shared memory, then every block reads all of them; shared memory outlives the grid's barrier."""
    tile = cuda.shared.array(64, float32)
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    tile[t] = x[b * 64 + t]
    large = cuda.syncthreads_count(1 if tile[t] > 0.5 else 0)
    g = cuda.cg.this_grid()
    g.sync()
    if t == 0:
        total = 0.0
        for k in range(64):
            total += tile[k]
        sums[b] = total
    g.sync()
    whole = 0.0
    for k in range(cuda.gridDim.x):
        whole += sums[k]
    out[b * 64 + t] = whole + large * 1000.0 + tile[63 - t]


def test_shared_memory_and_results_of_block_barriers_outlive_the_grids(launch, rng):
    x = rng.random(64 * 9).astype(np.float32)
    out = np.zeros(64 * 9)
    launch(both_barriers[9, 64], x, np.zeros(9), out)
    tiles = x.reshape(9, 64)
    expected = tiles.sum(dtype=float) + 1000.0 * (tiles > 0.5).sum(1)[:, None] + tiles[:, ::-1]
    np.testing.assert_allclose(out.reshape(9, 64), expected, rtol=1e-6)


@cuda.jit
def until_nothing_changes(labels, changed, rounds):
    """Labels of a path spread to its smallest: a loop whose end the whole grid agrees on."""
    g = cuda.cg.this_grid()
    i = cuda.grid(1)
    turn = 0
    while True:
        if i == 0:
            changed[(turn + 1) % 3] = 0
        g.sync()
        best = labels[i]
        if i > 0:
            best = min(best, labels[i - 1])
        g.sync()
        if best < labels[i]:
            labels[i] = best
            cuda.atomic.max(changed, turn % 3, 1)
        g.sync()
        turn += 1
        if changed[(turn - 1) % 3] == 0:
            break
    if i == 0:
        rounds[0] = turn


def test_a_loop_that_ends_by_agreement_of_all_blocks(launch, rng):
    """The smallest label, at place p, needs n - 1 - p turns to the end of the path, and one more that finds no change."""
    n = 160
    labels = rng.permutation(n).astype(np.int32)
    minima = np.minimum.accumulate(labels)
    wanted = max(k - np.flatnonzero(labels[: k + 1] == minima[k])[0] for k in range(n)) + 1
    rounds = np.zeros(1, np.int32)
    launch(until_nothing_changes[5, 32], labels, np.zeros(3, np.int32), rounds)
    np.testing.assert_array_equal(labels, minima)
    assert rounds[0] == wanted


@cuda.jit
def sync_on_two_lines(x, out):
    g = cuda.cg.this_grid()
    i = cuda.grid(1)
    if cuda.threadIdx.x % 2 == 0:
        x[i] = i
        g.sync()
    else:
        x[i] = -i
        g.sync()
    out[i] = x[x.size - 1 - i]


def test_lanes_that_arrive_at_different_lines_meet(launch):
    x, out = np.zeros(96, np.int64), np.zeros(96, np.int64)
    run = launch(sync_on_two_lines[3, 32], x, out)
    i = np.arange(96)
    np.testing.assert_array_equal(out, np.where(i % 2 == 0, i, -i)[::-1])
    assert run.findings == () or {f.kind for f in run.findings} == {"divergent_barrier"}


@cuda.jit
def some_threads_leave_first(x, out, n):
    i = cuda.grid(1)
    g = cuda.cg.this_grid()
    if cuda.threadIdx.x >= n:
        return
    x[i] = i + 1
    g.sync()
    out[i] = x[(i + cuda.blockDim.x) % x.size]


def test_threads_that_have_returned_are_not_waited_for(launch):
    x, out = np.zeros(128, np.int64), np.zeros(128, np.int64)
    launch(some_threads_leave_first[2, 64], x, out, 40)
    i = np.arange(128)
    np.testing.assert_array_equal(out, np.where(i % 64 < 40, (i + 64) % 128 + 1, 0))


# ---- counts


@cuda.jit
def synchronised_thrice(x):
    g = cuda.cg.this_grid()
    for _ in range(3):
        x[cuda.grid(1)] += 1
        g.sync()


def test_a_grid_sync_counts_as_the_two_block_barriers_it_is_made_of(launch):
    """4 blocks x 2 warps x 3 syncs x 2 barriers: CUDA's grid.sync() is barrier, one thread's wait for the other blocks, barrier."""
    run = launch(synchronised_thrice[4, 64], np.zeros(256, np.int32))
    assert run.counts.barriers == 4 * 2 * 3 * 2
    assert run.counts.global_load.requests == 4 * 2 * 3
    assert run.counts.global_atomic.requests == 0


STENCIL = smoothed_20_times, (np.arange(500.0), np.zeros(500))


@pytest.mark.parametrize(("kernel", "args"), [STENCIL, (synchronised_thrice, (np.zeros(256),))])
def test_counts_trace_and_outputs_do_not_depend_on_the_number_of_threads(launch, kernel, args):
    runs, outputs = [], []
    for threads in (1, 2, 2):
        copies = [a.copy() for a in args]
        runs.append(launch(kernel[4, 64], *copies, threads=threads))
        outputs.append(copies)
    for run, output in zip(runs[1:], outputs[1:], strict=True):
        assert run.counts == runs[0].counts
        assert run.lines == runs[0].lines
        for got, wanted in zip(output, outputs[0], strict=True):
            np.testing.assert_array_equal(got, wanted)
        for part in ("blocks", "offsets", "words"):
            np.testing.assert_array_equal(getattr(run.trace, part), getattr(runs[0].trace, part))


def test_the_trace_holds_each_block_in_one_piece(launch):
    """Per block 2 warps x 3 turns x (load and store): 12 requests, of one line each (256 bytes of int32 a block, 128 a warp)."""
    run = launch(synchronised_thrice[4, 64], np.zeros(256, np.int32))
    np.testing.assert_array_equal(run.trace.blocks, np.arange(4))
    np.testing.assert_array_equal(np.diff(run.trace.offsets), [24] * 4)
    for b in range(4):
        words = run.trace.words[run.trace.offsets[b] : run.trace.offsets[b + 1]]
        lines = words[words >> np.uint64(63) == 0] >> np.uint64(32)
        assert len(np.unique(lines)) == 2
        assert lines.min() - run.trace.words[1] // 2**32 == 2 * b


# ---- what cannot work


def test_a_cooperative_launch_must_fit_the_device(line_of):
    """T4: 40 SMs x 1,024 threads each: one block of 1,024 on each."""
    with sol.use_engine("T4"), pytest.raises(LaunchError, match=r"at most 40 fit .*T4.*COOPERATIVE_LAUNCH_TOO_LARGE") as caught:
        synchronised_thrice[41, 1024](np.zeros(41 * 1024))
    assert caught.value.line == line_of(synchronised_thrice, "this_grid")
    x = np.zeros(40 * 1024)
    with sol.use_engine("T4"):
        synchronised_thrice[40, 1024](x)
    assert (x == 3).all()


def test_what_fits_is_what_numba_says_fits():
    with sol.use_engine("T4"):
        kernel = cuda.jit("void(float64[:])")(synchronised_thrice.py_func)
        fits = next(iter(kernel.overloads.values())).max_cooperative_grid_blocks(1024)
        assert next(iter(kernel.overloads.values())).cooperative
        kernel[fits, 1024](np.zeros(fits * 1024))
        with pytest.raises(LaunchError, match=f"at most {fits} fit"):
            kernel[fits + 1, 1024](np.zeros(fits * 1024 + 1024))


def test_profile_asks_its_own_device():
    x = np.zeros(41 * 1024)
    report = sol.profile(synchronised_thrice[41, 1024], x, device="A100-SXM4-80GB")
    assert report.counts.barriers == 41 * 32 * 3 * 2
    with pytest.raises(LaunchError, match="at most 40 fit"):
        sol.profile(synchronised_thrice[41, 1024], x, device="T4")


@cuda.jit
def a_block_leaves_first(x):
    g = cuda.cg.this_grid()
    if cuda.blockIdx.x == 2:
        return
    x[cuda.grid(1)] = 1
    g.sync()
    x[cuda.grid(1)] = 2


def test_a_block_that_returns_before_the_grids_barrier_is_a_deadlock_that_is_found(launch, line_of):
    with pytest.raises(BarrierError, match=r"3 blocks \(6 warps, 192 threads\) wait at the grid's barrier .* 1 block returned") as caught:
        launch(a_block_leaves_first[4, 64], np.zeros(256))
    assert caught.value.line == line_of(a_block_leaves_first, "g.sync()")
    (finding,) = [f for f in sol.sanitize(a_block_leaves_first[4, 64], np.zeros(256)) if f.severity == "error"]
    assert (finding.kind, finding.line) == ("deadlock", caught.value.line)


@cuda.jit
def first_thread_leaves(x):
    g = cuda.cg.this_grid()
    i = cuda.grid(1)
    if i == 64:
        return
    g.sync()
    x[i] = 1


def test_a_block_without_its_first_thread_never_arrives(launch):
    with pytest.raises(BarrierError, match=r"Thread \(0, 0, 0\) of block \(1, 0, 0\) has returned"):
        launch(first_thread_leaves[3, 64], np.zeros(192))


@cuda.jit
def one_warp_at_the_wrong_barrier(x):
    g = cuda.cg.this_grid()
    if cuda.threadIdx.x < 32:
        cuda.syncthreads()
    else:
        g.sync()
    x[cuda.grid(1)] = 1


def test_warps_at_the_blocks_and_at_the_grids_barrier_wait_for_ever(launch, line_of):
    with pytest.raises(BarrierError) as caught:
        launch(one_warp_at_the_wrong_barrier[2, 64], np.zeros(128))
    for text in ("g.sync()", "syncthreads()"):
        assert f"at line {line_of(one_warp_at_the_wrong_barrier, text)}" in str(caught.value)


def test_a_sample_of_blocks_meets_among_itself(launch):
    """4 of 16 blocks: counts are scaled by 4, and nothing waits for the blocks that do not run."""
    x = np.zeros(16 * 64, np.int32)
    run = launch(synchronised_thrice[16, 64], x, sample_blocks=4)
    assert run.counts.barriers == 16 * 2 * 3 * 2
    assert x.sum() == 4 * 64 * 3


@cuda.jit
def asks_for_the_grid_only(x):
    cuda.cg.this_grid()
    x[cuda.grid(1)] = 1


def test_a_group_that_never_synchronises_needs_no_order(launch):
    x = np.zeros(2048, int32.name)
    launch(asks_for_the_grid_only[64, 32], x)
    assert x.all()
