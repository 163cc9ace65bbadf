"""Microbenchmarks: one resource each. The model's constants come from these ladders (and from data sheets), so they are no test of it.

BabelStream; bandwidth against occupancy, FMA chains, instruction and thread parallelism, L1 bandwidth and L1 access patterns of
gpu-benches; latencies. Where the source repeats one iteration a million times, some hundred are run: rates per iteration are published.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from functools import cache

import numpy as np
from numba import cuda, float32, float64, uint32, uint64

from .common import F32, F64, ONE, ZERO, Entry, gbs, gflops, gpu_of, one, rows, thread, zeros

CALIBRATION = True
_OLD = "GPU below compute capability 6.0"
_COUNTER = "a counter: compared in tests/counts/test_counts_nsight.py"
LEFT_OUT = {
    ("babelstream-980", ""): _OLD,
    ("babelstream-k20x", ""): _OLD,
    ("babelstream-k40m", ""): _OLD,
    ("babelstream-k80", ""): _OLD,
    ("latency-rtx2070", "constant L1"): "constant loads are counted by line, not by address",
    ("latency-rtx2070", "shared load"): "the instruction sequence around the load is not described",
    ("latency-rtx2070", "shared vector2"): "the instruction sequence around the load is not described",
    ("latency-rtx2070", "TLB"): "TLB misses are not modelled",
    ("l1-access-a100", "l1tex__"): _COUNTER,
    ("l1-access-a40", "l1tex__"): _COUNTER,
}


# ------------------------------------------------------------------------------------------------------------ BabelStream
SCALAR = 0.4
DOT_BLOCKS, DOT_THREADS = 256, 1024


@cuda.jit
def stream_copy(a, b, c):
    i = thread()
    c[i] = a[i]


@cuda.jit
def stream_mul(a, b, c):
    i = thread()
    b[i] = SCALAR * c[i]


@cuda.jit
def stream_add(a, b, c):
    i = thread()
    c[i] = a[i] + b[i]


@cuda.jit
def stream_triad(a, b, c):
    i = thread()
    a[i] = b[i] + SCALAR * c[i]


@cuda.jit
def stream_dot(a, b, sums, n):
    """Grid-stride products, then a tree in shared memory; the sums of the blocks are added on the host."""
    held = cuda.shared.array(DOT_THREADS, float64)
    t = uint32(cuda.threadIdx.x)
    i = thread()
    step = uint64(cuda.blockDim.x) * uint64(cuda.gridDim.x)
    total = 0.0
    while i < uint64(n):
        total += a[i] * b[i]
        i += step
    held[t] = total
    half = uint32(cuda.blockDim.x) >> uint32(1)
    while half > uint32(0):
        cuda.syncthreads()
        if t < half:
            held[t] += held[uint32(t + half)]
        half >>= uint32(1)
    if t == uint32(0):
        sums[cuda.blockIdx.x] = held[0]


def babelstream() -> Iterator[Entry]:
    n = 2**25
    arrays = zeros(n, n, n, dtype=F64)
    for ladder, gpu in (("babelstream-v100", "V100-SXM2-16GB"), ("babelstream-p100", "P100-PCIE-16GB"), ("babelstream-xp", "TITAN Xp")):
        for name, kernel, moved in (("Copy", stream_copy, 2), ("Mul", stream_mul, 2), ("Add", stream_add, 3), ("Triad", stream_triad, 3)):
            yield one(ladder, gpu, name, kernel, n // 1024, 1024, arrays, gbs(8 * n * moved))
        of_dot = lambda: (np.zeros(n), np.zeros(n), np.zeros(DOT_BLOCKS), n)  # noqa: E731
        yield one(ladder, gpu, "Dot", stream_dot, DOT_BLOCKS, DOT_THREADS, of_dot, gbs(16 * n), sample=16)


# ----------------------------------------------------------------------------------------------- bandwidth and occupancy
# One element per thread; a shared array that no thread ever uses (none has a number above NEVER) limits an SM to two blocks.
SPOILER, NEVER = 768, uint32(1243)


@cuda.jit(device=True, inline=True)
def _place():
    t = uint32(cuda.threadIdx.x)
    return t, uint64(uint32(cuda.blockIdx.x) * uint32(cuda.blockDim.x) + t)


@cuda.jit
def occupancy_init(a, b, c, n):
    held = cuda.shared.array(SPOILER, float64)
    t, i = _place()
    if i >= uint64(n):
        return
    if t > NEVER:
        held[t] = b[t]
    a[i] = 0.23
    if t > NEVER:
        a[i] = held[t]


@cuda.jit
def occupancy_read(a, b, c, n):
    held = cuda.shared.array(SPOILER, float64)
    t, i = _place()
    if i >= uint64(n):
        return
    if t > NEVER:
        held[t] = b[t]
    value = b[i]
    if value == 123.33:
        a[i] = value
    if t > NEVER:
        a[i] = held[t]


@cuda.jit
def occupancy_scale(a, b, c, n):
    held = cuda.shared.array(SPOILER, float64)
    t, i = _place()
    if i >= uint64(n):
        return
    if t > NEVER:
        held[t] = b[t]
    a[i] = b[i] * 1.2
    if t > NEVER:
        a[i] = held[t]


@cuda.jit
def occupancy_triad(a, b, c, n):
    held = cuda.shared.array(SPOILER, float64)
    t, i = _place()
    if i >= uint64(n):
        return
    if t > NEVER:
        held[t] = b[t]
    a[i] = b[i] * 1.2 + c[i]
    if t > NEVER:
        a[i] = held[t]


@cuda.jit
def occupancy_3pt(a, b, c, n):
    held = cuda.shared.array(SPOILER, float64)
    t, i = _place()
    if i >= uint64(n) - ONE or i == ZERO:
        return
    if t > NEVER:
        held[t] = b[t]
    a[i] = 0.5 * b[i - ONE] - 1.0 * b[i] + 0.5 * b[i + ONE]
    if t > NEVER:
        a[i] = held[t]


@cuda.jit
def occupancy_5pt(a, b, c, n):
    held = cuda.shared.array(SPOILER, float64)
    t, i = _place()
    two = uint64(2)
    if i >= uint64(n) - two or i < two:
        return
    if t > NEVER:
        held[t] = b[t]
    a[i] = 0.25 * b[i - two] + 0.25 * b[i - ONE] - 1.0 * b[i] + 0.5 * b[i + ONE] + 0.5 * b[i + two]
    if t > NEVER:
        a[i] = held[t]


OCCUPANCY = {  # kernel, arrays that count as moved
    "init": (occupancy_init, 1), "read": (occupancy_read, 1), "scale": (occupancy_scale, 2), "triad": (occupancy_triad, 3),
    "3pt": (occupancy_3pt, 2), "5pt": (occupancy_5pt, 2),
}  # fmt: skip


def stream_occupancy() -> Iterator[Entry]:
    n = 128 * 2**20 + 2
    for ladder, gpu in (
        ("stream-occupancy-v100", "V100 (16 GB; variant not stated)"),
        ("stream-occupancy-a100_80", "A100 80GB"),
        ("stream-occupancy-h100_pcie", "H100 PCIe"),
    ):
        # the source asks for a carve-out in which two blocks fit; here dynamic memory fills the largest one
        filled = gpu_of(gpu).smem_max_kib_sm * 1024 // 2 - 1024 - 512 - 8 * SPOILER
        for block in (32, 64, 128, 256, 512, 768, 1024):
            for name, (kernel, arrays) in OCCUPANCY.items():
                args = lambda: (np.zeros(n), np.zeros(n), np.zeros(n), n)  # noqa: E731
                yield one(
                    ladder, gpu, f"{name} ", kernel, n // block + 1, block, args, gbs(8 * arrays * n), row_block=str(block), dynamic=filled
                )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- FMA chains
def fma_chains(length):
    """Two independent chains of `length` FMAs for two loads from each of two arrays. The source's compiler unrolls them."""
    whole, rest = length // 32, length % 32

    @cuda.jit
    def chains(a, b, out, loads):
        t = uint64(cuda.threadIdx.x)
        step = uint64(cuda.blockDim.x)
        i = uint64(cuda.blockIdx.x) * step * uint64(loads) + t
        end = i + step * uint64(loads)
        total = float32(0.0)
        while i < end:
            x, y = a[i], b[i]
            p = x - y
            u, v = a[i + step], b[i + step]
            q = u - v
            for _ in range(whole):
                for _ in range(32):
                    p = p * x - y
                    q = q * u - v
            for _ in range(rest):
                p = p * x - y
                q = q * u - v
            total += p + q
            i += step + step
        if t == ZERO:
            out[cuda.blockIdx.x] = total

    return chains


