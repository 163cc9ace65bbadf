"""A Trace made ready for replay: a window of it, indexed once for every device. The definition of what is replayed.

This is compiled by numba; traffic.py imports it when a trace is looked at, and nobody else does.

Glossary: a *touch* is one request's access to one 128-byte line; a *line id* is the dense number of a line among those that the window
touches; a sector mask has 4 bits, a word mask 32. A *phase* is what a block does between two barriers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

LOAD, STORE, ATOMIC, LOCAL_LOAD, LOCAL_STORE = range(5)  # what a site does to the caches
FEWEST = 4  # blocks: where so many are too long for the window, each is cut short
SITE_REQUESTS, SITE_SECTORS, SITE_TAGS, SITE_PARTIAL, SITE_PAIRED, N_STATIC = range(6)  # columns of Index.by_site
_SHARERS, _LAST_BLOCK, _SIDES, _TOUCHES, _LAST_TOUCH, _LOADED, _STORED_BY, _STORED, _BY_LINE = range(9)  # columns of `by_line`


def compiled(function: Callable[..., Any] | None = None, *, inline: bool = False) -> Any:
    """njit with a disk cache, or without one where no folder can be written.

    Arrays are made by the callers in plain NumPy: without numba's memory runtime (_nrt) no call counts references, which would
    otherwise be half of the time. inline: into every caller, for what is too small to be called.
    """
    if function is None:
        return lambda f: compiled(f, inline=inline)
    options = {"error_model": "numpy", "nogil": True, "_nrt": False, "forceinline": inline}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # "cannot cache function ...: no locator available"
        return njit(**options)(function)


@compiled(inline=True)
def sector_mask(words):
    """The sectors in which any word is touched."""
    first, second = 1 if words & 0xFF else 0, 2 if words & 0xFF00 else 0
    third, fourth = 4 if words & 0xFF0000 else 0, 8 if words & 0xFF000000 else 0
    return first | second | third | fourth


@compiled(inline=True)
def popcount4(mask):
    return (mask & 1) + ((mask >> 1) & 1) + ((mask >> 2) & 1) + ((mask >> 3) & 1)


@compiled(inline=True)
def paired(sectors):
    """These sectors of a line and the neighbour of each: what comes where DRAM is read in pieces of 64 bytes."""
    return ((sectors | sectors >> 1) & 5) * 3


@compiled(inline=True)
def hashed(line):
    """Scatters runs of 16 lines; neighbours stay neighbours, which is kind to the caches of the machine that runs this."""
    return (np.int64((np.uint64(line >> 4) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(36)) << 4) + (line & 15)


@compiled(inline=True)
def tag_set(line):
    """Which of L1's four tag sets holds a line: all pairs of bits of its number, XORed. Lines of one request in one set take turns.

    Nsight's tag-stage counts of te42kyfo/gpu-benches (A100, A40) come out so to the last digit, and with no shorter sum."""
    line ^= line >> 16
    line ^= line >> 8
    line ^= line >> 4
    return (line ^ (line >> 2)) & 3


class Index(NamedTuple):
    """A window indexed once, for every device. Requests are grouped by (block, warp), in program order inside a group.

    site, first, length, tags, phase  (requests,) int32: site; first touch, number of touches; passes through L1's tag stage; barrier
                                      phase, numbered through all blocks
    line, words, sectors              (touches,) int32, uint32, uint8: line id, word mask, sector mask
    start        (blocks * warps + 1,) int64: where each warp's group begins
    in_phase     (phases,) int64: requests in each phase;  phase_start (blocks + 1,) int64: first phase of each block
    by_site      (sites, N_STATIC) int64: requests, sectors, passes through the tag stage, sectors written in part (stores that
                 a warp makes one after another, without a load in between, go out together), sectors and their neighbours
    """

    site: np.ndarray
    first: np.ndarray
    length: np.ndarray
    tags: np.ndarray
    phase: np.ndarray
    line: np.ndarray
    words: np.ndarray
    sectors: np.ndarray
    start: np.ndarray
    in_phase: np.ndarray
    phase_start: np.ndarray
    by_site: np.ndarray


