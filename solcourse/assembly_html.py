"""An Assembly as HTML for a notebook: source lines on the left with how many instructions each became, the instructions on the right.

In the page's own colours, light or dark; the bars say again what the numbers say. Everything from the source is escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from solcourse.svg import BLUE
from solcourse.touches import plural, printable

if TYPE_CHECKING:
    from solcourse.assembly import Assembly, AssemblyLine, Instruction

MOST_OPEN = 12  # instructions of one line that are shown at once; of more, the rest is folded away
_BAR = 60  # pixels of the longest bar
_CELL = "padding:1px 12px 1px 0;vertical-align:top"
_CODE = "white-space:pre;background:transparent;color:inherit;font-family:ui-monospace,monospace"


def _code(text: str) -> str:
    return f'<code style="{_CODE}">{escape(printable(text))}</code>'


def _instruction(i: Instruction, named: bool, width: int) -> str:
    labels = "".join(f"{_code(label + ':')}<br>" for label in i.labels)
    whose = f" <small>{escape(i.function)}</small>" if named else ""
    index = f'<span style="opacity:.7">{_code(f"[{i.index:>{width}}]  ")}</span>'
    return f"{labels}{index}{_code(i.text)}{whose}"


def _instructions(line: AssemblyLine, width: int) -> str:
    shown = [_instruction(i, not line.file, width) for i in line.instructions]
    if len(shown) <= MOST_OPEN:
        return "<br>".join(shown)
    rest = f"<details><summary>{len(shown) - MOST_OPEN} more</summary>{'<br>'.join(shown[MOST_OPEN:])}</details>"
    return "<br>".join(shown[:MOST_OPEN]) + rest


def _row(line: AssemblyLine, most: int, width: int) -> str:
    """most: the longest count, for the bars; width: digits of the places in the code."""
    count = len(line.instructions)
    length = max(1, round(_BAR * count / most)) if most else 0
    bar = f'<span aria-hidden="true" style="display:inline-block;height:9px;width:{length}px;background:{BLUE}"></span>'
    cells = (
        ("text-align:right;white-space:nowrap", f"{count} {bar}" if count else ""),
        ("text-align:left", _code(line.text) if line.file else "<em>without a source line</em>"),
        ("text-align:left", _instructions(line, width)),
    )
    number = f'<th scope="row" style="{_CELL};text-align:right;font-weight:normal">{line.line or ""}</th>'
    rest = "".join(f'<td style="{_CELL};{look}">{content}</td>' for look, content in cells)
    return f'<tr style="background:transparent">{number}{rest}</tr>'


def _table(code: Assembly, file: str) -> str:
    lines = [line for line in code.lines if line.file == file]
    most = max(len(line.instructions) for line in code.lines)
    width = len(str(len(code.instructions)))
    heads = (("line", "right"), ("instructions", "right"), ("source", "left"), (code.language, "left"))
    head = "".join(f'<th scope="col" style="{_CELL};text-align:{align}">{escape(name)}</th>' for name, align in heads)
    caption = escape(printable(file or f"{code.language} without a source line"))
    look = "text-align:left;caption-side:top;font-weight:bold;padding:8px 0 2px;color:inherit"
    return (
        f'<table style="border-collapse:collapse;margin:0;color:inherit;font-size:inherit"><caption style="{look}">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(_row(line, most, width) for line in lines)}</tbody></table>"
    )


def html(code: Assembly) -> str:
    """One HTML fragment: a table per source file, then the whole code, folded away."""
    files = list(dict.fromkeys(line.file for line in code.lines))
    notes = "".join(f"<div>{escape(printable(note))}.</div>" for note in code.notes)
    tables = "".join(_table(code, file) for file in files)
    whole = f"<summary>The whole {code.language}, {plural(len(code.text.splitlines()), 'line')}</summary>"
    text = "\n".join(map(printable, code.text.expandtabs(4).splitlines()))
    folded = f'<details style="margin:4px 0">{whole}<pre style="{_CODE};overflow-x:auto">{escape(text)}</pre></details>'
    return (
        f'<div class="solcourse-assembly" style="line-height:1.45"><div><strong>{escape(printable(code.title))}</strong></div>{notes}'
        f'<div style="overflow-x:auto">{tables}</div>{folded}</div>'
    )
