"""The front end: numba's IR without a device, launches, and numba's errors in a learner's words. On both front ends."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from numba import cuda, float32

from solcourse.errors import KernelTypeError, LaunchError
from solcourse.simt import frontend

TILE = 16


@cuda.jit(device=True)
def doubled(a):
    tile = cuda.shared.array(32, float32)
    tile[cuda.threadIdx.x] = a
    return tile[cuda.threadIdx.x] * 2


@cuda.jit
def uses_doubled(x):
    tile = cuda.shared.array((TILE, TILE), float32)
    i = cuda.grid(1)
    tile[0, 0] = x[i]
    x[i] = doubled(tile[0, 0])


@cuda.jit
def add_one(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] += 1


def compiled(kernel, *args):
    return frontend.compile_kernel(kernel, frontend.argument_types(kernel, args))


X = np.zeros(8, np.float32)


# ---------------------------------------------------------------------------------------------------------------------- IR


def test_ir_is_for_nvptx_and_keeps_the_learners_lines(line_of):
    ir = compiled(add_one, X, 8)
    assert 'target triple = "nvptx64-nvidia-cuda"' in ir.llvm
    assert f"line: {line_of(add_one, 'x[i] += 1')}" in ir.llvm
    assert (ir.name, ir.file, ir.arg_names) == ("add_one", __file__, ("x", "n"))
    assert "ptr %x.0, ptr %x.1, i64 %x.2, i64 %x.3, ptr %x.4, i64 %x.5.0, i64 %x.6.0, i64 %n)" in ir.llvm  # on both front ends
    # x: meminfo, parent, nitems, itemsize, data, shape, stride; n
    assert ir.parameters == ("ptr", "ptr", "i64", "i64", "ptr", "i64", "i64", "i64")


def test_device_functions_are_in_the_same_module_with_their_lines(line_of):
    ir = compiled(uses_doubled, X)
    defined = re.findall(r"^define [^@]*@\"?([^\s(\"]+)", ir.llvm, re.MULTILINE)
    assert sorted("12uses_doubled" in name for name in defined) == [False, True]
    assert f"line: {line_of(doubled, 'return tile')}" in ir.llvm
    assert ir.static_shared_bytes == 32 * 4 + TILE * TILE * 4  # the function's array and the kernel's


def test_compiling_leaves_nothing_in_the_learners_dispatchers():
    compiled(uses_doubled, X)
    assert not doubled.overloads
    assert not uses_doubled.overloads


def test_compiling_is_cached_by_dispatcher_and_types():
    assert compiled(add_one, X, 8) is compiled(add_one, X, 9)
    assert compiled(add_one, X, 8) is not compiled(add_one, X.astype(np.float64), 8)


def scale_by(factor):
    @cuda.jit
    def scale(x):
        x[0] *= factor

    return scale


def test_fingerprint_is_of_the_code_not_of_its_name_or_history():
    assert compiled(scale_by(2), X).fingerprint == compiled(scale_by(2), X).fingerprint
    assert compiled(scale_by(2), X).fingerprint != compiled(scale_by(3), X).fingerprint
    assert compiled(scale_by(2), X).source_key == compiled(scale_by(2), X).source_key != ""
    assert compiled(scale_by(2), X).source_key != compiled(scale_by(3), X).source_key


def test_options_of_the_decorator_reach_the_ir():
    def body(x):
        x[0] = math.cos(x[1]) / x[2]

    plain, fast = cuda.jit(body), cuda.jit(fastmath=True)(body)
    assert "__nv_cosf" in compiled(plain, X).llvm
    assert "__nv_fast_cosf" in compiled(fast, X).llvm  # numba's own choice of library function
    assert compiled(fast, X).options["fastmath"] is True
    assert compiled(cuda.jit(opt=False)(body), X).options["opt"] is False
    assert len({compiled(k, X).fingerprint for k in (plain, fast)}) == 2


def test_exceptions_of_a_debug_kernel_are_known():
    @cuda.jit(debug=True, opt=False)
    def refuses(x):
        if x[0] > 1:
            raise ValueError("too big")

    kinds = [(kind, values) for kind, values, _ in compiled(refuses, X).exceptions.values()]
    assert (ValueError, ("too big",)) in kinds


@cuda.jit
def extremes(x, n):
    i = cuda.grid(1)
    x[0] = max(x[1], 0.5) + min(i, n) + max(x[2], i) + min(x[0], x[1], x[2]) + max((i, n)) + min(n, 2.5)


@cuda.jit
def every_call(x, z):
    i = cuda.grid(1)
    x[0] = math.exp(x[0]) + math.sqrt(x[1]) + abs(x[2]) + x[3] ** 2 + round(x[4]) + cuda.fma(x[0], x[1], x[2])
    x[1] = cuda.shfl_down_sync(0xFFFFFFFF, x[1], 1) + cuda.ballot_sync(0xFFFFFFFF, i > 3) + cuda.popc(i)
    cuda.atomic.add(x, 0, 1)
    cuda.syncwarp()
    z[0] = z[1] * 2j


@pytest.mark.parametrize(("kernel", "args"), [(extremes, (X, 4)), (every_call, (X, np.zeros(2, np.complex64)))])
def test_builtins_compile_without_a_device(kernel, args):
    assert compiled(kernel, *args).llvm


def test_no_driver_and_no_libnvvm_is_asked_for(monkeypatch):
    from numba.cuda.cudadrv import devices, nvvm

    def never(*args, **kwargs):
        raise AssertionError("asked for the device")

    monkeypatch.setattr(nvvm, "NVVM", never)
    monkeypatch.setattr(devices._runtime, "get_or_create_context", never)
    fresh = cuda.jit(uses_doubled.py_func)
    assert compiled(fresh, X).llvm
    with pytest.raises(AssertionError):
        nvvm.NVVM()  # and what was there is back


def test_simulator_is_named_with_its_cure():
    code = (
        "import solcourse as sol\nfrom numba import cuda\nimport numpy as np\n"
        "@cuda.jit\ndef k(x): x[0] = 1\n"
        "try: sol.run(k[1, 1], np.zeros(1))\nexcept sol.SolcourseError as error: print(error)\n"
    )
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert "Unset the variable NUMBA_ENABLE_CUDASIM" in out.stdout, out.stderr


# ----------------------------------------------------------------------------------------------------------------- errors


def undefined_name(xs):
    xs[0] = x[0]  # noqa: F821


def wrong_attribute(x):
    i = cuda.grid(1)
    x[i] = x.sze


def dynamic_tile(x, n):
    tile = cuda.shared.array(n, float32)
    x[0] = tile[0]


def unknown_dtype(x):
    tile = cuda.shared.array(8, "int33")
    x[0] = tile[0]


def returns(x):
    return x[0]


def too_many_indices(x):
    x[0, 1] = 1


def a_list(x):
    values = [1, 2, x[0]]
    values.append(3)


def not_a_device_function(value):
    return value + 1


def calls_python(x):
    x[0] = not_a_device_function(x[0])


def yields(x):
    yield x[0]


def unknown_dimensions(x, n):
    i = cuda.grid(n)
    x[i] = 1


@cuda.jit(device=True)
def broken_helper(value):
    return value.wrong


def calls_broken_helper(x):
    x[0] = broken_helper(x[0])


@pytest.mark.parametrize(
    ("function", "args", "at", "said"),
    [
        (undefined_name, (X,), "xs[0] = x[0]", "Did you mean 'xs'?"),
        (wrong_attribute, (X,), "x[i] = x.sze", "Unknown attribute 'sze'"),
        (dynamic_tile, (X, 8), "cuda.shared.array", "must be a compile-time constant"),
        (unknown_dtype, (X,), "int33", "Invalid NumPy dtype specified: 'int33'"),
        (returns, (X,), "return x[0]", "cannot return a value"),
        (too_many_indices, (X,), "x[0, 1] = 1", "No implementation of setitem"),
        (a_list, (X,), "values", "local.array"),
        (calls_python, (X,), "x[0] = not_a_device_function", "@cuda.jit(device=True)"),
        (yields, (X,), None, "generator"),
        (unknown_dimensions, (X, 1), "cuda.grid(n)", "take the number of dimensions as a literal"),
    ],
)
def test_type_error_names_the_line_and_the_cure(function, args, at, said, line_of):
    with pytest.raises(KernelTypeError) as caught:
        compiled(cuda.jit(function), *args)
    message = str(caught.value)
    assert said in message
    assert function.__name__ in message
    assert caught.value.file == __file__
    if at == "values":
        assert caught.value.line in (line_of(function, "values = ["), line_of(function, "values.append"))
    elif at is not None:
        assert caught.value.line == line_of(function, at)
        assert at in message
    assert len(message.splitlines()) <= 8
    assert not re.search("candidate|\x1b", message)


def test_type_error_in_a_device_function_names_its_line(line_of):
    with pytest.raises(KernelTypeError, match="Unknown attribute 'wrong'") as caught:
        compiled(cuda.jit(calls_broken_helper), X)
    assert caught.value.line == line_of(broken_helper, "return value.wrong")


def test_type_error_is_numbas_own_error_too():
    from numba.core.errors import NumbaError

    with pytest.raises(NumbaError) as caught:
        compiled(cuda.jit(wrong_attribute), X)
    assert isinstance(caught.value, KernelTypeError)


def test_kernel_compiles_after_a_type_error():
    with pytest.raises(KernelTypeError):
        compiled(cuda.jit(wrong_attribute), X)
    assert compiled(add_one, X, 8).llvm


def test_read_only_array_cannot_be_written():
    frozen = X.copy()
    frozen.flags.writeable = False
    with pytest.raises(KernelTypeError, match="read-only"):
        compiled(add_one, frozen, 8)


def test_number_in_place_of_an_array_is_said():
    with pytest.raises(KernelTypeError, match="A number was passed where the kernel indexes an array"):
        compiled(add_one, 3.0, 8)


# --------------------------------------------------------------------------------------------------------------- launches


def test_launch_is_read_from_numbas_own_object():
    spec = frontend.launch_of(add_one[(3, 2), 64, 0, 128])
    assert (spec.dispatcher, spec.grid, spec.block, spec.dynamic_shared_bytes) == (add_one, (3, 2, 1), (64, 1, 1), 128)
    assert (spec.blocks, spec.threads_per_block) == (6, 64)


def test_forall_covers_its_tasks():
    spec = frontend.launch_of(add_one.forall(1000, tpb=128))
    assert (spec.grid, spec.block) == ((8, 1, 1), (128, 1, 1))  # 1000 / 128 = 7.8
    assert frontend.launch_of(add_one.forall(1000)).blocks * frontend.launch_of(add_one.forall(1000)).threads_per_block >= 1000


def test_kernel_without_dimensions_shows_the_syntax():
    with pytest.raises(LaunchError, match=r"add_one\[blocks_per_grid, threads_per_block\]"):
        frontend.launch_of(add_one)


def test_something_else_than_a_launch_is_refused():
    with pytest.raises(LaunchError, match="got a int"):
        frontend.launch_of(3)


@pytest.mark.parametrize(
    ("grid", "block", "said"),
    [
        (0, 32, r"add_one\[0, 32\]: the grid has x = 0"),
        (1, 0, r"the block has x = 0"),
        ((1, -2), 32, r"the grid has y = -2"),
        (1, (32, 0), r"the block has y = 0"),
        (1, 1025, r"x = 1,025; CUDA's limit is 1,024"),
        (1, (64, 32), r"64 x 32 = 2,048 threads per block; CUDA's limit is 1024"),
        (1, (1, 1, 65), r"z = 65; CUDA's limit is 64"),
        ((1, 65536), 32, r"y = 65,536; CUDA's limit is 65,535"),
        (2**31, 32, r"x = 2,147,483,648; CUDA's limit is 2,147,483,647"),
        (256, 4096, r"did you mean add_one\[4096, 256\]\?"),
    ],
)
def test_impossible_dimensions_are_named(grid, block, said):
    with pytest.raises(LaunchError, match=said):
        frontend.launch_of(add_one[grid, block])


@pytest.mark.parametrize("bad", [1.5, "32", (1, 2, 3, 4), (), None, True])
def test_dimensions_are_one_to_three_integers(bad):
    with pytest.raises(LaunchError, match="1 to 3 integers"):
        frontend.launch_spec(add_one, 1, bad)


def test_negative_dynamic_shared_memory_is_refused():
    with pytest.raises(LaunchError, match="dynamic shared memory"):
        frontend.launch_spec(add_one, 1, 32, 0, -1)


def test_limits_themselves_are_accepted():
    assert frontend.launch_spec(add_one, (2**31 - 1, 65535, 65535), (16, 1, 64)).threads_per_block == 1024


@pytest.mark.parametrize(
    ("grid", "block", "swapped"), [(256, 3, True), (3, 256, False), (256, 32, False), (100, 3, False), (32, 16, False)]
)
def test_swapped_launch_is_suspected(grid, block, swapped):
    assert frontend.launch_spec(add_one, grid, block).looks_swapped is swapped


# --------------------------------------------------------------------------------------------------------- argument types


@pytest.mark.parametrize("args", [(), (X,), (X, 8, 9)])
def test_wrong_number_of_arguments_names_them(args):
    with pytest.raises(LaunchError, match=rf"add_one\(x, n\) takes 2 arguments, {len(args)} given"):
        frontend.argument_types(add_one, args)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1, 2], r"'x' is a list.*np\.asarray\(x\)"),
        (None, "'x' is None"),
        ("text", "'x' is a str"),
        ({}, "'x' is a dict"),
        (2**70, "more than 64 bits"),
        (np.zeros(2, object), "Python objects"),
        (object(), "'x' is an object"),
    ],
)
def test_values_no_kernel_takes_are_named(value, said):
    with pytest.raises(LaunchError, match=said):
        frontend.argument_types(add_one, (value, 8))


def test_types_are_the_ones_numba_infers():
    values = (X, np.float32(1), 1, 1.0, True, 1j, np.int8(3), (1, 2.0), np.asfortranarray(np.zeros((2, 3))))

    @cuda.jit
    def nine(a, b, c, d, e, f, g, h, i): ...

    assert frontend.argument_types(nine, values) == tuple(nine.typeof_pyval(v) for v in values)
    names = [str(t) for t in frontend.argument_types(nine, values)]
    assert names[1:7] == ["float32", "int64", "float64", "bool", "complex128", "int8"]
