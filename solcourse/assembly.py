"""PTX and SASS of a kernel, beside the source lines they come from: `sol.ptx`, `sol.sass`, and the Assembly both return.

PTX is NVIDIA's portable assembly language, with as many registers as the code has values; SASS is what one GPU generation
executes, with its real registers. Neither needs a GPU. The definition of which instruction belongs to which source line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from solcourse import toolchain
from solcourse.errors import SolcourseError
from solcourse.simt.records import Source
from solcourse.toolchain import NVVM_CURE, ToolTrouble
from solcourse.touches import plural, printable, source_of

COMPILERS = ("nvvm", "llvmlite")
Place = tuple[str, int]  # file, line; ("", 0): no line of the source


@dataclass(frozen=True)
class Instruction:
    """One instruction. index: its place in the code; labels: the jump targets just before it; function: whose code it is."""

    index: int
    text: str
    labels: tuple[str, ...]
    function: str
    file: str
    line: int


@dataclass(frozen=True)
class AssemblyLine:
    """A source line and the instructions that were made of it, in the order of the code; none for most comments and `else`s."""

    file: str
    line: int
    text: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Assembly:
    """The assembly code of a kernel. `print` it, or let a notebook show it: each source line with what was made of it.

    language      "PTX" or "SASS"
    cc            the compute capability it was made for
    compiler      what made it, in words
    text          the whole code, as the compiler wrote it
    instructions  in the order of the code; directives, labels and padding are not among them
    registers     per thread, and spill_bytes, stores + loads in the code; None in PTX, where registers are not given out yet
    notes         what a reader should know
    """

    kernel: str
    file: str
    language: str
    cc: str
    compiler: str
    text: str = field(repr=False)
    instructions: tuple[Instruction, ...] = field(repr=False)
    registers: int | None = None
    spill_bytes: int | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def lines(self) -> tuple[AssemblyLine, ...]:
        """Every source line from the first to the last that has instructions, the kernel's own file first."""
        made: dict[str, dict[int, list[Instruction]]] = {}
        for i in self.instructions:
            made.setdefault(i.file, {}).setdefault(i.line, []).append(i)
        lines = []
        for file in sorted(made, key=lambda f: (not f, f != self.file, f)):
            source, of_file = source_of(file) if file else [], made[file]
            for number in _shown(of_file, source):
                text = source[number - 1] if 0 < number <= len(source) else ""
                lines.append(AssemblyLine(file, number, text, tuple(of_file.get(number, ()))))
        return tuple(lines)

    def line(self, number: int) -> AssemblyLine:
        """What was made of line `number` of the kernel's file. Raises SolcourseError where nothing was made near it."""
        known = [line for line in self.lines if line.file == self.file]
        for line in known:
            if line.line == number:
                return line
        where = f"it is at lines {known[0].line} to {known[-1].line}" if known else f"none of its {self.language} has a line"
        raise SolcourseError(f"Nothing of {self.kernel} is at line {number}: {where}.")

    @property
    def title(self) -> str:
        """One line: what it is, for what, by what, how much."""
        size = plural(len(self.instructions), "instruction")
        held = "" if self.registers is None else f", {plural(self.registers, 'register')} per thread"
        spilled = f", {self.spill_bytes:,} bytes of spills" if self.spill_bytes else ""
        return f"{self.language} of {self.kernel} for compute capability {self.cc}, by {self.compiler}: {size}{held}{spilled}"

    def __repr__(self) -> str:
        return f"<Assembly: {self.title}>"

    def __str__(self) -> str:
        return "\n".join((printable(self.title), *(f"{note}." for note in self.notes), "", *_text(self)))

    def _repr_html_(self) -> str:
        from solcourse.assembly_html import html

        return html(self)


def _shown(made: dict[int, list[Instruction]], source: list[str]) -> Iterable[int]:
    """The lines to show of one file: from the first to the last with instructions, but for long stretches without any."""
    numbers = sorted(made)
    if not source or not numbers:
        return numbers
    shown = []
    for number, following in zip(numbers, [*numbers[1:], numbers[-1] + 1], strict=True):
        shown.append(number)
        if number and following - number <= _NEAR:
            shown.extend(range(number + 1, following))
    return shown


_NEAR = 30  # lines


def _text(code: Assembly) -> Iterator[str]:
    """The source, each line with its number of instructions, and below it the instructions, each with its place in the code."""
    width = len(str(max((i.index for i in code.instructions), default=0)))
    before: AssemblyLine | None = None
    for line in code.lines:
        if before is None or before.file != line.file:
            yield f"{'' if before is None else chr(10)}{line.file or 'without a source line'}"
        elif before.line + 1 < line.line:
            yield "       ..."
        before = line
        count = plural(len(line.instructions), "instruction") if line.instructions else ""
        yield f"{line.line or '':>6}  {line.text:<72}  {count}".rstrip()
        function = ""
        for i in line.instructions:
            if not line.file and i.function != function:
                yield f"        in {i.function}"
                function = i.function
            yield from (f"        {label}:" for label in i.labels)
            yield f"        [{i.index:>{width}}]  {printable(i.text)}"


