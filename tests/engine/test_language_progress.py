"""Forward progress: lanes, warps and blocks that wait for others let them run, as on GPUs since Volta."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
from numba import cuda, int32

import solcourse as sol
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


# ---- blocks wait for other resident blocks


@cuda.jit
def locked_by_first_thread(lock, counter, log):
    """One thread of each block takes the lock, the whole block works, and the lock is given back across block barriers."""
    t = cuda.threadIdx.x
    if t == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
    cuda.syncthreads()
    before = counter[0]
    cuda.syncthreads()
    if t == 0:
        log[before] = cuda.blockIdx.x
        counter[0] = before + 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)


def test_a_mutex_serves_1000_blocks(launch):
    lock, counter, log = np.zeros(1, np.int32), np.zeros(1, np.int64), np.full(1000, -1)
    launch(locked_by_first_thread[1000, 64], lock, counter, log, limit_s=10)
    assert (int(counter[0]), int(lock[0])) == (1000, 0)
    np.testing.assert_array_equal(np.sort(log), np.arange(1000))


@cuda.jit
def all_wait_for_the_last_block(flag, x, out):
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if b == cuda.gridDim.x - 1:
        x[t] = 7 * t
        cuda.threadfence()
        cuda.syncthreads()
        if t == 0:
            cuda.atomic.exch(flag, 0, 1)
    else:
        if t == 0:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
        cuda.syncthreads()
    out[b, t] = x[t] + b


@pytest.mark.parametrize("blocks", [2, 700])
def test_all_blocks_may_wait_for_the_last(launch, blocks):
    out = np.zeros((blocks, 64), np.int64)
    launch(all_wait_for_the_last_block[blocks, 64], np.zeros(1, np.int32), np.zeros(64, np.int64), out, limit_s=10)
    np.testing.assert_array_equal(out, 7 * np.arange(64) + np.arange(blocks)[:, None])


@cuda.jit
def look_back(flags, totals, order, out):
    """Decoupled look-back: part `order[b]` of the input is block b's; it needs the sum of all parts before it."""
    part, t = order[cuda.blockIdx.x], cuda.threadIdx.x
    if t == 0:
        before = 0
        if part > 0:
            while cuda.atomic.add(flags, part - 1, 0) == 0:
                pass
            before = totals[part - 1]
        totals[part] = before + part * part
        cuda.threadfence()
        cuda.atomic.exch(flags, part, 1)
    cuda.syncthreads()
    out[part * cuda.blockDim.x + t] = totals[part] + t


@pytest.mark.parametrize("order", ["forward", "reversed", "shuffled"])
def test_look_back_ends_in_any_order_of_the_blocks(launch, rng, order):
    n = 600
    parts = {"forward": np.arange(n), "reversed": np.arange(n)[::-1].copy(), "shuffled": rng.permutation(n)}[order]
    totals, out = np.zeros(n, np.int64), np.zeros(n * 32, np.int64)
    launch(look_back[n, 32], np.zeros(n, np.int32), totals, parts, out, limit_s=10)
    np.testing.assert_array_equal(totals, np.cumsum(np.arange(n) ** 2))
    np.testing.assert_array_equal(out.reshape(n, 32), totals[:, None] + np.arange(32))


@cuda.jit
def own_grid_barrier(arrived, x, y, turns):
    """x, y (n,): each turn reads the neighbours' cells of the turn before."""
    i = cuda.grid(1)
    for turn in range(turns):
        a, b = (x, y) if turn % 2 == 0 else (y, x)
        b[i] = a[(i + 33) % a.size] + 1
        cuda.threadfence()
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            cuda.atomic.add(arrived, 0, 1)
            while cuda.atomic.add(arrived, 0, 0) < (turn + 1) * cuda.gridDim.x:
                pass
        cuda.syncthreads()


def test_a_barrier_of_the_grid_written_with_an_atomic_counter(launch):
    n, turns = 40 * 64, 20
    x = np.arange(n)
    launch(own_grid_barrier[40, 64], np.zeros(1, np.int32), x, np.zeros_like(x), turns, limit_s=10)
    np.testing.assert_array_equal(x, np.roll(np.arange(n), -33 * turns) + turns)


