"""Verdict: what a check of an exercise found, as a record, as text and as HTML that reads well on a light and on a dark page."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from solcourse import units
from solcourse.findings import Findings
from solcourse.grading import Gate, Size, size_words
from solcourse.simt.records import Finding
from solcourse.svg import GREEN, ORANGE

if TYPE_CHECKING:
    from solcourse.report import Report

CLEAN = "memory, races, uninitialised reads and barriers, at the odd sizes"


@dataclass(frozen=True)
class Verdict:
    """One check of one exercise.

    passed     correct, clean, and every gate passed
    correct    right at every size tried; clean: the sanitizer found no error. Both are False as long as the check did not get that
               far: `stage` says how far it got
    gates      exact counts at `gate_size`, each (name, wanted, got, line, passed, text, advice); empty until correct and clean
    report     predicted time and score of the counted launch; None until it ran
    next_hint  what to do next: a graded hint where the kernel runs but does not pass, else about `problem`; what follows, once passed
    stage      "syntax" "import" "error" "unfinished" "time" "names" "launch" "compile" "bounds" "hazard" "result" "counts"
               "passed", and "fault" where solcourse itself broke down
    problem    what stopped the check, "" if nothing did; line: where; line_text: that line
    part       which part of the exercise this is about, "" where it has one; first_hint: how many hints the parts before have
    """

    exercise: str
    passed: bool
    correct: bool
    clean: bool
    gates: tuple[Gate, ...]
    findings: tuple[Finding, ...]
    report: Report | None
    next_hint: str
    title: str
    file: str
    stage: str
    problem: str
    line: int | None
    line_text: str
    sizes: tuple[Size, ...]
    gate_size: Size
    attempts: int  # different texts that got as far as their counts
    hints: tuple[str, ...]
    notes: tuple[str, ...] = ()
    part: str = ""
    first_hint: int = 0

    @property
    def advice(self) -> str:
        """About the first gate that is not passed, or what is next."""
        return next((gate.advice for gate in self.gates if not gate.passed and gate.advice), self.next_hint)

    @property
    def hint_number(self) -> int:
        """Which graded hint is due (1, 2, 3): one more with every attempt that runs and does not pass. 0 when there is none."""
        return min(self.attempts, len(self.hints)) if self.stage == "counts" else 0

    def _rows(self) -> list[tuple[str, bool | None, str]]:
        """(what, passed or None when not reached, in words): the verdict line by line, gates apart."""
        reached = self.stage in ("bounds", "hazard", "result", "counts", "passed")
        sizes = f"{len(self.sizes)} odd sizes and {size_words(self.gate_size)}: random data, poisoned outputs, guard zones"
        where = f"line {self.line}: {self.line_text}" if self.line else ""
        rows: list[tuple[str, bool | None, str]] = []
        if self.problem:
            rows.append(("stopped", False, self.problem))
            if where and where not in self.problem:
                rows.append(("", None, where))
        rows.append(("correct", self.correct if self.stage in ("result", "counts", "passed") else None, sizes))
        rows.append(("clean", self.clean if reached else None, CLEAN))
        rows += [("", None, f"{f.severity}, line {f.line}: {f.message}") for f in self.findings if f.message not in self.problem]
        return rows

    def _score(self) -> str:
        if self.report is None:
            return ""
        r = self.report
        # a kernel that leaves work out scores well: its score means nothing until the counts are right
        return (
            f"{r.origin} on {r.device.name}: {units.seconds(r.time_s)}, SOL score {units.score(r.sol_score)} of an attainable "
            f"{units.score(r.attainable_score)} at this size"
        )

    def _name(self) -> str:
        """ "ex03 · Tiling, part 1 of 2, the shared tile"; once passed, without the part."""
        return f"{self.exercise} · {self.title}" + (f", {self.part}" if self.part and not self.passed else "")

    def __str__(self) -> str:
        words = {True: "yes", False: "no", None: "not yet reached"}
        lines = [f"{self._name()}: {'passed' if self.passed else 'not yet'}    ({self.file})"]
        for what, state, text in self._rows():
            state_text = "" if what in ("stopped", "") else f"{words[state]} · "
            lines.append(f"  {what:8} {state_text}{text}")
        for gate in self.gates:
            where = f"   line {gate.line}: {gate.text}" if gate.line else ""
            lines.append(f"  {'ok' if gate.passed else 'not yet':8} {gate.name}: wanted {gate.wanted}, got {gate.shown}{where}")
        if self._score():
            lines.append(f"  score    {self._score()}")
        lines.append(f"  next     {self.advice}")
        if self.hint_number:
            shown = self.first_hint + self.hint_number
            lines.append(f"           Hint {self.hint_number} of {len(self.hints)}: solcourse check {self.exercise} --hint {shown}")
        lines += [f"  note     {note}" for note in self.notes]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """A table in the page's own colours; green and orange stand out on light and on dark, and words say the same."""
        head = f"<b>{escape(self._name())}: {_mark(self.passed, 'passed', 'not yet')}</b>"
        head += f' <span style="opacity:.7">{escape(self.file)}</span>'
        body = []
        for what, state, text in self._rows():
            body.append(_row(what, "" if what in ("stopped", "") else _state(state), escape(text)))
        for gate in self.gates:
            where = f'<br><code style="opacity:.8">line {gate.line}: {escape(gate.text)}</code>' if gate.line else ""
            counts = f"wanted {escape(gate.wanted)}, got <b>{gate.shown}</b>{where}"
            body.append(_row(escape(gate.name), _mark(gate.passed, "ok", "not yet"), counts))
        if self._score():
            body.append(_row("score", "", escape(self._score())))
        body.append(_row("next", "", escape(self.advice)))
        body += [_row("note", "", escape(note)) for note in self.notes]
        hint = ""
        if self.hint_number:
            number_, text = self.hint_number, self.hints[self.hint_number - 1]
            hint = f"<details><summary>Hint {number_} of {len(self.hints)}</summary>{escape(text)}</details>"
        pictured = [f for f in self.findings if f.touches]
        if pictured:
            hint += f"<details><summary>Who accessed what</summary>{Findings(pictured)._repr_html_()}</details>"
        table = f'<table style="border-collapse:collapse;text-align:left;color:inherit;font:inherit">{"".join(body)}</table>'
        return f'<div class="solcourse-verdict" style="line-height:1.5">{head}{table}{hint}</div>'


def _mark(good: bool, yes: str, no: str) -> str:
    return f'<span style="color:{GREEN if good else ORANGE}">{"✓" if good else "✗"} {yes if good else no}</span>'


def _state(state: bool | None) -> str:
    return '<span style="opacity:.7">not yet reached</span>' if state is None else _mark(state, "yes", "no")


def _row(*cells: str) -> str:
    return (
        "<tr>" + "".join(f'<td style="text-align:left;vertical-align:top;padding:1px 12px 1px 0">{cell}</td>' for cell in cells) + "</tr>"
    )
