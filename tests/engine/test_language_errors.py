"""Kernels that go wrong: a message that says where, memory beside the stray access unharmed, and the next launch works."""

from __future__ import annotations

import math  # noqa: F401 - for the mistakes
import os
import random  # noqa: F401
import re
import subprocess
import sys

import numpy as np
import pytest
from llvmlite import ir
from numba import cuda, float32, int32, njit, types
from numba.extending import intrinsic

from solcourse.errors import KernelError, KernelTypeError, LaunchError, OutOfBounds, RunawayKernel, UnsupportedKernel

AFTER_NJIT = "SOLCOURSE_TEST_AFTER_NJIT"  # set: this file's mistakes are made after something was compiled for the CPU


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


# ---------------------------------------------------------------------------------- mistakes: the line, and what to write instead
# Each is a body of a kernel of x (8,) float32, m (4, 4) float32, r (3,) packed records, t (int, float), i = the thread; one marked
# line. What numba says of them is different on either front end, and from version to version; what a learner has to do is not.

PACKED = np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")]))
TABLE, NAMES, SEEN, NOTHING = [1.0, 2.0], {1: 2}, {1}, None


class Settings:
    gain = 2


SETTINGS = Settings()


def double(v):
    return 2 * v


@cuda.jit
def other(x):
    x[0] = 1


@cuda.jit(device=True)
def added(a, b):
    return a + b


