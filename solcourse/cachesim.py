"""The caches, replayed: compiled loops over a window of a Trace. The definition of what hits, misses, is fetched and is written back.

This is the inside of traffic.py, in a file of its own because it is compiled by numba; traffic.py imports it when a trace is
replayed, and nobody else does. Everything is deterministic. Each SM has a clock of
its own, in SM cycles: a *turn* is one warp running on to the first load it has to wait for.

Glossary (see cache_trace.py too): a *slot* is a row of the L1 table of one SM, and holds one line: *under way* from the request until
its data is there, then *resident* until it is evicted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .cache_trace import (
    ATOMIC,
    LOAD,
    LOCAL_LOAD,
    LOCAL_STORE,
    SITE_PAIRED,
    SITE_REQUESTS,
    SITE_SECTORS,
    STORE,
    Window,
    compiled,
    hashed,
    paired,
    popcount4,
    sector_mask,
)

MAX_TURN = 64  # requests that one warp may issue without waiting for any
EPOCH = 200  # cycles by which the clocks of two SMs may differ
NEVER = 1 << 62
FEW = 0.02  # judgement: a part of the touches that changes no prediction
UNDER_WAY = 2048  # lines that one SM can be waiting for: 64 warps x 32 lines

# columns of the per-site table that `replay` fills
L1_HITS, L2_LOOKUPS, L2_HITS, FETCH_FIRST, FETCH_AGAIN, AT_L1, AT_L2, AT_DRAM, N_SITE = range(9)
# entries of the totals that `replay` fills
WRITEBACK_FIRST, WRITEBACK_AGAIN, LEFT_FIRST, LEFT_AGAIN, MERGE_READS, N_TOTAL = range(6)

# Entries are rows of int32: one row of the L2 table per line id, one row of the L1 table per slot.
# both: neighbours in LRU order (or in the queue of lines under way), sector mask, dirty words or sectors, when the last fill arrives
BEFORE, AFTER, VALID, DIRTY, FILLED = range(5)
PRESENT, READ_ONCE, WRITTEN_ONCE = 5, 6, 7  # L2: is it in; sectors that were ever fetched, ever written back
CHAIN, TAG, WAITED = 5, 6, 7  # L1: next slot of the hash bucket, or next free slot; line id; is it under way
ROW = 8
LONG_AGO = -(1 << 30)
# columns of the table of SMs
CLOCK, ALIVE, WAKE, NEWEST, OLDEST, RESIDENT, FREE, UNUSED, FIRST_WAIT, LAST_WAIT, N_SM = range(11)
BLOCK, PHASE, LEFT, N_PLACE = range(4)  # columns of the table of places: block, its phase, requests left in that


class Machine(NamedTuple):
    """What the traced blocks are replayed on.

    sms, resident   SMs, blocks at once on each;  l1_lines: per SM;  granule: bytes of one DRAM fetch
    at_l1, at_l2, at_dram   cycles until data from there is there
    issue           cycles of an SM that go with each request, its share of all other instructions
    passes          2 replays twice and counts the second time only (L2 warm)
    """

    sms: int
    resident: int
    l1_lines: int
    l2_lines: int
    granule: int
    at_l1: int
    at_l2: int
    at_dram: int
    issue: int
    passes: int


class State(NamedTuple):
    """Everything that changes while a window is replayed.

    l1 (sms * slots, ROW), l2 (lines, ROW) int32: see above;  heads (sms * buckets,) int32: hash table into l1
    newest, oldest (1,) and used: L2's LRU order;  table (sites, N_SITE), totals (N_TOTAL,): what is counted
    sm (sms, N_SM);  place (sms, resident, N_PLACE): resident blocks;  order (sms, resident): their places, oldest first
    cursor, finish, ready (sms, resident * warps): of each warp, its next request, its last, when it may issue (NEVER: it may now, or
    it waits for others: at a barrier, or at its end);  awake (sms,) uint64: bit k: warp k may issue now
    """

    l1: np.ndarray
    l2: np.ndarray
    heads: np.ndarray
    l2_order: np.ndarray
    table: np.ndarray
    totals: np.ndarray
    sm: np.ndarray
    place: np.ndarray
    order: np.ndarray
    cursor: np.ndarray
    finish: np.ndarray
    ready: np.ndarray
    awake: np.ndarray


class Sizes(NamedTuple):
    """slots: of the L1 table of one SM; resident: lines that it keeps; l2: lines of L2, 0 where it holds all; buckets: a power of 2."""

    slots: int
    resident: int
    buckets: int
    l2: int
    warps: int


@compiled(inline=True)
def _word_mask(sectors):
    """All words of the given sectors."""
    return ((sectors & 1) * 0xFF) | ((sectors & 2) * 0x7F80) | ((sectors & 4) * 0x3FC000) | ((sectors & 8) * 0x1FE00000)


@compiled(inline=True)
def _highest(bits):
    """The place of the highest bit of a uint64 that is not 0."""
    place = 0
    for step in (32, 16, 8, 4, 2, 1):
        if bits >> np.uint64(step):
            bits >>= np.uint64(step)
            place += step
    return place


# ---------------------------------------------------------------------------------------------------------------------- L2
@compiled
def _write_back(s, line, granule):
    """One line's dirty sectors go to DRAM; an incomplete sector is first merged with what DRAM holds."""
    l2, totals = s.l2, s.totals
    dirty = np.int64(l2[line, DIRTY]) & 0xFFFFFFFF
    if dirty:
        sectors = sector_mask(dirty)
        complete = 15 & ~sector_mask(~dirty & 0xFFFFFFFF)
        again = popcount4(sectors & np.int64(l2[line, WRITTEN_ONCE]))
        totals[MERGE_READS] += granule * popcount4(sectors & ~complete & ~np.int64(l2[line, VALID]))
        totals[WRITEBACK_AGAIN] += 32 * again
        totals[WRITEBACK_FIRST] += 32 * (popcount4(sectors) - again)
        l2[line, WRITTEN_ONCE] |= np.int32(sectors)
        l2[line, DIRTY] = 0


