"""What lessons say in one call a cell: hello, guess, task, exercise, dashboard, assert_solved.

Each takes records and returns something a notebook shows; nothing is printed. Widgets are imported when one is asked for.
"""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar

from solcourse import course, progress, tasks
from solcourse.errors import CourseNotFound, SolcourseError
from solcourse.hardware import DEFAULT_DEVICE


@dataclass(frozen=True)
class Said:
    """A sentence for the learner, as text and as HTML."""

    words: str
    markup: str = ""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": f'<p class="sol-said">{self.markup or html.escape(self.words)}</p>', "text/plain": self.words}

    def __str__(self) -> str:
        return self.words


# ------------------------------------------------------------------------------------------------------------- welcome


def _front_end() -> str:
    for package in ("numba-cuda", "numba"):
        try:
            return f"{package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            continue
    return "no numba found"


def hello() -> Said:
    """What this notebook runs on: the engine, the numba front end, a GPU if there is one, the device of predictions."""
    from solcourse import timing

    engine = f"Kernels run on the CPU engine, compiled by {_front_end()}."
    try:
        gpu = f"GPU found: {timing.gpu_name()}. sol.profile predicts, sol.measure measures."
    except SolcourseError:
        gpu = f"No GPU needed, and none found: times are predicted, for the {DEFAULT_DEVICE} unless you name another."
    launch = "Start a kernel with sol.run or sol.profile"
    use = "kernel[grid, block](...)"
    return Said(
        f"{engine} {gpu}\n{launch}; a plain {use} needs a GPU, or `with sol.use_engine():` around it.",
        f"{html.escape(engine)} {html.escape(gpu)}<br>{launch}; a plain <code>{use}</code> needs a GPU, "
        "or <code>with sol.use_engine():</code> around it.",
    )


# --------------------------------------------------------------------------------------------------------------- guess


class Guess:
    """A bet before a result. Shows a button for each option; keeps the answer in the learner's progress.

    The bet belongs to the question, not to this object: a click makes its cell the active one, and the next Shift+Enter
    runs that cell again.
    """

    _made: ClassVar[dict[str, Any]] = {}  # question -> the last bet, where no course can be written to

    def __init__(self, question: str, options: Iterable[Any]):
        self.question, self.options = question, tuple(options)
        made = self._earlier()
        self.answer: Any = made if made in self.options else None
        self.truth: Any = None
        self.revealed = False
        self._listeners: list[Callable[[], None]] = []

    def choose(self, option: Any) -> None:
        """Takes the bet and keeps it. A course that cannot be found or written to is no reason to stop."""
        self.answer = self._made[self.question] = option
        _remember(lambda folder: progress.record_guess(folder, self.question, option))
        self._tell()

    def reveal(self, truth: Any) -> Said:
        """The result beside the bet. Returns a sentence; the buttons show which was right."""
        self.truth, self.revealed = truth, True
        self._tell()
        if self.answer is None:
            return Said(f"{short(truth)}. (No bet was made.)")
        verdict = "as you said" if same(self.answer, truth) else f"you said {short(self.answer)}"
        return Said(f"{short(truth)}: {verdict}.")

    def _earlier(self) -> Any:
        """The bet already made on this question, here or in an earlier session; None where there is none."""
        if self.question in self._made:
            return self._made[self.question]
        kept: dict[str, Any] = {}
        _remember(lambda folder: kept.update(progress.read(folder).get("guesses", {}).get(self.question, {})))
        return kept.get("last")

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after every bet and reveal."""
        self._listeners.append(listener)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def __repr__(self) -> str:
        return f"{self.question}  {' | '.join(map(short, self.options))}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        from solcourse import widgets

        return widgets.GuessPanel(self)._repr_mimebundle_()


def short(value: Any) -> str:
    """A value as it stands on a button: 8.0 is "8"."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def same(option: Any, truth: Any) -> bool:
    """Whether a bet was right: equal, or within 2 % for numbers."""
    if isinstance(option, (int, float)) and isinstance(truth, (int, float)):
        return abs(option - truth) <= 0.02 * abs(truth)
    return bool(option == truth)


def guess(question: str, options: Iterable[Any]) -> Guess:
    """A question to bet on before the result is computed; `.reveal(result)` shows the result beside the bet."""
    return Guess(question, options)


def _remember(keep: Callable[[Any], object]) -> None:
    """Keeps something in the learner's progress, where there is a course that can be written to."""
    # a lesson opened outside the course still works; there is just nothing to remember
    with contextlib.suppress(CourseNotFound, OSError):
        keep(course.mine(course.find()))


# --------------------------------------------------------------------------------------------------- panels and tasks


def dashboard(name: str, kernel: Any = None) -> Any:
    """The live panel of that name ("coalescing", "speed_of_light"), around the learner's own kernel where one is given.

    Raises UnknownName.
    """
    from solcourse import widgets

    return widgets.dashboard(name, kernel)


def exercise(name: str) -> Any:
    """The panel of an exercise: where its file is, a Score button, live on save, hints folded. Raises UnknownName."""
    from solcourse import widgets

    return widgets.ExercisePanel(name)


def task(name: str, answer: Any = None) -> Any:
    """A sum to do by hand: a box to type it in, and what the answer looks like. With `answer`, just the marking.

    Raises UnknownName.
    """
    item = tasks.task(name)
    if answer is not None:
        return marked(item, answer)
    from solcourse import widgets

    return widgets.TaskPanel(item, marked)


def marked(item: tasks.Task, answer: Any) -> tasks.Marked:
    """tasks.mark, kept in the learner's progress."""
    result = tasks.mark(item, answer)
    if result.passed is not None:
        _remember(lambda folder: progress.record_attempt(folder, item.name, str(answer), bool(result.passed)))
    return result


def assert_solved(*names: str) -> Said:
    """With SOLCOURSE_SOLUTIONS=1, fails unless the exercises (or every task of "ex00") are solved; else says how far the learner is.

    The last cell of every lesson: it proves that what the lesson asks for can be done.
    """
    if not course.solutions_wanted():
        return Said("\n".join(str(standing(name)) for name in names), "<br>".join(html.escape(str(standing(name))) for name in names))
    for name in names:
        _solve(name)
    return Said("\n".join(f"{name}: the solution passes." for name in names))


def _solve(name: str) -> None:
    """Fails unless the solution of an exercise, or of every task that begins with its name, passes."""
    sums = [item for item in tasks.TASKS if item.name.startswith(f"{name}.")]
    for item in sums:
        result = tasks.mark(item, item.solution)
        assert result.passed, f"{item.name}: {result}"
    if not sums:
        from solcourse.exercises import check

        verdict = check(name)
        assert verdict.passed, str(verdict)


def standing(name: str) -> Said:
    """How far the learner is with an exercise, or with the tasks that begin with its name, by the progress kept."""
    kept: dict[str, Any] = {}
    _remember(lambda folder: kept.update(progress.read(folder).get("exercises", {})))
    parts = [item.name for item in tasks.TASKS if item.name.startswith(f"{name}.")] or [name]
    open_ones = [part for part in parts if "passed" not in kept.get(part, {})]
    if not open_ones:
        return Said(f"{name}: solved.")
    if len(parts) == 1:
        return Said(f"{name}: not solved yet. Its panel above says what is missing.")
    return Said(f"{name}: {len(parts) - len(open_ones)} of {len(parts)} solved; still open: {', '.join(open_ones)}.")
