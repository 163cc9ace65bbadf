"""How far a lane's address is behind that of the lane before it, as far as the program says: such runs get code of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection

from solcourse.simt.ir import Const, Function, Instr

_ANY = "any"  # of a value that is being looked at: a loop's counter is what its first value is
_SAME = {"sext", "zext", "trunc", "bitcast", "addrspacecast", "inttoptr", "ptrtoint", "freeze"}


class Strides:
    """of(name): difference between neighbouring lanes of a warp, None where it is not a constant that the program tells. (It decides
    which code an access gets, never what that code does.) varies: the names that differ between lanes; rows_uniform: see compiler.py.
    """

    def __init__(self, function: Function, varies: Collection[str], rows_uniform: bool):
        self._defs = {i.dest: i for b in function.blocks for i in b.instrs if isinstance(i.dest, str)}
        self._varies, self._rows_uniform = varies, rows_uniform
        self._known: dict[str, int | str | None] = {}

    def of(self, name: object) -> int | None:
        found = self._of(name)
        return found if isinstance(found, int) else None

    def _of(self, x: object) -> int | str | None:
        if not isinstance(x, str) or x not in self._varies:
            return 0
        if x not in self._known:
            self._known[x] = _ANY
            self._known[x] = self._walk(self._defs[x]) if x in self._defs else None
        return self._known[x]

    def _walk(self, i: Instr) -> int | str | None:
        if i.op in _SAME:
            return self._of(i.args[0])
        if i.op in ("phi", "select"):
            return _all_equal([self._of(a) for a in i.args[i.op == "select" :]])
        if i.op in ("add", "sub", "or"):  # LLVM writes `or` for a sum without carries
            return _both(self._of(i.args[0]), self._of(i.args[1]), int.__sub__ if i.op == "sub" else int.__add__)
        if i.op in ("mul", "shl"):
            by = next((a.value for a in i.args if isinstance(a, Const) and isinstance(a.value, int)), None)
            if by is None or (i.op == "shl" and not isinstance(i.args[1], Const)):
                return None
            value = next((a for a in i.args if not isinstance(a, Const)), None)
            return _both(self._of(value), by if i.op == "mul" else 1 << by, int.__mul__)
        if i.op in ("and", "lshr", "ashr") and isinstance(i.args[1], Const) and self._is_thread(i.args[0]):
            by = i.args[1].value  # a warp begins at a multiple of 32: x & 31 counts its lanes, x >> 5 is the same for all of them
            return (1 if by & 31 == 31 else None) if i.op == "and" else 0 if by >= 5 else None
        if i.op == "getelementptr":
            total = self._of(i.args[0])
            for index, (_, scale) in zip(i.args[1:], i.attr[1], strict=True):
                total = _both(total, _both(self._of(index), scale, int.__mul__), int.__add__)
            return total
        return 1 if self._is_lane(i) or self._is_thread(i.dest) else None

    def _is_lane(self, i: Instr) -> bool:
        return i.op == "call" and i.attr[0] == "simt.sreg.laneid"

    def _is_thread(self, name: object) -> bool:
        """threadIdx.x, where a warp is one piece of a row of the block."""
        i = self._defs.get(name) if isinstance(name, str) else None
        while i is not None and i.op in _SAME:
            i = self._defs.get(i.args[0]) if isinstance(i.args[0], str) else None
        return self._rows_uniform and i is not None and i.op == "call" and i.attr[0] == "simt.sreg.tid.x"


def _both(a: int | str | None, b: int | str | None, combine: Callable[[int, int], int]) -> int | str | None:
    if a is None or b is None:
        return None
    return combine(a, b) if isinstance(a, int) and isinstance(b, int) else _ANY


def _all_equal(found: list[int | str | None]) -> int | str | None:
    told = {s for s in found if s != _ANY}
    return _ANY if not told else told.pop() if len(told) == 1 else None
