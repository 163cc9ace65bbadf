"""Two ways of taking a kernel's time on a GPU, and the choice between them: CUPTI's kernel records, else CUDA events.

CUPTI         the GPU's own time stamps of each kernel's start and end: what ncu calls gpu__time_duration. Needs cupti-python.
CUDA events   time stamps before and after it in the stream: the way to and from the kernel is in them, 6-10 µs that kernels of
              that length cannot do without. A kernel that only waits goes ahead, so that the host's part of the launch is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from solcourse.errors import SolcourseError

EVENTS, CUPTI = "CUDA events", "CUPTI"
NAMES = {"events": EVENTS, "cupti": CUPTI}
BUFFER_BYTES = 8 << 20  # for CUPTI's records, at a time
NAP_NS = 20_000
LEAST_HOLD_S = 100e-6
MOST_HOLD_S = 20e-3


class TimerFailed(SolcourseError):
    """This way of taking the time does not work here; the message says why."""


@dataclass(frozen=True)
class Step:
    """One launch to be timed: prepare() comes before the window, launch() into it. stream: numba's, 0 for the default."""

    prepare: Callable[[], None]
    launch: Callable[[], None]
    stream: Any = 0


class Timer(Protocol):
    name: str

    def time(self, steps: Sequence[Step]) -> list[float]:
        """Seconds of each step, in order."""


class EventTimer:
    """CUDA events around each launch. host_s: what the host takes for a launch, which the GPU is kept waiting for."""

    name = EVENTS

    def __init__(self, cuda: Any, host_s: float = 0.0):
        self._cuda = cuda
        hold_s = min(max(4 * host_s, LEAST_HOLD_S), MOST_HOLD_S)
        self._naps = math.ceil(hold_s / (NAP_NS * 1e-9))
        self._wait = _waiting_kernel() if cuda.get_current_device().compute_capability >= (7, 0) else None
        if self._wait is not None:
            self._wait[1, 1](1)  # compiles

    def time(self, steps: Sequence[Step]) -> list[float]:
        return [self._once(step) for step in steps]

    def _once(self, step: Step) -> float:
        cuda = self._cuda
        start, stop = cuda.event(), cuda.event()
        step.prepare()
        if not _is_default(step.stream):  # which need not wait for the default stream, in which it was prepared
            cuda.synchronize()
        if self._wait is not None:
            self._wait[1, 1, step.stream](self._naps)
        start.record(step.stream)
        step.launch()
        stop.record(step.stream)
        stop.synchronize()
        return float(cuda.event_elapsed_time(start, stop)) / 1e3


def _is_default(stream: Any) -> bool:
    """Whether it is CUDA's default stream: 0 or 1, or an object that stands for it."""
    handle = stream.__cuda_stream__()[1] if hasattr(stream, "__cuda_stream__") else stream
    return isinstance(handle, int) and handle in (0, 1)


def _waiting_kernel() -> Any:
    from numba import cuda

    @cuda.jit
    def wait(naps):
        for _ in range(naps):
            cuda.nanosleep(NAP_NS)

    return wait


class CuptiTimer:
    """CUPTI's activity records of the kernels, collected by the package cupti-python."""

    name = CUPTI

    def __init__(self, cuda: Any, cupti: Any = None):
        self._cuda = cuda
        self._cupti = _cupti() if cupti is None else cupti

    def time(self, steps: Sequence[Step]) -> list[float]:
        """Raises TimerFailed where CUPTI does not work, or its records are not those of the launches."""
        records = self._records(steps)
        if len(records) != len(steps):
            raise TimerFailed(f"CUPTI recorded {len(records)} kernels in {len(steps)} launches: something else launches, too")
        if any(end <= start for start, end in records):
            raise TimerFailed("CUPTI gave no times with its records")
        return [(end - start) * 1e-9 for start, end in sorted(records)]

    def _records(self, steps: Sequence[Step]) -> list[tuple[int, int]]:
        cupti, kind = self._cupti, self._cupti.ActivityKind.CONCURRENT_KERNEL
        records: list[tuple[int, int]] = []

        def keep(activities: Sequence[Any]) -> None:
            records.extend((a.start, a.end) for a in activities if a.kind == kind)

        try:
            cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), keep)
            cupti.activity_enable(kind)
        except Exception as error:  # cuptiError; NotSupportedError where a library is missing; a profiler that is there already
            raise TimerFailed(f"CUPTI does not work here ({error or type(error).__name__})") from None
        try:
            for step in steps:
                step.prepare()
                self._cuda.synchronize()
                step.launch()
                self._cuda.synchronize()
            cupti.activity_flush_all(1)  # 1: also buffers that are not full
        finally:
            cupti.activity_disable(kind)
        return records


def _cupti() -> Any:
    try:
        from cupti import cupti
    except ImportError as error:
        raise TimerFailed(f"CUPTI is not installed ({error}): pip install cupti-python") from None
    return cupti


def check(wanted: str | None) -> None:
    """Raises SolcourseError for a timer that does not exist."""
    if wanted is not None and wanted not in NAMES:
        raise SolcourseError(f"timer is {' or '.join(map(repr, NAMES))}, or None for the better one that works; got {wanted!r}.")


def take(cuda: Any, steps: Callable[[], Sequence[Step]], wanted: str | None = None, host_s: float = 0.0) -> tuple[list[float], str, str]:
    """(seconds of each step, name of the timer, why not CUPTI). steps(): the launches, asked for once more where CUPTI fails.

    Raises TimerFailed where CUPTI is wanted and does not work.
    """
    why_not = "asked for"
    if wanted != "events":
        try:
            timer = CuptiTimer(cuda)
            return timer.time(steps()), timer.name, ""
        except TimerFailed as failure:
            if wanted == "cupti":
                raise
            why_not = str(failure)
    return EventTimer(cuda, host_s).time(steps()), EVENTS, why_not
