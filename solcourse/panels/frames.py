"""A panel's settings -> a Frame: pictures side by side and the same numbers in words. Verdicts and errors as panels show them."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from solcourse import figures, stills, svg, units
from solcourse.access_maps import sectors
from solcourse.bank_maps import banks
from solcourse.panels.parts import Panel

MOST_ATTEMPTS = 12  # steps of the path that stay on the roofline
WIDEST = 500.0  # pixels of a picture that stands in a column


def columns(pictures: Mapping[str, str], right: Sequence[str], under: str = "") -> str:
    """Pictures in two columns, one where there is little room: those named in `right` in the second, with `under` below them.

    A picture wider than a column has a row of its own below both.
    """

    def cell(name: str, most: int) -> str:
        return f'<div class="sol-{name}" style="margin-bottom:8px;max-width:{most}px">{pictures[name]}</div>'

    def column(names: Sequence[str], more: str = "") -> str:
        return f'<div style="flex:1 1 400px;min-width:0;max-width:660px">{"".join(cell(name, 660) for name in names)}{more}</div>'

    wide = [name for name in pictures if is_wide(pictures[name])]
    left = [name for name in pictures if name not in right and name not in wide]
    beside = [name for name in right if name in pictures and name not in wide]
    rows = "".join(f'<div style="flex:1 1 100%">{cell(name, 1000)}</div>' for name in wide)
    return f'<div style="display:flex;flex-wrap:wrap;gap:0 24px">{column(left)}{column(beside, under)}{rows}</div>'


def is_wide(picture: str) -> bool:
    """Whether a column would make its text too small to read."""
    return stills.size_of(picture)[0] > WIDEST


@dataclass(frozen=True)
class Frame:
    """What a panel shows for one setting: SVG pictures by name and the same values as a sentence.

    report    without its run, whose trace holds much memory
    """

    report: Any
    label: str
    line: str
    values: str
    pictures: Mapping[str, str]
    with_path: bool = True
    right: tuple[str, ...] = ("roofline",)

    @property
    def html(self) -> str:
        """The pictures with the line of code above and the values in words below."""
        code = f'<code class="sol-line" style="font-size:1.05em;white-space:pre-wrap">{html.escape(self.line)}</code>'
        values = f'<p class="sol-values" role="status" style="margin:4px 0;line-height:1.45">{html.escape(self.values)}</p>'
        return f'<div class="sol-panel" style="line-height:1.45">{code}{columns(self.pictures, self.right, values)}</div>'

    def along(self, attempts: Sequence[Any]) -> Frame:
        """This frame with a roofline, where its panel wants one: the path so far, and this as its last step. See `path`."""
        if not self.with_path:
            return self
        return replace(self, pictures={**self.pictures, "roofline": figures.roofline(self.report.device, path(attempts, self.report))})


def still(frame: Frame, title: str) -> bytes:
    """A frame as PNG bytes, laid out as in HTML: title and code, two columns of pictures, the words under the second, then wide ones."""
    wide = [picture for picture in frame.pictures.values() if is_wide(picture)]
    left = [picture for name, picture in frame.pictures.items() if name not in frame.right and picture not in wide]
    right = [picture for name, picture in frame.pictures.items() if name in frame.right and picture not in wide]
    head = _rows([title], font_weight="bold", size=14) + _rows(frame.line.splitlines(), font_family="monospace")
    columns = [left, [*right, *_rows(textwrap.wrap(frame.values, 62))]]
    widths, heights = zip(*(_extent(column) for column in columns), strict=True)
    top = _extent(head)[1] + 10
    canvas = stills.Canvas(max(sum(widths) + 24, _extent(wide)[0]), top + max(heights) + _extent(wide)[1] + 8)
    for x, y, column in ((0.0, 4.0, head), (0.0, top, columns[0]), (widths[0] + 24, top, columns[1]), (0.0, top + max(heights), wide)):
        for picture in column:
            canvas.draw(picture, x, y)
            y += stills.size_of(picture)[1]
    return canvas.png()


def _extent(column: Sequence[str]) -> tuple[float, float]:
    """(width, height) of pictures below one another."""
    sizes = [stills.size_of(picture) for picture in column]
    return max((width for width, _ in sizes), default=0.0), sum(height for _, height in sizes)


def _rows(lines: Sequence[str], size: int = 12, **look: Any) -> list[str]:
    """Each line of words as a picture of its own."""
    return [svg.document(440, size + 5, row, [svg.text(12, size, row, size=size, **look)]) for row in lines]


def draw(panel: Panel, settings: Mapping[str, Any]) -> Frame:
    """Predicts for the settings and draws what depends on nothing else: all but the roofline."""
    report, label = panel.profile(settings), panel.label(settings)
    pictures = {"gauge": figures.gauge(report), **panel.pictures(settings, report), "bounds": figures.bounds(report)}
    values = values_of(report, panel.words(settings, report))
    return Frame(attempt(report, label), label, panel.line(settings), values, pictures, panel.path, panel.right)


def frame(panel: Panel, settings: Mapping[str, Any], attempts: Sequence[Any] = ()) -> Frame:
    """Predicts for the settings and draws. attempts: the path so far; see `path`."""
    return draw(panel, settings).along(attempts)


def attempt(report: Any, label: str) -> Any:
    """A report as a step of a path: under its own name, without the run, whose trace holds much memory."""
    return replace(report, kernel=label, run=None, prediction=None)


def path(attempts: Sequence[Any], now: Any) -> list[Any]:
    """The attempts a roofline shows: those on the device of `now`, at most MOST_ATTEMPTS, `now` last, nothing twice."""
    before = [
        a for a in attempts if (a.device is now.device or a.device == now.device) and (a.kernel, a.time_s) != (now.kernel, now.time_s)
    ]
    return [*before, now][-MOST_ATTEMPTS:]


def values_of(report: Any, words: str) -> str:
    """The numbers of a panel as a sentence: what a screen reader, or a reader of a saved notebook, gets. words: the panel's own."""
    sampled = f"{report.sampled_blocks:,} of {report.run.blocks:,} blocks were run." if report.sampled_blocks else ""
    said = (
        f"SOL score {units.score(report.sol_score)} {report.origin} on {report.device.name} "
        f"(attainable {units.score(report.attainable_score)}): {figures.interval(report)}, {figures.bound_words(report.bound)} binds."
    )
    return " ".join(filter(None, (said, words, sampled)))