_chains = {length: fma_chains(length) for length in (0, 1, 2, 4, 8, 16, 24, 40, 48, 56, 64, 72, 80, 96, 128, 256, 400, 512)}


def roofline() -> Iterator[Entry]:
    loads = 64  # of 4000
    for row in rows():
        if not row["ladder"].startswith("roofline-"):
            continue
        length = int(re.search(r"N=(\d+)", row["kernel"])[1])
        blocks = int(row["grid"])
        n = blocks * 256 * loads
        args = lambda n=n, blocks=blocks: (np.zeros(n, F32), np.zeros(n, F32), np.zeros(blocks, F32), loads)  # noqa: E731
        yield one(
            row["ladder"], row["gpu"], f"FMA chain N={length} ", _chains[length], blocks, 256, args,
            gflops(blocks * 256 * loads * (2 + 2 * length)), sample=4, body=True,
            clock_mhz=float(re.search(r"@(\d+) MHz", row["kernel"])[1]),
        )  # fmt: skip


# -------------------------------------------------------------------------------------- instruction and thread parallelism
STEPS = 128  # operations of one turn, in `ilp` independent chains


def dfma(ilp):
    """The chains start anew in each turn, from an integer: conversions, a comparison for each chain."""
    per_chain = STEPS // ilp

    @cuda.jit
    def chains(start, out, turns):
        t = uint32(cuda.threadIdx.x)
        turn = uint32(0)
        while turn < uint32(turns):
            first = start + float64(t) + float64(turn)
            a = first
            b, c, d, e, f, g, h = first + 1.0, first + 2.0, first + 3.0, first + 4.0, first + 5.0, first + 6.0, first + 7.0
            for _ in range(per_chain):
                a = a * 0.9 + 0.5
                if ilp > 1:
                    b = b * 0.9 + 0.5
                if ilp > 2:
                    c = c * 0.9 + 0.5
                    d = d * 0.9 + 0.5
                if ilp > 4:
                    e = e * 0.9 + 0.5
                    f = f * 0.9 + 0.5
                    g = g * 0.9 + 0.5
                    h = h * 0.9 + 0.5
            if a > 22313.0:
                out[0] = a
            if ilp > 1 and b > 22313.0:
                out[0] = b
            if ilp > 2:
                if c > 22313.0:
                    out[0] = c
                if d > 22313.0:
                    out[0] = d
            if ilp > 4:
                if e > 22313.0:
                    out[0] = e
                if f > 22313.0:
                    out[0] = f
                if g > 22313.0:
                    out[0] = g
                if h > 22313.0:
                    out[0] = h
            turn = uint32(turn + uint32(1))

    return chains


