"""The order of what is done around a window, and the choice of the timer, on a GPU that is none."""

from __future__ import annotations

import numpy as np
import pytest
from fake_gpu import FakeCupti
from numba import cuda

import solcourse as sol
from solcourse import timers
from solcourse.timers import CuptiTimer, EventTimer, Step, TimerFailed


@cuda.jit
def add_one(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i] + 1


def a_launch(gpu, takes=2e-3):
    return gpu.launch(add_one[128, 256], takes)


def the_arrays():
    return np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)


def around_windows(gpu):
    """What lies between the events of each window."""
    windows, inside = [], None
    for entry in gpu.log:
        if entry == "event":
            if inside is not None:
                windows.append(inside)
            inside = [] if inside is None else None
        elif inside is not None:
            inside.append(entry)
    return windows


def test_events_hold_nothing_but_the_launch(make_gpu):
    gpu = make_gpu()
    report = sol.measure(a_launch(gpu), *the_arrays(), repeats=20)
    assert around_windows(gpu) == [["launch"]] * 20
    assert report.timing.times_s == pytest.approx([2e-3] * 20)  # copies of 0.1 s lie outside
    # launch 1 (compiles), the caller's, 10 warm-ups, 20 repeats
    assert gpu.log.count("launch") == 32


def test_each_cold_repeat_is_set_back_and_then_flushed(make_gpu, monkeypatch):
    gpu = make_gpu()
    flushed = []
    monkeypatch.setattr("solcourse.timing._flusher", lambda cuda: lambda: (flushed.append(len(gpu.log)), gpu.log.append("flush")))
    sol.measure(a_launch(gpu), *the_arrays(), repeats=5, warm_ups=0)
    assert [gpu.log[at - 1] for at in flushed] == ["copy"] * 5  # y is set back first
    assert [gpu.log[at + 1] for at in flushed] == ["event"] * 5  # and nothing comes between the flush and the window


def test_the_flush_writes_twice_the_l2(make_gpu):
    from solcourse.timing import _flusher

    gpu = make_gpu(L2_CACHE_SIZE=4096)
    sizes = []
    gpu.device_array = lambda n, dtype: sizes.append(n * np.dtype(dtype).itemsize) or cuda.device_array(n, dtype)
    _flusher(gpu)()
    del gpu.device.L2_CACHE_SIZE
    _flusher(gpu)()
    assert sizes == [2 * 4096, 2 * (128 << 20)]  # the largest there is where the driver does not tell


def test_warm_repeats_are_not_flushed_and_stay_on_one_copy(make_gpu):
    gpu = make_gpu()
    report = sol.measure(a_launch(gpu), *the_arrays(), cache="warm", repeats=5)
    assert (report.cache, report.timing.copies) == ("warm", 1)
    assert "warm: inputs as the launch before left them" in str(report)
    assert "cold" not in str(report)


def test_the_gpu_is_kept_busy_while_the_host_launches(make_gpu):
    gpu = make_gpu()
    naps = []
    timer = EventTimer(gpu, host_s=1e-3)
    timer._wait = {(1, 1, 0): naps.append}
    timer.time([Step(lambda: None, lambda: None)])
    assert naps == [200]  # 4 x 1 ms in naps of 20 µs


def test_there_is_no_waiting_kernel_where_the_chip_cannot_sleep(make_gpu):
    assert EventTimer(make_gpu(compute_capability=(6, 0)))._wait is None


def test_cupti_is_taken_where_it_works_and_said(make_gpu):
    gpu = make_gpu(cupti={})
    report = sol.measure(a_launch(gpu, lambda k: 1e-3 + k * 1e-6), *the_arrays(), repeats=20)
    # launches 0 and 1 come first, then 10 warm-ups: the repeats are launches 12 to 31, in this order
    assert report.timing.times_s == pytest.approx([1e-3 + k * 1e-6 for k in range(12, 32)], abs=2e-9)
    assert "CUPTI kernel records: the median of 20 launches after 10 warm-ups" in str(report)
    assert report.timing.why_not_cupti == ""


@pytest.mark.parametrize(
    ("cupti", "why"),
    [
        (None, "CUPTI is not installed"),
        ({"broken": "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"}, "CUPTI does not work here (CUPTI_ERROR_MULTIPLE"),
        ({"spurious": 1}, "CUPTI recorded 21 kernels in 20 launches"),
    ],
)
def test_without_cupti_events_are_taken_and_the_report_says_why(make_gpu, cupti, why):
    gpu = make_gpu(cupti=cupti)
    report = sol.measure(a_launch(gpu), *the_arrays(), repeats=20)
    assert report.timing.timer == timers.EVENTS
    assert report.timing.times_s == pytest.approx([2e-3] * 20)
    text = " ".join(str(report).split())
    assert f"CUDA events ({why}" in text
    assert why.split("(")[0] in report._repr_mimebundle_()["text/html"]


def test_a_timer_that_is_asked_for_and_does_not_work_is_an_error(make_gpu):
    gpu = make_gpu()
    with pytest.raises(TimerFailed, match="pip install cupti-python"):
        sol.measure(a_launch(gpu), *the_arrays(), timer="cupti")


def test_events_that_are_asked_for_are_taken(make_gpu):
    gpu = make_gpu(cupti={})
    assert "CUDA events (asked for)" in str(sol.measure(a_launch(gpu), *the_arrays(), timer="events"))


def test_cupti_is_left_off_afterwards_whatever_happened(make_gpu):
    gpu = make_gpu()
    cupti = FakeCupti(gpu)

    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        CuptiTimer(gpu, cupti).time([Step(lambda: None, fails)])
    assert cupti.enabled == []


def test_records_without_times_are_not_taken_for_times(make_gpu):
    gpu = make_gpu()
    step = Step(lambda: None, lambda: gpu.spans.append((5, 5)))
    with pytest.raises(TimerFailed, match="no times"):
        CuptiTimer(gpu, FakeCupti(gpu)).time([step])


def test_cupti_python_has_the_names_that_are_used():
    cupti = pytest.importorskip("cupti.cupti", reason="cupti-python is not installed", exc_type=ImportError)
    assert int(cupti.ActivityKind.CONCURRENT_KERNEL) == FakeCupti.ActivityKind.CONCURRENT_KERNEL
    for name in (name for name in vars(FakeCupti) if name.startswith("activity_")):
        assert callable(getattr(cupti, name))
    kernel = getattr(
        cupti, max((n for n in dir(cupti) if n.startswith("ActivityKernel")), key=lambda n: int(n.removeprefix("ActivityKernel")))
    )
    assert {"start", "end", "kind"} <= set(dir(kernel))