def since_last(attempts: Sequence[Any]) -> str:
    """What the last attempt changed, as a sentence; "" for the first one."""
    if len(attempts) < 2:
        return ""
    before, now = attempts[-2:]
    change = now.time_s / before.time_s - 1
    told = "as long as before" if abs(change) < 0.005 else f"{abs(change):.0%} {'longer' if change > 0 else 'shorter'}"
    return (
        f"The attempt before: {units.seconds(before.time_s)}, SOL score {units.score(before.sol_score)}. "
        f"Now: {units.seconds(now.time_s)}, {units.score(now.sol_score)}, {told}; both {now.origin}."
    )


def verdict_html(verdict: Any, attempts: Sequence[Any]) -> str:
    """A verdict with the pictures of its counted launch: the score, the bounds, and the path of the attempts so far.

    attempts   as `path` gives them: the present one last
    """
    said = verdict._repr_html_()
    if verdict.report is None:
        return f'<div class="sol-verdict">{said}</div>'
    report = verdict.report
    pictures = {
        "gauge": figures.gauge(report),
        "access": worst_access(verdict),
        "bounds": figures.bounds(report),
        "roofline": figures.roofline(report.device, path(attempts, attempt(report, report.kernel))),
    }
    change = since_last(attempts)
    under = f'<p class="sol-change" style="margin:4px 0;line-height:1.45">{html.escape(change)}</p>' if change else ""
    return f'<div class="sol-verdict">{said}{columns(pictures, ["roofline"], under)}</div>'


def worst_access(verdict: Any) -> str:
    """The access that the first open gate complains of: banks where these conflict; else the hottest access to global memory."""
    report = verdict.report
    gate = next((gate for gate in verdict.gates if not gate.passed), None)
    if gate is not None and gate.name.startswith("bank conflicts"):
        return banks(report.run, [], 4, line=gate.line)
    return sectors(report.run, fetch_bytes=report.device.dram_fetch_bytes)


def error_html(error: BaseException) -> str:
    """An error as a box inside the panel: its first line in bold, the rest as it is."""
    first, _, rest = str(error).partition("\n")
    more = f'<pre style="margin:4px 0 0;white-space:pre-wrap">{html.escape(rest)}</pre>' if rest.strip() else ""
    box = "border-left:4px solid #D55E00;padding:6px 10px;margin:6px 0"
    return f'<div class="sol-error" role="alert" style="{box}"><strong>{html.escape(first or type(error).__name__)}</strong>{more}</div>'
