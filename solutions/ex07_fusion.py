"""Exercise 07: three launches into one.

Goal
    `forward` computes out = gelu(a @ b + bias) + residual, half a layer of a transformer, the way a library without fusion does:
    a product, then bias and GELU, then the sum, each a kernel of its own. Two matrices of the size of `out` are written for
    nothing but to be read again. Make it one launch: the product's threads hold every element just before they store it.

Requirements
    - one launch, and no matrix besides `out` is written: 4 bytes for each of its elements (counted at 256 x 512, K = 96)
    - loads: no more than the tiled product makes here, plus bias and residual once for each element of `out`, plus 5 %
    - the whole product is computed, by your kernel: 2 M N K FLOPs at least
    - right for any M, N and K, in bounds, without a race
    Change what you like, rename, add and delete kernels; keep `forward` and its parameters.

Hints
    There are three, each plainer than the last: under the Score button in lesson 07, or `solcourse check ex07 --hint 1`.
"""

import math

import numpy as np
from numba import cuda, float32

TILE = 16
ONE, HALF = np.float32(1.0), np.float32(0.5)  # a plain 0.5 is a float64, and makes float64 of all it meets
SCALE, CUBE = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)


@cuda.jit(device=True)
def gelu(x):  # float32 -> float32; a function that kernels call, not a kernel
    return HALF * x * (ONE + math.tanh(SCALE * (x + CUBE * x * x * x)))


### BEGIN SOLUTION
# fmt: off
@cuda.jit
def matmul_bias_gelu_residual(a, b, bias, residual, c):
### STUB
# @cuda.jit
# def matmul(a, b, c):
### END SOLUTION
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    j, i = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for start in range(0, a.shape[1], TILE):
        tile_a[y, x] = a[i, start + x] if i < a.shape[0] and start + x < a.shape[1] else float32(0.0)
        tile_b[y, x] = b[start + y, j] if start + y < b.shape[0] and j < b.shape[1] else float32(0.0)
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if i < c.shape[0] and j < c.shape[1]:
        ### BEGIN SOLUTION
        c[i, j] = gelu(total + bias[j]) + residual[i, j]
        ### STUB
        # c[i, j] = total
        ### END SOLUTION


### BEGIN SOLUTION
# fmt: on
### STUB
# @cuda.jit
# def bias_gelu(x, bias, out):
#     j, i = cuda.grid(2)
#     if i < out.shape[0] and j < out.shape[1]:
#         out[i, j] = gelu(x[i, j] + bias[j])
#
#
# @cuda.jit
# def add(x, residual, out):
#     j, i = cuda.grid(2)
#     if i < out.shape[0] and j < out.shape[1]:
#         out[i, j] = x[i, j] + residual[i, j]
#
#
### END SOLUTION
def forward(a, b, bias, residual, out):  # (M, K), (K, N), (N,), (M, N) -> (M, N), all float32
    """Runs on the host and makes the launches."""
    m, n = out.shape
    grid, block = ((n + TILE - 1) // TILE, (m + TILE - 1) // TILE), (TILE, TILE)
    ### BEGIN SOLUTION
    matmul_bias_gelu_residual[grid, block](a, b, bias, residual, out)
    ### STUB
    # product = cuda.device_array((m, n), np.float32)  # stays on the GPU
    # activated = cuda.device_array((m, n), np.float32)
    # matmul[grid, block](a, b, product)
    # bias_gelu[grid, block](product, bias, activated)
    # add[grid, block](activated, residual, out)
    ### END SOLUTION


### BEGIN HIDDEN TESTS
from solcourse.grading import Exercise, bytes_moved, flops, launches  # noqa: E402
from solcourse.work import Work  # noqa: E402


def arguments(m, n, k, rng):
    """A product of unit variance, about: GELU is bent where its values are."""
    shapes = {"a": (m, k), "b": (k, n), "bias": n, "residual": (m, n)}
    given = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    given["b"] *= np.float32(3 / math.sqrt(k))
    return {**given, "out": np.empty((m, n), np.float32)}


def reference(a, b, bias, residual, out):
    made = a.astype(np.float64) @ b.astype(np.float64) + bias
    bent = 0.5 * made * (1 + np.tanh(math.sqrt(2 / math.pi) * (made + 0.044715 * made**3)))
    return {"out": (bent + residual).astype(np.float32)}


def gates(m, n, k):
    product, once = 2 * 4 * m * n * k // 16, 4 * m * n  # the tiled product of the stub; bias, or residual, for every element
    return (
        launches(at_most=1),
        bytes_moved("global_store", exactly=4 * m * n),
        bytes_moved("global_load", at_least=4 * (m * k + k * n + n + m * n), at_most=(product + 2 * once) * 21 // 20),
        flops("fp32", at_least=2 * m * n * k),
    )


def work(m, n, k):
    read = Work.read("A", 4 * m * k) + Work.read("B", 4 * k * n) + Work.read("bias", 4 * n) + Work.read("residual", 4 * m * n)
    return read + Work.write("out", 4 * m * n) + Work.flop("fp32", 2 * m * n * k + 11 * m * n)


EXERCISE = Exercise(
    program="forward",
    arguments=arguments,
    outputs=("out",),
    reference=reference,
    sizes=((1, 1, 1), (16, 33, 7), (45, 17, 131), (70, 131, 50)),  # one deeper than the counted one
    gate_size=(256, 512, 96),
    gates=gates,
    work=work,
    hints=(
        "Write the ledger of the three kernels: who writes `product`, who reads it, and could that reader have had the number any "
        "earlier? Which thread held it last, and in what?",
        "In the last line of `matmul`, `total` is finished and sits in a register. Whatever needs nothing but that one element, the "
        "bias of its column and the residual at its place can be done right there. What must the kernel be given in addition?",
        "Give `matmul` the arrays `bias` and `residual`, store gelu(total + bias[j]) + residual[i, j] under the guard that is there "
        "already, and let `forward` launch this one kernel into `out`. The other two kernels and both temporary arrays can go.",
    ),
    after="Half a layer in one launch. At this depth, K = 96, much of the time went into passing matrices on; at K = 4096 the same "
    "edit would hardly show. What cannot be fused so easily, a softmax between two products, is lesson 09's subject.",
    rtol=1e-4,
    atol=1e-5,
)
### END HIDDEN TESTS
