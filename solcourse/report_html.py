"""A Report as HTML for a notebook: the gauge and the bounds as pictures, then what the counts say, lines, counters, notes.

Everything the pictures say is also in text, for notebooks that are not trusted (which drop SVG) and for screen readers.
No style sheet, no script, no colour but the figures': the page's theme, light or dark, decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from solcourse import figures, svg, units
from solcourse import report_text as words

if TYPE_CHECKING:
    from solcourse.report import Report

_CELL = "padding:1px 10px 1px 0;vertical-align:top;text-align:"
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
    cache = f", {report.cache} cache" if report.origin == "predicted" else ""
    title = f"<strong>{escape(report.kernel)}</strong> on {escape(report.device.name)}: <strong>{report.origin}</strong>{cache}"
    launch = words.launch_in_words(report)
    return f"<div>{title}{'; ' + escape(launch) if launch else ''}</div>"


def _facts(report: Report) -> str:
    facts = [
        f"Time {figures.interval(report)}"
        + (f", and {units.seconds(report.launch_s)} for the host to launch it" if report.launch_s else ""),
        f"SOL score {units.score(report.sol_score)} of an attainable {units.score(report.attainable_score)}",
        f"T_SOL {units.seconds(report.sol_time_s)} = {words.light_in_words(report)}",
    ]
    if report.anchored_score is not None:
        facts.append(f"anchored score {units.score(report.anchored_score)} against a baseline of {units.seconds(report.baseline_s)}")
    if report.bound:
        facts.append(f"{figures.bound_words(report.bound)} binds")
    held = report.occupancy
    if held is not None:
        limiter = held.limiter.replace("_", " ")
        facts.append(f"occupancy {held.warps_per_sm} of {held.max_warps} warps per SM, limited by {limiter}")
    if words.waiting_in_words(report):
        facts.append(f"one warp {words.waiting_in_words(report)}")
    if report.registers is not None:
        spills = f", {report.spill_bytes} bytes spilled" if report.spill_bytes else ""
        facts.append(f"{report.registers} registers per thread{spills} ({report.registers_source})")
    return f"<div>{escape('; '.join(facts))}.</div>"


def _alarm(report: Report) -> str:
    box = f"border-left:4px solid {svg.ORANGE};padding:4px 10px;margin:6px 0"
    return f'<div role="alert" style="{box}"><strong>{escape(str(report.alarm))}</strong></div>' if report.alarm else ""


def _pictures(report: Report) -> str:
    """The score and its causes on the left, the bounds on the right; one under the other where there is little room."""
    columns = [figures.gauge(report) + _explanation(report), figures.bounds(report) if report.bounds else ""]
    grid = "display:flex;flex-wrap:wrap;gap:8px 24px;align-items:flex-start;margin:6px 0"
    each = "flex:1 1 320px;min-width:0;max-width:460px"
    inner = "".join(f'<div style="{each}">{column}</div>' for column in columns if column)
    return f'<div style="{grid}">{inner}</div>'


def _advice(report: Report) -> str:
    items = "".join(f"<li>{escape(a.text)}</li>" for a in report.advice if a.kind != "alarm")
    return f'<ul style="margin:4px 0;padding-left:20px">{items}</ul>' if items else ""


def _explanation(report: Report) -> str:
    rows = [(name, units.score(number), escape(meaning)) for name, number, meaning in words.explanation_in_words(report)]
    if not rows or report.explanation is None:
        return ""
    blind = f"Nsight's “SOL %” is rate × idle, {units.percent(report.explanation.nsight_sol)} here: it cannot see waste."
    caption = f"R = waste × rate × idle = {units.score(report.sol_score)}"
    return _table((), rows, ("left", "right", "left"), caption) + f"<div>{escape(blind)}</div>"


def _lines(report: Report) -> str:
    head, rows = words.line_table(report)
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
    rows = words.counter_rows(report, every=True) + words.traffic_rows(report)
    cells = [
        (
            _code(name),
            escape(text),
            "exact" if counter.exact else "estimated",
            f"{_code(ncu) if ncu else 'no counter of its own'}<br><small>{escape(counter.meaning)}</small>",
        )
        for name, text, ncu, counter in rows
    ]
    return _table(("counter", "value", "", "in Nsight Compute"), cells, ("left", "right", "left", "left"), "") if cells else ""


def _ledger(report: Report) -> str:
    rows = [(escape(f"{t.direction} {t.name}"), units.size(t.bytes)) for t in report.work.terms]
    rows += [(escape(kind), units.flops(count)) for kind, count in report.work.flops.items() if count]
    return _table((), rows, ("left", "right"), "Work: what cannot be avoided") if rows else ""


def _notes(report: Report) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in words.notes(report))
    return f'<ul style="margin:4px 0;padding-left:20px;opacity:0.75">{items}</ul>' if items else ""


def html(report: Report) -> str:
    """The whole report as one HTML fragment. Everything that comes from the kernel's source or its names is escaped."""
    parts = [_head(report), _alarm(report), _pictures(report), _facts(report), _advice(report), _lines(report)]
    parts += [_folded("Counters, with Nsight Compute's names", _counters(report)), _folded("The ledger behind T_SOL", _ledger(report))]
    parts += [_notes(report)]
    return f'<div class="sol-report" style="line-height:1.45;max-width:72em">{"".join(parts)}</div>'
