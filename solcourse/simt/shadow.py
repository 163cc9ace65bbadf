"""Shadow memory: what the checks build calls at each access, barrier and meeting of lanes. The definition of a hazard.

Two accesses of different threads to one cell, at least one of them a write and not both atomic, are a hazard unless something orders
them: a barrier of the block, a syncwarp() of lanes that includes both, a threadfence() after the first and an atomic operation before
the second. Order is looked for, not waited for: it does not matter in which order this machine happened to run them.

A cell is the smallest piece of an array that the kernel accesses. It has two words for its last writes, two for its last reads and two
for its last atomic operations, of different blocks if there are such, else of different warps, else of different threads: enough that no
hazard goes unseen because of a third reader, but for lanes of one warp that meet in groups. A word says who and when:

    block 24 bits | tick 14 | site 14 | thread 10 | atomic 1        block: 1 + its index in the launch; 0: an empty word

Ticks count, for each warp, what orders memory: barriers (which set all warps of the block to one new tick, the `floor`), syncwarp(),
fences. What was accessed in the same block before the floor is ordered by a barrier. Of lanes of one warp, `known[mine][other]` is the
tick below which I know what the other did. Before ticks run out, a block's words are renumbered.

Compiled by numba for the CPU the first time a kernel is checked, and kept in numba's cache. One thread runs it all.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from solcourse.simt.layout import ALLOC, ALLOC_BYTES, LAUNCH, THREAD

BLOCK_UP, TICK_UP, SITE_UP, THREAD_UP = 39, 25, 11, 1
MOST_BLOCKS, MOST_TICK, MOST_SITES = (1 << 24) - 2, (1 << 14) - 2, 1 << 14
TICK_BITS = ((1 << 14) - 1) << TICK_UP

LOAD, STORE, ATOMIC, WAITING = 0, 1, 2, 3  # WAITING: a load in a loop that waits for another thread
KIND_UP, ALIGN_UP = 8, 16  # what an access is: its size | kind | alignment
SHARED_BIT, SHIFT_BITS = 8, 7  # ALLOC "count" of an array with shadow words: log2 of its cells' bytes | whether it is shared

READ_AFTER_WRITE, WRITE_AFTER_READ, WRITE_AFTER_WRITE, SAME_VALUE, UNINITIALIZED, MISALIGNED, PASSED_BY, NOTE = range(1, 9)
WEAK = 16  # added to the kind: only a shuffle, vote or match lies between
APART = 32  # times: 0 the two are in one warp, 1 in two warps of a block, 2 in two blocks

# The state of a block, in bytes: its key (as in a word), floor, barriers passed, lanes that waited at the barrier and which it is, lanes
# that fell off the kernel's end, ..., whether lanes have met (2: not all of a warp), then the ticks of its warps
STATE = {
    name: 8 * k for k, name in enumerate("key floor phase arrived barrier fell watch known weak release acquired events met serial".split())
}
TICKS = 128
KNOWN_BY_ALL = TICKS + 8 * 32  # of each warp: below which tick all its lanes know of each other, by syncwarp(); behind that, by anything
STATE_BYTES = KNOWN_BY_ALL + 2 * 8 * 32
KNOWN_BYTES = 32 * 32 * 2  # of one warp

FENCES = 4  # of a block that are remembered: serial 32 bits | tick 16 | whether other blocks see it

# An event: key + 1 (0: free), how often, the word of the access, of the one before it, byte in the array, ALLOC row, value, other value
EVENT_WORDS, EVENTS = 8, 1 << 12
TOUCHES = 1 << 12  # of a watched cell: watch, word, kind, phase
# a watch: number of them, touches so far, where those are; then for each its ALLOC row, first byte, block key (0: any)
WATCH_WORDS = 3

_I64 = ir.IntType(64)


def _memory(bits: int) -> tuple[Any, Any]:
    """load(address) -> int64 and store(address, value) of an unsigned integer of that many bits."""
    t = ir.IntType(bits)

    @intrinsic
    def load(typing, address):
        def code(context, builder, signature, args):
            value = builder.load(builder.inttoptr(args[0], t.as_pointer()))
            return value if bits == 64 else builder.zext(value, _I64)

        return types.int64(types.int64), code

    @intrinsic
    def store(typing, address, value):
        def code(context, builder, signature, args):
            value = args[1] if bits == 64 else builder.trunc(args[1], t)
            builder.store(value, builder.inttoptr(args[0], t.as_pointer()))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), code

    return load, store


_get, _put = _memory(64)
_get32, _ = _memory(32)
_get16, _put16 = _memory(16)
_get8, _put8 = _memory(8)
_part = numba.njit(error_model="numpy")

# what the thread's record holds, and where in a row of ALLOC the shadow is
_STATE, _WARP, _BLOCK, _ALLOCS, _LAUNCH = (THREAD[n] for n in "shadow warp block allocs launch".split())
_FIRST, _WARPS, _ROWS, _MASKS = (LAUNCH[n] for n in "first warps shadow_rows masks".split())
_SIZE, _READS, _WRITES, _WRITTEN, _SHAPE, _ATOMICS, _EARLIER = (ALLOC[n] for n in "size read written stamp count line spare".split())
_KEY, _FLOOR, _PHASE, _ARRIVED, _BARRIER, _FELL = (STATE[n] for n in "key floor phase arrived barrier fell".split())
_WATCH, _KNOWN, _WEAK, _RELEASE, _ACQUIRED, _EVENTS, _MET, _SERIAL = (
    STATE[n] for n in "watch known weak release acquired events met serial".split()
)
_BYTES, _KINDS = (1 << KIND_UP) - 1, (1 << ALIGN_UP - KIND_UP) - 1


# ---- events ---------------------------------------------------------------------------------------------------------------


@_part
def _event(state, kind, site, other_site, me, other, offset, row, value, other_value, count):
    """Remembers that this happened, the first time in full."""
    key = (kind << 32 | other_site << 16 | site) + 1
    table, slot = _get(state + _EVENTS), (key * 0x9E3779B97F4A7C1 >> 20) & (EVENTS - 1)
    for _ in range(EVENTS):
        at = table + slot * (8 * EVENT_WORDS)
        known = _get(at)
        if known == key:
            _put(at + 8, _get(at + 8) + count)
            return
        if known == 0:
            _put(at, key)
            _put(at + 8, count)
            _put(at + 16, me)
            _put(at + 24, other)
            _put(at + 32, offset)
            _put(at + 40, row)
            _put(at + 48, value)
            _put(at + 56, other_value)
            return
        slot = (slot + 1) & (EVENTS - 1)


@_part
def _watched(state, row, offset, me, kind):
    """A finding's cell is accessed again, in the run that draws the picture."""
    watch = _get(state + _WATCH)
    for k in range(_get(watch)):
        at = watch + 24 + k * (8 * WATCH_WORDS)
        block = _get(at + 16)
        if _get(at) == row and _get(at + 8) == offset and (block == 0 or block == me >> BLOCK_UP):
            seen = _get(watch + 8)
            if seen < TOUCHES:
                to = _get(watch + 16) + 32 * seen
                _put(to, k)
                _put(to + 8, me)
                _put(to + 16, kind)
                _put(to + 24, _get(state + _PHASE))
                _put(watch + 8, seen + 1)


