"""Kernels under use_engine(): what they capture, bare pointers, what numba says of a compiled kernel, and what may not be launched."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda, types

import solcourse as sol
from solcourse.simt import frontend
from solcourse.simt.device_memory import allocation_at

captures = pytest.mark.skipif(frontend.front_end() != "numba-cuda", reason="numba's own numba.cuda cannot capture device arrays")


@pytest.fixture(autouse=True)
def engine():
    with sol.use_engine() as active:
        yield active


class Foreign:
    """Another library's array in device memory: known by its interface alone."""

    def __init__(self, array):
        self.keep, self.__cuda_array_interface__ = array, array.__cuda_array_interface__


# ------------------------------------------------------------------------------------- device arrays from the scope around


@captures
@pytest.mark.parametrize("wrap", [lambda array: array, Foreign], ids=["device array", "foreign array"])
def test_a_captured_device_array_is_read_and_written_in_place(wrap, rng):
    host = rng.random((6, 8), np.float32)
    array = cuda.to_device(host)
    table = wrap(array)

    @cuda.jit
    def kernel(out):
        i, j = cuda.grid(2)
        if i < 6 and j < 8:
            out[i, j] = table[i, j] * 2
            table[i, j] = j

    out = np.zeros_like(host)
    kernel[(1, 1), (8, 8)](out)
    np.testing.assert_array_equal(out, host * 2)
    np.testing.assert_array_equal(array.copy_to_host(), np.broadcast_to(np.arange(8), (6, 8)))


@captures
def test_captured_views_of_one_array_alias_each_other():
    array = cuda.to_device(np.arange(10, dtype=np.int64))
    low, high = array[:5], array[5:]
    every = array[::2]

    @cuda.jit
    def kernel(out):
        low[4] = 40
        high[1] = 60
        out[0] = every[2] + every[3]

    out = np.zeros(1, np.int64)
    kernel[1, 1](out)
    assert out[0] == 40 + 60  # elements 4 and 6, as just written through the other views


