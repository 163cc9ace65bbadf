"""What would have to change on a device for a kernel to be faster, or for another bound to win. The definition of Sensitivity.

One resource at a time is multiplied by a factor, the others stay, and the model is asked again. RESOURCES says what scales with
what. Three things are held on purpose:
- what DRAM reaches of its rate where nothing else slows it. The table's `dram_eta_*` were measured with the device's own L2, SMs and
  clock in the way, which the model takes off; on a changed device as much must be taken off as before, or a faster L2 would
  make DRAM slower (`_with_dram_eta_of`).
- the caches' hits, where only rates and the clock change: they are replayed only where a size, the SMs or the resident blocks change.
- the start of a launch, the latencies in cycles, and the path from L2 into each SM (32 bytes per clock).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solcourse import model, units
from solcourse.errors import LaunchError, SolcourseError
from solcourse.hardware import KIB, PEAK_COLUMNS, Device
from solcourse.occupancy import Occupancy
from solcourse.occupancy import occupancy as occupancy_of
from solcourse.traffic import traffic as traffic_of

if TYPE_CHECKING:
    from solcourse.report import Report
    from solcourse.traffic import Traffic

FINE = tuple(2.0 ** (n / 2) for n in range(-4, 5))  # a quarter to four times, in steps of the square root of two
COARSE = (0.25, 0.5, 1.0, 2.0, 4.0)  # where each step replays the caches
ENDLESS = 1e6  # a rate or size so many times as large takes no time, or holds everything
ENDLESS_L1 = 64.0  # the replay keeps every line of every SM: no more than is sure to hold a traced launch
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
class Resource:
    """Something a device has so and so much of.

    change   (device, launch's occupancy, factor) -> the changed pair. Raises LaunchError where no block fits any more
    grid     the factors of the sweep
    step     the elasticity is the slope between 1 / step and step: near 1 where time is smooth, 2 where caches and waves act in jumps
    replays  whether the caches see the changed device
    scales   what changes, in words
    """

    name: str
    words: str
    now: Callable[[Device, Occupancy], str]
    change: Callable[[Report, float], tuple[Device, Occupancy]]
    grid: tuple[float, ...]
    step: float
    replays: bool
    scales: str


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


# ------------------------------------------------------------------------------------------------------- what scales with what
def _peaks(gpu: Device, factor: float) -> dict[str, Any]:
    """The peaks of the data sheet, for more SMs or a faster clock."""
    return {column: getattr(gpu, column) * factor for column in set(PEAK_COLUMNS.values()) if getattr(gpu, column) is not None}


def _dram(report: Report, factor: float) -> tuple[Device, Any]:
    gpu = report.device
    return replace(gpu, dram_gbs_spec=gpu.dram_gbs_spec * factor), report.occupancy


def _l2_rate(report: Report, factor: float) -> tuple[Device, Any]:
    gpu = report.device
    slices: Any = gpu.l2_slices * factor  # not a whole number: a rate of atomics, here
    return replace(gpu, l2_bytes_clk=gpu.l2_bytes_clk * factor, l2_slices=slices), report.occupancy


def _clock(report: Report, factor: float) -> tuple[Device, Any]:
    gpu = report.device
    beyond_l2 = (gpu.lat_dram - gpu.lat_l2) * factor  # the same nanoseconds
    changed = replace(gpu, boost_mhz=gpu.boost_mhz * factor, lat_dram=gpu.lat_l2 + beyond_l2, **_peaks(gpu, factor))
    return changed, report.occupancy


def _sms(report: Report, factor: float) -> tuple[Device, Any]:
    gpu, blocks = report.device, math.prod(report.grid)
    count = max(gpu.sms, blocks) if factor >= ENDLESS else max(1, round(gpu.sms * factor))
    grown = count / gpu.sms
    return replace(gpu, sms=count, l2_bytes_clk=gpu.l2_bytes_clk * grown, **_peaks(gpu, grown)), report.occupancy


def _l2_size(report: Report, factor: float) -> tuple[Device, Any]:
    return replace(report.device, l2_mib=report.device.l2_mib * factor), report.occupancy


def _l1_size(report: Report, factor: float) -> tuple[Device, Any]:
    fits: Any = report.occupancy
    return report.device, replace(fits, l1_bytes=round(fits.l1_bytes * min(factor, ENDLESS_L1)))


def _registers(report: Report, factor: float) -> tuple[Device, Any]:
    run, gpu, fits = report.run, report.device, report.occupancy
    assert run is not None and fits is not None
    barriers = 1 if run.counts.barriers else 0
    wider = replace(gpu, regs32_sm=round(gpu.regs32_sm * factor))
    again = occupancy_of(wider, run.threads_per_block, report.registers or 0, run.shared_bytes, barriers=barriers)
    return gpu, _refitted(fits, "registers", again.limits.get("registers"), gpu)


def _shared(report: Report, factor: float) -> tuple[Device, Any]:
    gpu, fits = report.device, report.occupancy
    assert fits is not None
    room = gpu.smem_max_kib_sm * KIB * factor
    each = fits.shared_bytes_per_block
    return gpu, _refitted(fits, "shared_memory", int(room // each) if each else None, gpu)


def _refitted(fits: Occupancy, resource: str, allowed: int | None, gpu: Device) -> Occupancy:
    """The occupancy with another limit of one resource. The carve-out stays: what is added is added to shared memory, not taken from L1."""
    if allowed is None:
        return fits
    limits = {**fits.limits, resource: allowed}
    blocks = min(limits.values())
    if blocks < 1:
        raise LaunchError(f"This block cannot run on {gpu.name} with less {resource.replace('_', ' ')}.")
    warps = blocks * (fits.warps_per_sm // fits.blocks_per_sm)
    limiter = min(limits, key=lambda name: limits[name])
    return replace(fits, blocks_per_sm=blocks, warps_per_sm=warps, fraction=warps / fits.max_warps, limiter=limiter, limits=limits)


RESOURCES: tuple[Resource, ...] = (
    Resource(
        "dram", "DRAM bandwidth", lambda gpu, _: units.bytes_per_s(gpu.dram_bytes_per_s), _dram, FINE, 1.05, False,
        "the data sheet's rate; the part of it that is reached, and the latency, stay",
    ),
    Resource(
        "l2_rate", "L2 bandwidth", lambda gpu, _: units.bytes_per_s(gpu.l2_bytes_per_s), _l2_rate, FINE, 1.05, False,
        "bytes per clock, and with them the atomics of all addresses together; one address stays one at a time",
    ),
    Resource(
        "clock", "SM clock", lambda gpu, _: units.clock(gpu.clock_hz), _clock, FINE, 1.05, False,
        "SMs, L1 and L2 with it (the model states all three per SM clock); DRAM keeps its rate and its nanoseconds",
    ),
    Resource(
        "sms", "SMs", lambda gpu, _: str(gpu.sms), _sms, COARSE, 2.0, True,
        "L2's bytes per clock with it, as the table of devices fills its blanks: each SM brings its own port; L2's size and DRAM stay",
    ),
    Resource(
        "l2_size", "L2 size", lambda gpu, _: units.binary_size(gpu.l2_bytes), _l2_size, COARSE, 2.0, True,
        "the caches are replayed; L2's rate and latency stay",
    ),
    Resource(
        "l1_size", "L1 size", lambda _, fits: f"{units.binary_size(fits.l1_bytes)} per SM", _l1_size, COARSE, 2.0, True,
        "what this launch's shared memory leaves as cache; the caches are replayed",
    ),
    Resource(
        "registers", "register file", lambda gpu, _: f"{gpu.regs32_sm:,} per SM", _registers, COARSE, 2.0, True,
        "blocks that are resident; registers per thread stay",
    ),
    Resource(
        "shared", "shared memory", lambda gpu, _: f"{gpu.smem_max_kib_sm} KiB per SM", _shared, COARSE, 2.0, True,
        "blocks that are resident; L1 stays",
    ),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ asking the model
_MIXES = (("dram_eta_read", 1.0, 0.0), ("dram_eta_copy", 1.0, 1.0), ("dram_eta_write", 0.0, 1.0))


def _with_dram_eta_of(gpu: Device, changed: Device) -> Device:
    """`changed` with such measured parts of DRAM's rate that the part behind them, model.dram_eta, is what it is on `gpu`."""
    found: dict[str, Any] = {}
    for field, read, write in _MIXES:
        wanted = math.log(model.dram_eta(gpu, read, write))

        def excess(logarithm: float, field: str = field, read: float = read, write: float = write, wanted: float = wanted) -> float:
            tried: Any = {field: math.exp(logarithm)}
            return math.log(model.dram_eta(replace(changed, **tried), read, write)) - wanted

        if abs(math.log(model.dram_eta(changed, read, write)) - wanted) > 1e-12:
            found[field] = math.exp(_root(excess, -20.0, 0.0))
    return replace(changed, **found) if found else changed


def _root(rises: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is 0, by false position (the Illinois rule); an end of the interval where it is 0 nowhere inside."""
    at_low, at_high = rises(low), rises(high)
    if at_low >= 0 or at_high <= 0:
        return low if at_low >= 0 else high
    for _ in range(60):
        middle = high - at_high * (high - low) / (at_high - at_low)
        at_middle = rises(middle)
        if abs(at_middle) < 1e-12:
            return middle
        if at_middle * at_high < 0:
            low, at_low = high, at_high
        else:
            at_low /= 2
        high, at_high = middle, at_middle
    return high


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
        said = model.predict(self.run, moved, _with_dram_eta_of(self.report.device, changed), fits)
        return Point(whole, said.time_s, said.bound, said.bounds)

    def sweep(self, resource: Resource) -> Sweep:
        counts_sms = resource.change is _sms  # with an SM per block a replay would tell nothing new, and take long
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
    sweeps = [asked.sweep(resource) for resource in RESOURCES]
    return Sensitivity(base, tuple(sorted(sweeps, key=lambda sweep: round(sweep.elasticity, 6))))
