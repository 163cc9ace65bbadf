"""Entry: one published row and the kernels that make it, in numba.cuda; and how it is predicted. Used by every module of ladders.

A ladder module yields Entries (`entries()`), and names the rows that it leaves out, each with its reason (`LEFT_OUT`).
Kernels are coded lean, so that numba adds little to what the CUDA C++ of the sources does: `uint64` indices, `while` loops, flat arrays,
`cuda.shared.array(..., alignment=16)`. Mixing a uint64 with a signed number gives int64 in numba, and its wrap-around selects with it:
hence the constants below. They are read for their counts; a part of a large grid is enough, and arrays are touched only there.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda, uint64

from solcourse.hardware import Device, device
from solcourse.model import Prediction, predict
from solcourse.occupancy import occupancy
from solcourse.registers import registers
from solcourse.report import work_of
from solcourse.roofline import sol_time_s
from solcourse.simt import arguments, engine, frontend
from solcourse.traffic import traffic

DATA = Path(__file__).resolve().parents[1] / "data" / "ladders.csv"
F32, F64 = np.float32, np.float64
ZERO, ONE, TWO, FOUR, WARP = uint64(0), uint64(1), uint64(2), uint64(4), uint64(32)
FULL = 0xFFFFFFFF
SAMPLE = 64  # blocks run of a large launch

# how the sources call a GPU -> its name in devices.toml
GPUS = {
    "Tesla V100": "Tesla V100-SXM2-16GB",
    "V100-SXM2-16GB": "Tesla V100-SXM2-16GB",
    "V100 (16 GB; variant not stated)": "Tesla V100-PCIE-16GB",
    "V100-PCIe-16GB": "Tesla V100-PCIE-16GB",
    "P100-PCIE-16GB": "Tesla P100-PCIE-16GB",
    "A100": "A100-SXM4-80GB",
    "A100 80GB": "A100-SXM4-80GB",
    "A100 40GB": "A100-SXM4-40GB",
    "H100 PCIe": "H100-PCIe-80GB",
    "H100": "H100-SXM5-80GB",
    "RTX 3090": "GeForce RTX 3090",
    "RTX A6000": "RTX A6000",
    "RTX 4090": "GeForce RTX 4090",
    "T4": "Tesla T4",
    "T4 (colab gpuType in notebook metadata)": "Tesla T4",
    "L4": "L4",
    "GTX 1650 SUPER (second run)": "GeForce GTX 1650 SUPER",
    "P100-PCIE-16GB (second run)": "Tesla P100-PCIE-16GB",
    "GTX 1050 Ti (112.1 GB/s)": "GeForce GTX 1050 Ti",
    "RTX 3050 (4GB)": "GeForce RTX 3050 Laptop GPU",  # by its 192 GB/s
}


@cuda.jit(device=True, inline=True)
def thread():
    """The thread's place in a one-dimensional grid, unsigned."""
    return uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)


@dataclass(frozen=True)
class Launch:
    """kernel[grid, block, 0, dynamic](*args()). sample: blocks to run, None for all of them. cache: as sol.profile's."""

    kernel: Any
    grid: Any
    block: Any
    args: Callable[[], tuple]
    dynamic: int = 0
    sample: int | None = SAMPLE
    cache: str = "cold"


@dataclass(frozen=True)
class Entry:
    """One published row. value(seconds) is in the unit of the row.

    kernel, size, block, dtype  how to find the row: the beginning of its kernel column, and its other columns where given
    launches  one, or those that the source timed together
    body      whether the source's figure leaves the start-up of a launch out
    metric    the beginning of the row's metric, where a kernel has several
    clock_mhz the clock that the source saw, where it was not the boost clock
    """

    ladder: str
    gpu: str
    kernel: str
    launches: tuple[Launch, ...]
    value: Callable[[float], float]
    size: str = ""
    block: str = ""
    dtype: str = ""
    body: bool = False
    metric: str = ""
    clock_mhz: float = 0.0

    @cached_property
    def row(self) -> dict[str, str]:
        found = [row for row in rows() if self._is(row)]
        found = [row for row in found if row["kernel"] == self.kernel] or found  # a name that others begin with
        if len(found) != 1:
            raise LookupError(f"{self.ladder}, {self.gpu}, {self.kernel!r} {self.size} {self.block}: {len(found)} rows")
        return found[0]

    def _is(self, row: dict[str, str]) -> bool:
        return (
            row["ladder"] == self.ladder
            and row["gpu"] == self.gpu
            and row["kernel"].startswith(self.kernel)
            and self.size in ("", row["size"])
            and self.block in ("", row["block"])
            and self.dtype in ("", row["dtype"])
            and row["metric"].startswith(self.metric)
        )

    @property
    def measured(self) -> float:
        return float(self.row["value"])


@dataclass(frozen=True)
class Result:
    """An entry predicted. Values in the unit of the row: ours, the interval's ends (ascending), the roofline's.

    bound  what wins in the longest launch; R: T_SOL / T of the whole row
    """

    entry: Entry
    measured: float
    predicted: float
    interval: tuple[float, float]
    roofline: float
    bound: str
    R: float
    predictions: tuple[Prediction, ...]

    @property
    def error(self) -> float:
        """Signed, of the predicted value."""
        return self.predicted / self.measured - 1

    @property
    def inside(self) -> bool:
        return self.interval[0] <= self.measured <= self.interval[1]

    @property
    def width(self) -> float:
        """x/÷ this: how far the interval's ends are from its middle."""
        return math.sqrt(self.interval[1] / self.interval[0])


