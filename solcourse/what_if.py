"""What would have to change on a device for a kernel to be faster, or for another bound to win. The definition of Sensitivity.

One resource at a time is multiplied by a factor, the others stay, and the model is asked again; resources.py says what scales with
what. The caches' hits are held where only rates and the clock change: they are replayed only where a size, the SMs or the resident
blocks do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solcourse import model
from solcourse.all_devices import together
from solcourse.errors import LaunchError, SolcourseError
from solcourse.hardware import Device
from solcourse.occupancy import Occupancy
from solcourse.resources import COARSE, ENDLESS, RESOURCES, Resource, with_dram_eta_of
from solcourse.traffic import traffic as traffic_of

if TYPE_CHECKING:
    from solcourse.report import Report
    from solcourse.traffic import Traffic

EFFECT = 0.01  # a resource that moves the time by less, over the whole sweep, has no effect worth a line


@dataclass(frozen=True)
class Point:
    """The prediction with one resource at `factor` times what the device has. time_s None: no block fits any more."""

    factor: float
    time_s: float | None
    bound: str = ""
    bounds: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Move:
    """At `factor` times the resource, `bound` takes over. Interpolated between the factors that were asked for."""

    factor: float
    bound: str


@dataclass(frozen=True)
class Sweep:
    """One resource of a device, from a quarter to four times what it has.

    points      by factor; the one at 1 is the report's own prediction
    endless     with as much of it as one could want
    elasticity  percent of time per percent of the resource, d ln(time) / d ln(resource): -1 where only it counts, 0 where it does not
    up, down    where another bound takes over with more of it, and with less; None where the same one wins to the end of the sweep
    """

    resource: Resource
    now: str
    points: tuple[Point, ...]
    endless: Point
    elasticity: float
    up: Move | None
    down: Move | None

    @property
    def span(self) -> float:
        """The longest time of the sweep / the shortest; infinite where no block fits at some factor."""
        times = [point.time_s for point in self.points]
        known = [t for t in (*times, self.endless.time_s) if t is not None]
        return math.inf if None in times else max(known) / min(known)

    @property
    def matters(self) -> bool:
        return self.span > 1 + EFFECT

    def at(self, factor: float) -> Point | None:
        """The point nearest to `factor`; None where there is none within 10 %."""
        near = min(self.points, key=lambda point: abs(math.log(point.factor / factor)))
        return near if abs(math.log(near.factor / factor)) < math.log(1.1) else None


@dataclass(frozen=True, repr=False)
class Sensitivity:
    """What the predicted time of one launch on one device depends on. `print` it, let a notebook show it, `save` it.

    report   the prediction at factor 1
    sweeps   one per resource, the one that pays most first
    """

    report: Report
    sweeps: tuple[Sweep, ...]

    def __getitem__(self, name: str) -> Sweep:
        """The sweep of a resource, by its key or its words: "dram", "DRAM bandwidth". Raises SolcourseError."""
        for sweep in self.sweeps:
            if name in (sweep.resource.name, sweep.resource.words):
                return sweep
        raise SolcourseError(f"There is no resource {name!r}. There are: {', '.join(sweep.resource.name for sweep in self.sweeps)}.")

    @property
    def nearest(self) -> tuple[Sweep, Move] | None:
        """The smallest growth of one resource that moves the bound; None where none up to four times does."""
        moves = [(sweep, sweep.up) for sweep in self.sweeps if sweep.up is not None]
        return min(moves, key=lambda pair: pair[1].factor) if moves else None

    def to_dict(self) -> dict[str, Any]:
        """The sweeps as plain dicts, lists, numbers and strings in base units."""
        from solcourse.what_if_looks import sensitivity_dict

        return sensitivity_dict(self)

    def save(self, path: str | Path) -> Path:
        """Writes it to a file and returns its path: "x.html" a page that stands alone, "x.txt" text, "x.json" numbers.

        Raises SolcourseError for another ending, OSError where the file cannot be written.
        """
        from solcourse import what_if_looks

        return what_if_looks.save(self, path)

    def __repr__(self) -> str:
        return f"<Sensitivity: {self.report.kernel} on {self.report.device.name}, {len(self.sweeps)} resources>"

    def __str__(self) -> str:
        from solcourse.what_if_looks import sensitivity_text

        return sensitivity_text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from solcourse.what_if_looks import sensitivity_html

        return {"text/plain": str(self), "text/html": sensitivity_html(self)}


# ------------------------------------------------------------------------------------------------------------ asking the model
class _Asked:
    """The model's answers for one report; nothing is asked twice, and caches are replayed only where they could act otherwise."""

    def __init__(self, report: Report):
        assert report.run is not None and report.occupancy is not None
        self.report, self.run, self.fits = report, report.run, report.occupancy
        self.traffics: dict[tuple[Device, int, int], Traffic] = {self._key(report.device, self.fits): report.traffic}
        self.base = Point(1.0, report.time_s, report.bound, report.bounds)

    @staticmethod
    def _key(gpu: Device, fits: Occupancy) -> tuple[Device, int, int]:
        return gpu, fits.blocks_per_sm, fits.l1_bytes

    def _traffic(self, gpu: Device, fits: Occupancy) -> Traffic:
        key = self._key(gpu, fits)
        if key not in self.traffics:
            self.traffics[key] = traffic_of(self.run, gpu, fits, cache=self.report.cache)
        return self.traffics[key]

    def point(self, resource: Resource, factor: float, *, seen_at: float | None = None) -> Point:
        """seen_at: the factor whose caches are taken, where they are not to be replayed for this one."""
        try:
            changed, fits = resource.change(self.report, factor)
            cached = changed if resource.replays else self.report.device
            if seen_at is not None:
                cached, _ = resource.change(self.report, seen_at)
        except LaunchError:
            return Point(factor, None)
        if (changed, fits) == (self.report.device, self.fits):
            return replace(self.base, factor=factor)
        whole = factor if changed.sms == self.report.device.sms else changed.sms / self.report.device.sms
        moved = self._traffic(cached, fits)
        said = model.predict(self.run, moved, with_dram_eta_of(self.report.device, changed), fits)
        return Point(whole, said.time_s, said.bound, said.bounds)

    def sweep(self, resource: Resource) -> Sweep:
        counts_sms = resource.name == "sms"  # with an SM per block a replay would tell nothing new, and take long
        endless = self.point(resource, ENDLESS, seen_at=max(COARSE) if counts_sms else None)
        least = self.point(resource, resource.grid[0])
        points = [self._between(resource, factor, endless if factor > 1 else least) for factor in resource.grid]
        return Sweep(
            resource=resource,
            now=resource.now(self.report.device, self.fits),
            points=tuple(points),
            endless=replace(endless, factor=math.inf),
            elasticity=self._elasticity(resource, points),
            up=_move([point for point in points if point.factor >= 1]),
            down=_move([point for point in reversed(points) if point.factor <= 1]),
        )

    def _between(self, resource: Resource, factor: float, far: Point) -> Point:
        """The point at `factor`; where even `far` beyond it has the device's own time, nothing is replayed for it."""
        if factor == 1 or (resource.replays and far.time_s is not None and math.isclose(far.time_s, self.report.time_s, rel_tol=1e-9)):
            return replace(self.base, factor=factor)
        return self.point(resource, factor)

    def _elasticity(self, resource: Resource, points: list[Point]) -> float:
        """The slope of ln(time) over ln(factor) around 1; one-sided where no block fits with less."""
        if resource.step in resource.grid:
            less, more = (next(p for p in points if p.factor == f) for f in (1 / resource.step, resource.step))
        else:
            less, more = (self.point(resource, f) for f in (1 / resource.step, resource.step))
        if less.time_s is None:
            less = self.base
        if more.time_s is None or less.time_s is None or more.factor == less.factor:
            return 0.0
        return math.log(more.time_s / less.time_s) / math.log(more.factor / less.factor)


