"""A line of printed LLVM IR as tokens, and a cursor that reads types and operands off them. ir_text.py reads whole lines with it."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from solcourse.simt.ir import Address, Const, leaves, member_offset, type_size

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
_ATTRS_OF = frozenset("align dereferenceable dereferenceable_or_null captures initializes range memory nofpclass".split())
_CLOSING = {"[": "]", "{": "}", "<": ">"}


def unquote(token: str) -> str:
    """The bare name of `@name`, `%name` or `@"name"`."""
    name = token[1:]
    return name[1:-1] if name.startswith('"') else name


def value_name(token: str) -> str:
    """How records name an SSA value or a block: `%name`."""
    return "%" + unquote(token)


class Line:
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
        found = self.peek() == token
        self.at += found
        return found

    def skip_flags(self) -> None:
        while self.peek() in _FLAGS:
            self.at += 1

    def skip_attrs(self) -> None:
        while (token := self.peek()) in _ATTRS or token in _ATTRS_OF:
            self.at += 1
            if token in _ATTRS_OF and self.peek() == "(":
                self.skip_parens()
            elif token == "align":
                self.at += 1

    def skip_parens(self) -> None:
        depth = 0
        while True:
            token = self.next()
            depth += token == "("
            depth -= token == ")"
            if depth == 0:
                return

    # ---- types

    def type(self) -> Any:
        token = self.next()
        if token == "<" and self.accept("{"):
            packed = ("packed", self._members())
            self.expect(">")
            return packed
        if token in ("[", "<"):
            count = int(self.next())
            self.expect("x")
            t = ("array" if token == "[" else "vector", count, self.type())
            self.expect(_CLOSING[token])
            return t
        if token == "{":
            return ("struct", self._members())
        if token == "ptr" and self.accept("addrspace"):
            self.skip_parens()
        return token

    def _members(self) -> tuple:
        found = []
        while not self.accept("}"):
            found.append(self.type())
            self.accept(",")
        return tuple(found)

    # ---- operands

    def operand(self) -> Any:
        """A type and a value of it: the value."""
        return self.value(self.type())

    def typed(self) -> tuple[Any, Any]:
        """A type and a value of it."""
        t = self.type()
        return t, self.value(t)

    def value(self, t: Any) -> Any:
        """An operand of type t."""
        token = self.next()
        if token.startswith("%"):
            return value_name(token)
        if token.startswith("@"):
            return Address(unquote(token))
        if token in _EXPRESSIONS:
            return _EXPRESSIONS[token](self, t)
        if token in ("undef", "poison", "zeroinitializer", "null", "none"):
            return Const(t, None if not isinstance(t, str) else 0)
        if token in ("true", "false"):
            return Const(t, int(token == "true"))
        if token in _CLOSING:
            return self._aggregate(t, token)
        return Const(t, _number(token, t))

    def _aggregate(self, t: Any, opening: str) -> Const:
        """A literal aggregate, after its opening bracket."""
        if opening == "<" and self.accept("{"):
            opening = "{"
        parts: list = []
        while not self.accept(_CLOSING[opening]):
            member, value = self.typed()
            if not isinstance(value, Const):
                raise ValueError("an address in an aggregate constant")
            parts += value.value if isinstance(value.value, tuple) else [value.value] * len(leaves(member))
            self.accept(",")
        if t[0] == "packed":
            self.expect(">")
        return Const(t, tuple(parts))

    def _converted(self, _: Any) -> Any:
        """inttoptr (T a to U) and its like: the address, or number, is what it was."""
        self.expect("(")
        inner = self.operand()
        self.expect("to")
        self.type()
        self.expect(")")
        return inner

    def _sum(self, t: Any, sign: int) -> Any:
        """add (T a, T b) or sub, of an address and a number or of two numbers."""
        self.skip_flags()
        self.expect("(")
        a = self.operand()
        self.expect(",")
        b = self.operand()
        self.expect(")")
        if isinstance(b, Address) and isinstance(a, Const) and sign > 0:
            a, b = b, a
        if not isinstance(b, Const):
            raise ValueError(f"constant {'add' if sign > 0 else 'sub'} of two addresses")
        change = sign * int(b.value or 0)
        return Address(a.name, a.offset + change) if isinstance(a, Address) else Const(t, int(a.value or 0) + change)

    def _element(self, _: Any) -> Address | Const:
        """getelementptr (T, ptr base, indices)."""
        self.skip_flags()
        self.expect("(")
        source = self.type()
        self.expect(",")
        base = self.operand()
        offset, variable = self.indices(source)
        self.expect(")")
        if variable or not isinstance(base, (Address, Const)):
            raise ValueError("variable index in a constant expression")
        if isinstance(base, Address):
            return Address(base.name, base.offset + offset)
        return Const("i64", int(base.value or 0) + offset)

    def _splat(self, t: Any) -> Const:
        self.expect("(")
        value = self.operand()
        self.expect(")")
        return Const(t, (value.value,) * len(leaves(t)))

    def indices(self, source: Any) -> tuple[int, list[tuple[Any, Any, int]]]:
        """getelementptr's indices up to ')' or the end: (constant bytes, [(operand, type, scale in bytes)])."""
        offset, variable, t, first = 0, [], source, True
        while self.accept(","):
            if self.peek().startswith("!"):
                self.at -= 1
                break
            self.accept("inrange")
            index_type, index = self.typed()
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


# the constant expressions, by their first word
_EXPRESSIONS: dict[str, Callable[[Line, Any], Any]] = {
    **dict.fromkeys(("addrspacecast", "inttoptr", "ptrtoint", "bitcast"), Line._converted),
    "add": lambda line, t: line._sum(t, 1), "sub": lambda line, t: line._sum(t, -1),
    "getelementptr": Line._element, "splat": Line._splat,
}  # fmt: skip


def _number(token: str, t: Any) -> int | float:
    if t not in ("float", "double", "half", "bfloat"):
        return int(token)
    if not token.startswith("0x"):
        return float(token)
    if token[2] == "H":
        return struct.unpack("<e", struct.pack("<H", int(token[3:], 16)))[0]
    if token[2] == "R":
        return struct.unpack("<f", struct.pack("<I", int(token[3:], 16) << 16))[0]
    return struct.unpack("<d", struct.pack("<Q", int(token[2:], 16)))[0]
