"""sol.calibrate() finds the three figures of a GPU: here of one whose times the model makes of other figures than it is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import solcourse as sol
from solcourse import calibration

BASE = sol.device("Tesla T4")


def times_of(gpu):
    """The model's times on `gpu`, in the place of measured ones."""

    def seconds(launch, *args, times=1):
        return times * sol.profile(launch, *args, device=gpu, sample_blocks=64).time_s

    return seconds


@pytest.mark.parametrize(("derate", "eta", "launch_us"), [(1.0, 0.85, 2.62), (0.8, 0.7, 4.0), (0.95, 0.92, 1.2)])
def test_the_figures_behind_the_times_are_found(derate, eta, launch_us, monkeypatch):
    monkeypatch.setattr(calibration, "COPY_BYTES", (1 << 24, 1 << 25))
    there = replace(BASE, clock_derate=derate, dram_eta_copy=eta, launch_us_stream=launch_us)
    found = calibration.figures(BASE, times_of(there), lambda n, dtype: np.zeros(n, dtype))
    assert found["clock_derate"] == pytest.approx(derate, rel=0.07)  # the model's soft maximum adds 5 % to a chain that waits
    assert found["dram_eta_copy"] == pytest.approx(eta, rel=0.05)
    assert found["launch_us_stream"] == pytest.approx(launch_us, rel=0.3)  # the kernel that does nothing does a little


def test_half_the_clock_is_found_as_half_the_clock():
    clocks = [
        calibration.sm_clock_hz(BASE, times_of(replace(BASE, clock_derate=derate)), lambda n, dtype: np.zeros(n, dtype))
        for derate in (0.5, 1.0)
    ]
    assert clocks[0] / clocks[1] == pytest.approx(0.5, rel=1e-3)


def test_a_calibrated_device_keeps_the_rest_and_says_what_was_measured():
    found = {"clock_derate": 0.9, "dram_eta_copy": 0.8, "launch_us_stream": 3.0}
    made = calibration.calibrated(BASE, found, "measured here")
    assert {name: getattr(made, name) for name in found} == found
    assert (made.dram_eta_read, made.dram_eta_write) == (0.864, 0.88)  # 1.08 x 0.8, 1.1 x 0.8
    assert made.sources["clock_derate"] == "measured here"
    assert not made.flagged & set(found)
    assert replace(made, **{n: getattr(BASE, n) for n in (*found, "dram_eta_read", "dram_eta_write", "flagged")}) == BASE


@pytest.mark.parametrize(("name", "value"), [("clock_derate", 3.0), ("dram_eta_copy", 1.3), ("launch_us_stream", -1.0)])
def test_what_cannot_be_right_is_refused(name, value):
    found = {"clock_derate": 0.9, "dram_eta_copy": 0.8, "launch_us_stream": 3.0} | {name: value}
    with pytest.raises(sol.SolcourseError, match=f"Calibration found {name} = {value:.3g} for Tesla T4.*figures of this GPU"):
        calibration.calibrated(BASE, found, "measured here")


def test_calibrate_times_three_kernels_on_the_gpu_and_gives_its_device(make_gpu, monkeypatch):
    """FMA chains of 20 and 60 turns of 64 x 4 cycles at 1.272 GHz (0.8 x 1.59); copies at 240 GB/s (0.75 x 320); starts of 2 µs."""
    gpu = make_gpu(cupti={})
    monkeypatch.setattr(calibration, "COPY_BYTES", (1 << 16, 1 << 18))
    monkeypatch.setattr(calibration, "TURNS", (20, 60))
    gpu.device.L2_CACHE_SIZE = 1024
    small = replace(sol.device("Tesla T4"), l2_mib=0.001)

    def takes(kernel, args):
        if kernel == "fma_chain":
            return 5e-6 + args[3] * 64 * 4 / 1.272e9
        return 5e-6 + 8 * args[0].size / 240e9 if kernel == "copy" else 2e-6

    def ticking(dispatcher):
        class Ticking:
            def __getitem__(self, key):
                launch = gpu.launch(dispatcher[key])
                plain = type(launch).__call__

                class Own(type(launch)):
                    def __call__(self, *args):
                        self._takes = lambda _: takes(dispatcher.py_func.__name__, args)
                        plain(self, *args)

                launch.__class__ = Own
                return launch

        return Ticking()

    for name in ("fma_chain", "copy", "nothing"):
        monkeypatch.setattr(calibration, name, ticking(getattr(calibration, name)))
    made = sol.calibrate(small, repeats=3)
    assert (made.clock_derate, made.dram_eta_copy, made.launch_us_stream) == pytest.approx((0.8, 0.75, 2.0), rel=1e-2)
    assert made.sources["clock_derate"] == "measured on this Tesla T4 by sol.calibrate()"
