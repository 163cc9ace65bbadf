"""A Report as plain text: what a terminal, a log and a screen reader get. At most WIDTH columns where the source lines allow it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from solcourse import units
from solcourse.counters import COUNTERS, Counter, ncu_name, value
from solcourse.figures import bound_words, interval, shown_bounds
from solcourse.simt.records import ACCESS_KINDS

if TYPE_CHECKING:
    from solcourse.hot_lines import HotLine
    from solcourse.report import Report

WIDTH = 110
BAR = 40
MOST_LINES = 12
# Figures of a device that a prediction rests on: said where they are recalled, derived or guessed
PREDICTION_FIELDS = (
    "clock_derate", "dram_eta_copy", "dram_eta_read", "dram_eta_write", "dram_fetch_bytes", "l2_bytes_clk", "l2_slices",
    "int32_lanes_sm", "sfu_lanes_sm", "l1_load_bytes_clk_sm", "smem_bytes_clk_sm",
    "lat_alu", "lat_fp64", "lat_smem", "lat_l1", "lat_l2", "lat_dram", "block_turnaround_cyc", "launch_us_stream",
)  # fmt: skip


def bar(fraction: float, width: int = BAR) -> str:
    """A bar of block characters, at least a sliver for anything above 0."""
    eighths = round(8 * width * min(max(fraction, 0.0), 1.0))
    if fraction > 0:
        eighths = max(eighths, 1)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


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


def launch_in_words(report: Report) -> str:
    """Grid and block: "4,096 blocks of 256 threads", "16 blocks (4 x 4) of 64 threads (8 x 8)"; "" where they are not known."""

    def many(shape: Sequence[int], noun: str) -> str:
        total = shape[0] * shape[1] * shape[2]
        last = max((i for i in range(3) if shape[i] != 1), default=0)
        dims = f" ({' x '.join(map(str, shape[: last + 1]))})" if last else ""
        return f"{total:,} {noun}{'' if total == 1 else 's'}{dims}"

    return f"{many(report.grid, 'block')} of {many(report.block, 'thread')}" if all(report.grid) else ""


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


def notes(report: Report) -> list[str]:
    """What a reader must know to read the numbers rightly: sampling, whose ledger, what is flagged."""
    said = []
    if report.sampled_blocks is not None:
        blocks = report.grid[0] * report.grid[1] * report.grid[2]
        said.append(f"sampled: {report.sampled_blocks:,} of {blocks:,} blocks ran; counts are scaled to the grid, outputs are incomplete")
    if not report.work_given and report.sol_time_s:
        said.append("T_SOL is from what the engine saw (FLOPs as compiled, distinct bytes); give work= for the operation's own ledger")
    if report.counts.library_flops:
        said.append(f"{units.count(report.counts.library_flops)} of the FLOPs are a table's estimate for library calls (exp, sqrt, ...)")
    doubtful = [name for name in PREDICTION_FIELDS if name in report.device.flagged]
    if doubtful and report.bounds:
        said.append(f"recalled, derived or guessed figures of {report.device.name}: {', '.join(doubtful)}")
    if report.origin == "measured" and report.bounds:
        said.append("the time is measured; bounds, traffic and occupancy are the model's")
    return said


def shown(counter: Counter, number: Any) -> str:
    """A counter's value with its unit."""
    forms = {"bytes": units.size, "fraction": units.percent, "seconds": units.seconds}
    if counter.unit == "ratio":
        return f"{number:.2f}".rstrip("0").rstrip(".") if number is not None else units.UNKNOWN
    return forms.get(counter.unit, units.count)(number)


def counter_rows(report: Report, *, every: bool = False) -> list[tuple[str, str, str, Counter]]:
    """(short name, value, ncu's name on this device, counter) of the counts that are not 0; `every` adds wavefronts of L1 and bytes."""
    rows = []
    for name, counter in COUNTERS.items():
        if not name.startswith("counts.") or not _wanted(report, name, every):
            continue
        number = value(report, name)
        if number:
            rows.append((name.removeprefix("counts."), shown(counter, number), ncu_name(name, float(report.device.cc)), counter))
    return rows


