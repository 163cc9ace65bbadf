"""A panel as a still picture: what a saved, converted or untrusted notebook shows in place of widgets."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any


def png(report: Any, attempts: Sequence[Any], title: str) -> bytes:
    """Bounds and roofline of a report as PNG bytes, on white. Imports matplotlib; touches no pyplot state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from solcourse import plots

    figure = Figure(figsize=(9.0, 3.6), dpi=100, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    plots.bounds(report, ax=left)
    plots.roofline(report.device, attempts, ax=right)
    figure.suptitle(title, fontsize=10)
    target = io.BytesIO()
    figure.savefig(target, format="png")
    return target.getvalue()
