"""Control flow of the numba.cuda language: whatever path each lane takes, it computes what a lone thread would."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, int32

N = 200  # six full warps and a quarter of one


def per_thread(function, *columns) -> list:
    """The oracle: the same arithmetic in plain Python, one thread at a time."""
    return [function(*(int(v) for v in row)) for row in zip(*columns, strict=True)]


@cuda.jit
def early_returns(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    if x[i] < 0:
        out[i] = -1
        return
    if x[i] % 3 == 0:
        out[i] = 3
        return
    out[i] = x[i] * 10


def test_early_returns_leave_the_other_lanes_running(launch, rng):
    x, out = rng.integers(-50, 50, N), np.full(N, 7777)
    launch(early_returns[2, 128], x, out)
    np.testing.assert_array_equal(out, per_thread(lambda v: -1 if v < 0 else 3 if v % 3 == 0 else v * 10, x))


def nested(limit: int, n: int) -> int:
    total = 0
    for a in range(n):
        if a == limit:
            break
        for b in range(a, 20):
            if (a + b) % 3 == 1:
                continue
            if b > limit:
                break
            total += a * b
        else:
            total += 1000
        if total > 5000:
            break
    return total


@cuda.jit
def nested_loops(limit, n, out):
    i = cuda.grid(1)
    if i < out.size:
        total = 0
        for a in range(n[i]):
            if a == limit[i]:
                break
            for b in range(a, 20):
                if (a + b) % 3 == 1:
                    continue
                if b > limit[i]:
                    break
                total += a * b
            else:
                total += 1000
            if total > 5000:
                break
        out[i] = total


def test_nested_loops_with_break_continue_and_else(launch, rng):
    limit, n, out = rng.integers(0, 30, N), rng.integers(0, 40, N), np.full(N, -1)
    launch(nested_loops[2, 128], limit, n, out)
    np.testing.assert_array_equal(out, per_thread(nested, limit, n))


def collatz(v: int) -> int:
    steps = 0
    while v != 1:
        v = v // 2 if v % 2 == 0 else 3 * v + 1
        steps += 1
    return steps


@cuda.jit
def collatz_steps(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        steps = 0
        while v != 1:
            if v % 2 == 0:
                v = v // 2
            else:
                v = 3 * v + 1
            steps += 1
        out[i] = steps


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_while_loop_with_a_trip_count_of_its_own_per_lane(launch, dtype):
    x, out = np.arange(1, N + 1, dtype=dtype), np.zeros(N, np.int64)
    launch(collatz_steps[2, 128], x, out)
    np.testing.assert_array_equal(out, per_thread(collatz, x))


@cuda.jit
def chained_conditions(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        if x[i] > 0 and y[i] > 0:
            out[i] = 1
        elif x[i] > 0 or not y[i] > 0:
            out[i] = 2 if x[i] < y[i] else 3
        elif 0 <= -x[i] < 25:
            out[i] = 4
        else:
            out[i] = 5


def test_chained_conditions(launch, rng):
    def one(x, y):
        if x > 0 and y > 0:
            return 1
        if x > 0 or not y > 0:
            return 2 if x < y else 3
        return 4 if 0 <= -x < 25 else 5

    x, y, out = rng.integers(-50, 50, N), rng.integers(-50, 50, N), np.zeros(N, np.int64)
    launch(chained_conditions[2, 128], x, y, out)
    wanted = per_thread(one, x, y)
    assert set(wanted) == {1, 2, 3, 4, 5}
    np.testing.assert_array_equal(out, wanted)


@cuda.jit
def many_ways(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        if v == 0:
            r = 10
        elif v == 1:
            r = 21
        elif v == 2:
            r = 32
        elif v == 3:
            r = 5
        elif v == 4:
            r = 44
        elif v == 5:
            r = 51
        elif v == 9:
            r = 60
        else:
            r = -v
        out[i] = r


def test_many_ways_become_a_switch(launch, rng):
    table = {0: 10, 1: 21, 2: 32, 3: 5, 4: 44, 5: 51, 9: 60}
    x, out = rng.integers(-3, 12, N), np.zeros(N, np.int64)
    launch(many_ways[2, 128], x, out)
    np.testing.assert_array_equal(out, per_thread(lambda v: table.get(v, -v), x))


@cuda.jit
def swapped_in_a_loop(a, b, n, out):
    i = cuda.grid(1)
    if i < n.size:
        p, q = a[i], b[i]
        for _ in range(n[i]):
            p, q = q, p + q
        out[i, 0], out[i, 1] = p, q


def test_values_that_swap_in_a_loop(launch, rng):
    """The two phis read each other: a parallel copy, done per lane, while other lanes have left the loop."""

    def one(p, q, n):
        for _ in range(n):
            p, q = q, p + q
        return p, q

    a, b, n = rng.integers(0, 9, N), rng.integers(0, 9, N), rng.integers(0, 40, N)
    out = np.zeros((N, 2), np.int64)
    launch(swapped_in_a_loop[2, 128], a, b, n, out)
    np.testing.assert_array_equal(out, per_thread(one, a, b, n))


@cuda.jit
def loop_with_two_exits(x, keys, found):
    i = cuda.grid(1)
    if i >= keys.size:
        return
    low, high = 0, x.size
    while low < high:
        middle = (low + high) // 2
        if x[middle] == keys[i]:
            found[i] = middle
            return
        if x[middle] < keys[i]:
            low = middle + 1
        else:
            high = middle
    found[i] = -1


def test_binary_search_returns_from_inside_the_loop(launch, rng):
    x = np.unique(rng.integers(0, 1000, 300))
    keys = rng.integers(0, 1000, N)
    found = np.full(N, -7)
    launch(loop_with_two_exits[2, 128], x, keys, found)
    at = np.searchsorted(x, keys)
    hit = x[np.minimum(at, x.size - 1)] == keys
    assert hit.any()
    assert not hit.all()
    np.testing.assert_array_equal(found, np.where(hit, at, -1))


@cuda.jit
def masked_division(x, out):
    i = cuda.grid(1)
    if i < x.size:
        if x[i] != 0:
            out[i] = 100 // x[i] + 100 % x[i]
        else:
            out[i] = -1


def test_lanes_that_are_off_never_trap(launch):
    """Lanes with x == 0, and those beyond the array, are masked while others divide."""
    x, out = np.arange(N) % 5, np.zeros(N, np.int64)
    launch(masked_division[2, 128], x, out)
    np.testing.assert_array_equal(out, per_thread(lambda v: 100 // v + 100 % v if v else -1, x))


@cuda.jit
def smallest_over_minus_one(x, d, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] // d[i]


@pytest.mark.parametrize(("dtype", "overflow"), [(np.int32, 2**31), (np.int64, 0)])
def test_smallest_integer_over_minus_one_is_numbas(launch, dtype, overflow):
    """int32 is divided as int64, where 2^31 fits and wraps when stored; for int64 numba itself answers 0, on the CPU too."""
    x = np.full(40, np.iinfo(dtype).min, dtype)
    d = np.where(np.arange(40) % 2 == 0, -1, 2).astype(dtype)
    out = np.ones(40, dtype)
    launch(smallest_over_minus_one[1, 64], x, d, out)
    np.testing.assert_array_equal(out, np.where(d == -1, np.int64(overflow), np.iinfo(dtype).min // 2).astype(dtype))


@cuda.jit
def masked_stray_reads(index, x, out):
    i = cuda.grid(1)
    if i < index.size and index[i] < x.size:
        out[i] = x[index[i]]


def test_lanes_that_are_off_never_read(launch):
    """Half the lanes hold an index far outside x, and do not use it."""
    index = np.where(np.arange(N) % 2 == 0, np.arange(N), 2**40)
    x, out = np.arange(N) * 3, np.full(N, -1)
    launch(masked_stray_reads[2, 128], index, x, out)
    np.testing.assert_array_equal(out, np.where(np.arange(N) % 2 == 0, np.arange(N) * 3, -1))


@cuda.jit
def barrier_after_early_return(x, out):
    cache = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    if t >= 50:
        return
    cache[t] = x[t]
    cuda.syncthreads()
    out[t] = cache[49 - t]


def test_threads_that_have_left_do_not_hold_up_a_barrier(launch):
    x, out = np.arange(64, dtype=np.int32), np.full(64, -1, np.int32)
    launch(barrier_after_early_return[1, 64], x, out)
    np.testing.assert_array_equal(out, np.r_[np.arange(50)[::-1], np.full(14, -1)])


@cuda.jit
def barriers_in_two_branches(x, out):
    cache = cuda.shared.array(128, int32)
    t = cuda.threadIdx.x
    if t % 2 == 0:
        cache[t] = x[t]
        cuda.syncthreads()
        out[t] = cache[127 - t]
    else:
        cache[t] = -x[t]
        cuda.syncthreads()
        out[t] = 1000 + cache[127 - t]


def test_barriers_at_different_lines_match(launch):
    """Since Volta a barrier counts threads, not program counters."""
    x, out = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    launch(barriers_in_two_branches[1, 128], x, out)
    t = np.arange(128)
    np.testing.assert_array_equal(out, np.where(t % 2 == 0, -(127 - t), 1000 + 127 - t))


@cuda.jit
def barriers_until_it_leaves(out):
    cache = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        cache[0] = 0
    for step in range(t // 20 + 1):
        cuda.syncthreads()
        if t == step * 20:
            cache[0] += 1
    out[t] = cache[0]


def test_a_thread_may_leave_between_barriers(launch):
    """Group k = t // 20 leaves after barrier k; the next barrier waits until it has left. So it sees k or k + 1 increments."""
    out = np.full(100, -1, np.int32)
    launch(barriers_until_it_leaves[1, 100], out)
    group = np.arange(100) // 20
    np.testing.assert_array_equal(out[::20], np.arange(5) + 1)  # who increments sees its own
    assert ((out == group) | (out == group + 1)).all()


