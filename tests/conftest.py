"""What every test may use: a launch on the engine, exact line look-up, and one seed."""

from __future__ import annotations

import inspect
import re
import signal

import numpy as np
import pytest

# Kernels that take seconds to compile: of each kind, `make test` takes one, and .ci/run the others too.
HEAVY = (
    "matmul_register_2d_interleaved", "matmul_register_2d_padded", "matmul_register_2d_transposed", "matmul_register_2d",
    "matmul_bias_gelu", "matmul_residual", "matmul_bias_gelu_residual",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        given = re.split(r"[\[\]-]", item.name)[1:]
        if set(given) & set(HEAVY):
            item.add_marker("slow")


@pytest.fixture(autouse=True, scope="session")
def ctrl_c() -> None:
    """Ctrl-C arrives, also in a run that was started in the background, for which a shell has it ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240229)


@pytest.fixture(scope="session")
def launch():
    """launch(kernel[grid, block], *args, **options of engine.execute) -> EngineRun; arrays are written as on a GPU."""
    from solcourse.simt import arguments, engine, frontend

    def run(configured, *args, **options):
        spec = frontend.launch_of(configured)
        kernel = frontend.compile_kernel(spec.dispatcher, frontend.argument_types(spec.dispatcher, args))
        bound = arguments.bind(kernel, args)
        result = engine.execute(kernel, bound, spec.grid, spec.block, spec.dynamic_shared_bytes, **options)
        bound.write_back()
        return result

    return run


@pytest.fixture(scope="session")
def line_of():
    """line_of(kernel, "text") -> the number of the only line of the kernel that contains the text."""

    def find(kernel, text: str) -> int:
        lines, first = inspect.getsourcelines(getattr(kernel, "py_func", kernel))
        found = [first + i for i, line in enumerate(lines) if text in line]
        assert len(found) == 1, f"{text!r} is in {len(found)} lines of the kernel"
        return found[0]

    return find


@pytest.fixture(scope="session")
def counts_at(line_of):
    """counts_at(run, kernel, "text") -> the Counts of that source line, which must have some."""

    def counts(run, kernel, text: str):
        line = line_of(kernel, text)
        found = [entry for entry in run.lines if entry.line == line]
        assert len(found) == 1, f"line {line} has {len(found)} entries among {sorted(entry.line for entry in run.lines)}"
        assert text in found[0].text
        return found[0].counts

    return counts
