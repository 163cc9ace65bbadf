"""The reference kernels are clean, at every size, and their sanitized run is right: lightly optimised code computes the same."""

from __future__ import annotations

import numpy as np
import pytest

import solcourse as sol
from solcourse.kernels import cases

SIZES = [pytest.param(c, shape, id=f"{name}-{'x'.join(map(str, shape))}") for name, c in cases().items() for shape in c.shapes]


@pytest.mark.parametrize(("c", "shape"), SIZES)
@pytest.mark.slow
def test_a_reference_kernel_is_clean_and_its_sanitized_run_is_right(c, shape, rng):
    arguments = c.make(rng, *shape)
    expected = c.expected(arguments)
    with sol.use_engine(sanitize=True) as engine:
        c.configured(*shape)(*arguments)
    assert engine.findings == []
    assert c.wrong(arguments, expected) == []


def test_a_reference_kernel_without_its_barriers_is_not_clean():
    """That the test above can fail: the tiled product with both barriers taken out of its text."""
    import inspect
    import linecache
    import textwrap

    from solcourse.kernels import case, matmul

    text = textwrap.dedent(inspect.getsource(case("matmul_tiled_exact").kernel.py_func)).replace("cuda.syncthreads()", "pass")
    name = "<matmul without barriers>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope = dict(vars(matmul))
    exec(compile(text, name, "exec"), scope)
    a = np.ones((64, 64), np.float32)
    found = sol.sanitize(scope["matmul_tiled_exact"][case("matmul_tiled_exact").launch(64, 64, 64)], a, a, np.zeros_like(a))
    assert {f.kind for f in found} >= {"read_after_write", "write_after_read"}
    assert all(f.severity == "error" for f in found)
