"""Scans inside blocks, H100, 2^30 int32: Hillis & Steele in global and in shared memory, two buffers, shuffles, four per thread.

2^28 elements stand for 2^30: the rate is the same. The loops over powers of two are unrolled, as in the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import cuda, int32, uint32

from .common import FULL, Entry, gbs, one, zeros

LEFT_OUT: dict[tuple[str, str], str] = {}
N = 2**28
U1, U31, U32 = uint32(1), uint32(31), uint32(32)
FIVE = uint32(5)


@cuda.jit(device=True, inline=True)
def element():
    return uint32(uint32(cuda.blockIdx.x) * uint32(cuda.blockDim.x) + uint32(cuda.threadIdx.x))


def scan_global(size: int) -> Any:
    rounds = size.bit_length() - 1

    @cuda.jit
    def scan_in_global(x, out):
        t, i = uint32(cuda.threadIdx.x), element()
        out[i] = x[i]
        cuda.syncthreads()
        for k in range(rounds):
            step = uint32(1 << k)
            value = int32(0)
            if t >= step:
                value = out[uint32(i - step)]
            cuda.syncthreads()
            if t >= step:
                out[i] = int32(out[i] + value)
            cuda.syncthreads()

    return scan_in_global


def scan_shared(size: int) -> Any:
    rounds = size.bit_length() - 1

    @cuda.jit
    def scan_in_shared(x, out):
        held = cuda.shared.array(size, int32)
        t, i = uint32(cuda.threadIdx.x), element()
        held[t] = x[i]
        cuda.syncthreads()
        for k in range(rounds):
            step = uint32(1 << k)
            value = int32(0)
            if t >= step:
                value = held[uint32(t - step)]
            cuda.syncthreads()
            if t >= step:
                held[t] = int32(held[t] + value)
            cuda.syncthreads()
        out[i] = held[t]

    return scan_in_shared


def scan_two_buffers(size: int) -> Any:
    rounds, both = size.bit_length() - 1, 2 * size

    @cuda.jit
    def scan_buffered(x, out):
        held = cuda.shared.array(both, int32)
        t, i = uint32(cuda.threadIdx.x), element()
        held[t] = x[i]
        cuda.syncthreads()
        for k in range(rounds):
            step = uint32(1 << k)
            source, target = uint32(size * (k & 1)), uint32(size * (1 - (k & 1)))
            value = held[uint32(t + source)]
            if t >= step:
                value = int32(value + held[uint32(t + source - step)])
            held[uint32(t + target)] = value
            cuda.syncthreads()
        out[i] = held[uint32(t + uint32(size * (rounds & 1)))]

    return scan_buffered


@cuda.jit(device=True, inline=True)
def warp_scan(value, lane):
    """Exclusive."""
    total = value
    for k in range(5):
        before = cuda.shfl_up_sync(FULL, total, 1 << k)
        if lane >= uint32(1 << k):
            total = int32(total + before)
    return int32(total - value)


@cuda.jit(device=True, inline=True)
def block_scan(sums, value, t):
    """Exclusive. sums: (warps,) shared."""
    lane, warp = t & U31, t >> FIVE
    mine = warp_scan(value, lane)
    if lane == U31:
        sums[warp] = int32(mine + value)
    cuda.syncthreads()
    if t < U32:
        sums[t] = warp_scan(sums[t], lane)
    cuda.syncthreads()
    return int32(mine + sums[warp])


@cuda.jit
def scan_shuffled(x, out):
    sums = cuda.shared.array(32, int32)  # the source holds one per warp and reads beyond; as many as the first warp touches
    t, i = uint32(cuda.threadIdx.x), element()
    if t < U32:
        sums[t] = int32(0)
    value = x[i]
    out[i] = int32(block_scan(sums, value, t) + value)


@cuda.jit
def scan_four_each(x, out):
    sums = cuda.shared.array(32, int32)
    t, first = uint32(cuda.threadIdx.x), uint32(element() * uint32(4))
    if t < U32:
        sums[t] = int32(0)
    n = uint32(x.size)
    a = b = c = d = int32(0)
    if first < n:
        a = x[first]
    if uint32(first + U1) < n:
        b = int32(a + x[uint32(first + U1)])
    if uint32(first + uint32(2)) < n:
        c = int32(b + x[uint32(first + uint32(2))])
    if uint32(first + uint32(3)) < n:
        d = int32(c + x[uint32(first + uint32(3))])
    before = block_scan(sums, d, t)
    if first < n:
        out[first] = int32(before + a)
    if uint32(first + U1) < n:
        out[uint32(first + U1)] = int32(before + b)
    if uint32(first + uint32(2)) < n:
        out[uint32(first + uint32(2))] = int32(before + c)
    if uint32(first + uint32(3)) < n:
        out[uint32(first + uint32(3))] = int32(before + d)


STEPS = {
    "0 ": (scan_global(512), 512, 1), "1 ": (scan_shared(512), 512, 1), "2 ": (scan_two_buffers(256), 256, 1),
    "3 ": (scan_shuffled, 256, 1), "4 ": (scan_four_each, 128, 4),
}  # fmt: skip


def entries() -> Iterator[Entry]:
    for label, (kernel, size, each) in STEPS.items():
        args = zeros(N, N, dtype=np.int32)
        yield one("blockscan-veitner-h100", "H100", label, kernel, N // (size * each), size, args, gbs(8 * N))
