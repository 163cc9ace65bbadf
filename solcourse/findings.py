"""Findings: what `sol.sanitize` returns. A list, empty where the launch is clean, that reads well in a terminal and in a notebook.

The definition of how a Finding is worded and ordered: errors before warnings, by file and line; each with the source lines of both
parties, and with the picture of who touched the cell where that is known.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from html import escape

from solcourse.simt.records import CHECKS, Finding
from solcourse.svg import GREEN, ORANGE, shorten
from solcourse.touch_map import touch_map
from solcourse.touches import PARTIES, cell_of, clash, dim, plural, printable, source_of, upper, verb

WIDTH = 110
MOST_SHOWN = 20
LONGEST_LINE = 92  # of source, in characters
SEVERITIES = ("error", "warning")
LOOKED = ("memcheck", "racecheck", "initcheck", "synccheck")
NEAR = 10  # lines: two parties no farther apart are shown with all that is between
KINDS = {
    "out_of_bounds": "access out of bounds",
    "misaligned": "misaligned access",
    "wrapped_index": "negative index that wraps around",
    "index_overflow": "index too large for its integer type",
    "stack_overflow": "recursion too deep",
    "read_after_write": "race: read after write",
    "write_after_read": "race: write after read",
    "write_after_write": "race: write after write",
    "lost_update": "race: lost update",
    "same_value_write": "several threads write one cell, all the same value",
    "uninitialized_read": "read of memory nobody has written",
    "divergent_barrier": "barrier that not all threads of the block meet at",
    "deadlock": "threads that wait for ever",
    "inactive_lane": "lane asked for that does not take part",
    "lane_not_in_mask": "lane that is not in its own mask",
    "launch_shape": "unlikely launch shape",
    "unwritten": "part of an array never written",
    "runaway": "loop without end",
}  # kind -> in words


def _rank(finding: Finding) -> tuple[int, str, int, int]:
    severity = SEVERITIES.index(finding.severity) if finding.severity in SEVERITIES else len(SEVERITIES)
    return severity, finding.file or "", finding.line or 0, finding.other_line or 0


def summary(findings: Iterable[Finding]) -> str:
    """One line: how many of each severity, and which check they are of, most first.

    >>> summary([Finding("lost_update", "error", "", "")] * 2 + [Finding("wrapped_index", "warning", "", "")])
    '2 errors, 1 warning: racecheck 2, memcheck 1'
    """
    found = list(findings)
    if not found:
        return "no finding"
    severities = Counter(f.severity for f in sorted(found, key=_rank))
    checks = Counter(f.check for f in sorted(found, key=lambda f: list(CHECKS).index(f.check)))
    return f"{', '.join(plural(n, s or 'finding') for s, n in severities.items())}: " + ", ".join(
        f"{c} {n}" for c, n in checks.most_common()
    )


def merge(findings: Iterable[Finding]) -> list[Finding]:
    """The findings of several launches, one for each kind, severity, place and array: the first as the example, the counts added."""
    merged: dict[tuple, Finding] = {}
    for f in findings:
        key = (f.kind, f.severity, f.file, f.line, f.other_line, f.array)
        merged[key] = replace(merged[key], count=merged[key].count + f.count) if key in merged else f
    return list(merged.values())


class Findings(list[Finding]):
    """The findings of a launch, errors first. Empty, and so false, where it is clean.

    launch   what was launched, in words: "scale[4096, 256]"; sampled: which part of it was looked at, "" for all of it
    """

    def __init__(self, findings: Iterable[Finding] = (), *, launch: str = "", sampled: str = ""):
        super().__init__(sorted(findings, key=_rank))
        self.launch, self.sampled = launch, sampled

    def _head(self) -> str:
        of = f"1 launch of {self.launch}" if self.launch else ""
        looked = f"{', '.join(LOOKED[:-1])} and {LOOKED[-1]}" if not self else ""
        where = ", ".join(filter(None, (looked, of, f"only {self.sampled}" if self.sampled else "")))
        if not self:
            return f"no finding: {where}"
        return f"{summary(self)}{f' ({where})' if where else ''}"

    def _more(self) -> str:
        return f"and {len(self) - MOST_SHOWN:,} more" if len(self) > MOST_SHOWN else ""

    def __str__(self) -> str:
        shown = ["\n".join(_paragraph(f)) for f in self[:MOST_SHOWN]]
        return "\n\n".join(filter(None, (self._head(), *shown, self._more())))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """A table in the page's own colours; marks and words say the same as green and orange."""
        head = f'<div><b style="color:{ORANGE if self else GREEN}">{"✗" if self else "✓"}</b> <b>{escape(self._head())}</b></div>'
        rows, opened = [], False
        for f in self[:MOST_SHOWN]:
            rows.append(_row(f, not opened))
            opened = opened or bool(f.touches)
        look = "border-collapse:collapse;margin:4px 0;text-align:left;color:inherit;font:inherit"
        table = f'<table style="{look}"><tbody>{"".join(rows)}</tbody></table>' if rows else ""
        more = f"<div>{self._more()}</div>" if self._more() else ""
        return f'<div class="solcourse-findings" style="line-height:1.5">{head}{table}{more}</div>'


# ------------------------------------------------------------------------------------------------------------ one finding
@dataclass(frozen=True)
class _Line:
    """A source line as it is shown. role: what the parties of the finding do there, "" for a line in between; number 0: lines left out."""

    role: str
    number: int
    text: str


