"""A panel as a still picture: what a saved, converted or untrusted notebook shows in place of widgets."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any


def png(report: Any, attempts: Sequence[Any], title: str) -> bytes:
    """Bounds and roofline of a report, side by side, as PNG bytes on white."""
    from solcourse import plots

    left = plots.bounds(report)
    figure = left.figure
    figure.set_size_inches(9.0, 3.8)
    grid = figure.add_gridspec(1, 2)
    left.set_subplotspec(grid[0])
    plots.roofline(report.device, attempts, ax=figure.add_subplot(grid[1]))
    figure.suptitle(title, fontsize=10, family="monospace")
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=100, facecolor="white")
    return target.getvalue()
