"""A kernel's source, for messages: the branches and loops a line is in, what an index is for one thread, the guard that let it through.

Everything here is read off the text, and may be wrong about it only by saying nothing: None, or an empty answer.
Glossary: guard (a condition that an access stands under, or a `return` before it), definition (the only assignment to a name).
"""

from __future__ import annotations

import ast
import linecache
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from numba import types

if TYPE_CHECKING:
    from solcourse.simt.arguments import BoundArguments
    from solcourse.simt.frontend import KernelIR

Dim = tuple[int, int, int]
AXES = "xyz"
_LOOPS = (ast.For, ast.While)
_BINARY: dict[type, Callable] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Div: operator.truediv, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.Pow: operator.pow,
}  # fmt: skip
_UNARY: dict[type, Callable] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert}
_COMPARE: dict[type, Callable] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_CASTS = ("int32", "int64", "uint32", "uint64", "intp", "int")


class Unknown(Exception):
    """The text does not tell the value."""


class Guard(NamedTuple):
    """passes: the value that `test` had where the access was reached: False for `if test: return`."""

    test: ast.expr
    passes: bool
    line: int


class Update(NamedTuple):
    """`array[at] op= value`; name: of the atomic operation that does it whole, '' if there is none."""

    name: str
    at: str
    value: str


