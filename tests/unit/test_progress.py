"""A learner's progress is never lost: not to a crash, a second process, a newer version or a damaged file."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from solcourse import progress


def test_fresh_where_there_is_nothing(tmp_path: Path):
    assert progress.read(tmp_path / "nowhere") == {"version": 1, "exercises": {}, "guesses": {}}
    assert not (tmp_path / "nowhere").exists()  # reading makes no folder


def test_an_attempt_is_a_new_text(tmp_path: Path):
    for text, attempts in (("a", 1), ("a", 1), ("b", 2), ("b", 2), ("a", 3)):
        assert progress.record_attempt(tmp_path, "ex01", text, passed=False)["attempts"] == attempts


def test_first_pass_and_best_score_stay(tmp_path: Path):
    first = progress.record_attempt(tmp_path, "ex01", "a", True, {"A100": 0.7})
    progress.record_attempt(tmp_path, "ex01", "b", False, {"A100": 0.99})  # a failure's score counts for nothing
    last = progress.record_attempt(tmp_path, "ex01", "c", True, {"A100": 0.6, "T4": 0.5})
    assert last["passed"] == first["passed"]
    assert last["best"] == {"A100": 0.7, "T4": 0.5}


def test_hints_and_guesses_are_kept(tmp_path: Path):
    progress.record_hint(tmp_path, "ex01", 2)
    progress.record_hint(tmp_path, "ex01", 1)
    progress.record_guess(tmp_path, "how many?", 16)
    progress.record_guess(tmp_path, "how many?", 8)
    data = progress.read(tmp_path)
    assert data["exercises"]["ex01"]["hints"] == 2
    assert data["guesses"] == {"how many?": {"first": 16, "last": 8}}


def test_what_a_newer_version_wrote_is_kept(tmp_path: Path):
    (tmp_path / progress.FILE).write_text('{"version": 1, "exercises": {"ex09": {"medal": "gold"}}, "streak": 7}')
    progress.record_hint(tmp_path, "ex01", 1)
    data = progress.read(tmp_path)
    assert data["streak"] == 7
    assert data["exercises"] == {"ex09": {"medal": "gold"}, "ex01": {"hints": 1}}


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "null", '{"exercises": []}', '{"exercises": {"ex01": 3}}', "\x00\x01", '{"exercises": {}, "guesses": 1}']
)
def test_a_damaged_file_is_set_aside_and_not_lost(tmp_path: Path, damage: str):
    path = tmp_path / progress.FILE
    path.write_text(damage)
    assert progress.read(tmp_path)["exercises"] == {}
    assert path.read_text() == damage  # reading changes nothing
    progress.record_hint(tmp_path, "ex01", 1)
    path.write_text(damage)
    progress.record_hint(tmp_path, "ex01", 3)
    assert (tmp_path / "progress-damaged-1.json").read_text() == damage
    assert (tmp_path / "progress-damaged-2.json").read_text() == damage
    assert progress.read(tmp_path)["exercises"] == {"ex01": {"hints": 3}}


def test_a_file_that_is_not_utf8_is_set_aside(tmp_path: Path):
    (tmp_path / progress.FILE).write_bytes(b"\xff\xfe{}")
    progress.record_hint(tmp_path, "ex01", 1)
    assert (tmp_path / "progress-damaged-1.json").read_bytes() == b"\xff\xfe{}"


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    progress.record_hint(tmp_path, "ex01", 1)
    before = (tmp_path / progress.FILE).read_text()

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        progress.record_hint(tmp_path, "ex01", 3)
    assert (tmp_path / progress.FILE).read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == [progress.FILE]


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: progress.record_guess(tmp_path, f"question {n}", n), range(40)))
    assert len(progress.read(tmp_path)["guesses"]) == 40


def test_the_lock_of_a_dead_process_is_broken(tmp_path: Path):
    lock = tmp_path / (progress.FILE + ".lock")
    lock.touch()
    old = time.time() - 2 * progress.LOCK_STALE_S
    os.utime(lock, (old, old))
    progress.record_hint(tmp_path, "ex01", 1)
    assert not lock.exists()


def test_a_lock_that_is_held_ends_in_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "LOCK_WAIT_S", 0.05)
    (tmp_path / (progress.FILE + ".lock")).touch()
    with pytest.raises(OSError, match="progress.json.lock"):
        progress.record_hint(tmp_path, "ex01", 1)


def test_the_file_is_json_a_person_can_read(tmp_path: Path):
    progress.record_guess(tmp_path, "µs?", 8)
    text = (tmp_path / progress.FILE).read_text()
    assert "µs?" in text
    assert json.loads(text)["version"] == 1
