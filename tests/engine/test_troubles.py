"""What people run into with numba.cuda and its simulator, by kind: the engine computes it as a GPU would, or says what it is.

Each test is one kind of public trouble, in a kernel of our own. Races, barriers and uninitialised memory: test_sanitizer_troubles.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32, from_dtype, int32

import solcourse as sol

TILE = 16


def refused(kind: type[Exception], launch, *args) -> str:
    """What the engine says when it refuses a launch."""
    with pytest.raises(kind) as caught:
        sol.run(launch, *args)
    return str(caught.value)


# ------------------------------------------------------------------------------------------------------------ out of bounds
@cuda.jit
def unguarded(x):
    x[cuda.grid(1)] = 1


@cuda.jit
def half_guarded(a, total):
    x, y = cuda.grid(2)
    if x >= a.shape[0] and y >= a.shape[1]:  # meant: or
        return
    cuda.atomic.add(total, 0, a[x, y])


@cuda.jit
def member_unguarded(pair):
    i = cuda.grid(1)
    pair[1][i] = pair[0][i]


def test_a_grid_larger_than_the_array_is_an_error_though_a_gpu_is_silent():
    said = refused(sol.OutOfBounds, unguarded[2, 32], np.zeros(40))
    assert "thread (8, 0, 0) of block (1, 0, 0) writes x[40], but the array has 40 elements" in said
    assert "A GPU would not have said anything" in said


def test_a_guard_with_and_instead_of_or_is_told_with_both_indices():
    # columns 20-31 of 16 rows do not exist; a[0, 20] is a[1, 0] in memory, and a[15, 20] is the first beyond it
    said = refused(sol.OutOfBounds, half_guarded[(4, 2), (4, 16)], np.zeros((16, 20)), np.zeros(1))
    assert "thread (3, 4, 0) of block (3, 1, 0) reads a[15, 20], but the array has shape (16, 20)" in said
    assert "The guard at line" in said
    assert "`x >= a.shape[0] and y >= a.shape[1]`, lets it through: `and` should be `or`" in said


def test_an_array_in_a_tuple_is_told_by_its_place_and_size():
    said = refused(sol.OutOfBounds, member_unguarded[1, 64], (np.zeros(64), np.zeros(30)))
    assert "thread (30, 0, 0) of block (0, 0, 0) writes pair[1][30], but the array has 30 elements" in said


# -------------------------------------------------------------------------------------------------------------------- launch
@cuda.jit
def fill(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = i


def test_too_many_registers_are_told_with_the_sums_and_both_ways_out():
    with pytest.raises(sol.LaunchError) as caught:
        sol.profile(fill[8, 1024], np.zeros(8192), registers=80)
    # 80 x 1024 = 81920; 65536 / 80 / 32 = 25.6 warps, a multiple of 4: 24 x 32 = 768; 65536 / 1024 = 64
    assert "80 registers x 1024 threads = 81920 > 65536 registers" in str(caught.value)
    assert "blocks of at most 768 threads, or compile with max_registers=64" in str(caught.value)
    assert sol.profile(fill[8, 768], np.zeros(8192), registers=80).registers == 80  # the ways out lead out
    assert sol.profile(fill[8, 1024], np.zeros(8192), registers=64).registers == 64


@pytest.mark.parametrize("blocks", [256, 64])
def test_grid_and_block_swapped_are_suspected(blocks: int):
    (finding,) = sol.sanitize(fill[blocks, 3], np.zeros(3))
    assert (finding.kind, finding.severity) == ("launch_shape", "warning")
    assert f"did you mean fill[3, {blocks}]?" in finding.hint
    advice = " ".join(a.text for a in sol.profile(fill[blocks, 3], np.zeros(3)).advice)
    assert "Were grid and block swapped?" in advice


def test_a_swap_that_no_gpu_accepts_is_refused_with_the_right_order():
    assert "did you mean fill[4096, 256]?" in refused(sol.LaunchError, fill[256, 4096], np.zeros(3))


def test_a_launch_without_dimensions_is_told_the_syntax():
    assert "write fill[blocks_per_grid, threads_per_block]" in refused(sol.LaunchError, fill, np.zeros(3))
    with sol.use_engine(), pytest.raises(ValueError, match="launch configuration was not specified"):
        fill(np.zeros(3))


# --------------------------------------------------------------------------------------------------------------------- types
@cuda.jit
def size_at_run_time(x, n):
    s = cuda.shared.array(n, float32)
    s[0] = x[0]


@cuda.jit
def size_of_argument(x):
    s = cuda.local.array(x.size, float32)
    s[0] = x[0]


@cuda.jit
def size_by_expression(x):
    s = cuda.shared.array((TILE, TILE + 1), float32)
    s[0, 0] = x[0]


@cuda.jit
def unknown_name(input_array):
    i = cuda.grid(1)
    if i < input_aray.size:  # noqa: F821
        input_array[i] += 1


@pytest.mark.parametrize(
    ("kernel", "args", "text"),
    [
        (size_at_run_time, (4,), "cuda.shared.array(n"),
        (size_of_argument, (), "cuda.local.array(x.size"),
        (size_by_expression, (), "TILE + 1"),
    ],
)
def test_array_sizes_the_compiler_does_not_know_are_refused_as_on_a_gpu(kernel, args: tuple, text: str, line_of):
    said = refused(sol.KernelTypeError, kernel[1, 1], np.zeros(3, np.float32), *args)
    assert f"line {line_of(kernel, text)}" in said
    assert "must be a compile-time constant: a literal, a global or a closure variable" in said
    assert "an expression such as N + 2" in said
    assert "or 0, for dynamic shared memory" in said


def test_a_name_that_does_not_exist_is_told_with_the_nearest(line_of):
    said = refused(sol.KernelTypeError, unknown_name[1, 32], np.zeros(3))
    assert f"line {line_of(unknown_name, 'input_aray.size')}" in said
    assert "Did you mean 'input_array'?" in said


# ------------------------------------------------------------------------------------------------------ dynamic shared memory
@cuda.jit
def slices_of_dynamic(x):
    whole = cuda.shared.array(0, float32)
    first, second = whole[0:1], whole[1:2]
    first[0] = 1
    second[0] = 2
    x[0], x[1], x[2] = first[0], second[0], whole.size


def test_slices_of_dynamic_shared_memory_do_not_alias():
    x = np.zeros(3, np.float32)
    sol.run(slices_of_dynamic[1, 1, 0, 8], x)
    assert x.tolist() == [1, 2, 2]


@pytest.mark.parametrize("given", [0, 4])
def test_too_little_dynamic_shared_memory_is_told_with_bytes_and_syntax(given: int):
    said = refused(sol.OutOfBounds, slices_of_dynamic[1, 1, 0, given], np.zeros(3, np.float32))
    assert f"{given // 4} elements in the {given} bytes of dynamic shared memory of this launch" in said
    assert f"slices_of_dynamic[grid, block, stream, bytes] gives each block that many bytes; at least {given + 4} are needed" in said


# -------------------------------------------------------------------------------------------------- where the simulator differs
FROZEN = 4


def read_frozen(x):
    s = cuda.local.array(FROZEN, int32)
    x[0] = s.size
    x[1] = FROZEN


def test_a_global_is_frozen_when_the_kernel_is_compiled_not_when_it_is_decorated(monkeypatch: pytest.MonkeyPatch):
    kernel = cuda.jit(read_frozen)
    monkeypatch.setitem(globals(), "FROZEN", 6)
    x, y, z = np.zeros(2), np.zeros(2), np.zeros(2)
    sol.run(kernel[1, 1], x)
    monkeypatch.setitem(globals(), "FROZEN", 9)
    with pytest.warns(UserWarning, match="FROZEN is 9 now, but read_frozen was compiled with FROZEN = 6 and keeps it") as said:
        sol.run(kernel[1, 1], y)
    assert said[0].filename == __file__
    sol.run(kernel[1, 1], z)  # said once: a second warning would be an error here
    assert (x.tolist(), y.tolist(), z.tolist()) == ([6, 6], [6, 6], [6, 6])


def test_a_changed_number_is_told_in_closures_and_device_functions_too():
    scale = 2

    @cuda.jit(device=True)
    def scaled(v):
        return scale * v

    @cuda.jit
    def kernel(x):
        x[0] = scaled(x[0]) + x.size  # size is no variable

    x = np.ones(1)
    sol.run(kernel[1, 1], x)
    scale = 2
    sol.run(kernel[1, 1], x)
    scale = 5
    with pytest.warns(UserWarning, match="scale is 5 now, but kernel was compiled with scale = 2"):
        sol.run(kernel[1, 1], x)
    assert x[0] == ((1 * 2 + 1) * 2 + 1) * 2 + 1  # 15


CELL = np.dtype([("n", np.int32), ("total", np.float32)], align=True)
CELL_TYPE = from_dtype(CELL)


@cuda.jit
def records_in_shared_memory(x, out):
    s = cuda.shared.array(1, CELL_TYPE)
    if cuda.threadIdx.x == 0:
        s[0].n = 0
        s[0].total = 0
    cuda.syncthreads()
    cuda.atomic.add(s["n"], 0, 1)
    cuda.atomic.add(s["total"], 0, x[cuda.grid(1)])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = s[0]


def test_records_live_in_shared_memory():
    out = np.zeros(2, CELL)
    sol.run(records_in_shared_memory[2, 64], np.arange(128, dtype=np.float32), out)
    assert out["n"].tolist() == [64, 64]
    assert out["total"].tolist() == [63 * 64 / 2, (64 + 127) * 32]


# ------------------------------------------------------------------------------------------------------------------- overflow
@cuda.jit
def indices(out):
    if cuda.threadIdx.x == 0 and cuda.blockIdx.x == cuda.gridDim.x // 2:
        out[0] = cuda.grid(1)
        out[1] = cuda.blockIdx.x * cuda.blockDim.x
        out[2] = int32(cuda.blockIdx.x * cuda.blockDim.x)


def test_indices_beyond_2_to_the_31_need_no_five_billion_threads():
    out = np.zeros(3, np.int64)
    report = sol.profile(indices[22121216, 256], out, sample_blocks=2)  # from the middle of the grid
    assert report.sampled_blocks == 2
    start = 22121216 // 2 * 256
    assert start > 2**31
    # numba multiplies two int32 as int64; what a kernel cuts to 32 bits wraps around as on the GPU
    assert out.tolist() == [start, start, start - 2**32]


# -------------------------------------------------------------------------------------------------------------------- atomics
@cuda.jit
def add_ones(x):
    cuda.atomic.add(x, 0, 1)


@cuda.jit
def few_bins(x, bins):
    cuda.atomic.add(bins, x[cuda.grid(1)] % bins.size, 1)


def test_a_float32_sum_of_ones_sticks_at_2_to_the_24():
    single, double = np.full(1, 2**24 - 3, np.float32), np.full(1, 2.0**24 - 3)
    sol.run(add_ones[1, 64], single)
    sol.run(add_ones[1, 64], double)
    assert (single[0], double[0]) == (2**24, 2**24 + 61)


def test_contended_atomics_are_told_with_their_number_and_a_way_out():
    n = 1024 * 256
    crowded = sol.profile(few_bins[1024, 256], np.arange(n), np.zeros(2, np.int64))
    spread = sol.profile(few_bins[1024, 256], np.arange(n), np.zeros(n, np.int64))
    # a warp adds its 16 lanes of a bin at once: 1024 x 8 warps meet at each of the two
    assert any(a.text.startswith("8,192 atomic operations meet at one address") and "shared memory" in a.text for a in crowded.advice)
    assert not any("meet at one address" in a.text for a in spread.advice)
    assert crowded.bounds["atomic"] > 5 * spread.bounds["atomic"]
    assert crowded.time_s > spread.time_s


# ----------------------------------------------------------------------------------------------------------- division by zero
@cuda.jit
def divide(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] / y[i]


def test_division_by_zero_is_infinity_and_every_thread_goes_on():
    out = np.zeros(5)
    sol.run(divide[1, 32], np.array([1.0, -1.0, 0.0, 1.0, 3.0]), np.array([0.0, 0.0, 0.0, -0.0, 2.0]), out)
    np.testing.assert_array_equal(out, [np.inf, -np.inf, np.nan, -np.inf, 1.5])


# ------------------------------------------------------------------------------------------------------------ two-word banks
@cuda.jit
def doubles_in_shared_memory(out):
    s = cuda.shared.array(64, np.float64)
    t = cuda.threadIdx.x
    s[t] = t
    cuda.syncthreads()
    out[t] = s[t]


def test_float64_in_shared_memory_takes_two_wavefronts_and_has_no_conflict(launch):
    counts = launch(doubles_in_shared_memory[1, 32], np.zeros(32)).counts
    # 32 lanes x 8 bytes = 256 bytes through 128 bytes a wavefront
    assert (counts.shared_store.wavefronts, counts.shared_store.bank_conflicts) == (2, 0)
    assert (counts.shared_load.wavefronts, counts.shared_load.bank_conflicts) == (2, 0)


# -------------------------------------------------------------------------------------------------------- a course without GPUs
def test_a_launch_without_a_gpu_works_after_one_line():
    x = np.zeros(64)
    with sol.use_engine():
        fill[2, 32](x)
    assert x.tolist() == list(range(64))


def test_copies_around_every_launch_are_told_in_bytes():
    with sol.use_engine(profile=True) as engine:
        host = np.zeros(1 << 17)
        for _ in range(3):
            fill[512, 256](host)
    assert "numba copies them to the GPU and back around every launch, 3.15 MB" in " ".join(str(engine.launches).split())
    with sol.use_engine(profile=True) as engine:
        fill[512, 256](cuda.to_device(host))
    assert "copies them" not in str(engine.launches)
