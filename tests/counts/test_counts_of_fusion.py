"""Fusing element-wise kernels never adds compulsory bytes, and saves a write and a read of what is passed on."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import solcourse as sol

N = 1 << 16


@cuda.jit
def double(x, y):
    i = cuda.grid(1)
    y[i] = 2 * x[i]


@cuda.jit
def add_bias(y, bias, z):
    i = cuda.grid(1)
    z[i] = y[i] + bias[i]


@cuda.jit
def clip(z, out):
    i = cuda.grid(1)
    out[i] = min(max(z[i], 0), 6)


@cuda.jit
def fused(x, bias, out):
    i = cuda.grid(1)
    out[i] = min(max(2 * x[i] + bias[i], 0), 6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fused_kernel_moves_its_inputs_and_its_output_and_nothing_between(dtype):
    x, bias, y, z, out, alone = (np.linspace(-4, 4, N).astype(dtype) for _ in range(6))
    apart = [sol.profile(k[N // 256, 256], *a) for k, a in ((double, (x, y)), (add_bias, (y, bias, z)), (clip, (z, alone)))]
    whole = sol.profile(fused[N // 256, 256], x, bias, out)
    np.testing.assert_array_equal(out, alone)
    size = N * np.dtype(dtype).itemsize
    assert whole.work.compulsory_bytes == 3 * size  # x, bias, out
    assert sum(r.work.compulsory_bytes for r in apart) == 7 * size  # y and z written and read again
    assert whole.time_s < sum(r.time_s for r in apart)
    assert whole.sol_score <= 1


@pytest.mark.parametrize("device", ["T4", "A100-SXM4-80GB", "GeForce RTX 4090", "H100-SXM5-80GB"])
def test_time_grows_linearly_with_the_grid_beyond_a_few_waves(device):
    def body(blocks):
        n = blocks * 256
        return sol.profile(double[blocks, 256], np.zeros(n, np.float32), np.zeros(n, np.float32), device=device).prediction

    few, many = body(1 << 14), body(1 << 16)
    assert few.waves > 8
    assert many.body_s / few.body_s == pytest.approx(4, rel=0.04)
