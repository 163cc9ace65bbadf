import numpy as np
from numba import cuda


@cuda.jit
def bitonic_step(x, j, k):
    i = cuda.grid(1)
    other = i ^ j
    if other > i:
        up = (i & k) == 0
        if (x[i] > x[other]) == up:
            x[i], x[other] = x[other], x[i]


def sort(values):
    d = cuda.to_device(values)
    n = values.size
    k = 2
    while k <= n:
        j = k >> 1
        while j > 0:
            bitonic_step[n // 128, 128](d, j, k)
            j >>= 1
        k <<= 1
    return d.copy_to_host()


x = np.random.default_rng(0).random(2048).astype(np.float32)
assert (sort(x) == np.sort(x)).all()
print("sorted")
