"""Kernels made by factories (closures), global constants, tuples of arrays, optional arguments, enums, static loops."""

import enum
from collections import namedtuple

import numpy as np
from numba import cuda

Point = namedtuple("Point", "x y")


class Op(enum.IntEnum):
    ADD = 1
    MUL = 2


def make(op, width):
    if op == "add":
        inner = cuda.jit(device=True)(lambda a, b: a + b)
    else:
        inner = cuda.jit(device=True)(lambda a, b: a * b)

    @cuda.jit
    def kernel(x, y, out):
        tile = cuda.shared.array(width, np.float64)
        i = cuda.grid(1)
        t = cuda.threadIdx.x
        tile[t] = y[i]
        cuda.syncthreads()
        out[i] = inner(x[i], tile[width - 1 - t])

    return kernel


@cuda.jit
def with_tuple(arrays, point, op, out):
    i = cuda.grid(1)
    if i < out.size:
        if op == Op.ADD:
            out[i] = arrays[0][i] + arrays[1][i] + point.x
        else:
            out[i] = arrays[0][i] * arrays[1][i] * point.y


x, y, out = np.arange(32.0), np.arange(32.0) * 3, np.zeros(32)
make("add", 32)[1, 32](x, y, out)
assert (out == x + y[::-1]).all()
make("mul", 16)[2, 16](x, y, out)
assert (out == x * y.reshape(2, 16)[:, ::-1].ravel()).all()
with_tuple[1, 32]((x, y), Point(1.0, 2.0), Op.ADD, out)
assert (out == x + y + 1).all()
with_tuple[1, 32]((x, y), Point(1.0, 2.0), Op.MUL, out)
assert (out == x * y * 2).all()
print("closures ok")
