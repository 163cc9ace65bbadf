import asyncio

import numpy as np
from numba import cuda


@cuda.jit
def kernel(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += 1


async def one(data):
    stream = cuda.stream()
    d = cuda.to_device(data, stream=stream)
    kernel[2, 32, stream](d)
    out = cuda.pinned_array_like(data)
    d.copy_to_host(out, stream=stream)
    await stream.async_done()
    return out


async def main():
    data = [np.full(50, k, np.float64) for k in range(4)]
    results = await asyncio.gather(*(one(d) for d in data))
    assert [r[0] for r in results] == [1, 2, 3, 4]


asyncio.run(main())
done = []
s = cuda.stream()
s.add_callback(lambda stream, status, arg: done.append(arg), 5)
s.synchronize()
assert done == [5]
print("asyncio ok")