@compiled(inline=True)
def _l2_unlink(s, line):
    l2, order = s.l2, s.l2_order
    before, after = l2[line, BEFORE], l2[line, AFTER]
    if before >= 0:
        l2[before, AFTER] = after
    else:
        order[0] = after
    if after >= 0:
        l2[after, BEFORE] = before
    else:
        order[1] = before


@compiled(inline=True)
def _l2_push(s, line):
    l2, order = s.l2, s.l2_order
    first = order[0]
    l2[line, BEFORE] = -1
    l2[line, AFTER] = first
    if first >= 0:
        l2[first, BEFORE] = line
    else:
        order[1] = line
    order[0] = line


@compiled(inline=True)
def _l2_touch(s, capacity, line, granule):
    """Bring a line to the front of L2, evicting the least recent line if there is no room. Nothing is fetched.

    capacity 0: L2 holds every line of the window, and no order is kept."""
    l2, order = s.l2, s.l2_order
    if l2[line, PRESENT]:
        if capacity and order[0] != line:
            _l2_unlink(s, line)
            _l2_push(s, line)
        return
    if capacity:
        if order[2] == capacity:
            victim = np.int64(order[1])
            _write_back(s, victim, granule)
            l2[victim, VALID] = 0
            l2[victim, PRESENT] = 0
            _l2_unlink(s, victim)
        else:
            order[2] += 1
        _l2_push(s, line)
    l2[line, PRESENT] = 1
    l2[line, FILLED] = LONG_AGO


