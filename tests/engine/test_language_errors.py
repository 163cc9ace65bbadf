"""Kernels that go wrong: a message that says where, memory beside the stray access unharmed, and the next launch works."""

from __future__ import annotations

import numpy as np
import pytest
from llvmlite import ir
from numba import cuda, float32, int32, types
from numba.extending import intrinsic

from solcourse.errors import KernelError, LaunchError, OutOfBounds, RunawayKernel, UnsupportedKernel


@cuda.jit
def copy_unguarded(src, dst):
    i = cuda.grid(1)
    dst[i] = src[i]


@cuda.jit
def stray(src, dst, where, shift):
    i = cuda.grid(1)
    value = src[i]
    dst[i] = value
    if i == where:
        dst[i + shift] = value


@cuda.jit
def stray_row(a, row, column):
    x, y = cuda.grid(2)
    if x == 3 and y == 2:
        a[row, column] = 1


@cuda.jit
def stray_local(index, out):
    mine = cuda.local.array(4, int32)
    i = cuda.grid(1)
    for k in range(4):
        mine[k] = k
    out[i] = mine[index[i]]


@cuda.jit
def stray_shared(index, out):
    cache = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    cache[index[t]] = 1.0
    cuda.syncthreads()
    out[t] = cache[t]


@cuda.jit
def stray_atomic(out, at):
    cuda.atomic.add(out, at + cuda.threadIdx.x, 1)


def guarded(n: int, dtype=np.float32):
    """An array of n elements between two zones of 256 elements, and the zones."""
    buffer = np.full(n + 512, 77, dtype)
    return buffer[256 : 256 + n], np.lib.stride_tricks.as_strided(buffer, (2, 256), ((256 + n) * buffer.itemsize, buffer.itemsize))


def works_again(launch):
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    launch(copy_unguarded[2, 32], x, out)
    np.testing.assert_array_equal(out, x)


def test_message_names_kernel_line_block_thread_array_index_and_size(launch, line_of):
    src, dst = np.ones(128, np.float32), np.zeros(128, np.float32)
    with pytest.raises(OutOfBounds) as caught:
        launch(stray[4, 32], src, dst, 70, 1000)
    text = str(caught.value)
    line = line_of(stray, "dst[i + shift]")
    for part in ("stray", f"line {line}", "dst", "1070", "128", "(2, 0, 0)", "(6, 0, 0)"):  # 70 = 2 * 32 + 6
        assert part in text, f"{part!r} is missing in: {text}"
    finding = caught.value.finding
    assert finding.kind == "out_of_bounds"
    assert finding.severity == "error"
    assert (finding.line, finding.block, finding.thread) == (line, (2, 0, 0), (6, 0, 0))
    assert (finding.array, finding.index) == ("dst", 1070)
    assert caught.value.line == line
    assert caught.value.file == finding.file == __file__
    works_again(launch)


@pytest.mark.parametrize(("where", "shift"), [(127, 1), (5, 4000), (0, -300), (64, 10**9), (3, 2**40)])
def test_a_stray_write_harms_nothing_outside_the_array(launch, where, shift):
    src, zones = guarded(128)
    dst, more_zones = guarded(128)
    with pytest.raises(OutOfBounds, match="dst"):
        launch(stray[4, 32], src, dst, where, shift)
    assert (zones == 77).all()
    assert (more_zones == 77).all()
    works_again(launch)


def test_one_element_past_the_end_by_a_grid_too_large(launch, line_of):
    src, dst = np.ones(100, np.float32), np.zeros(100, np.float32)
    with pytest.raises(OutOfBounds, match="100") as caught:
        launch(copy_unguarded[4, 32], src, dst)
    finding = caught.value.finding  # 100 = 3 * 32 + 4
    assert (finding.block, finding.thread, finding.array, finding.index) == ((3, 0, 0), (4, 0, 0), "src", 100)
    assert finding.line == line_of(copy_unguarded, "dst[i] = src[i]")
    works_again(launch)


def test_a_negative_index_beyond_the_front(launch):
    """-300 wraps once, as numba does, to -300 + 128 = -172, which is outside."""
    dst, zones = guarded(128)
    with pytest.raises(OutOfBounds, match="dst"):
        launch(stray[4, 32], np.ones(128, np.float32), dst, 0, -300)
    assert (zones == 77).all()


def test_two_dimensional_strays(launch):
    a = np.zeros((8, 10), np.int64)
    with pytest.raises(OutOfBounds) as caught:
        launch(stray_row[(1, 1), (8, 8)], a, 8, 0)
    assert caught.value.finding.thread == (3, 2, 0)
    assert caught.value.finding.array == "a"
    assert caught.value.finding.index == 80  # flat: 8 * 10 + 0


def test_a_stray_that_stays_inside_the_allocation_is_what_the_hardware_does(launch):
    """Column 10 of row 2 is column 0 of row 3: no GPU and no sanitizer objects."""
    a = np.zeros((8, 10), np.int64)
    launch(stray_row[(1, 1), (8, 8)], a, 2, 10)
    assert a[3, 0] == 1
    assert a.sum() == 1


