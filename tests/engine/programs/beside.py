import numba
from numba import cuda


@cuda.jit("float64(float64)", device=True)
def cube(x):
    return x * x * x


@numba.njit
def shared_code(x):
    return x + 1
