"""What a report's counts say should be looked at, in plain words. Each rule is one function: Report -> pieces of Advice.
The rules about memory are in advice_memory.py.

Advice follows from counts, never from the time alone, and names the source line where there is one. No rule fires on a kernel
that does the thing well: silence is the normal result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from solcourse import diagnosis, figures, units
from solcourse.advice_memory import atomics, bank_conflicts, local_memory, refetched, reuse, scattered
from solcourse.diagnosis import NOTABLE, Advice
from solcourse.simt.records import WARP

if TYPE_CHECKING:
    from solcourse.report import Report

__all__ = ["RULES", "Advice", "advise"]

FEW_WARPS = 0.5  # of what an SM can hold
GAP = 0.8  # of the attainable score: below that silence would be no help
Rule = Callable[["Report"], Iterator[Advice]]


def _alarm(report: Report) -> Iterator[Advice]:
    if report.alarm:
        yield Advice("alarm", str(report.alarm))


def _float64(report: Report) -> Iterator[Advice]:
    """float64 arithmetic though every array in global memory holds numbers of at most 4 bytes."""
    doubles = diagnosis.accidental_float64(report)
    if not doubles:
        return
    lines = [line.line for line in report.lines if line.counts.flops.get("fp64", 0)]
    where = f"Line {lines[0]}" if len(lines) == 1 else f"Lines {', '.join(map(str, lines))}" if lines else "The kernel"
    slower = units.factor(report.device.peak_flops_per_s("fp32") / report.device.peak_flops_per_s("fp64"))
    cost = f"On this GPU float64 runs {slower} slower."
    if not diagnosis.float64_costs(report):
        cost = f"It costs nothing here ({figures.bound_words(report.bound)} binds), and {slower} the time where arithmetic binds."
    yield Advice(
        "float64",
        f"{where}: {units.count(doubles)} float64 operations, though every array holds numbers of 4 bytes or fewer. A literal such as 2.0, "
        f"and int64 with float32, make float64 in numba: write np.float32(2.0). {cost}",
        lines[0] if lines else 0,
    )


def _small_blocks(report: Report) -> Iterator[Advice]:
    threads = report.block[0] * report.block[1] * report.block[2]
    blocks = report.grid[0] * report.grid[1] * report.grid[2]
    if 0 < threads < WARP:
        swapped = " Were grid and block swapped?" if blocks > threads else ""
        yield Advice("small_blocks", f"Blocks of {_threads(threads)} use {threads} of a warp's {WARP} lanes.{swapped}")
    elif threads % WARP and threads < 8 * WARP:
        yield Advice(
            "small_blocks", f"Blocks of {_threads(threads)}: the last warp has {-threads % WARP} idle lanes. Use a multiple of {WARP}."
        )


def _threads(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"


def _few_blocks(report: Report) -> Iterator[Advice]:
    blocks = report.grid[0] * report.grid[1] * report.grid[2]
    sms, per_sm = report.device.sms, report.occupancy.blocks_per_sm if report.occupancy else 0
    if 0 < blocks < sms:
        yield Advice(
            "few_blocks",
            f"{blocks} block{'' if blocks == 1 else 's'} on {sms} SMs: {sms - blocks} SMs have nothing to do. "
            f"At least {sms} blocks, better {2 * sms} and more, fill this GPU.",
        )
    elif per_sm and blocks > sms * per_sm:
        waves = blocks / (sms * per_sm)
        if waves / math.ceil(waves) < 0.75:
            rest = blocks - math.floor(waves) * sms * per_sm
            yield Advice("tail", f"{waves:.2f} waves: in the last one {units.count(rest)} of {units.count(sms * per_sm)} places are taken.")


def _latency(report: Report) -> Iterator[Advice]:
    held, filled = report.occupancy, diagnosis.filled_warps(report)
    if report.bound != "latency" or held is None:
        return
    warps = held.warps_per_sm if filled is None else filled
    if warps < FEW_WARPS * held.max_warps:
        why = f"limited by {held.limiter.replace('_', ' ')}" if filled is None else "the grid has no more blocks"
        yield Advice(
            "occupancy",
            f"Latency binds, and an SM holds {warps} of {held.max_warps} warps ({why}). "
            "More warps, or more independent loads in each thread, hide the waiting.",
        )


def _divergence(report: Report) -> Iterator[Advice]:
    lanes, threads = report.counts.average_active_lanes, report.block[0] * report.block[1] * report.block[2]
    if report.counts.divergent_branches and threads % WARP == 0 and 0 < lanes < 24:
        yield Advice(
            "divergence", f"On average {lanes:.1f} of {WARP} lanes do something: branches whose lanes disagree run both ways in turn."
        )


def _index_arithmetic(report: Report) -> Iterator[Advice]:
    """Integer instructions in the way of FLOPs: the pipe they share is busy far longer than the FLOPs need."""
    flops, integers = report.counts.total_flops, report.counts.int_ops
    busy, needed = report.bounds.get(report.bound, 0.0), diagnosis.flop_time_s(report)
    if report.bound in ("issue", "pipe_alu", "pipe_fma") and flops and integers > flops and busy > 2 * needed:
        hot = max(report.lines, key=lambda line: line.counts.int_ops, default=None)
        where = f"Line {hot.line}: the" if hot else "The"
        yield Advice(
            "index_arithmetic",
            f"{where} {figures.bound_words(report.bound)} is busy for {units.seconds(busy)}, though the FLOPs alone need "
            f"{units.seconds(needed)}: {integers / flops:.1f} integer operations for each FLOP, mostly for indices, which numba makes "
            "signed and 64 bits wide. Hoist index sums out of the loop, avoid // and %; np.uint64 or int32 indices need fewer.",
            hot.line if hot else 0,
        )


def _shared_loads(report: Report) -> Iterator[Advice]:
    """Loads from shared memory that keep the arithmetic waiting: one output per thread reuses nothing."""
    each, loads = diagnosis.shared_loads_per_fma(report), report.counts.shared_load.requests
    if report.bound in ("lsu", "l1") and each > 0.75 and loads > 0.5 * diagnosis.requests(report.counts):
        hot = max(report.lines, key=lambda line: line.counts.shared_load.requests, default=None)
        yield Advice(
            "shared_loads",
            f"{f'Line {hot.line}: ' if hot else ''}{each:.1f} loads from shared memory for each multiply-add, and loading binds. "
            "Let each thread compute several outputs, so that a value loaded into a register serves several of them.",
            hot.line if hot else 0,
        )


def _at_the_ceiling(report: Report) -> Iterator[Advice]:
    if diagnosis.float32_sol_time_s(report) is not None:
        return  # a ceiling that float64 lowered
    if report.attainable_score and 0.95 * report.attainable_score <= (report.sol_score or 0.0) <= 1:
        next_step = "Only moving fewer bytes is faster: fuse it with the kernel before or after it." if report.sol_bound == "dram" else ""
        yield Advice(
            "at_the_ceiling", f"This is what the device can give (attainable {units.score(report.attainable_score)}). {next_step}".strip()
        )


def _too_small(report: Report) -> Iterator[Advice]:
    start = report.bounds.get("launch", 0.0)
    if start > 0.5 * report.time_s:
        what = f"Starting a kernel takes {units.seconds(start)}, more than half of the time."
        yield Advice("too_small", f"{what} Give it more work, or fuse it with its neighbours.")


# What helps where a bound wins and no rule above knows more
_HELPS = {
    "issue": "fewer instructions: do more with each, or hoist what does not change out of the loop",
    "register_file": "instructions with fewer different registers: a value used by several in a row is read once",
    "lsu": "fewer memory instructions: wider loads, or values kept in registers",
    "l1": "fewer wavefronts: accesses side by side, and values kept in registers",
    "fill": "less data from L2: a tile kept in shared memory or registers",
    "l2": "less data from L2: a tile kept in shared memory or registers",
    "dram": "fewer bytes: each one read and written once",
    "latency": "more to do while waiting: more warps, or more independent work in each thread",
    "atomic": "fewer atomics on global memory: add up inside a block or a warp first",
    "constant": "lanes that read the same constant at the same time",
}


def _fallback(report: Report, said: Sequence[Advice]) -> Iterator[Advice]:
    """A gap and nothing said about it: name the bound, the line, and what helps in general."""
    score, best = report.sol_score, report.attainable_score
    if said or score is None or not best or score > GAP * best or report.bound not in report.bounds or report.bound == "launch":
        return
    took = f"{units.seconds(report.bounds[report.bound])} of {units.seconds(report.time_s)}"
    hot = next((line for line in report.hot_lines if line.share >= NOTABLE), None)
    where = f", {100 * hot.share:.0f} % of the time in line {hot.line}" if hot else ""
    helps = _HELPS.get(report.bound, "less work for that pipe: fewer or cheaper operations")
    yield Advice("bound", f"Bound by {figures.bound_words(report.bound)} ({took}{where}). What helps is {helps}.", hot.line if hot else 0)


RULES: tuple[Rule, ...] = (
    _alarm, _float64, _small_blocks, scattered, bank_conflicts, reuse, _shared_loads, _index_arithmetic, refetched,
    local_memory, atomics, _divergence, _latency, _few_blocks, _at_the_ceiling, _too_small,
)  # fmt: skip


def advise(report: Report) -> tuple[Advice, ...]:
    """Everything the rules have to say about `report`, in the order of RULES; where they are silent about a wide gap, what binds."""
    said = [advice for rule in RULES for advice in rule(report)]
    return (*said, *_fallback(report, said))
