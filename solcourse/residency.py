"""What the launches of a program leave in L2 for the next: by allocation, least recently used first out. What makes up a Resident.

Between two touches of the same byte lie the rest of one launch, whatever ran in between, and the beginning of the next launch: the byte
is still in L2 if the distinct bytes of all that fit into it. Launches are taken to go through their arrays from the beginning to the
end, all at the same pace. Which part of an array was touched is not known: as much of each as of all together (guess).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .simt.records import EngineRun
from .traffic import Resident


@dataclass(frozen=True)
class Touched:
    """One allocation in one launch. nbytes: of it that the launch touches."""

    nbytes: float
    read: bool
    written: bool


def touched(run: EngineRun | None, allocations: Iterable[Any]) -> dict[int, Touched]:
    """What a launch like `run` touches of device memory, by address. allocations: simt.arguments.Allocation. Without a run: all of each."""
    device = tuple(allocations)
    if run is None:
        return {a.address: Touched(a.nbytes, True, True) for a in device}
    reads = {s.array for s in run.program.sites if s.kind in ("global_load", "global_atomic")}
    writes = {s.array for s in run.program.sites if s.kind in ("global_store", "global_atomic")}
    unnamed = "" in reads | writes  # some access that no argument is known for: it may be to any of them
    uses = {a.address: (unnamed or a.name in reads, unnamed or a.name in writes) for a in device}
    most = sum(a.nbytes * sum(uses[a.address]) for a in device)
    part = min(1.0, run.compulsory_bytes / most) if most else 0.0
    return {a.address: Touched(a.nbytes * part, *uses[a.address]) for a in device if any(uses[a.address])}


def _kept(fixed: float, before: float, after: float, capacity: float) -> float:
    """The part of x in 0..1 for which fixed + (1 - x) before + x after <= capacity."""
    first, last = fixed + before, fixed + after
    if max(first, last) <= capacity:
        return 1.0
    if min(first, last) > capacity:
        return 0.0
    return (capacity - min(first, last)) / abs(last - first)


class L2Contents:
    """An L2 of `capacity` bytes, launch after launch."""

    def __init__(self, capacity: float):
        self.capacity = capacity
        self._launch = 0
        self._last: dict[int, tuple[int, Touched, bool]] = {}  # address -> (last launch, what of it, dirty), least recent first

    def launch(self, now: Mapping[int, Touched]) -> Resident:
        """One more launch: which part of what it touches is there at its start."""
        kept = {address: self._kept_of(address, now) for address in now}
        read = sum(t.nbytes for t in now.values() if t.read)
        written = sum(t.nbytes for t in now.values() if t.written)
        found = sum(kept[a] * t.nbytes for a, t in now.items() if t.read)
        again = sum(kept[a] * t.nbytes for a, t in now.items() if t.written and kept[a] and self._last[a][2])
        for address, t in now.items():
            dirty = t.written or (kept[address] > 0 and self._last[address][2])
            self._last.pop(address, None)
            self._last[address] = self._launch, t, dirty
        self._launch += 1
        self._forget()
        return Resident(found / read if read else 0.0, again / written if written else 0.0)

    def _kept_of(self, address: int, now: Mapping[int, Touched]) -> float:
        """The part of an allocation's bytes that is still in L2 when this launch comes to it."""
        if address not in self._last:
            return 0.0
        then = self._last[address][0]
        fixed = before = 0.0
        seen = set()
        for other, (last, t, _) in reversed(self._last.items()):
            if last < then:
                break
            seen.add(other)
            if last > then or other in now:
                fixed += t.nbytes
            else:
                before += t.nbytes
        after = sum(t.nbytes for other, t in now.items() if other not in seen)
        return _kept(fixed, before, after, self.capacity)

    def _forget(self) -> None:
        """What has more than L2's capacity behind it cannot be there any more."""
        behind = same = 0.0  # bytes of the launches after an entry's, and of the entries of its own launch so far
        launch = self._launch
        for address, (last, t, _) in reversed(list(self._last.items())):
            if last != launch:
                behind, same, launch = behind + same, 0.0, last
            same += t.nbytes
            if behind > self.capacity:
                del self._last[address]
