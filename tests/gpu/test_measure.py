"""sol.measure and sol.compare from end to end, on a GPU that is none: what they report, and that planted faults are found."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
from fake_gpu import FakeNvml
from numba import cuda

import solcourse as sol

N = 1000


@cuda.jit
def add_one(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i] + 1


@cuda.jit
def add_two(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i] + 2


@cuda.jit
def increment(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


@cuda.jit
def half_of_it(x, y):
    i = cuda.grid(1)
    if i < y.size // 2:
        y[i] = x[i]


@cuda.jit
def append(x, y, used):
    i = cuda.grid(1)
    if i < x.size:
        y[cuda.atomic.add(used, 0, 1)] = x[i]


def arrays():
    return np.arange(N, dtype=np.float32), np.zeros(N, np.float32)


def text_of(report):
    return " ".join(str(report).split())


# ------------------------------------------------------------------------------------------------------------ what is said
def test_a_measured_report_says_how_it_was_measured(make_gpu):
    gpu = make_gpu(cupti={}, nvml_says=FakeNvml())
    x, y = arrays()
    # T4: 320 GB/s; 64 MB take 0.2 ms at the speed of light, 2 ms were measured
    report = sol.measure(gpu.launch(add_one[8, 128]), x, y, work=sol.Work.read("x", 64_000_000))
    assert (report.origin, report.device.name, report.kernel) == ("measured", "Tesla T4", "add_one")
    assert report.time_s == pytest.approx(2e-3)
    assert report.sol_score == pytest.approx(0.1)
    assert report.grid, report.block == ((8, 1, 1), (128, 1, 1))
    assert report.launch_s > 0
    said = text_of(report)
    for words in (
        "add_one on Tesla T4: measured, cold cache",
        "8 blocks of 128 threads",
        "cold: twice the size of L2 written before each launch; 50 copies of the arrays in turn",
        "1590 MHz before, 1590 MHz after; not held back",
        "y: right after the timed launches, checked on 50 of 50",
    ):
        assert words in said
    assert "in doubt" not in said
    assert "ALARM" not in said


def test_html_and_json_say_the_same(make_gpu):
    gpu = make_gpu(cupti={}, nvml_says=FakeNvml(reasons=(0x4,)))
    report = sol.measure(gpu.launch(add_one[8, 128]), *arrays())
    html = report._repr_mimebundle_()["text/html"]
    assert "In doubt: the clock was held back: power limit" in html
    assert "Measured with: CUPTI kernel records" in html
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["timing"]["timer"] == "CUPTI"
    assert len(data["timing"]["times_s"]) == 50
    assert data["timing"]["outputs"]["written"] == ["y"]


@pytest.mark.parametrize("on_device", [True, False])
def test_arrays_hold_the_result_of_one_launch(make_gpu, on_device):
    gpu = make_gpu()
    x = np.zeros(N)
    given = cuda.to_device(x) if on_device else x
    report = sol.measure(gpu.launch(increment[8, 128]), given, repeats=5)
    assert set(given.copy_to_host() if on_device else x) == {1}
    assert report.timing.outputs.written == ("x",)
    assert report.timing.outputs.wrong == ()


def test_every_timed_launch_gets_fresh_inputs(make_gpu):
    gpu = make_gpu()
    seen = []
    launch = gpu.launch(increment[8, 128])
    plain = type(launch).__call__

    class Watched(type(launch)):
        def __call__(self, x):
            seen.append(x.copy_to_host()[0])
            plain(self, x)

    launch.__class__ = Watched
    sol.measure(launch, np.zeros(N), repeats=5, warm_ups=3)
    assert seen == [0] * (2 + 3 + 5)


def test_timed_launches_take_copies_in_turn(make_gpu):
    gpu = make_gpu()
    addresses = []
    launch = gpu.launch(increment[8, 128])
    plain = type(launch).__call__

    class Watched(type(launch)):
        def __call__(self, x):
            addresses.append(x.__cuda_array_interface__["data"][0])
            plain(self, x)

    launch.__class__ = Watched
    report = sol.measure(launch, np.zeros(N), repeats=8, warm_ups=0)
    assert report.timing.copies == 8
    assert len(set(addresses[2:])) == 8  # launches 1 and 2 are not timed


def test_without_memory_for_copies_the_arrays_themselves_are_timed_and_hold_one_launchs_result(make_gpu):
    gpu = make_gpu(free_bytes=10)
    x = cuda.to_device(np.zeros(N))
    report = sol.measure(gpu.launch(increment[8, 128]), x, repeats=5)
    assert set(x.copy_to_host()) == {1}
    assert "one copy of the arrays" in text_of(report)
    assert report.timing.outputs.wrong == ()


def test_with_profile_the_report_holds_counts_and_the_prediction(make_gpu):
    gpu = make_gpu(cupti={})
    x, y = arrays()
    report = sol.measure(gpu.launch(add_one[8, 128]), x, y, profile=True)
    # 1000 floats: 31 full warps and one of 8 lanes: 32 requests, 31 x 4 + 1 sectors
    assert (report.counts.global_load.requests, report.counts.global_load.sectors) == (32, 125)
    assert report.time_s == pytest.approx(2e-3)
    assert report.sol_score == pytest.approx(report.sol_time_s / 2e-3)
    assert report.prediction.time_s < 1e-4
    assert f"measured / predicted = {2e-3 / report.prediction.time_s:.2f}, outside that interval" in text_of(report)
    assert "bounds, the model's" in str(report)


def test_without_profile_and_work_there_is_no_score(make_gpu):
    report = sol.measure(make_gpu().launch(add_one[8, 128]), *arrays(), repeats=5)
    assert report.sol_score is None
    assert "give work= for a score" in str(report)


def test_a_board_unlike_its_table_is_said(make_gpu):
    gpu = make_gpu(MEMORY_CLOCK_RATE=4_000_000, nvml_says=FakeNvml(clocks=(900,), limit=40))
    said = text_of(sol.measure(gpu.launch(add_one[8, 128]), *arrays()))
    assert "the driver of the Tesla T4 says otherwise than the figures of the Tesla T4: DRAM at 256 GB/s" in said
    assert "the SMs ran at 900 MHz; peaks of arithmetic are those at 1590 MHz" in said
    assert "power limit is 40 W; it comes with 70 W" in said


def test_a_gpu_without_figures_is_measured_against_those_given(make_gpu):
    gpu = make_gpu(name="NVIDIA RTX 9999")
    with pytest.raises(sol.UnknownName, match="no published figures of the NVIDIA RTX 9999"):
        sol.measure(gpu.launch(add_one[8, 128]), *arrays())
    assert sol.measure(gpu.launch(add_one[8, 128]), *arrays(), device="Tesla T4", repeats=5).device.name == "Tesla T4"


# ----------------------------------------------------------------------------------------------------------- planted faults
def test_throttling_is_said(make_gpu):
    gpu = make_gpu(nvml_says=FakeNvml(clocks=(1590, 1500, 1400), reasons=(0, 0x20, 0)))
    said = text_of(sol.measure(gpu.launch(add_one[8, 128]), *arrays()))
    assert "held back: temperature" in said
    assert "the clock fell from 1590 to 1400 MHz: the GPU is throttling" in said
    assert "1590 MHz before, 1400 MHz after; held back" in said


def test_a_drifting_clock_is_said(make_gpu):
    gpu = make_gpu(cupti={})
    report = sol.measure(gpu.launch(add_one[8, 128], lambda k: 1e-3 * (1 + 0.002 * k)), *arrays())
    assert "slower than the first: the clock drifts" in text_of(report)


def test_outliers_move_nothing_and_are_said(make_gpu):
    gpu = make_gpu(cupti={})
    report = sol.measure(gpu.launch(add_one[8, 128], lambda k: 0.5 if k % 10 == 0 else 1e-3), *arrays())
    assert (report.time_s, *report.interval_s) == pytest.approx((1e-3, 1e-3, 1e-3))
    assert "5 of 50 repeats took over 1.5 medians" in text_of(report)


def kernel_that_works_once():
    done = cuda.to_device(np.zeros(1, np.int32))

    @cuda.jit
    def once(x, y):
        i = cuda.grid(1)
        if i < y.size and done[0] == 0:
            y[i] = x[i] + 1
        cuda.syncthreads()
        if i == 0:
            done[0] = 1

    return once


captures = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason="numba's own numba.cuda takes no device array from around a kernel"
)


@captures
@pytest.mark.parametrize("result_is_there", [False, True])
def test_a_kernel_that_works_only_once_is_found(make_gpu, result_is_there):
    """Also where its output array held the right result before it was measured: the copies are poisoned."""
    gpu = make_gpu()
    x, y = arrays()
    if result_is_there:
        y[:] = x + 1
    report = sol.measure(gpu.launch(kernel_that_works_once()[1, 1024]), x, y)
    assert report.timing.outputs.wrong
    said = text_of(report)
    assert "ALARM" in said
    assert "1,000 of 1,000 elements of y were not written: y[0] should be 1.0" in said
    assert "does less when it is launched again" in said
    assert "WRONG after the timed launches (y)" in said
    assert 'role="alert"' in report._repr_mimebundle_()["text/html"]


@captures
def test_a_kernel_that_gives_something_else_each_time_is_found(make_gpu):
    gpu = make_gpu()
    turns = cuda.to_device(np.zeros(1, np.int32))

    @cuda.jit
    def drifts(y):
        i = cuda.grid(1)
        if i < y.size:
            y[i] = turns[0]
        cuda.syncthreads()
        if i == 0:
            turns[0] += 1

    report = sol.measure(gpu.launch(drifts[1, 1024]), np.zeros(N, np.float32), repeats=5)
    assert any("1,000 of 1,000 elements of y differ" in said for said in report.timing.outputs.wrong)


def test_what_a_kernel_leaves_unwritten_is_no_fault_and_stays_as_it_was(make_gpu):
    gpu = make_gpu()
    x, y = arrays()
    y[:] = 7
    report = sol.measure(gpu.launch(half_of_it[8, 128]), x, y, repeats=5)
    assert report.timing.outputs.wrong == ()
    assert y[N // 2 :].tolist() == [7] * (N // 2)
    assert y[: N // 2].tolist() == x[: N // 2].tolist()


def test_a_kernel_that_writes_nothing_is_said(make_gpu):
    @cuda.jit
    def idle(x):
        pass

    assert "no array was changed: nothing to check" in text_of(sol.measure(make_gpu().launch(idle[8, 128]), np.zeros(N), repeats=5))


def test_results_in_another_order_are_no_fault_and_are_said(make_gpu):
    gpu = make_gpu()
    launch = gpu.launch(append[8, 128])
    plain = type(launch).__call__

    class Shuffled(type(launch)):
        def __call__(self, x, y, used):
            plain(self, x, y, used)
            y.copy_to_device(np.roll(y.copy_to_host(), self.count))

    launch.__class__ = Shuffled
    report = sol.measure(launch, np.arange(N, dtype=np.float32), np.zeros(N, np.float32), np.zeros(1, np.int64), repeats=5)
    assert report.timing.outputs.wrong == ()
    assert "same values in another order" in text_of(report)
    assert "the order of threads is free (atomics)" in text_of(report)


def test_a_gpu_that_computes_something_else_than_the_engine_is_found(make_gpu):
    gpu = make_gpu()
    launch = gpu.launch(add_one[8, 128])
    plain = type(launch).__call__

    class Broken(type(launch)):
        def __call__(self, x, y):
            plain(self, x, y)
            y[3:4].copy_to_device(np.full(1, 42, np.float32))

    launch.__class__ = Broken
    said = text_of(sol.measure(launch, *arrays(), repeats=5, profile=True))
    assert "the GPU's result is not the engine's: 1 of 1,000 elements of y differ: first y[3], 42.0 instead of 4.0" in said


# ---------------------------------------------------------------------------------------------------------------- A against B
def test_compare_takes_turns_and_gives_the_ratio_with_its_interval(make_gpu):
    gpu = make_gpu(cupti={}, nvml_says=FakeNvml())
    x, y = arrays()
    order = []
    a = gpu.launch(add_one[8, 128], lambda k: order.append("A") or 3e-3)
    b = gpu.launch(add_one[16, 64], lambda k: order.append("B") or 2e-3)
    result = sol.compare((a, x, y), (b, x, y), repeats=30)
    assert order[-60:] == ["A", "B"] * 30
    assert (result.ratio, *result.interval) == pytest.approx((1.5, 1.5, 1.5))
    assert (result.a.time_s, result.b.time_s) == pytest.approx((3e-3, 2e-3))
    assert result.faster == "b"
    assert result.verdict == "B (add_one) is 1.5 times as fast (1.5 to 1.5)."
    assert str(result).splitlines()[0] == "measured on Tesla T4 in turn, 30 times each, CUPTI, cold cache"
    assert (y == x + 1).all()


def test_a_drift_that_both_see_does_not_touch_the_ratio(make_gpu):
    gpu = make_gpu(cupti={})
    x, y = arrays()
    a, b = (gpu.launch(add_one[8, 128], lambda k, t=t: t * (1 + k / 20)) for t in (3e-3, 2e-3))
    result = sol.compare((a, x, y), (b, x, y))
    assert result.interval == pytest.approx((1.5, 1.5), rel=1e-4)
    low, high = result.a.interval_s
    assert high / low > 1.1


def test_no_difference_is_no_winner(make_gpu, rng):
    gpu = make_gpu(cupti={})
    x, y = arrays()
    a, b = (gpu.launch(add_one[8, 128], lambda k: 1e-3 * (1 + 0.05 * rng.random())) for _ in range(2))
    result = sol.compare((a, x, y), (b, x, y))
    assert result.faster == ""
    assert "No difference can be told" in result.verdict


def test_the_slower_b_is_named_by_the_faster_a(make_gpu):
    gpu = make_gpu(cupti={})
    x, y = arrays()
    result = sol.compare((gpu.launch(add_one[8, 128], 1e-3), x, y), (gpu.launch(add_one[8, 128], 4e-3), x, y), repeats=10)
    assert "A (add_one) is 4 times as fast (4 to 4)." in result._repr_mimebundle_()["text/html"]


def test_two_that_do_not_compute_the_same_are_found(make_gpu):
    gpu = make_gpu(cupti={})
    x, y = arrays()
    same = sol.compare((gpu.launch(add_one[8, 128]), x, y), (gpu.launch(add_one[4, 256]), x, y), repeats=5)
    other = sol.compare((gpu.launch(add_one[8, 128]), x, y), (gpu.launch(add_two[8, 128]), x, y), repeats=5)
    assert same.remarks == ()
    assert "B does not compute what A computes: 1,000 of 1,000 elements of y differ: first y[0], 2.0 instead of 1.0" in str(other)


def test_two_that_change_the_same_array_do_not_see_each_other(make_gpu):
    gpu = make_gpu(cupti={})
    x = cuda.to_device(np.zeros(N))
    result = sol.compare((gpu.launch(increment[8, 128]), x), (gpu.launch(increment[4, 256]), x), repeats=5)
    for report in (result.a, result.b):
        assert report.timing.outputs.wrong == ()
    assert result.remarks == ()
    assert set(x.copy_to_host()) == {1}
