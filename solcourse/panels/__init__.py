"""The live panels, one module each: name -> Panel. What a panel asks and what it shows, without a widget.

parts.py says what a panel is made of, frames.py what one shows for a setting; widgets.py makes it live.
"""

from __future__ import annotations

import importlib
from typing import Any

from solcourse.errors import UnknownName
from solcourse.panels.parts import Panel

PANELS = ("speed_of_light", "coalescing", "banks", "tiles", "latency", "divergence", "fusion", "what_if")  # in the order of the lessons


def panel(name: str, kernel: Any = None) -> Panel:
    """The panel of that name, around the learner's kernel where one is given. Raises UnknownName.

    The module of that name in this package has a function of that name, from a kernel or None to a Panel.
    """
    if name not in PANELS:
        raise UnknownName("panel", name, PANELS)
    made: Panel = getattr(importlib.import_module(f"{__name__}.{name}"), name)(kernel)
    return made
