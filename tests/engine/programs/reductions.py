import numpy as np
from numba import cuda


@cuda.reduce
def sum_reduce(a, b):
    return a + b


max_reduce = cuda.Reduce(lambda a, b: a if a > b else b)

A = np.arange(1234, dtype=np.float64) + 1
assert sum_reduce(A) == A.sum()
assert sum_reduce(A[:10], init=100) == 155
assert sum_reduce(np.array([], float), init=3) == 3
d = cuda.to_device(A)
assert sum_reduce(d) == A.sum()
res = cuda.device_array(1, np.float64)
sum_reduce(d, res=res)
assert res.copy_to_host()[0] == A.sum()
assert max_reduce(np.random.permutation(A)) == 1234
assert sum_reduce(A, size=3) == 6
stream = cuda.stream()
assert sum_reduce(d, stream=stream) == A.sum()


@cuda.jit
def warp_reduce(x, out):
    i = cuda.grid(1)
    v = x[i] if i < x.size else 0.0
    offset = 16
    while offset > 0:
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, offset)
        offset //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, v)


out = np.zeros(1)
warp_reduce[-(-A.size // 128), 128](A, out)
assert out[0] == A.sum()
print("reductions ok")
