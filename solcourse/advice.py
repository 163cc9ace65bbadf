"""What a report's counts say should be looked at, in plain words. Each rule is one function: Report -> pieces of Advice.

Advice follows from counts, never from the time alone, and names the source line where there is one. No rule fires on a kernel
that does the thing well: silence is the normal result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from solcourse import units
from solcourse.simt.records import SECTOR_BYTES, WARP, AccessCounts, LineCounts

if TYPE_CHECKING:
    from solcourse.report import Report

NOTABLE = 0.1  # of the kernel's total: below that a line is left alone
FEW_WARPS = 0.5  # occupancy
ABSORBED = 1.2  # DRAM bytes / compulsory bytes up to which the caches hide a scattered access


@dataclass(frozen=True)
class Advice:
    """kind: the rule; text: what was seen and what to try; line: the source line it speaks of, 0 for the whole launch."""

    kind: str
    text: str
    line: int = 0


Rule = Callable[["Report"], Iterator[Advice]]


def _alarm(report: Report) -> Iterator[Advice]:
    if report.alarm:
        yield Advice("alarm", str(report.alarm))


def _float64(report: Report) -> Iterator[Advice]:
    """float64 arithmetic though every array in global memory holds numbers of at most 4 bytes."""
    sites = [s for s in report.run.program.sites if s.kind.startswith("global")] if report.run else []
    doubles = report.counts.flops.get("fp64", 0)
    if not doubles or not sites or max(s.size for s in sites) > 4:
        return
    lines = [line.line for line in report.lines if line.counts.flops.get("fp64", 0)]
    where = f"Line {lines[0]}" if len(lines) == 1 else f"Lines {', '.join(map(str, lines))}" if lines else "The kernel"
    slower = report.device.peak_flops_per_s("fp32") / report.device.peak_flops_per_s("fp64")
    yield Advice(
        "float64",
        f"{where}: {units.count(doubles)} float64 operations, though every array holds numbers of 4 bytes or fewer. A literal such as 2.0, "
        f"and int64 with float32, make float64 in numba: write np.float32(2.0). On this GPU float64 runs {units.factor(slower)} slower.",
        lines[0] if lines else 0,
    )


def _ideal_sectors(access: AccessCounts) -> float:
    """Sectors per request if the active lanes' bytes lay side by side."""
    return max(1.0, math.ceil(access.bytes / access.requests / SECTOR_BYTES))


def _accesses(report: Report) -> list[tuple[int, str, str, AccessCounts]]:
    """(line, "load" or "store", array, counts) of global memory; by array where the engine knows it, else by line."""
    words = {"global_load": "load", "global_store": "store"}
    sums: dict[tuple[int, str, str], AccessCounts] = {}
    for site, counted in zip(report.run.program.sites, report.run.site_counts, strict=True) if report.run else ():
        if site.kind in words:
            key = (site.line, words[site.kind], site.array)
            sums[key] = sums.get(key, AccessCounts()) + counted
    if not sums:
        sums = {(line.line, word, ""): getattr(line.counts, kind) for line in report.lines for kind, word in words.items()}
    return [(*key, access) for key, access in sums.items() if access.requests]


def _cure(report: Report) -> str:
    moved, needed = report.dram_bytes, report.work.compulsory_bytes
    cure = "Neighbouring threads reach for addresses far apart: let threadIdx.x run along the dimension that is contiguous in memory."
    if moved is None or not needed or moved > ABSORBED * needed:
        return cure
    if report.bound in ("l1", "fill", "l2"):
        return f"DRAM moves little more than it must, but every sector passes through the caches. {cure}"
    return "The caches absorb it here: DRAM moves little more than it must."


def _scattered(report: Report) -> Iterator[Advice]:
    """Global loads or stores that pull far more sectors than their bytes need."""
    accesses = _accesses(report)
    total = sum(access.sectors for *_, access in accesses)
    for line, word, array, access in accesses:
        ideal = _ideal_sectors(access)
        if access.sectors >= NOTABLE * total and access.sectors_per_request > 1.5 * ideal:
            name = f" of {array}" if array else ""
            pulled = f"each {word}{name} pulls {access.sectors_per_request:.1f} sectors where {ideal:.0f} would do"
            yield Advice("scattered", f"Line {line}: {pulled}. {_cure(report)}", line)


