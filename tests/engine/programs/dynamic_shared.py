import numpy as np
from numba import cuda, float32, int32


@cuda.jit
def reverse_both(x, y):
    n = cuda.blockDim.x
    floats = cuda.shared.array(0, float32)
    ints = cuda.shared.array(0, int32)[n : 2 * n]
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    floats[t] = x[i]
    ints[t] = y[i]
    cuda.syncthreads()
    x[i] = floats[n - 1 - t]
    y[i] = ints[n - 1 - t]


n = 96
x, y = np.arange(3 * n, dtype=np.float32), np.arange(3 * n, dtype=np.int32) * 2
wx = x.reshape(3, n)[:, ::-1].ravel().copy()
wy = y.reshape(3, n)[:, ::-1].ravel().copy()
reverse_both[3, n, 0, 8 * n](x, y)
assert (x == wx).all() and (y == wy).all()
print("dynamic shared ok")
