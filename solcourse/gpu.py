"""The GPU behind numba.cuda: whether there is one, what its driver says of it, and which published figures are its own.

With nvml.py, timers.py and launch_arrays.py, all that touches a device. Everything else here is arithmetic on GpuFacts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from solcourse import units
from solcourse.errors import NoGPU, UnknownName
from solcourse.hardware import MIB, Device, device_of_driver, devices

CURE = (
    "sol.profile(...) predicts the time without a GPU. To measure, use a machine with an NVIDIA GPU and driver (a free Colab or "
    "Kaggle GPU runtime will do) and install numba-cuda[cu13], or numba-cuda[cu12] for an older driver; `solcourse doctor` checks."
)
SAME = 0.02  # figures closer than this are the same
SAME_MEMORY = 0.1  # data sheets count 10^9 bytes, drivers 2^30, and both leave out what ECC takes


@dataclass(frozen=True)
class GpuFacts:
    """What the driver says of the current GPU. None: it does not say.

    boost_mhz    CLOCK_RATE: the highest SM clock
    memory_mhz   MEMORY_CLOCK_RATE; two transfers per clock, whatever the kind of memory
    """

    name: str
    cc: str
    sms: int
    boost_mhz: float | None = None
    l2_bytes: int = 0
    bus_bits: int | None = None
    memory_mhz: float | None = None
    memory_bytes: int | None = None

    @property
    def dram_bytes_per_s(self) -> float | None:
        """2 transfers x clock x bus width: what data sheets call the bandwidth.

        >>> GpuFacts("Tesla T4", "7.5", 40, bus_bits=256, memory_mhz=5001).dram_bytes_per_s
        320064000000.0
        """
        return 2 * self.memory_mhz * 1e6 * self.bus_bits / 8 if self.memory_mhz and self.bus_bits else None


def facts(cuda: Any) -> GpuFacts:
    """What the driver says of numba's current GPU."""
    gpu = cuda.get_current_device()

    def ask(attribute: str) -> int | None:
        try:
            return int(getattr(gpu, attribute)) or None
        except Exception:  # each front end and driver has its own error for what it does not know
            return None

    clock, transfers = ask("CLOCK_RATE"), ask("MEMORY_CLOCK_RATE")  # kHz
    return GpuFacts(
        name=gpu.name.decode() if isinstance(gpu.name, bytes) else str(gpu.name),
        cc="{}.{}".format(*gpu.compute_capability),
        sms=ask("MULTIPROCESSOR_COUNT") or 0,
        boost_mhz=clock / 1e3 if clock else None,
        l2_bytes=ask("L2_CACHE_SIZE") or 0,
        bus_bits=ask("GLOBAL_MEMORY_BUS_WIDTH"),
        memory_mhz=transfers / 1e3 if transfers else None,
        memory_bytes=memory(cuda)[1],
    )


def memory(cuda: Any) -> tuple[int | None, int | None]:
    """(free, total) bytes of device memory; (None, None) where its manager, a pool, does not tell."""
    try:
        found = cuda.current_context().get_memory_info()
    except NotImplementedError:
        return None, None
    return int(found.free), int(found.total)


def gpu_name() -> str:
    """The name of the current GPU, as its driver gives it. Raises NoGPU, with the reason and a cure."""
    return facts(require_cuda()).name


def figures_of(gpu: str) -> Device:
    """The published figures of a GPU by its driver's name, e.g. 'NVIDIA A100-SXM4-80GB' or 'NVIDIA H100 80GB HBM3'.

    Raises UnknownName: there are none; a near relative's would give a wrong score without saying so.
    """
    found = _named(gpu)
    if found is None:
        raise UnknownName("device", gpu, [d.name for d in devices()])
    return found


def figures_for(gpu: GpuFacts) -> Device:
    """The same for a GPU whose driver was asked: the error has the Device to begin with, made of what the driver said."""
    found = _named(gpu.name)
    if found is None:
        raise UnknownName("device", gpu.name, [d.name for d in devices()], _how_to(gpu))
    return found


def _named(gpu: str) -> Device | None:
    try:
        return device_of_driver(gpu)
    except UnknownName:
        return None


def relative_of(gpu: GpuFacts) -> Device:
    """The device of the table that is nearest by compute capability, then by SMs."""
    return min(devices(all=True), key=lambda d: (abs(float(d.cc) - float(gpu.cc)), abs(d.sms - gpu.sms)))


