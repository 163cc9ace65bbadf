"""Short ifs are issued with the block that asks, long ones and those with barriers or loops are not."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32, uint64

import solcourse as sol

N = 256
FOUR_N = 4 * N


@cuda.jit
def short_if(x, out):
    """A side of a few instructions: no branch."""
    i = cuda.grid(1)
    v = x[i]
    if v > float32(0):
        out[i] = v
    out[i + N] = v


@cuda.jit
def long_if(x, out):
    """A side of more than seven: a branch around it."""
    i = cuda.grid(1)
    v = x[i]
    if v > float32(0):
        for k in range(8):
            out[i + N * (k % 2)] = v * v + float32(k)
            v = v * float32(1.5) - float32(1)
    out[i] = v


@cuda.jit
def loop_in_if(x, out):
    i = cuda.grid(1)
    v = x[i]
    if v > float32(0):
        k = 0
        while v < float32(100):
            v += v
            k += 1
    out[i] = v


def counts(kernel, x):
    return sol.profile(kernel[1, N], x, np.zeros(2 * N, np.float32))


def test_a_short_if_costs_its_slots_whether_or_not_it_is_taken():
    taken, not_taken = (counts(short_if, np.full(N, v, np.float32)) for v in (1, -1))
    assert taken.counts.warp_instructions == not_taken.counts.warp_instructions
    # what it does is counted where lanes do it: one store of two, or both
    assert (taken.counts.global_store.requests, not_taken.counts.global_store.requests) == (16, 8)
    assert taken.counts.pipes["lsu"] - not_taken.counts.pipes["lsu"] == 8
    assert not_taken.counts.branches == 8  # as the source has it


def test_a_long_if_costs_nothing_where_it_is_not_taken():
    taken, not_taken = (counts(long_if, np.full(N, v, np.float32)) for v in (1, -1))
    assert taken.counts.warp_instructions > 1.5 * not_taken.counts.warp_instructions


def test_a_loop_is_never_predicated():
    once, never = (counts(loop_in_if, np.full(N, v, np.float32)) for v in (99, -1))
    longer = counts(loop_in_if, np.full(N, 1, np.float32))
    assert never.counts.warp_instructions < once.counts.warp_instructions < longer.counts.warp_instructions


@cuda.jit
def guarded_fill(x, out):
    """Four guarded loads, one after another; unsigned, or numba's wrap-around would make the sides long."""
    tile = cuda.shared.array(FOUR_N, float32)
    i = uint64(cuda.threadIdx.x)
    for k in range(4):
        j = i + uint64(N) * uint64(k)
        if j < uint64(x.size):
            tile[j] = x[j]
        else:
            tile[j] = float32(0)
    cuda.syncthreads()
    out[i] = tile[i] + tile[i + uint64(N)] + tile[i + uint64(2 * N)] + tile[i + uint64(3 * N)]


def test_guarded_loads_are_under_way_together():
    report = sol.profile(guarded_fill[1, N], np.ones(4 * N, np.float32), np.zeros(N, np.float32))
    far = report.device.lat_dram
    # one latency of DRAM (a little more for the slowest of four lines), not four
    assert far < report.prediction.warp_cycles < 2 * far


@pytest.mark.parametrize("kernel", [short_if, long_if, loop_in_if, guarded_fill])
def test_every_block_of_the_program_keeps_its_operations(kernel):
    report = counts(kernel, np.ones(4 * N, np.float32))
    ops = [op for block in report.run.program.blocks for op in block.ops]
    sites = sorted(op.site for op in ops if op.site >= 0)
    assert sites == [site.index for site in report.run.program.sites]  # each once
    made = [op.dest for op in ops if op.dest >= 0]
    assert len(made) == len(set(made))
