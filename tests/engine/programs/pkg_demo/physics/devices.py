import math

from numba import cuda

EPSILON = 0.5


@cuda.jit(device=True)
def square(x):
    return x * x


@cuda.jit(device=True)
def lennard_jones(r):
    s = square(square(square(1 / r)) * 1.0) / square(square(1 / r)) * square(1 / r)
    return 4 * EPSILON * (s * s - s) if r > 0 else math.inf
