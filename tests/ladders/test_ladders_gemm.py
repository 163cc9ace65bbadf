"""The kernels behind the ladders of products, n-body and maps compute what they are named after; every row is an entry or left out."""

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("benchmarks") is None:
    pytest.skip("benchmarks are not part of an installation", allow_module_level=True)

from numba import float32, float64

from benchmarks.ladders import best_practices, gemm, gemv, maps, nbody
from benchmarks.ladders.common import left_out, rows

MODULES = (gemm, best_practices, gemv, nbody, maps)
LADDERS = {
    "sgemm-boehm-a6000", "sgemm-xgemm-3090", "matmul-sample-tile32", "outer-product-bpg-v100", "aat-bpg-v100", "sgemv-maharshi-1050ti",
    "nbody-fp32-open", "nbody-fp64-p100", "numba-mathmap-3080ti",
}  # fmt: skip
SQUARE = (32, 32)
PRODUCTS = {
    "naive, rows in x": (gemm.gemm_naive(rows_in_x=True), 32, SQUARE, False),
    "coalesced": (gemm.gemm_naive(rows_in_x=False), 32, SQUARE, False),
    "coalesced, linear": (gemm.gemm_naive(rows_in_x=False, linear=True), 32, 1024, False),
    "tile": (gemm.gemm_tile(linear=True, guarded=False), 32, 1024, False),
    "tile, guarded": (gemm.gemm_tile(linear=False, guarded=True), 32, SQUARE, False),
    "rows": (gemm.gemm_rows(guarded=False), 64, 512, False),
    "rows, guarded": (gemm.gemm_rows(guarded=True), 64, 512, False),
    "square": (gemm.gemm_square(8, guarded=False), 128, 256, False),
    "square, guarded": (gemm.gemm_square(16, guarded=True), 128, 256, False),
    "wide": (gemm.gemm_wide(8), 128, 256, True),
    "wide, dealt": (gemm.gemm_wide(8, dealt=True), 128, 256, True),
    "wide, padded": (gemm.gemm_wide(8, pitch=133), 128, 256, True),
    "wide, guarded": (gemm.gemm_wide(16, guarded=True), 128, 256, True),
    "warp tile": (gemm.gemm_warp_tile(), 128, 128, True),
}


