"""One launch on every known GPU: a predicted Report for each, the engine having run once. The definition of AllDevices.

    report.on_all() -> AllDevices: the reports, fastest first, and the devices on which the launch cannot run, each with the reason

Nothing is executed: what the kernel did is in the report's engine run, and only registers, occupancy, caches and model are new.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solcourse.errors import LaunchError, SolcourseError, UnknownName, WorkError
from solcourse.hardware import Device, devices
from solcourse.hardware import device as find_device

if TYPE_CHECKING:
    from solcourse.report import Report


@dataclass(frozen=True)
class Unfit:
    """A device on which this launch cannot run, or its work has no speed of light; reason: why, in the words of the error."""

    device: Device
    reason: str


@dataclass(frozen=True, repr=False)
class AllDevices:
    """The same launch on many devices. `print` it, let a notebook show it, `save` it, look into it by a device's name.

    source   the report that it was made from, and whose device is marked
    reports  one predicted Report per device, by predicted time, fastest first
    unfit    the devices on which it cannot run, by name
    """

    source: Report
    reports: tuple[Report, ...]
    unfit: tuple[Unfit, ...] = ()

    def __iter__(self) -> Iterator[Report]:
        return iter(self.reports)

    def __len__(self) -> int:
        return len(self.reports)

    def __getitem__(self, name: str | Device) -> Report:
        """The report for that device. Raises UnknownName; SolcourseError, with the reason, where the launch cannot run there."""
        gpu = find_device(name)
        for report in self.reports:
            if report.device == gpu:
                return report
        for missing in self.unfit:
            if missing.device == gpu:
                raise SolcourseError(f"{self.source.kernel} cannot run on {gpu.name}: {missing.reason}")
        raise UnknownName("device of this comparison", gpu.name, [report.device.name for report in self.reports])

    def to_dict(self) -> dict[str, Any]:
        """Per device time, bounds, scores and occupancy as plain dicts, lists, numbers and strings in base units."""
        from solcourse.what_if_looks import devices_dict

        return devices_dict(self)

    def save(self, path: str | Path) -> Path:
        """Writes it to a file and returns its path: "x.html" a page that stands alone, "x.txt" text, "x.json" numbers.

        Raises SolcourseError for another ending, OSError where the file cannot be written.
        """
        from solcourse import what_if_looks

        return what_if_looks.save(self, path)

    def __repr__(self) -> str:
        return f"<AllDevices: {self.source.kernel}, predicted for {len(self.reports)}, cannot run on {len(self.unfit)}>"

    def __str__(self) -> str:
        from solcourse.what_if_looks import devices_text

        return devices_text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from solcourse.what_if_looks import devices_html

        return {"text/plain": str(self), "text/html": devices_html(self)}


def on_all(report: Report, names: Iterable[str | Device] | str | Device | None = None) -> AllDevices:
    """`report` on each of `names`, by default on every known device. A device named twice counts once.

    Raises SolcourseError for a report without an engine run; UnknownName.
    """
    if names is not None and (isinstance(names, str) or not isinstance(names, Iterable)):
        names = (names,)  # one alone
    asked = devices() if names is None else tuple(dict.fromkeys(find_device(name) for name in names))

    def on_one(gpu: Device) -> Report | Unfit:
        kept = report.origin == "predicted" and report.device == gpu and report.run is not None
        try:
            return report if kept else report.on(gpu)
        except (LaunchError, WorkError) as error:
            return Unfit(gpu, str(error).removeprefix(f"This block cannot run on {gpu.name}: "))

    found = together(on_one, asked)
    made = [one for one in found if not isinstance(one, Unfit)]
    unfit = [one for one in found if isinstance(one, Unfit)]
    made.sort(key=lambda one: (one.time_s, one.device.name))
    return AllDevices(report, tuple(made), tuple(sorted(unfit, key=lambda one: one.device.name)))


def together(answer: Callable[[Any], Any], questions: Sequence[Any]) -> list[Any]:
    """The answers in order. They are found side by side: replaying the caches, most of the work, holds no lock."""
    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(answer, questions))
    except RuntimeError:  # at the end of a program, when its profile is made, no thread can be started any more
        return [answer(question) for question in questions]
