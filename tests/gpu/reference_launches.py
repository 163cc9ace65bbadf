"""The reference kernels as launches for a real GPU: at sizes that fill it, and one after the other in a process of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from solcourse.kernels import cases

SEED = 7
LARGE = {1: (1 << 22,), 2: (2048, 1024), 3: (512, 512, 256)}  # by the dimensions of a case's shape
SAMPLE_BLOCKS = 256


def small(name: str):
    """(kernel[grid, block], arguments) at the shape that tests use."""
    case = cases()[name]
    return case.configured(*case.shapes[0]), case.make(np.random.default_rng(SEED), *case.shapes[0])


def large(name: str):
    """(kernel[grid, block], arguments, work) at a size that fills a GPU."""
    case = cases()[name]
    shape = LARGE[len(case.shapes[0])]
    return case.configured(*shape), case.make(np.random.default_rng(SEED), *shape), case.work(*shape)


def script(names) -> str:
    """Python that launches each once on the GPU, in this order."""
    here = str(Path(__file__).parent)
    return (
        f"import sys\nsys.path.insert(0, {here!r})\nfrom reference_launches import small\n"
        f"for name in {list(names)!r}:\n    launch, arguments = small(name)\n    launch(*arguments)\n"
    )


def table(rows) -> str:
    """Rows of words as columns."""
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
