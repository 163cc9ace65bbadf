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
from solcourse.grading import Exercise, numbers
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
    """An exercise as its solution's file states it: docstring and check, which has a part for each thing that is asked."""

    name: str
    file: str
    title: str
    text: str
    parts: tuple[Exercise, ...]

    @property
    def hints(self) -> tuple[str, ...]:
        """Of all parts, in order."""
        return tuple(hint for part in self.parts for hint in part.hints)


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
    stated = getattr(module, "EXERCISE", ())
    parts = stated if isinstance(stated, tuple) else (stated,)
    if not parts or not all(isinstance(part, Exercise) for part in parts):
        raise SolcourseError(f"{path} has no EXERCISE.")
    doc = inspect.cleandoc(ast.get_docstring(ast.parse(text)) or "")
    title = doc.splitlines()[0].partition(":")[2].strip().rstrip(".") if doc else path.stem
    title = title[:1].upper() + title[1:]
    return Sheet(file.partition("_")[0], file, title, doc, parts)


def hint(name: str, number: int) -> str:
    """Hint 1, 2 ... of an exercise; the learner's progress remembers that it was read. Raises UnknownName."""
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
    at, result = _tried(page, path, text, limit_s)
    part = page.parts[at]
    report, score = _predicted(part, result, device, notes)
    passed = _passed(result)
    if passed and at:
        notes.append(f"All {len(page.parts)} parts pass; the counts are those of the last.")
    problem = result.problem
    attempts = 0 if problem else _remembered(folder, page, at, text, passed, {device.name: score} if score else None, notes)
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
        next_hint=_next(part, stage, attempts, result),
        title=page.title,
        part=f"part {at + 1} of {len(page.parts)}, {part.title}" if len(page.parts) > 1 else "",
        file=course.shown(path, folder),
        stage=stage,
        problem=problem.message if problem else "",
        line=line,
        line_text=lines[line - 1].strip() if line and line <= len(lines) else "",
        sizes=part.sizes,
        gate_size=part.gate_size,
        attempts=attempts,
        hints=part.hints,
        first_hint=sum(len(earlier.hints) for earlier in page.parts[:at]),
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


def _tried(page: Sheet, path: Path, text: str, limit_s: float) -> tuple[int, Trial]:
    """(which part, how far it came): the first part that does not pass, or the last."""
    try:
        module = learner.load(path, text, limit_s)
    except Unfinished as problem:
        return 0, Trial(problem=problem)
    tried = []
    for part in page.parts:
        tried.append(trial(part, module, limit_s))
        if not _passed(tried[-1]):
            break
    return len(tried) - 1, tried[-1]


def _passed(result: Trial) -> bool:
    return result.problem is None and result.correct and result.clean and bool(result.gates) and all(g.passed for g in result.gates)


def _predicted(part: Exercise, result: Trial, device: Device, notes: list[str]) -> tuple[Report | None, float | None]:
    """(report of the counted launch, SOL score of the whole); a prediction that fails takes no verdict away.

    Of several launches the longest is reported, and a note says what they take together.
    """
    if not result.correct or result.run is None or not result.run.runs:
        return None, None
    from solcourse import report, units
    from solcourse.roofline import sol_score

    work, runs = part.work(*numbers(part.gate_size)), result.run.runs
    if len(runs) == 1:
        only = report.predicted(runs[0], device, work=work)
        return only, only.sol_score
    reports = [report.predicted(run, device) for run in runs]
    time_s = sum(one.time_s for one in reports)
    score = sol_score(time_s, work, device)
    longest = max(reports, key=lambda one: one.time_s)
    notes.append(
        f"{len(runs)} launches, one after the other: {units.seconds(time_s)} predicted on {device.name}, SOL score of the whole "
        f"{units.score(score)}. The score above is of the longest, {longest.kernel}, by its own bytes."
    )
    return longest, score


def _remembered(folder: Path, page: Sheet, at: int, text: str, passed: bool, scores: dict[str, float] | None, notes: list[str]) -> int:
    """Keeps an attempt that got as far as its counts in the learner's progress. Returns how many there were, at this part."""
    if course.solutions_wanted():
        return 1
    mine, keys = course.mine(folder), [page.name] if len(page.parts) == 1 else [page.name, f"{page.name}, part {at + 1}"]
    try:
        return [int(progress.record_attempt(mine, key, text, passed, scores)["attempts"]) for key in keys][-1]
    except OSError as error:
        notes.append(f"Progress could not be kept: {error}.")
        return 1


def _next(part: Exercise, stage: str, attempts: int, result: Trial) -> str:
    if stage == "passed":
        return part.after
    if stage == "counts" and part.hints:
        return part.hints[min(attempts, len(part.hints)) - 1]
    advice = result.problem.advice if result.problem else ""
    return advice or ADVICE.get(stage, "Check again.")
