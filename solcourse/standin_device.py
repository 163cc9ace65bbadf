"""The stand-in's device, context, stream and event: numba's objects, with published figures and nothing to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from solcourse import standin_memory as memory
from solcourse.errors import SolcourseError
from solcourse.hardware import Device
from solcourse.simt import frontend
from solcourse.simt.device_memory import SharedMemory, allocate

KIB = 1024
HAS = (
    "CONCURRENT_KERNELS", "COOPERATIVE_LAUNCH", "CAN_MAP_HOST_MEMORY", "UNIFIED_ADDRESSING", "MANAGED_MEMORY", "CONCURRENT_MANAGED_ACCESS",
    "GPU_OVERLAP", "STREAM_PRIORITIES_SUPPORTED", "GLOBAL_L1_CACHE_SUPPORTED", "LOCAL_L1_CACHE_SUPPORTED", "COMPUTE_PREEMPTION_SUPPORTED",
)  # fmt: skip
HAS_NOT = (
    "KERNEL_EXEC_TIMEOUT", "TCC_DRIVER", "PCI_DEVICE_ID", "PCI_BUS_ID", "PCI_DOMAIN_ID", "INTEGRATED", "ECC_ENABLED", "COMPUTE_MODE",
    "MULTI_GPU_BOARD", "MULTI_GPU_BOARD_GROUP_ID", "COOPERATIVE_MULTI_DEVICE_LAUNCH", "PAGEABLE_MEMORY_ACCESS",
)  # fmt: skip


class StandInDevice:
    """numba's Device object, with the figures of a hardware.Device. Attributes are CUDA's, upper case."""

    id = 0
    supports_float16 = True

    def __init__(self, figures: Device):
        major, minor = (int(part) for part in figures.cc.split("."))
        self.figures = figures
        self.name = f"{figures.name} (solcourse engine)"
        self.compute_capability = (major, minor)
        self.supports_bfloat16 = (major, minor) >= (8, 0)
        self.supports_fp8 = (major, minor) >= (8, 9)
        self.uuid = "GPU-00000000-0000-0000-0000-000000000000"
        self.attributes = {
            "COMPUTE_CAPABILITY_MAJOR": major,
            "COMPUTE_CAPABILITY_MINOR": minor,
            "MULTIPROCESSOR_COUNT": figures.sms,
            "WARP_SIZE": 32,
            "CLOCK_RATE": int(figures.boost_mhz * 1000),
            "L2_CACHE_SIZE": figures.l2_bytes,
            "TOTAL_CONSTANT_MEMORY": 64 * KIB,
            "MAX_THREADS_PER_BLOCK": frontend.MAX_BLOCK_THREADS,
            "MAX_THREADS_PER_MULTI_PROCESSOR": figures.max_threads_sm,
            "MAX_BLOCKS_PER_MULTIPROCESSOR": figures.max_blocks_sm,
            "MAX_REGISTERS_PER_BLOCK": figures.regs32_sm,
            "MAX_REGISTERS_PER_MULTIPROCESSOR": figures.regs32_sm,
            "MAX_SHARED_MEMORY_PER_BLOCK": 48 * KIB,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": figures.smem_max_kib_block * KIB,
            "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": figures.smem_max_kib_sm * KIB,
            "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": figures.fp32_lanes_sm // figures.fp64_lanes_sm,
            "MAX_PITCH": 2**31 - 1,
            "TEXTURE_ALIGNMENT": 512,
            "ASYNC_ENGINE_COUNT": 2,
            **dict.fromkeys(HAS, 1),
            **dict.fromkeys(HAS_NOT, 0),
            **{f"MAX_BLOCK_DIM_{axis}": limit for axis, limit in zip("XYZ", frontend.MAX_BLOCK, strict=True)},
            **{f"MAX_GRID_DIM_{axis}": limit for axis, limit in zip("XYZ", frontend.MAX_GRID, strict=True)},
        }

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__.get("attributes", {})
        if name in attributes:
            return attributes[name]
        near = difflib.get_close_matches(name, attributes, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise AttributeError(f"the engine's stand-in for the {self.figures.name} does not know the device attribute {name!r}{hint}")

    def __repr__(self) -> str:
        return f"<CUDA device 0 '{self.name}'>"

    def __enter__(self) -> StandInDevice:
        return self

    def __exit__(self, *error: object) -> None: ...

    def get_primary_context(self) -> Context:
        return Context(self)

    def reset(self) -> None: ...


_DEFAULT_STREAMS = {0: "Default ", 1: "Legacy default ", 2: "Per-thread default "}  # by CUDA's own numbers
_HANDLES = itertools.count(3)


class Stream:
    """Launches are synchronous: a stream has nothing to wait for."""

    def __init__(self, handle: int = 0, *, external: bool = False):
        self.handle, self.external = handle, external

    def synchronize(self) -> None: ...

    @contextlib.contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        yield self

    def add_callback(self, callback: Callable[[Any, int, Any], None], arg: Any = None) -> None:
        callback(self, 0, arg)

    def async_done(self) -> asyncio.Future:
        future = asyncio.get_running_loop().create_future()
        future.set_result(self)
        return future

    def __int__(self) -> int:
        return self.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def __repr__(self) -> str:
        kind = "External CUDA stream" if self.external else f"{_DEFAULT_STREAMS.get(self.handle, '')}CUDA stream"
        return f"<{kind}>" if self.handle in _DEFAULT_STREAMS else f"<{kind} {self.handle}>"


class Event:
    """Records the host's clock. elapsed_time is the engine's time on this CPU: it says nothing about a GPU, and warns so."""

    def __init__(self) -> None:
        self.recorded_s: float | None = None

    def record(self, stream: Any = 0) -> None:
        self.recorded_s = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait(self, stream: Any = 0) -> None: ...

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds of CPU time from this event to `other`."""
        if self.recorded_s is None or other.recorded_s is None:
            raise SolcourseError("an event was never recorded: call event.record() before and after the work")
        from solcourse.standin import say_once

        say_once(UserWarning("CUDA events time the CPU engine here, not a GPU; sol.profile(...) predicts GPU time."))
        return (other.recorded_s - self.recorded_s) * 1e3


