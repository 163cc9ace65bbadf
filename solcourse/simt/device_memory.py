"""The stand-in device's memory by address: which allocation a bare pointer points into."""

from __future__ import annotations

import weakref

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
