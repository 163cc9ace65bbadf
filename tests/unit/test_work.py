"""work.py: the ledger, what fusion saves, and the public claims about it, each re-derived from a ledger."""

import copy
import dataclasses
import math
import pickle
import random

import numpy as np
import pytest

from solcourse.errors import UnknownName, WorkError
from solcourse.work import Term, Work, cache_aware, fuse, saved_fraction, side_by_side


def matmul(m, k, n, s, x="X", w="W", y="Y"):
    """Y = X W with X (m, k), W (k, n), s bytes per element; perfect reuse inside the kernel."""
    return Work.read(x, m * k * s) + Work.read(w, k * n * s) + Work.write(y, m * n * s) + Work.flop("tensor_bf16", 2 * m * n * k)


def residual_add(m, n, s):
    return Work.read("Y", m * n * s) + Work.read("R", m * n * s) + Work.write("out", m * n * s)


def activation(m, n, s):
    return Work.read("Y", m * n * s) + Work.write("out", m * n * s)


def random_work(rng, tag):
    """A random ledger over a small set of tensor names, so that two of them share some."""
    work = Work.flop("fp32", rng.randrange(1000))
    for name in rng.sample("abcde", rng.randint(1, 4)):
        work += rng.choice([Work.read, Work.write])(name, rng.randrange(1, 100))
    return work + Work.read(f"only {tag}", 8)


def test_a_ledger_adds_up():
    n = 1 << 20
    saxpy = Work.read("x", 4 * n) + Work.read("y", 4 * n) + Work.write("y", 4 * n) + Work.flop("fp32", 2 * n)
    assert saxpy.compulsory_bytes == 12 * n  # 3 x 4 bytes per element
    assert (saxpy.read_bytes, saxpy.write_bytes, saxpy.total_flops) == (8 * n, 4 * n, 2 * n)
    assert saxpy.arithmetic_intensity == pytest.approx(1 / 6)
    assert [(t.name, t.direction) for t in saxpy.terms] == [("x", "read"), ("y", "read"), ("y", "write")]
    assert sum([saxpy, saxpy]) == saxpy + saxpy


def test_flops_of_one_kind_add_and_kinds_stay_apart():
    work = Work.flop("fp32", 3) + Work.flop("fp64", 4) + Work.flop("fp32", 5)
    assert dict(work.flops) == {"fp32": 8, "fp64": 4}
    assert Work(flops={"fp32": 8, "fp64": 4}) == work


def test_jamba_o_proj_with_residual_golden():
    # M=8192, K=N=2560, bf16 (2 bytes). FLOPs 2 x 8192 x 2560 x 2560 = 107.374 GFLOP
    # bytes: X 41.94 MB + W 13.11 MB + R 41.94 MB + out 41.94 MB = 138.94 MB; without W 125.83 MB
    m, k, n, s = 8192, 2560, 2560, 2
    fused = fuse(matmul(m, k, n, s), residual_add(m, n, s))
    assert fused.total_flops == 107_374_182_400
    assert fused.compulsory_bytes == 138_936_320
    assert fused.compulsory_bytes - k * n * s == 125_829_120
    assert {(t.name, t.direction) for t in fused.terms} == {("X", "read"), ("W", "read"), ("R", "read"), ("out", "write")}


@pytest.mark.parametrize(
    ("m", "k", "n", "saved"),
    [
        (4096, 4096, 4096, 1 / 3),  # 2/(1 + 1 + 4)
        (512, 4096, 4096, 2 / 13),  # 2/(1 + 8 + 4) = 15.4 %
        (1, 4096, 4096, 2 / 4101),  # decode: 0.05 %
        (38_000, 10_000, 1_000_000, 2 / (0.01 + 10 / 38 + 4)),  # towards the limit of 50 % for K << M, N
    ],
)
def test_claim_fusing_matmul_and_residual_saves_two_over_k_n_plus_k_m_plus_four(m, k, n, saved):
    # unfused, in units of MN elements: K/N (X) + K/M (W) + 1 (Y written) + 3 (add) ; fused two fewer
    a, b = matmul(m, k, n, 2), residual_add(m, n, 2)
    assert saved_fraction(a + b, fuse(a, b)) == pytest.approx(saved)


