"""The few SVG elements the figures are made of, as functions that return strings: the definition of the figures' look.

Lines and text are `currentColor`, so that a figure follows the page's theme; fills are Okabe and Ito's colours, which stay
apart for colour-blind readers and stand out on white and on black: tests/unit/test_figures_contrast.py holds every figure to it.
Coordinates are pixels, y downwards.
Source: M. Okabe, K. Ito, Color Universal Design (2008); contrast: WCAG 2.1, 1.4.3 and 1.4.11.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
INK = "currentColor"
ON = {BLUE: "#fff", ORANGE: "#000", GREEN: "#000"}  # the text on each fill: at least 4.5 : 1
FAINT = 0.65  # opacity of secondary text and lines: less would be hard to read on JupyterLab's white, whose ink is no full black
PALE = 0.15  # opacity of what says nothing alone: grid lines, tints
BEHIND = 0.06  # opacity of an area of ink that fills are drawn on, such as the track of a bar: all three must stand out from it
FONT = "system-ui,sans-serif"


def num(value: float) -> str:
    """A coordinate with at most one decimal: 12, 12.3."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def _extra(attributes: dict[str, object]) -> str:
    """opacity=.5, stroke_width=2 -> ' opacity="0.5" stroke-width="2"'; None is left out."""
    parts = []
    for key, value in attributes.items():
        if value is not None:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(shown)}"')
    return "".join(parts)


def text(x: float, y: float, words: str, *, size: int = 12, anchor: str | None = None, **attributes: object) -> str:
    """Words whose baseline starts at (x, y); anchor "middle" or "end" moves them to the left."""
    size_ = None if size == 12 else size  # the document's own size
    return f'<text x="{num(x)}" y="{num(y)}"{_extra({"font_size": size_, "text_anchor": anchor, **attributes})}>{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, fill: str = INK, **attributes: object) -> str:
    """A filled box; a negative width is drawn as none."""
    size = f'width="{num(max(width, 0.0))}" height="{num(max(height, 0.0))}"'
    return f'<rect x="{num(x)}" y="{num(y)}" {size} fill="{fill}"{_extra(attributes)}/>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = INK, **attributes: object) -> str:
    return f'<path d="M{num(x1)} {num(y1)}L{num(x2)} {num(y2)}" stroke="{stroke}"{_extra(attributes)}/>'


def polyline(points: Iterable[tuple[float, float]], stroke: str = INK, **attributes: object) -> str:
    d = "L".join(f"{num(x)} {num(y)}" for x, y in points)
    return f'<path d="M{d}" fill="none" stroke="{stroke}"{_extra(attributes)}/>'


def boxes(corners: Iterable[tuple[float, float]], width: float, height: float) -> str:
    """Path data for many boxes of one size, each given by its upper left corner: far shorter than as many rects."""
    one = f"h{num(width)}v{num(height)}h-{num(width)}z"
    return "".join(f"M{num(x)} {num(y)}{one}" for x, y in corners)


def path(d: str, fill: str = "none", **attributes: object) -> str:
    return f'<path d="{d}" fill="{fill}"{_extra(attributes)}/>'


def circle(x: float, y: float, r: float, fill: str = INK, **attributes: object) -> str:
    return f'<circle cx="{num(x)}" cy="{num(y)}" r="{num(r)}" fill="{fill}"{_extra(attributes)}/>'


def star(x: float, y: float, r: float, fill: str) -> str:
    """A four-pointed star."""
    q = r * 0.35
    corners = [(0, -r), (q, -q), (r, 0), (q, q), (0, r), (-q, q), (-r, 0), (-q, -q)]
    return path("M" + "L".join(f"{num(x + dx)} {num(y + dy)}" for dx, dy in corners) + "z", fill)


def group(children: Iterable[str], **attributes: object) -> str:
    return f"<g{_extra(attributes)}>{''.join(children)}</g>"


def document(width: float, height: float, label: str, children: Iterable[str]) -> str:
    """A whole figure. `label` is what a screen reader says in its place, so it must hold the figure's numbers."""
    # color-scheme is left to the page; max-width lets the figure shrink with the notebook's column
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {num(width)} {num(height)}" width="{num(width)}" '
        f'role="img" aria-label="{escape(label)}" font-family="{FONT}" font-size="12" fill="{INK}" '
        'style="max-width:100%;height:auto">'
    )
    return f"{head}{''.join(children)}</svg>"


def shorten(words: str, length: int) -> str:
    """`words`, cut to `length` characters with an ellipsis where longer."""
    return words if len(words) <= length else words[: max(length - 1, 1)].rstrip() + "…"
