"""The kernels behind the measured ladders, coded lean: unsigned indices, `while`, flat arrays, so that numba adds little to what the
CUDA C++ of the sources does. Names are `ladder_step`. They are read for their counts; small or partial launches are enough.

Mixing a uint64 with a signed number gives int64 in numba, and its wrap-around selects with it: hence the constants.
"""

from __future__ import annotations

from numba import cuda, float32, float64, uint32, uint64
from numba.cuda import libdevice

ZERO, ONE, TWO, FOUR, WARP = uint64(0), uint64(1), uint64(2), uint64(4), uint64(32)
FULL = 0xFFFFFFFF
T = 256
T4 = 4 * T
TILE = uint64(32)


@cuda.jit(device=True, inline=True)
def thread():
    return uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)


# ------------------------------------------------------------------------------------------------------------- streaming
@cuda.jit
def stream_init(a):
    a[thread()] = 1.0


@cuda.jit
def stream_read(a, b):
    i = thread()
    value = a[i]
    if value == 123.0:
        b[i] = value


@cuda.jit
def stream_scale(a, b):
    i = thread()
    b[i] = 1.2 * a[i]


@cuda.jit
def stream_copy(a, b):
    i = thread()
    b[i] = a[i]


@cuda.jit
def stream_add(a, b, c):
    i = thread()
    c[i] = a[i] + b[i]


@cuda.jit
def stream_triad(a, b, c):
    i = thread()
    a[i] = b[i] + 0.4 * c[i]


@cuda.jit
def stream_3pt(a, b):
    i = thread() + TWO
    b[i] = 0.5 * a[i - ONE] - 1.0 * a[i] + 0.5 * a[i + ONE]


@cuda.jit
def stream_5pt(a, b):
    i = thread() + TWO
    b[i] = 0.25 * a[i - TWO] + 0.25 * a[i - ONE] - 1.0 * a[i] + 0.5 * a[i + ONE] + 0.5 * a[i + TWO]


@cuda.jit
def residual_grid_stride(out, a, b):
    i = thread()
    step = uint64(cuda.blockDim.x) * uint64(cuda.gridDim.x)
    while i < uint64(out.size):
        out[i] = a[i] + b[i]
        i += step


@cuda.jit
def copy_guarded(src, dst):
    i = thread()
    if i < uint64(dst.size):
        dst[i] = src[i]


@cuda.jit
def copy_blocked(src, dst, per_thread):
    i = thread() * uint64(per_thread)
    end = i + uint64(per_thread)
    while i < end:
        dst[i] = src[i]
        i += ONE


@cuda.jit
def copy_striped(src, dst):
    i = thread()
    step = uint64(cuda.blockDim.x) * uint64(cuda.gridDim.x)
    while i < uint64(dst.size):
        dst[i] = src[i]
        i += step


# ------------------------------------------------------------------------------------------------------------------- FMA
def fma_chains(length):
    """`length` FMAs in two independent chains for each pair of loads."""
    half, odd = length // 2, length % 2

    @cuda.jit
    def roofline(a, b, out, loads):
        t = uint64(cuda.threadIdx.x)
        step = uint64(cuda.blockDim.x)
        base = uint64(cuda.blockIdx.x) * step * uint64(loads) + t
        total = float32(0.0)
        i = ZERO
        while i < uint64(loads):
            x = a[base + i * step]
            y = b[base + i * step]
            p, q = x, y
            for _ in range(half):
                p = p * x + y
                q = q * y + x
            if odd:
                p = p * x + y
            total += p + q
            i += ONE
        if total == float32(123.0):
            out[t] = total

    return roofline


def dfma(ilp, operation="fma"):
    """`ilp` independent chains of float64 operations in one block (ilp-tlp)."""

    @cuda.jit
    def chains(out, rounds, x):
        a = float64(cuda.threadIdx.x)
        b, c, d, e, f, g, h = a + 1.0, a + 2.0, a + 3.0, a + 4.0, a + 5.0, a + 6.0, a + 7.0
        i = ZERO
        while i < uint64(rounds):
            for _ in range(16):
                a = x / a if operation == "div" else a * x + a
                if ilp > 1:
                    b = b * x + b
                if ilp > 2:
                    c = c * x + c
                    d = d * x + d
                if ilp > 4:
                    e = e * x + e
                    f = f * x + f
                    g = g * x + g
                    h = h * x + h
            i += ONE
        out[cuda.threadIdx.x] = a + b + c + d + e + f + g + h

    return chains


