"""KernelIR -> Compiled: native warp code plus everything static about it (Program, counts per basic block and line).

optimise -> ir_text -> recursion, atomic helpers, contract -> cfg -> emit -> LLVM's code generator. One Compiled serves every launch whose block shape
allows it (`rows_uniform`: a warp never spans two rows of the block), with counters or with bounds checks only.
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from solcourse.errors import UnsupportedKernel
from solcourse.simt import access, costs, driver, marks, overflow, runtime, shadow
from solcourse.simt import cfg as cfg_
from solcourse.simt.captured import as_parameters
from solcourse.simt.declared import shared_names
from solcourse.simt.emit import Emitter
from solcourse.simt.frontend import KernelIR
from solcourse.simt.ir import Function, Instr, type_text
from solcourse.simt.ir_text import parse_module
from solcourse.simt.merged import is_part, merge
from solcourse.simt.observe import BlockCounter, Nothing
from solcourse.simt.optimise import Roots, atomic_helpers, contract, initialise, optimise
from solcourse.simt.plan import Plan
from solcourse.simt.predicated import homes
from solcourse.simt.records import ACCESS_KINDS, FLOP_TYPES, PIPES, WARP, BasicBlock, Op, Program, Site
from solcourse.simt.recursion import DEPTH, RECURSION, STACK, unfold

_LOCK = threading.RLock()
_KEEP = 256
_COMPILED: OrderedDict[tuple, Compiled] = OrderedDict()


@dataclass(frozen=True, eq=False)
class Compiled:
    """static: (METRICS, lines, basic blocks) int64, what one execution of a block adds; lines: (file, line) of each; site_nodes: basic
    block of each site; site_cells: its line, and which of ACCESS_KINDS
    it is (behind them: none of them, a load of constant memory)."""

    entry: int  # address of simt_run
    plan: Plan
    program: Program
    lines: tuple[tuple[str, int], ...]
    static: np.ndarray
    site_nodes: np.ndarray
    site_cells: tuple[np.ndarray, np.ndarray]
    barrier_lines: tuple[int, ...]
    barrier_nodes: tuple[int, ...]  # basic blocks that end at a barrier
    block_lines: tuple[int, ...]
    registers_live: int
    constants: dict[str, tuple[int, int]]  # address, bytes of each global constant
    uniform_sites: frozenset[int]
    several_sites: frozenset[int]
    part_sites: frozenset[int]
    uniform_shapes: np.ndarray  # what the Trace's shapes begin with, int64
    leaders: np.ndarray  # per basic block, the one whose counter it shares; the entry's is known without counting
    parameters: tuple[str, ...]  # names of the flattened arguments
    row_names: tuple[str, ...]  # of the arrays in Plan.rows, as in messages
    array_bytes: dict[str, int]  # of shared and local arrays, by the name in messages
    keep: tuple  # the JIT engine

    def function(self) -> Callable[[int], int]:
        """simt_run, to be called with the address of a thread's record."""
        return _PROTOTYPE(self.entry)


def _machine():
    """A fresh target machine: a JIT engine takes its own over and frees it."""
    initialise()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, codemodel="jitdefault", jit=True)


@cache
def wide_vectors() -> bool:
    """Whether the CPU has the 512-bit instructions that the fast paths use."""
    return all(llvm.get_host_cpu_features().get(f) for f in ("avx512f", "avx512bw", "avx512vl", "avx512dq"))


@cache
def _runtime():
    module = _native(runtime.text())
    for name in ("simt_miss", "simt_stray"):
        llvm.add_symbol(name, module.get_function_address(name))
    return module


# a fifth of the time of LLVM's standard pipeline, for code that is as fast here (slots to registers, folding, common values)
PASSES = (
    "always_inliner", "sroa", "instruction_combine", "simplify_cfg", "new_gvn", "instruction_combine", "jump_threading", "simplify_cfg",
    "sccp", "aggressive_dce", "global_dead_code_eliminate",
)  # fmt: skip


def _native(text: str):
    machine = _machine()
    module = llvm.parse_assembly(
        f'target triple = "{machine.triple}"\ntarget datalayout = "{machine.target_data}"\n' + text + _attributes()
    )
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def _attributes() -> str:
    width = 512 if wide_vectors() else 256
    return (
        f'\nattributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}\n'
        '!0 = !{}\n!1 = !{!"branch_weights", i32 1048576, i32 1}\n!2 = !{!"branch_weights", i32 1, i32 1048576}\n'
    )


