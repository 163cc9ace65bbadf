"""The stand-in device: answers numba.cuda where it looks for a driver, while `use_engine()` is in effect.

    kernel[grid, block](args)    -> the engine                      cuda.to_device, device_array ...  -> standin_memory
    @cuda.jit("void(...)")       -> compiled without a driver       streams, events, synchronize      -> nothing to wait for
    cuda.get_current_device()    -> the chosen device's figures

Everything replaced lies in one list, `_replacements`; leaving restores all of it, on both front ends. Where it can it replaces
what numba's functions look up, not the functions, so that an earlier `from numba.cuda import to_device` follows too.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from solcourse import standin_memory as memory
from solcourse.errors import SolcourseError
from solcourse.hardware import Device
from solcourse.hardware import device as find_device
from solcourse.simt import frontend

KIB = 1024


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
            "CONCURRENT_KERNELS": 1,
            "COOPERATIVE_LAUNCH": 1,
            "CAN_MAP_HOST_MEMORY": 1,
            "UNIFIED_ADDRESSING": 1,
            "MANAGED_MEMORY": 1,
            **dict.fromkeys(("KERNEL_EXEC_TIMEOUT", "TCC_DRIVER", "PCI_DEVICE_ID", "PCI_BUS_ID", "PCI_DOMAIN_ID", "INTEGRATED"), 0),
            **{f"MAX_BLOCK_DIM_{axis}": limit for axis, limit in zip("XYZ", frontend.MAX_BLOCK, strict=True)},
            **{f"MAX_GRID_DIM_{axis}": limit for axis, limit in zip("XYZ", frontend.MAX_GRID, strict=True)},
        }

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__.get("attributes", {})
        if name in attributes:
            return attributes[name]
        raise AttributeError(f"the engine's stand-in for a {self.figures.name} does not know the device attribute {name!r}")

    def __repr__(self) -> str:
        return f"<CUDA device 0 '{self.name}'>"

    def __enter__(self) -> StandInDevice:
        return self

    def __exit__(self, *error: object) -> None: ...

    def get_primary_context(self) -> Context:
        return Context(self)

    def reset(self) -> None: ...


class Stream:
    """Launches are synchronous: a stream has nothing to wait for."""

    handle = 0

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
        return 0


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
        warnings.warn("CUDA events time the CPU engine here, not a GPU; sol.profile(...) predicts GPU time.", stacklevel=3)
        return (other.recorded_s - self.recorded_s) * 1e3


class Context:
    """numba's current context."""

    def __init__(self, device: StandInDevice):
        self.device = device

    def memalloc(self, nbytes: int) -> memory.Memory:
        return memory.Memory(memory.allocate(nbytes))

    def memallocmanaged(self, nbytes: int, attach_global: bool = True) -> np.ndarray:
        return memory.allocate(nbytes)

    def memhostalloc(self, nbytes: int, mapped: bool = False, portable: bool = False, wc: bool = False) -> np.ndarray:
        return memory.allocate(nbytes)

    def mempin(self, owner: np.ndarray, pointer: Any, size: int, mapped: bool = False) -> memory.Memory:
        return memory.Memory.of_host(owner)

    def create_stream(self) -> Stream:
        return Stream()

    get_default_stream = get_legacy_default_stream = get_per_thread_default_stream = create_stream

    def create_external_stream(self, pointer: int) -> Stream:
        return Stream()

    def create_event(self, timing: bool = True) -> Event:
        return Event()

    def get_memory_info(self) -> tuple[int, int]:
        total = int(self.device.figures.dram_gb * 1e9)
        return total, total

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


class _Runtime:
    """numba's table of contexts: always the engine's."""

    def __init__(self, gpus: Any):
        self.gpus = gpus

    @contextlib.contextmanager
    def ensure_context(self) -> Iterator[None]:
        yield

    def get_or_create_context(self, devnum: int | None = None) -> Context:
        if devnum not in (None, 0):
            raise IndexError(f"the engine has one device, number 0; got {devnum}")
        return Context(current_device())

    def reset(self) -> None: ...


class EngineKernel:
    """One compiled overload, in place of numba's _Kernel. Outside use_engine() it compiles the real kernel on first launch."""

    objectmode = False
    entry_point = None
    lifted = ()
    extensions: tuple = ()
    launch_config_sensitive = False
    const_mem_size = 0
    max_threads_per_block = frontend.MAX_BLOCK_THREADS

    def __init__(self, dispatcher: Any, arg_types: tuple):
        self.dispatcher, self.argument_types = dispatcher, arg_types
        self.ir = frontend.compile_kernel(dispatcher, arg_types)
        self.py_func, self.entry_name = dispatcher.py_func, self.ir.entry
        self.signature = frontend.void_signature(arg_types)
        self._type_annotation = self.ir.annotation
        self._codelibrary = self.library = self
        self._real: Any = None

    def launch(self, args: tuple, grid: Any, block: Any, stream: Any = 0, sharedmem: int = 0) -> None:
        if self._real is None:
            import numba.cuda.dispatcher as module

            self._real = module._Kernel(self.py_func, self.argument_types, **self.dispatcher.targetoptions)
        self._real.launch(args, grid, block, stream, sharedmem)

    def bind(self) -> None: ...

    def get_cufunc(self) -> EngineKernel:
        return self

    def get_llvm_str(self) -> str:
        return self.ir.llvm

    inspect_llvm = get_llvm_str

    @property
    def shared_mem_per_block(self) -> int:
        return self.ir.static_shared_bytes

    @property
    def regs_per_thread(self) -> int:
        raise SolcourseError("registers are estimated by sol.profile(...).registers; the engine has none of its own")

    def max_cooperative_grid_blocks(self, blockdim: Any, dynsmemsize: int = 0) -> int:
        threads = math.prod(blockdim) if isinstance(blockdim, tuple) else blockdim
        context = Context(current_device())
        per_sm = context.get_active_blocks_per_multiprocessor(self, threads, dynsmemsize)
        return per_sm * context.device.figures.sms


