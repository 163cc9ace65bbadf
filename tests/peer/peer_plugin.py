"""A pytest plugin (`-p peer_plugin`): numba-cuda's own tests run on the engine, each against a clock; how each ended goes to a file.

PEER_RESULTS         the file: one JSON object a line, {id, outcome, kind, said, launches, seconds}
PEER_CHOSEN          a file of test names; only these run
PEER_LAUNCHES=none   launches do nothing: what still passes then says nothing about an engine
PEER_LIMIT_S         seconds that one test may take
"""

from __future__ import annotations

import _thread
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT_S = float(os.environ.get("PEER_LIMIT_S", "60"))
GRACE_S = float(os.environ.get("PEER_GRACE_S", "20"))  # to answer Ctrl-C; then the process ends, and xdist starts another
PATIENCE = 5  # times the limit, by the clock
_LATE = pytest.StashKey[bool]()
_launches = 0


def pytest_configure(config: pytest.Config) -> None:
    import solcourse as sol

    active = sol.use_engine()
    execute = active.run

    def counted(spec: object, args: tuple) -> object:
        global _launches
        _launches += 1
        return None if os.environ.get("PEER_LAUNCHES") == "none" else execute(spec, args)

    active.run = counted  # type: ignore[method-assign]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`folder/module.py` chooses all of a module, `folder/module.py::...` one test."""
    if "PEER_CHOSEN" not in os.environ:
        return
    chosen = set(Path(os.environ["PEER_CHOSEN"]).read_text("utf-8").splitlines())
    kept = [item for item in items if {name_of(item.nodeid), name_of(item.nodeid).split("::")[0]} & chosen]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def name_of(nodeid: str) -> str:
    """The name below numba-cuda's folder of tests."""
    return nodeid.removeprefix("numba/cuda/tests/")


@pytest.fixture
def initialize_from_pytest_config(request: pytest.FixtureRequest) -> None:
    """numba-cuda's conftest.py has this; its wheel has no conftest.py."""
    request.instance._dump_failed_filechecks = False


# ------------------------------------------------------------------------------------------------------- against the clock


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Ctrl-C at the limit; where that does not help, the end of this process."""
    global _launches
    _launches = 0
    done = threading.Event()
    threading.Thread(target=_watch, args=(item, done), daemon=True).start()
    try:
        return (yield)
    except KeyboardInterrupt:
        if not item.stash.get(_LATE, False):
            raise
        pytest.fail(_too_long(), pytrace=False)
    finally:
        done.set()


def _watch(item: pytest.Item, done: threading.Event) -> None:
    """By this process's own time, so that a busy machine makes no hang; and by the clock, for a test that only waits."""
    worked, began = time.process_time(), time.monotonic()
    while not done.wait(0.1):
        if time.process_time() - worked > LIMIT_S or time.monotonic() - began > PATIENCE * LIMIT_S:
            break
    else:
        return
    item.stash[_LATE] = True
    _thread.interrupt_main()
    if not done.wait(GRACE_S):
        _write(item.nodeid, "failed", "hang", f"{_too_long()}, with its process", _launches, LIMIT_S)
        os._exit(3)


def _too_long() -> str:
    return f"stopped after {LIMIT_S:.0f} s of work, or {PATIENCE * LIMIT_S:.0f} s in all"


# ----------------------------------------------------------------------------------------------------------- how each ended


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        kind = "hang" if item.stash.get(_LATE, False) else call.excinfo.typename
        report.user_properties += [("kind", kind), ("said", str(call.excinfo.value))]
    report.user_properties.append(("launches", _launches))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the process that collects reports. A report of set-up or tear-down matters only where it failed or skipped."""
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when in ("setup", "teardown") and report.passed):
        return
    told = dict(report.user_properties)
    outcome = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
    crashed = report.failed and not told
    said = told.get("said") or (report.longreprtext if report.failed else str(report.longrepr or ""))
    _write(report.nodeid, outcome, "crash" if crashed else told.get("kind", ""), said, told.get("launches", 0), report.duration)


def _write(nodeid: str, outcome: str, kind: str, said: str, launches: int, seconds: float) -> None:
    line = {"id": name_of(nodeid), "outcome": outcome, "kind": kind, "said": said, "launches": launches, "seconds": round(seconds, 2)}
    with open(os.environ["PEER_RESULTS"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
