"""The stand-in device: answers numba.cuda where it looks for a driver, while `use_engine()` is in effect.

    kernel[grid, block](args)    -> the engine                      cuda.to_device, device_array ...  -> standin_memory
    @cuda.jit("void(...)")       -> compiled without a driver       streams, events, synchronize      -> nothing to wait for
    cuda.get_current_device()    -> the chosen device's figures

Everything replaced lies in one list, `_replacements`; leaving restores all of it, on both front ends. Where it can it replaces
what numba's functions look up, not the functions, so that an earlier `from numba.cuda import to_device` follows too.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from solcourse import standin_memory as memory
from solcourse.errors import LaunchError, SolcourseError
from solcourse.simt import frontend, no_device
from solcourse.simt.frozen import levels_to_program
from solcourse.standin_device import Context, StandInDevice, Stream
from solcourse.standin_errors import as_numba_has_them

if TYPE_CHECKING:
    from solcourse.launches import Launches
    from solcourse.sanitized import ProgramFindings, Sanitized


DRIVER_VERSION = (12, 9)  # the last CUDA that knows all of the course's devices


class NoDimensions(LaunchError, ValueError, TypeError):
    """A launch without [grid, block]; numba raises ValueError, or TypeError where there is one number."""


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
    max_threads_per_block = frontend.MAX_BLOCK_THREADS
    _linking_files: frozenset = frozenset()  # what numba would hand to the linker

    def __init__(self, dispatcher: Any, arg_types: tuple):
        self.dispatcher, self.argument_types = dispatcher, arg_types
        self.ir = frontend.compile_kernel(dispatcher, arg_types)
        self.py_func, self.entry_name = dispatcher.py_func, self.ir.entry
        self.signature = frontend.void_signature(arg_types)
        self._type_annotation = self.ir.annotation
        self._codelibrary = self.library = self
        self.cooperative = self.ir.is_cooperative
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

    def inspect_types(self, file: Any = None) -> None:
        """numba's own, which needs no device."""
        frontend.dispatcher_module()._Kernel.inspect_types(self, file)

    def inspect_asm(self, cc: tuple[int, int] | None = None) -> str:
        """PTX, where NVIDIA's compiler is installed."""
        return frontend.ptx(self.dispatcher, self.argument_types, cc or current_device().compute_capability)

    get_asm_str = inspect_asm

    def inspect_sass(self) -> str:
        raise SolcourseError("SASS is a GPU's own machine code, which the engine does not make; inspect_asm() gives the PTX.")

    inspect_sass_cfg = inspect_sass

    @property
    def shared_mem_per_block(self) -> int:
        return self.ir.static_shared_bytes

    @functools.cached_property
    def _compiled(self) -> Any:
        from solcourse.simt.compiler import compile_warp

        return compile_warp(self.ir, counters=False, rows_uniform=True)

    @property
    def const_mem_size(self) -> int:
        """Bytes of the global arrays that it reads."""
        return sum(size for _, size in self._compiled.constants.values())

    @property
    def local_mem_per_thread(self) -> int:
        return self._compiled.plan.local_bytes

    @property
    def regs_per_thread(self) -> int:
        """An estimate, as sol.profile's: the engine has no registers of its own."""
        from solcourse.registers import registers

        return registers(self._compiled.program, self._compiled, current_device().figures.cc).count

    def max_cooperative_grid_blocks(self, blockdim: Any, dynsmemsize: int = 0) -> int:
        from solcourse.registers import residency
        from solcourse.simt.compiler import compile_warp

        threads = math.prod(blockdim) if isinstance(blockdim, tuple) else blockdim
        compiled = compile_warp(self.ir, counters=False, rows_uniform=False)
        return residency(compiled, current_device().figures, threads, self.ir.static_shared_bytes + dynsmemsize).blocks


# ---------------------------------------------------------------------------------------------------- switching it on and off


_ACTIVE: list[Engine] = []
_RESTORE = contextlib.ExitStack()


