"""The kernels behind the published memory ladders compute what their sources compute: each against NumPy, on a small size."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ladders import histogram, layernorm, reduction, scan, softmax, streaming, transpose
from benchmarks.ladders.common import rows

F32 = np.float32
MODULES = (streaming, transpose, reduction, scan, softmax, layernorm, histogram)


def test_every_published_row_is_an_entry_or_left_out_with_a_reason():
    for module in MODULES:
        found = [entry.row for entry in module.entries()]
        ladders = {row["ladder"] for row in found}
        for row in (row for row in rows() if row["ladder"] in ladders):
            reasons = [
                reason
                for (ladder, begins), reason in module.LEFT_OUT.items()
                if ladder == row["ladder"] and (row["kernel"].startswith(begins) or row["gpu"].startswith(begins))
            ]
            assert found.count(row) + bool(reasons) == 1, f"{row['ladder']}, {row['gpu']}, {row['kernel']}"


# --------------------------------------------------------------------------------------------------------------- streaming
def test_adds(launch, rng):
    a, b = rng.standard_normal((2, 1024), F32)
    for kernel, blocks in ((streaming.add_guarded, 8), (streaming.add_grid_stride, 4)):
        c = np.zeros_like(a)
        launch(kernel[blocks, 128], c, a, b)
        np.testing.assert_array_equal(c, a + b)
    c = np.zeros_like(a)
    launch(streaming.add[8, 128], a, b, c)
    np.testing.assert_array_equal(c, a + b)
    c = np.zeros_like(a)
    launch(streaming.add_pairs[4, 128], a.view(np.int64), b.view(np.int64), c.view(np.int64))
    np.testing.assert_array_equal(c, a + b)


@pytest.mark.parametrize("name", streaming.SHARED_COPY)
def test_copies(launch, rng, name):
    x = rng.integers(0, 100, 2048).astype(name)
    for kernel in (streaming.copy_grid_stride, streaming.SHARED_COPY[name]):
        y = np.zeros_like(x)
        launch(kernel[1, 1024], y, x)
        np.testing.assert_array_equal(y, x)


def test_wide_copy_leaves_the_last_unit_to_the_loop_over_elements(launch):
    x, y = np.arange(1, 2049), np.zeros(2048, np.int64)
    launch(streaming.copy_wide[1, 1024], y, x)
    np.testing.assert_array_equal(y, [*x[:-1], 0])


def test_numba_copies(launch):
    x = np.arange(4096)
    for kernel in (streaming.copy_blocked, streaming.copy_striped):
        y = np.zeros_like(x)
        launch(kernel[2, 32], x, y, 64)
        np.testing.assert_array_equal(y, x)


def test_quick_gelu_and_its_parts(launch, rng):
    x, dy = rng.standard_normal((2, 2048)).astype(np.float16)
    wide, slope = x.astype(float), dy.astype(float)
    s = 1 / (1 + np.exp(-1.702 * wide))
    for kernel, args, expected in (
        (streaming.quick_gelu, (x,), wide * s),
        (streaming.quick_gelu_grad, (dy, x), slope * s * (1 + 1.702 * wide * (1 - s))),
        (streaming.half_scale, (x,), 1.702 * wide),
        (streaming.half_sigmoid, (x,), 1 / (1 + np.exp(-wide))),
        (streaming.half_multiply, (x, dy), wide * slope),
        (streaming.half_sigmoid_grad, (dy, x), slope * wide * (1 - wide)),
        (streaming.half_add, (x, dy), wide + slope),
    ):
        y = np.zeros_like(x)
        launch(kernel[2, 256], *args, y)
        np.testing.assert_allclose(y, expected, rtol=6e-3, atol=6e-3)


def test_relu_layernorm(launch, rng):
    x = rng.standard_normal((3, 512), F32)
    out = np.zeros_like(x)
    launch(streaming.relu_layernorm[3, 256], x.ravel(), out.reshape(-1), 512, F32(1e-5))
    y = np.maximum(x, 0)
    np.testing.assert_allclose(out, (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5), rtol=2e-4, atol=2e-5)


# --------------------------------------------------------------------------------------------------------------- transpose
@pytest.mark.parametrize("label", transpose.BLOG)
def test_blog_transposes(launch, label):
    x, out = np.arange(64 * 64, dtype=F32), np.zeros(64 * 64, F32)
    launch(transpose.BLOG[label][(2, 2), (32, 8)], out, x)
    np.testing.assert_array_equal(out.reshape(64, 64), x.reshape(64, 64) if "copy" in label else x.reshape(64, 64).T)


@pytest.mark.parametrize("label", transpose.SAMPLE_STEPS)
def test_sample_transposes(launch, label):
    x, out = np.arange(64 * 64, dtype=F32), np.zeros(64 * 64, F32)
    launch(transpose.SAMPLE_STEPS[label][(4, 4), (16, 16)], out, x, 64)
    tiles = x.reshape(4, 16, 4, 16)  # (tile row, row, tile column, column)
    order = (0, 1, 2, 3) if "copy" in label else {"coarse-grained": (2, 1, 0, 3), "fine-grained": (0, 3, 2, 1)}.get(label, (2, 3, 0, 1))
    np.testing.assert_array_equal(out.reshape(64, 64), tiles.transpose(order).reshape(64, 64))


# --------------------------------------------------------------------------------------------------------------- reduction
@pytest.mark.parametrize("label", reduction.STEPS)
def test_classic_reductions(launch, rng, label):
    kernel, each = reduction.STEPS[label]
    x = rng.integers(0, 8, 2 * 256 * each).astype(F32)
    partial = np.zeros(2, F32)
    launch(kernel[2, 256], x, partial)
    np.testing.assert_array_equal(partial, x.reshape(2, -1).sum(1))


def test_row_reductions(launch, rng):
    x = rng.integers(0, 8, (2, 700)).astype(F32)
    for kernel in (reduction.rows_tree, reduction.rows_shuffle):
        out = np.zeros(2, F32)
        launch(kernel[2, 256], x.ravel(), out, 700)
        np.testing.assert_array_equal(out, x.sum(1))


def test_sample_reductions(launch, rng):
    x = rng.integers(-9, 9, 4096).astype(np.int32)
    out, whole = np.zeros(4, np.int32), np.zeros(1, np.int32)
    launch(reduction.PAIRS[4, 256], x, out, x.size)
    launch(reduction.PAIRS_LAST[1, 32], out, whole, 4)
    assert whole[0] == x.sum()
    out = np.zeros(2, F32)
    launch(reduction.reduce_doubles[2, 1024], x.astype(F32), out, x.size)
    assert out.sum() == x.sum()


# -------------------------------------------------------------------------------------------------------------------- scan
@pytest.mark.parametrize("label", scan.STEPS)
def test_block_scans(launch, rng, label):
    kernel, size, each = scan.STEPS[label]
    x = rng.integers(0, 100, 2 * size * each).astype(np.int32)
    out = np.zeros_like(x)
    launch(kernel[2, size], x, out)
    np.testing.assert_array_equal(out.reshape(2, -1), x.reshape(2, -1).cumsum(1))


# ------------------------------------------------------------------------------------------------------------- softmax, norm
def probabilities(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_softmax_by_thread_works_on_its_columns(launch, rng):
    x = rng.standard_normal((64, 40), F32)
    for kernel in (softmax.softmax_thread, softmax.softmax_thread_online):
        out = np.zeros_like(x)
        launch(kernel[1, 64], x.ravel(), out.reshape(-1), 40, 33)
        np.testing.assert_allclose(out[:, :33], probabilities(x[:, :33]), rtol=1e-5)
        assert not out[:, 33:].any()


@pytest.mark.parametrize(
    ("kernel", "threads"),
    [
        (softmax.softmax_block_shared, 1024),
        (softmax.softmax_block_shuffled, 1024),
        (softmax.softmax_warp_online, 32),
        (softmax.softmax_warp_four, 32),
    ],
)
def test_softmax_of_rows(launch, rng, kernel, threads):
    x = rng.standard_normal((2, 1101), F32)
    out = np.zeros_like(x)
    launch(kernel[2, threads], x.ravel(), out.reshape(-1), 1101)
    np.testing.assert_allclose(out, probabilities(x), rtol=1e-4)


def test_layernorms(launch, rng):
    x = rng.standard_normal((4, 96), F32)
    weight, bias = rng.standard_normal((2, 96), F32)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias
    for kernel, grid, sizes in ((layernorm.layernorm_warp, 2, (4, 96)), (layernorm.layernorm_block, 4, (96,))):
        out, mean, rstd = np.zeros_like(x), np.zeros(4, F32), np.zeros(4, F32)
        launch(kernel[grid, 64], out.reshape(-1), mean, rstd, x.ravel(), weight, bias, *sizes)
        np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(mean, x.mean(1), atol=1e-6)
    out, mean, rstd = np.zeros_like(x), np.zeros(4, F32), np.zeros(4, F32)
    launch(layernorm.row_mean[4, 64], mean, x.ravel(), 96)
    launch(layernorm.row_rstd[4, 64], rstd, x.ravel(), mean, 96)
    launch(layernorm.normalize[2, 192], out.reshape(-1), x.ravel(), mean, rstd, weight, bias, 96)
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-4)


# --------------------------------------------------------------------------------------------------------------- histogram
def test_leaderboard_histogram(launch):
    data = histogram.contended(2 * 16384, 0.3)
    bins = np.full(256, 7, np.int32)
    launch(histogram.fill_zero[1, 256], bins)
    launch(histogram.histogram_per_warp[2, 1024], data.view(np.uint64), bins)
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=256))


def test_sample_histograms_with_their_merge(launch):
    data = histogram.contended(64 * 240 + 64 * 16, 0.0)
    for kernel, words, block, bins, counted in (
        (histogram.histogram64_per_thread, data.view(np.uint64), 64, 64, data >> 2),
        (histogram.histogram256_per_warp, data.view(np.uint32), 192, 256, data),
    ):
        partial, out = np.zeros(2 * bins, np.uint32), np.zeros(bins, np.uint32)
        launch(kernel[2, block], words, partial, data.size // 16 if bins == 64 else words.size)
        launch(histogram.merge_partial[bins, 256], partial, out, 2)
        np.testing.assert_array_equal(out, np.bincount(counted, minlength=bins))
