"""The shared and local arrays that a kernel's source declares: their names and shapes, which compiled code no longer has."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from solcourse.simt.frontend import KernelIR


def shared_names(kernel: KernelIR) -> list[str]:
    """The variables that the kernel's source gives to its shared arrays, in order; empty when the source cannot be read."""
    lines = linecache.getlines(kernel.file)[kernel.first_line - 1 :]
    try:
        tree = ast.parse(textwrap.dedent("".join(inspect.getblock(lines))))
    except (SyntaxError, IndexError, tokenize.TokenError):
        return []
    return [name for name, _ in _declarations(tree, "shared.array")]


def shapes_of(function: Callable | None, made_by: str) -> dict[str, tuple[tuple[int, ...], int]]:
    """Name of each array of a kernel that `made_by` ("shared.array", "local.array") makes, in order -> its shape and the bytes of an
    element, as far as the source says so plainly: (), 0 elsewhere."""
    if function is None:
        return {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        scope = inspect.getclosurevars(function)
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    names = {**scope.builtins, **scope.globals, **scope.nonlocals}
    found: dict[str, tuple[tuple[int, ...], int]] = {}
    for name, call in _declarations(tree, made_by):
        given = [*call.args, *(k.value for k in call.keywords)]
        shape, dtype = (_value(part, names) for part in given) if len(given) == 2 else (None, None)
        shape = (shape,) if isinstance(shape, int | np.integer) else shape
        found[name] = (), 0
        if isinstance(shape, tuple) and all(isinstance(n, int | np.integer) and n > 0 for n in shape):
            found[name] = tuple(int(n) for n in shape), _itemsize(dtype)
    return found


def _declarations(tree: ast.AST, made_by: str) -> Iterator[tuple[str, ast.Call]]:
    """(variable, call) in the order of the source; `a, b = array(...), array(...)` are two."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)
            pairs += zip(target.elts, value.elts, strict=True) if several else [(target, value)]  # type: ignore[attr-defined]
    for target, value in sorted(pairs, key=lambda pair: (pair[1].lineno, pair[1].col_offset)):
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and ast.unparse(value.func).endswith(made_by):
            yield target.id, value


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    """A constant, a name of the scope around the kernel, an attribute, or simple arithmetic with them; None for anything else."""
    allowed = (ast.Constant, ast.Name, ast.Attribute, ast.Tuple, ast.BinOp, ast.operator, ast.Load, ast.UnaryOp, ast.unaryop)
    if not all(isinstance(part, allowed) for part in ast.walk(node)):
        return None
    try:
        return eval(compile(ast.Expression(node), "<shape>", "eval"), {"__builtins__": {}}, names)
    except Exception:  # a name of the kernel's own
        return None


def _itemsize(dtype: Any) -> int:
    from numba.np.numpy_support import as_dtype

    try:
        return int(np.dtype(as_dtype(dtype) if hasattr(dtype, "cast_python_value") or hasattr(dtype, "bitwidth") else dtype).itemsize)
    except Exception:  # a type without NumPy's counterpart
        return 0
