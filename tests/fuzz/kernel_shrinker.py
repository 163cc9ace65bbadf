"""From a kernel that fails to a small one that fails in the same way: fewer statements, simpler expressions, a smaller launch.

Every step keeps the kernel valid: statements that belong together (a shared array's writers, barriers and readers) are one
node of the tree, a replacement has the type of what it replaces, its bits are within and it is as uniform.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from kernel_check import BUILDS, Build, Failure
from kernel_launches import arguments, dynamic_bytes
from kernel_oracle import Oracle
from kernel_source import parameters, source
from kernel_tree import Expr, Function, Kernel, Launch, Stmt, cast, const, expressions, is_float, is_int, statements

Evaluate = Callable[[Kernel, list[Launch]], Failure | None]


def alike(a: Failure | None, b: Failure) -> bool:
    """The same kind of failure; exceptions also begin with the same words (numbers and names apart)."""
    return a is not None and a.kind == b.kind and (a.kind in ("result", "counts", "findings") or _words(a.detail) == _words(b.detail))


def _words(text: str) -> str:
    return re.sub(r"[a-z]*\d+|<[^>]*>|\(.*?\)|`.*?`", "", text)[:50]


def shrink(kernel: Kernel, failure: Failure, evaluate: Evaluate, seconds: float = 120.0) -> tuple[Kernel, Failure]:
    """A smaller kernel and its failure. `evaluate` runs a kernel at launches; what it raises rejects the candidate."""
    end = time.monotonic() + seconds
    tried: set[tuple[str, Launch]] = set()

    def fails(candidate: Kernel, launch: Launch) -> Failure | None:
        key = (source(candidate), launch)
        if key in tried or time.monotonic() > end:
            return None
        tried.add(key)
        try:
            found = evaluate(candidate, [launch])
        except Exception:  # too slow, not exact, threads apart: not a kernel of ours any more
            return None
        return found if alike(found, failure) else None

    assert failure.launch is not None
    launch = failure.launch
    again = True
    while again and time.monotonic() < end:
        again = False
        for smaller_launch in smaller_launches(launch):
            if found := fails(kernel, smaller_launch):
                launch, failure, again = smaller_launch, found, True
                break
        for smaller in (without_statements, without_expressions):
            step = True
            while step and time.monotonic() < end:
                step = False
                for candidate in smaller(kernel):
                    if found := fails(candidate, launch):
                        kernel, failure, step, again = candidate, found, True, True
                        break
    return kernel, failure


# ---- launches -------------------------------------------------------------------------------------------------------

BLOCKS = [(1, 1, 1), (2, 1, 1), (32, 1, 1), (33, 1, 1), (64, 1, 1)]


def smaller_launches(launch: Launch) -> Iterator[Launch]:
    if launch.grid != (1, 1, 1):
        yield replace(launch, grid=(1, 1, 1))
    for block in BLOCKS:
        if int(np.prod(block)) < launch.threads:
            yield replace(launch, block=block)
    if not launch.plain:
        yield replace(launch, plain=True)


# ---- statements -----------------------------------------------------------------------------------------------------


def without_statements(kernel: Kernel) -> Iterator[Kernel]:
    for body in smaller_bodies(kernel.body):
        yield replace(kernel, body=body)
    for k, f in enumerate(kernel.functions):
        for body in smaller_bodies(f.body):
            yield _with_function(kernel, k, replace(f, body=body))


def _with_function(kernel: Kernel, k: int, f: Function) -> Kernel:
    return replace(kernel, functions=(*kernel.functions[:k], f, *kernel.functions[k + 1 :]))


def smaller_bodies(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    size = len(body)
    while size:
        for i in range(0, len(body), size):
            yield body[:i] + body[i + size :]
        size //= 2
    for i, s in enumerate(body):
        for smaller in smaller_statements(s):
            yield body[:i] + smaller + body[i + 1 :]


def smaller_statements(s: Stmt) -> Iterator[tuple[Stmt, ...]]:
    """What may stand for a statement: what it holds, or itself with less in it."""
    match s.op:
        case "if":
            yield from s.bodies
        case "for" | "while" | "stride":
            if not any(x.op in ("break", "continue") for x in s.bodies[0]) and not any(_leaves(x) for x in s.bodies[0]):
                t = s.attr[1] if s.op == "for" else "i8"
                yield tuple(_replaced(x, lambda e: e.op == "var" and e.attr == s.attr[0], const(t, 0)) for x in s.bodies[0])
        case "exchange" | "gather":
            readers = s.bodies[1] if s.op == "gather" else s.bodies[0] + s.bodies[1]
            yield tuple(_replaced(x, lambda e: e.op == "load" and e.attr[0] == s.attr[0], None) for x in readers)
        case "sync_apart":
            yield (Stmt("sync"),)
    if s.op == "exchange" and (s.attr[1] != "plain" or len(s.exprs) > 1):
        yield (replace(s, exprs=s.exprs[:1], attr=(s.attr[0], "plain", 0, s.attr[3])),)
    if s.op == "for" and s.attr[2] != 1:
        yield (replace(s, attr=(*s.attr[:2], 1)),)
    for k, inner in enumerate(s.bodies):
        for body in smaller_bodies(inner):
            yield (replace(s, bodies=(*s.bodies[:k], body, *s.bodies[k + 1 :])),)


def _leaves(s: Stmt) -> bool:
    """Whether a break or continue in it leaves the loop around it."""
    if s.op in ("for", "while", "stride"):
        return False
    return s.op in ("break", "continue") or any(_leaves(x) for body in s.bodies for x in body)


def _replaced(s: Stmt, what: Callable[[Expr], bool], by: Expr | None) -> Stmt:
    """Every expression that `what` picks, replaced; by None: by 1 of its type."""

    def inside(e: Expr) -> Expr:
        if what(e):
            return by if by is not None and by.type == e.type else const(e.type, 1.0 if is_float(e.type) else 1)
        return replace(e, args=tuple(inside(a) for a in e.args)) if e.args else e

    bodies = tuple(tuple(_replaced(x, what, by) for x in body) for body in s.bodies)
    return replace(s, exprs=tuple(inside(e) for e in s.exprs), bodies=bodies)


# ---- expressions ----------------------------------------------------------------------------------------------------


def without_expressions(kernel: Kernel) -> Iterator[Kernel]:
    for body in _simpler_bodies(kernel.body):
        yield replace(kernel, body=body)
    for k, f in enumerate(kernel.functions):
        for body in _simpler_bodies(f.body):
            yield _with_function(kernel, k, replace(f, body=body))
        for n, v in enumerate(f.variables):
            for e in simpler(v.init):
                variables = (*f.variables[:n], replace(v, init=e), *f.variables[n + 1 :])
                yield _with_function(kernel, k, replace(f, variables=variables))
    for n, v in enumerate(kernel.variables):
        for e in simpler(v.init):
            yield replace(kernel, variables=(*kernel.variables[:n], replace(v, init=e), *kernel.variables[n + 1 :]))


def _simpler_bodies(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    for i, s in enumerate(body):
        for k, e in enumerate(s.exprs):
            for simple in simpler(e):
                yield body[:i] + (replace(s, exprs=(*s.exprs[:k], simple, *s.exprs[k + 1 :])),) + body[i + 1 :]
        for k, inner in enumerate(s.bodies):
            for smaller in _simpler_bodies(inner):
                yield body[:i] + (replace(s, bodies=(*s.bodies[:k], smaller, *s.bodies[k + 1 :])),) + body[i + 1 :]


def simpler(e: Expr) -> Iterator[Expr]:
    """What may stand for an expression, the simplest first."""
    if e.op != "const":
        for value in (False, True) if e.type == "b" else (0.0, 1.0) if is_float(e.type) else (0, 1):
            yield const(e.type, value)
        for a in e.args:
            if a.type == e.type and _within(a, e):
                yield a
            elif is_int(a.type) and is_int(e.type) and _within(cast(e.type, a), e):
                yield cast(e.type, a)
    for k, a in enumerate(e.args):
        for simple in simpler(a):
            yield replace(e, args=(*e.args[:k], simple, *e.args[k + 1 :]))


def _within(a: Expr, e: Expr) -> bool:
    if e.bits is None:
        return a.bits is None or is_float(a.type)
    return a.bits is not None and a.bits[0] <= e.bits[0] and a.bits[1] >= e.bits[1]


def size(kernel: Kernel) -> int:
    """Statements and expressions of the kernel's body."""
    found = list(statements(kernel.body))
    return len(found) + sum(1 for s in found for e in s.exprs for _ in expressions(e))


