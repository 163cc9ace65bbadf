"""Every figure of the package can be read: by eye in JupyterLab's two themes, by ear, and in print.

Contrast is WCAG 2.1's: 4.5 : 1 for text, 3 : 1 for large text (1.4.3) and for graphics that carry meaning (1.4.11).
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from every_figure import everything, figure_functions, undrawn
from test_figures import SVG

from solcourse import stills, svg

matplotlib = pytest.importorskip("matplotlib", reason="figures are painted with matplotlib")

# --jp-content-font-color1, the ink of outputs, and --jp-layout-color0, what is behind a notebook's cells, in
# @jupyterlab/theme-light-extension and theme-dark-extension 4.6, style/variables.css
THEMES = {"light": ((0, 0, 0, 0.87), "#ffffff"), "dark": ((1, 1, 1, 1), "#111111")}
SHARP = 2.0
LARGE, LARGE_BOLD = 24, 18.66  # pixels from which text is large: 18 and 14 points

pytestmark = pytest.mark.slow  # every panel at both ends of its controls


# ---------------------------------------------------------------------------------------------------------- arithmetic
_SRGB = np.arange(256) / 255
LINEAR = np.where(_SRGB <= 0.04045, _SRGB / 12.92, ((_SRGB + 0.055) / 1.055) ** 2.4)


def luminance(colours) -> np.ndarray:
    """(..., 3) sRGB 0-255 -> relative luminance. Source: WCAG 2.1, definition of relative luminance."""
    return LINEAR[np.asarray(colours, np.uint8)] @ np.array([0.2126, 0.7152, 0.0722])


def contrast(one, other) -> np.ndarray:
    """Contrast ratio, 1 to 21."""
    a, b = luminance(one), luminance(other)
    return (np.maximum(a, b) + 0.05) / (np.minimum(a, b) + 0.05)


def over(ink, under: np.ndarray) -> np.ndarray:
    """An ink (red, green, blue, alpha: 0-1) over opaque colours 0-255."""
    return np.rint(255 * ink[3] * np.array(ink[:3]) + (1 - ink[3]) * under)


# ------------------------------------------------------------------------------------------------------------ painting
class Painting:
    """A figure painted shape by shape in a theme, and what cannot be told from what it stands on."""

    def __init__(self, picture: str, theme: str):
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        ink, paper = THEMES[theme]
        canvas = stills.Canvas(*stills.size_of(picture), ink, paper, SHARP)
        canvas.draw(picture)
        self.renderer = FigureCanvasAgg(canvas.figure).get_renderer()
        self.renderer.clear()
        canvas.figure.patch.draw(self.renderer)
        self.whole = np.asarray(self.renderer.buffer_rgba())
        self.unclear: list[str] = []
        for artist in sorted(canvas.figure.artists + canvas.figure.patches + canvas.figure.texts, key=lambda a: a.zorder):
            (self._text if hasattr(artist, "get_text") else self._shape)(artist)

    def _part(self, box) -> np.ndarray:
        """(h, w, 4) of what is painted inside a box, as a view."""
        height = self.whole.shape[0]
        rows = slice(max(0, int(height - box.y1)), max(0, int(np.ceil(height - box.y0))))
        return self.whole[rows, max(0, int(box.x0)) : max(0, int(np.ceil(box.x1)))]

    def _text(self, text) -> None:
        """Looks at the colours behind the middle of the words; a thin line that crosses them is none."""
        if not text.get_text().strip():
            return
        behind = np.ascontiguousarray(self._part(text.get_window_extent(self.renderer).expanded(0.9, 0.5))).view(np.uint32).ravel()
        colours, counts = np.unique(behind, return_counts=True)
        behind = colours[counts >= 0.25 * counts.sum()].view(np.uint8).reshape(-1, 4)[:, :3]
        size = text.get_fontsize() / stills.NARROWER
        least = 3 if size >= (LARGE_BOLD if text.get_fontweight() == "bold" else LARGE) else 4.5
        ratio = contrast(over(matplotlib.colors.to_rgba(text.get_color()), behind), behind).min(initial=21)
        if ratio < least:
            self.unclear.append(f"text {text.get_text()!r}: {ratio:.2f} of {least}")

    def _shape(self, patch) -> None:
        """Paints fill, then stroke: one of the two must stand out where the shape carries meaning."""
        fill, stroke = patch.get_facecolor(), patch.get_edgecolor()
        box = patch.get_window_extent(self.renderer).padded(2 * SHARP)
        ratios = []
        for face, edge in ((fill, "none"), ("none", stroke)):
            patch.set(facecolor=face, edgecolor=edge)
            alpha = max(patch.get_facecolor()[3], patch.get_edgecolor()[3])
            if not alpha:
                continue
            after = self._part(box)
            before = after.copy()
            patch.draw(self.renderer)
            changed = (before.view(np.uint32) != np.ascontiguousarray(after).view(np.uint32))[..., 0]
            if alpha > svg.PALE and changed.any():
                ratios.append(np.quantile(contrast(before[changed][:, :3], after[changed][:, :3]), 0.75))  # not the smoothed edges
        if ratios and max(ratios) < 3:
            drawn = matplotlib.colors.to_hex(fill if fill[3] else stroke)
            self.unclear.append(f"shape {drawn} {(box.x0 / SHARP, box.y0 / SHARP)} from below: {max(ratios):.2f} of 3")


def picture_of(*children: str) -> str:
    return svg.document(100, 40, "1 thing", children)


def unclear(*children: str, theme: str = "light") -> list[str]:
    return Painting(picture_of(*children), theme).unclear


# ----------------------------------------------------------------------------------------------------- the checks work
def test_contrast_is_wcags():
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((0x77, 0x77, 0x77), (255, 255, 255)) == pytest.approx(4.48, abs=0.01)  # the well-known near miss


def test_themes_are_jupyterlabs():
    """The colours above, as the installed JupyterLab has them."""
    pytest.importorskip("jupyterlab", reason="the themes are JupyterLab's")
    for theme, (ink, paper) in THEMES.items():
        css = Path(sys.prefix, f"share/jupyter/lab/themes/@jupyterlab/theme-{theme}-extension/index.css").read_text()
        text, page = (re.search(rf"{name}: ?([^;}}]+)", css)[1] for name in ("--jp-content-font-color1", "--jp-layout-color0"))
        found = re.fullmatch(r"rgba\((\d+),(\d+),(\d+),(.*)\)", text)
        rgba = (*(int(n) / 255 for n in found.groups()[:3]), float(found[4])) if found else matplotlib.colors.to_rgba(text)
        assert rgba == pytest.approx(ink)
        assert matplotlib.colors.to_rgba(page) == matplotlib.colors.to_rgba(paper)


def test_what_cannot_be_read_is_found():
    assert unclear(svg.text(5, 20, "faint", opacity=0.5))
    assert unclear(svg.rect(0, 0, 90, 30, svg.ORANGE), svg.text(5, 20, "white on orange", fill="#fff"))
    assert unclear(svg.rect(0, 0, 90, 30, svg.BLUE), svg.text(5, 20, "black on blue", fill="#000"))
    assert unclear(svg.text(5, 20, "a fixed black", fill="#000"), theme="dark")
    assert unclear(svg.rect(5, 5, 20, 20, "#E69F00"))
    assert unclear(svg.line(5, 5, 50, 5, opacity=0.4))
    assert unclear(svg.rect(0, 0, 90, 30, svg.BLUE), svg.rect(5, 5, 20, 20, svg.ORANGE))


def test_what_can_be_read_is_left_alone():
    for theme in THEMES:
        fills = [
            svg.rect(30 * n, 5, 28, 20, fill) + svg.text(30 * n + 4, 19, "22", fill=ink) for n, (fill, ink) in enumerate(svg.ON.items())
        ]
        assert not unclear(*fills, theme=theme)
        assert not unclear(svg.text(5, 20, "faint", opacity=svg.FAINT), svg.line(5, 30, 80, 36, opacity=svg.FAINT), theme=theme)
        assert not unclear(svg.rect(0, 0, 90, 30, opacity=svg.BEHIND), svg.rect(0, 0, 40, 30, svg.BLUE), theme=theme)  # a bar on its track
        outlined = svg.rect(5, 5, 20, 20, svg.ORANGE, fill_opacity=svg.PALE, stroke=svg.INK)
        assert not unclear(outlined, theme=theme)
    assert not unclear(svg.text(5, 30, "large", size=24, opacity=0.5))
    assert unclear(svg.text(5, 30, "small", size=23, opacity=0.5))


def test_every_figure_function_is_drawn_here():
    assert len(set(figure_functions())) >= 8
    assert undrawn() == set(), "draw it in every_figure.py: no panel and no method of sol.show reaches it"


# ------------------------------------------------------------------------------------------------------- every figure
@pytest.mark.parametrize("theme", THEMES)
def test_every_figure_stands_out_in_both_themes(theme):
    """Painted by stills, so a figure that cannot be printed fails here too, with the element's name."""
    unclear = {name: found for name, picture in everything()[0].items() if (found := Painting(picture, theme).unclear)}
    assert not unclear, "\n".join(f"{name}: {line}" for name, found in unclear.items() for line in found)


def test_every_figure_has_a_name_with_its_numbers():
    unnamed = {}
    for name, picture in everything()[0].items():
        root = ET.fromstring(picture)
        label = root.get("aria-label", "")
        empty = all(e.tag in (SVG + "text", SVG + "svg") for e in root.iter())  # a sentence that says there is nothing to draw
        if root.get("role") != "img" or not (re.search(r"\d", label) or empty and label):
            unnamed[name] = label
    assert unnamed == {}


def test_no_text_is_too_small():
    small = {}
    for name, picture in everything()[0].items():
        root = ET.fromstring(picture)
        sizes = {float(e.get("font-size", 12)) for e in root.iter() if "font-size" in e.attrib}
        if min(sizes) < 11:
            small[name] = min(sizes)
    assert small == {}
