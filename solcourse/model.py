"""The time a launch needs: exact counts -> one bound per resource -> soft maximum, wave by wave. The definition of `predicted`.

Glossary: S SMs, R resident blocks per SM, B blocks, W warps per block, f SM clock. Every bound is the time that one resource alone
would need if the work were spread evenly over it; nothing is faster than the largest, and the p-norm (p = 3) of all accounts for
their overlapping only in part:

    body = max( latency, ( SM^3 + L2^3 + DRAM^3 + m latency^3 )^(1/3) )
           SM = max(issue, pipes, register file, constant, lsu, l1), L2 = max(fill, l2, atomic)
           m  the part of a block's stay in which it waits for global memory: only that competes with L2 and DRAM for the same time
    T    = start-up + full waves x body(S x R blocks) + body(the blocks that are left)

The bounds one by one are in bounds.py, the constants with their provenance in constants.toml: from data sheets and microbenchmarks,
none set on a kernel ladder of benchmarks/data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from . import bounds
from .constants import constant
from .errors import WorkError
from .hardware import Device
from .hardware import device as find_device
from .latency import STALLS, Latencies, Schedule, Walk, schedule, walk
from .occupancy import Occupancy
from .simt.records import PIPES, WARP, Counts, EngineRun
from .traffic import Traffic
from .uncertainty import Facts, uncertainty
from .work import Work

P_NORM = constant("p_norm")
_CORE = ("issue", *(f"pipe_{pipe}" for pipe in PIPES if pipe != "lsu"), "register_file", "constant")
BOUNDS = (*_CORE[:-1], "lsu", "l1", "fill", "l2", "dram", "latency", "atomic", "constant", "launch")
# the units of an SM work side by side, and so do its path to L2 and L2 itself: of each group the busiest counts
_SM = (*_CORE, "lsu", "l1")
GROUPS = (_SM, ("fill", "l2", "atomic"), ("dram",))
# the Device figures behind each bound: where one of them is flagged, so is the prediction
_INPUTS: Mapping[str, tuple[str, ...]] = {
    "issue": ("boost_mhz", "clock_derate"),
    "pipe_fma": ("fp32_lanes_sm", "clock_derate"),
    "pipe_alu": ("int32_lanes_sm", "clock_derate"),
    "pipe_fp64": ("fp64_lanes_sm", "clock_derate"),
    "pipe_xu": ("sfu_lanes_sm", "clock_derate"),
    "pipe_cbu": ("clock_derate",),
    "pipe_adu": ("clock_derate",),
    "register_file": ("clock_derate",),
    "lsu": ("clock_derate",),
    "l1": ("l1_load_bytes_clk_sm", "smem_bytes_clk_sm", "clock_derate"),
    "fill": ("clock_derate",),
    "l2": ("l2_bytes_clk", "clock_derate"),
    "dram": ("dram_eta_copy", "dram_eta_read", "dram_eta_write"),
    "latency": ("lat_alu", "lat_l1", "lat_l2", "lat_dram", "block_turnaround_cyc", "clock_derate"),
    "atomic": ("l2_slices", "clock_derate"),
    "constant": ("clock_derate",),
    "launch": ("launch_us_stream",),
}


@dataclass(frozen=True)
class Prediction:
    """What the model says about one launch on one device. Seconds and SM clock cycles.

    time_s        start-up on the device + body (ncu: gpu__time_duration)
    interval_s    (low, high): time_s / and x a factor that says how well the bounds behind it are known (uncertainty.py), and
                  interval_why, what makes it as wide as it is. Not a statistical confidence interval
    launch_s      the host's part of a launch: not modelled, 0.0
    bounds        name -> seconds that this resource alone would take (keys: BOUNDS)
    bound         the name of the largest
    waves         B / (S x R). ncu: launch__waves_per_multiprocessor
    body_s        time_s without start-up; tail_s: the part of it after the last full wave
    active_s      body_s without the tail's idle part: the time in which the device is full
    warp_cycles   what the median block's slowest warp needs alone (lam), and `stalls`: the same cycles by cause
    block_cycles  residence of a block in its place: its slowest warp, barriers, turnaround
    warps_needed  warps per SM that hide lam behind the tightest throughput bound; above occupancy's, latency shows
    dram_eta      reached part of the data sheet's DRAM rate, for this mix of reads and writes
    waiting       m, the part of a block's stay in which it waits for global memory
    flagged       Device figures behind the winning bound that are recalled, guessed or of a sister
    """

    device: str
    time_s: float
    interval_s: tuple[float, float]
    launch_s: float
    bounds: Mapping[str, float]
    bound: str
    waves: float
    body_s: float
    tail_s: float
    active_s: float
    warp_cycles: float
    block_cycles: float
    warps_needed: float
    dram_eta: float
    stalls: Mapping[str, float] = field(default_factory=dict)
    flagged: tuple[str, ...] = ()
    interval_why: tuple[str, ...] = ()
    waiting: float = 1.0


def _asymptote(gpu: Device, eta: float, bytes_per_thread: int, waits: bool) -> float:
    """The DRAM rate behind a measured one, as a fraction of the data sheet's.

    `eta` was measured on a kernel at full occupancy with one float64 element per thread, to which latency, L2 and the path into L1
    contributed: the same p-norm takes them off, so that they do not count twice. 1.0 at most.
    """
    rate = eta * gpu.dram_bytes_per_s
    clock = gpu.boost_mhz * 1e6
    stay = gpu.block_turnaround_cyc + gpu.lat_dram
    others = (
        rate / (gpu.sms * gpu.max_threads_sm * bytes_per_thread / stay * clock) if waits else 0.0,
        max(rate / (gpu.l2_bytes_clk * clock), rate / (gpu.sms * constant("fill_bytes_clk") * clock)),
    )
    left = 1.0 - sum(part**P_NORM for part in others)
    return min(1.0, eta / max(left, 0.5) ** (1 / P_NORM))


def dram_eta(device: Device, read_bytes: float, write_bytes: float) -> float:
    """The part of the data sheet's DRAM rate that this mix of reads and writes reaches where nothing else slows it, 0..1.

    Linear between the measured kinds of traffic: reads only, copy (half and half), writes only.
    """
    read = _asymptote(device, device.dram_eta_read, 8, True)
    copy = _asymptote(device, device.dram_eta_copy, 16, True)
    write = _asymptote(device, device.dram_eta_write, 8, False)
    total = read_bytes + write_bytes
    share = write_bytes / total if total else 0.0
    return read + (copy - read) * 2 * share if share <= 0.5 else copy + (write - copy) * (2 * share - 1)


def attainable_time_s(work: Work, device: str | Device) -> float:
    """The time of the best kernel that the model can imagine for `work`, seconds: nothing but compulsory bytes through DRAM, L2 and
    the path into L1, nothing but the FLOPs of `work` at the sustained clock, no latency, and the start-up of one launch.

    No prediction for a kernel that does this work beats it. Raises: UnknownName; WorkError for an empty ledger, or FLOPs of a kind
    that the device cannot do.
    """
    gpu = find_device(device)
    if not work.compulsory_bytes and not work.total_flops:
        raise WorkError("The work has neither bytes nor FLOPs: no time can be attained for nothing.")
    moved = work.compulsory_bytes
    written = sum(term.bytes for term in work.terms if term.direction == "write")
    needed = {
        "dram": moved / (gpu.dram_bytes_per_s * dram_eta(gpu, moved - written, written)),
        "l2": moved / gpu.l2_bytes_per_s,
        "fill": moved / (gpu.sms * constant("fill_bytes_clk") * gpu.clock_hz),
        "issue": max((n / (gpu.peak_flops_per_s(kind) * gpu.clock_derate) for kind, n in work.flops.items() if n), default=0.0),
    }
    return _norm(needed) + gpu.launch_us_stream * 1e-6


def _warp_busy(gpu: Device, pipe: str) -> float:
    """Cycles for which one warp instruction keeps the pipe of its partition (a pipe thinner than a lane per partition is shared)."""
    width = bounds.lanes(gpu)[pipe]
    if pipe == "lsu":
        return 1.0
    return WARP / width if _is_shared(width, gpu) else WARP / (width / gpu.partitions)


def _is_shared(width: float, gpu: Device) -> bool:
    """A pipe thinner than two lanes per partition belongs to all of them."""
    return width < 2 * gpu.partitions


def site_cycles(run: EngineRun, gpu: Device) -> tuple[float, ...]:
    """Data-stage cycles of one average request of each site: wavefronts, or the width of the load path if that takes longer."""
    width = gpu.l1_load_bytes_clk_sm
    cycles = []
    for site, counted in zip(run.program.sites, run.site_counts, strict=True):
        passes = counted.wavefronts / counted.requests if counted.requests else 1.0
        wide = WARP * site.size / width if site.kind in ("global_load", "local_load") else 1.0
        cycles.append(max(passes, wide, 1.0))
    return tuple(cycles)


def latencies(run: EngineRun, traffic: Traffic, gpu: Device) -> Latencies:
    """Cycles until each site's result is there: where its slowest sector comes from, plus its further wavefronts."""
    busy = site_cycles(run, gpu)
    lines = [c.sectors / c.requests / 4 if c.requests else 0.0 for c in run.site_counts]
    together = schedule(run.program).together
    result = []
    for i, site in enumerate(run.program.sites):
        if site.kind.startswith("shared"):
            cycles = gpu.lat_smem
        elif site.kind == "constant_load":
            cycles = gpu.lat_alu  # a hit costs like a register (latency-rtx2070); what it misses is not simulated
        elif site.kind == "global_atomic":
            cycles = gpu.lat_l2 + _dram_part(traffic, i) * (gpu.lat_dram - gpu.lat_l2)
        else:
            l1, l2, dram = traffic.levels_by_site[i] if i < len(traffic.levels_by_site) else (0.0, 0.0, 0.0)
            awaited = sum(lines[k] for k in together[i]) if i < len(together) else lines[i]
            far = gpu.lat_dram + constant("dram_spread") * _expected_most(awaited)
            near = gpu.lat_l1 if gpu.l1_caches_global else gpu.lat_l2
            cycles = l1 * near + l2 * gpu.lat_l2 + dram * far if l1 + l2 + dram else near
        result.append(cycles + busy[i] - 1)
    pipes = tuple(_warp_busy(gpu, pipe) for pipe in PIPES)
    return Latencies(gpu.lat_alu, gpu.lat_fp64, constant("xu_latency"), pipes, tuple(result), busy)


