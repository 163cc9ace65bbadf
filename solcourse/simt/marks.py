"""Marks: calls that say in numba's IR, before it is optimised, what optimised code no longer shows. For the checks build.

    simt.mark.wrapped(negative, index, extent)   an element's index is made Python's way: a negative one counts from the end
    simt.mark.returned(line)                     threads leave the kernel at its end, not by a `return` before it
    simt.mark.stored()                           an array's element is written next: two stores in two branches stay two
    simt.mark.narrowed.FROM.TO(value)            a truncation, kept as the source has it: LLVM would narrow what leads to it, too

The first three are convergent and seem to touch memory that nothing else does, so each stays where the source has it and no access is in
their way. `mark` puts them into the text; `settle` makes of the optimised function's records what the emitter has rows for.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import textwrap
import tokenize
from dataclasses import replace

from solcourse.errors import UnsupportedKernel
from solcourse.simt.ir import Block, Const, Function, Instr
from solcourse.simt.ir_text import Metadata, parse_module
from solcourse.simt.local_arrays import UNWRITTEN
from solcourse.simt.ranges import nonnegative

WRAPPED, RETURNED, STORED, NARROWED = "simt.mark.wrapped", "simt.mark.returned", "simt.mark.stored", "simt.mark.narrowed."

_DEBUG = r"(?:, ![\w.]+ !\d+)*"
# numba's fix_index: an integer index of a signed type, for any array
_WRAP = re.compile(
    rf"^  (?P<negative>%\S+) = icmp slt i64 (?P<index>%\S+), 0{_DEBUG}\n"
    rf"  (?P<sum>%\S+) = add i64 (?:(?P=index), (?P<after>[^\s,]+)|(?P<before>[^\s,]+), (?P=index)){_DEBUG}\n"
    rf"(?P<select>  (?P<fixed>%\S+) = select i1 (?P=negative), i64 (?P=sum), i64 (?P=index)(?P<debug>{_DEBUG}))$",
    re.M,
)
_STORED = re.compile(r"^  store i64 (%\S+), ptr ", re.M)
_NARROWING = re.compile(rf"^  (%\S+) = trunc (i64|i32|i16) (%\S+) to (i32|i16|i8)({_DEBUG})$", re.M)
_RETURN = re.compile(r"^  ret i32 0, !dbg (?P<debug>!\d+)$", re.M)
_DEFINITION = re.compile(r"^define .*?^}$", re.M | re.S)
_NAME = re.compile(r"@(\"[^\"]*\"|[-\w$.]+)\(")
_STORE = re.compile(r"^  store .*, ptr (%[^\s,]+)(?:, align \d+)?(?P<debug>, !dbg !\d+)$", re.M)
_VARIABLE = re.compile(r"^  (%\S+) = (?:alloca |(?:getelementptr [^\n]*?|bitcast )ptr (%[^\s,]+))", re.M)
_WRAPPED_CALL = re.compile(rf"^  (?:tail )?call void @{re.escape(WRAPPED)}\(i1 [^,]+, i64 (?:noundef )?([^,]+), .*\n", re.M)
_BEGINNING = re.compile(r"\s*(def\s|@)")
_LASTING = "convergent nounwind memory(inaccessiblemem: readwrite)"


def mark(text: str, entry: str) -> str:
    """numba's module with its marks. A literal index gets none: a learner who writes x[-1] means the last element."""
    narrowings: set[tuple[str, str]] = set()
    places = Metadata(text)

    def narrowed(m: re.Match) -> str:
        narrowings.add((m[2], m[4]))
        return f"  {m[1]} = call {m[4]} @{NARROWED}{m[2]}.{m[4]}({m[2]} {m[3]}){m[5]}"

    def function(m: re.Match) -> str:
        body = _with_wraps(m[0])
        if _NAME.search(body)[1].strip('"') == entry:  # type: ignore[index]
            body = _with_returns(body, places)
        return _NARROWING.sub(narrowed, _with_stores(body))

    text = _DEFINITION.sub(function, text)
    declarations = [
        f"declare void @{WRAPPED}(i1, i64, i64) {_LASTING}",
        f"declare void @{RETURNED}(i32) {_LASTING}",
        f"declare void @{STORED}() {_LASTING}",
        *(f"declare {to} @{NARROWED}{of}.{to}({of}) speculatable nounwind willreturn memory(none)" for of, to in sorted(narrowings)),
    ]
    return "\n".join((text, *declarations, ""))


def _with_wraps(body: str) -> str:
    stored = set(_STORED.findall(body))  # the ends of a slice, which has no element of its own yet

    def wrapped(m: re.Match) -> str:
        if m["fixed"] in stored:
            return m[0]
        call = f"  call void @{WRAPPED}(i1 {m['negative']}, i64 {m['index']}, i64 {m['after'] or m['before']}){m['debug']}\n"
        return m[0].replace(m["select"], call + m["select"])

    return _WRAP.sub(wrapped, body)