# ---- what is ordered --------------------------------------------------------------------------------------------------------

_UNORDERED, _WEAKLY, _ORDERED = 0, 1, 2


@_part
def _synchronised(release, acquired, other, me):
    """Whether the block of `other` made a fence after that access, and the block of `me` an atomic operation after that fence.

    Of more fences than are remembered the first that is left counts, without a question when."""
    at, tick, near = release + 8 * FENCES * (other >> BLOCK_UP), other >> TICK_UP & (1 << 14) - 1, (other ^ me) >> BLOCK_UP == 0
    for k in range(FENCES):  # the oldest first
        fence = _get(at + 8 * k)
        if fence and fence >> 16 & (1 << 14) - 1 > tick and (near or fence & 1):
            return acquired > fence >> 32 or (k == 0 and acquired > 0)
    return False


@_part
def _order(state, other, me):
    """What lies between the earlier access `other`, of another thread, and `me`, where no barrier of the block does."""
    release = _get(state + _RELEASE)
    if release and _synchronised(release, _get(_get(state + _ACQUIRED) + 8 * (me >> BLOCK_UP)), other, me):
        return _ORDERED
    if (other ^ me) >> BLOCK_UP != 0 or ((other ^ me) >> THREAD_UP & 1023) >> 5 != 0 or _get(state + _KNOWN) == 0:
        return _UNORDERED
    mine = (me >> THREAD_UP & 1023) << 5 | (other >> THREAD_UP & 31)
    tick, warp = other >> TICK_UP & (1 << 14) - 1, (me >> THREAD_UP & 1023) >> 5
    if max(_get(state + KNOWN_BY_ALL + 8 * warp), _get16(_get(state + _KNOWN) + 2 * mine)) > tick:
        return _ORDERED
    weak = max(_get(state + KNOWN_BY_ALL + 256 + 8 * warp), _get16(_get(state + _WEAK) + 2 * mine))
    return _WEAKLY if weak > tick else _UNORDERED


