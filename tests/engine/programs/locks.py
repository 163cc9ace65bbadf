"""A mutex around a critical section, and a counter of finished blocks: the last one adds up what the others left."""

import numpy as np
from numba import cuda, int32


@cuda.jit
def append_under_lock(mutex, count, out):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(mutex, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        out[count[0]] = cuda.blockIdx.x
        count[0] += 1
        cuda.threadfence()
        cuda.atomic.exch(mutex, 0, 0)


@cuda.jit
def sum_in_one_launch(x, partial, done, out):
    s = cuda.shared.array(128, int32)
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    s[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    half = 64
    while half > 0:
        if t < half:
            s[t] += s[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        partial[cuda.blockIdx.x] = s[0]
        cuda.threadfence()
        last[0] = cuda.atomic.inc(done, 0, cuda.gridDim.x) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and t == 0:
        total = 0
        for b in range(cuda.gridDim.x):
            total += partial[b]
        out[0] = total


mutex, count, out = np.zeros(1, np.int32), np.zeros(1, np.int32), np.full(20, -1, np.int32)
append_under_lock[20, 32](mutex, count, out)
assert sorted(out.tolist()) == list(range(20)) and count[0] == 20
x = np.arange(1000, dtype=np.int32)
res = np.zeros(1, np.int64)
sum_in_one_launch[8, 128](x, np.zeros(8, np.int64), np.zeros(1, np.uint32), res)
assert res[0] == 499500
print("locks ok")
