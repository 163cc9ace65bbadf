"""The engine's code against NVVM's: the same kernel through NVIDIA's compiler has the same memory accesses, barriers and FLOPs.

Compared are static counts of the optimised code. Loops with a trip count known only at run time are unrolled differently by the
two (by 4 or 8), which changes no dynamic count: there only the kinds of access are compared.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import numpy as np
import pytest

from solcourse import toolchain
from solcourse.kernels import cases
from solcourse.simt import frontend

CASES = cases()
UNROLLED = {
    "saxpy_grid_stride", "row_sums", "column_sums", "matmul_register_1d", "matmul_register_2d", "matmul_register_2d_interleaved",
    "matmul_register_2d_transposed", "reduce_grid_stride", "histogram_shared", "histogram_per_warp", "softmax_thread_per_row",
    "softmax_block_per_row", "softmax_warp_per_row", "softmax_online", "polynomial", "polynomial_float64_literal",
    "polynomial_four_chains", "matmul_register_2d_padded", "matmul_register_2d_8x4", "scale_grid_stride", "chain", "matmul_plain",
    "matmul_bias_gelu", "matmul_residual", "matmul_bias_gelu_residual", "row_means", "row_scales", "dropout_residual_layernorm",
    "histogram_per_lane",
}  # fmt: skip
LIBRARY = {"gelu", "bias_gelu"}  # NVVM has libdevice's tanh inline, the engine a call
FIXED = [name for name in CASES if name not in UNROLLED]
STRAIGHT = ["copy", "copy_strided", "vector_add", "saxpy", "field_aos", "length_aos", "length_soa", "transpose_copy", "transpose_naive"]
MEMORY = ("global_load", "global_store", "shared_load", "shared_store", "local_load", "local_store", "global_atomic", "shared_atomic")

pytestmark = [pytest.mark.nvvm, pytest.mark.slow]


def ptx_of(name: str, arguments: tuple) -> str:
    kernel = frontend.compile_kernel(CASES[name].kernel, frontend.argument_types(CASES[name].kernel, arguments))
    return toolchain.nvvm_ptx(kernel.source, kernel.name, "8.0")


def of_ptx(text: str) -> Counter:
    """Instructions of PTX by the names of ours; kernel parameters are not memory here."""
    found: Counter = Counter()
    for match in re.finditer(r"^\s+(?:@!?%p\d+\s+)?([a-z][\w.:]*)", text, re.MULTILINE):
        first, *rest = match[1].split(".")
        if first in ("ld", "st") and rest[0] != "param":
            found[f"{rest[0]}_{'load' if first == 'ld' else 'store'}"] += 1
        elif first in ("atom", "red"):
            found[f"{rest[0]}_atomic"] += 1
        elif first in ("bar", "barrier"):
            found["barrier"] += 1
        elif first == "shfl":
            found["shuffle"] += 1
        elif rest and rest[-1] in ("f32", "f64") and first in ("add", "sub", "mul", "fma"):
            found["flop"] += 2 if first == "fma" else 1
    return found


def of_engine(run) -> Counter:
    """The same of the optimised IR. Sites are what is counted; a fused multiply-add is still two instructions here."""
    found = Counter(site.kind for site in run.program.sites)
    found["barrier"] = len(re.findall(r"call .*@llvm\.nvvm\.barrier", run.program.ir))
    found["shuffle"] = len(re.findall(r"call .*@llvm\.nvvm\.shfl", run.program.ir))
    found["flop"] = len(re.findall(r"= f(?:add|sub|mul) ", run.program.ir))
    return found


@pytest.fixture(scope="module")
def both(launch):
    """name -> (the engine's, NVVM's)."""

    @cache
    def found(name):
        c = CASES[name]
        arguments = c.make(np.random.default_rng(3), *c.shapes[0])
        run = launch(c.configured(*c.shapes[0]), *arguments, sample_blocks=1)
        return of_engine(run), of_ptx(ptx_of(name, arguments))

    return found


@pytest.mark.parametrize("name", FIXED)
def test_accesses_barriers_and_shuffles_are_nvvms(both, name):
    engine, nvvm = both(name)
    assert nvvm["global_load"] + nvvm["global_store"] > 0
    for kind in (*MEMORY, "barrier", "shuffle"):
        assert engine[kind] == nvvm[kind], kind


@pytest.mark.parametrize("name", CASES)
def test_no_kernel_touches_a_memory_that_nvvms_code_does_not(both, name):
    """Above all: no local memory where NVVM keeps an array in registers."""
    engine, nvvm = both(name)
    assert {kind for kind in MEMORY if engine[kind]} == {kind for kind in MEMORY if nvvm[kind]}
    assert nvvm["local_load"] == nvvm["local_store"] == 0
    assert not any(kind.startswith("generic") for kind in nvvm)


@pytest.mark.parametrize("name", [name for name in FIXED if name not in LIBRARY | {"mandelbrot"}])
def test_flops_are_nvvms(both, name):
    """mandelbrot is left out: there NVVM keeps a product that it has also fused, 2 FLOPs for 1."""
    engine, nvvm = both(name)
    assert engine["flop"] == nvvm["flop"]


def selects(text: str) -> int:
    """Integer selects of PTX: selp, and the `x & (i >> 63)` into which NVVM turns `i < 0 ? x : 0`."""
    signs = set(re.findall(r"shr\.s64\s+(%rd\d+), %rd\d+, 63", text))
    masked = [a for a in re.findall(r"and\.b64\s+%rd\d+, (%rd\d+), (%rd\d+|-?\d+)", text) if signs & set(a)]
    return len(re.findall(r"selp\.[bsu](?:32|64)", text)) + len(masked)


# Not equal, and why. Each is in the integer code around the accesses, which stays an estimate.
OTHER_SELECTS = {
    "row_sums_warp": "NVVM counts a range() down with a select in each turn, and unrolls it by 4",
    "matmul_naive": "NVVM counts a range() down with a select in each turn",
    "matmul_coalesced": "NVVM counts a range() down with a select in each turn",
    "matmul_tiled": "NVVM counts a range() down with a select in each turn",
    "matmul_tiled_exact": "NVVM counts a range() down with a select in each turn",
    "transpose_unsigned": "there are none",
    "scan_work_efficient": "NVVM unrolls the two loops of eight steps less far",
    "reduce_strided": "NVVM wraps the index 2*step*t by select in each of the 8 steps, LLVM by a mask",
}


@pytest.mark.parametrize("name", [name for name in FIXED if name not in OTHER_SELECTS])
def test_integer_selects_are_nvvms(launch, rng, name):
    """Exactly where memory is all a kernel does; one more is allowed for (a guard's `? :` that NVVM makes a branch), or 20 %."""
    c = CASES[name]
    arguments = c.make(rng, *c.shapes[0])
    run = launch(c.configured(*c.shapes[0]), *arguments, sample_blocks=1)
    ours, nvvms = len(re.findall(r"= select i1 [^,]*, (?:i64|i32)", run.program.ir)), selects(ptx_of(name, arguments))
    assert nvvms > 0
    assert abs(ours - nvvms) <= (0 if name in STRAIGHT else max(1, 0.2 * nvvms))


@pytest.mark.parametrize("name", ["copy", "vector_add", "transpose_naive"])
def test_indices_wrap_around_as_in_nvvms_code(launch, rng, name):
    """A signed index costs a shift, an and, an add: NVVM does not know that thread indices are small, and keeps them."""
    c = CASES[name]
    arguments = c.make(rng, *c.shapes[0])
    run = launch(c.configured(*c.shapes[0]), *arguments)
    assert re.search(r"shr\.s64\s+%rd\d+, %rd\d+, 63", ptx_of(name, arguments))
    assert re.search(r"= ashr i64 .*, 63|= icmp slt i64 .*, 0|= select i1", run.program.ir)
    assert not re.search(r"range\(i32[^)]*\) i32 @simt", run.program.ir)


@pytest.mark.parametrize("name", STRAIGHT)
def test_estimated_instructions_of_a_straight_kernel_are_near_nvvms(launch, rng, name):
    """Every warp runs every instruction once. An estimate: PTX is not yet machine code, where 64-bit operations are two."""
    c = CASES[name]
    arguments = c.make(rng, *c.shapes[0])
    run = launch(c.configured(*c.shapes[0]), *arguments)
    instructions = re.findall(r"^\s+(?:@!?%p\d+\s+)?(?!ld\.param)([a-z][\w.:]*)[ \t;]", ptx_of(name, arguments), re.MULTILINE)
    per_warp = run.counts.warp_instructions / (run.blocks * run.warps_per_block)
    assert 0.75 < per_warp / len(instructions) < 2
