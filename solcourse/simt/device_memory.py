"""The stand-in device's memory: its allocations, which of their bytes have been written, and which one an address points into.

A map of what has been written exists only where something has not: for fresh memory, until a copy fills all of it or a launch that
nobody watches may have done so.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

ALIGNMENT = 256  # cudaMalloc's
POISON = 0xFF
CHUNK = 16  # bytes of shared rubbish that are looked at together: none of a program's values is this long by chance
_RUBBISH = np.random.default_rng(0).integers(0xFFFF0000, 2**32, 1 << 14, np.uint32).view(np.uint8)  # NaN, below zero, nowhere alike


class DeviceMemory(np.ndarray):
    """One allocation, (nbytes,) uint8, 256-byte aligned. `initialised`: (nbytes,) uint8, 1 where written; None: everywhere."""

    initialised: np.ndarray | None = None


class SharedMemory(DeviceMemory):
    """An allocation that the host writes too, unseen: what no longer holds the rubbish of the beginning has been written."""


_ALLOCATIONS: weakref.WeakValueDictionary[int, DeviceMemory] = weakref.WeakValueDictionary()  # address -> memory


def allocate(nbytes: int, kind: type[DeviceMemory] = DeviceMemory) -> DeviceMemory:
    """Fresh memory, which holds rubbish, so that reading it unwritten shows. Known by its address for as long as it lives."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    memory = raw[start : start + nbytes].view(kind)
    memory[:] = np.resize(_RUBBISH, nbytes) if kind is SharedMemory else POISON
    memory.initialised = np.zeros(nbytes, np.uint8)
    _ALLOCATIONS[int(memory.ctypes.data)] = memory
    return memory


def allocation_at(address: int) -> DeviceMemory | None:
    """The allocation that holds `address`, or begins there."""
    exact = _ALLOCATIONS.get(address)
    if exact is not None:
        return exact
    return next((a for start, a in list(_ALLOCATIONS.items()) if start <= address < start + a.nbytes), None)


# ------------------------------------------------------------------------------------------------- what has been written
def initialised(owner: np.ndarray) -> np.ndarray | None:
    """The map of an allocation (nbytes,) uint8, itself and not a copy; None: all has been written, as all of the host's own memory."""
    written = getattr(owner, "initialised", None)
    if written is not None and isinstance(owner, SharedMemory):
        whole = owner.nbytes // CHUNK * CHUNK
        changed = (np.asarray(owner) != np.resize(_RUBBISH, owner.nbytes))[:whole].reshape(-1, CHUNK).any(1)
        written[:whole] |= changed.repeat(CHUNK)
        written[whole:] = 1  # too short to tell
    return written


def assume_written(owner: np.ndarray) -> None:
    """Something may have written it all, and nobody looked."""
    if isinstance(owner, DeviceMemory):
        owner.initialised = None


def mark_written(owner: np.ndarray, place: np.ndarray, source: np.ndarray | None = None) -> None:
    """`place`, an array in `owner`, has been assigned to. source: bytes_written() of what was assigned, where some of it was not."""
    if not isinstance(owner, DeviceMemory) or not place.size or (owner.initialised is None and source is None):
        return
    if source is None and place.nbytes == owner.nbytes and place.flags.forc:
        owner.initialised = None
        return
    if owner.initialised is None:
        owner.initialised = np.ones(owner.nbytes, np.uint8)
    _map_of(owner, place, owner.initialised)[...] = 1 if source is None else source


def bytes_written(owner: np.ndarray, view: np.ndarray, itemsize: int) -> np.ndarray | None:
    """The map of `view`, an array in `owner`, for assignment to elements of `itemsize` bytes: (..., itemsize or 1); None: all of it.

    Of an element that is converted on its way, all bytes count as one.
    """
    written = initialised(owner)
    if written is None or not view.size:
        return None
    of_view = _map_of(owner, view, written)
    if of_view.all():
        return None
    return of_view if view.itemsize == itemsize else of_view.min(axis=-1, keepdims=True)


def _map_of(owner: np.ndarray, view: np.ndarray, written: np.ndarray) -> np.ndarray:
    """The part of `written` that belongs to `view`, with a last axis for the bytes of an element."""
    offset = view.ctypes.data - owner.ctypes.data
    return np.ndarray((*view.shape, view.itemsize), np.uint8, written, offset, (*view.strides, 1))  # type: ignore[call-overload]


@dataclass(frozen=True)
class DeviceView:
    """An array in the stand-in's memory, as another library describes it. engine_owner: (n,) uint8, the allocation it is in."""

    engine_owner: np.ndarray
    engine_view: np.ndarray

    @classmethod
    def of(cls, interface: Mapping[str, Any]) -> DeviceView:
        """From a CUDA array interface. Raises LookupError where it points into memory that is not the stand-in's."""
        shape, dtype, address = interface["shape"], np.dtype(interface["typestr"]), interface["data"][0]
        if 0 in shape:
            empty = np.empty(shape, dtype)
            return cls(empty.view(np.uint8), empty)
        owner = allocation_at(address)
        if owner is None:
            raise LookupError(f"address {address:#x} is in a real GPU's memory")
        return cls(owner, np.ndarray(shape, dtype, owner, address - int(owner.ctypes.data), interface.get("strides")))
