"""Warp-level control, exactly: branches and their divergence, barriers, active lanes, and who is off."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32

from solcourse.kernels import cases
from solcourse.kernels.copy import copy
from solcourse.kernels.mandelbrot import mandelbrot


@cuda.jit
def odd_lanes_store(out):
    t = cuda.threadIdx.x
    if t % 2 == 1:  # decided per lane
        out[t] = 1.0


@cuda.jit
def odd_warps_store(out):
    t = cuda.threadIdx.x
    if t // 32 % 2 == 1:  # decided per warp
        out[t] = 1.0


@cuda.jit
def one_warp_splits(out):
    t = cuda.threadIdx.x
    if t < 50:  # decided per warp but for one
        out[t] = 1.0


@pytest.mark.parametrize(
    ("kernel", "divergent", "requests"),
    [
        (odd_lanes_store, 4, 4),  # every warp splits
        (odd_warps_store, 0, 2),  # none does
        (one_warp_splits, 1, 2),  # lanes 50 - 32 = 18 to 31 of warp 1 jump
    ],
)
def test_a_branch_diverges_when_lanes_of_one_warp_disagree(launch, counts_at, kernel, divergent, requests):
    run = launch(kernel[1, 128], np.zeros(128, np.float32))
    counts = counts_at(run, kernel, "# decided")
    assert (counts.branches, counts.divergent_branches) == (4, divergent)
    assert (run.counts.branches, run.counts.divergent_branches) == (4, divergent)
    assert run.counts.global_store.requests == requests


@pytest.mark.parametrize(("n", "divergent"), [(1024, 0), (1000, 1), (993, 1), (992, 0), (1, 1)])
def test_a_guard_diverges_in_the_ragged_warp_only(launch, n, divergent):
    """1000 = 31 * 32 + 8: one warp in which 8 lanes pass. 992 = 31 * 32: the last warp is off as a whole."""
    run = launch(copy[4, 256], np.ones(n, np.float32), np.zeros(n, np.float32))
    assert (run.counts.branches, run.counts.divergent_branches) == (32, divergent)


def test_lanes_that_do_not_exist_do_not_diverge(launch):
    """Blocks of 40 threads: the second warp has 8 lanes, and they agree."""
    run = launch(copy[4, 40], np.ones(160, np.float32), np.zeros(160, np.float32))
    assert (run.counts.branches, run.counts.divergent_branches) == (8, 0)


@cuda.jit
def loops_by_lane(trips, out):
    i = cuda.grid(1)
    total = float32(0.0)
    for k in range(trips[i]):
        total = total * total + float32(1.0)
        out[k, i] = total  # the body


def test_a_loop_runs_as_often_as_its_longest_lane(launch, counts_at):
    """Warp 0: every lane 5 trips. Warp 1: lane l takes l trips, so 31 executions for 0 + 1 + ... + 31 = 496 lane-trips."""
    trips = np.r_[np.full(32, 5), np.arange(32)]
    run = launch(loops_by_lane[1, 64], trips, np.zeros((32, 64), np.float32))
    store = counts_at(run, loops_by_lane, "# the body").global_store
    assert (store.requests, store.bytes) == (5 + 31, 4 * (32 * 5 + 496))
    assert run.counts.flops["fp32"] == 2 * (32 * 5 + 496)


def test_uniform_loops_never_diverge(launch, rng):
    c = cases("polynomial")["polynomial"]
    run = launch(c.configured(1024), *c.make(rng, 1024))
    assert run.counts.divergent_branches == 0
    assert run.counts.average_active_lanes == 32.0


def test_average_active_lanes_of_a_full_launch_is_32(launch):
    run = launch(copy[4, 256], np.ones(1024, np.float32), np.zeros(1024, np.float32))
    assert run.counts.average_active_lanes == 32.0
    assert run.counts.thread_instructions == 32 * run.counts.warp_instructions


def test_average_active_lanes_of_half_warps_is_16(launch):
    run = launch(copy[64, 16], np.ones(1024, np.float32), np.zeros(1024, np.float32))
    assert run.counts.average_active_lanes == 16.0


def test_mandelbrot_loses_lanes(launch, rng):
    c = cases("mandelbrot")["mandelbrot"]
    run = launch(c.configured(64, 64), *c.make(rng, 64, 64))
    assert run.counts.divergent_branches > 0
    assert 8 < run.counts.average_active_lanes < 31
    assert run.program.kernel == mandelbrot.py_func.__name__


def barriers_of(launch, rng, name, *shape):
    c = cases()[name]
    return launch(c.configured(*shape), *c.make(rng, *shape)).counts.barriers


@pytest.mark.parametrize(
    ("name", "shape", "barriers"),
    [
        ("vector_add", (1024,), 0),
        ("transpose_padded", (64, 96), 6 * 8),  # 6 tiles of 8 warps, one barrier each
        ("matmul_tiled", (32, 32, 64), 4 * 8 * 4 * 2),  # 4 blocks of 8 warps, 64 / 16 = 4 steps, two barriers each
        ("reduce_interleaved", (1024,), 4 * 8 * (1 + 8)),  # 4 blocks of 8 warps; one, then one for each of 8 steps
        ("reduce_sequential", (1024,), 4 * 8 * (1 + 8)),
        ("reduce_last_warp", (1024,), 2 * 8 * (1 + 3)),  # 2 blocks; steps 128, 64, 32 only
        ("reduce_shuffle", (1024,), 2 * 8),  # one
        ("softmax_block_per_row", (16, 256), 16 * 4 * (1 + 7 + 1 + 1 + 7)),  # 4 warps; 7 steps in each tree
        ("softmax_warp_per_row", (16, 256), 0),
    ],
)
def test_barriers_count_once_per_warp(launch, rng, name, shape, barriers):
    assert barriers_of(launch, rng, name, *shape) == barriers


@cuda.jit
def two_lines(x, out):
    i = cuda.grid(1)
    a = x[2 * i]  # stride 2
    b = x[i]  # stride 1
    out[i] = a + b  # sum


def test_counts_belong_to_their_source_line(launch, counts_at, line_of):
    """128 threads, 4 warps: 8, 4 and 4 sectors per request; one add per thread; nothing anywhere else."""
    run = launch(two_lines[2, 64], np.ones(256, np.float32), np.zeros(128, np.float32))
    assert counts_at(run, two_lines, "# stride 2").global_load.sectors == 4 * 8
    assert counts_at(run, two_lines, "# stride 1").global_load.sectors == 4 * 4
    total = counts_at(run, two_lines, "# sum")
    assert (total.global_store.sectors, total.flops["fp32"]) == (4 * 4, 128)
    assert {entry.file for entry in run.lines} == {__file__}
    first, last = line_of(two_lines, "i = cuda.grid(1)"), line_of(two_lines, "# sum")
    assert all(first - 2 <= entry.line <= last for entry in run.lines)


@cuda.jit(device=True)
def fetch(x, i):
    return x[i]  # in the device function


@cuda.jit
def calls_fetch(x, out):
    i = cuda.grid(1)
    out[i] = fetch(x, i) + fetch(x, 2 * i)


def test_counts_inside_a_device_function_belong_to_its_line(launch, counts_at):
    """Both calls load at the one line of fetch: 4 warps of 4 + 8 sectors."""
    run = launch(calls_fetch[2, 64], np.ones(256, np.float32), np.zeros(128, np.float32))
    load = counts_at(run, fetch, "# in the device function").global_load
    assert (load.requests, load.sectors) == (8, 4 * (4 + 8))


@cuda.jit
def several_arrays(left, right, out):
    i = cuda.grid(1)
    out[i] = left[i] + right[3 * i]


def test_every_site_knows_its_array(launch):
    """left 4, right 12, out 4 sectors per request."""
    run = launch(several_arrays[2, 64], np.ones(128, np.float32), np.ones(384, np.float32), np.zeros(128, np.float32))
    found = {
        site.array: (site.kind, site.size, counts.sectors_per_request)
        for site, counts in zip(run.program.sites, run.site_counts, strict=True)
    }
    assert found == {"left": ("global_load", 4, 4.0), "right": ("global_load", 4, 12.0), "out": ("global_store", 4, 4.0)}
