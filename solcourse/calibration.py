"""calibrate(): a Device with three of its figures measured on the GPU at hand, the ones that differ from board to board.

    clock_derate        SM clock under load / boost clock, from a chain of dependent multiply-adds: lat_alu cycles each
    dram_eta_*          reached part of the data sheet's DRAM rate, from a copy far larger than L2
    launch_us_stream    start-up of a kernel in a stream, from one that does nothing

Differences of two sizes, so that what does not grow with the size drops out. `figures` is arithmetic on times, wherever they come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numba import cuda

from solcourse.errors import SolcourseError
from solcourse.hardware import Device
from solcourse.hardware import device as find_device

CHAIN = 64  # multiply-adds per turn of the loop, written out below, so that the turn itself is under 1 % of them
TURNS = (300, 1_000)
THREADS = 32  # one warp per SM: latency, and no contention
COPY_BYTES = (1 << 26, 1 << 28)  # of one array
COPY_L2 = (2, 8)  # and at least so many times L2
COPY_THREADS = 256
PLAUSIBLE = {"clock_derate": (0.2, 1.2), "dram_eta_copy": (0.3, 1.0), "launch_us_stream": (0.2, 50.0)}
WITH_READ, WITH_WRITE = (1.08, 0.98), (1.1, 0.95)  # eta of reads and of writes from that of a copy, as in devices.toml: factor, at most

LAUNCHES = (10, 50)  # one behind the other
Seconds = Callable[..., float]  # (kernel[grid, block], *arguments, times=1) -> seconds that so many launches take, one behind the other


@cuda.jit
def fma_chain(out, a, b, turns):
    """CHAIN multiply-adds per turn, each waiting for the one before."""
    x = a
    for _ in range(turns):
        x = (((((((x * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b
        x = (((((((x * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b
        x = (((((((x * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b
        x = (((((((x * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b
        x = (((((((x * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b
        x = (((((((x * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b
        x = (((((((x * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b
        x = (((((((x * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b) * a + b
    out[cuda.grid(1)] = x


@cuda.jit
def copy(src, dst):
    i = cuda.grid(1)
    if i < dst.size:
        dst[i] = src[i]


@cuda.jit
def nothing(out):
    if out.size == 0:
        out[0] = 1


def calibrate(device: str | Device | None = None, *, timer: str | None = None, repeats: int = 20) -> Device:
    """The figures of the current GPU with clock, DRAM efficiency and start-up measured here, for `device=` of profile and measure.

    device: the figures to begin with; None: the GPU's own. The result's `sources` say what was measured and how.
    Raises NoGPU; UnknownName for a GPU without figures; SolcourseError where a result cannot be right.
    """
    from solcourse import gpu as driver
    from solcourse import timing
    from solcourse.simt import frontend

    here = driver.facts(driver.require_cuda())
    base = driver.figures_for(here) if device is None else find_device(device)

    def seconds(launch: Any, *args: Any, times: int = 1) -> float:
        def several(*arrays: Any) -> None:
            for _ in range(times):
                launch(*arrays)

        call = (several, args, frontend.launch_of(launch))
        ((took, _),) = timing.time_launches([call], repeats=repeats, timer=timer if times == 1 else "events")
        return took.median_s

    return calibrated(base, figures(base, seconds, cuda.device_array), f"measured on this {here.name} by sol.calibrate()")


def figures(base: Device, seconds: Seconds, array: Callable[[int, Any], Any] = np.zeros) -> dict[str, float]:
    """The three figures from the times of the three kernels. array(n, dtype): where they work."""
    return {
        "clock_derate": sm_clock_hz(base, seconds, array) / (base.boost_mhz * 1e6),
        "dram_eta_copy": copy_bytes_per_s(base, seconds, array) / base.dram_bytes_per_s,
        "launch_us_stream": start_up_s(base, seconds, array) * 1e6,
    }


def start_up_s(base: Device, seconds: Seconds, array: Callable[[int, Any], Any]) -> float:
    """Time of many launches of a kernel that does nothing less that of few / how many more they are."""
    few, many = (seconds(nothing[base.sms, THREADS], array(1, np.float32), times=times) for times in LAUNCHES)
    return (many - few) / (LAUNCHES[1] - LAUNCHES[0])


def sm_clock_hz(base: Device, seconds: Seconds, array: Callable[[int, Any], Any]) -> float:
    """Cycles of the longer chain less those of the shorter / the difference of their times."""
    out = array(base.sms * THREADS, np.float32)
    short, long = (seconds(fma_chain[base.sms, THREADS], out, np.float32(0.5), np.float32(1), turns) for turns in TURNS)
    cycles = (TURNS[1] - TURNS[0]) * CHAIN * base.lat_alu
    return cycles / max(long - short, 1e-12)


def copy_bytes_per_s(base: Device, seconds: Seconds, array: Callable[[int, Any], Any]) -> float:
    """Bytes read and written by the larger copy less the smaller / the difference of their times."""
    sizes = [max(size, factor * base.l2_bytes) // 4 for size, factor in zip(COPY_BYTES, COPY_L2, strict=True)]
    times = [seconds(copy[-(-n // COPY_THREADS), COPY_THREADS], array(n, np.float32), array(n, np.float32)) for n in sizes]
    return 2 * 4 * (sizes[1] - sizes[0]) / max(times[1] - times[0], 1e-12)


def calibrated(base: Device, found: dict[str, float], source: str) -> Device:
    """The device with these figures in place of its own. Raises SolcourseError for one that cannot be right."""
    for name, value in found.items():
        low, high = PLAUSIBLE[name]
        if not low <= value <= high:
            raise SolcourseError(
                f"Calibration found {name} = {value:.3g} for {base.name}, which is not between {low} and {high}: are these the figures of "
                "this GPU, and is nothing else running on it? sol.measure(...) of one of your kernels says more."
            )
    own = {name: round(value, 4) for name, value in found.items()}
    derived = {"dram_eta_read": WITH_READ, "dram_eta_write": WITH_WRITE}
    own |= {name: round(min(most, factor * own["dram_eta_copy"]), 4) for name, (factor, most) in derived.items()}
    sources = {**base.sources, **dict.fromkeys(found, source), **dict.fromkeys(derived, f"from dram_eta_copy, {source}")}
    return replace(base, **own, flagged=(base.flagged - set(found)) | set(derived), sources=sources)  # type: ignore[arg-type]
