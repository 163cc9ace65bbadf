"""What a measured Report says of its measurement, alike in text and in HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from solcourse import timers, units

if TYPE_CHECKING:
    from solcourse.report import Report
    from solcourse.timing import Timing


def facts(report: Report) -> list[tuple[str, str]]:
    """(name, words): how the time was taken, in which state of caches and clock, and whether the outputs are right."""
    took: Timing | None = report.timing
    if took is None:
        return []
    said = [("measured with", _timer(took)), ("cache", _cache(took)), ("SM clock", _clock(took)), ("outputs", _outputs(took))]
    if report.prediction is not None:
        low, high = report.prediction.interval_s
        times = f"{units.seconds(report.prediction.time_s)} ({units.seconds(low)} to {units.seconds(high)})"
        ratio = f"measured / predicted = {report.time_s / report.prediction.time_s:.2f}"
        said.append(("predicted", f"{times}; {ratio}, {'inside' if low <= report.time_s <= high else 'outside'} that interval"))
    return said


def alarms(report: Report) -> list[str]:
    """What makes the time worthless."""
    took: Timing | None = report.timing
    if took is None or took.outputs is None or not took.outputs.wrong:
        return []
    cause = (
        "the time is not that of the work. The kernel does less when it is launched again, keeps results from one launch to the next, "
        "or has a race (sol.sanitize finds it)"
    )
    several = f" (and {len(took.outputs.wrong) - 1} more)" if len(took.outputs.wrong) > 1 else ""
    return [f"{took.outputs.wrong[0]}{several}: {cause}"]


def doubts(report: Report) -> list[str]:
    """What to distrust, most of it about the machine."""
    took: Timing | None = report.timing
    if took is None:
        return []
    loose = took.outputs.loose if took.outputs else ()
    return [*took.remarks, *(f"{said}: the order of threads is free (atomics)" for said in loose)]


def _timer(took: Timing) -> str:
    what = "CUPTI kernel records" if took.timer == timers.CUPTI else "CUDA events"
    why = f" ({took.why_not_cupti})" if took.why_not_cupti else ""
    return f"{what}{why}: the median of {len(took.times_s)} launches after {took.warm_ups} warm-ups, and its 95 % confidence interval"


def _cache(took: Timing) -> str:
    if took.cache == "warm":
        return "warm: inputs as the launch before left them, outputs set back before each"
    copies = f"{took.copies} copies of the arrays in turn" if took.copies > 1 else "one copy of the arrays (no memory for more)"
    return f"cold: twice the size of L2 written before each launch; {copies}"


def _clock(took: Timing) -> str:
    if not took.clocks:
        return "unknown: NVML does not tell"
    before, after = (units.clock(took.clocks[i].sm_mhz * 1e6) for i in (0, -1))
    held = any(clock.held_back for clock in took.clocks)
    return f"{before} before, {after} after; {'held back' if held else 'not held back'}"


def _outputs(took: Timing) -> str:
    found = took.outputs
    if found is None:
        return "not looked at"
    if not found.written:
        return "no array was changed: nothing to check, and no sign that anything was computed"
    names = ", ".join(found.written)
    if found.wrong:
        return f"WRONG after the timed launches ({names})"
    return f"{names}: right after the timed launches, checked on {found.checked} of {len(took.times_s)}"
