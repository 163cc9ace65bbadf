"""The figures' SVG as PNG, for where widgets and SVG are dropped: printed, converted and untrusted notebooks.

Draws what svg.py writes, and nothing else, with matplotlib: an element, attribute or path command it does not know is refused by
name. Every panel that is displayed waits for this, so there are no axes and no layout engine, only shapes in pixels.
"""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D
    from PIL.Image import Image

Look = Mapping[str, str]  # attributes that an element inherits
SHARPNESS = 1.5  # pixels of the PNG for one of the page
NARROWER = 0.93  # matplotlib's DejaVu Sans runs wider than the fonts of pages
COLOURS = 64
_LOOK = "fill stroke stroke-width stroke-dasharray stroke-linejoin stroke-linecap fill-opacity stroke-opacity"
INHERITED = frozenset(f"{_LOOK} font-family font-size font-weight text-anchor".split())
EVERY = frozenset({"opacity", "transform"})
OWN = {"svg": "viewBox width height role style", "rect": "x y width height rx", "circle": "cx cy r", "path": "d", "text": "x y"}
SILENT = ("title", "desc")  # for ears and pointers
ARGUMENTS = {"M": 2, "L": 2, "H": 1, "V": 1, "Q": 4, "C": 6, "A": 7, "Z": 0}
BESIDE = {"start": "left", "middle": "center", "end": "right"}


# ---------------------------------------------------------------------------------------------------------------- paths
def _commands(d: str) -> Iterator[tuple[str, list[float]]]:
    """Each command of path data with as many numbers as it takes. Raises ValueError for one that is unknown or incomplete."""
    for letter, rest in re.findall(r"([A-Za-z])([^A-Za-z]*)", d):
        count, numbers = ARGUMENTS.get(letter.upper()), [float(n) for n in re.findall(r"-?\d*\.?\d+", rest)]
        if count is None or (len(numbers) % count if count else numbers):
            raise ValueError(f"stills cannot draw {letter + rest!r} of a path")
        if not count:
            yield letter, []
        for n in range(0, len(numbers), count or 1):
            repeated = n > 0 and letter in "Mm"  # the numbers after the first place are lines
            yield chr(ord(letter) - 1) if repeated else letter, numbers[n : n + (count or 1)]


