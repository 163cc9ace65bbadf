"""Every reference kernel, in every dtype it takes, at regular and odd sizes, against NumPy; and the judge itself."""

from __future__ import annotations

import numpy as np
import pytest

from solcourse.errors import UnknownName
from solcourse.kernels import TOPICS, case, cases

CASES = cases()
RUNS = [(name, shape, dtype) for name, c in CASES.items() for shape in c.shapes for dtype in c.dtypes]


def label(value) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("name", "shape", "dtype"), RUNS, ids=label)
def test_kernel_equals_numpy(launch, rng, name, shape, dtype):
    c = CASES[name]
    arguments = c.make(rng, *shape, dtype=dtype)
    before = [np.copy(a) for a in arguments]
    expected = c.expected(arguments)
    launch(c.configured(*shape), *arguments)
    assert c.wrong(arguments, expected) == []
    for position, argument in enumerate(arguments):
        if position not in c.outputs:
            np.testing.assert_array_equal(argument, before[position], err_msg=f"input {position} was changed")


@pytest.mark.parametrize("name", CASES)
def test_kernel_writes_nothing_beside_its_outputs(launch, rng, name):
    """Every array lies between guard zones; a kernel that is right at an odd size leaves them alone."""
    c = CASES[name]
    shape, guard = c.shapes[-1], 64
    arguments, zones = [], []
    for argument in c.make(rng, *shape):
        if isinstance(argument, np.ndarray):
            buffer = np.full(argument.size + 2 * guard, 77, argument.dtype)
            inner = buffer[guard : guard + argument.size].reshape(argument.shape)
            inner[...] = argument
            zones += [buffer[:guard], buffer[guard + argument.size :]]
            argument = inner
        arguments.append(argument)
    expected = c.expected(tuple(arguments))
    launch(c.configured(*shape), *arguments)
    assert c.wrong(tuple(arguments), expected) == []
    assert zones
    for zone in zones:
        assert (zone == 77).all()


@pytest.mark.parametrize("name", CASES)
def test_kernel_without_counters_gives_the_same_output(launch, rng, name):
    c = CASES[name]
    shape = c.shapes[-1]
    counted = c.make(np.random.default_rng(5), *shape)
    plain = c.make(np.random.default_rng(5), *shape)
    launch(c.configured(*shape), *counted)
    launch(c.configured(*shape), *plain, counters=False)
    for position in c.outputs:
        assert counted[position].tobytes() == plain[position].tobytes()


@pytest.mark.parametrize("name", CASES)
def test_untouched_output_is_judged_wrong(rng, name):
    c = CASES[name]
    arguments = c.make(rng, *c.shapes[-1])
    assert len(c.wrong(arguments, c.expected(arguments))) == len(c.outputs)


def test_one_wrong_element_is_found_and_located(rng):
    c = case("vector_add")
    x, y, out = c.make(rng, 100)
    expected = c.expected((x, y, out))
    out[:] = x + y
    assert c.wrong((x, y, out), expected) == []
    out[37] += 1
    (complaint,) = c.wrong((x, y, out), expected)
    assert "vector_add" in complaint
    assert "[37]" in complaint


def test_every_topic_has_a_ladder_and_every_kernel_says_what_it_shows():
    assert sum(len(cases(topic)) for topic in TOPICS) == len(CASES) > 30
    for name, c in CASES.items():
        assert c.name == name
        assert c.kernel.py_func.__doc__
        assert c.work(*c.shapes[0]).compulsory_bytes > 0


@pytest.mark.parametrize(("ask", "wrong"), [(cases, "transposition"), (case, "transpose_paded")])
def test_unknown_name_offers_the_nearest(ask, wrong):
    with pytest.raises(UnknownName, match="Did you mean 'transpose"):
        ask(wrong)


@pytest.mark.parametrize("name", CASES)
def test_work_counts_every_array_once(rng, name):
    """Compulsory bytes = the bytes of every array, once (outputs that are added into: twice), where all of it is used."""
    c = CASES[name]
    shape = c.shapes[0]
    arguments = c.make(rng, *shape)
    expected = sum(a.nbytes for a in arguments if isinstance(a, np.ndarray))
    if name == "copy_strided":  # a third of src is used: 3*n*4 + n*4 becomes n*4 + n*4
        expected -= 2 * 4 * shape[0]
    if name in ("copy_offset", "add_offsets"):  # the first element of src is not used; nor the total of the last block
        expected -= 4
    if name == "field_aos" or name == "field_soa":  # one field of three
        expected -= 2 * 4 * shape[0]
    if name.startswith("histogram"):  # the bins are read and written
        expected += 4 * 256
    if name.startswith("reduce"):  # the operation has one result, whatever partial sums a kernel leaves
        expected += 4 - arguments[1].nbytes
    assert c.work(*shape).compulsory_bytes == expected