def _raises(kernel: KernelIR) -> bool:
    """Only kernels made with debug=True bring exceptions to the launch; otherwise the thread just ends."""
    return bool(kernel.options.get("debug"))


def compile_warp(kernel: KernelIR, *, counters: bool, rows_uniform: bool, checks: bool = False) -> Compiled:
    """Native code for a kernel; cached by its IR. Raises UnsupportedKernel, naming instruction and line, before anything runs."""
    key = (kernel.llvm, kernel.fingerprint, kernel.name, counters, rows_uniform, checks, _raises(kernel))
    with _LOCK:
        if key not in _COMPILED:
            _COMPILED[key] = (_compile_checks if checks else _compile)(kernel, counters, rows_uniform, checks)
            while len(_COMPILED) > _KEEP:
                _COMPILED.popitem(last=False)
        _COMPILED.move_to_end(key)
        return _COMPILED[key]


def _compile_checks(kernel: KernelIR, counters: bool, rows_uniform: bool, checks: bool) -> Compiled:
    """Of lightly optimised code; of fully optimised code where only that is free of what the emitter does not know."""
    try:
        return _compile(kernel, counters, rows_uniform, checks, light=True)
    except UnsupportedKernel:
        return _compile(kernel, counters, rows_uniform, checks)


_PARSED: OrderedDict[tuple[str, bool, bool], tuple[str, Function]] = OrderedDict()


def _front(kernel: KernelIR, checks: bool, light: bool) -> tuple[str, Function]:
    """Optimised IR and its fused records; shared by the builds of one kernel, but for that with checks."""
    key = (kernel.llvm, checks, light)
    if key not in _PARSED:
        text = optimise(kernel.llvm, kernel.entry, checks=checks, light=light)
        function = parse_module(text, kernel.entry)
        if checks:
            marks.settle(function)
            overflow.overflow(function)
        unfold(function)
        as_parameters(function, kernel.captured)
        atomic_helpers(function)
        contract(function)
        if not checks:
            roots = Roots(function, {})
            merge(function, lambda pointer: {kind for kind, _ in roots.of(pointer)} == {"shared"})
        _PARSED[key] = (text, function)
        while len(_PARSED) > 32:
            _PARSED.popitem(last=False)
    return _PARSED[key]


def _compile(kernel: KernelIR, counters: bool, rows_uniform: bool, checks: bool, light: bool = False) -> Compiled:
    text, function = _front(kernel, checks, light)
    roots = Roots(function, _array_names(kernel, function))
    graph = cfg_.build(function, lambda i: _varies(i, roots, rows_uniform))
    observer = BlockCounter() if counters else Nothing()
    emitter = Emitter(function, graph, roots, counters, observer, rows_uniform, wide_vectors(), _raises(kernel), checks)
    _runtime()
    if checks:
        shadow.provide()
    warp = emitter.emit()
    _require_symbols(kernel, emitter.declared)
    code = _module(emitter, warp, function)
    try:
        engine = _native(code)
    except RuntimeError as err:  # a fault of the emitter: say so, without a crash later
        raise UnsupportedKernel(
            f"The engine could not make native code for {kernel.name} ({' '.join(str(err).split())[:300]}). Nothing ran.",
            file=kernel.file,
            line=kernel.first_line,
        ) from err
    constants = {}
    for kind, name in emitter.plan.rows:
        if kind == "constant":
            constants[name] = (engine.get_global_value_address(name), function.globals[name].size)
    entry = engine.get_function_address("simt_run")
    parameters = tuple(name for _, name in function.params[1:])
    return _static(kernel, text, function, roots, graph, emitter.plan, entry, constants, engine, parameters, checks)


