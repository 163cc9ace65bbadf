"""Predictions against published measurements: how far a predicted time can be trusted.

    python benchmarks/validation.py [LADDER ...] [-v]     # one line per ladder, with -v one per row, then the summary
    python benchmarks/validation.py --write               # also the README's table and docs/validation.svg
    python benchmarks/validation.py --check               # a target that is missed is an exit code of 1

The kernels of the ladders are rewritten in numba.cuda (benchmarks/ladders), run through the engine, sampled where large, and predicted
for the GPU of each published row (benchmarks/data/ladders.csv, each with its source). Errors are signed and of the published
figure: predicted / measured - 1. Two groups, never mixed: the calibration ladders are microbenchmarks, from which the model's
constants come; on the kernel ladders nothing was set. Registers are nvJitLink's where numba-cuda[cu13] is installed, else estimated.
Pairs are rows of one ladder on one GPU, at least 10 % apart as measured: a ranking that is right puts them in the same order.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.ladders import MODULES  # noqa: E402
from benchmarks.ladders.common import Entry, Result, left_out, predicted, rows  # noqa: E402
from solcourse.errors import SolcourseError  # noqa: E402

README, FIGURE = ROOT / "README.md", ROOT / "docs" / "validation.svg"
MARKS = "<!-- validation: written by benchmarks/validation.py -->", "<!-- end of validation -->"
RATIOS = ("outer-product-bpg-v100", "aat-bpg-v100")  # sizes not stated: rows relative to the ladder's last, outside the mean
UNRANKED = ("residual-llmc-3070",)  # rows differ by less than their noise
NEAR = 0.25
TARGETS: dict[str, tuple[float, bool]] = {  # fields of Summary, and the least or (True) the most that they may be
    "mean_of_medians": (0.18, True), "near": (0.80, False), "ordered": (0.95, False),
    "inside": (0.80, False), "width": (1.4, True), "widest": (2.0, True),
}  # fmt: skip
CALIBRATION_TARGET = 0.08  # of mean_of_medians
APART = 1.1


@dataclass(frozen=True)
class Ladder:
    """The rows of one ladder, as far as they were predicted."""

    name: str
    results: tuple[Result, ...]
    calibration: bool

    @property
    def errors(self) -> list[float]:
        return [r.error for r in self.results]

    @property
    def median_error(self) -> float:
        return median(map(abs, self.errors))

    @property
    def roofline_error(self) -> float:
        return median(abs(r.roofline / r.measured - 1) for r in self.results)

    @property
    def bias(self) -> float:
        return median(self.errors)

    @property
    def bound(self) -> str:
        return Counter(r.bound for r in self.results).most_common(1)[0][0]

    @property
    def gpus(self) -> str:
        return ", ".join(dict.fromkeys(r.entry.gpu.split(" (")[0] for r in self.results))

    def pairs(self, value) -> tuple[int, int]:
        """(pairs in the right order by `value`, pairs that are apart)."""
        if self.name in UNRANKED:
            return 0, 0
        right = total = 0
        for a, b in itertools.combinations(self.results, 2):
            if a.entry.gpu == b.entry.gpu and max(a.measured, b.measured) >= APART * min(a.measured, b.measured):
                total += 1
                right += (value(a) - value(b)) * (a.measured - b.measured) > 0
        return right, total


# ----------------------------------------------------------------------------------------------------------------- running
def chosen(beginnings: Sequence[str]) -> Iterator[tuple[Entry, bool]]:
    """(entry, whether its ladder is a calibration ladder)."""
    for module in MODULES:
        for entry in module.entries():
            if not beginnings or entry.ladder.startswith(tuple(beginnings)):
                yield entry, getattr(module, "CALIBRATION", False)


def _relative(results: Iterable[Result]) -> tuple[Result, ...]:
    """Each row relative to the last of its GPU."""
    made = []
    results = list(results)
    for r in results:
        last = [other for other in results if other.entry.gpu == r.entry.gpu][-1]
        made.append(
            replace(
                r, measured=r.measured / last.measured, predicted=r.predicted / last.predicted, roofline=r.roofline / last.roofline,
                interval=(r.interval[0] / last.predicted, r.interval[1] / last.predicted),
            )
        )  # fmt: skip
    return tuple(made)


def ladders(beginnings: Sequence[str] = ()) -> tuple[list[Ladder], list[str]]:
    """(the ladders, what could not be predicted)."""
    found: dict[str, list[Result]] = defaultdict(list)
    calibrating: dict[str, bool] = {}
    refused = []
    for entry, calibration in chosen(beginnings):
        calibrating[entry.ladder] = calibration
        try:
            found[entry.ladder].append(predicted(entry))
        except (SolcourseError, LookupError) as error:
            refused.append(f"{entry.ladder}, {entry.gpu}, {entry.kernel}: {str(error).splitlines()[0]}")
    made = [Ladder(n, _relative(r) if n in RATIOS else tuple(r), calibrating[n]) for n, r in found.items() if r]
    return made, refused


# ------------------------------------------------------------------------------------------------------------------ scores
@dataclass(frozen=True)
class Summary:
    """Fractions. inside: rows whose interval holds the measured value; width, widest: x/÷ of the intervals."""

    mean_of_medians: float
    roofline: float
    near: float
    ordered: float
    roofline_ordered: float
    inside: float
    width: float
    widest: float
    rows: int
    ladders: int


def summary(group: Sequence[Ladder]) -> Summary:
    absolute = [ladder for ladder in group if ladder.name not in RATIOS]
    results = [r for ladder in absolute for r in ladder.results]
    right, total = (sum(n) for n in zip(*(ladder.pairs(lambda r: r.predicted) for ladder in group), strict=True))
    by_roofline = sum(ladder.pairs(lambda r: r.roofline)[0] for ladder in group)
    return Summary(
        mean(ladder.median_error for ladder in absolute), mean(ladder.roofline_error for ladder in absolute),
        mean(abs(r.error) <= NEAR for r in results), right / max(1, total), by_roofline / max(1, total),
        mean(r.inside for r in results), median(r.width for r in results), max(r.width for r in results), len(results), len(absolute),
    )  # fmt: skip


def percent(x: float, signed: bool = False) -> str:
    return f"{100 * x:{'+' if signed else ''}.0f} %"


def line(s: Summary, what: str = "validation") -> str:
    return (
        f"{what}: mean of medians {100 * s.mean_of_medians:.1f} %, {percent(s.near)} of rows within 25 %, "
        f"{100 * s.ordered:.1f} % of pairs ordered right, {s.rows} rows, {s.ladders} ladders"
    )


def second_line(s: Summary) -> str:
    return (
        f"    roofline alone: {percent(s.roofline)}, {percent(s.roofline_ordered)} of pairs; intervals hold {percent(s.inside)} of rows, "
        f"median width x/÷ {s.width:.2f}, widest x/÷ {s.widest:.2f}"
    )


def report(group: Sequence[Ladder], verbose: bool) -> None:
    head = ("ladder", "rows", "median", "bias", "roofline", "worst", "bound", "GPU")
    print("{:32s} {:>4s} {:>7s} {:>7s} {:>8s} {:>7s}  {:10s} {}".format(*head))
    for ladder in sorted(group, key=lambda ladder: -ladder.median_error):
        worst = max(ladder.errors, key=abs)
        note = " (ratios)" if ladder.name in RATIOS else ""
        print(
            f"{ladder.name:32s} {len(ladder.results):4d} {percent(ladder.median_error):>7s} {percent(ladder.bias, True):>7s} "
            f"{percent(ladder.roofline_error):>8s} {percent(worst, True):>7s}  {ladder.bound:10s} {ladder.gpus}{note}"
        )
        for r in ladder.results if verbose else ():
            label = f"{r.entry.gpu.split(' (')[0]} {r.entry.row['kernel'][:34]} {r.entry.size} {r.entry.block}"
            bounds = max(r.predictions, key=lambda p: p.time_s).bounds
            most = ", ".join(f"{n} {1e6 * s:.1f}" for n, s in sorted(bounds.items(), key=lambda item: -item[1])[:4])
            held = " " if r.inside else "!"
            print(f"  {held} {label:64s} {r.predicted:9.4g} for {r.measured:9.4g} {percent(r.error, True):>7s}  R {r.R:.2f}  [{most}]")


# --------------------------------------------------------------------------------------------------------- for the README
def table(kernels: Sequence[Ladder], calibration: Sequence[Ladder], left: Mapping[str, int]) -> str:
    """The README's section, Markdown: worst ladders first."""
    s, c = summary(kernels), summary(calibration)
    lines = [
        "| ladder | GPU | rows | median error | bias | roofline's error | bound |", "|---|---|---:|---:|---:|---:|---|",
        *(
            f"| {ladder.name}{' (ratios)' if ladder.name in RATIOS else ''} | {ladder.gpus} | {len(ladder.results)} | "
            f"{percent(ladder.median_error)} | {percent(ladder.bias, True)} | {percent(ladder.roofline_error)} | {ladder.bound} |"
            for ladder in sorted(kernels, key=lambda ladder: -ladder.median_error)
        ),
    ]  # fmt: skip
    text = (
        f"Over the {s.ladders} kernel ladders ({s.rows} rows), on which nothing was set: the mean of the ladders' median errors is "
        f"**{percent(s.mean_of_medians)}** (a roofline alone: {percent(s.roofline)}), {percent(s.near)} of rows are within 25 %, and "
        f"{percent(s.ordered)} of the pairs that differ by 10 % or more are ordered right (roofline: {percent(s.roofline_ordered)}). "
        f"The printed interval holds the measured value for {percent(s.inside)} of the rows; its median width is x/÷ {s.width:.2f}.\n\n"
        f"Over the {c.ladders} calibration ladders ({c.rows} rows; microbenchmarks, from which the constants come): "
        f"{percent(c.mean_of_medians)}."
    )
    reasons = "; ".join(f"{n} {reason}" for reason, n in sorted(left.items(), key=lambda item: -item[1]))
    return f"{text}\n\n![Predicted against measured](docs/validation.svg)\n\n" + "\n".join(lines) + f"\n\nRows left out: {reasons}."