@cuda.jit
def ddiv(start, out, turns):
    t = uint32(cuda.threadIdx.x)
    turn = uint32(0)
    while turn < uint32(turns):
        x = start + float64(t) + float64(turn)
        for _ in range(STEPS):
            x = 0.1 / (x + 0.2)
        out[uint32(t + turn)] = x
        turn = uint32(turn + uint32(1))


@cuda.jit
def dsqrt(start, out, turns):
    t = uint32(cuda.threadIdx.x)
    turn = uint32(0)
    while turn < uint32(turns):
        x = start + float64(t) + float64(turn)
        for _ in range(STEPS):
            x = math.sqrt(x + 0.2)
        out[uint32(t + turn)] = x
        turn = uint32(turn + uint32(1))


DFMA = {ilp: dfma(ilp) for ilp in (1, 2, 4, 8)}


def parallelism() -> Iterator[Entry]:
    gpu = "V100-PCIe-16GB"
    kernels = [(f"DFMA ILP={ilp}", kernel) for ilp, kernel in DFMA.items()] + [("DDIV ILP=1", ddiv), ("DSQRT ILP=1", dsqrt)]
    for (name, kernel), warps in itertools.product(kernels, (1, 2, 4, 8, 16, 32)):
        turns = 64 if name.startswith("DFMA") else 16  # of 10000
        cycles = lambda s, n=turns * STEPS * warps: s * gpu_of("V100-PCIe-16GB").clock_hz / n  # noqa: E731
        yield one(
            "ilp-tlp-v100", gpu, f"{name} warps={warps}", kernel, 1, 32 * warps, lambda turns=turns: (0.32, np.zeros(2048), turns), cycles,
            row_block=str(32 * warps), sample=None, body=True,
        )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- L1 bandwidth
