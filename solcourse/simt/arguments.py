"""Launch arguments, flattened as numba's data model flattens them: the definition of what a kernel's parameters receive.

An array becomes meminfo, parent, nitems, itemsize, data, shape..., strides...; a complex number two floats; a tuple its
members in turn; a record a pointer. Nothing is copied unless host arguments overlap in memory: each then is a separate
copy on the device, as on a GPU, and is written back in argument order.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from solcourse.errors import LaunchError
from solcourse.simt.captured import Captured
from solcourse.simt.device_memory import DeviceView, allocation_at, assume_written, initialised
from solcourse.simt.frontend import KernelIR, WrongArguments


class NonContiguousArray(LaunchError, ValueError):
    """A host array that cannot be copied to a GPU as one piece; numba raises ValueError for it."""


@dataclass(frozen=True)
class Allocation:
    """Memory a launch may touch: bytes [address, address + nbytes). For a device view, the whole owning allocation.

    name: the argument's; 'tuple[2]' inside tuples. itemsize and shape: of the argument, for naming an index.
    viewed_in_part: an argument is a view of only a part of it, or a bare address, so the kernel need not be meant to reach all of it.
    initialised: (nbytes,) uint8, 1 for each byte that has been written; None: all. Of device memory the very map that belongs to it
    (a copy, if the memory is one), so that who watches a launch can go on with it.
    """

    name: str
    address: int
    nbytes: int
    itemsize: int
    shape: tuple[int, ...]
    array: Any = field(repr=False)
    viewed_in_part: bool = False
    initialised: np.ndarray | None = field(default=None, repr=False)


@dataclass(frozen=True)
class BoundArguments:
    """values: (LLVM type, value) per parameter after %.ret; pointers and integers are int, floats are float.

    write_back() copies what the kernel wrote into host arrays that were passed as copies: call it after a launch that ended
    well. assume_written(): nobody watches this launch, and it may write all of its device memory. `keep` holds the memory alive.
    """

    values: tuple[tuple[str, int | float], ...]
    allocations: tuple[Allocation, ...]
    write_back: Callable[[], None]
    keep: tuple[Any, ...] = field(default=(), repr=False)

    def assume_written(self) -> None:
        for allocation in self.allocations:
            assume_written(allocation.array)


def bind(kernel: KernelIR, args: tuple, *, private: bool = False) -> BoundArguments:
    """Flatten `args` for a compiled kernel. private: all memory is copied and nothing is ever written back.

    Raises LaunchError: wrong count, wrong type, or (NonContiguousArray, also a ValueError) a host array with gaps.
    """
    binder = _Binder(kernel, private)
    for i, (kind, value) in enumerate(zip(kernel.arg_types, args, strict=True)):
        name = kernel.arg_names[i] if i < len(kernel.arg_names) else f"args[{i - len(kernel.arg_names)}]"
        binder.add(name, kind, value)
    for captured in kernel.captured:
        binder.captured(captured)
    return binder.finish()


class _Binder:
    """Collects flattened values; arrays wait until all are known, since overlapping ones have to be copied."""

    def __init__(self, kernel: KernelIR, private: bool):
        self.kernel, self.private = kernel, private
        self.flat: list[int | float | _Pointer] = []
        self.host: list[_Pointer] = []
        self.device: dict[int, Allocation] = {}
        self.after: list[Callable[[], None]] = []

    def add(self, name: str, kind: Any, value: Any) -> None:
        for extension in reversed(self.kernel.options.get("extensions", ())):
            kind, value = extension.prepare_args(kind, value, stream=0, retr=self.after)
        for classname, flatten in _FLATTEN:
            if any(base.__name__ == classname for base in type(kind).__mro__):
                flatten(self, name, kind, value)
                return
        raise WrongArguments(f"Argument {name!r} has numba type {kind}, which a kernel cannot take as an argument.")

    def array(self, name: str, kind: Any, value: Any) -> None:
        value, hint = _unwrap(value)
        if not hasattr(value, "engine_owner") and hasattr(value, "__cuda_array_interface__"):
            value = DeviceView.of(value.__cuda_array_interface__)
        if hasattr(value, "engine_owner"):
            view, pointer = value.engine_view, self.device_memory(name, value)
        else:
            view = np.asanyarray(value)
            pointer = self.host_memory(name, view, hint)
        _check_array(name, kind, view)
        self.flat += [0, 0, view.size, view.dtype.itemsize, pointer, *view.shape, *view.strides]

    def record(self, name: str, kind: Any, value: Any) -> None:
        value, hint = _unwrap(value)
        if hasattr(value, "engine_owner"):
            self.flat.append(self.device_memory(name, value))
            return
        copy = np.array(value)  # 0-d; a np.void does not give its memory away for writing
        self.flat.append(self.host_memory(name, copy, "In"))
        if hint != "In":
            self.after.append(partial(_assign_record, value, self.host[-1]))

    def device_memory(self, name: str, value: Any) -> _Pointer:
        owner, view = value.engine_owner, value.engine_view
        allocation = self.allocation(name, owner, view.dtype, view.shape)
        return _Pointer(name, view, shift=allocation.address - int(owner.ctypes.data))

    def allocation(self, name: str, owner: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> Allocation:
        """The launch's one entry for the allocation `owner` (n,) uint8, described by the first array in it."""
        key, size = int(owner.ctypes.data), dtype.itemsize
        in_part = math.prod(shape) * size != owner.nbytes
        if key not in self.device:
            memory, written = owner, initialised(owner)
            if self.private:
                memory, written = np.array(owner), None if written is None else written.copy()
            whole = (owner.nbytes // max(1, size),) if in_part else shape
            self.device[key] = Allocation(name, int(memory.ctypes.data), owner.nbytes, size, whole, memory, in_part, written)
        elif in_part:
            self.device[key] = replace(self.device[key], viewed_in_part=True)
        return self.device[key]

    def pointer(self, name: str, kind: Any, value: Any) -> None:
        """A bare address, for a kernel that takes CPointer(...): it must lie in an allocation of the stand-in device."""
        address = _wrapped(name, kind, value, "c_uint64")
        owner = allocation_at(address)
        if owner is None:
            raise WrongArguments(
                f"Argument {name!r}: the address {address:#x} is in no device array. Pass array.device_ctypes_pointer.value of an array "
                "from cuda.to_device or cuda.device_array, and keep that array alive."
            )
        from numba.np.numpy_support import as_dtype

        dtype = np.dtype(np.uint8)
        with contextlib.suppress(NotImplementedError, TypeError):  # a pointee that NumPy has no type for
            dtype = np.dtype(as_dtype(kind.dtype))
        allocation = self.allocation(name, owner, dtype, ())
        self.flat.append(address + allocation.address - int(owner.ctypes.data))

    def captured(self, array: Captured) -> None:
        """A device array from the scope around the kernel."""
        interface = array.array.__cuda_array_interface__
        self.flat.append(self.allocation(array.name, array.allocation, np.dtype(interface["typestr"]), interface["shape"]).address)

    def host_memory(self, name: str, view: np.ndarray, hint: str) -> _Pointer:
        broadcast = view.size and 0 in view.strides
        core = view[(*(0 if stride == 0 else slice(None) for stride in view.strides), ...)] if broadcast else view  # ...: not a scalar
        if not (core.flags.c_contiguous or core.flags.f_contiguous):
            raise NonContiguousArray(
                f"Argument {name!r}: Array contains non-contiguous buffer and cannot be transferred as a single memory region. "
                f"Please ensure contiguous buffer with numpy .ascontiguousarray(); shape {view.shape}, strides {view.strides} bytes. "
                "(Views with steps work on device arrays: cuda.to_device first.)"
            )
        pointer = _Pointer(name, view, core, hint)
        self.host.append(pointer)
        return pointer

    def finish(self) -> BoundArguments:
        self.separate_overlaps()
        values = [v.address if isinstance(v, _Pointer) else v for v in self.flat]
        if len(values) != len(self.kernel.parameters):
            raise LaunchError(f"{self.kernel.name}: {len(values)} argument parts for {len(self.kernel.parameters)} parameters.")
        host = [
            Allocation(p.name, p.address, p.core.nbytes, p.view.dtype.itemsize, p.view.shape, p.core, initialised=p.initialised)
            for p in self.host
        ]
        after = () if self.private else tuple(self.after)

        def write_back() -> None:
            for action in after:
                action()

        typed = tuple(zip(self.kernel.parameters, values, strict=True))
        return BoundArguments(typed, (*self.device.values(), *host), write_back, (self.flat, self.kernel.captured))

    def separate_overlaps(self) -> None:
        """A GPU holds a copy per host argument; memory is only shared here where nobody could tell."""
        private = {id(p) for p in self.host if p.hint == "In" or self.private}
        reach, last = -1, 0
        for start, stop, key in sorted((p.address, p.address + p.core.nbytes, id(p)) for p in self.host if p.core.nbytes):
            if start < reach:
                private |= {key, last}
            if stop > reach:
                reach, last = stop, key
        for pointer in self.host:
            if id(pointer) in private:
                original = pointer.detach()
                if pointer.hint != "In" and original.flags.writeable:
                    self.after.append(partial(_copy_back, pointer, original))


class _Pointer:
    """The data pointer of one argument: `view` as passed, `core` without broadcast dimensions (what is in memory)."""

    def __init__(self, name: str, view: np.ndarray, core: np.ndarray | None = None, hint: str = "InOut", shift: int = 0):
        self.name, self.view, self.hint, self.shift = name, view, hint, shift
        self.core: np.ndarray = view if core is None else core

    @property
    def address(self) -> int:
        return int(self.core.ctypes.data) + self.shift

    @property
    def initialised(self) -> np.ndarray | None:
        """Nothing of a cuda.Out(array): numba does not copy it to the device."""
        return np.zeros(self.core.nbytes, np.uint8) if self.hint == "Out" else None

    def detach(self) -> np.ndarray:
        """Move to a private copy with the same strides; returns the original memory."""
        original = self.core
        self.core = original.copy(order="K")
        return original


def _unwrap(value: Any) -> tuple[Any, str]:
    """cuda.In(a), cuda.Out(a), cuda.InOut(a) -> (a, which)."""
    if type(value).__name__ in ("In", "Out", "InOut") and hasattr(value, "value") and hasattr(value, "to_device"):
        return value.value, type(value).__name__
    return value, "InOut"


def _check_array(name: str, kind: Any, view: np.ndarray) -> None:
    """Eager signatures skip numba's checks and a GPU would reinterpret the bytes; say it instead."""
    from numba.np.numpy_support import as_dtype

    try:
        wanted = np.dtype(as_dtype(kind.dtype))
    except Exception:  # a dtype that numba cannot turn back into NumPy's (char sequences, extension types)
        wanted = view.dtype
    fits = {"C": view.flags.c_contiguous, "F": view.flags.f_contiguous}.get(kind.layout, True)
    # signed and unsigned are the same bits; dates and records are compared by size
    alike = wanted.kind in "mMV" or {wanted.kind, view.dtype.kind} == {"i", "u"}
    same = wanted == view.dtype or (wanted.itemsize == view.dtype.itemsize and alike)
    if same and kind.ndim == view.ndim and fits:
        return
    order = "C" if view.flags.c_contiguous else "F" if view.flags.f_contiguous else "A"
    raise WrongArguments(f"Argument {name!r}: the kernel was compiled for {kind}; got array({view.dtype}, {view.ndim}d, {order}).")


def _copy_back(pointer: _Pointer, original: np.ndarray) -> None:
    np.copyto(original, pointer.core)


def _assign_record(record: Any, pointer: _Pointer) -> None:
    for field_name in pointer.core.dtype.names or ():
        record[field_name] = pointer.core[field_name]


def _flatten_integer(binder: _Binder, name: str, kind: Any, value: Any) -> None:
    binder.flat.append(_wrapped(name, kind, value, f"c_{'u' * (not kind.signed)}int{kind.bitwidth}"))


def _wrapped(name: str, kind: Any, value: Any, ctype: str) -> int:
    """`value` as an integer of that ctypes type, wrapped around as C does."""
    try:
        return getattr(ctypes, ctype)(value if isinstance(value, int) else value.__index__()).value
    except (AttributeError, TypeError) as error:
        raise WrongArguments(f"Argument {name!r}: the kernel was compiled for {kind}; got {value!r}.") from error


def _flatten_float(binder: _Binder, name: str, kind: Any, value: Any) -> None:
    try:
        number = np.dtype(f"f{kind.bitwidth // 8}").type(value)
    except (TypeError, ValueError) as error:
        raise WrongArguments(f"Argument {name!r}: the kernel was compiled for {kind}; got {value!r}.") from error
    is_bits = kind.bitwidth == 16 and binder.kernel.parameters[len(binder.flat)].startswith("i")
    binder.flat.append(int(number.view(np.uint16)) if is_bits else float(number))


def _flatten_complex(binder: _Binder, name: str, kind: Any, value: Any) -> None:
    part = np.float32 if kind.bitwidth == 64 else np.float64
    binder.flat += [float(part(value.real)), float(part(value.imag))]


def _flatten_datetime(binder: _Binder, name: str, kind: Any, value: Any) -> None:
    binder.flat.append(int(value.view(np.int64)))


def _flatten_tuple(binder: _Binder, name: str, kind: Any, value: Any) -> None:
    if len(kind) != len(value):
        raise WrongArguments(f"Argument {name!r}: the kernel was compiled for {kind}; got a tuple of {len(value)}.")
    for i, (member, part) in enumerate(zip(kind, value, strict=True)):
        binder.add(f"{name}[{i}]", member, part)


def _flatten_enum(binder: _Binder, name: str, kind: Any, value: Any) -> None:
    binder.add(name, kind.dtype, value.value)


# numba-cuda has type classes of its own beside numba's: rows go by class name; the first that fits wins
_FLATTEN: tuple[tuple[str, Callable[[_Binder, str, Any, Any], None]], ...] = (
    ("Array", _Binder.array),
    ("CPointer", _Binder.pointer),
    ("Boolean", lambda binder, name, kind, value: binder.flat.append(int(bool(value)))),
    ("Integer", _flatten_integer),
    ("Float", _flatten_float),
    ("Complex", _flatten_complex),
    ("NPDatetime", _flatten_datetime),
    ("NPTimedelta", _flatten_datetime),
    ("Record", _Binder.record),
    ("BaseTuple", _flatten_tuple),
    ("EnumMember", _flatten_enum),
)