def numbers(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


SLOW = {name for name, step in PRODUCTS.items() if step[1] == 128}  # hundreds of FMA in a row: seconds to compile


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PRODUCTS])
def test_every_step_is_alpha_ab_plus_beta_c(launch, rng, name):
    kernel, side, block, wide = PRODUCTS[name]
    n = 128
    a, b, c = numbers(rng, n, n), numbers(rng, n, n), numbers(rng, n, n)
    alpha, beta = np.float32(0.5), np.float32(3.0)
    out = c.copy().ravel()
    flat = [x.ravel().view(np.uint64) if wide else x.ravel() for x in (a, b)]
    launch(kernel[(n // side, n // side), block], *flat, out, n, alpha, beta, counters=False)
    np.testing.assert_allclose(out.reshape(n, n), 0.5 * (a @ b) + 3.0 * c, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", [name for name, step in PRODUCTS.items() if "guarded" in name and name not in SLOW])
def test_guards_keep_a_ragged_product_right(launch, rng, name):
    kernel, side, block, _ = PRODUCTS[name]
    n = side + 9
    a, b, c = numbers(rng, n, n), numbers(rng, n, n), np.zeros((n, n), np.float32)
    out = c.ravel()
    launch(kernel[(2, 2), block], a.ravel(), b.ravel(), out, n, np.float32(1.0), np.float32(0.0))
    np.testing.assert_allclose(out.reshape(n, n), a @ b, rtol=1e-3, atol=1e-3)


def test_the_sample_multiplies_an_oblong_product(launch, rng):
    a, b, out = numbers(rng, 64, 32), numbers(rng, 32, 96), np.zeros(64 * 96, np.float32)
    launch(gemm._oblong()[(3, 2), SQUARE], a.ravel(), b.ravel(), out, 32, 96)
    np.testing.assert_allclose(out.reshape(64, 96), a @ b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kernel", [best_practices.outer_simple, best_practices.outer_a_shared, best_practices.outer_ab_shared])
def test_outer_products_are_ab(launch, rng, kernel):
    n = 64
    a, b, out = numbers(rng, n, 32), numbers(rng, 32, n), np.zeros(n * n, np.float32)
    launch(kernel[(2, 2), SQUARE], a.ravel(), b.ravel(), out, n)
    np.testing.assert_allclose(out.reshape(n, n), a @ b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kernel", [best_practices.aat_simple, best_practices.AAT_CONFLICTS, best_practices.AAT_PADDED])
def test_a_times_its_transpose(launch, rng, kernel):
    n = 64
    a, out = numbers(rng, n, 32), np.zeros(n * n, np.float32)
    launch(kernel[(2, 2), SQUARE], a.ravel(), out, n)
    np.testing.assert_allclose(out.reshape(n, n), a @ a.T, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("kernel", "grid", "block"), [(gemv.gemv_naive, 1, 64), (gemv.gemv_warp, 40, 32), (gemv.gemv_block, 40, 64)])
def test_matrix_times_vector(launch, rng, kernel, grid, block):
    a, x, y = numbers(rng, 40, 256), numbers(rng, 256), np.zeros(40, np.float32)
    launch(kernel[grid, block], a.ravel(), x, y, 256)
    np.testing.assert_allclose(y, a @ x, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("double", "dtype", "tolerance"), [(False, np.float32, 2e-3), (True, np.float64, 1e-9)])
def test_bodies_attract_each_other(launch, rng, double, dtype, tolerance):
    n = 256
    bodies = rng.standard_normal((n, 4)).astype(dtype)
    bodies[:, 3] = rng.random(n) + 0.5
    velocities, moved = np.zeros(4 * n, dtype), np.zeros(4 * n, dtype)
    launch(nbody.nbody_tiled(double)[1, 256], bodies.ravel(), velocities, moved, n)
    apart = bodies[None, :, :3] - bodies[:, None, :3]  # (body, other, axis)
    pull = bodies[None, :, 3] / ((apart**2).sum(2) + 1e-3) ** 1.5
    speed = 0.016 * (apart * pull[:, :, None]).sum(1)
    np.testing.assert_allclose(velocities.reshape(n, 4)[:, :3], speed, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(moved.reshape(n, 4)[:, :3], bodies[:, :3] + 0.016 * speed, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(moved.reshape(n, 4)[:, 3], bodies[:, 3])


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        (maps.map_natural, np.float64), (maps.map_natural, np.float32), (maps.map_lean(float64), np.float64),
        (maps.map_lean(float32), np.float32), (maps.map_intrinsics, np.float32),
    ],
)  # fmt: skip
def test_the_map_is_the_function(launch, rng, kernel, dtype):
    x, out = rng.uniform(-10, 10, 500).astype(dtype), np.zeros(500, dtype)
    launch(kernel[1, 256], x, out)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(out, np.sqrt(x * x + 1) * np.sin(x) + np.cos(x / 2), rtol=10 * tolerance, atol=10 * tolerance)


def test_every_row_is_an_entry_or_left_out_with_a_reason():
    found = [(row["ladder"], row["gpu"], row["kernel"], row["size"]) for module in MODULES for row in (e.row for e in module.entries())]
    absent = [(row["ladder"], row["gpu"], row["kernel"], row["size"]) for row, reason in left_out(MODULES) if reason]
    published = [(row["ladder"], row["gpu"], row["kernel"], row["size"]) for row in rows() if row["ladder"] in LADDERS]
    assert sorted(found + absent) == sorted(published)
