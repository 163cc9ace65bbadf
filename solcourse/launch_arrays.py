"""The arrays of a launch as bytes of device memory: copies to launch on in turn, set back before each launch, compared afterwards.

    original   the caller's device arrays, and what numba.cuda makes of host arrays; they see one launch and keep its results
    template   the bytes as they were before; POISON in arrays that the kernel only writes
    copies     what is timed: filled from the template before each launch, and looked at after the last one

Overlapping arrays overlap in the copies, too: memory is taken as regions, the unions of arrays that share bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solcourse.gpu import memory

POISON = 0xA5  # every byte of an array that the kernel is to write; no usual number is made of these
MOST_COPIES_BYTES = 1 << 30  # of device memory, for the copies of all arrays together
FREE_PART = 0.8  # of the free device memory may be taken
CLOSE = {"f2": 1e-2, "f4": 1e-4, "f8": 1e-10, "c8": 1e-4, "c16": 1e-10}  # relative to the largest: the order of additions is free


@dataclass(frozen=True)
class Part:
    """One array argument: its bytes within a region."""

    name: str
    region: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype

    def of(self, region: np.ndarray) -> np.ndarray:
        """The array in a region's bytes (n,) uint8 on the host."""
        return np.ndarray(self.shape, self.dtype, region, self.offset, self.strides)


@dataclass(frozen=True)
class _Interface:
    """Bytes at an address as other libraries hand theirs to numba; `owner` is kept alive."""

    __cuda_array_interface__: dict[str, Any]
    owner: Any


