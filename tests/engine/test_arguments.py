"""Arguments as the kernel's parameters receive them: numba's data model, by hand. No engine, no device."""

from __future__ import annotations

import collections
import dataclasses
import enum

import numpy as np
import pytest
from numba import cuda

from solcourse.errors import LaunchError
from solcourse.simt import arguments, frontend
from solcourse.simt.captured import Captured
from solcourse.simt.device_memory import allocate
from solcourse.standin_memory import DeviceArray, MappedArray, to_device_array

EVERY_DTYPE = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64]


@cuda.jit
def one(a): ...


@cuda.jit
def two(a, b): ...


@cuda.jit
def three(a, b, c): ...


def bound(kernel, *args, private=False):
    return arguments.bind(frontend.compile_kernel(kernel, frontend.argument_types(kernel, args)), args, private=private)


def numbers(kernel, *args):
    return [value for _, value in bound(kernel, *args).values]


def array_parts(array, itemsize, shape, strides):
    """meminfo, parent, nitems, itemsize, data, shape..., strides..."""
    return [0, 0, int(np.prod(shape)), itemsize, array.ctypes.data, *shape, *strides]


# ------------------------------------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize(
    ("array", "strides"),
    [
        (np.zeros(5, np.float32), (4,)),
        (np.zeros((3, 4), np.float64), (32, 8)),
        (np.zeros((3, 4), np.float64, order="F"), (8, 24)),
        (np.zeros((2, 3, 4), np.int16), (24, 8, 2)),
        (np.zeros((), np.int64), ()),
        (np.zeros(0, np.float32), np.zeros(0, np.float32).strides),  # NumPy's own, whatever they are
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32).strides),
        (np.zeros(5, np.float16), (2,)),
        (np.zeros(5, np.complex64), (8,)),
        (np.zeros(5, "M8[D]"), (8,)),
        (np.zeros(5, "S3"), (3,)),
    ],
)
def test_array_is_flattened_as_numba_does(array, strides):
    assert numbers(one, array) == array_parts(array, array.itemsize, array.shape, strides)


@pytest.mark.parametrize("dtype", [*EVERY_DTYPE, np.float16, np.complex64, np.complex128])
def test_array_of_every_dtype_binds_without_a_copy(dtype):
    array = np.zeros(7, dtype)
    (allocation,) = bound(one, array).allocations
    assert (allocation.name, allocation.address, allocation.nbytes) == ("a", array.ctypes.data, array.nbytes)
    assert (allocation.itemsize, allocation.shape) == (array.itemsize, (7,))


def test_array_of_records():
    array = np.zeros(4, np.dtype([("x", np.float32), ("n", np.int64)], align=True))
    assert numbers(one, array) == array_parts(array, 16, (4,), (16,))


def test_broadcast_host_array_keeps_its_zero_stride_and_its_one_element():
    array = np.broadcast_to(np.arange(3, dtype=np.float32), (4, 3))
    result = bound(one, array)
    assert [v for _, v in result.values] == [0, 0, 12, 4, array.ctypes.data, 4, 3, 0, 4]
    assert result.allocations[0].nbytes == 12


@pytest.mark.parametrize("view", [np.zeros(8)[::2], np.zeros((4, 4))[:, 1], np.zeros(8)[::-1], np.zeros((4, 4))[:2, :2]])
def test_host_array_with_gaps_is_numbas_value_error(view):
    with pytest.raises(ValueError, match="non-contiguous buffer") as caught:
        bound(one, view)
    assert isinstance(caught.value, LaunchError)
    assert "'a'" in str(caught.value)


# ------------------------------------------------------------------------------------------------------------------ scalars


@pytest.mark.parametrize(
    ("value", "kind", "flat"),
    [
        (5, "i64", 5),
        (-5, "i64", -5),
        (True, "i8", 1),
        (0.1, "double", 0.1),
        (np.float32(0.1), "float", float(np.float32(0.1))),
        (np.float16(1.5), "i16", 0x3E00),  # sign 0, exponent 15 + 0, mantissa 0.5 x 1024 = 0x200
        (np.int8(-1), "i8", -1),
        (np.uint8(255), "i8", 255),
        (np.uint64(2**63), "i64", 2**63),
        (np.bool_(True), "i8", 1),
        (np.datetime64("1970-01-03"), "i64", 2),
        (np.timedelta64(7, "s"), "i64", 7),
    ],
)
def test_scalar_is_one_parameter(value, kind, flat):
    assert bound(one, value).values == ((kind, flat),)


