"""Laws that hold for every kernel: what the counts may never do, and what must not change them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numba import cuda

from solcourse.kernels import cases
from solcourse.kernels.copy import copy, copy_gather
from solcourse.simt.records import ACCESS_KINDS

CASES = cases()


def run_of(launch, name, seed=11, odd=True, **options):
    c = CASES[name]
    shape = c.shapes[-1] if odd else c.shapes[0]
    arguments = c.make(np.random.default_rng(seed), *shape)
    return launch(c.configured(*shape), *arguments, **options), arguments


def flat(run) -> dict:
    """Everything a run says, as comparable values."""
    return {
        "counts": run.counts, "lines": run.lines, "sites": run.site_counts, "program": run.program,
        "trace": (run.trace.blocks.tobytes(), run.trace.offsets.tobytes(), run.trace.words.tobytes()),
        "blocks": run.block_executions.tobytes(), "warps": run.warp_executions.tobytes(),
        "compulsory": (run.compulsory_read_bytes, run.compulsory_write_bytes),
        "atomics": run.same_address_atomics, "registers": run.registers_live, "findings": run.findings,
    }  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_and_two_threads_say_and_write_the_same(launch, name):
    one, first = run_of(launch, name, threads=1)
    two, second = run_of(launch, name, threads=2)
    again, _ = run_of(launch, name, threads=2)
    assert flat(one) == flat(two) == flat(again)
    for a, b in zip(first, second, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("name", CASES)
def test_the_whole_is_the_sum_of_its_lines_and_of_its_sites(launch, name):
    run, _ = run_of(launch, name)
    for kind in ACCESS_KINDS:
        whole = getattr(run.counts, kind)
        of_sites = [c for site, c in zip(run.program.sites, run.site_counts, strict=True) if site.kind == kind]
        of_lines = [getattr(entry.counts, kind) for entry in run.lines]
        for field in dataclasses.fields(whole):
            wanted = getattr(whole, field.name)
            assert sum(getattr(c, field.name) for c in of_sites) == wanted, (kind, field.name)
            assert sum(getattr(c, field.name) for c in of_lines) == wanted, (kind, field.name)
    for field in ("warp_instructions", "thread_instructions", "int_ops", "branches", "divergent_branches", "barriers", "library_flops"):
        assert sum(getattr(entry.counts, field) for entry in run.lines) == getattr(run.counts, field), field
    for kind, flops in run.counts.flops.items():
        assert sum(entry.counts.flops[kind] for entry in run.lines) == flops
    assert run.counts.global_store.requests + run.counts.global_atomic.requests > 0


@pytest.mark.parametrize("name", CASES)
def test_no_count_is_below_what_the_bytes_need(launch, name):
    """sectors <= 32 and >= 1 per request; wavefronts >= 1; never more bytes than 32 lanes hold; conflicts = wavefronts - least."""
    run, _ = run_of(launch, name)
    for site, c in zip(run.program.sites, run.site_counts, strict=True):
        assert c.bytes <= 32 * site.size * c.requests
        assert c.bytes >= site.size * c.requests
        assert c.requests <= c.wavefronts
        assert 0 <= c.bank_conflicts < max(1, c.wavefronts)
        if site.kind.startswith(("global", "local")):
            assert c.requests <= c.sectors <= 32 * c.requests
        else:
            assert c.sectors == 0
    assert run.counts.divergent_branches <= run.counts.branches
    assert run.counts.warp_instructions <= run.counts.thread_instructions <= 32 * run.counts.warp_instructions


DISTINCT = [name for name in CASES if name.startswith(("vector", "saxpy", "copy", "transpose", "polynomial", "complex"))]


@pytest.mark.parametrize("name", DISTINCT)
def test_sectors_hold_at_least_the_bytes_where_no_word_is_read_twice(launch, name):
    run, _ = run_of(launch, name)
    for kind in ("global_load", "global_store"):
        access = getattr(run.counts, kind)
        assert 32 * access.sectors >= access.bytes > 0


@pytest.mark.parametrize("name", CASES)
def test_data_do_not_change_the_counts_of_a_regular_kernel(launch, name):
    """Same sizes, other numbers: the same counts; except where the data decide, as in histograms, gathers and Mandelbrot."""
    first, _ = run_of(launch, name, seed=1)
    second, _ = run_of(launch, name, seed=2)
    if name.startswith(("histogram", "copy_gather", "softmax")):
        assert first.counts.global_store.sectors == second.counts.global_store.sectors
    else:
        assert first.counts == second.counts


@pytest.mark.parametrize("pattern", ["reversed", "shuffled"])
def test_permuting_lanes_changes_no_sector_count(launch, rng, pattern):
    """Which lane reads which word of the warp does not matter: the set of sectors is the same."""
    n = 1024
    lanes = np.arange(n).reshape(-1, 32)
    index = lanes[:, ::-1] if pattern == "reversed" else rng.permuted(lanes, axis=1)
    src, dst = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    index = np.ascontiguousarray(index.ravel()).astype(np.int32)
    run = launch(copy_gather[4, 256], src, index, dst)
    assert run.counts.global_load.sectors == 32 * (4 + 4)  # the index and the gather
    np.testing.assert_array_equal(dst, src[index])


@pytest.mark.parametrize(("grid", "block"), [(1, 1024), (4, 256), (16, 64), (32, 32)])
def test_block_size_changes_no_sector_count(launch, grid, block):
    run = launch(copy[grid, block], np.ones(1024, np.float32), np.zeros(1024, np.float32))
    assert (run.counts.global_load.requests, run.counts.global_load.sectors) == (32, 128)


@cuda.jit
def tile_copy(a, out):
    x, y = cuda.grid(2)
    out[y, x] = a[y, x]


def test_a_run_with_counters_off_counts_nothing(launch):
    out = np.zeros(1024, np.float32)
    run = launch(copy[4, 256], np.ones(1024, np.float32), out, counters=False)
    assert out.all()
    assert run.counts.global_load.requests == run.counts.total_flops == run.counts.barriers == 0


def test_sampled_blocks_speak_for_the_grid(launch):
    """8 of 64 equal blocks, scaled: the counts of all. Outputs are incomplete, and the run says so."""
    n = 64 * 256
    full = launch(copy[64, 256], np.ones(n, np.float32), np.zeros(n, np.float32))
    out = np.zeros(n, np.float32)
    sampled = launch(copy[64, 256], np.ones(n, np.float32), out, sample_blocks=8)
    assert (full.sampled_blocks, sampled.sampled_blocks) == (None, 8)
    assert sampled.counts == full.counts
    assert out.sum() == 8 * 256


def test_more_samples_than_blocks_is_a_full_run(launch):
    out = np.zeros(1024, np.float32)
    run = launch(copy[4, 256], np.ones(1024, np.float32), out, sample_blocks=100)
    assert run.sampled_blocks is None
    assert out.all()
    assert run.counts.global_load.requests == 32


def test_a_launch_remembers_its_shape(launch):
    run = launch(tile_copy[(4, 2), (16, 8)], np.ones((16, 64), np.float32), np.zeros((16, 64), np.float32))
    assert (run.grid, run.block) == ((4, 2, 1), (16, 8, 1))
    assert (run.blocks, run.threads_per_block, run.warps_per_block) == (8, 128, 4)
    assert run.program.kernel == "tile_copy"
    assert run.program.file == __file__
    assert run.registers_live > 0
