"""Solutions -> stubs: the definition of the markers in solutions/, which are nbgrader's.

    ### BEGIN SOLUTION          the answer
    ### STUB                    then, commented out, what stands there in the stub; without it, a line that raises
    ### END SOLUTION
    ### BEGIN HIDDEN TESTS      the check: in neither the stub nor the learner's file
    ### END HIDDEN TESTS

`python -m solcourse.stubs` writes exercises/ again from solutions/; a test says that they agree.
"""

from __future__ import annotations

from pathlib import Path

from solcourse import course
from solcourse.errors import SolcourseError

BEGIN, STUB, END = "### BEGIN SOLUTION", "### STUB", "### END SOLUTION"
BEGIN_TESTS, END_TESTS = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
NEXT: dict[str, set[str | None]] = {BEGIN: {None}, STUB: {BEGIN}, END: {BEGIN, STUB}, BEGIN_TESTS: {None}, END_TESTS: {BEGIN_TESTS}}
UNWRITTEN = 'raise NotImplementedError("your code here")'


def split(text: str) -> list[tuple[str | None, str]]:
    """Every line of a solution but the markers, with the section it stands in: None, BEGIN, STUB or BEGIN_TESTS.

    A hole without ### STUB gets one. Raises SolcourseError, with the line, where a marker is out of place.
    """
    lines: list[tuple[str | None, str]] = []
    section: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        marker = line.strip()
        if not marker.startswith("### "):
            lines.append((section, line))
            continue
        if section not in NEXT.get(marker, ()):
            raise SolcourseError(f"line {number}: {marker!r} is no marker, or out of place after {section or 'plain text'!r}")
        if marker == END and section == BEGIN:
            lines.append((STUB, line.replace(END, "# " + UNWRITTEN)))
        section = None if marker in (END, END_TESTS) else marker
    if section is not None:
        raise SolcourseError(f"{section!r} is never closed")
    return lines


def uncommented(line: str) -> str:
    """A line of a ### STUB section without its comment sign: "    # x = 1" -> "    x = 1"."""
    before, sign, after = line.partition("#")
    if before.strip() or not sign:
        raise SolcourseError(f"a line after {STUB} must be commented out: {line!r}")
    return (before + after.removeprefix(" ")).rstrip()


def stub(text: str) -> str:
    """What a learner starts from.

    >>> print(stub("x = 1\\n### BEGIN SOLUTION\\ny = x\\n### STUB\\n# y = 0\\n### END SOLUTION\\n"))
    x = 1
    y = 0
    """
    lines = [uncommented(line) if section == STUB else line for section, line in split(text) if section in (None, STUB)]
    return "\n".join(lines).rstrip() + "\n"


def solved(text: str) -> str:
    """The file as a learner would hand it in: the answer, without markers or check."""
    return "\n".join(line for section, line in split(text) if section in (None, BEGIN)).rstrip() + "\n"


def write(folder: Path) -> list[Path]:
    """Writes exercises/ from solutions/ of a course. Returns the files that changed."""
    changed = []
    for file in course.names(folder).values():
        target = folder / "exercises" / file
        text = stub((folder / "solutions" / file).read_text(encoding="utf-8"))
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
            changed.append(target)
    return changed


if __name__ == "__main__":
    for path in write(course.find()):
        print(path)
