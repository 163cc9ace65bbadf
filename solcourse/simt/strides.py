"""How far a lane's address is behind that of the lane before it, as far as the program says: such runs get code of their own."""

from __future__ import annotations

from collections.abc import Callable

from solcourse.simt.cfg import Cfg
from solcourse.simt.ir import Const, Instr

_ANY = "any"  # of a value from further down: a loop's counter is what its first value is
_SAME = {"sext", "zext", "trunc", "bitcast", "addrspacecast", "inttoptr", "ptrtoint", "freeze"}


class Strides:
    """of(name): difference between neighbouring lanes of a warp, None where it is not a constant that the program tells. (It decides
    which code an access gets, never what that code does.) rows_uniform: see compiler.py."""

    def __init__(self, cfg: Cfg, rows_uniform: bool):
        self._varies, self._rows_uniform = cfg.divergent, rows_uniform
        self._known: dict[object, int | str | None] = {}
        self._threads: set[object] = set()  # values that are threadIdx.x
        for node in cfg.nodes:  # in execution order: operands first, but for a loop's own
            for i in (*node.phis, *node.body):
                self._known[i.dest] = self._walk(i)

    def of(self, name: object) -> int | None:
        found = self._of(name)
        return found if isinstance(found, int) else None

    def _of(self, x: object) -> int | str | None:
        if not isinstance(x, str) or x not in self._varies:
            return 0
        return self._known.get(x, _ANY)

    def _walk(self, i: Instr) -> int | str | None:
        if i.op in _SAME:
            self._threads |= {i.dest} if i.args[0] in self._threads else set()
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
        if i.op in ("and", "lshr", "ashr") and isinstance(i.args[1], Const) and i.args[0] in self._threads:
            by = i.args[1].value  # a warp begins at a multiple of 32: x & 31 counts its lanes, x >> 5 is the same for all of them
            return (1 if by & 31 == 31 else None) if i.op == "and" else 0 if by >= 5 else None
        if i.op == "getelementptr":
            total = self._of(i.args[0])
            for index, (_, scale) in zip(i.args[1:], i.attr[1], strict=True):
                total = _both(total, _both(self._of(index), scale, int.__mul__), int.__add__)
            return total
        if i.op == "call" and i.attr[0] == "simt.sreg.tid.x" and self._rows_uniform:
            self._threads.add(i.dest)
            return 1
        return 1 if i.op == "call" and i.attr[0] == "simt.sreg.laneid" else None


def _both(a: int | str | None, b: int | str | None, combine: Callable[[int, int], int]) -> int | str | None:
    if a is None or b is None:
        return None
    return combine(a, b) if isinstance(a, int) and isinstance(b, int) else _ANY


def _all_equal(found: list[int | str | None]) -> int | str | None:
    told = {s for s in found if s != _ANY}
    return _ANY if not told else told.pop() if len(told) == 1 else None
