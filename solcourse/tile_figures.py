"""Tiles of a matrix product as pictures: what each costs for one FMA, and which elements a block and a thread own. Records -> SVG strings.

The definition of the sums behind both: a block of M x N fetches 1/M + 1/N words from memory for an FMA, a thread of R x S loads
1/R + 1/S from shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from solcourse import svg, units
from solcourse.occupancy import occupancy
from solcourse.occupancy_figures import limits_in_words

if TYPE_CHECKING:
    from solcourse.hardware import Device
    from solcourse.kernels.matmul import Tile

LEFT, ROW, TOP, WIDTH = 12, 22, 50, 576
# x of the columns: where text begins or ends, and where bars begin
NAME, THREADS, SHARED, MEMORY, BYTES, HELD = 26, 196, 206, 330, 486, 496
SPAN = 56  # of the longest bar


@dataclass(frozen=True)
class Row:
    """One design, or one launch. Words are 4 bytes, of all lanes, for each FMA; None without FMAs.

    occupancy   theoretical, 0..1; with at_most the most that it can be: a thread needs no fewer registers than it owns elements
    limits      what stops another block
    """

    name: str
    threads: int
    shared_words: float | None
    memory_words: float | None
    shared_bytes: int
    occupancy: float
    limits: str
    at_most: bool = False

    @property
    def held(self) -> str:
        return f"{'≤ ' * self.at_most}{units.percent(self.occupancy)}"


def tile_name(tile: Tile) -> str:
    """
    >>> from solcourse.kernels.matmul import Tile
    >>> tile_name(Tile(128, 64, 8, 8, 4))
    '128 x 64 by 8 x 4'
    """
    return f"{tile.block_m} x {tile.block_n} by {tile.rows} x {tile.columns}"


def of_tile(tile: Tile, device: Device) -> Row:
    """What the sizes alone say, before any kernel is compiled."""
    least = min(255, tile.rows * tile.columns + tile.rows + tile.columns)  # registers: what a thread owns and multiplies
    fits = occupancy(device, tile.threads, max(least, 16), tile.shared_bytes)
    shared, memory = 1 / tile.rows + 1 / tile.columns, 1 / tile.block_m + 1 / tile.block_n
    return Row(tile_name(tile), tile.threads, shared, memory, tile.shared_bytes, fits.fraction, limits_in_words(fits), at_most=True)


def of_report(name: str, report: Any) -> Row:
    """What the engine counted in a launch."""
    counts, fits, fmas = report.counts, report.occupancy, report.counts.flops["fp32"] / 2
    shared, memory = (access.bytes / 4 / fmas if fmas else None for access in (counts.shared_load, counts.global_load))
    return Row(name, math.prod(report.block), shared, memory, report.run.shared_bytes, fits.fraction, limits_in_words(fits))


def agrees(tile: Tile, report: Any) -> bool:
    """Whether a launch fetched and loaded what its tile's sizes say: only then is known who owned what."""
    by_sizes, counted = of_tile(tile, report.device), of_report("", report)
    pairs = ((by_sizes.shared_words, counted.shared_words), (by_sizes.memory_words, counted.memory_words))
    return all(got is not None and math.isclose(meant, got) for meant, got in pairs if meant is not None)


def words_in_words(words: float | None) -> str:
    """
    >>> words_in_words(2.0), words_in_words(0.0234375), words_in_words(None)
    ('2', '0.02344', '-')
    """
    return "-" if words is None else f"{words:.4g}"


def _bar(x: float, y: float, words: float | None, most: float, fill: str) -> Iterator[str]:
    length = SPAN * words / most if words and most else 0.0
    yield svg.rect(x, y - 10, length, 12, fill)
    yield svg.text(x + length + 5, y, words_in_words(words))


def _row(row: Row, y: float, most: tuple[float, float], here: bool) -> Iterator[str]:
    bold = "bold" if here else None
    if here:
        yield svg.rect(LEFT - 6, y - 15, WIDTH - LEFT, ROW - 1, opacity=svg.BEHIND)
        yield svg.path(f"M{LEFT} {y - 9}l9 5l-9 5z", svg.ORANGE)
    yield svg.text(NAME, y, svg.shorten(row.name, 19), font_weight=bold)
    yield svg.text(THREADS, y, f"{row.threads}", anchor="end")
    yield from _bar(SHARED, y, row.shared_words, most[0], svg.BLUE)
    yield from _bar(MEMORY, y, row.memory_words, most[1], svg.GREEN)
    yield svg.text(BYTES, y, f"{row.shared_bytes / 1024:.3g}", anchor="end")
    yield svg.text(HELD, y, row.held, font_weight=bold)