def _wanted(report: Report, name: str, every: bool) -> bool:
    part = name.split(".")
    if part[1] in ACCESS_KINDS:
        if not getattr(report.counts, part[1]).requests:
            return False
        key_parts = ("requests", "wavefronts", "bank_conflicts") if part[1].startswith("shared") else ("requests", "sectors")
        return every or part[2] in (*key_parts, "sectors_per_request", "sector_efficiency")
    return every or part[1] not in ("pipes", "thread_instructions", "library_flops")


def traffic_rows(report: Report) -> list[tuple[str, str, str, Counter]]:
    """(short name, value, ncu's name on this device, counter) of the caches and DRAM; empty where they are not known."""
    rows = []
    for name, counter in COUNTERS.items() if report.traffic is not None else ():
        if name.startswith("traffic."):
            text = shown(counter, value(report, name))
            rows.append((name.removeprefix("traffic."), text, ncu_name(name, float(report.device.cc)), counter))
    return rows


LINE_HEAD = ("line", "share", "requests", "sectors", "per load", "per store", "waves/req", "conflicts", "FLOPs")


def _line_cells(hot: HotLine) -> tuple[str, ...]:
    """The columns of LINE_HEAD: sectors per load and per store request; wavefronts and conflicts of shared memory."""
    counts = hot.counts
    loads = counts.global_load + counts.local_load
    stores = counts.global_store + counts.local_store + counts.global_atomic
    shared = counts.shared_load + counts.shared_store + counts.shared_atomic
    requests, sectors = loads.requests + stores.requests + shared.requests, loads.sectors + stores.sectors
    return (
        str(hot.line),
        f"{100 * hot.share:.0f} %" if hot.share >= 0.005 else "",
        units.count(requests) if requests else "",
        units.count(sectors) if sectors else "",
        f"{loads.sectors_per_request:.1f}" if loads.sectors else "",
        f"{stores.sectors_per_request:.1f}" if stores.sectors else "",
        f"{shared.wavefronts / shared.requests:.1f}" if shared.requests else "",
        units.count(shared.bank_conflicts) if shared.bank_conflicts else "",
        units.count(counts.total_flops) if counts.total_flops else "",
    )


def line_table(report: Report) -> tuple[tuple[str, ...], list[tuple[tuple[str, ...], HotLine]]]:
    """(head, rows of (cells, line)), hottest first. A column in which every line would be empty is left out."""
    rows = [(_line_cells(hot), hot) for hot in report.hot_lines]
    kept = [i for i in range(len(LINE_HEAD)) if any(cells[i] for cells, _ in rows)]
    return tuple(LINE_HEAD[i] for i in kept), [(tuple(cells[i] for i in kept), hot) for cells, hot in rows]


# ------------------------------------------------------------------------------------------------------------ the parts
def _head(report: Report) -> Iterator[str]:
    cache = f", {report.cache} cache" if report.origin == "predicted" else ""
    yield f"{report.kernel} on {report.device.name}: {report.origin}{cache}"
    if launch_in_words(report):
        yield launch_in_words(report)
    yield ""
    launching = f"; launching it takes the host {units.seconds(report.launch_s)} more" if report.launch_s else ""
    yield f"  time        {interval(report)}{launching}"
    light = f"T_SOL {units.seconds(report.sol_time_s)} = {light_in_words(report)}"
    yield f"  SOL score   {units.score(report.sol_score)} of an attainable {units.score(report.attainable_score)}; {light}"
    yield f"              {_gauge(report)}"
    if report.baseline_s is not None:
        anchored = "none: the baseline is at T_SOL" if report.anchored_score is None else units.score(report.anchored_score)
        yield f"  anchored    {anchored} against a baseline of {units.seconds(report.baseline_s)} (0.5 at the baseline, 1 at T_SOL)"
    if report.bound:
        yield f"  bound       {bound_words(report.bound)} ({report.bound})"
    if report.alarm:
        yield f"  ALARM       {report.alarm}"


