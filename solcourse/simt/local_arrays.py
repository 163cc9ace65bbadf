"""Local arrays in the checks build: each has a twin that says which of its elements have been written.

numba zeroes a local array as the thread begins, so that reading what was never written gives 0, once; nothing promises it. `hide` keeps
LLVM's first passes from taking an array apart; `with_twins` then gives it a twin, accessed wherever it is: all ones at first, 0 where
it was written. Where full optimisation turns the array into registers, it turns the twin into constants, which cost nothing.
"""

from __future__ import annotations

import re

from solcourse.simt.ir import type_size
from solcourse.simt.ir_tokens import Line

UNWRITTEN = "simt.mark.unwritten"  # (whether, number of the array in the kernel)
_HIDDEN, _MARK = "simt.local", "@simt.mark.stored("
_CAST = re.compile(r"^(  %\S+ = )bitcast ptr (%_cudapy_lmem\S*) to ptr", re.M)
_DECLARATIONS = f"declare ptr @{_HIDDEN}(ptr, i32) speculatable nounwind willreturn memory(none)\n"
_ROOT = re.compile(rf"^  (%\S+) = (?:tail )?call ptr @{re.escape(_HIDDEN)}\(ptr (?:\w+ )*(%[^\s,]+), i32 (\d+)\)(.*)$")
_ALLOCA = re.compile(r"^  (%\S+) = alloca (.+?)(, align \d+)?$")
_GEP = re.compile(r"^  (%\S+) = getelementptr (.*?), ptr (%[^\s,]+)(, .*)$")
_LOAD = re.compile(r"^  (%\S+) = load ([\w]+), ptr (%[^\s,]+)(, align \d+)?((?:, ![\w.]+ !\d+)*)$")
_STORE = re.compile(r"^  store ([\w]+) [^,]+, ptr (%[^\s,]+)(, align \d+)?((?:, ![\w.]+ !\d+)*)$")


def hide(text: str) -> str:
    """Local arrays behind a function that LLVM does not know."""
    numbers: dict[str, int] = {}

    def hidden(m: re.Match) -> str:
        return f"{m[1]}call ptr @{_HIDDEN}(ptr {m[2]}, i32 {numbers.setdefault(m[2], len(numbers))})"

    text, count = _CAST.subn(hidden, text)
    return text + _DECLARATIONS if count else text


def with_twins(text: str) -> str:
    """The arrays are what they were; each that is only loaded from and stored to, element by element, has a twin."""
    parts = re.split(r"(?m)(^define .*?^}$)", text, flags=re.S)
    parts = [_function(part) if part.startswith("define") else part for part in parts]
    declared = [
        line for line in (f"declare void @{UNWRITTEN}(i1, i32) convergent nounwind memory(inaccessiblemem: readwrite)",
                          "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)") if line.split("(")[0] not in text
    ]  # fmt: skip
    return "\n".join(("".join(parts), *declared, ""))


def _function(body: str) -> str:
    lines = body.split("\n")
    roots = {m[1]: (m[2], m[3]) for line in lines if (m := _ROOT.match(line))}
    if not roots:
        return body
    array = {root: root for root in roots}  # pointer -> root it comes from
    plain = set(roots)
    for line in lines:  # in order of dominance but for loops, in which pointers to one place do not go round
        gep, load, store = _GEP.match(line), _LOAD.match(line), _STORE.match(line)
        used = {name for name in re.findall(r"%[-\w$.]+", line) if name in array}
        if gep and gep[3] in array:
            array[gep[1]] = array[gep[3]]
            used -= {gep[1], gep[3]}
        elif load or store:
            used -= {(load or store)[3 if load else 2]}  # type: ignore[index]
        elif _ROOT.match(line) or "@llvm.lifetime" in line or line.lstrip().startswith("#dbg"):
            used = set()
        plain -= {array[name] for name in used}
    kept = [line for line, after in zip(lines, [*lines[1:], ""], strict=True) if not (_MARK in line and _is_local_store(after, array))]
    return "\n".join(out for line in kept for out in _line(line, roots, array, plain))


def _is_local_store(line: str, array: dict[str, str]) -> bool:
    m = _STORE.match(line)
    return bool(m and m[2] in array)


def _line(line: str, roots: dict[str, tuple[str, str]], array: dict[str, str], plain: set[str]) -> list[str]:
    m = _ROOT.match(line)
    if m:
        return [f"  {m[1]} = bitcast ptr {m[2]} to ptr{m[4]}"]
    m = _ALLOCA.match(line)
    if m:
        twins = [root for root, (alloca, _) in roots.items() if alloca == m[1] and root in plain]
        made = [f"  {root}.twin = alloca {m[2]}{m[3] or ''}" for root in twins]
        size = type_size(Line(m[2]).type()) if twins else 0
        return [line, *made, *(f"  call void @llvm.memset.p0.i64(ptr {root}.twin, i8 -1, i64 {size}, i1 false)" for root in twins)]
    m = _GEP.match(line)
    if m and array.get(m[3]) in plain:
        return [line, f"  {m[1]}.twin = getelementptr {m[2]}, ptr {m[3]}.twin{m[4]}"]
    m = _STORE.match(line)
    if m and array.get(m[2]) in plain:
        return [line, f"  store i{8 * type_size(m[1])} 0, ptr {m[2]}.twin{m[3] or ''}{m[4]}"]
    m = _LOAD.match(line)
    if m and array.get(m[3]) in plain:
        bits, number = 8 * type_size(m[2]), roots[array[m[3]]][1]
        return [
            line,
            f"  {m[1]}.twin = load i{bits}, ptr {m[3]}.twin{m[4] or ''}{m[5]}",
            f"  {m[1]}.unwritten = icmp ne i{bits} {m[1]}.twin, 0{m[5]}",
            f"  call void @{UNWRITTEN}(i1 {m[1]}.unwritten, i32 {number}){m[5]}",
        ]
    return [line]