def _varies(i: Instr, roots: Roots, rows_uniform: bool) -> bool | None:
    """cfg.build's `sources`."""
    if i.dest == DEPTH or i.op in ("atomicrmw", "cmpxchg", "alloca"):
        return True
    if i.op == "load":
        return any(kind == "local" for kind, _ in roots.of(i.args[0]))
    if i.op == "call":
        name = i.attr[0]
        if name.startswith("simt.sreg."):
            register = name.removeprefix("simt.sreg.")
            return (
                register in ("tid.x", "laneid") or register.startswith("lanemask") or (register in ("tid.y", "tid.z") and not rows_uniform)
            )
        if "shfl" in name or ".match." in name:
            return True
        if name.startswith("asm mov.u32 $0, %lanemask"):
            return True
        if name.startswith(("llvm.nvvm.vote", "asm activemask")):
            return None
    return False


def _array_names(kernel: KernelIR, function: Function) -> dict[str, str]:
    """Pointer parameters are named `%array.4` after the kernel's arguments, `%pair.1.4` in tuples; shared arrays keep a readable form."""
    kinds = dict(zip(kernel.arg_names, kernel.arg_types, strict=False))
    names = {STACK: RECURSION}
    for t, name in function.params[1:]:
        if t == "ptr":
            own, *path = name.lstrip("%").split(".")
            names[name] = own + _members(kinds.get(own), path) if own else name
    shared = [n for n, g in function.globals.items() if g.space == 3]
    called = shared_names(kernel)
    for k, n in enumerate(shared):  # in order of appearance; numba's own numbers go on from kernel to kernel
        own = called[k] if len(called) == len(shared) else ""
        names[n] = own or (f"shared array {k + 1}" if len(shared) > 1 else "the shared array")
    return names


def _members(kind: Any, path: list[str]) -> str:
    """As arguments.py names what is inside tuples: "[1]" for the path 1, 4 (the data of the second array)."""
    said = ""
    while path and hasattr(kind, "__getitem__") and hasattr(kind, "__len__"):  # a tuple type; an array type has no length
        index, *path = path
        said, kind = f"{said}[{index}]", kind[int(index)]
    return said


def _provided(symbol: str) -> bool:
    if symbol in shadow.DECLARATIONS:
        return True
    if symbol.startswith("simt_"):
        from solcourse.simt import special  # numba's CPU compiler: only where a kernel needs it

        return special.provide(symbol)
    return llvm.address_of_symbol(symbol) is not None


def _require_symbols(kernel: KernelIR, declared: dict[str, str]) -> None:
    """A C library may lack a function; calling it would end the process."""
    for name, line in declared.items():
        if line.startswith("declare") and f"@{name}(" in line and "." not in name and not _provided(name):
            raise UnsupportedKernel(
                f"Kernel {kernel.name} needs `{name}`, which this machine's C library does not have. Nothing ran.",
                file=kernel.file,
                line=kernel.first_line,
            )


def _module(e: Emitter, warp: str, function: Function) -> str:
    globals_ = [
        f"@{e._global_name(name)} = global {type_text(function.globals[name].type)} {function.globals[name].init}, align {max(16, function.globals[name].align)}"
        for kind, name in e.plan.rows
        if kind == "constant"
    ]
    declared = dict(e.declared)
    declared["llvm.cttz.i32"] = "declare i32 @llvm.cttz.i32(i32, i1)"
    declared["llvm.smax.i64"] = "declare i64 @llvm.smax.i64(i64, i64)"
    declared["simt_miss"] = "declare void @simt_miss(ptr, ptr, i32, i32, i32, i64) cold"
    declared |= shadow.DECLARATIONS if e.checks else {}
    declared["simt_stray"] = "declare void @simt_stray(ptr, i64, i32, i32) cold"
    if any(n.startswith("permute") for n in e.helpers) and e.wide:
        declared["vperm"] = "declare <16 x i32> @llvm.x86.avx512.vpermi2var.d.512(<16 x i32>, <16 x i32>, <16 x i32>)"
    helpers = "\n".join(h.replace("alwaysinline {", "alwaysinline #0 {").replace("noinline {", "noinline #0 {") for h in e.helpers.values())
    return "\n".join((*globals_, *declared.values(), helpers, warp, driver.text(e.plan, e.checks)))


# ---- what is static -------------------------------------------------------------------------------------------------


