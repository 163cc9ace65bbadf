"""The time a launch needs: exact counts -> one bound per resource -> soft maximum, wave by wave. The definition of `predicted`.

Glossary: S SMs, R resident blocks per SM, B blocks, W warps per block, f SM clock. Every bound is the time that one resource alone
would need if the work were spread evenly over it; nothing is faster than the largest, and the p-norm (p = 3) of all accounts for
their overlapping only in part:

    body = ( core^3 + L1^3 + L2^3 + dram^3 + latency^3 )^(1/3)
           core = max(issue, pipes, lsu, constant), L1 = max(l1, fill), L2 = max(l2, atomic)
    T    = start-up + full waves x body(S x R blocks) + body(the blocks that are left)

p = 3 and the measured inputs come from the public te42kyfo/gpu-benches results (see devices.toml); no constant here was set to make
a ladder in benchmarks/data fit. Constants without a published figure are listed below, each with its mark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .errors import WorkError
from .hardware import Device
from .hardware import device as find_device
from .latency import STALLS, Latencies, Schedule, Walk, schedule, walk
from .occupancy import Occupancy
from .simt.records import PIPES, SECTOR_BYTES, WARP, Counts, EngineRun
from .traffic import Traffic
from .work import Work

P_NORM = 3.0  # chosen among 2, 3, 4 and a hard maximum on bandwidth against occupancy, 6 GPUs: 5.2 % mean error
LSU_LANES = 32  # one load/store instruction per clock and SM (NVIDIA developer forum 273699)
CBU_LANES = 16  # recalled
XU_CYCLES = 22.0  # recalled: 20-25 cycles for MUFU
FILL_BYTES_CLK = 32  # L2 -> L1, per SM; measured L2 rates are 16-35 bytes per clock and SM
ATOMIC_BYTES_CLK_SLICE = 32  # recalled: one sector of atomics per L2 slice and clock; one operation per clock to one address
PROLOGUE_CYCLES = 30.0  # derived: block_turnaround_cyc was measured on a kernel of about 5 instructions, whose walk is taken off again
INTERVAL = 1.25  # judgement: twice-as-heavy published simulators reach 14-17 %, and instruction counts here are estimates
INTERVAL_GUESSED = 1.5  # judgement: where the winning bound itself rests on a recalled constant

_CORE = ("issue", *(f"pipe_{pipe}" for pipe in PIPES if pipe != "lsu"), "lsu", "constant")
BOUNDS = (*_CORE[:-1], "l1", "fill", "l2", "dram", "latency", "atomic", "constant", "launch")
_GROUPS = (_CORE, ("l1", "fill"), ("l2", "atomic"), ("dram",), ("latency",))
# the Device figures behind each bound: where one of them is flagged, so is the prediction
_INPUTS: Mapping[str, tuple[str, ...]] = {
    "issue": ("boost_mhz", "clock_derate"),
    "pipe_fma": ("fp32_lanes_sm", "clock_derate"),
    "pipe_alu": ("int32_lanes_sm", "clock_derate"),
    "pipe_fp64": ("fp64_lanes_sm", "clock_derate"),
    "pipe_xu": ("sfu_lanes_sm", "clock_derate"),
    "pipe_cbu": ("clock_derate",),
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
    interval_s    (low, high) = time_s / 1.25, x 1.25: the accuracy this kind of model is judged to have on arbitrary kernels; x/÷ 1.5
                  where the winning bound rests on recalled constants (atomics). Not a statistical confidence interval
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


def _asymptote(gpu: Device, eta: float, bytes_per_thread: int, waits: bool) -> float:
    """The DRAM rate behind a measured one, as a fraction of the data sheet's.

    `eta` was measured on a kernel at full occupancy with one float64 element per thread, to which latency, L2 and the path into L1
    contributed: the same p-norm takes them off, so that they do not count twice. 1.0 at most.
    """
    rate = eta * gpu.dram_bytes_per_s
    clock = gpu.boost_mhz * 1e6
    stay = gpu.block_turnaround_cyc + (gpu.lat_dram if waits else 0.0)
    others = (
        rate / (gpu.sms * gpu.max_threads_sm * bytes_per_thread / stay * clock),
        rate / (gpu.l2_bytes_clk * clock),
        rate / (gpu.sms * FILL_BYTES_CLK * clock),
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
    bounds = {
        "dram": moved / (gpu.dram_bytes_per_s * dram_eta(gpu, moved - written, written)),
        "l2": moved / gpu.l2_bytes_per_s,
        "fill": moved / (gpu.sms * FILL_BYTES_CLK * gpu.clock_hz),
        "issue": max((n / (gpu.peak_flops_per_s(kind) * gpu.clock_derate) for kind, n in work.flops.items() if n), default=0.0),
    }
    return _norm(bounds) + gpu.launch_us_stream * 1e-6


def _lanes(gpu: Device) -> dict[str, float]:
    return {
        "fma": gpu.fp32_lanes_sm,
        "alu": gpu.int32_lanes_sm,
        "fp64": gpu.fp64_lanes_sm,
        "xu": gpu.sfu_lanes_sm,
        "lsu": LSU_LANES,
        "cbu": CBU_LANES,
    }


def _warp_busy(gpu: Device, pipe: str) -> float:
    """Cycles for which one warp instruction keeps the pipe of its partition (a pipe thinner than a lane per partition is shared)."""
    lanes = _lanes(gpu)[pipe]
    if pipe == "lsu":
        return 1.0
    return WARP / lanes if lanes < 2 * gpu.partitions else WARP / (lanes / gpu.partitions)


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
    result = []
    for i, site in enumerate(run.program.sites):
        if site.kind.startswith("shared"):
            cycles = gpu.lat_smem
        elif site.kind == "global_atomic":
            cycles = gpu.lat_l2 + _dram_part(traffic, i) * (gpu.lat_dram - gpu.lat_l2)
        else:
            l1, l2, dram = traffic.levels_by_site[i] if i < len(traffic.levels_by_site) else (0.0, 0.0, 0.0)
            cycles = l1 * gpu.lat_l1 + l2 * gpu.lat_l2 + dram * gpu.lat_dram if l1 + l2 + dram else gpu.lat_l1
        result.append(cycles + busy[i] - 1)
    pipes = tuple(_warp_busy(gpu, pipe) for pipe in PIPES)
    return Latencies(gpu.lat_alu, gpu.lat_fp64, XU_CYCLES, pipes, tuple(result), busy)


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


def _l1_cycles(run: EngineRun, traffic: Traffic, gpu: Device) -> float:
    """Cycles of all SMs' L1 together: the busiest of its stages (tags; load path; data, which shared memory uses as well)."""
    c = run.counts
    data = sum(
        kind.wavefronts
        for kind in (c.global_load, c.global_store, c.local_load, c.local_store, c.shared_load, c.shared_store, c.shared_atomic)
    )
    width = gpu.l1_load_bytes_clk_sm
    path = sum(
        counted.requests * math.ceil(WARP * site.size / width)
        for site, counted in zip(run.program.sites, run.site_counts, strict=True)
        if site.kind in ("global_load", "local_load")
    )
    return max(data, path, traffic.tag_wavefronts)


