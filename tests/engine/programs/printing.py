import numpy as np
from numba import cuda


@cuda.jit
def hello(x):
    i = cuda.grid(1)
    if i < 3:
        print("hello from", i, cuda.blockIdx.x, x[i], "!")


hello[1, 32](np.array([1.5, 2.5, 3.5]))
cuda.synchronize()
print("host")
