"""print() in kernels goes through sys.stdout after the launch: block after block, lane after lane, in a bounded buffer."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from numba import cuda

import solcourse as sol
from solcourse.errors import OutOfBounds
from solcourse.simt import printing
from solcourse.simt.no_device import front_end


def test_numbers_and_text_are_printed_as_the_gpu_prints_them(launch, capsys):
    @cuda.jit
    def kernel(x, n):
        i = cuda.grid(1)
        if i < 2:
            print("lane", i, x[i], n, -3)

    launch(kernel[1, 32], np.array([0.5, 2.25] + [0.0] * 30), np.uint8(200))
    assert capsys.readouterr().out == "lane 0 0.500000 200 -3\nlane 1 2.250000 200 -3\n"


@pytest.mark.skipif(front_end() != "numba-cuda", reason="numba's own numba.cuda cannot print these")
def test_booleans_tuples_and_dimensions_are_printed(launch, capsys):
    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        print(x[i] > 1, (i, 0.5), cuda.blockIdx)

    launch(kernel[1, 2], np.array([1, 2]))
    assert capsys.readouterr().out == "False (0, 0.500000) (0, 0, 0)\nTrue (1, 0.500000) (0, 0, 0)\n"


def test_print_without_arguments_is_an_empty_line(launch, capsys):
    @cuda.jit
    def kernel():
        print()
        print("end")

    launch(kernel[1, 1])
    assert capsys.readouterr().out == "\nend\n"


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_lines_come_in_the_order_of_blocks_whatever_the_number_of_threads(launch, capsys, threads):
    @cuda.jit
    def kernel():
        if cuda.threadIdx.x % 16 == 3:
            print(cuda.blockIdx.x, cuda.threadIdx.x)

    launch(kernel[300, 64], threads=threads)
    wanted = [f"{b} {t}\n" for b in range(300) for t in (3, 19, 35, 51)]
    assert capsys.readouterr().out == "".join(wanted)


def test_a_loop_prints_all_lanes_of_one_turn_before_the_next(launch, capsys):
    @cuda.jit
    def kernel():
        for turn in range(3):
            print(turn, cuda.laneid)

    launch(kernel[1, 2])
    assert capsys.readouterr().out == "0 0\n0 1\n1 0\n1 1\n2 0\n2 1\n"


def test_different_lines_in_the_branches_of_an_if(launch, capsys):
    """LLVM may merge the two calls into one whose format depends on the lane."""

    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        if x[i] > 1:
            print("large", x[i])
        else:
            print("small", i, x[i])

    launch(kernel[1, 3], np.array([1, 2, 0]))
    assert sorted(capsys.readouterr().out.splitlines()) == ["large 2", "small 0 1", "small 2 0"]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_buffer_is_bounded_and_says_how_much_was_lost(launch, capsys, threads):
    """A record is 24 bytes and 8 of arguments: 32768 lines fit into 1 MiB."""

    @cuda.jit
    def kernel():
        print(cuda.grid(1))

    launch(kernel[2000, 32], threads=threads)
    fits = printing.BUFFER_BYTES // (printing.HEAD_BYTES + 8)
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == [str(n) for n in range(fits)]
    assert last.startswith(f"[{64000 - fits:,} more lines did not fit")


def test_what_was_printed_before_a_fault_is_shown(launch, capsys):
    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        if i % 32 == 0:
            print("block", cuda.blockIdx.x)
        x[i] = 1

    with pytest.raises(OutOfBounds):
        launch(kernel[100, 32], np.zeros(64))
    assert capsys.readouterr().out == "block 0\nblock 1\nblock 2\n"  # the fault is in block 2


def test_printing_costs_the_counts_of_other_lines_nothing(launch, counts_at, capsys):
    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        x[i] = 1  # the store
        print(i)

    run = launch(kernel[1, 32], np.zeros(32))
    assert counts_at(run, kernel, "the store").global_store.requests == 1
    assert len(capsys.readouterr().out.splitlines()) == 32


@pytest.mark.parametrize(
    ("form", "arguments", "wanted"),
    [
        ("%d%%|%5d|%-4u|\n", (np.int32([-1, 7, 9]).tobytes()), "-1%|    7|9   |\n"),
        ("%lld %llu\n", np.int64([-1, -1]).tobytes(), f"-1 {2**64 - 1}\n"),
        ("%d %f %d\n", np.int32([1, 0]).tobytes() + np.float64([2.5]).tobytes() + np.int32([3]).tobytes(), "1 2.500000 3\n"),
        ("%.3e %g %x\n", np.float64([1234.5, 0.5]).tobytes() + np.int32([255]).tobytes(), "1.234e+03 0.5 ff\n"),
        ("%f %f\n", np.float64([np.nan, -np.inf]).tobytes(), "nan -inf\n"),
        ("%s and %s\n", np.int64([16, 32]).tobytes(), "<16> and <32>\n"),
    ],
)
def test_formats_are_those_of_printf(form, arguments, wanted):
    """Arguments lie as in a structure: each aligned to its own size."""
    assert printing.formatted(form, arguments, lambda address: f"<{address}>") == wanted


@pytest.mark.parametrize("stream", ["none", "closed", "ascii"])
def test_a_launch_does_not_fail_for_want_of_a_place_to_print_to(launch, monkeypatch, stream):
    @cuda.jit
    def kernel(x):
        print("\u00b5 =", x[0])
        x[0] = 7

    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    if stream == "closed":
        out.close()
    monkeypatch.setattr(sys, "stdout", None if stream == "none" else out)
    x = np.ones(1)
    launch(kernel[1, 1], x)
    assert x[0] == 7
    if stream == "ascii":
        assert out.buffer.getvalue() == b"\\xb5 = 1.000000\n"


def test_the_advice_about_local_memory_names_print(capsys):
    @cuda.jit
    def kernel(x):
        print("x =", x[0])

    advice = [a for a in sol.profile(kernel[1, 32], np.ones(1)).advice if a.kind == "local_memory"]
    assert [("print() hands its arguments over" in a.text, "local array" in a.text) for a in advice] == [(True, False)]
