"""Reports and EngineRuns made by hand, for tests of what is done with them: small sums that can be checked on paper."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType, SimpleNamespace

import numpy as np

from solcourse import roofline
from solcourse.hardware import device
from solcourse.occupancy import occupancy
from solcourse.report import Report
from solcourse.simt.records import (
    AccessCounts,
    BasicBlock,
    Counts,
    EngineRun,
    LineCounts,
    Op,
    Program,
    Site,
    Trace,
)
from solcourse.work import Work

N = 2**20
WARPS = N // 32  # 32,768 requests of each kind
A100 = "A100-SXM4-80GB"
FILE = "lesson.py"


def flops(fp32: int = 0, fp64: int = 0) -> MappingProxyType:
    return MappingProxyType({"fp16": 0, "fp32": fp32, "fp64": fp64})


def pipes(**used: int) -> MappingProxyType:
    return MappingProxyType({"fma": 0, "alu": 0, "fp64": 0, "xu": 0, "lsu": 0, "cbu": 0, "adu": 0} | used)


def access(sectors_per_request: int, requests: int = WARPS, size: int = 4, wavefronts: int = 1, conflicts: int = 0) -> AccessCounts:
    """Full warps: 32 lanes of `size` bytes in every request."""
    return AccessCounts(requests, sectors_per_request * requests, wavefronts * requests, conflicts * requests, 32 * size * requests)


def strided_trace(stride: int) -> Trace:
    """One block of one warp: a load of float32 at i * stride (site 0), then a store at i (site 1), in another allocation."""

    def request(site: int, words: list[int]) -> list[int]:
        lines: dict[int, int] = {}
        for word in words:
            lines[word // 32] = lines.get(word // 32, 0) | 1 << word % 32
        return [1 << 63 | site << 32 | len(lines), *(line << 32 | mask for line, mask in sorted(lines.items()))]

    words = request(0, [i * stride for i in range(32)]) + request(1, [32 * 2**20 + i for i in range(32)])
    return Trace(np.array([0], np.int64), np.array([0, len(words)], np.int64), np.array(words, np.uint64))


def a_run(stride: int = 8, **changes) -> EngineRun:
    """dst[i] = src[i * stride], 2^20 float32, blocks of 256: line 12 is the index, line 14 the load and the store."""
    load_sectors = min(4 * stride, 32)
    load, store = access(load_sectors), access(4)
    index = Counts(warp_instructions=4 * WARPS, thread_instructions=128 * WARPS, int_ops=64 * WARPS, pipes=pipes(alu=4 * WARPS))
    moved_by = pipes(alu=2 * WARPS, lsu=2 * WARPS)
    move = Counts(4 * WARPS, 128 * WARPS, pipes=moved_by, global_load=load, global_store=store)
    whole = replace(
        move, warp_instructions=8 * WARPS, thread_instructions=256 * WARPS, int_ops=64 * WARPS, pipes=pipes(alu=6 * WARPS, lsu=2 * WARPS)
    )
    sites = (Site(0, "global_load", 4, FILE, 14, "src"), Site(1, "global_store", 4, FILE, 14, "dst"))
    ops = (
        Op(0, (), "alu", 4, "alu", -1, 12),
        Op(1, (0,), "lsu", 1, "global", 0, 14),
        Op(-1, (0, 1), "lsu", 1, "global", 1, 14),
    )
    program = Program("copy_strided", FILE, (BasicBlock(0, ops, (), 0),), sites, 0, 0, "by hand")
    made = EngineRun(
        program=program,
        grid=(4096, 1, 1),
        block=(256, 1, 1),
        dynamic_shared_bytes=0,
        counts=whole,
        lines=(LineCounts(FILE, 12, "i = cuda.grid(1)", index), LineCounts(FILE, 14, "dst[i] = src[i * 8]", move)),
        site_counts=(load, store),
        trace=strided_trace(stride),
        block_executions=np.array([WARPS], np.int64),
        warp_executions=np.ones((1, 8, 1), np.int64),
        compulsory_read_bytes=4 * N,
        compulsory_write_bytes=4 * N,
        same_address_atomics=0,
        registers_live=10,
        sampled_blocks=None,
    )
    return replace(made, **changes)


def traffic(read: int = 8 * 4 * N, write: int = 4 * N, **changes) -> SimpleNamespace:
    """Hit rates and bytes of the strided copy: every fetched sector comes from DRAM."""
    known = {
        "l1_hit_rate": 0.0,
        "l2_hit_rate": 0.1111,
        "l1_hit_by_site": (0.0, 0.0),
        "l2_hit_by_site": (0.0, 0.0),
        "l2_bytes": read + write,
        "dram_read_bytes": read,
        "dram_write_bytes": write,
    }
    return SimpleNamespace(**(known | changes))


def a_report(*, time_s: float = 22e-6, run: EngineRun | str | None = "strided", on: str = A100, **changes) -> Report:
    """The strided copy at 22 µs on A100; run=None: without its engine run. T_SOL = 8,388,608 B / 2039 GB/s = 4.114 µs, so R = 0.187."""
    kept = a_run() if run is None or run == "strided" else run
    gpu, moved = device(on), changes.get("traffic", traffic())
    work = changes.get("work", Work.read("src", 4 * N) + Work.write("dst", 4 * N))
    light = roofline.sol_time_s(work, gpu)
    dram_bytes = None if moved is None else moved.dram_read_bytes + moved.dram_write_bytes
    known = {
        "kernel": kept.program.kernel,
        "device": gpu,
        "origin": "predicted",
        "time_s": time_s,
        "interval_s": (time_s / 1.25, time_s * 1.25),
        "launch_s": 2.2e-6,
        "sol_time_s": light,
        "sol_score": light / time_s,
        "attainable_score": 0.85,
        "bound": "dram",
        "bounds": {
            "dram": 18.5e-6,
            "latency": 9e-6,
            "fill": 6.1e-6,
            "l1": 3e-6,
            "l2": 8e-6,
            "issue": 0.4e-6,
            "lsu": 0.43e-6,
            "launch": 1.6e-6,
        },
        "occupancy": occupancy(gpu, kept.threads_per_block, 16, kept.shared_bytes),
        "registers": 16,
        "registers_source": "estimated",
        "work": work,
        "counts": kept.counts,
        "lines": kept.lines,
        "traffic": moved,
        "explanation": roofline.explain(time_s, work, gpu, actual_bytes=dram_bytes, active_s=0.9 * time_s) if dram_bytes else None,
        "waves": 4.74,
        "grid": kept.grid,
        "block": kept.block,
        "run": None if run is None else kept,
        "work_given": True,
    }
    return Report(**(known | changes))