@cuda.jit
def nbody(positions, out, n):  # positions (4 n,) x y z m
    tile = cuda.shared.array(T4, float32)
    i = thread()
    t = uint64(cuda.threadIdx.x)
    x, y, z = positions[FOUR * i], positions[FOUR * i + ONE], positions[FOUR * i + TWO]
    ax, ay, az = float32(0.0), float32(0.0), float32(0.0)
    start = ZERO
    while start < uint64(n):
        for k in range(4):
            tile[FOUR * t + uint64(k)] = positions[FOUR * (start + t) + uint64(k)]
        cuda.syncthreads()
        for k in range(T):
            dx, dy, dz = tile[4 * k] - x, tile[4 * k + 1] - y, tile[4 * k + 2] - z
            d2 = dx * dx + dy * dy + dz * dz + float32(1e-3)
            inverse = libdevice.rsqrtf(d2)
            s = tile[4 * k + 3] * (inverse * inverse * inverse)
            ax += dx * s
            ay += dy * s
            az += dz * s
        cuda.syncthreads()
        start += uint64(T)
    out[FOUR * i] = ax
    out[FOUR * i + ONE] = ay
    out[FOUR * i + TWO] = az


# ------------------------------------------------------------------------------------------------------------ reductions
@cuda.jit
def reduce_0(x, partial):
    cache = cuda.shared.array(T, float32)
    t = uint64(cuda.threadIdx.x)
    cache[t] = x[thread()]
    cuda.syncthreads()
    step = ONE
    while step < uint64(cuda.blockDim.x):  # not a constant: the source's loop stays a loop, with its modulo
        if uint32(t) % uint32(TWO * step) == uint32(0):
            cache[t] += cache[t + step]
        cuda.syncthreads()
        step *= TWO
    if t == ZERO:
        partial[cuda.blockIdx.x] = cache[0]


@cuda.jit
def reduce_1(x, partial):
    cache = cuda.shared.array(T, float32)
    t = uint64(cuda.threadIdx.x)
    cache[t] = x[thread()]
    cuda.syncthreads()
    step = ONE
    while step < uint64(cuda.blockDim.x):
        i = TWO * step * t
        if i < uint64(cuda.blockDim.x):
            cache[i] += cache[i + step]
        cuda.syncthreads()
        step *= TWO
    if t == ZERO:
        partial[cuda.blockIdx.x] = cache[0]


@cuda.jit
def reduce_2(x, partial):
    cache = cuda.shared.array(T, float32)
    t = uint64(cuda.threadIdx.x)
    cache[t] = x[thread()]
    cuda.syncthreads()
    step = uint64(cuda.blockDim.x) // TWO
    while step > ZERO:
        if t < step:
            cache[t] += cache[t + step]
        cuda.syncthreads()
        step >>= ONE
    if t == ZERO:
        partial[cuda.blockIdx.x] = cache[0]


@cuda.jit
def reduce_3(x, partial):
    cache = cuda.shared.array(T, float32)
    t = uint64(cuda.threadIdx.x)
    i = uint64(cuda.blockIdx.x) * uint64(2 * T) + t
    cache[t] = x[i] + x[i + uint64(T)]
    cuda.syncthreads()
    step = uint64(cuda.blockDim.x) // TWO
    while step > ZERO:
        if t < step:
            cache[t] += cache[t + step]
        cuda.syncthreads()
        step >>= ONE
    if t == ZERO:
        partial[cuda.blockIdx.x] = cache[0]


@cuda.jit(device=True, inline=True)
def warp_sum(total):
    total += cuda.shfl_down_sync(FULL, total, 16)
    total += cuda.shfl_down_sync(FULL, total, 8)
    total += cuda.shfl_down_sync(FULL, total, 4)
    total += cuda.shfl_down_sync(FULL, total, 2)
    return total + cuda.shfl_down_sync(FULL, total, 1)


