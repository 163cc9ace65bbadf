"""A stray access in a learner's words: which element of which array, and which guard is missing or wrong."""

from __future__ import annotations

import ast
import linecache
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from solcourse.simt.arguments import Allocation
from solcourse.simt.records import WARP, Finding, Site
from solcourse.simt.recursion import RECURSION, STACK_BYTES
from solcourse.simt.sources import Guard, Source, Unknown, arguments_known, coordinates, source_at

if TYPE_CHECKING:
    from solcourse.simt.faults import Launch

Dim = tuple[int, int, int]
SILENT = "A GPU would not have said anything."


def stray(launch: Launch, error: tuple[int, ...]) -> Finding:
    _, site_index, lane, offset, mask, _, linear, warp = error
    site, array_bytes = launch.compiled.program.sites[site_index], launch.compiled.array_bytes.get
    at, thread = launch.block_at(linear), launch.thread_at(warp * WARP + lane)
    text = linecache.getline(site.file, site.line).strip()
    line = f"in kernel {launch.kernel.name}, line {site.line}{f' (`{text}`)' if text else ''}"
    if site.array == RECURSION:
        return _stack_overflow(site, line, at, thread)
    allocation = next((a for a in launch.bound.allocations if a.name == site.array), None)
    index, element, extent = element_of(site, allocation, offset, array_bytes(site.array, 0))
    case = _case(launch, site, allocation, index, at, thread)
    if len(case.values) > 1 and None not in case.values:
        element = ", ".join(map(str, case.values))
    hint = _advice(launch, case, extent)
    if site.kind.startswith("shared") and allocation is None and not array_bytes(site.array, 0):
        dynamic = launch.dynamic_shared_bytes
        extent = f"{dynamic // site.size} elements in the {dynamic:,} bytes of dynamic shared memory of this launch"
        hint = f"{launch.kernel.name}[grid, block, stream, bytes] gives each block that many bytes; at least {offset + site.size:,} are needed here."
    verb = {"load": "reads", "store": "writes", "atomic": "updates"}[site.kind.rsplit("_", 1)[1]]
    where = f"{site.array}[{element}]" if allocation is not None else f"element {element} of {site.array or 'an array'}"
    lanes = (mask & 0xFFFFFFFF).bit_count()
    more = f" ({lanes} lanes of this warp do)" if lanes > 1 else ""
    return Finding(
        kind="out_of_bounds",
        severity="error",
        message=f"Out-of-bounds access {line}: thread {_show(thread)} of block {_show(at)} {verb} {where}, but the array has {extent}{more}. {SILENT}",
        hint=hint,
        file=site.file,
        line=site.line,
        block=at,
        thread=thread,
        array=site.array,
        index=int(index),
        count=lanes,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Case:
    """One stray access. parts: its index as written, () where that is not clear; values: what it is for the thread, None: not known."""

    site: Site
    source: Source | None
    parts: tuple[ast.expr, ...]
    values: tuple[int | None, ...]
    known: Mapping[str, Any]
    index: int


def _case(launch: Launch, site: Site, allocation: Allocation | None, index: int, at: Dim, thread: Dim) -> _Case:
    source = source_at(site.file, site.line)
    known = arguments_known(launch.kernel, launch.bound) if site.file == launch.file else {}
    known |= coordinates(launch.grid, launch.block, at, thread)
    shape = allocation.shape if allocation is not None else ()
    maybe = []
    for written in source.indices(site.line, site.array) if source else ():
        parts = tuple(written.elts) if isinstance(written, ast.Tuple) else (written,)
        values = tuple(_value(source, part, known) for part in parts)  # type: ignore[arg-type]
        if None in values:
            maybe.append((parts, values))
        elif _flat(values, shape) == index:
            return _Case(site, source, parts, values, known, index)
        else:
            maybe.append((parts, ()))  # not this one, or not as it reads
    unknown = [m for m in maybe if m[1]] if len(maybe) > 1 else maybe
    parts, values = unknown[0] if len(unknown) == 1 else ((), ())
    return _Case(site, source, parts, values, known, index)


def _flat(values: tuple[Any, ...], shape: tuple[int, ...]) -> int:
    """The index in C order; negative ones counted from the end."""
    if len(values) == 1:
        size = math.prod(shape)
        return values[0] + size if values[0] < 0 else values[0]
    flat = 0
    for value, n in zip(values, shape, strict=False):
        flat = flat * n + (value + n if value < 0 else value)
    return flat


def _value(source: Source, node: ast.expr, known: Mapping[str, Any]) -> int | None:
    try:
        return int(source.value(node, known))
    except Unknown:
        return None


def negative_index(launch: Launch, file: str, line: int, index: int, at: Dim, thread: Dim) -> str:
    """The index expression on a line that is so much for one thread; "" where that is not clear."""
    source, known = (
        source_at(file, line),
        {**arguments_known(launch.kernel, launch.bound), **coordinates(launch.grid, launch.block, at, thread)},
    )
    parts = source.subscripts(line) if source else []
    exact = [p for p in parts if source and _value(source, p, known) == index]
    maybe = [p for p in parts if source and _value(source, p, known) is None]
    found = {ast.unparse(p) for p in exact or maybe}
    return found.pop() if len(found) == 1 else ""


def by_threads_alone(launch: Launch, a: Allocation) -> bool:
    """Whether the kernel's text writes an array at indices that no argument shifts, `out[first + i]`."""
    source = source_at(launch.file, launch.kernel.first_line)
    stores = source.stores(a.name) if source else []
    todo: list[ast.AST] = [s.slice for s in stores]
    seen: set[str] = set()
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Attribute):  # a size
            continue
        if isinstance(node, ast.Name) and node.id not in seen:
            seen.add(node.id)
            todo += source.definitions.get(node.id, ()) if source else ()
        todo += ast.iter_child_nodes(node)
    return bool(stores) and not seen & set(launch.kernel.arg_names)