def _shared(line: LineCounts) -> AccessCounts:
    return line.counts.shared_load + line.counts.shared_store


def _bank_conflicts(report: Report) -> Iterator[Advice]:
    total = report.counts.shared_load.wavefronts + report.counts.shared_store.wavefronts
    for line in report.lines:
        access = _shared(line)
        if not access.bank_conflicts or access.bank_conflicts < NOTABLE * total:
            continue
        each = access.wavefronts / access.requests
        needed = (access.wavefronts - access.bank_conflicts) / access.requests
        yield Advice(
            "bank_conflicts",
            f"Line {line.line}: {each:.1f} wavefronts per shared-memory request where {needed:.0f} would do: lanes meet in the same bank. "
            "Pad the row by one element ([32][33]) or swizzle the index.",
            line.line,
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
    if report.bound == "latency" and report.occupancy and report.occupancy.fraction < FEW_WARPS:
        held = report.occupancy
        yield Advice(
            "occupancy",
            f"Latency binds, and an SM holds {held.warps_per_sm} of {held.max_warps} warps (limited by {held.limiter.replace('_', ' ')}). "
            "More warps, or more independent loads in each thread, hide the waiting.",
        )


def _divergence(report: Report) -> Iterator[Advice]:
    lanes, threads = report.counts.average_active_lanes, report.block[0] * report.block[1] * report.block[2]
    if report.counts.divergent_branches and threads % WARP == 0 and 0 < lanes < 24:
        yield Advice(
            "divergence", f"On average {lanes:.1f} of {WARP} lanes do something: branches whose lanes disagree run both ways in turn."
        )


def _local_memory(report: Report) -> Iterator[Advice]:
    if report.spill_bytes:
        yield Advice("spills", f"{report.spill_bytes} bytes per thread do not fit in registers and go through local memory.")
    local = report.counts.local_load + report.counts.local_store
    everything = report.counts.global_load + report.counts.global_store + local
    if local.sectors > NOTABLE * everything.sectors:
        lines = [line.line for line in report.lines if (line.counts.local_load + line.counts.local_store).requests]
        where = f"Line {lines[0]}: a" if lines else "A"
        text = "local array stays in memory, because its index is not known when compiling. Loops of fixed length let it live in registers."
        yield Advice("local_memory", f"{where} {text}", lines[0] if lines else 0)


def _atomics(report: Report) -> Iterator[Advice]:
    contended = report.run.same_address_atomics if report.run else 0
    if report.bound == "atomic" and contended > 1:
        lines = [line.line for line in report.lines if line.counts.global_atomic.requests]
        yield Advice(
            "atomics",
            f"{units.count(contended)} atomic operations meet at one address, and are done one after the other. "
            "Let each block add up in shared memory first, and add once to global memory.",
            lines[0] if lines else 0,
        )


def _index_arithmetic(report: Report) -> Iterator[Advice]:
    flops, integers = report.counts.total_flops, report.counts.int_ops
    if report.bound in ("issue", "pipe_alu", "pipe_fma") and flops and integers > 4 * flops:
        yield Advice(
            "index_arithmetic",
            f"{integers / flops:.0f} integer operations for each FLOP, and instructions bind: numba's indices are signed and 64 bits wide. "
            "Hoist index sums out of the loop; while loops and np.uint64 indices need fewer.",
        )


def _refetched(report: Report) -> Iterator[Advice]:
    moved, needed = report.dram_bytes, report.work.compulsory_bytes
    if report.bound == "dram" and moved and needed and moved > 1.5 * needed and not any(_scattered(report)):
        yield Advice(
            "refetched",
            f"DRAM moves {units.factor(moved / needed)} the compulsory bytes: the same data is fetched again. "
            "Keep a tile of it in shared memory or registers while it is needed.",
        )


def _at_the_ceiling(report: Report) -> Iterator[Advice]:
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


RULES: tuple[Rule, ...] = (
    _alarm, _float64, _scattered, _bank_conflicts, _small_blocks, _few_blocks, _divergence, _latency,
    _local_memory, _atomics, _index_arithmetic, _refetched, _at_the_ceiling, _too_small,
)  # fmt: skip


def advise(report: Report) -> tuple[Advice, ...]:
    """Everything the rules have to say about `report`, in the order of RULES."""
    return tuple(advice for rule in RULES for advice in rule(report))
