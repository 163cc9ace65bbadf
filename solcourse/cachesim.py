"""The caches, replayed: compiled loops over a Trace. The definition of what hits, misses, is fetched and is written back.

This is the inside of traffic.py, in a file of its own because it is compiled by numba; traffic.py imports it when a trace is
replayed, and nobody else does. Everything is deterministic. Each SM has a clock of
its own, in SM cycles: a *turn* is one warp running on to the first load it has to wait for.

Glossary: a *line id* is the dense number of a 128-byte line among those that the trace touches; a *slot* holds one line in the L1
of one SM; a sector mask has 4 bits, a word mask 32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

LOAD, STORE, ATOMIC, LOCAL_LOAD, LOCAL_STORE = range(5)  # what a site does to the caches
MAX_TURN = 64  # requests that one warp may issue without waiting for any
EPOCH = 200  # cycles by which the clocks of two SMs may differ
NEVER = 1 << 62

# columns of the per-site table that `replay` fills
REQUESTS, SECTORS, L1_HITS, L2_LOOKUPS, L2_HITS, FETCH_FIRST, FETCH_AGAIN, AT_L1, AT_L2, AT_DRAM, TAG_WAVEFRONTS, N_SITE = range(12)
# entries of the totals that `replay` fills
WRITEBACK_FIRST, WRITEBACK_AGAIN, LEFT_FIRST, LEFT_AGAIN, MERGE_READS, N_TOTAL = range(6)
SHARERS, LAST_BLOCK, SIDES = range(3)  # columns of `by_line`


def _compiled(function: Callable[..., Any]) -> Any:
    """njit with a disk cache, or without one where no folder can be written.

    Arrays are made by the callers in plain NumPy: without numba's memory runtime (_nrt) no call counts references, which would
    otherwise be half of the time.
    """
    try:
        return njit(cache=True, error_model="numpy", nogil=True, _nrt=False)(function)
    except RuntimeError:  # "cannot cache function ...: no locator available"
        return njit(error_model="numpy", nogil=True, _nrt=False)(function)


def _sector_mask(words):
    """The sectors in which any word is touched."""
    first, second = 1 if words & 0xFF else 0, 2 if words & 0xFF00 else 0
    third, fourth = 4 if words & 0xFF0000 else 0, 8 if words & 0xFF000000 else 0
    return first | second | third | fourth


def _popcount4(mask):
    return (mask & 1) + ((mask >> 1) & 1) + ((mask >> 2) & 1) + ((mask >> 3) & 1)


def _word_mask(sectors):
    """All words of the given sectors."""
    return ((sectors & 1) * 0xFF) | ((sectors & 2) * 0x7F80) | ((sectors & 4) * 0x3FC000) | ((sectors & 8) * 0x1FE00000)


def _hash(line):
    """Scatters runs of 16 lines; neighbours stay neighbours, which is kind to the caches of the machine that runs this."""
    return (np.int64((np.uint64(line >> 4) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(36)) << 4) + (line & 15)


_sector_mask, _popcount4, _word_mask, _hash = (_compiled(f) for f in (_sector_mask, _popcount4, _word_mask, _hash))


def _index(offsets, words, warps, site_action, key, value, lines, at, group, phase_at, start, phase_start, by_line, read, written):
    """First pass of `prepare`: fills the arrays; returns (requests, lines known, phases)."""
    blocks = len(offsets) - 1
    wrap = len(key) - 1
    requests = 0
    known = 0
    phases = 0
    for b in range(blocks):
        i = offsets[b]
        previous = np.int64(1 << 20)
        while i < offsets[b + 1]:
            header = np.int64(words[i] & np.uint64(0x7FFFFFFFFFFFFFFF))
            action = site_action[header >> 32]
            warp = (header >> 16) & 0xFFFF
            n = header & 0xFFFF
            if warp < previous:  # the engine runs warp after warp between two barriers
                phases += 1
            previous = warp
            at[requests] = i
            group[requests] = b * warps + warp
            phase_at[requests] = phases - 1
            start[b * warps + warp + 1] += 1
            requests += 1
            for j in range(i + 1, i + 1 + n):
                line = np.int64(words[j] >> np.uint64(32))
                mask = np.int64(words[j] & np.uint64(0xFFFFFFFF))
                h = _hash(line) & wrap
                while key[h] != line and key[h] != -1:
                    h = (h + 1) & wrap
                if key[h] == -1:
                    key[h] = line
                    value[h] = known
                    known += 1
                d = np.int64(value[h])
                lines[j] = d
                if by_line[d, LAST_BLOCK] != b:
                    by_line[d, LAST_BLOCK] = b
                    by_line[d, SHARERS] += 1
                by_line[d, SIDES] |= np.int32(1 << (b & 1))
                if action != STORE and action != LOCAL_STORE:
                    read[d] |= np.uint32(mask & ~np.int64(written[d]))
                if action != LOAD and action != LOCAL_LOAD:
                    written[d] |= np.uint32(mask)
            i += n + 1
        phase_start[b + 1] = phases
    return requests, known, phases


def _scatter(requests, at, group, phase_at, fill, position, phase, counts):
    """Second pass of `prepare`: requests grouped by warp."""
    for r in range(requests):
        place = fill[group[r]]
        fill[group[r]] += 1
        position[place] = at[r]
        phase[place] = phase_at[r]
        counts[phase_at[r]] += 1


_index, _scatter = _compiled(_index), _compiled(_scatter)


class Index(NamedTuple):
    """A trace indexed once, for every device.

    lines      (m,) int32: line id of each line word (undefined for header words)
    position   (requests,) int64: index of each header, grouped by (block, warp), in program order inside a group
    phase      (requests,) int64: barrier phase of that request, numbered through all blocks
    start      (blocks * warps + 1,) int64: where each warp's group begins
    counts     (phases,) int64: requests in each phase;  phase_start (blocks + 1,) int64: first phase of each block
    sharers    (lines,) int32: how many blocks touch each line;  sides (lines,) int32: bit 0 even blocks, bit 1 odd ones
    read       (lines,) uint32: words read before being written;  written: words written, by stores and atomics
    """

    lines: np.ndarray
    position: np.ndarray
    phase: np.ndarray
    start: np.ndarray
    counts: np.ndarray
    phase_start: np.ndarray
    sharers: np.ndarray
    sides: np.ndarray
    read: np.ndarray
    written: np.ndarray


def prepare(offsets: np.ndarray, words: np.ndarray, warps: int, site_action: np.ndarray) -> Index:
    """Index a trace: dense line ids, requests by warp, barrier phases, who shares which line."""
    blocks, m = len(offsets) - 1, len(words)
    headers = int(np.count_nonzero(words >> np.uint64(63)))
    size = 1 << max(4, (2 * (m - headers) - 1).bit_length())
    key, value = np.full(size, -1, np.int32), np.empty(size, np.int32)
    lines = np.empty(m, np.int32)
    at, group, phase_at = (np.empty(headers, np.int64) for _ in range(3))
    start, phase_start = np.zeros(blocks * warps + 1, np.int64), np.zeros(blocks + 1, np.int64)
    by_line = np.zeros((m - headers, 4), np.int32)
    by_line[:, LAST_BLOCK] = -1
    read, written = np.zeros(m - headers, np.uint32), np.zeros(m - headers, np.uint32)
    requests, known, phases = _index(
        offsets, words, warps, site_action, key, value, lines, at, group, phase_at, start, phase_start, by_line, read, written
    )
    start = np.cumsum(start)
    position, phase, counts = np.empty(requests, np.int64), np.empty(requests, np.int64), np.zeros(phases, np.int64)
    _scatter(requests, at, group, phase_at, start[:-1].copy(), position, phase, counts)
    sharers, sides = by_line[:known, SHARERS].copy(), by_line[:known, SIDES].copy()
    return Index(lines, position, phase, start, counts, phase_start, sharers, sides, read[:known].copy(), written[:known].copy())


# Entries are rows of int32: one row of the L2 table per line id, one row of the L1 table per slot.
BEFORE, AFTER, VALID, DIRTY, FILLED = range(
    5
)  # both: neighbours in LRU order, sector mask, dirty words or sectors, when the last fill arrives
PRESENT, READ_ONCE, WRITTEN_ONCE = 5, 6, 7  # L2: is it in; sectors that were ever fetched, ever written back
CHAIN, TAG = 5, 6  # L1: next slot of the hash bucket; line id
ROW = 8
LONG_AGO = -(1 << 30)


def _unlink(rows, ends, e, slot):
    """Take a row out of the list whose most and least recent rows are ends[e] and ends[e + 1]."""
    p, n = rows[slot, BEFORE], rows[slot, AFTER]
    if p >= 0:
        rows[p, AFTER] = n
    else:
        ends[e] = n
    if n >= 0:
        rows[n, BEFORE] = p
    else:
        ends[e + 1] = p


def _push(rows, ends, e, slot):
    """Make a row the most recent of its list."""
    first = ends[e]
    rows[slot, BEFORE] = -1
    rows[slot, AFTER] = first
    if first >= 0:
        rows[first, BEFORE] = slot
    else:
        ends[e + 1] = slot
    ends[e] = slot


_unlink, _push = _compiled(_unlink), _compiled(_push)


def _write_back(l2, line, granule, totals):
    """One line's dirty sectors go to DRAM; an incomplete sector is first merged with what DRAM holds."""
    dirty = np.int64(l2[line, DIRTY]) & 0xFFFFFFFF
    if dirty:
        sectors = _sector_mask(dirty)
        complete = 15 & ~_sector_mask(~dirty & 0xFFFFFFFF)
        again = _popcount4(sectors & np.int64(l2[line, WRITTEN_ONCE]))
        totals[MERGE_READS] += granule * _popcount4(sectors & ~complete & ~np.int64(l2[line, VALID]))
        totals[WRITEBACK_AGAIN] += 32 * again
        totals[WRITEBACK_FIRST] += 32 * (_popcount4(sectors) - again)
        l2[line, WRITTEN_ONCE] |= np.int32(sectors)
        l2[line, DIRTY] = 0


