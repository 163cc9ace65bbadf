"""A Report's sentences, said alike in text and in HTML. Each function: Report -> words; "" where there is nothing to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from solcourse import diagnosis, units
from solcourse.figures import bound_words, shown_bounds

if TYPE_CHECKING:
    from solcourse.report import Report

# What runs on each pipe, for readers who see its name for the first time
PIPE_WORDS = {
    "pipe_fma": "float and integer multiply-add",
    "pipe_alu": "integer, logic and compare",
    "pipe_fp64": "float64 arithmetic",
    "pipe_xu": "special functions and conversions",
    "pipe_cbu": "branches",
    "pipe_adu": "barriers",
}


# ----------------------------------------------------------------------------------------------------------- the score
def light_in_words(report: Report) -> str:
    """Where T_SOL comes from: "134 MB at 2.04 TB/s"."""
    bound = report.sol_bound
    if report.sol_time_s is None:
        return "give work= for a score"
    if not bound:
        return "nothing has to be moved or computed"
    if bound == "dram":
        return f"{units.size(report.work.compulsory_bytes)} at {units.bytes_per_s(report.device.dram_bytes_per_s)}"
    needed = sum(n for kind, n in report.work.flops.items() if kind == bound or (bound == "tensor" and kind.startswith("tensor")))
    return f"{units.flops(needed)} of {bound} at {units.flops_per_s(needed / report.sol_time_s)}"


def attainable_in_words(report: Report) -> str:
    """Why even the best kernel stays below 1."""
    if not report.attainable_score:
        return ""
    takes = "DRAM below its data sheet's rate costs time" if report.sol_bound == "dram" else "moving its bytes costs time too"
    return f"the best kernel's score: {takes}, and so does the start"


def float64_warning(report: Report) -> str:
    """What a score is worth that rests on float64 by accident."""
    light = diagnosis.float32_sol_time_s(report)
    if light is None:
        return ""
    score = units.score(light / report.time_s)
    return f"the score is against float64's limit; in float32 T_SOL would be {units.seconds(light)}, and this time would score {score}"


def launch_in_words(report: Report) -> str:
    """Grid and block: "4,096 blocks of 256 threads", "16 blocks (4 x 4) of 64 threads (8 x 8)"; "" where they are not known."""

    def many(shape: Sequence[int], noun: str) -> str:
        total = shape[0] * shape[1] * shape[2]
        last = max((i for i in range(3) if shape[i] != 1), default=0)
        dims = f" ({' x '.join(map(str, shape[: last + 1]))})" if last else ""
        return f"{total:,} {noun}{'' if total == 1 else 's'}{dims}"

    return f"{many(report.grid, 'block')} of {many(report.block, 'thread')}" if all(report.grid) else ""


# ---------------------------------------------------------------------------------------------------------- the bounds
def bounds_title(report: Report) -> str:
    whose = "predicted" if report.origin == "predicted" else "the model's"
    return f"bounds, {whose}: what each resource alone would take"


def bounds_in_words(report: Report) -> list[str]:
    """How the bounds lead to the time, and what DRAM's is made of."""
    longest = max(report.bounds.values(), default=0.0)
    said = []
    if report.origin == "predicted" and 0 < 1.02 * longest < report.time_s:
        start = report.bounds.get("launch", 0.0)
        also = f", and the start of {units.seconds(start)} comes on top" if start > 0.02 * report.time_s else ""
        time = units.seconds(report.time_s)
        said.append(f"The time, {time}, is longer than the longest of them: resources overlap only in part{also}.")
    eta = getattr(report.prediction, "dram_eta", None)
    if eta and eta < 0.995 and report.bounds.get("dram", 0.0) > 0.2 * longest:
        said.append(f"DRAM counts at {100 * eta:.0f} % of its data sheet, which this mix of reads and writes can reach.")
    return said


def pipes_in_words(report: Report) -> str:
    """A legend of the pipes among the shown bounds: "cbu: branches and barriers; fma: ..."."""
    names = [name for name, _ in shown_bounds(report) if name in PIPE_WORDS]
    return "; ".join(f"{name.removeprefix('pipe_')}: {PIPE_WORDS[name]}" for name in names)


# --------------------------------------------------------------------------------------------------- why this score
def explanation_in_words(report: Report) -> list[tuple[str, float, str]]:
    """(factor, value, what it means), for R = waste x rate x idle; empty where it cannot be told."""
    why = report.explanation
    if why is None:
        return []
    things, work = ("bytes", "moved") if why.bound == "dram" else ("FLOPs", "done")
    if why.bound == "dram":
        have = f"{units.size(report.work.compulsory_bytes)} needed / {units.size(report.dram_bytes)} moved"
    else:
        have = f"FLOPs needed / FLOPs {work}, on {why.bound}"
    itself = {"fp16": "pipe_fma", "fp32": "pipe_fma", "fp64": "pipe_fp64"}.get(why.bound, why.bound)
    hidden = report.bound in ("", "launch", itself)
    holds = "" if hidden or why.rate > 0.8 else f"; held back by {bound_words(report.bound)}"
    return [
        ("waste", why.waste, f"{have}: below 1, {things} are {work} that need not be"),
        ("rate", why.rate, f"how fast they are {work} while any are, of the peak{holds}"),
        ("idle", why.idle, f"how much of the time any are {work} (start, tail and waves take the rest)"),
    ]