# ---- the reproducer -------------------------------------------------------------------------------------------------


def reproducer(kernel: Kernel, failure: Failure) -> str:
    """A script that fails as the engine does: the kernel, its arguments as they are, and what the oracle makes of them."""
    launch = failure.launch
    assert launch is not None
    given = arguments(kernel, launch)
    lines = [f"# fuzz seed {kernel.seed}: {failure.kind} ({failure.build})", *(f"# {line}" for line in failure.detail.splitlines()[:6])]
    lines += [source(kernel), "from solcourse.simt import arguments, engine, frontend", ""]
    lines += [f"{name} = {_text(value)}" for name, value in given.items()]
    names = ", ".join(parameters(kernel))
    build = BUILDS.get(failure.build, Build(counters=True))
    lines += [
        f"args = ({names}{',' if len(given) == 1 else ''})",
        f"spec = frontend.launch_spec(kernel, {launch.grid}, {launch.block}, 0, {dynamic_bytes(kernel)})",
        "compiled = frontend.compile_kernel(kernel, frontend.argument_types(kernel, args))",
        "bound = arguments.bind(compiled, args)",
        "found = engine.sanitize(compiled, bound, spec.grid, spec.block, spec.dynamic_shared_bytes)\nassert not found, found"
        if build.checks
        else "engine.execute(compiled, bound, spec.grid, spec.block, spec.dynamic_shared_bytes, "
        f"counters={build.counters}, threads={build.threads})",
        "bound.write_back()",
    ]  # fmt: skip
    for name, want in Oracle(kernel).run(launch, given).items():
        if not np.array_equal(want, given[name], equal_nan=want.dtype.kind == "f"):  # type: ignore[arg-type]
            lines.append(f"np.testing.assert_array_equal({name}, {_text(want)})")
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return f"np.{value.dtype}({value.item()!r})" if isinstance(value, np.generic) else repr(value)
    items = re.sub(r"\b(nan|inf)\b", r"np.\1", repr(value.tolist()))
    order = ', order="F"' if value.ndim == 2 and not value.flags.c_contiguous else ""
    return f"np.array({items}, np.{value.dtype}{order})"
