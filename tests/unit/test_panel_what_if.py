"""The panel "what if": every choice runs, once; the ranking is the model's; a device changes what is marked and nothing else."""

from __future__ import annotations

import html
import re

import numpy as np
import pytest

import solcourse as sol
from solcourse import kernels, stills, units
from solcourse.errors import SolcourseError
from solcourse.hardware import devices
from solcourse.panels import frames, panel, parts
from solcourse.panels.what_if import CHOICES, YOURS, everywhere, in_words

H200, T4 = "H200-SXM-141GB", "Tesla T4"


@pytest.fixture(scope="module")
def what_if():
    return panel("what_if")


def label_of(markup):
    return html.unescape(re.search(r'aria-label="([^"]*)"', markup)[1])


def test_every_choice_is_a_reference_kernel_whose_arguments_fit():
    for choice in CHOICES:
        case = kernels.cases(choice.topic)[choice.name]
        grid, _ = case.launch(*choice.size)
        given = choice.arrays(choice.size, grid if isinstance(grid, int) else grid[0])
        # what the panel makes for the large launch has the form of what the case makes for a small one
        small = case.shapes[0]
        small_grid, _ = case.launch(*small)
        wanted = case.make(np.random.default_rng(1), *small)
        made = choice.arrays(small, small_grid if isinstance(small_grid, int) else small_grid[0])
        assert [a if isinstance(a, tuple) else np.shape(a) for a in made] == [np.shape(a) for a in wanted]
        assert len(given) == len(wanted)
        assert sum(4 * np.prod(a, dtype=float) for a in given if isinstance(a, tuple)) < 4 * parts.MOST_READ


def test_the_kernels_rank_the_gpus_differently(what_if):
    """A copy asks for DRAM, a literal of float64 for a pipe that consumer GPUs have little of."""
    copy, literal = everywhere("copy"), everywhere("polynomial_float64_literal")
    assert len(copy) + len(copy.unfit) == len(devices())
    assert [r.time_s for r in copy] == sorted(r.time_s for r in copy)
    # RTX 4090 : H100 PCIe is 1.0 : 2.0 in TB/s, and 1.3 : 26 in float64 TFLOP/s
    ratio = [every["GeForce RTX 4090"].time_s / every["H100-PCIe-80GB"].time_s for every in (copy, literal)]
    assert 1.5 < ratio[0] < 2.5
    assert ratio[1] > 10
    assert literal["GeForce RTX 4090"].bound == "pipe_fp64"


def test_a_device_is_marked_and_nothing_runs_again(what_if, monkeypatch):
    opening = frames.draw(what_if, what_if.settings)
    monkeypatch.setattr("solcourse.panels.what_if.sampled", lambda *a, **k: pytest.fail("the kernel ran again"))
    other = frames.draw(what_if, {**what_if.settings, "device": H200})
    assert other.report.device.name == H200
    assert label_of(other.pictures["devices"]) == label_of(opening.pictures["devices"])
    bold = [re.findall(r'font-weight="bold">([^<]*)<', frame.pictures["devices"])[1] for frame in (opening, other)]
    assert bold == [what_if.settings["device"], H200]
    assert opening.values != other.values


def test_the_picture_and_the_words_say_the_model(what_if):
    every = everywhere("copy")
    report = what_if.profile({**what_if.settings, "device": T4})
    assert report.time_s == every[T4].time_s
    frame = frames.draw(what_if, {**what_if.settings, "device": T4})
    said = label_of(frame.pictures["devices"])
    for one in every:
        assert f"{one.device.name} {units.seconds(one.time_s)} (" in said
        assert f"SOL score {units.score(one.sol_score)}" in said
    place = [one.device.name for one in every].index(T4) + 1
    assert f"{T4} is number {place} of {len(every)}. Fastest: {every.reports[0].device.name}" in frame.values
    assert frame.line == "copy[262144 blocks, 256 threads]"


def test_what_binds_is_counted():
    every = everywhere("copy")
    counts = [int(n) for n in re.findall(r" on (\d+)", in_words(every))]
    assert sum(counts) == len(every)
    assert counts == sorted(counts, reverse=True)


def test_a_report_of_your_own_comes_first():
    report = sol.profile(kernels.cases("saxpy")["saxpy"].configured(2**20), np.float32(2), *(np.zeros(2**20, np.float32) for _ in range(3)))
    made = panel("what_if", report)
    assert made.settings["kernel"] == YOURS
    assert made.control("kernel").options[0][0] == "your launch: saxpy"
    frame = frames.draw(made, made.settings)
    assert frame.report.time_s == report.time_s
    assert frame.line == "saxpy[4096 blocks, 256 threads]"
    assert frames.draw(made, {**made.settings, "kernel": "copy"}).report.kernel == "copy"


def test_a_kernel_without_a_launch_is_refused():
    with pytest.raises(SolcourseError, match=r"give it a report"):
        panel("what_if", kernels.cases("copy")["copy"].kernel)


def test_a_page_and_a_still_can_show_it(what_if):
    frame = frames.draw(what_if, what_if.settings).along([])
    assert frame.values in html.unescape(frame.html)
    canvas = stills.Canvas(*stills.size_of(frame.pictures["devices"]))
    canvas.draw(frame.pictures["devices"])
    assert canvas.drawn > 5 * len(everywhere("copy"))