_write_back = _compiled(_write_back)


def _l2_touch(l2, ends, used, capacity, line, granule, totals):
    """Bring a line to the front of L2, evicting the least recent line if there is no room. Nothing is fetched.

    capacity 0: L2 holds every line of the trace, and no order is kept."""
    if l2[line, PRESENT]:
        if capacity and ends[0] != line:
            _unlink(l2, ends, 0, line)
            _push(l2, ends, 0, line)
        return
    if capacity:
        if used[0] == capacity:
            victim = ends[1]
            _write_back(l2, victim, granule, totals)
            l2[victim, VALID] = 0
            l2[victim, PRESENT] = 0
            _unlink(l2, ends, 0, victim)
        else:
            used[0] += 1
        _push(l2, ends, 0, line)
    l2[line, PRESENT] = 1
    l2[line, FILLED] = LONG_AGO


_l2_touch = _compiled(_l2_touch)


def _l2_access(l2, ends, used, capacity, line, sectors, mask, action, now, near, far, table, site, granule, totals):
    """Some sectors of one line at L2. near, far: cycles until data from L2 and from DRAM is there. Returns when it is."""
    _l2_touch(l2, ends, used, capacity, line, granule, totals)
    asked = _popcount4(sectors)
    table[site, L2_LOOKUPS] += asked
    dirty = np.int64(l2[line, DIRTY]) & 0xFFFFFFFF
    if action == STORE:  # never waits for DRAM: bytes are merged under a mask
        table[site, L2_HITS] += asked
        l2[line, DIRTY] = dirty | mask
        return now
    arrives = max(now + near, np.int64(l2[line, FILLED]))  # or it is still on its way from DRAM
    valid = np.int64(l2[line, VALID])
    missing = sectors & ~valid & _sector_mask(mask & ~dirty)
    table[site, L2_HITS] += asked - _popcount4(missing)
    if missing:
        fetch = missing
        if granule == 64:  # a sector brings its neighbour
            fetch = (((missing | missing >> 1) & 5) * 3) & ~valid
        again = _popcount4(fetch & np.int64(l2[line, READ_ONCE]))
        table[site, FETCH_AGAIN] += 32 * again
        table[site, FETCH_FIRST] += 32 * (_popcount4(fetch) - again)
        l2[line, READ_ONCE] |= np.int32(fetch)
        l2[line, VALID] = valid | fetch
        arrives = now + far
        l2[line, FILLED] = arrives
    if action == ATOMIC:
        l2[line, DIRTY] = dirty | mask
    return arrives