def _demand(run: EngineRun, traffic: Traffic, gpu: Device, blocks_per_sm: int) -> _Demand:
    c: Counts = run.counts
    blocks = max(1, run.blocks)
    partitions = min(gpu.partitions, max(1, blocks_per_sm * run.warps_per_block))
    used = partitions / gpu.partitions
    sm = {"issue": c.warp_instructions / blocks / partitions}
    for pipe, lanes in _lanes(gpu).items():
        cycles = WARP * c.pipes.get(pipe, 0) / blocks / lanes
        shared_pipe = pipe == "lsu" or lanes < 2 * gpu.partitions
        sm["lsu" if pipe == "lsu" else f"pipe_{pipe}"] = cycles if shared_pipe else cycles / used
    stored = c.global_store.sectors
    sm["l1"] = _l1_cycles(run, traffic, gpu) / blocks
    sm["fill"] = (traffic.l1_miss_sectors + stored) * SECTOR_BYTES / FILL_BYTES_CLK / blocks
    atomics = c.global_atomic
    one_address = run.same_address_atomics / gpu.clock_hz
    spread = atomics.sectors * SECTOR_BYTES / (gpu.l2_slices * ATOMIC_BYTES_CLK_SLICE) / gpu.clock_hz
    rate = gpu.dram_bytes_per_s * _eta(traffic, gpu)
    chip = {
        "l2": traffic.l2_bytes / gpu.l2_bytes_per_s / blocks,
        "dram": traffic.dram_bytes / rate / blocks,
        "atomic": max(one_address, spread) / blocks,
    }
    return _Demand(sm, chip)