@_part
def _same_value(size, lane, other, me, mask, addresses, values):
    """Whether a store leaves a cell as it is: as another lane of this request leaves it, or as it was."""
    here = _get(addresses + 8 * lane)
    from_lane = other >> THREAD_UP & 31
    request = ((other ^ me) >> THREAD_UP & ~31) == 0  # all but the lane is equal: block, tick, site, warp
    at = here
    if request and from_lane < lane and mask >> from_lane & 1 and _get(addresses + 8 * from_lane) == here:
        at = values + size * from_lane
    same = True
    for k in range(size):
        same = same and _get8(at + k) == _get8(values + size * lane + k)
    return same


@_part
def _clash(state, kind, other, me, offset, row):
    """A hazard, unless something orders the two."""
    order = _order(state, other, me)
    if order != _ORDERED:
        kind += WEAK if order == _WEAKLY else 0
        apart = (other ^ me) >> BLOCK_UP != 0
        kind += APART * (2 if apart else 1 if ((other ^ me) >> THREAD_UP & 1023) >> 5 else 0)
        _event(state, kind, me >> SITE_UP & MOST_SITES - 1, other >> SITE_UP & MOST_SITES - 1, me, other, offset, row, 0, 0, 1)


@_part
def _live(word, me, low, shared):
    """Whether the access of a word was made by another thread, and not before the block's last barrier. In shared memory a block's
    words may still be there when the next one has begun."""
    if word == 0 or (word ^ me) >> THREAD_UP & 1023 | (word ^ me) >> BLOCK_UP == 0:
        return False
    return not shared if (word ^ me) >> BLOCK_UP != 0 else word >= low


# ---- accesses ---------------------------------------------------------------------------------------------------------------


@_part
def _note_reader(state, at, me, low, shared):
    """The two words of a cell's readers, or of its atomic operations: this one, and one before it that is far from it."""
    first = _get(at)
    if first == me:
        return
    if _live(first, me, low, shared):
        near = (first ^ me) >> BLOCK_UP == 0
        close = near and (first ^ me) >> THREAD_UP & 1023 < 32  # of one warp
        if not (close or near and not shared) or not _is_farther(state, _get(at + 8), me, low, shared, close):
            _put(at + 8, first)
    _put(at, me)


@_part
def _is_farther(state, second, me, low, shared, close):
    """Whether the second word's thread is farther from me than the first one's, which is of my block, or (close) of my warp.

    Of one warp, the thread that came first stays until what it did is known to me."""
    if not _live(second, me, low, shared):
        return False
    if (second ^ me) >> BLOCK_UP != 0:
        return True
    return close and ((second ^ me) >> THREAD_UP & 1023 >= 32 or _order(state, second, me) != _ORDERED)


