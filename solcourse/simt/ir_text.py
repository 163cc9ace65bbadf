"""LLVM's printed, optimised IR -> ir.Function. The only reader of LLVM text: `parse_module` is its door.

llvmlite hides predicates, GEP types and debug locations, so the printed form is parsed, line by line: one small function per
instruction, in a table at the end; types and operands in ir_tokens.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from solcourse.errors import UnsupportedKernel
from solcourse.simt.ir import Block, Function, Global, Instr, members, type_align, type_size
from solcourse.simt.ir_tokens import Line, unquote, value_name

_NUMBA = re.compile(r"(site|dist)-packages[/\\]numba(_cuda)?[/\\]")


class Metadata:
    """Debug locations: `!N` -> (file, line), and the file of a subprogram."""

    def __init__(self, text: str):
        self._nodes = dict(re.findall(r"^(!\d+) = (.*)$", text, re.M))
        self._cache: dict[str, tuple[str, int]] = {}

    def file_of(self, ref: str | None) -> str:
        seen = 0
        while ref and seen < 64:
            node = self._nodes.get(ref, "")
            if "!DIFile(" in node:
                name = _field(node, r'filename: "([^"]*)"') or ""
                folder = _field(node, r'directory: "([^"]*)"') or ""
                return name if not folder or name.startswith(("/", "<")) or ":" in name[:3] else f"{folder}/{name}"
            ref = _field(node, r"\bfile: (!\d+)") or _field(node, r"\bscope: (!\d+)")
            seen += 1
        return ""

    def location(self, ref: str) -> tuple[str, int]:
        if ref not in self._cache:
            node = self._nodes.get(ref, "")
            line = int(_field(node, r"\bline: (\d+)") or 0)
            place, caller = (self.file_of(_field(node, r"\bscope: (!\d+)")), line), _field(node, r"\binlinedAt: (!\d+)")
            self._cache[ref] = self.location(caller) if caller and _NUMBA.search(place[0]) else place  # numba's own: where it is called
        return self._cache[ref]


def _field(text: str, pattern: str) -> str | None:
    m = re.search(pattern, text)
    return m.group(1) if m else None


def parse_module(text: str, entry: str) -> Function:
    """The function named `entry` of a printed module, with the module's globals and the functions that are left in it.

    Raises UnsupportedKernel, with the source line, for an instruction that cannot be read.
    """
    meta = Metadata(text)
    globals_: dict[str, Global] = {}
    functions: dict[str, Function] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("@"):
            g = _parse_global(line)
            if g:
                globals_[g.name] = g
        elif line.startswith("define"):
            cursor = Line(line)
            while not cursor.peek().startswith("@"):
                cursor.next()
            name = unquote(cursor.next())
            functions[name] = Function(name, _parse_params(cursor), [], globals_, meta.file_of(_field(line, r"!dbg (!\d+)")))
            _parse_body(functions[name], lines, meta)
    function = functions.pop(entry)
    function.callees = functions
    return function


def _parse_params(cursor: Line) -> list[tuple[Any, str]]:
    params = []
    cursor.expect("(")
    while not cursor.accept(")"):
        t = cursor.type()
        while not cursor.peek().startswith("%"):  # attributes, some with arguments
            cursor.next()
        params.append((t, value_name(cursor.next())))
        cursor.accept(",")
    return params


def _parse_global(line: str) -> Global | None:
    m = re.match(r'@("[^"]*"|[-\w$.]+) = (.*)$', line)
    if not m:
        return None
    cursor = Line(m.group(2))
    space, external = 1, False
    while cursor.peek() not in ("global", "constant"):
        token = cursor.next()
        if token == "":
            return None
        if token == "addrspace":
            space = int(cursor.peek(1))
            cursor.skip_parens()
        external |= token == "external"
    constant = cursor.next() == "constant"
    t = cursor.type()
    align = re.search(r", align (\d+)", line)
    init = ""
    if not external:
        body = m.group(2)
        start = body.index("constant " if constant else "global ")
        init = re.sub(r",\s*(align \d+|section .*|!dbg .*)", "", body[start:].split(" ", 1)[1])
        init = init[len(_type_prefix(init)) :].strip()
    return Global(unquote("@" + m.group(1)), space, t, init, constant, int(align.group(1)) if align else type_align(t))


def _type_prefix(text: str) -> str:
    """The leading type of `text`, as written."""
    if text[0] in "[{<":
        depth = 0
        for i, ch in enumerate(text):
            depth += ch in "[{<"
            depth -= ch in "]}>"
            if depth == 0:
                return text[: i + 1]
    m = re.match(r"ptr( addrspace\(\d+\))?|\w+", text)
    return m.group(0) if m else ""


def _parse_body(function: Function, lines, meta: Metadata) -> None:
    block: Block | None = None
    here = (function.file, 0)
    for line in lines:
        if line == "}":
            break
        stripped = line.strip()
        if not stripped or stripped.startswith(("#dbg", ";")):
            continue
        if not line.startswith(" "):
            label = line.split(";")[0].rstrip().rstrip(":")
            block = Block("%" + label.strip('"'))
            function.blocks.append(block)
            continue
        if block is None:
            block = Block("%0")
            function.blocks.append(block)
        dbg = re.search(r", !dbg (!\d+)", stripped)
        if dbg:
            where = meta.location(dbg.group(1))
            here = where if where[1] else here
        code = re.sub(r"(, ![\w.]+ ![\w.]+)+$", "", stripped)
        try:
            block.instrs.append(_read(code, here))
        except (ValueError, IndexError, TypeError, KeyError) as err:
            raise UnsupportedKernel(
                f"This engine cannot read the instruction `{code[:120]}` ({err}), made from line {here[1]} of {here[0]}. Nothing ran.",
                file=here[0],
                line=here[1],
            ) from err
    _give_lines(function)


def _give_lines(function: Function) -> None:
    """Instructions merged by the optimiser can lose their line (0): take the nearest one of the block that has one."""
    known = next((i.line for b in function.blocks for i in b.instrs if i.line), 0)
    for block in function.blocks:
        if any(not i.line for i in block.instrs):
            first = next((i for i in block.instrs if i.line), None)
            line, file = (first.line, first.file) if first else (known, function.file)
            block.instrs = [i if i.line else Instr(i.op, i.dest, i.type, i.args, line, file or i.file, i.attr) for i in block.instrs]


# ---- one instruction --------------------------------------------------------------------------------------------------

Read = tuple[Any, tuple, Any]  # an Instr's type, args, attr


def _read(code: str, here: tuple[str, int]) -> Instr:
    c = Line(code)
    dest = None
    if c.peek(1) == "=":
        dest = value_name(c.next())
        c.next()
    c.skip_flags()
    op = c.next()
    if op not in _INSTRUCTIONS:
        raise ValueError(f"unknown instruction {op!r}")
    c.skip_flags()
    t, args, attr = _INSTRUCTIONS[op](c)
    file, line = here
    return Instr(op, dest, t, args, line, file, attr)


def _two(c: Line) -> Read:
    t, a = c.typed()
    c.expect(",")
    return t, (a, c.value(t)), None


def _one(c: Line) -> Read:
    t, a = c.typed()
    return t, (a,), None


def _compare(c: Line) -> Read:
    predicate = c.next()
    t, args, _ = _two(c)
    return "i1", args, (predicate, t)


def _select(c: Line) -> Read:
    condition = c.operand()
    c.expect(",")
    t, a = c.typed()
    c.expect(",")
    return t, (condition, a, c.operand()), None


def _phi(c: Line) -> Read:
    t = c.type()
    args, blocks = [], []
    while c.accept("["):
        args.append(c.value(t))
        c.expect(",")
        blocks.append(value_name(c.next()))
        c.expect("]")
        c.accept(",")
    return t, tuple(args), tuple(blocks)


def _address(c: Line) -> Read:
    source = c.type()
    c.expect(",")
    base = c.operand()
    offset, variable = c.indices(source)
    return "ptr", (base, *(v for v, _, _ in variable)), (offset, tuple((t, scale) for _, t, scale in variable))


def _load(c: Line) -> Read:
    t = c.type()
    c.expect(",")
    return t, (c.operand(),), _alignment(c)


def _store(c: Line) -> Read:
    t, value = c.typed()
    c.expect(",")
    return t, (c.operand(), value), _alignment(c)


def _alignment(c: Line) -> int | None:
    """What `, align N` promises; None where nothing does."""
    if c.accept(",") and c.accept("align"):
        return int(c.next())
    return None


def _cast(c: Line) -> Read:
    source, value = c.typed()
    c.expect("to")
    return c.type(), (value,), source


def _branch(c: Line) -> Read:
    if c.accept("label"):
        return "void", (), (value_name(c.next()),)
    condition = c.operand()
    targets = []
    while c.accept(","):
        c.expect("label")
        targets.append(value_name(c.next()))
    return "void", (condition,), tuple(targets)


def _return(c: Line) -> Read:
    t = c.type()
    return t, () if t == "void" else (c.value(t),), None


def _nothing(c: Line) -> Read:
    return "void", (), None


def _alloca(c: Line) -> Read:
    t, count = c.type(), 1
    if c.accept(",") and c.peek() != "align":
        count = c.operand().value
    return "ptr", (), type_size(t) * int(count)


def _extract(c: Line) -> Read:
    t, whole = c.typed()
    path = _path(c)
    member = t
    for k in path:
        member = members(member)[k]
    return member, (whole,), (t, path)


def _insert(c: Line) -> Read:
    t, whole = c.typed()
    c.expect(",")
    member, value = c.typed()
    return t, (whole, value), (member, _path(c))


def _path(c: Line) -> tuple[int, ...]:
    path = []
    while c.accept(","):
        path.append(int(c.next()))
    return tuple(path)


def _atomic(c: Line) -> Read:
    kind, pointer = c.next(), c.operand()
    c.expect(",")
    t, value = c.typed()
    return t, (pointer, value), (kind, t)


def _compare_and_swap(c: Line) -> Read:
    pointer = c.operand()
    c.expect(",")
    t, compared = c.typed()
    c.expect(",")
    return ("struct", (t, "i1")), (pointer, compared, c.operand()), ("cmpxchg", t)


def _call(c: Line) -> Read:
    c.skip_attrs()
    t = c.type()
    if c.peek() == "(":  # a full function type, as for varargs
        c.skip_parens()
    callee = _callee(c)
    c.expect("(")
    args, types = [], []
    while not c.accept(")"):
        argument = c.type()
        c.skip_attrs()
        if argument == "metadata":
            c.next()
        else:
            args.append(c.value(argument))
            types.append(argument)
        c.accept(",")
    return t, tuple(args), (callee, tuple(types))


def _callee(c: Line) -> str:
    """A function's name, or "asm " and the text of inline assembly."""
    callee = c.next()
    if callee.startswith("@"):
        return unquote(callee)
    if callee != "asm":
        raise ValueError("indirect call")
    while not c.peek().startswith('"'):
        c.next()
    code = c.next().strip('"')
    c.expect(",")
    c.next()
    return f"asm {code}"


_INSTRUCTIONS: dict[str, Callable[[Line], Read]] = {
    **dict.fromkeys("add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem".split(), _two),
    **dict.fromkeys("sext zext trunc fptosi fptoui sitofp uitofp fpext fptrunc ptrtoint inttoptr bitcast addrspacecast".split(), _cast),
    **dict.fromkeys(("fneg", "freeze"), _one), **dict.fromkeys(("icmp", "fcmp"), _compare),
    "select": _select, "phi": _phi, "getelementptr": _address, "load": _load, "store": _store, "alloca": _alloca,
    "atomicrmw": _atomic, "cmpxchg": _compare_and_swap, "extractvalue": _extract, "insertvalue": _insert, "call": _call,
    "br": _branch, "ret": _return, **dict.fromkeys(("unreachable", "fence"), _nothing),
}  # fmt: skip