_l2_access = _compiled(_l2_access)


def _l1_find(l1, ends, e, head, h, line, buckets):
    """The slot that holds the line, moved to the front; -1 if none does. This SM's list is at e, its buckets at h."""
    slot = head[h + (_hash(line) & (buckets - 1))]
    while slot >= 0 and l1[slot, TAG] != line:
        slot = l1[slot, CHAIN]
    if slot >= 0 and ends[e] != slot:
        _unlink(l1, ends, e, slot)
        _push(l1, ends, e, slot)
    return np.int64(slot)


def _l1_allocate(l1, ends, e, head, h, line, buckets, slot):
    """Give the line a slot: `slot` if it is not -1 (a free one), else that of the least recent line, which leaves. Returns
    (slot, line that left, its dirty sectors); only local memory is ever dirty in L1."""
    left = np.int64(-1)
    dirty = np.int64(0)
    if slot < 0:
        slot = np.int64(ends[e + 1])
        _unlink(l1, ends, e, slot)
        left = np.int64(l1[slot, TAG])
        dirty = np.int64(l1[slot, DIRTY])
        bucket = h + (_hash(left) & (buckets - 1))
        if head[bucket] == slot:
            head[bucket] = l1[slot, CHAIN]
        else:
            other = head[bucket]
            while l1[other, CHAIN] != slot:
                other = l1[other, CHAIN]
            l1[other, CHAIN] = l1[slot, CHAIN]
    bucket = h + (_hash(line) & (buckets - 1))
    l1[slot, TAG] = line
    l1[slot, CHAIN] = head[bucket]
    head[bucket] = slot
    l1[slot, VALID] = 0
    l1[slot, DIRTY] = 0
    l1[slot, FILLED] = LONG_AGO
    _push(l1, ends, e, slot)
    return slot, left, dirty