# ---------------------------------------------------------------------------------------------------- switching it on and off


_ACTIVE: list[Engine] = []
_RESTORE = contextlib.ExitStack()


class Engine:
    """The engine in charge of numba.cuda; `close()`, or leaving the `with` block, gives numba.cuda back."""

    def __init__(self, device: str | Device, run: Callable[[frontend.LaunchSpec, tuple], object]):
        frontend.require_compiler()
        self.device = StandInDevice(find_device(device))
        self.run = run
        if not _ACTIVE:
            _install()
        _ACTIVE.append(self)

    def close(self) -> None:
        if self in _ACTIVE:
            _ACTIVE.remove(self)
            if not _ACTIVE:
                _RESTORE.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "kernel launches go to the solcourse engine" if self in _ACTIVE else "closed"
        return f"<use_engine({self.device.figures.name!r}): {state}>"


def is_active() -> bool:
    """Whether numba.cuda's launches go to the engine."""
    return bool(_ACTIVE)


def current_device() -> StandInDevice:
    return _ACTIVE[-1].device


def _install() -> None:
    with contextlib.ExitStack() as stack:
        for holder, name, value in _replacements():
            stack.enter_context(frontend.replaced(holder, name, value))
        _RESTORE.push(stack.pop_all())


def _replacements() -> list[tuple[Any, str, Any]]:
    """(module or class, name, what it is while the engine is in charge)."""
    import numba.cuda as cuda
    import numba.cuda.api as api
    from numba.cuda import dispatcher
    from numba.cuda.cudadrv import devicearray, devices, driver

    gpus = devices.gpus
    streams = getattr(driver, "_to_core_stream", None)  # numba-cuda; the stream of a launch
    return [
        (devices, "_runtime", _Runtime(gpus)),
        (type(gpus) if "lst" in vars(type(gpus)) else gpus, "lst", _OneDevice()),
        (type(gpus), "current", property(lambda self: current_device())),
        (devicearray, "DeviceNDArray", memory.DeviceArray),
        (devicearray, "DeviceRecord", memory.DeviceRecord),
        (devicearray, "MappedNDArray", memory.MappedArray),
        (devicearray, "ManagedNDArray", memory.MappedArray),
        (devicearray, "auto_device", memory.auto_device),
        (dispatcher.CUDADispatcher, "call", _call),
        (dispatcher.CUDADispatcher, "compile", _compile),
        (dispatcher.CUDADispatcher, "compile_device", _device_compiler(dispatcher.CUDADispatcher.compile_device)),
        (dispatcher.CUDADispatcher, "enable_caching", lambda self: None),
        (cuda, "is_available", lambda: True),
        (cuda, "cuda_error", lambda: None),
        *((module, "event_elapsed_time", lambda start, stop: start.elapsed_time(stop)) for module in (cuda, api)),
        *((module, name, lambda: None) for module in (cuda, api) for name in ("profile_start", "profile_stop")),
        *((module, "profiling", contextlib.nullcontext) for module in (cuda, api)),
        *([(driver, "_to_core_stream", lambda s: s if isinstance(s, Stream) else streams(s))] if streams else []),
    ]


class _OneDevice:
    """numba's list of devices: the current stand-in."""

    def __getitem__(self, index: int) -> Any:
        return [current_device()][index]

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[StandInDevice]:
        yield current_device()


def _call(self: Any, args: tuple, *launch: Any) -> None:
    """In place of CUDADispatcher.call: numba-cuda passes its launch configuration, numba the four parts of it."""
    if len(launch) == 1:
        configured = launch[0]
        launch = (configured.griddim, configured.blockdim, configured.stream, configured.sharedmem)
    spec = frontend.launch_spec(self, *launch)
    if self._can_compile and not self.specialized:
        _compile(self, frontend.argument_types(self, args))
    _ACTIVE[-1].run(spec, args)


def _compile(self: Any, sig: Any) -> Any:
    """In place of CUDADispatcher.compile: an overload that needs no driver."""
    arg_types = frontend.normalized(sig)
    if self.specialized:
        return next(iter(self.overloads.values()))
    kernel = self.overloads.get(arg_types)
    if kernel is None:
        if not self._can_compile:
            raise RuntimeError("Compilation disabled")
        kernel = EngineKernel(self, arg_types)
        self.add_overload(kernel, arg_types)
    return kernel


def _device_compiler(original: Any) -> Any:
    """Eager device functions: compiled without a device, and kept in the function's own table, where numba expects them."""

    def compile_device(self: Any, args: tuple, return_type: Any = None) -> Any:
        if args not in self.overloads:
            with frontend.without_device():
                type(self).compile_device(self, args, return_type)
                made = dict(self.overloads)
            self.overloads.update(made)
        return self.overloads[args]

    compile_device.__wrapped__ = original  # type: ignore[attr-defined]
    return compile_device
