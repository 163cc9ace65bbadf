"""Neighbouring shared accesses are one request where NVVM makes one instruction of them: counted against its own PTX."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from numba import cuda, float32, float64, int16, uint8, uint64

import solcourse as sol
from solcourse.simt import frontend

pytestmark = pytest.mark.skipif(frontend.front_end() != "numba-cuda", reason="shared.array(alignment=...) is numba-cuda's")
TWO, FOUR, EIGHT = uint64(2), uint64(4), uint64(8)


def rows(alignment):
    """Each thread stores and loads eight neighbours, and all load four of one place."""

    @cuda.jit
    def kernel(x, out):
        tile = cuda.shared.array(1024, float32, alignment=alignment)
        t = uint64(cuda.threadIdx.x)
        for i in range(8):
            tile[t * EIGHT + uint64(i)] = x[t * EIGHT + uint64(i)]
        cuda.syncthreads()
        s = float32(0.0)
        for i in range(8):
            s += tile[t * EIGHT + uint64(i)] * float32(i)
        for i in range(4):
            s += tile[uint64(i) + FOUR] * float32(3)
        out[t] = s

    return kernel


def rows_reference(x):
    return (x.reshape(128, 8) * np.arange(8)).sum(1) + 3 * x[4:8].sum()


@cuda.jit
def doubles(x, out):
    tile = cuda.shared.array(256, float64, alignment=16)
    t = uint64(cuda.threadIdx.x)
    tile[t * TWO] = x[t * TWO]
    tile[t * TWO + uint64(1)] = x[t * TWO + uint64(1)]
    cuda.syncthreads()
    other = uint64(127) - t
    out[t] = tile[other * TWO] - tile[other * TWO + uint64(1)]


@cuda.jit
def backwards(x, out):
    """The highest is loaded first."""
    tile = cuda.shared.array(512, float32, alignment=16)
    t = uint64(cuda.threadIdx.x)
    for i in range(4):
        tile[t + uint64(128 * i)] = x[t + uint64(128 * i)]
    cuda.syncthreads()
    total = tile[t * FOUR + uint64(3)]
    total = total * float32(2) + tile[t * FOUR + uint64(2)]
    total = total * float32(2) + tile[t * FOUR + uint64(1)]
    out[t] = total * float32(2) + tile[t * FOUR]


@cuda.jit
def unaligned(x, out):
    """One element off: no pair starts at a multiple of eight bytes that is known."""
    tile = cuda.shared.array(520, float32, alignment=16)
    t = uint64(cuda.threadIdx.x)
    for i in range(4):
        tile[t * FOUR + uint64(i)] = x[t * FOUR + uint64(i)]
    cuda.syncthreads()
    odd = t | uint64(1)
    out[t] = tile[odd] + tile[odd + uint64(1)]


@cuda.jit
def stored_between(x, out):
    """A store between two loads, which may change the second."""
    tile = cuda.shared.array(256, float32, alignment=16)
    t = uint64(cuda.threadIdx.x)
    tile[t] = x[t]
    tile[t + uint64(128)] = x[t]
    cuda.syncthreads()
    a = tile[t & uint64(126)]
    cuda.syncthreads()
    tile[t] = a + float32(1)
    cuda.syncthreads()
    out[t] = a + tile[(t & uint64(126)) + uint64(1)]


@cuda.jit
def in_a_loop(x, out):
    """An index that comes around a loop in steps of four."""
    tile = cuda.shared.array(128, float32, alignment=16)
    t = uint64(cuda.threadIdx.x)
    tile[t] = x[t]
    cuda.syncthreads()
    total = float32(0)
    k = uint64(0)
    while k < uint64(x.size // 4):
        total += tile[k] + tile[k + uint64(1)] * float32(2) + tile[k + TWO] + tile[k + uint64(3)]
        k += FOUR
    out[t] = total


@cuda.jit
def odd_in_a_loop(x, out):
    """The same in steps of four from an odd place."""
    tile = cuda.shared.array(136, float32, alignment=16)
    t = uint64(cuda.threadIdx.x)
    tile[t] = x[t]
    tile[t + uint64(8)] = x[t]
    cuda.syncthreads()
    total = float32(0)
    k = uint64(x[0] > 1e30)
    while k < uint64(x.size // 4):
        total += tile[k] + tile[k + uint64(1)]
        k += FOUR
    out[t] = total


@cuda.jit
def shorts(x, out):
    tile = cuda.shared.array(512, int16, alignment=16)
    t = uint64(cuda.threadIdx.x)
    for i in range(4):
        tile[t * FOUR + uint64(i)] = int16(t + uint64(i))
    cuda.syncthreads()
    out[t] = tile[t * FOUR] + tile[t * FOUR + uint64(1)] + tile[t * FOUR + TWO] + tile[t * FOUR + uint64(3)]


@cuda.jit
def as_one_writes_it(x, out):
    """Indices that may be negative for all that is known: each may be moved by the array's length."""
    tile = cuda.shared.array(512, float32, alignment=16)
    t = cuda.threadIdx.x
    tile[4 * t] = tile[4 * t + 1] = tile[4 * t + 2] = tile[4 * t + 3] = x[0]
    cuda.syncthreads()
    other = 4 * (t ^ 1)
    out[t] = tile[4 * t + 3] + tile[4 * t + 2] + tile[other] * float32(2) + tile[other + 1]