def own_figures(gpu: GpuFacts) -> dict[str, Any]:
    """The fields of Device that the driver knows, for a GPU that is in no table: sizes, clock, bandwidth, and peaks that follow."""
    like = relative_of(gpu)
    own: dict[str, Any] = {"name": gpu.name, "sms": gpu.sms}
    if gpu.boost_mhz:
        per_lane = 2 * gpu.sms * gpu.boost_mhz * 1e6 / 1e12
        own |= {"boost_mhz": gpu.boost_mhz, "fp32_tflops": round(per_lane * like.fp32_lanes_sm, 2)}
        own |= {"fp64_tflops": round(per_lane * like.fp64_lanes_sm, 3)}
    if gpu.dram_bytes_per_s:
        own["dram_gbs_spec"] = round(gpu.dram_bytes_per_s / 1e9, 1)
    if gpu.memory_bytes:
        own["dram_gb"] = round(gpu.memory_bytes / 1e9)
    if gpu.l2_bytes:
        own["l2_mib"] = round(gpu.l2_bytes / MIB, 2)
    return own


def _how_to(gpu: GpuFacts) -> str:
    given = ", ".join(f"{key}={value!r}" for key, value in own_figures(gpu).items())
    like = relative_of(gpu).name
    return (
        f"solcourse has no published figures of the {gpu.name}. "
        f'Give them: device=dataclasses.replace(sol.device("{like}"), {given}). That is what its driver says, and for the rest (latencies, '
        f"tensor cores, L2 rate) the {like}, its nearest relative: put in what you know better. Or score against another GPU: "
        f'device="{like}".'
    )


def differences(gpu: GpuFacts, device: Device) -> tuple[str, ...]:
    """What the driver says otherwise than the figures a measurement is scored against; empty where they agree."""
    return tuple(_differences(gpu, device))


def _differences(gpu: GpuFacts, device: Device) -> Iterator[str]:
    def off(mine: float, table: float, allowed: float = SAME) -> bool:
        return bool(mine and table) and abs(mine / table - 1) > allowed

    if gpu.cc != device.cc:
        yield f"compute capability {gpu.cc}, in the figures {device.cc}"
    if gpu.sms != device.sms:
        part = ": a part of the chip (MIG, MPS), and peaks are the whole chip's" if gpu.sms < device.sms else ""
        yield f"{gpu.sms} SMs, in the figures {device.sms}{part}"
    if gpu.boost_mhz and off(gpu.boost_mhz, device.boost_mhz):
        yield f"boost clock {units.clock(gpu.boost_mhz * 1e6)}, in the figures {units.clock(device.boost_mhz * 1e6)}"
    if off(gpu.l2_bytes, device.l2_bytes):
        yield f"L2 {units.binary_size(gpu.l2_bytes)}, in the figures {units.binary_size(device.l2_bytes)}"
    if gpu.dram_bytes_per_s and off(gpu.dram_bytes_per_s, device.dram_bytes_per_s):
        mine, table = units.bytes_per_s(gpu.dram_bytes_per_s), units.bytes_per_s(device.dram_bytes_per_s)
        yield f"DRAM at {mine} by its clock and bus, in the figures {table}"
    if gpu.memory_bytes and off(gpu.memory_bytes, device.dram_gb * 1e9, SAME_MEMORY):
        yield f"{units.size(gpu.memory_bytes)} of memory, in the figures {units.size(device.dram_gb * 1e9)}"


def require_cuda() -> Any:
    """numba.cuda with a working GPU behind it. Raises NoGPU."""
    from solcourse import standin

    if standin.is_active():
        raise NoGPU("use_engine() is in effect, so launches go to the CPU engine: close it before measuring on a real GPU.")
    from numba import cuda
    from numba.core import config

    if getattr(config, "ENABLE_CUDASIM", False):
        raise NoGPU(f"NUMBA_ENABLE_CUDASIM is set: numba.cuda is a simulator. Unset it and restart Python. {CURE}")
    try:
        cuda.current_context()
    except Exception as error:  # the driver's absence shows as ImportError, CudaSupportError, DynamicLibNotFoundError ...
        reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        detail = cuda.cuda_error() or reason[0]
        raise NoGPU(
            f"There is no usable NVIDIA GPU here ({' '.join(str(detail).split())}). {CURE}"
        ) from None  # the driver's own traceback helps nobody
    return cuda
