"""The reference ladders: one file per topic, kernels from naive to best, each with its NumPy reference and its Work.

Importing this package is cheap: the topics import numba, so they load when asked for.

    from solcourse.kernels import transpose
    transpose.transpose_padded              the kernel
    transpose.CASES["transpose_padded"]     how to feed, launch, judge and score it (case.Case)
"""

from __future__ import annotations

import importlib

from solcourse.errors import UnknownName
from solcourse.kernels.case import Case

TOPICS = (
    "vector_add", "saxpy", "copy", "coalescing", "transpose", "matmul", "streaming", "reduction",
    "fusion", "layernorm", "histogram", "scan", "softmax", "mandelbrot", "polynomial", "complex_axpy",
)  # fmt: skip


def cases(topic: str | None = None) -> dict[str, Case]:
    """Every reference kernel by name, in the order of the ladders; of one topic when it is given.

    Raises UnknownName for a topic that does not exist.
    """
    if topic is not None and topic not in TOPICS:
        raise UnknownName("topic", topic, TOPICS)
    found: dict[str, Case] = {}
    for name in (topic,) if topic else TOPICS:
        found |= importlib.import_module(f"{__name__}.{name}").CASES
    return found


def case(name: str) -> Case:
    """The reference kernel of that name. Raises UnknownName."""
    every = cases()
    if name not in every:
        raise UnknownName("reference kernel", name, every)
    return every[name]
