"""The Python source of a kernel tree. STATEMENTS is the list of statement operations, with what each holds."""

from __future__ import annotations

import re

import numpy as np
from kernel_tree import NAMES, Array, Expr, Function, Kernel, Stmt, Variable, is_float
from raw_operations import RAW

HEADER = """import math

import numpy as np
from numba import cuda, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
"""
INDENT = "    "
FULL = "0xFFFFFFFF"

# ---- expressions ----------------------------------------------------------------------------------------------------


def literal(t: str, value) -> str:
    if t == "b":
        return str(bool(value))
    text = repr(value) if value >= 0 else f"({value!r})"
    return text if t in ("i8", "f8") else f"{NAMES[t]}({value!r})"


def element(array: Array, index: tuple[str, ...], how: str = "") -> str:
    """An element of an array that any thread may read: every index is brought into range. how: "", "negative", "mask", "view"."""
    if array.role in ("in", "special"):
        sizes = [f"{array.name}.shape[{k}]" for k in range(len(index))] if len(index) > 1 else [f"{array.name}.size"]
    else:
        sizes = [str(n) for n in (array.shape or (array.size,))]
    if how == "view":
        return array.name + "".join(f"[({i}) % {n}]" for i, n in zip(index, sizes, strict=True))
    if how == "mask":
        parts = [f"({i}) & {int(n) - 1}" for i, n in zip(index, sizes, strict=True)]
    elif how == "negative":
        parts = [f"-1 - ({i}) % {n}" for i, n in zip(index, sizes, strict=True)]
    else:
        parts = [f"({i}) % {n}" for i, n in zip(index, sizes, strict=True)]
    return f"{array.name}[{', '.join(parts)}]"


def own_element(array: Array, slot: str) -> str:
    """One of the elements that belong to this thread."""
    name, k = array.name, array.size
    if array.role == "slot" or k == 1:
        return f"{name}[gid, 0]" if array.layout == "2d" else f"{name}[gid]"
    slot = f"({slot}) % {k}"
    return {
        "coalesced": f"{name}[{slot} * total + gid]",
        "strided": f"{name}[gid * {k} + {slot}]",
        "reversed": f"{name}[{name}.size - 1 - gid * {k} - {slot}]",
        "2d": f"{name}[gid, {slot}]",
    }[array.layout]


class Writer:
    def __init__(self, kernel: Kernel):
        self.arrays = {a.name: a for a in kernel.arrays}

    def array(self, name: str) -> Array:
        """An array of the kernel, or the array parameter of a device function."""
        return self.arrays.get(name) or Array(name, "in", "")

    def expr(self, e: Expr) -> str:
        a = [self.expr(x) for x in e.args]
        match e.op:
            case "const":
                return literal(e.type, e.attr)
            case "var" | "special" | "scalar":
                return e.attr
            case "cast":
                return f"bool({a[0]})" if e.type == "b" else f"{NAMES[e.type]}({a[0]})"
            case "bin" | "cmp":
                return f"({a[0]} {e.attr} {a[1]})"
            case "shift":
                return f"({a[0]} {e.attr[0]} ({a[1]} & {e.attr[1]}))"
            case "power":
                return f"({a[0]} ** {e.attr})"
            case "unary" if e.attr == "~" and e.args[0].type[0] == "u":
                return f"int64(~{a[0]})"  # numba's own type is uint64 or int64, whichever of two signatures it meets first
            case "unary":
                return f"abs({a[0]})" if e.attr == "abs" else f"({e.attr}{a[0]})"
            case "logic":
                return f"(not {a[0]})" if e.attr == "not" else f"({f' {e.attr} '.join(a)})"
            case "chain":
                return f"({a[0]} {e.attr[0]} {a[1]} {e.attr[1]} {a[2]})"
            case "ternary":
                return f"({a[1]} if {a[0]} else {a[2]})"
            case "selp":
                return f"cuda.selp({a[0]}, {a[1]}, {a[2]})"
            case "extreme":
                return f"{e.attr}({a[0]}, {a[1]})"
            case "rounding":
                return f"math.{e.attr}({a[0]})"
            case "bits":
                return f"cuda.{e.attr}({a[0]})"
            case "fma":
                return f"cuda.fma({', '.join(a)})"
            case "inexact":
                return f"math.sqrt({a[0]})" if e.attr == "sqrt" else f"({a[0]} {e.attr} {a[1]})"
            case "quantised":
                low, high, scale, back = (literal(e.type, v) for v in (-100.0, 100.0, 16.0, 0.0625))
                return f"(math.floor(min(max({a[0]}, {low}), {high}) * {scale}) * {back})"
            case "load":
                name, how = e.attr
                array = self.array(name)
                text = element(array, tuple(a), how)
                # a function's array parameter may be given narrower elements, which numba's ffs, for one, cannot take
                return text if NAMES.get(array.dtype) == NAMES[e.type] else f"{NAMES[e.type]}({text})"
            case "own":
                return own_element(self.array(e.attr), a[0])
            case "call":
                return f"{e.attr[0]}({', '.join([*e.attr[1], *a])})"
        raise AssertionError(e.op)

    # ---- statements: lines without their indent ---------------------------------------------------------------------

    def body(self, body: tuple[Stmt, ...]) -> list[str]:
        lines = [line for s in body for line in self.lines(s)]
        return [INDENT + line for line in lines or ["pass"]]

    def lines(self, s: Stmt) -> list[str]:
        return STATEMENTS[s.op](self, s, [self.expr(e) for e in s.exprs])


