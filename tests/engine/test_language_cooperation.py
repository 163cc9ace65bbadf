"""Threads that work together: atomics, barriers with a vote, shuffles, votes, ballots, fences."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, int32, int64

FULL = 0xFFFFFFFF
N = 1000


@cuda.jit
def add_to_bins(index, value, out):
    i = cuda.grid(1)
    if i < index.size:
        cuda.atomic.add(out, index[i], value[i])


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64])
def test_atomic_add_loses_nothing(launch, rng, dtype):
    """Small whole numbers: exact in every dtype, whatever the order."""
    index = rng.integers(0, 5, N)
    value = rng.integers(0, 50, N).astype(dtype)
    out = np.zeros(5, dtype)
    launch(add_to_bins[8, 128], index, value, out)
    np.testing.assert_array_equal(out, np.bincount(index, value, minlength=5).astype(dtype))


@cuda.jit
def add_in_two_dimensions(out):
    i = cuda.grid(1)
    cuda.atomic.add(out, (i % 3, i % 4), 1)


def test_atomic_add_with_a_tuple_index(launch):
    out = np.zeros((3, 4), np.int32)
    launch(add_in_two_dimensions[12, 32], out)
    np.testing.assert_array_equal(out, np.full((3, 4), 12 * 32 // 12))


@cuda.jit
def integer_atomics(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.sub(out, 0, x[i])
        cuda.atomic.max(out, 1, x[i])
        cuda.atomic.min(out, 2, x[i])
        cuda.atomic.and_(out, 3, x[i] | 0x0F0)
        cuda.atomic.or_(out, 4, x[i])
        cuda.atomic.xor(out, 5, x[i])


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_integer_atomics(launch, rng, dtype):
    x = rng.integers(0, 4000, N).astype(dtype)
    out = np.array([5_000_000, 0, 10_000, 0xFFF, 0, 0], dtype)
    launch(integer_atomics[8, 128], x, out)
    wanted = [5_000_000 - x.sum(), x.max(), x.min(), np.bitwise_and.reduce(x | dtype(0x0F0)) & 0xFFF]
    np.testing.assert_array_equal(out, [*wanted, np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)])


@cuda.jit
def float_extremes(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(out, 0, x[i])
        cuda.atomic.min(out, 1, x[i])
        cuda.atomic.nanmax(out, 2, x[i])
        cuda.atomic.nanmin(out, 3, x[i])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_atomic_max_and_min_of_floats(launch, rng, dtype):
    x, out = rng.uniform(-5, 5, N).astype(dtype), np.zeros(4, dtype)
    launch(float_extremes[8, 128], x, out)
    np.testing.assert_array_equal(out, [x.max(), x.min()] * 2)


@cuda.jit
def wrapping_atomics(out):
    cuda.atomic.inc(out, 0, 9)
    cuda.atomic.dec(out, 1, 9)


def test_atomic_inc_and_dec_wrap(launch):
    """inc: 0 after 9; dec: 9 after 0. 96 steps are 9 rounds of 10 and 6 more."""
    out = np.array([0, 0], np.uint32)
    launch(wrapping_atomics[3, 32], out)
    np.testing.assert_array_equal(out, [6, 4])


@cuda.jit
def takes_a_ticket(counter, tickets):
    i = cuda.grid(1)
    if i < tickets.size:
        tickets[i] = cuda.atomic.add(counter, 0, 1)


def test_atomic_returns_the_old_value(launch):
    """Every thread gets a ticket of its own: a permutation of 0 .. n-1."""
    counter, tickets = np.zeros(1, np.int32), np.full(N, -1, np.int32)
    launch(takes_a_ticket[8, 128], counter, tickets)
    assert counter[0] == N
    np.testing.assert_array_equal(np.sort(tickets), np.arange(N))


@cuda.jit
def exchanges(flag, got):
    i = cuda.grid(1)
    got[i] = cuda.atomic.exch(flag, 0, i)


def test_atomic_exchange_passes_one_value_on(launch):
    flag, got = np.array([-1], np.int32), np.zeros(64, np.int32)
    launch(exchanges[2, 32], flag, got)
    np.testing.assert_array_equal(np.sort(np.r_[got, flag]), np.arange(-1, 64))


@cuda.jit
def first_come(owner, won):
    i = cuda.grid(1)
    won[i] = cuda.atomic.compare_and_swap(owner, -1, i) == -1


@cuda.jit
def first_come_indexed(owner, won):
    i = cuda.grid(1)
    won[i] = cuda.atomic.cas(owner, i % 3, -1, i) == -1


def test_compare_and_swap_has_one_winner(launch):
    owner, won = np.full(1, -1, np.int32), np.zeros(96, np.bool_)
    launch(first_come[3, 32], owner, won)
    assert won.sum() == 1
    assert won[owner[0]]
    owner, won = np.full(3, -1, np.int64), np.zeros(96, np.bool_)
    launch(first_come_indexed[3, 32], owner, won)
    assert won.sum() == 3
    assert won[owner].all()


@cuda.jit
def spin_lock(lock, total):
    """One lane at a time: needs forward progress inside a warp."""
    done = False
    while not done:
        if cuda.atomic.cas(lock, 0, 0, 1) == 0:
            total[0] += 1
            cuda.threadfence()
            cuda.atomic.exch(lock, 0, 0)
            done = True


def test_spin_lock_makes_progress(launch):
    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int64)
    launch(spin_lock[2, 64], lock, total)
    assert total[0] == 128


@cuda.jit
def shared_atomics(x, out):
    counts = cuda.shared.array(16, int32)
    high = cuda.shared.array(1, int64)
    t = cuda.threadIdx.x
    if t < 16:
        counts[t] = 0
    if t == 0:
        high[0] = -1000
    cuda.syncthreads()
    cuda.atomic.add(counts, x[cuda.grid(1)] % 16, 1)
    cuda.atomic.max(high, 0, x[cuda.grid(1)])
    cuda.syncthreads()
    if t < 16:
        out[cuda.blockIdx.x, t] = counts[t]
    if t == 0:
        out[cuda.blockIdx.x, 16] = high[0]


def test_atomics_on_shared_memory(launch, rng):
    x = rng.integers(0, 1000, 4 * 128)
    out = np.zeros((4, 17), np.int64)
    launch(shared_atomics[4, 128], x, out)
    rows = x.reshape(4, 128)
    np.testing.assert_array_equal(out, [[*np.bincount(row % 16, minlength=16), row.max()] for row in rows])


@cuda.jit
def block_votes(x, out):
    t = cuda.grid(1)
    out[t, 0] = cuda.syncthreads_count(int32(x[t] > 0))
    out[t, 1] = cuda.syncthreads_and(int32(x[t] > -5))
    out[t, 2] = cuda.syncthreads_or(int32(x[t] > 8))


def test_barriers_that_count(launch, rng):
    x = rng.integers(-6, 10, 3 * 100)
    x[:100] = 1  # a block where all agree
    out = np.full((300, 3), -1, np.int32)
    launch(block_votes[3, 100], x, out)
    rows = x.reshape(3, 100)
    wanted = np.stack([(rows > 0).sum(1), (rows > -5).all(1), (rows > 8).any(1)], 1)
    np.testing.assert_array_equal(out[:, 0], wanted[:, 0].repeat(100))
    np.testing.assert_array_equal(out[:, 1:] != 0, wanted[:, 1:].repeat(100, axis=0) != 0)


@cuda.jit
def shuffles(x, out):
    t = cuda.threadIdx.x
    lane = cuda.laneid
    v = x[t]
    out[t, 0] = cuda.shfl_sync(FULL, v, 5)
    out[t, 1] = cuda.shfl_sync(FULL, v, (lane * 7) % 32)
    out[t, 2] = cuda.shfl_up_sync(FULL, v, 3)
    out[t, 3] = cuda.shfl_down_sync(FULL, v, 4)
    out[t, 4] = cuda.shfl_xor_sync(FULL, v, 9)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_shuffles(launch, rng, dtype):
    """Lanes whose source lies outside the warp keep their own value."""
    x = (rng.uniform(-1, 1, 96) * 2**30).astype(dtype)
    out = np.zeros((96, 5), dtype)
    launch(shuffles[1, 96], x, out)
    lane = np.arange(32)
    source = [np.full(32, 5), lane * 7 % 32, np.where(lane >= 3, lane - 3, lane), np.where(lane < 28, lane + 4, lane), lane ^ 9]
    wanted = np.concatenate([np.stack([warp[s] for s in source], 1) for warp in x.reshape(3, 32)])
    np.testing.assert_array_equal(out, wanted)


@cuda.jit
def scan_by_shuffles(x, out):
    t = cuda.threadIdx.x
    v = x[t]
    step = 1
    while step < 32:
        before = cuda.shfl_up_sync(FULL, v, step)
        if cuda.laneid >= step:
            v += before
        step *= 2
    out[t] = v


def test_prefix_sum_by_shuffles(launch, rng):
    x = rng.integers(-9, 9, 128)
    out = np.zeros(128, np.int64)
    launch(scan_by_shuffles[1, 128], x, out)
    np.testing.assert_array_equal(out, x.reshape(4, 32).cumsum(1).ravel())


@cuda.jit
def votes(x, out):
    t = cuda.threadIdx.x
    p = x[t] > 0
    out[t, 0] = cuda.all_sync(FULL, p)
    out[t, 1] = cuda.any_sync(FULL, p)
    out[t, 2] = cuda.eq_sync(FULL, p)
    out[t, 3] = cuda.ballot_sync(FULL, p)
    out[t, 4] = cuda.match_any_sync(FULL, x[t])


def test_votes_ballots_and_matches(launch, rng):
    x = rng.integers(-3, 4, 96).astype(np.int32)
    x[32:64] = 2  # a warp that agrees
    out = np.zeros((96, 5), np.int64)
    launch(votes[1, 96], x, out)
    bit = 1 << np.arange(32)
    for w in range(3):
        warp, got = x[32 * w : 32 * w + 32], out[32 * w : 32 * w + 32]
        p = warp > 0
        np.testing.assert_array_equal(got[:, 0] != 0, np.full(32, p.all()))
        np.testing.assert_array_equal(got[:, 1] != 0, np.full(32, p.any()))
        np.testing.assert_array_equal(got[:, 2] != 0, np.full(32, p.all() or not p.any()))
        np.testing.assert_array_equal(got[:, 3] & FULL, np.full(32, bit[p].sum()))
        np.testing.assert_array_equal(got[:, 4] & FULL, [bit[warp == v].sum() for v in warp])


@cuda.jit
def partial_masks(x, out):
    t = cuda.threadIdx.x
    if t < 20:
        mask = cuda.activemask()
        out[t, 0] = mask
        out[t, 1] = cuda.ballot_sync(mask, x[t] > 0)
        cuda.syncwarp(mask)
        out[t, 2] = cuda.lanemask_lt()


def test_masks_of_a_divergent_warp(launch, rng):
    x = rng.integers(-3, 4, 32)
    out = np.zeros((32, 3), np.int64)
    launch(partial_masks[1, 32], x, out)
    lane = np.arange(20)
    np.testing.assert_array_equal(out[:20, 0] & FULL, np.full(20, (1 << 20) - 1))
    np.testing.assert_array_equal(out[:20, 1] & FULL, np.full(20, (1 << lane)[x[:20] > 0].sum()))
    np.testing.assert_array_equal(out[:20, 2] & FULL, (1 << lane) - 1)
    assert not out[20:].any()


@cuda.jit
def last_block_finishes(x, partial, counter, out):
    """threadfence and a counter: the last block adds up what all have written."""
    cache = cuda.shared.array(64, int64)
    last = cuda.shared.array(1, int32)
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    cache[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    if t == 0:
        total = 0
        for k in range(64):
            total += cache[k]
        partial[b] = total
        cuda.threadfence()
        last[0] = cuda.atomic.add(counter, 0, 1)
    cuda.syncthreads()
    if last[0] == cuda.gridDim.x - 1 and t == 0:
        total = 0
        for k in range(cuda.gridDim.x):
            total += partial[k]
        out[0] = total


def test_the_last_block_sees_all_the_others(launch, rng):
    x = rng.integers(-99, 99, 20 * 64)
    partial, counter, out = np.zeros(20, np.int64), np.zeros(1, np.int32), np.zeros(1, np.int64)
    launch(last_block_finishes[20, 64], x, partial, counter, out)
    assert out[0] == x.sum()


@cuda.jit
def fences_and_sleeps(x, out):
    i = cuda.grid(1)
    out[i] = x[i]
    cuda.threadfence_block()
    cuda.threadfence()
    cuda.threadfence_system()
    cuda.syncwarp()
    cuda.nanosleep(100)
    out[i] += 1


def test_fences_and_sleep_change_nothing(launch):
    x, out = np.arange(64), np.zeros(64, np.int64)
    launch(fences_and_sleeps[2, 32], x, out)
    np.testing.assert_array_equal(out, x + 1)


@cuda.jit
def two_sides_of_a_warp_exchange(turns, split, mask, out):
    """Lanes below `split` and the others write, meet at a syncwarp() in each branch, and read what the other side wrote."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    lane = t % 32
    base = t - lane
    for r in range(turns):
        if lane < split:
            for k in range(lane + 1):  # each takes another time
                s[t] = 100 * r + k
            cuda.syncwarp(mask)
            out[r, t] = s[base + 31]
            cuda.syncwarp(mask)
        else:
            s[t] = 1000 * r + lane
            cuda.syncwarp(mask)
            out[r, t] = s[base + lane % split]
            cuda.syncwarp(mask)


@pytest.mark.parametrize("split", [1, 16, 20, 31])
@pytest.mark.parametrize("counters", [True, False])
def test_lanes_meet_though_each_is_in_a_branch_of_its_own(launch, split, counters):
    out = np.full((3, 64), -1, np.int32)
    launch(two_sides_of_a_warp_exchange[1, 64], 3, split, np.uint32(FULL), out, counters=counters)
    lane, turn = np.arange(64) % 32, np.arange(3)[:, None]
    np.testing.assert_array_equal(out, np.where(lane < split, 1000 * turn + 31, 100 * turn + lane % split))


@cuda.jit
def a_side_that_returns(out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 8:
        s[t] = t
        cuda.syncwarp()
        return
    if t < 16:
        s[t] = 2 * t
        cuda.syncwarp()
    else:
        s[t] = 3 * t
        cuda.syncwarp()
    out[t] = s[31 - t]


def test_a_side_may_return_after_the_meeting(launch):
    out = np.zeros(32, np.int64)
    launch(a_side_that_returns[1, 32], out)
    source = 31 - np.arange(8, 32)
    np.testing.assert_array_equal(out[8:], np.where(source < 8, source, np.where(source < 16, 2 * source, 3 * source)))
