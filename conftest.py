"""What holds for every test run: learners' work is out of reach, and a test that must run may not skip.

SOLCOURSE_MUST_RUN="nvvm browser" (set in CI) turns a skip in tests of these marks into a failure.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
MUST_RUN = frozenset(os.environ.get("SOLCOURSE_MUST_RUN", "").split())

# Before anything imports numba: the simulator would replace numba.cuda in every test.
os.environ.pop("NUMBA_ENABLE_CUDASIM", None)
# For the processes that tests start, the kernels of notebooks among them.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def pytest_configure(config: pytest.Config) -> None:
    """Stubs are copied into, and progress is written to, a folder of this run: never exercises/mine."""
    folder = tempfile.mkdtemp(prefix="solcourse-mine-")
    os.environ["SOLCOURSE_MINE"] = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # a worker of pytest-xdist runs no other clean-up


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.parent.name
        if item.path.is_relative_to(ROOT / "tests") and folder in ("browser", "gpu"):
            item.add_marker(folder)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("nvvm") and not has_nvvm():
        pytest.skip("NVIDIA's compiler is not installed: pip install 'numba-cuda[cu13]' (no GPU needed)")


def has_nvvm() -> bool:
    """True where numba-cuda and NVVM are installed. Neither needs a GPU."""
    if importlib.util.find_spec("numba_cuda") is None or importlib.util.find_spec("cuda") is None:
        return False
    from cuda.pathfinder import load_nvidia_dynamic_lib

    try:
        load_nvidia_dynamic_lib("nvvm")
    except Exception:  # pathfinder has an error of its own for each way of not finding it
        return False
    return True


def may_not_skip(marks: set[str], must_run: frozenset[str] = MUST_RUN) -> set[str]:
    return marks & must_run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    broken = may_not_skip({mark.name for mark in item.iter_markers()})
    if report.skipped and broken and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and {', '.join(sorted(broken))} tests must run here: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    if report.skipped and may_not_skip({collector.path.parent.name}):
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped as a whole, and must run here: {report.longrepr}"
    return report
