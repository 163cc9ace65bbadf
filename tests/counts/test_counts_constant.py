"""Constant memory serves one address after another: a pass for each different one among a warp's lanes."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import solcourse as sol

FLOATS = np.arange(256, dtype=np.float32)
TABLES = {"float32": FLOATS, "float64": np.arange(256, dtype=np.float64), "int8": np.arange(256).astype(np.int8)}


@cuda.jit(device=True)
def one(i, x):
    return int(x[0])


@cuda.jit(device=True)
def own(i, x):
    return i


@cuda.jit(device=True)
def pairs(i, x):
    return i // 2


@cuda.jit(device=True)
def strided(i, x):
    return (8 * i) % 256


INDICES = {"one": lambda i: 0 * i, "own": lambda i: i, "pairs": lambda i: i // 2, "strided": lambda i: 8 * i % 256}


def lookup(table, index):
    @cuda.jit
    def kernel(x, out):
        t = cuda.const.array_like(table)
        i = cuda.threadIdx.x
        out[i] = t[index(i, x)]

    return kernel


# 8 warps of 256 threads; int8: four neighbours are one 4-byte address
@pytest.mark.parametrize(
    ("dtype", "index", "passes"),
    [
        ("float32", one, 8), ("float32", own, 8 * 32), ("float32", pairs, 8 * 16), ("float32", strided, 8 * 32),
        ("float64", one, 8), ("float64", own, 8 * 32), ("float64", pairs, 8 * 16),
        ("int8", own, 8 * 8), ("int8", strided, 8 * 32),
    ],
)  # fmt: skip
def test_each_different_address_of_a_warp_is_a_pass(dtype, index, passes):
    table = TABLES[dtype]
    out = np.zeros(256, table.dtype)
    report = sol.profile(lookup(table, index)[1, 256], np.zeros(1, np.float32), out)
    np.testing.assert_array_equal(out, table[INDICES[index.py_func.__name__](np.arange(256))])
    found = [
        (counted.requests, counted.wavefronts)
        for site, counted in zip(report.run.program.sites, report.run.site_counts, strict=True)
        if site.kind == "constant_load"
    ]
    assert found == [(8, passes)]
    assert report.bounds["constant"] == pytest.approx(passes / report.device.clock_hz)
    assert report.counts.global_load.requests == (8 if index is one else 0)  # a constant is not global memory


def test_lanes_that_index_a_table_apart_are_slower_than_those_that_read_one_entry():
    @cuda.jit
    def chained(x, out, step):
        t = cuda.const.array_like(FLOATS)
        i = cuda.grid(1)
        total = np.float32(0)
        for k in range(64):
            total += t[(i * step + k) % 256]
        out[i] = total

    def seconds(step):
        return sol.profile(chained[256, 256], np.zeros(1, np.float32), np.zeros(65536, np.float32), step)

    apart, together = seconds(1), seconds(0)
    assert apart.bound == "constant"
    assert apart.time_s > 3 * together.time_s
    assert apart.hot_lines[0].text.startswith("total +=")


def test_a_stray_index_into_a_constant_is_told():
    @cuda.jit
    def beyond(x, out):
        t = cuda.const.array_like(FLOATS)
        i = cuda.threadIdx.x
        out[i] = t[i + 200]

    with pytest.raises(sol.OutOfBounds, match="256"):
        sol.profile(beyond[1, 64], np.zeros(1, np.float32), np.zeros(64, np.float32))