def test_claim_forty_percent_is_only_a_limit():
    # K = N, M -> inf: 2/(1 + 0 + 4) = 40 %; at least 38 % needs M >= 3.8 K: 2/(1 + 1/3.8 + 4) = 0.38
    a, b = matmul(10**9, 4096, 4096, 2), residual_add(10**9, 4096, 2)
    assert 0.3999 < saved_fraction(a + b, fuse(a, b)) < 0.4
    a, b = matmul(38_000, 10_000, 10_000, 2), residual_add(38_000, 10_000, 2)
    assert saved_fraction(a + b, fuse(a, b)) == pytest.approx(0.38, abs=1e-4)


def test_claim_fusing_gelu_saves_thirty_percent_on_one_curve():
    # 2/(K/N + K/M + 3) = 0.3 where K/N + K/M = 11/3; h=4096 -> 4h: 1/4 + 4096/M = 11/3, M = 1199
    a, b = matmul(1199, 4096, 4 * 4096, 2), activation(1199, 4 * 4096, 2)
    assert saved_fraction(a + b, fuse(a, b)) == pytest.approx(0.30, abs=2e-4)


def test_claim_fusing_qkv_saves_two_reads_of_x_not_two_thirds_of_traffic():
    # three matmuls read X (Mh) and h x h weights and write Mh each: 3 (2 Mh + h^2); fused X is read once: minus 2 Mh
    h, m, s = 4096, 4096, 2
    q, k, v = (matmul(m, h, h, s, w=f"W{x}", y=x) for x in "qkv")
    fused = fuse(fuse(q, k), v)
    assert saved_fraction(q + k + v, fused) == pytest.approx(2 / (3 * (2 + h / m)))  # 2/9 = 22.2 %
    assert saved_fraction(q + k + v, fused) < 1 / 3
    x_reads = sum(t.bytes for t in (q + k + v).terms if t.name == "X") / sum(t.bytes for t in fused.terms if t.name == "X")
    assert x_reads == 3  # 3 -> 1, the two thirds of the claim


def test_each_fused_elementwise_pass_saves_one_write_and_one_read():
    n = 4 * 1000
    chain = [Work.read(f"t{i}", n) + Work.write(f"t{i + 1}", n) for i in range(5)]
    fused = chain[0]
    for i, step in enumerate(chain[1:], start=2):
        fused = fuse(fused, step)
        assert sum(chain[:i]).compulsory_bytes - fused.compulsory_bytes == 2 * n * (i - 1)
    assert fused.compulsory_bytes == 2 * n  # t0 in, t5 out


def test_fused_never_moves_more_than_cache_aware_than_unfused():
    rng = random.Random(0)
    for _ in range(500):
        a, b = random_work(rng, "a"), random_work(rng, "b")
        written = [t.name for t in a.terms if t.direction == "write"]
        fused, kept = fuse(a, b), fuse(a, b, keep=written)
        warm, cold = cache_aware(a, b, l2_bytes=10**9), cache_aware(a, b, l2_bytes=0)
        assert fused.compulsory_bytes <= kept.compulsory_bytes <= (a + b).compulsory_bytes
        assert fused.compulsory_bytes <= warm.compulsory_bytes <= cold.compulsory_bytes == (a + b).compulsory_bytes
        assert fused.flops == warm.flops == (a + b).flops  # fusing saves bytes, never FLOPs


def test_fusing_unrelated_work_saves_nothing():
    a, b = Work.read("a", 8) + Work.write("x", 8), Work.read("b", 8) + Work.write("y", 8)
    assert fuse(a, b).compulsory_bytes == (a + b).compulsory_bytes == 32


