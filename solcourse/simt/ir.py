"""The kernel as records: LLVM's printed, optimised IR -> Function of Blocks of Instrs. The only reader of LLVM text.

llvmlite hides predicates, GEP types and debug locations, so the printed form is parsed, line by line. Types are strings
("i32", "float", "ptr", "<4 x float>"); aggregates are tuples of types. Operands are `%name` strings (SSA values), or
Const / Address records. Poison-generating flags (nsw, inbounds, ...) are dropped: lanes that are masked off may overflow.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import Any

from solcourse.errors import UnsupportedKernel

SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "i128": 16, "half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}

_TOKEN = re.compile(
    r'[%@](?:"[^"]*"|[-\w$.]+)|c"(?:[^"]*)"|"[^"]*"|!"[^"]*"|![\w.]+|0x[0-9A-Fa-fHKLMR]+|-?\d+\.\d+(?:e[+-]?\d+)?|-?\d+|\.\.\.|[A-Za-z_][\w.]*|#\w+|[^\s]'
)
_FLAGS = frozenset(
    "nuw nsw exact inbounds nusw disjoint nneg samesign fast nnan ninf nsz arcp contract afn reassoc volatile "
    "tail musttail notail inrange atomic weak".split()
)
_ATTRS = frozenset(
    "noundef signext zeroext nonnull noalias readonly writeonly readnone nocapture inreg returned immarg dso_local "
    "local_unnamed_addr unnamed_addr fastcc ccc".split()
)


@dataclass(frozen=True, slots=True)
class Const:
    """A constant: `value` is an int, a float, a tuple of leaves for an aggregate, or None for an aggregate of zeros, undef or poison."""

    type: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a global variable plus a constant number of bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction. `attr` holds what is not an operand: a predicate, callee, phi's blocks, GEP's offsets, indices."""

    op: str
    dest: Any  # str, or None where there is no result
    type: Any  # of the result, or of the stored value
    args: tuple
    line: int
    file: str
    attr: Any = None


@dataclass(slots=True)
class Block:
    name: str
    instrs: list[Instr] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Global:
    """A global variable. space: 1 global, 3 shared, 4 constant; init: the initialiser's text, '' when external."""

    name: str
    space: int
    type: Any
    init: str
    constant: bool
    align: int

    @property
    def size(self) -> int:
        return type_size(self.type)


@dataclass(slots=True)
class Function:
    name: str
    params: list[tuple[Any, str]]
    blocks: list[Block]
    globals: dict[str, Global]
    file: str
    callees: dict[str, Function] = field(default_factory=dict)  # of an entry: functions that could not be inlined


def array_type(count: int, element: Any) -> tuple:
    return ("array", count, element)