# ------------------------------------------------------------------------------------------------------------ reading PTX
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', re.MULTILINE)
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(.*)")
_INLINED = re.compile(r"inlined_at\s+(\d+)\s+(\d+)")
_FUNCTION = re.compile(r"^(?:\.\w+ )*\.(entry|func)\s+(?:\([^)]*\)\s*)?([\w$.]+)")
_INVISIBLE = re.compile(r"\$L__(?:tmp|func_begin|func_end|info_)")


def read_ptx(text: str, own_file: str = "") -> tuple[Instruction, ...]:
    """The instructions of PTX with their source lines. own_file: the kernel's, as Python knows it."""
    files = {int(n): f"{a}/{b}" if b else a for n, a, b in _FILE.findall(text)}
    found: list[Instruction] = []
    function, inside, place = "", False, ("", 0)
    labels: list[str] = []
    for line in text.splitlines():
        if not inside:
            head = _FUNCTION.match(line)
            function = head[2] if head else function
            inside, place = line.startswith("{"), ("", 0)
            continue
        stripped = line.split("//")[0].strip()
        if line.startswith("}"):
            inside = False
        elif location := _LOC.match(line):
            chain = [(int(location[1]), int(location[2])), *((int(f), int(n)) for f, n in _INLINED.findall(location[3]))]
            place = _choose(((files.get(f, ""), n) for f, n in chain), own_file, place)
        elif stripped.endswith(":"):
            labels += [] if _INVISIBLE.match(stripped) else [stripped[:-1]]
        elif stripped.endswith(";") and not stripped.startswith("."):
            found.append(Instruction(len(found), _spaced(stripped[:-1]), tuple(labels), function, *place))
            labels = []
    return tuple(found)


def _spaced(text: str) -> str:
    """`@%p1 bra  $L` with the operation in a column of its own, and one blank where there were several."""
    predicate, rest = text.split(None, 1) if text.startswith("@") and " " in text else ("", text)
    operation, *operands = rest.split(None, 1)
    head = f"{predicate} {operation}" if predicate else operation
    return f"{head:<13} {' '.join(' '.join(operands).split())}".rstrip()


def _choose(chain: Iterable[Place], own_file: str, before: Place) -> Place:
    """Of where an instruction was written and where that was inlined, the first that a reader can look at.
    Line 0 says that it belongs to no line in particular: it stays with the one before it."""
    from solcourse.simt.type_errors import is_learners

    for file, line in chain:
        if line and file and is_learners(file):
            return (own_file if own_file and _tail(file) == _tail(own_file) else file), line
    return before


def _tail(file: str) -> str:
    return re.split(r"[/\\]", file)[-1]