@compiled(inline=True)
def _l2_access(s, m, capacity, line, sectors, mask, action, now, site):
    """Some sectors of one line at L2. Returns when their data is there."""
    _l2_touch(s, capacity, line, m.granule)
    l2, table = s.l2, s.table
    asked = popcount4(sectors)
    table[site, L2_LOOKUPS] += asked
    dirty = np.int64(l2[line, DIRTY]) & 0xFFFFFFFF
    arrives = now
    if action == STORE:  # never waits for DRAM: bytes are merged under a mask
        table[site, L2_HITS] += asked
        l2[line, DIRTY] = dirty | mask
    else:
        arrives = max(now + m.at_l2, np.int64(l2[line, FILLED]))  # or it is still on its way from DRAM
        valid = np.int64(l2[line, VALID])
        missing = sectors & ~valid & sector_mask(mask & ~dirty)
        table[site, L2_HITS] += asked - popcount4(missing)
        if missing:
            fetch = missing
            if m.granule == 64:  # a sector brings its neighbour
                fetch = paired(missing) & ~valid
            again = popcount4(fetch & np.int64(l2[line, READ_ONCE]))
            table[site, FETCH_AGAIN] += 32 * again
            table[site, FETCH_FIRST] += 32 * (popcount4(fetch) - again)
            l2[line, READ_ONCE] |= np.int32(fetch)
            l2[line, VALID] = valid | fetch
            arrives = now + m.at_dram
            l2[line, FILLED] = arrives
        if action == ATOMIC:
            l2[line, DIRTY] = dirty | mask
    return arrives


# ---------------------------------------------------------------------------------------------------------------------- L1
@compiled(inline=True)
def _l1_unlink(s, sm, slot):
    l1, state = s.l1, s.sm
    before, after = l1[slot, BEFORE], l1[slot, AFTER]
    if before >= 0:
        l1[before, AFTER] = after
    else:
        state[sm, NEWEST] = after
    if after >= 0:
        l1[after, BEFORE] = before
    else:
        state[sm, OLDEST] = before


@compiled(inline=True)
def _l1_push(s, sm, slot):
    l1, state = s.l1, s.sm
    first = state[sm, NEWEST]
    l1[slot, BEFORE] = -1
    l1[slot, AFTER] = first
    if first >= 0:
        l1[first, BEFORE] = slot
    else:
        state[sm, OLDEST] = slot
    state[sm, NEWEST] = slot


@compiled(inline=True)
def _l1_find(s, sm, z, line):
    """The slot that holds the line, -1 if none does."""
    slot = np.int64(s.heads[sm * z.buckets + (hashed(line) & (z.buckets - 1))])
    while slot >= 0 and s.l1[slot, TAG] != line:
        slot = np.int64(s.l1[slot, CHAIN])
    return slot


@compiled
def _l1_evict(s, sm, z, granule):
    """The least recently used line leaves. Only local memory is ever dirty in L1."""
    l1, state = s.l1, s.sm
    out = state[sm, OLDEST]
    _l1_unlink(s, sm, out)
    line = np.int64(l1[out, TAG])
    bucket = sm * z.buckets + (hashed(line) & (z.buckets - 1))
    if s.heads[bucket] == out:
        s.heads[bucket] = l1[out, CHAIN]
    else:
        other = np.int64(s.heads[bucket])
        while l1[other, CHAIN] != out:
            other = np.int64(l1[other, CHAIN])
        l1[other, CHAIN] = l1[out, CHAIN]
    l1[out, CHAIN] = state[sm, FREE]
    state[sm, FREE] = out
    dirty = np.int64(l1[out, DIRTY])
    if dirty:
        site = np.int64(l1[out, FILLED])  # of the store that made it dirty
        _l2_touch(s, z.l2, line, granule)
        s.table[site, L2_LOOKUPS] += popcount4(dirty)
        s.table[site, L2_HITS] += popcount4(dirty)
        s.l2[line, DIRTY] = np.int64(s.l2[line, DIRTY]) | _word_mask(dirty)


@compiled(inline=True)
def _l1_settle(s, sm, z, granule, slot):
    """A line becomes resident; where there is no room, another leaves."""
    s.l1[slot, WAITED] = 0
    _l1_push(s, sm, slot)
    if s.sm[sm, RESIDENT] < z.resident:
        s.sm[sm, RESIDENT] += 1
    else:
        _l1_evict(s, sm, z, granule)


@compiled(inline=True)
def _l1_arrive(s, sm, z, granule):
    """The line that has been under way for longest becomes resident."""
    slot = s.sm[sm, FIRST_WAIT]
    s.sm[sm, FIRST_WAIT] = s.l1[slot, AFTER]
    _l1_settle(s, sm, z, granule, slot)