MISTAKES = (
    ("v = [1, 2, 3]; x[0] = v[0]", "no lists"),
    ("v = [x[k] for k in range(4)]; x[0] = v[0]", "no lists"),
    ("v = {1: 2}; x[0] = v[1]", "no dictionaries"),
    ("v = dict(); x[0] = 1", "no dictionaries"),
    ("v = {1, 2}; x[0] = len(v)", "no sets"),
    ("x[0] = TABLE[0]", "cannot read a global list.*np.array"),
    ("x[0] = NAMES[1]", "no dictionaries"),
    ("x[0] = len(SEEN)", "no sets"),
    ("x[0] = NOTHING", "value is None"),
    ("x[0] = SETTINGS.gain", "no other Python objects"),
    ("v = Settings(); x[0] = v.gain", "Settings is a class"),
    ("print(f'i = {i}')", "print takes constant texts and numbers, separated by commas"),
    ("print(f'{x[0]:.2f}')", "print takes constant texts and numbers, separated by commas"),
    ("print('i = %d' % i)", "print takes constant texts and numbers, separated by commas"),
    ("print('i = {}'.format(i))", "print takes constant texts and numbers, separated by commas"),
    ("print(i, end='')", "positional arguments only"),
    ("print(x)", "one element at a time"),
    ("x[0] = int('3')", "cannot read numbers from texts"),
    ("raise ValueError('negative', i)", "arguments of an exception must be constants"),
    ("assert i < 9, f'thread {i}'", "arguments of an exception must be constants"),
    ("try:  # here\n        x[0] = 1\n    except ValueError:\n        x[0] = 2", "cannot catch exceptions"),
    ("try:  # here\n        x[0] = 1\n    finally:\n        x[0] = 2", "cannot catch exceptions"),
    ("with open('f') as f:  # here\n        x[0] = 1", "no with statement"),
    ("yield x[0]", "generator"),
    ("x[0] = sum(x[k] for k in range(4))", "no generator expressions"),
    ("import math as mm  # here\n    x[0] = mm.sqrt(2.0)", "Move the import out of the kernel"),
    ("global TILE  # noqa\n    TILE = 4  # here", "cannot assign to global variables"),
    ("a, *b = (1, 2, 3)  # here\n    x[0] = a", "no starred assignment"),
    ("del x", "Leave out the del"),
    ("def inner(v):  # here\n        return inner(v - 1)\n    x[0] = inner(x[0])", "function inside a kernel cannot call itself"),
    ("return x[0]", "cannot return a value"),
    ("other[1, 1](x)", "cannot launch a kernel"),
    ("x[0] = double(x[0])", "need @cuda.jit\\(device=True\\)"),
    ("x[0] = added(x[0])", "arguments are not those"),
    ("v = np.zeros(4); x[0] = v[0]", "cuda.local.array.*cuda.shared.array"),
    ("v = np.array([1, 2]); x[0] = v[0]", "cuda.local.array.*cuda.shared.array"),
    ("v = np.zeros_like(x); x[0] = v[0]", "cuda.local.array.*cuda.shared.array"),
    ("v = x.copy(); x[0] = v[0]", "cuda.local.array.*cuda.shared.array"),
    ("x[0] = np.dot(x, x)", "function of a whole array"),
    ("x[0] = np.linalg.norm(x)", "function of a whole array"),
    ("v = m @ m; x[0] = v[0, 0]", "no @"),
    ("v = np.where(x > 0, x, 0); x[0] = v[0]", "whole array|a if test else b"),
    ("x[0] = np.clip(x[0], 0, 1)", "min\\(max"),
    ("v = sorted(x)", "no map, filter and sorted"),
    ("v = math.sqrt(x)", "whole array.*one element per thread"),
    ("v = np.sin(x); x[0] = v[0]", "whole array.*one element per thread"),
    ("v = x + x; x[0] = v[0]", "whole array.*one element per thread"),
    ("if x > 0: x[0] = 1", "whole array.*one element per thread"),
    ("x[x > 0] = 1", "whole array.*one element per thread"),
    ("m[0] += 1", "m has 2 dimensions, so m\\[0\\] is a whole row of it.*m\\[i, j\\]"),
    ("m[i] = m[i] + 1", "m has 2 dimensions, so m\\[i\\] is a whole row of it"),
    ("if m[i] > 0: x[0] = 1", "m has 2 dimensions, so m\\[i\\] is a whole row of it"),
    ("x[0:2] = x[2:4]", "cannot copy slices"),
    ("x[0] = np.random.rand()", "xoroshiro128p_uniform_float32"),
    ("x[0] = random.random()", "xoroshiro128p_uniform_float32"),
    ("v = cuda.to_device(x)", "function of the host"),
    ("v = cuda.gird(1); x[v] = 1", "Did you mean 'cuda.grid'"),
    ("cuda.syncthread()", "Did you mean 'cuda.syncthreads'"),
    ("x[0] = cuda.threadIdx.w", "members are x, y and z"),
    ("x[0] = threadIdx.x", "Did you mean cuda.threadIdx"),
    ("x[0] = math.squrt(x[0])", "Did you mean 'math.sqrt'"),
    ("x[0] = sqrt(x[0])", "Did you mean math.sqrt"),
    ("x[0] = x.shap[0]", "Did you mean 'shape'"),
    ("cuda.atomic.plus(x, 0, 1)", "cuda.atomic has add, and_, cas"),
    ("x[0] = numba.int32(1)", "import numba, outside the kernel"),
    ("v = cuda.shared.array([4, 4], float32); v[0, 0] = 1", "number or a tuple"),
    ("v = cuda.shared.array(4, float); v[0] = 1", "Python's float says no size"),
    ("v = cuda.shared.array(4); v[0] = 1", r"cuda.shared.array\(shape, dtype\)"),
    ("v = cuda.shared.array(4, np.float); v[0] = 1", "NumPy has no np.float any more"),
    ("v = cuda.local.array(16 / 2, float32); v[0] = 1", "n // 2, not n / 2"),
    ("v = cuda.shared.array(-1, float32); v[0] = 1", "at least one element"),
    ("x[0] = 123456789012345678901234567890", "at most 64 bits"),
    ("j, k = cuda.grid(1)", r"cuda.grid\(1\) is one number"),
    ("j = cuda.grid(2)\n    x[j] = 1  # here", r"cuda.grid\(2\) is a pair"),
    ("v = cuda.grid(); x[0] = v", "literal: 1, 2 or 3"),
    ("j, k = x.shape", "2 names for 1 values"),
    ("a, b = x[0]", "float32 is one number"),
    ("x[0] = t[i]", "index must be a literal"),
    ("t[0] = 1", "Tuples cannot be changed"),
    ("x[i / 2] = 1", "index must be an integer"),
    ("x[cuda.threadIdx] = 1", "members .x, .y, .z"),
    ("x(i)", r"indexed with \[ \]"),
    ("v = cuda.grid[1]; x[v] = 1", r"called with \( \)"),
    ("cuda.atomic.add(x, 1)", "array, index, value"),
    ("cuda.atomic.add(m, 0, 1)", r"a tuple \(i, j\)"),
    ("x[0] = cuda.shfl_sync(x[0], 0)", "take the mask of lanes first"),
    ("x[0] = 1j", ".real or .imag"),
    ("x[0] = x", "whole array"),
    ("x[0] = x[0] ^ 2", r"Powers are written x \*\* 2"),
    ("for k in range(x): x[k] = 1", r"range\(x.size\)"),
    ("for k in range(len(x[0])): x[k] = 1", "number has no length"),
    ("x.append(1)", "size is fixed"),
    ("x.scale = 1", "no attributes that a kernel can set"),
    ("r[0].b = 1", r"np.dtype\(..., align=True\)"),
    ("r[0]['c'] = 1", "no field 'c'; they have a, b"),
)


@pytest.fixture
def kernel_of(tmp_path):
    """kernel_of(body) -> (kernel, its file, the number of the line that ends in '# here', else of the body's first)."""

    def make(body):
        lines = ["def mistaken(x, m, r, t):", "    i = cuda.grid(1)", *f"    {body}".split("\n")]
        marked = [number for number, line in enumerate(lines, 1) if line.endswith("# here")]
        file = tmp_path / "mistaken.py"
        file.write_text("\n".join(lines))
        scope = {name: value for name, value in globals().items() if name != "mistaken"}
        exec(compile(file.read_text(), str(file), "exec"), scope)
        return cuda.jit(scope["mistaken"]), str(file), marked[0] if marked else 3

    return make