class Window(NamedTuple):
    """A window of a trace, and what it touches.

    blocks     (whole or cut short); part: of their requests that are in the window
    sharers    (lines,) int32: how many blocks touch each line;  sides (lines,) int32: bit 0 even blocks, bit 1 odd ones
    read       (lines,) uint32: words read before being written;  written: words written, by stores and atomics
    streams    what is loaded is touched once, only stores share lines (and none of it is local memory): no load can hit
    gap        touches, in the order of the trace, between two of the same line, at most
    shared     part of all touches that are of lines touched more than once
    dirty      sectors written, each once;  torn: those of them that are not written whole
    """

    requests: Index
    warps: int
    blocks: int
    part: float
    sharers: np.ndarray
    sides: np.ndarray
    read: np.ndarray
    written: np.ndarray
    streams: bool
    gap: int
    shared: float
    dirty: int
    torn: int


@compiled
def _count(offsets, words, blocks, warps, requests):
    """Requests of each warp."""
    for b in range(blocks):
        i = offsets[b]
        while i < offsets[b + 1]:
            header = np.int64(words[i] & np.uint64(0x7FFFFFFFFFFFFFFF))
            requests[b * warps + ((header >> 16) & 0xFFFF)] += 1
            i += (header & 0xFFFF) + 1


@compiled
def incomplete(words):
    """How many sectors of a line a mask of words touches, but not whole."""
    return popcount4(sector_mask(words) & sector_mask(~words & 0xFFFFFFFF))


@compiled
def _index(offsets, trace, blocks, warps, site_action, start, key, value, index, by_line, read, written):
    """Fills the index and what is known by line; returns (touches, lines, phases, largest gap)."""
    wrap = len(key) - 1
    touches, known, phases, gap = 0, 0, 0, np.int64(0)
    sets = (np.int64(0), np.int64(0), np.int64(0), np.int64(0))
    for b in range(blocks):
        i = offsets[b]
        previous = np.int64(1 << 20)
        waited = np.int64(0)
        fresh = 1
        while i < offsets[b + 1]:
            header = np.int64(trace[i] & np.uint64(0x7FFFFFFFFFFFFFFF))
            site = header >> 32
            action = site_action[site]
            warp = (header >> 16) & 0xFFFF
            n = header & 0xFFFF
            if warp < previous:
                fresh = 1  # the engine runs warp after warp between two barriers
            r = start[b * warps + warp]
            if warp != previous or action != STORE:
                waited = r  # stores of this warp from here on go out together, until it loads again
            previous = warp
            if r == index.start[b * warps + warp + 1]:  # this warp is cut short here
                i += n + 1
                continue
            if fresh:
                phases += 1
                fresh = 0
            start[b * warps + warp] = r + 1
            index.site[r] = site
            index.first[r] = touches
            index.length[r] = n
            index.phase[r] = phases - 1
            index.in_phase[phases - 1] += 1
            s0, s1, s2, s3 = sets
            for j in range(i + 1, i + 1 + n):
                line = np.int64(trace[j] >> np.uint64(32))
                mask = np.int64(trace[j] & np.uint64(0xFFFFFFFF))
                h = hashed(line) & wrap
                while key[h] != line and key[h] != -1:
                    h = (h + 1) & wrap
                if key[h] == -1:
                    key[h] = line
                    value[h] = known
                    known += 1
                d = np.int64(value[h])
                sectors = sector_mask(mask)
                index.line[touches] = d
                index.words[touches] = mask
                index.sectors[touches] = sectors
                touches += 1
                place = tag_set(line)
                s0 += place == 0
                s1 += place == 1
                s2 += place == 2
                s3 += place == 3
                if by_line[d, _LAST_BLOCK] != b:
                    by_line[d, _LAST_BLOCK] = b
                    by_line[d, _SHARERS] += 1
                by_line[d, _SIDES] |= np.int32(1 << (b & 1))
                if by_line[d, _TOUCHES]:
                    gap = max(gap, touches - by_line[d, _LAST_TOUCH])
                by_line[d, _TOUCHES] += 1
                by_line[d, _LAST_TOUCH] = touches
                by_line[d, _LOADED] |= action != STORE
                if action != STORE and action != LOCAL_STORE:
                    read[d] |= np.uint32(mask & ~np.int64(written[d]))
                if action != LOAD and action != LOCAL_LOAD:
                    written[d] |= np.uint32(mask)
                index.by_site[site, SITE_SECTORS] += popcount4(sectors)
                index.by_site[site, SITE_PAIRED] += popcount4(paired(sectors))
                if action == STORE:
                    together, whole = np.int64(0), mask
                    if by_line[d, _STORED_BY] > waited:  # completes, or goes on with, what this warp has just stored
                        together = np.int64(np.uint32(by_line[d, _STORED]))
                        whole |= together
                    index.by_site[site, SITE_PARTIAL] += incomplete(whole) - incomplete(together)
                    by_line[d, _STORED_BY] = r + 1
                    by_line[d, _STORED] = np.int32(np.uint32(whole))
            tags = max(max(s0, s1), max(s2, s3))
            index.tags[r] = tags
            index.by_site[site, SITE_REQUESTS] += 1
            index.by_site[site, SITE_TAGS] += tags
            i += n + 1
        index.phase_start[b + 1] = phases
    return touches, known, phases, gap


