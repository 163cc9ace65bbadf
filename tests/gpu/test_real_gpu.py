"""On a real GPU: predicted beside measured, the two timers, the check of timed outputs, and the calibration. Skips where there is none."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import reference_launches
from numba import cuda

import solcourse as sol
from solcourse import gpu as driver
from solcourse import timers, units
from solcourse.kernels import cases


@cuda.jit
def add_one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


def figures():
    """The GPU's own, or its nearest relative's with what its driver says."""
    facts = driver.facts(driver.require_cuda())
    try:
        return driver.figures_for(facts)
    except sol.UnknownName:
        from dataclasses import replace

        return replace(driver.relative_of(facts), **driver.own_figures(facts))


def beside(names, device) -> list[tuple]:
    """(kernel, measured report) of each, with the prediction in it."""
    reports = []
    for name in names:
        launch, arguments, work = reference_launches.large(name)
        options = {"device": device, "work": work, "profile": True, "sample_blocks": reference_launches.SAMPLE_BLOCKS}
        reports.append((name, sol.measure(launch, *arguments, **options)))
    return reports


def row_of(name, report) -> tuple:
    said = report.prediction
    low, high = said.interval_s
    inside = "" if low <= report.time_s <= high else "outside"
    times = [units.seconds(t) for t in (report.time_s, said.time_s, low, high)]
    return (name, *times, f"{said.time_s / report.time_s:.2f}", report.bound, inside)


HEAD = ("kernel", "measured", "predicted", "low", "high", "ratio", "bound", "")


def test_a_table_of_predicted_and_measured_can_be_made(make_gpu):
    gpu = make_gpu(cupti={})
    launch, arguments, work = reference_launches.large("copy")
    report = sol.measure(gpu.launch(launch, 1e-3), *arguments, work=work, profile=True, sample_blocks=64, repeats=3)
    text = reference_launches.table([HEAD, row_of("copy", report)])
    assert text.splitlines()[1].split()[:3] == ["copy", "1.00", "ms"]
    assert "outside" in text


def test_predicted_times_are_within_twice_their_interval(real_gpu):
    reports = beside(cases(), figures())
    print("\n" + reference_launches.table([HEAD, *(row_of(*pair) for pair in reports)]))
    ratios = [report.prediction.time_s / report.time_s for _, report in reports]
    errors = [abs(ratio - 1) for ratio in ratios]
    print(f"median error {100 * statistics.median(errors):.0f} %, {sum(e <= 0.25 for e in errors)} of {len(errors)} within 25 %")
    far = []
    for name, report in reports:
        low, high = report.prediction.interval_s
        if not low / 2 <= report.time_s <= high * 2:
            far.append(name)
    assert far == []


def test_the_reference_kernels_are_right_on_the_gpu_and_after_timing(real_gpu):
    wrong = {}
    for name in cases():
        case = cases()[name]
        launch, arguments = reference_launches.small(name)
        expected = case.expected(arguments)
        report = sol.measure(launch, *arguments, device=figures(), repeats=5, warm_ups=1)
        complaints = [*case.wrong(arguments, expected), *report.timing.outputs.wrong]
        if complaints:
            wrong[name] = complaints
    assert wrong == {}


def test_a_copy_is_no_faster_than_light(real_gpu):
    n = 2**26
    x = cuda.to_device(np.zeros(n, np.float32))
    work = sol.Work.read("x", 4 * n) + sol.Work.write("x", 4 * n)
    report = sol.measure(add_one[n // 256, 256], x, work=work, device=figures())
    print(report)
    assert 0.5 < report.sol_score <= 1
    assert x[:4].copy_to_host().tolist() == [1] * 4


def test_the_two_timers_agree_on_a_long_kernel(real_gpu):
    n = 2**25
    x = cuda.to_device(np.zeros(n, np.float32))
    try:
        records = sol.measure(add_one[n // 256, 256], x, timer="cupti", device=figures())
    except timers.TimerFailed as why:
        pytest.skip(str(why))
    events = sol.measure(add_one[n // 256, 256], x, timer="events", device=figures())
    assert -2e-6 < events.time_s - records.time_s < 15e-6


def test_a_kernel_that_works_only_once_is_found_on_the_gpu(real_gpu):
    @cuda.jit
    def once(x, done):
        i = cuda.grid(1)
        if done[0] == 0:
            x[i] = i + 1

    done = cuda.to_device(np.zeros(1, np.int32))

    @cuda.jit
    def mark(flag):
        flag[0] = 1

    def launch_once(x):  # state that no argument shows, as a cached result would be
        once[4, 256](x, done)
        mark[1, 1](done)

    from solcourse.simt import frontend
    from solcourse.timing import time_launches

    class Launch:
        def __call__(self, x):
            launch_once(x)

    ((took, _),) = time_launches([(Launch(), (np.zeros(1024),), frontend.launch_of(add_one[4, 256]))], repeats=5, timer="events")
    assert took.outputs.wrong


def test_calibration_gives_a_device_that_predicts_a_copy_better_or_as_well(real_gpu):
    before = figures()
    made = sol.calibrate(before)
    for name in ("clock_derate", "dram_eta_copy", "launch_us_stream"):
        print(f"{name} {getattr(made, name)}, was {getattr(before, name)}")
    launch, arguments, work = reference_launches.large("copy")
    measured = sol.measure(launch, *arguments, device=made, work=work).time_s
    errors = [abs(sol.profile(launch, *arguments, device=d, sample_blocks=256).time_s / measured - 1) for d in (before, made)]
    assert errors[1] <= errors[0] + 0.05


def test_the_table_agrees_with_the_driver(real_gpu):
    facts = driver.facts(driver.require_cuda())
    try:
        device = driver.figures_for(facts)
    except sol.UnknownName as error:
        pytest.skip(str(error)[:200])
    print("\n".join(driver.differences(facts, device)))
    assert facts.cc == device.cc
