"""The sanitized launches of a whole program: how many, and what was found in them. What `use_engine(sanitize=True)` keeps.

`solcourse run --sanitize` collects them from all of a program's processes, however these end: each launch is written to a folder
when it is over, and read there when the program is.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import textwrap
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from solcourse.findings import WIDTH, Findings, merge, plural, summary
from solcourse.hardware import Device
from solcourse.launches import launched, place_of
from solcourse.simt.records import Finding

if TYPE_CHECKING:
    from solcourse.simt.frontend import KernelIR

SAVED_AS = (".txt", ".json", ".html")
ENDS_A_KERNEL = ("out_of_bounds", "misaligned", "stack_overflow", "deadlock", "runaway")
WENT_ON = (
    "A launch that strays or hangs ends there, and the program went on with the arrays as far as they had come. A GPU would have "
    "ended the program or left it waiting: repair that first, what was found in later launches may follow from it."
)
NOTHING = "no kernel was launched, so there was nothing to sanitize"
Place = tuple[str, str, int]  # a kernel's name, file and line


class ProgramFindings(Findings):
    """The findings of all launches of a program: one for each kind, place and array, with how often it was seen in all.

    unchecked: of each launch that ran without checks, or was stopped in the middle of them, why
    """

    def __init__(
        self, findings: Iterable[Finding], device: str, kernels: int, launches: int, unchecked: Sequence[str] = (), processes: int = 1
    ):
        super().__init__(findings)
        self.device, self.kernels, self.launches, self.unchecked, self.processes = device, kernels, launches, unchecked, processes

    @property
    def errors(self) -> int:
        return sum(finding.severity == "error" for finding in self)

    @property
    def title(self) -> str:
        launches = launched(self.launches - len(self.unchecked))
        where = f" in {self.processes} processes" if self.processes > 1 else ""
        return f"{plural(self.kernels, 'kernel')}, {launches} sanitized on {self.device}{where}: {summary(self)}"

    def _head(self) -> str:
        return self.title

    def __str__(self) -> str:
        if not self.launches:
            return NOTHING
        return "\n\n".join([super().__str__(), *("\n".join(textwrap.wrap(note, WIDTH)) for note in self._notes())])

    def _notes(self) -> Iterator[str]:
        if any(finding.kind in ENDS_A_KERNEL for finding in self):
            yield WENT_ON
        for why, times in Counter(self.unchecked).items():
            yield f"{launched(times)} of which nothing can be said: {why}"

    __repr__ = __str__

    def save(self, path: str | Path) -> Path:
        """Writes them to a file and returns its path: "x.html" a page that stands alone, "x.txt" text, "x.json" numbers and words."""
        target = Path(path)
        target.write_text({".txt": self._text, ".json": self._json, ".html": self._page}[target.suffix](), encoding="utf-8")
        return target

    def _text(self) -> str:
        return f"{self}\n"

    def _json(self) -> str:
        facts = {"device": self.device, "kernels": self.kernels, "launches": self.launches, "unchecked": len(self.unchecked)}
        found = [{"check": finding.check, **asdict(finding)} for finding in self]
        return json.dumps({**facts, "errors": self.errors, "findings": found}, indent=1, ensure_ascii=False, default=int) + "\n"

    def _page(self) -> str:
        from solcourse.report_html import _PAGE

        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes())
        return _PAGE.format(title=escape(f"Findings on {self.device}"), body=self._repr_html_() + notes)


class Sanitized:
    """What is known so far. folder: where each launch is written to as well, for whoever waits for the program's end."""

    def __init__(self, device: Device, folder: Path | None = None):
        self.device, self.folder, self.launches = device, folder, 0
        self._kernels: set[Place] = set()
        self._found: list[Finding] = []
        self._unchecked: list[str] = []
        self._lock = threading.Lock()

    def is_new(self, kernel: KernelIR) -> bool:
        return place_of(kernel) not in self._kernels

    def add(self, kernel: KernelIR, findings: Iterable[Finding], unchecked: str = "") -> None:
        """One more launch. unchecked: why nothing can be said of it."""
        launch = place_of(kernel), [_of_numba(f) if f.file.startswith(_numbas_folders()) else f for f in findings], unchecked
        with self._lock:
            self._add(*launch)
            if self.folder is not None:
                with suppress(FileNotFoundError), open(self.folder / str(os.getpid()), "ab") as file:  # nobody waits any more
                    file.write(pickle.dumps(launch))

    def _add(self, place: Place, found: list[Finding], unchecked: str) -> None:
        self.launches += 1
        self._kernels.add(place)
        self._unchecked += [unchecked] if unchecked else []
        if found:
            self._found = merge([*self._found, *found])

    def findings(self, processes: int = 1) -> ProgramFindings:
        return ProgramFindings(self._found, self.device.name, len(self._kernels), self.launches, tuple(self._unchecked), processes)


def _of_numba(finding: Finding) -> Finding:
    """What is wrong in numba's own kernels, cuda.reduce's say, is told, but is nothing that the program can repair."""
    return replace(
        finding, severity="warning", hint="This is a kernel of numba's own, which your program calls: there is nothing to repair."
    )


@functools.cache
def _numbas_folders() -> tuple[str, ...]:
    import numba.cuda

    return tuple(os.path.join(os.path.dirname(module.__file__), "") for module in (numba, numba.cuda))


def collected(folder: Path, device: Device) -> ProgramFindings:
    """What the processes of a program wrote into `folder`, in the order of their numbers."""
    everything = Sanitized(device)
    files = sorted(folder.iterdir(), key=lambda file: int(file.name))
    for file in files:
        with open(file, "rb") as stream, suppress(EOFError, pickle.UnpicklingError):  # the end; the process died while it wrote
            while True:
                everything._add(*pickle.load(stream))
    return everything.findings(max(1, len(files)))
