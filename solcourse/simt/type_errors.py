"""numba's typing and lowering errors in a learner's words: what is wrong, at which line of theirs, what to try."""

from __future__ import annotations

import difflib
import functools
import linecache
import os
import re
import traceback
from collections.abc import Sequence
from typing import Any

from solcourse.errors import KernelTypeError

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_SIGNATURE = re.compile(r"No implementation of function Function\(<.*?>\) found for signature:\s*>>> (.*)")
_END = re.compile(
    r"^\s*(There are \d+ candidate|Enable logging|This is not usually|To see Python|https?://|For more information)", re.MULTILINE
)
_OBJECTION = re.compile(r"raised a specific error:\s*(?:(?!RequireLiteral)\w+: )?(.+)")
_NOISE = re.compile(r"^(Failed in \w+ mode pipeline|During: |Unsupported functionality was found|raised from|<source elided>|\^)")


def type_error(error: Exception, function: Any, arg_names: Sequence[str], arg_types: Sequence[Any]) -> KernelTypeError:
    """numba's message cut down to what is wrong, at which line of the learner's, and what to try."""
    text = _ANSI.sub("", str(error)) or type(error).__name__
    kernel = function.__code__
    file, line = _learners_place(text, error) or (kernel.co_filename, kernel.co_firstlineno)
    types = ", ".join(f"{n}: {t}" for n, t in zip(arg_names, arg_types, strict=False))
    source = linecache.getline(file, line).strip()
    shown = f"\n    {source}" if source else ""
    hint = _hint(text, function, source)
    said = "\n".join(filter(None, (_first_words(text), hint)))
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


def _learners_place(text: str, error: BaseException) -> tuple[str, int] | None:
    """The first place named in numba's message, else in its traceback, that is not inside a package: innermost first."""
    for found in _PLACE.finditer(text):
        name = found["file"]  # numba prints it relative to the working folder
        path = name if name.startswith("<") else os.path.abspath(name)
        if _is_learners(path):
            return path, int(found["line"])
    chain: list[BaseException] = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    for link in reversed(chain):
        for frame, _ in reversed(list(traceback.walk_tb(link.__traceback__))):
            for holder in (frame.f_locals.get(name) for name in ("inst", "expr", "constraint", "self")):
                loc = getattr(holder, "loc", None)
                if loc is not None and getattr(loc, "line", None) and _is_learners(str(loc.filename)):
                    return str(loc.filename), int(loc.line)
    return None


def _is_learners(path: str) -> bool:
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
    return "\n".join(kept[:3] + ([objection[1].strip()] if objection else kept[3:4]))


_HINTS = (  # (pattern in numba's message, pattern in the source line, what to try); the first that fits wins
    (r"array\(.*int\d+.*class", r"(shared|local)\.array", "The size of a shared or local array must be a compile-time constant: a literal, "
     "a global or a closure variable (give an expression such as N + 2 a name outside the kernel); or 0, for dynamic shared memory."),
    (r"RequireLiteral", r"grid", "cuda.grid and cuda.gridsize take the number of dimensions as a literal: 1, 2 or 3."),
    (r"No conversion from .* to none", r"return|yield", "A kernel cannot return a value: write the result into an array argument."),
    (r"readonly array", "", "The array is read-only (array.flags.writeable is False)."),
    (r"[sg]etitem\((int|float|complex|bool)", "", "A number was passed where the kernel indexes an array."),
    (r"Cannot unify", "", "One variable holds two types; give it one, for example np.float32(0)."),
    (r"insert_unresolved_ref", "", "numba.cuda compiles a function that calls itself only with the argument types it was called with (the literal 0 is a "
     "type of its own: pass a variable), and not functions that call each other."),
    (r"exception_match", "", "Kernels cannot catch exceptions."),
    (r"of type (list|set|dict)|ListType|reflected list", "", "Kernels have no lists; use cuda.local.array or cuda.shared.array."),
    (r"Cannot determine Numba type of <class 'function'>", "", "Functions called by a kernel need @cuda.jit(device=True)."),
)  # fmt: skip


def _hint(text: str, function: Any, source: str) -> str:
    unknown = re.search(r"NameError: name '(\w+)' is not defined", text)
    if unknown:
        known = (*function.__code__.co_varnames, *function.__globals__)
        near = difflib.get_close_matches(unknown[1], known, n=1)
        return f"Did you mean {near[0]!r}?" if near else ""
    return next((hint for said, at, hint in _HINTS if re.search(said, text) and re.search(at, source)), "")