def outline(d: str) -> Path:
    """Path data as a matplotlib Path."""
    from matplotlib.path import Path

    places: list[tuple[float, float]] = []
    codes: list[int] = []
    x = y = 0.0
    start = (0.0, 0.0)
    for letter, numbers in _commands(d):
        kind, (dx, dy) = letter.upper(), (x, y) if letter.islower() else (0.0, 0.0)
        if kind == "Z":
            points, code = [start], int(Path.CLOSEPOLY)
        elif kind == "H":
            points, code = [(numbers[0] + dx, y)], int(Path.LINETO)
        elif kind == "V":
            points, code = [(x, numbers[0] + dy)], int(Path.LINETO)
        elif kind == "A":
            points, code = arc((x, y), numbers, (numbers[5] + dx, numbers[6] + dy)), int(Path.CURVE4)
        else:
            points = [(a + dx, b + dy) for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
            code = int({"M": Path.MOVETO, "L": Path.LINETO, "Q": Path.CURVE3, "C": Path.CURVE4}[kind])
        places += points
        codes += [code] * len(points)
        x, y = points[-1]
        start = (x, y) if kind == "M" else start
    return Path(places or [(0.0, 0.0)], codes or [Path.MOVETO])


def arc(begin: tuple[float, float], numbers: Sequence[float], end: tuple[float, float]) -> list[tuple[float, float]]:
    """The points of cubic curves along an elliptical arc of a path, without the first one. Raises ValueError for a turned ellipse.

    Source: SVG 1.1, appendix F.6.5, with an unturned ellipse: both ends scaled to the unit circle.
    """
    rx, ry, turned, large, sweep = numbers[:5]
    if turned:
        raise ValueError("stills cannot draw a turned ellipse")
    (x1, y1), (x2, y2) = (begin[0] / rx, begin[1] / ry), (end[0] / rx, end[1] / ry)
    half = math.hypot(x2 - x1, y2 - y1) / 2
    if half == 0:
        return [end]
    grow = max(1.0, half)  # radii too small to reach are grown until they do
    rx, ry, x1, y1, x2, y2, half = rx * grow, ry * grow, x1 / grow, y1 / grow, x2 / grow, y2 / grow, half / grow
    away = math.sqrt(max(0.0, 1 - half * half)) / (2 * half) * (1 if bool(large) != bool(sweep) else -1)
    cx, cy = (x1 + x2) / 2 - away * (y2 - y1), (y1 + y2) / 2 + away * (x2 - x1)
    first = math.atan2(y1 - cy, x1 - cx)
    angle = (math.atan2(y2 - cy, x2 - cx) - first) % math.tau
    angle = angle if sweep else angle - math.tau
    steps = max(1, math.ceil(abs(angle) / (math.pi / 2) - 1e-9))
    each = angle / steps
    pull = 4 / 3 * math.tan(each / 4)
    points = []
    for n in range(steps):
        a, b = first + n * each, first + (n + 1) * each
        points.append((math.cos(a) - pull * math.sin(a), math.sin(a) + pull * math.cos(a)))
        points.append((math.cos(b) + pull * math.sin(b), math.sin(b) - pull * math.cos(b)))
        points.append((math.cos(b), math.sin(b)))
    return [((cx + px) * rx, (cy + py) * ry) for px, py in points]


# -------------------------------------------------------------------------------------------------------------- drawing
def moved(words: str | None) -> Affine2D:
    """A transform attribute. Raises ValueError for one it does not know."""
    from matplotlib.transforms import Affine2D

    made = Affine2D()
    for name, inside in reversed(re.findall(r"(\w+)\(([^)]*)\)", words or "")):
        numbers = [float(n) for n in re.split(r"[\s,]+", inside.strip())]
        if name == "translate":
            made.translate(numbers[0], (*numbers, 0.0)[1])
        elif name == "scale":
            made.scale(*numbers)
        elif name == "rotate" and len(numbers) != 2:
            made.rotate_deg_around(*(numbers[1:] or (0.0, 0.0)), numbers[0])
        else:
            raise ValueError(f"stills cannot draw transform {words!r}")
    return made


def size_of(picture: str) -> tuple[float, float]:
    """(width, height) of a picture of svg.py, in pixels of the page."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', picture)
    if found is None:
        raise ValueError("stills cannot draw a picture without a viewBox that starts at 0 0")
    return float(found[1]), float(found[2])


class Canvas:
    """A figure of width x height pixels of the page, y downwards, to draw pictures on. ink: what stands for currentColor."""

    def __init__(self, width: float, height: float, ink: str = "black", paper: str = "white", sharpness: float = SHARPNESS):
        from matplotlib.figure import Figure
        from matplotlib.transforms import Affine2D

        self.ink = ink
        self.figure: Figure = Figure(figsize=(width / 72, height / 72), dpi=72 * sharpness, facecolor=paper)
        self.upright = Affine2D().scale(sharpness, -sharpness).translate(0, height * sharpness)  # from the page's pixels to the figure's
        self.drawn = 0

    def draw(self, picture: str, x: float = 0.0, y: float = 0.0) -> None:
        """A picture of svg.py with its upper left corner at (x, y). Raises ValueError for what only a browser could draw."""
        from matplotlib.transforms import Affine2D

        self._element(ET.fromstring(picture), {}, 1.0, Affine2D().translate(x, y))

    def _element(self, element: ET.Element, look: Look, opacity: float, where: Affine2D) -> None:
        name = element.tag.rpartition("}")[2]
        if name in SILENT:
            return
        if name not in SHAPES and name not in ("svg", "g", "text"):
            raise ValueError(f"stills cannot draw <{name}>")
        known = INHERITED | EVERY | set(OWN.get(name, "").split())
        for key in element.attrib:
            if key not in known and not key.startswith(("data-", "aria-")):
                raise ValueError(f"stills cannot draw {key!r} of <{name}>")
        look = {**look, **{key: value for key, value in element.attrib.items() if key in INHERITED}}
        opacity *= float(element.get("opacity", 1))
        where = moved(element.get("transform")) + where
        if name in SHAPES:
            self._shape(SHAPES[name](element.attrib), look, opacity, where)
        elif name == "text":
            self._text(element, look, opacity, where)
        for child in element if name != "text" else ():
            self._element(child, look, opacity, where)

    def _colour(self, look: Look, part: str, opacity: float, default: str) -> Any:
        from matplotlib.colors import to_rgba

        colour = look.get(part, default)
        if colour == "none":
            return "none"
        red, green, blue, alpha = to_rgba(self.ink if colour == "currentColor" else colour)
        return red, green, blue, alpha * opacity * float(look.get(f"{part}-opacity", 1))

    def _add(self, artist: Any) -> None:
        self.drawn += 1
        artist.set_zorder(self.drawn)  # in the order of the picture, texts too
        self.figure.add_artist(artist)

    def _shape(self, path: Path, look: Look, opacity: float, where: Affine2D) -> None:
        from matplotlib.patches import PathPatch

        width = float(look.get("stroke-width", 1))
        dashes = [float(n) / width for n in look.get("stroke-dasharray", "").split()]  # matplotlib counts in widths
        patch = PathPatch(
            path,
            facecolor=self._colour(look, "fill", opacity, "black"),
            edgecolor=self._colour(look, "stroke", opacity, "none"),
            linewidth=width,
            linestyle=(0, dashes) if dashes else "solid",
            joinstyle=look.get("stroke-linejoin", "miter"),
            capstyle=look.get("stroke-linecap", "butt").replace("square", "projecting"),
            transform=where + self.upright,
        )
        self._add(patch)

    def _text(self, element: ET.Element, look: Look, opacity: float, where: Affine2D) -> None:
        from matplotlib.text import Text
        from matplotlib.transforms import IdentityTransform

        if len(element):
            raise ValueError(f"stills cannot draw <{element[0].tag.rpartition('}')[2]}> inside <text>")
        x, y = _numbers(element.attrib, "x", "y")
        to_figure = where + self.upright
        (left, base), (ahead, above) = to_figure.transform([(x, y), (x + 1, y)])
        text = Text(
            left,
            base,
            element.text or "",
            parse_math=False,
            transform=IdentityTransform(),
            color=self._colour(look, "fill", opacity, "black"),
            fontsize=float(look.get("font-size", 12)) * NARROWER,
            fontweight=look.get("font-weight", "normal"),
            fontfamily="monospace" if "monospace" in look.get("font-family", "") else "DejaVu Sans",
            ha=BESIDE[look.get("text-anchor", "start")],
            va="baseline",
            rotation=math.degrees(math.atan2(above - base, ahead - left)),
            rotation_mode="anchor",
        )
        self._add(text)

    def pixels(self) -> Image:
        """What is drawn, as an image."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from PIL import Image

        painted = FigureCanvasAgg(self.figure)
        painted.draw()
        return Image.fromarray(np.asarray(painted.buffer_rgba())).convert("RGB")

    def png(self) -> bytes:
        """PNG bytes with few colours: a quarter of the size, and sooner made, than with all."""
        from PIL.Image import Quantize

        target = io.BytesIO()
        self.pixels().quantize(COLOURS, Quantize.FASTOCTREE).save(target, format="png")
        return target.getvalue()


def _numbers(attributes: Mapping[str, str], *names: str) -> list[float]:
    return [float(attributes.get(name, 0)) for name in names]


def _rect(attributes: Mapping[str, str]) -> Path:
    x, y, width, height, rx = _numbers(attributes, "x", "y", "width", "height", "rx")
    r = min(rx, width / 2, height / 2)
    sides = [(width - 2 * r, 0, r, r), (0, height - 2 * r, -r, r), (2 * r - width, 0, -r, -r), (0, 2 * r - height, r, -r)]
    return outline(f"M{x + r:.3f} {y:.3f}" + "".join(_side(r, *side) for side in sides) + "z")


def _side(r: float, along: float, down: float, dx: float, dy: float) -> str:
    """A side of a box and the round corner after it."""
    return f"l{along:.3f} {down:.3f}" + (f"a{r:.3f} {r:.3f} 0 0 1 {dx:.3f} {dy:.3f}" if r else "")


def _circle(attributes: Mapping[str, str]) -> Path:
    x, y, r = _numbers(attributes, "cx", "cy", "r")
    half = f"a{r:.3f} {r:.3f} 0 1 0"
    return outline(f"M{x - r:.3f} {y:.3f}{half} {2 * r:.3f} 0{half} {-2 * r:.3f} 0z")


SHAPES: Mapping[str, Callable[[Mapping[str, str]], Path]] = {
    "rect": _rect,
    "circle": _circle,
    "path": lambda attributes: outline(attributes["d"]),
}
