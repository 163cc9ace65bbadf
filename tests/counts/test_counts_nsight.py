"""L1's two stages, counted, against Nsight's own counters: the published ladders l1-access-a100 and -a40 (benchmarks/data/ladders.csv).

One block of 1024 threads loads 18 elements per turn, at strides 0..64 and in two-dimensional blocks with a pitch of 4098 elements,
f32 and f64. The benchmark's array starts at a multiple of 2 MiB, as the first array does here; sets depend on nothing else.
"""

from __future__ import annotations

import pytest

from benchmarks.ladders import micro
from benchmarks.ladders.common import gpu_of, rows
from solcourse.occupancy import occupancy
from solcourse.traffic import traffic

TURNS, WARPS = 2, 32
DATA_STAGE = "l1tex__data_pipe_lsu_wavefronts per warp load"
TAG_STAGE = "l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ld per warp load"
PATTERNS = [(kind, *pattern) for kind in micro.L1 for pattern in micro.l1_patterns(kind, TURNS)]
NAMES = [f"{kind}-{name}" for kind, name, *_ in PATTERNS]


@pytest.fixture(scope="module")
def counted(launch):
    """counted(pattern) -> the run of one pattern; made once."""
    runs = {}

    def run(pattern):
        kind, name, kernel, block, args = pattern
        if (kind, name) not in runs:
            runs[kind, name] = launch(kernel[1, block], *args())
        return runs[kind, name]

    return run


def published(ladder, kind, name, metric):
    (row,) = (r for r in rows() if (r["ladder"], r["dtype"], r["kernel"], r["metric"]) == (ladder, kind, name, metric))
    return row["value"]


def agrees(counted, printed):
    """Whether a figure was printed as it was: two decimals below 5, one above."""
    return abs(counted - float(printed)) <= (0.005 if float(printed) < 5 else 0.05) + 1e-9


@pytest.mark.parametrize("pattern", PATTERNS, ids=NAMES)
def test_data_stage_wavefronts_are_those_of_nsight(counted, pattern):
    kind, name, *_ = pattern
    loads = counted(pattern).counts.global_load
    assert loads.requests == TURNS * len(micro.LOADS) * WARPS
    for ladder in ("l1-access-a100", "l1-access-a40"):
        assert loads.wavefronts / loads.requests == float(published(ladder, kind, name, DATA_STAGE))


@pytest.mark.parametrize("pattern", PATTERNS, ids=NAMES)
def test_tag_stage_wavefronts_are_those_of_nsight_to_the_last_digit(counted, pattern):
    kind, name, *_ = pattern
    run = counted(pattern)
    for ladder, name_of_gpu in (("l1-access-a100", "A100"), ("l1-access-a40", "A40")):
        gpu = gpu_of(name_of_gpu)
        tags = traffic(run, gpu, occupancy(gpu, run.threads_per_block, 32, 0)).tag_wavefronts / run.counts.global_load.requests
        printed = published(ladder, kind, name, TAG_STAGE)
        assert agrees(tags, printed), f"{tags:.4f} for {printed}"


def test_every_published_pattern_is_counted():
    patterns = {(row["dtype"], row["kernel"]) for row in rows() if row["ladder"].startswith("l1-access")}
    assert patterns == {(kind, name) for kind, name, *_ in PATTERNS}
