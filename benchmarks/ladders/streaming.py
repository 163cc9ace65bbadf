"""One pass over arrays: vector add, residual, memcpy by access width, quick GELU in half precision, fused ReLU + layer norm.

The published figures are DRAM-bound but for narrow accesses and small blocks. Eight-byte accesses of two floats are written as int64
with its halves taken apart: free in SASS (a register pair), two integer operations each in the counts here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint64
from numba.core.types import float16
from numba.cuda import libdevice

from .common import F32, ONE, TWO, ZERO, Entry, Launch, gbs, one, thread, times, zeros

LEFT_OUT = {
    ("vecadd-liu-v100", "c=a+b float4"): "16-byte global accesses: no numba twin",
    ("memcpy-width-leimao-3090", "CUDA Official Memcpy"): "library call",
    ("memcpy-width-leimao-3090", "Custom Device Memcpy 16-Byte"): "16-byte global accesses: no numba twin",
    ("fusion-relu-ln-3050", "unfused CuPy"): "library call",
}


# --------------------------------------------------------------------------------------------------------------------- add
@cuda.jit
def add(a, b, c):
    i = thread()
    c[i] = a[i] + b[i]


@cuda.jit
def add_pairs(a, b, c):  # (n/2,) int64 each: two float32
    i = thread()
    x, y = a[i], b[i]
    low = libdevice.int_as_float(int32(x)) + libdevice.int_as_float(int32(y))
    high = libdevice.int_as_float(int32(x >> int64(32))) + libdevice.int_as_float(int32(y >> int64(32)))
    c[i] = int64(libdevice.float_as_int(low)) & int64(0xFFFFFFFF) | int64(libdevice.float_as_int(high)) << int64(32)


@cuda.jit
def add_guarded(out, a, b):
    i = thread()
    if i < uint64(out.size):
        out[i] = a[i] + b[i]


@cuda.jit
def add_grid_stride(out, a, b):
    i = thread()
    step = uint64(cuda.blockDim.x) * uint64(cuda.gridDim.x)
    while i < uint64(out.size):
        out[i] = a[i] + b[i]
        i += step


# -------------------------------------------------------------------------------------------------------------------- copy
@cuda.jit
def copy_grid_stride(dst, src):
    i = thread()
    step = uint64(cuda.blockDim.x) * uint64(cuda.gridDim.x)
    while i < uint64(dst.size):
        dst[i] = src[i]
        i += step


def copy_through_shared(dtype: Any) -> Any:
    @cuda.jit
    def copy_shared(dst, src):
        held = cuda.shared.array(1024, dtype)
        t = uint64(cuda.threadIdx.x)
        i = thread()
        step = uint64(cuda.blockDim.x) * uint64(cuda.gridDim.x)
        while i < uint64(dst.size):
            held[t] = src[i]
            dst[i] = held[t]
            i += step

    return copy_shared


SHARED_COPY = {name: copy_through_shared(np.dtype(name)) for name in ("int8", "int16", "int32", "int64")}


@cuda.jit
def copy_wide(dst, src):
    """dst, src: (units,) of the wide type. The source copies the last unit element by element, hence the second comparison."""
    i = thread()
    step = uint64(cuda.blockDim.x) * uint64(cuda.gridDim.x)
    while i < uint64(dst.size):
        if i + ONE < uint64(dst.size):
            dst[i] = src[i]
        i += step


@cuda.jit
def copy_blocked(src, dst, per_thread):  # natural numba, as published: the int64 index wraps around
    base = cuda.grid(1) * per_thread
    for i in range(per_thread):
        dst[base + i] = src[base + i]


@cuda.jit
def copy_striped(src, dst, per_thread):
    base = cuda.grid(1)
    step = cuda.gridsize(1)
    for i in range(per_thread):
        dst[base + i * step] = src[base + i * step]


# -------------------------------------------------------------------------------------------------- quick GELU, float16
# onnxruntime's elementwise kernels: 256 threads, four elements per thread, 256 apart
PER_THREAD, T = 4, uint64(256)


@cuda.jit(device=True, inline=True)
def sigmoid(v):
    """Of a float32, by the exponential of a negative number; the source rounds the steps to half."""
    e = float16(libdevice.expf(-abs(float32(v))))
    part = float16(1.0) / (float16(1.0) + e)
    return part if v >= float16(0.0) else float16(1.0) - part


@cuda.jit
def quick_gelu(x, y):
    i = uint64(cuda.blockIdx.x) * uint64(PER_THREAD) * T + uint64(cuda.threadIdx.x)
    a, b, c, d = x[i], x[i + T], x[i + TWO * T], x[i + uint64(3) * T]
    alpha = float16(1.702)
    y[i] = a * sigmoid(a * alpha)
    y[i + T] = b * sigmoid(b * alpha)
    y[i + TWO * T] = c * sigmoid(c * alpha)
    y[i + uint64(3) * T] = d * sigmoid(d * alpha)


@cuda.jit(device=True, inline=True)
def quick_gelu_slope(dy, x):
    v = x * float16(1.702)
    s = sigmoid(v)
    return dy * s * (float16(1.0) + v * (float16(1.0) - s))


@cuda.jit
def quick_gelu_grad(dy, x, dx):
    i = uint64(cuda.blockIdx.x) * uint64(PER_THREAD) * T + uint64(cuda.threadIdx.x)
    j, k, m = i + T, i + TWO * T, i + uint64(3) * T
    a, b, c, d = x[i], x[j], x[k], x[m]
    p, q, r, s = dy[i], dy[j], dy[k], dy[m]
    dx[i] = quick_gelu_slope(p, a)
    dx[j] = quick_gelu_slope(q, b)
    dx[k] = quick_gelu_slope(r, c)
    dx[m] = quick_gelu_slope(s, d)


@cuda.jit
def half_scale(x, y):
    i = uint64(cuda.blockIdx.x) * uint64(PER_THREAD) * T + uint64(cuda.threadIdx.x)
    j, k, m = i + T, i + TWO * T, i + uint64(3) * T
    a, b, c, d = x[i], x[j], x[k], x[m]
    alpha = float16(1.702)
    y[i], y[j], y[k], y[m] = a * alpha, b * alpha, c * alpha, d * alpha


@cuda.jit
def half_sigmoid(x, y):
    i = uint64(cuda.blockIdx.x) * uint64(PER_THREAD) * T + uint64(cuda.threadIdx.x)
    j, k, m = i + T, i + TWO * T, i + uint64(3) * T
    a, b, c, d = x[i], x[j], x[k], x[m]
    y[i], y[j], y[k], y[m] = sigmoid(a), sigmoid(b), sigmoid(c), sigmoid(d)


@cuda.jit
def half_multiply(x, z, y):
    i = uint64(cuda.blockIdx.x) * uint64(PER_THREAD) * T + uint64(cuda.threadIdx.x)
    j, k, m = i + T, i + TWO * T, i + uint64(3) * T
    a, b, c, d = x[i], x[j], x[k], x[m]
    p, q, r, s = z[i], z[j], z[k], z[m]
    y[i], y[j], y[k], y[m] = a * p, b * q, c * r, d * s


@cuda.jit(device=True, inline=True)
def sigmoid_slope(dy, s):
    return dy * s * (float16(1.0) - s)


@cuda.jit
def half_sigmoid_grad(dy, s, dx):
    i = uint64(cuda.blockIdx.x) * uint64(PER_THREAD) * T + uint64(cuda.threadIdx.x)
    j, k, m = i + T, i + TWO * T, i + uint64(3) * T
    a, b, c, d = s[i], s[j], s[k], s[m]
    p, q, r, t = dy[i], dy[j], dy[k], dy[m]
    dx[i], dx[j], dx[k], dx[m] = sigmoid_slope(p, a), sigmoid_slope(q, b), sigmoid_slope(r, c), sigmoid_slope(t, d)


@cuda.jit
def half_add(x, z, y):
    i = uint64(cuda.blockIdx.x) * uint64(PER_THREAD) * T + uint64(cuda.threadIdx.x)
    j, k, m = i + T, i + TWO * T, i + uint64(3) * T
    a, b, c, d = x[i], x[j], x[k], x[m]
    p, q, r, s = z[i], z[j], z[k], z[m]
    y[i], y[j], y[k], y[m] = a + p, b + q, c + r, d + s


# ------------------------------------------------------------------------------------------------------ ReLU + layer norm
@cuda.jit
def relu_layernorm(x, out, n, eps):
    """A block of 256 per row, three reads of it, two trees in shared memory."""
    held = cuda.shared.array(256, float32)
    t, size = uint64(cuda.threadIdx.x), uint64(cuda.blockDim.x)
    row, n = uint64(cuda.blockIdx.x) * uint64(n), uint64(n)
    total = float32(0.0)
    i = t
    while i < n:
        total += max(x[row + i], float32(0.0))
        i += size
    held[t] = total
    cuda.syncthreads()
    step = size >> ONE
    while step > ZERO:
        if t < step:
            held[t] += held[t + step]
        cuda.syncthreads()
        step >>= ONE
    mean = held[0] / float32(n)
    total = float32(0.0)
    i = t
    while i < n:
        off = max(x[row + i], float32(0.0)) - mean
        total += off * off
        i += size
    cuda.syncthreads()  # the source has none here: its mean may be another thread's sum
    held[t] = total
    cuda.syncthreads()
    step = size >> ONE
    while step > ZERO:
        if t < step:
            held[t] += held[t + step]
        cuda.syncthreads()
        step >>= ONE
    scale = libdevice.rsqrtf(held[0] / float32(n) + eps)
    i = t
    while i < n:
        out[row + i] = (max(x[row + i], float32(0.0)) - mean) * scale
        i += size


# ----------------------------------------------------------------------------------------------------------------- entries
def vecadd() -> Iterator[Entry]:
    n, gpu = 2**25, "Tesla V100"
    yield one("vecadd-liu-v100", gpu, "c=a+b float", add, n // 256, 256, zeros(n, n, n), gbs(12 * n))
    pairs = zeros(n // 2, n // 2, n // 2, dtype=np.int64)
    yield one("vecadd-liu-v100", gpu, "c=a+b float2", add_pairs, n // 512, 256, pairs, gbs(12 * n))


def residual() -> Iterator[Entry]:
    n = 8 * 1024 * 768
    for size in (32, 64, 128, 256, 512, 1024):
        for label, kernel, blocks in (("kernel1", add_guarded, n // size), ("kernel2", add_grid_stride, n // 2 // size)):
            yield one("residual-llmc-3070", "RTX 3070", label, kernel, blocks, size, zeros(n, n, n), times(1e3), row_block=str(size))


def memcpy_width() -> Iterator[Entry]:
    ladder, gpu, n = "memcpy-width-leimao-3090", "RTX 3090", 2**27
    for name in ("int8", "int16", "int32", "int64"):
        own = zeros(n, n, dtype=np.dtype(name))
        size = np.dtype(name).itemsize
        for label, kernel, units, args in (
            ("Custom Device Memcpy", copy_grid_stride, n, own),
            ("Custom Device Memcpy with Shared Memory", SHARED_COPY[name], n, own),
            ("Custom Device Memcpy 4-Byte", copy_wide, n * size // 4, zeros(n * size // 4, n * size // 4, dtype=np.int32)),
            ("Custom Device Memcpy 8-Byte", copy_wide, n * size // 8, zeros(n * size // 8, n * size // 8, dtype=np.int64)),
        ):
            yield one(ladder, gpu, label, kernel, units // 1024, 1024, args, times(1e3), dtype=name)


def numba_copy() -> Iterator[Entry]:
    n, gpu = 2**28, "T4 (colab gpuType in notebook metadata)"
    args = lambda: (np.zeros(n, np.int64), np.zeros(n, np.int64), 64)  # noqa: E731
    for label, kernel in (("numba copy_blocked", copy_blocked), ("numba copy_optimized", copy_striped)):
        yield one("numba-copy-t4", gpu, label, kernel, 16384, 256, args, times(1e3))


def quickgelu() -> Iterator[Entry]:
    n, gpu = 64 * 128 * 2048, "Tesla V100"

    def launch(kernel, arrays):
        return Launch(kernel, n // 1024, 256, zeros(*[n] * arrays, dtype=np.float16))

    two = (launch(half_multiply, 3), launch(half_multiply, 3))
    for label, launches in (
        ("QuickGelu fwd 3 ops", (launch(half_scale, 2), launch(half_sigmoid, 2), launch(half_multiply, 3))),
        ("QuickGelu fwd fused", (launch(quick_gelu, 2),)),
        ("QuickGelu bwd unfused", (*two, launch(half_sigmoid_grad, 3), launch(half_scale, 2), launch(half_add, 3))),
        ("QuickGelu bwd fused", (launch(quick_gelu_grad, 3),)),
    ):
        yield Entry("quickgelu-ort-v100", gpu, label, launches, times(1e6))


def fusion() -> Iterator[Entry]:
    rows, n = 4096, 1024
    args = lambda: (np.zeros(rows * n, F32), np.zeros(rows * n, F32), n, F32(1e-5))  # noqa: E731
    yield one("fusion-relu-ln-3050", "RTX 3050 (4GB)", "fused RawKernel", relu_layernorm, rows, 256, args, times(1e3))


def entries() -> Iterator[Entry]:
    for ladder in (vecadd, residual, memcpy_width, numba_copy, quickgelu, fusion):
        yield from ladder()
