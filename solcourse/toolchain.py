"""From a kernel's LLVM IR to PTX, to machine code, to SASS: NVIDIA's compiler where it is installed, LLVM's own for PTX everywhere.

    numba's LLVM IR -> NVVM -> PTX -> nvJitLink -> cubin -> nvdisasm -> SASS             none of them needs a GPU or a driver
                    -> llvmlite's NVPTX target -> PTX                                     where NVVM is not installed

NVVM and nvJitLink come with numba-cuda[cu13], and it is they that numba-cuda itself compiles with on a GPU. Whatever is missing,
too old or broken is a ToolTrouble whose text says so in half a sentence.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

from solcourse.errors import SolcourseError
from solcourse.simt.records import Source

OLDEST_CC = "7.5"  # what CUDA 13 compiles for; older devices are shown, and counted, as this one
NVVM_CURE = "pip install 'numba-cuda[cu13]' (Linux and Windows; it needs no GPU)"
NVDISASM_CURE = "pip install nvidia-cuda-nvdisasm (Linux and Windows; it needs no GPU)"
_DISTRIBUTIONS = ("numba-cuda", "cuda-core", "nvidia-nvvm", "nvidia-nvjitlink")
_WAIT_S = 60


class ToolTrouble(SolcourseError):
    """A step of the tool chain that cannot be done here."""


def proxy(cc: str) -> str:
    """The compute capability that is compiled for in the place of `cc`: CUDA 13 knows none below 7.5."""
    return OLDEST_CC if float(cc) < float(OLDEST_CC) else cc


def arch(cc: str) -> str:
    """8.0 -> "80", as in sm_80 and compute_80."""
    return cc.replace(".", "")


@cache
def version(*names: str) -> str:
    """The compiler's parts with their versions; what is installed some other way is left out."""
    found = []
    for name in names or _DISTRIBUTIONS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


@cache
def installed() -> bool:
    """Whether NVIDIA's compiler seems to be there at all: cheap, and no promise that it works."""
    try:
        return all(util.find_spec(name) is not None for name in ("numba_cuda", "cuda.core", "cuda.bindings"))
    except ImportError:  # there is no package `cuda`
        return False


def _first_line(error: BaseException) -> str:
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) < 160 else f"{said[:157]}..."


# ----------------------------------------------------------------------------------------------------------- IR of a kernel
def as_kernel(text: str, entry: str, name: str) -> tuple[str, list[str]]:
    """The module with numba's function `i32 entry(status*, arguments...)` made into `void name(arguments...)`, what a GPU launches,
    and the types of the arguments; the module as it is, and no types, where the function is not in it."""
    head = re.search(rf'^define [^\n]*?@"?{re.escape(entry)}"?\(', text, re.MULTILINE)
    if head is None:
        return text, []
    close = _closing(text, head.end())
    parameters = _split(text[head.end() : close])
    end = text.index("\n}", close)
    status = re.escape(parameters[0].rsplit(" ", 1)[1])
    body = re.sub(r"\bret i32 [^,\n]+", "ret void", text[close:end])
    body = re.sub(rf"^ *store [^\n]*{status}(?=[,\n])[^\n]*\n", "", body, flags=re.MULTILINE)
    kept = ", ".join(parameters[1:])
    return f"{text[: head.start()]}define void @{name}({kept}{body}{text[end:]}", [p.split(' %"')[0].split(" %")[0] for p in parameters[1:]]


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that was opened before `start` closes."""
    depth = 1
    for k in range(start, len(text)):
        depth += (text[k] == "(") - (text[k] == ")")
        if not depth:
            return k
    raise ValueError("a parameter list without end")


def _split(text: str) -> list[str]:
    """Parameters, at the commas outside all brackets."""
    parts, depth, start = [], 0, 0
    for k, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and not depth:
            parts.append(text[start:k].strip())
            start = k + 1
    return [*parts, text[start:].strip()]


def symbol(name: str) -> str:
    """A kernel's name as PTX can have it."""
    return re.sub(r"\W", "_", name, flags=re.ASCII) or "kernel"


def _bounds(options: Any) -> list[tuple[str, int]]:
    given = options.get("launch_bounds")
    values = given if isinstance(given, Sequence) else (given,) if given else ()
    return list(zip(("maxntidx", "minctasm", "cluster_max_blocks"), values, strict=False))


