"""The launches of a whole program, folded: kernel -> shapes of launch -> how many, one Report each. What a program's profile is.

The first launch of a shape runs with every counter on and is predicted; the others of that shape run plainly and are taken to do
the same, and each is priced with what the launches before it left in L2. Where a kernel comes in more than MOST_SHAPES shapes, a
further one is counted in full only when it is larger than any before, and else takes the time of the nearest: profiling costs what a
few launches cost, however long the program runs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solcourse.errors import SolcourseError
from solcourse.hardware import Device

if TYPE_CHECKING:
    from solcourse.report import Report
    from solcourse.residency import L2Contents
    from solcourse.simt.frontend import KernelIR, LaunchSpec
    from solcourse.simt.records import EngineRun

MOST_SHAPES = 12  # of one kernel, counted in full whatever their size
STEPS = 16  # how finely the part of a launch's data that is in L2 is told
LARGER = 1.5  # times the threads of the largest before


@dataclass(frozen=True)
class Shape:
    """What launches must share to be counted as one: the code, grid and block, and the types and shapes of the arguments.

    arguments   as text: "float32[64, 64]", "int64"; the values of scalars do not count
    host_bytes  of arrays in the host's memory, which numba copies to the GPU before the launch and back after it
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    arguments: tuple[str, ...]
    host_bytes: int
    fingerprint: str

    @classmethod
    def of(cls, kernel: KernelIR, spec: LaunchSpec, args: tuple) -> Shape:
        said = tuple(_argument(kind, value) for kind, value in zip(kernel.arg_types, args, strict=True))
        copied = sum(_host_bytes(value) for value in args)
        return cls(spec.grid, spec.block, spec.dynamic_shared_bytes, said, copied, kernel.fingerprint)

    @property
    def threads(self) -> int:
        gx, gy, gz = self.grid
        bx, by, bz = self.block
        return gx * gy * gz * bx * by * bz


def _argument(kind: Any, value: Any) -> str:
    array = getattr(value, "value", value)  # cuda.In(a), cuda.Out(a)
    if not hasattr(array, "shape") or not hasattr(kind, "layout"):
        return str(kind)
    layout = "" if kind.layout == "C" else f" {kind.layout}"
    return f"{kind.dtype}[{', '.join(map(str, array.shape))}]{layout}"


def _host_bytes(value: Any) -> int:
    if isinstance(value, tuple):
        return sum(map(_host_bytes, value))
    array = getattr(value, "value", value)
    return int(array.nbytes) if getattr(array, "ndim", 0) and not hasattr(array, "engine_owner") else 0


@dataclass
class Row:
    """One shape's launches. report: of the first, with nothing in L2 at its start; None where it was not counted in full, and another
    shape's times stand for its own.

    states   how many launches found L2 in which state: (sixteenths read, sixteenths rewritten) of traffic.Resident -> launches
    """

    shape: Shape
    launches: int = 0
    report: Report | None = None
    states: dict[tuple[int, int], int] = field(default_factory=dict)
    prices: dict[tuple[int, int], float] = field(default_factory=dict)

    @property
    def found(self) -> float:
        """The part of what all these launches read that was in L2 at their start."""
        return sum(n * read for (read, _), n in self.states.items()) / (STEPS * max(1, self.launches))

    def price(self, state: tuple[int, int]) -> float:
        """Predicted seconds of one launch of a counted shape that finds L2 so."""
        from solcourse.report import predicted
        from solcourse.traffic import Resident

        assert self.report is not None and self.report.run is not None
        if state == (0, 0):
            return self.report.time_s
        if state not in self.prices:
            cache = Resident(state[0] / STEPS, state[1] / STEPS)
            self.prices[state] = predicted(self.report.run, self.report.device, cache=cache).time_s
        return self.prices[state]


@dataclass
class KernelLaunches:
    """All launches of one kernel: of one name, at one place in the source."""

    name: str
    file: str
    line: int
    shapes: dict[Shape, Row] = field(default_factory=dict)

    @property
    def launches(self) -> int:
        return sum(row.launches for row in self.shapes.values())

    @property
    def time_s(self) -> float:
        """Predicted seconds of all launches together."""
        return sum(self.row_s(row) for row in self.shapes.values())

    @property
    def rows(self) -> list[Row]:
        """By time, longest first."""
        return sorted(self.shapes.values(), key=lambda row: -self.row_s(row))

    @property
    def heaviest(self) -> Report:
        """The report of the launch that takes longest."""
        return max((row.report for row in self.shapes.values() if row.report), key=lambda report: report.time_s)

    def each_s(self, row: Row) -> float:
        """Predicted seconds of one launch, on average."""
        return self.row_s(row) / max(1, row.launches)

    def row_s(self, row: Row) -> float:
        """Predicted seconds of a shape's launches, or as many of the counted shape that is nearest in threads."""
        if row.report is None:
            counted = (r for r in self.shapes.values() if r.report)
            near = min(counted, key=lambda r: (abs(r.shape.threads - row.shape.threads), self.row_s(r)))
            return row.launches * self.each_s(near)
        return sum(n * row.price(state) for state, n in row.states.items())

    def is_new(self, shape: Shape) -> bool:
        """Whether a launch of this shape is to be counted in full."""
        counted = [row.shape for row in self.shapes.values() if row.report]
        if shape in self.shapes:
            return False
        return len(counted) < MOST_SHAPES or shape.threads > LARGER * max(s.threads for s in counted)


