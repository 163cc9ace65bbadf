"""A Report as HTML for a notebook: the gauge and the bounds as pictures, what the counts say, the lines; everything else is folded away.

Everything the pictures say is also in text, for notebooks that are not trusted (which drop SVG) and for screen readers.
No style sheet, no script, no colour but the figures': the page's theme, light or dark, decides. `page` makes a file of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from solcourse import figures, measured_words, svg, units
from solcourse import report_text as tables
from solcourse import report_words as words

if TYPE_CHECKING:
    from solcourse.report import Report

_CELL = "padding:1px 10px 1px 0;vertical-align:top;text-align:"
SHOWN = 0.2  # a bound below this part of the longest is folded away
_ROW = "background:transparent"  # JupyterLab stripes rows; a bar of shares reads better without


def _cell(content: str, align: str = "left", tag: str = "td") -> str:
    tight = ";white-space:nowrap" if align == "right" else ""  # numbers do not wrap
    return f'<{tag} style="{_CELL}{align}{tight}">{content}</{tag}>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], aligns: Sequence[str], caption: str) -> str:
    """A table of cells that are HTML already."""
    top = "".join(_cell(escape(h), a, "th") for h, a in zip(head, aligns, strict=False))
    body = "".join(f'<tr style="{_ROW}">' + "".join(_cell(c, a) for c, a in zip(row, aligns, strict=True)) + "</tr>" for row in rows)
    look = "text-align:left;caption-side:top;font-weight:bold;padding:8px 0 2px;color:inherit"
    title = f'<caption style="{look}">{escape(caption)}</caption>' if caption else ""
    head_row = f"<thead><tr>{top}</tr></thead>" if top else ""
    return f'<table style="border-collapse:collapse;margin:0;font-size:inherit">{title}{head_row}<tbody>{body}</tbody></table>'


def _code(text: str) -> str:
    return f'<code style="white-space:pre;background:transparent">{escape(text)}</code>'


def _head(report: Report) -> str:
    cache = f", {report.cache} cache" if report.origin == "predicted" or report.timing else ""
    title = f"<strong>{escape(report.kernel)}</strong> on {escape(report.device.name)}: <strong>{report.origin}</strong>{cache}"
    launch = words.launch_in_words(report)
    sampled = words.sampling_in_words(report)
    return f"<div>{title}{'; ' + escape(launch) if launch else ''}</div>" + (f"<div>{escape(sampled)}</div>" if sampled else "")


def _facts(report: Report) -> list[str]:
    host = f", and {units.seconds(report.launch_s)} for the host to launch it" if report.launch_s else ""
    attainable = f"SOL score {units.score(report.sol_score)} of an attainable {units.score(report.attainable_score)}"
    facts = [
        f"Time {figures.interval(report)}{host}; {figures.bound_words(report.bound)} binds"
        if report.bound
        else f"Time {figures.interval(report)}{host}",
        attainable + (f" ({words.attainable_in_words(report)})" if report.attainable_score else ""),
        f"T_SOL {units.seconds(report.sol_time_s)} = {words.light_in_words(report)}",
    ]
    if report.anchored_score is not None:
        facts.append(f"Anchored score {units.score(report.anchored_score)} against a baseline of {units.seconds(report.baseline_s)}")
    named = (
        ("Occupancy", "; ".join(words.occupancy_in_words(report))),
        ("One warp", words.waiting_in_words(report)),
        ("Registers", words.registers_in_words(report)),
        ("", words.nsight_in_words(report)),
    )
    return facts + [f"{name}: {said}" if name else said for name, said in named if said]


def _list(sayings: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(said)}</li>" for said in sayings)
    return f'<ul style="margin:4px 0;padding-left:20px">{items}</ul>' if items else ""


def _alarm(report: Report) -> str:
    box = f"border-left:4px solid {svg.ORANGE};padding:4px 10px;margin:6px 0"
    said = [*([str(report.alarm)] if report.alarm else []), *measured_words.alarms(report)]
    said += [f"{warning[0].upper()}{warning[1:]}." for warning in (words.float64_warning(report),) if warning]
    return "".join(f'<div role="alert" style="{box}"><strong>{escape(line)}</strong></div>' for line in said)


def _pictures(report: Report) -> str:
    """The score on the left, the bounds on the right; one under the other where there is little room."""
    columns = [figures.gauge(report), figures.bounds(report, SHOWN) + _more_bounds(report) if report.bounds else ""]
    grid = "display:flex;flex-wrap:wrap;gap:8px 24px;align-items:flex-start;margin:6px 0"
    each = "flex:1 1 320px;min-width:0;max-width:460px"
    inner = "".join(f'<div style="{each}">{column}</div>' for column in columns if column)
    return f'<div style="{grid}">{inner}</div>'


def _more_bounds(report: Report) -> str:
    """How the bounds lead to the time, the ones too short for a bar, and what the pipes are."""
    drawn = figures.shown_bounds(report, SHOWN)
    rest = [f"{figures.bound_words(name)} {units.seconds(t)}" for name, t in figures.shown_bounds(report) if (name, t) not in drawn]
    said = [
        *words.bounds_in_words(report),
        f"Below {100 * SHOWN:.0f} % of the longest: {', '.join(rest)}" if rest else "",
        words.pipes_in_words(report),
    ]
    return _folded("What the bounds mean" + (f", and {len(rest)} more" if rest else ""), _list(filter(None, said)))


def _advice(report: Report) -> str:
    return _list(a.text for a in report.advice if a.kind != "alarm")


def _measurement(report: Report) -> str:
    rows = [f"{name[0].upper()}{name[1:]}: {said}" for name, said in measured_words.facts(report)]
    return _list(f"In doubt: {said}" for said in measured_words.doubts(report)) + _folded("How it was measured", _list(rows))


def _explanation(report: Report) -> str:
    rows = [(name, units.score(number), escape(meaning)) for name, number, meaning in words.explanation_in_words(report)]
    return _table((), rows, ("left", "right", "left"), "") if rows else ""


def _lines(report: Report) -> str:
    head, rows = tables.line_table(report)
    if not rows:
        return ""
    cells = [[escape(cell) for cell in row] + [_code(hot.text)] for row, hot in rows]
    for row, (_, hot) in zip(cells, rows, strict=True):
        if hot.share >= 0.005:
            row[1] += f' <span aria-hidden="true" style="{_share_bar(hot.share)}"></span>'
    caption = "Source lines, hottest first (share of the time: estimated)"
    table = _table((*head, "source"), cells, ("right",) * len(head) + ("left",), caption)
    return f'<div style="overflow-x:auto">{table}</div>'


def _share_bar(share: float) -> str:
    return f"display:inline-block;height:9px;width:{max(1, round(40 * share))}px;background:{svg.BLUE}"


def _folded(title: str, content: str) -> str:
    return f'<details style="margin:4px 0"><summary>{escape(title)}</summary>{content}</details>' if content else ""


def _counters(report: Report) -> str:
    rows = tables.counter_rows(report, every=True) + tables.traffic_rows(report)
    cells = [
        (
            _code(name),
            escape(text) + (f"<br><small>{escape(tables.above_one(report, counter))}</small>" if tables.above_one(report, counter) else ""),
            "exact" if counter.exact else "estimated",
            f"{_code(ncu) if ncu else 'no counter of its own'}<br><small>{escape(counter.meaning)}</small>",
        )
        for name, text, ncu, counter in rows
    ]
    table = _table(("counter", "value", "", "in Nsight Compute"), cells, ("left", "right", "left", "left"), "")
    return f'<div style="overflow-x:auto">{table}</div>' if cells else ""


def _ledger(report: Report) -> str:
    rows = [(escape(f"{t.direction}: {t.name}"), units.size(t.bytes)) for t in report.work.terms]
    rows += [(escape(kind), units.flops(count)) for kind, count in report.work.flops.items() if count]
    return _table((), rows, ("left", "right"), "Work: what cannot be avoided") if rows else ""


def html(report: Report) -> str:
    """The whole report as one HTML fragment. Everything that comes from the kernel's source or its names is escaped."""
    shown = [_head(report), _alarm(report), _measurement(report), _pictures(report), _advice(report), _lines(report)]
    folded = {
        "In words, with occupancy and registers": _list(_facts(report)),
        f"Why this score: R = waste × rate × idle = {units.score(report.sol_score)}": _explanation(report),
        "Counters, with Nsight Compute's names": _counters(report),
        "The ledger behind T_SOL": _ledger(report),
        "Notes": _list(words.notes(report)),
    }
    parts = shown + [_folded(title, content) for title, content in folded.items()]
    return f'<div class="sol-report" style="line-height:1.45;max-width:72em">{"".join(parts)}</div>'


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 14px/1.45 system-ui, sans-serif; margin: 24px; background: #fff; color: #1a1a1a }}
@media (prefers-color-scheme: dark) {{ body {{ background: #121212; color: #e6e6e6 }} }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def page(report: Report) -> str:
    """The report as a page that stands alone, light or dark as the reader's system is."""
    return _PAGE.format(title=escape(f"{report.kernel} on {report.device.name}, {report.origin}"), body=html(report))
