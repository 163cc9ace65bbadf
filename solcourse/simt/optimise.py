"""numba's LLVM IR -> the code NVVM would make of it, still as LLVM IR: O3 for the NVPTX target, everything inlined, fused.

Special registers are hidden behind opaque functions: LLVM knows their ranges and would delete wrap-around selects that NVVM
keeps. Loop and SLP vectorisation are off; loops end in one latch and leave through phis (loop-simplify, LCSSA), which cfg.py
relies on. `contract` fuses multiply and add as NVVM does by default.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from solcourse.simt import arrays, half, libdevice, local_arrays, marks
from solcourse.simt.bodies import with_bodies
from solcourse.simt.ir import Block, Const, Function, Instr
from solcourse.simt.recursion import RELOAD

_LOCK = threading.Lock()


@cache
def initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    # LLVM's default of 300 leaves loops over register tiles rolled that NVVM unrolls (64 guarded stores of an 8x8 tile), and
    # with them local arrays in memory. Process-wide, since LLVM knows no other way; it touches full unrolling only.
    llvm.set_option("", "-unroll-threshold=1000")


@cache
def _nvptx():
    initialise()
    return llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu="sm_80", opt=3)


_SREG = re.compile(r"llvm\.nvvm\.read\.ptx\.sreg\.")
_ACTIVE_MASK = re.compile(r'(asm sideeffect "activemask[^"]*", "[^"]*"\(\))')
_SREG_DECLARE = re.compile(r'^declare [^\n]*?(@"?simt\.sreg\.[\w.]+"?\(\))[^\n]*$', re.M)
_GRID_SYNC = "declare i32 @cudaCGSynchronize(i64, i32)"


def _body_of(name: str, parameters: str) -> str | None:
    return half.body_of(name, parameters) or libdevice.body_of(name, parameters) or arrays.body_of(name)


# of the checks build: every access of the source is still there, at its line, and none that the source does not make
LIGHT = (
    "always_inliner", "sroa", "instruction_combine", "sroa", "simplify_cfg", "sccp", "new_gvn", "instruction_combine", "simplify_cfg",
    "loop_simplify", "loop_rotate", "instruction_combine", "simplify_cfg", "new_gvn", "aggressive_dce", "loop_deletion",
)  # fmt: skip
_LOCAL_ARRAY = "_cudapy_lmem"  # what numba calls them


def optimise(text: str, entry: str, *, checks: bool = False, light: bool = False) -> str:
    """Optimised LLVM IR of the module, with only what `entry` needs. checks: with marks, and no access that the source does not make;
    light: with all that it makes, unless there are local arrays to get rid of."""
    text = marks.mark(text, entry) if checks else text
    text = with_bodies(half.without_assembly(arrays.with_loops(_SREG.sub("simt.sreg.", text))), _body_of)
    text = _ACTIVE_MASK.sub(r"\1 convergent", text)  # or LLVM would make one of two in different branches
    text = _SREG_DECLARE.sub(r"declare i32 \1 memory(none) nounwind willreturn", text)  # and no range attribute
    text = text.replace(_GRID_SYNC, _GRID_SYNC + " convergent")  # numba forgets it: not to be copied into branches, or out of them
    local = _LOCAL_ARRAY in text
    text = local_arrays.hide(text) if light else text
    with _LOCK:
        machine = _nvptx()
        module = llvm.parse_assembly(text)
        for function in module.functions:
            if not function.is_declaration and function.name != entry:
                function.linkage = llvm.Linkage.internal
                function.add_function_attribute("alwaysinline")
            if not function.is_declaration and checks:
                function.add_function_attribute("sanitize_thread")  # no load is made that the program might not have made
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = False
        options.loop_unrolling = True
        builder = llvm.create_pass_builder(machine, options)
        if light and local:
            _run(module, builder, ("always_inliner", "sroa", "instruction_combine", "instruction_namer"))
            module = llvm.parse_assembly(local_arrays.with_twins(marks.without_idle(str(module), entry)))
        elif light:
            _run(module, builder, LIGHT)
        if local or not light:
            builder.getModulePassManager().run(module, builder)
        _run(module, builder, ("lower_switch", "loop_simplify", "lcssa", "global_dead_code_eliminate", "instruction_namer"))
        # "nneg" rests on signed overflow being impossible; where it happens all the same, NVVM's code converts the wrapped value
        text = str(module).replace("uitofp nneg ", "sitofp ")
        return text.replace("zext nneg ", "sext ") if checks else text  # what was signed: overflow.py


def _run(module: Any, builder: Any, names: Iterable[str]) -> None:
    passes = llvm.create_new_module_pass_manager()
    for name in names:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)


def contract(function: Function) -> None:
    """fmul whose every use is an fadd or fsub of the same block becomes fma, as NVVM's -fma=1 does."""
    uses: dict[str, list[tuple[Block, Instr]]] = {}
    for block in function.blocks:
        for i in block.instrs:
            for a in i.args:
                if isinstance(a, str):
                    uses.setdefault(a, []).append((block, i))
    for block in function.blocks:
        products = {
            i.dest: i
            for i in block.instrs
            if i.op == "fmul" and all(b is block and u.op in ("fadd", "fsub") for b, u in uses.get(i.dest or "", [(None, i)]))
        }
        if not products:
            continue
        result: list[Instr] = []
        left = {name: len(uses[name]) for name in products}
        for i in block.instrs:
            fused = _fuse(i, products) if i.op in ("fadd", "fsub") else None
            if fused is None:
                result.append(i)
                continue
            product, extra, fma = fused
            left[product.dest] -= 1
            result.extend((*extra, fma))
        dead = {name for name, n in left.items() if n == 0}
        block.instrs = [i for i in result if i.dest not in dead]