def _move(points: list[Point]) -> Move | None:
    """The first change of the winner along the points, which begin with the device's own; between two of them, where both bounds meet."""
    before = points[0]
    for point in points[1:]:
        if point.bounds is None or before.bounds is None:
            return None
        if point.bound != points[0].bound:
            return Move(_meeting(before, point), point.bound)
        before = point
    return None


def _meeting(before: Point, after: Point) -> float:
    """The factor at which two bounds are equal, both being straight lines in the logarithms between the points."""
    old, new = before.bound, after.bound

    def lead(point: Point) -> float:
        times = point.bounds or {}
        return math.log(times[old] / times[new]) if times.get(old) and times.get(new) else math.nan

    first, second = lead(before), lead(after)
    if math.isnan(first) or math.isnan(second) or first == second:
        return after.factor
    part = min(max(first / (first - second), 0.0), 1.0)
    return before.factor * (after.factor / before.factor) ** part


def sensitivity(report: Report) -> Sensitivity:
    """What the predicted time of `report` depends on, resource by resource. Nothing runs.

    Raises SolcourseError for a report without an engine run. A measured one is taken as the model predicts it.
    """
    if report.run is None:
        raise SolcourseError("This report was measured without an engine run: profile the kernel to see what its time depends on.")
    base = report if report.origin == "predicted" else report.on(report.device)
    asked = _Asked(base)
    sweeps = together(asked.sweep, RESOURCES)
    return Sensitivity(base, tuple(sorted(sweeps, key=lambda sweep: round(sweep.elasticity, 6))))
