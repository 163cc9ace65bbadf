"""The panel of lesson 03: a 4096 x 4096 x 4096 product, by the tile of a block, of a thread, and by how shared memory keeps A's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from solcourse import tile_figures, units
from solcourse.errors import SolcourseError
from solcourse.grading import number
from solcourse.hardware import device
from solcourse.kernels.matmul import Tile, register_tiled, work
from solcourse.panels.fusion import sampled
from solcourse.panels.parts import Control, Panel, device_control, options, with_globals

SIDE = 4096  # M = N = K
DEPTHS = (4, 8, 16, 32)
KEPT = ("as it is", "padded", "transposed")
SIZES = (  # of the block's part of C, and of each thread's
    (16, 16, 1, 1), (32, 32, 1, 1), (32, 32, 2, 2), (64, 64, 8, 1), (64, 64, 4, 4), (64, 64, 8, 4), (128, 64, 8, 4), (128, 128, 8, 4),
    (128, 64, 8, 8), (128, 128, 8, 8),
)  # fmt: skip
SAMPLED_FMAS = 2**27  # run by the engine, each block through all of K
FEWEST, MOST = 2, 16  # blocks


def tile_of(settings: Mapping[str, Any], whose: bool = False) -> Tile:
    """The Tile that the settings name. whose: of the learner's kernel, whose tiles are as deep as wide and kept as they are."""
    block_m, block_n, rows, columns = settings["tile"]
    tile = Tile(block_m, block_n, settings["depth"], rows, columns, settings["a_kept"])
    return replace(tile, depth=block_n, a_kept=KEPT[0]) if whose else tile


@cache
def product(tile: Tile) -> Any:
    """The kernel of a tile, compiled once."""
    return register_tiled("product", tile, "C = A B.")


def with_tile(kernel: Any) -> Callable[[int], Any]:
    """side -> the learner's kernel, compiled with that value of the global name TILE.

    Raises SolcourseError for a kernel that does not use it.
    """
    plain = kernel.py_func
    if "TILE" not in plain.__code__.co_names:
        raise SolcourseError(f"{plain.__name__} does not use the global name TILE, through which the panel says how wide its tiles are.")

    return cache(lambda side: with_globals(kernel, TILE=side))


def tiles(kernel: Any = None) -> Panel:
    """The panel of lesson 03: what a tile costs for each FMA, and what the product takes with it.

    kernel   a numba.cuda kernel of (a, b, c), float32, with blocks of TILE x TILE threads, each one element of C, and tiles of
             TILE x TILE in shared memory; it runs wherever a thread owns 1 x 1
    """
    own = None if kernel is None else with_tile(kernel)
    controls = (
        Control("tile", "tile", options(SIZES, _label), SIZES[0], slider=True, note="the block's part of C, by each thread's part of that"),
        Control("depth", "depth", options(DEPTHS), 8, slider=True, note="columns of A and rows of B that a block keeps at a time"),
        Control("a_kept", "A's tile", options(KEPT), KEPT[0], note="in shared memory; padded: one word more to a row"),
        device_control(),
    )

    def is_own(settings: Mapping[str, Any]) -> bool:
        return own is not None and settings["tile"][2:] == (1, 1)

    def launched(settings: Mapping[str, Any]) -> tuple[Any, tuple[Any, Any]]:
        tile = tile_of(settings, is_own(settings))
        grid, threads = tile.launch(SIDE, SIDE, SIDE)
        if own is not None and is_own(settings):
            return own(tile.block_n), (grid, (tile.block_n, tile.block_m))
        return product(tile), (grid, threads)

    def profile(settings: Mapping[str, Any]) -> Any:
        from solcourse.report import predicted

        made, dims = launched(settings)
        block_m, block_n = settings["tile"][:2]
        blocks = max(FEWEST, min(MOST, SAMPLED_FMAS // (block_m * block_n * SIDE)))
        run = sampled(made, dims, (("array", (SIDE, SIDE)),) * 3, blocks)
        return predicted(run, settings["device"], work=work(SIDE, SIDE, SIDE))

    def line(settings: Mapping[str, Any]) -> str:
        tile, (made, (grid, threads)) = tile_of(settings, is_own(settings)), launched(settings)
        sizes = f"TILE = {tile.block_n}" if is_own(settings) else f"tile_a {list(tile.shape_a)}, totals {[tile.rows, tile.columns]}"
        return f"{sizes}; {made.py_func.__name__}[{grid}, {threads}](a, b, c)"

    def pictures(settings: Mapping[str, Any], report: Any) -> dict[str, str]:
        tile, gpu = tile_of(settings, is_own(settings)), device(settings["device"])
        here = tile_figures.of_report(tile_figures.tile_name(tile), report)
        others = [tile_of({**settings, "tile": sizes}, is_own({**settings, "tile": sizes})) for sizes in SIZES]
        rows = [here if other == tile else tile_figures.of_tile(other, gpu) for other in others]
        made = {"tiles": tile_figures.table(rows, here)}
        return {**made, "owners": tile_figures.owners(tile)} if tile_figures.agrees(tile, report) else made

    return Panel(
        "tiles",
        "Tiles: how often is a number used once it is here?",
        controls,
        profile,
        line,
        lambda settings: _label(settings["tile"]) + ("" if settings["a_kept"] == KEPT[0] else f", {settings['a_kept']}"),
        pictures,
        in_words,
        idle=lambda settings: ("depth", "a_kept") if is_own(settings) else (),
    )


def _label(sizes: tuple[int, int, int, int]) -> str:
    return tile_figures.tile_name(Tile(*sizes[:2], 1, *sizes[2:]))


def in_words(settings: Mapping[str, Any], report: Any) -> str:
    """Words for each FMA, conflicts, registers, occupancy with its limiter."""
    row, load = tile_figures.of_report("", report), report.counts.shared_load
    passes = load.wavefronts / load.requests if load.requests else 0.0
    return (
        f"For each FMA: {tile_figures.words_in_words(row.shared_words)} loads from shared memory, "
        f"{tile_figures.words_in_words(row.memory_words)} from global memory. {number(passes)} wavefronts per load from shared memory; "
        f"{units.binary_size(row.shared_bytes)} of it a block. {report.registers} registers a thread; "
        f"occupancy {units.percent(row.occupancy)}, limited by {row.limits}."
    )
