"""Which values of a kernel cannot be negative, as far as its own arithmetic says: so that marks of what cannot happen are left out."""

from __future__ import annotations

from solcourse.simt.ir import Const, Function, Instr

_OF_OPERANDS = ("add", "mul", "shl", "sdiv", "udiv", "srem", "urem", "ashr", "sext", "freeze", "phi", "or", "xor")


def nonnegative(function: Function) -> set[str]:
    """Values that are never below zero, but for overflow of 64 bits: counters of loops that begin at 0, thread and block indices, sums,
    products and quotients of such. All are thought so at first; what has another source is struck off, until nothing more is."""
    ranges = _Ranges(function)
    while ranges.strike():
        pass
    return ranges.found


class _Ranges:
    def __init__(self, function: Function):
        self.defined = {i.dest: i for block in function.blocks for i in block.instrs if i.dest}
        self.found = {n for n, i in self.defined.items() if isinstance(i.type, str) and i.type.startswith("i") and i.type != "i1"}

    def strike(self) -> bool:
        """Whether some value had to go."""
        wrong = {name for name in self.found if not self.follows(self.defined[name])}
        self.found -= wrong
        return bool(wrong)

    def of(self, x: object) -> bool:
        return x in self.found if isinstance(x, str) else isinstance(x, Const) and isinstance(x.value, int) and x.value >= 0

    def is_false(self, x: object, deep: int = 4) -> bool:
        """Whether a condition asks if such a value is negative, as Python's // and % of constants do."""
        i = self.defined.get(x) if isinstance(x, str) else None
        if i is None or not deep:
            return isinstance(x, Const) and not x.value
        if i.op == "icmp":
            zero = isinstance(i.args[1], Const) and i.args[1].value == 0
            return i.attr[0] == "slt" and zero and self.of(i.args[0])
        return i.op in ("and", "select") and any(self.is_false(a, deep - 1) for a in i.args[:2])

    def follows(self, i: Instr) -> bool:
        if i.op == "zext":
            return True
        if i.op == "sext" and i.attr == "i1":
            return self.is_false(i.args[0])
        if i.op == "and":
            return any(self.of(a) for a in i.args)
        if i.op == "select":
            return self.of(i.args[2]) and (self.is_false(i.args[0]) or self.of(i.args[1]))
        if i.op == "call":
            return i.attr[0].startswith("simt.sreg.")
        if i.op == "lshr":
            return self.of(i.args[0]) or (isinstance(i.args[1], Const) and int(i.args[1].value or 0) > 0)
        narrow = i.op in ("add", "mul", "shl") and i.type != "i64"  # may overflow
        return i.op in _OF_OPERANDS and not narrow and all(self.of(a) for a in i.args)