def nsight_in_words(report: Report) -> str:
    """What Nsight Compute's "SOL %" would be: the busiest unit of each of its two families (estimated)."""
    rows = diagnosis.nsight_throughputs(report)
    parts = [f"{100 * busy:.0f} % {family} ({bound_words(name)})" for family, busy, name in rows]
    about = 'Nsight Compute\'s "SOL %" says how busy the busiest unit is, not how useful'
    return f"{about}: about {' and '.join(parts)} here, estimated" if parts else ""


# ------------------------------------------------------------------------------------------------------- what it holds
def occupancy_in_words(report: Report) -> list[str]:
    """Theoretical occupancy with its limiter, then what a small grid leaves of it."""
    held = report.occupancy
    if held is None:
        return []
    waves = f"; {report.waves:.2f} waves" if report.waves is not None else ""
    guessed = " (estimated)" if held.limiter == "registers" and report.registers_source.startswith("estimated") else ""
    limiter = f"limited by {held.limiter.replace('_', ' ')}{guessed}"
    share = units.percent(held.fraction)
    said = [f"theoretical {held.warps_per_sm} of {held.max_warps} warps per SM ({share}), {held.blocks_per_sm} blocks, {limiter}{waves}"]
    filled = diagnosis.filled_warps(report)
    if filled is not None:
        said.append(f"this grid fills at most {filled} of {held.max_warps} ({units.percent(filled / held.max_warps)})")
    return said


def registers_in_words(report: Report) -> str:
    if report.registers is None:
        return ""
    spills = f", {report.spill_bytes:,} bytes of spill code" if report.spill_bytes else ""
    return f"{report.registers} per thread{spills} ({report.registers_source})"


# ncu: smsp__average_warp_latency_issue_stalled_<name>
STALL_WORDS = {
    "selected": "issuing",
    "wait": "waiting for fixed-latency arithmetic",
    "long_scoreboard": "waiting for global or local memory",
    "short_scoreboard": "waiting for shared memory or special functions",
    "barrier": "waiting at barriers",
    "math_pipe_throttle": "waiting for a free pipe",
}


def waiting_in_words(report: Report) -> str:
    """What one warp spends its time on, three largest parts, and how many warps would hide it (estimated); "" without a prediction."""
    stalls = getattr(report.prediction, "stalls", None)
    if not stalls or not sum(stalls.values()):
        return ""
    total, ranked = sum(stalls.values()), sorted(stalls.items(), key=lambda item: -item[1])
    parts = [f"{100 * c / total:.0f} % {STALL_WORDS.get(name, name)} ({name})" for name, c in ranked[:3] if c >= 0.05 * total]
    return f"alone {units.count(round(report.prediction.warp_cycles))} cycles: {', '.join(parts)}"


# ------------------------------------------------------------------------------------------------------------ the notes
def sampling_in_words(report: Report) -> str:
    """From how many blocks a sampled report speaks."""
    if report.sampled_blocks is None:
        return ""
    blocks = report.grid[0] * report.grid[1] * report.grid[2]
    return f"sampled: {report.sampled_blocks:,} of {blocks:,} blocks ran; counts are scaled to the grid, outputs are incomplete"


def notes(report: Report) -> list[str]:
    """What a reader must know to read the numbers rightly: whose ledger, which estimates, whose clock."""
    said = []
    if not report.work_given and report.sol_time_s:
        said.append("T_SOL is from what the engine saw (FLOPs as compiled, distinct bytes); give work= for the operation's own ledger")
    if report.counts.library_flops:
        said.append(f"{units.count(report.counts.library_flops)} of the FLOPs are a table's estimate for library calls (exp, sqrt, ...)")
    doubtful = len(diagnosis.doubtful_figures(report))
    if doubtful:
        which = f"{doubtful} of the model's figures for this GPU {'is' if doubtful == 1 else 'are'} not from a data sheet"
        said.append(f'{which} (sol.device("{report.device.name}").flagged); the interval allows for them')
    if report.interval_why:
        width = (report.interval_s[1] / report.interval_s[0]) ** 0.5
        said.append(f"the interval is x/÷ {width:.2f} because of: {'; '.join(report.interval_why)}")
    if report.origin == "measured" and report.bounds:
        said.append("the time is measured; bounds, traffic and occupancy are the model's")
    return said
