import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
from numba import cuda


@cuda.jit
def square(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= x[i]


def work(n):
    stream = cuda.stream()
    x = cuda.to_device(np.arange(n, dtype=np.float64), stream=stream)
    square[-(-n // 64), 64, stream](x)
    stream.synchronize()
    return float(x.copy_to_host().sum())


def sums(ns):
    return [float((np.arange(n) ** 2).sum()) for n in ns]


if __name__ == "__main__":
    ns = [100, 200, 333, 5000]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, ns)) == sums(ns)
    for method in ("spawn", "fork", "forkserver"):
        with ProcessPoolExecutor(2, mp_context=mp.get_context(method)) as pool:
            assert list(pool.map(work, ns)) == sums(ns), method
    print("threads and processes ok")
