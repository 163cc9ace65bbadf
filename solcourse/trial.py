"""A learner's module against an Exercise: right, clean, and how much it moved. The definition of what a check does.

Right: several odd sizes, random data, outputs poisoned before and guard zones around every array. Clean: at the same sizes the sanitizer
has nothing to say: memory, races, uninitialised reads, barriers. Then the exact counts at one regular size. Nothing here depends on a
device.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from solcourse import learner
from solcourse.errors import KernelTypeError, LaunchError, OutOfBounds, RunawayKernel, SolcourseError, UnsupportedKernel
from solcourse.grading import Exercise, Gate, GateSpec, Ran, Size, number, numbers
from solcourse.learner import LIMIT_S, Unfinished
from solcourse.simt.records import EngineRun, Finding

if TYPE_CHECKING:
    from solcourse.simt.frontend import LaunchSpec

GUARD = 64  # elements before and after every array that belong to nobody
TOO_FAR = (
    "Which thread goes too far, and where is it kept back? A guard is `if i < {array}.size:`, where i counts elements, "
    "or `if i < {array}.shape[0]:`, where it counts rows."
)
TOO_FEW = (
    "Does `{launch}` start enough threads? Does the guard let them all through, and does none return too early? "
    "And does each write where it should: which thread is to write {element}?"
)


def poison(dtype: np.dtype) -> int:
    """The byte that outputs and guard zones are filled with: floats become a NaN that no arithmetic makes, integers something odd.

    >>> np.full(4, poison(np.dtype("f4")), np.uint8).view("f4"), np.full(4, poison(np.dtype("i4")), np.uint8).view("i4")
    (array([nan], dtype=float32), array([-1515870811], dtype=int32))
    """
    return 0xFF if dtype.kind in "fc" else 0xA5


@dataclass
class Trial:
    """How far a module came. `run` is what the counted launches did; `problem` is what stopped it."""

    correct: bool = False
    clean: bool = False
    gates: tuple[Gate, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    run: Ran | None = None
    problem: Unfinished | None = None


def trial(exercise: Exercise, module: ModuleType, limit_s: float = LIMIT_S) -> Trial:
    """Tries a learner's module. Never raises for what the learner's code does."""
    result = Trial()
    try:
        with _quiet():
            _try(exercise, module, limit_s, result)
    except Exception as error:
        result.problem = result.problem or _problem_of(error, result)
    return result


def _problem_of(error: Exception, result: Trial) -> Unfinished:
    """What a launch, or the way to it, raised, as what stops a check."""
    if isinstance(error, Unfinished):
        return error
    if isinstance(error, OutOfBounds):  # BarrierError too
        if error.finding is not None:
            result.findings.append(error.finding)
        return _bounds(error)
    line = getattr(error, "line", None)
    if isinstance(error, (KernelTypeError, UnsupportedKernel)):
        slip = "Repair the name, save, and check again." if "NameError" in str(error) else ""
        return Unfinished("compile", str(error), line, slip)
    if isinstance(error, SolcourseError):
        stages = {RunawayKernel: "time", LaunchError: "launch"}
        return Unfinished(next((stage for kind, stage in stages.items() if isinstance(error, kind)), "error"), str(error), line)
    # a verdict is due even where solcourse itself breaks down
    at = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(at.filename).name}, line {at.lineno}"
    return Unfinished("fault", f"solcourse itself failed on this kernel: {type(error).__name__}: {error} ({where}).")


def _try(exercise: Exercise, module: ModuleType, limit_s: float, result: Trial) -> None:
    _check_names(exercise, module)
    for size in exercise.sizes:
        problem = _judge(exercise, module, size, limit_s, result, sanitized=True)
        result.problem = result.problem or problem
        if problem and problem.stage != "result":  # a wrong result at one size says nothing about races at another; a fault says enough
            break
    result.clean = not any(finding.severity == "error" for finding in result.findings)
    if result.problem:
        return
    result.problem = _judge(exercise, module, exercise.gate_size, limit_s, result)
    result.correct = result.problem is None
    if result.run is not None and result.correct:
        specs: tuple[GateSpec, ...] = exercise.gates(*numbers(exercise.gate_size))
        if not specs:
            raise SolcourseError("An exercise without gates would pass anything.")
        run = result.run
        result.gates = tuple(spec.judge(run, module.__file__ or "") for spec in specs)


def _check_names(exercise: Exercise, module: ModuleType) -> None:
    """The names that the check needs are there, and take what they are called with. Raises Unfinished."""
    parameters = list(exercise.arguments(*numbers(exercise.sizes[0]), np.random.default_rng(0)))
    if exercise.program:
        learner.takes(learner.function(module, exercise.program), parameters)
        return
    learner.kernel(module, exercise.kernel, parameters)
    learner.takes(learner.function(module, exercise.launch), list(exercise.size_names))


def _judge(exercise: Exercise, module: ModuleType, size: Size, limit_s: float, result: Trial, sanitized: bool = False) -> Unfinished | None:
    """One size; what is wrong with its launches, or with what they left behind. Keeps the run and the findings in `result`."""
    rng = np.random.default_rng([zlib.crc32((exercise.program or exercise.kernel).encode()), *numbers(size)])
    given = exercise.arguments(*numbers(size), rng)
    poisoned = set(exercise.outputs) - set(exercise.accumulators)
    guarded = {name: _Guarded(value, poisoned=name in poisoned) for name, value in given.items()}
    arguments = tuple(g.value for g in guarded.values())
    try:
        launch = _launch_program if exercise.program else _launch_kernel
        result.run = Ran(tuple(launch(exercise, module, size, arguments, limit_s, result if sanitized else None)))
    except Unfinished as problem:
        return problem
    where = ", ".join(f"{name} = {number(n)}" for name, n in zip(_size_names(module, exercise), numbers(size), strict=True))
    for name, guard in guarded.items():
        if not guard.intact():
            return Unfinished("bounds", f"The memory around {name} was written to ({where}).")
        if name not in exercise.outputs and not _same_bits(guard.value, given[name]):
            return Unfinished("result", f"The kernel changed its input {name} ({where}).", _store_line(result.run, module))
    expected = exercise.reference(**given)
    for name in exercise.outputs:
        got = guarded[name].value
        missing = _missing(got, expected[name], exercise)
        written = got.size - int(missing.sum())
        if 0 < written < got.size and not missing.flat[:written].any():
            said = f"Only the first {number(written)} of {number(got.size)} elements of {name} were written ({where})."
            element = _element(name, np.unravel_index(written, got.shape))
            return Unfinished("result", said, None, TOO_FEW.format(launch=exercise.program or exercise.launch, element=element))
        wrong = _difference(name, got, expected[name], exercise)
        if wrong:
            return Unfinished("result", f"{wrong} ({where}).", _store_line(result.run, module))
    return None


def _launch_kernel(
    exercise: Exercise, module: ModuleType, size: Size, arguments: tuple, limit_s: float, checked: Trial | None
) -> list[EngineRun]:
    """The learner's kernel, launched as the learner's launch function says; sanitized first where `checked` keeps what is found."""
    from solcourse.simt import frontend

    kernel = learner.kernel(module, exercise.kernel, [""] * len(arguments))
    spec = frontend.launch_of(_configured(exercise, module, kernel, size, limit_s))
    if checked is not None:
        _sanitized(spec, arguments, limit_s, checked)
    return [execute(spec, arguments, limit_s)]


def _launch_program(
    exercise: Exercise, module: ModuleType, size: Size, arguments: tuple, limit_s: float, checked: Trial | None
) -> list[EngineRun]:
    """The learner's function, which makes the launches itself: each is sanitized where `checked` keeps what is found, else counted.

    A sanitized launch works on the program's own arrays: what it has written, a later launch may read.
    """
    from solcourse.hardware import DEFAULT_DEVICE, device
    from solcourse.launches import Launches
    from solcourse.standin import Engine

    runs: list[EngineRun] = []
    stopped: list[Unfinished] = []

    def one(spec: LaunchSpec, args: tuple) -> None:
        try:
            if checked is not None:
                _sanitized(spec, args, limit_s, checked, in_place=True)
            else:
                runs.append(execute(spec, args, limit_s))
        except Exception as error:
            stopped.append(_problem_of(error, checked or Trial()))
            raise stopped[-1] from None

    function = learner.function(module, exercise.program)
    with Engine(one, Launches(device(DEFAULT_DEVICE), recording=False)):
        try:
            learner.limited(lambda: function(*arguments), Path(module.__file__ or ""), f"calling {exercise.program}", 3 * limit_s)
        except Unfinished as problem:
            raise (stopped or [problem])[0] from None
    if stopped:  # and caught by the learner's code
        raise stopped[0]
    return runs


def _sanitized(spec: LaunchSpec, args: tuple, limit_s: float, result: Trial, in_place: bool = False) -> None:
    """The same launch on copies, or in place, with every check on. What was found at another size, at the same place, is known.

    Raises Unfinished with the first error."""
    from solcourse.simt import arguments, engine, frontend

    kernel = frontend.compile_kernel(spec.dispatcher, frontend.argument_types(spec.dispatcher, args))
    bound = arguments.bind(kernel, args, private=not in_place)
    before = arguments.bind(kernel, args, private=True)
    found = engine.sanitize(
        kernel, bound, spec.grid, spec.block, spec.dynamic_shared_bytes,
        function=spec.dispatcher.py_func, limit_s=limit_s, total_s=limit_s, again=lambda: before,
    )  # fmt: skip
    if in_place:
        bound.write_back()
    places = {_place(f) for f in result.findings}
    result.findings += [f for f in found if _place(f) not in places]
    for finding in found:
        if finding.severity == "error":
            raise _problem(finding)


def _place(f: Finding) -> tuple:
    return f.kind, f.file, f.line, f.other_line, f.array


def _problem(finding: Finding) -> Unfinished:
    """A finding as what stops a check; a stray access with a guard in the learner's own name for the array."""
    if finding.kind == "runaway":
        return Unfinished("time", finding.message, finding.line)
    if finding.kind == "out_of_bounds":
        advice = TOO_FAR.format(array=finding.array) if finding.array.isidentifier() else ""
        return Unfinished("bounds", finding.message, finding.line, advice)
    return Unfinished("bounds" if finding.check == "memcheck" else "hazard", finding.message, finding.line, finding.hint)


