"""What an exercise asks for: Exercise, and its gates on what its launches did. The data that solutions/ is written in.

Gates use counts that no device, cache or clock can change; where a legitimate design may do a little more, they leave a fifth of slack.
Each has two sides: too much is waste, too little is work left out.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from solcourse.simt.records import AccessCounts, Counts, EngineRun, LineCounts
from solcourse.work import Work

WORDS = {
    "global_load": "global load",
    "global_store": "global store",
    "shared_load": "shared load",
    "shared_store": "shared store",
    "local_load": "local load",
    "local_store": "local store",
    "global_atomic": "global atomic",
    "shared_atomic": "shared atomic",
}


@dataclass(frozen=True)
class Ran:
    """What the counted launches of an exercise did, one EngineRun each, in order: most exercises make one."""

    runs: tuple[EngineRun, ...]

    @cached_property
    def counts(self) -> Counts:
        """Of all launches together."""
        return reduce(add, (run.counts for run in self.runs), Counts())

    @cached_property
    def lines(self) -> tuple[LineCounts, ...]:
        """Of all launches, a source line once."""
        found: dict[tuple[str, int], LineCounts] = {}
        for line in (line for run in self.runs for line in run.lines):
            known = found.get((line.file, line.line))
            found[line.file, line.line] = LineCounts(line.file, line.line, line.text, known.counts + line.counts) if known else line
        return tuple(found.values())

    @property
    def blocks(self) -> int:
        return sum(run.blocks for run in self.runs)


class Gate(NamedTuple):
    """One gate of a verdict: (name, wanted, got, line), whether it is passed, and what to think about when not.

    line is the source line that costs most, with its text; None where no line is to blame.
    """

    name: str
    wanted: str
    got: float
    line: int | None
    passed: bool
    text: str = ""
    advice: str = ""

    @property
    def shown(self) -> str:
        """`got` as a person reads it: 16, 4.25, 8,388,608."""
        return number(self.got)


def number(value: float) -> str:
    """
    >>> number(16.0), number(4.25), number(8388608), number(1 / 3)
    ('16', '4.25', '8,388,608', '0.33')
    """
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


@dataclass(frozen=True)
class GateSpec:
    """A number that must lie in low..high.

    measure(run) -> the number, of all launches; cost(counts of a line) -> how much that line adds to the waste, None: no line is to blame
    too_low, too_high: what to think about then
    """

    name: str
    measure: Callable[[Ran], float]
    low: float
    high: float
    too_low: str
    too_high: str
    cost: Callable[[Counts], float] | None = None

    @property
    def wanted(self) -> str:
        if self.low == self.high:
            return number(self.low)
        if math.isinf(self.high):
            return f"at least {number(self.low)}"
        return f"at most {number(self.high)}" if self.low <= 0 else f"{number(self.low)} to {number(self.high)}"

    def judge(self, run: Ran, file: str) -> Gate:
        """The gate for what ran; lines of `file` only are named."""
        got = self.measure(run)
        passed = self.low <= got <= self.high
        worst = None if passed or got < self.low else self.costliest(run, file)
        advice = "" if passed else self.too_low if got < self.low else self.too_high
        return Gate(self.name, self.wanted, got, worst.line if worst else None, passed, worst.text if worst else "", advice)

    def costliest(self, run: Ran, file: str) -> LineCounts | None:
        cost = self.cost
        if cost is None:
            return None
        lines = [line for line in run.lines if line.file == file and cost(line.counts) > 0]
        return max(lines, key=lambda line: cost(line.counts), default=None)


def _access(kind: str) -> Callable[[Counts], AccessCounts]:
    if kind not in WORDS:
        raise ValueError(f"no access kind {kind!r}; known: {', '.join(WORDS)}")
    return lambda counts: getattr(counts, kind)


def sectors_per_request(kind: str, wanted: float) -> GateSpec:
    """Exactly so many sectors a request: 4 for full warps of 4-byte elements. Fewer means idle lanes."""
    access = _access(kind)
    return GateSpec(
        f"sectors per {WORDS[kind]} request",
        lambda run: access(run.counts).sectors_per_request,
        wanted,
        wanted,
        "Fewer sectors than a full warp's worth: is every lane of the warp at work in every request?",
        "The lanes of a warp stand apart in memory: which address does lane 0 ask for at this line, and which lane 1?",
        lambda counts: access(counts).sectors - wanted * access(counts).requests,
    )


def bank_conflicts(kind: str, at_most: int = 0) -> GateSpec:
    """Passes through shared memory beyond the necessary ones."""
    access = _access(kind)
    return GateSpec(
        f"bank conflicts in {WORDS[kind]}s",
        lambda run: access(run.counts).bank_conflicts,
        -math.inf,
        at_most,
        "",
        "Lanes of a warp ask one bank for different words at this line.",
        lambda counts: access(counts).bank_conflicts,
    )


def bytes_moved(kind: str, *, exactly: int | None = None, at_least: int = 0, at_most: float = math.inf) -> GateSpec:
    """Bytes asked for by the active lanes, each lane's own."""
    access = _access(kind)
    low, high = (at_least, at_most) if exactly is None else (exactly, exactly)
    return GateSpec(
        f"bytes of {WORDS[kind]}s",
        lambda run: access(run.counts).bytes,
        low,
        high,
        "Less than the work needs: every element counts, none may be left out, guessed or remembered.",
        "More than the work needs: is an element moved twice?",
        lambda counts: access(counts).bytes,
    )


