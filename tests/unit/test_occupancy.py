"""occupancy.py against sums done by hand from the rules of cuda_occupancy.h, one case a line, and the laws they obey."""

import pickle
import random

import pytest

from solcourse.errors import LaunchError, UnknownName
from solcourse.hardware import KIB, device, devices
from solcourse.occupancy import occupancy

A100, V100, T4, P100 = "A100-SXM4-80GB", "Tesla V100-SXM2-16GB", "Tesla T4", "Tesla P100-SXM2-16GB"
A6000, ORIN, L40S, H100, B200, RTX5090 = (
    "RTX A6000", "Jetson AGX Orin 64GB", "L40S", "H100-SXM5-80GB", "B200-SXM-180GB", "GeForce RTX 5090",
)  # fmt: skip

# device, threads, registers, shared bytes -> blocks, warps, limiter, carve-out KiB, L1 KiB
CASES = [
    # cc 8.0: 64 warps, 32 blocks, 4 partitions x 16384 registers, 164 KiB of 192; every block costs 1 KiB more, granules of 128 B
    # 8 warps a block: 64/8 = 8. 32 regs x 32 = 1024 a warp: 16 x 4 partitions = 64 warps, /8 = 8. 8 x 1 KiB = 8 KiB
    (A100, 256, 32, 0, 8, 64, "warps", 8, 184),
    # 2048 a warp: 8 x 4 = 32 warps, /32 = 1. 1 x 1 KiB: carve-out 8
    (A100, 1024, 64, 0, 1, 32, "registers", 8, 184),
    # 33 is rounded to 40 registers: 33 x 32 = 1056 -> 1280 a warp: 12 x 4 = 48, /4 = 12. 12 KiB: carve-out 16
    (A100, 128, 33, 0, 12, 48, "registers", 16, 176),
    # one warp a block: 32 block slots of 64 warps. 32 KiB
    (A100, 32, 16, 0, 32, 32, "blocks", 32, 160),
    # 49152 + 1024 = 50176 = 392 x 128. 164 x 1024 / 50176 = 3.3 -> 3. 3 x 49 KiB = 147: carve-out 164
    (A100, 256, 32, 48 * KIB, 3, 24, "shared_memory", 164, 28),
    # 163 + 1 = 164 KiB: exactly one
    (A100, 256, 32, 163 * KIB, 1, 8, "shared_memory", 164, 28),
    # 4097 + 1024 = 5121 -> 5248 (41 x 128). 167936/5248 = 32; 8 by warps. 8 x 5248 = 41984 = 41 KiB: carve-out 64
    (A100, 256, 32, 4097, 8, 64, "warps", 64, 128),
    # 100 threads are 4 warps: 64/4 = 16. 20 x 32 = 640 -> 768 a warp: 21 x 4 = 84, /4 = 21. 16 KiB
    (A100, 100, 20, 0, 16, 64, "warps", 16, 176),
    # 168 x 32 = 5376 = 21 x 256 a warp: 3 x 4 = 12 warps, /3 = 4. (65536/5376 = 12.2: here the partitions cost nothing)
    (A100, 96, 168, 0, 4, 12, "registers", 8, 184),
    # 255 -> 256: 8192 a warp: 2 x 4 = 8 warps, /8 = 1
    (A100, 256, 255, 0, 1, 8, "registers", 8, 184),
    # no register at all (an empty kernel)
    (A100, 1024, 0, 0, 2, 64, "warps", 8, 184),
    # cc 8.7: as 8.0, but 48 warps and 16 blocks. 48/8 = 6
    (ORIN, 256, 32, 0, 6, 48, "warps", 8, 184),
    (ORIN, 64, 32, 0, 16, 32, "blocks", 16, 176),
    # cc 7.5: 32 warps, 16 blocks, 64 KiB of 96, nothing reserved, granules of 256 B. 32/8 = 4. No shared memory: smallest carve-out is 32
    (T4, 256, 32, 0, 4, 32, "warps", 32, 64),
    # 5000 -> 5120 (20 x 256): 65536/5120 = 12.8 -> 12. 12 x 5120 = 60 KiB: carve-out 64
    (T4, 64, 32, 5000, 12, 24, "shared_memory", 64, 32),
    # cc 7.0: 12 KiB a block: 96/12 = 8, and 8 by warps: a tie, named by the first. 96 KiB of 128
    (V100, 256, 32, 12 * KIB, 8, 64, "warps", 96, 32),
    # nothing shared, nothing reserved: all 128 KiB are L1
    (V100, 256, 32, 0, 8, 64, "warps", 0, 128),
    # 112 x 32 = 3584 a warp: 4 x 4 partitions = 16 warps, /9 = 1
    (V100, 288, 112, 0, 1, 9, "registers", 0, 128),
    # cc 6.0, the same block: 2 partitions of 32768: 9 x 2 = 18 warps, /9 = 2. Separate shared memory: L1 is always 24
    (P100, 288, 112, 0, 2, 18, "registers", 64, 24),
    # cc 8.6: 48 warps, 16 blocks, 100 KiB of 128. 48/32 = 1
    (A6000, 1024, 32, 0, 1, 32, "warps", 8, 120),
    # 40 x 32 = 1280: 12 x 4 = 48 warps, /8 = 6 = 48/8
    (A6000, 256, 40, 0, 6, 48, "warps", 8, 120),
    (A6000, 32, 32, 0, 16, 16, "blocks", 16, 112),
    # 99 + 1 = 100 KiB
    (A6000, 256, 32, 99 * KIB, 1, 8, "shared_memory", 100, 28),
    # cc 8.9: 24 blocks. 64 threads: 24 x 2 = 48 warps, where 8.6 holds 32
    (L40S, 64, 32, 0, 24, 48, "warps", 32, 96),
    (L40S, 32, 32, 0, 24, 24, "blocks", 32, 96),
    # cc 9.0: 228 KiB of 256. 100 + 1 = 101 KiB: 228/101 = 2. 202 KiB: carve-out 228
    (H100, 256, 32, 100 * KIB, 2, 16, "shared_memory", 228, 28),
    # 65 + 1 = 66 KiB: 228/66 = 3. 198 KiB: carve-out 228 (196 is too small)
    (H100, 128, 32, 65 * KIB, 3, 12, "shared_memory", 228, 28),
    # 47 + 1 = 48 KiB: 228/48 = 4. 192 KiB: carve-out 196
    (H100, 128, 32, 47 * KIB, 4, 16, "shared_memory", 196, 60),
    # cc 10.0: as 9.0
    (B200, 256, 32, 227 * KIB, 1, 8, "shared_memory", 228, 28),
    # cc 12.0: 48 warps, 24 blocks
    (RTX5090, 256, 48, 0, 5, 40, "registers", 8, 120),  # 1536 a warp: 10 x 4 = 40 warps, /8 = 5
    (RTX5090, 32, 32, 0, 24, 24, "blocks", 32, 96),
]