@cuda.jit
def producers_and_consumers(slots, full, received):
    """Block 2k hands 50 numbers to block 2k + 1, one at a time, through one slot and one flag."""
    pair, t = cuda.blockIdx.x // 2, cuda.threadIdx.x
    if t != 0:
        return
    for n in range(50):
        if cuda.blockIdx.x % 2 == 0:
            while cuda.atomic.add(full, pair, 0) == 1:
                pass
            slots[pair] = 100 * pair + n
            cuda.threadfence()
            cuda.atomic.exch(full, pair, 1)
        else:
            while cuda.atomic.add(full, pair, 0) == 0:
                pass
            received[pair, n] = slots[pair]
            cuda.threadfence()
            cuda.atomic.exch(full, pair, 0)


def test_blocks_hand_values_to_each_other_one_at_a_time(launch):
    received = np.zeros((20, 50), np.int64)
    launch(producers_and_consumers[40, 32], np.zeros(20, np.int64), np.zeros(20, np.int32), received, limit_s=10)
    np.testing.assert_array_equal(received, 100 * np.arange(20)[:, None] + np.arange(50))


@cuda.jit
def the_block_polls(flag, out):
    """One thread looks, and tells its block through shared memory."""
    seen = cuda.shared.array(1, int32)
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if b == cuda.gridDim.x - 1:
        if t == 0:
            cuda.atomic.exch(flag, 0, 1)
    else:
        while True:
            if t == 0:
                seen[0] = cuda.atomic.add(flag, 0, 0)
            cuda.syncthreads()
            if seen[0] == 1:
                break
            cuda.syncthreads()
    out[b * cuda.blockDim.x + t] = b


def test_a_block_that_polls_with_barriers_in_its_loop_lets_others_run(launch):
    out = np.zeros(30 * 96, np.int64)
    launch(the_block_polls[30, 96], np.zeros(1, np.int32), out, limit_s=10)
    np.testing.assert_array_equal(out, np.repeat(np.arange(30), 96))


@cuda.jit
def polls_by_loads(flag, out):
    b = cuda.blockIdx.x
    if b == cuda.gridDim.x - 1:
        flag[0] = 1
    else:
        while flag[0] == 0:
            cuda.threadfence()
    out[b] = b + 1


def test_a_flag_may_be_read_by_a_load_next_to_a_fence(launch):
    out = np.zeros(50, np.int64)
    launch(polls_by_loads[50, 1], np.zeros(1, np.int32), out, limit_s=10)
    np.testing.assert_array_equal(out, np.arange(50) + 1)


@cuda.jit
def private_memory_across_waits(flag, out):
    """Local arrays, shared memory and registers of a suspended block are its own."""
    mine, ours = cuda.local.array(5, int32), cuda.shared.array(64, int32)
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    for k in range(5):
        mine[(k + t) % 5] = 1000 * b + 10 * t + k
    ours[t] = b * 64 + t
    high = cuda.syncthreads_or(1 if b % 3 == 0 and t == 63 else 0)
    if t == 40:
        if b == cuda.gridDim.x - 1:
            cuda.atomic.exch(flag, 0, 1)
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
    cuda.syncthreads()
    low = cuda.syncthreads_count(1 if t < b else 0)
    total = 0
    for k in range(5):
        total += mine[(k + t) % 5] * (k + 1)
    out[b, t] = total + ours[63 - t] + (100000 if high else 0) + low


def test_local_and_shared_memory_of_suspended_blocks_are_their_own(launch):
    blocks = 12
    out = np.zeros((blocks, 64), np.int64)
    launch(private_memory_across_waits[blocks, 64], np.zeros(1, np.int32), out, limit_s=10)
    b, t = np.arange(blocks)[:, None], np.arange(64)
    total = sum((1000 * b + 10 * t + k) * (k + 1) for k in range(5))
    np.testing.assert_array_equal(out, total + b * 64 + 63 - t + 100000 * (b % 3 == 0) + b)


@cuda.jit
def two_counts_across_divergent_barriers(out):
    t = cuda.threadIdx.x
    if t % 2 == 0:
        first = cuda.syncthreads_count(1)
    else:
        first = cuda.syncthreads_count(0)
    if t % 2 == 0:
        second = cuda.syncthreads_count(1 if t < 10 else 0)
    else:
        second = cuda.syncthreads_count(0)
    out[t] = first * 1000 + second