# ----------------------------------------------------------------------------------------------------------- reading SASS
_SECTION = re.compile(r"^\.text\.(\S+):")
_MARK = re.compile(r'\s*//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_LABEL = re.compile(r"^(\.L_x?_?\w+):")


def read_sass(text: str, own_file: str = "") -> tuple[Instruction, ...]:
    """The instructions of nvdisasm's output with their source lines; the padding at the end of each function is left out."""
    functions: dict[str, list[Instruction]] = {}
    function, place = "", ("", 0)
    labels: list[str] = []
    chain: list[Place] = []
    for line in text.splitlines():
        if section := _SECTION.match(line):
            function, labels, place, chain = section[1], [], ("", 0), []
        elif mark := _MARK.match(line):
            chain.append((mark[1], int(mark[2])))
        elif label := _LABEL.match(line):
            labels.append(label[1])
        elif instruction := _INSTRUCTION.match(line):
            if chain:
                place, chain = _choose(chain, own_file, place), []
            functions.setdefault(function, []).append(Instruction(0, " ".join(instruction[1].split()), tuple(labels), function, *place))
            labels = []
    found = [i for code in functions.values() for i in _without_padding(code)]
    found.sort(key=lambda i: not i.file)  # the kernel first, then what it calls; the order inside stays
    return tuple(Instruction(k, i.text, i.labels, i.function, i.file, i.line) for k, i in enumerate(found))


def _without_padding(code: list[Instruction]) -> list[Instruction]:
    end = len(code)
    while end and code[end - 1].text == "NOP":
        end -= 1
    if end and code[end - 1].labels and re.fullmatch(rf"BRA `\({re.escape(code[end - 1].labels[-1])}\)", code[end - 1].text):
        end -= 1  # a jump to itself, behind the last instruction
    return code[:end]


# ------------------------------------------------------------------------------------------------------------------ making
def make_ptx(source: Source | None, ir: str, kernel: str, file: str, cc: str, compiler: str | None = None) -> Assembly:
    """The PTX of a kernel's IR. compiler: "nvvm", "llvmlite", or None for the first of them that works.

    Raises ToolTrouble, with what to do about it.
    """
    cc = _checked(cc)
    if compiler not in (None, *COMPILERS):
        raise SolcourseError(f"compiler is 'nvvm', 'llvmlite', or None for the first that works; got {compiler!r}.")
    if source is None or not ir:
        raise SolcourseError(f"The code of {kernel} is not at hand: it was not run by the engine.")
    notes: list[str] = []
    if compiler != "llvmlite":
        try:
            text = toolchain.nvvm_ptx(source, kernel, toolchain.proxy(cc))
            notes += _proxied(cc)
            return _of_ptx(text, kernel, file, toolchain.proxy(cc), _nvvm_in_words(), notes)
        except ToolTrouble as trouble:
            if compiler == "nvvm":
                raise ToolTrouble(f"{trouble}: {NVVM_CURE}. compiler='llvmlite' works everywhere.") from trouble
            notes.append(f"{trouble}, so this is LLVM's own translation, which differs in detail from what a GPU would get")
    text = toolchain.llvm_ptx(ir, source.entry, kernel, cc)
    outside = re.findall(r"^\.extern \.func[^;]*?([\w$]+)\s*(?:\(\s*\.param|\n\()", text, re.MULTILINE)
    if outside:
        notes.append(f"Calls of NVIDIA's library, which only NVVM puts in their place: {', '.join(sorted(set(outside)))}")
    return _of_ptx(text, kernel, file, cc, f"LLVM ({toolchain.version('llvmlite')})", notes)


def _of_ptx(text: str, kernel: str, file: str, cc: str, compiler: str, notes: list[str]) -> Assembly:
    instructions = read_ptx(text, file)
    return Assembly(
        kernel=kernel, file=file, language="PTX", cc=cc, compiler=compiler, text=text, instructions=instructions, notes=tuple(notes)
    )


def make_sass(source: Source | None, kernel: str, file: str, cc: str) -> Assembly:
    """The machine code of a kernel. Raises ToolTrouble, with what to do about it."""
    cc = _checked(cc)
    if source is None:
        raise SolcourseError(f"The code of {kernel} is not at hand: it was not run by the engine.")
    if not toolchain.installed():
        raise ToolTrouble(f"SASS is made by NVIDIA's compiler, which is not installed: {NVVM_CURE}. sol.ptx works everywhere.")
    made_for = toolchain.proxy(cc)
    ptx_text = toolchain.nvvm_ptx(source, kernel, made_for)
    code, log = toolchain.cubin(ptx_text, made_for, source.options.get("max_registers"), line_info=True)
    text = toolchain.disassemble(code)
    registers, spilled = toolchain.usage(log)
    return Assembly(
        kernel=kernel, file=file, language="SASS", cc=made_for, compiler=f"NVVM and nvJitLink ({toolchain.version('nvidia-nvjitlink')})",
        text=text, instructions=read_sass(text, file), registers=registers, spill_bytes=spilled, notes=tuple(_proxied(cc)),
    )  # fmt: skip


def _nvvm_in_words() -> str:
    return f"NVVM ({toolchain.version('nvidia-nvvm') or toolchain.version('numba-cuda')})"


def _proxied(cc: str) -> list[str]:
    made_for = toolchain.proxy(cc)
    return [] if made_for == cc else [f"NVIDIA's compiler no longer knows compute capability {cc}: this is for {made_for}"]


def _checked(cc: object) -> str:
    if not isinstance(cc, str) or not re.fullmatch(r"\d{1,2}\.\d", cc):
        raise SolcourseError(f"cc is a compute capability such as '8.0' (A100) or '9.0' (H100); got {cc!r}. sol.device(name).cc has it.")
    return cc


# ------------------------------------------------------------------------------------------------------------------- verbs
def ptx(launch: Any, *args: Any, cc: str = "8.0", compiler: str | None = None) -> Assembly:
    """The PTX of `kernel[grid, block]` for these arguments, beside its source lines. Nothing runs, and no GPU is needed.

    cc        compute capability to compile for: "8.0" is an A100, "9.0" an H100
    compiler  "nvvm": NVIDIA's, as on a GPU; "llvmlite": LLVM's own, everywhere; None: the first of them that works
    Raises KernelTypeError, LaunchError; SolcourseError where no compiler can do it.
    """
    from solcourse.simt.optimise import optimise

    kernel = _compiled(launch, args)
    return make_ptx(kernel.source, optimise(kernel.llvm, kernel.entry), kernel.name, kernel.file, cc, compiler)


def sass(launch: Any, *args: Any, cc: str = "8.0") -> Assembly:
    """The machine code (SASS) of `kernel[grid, block]` for these arguments, beside its source lines. Nothing runs, no GPU is needed.

    Raises KernelTypeError, LaunchError; SolcourseError, with the cure, where numba-cuda[cu13] or nvdisasm is not installed.
    """
    kernel = _compiled(launch, args)
    return make_sass(kernel.source, kernel.name, kernel.file, cc)


def _compiled(launch: Any, args: tuple) -> Any:
    from solcourse.simt import frontend

    spec = frontend.launch_of(launch)
    return frontend.compile_kernel(spec.dispatcher, frontend.argument_types(spec.dispatcher, args))
