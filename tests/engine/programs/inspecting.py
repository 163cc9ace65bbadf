"""Looking at a kernel: its signatures, types and code; pickling it."""

import io
import pickle

import numpy as np
from numba import cuda, float32, int32, void


@cuda.jit(void(float32[:], int32), max_registers=32, lineinfo=True)
def eager(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] = i


@cuda.jit(cache=True)
def cached(x):
    x[cuda.grid(1)] = 2


x = np.zeros(32, np.float32)
eager[1, 32](x, 32)
cached[1, 32](x)
assert (x == 2).all()
text = io.StringIO()
cached.inspect_types(file=text)
assert "x[cuda.grid(1)] = 2" in text.getvalue()
assert "define" in "".join(map(str, cached.inspect_llvm().values()))
again = pickle.loads(pickle.dumps(cached))
again[1, 32](x)
assert set(cached.get_shared_mem_per_block().values()) == {0}
print("inspect ok")