def _eta(traffic: Traffic, gpu: Device) -> float:
    return dram_eta(gpu, traffic.dram_read_bytes, traffic.dram_write_bytes)


def _block_cycles(lam: float, warps: _Warps, demand: _Demand, resident: int, run: EngineRun) -> float:
    """How long a block stays: its slowest warp, or with barriers the tightest pipe too (nobody fills the bubble when R is 1)."""
    if not warps.barriers:
        return lam
    tightest = max(demand.sm.values())
    arrivals = warps.barriers * run.warps_per_block / 4  # the other warps' barrier instructions, one scheduler's share
    return (lam + tightest if resident == 1 else max(lam, tightest)) + arrivals


def _norm(bounds: Mapping[str, float]) -> float:
    groups = (max((bounds.get(name, 0.0) for name in names), default=0.0) for names in _GROUPS)
    return sum(g**P_NORM for g in groups) ** (1 / P_NORM)


def _wave(demand: _Demand, per_sm: float, blocks: float, latency_cycles: float, clock_hz: float) -> dict[str, float]:
    """Bounds in seconds of `blocks` blocks, `per_sm` of them on the busiest SM, all resident at once."""
    bounds = {name: per_sm * cycles / clock_hz for name, cycles in demand.sm.items()}
    bounds |= {name: blocks * seconds for name, seconds in demand.chip.items()}
    bounds["latency"] = latency_cycles / clock_hz
    return bounds


def predict(run: EngineRun, traffic: Traffic, device: str | Device, occupancy: Occupancy) -> Prediction:
    """The time of one launch on one device, bound by bound. Deterministic; nothing is executed.

    Raises: UnknownName for an unknown device.
    """
    gpu = find_device(device)
    resident = max(1, min(occupancy.blocks_per_sm, -(-run.blocks // gpu.sms)))
    per_wave = gpu.sms * occupancy.blocks_per_sm
    waves = run.blocks / per_wave
    warps = _walk_warps(run, schedule(run.program), latencies(run, traffic, gpu))
    turnaround = gpu.block_turnaround_cyc - PROLOGUE_CYCLES
    demand = _demand(run, traffic, gpu, resident)
    full, rest = divmod(run.blocks, per_wave)
    stay = _block_cycles(warps.mean_cycles, warps, demand, resident, run) + turnaround
    total = dict.fromkeys(BOUNDS, 0.0)
    body = tail = 0.0
    if full:
        bounds = _wave(demand, occupancy.blocks_per_sm, per_wave, stay, gpu.clock_hz)
        body += full * _norm(bounds)
        total = {name: total[name] + full * bounds.get(name, 0.0) for name in BOUNDS}
    # the last wave waits for the slowest block
    slowest = _block_cycles(warps.slowest_cycles, warps, demand, resident, run) + turnaround
    if rest:
        per_sm = -(-rest // gpu.sms)
        last = _demand(run, traffic, gpu, per_sm)
        bounds = _wave(last, per_sm, rest, slowest, gpu.clock_hz)
        tail = _norm(bounds)
        total = {name: total[name] + bounds.get(name, 0.0) for name in BOUNDS}
    elif full:
        tail = max(0.0, slowest - stay) / gpu.clock_hz
        total["latency"] += tail
    body += tail
    total["launch"] = gpu.launch_us_stream * 1e-6
    return _prediction(run, traffic, gpu, occupancy, warps, demand, total, waves, body, tail, stay)


def _prediction(run, traffic, gpu, occupancy, warps, demand, total, waves, body, tail, stay) -> Prediction:
    time_s = body + total["launch"]
    bound = max(BOUNDS, key=lambda name: total[name])
    factor = INTERVAL_GUESSED if bound in ("atomic", "constant", "pipe_cbu") else INTERVAL
    per_warp = max(demand.sm.values()) / run.warps_per_block
    chip = max(demand.chip.values()) * gpu.clock_hz * gpu.sms / run.warps_per_block
    tightest = max(per_warp, chip)
    useful = run.blocks / (math.ceil(waves) * gpu.sms * occupancy.blocks_per_sm) if waves > 1 else 1.0
    return Prediction(
        device=gpu.name,
        time_s=time_s,
        interval_s=(time_s / factor, time_s * factor),
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
        flagged=tuple(sorted(name for name in _INPUTS[bound] if name in gpu.flagged)),
    )
