"""Recursive device functions give Python's results; recursion without end is an error that names its line, never a crash."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, int64

import solcourse as sol
from solcourse.errors import KernelTypeError, OutOfBounds


@cuda.jit(device=True)
def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


@cuda.jit(device=True)
def ackermann(m, n):
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, m - m + 1)  # numba's recursion keeps its argument types, and a literal is one of its own
    return ackermann(m - 1, ackermann(m, n - 1))


@cuda.jit(device=True)
def tree_sum(values, root, scale):
    if root >= values.size:
        return 0.0
    left = tree_sum(values, 2 * root + 1, scale * 0.5)
    right = tree_sum(values, 2 * root + 2, scale * 0.25)
    return values[root] * scale + left + right


@cuda.jit(device=True)
def quicksort(x, low, high):
    if low >= high:
        return 0
    pivot = x[(low + high) // 2]
    i, j = low, high
    while i <= j:
        while x[i] < pivot:
            i += 1
        while x[j] > pivot:
            j -= 1
        if i <= j:
            x[i], x[j] = x[j], x[i]
            i += 1
            j -= 1
    return 1 + quicksort(x, low, j) + quicksort(x, i, high)


@cuda.jit(device=True)
def with_local_array(n):
    if n == 0:
        return 1
    mine = cuda.local.array(4, int64)
    for k in range(4):
        mine[k] = n * 10 + k
    below = with_local_array(n - 1)
    return below + mine[n % 4] - n * 10  # mine must be what it was before the call


@cuda.jit(device=True)
def endless(n):
    if n == -1:
        return 0
    return endless(n + 1) + n % 3


@pytest.mark.parametrize("counters", [True, False])
def test_fibonacci_where_every_lane_has_its_own_depth(launch, counters):
    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        x[i] = fibonacci((i * 7) % 13)

    x = np.zeros(96, np.int64)
    launch(kernel[3, 32], x, counters=counters)
    table = [0, 1]
    for _ in range(12):
        table.append(table[-1] + table[-2])
    assert x.tolist() == [table[(i * 7) % 13] for i in range(96)]


def test_ackermann_whose_argument_is_a_call_of_itself(launch):
    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        x[i] = ackermann(i // 5, i % 5)

    x = np.zeros(15, np.int64)
    launch(kernel[1, 15], x)
    assert x.tolist() == [1, 2, 3, 4, 5, 2, 3, 4, 5, 6, 3, 5, 7, 9, 11]  # n + 1, n + 2, 2 n + 3


def test_arrays_are_reached_from_every_depth(launch, rng):
    @cuda.jit
    def kernel(values, out):
        i = cuda.grid(1)
        out[i] = tree_sum(values, i, 1.0)

    values, out = rng.random(31), np.zeros(31)
    launch(kernel[1, 31], values, out)

    def expected(root, scale):
        if root >= 31:
            return 0.0
        return values[root] * scale + expected(2 * root + 1, scale * 0.5) + expected(2 * root + 2, scale * 0.25)

    np.testing.assert_allclose(out, [expected(i, 1.0) for i in range(31)], rtol=1e-14)


def test_recursive_quicksort_of_rows(launch, rng):
    @cuda.jit
    def kernel(x, calls):
        i = cuda.grid(1)
        calls[i] = quicksort(x[i], i - i, x.shape[1] - 1)

    x = rng.integers(0, 1000, (40, 37))
    wanted = np.sort(x, axis=1)
    calls = np.zeros(40, np.int64)
    launch(kernel[2, 20], x, calls)
    np.testing.assert_array_equal(x, wanted)
    assert calls.min() > 10


def test_local_arrays_belong_to_one_call(launch):
    """1 + sum of n % 4 for n up to i."""

    @cuda.jit
    def kernel(out):
        i = cuda.grid(1)
        out[i] = with_local_array(i)

    out = np.zeros(20, np.int64)
    launch(kernel[1, 20], out)
    assert out.tolist() == [1 + sum(n % 4 for n in range(1, i + 1)) for i in range(20)]


def test_two_recursive_functions_called_in_a_loop_with_barriers(launch):
    @cuda.jit
    def kernel(out):
        i = cuda.grid(1)
        shared = cuda.shared.array(64, int64)
        total = 0
        for k in range(4):
            shared[i] = fibonacci((i + k) % 9)
            cuda.syncthreads()
            total += shared[63 - i] + ackermann(i // 64 + 1, k)
            cuda.syncthreads()
        out[i] = total

    out = np.zeros(64, np.int64)
    launch(kernel[1, 64], out)
    table = [0, 1, 1, 2, 3, 5, 8, 13, 21]
    assert out.tolist() == [sum(table[(63 - i + k) % 9] + k + 2 for k in range(4)) for i in range(64)]


def test_recursion_without_end_names_its_line_and_leaves_the_process_alive(launch, line_of):
    @cuda.jit
    def kernel(x, start):
        x[cuda.grid(1)] = endless(start)

    with pytest.raises(OutOfBounds, match="too deep") as caught:
        launch(kernel[4, 64], np.zeros(256, np.int64), 0)
    assert caught.value.finding.kind == "stack_overflow"
    assert caught.value.line == line_of(endless, "return endless(n + 1)")
    x = np.ones(256, np.int64)
    launch(kernel[4, 64], x, -1)
    assert np.all(x == 0)


def test_frames_are_traffic_in_local_memory(launch):
    """On a GPU too a recursion keeps its frames in local memory."""

    @cuda.jit
    def kernel(x, n):
        x[cuda.grid(1)] = fibonacci(n)

    run = launch(kernel[1, 32], np.zeros(32, np.int64), 5)
    assert run.counts.local_store.requests >= 15  # calls of fibonacci(5): 15
    assert run.counts.local_load.requests >= 15
    advice = [a for a in sol.profile(kernel[1, 32], np.zeros(32, np.int64), 5).advice if a.kind == "local_memory"]
    assert [("calls itself" in a.text, "local array" in a.text) for a in advice] == [(True, False)]


def test_what_numba_cannot_compile_is_said_in_words(launch):
    @cuda.jit(device=True)
    def down(n):
        if n == 0:
            return 0
        return down(n - 1) + 1

    @cuda.jit
    def kernel(x):
        x[0] = down(5)

    with pytest.raises(KernelTypeError, match="only with the argument types it was called with"):
        launch(kernel[1, 1], np.zeros(1))