_l1_find, _l1_allocate = _compiled(_l1_find), _compiled(_l1_allocate)


def _deal(sm, resident, queue, warps, now, start, counts, phase_start, cursor, finish, ready, block_of, phase_of, left_of, alive):
    """Put the next block that touches memory in the last place of an SM: the youngest. Returns the block to deal after it."""
    blocks = len(phase_start) - 1
    while queue < blocks and phase_start[queue + 1] == phase_start[queue]:
        queue += 1
    if queue == blocks:
        return queue
    r = resident - 1
    block_of[sm, r] = queue
    phase_of[sm, r] = phase_start[queue]
    left_of[sm, r] = counts[phase_start[queue]]
    for w in range(warps):
        first, last = start[queue * warps + w], start[queue * warps + w + 1]
        cursor[sm, r * warps + w] = first
        finish[sm, r * warps + w] = last
        ready[sm, r * warps + w] = NEVER
        if last > first:
            alive[sm] += 1
    return queue + 1


def _retire(sm, r, resident, warps, cursor, finish, ready, block_of, phase_of, left_of):
    """Take block r off an SM: younger blocks move down, the last place is free."""
    for q in range(r, resident - 1):
        block_of[sm, q] = block_of[sm, q + 1]
        phase_of[sm, q] = phase_of[sm, q + 1]
        left_of[sm, q] = left_of[sm, q + 1]
    for k in range(r * warps, (resident - 1) * warps):
        cursor[sm, k] = cursor[sm, k + warps]
        finish[sm, k] = finish[sm, k + warps]
        ready[sm, k] = ready[sm, k + warps]
    block_of[sm, resident - 1] = -1
    for k in range((resident - 1) * warps, resident * warps):
        ready[sm, k] = NEVER


def _release(sm, r, warps, now, phase, cursor, finish, ready, phase_of):
    """Warps of block r whose next request is in the block's phase may go on."""
    for k in range(r * warps, (r + 1) * warps):
        c = cursor[sm, k]
        if ready[sm, k] == NEVER and c < finish[sm, k] and phase[c] == phase_of[sm, r]:
            ready[sm, k] = now


_deal, _retire, _release = _compiled(_deal), _compiled(_retire), _compiled(_release)


class Machine(NamedTuple):
    """What the traced blocks are replayed on.

    sms, resident   SMs, blocks at once on each;  l1_lines: per SM;  granule: bytes of one DRAM fetch
    latency         cycles until data from L1, L2, DRAM is there
    issue           cycles of an SM that go with each request, its share of all other instructions
    passes          2 replays twice and counts the second time only (L2 warm)
    """

    sms: int
    resident: int
    l1_lines: int
    l2_lines: int
    granule: int
    latency: tuple[int, int, int]
    issue: int
    passes: int