class LaunchArrays:
    """The arguments of one launch. names: the kernel's arguments; only_written: those that it writes and never reads."""

    def __init__(self, cuda: Any, args: Sequence[Any], names: Iterable[str], only_written: frozenset[str] = frozenset()):
        self._cuda = cuda
        self._host: list[tuple[np.ndarray, int, str]] = []  # host array, its array's number, cuda.In or Out
        self._found: list[tuple[str, Any]] = []  # name, device array
        wanted = itertools.chain(names, (f"args[{i}]" for i in itertools.count()))
        self._tree = tuple(self._take(name, value) for name, value in zip(wanted, args, strict=False))
        self.original = self.filled([array for _, array in self._found])
        self._spans, self.parts = _regions(self._found)
        self._own = [_bytes_at(cuda, low, high - low, self._found) for low, high in self._spans]
        alone = [{part.name for part in self.parts if part.region == i} for i in range(len(self._spans))]
        self._poisoned = {i for i, sharing in enumerate(alone) if sharing <= only_written}

    # --------------------------------------------------------------------------------------------------- what there is
    @property
    def nbytes(self) -> int:
        return sum(high - low for low, high in self._spans)

    def bytes_of(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """Regions on the device -> on the host."""
        return [array.copy_to_host() for array in arrays]

    def bytes_now(self) -> list[np.ndarray]:
        """The originals' bytes, on the host."""
        return self.bytes_of(self._own)

    def give_back(self) -> None:
        """Host arrays get what is in their device arrays now, as after numba's own launch."""
        for host, number, hint in self._host:
            if hint != "In" and host.flags.writeable:
                self._found[number][1].copy_to_host(host)

    # --------------------------------------------------------------------------------------------------------- copies
    def make(self, before: Sequence[np.ndarray], most: int) -> Copies:
        """Copies to launch on: as many as fit, at most `most`. before: the bytes they begin with.

        Without room for one of them the originals themselves are taken, and the template stays on the host.
        """
        template = {i: self.template(before, i) for i in range(len(before))}
        free = memory(self._cuda)[0]
        needed = self.nbytes
        room = FREE_PART * free if free is not None else 2 * needed  # unknown: one copy, and an error where it does not fit
        if room < 2 * needed:
            return Copies([self.original], [self._own], dict(template), borrowed=True)
        count = max(1, min(most, int(min(MOST_COPIES_BYTES, room - needed) // max(needed, 1))))
        device = {i: self._cuda.to_device(data) for i, data in template.items()}
        sets = [[self._cuda.to_device(data) for data in before] for _ in range(count)]
        views = [self.filled([self._view(part, raw[part.region]) for part in self.parts]) for raw in sets]
        return Copies(views, sets, device)

    def template(self, before: Sequence[np.ndarray], region: int) -> np.ndarray:
        """The bytes of a region that each launch on a copy begins with."""
        return np.full_like(before[region], POISON) if region in self._poisoned else before[region]

    def restore(self, regions: Sequence[np.ndarray]) -> None:
        """Give the originals these bytes."""
        for own, data in zip(self._own, regions, strict=True):
            own.copy_to_device(data)

    # ---------------------------------------------------------------------------------------------------------- parts
    def _take(self, name: str, value: Any) -> Any:
        """The value with arrays replaced by their numbers (_Slot); host arrays are moved to the device."""
        hint = type(value).__name__ if hasattr(value, "to_device") and hasattr(value, "value") else ""
        if hint in ("In", "Out", "InOut"):
            value = value.value
        if isinstance(value, tuple):
            return _like(value, [self._take(f"{name}[{i}]", member) for i, member in enumerate(value)])
        if not hasattr(value, "__cuda_array_interface__"):
            if not isinstance(value, np.ndarray):
                return value
            if value.size:
                self._host.append((value, len(self._found), hint))
            value = self._cuda.to_device(value)
        elif not hasattr(value, "copy_to_host"):
            value = self._cuda.as_cuda_array(value)
        if not value.size:
            return value
        self._found.append((name, value))
        return _Slot(len(self._found) - 1)

    def filled(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments with these in the places of the arrays, in the order of `parts`."""

        def fill(node: Any) -> Any:
            if isinstance(node, _Slot):
                return arrays[node.number]
            return _like(node, [fill(member) for member in node]) if isinstance(node, tuple) else node

        return tuple(fill(node) for node in self._tree)

    def _view(self, part: Part, raw: Any) -> Any:
        """The array on the device, in a region's bytes."""
        if part.dtype.names:  # the interface below does not know field names
            low = part.offset
            high = low + part.dtype.itemsize * int(np.prod(part.shape))
            return raw[low:high].view(part.dtype).reshape(part.shape)
        address = raw.__cuda_array_interface__["data"][0] + part.offset
        return self._cuda.as_cuda_array(_interface(address, part.shape, part.strides, part.dtype.str, raw))


@dataclass(frozen=True)
class _Slot:
    """The place of an array in the tree of arguments."""

    number: int


@dataclass
class Copies:
    """Sets of arguments to launch on in turn. borrowed: it is the caller's own memory, for want of more."""

    args: list[tuple[Any, ...]]
    regions: list[list[Any]]
    template: dict[int, Any]
    borrowed: bool = False

    def __len__(self) -> int:
        return len(self.args)

    def only(self, written: set[int]) -> None:
        """From now on set these regions back and no others: the kernel leaves those alone."""
        if not self.borrowed:  # what is borrowed may be written by another launch, too
            self.template = {i: data for i, data in self.template.items() if i in written}

    def set_back(self, number: int) -> None:
        """Every region that the kernel writes is as it was before the first launch."""
        for i, data in self.template.items():
            self.regions[number][i].copy_to_device(data)


def _like(model: tuple, members: list[Any]) -> tuple:
    return type(model)(*members) if hasattr(model, "_fields") else tuple(members)


def _interface(address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, typestr: str, owner: Any) -> _Interface:
    said = {"shape": shape, "strides": strides, "typestr": typestr, "data": (address, False), "version": 3}
    return _Interface(said, owner)


def _bytes_at(cuda: Any, address: int, nbytes: int, owner: Any) -> Any:
    return cuda.as_cuda_array(_interface(address, (nbytes,), None, "|u1", owner))


def _regions(arrays: Sequence[tuple[str, Any]]) -> tuple[list[tuple[int, int]], list[Part]]:
    """(address ranges [low, high), arrays within them): ranges that overlap are one."""
    extents = []  # address of the first element, lowest and highest byte
    for _, array in arrays:
        at = array.__cuda_array_interface__["data"][0]
        steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
        extents.append((at, at + sum(s for s in steps if s < 0), at + sum(s for s in steps if s > 0) + array.dtype.itemsize))
    spans: list[tuple[int, int]] = []
    for _, low, high in sorted(extents, key=lambda e: e[1:]):
        if spans and low < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(high, spans[-1][1]))
        else:
            spans.append((low, high))
    parts = []
    for (name, array), (at, low, _) in zip(arrays, extents, strict=True):
        region = next(i for i, (a, b) in enumerate(spans) if a <= low < b)
        parts.append(Part(name, region, at - spans[region][0], tuple(array.shape), tuple(array.strides), array.dtype))
    return spans, parts


# ------------------------------------------------------------------------------------------------------------ comparing
@dataclass(frozen=True)
class Difference:
    """How an array differs from what was wanted.

    kind    "values"; "unwritten" (still as before the launch); "order" (the same values in other places); "rounding"
    count   elements that differ, of size; the first is at index, where there is `got` and not `wanted`
    """

    array: str
    kind: str
    count: int
    size: int
    index: tuple[int, ...]
    wanted: Any
    got: Any

    def __str__(self) -> str:
        at = ", ".join(map(str, self.index))
        share = f"{self.count:,} of {self.size:,} elements of {self.array}"
        first = f"first {self.array}[{at}], {self.got} instead of {self.wanted}"
        return {
            "values": f"{share} differ: {first}",
            "unwritten": f"{share} were not written: {self.array}[{at}] should be {self.wanted}",
            "order": f"{share} hold the same values in another order: {first}",
            "rounding": f"{share} differ in their last digits: {first}",
        }[self.kind]


def difference(name: str, wanted: np.ndarray, got: np.ndarray, before: np.ndarray) -> Difference | None:
    """None, or how `got` differs from `wanted`; all three of one shape and dtype. before: what was there before the launch."""
    unlike = ~same_bits(wanted, got)
    if not unlike.any():
        return None
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(unlike)), unlike.shape))
    kind = _kind(wanted[unlike], got[unlike], before[unlike], np.abs(wanted).max() if _is_number(wanted) else 0)
    return Difference(name, kind, int(unlike.sum()), wanted.size, index, wanted[index], got[index])


def _kind(wanted: np.ndarray, got: np.ndarray, before: np.ndarray, largest: Any) -> str:
    if same_bits(got, before).all():
        return "unwritten"
    close = CLOSE.get(wanted.dtype.str[1:])
    if close and np.isfinite(largest) and np.allclose(got, wanted, rtol=close, atol=close * float(largest), equal_nan=True):
        return "rounding"
    if not wanted.dtype.names and np.array_equal(np.sort(wanted.ravel()), np.sort(got.ravel())):
        return "order"
    return "values"


def _is_number(array: np.ndarray) -> bool:
    return array.dtype.kind in "fc" and array.size > 0


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Elementwise: NaN is like NaN, and a record like a record of the same bytes."""
    if a.dtype.kind == "V":
        raw = np.dtype((np.uint8, a.dtype.itemsize))
        rows = [np.ascontiguousarray(x).reshape(-1).view(raw) for x in (a, b)]
        return np.asarray((rows[0] == rows[1]).all(axis=-1).reshape(a.shape))
    same = a == b
    return np.asarray(same | ((a != a) & (b != b)) if a.dtype.kind in "fcmM" else same)
