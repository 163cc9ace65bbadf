"""Timing on a real GPU: what can be known without one, with a recorded clock; and, where there is a GPU, the GPU."""

from __future__ import annotations

import types

import numpy as np
import pytest
from numba import cuda

import solcourse as sol
from solcourse import timing


def gpu_missing() -> str:
    """Why there is no GPU; '' if there is."""
    try:
        timing.gpu_name()
    except sol.NoGPU as error:
        return str(error)
    return ""


needs_gpu = pytest.mark.skipif(bool(gpu_missing()), reason=gpu_missing()[:120])


@cuda.jit
def add_one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


# ----------------------------------------------------------------------------------------------------------- without a GPU


def test_median_interval_is_by_rank():
    # n = 50: half = 1.96 sqrt(50) = 13.9; ranks floor((50 - 13.9) / 2) = 18 and ceil(1 + (50 + 13.9) / 2) = 33
    assert timing.median_interval([float(v) for v in range(50, 0, -1)]) == (18.0, 33.0)
    assert timing.median_interval([3.0]) == (3.0, 3.0)


def test_median_interval_holds_the_median(rng):
    for n in (5, 10, 51):
        times = rng.exponential(size=n)
        low, high = timing.median_interval(times)
        assert low <= np.median(times) <= high


def test_short_uncertain_or_throttled_times_are_remarked():
    assert timing.summary("GPU", [1e-3] * 50, "cold").remark == ""
    assert "events" in timing.summary("GPU", [5e-6] * 50, "cold").remark
    assert "uncertain" in timing.summary("GPU", np.linspace(1e-3, 2e-3, 50), "cold").remark
    assert "throttling" in timing.summary("GPU", [1e-3] * 50, "cold", (1400.0, 1200.0)).remark


def test_one_outlier_moves_neither_median_nor_interval():
    times = [1e-3] * 49 + [1.0]
    assert timing.summary("GPU", times, "cold").interval_s == (1e-3, 1e-3)


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("Tesla T4", "Tesla T4"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"),
        ("NVIDIA L4", "L4"),
    ],
)
def test_drivers_names_find_their_figures(driver, name):
    assert timing.figures_of(driver).name == name


@pytest.mark.parametrize("driver", ["NVIDIA GeForce RTX 3090 Ti", "NVIDIA A10G", "NVIDIA A100 80GB PCIe", "Quadro"])
def test_a_relative_is_not_taken_for_the_gpu(driver):
    with pytest.raises(sol.UnknownName):
        timing.figures_of(driver)


class FakeGPU:
    """numba.cuda with a clock that a launch moves by 2 ms and an L2 flush by 100 ms."""

    def __init__(self):
        self.now_s, self.log = 0.0, []

    def get_current_device(self):
        return types.SimpleNamespace(name=b"Tesla T4", L2_CACHE_SIZE=4096)

    def synchronize(self): ...

    def event(self):
        gpu = self

        class Event:
            def record(self):
                self.at_s = gpu.now_s

            def synchronize(self): ...

        return Event()

    def event_elapsed_time(self, start, stop):
        return (stop.at_s - start.at_s) * 1e3

    def to_device(self, array):
        return self.device_array(array.size, array.dtype, array.copy())

    def device_array(self, size, dtype, data=None):
        gpu = self

        class Array:
            values = data

            def copy_to_host(self, out):
                out[:] = self.values

            def copy_to_device(self, other):
                gpu.now_s += 0.1
                gpu.log.append(("flush", size * np.dtype(dtype).itemsize))

        return Array()

    def launch(self, x, n):
        x.values += 1
        self.now_s += 2e-3
        self.log.append("launch")


@pytest.fixture
def gpu(monkeypatch):
    fake = FakeGPU()
    monkeypatch.setattr(timing, "_cuda", lambda: fake)
    monkeypatch.setattr(timing, "sm_clock_mhz", lambda: None)
    return fake


def test_cold_timing_flushes_twice_l2_before_each_repeat_and_outside_the_window(gpu):
    timed = timing.time_launch(gpu.launch, (np.zeros(3), 3), repeats=20)
    assert timed.times_s == pytest.approx([2e-3] * 20)
    assert timed.median_s == pytest.approx(2e-3)
    # one to compile, 10 to warm up, then flush and launch in turn
    assert gpu.log == ["launch"] * 11 + [("flush", 2 * 4096), "launch"] * 20


def test_warm_timing_does_not_flush(gpu):
    assert timing.time_launch(gpu.launch, (np.zeros(3), 3), cache="warm", repeats=5).cache == "warm"
    assert gpu.log == ["launch"] * 16


def test_arrays_hold_the_result_of_one_launch(gpu):
    x = np.zeros(3)
    timing.time_launch(gpu.launch, (x, 3), repeats=5)
    assert x.tolist() == [1, 1, 1]


def test_measure_reports_a_measured_time(gpu, monkeypatch):
    monkeypatch.setattr("solcourse.simt.frontend.launch_of", lambda launch: types.SimpleNamespace(dispatcher=add_one))
    # T4: 320 GB/s; 64 MB take 0.2 ms at the speed of light, 2 ms were measured
    report = sol.measure(gpu.launch, np.zeros(3), 3, work=sol.Work.read("x", 64_000_000))
    assert (report.origin, report.device.name, report.kernel) == ("measured", "Tesla T4", "add_one")
    assert report.time_s == pytest.approx(2e-3)
    assert report.sol_score == pytest.approx(0.1)


@pytest.mark.skipif(not gpu_missing(), reason="there is a GPU")
def test_without_a_gpu_measure_says_why_and_what_to_do():
    with pytest.raises(sol.NoGPU, match=r"no usable NVIDIA GPU here \(.+\).*sol\.profile.*Colab.*numba-cuda\[cu13\]") as caught:
        sol.measure(add_one[1, 32], np.zeros(8))
    assert "\n" not in str(caught.value)


def test_measure_under_the_engine_is_refused():
    with sol.use_engine(), pytest.raises(sol.NoGPU, match="use_engine"):
        sol.measure(add_one[1, 32], np.zeros(8))


# -------------------------------------------------------------------------------------------------------------- with a GPU


@pytest.mark.gpu
@needs_gpu
def test_a_real_gpu_copies_no_faster_than_light():
    n = 2**26
    x = cuda.to_device(np.zeros(n, np.float32))
    work = sol.Work.read("x", 4 * n) + sol.Work.write("x", 4 * n)
    report = sol.measure(add_one[n // 256, 256], x, work=work)
    assert 0.5 < report.sol_score <= 1


@pytest.mark.gpu
@needs_gpu
def test_profile_and_measure_agree_on_results():
    predicted, measured = np.zeros(1000), np.zeros(1000)
    sol.profile(add_one[8, 128], predicted)
    sol.measure(add_one[8, 128], measured, work=sol.Work.read("x", 8000))
    np.testing.assert_array_equal(predicted, measured)
