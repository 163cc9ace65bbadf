"""What is made of raw times and of what the driver says: statistics, doubts, the figures of a GPU. All of it without one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numba import cuda

import solcourse as sol
from solcourse import gpu as driver
from solcourse import timers, timing
from solcourse.gpu import GpuFacts
from solcourse.nvml import Clock, Nvml, Power, reasons

FACTS = GpuFacts("NVIDIA A100-SXM4-80GB", "8.0", 108, 1410, 40 << 20, 5120, 1593, 85_899_345_920)


@cuda.jit
def add_one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


# -------------------------------------------------------------------------------------------------------------- statistics
def test_median_interval_is_by_rank():
    # n = 50: half = 1.96 sqrt(50) = 13.9; ranks floor((50 - 13.9) / 2) = 18 and ceil(1 + (50 + 13.9) / 2) = 33
    assert timing.median_interval([float(v) for v in range(50, 0, -1)]) == (18.0, 33.0)
    assert timing.median_interval([3.0]) == (3.0, 3.0)


def test_median_interval_holds_the_median(rng):
    for n in (5, 10, 51):
        times = rng.exponential(size=n)
        low, high = timing.median_interval(times)
        assert low <= np.median(times) <= high


def test_median_interval_covers_the_true_median_as_often_as_it_says(rng):
    samples = rng.exponential(size=(2000, 50))  # median ln 2
    covered = np.mean([low <= np.log(2) <= high for low, high in map(timing.median_interval, samples)])
    assert 0.94 < covered < 0.99  # ranks are whole numbers: a little wider than 95 %


# ------------------------------------------------------------------------------------------------------------------ doubts
def doubts(times, timer=timers.CUPTI, clocks=(), power=None):
    return "; ".join(timing.doubts(timer, list(times), clocks, power))


def test_steady_times_at_a_steady_clock_leave_no_doubt():
    assert doubts([1e-3] * 50, clocks=[Clock(1410)] * 12, power=Power(400, 400)) == ""


def test_short_times_are_in_doubt_with_events_only():
    assert "6-10 µs" in doubts([5e-6] * 50, timers.EVENTS)
    assert doubts([5e-6] * 50, timers.CUPTI) == ""


def test_a_wide_interval_is_said():
    assert "uncertain" in doubts(np.tile(np.linspace(1e-3, 2e-3, 10), 5))


def test_too_few_repeats_for_an_interval_are_said():
    assert "5 repeats are too few" in doubts([1e-3] * 5)
    assert doubts([1e-3] * 6) == ""


def test_one_outlier_moves_neither_median_nor_interval_and_several_are_said():
    times = [1e-3] * 49 + [1.0]
    assert (np.median(times), timing.median_interval(times)) == (1e-3, (1e-3, 1e-3))
    assert doubts(times) == ""
    assert "3 of 50 repeats took over 1.5 medians" in doubts([1e-3] * 47 + [2e-3] * 3)


@pytest.mark.parametrize(("last", "word"), [(1.06e-3, "6 % slower"), (0.94e-3, "6 % faster")])
def test_times_that_drift_are_said(last, word):
    assert word in doubts([1e-3] * 20 + [last] * 30)
    assert "drifts" not in doubts([1e-3, last] * 25)  # as wide, and no drift


def test_a_clock_that_falls_or_rises_is_said():
    assert "fell from 1400 to 1200 MHz: the GPU is throttling" in doubts([1e-3] * 50, clocks=[Clock(1400), Clock(1200)])
    assert "rose from 1200 to 1400" in doubts([1e-3] * 50, clocks=[Clock(1200), Clock(1400)])


def test_what_held_the_clock_back_at_any_look_is_said_once():
    looks = [Clock(1410), Clock(1410, ("power limit",)), Clock(1400, ("power limit", "temperature")), Clock(1410)]
    assert doubts([1e-3] * 50, clocks=looks) == "the clock was held back: power limit, temperature"


def test_a_lowered_power_limit_is_said():
    assert "250 W; it comes with 400 W" in doubts([1e-3] * 50, power=Power(250, 400))


# ------------------------------------------------------------------------------------------------------------ NVML's answers
def test_nvml_bits_have_words_and_idle_has_none():
    assert reasons(0x1) == ()
    assert reasons(0x8 | 0x20) == ("hardware slowdown", "temperature")


def test_where_nvml_does_not_answer_nothing_is_known():
    for library in (False, object()):  # no library, and one without these functions
        silent = Nvml("00000000:04:00.0", library)
        assert (silent.clock(), silent.power()) == (None, None)


# ------------------------------------------------------------------------------------------------------------- its figures
@pytest.mark.parametrize(
    ("name", "figures"),
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
def test_drivers_names_find_their_figures(name, figures):
    assert timing.figures_of(name).name == figures


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 3090 Ti", "NVIDIA A10G", "NVIDIA A100 80GB PCIe", "Quadro"])
def test_a_relative_is_not_taken_for_the_gpu(name):
    with pytest.raises(sol.UnknownName):
        timing.figures_of(name)


def test_what_the_driver_says_agrees_with_the_table():
    assert driver.differences(FACTS, sol.device("A100-SXM4-80GB")) == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sms": 14}, "14 SMs, in the figures 108: a part of the chip"),
        ({"boost_mhz": 1200}, "boost clock 1200 MHz, in the figures 1410 MHz"),
        ({"l2_bytes": 20 << 20}, "L2 20 MiB, in the figures 40 MiB"),
        ({"memory_mhz": 1215}, "DRAM at 1.56 TB/s by its clock and bus, in the figures 2.04 TB/s"),  # 2 x 1215e6 x 640 B
        ({"memory_bytes": 42_000_000_000}, "42.0 GB of memory, in the figures 80.0 GB"),
        ({"cc": "8.6"}, "compute capability 8.6, in the figures 8.0"),
    ],
)
def test_a_board_that_differs_from_the_table_is_said(changed, said):
    (difference,) = driver.differences(replace(FACTS, **changed), sol.device("A100-SXM4-80GB"))
    assert said in difference


def test_what_the_driver_does_not_know_is_no_difference():
    silent = replace(FACTS, boost_mhz=None, memory_mhz=None, bus_bits=None, memory_bytes=None, l2_bytes=0)
    assert driver.differences(silent, sol.device("A100-SXM4-80GB")) == ()


def test_an_unknown_gpu_is_told_how_to_give_its_figures_and_that_works():
    ti = GpuFacts("NVIDIA GeForce RTX 3090 Ti", "8.6", 84, 1860, 6 << 20, 384, 10501, 25_757_220_864)
    with pytest.raises(sol.UnknownName, match="no published figures of the NVIDIA GeForce RTX 3090 Ti") as caught:
        driver.figures_for(ti)
    given = str(caught.value).split("device=")[1].split(". That is")[0]
    made = eval(given, {"dataclasses": __import__("dataclasses"), "sol": sol})
    # 84 SMs x 128 lanes x 2 x 1.86 GHz = 40.0 TFLOP/s; 2 x 10501 MHz x 48 B = 1008 GB/s
    assert (made.name, made.sms, made.fp32_tflops, made.dram_gbs_spec) == (ti.name, 84, 40.0, 1008.1)
    assert driver.differences(ti, made) == ()


# --------------------------------------------------------------------------------------------------------------- no GPU here
def test_without_a_gpu_measure_says_why_and_what_to_do():
    try:
        driver.require_cuda()
    except sol.NoGPU:
        pass
    else:
        pytest.skip("there is a GPU")
    call = (add_one[1, 32], np.zeros(8))
    for verb in (lambda: sol.measure(*call), lambda: sol.compare(call, call), sol.calibrate):
        with pytest.raises(sol.NoGPU, match=r"no usable NVIDIA GPU here \(.+\).*sol\.profile.*Colab.*numba-cuda\[cu13\]") as caught:
            verb()
        assert "\n" not in str(caught.value)


def test_measure_under_the_engine_is_refused():
    with sol.use_engine(), pytest.raises(sol.NoGPU, match="use_engine"):
        sol.measure(add_one[1, 32], np.zeros(8))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cache": "hot"}, "cache is 'cold' or 'warm'"),
        ({"repeats": 0}, "repeats is a number of launches, at least 1"),
        ({"warm_ups": -1}, "warm_ups is a number of launches, at least 0"),
        ({"timer": "watch"}, "timer is 'events' or 'cupti'"),
    ],
)
def test_impossible_options_are_refused_before_a_gpu_is_looked_for(options, said):
    with pytest.raises(sol.SolcourseError, match=said):
        sol.measure(add_one[1, 32], np.zeros(8), **options)


def test_compare_wants_two_launches():
    with pytest.raises(sol.LaunchError, match=r"two tuples, \(kernel\[grid, block\], \*arguments\)"):
        sol.compare(add_one[1, 32], (add_one[1, 32], np.zeros(8)))
