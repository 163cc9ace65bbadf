"""Kernels with one planted fault each, and their corrected twins: what a case is, and how the planted_*.py files write one down.

    @fault("read_after_write", array="s", block=64, args=lambda: (ramp(64), zeros(64)), expect=lambda x, out: x[::-1])
    def reverse(x, out):
        ...  # fault          marks each line that the finding must name

    @reverse.twin
    def reverse_synced(x, out):
        ...

`expect` takes the twin's arguments as they were before and returns what the twin leaves in the last of them, by NumPy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

CASES: list[Case] = []

RAW, WAR, WAW = "read_after_write", "write_after_read", "write_after_write"
LOST, SAME = "lost_update", "same_value_write"
HAZARDS = (RAW, WAR, WAW, LOST, SAME)
FULL = 0xFFFFFFFF


class Case:
    """One planted fault.

    kinds     findings are of these only; more than one where a loop without barriers makes both orders of the accesses possible
    arrays    the finding names one of these; "" for barriers
    helpers   device functions whose lines may be marked too
    twin_args where the fault is in the arguments
    """

    def __init__(self, faulty: Callable, kinds: tuple[str, ...], arrays: tuple[str, ...], options: dict[str, Any]):
        self.name = f"{faulty.__module__.removeprefix('planted_')}.{faulty.__name__}"
        self.faulty, self.kinds, self.arrays = cuda.jit(faulty), kinds, arrays
        self.severity: str = options.pop("severity", "error")
        self.grid = options.pop("grid", 1)
        self.block = options.pop("block", 32)
        self.shared_bytes: int = options.pop("shared_bytes", 0)
        self.helpers: tuple[Any, ...] = options.pop("helpers", ())
        self.args: Callable[[], tuple] = options.pop("args")
        self.twin_args: Callable[[], tuple] = options.pop("twin_args", self.args)
        self.expect: Callable[..., Any] = options.pop("expect")
        self.corrected: Any = None
        assert not options, f"{self.name}: no such options {sorted(options)}"

    def twin(self, kernel: Callable) -> Any:
        assert self.corrected is None, f"{self.name} has two twins"
        self.corrected = cuda.jit(kernel)
        return self.corrected

    def launch(self, kernel: Any) -> Any:
        return kernel[self.grid, self.block, 0, self.shared_bytes]

    @property
    def marked(self) -> set[int]:
        """Numbers of the lines of the faulty kernel that end in `# fault`."""
        found = set()
        for function in (self.faulty, *self.helpers):
            lines, first = inspect.getsourcelines(function.py_func)
            found |= {first + i for i, line in enumerate(lines) if line.rstrip().endswith("# fault")}
        return found


def fault(*kinds: str, array: str | tuple[str, ...] = "", **options: Any) -> Callable[[Callable], Case]:
    """Options: severity "error", grid 1, block 32, shared_bytes 0 (dynamic), helpers (), twin_args; args and expect are needed."""

    def register(kernel: Callable) -> Case:
        case = Case(kernel, kinds, (array,) if isinstance(array, str) else array, options)
        CASES.append(case)
        return case

    return register


def ramp(*shape: int, dtype: Any = np.int32) -> np.ndarray:
    """1, 2, 3, ...: no two elements alike, and none zero."""
    return np.arange(1, 1 + int(np.prod(shape))).astype(dtype).reshape(shape)


def zeros(*shape: int, dtype: Any = np.int32) -> np.ndarray:
    return np.zeros(shape, dtype)
