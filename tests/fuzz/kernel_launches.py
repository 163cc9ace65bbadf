"""Launches of a kernel: grids and blocks of several shapes, and arguments with extreme values among them."""

from __future__ import annotations

import random

import numpy as np
from kernel_source import parameters
from kernel_tree import DTYPES, HELD, Kernel, Launch, is_float, statements

ODD_BLOCKS = {
    1: [(1,), (7,), (31,), (33,), (50,), (65,), (100,), (40,), (32,), (64,), (128,)],
    2: [(5, 7), (33, 2), (16, 4), (1, 40), (3, 11), (17, 5), (8, 8), (32, 3), (64, 2), (32, 1)],
    3: [(3, 5, 4), (7, 1, 9), (2, 2, 2), (1, 1, 37), (4, 8, 2), (5, 3, 3), (11, 3, 2), (32, 2, 1), (32, 1, 3), (64, 1, 1)],
}
FULL_BLOCKS = {
    1: [(32,), (64,), (96,), (128,)],
    2: [(8, 8), (16, 4), (2, 16), (24, 4), (32, 2), (64, 1), (32, 1)],
    3: [(4, 8, 2), (2, 4, 4), (8, 4, 3), (32, 2, 1), (32, 1, 3), (32, 1, 1)],
}
GRIDS = {1: [(1,), (2,), (3,), (5,)], 2: [(1, 1), (2, 1), (1, 3), (2, 2)], 3: [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 3), (2, 2, 1)]}
THREADS = 260  # of a launch: what the oracle can afford


def needs_full_warps(kernel: Kernel) -> bool:
    return any(s.op in ("warp", "syncwarp") for s in statements(kernel.body))


def _three(dims: tuple[int, ...]) -> tuple[int, int, int]:
    return (*dims, 1, 1)[:3]  # type: ignore[return-value]


def launches(kernel: Kernel, count: int = 3) -> list[Launch]:
    """Blocks and grids of several shapes, the last ones smaller than a warp or larger than one, with data of their own."""
    r = random.Random(kernel.seed * 7919 + 1)
    blocks = (FULL_BLOCKS if needs_full_warps(kernel) else ODD_BLOCKS)[kernel.ndim]
    # one class a kernel: the engine compiles blocks whose rows are whole warps apart
    rows = r.random() < (0.5 if needs_full_warps(kernel) else 0.2)
    blocks = [b for b in blocks if (b[0] % 32 == 0) == rows] or blocks
    found = []
    for k, block in enumerate(r.sample(blocks, min(count, len(blocks)))):
        n = int(np.prod(block))
        grid = r.choice([g for g in GRIDS[kernel.ndim] if int(np.prod(g)) * n <= THREADS] or GRIDS[kernel.ndim][:1])
        found.append(Launch(_three(grid), _three(block), kernel.seed * 31 + k))
    return found


EXTREMES = {
    "i": lambda bits: [0, 1, -1, 2, -2, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 100, -100],
    "u": lambda bits: [0, 1, 2, 2**bits - 1, 2 ** (bits - 1), 100],
}
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1.5, 2.5, -2.5, 0.1, 1 / 3, 7.0, 1e-3, 65504.0, 123456.78, -9876.5]


def elements(t: str, n: int, r: np.random.Generator, plain: bool = False) -> np.ndarray:
    """n values a variable of this type may hold, extreme ones among them."""
    if plain:
        return (np.arange(n) % 5).astype(DTYPES[t])
    if is_float(t):
        return (r.integers(-1600, 1600, n) / 16).astype(DTYPES[t])
    high = HELD[t][0]
    low = 0 if t[0] == "u" else -(2**high)
    small = r.integers(0 if t[0] == "u" else -9, 10, n)
    values = np.where(r.random(n) < 0.5, small, r.integers(low, 2**high - 1, n, dtype=np.uint64 if t == "u8" else np.int64).astype(object))
    extremes = np.array(EXTREMES[t[0]](min(high + (t[0] == "i"), 64)), object)
    values = np.where(r.random(n) < 0.15, r.choice(extremes, n), values)
    return np.array([int(v) for v in values], DTYPES[t])


def specials(t: str, r: np.random.Generator, plain: bool = False) -> np.ndarray:
    info = np.finfo(DTYPES[t])
    values = (
        [1.0, 2.0, 0.5] if plain else [*SPECIAL, info.max, -info.max, info.tiny, info.smallest_subnormal, info.eps, *r.normal(0, 10, 12)]
    )
    return np.array(values, DTYPES[t])


def arguments(kernel: Kernel, launch: Launch) -> dict[str, object]:
    """Arguments by name, in the kernel's order: NumPy arrays and scalars. Every array has an order that numba accepts."""
    wanted = set(parameters(kernel))
    found: dict[str, object] = {}
    total = launch.blocks * launch.threads
    for k, a in enumerate(kernel.arrays):
        r = np.random.default_rng((launch.data_seed, k))
        if a.name not in wanted:
            continue
        shape: tuple[int, ...]
        if a.role == "special":
            found[a.name] = specials(a.dtype, r, launch.plain)
            continue
        if a.role == "in":
            shape = tuple(int(n) for n in r.integers(2, 9, 2)) if a.shape else (int(r.integers(1, 70)),)
        elif a.role in ("out", "raw"):
            shape = (total, a.size) if a.layout == "2d" else (total * a.size,)
        elif a.role == "slot":
            shape = (total,)
        elif a.role == "big":
            shape = (int(r.integers(1, 400)),)
        else:
            shape = a.shape or (a.size,)
        if a.role == "raw":
            values = np.full(shape, 9.0, DTYPES[a.dtype])
        elif a.role == "acc" and a.op == "inc":
            values = elements("u1", int(np.prod(shape)), r, True).astype(DTYPES[a.dtype])
        else:
            values = elements(a.dtype, int(np.prod(shape)), r, launch.plain)
        found[a.name] = np.array(values.reshape(shape), order=a.order if len(shape) == 2 and 1 not in shape else "C")  # type: ignore[call-overload]
    for k, (name, t) in enumerate(kernel.scalars):
        if name in wanted:
            r = np.random.default_rng((launch.data_seed, 100 + k))
            value = bool(r.integers(2)) if t == "b" else elements(t, 1, r, launch.plain)[0]
            found[name] = value.item() if t in ("i8", "f8") else value
    return found


def dynamic_bytes(kernel: Kernel) -> int:
    return sum(a.size * DTYPES[a.dtype].itemsize for a in kernel.arrays if a.role == "shared" and a.layout == "dynamic")
