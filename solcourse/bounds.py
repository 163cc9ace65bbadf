"""The time that one resource alone would need: one small function each, pure arithmetic. Cycles are of one SM, seconds of the whole chip.

Sources are named at each; constants of the architecture are in constants.toml, those of a device in devices.toml.
"""

from __future__ import annotations

import math

import numpy as np

from .constants import constant
from .hardware import Device
from .latency import schedule
from .simt.records import SECTOR_BYTES, WARP, EngineRun


def lanes(gpu: Device) -> dict[str, float]:
    """Lanes per clock and SM of each pipe (keys: records.PIPES)."""
    return {
        "fma": gpu.fp32_lanes_sm,
        "alu": gpu.int32_lanes_sm,
        "fp64": gpu.fp64_lanes_sm,
        "xu": gpu.sfu_lanes_sm,
        "lsu": constant("lsu_lanes"),
        "cbu": constant("cbu_lanes"),
        "adu": barrier_lanes(gpu),
    }


def barrier_lanes(gpu: Device) -> float:
    """Threads per clock and SM that __syncthreads takes. Source: CUDA C++ programming guide, synchronisation instructions."""
    return constant({"6.0": "barrier_lanes_60", "6.1": "barrier_lanes_61"}.get(gpu.cc, "barrier_lanes"))


def issue_cycles(warp_instructions: float, schedulers: float) -> float:
    """One warp instruction per clock and scheduler."""
    return warp_instructions / schedulers


def pipe_cycles(warp_instructions: float, width: float) -> float:
    """A warp instruction keeps `width` lanes busy for 32 / width clocks."""
    return WARP * warp_instructions / width


def register_file_cycles(operands: float, partitions: float) -> float:
    """Each partition's register file has two banks, each of which gives one operand per clock."""
    return operands / (constant("register_banks") * partitions)


def l1_cycles(data_wavefronts: float, path_cycles: float, tag_wavefronts: float) -> float:
    """The stages of L1 work at the same time: the busiest counts. Shared memory uses the data stage as well."""
    return max(data_wavefronts, path_cycles, tag_wavefronts)


def path_cycles(run: EngineRun, gpu: Device) -> float:
    """Clocks of the load path: each load brings 32 lanes x size bytes, `l1_load_bytes_clk_sm` per clock."""
    return sum(
        counted.requests * math.ceil(WARP * site.size / gpu.l1_load_bytes_clk_sm)
        for site, counted in zip(run.program.sites, run.site_counts, strict=True)
        if site.kind in ("global_load", "local_load")
    )


def data_wavefronts(run: EngineRun) -> float:
    """Passes through the data stage. A shared atomic reads and writes back: twice its wavefronts."""
    c = run.counts
    plain = (c.global_load, c.global_store, c.local_load, c.local_store, c.shared_load, c.shared_store)
    return sum(kind.wavefronts for kind in plain) + constant("atomic_passes") * c.shared_atomic.wavefronts


def constant_passes(run: EngineRun) -> float:
    """Loads of constant memory: one pass for each different address among a warp's lanes.

    Source: CUDA C++ programming guide, constant memory.
    """
    sites = zip(run.program.sites, run.site_counts, strict=True)
    return sum(counted.wavefronts for site, counted in sites if site.kind == "constant_load") / constant("constant_passes")


def fill_cycles(sectors: float) -> float:
    """Clocks of the path between L2 and one SM: sectors that L1 missed, and stored ones."""
    return sectors * SECTOR_BYTES / constant("fill_bytes_clk")


def l2_seconds(l2_bytes: float, partial_sectors: float, gpu: Device) -> float:
    """partial_sectors: of those that are written, the incomplete ones, which a slice reads and merges before it writes them."""
    return (l2_bytes + constant("merge_accesses") * SECTOR_BYTES * partial_sectors) / gpu.l2_bytes_per_s


def atomic_seconds(sectors: float, same_address: float, gpu: Device) -> float:
    """A sector of atomics per L2 slice and clock; operations on one address one after another, one per clock."""
    spread = sectors * SECTOR_BYTES / (gpu.l2_slices * constant("atomic_bytes_clk_slice"))
    return max(same_address, spread) / gpu.clock_hz


def dram_seconds(dram_bytes: float, gpu: Device, eta: float) -> float:
    """eta: the part of the data sheet's rate that this mix of reads and writes reaches."""
    return dram_bytes / (gpu.dram_bytes_per_s * eta)


def operands_of(run: EngineRun) -> float:
    """Register operands that the whole grid reads."""
    per_block = np.array(schedule(run.program).operands, np.float64)
    executions = np.asarray(run.block_executions, np.float64)
    return float(per_block @ executions) if executions.size == per_block.size else 0.0
