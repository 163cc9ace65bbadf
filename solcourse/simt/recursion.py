"""Recursive device functions, which no optimiser inlines: one copy of each body in the kernel, and a stack in local memory.

    call   save what is live across it, and which call it is, on the stack; go to the callee's first block (parameters are phis)
    ret    go to the callee's dispatch block, which reads which call it was and goes there; saved values are read back

The result is no longer in SSA form: a value that is read back has several definitions. The emitter keeps such values in slots
(cfg.py), and since activations of different depth share the slots, nothing but a launch-wide constant may stay scalar.
On a GPU, too, the frames of a recursion are in local memory, and are counted as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from solcourse.simt.ir import Block, Const, Function, Instr, type_size

STACK, DEPTH = "%simt.stack", "%simt.depth"  # the array; bytes in use, per lane
RECURSION = "the stack of recursive calls"  # the array's name in messages
STACK_BYTES = 16 * 1024  # per thread; a GPU's default is 1 KiB
RELOAD = "reload"  # attr of a load that brings a saved value back: its definition is elsewhere
_SLOT = 8  # bytes of the stack that each saved scalar takes


def unfold(kernel: Function) -> None:
    """Replaces calls of `kernel.callees` by jumps. Does nothing when there is none."""
    if kernel.callees:
        _Unfolding(kernel).run()


class _Unfolding:
    def __init__(self, kernel: Function):
        self.kernel = kernel
        self.functions = {name: _renamed(f, f"%{k}.") for k, (name, f) in enumerate(sorted(kernel.callees.items()))}
        self.sites: dict[str, list[tuple[Block, Block, Instr, int]]] = {name: [] for name in self.functions}  # call block, after, call, id
        self.fresh = 0

    def run(self) -> None:
        kernel = self.kernel
        first = kernel.blocks[0].instrs
        here = (first[0].line, first[0].file)
        for function in (kernel, *self.functions.values()):
            self.split(function, save=function is not kernel)
        kernel.blocks[0].instrs[:0] = [
            Instr("alloca", STACK, "ptr", (), *here, STACK_BYTES),
            Instr("freeze", DEPTH, "i64", (Const("i64", 0),), *here),
        ]
        for name, function in self.functions.items():
            self.enter(name, function)
            kernel.blocks += function.blocks

    def name(self, stem: str) -> str:
        self.fresh += 1
        return f"%simt.{stem}.{self.fresh}"

    def split(self, function: Function, save: bool) -> None:
        """Ends a block at each call of a recursive function, and saves and reads back around it."""
        blocks: list[Block] = []
        ends: dict[str, str] = {}  # the part of a split block that its successors' phis now name
        calls: list[tuple[Block, Block, Instr]] = []
        for block in function.blocks:
            part, name = Block(block.name), block.name
            for i in block.instrs:
                if i.op == "call" and i.attr[0] in self.functions:
                    after = Block(self.name("after"))
                    blocks.append(part)
                    calls.append((part, after, i))
                    part = after
                else:
                    part.instrs.append(i)
            blocks.append(part)
            ends[name] = part.name
        for block in blocks:
            block.instrs = [replace(i, attr=tuple(ends[p] for p in i.attr)) if i.op == "phi" else i for i in block.instrs]
        function.blocks[:] = blocks
        live = _live_in(blocks, {before.name: (after.name, call) for before, after, call in calls}) if save else {}
        types = {i.dest: i.type for b in blocks for i in b.instrs if i.dest} | {n: t for t, n in function.params}
        types |= {i.dest: i.type for _, _, i in calls if i.dest}
        for before, after, call in calls:
            kept = sorted(live.get(after.name, set()) - {call.dest}) if save else []
            self.call(before, after, call, [(n, types[n]) for n in kept])

    def call(self, before: Block, after: Block, call: Instr, kept: list[tuple[str, Any]]) -> None:
        line, file = call.line, call.file

        def put(block: Block, op: str, dest: Any, t: Any, *args: Any, attr: Any = None) -> Any:
            block.instrs.append(Instr(op, dest, t, args, line, file, attr))
            return dest

        def place(block: Block, offset: int) -> str:
            return put(block, "getelementptr", self.name("at"), "ptr", STACK, DEPTH, attr=(offset, (("i64", 1),)))

        sites = self.sites[call.attr[0]]
        number = len(sites)
        offsets = [_SLOT * k for k in _starts(kept)]
        size = offsets.pop() + _SLOT
        for (name, t), offset in zip(kept, offsets, strict=True):
            bit = t == "i1"  # not a type of memory
            value = put(before, "zext", self.name("bit"), "i8", name, attr="i1") if bit else name
            put(before, "store", None, "i8" if bit else t, place(before, offset), value)
        put(before, "store", None, "i64", place(before, size - _SLOT), Const("i64", number))
        put(before, "add", DEPTH, "i64", DEPTH, Const("i64", size))
        result, rest, after.instrs = [], after.instrs, []
        put(after, "sub", DEPTH, "i64", DEPTH, Const("i64", size))
        for (name, t), offset in zip(kept, offsets, strict=True):
            if t == "i1":
                put(after, "trunc", name, t, put(after, "load", self.name("bit"), "i8", place(after, offset)), attr="i8")
            else:
                put(after, "load", name, t, place(after, offset), attr=RELOAD)
        if call.dest:
            result = [Instr("freeze", call.dest, call.type, (f"%returned.{call.attr[0]}",), line, file)]
        after.instrs += result + rest
        sites.append((before, after, call, number))

    def enter(self, name: str, function: Function) -> None:
        """Parameters become phis, local arrays parts of the frame, returns jumps to the dispatch block."""
        entry = function.blocks[0]
        sites = self.sites[name]
        line, file = entry.instrs[0].line, entry.instrs[0].file
        head = Block(f"%enter.{name}")
        for before, _, call, _ in sites:
            before.instrs.append(Instr("br", None, "void", (), call.line, call.file, (head.name,)))
        for k, (t, parameter) in enumerate(function.params):
            arguments = tuple(call.args[k] for _, _, call, _ in sites)
            head.instrs.append(Instr("phi", parameter, t, arguments, line, file, tuple(before.name for before, *_ in sites)))
        size = 0
        for block in function.blocks:
            for k, i in enumerate(block.instrs):
                if i.op == "alloca":
                    block.instrs[k] = Instr("freeze", None, "void", (), i.line, i.file)
                    head.instrs.append(Instr("getelementptr", i.dest, "ptr", (STACK, DEPTH), i.line, i.file, (size, (("i64", 1),))))
                    size += -(-int(i.attr) // 16) * 16
            block.instrs[:] = [i for i in block.instrs if i.dest or i.op != "freeze"]
        if size:
            head.instrs.append(Instr("add", DEPTH, "i64", (DEPTH, Const("i64", size)), line, file))
        head.instrs.append(Instr("br", None, "void", (), line, file, (entry.name,)))
        dispatch = Block(f"%dispatch.{name}")
        values: list[Any] = []
        sources: list[str] = []
        for block in function.blocks:
            end = block.instrs[-1]
            if end.op == "ret":
                values += end.args
                sources.append(block.name)
                block.instrs[-1] = Instr("br", None, "void", (), end.line, end.file, (dispatch.name,))
        if values:
            t = next(call.type for _, _, call, _ in sites)
            dispatch.instrs.append(Instr("phi", f"%returned.{name}", t, tuple(values), line, file, tuple(sources)))
        if size:
            dispatch.instrs.append(Instr("sub", DEPTH, "i64", (DEPTH, Const("i64", size)), line, file))
        at, number = self.name("at"), self.name("call")
        dispatch.instrs.append(Instr("getelementptr", at, "ptr", (STACK, DEPTH), line, file, (-_SLOT, (("i64", 1),))))
        dispatch.instrs.append(Instr("load", number, "i64", (at,), line, file))
        function.blocks = [head, *function.blocks, *self.choices(dispatch, number, sites, line, file)]

    def choices(self, block: Block, number: str, sites: list, line: int, file: str) -> Iterator[Block]:
        for _, after, _, n in sites[:-1]:
            other, same = Block(self.name("or")), self.name("is")
            block.instrs.append(Instr("icmp", same, "i1", (number, Const("i64", n)), line, file, ("eq", "i64")))
            block.instrs.append(Instr("br", None, "void", (same,), line, file, (after.name, other.name)))
            yield block
            block = other
        block.instrs.append(Instr("br", None, "void", (), line, file, (sites[-1][1].name,)))
        yield block


def _starts(kept: list[tuple[str, Any]]) -> list[int]:
    """The first stack word of each saved value, and the end."""
    starts = [0]
    for _, t in kept:
        starts.append(starts[-1] + (1 if isinstance(t, str) else -(-type_size(t) // _SLOT)))
    return starts


def _renamed(f: Function, prefix: str) -> Function:
    """A copy whose values and blocks have names of their own."""

    def name(x: Any) -> Any:
        return prefix + x[1:] if isinstance(x, str) else x

    blocks = []
    for block in f.blocks:
        instrs = []
        for i in block.instrs:
            attr = tuple(name(b) for b in i.attr) if i.op in ("phi", "br") else i.attr
            instrs.append(replace(i, dest=name(i.dest), args=tuple(name(a) for a in i.args), attr=attr))
        blocks.append(Block(name(block.name), instrs))
    return Function(f.name, [(t, name(p)) for t, p in f.params], blocks, f.globals, f.file)


def _live_in(blocks: list[Block], calls: dict[str, tuple[str, Instr]]) -> dict[str, set[str]]:
    """Values read at or after the start of each block; a call, at the end of its block, leads to the block behind it."""
    by_name = {b.name: b for b in blocks}
    live: dict[str, set[str]] = {b.name: set() for b in blocks}
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            end = block.instrs[-1] if block.instrs else None
            targets = list(end.attr) if end is not None and end.op == "br" else []
            now: set[str] = set()
            if block.name in calls:
                after, call = calls[block.name]
                now |= live[after] - {call.dest} | {a for a in call.args if isinstance(a, str)}
            for t in targets:
                phis = [i for i in by_name[t].instrs if i.op == "phi"]
                now |= live[t] - {p.dest for p in phis}
                now |= {a for p in phis for a, q in zip(p.args, p.attr, strict=True) if q == block.name and isinstance(a, str)}
            for i in reversed(block.instrs):
                now.discard(i.dest)
                now |= {a for a in i.args if isinstance(a, str)} if i.op != "phi" else set()
            now -= {DEPTH, STACK}
            if now != live[block.name]:
                live[block.name] = now
                changed = True
    return live