def _with_stores(body: str) -> str:
    own: set[str] = set()  # pointers to the function's variables, of which nothing is left later
    for name, base in _VARIABLE.findall(body):
        if not base or base in own:
            own.add(name)
    return _STORE.sub(lambda m: m[0] if m[1] in own else f"  call void @{STORED}(){m['debug']}\n{m[0]}", body)


def _with_returns(body: str, places: Metadata) -> str:
    subprogram = re.search(r"!dbg (!\d+)", body.split("\n", 1)[0])
    file, first_line = places.location(subprogram[1]) if subprogram else ("", 0)
    early = explicit_returns(file, first_line)
    if early is None:  # whoever may have returned early is not accused of having passed a barrier by
        return body

    def returned(m: re.Match) -> str:
        line = places.location(m["debug"])[1]
        return m[0] if line in early else f"  call void @{RETURNED}(i32 {line}), !dbg {m['debug']}\n{m[0]}"

    return _RETURN.sub(returned, body)


def explicit_returns(file: str, first_line: int) -> set[int] | None:
    """Lines of a function's `return` statements, without one that just ends it; None where its source cannot be read.

    first_line: of its `def`, or of its first decorator.
    """
    lines = linecache.getlines(file)
    while first_line > 1 and first_line <= len(lines) and not _BEGINNING.match(lines[first_line - 1]):
        first_line -= 1  # numba may take the docstring for the beginning
    lines = lines[first_line - 1 :]
    try:
        tree = ast.parse(textwrap.dedent("".join(inspect.getblock(lines))))
    except (SyntaxError, IndexError, tokenize.TokenError):
        return None
    if not tree.body or not isinstance(tree.body[0], ast.FunctionDef):
        return None
    *most, last = tree.body[0].body
    todo: list[ast.AST] = [*most, *([] if isinstance(last, ast.Return) else [last])]
    found = set()
    for node in todo:  # grows as it is read
        if isinstance(node, ast.Return):
            found.add(first_line + node.lineno - 1)
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return found


def without_idle(text: str, entry: str) -> str:
    """Without marks of indices that cannot be negative: LLVM counts each call when it decides whether to unroll a loop."""
    try:
        known = nonnegative(parse_module(text, entry))
    except UnsupportedKernel:  # what optimised code no longer has
        return text
    return _WRAPPED_CALL.sub(lambda m: "" if m[1] in known else m[0], text)


def settle(function: Function) -> None:
    """The marks of optimised code, as the emitter takes them: truncations are themselves again, those of constants are constants; a
    wrap of an index that is a constant after all is dropped, and so is one that its block has marked before, on the same line."""
    for f in (function, *function.callees.values()):
        constants: dict[object, Const] = {}
        known = nonnegative(f)
        for block in f.blocks:
            block.instrs = _settled(block, constants, known)
        if constants:
            for block in f.blocks:
                block.instrs = [_with_constants(i, constants) for i in block.instrs]


def _settled(block: Block, constants: dict[object, Const], known: set[str]) -> list[Instr]:
    kept: list[Instr] = []
    marked: set[tuple] = set()
    for i in block.instrs:
        name = i.attr[0] if i.op == "call" else ""
        if name.startswith(NARROWED):
            i = Instr("trunc", i.dest, i.type, (constants.get(i.args[0], i.args[0]),), i.line, i.file, i.attr[1][0])
            if isinstance(i.args[0], Const):
                constants[i.dest] = Const(i.type, _truncated(int(i.args[0].value or 0), int(i.type[1:])))
                continue
        elif _is_idle(name, i.args):
            continue
        elif name == WRAPPED:
            if isinstance(i.args[0], Const) or i.args[1] in known or (i.args, i.line) in marked:
                continue
            marked.add((i.args, i.line))
        kept.append(i)
    return kept


def _is_idle(name: str, args: tuple) -> bool:
    """A mark that never speaks; and the beginning of a local array's twin, which is how local memory begins anyway."""
    if name == STORED:
        return True
    if name == UNWRITTEN:
        return isinstance(args[0], Const) and not args[0].value
    return name.startswith("llvm.memset") and args[1] == Const("i8", -1)


def _truncated(value: int, bits: int) -> int:
    """The low bits of a number as a signed one."""
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _with_constants(i: Instr, constants: dict[object, Const]) -> Instr:
    if not any(isinstance(a, str) and a in constants for a in i.args):
        return i
    return replace(i, args=tuple(constants.get(a, a) if isinstance(a, str) else a for a in i.args))
