"""What a device has more or less of, and what scales with what when one of these is changed. The definition of RESOURCES.

Two things are held on purpose:
- the start of a launch, the latencies in cycles up to L2, and the path from L2 into each SM (32 bytes per clock);
- what DRAM reaches of its rate where nothing else slows it. The table's `dram_eta_*` were measured with the device's own L2, SMs and
  clock in the way, which the model takes off; on a changed device as much must be taken off as before, or a faster L2 would
  make DRAM slower (`with_dram_eta_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from solcourse import model, units
from solcourse.errors import LaunchError
from solcourse.hardware import KIB, PEAK_COLUMNS, Device
from solcourse.occupancy import Occupancy
from solcourse.occupancy import occupancy as occupancy_of

if TYPE_CHECKING:
    from solcourse.report import Report

FINE = tuple(2.0 ** (n / 2) for n in range(-4, 5))  # a quarter to four times, in steps of the square root of two
COARSE = (0.25, 0.5, 1.0, 2.0, 4.0)  # where each step replays the caches
ENDLESS = 1e6  # a rate or size so many times as large takes no time, or holds everything
ENDLESS_L1 = 64.0  # the replay keeps every line of every SM: no more than is sure to hold a traced launch


@dataclass(frozen=True)
class Resource:
    """Something a device has so and so much of.

    change   (report, factor) -> its device and occupancy, changed. Raises LaunchError where no block fits any more
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


# ---------------------------------------------------------------------------------------------------- what DRAM reaches
_MIXES = (("dram_eta_read", 1.0, 0.0), ("dram_eta_copy", 1.0, 1.0), ("dram_eta_write", 0.0, 1.0))


def with_dram_eta_of(gpu: Device, changed: Device) -> Device:
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
