"""The bank panel: its kernels transpose, its picture is of what ran, and each setting does what the lesson says of it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numba import cuda, float32

import solcourse as sol
from solcourse import access_maps, bank_maps, panels
from solcourse.errors import UnknownName
from solcourse.panels import banks, frames, parts

PITCH = 32


@cuda.jit
def tiled(a, out):
    tile = cuda.shared.array((32, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    left, top = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    for k in range(0, 32, 8):
        tile[ty + k, tx] = a[top + ty + k, left + tx]
    cuda.syncthreads()
    for k in range(0, 32, 8):
        out[left + ty + k, top + tx] = tile[tx, ty + k]


@cuda.jit
def naive(a, out):
    x, y = cuda.blockIdx.x * 32 + cuda.threadIdx.x, cuda.blockIdx.y * 32 + cuda.threadIdx.y
    for k in range(0, 32, 8):
        out[x, y + k] = a[y + k, x]


@pytest.fixture(scope="module")
def yours():
    return panels.panel("banks", tiled)


def settings(panel, **changes):
    return {**panel.settings, **changes}


def label(picture: str) -> str:
    return re.search(r'aria-label="([^"]*)"', picture)[1]


def seen(panel, **changes):
    """(Report, label of the bank map, the panel's words) of some settings."""
    chosen = settings(panel, **changes)
    report = panel.profile(chosen)
    return report, label(panel.pictures(chosen, report)["banks"]), panel.words(chosen, report)


@pytest.mark.parametrize("element", banks.SIZES)
@pytest.mark.parametrize("access", banks.ACCESSES, ids=lambda access: access.name)
def test_every_way_through_the_tile_is_a_transpose(access, element):
    a = np.random.default_rng(3).random((64, 96)).astype(element)
    out = np.zeros((96, 64), element)
    launch = parts.launch(banks.transpose_by(access, 33, element), (3, 2), (banks.TILE, banks.ROWS))
    sol.run(launch, a, out)
    np.testing.assert_array_equal(out, a.T)
    assert sol.sanitize(launch, a, out) == []


# Wavefronts of 32 words whose distance is the row's length d: 32 / gcd-classes. d = 32 and 64: all in one bank. d odd: all apart.
# Swizzled, d = 32: j ^ lane are 32 different columns. d = 33: bank (lane + (j ^ lane)) % 32: two and more meet.
# A diagonal has one word more between its lanes than the column. 8 bytes: 2 words, in half-warps of 16 lanes.
@pytest.mark.parametrize(
    ("changes", "wavefronts"),
    [
        ({}, 32),
        ({"pitch": 33}, 1),
        ({"pitch": 34}, 2),
        ({"pitch": 36}, 4),
        ({"pitch": 40}, 8),
        ({"pitch": 48}, 16),
        ({"pitch": 64}, 32),
        ({"access": "column", "pitch": 36}, 4),
        ({"access": "swizzled"}, 1),
        ({"access": "diagonal"}, 1),
        ({"access": "diagonal", "pitch": 33}, 2),
        ({"access": "row"}, 1),
        ({"element": "float64"}, 32),
        ({"element": "float64", "pitch": 33}, 2),
        ({"element": "float64", "pitch": 34}, 4),
    ],
)
def test_the_picture_is_of_what_the_engine_counted(yours, changes, wavefronts):
    report, said, words = seen(yours, **changes)
    load, size = report.counts.shared_load, 8 if "element" in changes else 4
    assert load.wavefronts == wavefronts * load.requests
    assert f"{wavefronts} wavefront{'' if wavefronts == 1 else 's'}, " in said
    assert f"{wavefronts} wavefront" in words
    assert load.bytes == banks.SIDE**2 * size
    assert report.counts.shared_store.bank_conflicts == 0


def test_padding_and_swizzle_together_conflict_again(yours):
    """33 lane + (j ^ lane), modulo 32: for j = 0 it is 2 lane, two lanes a bank; other j are worse, and the worst is drawn."""
    both, said, words = seen(yours, access="swizzled", pitch=33)
    counted = both.counts.shared_load.wavefronts / both.counts.shared_load.requests
    meant = [access_maps.wavefronts(lanes, 4) for lanes in banks.warp_requests(settings(yours, access="swizzled", pitch=33))]
    assert meant[0] == 2
    assert counted == sum(meant) / 32
    assert f"{max(meant)} wavefronts, " in said
    assert both.counts.shared_load.bank_conflicts > 0


@pytest.mark.parametrize("access", ["diagonal", "row"])
def test_ways_without_conflicts_that_scatter_the_stores_are_slower(yours, access):
    """Lanes that hold elements of one row of the tile store them to 32 rows of out."""
    clean, _, words = seen(yours, access=access)
    assert clean.counts.shared_load.bank_conflicts == 0
    assert clean.counts.global_store.sectors_per_request == 32
    assert "32 sectors per store" in words
    assert clean.time_s > 1.5 * yours.profile(settings(yours)).time_s


def test_a_kernel_that_reads_otherwise_is_not_drawn_by_lanes(yours):
    other = panels.panel("banks", naive)
    report, said, words = seen(other)
    assert "No access to shared memory" in said
    assert words == "No loads from shared memory."
    # the settings' words, against a kernel with rows of 33
    run = yours.profile(settings(yours, pitch=33)).run
    picture = bank_maps.banks(run, banks.warp_requests(settings(yours, pitch=32)), 4)
    assert "Lanes not drawn: the words given take 32 wavefronts per request" in label(picture)
    assert "load of tile" in label(picture)


def test_counts_are_bars_of_every_access(yours):
    picture = bank_maps.bank_counts(yours.profile(settings(yours)).run)
    assert re.search(r"load of tile, line \d+: 32 \(1 would do\)\. store of tile, line \d+: 1$", label(picture))


def test_a_learners_kernel_is_the_one_that_runs_with_the_panels_pitch(yours):
    assert yours.line(settings(yours, pitch=35)) == (
        "tile = cuda.shared.array((32, 35), float32); out[left + ty + k, top + tx] = tile[tx, ty + k]"
    )
    report = yours.profile(settings(yours, pitch=35))
    assert report.kernel == "tiled"
    assert report.counts.shared_load.bank_conflicts == 0
    assert report.run.shared_bytes == 32 * 35 * 4
    assert tiled.py_func.__globals__["PITCH"] == 32  # the learner's own name is left alone


def test_the_ledger_is_each_element_read_once_and_written_once(yours):
    for element, size in banks.SIZES.items():
        report = yours.profile(settings(yours, element=element, pitch=33))
        assert report.work.compulsory_bytes == 2 * size * 8192**2


def test_without_a_kernel_of_the_learners_the_panel_has_its_own():
    panel = panels.panel("banks")
    assert panel.settings["access"] == "column"
    frame = frames.frame(panel, panel.settings)
    assert "32 wavefronts per load" in frame.values
    assert len(frame.html) < 40_000
    with pytest.raises(UnknownName):
        panel.profile(settings(panel, access="columns"))


def test_a_lesson_shows_the_words_it_names_only_where_they_were_asked_for(yours):
    report = yours.profile(settings(yours))
    assert "32 wavefronts, 31 bank conflicts (1 would do); 32 words in bank 0" in str(sol.show.banks(report, [32 * n for n in range(32)]))
    assert "Lanes not drawn" in str(sol.show.banks(report, [33 * n for n in range(32)]))
    assert "32 (1 would do)" in str(sol.show.banks(report))
