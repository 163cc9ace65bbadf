"""How many registers a thread takes, and where the number comes from: given, looked up, compiled, or estimated. Defines Registers.

Registers are the compiler's choice (ptxas), differ by compute capability, and decide occupancy. For reference kernels and solutions
they are shipped (registers.toml, written by benchmarks/registers.py with the real compiler), so that predictions do not depend on
what is installed. For a learner's own kernel that compiler is asked where it is installed (compiled_registers.py, no GPU needed);
elsewhere they are estimated from the values that are live at once, and labelled so.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from .compiled_registers import Usage, compiled
from .errors import LaunchError
from .hardware import Device
from .occupancy import occupancy
from .simt.records import EngineRun, Program, Residency
from .toolchain import proxy

if TYPE_CHECKING:
    from .simt.compiler import Compiled

TABLE_CCS = ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "12.0")  # what CUDA 13 compiles for
LEAST, MOST = 16, 255
REGISTERS_SM = 64 * 1024  # of every device since cc 5.0 but a few: enough for a cap that launch_bounds set
GRANULE = 8  # registers are given out in eights
# registers = offset + slope x min(live, KNEE) + rest x what is above it: least squares of the relative error over the shipped table
# (benchmarks/registers.py --fit: mean error of kernels left out 23 % for cc 8.0, 30 % for cc 12.0). Of the registers that are given
# out, in eights, the estimate is 18 to 22 % off, on the table as on the 80 kernels of the validation ladders. Many live values of the
# IR are addresses or loads that ptxas makes again or moves down, so that few registers more are taken above the knee.
# Values live in LLVM's PTX instead of its IR were tried: 18 to 22 % on the table's kernels left out, but worse on the ladders' kernels
# (33 against 28 % for cc 8.0, 39 against 31 % for cc 7.5, both before rounding).
KNEE = 32
_LINE = (9.6, 0.71, 0.18)
_LINE_BLACKWELL = (5.6, 0.83, 0.15)  # cc 10.0 and later
UNKNOWN = 32  # guess, where not even the live values are known


ESTIMATED, CAPPED = "estimated", "estimated, at most what the kernel's max_registers or launch_bounds allow: it may spill"


@dataclass(frozen=True)
class Registers:
    """count: 32-bit registers per thread. spill_bytes: per thread, stores + loads in the code, 0 where nobody knows. source:

    "given"      by the caller
    "table"      shipped with the course: a reference kernel or a solution
    "compiled"   NVIDIA's compiler was asked; it needs no GPU
    "estimated"  from the live values; then why, where the compiler is installed but could not be asked, and where the count is a cap
    The first three end in "(cc 7.5)" where the compiler no longer knows the device's compute capability.
    """

    count: int
    spill_bytes: int
    source: str

    @property
    def is_estimated(self) -> bool:
        return self.source.startswith(ESTIMATED)


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
    """By source or fingerprint, the same in every file; else, for another version of the front end, by file, name and accesses."""
    for key in (program.source.key if program.source else "", program.fingerprint):
        if key and key in _by_key():
            return _by_key()[key]
    if _caps(program):
        return None
    place = "/".join(PurePath(program.file.replace("\\", "/")).parts[-2:])
    return _by_name().get((f"{place} {program.kernel}", access_pattern(program)))


def _caps(program: Program) -> list[int]:
    """The most registers that the options of @cuda.jit leave a thread; none without such options."""
    options = program.source.options if program.source else {}
    given, bounds = options.get("max_registers"), options.get("launch_bounds") or ()
    threads, blocks = (*(bounds if isinstance(bounds, (tuple, list)) else (bounds,)), 0, 0)[:2]
    caps = [int(given)] if given else []
    if threads:
        per_thread = REGISTERS_SM // (-(-threads // 128) * 128) // max(1, blocks)
        caps.append(max(LEAST, per_thread // GRANULE * GRANULE))
    return caps


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

    The compiler is asked once per kernel and compute capability; whatever is wrong with it is no error but in `source`.
    Raises: LaunchError for an override that no thread can have.
    """
    if override is not None:
        if isinstance(override, bool) or not isinstance(override, int) or not 1 <= override <= MOST:
            raise LaunchError(f"registers={override!r}: a thread has 1 to {MOST} registers.")
        return Registers(override, 0, "given")
    row = _row(program)
    asked = proxy(cc)
    of = "" if asked == cc else f" (cc {asked})"
    if row is not None and asked in row["registers"]:
        return Registers(row["registers"][asked], row.get("spills", {}).get(asked, 0), f"table{of}")
    found = compiled(program, asked)
    if isinstance(found, Usage):
        return Registers(found.registers, found.spill_bytes, f"compiled{of}")
    count = estimate(run.registers_live, cc) if run is not None else UNKNOWN
    cap = min(_caps(program), default=MOST)
    if count > cap:
        return Registers(cap, 0, CAPPED)
    return Registers(count, 0, f"{ESTIMATED}, because {found}" if found else ESTIMATED)


def registers_on(
    gpu: Device, program: Program, run: EngineRun | Compiled | None, threads_per_block: int, override: int | None = None
) -> Registers:
    """Registers per thread of a launch on `gpu`. An estimate never keeps the only block from fitting.

    Raises: LaunchError for an override that no thread can have.
    """
    used = registers(program, run, gpu.cc, override)
    most = gpu.regs32_sm // (-(-threads_per_block // 128) * 128) // GRANULE * GRANULE
    return replace(used, count=min(used.count, most)) if used.is_estimated else used


def residency(compiled: Compiled, gpu: Device, threads_per_block: int, shared_bytes: int, override: int | None = None) -> Residency:
    """How many blocks of a kernel `gpu` holds at once. numba: max_cooperative_grid_blocks. shared_bytes: static + dynamic."""
    used = registers_on(gpu, compiled.program, compiled, threads_per_block, override)
    fits = occupancy(gpu, threads_per_block, used.count, shared_bytes)
    estimated = f", {used.count} per thread, estimated" if fits.limiter == "registers" and used.is_estimated else ""
    room = f"{gpu.sms} SMs, each with room for {fits.blocks_per_sm} blocks of {threads_per_block} threads"
    return Residency(gpu.sms * fits.blocks_per_sm, f"{gpu.name} has {room}, limited by {fits.limiter.replace('_', ' ')}{estimated}")
