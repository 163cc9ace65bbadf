"""Lanes that are off may hold any address at all: it is neither counted, nor followed."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda


@pytest.mark.parametrize("far", [2**58 + 12345, -(2**57), 2**40, 2**63 - 1])
@pytest.mark.parametrize("lane", [0, 1, 31])
def test_an_idle_lane_with_an_address_far_away_changes_no_count(launch, far, lane):
    """The other 31 lanes read 31 neighbouring doubles: 248 bytes, 8 sectors from a 128-byte boundary on (lane 0 or 31 idle or not)."""

    @cuda.jit
    def gather(index, x, out):
        i = cuda.grid(1)
        j = index[i]
        if 0 <= j < x.size:
            out[i] = x[j]

    index, x, out = np.arange(32), np.arange(32.0), np.zeros(32)
    index[lane] = far
    run = launch(gather[1, 32], index, x, out)
    np.testing.assert_array_equal(out, np.where(np.arange(32) == lane, 0, x))
    loads = [c for s, c in zip(run.program.sites, run.site_counts, strict=True) if s.array == "x" and s.kind == "global_load"]
    assert [c.requests for c in loads] == [1]
    assert [c.sectors for c in loads] == [8]  # 31 of 32 doubles still touch all 8 sectors
    assert run.compulsory_read_bytes == 32 * 8 + 31 * 8


def test_an_idle_first_lane_in_an_atomic_and_in_shared_memory(launch):
    @cuda.jit
    def scatter(index, x):
        i = cuda.grid(1)
        tile = cuda.shared.array(32, np.float64)
        tile[i] = 1
        cuda.syncthreads()
        j = index[i]
        if 0 <= j < 32:
            cuda.atomic.add(x, j, tile[31 - j])

    index, x = np.arange(32), np.zeros(32)
    index[0] = 2**60
    launch(scatter[1, 32], index, x)
    assert x.tolist() == [0] + [1] * 31
