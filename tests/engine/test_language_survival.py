"""Nothing a learner writes ends or hangs the process: interrupts, huge grids, traps of the processor, records without alignment."""

from __future__ import annotations

import _thread
import threading
import time

import numpy as np
import pytest
from numba import cuda, float64

from solcourse.errors import KernelTypeError, LaunchError, RunawayKernel
from solcourse.simt import machine, resident


def interrupt_after(seconds: float) -> list[float]:
    """Ctrl-C in `seconds`; the list gets the time at which it came."""
    when: list[float] = []

    def press() -> None:
        when.append(time.monotonic())
        _thread.interrupt_main()

    timer = threading.Timer(seconds, press)
    timer.daemon = True
    timer.start()
    return when


def interrupted(launch, configured, *args) -> float:
    """Seconds from Ctrl-C to the error of a launch that was compiled before."""
    when = interrupt_after(1.0)
    with pytest.raises(RunawayKernel, match="interrupted"):
        launch(configured, *args, counters=False)
    return time.monotonic() - when[0]


def test_ctrl_c_stops_a_loop_within_a_second_and_keeps_what_was_written(launch):
    @cuda.jit
    def kernel(x, go):
        i = cuda.grid(1)
        x[i] = i
        while go[0] != 0:
            x[i] += 0

    x, go = np.zeros(64), np.zeros(1)
    launch(kernel[2, 32], x, go, counters=False)  # compiled
    x[:] = 0
    assert interrupted(launch, kernel[2, 32], x, np.ones(1)) < 1
    np.testing.assert_array_equal(x[:32], np.arange(32))
    launch(kernel[2, 32], x, go, counters=False)
    np.testing.assert_array_equal(x, np.arange(64))


def test_ctrl_c_while_the_launch_is_watched_waits_for_the_workers(launch, monkeypatch):
    """The interrupt strikes between two looks at the workers, whose memory must not go before they do."""

    @cuda.jit
    def kernel(x):
        for _ in range(200_000_000):
            cuda.atomic.add(x, 0, 1)

    looks = iter(range(100))

    def monotonic() -> float:
        if next(looks) == 2:  # 0: at the start
            raise KeyboardInterrupt
        return 0.0

    monkeypatch.setattr(machine.time, "monotonic", monotonic)
    x = np.zeros(1, np.int64)
    with pytest.raises(RunawayKernel, match="interrupted"):
        launch(kernel[64, 32], x, threads=2)
    written = x[0]
    time.sleep(0.2)
    assert x[0] == written > 0


def test_ctrl_c_stops_a_grid_of_two_billion_blocks(launch):
    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = 1

    launch(kernel[1, 32], np.zeros(4), counters=False)  # compiled
    x = np.zeros(4)
    assert interrupted(launch, kernel[2**31 - 1, 1024], x) < 1
    assert x.tolist() == [1, 1, 1, 1]  # block 0 was among the first


@pytest.mark.parametrize("t", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
@pytest.mark.parametrize("guarded", [True, False])
def test_no_division_traps(launch, t, guarded):
    """The smallest integer over -1 and anything over 0, on lanes that run and on lanes that are off."""

    @cuda.jit
    def kernel(x, y, q, r):
        i = cuda.grid(1)
        if not guarded or y[i] > 1:
            q[i] = x[i] // y[i]
            r[i] = x[i] % y[i]

    info = np.iinfo(t)
    x = np.full(32, info.min if info.min else info.max, t)
    y = np.tile(np.array([0, -1, 3, 5]).astype(t), 8)
    q, r = np.zeros(32, t), np.zeros(32, t)
    launch(kernel[1, 32], x, y, q, r)
    fine = np.isin(y, [3, 5])
    np.testing.assert_array_equal(q[fine], x[fine] // y[fine])
    np.testing.assert_array_equal(r[fine], x[fine] % y[fine])
    if guarded and info.min:
        assert not q[~fine].any()


def test_fields_of_packed_records(launch):
    """Not aligned: numba refuses to assign them; through a field's view they work, whatever the processor thinks of that."""
    packed = np.dtype([("a", np.int8), ("b", np.float64), ("c", np.int16)])

    @cuda.jit
    def assigns(x):
        x[cuda.grid(1)].b = 1

    @cuda.jit
    def views(x, out):
        i = cuda.grid(1)
        cuda.atomic.add(x["b"], i, 1.5)
        x["c"][i] = i
        out[i] = x["b"][31 - i]

    x, out = np.zeros(32, packed), np.zeros(32)
    with pytest.raises(KernelTypeError, match="not aligned"):
        launch(assigns[1, 32], x)
    launch(views[1, 32], x, out)
    assert np.all(x["b"] == 1.5)
    np.testing.assert_array_equal(x["c"], np.arange(32))


def test_a_view_that_is_not_aligned(launch):
    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        x[1:257].view(np.float64)[i] = i

    x = np.zeros(300, np.uint8)
    launch(kernel[1, 32], x)
    np.testing.assert_array_equal(x[1:257].view(np.float64), np.arange(32))
    assert not x[0]
    assert not x[257:].any()


def test_more_local_memory_than_a_thread_can_have_is_refused(launch):
    """512 KiB, on every GPU; it would be gigabytes for a block."""

    @cuda.jit
    def kernel(x):
        mine = cuda.local.array(70_000, float64)
        for k in range(x.size):
            mine[k * 7 % 70_000] = k
        x[0] = mine[x.size]

    with pytest.raises(LaunchError, match=r"560,000 bytes.*512 KiB"):
        launch(kernel[4, 1024], np.zeros(100))


def test_blocks_that_wait_for_each_other_do_not_fill_the_machines_memory(launch, monkeypatch):
    """Each holds 1,000 x 8 bytes for each of 64 threads: 512,000 bytes, and what else is saved. Three fit into 2 MB, four do not."""

    @cuda.jit
    def kernel(x):
        a = cuda.local.array(1000, float64)
        i = cuda.grid(1)
        for k in range(1000):
            a[k] = i + k
        cuda.cg.this_grid().sync()
        x[i] = a[i % 1000]

    monkeypatch.setattr(resident, "MOST_BYTES", 2_000_000)
    x = np.zeros(256)
    launch(kernel[3, 64], x)
    np.testing.assert_array_equal(x[:192], 2 * np.arange(192))
    with pytest.raises(LaunchError, match=r"4 blocks wait for each other and hold 0.0 GiB, 0.5 MiB each \(local memory"):
        launch(kernel[4, 64], x)
    launch(kernel[3, 64], x)


def test_a_large_local_array_compiles_in_seconds_and_starts_as_zeros(launch):
    """numba zeroes local arrays; taken apart into single stores, 16,000 of them would keep LLVM busy for a minute."""

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        mine = cuda.local.array(16_000, float64)
        mine[x[i]] = i
        out[i] = mine[x[i]] + mine[x[i] + 1] + mine[15_999]

    x, out = np.arange(32) * 400, np.full(32, -1.0)
    began = time.process_time()
    launch(kernel[1, 32], x, out, counters=False)
    assert time.process_time() - began < 20
    np.testing.assert_array_equal(out, np.arange(32))
