"""Hand-made EngineRun records for the tests of traffic and model: no engine, no numba front end, every number known beforehand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from solcourse.simt.records import AccessCounts, BasicBlock, Counts, EngineRun, Op, Program, Site, Trace

ACCESS = Callable[[int, int], Sequence[tuple[int, np.ndarray]]]  # (block, warp) -> [(site, byte addresses of the active lanes)]
_fingerprints = itertools.count()


def op(dest, sources=(), pipe="alu", issue=1, latency="alu", site=-1, phi=()):
    return Op(dest, tuple(sources), pipe, issue, latency, site, 1, tuple(phi))


def load(dest, address, site, latency="global"):
    return op(dest, (address,), "lsu", 1, latency, site)


def store(address, value, site, latency="global"):
    return op(-1, (address, value), "lsu", 1, latency, site)


def program(blocks, kinds, size=4, shared=0, kernel="handmade"):
    """blocks: [(ops, successors)] or [(ops, successors, loop depth)]; kinds: the access kind of each site."""
    made = tuple(BasicBlock(i, tuple(b[0]), tuple(b[1]), b[2] if len(b) > 2 else 0) for i, b in enumerate(blocks))
    sites = tuple(Site(i, kind, size, "handmade.py", 1, "") for i, kind in enumerate(kinds))
    return Program(kernel, "handmade.py", made, sites, shared, 0, f"handmade-{next(_fingerprints)}")


def copy_program():
    """load, then store what was loaded: one basic block, two sites."""
    return program([([op(0), load(1, 0, 0), store(0, 1, 1)], ())], ("global_load", "global_store"))


@cache
def _pattern(relative: bytes, size: int) -> tuple[tuple[tuple[int, int], ...], int]:
    """((line, word mask), ...) and sectors of one request whose addresses count from the start of its first lane's line."""
    starts = np.frombuffer(relative, np.int64)
    touched = np.unique(np.concatenate([starts // 4 + k for k in range(max(1, size // 4))]))
    lines: dict[int, int] = {}
    for word in touched.tolist():
        lines[word // 32] = lines.get(word // 32, 0) | 1 << (word % 32)
    return tuple(lines.items()), len(np.unique(touched // 8))


def _request(site: int, warp: int, addresses: np.ndarray, size: int) -> tuple[list[int], int]:
    """The words of one request, and its sectors."""
    starts = np.asarray(addresses, np.int64)
    first = int(starts[0]) // 128
    lines, sectors = _pattern((starts - 128 * first).tobytes(), size)
    return [1 << 63 | site << 32 | warp << 16 | len(lines), *((first + line) << 32 | mask for line, mask in lines)], sectors


def make_run(
    prog: Program,
    grid: int,
    block: int,
    access: ACCESS,
    *,
    traced: int | None = None,
    counts: Counts | None = None,
    executions: np.ndarray | None = None,
    instructions: int = 10,
    dynamic_shared_bytes: int = 0,
    compulsory: tuple[int, int] | None = None,
    first: int = 0,
    same_address_atomics: int = 0,
) -> EngineRun:
    """One launch of `grid` blocks of `block` threads of which `traced` blocks (default: all), from `first` on, are in the trace.

    Every basic block is executed once per warp unless `executions` (n_bb,) says otherwise; `instructions` per warp go to pipe alu.
    """
    warps = -(-block // 32)
    traced = grid if traced is None else traced
    offsets, words = [0], []
    table = np.zeros((len(prog.sites), 3), np.int64)  # requests, sectors, bytes
    for b in range(first, first + traced):
        for w in range(warps):
            for site, addresses in access(b, w):
                size = prog.sites[site].size
                request, sectors = _request(site, w, addresses, size)
                words += request
                table[site] += (1, sectors, size * len(addresses))
        offsets.append(len(words))
    factor = grid / traced
    per_site = tuple(AccessCounts(*(round(factor * x) for x in (row[0], row[1], row[0], 0, row[2]))) for row in table.tolist())
    if counts is None:
        by_kind = {}
        for site, c in zip(prog.sites, per_site, strict=True):
            by_kind[site.kind] = by_kind.get(site.kind, AccessCounts()) + c
        n = grid * warps * instructions
        memory = sum(c.requests for c in per_site)
        pipes = dict.fromkeys(("fma", "fp64", "xu", "cbu"), 0) | {"alu": n, "lsu": memory}
        counts = Counts(warp_instructions=n + memory, thread_instructions=32 * (n + memory), pipes=pipes, **by_kind)
    per_warp = np.ones(len(prog.blocks), np.int64) if executions is None else np.asarray(executions, np.int64)
    by_warp = np.broadcast_to(per_warp, (traced, warps, len(prog.blocks))).copy() if per_warp.ndim == 1 else per_warp
    if compulsory is None:
        compulsory = tuple(
            sum(c.bytes for s, c in zip(prog.sites, per_site, strict=True) if s.kind == k) for k in ("global_load", "global_store")
        )
    return EngineRun(
        program=prog,
        grid=(grid, 1, 1),
        block=(block, 1, 1),
        dynamic_shared_bytes=dynamic_shared_bytes,
        counts=counts,
        lines=(),
        site_counts=per_site,
        trace=Trace(np.arange(first, first + traced, dtype=np.int64), np.array(offsets, np.int64), np.array(words, np.uint64)),
        block_executions=(by_warp.sum(axis=(0, 1)) * factor).astype(np.int64),
        warp_executions=by_warp,
        compulsory_read_bytes=compulsory[0],
        compulsory_write_bytes=compulsory[1],
        same_address_atomics=same_address_atomics,
        registers_live=16,
        sampled_blocks=None,
    )


LANE = np.arange(32)


def copy_run(grid, block=256, *, stride=1, offset=0, size=4, source=0, target=1 << 34, **options):
    """dst[i] = src[i * stride + offset], one element per thread."""

    def access(b, w):
        i = b * block + 32 * w + LANE
        return [(0, source + size * (i * stride + offset)), (1, target + size * i)]

    prog = program([([op(0), load(1, 0, 0), store(0, 1, 1)], ())], ("global_load", "global_store"), size)
    return make_run(prog, grid, block, access, **options)
