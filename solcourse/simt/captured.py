"""Device arrays that a kernel takes from the scope around it: numba writes their addresses into the IR; here they become parameters.

    captured_by    numba's list of such objects -> Captured, one per allocation
    with_globals   the IR's `inttoptr (i64 ADDRESS to ptr)` -> the address of an external global
    as_parameters  after everything is inlined: that global -> a pointer parameter of the entry, which `bind` fills

So one compilation serves every allocation, and the engine knows which array an access belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from solcourse.errors import LaunchError
from solcourse.simt.device_memory import allocation_at
from solcourse.simt.ir import Address, Function, Instr

_POINTER = re.compile(r"inttoptr \(i64 (\d+) to (?:ptr|i8\*)\)")


@dataclass(frozen=True)
class Captured:
    """name: the variable's in the kernel; allocation: (n,) uint8; array: what numba was given, kept alive."""

    name: str
    allocation: np.ndarray
    array: Any

    @property
    def address(self) -> int:
        return int(self.allocation.ctypes.data)


def captured_by(objects: Iterable[Any], function: Any) -> tuple[Captured, ...]:
    """One Captured per allocation, in numba's order. Raises LaunchError: an array in a real GPU's memory."""
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    names = {id(value): name for name, value in (*function.__globals__.items(), *zip(function.__code__.co_freevars, cells, strict=True))}
    found: dict[int, Captured] = {}
    for array in objects:
        name = names.get(id(array), "captured array")
        address = array.__cuda_array_interface__["data"][0]
        allocation = array.engine_owner if hasattr(array, "engine_owner") else allocation_at(address)
        if allocation is None:
            raise LaunchError(
                f"{function.__name__} takes the device array {name!r} from the scope around it, and it is in a real GPU's memory: "
                "copy it to the host first, or call use_engine() before it is made.",
                file=function.__code__.co_filename,
                line=function.__code__.co_firstlineno,
            )
        found.setdefault(int(allocation.ctypes.data), Captured(name, allocation, array))
    return tuple(found.values())


def parameter_name(k: int, name: str) -> str:
    return f"{name}.captured.{k}"


def with_globals(llvm: str, captured: tuple[Captured, ...]) -> str:
    """The IR with a global per captured allocation, of unknown size: LLVM may not guess that memory there can be read."""
    if not captured:
        return llvm

    def global_of(match: re.Match) -> str:
        address = int(match[1])
        for k, c in enumerate(captured):
            if c.address <= address < c.address + max(c.allocation.nbytes, 1):
                return f'getelementptr (i8, ptr @"{parameter_name(k, c.name)}", i64 {address - c.address})'
        return match[0]

    declared = "\n".join(f'@"{parameter_name(k, c.name)}" = external global [0 x i8]' for k, c in enumerate(captured))
    return f"{_POINTER.sub(global_of, llvm)}\n{declared}\n"


def as_parameters(function: Function, captured: tuple[Captured, ...]) -> None:
    """Those globals become the function's last parameters, in their order."""
    if not captured:
        return
    names = [parameter_name(k, c.name) for k, c in enumerate(captured)]
    offsets: dict[Address, str] = {}

    def local(value: Any) -> Any:
        if not isinstance(value, Address) or value.name not in names:
            return value
        return offsets.setdefault(value, f"%{value.name}.{value.offset}") if value.offset else f"%{value.name}"

    for block in function.blocks:
        block.instrs[:] = [Instr(i.op, i.dest, i.type, tuple(map(local, i.args)), i.line, i.file, i.attr) for i in block.instrs]
    function.params += [("ptr", f"%{name}") for name in names]
    first = function.blocks[0].instrs
    first[:0] = [
        Instr("getelementptr", name, "ptr", (f"%{a.name}",), first[0].line, first[0].file, (a.offset, ())) for a, name in offsets.items()
    ]
    for name in names:
        function.globals.pop(name, None)
