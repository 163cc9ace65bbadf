"""Integer overflow of an index: what says, before an access, that its address comes from a number that did not fit its type.

    i = int32(cuda.grid(1))        the thread's index above 2**31 becomes a negative number, or another thread's index
    if i < n: x[i] = ...

For each access, what its address is computed from, backwards through sums, products, conversions, selections and loops; each
operation there in less than 64 bits is done in 64 bits, too, and where the results differ a bit that goes along with the value says so.
A number that is mixed, masked, divided or loaded is no sum gone wrong: a hash is meant to overflow. Unsigned numbers wrap on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator

from solcourse.simt.ir import Const, Function, Instr

# (happened, the number that did not fit, what it would be in 64 bits); where a loop is between, the index twice
INDEX = "simt.overflow.index"
_SUMS = ("add", "sub", "mul", "shl")
_CARRY = (*_SUMS, "or", "sext", "trunc", "freeze", "bitcast", "addrspacecast", "getelementptr", "select", "phi")
_ACCESSES = ("load", "store", "atomicrmw", "cmpxchg")
_NEVER = Const("i1", 0)


def overflow(function: Function) -> None:
    """Adds the bits and, before each access that needs it, a call of INDEX. Addresses computed in 64 bits get nothing."""
    for f in (function, *function.callees.values()):
        _Overflow(f).run()


def _comes_from(i: Instr) -> tuple:
    """The operands whose overflow is the value's, too."""
    if i.op in ("shl", "or"):  # `or` of a constant is how LLVM adds bits that are free
        return i.args[:1] if isinstance(i.args[1], Const) else ()
    return i.args[i.op == "select" :] if i.op in _CARRY else ()


def _narrow(i: Instr) -> bool:
    """Whether the operation can overflow by itself."""
    return i.op == "trunc" and i.type != "i1" or i.op in _SUMS and i.type in ("i8", "i16", "i32") and bool(_comes_from(i))


class _Overflow:
    def __init__(self, f: Function):
        self.f = f
        self.defs = {i.dest: i for b in f.blocks for i in b.instrs if i.dest}
        self.calls = 0

    def run(self) -> None:
        pointers = [i.args[0] for b in self.f.blocks for i in b.instrs if i.op in _ACCESSES]
        self.reached = self._reached(pointers)
        self.tainted = self._tainted()
        if self.tainted:
            for block in self.f.blocks:
                block.instrs = [new for i in block.instrs for new in self._with_bits(i)]

    def _operands(self, x: object) -> tuple:
        return _comes_from(self.defs[x]) if x in self.defs else ()

    def _reached(self, pointers: list) -> set:
        """All that addresses are computed from."""
        found: set = set()
        while pointers:
            x = pointers.pop()
            if isinstance(x, str) and x not in found:
                found.add(x)
                pointers += self._operands(x)
        return found

    def _tainted(self) -> set:
        """Of these, the values that may have overflowed."""
        users: dict[object, list] = {}
        for x in self.reached:
            for a in self._operands(x):
                users.setdefault(a, []).append(x)
        todo = [x for x in self.reached if x in self.defs and _narrow(self.defs[x])]
        found: set = set()
        while todo:
            x = todo.pop()
            if x not in found:
                found.add(x)
                todo += users.get(x, [])
        return found

    def _bit(self, x: object) -> object:
        return f"{x}.over" if isinstance(x, str) and x in self.tainted else _NEVER

    def _with_bits(self, i: Instr) -> Iterator[Instr]:
        if i.op in _ACCESSES and i.args[0] in self.tainted:
            yield from self._call(i)
        yield i
        if i.dest not in self.tainted:
            return

        def new(op: str, name: str, t: str, args: tuple, attr: object = None) -> Instr:
            return Instr(op, f"{i.dest}.{name}", t, args, i.line, i.file, attr)

        if i.op == "phi":
            yield new("phi", "over", "i1", tuple(map(self._bit, i.args)), i.attr)
            return
        if i.op == "select":
            yield new("select", "over", "i1", (i.args[0], *map(self._bit, i.args[1:])))
            return
        bits = [b for b in map(self._bit, _comes_from(i)) if b is not _NEVER]
        if _narrow(i):
            yield from self._in_64_bits(i, new)
            bits.append(f"{i.dest}.own")
        for k, b in enumerate(bits):
            last = k == len(bits) - 1
            yield new("or", "over" if last else f"over{k}", "i1", (b, _NEVER if k == 0 else f"{i.dest}.over{k - 1}"))

    def _in_64_bits(self, i: Instr, new) -> Iterator[Instr]:
        """`.wide`: the operation's result without overflow; `.got`: the one it has; `.own`: whether they differ."""
        source = i.attr if i.op == "trunc" else i.type
        wide = []
        for k, a in enumerate(i.args):
            if source == "i64" or isinstance(a, Const):
                wide.append(a)
            else:
                yield new("sext", f"wide{k}", "i64", (a,), source)
                wide.append(f"{i.dest}.wide{k}")
        yield new("freeze" if i.op == "trunc" else i.op, "wide", "i64", tuple(wide))
        yield new("sext", "got", "i64", (i.dest,), i.type)
        yield new("icmp", "own", "i1", (f"{i.dest}.wide", f"{i.dest}.got"), ("ne", "i64"))

    def _call(self, i: Instr) -> Iterator[Instr]:
        self.calls += 1
        got: object = self._index(i.args[0])
        wide = got
        for k, x in enumerate(self._straight(i.args[0])):
            stem = f"{i.args[0]}.{self.calls}.{k}"
            yield Instr("select", f"{stem}.got", "i64", (f"{x}.own", f"{x}.got", got), i.line, i.file)
            yield Instr("select", f"{stem}.wide", "i64", (f"{x}.own", f"{x}.wide", wide), i.line, i.file)
            got, wide = f"{stem}.got", f"{stem}.wide"
        yield Instr("call", None, "void", (self._bit(i.args[0]), got, wide), i.line, i.file, (INDEX, ("i1", "i64", "i64")))

    def _index(self, pointer: object) -> object:
        """The index that may have overflowed, where the address is one of an element."""
        address = self.defs[pointer]
        if address.op != "getelementptr":
            return Const("i64", 0)
        index = next((a for a, (t, _) in zip(address.args[1:], address.attr[1], strict=True) if t == "i64" and a in self.tainted), None)
        return index or (self._index(address.args[0]) if address.args[0] in self.tainted else Const("i64", 0))

    def _straight(self, pointer: object) -> list:
        """The operations that may overflow on the way to the access, as far as no phi is between: their values are known there."""
        found, todo, seen = [], [pointer], set()
        while todo:
            x = todo.pop()
            if x in seen or x not in self.tainted or self.defs[x].op == "phi":
                continue
            seen.add(x)
            if _narrow(self.defs[x]):
                found.append(x)
            todo += self._operands(x)
        return found[::-1]
