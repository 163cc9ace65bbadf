"""Regenerate solcourse/registers.toml: registers of every reference kernel and solution, as ptxas gives them. No GPU is needed.

    python benchmarks/registers.py            # rewrite the table; where numba-cuda[cu13] is installed
    python benchmarks/registers.py --keys     # then, with numba alone: add that front end's fingerprints
    python benchmarks/registers.py --fit      # how well registers_live predicts the table: the estimate's constants

NVVM (from numba-cuda's wheels) makes PTX, nvJitLink makes the cubin and says "Used N registers": the path numba-cuda itself takes on
a GPU, so this is the number that a learner's GPU would show.
"""

from __future__ import annotations

import argparse
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from solcourse import standin, toolchain
from solcourse.grading import numbers
from solcourse.hardware import DEFAULT_DEVICE, device
from solcourse.kernels import cases
from solcourse.launches import Launches
from solcourse.registers import KNEE, TABLE_CCS, access_pattern, table
from solcourse.simt import arguments, engine, frontend

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "solcourse" / "registers.toml"


def kernels() -> Iterator[tuple[str, Any, tuple, Any]]:
    """(name, dispatcher, arguments, launch) of every reference kernel in each float type it is made for, and of every solution."""
    for name, case in cases().items():
        for dtype in case.dtypes:
            if np.dtype(dtype) in (np.float32, np.float64) or dtype is case.dtypes[0]:
                rng = np.random.default_rng(0)
                yield name, case.kernel, case.make(rng, *case.shapes[0], dtype=dtype), case.configured(*case.shapes[0])
    for path in sorted((ROOT / "solutions").glob("ex*.py")):
        module = runpy.run_path(str(path))
        stated = module["EXERCISE"]
        for part in stated if isinstance(stated, tuple) else (stated,):
            yield from launched(part, module)


def launched(part: Any, module: dict[str, Any]) -> Iterator[tuple[str, Any, tuple, Any]]:
    """The launches of a part of an exercise, at its last odd size, by the solution's own functions."""
    size = numbers(part.sizes[-1])
    made = tuple(part.arguments(*size, np.random.default_rng(0)).values())
    if part.kernel:
        kernel = module[part.kernel]
        yield part.kernel, kernel, made, kernel[module[part.launch](*size)]
        return
    calls: list[tuple[Any, tuple]] = []
    with standin.Engine(lambda spec, args: calls.append((spec, args)), Launches(device(DEFAULT_DEVICE), recording=False)):
        module[part.program](*made)
    for spec, args in calls:
        yield spec.dispatcher.py_func.__name__, spec.dispatcher, args, spec.dispatcher[spec.grid, spec.block]


def described(dispatcher: Any, args: tuple, launch: Any) -> tuple[str, str, list[str], Any]:
    """(place, access pattern, keys, engine run) of one kernel for one list of argument types."""
    types = frontend.argument_types(dispatcher, args)
    kernel = frontend.compile_kernel(dispatcher, types)
    spec = frontend.launch_of(launch)
    run = engine.execute(kernel, arguments.bind(kernel, args), spec.grid, spec.block, spec.dynamic_shared_bytes, sample_blocks=1)
    place = "/".join(Path(kernel.file).parts[-2:])
    keys = [key for key in (kernel.source_key, kernel.fingerprint) if key]
    return f"{place} {kernel.name}", access_pattern(run.program), keys, run


def ptxas_registers(dispatcher: Any, args: tuple, cc: str) -> tuple[int, int]:
    """(registers per thread, bytes of spill stores and loads) of NVVM and nvJitLink for one compute capability."""
    kernel = frontend.compile_kernel(dispatcher, frontend.argument_types(dispatcher, args))
    ptx = toolchain.nvvm_ptx(kernel.source, kernel.name, cc)
    return toolchain.ptxas_usage(ptx, cc, kernel.options.get("max_registers"))


def rows(keys_only: bool) -> list[dict[str, Any]]:
    old = {(row["kernel"], row["access"]): row for row in table()}
    made: dict[tuple[str, str], dict[str, Any]] = {}
    for _, dispatcher, args, launch in kernels():
        kernel, access, keys, _ = described(dispatcher, args, launch)
        row = made.setdefault((kernel, access), {"kernel": kernel, "access": access, "keys": [], "registers": {}, "spills": {}})
        before = old.get((kernel, access), {})
        row["keys"] = sorted({*row["keys"], *keys, *(before.get("keys", ()) if keys_only else ())})
        if keys_only:
            row["registers"], row["spills"] = before.get("registers", {}), before.get("spills", {})
            continue
        for cc in TABLE_CCS:
            count, spilled = ptxas_registers(dispatcher, args, cc)
            row["registers"][cc] = max(count, row["registers"].get(cc, 0))
            if spilled:
                row["spills"][cc] = spilled
    return list(made.values())


def write(rows: list[dict[str, Any]]) -> None:
    lines = [
        "# Registers per thread of the reference kernels and solutions, by compute capability: NVVM and nvJitLink of CUDA 13, through",
        "# numba-cuda. Written by benchmarks/registers.py; do not edit. keys: fingerprints of source and IR; access: memory instructions.",
    ]
    for row in rows:
        lines += ["", "[[row]]", f'kernel = "{row["kernel"]}"', f'access = "{row["access"]}"']
        lines += ["keys = [", *(f'    "{key}",' for key in row["keys"]), "]"]
        for field in ("registers", "spills"):
            if row[field]:
                lines.append(f"{field} = {{ " + ", ".join(f'"{cc}" = {n}' for cc, n in row[field].items()) + " }")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def fit() -> None:
    """registers = offset + slope x min(live, knee) + rest x above the knee, by least squares of the relative error; every kernel is
    also predicted by a fit without it, in whatever type."""
    by_key = {(row["kernel"], row["access"]): row["registers"] for row in table()}
    seen: dict[tuple[str, str], int] = {}
    for _, dispatcher, args, launch in kernels():
        kernel, access, _, run = described(dispatcher, args, launch)
        if (kernel, access) in by_key:
            seen[kernel, access] = run.registers_live
    live = np.array(list(seen.values()), float)
    names = np.array([kernel for kernel, _ in seen])
    terms = np.stack([np.ones_like(live), np.minimum(live, KNEE), np.maximum(0, live - KNEE)], axis=1)
    for cc in TABLE_CCS:
        real = np.array([by_key[key][cc] for key in seen], float)
        line = np.linalg.lstsq(terms / real[:, None], np.ones_like(real), rcond=None)[0]
        errors = []
        for i in range(len(real)):
            others = names != names[i]
            without = np.linalg.lstsq(terms[others] / real[others, None], np.ones(others.sum()), rcond=None)[0]
            errors.append(abs(terms[i] @ without - real[i]) / real[i])
        shown = ", ".join(f"{x:.2f}" for x in line)
        print(f"cc {cc}: offset, slope, rest = {shown}; left-one-out mean error {100 * np.mean(errors):.0f} %, {len(real)} kernels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", action="store_true")
    parser.add_argument("--fit", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.fit:
        return fit()
    made = rows(chosen.keys)
    write(made)
    print(f"{len(made)} rows in {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