@compiled(inline=True)
def _l1_slot(s, sm, z, granule, line):
    """A slot for a line that has none, under its hash."""
    l1, state = s.l1, s.sm
    slot = state[sm, FREE]
    while slot < 0 and state[sm, UNUSED] == z.slots:  # too many under way: they are taken to have arrived
        _l1_arrive(s, sm, z, granule)
        slot = state[sm, FREE]
    if slot >= 0:
        state[sm, FREE] = l1[slot, CHAIN]
    else:
        slot = sm * z.slots + state[sm, UNUSED]
        state[sm, UNUSED] += 1
    bucket = sm * z.buckets + (hashed(line) & (z.buckets - 1))
    l1[slot, TAG] = line
    l1[slot, CHAIN] = s.heads[bucket]
    s.heads[bucket] = slot
    l1[slot, VALID] = 0
    l1[slot, DIRTY] = 0
    l1[slot, FILLED] = LONG_AGO
    return slot


@compiled(inline=True)
def _l1_wait(s, sm, slot):
    """A slot joins the queue of lines under way."""
    l1, state = s.l1, s.sm
    l1[slot, WAITED] = 1
    l1[slot, AFTER] = -1
    if state[sm, FIRST_WAIT] >= 0:
        l1[state[sm, LAST_WAIT], AFTER] = slot
    else:
        state[sm, FIRST_WAIT] = slot
    state[sm, LAST_WAIT] = slot


# ---------------------------------------------------------------------------------------------------------- blocks and warps
@compiled
def _release(x, s, sm, z, place):
    """Warps of a block whose next request is in the block's phase may go on."""
    for k in range(place * z.warps, (place + 1) * z.warps):
        c = s.cursor[sm, k]
        if c < s.finish[sm, k] and x.phase[c] == s.place[sm, place, PHASE] and s.ready[sm, k] == NEVER:
            s.awake[sm] |= np.uint64(1) << np.uint64(k)


@compiled
def _deal(x, s, sm, z, r, queue):
    """The next block that touches memory takes the place of the r-th oldest of an SM, and is its youngest. Returns the one after it."""
    last = s.order.shape[1] - 1
    place = s.order[sm, r]
    for q in range(r, last):
        s.order[sm, q] = s.order[sm, q + 1]
    s.order[sm, last] = place
    blocks = len(x.phase_start) - 1
    while queue < blocks and x.phase_start[queue + 1] == x.phase_start[queue]:
        queue += 1
    s.place[sm, place, BLOCK] = -1
    if queue == blocks:
        return queue
    s.place[sm, place, BLOCK] = queue
    s.place[sm, place, PHASE] = x.phase_start[queue]
    s.place[sm, place, LEFT] = x.in_phase[x.phase_start[queue]]
    for w in range(z.warps):
        first, end = x.start[queue * z.warps + w], x.start[queue * z.warps + w + 1]
        s.cursor[sm, place * z.warps + w] = first
        s.finish[sm, place * z.warps + w] = end
        if end > first:
            s.sm[sm, ALIVE] += 1
    _release(x, s, sm, z, place)
    return queue + 1


@compiled(inline=True)
def _next_phase(x, s, sm, z, r, queue):
    """All requests of a phase are issued: the next phase, or the next block."""
    place = s.order[sm, r]
    s.place[sm, place, PHASE] += 1
    if s.place[sm, place, PHASE] < x.phase_start[s.place[sm, place, BLOCK] + 1]:
        s.place[sm, place, LEFT] = x.in_phase[s.place[sm, place, PHASE]]
        _release(x, s, sm, z, place)
        return queue
    return _deal(x, s, sm, z, r, queue)


@compiled(inline=True)
def _wake(s, sm):
    """Warps whose data is there by now may go on."""
    now, later = s.sm[sm, CLOCK], np.int64(NEVER)
    awake = s.awake[sm]
    for k in range(s.ready.shape[1]):
        when = s.ready[sm, k]
        here = when <= now
        awake |= np.uint64(here) << np.uint64(k)
        when = np.int64(NEVER) if here else when
        s.ready[sm, k] = when
        later = min(later, when)
    s.awake[sm] = awake
    s.sm[sm, WAKE] = later