def flops(kind: str, *, at_least: int = 0, at_most: float = math.inf) -> GateSpec:
    """Floating point operations of one type, as compiled."""
    return GateSpec(
        f"{kind} FLOPs",
        lambda run: run.counts.flops[kind],
        at_least,
        at_most,
        f"Less arithmetic than the work needs, or some of it in another type than {kind}: a Python float makes float64 of it.",
        "More arithmetic than the work needs.",
        lambda counts: counts.flops[kind],
    )


def barriers(*, at_most: int) -> GateSpec:
    """Executions of syncthreads by warps."""
    most = "More barriers than needed."
    return GateSpec("barriers", lambda run: run.counts.barriers, -math.inf, at_most, "", most, lambda c: c.barriers)


def sectors(kind: str, *, at_least: int = 0, at_most: float = math.inf) -> GateSpec:
    """Sectors of all requests of a kind."""
    access = _access(kind)
    return GateSpec(
        f"sectors of {WORDS[kind]}s",
        lambda run: access(run.counts).sectors,
        at_least,
        at_most,
        "Fewer sectors than the data fills: is something left out?",
        "More sectors than the data fills: do neighbouring lanes ask for neighbours, and is nothing fetched twice?",
        lambda counts: access(counts).sectors,
    )


def launches(*, at_most: int) -> GateSpec:
    """Kernels started. None at all means that the work was done elsewhere."""
    return GateSpec(
        "kernel launches", lambda run: len(run.runs), 1, at_most,
        "No kernel was launched: the work is the GPU's.",
        "Each launch reads its inputs from memory and writes its result there: what is between two kernels makes that trip twice.",
    )  # fmt: skip


def per_block(name: str, measure: Callable[[Counts], float], *, at_least: float = -math.inf, at_most: float, advice: str) -> GateSpec:
    """Something counted, for each block on average. measure: of the counts of the launch, or of a line."""
    few = f"Less than there must be: {name}."
    return GateSpec(f"{name} per block", lambda run: measure(run.counts) / max(1, run.blocks), at_least, at_most, few, advice, measure)


def blocks(*, at_least: int) -> GateSpec:
    """Blocks started: too few leave most of a GPU idle, and no count of sectors would show it."""
    few = "Too few blocks to keep a GPU busy: an A100 has 108 SMs, and each wants several."
    return GateSpec("blocks", lambda run: run.blocks, at_least, math.inf, few, "")


def words_per_fma(kind: str, *, at_most: float) -> GateSpec:
    """4-byte words moved by all lanes for each fused multiply-add (2 FLOPs): an 8-byte access is two words, so merging changes nothing."""
    access = _access(kind)
    return GateSpec(
        f"words of {WORDS[kind]}s per FMA",
        lambda run: access(run.counts).bytes / 4 / max(1, run.counts.flops["fp32"] / 2),
        -math.inf,
        at_most,
        "",
        "Each value that is loaded should serve several multiply-adds: keep it in a register for all of them.",
        lambda counts: access(counts).bytes,
    )


