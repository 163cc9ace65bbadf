"""Whole numba.cuda programs as people write them, each checking its own results: all run unmodified, under use_engine() alone."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

import solcourse as sol

PROGRAMS = Path(__file__).parent / "programs"
ELSEWHERE = ("conftest", "beside", "threads_and_processes", "fallback_cli")  # a module, and what test_run_script.py starts
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem not in ELSEWHERE)

pytestmark = pytest.mark.slow  # a process for each program


def test_there_are_programs():
    assert len(NAMES) >= 25


@pytest.mark.filterwarnings("ignore:CUDA events time the CPU engine")
@pytest.mark.parametrize("name", NAMES)
def test_the_program_finds_its_results_right(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.syspath_prepend(PROGRAMS)
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    with sol.use_engine():
        runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.strip()  # it came to its last line, which prints