@compiled(inline=True)
def _youngest(s, sm, z):
    """(age, place of the block and warp) of the youngest warp of an SM that may issue; age: 0 is the oldest block."""
    mask = (np.uint64(1) << np.uint64(z.warps)) - np.uint64(1)
    r = s.order.shape[1] - 1
    while not (s.awake[sm] >> np.uint64(s.order[sm, r] * z.warps)) & mask:
        r -= 1
    place = s.order[sm, r]
    return r, place, place * z.warps + _highest((s.awake[sm] >> np.uint64(place * z.warps)) & mask)


@compiled(inline=True)
def _load(x, s, m, z, sm, t, now, action, site):
    """One touch of a load. Returns (when its data is there, sectors that L2 was asked for)."""
    line, wanted = np.int64(x.line[t]), np.int64(x.sectors[t])
    slot = _l1_find(s, sm, z, line)
    arrives = now + m.at_l1
    missing = wanted
    if slot >= 0:
        missing = wanted & ~np.int64(s.l1[slot, VALID])
        if not s.l1[slot, WAITED] and s.sm[sm, NEWEST] != slot:
            _l1_unlink(s, sm, slot)
            _l1_push(s, sm, slot)
        if not s.l1[slot, DIRTY]:
            arrives = max(arrives, np.int64(s.l1[slot, FILLED]))  # or it is still on its way
    if missing:
        if slot < 0:
            slot = _l1_slot(s, sm, z, m.granule, line)
            _l1_wait(s, sm, slot)
        there = _l2_access(s, m, z.l2, line, missing, np.int64(x.words[t]), action, now, site)
        arrives = max(arrives, there)
        s.l1[slot, VALID] |= np.int32(missing)
        if not s.l1[slot, DIRTY]:
            s.l1[slot, FILLED] = there
    return arrives, missing


@compiled(inline=True)
def _local_store(x, s, m, z, sm, t, site):
    """One touch of a store to local memory, which stays in L1."""
    line, wanted = np.int64(x.line[t]), np.int32(x.sectors[t])
    slot = _l1_find(s, sm, z, line)
    if slot < 0:
        slot = _l1_slot(s, sm, z, m.granule, line)
        _l1_settle(s, sm, z, m.granule, slot)
    elif not s.l1[slot, WAITED] and s.sm[sm, NEWEST] != slot:
        _l1_unlink(s, sm, slot)
        _l1_push(s, sm, slot)
    s.l1[slot, VALID] |= wanted
    s.l1[slot, DIRTY] |= wanted
    s.l1[slot, FILLED] = site


@compiled(inline=True)
def _request(x, s, m, z, sm, c, now, action, site):
    """One request. Returns (when its data is there, cycles until the SM can issue the next)."""
    arrives = now + m.at_l1
    passed = np.int64(0)  # sectors on the way between L1 and L2, one per clock
    hits = np.int64(0)
    for t in range(x.first[c], x.first[c] + x.length[c]):
        if action in (LOAD, LOCAL_LOAD):
            there, missing = _load(x, s, m, z, sm, t, now, action, site)
            arrives = max(arrives, there)
            hits += popcount4(np.int64(x.sectors[t])) - popcount4(missing)
            passed += popcount4(missing)
        elif action == LOCAL_STORE:
            _local_store(x, s, m, z, sm, t, site)
        else:  # stores are written through, and leave L1 as it is
            wanted = np.int64(x.sectors[t])
            there = _l2_access(s, m, z.l2, np.int64(x.line[t]), wanted, np.int64(x.words[t]), action, now, site)
            arrives = max(arrives, there)
            passed += popcount4(wanted)
    s.table[site, L1_HITS] += hits
    return arrives, max(passed, max(np.int64(x.tags[c]), m.issue))


