"""The Trace, word by word, for kernels small enough to write it down by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numba import cuda, float32

from solcourse.kernels.copy import copy, copy_offset, copy_strided
from solcourse.simt.records import ACCESS_KINDS


@dataclass(frozen=True)
class Request:
    kind: str
    array: str
    warp: int
    lines: dict[int, int]  # line index -> mask of the 4-byte words touched


def decode(run) -> dict[int, list[Request]]:
    """block -> its requests in order; checks the layout of every word on the way."""
    trace, blocks = run.trace, {}
    assert trace.offsets[0] == 0
    assert trace.offsets[-1] == trace.words.size
    for i, block in enumerate(trace.blocks):
        words = [int(w) for w in trace.words[trace.offsets[i] : trace.offsets[i + 1]]]
        requests, at = [], 0
        while at < len(words):
            header = words[at]
            assert header >> 63 == 1
            count = header & 0xFFFF
            site = run.program.sites[header >> 32 & 0x7FFFFFFF]
            lines = words[at + 1 : at + 1 + count]
            assert len(lines) == count > 0
            assert all(word >> 63 == 0 for word in lines)
            touched = {word >> 32: word & 0xFFFFFFFF for word in lines}
            assert len(touched) == count
            requests.append(Request(site.kind, site.array, header >> 16 & 0xFFFF, touched))
            at += 1 + count
        blocks[int(block)] = requests
    return blocks


def test_a_copy_leaves_a_load_and_a_store_of_one_line_per_warp(launch):
    """Two blocks of two warps; 32 float32 fill a line of 128 bytes: mask of 32 ones. Line 2b + w of each array."""
    blocks = decode(launch(copy[2, 64], np.ones(128, np.float32), np.zeros(128, np.float32)))
    assert list(blocks) == [0, 1]
    src, dst = min(blocks[0][0].lines), None
    for b, requests in blocks.items():
        assert len(requests) == 4
        for w in (0, 1):
            load, store = (r for r in requests if r.warp == w)
            assert (load.kind, load.array, store.kind, store.array) == ("global_load", "src", "global_store", "dst")
            assert load.lines == {src + 2 * b + w: 0xFFFFFFFF}
            dst = min(store.lines) if dst is None else dst
            assert store.lines == {dst + 2 * b + w: 0xFFFFFFFF}
    assert src % 2 == dst % 2 == 0  # 256-byte aligned: lines start even
    assert abs(src - dst) >= 4  # 512 bytes each, apart


def test_a_stride_of_2_touches_every_other_word_of_two_lines(launch):
    (requests,) = decode(launch(copy_strided[1, 32], np.ones(64, np.float32), np.zeros(32, np.float32), 2)).values()
    load, store = requests
    first = min(load.lines)
    assert load.lines == {first: 0x55555555, first + 1: 0x55555555}
    assert list(store.lines.values()) == [0xFFFFFFFF]


def test_an_offset_of_1_leaves_one_word_in_the_next_line(launch):
    (requests,) = decode(launch(copy_offset[1, 32], np.ones(33, np.float32), np.zeros(32, np.float32), 1)).values()
    first = min(requests[0].lines)
    assert requests[0].lines == {first: 0xFFFFFFFE, first + 1: 0x00000001}


def test_lanes_that_are_off_leave_no_words(launch):
    """n = 40: warp 0 full, warp 1 eight lanes, warps 2 and 3 nothing at all."""
    (requests,) = decode(launch(copy[1, 128], np.ones(40, np.float32), np.zeros(40, np.float32))).values()
    assert sorted((r.warp, r.kind, *r.lines.values()) for r in requests) == [
        (0, "global_load", 0xFFFFFFFF),
        (0, "global_store", 0xFFFFFFFF),
        (1, "global_load", 0xFF),
        (1, "global_store", 0xFF),
    ]


@pytest.mark.parametrize(
    ("dtype", "masks"),
    [
        (np.float64, [0xFFFFFFFF, 0xFFFFFFFF]),  # 32 * 8 bytes = two lines
        (np.int16, [0x0000FFFF]),  # 64 bytes = 16 words
        (np.int8, [0x000000FF]),  # 32 bytes = 8 words
    ],
)
def test_masks_are_in_words_of_4_bytes(launch, dtype, masks):
    (requests,) = decode(launch(copy[1, 32], np.ones(32, dtype), np.zeros(32, dtype))).values()
    for request in requests:
        assert list(request.lines.values()) == masks


@cuda.jit
def three_steps(x, y, bins):
    cache = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    cache[t] = x[t]
    cuda.syncthreads()
    for k in range(3):
        y[t + 32 * k] = cache[31 - t] + k
    cuda.atomic.add(bins, 0, 1)


def test_the_order_is_the_program_order_and_shared_memory_is_not_in_it(launch):
    run = launch(three_steps[1, 32], np.ones(32, np.float32), np.zeros(96, np.float32), np.zeros(1, np.int32))
    (requests,) = decode(run).values()
    assert [(r.kind, r.array) for r in requests[:4]] == [("global_load", "x")] + [("global_store", "y")] * 3
    first = min(requests[1].lines)
    assert [r.lines for r in requests[1:4]] == [{first + k: 0xFFFFFFFF} for k in range(3)]
    assert [r.kind for r in requests[4:]] in ([], ["global_atomic"])
    assert all(r.kind in ACCESS_KINDS and not r.kind.startswith("shared") for r in requests)


def test_the_trace_holds_every_request_that_was_counted(launch):
    """Requests and distinct sectors of the Trace are the counters' own."""
    run = launch(copy_strided[4, 100], np.ones(1200, np.float32), np.zeros(400, np.float32), 3)
    assert run.trace.blocks.tolist() == [0, 1, 2, 3]
    for kind in ("global_load", "global_store"):
        requests = [r for block in decode(run).values() for r in block if r.kind == kind]
        counted = getattr(run.counts, kind)
        assert len(requests) == counted.requests
        sectors = sum(bool(mask >> 8 * s & 0xFF) for r in requests for mask in r.lines.values() for s in range(4))
        assert sectors == counted.sectors


