"""FLOPs as compiled, exactly: adds, multiplies, 2 for an FMA; by type, per active lane."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import cuda, float32

from solcourse.kernels import cases
from solcourse.kernels.polynomial import DEGREE
from solcourse.kernels.saxpy import saxpy
from solcourse.kernels.vector_add import vector_add


def flops_of(launch, rng, name, *shape, dtype=None):
    c = {**cases()}[name]
    arguments = c.make(rng, *shape) if dtype is None else c.make(rng, *shape, dtype=dtype)
    return launch(c.configured(*shape), *arguments).counts.flops


@pytest.mark.parametrize("name", [name for name in cases("matmul") if "register" not in name])
def test_matmul_does_2mnk(launch, rng, name):
    """One FMA for each of the M*N*K products: 2 * 32 * 48 * 64."""
    flops = flops_of(launch, rng, name, 32, 48, 64)
    assert flops["fp32"] == 2 * 32 * 48 * 64
    assert flops["fp64"] == flops["fp16"] == 0


@pytest.mark.parametrize("name", [name for name in cases("matmul") if "register" in name])
def test_register_tiled_matmul_does_2mnk(launch, rng, name):
    flops = flops_of(launch, rng, name, 128, 256, 24)
    assert flops["fp32"] == 2 * 128 * 256 * 24
    assert flops["fp64"] == 0


def test_matmul_in_float64_counts_as_float64(launch, rng):
    """float32(0.0) plus products of float64: all of it in float64."""
    flops = flops_of(launch, rng, "matmul_coalesced", 16, 16, 16, dtype=np.float64)
    assert flops["fp64"] == 2 * 16**3
    assert flops["fp32"] == 0


def test_guarded_tiles_do_the_padding_too(launch, rng):
    """17 x 17 x 17 in tiles of 16: the kernel computes 2 * 32 * 32 * 32, of which 2 * 17^3 are wanted."""
    assert flops_of(launch, rng, "matmul_tiled", 17, 17, 17)["fp32"] == 2 * 32**3


@pytest.mark.parametrize("n", [1024, 1000, 1, 33])
def test_lanes_that_are_off_do_no_flops(launch, n):
    """n adds; n FMAs."""
    x, y, out = (np.ones(n, np.float32) for _ in range(3))
    assert launch(vector_add[4, 256], x, y, out).counts.flops["fp32"] == n
    assert launch(saxpy[4, 256], np.float32(2), x, y, out).counts.flops["fp32"] == 2 * n


def test_grid_stride_does_the_same_flops(launch, rng):
    assert flops_of(launch, rng, "saxpy_grid_stride", 5000)["fp32"] == 2 * 5000


def test_integers_do_no_flops(launch):
    x, y, out = (np.ones(1024, np.int32) for _ in range(3))
    counts = launch(vector_add[4, 256], x, y, out).counts
    assert counts.total_flops == 0
    assert counts.int_ops >= 1024


def test_horner_does_2_per_degree(launch, rng):
    flops = flops_of(launch, rng, "polynomial", 999)
    assert (flops["fp32"], flops["fp64"]) == (2 * DEGREE * 999, 0)


def test_four_chains_do_the_same(launch, rng):
    """4096 = 4 elements for each of 4 * 256 threads."""
    assert flops_of(launch, rng, "polynomial_four_chains", 4096)["fp32"] == 2 * DEGREE * 4096


def test_a_float64_literal_moves_every_flop(launch, rng):
    flops = flops_of(launch, rng, "polynomial_float64_literal", 999)
    assert (flops["fp32"], flops["fp64"]) == (0, 2 * DEGREE * 999)


def test_complex_axpy_does_8(launch, rng):
    """4 multiplies, 1 subtraction, 1 addition for the product, 2 additions: 8, fused or not."""
    assert flops_of(launch, rng, "complex_axpy", 777)["fp32"] == 8 * 777


def test_a_reduction_adds_once_per_thread_and_step(launch, rng):
    """One block of 256, sequential: 128 + 64 + ... + 1 = 255 adds."""
    for name in ("reduce_interleaved", "reduce_strided", "reduce_sequential"):
        assert flops_of(launch, rng, name, 256)["fp32"] == 255
    # two elements per thread: 256 more
    assert flops_of(launch, rng, "reduce_first_add", 512)["fp32"] == 256 + 255
    # shuffles: 8 warps, then one again. In 4 steps all 32 lanes add, whatever they hold; the result of the fifth is only used
    # by lane 0, and the compiler moves that add into its branch
    assert flops_of(launch, rng, "reduce_shuffle", 512)["fp32"] == 256 + (8 + 1) * (4 * 32 + 1)


@cuda.jit
def one_of_each(x, y, out):
    i = cuda.grid(1)
    a, b = x[i], y[i]
    out[i, 0] = a + b  # an add
    out[i, 1] = a - b  # a subtraction
    out[i, 2] = a * b  # a multiply
    out[i, 3] = a * b + a  # an fma
    out[i, 4] = -a  # a negation is a change of sign, not a FLOP
    out[i, 5] = a


@pytest.mark.parametrize(("dtype", "kind"), [(np.float32, "fp32"), (np.float64, "fp64")])
def test_flops_of_each_operation(launch, counts_at, dtype, kind):
    """a * b may be shared by two lines, or fused into one: a + b, a - b, a * b, a * b + a are 1 + 1 + 1 + 2 (fused)."""
    run = launch(one_of_each[2, 32], np.ones(64, dtype), np.ones(64, dtype), np.zeros((64, 6), dtype))
    assert run.counts.flops[kind] in (64 * 5, 64 * 4)  # 4 where the product is computed once and then added
    assert counts_at(run, one_of_each, "# an add").flops[kind] == 64
    assert counts_at(run, one_of_each, "# a subtraction").flops[kind] == 64
    assert counts_at(run, one_of_each, "# a negation").flops[kind] == 0


@cuda.jit
def in_a_branch(x, out):
    i = cuda.grid(1)
    total = x[i]
    if i % 4 == 0:
        for _ in range(10):
            total = total * total + float32(1.0)  # in the branch
        out[i] = total


def test_flops_in_a_branch_count_its_lanes(launch, counts_at):
    """A quarter of 256 threads, 10 FMAs each: 64 * 10 * 2."""
    run = launch(in_a_branch[4, 64], np.zeros(256, np.float32), np.zeros(256, np.float32))
    assert counts_at(run, in_a_branch, "# in the branch").flops["fp32"] == 64 * 10 * 2
    assert run.counts.flops["fp32"] == 64 * 10 * 2


@cuda.jit
def library(x, out):
    i = cuda.grid(1)
    out[i] = math.exp(x[i])


def test_library_flops_are_flagged(launch):
    """What a library call does comes from a table: it is in flops, and told apart."""
    run = launch(library[4, 256], np.ones(1024, np.float32), np.zeros(1024, np.float32))
    assert run.counts.library_flops > 0
    assert run.counts.library_flops <= run.counts.total_flops
    assert launch(saxpy[4, 256], np.float32(1), *(np.ones(1024, np.float32) for _ in range(3))).counts.library_flops == 0


@pytest.mark.parametrize(
    ("dtype", "by", "slots"),
    [
        # instructions of SASS (sm_80) beyond those of y[i] = x[i]; by a variable it would be about 20 and 100
        (np.uint32, 12, {"quotient": 2, "remainder": 3}),
        (np.uint64, 12, {"quotient": 9, "remainder": 12}),
        (np.uint32, 32, {"quotient": 1, "remainder": 1}),
        (np.uint64, 32, {"quotient": 2, "remainder": 2}),
    ],
)
def test_division_by_a_constant_is_a_multiplication_or_a_shift(launch, dtype, by, slots):
    divisor = dtype(by)

    @cuda.jit
    def copied(x, y):
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x]

    @cuda.jit
    def quotient(x, y):
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x] // divisor

    @cuda.jit
    def remainder(x, y):
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x] % divisor

    x = np.arange(32, dtype=dtype)
    instructions = {k.__name__: launch(k[1, 32], x, x.copy()).counts.warp_instructions for k in (copied, quotient, remainder)}
    assert {name: instructions[name] - instructions["copied"] for name in slots} == slots


def test_division_by_a_variable_stays_expensive(launch):
    @cuda.jit
    def quotient(x, y, d):
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x] // d

    by_type = {}
    for dtype in (np.uint32, np.uint64):
        x = np.arange(32, dtype=dtype)
        by_type[dtype] = launch(quotient[1, 32], x, x.copy(), dtype(3)).counts.warp_instructions
    assert 20 < by_type[np.uint32] < by_type[np.uint64]
