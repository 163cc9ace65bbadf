"""The rules of advice about memory: scattered accesses, bank conflicts, local arrays, atomics, data that is loaded again and again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from solcourse import diagnosis, units
from solcourse.diagnosis import NOTABLE, Advice
from solcourse.simt.records import SECTOR_BYTES, AccessCounts, LineCounts
from solcourse.simt.recursion import RECURSION

if TYPE_CHECKING:
    from solcourse.report import Report

ABSORBED = 1.2  # DRAM bytes / compulsory bytes up to which the caches hide a scattered access
AGAIN = 8  # loads of the average byte from which a tile would pay


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
    hidden = "DRAM moves little more than it must"
    if report.bound in ("l1", "fill", "l2"):
        passes = f"every sector passes through {'L2' if report.bound == 'l2' else 'L1'}, and that binds"
        return f"{hidden}, but {passes} ({units.seconds(report.bounds.get(report.bound))}). {cure}"
    return f"The caches absorb it here: {hidden}."


def scattered(report: Report) -> Iterator[Advice]:
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


def bank_conflicts(report: Report) -> Iterator[Advice]:
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


_LOCAL_ARRAY = (
    "a local array stays in memory, because its index is not known when compiling. Loops of fixed length let it live in registers."
)
_RECURSION = "a function that calls itself keeps what each call needs on a stack in local memory. A loop needs none."
_PRINT = "print() hands its arguments over in local memory. Leave it out when you measure."


def local_memory(report: Report) -> Iterator[Advice]:
    if report.spill_bytes:
        yield Advice(
            "spills",
            f"Registers run out: the compiled code stores and loads {report.spill_bytes:,} bytes per thread in local memory instead, each "
            "time it comes by there. That traffic is not in the counts or in the time here, so the kernel will be slower than predicted. "
            "Hold fewer values at once, or allow more registers (max_registers, launch_bounds).",
        )
    local = report.counts.local_load + report.counts.local_store
    everything = report.counts.global_load + report.counts.global_store + local
    if local.sectors > NOTABLE * everything.sectors:
        lines = [line for line in report.lines if (line.counts.local_load + line.counts.local_store).requests]
        line = lines[0].line if lines else 0
        recursive = report.run and any(site.line == line and site.array == RECURSION for site in report.run.program.sites)
        text = _RECURSION if recursive else _PRINT if lines and "print(" in lines[0].text else _LOCAL_ARRAY
        yield Advice("local_memory", f"Line {line}: {text}" if line else f"{text[0].upper()}{text[1:]}", line)


def atomics(report: Report) -> Iterator[Advice]:
    contended = report.run.same_address_atomics if report.run else 0
    if report.bound == "atomic" and contended > 1:
        lines = [line.line for line in report.lines if line.counts.global_atomic.requests]
        yield Advice(
            "atomics",
            f"{units.count(contended)} atomic operations meet at one address, after each warp has merged its own, and are "
            "done one after the other. Let each block add up in shared memory first, and add once to global memory.",
            lines[0] if lines else 0,
        )


def refetched(report: Report) -> Iterator[Advice]:
    moved, needed = report.dram_bytes, report.work.compulsory_bytes
    if report.bound == "dram" and moved and needed and moved > 1.5 * needed and not any(scattered(report)):
        yield Advice(
            "refetched",
            f"DRAM moves {units.factor(moved / needed)} the compulsory bytes: the same data is fetched again. "
            "Keep a tile of it in shared memory or registers while it is needed.",
        )


def reuse(report: Report) -> Iterator[Advice]:
    """The same data loaded from global memory many times over: no tile holds it, only the caches."""
    again, loads = diagnosis.loads_per_byte(report), report.counts.global_load.requests
    below = report.attainable_score and (report.sol_score or 0.0) < 0.5 * report.attainable_score
    if not below or report.bound == "dram" or again < AGAIN or loads < 0.5 * diagnosis.requests(report.counts):
        return
    arrays = [f"{site} in line {line}" if site else f"line {line}" for line, site in _loaded_again(report)]
    who = f" ({', '.join(arrays[:3])})" if arrays else ""
    yield Advice(
        "reuse",
        f"The loads ask for each byte {units.count(round(again))} times on average{who}; the caches answer, but every load is an "
        "instruction. Keep a tile in shared memory or registers, so that one load from global memory serves many operations.",
        _loaded_again(report)[0][0] if arrays else 0,
    )


def _loaded_again(report: Report) -> list[tuple[int, str]]:
    """(line, array) of the loads that ask for a notable part of the bytes."""
    total = report.counts.global_load.bytes
    return [(line, array) for line, word, array, access in _accesses(report) if word == "load" and access.bytes >= NOTABLE * total]