@pytest.mark.parametrize(("gpu", "threads", "registers", "shared", "blocks", "warps", "limiter", "carveout_kib", "l1_kib"), CASES)
def test_occupancy_as_summed_by_hand(gpu, threads, registers, shared, blocks, warps, limiter, carveout_kib, l1_kib):
    o = occupancy(gpu, threads, registers, shared)
    assert (o.blocks_per_sm, o.warps_per_sm, o.limiter) == (blocks, warps, limiter)
    assert (o.shared_carveout_bytes, o.l1_bytes) == (carveout_kib * KIB, l1_kib * KIB)
    assert o.max_warps == device(gpu).max_warps_sm
    assert o.fraction == warps / o.max_warps


def test_limits_are_named_and_a_resource_not_used_has_no_limit():
    o = occupancy(A100, 256, 40, 8 * KIB)
    # 64/8 ; 32 ; 1280 a warp: 12 x 4 / 8 ; 164/9
    assert dict(o.limits) == {"warps": 8, "blocks": 32, "registers": 6, "shared_memory": 18}
    assert o.registers_per_block == 8 * 1280
    assert o.shared_bytes_per_block == 9 * KIB
    assert set(occupancy(T4, 256, 0, 0).limits) == {"warps", "blocks"}


def test_a_tie_names_all_its_limiters():
    assert occupancy(V100, 256, 32, 12 * KIB).limiters == ("warps", "registers", "shared_memory")
    assert occupancy(A100, 32, 16, 0).limiters == ("blocks",)


@pytest.mark.parametrize(
    ("gpu", "barriers", "blocks", "limiter"),
    [
        (H100, 16, 4, "barriers"),  # 2 x 32 block slots = 64 barriers, /16
        (B200, 3, 21, "barriers"),  # 64/3
        (RTX5090, 2, 12, "barriers"),  # 24/2
        (H100, 1, 32, "blocks"),
        (H100, 0, 32, "blocks"),
        (A100, 16, 32, "blocks"),  # no such limit before Hopper
    ],
)
def test_barriers_limit_from_hopper_on(gpu, barriers, blocks, limiter):
    o = occupancy(gpu, 32, 16, 0, barriers=barriers)
    assert (o.blocks_per_sm, o.limiter) == (blocks, limiter)


