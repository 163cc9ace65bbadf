"""solcourse: GPU kernel optimisation by score, on any laptop. The public names; each loads its module on first use.

Importing this loads neither numba, matplotlib nor ipywidgets.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# public name -> module that defines it. A module never bears a public name: `sol.profile` must stay callable.
_HOME = {
    "run": "verbs",
    "profile": "verbs",
    "sanitize": "verbs",
    "measure": "verbs",
    "compare": "verbs",
    "calibrate": "calibration",
    "use_engine": "verbs",
    "ptx": "assembly",
    "sass": "assembly",
    "check": "exercises",
    "dashboard": "lesson",
    "exercise": "lesson",
    "hello": "lesson",
    "guess": "lesson",
    "task": "lesson",
    "assert_solved": "lesson",
    "show": "showing",
    "device": "hardware",
    "devices": "hardware",
    "Device": "hardware",
    "DEFAULT_DEVICE": "hardware",
    "Work": "work",
    "fuse": "work",
    "sol_time_s": "roofline",
    "sol_score": "roofline",
    "anchored_score": "roofline",
    "mfu": "roofline",
    "active_efficiency": "roofline",
    "ridge_point": "roofline",
    "Report": "report",
    "Assembly": "assembly",
    "AllDevices": "all_devices",
    "Sensitivity": "what_if",
    "Comparison": "comparison",
    "Verdict": "exercises",
    "Finding": "simt.records",
    "Findings": "findings",
    "Counts": "simt.records",
    "SolcourseError": "errors",
    "KernelError": "errors",
    "KernelTypeError": "errors",
    "UnsupportedKernel": "errors",
    "LaunchError": "errors",
    "OutOfBounds": "errors",
    "BarrierError": "errors",
    "RunawayKernel": "errors",
    "UnknownName": "errors",
    "NoGPU": "errors",
    "CourseNotFound": "errors",
    "WorkError": "errors",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'solcourse' has no attribute {name!r}")
    return getattr(importlib.import_module(f"solcourse.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
