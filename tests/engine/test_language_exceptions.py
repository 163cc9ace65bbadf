"""Exceptions in kernels: raised at the launch with debug=True, as numba does it; without, the thread ends and the rest goes on."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda


class TooLarge(Exception):
    pass


def debugging(function):
    return cuda.jit(debug=True, opt=False)(function)


def raises_above(x, limit):
    i = cuda.grid(1)
    if x[i] > limit:
        raise TooLarge("larger than the limit", 42)
    x[i] += 1


def test_an_exception_reaches_the_launch_with_thread_and_line(launch, line_of):
    x = np.arange(256.0)
    kernel = debugging(raises_above)
    with pytest.raises(TooLarge) as caught:
        launch(kernel[8, 32], x, 70)
    message, number = caught.value.args
    assert "tid=[0, 0, 7] ctaid=[0, 0, 2]" in message  # 71 = 2 * 32 + 7, as [z, y, x]
    assert f"line {line_of(raises_above, 'raise TooLarge')}" in message
    assert message.endswith(": larger than the limit")
    assert number == 42


def test_the_other_threads_finish(launch):
    x = np.arange(256.0)
    with pytest.raises(TooLarge):
        launch(debugging(raises_above)[8, 32], x, 70)
    np.testing.assert_array_equal(x, np.where(np.arange(256) > 70, np.arange(256), np.arange(256) + 1))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_first_block_and_thread_are_named_whatever_the_number_of_threads(launch, threads):
    x = np.full(32 * 500, 99.0)
    x[: 32 * 300 + 5] = 0
    with pytest.raises(TooLarge, match=r"tid=\[0, 0, 5\] ctaid=\[0, 0, 300\]"):
        launch(debugging(raises_above)[500, 32], x, 70, threads=threads)


def test_a_launch_after_one_that_raised_is_clean(launch):
    kernel = debugging(raises_above)
    with pytest.raises(TooLarge):
        launch(kernel[1, 32], np.full(32, 99.0), 70)
    x = np.zeros(32)
    launch(kernel[1, 32], x, 70)
    assert np.all(x == 1)


def test_without_debug_the_thread_ends_and_nothing_is_raised(launch):
    x = np.arange(256.0)
    launch(cuda.jit(raises_above)[8, 32], x, 70)
    np.testing.assert_array_equal(x, np.where(np.arange(256) > 70, np.arange(256), np.arange(256) + 1))


def test_thread_coordinates_in_three_dimensions(launch):
    @debugging
    def kernel():
        if cuda.threadIdx.x == 1 and cuda.threadIdx.y == 2 and cuda.threadIdx.z == 3 and cuda.blockIdx.y == 1:
            raise ValueError

    with pytest.raises(ValueError, match=r"tid=\[3, 2, 1\] ctaid=\[0, 1, 0\]"):
        launch(kernel[(2, 2), (4, 4, 4)])


def test_a_failed_assertion(launch):
    scope = {"cuda": cuda}  # pytest rewrites the assertions of this file
    exec('def kernel(x):\n    i = cuda.grid(1)\n    assert x[i] >= 0, "negative"\n    x[i] = 7\n', scope)
    kernel = debugging(scope["kernel"])
    x = np.zeros(32)
    launch(kernel[1, 32], x)
    assert np.all(x == 7)
    x[9] = -1
    with pytest.raises(AssertionError, match=r"tid=\[0, 0, 9\].*negative"):
        launch(kernel[1, 32], x)


@pytest.mark.parametrize("t", [np.int32, np.int64, np.float64])
@pytest.mark.parametrize("operator", ["//", "%", "/"])
def test_division_by_zero_raises_under_debug_only(launch, t, operator):
    scope = {"cuda": cuda}
    exec(f"def kernel(x, y, out):\n    i = cuda.grid(1)\n    out[i] = x[i] {operator} y[i]\n", scope)
    x, y, out = np.full(32, 6, t), np.full(32, 3, t), np.zeros(32)
    y[4] = 0
    launch(cuda.jit(scope["kernel"])[1, 32], x, y, out)  # numba's rule without debug: NumPy's, whatever that is for zero
    np.testing.assert_array_equal(np.delete(out, 4), 2 if operator != "%" else 0)
    with pytest.raises(ZeroDivisionError, match=r"tid=\[0, 0, 4\]"):
        launch(debugging(scope["kernel"])[1, 32], x, y, out)


def test_an_exception_in_a_device_function(launch):
    @cuda.jit(device=True, debug=True, opt=False)
    def checked(v):
        if v == 3:
            raise IndexError("three")
        return v * 2

    @debugging
    def kernel(x):
        i = cuda.grid(1)
        x[i] = checked(x[i])

    x = np.arange(8)
    with pytest.raises(SystemError, match=r"tid=\[0, 0, 3\].*unknown error 1"):  # what numba says: it forgets a device function's
        launch(kernel[1, 8], x)
    assert x.tolist() == [0, 2, 4, 3, 8, 10, 12, 14]


def test_threads_that_raised_are_not_waited_for_at_a_barrier(launch):
    @debugging
    def kernel(x):
        i = cuda.grid(1)
        if i % 2:
            raise ValueError("odd")
        cuda.syncthreads()
        x[i] = 1

    x = np.zeros(64)
    with pytest.raises(ValueError, match=r"tid=\[0, 0, 1\]"):
        launch(kernel[1, 64], x)
    np.testing.assert_array_equal(x, 1 - np.arange(64) % 2)
