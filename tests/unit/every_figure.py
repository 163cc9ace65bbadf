"""Every picture the package draws: in its panels, by sol.show and from records made by hand. What the checks of all figures stand on.

A function that calls svg.document and is reached by none of these is found by `undrawn`: a new figure cannot be forgotten.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import test_figures
import test_touch_map
from reports_by_hand import a_report

import solcourse
from solcourse import figures, panels, svg, touch_map, what_if_figures
from solcourse.errors import LaunchError
from solcourse.panels import frames
from solcourse.panels.parts import launch
from solcourse.showing import show
from solcourse.work import Work

PACKAGE = Path(solcourse.__file__).parent
KEPT = {("what_if", "kernel")}  # its last choices take long to compile, and change only numbers
SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)


@cache
def tiled_report():
    """A launch with global and shared memory, barriers and conflicts, run on the engine."""
    from solcourse import verbs
    from solcourse.kernels import transpose

    source = np.arange(64 * 96, dtype=np.float32).reshape(64, 96)
    return verbs.profile(launch(transpose.transpose_tiled, (3, 2), (32, 8)), source, np.zeros((96, 64), np.float32))


LEDGERS = {"unfused": Work.read("x", 4096) + Work.write("t", 4096) + Work.read("t again", 4096) + Work.write("y", 4096)}
LEDGERS["fused"] = Work.read("x", 4096) + Work.write("y", 4096)
# What sol.show's methods are given; the others get one report of a real launch.
SHOWN = {
    "roofline": lambda method: method(a_report(), a_report(time_s=40e-6)),
    "explained": lambda method: method({"wide": a_report(), "slow": a_report(time_s=90e-6), "fast": a_report(time_s=5e-6)}),
    "ledger": lambda method: method(**LEDGERS),
    "bytes": lambda method: method(**LEDGERS),
    "devices": lambda method: method(),
}


def _from_panels():
    """Each panel as it opens, and with all its controls at either end; a launch that no GPU takes is an answer without pictures."""
    for name in panels.PANELS:
        panel, attempts = panels.panel(name), []
        for where, end in (("opening", None), ("first", 0), ("last", -1)):
            kept = [c.name for c in panel.controls if end is None or (name, c.name) in KEPT]
            settings = {c.name: c.value if c.name in kept else c.options[end][1] for c in panel.controls}
            try:
                shown = frames.draw(panel, settings).along(attempts)
            except LaunchError:
                assert end is not None
                continue
            attempts = frames.path(attempts, shown.report)
            frames.still(shown, panel.title)
            for picture, markup in shown.pictures.items():
                yield f"panel {name}, {where}: {picture}", markup


def _from_show():
    for name, method in inspect.getmembers(show, inspect.ismethod):
        if not name.startswith("_"):
            shown = SHOWN.get(name, lambda method: method(tiled_report()))(method)
            for n, markup in enumerate(SVG.findall(shown.markup)):
                yield f"sol.show.{name} {n}", markup


def _by_hand():
    for name, draw in test_figures.PICTURES.items():
        yield name, draw()
    for name, finding in test_touch_map.FINDINGS.items():
        yield f"touch map {name}", touch_map.touch_map(finding)
    everywhere = tiled_report().on_all()
    bounds = itertools.cycle(figures.BOUND_WORDS)
    yield "devices", what_if_figures.devices(replace(everywhere, reports=tuple(replace(r, bound=next(bounds)) for r in everywhere)))
    yield "sensitivity", what_if_figures.sensitivity(tiled_report().sensitivity())


@cache
def everything() -> tuple[dict[str, str], frozenset[tuple[str, str]]]:
    """({where it comes from: SVG}, each once, and (module, function) of all that called svg.document)."""
    original, callers = svg.document, set()

    def document(*args, **kwargs):
        frame = sys._getframe(1)
        while frame.f_code.co_name.startswith("<") and frame.f_back:  # a comprehension of the function that it stands in
            frame = frame.f_back
        callers.add((Path(frame.f_code.co_filename).name, frame.f_code.co_name))
        return original(*args, **kwargs)

    svg.document = document
    try:
        pictures = {name: markup for source in (_from_panels, _from_show, _by_hand) for name, markup in source()}
    finally:
        svg.document = original
    return {name: markup for markup, name in {markup: name for name, markup in pictures.items()}.items()}, frozenset(callers)


def figure_functions():
    """(module, function) of every function of the package that calls svg.document."""
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text()
        if "svg.document(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(call, ast.Call) and ast.unparse(call.func) == "svg.document" for call in ast.walk(node)
            ):
                yield file.name, node.name


def undrawn() -> set[tuple[str, str]]:
    """The figure functions that none of the pictures was drawn by."""
    return set(figure_functions()) - everything()[1]
