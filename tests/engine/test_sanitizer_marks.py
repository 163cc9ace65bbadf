"""What the checks build knows beyond accesses: indices that wrap or do not fit, the ends of a kernel, lanes that do not take part."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numba import cuda, float32, float64, int8, int32, int64, uint32

import solcourse as sol
from solcourse.simt import frontend, marks, optimise
from solcourse.simt.ir import Instr
from solcourse.simt.ir_text import parse_module
from solcourse.simt.overflow import overflow

FULL = 0xFFFFFFFF
N = 64
OURS = {"wrapped_index", "index_overflow", "inactive_lane", "lane_not_in_mask", "out_of_bounds", "divergent_barrier"}


def found(configured, *args, **options) -> list[tuple[str, int, int]]:
    """(kind, line, count) of the findings that this file is about."""
    return [(f.kind, f.line, f.count) for f in sol.sanitize(configured, *args, **options) if f.kind in OURS]


def ramp(n: int = N) -> np.ndarray:
    return np.arange(n, dtype=np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape or N, np.float32)


def code_of(kernel, *args, light: bool = True) -> tuple[frontend.KernelIR, str]:
    """The kernel as numba makes it, and optimised for the checks build."""
    compiled = frontend.compile_kernel(kernel, frontend.argument_types(kernel, args))
    return compiled, optimise.optimise(compiled.llvm, compiled.entry, checks=True, light=light)


def instructions(kernel, *args) -> list[Instr]:
    """The records that the checks build emits."""
    compiled, text = code_of(kernel, *args)
    function = parse_module(text, compiled.entry)
    marks.settle(function)
    overflow(function)
    return [i for block in function.blocks for i in block.instrs]


def calls(records: list[Instr], name: str) -> list[Instr]:
    return [i for i in records if i.op == "call" and i.attr[0] == name]


# ------------------------------------------------------------------------------------------------------ indices that wrap


@cuda.jit
def neighbours(x, out):
    i = cuda.grid(1)
    out[i] = x[i - 3] + x[-1]  # computed, and a literal


def test_a_computed_negative_index_is_told_and_a_literal_one_is_not(line_of):
    (finding,) = sol.sanitize(neighbours[1, N], ramp(), zeros())
    assert (finding.kind, finding.severity, finding.line) == ("wrapped_index", "warning", line_of(neighbours, "x[i - 3]"))
    assert (finding.count, finding.thread) == (3, (0, 0, 0))  # threads 0, 1, 2 have the indices -3, -2, -1
    assert "index -3" in finding.message
    assert str(N - 3) in finding.message


@cuda.jit
def read_and_written(out):
    i = cuda.grid(1)
    out[i - 1] += 1


def test_one_index_is_told_once_though_it_is_read_and_written(line_of):
    assert found(read_and_written[1, N], zeros()) == [("wrapped_index", line_of(read_and_written, "out[i - 1]"), 1)]


@cuda.jit
def guarded(x, out):
    i = cuda.grid(1)
    if i >= 3:
        out[i] = x[i - 3]


@cuda.jit
def ends_of_a_slice(x, out):
    i = cuda.grid(1)
    first = i - 70  # an end of a slice, which has no element of its own
    part = x[first:]
    out[i] = part[0] + x[1:-2][i - i] + x[first:-1][1]


@cuda.jit
def remainders(x, out):
    """Python's `%` and `//` of negative numbers, made of selections that look much like a wrap."""
    i = cuda.grid(1)
    out[i] = x[(i - 3) % x.size] + x[(i - 3) // x.size + 1] + x[abs(i - 3)] + x[max(i - 3, 0)]


@cuda.jit
def unsigned(x, out):
    i = uint32(cuda.grid(1))
    out[i] = x[i]


@pytest.mark.parametrize("kernel", [guarded, ends_of_a_slice, remainders, unsigned], ids=lambda k: k.__name__)
def test_no_index_of_these_is_negative(kernel):
    assert found(kernel[1, N], ramp(), zeros()) == []


@cuda.jit
def far_before(x, out):
    i = cuda.grid(1)
    out[i] = x[i - 100]


def test_an_index_that_is_outside_after_wrapping_is_out_of_bounds_only(line_of):
    assert found(far_before[1, 32], ramp(), zeros(32)) == [("out_of_bounds", line_of(far_before, "i - 100"), 32)]


@cuda.jit(device=True)
def before(x, i):
    return x[i - 1]


@cuda.jit
def of_a_function(x, out):
    i = cuda.grid(1)
    out[i] = before(x, i)


def test_a_wrap_in_a_device_function_is_at_its_line_there(line_of):
    assert found(of_a_function[1, N], ramp(), zeros()) == [("wrapped_index", line_of(before, "x[i - 1]"), 1)]


@cuda.jit
def of_a_matrix(a, out):
    y, x = cuda.threadIdx.y, cuda.threadIdx.x
    out[y, x] = a[y - 1, x]


@cuda.jit
def of_a_tuple(a, out):
    y, x = cuda.threadIdx.y, cuda.threadIdx.x
    at = (y - 1, x)
    out[y, x] = a[at]


@cuda.jit
def of_a_row(a, out):
    y, x = cuda.threadIdx.y, cuda.threadIdx.x
    row = a[y - 1]  # the row that the index means
    out[y, x] = row[x]


@cuda.jit
def of_a_short_index(a, out):
    y, x = cuda.threadIdx.y, cuda.threadIdx.x
    out[y, x] = a[int32(y - 1), x]  # 32 bits, and sign-extended


@cuda.jit
def of_a_shared_array(a, out):
    tile = cuda.shared.array((4, 8), float32)
    y, x = cuda.threadIdx.y, cuda.threadIdx.x
    tile[y, x] = a[y, x]
    cuda.syncthreads()
    out[y, x] = tile[y - 1, x]


@cuda.jit
def of_a_local_array(a, out):
    y, x = cuda.threadIdx.y, cuda.threadIdx.x
    mine = cuda.local.array(4, float32)
    for k in range(4):
        mine[k] = a[k, x]
    out[y, x] = mine[y - 1]


@cuda.jit
def of_an_atomic(a, out):
    y, x = cuda.threadIdx.y, cuda.threadIdx.x
    cuda.atomic.add(out, (y - 1, x), a[y, x])


MATRICES = [of_a_matrix, of_a_tuple, of_a_row, of_a_short_index, of_a_shared_array, of_a_local_array, of_an_atomic]


@pytest.mark.parametrize("kernel", MATRICES, ids=lambda k: k.__name__)
def test_every_kind_of_access_tells_that_its_index_wraps(line_of, kernel):
    """Row -1 is what the 8 threads with y = 0 ask for, and they get the last one."""
    a, out = ramp(32).reshape(4, 8), zeros(4, 8)
    where = {of_a_tuple: "a[at]", of_a_local_array: "mine[y - 1]", of_a_short_index: "int32(y - 1)"}.get(kernel, "y - 1")
    assert found(kernel[1, (8, 4)], a, out) == [("wrapped_index", line_of(kernel, where), 8)]


@pytest.mark.parametrize("kernel", [neighbours, ends_of_a_slice, remainders], ids=lambda k: k.__name__)
def test_marks_leave_every_access_where_it_was(monkeypatch, kernel):
    args = ramp(), zeros()

    def accesses() -> Counter:
        return Counter((i.op, i.line, i.type) for i in instructions(kernel, *args) if i.op in ("load", "store"))

    with_marks = accesses()
    monkeypatch.setattr(marks, "mark", lambda text, entry: text)
    assert with_marks
    assert accesses() == with_marks


# ---------------------------------------------------------------------------------------------------- indices that do not fit


@cuda.jit
def narrowed(x, out, step):
    i = int32(cuda.grid(1) * step)
    if i < x.size:  # a negative number passes
        out[0] = x[i]


def test_an_index_that_does_not_fit_into_32_bits_is_told_with_what_it_became(line_of):
    (finding,) = [f for f in sol.sanitize(narrowed[1, 32], ramp(), zeros(), 1 << 28) if f.kind == "index_overflow"]
    assert (finding.severity, finding.line) == ("error", line_of(narrowed, "out[0] = x[i]"))
    # 8 << 28 is 2**31, which becomes -2**31; threads 8 .. 15 are negative, thread 16 (2**32) is 0 again, and so on: 24 .. 31, too;
    # from thread 16 on even those that are inside are not what was meant; of 17 .. 23 none is below 64
    assert (finding.thread, finding.count) == ((8, 0, 0), 8 + 1 + 8)
    assert str(-(2**31)) in finding.message


def test_the_middle_of_a_large_grid_shows_that_32_bits_are_too_few(line_of):
    """22,121,216 blocks of 256 threads: 5.7e9 indices, and the middle one is above 2**31."""

    @cuda.jit
    def whole_grid(out, n):
        i = int32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        if i < n:
            out[i] = 1

    kinds = {f.kind: f.line for f in sol.sanitize(whole_grid[22_121_216, 256], zeros(), N, sample_blocks=1)}
    assert kinds["index_overflow"] == line_of(whole_grid, "out[i] = 1")


@cuda.jit
def along_a_loop(x, out, step):
    i = int32(0)
    for _ in range(4):
        if i >= 0:
            out[cuda.threadIdx.x] += x[i]
        i = int32(i + step)


def test_an_overflow_is_remembered_along_a_loop(line_of):
    """The index is 0, -2**31, 0, -2**31: it does not fit in the second turn, and the third one, where the sum fits, rests on that."""
    assert found(along_a_loop[1, 32], ramp(), zeros(32), 1 << 31) == [("index_overflow", line_of(along_a_loop, "x[i]"), 32)]
    assert found(along_a_loop[1, 32], ramp(), zeros(32), 2) == []


@cuda.jit
def mixed(x, out, seed):
    """A hash, numbers that come from a table, remainders and unsigned numbers are meant as they are."""
    i = cuda.grid(1)
    h = int32(i * 2654435761 + seed)
    out[i] = x[h & 63] + x[h % x.size] + x[int32(x[i])] + x[uint32(i + seed) >> uint32(26)]


@cuda.jit
def fits_in_the_end(x, out, step):
    i = cuda.grid(1)
    out[i] = x[int32(i * step - i * (step - 1))]  # i, though neither product fits


@cuda.jit
def counts_in_32_bits(x, out, n):
    i = int32(cuda.grid(1))
    for k in range(int32(n)):
        out[i] = x[k]


@pytest.mark.parametrize("kernel", [mixed, fits_in_the_end, counts_in_32_bits], ids=lambda k: k.__name__)
def test_these_indices_are_what_was_meant(kernel):
    last = N if kernel is counts_in_32_bits else 1 << 40
    assert found(kernel[1, N], ramp(), zeros(), last) == []


@cuda.jit
def in_64_bits(a, out):
    y, x = cuda.grid(2)
    if y < a.shape[0] and x < a.shape[1]:
        out[y * a.shape[1] + x] = a[y, x] + a[cuda.threadIdx.x, cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y]


def test_indices_of_64_bits_get_no_instruction_more():
    compiled, text = code_of(in_64_bits, zeros(8, 8), zeros())
    function = parse_module(text, compiled.entry)
    marks.settle(function)
    before = [list(block.instrs) for block in function.blocks]
    overflow(function)
    assert [block.instrs for block in function.blocks] == before


@cuda.jit
def bytes_as_indices(x, out):
    i = int8(cuda.grid(1) * 2)
    out[0] = x[i]


def test_8_bits_hold_127(line_of):
    """Threads 0 .. 63 have the indices 0 .. 126, thread 64 has 128 and reads x[-128], and so on."""
    kinds = {kind: (line, count) for kind, line, count in found(bytes_as_indices[1, 96], ramp(256), zeros())}
    assert kinds["index_overflow"] == (line_of(bytes_as_indices, "x[i]"), 32)


@cuda.jit
def stores_small_numbers(x, out):
    i = cuda.grid(1)
    lane = int32(i) % 32
    small = int8(i * 7)
    out[int64(i)] = float32(small) + x[int32(i)] + lane


def test_truncations_compute_what_they_did(launch):
    """The marks keep LLVM from narrowing; the numbers are the same."""
    out = zeros()
    assert found(stores_small_numbers[1, N], ramp(), out) == []
    launch(stores_small_numbers[1, N], ramp(), out)
    i = np.arange(N)
    np.testing.assert_array_equal(out, (i * 7).astype(np.int8).astype(np.float32) + i + i % 32)


# ------------------------------------------------------------------------------------------------------ the ends of a kernel


SOURCE = """
    @decorated(
        1)
    def kernel(x):
        if x: return
        for k in range(3):
            if k:
                return
        def inner():
            return 1
        f = lambda: 1
        if x > 1:
            x = 2
            return
        {last}
"""


@pytest.mark.parametrize(("last", "first_line"), [("return", 2), ("x = 3", 2), ("return", 4)])
def test_returns_before_the_end_are_those_of_the_function_itself(tmp_path, last, first_line):
    """Lines 5, 8 and 14; not the inner function's, and not a `return` that just ends the kernel."""
    path = tmp_path / f"source_{last[:1]}.py"
    path.write_text(SOURCE.format(last=last))
    assert marks.explicit_returns(str(path), first_line) == {5, 8, 14}


def test_a_function_without_source_has_no_known_returns():
    assert marks.explicit_returns("<nowhere>", 1) is None


@cuda.jit
def two_ends(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    if i > 3:
        out[i] = x[i]
    else:
        out[i] = 1


def test_only_the_end_of_the_kernel_is_marked_and_each_way_to_it_at_its_line(line_of):
    lines = {i.line for i in calls(instructions(two_ends, ramp(), zeros()), marks.RETURNED)}
    assert lines
    assert line_of(two_ends, "return") not in lines
    assert lines <= {line_of(two_ends, text) for text in ("if i > 3", "out[i] = x[i]", "out[i] = 1")}


@cuda.jit
def barrier_after_a_return(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    cuda.syncthreads()
    out[i] = x[i]


@cuda.jit
def barrier_in_a_branch(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.syncthreads()
        out[i] = x[i]


def test_a_return_before_a_barrier_is_no_passing_by(line_of):
    assert found(barrier_after_a_return[1, 64], ramp(40), zeros()) == []
    ((kind, line, _),) = found(barrier_in_a_branch[1, 64], ramp(40), zeros())
    assert (kind, line) == ("divergent_barrier", line_of(barrier_in_a_branch, "syncthreads"))


# ------------------------------------------------------------------------------------------------ lanes that do not take part


@cuda.jit
def warp_sum(x, out):
    i = cuda.grid(1)
    v = float64(x[i])  # of 64 bits: two shuffles each, told once
    v += cuda.shfl_down_sync(FULL, v, 16)
    v += cuda.shfl_down_sync(FULL, v, 8)
    v += cuda.shfl_down_sync(FULL, v, 4)
    v += cuda.shfl_down_sync(FULL, v, 2)
    v += cuda.shfl_down_sync(FULL, v, 1)
    out[i] = v


def test_a_shuffle_from_a_lane_that_the_block_never_had_is_told(line_of):
    assert found(warp_sum[2, 32], ramp(), zeros()) == []
    told = sol.sanitize(warp_sum[1, 48], ramp(48), zeros(48))
    assert {f.kind for f in told} == {"inactive_lane"}
    counts = {f.line - line_of(warp_sum, "v, 16"): f.count for f in told}
    assert counts == {0: 16, 1: 8, 2: 4, 3: 2, 4: 1}  # lane k of 16 reads k + 16, the upper 8 read k + 8, ...
    assert told[0].thread == (32, 0, 0)
    assert "lane 16" in told[0].message


@cuda.jit
def shuffle_in_a_branch(x, out):
    i = cuda.grid(1)
    v = x[i]
    if i < 16:
        v = cuda.shfl_xor_sync(FULL, v, 1)  # partners are here, but the mask names more
        v = cuda.shfl_xor_sync(FULL, v, 16)  # partners are not
    out[i] = v


def test_a_mask_that_names_lanes_of_the_other_branch_is_told(line_of):
    expected = [("inactive_lane", line_of(shuffle_in_a_branch, text), 16) for text in ("v, 1)", "v, 16)")]
    assert found(shuffle_in_a_branch[1, 32], ramp(32), zeros(32)) == expected


@cuda.jit
def masks_of_who_is_there(x, out):
    i = cuda.grid(1)
    if i % 3 == 0:
        mask = cuda.activemask()
        v = cuda.shfl_sync(mask, x[i], i % 32 // 3 * 3)
        same = cuda.match_any_sync(mask, i % 2)
        cuda.syncwarp(same)
        v += cuda.ballot_sync(same, True) > 0
        out[i] = v


@cuda.jit
def half_a_warp(x, out):
    """A block of 48 threads: half of its last warp does not exist, and the full mask names it."""
    i = cuda.threadIdx.x
    bits = cuda.ballot_sync(FULL, x[i] > 3)
    cuda.syncwarp()
    if cuda.all_sync(FULL, x[i] >= 0) and cuda.any_sync(FULL, bits > 0):
        out[i] = cuda.popc(bits)


@cuda.jit
def after_a_return(x, out):
    i = cuda.threadIdx.x
    if i >= 20:
        return
    cuda.syncwarp()
    out[i] = cuda.popc(cuda.ballot_sync(FULL, True)) + cuda.shfl_sync(FULL, x[i], 19)


@cuda.jit
def a_meeting_in_each_branch(x, out):
    i = cuda.threadIdx.x
    if i < 16:
        out[i] = x[i]
        cuda.syncwarp()
    else:
        out[i] = -x[i]
        cuda.syncwarp()
    x[i] = out[i ^ 16]  # of the other branch


@pytest.mark.parametrize("kernel", [masks_of_who_is_there, half_a_warp, after_a_return], ids=lambda k: k.__name__)
def test_masks_that_name_whoever_can_come_are_clean(kernel):
    assert found(kernel[1, 48 if kernel is half_a_warp else 32], ramp(), zeros()) == []


def test_a_syncwarp_in_each_branch_is_one_meeting():
    """Each mask names the lanes of the other branch, too, and what they wrote is ordered by it."""
    assert list(sol.sanitize(a_meeting_in_each_branch[1, 32], ramp(32), zeros(32))) == []


@cuda.jit
def syncwarp_in_a_branch(x, out):
    i = cuda.threadIdx.x
    if i < 16:
        out[i] = x[i]
        cuda.syncwarp()
    out[i] += 1


@cuda.jit
def ballot_in_an_uneven_loop(x, out):
    i = cuda.threadIdx.x
    for k in range(i // 16 + 1):
        out[i] += cuda.popc(cuda.ballot_sync(FULL, x[k] > 0))
    out[i] += 1


@cuda.jit
def reads_who_has_left(x, out):
    i = cuda.threadIdx.x
    if i >= 20:
        return
    out[i] = cuda.shfl_sync(FULL, x[i], 25)


@pytest.mark.parametrize(
    ("kernel", "text", "count"),
    [(syncwarp_in_a_branch, "cuda.syncwarp", 16), (ballot_in_an_uneven_loop, "cuda.ballot", 16), (reads_who_has_left, "25)", 20)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_lanes_that_will_not_come_are_missed(line_of, kernel, text, count):
    assert found(kernel[1, 32], ramp(32), zeros(32)) == [("inactive_lane", line_of(kernel, text), count)]


@cuda.jit
def not_of_the_mask(x, out):
    i = cuda.threadIdx.x
    out[i] = cuda.popc(cuda.ballot_sync(0xFFFF, x[i] >= 0))


def test_a_lane_that_its_own_mask_does_not_name_is_told(line_of):
    (finding,) = [f for f in sol.sanitize(not_of_the_mask[1, 32], ramp(32), zeros(32)) if f.kind in OURS]
    assert (finding.kind, finding.line, finding.count) == ("lane_not_in_mask", line_of(not_of_the_mask, "0xFFFF"), 16)
    assert finding.thread == (16, 0, 0)


@cuda.jit
def keeps_its_own(x, out):
    i = cuda.threadIdx.x
    out[i] = cuda.shfl_sync(0xFFFF, x[i], i)


def test_a_lane_that_reads_itself_reads_from_nobody_else(line_of):
    """Lanes 16 .. 31 are not in their mask, which is told once."""
    assert found(keeps_its_own[1, 32], ramp(32), zeros(32)) == [("lane_not_in_mask", line_of(keeps_its_own, "0xFFFF"), 16)]
