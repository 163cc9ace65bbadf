"""check(name) -> Verdict: the learner's file, by name, from text to score. Hints and the list of exercises beside it."""

from __future__ import annotations

import ast
import contextlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from solcourse import course, hardware, learner, progress, stubs
from solcourse.errors import SolcourseError, UnknownName
from solcourse.grading import Exercise
from solcourse.hardware import DEFAULT_DEVICE, Device
from solcourse.learner import Unfinished
from solcourse.trial import Trial, trial
from solcourse.verdict import Verdict

if TYPE_CHECKING:
    from solcourse.report import Report

# What to do about each way of not getting further, where the message does not say it all.
ADVICE = {
    "syntax": "Repair the line, save, and check again.",
    "import": "Take the import out: numba and numpy are all an exercise needs.",
    "error": "Repair the line, save, and check again.",
    "unfinished": "Write what is missing there, save, and check again.",
    "time": "Look at what should end the loop: does every turn bring it nearer?",
    "names": "Keep the names and the parameters of the stub; the rest is yours.",
    "launch": "Return whole blocks and threads per block: at least 1 of each, at most 1024 threads.",
    "compile": "A kernel knows numbers, arrays, `math` and `cuda`; little else of Python.",
    "bounds": "Which thread goes too far? A guard keeps it back: `if i < n:`.",
    "hazard": "Which thread comes too early? A barrier lets it wait: `cuda.syncthreads()`.",
    "fault": "This is not your mistake: please report it, with the file. Another way of writing the kernel may get further.",
    "result": "Take one wrong element and ask: which thread should make it, and from what?",
}


@dataclass(frozen=True)
class Sheet:
    """An exercise as its solution's file states it: docstring and check."""

    name: str
    file: str
    title: str
    text: str
    exercise: Exercise

    @property
    def hints(self) -> tuple[str, ...]:
        return self.exercise.hints


def names() -> tuple[str, ...]:
    """The exercises of the course, in order. Raises CourseNotFound."""
    return tuple(course.names(course.find()))


def sheet(name: str, folder: Path | None = None) -> Sheet:
    """One exercise. Raises UnknownName, CourseNotFound; SolcourseError where its solution's file is damaged."""
    folder = folder or course.find()
    file = course.file_name(folder, name)
    path = folder / "solutions" / file
    text = path.read_text(encoding="utf-8")
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    exec(compile(text, str(path), "exec"), module.__dict__)
    if not isinstance(getattr(module, "EXERCISE", None), Exercise):
        raise SolcourseError(f"{path} has no EXERCISE.")
    doc = inspect.cleandoc(ast.get_docstring(ast.parse(text)) or "")
    title = doc.splitlines()[0].partition(":")[2].strip().rstrip(".") if doc else path.stem
    title = title[:1].upper() + title[1:]
    return Sheet(file.partition("_")[0], file, title, doc, module.EXERCISE)


def hint(name: str, number: int) -> str:
    """Hint 1, 2 or 3 of an exercise; the learner's progress remembers that it was read. Raises UnknownName."""
    folder = course.find()
    page = sheet(name, folder)
    if not 1 <= number <= len(page.hints):
        numbers = [str(n + 1) for n in range(len(page.hints))]
        raise UnknownName("hint", number, numbers, f"{page.name} has no hint {number}; it has hints {', '.join(numbers)}.")
    with contextlib.suppress(OSError):  # a hint is worth reading where nothing can be kept
        progress.record_hint(course.mine(folder), page.name, number)
    return page.hints[number - 1]


def learner_file(name: str) -> Path:
    """The file a learner edits; the stub is copied there on first use. Raises UnknownName, CourseNotFound, OSError."""
    return course.learner_file(course.find(), name)


def check(name: str, *, device: str | Device = DEFAULT_DEVICE, limit_s: float = learner.LIMIT_S) -> Verdict:
    """Checks the learner's copy of an exercise: correct, clean, counts; predicted score on `device`.

    Never raises for what stands in the file: syntax errors, missing imports, endless loops, stray accesses and wrong signatures
    are verdicts.

    Raises: UnknownName for an exercise or device that does not exist; CourseNotFound.
    """
    folder, device = course.find(), hardware.device(device)
    page = sheet(name, folder)
    notes: list[str] = []
    path, text = _handed_in(folder, page, notes)
    result = _tried(page.exercise, path, text, limit_s)
    report = _report(page.exercise, result, device, notes)
    passed = result.problem is None and result.correct and result.clean and bool(result.gates) and all(g.passed for g in result.gates)
    problem = result.problem
    attempts = 0 if problem else _remembered(folder, page.name, text, passed, report, notes)
    stage = problem.stage if problem else "passed" if passed else "counts"
    lines = text.splitlines()
    line = problem.line if problem else None
    return Verdict(
        exercise=page.name,
        passed=passed,
        correct=result.correct,
        clean=result.clean,
        gates=result.gates,
        findings=tuple(result.findings),
        report=report,
        next_hint=_next(page, stage, attempts, result),
        title=page.title,
        file=course.shown(path, folder),
        stage=stage,
        problem=problem.message if problem else "",
        line=line,
        line_text=lines[line - 1].strip() if line and line <= len(lines) else "",
        sizes=page.exercise.sizes,
        gate_size=page.exercise.gate_size,
        attempts=attempts,
        hints=page.hints,
        notes=tuple(notes),
    )


def _handed_in(folder: Path, page: Sheet, notes: list[str]) -> tuple[Path, str]:
    """The file to check and its text: the learner's copy, or the solution where solutions are asked for."""
    if course.solutions_wanted():
        path = folder / "solutions" / page.file
        return path, stubs.solved(path.read_text(encoding="utf-8"))
    try:
        path = course.learner_file(folder, page.name)
    except OSError as error:
        path = folder / "exercises" / page.file
        notes.append(f"No copy of yours could be made ({error}); this is the stub. Set SOLCOURSE_MINE to a folder you can write to.")
    return path, path.read_text(encoding="utf-8-sig", errors="replace")


def _tried(exercise: Exercise, path: Path, text: str, limit_s: float) -> Trial:
    try:
        module = learner.load(path, text, limit_s)
    except Unfinished as problem:
        return Trial(problem=problem)
    return trial(exercise, module, limit_s)


def _report(exercise: Exercise, result: Trial, device: str | Device, notes: list[str]) -> Report | None:
    """The predicted report of the counted launch; a prediction that fails takes no verdict away."""
    if not result.correct or result.run is None:
        return None
    from solcourse import report

    return report.predicted(result.run, device, work=exercise.work(exercise.gate_size))


def _remembered(folder: Path, name: str, text: str, passed: bool, report: Report | None, notes: list[str]) -> int:
    """Keeps an attempt that got as far as its counts in the learner's progress. Returns how many there were."""
    if course.solutions_wanted():
        return 1
    scores = {report.device.name: report.sol_score} if report and report.sol_score is not None else None
    try:
        return int(progress.record_attempt(course.mine(folder), name, text, passed, scores)["attempts"])
    except OSError as error:
        notes.append(f"Progress could not be kept: {error}.")
        return 1


def _next(page: Sheet, stage: str, attempts: int, result: Trial) -> str:
    if stage == "passed":
        return page.exercise.after
    if stage == "counts" and page.hints:
        return page.hints[min(attempts, len(page.hints)) - 1]
    advice = result.problem.advice if result.problem else ""
    return advice or ADVICE.get(stage, "Check again.")
