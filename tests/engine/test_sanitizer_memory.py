"""Which bytes of device memory have been written: what `bind` tells of an allocation, against a mask that NumPy keeps by the same steps."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from numba import cuda

import solcourse as sol
from solcourse.simt import arguments, device_memory, frontend

SHAPE = (4, 6)


@cuda.jit
def takes(x):
    pass


@cuda.jit
def takes_two(x, y):
    pass


@cuda.jit
def first_cell(x):
    x[0] = 1


@pytest.fixture(autouse=True)
def engine():
    with sol.use_engine():
        yield


def bound(value, kernel=takes, **options):
    return arguments.bind(frontend.compile_kernel(kernel, frontend.argument_types(kernel, (value,))), (value,), **options)


def written(value) -> np.ndarray | None:
    """The map of the allocation that `value` is in."""
    return bound(value).allocations[0].initialised


def mask(array) -> np.ndarray:
    """Of a C-contiguous device array that is a whole allocation: True where every byte of an element has been written."""
    map_ = written(array)
    return np.ones(array.shape, bool) if map_ is None else map_.reshape((*array.shape, array.dtype.itemsize)).all(-1)


def nothing_of(array) -> bool:
    return not written(array).any()


# ------------------------------------------------------------------------------------------------------------- fresh memory
@pytest.mark.parametrize(
    "make",
    [
        lambda: cuda.device_array(5, np.float32),
        lambda: cuda.device_array((3, 4), order="F"),
        lambda: cuda.device_array_like(np.zeros(7)),
        lambda: cuda.device_array_like(cuda.to_device(np.zeros(7))),
        lambda: cuda.to_device(np.zeros(7), copy=False),
        lambda: cuda.mapped_array(16, np.float64),
        lambda: cuda.managed_array(16, np.float64),
        lambda: cuda.mapped_array_like(np.zeros(32)),
    ],
)
def test_fresh_device_memory_has_not_been_written(make):
    array = make()
    assert nothing_of(array)
    assert written(array).size == array.nbytes


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.empty(5),
        lambda: cuda.pinned_array(5),
        lambda: cuda.to_device(np.zeros(5)),
        lambda: cuda.to_device(np.asfortranarray(np.zeros((3, 5)))),
        lambda: cuda.to_device(np.broadcast_to(np.float32(2), (3, 4))),
        lambda: cuda.to_device(np.zeros(3, np.dtype([("a", np.int8), ("b", np.float64)], align=True))),
        lambda: cuda.to_device(np.zeros((2, 3))).T,
    ],
)
def test_the_hosts_memory_and_copies_of_it_count_as_written(make):
    assert written(make()) is None


def test_an_out_argument_is_not_copied_to_the_device():
    x = np.zeros(5)
    assert nothing_of(cuda.Out(x))
    assert written(cuda.InOut(x)) is written(cuda.In(x)) is None


def test_an_address_and_a_view_lead_to_the_map_of_the_whole():
    array = cuda.device_array(SHAPE, np.float32)
    array[1] = 3
    assert written(cuda.as_cuda_array(array)[2:, 1]) is array.engine_owner.initialised
    assert written(array.view(np.int32)).sum() == 6 * 4


# --------------------------------------------------------------------------------------------------- copies and assignments
KEYS = [
    2,
    (1, 3),
    (-1, -2),
    slice(1, 3),
    (slice(None), 4),
    (slice(None, None, 2), slice(5, None, -3)),
    (slice(3, 0, -1), slice(1, 2)),
    slice(0, 0),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.complex128])
def test_an_assignment_writes_what_numpy_would(key, dtype):
    array, expected = cuda.device_array(SHAPE, dtype), np.zeros(SHAPE, bool)
    array[key] = 1
    expected[key] = True
    np.testing.assert_array_equal(mask(array), expected)


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_copy_between_devices_copies_what_has_not_been_written(key, dtype):
    """From a checkerboard, once of the same and once of another dtype, into memory that was written and into memory that was not."""
    source, board = cuda.device_array(SHAPE, np.float32), np.add.outer(range(4), range(6)) % 2 == 0
    for i, j in np.argwhere(board):
        source[i, j] = 1
    for expected in (np.zeros(SHAPE, bool), np.ones(SHAPE, bool)):
        target = cuda.to_device(np.zeros(SHAPE, dtype)) if expected.all() else cuda.device_array(SHAPE, dtype)
        part = source[key]
        if not hasattr(part, "engine_view"):
            continue  # a single element is read by the host
        target[key] = part
        expected[key] = board[key]
        np.testing.assert_array_equal(mask(target), expected)


def test_half_an_element_is_copied_as_half_of_it_but_converted_as_none_of_it():
    source = cuda.device_array(4, np.int32)
    source.view(np.int16)[2:5] = 1  # element 1, and half of element 2
    alike, wider = cuda.device_array(4, np.uint32), cuda.device_array(4, np.float64)
    alike[:] = source
    wider[:] = source
    assert np.flatnonzero(written(alike)).tolist() == list(range(4, 10))
    assert np.flatnonzero(written(wider)).tolist() == list(range(8, 16))


def test_a_row_of_unwritten_memory_is_repeated_as_such():
    row, target = cuda.device_array(6, np.float32), cuda.to_device(np.zeros(SHAPE, np.float32))
    row[2:4] = 1
    target[1:] = row
    expected = np.ones(SHAPE, bool)
    expected[1:] = [False, False, True, True, False, False]
    np.testing.assert_array_equal(mask(target), expected)


def test_copy_to_device_copies_from_device_and_host():
    source, target = cuda.device_array(SHAPE), cuda.to_device(np.zeros(SHAPE))
    source[:, 1] = 1
    target.copy_to_device(source)
    np.testing.assert_array_equal(mask(target), np.arange(6) == np.full((4, 1), 1))
    target[2].copy_to_device(np.zeros(6))
    assert mask(target).sum() == 6 + 3
    target.copy_to_device(np.zeros(SHAPE))
    assert written(target) is None  # nothing is left to remember


def test_a_transposed_copy_of_unwritten_memory_is_unwritten_there():
    array = cuda.device_array(SHAPE)
    array[1, 2] = 1
    expected = np.zeros((6, 4), bool)
    expected[2, 1] = True
    np.testing.assert_array_equal(mask(array.T), expected)


def test_fields_of_records_are_written_one_by_one():
    kind = np.dtype([("a", np.int32), ("b", np.float64, 2)], align=True)  # a at 0, b at 8 .. 23, of 24 bytes
    array = cuda.device_array(3, kind)
    array[1]["a"] = 5
    array[2]["b"] = 7
    assert np.flatnonzero(written(array)).tolist() == [*range(24, 28), *range(56, 72)]
    array[0] = np.zeros((), kind)
    assert written(array)[:24].all()


def test_split_and_reshape_write_into_the_whole():
    array = cuda.device_array(10, np.int16)
    _, second, _ = array.split(4)
    second[:] = 1
    array.reshape(2, 5)[0, 0] = 1
    assert np.flatnonzero(mask(array)).tolist() == [0, 4, 5, 6, 7]


def test_reading_on_the_host_is_no_write():
    array = cuda.device_array(8)
    array.copy_to_host()
    array[3]
    assert nothing_of(array)
    assert written(cuda.to_device(array.copy_to_host())) is None  # the host's arrays count as written


def test_an_allocation_says_whether_the_arguments_are_all_of_it():
    array = cuda.to_device(np.zeros(SHAPE))
    pair = frontend.compile_kernel(takes_two, frontend.argument_types(takes_two, (array, array)))
    assert arguments.bind(pair, (array, array)).allocations[0].viewed_in_part is False
    assert bound(array.ravel()).allocations[0].viewed_in_part is False
    assert bound(array[1]).allocations[0].viewed_in_part is True
    assert arguments.bind(pair, (array, array[:2])).allocations[0].viewed_in_part is True
    assert arguments.bind(pair, (array[:2], array)).allocations[0].viewed_in_part is True


# ------------------------------------------------------------------------------------------- memory that the host writes too
@pytest.mark.parametrize("make", [cuda.mapped_array, cuda.managed_array])
def test_what_the_host_writes_into_shared_memory_is_seen_in_chunks(make):
    array = make(64, np.float32)
    np.asarray(array)[8:10] = -1.0  # past every method of the array
    assert np.flatnonzero(mask(array)).tolist() == [8, 9, 10, 11]  # a chunk: 16 bytes
    array[:] = -1.0
    assert mask(array).all()


@pytest.mark.parametrize("value", [-1, 0, 255])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.float16, np.float32])
@pytest.mark.parametrize("n", [1, 2, 3, 15, 16, 17, 1000])
def test_no_value_that_the_host_fills_shared_memory_with_looks_unwritten(value, dtype, n):
    array = cuda.managed_array(n, dtype)
    array[:] = np.array(value).astype(dtype)
    map_ = written(array)
    assert map_.all()


def test_shared_memory_shows_rubbish_where_it_was_not_written():
    for dtype in (np.float32, np.float64):
        assert np.isnan(cuda.managed_array(100, dtype)).all()
    assert (cuda.mapped_array(100, np.int32) < 0).all()


# ----------------------------------------------------------------------------------------------------------------- launches
def test_a_launch_that_nobody_watches_may_have_written_everything():
    array, other = cuda.device_array(8), cuda.device_array(8)
    first_cell[1, 1](array)
    assert written(array) is None
    assert nothing_of(other)
    shared = cuda.managed_array(8)
    first_cell[1, 1](shared)
    assert written(shared) is None


def test_a_launch_that_nobody_watches_and_that_fails_may_have_written_everything_too():
    array = cuda.device_array(8)
    with pytest.raises(sol.OutOfBounds):
        beyond[1, 32](array)
    assert written(array) is None


@cuda.jit
def beyond(x):
    x[cuda.grid(1)] = 1


def test_who_watches_a_launch_goes_on_with_the_map_of_the_memory():
    array = cuda.device_array(8, np.float32)
    bound(array).allocations[0].initialised[4:8] = 1  # as the engine does where the kernel wrote
    assert np.flatnonzero(mask(array)).tolist() == [1]


def test_a_private_copy_has_a_map_of_its_own():
    array = cuda.device_array(8, np.float32)
    array[0] = 1
    copy = bound(array, private=True)
    (allocation,) = copy.allocations
    assert np.flatnonzero(allocation.initialised).tolist() == [0, 1, 2, 3]
    allocation.initialised[:] = 1
    allocation.array[:] = 0
    copy.assume_written()
    assert np.flatnonzero(mask(array)).tolist() == [0]
    assert array.copy_to_host()[0] == 1


@pytest.mark.skipif(frontend.front_end() != "numba-cuda", reason="only numba-cuda captures device arrays")
def test_a_captured_array_has_its_map():
    table = cuda.device_array(4, np.float32)
    table[1] = 1

    @cuda.jit
    def uses(x):
        x[0] = table[1]

    captured = {allocation.name: allocation for allocation in bound(np.zeros(1), uses).allocations}["table"]
    assert np.flatnonzero(captured.initialised).tolist() == [4, 5, 6, 7]


def test_the_map_goes_with_the_memory():
    array = cuda.device_array(8)
    address = array.engine_view.ctypes.data
    assert device_memory.allocation_at(address) is array.engine_owner
    del array
    gc.collect()
    assert device_memory.allocation_at(address) is None
