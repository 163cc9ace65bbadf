"""The SM clock of a GPU and what holds it back, asked of NVML: the library that every NVIDIA driver brings (nvidia-smi is made of it).

Called directly, through its C interface: no package is needed, and a question takes microseconds, so that the clock can be looked at
between two launches, before it falls. Source of names and bits: NVIDIA's nvml.h.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LIBRARIES = ("nvml.dll",) if sys.platform == "win32" else ("libnvidia-ml.so.1",)
CLOCK_SM = 1
# nvmlClocksEventReason*: bit -> why the clock is below its highest; bit 0 (idle) says nothing
REASONS = {
    0x02: "clocks set by hand",
    0x04: "power limit",
    0x08: "hardware slowdown",
    0x10: "clock kept equal to other GPUs'",
    0x20: "temperature",
    0x40: "temperature (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


@dataclass(frozen=True)
class Clock:
    """The SM clock at one moment, MHz, and what held it back then (values of REASONS)."""

    sm_mhz: float
    held_back: tuple[str, ...] = ()


@dataclass(frozen=True)
class Power:
    """Watts a board may take now, and as it comes from the factory."""

    limit_w: float
    default_w: float


def reasons(bits: int) -> tuple[str, ...]:
    """The words for NVML's bits.

    >>> reasons(0x1 | 0x4 | 0x40)
    ('power limit', 'temperature (hardware)')
    """
    return tuple(words for bit, words in REASONS.items() if bits & bit)


class Nvml:
    """One GPU, by its address on the PCI bus. Every answer is None where NVML does not give it (a MIG slice, a virtual machine)."""

    def __init__(self, pci_bus_id: str, library: Any = None):
        self._library = library if library is not None else _load()
        self._handle = ctypes.c_void_p()
        self._works = bool(self._library) and self._ask("nvmlInit_v2")
        self._works = self._works and self._ask("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.encode(), ctypes.byref(self._handle))

    @classmethod
    def of(cls, cuda: Any) -> Nvml:
        """Of numba's current GPU."""
        gpu = cuda.get_current_device()
        try:
            return cls(f"{gpu.PCI_DOMAIN_ID:08x}:{gpu.PCI_BUS_ID:02x}:{gpu.PCI_DEVICE_ID:02x}.0")
        except Exception:  # a driver that does not give its address away
            return cls("", library=False)

    def clock(self) -> Clock | None:
        mhz = self._number(ctypes.c_uint, "nvmlDeviceGetClockInfo", CLOCK_SM)
        if mhz is None:
            return None
        bits = self._number(ctypes.c_ulonglong, "nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # its name before driver 535
            bits = self._number(ctypes.c_ulonglong, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return Clock(float(mhz), reasons(bits or 0))

    def power(self) -> Power | None:
        limit = self._number(ctypes.c_uint, "nvmlDeviceGetPowerManagementLimit")
        default = self._number(ctypes.c_uint, "nvmlDeviceGetPowerManagementDefaultLimit")
        return Power(limit / 1e3, default / 1e3) if limit and default else None

    def _number(self, kind: Any, function: str, *arguments: int) -> int | None:
        value = kind()
        said = self._works and self._ask(function, self._handle, *arguments, ctypes.byref(value))
        return int(value.value) if said else None

    def _ask(self, function: str, *arguments: Any) -> bool:
        call: Callable[..., int] | None = getattr(self._library, function, None)
        return call is not None and call(*arguments) == 0


def _load() -> Any:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
