"""A GPU that is none: kernels run on the engine, time is what the test says, and the driver, CUPTI and NVML answer as told.

What is real: numba's launches, the kernels' effects on memory, every copy, and all of solcourse. What is made up: durations, clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from numba import cuda

T4 = {
    "name": "Tesla T4", "compute_capability": (7, 5), "MULTIPROCESSOR_COUNT": 40, "CLOCK_RATE": 1_590_000, "L2_CACHE_SIZE": 4 << 20,
    "GLOBAL_MEMORY_BUS_WIDTH": 256, "MEMORY_CLOCK_RATE": 5_001_000, "PCI_DOMAIN_ID": 0, "PCI_BUS_ID": 4, "PCI_DEVICE_ID": 0,
}  # fmt: skip
COPY_S = 0.1  # a copy to or on the device: nobody could overlook it inside a window


class FakeGpu:
    """In the place of numba.cuda. log: "launch", "copy", "synchronize", "wait", "event", in order; now_s: its clock."""

    def __init__(self, free_bytes: int = 8 << 30, **facts: Any):
        self.now_s, self.log, self.spans = 0.0, [], []
        self.device = SimpleNamespace(**(T4 | facts))
        self.free_bytes = free_bytes
        self.launches = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(cuda, name)

    # ---- what the driver says
    def get_current_device(self) -> Any:
        return self.device

    def current_context(self) -> Any:
        memory = SimpleNamespace(free=self.free_bytes, total=15 << 30)
        return SimpleNamespace(get_memory_info=lambda: memory)

    # ---- time
    def synchronize(self) -> None:
        self.log.append("synchronize")

    def event(self) -> Any:
        gpu = self

        class Event:
            def record(self, stream: Any = 0) -> None:
                gpu.log.append("event")
                self.at_s = gpu.now_s

            def synchronize(self) -> None: ...

        return Event()

    def event_elapsed_time(self, start: Any, stop: Any) -> float:
        return (stop.at_s - start.at_s) * 1e3

    def copied(self) -> None:
        self.log.append("copy")
        self.now_s += COPY_S

    def launch(self, configured: Any, takes: float | Callable[[int], float] = 2e-3) -> Launch:
        """kernel[grid, block] that takes so long here; a function gets the number of this launch, from 0."""
        return Launch(self, configured, takes if callable(takes) else lambda _: takes)


class Launch:
    """Numba's launch object, with a duration."""

    def __init__(self, gpu: FakeGpu, configured: Any, takes: Callable[[int], float]):
        self._gpu, self._configured, self._takes, self.count = gpu, configured, takes, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._configured, name)

    def __call__(self, *args: Any) -> None:
        gpu = self._gpu
        gpu.log.append("launch")
        start = gpu.now_s
        self._configured(*args)
        gpu.now_s += self._takes(self.count)
        self.count += 1
        gpu.spans.append((round(start * 1e9), round(gpu.now_s * 1e9)))


class FakeCupti:
    """The part of cupti-python that is used. spurious: kernels of somebody else's; broken: the error of its first call."""

    ActivityKind = SimpleNamespace(CONCURRENT_KERNEL=10, MEMCPY=1)

    def __init__(self, gpu: FakeGpu, spurious: int = 0, broken: str = ""):
        self.gpu, self.spurious, self.broken = gpu, spurious, broken
        self.enabled: list[int] = []

    def activity_register_callbacks(self, requested: Callable, completed: Callable) -> None:
        if self.broken:
            raise RuntimeError(self.broken)
        assert requested()[0] >= 1 << 20
        self.completed = completed

    def activity_enable(self, kind: int) -> None:
        self.enabled.append(kind)
        self.first = len(self.gpu.spans)

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 1, "buffers that are not full would be kept back"
        spans = self.gpu.spans[self.first :] + [(1, 2)] * self.spurious
        records = [SimpleNamespace(kind=10, start=start, end=end, name="k") for start, end in reversed(spans)]
        self.completed([*records, SimpleNamespace(kind=1, start=1, end=10**9)])  # in no order, a copy among them

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)


class FakeNvml:
    """libnvidia-ml. clocks: MHz at each look, the last for ever; reasons: NVML's bits at each look; limit and default: watts."""

    def __init__(self, clocks: tuple[int, ...] = (1590,), reasons: tuple[int, ...] = (0,), limit: int = 70, default: int = 70):
        self.clocks, self.reasons, self.limit, self.default = list(clocks), list(reasons), limit, default
        self.addresses: list[bytes] = []

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, address: bytes, handle: Any) -> int:
        self.addresses.append(address)
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, value: Any) -> int:
        assert kind == 1  # NVML_CLOCK_SM
        return self._answer(value, self._next(self.clocks))

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, value: Any) -> int:
        return self._answer(value, self._next(self.reasons))

    def nvmlDeviceGetPowerManagementLimit(self, handle: Any, value: Any) -> int:
        return self._answer(value, self.limit * 1000)

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: Any, value: Any) -> int:
        return self._answer(value, self.default * 1000)

    @staticmethod
    def _next(values: list[int]) -> int:
        return values.pop(0) if len(values) > 1 else values[0]

    @staticmethod
    def _answer(value: Any, number: int) -> int:
        value._obj.value = number
        return 0