# -------------------------------------------------------------------------------------------------------------------- NVVM
def nvvm_modules(source: Source, name: str) -> list[str]:
    """numba's modules with the kernel marked as one, and its launch bounds, as numba-cuda does it before it calls NVVM."""
    modules = []
    for text in source.modules:
        kernel, types = as_kernel(text, source.entry, name)
        if kernel is not text:
            pointer = f"void ({', '.join(types)})* @{name}"
            facts = [("kernel", 1), *_bounds(source.options)]
            number = 1 + max(map(int, re.findall(r"^!(\d+) =", text, re.MULTILINE)), default=0)
            kernel += f"\n!nvvm.annotations = !{{ {', '.join(f'!{number + k}' for k in range(len(facts)))} }}\n"
            kernel += "".join(f'!{number + k} = !{{ {pointer}, !"{fact}", i32 {value} }}\n' for k, (fact, value) in enumerate(facts))
        modules.append(kernel)
    return modules


_VARIABLES = re.compile(r"^ *call void @\"?llvm\.dbg\.[^\n]*\n", re.MULTILINE)


def nvvm_ptx(source: Source, name: str, cc: str) -> str:
    """PTX as NVIDIA's compiler makes it. Raises ToolTrouble."""
    from solcourse.simt.no_device import LOCK

    if not installed():
        raise ToolTrouble("NVIDIA's compiler is not installed")
    if source.options.get("debug"):
        raise ToolTrouble("the kernel was made with debug=True, which NVVM compiles in a way of its own")
    options: dict[str, Any] = {"arch": f"compute_{arch(cc)}", "opt": 3 if source.options.get("opt", True) else 0}
    options["fastmath"] = bool(source.options.get("fastmath", False))
    with LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NVVM's log, where it says anything
        try:
            nvvm = importlib.import_module("numba.cuda.cudadrv.nvvm")
            modules = nvvm_modules(source, symbol(name))
            try:
                made = nvvm.compile_ir(modules, **options)
            except Exception as error:
                if "ERROR_COMPILATION" not in str(error):
                    raise
                # NVVM gives up where it loses track of a variable; where the lines are, it knows without
                made = nvvm.compile_ir([_VARIABLES.sub("", text) for text in modules], **options)
        except Exception as error:  # libraries that cannot be loaded, that do not know this cc, or refuse the code: each in its own way
            why = f"does not know compute capability {cc}" if "INVALID_OPTION" in str(error) else f"failed: {_first_line(error)}"
            raise ToolTrouble(f"NVVM {why}") from error
    return made.decode().strip("\0 \n") + "\n"


# --------------------------------------------------------------------------------------------------------- llvmlite's NVPTX
# LLVM itself takes its oldest for one that it does not know, and says so on the process's own standard error only
LLVM_CCS = (
    "3.5", "3.7", "5.0", "5.2", "5.3", "6.0", "6.1", "6.2", "7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.1", "10.3",
    "12.0", "12.1",
)  # fmt: skip
_SREG = re.compile(r"\bsimt\.sreg\.")
_FUSED = re.compile(r"= (fmul|fadd|fsub) (?!.*\bcontract\b)(?=[^\n]*(?:float|double|half))")


def llvm_ptx(ir: str, entry: str, name: str, cc: str) -> str:
    """PTX as LLVM makes it of the engine's optimised IR. Functions of NVIDIA's library are calls in it. Raises ToolTrouble."""
    if cc not in LLVM_CCS:
        raise ToolTrouble(f"LLVM does not know compute capability {cc}")
    import llvmlite.binding as llvm

    from solcourse.simt.optimise import initialise

    text, _ = as_kernel(ir, entry, symbol(name))
    text = text.replace("define void @" + symbol(name) + "(", "define ptx_kernel void @" + symbol(name) + "(", 1)
    text = _FUSED.sub(r"= \1 contract ", _SREG.sub("llvm.nvvm.read.ptx.sreg.", text))  # multiply and add become one, as NVVM does it
    text = re.sub(r"^ *#dbg_(?:value|declare|assign)\(.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^@_ZN08NumbaEnv.*\n", "", text, flags=re.MULTILINE)
    initialise()
    try:
        module = llvm.parse_assembly(text)
        machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu=f"sm_{arch(cc)}", opt=3)
        return machine.emit_assembly(module)
    except RuntimeError as error:
        raise ToolTrouble(f"LLVM failed: {_first_line(error)}") from error


