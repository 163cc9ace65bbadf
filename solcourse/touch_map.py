"""Who touched a cell between two barriers, as a picture: the definition of where a Finding's touches are drawn.

Time runs to the right, in the order of this run, a column for each step; a row is a thread. write: a filled square; read: an open
circle; atomic: a diamond. The two that clash are ringed and joined, and the phase they clash in is shaded.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from html import escape

from solcourse import svg
from solcourse.simt.records import Finding
from solcourse.touches import Scene, Step, cell_of, plural, scene_of, sentence, source_line, story, title, verb, who_of

WIDTH, MARGIN, ROW = 640, 12, 30
MOST_KEYS = 6
WIDEST = 76.0  # pixels from one step to the next
MONOSPACE = "ui-monospace,monospace"


def _mark(x: float, y: float, action: str) -> str:
    """write: a filled square; atomic: a diamond; read: an open circle."""
    if action == "write":
        return svg.rect(x - 6, y - 6, 12, 12, svg.BLUE)
    if action == "atomic":
        return svg.path(f"M{svg.num(x)} {svg.num(y - 8)}l8 8l-8 8l-8-8z", svg.GREEN)
    return svg.circle(x, y, 6, "none", stroke=svg.BLUE, stroke_width=2.5)


def _touched(x: float, y: float, step: Step, said: str, label: str, ringed: bool = False) -> str:
    """A mark with its line number, and what it means when pointed at."""
    ring = svg.circle(x, y, 11, "none", stroke=svg.ORANGE, stroke_width=2.5) if ringed else ""
    number = svg.text(x + (14 if ringed else 10), y - 4, label, size=11)
    children = [f"<title>{escape(said)}</title>", ring, _mark(x, y, step.action), number]
    return svg.group(children, data_touch=step.action, data_clash="" if ringed else None)


class _Plot:
    """Where things are: columns of steps with gaps between, rows of threads."""

    def __init__(self, scene: Scene, top: float):
        self.scene, self.top = scene, top
        self.rows = len(scene.rows) + bool(scene.folded)
        self.names = [scene.name(who) for who in scene.rows]
        if scene.folded:
            self.names.append(f"and {plural(len(scene.folded), 'more thread')}")
        self.left = MARGIN + 8 + 6.7 * max(map(len, self.names))
        slots = len(scene.steps) + len(scene.gaps)
        self.slot = min(WIDEST, (WIDTH - MARGIN - self.left) / max(slots, 2))
        self.right = self.left + slots * self.slot
        self.bottom = top + self.rows * ROW

    def x(self, step: int) -> float:
        """The middle of a step's column."""
        return self.left + (step + sum(gap <= step for gap in self.scene.gaps) + 0.4) * self.slot

    def y(self, row: int) -> float:
        return self.top + (row + 0.5) * ROW

    def start(self, step: int) -> float:
        """The left edge of a step's column."""
        return self.x(step) - 0.4 * self.slot

    def place(self, touch: int) -> tuple[float, float]:
        step = next(n for n, s in enumerate(self.scene.steps) if touch in s.touches)
        return self.x(step), self.y(self.scene.rows.index(who_of(self.scene.touches[touch])))


def _phases(plot: _Plot) -> Iterator[tuple[int, int]]:
    """(first step, step after the last) of each phase drawn."""
    steps = plot.scene.steps
    first = 0
    for n in range(1, len(steps) + 1):
        if n == len(steps) or steps[n].phase != steps[first].phase:
            yield first, n
            first = n


def _columns(plot: _Plot) -> Iterator[str]:
    """Phases, the one of the clash shaded, and the barriers between them; what is left out."""
    scene = plot.scene
    for first, end in _phases(plot):
        x, until = plot.start(first), plot.start(end - 1) + plot.slot
        middle = (x + until) / 2
        inside = {i for step in scene.steps[first:end] for i in step.touches}
        if len(scene.marked) == 2 and inside >= set(scene.marked):
            yield svg.rect(x, plot.top, until - x, plot.bottom - plot.top, svg.ORANGE, fill_opacity=0.1, data_phase="clash")
            yield _label(middle, plot.top - 7, "blocks run in any order" if scene.two_blocks else "no barrier inside", font_weight="bold")
        if not scene.two_blocks:
            yield _label(middle, plot.top - 21, f"phase {scene.steps[first].phase}")
            if first and first not in scene.gaps:
                passed = scene.steps[first].phase - scene.steps[first - 1].phase
                yield svg.line(x, plot.top - 30, x, plot.bottom + 2, stroke_width=2, data_barrier="")
                yield _label(x, plot.bottom + 14, "barrier" if passed == 1 else plural(passed, "barrier"))
    for gap in scene.gaps:
        x = plot.start(gap) - plot.slot if gap < len(scene.steps) else plot.right - plot.slot
        yield svg.text(x + plot.slot / 2, plot.bottom - 2, "⋯", size=18, anchor="middle")


def _label(x: float, y: float, words: str, **attributes: object) -> str:
    """Small words around x, kept within the picture."""
    half = 3.2 * len(words)
    return svg.text(min(max(x, half + 2), WIDTH - half - 2), y, words, size=11, anchor="middle", **attributes)


