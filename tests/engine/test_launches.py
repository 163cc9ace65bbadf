"""use_engine(profile=True): a program's launches, folded by kernel and shape, at a cost that stays bounded."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numba import cuda

import solcourse as sol
from solcourse import verbs
from solcourse.launches import MOST_SHAPES


@cuda.jit
def fill(x, value):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = value


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each launch ran with counters."""
    seen: list[bool] = []
    execute = verbs._execute
    monkeypatch.setattr(verbs, "_execute", lambda *args, **more: seen.append(more.get("counters", False)) or execute(*args, **more))
    return seen


def test_launches_of_one_shape_are_counted_in_full_once(counted: list[bool]):
    with sol.use_engine("T4", profile=True) as engine:
        x = cuda.to_device(np.zeros(4096))
        for value in range(5):  # the values of scalars do not make a shape
            fill[128, 32](x, value)
        fill[64, 64](x, 9)  # another block does
        fill[128, 32](cuda.to_device(np.zeros(4096, np.float32)), 9)  # another type does
    assert counted == [True, False, False, False, False, True, True]
    (kernel,) = engine.launches.kernels
    assert (kernel.launches, len(kernel.shapes)) == (7, 3)
    times = {row.shape.arguments[0]: row.report.time_s for row in kernel.rows if row.shape.block == (32, 1, 1)}
    other = next(row.report.time_s for row in kernel.rows if row.shape.block == (64, 1, 1))
    assert kernel.time_s == pytest.approx(5 * times["float64[4096]"] + times["float32[4096]"] + other)
    assert (x.copy_to_host() == 9).all()


def test_a_report_in_the_profile_is_the_report_of_that_launch_alone():
    with sol.use_engine("T4", profile=True) as engine:
        fill[128, 32](cuda.to_device(np.zeros(4096)), 1)
    alone = sol.profile(fill[128, 32], np.zeros(4096), 1, device="T4")
    assert engine.launches.kernels[0].heaviest.to_dict() == alone.to_dict()


def test_many_shapes_cost_what_a_few_cost_and_a_larger_one_is_always_counted(counted: list[bool]):
    with sol.use_engine(profile=True) as engine:
        x = cuda.to_device(np.zeros(1 << 14))
        for blocks in (*range(200, 240), 512):
            fill[blocks, 32](x, 1)
    assert counted == [True] * MOST_SHAPES + [False] * (40 - MOST_SHAPES) + [True]
    (kernel,) = engine.launches.kernels
    uncounted = next(row for row in kernel.rows if row.shape.grid[0] == 239)
    nearest = next(row for row in kernel.rows if row.shape.grid[0] == 200 + MOST_SHAPES - 1)
    assert kernel.each_s(uncounted) == nearest.report.time_s
    text = str(engine.launches)
    assert "shapes more: " in text
    assert "take the time of the nearest counted one" in " ".join(text.split())


def test_without_profile_nothing_is_counted_and_the_text_says_how(counted: list[bool]):
    with sol.use_engine() as engine:
        fill[128, 32](np.zeros(8), 1)
    assert counted == [False]
    assert "use_engine(profile=True)" in str(engine.launches)


def test_the_profile_looks_alike_everywhere(tmp_path):
    with sol.use_engine(profile=True) as engine:
        assert str(engine.launches) == "No kernel was launched."
        fill[128, 32](np.zeros(8), 1)
    launches = engine.launches
    assert repr(launches) == "<Launches on A100-SXM4-80GB: 1 kernel, 1 launch>"
    shown = launches._repr_mimebundle_()
    assert shown["text/plain"] == str(launches) == launches.save(tmp_path / "p.txt").read_text().rstrip("\n")
    assert "<table" in shown["text/html"]
    assert shown["text/html"] in launches.save(tmp_path / "p.html").read_text()
    assert json.loads(launches.save(tmp_path / "p.json").read_text())["kernels"][0]["shapes"][0]["arguments"] == ["float64[8]", "int64"]
    with pytest.raises(sol.SolcourseError, match="not as 'p.pdf'"):
        launches.save(tmp_path / "p.pdf")
    launches.clear()
    assert launches.launches == 0


def test_a_block_the_device_has_no_room_for_is_refused_as_there():
    @cuda.jit
    def dynamic(x):
        s = cuda.shared.array(0, np.float64)
        s[0] = x[0]

    for device, fits in (("T4", False), ("A100-SXM4-80GB", True)):  # 64 KiB, 163 KiB
        with sol.use_engine(device):
            if fits:
                dynamic[128, 32, 0, 100_000](np.zeros(1))
            else:
                with pytest.raises(sol.LaunchError, match=r"100,000 bytes of shared memory per block .* Tesla T4 has 65,536"):
                    dynamic[128, 32, 0, 100_000](np.zeros(1))


@cuda.jit
def add_one(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] + 1


def test_a_launch_that_finds_its_arrays_in_l2_is_priced_so():
    """2 MiB each way: both arrays stay in a T4's L2 of 4 MiB; 16 MiB each way do not."""

    def seconds(n, launches):
        with sol.use_engine("T4", profile=True) as engine:
            x, y = cuda.to_device(np.zeros(n, np.float32)), cuda.to_device(np.zeros(n, np.float32))
            for _ in range(launches):
                add_one[n // 256, 256](x, y)
                x, y = y, x
        (kernel,) = engine.launches.kernels
        return kernel.time_s, engine.launches

    once, twelve = seconds(1 << 19, 1)[0], seconds(1 << 19, 12)
    assert 11 * once > twelve[0] > once
    assert "11 launches found in L2 what launches before had left there, on average 92 % of what a launch reads" in " ".join(
        str(twelve[1]).split()
    )  # 11 of 12 launches find all of it
    once, twelve = seconds(1 << 22, 1)[0], seconds(1 << 22, 12)
    assert twelve[0] == pytest.approx(12 * once)
    assert "found in L2" not in str(twelve[1])


def test_another_array_of_the_same_shape_is_not_in_l2():
    with sol.use_engine("T4", profile=True) as engine:
        for _ in range(3):
            x, y = cuda.to_device(np.zeros(1 << 18, np.float32)), cuda.to_device(np.zeros(1 << 18, np.float32))
            add_one[1 << 10, 256](x, y)
            engine.kept = [*getattr(engine, "kept", []), x, y]  # so that no memory is handed out twice
    (kernel,) = engine.launches.kernels
    (row,) = kernel.rows
    assert (row.launches, row.found) == (3, 0)
    assert kernel.time_s == pytest.approx(3 * row.report.time_s)


def test_host_arrays_are_never_in_l2():
    x, y = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.float32)
    with sol.use_engine("T4", profile=True) as engine:
        for _ in range(3):
            add_one[1 << 8, 256](x, y)
    assert engine.launches.kernels[0].rows[0].found == 0
