"""A copy of the course for each test, and a check of any text as a learner's answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from solcourse import course, exercises, stubs
from solcourse.verdict import Verdict

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def in_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the course's exercises, as the working folder, with the learner's folder in it."""
    for folder in ("exercises", "solutions"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("mine", "__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOLCOURSE_MINE", raising=False)
    monkeypatch.delenv("SOLCOURSE_SOLUTIONS", raising=False)
    return tmp_path


@pytest.fixture
def judge(in_course: Path) -> Callable[[str, str], Verdict]:
    """judge("ex02", text) -> the Verdict on that text as the learner's file."""

    def check(name: str, text: str) -> Verdict:
        exercises.learner_file(name).write_text(text, encoding="utf-8")
        return exercises.check(name)

    return check


def _text(folder: str, name: str) -> str:
    return (ROOT / folder / course.file_name(ROOT, name)).read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def solution() -> Callable[[str], str]:
    """solution("ex02") -> the answer as a learner would hand it in."""
    return lambda name: stubs.solved(_text("solutions", name))


@pytest.fixture(scope="session")
def stub() -> Callable[[str], str]:
    """stub("ex02") -> the file that a learner starts from."""
    return lambda name: _text("exercises", name)


@pytest.fixture(scope="session")
def edited() -> Callable[..., str]:
    """edited(text, (old, new), ...) -> the text with each `old` replaced; an `old` that is not there is an error."""

    def edit(text: str, *changes: tuple[str, str]) -> str:
        for old, new in changes:
            assert old in text, f"nothing to change: {old!r}"
            text = text.replace(old, new)
        return text

    return edit
