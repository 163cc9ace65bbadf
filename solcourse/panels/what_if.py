"""The panel "what if": one kernel on every GPU the course knows, ranked by predicted time, each with the bound that wins there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from solcourse import units, what_if_figures
from solcourse.all_devices import AllDevices
from solcourse.errors import SolcourseError
from solcourse.figures import bound_words
from solcourse.panels.fusion import sampled
from solcourse.panels.parts import LARGEST, SAMPLE_THREADS, Control, Panel, device_control
from solcourse.report import Report, predicted

Size = tuple[int, ...]
SIDE = 8192  # of a matrix with LARGEST elements
PRODUCT = (4096, 4096, 512)  # M, N, K of the matrix products: each of their blocks goes through all of K, for 19 GPUs' caches
FEW = 8 * 256  # threads that are run of a product: 8 blocks, each through all of K


@dataclass(frozen=True)
class Choice:
    """A reference kernel at one size. arrays: (size, blocks) -> the shapes of its arguments, numbers as they are."""

    name: str
    label: str
    topic: str
    size: Size
    arrays: Callable[[Size, int], tuple[Any, ...]]
    sample_threads: int = SAMPLE_THREADS


def _pair(size: Size, blocks: int) -> tuple[Any, ...]:
    return size, size


def _turned(size: Size, blocks: int) -> tuple[Any, ...]:
    return size, size[::-1]


def _partial(size: Size, blocks: int) -> tuple[Any, ...]:
    return size, (blocks,)


def _product(size: Size, blocks: int) -> tuple[Any, ...]:
    m, n, k = size
    return (m, k), (k, n), (m, n)


def _degree(size: Size, blocks: int) -> tuple[Any, ...]:
    from solcourse.kernels.polynomial import DEGREE

    return size, size, DEGREE


CHOICES = (
    Choice("copy", "copy", "copy", (LARGEST,), _pair),
    Choice("transpose_naive", "transpose, naive", "transpose", (SIDE, SIDE), _turned),
    Choice("transpose_padded", "transpose, padded tile", "transpose", (SIDE, SIDE), _turned),
    Choice("reduce_interleaved", "reduction, first step", "reduction", (LARGEST,), _partial),
    Choice("reduce_grid_stride", "reduction, last step", "reduction", (LARGEST,), lambda size, blocks: (size, (1,))),
    Choice("softmax_online", "softmax, one pass", "softmax", (16384, 4096), _pair),
    Choice("polynomial", "polynomial", "polynomial", (LARGEST,), _degree),
    Choice("polynomial_float64_literal", "polynomial with a float64 literal", "polynomial", (LARGEST,), _degree),
    Choice("matmul_coalesced", "matmul, naive, coalesced", "matmul", PRODUCT, _product, FEW),
    Choice("matmul_tiled", "matmul, shared tile", "matmul", PRODUCT, _product, FEW),
    Choice("matmul_register_2d_8x4", "matmul, register tile", "matmul", PRODUCT, _product, FEW),
)
YOURS = "yours"


@lru_cache(maxsize=len(CHOICES))
def everywhere(name: str) -> AllDevices:
    """The reference kernel on all devices. It runs once, from a sample of its blocks; no device changes what it does."""
    from solcourse.kernels import cases

    choice = next(choice for choice in CHOICES if choice.name == name)
    case = cases(choice.topic)[name]
    grid, block = case.launch(*choice.size)
    blocks = grid if isinstance(grid, int) else grid[0]
    arguments = tuple(("array", a) if isinstance(a, tuple) else a for a in choice.arrays(choice.size, blocks))
    run = sampled(case.kernel, (grid, block), arguments, choice.sample_threads)
    return predicted(run, device_control().value, work=case.work(*choice.size)).on_all()


def what_if(kernel: Any = None) -> Panel:
    """A kernel and a device: the kernel's place on all devices, and its score and bounds on that one.

    kernel   a Report of any launch with an engine run, offered as "your launch"; None: the reference kernels alone.
    Raises SolcourseError for anything else.
    """
    if kernel is not None and not isinstance(kernel, Report):
        raise SolcourseError("This panel asks about a launch, not a kernel: give it a report, sol.panel('what_if', sol.profile(...)).")
    names = tuple((choice.label, choice.name) for choice in CHOICES)
    yours = ((f"your launch: {kernel.kernel}", YOURS),) if kernel is not None else ()
    controls = (
        Control("kernel", "kernel", (*yours, *names), YOURS if yours else CHOICES[0].name, note="what runs"),
        device_control(),
    )
    own = kernel.on_all() if kernel is not None else None

    def found(settings: Mapping[str, Any]) -> AllDevices:
        """All devices, the chosen one marked."""
        every = own if own is not None and settings["kernel"] == YOURS else everywhere(settings["kernel"])
        return replace(every, source=every[settings["device"]])

    def line(settings: Mapping[str, Any]) -> str:
        every = found(settings)
        grid, block = (" x ".join(map(str, n)) for n in (_shape(every.source.grid), _shape(every.source.block)))
        return f"{every.source.kernel}[{grid} blocks, {block} threads]"

    def pictures(settings: Mapping[str, Any], report: Any) -> dict[str, str]:
        return {"devices": what_if_figures.devices(found(settings))}

    return Panel(
        "what_if",
        "What if: one kernel on every GPU",
        controls,
        lambda settings: found(settings).source,
        line,
        lambda settings: str(settings["kernel"]),
        pictures,
        lambda settings, report: in_words(found(settings)),
    )


def _shape(extent: tuple[int, int, int]) -> tuple[int, ...]:
    """Without the dimensions that are 1 at its end."""
    return extent[: max(n for n in range(1, 4) if n == 1 or extent[n - 1] > 1)]


def in_words(every: AllDevices) -> str:
    """The place of the marked device, the ends of the list, and who wins how often."""
    place = next(n for n, report in enumerate(every, 1) if report.device == every.source.device)
    first, last = every.reports[0], every.reports[-1]
    wins: dict[str, int] = {}
    for report in every:
        wins[bound_words(report.bound)] = wins.get(bound_words(report.bound), 0) + 1
    binds = ", ".join(f"{name} on {count}" for name, count in sorted(wins.items(), key=lambda row: (-row[1], row[0])))
    best = max(every, key=lambda report: (report.sol_score or 0.0, report.device.name))
    return (
        f"{every.source.device.name} is number {place} of {len(every)}. Fastest: {first.device.name}, {units.seconds(first.time_s)}; "
        f"slowest: {last.device.name}, {units.seconds(last.time_s)}. Best score: {best.device.name}, {units.score(best.sol_score)}. "
        f"What binds: {binds}."
    )