@cuda.jit
def chosen(x, out):
    """A choice between two places that are an odd number of elements apart: nothing is known of the alignment."""
    tile = cuda.shared.array(512, float32, alignment=16)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    tile[t + 128] = x[t]
    cuda.syncthreads()
    k = uint64(t) * TWO + (uint64(1) if x[t] > float32(30) else uint64(0))
    out[t] = tile[k] + tile[k + uint64(1)] * float32(2)


@cuda.jit
def bytes_(x, out):
    tile = cuda.shared.array(512, uint8, alignment=16)
    t = uint64(cuda.threadIdx.x)
    tile[t * FOUR] = uint8(t)
    tile[t * FOUR + uint64(1)] = uint8(t)
    tile[t * FOUR + TWO] = uint8(t)
    tile[t * FOUR + uint64(3)] = uint8(t)
    cuda.syncthreads()
    out[t] = tile[t * FOUR] + tile[t * FOUR + uint64(1)] + tile[t * FOUR + TWO] + tile[t * FOUR + uint64(3)]


def counted(kernel, n=512):
    x, out = np.arange(n, dtype=np.float32) % 61, np.zeros(128, np.float32)
    report = sol.profile(kernel[1, 128], x, out)
    return report, x, out


# ------------------------------------------------------------------------------------------------------------------- counts
# 4 warps. Default alignment of float32: one request for each of 8 + 4 loads. 8 bytes: pairs, 6; 16 bytes: quads, 3
@pytest.mark.parametrize(("alignment", "loads", "stores"), [(None, 48, 32), (8, 24, 16), (16, 12, 8)])
def test_neighbours_known_to_be_aligned_are_one_request(alignment, loads, stores):
    kernel = rows(alignment)
    report, x, out = counted(kernel, 1024)
    np.testing.assert_allclose(out, rows_reference(x))
    c = report.counts
    assert (c.shared_load.requests, c.shared_store.requests) == (loads, stores)
    assert (c.shared_load.bytes, c.shared_store.bytes) == (48 * 32 * 4, 32 * 32 * 4)  # what is moved stays
    assert c.pipes["lsu"] == loads + stores + 4 * (8 + 1)  # and the global loads, and the store
    assert c.pipes["adu"] == 4  # the barrier


def test_a_merged_access_goes_by_quarter_warps():
    # lane k reads 16 bytes at 32 k: 8 lanes of a quarter cover 64 words, each 16-byte piece at banks 8k .. 8k+3: lanes k and k + 4 meet:
    # 2 wavefronts a quarter, 8 a request; 2 requests a warp; the one place for all lanes is a wavefront a quarter: 4
    report, *_ = counted(rows(16), 1024)
    assert report.counts.shared_load.wavefronts == 4 * (2 * 8 + 4)
    assert report.counts.shared_load.bank_conflicts == 4 * 2 * 4