@pytest.mark.parametrize("kernel", [stray_local, stray_shared])
@pytest.mark.parametrize("bad", [40, 100_000, -1000])
def test_strays_in_local_and_shared_memory(launch, line_of, kernel, bad):
    index = np.zeros(32, np.int64) if kernel is stray_local else np.arange(32)
    index[9] = bad
    with pytest.raises(OutOfBounds) as caught:
        launch(kernel[1, 32], index, np.zeros(32, np.float32))
    assert caught.value.finding.thread == (9, 0, 0)
    assert caught.value.finding.line == line_of(kernel, "[index[")
    works_again(launch)


def test_stray_atomics(launch, line_of):
    out = np.zeros(16, np.int32)
    with pytest.raises(OutOfBounds) as caught:
        launch(stray_atomic[1, 8], out, 9)  # 9 + 7 = 16
    assert caught.value.finding.thread == (7, 0, 0)
    assert caught.value.finding.index == 16
    assert caught.value.finding.line == line_of(stray_atomic, "cuda.atomic.add")


def test_an_access_to_an_empty_array(launch):
    with pytest.raises(OutOfBounds, match="src"):
        launch(copy_unguarded[1, 32], np.zeros(0, np.float32), np.zeros(32, np.float32))
    works_again(launch)


def test_a_neighbouring_argument_is_not_reached(launch):
    """Two halves of one NumPy buffer: past the end of the first is an error, though the memory is there."""
    buffer = np.zeros(256, np.float32)
    with pytest.raises(OutOfBounds, match="dst"):
        launch(stray[4, 32], buffer[128:], buffer[:128], 127, 1)
    assert not buffer.any()


def test_bounds_are_checked_without_counters_too(launch):
    with pytest.raises(OutOfBounds, match="src"):
        launch(copy_unguarded[4, 32], np.ones(100, np.float32), np.zeros(128, np.float32), counters=False)
    works_again(launch)


@cuda.jit
def never_ends(x):
    i = cuda.grid(1)
    while x[0] >= 0:
        x[1 + i] += 1


@cuda.jit
def never_ends_empty(x):
    v = x[0]
    while v != 1:
        v = (v * 3 + 2) & 0xFF


@pytest.mark.parametrize(("kernel", "text"), [(never_ends, "+= 1"), (never_ends_empty, "v = (v * 3")])
def test_a_runaway_loop_stops_and_names_its_line(launch, line_of, kernel, text):
    x = np.zeros(64, np.int64)
    x[0] = 3
    with pytest.raises(RunawayKernel) as caught:
        launch(kernel[1, 32], x, limit_s=0.3)
    line = line_of(kernel, text)
    assert caught.value.line in (line - 1, line)
    assert f"line {caught.value.line}" in str(caught.value)
    assert kernel.__name__ in str(caught.value)
    works_again(launch)


def test_a_long_but_finite_kernel_is_left_alone(launch):
    x = np.zeros(64, np.int64)
    x[0] = -1
    launch(never_ends[1, 32], x, limit_s=0.3)


@cuda.jit
def waits_forever(flag):
    while cuda.atomic.add(flag, 0, 0) == 0:
        pass


def test_a_flag_that_nobody_raises(launch, line_of):
    with pytest.raises(RunawayKernel) as caught:
        launch(waits_forever[2, 32], np.zeros(1, np.int32), limit_s=0.3)
    assert line_of(waits_forever, "while") <= caught.value.line <= line_of(waits_forever, "pass")
    works_again(launch)


@cuda.jit
def too_much_shared(out):
    cache = cuda.shared.array((256, 256), float32)
    t = cuda.threadIdx.x
    cache[t, t] = t
    out[t] = cache[t, t]


def test_shared_memory_that_no_device_has(launch):
    """256 * 256 * 4 = 262144 bytes; the largest block of any device gets 227 KiB = 232448."""
    with pytest.raises((LaunchError, UnsupportedKernel), match="262,?144"):
        launch(too_much_shared[1, 32], np.zeros(32, np.float32))


@intrinsic
def multiprocessor(typing_context):
    """PTX that no numba function makes: which SM am I on. Here to be refused."""

    def codegen(context, builder, signature, arguments):
        return builder.asm(ir.FunctionType(ir.IntType(32), []), "mov.u32 $0, %smid;", "=r", [], False)

    return types.int32(), codegen


@cuda.jit
def asks_where(out):
    out[cuda.grid(1)] = 1
    if out[0] > 5:
        out[0] = multiprocessor()


def test_an_unsupported_instruction_is_refused_by_name_and_line_before_anything_ran(launch, line_of):
    """Even where it would never be executed."""
    out = np.zeros(32, np.int32)
    with pytest.raises(UnsupportedKernel, match="%smid") as caught:
        launch(asks_where[1, 32], out)
    line = line_of(asks_where, "multiprocessor()")
    assert (caught.value.file, caught.value.line) == (__file__, line)
    assert f"line {line}" in str(caught.value)
    assert not out.any()
    works_again(launch)


@cuda.jit
def raises(x, out):
    i = cuda.grid(1)
    if x[i] < 0:
        raise ValueError("negative")
    out[i] = x[i]


def test_a_raise_is_an_error_or_silent_never_a_crash(launch):
    """Without debug=True a GPU drops exceptions: the thread ends, the others go on."""
    x, out = np.arange(-2, 30), np.full(32, 99)
    try:
        launch(raises[1, 32], x, out)
    except KernelError:
        pass
    else:
        np.testing.assert_array_equal(out, np.r_[99, 99, np.arange(30)])
    works_again(launch)
