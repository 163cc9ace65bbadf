"""What a site has met before changes nothing of what the next access counts: every place in a line, every mask, in any order."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, int16

SECTOR, LINE, WORD = 32, 128, 4


@cuda.jit
def runs(src, start, width, out):
    """Block b reads width[b] elements from start[b] on: unit stride, as the program says."""
    i = cuda.threadIdx.x
    if i < width[cuda.blockIdx.x]:
        out[32 * cuda.blockIdx.x + i] = src[start[cuda.blockIdx.x] + i]


@cuda.jit
def runs_of_shared(start, width, out):
    tile = cuda.shared.array(256, int16)
    i = cuda.threadIdx.x
    for k in range(i, 256, 32):
        tile[k] = k
    cuda.syncwarp()
    if i < width[cuda.blockIdx.x]:
        out[32 * cuda.blockIdx.x + i] = tile[start[cuda.blockIdx.x] + i]


def of_line(run, kind, array):
    sites = [k for k, s in enumerate(run.program.sites) if s.kind == kind and s.array == array]
    return [run.site_counts[k] for k in sites]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["up", "down", "shuffled"])
def test_unit_stride_from_every_element_of_a_line(launch, rng, dtype, order):
    size = np.dtype(dtype).itemsize
    start = np.repeat(np.arange(128 // size + 3), 3)
    width = np.tile([32, 7, 31], len(start) // 3)
    turn = {"up": np.arange(len(start)), "down": np.arange(len(start))[::-1], "shuffled": rng.permutation(len(start))}[order]
    start, width = start[turn], width[turn]
    src, out = np.arange(400).astype(dtype), np.zeros(32 * len(start), dtype)
    run = launch(runs[len(start), 32], src, start, width, out)
    # from the definition: each warp's first and last byte, and the sectors, lines and words from the one to the other
    first, last = start * size, (start + width) * size - 1
    (read,) = of_line(run, "global_load", "src")
    assert read.sectors == (last // SECTOR - first // SECTOR + 1).sum()
    assert (read.requests, read.bytes) == (len(start), width.sum() * size)
    site = next(s.index for s in run.program.sites if s.array == "src")
    got = requests_of(run.trace, site)
    assert [len(lines) for lines in got] == (last // LINE - first // LINE + 1).tolist()
    words = [[int(bits).bit_count() for bits in lines & 0xFFFFFFFF] for lines in got]
    assert [sum(of) for of in words] == (last // WORD - first // WORD + 1).tolist()
    for b, (s, w) in enumerate(zip(start, width, strict=True)):
        np.testing.assert_array_equal(out[32 * b : 32 * b + w], src[s : s + w])


def requests_of(trace, site):
    """The line words of each of a site's requests, in order."""
    words, found, k = trace.words.astype(object), [], 0
    while k < len(words):
        count = words[k] & 0xFFFF
        if (words[k] >> 32) & 0x7FFFFFFF == site:
            found.append(trace.words[k + 1 : k + 1 + count])
        k += 1 + count
    return found


@pytest.mark.parametrize("order", [1, -1])
def test_unit_stride_in_shared_memory_from_every_word(launch, order):
    """32 two-byte elements lie in 16 or 17 words, all in different banks: one pass each."""
    start = np.arange(64)[::order].copy()
    out = np.zeros(32 * 64, np.int16)
    run = launch(runs_of_shared[64, 32], start, np.full(64, 32), out)
    (read,) = list(of_line(run, "shared_load", "tile"))
    assert (read.requests, read.wavefronts, read.bank_conflicts) == (64, 64, 0)
    np.testing.assert_array_equal(out.reshape(64, 32), start[:, None] + np.arange(32))


@cuda.jit
def one_too_far(x, start, out):
    i = cuda.threadIdx.x
    for k in range(start.size):
        out[i] += x[start[k] + i]


@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float64])
def test_unit_stride_that_was_inside_before_is_still_found_outside(launch, dtype):
    """96 elements: a run from 64 on is the last inside, one from 65 on has its last lane outside, one from -1 on its first."""
    from solcourse.errors import OutOfBounds

    x, out = np.ones(96, dtype), np.zeros(32, dtype)
    launch(one_too_far[1, 32], x, np.array([0, 32, 64, 1, 33, 64]), out)
    np.testing.assert_array_equal(out, np.full(32, 6, dtype))
    for starts, lane in (([0, 32, 64, 65], 31), ([1, 33, 97], 0)):
        with pytest.raises(OutOfBounds) as caught:
            launch(one_too_far[1, 32], x, np.array(starts), out)
        assert f"thread {lane}" in str(caught.value) or f"({lane}, 0, 0)" in str(caught.value)