def test_an_intermediate_that_others_need_is_still_written():
    a, b = Work.read("x", 8) + Work.write("t", 8), Work.read("t", 8) + Work.write("y", 8)
    assert fuse(a, b).compulsory_bytes == 16
    assert fuse(a, b, keep=["t"]).compulsory_bytes == 24
    with pytest.raises(UnknownName, match="tensor written by the first operation named 'T'.*Did you mean 't'"):
        fuse(a, b, keep=["T"])


def test_a_tensor_read_by_both_counts_once_and_a_part_not_made_is_still_read():
    a, b = Work.read("x", 8) + Work.write("t", 8), Work.read("x", 8) + Work.read("t", 12) + Work.write("y", 4)
    fused = fuse(a, b)
    assert {(t.name, t.direction): t.bytes for t in fused.terms} == {("x", "read"): 8, ("t", "read"): 4, ("y", "write"): 4}


def test_in_place_update_then_use():
    # y is read from memory once, updated, used by the second operation; only the sum leaves the chip
    update = Work.read("x", 8) + Work.read("y", 8) + Work.write("y", 8)
    total = Work.read("y", 8) + Work.write("sum", 1)
    assert fuse(update, total).compulsory_bytes == 8 + 8 + 1
    assert fuse(update, total, keep=["y"]).compulsory_bytes == 8 + 8 + 8 + 1


def test_cache_aware_needs_everything_the_first_launch_touched_to_fit():
    a, b = Work.read("x", 10) + Work.write("t", 10), Work.read("t", 10) + Work.write("y", 10)
    assert cache_aware(a, b, l2_bytes=20).compulsory_bytes == 30
    assert cache_aware(a, b, l2_bytes=19).compulsory_bytes == 40


def test_side_by_side_shows_where_each_byte_comes_from():
    a, b = matmul(2, 3, 4, 4), residual_add(2, 4, 4)
    rows = side_by_side(unfused=a + b, fused=fuse(a, b))
    assert rows[0] == ("term", "unfused", "fused")
    assert ("write Y", "32", "0") in rows  # 2 x 4 x 4 bytes
    # X 24 + W 48 + Y 32 + Y 32 + R 32 + out 32 = 200 ; fused 24 + 48 + 32 + 32 = 136
    assert rows[-1] == ("compulsory bytes", "200", "136")


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "8", None, True, 1j, [8]])
def test_impossible_bytes_and_flops_are_refused(bad):
    with pytest.raises(WorkError, match="Bytes of 'x' must be"):
        Work.read("x", bad)
    with pytest.raises(WorkError, match="Bytes of 'x' must be"):
        Work.write("x", bad)
    with pytest.raises(WorkError, match="FLOPs of kind 'fp32' must be"):
        Work.flop("fp32", bad)


def test_numpy_numbers_are_numbers():
    work = Work.read("x", np.int64(8)) + Work.flop("fp32", np.float64(2.0))
    assert (work.compulsory_bytes, work.total_flops) == (8, 2)
    assert type(work.terms[0].bytes) is int


def test_other_bad_input():
    with pytest.raises(UnknownName, match="kind of FLOP named 'fp23'.*Did you mean"):
        Work.flop("fp23", 1)
    with pytest.raises(WorkError, match="'read' or 'write'"):
        Term("x", "copy", 1)
    with pytest.raises(WorkError, match="empty"):
        Work().arithmetic_intensity  # noqa: B018
    with pytest.raises(WorkError, match="moves no bytes"):
        saved_fraction(Work.flop("fp32", 1), Work.read("x", 1))
    with pytest.raises(TypeError):
        Work.read("x", 1) + 3
    assert Work.flop("fp32", 1).arithmetic_intensity == math.inf


def test_a_ledger_is_a_value_that_travels_to_another_process():
    given = {"fp32": 1}
    work = Work.read("x", 8) + Work(flops=given)
    given["fp32"] = 2
    assert work.flops["fp32"] == 1  # its own copy
    assert pickle.loads(pickle.dumps(work)) == copy.deepcopy(work) == work
    assert hash(work) == hash(copy.deepcopy(work))
    with pytest.raises(dataclasses.FrozenInstanceError):
        work.terms = ()
