"""What the warps of one SM partition do, cycle by cycle: one scheduler over the model's own walk. The definition of Timeline.

A warp goes through its basic blocks as latency.walk does, with the same latencies; here all resident warps do so at the same time and
share one issue slot per clock, the pipes and the partition's part of the bandwidth. Of the warps that could issue the oldest one does.
Nothing is measured, and it predicts no time: model.py does that. It shows where a warp's time goes, and who hides whose waiting.

What it leaves out: the other partitions and SMs are taken to do the same, so that each has its share of what they have in common; every
request of an instruction takes that instruction's mean latency; the register file's banks and the constant cache hold nobody up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from .bounds import lanes
from .hardware import Device
from .latency import Latencies, Schedule, schedule
from .model import latencies, turnaround_cycles
from .occupancy import Occupancy
from .simt.records import PIPES, EngineRun
from .timeline_streams import PATHS, Entry, Service, Stream, services
from .traffic import Traffic

# ncu: selected; long_scoreboard, drain; barrier; wait, short_scoreboard, math_pipe_throttle, mio_throttle; not_selected; no warp there
STATES = ("issued", "memory", "barrier", "dependency", "not_selected", "finished")
ISSUED, MEMORY, BARRIER, DEPENDENCY, NOT_SELECTED, FINISHED = STATES


class Span(NamedTuple):
    """start <= cycle < end. state: one of STATES."""

    start: int
    end: int
    state: str


@dataclass(frozen=True)
class Timeline:
    """Cycles start..start + cycles of one partition.

    places   a row of spans for each place that a warp can have, without gaps; when its block has left, the place takes a warp of the next
    blocks   per place, the block it belongs to; places of one block wait for one another at barriers
    starts   per place, when a warp came there, inside the window
    """

    start: int
    cycles: int
    places: tuple[tuple[Span, ...], ...]
    blocks: tuple[int, ...]
    starts: tuple[tuple[int, ...], ...]

    @property
    def shares(self) -> dict[str, float]:
        """The part of all warps' cycles spent in each state (keys: STATES)."""
        total = dict.fromkeys(STATES, 0)
        for spans in self.places:
            for span in spans:
                total[span.state] += span.end - span.start
        return {state: n / (self.cycles * len(self.places)) for state, n in total.items()}

    @property
    def issue_utilisation(self) -> float:
        """The part of the cycles in which an instruction is issued, 0..1. ncu: smsp__issue_active.avg.pct_of_peak_sustained_active."""
        return self.shares[ISSUED] * len(self.places)


@dataclass(frozen=True)
class Shared:
    """What a partition has in common with the others, and what follows on a block.

    pipes       by PIPES: how many partitions share the pipe
    services    by site: what a request takes of the paths to memory
    turnaround  cycles from the end of a block to the first of the next; blocks: how many come after the resident ones
    in_flight   cycles for which a store is under way
    """

    pipes: tuple[int, ...] = (1,) * len(PIPES)
    services: Sequence[Sequence[Service]] = ()
    turnaround: float = 0.0
    blocks: int = 0
    in_flight: float = math.inf


def simulate(
    sched: Schedule, blocks: Sequence[Sequence[Sequence[float]]], lat: Latencies, cycles: int, start: int = 0, shared: Shared = Shared()
) -> Timeline:
    """One scheduler from cycle 0, of which cycles start..start + cycles are kept.

    blocks   of each resident block, of each of its warps here, how often it executes each basic block; blocks that follow are like them
    """
    known: dict[tuple[float, ...], Stream] = {}

    def streams(block: Sequence[Sequence[float]]) -> list[Stream]:
        keys = [tuple(executions) for executions in block]
        return [known.setdefault(key, Stream(sched, key, lat, shared.pipes)) for key in keys]

    made = [streams(block) for block in blocks]
    shared = shared if shared.services else replace(shared, services=((),) * len(lat.site))
    partition = _Partition(shared, [made[n % len(made)] for n in range(shared.blocks)], lat.barrier)
    for block in made:
        partition.place(block)
    stop = start + cycles
    partition.run(stop)
    return Timeline(
        start,
        cycles,
        tuple(
            tuple(Span(max(a, start), min(b, stop), state) for a, b, state in w.spans if a < stop and b > start) for w in partition.places
        ),
        tuple(w.number for w in partition.places),
        tuple(tuple(at for at in w.starts if start <= at < stop) for w in partition.places),
    )