@captures
def test_device_functions_capture_too_and_constant_indices_fold():
    first, second = cuda.to_device(np.arange(4.0)), cuda.to_device(np.arange(4.0) + 10)

    @cuda.jit(device=True)
    def pick(i):
        return second[i] + first[3]

    @cuda.jit
    def kernel(out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = pick(i)

    out = np.zeros(4)
    kernel[1, 32](out)
    np.testing.assert_array_equal(out, np.arange(4) + 10 + 3)


@captures
def test_an_access_outside_a_captured_array_names_the_variable():
    table = cuda.to_device(np.zeros(3, np.float32))

    @cuda.jit
    def kernel(out):
        out[0] = table[cuda.threadIdx.x]

    with pytest.raises(sol.OutOfBounds, match=r"reads table\[3\]"):
        kernel[1, 32](np.zeros(1, np.float32))


@captures
def test_the_same_kernel_with_another_captured_array_is_the_same_code():
    def make(table):
        @cuda.jit
        def kernel(out):
            out[0] = table[1]

        return kernel

    values = []
    fingerprints = set()
    for number in (5, 7):
        kernel = make(cuda.to_device(np.full(2, number, np.int64)))
        out = np.zeros(1, np.int64)
        kernel[1, 1](out)
        values.append(out[0])
        fingerprints.add(frontend.compile_kernel(kernel, frontend.argument_types(kernel, (out,))).fingerprint)
    assert values == [5, 7]
    assert len(fingerprints) == 1


@captures
def test_memory_of_a_real_gpu_cannot_be_captured():
    interface = {"shape": (2,), "typestr": "<f4", "data": (0x7000_0000_0000, False), "version": 3}
    table = Foreign(SimpleNamespace(__cuda_array_interface__=interface))

    @cuda.jit
    def kernel(out):
        out[0] = table[0]

    with pytest.raises(sol.KernelError, match="'table'.*real GPU"):
        kernel[1, 1](np.zeros(1, np.float32))


# ----------------------------------------------------------------------------------------------------------- bare pointers


@pytest.fixture
def double_in_place(engine):
    @cuda.jit("void(CPointer(float32), int64)")
    def kernel(data, n):
        i = cuda.grid(1)
        if i < n:
            data[i] *= 2

    return kernel


def test_a_bare_address_reaches_the_array_it_lies_in(double_in_place):
    array = cuda.to_device(np.arange(40, dtype=np.float32))
    double_in_place[1, 32](array[8:].device_ctypes_pointer.value, 16)
    expected = np.arange(40, dtype=np.float32)
    expected[8:24] *= 2
    np.testing.assert_array_equal(array.copy_to_host(), expected)


def test_a_bare_pointer_past_its_allocation_is_out_of_bounds(double_in_place):
    array = cuda.to_device(np.zeros(4, np.float32))
    with pytest.raises(sol.OutOfBounds, match="data"):
        double_in_place[1, 32](array.device_ctypes_pointer.value, 32)


def test_an_address_in_no_device_array_is_refused(double_in_place):
    with pytest.raises(sol.LaunchError, match=r"'data'.*0x10.*no device array"):
        double_in_place[1, 32](0x10, 1)


def test_memory_is_forgotten_with_its_array():
    array = cuda.device_array(7, np.int8)
    address = array.device_ctypes_pointer.value
    assert allocation_at(address + 6) is array.engine_owner
    assert allocation_at(address + 7) is None
    del array
    assert allocation_at(address) is None


def test_another_librarys_view_of_a_device_array_shares_its_memory():
    array = cuda.to_device(np.arange(6, dtype=np.int32))
    seen = cuda.as_cuda_array(Foreign(array[2:]))
    seen[0] = 99
    np.testing.assert_array_equal(array.copy_to_host(), [0, 1, 99, 3, 4, 5])


def test_another_librarys_array_is_an_argument(rng):
    host = rng.random((3, 4))
    array = cuda.to_device(host)

    @cuda.jit
    def negate(x):
        i, j = cuda.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            x[i, j] = -x[i, j]

    negate[1, (4, 4)](Foreign(array[:, ::2]))  # strided: columns 0 and 2
    expected = host.copy()
    expected[:, ::2] *= -1
    np.testing.assert_array_equal(array.copy_to_host(), expected)
    negate[1, (4, 4)](Foreign(cuda.device_array((0, 4))))
    interface = {"shape": (2, 2), "typestr": "<f8", "data": (0x7000_0000_0000, False), "version": 3}
    with pytest.raises(TypeError, match="real GPU"):
        negate[1, (4, 4)](Foreign(SimpleNamespace(__cuda_array_interface__=interface)))


def test_the_array_interface_names_memory_and_stream():
    stream = cuda.stream()
    for array in (cuda.device_array((2, 3), stream=stream), cuda.mapped_array((2, 3), stream=stream)):
        face = array.__cuda_array_interface__
        assert face["data"] == (array.gpu_data.device_pointer if hasattr(array.gpu_data, "device_pointer") else array.ctypes.data, False)
        assert (face["shape"], face["strides"], face["stream"]) == ((2, 3), None, int(stream))
    assert cuda.device_array(3).__cuda_array_interface__["stream"] is None
    assert cuda.device_array(0).__cuda_array_interface__["data"] == (0, False)
    assert cuda.device_array((4, 4))[:, :2].__cuda_array_interface__["strides"] == (32, 8)


def test_streams_are_told_apart():
    first, second = cuda.stream(), cuda.stream()
    assert int(first.handle) != int(second.handle)
    external = cuda.external_stream(0x1234)
    assert (int(external.handle), external.external) == (0x1234, True)
    assert "Default" in repr(cuda.default_stream())


def test_a_record_is_copied_into_a_host_record():
    host = np.array([(1, 2.5)], [("a", np.int32), ("b", np.float64)])
    target = np.zeros_like(host)[0]
    cuda.to_device(host[0]).copy_to_host(target)
    assert (target["a"], target["b"]) == (1, 2.5)


def test_a_strided_device_array_is_no_source_of_a_copy():
    array = cuda.to_device(np.arange(8))
    with pytest.raises(ValueError, match="non-contiguous"):
        cuda.to_device(np.arange(4)).copy_to_device(array[::2])


def test_a_view_of_the_same_bytes_has_equal_memory():
    array = cuda.to_device(np.arange(4))
    assert array.view(np.uint64).gpu_data == array.gpu_data
    assert array[1:].gpu_data != array.gpu_data


# ------------------------------------------------------------------------------------------------------ arguments and launch


def test_signed_and_unsigned_arrays_are_the_same_bits_to_an_eager_kernel():
    @cuda.jit("void(uint32[:], int32)")
    def add(x, n):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += n

    x = np.array([-1, 0, 5], np.int32)
    add[1, 32](x, 1)
    np.testing.assert_array_equal(x, [0, 1, 6])
    with pytest.raises(sol.LaunchError, match="int64"):
        add[1, 32](np.zeros(3, np.int64), 1)


def test_arguments_that_no_eager_signature_fits_are_a_type_error():
    @cuda.jit(["void(int64[::1], int64)", "void(float64[::1], float64)"])
    def several(x, y):
        x[0] = y

    with pytest.raises(TypeError, match="several: No matching definition"):
        several[1, 1](np.zeros(1, np.complex128), 1j)

    @cuda.jit("void(int32[::1], int32)")
    def one(x, y):
        x[0] = y

    with pytest.raises(TypeError, match="'y'.*int32; got 1.5"):
        one[1, 1](np.zeros(1, np.int32), 1.5)


def test_launch_bounds_bound_the_block():
    @cuda.jit(launch_bounds=64)
    def bounded(x):
        x[cuda.grid(1)] = 1

    x = np.zeros(64)
    bounded[1, 64](x)
    assert x.all()
    with pytest.raises(sol.LaunchError, match="128 threads per block; the kernel's launch_bounds allow 64"):
        bounded[1, 128](np.zeros(128))


@captures
def test_tuples_of_empty_tuples_are_arguments():
    @cuda.jit
    def lengths(out, x):
        out[0], out[1] = len(x), len(x[0])

    out = np.full(2, -1)
    lengths[1, 1](out, ((), (), ()))
    np.testing.assert_array_equal(out, [3, 0])


def test_a_device_function_is_no_kernel():
    @cuda.jit(device=True)
    def helper(x):
        return x

    with pytest.raises(RuntimeError, match="Cannot compile a device function as a kernel: helper has device=True") as caught:
        helper[1, 1](1)
    assert isinstance(caught.value, sol.LaunchError)
    assert caught.value.file == __file__


# ----------------------------------------------------------------------------------------------------- what numba says of it


@pytest.fixture
def scale(engine):
    @cuda.jit("void(float32[::1], float32)")
    def kernel(x, factor):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= factor

    return kernel


@pytest.mark.nvvm
@pytest.mark.parametrize("device", ["Tesla T4", "H100-SXM5-80GB"])
def test_inspect_asm_gives_ptx_for_the_current_device(scale, device):
    with sol.use_engine(device) as engine:
        major, minor = engine.device.compute_capability
        ((_, ptx),) = scale.inspect_asm().items()
    assert f".target sm_{major}{minor}" in ptx
    assert "ld.global" in ptx
    assert "mul.f32" in ptx


def test_inspect_asm_says_what_it_needs(scale, monkeypatch):
    from numba.cuda.cudadrv import nvvm

    def absent():
        raise OSError("libnvvm")

    monkeypatch.setattr(nvvm, "NVVM", absent)
    with pytest.raises(sol.SolcourseError, match=r"numba-cuda\[cu13\].*needs no GPU"):
        scale.inspect_asm((types.float32[::1], types.float32))


def test_inspect_sass_points_to_what_there_is(scale):
    with pytest.raises(sol.SolcourseError, match="inspect_asm"):
        next(iter(scale.overloads.values())).inspect_sass()


def test_resources_of_a_kernel():
    weights = np.arange(100.0)

    @cuda.jit("void(float64[::1], int64)")
    def kernel(x, k):
        kept = cuda.local.array(50, np.float64)
        table = cuda.const.array_like(weights)
        tile = cuda.shared.array(32, np.float32)
        tile[cuda.threadIdx.x] = 1
        for i in range(k):
            kept[(i * 7) % 50] = x[i]
        x[0] = kept[k % 50] + table[k % 100] + tile[31 - cuda.threadIdx.x]

    assert kernel.get_shared_mem_per_block() == 32 * 4
    assert kernel.get_local_mem_per_thread() >= 50 * 8
    assert kernel.get_const_mem_size() == 100 * 8
    assert 16 <= kernel.get_regs_per_thread() <= 255


def test_the_device_is_found_by_every_way_numba_looks_for_it():
    from numba.cuda.cudadrv.driver import driver

    assert driver.get_device_count() == len(cuda.gpus) == 1
    assert driver.get_device().MAX_THREADS_PER_BLOCK == cuda.get_current_device().MAX_THREADS_PER_BLOCK == 1024
    info = cuda.current_context().get_memory_info()
    assert info.free == info.total == 80e9


def test_a_kernel_is_cooperative_when_it_takes_the_grid_as_a_group(scale):
    @cuda.jit("void(int32[::1])")
    def together(x):
        cuda.cg.this_grid().sync()
        x[0] = 1

    assert next(iter(together.overloads.values())).cooperative
    assert not next(iter(scale.overloads.values())).cooperative


def test_resources_of_a_kernel_without_a_signature_are_told_by_signature(scale):
    @cuda.jit
    def kernel(x):
        kept = cuda.local.array(50, np.float64)
        for i in range(x.size):
            kept[(i * 7) % 50] = x[i]
        x[0] = kept[x.size % 50]

    kernel[1, 1](np.ones(3))
    (local,), (registers,) = kernel.get_local_mem_per_thread().values(), kernel.get_regs_per_thread().values()
    assert local >= 50 * 8
    assert 16 <= registers <= 255


def test_the_drivers_version_is_one_that_knows_the_device():
    from numba.cuda.cudadrv.driver import driver

    assert driver.get_version() >= (11, 0)  # the first with compute capability 8.0
    assert all(isinstance(part, int) for part in driver.get_version())


def test_an_engine_is_in_effect_again_in_a_second_with_block():
    @cuda.jit
    def kernel(x):
        x[0] += 1

    x, mine = np.zeros(1), sol.use_engine()
    for _ in range(3):
        with mine:
            kernel[1, 1](x)
            assert "go to the solcourse engine" in repr(mine)
        assert "closed" in repr(mine)
    assert x[0] == 3


@pytest.mark.parametrize("shape", [-1, (2, -1)])
def test_no_device_array_has_a_negative_shape(shape):
    with pytest.raises(ValueError, match="negative dimensions are not allowed"):
        cuda.device_array(shape)


@pytest.mark.parametrize(
    "make",
    [
        lambda: cuda.to_device(np.array([None, 1])),
        lambda: cuda.device_array(3, object),
        lambda: cuda.mapped_array(3, object),
        lambda: cuda.device_array(3, np.dtype([("a", "O")])),
    ],
)
def test_python_objects_are_not_taken_to_a_device(make):
    """Copied over memory that holds no object yet, they would end the process."""
    with pytest.raises(TypeError, match="cannot hold Python objects"):
        make()


def test_numpys_methods_of_a_device_array_are_on_the_host():
    array = cuda.to_device(np.ones(3))
    assert not hasattr(array, "sum")
    assert not hasattr(array, "to_numpy")
    with pytest.raises(AttributeError, match=r"no 'sum'.*copy_to_host\(\)\.sum"):
        array.sum()


def test_a_launch_that_is_written_wrongly_is_told_the_syntax():
    @cuda.jit
    def kernel(x, n=4):
        x[0] = n

    x = np.zeros(1)
    for kind in (sol.LaunchError, TypeError, ValueError):
        with pytest.raises(kind, match=r"kernel\[1\]: must specify .*kernel\[blocks_per_grid, threads_per_block\]"):
            kernel[1](x)
    with pytest.raises(TypeError, match=r"kernel: kernels take no keyword arguments, n; call it by position, \(x, n\)"):
        kernel[1, 1](x, n=3)
    with pytest.raises(TypeError, match=r"takes 2 arguments, 1 given. Kernels have no default .*pass n too"):
        kernel[1, 1](x)
    assert not x.any()
