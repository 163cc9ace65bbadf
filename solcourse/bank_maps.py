"""One warp's request to shared memory as a picture, lanes x banks, and the same for a request that a launch made.

Glossary: word (4 bytes), bank (word % 32), wavefront (one pass: at most one word from each bank). access_maps.py has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from solcourse import svg
from solcourse.access_maps import BANKS, WORD, Addresses, bank_passes, checked, lane_passes, necessary_wavefronts, plural, runs, wavefronts
from solcourse.grading import number
from solcourse.simt.records import WARP, AccessCounts, EngineRun

WIDTH, LEFT, SPAN = 440, 12, 416
BANK_LEFT, BANK_CELL, LANE_HEIGHT = 36, 12, 12


def _lane_marks(lanes: Addresses, size: int, top: float, gap: float) -> Iterator[str]:
    """A row for each lane: its number, its cells in the banks it asks, and beside them its word and, where it waits, its pass."""
    per_group, served = WARP // max(size // WORD, 1), lane_passes(bank_passes(lanes, size))
    cells: dict[str, list[str]] = {svg.BLUE: [], svg.ORANGE: []}
    names: list[str] = []
    right_of: list[str] = []
    left_of: list[str] = []
    for lane, address in enumerate(lanes):
        y = top + lane * LANE_HEIGHT + lane // per_group * gap
        names.append(svg.text(BANK_LEFT - 6, y + 10, str(lane)))
        if address is None:
            right_of.append(svg.text(BANK_LEFT + 3, y + 10, "off"))
            continue
        word, (number, waits) = address // WORD, served[lane]
        banks = sorted({w % BANKS for w in range(word, (address + size - 1) // WORD + 1)})
        cells[svg.ORANGE if waits else svg.BLUE] += [
            f"M{BANK_LEFT + first * BANK_CELL} {svg.num(y + 1)}h{wide * BANK_CELL}v{LANE_HEIGHT - 2}h-{wide * BANK_CELL}z"
            for first, wide in runs(sum(1 << bank for bank in banks))
        ]
        said = f"{word}, pass {number}" if waits else f"{word}"
        x = BANK_LEFT + (banks[-1] + 1) * BANK_CELL + 4
        fits = x + 6.5 * len(said) <= BANK_LEFT + BANKS * BANK_CELL
        (right_of if fits else left_of).append(svg.text(x if fits else BANK_LEFT + banks[0] * BANK_CELL - 4, y + 10, said))
    yield svg.group(names, font_size=11, text_anchor="end", opacity=svg.FAINT)
    yield from (svg.path("".join(paths), fill) for fill, paths in cells.items() if paths)
    yield svg.group(right_of, font_size=11)
    yield svg.group(left_of, font_size=11, text_anchor="end")


def _bank_legend(y: float, waits: bool) -> Iterator[str]:
    yield svg.rect(LEFT, y - 9, 10, 10, svg.BLUE)
    yield svg.text(LEFT + 15, y, "first pass", size=11)
    if waits:
        yield svg.rect(LEFT + 84, y - 9, 10, 10, svg.ORANGE)
        yield svg.text(LEFT + 99, y, "waits for a later pass", size=11)
    yield svg.text(LEFT + SPAN, y, "number: the word a lane asks for", size=11, anchor="end", opacity=svg.FAINT)


def bank_map(addresses: Iterable[int | None], size: int, *, title: str = "One warp's request to shared memory") -> str:
    """One request of one warp to shared memory: 32 lanes down, 32 banks across; orange lanes wait, because of a word in the same bank.

    The number at a lane's cell is its word (byte address / 4): equal words are one pass, different words in one bank are one each.
    Groups of lanes that are served together (half-warps for 8 bytes) stand apart.
    """
    lanes = checked(addresses, size)
    passes = bank_passes(lanes, size)
    took, needed = wavefronts(lanes, size), necessary_wavefronts(lanes, size)
    said = f"{plural(took, 'wavefront')}, {plural(took - needed, 'bank conflict')}"
    if took > needed:
        worst, bank = max((len(words), -bank) for banks in passes for bank, words in banks.items())
        said += f" ({needed} would do); {worst} words in bank {-bank}"
    top, gap = 52.0, 6.0
    bottom = top + WARP * LANE_HEIGHT + (len(passes) - 1) * gap
    edges = "".join(f"M{BANK_LEFT + bank * BANK_CELL} {top - 2}V{svg.num(bottom)}" for bank in range(BANKS + 1))
    ticks = [
        svg.text(BANK_LEFT + (bank + 0.5) * BANK_CELL, 46, f"{bank}", size=11, anchor="middle", opacity=svg.FAINT)
        for bank in (0, 4, 8, 12, 16, 20, 24, 28, 31)
    ]
    children = [
        svg.text(LEFT, 18, title, font_weight="bold"),
        svg.text(BANK_LEFT, 33, "bank (word % 32)", size=11, opacity=svg.FAINT),
        svg.text(BANK_LEFT - 6, 46, "lane", size=11, anchor="end", opacity=svg.FAINT),
        *ticks,
        svg.path(edges, stroke=svg.INK, opacity=svg.PALE),
        *_lane_marks(lanes, size, top, gap),
        svg.text(LEFT, bottom + 18, said),
        *_bank_legend(bottom + 36, took > needed),
    ]
    return svg.document(WIDTH, bottom + 44, f"{title}: {said}", children)


# ------------------------------------------------------------------------------------------------- what a launch has done
@dataclass(frozen=True)
class SharedAccess:
    """The instructions of one source line that do the same to one shared array. kind: load, store, atomic; size: bytes per lane."""

    line: int
    kind: str
    array: str
    size: int
    counts: AccessCounts

    @property
    def per_request(self) -> float:
        """Wavefronts per request."""
        return self.counts.wavefronts / self.counts.requests

    @property
    def name(self) -> str:
        return f"{self.kind}{f' of {self.array}' if self.array else ''}, line {self.line}"

    def agrees(self, requests: Sequence[Addresses], size: int) -> bool:
        """Whether the engine counted what such requests take, each of them made equally often."""
        meant = sum(wavefronts(addresses, size) for addresses in requests)
        return size == self.size and self.counts.requests * meant == self.counts.wavefronts * len(requests)


def shared_accesses(run: EngineRun, line: int | None = None) -> list[SharedAccess]:
    """What a launch did with shared memory (on `line`), most wavefronts first."""
    found: dict[tuple[int, str, str, int], AccessCounts] = {}
    for site in run.program.sites:
        counted = run.site_counts[site.index]
        if site.kind.startswith("shared") and counted.requests and line in (None, site.line):
            key = (site.line, site.kind.removeprefix("shared_"), site.array, site.size)
            found[key] = found.get(key, AccessCounts()) + counted
    made = [SharedAccess(*key, counts) for key, counts in found.items()]
    return sorted(made, key=lambda access: (-access.counts.wavefronts, access.line))


def bank_counts(run: EngineRun, line: int | None = None, note: str = "") -> str:
    """Wavefronts per request of every access to shared memory (on `line`), as bars: what the engine counted, of whichever lanes."""
    rows = shared_accesses(run, line)[:8]
    left, span, top, row = 150, 160, 28, 22
    most = max([BANKS, *(access.per_request for access in rows)])
    children, said = [svg.text(LEFT, 16, "Shared memory: wavefronts per request", font_weight="bold")], []
    for n, access in enumerate(rows):
        y, needed = top + n * row, access.per_request - access.counts.bank_conflicts / access.counts.requests
        words = number(access.per_request) + (f" ({number(needed)} would do)" if access.counts.bank_conflicts else "")
        children.append(svg.text(left - 6, y + 13, svg.shorten(access.name, 22), anchor="end"))
        least = span * needed / most
        children.append(svg.rect(left, y, least, row - 6, svg.BLUE))
        if access.counts.bank_conflicts:
            children.append(svg.rect(left + least, y, span * access.per_request / most - least, row - 6, svg.ORANGE))
        children.append(svg.text(left + span * access.per_request / most + 6, y + 13, words))
        said.append(f"{access.name}: {words}")
    if not rows:
        note = " ".join(filter(None, ("No access to shared memory.", note)))
    bottom = top + len(rows) * row
    children += [svg.text(LEFT, bottom + 14, note, size=11)] if note else []
    label = "Shared memory, wavefronts per request. " + ". ".join([*said, *([note] if note else [])])
    return svg.document(WIDTH, bottom + 22, label, children)


def banks(run: EngineRun, requests: Sequence[Addresses], size: int, *, title: str = "", line: int | None = None) -> str:
    """The bank map of the worst of `requests`, where the busiest access to shared memory (of `line`) took what they take; else its counts.

    requests  byte addresses of the lanes, for each request that a warp makes there in turn; the engine counts passes, not lanes
    """
    access = next(iter(shared_accesses(run, line)), None)
    if access is None or not requests:
        return bank_counts(run, line)
    if not access.agrees(requests, size):
        meant = sum(wavefronts(addresses, size) for addresses in requests) / len(requests)
        return bank_counts(run, line, f"Lanes not drawn: the words given take {number(meant)} wavefronts per request.")
    worst = max(requests, key=lambda addresses: wavefronts(addresses, size))
    return bank_map(worst, size, title=title or f"One warp's {access.name}")
