"""One warp's memory access, lanes -> sectors and words -> banks, as arithmetic; and the sectors as a picture (banks: bank_maps.py).

Glossary: sector (32 bytes, the least that memory delivers), line (128 bytes = 4 sectors), word (4 bytes), bank (word % 32),
wavefront (one pass through the data stage: at most one word from each bank). Addresses are bytes, one per lane, None where a lane is off.
Source: the 32-bank rule, with 8-byte accesses served by half-warps and 16-byte ones by quarter-warps, as measured with
Nsight counters in te42kyfo/gpu-benches (V100, A100, A40, H200).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from solcourse import svg, units
from solcourse.errors import WorkError
from solcourse.simt.records import LINE_BYTES, SECTOR_BYTES, WARP, EngineRun, Site, Trace

BANKS = 32
WORD = 4
SECTORS_PER_LINE = LINE_BYTES // SECTOR_BYTES
Addresses = Sequence[int | None]

WIDTH, LEFT, SPAN = 440, 12, 416


def checked(addresses: Iterable[int | None], size: int) -> list[int | None]:
    """The warp's addresses, padded to 32 lanes. Raises WorkError for more than 32 lanes or an impossible size."""
    lanes: list[int | None] = [None if a is None else int(a) for a in addresses]
    if len(lanes) > WARP or not 1 <= size <= 16:
        raise WorkError(f"One request of one warp has at most 32 lanes of 1 to 16 bytes: got {len(lanes)} lanes of {size} bytes.")
    return lanes + [None] * (WARP - len(lanes))


