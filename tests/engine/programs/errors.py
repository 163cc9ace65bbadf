"""Errors that programs catch around launches."""

import numpy as np
from numba import cuda

try:
    from numba.cuda.core.errors import TypingError  # numba-cuda
except ImportError:
    from numba.core.errors import TypingError
from numba.cuda.cudadrv.driver import CudaAPIError


@cuda.jit
def fill(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = 1


@cuda.jit
def untyped(x):
    x[0] = no_such_name  # noqa: F821


@cuda.jit
def dynamic(x):
    s = cuda.shared.array(0, np.float32)
    s[0] = x[0]
    x[1] = s[0]


x = np.zeros(64)
caught = []
try:
    fill[1, 2048](x)
except CudaAPIError:
    caught.append("block")
try:
    untyped[1, 1](x)
except TypingError:
    caught.append("typing")
try:
    fill[1, 32](x[::2])
except ValueError:
    caught.append("contiguous")
try:
    dynamic[1, 32, 0, 1 << 20](x.astype(np.float32))
except CudaAPIError:
    caught.append("shared")
try:
    fill(x)
except ValueError:
    caught.append("unconfigured")
try:
    fill[1, 32]("text")
except Exception:
    caught.append("type")
try:
    fill[1, 32](x, x)
except TypeError:
    caught.append("count")
except Exception as error:
    caught.append(f"count as {type(error).__mro__}")
try:
    cuda.select_device(7)
except Exception:
    caught.append("device")
try:
    cuda.to_device(x)[100]
except IndexError:
    caught.append("index")
try:
    cuda.to_device(x).copy_to_host(np.zeros(3))
except ValueError:
    caught.append("shape")
best = None
for threads in (128, 512, 1024, 2048, 4096):
    try:
        fill[1, threads](x)
        best = threads
    except cuda.cudadrv.driver.CudaAPIError:
        break
print(caught, best)
assert caught == ["block", "typing", "contiguous", "shared", "unconfigured", "type", "count", "device", "index", "shape"] and best == 1024
