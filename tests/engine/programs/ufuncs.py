import math

import numpy as np
from numba import cuda, float64, guvectorize, vectorize


@vectorize(["float32(float32, float32)", "float64(float64, float64)"], target="cuda")
def rel_diff(x, y):
    return 2 * (x - y) / (x + y)


@cuda.jit(device=True)
def polar_to_cartesian(rho, theta):
    return rho * math.cos(theta), rho * math.sin(theta)


@vectorize(["float32(float32, float32, float32, float32)"], target="cuda")
def polar_distance(rho1, theta1, rho2, theta2):
    x1, y1 = polar_to_cartesian(rho1, theta1)
    x2, y2 = polar_to_cartesian(rho2, theta2)
    return ((x1 - x2) ** 2 + (y1 - y2) ** 2) ** 0.5


@guvectorize(["void(float32[:,:], float32[:,:], float32[:,:])"], "(m,n),(n,p)->(m,p)", target="cuda")
def matmulcore(A, B, C):
    m, n = A.shape
    n, p = B.shape
    for i in range(m):
        for j in range(p):
            C[i, j] = 0
            for k in range(n):
                C[i, j] += A[i, k] * B[k, j]


@guvectorize([(float64[:], float64[:])], "(n)->()", target="cuda")
def row_mean(a, out):
    acc = 0.0
    for v in a:
        acc += v
    out[0] = acc / a.shape[0]


x = np.random.rand(3000).astype(np.float32)
y = np.random.rand(3000).astype(np.float32) + 1
np.testing.assert_allclose(rel_diff(x, y), 2 * (x - y) / (x + y), rtol=1e-4, atol=1e-6)
np.testing.assert_allclose(rel_diff(x.astype(float), 3.0), 2 * (x.astype(float) - 3) / (x.astype(float) + 3))
d = polar_distance(x, y, y, x)
assert d.dtype == np.float32 and d.shape == x.shape
dx, dy = cuda.to_device(x), cuda.to_device(y)
out = cuda.device_array_like(dx)
rel_diff(dx, dy, out=out)
np.testing.assert_allclose(out.copy_to_host(), 2 * (x - y) / (x + y), rtol=1e-4, atol=1e-6)
on_device = rel_diff(dx, dy)
assert not isinstance(on_device, np.ndarray)
on_device.copy_to_host()
rel_diff(x.reshape(50, 60), y.reshape(50, 60))


@vectorize(["int64(int64, int64)"], target="cuda")
def add(a, b):
    return a + b


assert add.reduce(np.arange(101)) == 5050
A = np.random.rand(20, 3, 4).astype(np.float32)
B = np.random.rand(20, 4, 5).astype(np.float32)
np.testing.assert_allclose(matmulcore(A, B), A @ B, rtol=1e-5)
np.testing.assert_allclose(row_mean(np.arange(12.0).reshape(3, 4)), [1.5, 5.5, 9.5])
stream = cuda.stream()
with stream.auto_synchronize():
    rel_diff(dx, dy, out=out, stream=stream)
print("ufuncs ok")