def _bounds(error: OutOfBounds) -> Unfinished:
    return _problem(error.finding) if error.finding else Unfinished("bounds", str(error), error.line)


def execute(spec: LaunchSpec, args: tuple, limit_s: float) -> EngineRun:
    """Runs a launch on the engine, counted, and writes its outputs back. Raises what the engine raises."""
    from solcourse.simt import arguments, engine, frontend

    kernel_ir = frontend.compile_kernel(spec.dispatcher, frontend.argument_types(spec.dispatcher, args))
    bound = arguments.bind(kernel_ir, args)
    run = engine.execute(kernel_ir, bound, spec.grid, spec.block, spec.dynamic_shared_bytes, limit_s=limit_s, total_s=limit_s)
    bound.write_back()
    return run


def _configured(exercise: Exercise, module: ModuleType, kernel: Any, size: Size, limit_s: float) -> Any:
    """kernel[grid, block] as the learner's launch function wants it for a size."""
    launch = learner.function(module, exercise.launch)
    path = Path(module.__file__ or "")
    call = f"{exercise.launch}({', '.join(map(str, numbers(size)))})"
    dims = learner.limited(lambda: launch(*numbers(size)), path, f"calling {call}", limit_s)
    said, line = f"{call} returned {dims!r}", launch.__code__.co_firstlineno
    if not isinstance(dims, tuple) or not 2 <= len(dims) <= 4:
        raise Unfinished("launch", f"{said}; wanted: blocks, threads.", line)
    if any(isinstance(n, float) for d in dims[:2] for n in (d if isinstance(d, (tuple, list)) else (d,))):
        raise Unfinished("launch", f"{said}; blocks and threads are whole numbers: divide with //.", line)
    try:
        return kernel[dims]
    except (TypeError, ValueError) as error:
        raise Unfinished("launch", f"{said}; numba says: {error}.", line) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """numba advises against launches below 128 blocks; odd sizes are small on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size .* will likely result in GPU under-utilization")
        yield


class _Guarded:
    """An argument to hand to a kernel: an array is copied into the middle of a larger buffer, a scalar is itself."""

    def __init__(self, value: Any, poisoned: bool):
        self.value = value
        self.buffer: np.ndarray | None = None
        if isinstance(value, np.ndarray):
            self.poison = poison(value.dtype)
            self.buffer = np.full((value.size + 2 * GUARD) * value.itemsize, self.poison, np.uint8)
            self.value = self.buffer.view(value.dtype)[GUARD : GUARD + value.size].reshape(value.shape)
            if not poisoned:
                self.value[...] = value

    def intact(self) -> bool:
        if self.buffer is None:
            return True
        edge = GUARD * self.value.itemsize
        return bool((self.buffer[:edge] == self.poison).all() and (self.buffer[-edge:] == self.poison).all())


def _same_bits(left: Any, right: Any) -> bool:
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    return bool(left.shape == right.shape and (left.reshape(-1).view(np.uint8) == right.reshape(-1).view(np.uint8)).all())


def _close(got: np.ndarray, expected: np.ndarray, exercise: Exercise) -> np.ndarray:
    return np.isclose(got, expected, rtol=exercise.rtol, atol=exercise.atol, equal_nan=True)


def _missing(got: np.ndarray, expected: np.ndarray, exercise: Exercise) -> np.ndarray:
    """Where an output still holds its poison, and should not."""
    untouched = (np.ascontiguousarray(got).view(np.uint8).reshape(*got.shape, -1) == poison(got.dtype)).all(axis=-1)
    return untouched & ~_close(got, expected, exercise)


def _difference(name: str, got: np.ndarray, expected: np.ndarray, exercise: Exercise) -> str:
    """What is wrong with an output, '' when nothing is."""
    close = _close(got, expected, exercise)
    if close.all():
        return ""
    missing = _missing(got, expected, exercise)
    wrong = missing if missing.any() else ~close
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    element = _element(name, index)
    share = f"{number(int(wrong.sum()))} of {number(wrong.size)} elements"
    if missing.any():
        return f"{element} was never written, one of {share}"
    return f"{element} is {got[index]:.6g} and should be {expected[index]:.6g}; {share} are wrong"


def _element(name: str, index: Sequence[Any]) -> str:
    """An element as one writes it: out[3, 0]."""
    return f"{name}[{', '.join(str(int(i)) for i in index)}]"


def _store_line(run: Ran, module: ModuleType) -> int | None:
    lines = [line for line in run.lines if line.file == module.__file__ and line.counts.global_store.requests]
    return max(lines, key=lambda line: line.counts.global_store.bytes).line if lines else None


def _size_names(module: ModuleType, exercise: Exercise) -> tuple[str, ...]:
    """What the learner's launch function calls the numbers of a size."""
    if exercise.program:
        return exercise.size_names
    return tuple(inspect.signature(getattr(module, exercise.launch)).parameters)