# ----------------------------------------------------------------------------------------------------- machine code and SASS
def _link(ptx: str, cc: str, max_registers: int | None, line_info: bool) -> tuple[Any, str, str]:
    """(machine code or None, ptxas's log, why there is no machine code) of nvJitLink. Raises ToolTrouble where it cannot be asked."""
    try:
        core = importlib.import_module("cuda.core")
        options = core.LinkerOptions(
            arch=f"sm_{arch(cc)}", ptxas_options=["-v"], max_register_count=max_registers or None, lineinfo=line_info or None
        )
        parts = [core.ObjectCode.from_ptx(ptx.encode())]
        if "cudaCG" in ptx:  # the grid as a group: a library of NVIDIA's has it
            libs = importlib.import_module("numba.cuda.cudadrv.libs")
            parts.append(core.ObjectCode.from_library(libs.get_cudalib("cudadevrt", static=True)))
        linker = core.Linker(*parts, options=options)
        try:
            made, why = bytes(linker.link("cubin").code), ""
        except Exception as error:
            made, why = None, f"nvJitLink failed: {_first_line(error)}"
        return made, linker.get_info_log() or "", why
    except Exception as error:  # a library that cannot be loaded, or that does not know this cc or these options
        raise ToolTrouble(f"nvJitLink failed: {_first_line(error)}") from error


def cubin(ptx: str, cc: str, max_registers: int | None = None, *, line_info: bool = False) -> tuple[bytes, str]:
    """(machine code, what ptxas says of registers and spills). Raises ToolTrouble."""
    made, log, why = _link(ptx, cc, max_registers, line_info)
    if made is None:
        raise ToolTrouble(why)
    return made, log


def ptxas_usage(ptx: str, cc: str, max_registers: int | None = None) -> tuple[int, int]:
    """(registers per thread, bytes of spill stores and loads per thread). Raises ToolTrouble.

    Functions that numba-cuda adds at the launch only (float16's operators, reshape) do not matter here: the kernel itself is compiled
    before it is linked with them.
    """
    _, log, why = _link(ptx, cc, max_registers, False)
    if why and "Undefined reference" not in why:
        raise ToolTrouble(why)
    return usage(log)


def usage(log: str) -> tuple[int, int]:
    """(registers per thread, bytes of spill stores and loads per thread) of ptxas's log.

    >>> usage("ptxas . 8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\\nptxas info : Used 32 registers")
    (32, 16)
    """
    counts = [int(n) for n in re.findall(r"Used (\d+) registers", log)]
    if not counts:
        raise ToolTrouble("nvJitLink did not say how many registers it used")
    return max(counts), sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", log))


def nvdisasm() -> str | None:
    """The path of NVIDIA's disassembler: of the wheel nvidia-cuda-nvdisasm, or on PATH; None if there is none."""
    program = "nvdisasm.exe" if os.name == "nt" else "nvdisasm"
    for folder in sys.path:
        for part in ("nvidia/cu13/bin", "nvidia/cuda_nvdisasm/bin"):
            found = Path(folder or ".") / part / program
            if found.is_file():
                return str(found)
    return shutil.which(program)


def disassemble(code: bytes) -> str:
    """SASS with its source lines. Raises ToolTrouble."""
    program = nvdisasm()
    if program is None:
        raise ToolTrouble(f"SASS is read from machine code by NVIDIA's nvdisasm, which is not installed: {NVDISASM_CURE}.")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(code)
        try:
            done = subprocess.run(
                [program, "-gi", "-c", str(file)], capture_output=True, text=True, timeout=_WAIT_S, check=True, encoding="utf-8"
            )
        except subprocess.CalledProcessError as error:
            raise ToolTrouble(f"nvdisasm failed: {_first_line(Exception(error.stderr))}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolTrouble(f"nvdisasm ({program}) did not run: {_first_line(error)}") from error
    return done.stdout