@cuda.jit
def barrier_in_a_loop(x, rounds, out):
    cache = cuda.shared.array(96, int32)
    t = cuda.threadIdx.x
    cache[t] = x[cuda.blockIdx.x, t]
    for _ in range(rounds):
        cuda.syncthreads()
        value = cache[(t + 1) % 96]
        cuda.syncthreads()
        cache[t] = value
    out[cuda.blockIdx.x, t] = cache[t]


def test_barriers_in_a_loop_rotate_over_all_warps(launch, rng):
    x = rng.integers(0, 1000, (3, 96)).astype(np.int32)
    out = np.zeros_like(x)
    launch(barrier_in_a_loop[3, 96], x, 37, out)
    np.testing.assert_array_equal(out, np.roll(x, -37, axis=1))


@cuda.jit
def waits_for_a_neighbour(flag, out):
    t = cuda.threadIdx.x
    if t == 0:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
        out[0] = 42
    else:
        out[t] = t
        if t == 1:
            cuda.atomic.add(flag, 0, 1)


def test_a_spinning_lane_does_not_starve_the_lane_it_waits_for(launch):
    """Independent thread scheduling: lane 0 spins until lane 1 of its own warp has raised the flag."""
    flag, out = np.zeros(1, np.int32), np.zeros(32, np.int32)
    launch(waits_for_a_neighbour[1, 32], flag, out)
    np.testing.assert_array_equal(out, np.r_[42, np.arange(1, 32)])


@cuda.jit
def long_straight(x, out):
    i = cuda.grid(1)
    v = x[i]
    for k in range(100):
        if v & 1:
            v = v * 3 + k
        if v & 2:
            v -= k
        if v & 4:
            v ^= 0x55
        v &= 0xFFFF
    out[i] = v


def test_many_small_divergent_branches(launch, rng):
    def one(v):
        for k in range(100):
            if v & 1:
                v = v * 3 + k
            if v & 2:
                v -= k
            if v & 4:
                v ^= 0x55
            v &= 0xFFFF
        return v

    x = rng.integers(0, 1 << 16, 128)
    out = np.zeros(128, np.int64)
    launch(long_straight[2, 64], x, out)
    np.testing.assert_array_equal(out, per_thread(one, x))
