"""Device arrays without a device: what cuda.to_device and its kin return while the engine is in charge.

The memory is the host's, but behaves as a GPU's: reading it takes copy_to_host, arithmetic on it does not exist, views share
their allocation, and fresh memory holds rubbish (NaN, below zero), so that reading it unwritten shows; copies and assignments
also keep the record of what has been written (simt.device_memory).

`engine_owner` (the whole allocation, uint8) and `engine_view` (the array in it) are how simt.arguments finds the memory.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from solcourse.errors import SolcourseError
from solcourse.simt.device_memory import allocate, allocation_at, bytes_written, mark_written


class Memory:
    """A part of an allocation, numba's `gpu_data`: bytes [offset, offset + size) of `owner`."""

    def __init__(self, owner: np.ndarray, offset: int = 0, size: int | None = None):
        self.owner, self.offset = owner, offset
        self.size = owner.nbytes - offset if size is None else size

    @classmethod
    def of_host(cls, array: np.ndarray) -> Memory:
        """The host array's own memory, as pinned and mapped to the device."""
        core = array.ravel(order="K") if array.flags.forc else array
        return cls(core.view(np.uint8) if core.size else np.empty(0, np.uint8))

    @classmethod
    def of(cls, pointer: Any) -> Memory:
        """numba's MemoryPointer, as cuda.as_cuda_array makes one from the address in another library's array, or a Memory."""
        if isinstance(pointer, cls):
            return pointer
        address = int(getattr(pointer.device_pointer, "value", pointer.device_pointer) or 0)
        owner = allocation_at(address) if pointer.size else allocate(0)
        if owner is None:
            raise SolcourseError(f"the address {address:#x} is in no array of the engine's: copy the array to the host first.")
        return cls(owner, address - int(owner.ctypes.data) if pointer.size else 0, pointer.size)

    @property
    def device_ctypes_pointer(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.owner.ctypes.data + self.offset)

    @property
    def device_pointer(self) -> int:
        return int(self.owner.ctypes.data) + self.offset

    def view(self, start: int, stop: int | None = None) -> Memory:
        return Memory(self.owner, self.offset + start, (self.size if stop is None else stop) - start)

    def free(self) -> None:
        """Garbage collection frees it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memory) and (self.device_pointer, self.size) == (other.device_pointer, other.size)

    def __hash__(self) -> int:
        return hash((self.device_pointer, self.size))


def device_arrays_module() -> Any:
    from numba.cuda.cudadrv import devicearray

    return devicearray


class DeviceArray:
    """An array on the stand-in device, with the interface of numba's DeviceNDArray (its constructor too)."""

    __cuda_memory__ = True
    __cuda_ndarray__ = True
    __array_priority__ = 100  # np_array + device_array is refused here, not taken elementwise by NumPy
    __array_ufunc__ = None

    def __init__(self, shape: Any, strides: Any, dtype: Any, stream: Any = 0, gpu_data: Memory | None = None):
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        if not all(isinstance(n, (int, np.integer)) for n in shape):
            raise TypeError(f"shape elements must be integers, got {shape!r}")
        if any(n < 0 for n in shape):
            raise ValueError(f"negative dimensions are not allowed: the shape is {shape}")
        strides = (strides,) if isinstance(strides, int) else tuple(strides)
        if len(shape) != len(strides):
            raise ValueError("strides not match ndim")
        dtype = _without_objects(np.dtype(dtype))
        last = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
        first = sum(v for v in last if v < 0)
        self.alloc_size = sum(abs(v) for v in last) + dtype.itemsize if math.prod(shape) else 0
        self.gpu_data = Memory(allocate(self.alloc_size)) if gpu_data is None else Memory.of(gpu_data)
        self.engine_owner = self.gpu_data.owner
        offset = self.gpu_data.offset - (first if gpu_data is None else 0)
        empty = self.alloc_size == 0  # NumPy wants room for strides even then
        self.engine_view: np.ndarray = np.empty(shape, dtype) if empty else np.ndarray(shape, dtype, self.engine_owner, offset, strides)
        self.stream = stream

    @classmethod
    def at(cls, owner: np.ndarray, view: np.ndarray, stream: Any = 0) -> DeviceArray:
        """The device array that is `view` within the allocation `owner`."""
        new = cls.__new__(cls)
        new.engine_owner, new.engine_view, new.stream = owner, view, stream
        low, high = np.lib.array_utils.byte_bounds(view) if view.size else (owner.ctypes.data, owner.ctypes.data)
        new.alloc_size = high - low
        new.gpu_data = Memory(owner, low - owner.ctypes.data, new.alloc_size)
        return new

    shape = property(lambda self: self.engine_view.shape)
    strides = property(lambda self: self.engine_view.strides)
    dtype = property(lambda self: self.engine_view.dtype)
    ndim = property(lambda self: self.engine_view.ndim)
    size = property(lambda self: self.engine_view.size)
    nbytes = property(lambda self: self.engine_view.nbytes)
    T = property(lambda self: self.transpose())
    device_ctypes_pointer = property(lambda self: ctypes.c_void_p(self.engine_view.ctypes.data))

    @property
    def flags(self) -> dict[str, bool]:
        flags, repeats = self.engine_view.flags, 0 in self.strides and bool(self.size)
        return {"C_CONTIGUOUS": flags.c_contiguous and not repeats, "F_CONTIGUOUS": flags.f_contiguous and not repeats}

    @property
    def _numba_type_(self) -> Any:
        module = device_arrays_module()
        flags = self.flags
        layout = "C" if flags["C_CONTIGUOUS"] else "F" if flags["F_CONTIGUOUS"] else "A"
        return module.types.Array(module.numpy_support.from_dtype(self.dtype), self.ndim, layout)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return _interface(self.engine_view, self.flags["C_CONTIGUOUS"], self.stream)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise AttributeError(f"device arrays have no {name!r}: NumPy's are on the host, array.copy_to_host().{name}; or write a kernel")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<device array {self.shape} {self.dtype}: on the solcourse engine; copy_to_host() to read it>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("`copy=False` is not supported. A copy is always created.")
        return self.copy_to_host().astype(dtype or self.dtype, copy=False)

    def is_c_contiguous(self) -> bool:
        return self.flags["C_CONTIGUOUS"]

    def is_f_contiguous(self) -> bool:
        return self.flags["F_CONTIGUOUS"]

    def bind(self, stream: Any = 0) -> DeviceArray:
        return self._at(self.engine_view, stream)

    def as_cuda_arg(self) -> Memory:
        return self.gpu_data

    def _at(self, view: np.ndarray, stream: Any = 0) -> DeviceArray:
        return DeviceArray.at(self.engine_owner, view, stream or self.stream)

    # ------------------------------------------------------------------------------------------------------- transfers

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Copy a host or device array of the same dtype, shape and layout to here."""
        source = ary.engine_view if hasattr(ary, "engine_view") else np.asarray(ary)
        if source.size == 0:
            return
        module = device_arrays_module()
        module.sentry_contiguous(self.engine_view)
        target = _core(self.engine_view)
        source = _core(source)
        if hasattr(ary, "engine_view"):
            module.sentry_contiguous(source)
        else:
            source = np.asarray(source, order="C" if target.flags.c_contiguous else "F")
        module.check_array_compatibility(target, source)
        self._assign(target, source, getattr(ary, "engine_owner", None))

    def copy_to_host(self, ary: Any = None, stream: Any = 0) -> Any:
        """The array's contents, in `ary` or in a new array of the same strides."""
        if any(s < 0 for s in self.strides):
            raise NotImplementedError(f"D->H copy not implemented for negative strides: {self.strides}")
        if ary is None:
            raw = np.zeros(self.alloc_size, np.uint8)
            ary = np.ndarray(self.shape, self.dtype, raw, 0, self.strides) if self.size else np.empty(self.shape, self.dtype)
            np.copyto(_core(ary), _core(self.engine_view))
            return ary
        device_arrays_module().check_array_compatibility(self.engine_view, ary)
        if isinstance(ary, np.void):  # one record
            for name in self.dtype.names:
                ary[name] = self.engine_view[name]
        else:
            np.copyto(ary, self.engine_view)
        return ary

    # ------------------------------------------------------------------------------------------------------------ views

    def __getitem__(self, item: Any) -> Any:
        return self.getitem(item)

    def getitem(self, item: Any, stream: Any = 0) -> Any:
        found = self.engine_view[_plain_index(item)]
        if isinstance(found, np.ndarray):
            return self._at(found, stream)
        if self.dtype.names is None:
            return found
        index = tuple(i if isinstance(i, slice) else slice(i, i + 1 or None) for i in _as_tuple(item))
        return DeviceRecord.at(self.engine_owner, self.engine_view[index].reshape(()), stream or self.stream)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.setitem(key, value)

    def setitem(self, key: Any, value: Any, stream: Any = 0) -> None:
        key = _plain_index(key)
        place = self.engine_view[(*key, ...)]
        shape = place.shape
        source = value.engine_view if hasattr(value, "engine_view") else np.asarray(value)
        if source.ndim > len(shape):
            raise ValueError(f"Can't assign {source.ndim}-D array to {len(shape)}-D self")
        padded = (1,) * (len(shape) - source.ndim) + source.shape
        for axis, (mine, theirs) in enumerate(zip(shape, padded, strict=True)):
            if theirs not in (1, mine):
                raise ValueError(f"Can't copy sequence with size {theirs} to array axis {axis} with dimension {mine}")
        self._assign(place, source, getattr(value, "engine_owner", None))

    def _assign(self, place: np.ndarray, source: np.ndarray, owner: np.ndarray | None) -> None:
        """Fill `place`, a part of this array, from `source`, an array in the allocation `owner` or the host's."""
        written = None if owner is None else bytes_written(owner, source, self.dtype.itemsize)
        np.copyto(place, source, casting="unsafe")
        mark_written(self.engine_owner, place, written)

    def split(self, section: int, stream: Any = 0) -> Iterator[DeviceArray]:
        """Consecutive parts of `section` elements; the last may be shorter."""
        if self.ndim != 1:
            raise ValueError("only support 1d array")
        if self.strides[0] != self.dtype.itemsize:
            raise ValueError("only support unit stride")
        for start in range(0, self.size, section):
            yield self._at(self.engine_view[start : start + section], stream)

    def _same_memory(self, new: np.ndarray, stream: Any = 0) -> DeviceArray:
        if new.size and not np.may_share_memory(new, self.engine_view):
            raise NotImplementedError("operation requires copying")
        return self._at(new, stream)

    def reshape(self, *newshape: Any, order: str = "C") -> DeviceArray:
        shape = newshape[0] if len(newshape) == 1 and isinstance(newshape[0], (tuple, list)) else newshape
        if math.prod(shape) != self.size and -1 not in shape:
            raise ValueError("reshape changes the size of the array")
        return self._same_memory(self.engine_view.reshape(shape, order=order))  # type: ignore[arg-type, call-overload]

    def ravel(self, order: str = "C", stream: Any = 0) -> DeviceArray:
        return self._same_memory(self.engine_view.ravel(order=order), stream)  # type: ignore[arg-type]

    def squeeze(self, axis: Any = None, stream: Any = 0) -> DeviceArray:
        return self._at(self.engine_view.squeeze(axis), stream)

    def view(self, dtype: Any) -> DeviceArray:
        if np.dtype(dtype).itemsize != self.dtype.itemsize and not self.is_c_contiguous():
            raise ValueError("To change to a dtype of a different size, the array must be C-contiguous")
        return self._at(self.engine_view.view(dtype))

    def transpose(self, axes: Any = None) -> DeviceArray:
        """A transposed copy, as numba's: not a view."""
        if axes and tuple(axes) == tuple(range(self.ndim)):
            return self
        if self.ndim != 2:
            raise NotImplementedError("transposing a non-2D DeviceNDArray isn't supported")
        if axes is not None and set(axes) != set(range(self.ndim)):
            raise ValueError(f"invalid axes list {axes!r}")
        new = to_device_array(np.ascontiguousarray(self.engine_view.T), self.stream, copy=False)
        new[:] = self._at(self.engine_view.T)
        return new


