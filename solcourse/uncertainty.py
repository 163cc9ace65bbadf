"""How wide a prediction's interval is, and why: the weight of each bound in the time, and how well that bound is known.

The widths are factors (x/÷) in constants.toml: judgements, from how well the microbenchmarks are met and from what is known of the inputs
(instruction counts are those of optimised IR, 19 % from SASS on average; a GPU's own figures, or a sister's), not fitted to a ladder.
`python benchmarks/validation.py` counts how many published times lie inside. Not a statistical confidence interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .constants import constant

WIDEST = 2.0
_WHY = {
    "dram": "DRAM's reached rate",
    "l2": "L2's rate and what it keeps",
    "atomic": "atomics: recalled rates",
    "sm": "instruction counts are estimates",
    "l1": "how requests pass L1 and shared memory",
    "latency": "how far the warps hide latency",
    "launch": "start-up is much of so short a time",
    "flagged": "figures of this GPU that were not measured on it",
    "registers": "registers are estimated, and decide how many warps are resident",
    "sampled": "caches: a part of the blocks stands for all",
    "barrier": "barriers with one resident block: nothing else fills the SM",
}
_GROUP = {"dram": "dram", "l2": "l2", "fill": "l2", "atomic": "atomic", "l1": "l1", "lsu": "l1", "latency": "latency"}


@dataclass(frozen=True)
class Uncertainty:
    """factor: the interval is time / factor to time x factor. reasons: what makes most of it, most important first."""

    factor: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """What else the width depends on. sampled: caches were not replayed for the whole grid, and missed loads matter; alone: barriers, and
    one resident block."""

    flagged: bool = False
    estimated_registers: bool = False
    sampled: bool = False
    alone: bool = False


def group_of(bound: str) -> str:
    """The row of _WHY that speaks of a bound; pipes, issue and the rest of the SM are one."""
    return _GROUP.get(bound, "sm")


def uncertainty(weights: Mapping[str, float], launch_share: float, facts: Facts) -> Uncertainty:
    """weights: bound -> its part of the body, any scale. launch_share: start-up / time."""
    total = sum(weights.values()) or 1.0
    parts: dict[str, float] = {}
    for bound, weight in weights.items():
        group = group_of(bound)
        parts[group] = parts.get(group, 0.0) + weight / total * math.log(constant(f"width_{group}")) * (1.0 - launch_share)
    parts["launch"] = launch_share * math.log(constant("width_launch"))
    holding = {"flagged": facts.flagged, "registers": facts.estimated_registers, "sampled": facts.sampled, "barrier": facts.alone}
    for name in (name for name, holds in holding.items() if holds):
        parts[name] = math.log(constant(f"width_{name}")) * (1.0 - launch_share)
    factor = min(WIDEST, math.exp(sum(parts.values())))
    ranked = sorted((p for p in parts.items() if p[1] > 0), key=lambda item: -item[1])
    most = sum(p for _, p in ranked) or 1.0
    return Uncertainty(factor, tuple(_WHY[name] for name, p in ranked[:3] if p >= 0.2 * most))
