"""The peer suite's own rules: what counts as passed, what is printed, and when it fails. None of numba-cuda's tests run here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter

import pytest

from tests.peer import peer_suite


def line(name: str, outcome: str, kind: str = "", said: str = "", launches: int = 1) -> str:
    return json.dumps({"id": name, "outcome": outcome, "kind": kind, "said": said, "launches": launches, "seconds": 0.1})


def test_a_listed_test_that_did_not_run_has_failed():
    (only,) = peer_suite.read([], ["cudapy/test_x.py::test_gone"])
    assert (only.passed, only.kind) == (False, "missing")


def test_a_skipped_or_expectedly_failing_test_has_not_passed():
    lines = [line("a::skips", "skipped"), line("a::fails", "xfailed")]
    assert [o.kind for o in peer_suite.read(lines, ["a::skips", "a::fails"])] == ["skipped", "xfailed"]
    assert not any(o.passed for o in peer_suite.read(lines, ["a::skips", "a::fails"]))


def test_the_first_failure_of_a_test_outlives_a_later_success():
    """A subtest fails, the test around it reports too; a worker that was ended reports once more as crashed."""
    lines = [line("a::t", "passed"), line("a::t", "failed", "hang", "stopped"), line("a::t", "failed", "crash"), line("a::t", "passed")]
    (only,) = peer_suite.read(lines, ["a::t"])
    assert (only.passed, only.kind, only.said) == (False, "hang", "stopped")


def test_the_report_groups_failures_and_ends_with_the_one_line():
    lines = [line("a::one", "failed", "TypeError", "no\nmore"), line("a::two", "failed", "TypeError", "why"), line("a::three", "passed")]
    text = peer_suite.report(peer_suite.read(lines, ["a::one", "a::two", "a::three"]), {"a::two": "a GPU does not see it"})
    assert text.splitlines() == [
        "TypeError: 2",
        "  a::one  TypeError: no",
        "    NEW",
        "  a::two  TypeError: why",
        "    known: a GPU does not see it",
        "peer suite: 1 passed of 3",
    ]


def hundred(passed: int, missing: int = 0) -> list[peer_suite.Outcome]:
    failed = [peer_suite.Outcome("a::f", False, "TypeError")] * (100 - passed - missing)
    return [peer_suite.Outcome("a::p", True)] * passed + failed + [peer_suite.Outcome("a::m", False, "missing")] * missing


@pytest.mark.parametrize(("passed", "status"), [(89, 1), (90, 0), (91, 0)])
def test_fewer_than_recorded_is_a_failure(passed, status, capsys):
    assert peer_suite.verdict(hundred(passed), 90, same_version=True) == status
    assert ("1 fewer" in capsys.readouterr().err) == bool(status)


@pytest.mark.parametrize(
    ("passed", "missing", "same_version", "status"), [(86, 4, False, 0), (86, 4, True, 1), (84, 6, False, 1), (85, 4, False, 1)]
)
def test_another_version_may_lack_a_few_tests_and_no_more(passed, missing, same_version, status):
    """100 tests, 90 recorded: 5 may be gone."""
    assert peer_suite.verdict(hundred(passed, missing), 90, same_version) == status


def test_the_list_and_the_record_fit_each_other():
    names = peer_suite.listed()
    record = tomllib.loads((peer_suite.HERE / "recorded.toml").read_text("utf-8"))
    assert len(names) > 600
    assert [name for name, n in Counter(names).items() if n > 1] == []
    assert all(re.fullmatch(r"(cudapy|doc_examples)/test_\w+\.py(::\w+)+", name) for name in names)
    assert set(record["known_failures"]) <= set(names)
    assert record["passed"] + len(record["known_failures"]) == len(names)
    assert all(record["known_failures"].values())


PLANTED = """
import os
import signal
import time
import unittest
from unittest import TestCase

import numpy as np
from numba import cuda


@cuda.jit
def add_one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


def setUpModule():
    add_one[1, 32](np.zeros(3))  # compiling it is not against the clock


class Planted(TestCase):
    def test_passes(self):
        x = np.zeros(3)
        add_one[1, 32](x)
        self.assertEqual(x.sum(), 3)

    def test_fails(self):
        self.assertEqual(1, 2)

    def test_fails_in_a_subtest(self):
        for n in range(2):
            with self.subTest(n=n):
                self.assertEqual(n, 0)

    def test_works_for_ever(self):
        while True:
            pass

    def test_waits_and_hears_nothing(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(600)

    def test_ends_the_process(self):
        os._exit(1)

    @unittest.skip("today")
    def test_skips(self): ...
"""


@pytest.mark.slow
def test_hangs_crashes_and_failures_end_as_such_and_the_rest_still_runs(tmp_path):
    (tmp_path / "test_planted.py").write_text(PLANTED)
    results = tmp_path / "results.jsonl"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(peer_suite.ROOT), str(peer_suite.HERE)]),
        "PEER_RESULTS": str(results),
        "PEER_LIMIT_S": "2",
        "PEER_GRACE_S": "1",
    }
    environment.pop("PYTEST_XDIST_WORKER", None)  # of this test's own run
    settings = ["-c", peer_suite.HERE / "peer.ini", "--rootdir", tmp_path, "-n", "1", "--max-worker-restart", "9"]
    command = [sys.executable, "-m", "pytest", "-p", "peer_plugin", *settings, "."]
    subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=400, check=False)
    names = [f"test_planted.py::Planted::test_{name}" for name in (
        "passes", "fails", "fails_in_a_subtest", "works_for_ever", "waits_and_hears_nothing", "ends_the_process", "skips",
    )]  # fmt: skip
    ended = peer_suite.read(results.read_text("utf-8").splitlines(), names)
    assert [outcome.kind for outcome in ended] == ["", "AssertionError", "AssertionError", "hang", "hang", "crash", "skipped"]
    assert [outcome.passed for outcome in ended] == [True, *6 * [False]]
    assert [outcome.launches for outcome in ended] == [1, *6 * [0]]
