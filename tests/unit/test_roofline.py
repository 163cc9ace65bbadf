"""roofline.py: the golden numbers of public sources, the laws of both scores, and the claims the course audits."""

import dataclasses
import math
import random

import pytest

from solcourse.errors import UnknownName, WorkError
from solcourse.hardware import device, devices
from solcourse.roofline import (
    active_efficiency,
    anchored_score,
    anchors_from_scores,
    audit,
    explain,
    hfu,
    mean_speedup,
    mfu,
    ridge_point,
    roofs,
    sol_bound,
    sol_bounds,
    sol_score,
    sol_time_s,
    suite_score,
    time_from_anchored_score,
    time_from_sol_score,
    transformer_flops_per_token,
)
from solcourse.work import Work

A100 = device("A100-SXM4-80GB")
US = 1e-6


def b200(gbs, bf16_tflops=1811.0):
    """B200 with the figures of one source: they use three different bandwidths."""
    return dataclasses.replace(device("B200-SXM-180GB"), dram_gbs_spec=gbs, bf16_tensor_tflops=bf16_tflops)


# ---------------------------------------------------------------- golden numbers


def test_ridge_points_golden():
    assert ridge_point(A100) == pytest.approx(9.56, abs=0.005)  # 19.49e12 / 2.039e12
    assert ridge_point(b200(7667), "tensor_bf16") == pytest.approx(236.2, abs=0.05)  # 1.811e15 / 7.667e12


@pytest.mark.parametrize(("moved", "time_us"), [(69_074_944, 8.994), (18_079_744, 2.354), (10_240_000, 1.333)])
def test_nvfp4_gemm_golden(moved, time_us):
    assert sol_time_s(Work.read("A, B, scales and C", moved), b200(7680)) == pytest.approx(time_us * US, abs=0.0006 * US)


