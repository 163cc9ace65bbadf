"""Local arrays that are read before they are written: of any element type, through device functions and slices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numba import boolean, complex128, cuda, float32, from_dtype, int8

import solcourse as sol

RECORD = from_dtype(np.dtype([("a", np.int8), ("b", np.float64), ("c", np.float32)], align=True))


@cuda.jit
def of_records(x, out):
    mine = cuda.local.array(3, RECORD)
    t = cuda.grid(1)
    for i in range(3):
        mine[i].a = i
        mine[i].b = x[i]
        mine[i].c = x[i]
    out[t] = mine[t % 3].b + mine[0].a + mine[1].c


@cuda.jit
def of_complex_numbers(x, out):
    mine = cuda.local.array(100, complex128)
    t = cuda.grid(1)
    for i in range(mine.shape[0]):
        mine[i] = x[i % x.size] * 1j
    out[t] = mine[t % 100].imag


@cuda.jit
def of_small_things(x, out):
    mine, flags = cuda.local.array(4, int8), cuda.local.array((2, 3), boolean)
    t = cuda.grid(1)
    for i in range(4):
        mine[i] = i
    flags[0, t % 3] = True
    if flags[0, t % 3]:
        out[t] = mine[t % 4]


@cuda.jit(device=True)
def total(values):
    result = float32(0)
    for i in range(values.size):
        result += values[i]
    return result


@cuda.jit
def through_functions(x, out):
    mine = cuda.local.array(4, float32)
    t = cuda.grid(1)
    for i in range(4):
        mine[i] = x[i]
    out[t] = total(mine) + total(mine[1:3])


@cuda.jit
def in_registers(x, out):
    mine = cuda.local.array((2, 2), float32)
    t = cuda.grid(1)
    for r in range(2):
        for s in range(2):
            mine[r, s] = 0
    for r in range(2):
        for s in range(2):
            mine[r, s] += x[t + 2 * r + s]
    out[t] = mine[0, 0] + mine[1, 1]


@pytest.mark.parametrize(
    "kernel", [of_records, of_complex_numbers, of_small_things, through_functions, in_registers], ids=lambda k: k.py_func.__name__
)
def test_what_is_written_first_is_clean(kernel):
    assert sol.sanitize(kernel[2, 32], np.ones(80), np.zeros(64)) == []


@cuda.jit
def a_field_of_a_record(x, out):
    mine = cuda.local.array(3, RECORD)
    t = cuda.grid(1)
    for i in range(3):
        mine[i].b = x[i]
    out[t] = mine[t % 3].b + mine[t % 3].c  # fault


@cuda.jit
def the_last_complex_number(x, out):
    mine = cuda.local.array(4, complex128)
    t = cuda.grid(1)
    for i in range(3):
        mine[i] = x[i]
    out[t] = mine[x.size % 77].real  # fault: 80 % 77 is 3


@cuda.jit
def sums_not_begun(x, out):
    mine = cuda.local.array((2, 2), float32)
    t = cuda.grid(1)
    for r in range(2):
        for s in range(2):
            mine[r, s] += x[t + 2 * r + s]  # fault
    out[t] = mine[0, 0] + mine[1, 1]


@pytest.mark.parametrize("kernel", [a_field_of_a_record, the_last_complex_number, sums_not_begun], ids=lambda k: k.py_func.__name__)
def test_what_is_not_written_first_is_told(kernel):
    (found,) = sol.sanitize(kernel[2, 32], np.ones(80), np.zeros(64))
    assert (found.kind, found.severity, found.array) == ("uninitialized_read", "warning", "mine")
    lines = [n for n, text in enumerate(Path(__file__).read_text("utf-8").splitlines(), 1) if "# fault" in text]
    first = kernel.py_func.__code__.co_firstlineno
    assert found.line == min(n for n in lines if n > first)