def _fuse(i: Instr, products: dict) -> tuple[Instr, list[Instr], Instr] | None:
    a, b = i.args
    if a in products:  # a*b + c, a*b - c
        p = products[a]
        if i.op == "fadd":
            return p, [], Instr("fma", i.dest, i.type, (*p.args, b), i.line, i.file)
        minus = Instr("fneg", f"{i.dest}.minus", i.type, (b,), i.line, i.file, "free")
        return p, [minus], Instr("fma", i.dest, i.type, (*p.args, minus.dest), i.line, i.file)
    if b in products and a is not b:
        p = products[b]
        if i.op == "fadd":
            return p, [], Instr("fma", i.dest, i.type, (*p.args, a), i.line, i.file)
        minus = Instr("fneg", f"{i.dest}.minus", i.type, (p.args[0],), i.line, i.file, "free")  # c - a*b
        return p, [minus], Instr("fma", i.dest, i.type, (minus.dest, p.args[1], a), i.line, i.file)
    return None


_HELPER = re.compile(r"___numba_atomic_(i32|u32|i64|u64|float|double)_(\w+)$")
_HELPER_OPS = {"add": "fadd", "sub": "fsub", "inc": "uinc_wrap", "dec": "udec_wrap"}


def atomic_helpers(function: Function) -> None:
    """Calls of numba's atomic helper functions become atomicrmw or cmpxchg records (float max and min keep numba's NaN rules)."""
    for block in function.blocks:
        for k, i in enumerate(block.instrs):
            m = _HELPER.match(i.attr[0]) if i.op == "call" else None
            if not m:
                continue
            kind, name = m.groups()
            t = {"float": "float", "double": "double"}.get(kind, "i" + kind[1:])
            if name.startswith("cas"):
                block.instrs[k] = Instr("cmpxchg", i.dest, t, i.args, i.line, i.file, ("cmpxchg.old", t))
                continue
            op = _HELPER_OPS.get(name, name)
            if name in ("max", "min") and t.startswith("i"):
                op = ("u" if kind[0] == "u" else "") + name
            block.instrs[k] = Instr("atomicrmw", i.dest, t, i.args, i.line, i.file, (op, t))


class Roots:
    """Which arrays a pointer may point into: {(kind, name)}, kind "param", "shared", "constant", "local" or "unknown"."""

    def __init__(self, function: Function, names: dict[str, str]):
        self._defs = {i.dest: i for b in function.blocks for i in b.instrs if i.dest and i.attr != RELOAD}
        self._params = {name: t for t, name in function.params}
        self._ret = function.params[0][1] if function.params else ""
        self._globals = function.globals
        self._names = names
        self._cache: dict[object, set[tuple[str, str]]] = {}

    def alias(self, name: str, of: str) -> None:
        self._cache[name] = self.of(of)

    def of(self, pointer: object) -> set[tuple[str, str]]:
        if pointer not in self._cache:
            self._cache[pointer] = self._walk(pointer, set())
        return self._cache[pointer]

    def _walk(self, x: object, seen: set) -> set[tuple[str, str]]:
        if isinstance(x, Const):
            return set()
        if not isinstance(x, str):
            g = self._globals[x.name]  # type: ignore[attr-defined]
            return {("shared" if g.space == 3 else "constant", g.name)}
        if x in self._cache:
            return self._cache[x]
        if x in seen:
            return set()
        seen.add(x)
        if x in self._params:
            if x == self._ret:
                return {("ret", "")}
            return {("param", x)} if self._params[x] == "ptr" else set()
        i = self._defs[x]
        if i.op in ("getelementptr", "bitcast", "addrspacecast", "inttoptr", "ptrtoint", "freeze"):
            return self._walk(i.args[0], seen)
        if i.op == "alloca":
            return {("local", x)}
        if i.op in ("phi", "select", "add", "sub"):
            args = i.args[1:] if i.op == "select" else i.args
            return set().union(*(self._walk(a, seen) for a in args))
        if i.type == "ptr":
            return {("unknown", x)}
        return set()

    def array_name(self, root: tuple[str, str]) -> str:
        kind, name = root
        return self._names.get(name, {"local": "a local array", "shared": "a shared array", "constant": "a constant array"}.get(kind, ""))
