"""The published ladders: one module per family, each with its kernels and `entries()`."""

from __future__ import annotations

from importlib import import_module

_NAMES = (
    "micro", "streaming", "transpose", "reduction", "scan", "softmax", "layernorm", "histogram", "gemm", "best_practices", "gemv", "nbody",
    "maps",
)  # fmt: skip
MODULES = tuple(import_module(f"benchmarks.ladders.{name}") for name in _NAMES)