def table(rows: Sequence[Row], chosen: Row | None = None, title: str = "What one FMA costs") -> str:
    """A row for each design: threads, words loaded from shared memory and fetched from memory for each FMA, KiB, occupancy."""
    most = (max((row.shared_words or 0.0 for row in rows), default=0.0), max((row.memory_words or 0.0 for row in rows), default=0.0))
    heads = (
        (THREADS, "end", ("threads", "a block")), (SHARED, None, ("loads from shared", "memory for an FMA")),
        (MEMORY, None, ("loads from global", "memory for an FMA")), (BYTES, "end", ("KiB", "shared")), (HELD, None, ("occupancy", "")),
    )  # fmt: skip
    children = [svg.text(LEFT, 14, title, font_weight="bold")]
    for x, anchor, lines in heads:
        children += [svg.text(x, TOP - 20 + 13 * n, line, size=11, anchor=anchor, opacity=svg.FAINT) for n, line in enumerate(lines)]
    said = []
    for n, row in enumerate(rows):
        children += _row(row, TOP + 14 + n * ROW, most, row == chosen)
        limits = f" ({row.limits})" if row == chosen or not row.at_most else ""
        said.append(
            f"{row.name}{', chosen' * (row == chosen)}: {row.threads} threads, {words_in_words(row.shared_words)} loads from shared memory "
            f"and {words_in_words(row.memory_words)} from global memory for each FMA, {row.shared_bytes / 1024:.3g} KiB, "
            f"occupancy {'at most ' * row.at_most}{units.percent(row.occupancy)}{limits}"
        )
    bottom = TOP + 12 + len(rows) * ROW
    if chosen is not None:
        note = f"chosen: occupancy {units.percent(chosen.occupancy)}, limited by {chosen.limits}; ≤: if registers held nothing else"
        children.append(svg.text(LEFT, bottom, note, size=11, opacity=svg.FAINT))
    return svg.document(WIDTH, bottom + 8, f"{title}. " + ". ".join(said), children)


BOX = 190.0  # pixels of a block's part of C and the tiles beside it, the longer way


def owners(tile: Tile) -> str:
    """A block's part of C, with its tiles of A and B beside it, and of each what thread 0 owns, and reads in one step of k."""
    per = BOX / (max(tile.block_m, tile.block_n) + tile.depth)
    deep = max(10.0, per * tile.depth)
    x0, y0, wide, high = LEFT + 150 + deep, 42.0 + deep, per * tile.block_n, per * tile.block_m
    step = tile.across if tile.apart else 1
    columns = [s * step for s in range(tile.columns)]
    size = max(per, 2.0)  # an element would be too small to see

    def blocks(corners: Sequence[tuple[float, float]], width: float, height: float, fill: str) -> str:
        return svg.path(svg.boxes(corners, width, height), fill)

    reads = f"{tile.rows} + {tile.columns} loads for {tile.rows * tile.columns} FMA{'s' * (tile.rows * tile.columns > 1)}"
    title = f"A block of {tile.threads} threads, {tile_name(tile)}"
    children = [
        svg.text(LEFT, 16, title, font_weight="bold"),
        *(
            svg.rect(*box, fill_opacity=svg.BEHIND, stroke=svg.INK, stroke_width=0.8, stroke_opacity=svg.FAINT)
            for box in ((x0, y0, wide, high), (x0 - deep - 6, y0, deep, high), (x0, y0 - deep - 6, wide, deep))
        ),
        blocks([(x0 - deep - 6, y0)], min(size, deep), max(per * tile.rows, 2.0), svg.ORANGE),
        blocks([(x0 + per * s, y0 - deep - 6) for s in columns], size, min(size, deep), svg.GREEN),
        blocks([(x0 + per * s, y0) for s in columns], size, max(per * tile.rows, 2.0), svg.BLUE),
        svg.text(x0 - deep - 12, y0 + 12, f"A: {tile.block_m} x {tile.depth}", anchor="end"),
        svg.text(x0 - deep - 12, y0 + 27, f"{tile.rows} for thread 0", size=11, anchor="end", opacity=svg.FAINT),
        svg.text(x0 + wide + 8, y0 - deep / 2 - 2, f"B: {tile.depth} x {tile.block_n}"),
        svg.text(x0 + wide + 8, y0 - deep / 2 + 12, f"{tile.columns} for thread 0", size=11, opacity=svg.FAINT),
        svg.text(x0 + wide + 8, y0 + 30, f"C: {tile.block_m} x {tile.block_n}"),
        svg.text(x0 + wide + 8, y0 + 45, f"thread 0 owns {tile.rows} x {tile.columns}", size=11, opacity=svg.FAINT),
        svg.text(LEFT, y0 + high + 20, f"A thread, in each step of k: {reads}."),
    ]
    label = (
        f"{title}. Tiles in shared memory: A {tile.block_m} x {tile.depth}, B {tile.depth} x {tile.block_n}. "
        f"A thread owns {tile.rows} x {tile.columns} elements of C: {reads} in each step of k"
    )
    return svg.document(WIDTH, y0 + high + 28, label, children)