# ------------------------------------------------------------------------------------------------------------------- short
def one(ladder: str, gpu: str, kernel: str, dispatcher: Any, grid: Any, block: Any, args: Callable[[], tuple], value, **more: Any) -> Entry:
    """An Entry of a single launch. more: fields of Launch or of Entry (`row_block` is the row's block)."""
    launch = {name: more.pop(name) for name in ("dynamic", "sample", "cache") if name in more}
    more["block"] = more.pop("row_block", "")
    return Entry(ladder, gpu, kernel, (Launch(dispatcher, grid, block, args, **launch),), value, **more)


def gbs(moved: float) -> Callable[[float], float]:
    return lambda s: moved / s / 1e9


def gflops(flops: float) -> Callable[[float], float]:
    return lambda s: flops / s / 1e9


def times(unit: float) -> Callable[[float], float]:
    """Seconds in a unit: times(1e3) for milliseconds."""
    return lambda s: s * unit


def zeros(*sizes: int, dtype: Any = F32) -> Callable[[], tuple]:
    """Arrays that take memory only as far as they are touched."""
    return lambda: tuple(np.zeros(n, dtype) for n in sizes)


# -------------------------------------------------------------------------------------------------------------------- data
@cache
def rows() -> tuple[dict[str, str], ...]:
    with DATA.open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def gpu_of(name: str) -> Device:
    return device(GPUS.get(name, name))


# -------------------------------------------------------------------------------------------------------------- prediction
_RUNS: dict[Any, tuple[Any, Any]] = {}


def ptxas(kernel: Any, args: tuple, cc: str) -> int | None:
    """Registers from nvJitLink, None where it is not installed."""
    from benchmarks.registers import ptxas_registers

    try:
        return ptxas_registers(kernel, args, cc if float(cc) >= 7.5 else "7.5")[0]
    except Exception as error:  # nvJitLink's own: what is linked in at run time only (float16's operators) is missing here
        if isinstance(error, ImportError) or type(error).__name__ in ("nvJitLinkError", "ToolTrouble"):
            return None
        raise


def _executed(launch: Launch) -> tuple[Any, Callable[[str], int | None]]:
    """(engine run, registers by compute capability) of a launch; kept, because the counts are the same on every GPU."""
    spec = frontend.launch_of(launch.kernel[launch.grid, launch.block, 0, launch.dynamic])
    args = launch.args()
    shapes = tuple((a.shape, a.dtype.str) if isinstance(a, np.ndarray) else a for a in args)
    key = (id(launch.kernel), spec.grid, spec.block, launch.dynamic, launch.sample, shapes)
    if key not in _RUNS:
        kernel = frontend.compile_kernel(spec.dispatcher, frontend.argument_types(spec.dispatcher, args))
        run = engine.execute(
            kernel, arguments.bind(kernel, args), spec.grid, spec.block, launch.dynamic, sample_blocks=launch.sample, limit_s=600
        )
        types = tuple(a[:1] if isinstance(a, np.ndarray) else a for a in args)  # frees the arrays; the types stay
        _RUNS[key] = run, cache(lambda cc: ptxas(launch.kernel, types, cc)), launch.kernel
    return _RUNS[key][:2]


def _predicted(launch: Launch, gpu: Device) -> tuple[Prediction, float]:
    """What the model says, and T_SOL of what the engine saw."""
    run, compiled = _executed(launch)
    held = registers(run.program, run, gpu.cc, override=compiled(gpu.cc))
    fits = occupancy(gpu, run.threads_per_block, held.count, run.shared_bytes)
    return predict(run, traffic(run, gpu, fits, launch.cache), gpu, fits), sol_time_s(work_of(run), gpu)


def predicted(entry: Entry) -> Result:
    """Raises what the engine or the device says against a launch."""
    gpu = gpu_of(entry.gpu)
    if entry.clock_mhz:
        gpu = replace(gpu, boost_mhz=entry.clock_mhz)
    made = [_predicted(launch, gpu) for launch in entry.launches]
    light = sum(s for _, s in made)
    start = sum(p.time_s - p.body_s for p, _ in made) if entry.body else 0.0
    time = sum(p.time_s for p, _ in made)
    low, high = sum(p.interval_s[0] for p, _ in made), sum(p.interval_s[1] for p, _ in made)
    scale = (time - start) / time
    ends = sorted(entry.value(s * scale) for s in (low, high))
    longest = max((p for p, _ in made), key=lambda p: p.time_s)
    return Result(
        entry, entry.measured, entry.value(time - start), (ends[0], ends[1]), entry.value(light or time), longest.bound, light / time,
        tuple(p for p, _ in made),
    )  # fmt: skip


def left_out(modules: Sequence[Any]) -> Iterator[tuple[dict[str, str], str]]:
    """(row, reason) of every row that a module names in LEFT_OUT: {(ladder, beginning of kernel, of GPU or of metric): reason}."""
    for module in modules:
        for (ladder, begins), reason in getattr(module, "LEFT_OUT", {}).items():
            for row in rows():
                if row["ladder"] == ladder and any(row[column].startswith(begins) for column in ("kernel", "gpu", "metric")):
                    yield row, reason


__all__ = [
    "F32", "F64", "FOUR", "FULL", "ONE", "SAMPLE", "TWO", "WARP", "ZERO", "Entry", "Launch", "Result", "gbs", "gflops", "gpu_of",
    "left_out", "one", "predicted", "replace", "rows", "thread", "times", "zeros",
]  # fmt: skip
