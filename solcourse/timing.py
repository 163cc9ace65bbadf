"""Timing of a launch on a real GPU: the definition of `measured`. The only module that touches a device.

CUDA events around each launch, after warm-ups; L2 emptied (cold) before each repeat, outside the window; compilation and
transfers never inside it; the median with the confidence interval of its rank. Source of the procedure: NVIDIA nvbench.
"""

from __future__ import annotations

import math
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from solcourse.errors import NoGPU, UnknownName
from solcourse.hardware import Device, devices

WARM_UPS = 10
EVENT_FLOOR_S = 10e-6  # kernels shorter than this: the events themselves add 6-10 µs
FLUSH_FACTOR = 2  # bytes written before a cold repeat, in L2 sizes
DRIVER_NAMES = {"NVIDIA H100 80GB HBM3": "H100-SXM5-80GB"}  # the driver names this one without its form factor
CURE = (
    "sol.profile(...) predicts the time without a GPU. To measure, use a machine with an NVIDIA GPU and driver (a free Colab or "
    "Kaggle GPU runtime will do) and install numba-cuda[cu13], or numba-cuda[cu12] for an older driver; `solcourse doctor` checks."
)


@dataclass(frozen=True)
class Timing:
    """Times of one kernel. Seconds.

    times_s     one per repeat, in order
    median_s    their median; interval_s: its 95 % confidence interval (low, high)
    cache       "cold": L2 emptied before each repeat; "warm": left as it was
    backend     what took the times
    remark      what to distrust, "" if nothing
    clocks_mhz  SM clock before and after the repeats; None where nvidia-smi does not tell
    """

    gpu: str
    times_s: tuple[float, ...]
    median_s: float
    interval_s: tuple[float, float]
    cache: str
    backend: str = "CUDA events"
    remark: str = ""
    clocks_mhz: tuple[float, float] | None = None


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


def summary(gpu: str, times_s: Sequence[float], cache: str, clocks_mhz: tuple[float, float] | None = None) -> Timing:
    """A Timing from raw times, with what there is to distrust in them."""
    median = statistics.median(times_s)
    low, high = median_interval(times_s)
    remarks = []
    if median < EVENT_FLOOR_S:
        remarks.append(f"below {EVENT_FLOOR_S * 1e6:.0f} µs the events themselves weigh 6-10 µs: time more work per launch")
    if high - low > 0.1 * median:
        remarks.append("the median is uncertain by more than 10 %: another program, or a changing clock")
    if clocks_mhz and clocks_mhz[1] < 0.95 * clocks_mhz[0]:
        remarks.append(f"the clock fell from {clocks_mhz[0]:.0f} to {clocks_mhz[1]:.0f} MHz: the GPU is throttling")
    return Timing(gpu, tuple(times_s), median, (low, high), cache, remark="; ".join(remarks), clocks_mhz=clocks_mhz)


def sm_clock_mhz() -> float | None:
    """The first GPU's SM clock now, as nvidia-smi says; None where it does not."""
    command = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    try:
        return float(subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def gpu_name() -> str:
    """The name of the current GPU, as its driver gives it. Raises NoGPU, with the reason and a cure."""
    return str(_text(_cuda().get_current_device().name))


def figures_of(gpu: str) -> Device:
    """The published figures of a GPU by its driver's name, e.g. 'NVIDIA A100-SXM4-80GB' or 'NVIDIA H100 80GB HBM3'.

    Raises UnknownName: there are none; a near relative's would give a wrong score without saying so.
    """

    def words(name: str) -> set[str]:
        return set(name.lower().replace("-", " ").split()) - {"nvidia", "geforce", "tesla"}

    wanted = words(DRIVER_NAMES.get(gpu, gpu))
    fitting = [d for d in devices() if wanted <= words(d.name)]
    if not fitting:
        raise UnknownName("device", gpu, [d.name for d in devices()])
    return min(fitting, key=lambda d: len(words(d.name) - wanted))


def time_launch(launch: Any, args: tuple, *, cache: str = "cold", repeats: int = 50, warm_ups: int = WARM_UPS) -> Timing:
    """Time numba's `kernel[grid, block]` on the current GPU. Host arrays are moved once, and hold one launch's result after.

    Raises NoGPU.
    """
    cuda = _cuda()
    on_device, first_results = _move(cuda, args)
    launch(*on_device)  # compiles
    cuda.synchronize()
    first_results()
    for _ in range(warm_ups):
        launch(*on_device)
    flush = _flusher(cuda) if cache == "cold" else lambda: None
    before = sm_clock_mhz()
    times = [_time_once(cuda, lambda: launch(*on_device), flush) for _ in range(repeats)]
    after = sm_clock_mhz()
    return summary(gpu_name(), times, cache, (before, after) if before and after else None)


def _time_once(cuda: Any, work: Callable[[], None], before: Callable[[], None]) -> float:
    start, stop = cuda.event(), cuda.event()
    before()
    cuda.synchronize()
    start.record()
    work()
    stop.record()
    stop.synchronize()
    return float(cuda.event_elapsed_time(start, stop)) / 1e3


def _flusher(cuda: Any) -> Callable[[], None]:
    """Writes FLUSH_FACTOR x L2 bytes: what was cached is gone."""
    import numpy as np

    words = FLUSH_FACTOR * cuda.get_current_device().L2_CACHE_SIZE // 4
    scratch, zeros = cuda.device_array(words, np.int32), cuda.to_device(np.zeros(words, np.int32))
    return lambda: scratch.copy_to_device(zeros)


def _move(cuda: Any, args: tuple) -> tuple[tuple, Callable[[], None]]:
    """(arguments with host arrays on the device, what copies them back)."""
    import numpy as np

    moved = [cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in args]

    def back() -> None:
        for host, device in zip(args, moved, strict=True):
            if isinstance(host, np.ndarray) and host.flags.writeable:
                device.copy_to_host(host)

    return tuple(moved), back


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _cuda() -> Any:
    """numba.cuda with a working GPU behind it. Raises NoGPU."""
    from numba import cuda
    from numba.core import config

    if getattr(config, "ENABLE_CUDASIM", False):
        raise NoGPU(f"NUMBA_ENABLE_CUDASIM is set: numba.cuda is a simulator. Unset it and restart Python. {CURE}")
    try:
        cuda.current_context()
    except Exception as error:  # the driver's absence shows as ImportError, CudaSupportError, DynamicLibNotFoundError ...
        reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        detail = cuda.cuda_error() or reason[0]
        raise NoGPU(
            f"There is no usable NVIDIA GPU here ({' '.join(str(detail).split())}). {CURE}"
        ) from None  # the driver's own traceback helps nobody
    return cuda
