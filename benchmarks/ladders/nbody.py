"""All pairs of bodies, 256 of them at a time in shared memory (NVIDIA's nbody sample): nbody-fp32-open, nbody-fp64-p100.

The sample unrolls 128 pairs; 16 here, written out (NVVM leaves numba's loop rolled), with the same code per pair: one (float64: two)
16-byte loads from shared memory, 4 additions, 5 FMA (float64: 8, with the Newton steps of rsqrt), 4 multiplications and MUFU.RSQ. It is
built with -ftz=true (recalled), hence fastmath.
One step of the simulation is one launch; the interactions' FLOP are 20 and 30 as the sample counts them.
Depth is cut: a block meets DEPTH of the bodies, and the time is scaled to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32, float64, uint64
from numba.cuda import libdevice

from benchmarks.ladders.common import F32, F64, FOUR, ONE, TWO, ZERO, Entry, one

LEFT_OUT = {("nbody-fp32-open", "GeForce 940MX"): "GPU below compute capability 6.0"}
THREADS = 256
TILE = uint64(THREADS)
CELLS = 4 * THREADS
UNROLLED = 16
THREE = uint64(3)
DEPTH = 8 * THREADS


@cache
def nbody_tiled(double: bool) -> Any:
    """positions, moved (4 n,): x y z mass of each body; velocities (4 n,). The first `met` bodies attract."""
    real = float64 if double else float32
    root = libdevice.rsqrt if double else libdevice.rsqrtf
    softening, step = real(1e-3), real(0.016)
    end, quarter = uint64(CELLS), uint64(UNROLLED)  # 4 bodies are 16 numbers

    @cuda.jit(device=True, forceinline=True, fastmath=True)
    def pair(tile, sums, x, y, z, j):
        dx, dy, dz = tile[j] - x, tile[j + ONE] - y, tile[j + TWO] - z
        inverse = root(dx * dx + dy * dy + dz * dz + softening)
        pull = tile[j + THREE] * (inverse * inverse * inverse)
        sums[0] += dx * pull
        sums[1] += dy * pull
        sums[2] += dz * pull

    @cuda.jit(device=True, forceinline=True, fastmath=True)
    def four(tile, sums, x, y, z, j):
        pair(tile, sums, x, y, z, j)
        pair(tile, sums, x, y, z, j + FOUR)
        pair(tile, sums, x, y, z, j + TWO * FOUR)
        pair(tile, sums, x, y, z, j + THREE * FOUR)

    @cuda.jit(fastmath=True)
    def nbody(positions, velocities, moved, met):
        tile = cuda.shared.array(CELLS, real, alignment=16)
        t = uint64(cuda.threadIdx.x)
        i = FOUR * (uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + t)
        x, y, z = positions[i], positions[i + ONE], positions[i + TWO]
        sums = cuda.local.array(3, real)
        sums[0] = sums[1] = sums[2] = real(0.0)
        start = ZERO
        while start < uint64(met):
            for k in range(4):
                tile[FOUR * t + uint64(k)] = positions[FOUR * (start + t) + uint64(k)]
            cuda.syncthreads()
            j = ZERO
            while j < end:
                four(tile, sums, x, y, z, j)
                four(tile, sums, x, y, z, j + quarter)
                four(tile, sums, x, y, z, j + TWO * quarter)
                four(tile, sums, x, y, z, j + THREE * quarter)
                j += FOUR * quarter
            cuda.syncthreads()
            start += TILE
        vx, vy, vz = velocities[i], velocities[i + ONE], velocities[i + TWO]
        vx, vy, vz = vx + sums[0] * step, vy + sums[1] * step, vz + sums[2] * step
        moved[i], moved[i + ONE], moved[i + TWO], moved[i + THREE] = x + vx * step, y + vy * step, z + vz * step, positions[i + THREE]
        velocities[i], velocities[i + ONE], velocities[i + TWO] = vx, vy, vz

    return nbody


def _bodies(n: int, dtype: Any) -> Callable[[], tuple]:
    return lambda: (np.zeros(4 * n, dtype), np.zeros(4 * n, dtype), np.zeros(4 * n, dtype), DEPTH)


def entries() -> Iterator[Entry]:
    for ladder, gpu, n, double in (
        ("nbody-fp32-open", "RTX 4090", 131_072, False),
        ("nbody-fp32-open", "RTX 2060 Max-Q", 30_720, False),
        ("nbody-fp64-p100", "P100-PCIE-16GB", 200_192, True),
        ("nbody-fp64-p100", "P100-PCIE-16GB (second run)", 200_192, True),
    ):
        pairs = (30 if double else 20) * n * DEPTH

        def value(s: float, pairs: int = pairs) -> float:
            return pairs / s / 1e9

        yield one(ladder, gpu, "nbody -", nbody_tiled(double), n // THREADS, THREADS, _bodies(n, F64 if double else F32), value, sample=8)