def test_the_result_of_a_barrier_outlives_the_next_barrier(launch):
    """32 even threads, then 5 of them below 10: 0 2 4 6 8."""
    out = np.zeros(64, np.int64)
    launch(two_counts_across_divergent_barriers[1, 64], out)
    assert set(out.tolist()) == {32005}


def queue_kernel_arguments(rng):
    return np.zeros(1, np.int32), rng.integers(0, 30, 5000).astype(np.int32), np.zeros(5000, np.int64)


@cuda.jit
def work_from_a_queue(head, work, out):
    while True:
        i = cuda.atomic.add(head, 0, 1)
        if i >= work.size:
            break
        total = 0
        for k in range(work[i]):
            total += k
        out[i] = total


def test_blocks_that_take_work_from_a_queue_do_all_of_it(launch, rng):
    head, work, out = queue_kernel_arguments(rng)
    launch(work_from_a_queue[8, 64], head, work, out)
    np.testing.assert_array_equal(out, work.astype(np.int64) * (work - 1) // 2)


# ---- the order is always the same

ORDERED = {
    "mutex": (locked_by_first_thread, 40, lambda rng: (np.zeros(1, np.int32), np.zeros(1, np.int64), np.full(40, -1))),
    "last block": (
        all_wait_for_the_last_block,
        40,
        lambda rng: (np.zeros(1, np.int32), np.zeros(64, np.int64), np.zeros((40, 64), np.int64)),
    ),
    "look-back": (
        look_back,
        40,
        lambda rng: (np.zeros(40, np.int32), np.zeros(40, np.int64), rng.permutation(40), np.zeros(2560, np.int64)),
    ),
    "own barrier": (own_grid_barrier, 40, lambda rng: (np.zeros(1, np.int32), np.arange(2560), np.zeros(2560, np.int64), 5)),
    "queue": (work_from_a_queue, 40, queue_kernel_arguments),
    "shared only": (first_warp_waits_for_the_second, 70, lambda rng: (np.zeros(128, np.int32),)),
}


@pytest.mark.parametrize("case", ORDERED)
def test_outputs_counts_and_trace_do_not_depend_on_the_number_of_threads(launch, rng, case):
    kernel, blocks, make = ORDERED[case]
    args, results = make(rng), []
    for threads in (1, 2, 2):
        own = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        run = launch(kernel[blocks, 64], *own, threads=threads)
        results.append((own, run.counts, run.lines, [getattr(run.trace, part) for part in ("blocks", "offsets", "words")]))
    for own, counts, lines, trace in results[1:]:
        assert (counts, lines) == results[0][1:3]
        for got, wanted in zip([*own, *trace], [*results[0][0], *results[0][3]], strict=True):
            np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(results[0][3][0], np.arange(blocks))  # the trace has all blocks, in order


def test_without_counters_the_results_are_the_same(launch, rng):
    for kernel, blocks, make in ORDERED.values():
        args = make(rng)
        counted, plain = ([a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
        launch(kernel[blocks, 64], *counted)
        launch(kernel[blocks, 64], *plain, counters=False)
        for a, b in zip(counted, plain, strict=True):
            np.testing.assert_array_equal(a, b)


# ---- deadlocks are found


@cuda.jit
def waits_for_nobody(flag):
    while cuda.atomic.add(flag, 0, 0) == 0:
        pass


@pytest.mark.parametrize(("blocks", "threads"), [(1, 64), (5, 33), (300, 1)])
def test_a_flag_that_nobody_sets_is_a_deadlock_and_its_line_is_named(launch, line_of, blocks, threads):
    warps = blocks * -(-threads // 32)
    begun = time.monotonic()
    with pytest.raises(RunawayKernel) as caught:
        launch(waits_for_nobody[blocks, threads], np.zeros(1, np.int32))
    assert time.monotonic() - begun < 10  # found, not timed out
    assert caught.value.line == line_of(waits_for_nobody, "while")
    who = [f"{n:,} {what}{'s' * (n != 1)}" for n, what in ((blocks, "block"), (warps, "warp"), (blocks * threads, "thread"))]
    assert f"Deadlock in kernel waits_for_nobody: no thread can go on. {who[0]} ({who[1]}, {who[2]}) wait" in str(caught.value)


@cuda.jit
def counts_its_turns(flag, out):
    turns = 0
    while cuda.atomic.add(flag, 0, 0) == 0:
        turns += 1
    out[0] = turns


@cuda.jit
def gives_up_after(flag, out, most):
    turns = 0
    while cuda.atomic.add(flag, 0, 0) == 0:
        turns += 1
        if turns == most:
            break
    out[cuda.grid(1)] = turns


def test_a_count_of_turns_hides_no_deadlock_and_makes_none(launch, line_of):
    with pytest.raises(RunawayKernel, match=r"Deadlock .* 3 blocks \(6 warps, 192 threads\) wait in the loop") as caught:
        launch(counts_its_turns[3, 64], np.zeros(1, np.int32), np.zeros(1, np.int64))
    assert caught.value.line == line_of(counts_its_turns, "while cuda")
    out = np.zeros(3 * 64, np.int64)
    launch(gives_up_after[3, 64], np.zeros(1, np.int32), out, 5000)
    assert (out == 5000).all()


@cuda.jit
def two_locks(locks, counter):
    """Blocks 0, 2, ... take lock 0 first, the others lock 1: each holds one when it asks for the other."""
    first = cuda.blockIdx.x % 2
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(locks, first, 0, 1) != 0:
            pass
        cuda.atomic.add(counter, 0, 1)
        while cuda.atomic.add(counter, 0, 0) < 2:
            pass
        while cuda.atomic.cas(locks, 1 - first, 0, 1) != 0:
            pass
        cuda.atomic.exch(locks, 1 - first, 0)
        cuda.atomic.exch(locks, first, 0)
    cuda.syncthreads()
    counter[1] = 1


def test_two_locks_taken_in_opposite_order_are_a_deadlock(launch, line_of):
    with pytest.raises(RunawayKernel) as caught:
        launch(two_locks[2, 64], np.zeros(2, np.int32), np.zeros(2, np.int32))
    second, barrier = line_of(two_locks, "cas(locks, 1 - first"), line_of(two_locks, "cuda.syncthreads()")
    assert caught.value.line == second
    assert f"2 blocks (2 warps, 2 threads) wait in the loop at line {second}" in str(caught.value)
    # the other 31 lanes of the first warp wait at the barrier too
    assert f"2 blocks (4 warps, 126 threads) wait at the barrier at line {barrier}" in str(caught.value)


def test_waiting_for_blocks_that_are_not_resident_is_a_deadlock(line_of):
    """T4: 40 SMs x 16 blocks. The 640 resident ones wait for the last of 641, which never starts."""
    args = np.zeros(1, np.int32), np.zeros(64, np.int64), np.zeros((641, 64), np.int64)
    with sol.use_engine("T4"):
        all_wait_for_the_last_block[640, 64](*args)
        args[0][:] = 0
        with pytest.raises(RunawayKernel, match=r"1 block never started: 640 are resident at once \(.*T4 has 40 SMs") as caught:
            all_wait_for_the_last_block[641, 64](*args)
    assert caught.value.line == line_of(all_wait_for_the_last_block, "while")


def test_earlier_blocks_need_no_residency(launch):
    """20,000 blocks that wait for earlier ones only: a block that ends makes room for the next, on any GPU."""
    n = 20_000
    flags, totals, out = np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros(n * 32, np.int32)
    sol.run(prefix_by_look_back[n, 32], flags, totals, out)
    np.testing.assert_array_equal(totals, np.cumsum(np.arange(n)).astype(np.int32))


@cuda.jit
def a_warp_waits_inside_its_block(flag):
    ready = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        ready[0] = 0
    cuda.syncthreads()
    if t >= 32 and cuda.blockIdx.x >= flag[0]:
        while cuda.atomic.add(ready, 0, 0) == 0:
            pass


@pytest.mark.parametrize("threads", [1, 2])
def test_a_deadlock_inside_one_block_is_found_in_the_first_such_block(launch, line_of, threads):
    with pytest.raises(
        RunawayKernel, match=r"1 block \(1 warp, 32 threads\) waits in the loop at line \d+ \(.*\), first block 37\."
    ) as caught:
        launch(a_warp_waits_inside_its_block[200, 64], np.array([37]), threads=threads)
    assert caught.value.line == line_of(a_warp_waits_inside_its_block, "while")


def test_a_sample_whose_blocks_wait_for_others_says_so(launch):
    args = np.zeros(1, np.int32), np.zeros(64, np.int64), np.zeros((100, 64), np.int64)
    with pytest.raises(RunawayKernel, match="Only 10 of 100 blocks ran .* sample_blocks=None"):
        launch(all_wait_for_the_last_block[100, 64], *args, sample_blocks=10)


def test_a_sample_of_look_back_is_its_first_blocks(launch):
    flags, totals, out = np.zeros(200, np.int32), np.zeros(200, np.int32), np.zeros(200 * 64, np.int32)
    run = launch(prefix_by_look_back[200, 64], flags, totals, out, sample_blocks=20)
    np.testing.assert_array_equal(totals[:21], [*np.cumsum(np.arange(20)), 0])
    assert run.counts.barriers == 200 * 2


# ---- what no state tells apart from progress is stopped in time


@cuda.jit
def counts_in_memory(flag, out):
    while cuda.atomic.add(flag, 0, 0) == 0:
        out[cuda.blockIdx.x] += 1


def test_a_wait_that_writes_is_stopped_by_the_limit_and_its_line_named(launch, line_of):
    with pytest.raises(RunawayKernel, match="no block finished for 0.5 s") as caught:
        launch(counts_in_memory[4, 32], np.zeros(1, np.int32), np.zeros(4, np.int64), limit_s=0.5)
    assert caught.value.line == line_of(counts_in_memory, "while cuda")
    assert f"at line {caught.value.line}" in str(caught.value)


def test_ctrl_c_ends_a_wait_and_the_next_launch_works(launch, line_of):
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    try:
        launch(counts_in_memory[4, 32], np.ones(1, np.int32), np.zeros(4, np.int64))  # compiled before the clock runs
        timer.start()
        with pytest.raises(RunawayKernel, match="was interrupted") as caught:
            launch(counts_in_memory[4, 32], np.zeros(1, np.int32), np.zeros(4, np.int64))
    finally:
        timer.cancel()
    assert caught.value.interrupted
    assert caught.value.line == line_of(counts_in_memory, "while cuda")
    flags = np.zeros(9, np.int32)
    launch(waits_for_the_next_block[8, 32], flags)
    assert flags.sum() == 8


@cuda.jit
def waits_for_the_next_block(flags):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        if b + 1 < cuda.gridDim.x:
            while cuda.atomic.add(flags, b + 1, 0) == 0:
                pass
        cuda.atomic.exch(flags, b, 1)


# ---- barriers in branches


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


# ------------------------------------------------------------------------------------------ lanes that meet while some of them wait


@cuda.jit
def one_lane_polls_for_its_warp(flag, data, mask, out):
    """Lane 3 of warp 0 waits for warp 1; the lanes of `mask` meet it in four ways. Lanes 28 .. 31 have returned."""
    t = cuda.threadIdx.x
    if t < 32:
        if t >= 28:
            return
        m = mask[t]
        if t == 3:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
        if m != 0:
            cuda.syncwarp(m)
            out[0, t] = data[0]
            out[1, t] = cuda.ballot_sync(m, t % 2 == 0)
            out[2, t] = cuda.match_any_sync(m, t // 4)
            out[3, t] = cuda.shfl_sync(m, data[0] + t, 3)
        else:
            out[0, t] = data[0]
            cuda.atomic.add(flag, 1, 1)
    elif t == 40:
        while cuda.atomic.add(flag, 1, 0) < mask[32]:
            pass
        data[0] = 42
        cuda.threadfence()
        cuda.atomic.exch(flag, 0, 1)


@pytest.mark.parametrize("n", [28, 10])
@pytest.mark.parametrize("counters", [True, False])
def test_lanes_meet_the_one_that_waits_before_they_go_on(launch, n, counters):
    """The n lanes of the mask see what warp 1 wrote before it let lane 3 go; the others do not wait for it: warp 1 waits for them."""
    mask = np.zeros(33, np.uint32)
    mask[:n] = 0xFFFFFFFF if n == 28 else (1 << n) - 1
    mask[32] = 28 - n
    out = np.zeros((4, 32), np.int64)
    launch(one_lane_polls_for_its_warp[1, 64], np.zeros(2, np.int32), np.zeros(1, np.int64), mask, out, counters=counters, limit_s=10)
    np.testing.assert_array_equal(out[0], [42] * n + [0] * (32 - n))
    met = range(n)
    assert {int(v) & 0xFFFFFFFF for v in out[1, :n]} == {sum(1 << t for t in met if t % 2 == 0)}
    assert [int(v) & 0xFFFFFFFF for v in out[2, :n]] == [sum(1 << t for t in met if t // 4 == s // 4) for s in met]
    np.testing.assert_array_equal(out[3, :n], 42 + 3)


@cuda.jit
def two_warps_hand_over(rounds, out):
    """Warp 0 fills a buffer, warp 1 empties it; one lane of each waits for the other warp."""
    full = cuda.shared.array(1, int32)
    empty = cuda.shared.array(1, int32)
    buffer = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t == 0:
        full[0] = 0
        empty[0] = 0
    cuda.syncthreads()
    for r in range(rounds):
        if t < 32:
            buffer[t] = 100 * r + t
            cuda.threadfence_block()
            cuda.syncwarp()
            if t == 0:
                cuda.atomic.exch(full, 0, 1)
                while cuda.atomic.cas(empty, 0, 1, 0) == 0:
                    pass
            cuda.syncwarp()
        else:
            if t == 32:
                while cuda.atomic.cas(full, 0, 1, 0) == 0:
                    pass
            cuda.syncwarp()
            out[cuda.blockIdx.x, r, t - 32] = buffer[t - 32]
            cuda.syncwarp()
            if t == 32:
                cuda.atomic.exch(empty, 0, 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_producer_warp_and_a_consumer_warp(launch, threads):
    out = np.zeros((3, 5, 32), np.int32)
    launch(two_warps_hand_over[3, 64], 5, out, threads=threads, limit_s=10)
    np.testing.assert_array_equal(out, np.broadcast_to(100 * np.arange(5)[:, None] + np.arange(32), out.shape))


@cuda.jit
def nobody_wakes_lane_0(flag, out):
    t = cuda.threadIdx.x
    if t == 0:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
    cuda.syncwarp()
    out[t] = 1
    if t == 31:
        cuda.atomic.exch(flag, 0, 1)


def test_lanes_that_meet_one_that_never_comes_are_a_deadlock_with_both_lines(launch, line_of):
    with pytest.raises(RunawayKernel) as caught:
        launch(nobody_wakes_lane_0[1, 32], np.zeros(1, np.int32), np.zeros(32), limit_s=10)
    message = str(caught.value)
    assert f"1 block (1 warp, 1 thread) waits in the loop at line {line_of(nobody_wakes_lane_0, 'while')} " in message
    assert (
        f"31 threads) waits for other lanes of their warp at line {line_of(nobody_wakes_lane_0, 'syncwarp')} (`cuda.syncwarp()`)" in message
    )


def test_lanes_that_have_met_need_not_meet_again_in_the_same_block(launch):
    """Ten shuffles in a row make no more blocks than one: what waits may wait before the first only. Compile time depends on it."""

    def blocks(shuffles: int) -> int:
        lines = ["def kernel(x, lock):", "    v = x[cuda.grid(1)]", "    while cuda.atomic.cas(lock, 0, 0, 1) != 0:", "        pass"]
        lines += ["    cuda.atomic.exch(lock, 0, 0)"] + [f"    v += cuda.shfl_xor_sync(0xffffffff, v, {k + 1})" for k in range(shuffles)]
        names = {"cuda": cuda}
        exec("\n".join([*lines, "    x[cuda.grid(1)] = v"]), names)
        return len(launch(cuda.jit(names["kernel"])[1, 32], np.zeros(32, np.int32), np.zeros(1, np.int32)).program.blocks)

    assert blocks(10) == blocks(1)
