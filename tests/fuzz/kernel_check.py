"""One kernel on the engine and in the oracle: what differs, as a Failure.

Each launch runs with counters on one thread, with counters on two, without, and with every check on: the arrays must be the oracle's
in all four, with the checks bit for bit those without, and the counts of one and two threads the same. Kernels are free of races and of
barriers that some threads miss, so the checks must not accuse them; a kernel whose threads all wait at one line leaves no findings.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
from kernel_launches import arguments, dynamic_bytes, launches
from kernel_oracle import IllegalKernel, Oracle
from kernel_source import source
from kernel_tree import Kernel, Launch, is_float, statements

# true of some kernels: they index from the end on purpose, and write only some of the elements that are theirs
BENIGN = ("wrapped_index", "unwritten")
LIMIT_S = 20.0  # a launch of a few hundred threads takes milliseconds


class Build(NamedTuple):
    counters: bool = False
    threads: int = 1
    checks: bool = False


BUILDS = {
    "counters, 1 thread": Build(True),
    "counters, 2 threads": Build(True, 2),
    "no counters": Build(),
    "checks": Build(checks=True),
}


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


class Checked(NamedTuple):
    findings: tuple[Any, ...]


def run_engine(dispatcher: Any, launch: Launch, args: dict[str, Any], dynamic: int, build: Build) -> Any:
    """One launch; arrays are written as on a GPU. Returns the EngineRun; of a build with checks only the findings."""
    from solcourse.simt import arguments as binding
    from solcourse.simt import engine, frontend

    values = tuple(args.values())
    spec = frontend.launch_spec(dispatcher, launch.grid, launch.block, 0, dynamic)
    compiled = frontend.compile_kernel(dispatcher, frontend.argument_types(dispatcher, values))
    bound = binding.bind(compiled, values)
    run: Any
    if build.checks:
        found = engine.sanitize(compiled, bound, spec.grid, spec.block, dynamic, function=dispatcher.py_func, limit_s=LIMIT_S)
        run = Checked(tuple(f for f in found if f.kind not in BENIGN))
    else:
        run = engine.execute(
            compiled, bound, spec.grid, spec.block, dynamic, counters=build.counters, threads=build.threads, limit_s=LIMIT_S
        )
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
        plain: dict[str, Any] | None = None
        for name in builds:
            args = {k: v.copy(order="K") if isinstance(v, np.ndarray) else v for k, v in given.items()}
            try:
                dispatcher = dispatcher or build(kernel)
                run = runner(dispatcher, launch, args, dynamic, BUILDS[name])
            except Exception as error:
                return Failure(type(error).__name__, str(error)[:2000], launch, name)
            wrong = difference(kernel, wanted, args)
            if wrong:
                if difference(kernel, wanted, oracle.run(launch, given, backwards=True)):
                    raise IllegalKernel(f"seed {kernel.seed}: the threads race, the result depends on their order")
                return Failure("result", wrong, launch, name)
            if run.findings and not apart:
                return Failure("findings", str(run.findings[0])[:2000], launch, name)
            if BUILDS[name].counters:
                counts[name] = counted(run)
            if BUILDS[name].checks and plain is not None and (detail := other_bits(plain, args)):
                return Failure("bits", detail, launch, name)
            plain = args
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


def other_bits(plain: dict[str, Any], checked: dict[str, Any]) -> str:
    """Which arrays of two builds are not the same to the last bit."""
    names = [n for n, a in plain.items() if isinstance(a, np.ndarray) and a.tobytes("K") != checked[n].tobytes("K")]
    return f"checks change the bits of {', '.join(names)}" if names else ""


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