def test_complex_is_two_floats():
    assert bound(one, np.complex64(1.5 - 2j)).values == (("float", 1.5), ("float", -2.0))
    assert bound(one, 3j).values == (("double", 0.0), ("double", 3.0))


def test_not_a_number_and_infinity_pass():
    assert np.isnan(numbers(one, float("nan"))[0])
    assert numbers(one, np.float32("-inf")) == [float("-inf")]


class Colour(enum.IntEnum):
    RED = 3


def test_enum_member_is_its_value():
    assert bound(one, Colour.RED).values == (("i64", 3),)


# ---------------------------------------------------------------------------------------------------------- tuples, records


Pair = collections.namedtuple("Pair", "x y")


def test_tuples_are_their_members_in_turn():
    array = np.zeros(3)
    parts = array_parts(array, 8, (3,), (8,))
    assert numbers(two, (1, 2.5, (array, 7)), Pair(np.int8(4), True)) == [1, 2.5, *parts, 7, 4, 1]
    assert bound(one, (1, (2, array))).allocations[0].name == "a[1][1]"
    assert numbers(two, (), 1) == [1]


def test_record_is_a_pointer_and_is_written_back():
    records = np.zeros(3, np.dtype([("x", np.float32), ("n", np.int64)], align=True))
    result = bound(one, records[1])
    (allocation,) = result.allocations
    assert result.values == (("ptr", allocation.address),)
    allocation.array["x"] = 2.5
    result.write_back()
    assert records["x"].tolist() == [0, 2.5, 0]


# ------------------------------------------------------------------------------------------------------------------ overlap


def test_separate_arrays_are_not_copied():
    a, b = np.zeros(4), np.zeros(4)
    assert [m.address for m in bound(two, a, b).allocations] == [a.ctypes.data, b.ctypes.data]


def test_neighbouring_parts_of_one_array_are_not_copied():
    whole = np.zeros(8)
    assert [m.address for m in bound(two, whole[:4], whole[4:]).allocations] == [whole[:4].ctypes.data, whole[4:].ctypes.data]


def test_one_array_twice_is_two_copies_and_the_last_is_what_remains():
    array = np.arange(4.0)
    result = bound(three, array, np.zeros(1), array)
    first, _, last = result.allocations
    assert len({first.address, last.address, array.ctypes.data}) == 3
    first.array[:], last.array[:] = 1, 2
    assert array.tolist() == [0, 1, 2, 3]  # not before write_back
    result.write_back()
    assert array.tolist() == [2, 2, 2, 2]


def test_partly_overlapping_arrays_are_written_back_in_argument_order():
    whole = np.zeros(6)
    result = bound(two, whole[2:], whole[:4])
    later, earlier = result.allocations
    later.array[:], earlier.array[:] = 1, 2
    result.write_back()
    assert whole.tolist() == [2, 2, 2, 2, 1, 1]


def test_array_around_two_others_separates_all_three():
    whole = np.zeros(9)
    addresses = [m.address for m in bound(three, whole, whole[1:2], whole[7:8]).allocations]
    assert not set(addresses) & {whole.ctypes.data, whole[1:2].ctypes.data, whole[7:8].ctypes.data}


def test_copies_keep_fortran_order():
    array = np.zeros((3, 4), order="F")
    parts = numbers(two, array, array)
    assert parts[7:9] == [8, 24]


def test_private_binding_touches_nothing():
    host, device = np.zeros(4), to_device_array(np.zeros(4))
    result = bound(two, host, device, private=True)
    for allocation in result.allocations:
        np.asarray(allocation.array).view(np.uint8)[:] = 255
    result.write_back()
    assert host.tolist() == device.copy_to_host().tolist() == [0] * 4
    assert {a.address for a in result.allocations}.isdisjoint({host.ctypes.data, device.engine_view.ctypes.data})
    assert result.values[-3][1] == result.allocations[0].address  # the device array's pointer follows its copy