def replay(
    words: np.ndarray, index: Index, warps: int, site_action: np.ndarray, site_stall: np.ndarray, m: Machine
) -> tuple[np.ndarray, np.ndarray]:
    """Run the traced blocks; see traffic.py for the rules.

    site_action (sites,) int64: one of LOAD..LOCAL_STORE. site_stall (sites,) float64: the part of a stall that each request of this
    site is (0: the warp goes on; 1: it waits for its loads; 1/4: it waits at every fourth, as an unrolled loop does).

    Returns (per-site table (sites, N_SITE) int64, totals (N_TOTAL,) int64).
    """
    line_count = len(index.sharers)
    l1_lines = max(1, min(m.l1_lines, line_count))
    buckets = 1 << max(3, (l1_lines - 1).bit_length())
    table, totals = np.zeros((len(site_action), N_SITE), np.int64), np.zeros(N_TOTAL, np.int64)
    l2, l1 = np.zeros((line_count, ROW), np.int32), np.empty((m.sms * l1_lines, ROW), np.int32)
    heads = np.empty(m.sms * buckets, np.int32)
    l1_ends, l2_ends = np.empty(2 * m.sms, np.int32), np.full(2, -1, np.int32)
    l1_used, l2_used = np.zeros(m.sms, np.int64), np.zeros(1, np.int64)
    cursor, finish, ready = (np.zeros((m.sms, m.resident * warps), np.int64) for _ in range(3))
    block_of, phase_of, left_of = (np.zeros((m.sms, m.resident), np.int64) for _ in range(3))
    alive, clock = np.zeros(m.sms, np.int64), np.zeros(m.sms, np.int64)
    capacity = m.l2_lines if m.l2_lines < line_count else 0
    for _ in range(m.passes):
        for zeroed in (table, totals, l1_used, alive):
            zeroed[...] = 0
        for emptied in (heads, l1_ends, block_of):
            emptied[...] = -1
        l2[:, READ_ONCE:] = 0
        clock[:] = clock.max()
        ready[:] = NEVER
        _replay(
            words, index.lines, index.position, index.phase, index.start, index.counts, index.phase_start, warps, site_action,
            site_stall, m.sms, m.resident, l1_lines, buckets, capacity, m.granule, m.latency[0], m.latency[1], m.latency[2], m.issue,
            table, totals, l1, heads, l1_ends, l1_used, l2, l2_ends, l2_used, cursor, finish, ready, block_of, phase_of, left_of,
            alive, clock, np.empty(4, np.int64),
        )  # fmt: skip
    dirty = l2[l2[:, DIRTY] != 0]
    sectors = (np.ascontiguousarray(dirty[:, DIRTY]).view(np.uint8).reshape(-1, 4) != 0) @ np.array([1, 2, 4, 8])
    again = np.bitwise_and(sectors, dirty[:, WRITTEN_ONCE])
    totals[LEFT_AGAIN] += 32 * int(_BITS[again].sum())
    totals[LEFT_FIRST] += 32 * int(_BITS[sectors].sum() - _BITS[again].sum())
    return table, totals


_BITS = np.array([bin(i).count("1") for i in range(16)])


