import numpy as np
from numba import cuda, int32

BINS = 64


@cuda.jit
def histogram(x, xmin, xmax, out):
    nbins = out.shape[0]
    width = (xmax - xmin) / nbins
    start = cuda.grid(1)
    stride = cuda.gridsize(1)
    for i in range(start, x.shape[0], stride):
        b = np.int32((x[i] - xmin) / width)
        if b >= 0 and b < nbins:
            cuda.atomic.add(out, b, 1)


@cuda.jit
def histogram_private(x, xmin, xmax, out):
    local = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    for b in range(t, BINS, cuda.blockDim.x):
        local[b] = 0
    cuda.syncthreads()
    width = (xmax - xmin) / BINS
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        b = int((x[i] - xmin) / width)
        if 0 <= b < BINS:
            cuda.atomic.add(local, b, 1)
    cuda.syncthreads()
    for b in range(t, BINS, cuda.blockDim.x):
        cuda.atomic.add(out, b, local[b])


@cuda.jit
def min_max(x, result):
    s = cuda.shared.array(2, dtype=np.float32)
    if cuda.threadIdx.x == 0:
        s[0] = np.inf
        s[1] = -np.inf
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.min(s, 0, x[i])
        cuda.atomic.max(s, 1, x[i])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.min(result, 0, s[0])
        cuda.atomic.max(result, 1, s[1])


x = np.random.default_rng(5).normal(size=20000).astype(np.float32)
lo, hi = np.float32(-4), np.float32(4)
want, _ = np.histogram(x, bins=BINS, range=(-4, 4))
for kernel in (histogram, histogram_private):
    out = cuda.to_device(np.zeros(BINS, np.int32))
    kernel[64, 64](x, lo, hi, out)
    got = out.copy_to_host()
    assert np.abs(got - want).sum() < 20, np.abs(got - want).sum()
ext = np.array([np.inf, -np.inf], np.float32)
min_max[-(-x.size // 256), 256](x, ext)
assert ext.tolist() == [x.min(), x.max()]
print("histogram ok")
