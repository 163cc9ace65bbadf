"""Planted faults: each is found, of the right kind, at its lines and nowhere else; the corrected twin computes, and is not accused."""

from __future__ import annotations

import numpy as np
import planted
import planted_barriers
import planted_global
import planted_init
import planted_memory
import planted_races
import pytest

import solcourse as sol

FILES = (planted_barriers, planted_global, planted_init, planted_memory, planted_races)
CASES = planted.CASES
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def engine():
    """Some cases are about cuda.device_array. Launches are sanitized on the arrays themselves."""
    with sol.use_engine(sanitize=True) as engine:
        yield engine


def fresh(case: planted.Case) -> tuple[tuple, list]:
    """Arguments of the twin, and host copies of them."""
    args = case.twin_args()
    return args, [a.copy_to_host() if hasattr(a, "copy_to_host") else np.copy(a) for a in args]


@each_case
@pytest.mark.slow
def test_the_twin_of_a_fault_is_not_accused_and_computes_what_numpy_does(engine, case: planted.Case):
    args, before = fresh(case)
    case.launch(case.corrected)(*args)
    assert [(f.kind, f.line, f.message) for f in engine.findings] == []
    last = args[-1]
    got = last.copy_to_host() if hasattr(last, "copy_to_host") else last
    expected = np.broadcast_to(case.expect(*before), got.shape)
    if got.dtype.kind in "fc":
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    else:
        np.testing.assert_array_equal(got, expected)


def test_every_case_has_a_name_a_twin_and_marked_lines():
    assert len(CASES) >= 120
    assert {case.faulty.py_func.__module__ for case in CASES} == {file.__name__ for file in FILES}
    assert len({case.name for case in CASES}) == len(CASES)
    assert [case.name for case in CASES if not case.marked or case.corrected is None] == []


@each_case
def test_a_planted_fault_is_found_at_its_lines_and_nowhere_else(case: planted.Case):
    findings = sol.sanitize(case.launch(case.faulty), *case.args())
    told = "\n".join(f"{f.kind} {f.severity} lines {f.line}, {f.other_line} {f.array!r}: {f.message}" for f in findings)
    pairs = [{f.line, f.other_line if f.other_line is not None else f.line} for f in findings]
    assert {f.kind for f in findings} <= set(case.kinds), told
    assert {f.severity for f in findings} == {case.severity}, told
    assert {f.array for f in findings} <= set(case.arrays), told
    assert set().union(*pairs) == case.marked, f"marked are {sorted(case.marked)}\n{told}"
    for f in findings:
        assert f.hint, told
        if f.kind in planted.HAZARDS:
            assert None not in (f.thread, f.block, f.other_thread, f.other_block, f.other_line), told
            assert (f.thread, f.block) != (f.other_thread, f.other_block), told
            assert f.element, told
    if len(case.marked) == 2 and set(case.kinds) <= set(planted.HAZARDS):
        assert case.marked in pairs, told
