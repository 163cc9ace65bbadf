"""Matrix product, plain and with tiles in shared memory, behind an argparse command line."""

import argparse
import time

import numpy as np
from numba import cuda, float32

TILE = 16


@cuda.jit
def plain(a, b, c):
    row, column = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total


@cuda.jit
def tiled(a, b, c):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        left[ty, tx] = a[row, start + tx] if row < a.shape[0] and start + tx < a.shape[1] else 0
        right[ty, tx] = b[start + ty, column] if column < b.shape[1] and start + ty < b.shape[0] else 0
        cuda.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=70)
    n = parser.parse_args().n
    rng = np.random.default_rng(0)
    a, b = rng.random((n, n + 3), np.float32), rng.random((n + 3, n), np.float32)
    d_a, d_b = cuda.to_device(a), cuda.to_device(b)
    blocks = -(-n // TILE)
    for kernel in (plain, tiled):
        d_c = cuda.device_array((n, n), np.float32)
        begun = time.perf_counter()
        kernel[(blocks, blocks), (TILE, TILE)](d_a, d_b, d_c)
        cuda.synchronize()
        assert time.perf_counter() > begun
        np.testing.assert_allclose(d_c.copy_to_host(), a @ b, rtol=1e-4)
        print(kernel.py_func.__name__, "ok")


if __name__ == "__main__":
    main()
