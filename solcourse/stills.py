"""A panel as a still picture: what a saved, converted or untrusted notebook shows in place of widgets."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any


def png(report: Any, attempts: Sequence[Any], title: str) -> bytes:
    """Bounds and roofline of a report, side by side, as PNG bytes on white.

    Every panel that is displayed waits for this: places are given, because a layout engine draws everything twice.
    """
    from matplotlib.figure import Figure

    from solcourse import plots

    figure = Figure(figsize=(9.0, 3.8))
    plots.bounds(report, ax=figure.add_axes((0.175, 0.2, 0.3, 0.6)))
    plots.roofline(report.device, attempts, ax=figure.add_axes((0.57, 0.13, 0.42, 0.74)))
    figure.suptitle(title, fontsize=10, family="monospace")
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=80, facecolor="white")
    return target.getvalue()
