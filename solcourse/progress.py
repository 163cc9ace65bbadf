"""A learner's progress: one JSON file, exercises/mine/progress.json. The definition of its format.

    {"version": 1,
     "exercises": {"ex01": {"attempts": 3, "last": "9f2c...", "passed": "2026-03-01T10:00:00", "hints": 1, "best": {"A100...": 0.81}}},
     "guesses": {"Sectors per request, float64 copy?": {"first": 16, "last": 8}}}

Nothing a learner did is lost: the file is replaced in one step, by one process at a time; keys this version does not know are kept; a file
that cannot be read is set aside under another name, never overwritten.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

FILE = "progress.json"
LOCK_WAIT_S = 2.0  # how long one process waits for another; far more than a write takes
LOCK_STALE_S = 30.0  # a lock this old belongs to a process that died


def read(folder: Path) -> dict[str, Any]:
    """The progress kept in a folder; fresh where there is none or it cannot be read."""
    return _read(folder / FILE) or _fresh()


def update(folder: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Applies `change` to the progress in a folder, in place, and keeps the result. Returns it. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    with _alone(folder / (FILE + ".lock")):
        data = _read(path)
        if data is None:
            if path.exists():
                path.replace(_free_name(folder))
            data = _fresh()
        change(data)
        _replace(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return data


def record_attempt(folder: Path, name: str, source: str, passed: bool, scores: dict[str, float] | None = None) -> dict[str, Any]:
    """One check of an exercise. The same text again is no new attempt. scores: predicted sol_score by device, kept when best.

    Returns the exercise's entry. Raises OSError.
    """
    fingerprint = hashlib.sha256(source.encode()).hexdigest()[:16]

    def change(data: dict[str, Any]) -> None:
        entry = data["exercises"].setdefault(name, {})
        if entry.get("last") != fingerprint:
            entry["attempts"] = int(entry.get("attempts", 0)) + 1
            entry["last"] = fingerprint
        if passed:
            entry.setdefault("passed", datetime.now().isoformat(timespec="seconds"))
            best = entry.setdefault("best", {})
            for device, score in (scores or {}).items():
                best[device] = max(score, best.get(device, 0.0))

    return update(folder, change)["exercises"][name]


def record_hint(folder: Path, name: str, number: int) -> None:
    """The learner read hint `number` (1, 2, 3) of an exercise. Raises OSError."""

    def change(data: dict[str, Any]) -> None:
        entry = data["exercises"].setdefault(name, {})
        entry["hints"] = max(number, int(entry.get("hints", 0)))

    update(folder, change)


def record_guess(folder: Path, question: str, answer: object) -> None:
    """The learner's first and last answer to a question asked before a result. Raises OSError."""

    def change(data: dict[str, Any]) -> None:
        entry = data.setdefault("guesses", {}).setdefault(question, {"first": answer})
        entry["last"] = answer

    update(folder, change)


def _fresh() -> dict[str, Any]:
    return {"version": 1, "exercises": {}, "guesses": {}}


def _read(path: Path) -> dict[str, Any] | None:
    """The file's content; None where there is none or it is damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    tables = [data.get("exercises"), data.get("guesses", {})] if isinstance(data, dict) else [None]
    sound = all(isinstance(table, dict) and all(isinstance(entry, dict) for entry in table.values()) for table in tables)
    return data if sound else None


def _free_name(folder: Path) -> Path:
    return next(name for n in range(1, 10_000) if not (name := folder / f"progress-damaged-{n}.json").exists())


def _replace(path: Path, text: str) -> None:
    """Writes a file in one step: a reader sees the old text or the new one, whatever happens meanwhile."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".progress-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Holds a lock file: works on every system and on network mounts. A dead process's lock is broken."""
    started = time.monotonic()
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            try:
                stale = time.time() - lock.stat().st_mtime > LOCK_STALE_S
            except FileNotFoundError:
                continue
            if stale:
                lock.unlink(missing_ok=True)
            elif time.monotonic() - started > LOCK_WAIT_S:
                raise TimeoutError(f"{lock} is held by another process; delete it if there is none") from None
            time.sleep(0.01)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
