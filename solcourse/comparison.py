"""Comparison: two launches measured in turn on a real GPU, A B A B ..., and how many times as fast B is, with its interval.

The ratio is the median of the pairs' ratios: what drifts while they run, the clock above all, drifts for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from solcourse import units

if TYPE_CHECKING:
    from solcourse.report import Report


@dataclass(frozen=True, repr=False)
class Comparison:
    """a, b: measured Reports. ratio: time of A / time of B, above 1 where B is faster; interval: 95 % confidence (low, high).

    remarks  what to distrust in the comparison itself; each report has its own
    """

    a: Report
    b: Report
    ratio: float
    interval: tuple[float, float]
    remarks: tuple[str, ...] = ()

    @property
    def faster(self) -> str:
        """ "a" or "b"; "" where the interval holds 1: no difference that this measurement could tell."""
        low, high = self.interval
        return "b" if low > 1 else "a" if high < 1 else ""

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        low, high = self.interval
        name = {"a": self.a.kernel, "b": self.b.kernel}
        if not self.faster:
            return f"No difference can be told: A takes {low:.3f} to {high:.3f} of B's time."
        ratio, low, high = (self.ratio, low, high) if self.faster == "b" else (1 / self.ratio, 1 / high, 1 / low)
        return f"{self.faster.upper()} ({name[self.faster]}) is {ratio:.3g} times as fast ({low:.3g} to {high:.3g})."

    def _rows(self) -> list[tuple[str, str]]:
        rows = []
        for letter, report in (("A", self.a), ("B", self.b)):
            low, high = report.interval_s
            score = f", SOL score {units.score(report.sol_score)}" if report.sol_score is not None else ""
            times = f"{units.seconds(report.time_s)} ({units.seconds(low)} to {units.seconds(high)})"
            rows.append((f"{letter}  {report.kernel}", f"{times}{score}"))
        return rows

    def _doubts(self) -> list[str]:
        sides = (("A", self.a.timing), ("B", self.b.timing))
        both = [f"{letter}: {said}" for letter, took in sides for said in (*took.outputs.wrong, *took.remarks)]
        return [*self.remarks, *both]

    def _head(self) -> str:
        took = self.a.timing
        return f"measured on {self.a.device.name} in turn, {len(took.times_s)} times each, {took.timer}, {took.cache} cache"

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self._rows())
        lines = [self._head(), *(f"  {name:<{width}}   {said}" for name, said in self._rows()), self.verdict]
        return "\n".join([*lines, *(f"  - {said}" for said in self._doubts())])

    def __repr__(self) -> str:
        return f"<Comparison: {self.verdict}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(said)}</td></tr>" for name, said in self._rows())
        doubts = "".join(f"<li>{escape(said)}</li>" for said in self._doubts())
        html = f"<div>{escape(self._head())}</div><table>{rows}</table><strong>{escape(self.verdict)}</strong><ul>{doubts}</ul>"
        return {"text/plain": str(self), "text/html": html}
