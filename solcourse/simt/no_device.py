"""numba's compiler without a device, for a moment: what it asks a driver for, answered; what is broken without one, repaired."""

from __future__ import annotations

import contextlib
import importlib
import operator
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

COMPUTE_CAPABILITY = (8, 0)  # what kernels are compiled for: counts must not depend on the device
DATA_LAYOUT = (
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-"
    "v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
)  # Source: NVVM IR specification, section "Data Layout"
LOCK = threading.RLock()  # one compilation at a time: numba's modules are changed meanwhile
_DEVICE_OVERLOADS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # device function -> overloads made here


def front_end() -> str:
    """'numba-cuda' (the package of that name) or 'numba' (its built-in numba.cuda)."""
    import numba.cuda

    return "numba-cuda" if "numba_cuda" in (numba.cuda.__file__ or "") else "numba"


def dispatcher_module() -> Any:
    """numba.cuda.dispatcher, whose names lead to the type and signature modules of either front end."""
    return importlib.import_module("numba.cuda.dispatcher")


class _Stub:
    """An object with the attributes given."""

    def __init__(self, **attributes: Any):
        self.__dict__.update(attributes)


_DEVICE = _Stub(compute_capability=COMPUTE_CAPABILITY, id=0, supports_float16=True, supports_bfloat16=True, supports_fp8=False)
_CONTEXT = _Stub(device=_DEVICE)
_NVVM = _Stub(data_layout=DATA_LAYOUT, get_ir_version=lambda: (2, 0, 3, 2), get_version=lambda: (2, 0))


@contextlib.contextmanager
def without_device() -> Iterator[None]:
    """Inside, numba compiles for COMPUTE_CAPABILITY and asks neither driver nor libNVVM. Restores everything on exit.

    Device functions are compiled with line information into overload tables of our own: nothing made here is left in the
    learner's dispatchers, where a real GPU would find it, and nothing made for a GPU is taken from there.
    """
    import numba.cuda.api as api
    from numba.cuda.cudadrv import nvvm
    from numba.cuda.dispatcher import CUDADispatcher

    lent: dict[Any, OrderedDict] = {}
    here, ask = threading.get_ident(), api.current_context  # other threads of the program go on asking

    def current_context(devnum: int | None = None) -> Any:
        return _CONTEXT if threading.get_ident() == here else ask(devnum)

    compile_device = getattr(CUDADispatcher.compile_device, "__wrapped__", CUDADispatcher.compile_device)

    def compile_device_here(self: Any, args: tuple, return_type: Any = None) -> Any:
        if self not in lent:
            lent[self] = self.overloads
            self.overloads = _DEVICE_OVERLOADS.setdefault(self, OrderedDict())
        options, self.targetoptions = self.targetoptions, {**self.targetoptions, "lineinfo": True}
        try:
            return compile_device(self, args, return_type)
        finally:
            self.targetoptions = options

    with LOCK, numba_lock(), contextlib.ExitStack() as stack:
        stack.enter_context(replaced(api, "current_context", current_context))
        stack.enter_context(replaced(nvvm, "NVVM", lambda: _NVVM))
        _repair_min_max()
        stack.enter_context(replaced(CUDADispatcher, "compile_device", compile_device_here))
        try:
            yield
        finally:
            for dispatcher, overloads in lent.items():
                dispatcher.overloads = overloads


def numba_lock() -> Any:
    """numba's own compiler lock (numba-cuda has one of its own)."""
    return dispatcher_module().global_compiler_lock


@contextlib.contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    """`holder.name` is `value` inside; afterwards what it was."""
    missing = object()
    before = vars(holder).get(name, missing)
    setattr(holder, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(holder, name)
        else:
            setattr(holder, name, before)


_REPAIRED = False


def _repair_min_max() -> None:
    """numba's built-in numba.cuda picks the CPU's max(*x) overload, which its CUDA pipeline cannot compile.

    Scalars and tuples get templates of the CUDA target, as numba-cuda has them. Installed at the first compilation, into
    numba's CUDA target only. float32 and float64 pairs keep numba's own __nv_fmax lowering.
    """
    global _REPAIRED
    if _REPAIRED or front_end() == "numba-cuda":
        return
    _REPAIRED = True
    from numba.core import cgutils, types
    from numba.core.imputils import Registry as Lowerings
    from numba.core.target_extension import target_override
    from numba.core.typing.templates import AbstractTemplate, Registry, signature
    from numba.cpython.builtins import do_minmax
    from numba.cuda.descriptor import cuda_target

    typings, lowerings = Registry(), Lowerings()
    ordered = (types.Number, types.NPDatetime, types.NPTimedelta)

    def install(function: Any, compare: Any) -> None:
        class MinMax(AbstractTemplate):
            key = function
            metadata = {"target": "cuda"}

            def generic(self, args: tuple, kws: dict) -> Any:
                is_tuple = len(args) == 1 and isinstance(args[0], types.BaseTuple)
                kinds = list(args[0]) if is_tuple else args
                if kws or not kinds or not all(isinstance(kind, ordered) for kind in kinds) or kinds is args and len(args) < 2:
                    return None
                result = self.context.unify_types(*kinds)
                return None if result is None else signature(result, *args)

        typings.register_global(function)(MinMax)

        @lowerings.lower(function, types.BaseTuple)
        def of_tuple(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return do_minmax(context, builder, list(sig.args[0]), cgutils.unpack_tuple(builder, args[0]), compare)

        @lowerings.lower(function, types.VarArg(types.Any))
        def of_scalars(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return do_minmax(context, builder, sig.args, args, compare)

    install(max, operator.gt)
    install(min, operator.lt)
    with target_override("cuda"):  # a refresh for another target would drop numba's own declarations for cuda, for good
        for context, registry in ((cuda_target.typing_context, typings), (cuda_target.target_context, lowerings)):
            context.refresh()
            context.install_registry(registry)