@cuda.jit
def reduce_7(x, partial):
    sums = cuda.shared.array(32, float32)
    t = uint64(cuda.threadIdx.x)
    i = thread()
    step = uint64(cuda.blockDim.x) * uint64(cuda.gridDim.x)
    total = float32(0.0)
    while i < uint64(x.size):
        total += x[i]
        i += step
    total = warp_sum(total)
    if t % WARP == ZERO:
        sums[t // WARP] = total
    cuda.syncthreads()
    if t < WARP:
        total = sums[t] if t < uint64(cuda.blockDim.x) // WARP else float32(0.0)
        total = warp_sum(total)
        if t == ZERO:
            partial[cuda.blockIdx.x] = total


# ------------------------------------------------------------------------------------------------------------ transposes
S16 = uint64(16)


@cuda.jit
def transpose_copy(a, b, n):
    x = uint64(cuda.blockIdx.x) * S16 + uint64(cuda.threadIdx.x)
    y = uint64(cuda.blockIdx.y) * S16 + uint64(cuda.threadIdx.y)
    b[y * uint64(n) + x] = a[y * uint64(n) + x]


@cuda.jit
def transpose_naive(a, b, n):
    x = uint64(cuda.blockIdx.x) * S16 + uint64(cuda.threadIdx.x)
    y = uint64(cuda.blockIdx.y) * S16 + uint64(cuda.threadIdx.y)
    b[x * uint64(n) + y] = a[y * uint64(n) + x]


@cuda.jit
def transpose_tiled(a, b, n):
    tile = cuda.shared.array(16 * 16, float32)
    tx, ty = uint64(cuda.threadIdx.x), uint64(cuda.threadIdx.y)
    bx, by = uint64(cuda.blockIdx.x) * S16, uint64(cuda.blockIdx.y) * S16
    tile[ty * S16 + tx] = a[(by + ty) * uint64(n) + bx + tx]
    cuda.syncthreads()
    b[(bx + ty) * uint64(n) + by + tx] = tile[tx * S16 + ty]


@cuda.jit
def transpose_padded(a, b, n):
    tile = cuda.shared.array(16 * 17, float32)
    tx, ty = uint64(cuda.threadIdx.x), uint64(cuda.threadIdx.y)
    bx, by = uint64(cuda.blockIdx.x) * S16, uint64(cuda.blockIdx.y) * S16
    tile[ty * uint64(17) + tx] = a[(by + ty) * uint64(n) + bx + tx]
    cuda.syncthreads()
    b[(bx + ty) * uint64(n) + by + tx] = tile[tx * uint64(17) + ty]


# ---------------------------------------------------------------------------------------------------------------- SGEMM
@cuda.jit
def sgemm_naive(a, b, c, n):
    row = uint64(cuda.blockIdx.x) * TILE + uint64(cuda.threadIdx.x)
    col = uint64(cuda.blockIdx.y) * TILE + uint64(cuda.threadIdx.y)
    total = float32(0.0)
    k = ZERO
    while k < uint64(n):
        total += a[row * uint64(n) + k] * b[k * uint64(n) + col]
        k += ONE
    c[row * uint64(n) + col] = total


@cuda.jit
def sgemm_coalesced(a, b, c, n):
    row = uint64(cuda.blockIdx.x) * TILE + uint64(cuda.threadIdx.y)
    col = uint64(cuda.blockIdx.y) * TILE + uint64(cuda.threadIdx.x)
    total = float32(0.0)
    k = ZERO
    while k < uint64(n):
        total += a[row * uint64(n) + k] * b[k * uint64(n) + col]
        k += ONE
    c[row * uint64(n) + col] = total


@cuda.jit
def sgemm_tile32(a, b, c, n):
    tile_a = cuda.shared.array(32 * 32, float32)
    tile_b = cuda.shared.array(32 * 32, float32)
    tx, ty = uint64(cuda.threadIdx.x), uint64(cuda.threadIdx.y)
    row = uint64(cuda.blockIdx.y) * TILE + ty
    col = uint64(cuda.blockIdx.x) * TILE + tx
    total = float32(0.0)
    start = ZERO
    while start < uint64(n):
        tile_a[ty * TILE + tx] = a[row * uint64(n) + start + tx]
        tile_b[ty * TILE + tx] = b[(start + ty) * uint64(n) + col]
        cuda.syncthreads()
        for k in range(32):
            total += tile_a[ty * TILE + uint64(k)] * tile_b[uint64(k) * TILE + tx]
        cuda.syncthreads()
        start += TILE
    c[row * uint64(n) + col] = total


@cuda.jit
def sgemm_1d(a, b, c, n):  # 64 x 64 of C per block of 512, 8 rows per thread, depth 8
    tile_a = cuda.shared.array(64 * 8, float32)
    tile_b = cuda.shared.array(8 * 64, float32)
    own = cuda.local.array(8, float32)
    t = uint64(cuda.threadIdx.x)
    col, row = t % uint64(64), t // uint64(64)
    ax, ay = t % uint64(8), t // uint64(8)
    left = uint64(cuda.blockIdx.x) * uint64(64)
    top = uint64(cuda.blockIdx.y) * uint64(64)
    for i in range(8):
        own[i] = float32(0.0)
    start = ZERO
    while start < uint64(n):
        tile_a[ay * uint64(8) + ax] = a[(top + ay) * uint64(n) + start + ax]
        tile_b[row * uint64(64) + col] = b[(start + row) * uint64(n) + left + col]
        cuda.syncthreads()
        for k in range(8):
            value = tile_b[uint64(k) * uint64(64) + col]
            for i in range(8):
                own[i] += tile_a[(row * uint64(8) + uint64(i)) * uint64(8) + uint64(k)] * value
        cuda.syncthreads()
        start += uint64(8)
    for i in range(8):
        c[(top + row * uint64(8) + uint64(i)) * uint64(n) + left + col] = own[i]


@cuda.jit
def sgemm_2d(a, b, c, n):  # 128 x 128 of C per block of 256, 8 x 8 per thread, depth 8
    tile_a = cuda.shared.array(128 * 8, float32, alignment=16)
    tile_b = cuda.shared.array(8 * 128, float32, alignment=16)
    own = cuda.local.array(64, float32)
    part_a = cuda.local.array(8, float32)
    part_b = cuda.local.array(8, float32)
    t = uint64(cuda.threadIdx.x)
    col, row = t % S16, t // S16
    left = uint64(cuda.blockIdx.x) * uint64(128)
    top = uint64(cuda.blockIdx.y) * uint64(128)
    for i in range(64):
        own[i] = float32(0.0)
    start = ZERO
    while start < uint64(n):
        for i in range(4):
            e = t + uint64(256) * uint64(i)
            tile_a[e] = a[(top + e // uint64(8)) * uint64(n) + start + e % uint64(8)]
            tile_b[e] = b[(start + e // uint64(128)) * uint64(n) + left + e % uint64(128)]
        cuda.syncthreads()
        for k in range(8):
            for i in range(8):
                part_a[i] = tile_a[(row * uint64(8) + uint64(i)) * uint64(8) + uint64(k)]
                part_b[i] = tile_b[uint64(k) * uint64(128) + col * uint64(8) + uint64(i)]
            for i in range(8):
                for j in range(8):
                    own[8 * i + j] += part_a[i] * part_b[j]
        cuda.syncthreads()
        start += uint64(8)
    for i in range(8):
        for j in range(8):
            c[(top + row * uint64(8) + uint64(i)) * uint64(n) + left + col * uint64(8) + uint64(j)] = own[8 * i + j]


# --------------------------------------------------------------------------------- Best Practices Guide: K = 32 products
@cuda.jit
def outer_simple(a, b, c, n):
    row = uint64(cuda.blockIdx.y) * TILE + uint64(cuda.threadIdx.y)
    col = uint64(cuda.blockIdx.x) * TILE + uint64(cuda.threadIdx.x)
    total = float32(0.0)
    for i in range(32):
        total += a[row * TILE + uint64(i)] * b[uint64(i) * uint64(n) + col]
    c[row * uint64(n) + col] = total


@cuda.jit
def outer_a_shared(a, b, c, n):
    tile = cuda.shared.array(32 * 32, float32)
    tx, ty = uint64(cuda.threadIdx.x), uint64(cuda.threadIdx.y)
    row, col = uint64(cuda.blockIdx.y) * TILE + ty, uint64(cuda.blockIdx.x) * TILE + tx
    tile[ty * TILE + tx] = a[row * TILE + tx]
    cuda.syncwarp()
    total = float32(0.0)
    for i in range(32):
        total += tile[ty * TILE + uint64(i)] * b[uint64(i) * uint64(n) + col]
    c[row * uint64(n) + col] = total


@cuda.jit
def outer_ab_shared(a, b, c, n):
    tile = cuda.shared.array(32 * 32, float32)
    tile_b = cuda.shared.array(32 * 32, float32)
    tx, ty = uint64(cuda.threadIdx.x), uint64(cuda.threadIdx.y)
    row, col = uint64(cuda.blockIdx.y) * TILE + ty, uint64(cuda.blockIdx.x) * TILE + tx
    tile[ty * TILE + tx] = a[row * TILE + tx]
    tile_b[ty * TILE + tx] = b[ty * uint64(n) + col]
    cuda.syncthreads()
    total = float32(0.0)
    for i in range(32):
        total += tile[ty * TILE + uint64(i)] * tile_b[uint64(i) * TILE + tx]
    c[row * uint64(n) + col] = total


@cuda.jit
def aat_simple(a, c, n):
    row = uint64(cuda.blockIdx.y) * TILE + uint64(cuda.threadIdx.y)
    col = uint64(cuda.blockIdx.x) * TILE + uint64(cuda.threadIdx.x)
    total = float32(0.0)
    for i in range(32):
        total += a[row * TILE + uint64(i)] * a[col * TILE + uint64(i)]
    c[row * uint64(n) + col] = total


def aat_shared(width):
    pitch, cells = uint64(width), 32 * width

    @cuda.jit
    def aat(a, c, n):
        tile = cuda.shared.array(32 * 32, float32)
        turned = cuda.shared.array(cells, float32)
        tx, ty = uint64(cuda.threadIdx.x), uint64(cuda.threadIdx.y)
        row, col = uint64(cuda.blockIdx.y) * TILE + ty, uint64(cuda.blockIdx.x) * TILE + tx
        tile[ty * TILE + tx] = a[row * TILE + tx]
        turned[tx * pitch + ty] = a[(uint64(cuda.blockIdx.x) * TILE + ty) * TILE + tx]
        cuda.syncthreads()
        total = float32(0.0)
        for i in range(32):
            total += tile[ty * TILE + uint64(i)] * turned[uint64(i) * pitch + tx]
        c[row * uint64(n) + col] = total

    return aat


# ---------------------------------------------------------------------------------------------------------------- scans
@cuda.jit
def scan_shared(x, out):
    cache = cuda.shared.array(512, float32)
    t = uint64(cuda.threadIdx.x)
    i = thread()
    cache[t] = x[i]
    cuda.syncthreads()
    step = ONE
    while step < uint64(cuda.blockDim.x):
        value = cache[t]
        if t >= step:
            value += cache[t - step]
        cuda.syncthreads()
        cache[t] = value
        cuda.syncthreads()
        step *= TWO
    out[i] = cache[t]


@cuda.jit
def scan_double(x, out):
    cache = cuda.shared.array(512, float32)
    t = uint64(cuda.threadIdx.x)
    size = uint64(cuda.blockDim.x)
    i = thread()
    source, target = ZERO, size
    cache[t] = x[i]
    cuda.syncthreads()
    step = ONE
    while step < size:
        value = cache[source + t]
        if t >= step:
            value += cache[source + t - step]
        cache[target + t] = value
        source, target = target, source
        cuda.syncthreads()
        step *= TWO
    out[i] = cache[source + t]


# ------------------------------------------------------------------------------------------------------- numba's own map
def math_map(literal):
    from math import cos, sin, sqrt

    one, half = literal(1.0), literal(0.5)

    @cuda.jit(fastmath=True)
    def mapped(x, out):
        i = thread()
        if i < uint64(x.size):
            v = x[i]
            out[i] = sqrt(v * v + one) * sin(v) + cos(v * half)

    return mapped
