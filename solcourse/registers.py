"""How many registers a thread takes, and where the number comes from: given, looked up, or estimated. The definition of Registers.

Registers are the compiler's choice (ptxas), differ by compute capability, and decide occupancy. For reference kernels and solutions
they are shipped (registers.toml, written by benchmarks/registers.py with the real compiler), so that predictions do not depend on
what is installed. For a learner's own kernel they are estimated from the values that are live at once, and labelled so.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from .errors import LaunchError
from .hardware import Device
from .occupancy import occupancy
from .simt.records import EngineRun, Program, Residency

if TYPE_CHECKING:
    from .simt.compiler import Compiled

TABLE_CCS = ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "12.0")  # what CUDA 13 compiles for
_PROXY = {"6.0": "7.5", "7.0": "7.5"}  # CUDA 13 no longer compiles for these
LEAST, MOST = 16, 255
GRANULE = 8  # registers are given out in eights
# registers = offset + slope x min(live, KNEE) + rest x what is above it: least squares of the relative error over the shipped table
# (benchmarks/registers.py --fit: left-one-out mean error 24 % for cc 8.0, 28 % for cc 12.0). Many live values of the IR are addresses
# or loads that ptxas makes again or moves down, so that few registers more are taken above the knee.
KNEE = 32
_LINE = (9.6, 0.71, 0.18)
_LINE_BLACKWELL = (5.6, 0.83, 0.15)  # cc 10.0 and later
UNKNOWN = 32  # guess, where not even the live values are known


@dataclass(frozen=True)
class Registers:
    """count: 32-bit registers per thread. spill_bytes: per thread, stores + loads. source: "given", "table", "table (cc 7.5)" where
    the compiler no longer knows the device's compute capability, or "estimated"."""

    count: int
    spill_bytes: int
    source: str


@cache
def table() -> tuple[Mapping[str, Any], ...]:
    """The shipped rows: kernel ("file name"), access, keys, registers and spills by compute capability."""
    path = files("solcourse").joinpath("registers.toml")
    return tuple(tomllib.loads(path.read_text(encoding="utf-8")).get("row", ())) if path.is_file() else ()


@cache
def _by_key() -> Mapping[str, Mapping[str, Any]]:
    return {key: row for row in table() for key in row["keys"]}


@cache
def _by_name() -> Mapping[tuple[str, str], Mapping[str, Any]]:
    return {(row["kernel"], row["access"]): row for row in table()}


def access_pattern(program: Program) -> str:
    """The memory instructions of a program by kind and size, "global_load4x2 global_store4": tells the types of a kernel apart."""
    seen = Counter(f"{site.kind}{site.size}" for site in program.sites if not site.kind.startswith("local"))
    return " ".join(name if n == 1 else f"{name}x{n}" for name, n in sorted(seen.items()))


def _row(program: Program) -> Mapping[str, Any] | None:
    """By fingerprint, the same in every file; else, for another version of the front end, by file, name and accesses."""
    for key in (getattr(program, "source_key", ""), program.fingerprint):
        if key and key in _by_key():
            return _by_key()[key]
    place = "/".join(PurePath(program.file.replace("\\", "/")).parts[-2:])
    return _by_name().get((f"{place} {program.kernel}", access_pattern(program)))


def estimate(registers_live: int, cc: str = "8.0") -> int:
    """Registers per thread from the 32-bit values live at once in the optimised IR, rounded up to 8, 16 to 255.

    >>> estimate(6), estimate(32), estimate(320)
    (16, 40, 88)
    """
    offset, slope, rest = _LINE_BLACKWELL if float(cc) >= 10 else _LINE
    guess = offset + slope * min(registers_live, KNEE) + rest * max(0, registers_live - KNEE)
    return max(LEAST, min(MOST, GRANULE * math.ceil(guess / GRANULE)))


def registers(program: Program, run: EngineRun | Compiled | None, cc: str, override: int | None = None) -> Registers:
    """Registers per thread of `program` on compute capability `cc`. run: where the estimate takes registers_live from.

    Raises: LaunchError for an override that no thread can have.
    """
    if override is not None:
        if isinstance(override, bool) or not isinstance(override, int) or not 1 <= override <= MOST:
            raise LaunchError(f"registers={override!r}: a thread has 1 to {MOST} registers.")
        return Registers(override, 0, "given")
    row = _row(program)
    asked = _PROXY.get(cc, cc)
    if row is not None and asked in row["registers"]:
        source = "table" if asked == cc else f"table (cc {asked})"
        return Registers(row["registers"][asked], row.get("spills", {}).get(asked, 0), source)
    return Registers(estimate(run.registers_live, cc) if run is not None else UNKNOWN, 0, "estimated")


def residency(compiled: Compiled, gpu: Device, threads_per_block: int, shared_bytes: int, override: int | None = None) -> Residency:
    """How many blocks of a kernel `gpu` holds at once. numba: max_cooperative_grid_blocks. shared_bytes: static + dynamic.

    An estimate never keeps the only block from fitting: the compiler would have spilled.
    """
    used = registers(compiled.program, compiled, gpu.cc, override)
    most = gpu.regs32_sm // (-(-threads_per_block // 128) * 128) // GRANULE * GRANULE
    count = min(used.count, most) if used.source == "estimated" else used.count
    fits = occupancy(gpu, threads_per_block, count, shared_bytes)
    estimated = f", {count} per thread, estimated" if fits.limiter == "registers" and used.source == "estimated" else ""
    room = f"{gpu.sms} SMs, each with room for {fits.blocks_per_sm} blocks of {threads_per_block} threads"
    return Residency(gpu.sms * fits.blocks_per_sm, f"{gpu.name} has {room}, limited by {fits.limiter.replace('_', ' ')}{estimated}")