def _gauge(report: Report) -> str:
    cells = list(bar(report.sol_score or 0.0).ljust(BAR, "·"))
    if report.attainable_score:
        cells[min(round(report.attainable_score * BAR), BAR - 1)] = "|"
    return f"0 {''.join(cells)} 1"


def _bounds(report: Report) -> Iterator[str]:
    ranked = shown_bounds(report)
    if ranked:
        yield ""
        yield "bounds: what each resource alone would take"
    longest = max((t for _, t in ranked), default=1.0)
    for name, time_s in ranked:
        wins = "  wins" if name == report.bound else ""
        yield f"  {bound_words(name):<18} {units.seconds(time_s):>8}  {bar(time_s / longest)}{wins}"


def _explanation(report: Report) -> Iterator[str]:
    rows = explanation_in_words(report)
    if rows and report.explanation:
        yield ""
        factors = " x ".join(units.score(v) for _, v, _ in rows)
        yield f"R = waste x rate x idle: {units.score(report.sol_score)} = {factors}"
        for name, number, words in rows:
            yield f"  {name:<6} {units.score(number):>5}  {words}"
        blind = units.percent(report.explanation.nsight_sol)
        yield f'  Nsight\'s "SOL %" is rate x idle, {blind} here: it cannot see waste'


def _resources(report: Report) -> Iterator[str]:
    held = report.occupancy
    if held is not None or report.registers is not None:
        yield ""
    if held is not None:
        waves = f"; {report.waves:.2f} waves" if report.waves is not None else ""
        yield (
            f"occupancy  {held.warps_per_sm} of {held.max_warps} warps per SM ({units.percent(held.fraction)}), "
            f"{held.blocks_per_sm} blocks, limited by {held.limiter.replace('_', ' ')}{waves}"
        )
    if waiting_in_words(report):
        yield f"one warp   {waiting_in_words(report)}"
    if report.registers is not None:
        spills = f", {report.spill_bytes} bytes spilled" if report.spill_bytes else ""
        yield f"registers  {report.registers} per thread{spills} ({report.registers_source})"


def _counters(report: Report) -> Iterator[str]:
    rows = counter_rows(report)
    tables = [
        ("counted exactly", [r for r in rows if r[3].exact]),
        ("estimated", [r for r in rows if not r[3].exact] + traffic_rows(report)),
    ]
    for title, table in tables:
        if table:
            yield ""
            yield f"{title}, and what Nsight Compute calls it"
        for name, text, ncu, _ in table:
            yield f"  {name:<34} {text:>13}   {ncu or '(no counter of its own)'}".rstrip()


def _lines(report: Report) -> Iterator[str]:
    head, rows = line_table(report)
    if not rows:
        return
    yield ""
    yield "source lines, hottest first (share of the time: estimated)"
    widths = [max(len(title), *(len(cells[i]) for cells, _ in rows)) for i, title in enumerate(head)]
    yield "  " + "  ".join(title.rjust(w) for title, w in zip(head, widths, strict=True)) + "  source"
    for cells, hot in rows[:MOST_LINES]:
        yield "  " + "  ".join(cell.rjust(w) for cell, w in zip(cells, widths, strict=True)) + f"  {hot.text}"
    if len(rows) > MOST_LINES:
        yield f"  ... and {len(rows) - MOST_LINES} lines more (report.hot_lines)"


def _wrapped(words: str, first: str = "  - ") -> Iterator[str]:
    import textwrap

    yield from textwrap.wrap(words, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False)


def _sayings(title: str, sayings: Sequence[str]) -> Iterator[str]:
    if sayings:
        yield ""
        yield title
    for saying in sayings:
        yield from _wrapped(saying)


def text(report: Report) -> str:
    """The whole report as text, most important first."""
    parts = [_head, _bounds, _explanation, _resources, _counters, _lines]
    out = [line for part in parts for line in part(report)]
    out += _sayings("what the counts say", [a.text for a in report.advice if a.kind != "alarm"])
    out += _sayings("notes", notes(report))
    return "\n".join(out)
