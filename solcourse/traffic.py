"""What a launch moves through L1, L2 and DRAM of one device: the traced requests replayed through its caches. Estimated, and labelled so.

Rules (sources: model.md sections 2.3 and 4 of the design notes; NVIDIA's developer forum for sectors and lines):
L1     per SM, 128-byte lines of four sectors, LRU, what occupancy leaves of the unified memory, empty at kernel start. Misses fetch
       sectors. A line takes its place when its data arrives, not when it is asked for ("streaming", as Accel-Sim models Volta's L1:
       configs/tested-cfgs/SM7_QV100, policy s), so what is under way pushes nothing out. Stores are written through: no line is
       allocated. Atomics go straight to L2. Local memory alone is written back (recalled).
L2     sectored lines, LRU, written back with byte masks: a store waits for nothing, an incomplete sector that is evicted is merged
       with DRAM first. Where two partitions keep copies of what both sides read (A100, H100, B200), the capacity shrinks with the
       part of the lines that both sides touch, to one half.
DRAM   is read in pieces of `dram_fetch_bytes`: 64 on HBM parts, the neighbour sector comes along.
order  block i runs on SM i mod S, R blocks at a time, the next block when one ends. A warp runs on to the first load it has to wait
       for, and is back when its data is there; of those that are ready the youngest goes on (greedy-then-youngest, as measured by
       Huerta et al., MICRO 2025; recalled). A turn takes as long as its sectors on the way to L2 (one per clock), its tags, or its
       share of the other instructions. Barriers hold. So few warps move ahead where the caches are the limit, all where latency is.

What is replayed is a window: the first blocks of the Trace, the more the longer the launch itself takes. Where even a few blocks are too
long, each warp is cut short after the same part of its requests. Fewer blocks than the device runs at once stand for all: each cache
shrinks to these blocks' share of it (data that nearly all of them touch is counted once, and all together touch no more than the arrays
hold), and what they fetch for the first time is scaled to the grid, but not beyond the distinct bytes that the launch touches plus what L2
cannot keep until its next use.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .errors import WorkError
from .hardware import Device
from .hardware import device as find_device
from .latency import schedule
from .occupancy import Occupancy
from .simt.records import LINE_BYTES, SECTOR_BYTES, EngineRun, Trace

CACHE_STATES = ("cold", "warm")
_LEAST_WORDS, _MOST_WORDS = 1 << 16, 1 << 19  # of the Trace, replayed; a word costs 50-100 ns
_INSTRUCTIONS_PER_WORD, _LINES_PER_WORD = 256, 16  # warp instructions and touched lines of the launch for each word replayed
_COMMON = 0.9  # guess: a line that this part of the traced blocks touches is taken to be touched by all blocks
_ACTION = {
    "global_load": 0, "global_store": 1, "global_atomic": 2, "local_load": 3, "local_store": 4,
    "shared_load": 0, "shared_store": 0, "shared_atomic": 0, "constant_load": 0,
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
    partial_store_sectors  of the sectors that stores send to L2, those that are not written whole
    tag_wavefronts    passes through L1's tag stage
    dram_read_bytes   fetched from DRAM, merges of incomplete sectors included. ncu: dram__bytes_read
    dram_write_bytes  cold: all dirty data the launch makes, whenever it is written back; warm: what is written back while it runs
    dirty_left_bytes  dirty data still in L2 when the kernel ends. ncu's dram__bytes_write does not see it; the model counts it,
                      because whoever ran before (another kernel, or the flush between two timed launches) left as much
    traced_blocks     blocks that were replayed, whole or cut short; exact: they are the whole grid
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
    partial_store_sectors: int = 0

    @property
    def dram_bytes(self) -> int:
        """dram_read_bytes + dram_write_bytes."""
        return self.dram_read_bytes + self.dram_write_bytes


class Resident(str):
    """A state of L2 between "cold" and "warm": what the launches before this one left in it. Says itself how warm it is.

    read      part of the bytes that the launch reads first which are still there
    rewritten part of the bytes that it writes which are there and not yet written back: they go to DRAM once, not twice
    """

    read: float
    rewritten: float

    def __new__(cls, read: float, rewritten: float) -> Resident:
        made = super().__new__(cls, f"{100 * read:.0f} % warm")
        made.read, made.rewritten = read, rewritten
        return made

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]
        return self.read, self.rewritten


@dataclass(frozen=True)
class _Prepared:
    """A window of a trace, indexed once for all devices (see cache_trace.window), its sums, and what was replayed of it."""

    window: Any  # cache_trace.Window
    actions: np.ndarray
    stall: np.ndarray
    lines: int
    read_words: int
    written_words: int
    common_lines: int  # touched by nearly all blocks
    private_lines: float  # lines of one block besides these
    two_sided: float  # part of the lines that both even and odd blocks touch
    replays: dict[Any, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)  # by cachesim.Machine


_PREPARED: dict[int, tuple[weakref.ref[Trace], _Prepared]] = {}


def _popcount(words: np.ndarray) -> int:
    return int(_BITS[words.view(np.uint8)].sum()) if len(words) else 0


_BITS = np.array([bin(i).count("1") for i in range(256)], np.uint8)


def _budget(run: EngineRun) -> int:
    """Words of the trace to be replayed: a part of what running the launch takes, however large it is."""
    executed = (run.sampled_blocks or run.blocks) / max(1, run.blocks)
    lines = sum(
        max(c.requests, c.sectors // 4)
        for s, c in zip(run.program.sites, run.site_counts, strict=True)
        if not s.kind.startswith(("shared", "constant"))
    )
    words = executed * (run.counts.warp_instructions / _INSTRUCTIONS_PER_WORD + lines / _LINES_PER_WORD)
    return round(min(max(words, _LEAST_WORDS), _MOST_WORDS))


def _prepare(run: EngineRun) -> _Prepared:
    known = _PREPARED.get(id(run.trace))
    if known and known[0]() is run.trace:
        return known[1]
    from . import cache_trace  # here, because it compiles with numba

    actions = np.array([_ACTION[site.kind] for site in run.program.sites] or [0], np.int64)
    trace, budget = run.trace, _budget(run)
    head = trace.head(budget, cache_trace.FEWEST) if hasattr(trace, "head") else trace  # one that is not put together yet
    offsets, words = np.ascontiguousarray(head.offsets, np.int64), np.ascontiguousarray(head.words, np.uint64)
    window = cache_trace.window(offsets, words, run.warps_per_block, actions, budget)
    sharers, sides = window.sharers, window.sides
    common = sharers >= max(2.0, _COMMON * window.blocks)
    prepared = _Prepared(
        window=window,
        actions=actions,
        stall=np.array(schedule(run.program).stall_weight or (0.0,), np.float64),
        lines=len(sharers),
        read_words=_popcount(window.read),
        written_words=_popcount(window.written),
        common_lines=int(common.sum()),
        private_lines=float(sharers[~common].sum()) / max(1, window.blocks),
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


def _share(p: _Prepared, simulated: float, real: float, most: float) -> float:
    """The part of a cache that `simulated` of `real` concurrent blocks own: their footprint / the footprint of all.

    most: lines that there are to be touched. Blocks that reach into the same arrays at random have these between them, however many."""
    if simulated >= real or not p.lines:
        return 1.0
    footprint = simulated * p.private_lines + p.common_lines
    apart = footprint / (real * p.private_lines + p.common_lines)
    return min(1.0, max(apart, min(footprint, p.lines) / most))


def _has_local(run: EngineRun) -> bool:
    return any(site.kind.startswith("local") for site in run.program.sites)


def _most_lines(run: EngineRun) -> float:
    """Lines of all arrays that the launch touches; no end where each thread has memory of its own."""
    if run.arrays is None or _has_local(run):
        return math.inf
    return max(1.0, run.arrays.touched / LINE_BYTES)


def _plan(run: EngineRun, p: _Prepared, gpu: Device, occupancy: Occupancy) -> _Plan:
    traced, most = p.window.blocks, _most_lines(run)
    per_sm = min(occupancy.blocks_per_sm, -(-run.blocks // gpu.sms))
    sms = max(1, min(gpu.sms, traced))
    resident = max(1, min(per_sm, traced // sms))
    # where loads go past L1, the line that they have just asked for is still on its way: the smallest cache that the replay knows
    l1 = occupancy.l1_bytes / LINE_BYTES * _share(p, resident, per_sm, most) if gpu.l1_caches_global else 1.0
    duplication = p.two_sided if gpu.l2_partitions == 2 else 0.0
    full = gpu.l2_bytes / LINE_BYTES / (1.0 + duplication)
    at_once = min(run.blocks, gpu.sms * per_sm)
    l2 = full * _share(p, min(traced, at_once), at_once, most)
    return _Plan(sms, resident, max(1, int(l1)), max(1, int(l2)), max(1, int(full)))


def _ratio(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole else 0.0


def traffic(run: EngineRun, device: Device | str, occupancy: Occupancy, cache: str = "cold") -> Traffic:
    """Replay the trace of `run` on `device`. cache: "cold" empties L2 first (ncu's default), "warm" repeats the same launch; or Resident.

    Raises: WorkError for another word; UnknownName for an unknown device.
    """
    return traffics(run, [(device, occupancy)], cache)[0]


def traffics(run: EngineRun, places: Iterable[tuple[Device | str, Occupancy]], cache: str = "cold") -> tuple[Traffic, ...]:
    """`traffic` on several devices: what they share is done once, the rest on all cores. What was replayed once for a run is kept
    with it, so asking for one of them again costs nothing.

    Raises: as traffic.
    """
    if cache not in CACHE_STATES and not isinstance(cache, Resident):
        raise WorkError(f"cache={cache!r}: expected one of {', '.join(map(repr, CACHE_STATES))}.")
    gpus = [(find_device(device), occupancy) for device, occupancy in places]
    p = _prepare(run)
    plans = [_plan(run, p, gpu, occupancy) for gpu, occupancy in gpus]
    machines = [_machine(run, p, plan, gpu, cache) for plan, (gpu, _) in zip(plans, gpus, strict=True)]
    _replay(p, machines)
    return tuple(
        _assemble(run, gpu, p, plan.l2_lines_full * float(LINE_BYTES), cache, *p.replays[machine])
        for plan, machine, (gpu, _) in zip(plans, machines, gpus, strict=True)
    )


def _machine(run: EngineRun, p: _Prepared, plan: _Plan, gpu: Device, cache: str) -> Any:
    from . import cachesim as sim

    issue = max(1, round(_ratio(run.counts.warp_instructions, gpu.partitions * _requests(run))))
    latency = (round(gpu.lat_l1), round(gpu.lat_l2), round(gpu.lat_dram))
    passes = 2 if cache == "warm" and _whole(run, p) else 1
    lines = max(1, p.lines)  # a cache that holds them all is as good as a larger one
    return sim.Machine(
        plan.sms, plan.resident, min(plan.l1_lines, lines), min(plan.l2_lines, lines), gpu.dram_fetch_bytes, *latency, issue, passes
    )


def _replay(p: _Prepared, machines: Iterable[Any]) -> None:
    """Fill p.replays. The compiled replay runs without Python's lock, so threads use all cores; each result is the same on any of them."""
    from . import cachesim as sim

    todo = [machine for machine in dict.fromkeys(machines) if machine not in p.replays]

    def one(machine: Any) -> tuple[np.ndarray, np.ndarray]:
        return sim.replay(p.window, p.actions, p.stall, machine)

    if len(todo) > 1 and not p.window.streams:
        with ThreadPoolExecutor(min(len(todo), os.cpu_count() or 1)) as pool:
            p.replays.update(zip(todo, pool.map(one, todo), strict=True))
    else:
        p.replays.update((machine, one(machine)) for machine in todo)


def _whole(run: EngineRun, p: _Prepared) -> bool:
    """Whether the window is the launch."""
    return p.window.blocks == run.blocks and p.window.part == 1.0


class _Dram(NamedTuple):
    """Bytes of the whole launch (see Traffic). first: the first-touch part of read, after what an earlier window had brought;
    distinct_written: of write, what is counted once for each byte."""

    read: float
    write: float
    left: float
    first: float
    distinct_written: float


class _Scaled(NamedTuple):
    """The replayed table scaled to the grid, site by site: the engine knows each site's sectors.

    table     (sites, N_SITE);  requests, sectors, tags, partial (sites,): the same for what no cache changes
    blocks    the launch / the window, by requests;  writes: by sectors written
    unseen    bytes that sites outside the window write
    """

    table: np.ndarray
    requests: np.ndarray
    sectors: np.ndarray
    tags: np.ndarray
    partial: np.ndarray
    blocks: float
    writes: float
    unseen: float


def _scaled(run: EngineRun, p: _Prepared, table: np.ndarray) -> _Scaled:
    from . import cache_trace as trace

    static = p.window.requests.by_site.astype(np.float64)
    blocks = _ratio(run.blocks, p.window.blocks * p.window.part)
    scale = np.full(len(table), blocks)
    full = table.astype(np.float64)
    kinds = [site.kind for site in run.program.sites]
    unseen, written = 0.0, np.array([kind in ("global_store", "global_atomic") for kind in kinds] or [False])
    loads = np.array([kind == "global_load" for kind in kinds] or [False])
    asked = static[loads, trace.SITE_SECTORS].sum()
    typical = full[loads].sum(axis=0) / max(1.0, asked)  # a load, per sector
    for i, counted in enumerate(run.site_counts):
        if static[i, trace.SITE_SECTORS]:
            scale[i] = counted.sectors / static[i, trace.SITE_SECTORS]
        elif counted.sectors and kinds[i].startswith("global"):  # cut off (guess): a load is like the others, what is written is new
            scale[i] = 1.0
            static[i] = counted.requests, counted.sectors, counted.requests, 0.0, 0.0
            full[i] = counted.sectors * typical if asked and loads[i] else _once(kinds[i], counted.requests, counted.sectors)
            unseen += SECTOR_BYTES * counted.sectors * written[i]
    full *= scale[:, None]
    static *= scale[:, None]
    seen = static[written, trace.SITE_SECTORS].sum() - unseen / SECTOR_BYTES
    writes = _ratio(seen, p.window.requests.by_site[written, trace.SITE_SECTORS].sum()) or blocks
    requests, sectors, tags, partial, _ = static.T
    return _Scaled(full, requests, sectors, tags, partial, blocks, writes, unseen)


def _once(kind: str, requests: float, sectors: float) -> np.ndarray:
    """A row of the table for a site that touches each of its sectors for the first time."""
    from . import cachesim as sim

    row = np.zeros(sim.N_SITE)
    row[sim.L2_LOOKUPS] = sectors
    if kind == "global_store":
        row[sim.L2_HITS] = sectors
    else:
        row[sim.FETCH_FIRST], row[sim.AT_DRAM] = SECTOR_BYTES * sectors, requests
    return row


def _reached(compulsory_bytes: float, window_words: int, blocks: float) -> float:
    """Distinct bytes of the launch / the window's distinct bytes scaled to the grid: below 1 where windows share data."""
    scaled = 4.0 * window_words * blocks
    return min(1.0, compulsory_bytes / scaled) if scaled else 1.0


def _exact_dram(fetched: float, evicted: float, left: float, cache: str) -> _Dram:
    if cache == "warm":  # of the second launch: it writes back what the first had left
        return _Dram(fetched, evicted, left, fetched, left)
    return _Dram(fetched, evicted + left, left, fetched, evicted + left)


def _window_dram(
    run: EngineRun, p: _Prepared, full: _Scaled, first: float, again: float, written: float, rewritten: float, l2: float, cache: str
) -> _Dram:
    """first, written: bytes touched for the first time, window by window; again, rewritten: what a window moved repeatedly."""
    distinct_read = first * _reached(run.compulsory_read_bytes, p.read_words, full.blocks)
    distinct_written = written * _reached(run.compulsory_write_bytes, p.written_words, full.blocks)
    if run.arrays is not None and not _has_local(run):  # windows that touch different words of the same sectors
        distinct_read, distinct_written = min(distinct_read, run.arrays.read), min(distinct_written, run.arrays.written)
    beyond = min(full.unseen, max(0.0, run.compulsory_write_bytes - distinct_written))
    distinct_written, written = distinct_written + beyond, written + beyond
    footprint = distinct_read + distinct_written
    if cache == "warm" and footprint <= l2:  # the launch before left everything in L2
        return _Dram(0.0, 0.0, distinct_written, 0.0, 0.0)
    lost = max(0.0, 1.0 - _ratio(l2, footprint))  # guess: the chance that L2 no longer has what an earlier window touched
    first = distinct_read + (first - distinct_read) * lost
    read = first + again
    write = distinct_written + (written - distinct_written) * lost + rewritten
    left = min(write, l2 * _ratio(distinct_written, footprint))
    return _Dram(read, write, left, first, distinct_written)


def _dram(run: EngineRun, p: _Prepared, full: _Scaled, totals: np.ndarray, l2: float, cache: str) -> _Dram:
    from . import cachesim as sim

    first, again = full.table[:, sim.FETCH_FIRST].sum(), full.table[:, sim.FETCH_AGAIN].sum()
    totals = totals * full.writes
    merged, left = totals[sim.MERGE_READS], totals[sim.LEFT_FIRST] + totals[sim.LEFT_AGAIN]
    if _whole(run, p):
        made = _exact_dram(first + again + merged, totals[sim.WRITEBACK_FIRST] + totals[sim.WRITEBACK_AGAIN], left, cache)
        made = made._replace(first=first)
    else:
        written = totals[sim.WRITEBACK_FIRST] + totals[sim.LEFT_FIRST]
        rewritten = totals[sim.WRITEBACK_AGAIN] + totals[sim.LEFT_AGAIN]
        made = _window_dram(run, p, full, first, again + merged, written, rewritten, l2, cache)
    if isinstance(cache, Resident):
        found = made.first * cache.read
        made = made._replace(read=made.read - found, first=made.first - found, write=made.write - made.distinct_written * cache.rewritten)
    return made


def _untraced(run: EngineRun, full: _Scaled) -> _Scaled:
    """For a launch whose blocks are too large for the Trace: no hits in L1, and each distinct byte from DRAM once (guess)."""
    from . import cachesim as sim

    asked = sum(c.sectors for s, c in zip(run.program.sites, run.site_counts, strict=True) if s.kind == "global_load")
    near = 1.0 - min(1.0, _ratio(run.compulsory_read_bytes, SECTOR_BYTES * asked))
    table = full.table
    table[:, sim.L2_HITS] += table[:, sim.FETCH_FIRST] / SECTOR_BYTES * near
    table[:, sim.AT_L2] += table[:, sim.AT_DRAM] * near
    table[:, [sim.FETCH_FIRST, sim.AT_DRAM]] *= 1.0 - near
    return full


def warm_up() -> None:
    """Compile the replay now (seconds on a fresh installation, nothing afterwards), so that the first prediction does not have to."""
    from . import cache_trace
    from . import cachesim as sim

    words = np.array([1 << 63 | 1, 0xFF, 1 << 63 | 1, 0xFF], np.uint64)  # two requests of one warp: one sector of line 0
    window = cache_trace.window(np.array([0, 4], np.int64), words, 1, np.zeros(1, np.int64), 4)
    sim.replay(window, np.zeros(1, np.int64), np.ones(1), sim.Machine(1, 1, 1, 1, 32, 1, 2, 3, 1, 1))


def _requests(run: EngineRun) -> int:
    return sum(c.requests for s, c in zip(run.program.sites, run.site_counts, strict=True) if not s.kind.startswith(("shared", "constant")))


def _assemble(run: EngineRun, gpu: Device, p: _Prepared, l2: float, cache: str, table: np.ndarray, totals: np.ndarray) -> Traffic:
    """Add up the replayed table, scaled to the grid. l2: bytes that the launch can use of the device's L2."""
    from . import cachesim as sim

    full = _scaled(run, p, table)
    if not p.window.blocks:
        full = _untraced(run, full)
    kinds = [site.kind for site in run.program.sites] or [""]
    loads = np.isin(kinds, ("global_load", "local_load"))
    dram = _dram(run, p, full, totals.astype(np.float64), l2, cache)
    # the part of each site's DRAM fetches that L2 had after all, from an earlier window or an earlier launch
    moved = full.table
    fetched = moved[:, sim.FETCH_FIRST] + moved[:, sim.FETCH_AGAIN]
    spared = 1.0 - _ratio(dram.first, moved[:, sim.FETCH_FIRST].sum()) if moved[:, sim.FETCH_FIRST].any() else 0.0
    all_first = _ratio(moved[:, sim.FETCH_FIRST].sum(), fetched.sum())  # for sites that wait only for what others have fetched
    recovered = spared * np.where(fetched > 0, moved[:, sim.FETCH_FIRST] / np.maximum(fetched, 1e-300), all_first)
    lookups = moved[:, sim.L2_LOOKUPS]
    l2_hits = lookups - (lookups - moved[:, sim.L2_HITS]) * (1.0 - recovered)
    l1_hits, sectors = moved[:, sim.L1_HITS], full.sectors
    waits = moved[:, sim.AT_L1 : sim.AT_DRAM + 1].copy()
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
        partial_store_sectors=round(full.partial.sum()),
        tag_wavefronts=round(full.tags.sum()),
        dram_read_bytes=round(dram.read),
        dram_write_bytes=round(dram.write),
        dirty_left_bytes=round(dram.left),
        traced_blocks=p.window.blocks,
        exact=_whole(run, p),
    )
