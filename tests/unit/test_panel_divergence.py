"""The panel of lesson 05: its strips say what ran, change with the settings, and are not drawn where the counts disagree."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from numba import cuda, float32

import solcourse as sol
from solcourse import lane_figures, panels
from solcourse.errors import UnknownName
from solcourse.lane_figures import FULL, Step
from solcourse.panels import divergence, frames
from solcourse.simt.records import AccessCounts, Counts, LineCounts

THREADS = 256


@cuda.jit
def neighbours(x, partial):
    """The lesson's own kernel, as it stands in its cell."""
    cache = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    cache[t] = x[i] if i < x.size else float32(0.0)
    cuda.syncthreads()
    step = 1
    while step < THREADS:
        if t & (2 * step - 1) == 0:
            cache[t] += cache[t + step]
        cuda.syncthreads()
        step *= 2
    if t == 0:
        partial[cuda.blockIdx.x] = cache[0]


@cuda.jit
def halves_of_two(x, partial):
    """Not one of the trees: lanes 0 and 1 of each group work."""
    cache = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    cache[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    if t & 7 < 2:
        cache[t] += cache[t + 2]
    cuda.syncthreads()
    if t == 0:
        partial[cuda.blockIdx.x] = cache[0]


@pytest.fixture(scope="module")
def panel():
    return panels.panel("divergence")


def at(panel, **more):
    return {**panel.settings, "size": 2**16, **more}


def shown(panel, **more):
    """The strip and its words for a setting."""
    settings = at(panel, **more)
    report = panel.profile(settings)
    picture = panel.pictures(settings, report)["lanes"]
    return picture, label_of(picture), panel.words(settings, report)


def label_of(picture: str) -> str:
    ET.fromstring(picture)
    return re.search(r'aria-label="([^"]*)"', picture)[1]


def test_neighbours_keep_all_eight_warps_for_five_steps(panel):
    _, label, words = shown(panel, variant="interleaved")
    for step in ("step 1: 128 lanes in 8 of 8 warps, 24 passes", "step 16: 8 lanes in 8 of 8 warps", "step 128: 1 lanes in 1 of 8 warps"):
        assert step in label
    assert "48 divergent branches, 150 passes" in words


def test_the_strided_tree_has_fewer_warps_and_as_many_passes(panel):
    _, label, words = shown(panel, variant="strided")
    assert "step 1: 128 lanes in 4 of 8 warps, 24 passes" in label
    assert "6 divergent branches, 150 passes through shared memory, 105 of them bank conflicts" in words


def test_shuffles_are_busy_in_vain(panel):
    _, label, _ = shown(panel, variant="shuffle")
    assert "shuffle 16: 256 lanes in 8 of 8 warps, 128 in vain" in label
    assert "again 1: 32 lanes in 1 of 8 warps, 31 in vain" in label


@pytest.mark.parametrize("variant", divergence.VARIANTS, ids=lambda variant: variant.name)
def test_every_variant_in_blocks_of_another_size_agrees_with_its_counts(panel, variant):
    block = 64
    settings = at(panel, variant=variant.name, block=block)
    report = panel.profile(settings)
    assert report.run.threads_per_block == block
    assert divergence.steps_made(variant, block, report)


def test_the_grid_stride_launch_fills_a_gpu_and_no_more(panel):
    for block in (32, 256, 1024):
        run = panel.profile(at(panel, variant="grid_stride", size=2**26, block=block)).run
        assert run.blocks * block == divergence.MOST_THREADS


def test_the_learners_kernel_is_run_in_blocks_of_any_size():
    panel = panels.panel("divergence", neighbours)
    assert panel.settings["variant"] == "yours"
    assert panel.line(at(panel)) == "if t & (2 * step - 1) == 0: cache[t] += cache[t + step]"
    for block, last in ((256, "step 128: 1 lanes in 1 of 8"), (64, "step 32: 1 lanes in 1 of 2")):
        _, label, _ = shown(panel, block=block)
        assert last in label


def test_a_kernel_that_is_none_of_the_trees_gets_the_averages_of_its_lines():
    panel = panels.panel("divergence", halves_of_two)
    picture, label, _ = shown(panel)
    assert label.startswith("Average active lanes, line by line")
    assert "cache[t] += cache[t + 2]: 8.0" in label


def test_a_strip_that_the_counts_contradict_is_not_drawn(panel):
    settings = at(panel, variant="interleaved")
    report = panel.profile(settings)
    assert divergence.steps_made(divergence.variant_of({"variant": "strided"}), 256, report) is None
    other = divergence.variant_of({"variant": "shuffle"})
    assert divergence.steps_made(other, 256, report) is None
    half = replace(report, lines=tuple(replace(line, counts=Counts()) for line in report.lines))
    assert divergence.steps_made(divergence.VARIANTS[0], 256, half) is None


def test_an_agreement_needs_every_count():
    steps = divergence.tree_steps(divergence.strided, 64)
    lanes, warps, conflicts = (sum(getattr(s, name) for s in steps) for name in ("lanes", "warps", "conflicts"))
    good = {
        "shared_load": AccessCounts(requests=2 * warps, bytes=8 * lanes, bank_conflicts=conflicts),
        "shared_store": AccessCounts(requests=warps, bytes=4 * lanes),
    }
    assert divergence.tree_agrees(steps, Counts(**good), 1)
    assert not divergence.tree_agrees(steps, Counts(**good), 2)
    assert not divergence.tree_agrees(steps, Counts(**good | {"shared_store": AccessCounts(requests=warps + 1, bytes=4 * lanes)}), 1)
    assert not divergence.tree_agrees((), Counts(), 1)


def test_unknown_variants_are_named(panel):
    with pytest.raises(UnknownName, match="sideways"):
        divergence.variant_of({"variant": "sideways"})


def test_a_frame_holds_score_bounds_and_path(panel):
    made = frames.frame(panel, at(panel, variant="grid_stride", size=2**26))
    assert {"gauge", "lanes", "bounds", "roofline"} <= set(made.pictures)
    assert "DRAM bandwidth binds" in made.values
    assert made.line == "total += cuda.shfl_down_sync(FULL_MASK, total, step)"


# ------------------------------------------------------------------------------------------------------------ the figures
def test_a_strip_draws_work_and_idling_apart():
    some = lane_figures.steps([Step("step 1", (0b101, 0), passes=3), Step("step 2", (0, 0))], "Two steps")
    assert label_of(some) == "Two steps. step 1: 2 lanes in 1 of 2 warps, 3 passes through shared memory; step 2: 0 lanes in 0 of 2 warps"
    assert "idle, waits for its warp" in some
    assert "its warp has left" in some
    assert "busy in vain" not in some
    full = lane_figures.steps([Step("shuffle 1", (FULL,), needed=(1,))], "One")
    assert "31 in vain" in label_of(full)
    assert "idle" not in full


def test_averages_show_the_hottest_lines_in_the_order_of_the_source():
    lines = [LineCounts("k.py", n, f"a{n} = {n}", Counts(warp_instructions=n, thread_instructions=4 * n)) for n in range(20)]
    label = label_of(lane_figures.averages(lines))
    assert label.startswith("Average active lanes, line by line, of 32. a6 = 6: 4.0; a7 = 7")
    assert "a5 =" not in label
    assert label.endswith("a19 = 19: 4.0")


def test_lessons_show_the_same_averages():
    report = sol.profile(neighbours[128, 256], np.ones(2**15, np.float32), np.zeros(128, np.float32))
    words = str(sol.show.lanes(report))
    lanes = next(line.counts.average_active_lanes for line in report.lines if "+=" in line.text)
    assert f"cache[t] += cache[t + step]: {lanes:.1f}" in words
    assert lanes < 8
