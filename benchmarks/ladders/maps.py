"""sqrt(x^2 + 1) sin x + cos(x / 2) for each element: numba-mathmap-3080ti.

The source's numba kernels are natural ones, `range(cuda.grid(1), n, cuda.gridsize(1))`, and so are these: what numba makes of them is
what was measured. With float32 arrays the literals 1.0 and 0.5 are float64, and the arithmetic with them. Of the C++ kernels the loop is
lean. 32 blocks per SM, 20 million values between -10 and 10: no argument of sin is large enough for the slow reduction of its range.
The source times launch and wait on the host; the smallest of 10 is quoted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32, float64, uint64
from numba.cuda import libdevice

from benchmarks.ladders.common import F32, F64, Entry, one, times

LEFT_OUT: dict[tuple[str, str], str] = {}
N = 20_000_000
BLOCKS, THREADS = 32 * 80, 256


@cuda.jit(fastmath=True)
def map_natural(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        v = x[i]
        out[i] = math.sqrt(v * v + 1.0) * math.sin(v) + math.cos(v * 0.5)


@cache
def map_lean(kind: Any, fastmath: bool = False) -> Any:
    one_, half = kind(1.0), kind(0.5)

    @cuda.jit(fastmath=fastmath)
    def mapped(x, out):
        i = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
        step = uint64(cuda.blockDim.x) * uint64(cuda.gridDim.x)
        while i < uint64(x.size):
            v = x[i]
            out[i] = math.sqrt(v * v + one_) * math.sin(v) + math.cos(v * half)
            i += step

    return mapped


@cuda.jit
def map_intrinsics(x, out):
    i = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
    step = uint64(cuda.blockDim.x) * uint64(cuda.gridDim.x)
    while i < uint64(x.size):
        v = x[i]
        out[i] = libdevice.fsqrt_rn(v * v + float32(1.0)) * libdevice.fast_sinf(v) + libdevice.fast_cosf(v * float32(0.5))
        i += step


def _values(dtype: Any) -> tuple:
    # only what the sampled blocks touch is ever read: any value below the slow reduction's threshold will do
    return np.full(N, 2.5, dtype), np.zeros(N, dtype)


def entries() -> Iterator[Entry]:
    for label, kernel, dtype in (
        ("numba fastmath fp64", map_natural, F64),
        ('numba fastmath "fp32"', map_natural, F32),
        ("CUDA C++ fp64", map_lean(float64), F64),
        ("CUDA C++ fp32", map_lean(float32), F32),
        ("CUDA C++ fp32 intrinsics", map_intrinsics, F32),
    ):
        yield one(
            "numba-mathmap-3080ti", "RTX 3080 Ti", label, kernel, BLOCKS, THREADS, lambda dtype=dtype: _values(dtype), times(1e3), sample=64
        )
