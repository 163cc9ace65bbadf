"""The microbenchmarks compute what their sources compute: each against NumPy, on a small size; and every published row is accounted for."""

from __future__ import annotations

import numpy as np
import pytest
from numba import float64

from benchmarks.ladders import micro
from benchmarks.ladders.common import left_out, rows

N = 1024


def test_every_published_row_is_an_entry_or_left_out_with_a_reason():
    found = [id(entry.row) for entry in micro.entries()]
    reasons = {id(row) for row, _ in left_out([micro])}
    ladders = {row["ladder"] for row in rows() if id(row) in reasons or id(row) in found}
    assert len(found) == len(set(found))
    for row in (row for row in rows() if row["ladder"] in ladders):
        assert (id(row) in found) + (id(row) in reasons) == 1, f"{row['ladder']}, {row['gpu']}, {row['kernel']}, {row['metric']}"


# ------------------------------------------------------------------------------------------------------------ BabelStream
@pytest.mark.parametrize(
    ("kernel", "written", "formula"),
    [
        (micro.stream_copy, 2, lambda a, b, c: a),
        (micro.stream_mul, 1, lambda a, b, c: 0.4 * c),
        (micro.stream_add, 2, lambda a, b, c: a + b),
        (micro.stream_triad, 0, lambda a, b, c: b + 0.4 * c),
    ],
)
def test_streams(launch, rng, kernel, written, formula):
    arrays = list(rng.standard_normal((3, N)))
    expected = formula(*arrays)
    launch(kernel[4, 256], *arrays)
    np.testing.assert_allclose(arrays[written], expected, rtol=1e-12)


def test_dot(launch, rng):
    a, b = rng.standard_normal((2, 5000))
    sums = np.zeros(2)
    launch(micro.stream_dot[2, micro.DOT_THREADS], a, b, sums, a.size)
    np.testing.assert_allclose(sums.sum(), a @ b, rtol=1e-12)


# ----------------------------------------------------------------------------------------------- bandwidth and occupancy
def test_occupancy_kernels_touch_only_what_lies_inside(launch, rng):
    n = 1000  # of 1024 threads
    b, c = rng.standard_normal((2, N))
    p = np.pad(b, 2)
    expected = {
        "init": (0, n, np.full(N, 0.23)),
        "read": (0, 0, b),
        "scale": (0, n, 1.2 * b),
        "triad": (0, n, 1.2 * b + c),
        "3pt": (1, n - 1, 0.5 * p[1:-3] - b + 0.5 * p[3:-1]),
        "5pt": (2, n - 2, 0.25 * p[:-4] + 0.25 * p[1:-3] - b + 0.5 * p[3:-1] + 0.5 * p[4:]),
    }
    for name, (kernel, _) in micro.OCCUPANCY.items():
        first, last, values = expected[name]
        a = np.full(N, 7.0)
        launch(kernel[8, 128], a, b, c, n)
        np.testing.assert_allclose(a[first:last], values[first:last], rtol=1e-12, err_msg=name)
        assert (np.r_[a[:first], a[last:]] == 7).all(), name


# ---------------------------------------------------------------------------------------------------------------- the rest
@pytest.mark.parametrize("length", [0, 1, 40])
def test_fma_chains(launch, rng, length):
    loads, blocks = 4, 2
    a, b = rng.uniform(0.1, 0.4, (2, blocks, loads, 256)).astype(np.float32)
    v = a - b
    for _ in range(length):
        v = v * a - b
    out = np.zeros(blocks, np.float32)
    launch(micro.fma_chains(length)[blocks, 256], a.ravel(), b.ravel(), out, loads)
    np.testing.assert_allclose(out, v.sum(axis=1)[:, 0], rtol=1e-5)


@pytest.mark.parametrize("ilp", [1, 2, 4, 8])
def test_chains_in_parallel_share_a_fixed_number_of_operations(launch, ilp):
    out = np.zeros(1)
    small = launch(micro.dfma(ilp)[1, 64], 0.32, out, 3)
    assert out[0] == 0.0  # 5 + 0.9^n (x - 5) stays far below the limit
    assert 0 <= small.counts.pipes["fp64"] - 3 * 2 * micro.STEPS <= 3 * 2 * 4 * (ilp + 1)  # beside them what starts and ends a chain
    x = 1e11  # 0.9^128 x 1e11 is above the limit
    launch(micro.dfma(ilp)[1, 32], x, out, 1)
    for _ in range(micro.STEPS // ilp):
        x = x * 0.9 + 0.5
    np.testing.assert_allclose(out[0], x, rtol=1e-8)


def test_divisions_and_roots(launch):
    for kernel, step in ((micro.ddiv, lambda x: 0.1 / (x + 0.2)), (micro.dsqrt, lambda x: np.sqrt(x + 0.2))):
        out, x = np.zeros(32), 0.32 + np.arange(32.0)
        launch(kernel[1, 32], 0.32, out, 1)
        for _ in range(micro.STEPS):
            x = step(x)
        np.testing.assert_allclose(out, x, rtol=1e-12)


@pytest.mark.parametrize("per_thread", [8, 64])
def test_rereading_blocks_add_up_their_column_turn_after_turn(launch, per_thread):
    """Only where the sum is 1233 is anything written."""
    x, out = np.zeros((per_thread, 256)), np.zeros(256)
    x[0, 7], x[-1, 7] = 100.0, 1233 / (1.3 + 1.3**2) - 100  # twice (so far + column) times 1.3
    launch(micro.reread(float64, per_thread)[1, 256], out, x.ravel(), 0, 2)
    np.testing.assert_array_equal(np.flatnonzero(out), [7])
    np.testing.assert_allclose(out[7], 1233)


def test_chases_go_round_the_ring(launch):
    links = micro._ring(4, np.uint64)
    out = np.zeros(32, np.uint64)
    launch(micro.chase[1, 32], links, out, 5)
    assert out[0] == 16 * (1 + 5) % 64
    ring = np.roll(np.arange(32, dtype=np.uint32), -1)  # each to the next
    held = np.zeros(32, np.uint32)
    launch(micro.chase_shared[1, 32], ring, held, 5)
    np.testing.assert_array_equal(held, (np.arange(32) + 5) % 32)


@pytest.mark.parametrize("kind", micro.L1)
def test_l1_patterns_read_the_elements_that_they_should(launch, kind):
    """Only where the sum is 123123.23 is anything written: x is made so that one thread's is, or none's."""
    dtype, strided, in_rows = micro.L1[kind]
    i = np.array(micro.LOADS)
    for kernel, block, first, argument in ((strided, 256, 7 * 2, 7), (in_rows, (8, 32), 3 + 2 * 50 + 50, 50)):
        x = np.zeros(4000, dtype)
        x[first + i] = 0.0
        x[first + i[[0, 9]]] = 1.0, dtype(123123.23)  # v1 = 1, v4 = the constant: the product of both
        out = np.zeros(1024, dtype)
        launch(kernel[1, block], x, out, 0, argument, 1)
        assert out.any(), kernel