def test_in_and_out_hints_say_what_is_copied():
    a, b = np.zeros(2), np.zeros(2)
    result = bound(two, cuda.In(a), cuda.Out(b))
    for allocation in result.allocations:
        allocation.array[:] = 5
    result.write_back()
    assert (a.tolist(), b.tolist()) == ([0, 0], [5, 5])


# ------------------------------------------------------------------------------------------------------------ device arrays


def test_device_view_is_bounded_by_its_whole_allocation():
    array = to_device_array(np.arange(12, dtype=np.float32))
    view = array[3:9:2]
    result = bound(one, view)
    assert [v for _, v in result.values] == [0, 0, 3, 4, array.engine_view.ctypes.data + 12, 3, 8]
    (allocation,) = result.allocations
    assert (allocation.address, allocation.nbytes) == (array.engine_view.ctypes.data, 48)


def test_views_of_one_device_array_share_one_allocation_and_no_copy():
    array = to_device_array(np.zeros((4, 4)))
    result = bound(two, array[1:], array[:, 2])
    assert len(result.allocations) == 1
    assert result.allocations[0].array is array.engine_owner


def test_device_memory_is_aligned_as_cudamalloc_and_holds_rubbish():
    array = DeviceArray((5,), (4,), np.float32)
    assert array.engine_view.ctypes.data % 256 == 0
    assert np.isnan(array.copy_to_host()).all()


def test_mapped_memory_is_shared_not_copied():
    raw = allocate(32)
    mapped = np.ndarray((4,), np.float64, raw).view(MappedArray)
    mapped.device_setup(raw)
    result = bound(two, mapped, mapped[1:])
    assert len(result.allocations) == 1
    assert result.allocations[0].address == raw.ctypes.data


def test_captured_device_arrays_follow_the_arguments():
    array = to_device_array(np.zeros(3))
    ir = frontend.compile_kernel(one, frontend.argument_types(one, (1,)))
    captured = Captured("table", array.engine_owner, array)
    result = arguments.bind(dataclasses.replace(ir, captured=(captured,), parameters=(*ir.parameters, "ptr")), (1,))
    assert result.values[-1] == ("ptr", array.engine_view.ctypes.data)
    assert (result.allocations[0].name, result.allocations[0].shape, result.allocations[0].itemsize) == ("table", (3,), 8)


# ---------------------------------------------------------------------------------------------- compiled for something else


def types_of(*values):
    return tuple(one.typeof_pyval(v) for v in values)


@pytest.mark.parametrize(
    ("compiled_for", "given"),
    [
        (np.zeros(3, np.float32), np.zeros(3, np.float64)),
        (np.zeros(3), np.zeros((3, 1))),
        (np.zeros((2, 3)), np.zeros((2, 3), order="F")),
        (1, "x"),
        (1, 2.5),
        (1.0, "x"),
        ((1, 2), (1, 2, 3)),
    ],
)
def test_argument_of_another_type_than_compiled_for_is_refused(compiled_for, given):
    ir = frontend.compile_kernel(one, types_of(compiled_for))
    with pytest.raises(LaunchError, match="'a'.*compiled for"):
        arguments.bind(ir, (given,))


def test_numbers_are_converted_to_what_was_compiled_for():
    assert arguments.bind(frontend.compile_kernel(one, types_of(1.0)), (3,)).values == (("double", 3.0),)
    assert arguments.bind(frontend.compile_kernel(one, types_of(np.int8(1))), (300,)).values == (("i8", 44),)  # 300 - 256, as C does


def test_contiguous_array_fits_a_kernel_compiled_for_any_layout():
    strided = to_device_array(np.zeros(8))[::2]
    ir = frontend.compile_kernel(one, types_of(strided))
    assert arguments.bind(ir, (np.zeros(4),)).values[-1] == ("i64", 8)


def test_argument_extensions_are_applied():
    class Doubling:
        def prepare_args(self, kind, value, **extra):
            return kind, value * 2 if isinstance(value, int) else value

    @cuda.jit(extensions=[Doubling()])
    def extended(a): ...

    assert numbers(extended, 21) == [42]