def _threads(plot: _Plot) -> Iterator[str]:
    clashing = {who_of(plot.scene.touches[i]) for i in plot.scene.marked}
    for row, name in enumerate(plot.names):
        bold = "bold" if row < len(plot.scene.rows) and plot.scene.rows[row] in clashing else None
        yield svg.text(plot.left - 8, plot.y(row) + 4, name, anchor="end", font_weight=bold)
        yield svg.line(plot.left, plot.y(row), plot.right, plot.y(row), opacity=svg.PALE)


def _link(plot: _Plot) -> str:
    """The two that clash, joined: down to between their rows, along, and down again, so that it crosses no other mark."""
    if len(plot.scene.marked) != 2:
        return ""
    (x1, y1), (x2, y2) = (plot.place(i) for i in plot.scene.marked)
    middle = (y1 + y2) / 2
    down = 1 if y2 > y1 else -1
    points = [(x1, y1 + 11 * down), (x1, middle), (x2, middle), (x2, y2 - 11 * down)]
    return svg.polyline(points, svg.ORANGE, stroke_width=2.5, data_link="")


def _marks(plot: _Plot) -> Iterator[str]:
    scene = plot.scene
    for n, step in enumerate(scene.steps):
        folded = 0
        for i in step.touches:
            who = who_of(scene.touches[i])
            if who in scene.folded:
                folded += 1
                continue
            said = f"{scene.name(who)} {verb(step.action)} it at line {step.line}"
            yield _touched(plot.x(n), plot.y(scene.rows.index(who)), step, said, str(step.line), i in scene.marked)
        if folded:
            said = f"{plural(folded, 'more thread')} {verb(step.action, folded)} it here (line {step.line})"
            yield _touched(plot.x(n), plot.y(len(scene.rows)), step, said, f"×{folded:,}" if folded > 1 else str(step.line))


def _keys(plot: _Plot, y: float) -> Iterator[tuple[float, str]]:
    """(baseline, line of words) below the picture: each mark with its source line; what a reader would ask next."""
    scene = plot.scene
    keys = sorted({(step.line, step.action) for step in scene.steps})
    for line, action in keys[:MOST_KEYS]:
        code = svg.shorten(source_line(scene.finding.file, line), 68)
        words = svg.text(MARGIN + 22, y, f"{action}, line {line}", size=11)
        source = svg.text(MARGIN + 130, y, code, size=11, font_family=MONOSPACE) if code else ""
        yield y, _mark(MARGIN + 8, y - 4, action) + words + source
        y += 19
    for note in _notes(scene, len(keys)):
        yield y, svg.text(MARGIN, y, note, size=11)
        y += 17


def _notes(scene: Scene, keys: int) -> Iterator[str]:
    sharing: dict[tuple[str, int], set] = {}
    for step in scene.steps:
        here = {who_of(scene.touches[i]) for i in step.touches} & scene.folded
        sharing.setdefault((step.action, step.line), set()).update(here)
    shared = [
        f"{plural(len(who), 'more thread')} {verb(action, len(who))} it here (line {line})"
        for (action, line), who in sharing.items()
        if who
    ]
    if shared:
        yield f"Last row: {'; '.join(shared[:2])}{'; ...' if len(shared) > 2 else ''}."
    left_out = len(scene.touches) - sum(len(step.touches) for step in scene.steps)
    if left_out:
        yield f"⋯ {left_out:,} of {len(scene.touches):,} accesses to this cell are left out."
    if keys > MOST_KEYS:
        yield f"Accesses by {plural(keys - MOST_KEYS, 'more source line')} are drawn with their numbers only."


def touch_map(finding: Finding) -> str:
    """The picture of a finding's touches as SVG: threads down, time across, barriers between, the two that clash ringed and joined.

    Without touches, one line that says so.
    """
    if not finding.touches:
        words = f"{cell_of(finding)}: no accesses to it were recorded"
        return svg.document(WIDTH, 30, words, [svg.text(MARGIN, 18, svg.shorten(words, 95))])
    scene = scene_of(finding)
    heading, said = title(scene), sentence(scene)
    children = [f"<title>{escape(heading)}</title><desc>{escape(story(scene))}</desc>"]
    children.append(svg.text(MARGIN, 18, svg.shorten(heading, 88), font_weight="bold"))
    y = 18.0
    for line in textwrap.wrap(said, 100):
        y += 17
        children.append(svg.text(MARGIN, y, line))
    plot = _Plot(scene, y + (30 if scene.two_blocks else 46))
    children += [*_columns(plot), *_threads(plot), _link(plot), *_marks(plot)]
    barriers = not scene.two_blocks and len({step.phase for step in scene.steps}) > 1
    axis = plot.bottom + (30 if barriers else 16)
    children.append(svg.text(plot.left, axis, "time, in the order of this run →", size=11))
    below = list(_keys(plot, axis + 24))
    children += [drawn for _, drawn in below]
    return svg.document(WIDTH, below[-1][0] + 10, f"{heading}: {said}", children)