@compiled(inline=True)
def _turn(x, s, m, z, sm, site_action, site_stall, queue):
    """One warp issues until it has to wait. Returns the block to deal next."""
    r, place, k = _youngest(s, sm, z)
    c, last, phase = s.cursor[sm, k], s.finish[sm, k], s.place[sm, place, PHASE]
    now = s.sm[sm, CLOCK]
    waits, credit, begun = now, 0.0, c  # waits: when the data asked for so far will be there
    held = False
    while c < begun + MAX_TURN and not held and credit < 0.999:
        while s.sm[sm, FIRST_WAIT] >= 0 and s.l1[s.sm[sm, FIRST_WAIT], FILLED] <= now:
            _l1_arrive(s, sm, z, m.granule)
        site = np.int64(x.site[c])
        action = site_action[site]
        arrives, busy = _request(x, s, m, z, sm, c, now, action, site)
        if action != STORE and action != LOCAL_STORE:
            s.table[site, AT_L1 + (arrives > now + m.at_l1) + (arrives > now + m.at_l2)] += 1
            waits = max(waits, arrives)
        now += busy
        c += 1
        held = c == last or x.phase[c] != phase
        if not held:
            credit += site_stall[site]
    s.cursor[sm, k] = c
    s.sm[sm, CLOCK] = now
    waiting = not held and credit >= 0.999 and waits > now
    if held or waiting:
        s.awake[sm] &= ~(np.uint64(1) << np.uint64(k))
    if waiting:
        s.ready[sm, k] = waits
        s.sm[sm, WAKE] = min(s.sm[sm, WAKE], waits)
    if c == last:
        s.sm[sm, ALIVE] -= 1
    s.place[sm, place, LEFT] -= c - begun
    if s.place[sm, place, LEFT] == 0:
        return _next_phase(x, s, sm, z, r, queue)
    return queue


@compiled
def _replay(x, s, m, z, site_action, site_stall):
    """One pass over the window."""
    sms, queue = m.sms, 0
    for _ in range(m.resident):  # breadth first: one block for each SM, then the second
        for sm in range(sms):
            queue = _deal(x, s, sm, z, 0, queue)
    while True:
        horizon = np.int64(NEVER)  # an epoch from the SM that is behind the others
        for sm in range(sms):
            if s.sm[sm, ALIVE] > 0:
                horizon = min(horizon, s.sm[sm, CLOCK] + EPOCH)
        if horizon == NEVER:
            return
        for sm in range(sms):
            while s.sm[sm, ALIVE] > 0 and s.sm[sm, CLOCK] < horizon:
                if s.sm[sm, WAKE] <= s.sm[sm, CLOCK]:
                    _wake(s, sm)
                if s.awake[sm]:  # the youngest
                    queue = _turn(x, s, m, z, sm, site_action, site_stall, queue)
                else:  # all wait: on to the first that will be ready
                    s.sm[sm, CLOCK] = s.sm[sm, WAKE]


def _empty(w: Window, m: Machine, z: Sizes, sites: int) -> State:
    rows = (m.sms, m.resident * w.warps)
    return State(
        l1=np.empty((m.sms * z.slots, ROW), np.int32),
        l2=np.zeros((len(w.sharers), ROW), np.int32),
        heads=np.empty(m.sms * z.buckets, np.int32),
        l2_order=np.array([-1, -1, 0], np.int64),
        table=np.zeros((sites, N_SITE), np.int64),
        totals=np.zeros(N_TOTAL, np.int64),
        sm=np.zeros((m.sms, N_SM), np.int64),
        place=np.zeros((m.sms, m.resident, N_PLACE), np.int64),
        order=np.empty((m.sms, m.resident), np.int64),
        cursor=np.zeros(rows, np.int64),
        finish=np.zeros(rows, np.int64),
        ready=np.zeros(rows, np.int64),
        awake=np.zeros(m.sms, np.uint64),
    )


def _restart(s: State) -> None:
    """Before each pass: nothing counted, L1 empty, L2 as it is, all SMs at the same time."""
    for zeroed in (s.table, s.totals, s.awake, s.cursor, s.finish):
        zeroed[...] = 0
    s.heads[...] = s.place[...] = -1
    s.ready[...] = NEVER
    s.order[...] = np.arange(s.order.shape[1])
    s.l2[:, READ_ONCE:] = 0
    clock = s.sm[:, CLOCK].max()
    s.sm[...] = 0
    s.sm[:, CLOCK] = clock
    s.sm[:, WAKE] = NEVER
    s.sm[:, [NEWEST, OLDEST, FREE, FIRST_WAIT, LAST_WAIT]] = -1