class Launches:
    """What a program launched on one device: `print` it, `save` it, look into `kernels`."""

    def __init__(self, device: Device, recording: bool = True):
        self.device, self.recording = device, recording
        self.on_all = False  # whether each kernel's heaviest launch is also shown for every known device
        self._kernels: dict[tuple[str, str, int], KernelLaunches] = {}
        self._l2: L2Contents | None = None
        self._lock = threading.Lock()

    @property
    def kernels(self) -> list[KernelLaunches]:
        """By time, longest first."""
        return sorted(self._kernels.values(), key=lambda kernel: -kernel.time_s)

    @property
    def launches(self) -> int:
        return sum(kernel.launches for kernel in self._kernels.values())

    @property
    def time_s(self) -> float:
        """Predicted seconds of all kernels, one after the other, without copies and the host's own work."""
        return sum(kernel.time_s for kernel in self._kernels.values())

    def clear(self) -> None:
        """Begins anew."""
        with self._lock:
            self._kernels.clear()
            self._l2 = None

    def wants(self, kernel: KernelIR, shape: Shape) -> bool:
        """Whether this launch is to be counted in full."""
        if not self.recording:
            return False
        known = self._kernels.get(place_of(kernel))
        return known is None or known.is_new(shape)

    def add(self, kernel: KernelIR, shape: Shape, run: EngineRun | None, allocations: Sequence[Any] = ()) -> None:
        """One more launch; `run` where it was counted in full, allocations: simt.arguments.Allocation of each of its arrays.

        Raises LaunchError where its block does not fit the device."""
        from solcourse.report import predicted
        from solcourse.residency import L2Contents, touched
        from solcourse.simt.device_memory import allocation_at

        report = predicted(run, self.device) if run is not None else None
        with self._lock:
            known = self._kernels.setdefault(place_of(kernel), KernelLaunches(*place_of(kernel)))
            row = known.shapes.setdefault(shape, Row(shape))
            row.launches += 1
            row.report = row.report or report
            if self._l2 is None:
                self._l2 = L2Contents(self.device.l2_bytes)
            # numba copies host arrays to a place of its own for each launch: nothing of them is there before
            on_device = [a for a in allocations if allocation_at(a.address) is not None]
            found = self._l2.launch(touched(row.report.run if row.report else None, on_device))
            state = round(STEPS * found.read), round(STEPS * found.rewritten)
            row.states[state] = row.states.get(state, 0) + 1

    # --------------------------------------------------------------------------------------------------------------- looks
    def save(self, path: str | Path) -> Path:
        """Writes it to a file and returns its path: "x.html" a page that stands alone, "x.txt" text, "x.json" numbers.

        Raises SolcourseError for another ending, OSError where the file cannot be written.
        """
        from solcourse import launches_report as looks

        forms = {".html": looks.page, ".txt": lambda launches: f"{looks.text(launches)}\n", ".json": looks.as_json}
        target = Path(path)
        if target.suffix not in forms:
            raise SolcourseError(f"A profile is saved as {', '.join(forms)}, not as {target.name!r}.")
        target.write_text(forms[target.suffix](self), encoding="utf-8")
        return target

    def __repr__(self) -> str:
        return f"<Launches on {self.device.name}: {named(self.kernels)}, {launched(self.launches)}>"

    def __str__(self) -> str:
        from solcourse.launches_report import text

        return text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from solcourse.launches_report import html

        return {"text/plain": str(self), "text/html": html(self)}


def place_of(kernel: KernelIR) -> tuple[str, str, int]:
    """What is one kernel in a program: name, file, first line."""
    return kernel.name, kernel.file, kernel.first_line


def _many(n: int, noun: str, plural: str = "s") -> str:
    return f"{n:,} {noun}{'' if n == 1 else plural}"


def launched(n: int) -> str:
    """How many launches, in words."""
    return _many(n, "launch", "es")


def named(kernels: Sequence[KernelLaunches]) -> str:
    """How many kernels, in words."""
    return _many(len(kernels), "kernel")
