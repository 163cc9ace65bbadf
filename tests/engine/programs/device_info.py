"""What courses ask a GPU about itself before they begin."""

import numpy as np
from numba import cuda

assert cuda.is_available()
cuda.detect()
dev = cuda.get_current_device()
print("NAME", dev.name.decode() if isinstance(dev.name, bytes) else dev.name)
for attribute in [
    "MAX_THREADS_PER_BLOCK",
    "MAX_BLOCK_DIM_X",
    "MAX_GRID_DIM_X",
    "MULTIPROCESSOR_COUNT",
    "WARP_SIZE",
    "MAX_SHARED_MEMORY_PER_BLOCK",
    "COMPUTE_CAPABILITY_MAJOR",
    "COMPUTE_CAPABILITY_MINOR",
    "CLOCK_RATE",
    "MAX_REGISTERS_PER_BLOCK",
    "TOTAL_CONSTANT_MEMORY",
    "ASYNC_ENGINE_COUNT",
    "L2_CACHE_SIZE",
    "MAX_THREADS_PER_MULTI_PROCESSOR",
    "CAN_MAP_HOST_MEMORY",
    "UNIFIED_ADDRESSING",
    "CONCURRENT_KERNELS",
    "INTEGRATED",
    "PCI_BUS_ID",
    "ECC_ENABLED",
    "MANAGED_MEMORY",
    "COMPUTE_MODE",
    "TEXTURE_ALIGNMENT",
    "MAX_PITCH",
]:
    assert isinstance(getattr(dev, attribute), int), attribute
assert dev.compute_capability >= (6, 0)
cuda.select_device(0)
print(len(cuda.gpus), len(cuda.gpus.lst), cuda.gpus[0].name == cuda.gpus.current.name, cuda.list_devices())
for gpu in cuda.gpus:
    print(gpu.id, gpu.compute_capability)
with cuda.gpus[0]:
    d = cuda.to_device(np.arange(3))
assert d.copy_to_host().tolist() == [0, 1, 2]
free, total = cuda.current_context().get_memory_info()
assert 0 < free <= total
print(cuda.runtime.get_version())
cuda.current_context().synchronize()
ctx = dev.get_primary_context()
print(dev.uuid, dev.supports_float16)
cuda.current_context().reset()
dev.reset()
cuda.close()
print("device ok")