def type_size(t: Any) -> int:
    """Bytes of a type in memory, with the natural alignment of its members."""
    if isinstance(t, str):
        return SIZES.get(t) or (int(t[1:]) + 7) // 8
    if t[0] in ("array", "vector"):
        return t[1] * type_size(t[2])
    size = 0
    for member in t[1]:
        align = 1 if t[0] == "packed" else type_align(member)
        size = -(-size // align) * align + type_size(member)
    return -(-size // type_align(t)) * type_align(t)


def type_align(t: Any) -> int:
    if isinstance(t, str):
        return type_size(t)
    if t[0] in ("array", "vector"):
        return type_align(t[2])
    return 1 if t[0] == "packed" else max((type_align(m) for m in t[1]), default=1)


def member_offset(t: tuple, index: int) -> int:
    size = 0
    for i, member in enumerate(t[1]):
        align = 1 if t[0] == "packed" else type_align(member)
        size = -(-size // align) * align
        if i == index:
            return size
        size += type_size(member)
    raise IndexError(index)


def leaves(t: Any) -> list[str]:
    """The scalars of a type, in order: an aggregate is handled as the flat list of them."""
    if isinstance(t, str):
        return [t]
    members = [t[2]] * t[1] if t[0] in ("array", "vector") else t[1]
    return [leaf for m in members for leaf in leaves(m)]


def leaf_range(t: Any, path: tuple[int, ...]) -> tuple[int, int]:
    """Which leaves of t the member at `path` is: from, to (not included)."""
    start = 0
    for k in path:
        members = [t[2]] * t[1] if t[0] in ("array", "vector") else t[1]
        start += sum(len(leaves(m)) for m in members[:k])
        t = members[k]
    return start, start + len(leaves(t))


def type_text(t: Any) -> str:
    """The type as LLVM writes it (address spaces dropped)."""
    if isinstance(t, str):
        return t
    if t[0] == "array":
        return f"[{t[1]} x {type_text(t[2])}]"
    if t[0] == "vector":
        return f"<{t[1]} x {type_text(t[2])}>"
    body = ", ".join(type_text(m) for m in t[1])
    return f"<{{ {body} }}>" if t[0] == "packed" else f"{{ {body} }}"


class _Line:
    """A cursor over the tokens of one line."""

    def __init__(self, text: str):
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        i = self.at + ahead
        return self.tokens[i] if i < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        got = self.next()
        if got != token:
            raise ValueError(f"expected {token!r}, got {got!r} in {' '.join(self.tokens)}")

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def skip_flags(self) -> None:
        while self.peek() in _FLAGS:
            self.at += 1

    def skip_attrs(self) -> None:
        while True:
            token = self.peek()
            if token in _ATTRS:
                self.at += 1
            elif token == "align" or (
                token in ("dereferenceable", "dereferenceable_or_null", "captures", "initializes", "range", "memory", "nofpclass")
            ):
                self.at += 1
                if self.peek() == "(":
                    self.skip_parens()
                elif token == "align":
                    self.at += 1
                elif token == "range":
                    self.skip_parens()
            else:
                return

    def skip_parens(self) -> None:
        depth = 0
        while True:
            token = self.next()
            depth += token == "("
            depth -= token == ")"
            if depth == 0:
                return

    def type(self) -> Any:
        token = self.next()
        if token == "[":
            count = int(self.next())
            self.expect("x")
            t: Any = array_type(count, self.type())
            self.expect("]")
        elif token == "<":
            if self.peek() == "{":
                self.next()
                t = ("packed", self._members("}"))
                self.expect(">")
            else:
                count = int(self.next())
                self.expect("x")
                t = ("vector", count, self.type())
                self.expect(">")
        elif token == "{":
            t = ("struct", self._members("}"))
        elif token == "ptr":
            t = "ptr"
            if self.accept("addrspace"):
                self.skip_parens()
        else:
            t = token
        return t

    def _members(self, close: str) -> tuple:
        members = []
        while not self.accept(close):
            members.append(self.type())
            self.accept(",")
        return tuple(members)

    def value(self, t: Any) -> Any:
        """An operand of type t."""
        token = self.next()
        if token.startswith("%"):
            return token
        if token.startswith("@"):
            return Address(unquote(token))
        if token in ("addrspacecast", "inttoptr", "ptrtoint", "bitcast"):
            self.expect("(")
            inner = self.value(self.type())
            self.expect("to")
            self.type()
            self.expect(")")
            return inner
        if token in ("add", "sub"):  # of an address, as an integer, and a number
            self.skip_flags()
            self.expect("(")
            left = self.value(self.type())
            self.expect(",")
            right = self.value(self.type())
            self.expect(")")
            if isinstance(left, Const) and isinstance(right, Address) and token == "add":
                left, right = right, left
            if not isinstance(right, Const):
                raise ValueError(f"constant {token} of two addresses")
            change = int(right.value or 0) * (1 if token == "add" else -1)
            return Address(left.name, left.offset + change) if isinstance(left, Address) else Const(t, int(left.value or 0) + change)
        if token == "getelementptr":
            self.skip_flags()
            if self.peek() == "inrange":
                self.next()
                self.skip_parens()
            self.expect("(")
            source = self.type()
            self.expect(",")
            base = self.value(self.type())
            offset, variable = self.indices(source)
            self.expect(")")
            if variable or not isinstance(base, (Address, Const)):
                raise ValueError("variable index in a constant expression")
            if isinstance(base, Address):
                return Address(base.name, base.offset + offset)
            return Const("i64", int(base.value or 0) + offset)
        if token in ("undef", "poison", "zeroinitializer", "null", "none"):
            return Const(t, None if not isinstance(t, str) else 0)
        if token == "splat":
            self.expect("(")
            value = self.value(self.type())
            self.expect(")")
            return Const(t, (value.value,) * len(leaves(t)))
        if token in ("true", "false"):
            return Const(t, int(token == "true"))
        if token in ("[", "{", "<"):
            return self.aggregate(t, token)
        if token in ("add", "sub"):
            return self.sum(-1 if token == "sub" else 1)
        return Const(t, _number(token, t))

    def aggregate(self, t: Any, opening: str) -> Const:
        """A literal aggregate, after its opening bracket."""
        if opening == "<" and self.accept("{"):
            opening = "{"
        parts: list = []
        while not self.accept({"[": "]", "{": "}", "<": ">"}[opening]):
            member = self.type()
            value = self.value(member)
            if not isinstance(value, Const):
                raise ValueError("an address in an aggregate constant")
            parts += value.value if isinstance(value.value, tuple) else [value.value] * len(leaves(member))
            self.accept(",")
        if t[0] == "packed":
            self.expect(">")
        return Const(t, tuple(parts))

    def sum(self, sign: int) -> Any:
        """A constant expression add (T a, T b) or sub, of an address and a number or of two numbers."""
        self.skip_flags()
        self.expect("(")
        a = self.value(self.type())
        self.expect(",")
        b = self.value(self.type())
        self.expect(")")
        if isinstance(b, Address) and sign > 0:
            a, b = b, a
        if not isinstance(b, Const):
            raise ValueError("a sum of two addresses in a constant expression")
        if isinstance(a, Address):
            return Address(a.name, a.offset + sign * int(b.value or 0))
        return Const(a.type, int(a.value or 0) + sign * int(b.value or 0))

    def indices(self, source: Any) -> tuple[int, list[tuple[Any, Any, int]]]:
        """GEP indices up to ')' or the end: (constant bytes, [(operand, type, scale in bytes)])."""
        offset, variable, t, first = 0, [], source, True
        while self.accept(","):
            if self.peek().startswith("!"):
                self.at -= 1
                break
            self.accept("inrange")
            index_type = self.type()
            index = self.value(index_type)
            if not first and t[0] in ("struct", "packed"):
                k = int(index.value)
                offset += member_offset(t, k)
                t = t[1][k]
                continue
            if first:
                scale, first = type_size(t), False
            else:
                t = t[2]
                scale = type_size(t)
            if isinstance(index, Const):
                offset += int(index.value or 0) * scale
            else:
                variable.append((index, index_type, scale))
        return offset, variable


def _number(token: str, t: Any) -> int | float:
    if t in ("float", "double", "half", "bfloat"):
        if token.startswith("0x"):
            if token[2] in "HR":
                raw = int(token[3:], 16)
                return (
                    struct.unpack("<e", struct.pack("<H", raw))[0]
                    if token[2] == "H"
                    else struct.unpack("<f", struct.pack("<I", raw << 16))[0]
                )
            return struct.unpack("<d", struct.pack("<Q", int(token[2:], 16)))[0]
        return float(token)
    return int(token)


def unquote(token: str) -> str:
    name = token[1:]
    return name[1:-1] if name.startswith('"') else name


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


_BINARY = frozenset("add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem".split())
_CASTS = frozenset("sext zext trunc fptosi fptoui sitofp uitofp fpext fptrunc ptrtoint inttoptr bitcast addrspacecast".split())


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
            cursor = _Line(line)
            while not cursor.peek().startswith("@"):
                cursor.next()
            name = unquote(cursor.next())
            functions[name] = Function(name, _parse_params(cursor), [], globals_, meta.file_of(_field(line, r"!dbg (!\d+)")))
            _parse_body(functions[name], lines, meta)
    function = functions.pop(entry)
    function.callees = functions
    return function


def _parse_params(cursor: _Line) -> list[tuple[Any, str]]:
    params = []
    cursor.expect("(")
    while not cursor.accept(")"):
        t = cursor.type()
        while not cursor.peek().startswith("%"):  # attributes, some with arguments
            cursor.next()
        params.append((t, _name(cursor.next())))
        cursor.accept(",")
    return params


def _parse_global(line: str) -> Global | None:
    m = re.match(r'@("[^"]*"|[-\w$.]+) = (.*)$', line)
    if not m:
        return None
    cursor = _Line(m.group(2))
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
    pending = ""
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
        if stripped.startswith("switch") and stripped.endswith("["):
            pending = stripped
            continue
        if pending:
            pending += " " + stripped
            if stripped.startswith("]"):
                stripped, pending = pending, ""
            else:
                continue
        dbg = re.search(r", !dbg (!\d+)", stripped)
        if dbg:
            where = meta.location(dbg.group(1))
            here = where if where[1] else here
        code = re.sub(r"(, ![\w.]+ ![\w.]+)+$", "", stripped)
        try:
            block.instrs.append(_parse_instr(code, here))
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


def _name(token: str) -> str:
    return "%" + unquote(token)


def _parse_instr(code: str, here: tuple[str, int]) -> Instr:
    c = _Line(code)
    dest = None
    if c.peek(1) == "=":
        dest = c.next()
        c.next()
    c.skip_flags()
    op = c.next()
    file, line = here

    def make(t, args, attr=None, name=op):
        args = tuple(_name(a) if isinstance(a, str) else a for a in args)
        return Instr(name, _name(dest) if dest else None, t, args, line, file, attr)

    if op in _BINARY:
        c.skip_flags()
        t = c.type()
        a = c.value(t)
        c.expect(",")
        return make(t, (a, c.value(t)))
    if op in ("fneg", "freeze"):
        c.skip_flags()
        t = c.type()
        return make(t, (c.value(t),))
    if op in ("icmp", "fcmp"):
        c.skip_flags()
        predicate = c.next()
        t = c.type()
        a = c.value(t)
        c.expect(",")
        return make("i1", (a, c.value(t)), (predicate, t))
    if op == "select":
        c.skip_flags()
        ct = c.type()
        cond = c.value(ct)
        c.expect(",")
        t = c.type()
        a = c.value(t)
        c.expect(",")
        b = c.value(c.type())
        return make(t, (cond, a, b))
    if op == "phi":
        c.skip_flags()
        t = c.type()
        args, preds = [], []
        while c.accept("["):
            args.append(c.value(t))
            c.expect(",")
            preds.append(_name(c.next()))
            c.expect("]")
            c.accept(",")
        return make(t, args, tuple(preds))
    if op == "getelementptr":
        c.skip_flags()
        if c.peek() == "inrange":
            c.next()
            c.skip_parens()
        source = c.type()
        c.expect(",")
        base = c.value(c.type())
        offset, variable = c.indices(source)
        return make("ptr", (base, *(v for v, _, _ in variable)), (offset, tuple((t, s) for _, t, s in variable)))
    if op == "load":
        c.skip_flags()
        t = c.type()
        c.expect(",")
        return make(t, (c.value(c.type()),))
    if op == "store":
        c.skip_flags()
        t = c.type()
        value = c.value(t)
        c.expect(",")
        return make(t, (c.value(c.type()), value))
    if op in _CASTS:
        c.skip_flags()
        source = c.type()
        value = c.value(source)
        c.expect("to")
        return make(c.type(), (value,), source)
    if op == "br":
        if c.accept("label"):
            return make("void", (), (_name(c.next()),))
        cond = c.value(c.type())
        targets = []
        while c.accept(","):
            c.expect("label")
            targets.append(_name(c.next()))
        return make("void", (cond,), tuple(targets))
    if op == "ret":
        t = c.type()
        return make(t, () if t == "void" else (c.value(t),))
    if op == "unreachable":
        return make("void", ())
    if op == "alloca":
        t = c.type()
        count = 1
        if c.accept(",") and c.peek() != "align":
            ct = c.type()
            count = c.value(ct).value
        return make("ptr", (), type_size(t) * int(count))
    if op in ("extractvalue", "insertvalue"):
        t = c.type()
        args = [c.value(t)]
        c.expect(",")
        if op == "insertvalue":
            inserted = c.type()
            args.append(c.value(inserted))
            c.expect(",")
        path = [int(c.next())]
        while c.accept(","):
            path.append(int(c.next()))
        member = t
        for k in path:
            member = member[2] if member[0] == "array" else member[1][k]
        return make(member, args, (t, tuple(path))) if op == "extractvalue" else make(t, args, (inserted, tuple(path)))
    if op in ("atomicrmw", "cmpxchg"):
        c.skip_flags()
        kind = c.next() if op == "atomicrmw" else "cmpxchg"
        pointer = c.value(c.type())
        c.expect(",")
        t = c.type()
        args = [pointer, c.value(t)]
        if op == "cmpxchg":
            c.expect(",")
            args.append(c.value(c.type()))
            return make(("struct", (t, "i1")), args, (kind, t))
        return make(t, args, (kind, t))
    if op == "fence":
        return make("void", ())
    if op == "call":
        return _parse_call(c, make)
    raise ValueError(f"unknown instruction {op!r}")


def _parse_call(c: _Line, make) -> Instr:
    c.skip_flags()
    c.skip_attrs()
    t = c.type()
    if c.peek() == "(":  # a full function type, as for varargs
        c.skip_parens()
    callee = c.next()
    if callee == "asm":
        while not c.peek().startswith('"'):
            c.next()
        callee = "asm " + c.next().strip('"')
        c.expect(",")
        c.next()
    elif callee.startswith("@"):
        callee = unquote(callee)
    else:
        raise ValueError("indirect call")
    c.expect("(")
    args, types = [], []
    while not c.accept(")"):
        arg_type = c.type()
        c.skip_attrs()
        if arg_type == "metadata":
            c.next()
        else:
            args.append(c.value(arg_type))
            types.append(arg_type)
        c.accept(",")
    return make(t, args, (callee, tuple(types)))
