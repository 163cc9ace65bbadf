"""Registers and spills as NVIDIA's compiler gives them to a learner's own kernel, remembered: per kernel and compute capability, in
this process and on disk.

A kernel is known by the fingerprint of its IR, the compiler by the versions of its parts, so a changed kernel and a new compiler are
asked again. On disk that is one text file of lines `key registers spill_bytes`, appended to, beside the package or, where nobody
may write there, in the user's cache folder; without either, nothing is kept. A line that cannot be read counts as absent.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from solcourse import toolchain
from solcourse.simt.records import Program
from solcourse.toolchain import ToolTrouble

MOST_BYTES = 1 << 20  # of the file: about 20,000 kernels; beyond, the older half is forgotten
_LOCK = threading.RLock()
_KNOWN: dict[str, Usage | str] = {}
_READ: set[Path] = set()


class Usage(NamedTuple):
    """registers per thread; spill_bytes: stores + loads in the code, per thread."""

    registers: int
    spill_bytes: int


def compiled(program: Program, cc: str) -> Usage | str:
    """What the compiler takes for `cc`, or in half a sentence why it cannot be asked; "" where it is just not installed."""
    if program.source is None or not program.source.modules or not toolchain.installed():
        return ""
    name = hashlib.sha256(f"{program.fingerprint} {cc} {toolchain.version()}".encode()).hexdigest()[:32]
    with _LOCK:
        if name not in _KNOWN:
            _read()
        if name not in _KNOWN:
            _KNOWN[name] = _ask(program, cc)
            _keep(name, _KNOWN[name])
        return _KNOWN[name]


def _ask(program: Program, cc: str) -> Usage | str:
    assert program.source is not None
    try:
        ptx = toolchain.nvvm_ptx(program.source, program.kernel, cc)
        return Usage(*toolchain.ptxas_usage(ptx, cc, program.source.options.get("max_registers")))
    except ToolTrouble as trouble:
        return str(trouble)


# ------------------------------------------------------------------------------------------------------------------ on disk
def _user_folder() -> Path:
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or tempfile.gettempdir()) / "solcourse"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "solcourse"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "solcourse"


def path() -> Path | None:
    """The file, in a folder that exists and can be written; None if there is none."""
    for folder in (Path(__file__).parent / "__pycache__", _user_folder()):
        with suppress(OSError, RuntimeError):  # RuntimeError: there is no home
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder / "registers.txt"
    return None


def _read() -> None:
    """Once per process: what others found out later is asked again at most once."""
    file = path()
    if file is None or file in _READ:
        return
    _READ.add(file)
    with suppress(OSError):
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
        for line in lines:
            name, *numbers = line.split(" ")
            if len(name) == 32 and len(numbers) == 2 and all(n.isascii() and n.isdigit() for n in numbers) and 0 < int(numbers[0]) <= 255:
                _KNOWN.setdefault(name, Usage(int(numbers[0]), int(numbers[1])))
        if file.stat().st_size > MOST_BYTES:
            _replace(file, lines[len(lines) // 2 :])


def _keep(name: str, found: Usage | str) -> None:
    """Only what was found: a compiler that fails today may be repaired tomorrow."""
    file = path()
    if file is None or isinstance(found, str):
        return
    with suppress(OSError), file.open("a", encoding="ascii", newline="\n") as stream:  # one short write, which others cannot split
        stream.write(f"{name} {found.registers} {found.spill_bytes}\n")


def _replace(file: Path, lines: list[str]) -> None:
    handle, made = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "w", encoding="ascii", errors="replace", newline="\n") as stream:
        stream.write("".join(f"{line}\n" for line in lines))
    os.replace(made, file)