class MemoryInfo(NamedTuple):
    """Bytes of device memory: nothing here is ever taken."""

    free: int
    total: int


class Context:
    """numba's current context."""

    def __init__(self, device: StandInDevice):
        self.device = device

    def memalloc(self, nbytes: int) -> memory.Memory:
        return memory.Memory(allocate(nbytes))

    def memallocmanaged(self, nbytes: int, attach_global: bool = True) -> np.ndarray:
        return allocate(nbytes, SharedMemory)

    def memhostalloc(self, nbytes: int, mapped: bool = False, portable: bool = False, wc: bool = False) -> np.ndarray:
        return allocate(nbytes, SharedMemory)

    def mempin(self, owner: np.ndarray, pointer: Any, size: int, mapped: bool = False) -> memory.Memory:
        return memory.Memory.of_host(owner)

    def create_stream(self) -> Stream:
        return Stream(next(_HANDLES))

    def get_default_stream(self) -> Stream:
        return Stream(0)

    def get_legacy_default_stream(self) -> Stream:
        return Stream(1)

    def get_per_thread_default_stream(self) -> Stream:
        return Stream(2)

    def create_external_stream(self, pointer: int) -> Stream:
        """Another library's stream, by its handle."""
        if not isinstance(pointer, int):
            raise TypeError("ptr for external stream must be an int")
        return Stream(pointer, external=True)

    def create_event(self, timing: bool = True) -> Event:
        return Event()

    def get_memory_info(self) -> MemoryInfo:
        total = int(self.device.figures.dram_gb * 1e9)
        return MemoryInfo(total, total)

    def get_active_blocks_per_multiprocessor(self, kernel: Any, block: int, shared_bytes: int = 0, flags: Any = None) -> int:
        from solcourse.occupancy import occupancy

        static = getattr(kernel, "shared_mem_per_block", 0)
        return occupancy(self.device.figures, block, 32, shared_bytes + static).blocks_per_sm

    def get_max_potential_block_size(
        self, func: Any, b2d_func: Any, memsize: int, blocksizelimit: int, flags: Any = None
    ) -> tuple[int, int]:
        """(blocks that fill the device, threads per block): the largest block that divides an SM's threads."""
        threads = next(n for n in range(min(blocksizelimit, 1024), 0, -32) if self.device.figures.max_threads_sm % n == 0)
        return self.device.figures.sms * (self.device.figures.max_threads_sm // threads), threads

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        yield

    def synchronize(self) -> None: ...
    def prepare_for_use(self) -> None: ...
    def push(self) -> None: ...
    def pop(self) -> None: ...
    def reset(self) -> None: ...
