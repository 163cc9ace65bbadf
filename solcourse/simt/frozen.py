"""Numbers that a kernel takes from the scope around it: constants of the compiled code, on a GPU too, whatever becomes of the variable."""

from __future__ import annotations

import dis
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

_NUMBERS = (bool, int, float, complex, np.generic)


class Frozen:
    """The numbers that a kernel and its device functions read, as they are now. `check()` warns, once for each, when one has changed."""

    def __init__(self, function: FunctionType):
        self.kernel = function.__name__
        self.read = [(name, now, now()) for name, now in _numbers(function, set())]

    def check(self) -> None:
        for entry in self.read:
            name, now, before = entry
            value = now()
            if value is not before and not _same(value, before):
                self.read.remove(entry)
                warnings.warn(
                    f"{name} is {value!r} now, but {self.kernel} was compiled with {name} = {before!r} and keeps it, as on a GPU. "
                    f"Pass {name} as an argument, or run the kernel's definition again.",
                    stacklevel=levels_to_program(),
                )
                return self.check()


def _same(value: Any, before: Any) -> bool:
    return type(value) is type(before) and (value == before or value != value and before != before)


def _numbers(function: FunctionType, seen: set) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(variable, how to read it now) of every number that the function or a device function called by it reads."""
    seen.add(function)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    names = {i.argval for i in dis.get_instructions(function) if i.opname == "LOAD_GLOBAL"}
    readers: dict[str, Callable[[], Any]] = {n: lambda n=n: function.__globals__.get(n) for n in sorted(names)}  # type: ignore[misc]
    readers |= {n: lambda cell=cell: _contents(cell) for n, cell in cells.items()}  # type: ignore[misc]
    for name, now in readers.items():
        value = now()
        inner = getattr(value, "py_func", None)
        if isinstance(value, _NUMBERS):
            yield name, now
        elif isinstance(inner, FunctionType) and inner not in seen:
            yield from _numbers(inner, seen)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable was deleted
        return None


def levels_to_program() -> int:
    """stacklevel, for the caller, of the nearest frame that is neither solcourse's nor numba's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("numba", "solcourse"):
        level, frame = level + 1, frame.f_back
    return level
