"""Where the course lies on disk: its folder, the exercises in it, and the learner's copies.

The course is the folder that holds exercises/ and solutions/, at or above the working folder. The learner's copies and
progress live in exercises/mine, or where SOLCOURSE_MINE says (a hub whose course is read-only, or a test).
With SOLCOURSE_SOLUTIONS=1 the solutions are checked in place of the learner's files: that is how the notebooks are tested.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from solcourse.errors import CourseNotFound, UnknownName

FILE_NAME = re.compile(r"(ex\d\d[a-z]?)_(\w+)\.py")


def find(start: str | os.PathLike[str] | None = None) -> Path:
    """The course folder at or above `start` (default: the working folder).

    Raises CourseNotFound, which says where it looked.
    """
    start = Path.cwd() if start is None else Path(start).resolve()
    for folder in (start, *start.parents):
        if (folder / "exercises").is_dir() and (folder / "solutions").is_dir():
            return folder
    raise CourseNotFound(
        f"No course at or above {start}: a folder that holds exercises/ and solutions/ is needed. "
        "Work inside the folder you got the course in: open its notebooks/, or `cd` into it."
    )


def solutions_wanted() -> bool:
    """True where the solutions stand in for the learner's files."""
    return os.environ.get("SOLCOURSE_SOLUTIONS") == "1"


def names(course: Path) -> dict[str, str]:
    """Every exercise, in order: {"ex01": "ex01_coalescing.py", ...}."""
    matches = (FILE_NAME.fullmatch(path.name) for path in sorted((course / "solutions").iterdir()))
    return {match[1]: match[0] for match in matches if match}


def file_name(course: Path, name: str) -> str:
    """The file of an exercise, by "ex01", "ex01_coalescing" or "ex01_coalescing.py". Raises UnknownName."""
    known = names(course)
    wanted = Path(str(name)).name.removesuffix(".py")
    for short, file in known.items():
        if wanted.lower() in (short, file.removesuffix(".py")):
            return file
    in_lesson = re.match(r"ex\d\d", wanted.lower())
    page = in_lesson and next((course / "notebooks").glob(f"{in_lesson[0][2:]}_*.ipynb"), None)
    if page and in_lesson and in_lesson[0] not in known:
        there = f"{name} has no file of its own: it is answered inside notebooks/{page.name}. Exercises with a file: {', '.join(known)}."
        raise UnknownName("exercise", name, known, there)
    raise UnknownName("exercise", name, known)


def mine(course: Path) -> Path:
    """The folder of the learner's copies and progress. It need not exist yet."""
    elsewhere = os.environ.get("SOLCOURSE_MINE")
    return Path(elsewhere).expanduser() if elsewhere else course / "exercises" / "mine"


def learner_file(course: Path, name: str) -> Path:
    """The learner's copy of an exercise; the stub is copied there when there is none yet. Raises UnknownName, OSError."""
    file = file_name(course, name)
    copy = mine(course) / file
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        stub = (course / "exercises" / file).read_bytes()
        try:
            with copy.open("xb") as handle:  # never over a file that came between
                handle.write(stub)
        except FileExistsError:
            pass
    return copy


def shown(path: str | os.PathLike[str], course: Path) -> str:
    """A path as a learner knows it: from the course folder where it lies there."""
    path = Path(path)
    return path.relative_to(course).as_posix() if path.is_relative_to(course) else str(path)
