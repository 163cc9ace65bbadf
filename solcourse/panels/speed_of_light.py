"""The panel of lesson 00: from an operation that only moves bytes to one that mostly computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from solcourse.panels.coalescing import sectors_in_words
from solcourse.panels.parts import BLOCK, SIZE, Control, Panel, device_control, options, predict, room

# Multiples of 8: the compiler unrolls the loop by 8, and each turn left over costs six integer instructions of its own.
# Between these stops the time is a saw.
DEGREES = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
OPERATIONS = (
    ("copy: y = x", "copy"),
    ("saxpy: y = a x + y", "saxpy"),
    ("polynomial of the degree above", "polynomial"),
)


def speed_of_light(kernel: Any = None) -> Panel:
    """The panel of lesson 00: from an operation that only moves bytes to one that mostly computes.

    kernel   a numba.cuda kernel of (x, out, degree) with float32 arrays; takes the place of the polynomial
    """
    controls = (
        Control("degree", "degree", options(DEGREES), 8, slider=True, note="multiply-adds on every element"),
        Control("operation", "operation", OPERATIONS, "polynomial" if kernel is not None else "copy", note="what is computed"),
        BLOCK,
        SIZE,
        device_control(),
    )

    def profile(settings: Mapping[str, Any]) -> Any:
        from solcourse.kernels import copy, polynomial, saxpy

        n = settings["size"]
        both, out = room("float32", "src", 2 * n), room("float32", "dst", n)
        x, y = both[:n], both[n:]
        chosen, arguments, work = {
            "copy": (copy.copy, (x, out), copy.work(n)),
            "saxpy": (saxpy.saxpy, (np.float32(2), x, y, out), saxpy.work(n)),
            "polynomial": (kernel or polynomial.polynomial, (x, out, settings["degree"]), polynomial.work(n, settings["degree"])),
        }[settings["operation"]]
        block = settings["block"]
        return predict(chosen, -(-n // block), block, arguments, device=settings["device"], work=work)

    def line(settings: Mapping[str, Any]) -> str:
        if settings["operation"] == "polynomial":
            return f"{settings['degree']} x total = total * x + c    # 2 FLOPs each, on 8 bytes per element"
        return {"copy": "out[i] = x[i]", "saxpy": "out[i] = a * x[i] + y[i]"}[settings["operation"]]

    def label(settings: Mapping[str, Any]) -> str:
        return f"degree {settings['degree']}" if settings["operation"] == "polynomial" else settings["operation"]

    def idle(settings: Mapping[str, Any]) -> tuple[str, ...]:
        return () if settings["operation"] == "polynomial" else ("degree",)

    title = "Speed of light: bytes against FLOPs"
    return Panel("speed_of_light", title, controls, profile, line, label, words=sectors_in_words, idle=idle)
