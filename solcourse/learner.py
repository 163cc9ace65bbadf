"""A learner's file -> a module, whatever is in the file: the definition of what an exercise may contain.

The file is read by name, so that what is checked is what was saved. It runs in a fresh module, in a thread of its own, for a limited time.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import inspect
import linecache
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from solcourse.errors import SolcourseError

LIMIT_S = 10.0
# An exercise is solved in its own file. What could fetch the answer from elsewhere is refused by name.
REFUSED_IMPORTS = ("solutions", "importlib", "runpy", "ctypes")
REFUSED_CALLS = ("__import__", "exec", "eval", "open", "compile")


class Unfinished(Exception):
    """Why a learner's file does not get further, in words for them, and what to do where that is known. It never leaves exercises.check."""

    def __init__(self, stage: str, message: str, line: int | None = None, advice: str = ""):
        super().__init__(message)
        self.stage, self.message, self.line, self.advice = stage, message, line, advice


def load(path: Path, text: str, limit_s: float = LIMIT_S) -> ModuleType:
    """The module a learner's file makes. Raises Unfinished: syntax, refused imports, an exception, no end."""
    # tracebacks, inspect and numba show this text, not what the file may have become since
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    try:
        tree = ast.parse(text, str(path))
        code = compile(text, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # ValueError: null bytes
        raise Unfinished("syntax", *_syntax(error)) from None
    _refuse(tree)
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    limited(lambda: _run(code, module), path, "running the file", limit_s)
    return module


def _run(code: CodeType, module: ModuleType) -> None:
    """Runs a file as on a machine with a GPU: kernels with signatures compile, launches work."""
    from solcourse.verbs import use_engine

    with use_engine():
        exec(code, module.__dict__)


def _syntax(error: SyntaxError | ValueError) -> tuple[str, int | None]:
    if not isinstance(error, SyntaxError):
        return f"Python cannot read the file: {error}.", None
    kind = {"IndentationError": "Indentation", "TabError": "Tabs"}.get(type(error).__name__, "Syntax")
    return f"{kind}: {error.msg}.", error.lineno


def _refuse(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        for name in _reached(node):
            if name.split(".")[0] in REFUSED_IMPORTS or name.startswith("solcourse.") or name in REFUSED_CALLS:
                raise Unfinished("import", f"An exercise is solved in its own file: `{name}` is not for here.", node.lineno)  # type: ignore[attr-defined]


def _reached(node: ast.AST) -> list[str]:
    """The names by which a statement or call reaches outside its file."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module or ''}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return [node.func.id] if node.func.id in REFUSED_CALLS else []
    return []


def function(module: ModuleType, name: str) -> Callable[..., Any]:
    """A plain function of the learner's. Raises Unfinished."""
    found = _defined(module, name)
    if not inspect.isfunction(found):
        raise Unfinished("names", f"`{name}` should be a function, and is {_a(found)}.")
    return found


def kernel(module: ModuleType, name: str, parameters: list[str]) -> Any:
    """The learner's kernel, a numba.cuda dispatcher. Raises Unfinished when it is something else or takes something else."""
    found = _defined(module, name)
    if inspect.isfunction(found):
        raise Unfinished("names", f"`{name}` is a plain function: write @cuda.jit above it.", _first_line(found))
    python = getattr(found, "py_func", None)
    if type(found).__name__ == "FakeCUDAKernel":
        raise Unfinished("names", "NUMBA_ENABLE_CUDASIM is set: numba.cuda is replaced by a simulator. Unset it and start again.")
    if python is None or ".cuda" not in type(found).__module__ or getattr(found, "targetoptions", {}).get("device"):
        raise Unfinished("names", f"`{name}` should be a kernel made with @cuda.jit, and is {_a(found)}.", python and _first_line(python))
    if python.__code__.co_filename != module.__file__:
        raise Unfinished("names", f"`{name}` was made in another file: an exercise is solved in its own.")
    takes(python, parameters)
    return found


def takes(python: Callable[..., Any], parameters: list[str]) -> None:
    """A function of the learner's takes so many parameters. Raises Unfinished."""
    own = list(inspect.signature(python).parameters)
    if len(own) != len(parameters):
        said = f"`{python.__name__}` takes ({', '.join(own)}) and is called with ({', '.join(parameters)})."
        raise Unfinished("names", said, _first_line(python))


def _defined(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        raise Unfinished("names", f"There is no `{name}` in the file any more: the check looks for it by name.") from None


def _a(thing: Any) -> str:
    return f"a {type(thing).__name__}" if thing is not None else "None"


def _first_line(python: Callable[..., Any]) -> int:
    return python.__code__.co_firstlineno


class _TimeUp(BaseException):
    """Thrown into a thread that ran too long; no `except Exception` holds it."""


def limited(call: Callable[[], Any], path: Path, doing: str, limit_s: float = LIMIT_S) -> Any:
    """The value of call(), which runs code of the learner's file `path`, or Unfinished with the line where it failed or was stopped."""
    outcome: dict[str, Any] = {}

    def target() -> None:
        try:
            with contextlib.chdir(os.curdir):  # back to the same folder, wherever the file goes
                outcome["value"] = call()
        except BaseException as error:  # a learner's file may raise anything, exit() among them
            outcome["error"] = error

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    try:
        thread.join(limit_s)
        late = _line_in(sys._current_frames().get(thread.ident or 0), path) if thread.is_alive() else None
    finally:
        stopped = _stop(thread)
    if not stopped or isinstance(outcome.get("error"), _TimeUp):
        more = "" if stopped else " It is still running: restart the notebook's kernel."
        raise Unfinished("time", f"Stopped after {limit_s:g} s while {doing}: does a loop never end?{more}", late)
    if "error" in outcome:
        raise _told(outcome["error"], path, doing) from None
    return outcome["value"]


def _stop(thread: threading.Thread) -> bool:
    """Ends a thread that is still running Python code. False where it cannot be ended."""
    for _ in range(20):
        if not thread.is_alive():
            return True
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_TimeUp))
        thread.join(0.1)
    return not thread.is_alive()


def _line_in(frame: FrameType | None, path: Path) -> int | None:
    while frame is not None and frame.f_code.co_filename != str(path):
        frame = frame.f_back
    return frame.f_lineno if frame else None


def _told(error: BaseException, path: Path, doing: str) -> Unfinished:
    lines = [entry.lineno for entry in traceback.extract_tb(error.__traceback__) if entry.filename == str(path)]
    line = lines[-1] if lines else None
    if isinstance(error, Unfinished):
        return error
    if isinstance(error, SolcourseError):
        return Unfinished("error", str(error), line)
    if isinstance(error, ModuleNotFoundError):
        return Unfinished("import", f"There is no module named {error.name!r} here: exercises need numba and numpy only.", line)
    if isinstance(error, NotImplementedError):
        return Unfinished("unfinished", f"Not written yet ({error}).", line)
    if isinstance(error, SystemExit):
        return Unfinished("error", f"The file ends the program (exit) while {doing}.", line)
    return Unfinished("error", f"{type(error).__name__} while {doing}: {error}", line)
