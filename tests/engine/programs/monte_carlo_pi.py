"""Pi by throwing darts, and normal numbers, from numba's own random streams: one for each thread."""

import numpy as np
from numba import cuda
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_normal_float64, xoroshiro128p_uniform_float32

BLOCKS, THREADS = 24, 64


@cuda.jit
def darts(states, throws, share):
    i = cuda.grid(1)
    hits = 0
    for _ in range(throws):
        x = xoroshiro128p_uniform_float32(states, i)
        y = xoroshiro128p_uniform_float32(states, i)
        if x * x + y * y <= 1:
            hits += 1
    share[i] = hits / throws


@cuda.jit
def normals(states, out):
    i = cuda.grid(1)
    out[i] = xoroshiro128p_normal_float64(states, i)


states = create_xoroshiro128p_states(BLOCKS * THREADS, seed=1)
share = np.zeros(BLOCKS * THREADS, np.float32)
darts[BLOCKS, THREADS](states, 500, share)
assert abs(4 * share.mean() - np.pi) < 0.01
z = np.zeros(BLOCKS * THREADS)
normals[BLOCKS, THREADS](states, z)
assert abs(z.mean()) < 0.1
assert abs(z.std() - 1) < 0.1
print("pi ok")