@_part
def _reads(state, row, cell, me, low, shared, waiting):
    """One lane reads one cell."""
    writes, step = _get(row + _WRITES), _get(row + _SHAPE) & SHIFT_BITS
    other = _get(writes + 8 * cell) if writes else 0
    _find_uninitialized(state, row, cell, other, me, step, shared)
    if waiting:
        return
    for word in (other, _get(_get(row + _EARLIER) + 8 * cell) if writes else 0):
        if _live(word, me, low, shared):
            _clash(state, READ_AFTER_WRITE, word, me, cell << step, row)
    _meet_others(state, READ_AFTER_WRITE, _get(row + _ATOMICS), cell, me, low, step, row, shared)
    reads = _get(row + _READS)
    if reads:
        _note_reader(state, reads + 16 * cell, me, low, shared)


@_part
def _meet_others(state, kind, words, cell, me, low, step, row, shared):
    """Hazards with the last two accesses that are in `words`."""
    if words:
        first, second = _get(words + 16 * cell), _get(words + 16 * cell + 8)
        if _live(first, me, low, shared):
            _clash(state, kind, first, me, cell << step, row)
        if _live(second, me, low, shared):
            _clash(state, kind, second, me, cell << step, row)


@_part
def _find_uninitialized(state, row, cell, other, me, step, shared):
    """other: the cell's last plain write. An atomic operation writes, too."""
    written, atomics = _get(row + _WRITTEN), _get(row + _ATOMICS)
    update = _get(atomics + 16 * cell) if atomics else 0
    if shared:
        missing = (other ^ me) >> BLOCK_UP != 0 and (update ^ me) >> BLOCK_UP != 0
    else:
        missing = other == 0 and update == 0 and written != 0 and _get8(written + (cell << step)) == 0
    if missing:
        _event(state, UNINITIALIZED, me >> SITE_UP & MOST_SITES - 1, 0, me, 0, cell << step, row, 0, 0, 1)


@_part
def _writes(state, row, cell, me, low, shared, size, lane, mask, addresses, values):
    """One lane writes one cell."""
    writes, step = _get(row + _WRITES), _get(row + _SHAPE) & SHIFT_BITS
    other = _get(writes + 8 * cell)
    earlier = _get(row + _EARLIER) + 8 * cell
    for word in (other, _get(earlier)):
        if _live(word, me, low, shared):
            same = _same_value(size, lane, word, me, mask, addresses, values)
            _clash(state, SAME_VALUE if same else WRITE_AFTER_WRITE, word, me, cell << step, row)
    if _live(other, me, low, shared):
        _put(earlier, other)
    _meet_others(state, WRITE_AFTER_WRITE, _get(row + _ATOMICS), cell, me, low, step, row, shared)
    _meet_others(state, WRITE_AFTER_READ, _get(row + _READS), cell, me, low, step, row, shared)
    _put(writes + 8 * cell, me)


@_part
def _updates(state, row, cell, me, low, shared):
    """One lane's atomic operation on one cell: it reads what it changes."""
    step = _get(row + _SHAPE) & SHIFT_BITS
    other = _get(_get(row + _WRITES) + 8 * cell)
    _find_uninitialized(state, row, cell, other, me, step, shared)
    for word in (other, _get(_get(row + _EARLIER) + 8 * cell)):
        if _live(word, me, low, shared):
            _clash(state, WRITE_AFTER_WRITE, word, me, cell << step, row)
    _meet_others(state, WRITE_AFTER_READ, _get(row + _READS), cell, me, low, step, row, shared)
    _note_reader(state, _get(row + _ATOMICS) + 16 * cell, me, low, shared)


# The words of nearly all accesses are those of the block before its last barrier, or none. They are seen at a glance: between `oldest`
# and `low`, the lowest word of the block, or of any block in shared memory, and the lowest since the barrier; 0 apart.