def _title(f: Finding) -> str:
    """ "race: write after read, tile[3, 4], seen 3,840 times" """
    kind = KINDS.get(f.kind, (f.kind or "finding").replace("_", " "))
    seen = f"seen {f.count:,} times" if f.count and f.count != 1 else ""
    return ", ".join(filter(None, (kind, cell_of(f) if f.array or f.element else "", seen)))


def _roles(f: Finding) -> dict[int, str]:
    """What happens at each of the finding's lines, in a word, the first party's line first."""
    pair = clash(f)
    actions = tuple(f.touches[i].action for i in pair) or PARTIES.get(f.kind, ())
    said = ["updates"] * 2 if f.kind == "lost_update" else [verb(a) for a in actions] or ["here"]
    roles: dict[int, str] = {}
    for line, role in ((f.other_line, said[0]), (f.line, said[-1])):
        if line and role not in roles.get(line, ""):
            roles[line] = f"{roles[line]}, {role}" if line in roles else role
    return roles


def _source(f: Finding) -> list[_Line]:
    """The lines of both parties, with what is between where they are near; without their common indentation."""
    lines, roles = source_of(f.file), _roles(f)
    places = sorted(roles)
    if len(places) == 2 and places[1] - places[0] <= NEAR and lines:
        places = list(range(places[0], places[1] + 1))
    texts = textwrap.dedent("\n".join(lines[n - 1] if 0 < n <= len(lines) else "" for n in places)).split("\n")
    shown = [_Line(roles.get(n, ""), n, shorten(text, LONGEST_LINE)) for n, text in zip(places, texts, strict=False)]
    if len(shown) == 2 and shown[1].number - shown[0].number > NEAR:
        shown.insert(1, _Line("", 0, "…"))
    return shown


def _numbered(f: Finding) -> Iterator[tuple[bool, str]]:
    """(is a party's, the line with what happens there and its number)."""
    shown = _source(f)
    role = max((len(line.role) for line in shown), default=0)
    number = max((len(str(line.number)) for line in shown), default=0)
    for line in shown:
        gutter = f"{line.role.rjust(role)} {'▸' if line.role else ' '} {str(line.number or '').rjust(number)}"
        yield bool(line.role), f"{gutter} │ {line.text}".rstrip(" ")


def _said(f: Finding) -> str:
    """The message as a sentence, without the source lines, which are shown above it; and who, where it does not name them."""
    message = re.sub(r"\b(line \d+) \(`[^`]*`\)", r"\1", f.message or "").rstrip()
    message += "." if message and message[-1] not in ".!?" else ""
    parties = ((f.other_block, f.other_thread), (f.block, f.thread))
    named = [f"thread {dim(t)}" + (f" of block {dim(b)}" if b is not None else "") for b, t in parties if t is not None]
    who = f"Seen with {' and '.join(named)}." if named and "thread" not in message.lower() else ""
    return upper(" ".join(filter(None, (message, who))))


def _place(f: Finding) -> str:
    """ "line 9 of transpose.py"; a notebook's cells have no names a reader would know."""
    name = os.path.basename(f.file or "")
    named = name and "ipykernel" not in f.file and not name.startswith("<")
    return f"line {f.line}{f' of {printable(name)}' if named else ''}" if f.line else ""


def _paragraph(f: Finding) -> Iterator[str]:
    where = ", ".join(filter(None, (f.check, _place(f))))
    yield from textwrap.wrap(f"{f.severity or 'finding'} ({where}): {_title(f)}", WIDTH, subsequent_indent="  ")
    for _, line in _numbered(f):
        yield f"    {line}"
    yield from textwrap.wrap(_said(f), WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False)
    hint = f"Try: {f.hint}" if f.hint else ""
    yield from textwrap.wrap(hint, WIDTH, initial_indent="  ", subsequent_indent="       ", break_long_words=False)


def _row(f: Finding, opened: bool) -> str:
    cell = "text-align:left;vertical-align:top;padding:6px 12px 6px 0;border-top:1px solid"
    severity = f'<b><span style="color:{ORANGE}">{"✗" if f.severity == "error" else "!"}</span> {escape(f.severity or "finding")}</b>'
    kind = f'{severity}<br><span style="opacity:.75">{f.check}<br>{escape(_place(f))}</span>'
    parts = [f"<div><b>{escape(upper(_title(f)))}</b></div>", _code(f), f"<div>{escape(_said(f))}</div>"]
    parts.append(f"<div><b>Try:</b> {escape(f.hint)}</div>" if f.hint else "")
    if f.touches:
        shown = f"<summary>Who touched {escape(cell_of(f))}: the picture</summary>{touch_map(f)}"
        parts.append(f'<details style="margin:4px 0"{" open" if opened else ""}>{shown}</details>')
    cells = (kind, "".join(parts))
    return '<tr style="background:transparent">' + "".join(f'<td style="{cell}">{c}</td>' for c in cells) + "</tr>"


def _code(f: Finding) -> str:
    lines = [f"<b>{escape(text)}</b>" if party else escape(text) for party, text in _numbered(f)]
    look = "margin:4px 0;background:transparent;color:inherit;overflow-x:auto;white-space:pre"
    return f'<pre style="{look}">{chr(10).join(lines)}</pre>' if lines else ""
