"""Speed of light, the two scores, and what explains them: pure arithmetic on Work and Device. The definition of every score.

    T_SOL = max over pipes( FLOPs of the pipe / peak of the pipe , compulsory bytes / DRAM bytes per second )
    sol_score       R = T_SOL / T
    anchored_score  S = (T_b - T_SOL) / ((T - T_SOL) + (T_b - T_SOL))          S = 0.5 at the baseline T_b, 1 at T_SOL

Neither is ever clipped: a score above 1 is an alarm (`audit` says what to suspect). Times in seconds, rates per second, FMA = 2.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import units
from .errors import WorkError
from .hardware import Device
from .hardware import device as find_device
from .work import Work

TENSOR = "tensor"


def _positive(what: str, value: object) -> float:
    if not isinstance(value, numbers.Real) or not math.isfinite(value) or value <= 0:
        raise WorkError(f"{what} must be finite and above 0, not {value!r}.")
    return float(value)


def sol_bounds(work: Work, device: str | Device) -> Mapping[str, float]:
    """Seconds that each resource needs at its peak: "dram", and one entry per pipe in use ("fp32", "fp64", "fp16", "tensor").

    All kinds of tensor FLOPs share one pipe, so their times add; other pipes work side by side.
    Raises: WorkError for an empty ledger, or for a kind of FLOP that the chip has no unit for.
    """
    gpu = find_device(device)
    bounds = {"dram": work.compulsory_bytes / gpu.dram_bytes_per_s} if work.compulsory_bytes else {}
    for kind, count in work.flops.items():
        if count:
            pipe = TENSOR if kind.startswith("tensor") else kind
            bounds[pipe] = bounds.get(pipe, 0.0) + count / gpu.peak_flops_per_s(kind)
    if not bounds:
        raise WorkError("This ledger is empty: it has neither bytes nor FLOPs, so there is no fastest time.")
    return bounds


def sol_bound(work: Work, device: str | Device) -> str:
    """The resource that binds at the speed of light: the key of the largest of `sol_bounds`."""
    bounds = sol_bounds(work, device)
    return max(bounds, key=lambda name: bounds[name])


def sol_time_s(work: Work, device: str | Device) -> float:
    """T_SOL in seconds: no kernel that does this work can be faster on this device. No kernel reaches it either: DRAM gives 85-90 %.

    Raises: WorkError, UnknownName.

    >>> sol_time_s(Work.read("x", 2.039e9), "A100-SXM4-80GB")  # 2.039 GB at 2039 GB/s
    0.001
    """
    return max(sol_bounds(work, device).values())


def sol_score(time_s: float, work: Work, device: str | Device) -> float:
    """R = T_SOL / T. Above 1 means that a figure is wrong: see `audit`. Raises: WorkError, UnknownName.

    >>> sol_score(0.002, Work.read("x", 2.039e9), "A100-SXM4-80GB")
    0.5
    """
    return sol_time_s(work, device) / _positive("time_s", time_s)


def anchored_score(time_s: float, baseline_s: float, sol_time_s: float) -> float | None:
    """SOL-ExecBench's score S = (T_b - T_SOL) / ((T - T_SOL) + (T_b - T_SOL)): 0.5 at the baseline, 1 at T_SOL, to 0 as T grows.

    None when the baseline is already at the speed of light ("solved"). A time below T_SOL gives S > 1, and infinity at and beyond
    the formula's pole T = 2 T_SOL - T_b: an alarm, not a mark. S = R exactly when T_b = 2 T_SOL.
    Raises: WorkError. Source: arXiv 2603.19173.

    >>> round(anchored_score(7.1e-6, baseline_s=16.593e-6, sol_time_s=5.761e-6), 2)
    0.89
    """
    time_s, baseline_s, sol_time_s = _positive("time_s", time_s), _positive("baseline_s", baseline_s), _positive("sol_time_s", sol_time_s)
    gain = baseline_s - sol_time_s
    if gain <= 0:
        return None
    distance = (time_s - sol_time_s) + gain
    return gain / distance if distance > 0 else math.inf


def time_from_sol_score(score: float, sol_time_s: float) -> float:
    """The inverse of R: T = T_SOL / R, seconds."""
    return _positive("sol_time_s", sol_time_s) / _positive("score", score)


def time_from_anchored_score(score: float, baseline_s: float, sol_time_s: float) -> float:
    """The inverse of S: T = T_SOL + (T_b - T_SOL)(1 - S)/S, seconds. Raises: WorkError, also when T_b <= T_SOL (solved: no S).

    >>> round(time_from_anchored_score(0.89, 16.593e-6, 5.761e-6) * 1e6, 1)
    7.1
    """
    score, baseline_s, sol_time_s = _positive("score", score), _positive("baseline_s", baseline_s), _positive("sol_time_s", sol_time_s)
    if baseline_s <= sol_time_s:
        raise WorkError(
            f"The baseline ({units.seconds(baseline_s)}) is at or below T_SOL ({units.seconds(sol_time_s)}): solved, no anchored score."
        )
    return sol_time_s + (baseline_s - sol_time_s) * (1 - score) / score


def anchors_from_scores(time_1_s: float, score_1: float, time_2_s: float, score_2: float) -> tuple[float, float]:
    """(T_SOL, T_b) for which both pairs of time and anchored score are true: audits a claim "S went from .. to .. while T fell ..".

    From T = T_SOL + (T_b - T_SOL)(1/S - 1), linear in the two unknowns. Raises: WorkError when no positive pair exists.

    >>> [round(t * 1e6, 2) for t in anchors_from_scores(12.4e-6, 0.62, 7.1e-6, 0.89)]
    [5.76, 16.59]
    """
    x_1, x_2 = 1 / _positive("score_1", score_1) - 1, 1 / _positive("score_2", score_2) - 1
    if x_1 == x_2:
        raise WorkError("Two different scores are needed.")
    gain = (_positive("time_1_s", time_1_s) - _positive("time_2_s", time_2_s)) / (x_1 - x_2)
    light = time_1_s - gain * x_1
    if gain <= 0 or light <= 0:
        raise WorkError("No T_SOL and baseline make both scores true: the claim is inconsistent.")
    return light, light + gain


def suite_score(scores: Iterable[float]) -> float:
    """The score of a suite: the arithmetic mean of its scores (an incorrect kernel counts 0). Raises: WorkError for none."""
    scores = list(scores)
    if not scores:
        raise WorkError("A suite needs at least one score.")
    return sum(scores) / len(scores)


def mean_speedup(speedups: Iterable[float]) -> float:
    """Speed-ups aggregate geometrically: exp(mean(log)). Raises: WorkError for none, or for one that is not positive."""
    logs = [math.log(_positive("speed-up", s)) for s in speedups]
    if not logs:
        raise WorkError("A mean needs at least one speed-up.")
    return math.exp(sum(logs) / len(logs))


def mfu(model_flops: float, time_s: float, peak_flops_per_s: float) -> float:
    """Model FLOPs utilisation = FLOPs the model needs / time / peak; recomputation does not count. Fraction.

    Source: PaLM, appendix B. Raises: WorkError.

    >>> round(mfu(200e12, 1.0, 312e12), 3)
    0.641
    """
    if not math.isfinite(model_flops) or model_flops < 0:
        raise WorkError(f"model_flops must be finite and at least 0, not {model_flops!r}.")
    return model_flops / _positive("time_s", time_s) / _positive("peak_flops_per_s", peak_flops_per_s)


def hfu(model_flops: float, recomputed_flops: float, time_s: float, peak_flops_per_s: float) -> float:
    """Hardware FLOPs utilisation: as `mfu`, but recomputed FLOPs count too. Never below MFU."""
    return mfu(model_flops, time_s, peak_flops_per_s) + mfu(recomputed_flops, time_s, peak_flops_per_s)


def active_efficiency(mfu: float, utilisation: float) -> float:
    """MFU / U: the efficiency while the hardware was busy for the fraction U of the time. Not MFU, though some call it so.

    Raises: WorkError unless 0 < U <= 1.

    >>> round(active_efficiency(200 / 312, 0.8), 3)
    0.801
    """
    if not 0 < utilisation <= 1:
        raise WorkError(f"utilisation must be a fraction above 0 and at most 1, not {utilisation!r}.")
    return mfu / utilisation


def transformer_flops_per_token(parameters: float, layers: int, heads: int, head_dim: int, sequence: int) -> float:
    """Training FLOPs of a transformer per token: 6 N + 12 L H Q T (forward and backward, no recomputation). Source: PaLM, appendix B.

    >>> transformer_flops_per_token(124e6, layers=12, heads=12, head_dim=64, sequence=1024)  # nanoGPT 124M
    857246208.0
    """
    return 6 * parameters + 12 * layers * heads * head_dim * sequence


def ridge_point(device: str | Device, kind: str = "fp32") -> float:
    """FLOP per byte at which the peak of `kind` and DRAM bind equally = peak FLOP/s / DRAM bytes/s (data-sheet rates).

    >>> round(ridge_point("A100-SXM4-80GB"), 2)
    9.56
    """
    gpu = find_device(device)
    return gpu.peak_flops_per_s(kind) / gpu.dram_bytes_per_s


def roofs(device: str | Device) -> Mapping[str, float]:
    """Bandwidth ceilings beside DRAM, bytes per second at the boost clock: "dram", "l2", "l1", "shared".

    SOLAR's bound leaves out L2 and below; for fp32 kernels they are often what binds.
    """
    gpu = find_device(device)
    boost_hz = gpu.boost_mhz * 1e6
    return {
        "dram": gpu.dram_bytes_per_s,
        "l2": gpu.l2_bytes_clk * boost_hz,
        "l1": gpu.l1_load_bytes_clk_sm * gpu.sms * boost_hz,
        "shared": gpu.smem_bytes_clk_sm * gpu.sms * boost_hz,
    }


@dataclass(frozen=True)
class Explanation:
    """R = waste x rate x idle, each a fraction of what is possible.

    bound  the resource that binds at the speed of light: "dram", or a pipe
    waste  what had to be done / what was done (bytes where DRAM binds, FLOPs where a pipe binds): what was moved that need not be
    rate   (what was done / active seconds) / peak: how fast it moved
    idle   active / elapsed seconds: how much of the time anything moved (launch, tail, waves)
    """

    bound: str
    waste: float
    rate: float
    idle: float

    @property
    def sol_score(self) -> float:
        return self.waste * self.rate * self.idle

    @property
    def worst(self) -> str:
        """The smallest of the three factors: where the next improvement is."""
        return min(("waste", "rate", "idle"), key=lambda name: float(getattr(self, name)))


def explain(
    time_s: float,
    work: Work,
    device: str | Device,
    *,
    actual_bytes: float | None = None,
    actual_flops: float | None = None,
    active_s: float | None = None,
) -> Explanation:
    """Splits R into its three causes; their product is exactly `sol_score(time_s, work, device)`.

    actual_bytes  bytes that DRAM really moved; needed where DRAM binds
    actual_flops  FLOPs really executed on the binding pipe; default: those of the ledger
    active_s      seconds in which the binding resource had work to do; default: all of `time_s`
    Raises: WorkError, UnknownName.
    """
    time_s = _positive("time_s", time_s)
    active_s = time_s if active_s is None else _positive("active_s", active_s)
    if active_s > time_s * (1 + 1e-9):
        raise WorkError(f"active_s ({units.seconds(active_s)}) exceeds the elapsed time ({units.seconds(time_s)}).")
    bounds = sol_bounds(work, device)
    bound = max(bounds, key=lambda name: bounds[name])
    if bound == "dram":
        if actual_bytes is None:
            raise WorkError("DRAM binds this work: explain() needs actual_bytes, what DRAM really moved.")
        needed, actual = work.compulsory_bytes, _positive("actual_bytes", actual_bytes)
    else:
        needed = sum(n for kind, n in work.flops.items() if kind == bound or (bound == TENSOR and kind.startswith(TENSOR)))
        actual = needed if actual_flops is None else _positive("actual_flops", actual_flops)
    peak_per_s = needed / bounds[bound]
    return Explanation(bound, needed / actual, actual / active_s / peak_per_s, active_s / time_s)


@dataclass(frozen=True)
class Alarm:
    """A score above 1: faster than light, so some figure is wrong. `suspects`: what to look at, most likely first."""

    sol_score: float
    bound: str
    suspects: tuple[str, ...]

    def __str__(self) -> str:
        return f"SOL score {units.score(self.sol_score)} > 1: a figure is wrong. Suspects: " + "; ".join(self.suspects) + "."


def audit(
    time_s: float,
    work: Work,
    device: str | Device,
    *,
    actual_bytes: float | None = None,
    clock_mhz: float | None = None,
    tolerance: float = 0.0,
    predicted: bool = False,
) -> Alarm | None:
    """None for a possible time; an Alarm with its suspects for one below T_SOL. Never clips.

    actual_bytes  what DRAM moved, if known;  clock_mhz  the SM clock during the run, if known;  tolerance  relative, for noise
    predicted     of a time that no timer took and for which nothing was skipped: only the caches and the ledger are suspects
    """
    gpu = find_device(device)
    score = sol_score(time_s, work, gpu)
    if score <= 1 + tolerance:
        return None
    bound = sol_bound(work, gpu)
    ledger = "the ledger asks for more than the operation needs (a tensor counted twice, a width or a shape wrong)"
    skipped = "work was skipped (partial output, a cached or left-over result, the wrong stream, no synchronisation)"
    suspects = []
    if bound == "dram":
        if work.compulsory_bytes <= gpu.l2_bytes:
            suspects.append(
                f"cache-resident: {units.size(work.compulsory_bytes)} fit in L2 ({units.size(gpu.l2_bytes)}), so DRAM need not move them; "
                "use cache='cold', or a larger problem"
            )
        if actual_bytes is not None and actual_bytes < work.compulsory_bytes and not (predicted and suspects):
            suspects.append(
                f"bytes undercounted: {units.size(actual_bytes)} moved, {units.size(work.compulsory_bytes)} compulsory; "
                "either the count is low or work was skipped"
            )
        suspects += [ledger] if predicted else [skipped, ledger, "the timer: launch not waited for, or time from another run"]
    elif predicted:
        suspects += ["lower precision than the ledger says (tensor cores, fp16, tf32)", ledger]
    else:
        if clock_mhz is not None and clock_mhz > gpu.boost_mhz:
            suspects.append(
                f"wrong clock: the chip ran at {units.clock(clock_mhz * 1e6)}, its peak is stated at {units.clock(gpu.boost_mhz * 1e6)}"
            )
        suspects += [skipped, "lower precision than the ledger says (tensor cores, fp16, tf32)", ledger]
        if clock_mhz is None:
            suspects.append(f"wrong clock: the peak is stated at {units.clock(gpu.boost_mhz * 1e6)}")
    return Alarm(score, bound, tuple(suspects))