def _touch(thread, row, site, what, mask, addresses, values):
    """One request, lane by lane. thread, row: the record and the ALLOC row; what: size | kind | alignment; addresses: int64 of each
    lane; values: what the lanes store, side by side."""
    state, size, kind, align = _get(thread + _STATE), what & _BYTES, what >> KIND_UP & _KINDS, what >> ALIGN_UP
    base, shape, warp, key = _get(row), _get(row + _SHAPE), _get(thread + _WARP), _get(state + _KEY)
    step, shared, acquired = shape & SHIFT_BITS, shape & SHARED_BIT, _get(state + _ACQUIRED)
    block = key << BLOCK_UP
    low, stem = block | _get(state + _FLOOR) << TICK_UP, block | _get(state + TICKS + 8 * warp) << TICK_UP | site << SITE_UP
    stem |= warp << 5 + THREAD_UP | (kind == ATOMIC)
    if acquired and kind >= ATOMIC:
        _put(acquired + 8 * key, _serial(state))
    if size == 1 << step and align == size and _get(state + _WATCH) == 0 and _get(row + _ATOMICS) == 0:
        oldest = 0 if shared else block
        if kind == LOAD:
            _load(state, row, stem, low, oldest, block, mask, addresses, base, step, shared)
            return
        if kind == STORE:
            _store(state, row, stem, low, oldest, mask, addresses, values, base, step, shared)
            return
    for lane in range(32):
        if mask >> lane & 1 == 0:
            continue
        offset, me = _get(addresses + 8 * lane) - base, stem | lane << THREAD_UP
        if offset & align - 1:
            _event(state, MISALIGNED, site, 0, me, 0, offset, row, align, 0, 1)
        for cell in range(offset >> step, (offset + size - 1 >> step) + 1):
            if _get(state + _WATCH):
                _watched(state, row, cell << step, me, kind)
            if kind in (LOAD, WAITING):
                _reads(state, row, cell, me, low, shared, kind == WAITING)
            elif kind == ATOMIC:
                _updates(state, row, cell, me, low, shared)
            else:
                _writes(state, row, cell, me, low, shared, size, lane, mask, addresses, values)


@_part
def _load(state, row, stem, low, oldest, block, mask, addresses, base, step, shared):
    """Lanes that load one whole cell each."""
    writes, reads, written, before = _get(row + _WRITES), _get(row + _READS), _get(row + _WRITTEN), -1
    for lane in range(32):
        if mask >> lane & 1 == 0:
            continue
        offset, me = _get(addresses + 8 * lane) - base, stem | lane << THREAD_UP
        cell, align = offset >> step, offset & (1 << step) - 1
        other = _get(writes + 8 * cell) if writes else 0
        plain = block <= other < low if shared else other == 0 and written == 0 or oldest <= other < low
        if plain and align == 0 and reads:
            # of lanes side by side at one place the first and the last are enough
            last = lane == 31 or mask >> lane + 1 & 1 == 0 or _get(addresses + 8 * lane + 8) - base != offset
            if before == offset and not last:
                continue
            before = offset
            first, second = _get(reads + 16 * cell), _get(reads + 16 * cell + 8)
            if first == 0 or oldest <= first < low:
                _put(reads + 16 * cell, me)
            elif not (shared and first >= low and second >= low and (first ^ second) >> THREAD_UP & 992):
                _note_reader(state, reads + 16 * cell, me, low, shared)
            # else two warps have read it since the barrier, and whoever writes it now clashes with one of them
        elif not plain or align:
            if align:
                _event(state, MISALIGNED, me >> SITE_UP & MOST_SITES - 1, 0, me, 0, offset, row, 1 << step, 0, 1)
            _reads(state, row, cell, me, low, shared, False)


@_part
def _store(state, row, stem, low, oldest, mask, addresses, values, base, step, shared):
    """Lanes that store one whole cell each."""
    writes, reads = _get(row + _WRITES), _get(row + _READS)
    for lane in range(32):
        if mask >> lane & 1 == 0:
            continue
        offset, me = _get(addresses + 8 * lane) - base, stem | lane << THREAD_UP
        cell, plain = offset >> step, offset & (1 << step) - 1 == 0
        other = _get(writes + 8 * cell)
        plain = plain and (other == 0 or oldest <= other < low)
        if plain and reads:
            first, second = _get(reads + 16 * cell), _get(reads + 16 * cell + 8)
            plain = (first == 0 or oldest <= first < low) and (second == 0 or oldest <= second < low)
        if plain:
            _put(writes + 8 * cell, me)
        else:
            if offset & (1 << step) - 1:
                _event(state, MISALIGNED, me >> SITE_UP & MOST_SITES - 1, 0, me, 0, offset, row, 1 << step, 0, 1)
            _writes(state, row, cell, me, low, shared, 1 << step, lane, mask, addresses, values)


