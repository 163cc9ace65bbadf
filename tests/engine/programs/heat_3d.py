import numpy as np
from numba import cuda


@cuda.jit
def diffuse(u, v, k):
    i, j, l = cuda.grid(3)
    nx, ny, nz = u.shape
    if 1 <= i < nx - 1 and 1 <= j < ny - 1 and 1 <= l < nz - 1:
        v[i, j, l] = u[i, j, l] + k * (
            u[i - 1, j, l] + u[i + 1, j, l] + u[i, j - 1, l] + u[i, j + 1, l] + u[i, j, l - 1] + u[i, j, l + 1] - 6 * u[i, j, l]
        )


u = np.zeros((20, 18, 22))
u[10, 9, 11] = 1000
want = u.copy()
a, b = cuda.to_device(u), cuda.to_device(u)
threads = (4, 4, 8)
blocks = tuple((n + t - 1) // t for n, t in zip(u.shape, threads))
for step in range(6):
    diffuse[blocks, threads](a, b, 0.1)
    a, b = b, a
    c = want[1:-1, 1:-1, 1:-1]
    new = want.copy()
    new[1:-1, 1:-1, 1:-1] = c + 0.1 * (
        want[:-2, 1:-1, 1:-1]
        + want[2:, 1:-1, 1:-1]
        + want[1:-1, :-2, 1:-1]
        + want[1:-1, 2:, 1:-1]
        + want[1:-1, 1:-1, :-2]
        + want[1:-1, 1:-1, 2:]
        - 6 * c
    )
    want = new
np.testing.assert_allclose(a.copy_to_host(), want, rtol=1e-12)
print("heat ok")
