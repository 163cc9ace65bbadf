import numpy as np
from numba import cuda, float32

RADIUS = 3
MASK = np.array([1, 6, 15, 20, 15, 6, 1], np.float32) / 64
TILE = 128
WIDTH = TILE + 2 * RADIUS


@cuda.jit
def convolve(x, y):
    mask = cuda.const.array_like(MASK)
    tile = cuda.shared.array(WIDTH, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    tile[t + RADIUS] = x[i] if i < x.size else 0
    if t < RADIUS:
        tile[t] = x[i - RADIUS] if i >= RADIUS else 0
        r = i + TILE
        tile[t + TILE + RADIUS] = x[r] if r < x.size else 0
    cuda.syncthreads()
    if i < y.size:
        acc = float32(0)
        for k in range(2 * RADIUS + 1):
            acc += mask[k] * tile[t + k]
        y[i] = acc


@cuda.jit
def blur(image, out):
    y, x = cuda.grid(2)
    if 0 < y < image.shape[0] - 1 and 0 < x < image.shape[1] - 1:
        for c in range(3):
            total = 0
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    total += image[y + dy, x + dx, c]
            out[y, x, c] = total // 9


x = np.random.default_rng(0).random(5000, dtype=np.float32)
y = np.zeros_like(x)
convolve[-(-x.size // TILE), TILE](x, y)
np.testing.assert_allclose(y, np.convolve(x, MASK, "same"), rtol=1e-5)
image = np.random.default_rng(0).integers(0, 256, (50, 60, 3), dtype=np.uint8)
out = np.zeros_like(image)
blur[(4, 4), (16, 16)](image, out)
want = sum(image[1 + dy : 49 + dy, 1 + dx : 59 + dx].astype(int) for dy in (-1, 0, 1) for dx in (-1, 0, 1)) // 9
assert (out[1:-1, 1:-1] == want).all()
print("convolution ok")
