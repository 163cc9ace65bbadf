"""What one launch on the engine leaves behind: Counts, Trace, Program, Findings. The definition of every count.

Everything here is independent of the device. Glossary: lane (0-31), warp (32 lanes), request (one memory instruction of
one warp), sector (32 bytes), line (128 bytes), wavefront (one pass through the L1/shared data stage), site (one memory
instruction in the program text), basic block ("bb") against thread block ("block").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

SECTOR_BYTES = 32
LINE_BYTES = 128
WARP = 32

ACCESS_KINDS = (
    "global_load", "global_store", "shared_load", "shared_store",
    "local_load", "local_store", "global_atomic", "shared_atomic",
)  # fmt: skip
PIPES = ("fma", "alu", "fp64", "xu", "lsu", "cbu", "adu")
FLOP_TYPES = ("fp16", "fp32", "fp64")


@dataclass(frozen=True)
class AccessCounts:
    """Memory requests of one kind.

    requests        warp-level instructions with at least one active lane
    sectors         distinct 32-byte sectors, summed over requests (0 for shared memory)
    wavefronts      passes through the data stage (shared: exact; global: by the 32-bank rule of L1)
    bank_conflicts  wavefronts beyond the necessary ones
    bytes           active lanes x access size
    """

    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0
    bank_conflicts: int = 0
    bytes: int = 0

    def __add__(self, other: AccessCounts) -> AccessCounts:
        return AccessCounts(
            self.requests + other.requests,
            self.sectors + other.sectors,
            self.wavefronts + other.wavefronts,
            self.bank_conflicts + other.bank_conflicts,
            self.bytes + other.bytes,
        )

    @property
    def sectors_per_request(self) -> float:
        """Average sectors per request, 0.0 when there was none. 4 is ideal for a full warp of 4-byte elements."""
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def sector_efficiency(self) -> float:
        """Useful bytes / fetched bytes. Above 1 when lanes share words (a broadcast). 0.0 when nothing was fetched."""
        return self.bytes / (SECTOR_BYTES * self.sectors) if self.sectors else 0.0


@dataclass(frozen=True)
class Counts:
    """What a kernel, or one of its source lines, did. Integers are exact unless said otherwise.

    warp_instructions    ESTIMATED warp-level machine instructions (a cost table over optimised LLVM IR)
    thread_instructions  ESTIMATED, the same weighted by active lanes
    pipes                ESTIMATED warp instructions by execution pipe (keys: PIPES)
    flops                adds + multiplies + 2 x fma as compiled, per thread, by type (keys: FLOP_TYPES)
    library_flops        the part of `flops` that comes from a table for library calls (exp, sqrt, ...)
    int_ops              thread-level integer arithmetic operations
    branches             warp-level conditional branches executed; divergent_branches: those whose lanes disagreed
    barriers             warp-level executions of syncthreads
    """

    warp_instructions: int = 0
    thread_instructions: int = 0
    flops: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(FLOP_TYPES, 0))
    library_flops: int = 0
    int_ops: int = 0
    branches: int = 0
    divergent_branches: int = 0
    barriers: int = 0
    pipes: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(PIPES, 0))
    global_load: AccessCounts = AccessCounts()
    global_store: AccessCounts = AccessCounts()
    shared_load: AccessCounts = AccessCounts()
    shared_store: AccessCounts = AccessCounts()
    local_load: AccessCounts = AccessCounts()
    local_store: AccessCounts = AccessCounts()
    global_atomic: AccessCounts = AccessCounts()
    shared_atomic: AccessCounts = AccessCounts()

    @property
    def average_active_lanes(self) -> float:
        """Active lanes per warp instruction, 0..32. ncu: smsp__average_thread_inst_executed_per_inst_executed."""
        return self.thread_instructions / self.warp_instructions if self.warp_instructions else 0.0

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values())

    def __add__(self, other: Counts) -> Counts:
        """What two launches, or two lines, did together."""
        both = {f.name: _plus(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Counts(**both)


def _plus(a: Any, b: Any) -> Any:
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}} if isinstance(a, Mapping) else a + b


@dataclass(frozen=True)
class LineCounts:
    """Counts of one source line. `text` is the line as written, stripped; '' when the source cannot be read."""

    file: str
    line: int
    text: str
    counts: Counts


@dataclass(frozen=True)
class Site:
    """One memory instruction of the program. `array` is the argument's or shared array's name, '' if unknown."""

    index: int
    kind: str  # one of ACCESS_KINDS
    size: int  # bytes per lane
    file: str
    line: int
    array: str


@dataclass(frozen=True)
class Op:
    """One operation of the program as the model schedules it.

    dest     SSA number it defines, -1 if none; sources: SSA numbers it reads (function-wide)
    pipe     one of PIPES, or "none" (phi and other free operations)
    issue    issue slots it takes (the cost table's expansion of one IR operation into machine instructions); may be 0
    latency  "none" "alu" "fp64" "xu" "shared" "global" "local" "atomic" "barrier"
    site     index into Program.sites, -1 if it does not touch memory
    phi      for a phi: ((predecessor basic block, SSA number), ...), else ()
    """

    dest: int
    sources: tuple[int, ...]
    pipe: str
    issue: int
    latency: str
    site: int
    line: int
    phi: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class BasicBlock:
    """ops in order; successors: basic block indices; loop_depth: 0 outside any loop."""

    index: int
    ops: tuple[Op, ...]
    successors: tuple[int, ...]
    loop_depth: int


@dataclass(frozen=True)
class Source:
    """What another compiler starts from: numba's LLVM modules as numba wrote them, the name of the kernel's function in them, and
    the options of @cuda.jit that matter to code. key: of the Python source, equal on both front ends; "" if unknown."""

    modules: tuple[str, ...]
    entry: str
    options: Mapping[str, Any]
    key: str = ""


@dataclass(frozen=True)
class Program:
    """The optimised kernel, static. blocks[0] is the entry; indices are in execution (reconvergence) order."""

    kernel: str
    file: str
    blocks: tuple[BasicBlock, ...]
    sites: tuple[Site, ...]
    static_shared_bytes: int
    local_bytes: int  # per thread, arrays that stayed in local memory
    fingerprint: str  # of the kernel's IR: a key for register tables and caches
    ir: str = field(default="", repr=False)  # optimised NVPTX LLVM IR, for whoever compiles it further
    source: Source | None = field(default=None, repr=False, compare=False)  # the same before any optimisation


@dataclass(frozen=True)
class Trace:
    """Global and local line accesses of some whole blocks, in program order: what the caches need. (A single block that is longer
    than the bound is cut at its last whole request.)

    blocks   (n,) int64, linear indices of the traced blocks, ascending and contiguous
    offsets  (n + 1,) int64: block i's words are words[offsets[i]:offsets[i + 1]]
    words    (m,) uint64: per request one header word, then one word for each 128-byte line it touches
               header  bit 63 set | site << 32 | warp in block << 16 | number of line words that follow
               line    line index << 32 | mask of the 32 4-byte words touched in that line      (bit 63 clear)
             line index = virtual byte address / 128; allocations are 256-byte aligned in the virtual space
    """

    blocks: np.ndarray
    offsets: np.ndarray
    words: np.ndarray


@dataclass(frozen=True)
class Residency:
    """How many blocks of a launch a device holds at once, and in words why: "A100 has 108 SMs x 8 blocks ..."."""

    blocks: int
    why: str


CHECKS = {
    "memcheck": ("out_of_bounds", "misaligned", "wrapped_index", "index_overflow", "stack_overflow"),
    "racecheck": ("read_after_write", "write_after_read", "write_after_write", "lost_update", "same_value_write"),
    "initcheck": ("uninitialized_read",),
    "synccheck": ("divergent_barrier", "deadlock", "inactive_lane", "lane_not_in_mask"),
    "launch": ("launch_shape", "unwritten", "runaway"),
}  # compute-sanitizer's names for its tools -> kinds of findings


@dataclass(frozen=True)
class Touch:
    """One access to the cell that a Finding shows. phase: how many barriers of the block came before; action: read, write or atomic."""

    phase: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    line: int
    action: str


@dataclass(frozen=True)
class Finding:
    """One thing a checker has to say. block and thread are (x, y, z); None where it does not apply.

    kind      one of CHECKS; severity: "error" or "warning"
    line      of a hazard the access that came second in this run; other_line, other_block, other_thread: of the first
    array     its name; element: as written, "tile[3, 4]"; index: flat; space: "global", "shared" or "local"
    count     how often it was seen
    touches   who accessed that element, in order, for the picture; empty where nobody looked
    """

    kind: str
    severity: str  # "error" | "warning"
    message: str
    hint: str
    file: str = ""
    line: int = 0
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    other_line: int | None = None
    other_block: tuple[int, int, int] | None = None
    other_thread: tuple[int, int, int] | None = None
    array: str = ""
    index: int | None = None
    count: int = 1
    space: str = ""
    element: str = ""
    touches: tuple[Touch, ...] = ()

    @property
    def check(self) -> str:
        """Which of compute-sanitizer's tools says such things: memcheck, racecheck, initcheck, synccheck; "launch" for the others."""
        return next((check for check, kinds in CHECKS.items() if self.kind in kinds), "launch")


@dataclass(frozen=True)
class Arrays:
    """Bytes of the whole allocations: read, those of which anything is read before it is written; written; touched, either of it."""

    read: int
    written: int
    touched: int


@dataclass(frozen=True)
class EngineRun:
    """One launch as the engine saw it, the input of everything device-dependent.

    sampled_blocks      None when every block ran; else how many ran. Counts are then scaled to the grid
    block_executions    (n_bb,) int64: warp executions of each basic block, whole grid (scaled when sampled)
    warp_executions     (k, warps per block, n_bb) int64: the same for each warp of the first k traced blocks (k <= len(trace.blocks))
    compulsory_bytes    distinct bytes read before being written + distinct bytes written, 4-byte resolution
    same_address_atomics  the largest number of atomic operations on one global address, after combining within a warp
    registers_live      largest number of 32-bit registers live at once in the optimised IR (an input for estimates)
    arrays              how large the allocations are that the launch touches; None where that is not known
    """

    program: Program
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    counts: Counts
    lines: tuple[LineCounts, ...]
    site_counts: tuple[AccessCounts, ...]
    trace: Trace
    block_executions: np.ndarray
    warp_executions: np.ndarray
    compulsory_read_bytes: int
    compulsory_write_bytes: int
    same_address_atomics: int
    registers_live: int
    sampled_blocks: int | None
    findings: tuple[Finding, ...] = ()
    arrays: Arrays | None = None

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads_per_block(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps_per_block(self) -> int:
        return -(-self.threads_per_block // WARP)

    @property
    def compulsory_bytes(self) -> int:
        return self.compulsory_read_bytes + self.compulsory_write_bytes

    @property
    def shared_bytes(self) -> int:
        return self.program.static_shared_bytes + self.dynamic_shared_bytes
