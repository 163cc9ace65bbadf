"""The panel of lesson 04: loads in flight, resident warps, and what Little's law says of both."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from numba import cuda, float32

from solcourse.errors import LaunchError, SolcourseError
from solcourse.hardware import device
from solcourse.panels import frames, latency, panel

ELEMENTS = 1


@cuda.jit
def halve(x, out, factor):
    held = cuda.local.array(ELEMENTS, float32)
    first = cuda.blockIdx.x * cuda.blockDim.x * ELEMENTS + cuda.threadIdx.x
    for k in range(ELEMENTS):
        i = first + k * cuda.blockDim.x
        if i < out.size:
            held[k] = x[i]
    for k in range(ELEMENTS):
        i = first + k * cuda.blockDim.x
        if i < out.size:
            out[i] = held[k] / factor


@cuda.jit
def without(x, out, factor):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = factor * x[i]


@pytest.fixture(scope="module")
def shown():
    """shown(elements=4) -> (settings, Report) of the panel with some settings changed."""
    made = panel("latency")

    def predict(**changes):
        settings = {**made.settings, **changes}
        return settings, made.profile(settings)

    return predict


@pytest.mark.parametrize("elements", [1, 2, 4, 8, 16])
def test_a_thread_has_as_many_loads_in_flight_as_elements(shown, elements):
    settings, report = shown(elements=elements)
    assert f" {elements} load{'s' * (elements > 1)} in flight per thread" in latency.in_words(settings, report)
    n = settings["size"]
    assert report.counts.global_load.requests == n // 32
    assert report.run.blocks == n // 256 // elements
    assert report.counts.local_load.requests == 0


def test_an_array_too_long_to_unroll_lives_in_local_memory(shown):
    _, report = shown(elements=64)
    assert report.counts.local_load.requests == report.counts.global_load.requests
    assert report.time_s > 2 * shown(elements=16)[1].time_s


def test_reserved_shared_memory_takes_places_of_blocks(shown):
    # 164 KiB on an A100's SM, 1 KiB of each block for the system: 164 // 41 = 4 blocks of 8 warps
    settings, report = shown(shared=40)
    assert (report.occupancy.fraction, report.occupancy.limiter) == (0.5, "shared_memory")
    assert "Occupancy 50.0 %, 32 warps per SM, limited by shared memory" in latency.in_words(settings, report)


def test_registers_can_be_asked_for(shown):
    # 65536 registers / (128 x 32 lanes) = 16 warps
    _, report = shown(registers=128)
    assert (report.registers, report.registers_source, report.occupancy.warps_per_sm) == (128, "given", 16)


def test_a_block_that_no_sm_can_hold_is_told_to_the_learner(shown):
    with pytest.raises(LaunchError, match="128 registers x 1024 threads"):
        shown(registers=128, block=1024)


def test_littles_law_by_hand(shown):
    settings, report = shown()
    gpu = device("A100-SXM4-80GB")
    # 64 warps x 32 lanes x 4 bytes, one load each
    assert latency.asked_bytes(report) == 64 * 32 * 4
    # half of the traffic are reads: about half of latency x bandwidth, 3.8 kB
    whole = gpu.lat_dram / gpu.clock_hz * gpu.dram_bytes_per_s / gpu.sms
    assert latency.needed_bytes(report) == pytest.approx(whole / 2, rel=0.02)
    assert "at most 8.19 kB on their way to an SM; latency x read rate is 3.8" in latency.in_words(settings, report)


def test_a_small_grid_does_not_fill_an_sm(shown):
    # 2^14 elements in 64 blocks on 108 SMs: one block of 8 warps on the busiest
    assert latency.asked_bytes(shown(size=2**14)[1]) == 8 * 32 * 4


def test_nothing_is_on_its_way_where_nothing_is_read(shown):
    _, report = shown()
    nothing = SimpleNamespace(requests=0, bytes=0)
    unread = SimpleNamespace(
        counts=SimpleNamespace(global_load=nothing), occupancy=report.occupancy, run=report.run, device=report.device,
        traffic=SimpleNamespace(dram_read_bytes=0, dram_bytes=0),
    )  # fmt: skip
    assert (latency.asked_bytes(unread), latency.needed_bytes(unread)) == (0, 0)


def test_every_picture_says_its_numbers_and_follows_the_settings():
    made = panel("latency")
    full, half = (frames.frame(made, {**made.settings, **changes}) for changes in ({}, {"shared": 40, "device": "B200-SXM-180GB"}))
    assert list(full.pictures) == ["gauge", "occupancy", "timeline", "bounds", "roofline"]
    labels = {name: re.search('aria-label="([^"]*)"', picture)[1] for name, picture in half.pictures.items()}
    assert "on B200-SXM-180GB: 62.5 %, 40 of 64 warps" in labels["occupancy"]
    assert "10 warps at a time" in labels["timeline"]
    assert all(half.pictures[name] != full.pictures[name] for name in full.pictures)
    assert half.line == "ELEMENTS = 1; scale[262144, 256, 0, 40960](x, out, factor)"
    assert full.line == "ELEMENTS = 1; scale[262144, 256](x, out, factor)"
    assert (half.label, full.label) == ("1 per thread, 40 KiB", "1 per thread")


def test_the_learners_kernel_is_compiled_for_each_number_of_elements():
    made = panel("latency", halve)
    report = made.profile({**made.settings, "elements": 4, "size": 2**14})
    assert report.kernel == "halve"
    assert report.run.blocks == 16
    assert report.counts.global_load.bytes == report.counts.global_store.bytes == 4 * 2**14
    assert made.line({**made.settings, "elements": 2}) == "ELEMENTS = 2; halve[131072, 256](x, out, factor)"
    assert ELEMENTS == 1


def test_a_kernel_without_elements_is_refused_by_name():
    with pytest.raises(SolcourseError, match="without does not use the global name ELEMENTS"):
        panel("latency", without)


def test_every_control_shows_the_value_it_opens_with():
    """ipywidgets takes None for no choice at all."""
    for control in panel("latency").controls:
        assert control.value is not None
        assert control.value in [value for _, value in control.options]
    labels = [control.label for control in panel("latency").controls]
    assert len(set(labels)) == len(labels)