def _assign(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    name, _, op = s.attr
    return [f"{name} {op}= {e[0]}"]


def _swap(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    a, b = s.attr
    return [f"{a}, {b} = {b}, {a}"]


def _choose(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    """An element of one of two arrays, which may be in different memories."""
    name, t, p, a, b = s.attr
    return [f"{p} = {a} if {e[0]} else {b}", f"{name} = {p}[({e[1]}) % {p}.size]"]


def _if(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    tail = ["else:", *w.body(s.bodies[1])] if s.bodies[1] else []
    return [f"if {e[0]}:", *w.body(s.bodies[0]), *tail]


def _for(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    name, t, step = s.attr
    tail = ["else:", *w.body(s.bodies[1])] if s.bodies[1] else []
    bounds = f"{e[0]}, {e[1]}" + (f", {literal(t, step)}" if step != 1 else "")
    return [f"for {name} in range({bounds}):", *w.body(s.bodies[0]), *tail]


def _while(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    """A condition of any kind, and a counter that ends the loop."""
    name, limit, style = s.attr
    if style == "true":
        head = ["while True:", f"{INDENT}if {name} >= {limit} or not {e[0]}:", f"{INDENT * 2}break"]
    else:
        head = [f"while {name} < {limit} and {e[0]}:" if style == "first" else f"while {e[0]} and {name} < {limit}:"]
    return [f"{name} = 0", *head, f"{INDENT}{name} += 1", *w.body(s.bodies[0])]


def _store(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    return [f"{own_element(w.array(s.attr), e[0])} = {e[1]}"]


def _put(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    return [f"{element(w.array(s.attr), (e[0],))} = {e[1]}"]


def _atomic_index(array: Array, index: list[str]) -> str:
    parts = [f"({i}) % {n}" for i, n in zip(index, array.shape or (array.size,), strict=True)]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _atomic(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    name, op = s.attr
    return [f"cuda.atomic.{op}({name}, {_atomic_index(w.array(name), e[:-1])}, {e[-1]})"]


def _slot(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    """An atomic on an element of one's own: the old value is one number."""
    name, result, t, op = s.attr
    old = f"cuda.atomic.{op}({', '.join([name, 'gid', *e])})"
    return [f"{result} = {convert_old(t, w.array(name).dtype, old)}"]


def convert_old(t: str, source: str, text: str) -> str:
    """What an atomic returned, as a variable of type t."""
    if is_float(t):
        return f"{NAMES[t]}(math.floor(min(max({text}, {literal(source, -100.0)}), {literal(source, 100.0)})))"
    return f"{NAMES[t]}({text} % 1000003)"


def _raw(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    array, name, special = s.attr
    a = w.array(special)
    x, y, z = (element(a, (i,)) for i in e[1:4])
    text = re.sub(r"\b[xyz]\b", lambda m: {"x": x, "y": y, "z": z}[m[0]], RAW[name][0])
    return [f"{own_element(w.array(array), e[0])} = {text}"]


def shared_own(array: Array, kind: str, c: int) -> str:
    """The element of a shared array that belongs to thread tid while all write: a bijection."""
    if array.shape:
        rows, columns = array.shape
        return f"{array.name}[tid // {columns}, tid % {columns}]" if kind != "reversed" else f"{array.name}[tid % {rows}, tid // {rows}]"
    return f"{array.name}[{ {'plain': 'tid', 'reversed': 'nt - 1 - tid', 'rotated': f'(tid + {c}) % nt'}[kind] }]"


SYNC = "cuda.syncthreads()"


def _exchange(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    name, kind, c, lead = s.attr
    write = f"{shared_own(w.array(name), kind, c)} = {e[0]}"
    write_lines = [f"if {e[1]}:", INDENT + write] if len(e) > 1 else [write]
    between = [line for x in s.bodies[0] for line in w.lines(x)]
    return [*[SYNC] * lead, *write_lines, *between, SYNC, *(line for x in s.bodies[1] for line in w.lines(x)), SYNC]


def _gather(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    """Atomics on a shared array by all, then reads of it by all."""
    lead = s.attr[1]
    first, second = ([line for x in b for line in w.lines(x)] for b in s.bodies)
    return [*[SYNC] * lead, *first, SYNC, *second, SYNC]


def _reduce(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    """A tree over shared memory, for any number of threads."""
    name, result, t, op, step, lead = s.attr
    dtype = w.array(name).dtype
    mine, other = f"{name}[tid]", f"{name}[tid + {step}]"
    both = f"{op}({mine}, {other})" if op in ("min", "max") else f"{mine} {op} {other}"
    total = f"{name}[0]"
    if is_float(dtype):
        low, high = literal(dtype, -100.0), literal(dtype, 100.0)
        total = f"math.floor(min(max({total}, {low}), {high}))"
    elif t == "i8":
        total = f"{total} % 1000003"
    return [
        *[SYNC] * lead, f"{mine} = {e[0]}", SYNC, f"{step} = 128", f"while {step} > 0:",
        f"{INDENT}if tid < {step} and tid + {step} < nt:", f"{INDENT * 2}{mine} = {both}", INDENT + SYNC, f"{INDENT}{step} //= 2",
        f"{result} = {NAMES[t]}({total})", SYNC, f"{mine} = {literal(dtype, 1)}", SYNC,
    ]  # fmt: skip


def _scan(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    """Running sums (Hillis and Steele), integers."""
    name, result, t, step, lead = s.attr
    dtype, before = w.array(name).dtype, f"{step}b"
    return [
        *[SYNC] * lead, f"{name}[tid] = {e[0]}", SYNC, f"{step} = 1", f"while {step} < nt:", f"{INDENT}{before} = {literal(dtype, 0)}",
        f"{INDENT}if tid >= {step}:", f"{INDENT * 2}{before} = {name}[tid - {step}]", INDENT + SYNC,
        f"{INDENT}{name}[tid] = {name}[tid] + {before}", INDENT + SYNC, f"{INDENT}{step} *= 2",
        f"{result} = {NAMES[t]}({name}[tid] % 1000003)", SYNC, f"{name}[tid] = {literal(dtype, 1)}", SYNC,
    ]  # fmt: skip


WARP = {
    "shfl_sync": "cuda.shfl_sync({mask}, {0}, {1} & 31)",
    "shfl_xor_sync": "cuda.shfl_xor_sync({mask}, {0}, {1} & 31)",
    "shfl_up_sync": "cuda.shfl_up_sync({mask}, {0}, {1} & 31)",
    "shfl_down_sync": "cuda.shfl_down_sync({mask}, {0}, {1} & 31)",
    "any_sync": "cuda.any_sync({mask}, {0})",
    "all_sync": "cuda.all_sync({mask}, {0})",
    "eq_sync": "cuda.eq_sync({mask}, {0})",
    "ballot_sync": "cuda.ballot_sync({mask}, {0})",
    "ballot_rank": "cuda.popc(cuda.ballot_sync({mask}, {0}) & cuda.lanemask_lt())",
    "match_any_sync": "cuda.match_any_sync({mask}, {0})",
}


def _warp(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    op, result, t = s.attr
    text = WARP[op].format(*e, mask=FULL)
    return [f"{result} = {text}" if t == "b" else f"{result} = {NAMES[t]}({text})"]


def _vote(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    op, result, t = s.attr
    call = f"cuda.{op}(int32({e[0]}))"
    return [f"{result} = {NAMES[t]}({call})" if op == "syncthreads_count" else f"{result} = {NAMES[t]}({call} != 0)"]


def _stride(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    name, array = s.attr
    return [f"for {name} in range(gid, {array}.size, total):", *w.body(s.bodies[0]), f"{INDENT}{array}[{name}] = {e[0]}"]


def _fill(w: Writer, s: Stmt, e: list[str]) -> list[str]:
    """A device function that writes into a local array."""
    function, array = s.attr
    return [f"{function}({', '.join([array, *e])})"]


STATEMENTS = {
    "assign": _assign,  # attr (variable, type, "" or the operator of an augmented one); exprs (value,)
    "swap": _swap,  # attr (variable, variable) of one type
    "choose": _choose,  # attr (variable, type, name of the view, array, array); exprs (condition, index)
    "if": _if,  # exprs (condition,); bodies (then, else)
    "for": _for,  # attr (variable, type, step); exprs (start, stop); bodies (loop, else)
    "while": _while,  # attr (counter, limit, style); exprs (condition,); bodies (loop,)
    "break": lambda w, s, e: ["break"],
    "continue": lambda w, s, e: ["continue"],
    "return": lambda w, s, e: ["return"],  # from the kernel
    "result": lambda w, s, e: [f"return {e[0]}"],  # from a device function
    "store": _store,  # attr array; exprs (slot, value)
    "put": _put,  # a local array's element; attr array; exprs (index, value)
    "atomic": _atomic,  # attr (array, operation); exprs (indices..., value)
    "slot": _slot,  # attr (array, variable, type, operation); exprs (operands...)
    "raw": _raw,  # attr (array, operation, special array); exprs (slot, three indices)
    # on a shared array, between barriers; "lead": one more before, for a kernel that also reads the array elsewhere
    "exchange": _exchange,  # attr (array, how threads map to elements, offset, lead); exprs (value[, guard]); bodies (between, readers)
    "gather": _gather,  # attr (array, lead); bodies (atomics, readers)
    "reduce": _reduce,  # attr (array, variable, type, operation, counter, lead); exprs (value,)
    "scan": _scan,  # attr (array, variable, type, counter, lead); exprs (value,)
    "warp": _warp,  # attr (operation, variable, type); exprs (operands...)
    "sync": lambda w, s, e: [SYNC],
    "sync_apart": lambda w, s, e: [f"if {e[0]}:", INDENT + SYNC, "else:", INDENT + SYNC],  # one barrier at two lines
    "syncwarp": lambda w, s, e: ["cuda.syncwarp()"],
    "vote": _vote,  # attr (operation, variable, type); exprs (predicate,)
    "stride": _stride,  # attr (variable, array); exprs (value,); bodies (loop,)
    "fill": _fill,  # attr (function, local array); exprs (arguments...)
}
SYNCHRONISE = frozenset(("exchange", "gather", "reduce", "scan", "warp", "sync", "sync_apart", "syncwarp", "vote"))

# ---- the whole ------------------------------------------------------------------------------------------------------

_LINEAR = {
    1: ("cuda.threadIdx.x", "cuda.blockDim.x", "cuda.grid(1)", "cuda.gridsize(1)"),
    2: (
        "cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x",
        "cuda.blockDim.x * cuda.blockDim.y",
        "(cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x) * nt + tid",
        "cuda.gridDim.x * cuda.gridDim.y * nt",
    ),
    3: (
        "(cuda.threadIdx.z * cuda.blockDim.y + cuda.threadIdx.y) * cuda.blockDim.x + cuda.threadIdx.x",
        "cuda.blockDim.x * cuda.blockDim.y * cuda.blockDim.z",
        "((cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.gridDim.x + cuda.blockIdx.x) * nt + tid",
        "cuda.gridDim.x * cuda.gridDim.y * cuda.gridDim.z * nt",
    ),
}


def _uses(name: str, lines: list[str]) -> bool:
    pattern = re.compile(rf"\b{re.escape(name)}\b")
    return any(pattern.search(line) for line in lines)


def used_variables(variables: tuple[Variable, ...], body: list[str]) -> list[Variable]:
    return [v for v in variables if _uses(v.name, body)]


def _prologue(kernel: Kernel, w: Writer, body: list[str]) -> list[str]:
    """Arrays, thread numbers and variables, as far as the body uses them."""
    variables = [f"{v.name} = {w.expr(v.init)}" for v in used_variables(kernel.variables, body)]
    arrays: list[str] = []
    for a in kernel.arrays:
        if not _uses(a.name, [*variables, *body]) or a.role not in ("local", "shared", "const"):
            continue
        if a.role == "const":
            arrays.append(f"{a.name} = cuda.const.array_like({a.name.upper()})")
            continue
        if a.role == "local":
            arrays.append(f"{a.name} = cuda.local.array({a.size}, {NAMES[a.dtype]})")
            arrays += [f"for q in range({a.size}):", f"{INDENT}{a.name}[q] = q % 5"]
            continue
        dynamic = a.layout == "dynamic"
        extent = "0" if dynamic else str(a.shape or a.size)
        arrays.append(f"{a.name} = cuda.shared.array({extent}, {NAMES[a.dtype]})")
        where = f"q // {a.shape[1]}, q % {a.shape[1]}" if a.shape else "q"
        arrays += [f"for q in range(tid, {a.size}, nt):", f"{INDENT}{a.name}[{where}] = q % 7"]
    if any(".shared." in line for line in arrays):
        arrays.append(SYNC)
    rest = [*arrays, *variables, *body]
    numbers = []
    for name, text in zip(("gid", "total", "tid", "nt"), (_LINEAR[kernel.ndim][k] for k in (2, 3, 0, 1)), strict=True):
        if _uses(name, [*rest, *numbers]):
            numbers.insert(0, f"{name} = {text}")
    return [*numbers, *arrays, *variables]


def _function(w: Writer, f: Function) -> list[str]:
    body = w.body(f.body)
    variables = [f"{INDENT}{v.name} = {w.expr(v.init)}" for v in used_variables(f.variables, body)]
    return ["", "", "@cuda.jit(device=True)", f"def {f.name}({', '.join(n for n, _ in f.parameters)}):", *variables, *body]


def parameters(kernel: Kernel) -> list[str]:
    """Names of the kernel's arguments: what the body uses."""
    w = Writer(kernel)
    body = w.body(kernel.body)
    text = [*_prologue(kernel, w, body), *body]
    names = [a.name for a in kernel.arrays if a.role not in ("local", "shared", "const")]
    return [n for n in [*names, *(n for n, _ in kernel.scalars)] if _uses(n, text)]


def used_functions(kernel: Kernel, text: list[str]) -> list[Function]:
    found: list[Function] = []
    w = Writer(kernel)
    for f in reversed(kernel.functions):
        if _uses(f.name, text):
            found.insert(0, f)
            text = [*text, *_function(w, f)[4:]]
    return found


def constant_values(a: Array) -> np.ndarray:
    return (np.arange(a.size) * 37 % 11 - (0 if a.dtype[0] == "u" else 5)).astype(NAMES[a.dtype])


def source(kernel: Kernel) -> str:
    """A module with the kernel in it, `kernel`, and its device functions."""
    w = Writer(kernel)
    body = w.body(kernel.body)
    inside = [*(INDENT + line for line in _prologue(kernel, w, body)), *body]
    lines = HEADER.splitlines()
    for a in kernel.arrays:
        if a.role == "const" and _uses(a.name, inside):
            lines += ["", f"{a.name.upper()} = np.array({constant_values(a).tolist()}, np.{NAMES[a.dtype]})"]
    for f in used_functions(kernel, inside):
        lines += _function(w, f)
    lines += ["", "", "@cuda.jit", f"def kernel({', '.join(parameters(kernel))}):", *inside]
    return "\n".join(lines) + "\n"
