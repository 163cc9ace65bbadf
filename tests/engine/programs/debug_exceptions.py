"""Exceptions raised in kernels made with debug=True."""

import numpy as np
from numba import cuda


@cuda.jit(debug=True, opt=False)
def check(x):
    i = cuda.grid(1)
    if i < x.size:
        if x[i] < 0:
            raise ValueError("negative")
        x[i] = x[i] ** 0.5


@cuda.jit(debug=True, opt=False)
def asserting(x):
    i = cuda.grid(1)
    assert i < 5


x = np.array([4.0, -1.0, 9.0])
for kernel, kind in ((check, ValueError), (asserting, AssertionError)):
    try:
        kernel[1, 32](x)
        cuda.synchronize()
    except kind as error:
        print("caught", kind.__name__, error)
    else:
        raise SystemExit("nothing raised")