class DeviceRecord(DeviceArray):
    """One record on the stand-in device; its constructor is numba's DeviceRecord's."""

    def __init__(self, dtype: Any, stream: Any = 0, gpu_data: Memory | None = None):
        super().__init__((), (), dtype, stream, gpu_data)

    @property
    def _numba_type_(self) -> Any:
        return device_arrays_module().numpy_support.from_dtype(self.dtype)

    def getitem(self, item: Any, stream: Any = 0) -> Any:
        found = self.engine_view[item]
        if found.dtype.names is not None:
            return DeviceRecord.at(self.engine_owner, found, stream)
        return self._at(found, stream) if found.shape else found[()]

    def setitem(self, key: Any, value: Any, stream: Any = 0) -> None:
        self.engine_view[key] = value
        place = self.engine_view[key]
        mark_written(self.engine_owner, place if isinstance(place, np.ndarray) else self.engine_view)


class MappedArray(np.ndarray):
    """Mapped or managed memory: one array for host and device."""

    gpu_data: Any = None
    stream: Any = 0

    def __array_finalize__(self, parent: Any) -> None:
        _without_objects(self.dtype)
        self.gpu_data = getattr(parent, "gpu_data", None)

    def device_setup(self, gpu_data: np.ndarray, stream: Any = 0) -> None:
        self.gpu_data, self.stream = gpu_data, stream

    @property
    def engine_view(self) -> np.ndarray:
        return self.view(np.ndarray)

    @property
    def engine_owner(self) -> np.ndarray:
        """The allocation; results of arithmetic have memory of their own."""
        view, whole = self.engine_view, self.gpu_data
        if whole is not None and (not view.size or np.may_share_memory(view, whole)):
            return whole
        return Memory.of_host(view).owner

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        if ary is None:
            return np.array(self)
        np.copyto(ary, self)
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        np.copyto(self, np.asarray(ary))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return _interface(self.engine_view, self.flags.c_contiguous, self.stream)

    @property
    def _numba_type_(self) -> Any:
        return DeviceArray.at(self.engine_owner, self.engine_view)._numba_type_


