"""Every counter solcourse shows, beside the name Nsight Compute (ncu) gives it: the definition of that correspondence.

A Counter's `name` is the path of the value inside a Report ("counts.global_load.sectors"). `ncu` is the metric to ask ncu for
(one metric for each word in {braces}, to be added); "" where ncu has no counter of its own. `exact` says whether the engine
counts it or a table or a model estimates it.

Source: names and meanings as NVIDIA's profiler library lists them (nvidia-cuda-cupti 13.0.85, libnvperf_host.so, chips
TU102 GA100 GA102 AD102 GH100 GB100 GB202).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from solcourse.errors import UnknownName
from solcourse.simt.records import FLOP_TYPES, PIPES

UNITS = ("count", "bytes", "ratio", "fraction", "seconds")


@dataclass(frozen=True)
class Counter:
    """One value: where it is in a Report, ncu's name for it, what it means, whether it is exact, and its unit (UNITS).

    sum: how the metrics of one name in {braces} are added where it is not one of each
    """

    name: str
    ncu: str
    meaning: str
    exact: bool = True
    unit: str = "count"
    sum: str = ""


# kind: (words, ncu's memory and operation, ncu's data-stage direction)
_KINDS = {
    "global_load": ("global loads", "global_op_ld", "read"),
    "global_store": ("global stores", "global_op_st", "write"),
    "shared_load": ("shared loads", "shared_op_ld", ""),
    "shared_store": ("shared stores", "shared_op_st", ""),
    "local_load": ("local loads", "local_op_ld", "read"),
    "local_store": ("local stores", "local_op_st", "write"),
    "global_atomic": ("global atomics", "global_op_atom", ""),
    "shared_atomic": ("shared atomics", "shared_op_atom", ""),
}
KIND_WORDS: Mapping[str, str] = MappingProxyType({kind: row[0] for kind, row in _KINDS.items()})


def _shared(kind: str, words: str, op: str) -> Iterator[Counter]:
    at = f"counts.{kind}"
    executed = op.replace("_op", "")  # shared_op_ld -> shared_ld
    yield Counter(f"{at}.requests", f"smsp__sass_inst_executed_op_{executed}.sum", f"warp instructions that did {words}")
    passes = f"l1tex__data_pipe_lsu_wavefronts_mem_{op}.sum"
    yield Counter(f"{at}.wavefronts", passes, f"passes through the shared-memory data stage for {words}")
    conflicts = f"l1tex__data_bank_conflicts_pipe_lsu_mem_{op}.sum"
    yield Counter(f"{at}.bank_conflicts", conflicts, f"wavefronts beyond the necessary ones, {words}")
    yield Counter(f"{at}.bytes", f"smsp__sass_data_bytes_mem_{op}.sum", f"active lanes x access size, {words}", unit="bytes")


def _cached(kind: str, words: str, op: str, direction: str) -> Iterator[Counter]:
    # ncu splits atomics in two: "atom" returns the old value, "red" does not
    both = op.replace("_atom", "_{atom,red}")
    at = f"counts.{kind}"
    yield Counter(f"{at}.requests", f"l1tex__t_requests_pipe_lsu_mem_{both}.sum", f"warp instructions that did {words}")
    yield Counter(f"{at}.sectors", f"l1tex__t_sectors_pipe_lsu_mem_{both}.sum", f"32-byte sectors asked for by {words}")
    per_request = f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_{op}.ratio"
    per_sector = f"smsp__sass_average_data_bytes_per_sector_mem_{op}.ratio / 32"
    if both != op:  # two ratios do not add: the sums of both kinds are divided
        sectors = f"l1tex__t_sectors_pipe_lsu_mem_{both}.sum"
        per_request = f"{sectors} / l1tex__t_requests_pipe_lsu_mem_{both}.sum"
        per_sector = f"smsp__sass_data_bytes_mem_{both}.sum / {sectors} / 32"
    ideal = "32 lanes of 4 bytes side by side need 4; fewer where lanes share bytes"
    yield Counter(f"{at}.sectors_per_request", per_request, f"sectors per request, {words}; {ideal}", unit="ratio")
    used = f"useful bytes / fetched bytes, {words}; above 100 % where lanes share bytes (a broadcast)"
    yield Counter(f"{at}.sector_efficiency", per_sector, used, unit="fraction")
    if direction:
        passes = f"l1tex__data_pipe_lsu_wavefronts_mem_lg_cmd_{direction}.sum"
        yield Counter(f"{at}.wavefronts", passes, f"passes through the L1 data stage, {words} (ncu: global and local together)")
    if kind.startswith("global") and direction:
        conflicts = f"l1tex__data_bank_conflicts_pipe_lsu_mem_{op}.sum"
        yield Counter(f"{at}.bank_conflicts", conflicts, f"L1 wavefronts beyond the necessary ones, {words}")
    yield Counter(f"{at}.bytes", f"smsp__sass_data_bytes_mem_{both}.sum", f"active lanes x access size, {words}", unit="bytes")


def _access() -> Iterator[Counter]:
    for kind, (words, op, direction) in _KINDS.items():
        yield from _shared(kind, words, op) if kind.startswith("shared") else _cached(kind, words, op, direction)


def _flops() -> Iterator[Counter]:
    for kind, letter in zip(FLOP_TYPES, "hfd", strict=True):
        ops = ",".join(letter + op for op in ("add", "mul", "fma"))
        name = f"smsp__sass_thread_inst_executed_op_{{{ops}}}_pred_on.sum"
        parts = f"{letter}add + {letter}mul + 2 x {letter}fma"
        meaning = f"{kind} adds + multiplies + 2 x fused multiply-adds; atomic adds count too, which ncu has among its atomics"
        yield Counter(f"counts.flops.{kind}", name, meaning, sum=parts)


def _instructions() -> Iterator[Counter]:
    yield Counter("counts.warp_instructions", "smsp__inst_executed.sum", "warp instructions executed", exact=False)
    yield Counter("counts.thread_instructions", "smsp__thread_inst_executed.sum", "the same, weighted by active lanes", exact=False)
    lanes = "smsp__average_thread_inst_executed_per_inst_executed.ratio"
    yield Counter("counts.average_active_lanes", lanes, "active lanes per warp instruction, of 32", exact=False, unit="ratio")
    for pipe in PIPES:
        name = f"smsp__inst_executed_pipe_{pipe}.sum"
        yield Counter(f"counts.pipes.{pipe}", name, f"warp instructions on the {pipe} pipe", exact=False)
    integer = "smsp__sass_thread_inst_executed_op_integer_pred_on.sum"
    yield Counter("counts.int_ops", integer, "integer operations of all threads, as optimised", exact=False)
    branch = "smsp__sass_inst_executed_op_branch.sum"
    yield Counter("counts.branches", branch, "conditional branches executed by warps", exact=False)
    divergent = "smsp__sass_branch_targets_threads_divergent.sum"
    yield Counter("counts.divergent_branches", divergent, "branches whose lanes disagreed (short ones become predicates)", exact=False)
    yield Counter("counts.barriers", "", "executions of syncthreads by warps (ncu: see BAR.SYNC on its Source page)")
    yield Counter("counts.library_flops", "", "the part of flops that a table gives for library calls (exp, sqrt, ...)", exact=False)


def _device_dependent() -> Iterator[Counter]:
    def rate(name: str, ncu: str, meaning: str) -> Counter:
        return Counter(name, ncu, meaning, exact=False, unit="fraction")

    def volume(name: str, ncu: str, meaning: str) -> Counter:
        return Counter(name, ncu, meaning, exact=False, unit="bytes")

    yield rate("traffic.l1_hit_rate", "l1tex__t_sector_hit_rate.pct", "sectors found in L1 / sectors asked of L1")
    yield rate("traffic.l2_hit_rate", "lts__t_sector_hit_rate.pct", "sectors found in L2 / sectors asked of L2")
    yield volume("traffic.l2_bytes", "lts__t_bytes.sum", "bytes asked of L2")
    yield volume("traffic.dram_read_bytes", "dram__bytes_read.sum", "bytes read from DRAM")
    yield volume("traffic.dram_write_bytes", "dram__bytes_write.sum", "bytes written to DRAM")
    yield Counter("time_s", "gpu__time_duration.sum", "time of the kernel on the device", exact=False, unit="seconds")
    yield Counter("registers", "launch__registers_per_thread", "32-bit registers per thread", exact=False)
    limits = "launch__occupancy_limit_{blocks,registers,shared_mem,warps}"
    yield Counter("occupancy.blocks_per_sm", limits, "blocks that fit on one SM: the least of these limits")
    active = "sm__maximum_warps_per_active_cycle_pct"
    yield Counter("occupancy.fraction", active, "theoretical occupancy: warps that fit / warps an SM can hold", unit="fraction")
    yield Counter("waves", "launch__waves_per_multiprocessor", "blocks / (SMs x blocks per SM)", unit="ratio")


COUNTERS: Mapping[str, Counter] = MappingProxyType(
    {c.name: c for table in (_access, _flops, _instructions, _device_dependent) for c in table()}
)

# (first compute capability, what the name contains, what it contains there); None: no such counter there
_RENAMED = (
    (9.0, "l1tex__data_pipe_lsu_wavefronts_mem_lg_", "l1tex__data_pipe_lsu_wavefronts_mem_lgds_"),
    (9.0, "l1tex__data_bank_conflicts_pipe_lsu_mem_global", None),
    (12.0, "dram__bytes_read", "dram__bytes_op_read"),
    (12.0, "dram__bytes_write", "dram__bytes_op_write"),
)


def counter(name: str) -> Counter:
    """The counter of that name. Raises UnknownName, with the nearest one, when there is none."""
    if name not in COUNTERS:
        raise UnknownName("counter", name, COUNTERS)
    return COUNTERS[name]


def ncu_name(name: str, cc: float = 8.0) -> str:
    """What ncu calls `name` on a GPU of compute capability `cc`; "" where it has no counter for it.

    >>> ncu_name("counts.global_load.sectors_per_request")
    'l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio'
    >>> ncu_name("traffic.dram_read_bytes", cc=12.0)
    'dram__bytes_op_read.sum'
    """
    ncu = counter(name).ncu
    for since, old, new in _RENAMED:
        if float(cc) >= since and old in ncu:
            return "" if new is None else ncu.replace(old, new)
    return ncu


def ncu_words(name: str, cc: float = 8.0) -> str:
    """`ncu_name`, with how its metrics are added where that is not one of each.

    >>> ncu_words("counts.flops.fp32")
    'fadd + fmul + 2 x ffma: smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum'
    """
    ncu, parts = ncu_name(name, cc), counter(name).sum
    return f"{parts}: {ncu}" if parts and ncu else ncu


def value(root: Any, name: str) -> Any:
    """The value at the path `name` below `root`, a Report or anything with its fields: attributes, then mapping keys."""
    for part in counter(name).name.split("."):
        root = root[part] if isinstance(root, Mapping) else getattr(root, part)
    return root