def write(kernels: Sequence[Ladder], calibration: Sequence[Ladder], left: Mapping[str, int]) -> None:
    before, rest = README.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    README.write_text(f"{before}{MARKS[0]}\n{table(kernels, calibration, left)}\n{MARKS[1]}{after}", encoding="utf-8")
    figure([r for ladder in kernels if ladder.name not in RATIOS for r in ladder.results])


def figure(results: Sequence[Result]) -> None:
    """Predicted against measured time, log-log, a colour and a shape for each bound; each row's time is relative to a reference, so
    that GFLOP/s, GB/s and milliseconds share one picture: T / T_SOL."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "validation", "font.size": 9})
    names = {"dram": "DRAM", "l1": "L1, shared memory", "fill": "L1, shared memory", "l2": "L2, atomics", "atomic": "L2, atomics"}
    shapes = {"DRAM": "o", "L1, shared memory": "s", "L2, atomics": "D", "latency": "^", "issue and pipes": "v"}
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for r in results:
        slower = (
            r.measured / r.predicted
            if r.entry.row["metric"].startswith("time") or "ns" in r.entry.row["unit"]
            else r.predicted / r.measured
        )
        group = names.get(r.bound, r.bound if r.bound == "latency" else "issue and pipes")
        groups[group].append((slower / r.R, 1 / r.R))
    fig, ax = plt.subplots(figsize=(5.2, 4.2))
    ends = (0.8, 2 * max(x for points in groups.values() for point in points for x in point))
    ax.fill_between(ends, [e / 1.25 for e in ends], [1.25 * e for e in ends], color="0.9", lw=0, label="within 25 %")
    ax.plot(ends, ends, color="0.5", lw=0.8)
    for group, points in sorted(groups.items()):
        ax.plot(*zip(*points, strict=True), shapes[group], ms=4, alpha=0.75, mew=0, label=group)
    ax.set(
        xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured time / speed of light", ylabel="predicted time / speed of light"
    )
    ax.set_aspect("equal")
    ax.legend(frameon=False, loc="upper left")
    fig.tight_layout()
    fig.savefig(FIGURE, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ladders", nargs="*", help="beginnings of ladder names; all when none is given")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    found, refused = ladders(options.ladders)
    kernels = [ladder for ladder in found if not ladder.calibration]
    calibration = [ladder for ladder in found if ladder.calibration]
    for what, group in (("kernel ladders, blind", kernels), ("calibration ladders", calibration)):
        if group:
            print(f"\n{what}")
            report(group, options.verbose)
    left = Counter(reason for _, reason in left_out(MODULES))
    for reason, n in left.items() if not options.ladders else ():
        print(f"left out: {n} rows: {reason}")
    for problem in refused:
        print(f"not predicted: {problem}")
    print(f"{time.perf_counter() - start:.0f} s")
    for what, group in (("calibration", calibration), ("validation", kernels)):
        if group:
            print(second_line(summary(group)) + "\n" + line(summary(group), what))
    if options.write:
        write(kernels, calibration, left)
    unknown = unaccounted() if not options.ladders else []
    for row in unknown:
        print(f"unaccounted: {row}")
    missed = list(misses(kernels, calibration)) if options.check else []
    for words in missed:
        print(f"missed: {words}")
    return 1 if refused or unknown or missed else 0


def misses(kernels: Sequence[Ladder], calibration: Sequence[Ladder]) -> Iterator[str]:
    """What does not hold of what the README promises; and any row that would be faster than light."""
    if kernels:
        s = summary(kernels)
        for name, (limit, most) in TARGETS.items():
            value = getattr(s, name)
            if value > limit if most else value < limit:
                yield f"{name} {value:.3f}, {'at most' if most else 'at least'} {limit}"
    if calibration and summary(calibration).mean_of_medians > CALIBRATION_TARGET:
        yield f"calibration {summary(calibration).mean_of_medians:.3f}, at most {CALIBRATION_TARGET}"
    for ladder in (*kernels, *calibration):
        for r in ladder.results:
            if r.R > 1:
                yield f"faster than light: {ladder.name} {r.entry.kernel} {r.entry.size} {r.entry.block}, R {r.R:.2f}"


def unaccounted() -> list[str]:
    """Published rows that are neither predicted nor left out with a reason."""
    known = {id(entry.row) for entry, _ in chosen(())} | {id(row) for row, _ in left_out(MODULES)}
    return [f"{row['ladder']}, {row['gpu']}, {row['kernel']} {row['size']} {row['block']}" for row in rows() if id(row) not in known]


if __name__ == "__main__":
    sys.exit(main())
