"""Views made in kernels: reshape takes NumPy's strides, or is numba's error where NumPy would copy."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float64

SHAPES = [
    ((12,), (3, 4)),
    ((3, 4), (12, 1)),
    ((3, 4), (2, 6)),
    ((2, 3, 4), (6, 4)),
    ((2, 3, 4), (2, 12)),
    ((1, 12, 1), (4, 3)),
    ((24,), (2, 12)),
]


@pytest.mark.parametrize(("old", "new"), SHAPES)
def test_reshape_gives_numpys_elements_without_a_copy(launch, old, new):
    @cuda.jit
    def kernel(x, out):
        i, j = cuda.grid(2)
        view = x.reshape(new)
        out[i, j] = view[i, j]
        view[i, j] = -view[i, j]

    x = np.arange(1.0, np.prod(old) + 1).reshape(old)
    before, out = x.copy(), np.zeros(new)
    launch(kernel[1, new], x, out)
    np.testing.assert_array_equal(out, before.reshape(new))
    np.testing.assert_array_equal(x, -before)


def test_a_fortran_array_is_reshaped_in_fortran_order(launch):
    """numba's rule, and NumPy's reshape(order="F")."""

    @cuda.jit
    def kernel(x, out):
        i, j = cuda.grid(2)
        out[i, j] = x.reshape((2, 12))[i, j]

    x, out = np.asfortranarray(np.arange(24.0).reshape(4, 6)), np.zeros((2, 12))
    launch(kernel[1, (2, 12)], x, out)
    np.testing.assert_array_equal(out, x.reshape((2, 12), order="F"))


def test_an_impossible_reshape_raises_under_debug(launch):
    @cuda.jit(debug=True, opt=False)
    def kernel(x, out, n):
        out[0] = x.reshape(n, 3)[0, 0]

    launch(kernel[1, 1], np.arange(12.0), np.zeros(1), 4)
    with pytest.raises(NotImplementedError, match=r"tid=\[0, 0, 0\]"):
        launch(kernel[1, 1], np.arange(12.0), np.zeros(1), 5)


def test_lanes_of_both_branches_see_their_own_active_mask(launch):
    """The same call in both branches of an if stays two calls."""

    @cuda.jit
    def kernel(out):
        i = cuda.grid(1)
        if i % 2:
            out[i] = cuda.activemask()
        else:
            out[i] = cuda.activemask()

    out = np.zeros(32, np.uint32)
    launch(kernel[1, 32], out)
    assert out.tolist() == [0x55555555, 0xAAAAAAAA] * 16


@pytest.mark.parametrize("counters", [True, False])
def test_a_view_that_is_a_local_a_shared_or_a_global_array_by_lane(launch, counters):
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        mine, tile = cuda.local.array(4, float64), cuda.shared.array(4, float64)
        for k in range(4):
            mine[k] = 100 * i + k
        if i < 4:
            tile[i] = -i
        cuda.syncthreads()
        view = mine
        if i % 3 == 1:
            view = tile
        elif i % 3 == 2:
            view = x
        out[i, 0] = view[i % 4]
        if i % 3 != 1:
            view[3 - i // 8] = 0.5 + i  # lanes of one array write different elements, or their own array
        out[i, 1] = view[3 - i // 8]

    x, out = np.array([7.0, 8, 9, 10]), np.zeros((32, 2))
    launch(kernel[1, 32], x, out, counters=counters)
    i = np.arange(32)
    first = np.select([i % 3 == 0, i % 3 == 1], [100 * i + i % 4, -(i % 4)], 7 + i % 4)
    np.testing.assert_array_equal(out[:, 0], first)
    np.testing.assert_array_equal(out[i % 3 == 0, 1], 0.5 + i[i % 3 == 0])
    assert set(x) <= {0.5 + k for k in range(2, 32, 3)}
