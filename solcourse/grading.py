"""What an exercise asks for: Exercise, and its gates on exact counts. The data that solutions/ is written in.

Gates use counts that no device, cache or clock can change; where a legitimate design may do a little more, they leave a fifth of slack.
Each has two sides: too much is waste, too little is work left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    """A count that must lie in low..high.

    measure(counts) -> the count, of the whole kernel; cost(counts of a line) -> how much that line adds to the waste
    """

    name: str
    measure: Callable[[Counts], float]
    low: float
    high: float
    too_low: str
    too_high: str
    cost: Callable[[Counts], float]

    @property
    def wanted(self) -> str:
        if self.low == self.high:
            return number(self.low)
        if math.isinf(self.high):
            return f"at least {number(self.low)}"
        return f"at most {number(self.high)}" if self.low <= 0 else f"{number(self.low)} to {number(self.high)}"

    def judge(self, run: EngineRun, file: str) -> Gate:
        """The gate for one run; lines of `file` only are named."""
        got = self.measure(run.counts)
        passed = self.low <= got <= self.high
        worst = None if passed or got < self.low else self.costliest(run, file)
        advice = "" if passed else self.too_low if got < self.low else self.too_high
        return Gate(self.name, self.wanted, got, worst.line if worst else None, passed, worst.text if worst else "", advice)

    def costliest(self, run: EngineRun, file: str) -> LineCounts | None:
        lines = [line for line in run.lines if line.file == file and self.cost(line.counts) > 0]
        return max(lines, key=lambda line: self.cost(line.counts), default=None)


def _access(kind: str) -> Callable[[Counts], AccessCounts]:
    if kind not in WORDS:
        raise ValueError(f"no access kind {kind!r}; known: {', '.join(WORDS)}")
    return lambda counts: getattr(counts, kind)


def sectors_per_request(kind: str, wanted: float) -> GateSpec:
    """Exactly so many sectors a request: 4 for full warps of 4-byte elements. Fewer means idle lanes."""
    access = _access(kind)
    return GateSpec(
        f"sectors per {WORDS[kind]} request",
        lambda counts: access(counts).sectors_per_request,
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
        lambda counts: access(counts).bank_conflicts,
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
        lambda counts: access(counts).bytes,
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
        lambda counts: counts.flops[kind],
        at_least,
        at_most,
        f"Less arithmetic than the work needs, or some of it in another type than {kind}: a Python float makes float64 of it.",
        "More arithmetic than the work needs.",
        lambda counts: counts.flops[kind],
    )


def barriers(*, at_most: int) -> GateSpec:
    """Executions of syncthreads by warps."""
    return GateSpec("barriers", lambda counts: counts.barriers, -math.inf, at_most, "", "More barriers than needed.", lambda c: c.barriers)


@dataclass(frozen=True)
class Exercise:
    """One exercise, as data. It stands in its solution's file, between ### BEGIN HIDDEN TESTS and ### END HIDDEN TESTS.

    kernel     the name of the kernel in the learner's file
    arguments  (size, rng) -> the kernel's arguments by name, in order: random data
    outputs    those arguments that the kernel writes; the others must come back unchanged
    reference  (**arguments) -> the expected outputs by name, in NumPy
    sizes      odd sizes at which it must be right; gate_size, a multiple of 32, at which counts are judged
    gates      size -> the gates
    work       size -> the Work of the operation, for T_SOL
    launch     the name of the function in the learner's file that turns a size into (grid, block[, stream, dynamic shared bytes])
    hints      three, from a nudge to nearly the answer
    after      what comes next, once it is passed
    """

    kernel: str
    arguments: Callable[[int, np.random.Generator], Mapping[str, Any]]
    outputs: tuple[str, ...]
    reference: Callable[..., Mapping[str, np.ndarray]]
    sizes: tuple[int, ...]
    gate_size: int
    gates: Callable[[int], tuple[GateSpec, ...]]
    work: Callable[[int], Work]
    launch: str = "launch"
    hints: tuple[str, ...] = ()
    after: str = ""
    rtol: float = 1e-5
    atol: float = 1e-6
