import numpy as np
from numba import cuda


@cuda.jit
def bump(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += i


m = cuda.managed_array(100, dtype=np.int64)
m[:] = 5
bump[1, 128](m)
cuda.synchronize()
assert (m == 5 + np.arange(100)).all() and m.sum() == 5450
mapped = cuda.mapped_array((10, 10), dtype=np.float32, strides=None, order="C", stream=0, portable=False, wc=True)
mapped[:] = 0
host = np.zeros(100)
with cuda.pinned(host):
    d = cuda.to_device(host, stream=cuda.stream())
    bump[1, 128](d)
    d.copy_to_host(host)
assert host[99] == 99
with cuda.mapped(host) as dm:
    bump[1, 128](dm)
assert host[99] == 198
p = cuda.pinned_array_like(host)
assert cuda.is_cuda_array(d) and not cuda.is_cuda_array(host)
view = cuda.as_cuda_array(d)
bump[1, 128](view)
assert d.copy_to_host()[3] == 6
cai = cuda.from_cuda_array_interface(d.__cuda_array_interface__)
assert cai.shape == (100,)
d2 = cuda.device_array_like(host)
d2.copy_to_device(d)
assert d2.copy_to_host()[3] == 6
d2[:] = 7
d3 = cuda.to_device(np.arange(12).reshape(3, 4), copy=False)
d3.copy_to_device(np.arange(12).reshape(3, 4))
assert d3[1].copy_to_host().tolist() == [4, 5, 6, 7] and d3[2, 3] == 11 and d3.T.shape == (4, 3)
for part in d2.split(30):
    bump[1, 32](part)
assert d2.copy_to_host()[31] == 8
out = cuda.device_array(100)
cuda.synchronize()
print("memory ok", len(d3), d3.nbytes, d3.is_c_contiguous())