# ---- order ------------------------------------------------------------------------------------------------------------------


def _begin(thread):
    """A block begins."""
    state = _get(thread + _STATE)
    _put(state + _KEY, _get(thread + _BLOCK) - _get(_get(thread + _LAUNCH) + _FIRST) + 1)
    _put(state + _FLOOR, 1)
    for at in (_PHASE, _ARRIVED, _BARRIER, _FELL):
        _put(state + at, 0)
    warps = _get(_get(thread + _LAUNCH) + _WARPS)
    for w in range(warps):
        _put(state + TICKS + 8 * w, 1)
    _forget(state, warps)


@_part
def _forget(state, warps):
    """What lanes know of each other."""
    if _get(state + _MET) == 0:
        return
    for w in range(warps):
        _put(state + KNOWN_BY_ALL + 8 * w, 0)
        _put(state + KNOWN_BY_ALL + 256 + 8 * w, 0)
    if _get(state + _MET) == 2:
        for matrix in (_get(state + _KNOWN), _get(state + _WEAK)):
            for k in range(warps * (KNOWN_BYTES // 8)):
                _put(matrix + 8 * k, 0)
    _put(state + _MET, 0)


@_part
def _renumber(thread, state):
    """The block's words as before everything from now on: its ticks begin anew."""
    allocs, key, launch = _get(thread + _ALLOCS), _get(state + _KEY), _get(thread + _LAUNCH)
    for k in range(_get(launch + _ROWS)):
        row = allocs + k * ALLOC_BYTES
        cells = (_get(row + _SIZE) >> (_get(row + _SHAPE) & SHIFT_BITS)) + 1
        for at, words in (
            (_get(row + _WRITES), cells),
            (_get(row + _READS), 2 * cells),
            (_get(row + _ATOMICS), 2 * cells),
            (_get(row + _EARLIER), cells),
        ):
            if at:
                for c in range(words):
                    word = _get(at + 8 * c)
                    if word >> BLOCK_UP == key:
                        _put(at + 8 * c, word & ~TICK_BITS)
    release = _get(state + _RELEASE)
    if release:
        for k in range(FENCES):
            at = release + 8 * (FENCES * key + k)
            fence = _get(at)
            _put(at, fence & ~(0xFFFF << 16) | (1 << 16 if fence else 0))
    _forget(state, _get(launch + _WARPS))


def _barrier(thread):
    """The block's threads have met, all that there are."""
    state = _get(thread + _STATE)
    warps = _get(_get(thread + _LAUNCH) + _WARPS)
    tick = 0
    for w in range(warps):
        tick = max(tick, _get(state + TICKS + 8 * w))
    if tick >= MOST_TICK:
        _renumber(thread, state)
        tick = 0
    for w in range(warps):
        _put(state + TICKS + 8 * w, tick + 1)
    _put(state + _FLOOR, tick + 1)
    _put(state + _PHASE, _get(state + _PHASE) + 1)
    fell, barrier = _get(state + _FELL), _get(state + _BARRIER)
    if fell and barrier:
        me = _get(state + _KEY) << BLOCK_UP
        _event(state, PASSED_BY, barrier - 1, 0, me, 0, 0, 0, _get(state + _ARRIVED), fell, 1)
    _put(state + _ARRIVED, 0)
    _put(state + _BARRIER, 0)


def _arrive(thread, barrier, mask):
    """Lanes wait at a barrier of the block."""
    state = _get(thread + _STATE)
    _put(state + _ARRIVED, _get(state + _ARRIVED) + _lanes(mask))
    _put(state + _BARRIER, barrier + 1)


def _fell_off(thread, mask):
    """Lanes that are at the kernel's end, not at a return before it."""
    state = _get(thread + _STATE)
    _put(state + _FELL, _get(state + _FELL) + _lanes(mask))


@_part
def _lanes(mask):
    count = 0
    for lane in range(32):
        count += mask >> lane & 1
    return count


@_part
def _advance(thread, state, warp):
    """The warp's next tick."""
    at = state + TICKS + 8 * warp
    tick = _get(at) + 1
    if tick >= MOST_TICK:
        _renumber(thread, state)
        for w in range(_get(_get(thread + _LAUNCH) + _WARPS)):
            _put(state + TICKS + 8 * w, 1)
        _put(state + _FLOOR, 1)
        tick = 2
    _put(at, tick)
    return tick


@_part
def _learn(matrix, lanes, tick):
    """These lanes of a warp now know what any of them knew, and what all of them did before the tick."""
    for other in range(32):
        most = tick if lanes >> other & 1 else 0
        for lane in range(32):
            if lanes >> lane & 1:
                most = max(most, _get16(matrix + 2 * (32 * lane + other)))
        for lane in range(32):
            if lanes >> lane & 1:
                _put16(matrix + 2 * (32 * lane + other), most)


def _meet(thread, lanes, strong):
    """Lanes of a warp met: strong: at a syncwarp(), which orders memory; else at a shuffle, vote or match, which does not."""
    state, warp = _get(thread + _STATE), _get(thread + _WARP)
    tick, by_all = _advance(thread, state, warp), state + KNOWN_BY_ALL + 8 * warp
    if lanes == _get32(_get(_get(thread + _LAUNCH) + _MASKS) + 4 * warp):  # the usual case
        if strong:
            _put(by_all, tick)
        _put(by_all + 256, tick)
        _put(state + _MET, max(1, _get(state + _MET)))
        return
    _put(state + _MET, 2)
    if strong:
        _learn(_get(state + _KNOWN) + KNOWN_BYTES * warp, lanes, tick)
    _learn(_get(state + _WEAK) + KNOWN_BYTES * warp, lanes, tick)


def _fence(thread, own):
    """threadfence(): what the block did before can be seen by whoever synchronises with it later; own: by its own threads only."""
    state = _get(thread + _STATE)
    at = _get(state + _RELEASE) + 8 * FENCES * _get(state + _KEY)
    tick, now = _advance(thread, state, _get(thread + _WARP)), _serial(state)
    for k in range(FENCES - 1):
        _put(at + 8 * k, _get(at + 8 * (k + 1)))
    _put(at + 8 * (FENCES - 1), now << 32 | tick << 16 | (own == 0))


@_part
def _serial(state):
    """The next number of the launch: what fences and atomic operations are put in order by."""
    at = _get(state + _SERIAL)
    _put(at, _get(at) + 1)
    return _get(at)


def _note(thread, number, mask, values):
    """Lanes did something that is not a memory access (Plan.notes). values: two int64 of each lane, first all the first."""
    if mask == 0:
        return
    state, lane = _get(thread + _STATE), 0
    while mask >> lane & 1 == 0:
        lane += 1
    me = _get(state + _KEY) << BLOCK_UP | _get(thread + _WARP) << 5 + THREAD_UP | lane << THREAD_UP
    _event(state, NOTE, number, 0, me, 0, 0, 0, _get(values + 8 * lane), _get(values + 256 + 8 * lane), _lanes(mask))


# name in the generated code -> function, number of its int64 parameters
_FUNCTIONS = {
    "simt_touch": (_touch, 7), "simt_begin": (_begin, 1), "simt_barrier": (_barrier, 1), "simt_arrive": (_arrive, 3),
    "simt_fell_off": (_fell_off, 2), "simt_meet": (_meet, 3), "simt_fence": (_fence, 2), "simt_note": (_note, 4),
}  # fmt: skip
DECLARATIONS = {name: f"declare void @{name}({', '.join(['i64'] * n)})" for name, (_, n) in _FUNCTIONS.items()}
_LOCK = threading.Lock()


def provide() -> None:
    """Compiles the checks, once, and gives the generated code their addresses."""
    with _LOCK:
        functions()


@cache
def functions() -> dict[str, Any]:
    """Name -> compiled function; `.ctypes` calls it."""
    compiled = {}
    for name, (function, parameters) in _FUNCTIONS.items():
        signature = types.void(*[types.int64] * parameters)
        compiled[name] = numba.cfunc(signature, nopython=True, cache=True, error_model="numpy")(function)
        llvm.add_symbol(name, compiled[name].address)
    return compiled
