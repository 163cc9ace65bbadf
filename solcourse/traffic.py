"""What a launch moves through L1, L2 and DRAM of one device: the traced requests replayed through its caches. Estimated, and labelled so.

Rules (sources: model.md sections 2.3 and 4 of the design notes; NVIDIA's developer forum for sectors and lines):
L1     per SM, 128-byte lines of four sectors, LRU, what occupancy leaves of the unified memory, empty at kernel start. Misses fetch
       sectors. Stores are written through: a line in L1 is updated, none is allocated. Atomics go straight to L2. Local memory alone
       is written back (recalled).
L2     sectored lines, LRU, written back with byte masks: a store waits for nothing, an incomplete sector that is evicted is merged
       with DRAM first. Where two partitions keep copies of what both sides read (A100, H100, B200), the capacity shrinks with the
       part of the lines that both sides touch, to one half.
DRAM   is read in pieces of `dram_fetch_bytes`: 64 on HBM parts, the neighbour sector comes along.
order  block i runs on SM i mod S, R blocks at a time, the next block when one ends. A warp runs on to the first load it has to wait
       for, and is back when its data is there; of those that are ready the youngest goes on (greedy-then-youngest, as measured by
       Huerta et al., MICRO 2025; recalled). A turn takes as long as its sectors on the way to L2 (one per clock), its tags, or its
       share of the other instructions. Barriers hold. So few warps move ahead where the caches are the limit, all where latency is.

Fewer traced blocks than the device runs at once stand for all: each cache shrinks to these blocks' share of it (data that nearly
all of them touch is counted once), and what they fetch for the first time is scaled to the grid, but not beyond the distinct bytes
that the launch touches plus what L2 cannot keep until its next use.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .errors import WorkError
from .hardware import Device
from .hardware import device as find_device
from .latency import schedule
from .occupancy import Occupancy
from .simt.records import LINE_BYTES, SECTOR_BYTES, EngineRun, Trace

CACHE_STATES = ("cold", "warm")
_COMMON = 0.9  # guess: a line that this part of the traced blocks touches is taken to be touched by all blocks
_ACTION = {
    "global_load": 0, "global_store": 1, "global_atomic": 2, "local_load": 3, "local_store": 4,
    "shared_load": 0, "shared_store": 0, "shared_atomic": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """Bytes and hits of one launch, whole grid.

    l1_hit_rate       sector hits / sectors of global and local loads. ncu's l1tex__t_sector_hit_rate also looks at stores
    l2_hit_rate       sector hits / sectors at L2; stores count as hits, as in ncu (lts__t_sector_hit_rate; recalled)
    *_by_site         the same for each site of the program; 0.0 where nothing was looked up
    levels_by_site    of the site's requests, the parts whose slowest sector came from (L1, L2, DRAM); a hit on a sector that is still
                      on its way counts where that comes from
    l1_miss_sectors   load sectors that L1 asked L2 for
    l2_sectors        sectors at L2: misses of L1, stores, atomics. ncu: lts__t_sectors. l2_bytes = 32 x that
    tag_wavefronts    passes through L1's tag stage
    dram_read_bytes   fetched from DRAM, merges of incomplete sectors included. ncu: dram__bytes_read
    dram_write_bytes  cold: all dirty data the launch makes, whenever it is written back; warm: what is written back while it runs
    dirty_left_bytes  dirty data still in L2 when the kernel ends. ncu's dram__bytes_write does not see it; the model counts it,
                      because whoever ran before (another kernel, or the flush between two timed launches) left as much
    traced_blocks     blocks that were replayed; exact: they are the whole grid
    """

    device: str
    cache: str
    l1_hit_rate: float
    l2_hit_rate: float
    l1_hit_by_site: tuple[float, ...]
    l2_hit_by_site: tuple[float, ...]
    levels_by_site: tuple[tuple[float, float, float], ...]
    l1_miss_sectors: int
    l2_sectors: int
    l2_bytes: int
    tag_wavefronts: int
    dram_read_bytes: int
    dram_write_bytes: int
    dirty_left_bytes: int
    traced_blocks: int
    exact: bool

    @property
    def dram_bytes(self) -> int:
        """dram_read_bytes + dram_write_bytes."""
        return self.dram_read_bytes + self.dram_write_bytes


@dataclass(frozen=True)
class _Prepared:
    """A trace indexed once for all devices (see cachesim.prepare), and its sums by site."""

    index: Any  # cachesim.Index
    actions: np.ndarray
    lines: int
    read_words: int
    written_words: int
    common_lines: int  # touched by nearly all traced blocks
    private_lines: float  # lines of one block besides these
    two_sided: float  # part of the lines that both even and odd blocks touch


_PREPARED: dict[int, tuple[weakref.ref[Trace], _Prepared]] = {}


def _popcount(words: np.ndarray) -> int:
    return int(_BITS[words.view(np.uint8)].sum()) if len(words) else 0


_BITS = np.array([bin(i).count("1") for i in range(256)], np.uint8)


def _prepare(run: EngineRun) -> _Prepared:
    known = _PREPARED.get(id(run.trace))
    if known and known[0]() is run.trace:
        return known[1]
    from . import cachesim  # here, because it compiles with numba

    actions = np.array([_ACTION[site.kind] for site in run.program.sites] or [0], np.int64)
    trace = run.trace
    index = cachesim.prepare(
        np.ascontiguousarray(trace.offsets, np.int64), np.ascontiguousarray(trace.words, np.uint64), run.warps_per_block, actions
    )
    sharers, sides = index.sharers, index.sides
    blocks = len(trace.blocks)
    common = sharers >= max(2.0, _COMMON * blocks)
    prepared = _Prepared(
        index=index,
        actions=actions,
        lines=len(sharers),
        read_words=_popcount(index.read),
        written_words=_popcount(index.written),
        common_lines=int(common.sum()),
        private_lines=float(sharers[~common].sum()) / max(1, blocks),
        two_sided=float((sides == 3).mean()) if len(sides) else 0.0,
    )
    key = id(trace)
    _PREPARED[key] = weakref.ref(trace), prepared
    weakref.finalize(trace, _PREPARED.pop, key, None)
    return prepared


@dataclass(frozen=True)
class _Plan:
    """How many SMs and blocks the replay has, and how much cache that leaves them. Lines."""

    sms: int
    resident: int
    l1_lines: int
    l2_lines: int
    l2_lines_full: int  # of the whole device, for the data that this launch shares as it does


def _share(p: _Prepared, simulated: float, real: float) -> float:
    """The part of a cache that `simulated` of `real` concurrent blocks own: their footprint / the footprint of all."""
    if simulated >= real or not p.lines:
        return 1.0
    return (simulated * p.private_lines + p.common_lines) / (real * p.private_lines + p.common_lines)


def _plan(run: EngineRun, p: _Prepared, gpu: Device, occupancy: Occupancy) -> _Plan:
    traced = len(run.trace.blocks)
    per_sm = min(occupancy.blocks_per_sm, -(-run.blocks // gpu.sms))
    sms = max(1, min(gpu.sms, traced))
    resident = max(1, min(per_sm, traced // sms))
    l1 = occupancy.l1_bytes / LINE_BYTES * _share(p, resident, per_sm)
    duplication = p.two_sided if gpu.l2_partitions == 2 else 0.0
    full = gpu.l2_bytes / LINE_BYTES / (1.0 + duplication)
    at_once = min(run.blocks, gpu.sms * per_sm)
    l2 = full * _share(p, min(traced, at_once), at_once)
    return _Plan(sms, resident, max(1, int(l1)), max(1, int(l2)), max(1, int(full)))


def _ratio(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole else 0.0


def traffic(run: EngineRun, device: Device | str, occupancy: Occupancy, cache: str = "cold") -> Traffic:
    """Replay the trace of `run` on `device`. cache: "cold" empties L2 first (ncu's default), "warm" repeats the same launch.

    Raises: WorkError for another word; UnknownName for an unknown device.
    """
    if cache not in CACHE_STATES:
        raise WorkError(f"cache={cache!r}: expected one of {', '.join(map(repr, CACHE_STATES))}.")
    gpu = find_device(device)
    p = _prepare(run)
    plan = _plan(run, p, gpu, occupancy)
    table, totals = _replayed(run, p, plan, gpu, cache) if len(run.trace.blocks) else _untraced(run)
    l2_bytes = plan.l2_lines_full * float(LINE_BYTES)
    return _assemble(run, gpu, p, l2_bytes, cache, table.astype(np.float64), totals.astype(np.float64))


class _Dram(NamedTuple):
    """Bytes of the whole launch (see Traffic). first: the first-touch part of read, after what an earlier window had brought."""

    read: float
    write: float
    left: float
    first: float


def _scaled(run: EngineRun, table: np.ndarray) -> tuple[np.ndarray, float]:
    """The table scaled to the grid, site by site (the engine knows each site's sectors), and the plain ratio of blocks."""
    from .cachesim import SECTORS

    blocks = _ratio(run.blocks, len(run.trace.blocks))
    scale = np.full(len(table), blocks)
    for i, counted in enumerate(run.site_counts):
        if table[i, SECTORS]:
            scale[i] = counted.sectors / table[i, SECTORS]
    return table * scale[:, None], blocks


def _reached(compulsory_bytes: int, window_words: int, blocks: float) -> float:
    """Distinct bytes of the launch / the window's distinct bytes scaled to the grid: below 1 where windows share data."""
    scaled = 4.0 * window_words * blocks
    return min(1.0, compulsory_bytes / scaled) if scaled else 1.0


def _exact_dram(fetched: float, evicted: float, left: float, cache: str) -> _Dram:
    if cache == "warm":  # of the second launch: it writes back what the first had left
        return _Dram(fetched, evicted, left, fetched)
    return _Dram(fetched, evicted + left, left, fetched)


def _window_dram(
    run: EngineRun, p: _Prepared, first: float, again: float, written: float, rewritten: float, blocks: float, l2: float, cache: str
) -> _Dram:
    """first, written: bytes touched for the first time, window by window; again, rewritten: what a window moved repeatedly."""
    distinct_read = first * _reached(run.compulsory_read_bytes, p.read_words, blocks)
    distinct_written = written * _reached(run.compulsory_write_bytes, p.written_words, blocks)
    footprint = distinct_read + distinct_written
    if cache == "warm" and footprint <= l2:  # the launch before left everything in L2
        return _Dram(0.0, 0.0, distinct_written, 0.0)
    lost = max(0.0, 1.0 - _ratio(l2, footprint))  # guess: the chance that L2 no longer has what an earlier window touched
    first = distinct_read + (first - distinct_read) * lost
    read = first + again
    write = distinct_written + (written - distinct_written) * lost + rewritten
    left = min(write, l2 * _ratio(distinct_written, footprint))
    return _Dram(read, write, left, first)


def _dram(run: EngineRun, p: _Prepared, full: np.ndarray, blocks: float, totals: np.ndarray, writes: float, l2: float, cache: str) -> _Dram:
    from . import cachesim as sim

    first, again = full[:, sim.FETCH_FIRST].sum(), full[:, sim.FETCH_AGAIN].sum()
    totals = totals * writes
    merged, left = totals[sim.MERGE_READS], totals[sim.LEFT_FIRST] + totals[sim.LEFT_AGAIN]
    if len(run.trace.blocks) == run.blocks:
        return _exact_dram(first + again + merged, totals[sim.WRITEBACK_FIRST] + totals[sim.WRITEBACK_AGAIN], left, cache)
    written = totals[sim.WRITEBACK_FIRST] + totals[sim.LEFT_FIRST]
    rewritten = totals[sim.WRITEBACK_AGAIN] + totals[sim.LEFT_AGAIN]
    return _window_dram(run, p, first, again + merged, written, rewritten, blocks, l2, cache)


def _replayed(run: EngineRun, p: _Prepared, plan: _Plan, gpu: Device, cache: str) -> tuple[np.ndarray, np.ndarray]:
    from . import cachesim as sim

    stall = np.array(schedule(run.program).stall_weight or (0.0,), np.float64)
    latency = (round(gpu.lat_l1), round(gpu.lat_l2), round(gpu.lat_dram))
    issue = max(1, round(_ratio(run.counts.warp_instructions, gpu.partitions * _traced_requests(run))))
    passes = 2 if cache == "warm" and len(run.trace.blocks) == run.blocks else 1
    machine = sim.Machine(plan.sms, plan.resident, plan.l1_lines, plan.l2_lines, gpu.dram_fetch_bytes, latency, issue, passes)
    words = np.ascontiguousarray(run.trace.words, np.uint64)
    return sim.replay(words, p.index, run.warps_per_block, p.actions, stall, machine)


def _untraced(run: EngineRun) -> tuple[np.ndarray, np.ndarray]:
    """The table of a launch whose blocks are too large for the Trace: no hits in L1, and each distinct byte from DRAM once (guess)."""
    from . import cachesim as sim

    table, totals = np.zeros((max(1, len(run.site_counts)), sim.N_SITE)), np.zeros(sim.N_TOTAL)
    asked = sum(c.sectors for s, c in zip(run.program.sites, run.site_counts, strict=True) if s.kind == "global_load")
    far = min(1.0, _ratio(run.compulsory_read_bytes, SECTOR_BYTES * asked))
    for i, (site, counted) in enumerate(zip(run.program.sites, run.site_counts, strict=True)):
        if not site.kind.startswith("global"):
            continue
        loads = site.kind == "global_load"
        first = counted.sectors * far if loads else 0.0
        table[i, sim.REQUESTS], table[i, sim.SECTORS], table[i, sim.L2_LOOKUPS] = counted.requests, counted.sectors, counted.sectors
        table[i, sim.L2_HITS], table[i, sim.FETCH_FIRST] = counted.sectors - first, SECTOR_BYTES * first
        table[i, sim.TAG_WAVEFRONTS] = counted.requests
        table[i, sim.AT_L2], table[i, sim.AT_DRAM] = counted.requests * (1 - far), counted.requests * far
    totals[sim.LEFT_FIRST] = run.compulsory_write_bytes
    return table, totals


def warm_up() -> None:
    """Compile the replay now (seconds on a fresh installation, nothing afterwards), so that the first prediction does not have to."""
    from . import cachesim as sim

    words = np.array([1 << 63 | 1, 0xFF], np.uint64)  # one request of one warp: one sector of line 0
    index = sim.prepare(np.array([0, 2], np.int64), words, 1, np.zeros(1, np.int64))
    sim.replay(words, index, 1, np.zeros(1, np.int64), np.ones(1), sim.Machine(1, 1, 1, 1, 32, (1, 2, 3), 1, 1))


def _traced_requests(run: EngineRun) -> int:
    return sum(c.requests for s, c in zip(run.program.sites, run.site_counts, strict=True) if not s.kind.startswith("shared"))


def _assemble(run: EngineRun, gpu: Device, p: _Prepared, l2: float, cache: str, table: np.ndarray, totals: np.ndarray) -> Traffic:
    """Add up the replayed table, scaled to the grid. l2: bytes that the launch can use of the device's L2."""
    from . import cachesim as sim

    full, blocks = _scaled(run, table)
    kinds = [site.kind for site in run.program.sites] or [""]
    loads = np.isin(kinds, ("global_load", "local_load"))
    writers = np.isin(kinds, ("global_store", "global_atomic"))
    writes = _ratio(full[writers, sim.SECTORS].sum(), table[writers, sim.SECTORS].sum()) or blocks
    dram = _dram(run, p, full, blocks, totals, writes, l2, cache)
    # the part of each site's DRAM fetches that an earlier window had brought into L2 after all
    fetched = full[:, sim.FETCH_FIRST] + full[:, sim.FETCH_AGAIN]
    whole = len(run.trace.blocks) == run.blocks
    spared = 0.0 if whole else 1.0 - _ratio(dram.first, full[:, sim.FETCH_FIRST].sum())
    all_first = _ratio(full[:, sim.FETCH_FIRST].sum(), fetched.sum())  # for sites that wait only for what others have fetched
    recovered = spared * np.where(fetched > 0, full[:, sim.FETCH_FIRST] / np.maximum(fetched, 1e-300), all_first)
    lookups = full[:, sim.L2_LOOKUPS]
    l2_hits = lookups - (lookups - full[:, sim.L2_HITS]) * (1.0 - recovered)
    l1_hits, sectors = full[:, sim.L1_HITS], full[:, sim.SECTORS]
    waits = full[:, sim.AT_L1 : sim.AT_DRAM + 1].copy()
    waits[:, 1] += waits[:, 2] * recovered
    waits[:, 2] *= 1.0 - recovered
    waits /= np.maximum(waits.sum(axis=1, keepdims=True), 1e-300)
    count = len(run.program.sites)
    return Traffic(
        device=gpu.name,
        cache=cache,
        l1_hit_rate=_ratio(l1_hits[loads].sum(), sectors[loads].sum()),
        l2_hit_rate=_ratio(l2_hits.sum(), lookups.sum()),
        l1_hit_by_site=tuple(_ratio(l1_hits[i], sectors[i]) for i in range(count)),
        l2_hit_by_site=tuple(_ratio(l2_hits[i], lookups[i]) for i in range(count)),
        levels_by_site=tuple((float(a), float(b), float(c)) for a, b, c in waits[:count]),
        l1_miss_sectors=round(sectors[loads].sum() - l1_hits[loads].sum()),
        l2_sectors=round(lookups.sum()),
        l2_bytes=SECTOR_BYTES * round(lookups.sum()),
        tag_wavefronts=round(full[:, sim.TAG_WAVEFRONTS].sum()),
        dram_read_bytes=round(dram.read),
        dram_write_bytes=round(dram.write),
        dirty_left_bytes=round(dram.left),
        traced_blocks=len(run.trace.blocks),
        exact=whole,
    )
