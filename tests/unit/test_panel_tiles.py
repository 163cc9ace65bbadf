"""The tile panel: its sums are what the engine counts, its pictures say the numbers, and each setting does what the lesson says of it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from numba import cuda, float32

import solcourse as sol
from solcourse import panels, tile_figures
from solcourse.errors import SolcourseError
from solcourse.hardware import device
from solcourse.kernels.matmul import HALF, Tile
from solcourse.panels import frames, tiles
from solcourse.panels.parts import launch
from solcourse.registers import registers_on

TILE = 16
A100 = device("A100-SXM4-80GB")


@cuda.jit
def own(a, b, c):
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    j, i = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for start in range(0, a.shape[1], TILE):
        tile_a[y, x] = a[i, start + x]
        tile_b[y, x] = b[start + y, j]
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    c[i, j] = total


@cuda.jit
def naive(a, b, c):
    j, i = cuda.grid(2)
    total = float32(0.0)
    for k in range(a.shape[1]):
        total += a[i, k] * b[k, j]
    c[i, j] = total


@pytest.fixture(scope="module")
def panel():
    return panels.panel("tiles")


@pytest.fixture(scope="module")
def yours():
    return panels.panel("tiles", own)


def settings(panel, **more):
    return {**panel.settings, **more}


def label_of(picture: str) -> str:
    return re.search(r'aria-label="([^"]*)"', picture)[1]


@pytest.mark.parametrize(
    "tile",
    [
        Tile(16, 16, 4, 1, 1, "transposed"), Tile(16, 16, 32, 1, 1), Tile(32, 32, 4, 1, 1, "padded"), Tile(64, 64, 16, 4, 4, "transposed"),
        Tile(128, 64, 4, 8, 4, "padded"),
    ],
    ids=str,
)  # fmt: skip
def test_the_sums_are_what_the_engine_counts(rng, tile):
    """On a product of whole tiles, and the product is right, whether a tile has fewer elements than the block threads, or more."""
    a, b, c = rng.random((128, 64), np.float32), rng.random((64, 128), np.float32), np.zeros((128, 128), np.float32)
    report = sol.profile(launch(tiles.product(tile), *tile.launch(128, 128, 64)), a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    meant, counted = tile_figures.of_tile(tile, A100), tile_figures.of_report(tile_figures.tile_name(tile), report)
    assert tile_figures.agrees(tile, report)
    assert (meant.shared_words, meant.memory_words) == (counted.shared_words, counted.memory_words)
    assert (meant.name, meant.threads, meant.shared_bytes) == (counted.name, counted.threads, counted.shared_bytes)
    assert meant.occupancy >= counted.occupancy
    assert not tile_figures.agrees(replace(tile, columns=2 * tile.columns), report)


def test_every_choice_fits_a_block_and_fills_its_warps():
    for sizes in tiles.SIZES:
        for depth in tiles.DEPTHS:
            for kept in tiles.KEPT:
                tile = Tile(*sizes[:2], depth, *sizes[2:], kept)
                assert tile.threads % 32 == 0
                assert tile.threads <= 1024
                assert tile.threads % depth == 0  # the threads fill whole rows of either tile
                assert tile.threads % tile.block_n == 0
                assert tile.shared_bytes <= 48 * 1024


def test_the_map_marks_the_choice_and_says_all_numbers(panel):
    frame = frames.frame(panel, settings(panel, tile=(64, 64, 8, 1)))
    said = label_of(frame.pictures["tiles"])
    assert said.count("by") == len(tiles.SIZES)
    assert (
        "64 x 64 by 8 x 1, chosen: 512 threads, 1.125 loads from shared memory and 0.03125 from global memory for each FMA, 4 KiB" in said
    )
    assert said.count("at most") == len(tiles.SIZES) - 1
    owned = label_of(frame.pictures["owners"])
    assert "A 64 x 8, B 8 x 64. A thread owns 8 x 1 elements of C: 8 + 1 loads for 8 FMAs in each step of k" in owned
    assert "1.125 loads from shared memory" in frame.values
    assert len(frame.html) < 60_000


def test_a_register_tile_beats_a_shared_tile_and_padding_removes_conflicts(panel):
    plain, rows = (panel.profile(settings(panel, tile=sizes)) for sizes in ((16, 16, 1, 1), (64, 64, 8, 1)))
    assert rows.time_s < 0.6 * plain.time_s
    assert rows.counts.flops["fp32"] == 2 * tiles.SIDE**3  # of the whole grid, by the blocks that were run
    conflicts = [
        panel.profile(settings(panel, tile=(64, 64, 4, 4), a_kept=kept)).counts.shared_load.bank_conflicts
        for kept in ("as it is", "padded")
    ]
    assert conflicts[0] > 0
    assert conflicts[1] == 0


def test_another_device_needs_no_second_run(panel):
    here, there = (panel.profile(settings(panel, device=name)) for name in ("A100-SXM4-80GB", "T4"))
    assert here.run is there.run
    assert there.time_s > here.time_s
    assert there.registers == registers_on(device("T4"), there.run.program, there.run, 256).count


def test_your_kernel_runs_where_a_thread_owns_one_element(yours):
    report = yours.profile(yours.settings)
    assert report.kernel == "own"
    assert (report.block[:2], report.run.shared_bytes) == ((16, 16), 2 * 4 * 16 * 16)
    assert yours.idle(yours.settings) == ("depth", "a_kept")
    wide = yours.profile(settings(yours, tile=(32, 32, 1, 1)))
    assert (wide.block[:2], wide.run.shared_bytes) == ((32, 32), 2 * 4 * 32 * 32)
    assert own.py_func.__globals__["TILE"] == 16  # the learner's own name is left alone
    assert "TILE = 32; own[(128, 128), (32, 32)](a, b, c)" in yours.line(settings(yours, tile=(32, 32, 1, 1)))
    assert yours.profile(settings(yours, tile=(64, 64, 8, 1))).kernel == "product"
    assert yours.idle(settings(yours, tile=(64, 64, 8, 1))) == ()


def test_a_kernel_that_does_something_else_is_not_drawn_as_if_it_did_not(yours):
    report = yours.profile(settings(yours, tile=(32, 32, 1, 1)))
    assert "owners" not in yours.pictures(yours.settings, report)  # says 16 x 16
    assert "owners" in yours.pictures(settings(yours, tile=(32, 32, 1, 1)), report)


def test_a_kernel_without_the_name_is_refused():
    with pytest.raises(SolcourseError, match="naive does not use the global name TILE"):
        panels.panel("tiles", naive)


def test_a_lesson_shows_launches_beside_each_other(rng):
    a, b, c = (rng.random((64, 64), np.float32) for _ in range(3))
    report = sol.profile(launch(own, (4, 4), (16, 16)), a, b, c)
    shown = str(sol.show.tiles({"tiled": report}, report))
    assert "tiled: 256 threads, 2 loads from shared memory and 0.125 from global memory for each FMA, 2 KiB" in shown
    assert "own: 256 threads" in shown
    assert "at most" not in shown


def test_a_launch_without_an_fma_has_no_price(rng):
    @cuda.jit
    def fill(out):
        out[cuda.grid(1)] = 1.0

    report = sol.profile(launch(fill, 4, 32), np.zeros(128, np.float32))
    assert "fill: 32 threads, - loads from shared memory and - from global memory" in str(sol.show.tiles(report))


def test_a_tile_wider_than_high_is_drawn_as_such():
    wide = tile_figures.owners(Tile(16, 128, 8, 2, 4, apart=False))
    assert "A 16 x 8, B 8 x 128" in label_of(wide)
    assert tile_figures.tile_name(HALF) == "128 x 64 by 8 x 4"
