"""One kernel on the engine and in the oracle: what differs, as a Failure.

Each launch runs with counters on one thread, with counters on two, and without: the arrays must be the oracle's in all three,
and the counts of one and two threads the same. A kernel whose threads all wait at one line leaves no findings.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from kernel_launches import arguments, dynamic_bytes, launches
from kernel_oracle import IllegalKernel, Oracle
from kernel_source import source
from kernel_tree import Kernel, Launch, is_float, statements

LIMIT_S = 20.0  # a launch of a few hundred threads takes milliseconds
BUILDS = {"counters, 1 thread": (True, 1), "counters, 2 threads": (True, 2), "no counters": (False, 1)}


@dataclass(frozen=True)
class Failure:
    """kind: what shrinking must keep ("result", "counts", "findings" or the exception's name); detail: for people."""

    kind: str
    detail: str
    launch: Launch | None = None
    build: str = ""

    def __str__(self) -> str:
        where = f" in {self.launch} ({self.build})" if self.launch else ""
        return f"{self.kind}{where}: {self.detail}"


def build(kernel: Kernel) -> Any:
    """The numba dispatcher of a kernel tree; its source is known to linecache, as the engine's messages show lines."""
    text, name = source(kernel), f"<fuzz {kernel.seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    namespace: dict[str, Any] = {"__name__": f"fuzz_{kernel.seed}"}
    exec(compile(text, name, "exec"), namespace)
    return namespace["kernel"]


def run_engine(dispatcher: Any, launch: Launch, args: dict[str, Any], dynamic: int, counters: bool, threads: int) -> Any:
    """One launch; arrays are written as on a GPU. Returns the EngineRun."""
    from solcourse.simt import arguments as binding
    from solcourse.simt import engine, frontend

    values = tuple(args.values())
    spec = frontend.launch_spec(dispatcher, launch.grid, launch.block, 0, dynamic)
    compiled = frontend.compile_kernel(dispatcher, frontend.argument_types(dispatcher, values))
    bound = binding.bind(compiled, values)
    run = engine.execute(compiled, bound, spec.grid, spec.block, dynamic, counters=counters, threads=threads, limit_s=LIMIT_S)
    bound.write_back()
    return run


def check(
    kernel: Kernel, where: list[Launch] | None = None, *, builds: Iterable[str] = BUILDS, runner: Callable = run_engine
) -> Failure | None:
    """The first difference between the engine and the oracle, None when there is none. Raises TooSlow, IllegalKernel (the generator's)."""
    oracle, dispatcher, dynamic = Oracle(kernel), None, dynamic_bytes(kernel)
    apart = any(s.op == "sync_apart" for s in statements(kernel.body))  # worth a warning
    for launch in launches(kernel) if where is None else where:
        given = arguments(kernel, launch)
        wanted = oracle.run(launch, given)
        counts: dict[str, Any] = {}
        for name in builds:
            counters, threads = BUILDS[name]
            args = {k: v.copy(order="K") if isinstance(v, np.ndarray) else v for k, v in given.items()}
            try:
                dispatcher = dispatcher or build(kernel)
                run = runner(dispatcher, launch, args, dynamic, counters, threads)
            except Exception as error:
                return Failure(type(error).__name__, str(error)[:2000], launch, name)
            wrong = difference(kernel, wanted, args)
            if wrong:
                if difference(kernel, wanted, oracle.run(launch, given, backwards=True)):
                    raise IllegalKernel(f"seed {kernel.seed}: the threads race, the result depends on their order")
                return Failure("result", wrong, launch, name)
            if run.findings and not apart:
                return Failure("findings", str(run.findings[0])[:2000], launch, name)
            if counters:
                counts[name] = counted(run)
        if len(counts) == 2 and (detail := unlike(*counts.values())):
            return Failure("counts", f"one and two threads count differently: {detail}"[:2000], launch, "counters")
    return None


# ---- results --------------------------------------------------------------------------------------------------------


def difference(kernel: Kernel, wanted: dict[str, np.ndarray], got: dict[str, Any]) -> str:
    """The first element that differs, as text; "" when all arrays are alike."""
    for name, want in wanted.items():
        array = kernel.array(name)
        kind = name.removeprefix(f"raw{array.dtype}") if array.role == "raw" else "value"
        wrong = ~alike(want, got[name], kind if is_float(array.dtype) else "value")
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            index = ", ".join(map(str, at))
            return f"{name}[{index}] is {got[name][at]!r}, should be {want[at]!r} ({int(wrong.sum())} of {wrong.size} elements differ)"
    return ""


def alike(want: np.ndarray, got: np.ndarray, kind: str) -> np.ndarray:
    """Element by element. bits: signs of zeros count; value: they do not; near: last places may differ. NaN is like NaN."""
    if want.dtype.kind != "f":
        return want == got
    nan = np.isnan(want) & np.isnan(got)
    if kind == "near":
        tolerance = 2e-5 if want.dtype == np.float32 else 1e-11
        with np.errstate(all="ignore"):
            close = np.abs(want - got) <= tolerance * np.abs(want) + np.finfo(want.dtype).tiny
        return nan | (want == got) | close
    equal = want == got
    return nan | (equal & (np.signbit(want) == np.signbit(got)) if kind == "bits" else equal)


# ---- counts ---------------------------------------------------------------------------------------------------------

NOT_COUNTS = ("program", "trace", "findings")


def counted(run: Any) -> dict[str, Any]:
    """Everything an EngineRun counted, by name, and its trace as arrays."""
    found = {f.name: getattr(run, f.name) for f in fields(run) if f.name not in NOT_COUNTS}
    return found | {f"trace.{f.name}": getattr(run.trace, f.name) for f in fields(run.trace)}


def unlike(first: dict[str, Any], second: dict[str, Any]) -> str:
    return "; ".join(f"{k}: {first[k]} and {second[k]}" for k in first if not same(first[k], second[k]))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return a == b
