"""Blelloch scan of any length: block scans, a scan of block sums (recursively), and a uniform add."""

import numpy as np
from numba import cuda, int64

T = 128
T2 = 2 * T


@cuda.jit
def scan_blocks(x, out, sums):
    s = cuda.shared.array(T2, int64)
    t = cuda.threadIdx.x
    base = cuda.blockIdx.x * 2 * T
    for k in range(2):
        i = base + t + k * T
        s[t + k * T] = x[i] if i < x.size else 0
    offset = 1
    d = T
    while d > 0:
        cuda.syncthreads()
        if t < d:
            a = offset * (2 * t + 1) - 1
            b = offset * (2 * t + 2) - 1
            s[b] += s[a]
        offset *= 2
        d >>= 1
    cuda.syncthreads()
    if t == 0:
        sums[cuda.blockIdx.x] = s[2 * T - 1]
        s[2 * T - 1] = 0
    d = 1
    while d < 2 * T:
        offset >>= 1
        cuda.syncthreads()
        if t < d:
            a = offset * (2 * t + 1) - 1
            b = offset * (2 * t + 2) - 1
            s[a], s[b] = s[b], s[a] + s[b]
        d *= 2
    cuda.syncthreads()
    for k in range(2):
        i = base + t + k * T
        if i < x.size:
            out[i] = s[t + k * T]


@cuda.jit
def add_sums(out, sums):
    i = cuda.blockIdx.x * 2 * T + cuda.threadIdx.x
    for k in range(2):
        if i + k * T < out.size:
            out[i + k * T] += sums[cuda.blockIdx.x]


def scan(x):
    blocks = -(-x.size // (2 * T))
    out = cuda.device_array(x.size, np.int64)
    sums = cuda.device_array(blocks, np.int64)
    scan_blocks[blocks, T](x, out, sums)
    if blocks > 1:
        add_sums[blocks, T](out, scan(sums))
    return out


x = np.random.default_rng(2).integers(-9, 9, 70001)
got = scan(cuda.to_device(x)).copy_to_host()
np.testing.assert_array_equal(got, np.cumsum(x) - x)
print("scan ok")