def test_a_long_trace_is_bounded_by_whole_blocks(launch):
    """Beyond the bound blocks are left out; those that are in are whole, ascending and contiguous."""
    n = 1 << 22
    run = launch(copy[n // 256, 256], np.zeros(n, np.float32), np.zeros(n, np.float32))
    blocks = run.trace.blocks
    assert 0 < blocks.size <= n // 256
    assert (np.diff(blocks) == 1).all()
    assert run.trace.words.nbytes < 1 << 28
    assert (np.diff(run.trace.offsets) == 8 * 2 * 2).all()  # 8 warps, load and store, header and one line each
    rows = run.warp_executions  # of the first of these blocks only, where there are many
    assert 0 < rows.shape[0] <= blocks.size
    assert rows.shape[1:] == (8, len(run.program.blocks))
    assert (rows[:, :, 0] == 1).all()  # every warp enters once


def test_block_executions_are_the_sum_over_warps(launch):
    run = launch(copy[5, 100], np.ones(450, np.float32), np.zeros(450, np.float32))
    assert run.warp_executions.shape == (5, 4, len(run.program.blocks))
    np.testing.assert_array_equal(run.warp_executions.sum((0, 1)), run.block_executions)
    assert run.block_executions[0] == 5 * 4  # every warp enters


@cuda.jit
def walks_far(x, out):
    t = cuda.threadIdx.x
    total = x[t]
    for k in range(1, 200):
        total += x[32 * k + t]
    out[t] = total


def test_a_first_block_longer_than_the_bound_is_cut_at_a_whole_request(launch, monkeypatch):
    """200 loads and a store of one line each take 2 words: 402. Of 101 words, 50 requests fit whole: 100 words."""
    from solcourse.simt import recording

    monkeypatch.setattr(recording, "TRACE_WORDS", 101)
    run = launch(walks_far[1, 32], np.ones(6400, np.float32), np.zeros(32, np.float32))
    assert (run.trace.blocks.tolist(), run.trace.offsets.tolist(), len(run.trace.words)) == ([0], [0, 100], 100)


@cuda.jit
def gathers_and_broadcasts(x, index, out):
    i = cuda.grid(1)
    total = np.float32(0)
    for k in range(index.shape[0]):
        total += x[index[k, i]] + x[k] + x[7 * cuda.blockIdx.x]
    out[i] = total


@pytest.mark.parametrize("bound", [40, 333, 2_000, 12_345])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_bounded_trace_is_the_beginning_of_the_whole_one(launch, monkeypatch, rng, bound, threads):
    """Nearly every request here is a pattern of its own. Blocks are in the Trace whole as long as their words fit; the first is cut."""
    from solcourse.simt import recording

    index = rng.integers(0, 4096, (6, 64 * 40)).astype(np.int32)
    arguments = np.ones(4096, np.float32), index, np.zeros(64 * 40, np.float32)
    whole = launch(gathers_and_broadcasts[40, 64], *arguments, threads=threads).trace
    assert len(whole.blocks) == 40
    monkeypatch.setattr(recording, "TRACE_WORDS", bound)
    short = launch(gathers_and_broadcasts[40, 64], *arguments, threads=threads).trace
    fit = int((whole.offsets[1:] <= bound).sum())
    np.testing.assert_array_equal(short.words, whole.words[: len(short.words)])
    if fit:
        np.testing.assert_array_equal(short.offsets, whole.offsets[: fit + 1])
        np.testing.assert_array_equal(short.blocks, np.arange(fit))
    else:
        after = int(whole.words[len(short.words)]) & 0xFFFF  # the lines of the first request that is left out
        assert len(short.words) <= bound < len(short.words) + 1 + after
        np.testing.assert_array_equal(short.offsets, [0, len(short.words)])


@cuda.jit
def waits_for_the_block_before(x, index, ready, out):
    i = cuda.grid(1)
    total = np.float32(0)
    for k in range(3):
        total += x[index[k, i]]
    if cuda.threadIdx.x == 0:
        while cuda.blockIdx.x < cuda.gridDim.x - 1 and cuda.atomic.add(ready, cuda.blockIdx.x + 1, 0) == 0:
            pass
        cuda.atomic.add(ready, cuda.blockIdx.x, 1)
    cuda.syncthreads()
    for k in range(3, 6):
        total += x[index[k, i]]
    out[i] = total


@pytest.mark.parametrize("bound", [500, 2_000, 4_000])
def test_a_bounded_trace_of_blocks_that_wait_is_the_beginning_of_the_whole_one(launch, monkeypatch, rng, bound):
    """Each block waits for the one behind it, so all are suspended, half traced, before the first ends."""
    from solcourse.simt import recording

    index = rng.integers(0, 4096, (6, 32 * 20)).astype(np.int32)

    def run():
        return launch(
            waits_for_the_block_before[20, 32], np.ones(4096, np.float32), index, np.zeros(20, np.int32), np.zeros(640, np.float32)
        )

    whole = run().trace
    assert whole.blocks.tolist() == list(range(20))
    monkeypatch.setattr(recording, "TRACE_WORDS", bound)
    short = run().trace
    n = len(short.blocks)
    assert 1 <= n < 20
    assert short.blocks.tolist() == list(range(n))
    if len(short.words) == short.offsets[-1] == whole.offsets[n]:
        np.testing.assert_array_equal(short.words, whole.words[: whole.offsets[n]])
    else:  # the first block, cut
        assert n == 1
        np.testing.assert_array_equal(short.words, whole.words[: len(short.words)])
