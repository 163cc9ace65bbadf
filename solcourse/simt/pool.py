"""Memory for launches, 64-byte aligned, kept from one to the next."""

from __future__ import annotations

import threading

import numpy as np


def aligned(nbytes: int, zero: bool = True) -> np.ndarray:
    """Memory of its own, 64-byte aligned."""
    raw = (np.zeros if zero else np.empty)(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


class Memory:
    """Blocks of memory kept for the next launch: fresh pages cost more than most launches do.

    clean: blocks are zero when taken and must be zero when given back."""

    KEEP_BYTES = 256 << 20

    def __init__(self, clean: bool = False) -> None:
        self._clean = clean
        self._free: dict[int, list[np.ndarray]] = {}
        self._kept = 0
        self._lock = threading.Lock()

    def renew(self) -> None:
        """After a fork: the lock may have been held by a thread that is no more."""
        self._lock = threading.Lock()

    def take(self, nbytes: int, zero: bool = True) -> np.ndarray:
        """At least nbytes, 64-byte aligned; zeroed unless zero=False."""
        size = 1 << max(12, (nbytes - 1).bit_length())
        with self._lock:
            if self._free.get(size):
                self._kept -= size
                block = self._free[size].pop()
            else:
                return aligned(size, zero or self._clean)
        if zero and not self._clean:
            block[:nbytes] = 0
        return block

    def give(self, blocks: list[np.ndarray]) -> None:
        with self._lock:
            for b in blocks:
                if self._kept + len(b) <= self.KEEP_BYTES:
                    self._kept += len(b)
                    self._free.setdefault(len(b), []).append(b)


MEMORY, CLEAN = Memory(), Memory(clean=True)  # CLEAN is for bitmaps that whoever reads them clears
