"""What the emitter decided that the machine must know: the layout of arrays, saved state and memory sites."""

from __future__ import annotations

from dataclasses import dataclass, field

from solcourse.simt.ir import Instr

SPIN_TURNS = 32  # turns of a waiting loop before others may run
SPIN_TURNS_AGAIN = 2  # and where it has already waited in vain
SPIN_ROUNDS = 64  # rounds of a block's warps before other blocks may run
FRAME = "%frame"  # all local arrays of a thread together
INLINE_SITES = 48  # more memory instructions than this: their code is called, not inlined, to keep compile time down
LOCAL_LINES = 1 << 30  # local memory's part of the virtual line numbers


@dataclass(slots=True)
class Plan:
    """What the emitter decided that the machine must know."""

    rows: list[tuple[str, str]] = field(default_factory=list)  # (kind, name) of each ALLOC row; see Emitter._rows
    sites: list[tuple[Instr, int, str, str, int, str]] = field(default_factory=list)  # instr, node, space, op, size, array
    saved_bytes: int = 0
    local_bytes: int = 0  # per lane
    local_offsets: dict[str, int] = field(default_factory=dict)
    local_sizes: dict[str, int] = field(default_factory=dict)
    shared_offsets: dict[str, int] = field(default_factory=dict)
    shared_sizes: dict[str, int] = field(default_factory=dict)  # dynamic arrays are absent
    uniform_sites: set[int] = field(default_factory=set)
    uniform_global: list[int] = field(default_factory=list)  # those of global memory: their shapes come first in the Trace's
    several_sites: set[int] = field(default_factory=set)  # of accesses that may go to more than one memory space
    part_sites: set[int] = field(default_factory=set)  # counted by a neighbour: merged.py
    shared_bytes: int = 0
    has_barriers: bool = False
    find_rows: int = 0
    read_rows: set[int] = field(default_factory=set)  # rows of ALLOC that some load or atomic can reach
    written_rows: set[int] = field(default_factory=set)  # rows that some store or atomic can reach
    atomic_rows: set[int] = field(default_factory=set)  # rows that some atomic can reach
    loaded_rows: set[int] = field(default_factory=set)  # rows that some load can reach
    cell_bytes: dict[int, int] = field(default_factory=dict)  # row -> bytes of the smallest access, or its alignment
    notes: list[tuple[str, int, str, str]] = field(default_factory=list)  # checks build: kind, line, file, array of what is noted
    fences: bool = False  # whether there is a threadfence()
    meets: bool = False  # whether lanes of a warp meet: syncwarp, shuffle, vote, match
    prints: bool = False  # whether there is a print()
    ordered: bool = False  # blocks must run in one fixed order
    waits: bool = False  # warps may spin, or wait for the whole grid: a block may be suspended
    crosses: bool = False  # blocks may wait for other blocks
    spins: bool = False
    idle: list[tuple[int, int]] = field(default_factory=list)  # bytes of a warp's saved state that say only how often a loop turned
    meetings: dict[int, int] = field(default_factory=dict)  # blocks before which lanes of a warp wait for each other -> line
    lockstep: bool = True
    grid_barriers: tuple[int, ...] = ()  # which of the barriers are the grid's
    grid_line: int = 0  # where the kernel asks for the grid's group; 0: an ordinary launch
