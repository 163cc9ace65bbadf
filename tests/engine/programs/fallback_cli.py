"""Runs on the GPU where there is one, and else on the CPU; exit code 3 tells which."""

import os
import sys

import numpy as np
from numba import cuda, njit, prange


@njit(parallel=False)
def on_cpu(x):
    for i in prange(x.size):
        x[i] = x[i] ** 2


@cuda.jit
def on_gpu(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = x[i] ** 2


def main():
    x = np.arange(10.0)
    if cuda.is_available():
        try:
            cuda.select_device(int(os.environ.get("DEVICE", 0)))
        except cuda.CudaSupportError:
            return 1
        on_gpu[1, 32](x)
        return 3
    on_cpu(x)
    return 0


if __name__ == "__main__":
    code = main()
    print("exit", code, file=sys.stderr)
    sys.exit(0 if code == 3 else 1)
