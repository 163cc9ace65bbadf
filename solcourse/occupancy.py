"""How many blocks of a kernel an SM holds at once, and what stops it from holding more. The definition of theoretical occupancy.

The rules are those of NVIDIA's cuda_occupancy.h (CUDA 13): registers are given to whole warps inside one of the SM's partitions,
shared memory in granules, with 1 KiB kept by the driver in every block from compute capability 8.0 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import NoReturn

from .errors import LaunchError
from .hardware import KIB, Device
from .hardware import device as find_device

WARP = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_REGISTERS_PER_THREAD = 255
REGISTER_GRANULE = 256  # registers per warp
MAX_BARRIERS_PER_BLOCK = 16
_TWO_BARRIERS_PER_BLOCK_SLOT = ("9.0", "10.0")


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks and warps of one SM.

    blocks_per_sm          R, blocks resident at once
    warps_per_sm           R x warps per block; `max_warps` is the hardware's limit
    fraction               warps_per_sm / max_warps, 0..1. ncu: sm__maximum_warps_per_active_cycle_pct
    limiter                the resource that runs out first; where several tie, the first of `limits`
    limits                 resource -> blocks it allows, in the order warps, blocks, registers, shared_memory, barriers; a resource
                           of which the kernel uses nothing is absent. ncu: launch__occupancy_limit_warps, _blocks, _registers,
                           _shared_mem, _barriers
    shared_carveout_bytes  the smallest carve-out of the unified L1 that does not lower R
    l1_bytes               what that leaves of the L1 cache, per SM
    registers_per_block    as allocated (rounded up), shared_bytes_per_block as allocated (with the driver's share)
    """

    blocks_per_sm: int
    warps_per_sm: int
    max_warps: int
    fraction: float
    limiter: str
    limits: Mapping[str, int] = field(hash=False)
    shared_carveout_bytes: int
    l1_bytes: int
    registers_per_block: int
    shared_bytes_per_block: int

    @property
    def limiters(self) -> tuple[str, ...]:
        """Every resource that allows no more than `blocks_per_sm` blocks."""
        return tuple(name for name, blocks in self.limits.items() if blocks == self.blocks_per_sm)


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _refuse(message: str, gpu: Device) -> NoReturn:
    raise LaunchError(f"This block cannot run on {gpu.name}: {message}")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check(gpu: Device, threads: int, registers: int, shared: int, barriers: int) -> None:
    for what, value, least in (
        ("threads per block", threads, 1),
        ("registers per thread", registers, 0),
        ("bytes of shared memory", shared, 0),
    ):
        if not _is_whole(value) or value < least:
            _refuse(f"{value!r} {what}; a whole number, at least {least}, is needed.", gpu)
    if threads > MAX_THREADS_PER_BLOCK:
        _refuse(f"{threads} threads per block > {MAX_THREADS_PER_BLOCK}. Use smaller blocks and more of them.", gpu)
    if registers > MAX_REGISTERS_PER_THREAD:
        _refuse(f"{registers} registers per thread > {MAX_REGISTERS_PER_THREAD}. Compile with max_registers.", gpu)
    most = gpu.smem_max_kib_block * KIB
    if shared > most:
        _refuse(f"{shared} bytes of shared memory per block > {most} ({gpu.smem_max_kib_block} KiB). Use a smaller tile.", gpu)
    if not _is_whole(barriers) or not 0 <= barriers <= MAX_BARRIERS_PER_BLOCK:
        _refuse(f"{barriers!r} barriers per block; 0 to {MAX_BARRIERS_PER_BLOCK} are possible.", gpu)


def _register_limit(gpu: Device, threads: int, registers: int) -> tuple[int, int]:
    """(blocks, registers allocated per block). Each partition holds its own share of the register file and whole warps of it."""
    warps = -(-threads // WARP)
    per_warp = _round_up(registers * WARP, REGISTER_GRANULE)
    # The launch check assumes that every partition receives the same number of warps: 4 partitions even on P100, which has 2.
    assumed = per_warp * _round_up(warps, 4)
    if assumed > gpu.regs32_sm:
        counted, granules = per_warp // WARP, gpu.regs32_sm // _round_up(warps, 4) // REGISTER_GRANULE
        rounded = f" (counted as {_round_up(warps, 4) * WARP} threads)" if _round_up(warps, 4) * WARP != threads else ""
        _refuse(
            f"{counted} registers x {threads} threads{rounded} = {assumed} > {gpu.regs32_sm} registers. Use blocks of at most "
            f"{gpu.regs32_sm // per_warp // 4 * 4 * WARP} threads, or compile with max_registers={granules * REGISTER_GRANULE // WARP}.",
            gpu,
        )
    warps_per_partition = gpu.regs32_sm // gpu.partitions // per_warp
    return warps_per_partition * gpu.partitions // warps, per_warp * warps


def _shared_allocated(gpu: Device, shared: int) -> int:
    reserved, granule = (KIB, 128) if gpu.cc_major >= 8 else (0, 256)
    return _round_up(shared + reserved, granule)


def occupancy(
    device: str | Device, threads_per_block: int, registers_per_thread: int, shared_bytes_per_block: int, barriers: int = 1
) -> Occupancy:
    """Theoretical occupancy of one launch on one device. shared_bytes_per_block = static + dynamic, without the driver's share.

    Raises: LaunchError when not even one block fits; the message says which resource. UnknownName for an unknown device.
    Source: cuda_occupancy.h of CUDA 13 (rules re-implemented).

    >>> o = occupancy("A100-SXM4-80GB", 256, 40, 0)  # 40 x 32 = 1280 registers a warp; 16384 // 1280 = 12 warps x 4 = 48 warps
    >>> o.blocks_per_sm, o.warps_per_sm, o.fraction, o.limiter
    (6, 48, 0.75, 'registers')
    """
    gpu = find_device(device)
    _check(gpu, threads_per_block, registers_per_thread, shared_bytes_per_block, barriers)
    warps = -(-threads_per_block // WARP)
    limits = {"warps": gpu.max_warps_sm // warps, "blocks": gpu.max_blocks_sm}
    registers_per_block = 0
    if registers_per_thread:
        limits["registers"], registers_per_block = _register_limit(gpu, threads_per_block, registers_per_thread)
    shared = _shared_allocated(gpu, shared_bytes_per_block)
    if shared:
        limits["shared_memory"] = gpu.smem_max_kib_sm * KIB // shared
    if barriers and gpu.cc_major >= 9:  # before Hopper cuda_occupancy.h knows no such limit
        slots = gpu.max_blocks_sm * (2 if gpu.cc in _TWO_BARRIERS_PER_BLOCK_SLOT else 1)
        limits["barriers"] = slots // barriers
    blocks = min(limits.values())
    carveout = next(kib * KIB for kib in gpu.carveouts_kib if kib * KIB >= blocks * shared)
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        max_warps=gpu.max_warps_sm,
        fraction=blocks * warps / gpu.max_warps_sm,
        limiter=min(limits, key=lambda name: limits[name]),
        limits=limits,
        shared_carveout_bytes=carveout,
        l1_bytes=gpu.l1_smem_kib_sm * KIB - carveout,
        registers_per_block=registers_per_block,
        shared_bytes_per_block=shared,
    )
