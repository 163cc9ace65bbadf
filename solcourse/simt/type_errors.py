"""numba's typing and lowering errors in a learner's words: what is wrong, at which line of theirs, what to try."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import os
import re
import textwrap
import traceback
from collections.abc import Sequence
from typing import Any

from solcourse.errors import KernelTypeError
from solcourse.simt.type_hints import hint_for

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_SIGNATURE = re.compile(r"No implementation of function Function\(<.*?>\) found for signature:\s*>>> (.*)")
_END = re.compile(
    r"^\s*(There are \d+ candidate|Enable logging|This is not usually|To see Python|https?://|For more information)", re.MULTILINE
)
_OBJECTION = re.compile(r"raised a specific error:\s*(?:(?!RequireLiteral)\w+: )?(.+)")
_NOISE = re.compile(
    r"^(Failed in \w+ mode pipeline|During: |Unsupported functionality was found|raised from|<source elided>|\^|- Resolution failure|"
    r"No implementation of (function Function|_ol_)|Typing and implementation arguments differ)"
)
_RAISED = re.compile(r"\.?\.? Raised from (?:(?P<file>.+) \((?P<line>\d+)\)|None)$", re.MULTILINE)
_STATEMENTS: tuple[
    tuple[str, type | tuple], ...
] = (  # what numba refuses without a place: (pattern in its message, the syntax it is about)
    ("context manager", ast.With),
    ("set_try_status", ast.Try),
    ("exception_match", ast.Try),
    ("generator", (ast.Yield, ast.YieldFrom)),
    ("cell variable", ast.FunctionDef),
    ("Illegal IR, del", ast.Delete),
)


def type_error(error: Exception, function: Any, arg_names: Sequence[str], arg_types: Sequence[Any]) -> KernelTypeError:
    """numba's message cut down to what is wrong, at which line of the learner's, and what to try."""
    text = _of_kernels(_ANSI.sub("", str(error))) or type(error).__name__
    kernel = function.__code__
    file, line = _statement(text, function) or _learners_place(text, error) or (kernel.co_filename, kernel.co_firstlineno)
    types = ", ".join(f"{n}: {t}" for n, t in zip(arg_names, arg_types, strict=False))
    source = linecache.getline(file, line).strip()
    shown = f"\n    {source}" if source else ""
    hint, alone = hint_for(text, source, function, dict(zip(arg_names, arg_types, strict=False)))
    said = "\n".join(filter(None, ("" if alone else _first_words(text), hint)))
    message = f'numba cannot compile {kernel.co_name}({types}).\n  File "{file}", line {line}{shown}\n{said}'
    kind: Any = type(error)
    result = _error_class(kind)(message, file=file, line=line)
    result.args = (message,)  # numba's constructor may have coloured it
    return result


@functools.cache
def _error_class(kind: Any) -> type[KernelTypeError]:
    """KernelTypeError that is also numba's own error, for scripts that catch that one."""
    if not any(base.__name__ == "NumbaError" for base in kind.__mro__):
        return KernelTypeError
    return type("KernelTypeError", (KernelTypeError, kind), {"__module__": KernelTypeError.__module__})


def _of_kernels(text: str) -> str:
    """Without the candidates of numba's CPU compiler, which are there, beside the kernel's own, once something used @njit."""
    if "File: numba/cuda/" not in text:
        return text
    kept: list[str] = []
    lines = text.splitlines()
    hidden: int | None = None  # the indentation of the candidate that is left out
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        indent, starts = len(line) - len(line.lstrip()), line.lstrip().startswith("- Of which")
        if hidden is not None and line.strip() and (indent < hidden or (starts and indent == hidden)):
            hidden = None
        if hidden is None and starts and re.search(r"File: numba/(?!cuda/)", after):
            hidden = indent
        if hidden is None:
            kept.append(line)
    return "\n".join(kept)


def _learners_place(text: str, error: BaseException) -> tuple[str, int] | None:
    """The first place named in numba's message, else in its traceback, that is not inside a package: innermost first."""
    for found in _PLACE.finditer(text):
        name = found["file"]  # numba prints it relative to the working folder
        path = name if name.startswith("<") else os.path.abspath(name)
        if is_learners(path):
            return path, int(found["line"])
    raised = _RAISED.search(text)
    if raised and raised["file"] and is_learners(raised["file"]):
        return raised["file"], int(raised["line"])
    chain: list[BaseException] = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    for link in reversed(chain):
        for frame, _ in reversed(list(traceback.walk_tb(link.__traceback__))):
            for holder in (frame.f_locals.get(name) for name in ("inst", "expr", "constraint", "self")):
                loc = getattr(holder, "loc", None)
                if loc is not None and getattr(loc, "line", None) and is_learners(str(loc.filename)):
                    return str(loc.filename), int(loc.line)
    return None


def _statement(text: str, function: Any) -> tuple[str, int] | None:
    """The first statement in the function of the kind that numba refuses without saying where."""
    syntax = next((kind for said, kind in _STATEMENTS if said in text), None)
    if syntax is None:
        return None
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:  # typed into the interpreter
        return None
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    found = [node.lineno for node in ast.walk(tree) if node is not tree and isinstance(node, syntax)]  # type: ignore[attr-defined]
    return (function.__code__.co_filename, first - 1 + min(found)) if found else None


def is_learners(path: str) -> bool:
    return "site-packages" not in path and not path.startswith("<unknown")


def _first_words(text: str) -> str:
    """At most four lines of what numba says, without its candidates (but with what one of them objects to), advice, locations."""
    objection = _OBJECTION.search(text)
    text = re.sub(r"Literal\[\w+\]\((.*?)\)", r"\1", _SIGNATURE.sub(r"No implementation of \1", text))
    end = _END.search(text)
    lines = [line.strip() for line in text[: end.start() if end else None].splitlines()]
    kept: list[str] = []
    for line in lines:
        if _PLACE.search(line):
            break
        if line and not _NOISE.match(line):
            kept.append(line)
    more = [objection[1].strip()] if objection and not _NOISE.match(objection[1].strip()) else kept[3:4]
    return _RAISED.sub(".", "\n".join(kept[:3] + more))
