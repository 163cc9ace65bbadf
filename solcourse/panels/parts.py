"""What every live panel is made of, without a widget: Control, Panel, and how a panel launches a kernel on very large arrays.

A Panel turns settings (one value per Control) into a Report and pictures; frames.py puts them side by side, widgets.py makes them live.
Tests and static pages need neither a browser nor ipywidgets.
"""

from __future__ import annotations

import math
import mmap
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np

from solcourse.errors import UnknownName
from solcourse.hardware import DEFAULT_DEVICE, devices
from solcourse.work import Work

SAMPLE_THREADS = 2**13  # of a launch of 2^26: enough for neighbours to meet in the caches, few enough for a slider
LARGEST = 2**26  # elements a panel's launch writes
MOST_READ = 3 * (64 * LARGEST + 32)  # elements that the largest of them reads from: three fields, stride 64, offset 32
_NORESERVE = 0x4000  # Linux's MAP_NORESERVE, which the mmap module names from Python 3.13 on


@dataclass(frozen=True)
class Control:
    """One thing to turn. `options` are (label, value) pairs; `note` is what it means, in a few words."""

    name: str
    label: str
    options: tuple[tuple[str, Any], ...]
    value: Any
    slider: bool = False
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel without its widgets.

    profile   settings {control name: value} -> Report, predicted from sampled blocks
    line      settings -> the source line that the settings change, as a learner would write it
    label     settings -> what to call an attempt on the roofline
    pictures  settings, Report -> the SVG pictures of what this panel is about, by name; they stand between the gauge and the bounds
    words     settings, Report -> the numbers of those pictures as a sentence
    path      whether the attempts are drawn as a path on a roofline
    right     the pictures of the right column, where its own are tall: "bounds" may join the roofline
    idle      settings -> the names of the controls that change nothing while these hold
    """

    name: str
    title: str
    controls: tuple[Control, ...]
    profile: Callable[[Mapping[str, Any]], Any]
    line: Callable[[Mapping[str, Any]], str]
    label: Callable[[Mapping[str, Any]], str]
    pictures: Callable[[Mapping[str, Any], Any], Mapping[str, str]] = lambda settings, report: {}
    words: Callable[[Mapping[str, Any], Any], str] = lambda settings, report: ""
    path: bool = True
    right: tuple[str, ...] = ("roofline",)
    idle: Callable[[Mapping[str, Any]], Collection[str]] = lambda settings: ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings a panel opens with."""
        return {control.name: control.value for control in self.controls}

    def control(self, name: str) -> Control:
        """The control of that name. Raises UnknownName."""
        for control in self.controls:
            if control.name == name:
                return control
        raise UnknownName("control", name, [c.name for c in self.controls])


def lazy_array(elements: int, dtype: str | type = np.float32) -> np.ndarray:
    """(elements,) zeros that take memory only where they are touched, however large: a panel touches a few blocks of 16 GiB.

    np.zeros does the same until the operating system finds the sum of promises too large; this asks it not to reserve.
    """
    nbytes = max(1, elements * np.dtype(dtype).itemsize)
    if not sys.platform.startswith("linux"):
        return np.zeros(elements, dtype)
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    return np.frombuffer(pages, dtype=dtype, count=elements)


@cache
def _everything(dtype: str, role: str) -> np.ndarray | None:
    """The one array that every launch of a session takes its slice of, or None where so much cannot even be promised."""
    most = MOST_READ if role == "src" else LARGEST
    try:
        return lazy_array(most, dtype)
    except (OSError, MemoryError, ValueError):
        return None


def room(dtype: str, role: str, elements: int) -> np.ndarray:
    """(elements,) zeros for one role of a launch. Raises MemoryError where they cannot even be promised."""
    everything = _everything(dtype, role)
    return lazy_array(elements, dtype) if everything is None else everything[:elements]


def options(values: Sequence[Any], label: Callable[[Any], str] = str) -> tuple[tuple[str, Any], ...]:
    """(label, value) pairs for a Control."""
    return tuple((label(value), value) for value in values)


def power(n: int) -> str:
    """
    >>> power(1024)
    '2^10'
    """
    return f"2^{n.bit_length() - 1}"


def device_control() -> Control:
    """Which GPU the panel predicts for."""
    return Control("device", "device", options([d.name for d in devices()]), DEFAULT_DEVICE)


BLOCK = Control("block", "block size", options([32, 64, 128, 256, 512, 1024]), 256, note="threads per block")
SIZE = Control("size", "elements", options([2**n for n in (14, 16, 18, 20, 22, 24, 26)], power), LARGEST, note="elements written")


def with_globals(kernel: Any, **names: Any) -> Any:
    """The kernel, compiled anew with other values of these global names, which numba takes for constants."""
    from numba import cuda

    plain = kernel.py_func
    made = FunctionType(plain.__code__, {**plain.__globals__, **names}, plain.__name__, plain.__defaults__, plain.__closure__)
    made.__module__, made.__qualname__ = plain.__module__, plain.__qualname__
    return cuda.jit(made)


def launch(kernel: Any, grid: Any, block: Any, shared_bytes: int = 0) -> Any:
    """kernel[grid, block] without numba's advice on grids below 128 blocks: a panel offers them on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Grid size")  # by its words: numba-cuda has a class of its own for it
        return kernel[grid, block, 0, shared_bytes]


def predict(
    kernel: Any, grid: Any, block: Any, arguments: tuple, *, device: str, work: Work | None = None, sample_threads: int = SAMPLE_THREADS
) -> Any:
    """The Report of a launch from a sample of its blocks, so that a panel answers at once however large the launch."""
    from solcourse import verbs

    per_block = math.prod(block) if isinstance(block, tuple) else block
    sample = max(8, sample_threads // per_block)
    return verbs.profile(launch(kernel, grid, block), *arguments, device=device, work=work, sample_blocks=sample)