def loads_in_flight(*, at_least: int) -> GateSpec:
    """Global loads that one thread has under way at the same time before it waits for the first, in the compiled code."""
    return GateSpec(
        "loads in flight per thread",
        lambda run: max((in_flight(one) for one in run.runs), default=0),
        at_least,
        math.inf,
        "Every load is waited for before the next one starts: read several elements first, use them afterwards.",
        "",
    )


def in_flight(run: EngineRun) -> int:
    """The most global loads that one thread waits for at the same place: as the compiler's order has them (latency.py)."""
    from solcourse.latency import schedule

    kinds = [site.kind for site in run.program.sites]
    made = [counted.requests > 0 for counted in run.site_counts]
    together = schedule(run.program).together
    return max((sum(kinds[s] == "global_load" and made[s] for s in sites) for sites in together), default=0)


def occupancy(*, at_most: float) -> GateSpec:
    """Theoretical occupancy on the default device, 0..1, by the registers and the shared memory of the kernel and the size of its block."""
    return GateSpec(
        "theoretical occupancy",
        lambda run: max((fraction(one) for one in run.runs), default=0.0),
        -math.inf,
        at_most,
        "",
        "More warps are resident than this exercise allows: hide the latency inside a thread, not with more threads.",
    )


def fraction(run: EngineRun) -> float:
    """Theoretical occupancy of a launch on the default device."""
    from solcourse import hardware
    from solcourse.occupancy import occupancy as occupancy_of
    from solcourse.registers import registers_on

    gpu = hardware.device(hardware.DEFAULT_DEVICE)
    held = registers_on(gpu, run.program, run, run.threads_per_block)
    return occupancy_of(gpu, run.threads_per_block, held.count, run.shared_bytes).fraction


Size = int | tuple[int, ...]


@dataclass(frozen=True)
class Exercise:
    """One exercise, as data. It stands in its solution's file, between ### BEGIN HIDDEN TESTS and ### END HIDDEN TESTS.

    A size is a number, or several: (rows, columns). Every function of a size takes its numbers one by one.
    kernel     the name of the kernel in the learner's file
    launch     the name of the function in the learner's file that turns a size into (grid, block[, stream, dynamic shared bytes])
    program    instead of these two: the name of a function in the learner's file that takes the arguments and makes the launches itself
    arguments  (*size, rng) -> the arguments by name, in order: random data
    outputs    those arguments that are written; the others must come back unchanged
    accumulators  those outputs that are added into: they keep the value that `arguments` gives them, all others are poisoned
    reference  (**arguments) -> the expected outputs by name, in NumPy
    sizes      odd sizes at which it must be right; gate_size, a multiple of 32, at which counts are judged
    gates      (*size) -> the gates
    work       (*size) -> the Work of the operation, for T_SOL
    title      of this part, where a file holds several (EXERCISE is a tuple then)
    hints      three, from a nudge to nearly the answer
    after      what comes next, once it is passed
    """

    arguments: Callable[..., Mapping[str, Any]]
    outputs: tuple[str, ...]
    reference: Callable[..., Mapping[str, np.ndarray]]
    sizes: tuple[Size, ...]
    gate_size: Size
    gates: Callable[..., tuple[GateSpec, ...]]
    work: Callable[..., Work]
    kernel: str = ""
    launch: str = "launch"
    program: str = ""
    accumulators: tuple[str, ...] = ()
    title: str = ""
    hints: tuple[str, ...] = ()
    after: str = ""
    rtol: float = 1e-5
    atol: float = 1e-6

    @property
    def size_names(self) -> tuple[str, ...]:
        """What the numbers of a size are called: the parameters of `arguments`, without the last."""
        return tuple(inspect.signature(self.arguments).parameters)[:-1]


def numbers(size: Size) -> tuple[int, ...]:
    """
    >>> numbers(5), numbers((3, 4))
    ((5,), (3, 4))
    """
    return size if isinstance(size, tuple) else (size,)


def size_words(size: Size) -> str:
    """
    >>> size_words(1048576), size_words((64, 33))
    ('1,048,576', '64 x 33')
    """
    return " x ".join(map(number, numbers(size)))