def _expected_most(n: float) -> float:
    """The expected largest of n normal deviates, in standard deviations; 0 for one. Between whole numbers by interpolation.

    Source: the usual approximation of order statistics by quantiles (Blom 1958), 5 % off at worst, for two.
    """
    if n <= 1:
        return 0.0
    low = math.floor(n)
    ends = [NormalDist().inv_cdf((k - 0.375) / (k + 0.25)) for k in (low, low + 1)]
    return ends[0] + (n - low) * (ends[1] - ends[0])


def _dram_part(traffic: Traffic, site: int) -> float:
    return traffic.levels_by_site[site][2] if site < len(traffic.levels_by_site) else 0.0


@dataclass(frozen=True)
class _Warps:
    """lam of the blocks: the median block's slowest warp, the same for the mean and for the slowest block."""

    median: Walk
    mean_cycles: float
    slowest_cycles: float
    barriers: float  # per warp


def _walk_warps(run: EngineRun, sched: Schedule, lat: Latencies) -> _Warps:
    executions = np.asarray(run.warp_executions, np.float64)
    if not executions.size:
        per_warp = np.asarray(run.block_executions, np.float64) / max(1, run.blocks * run.warps_per_block)
        executions = per_warp.reshape(1, 1, -1)
    weight = executions @ np.asarray(sched.slots, np.float64)  # (blocks, warps): issue slots
    of_block = weight.max(axis=1)
    order = np.argsort(of_block, kind="stable")
    middle, last = int(order[len(order) // 2]), int(order[-1])
    warps = {b: executions[b, int(weight[b].argmax())] for b in {middle, last}}
    median = walk(sched, warps[middle].tolist(), lat)
    slowest = median if of_block[last] == of_block[middle] else walk(sched, warps[last].tolist(), lat)
    spread = float(of_block.mean() / of_block[middle]) if of_block[middle] else 1.0
    barriers = float(warps[middle] @ np.asarray(sched.barriers, np.float64))
    return _Warps(median, median.cycles * spread, max(slowest.cycles, median.cycles * spread), barriers)


@dataclass(frozen=True)
class _Demand:
    """What one average block asks for. sm: cycles of one SM by bound; chip: seconds of the whole device by bound."""

    sm: Mapping[str, float]
    chip: Mapping[str, float]


def _demand(run: EngineRun, traffic: Traffic, gpu: Device, blocks_per_sm: int) -> _Demand:
    c: Counts = run.counts
    blocks = max(1, run.blocks)
    partitions = min(gpu.partitions, max(1, blocks_per_sm * run.warps_per_block))
    used = partitions / gpu.partitions
    sm = {"issue": bounds.issue_cycles(c.warp_instructions, partitions)}
    for pipe, width in bounds.lanes(gpu).items():
        cycles = bounds.pipe_cycles(c.pipes.get(pipe, 0), width)
        alone = pipe in ("lsu", "adu") or _is_shared(width, gpu)
        sm["lsu" if pipe == "lsu" else f"pipe_{pipe}"] = cycles if alone else cycles / used
    sm["register_file"] = bounds.register_file_cycles(bounds.operands_of(run), partitions)
    sm["l1"] = bounds.l1_cycles(bounds.data_wavefronts(run), bounds.path_cycles(run, gpu), traffic.tag_wavefronts)
    sm["constant"] = bounds.constant_passes(run)
    sm["fill"] = bounds.fill_cycles(traffic.l1_miss_sectors + c.global_store.sectors)
    chip = {
        "l2": bounds.l2_seconds(traffic.l2_bytes, traffic.partial_store_sectors, gpu),
        "dram": bounds.dram_seconds(traffic.dram_bytes, gpu, _eta(traffic, gpu)),
        "atomic": bounds.atomic_seconds(c.global_atomic.sectors, run.same_address_atomics, gpu),
    }
    return _Demand({name: n / blocks for name, n in sm.items()}, {name: s / blocks for name, s in chip.items()})


def _eta(traffic: Traffic, gpu: Device) -> float:
    return dram_eta(gpu, traffic.dram_read_bytes, traffic.dram_write_bytes)


def _block_cycles(lam: float, warps: _Warps, demand: _Demand, run: EngineRun) -> float:
    """How long a block stays: as long as its slowest warp. With barriers its phases follow one another: in some all its warps wait, in
    others they go through the tightest pipe. Other resident blocks fill these gaps of the SM; the block stays no shorter."""
    if not warps.barriers:
        return lam
    arrivals = warps.barriers * run.warps_per_block / 4  # the other warps' barrier instructions, one scheduler's share
    return lam + max(demand.sm.values()) + arrivals


def _norm(parts: Mapping[str, float], waiting: float = 0.0) -> float:
    """The time that all bounds together take. waiting: m, see above."""
    groups = [max((parts.get(name, 0.0) for name in names), default=0.0) for names in GROUPS]
    latency = parts.get("latency", 0.0)
    together = (sum(g**P_NORM for g in groups) + waiting * latency**P_NORM) ** (1 / P_NORM)
    return max(latency, together)


def _wave(demand: _Demand, per_sm: float, blocks: float, latency_cycles: float, clock_hz: float) -> dict[str, float]:
    """Bounds in seconds of `blocks` blocks, `per_sm` of them on the busiest SM, all resident at once."""
    parts = {name: per_sm * cycles / clock_hz for name, cycles in demand.sm.items()}
    parts |= {name: blocks * seconds for name, seconds in demand.chip.items()}
    parts["latency"] = latency_cycles / clock_hz
    return parts


def _stores(run: EngineRun) -> bool:
    """Whether the kernel writes global memory: then a block keeps its place until its last stores have arrived in L2."""
    return bool(run.counts.global_store.requests or run.counts.global_atomic.requests)


def turnaround_cycles(run: EngineRun, gpu: Device) -> float:
    """From the end of a block to the first instruction of the next in its place; a block stays until its last stores have arrived."""
    return gpu.block_turnaround_cyc - constant("prologue") - (0.0 if _stores(run) else constant("drain") * gpu.lat_l2)


def _weights(total: Mapping[str, float]) -> dict[str, float]:
    """The longest bound of each group, and the latency, as they go into the norm."""
    longest = [max(names, key=lambda name: total[name]) for names in GROUPS]
    return {name: total[name] ** P_NORM for name in (*longest, "latency")}


def predict(
    run: EngineRun, traffic: Traffic, device: str | Device, occupancy: Occupancy, *, estimated_registers: bool = False
) -> Prediction:
    """The time of one launch on one device, bound by bound. Deterministic; nothing is executed. estimated_registers: whether the occupancy
    rests on an estimate of registers; the interval is wider then.

    Raises: UnknownName for an unknown device.
    """
    gpu = find_device(device)
    resident = max(1, min(occupancy.blocks_per_sm, -(-run.blocks // gpu.sms)))
    per_wave = gpu.sms * occupancy.blocks_per_sm
    waves = run.blocks / per_wave
    warps = _walk_warps(run, schedule(run.program), latencies(run, traffic, gpu))
    turnaround = turnaround_cycles(run, gpu)
    demand = _demand(run, traffic, gpu, resident)
    full, rest = divmod(run.blocks, per_wave)
    stay = _block_cycles(warps.mean_cycles, warps, demand, run) + turnaround
    waiting = min(1.0, warps.median.stalls["long_scoreboard"] / stay)
    parts = _wave(demand, occupancy.blocks_per_sm, per_wave, stay, gpu.clock_hz)
    total = {name: full * parts.get(name, 0.0) for name in BOUNDS}
    body, tail = _norm(total, waiting), 0.0
    # the last wave waits for the slowest block
    slowest = _block_cycles(warps.slowest_cycles, warps, demand, run) + turnaround
    if rest:
        per_sm = -(-rest // gpu.sms)
        parts = _wave(_demand(run, traffic, gpu, per_sm), per_sm, rest, slowest, gpu.clock_hz)
        tail = _norm(parts, waiting)
        total = {name: total[name] + parts.get(name, 0.0) for name in BOUNDS}
    elif full:
        tail = max(0.0, slowest - stay) / gpu.clock_hz
        total["latency"] += tail
    body += tail
    total["launch"] = gpu.launch_us_stream * 1e-6
    return _prediction(run, traffic, gpu, occupancy, warps, demand, total, waves, body, tail, stay, waiting, estimated_registers)


def _prediction(run, traffic, gpu, occupancy, warps, demand, total, waves, body, tail, stay, waiting, estimated_registers) -> Prediction:
    time_s = body + total["launch"]
    bound = max(BOUNDS, key=lambda name: total[name])
    flagged = tuple(sorted(name for name in _INPUTS[bound] if name in gpu.flagged))
    missed = bound in ("dram", "l2", "fill", "latency") and not traffic.exact
    alone = bool(warps.barriers) and occupancy.blocks_per_sm == 1
    facts = Facts(bool(flagged), estimated_registers and occupancy.limiter == "registers", missed, alone)
    doubt = uncertainty(_weights(total), total["launch"] / time_s, facts)
    per_warp = max(demand.sm.values()) / run.warps_per_block
    chip = max(demand.chip.values()) * gpu.clock_hz * gpu.sms / run.warps_per_block
    tightest = max(per_warp, chip)
    useful = run.blocks / (math.ceil(waves) * gpu.sms * occupancy.blocks_per_sm) if waves > 1 else 1.0
    return Prediction(
        device=gpu.name,
        time_s=time_s,
        interval_s=(time_s / doubt.factor, time_s * doubt.factor),
        launch_s=0.0,
        bounds={name: float(total[name]) for name in BOUNDS},
        bound=bound,
        waves=waves,
        body_s=body,
        tail_s=tail,
        active_s=body - tail * (1.0 - useful),
        warp_cycles=warps.median.cycles,
        block_cycles=stay,
        warps_needed=warps.median.cycles / tightest if tightest else 0.0,
        dram_eta=_eta(traffic, gpu),
        stalls={name: warps.median.stalls.get(name, 0.0) for name in STALLS},
        flagged=flagged,
        interval_why=doubt.reasons,
        waiting=waiting,
    )
