"""A GPU that is none (fake_gpu.py), wherever a test asks for one; and what a test of a real one needs."""

from __future__ import annotations

import pytest
from fake_gpu import FakeCupti, FakeGpu, FakeNvml

import solcourse as sol
from solcourse import gpu as driver
from solcourse import nvml, timers
from solcourse.standin_memory import DeviceArray


@pytest.fixture
def make_gpu(monkeypatch):
    """make_gpu(cupti=..., nvml=..., **facts) -> FakeGpu that sol.measure finds. cupti: options of FakeCupti, None for none."""
    with sol.use_engine("Tesla T4"):

        def make(cupti: dict | None = None, nvml_says: FakeNvml | None = None, **facts) -> FakeGpu:
            fake = FakeGpu(**facts)
            plain = DeviceArray.copy_to_device

            def copy_to_device(array, other, stream=0):
                fake.copied()
                plain(array, other, stream)

            def no_cupti():
                raise timers.TimerFailed("CUPTI is not installed (No module named 'cupti'): pip install cupti-python")

            monkeypatch.setattr(DeviceArray, "copy_to_device", copy_to_device)
            monkeypatch.setattr(driver, "require_cuda", lambda: fake)
            monkeypatch.setattr(timers, "_cupti", no_cupti if cupti is None else lambda: FakeCupti(fake, **cupti))
            monkeypatch.setattr(nvml, "_load", lambda: nvml_says or False)
            return fake

        yield make


def gpu_missing() -> str:
    """Why there is no GPU; '' if there is."""
    try:
        driver.gpu_name()
    except sol.NoGPU as error:
        return str(error)
    return ""


@pytest.fixture
def real_gpu() -> None:
    """Skips, with the reason, where there is no GPU."""
    missing = gpu_missing()
    if missing:
        pytest.skip(missing[:160])
