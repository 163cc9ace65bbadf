"""Functions that numba declares and a GPU's libraries define: here they are defined in LLVM IR, and inlined like device functions.

half.py and libdevice.py hold the tables; what is in none of them stays declared, and is a table row of calls.py or refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_DECLARE = re.compile(r'^declare [^@\n]*@"?([\w.]+)"?\((.*)\)[^\n]*$', re.M)
_HEAD = re.compile(r'^(?:declare|define) [^@\n]*@"?([\w.$]+)"?\(', re.M)
_CALL = re.compile(r'call (\w+) @"?([\w.]+)"?\(([^)]*)\)')


def with_bodies(text: str, body_of: Callable[[str, str], str | None]) -> str:
    """The module with a definition for each declared function that `body_of(name, parameters)` knows."""
    made: list[str] = []

    def define(m: re.Match) -> str:
        body = body_of(m[1], m[2])
        if body is None:
            return m[0]
        made.append(body)
        return ""

    return completed(_DECLARE.sub(define, text), made, body_of)


def completed(text: str, made: list[str], body_of: Callable[[str, str], str | None] = lambda *_: None) -> str:
    """The module with new definitions, and with what those call and it lacks."""
    if not made:
        return text
    known = set(_HEAD.findall("\n".join((text, *made))))
    for body in made:  # grows as it goes: a body may call another
        for result, name, arguments in _CALL.findall(body):
            if name not in known:
                known.add(name)
                types = ", ".join(a.split()[0] for a in arguments.split(", ") if a)
                made.append(body_of(name, types) or f"declare {result} @{name}({types})\n")
    return "\n".join((text, *made))
