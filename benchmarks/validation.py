"""Predictions against published measurements, blind: no constant of the model was set on these ladders.

    python benchmarks/validation.py [ladder ...]        # prints error per row with -v, per ladder, and one summary line

Per ladder: median absolute error. Over all: the mean of these, and the share of pairs at least 10 % apart that are ordered right.
Counts come from the engine on kernels coded lean (validation_kernels.py), registers from nvJitLink where numba-cuda[cu13] is
installed, else estimated. Ladders whose data the model's constants were read from (bandwidth against occupancy, FMA chains) are marked
"seen": shape checks, left out of the summary. GPUs outside solcourse's table are made from a sister with the figures in DEVICES.
Measured rows: benchmarks/data/ladders.csv; each names its source.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import validation_kernels as k

from solcourse.errors import SolcourseError
from solcourse.hardware import Device, device
from solcourse.model import Prediction, predict
from solcourse.occupancy import occupancy
from solcourse.registers import registers
from solcourse.simt import arguments, engine, frontend
from solcourse.traffic import traffic

DATA = Path(__file__).resolve().parent / "data" / "ladders.csv"
F32, F64 = np.float32, np.float64
SAMPLE = 64  # blocks run of a large launch


def _sister(name: str, sister: str, **figures: Any) -> Device:
    """A GPU that is not in the table: its published sizes and clocks (recalled) on the figures of a sister."""
    base = device(sister)
    figures.setdefault("l2_bytes_clk", base.l2_bytes_clk * figures.get("sms", base.sms) / base.sms)
    return replace(base, name=name, flagged=base.flagged | set(figures), **figures)


DEVICES = {
    "Tesla V100": device("Tesla V100-SXM2-16GB"),
    "V100-SXM2-16GB": device("Tesla V100-SXM2-16GB"),
    "V100 (16 GB; variant not stated)": _sister("V100-PCIe", "Tesla V100-SXM2-16GB", boost_mhz=1380.0),
    "V100-PCIe-16GB": _sister("V100-PCIe", "Tesla V100-SXM2-16GB", boost_mhz=1380.0),
    "P100-PCIE-16GB": _sister("P100-PCIe", "Tesla P100-SXM2-16GB", boost_mhz=1303.0),
    "A100 80GB": device("A100-SXM4-80GB"),
    "A100 40GB": device("A100-SXM4-40GB"),
    "H100 PCIe": device("H100-PCIe-80GB"),
    "H100": device("H100-SXM5-80GB"),
    "RTX 3090": device("GeForce RTX 3090"),
    "RTX A6000": device("RTX A6000"),
    "RTX 4090": device("GeForce RTX 4090"),
    "RTX 3070": _sister("RTX 3070", "GeForce RTX 3090", sms=46, boost_mhz=1725.0, dram_gbs_spec=448.0, l2_mib=4.0),
    "RTX 3080 Ti": _sister("RTX 3080 Ti", "GeForce RTX 3090", sms=80, boost_mhz=1665.0, dram_gbs_spec=912.0),
    "GTX 1650 SUPER": _sister("GTX 1650 SUPER", "GeForce RTX 2080 Ti", sms=20, boost_mhz=1725.0, dram_gbs_spec=192.0, l2_mib=1.0),
    "T4G": device("Tesla T4"),
    "T4 (colab gpuType in notebook metadata)": device("Tesla T4"),
}


@dataclass(frozen=True)
class Entry:
    """One kernel of one ladder. value(prediction) is in the unit of the measured row.

    label, size, block  how to find the row: the beginning of its kernel column, and its other columns where given
    """

    ladder: str
    gpu: str
    label: str
    kernel: Any
    args: Callable[[], tuple]
    grid: Any
    block: Any
    value: Callable[[Prediction], float]
    size: str = ""
    row_block: str = ""
    row_grid: str = ""
    dynamic: int = 0
    sample: int | None = SAMPLE
    cache: str = "cold"
    seen: bool = False


def gbs(moved: float) -> Callable[[Prediction], float]:
    return lambda p: moved / p.time_s / 1e9


def gflops(flops: float, scale: float = 1.0) -> Callable[[Prediction], float]:
    return lambda p: flops / (p.time_s * scale) / 1e9


def ms(p: Prediction) -> float:
    return p.time_s * 1e3


def zeros(*sizes: int, dtype: Any = F32) -> Callable[[], tuple]:
    """Arrays that exist only as far as they are touched."""
    return lambda: tuple(np.zeros(n, dtype) for n in sizes)


# -------------------------------------------------------------------------------------------------------------- the ladders
def babelstream() -> Iterator[Entry]:
    n = 2**25
    for ladder, gpu in (("babelstream-v100", "V100-SXM2-16GB"), ("babelstream-p100", "P100-PCIE-16GB")):
        for label, kernel, arrays in (
            ("Copy", k.stream_copy, 2),
            ("Mul", k.stream_scale, 2),
            ("Add", k.stream_add, 3),
            ("Triad", k.stream_triad, 3),
        ):
            yield Entry(ladder, gpu, label, kernel, zeros(*[n] * arrays, dtype=F64), n // 1024, 1024, gbs(8 * n * arrays))


def stream_occupancy() -> Iterator[Entry]:
    n = 134_217_728
    for ladder, gpu in (
        ("stream-occupancy-v100", "V100 (16 GB; variant not stated)"),
        ("stream-occupancy-a100_80", "A100 80GB"),
        ("stream-occupancy-h100_pcie", "H100 PCIe"),
    ):
        half = DEVICES[gpu].smem_max_kib_sm * 1024 // 2 - 1024 - 512
        for block in (32, 64, 128, 256, 512, 768, 1024):
            for label, kernel, arrays, moved in (
                ("init ", k.stream_init, 1, 8),
                ("read ", k.stream_read, 2, 8),
                ("scale ", k.stream_scale, 2, 16),
                ("triad ", k.stream_triad, 3, 24),
                ("3pt ", k.stream_3pt, 2, 16),
                ("5pt ", k.stream_5pt, 2, 16),
            ):
                args = zeros(*[n + 2048] * arrays, dtype=F64)
                yield Entry(
                    ladder, gpu, label, kernel, args, n // block, block, gbs(moved * n), row_block=str(block), dynamic=half, seen=True
                )  # fmt: skip


def reduce_liu() -> Iterator[Entry]:
    n = 2**25
    for label, kernel, blocks in (
        ("reduce0", k.reduce_0, n // 256),
        ("reduce1", k.reduce_1, n // 256),
        ("reduce2", k.reduce_2, n // 256),
        ("reduce3", k.reduce_3, n // 512),
        ("reduce7", k.reduce_7, 1024),
    ):
        yield Entry("reduce-liu-v100", "Tesla V100", label, kernel, zeros(n, blocks), blocks, 256, lambda p: p.time_s * 1e9)


def vecadd() -> Iterator[Entry]:
    n = 2**25
    yield Entry("vecadd-liu-v100", "Tesla V100", "c=a+b float", k.stream_add, zeros(n, n, n), n // 256, 256, gbs(12 * n))


def residual() -> Iterator[Entry]:
    n = 8 * 1024 * 768
    for block in (32, 64, 128, 256, 512, 1024):
        yield Entry(
            "residual-llmc-3070", "RTX 3070", "kernel1", k.stream_add, zeros(n, n, n), n // block, block, ms, row_block=str(block)
        )  # fmt: skip


def memcpy_width() -> Iterator[Entry]:
    n = 134_217_728
    for name in ("int8", "int16", "int32", "int64"):
        dtype = np.dtype(name)
        yield Entry(
            "memcpy-width-leimao-3090", "RTX 3090", "Custom Device Memcpy", k.copy_guarded, zeros(n, n, dtype=dtype), n // 1024, 1024, ms,
            size=name,
        )  # fmt: skip


def transposes() -> Iterator[Entry]:
    n = 1024
    for gpu in ("GTX 1650 SUPER", "T4G"):
        for label, kernel in (
            ("simple copy", k.transpose_copy),
            ("naive", k.transpose_naive),
            ("coalesced", k.transpose_tiled),
            ("optimized", k.transpose_padded),
        ):
            args = lambda: (np.zeros(n * n, F32), np.zeros(n * n, F32), n)  # noqa: E731
            yield Entry(
                "transpose-sample-1024-turing", gpu, label, kernel, args, (64, 64), (16, 16), gbs(8 * n * n), sample=None, cache="warm"
            )  # fmt: skip


def _square(n: int, depth: int) -> Callable[[], tuple]:
    """Arrays of an n x n product of which the first `depth` steps of the inner loop are run."""
    return lambda: (np.zeros(n * n, F32), np.zeros(n * n, F32), np.zeros(n * n, F32), n)


def _sgemm(ladder: str, gpu: str, n: int, steps: dict[str, tuple[Any, tuple, Any]]) -> Iterator[Entry]:
    for label, (kernel, grid, block) in steps.items():
        sample = 16 if n >= 2048 else None
        yield Entry(ladder, gpu, label, kernel, _square(n, n), grid, block, gflops(2 * n**3), size=f"M=N=K={n}", sample=sample)


def sgemm() -> Iterator[Entry]:
    n = 1024
    for n in (512, 1024):
        naive = {
            "naive": (k.sgemm_naive, (n // 32, n // 32), (32, 32)),
            "coalesced": (k.sgemm_coalesced, (n // 32, n // 32), (32, 32)),
            "smem tile": (k.sgemm_tile32, (n // 32, n // 32), (32, 32)),
            "64x64x8": (k.sgemm_1d, (n // 64, n // 64), 512),
        }
        yield from _sgemm("sgemm-xgemm-3090", "RTX 3090", n, naive)
    for n in (64, 128, 256, 512, 1024, 2048):
        yield from _sgemm("matmul-sample-tile32", "RTX 3090", n, {"matrixMulCUDA": (k.sgemm_tile32, (n // 32, n // 32), (32, 32))})
    n = 4096
    large = {
        "3 smem": (k.sgemm_tile32, (n // 32, n // 32), (32, 32)),
        "4 1D": (k.sgemm_1d, (n // 64, n // 64), 512),
        "5 2D": (k.sgemm_2d, (n // 128, n // 128), 256),
    }
    for entry in _sgemm("sgemm-boehm-a6000", "RTX A6000", n, large):
        yield replace(entry, sample=2)


def best_practices() -> Iterator[Entry]:
    n = 1024  # the guide does not state M and N: ratios
    moved = 4 * (2 * 32 * n + n * n)
    grid, block = (n // 32, n // 32), (32, 32)
    for label, kernel in (
        ("C=AB simple", k.outer_simple),
        ("C=AB A tile", k.outer_a_shared),
        ("C=AB A and B", k.outer_ab_shared),
    ):
        args = lambda: (np.zeros(32 * n, F32), np.zeros(32 * n, F32), np.zeros(n * n, F32), n)  # noqa: E731
        yield Entry("outer-product-bpg-v100", "Tesla V100", label, kernel, args, grid, block, gbs(moved), sample=None, cache="warm")
    for label, kernel in (
        ("C=AA^T simple", k.aat_simple),
        ("C=AA^T smem, 32", k.aat_shared(32)),
        ("C=AA^T smem padded", k.aat_shared(33)),
    ):
        args = lambda: (np.zeros(32 * n, F32), np.zeros(n * n, F32), n)  # noqa: E731
        yield Entry("aat-bpg-v100", "Tesla V100", label, kernel, args, grid, block, gbs(moved), sample=None, cache="warm")


def chains() -> Iterator[Entry]:
    loads = 64  # of 4000: the rate does not depend on it
    blocks = 864
    for length in (0, 1, 4, 24, 40, 48, 56, 72, 80, 96, 128):
        flops = blocks * 256 * loads * (2 * length + 2)  # as the source counts: `length` FMAs in all, one more addition per load
        args = lambda: (np.zeros(blocks * 256 * loads, F32), np.zeros(blocks * 256 * loads, F32), np.zeros(256, F32), loads)  # noqa: E731
        yield Entry(
            "roofline-alex_a100_40", "A100 40GB", f"FMA chain N={length} ", k.fma_chains(length), args, blocks, 256,
            lambda p, flops=flops: flops / p.body_s / 1e9, seen=True,
        )  # fmt: skip


def ilp() -> Iterator[Entry]:
    rounds = 200
    for warps, width in itertools.product((1, 2, 4, 8, 16, 32), (1, 2, 4, 8)):
        executed = rounds * 16 * width * warps
        args = lambda: (np.zeros(1024, F64), rounds, 1.0)  # noqa: E731
        yield Entry(
            "ilp-tlp-v100", "V100-PCIe-16GB", f"DFMA ILP={width} warps={warps}", k.dfma(width), args, 1, 32 * warps,
            lambda p, n=executed: p.body_s * 1.38e9 / n, sample=None, row_block=str(32 * warps),
        )  # fmt: skip


def numba_kernels() -> Iterator[Entry]:
    n = 2**28
    t4 = "T4 (colab gpuType in notebook metadata)"
    args = zeros(n, n, dtype=np.int64)
    yield Entry("numba-copy-t4", t4, "numba copy_blocked", k.copy_blocked, lambda: (*args(), 64), 16384, 256, ms, sample=1280)
    yield Entry("numba-copy-t4", t4, "numba copy_optimized", k.copy_striped, args, 16384, 256, ms, sample=1280)
    n = 20_000_000
    for label, literal, dtype in (("numba fastmath fp64", F64, F64), ('numba fastmath "fp32"', F64, F32), ("CUDA C++ fp32", F32, F32)):
        maps = lambda dtype=dtype: (np.ones(n, dtype), np.zeros(n, dtype))  # noqa: E731
        blocks = -(-n // 256)
        yield Entry("numba-mathmap-3080ti", "RTX 3080 Ti", label, k.math_map(literal), maps, blocks, 256, ms)


def scans() -> Iterator[Entry]:
    n = 2**28  # of 2^30: the rate does not depend on it
    for label, kernel, block in (("1 smem", k.scan_shared, 512), ("2 smem double", k.scan_double, 256)):
        yield Entry("blockscan-veitner-h100", "H100", label, kernel, zeros(n, n), n // block, block, gbs(8 * n))


def nbody() -> Iterator[Entry]:
    n = 131_072
    args = lambda: (np.zeros(4 * n, F32), np.zeros(4 * n, F32), 4096)  # noqa: E731
    yield Entry("nbody-fp32-open", "RTX 4090", "nbody", k.nbody, args, n // 256, 256, gflops(20 * n * 4096), sample=8)


LADDERS = (
    babelstream, stream_occupancy, reduce_liu, vecadd, residual, memcpy_width, transposes, sgemm, best_practices, chains, ilp,
    numba_kernels, scans, nbody,
)  # fmt: skip
RATIOS = {"outer-product-bpg-v100", "aat-bpg-v100"}  # sizes not stated: each row relative to the ladder's last


# --------------------------------------------------------------------------------------------------------------- prediction
@cache
def rows() -> tuple[dict[str, str], ...]:
    with DATA.open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def measured(entry: Entry) -> float | None:
    for row in rows():
        if row["ladder"] != entry.ladder or row["gpu"] != entry.gpu or not row["kernel"].startswith(entry.label):
            continue
        if entry.size and entry.size not in (row["size"], row["dtype"]):
            continue
        if entry.row_block and row["block"] != entry.row_block:
            continue
        return float(row["value"])
    return None


_COUNTED: dict[tuple, tuple[Any, int | None]] = {}


def ptxas(kernel: Any, args: tuple, cc: str) -> int | None:
    """Registers from nvJitLink, None where it is not installed."""
    from registers import ptxas_registers

    try:
        return ptxas_registers(kernel, args, cc if float(cc) >= 7.5 else "7.5")[0]
    except ImportError:
        return None


def prediction(entry: Entry) -> Prediction:
    gpu = DEVICES[entry.gpu]
    launch = entry.kernel[entry.grid, entry.block, 0, entry.dynamic]
    spec = frontend.launch_of(launch)
    key = (id(entry.kernel), spec.grid, spec.block, entry.size, entry.sample)
    if key not in _COUNTED:
        args = entry.args()
        kernel = frontend.compile_kernel(spec.dispatcher, frontend.argument_types(spec.dispatcher, args))
        run = engine.execute(kernel, arguments.bind(kernel, args), spec.grid, spec.block, 0, sample_blocks=entry.sample, limit_s=600)
        _COUNTED[key] = run, ptxas(entry.kernel, args, gpu.cc)
    run, count = _COUNTED[key]
    run = replace(run, dynamic_shared_bytes=entry.dynamic)
    held = registers(run.program, run, gpu.cc, override=count)
    fits = occupancy(gpu, run.threads_per_block, held.count, run.shared_bytes)
    return predict(run, traffic(run, gpu, fits, entry.cache), gpu, fits)


# -------------------------------------------------------------------------------------------------------------------- scores
def ordered_right(pairs: list[tuple[float, float]]) -> tuple[int, int]:
    """(pairs at least 10 % apart that are in the right order, all such pairs) of (predicted, measured)."""
    right = total = 0
    for (p, m), (q, n) in itertools.combinations(pairs, 2):
        if max(m, n) >= 1.1 * min(m, n):
            total += 1
            right += (p - q) * (m - n) > 0
    return right, total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ladders", nargs="*", help="beginnings of ladder names; all when none is given")
    parser.add_argument("-v", "--verbose", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[tuple[str, str], list[tuple[Entry, float, float, Prediction]]] = {}
    for entry in itertools.chain.from_iterable(ladder() for ladder in LADDERS):
        if chosen.ladders and not entry.ladder.startswith(tuple(chosen.ladders)):
            continue
        value = measured(entry)
        if value is None:
            print(f"no row: {entry.ladder} {entry.gpu} {entry.label} {entry.size} {entry.row_block}")
            continue
        try:
            p = prediction(entry)
        except SolcourseError as error:
            print(f"not predicted: {entry.ladder} {entry.label}: {str(error).splitlines()[0]}")
            continue
        found.setdefault((entry.ladder, entry.gpu), []).append((entry, entry.value(p), value, p))
    errors, within, right, total = [], [], 0, 0
    for (ladder, gpu), results in found.items():
        unit_p, unit_m = (results[-1][1], results[-1][2]) if ladder in RATIOS else (1.0, 1.0)
        pairs = [(p / unit_p, m / unit_m) for _, p, m, _ in results]
        error = [abs(p / m - 1) for p, m in pairs]
        seen = results[0][0].seen
        note = " (seen)" if seen else " (ratios)" if ladder in RATIOS else ""
        spread = f"median error {100 * median(error):5.1f} %  worst {100 * max(error):5.1f} %"
        print(f"{ladder:30s} {gpu[:24]:24s} {len(pairs):3d} rows  {spread}{note}")
        if chosen.verbose:
            for (entry, _, _, p), (guess, real) in zip(results, pairs, strict=True):
                label = f"{entry.label.strip()} {entry.size} {entry.row_block}"
                second = sorted(p.bounds.items(), key=lambda item: -item[1])[:3]
                shown = ", ".join(f"{name} {1e6 * s:.1f}" for name, s in second)
                print(f"    {label:44s} {guess:10.4g} measured {real:10.4g}  {100 * (guess / real - 1):+6.1f} %   [{shown}]")
        if seen:
            continue
        if ladder not in RATIOS:
            errors.append(median(error))
        within += [e <= 0.25 for e in error]
        r, t = ordered_right(pairs)
        right, total = right + r, total + t
    if errors:
        print(
            f"SUMMARY ladders={len(errors)} rows={len(within)} mean_median_error={100 * mean(errors):.1f}% "
            f"within_25%={100 * mean(within):.0f}% ordered_right={100 * right / max(1, total):.0f}% of {total}"
        )


if __name__ == "__main__":
    main()
