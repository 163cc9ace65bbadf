"""Launches that must stop, and messages that must name the right thing: what a hostile or careless launch can do."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from numba import cuda, float32

from solcourse.errors import LaunchError, OutOfBounds, RunawayKernel


@cuda.jit
def guarded(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = 1


def test_a_huge_grid_without_loops_stops_at_the_limit(launch):
    with pytest.raises(RunawayKernel, match=r"2,147,483,647 blocks of 1,024 threads"):
        launch(guarded[2**31 - 1, 1024], np.zeros(4), total_s=0.5)


def test_a_huge_grid_without_loops_stops_on_ctrl_c(launch):
    timer = threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT))
    launch(guarded[1, 32], np.zeros(4))
    timer.start()
    with pytest.raises(RunawayKernel, match="interrupted"):
        launch(guarded[2**31 - 1, 1024], np.zeros(4), total_s=60)
    timer.join()


@cuda.jit
def strays_in_block(x, first):
    if cuda.blockIdx.x >= first:
        x[cuda.grid(1)] = 1


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_stray_block_is_reported_and_later_ones_do_not_run(launch, threads):
    """200 million blocks would take minutes: the launch ends when block 5 has strayed, whatever thread ran it."""
    with pytest.raises(OutOfBounds) as caught:
        launch(strays_in_block[200_000_000, 32], np.zeros(4), 5, threads=threads)
    assert caught.value.finding.block == (5, 0, 0)


@cuda.jit
def second_row(a):
    a[1, cuda.grid(1)] = 1


def test_the_index_of_a_fortran_array_is_named_in_its_own_order(launch):
    """(20, 3) in Fortran order: thread 3 writes a[1, 3]; bytes 8 x (1 + 20 x 3) = 488 of 480."""
    with pytest.raises(OutOfBounds, match=r"a\[1, 3\].*shape \(20, 3\)"):
        launch(second_row[1, 32], np.zeros((20, 3), order="F"))


@cuda.jit
def second_array_overrun(out):
    left = cuda.shared.array(8, float32)
    right = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    left[t % 8] = 1
    right[t] = 1
    out[0] = left[0] + right[0]


def test_a_shared_array_is_named_as_the_kernel_names_it(launch, line_of):
    with pytest.raises(OutOfBounds, match="element 8 of right, but the array has 8 elements") as caught:
        launch(second_array_overrun[1, 32], np.zeros(4))
    assert caught.value.line == line_of(second_array_overrun, "right[t] = 1")


@cuda.jit
def dynamic(out):
    tile = cuda.shared.array(0, float32)
    tile[cuda.threadIdx.x] = 1
    out[0] = tile[0]


def test_more_shared_memory_than_any_gpu_has_is_refused(launch):
    launch(dynamic[1, 32, 0, 227 * 1024], np.zeros(1, np.float32))
    with pytest.raises(LaunchError, match="10,000,000"):
        launch(dynamic[1, 32, 0, 10_000_000], np.zeros(1, np.float32))


@cuda.jit
def barrier_in_a_branch(x, n):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = t
    if t < n:
        tile[t] += 1
        cuda.syncthreads()
    x[t] = tile[(t + 1) % 64]


@cuda.jit
def barrier_after_an_early_return(x, n):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    if t >= n:
        return
    tile[t] = t
    cuda.syncthreads()
    x[t] = tile[(t + 1) % n]


def test_lanes_that_pass_by_a_barrier_are_a_warning(launch, line_of):
    run = launch(barrier_in_a_branch[1, 64], np.zeros(64), 20)
    assert [(f.kind, f.severity, f.line) for f in run.findings] == [
        ("divergent_barrier", "warning", line_of(barrier_in_a_branch, "syncthreads"))
    ]


@cuda.jit
def work_then_an_early_return(x, n):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = t
    cuda.syncthreads()
    if t >= n:
        x[t] = tile[(t + 1) % 64]
        return
    tile[t] += 1
    cuda.syncthreads()


@pytest.mark.parametrize("kernel", [barrier_after_an_early_return, work_then_an_early_return])
def test_returning_before_a_barrier_is_legal(launch, kernel):
    """Whatever a thread does before: a barrier waits for the threads that have not returned."""
    assert launch(kernel[1, 64], np.zeros(64), 20).findings == ()


@cuda.jit
def to_integer(x, out):
    out[cuda.grid(1)] = int(x[cuda.grid(1)])


def test_nan_as_a_64_bit_integer_is_its_lowest_value(launch):
    """PTX: NaN converts to 1 << 63 where the integer has 64 bits."""
    out = np.zeros(32, np.int64)
    launch(to_integer[1, 32], np.full(32, np.nan), out)
    np.testing.assert_array_equal(out, np.full(32, np.iinfo(np.int64).min))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_can_launch(launch):
    x = np.zeros(32)
    launch(guarded[1, 32], x)
    child = os.fork()
    if child == 0:
        try:
            launch(guarded[1, 32], x)
        finally:
            os._exit(int(x[0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
