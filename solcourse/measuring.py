"""From launches to measured Reports: which figures to score against, what was timed, what the engine says of the same launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from solcourse import gpu, report, timing, units
from solcourse.comparison import Comparison
from solcourse.hardware import Device
from solcourse.hardware import device as find_device
from solcourse.launch_arrays import difference
from solcourse.timed_launch import EXPLAINED, TimedLaunch
from solcourse.timing import Timing

if TYPE_CHECKING:
    from solcourse.report import Report
    from solcourse.simt.frontend import LaunchSpec
    from solcourse.simt.records import EngineRun
    from solcourse.work import Work

SAME_CLOCK = 0.05
Call = tuple[Any, tuple, "LaunchSpec"]  # numba's kernel[grid, block], its arguments, its dimensions
OnEngine = Callable[["LaunchSpec", tuple, Device, "int | None"], "EngineRun"]


def measure(
    calls: Sequence[Call],
    *,
    device: str | Device | None = None,
    work: Work | None = None,
    cache: str = "cold",
    baseline_s: float | None = None,
    on_engine: OnEngine | None = None,
    **options: Any,
) -> tuple[list[Report], list[TimedLaunch]]:
    """Reports of launches timed in turn. device: whose figures; None: the GPU's own. on_engine(spec, args, figures, registers): a
    counted run of the same launch; None: counts are not wanted. options: of timing.time_launches.

    Raises NoGPU; UnknownName for a GPU without figures, which says how to give them; TimerFailed.
    """
    facts = gpu.facts(gpu.require_cuda())
    figures = gpu.figures_for(facts) if device is None else find_device(device)
    timed = timing.time_launches(calls, cache=cache, **options)
    reports = []
    for took, launch in timed:
        run, remarks = None, list(_doubts_of_figures(took, figures))
        if on_engine is not None:
            arrays = [part.of(launch.before[part.region]).copy(order="K") for part in launch.arrays.parts]
            run = on_engine(launch.spec, launch.arrays.filled(arrays), figures, took.registers)
            remarks += _doubts_of_results(launch, arrays) if run.sampled_blocks is None else []
        took = replace(took, remarks=(*took.remarks, *remarks))
        name = launch.spec.dispatcher.py_func.__name__
        made = report.measured(
            name, figures, took.median_s, took.interval_s, work=work, run=run, launch_s=took.host_s, cache=cache, baseline_s=baseline_s,
            registers=took.registers, timing=took,
        )  # fmt: skip
        reports.append(replace(made, grid=launch.spec.grid, block=launch.spec.block))
    return reports, [launch for _, launch in timed]


def compare(calls: Sequence[Call], **options: Any) -> Comparison:
    """Two launches timed in turn, A B A B ...: both Reports, and the ratio of their times. options: of `measure`."""
    (a, b), (first, second) = measure(calls, **options)
    ratios = [x / y for x, y in zip(a.timing.times_s, b.timing.times_s, strict=True)]
    middle, interval = float(np.median(ratios)), timing.median_interval(ratios)
    return Comparison(a, b, middle, interval, tuple(_unlike_results(first, second)))


# ------------------------------------------------------------------------------------------------------- what to distrust
def _doubts_of_figures(took: Timing, figures: Device) -> Iterator[str]:
    for said in gpu.differences(took.gpu, figures):
        yield f"the driver of the {took.gpu.name} says otherwise than the figures of the {figures.name}: {said}"
    if took.clocks:
        ran = max(clock.sm_mhz for clock in took.clocks)
        if abs(ran / figures.boost_mhz - 1) > SAME_CLOCK:
            now, peak = units.clock(ran * 1e6), units.clock(figures.boost_mhz * 1e6)
            yield f"the SMs ran at {now}; peaks of arithmetic are those at {peak}"


def _doubts_of_results(launch: TimedLaunch, arrays: Iterable[np.ndarray]) -> list[str]:
    """Where the GPU's result is not the engine's. arrays: the engine's, in the order of the launch's."""
    found = []
    for part, engine in zip(launch.arrays.parts, arrays, strict=True):
        before = part.of(launch.before[part.region])
        unlike = difference(part.name, engine, part.of(launch.result[part.region]), before)
        if unlike is not None and unlike.kind not in EXPLAINED:
            found.append(f"the GPU's result is not the engine's: {unlike}. `sol.sanitize` may know why")
    return found


def _unlike_results(a: TimedLaunch, b: TimedLaunch) -> Iterator[str]:
    """Where two launches with equal inputs left other results: only arrays of equal shape and dtype in the same place are compared."""
    pairs = [(p, q) for p, q in zip(a.arrays.parts, b.arrays.parts, strict=False) if (p.shape, p.dtype) == (q.shape, q.dtype)]
    if len(pairs) < max(len(a.arrays.parts), len(b.arrays.parts)):
        return
    written = set(a.outputs.written) | set(b.outputs.written)
    for p, q in pairs:
        if p.name not in written and not np.array_equal(a.before[p.region], b.before[q.region]):
            return
    for p, q in pairs:
        unlike = difference(p.name, p.of(a.result[p.region]), q.of(b.result[q.region]), p.of(a.before[p.region]))
        if unlike is not None and unlike.kind not in EXPLAINED:
            yield f"B does not compute what A computes: {unlike}"