def test_nvfp4_gemm_bytes_golden():
    # 128 x 7168 x 16384: A 128x16384/2 + B 7168x16384/2 + scales (A and B)/16 + C 128x7168x2
    m, n, k = 128, 7168, 16384
    ledger = Work.read("A", m * k // 2) + Work.read("B", n * k // 2) + Work.read("scales", (m + n) * k // 16) + Work.write("C", m * n * 2)
    assert ledger.compulsory_bytes == 1_048_576 + 58_720_256 + 7_471_104 + 1_835_008 == 69_074_944


def test_jamba_o_proj_golden():
    # 107.374 GFLOP / 1.811 PFLOP/s = 59.29 us; 138.94 MB / 7.667 TB/s = 18.1 us: compute binds
    work = Work.read("X, W, R", 96_993_280) + Work.write("out", 41_943_040) + Work.flop("tensor_bf16", 107_374_182_400)
    assert work.compulsory_bytes == 138_936_320
    assert sol_time_s(work, b200(7667)) == pytest.approx(59.28 * US, abs=0.02 * US)
    assert sol_bound(work, b200(7667)) == "tensor"


def test_nanogpt_flops_per_token_golden():
    # 6 x 124e6 = 744,000,000 ; 12 x 12 x 12 x 64 x 1024 = 113,246,208
    assert transformer_flops_per_token(124e6, 12, 12, 64, 1024) == 744_000_000 + 113_246_208 == 857_246_208


def test_anchored_scores_golden():
    assert anchored_score(3, 2, 1) == pytest.approx(1 / 3)  # (2-1)/((3-1)+(2-1)), and T_b = 2 T_SOL, so it is R too
    assert anchored_score(12.4, 16.593, 5.761) == pytest.approx(0.62, abs=5e-5)  # 10.832/(6.639 + 10.832)
    assert anchored_score(7.1, 16.593, 5.761) == pytest.approx(0.89, abs=5e-5)  # 10.832/(1.339 + 10.832)


@pytest.mark.parametrize(
    ("light", "baseline", "r"),
    [(1.2, 17.1, 0.070), (7.0, 27.2, 0.257), (26.7, 40.6, 0.658), (52.9, 71.0, 0.745)],  # residual + RMSNorm bf16, B200
)
def test_at_the_baseline_r_tells_what_s_hides(light, baseline, r):
    assert anchored_score(baseline, baseline, light) == 0.5
    assert light / baseline == pytest.approx(r, abs=5e-4)


# ---------------------------------------------------------------- laws


def test_anchored_equals_sol_score_exactly_when_the_baseline_is_twice_the_light():
    rng = random.Random(1)
    for _ in range(500):
        light, time = rng.uniform(0.1, 5), rng.uniform(5, 50)
        assert anchored_score(time, 2 * light, light) == pytest.approx(light / time)
        other = light * rng.choice([rng.uniform(1.05, 1.9), rng.uniform(2.1, 9)])
        assert anchored_score(time, other, light) != pytest.approx(light / time, rel=1e-3)


@pytest.mark.parametrize("baseline", ["1 ms", None, float("nan"), 0.0])
def test_a_baseline_that_is_no_time_is_refused_in_words(baseline):
    with pytest.raises(WorkError, match=r"baseline_s must be finite and above 0"):
        anchored_score(3, baseline, 1)


def test_anchored_score_is_half_at_the_baseline_one_at_the_light_and_falls_with_time():
    assert anchored_score(7, 7, 3) == 0.5
    assert anchored_score(3, 7, 3) == 1.0
    scores = [anchored_score(t, 7, 3) for t in (3, 4, 5, 7, 20, 1e3, 1e9)]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[-1] < 1e-8


def test_both_inverses_give_the_time_back():
    rng = random.Random(2)
    for _ in range(200):
        light = rng.uniform(0.1, 5)
        baseline, time = light * rng.uniform(1.1, 9), light * rng.uniform(1, 9)
        assert time_from_anchored_score(anchored_score(time, baseline, light), baseline, light) == pytest.approx(time)
        assert time_from_sol_score(light / time, light) == pytest.approx(time)


def test_a_baseline_at_the_light_is_solved_and_has_no_anchored_score():
    assert anchored_score(5, 3, 3) is None
    assert anchored_score(5, 2, 3) is None
    with pytest.raises(WorkError, match="solved"):
        time_from_anchored_score(0.5, 3, 3)


def test_faster_than_light_is_never_clipped():
    assert anchored_score(2.5, 4, 3) == 2.0  # 1/(-0.5 + 1)
    assert anchored_score(2, 4, 3) == math.inf  # the pole T = 2 T_SOL - T_b = 2
    assert anchored_score(1, 4, 3) == math.inf
    assert sol_score(0.5e-3, Work.read("x", 2.039e9), A100) == pytest.approx(2.0)


@pytest.mark.parametrize("gpu", devices(), ids=lambda d: d.name)
def test_t_sol_is_the_larger_of_the_two_and_they_meet_at_the_ridge(gpu):
    moved = 10**9
    at_ridge = Work.read("x", moved) + Work.flop("fp32", ridge_point(gpu) * moved)
    bounds = sol_bounds(at_ridge, gpu)
    assert bounds["dram"] == pytest.approx(bounds["fp32"])
    assert bounds["dram"] == pytest.approx(moved / (gpu.dram_gbs_spec * 1e9))
    assert sol_bound(at_ridge + Work.read("y", moved), gpu) == "dram"
    assert sol_bound(at_ridge + Work.flop("fp32", 1e15), gpu) == "fp32"
    assert sol_time_s(at_ridge, gpu) == max(bounds.values())


def test_tensor_kinds_share_one_pipe_and_other_pipes_work_side_by_side():
    work = (
        Work.flop("tensor_bf16", 311.9e12) + Work.flop("tensor_tf32", 155.9e12) + Work.flop("fp32", 19.49e12) + Work.flop("fp64", 9.75e12)
    )
    # one second each: the two tensor kinds queue up, the rest overlaps
    assert dict(sol_bounds(work, A100)) == pytest.approx({"tensor": 2.0, "fp32": 1.0, "fp64": 1.0})
    assert sol_time_s(work, A100) == pytest.approx(2.0)


def test_roofs_are_ordered_and_in_bytes_per_second():
    r = roofs("A100-SXM4-80GB")
    # shared: 128 B/clk x 108 SMs x 1.41 GHz = 19.5 TB/s ; L2 3260 B/clk x 1.41 GHz = 4.6 TB/s, as measured
    assert r["shared"] == pytest.approx(128 * 108 * 1.41e9)
    assert r["l2"] == pytest.approx(4600e9, rel=0.001)
    assert r["dram"] < r["l2"] < r["l1"] == r["shared"]


def test_suite_is_an_arithmetic_mean_and_speedups_a_geometric_one():
    assert suite_score([1.0, 0.5, 0.0]) == pytest.approx(0.5)  # an incorrect kernel counts 0
    assert mean_speedup([4.0, 0.25]) == pytest.approx(1.0)
    assert mean_speedup([2.0, 8.0]) == pytest.approx(4.0)


# ---------------------------------------------------------------- R explained


def test_explanation_multiplies_to_the_sol_score_where_dram_binds():
    work = Work.read("x", 1e9) + Work.write("y", 1e9)
    e = explain(4e-3, work, A100, actual_bytes=4e9, active_s=3e-3)
    assert e.bound == "dram"
    assert e.waste == pytest.approx(0.5)  # 2 GB needed, 4 GB moved
    assert e.rate == pytest.approx(4e9 / 3e-3 / 2.039e12)
    assert e.idle == pytest.approx(0.75)
    assert e.sol_score == pytest.approx(sol_score(4e-3, work, A100))
    assert e.worst == "waste"


def test_explanation_multiplies_to_the_sol_score_where_a_pipe_binds():
    work = Work.read("x", 1.0) + Work.flop("fp32", 19.49e9)  # 1 ms at peak
    e = explain(4e-3, work, A100, actual_flops=2 * 19.49e9, active_s=2.5e-3)
    assert (e.bound, e.waste) == ("fp32", pytest.approx(0.5))
    assert e.rate == pytest.approx(2 / 2.5)
    assert e.idle == pytest.approx(2.5 / 4)
    assert e.sol_score == pytest.approx(0.25) == pytest.approx(sol_score(4e-3, work, A100))
    tensor = Work.flop("tensor_bf16", 311.9e9) + Work.flop("tensor_tf32", 155.9e9)
    assert explain(4e-3, tensor, A100).sol_score == pytest.approx(0.5)


def test_explanation_refuses_what_cannot_be():
    work = Work.read("x", 1e9)
    with pytest.raises(WorkError, match="needs actual_bytes"):
        explain(1e-3, work, A100)
    with pytest.raises(WorkError, match="active_s .* exceeds the elapsed time"):
        explain(1e-3, work, A100, actual_bytes=1e9, active_s=2e-3)
    with pytest.raises(WorkError, match="actual_bytes must be"):
        explain(1e-3, work, A100, actual_bytes=0)


# ---------------------------------------------------------------- the alarm


def test_a_possible_time_raises_no_alarm():
    assert audit(1.0001e-3, Work.read("x", 2.039e9), A100) is None
    assert audit(0.99e-3, Work.read("x", 2.039e9), A100, tolerance=0.02) is None


def test_a_small_working_set_is_suspected_to_be_cache_resident():
    alarm = audit(5e-6, Work.read("x", 20e6), A100)  # T_SOL 9.8 us; 20 MB < 40 MiB of L2
    assert alarm.sol_score == pytest.approx(20e6 / 2.039e12 / 5e-6)
    assert alarm.suspects[0].startswith("cache-resident: 20.0 MB fit in L2 (41.9 MB)")
    assert "SOL score 1.96 > 1" in str(alarm)


def test_a_large_working_set_is_not_and_missing_bytes_are_named():
    alarm = audit(0.5e-3, Work.read("x", 2.039e9), A100, actual_bytes=1e9)
    assert alarm.suspects[0].startswith("bytes undercounted: 1.00 GB moved, 2.04 GB compulsory")
    assert not any("cache-resident" in s for s in alarm.suspects)
    assert any("skipped" in s for s in alarm.suspects)
    assert any("ledger" in s for s in alarm.suspects)


def test_a_compute_bound_alarm_suspects_the_clock():
    work = Work.flop("fp32", 19.49e9)
    known = audit(0.9e-3, work, A100, clock_mhz=1700)
    assert known.bound == "fp32"
    assert known.suspects[0] == "wrong clock: the chip ran at 1700 MHz, its peak is stated at 1410 MHz"
    assert not any("wrong clock" in s for s in audit(0.9e-3, work, A100, clock_mhz=1410).suspects)
    assert "wrong clock" in audit(0.9e-3, work, A100).suspects[-1]


# ---------------------------------------------------------------- MFU


def test_mfu_is_not_divided_by_utilisation():
    m = mfu(200e12, 1.0, 312e12)
    assert m == pytest.approx(0.641, abs=5e-4)
    assert active_efficiency(m, 0.8) == pytest.approx(0.801, abs=5e-4)
    assert active_efficiency(m, 0.6) == pytest.approx(1.068, abs=5e-4)  # above 1: that it is no MFU shows
    assert hfu(200e12, 50e12, 1.0, 312e12) == pytest.approx(250 / 312)
    assert hfu(200e12, 0, 1.0, 312e12) == m


# ---------------------------------------------------------------- claims


def test_claim_sol_score_from_062_to_089_is_anchored_not_r():
    # as R: T_SOL would be 0.62 x 12.4 = 7.69 us before and 0.89 x 7.1 = 6.32 us after; with 7.69 the second beats light, R = 1.08
    assert round(0.62 * 12.4 / 7.1, 2) == 1.08
    light, baseline = anchors_from_scores(12.4, 0.62, 7.1, 0.89)
    assert (light, baseline) == (pytest.approx(5.761, abs=5e-4), pytest.approx(16.593, abs=5e-4))
    assert anchored_score(7.1, baseline, light) == pytest.approx(0.89)


@pytest.mark.parametrize(("before", "after", "cut"), [(0.72, 0.89, 0.191), (0.65, 0.92, 0.293)])
def test_claim_a_ratio_of_sol_scores_is_a_ratio_of_times_at_one_t_sol(before, after, cut):
    assert 1 - time_from_sol_score(after, 1.0) / time_from_sol_score(before, 1.0) == pytest.approx(cut, abs=5e-4)


def test_claims_about_utilisation():
    assert 1 - mfu(200e12, 1, 312e12) == pytest.approx(0.359, abs=5e-4)
    assert round(1 - 65 / 82, 3) == 0.207
    assert round(21 * 58 / 71, 1) == 17.2  # days, not the 14 claimed
    assert 58 * 21 / 14 == 87  # the MFU that 14 days would need


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_impossible_times_are_refused(bad):
    work = Work.read("x", 1)
    for call in (
        lambda: sol_score(bad, work, A100),
        lambda: anchored_score(bad, 2, 1),
        lambda: anchored_score(3, bad, 1),
        lambda: anchored_score(3, 2, bad),
        lambda: time_from_sol_score(bad, 1),
        lambda: mfu(1, bad, 1),
        lambda: mfu(1, 1, bad),
        lambda: explain(bad, work, A100, actual_bytes=1),
        lambda: mean_speedup([1.0, bad]),
    ):
        with pytest.raises(WorkError, match="must be finite and above 0"):
            call()


def test_other_impossible_input_is_refused():
    with pytest.raises(WorkError, match="empty"):
        sol_time_s(Work(), A100)
    with pytest.raises(WorkError, match="empty"):
        sol_time_s(Work.read("x", 0), A100)
    with pytest.raises(WorkError, match="no unit for tensor_bf16"):
        sol_time_s(Work.flop("tensor_bf16", 1), "Tesla T4")
    with pytest.raises(UnknownName, match="Did you mean 'H100-SXM5-80GB'"):
        sol_time_s(Work.read("x", 1), "H100-SXM6")
    with pytest.raises(WorkError, match="at least one score"):
        suite_score([])
    with pytest.raises(WorkError, match="at least one speed-up"):
        mean_speedup([])
    for u in (0, 1.1, math.nan):
        with pytest.raises(WorkError, match="utilisation must be a fraction"):
            active_efficiency(0.5, u)
    with pytest.raises(WorkError, match="inconsistent"):
        anchors_from_scores(7.1, 0.62, 12.4, 0.89)  # slower, yet a better score
    with pytest.raises(WorkError, match="Two different scores"):
        anchors_from_scores(7.1, 0.6, 12.4, 0.6)
    with pytest.raises(WorkError, match="model_flops"):
        mfu(-1, 1, 1)


def test_a_predicted_time_is_not_suspected_of_a_wrong_timer():
    small, large = Work.read("x", 4_000_000), Work.read("x", 4_000_000_000)
    resident = audit(1e-7, small, "A100-SXM4-80GB", actual_bytes=0, predicted=True)
    assert resident is not None
    assert "cache-resident" in resident.suspects[0]
    for work in (small, large):
        said = " ".join(audit(1e-7, work, "A100-SXM4-80GB", actual_bytes=0, predicted=True).suspects)
        assert "timer" not in said
        assert "skipped (" not in said
    assert "0 B moved" not in " ".join(resident.suspects)