def replay(w: Window, site_action: np.ndarray, site_stall: np.ndarray, m: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Run the window; see traffic.py for the rules.

    site_action (sites,) int64: one of LOAD..LOCAL_STORE. site_stall (sites,) float64: the part of a stall that each request of this
    site is (0: the warp goes on; 1: it waits for its loads; 1/4: it waits at every fourth, as an unrolled loop does).

    Returns (per-site table (sites, N_SITE) int64, totals (N_TOTAL,) int64).
    """
    if streams(w, m):
        return _stream(w, site_action, m)
    lines = len(w.sharers)
    resident = max(1, min(m.l1_lines, lines))
    slots = min(resident + UNDER_WAY, lines) + 1
    z = Sizes(slots, resident, 1 << max(3, (slots - 1).bit_length()), m.l2_lines if m.l2_lines < lines else 0, w.warps)
    s = _empty(w, m, z, len(site_action))
    for _ in range(m.passes):
        _restart(s)
        _replay(w.requests, s, m, z, site_action, site_stall)
    dirty = s.l2[s.l2[:, DIRTY] != 0]
    sectors = _sectors_of(dirty[:, DIRTY])
    again = np.bitwise_and(sectors, dirty[:, WRITTEN_ONCE])
    s.totals[LEFT_AGAIN] += 32 * int(_BITS[again].sum())
    s.totals[LEFT_FIRST] += 32 * int(_BITS[sectors].sum() - _BITS[again].sum())
    return s.table, s.totals


_BITS = np.array([bin(i).count("1") for i in range(16)])


def _sectors_of(words: np.ndarray) -> np.ndarray:
    """Sector masks of word masks."""
    return (np.ascontiguousarray(words).view(np.uint8).reshape(-1, 4) != 0) @ np.array([1, 2, 4, 8])


def streams(w: Window, m: Machine) -> bool:
    """Whether the outcome is known without a replay: no load can hit, and L2 keeps each line from one store to the next.

    What runs at once may come in another order than in the trace, and lie as much further apart. Where hardly anything is shared (FEW),
    it does not matter."""
    at_once = len(w.requests.line) * min(1.0, m.sms * m.resident / max(1, w.blocks))
    return w.streams and (w.shared < FEW or w.gap + at_once < m.l2_lines or m.l2_lines >= len(w.sharers))


def _stream(w: Window, site_action: np.ndarray, m: Machine) -> tuple[np.ndarray, np.ndarray]:
    """What a replay would find, in closed form: nothing hits in whatever order, unless the launch before left it."""
    lines = len(w.sharers)
    table, totals = np.zeros((len(site_action), N_SITE), np.int64), np.zeros(N_TOTAL, np.int64)
    static = w.requests.by_site
    stays = m.passes == 2 and m.l2_lines >= lines
    reads = site_action != STORE
    table[:, L2_LOOKUPS] = static[:, SITE_SECTORS]
    table[:, L2_HITS] = np.where(reads & (not stays), 0, static[:, SITE_SECTORS])
    table[:, AT_L2 if stays else AT_DRAM] = np.where(reads, static[:, SITE_REQUESTS], 0)
    if not stays:
        table[:, FETCH_FIRST] = np.where(reads, 32 * static[:, SITE_PAIRED if m.granule == 64 else SITE_SECTORS], 0)
    torn = 0 if (site_action == ATOMIC).any() else w.torn  # atomics fetch first
    gone = max(0, lines - m.l2_lines)  # of the lines, evenly over what was written
    early = round(32 * w.dirty * gone / max(1, lines))
    totals[WRITEBACK_FIRST] = 32 * w.dirty if m.passes == 2 and not stays else early
    totals[LEFT_FIRST] = 32 * w.dirty - early
    totals[MERGE_READS] = round(m.granule * torn * gone / max(1, lines))
    return table, totals
