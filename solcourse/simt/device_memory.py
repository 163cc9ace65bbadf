"""The stand-in device's memory by address: which allocation a bare pointer points into."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_ALLOCATIONS: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()  # address -> bytes


def register(allocation: np.ndarray) -> np.ndarray:
    """Remember `allocation` (n,) uint8 for as long as it lives; returns it."""
    _ALLOCATIONS[int(allocation.ctypes.data)] = allocation
    return allocation


def allocation_at(address: int) -> np.ndarray | None:
    """The allocation that holds `address`, or begins there."""
    exact = _ALLOCATIONS.get(address)
    if exact is not None:
        return exact
    return next((a for start, a in list(_ALLOCATIONS.items()) if start <= address < start + a.nbytes), None)


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