def covered(launch: Launch, a: Allocation) -> tuple[int, ...]:
    """Up to which index along each axis the kernel's text writes an array, one element for each thread; () where it does not say."""
    source = source_at(launch.file, launch.kernel.first_line)
    stores = source.stores(a.name) if source else []
    if len(stores) != 1 or source is None:
        return ()
    index = stores[0].slice
    known = arguments_known(launch.kernel, launch.bound)
    last = [tuple(n - 1 for n in extent) for extent in (launch.grid, launch.block)]
    known |= coordinates(launch.grid, launch.block, *last)  # type: ignore[arg-type]
    values = [_value(source, part, known) for part in (index.elts if isinstance(index, ast.Tuple) else [index])]
    return tuple(v + 1 for v in values if v is not None) if None not in values and len(values) == len(a.shape) else ()


# ---- what to do -------------------------------------------------------------------------------------------------------------


def _advice(launch: Launch, case: _Case, extent: str) -> str:
    array = case.site.array
    if not case.parts or any(isinstance(p, ast.Slice) for p in case.parts) or all(isinstance(p, ast.Constant) for p in case.parts):
        return f"Guard the access, for example `if i < {array or 'x'}.size:`, or check the index."
    condition = _condition(case)
    guards = (
        [g for g in reversed(case.source.guards(case.site.line)) if _names(case.source, g.test) & _index_names(case)] if case.source else []
    )
    for guard in guards:
        wrong = _wrong_operator(case, guard) or _off_by_one(case, guard)
        if wrong:
            return f"The guard at line {guard.line}, `{ast.unparse(guard.test)}`, lets it through: {wrong}."
    if guards:
        text = ast.unparse(guards[0].test)
        return f"The guard at line {guards[0].line}, `{text}`, does not cover this index: `if {condition}:` would."
    threads = [g * b for g, b in zip(launch.grid, launch.block, strict=True)]
    own = [case.known[f"cuda.grid(2)[{k}]"] for k in range(2)]
    if case.site.kind.startswith("global") and threads[2] == 1 and list(case.values) in ([own[0]][: threads[1] == 1], own, own[::-1]):
        count = f"{threads[0]:,}" if len(case.values) == 1 else f"{threads[0]:,} x {threads[1]:,}"
        return f"There are {count} threads for {extent}: guard the access, for example `if {condition}:`, or check the index."
    return f"Guard the access, for example `if {condition}:`, or check the index."


def _condition(case: _Case) -> str:
    """When the index is inside: "i + 1 < x.size", "i < a.shape[0] and j >= 0"."""
    array, several = case.site.array, len(case.parts) > 1
    terms = []
    for axis, part in enumerate(case.parts):
        value = case.values[axis] if case.values else None
        low = value < 0 if value is not None else case.index < 0 and not several
        if not isinstance(part, ast.Constant):
            terms.append(f"{ast.unparse(part)} >= 0" if low else f"{ast.unparse(part)} < {array}.{f'shape[{axis}]' if several else 'size'}")
    return " and ".join(terms)