@dataclass(frozen=True, eq=False)
class Source:
    """One function, with the line numbers of its file. constants: what the module assigns once to a name, as it stands there."""

    tree: ast.FunctionDef
    constants: Mapping[str, ast.expr]
    definitions: Mapping[str, list[ast.expr]]
    varying: frozenset[str]  # names that an access may find with more than one value in one thread

    # ---- where

    def around(self, line: int) -> list[ast.stmt]:
        """The statements that a line is in, the outermost first, the line's own last."""
        found, inside = [], list(self.tree.body)
        while inside:
            statement = next((s for s in inside if s.lineno <= line <= (s.end_lineno or s.lineno)), None)
            if statement is None:
                break
            found.append(statement)
            inside = [s for _, body in _bodies(statement) for s in body]
        return found

    def loop(self, *lines: int) -> ast.stmt | None:
        """The innermost loop that all of the lines are in."""
        return next((s for s in reversed(self.around(lines[0])) if isinstance(s, _LOOPS) and all(_holds(s, n) for n in lines)), None)

    def branches(self, *lines: int) -> list[ast.If]:
        """The `if` statements on which threads of a block may disagree, and that all of the lines are in, on one side; outermost first."""
        return [
            s for s in self.around(lines[0])
            if isinstance(s, ast.If) and self.of_threads(s.test)
            and any(all(any(_holds(part, n) for part in body) for n in lines) for _, body in _bodies(s))
        ]  # fmt: skip

    def of_threads(self, test: ast.expr) -> bool:
        """Whether threads of one block may find different values of an expression."""
        return any(d == "data" or d.startswith("threadIdx") for d in self.depends(test))

    # ---- what

    def indices(self, line: int, array: str) -> list[ast.expr]:
        """The index expressions into an array on a line: of `array[...]` and of `cuda.atomic.f(array, index, value)`."""
        found: dict[str, ast.expr] = {}
        for statement in reversed(self.around(line)):
            for node in _own(statement):
                index = _index_of(node, array)
                if index is not None and _holds(node, line):
                    found.setdefault(ast.unparse(index), index)
        return list(found.values())

    def subscripts(self, line: int) -> list[ast.expr]:
        """The parts of every index on a line, whatever the array."""
        found = [n for s in self.around(line) for n in _own(s) if isinstance(n, ast.Subscript) and _holds(n, line)]
        return [part for n in found for part in (n.slice.elts if isinstance(n.slice, ast.Tuple) else [n.slice])]

    def stores(self, array: str) -> list[ast.Subscript]:
        """Every `array[...] = ...` of the function."""
        return [
            n for n in ast.walk(self.tree)
            if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) and ast.unparse(n.value) == array
        ]  # fmt: skip

    def calls(self, name: str) -> list[ast.Call]:
        """Every call of a function whose name ends so: "syncthreads", "atomic.add"."""
        return [n for n in ast.walk(self.tree) if isinstance(n, ast.Call) and ast.unparse(n.func).endswith(name)]

    def update(self, line: int, array: str) -> Update | None:
        """The line as `array[at] op= value`, where it is that."""
        around = self.around(line)
        node = around[-1] if around else None
        target = node.target if isinstance(node, ast.AugAssign) else node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Subscript) or ast.unparse(target.value) != array:
            return None
        index, cell = ast.unparse(target.slice), ast.unparse(target)
        index = f"({index.strip('()')})" if isinstance(target.slice, ast.Tuple) else index
        if isinstance(node, ast.AugAssign):
            return Update(_ATOMICS.get(type(node.op), ""), index, ast.unparse(node.value))
        value = node.value  # type: ignore[union-attr]
        if isinstance(value, ast.BinOp):
            sides = [ast.unparse(value.left), ast.unparse(value.right)]
            if sides[0] == cell or (sides[1] == cell and isinstance(value.op, ast.Add | ast.Mult)):
                return Update(_ATOMICS.get(type(value.op), ""), index, sides[sides[0] == cell])
        if isinstance(value, ast.Call) and ast.unparse(value.func) in ("max", "min") and len(value.args) == 2:
            others = [ast.unparse(a) for a in value.args if ast.unparse(a) != cell]
            if len(others) == 1:
                return Update(ast.unparse(value.func), index, others[0])
        return None

    def depends(self, node: ast.AST, seen: frozenset[str] = frozenset()) -> set[str]:
        """What an expression's value varies with: "threadIdx.x" and so on; "data" for what was loaded from memory or is not known."""
        text = ast.unparse(node)
        for name in ("threadIdx", "blockIdx"):
            if text in {f"cuda.{name}.{axis}" for axis in AXES}:
                return {text.removeprefix("cuda.")}
        if text.startswith("cuda.grid(") and isinstance(node, ast.Call | ast.Subscript):
            axes = AXES[int(text[-2])] if isinstance(node, ast.Subscript) else AXES[: int(text[-2])] if text[-2] in "123" else AXES
            return {f"{name}.{axis}" for name in ("threadIdx", "blockIdx") for axis in axes}
        if text in ("cuda.laneid", "cuda.warpid"):
            return {"threadIdx.x"}
        if isinstance(node, ast.Name):
            if node.id in seen:
                return set()
            parts: list[ast.AST] = list(self.definitions.get(node.id, ()))
            return set().union(*(self.depends(p, seen | {node.id}) for p in parts))
        if isinstance(node, ast.Subscript) and not ast.unparse(node.value).endswith(".shape"):
            return {"data"}
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name not in ("range", "min", "max", "abs", "len", "gridsize", *_CASTS):
                return {"data"}
            return set().union(*(self.depends(a, seen) for a in node.args))
        if isinstance(node, ast.Attribute):
            return set()
        return set().union(*(self.depends(child, seen) for child in ast.iter_child_nodes(node)))

    # ---- how much

    def value(self, node: ast.expr, known: Mapping[str, Any], deep: int = 8) -> Any:
        """An expression's value where that of some others, as written, is known. Raises Unknown."""
        text = ast.unparse(node)
        if text in known and text not in self.definitions:
            return known[text]
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.Name) and deep and node.id not in self.varying:
            given = self.definitions.get(node.id) or ([self.constants[node.id]] if node.id in self.constants else [])
            if len(given) == 1:
                return self.value(given[0], known, deep - 1)
        try:
            return self._computed(node, known, deep)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise Unknown(text) from error

    def _computed(self, node: ast.expr, known: Mapping[str, Any], deep: int) -> Any:
        def of(part: ast.expr) -> Any:
            return self.value(part, known, deep)

        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return _BINARY[type(node.op)](of(node.left), of(node.right))
        if isinstance(node, ast.UnaryOp):
            return _UNARY[type(node.op)](of(node.operand))
        if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            sides = [of(part) for part in (node.left, *node.comparators)]
            return all(_COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False))
        if isinstance(node, ast.BoolOp):
            return (all if isinstance(node.op, ast.And) else any)([of(part) for part in node.values])
        if isinstance(node, ast.Call) and not node.keywords:
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in _CASTS and len(node.args) == 1:
                return int(of(node.args[0]))
            if name in ("min", "max"):
                return (min if name == "min" else max)(of(a) for a in node.args)
        raise Unknown(ast.unparse(node))

    # ---- guards

    def guards(self, line: int) -> list[Guard]:
        """What an access on a line stands under, the nearest last."""
        found, inside = [], list(self.tree.body)
        for statement in self.around(line):
            found += [
                Guard(s.test, False, s.lineno)
                for s in inside
                if isinstance(s, ast.If) and s.lineno < statement.lineno and _leaves(s.body) and not s.orelse
            ]
            for side, body in _bodies(statement):
                if any(_holds(s, line) for s in body):
                    inside = body
                    if isinstance(statement, ast.If | ast.While):
                        found.append(Guard(statement.test, side == "body", statement.lineno))
        return found


_ATOMICS: dict[type, str] = {ast.Add: "add", ast.Sub: "sub", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}