def reread(real, per_thread):
    """A block of 256 adds up `per_thread` elements per thread, again and again; at most 32 loads are unrolled."""
    unrolled = min(per_thread, 32)
    parts = per_thread // unrolled

    @cuda.jit
    def sums(out, x, zero, turns):
        i = uint64(cuda.threadIdx.x)
        total = real(0.0)
        turn = ZERO
        while turn < uint64(turns):
            i += uint64(zero)
            at = i
            for _ in range(parts):
                for k in range(unrolled):
                    total += x[at + uint64(256 * k)]
                at += uint64(256 * unrolled)
            total *= real(1.3)
            turn += ONE
        if total == real(1233.0):
            out[cuda.threadIdx.x] += total

    return sums


def cache_bandwidth() -> Iterator[Entry]:
    # the program that made the older file of the V100 was one for doubles
    for ladder, gpu, dtype, real in (
        ("cache-bw-v100", "V100 (16 GB; variant not stated)", F64, float64),
        ("cache-bw-a100_80", "A100 80GB", F32, float32),
    ):
        for kib in (16, 64, 128):
            elements, sms, turns = 1024 * kib // np.dtype(dtype).itemsize, gpu_of(gpu).sms, 8192 // kib
            args = lambda n=elements, turns=turns, dtype=dtype: (np.zeros(256, dtype), np.zeros(n, dtype), 0, turns)  # noqa: E731
            kernel = _reread(real, elements // 256)
            yield one(
                ladder, gpu, f"one block/SM re-reads {kib} kB", kernel, sms, 256, args, gbs(1024.0 * kib * turns * sms), sample=2,
                cache="warm", body=True,
            )  # fmt: skip


_reread = cache(reread)


# -------------------------------------------------------------------------------------------------------------- latencies
@cuda.jit
def chase(links, out, steps):
    """Each load gives the place of the next one."""
    at = links[uint64(cuda.threadIdx.x)]
    step = ZERO
    while step < uint64(steps):
        at = links[at]
        step += ONE
    out[cuda.threadIdx.x] = at


@cuda.jit
def chase_shared(links, out, steps):
    held = cuda.shared.array(1024, uint32)
    at = uint32(cuda.threadIdx.x)
    held[at] = links[at]
    cuda.syncthreads()
    step = ZERO
    while step < uint64(steps):
        at = held[at]
        step += ONE
    out[cuda.threadIdx.x] = at


def _ring(lines, dtype):
    """One chain through `lines` lines of 128 bytes, all lanes of a warp in the same place of it."""
    per_line = 128 // np.dtype(dtype).itemsize
    links = np.zeros(lines * per_line, dtype)
    links[::per_line] = (np.arange(1, lines + 1) % lines) * per_line
    return links


def latency() -> Iterator[Entry]:
    steps = 16384
    gpu = gpu_of("RTX 2070")
    # the source times one load whose address is ready: without the instruction that makes an address of a place
    cycles = lambda s: s * gpu.clock_hz / steps - gpu.lat_alu  # noqa: E731
    for name, kernel, args in (
        ("L1 latency", chase, lambda: (_ring(64, np.uint64), np.zeros(32, np.uint64), steps)),
        ("L2 latency", chase, lambda: (_ring(2048, np.uint64), np.zeros(32, np.uint64), steps)),  # 256 KiB: beyond L1, inside L2
        ("shared latency", chase_shared, lambda: (np.zeros(32, np.uint32), np.zeros(32, np.uint32), steps)),
    ):
        yield one("latency-rtx2070", "RTX 2070", name, kernel, 1, 32, args, cycles, sample=None, cache="warm", body=True)


# --------------------------------------------------------------------------------------------------- L1 access patterns
# One block of 1024 threads, of which 128 have different addresses, loads 18 elements per turn at fixed distances from one place.
# The stored version of the source is a later one (8 loads, 64 addresses), in which the last 12 of these distances are left as a comment;
# the first six, and 128, are the only ones tried with which all tag counts of the A100 come out (strides 0 to 64, f32 and f64).
PLACES, PITCH = 128, 4098
LOADS = (0, 3, 5, 10, 12, 15, 17, 20, 22, 24, 26, 30, 32, 35, 38, 40, 43, 45)


@cuda.jit(device=True, inline=True)
def _eighteen(x, i):
    """18 loads, eight FMAs; with the caller's nine. A pipe of two lanes then takes 8.0 cycles per load, as measured on the A40."""
    v1 = x[i] + x[i + uint64(3)] * x[i + uint64(5)]
    v2 = x[i + uint64(10)] + x[i + uint64(12)] * x[i + uint64(15)]
    v3 = x[i + uint64(17)] + x[i + uint64(20)] * x[i + uint64(22)]
    v4 = x[i + uint64(24)] + x[i + uint64(26)] * x[i + uint64(30)]
    v5 = x[i + uint64(32)] + x[i + uint64(35)] * x[i + uint64(38)]
    v6 = x[i + uint64(40)] + x[i + uint64(43)] * x[i + uint64(45)]
    return v1 + v2 * v3, v4 + v5 * v6


def l1_kernels(real):
    """(threads in a row at a stride, rows of a block at a pitch) for one type of number."""

    @cuda.jit
    def strided(x, out, zero, stride, turns):
        i = uint64((uint32(cuda.threadIdx.x) % uint32(PLACES)) * uint32(stride))
        total = real(0.0)
        turn = ZERO
        while turn < uint64(turns):
            i += uint64(zero)
            u, v = _eighteen(x, i)
            total += u * v
            turn += ONE
        if total == real(123123.23):
            out[cuda.threadIdx.x] = total

    @cuda.jit
    def in_rows(x, out, zero, pitch, turns):
        column, row = uint32(cuda.threadIdx.x) % uint32(64), uint32(cuda.threadIdx.y) % uint32(32)
        i = uint64(uint32(column + row * uint32(pitch) + uint32(pitch)))
        total = real(0.0)
        turn = ZERO
        while turn < uint64(turns):
            i += uint64(zero)
            u, v = _eighteen(x, i)
            total += u * v
            turn += ONE
        if total == real(123123.23):
            out[cuda.threadIdx.x] = total

    return strided, in_rows


L1 = {"f32": (F32, *l1_kernels(float32)), "f64": (F64, *l1_kernels(float64))}
STRIDES = (0, 1, 2, 3, 4, 5, 8, 12, 15, 16, 17, 32, 33, 64)
WIDTHS = (1, 2, 4, 8, 16, 32, 64)


def l1_patterns(kind, turns):
    """(the row's kernel, kernel, block, arguments) of every published pattern, for f32 or f64."""
    dtype, strided, in_rows = L1[kind]
    for stride in STRIDES:
        size = (PLACES - 1) * stride + LOADS[-1] + 1
        yield f"stride {stride}", strided, 1024, lambda n=size, s=stride: (np.zeros(n, dtype), np.zeros(1024, dtype), 0, s, turns)
    for width in WIDTHS:
        size = 32 * PITCH + 64 + LOADS[-1]
        args = lambda n=size: (np.zeros(n, dtype), np.zeros(1024, dtype), 0, PITCH, turns)  # noqa: E731
        yield f"block shape {width}x{1024 // width} pitch {PITCH}", in_rows, (width, 1024 // width), args


def l1_access() -> Iterator[Entry]:
    turns = 48
    for kind in L1:
        for name, kernel, block, args in l1_patterns(kind, turns):
            for ladder, gpu in (("l1-access-a100", "A100"), ("l1-access-a40", "A40")):
                cycles = lambda s, gpu=gpu: s * gpu_of(gpu).clock_hz / (turns * len(LOADS) * 32)  # noqa: E731
                yield one(
                    ladder, gpu, name, kernel, 1, block, args, cycles, dtype=kind, sample=None, cache="warm", body=True, metric="cycles"
                )  # fmt: skip


def entries() -> Iterator[Entry]:
    for ladder in (babelstream, stream_occupancy, roofline, parallelism, cache_bandwidth, latency, l1_access):
        yield from ladder()