@pytest.mark.parametrize(
    ("gpu", "threads", "registers", "shared", "message"),
    [
        (
            A100,
            1024,
            80,
            0,
            r"80 registers x 1024 threads = 81920 > 65536 registers\. Use blocks of at most 768 threads, or .* max_registers=64\.",
        ),
        (A100, 1024, 65, 0, r"72 registers x 1024 threads = 73728 > 65536"),  # 65 is rounded to 72
        # 224 x 288 = 64512 would fit, but 9 warps count as 12 on 4 partitions: 7168 x 12 = 86016
        (A100, 288, 224, 0, r"224 registers x 288 threads \(counted as 384 threads\) = 86016 > 65536"),
        (P100, 288, 224, 0, r"= 86016 > 65536"),  # although two partitions of P100 could hold it
        (A100, 256, 256, 0, r"256 registers per thread > 255"),
        (A100, 1025, 32, 0, r"1025 threads per block > 1024"),
        (A100, 256, 32, 163 * KIB + 1, r"166913 bytes of shared memory per block > 166912 \(163 KiB\)"),
        (T4, 256, 32, 65 * KIB, r"66560 bytes of shared memory per block > 65536 \(64 KiB\)"),
        (P100, 256, 32, 49 * KIB, r"> 49152 \(48 KiB\)"),
        (A100, 0, 32, 0, r"0 threads per block; a whole number, at least 1"),
        (A100, -32, 32, 0, r"-32 threads per block"),
        (A100, 32.0, 32, 0, r"32\.0 threads per block"),
        (A100, 32, -1, 0, r"-1 registers per thread"),
        (A100, 32, None, 0, r"None registers per thread"),
        (A100, 32, 32, -4, r"-4 bytes of shared memory"),
    ],
)
def test_a_block_that_cannot_fit_says_which_resource(gpu, threads, registers, shared, message):
    with pytest.raises(LaunchError, match=rf"cannot run on {gpu}: .*{message}"):
        occupancy(gpu, threads, registers, shared)


@pytest.mark.parametrize("barriers", [17, -1, 1.5])
def test_barriers_out_of_range_are_refused(barriers):
    with pytest.raises(LaunchError, match="0 to 16 are possible"):
        occupancy(H100, 32, 32, 0, barriers=barriers)


def test_a_record_travels_to_another_process():
    o = occupancy(A100, 256, 40, 0)
    assert pickle.loads(pickle.dumps(o)) == o
    assert hash(o) == hash(occupancy(A100, 256, 40, 0))


def test_unknown_device_offers_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'L40'"):
        occupancy("L40T", 256, 32, 0)


@pytest.mark.parametrize("gpu", devices(), ids=lambda d: d.name)
def test_blocks_fit_and_one_more_would_not(gpu):
    rng = random.Random(gpu.name)
    seen = 0
    for _ in range(100):
        threads, registers, shared = rng.randint(1, 1024), rng.randint(1, 128), rng.choice([0, rng.randint(0, 40_000)])
        try:
            o = occupancy(gpu, threads, registers, shared)
        except LaunchError:
            continue
        seen += 1
        warps, r = -(-threads // 32), o.blocks_per_sm
        reserved, granule = (KIB, 128) if gpu.cc_major >= 8 else (0, 256)
        # one block's demand and the SM's supply, resource by resource; a warp's registers lie inside one partition
        per_warp = -(-registers // 8) * 8 * 32
        demand = [warps, warps, 1, -(-(shared + reserved) // granule) * granule]
        supply = [gpu.max_warps_sm, 65536 // gpu.partitions // per_warp * gpu.partitions, gpu.max_blocks_sm, gpu.smem_max_kib_sm * KIB]
        assert all(r * d <= s for d, s in zip(demand, supply, strict=True))
        assert any((r + 1) * d > s for d, s in zip(demand, supply, strict=True))
        # the carve-out is large enough for them, and the next smaller one would not be
        smaller = [k * KIB for k in gpu.carveouts_kib if k * KIB < o.shared_carveout_bytes]
        assert r * o.shared_bytes_per_block <= o.shared_carveout_bytes
        assert all(r * o.shared_bytes_per_block > k for k in smaller)
        assert o.shared_carveout_bytes + o.l1_bytes == gpu.l1_smem_kib_sm * KIB
    assert seen > 50


@pytest.mark.parametrize("gpu", [P100, T4, A100, A6000, H100, RTX5090])
def test_using_more_of_a_resource_never_raises_occupancy(gpu):
    by_registers = [occupancy(gpu, 128, r, 0).warps_per_sm for r in range(1, 256)]
    assert by_registers == sorted(by_registers, reverse=True)
    assert by_registers[0] > by_registers[-1]
    by_shared = [occupancy(gpu, 128, 32, s).warps_per_sm for s in range(0, 48 * KIB, 256)]
    assert by_shared == sorted(by_shared, reverse=True)
    assert by_shared[0] > by_shared[-1]