def _extent(offsets: np.ndarray, budget: int) -> tuple[int, float]:
    """(blocks, part of each): as many whole blocks as the budget holds, or FEWEST, cut short together."""
    traced = len(offsets) - 1
    whole = int(np.searchsorted(offsets, budget, side="right")) - 1
    fewest = min(FEWEST, traced)
    if whole >= fewest or not traced:
        return whole, 1.0
    return fewest, min(1.0, budget / float(offsets[fewest]))


def _local(index: Index, site_action: np.ndarray) -> bool:
    return bool(index.by_site[site_action >= LOCAL_LOAD, SITE_REQUESTS].any())


def _written_sectors(words: np.ndarray) -> tuple[int, int]:
    """(sectors that word masks touch, those they do not touch whole)."""
    parts = words.view(np.uint8)
    touched = int(np.count_nonzero(parts))
    return touched, touched - int(np.count_nonzero(parts == 0xFF))


def window(offsets: np.ndarray, words: np.ndarray, warps: int, site_action: np.ndarray, budget: int) -> Window:
    """The window of a trace that takes about `budget` of its words. site_action (sites,) int64: one of LOAD..LOCAL_STORE."""
    blocks, part = _extent(offsets, budget)
    requests = np.zeros(blocks * warps, np.int64)
    _count(offsets, words, blocks, warps, requests)
    if part < 1.0:
        requests = np.ceil(requests * part).astype(np.int64)
    kept = int(requests.sum())
    room = int(offsets[blocks]) - (kept if part == 1.0 else 0)
    size = 1 << max(4, (2 * room - 1).bit_length())
    start = np.concatenate(([0], np.cumsum(requests)))
    site, first, length, tags, phase = (np.empty(kept, np.int32) for _ in range(5))
    index = Index(
        site, first, length, tags, phase, np.empty(room, np.int32), np.empty(room, np.uint32), np.empty(room, np.uint8), start,
        np.zeros(max(1, kept), np.int64), np.zeros(blocks + 1, np.int64), np.zeros((len(site_action), N_STATIC), np.int64),
    )  # fmt: skip
    by_line = np.zeros((room, _BY_LINE), np.int32)
    by_line[:, _LAST_BLOCK] = -1
    read, written = np.zeros(room, np.uint32), np.zeros(room, np.uint32)
    key, value = np.full(size, -1, np.int32), np.empty(size, np.int32)
    touches, lines, phases, gap = _index(
        offsets, words, blocks, warps, site_action, start[:-1].copy(), key, value, index, by_line, read, written
    )  # fmt: skip
    index = index._replace(
        line=index.line[:touches], words=index.words[:touches], sectors=index.sectors[:touches], in_phase=index.in_phase[:phases].copy()
    )
    by_line = by_line[:lines]
    often = by_line[by_line[:, _TOUCHES] > 1]
    streams = not often[:, _LOADED].any() and not _local(index, site_action)
    return Window(
        index, warps, blocks, part, by_line[:, _SHARERS].copy(), by_line[:, _SIDES].copy(), read[:lines].copy(), written[:lines].copy(),
        streams, int(gap), float(often[:, _TOUCHES].sum()) / max(1, touches), *_written_sectors(written[:lines]),
    )  # fmt: skip