def sector_masks(addresses: Addresses, size: int) -> dict[int, int]:
    """Sector index -> which of its 32 bytes some lane touches (bit 0 is the first byte), ascending.

    >>> sector_masks([0, 4, 36], 4)
    {0: 255, 1: 240}
    """
    masks: dict[int, int] = {}
    for address in checked(addresses, size):
        for byte in range(address, address + size) if address is not None else ():
            masks[byte // SECTOR_BYTES] = masks.get(byte // SECTOR_BYTES, 0) | 1 << byte % SECTOR_BYTES
    return dict(sorted(masks.items()))


def bank_passes(addresses: Addresses, size: int) -> list[dict[int, dict[int, list[int]]]]:
    """For each group of lanes that is served together: bank -> word -> lanes. One group up to 4 bytes, 2 for 8, 4 for 16."""
    lanes = checked(addresses, size)
    groups = max(size // WORD, 1)
    per_group = WARP // groups
    passes = []
    for first in range(0, WARP, per_group):
        banks: dict[int, dict[int, list[int]]] = {}
        for lane in range(first, first + per_group):
            address = lanes[lane]
            if address is not None:
                for word in range(address // WORD, (address + size - 1) // WORD + 1):
                    banks.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
        passes.append(banks)
    return passes


def wavefronts(addresses: Addresses, size: int) -> int:
    """Passes through the data stage: for each group, the most distinct words that fall into one bank.

    >>> wavefronts([row * 32 * 4 for row in range(32)], 4), wavefronts([row * 33 * 4 for row in range(32)], 4)
    (32, 1)
    """
    return sum(max(map(len, banks.values()), default=0) for banks in bank_passes(addresses, size))


def necessary_wavefronts(addresses: Addresses, size: int) -> int:
    """The passes no layout can avoid: one for each group with an active lane."""
    return sum(bool(banks) for banks in bank_passes(addresses, size))


def lane_passes(passes: Sequence[Mapping[int, Mapping[int, list[int]]]]) -> dict[int, tuple[int, bool]]:
    """Lane -> (the pass that has served it wholly, counted from 1 over the request; whether it waited for others of its group).

    passes   as `bank_passes` gives them. Lanes that share a word share its pass.

    >>> lane_passes(bank_passes([0, 128, 4, 0], 4))
    {0: (1, False), 3: (1, False), 1: (2, True), 2: (1, False)}
    """
    served: dict[int, tuple[int, bool]] = {}
    before = 0
    for banks in passes:
        depths = [(lane, depth) for words in banks.values() for depth, lanes in enumerate(words.values()) for lane in lanes]
        for lane, depth in depths:
            number = max(served.get(lane, (0, False))[0], before + depth + 1)
            served[lane] = (number, number > before + 1)
        before += max((depth for _, depth in depths), default=-1) + 1
    return served


# ---------------------------------------------------------------------------------------------------------- sector map
def runs(mask: int) -> Iterator[tuple[int, int]]:
    """(first byte, length) of each run of set bits."""
    at = 0
    while mask >> at:
        if mask >> at & 1:
            end = at
            while mask >> end & 1:
                end += 1
            yield at, end - at
            at = end
        else:
            at += 1


def _places(sectors: Sequence[int], scale: float = 1.0) -> tuple[dict[int, float], float]:
    """x of each sector and the width of one. Sectors of one line touch; a gap marks a new line, a wider one skipped memory."""
    gaps = [0.0]
    for before, after in zip(sectors, sectors[1:], strict=False):
        same_line = before // SECTORS_PER_LINE == after // SECTORS_PER_LINE
        gaps.append(1.0 if after == before + 1 and same_line else 3.0 if after == before + 1 else 5.0)
    width = min(64.0, (SPAN - sum(gaps)) / len(sectors)) * scale
    x = LEFT + (SPAN - width * len(sectors) - sum(gaps)) / 2
    places = {}
    for sector, gap in zip(sectors, gaps, strict=True):
        x += gap
        places[sector] = x
        x += width
    return places, width


def _lane_row(lanes: Addresses, places: Mapping[int, float], width: float) -> Iterator[str]:
    cell = SPAN / WARP
    active = [n for n, a in enumerate(lanes) if a is not None]
    inactive = [n for n, a in enumerate(lanes) if a is None]
    yield svg.text(LEFT, 42, "lane 0", size=11, opacity=svg.FAINT)
    yield svg.text(LEFT + SPAN, 42, "lane 31", size=11, anchor="end", opacity=svg.FAINT)
    yield svg.path(svg.boxes(((LEFT + n * cell + 1, 48) for n in active), cell - 2, 14), svg.BLUE)
    if inactive:
        yield svg.path(svg.boxes(((LEFT + n * cell + 1, 48) for n in inactive), cell - 2, 14), stroke=svg.INK, opacity=svg.FAINT)
    links = []
    for n in active:
        address = lanes[n]
        assert address is not None
        to = places[address // SECTOR_BYTES] + (address % SECTOR_BYTES + 0.5) / SECTOR_BYTES * width
        links.append(f"M{svg.num(LEFT + (n + 0.5) * cell)} 62L{svg.num(to)} 108")
    yield svg.path("".join(links), stroke=svg.INK, opacity=svg.FAINT)


def _sector_row(masks: Mapping[int, int], places: Mapping[int, float], width: float, y: float) -> Iterator[str]:
    height = 26.0
    yield svg.path(svg.boxes(((x, y) for x in places.values()), width, height), svg.ORANGE, fill_opacity=svg.PALE)
    used = []
    for sector, mask in masks.items():
        for first, length in runs(mask):
            w = max(length / SECTOR_BYTES * width, 1.8)  # a sliver that the outline does not hide
            x = min(places[sector] + first / SECTOR_BYTES * width, places[sector] + width - w)
            used.append(f"M{svg.num(x)} {svg.num(y)}h{svg.num(w)}v{svg.num(height)}h-{svg.num(w)}z")
    yield svg.path(svg.boxes(((x, y) for x in places.values()), width, height), stroke=svg.INK, stroke_width=0.8)
    yield svg.path("".join(used), svg.BLUE)


def _offsets(sectors: Sequence[int], places: Mapping[int, float], width: float, y: float) -> Iterator[str]:
    """The first byte of each sector, counted from the first line touched, as far as there is room."""
    base = sectors[0] // SECTORS_PER_LINE * LINE_BYTES
    right = -99.0
    for sector in sectors:
        label = f"+{sector * SECTOR_BYTES - base:,}"
        end = places[sector] + 7 * len(label)
        if places[sector] >= right and end <= WIDTH:
            yield svg.text(places[sector], y, label, size=11, opacity=svg.FAINT)
            right = end + 8


def _legend(y: float, unused: bool, stored: bool) -> Iterator[str]:
    yield svg.rect(LEFT, y - 9, 10, 10, svg.BLUE)
    yield svg.text(LEFT + 15, y, "written" if stored else "used", size=11)
    if unused:
        yield svg.rect(LEFT + 65, y - 9, 10, 10, svg.ORANGE, fill_opacity=svg.PALE, stroke=svg.INK, stroke_width=0.8)
        yield svg.text(LEFT + 80, y, "in the sector, not written" if stored else "fetched, not used", size=11)


def _sector_figure(masks: Mapping[int, int], title: str, lanes: Addresses | None, fetch_bytes: int, stored: bool = False) -> str:
    if not masks:
        words = f"{title}: no lane is active, nothing is fetched"
        return svg.document(WIDTH, 30, words, [svg.text(LEFT, 18, words)])
    fetched = SECTOR_BYTES * len(masks)
    used = sum(mask.bit_count() for mask in masks.values())
    verbs = f"{used:,} of their {fetched:,} bytes written" if stored else f"{fetched:,} bytes fetched, {used:,} used"
    said = f"{plural(len(masks), 'sector')}: {verbs} ({units.percent(used / fetched)})"
    opened = len({sector * SECTOR_BYTES // fetch_bytes for sector in masks}) * fetch_bytes
    # a store fetches nothing, and L2 puts the pieces of neighbours together before DRAM sees them
    dram = f"DRAM, {fetch_bytes} at a time: {opened:,}" if opened > fetched and not stored else ""
    places, width = _places(list(masks))
    y = 108 if lanes is not None else 34
    children = [svg.text(LEFT, 18, title, font_weight="bold")]
    if lanes is not None:
        children += _lane_row(lanes, places, width)
    children += _sector_row(masks, places, width, y)
    children += _offsets(list(masks), places, width, y + 40)
    children.append(svg.text(LEFT, y + 60, said))
    children += _legend(y + 78, used < fetched, stored)
    if dram:
        children.append(svg.text(LEFT + SPAN, y + 78, dram, size=11, anchor="end"))
    return svg.document(WIDTH, y + 86, f"{title}: {said}{'; ' if dram else ''}{dram}", children)


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def sector_map(addresses: Iterable[int | None], size: int, *, title: str = "One warp's request", fetch_bytes: int = SECTOR_BYTES) -> str:
    """One request of one warp: 32 lanes above, the sectors they pull below, and which bytes of those are used.

    addresses    byte address of each lane, None for a lane that is off
    size         bytes per lane
    fetch_bytes  what DRAM opens at once (64 on HBM parts): said in words where it exceeds the sectors
    Raises WorkError for more than 32 lanes.
    """
    lanes = checked(addresses, size)
    return _sector_figure(sector_masks(lanes, size), title, lanes, fetch_bytes)


def traced_requests(trace: Trace, site: int) -> Iterator[dict[int, int]]:
    """The requests of one site, in program order, as sector index -> mask of touched bytes (at 4-byte resolution)."""
    words = trace.words
    at = 0
    while at < len(words):
        header = int(words[at])
        count = header & 0xFFFF
        if (header >> 32 & 0x7FFFFFFF) == site:
            yield _masks_of_lines(int(word) for word in words[at + 1 : at + 1 + count])
        at += 1 + count


def _masks_of_lines(lines: Iterable[int]) -> dict[int, int]:
    masks: dict[int, int] = {}
    for word in lines:
        line, touched = word >> 32, word & 0xFFFFFFFF
        for part in range(SECTORS_PER_LINE):
            eight = touched >> 8 * part & 0xFF  # the sector's 8 words
            if eight:
                masks[line * SECTORS_PER_LINE + part] = sum(0xF << 4 * n for n in range(8) if eight >> n & 1)
    return dict(sorted(masks.items()))


def hottest_site(run: EngineRun, line: int | None = None) -> Site | None:
    """The global-memory instruction that asks for the most sectors, on `line` where one is given; None if there is none."""
    sites = [s for s in run.program.sites if s.kind.startswith("global") and line in (None, s.line)]
    return max(sites, key=lambda s: (run.site_counts[s.index].sectors, -s.index), default=None)


def sectors(run: EngineRun, line: int | None = None, *, fetch_bytes: int = SECTOR_BYTES) -> str:
    """The sector map of a request that was really made: the fullest of the first 64 of the hottest site (of `line`).

    The trace keeps which words were touched, not by which lane, so the lanes are not drawn.
    """
    site = hottest_site(run, line)
    if site is None:
        return _sector_figure({}, "Global memory", None, fetch_bytes)
    requests = [masks for masks, _ in zip(traced_requests(run.trace, site.index), range(64), strict=False)]
    masks = max(requests, key=lambda m: sum(mask.bit_count() for mask in m.values()), default={})
    name = f" of {site.array}" if site.array else ""
    title = f"One warp's {site.kind.removeprefix('global_')}{name}, line {site.line}, {plural(site.size, 'byte')} per lane"
    return _sector_figure(masks, title, None, fetch_bytes, stored=site.kind == "global_store")
