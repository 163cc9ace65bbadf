"""Histograms of bytes: a leaderboard's second place (per-warp bins in shared memory), and the two of the CUDA toolkit's sample.

Their 16-byte loads (one per 16 bytes counted, so never the limit) are written as two 8-byte ones: the same sectors, twice the requests.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import cuda, int32, uint8, uint32, uint64

from .common import Entry, Launch, times

LEFT_OUT = {
    ("histogram-gpumode", "rank1"): "library call",
    ("histogram-gpumode", "rank3"): "source not published",
}
U0, U1, U5, BYTE = uint32(0), uint32(1), uint32(5), uint32(255)


# ------------------------------------------------------------------------------------------------------------- leaderboard
@cuda.jit
def fill_zero(bins):
    bins[cuda.threadIdx.x] = int32(0)


@cuda.jit(device=True, inline=True)
def count_eight(held, base, word):
    """word: eight bytes."""
    for k in range(8):
        cuda.atomic.add(held, base + uint32((word >> uint64(8 * k)) & uint64(255)), int32(1))


@cuda.jit
def histogram_per_warp(words, bins):
    """A block of 1024, 16 bytes per thread. words: (bytes / 8,) uint64."""
    held = cuda.shared.array(8192, int32)
    t = uint32(cuda.threadIdx.x)
    for k in range(8):
        held[uint32(t + uint32(1024 * k))] = int32(0)
    at = uint64(uint32(uint32(cuda.blockIdx.x) * uint32(1024) + t)) * uint64(2)
    low, high = words[at], words[at + uint64(1)]
    base = uint32((t >> U5) << uint32(8))
    cuda.syncthreads()
    count_eight(held, base, low)
    count_eight(held, base, high)
    cuda.syncthreads()
    total = held[t]
    for k in range(1, 8):
        total = int32(total + held[uint32(t + uint32(1024 * k))])
    held[t] = total
    cuda.syncthreads()  # inside the branch in the source, which whole warps take
    if t < uint32(512):
        held[t] = int32(held[t] + held[uint32(t + uint32(512))])
    cuda.syncthreads()
    if t < uint32(256):
        total = int32(held[t] + held[uint32(t + uint32(256))])
        held[t] = total
        cuda.atomic.add(bins, t, total)


# ------------------------------------------------------------------------------------------------------------ toolkit sample
@cuda.jit
def histogram64_per_thread(words, partial, count):
    """A block of 64: each thread has 64 bins of one byte in shared memory. words: (bytes / 8,) uint64; count: 16-byte pieces."""
    held = cuda.shared.array(4096, uint8, alignment=16)
    t, n = uint32(cuda.threadIdx.x), uint32(count)
    mine = uint32((t & uint32(0xFFFFFFC0)) | ((t & uint32(15)) << uint32(2)) | ((t & uint32(48)) >> uint32(4)))
    for k in range(64):  # the source clears words: 16 stores of 4 bytes, not 64 of one
        held[uint32(t + uint32(64 * k))] = uint8(0)
    cuda.syncthreads()
    i = uint32(uint32(cuda.blockIdx.x) * uint32(64) + t)
    step = uint32(uint32(cuda.gridDim.x) * uint32(64))
    while i < n:
        low, high = words[uint64(i) * uint64(2)], words[uint64(i) * uint64(2) + uint64(1)]
        for k in range(8):
            at = uint32(mine + (uint32((low >> uint64(8 * k + 2)) & uint64(63)) << uint32(6)))
            held[at] = uint8(held[at] + uint8(1))
        for k in range(8):
            at = uint32(mine + (uint32((high >> uint64(8 * k + 2)) & uint64(63)) << uint32(6)))
            held[at] = uint8(held[at] + uint8(1))
        i = uint32(i + step)
    cuda.syncthreads()
    total = uint32(0)
    base = uint32(t << uint32(6))
    at = uint32((t & uint32(15)) << uint32(2))
    for _ in range(16):
        for k in range(4):
            total = uint32(total + uint32(held[uint32(base + at + uint32(k))]))
        at = uint32((at + uint32(4)) & uint32(63))
    partial[uint32(uint32(cuda.blockIdx.x) * uint32(64) + t)] = total


@cuda.jit
def histogram256_per_warp(words, partial, count):
    """A block of six warps, each with 256 bins in shared memory. words: (count,) uint32."""
    held = cuda.shared.array(1536, uint32)
    t, n = uint32(cuda.threadIdx.x), uint32(count)
    base = uint32((t >> U5) << uint32(8))
    for k in range(8):
        held[uint32(t + uint32(192 * k))] = U0
    cuda.syncthreads()
    i = uint32(uint32(cuda.blockIdx.x) * uint32(192) + t)
    step = uint32(uint32(cuda.gridDim.x) * uint32(192))
    while i < n:
        word = words[i]
        cuda.atomic.add(held, uint32(base + (word & BYTE)), U1)
        cuda.atomic.add(held, uint32(base + ((word >> uint32(8)) & BYTE)), U1)
        cuda.atomic.add(held, uint32(base + ((word >> uint32(16)) & BYTE)), U1)
        cuda.atomic.add(held, uint32(base + (word >> uint32(24))), U1)
        i = uint32(i + step)
    cuda.syncthreads()
    i = t
    while i < uint32(256):
        total = U0
        for k in range(6):
            total = uint32(total + held[uint32(i + uint32(256 * k))])
        partial[uint32(uint32(cuda.blockIdx.x) * uint32(256) + i)] = total
        i = uint32(i + uint32(192))


@cuda.jit
def merge_partial(partial, bins, count):
    """A block of 256 per bin: reads one bin of every partial histogram."""
    held = cuda.shared.array(256, uint32)
    t, n = uint32(cuda.threadIdx.x), uint32(count)
    total = U0
    i = t
    while i < n:
        total = uint32(total + partial[uint32(uint32(cuda.blockIdx.x) + i * uint32(cuda.gridDim.x))])
        i = uint32(i + uint32(256))
    held[t] = total
    for k in range(8):
        cuda.syncthreads()
        if t < uint32(128 >> k):
            held[t] = uint32(held[t] + held[uint32(t + uint32(128 >> k))])
    if t == U0:
        bins[cuda.blockIdx.x] = held[0]


# ----------------------------------------------------------------------------------------------------------------- entries
def contended(size: int, part: float) -> np.ndarray:
    """(size,) random bytes, of which `part` are the same; the first MiB over and over."""
    draw = np.random.default_rng(5)
    data = draw.integers(0, 256, min(size, 2**20), np.uint8)
    data[draw.random(data.size) < part] = draw.integers(0, 256)
    return np.resize(data, size)


def leaderboard() -> Iterator[Entry]:
    size = 10_485_760
    clear = Launch(fill_zero, 1, 256, lambda: (np.zeros(256, np.int32),), sample=None)
    args = lambda: (contended(size, 0.1).view(np.uint64), np.zeros(256, np.int32))  # noqa: E731
    count = Launch(histogram_per_warp, size // 16384, 1024, args, sample=16)
    for gpu in ("A100", "H100", "L4", "T4"):
        yield Entry("histogram-gpumode", gpu, "rank2", (clear, count), times(1e6))


def sample() -> Iterator[Entry]:
    size, gpu = 2**26, "GTX 1650 SUPER"
    blocks = -(-size // (64 * 240))
    rate = lambda s: size / s / 1e6  # noqa: E731

    def small():
        return contended(size, 0.0).view(np.uint64), np.zeros(64 * blocks, np.uint32), size // 16

    def large():
        return contended(size, 0.0).view(np.uint32), np.zeros(256 * 240, np.uint32), size // 4

    merge64 = Launch(merge_partial, 64, 256, lambda: (np.zeros(64 * blocks, np.uint32), np.zeros(64, np.uint32), blocks), cache="warm")
    merge256 = Launch(merge_partial, 256, 256, lambda: (np.zeros(256 * 240, np.uint32), np.zeros(256, np.uint32), 240), cache="warm")
    first64 = Launch(histogram64_per_thread, blocks, 64, small)
    first256 = Launch(histogram256_per_warp, 240, 192, large, sample=8)
    yield Entry("histogram-sample-1650s", gpu, "histogram64", (first64, merge64), rate)
    yield Entry("histogram-sample-1650s", gpu, "histogram256", (first256, merge256), rate)


def entries() -> Iterator[Entry]:
    yield from leaderboard()
    yield from sample()