def _static(
    kernel,
    text,
    function: Function,
    roots: Roots,
    graph,
    plan: Plan,
    entry: int,
    constants,
    engine,
    parameters: tuple[str, ...],
    checks: bool,
) -> Compiled:
    nodes = graph.nodes
    site_of = {id(i): k for k, (i, *_) in enumerate(plan.sites)}
    spaces = {id(i): space for i, _, space, *_ in plan.sites}
    numbers: dict[str, int] = {}

    def number(name: object) -> int:
        return numbers.setdefault(name, len(numbers)) if isinstance(name, str) else -1

    index = {n.name: k for k, n in enumerate(nodes)}
    rows: dict[tuple[str, int], int] = {}
    entries: list[tuple[str, int, int, int]] = []  # metric, row, node, amount
    narrow = costs.narrow(function)

    def cost_of(i: Instr) -> costs.Cost:
        status = i.op == "store" and id(i) not in spaces  # of the call, which a GPU's kernel does not return
        return costs.FREE if status or is_part(i) else costs.cost_of(i, spaces.get(id(i)), narrow)

    # hazards.py reads the blocks of the checks build as they stand
    home, gone = (list(range(len(nodes))), set[int]()) if checks else homes(nodes, lambda i: cost_of(i).issue)
    made: list[list[Op]] = [[] for _ in nodes]
    for k, node in enumerate(nodes):
        for p in node.phis:
            pairs = tuple((index[q], number(a)) for a, q in zip(p.args, p.attr, strict=True) if isinstance(a, str))
            made[home[k]].append(Op(number(p.dest), (), "none", 0, "none", -1, p.line, pairs))
        for i in (*node.body, node.term):
            cost = cost_of(i)
            if i is node.term and i.op == "br":
                ahead = len(node.succs) < 2 and node.succs[0] == k + 1
                cost = costs.FREE if ahead or k in gone else cost
            sources = tuple(number(a) for a in i.args if isinstance(a, str))
            site = site_of.get(id(i), -1)
            if is_part(i):  # it arrives with the access that is counted for it
                sources, site = ((number(i.attr.lead),) if i.op == "load" else ()), -1
            made[home[k]].append(Op(number(i.dest), sources, cost.pipe, cost.issue, cost.latency, site, i.line))
            row = rows.setdefault((i.file, i.line), len(rows))
            _tally(entries, i, cost, row, k, home[k], len(node.succs))
    blocks = [BasicBlock(k, tuple(made[k]), tuple(n.succs), len(n.loops)) for k, n in enumerate(nodes)]
    static = np.zeros((len(METRICS), max(len(rows), 1), len(nodes)), np.int64)
    for metric, row, k, amount in entries:
        static[METRICS.index(metric), row, k] += amount
    sites = tuple(
        Site(n, _access_kind(space, op), size, i.file, i.line, array) for n, (i, _, space, op, size, array) in enumerate(plan.sites)
    )
    program = Program(
        kernel.name, kernel.file, tuple(blocks), sites, plan.shared_bytes, plan.local_bytes, kernel.fingerprint, text, kernel.source
    )  # fmt: skip
    return Compiled(
        entry=entry,
        plan=plan,
        program=program,
        lines=tuple(rows) or ((kernel.file, kernel.first_line),),
        static=static,
        site_nodes=np.array([k for _, k, *_ in plan.sites], np.int64),
        site_cells=(
            np.array([rows[s.file, s.line] for s in sites], np.int64),
            np.array([(*ACCESS_KINDS, s.kind).index(s.kind) for s in sites], np.int64),
        ),
        barrier_lines=tuple(n.term.line for n in nodes if n.term.op == cfg_.BARRIER),
        barrier_nodes=tuple(k for k, n in enumerate(nodes) if n.term.op == cfg_.BARRIER),
        block_lines=tuple(n.term.line for n in nodes),
        registers_live=_pressure(nodes, graph),
        constants=constants,
        uniform_sites=frozenset(plan.uniform_sites),
        several_sites=frozenset(plan.several_sites),
        part_sites=frozenset(plan.part_sites),
        uniform_shapes=_uniform_shapes(sites, plan.uniform_global),
        leaders=np.array(graph.leaders, np.int64),
        parameters=parameters,
        row_names=tuple(roots.array_name(row) for row in plan.rows),
        array_bytes={
            roots.array_name((k, n)): constants[n][1]
            if k == "constant"
            else (plan.shared_sizes if k == "shared" else plan.local_sizes).get(n, 0)
            for k, n in plan.rows
            if k in ("shared", "local", "constant")
        },
        keep=(engine,),
    )