def _interface(view: np.ndarray, contiguous: bool, stream: Any) -> dict[str, Any]:
    """CUDA's array interface, version 3."""
    return {
        "shape": view.shape,
        "strides": None if contiguous else view.strides,
        "data": (int(view.ctypes.data) if view.size else 0, False),
        "typestr": view.dtype.str,
        "stream": None if isinstance(stream, int) and stream == 0 else int(stream),
        "version": 3,
    }


def _core(array: np.ndarray) -> np.ndarray:
    """What is in memory: repeated dimensions (stride 0) have length 1. numba's array_core makes a scalar of a repeated scalar."""
    return array[(*(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides), ...)] if array.size else array


def _without_objects(dtype: np.dtype) -> np.dtype:
    """The dtype. Raises TypeError: Python's objects have no meaning on a device, and in fresh memory their addresses are rubbish."""
    if dtype.hasobject:
        raise TypeError(f"device arrays cannot hold Python objects (dtype {dtype}): convert to numbers, such as array.astype(np.float64)")
    return dtype


def _as_tuple(item: Any) -> tuple:
    return item if isinstance(item, tuple) else (item,)


def _plain_index(item: Any) -> tuple:
    index = _as_tuple(item)
    if not all(isinstance(i, (int, np.integer, slice)) for i in index):
        raise TypeError(f"device arrays are indexed by integers and slices; got {item!r}")
    return index


def to_device_array(obj: Any, stream: Any = 0, *, copy: bool = True) -> DeviceArray:
    """A device array like the host array or record `obj`, with its contents if `copy`. Raises ValueError: not contiguous."""
    if isinstance(obj, np.void):
        record = DeviceRecord(obj.dtype, stream)
        if copy:
            record.setitem((), obj)
        return record
    array = np.asanyarray(obj)
    device_arrays_module().sentry_contiguous(array)
    new = DeviceArray(array.shape, array.strides, array.dtype, stream)
    if copy:
        new.copy_to_device(array)
    return new


def auto_device(obj: Any, stream: Any = 0, copy: bool = True, user_explicit: bool = False) -> tuple[Any, bool]:
    """numba's: (device array, whether it is new)."""
    if getattr(obj, "__cuda_memory__", False):
        return obj, False
    return to_device_array(obj, stream, copy=copy), True
