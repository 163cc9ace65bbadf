import cmath
import math

import numpy as np
from numba import cuda


@cuda.jit
def fft_stage(x, y, half):
    i = cuda.grid(1)
    n = x.size
    if i < n // 2:
        k = i % half
        w = cmath.exp(-1j * math.pi * k / half)
        a = x[i]
        b = x[i + n // 2] * w
        j = (i // half) * 2 * half + k
        y[j] = a + b
        y[j + half] = a - b


n = 256
x = np.random.default_rng(0).standard_normal(n) + 1j * np.random.default_rng(1).standard_normal(n)
a, b = cuda.to_device(x), cuda.device_array(n, np.complex128)
half = 1
while half < n:
    fft_stage[4, 32](a, b, half)
    a, b = b, a
    half *= 2
np.testing.assert_allclose(a.copy_to_host(), np.fft.fft(x), rtol=1e-9, atol=1e-9)
print("fft ok")