def _names(source: Source, *nodes: ast.expr) -> set[str]:
    """The names in expressions, and in the definitions of those."""
    found: set[str] = set()
    todo: list[ast.AST] = list(nodes)
    for node in todo:  # grows as it is read
        for name in ast.walk(node):
            if isinstance(name, ast.Name) and name.id not in found:
                found.add(name.id)
                todo += source.definitions.get(name.id, [])
    return {name for name in found if name in source.definitions}


def _index_names(case: _Case) -> set[str]:
    return _names(case.source, *case.parts) if case.source else set()


# comparison -> (which of its sides holds the index, what it should be); under a guard, and in one that leaves
_TOO_WIDE: dict[bool, dict[type, tuple[int, str]]] = {
    True: {ast.LtE: (0, "`<=` should be `<`"), ast.GtE: (1, "`>=` should be `>`")},
    False: {ast.Gt: (0, "`>` should be `>=`"), ast.Lt: (1, "`<` should be `<=`")},
}


def _off_by_one(case: _Case, guard: Guard) -> str:
    """`if i <= n:`, or `if i > n: return`, where i is n."""
    for term in _terms(guard):
        if not isinstance(term, ast.Compare) or len(term.ops) > 1 or case.source is None:
            continue
        side, should = _TOO_WIDE[guard.passes].get(type(term.ops[0]), (0, ""))
        sides = (term.left, term.comparators[0])
        values = [_value(case.source, s, case.known) for s in sides]
        if should and _names(case.source, sides[side]) & _index_names(case) and None not in values and values[0] == values[1]:
            return should
    return ""


def _terms(guard: Guard) -> list[ast.expr]:
    """The conditions that each held (or each did not, for a guard that leaves)."""
    whole = ast.And if guard.passes else ast.Or
    return guard.test.values if isinstance(guard.test, ast.BoolOp) and isinstance(guard.test.op, whole) else [guard.test]


def _wrong_operator(case: _Case, guard: Guard) -> str:
    """`if x >= n and y >= m: return`, or `if x < n or y < m:`, where the other operator would have stopped the thread."""
    test = guard.test
    if not isinstance(test, ast.BoolOp) or isinstance(test.op, ast.And) == guard.passes:
        return ""
    if not all(isinstance(t, ast.Compare) and isinstance(t.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE) for t in test.values):
        return ""
    held = [_value(case.source, t, case.known) for t in test.values] if case.source else []
    if None not in held and all(bool(h) == guard.passes for h in held):
        return ""  # the other operator lets it through as well
    return "`or` should be `and`" if guard.passes else "`and` should be `or`"


def _show(dim: Dim) -> str:
    return f"({dim[0]}, {dim[1]}, {dim[2]})"


def _stack_overflow(site: Site, line: str, block: Dim, thread: Dim) -> Finding:
    return Finding(
        kind="stack_overflow",
        severity="error",
        message=f"The recursion {line}, is too deep: thread {_show(thread)} of block {_show(block)} needs more than the "
        f"{STACK_BYTES >> 10} KiB of stack that a thread has here.",
        hint="Does every call come nearer to the case that ends it? A GPU gives a thread 1 KiB by default, and a loop needs none.",
        file=site.file,
        line=site.line,
        block=block,
        thread=thread,
        array=site.array,
    )


def element_of(site: Site, allocation: Allocation | None, offset: int, nbytes: int) -> tuple[int, str, str]:
    """(flat index, index as written, the array's extent) of the byte `offset` of the allocation that a site strayed from."""
    if allocation is None:
        index = offset // site.size
        return index, str(index), f"{nbytes // site.size} elements" if nbytes else "another size"
    view = getattr(allocation.array, "engine_view", allocation.array)
    strides = getattr(view, "strides", None)
    if not strides or any(s == 0 for s in strides) or len(strides) < 2:
        index = offset // (allocation.itemsize or site.size)
        size = math.prod(allocation.shape)
        return index, str(index), f"{size} elements" if len(allocation.shape) <= 1 else f"shape {allocation.shape}"
    left = allocation.address + offset - view.ctypes.data
    parts = [0] * len(strides)
    for axis in sorted(range(len(strides)), key=lambda a: -abs(strides[a])):  # the slowest axis takes what lies beyond
        parts[axis], left = divmod(left, strides[axis]) if strides[axis] > 0 else (-(left // -strides[axis]), left % -strides[axis])
    return offset // (allocation.itemsize or site.size), ", ".join(map(str, parts)), f"shape {view.shape}"
