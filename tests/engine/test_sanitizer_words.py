"""What the sanitizer says of typical mistakes, word for word: a change of the words is seen here.

A kernel's lines are marked `# A`, `# B`; {A} and {B} in the words stand for their numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import cuda, float32, int32

import solcourse as sol

N = 64
CASES: list[Any] = []


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def says(message: str, hint: str, *args: Any, grid: Any = 1, block: Any = N) -> Callable:
    def register(kernel: Callable) -> Callable:
        CASES.append(pytest.param(cuda.jit(kernel), grid, block, args, message, hint, id=kernel.__name__))
        return kernel

    return register


# ------------------------------------------------------------------------------------------------- a barrier that is not there
@says(
    "Thread 32 reads s[31] at line {B} while thread 31 may not yet have written it at line {A}.",
    "Put cuda.syncthreads() between line {A} and line {B}.",
    ramp(N),
    zeros(N),
)
def missing_barrier(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # A
    out[t] = s[N - 1 - t]  # B


@says(
    "Thread 32 reads s[0] at line {B} while thread 0 may not yet have written it at line {A}.",
    "Put cuda.syncthreads() between line {A} and line {B}, outside of the `if` at line {C}.",
    ramp(N),
    zeros(N),
)
def one_thread_fills(x, out):
    s = cuda.shared.array(1, float32)
    t = cuda.threadIdx.x
    if t == 0:  # C
        s[0] = x[0]  # A
    out[t] = s[0]  # B


@says(
    "Thread (0, 0) writes tile[0, 0] at line {A} while thread (7, 0) may still have to read it at line {B}.",
    "The next turn of the loop overwrites what this one may still have to read: put cuda.syncthreads() at the end of the loop's body.",
    ramp(16, 16),
    zeros(16, 16),
    grid=(2, 2),
    block=(8, 8),
)
def missing_second_barrier(a, out):
    tile = cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range(2):
        tile[ty, tx] = a[y, k * 8 + tx]  # A
        cuda.syncthreads()
        for j in range(8):
            total += tile[ty, j]  # B
    out[y, x] = total


@says(
    "Thread 0 reads s[16] at line {A} while thread 16 may not yet have written it there.",
    "The next turn of the loop reads what this one writes: put cuda.syncthreads() at the end of the "
    "loop's body, outside of the `if` at line {C}.",
    ramp(2 * N),
    zeros(2),
    grid=2,
)
def tree_without_barrier(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    stride = N // 2
    while stride > 0:
        if t < stride:  # C
            s[t] += s[t + stride]  # A
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


@says(
    "Thread 32 reads s[0] at line {B} while thread 0 may not yet have written it at line {A}.",
    "Put cuda.syncthreads() between line {A} and line {B}, outside of the `if` at line {C}.",
    ramp(N),
    zeros(N),
)
def tree_without_last_barrier(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    stride = N // 2
    while stride > 0:
        cuda.syncthreads()
        if t < stride:  # C
            s[t] += s[t + stride]  # A
        stride //= 2
    out[t] = x[t] / s[0]  # B


@says(
    "Thread 31 writes s[31] at line {A} while thread 32 may still have to read it there.",
    "Read into a variable first, put cuda.syncthreads() after that, outside of the `if` at line {C}, and "
    "then write; or write to another array than the one that is read.",
    ramp(N),
    zeros(N),
)
def scan_in_place(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    stride = 1
    while stride < N:
        if t >= stride:  # C
            s[t] += s[t - stride]  # A
        cuda.syncthreads()
        stride *= 2
    out[t] = s[t]


@says(
    "Thread 0 reads s[1] at line {B} while thread 1 may not yet have written it at line {A}.",
    "The lanes of a warp are not in lock step: put cuda.syncwarp() between line {A} and line {B}, outside of the `if` at line {C}.",
    ramp(N),
    zeros(1),
)
def one_warp_in_a_branch(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        s[t] += s[t + 32]  # A
        if t == 0:  # C
            out[0] = s[0] + s[1]  # B


@says(
    "Thread 0 reads s[1] at line {B} while thread 1 may not yet have written it at line {A}.",
    "The lanes of a warp are not in lock step: put cuda.syncthreads() between line {A} and line {B}.",
    ramp(32),
    zeros(32),
    block=32,
)
def one_warp_alone(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # A
    out[t] = s[t ^ 1]  # B


@says(
    "Thread 32 reads s[15] at line {B} while thread 15 may not yet have written it at line {A}.",
    "End the `if` of line {C} before line {B}, put cuda.syncthreads() there, and begin it anew: every "
    "thread of the block must reach the barrier.",
    ramp(N),
    zeros(N),
)
def both_in_a_branch(x, out):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    if t < 48:  # C
        s[t] = x[t]  # A
        out[t] = s[47 - t]  # B


@says(
    "Thread 31 writes x[31] at line {A} while thread 32 may still have to read it there.",
    "Read into a variable first, put cuda.syncthreads() after that, and then write; or write to another array than the one that is read.",
    ramp(N),
)
def swapped_in_place(x):
    i = cuda.grid(1)
    x[i] = x[N - 1 - i]  # A


@says(
    "Thread 0 reads s[1] at line {B} while thread 1 may not yet have written it at line {A}.",
    "A shuffle, vote or match does not order memory: put cuda.syncwarp() between line {A} and line {B}.",
    ramp(32),
    zeros(32),
    block=32,
)
def only_a_shuffle_between(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # A
    other = cuda.shfl_xor_sync(0xFFFFFFFF, x[t], 1)
    out[t] = s[t ^ 1] + other  # B


# ----------------------------------------------------------------------------------------------------------------- blocks
@says(
    "Thread 63 of block 0 writes x[63] at line {A} while thread 0 of block 1 may still have to read it there.",
    "Blocks of one launch run in any order, and syncthreads() waits for no other block: write to another array than x.",
    ramp(4 * N),
    grid=4,
)
def stencil_in_place(x):
    i = cuda.grid(1)
    if 0 < i < x.size - 1:
        x[i] = (x[i - 1] + x[i + 1]) / 2  # A


@says(
    "Thread 0 of block 0 and thread 0 of block 1 both write out[0] at line {A}: which value stays is a matter of chance.",
    "The index `i` is the same in every block: use cuda.grid(1), which counts the threads of the whole grid.",
    ramp(4 * N),
    zeros(4 * N),
    grid=4,
)
def the_block_forgotten(x, out):
    i = cuda.threadIdx.x
    out[i] = 2 * x[i] + cuda.blockIdx.x  # A


@says(
    "Thread 0 of block 0 and thread 0 of block 1 both read x[0], change it and write it back at line {A}: one of the updates can be lost.",
    "The index `i` is the same in every block: use cuda.grid(1), which counts the threads of the whole "
    "grid; or, if the blocks are to add up, cuda.atomic.add(x, i, 1).",
    ramp(4 * N),
    grid=4,
)
def the_block_forgotten_in_place(x):
    i = cuda.threadIdx.x
    x[i] += 1  # A


@says(
    "Threads (0, 3) and (0, 4) both write out[0] at line {A}: which value stays is a matter of chance.",
    "The index `cuda.threadIdx.x` does not depend on cuda.threadIdx.y, so threads that differ only there "
    "share an element: use it too, or let one of these threads write, `if cuda.threadIdx.y == 0:`.",
    zeros(8),
    block=(8, 8),
)
def an_axis_forgotten(out):
    out[cuda.threadIdx.x] = cuda.threadIdx.y  # A


@says(
    "Thread 0 of block 0 and thread 0 of block 1 both write out[0] at line {A}: which value stays is a matter of chance.",
    "Every block writes out[0]: give each its own element, out[cuda.blockIdx.x], or let one thread of the grid write.",
    ramp(2 * N),
    zeros(1),
    grid=2,
)
def every_block_writes(x, out):
    if cuda.threadIdx.x == 0:
        out[0] = x[cuda.grid(1)]  # A


@says(
    "Thread 0 of block 1 reads half[63] at line {B} while thread 63 of block 0 may not yet have written it at line {A}.",
    "Blocks of one launch run in any order, and syncthreads() waits for no other block: end the kernel "
    "before line {B}, and do the rest in a second launch.",
    ramp(2 * N),
    zeros(2 * N),
    zeros(2 * N),
    grid=2,
)
def phases_of_the_grid(x, half, out):
    i = cuda.grid(1)
    half[i] = x[i] / 2  # A
    cuda.syncthreads()
    out[i] = half[x.size - 1 - i]  # B


@says(
    "Thread 0 of block 1 reads parts[0] at line {B} while thread 0 of block 0 may not yet have written it at line {A}.",
    "Put cuda.threadfence() between line {A} and the atomic operation at line {C}: whoever sees the count then sees the data too.",
    ramp(2 * N),
    zeros(2),
    np.zeros(1, np.int32),
    zeros(1),
    grid=2,
)
def last_block_without_fence(x, parts, done, out):
    last = cuda.shared.array(1, int32)
    if cuda.threadIdx.x == 0:
        parts[cuda.blockIdx.x] = x[cuda.grid(1)]  # A
        last[0] = cuda.atomic.add(done, 0, 1)  # C
    cuda.syncthreads()
    if last[0] == cuda.gridDim.x - 1 and cuda.threadIdx.x == 0:
        for k in range(cuda.gridDim.x):
            out[0] += parts[k]  # B


# ------------------------------------------------------------------------------------------------------------- atomics
@says(
    "Thread 58 of block 0 and thread 0 of block 1 both read bins[1, 1], change it and write it back at "
    "line {A}: one of the updates can be lost.",
    "Use cuda.atomic.add(bins, (k // 3, k % 3), 1): a barrier does not make `+=` one step.",
    np.arange(2 * N, dtype=np.int64),
    zeros(2, 3),
    grid=2,
)
def lost_update(keys, bins):
    k = keys[cuda.grid(1)] % 6
    bins[k // 3, k % 3] += 1  # A


@says(
    "Thread 32 updates s[0] at line {B} while thread 0 may not yet have written it at line {A}.",
    "An atomic operation keeps out other atomic ones only. Put cuda.syncthreads() between line {A} and "
    "line {B}, outside of the `if` at line {C}.",
    np.arange(N, dtype=np.int64),
    np.zeros(8, np.int32),
)
def histogram_without_barrier(keys, out):
    s = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    if t < 8:  # C
        s[t] = 0  # A
    cuda.atomic.add(s, keys[t] % 8, 1)  # B
    cuda.syncthreads()
    if t < 8:
        out[t] = s[t]


@says(
    "Thread 0 of block 0 reads total[0] at line {B} while thread 0 of block 1 may not yet have updated it at line {A}.",
    "Other blocks may still update total; it is complete when the kernel has ended: do line {B} in a second launch, or on the host.",
    ramp(2 * N),
    zeros(1),
    zeros(1),
    grid=2,
)
def mean_before_the_end(x, total, mean):
    cuda.atomic.add(total, 0, x[cuda.grid(1)])  # A
    cuda.syncthreads()
    if cuda.grid(1) == 0:
        mean[0] = total[0] / x.size  # B


@says(
    "Threads 31 and 32 both read out[0], change it and write it back at line {A}: one of the updates can be lost.",
    "CUDA has no atomic operation for this: let one thread do it, or give each thread its own element of out.",
    np.ones(N, np.float32),
    np.ones(1, np.float32),
)
def a_product(x, out):
    out[0] *= x[cuda.grid(1)]  # A


@says(
    "Thread 31 updates flag[0] at line {B} while thread 32 may still have to read it at line {A}.",
    "Harmless where the compare-and-swap refuses what was read too early or too late; "
    "cuda.atomic.cas(flag, index, 0, 0) reads without a race.",
    np.zeros(1, np.int32),
)
def looked_at_before_a_swap(flag):
    if flag[0] == 0:  # A
        cuda.atomic.cas(flag, 0, 0, 1)  # B


# ------------------------------------------------------------------------------------------------------- several writers
@says(
    "Threads 31 and 32 both write found[0] at line {A}; each time the value was the same.",
    "Harmless as long as the values are the same. It is clearer, and costs less, if one thread writes.",
    ramp(N),
    zeros(1),
)
def a_flag(x, found):
    if x[cuda.grid(1)] > 5:
        found[0] = 1  # A


@says(
    "Threads 31 and 32 both write out[0] at line {A}: which value stays is a matter of chance.",
    "All threads that come here write out[0]: let one of them do it, `if cuda.threadIdx.x == 0:`.",
    ramp(N),
    zeros(1),
)
def the_last_one_wins(x, out):
    out[0] = x[cuda.grid(1)]  # A


@says(
    "Thread 48 at line {A} and thread 15 at line {B} both write out[48]: which value stays is a matter of chance.",
    "Let one thread write each element; or, if they are to write in turn: put cuda.syncthreads() between "
    "line {A} and line {B}, outside of the `if` at line {C}.",
    ramp(N),
    zeros(N),
)
def written_from_both_ends(x, out):
    t = cuda.threadIdx.x
    out[t] = x[t]  # A
    if t < 16:  # C
        out[N - 1 - t] = 0  # B


# ------------------------------------------------------------------------------------------------------ barriers and elements
@says(
    "16 of 64 threads of block 0 wait at line {A} (`cuda.syncthreads()  # A`), but the other 48 passed by it and have ended.",
    "Move the barrier out of the `if` at line {C}: every thread of the block must reach the barrier, or a GPU may hang.",
    ramp(N),
    zeros(N),
)
def barrier_in_a_branch(x, out):
    t = cuda.threadIdx.x
    if t < 16:  # C
        cuda.syncthreads()  # A
    out[t] = x[t]


@says(
    "32 of 64 threads of block 0 wait at line {A} (`cuda.syncthreads()  # A`), but the other 32 passed by it and have ended.",
    "Give the loop at line {C} the same number of turns in every thread, and guard what is in it: every "
    "thread of the block must reach the barrier, or a GPU may hang.",
    ramp(N),
    zeros(N),
)
def barrier_in_a_loop(x, out):
    t = cuda.threadIdx.x
    for _ in range(t // 32, 2):  # C
        cuda.syncthreads()  # A
    out[t] = x[t]


@says(
    "Thread 0 of block 1 reads s[4] at line {A}, which no thread of block 1 has written: the result can change from run to run.",
    "Line {C} writes s only `if i < x.size`: write a value otherwise too, such as 0, or read only what was written.",
    ramp(12),
    zeros(2),
    grid=2,
    block=8,
)
def edge_not_filled(x, out):
    s = cuda.shared.array(8, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.size:
        s[t] = x[i]  # C
    cuda.syncthreads()
    if t == 0:
        for k in range(8):
            out[cuda.blockIdx.x] += s[k]  # A


@says(
    "Thread 0 of block 0 uses the index -1 at line {A} (`out[i] = x[i] - x[i - 1]  # A`): as in Python "
    "that counts from the end, and means 63.",
    "Numba compiles that rule in, so a GPU does the same. If it is not meant, guard the access: `if i - 1 >= 0:`.",
    ramp(N),
    zeros(N),
)
def left_neighbour(x, out):
    i = cuda.grid(1)
    out[i] = x[i] - x[i - 1]  # A


@says(
    "Out-of-bounds access in kernel guard_one_too_far, line {A} (`out[i] = x[i]  # A`): thread (60, 0, "
    "0) of block (0, 0, 0) reads x[60], but the array has 60 elements. A GPU would not have said anything.",
    "The guard at line {C}, `i <= x.size`, lets it through: `<=` should be `<`.",
    ramp(60),
    zeros(60),
)
def guard_one_too_far(x, out):
    i = cuda.grid(1)
    if i <= x.size:  # C
        out[i] = x[i]  # A


@says(
    "Out-of-bounds access in kernel guard_of_another_index, line {A} (`out[i] = x[i + 1]  # A`): thread "
    "(59, 0, 0) of block (0, 0, 0) reads x[60], but the array has 60 elements. A GPU would not have said anything.",
    "The guard at line {C}, `i < x.size`, does not cover this index: `if i + 1 < x.size:` would.",
    ramp(60),
    zeros(60),
)
def guard_of_another_index(x, out):
    i = cuda.grid(1)
    if i < x.size:  # C
        out[i] = x[i + 1]  # A


@says(
    "Out-of-bounds access in kernel no_guard, line {A} (`out[i] = x[i]  # A`): thread (40, 0, 0) of "
    "block (0, 0, 0) reads x[40], but the array has 40 elements (24 lanes of this warp do). A GPU would not have said anything.",
    "There are 64 threads for 40 elements: guard the access, for example `if i < x.size:`, or check the index.",
    ramp(40),
    zeros(N),
)
def no_guard(x, out):
    i = cuda.grid(1)
    out[i] = x[i]  # A


@says(
    "Out-of-bounds access in kernel guard_with_or, line {A} (`cuda.atomic.add(total, 0, a[y, x])  # A`): "
    "thread (6, 4, 0) of block (0, 0, 0) reads a[4, 6], but the array has shape (5, 6) (20 lanes of this "
    "warp do). A GPU would not have said anything.",
    "The guard at line {C}, `x < 6 or y < 5`, lets it through: `or` should be `and`.",
    ramp(5, 6),
    zeros(1),
    block=(8, 8),
)
def guard_with_or(a, total):
    x, y = cuda.grid(2)
    if x < 6 or y < 5:  # C
        cuda.atomic.add(total, 0, a[y, x])  # A


def lines_of(kernel: Any) -> dict[str, int]:
    lines, first = inspect.getsourcelines(kernel.py_func)
    return {mark: first + k for k, line in enumerate(lines) for mark in "ABC" if line.rstrip().endswith(f"# {mark}")}


@pytest.mark.parametrize(("kernel", "grid", "block", "args", "message", "hint"), CASES)
def test_a_mistake_is_told_in_these_words(kernel, grid, block, args, message: str, hint: str):
    (finding,) = sol.sanitize(kernel[grid, block], *args)
    lines = lines_of(kernel)
    assert finding.message == message.format(**lines)
    assert finding.hint == hint.format(**lines)
    assert finding.line in lines.values()


def test_where_the_source_cannot_be_read_the_words_are_plain():
    text = (
        "@cuda.jit\n"
        "def hidden(x, out):\n"
        "    s = cuda.shared.array(64, float32)\n"
        "    s[cuda.threadIdx.x] = x[cuda.threadIdx.x]\n"
        "    out[cuda.threadIdx.x] = s[63 - cuda.threadIdx.x]\n"
    )
    names = {"cuda": cuda, "float32": float32}
    exec(compile(text, "<nowhere>", "exec"), names)
    (finding,) = sol.sanitize(names["hidden"][1, 64], ramp(64), zeros(64))
    assert (
        finding.message == "Thread 32 reads element 31 of the shared array at line 5 while thread 31 may not yet have written it at line 4."
    )
    assert finding.hint == "Put cuda.syncthreads() between line 4 and line 5."