def _bodies(statement: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    for side in ("body", "orelse"):
        if isinstance(statement, ast.If | ast.With | ast.For | ast.While) and getattr(statement, side, None):
            yield side, getattr(statement, side)


def _holds(node: ast.AST, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)  # type: ignore[attr-defined]


def _leaves(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Return | ast.Continue | ast.Break)


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """A statement's expressions, without the statements in it."""
    todo: list[ast.AST] = [statement]
    for node in todo:  # grows as it is read
        todo += [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.stmt)]
        if node is not statement:
            yield node


def _index_of(node: ast.AST, array: str) -> ast.expr | None:
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == array:
        return node.slice
    if isinstance(node, ast.Call) and len(node.args) > 2 and ".atomic." in ast.unparse(node.func) and ast.unparse(node.args[0]) == array:
        return node.args[1]
    return None


def source_at(file: str, line: int) -> Source | None:
    """The function that a line of a file is in; None where it cannot be read."""
    return _source(file, line, tuple(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _source(file: str, line: int, lines: tuple[str, ...]) -> Source | None:
    functions = [f for f in _functions(file, lines) if _first(f.tree) <= line <= (f.tree.end_lineno or 0)]
    return max(functions, key=lambda f: f.tree.lineno, default=None)


@lru_cache(maxsize=16)
def _functions(file: str, lines: tuple[str, ...]) -> list[Source]:
    try:
        module = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return []
    constants = {name: values[0] for name, values in _assignments(module)[0].items() if len(values) == 1}
    trees = [n for n in ast.walk(module) if isinstance(n, ast.FunctionDef)]
    return [Source(t, constants, d, frozenset(v)) for t, (d, v) in ((t, _assignments(t)) for t in trees)]


def _first(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(d.lineno for d in function.decorator_list)])


def _assignments(scope: ast.FunctionDef | ast.Module) -> tuple[dict[str, list[ast.expr]], set[str]]:
    """Name -> what is assigned to it; and the names whose value changes."""
    found: dict[str, list[ast.expr]] = {}
    varying = set()
    for node in ast.walk(scope) if isinstance(scope, ast.FunctionDef) else scope.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name, value in _unpacked(target, node.value):
                    found.setdefault(name, []).append(value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).append(node.value)
            varying.add(node.target.id)
        elif isinstance(node, ast.For):
            names = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
            for name in names:
                found.setdefault(name, []).append(node.iter)
            varying |= names
    return found, varying | {name for name, values in found.items() if len(values) > 1}


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        for k, part in enumerate(target.elts):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            yield from _unpacked(part, value.elts[k] if same else ast.Subscript(value, ast.Constant(k), ast.Load()))  # type: ignore[attr-defined]


def coordinates(grid: Dim, block: Dim, at: Dim, thread: Dim) -> dict[str, int]:
    """What cuda's names are worth for one thread: "cuda.threadIdx.x" and the others, "cuda.grid(2)[1]", "cuda.gridsize(1)"."""
    known = {}
    for k, axis in enumerate(AXES):
        for name, value in (("threadIdx", thread), ("blockIdx", at), ("blockDim", block), ("gridDim", grid)):
            known[f"cuda.{name}.{axis}"] = value[k]
        for n in (2, 3):
            known[f"cuda.grid({n})[{k}]"] = at[k] * block[k] + thread[k]
            known[f"cuda.gridsize({n})[{k}]"] = grid[k] * block[k]
    known["cuda.grid(1)"], known["cuda.gridsize(1)"] = known["cuda.grid(2)[0]"], known["cuda.gridsize(2)[0]"]
    known["cuda.laneid"] = (thread[0] + block[0] * (thread[1] + block[1] * thread[2])) % 32
    return known


def arguments_known(kernel: KernelIR, bound: BoundArguments) -> dict[str, Any]:
    """What a kernel's arguments are worth, as a kernel writes it: "n", "x.size", "x.shape[0]", "len(x)"."""
    known: dict[str, Any] = {}
    for a in bound.allocations:
        known |= {f"{a.name}.shape[{k}]": n for k, n in enumerate(a.shape)} | {f"{a.name}.size": math.prod(a.shape)}
        known |= {f"len({a.name})": a.shape[0]} if a.shape else {}
    at = 0
    for name, kind in zip(kernel.arg_names, kernel.arg_types, strict=False):
        if isinstance(kind, types.Array):
            at += 5 + 2 * kind.ndim  # as numba flattens it: parent, owner, size, item size, data, shape, strides
        elif isinstance(kind, types.Integer | types.Float | types.Boolean):
            known[name], at = bound.values[at][1], at + 1
        else:
            break
    return known
