"""Forward progress: lanes, warps and blocks that wait for others let them run, as on GPUs since Volta."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, int32

from solcourse.errors import RunawayKernel


@cuda.jit
def locked_increment(lock, counter, n):
    done = False
    if cuda.grid(1) < n:
        while not done:
            if cuda.atomic.cas(lock, 0, 0, 1) == 0:
                counter[0] = counter[0] + 1
                cuda.threadfence()
                cuda.atomic.exch(lock, 0, 0)
                done = True


@pytest.mark.parametrize("blocks", [1, 5])
def test_a_lock_serves_every_lane_of_every_warp_and_block(launch, blocks):
    lock, counter = np.zeros(1, np.int32), np.zeros(1, np.int64)
    launch(locked_increment[blocks, 96], lock, counter, 96 * blocks - 10, limit_s=10)
    assert (int(counter[0]), int(lock[0])) == (96 * blocks - 10, 0)


@cuda.jit
def first_warp_waits_for_the_second(out):
    ready = cuda.shared.array(1, int32)
    value = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    if t == 0:
        ready[0] = 0
    cuda.syncthreads()
    if t < 32:
        while cuda.atomic.add(ready, 0, 0) == 0:
            pass
        out[t] = value[t + 32]
    else:
        value[t] = 3 * t
        cuda.threadfence_block()
        if t == 63:
            cuda.atomic.exch(ready, 0, 1)
    cuda.syncthreads()
    out[t + 64] = value[32 + t % 32]


def test_a_warp_may_wait_for_a_later_warp_and_meet_it_at_a_barrier(launch):
    out = np.zeros(128, np.int32)
    launch(first_warp_waits_for_the_second[1, 64], out, limit_s=10)
    np.testing.assert_array_equal(out[:32], 3 * np.arange(32, 64))
    np.testing.assert_array_equal(out[64:], 3 * (32 + np.arange(64) % 32))


@cuda.jit
def prefix_by_look_back(flags, totals, out):
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if t == 0:
        before = 0
        if b > 0:
            while cuda.atomic.add(flags, b - 1, 0) == 0:
                pass
            before = totals[b - 1]
        totals[b] = before + b
        cuda.threadfence()
        cuda.atomic.exch(flags, b, 1)
    cuda.syncthreads()
    out[b * cuda.blockDim.x + t] = totals[b]


def test_blocks_may_wait_for_earlier_blocks(launch):
    flags, totals, out = np.zeros(200, np.int32), np.zeros(200, np.int32), np.zeros(200 * 64, np.int32)
    launch(prefix_by_look_back[200, 64], flags, totals, out, limit_s=10)
    np.testing.assert_array_equal(totals, np.cumsum(np.arange(200)))
    np.testing.assert_array_equal(out.reshape(200, 64), np.repeat(totals[:, None], 64, axis=1))


@cuda.jit
def waits_for_nobody(flag):
    while cuda.atomic.add(flag, 0, 0) == 0:
        pass


def test_a_deadlock_is_stopped_and_its_line_named(launch, line_of):
    with pytest.raises(RunawayKernel) as caught:
        launch(waits_for_nobody[1, 64], np.zeros(1, np.int32), limit_s=1)
    assert caught.value.line == line_of(waits_for_nobody, "while")


@cuda.jit
def bytes_across_two_barriers(x, out):
    t = cuda.threadIdx.x
    a, b = x[t], x[t + 64]
    if t % 2 == 0:
        cuda.syncthreads()
    else:
        cuda.syncthreads()
    out[t] = a + b


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.float32, np.int64])
def test_values_of_every_size_live_across_divergent_barriers(launch, dtype):
    """What a parked warp saves is aligned as it is loaded: 32 lanes of one byte once crashed the process."""
    x, out = np.arange(128).astype(dtype), np.zeros(64)
    launch(bytes_across_two_barriers[1, 64], x, out)
    np.testing.assert_array_equal(out, x[:64].astype(float) + x[64:])


@cuda.jit
def dynamic_shared_and_divergent_barriers(out):
    tile = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    tile[t] = t + tile.size + cuda.warpsize
    if t % 2 == 0:
        cuda.syncthreads()
    else:
        cuda.syncthreads()
    out[t] = tile[(t + 1) % cuda.blockDim.x]


def test_sizes_of_the_launch_stay_scalars_where_warps_diverge_at_barriers(launch):
    """256 bytes of dynamic shared memory are 64 int32; a warp has 32 lanes: t + 1 + 64 + 32."""
    out = np.zeros(64, np.int32)
    launch(dynamic_shared_and_divergent_barriers[1, 64, 0, 256], out)
    np.testing.assert_array_equal(out, (np.arange(64) + 1) % 64 + 96)