@pytest.mark.slow
def test_the_cures_are_the_same_after_njit_brought_numbas_cpu_functions():
    """numba.cuda then lists the CPU compiler's candidates beside its own, each with its own reason why it does not fit."""
    environment = os.environ | {AFTER_NJIT: "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__, "-k", "told_with_its_line"]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stdout[-4000:]


if os.environ.get(AFTER_NJIT):

    @njit
    def on_the_cpu(n):
        a = np.zeros(n) + np.ones(n)
        b = np.concatenate((a, np.linspace(0.0, 1.0, n)))
        return np.sort(b).sum() + b.mean() + np.empty_like(a).size + np.arange(n).max() + np.eye(2).size

    on_the_cpu(3)


@pytest.mark.parametrize(("body", "cure"), MISTAKES, ids=[body.split("\n")[0] for body, _ in MISTAKES])
def test_a_mistake_is_told_with_its_line_and_what_to_write_instead(launch, kernel_of, body, cure):
    kernel, file, line = kernel_of(body)
    with pytest.raises(KernelTypeError) as caught:
        launch(kernel[1, 4], np.zeros(8, np.float32), np.zeros((4, 4), np.float32), PACKED, (1, 2.5))
    said = str(caught.value)
    assert re.search(cure, said), said
    assert (caught.value.file, caught.value.line) == (file, line)
    assert not re.search("CallConv|TargetContext|NRT|_ol_array|OverloadSelector|<ufunc|Failed in", said), said
    assert len(said.splitlines()) <= 8


@cuda.jit
def calls_itself(x):
    calls_itself(x)


def test_a_kernel_that_calls_itself_is_told(launch, line_of):
    with pytest.raises(KernelTypeError, match="A kernel cannot call itself") as caught:
        launch(calls_itself[1, 1], np.zeros(1))
    assert caught.value.line == line_of(calls_itself, "    calls_itself(x)")


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        (np.zeros(3, ">f8"), r"dtype >f8.*big-endian\): x.astype\('f8'\)"),
        (np.zeros(3, [("a", ">i4"), ("b", "f8")]), r"x.astype\(x.dtype.newbyteorder\('='\)\)"),
        (np.zeros(3, "V4"), "bytes have no type: x.view"),
        (np.zeros(3, object), "dtype=object.*x.astype"),
        (None, "They take NumPy arrays"),
        ([1, 2], "np.asarray"),
        ("text", "a str"),
        ({1: 2}, "a dict"),
        (2**70, "more than 64 bits"),
        (SETTINGS, "a Settings.*Pass what the kernel needs of x as arguments of their own"),
        (np.float32, "make x a global or a closure variable"),
        (double, "make x a global or a closure variable"),
        (added, "make x a global or a closure variable"),
    ],
    ids=lambda of: of if isinstance(of, str) else type(of).__name__,  # no repr: addresses differ from worker to worker
)
def test_an_argument_that_no_kernel_takes_is_told_with_the_way_out(launch, value, cure):
    with pytest.raises(TypeError, match=f"(?s)Argument 'x' is .*{cure}") as caught:
        launch(other[1, 1], value)
    assert isinstance(caught.value, LaunchError)


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="this machine's long double is a double")
@pytest.mark.parametrize(("dtype", "cure"), [(np.longdouble, "float64"), (np.clongdouble, "complex128")])
def test_long_doubles_are_told_the_widest_type(launch, dtype, cure):
    with pytest.raises(LaunchError, match=rf"more than 64 bits: x.astype\(np.{cure}\)"):
        launch(other[1, 1], np.zeros(2, dtype))


@cuda.jit
def neighbours(x, m, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i + 1]
    if i == 0 and m.shape[0] == 3:
        out[i] += m[i + 3, 2 * i]


@cuda.jit
def walks(x, out):
    i = cuda.grid(1)
    while x[i * 4] > 0:
        i += 1
    out[i] = x[i] + x[i - 1]


@pytest.mark.parametrize(
    ("configured", "arguments", "guard"),
    [
        (neighbours[1, 32], (np.ones(8), np.ones((2, 2)), np.zeros(8)), "if i + 1 < x.size:"),
        (neighbours[1, 32], (np.ones(8)[:0], np.ones((3, 2)), np.zeros(8)), "if i + 3 < m.shape[0] and 2 * i < m.shape[1]:"),
        (walks[1, 1], (np.ones(8), np.zeros(8)), "if i * 4 < x.size:"),
        (copy_unguarded[1, 32], (np.ones(8), np.zeros(32)), "if i < src.size:"),
    ],
)
def test_the_guard_that_is_proposed_is_of_the_index_that_strayed(launch, configured, arguments, guard):
    with pytest.raises(OutOfBounds) as caught:
        launch(configured, *arguments)
    assert f"`{guard}`" in str(caught.value)
