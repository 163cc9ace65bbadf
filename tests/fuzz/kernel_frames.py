"""What a thread sees: variables, memories, its place in the launch. And where its own elements are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernel_numbers import to, wrap
from kernel_tree import Array, Launch


@dataclass(slots=True)
class Memory:
    """Elements in the order of the index (shape is C order here, whatever the layout of the argument)."""

    type: str
    data: list
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass
class Meter:
    steps: int = 0


@dataclass(slots=True)
class Frame:
    """Variables and memories that a function sees; `at`: thread numbers and dimensions by their text in the source."""

    v: dict[str, Any]
    memory: dict[str, Memory]
    at: dict[str, int]
    meter: Meter
    result: Any = None


def initial(a: Array, modulus: int) -> Memory:
    return Memory(a.dtype, [to(a.dtype, q % modulus) for q in range(a.size)], a.shape or (a.size,))


def positions(launch: Launch, number: int, block, tid: int) -> dict[str, int]:
    bx, by, _ = launch.block
    thread = (tid % bx, tid // bx % by, tid // (bx * by))
    at = {"tid": tid, "nt": launch.threads, "gid": number * launch.threads + tid, "total": launch.blocks * launch.threads,
          "cuda.laneid": tid % 32, "cuda.warpsize": 32}  # fmt: skip
    for k, axis in enumerate("xyz"):
        at |= {f"cuda.threadIdx.{axis}": thread[k], f"cuda.blockIdx.{axis}": block[k], f"cuda.blockDim.{axis}": launch.block[k],
               f"cuda.gridDim.{axis}": launch.grid[k]}  # fmt: skip
    return at


def flat(shape: tuple[int, ...], index: list[int], how: str = "") -> int:
    """Position of an element in index order; every index is taken modulo its extent. "negative": from the end, -1 - i."""
    at = 0
    for n, i in zip(shape, index, strict=True):
        i = wrap("i8", i) % n
        at = at * n + (n - 1 - i if how == "negative" else i)
    return at


def own(array: Array, f: Frame, slot: Callable[[Frame], int]) -> int:
    gid, k = f.at["gid"], array.size
    if array.role == "slot" or k == 1:
        return gid
    which = wrap("i8", slot(f)) % k
    match array.layout:
        case "coalesced":
            return which * f.at["total"] + gid
        case "strided" | "2d":
            return gid * k + which
        case "reversed":
            return f.at["total"] * k - 1 - gid * k - which
    raise AssertionError(array.layout)


def shared_own(array: Array, f: Frame, kind: str, c: int) -> int:
    tid, n = f.at["tid"], f.at["nt"]
    if array.shape:
        rows, columns = array.shape
        return tid if kind != "reversed" else tid % rows * columns + tid // rows
    return {"plain": tid, "reversed": n - 1 - tid, "rotated": (tid + c) % n}[kind]
