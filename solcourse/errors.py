"""Every error a user of solcourse can meet, as one tree.

SolcourseError
├── KernelError              something about the kernel itself
│   ├── KernelTypeError      numba cannot type or lower it; names the learner's line
│   ├── UnsupportedKernel    valid numba.cuda that the engine does not execute yet; raised before anything ran
│   ├── LaunchError          wrong grid, block, shared memory, or arguments
│   ├── OutOfBounds          a stray memory access, found while running
│   ├── BarrierError         a barrier that can never complete
│   └── RunawayKernel        a loop that did not end, or Ctrl-C
├── UnknownName              a device, exercise, panel ... that does not exist; offers the nearest name
├── NoGPU                    a measurement was asked for where there is no GPU
├── CourseNotFound           no folder with exercises/ and solutions/ above the working folder
└── WorkError                an impossible ledger, time, or rate
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SolcourseError(Exception):
    """Root of every error solcourse raises on purpose. The message says what, where, and what to try."""


class KernelError(SolcourseError):
    """Something about the kernel. `file` and `line` are where, when known."""

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None):
        super().__init__(message)
        self.file = file
        self.line = line


class KernelTypeError(KernelError):
    """numba could not type or lower the kernel for these arguments."""


class UnsupportedKernel(KernelError):
    """Valid numba.cuda, not executed by this engine yet. Nothing ran."""


class LaunchError(KernelError):
    """The launch itself is wrong: grid, block, shared memory or arguments. Nothing ran."""


class OutOfBounds(KernelError):
    """A lane addressed memory outside its array. `finding` says which line, block, thread, array and index."""

    def __init__(self, message: str, *, finding=None, file: str | None = None, line: int | None = None):
        super().__init__(message, file=file, line=line)
        self.finding = finding


class BarrierError(OutOfBounds):
    """Threads wait at a barrier that can never complete; `finding` says where."""


class RunawayKernel(KernelError):
    """The launch was stopped: a loop did not end in the time allowed, blocks wait for each other for ever, or (`interrupted`)
    the user pressed Ctrl-C."""

    def __init__(self, message: str, *, interrupted: bool = False, file: str | None = None, line: int | None = None):
        super().__init__(message, file=file, line=line)
        self.interrupted = interrupted


class UnknownName(SolcourseError, KeyError):
    """A name that is not in a list of names. `message` replaces the usual one where more can be said."""

    def __init__(self, kind: str, name: object, known: Iterable[str], message: str = ""):
        known = list(known)
        lower = {k.lower(): k for k in known}
        wanted = str(name).strip().lower()
        near = [k for low, k in lower.items() if wanted and wanted in low][:1]  # "T4" is nearer to "Tesla T4" than to "L4"
        near = near or difflib.get_close_matches(str(name), known, n=1, cutoff=0.3)
        near = near or [lower[m] for m in difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=0.3)]
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(message or f"There is no {kind} named {name!r}.{hint} Known: {', '.join(known)}.")
        self.name, self.nearest = name, near[0] if near else None

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])


class NoGPU(SolcourseError):
    """A real GPU is needed and none is usable; the message says why and what to do."""


class CourseNotFound(SolcourseError):
    """No course folder (one that holds exercises/ and solutions/) at or above the working folder."""


class WorkError(SolcourseError, ValueError):
    """An impossible figure: negative bytes, zero time, a ledger without terms."""
