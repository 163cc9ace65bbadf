"""Case: a reference kernel with all it takes to feed it, launch it, judge it and score it. Tests and benchmarks share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Dims = tuple[int, ...] | int


def ceil_div(a: int, b: int) -> int:
    """ceil(a / b), and at least 1: a grid of no blocks cannot be launched.

    >>> ceil_div(1000, 256), ceil_div(1024, 256), ceil_div(0, 256)
    (4, 4, 1)
    """
    return max(1, -(-a // b))


def random_array(rng: np.random.Generator, shape: int | Shape, dtype: Any) -> np.ndarray:
    """Random data of any numeric dtype: floats in [-1, 1), integers in [-50, 50) or [0, 50), booleans."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if kind in "iu":
        return rng.integers(0 if kind == "u" else -50, 50, shape).astype(dtype)
    data = rng.uniform(-1, 1, shape)
    return (data + 1j * rng.uniform(-1, 1, shape) if kind == "c" else data).astype(dtype)


def poisoned(shape: int | Shape, dtype: Any) -> np.ndarray:
    """An output array no correct kernel leaves as it is: NaN, or 99 where the dtype has none."""
    return np.full(shape, np.nan if np.dtype(dtype).kind in "fc" else 99, dtype)


@dataclass(frozen=True)
class Case:
    """One reference kernel.

    make(rng, *shape, dtype=...) -> arguments, outputs poisoned; launch(*shape) -> (grid, block)
    reference(*arguments as they were before the launch) -> the expected output, a tuple of them where there are several
    work(*shape) -> Work of the operation in float32 (the dtype of `dtypes[0]`): compulsory bytes and FLOPs, not the kernel's
    outputs      positions of the arguments the kernel writes
    shapes       sizes worth a test: the first is regular (multiples of 32), the others are odd
    tolerance    largest error allowed, relative to max(|expected|, 1); 0 means equal to the last bit
    mismatches   share of elements that may differ all the same: chaotic iterations, where one rounding decides
    warp_level   uses shuffles or votes, which numba's CUDA simulator does not have
    """

    kernel: Any
    make: Callable[..., tuple]
    launch: Callable[..., tuple[Dims, Dims]]
    reference: Callable[..., Any]
    work: Callable[..., Any]
    outputs: tuple[int, ...]
    shapes: tuple[Shape, ...]
    dtypes: tuple[Any, ...] = (np.float32,)
    tolerance: float = 0.0
    mismatches: float = 0.0
    warp_level: bool = False

    @property
    def name(self) -> str:
        return self.kernel.__name__

    def configured(self, *shape: int) -> Any:
        """numba's launch object, `kernel[grid, block]`, for this shape."""
        grid, block = self.launch(*shape)
        return self.kernel[grid, block]

    def expected(self, arguments: tuple) -> tuple[np.ndarray, ...]:
        """What the outputs must hold after the launch. Call it before: some kernels update in place."""
        wanted = self.reference(*arguments)
        return wanted if isinstance(wanted, tuple) else (wanted,)

    def wrong(self, arguments: tuple, expected: tuple[np.ndarray, ...]) -> list[str]:
        """What is wrong with the outputs now, one sentence each; empty when they are right."""
        complaints = []
        for position, wanted in zip(self.outputs, expected, strict=True):
            got = arguments[position]
            scale = max(1.0, float(np.max(np.abs(wanted), initial=0)))
            bad = ~np.isclose(got, wanted, rtol=0, atol=self.tolerance * scale, equal_nan=True)
            if bad.sum() > self.mismatches * bad.size:
                where = tuple(int(i) for i in np.argwhere(bad)[0])
                complaints.append(
                    f"{self.name}: argument {position} is wrong in {int(bad.sum())} of {bad.size} elements,"
                    f" first at {list(where)}: {got[where]} instead of {wanted[where]}"
                )
        return complaints