def _replay(
    words, lines, position, phase, start, counts, phase_start, warps, site_action, site_stall, sms, resident, l1_lines, buckets,
    capacity, granule, at_l1, at_l2, at_dram, issue, table, totals, l1, head, ends, used, l2, l2_ends, l2_used, cursor, finish, ready,
    block_of, phase_of, left_of, alive, clock, sets,
):  # fmt: skip
    """One pass. By SM and warp: cursor, finish, ready (when it may issue; NEVER behind a barrier or at its end). By SM and resident
    block, oldest first: block_of, phase_of, left_of (requests left in the phase). By SM: alive (warps with requests left), clock."""
    lanes = resident * warps
    queue = 0
    for _ in range(resident):  # breadth first: one block for each SM, then the second
        for sm in range(sms):
            _retire(sm, 0, resident, warps, cursor, finish, ready, block_of, phase_of, left_of)
            queue = _deal(
                sm, resident, queue, warps, clock[sm], start, counts, phase_start, cursor, finish, ready, block_of, phase_of, left_of, alive
            )
    for sm in range(sms):
        for r in range(resident):
            if block_of[sm, r] >= 0:
                _release(sm, r, warps, clock[sm], phase, cursor, finish, ready, phase_of)
    while True:
        horizon = np.int64(NEVER)  # an epoch from the SM that is behind the others
        for sm in range(sms):
            if alive[sm] > 0:
                horizon = min(horizon, clock[sm] + EPOCH)
        if horizon == NEVER:
            return
        for sm in range(sms):
            while alive[sm] > 0 and clock[sm] < horizon:
                now = clock[sm]
                k = lanes - 1
                while k >= 0 and ready[sm, k] > now:  # the youngest warp that is ready
                    k -= 1
                if k < 0:  # all wait: on to the first that will be ready
                    first = np.int64(NEVER)
                    for j in range(lanes):
                        first = min(first, ready[sm, j])
                    clock[sm] = first
                    continue
                r = k // warps
                c = cursor[sm, k]
                credit = 0.0
                waits = now  # when the data asked for so far will be there
                held = False
                for _ in range(MAX_TURN):
                    i = position[c]
                    header = np.int64(words[i] & np.uint64(0x7FFFFFFFFFFFFFFF))
                    site = header >> 32
                    action = site_action[site]
                    loading = action in (LOAD, LOCAL_LOAD)
                    arrives = now + at_l1
                    passed = np.int64(0)  # sectors on the way between L1 and L2, one per clock
                    sets[:] = 0
                    for j in range(i + 1, i + 1 + (header & 0xFFFF)):
                        line = np.int64(lines[j])
                        mask = np.int64(words[j] & np.uint64(0xFFFFFFFF))
                        address = np.int64(words[j] >> np.uint64(32))
                        sets[(address ^ (address >> 2) ^ (address >> 4) ^ (address >> 6)) & 3] += 1
                        wanted = _sector_mask(mask)
                        asked = _popcount4(wanted)
                        table[site, SECTORS] += asked
                        slot = np.int64(-1)
                        if action != ATOMIC:
                            slot = _l1_find(l1, ends, 2 * sm, head, sm * buckets, line, buckets)
                        if loading or action == LOCAL_STORE:
                            if slot < 0:
                                if used[sm] < l1_lines:
                                    slot = sm * l1_lines + used[sm]
                                    used[sm] += 1
                                slot, gone, spilled = _l1_allocate(l1, ends, 2 * sm, head, sm * buckets, line, buckets, slot)
                                if spilled:
                                    _l2_touch(l2, l2_ends, l2_used, capacity, gone, granule, totals)
                                    table[site, L2_LOOKUPS] += _popcount4(spilled)
                                    table[site, L2_HITS] += _popcount4(spilled)
                                    l2[gone, DIRTY] = np.int64(l2[gone, DIRTY]) | _word_mask(spilled)
                            if loading:
                                arrives = max(arrives, np.int64(l1[slot, FILLED]))  # or it is still on its way
                                wanted &= ~np.int64(l1[slot, VALID])
                                table[site, L1_HITS] += asked - _popcount4(wanted)
                            else:
                                l1[slot, VALID] |= np.int32(wanted)
                                l1[slot, DIRTY] |= np.int32(wanted)
                                wanted = 0
                        if wanted:  # stores are written through: a line in L1 is updated, none is allocated
                            passed += _popcount4(wanted)
                            there = _l2_access(
                                l2,
                                l2_ends,
                                l2_used,
                                capacity,
                                line,
                                wanted,
                                mask,
                                action,
                                now,
                                at_l2,
                                at_dram,
                                table,
                                site,
                                granule,
                                totals,
                            )
                            arrives = max(arrives, there)
                            if loading:
                                l1[slot, VALID] |= np.int32(wanted)
                                l1[slot, FILLED] = there
                    table[site, REQUESTS] += 1
                    if action != STORE and action != LOCAL_STORE:
                        table[site, AT_L1 + (arrives > now + at_l1) + (arrives > now + at_l2)] += 1
                        waits = max(waits, arrives)
                    tags = max(max(sets[0], sets[1]), max(sets[2], sets[3]))
                    table[site, TAG_WAVEFRONTS] += tags
                    now += max(max(passed, tags), issue)
                    c += 1
                    left_of[sm, r] -= 1
                    held = c == finish[sm, k] or phase[c] != phase_of[sm, r]
                    if held:
                        break
                    credit += site_stall[site]
                    if credit >= 0.999:  # the warp waits here
                        break
                cursor[sm, k] = c
                clock[sm] = now
                ready[sm, k] = NEVER if held else max(now, waits if credit >= 0.999 else now)
                if c == finish[sm, k]:
                    alive[sm] -= 1
                if left_of[sm, r] == 0:
                    phase_of[sm, r] += 1
                    if phase_of[sm, r] < phase_start[block_of[sm, r] + 1]:
                        left_of[sm, r] = counts[phase_of[sm, r]]
                        _release(sm, r, warps, now, phase, cursor, finish, ready, phase_of)
                    else:
                        _retire(sm, r, resident, warps, cursor, finish, ready, block_of, phase_of, left_of)
                        queue = _deal(
                            sm, resident, queue, warps, now, start, counts, phase_start, cursor, finish, ready, block_of, phase_of, left_of,
                            alive,
                        )  # fmt: skip
                        if block_of[sm, resident - 1] >= 0:
                            _release(sm, resident - 1, warps, now, phase, cursor, finish, ready, phase_of)


_replay = _compiled(_replay)
