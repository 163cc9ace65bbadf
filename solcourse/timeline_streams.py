"""What one warp has before it, and what its requests take of what all share: the inputs of timeline.py.

The definition of a warp's stream of operations: latency.walk's, with every iteration of every loop by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from . import bounds
from .hardware import Device
from .latency import _CLASSES, CHAIN_ILP, SHORT, Latencies, Loop, Schedule, Step
from .model import dram_eta
from .simt.records import EngineRun
from .traffic import Traffic

FAR = ("global", "local", "atomic")  # latency classes of operations whose result comes from L1, L2 or DRAM


# ------------------------------------------------------------------------------------------------ one warp's operations
class Entry(NamedTuple):
    """One operation of a warp. sources: places in the stream whose results it needs; delay: from its first issue to its result;
    far: its result comes from memory; busy: cycles it keeps its pipe; returns: whether anything can wait for it."""

    sources: tuple[int, ...]
    pipe: int
    slots: int
    delay: float
    busy: float
    far: bool
    site: int
    barrier: bool
    returns: bool


def pieces(sched: Schedule, executions: Sequence[float]) -> Iterator[Sequence[Step]]:
    """The straight pieces of code that one warp runs, in the order of latency.walk, every iteration of every loop by itself.

    A basic block that is executed 5 times in 10 rounds of its loop is run in every other one.
    """
    owed: dict[int, float] = {}

    def times(key: int, often: float) -> int:
        owed[key] = owed.get(key, 0.0) + often
        whole = math.ceil(owed[key] - 1e-9)
        owed[key] -= whole
        return whole

    def once(items: Sequence[int | Loop], reference: float) -> Iterator[Sequence[Step]]:
        for item in items:
            if isinstance(item, Loop):
                yield from rounds(item, times(-1 - item.header, executions[item.header] / reference))
            else:
                yield from (sched.blocks[item] for _ in range(times(item, executions[item] / reference)))

    def rounds(loop: Loop, left: int) -> Iterator[Sequence[Step]]:
        often = executions[loop.header]
        whole = all(executions[b] >= 0.75 * often for b in loop.items if isinstance(b, int) and sched.slots[b])
        while left > 0:
            copies, piece = next(((n, piece) for n, piece in loop.unrolled if whole and left >= n), (1, None))
            yield from once(loop.items, often) if piece is None else (piece,)
            left -= copies

    return once(sched.items, 1.0)


class Stream:
    """What warps with the same executions run, made as far as one of them has come."""

    def __init__(self, sched: Schedule, executions: Sequence[float], lat: Latencies, sharing: Sequence[float]):
        self.entries: list[Entry] = []
        self._pieces = pieces(sched, executions)
        self._lat, self._sharing = lat, sharing
        self._made: dict[int, tuple[int, ...]] = {}  # SSA number -> the entries that its value comes from
        fixed = {"alu": lat.alu, "fp64": lat.fp64, "xu": lat.xu, "none": 0.0, "barrier": 0.0}
        self._fixed = [fixed.get(name, lat.alu) for name in _CLASSES]

    def at(self, place: int) -> Entry | None:
        """The entry there, or None behind the last one."""
        while place >= len(self.entries):
            piece = next(self._pieces, None)
            if piece is None:
                return None
            for step in piece:
                self._add(step)
        return self.entries[place]

    def _add(self, step: Step) -> None:
        dest, _, pipe, slots, kind, site, loads, fences, _, _ = step
        needs = tuple(sorted({place for source in step.sources for place in self._made.get(source, ())}))
        barrier = fences == "all"
        if slots or barrier:
            lat, name = self._lat, _CLASSES[kind]
            chain = slots - 1 if slots <= SHORT else (slots - 1) * (lat.fp64 if name == "fp64" else lat.alu) / CHAIN_ILP
            delay = chain + (lat.site[site] if site >= 0 else self._fixed[kind])
            busy = lat.busy[pipe] * slots if pipe >= 0 else 0.0
            busy = max(busy, lat.site_busy[site]) if site >= 0 else busy
            share = self._sharing[pipe] if pipe >= 0 else 1.0
            self.entries.append(Entry(needs, pipe, max(slots, 1), delay, share * busy, name in FAR, site, barrier, loads or dest >= 0))
            needs = (len(self.entries) - 1,)
        if dest >= 0:  # a phi or another free operation hands on what it is given
            self._made[dest] = needs


# -------------------------------------------------------------------------------------------------- what the warps share
class Service(NamedTuple):
    """What one request of a site takes of a path: cycles of the partition's share, and the part of the request that goes that way."""

    path: int
    cycles: float
    part: float


PATHS = ("fill", "l2", "dram", "atomic")


def services(run: EngineRun, traffic: Traffic, gpu: Device, sms: int, partitions: int) -> tuple[tuple[Service, ...], ...]:
    """By site: the model's bounds of L1 fill, L2, DRAM and atomics, spread over the requests that cause them.

    A partition has 1 / (sms x partitions) of the chip's rates: the busy ones share them.
    """
    kinds, count = [site.kind for site in run.program.sites], len(run.program.sites)
    far, load, atomic = (np.array([test(kind) for kind in kinds], bool) for test in (_is_far, _is_load, "global_atomic".__eq__))
    l1, l2 = (np.array([*hits, *[0.0] * count][:count]) for hits in (traffic.l1_hit_by_site, traffic.l2_hit_by_site))
    to_l2 = np.array([c.sectors for c in run.site_counts], np.float64) * np.where(load, 1 - l1, far)
    from_dram, to_dram = to_l2 * np.where(load, 1 - l2, 0.0), to_l2 * ~load
    eta = dram_eta(gpu, traffic.dram_read_bytes, traffic.dram_write_bytes)
    dram_bytes = _spread(traffic.dram_read_bytes, from_dram) + _spread(traffic.dram_write_bytes, to_dram)
    atomics = bounds.atomic_seconds(run.counts.global_atomic.sectors, run.same_address_atomics, gpu)
    ways = {  # sectors that go this way, and the seconds in which the chip moves them
        "fill": (to_l2 * ~atomic, to_l2 * ~atomic * bounds.fill_cycles(1.0) / (sms * gpu.clock_hz)),
        "l2": (to_l2, _spread(bounds.l2_seconds(traffic.l2_bytes, traffic.partial_store_sectors, gpu), to_l2)),
        "dram": (from_dram + to_dram, dram_bytes * bounds.dram_seconds(1.0, gpu, eta)),
        "atomic": (to_l2 * atomic, _spread(atomics, to_l2 * atomic)),
    }
    share = gpu.clock_hz * sms * partitions
    return tuple(
        tuple(
            Service(path, float(seconds[i] * share / counted.requests), float(sectors[i] / counted.sectors))
            for path, (sectors, seconds) in enumerate(ways.values())
            if seconds[i] > 0
        )
        for i, counted in enumerate(run.site_counts)
    )


def _is_far(kind: str) -> bool:
    return kind.startswith(("global", "local"))


def _is_load(kind: str) -> bool:
    return _is_far(kind) and kind.endswith("load")


def _spread(total: float, weights: np.ndarray) -> np.ndarray:
    """`total` by weights; nothing where there are none."""
    whole = float(weights.sum())
    return weights * (total / whole) if whole else np.zeros_like(weights)