def timeline(run: EngineRun, traffic: Traffic, gpu: Device, occupancy: Occupancy, cycles: int = 1000, start: int = 0) -> Timeline:
    """What one scheduler of a busy SM does in cycles start..start + cycles of the launch."""
    width = run.warps_per_block
    resident = max(1, min(occupancy.blocks_per_sm, -(-run.blocks // gpu.sms)))
    here = [[w for w in range(width) if (b * width + w) % gpu.partitions == 0] for b in range(resident)]
    here = [warps for warps in here if warps]
    executions = np.asarray(run.warp_executions, np.float64)
    if not executions.size:
        mean = np.asarray(run.block_executions, np.float64) / max(1, run.blocks * width)
        executions = np.broadcast_to(mean, (1, width, mean.size))
    blocks = [executions[n % len(executions)][warps].tolist() for n, warps in enumerate(here)]
    busy = min(gpu.partitions, resident * width)
    later = -(-run.blocks // gpu.sms) - resident
    shared = Shared(
        pipes=tuple(busy if pipe == "lsu" or width_of < 2 * gpu.partitions else 1 for pipe, width_of in lanes(gpu).items()),
        services=services(run, traffic, gpu, min(gpu.sms, run.blocks), busy),
        turnaround=turnaround_cycles(run, gpu),
        blocks=min(cycles + start, -(-later * len(here) // resident)),
        in_flight=gpu.lat_dram,
    )
    return simulate(schedule(run.program), blocks, latencies(run, traffic, gpu), cycles, start, shared)


# ----------------------------------------------------------------------------------------------------------- the scheduler
class _Warp:
    """A place for warps, and where the present one is.

    since    what it did until then is told in `spans`; ready: when it can issue as far as it alone is concerned; cause: its state till then
    left     issues left of the operation it is at; done: per entry of its stream, when the result is there
    gate     no further request to memory before that: its stores are under way; drain: it keeps its place until then
    """

    def __init__(self, block: list[_Warp], number: int, place: int):
        self.block, self.number, self.place, self.since = block, number, place, 0
        self.spans: list[Span] = []
        self.starts: list[int] = []

    def begin(self, stream: Stream, at: int, age: int) -> None:
        """A new warp takes the place."""
        self.tell(at, FINISHED)
        self.starts.append(at)
        self.stream, self.age, self.step, self.left = stream, age, 0, 0
        self.arrived = self.finished = False
        self.done: list[float] = []
        self.gate = self.drain = 0.0
        self.ready, self.cause = float(at), DEPENDENCY

    def tell(self, until: float, state: str) -> None:
        """From `since` until then it was in `state`."""
        end = math.ceil(until)
        if end > self.since:
            if self.spans and self.spans[-1].state == state:
                self.spans[-1] = self.spans[-1]._replace(end=end)
            else:
                self.spans.append(Span(self.since, end, state))
            self.since = end


class _Partition:
    """One scheduler with the places of its warps, its pipes, and its share of the paths to memory."""

    def __init__(self, shared: Shared, following: Sequence[Sequence[Stream]], barrier: float):
        self.services, self.turnaround, self.in_flight = shared.services, shared.turnaround, shared.in_flight
        self.following, self.barrier = iter(following), barrier
        self.places: list[_Warp] = []
        self.waiting: list[tuple[float, int, int]] = []  # (ready, age, place)
        self.able: list[list[tuple[int, int]]] = [[] for _ in range(len(PIPES) + 1)]  # by the pipe wanted, the last is none: (age, place)
        self.pipe_free = [0.0] * (len(PIPES) + 1)
        self.narrow = [0.0] * (len(PIPES) + 1)  # the same, of pipes that take longer than the issue slot
        self.path_free = [0.0] * len(PATHS)
        self.ages = 0

    def place(self, streams: Sequence[Stream]) -> None:
        """A block with places of its own, from the first cycle."""
        block: list[_Warp] = []
        number = self.places[-1].number + 1 if self.places else 0
        for _ in streams:
            block.append(_Warp(block, number, len(self.places)))
            self.places.append(block[-1])
        self._begin(block, streams, 0)

    def _begin(self, block: list[_Warp], streams: Sequence[Stream], at: int) -> None:
        for warp, stream in zip(block, streams, strict=True):
            warp.begin(stream, at, self.ages)
            self.ages += 1
            self._proceed(warp, at)

    def run(self, stop: int) -> None:
        """All cycles before `stop`."""
        clock = 0
        while clock < stop:
            while self.waiting and self.waiting[0][0] <= clock:
                _, age, place = heappop(self.waiting)
                heappush(self.able[self.places[place].stream.entries[self.places[place].step].pipe], (age, place))
            pipe = self._oldest(clock)
            if pipe is None:
                clock = max(clock + 1, math.ceil(min(self._events(), default=stop)))
                continue
            self._issue(self.places[heappop(self.able[pipe])[1]], pipe, clock)
            clock += 1
        for warp in self.places:
            self._close(warp, stop)

    def _oldest(self, clock: int) -> int | None:
        """The pipe for which the oldest of all warps that can issue now waits."""
        heads = [(heap[0], pipe) for pipe, heap in enumerate(self.able) if heap and self.pipe_free[pipe] <= clock]
        return min(heads)[1] if heads else None

    def _events(self) -> Iterator[float]:
        """When something could change: a warp becomes ready, or a pipe that is waited for becomes free."""
        yield from (self.waiting[0][0],) if self.waiting else ()
        yield from (self.pipe_free[pipe] for pipe, heap in enumerate(self.able) if heap)

    def _issue(self, warp: _Warp, pipe: int, clock: int) -> None:
        entry = warp.stream.entries[warp.step]
        warp.tell(warp.ready, warp.cause)
        warp.tell(min(self.narrow[pipe], clock), DEPENDENCY)
        warp.tell(clock, NOT_SELECTED)
        warp.tell(clock + 1, ISSUED)
        if not warp.left:
            warp.left = entry.slots
            if entry.pipe >= 0:
                self.pipe_free[entry.pipe] = clock + entry.busy
                self.narrow[entry.pipe] = clock + entry.busy if entry.busy > entry.slots else 0.0
            warp.done.append(clock + entry.delay + self._queue(warp, entry, clock))
        warp.left -= 1
        if warp.left:
            warp.ready, warp.cause = clock + 1, DEPENDENCY
            heappush(self.able[-1], (warp.age, warp.place))
        elif entry.barrier:
            warp.arrived = True
            self._release(warp.block, clock + 1)
        else:
            warp.step += 1
            self._proceed(warp, clock + 1)

    def _queue(self, warp: _Warp, entry: Entry, clock: int) -> float:
        """How much later a request is served because of those before it; it takes its turn on every path it goes."""
        delay = 0.0
        for path, cycles, part in self.services[entry.site] if entry.site >= 0 else ():
            delay = max(delay, part * (self.path_free[path] - clock))
            self.path_free[path] = max(self.path_free[path], clock) + cycles
        if not entry.returns:
            warp.drain = max(warp.drain, clock + delay)
            warp.gate = clock + delay - self.in_flight  # about as many stores are under way as fill the time to memory
        return delay

    def _proceed(self, warp: _Warp, clock: float) -> None:
        """On to the next operation: when will its operands be there?"""
        entry = warp.stream.at(warp.step)
        if entry is None:
            self._finish(warp, clock)
            return
        ready, cause = clock, DEPENDENCY
        for source in entry.sources:
            if warp.done[source] > ready:
                ready, cause = warp.done[source], MEMORY if warp.stream.entries[source].far else DEPENDENCY
        if entry.site >= 0 and warp.gate > ready and self.services[entry.site]:
            ready, cause = warp.gate, MEMORY
        warp.ready, warp.cause = ready, cause
        heappush(self.waiting, (ready, warp.age, warp.place))

    def _release(self, block: list[_Warp], clock: int) -> None:
        """The barrier opens once every warp of the block that still runs has arrived."""
        if not all(warp.arrived or warp.finished for warp in block):
            return
        for warp in block:
            if warp.arrived:
                warp.arrived = False
                warp.tell(clock + self.barrier, BARRIER)
                warp.step += 1
                self._proceed(warp, clock + self.barrier)

    def _finish(self, warp: _Warp, clock: float) -> None:
        """The warp is at its end; when the last of its block is, the next block comes, if there is one."""
        warp.tell(max(clock, warp.drain), MEMORY)
        warp.finished = True
        if not all(other.finished for other in warp.block):
            self._release(warp.block, math.ceil(clock))
            return
        streams = next(self.following, None)
        if streams is not None:
            self._begin(warp.block, streams, math.ceil(max(other.since for other in warp.block) + self.turnaround))

    def _close(self, warp: _Warp, stop: int) -> None:
        """What it is doing when the window ends."""
        if warp.finished or warp.arrived:
            warp.tell(stop, FINISHED if warp.finished else BARRIER)
            return
        warp.tell(min(warp.ready, stop), warp.cause)
        pipe = -1 if warp.left else warp.stream.entries[warp.step].pipe
        warp.tell(min(self.narrow[pipe], stop), DEPENDENCY)
        warp.tell(stop, NOT_SELECTED)