def _uniform_shapes(sites: tuple[Site, ...], uniform: list[int]) -> np.ndarray:
    """The empty shape; and of the sites whose lanes all have one address: one line, at each of its 32 words."""
    shapes = np.zeros((len(uniform), WARP, 2), np.uint64)
    for of_site, k in zip(shapes, uniform, strict=True):
        of_site[:, 0] = 1 << 63 | k << 32 | 1
        of_site[:, 1] = [access.words_of(sites[k].size) << word & 0xFFFFFFFF for word in range(WARP)]
    return np.append(np.uint64(1 << 63), shapes).view(np.int64)


METRICS = ("issue", "ints", "table_flops", "branches", "barriers", *(f"flops.{t}" for t in FLOP_TYPES), *(f"pipe.{p}" for p in PIPES))


def _tally(entries: list, i: Instr, cost: costs.Cost, row: int, k: int, issued: int, successors: int) -> None:
    """k: the basic block; issued: the one with whose executions its instructions are issued."""
    if cost.issue:
        entries.append(("issue", row, issued, cost.issue))
        # an access that is switched off in all lanes takes a slot, and goes no further
        entries += [(f"pipe.{pipe}", row, k if pipe == "lsu" else issued, n) for pipe, n in cost.by_pipe]
    if cost.ints:
        entries.append(("ints", row, k, cost.ints))
    kind = costs.flop_type(i)
    if cost.flops and kind:
        entries.append((f"flops.{kind}", row, k, cost.flops))
        if cost.table:
            entries.append(("table_flops", row, k, cost.flops))
    if i.op == "br" and successors > 1:
        entries.append(("branches", row, k, 1))
    if i.op == cfg_.BARRIER:  # CUDA's grid barrier has the block meet before and after its first thread waits for the other blocks
        entries.append(("barriers", row, k, 2 if cfg_.is_grid_sync(i.attr) else 1))


def _access_kind(space: str, op: str) -> str:
    if op in ("atomicrmw", "cmpxchg"):
        return f"{space}_atomic"
    return f"{space}_{op}"


def _pressure(nodes, graph) -> int:
    """The most 32-bit registers live at once, by backward liveness over the optimised IR; predicates are free."""

    def weight(name: str) -> int:
        t = types.get(name)
        if t in ("i1", None):
            return 0
        return 2 if t in ("i64", "double", "ptr") else 1

    types = {i.dest: i.type for n in nodes for i in (*n.phis, *n.body) if i.dest and isinstance(i.type, str)}
    most = 0
    for node in nodes:
        live: set[str] = set()
        for s in node.succs:
            live |= graph.live_in[s] | {p.dest for p in nodes[s].phis}
        current = sum(map(weight, live))
        for i in (node.term, *reversed(node.body)):
            if i.dest in live:
                live.discard(i.dest)
                current -= weight(i.dest)
            for a in i.args:
                if isinstance(a, str) and a not in live and a in types:
                    live.add(a)
                    current += weight(a)
            most = max(most, current)
    return most


def call(entry: int, thread: int) -> int:
    """Runs simt_run(thread) without the GIL."""
    return _PROTOTYPE(entry)(thread)


_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


@cache
def _of_runtime(name: str, arguments: int):
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)(_runtime().get_function_address(name))


def expand_trace(start: int, end: int, shapes: int, to: int, to_end: int) -> int:
    """Writes the requests recorded at addresses start .. end as words of a records.Trace, as far as they fit; returns where they end."""
    return _of_runtime("simt_expand", 5)(start, end, shapes, to, to_end)


def expanded_words(notes: np.ndarray, shapes: int) -> np.ndarray:
    """How many words of a records.Trace each traced block becomes. notes: (blocks, 3) int64, see layout.TRACED_BYTES."""
    words = np.empty(len(notes), np.int64)
    _of_runtime("simt_block_words", 4)(notes.ctypes.data, len(notes), shapes, words.ctypes.data)
    return words


def distinct_bits(maps: list[int], words: int) -> int:
    """How many bits are set in any of the bitmaps at these addresses, of `words` 64-bit words; leaves them cleared."""
    addresses = (ctypes.c_int64 * len(maps))(*maps)  # must outlive the call
    return _of_runtime("simt_distinct", 3)(ctypes.addressof(addresses), len(maps), words) if maps else 0
