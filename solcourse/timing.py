"""Timing of a launch on a real GPU: the definition of `measured`.

Warm-ups; then per repeat, outside the window, the arrays are set back to what they were before the first launch and (cold) L2 is
emptied; inside it nothing but the launch, on the next of several copies of the arrays. Compilation and transfers never inside it.
The median with the confidence interval of its rank. Afterwards what the timed launches left is compared with an earlier launch's.
Source of the procedure: NVIDIA nvbench; the check of timed outputs is GPU MODE's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from solcourse import gpu, nvml, timers
from solcourse.gpu import GpuFacts, figures_of, gpu_name  # noqa: F401  (asked for here by those who only measure)
from solcourse.timed_launch import Outputs, TimedLaunch

if TYPE_CHECKING:
    from solcourse.simt.frontend import LaunchSpec

WARM_UPS = 10
REPEATS = 50
FLUSH_FACTOR = 2  # bytes written before a cold repeat, in L2 sizes
UNKNOWN_L2_BYTES = 128 << 20  # where the driver does not tell its size: as large as any
LOOKS = 10  # at the clock, while the repeats run
# what makes a time doubtful
EVENT_FLOOR_S = 10e-6  # kernels shorter than this: the events themselves add 6-10 µs
FEWEST = 6  # repeats: 2 x 0.5^6 = 3 % of all sixes lie on one side of the median
UNCERTAIN = 0.1  # width of the interval / median
FELL = 0.05  # of the clock
DRIFT = 0.03  # between the first and the last third of the repeats
OUTLIER, OUTLIERS = 1.5, 0.05  # beyond so many medians, and from this part of the repeats on


@dataclass(frozen=True)
class Timing:
    """Times of one kernel. Seconds.

    times_s     one per repeat, in order
    median_s    their median; interval_s: its 95 % confidence interval (low, high)
    cache       "cold": L2 emptied before each repeat; "warm": inputs as the last launch left them
    timer       what took the times, "CUPTI" or "CUDA events"; why_not_cupti: "" if it was CUPTI
    copies      copies of the arrays that the repeats took in turn
    host_s      the host's part of a launch, median
    clocks      looks at the SM clock: before, between and after the repeats; empty where NVML does not tell
    remarks     what to distrust
    registers   per thread, of the machine code that ran; None where numba does not tell
    """

    gpu: GpuFacts
    times_s: tuple[float, ...]
    median_s: float
    interval_s: tuple[float, float]
    cache: str
    timer: str = timers.EVENTS
    why_not_cupti: str = ""
    warm_ups: int = WARM_UPS
    copies: int = 1
    host_s: float = 0.0
    clocks: tuple[nvml.Clock, ...] = ()
    outputs: Outputs | None = None
    remarks: tuple[str, ...] = ()
    registers: int | None = None


# ------------------------------------------------------------------------------------------------------------ statistics
def median_interval(times: Sequence[float]) -> tuple[float, float]:
    """95 % confidence interval of the median by rank: order statistics (n -/+ 1.96 sqrt(n)) / 2, no distribution assumed.

    >>> median_interval(range(1, 101))  # ranks (100 - 19.6) / 2 = 40.2 and 1 + (100 + 19.6) / 2 = 60.8
    (40.0, 61.0)
    """
    ordered, n = sorted(times), len(times)
    half = 1.96 * math.sqrt(n)
    low = max(1, math.floor((n - half) / 2))
    high = min(n, math.ceil(1 + (n + half) / 2))
    return float(ordered[low - 1]), float(ordered[high - 1])


def doubts(timer: str, times_s: Sequence[float], clocks: Sequence[nvml.Clock] = (), power: nvml.Power | None = None) -> tuple[str, ...]:
    """What there is to distrust in raw times, in words."""
    return tuple(said for said in (*_time_doubts(timer, times_s), *_clock_doubts(clocks, power)) if said)


def _time_doubts(timer: str, times_s: Sequence[float]) -> Iterable[str]:
    median, (low, high) = statistics.median(times_s), median_interval(times_s)
    if timer == timers.EVENTS and median < EVENT_FLOOR_S:
        yield (
            f"below {EVENT_FLOOR_S * 1e6:.0f} µs the events themselves weigh 6-10 µs: install cupti-python, or time more work per launch"
        )
    if len(times_s) < FEWEST:
        yield f"{len(times_s)} repeats are too few for 95 % confidence: the interval is all there is, shortest to longest"
    if high - low > UNCERTAIN * median:
        yield f"the median is uncertain by more than {100 * UNCERTAIN:.0f} %: another program, or a changing clock"
    third = len(times_s) // 3
    if third >= 5:
        first, last = times_s[:third], times_s[-third:]
        change = statistics.median(last) / statistics.median(first) - 1
        apart = median_interval(first)[1] < median_interval(last)[0] or median_interval(last)[1] < median_interval(first)[0]
        if apart and abs(change) > DRIFT:
            way = "slower" if change > 0 else "faster"
            yield f"the last third of the repeats is {100 * abs(change):.0f} % {way} than the first: the clock drifts, or the data change"
    far = sum(t > OUTLIER * median for t in times_s)
    if far > OUTLIERS * len(times_s):
        yield f"{far} of {len(times_s)} repeats took over {OUTLIER} medians: something else uses this GPU"


def _clock_doubts(clocks: Sequence[nvml.Clock], power: nvml.Power | None) -> Iterable[str]:
    held_back = dict.fromkeys(reason for clock in clocks for reason in clock.held_back)
    if held_back:
        yield f"the clock was held back: {', '.join(held_back)}"
    if clocks and clocks[-1].sm_mhz < (1 - FELL) * clocks[0].sm_mhz:
        yield f"the clock fell from {clocks[0].sm_mhz:.0f} to {clocks[-1].sm_mhz:.0f} MHz: the GPU is throttling"
    elif clocks and clocks[-1].sm_mhz > (1 + FELL) * clocks[0].sm_mhz:
        yield f"the clock rose from {clocks[0].sm_mhz:.0f} to {clocks[-1].sm_mhz:.0f} MHz: more warm-ups would have been needed"
    if power is not None and power.limit_w < (1 - FELL) * power.default_w:
        yield f"the board's power limit is {power.limit_w:.0f} W; it comes with {power.default_w:.0f} W"


# ------------------------------------------------------------------------------------------------------------- the whole
def time_launches(
    calls: Sequence[tuple[Any, tuple, LaunchSpec]],
    *,
    cache: str = "cold",
    repeats: int = REPEATS,
    warm_ups: int = WARM_UPS,
    timer: str | None = None,
) -> list[tuple[Timing, TimedLaunch]]:
    """Time launches on the current GPU, in turn: A B A B ... calls: numba's `kernel[grid, block]`, its arguments, its LaunchSpec.

    All arrays hold the result of one launch afterwards. Raises NoGPU; TimerFailed where the timer asked for does not work.
    """
    cuda = gpu.require_cuda()
    watch = nvml.Nvml.of(cuda)
    flush = _flusher(cuda) if cache == "cold" else _nothing
    launches = [TimedLaunch(cuda, *call) for call in calls]
    for launch in launches:
        launch.copy(repeats if cache == "cold" else 1)
    for launch in launches:
        launch.for_the_caller(again=len(launches) > 1)
    for launch in launches:
        launch.warm_up(warm_ups, flush)
    clocks: list[nvml.Clock] = []
    every = max(1, repeats // LOOKS)

    def look(k: int) -> Callable[[], None]:
        def prepare() -> None:
            if k % every == 0:
                clocks.extend(filter(None, [watch.clock()]))
            flush()

        return prepare

    def steps() -> list[timers.Step]:
        clocks.clear()
        return [launch.step(k, look(k)) for k in range(repeats) for launch in launches]

    host_s = max((statistics.median(launch.host_s) for launch in launches if launch.host_s), default=0.0)
    times, name, why_not = timers.take(cuda, steps, timer, host_s)
    clocks.extend(filter(None, [watch.clock()]))
    facts, power = gpu.facts(cuda), watch.power()
    timed = []
    for i, launch in enumerate(launches):
        own = times[i :: len(launches)]
        timing = Timing(
            facts, tuple(own), statistics.median(own), median_interval(own), cache, name, why_not, warm_ups, len(launch.copies),
            statistics.median(launch.host_s) if launch.host_s else 0.0, tuple(clocks), launch.check(), doubts(name, own, clocks, power),
            launch.registers(),
        )  # fmt: skip
        timed.append((timing, launch))
    return timed


def _nothing() -> None: ...


def _flusher(cuda: Any) -> Callable[[], None]:
    """Writes FLUSH_FACTOR x L2 bytes: what was cached is gone."""
    words = FLUSH_FACTOR * (gpu.facts(cuda).l2_bytes or UNKNOWN_L2_BYTES) // 4
    scratch, zeros = cuda.device_array(words, np.int32), cuda.to_device(np.zeros(words, np.int32))
    return lambda: scratch.copy_to_device(zeros)
