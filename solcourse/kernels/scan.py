"""Inclusive scan (running sums) of each block of 256 elements, and what is left to do to make one scan of them all.

Every kernel also leaves the total of each block. Scan the totals, then let `add_offsets` add to each block what stands before it:
that is a scan of everything, in three launches. Sources: W. Hillis, G. Steele, "Data parallel algorithms" (1986); G. Blelloch,
"Prefix sums and their applications" (1990); M. Harris, S. Sengupta, J. Owens, GPU Gems 3, chapter 39.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32

from solcourse.kernels.case import Case, ceil_div, poisoned, random_array
from solcourse.work import Work

THREADS = 256
WARP = 32
WARPS = THREADS // WARP
LANE = WARP - 1
WARP_BITS = 5
FULL_MASK = 0xFFFFFFFF
SHAPES = ((2048,), (1,), (255,), (3001,))


def work(n: int) -> Work:
    sums = Work.read("x", 4 * n) + Work.write("out", 4 * n) + Work.write("totals", 4 * ceil_div(n, THREADS))
    return sums + Work.flop("fp32", max(0, n - ceil_div(n, THREADS)))


@cuda.jit
def scan_hillis_steele(x, out, totals):  # (n,) (n,) (blocks,)
    """Each step adds the sum that ends `step` places before: log2(n) steps, n log2(n) adds, two barriers a step."""
    cache = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    total = x[i] if i < x.size else float32(0.0)
    cache[t] = total
    cuda.syncthreads()
    step = 1
    while step < THREADS:
        if t >= step:
            total += cache[t - step]
        cuda.syncthreads()
        cache[t] = total
        cuda.syncthreads()
        step *= 2
    if i < out.size:
        out[i] = total
    if t == THREADS - 1:
        totals[cuda.blockIdx.x] = total


@cuda.jit
def scan_work_efficient(x, out, totals):
    """A tree of sums upwards, then the missing sums downwards: twice the steps, 2 n adds, few lanes at work in most steps."""
    cache = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    cache[t] = x[i] if i < x.size else float32(0.0)
    cuda.syncthreads()
    step = 1
    while step < THREADS:
        at = 2 * step * (t + 1) - 1
        if at < THREADS:
            cache[at] += cache[at - step]
        cuda.syncthreads()
        step *= 2
    step = THREADS // 4
    while step > 0:
        at = 2 * step * (t + 1) - 1
        if at + step < THREADS:
            cache[at + step] += cache[at]
        cuda.syncthreads()
        step //= 2
    if i < out.size:
        out[i] = cache[t]
    if t == THREADS - 1:
        totals[cuda.blockIdx.x] = cache[t]


@cuda.jit
def scan_shuffle(x, out, totals):
    """Hillis and Steele's steps from lane to lane inside a warp, then the same once over the warps' sums: two barriers in all."""
    cache = cuda.shared.array(WARP, float32)
    t = cuda.threadIdx.x
    lane, warp = t & LANE, t >> WARP_BITS
    i = cuda.grid(1)
    total = x[i] if i < x.size else float32(0.0)
    step = 1
    while step < WARP:
        before = cuda.shfl_up_sync(FULL_MASK, total, step)
        if lane >= step:
            total += before
        step *= 2
    if lane == LANE:
        cache[warp] = total
    cuda.syncthreads()
    if warp == 0:
        sums = cache[lane] if lane < WARPS else float32(0.0)
        step = 1
        while step < WARPS:
            before = cuda.shfl_up_sync(FULL_MASK, sums, step)
            if lane >= step:
                sums += before
            step *= 2
        cache[lane] = sums
    cuda.syncthreads()
    if warp > 0:
        total += cache[warp - 1]
    if i < out.size:
        out[i] = total
    if t == THREADS - 1:
        totals[cuda.blockIdx.x] = total


@cuda.jit
def add_offsets(parts, scanned_totals, out):  # (n,) (blocks,) (n,)
    """The last of the three launches: each block's own sums, and the sum of all blocks before it."""
    i = cuda.grid(1)
    if i < out.size:
        before = scanned_totals[cuda.blockIdx.x - 1] if cuda.blockIdx.x > 0 else float32(0.0)
        out[i] = parts[i] + before


def _padded(x: np.ndarray, blocks: int) -> np.ndarray:  # (n,) -> (blocks, THREADS) float64
    rows = np.zeros(blocks * THREADS)
    rows[: x.size] = x
    return rows.reshape(blocks, THREADS)


def reference(x: np.ndarray, out: np.ndarray, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sums = _padded(x, totals.size).cumsum(1)
    return sums.ravel()[: x.size].astype(x.dtype), sums[:, -1].astype(x.dtype)


def _make(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return random_array(rng, n, dtype), poisoned(n, dtype), poisoned(ceil_div(n, THREADS), dtype)


def _launch(n: int) -> tuple:
    return ceil_div(n, THREADS), THREADS


def _case(kernel, **more) -> Case:
    return Case(kernel, _make, _launch, reference, work, (1, 2), SHAPES, tolerance=1e-5, **more)


def _make_offsets(rng: np.random.Generator, n: int, dtype=np.float32) -> tuple:
    return random_array(rng, n, dtype), random_array(rng, ceil_div(n, THREADS), dtype), poisoned(n, dtype)


def _offsets_reference(parts: np.ndarray, scanned_totals: np.ndarray, out: np.ndarray) -> np.ndarray:
    before = np.concatenate([np.zeros(1, parts.dtype), scanned_totals])
    return parts + before[np.arange(parts.size) // THREADS]


def _offsets_work(n: int) -> Work:
    # nobody comes after the last block: its total is not needed
    reads = Work.read("parts", 4 * n) + Work.read("totals", 4 * (ceil_div(n, THREADS) - 1))
    return reads + Work.write("out", 4 * n) + Work.flop("fp32", n)


CASES = {
    "scan_hillis_steele": _case(scan_hillis_steele),
    "scan_work_efficient": _case(scan_work_efficient),
    "scan_shuffle": _case(scan_shuffle, warp_level=True),
    "add_offsets": Case(add_offsets, _make_offsets, _launch, _offsets_reference, _offsets_work, (2,), SHAPES),
}