def test_the_values_are_those_of_the_single_accesses():
    report, x, out = counted(backwards)
    q = x.reshape(128, 4)
    np.testing.assert_allclose(out, ((q[:, 3] * 2 + q[:, 2]) * 2 + q[:, 1]) * 2 + q[:, 0])
    assert report.counts.shared_load.requests == 4
    report, x, out = counted(stored_between)
    assert report.counts.shared_load.requests == 8  # two, apart
    a = x[np.arange(128) & 126]
    np.testing.assert_allclose(out, a + a[(np.arange(128) & 126) + 1] + 1)


def test_an_index_that_may_be_negative_is_no_obstacle():
    report, x, out = counted(as_one_writes_it)
    assert (report.counts.shared_store.requests, report.counts.shared_load.requests) == (4, 8)  # quads; two pairs
    np.testing.assert_allclose(out, 5 * x[0])
    report, x, out = counted(chosen)
    assert report.counts.shared_load.requests == 8
    k = 2 * np.arange(128) + (x[:128] > 30)
    tile = np.concatenate([x[:128], x[:128], np.zeros(256, np.float32)])
    np.testing.assert_allclose(out, tile[k] + 2 * tile[k + 1])


def test_an_odd_start_around_a_loop_is_not_merged():
    report, x, out = counted(odd_in_a_loop)
    # 128 of x: 32 rounds of two loads by 4 warps; the tile holds x at 8 later where both wrote
    assert report.counts.shared_load.requests == 4 * 2 * 32
    report, x, out = counted(in_a_loop)
    assert report.counts.shared_load.requests == 4 * 32
    q = x[:128].reshape(32, 4)
    np.testing.assert_allclose(out, (q * [1, 2, 1, 1]).sum())


def test_a_merged_access_that_strays_is_told_by_the_element_that_does():
    @cuda.jit
    def strays(x, out):
        tile = cuda.shared.array(126, float32, alignment=16)
        t = uint64(cuda.threadIdx.x)
        tile[t] = x[t] if t < uint64(126) else float32(0)
        cuda.syncthreads()
        k = t * FOUR
        out[t] = tile[k] + tile[k + uint64(1)] + tile[k + TWO] + tile[k + uint64(3)]

    x, out = np.zeros(512, np.float32), np.zeros(128, np.float32)
    with pytest.raises(sol.OutOfBounds, match="126"):
        sol.profile(strays[1, 32], x, out)


# -------------------------------------------------------------------------------------------------------------- NVVM's own
KERNELS = {
    "pairs": rows(8), "quads": rows(16), "doubles": doubles, "backwards": backwards, "unaligned": unaligned,
    "stored_between": stored_between, "in_a_loop": in_a_loop, "odd_in_a_loop": odd_in_a_loop, "shorts": shorts,
    "as_one_writes_it": as_one_writes_it, "chosen": chosen, "bytes": bytes_,
}  # fmt: skip


@pytest.mark.nvvm
@pytest.mark.parametrize("name", KERNELS)
def test_as_many_vector_accesses_as_nvvm_makes(name):
    kernel = KERNELS[name]
    x, out = (
        np.zeros(1024 if name in ("pairs", "quads") else 512, np.float64 if name == "doubles" else np.float32),
        np.zeros(128, np.float32),
    )
    ptx, _ = cuda.compile_ptx(kernel.py_func, frontend.argument_types(kernel, (x, out)), cc=(8, 0))
    program = sol.profile(kernel[1, 128], x, out).run.program
    ours = [program.sites[op.site] for block in program.blocks for op in block.ops if op.site >= 0 and op.issue]
    ours = Counter((site.kind, site.size) for site in ours if site.kind.startswith("shared"))
    theirs = Counter(
        (f"shared_{'load' if op == 'ld' else 'store'}", int(vector or 1) * int(bits) // 8)
        for op, vector, bits in re.findall(r"\b(ld|st)\.shared\.(?:v(\d)\.)?\w(\d+)", ptx)
    )
    if "loop" in name:  # unrolled, each its own way
        assert set(ours) == set(theirs)
    else:
        assert ours == theirs