class Engine:
    """The engine in charge of numba.cuda until `close()`, or the end of the `with` block; in another `with` block it is again.

    run: what it does with a launch. launches, sanitized: where that keeps what is to be known of them.
    """

    def __init__(self, run: Callable[[frontend.LaunchSpec, tuple], object], launches: Launches, sanitized: Sanitized | None = None):
        frontend.require_compiler()
        self.device = StandInDevice(launches.device)
        self.run, self.launches, self.sanitized = run, launches, sanitized
        self.said: set[str] = set()
        self._open()

    def _open(self) -> None:
        if not _ACTIVE:
            _install()
        _ACTIVE.append(self)

    def close(self) -> None:
        if self in _ACTIVE:
            _ACTIVE.remove(self)
            if not _ACTIVE:
                _RESTORE.close()

    def __enter__(self) -> Engine:
        if self not in _ACTIVE:  # a second `with` block
            self._open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def findings(self) -> ProgramFindings:
        """Of all launches so far. Raises SolcourseError where nobody looked, which an empty list would hide."""
        if self.sanitized is None:
            raise SolcourseError("Launches are not sanitized here: use_engine(sanitize=True) does it, or `solcourse run --sanitize`.")
        return self.sanitized.findings()

    def __repr__(self) -> str:
        state = "kernel launches go to the solcourse engine" if self in _ACTIVE else "closed"
        return f"<use_engine({self.device.figures.name!r}): {state}>"


def is_active() -> bool:
    """Whether numba.cuda's launches go to the engine."""
    return bool(_ACTIVE)


def current_device() -> StandInDevice:
    return _ACTIVE[-1].device


def first_engine() -> Engine | None:
    """The one that has been in charge longest: a program's own, under `solcourse run`."""
    return _ACTIVE[0] if _ACTIVE else None


def say_once(warning: Warning) -> None:
    """A warning at the program's line; once for each engine however often its cause comes, unless all are asked for."""
    said = _ACTIVE[-1].said if _ACTIVE else set()
    kind = f"{type(warning).__name__}: {str(warning).split()[0]}"
    action = next((action for action, message, kinds, *_ in warnings.filters if message is None and isinstance(warning, kinds)), "default")
    if kind not in said or action in ("always", "error"):
        said.add(kind)
        warnings.warn(warning, stacklevel=levels_to_program())


def _warn(warning: Warning) -> None:
    """In place of `warn` in numba's dispatcher, which says at every launch of a small grid that it is small."""
    blocks = re.match(r"Grid size (\d+) ", str(warning))
    if not blocks:
        warnings.warn(warning, stacklevel=levels_to_program())
        return
    gpu = current_device().figures
    if int(blocks[1]) < gpu.sms:
        more = f"{gpu.name} has {gpu.sms} SMs, and a block runs on one of them. Further small grids are not mentioned."
        say_once(type(warning)(f"{warning} {more}"))


def _install() -> None:
    with contextlib.ExitStack() as stack:
        for holder, name, value in _replacements():
            stack.enter_context(no_device.replaced(holder, name, value))
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
        (driver, "get_devptr_for_active_ctx", ctypes.c_uint64),
        (driver.driver, "get_device", lambda number=0: current_device()),
        (driver.driver, "get_device_count", lambda: 1),
        (driver.driver, "get_version", lambda: DRIVER_VERSION),
        (dispatcher, "warn", _warn),
        (dispatcher.CUDADispatcher, "call", _call),
        (dispatcher.CUDADispatcher, "__getitem__", _configure),
        (dispatcher._LaunchConfiguration, "__call__", _positional(dispatcher._LaunchConfiguration.__call__)),
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


def _configure(self: Any, launch: Any) -> Any:
    """In place of CUDADispatcher.__getitem__, which asks a number for its length."""
    if not isinstance(launch, tuple) or len(launch) not in (2, 3, 4):
        raise NoDimensions(f"{self.py_func.__name__}[{launch!r}]: must specify at least the griddim and blockdim: {frontend.SYNTAX}.")
    return self.configure(*launch)


def _positional(original: Any) -> Any:
    """In place of a configured launch's own call, which has no words for keyword arguments."""

    @functools.wraps(original)
    def call(self: Any, *args: Any, **keywords: Any) -> Any:
        if keywords:
            names = ", ".join(frontend.argument_names(self.dispatcher)[0])
            kernel = self.dispatcher.py_func.__name__
            raise frontend.WrongArguments(
                f"{kernel}: kernels take no keyword arguments, {', '.join(keywords)}; call it by position, ({names})."
            )
        return original(self, *args)

    return call


def _call(self: Any, args: tuple, *launch: Any) -> None:
    """In place of CUDADispatcher.call: numba-cuda passes its launch configuration, numba the four parts of it."""
    if len(launch) == 1:
        configured = launch[0]
        launch = (configured.griddim, configured.blockdim, configured.stream, configured.sharedmem)
    with as_numba_has_them():
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
            with no_device.without_device():
                type(self).compile_device(self, args, return_type)
                made = dict(self.overloads)
            self.overloads.update(made)
        return self.overloads[args]

    compile_device.__wrapped__ = original  # type: ignore[attr-defined]
    return compile_device
