"""Device functions in another module beside the script, eager ones too; CPU njit functions called from kernels."""

import beside
import numpy as np
from beside import cube, shared_code
from numba import cuda, njit


@njit
def cpu_total(x):
    s = 0.0
    for v in x:
        s += shared_code(v)
    return s


@cuda.jit
def kernel(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = cube(x[i]) + beside.cube(2.0) + shared_code(x[i])


x = np.arange(50.0)
y = np.zeros_like(x)
kernel[2, 32](x, y)
np.testing.assert_array_equal(y, x**3 + 8 + x + 1)
assert cpu_total(x) == (x + 1).sum()
print("device module ok")
