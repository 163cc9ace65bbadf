"""Copies of a launch's arrays: what overlaps stays so, what is set back, and what is said of arrays that differ."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from numba import cuda

from solcourse.launch_arrays import POISON, LaunchArrays, difference


class Pair(NamedTuple):
    first: object
    second: object


def copies_of(gpu, args, names, only_written=frozenset(), most=3):
    arrays = LaunchArrays(gpu, args, names, frozenset(only_written))
    return arrays, arrays.make(arrays.bytes_now(), most)


def test_copies_hold_the_same_values_in_other_memory(make_gpu):
    x = cuda.to_device(np.arange(6, dtype=np.int32).reshape(2, 3))
    arrays, copies = copies_of(make_gpu(), (x, 5), ("x", "n"))
    places = {c[0].__cuda_array_interface__["data"][0] for c in [arrays.original, *copies.args]}
    assert len(places) == 4
    for array, n in copies.args:
        assert array.copy_to_host().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert n == 5


def test_layouts_survive_copying(make_gpu):
    base = cuda.to_device(np.arange(24, dtype=np.float64).reshape(4, 6))
    fortran = cuda.to_device(np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    views = (base[::2, 1:5], fortran, base[1:3])
    _, copies = copies_of(make_gpu(), views, ("a", "b", "c"))
    for view, copy in zip(views, copies.args[0], strict=True):
        assert (copy.shape, copy.strides, copy.dtype) == (view.shape, view.strides, view.dtype)
        assert copy._numba_type_ == view._numba_type_


def test_what_overlaps_overlaps_in_each_copy(make_gpu):
    base = cuda.to_device(np.zeros(10, np.int32))
    arrays, copies = copies_of(make_gpu(), (base[:6], base[4:], base), ("a", "b", "all"))
    assert len(copies.regions[0]) == 1
    a, b, whole = copies.args[0]
    a[5:6].copy_to_device(np.array([7], np.int32))
    assert b.copy_to_host().tolist() == [0, 7, 0, 0, 0, 0]
    assert whole.copy_to_host()[5] == 7
    assert base.copy_to_host().tolist() == [0] * 10


def test_arrays_in_tuples_and_records_are_found(make_gpu):
    record = np.dtype([("x", np.float32), ("n", np.int64)])
    points = np.zeros(3, record)
    points["n"] = [1, 2, 3]
    pair = Pair(np.ones(2), (np.full(2, 2.0), 4))
    arrays, copies = copies_of(make_gpu(), (pair, points), ("pair", "points"))
    assert [p.name for p in arrays.parts] == ["pair[0]", "pair[1][0]", "points"]
    copied, records = copies.args[1]
    assert isinstance(copied, Pair)
    assert copied.second[1] == 4
    assert records.copy_to_host()["n"].tolist() == [1, 2, 3]


def test_empty_arrays_are_passed_as_they_are(make_gpu):
    arrays, copies = copies_of(make_gpu(), (np.zeros(0), np.ones(1)), ("a", "b"))
    assert [p.name for p in arrays.parts] == ["b"]
    assert copies.args[0][0].size == 0


def test_only_arrays_that_are_never_read_are_poisoned(make_gpu):
    base = cuda.to_device(np.zeros(4, np.uint8))
    args = (np.ones(2, np.uint8), np.ones(2, np.uint8), base[:2], base)
    _, copies = copies_of(make_gpu(), args, ("read", "out", "shared_out", "all"), {"out", "shared_out"})
    copies.set_back(0)
    read, out, shared, _ = (a.copy_to_host().tolist() for a in copies.args[0])
    assert out == [POISON] * 2
    assert read == [1, 1]
    assert shared == [0, 0]  # it overlaps an array that is read


def test_copies_are_as_many_as_fit(make_gpu):
    x = np.zeros(1000, np.uint8)
    for free, wanted in ((10_000, 7), (4000, 2), (2600, 1)):  # 80 % of it, less the template's 1000
        _, copies = copies_of(make_gpu(free_bytes=free), (x,), ("x",), most=50)
        assert (len(copies), copies.borrowed) == (wanted, False)
    assert len(copies_of(make_gpu(), (x,), ("x",), most=50)[1]) == 50


def test_without_room_the_arrays_themselves_are_taken(make_gpu):
    x = cuda.to_device(np.arange(1000, dtype=np.uint8))
    arrays, copies = copies_of(make_gpu(free_bytes=2000), (x,), ("x",))
    assert copies.borrowed
    assert copies.args == [arrays.original]
    x.copy_to_device(np.zeros(1000, np.uint8))
    copies.set_back(0)
    assert x.copy_to_host()[7] == 7


def test_where_free_memory_is_unknown_one_copy_is_taken(make_gpu):
    gpu = make_gpu()

    def pool():
        raise NotImplementedError

    gpu.current_context = lambda: SimpleNamespace(get_memory_info=pool)
    _, copies = copies_of(gpu, (np.zeros(1000),), ("x",))
    assert (len(copies), copies.borrowed) == (1, False)


def test_host_arrays_get_results_back_as_numba_gives_them(make_gpu):
    plain, only_in, frozen = np.zeros(2), np.zeros(2), np.zeros(2)
    frozen.flags.writeable = False
    arrays = LaunchArrays(make_gpu(), (plain, cuda.In(only_in), frozen), ("a", "b", "c"))
    for array in arrays.original:
        array.copy_to_device(np.ones(2))
    arrays.give_back()
    assert [a.tolist() for a in (plain, only_in, frozen)] == [[1, 1], [0, 0], [0, 0]]


# ------------------------------------------------------------------------------------------------------------- differences
A = np.arange(8, dtype=np.float32)


def unlike(wanted, got, before=None):
    return difference("out", np.asarray(wanted), np.asarray(got), np.asarray(before if before is not None else np.full_like(wanted, 99)))


def test_equal_arrays_do_not_differ():
    nan = np.array([np.nan, 1, -0.0], np.float32)
    assert unlike(nan, np.array([np.nan, 1, 0.0], np.float32)) is None


@pytest.mark.parametrize(
    ("got", "kind", "words"),
    [
        (A + np.float32([0, 0, 0, 5, 0, 0, 0, 0]), "values", "1 of 8 elements of out differ: first out[3], 8.0 instead of 3.0"),
        (np.where(A < 6, A, np.float32(99)), "unwritten", "2 of 8 elements of out were not written: out[6] should be 6.0"),
        (A[::-1].copy(), "order", "8 of 8 elements of out hold the same values in another order"),
        (A * np.float32(1 + 1e-6), "rounding", "in their last digits"),
        (np.full_like(A, np.nan), "values", "8 of 8 elements"),
    ],
)
def test_what_differs_is_said_by_kind(got, kind, words):
    found = unlike(A, got)
    assert (found.kind, words in str(found)) == (kind, True)


def test_integers_have_no_last_digits():
    assert unlike(np.array([1_000_000]), np.array([1_000_001])).kind == "values"


def test_a_place_has_as_many_numbers_as_the_array_dimensions():
    wanted, got = np.zeros((2, 3), int), np.zeros((2, 3), int)
    got[1, 2] = 4
    assert "out[1, 2], 4 instead of 0" in str(unlike(wanted, got))


def test_records_are_compared_by_their_bytes():
    kind = np.dtype([("x", np.float32), ("n", np.int16)])
    wanted, got = np.zeros(3, kind), np.zeros(3, kind)
    got["n"][1] = 3
    found = difference("out", wanted, got, np.zeros(3, kind))
    assert (found.count, found.index) == (1, (1,))
