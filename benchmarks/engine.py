"""How fast is the engine? Against numba's CUDA simulator, NumPy and @njit, with and without counters, sanitized, on one and two threads.

    python benchmarks/engine.py [--quick] [--check] [--only NAME ...]

Everything is measured in one run on one machine, so the ratios mean something. Times are the best of several interleaved
repeats (a busy machine adds time, it never takes any away); `ratio`, counters to bounds checks only, is of one thread.
Compile times stand apart. The simulator runs the same kernels in a process of its own, at the same size or at the largest it
is expected to finish within --budget seconds: then the engine runs that size too.
Prints a table and one summary line of ratios; with --check a missed target is an exit code of 1.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
warnings.filterwarnings("ignore", message="Grid size .* will likely result in GPU under-utilization")

from solcourse.kernels import case, cases  # noqa: E402

SEED = 7
TARGETS = {  # name -> (limit, whether the figure must stay below it)
    "matmul 128^3: simulator / engine": (5000.0, False),
    "matmul 1024^3, seconds": (2.5, True),
    "copy of 16M float32, seconds": (0.25, True),
    "counters / bounds checks, regular": (1.3, True),
    "counters / bounds checks, irregular": (4.0, True),
    "1 thread / 2 threads, compute-bound above 50 ms": (1.6, False),
    "sanitized / counted": (20.0, True),
}


@dataclass(frozen=True)
class Entry:
    """shape: of the engine, NumPy and @njit; quick: with --quick; tiny: what the simulator surely manages, to climb from.

    access: "regular"; "irregular" (32 lines a request, or changing patterns); "random" (every request another: no target)
    """

    name: str
    shape: tuple[int, ...]
    quick: tuple[int, ...]
    tiny: tuple[int, ...]
    numpy: Callable[..., Any] | None
    access: str = "regular"


def _mandelbrot(left, bottom, step, iterations, out) -> None:
    case("mandelbrot").reference(left, bottom, step, iterations, out)


def _softmax(x, out) -> None:
    np.subtract(x, x.max(1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(1, keepdims=True)


def _add_at(data, bins) -> None:
    bins += np.bincount(data, minlength=bins.size).astype(bins.dtype)


def _polynomial(x, out, degree) -> None:
    np.copyto(out, np.polyval(np.ones(degree + 1, x.dtype), x))


def _rest(named: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Every other reference kernel, at a size that takes milliseconds; the simulator runs the smallest of its tested sizes."""
    large = {1: (1 << 22,), 2: (2048, 2048), 3: (512, 512, 512)}
    quick = {1: (1 << 16,), 2: (256, 256), 3: (64, 64, 64)}
    done = {entry.name for entry in named}
    return tuple(
        Entry(name, large[len(c.shapes[0])], quick[len(c.shapes[0])], c.shapes[0], None, "irregular" if name in IRREGULAR else "regular")
        for name, c in cases().items()
        if name not in done
    )


# 32 lines a request, lane patterns that change as the kernel runs, or addresses that come from the data
IRREGULAR = {"matmul_naive", "transpose_copy", "softmax_thread_per_row", "histogram_per_warp"}
NAMED = (
    Entry("copy", (1 << 24,), (1 << 20,), (1 << 12,), lambda src, dst: np.copyto(dst, src)),
    Entry("vector_add", (1 << 22,), (1 << 18,), (1 << 12,), lambda x, y, out: np.add(x, y, out=out)),
    Entry("saxpy_grid_stride", (1 << 22,), (1 << 18,), (1 << 12,), lambda a, x, y, out: np.add(a * x, y, out=out)),
    Entry("length_aos", (1 << 22,), (1 << 18,), (1 << 12,), lambda points, out: np.sqrt((points**2).sum(1), out=out)),
    Entry("column_sums", (2048, 2048), (256, 256), (64, 128), lambda a, out: a.sum(0, out=out)),
    Entry("row_sums", (2048, 2048), (256, 256), (128, 64), lambda a, out: a.sum(1, out=out), access="irregular"),
    Entry("transpose_padded", (2048, 2048), (512, 512), (64, 64), lambda a, out: np.copyto(out, a.T)),
    Entry("matmul_tiled_exact", (1024, 1024, 1024), (128, 128, 128), (32, 32, 32), lambda a, b, c: np.matmul(a, b, out=c)),
    Entry("matmul_coalesced", (256, 256, 256), (64, 64, 64), (32, 32, 32), lambda a, b, c: np.matmul(a, b, out=c)),
    Entry("reduce_sequential", (1 << 22,), (1 << 18,), (1 << 11,), lambda x, out: x.reshape(-1, 256).sum(1, out=out)),
    Entry("polynomial", (1 << 22,), (1 << 16,), (1 << 10,), _polynomial),
    Entry("softmax_block_per_row", (1024, 1024), (128, 512), (4, 256), _softmax),
    Entry("mandelbrot", (1024, 1024), (128, 128), (32, 32), _mandelbrot),
    Entry("transpose_naive", (2048, 2048), (512, 512), (64, 64), lambda a, out: np.copyto(out, a.T), access="irregular"),
    Entry("copy_gather", (1 << 20,), (1 << 18,), (1 << 12,), lambda src, index, dst: np.take(src, index, out=dst), access="random"),
    Entry("histogram_global", (1 << 20,), (1 << 18,), (1 << 12,), _add_at, access="irregular"),
    Entry("histogram_shared", (1 << 20,), (1 << 18,), (1 << 12,), _add_at, access="irregular"),
)  # fmt: skip
ENTRIES = (*NAMED, *_rest(NAMED))
MATMUL = "matmul_tiled_exact"
COMPUTE = ("matmul", "polynomial", "mandelbrot")  # the names of kernels bound by arithmetic begin so, where their access is regular
SIDE_BY_SIDE = (128, 128, 128)  # the size at which the tiled matmul is set against the simulator


def arguments_of(name: str, shape: tuple[int, ...]) -> tuple:
    return case(name).make(np.random.default_rng(SEED), *shape)


def best_of(*jobs: Callable[[], Any], seconds: float = 1.0, repeats: int = 60) -> list[float]:
    """The best seconds of each job, A B A B ..., for at most about `seconds` each, but once at least."""
    best, start = [math.inf] * len(jobs), time.perf_counter()
    for _ in range(repeats):
        for k, job in enumerate(jobs):
            before = time.perf_counter()
            job()
            best[k] = min(best[k], time.perf_counter() - before)
        if time.perf_counter() - start > seconds * len(jobs):
            break
    return best


# ---- the engine ----------------------------------------------------------------------------------------------------------


class Launch:
    """One kernel, bound to its arguments: run(counters=..., threads=...) -> EngineRun. compile_s: numba's part and the engine's."""

    def __init__(self, name: str, shape: tuple[int, ...]):
        from solcourse.simt import arguments, engine, frontend

        self.execute = engine.execute
        self.arguments = arguments_of(name, shape)
        self.spec = frontend.launch_of(case(name).configured(*shape))
        before = time.perf_counter()
        self.kernel = frontend.compile_kernel(self.spec.dispatcher, frontend.argument_types(self.spec.dispatcher, self.arguments))
        self.frontend_s = time.perf_counter() - before
        self.bound = arguments.bind(self.kernel, self.arguments)
        before = time.perf_counter()
        self.run(sample_blocks=1)
        self.native_s = time.perf_counter() - before

    def run(self, **options: Any) -> Any:
        return self.execute(self.kernel, self.bound, self.spec.grid, self.spec.block, self.spec.dynamic_shared_bytes, **options)

    def sanitize(self) -> Any:
        from solcourse.simt import engine

        return engine.sanitize(self.kernel, self.bound, self.spec.grid, self.spec.block, self.spec.dynamic_shared_bytes)


def result_of(name: str, shape: tuple[int, ...], threads: int) -> tuple:
    """Everything a launch says and writes, to be compared."""
    launch = Launch(name, shape)
    run = launch.run(threads=threads)
    outputs = [np.asarray(a).tobytes() for a in launch.arguments]
    trace = [part.tobytes() for part in (run.trace.blocks, run.trace.offsets, run.trace.words)]
    numbers = (run.compulsory_read_bytes, run.compulsory_write_bytes, run.same_address_atomics, run.registers_live, run.findings)
    return run.counts, run.lines, run.site_counts, run.block_executions.tobytes(), run.warp_executions.tobytes(), numbers, trace, outputs


# ---- numba's CPU compiler ------------------------------------------------------------------------------------------------


def njit_of(name: str) -> Callable[..., Any] | None:
    """The plain loop a CPU programmer would write for @njit, one thread."""
    import numba

    def copy(src, dst):
        for i in range(dst.size):
            dst[i] = src[i]

    def vector_add(x, y, out):
        for i in range(out.size):
            out[i] = x[i] + y[i]

    def saxpy_grid_stride(a, x, y, out):
        for i in range(out.size):
            out[i] = a * x[i] + y[i]

    def column_sums(a, out):
        out[:] = 0
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                out[j] += a[i, j]

    def row_sums(a, out):
        for i in range(a.shape[0]):
            total = np.float32(0)
            for j in range(a.shape[1]):
                total += a[i, j]
            out[i] = total

    def transpose(a, out):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                out[j, i] = a[i, j]

    def matmul(a, b, c):
        c[:] = 0
        for i in range(a.shape[0]):
            for k in range(a.shape[1]):
                for j in range(b.shape[1]):
                    c[i, j] += a[i, k] * b[k, j]

    def copy_gather(src, index, dst):
        for i in range(dst.size):
            dst[i] = src[index[i]]

    def histogram(data, bins):
        for i in range(data.size):
            bins[data[i]] += 1

    def mandelbrot(left, bottom, step, iterations, out):
        for row in range(out.shape[0]):
            for column in range(out.shape[1]):
                c_re, c_im = np.float32(column) * step + left, np.float32(row) * step + bottom
                re = im = np.float32(0)
                count = 0
                while count < iterations and re * re + im * im <= np.float32(4):
                    product = re * im
                    re, im = re * re - im * im + c_re, product + product + c_im
                    count += 1
                out[row, column] = count

    loops = {
        "copy": copy, "vector_add": vector_add, "saxpy_grid_stride": saxpy_grid_stride, "column_sums": column_sums,
        "row_sums": row_sums, "transpose_padded": transpose, "transpose_naive": transpose, "matmul_tiled_exact": matmul,
        "matmul_coalesced": matmul, "copy_gather": copy_gather, "histogram_global": histogram, "histogram_shared": histogram,
        "mandelbrot": mandelbrot,
    }  # fmt: skip
    return numba.njit(loops[name]) if name in loops else None


# ---- numba's CUDA simulator, in a process of its own ---------------------------------------------------------------------


def simulate(name: str, shape: tuple[int, ...]) -> None:
    """Runs in the child: prints {"seconds", "wrong"} as JSON."""
    chosen, arguments = case(name), arguments_of(name, shape)
    expected = chosen.expected(arguments)
    launch = chosen.configured(*shape)
    before = time.perf_counter()
    launch(*arguments)
    print(json.dumps({"seconds": time.perf_counter() - before, "wrong": chosen.wrong(arguments, expected)}))


def simulator_seconds(name: str, shape: tuple[int, ...]) -> float:
    """The simulator's time for one launch. Raises RuntimeError when it fails or is wrong."""
    child = subprocess.run(
        [sys.executable, __file__, "--simulate", name, *map(str, shape)],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if child.returncode:
        raise RuntimeError(f"the simulator failed on {name} {shape}: {child.stderr[-500:]}")
    told = json.loads(child.stdout.splitlines()[-1])
    if told["wrong"]:
        raise RuntimeError(f"the simulator is wrong: {told['wrong']}")
    return told["seconds"]


def side_by_side(entry: Entry, wanted: tuple[int, ...], budget_s: float) -> tuple[tuple[int, ...], float, float]:
    """(shape, simulator seconds, engine seconds) at `wanted`, or at the largest halving of it that fits into the budget.

    Climbs: each run says what the next size will take (less than linear growth says, since the start costs too).
    """
    shape, simulator_s = entry.tiny, simulator_seconds(entry.name, entry.tiny)
    while shape != wanted:
        larger = wanted
        while larger != shape and simulator_s * math.prod(larger) / math.prod(shape) > budget_s:
            larger = tuple(max(small, extent // 2) for extent, small in zip(larger, shape, strict=True))
        if larger == shape:
            break
        shape, simulator_s = larger, simulator_seconds(entry.name, larger)
    launch = Launch(entry.name, shape)
    (engine,) = best_of(launch.run, seconds=0.5, repeats=20)
    return shape, simulator_s, engine


# ---- the table -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """Seconds; nan where there is nothing to compare with. identical: 1 and 2 threads say and write the same."""

    entry: Entry
    shape: tuple[int, ...]
    frontend_s: float
    native_s: float
    engine: float
    bounds: float
    one_thread: float
    bounds_one_thread: float
    sanitized: float
    counted_beside: float
    numpy_s: float
    njit_compile_s: float
    njit_s: float
    simulator_shape: tuple[int, ...]
    simulator_s: float
    engine_there_s: float
    identical: bool

    @property
    def counters_ratio(self) -> float:
        """One thread's time with every counter and the Trace / with bounds checks only."""
        return self.one_thread / self.bounds_one_thread

    @property
    def sanitizer_ratio(self) -> float:
        """With every check of the sanitizer, on its one thread / with every counter, on all threads; measured side by side."""
        return self.sanitized / self.counted_beside

    @property
    def simulator_ratio(self) -> float:
        return self.simulator_s / self.engine_there_s


def measure(entry: Entry, quick: bool, budget_s: float) -> Row:
    shape = entry.quick if quick else entry.shape
    launch = Launch(entry.name, shape)
    launch.run(counters=False, sample_blocks=1)
    builds = [{}, {"counters": False}, {"threads": 1}, {"threads": 1, "counters": False}]
    times = best_of(*(functools.partial(launch.run, **build) for build in builds), seconds=2.0)
    launch.sanitize()  # compiles
    checked = best_of(launch.sanitize, launch.run, seconds=1.0)

    def plain() -> Any:
        return entry.numpy(*arguments) if entry.numpy else None

    arguments = arguments_of(entry.name, shape)
    numpy_s = best_of(plain)[0] if entry.numpy else math.nan
    njit_s = njit_compile_s = math.nan
    compiled = njit_of(entry.name)
    if compiled is not None:
        before = time.perf_counter()
        compiled(*arguments)
        first_s = time.perf_counter() - before
        njit_s = best_of(lambda: compiled(*arguments))[0]
        njit_compile_s = max(0.0, first_s - njit_s)
    wanted = SIDE_BY_SIDE if entry.name == MATMUL and not quick else entry.quick
    there = (entry.tiny, math.nan, math.nan)
    if not case(entry.name).warp_level:  # the simulator has no shuffles and votes
        there = side_by_side(entry, wanted if entry in NAMED else entry.tiny, budget_s if entry.name == MATMUL else budget_s / 12)
    return Row(
        entry, shape, launch.frontend_s, launch.native_s, *times, *checked, numpy_s, njit_compile_s, njit_s, *there,
        identical=result_of(entry.name, shape, 1) == result_of(entry.name, shape, 2),
    )  # fmt: skip


HEADER = (
    f"{'kernel':<22} {'size':>14} | {'compile: numba':>14} {'engine':>9} | {'engine':>9} {'bounds':>9} {'ratio':>6} {'1 thread':>9}"
    f" {'same':>4} | {'sanitized':>9} {'ratio':>6}"
    f" | {'NumPy':>9} {'@njit':>9} {'(compile)':>9} | {'simulator at':>12} {'takes':>9} {'engine':>9} {'ratio':>9}"
)


def seconds(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.2f} ms"


def size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def line(row: Row) -> str:
    ratio = "-" if math.isnan(row.simulator_ratio) else f"{row.simulator_ratio:,.0f}x"
    return (
        f"{row.entry.name:<22.22} {size(row.shape):>14} | {seconds(row.frontend_s):>14} {seconds(row.native_s):>9}"
        f" | {seconds(row.engine):>9} {seconds(row.bounds):>9} {row.counters_ratio:>5.2f}x"
        f" {seconds(row.one_thread):>9}"
        f" {'yes' if row.identical else 'NO':>4} | {seconds(row.sanitized):>9} {row.sanitizer_ratio:>5.1f}x"
        f" | {seconds(row.numpy_s):>9} {seconds(row.njit_s):>9} {seconds(row.njit_compile_s):>9}"
        f" | {size(row.simulator_shape):>12} {seconds(row.simulator_s):>9} {seconds(row.engine_there_s):>9} {ratio:>9}"
    )


def figures(rows: list[Row]) -> dict[str, float]:
    """The figures that have targets, as far as they were measured at the right size."""
    by_name, found = {row.entry.name: row for row in rows}, {}
    matmul, copy = by_name.get(MATMUL), by_name.get("copy")
    if matmul is not None:
        found[f"matmul {matmul.simulator_shape[0]}^3: simulator / engine"] = matmul.simulator_ratio
        if matmul.shape == (1024, 1024, 1024):
            found["matmul 1024^3, seconds"] = matmul.engine
    if copy is not None and copy.shape == (1 << 24,):
        found["copy of 16M float32, seconds"] = copy.engine
    scaling = [
        row.one_thread / row.engine
        for row in rows
        if row.entry.name.startswith(COMPUTE) and row.entry.access == "regular" and row.one_thread > 0.05 and (os.cpu_count() or 1) > 1
    ]
    if scaling:
        found["1 thread / 2 threads, compute-bound above 50 ms"] = min(scaling)
    if rows:
        found["sanitized / counted"] = max(row.sanitizer_ratio for row in rows)
    for kind in ("regular", "irregular", "random"):
        ratios = [row.counters_ratio for row in rows if row.entry.access == kind]
        if ratios:
            found[f"counters / bounds checks, {kind}"] = max(ratios)
    return found


def fixed_cost() -> str:
    """What a launch costs that does almost nothing: one block."""
    launch = Launch("copy", (256,))
    launch.run(counters=False)
    counted, plain = best_of(launch.run, lambda: launch.run(counters=False), repeats=50)
    return f"a launch of one block {seconds(counted)}, {seconds(plain)} without counters"


def missed(found: dict[str, float]) -> list[str]:
    """Targets that a figure misses, or that should have been measured and were not."""
    return [
        name
        for name, (limit, below) in TARGETS.items()
        if name not in found or not (found[name] < limit if below else found[name] >= limit)
    ]


def summary(rows: list[Row]) -> str:
    parts = []
    for name, value in figures(rows).items():
        target = TARGETS.get(name)
        wanted = f" (wanted {'<' if target[1] else '>='} {target[0]:,g})" if target else ""
        parts.append(f"{name} {value:,.3g}{wanted}" if value < 1000 else f"{name} {value:,.0f}{wanted}")
    ratios = [math.log(row.simulator_ratio) for row in rows if not math.isnan(row.simulator_ratio)]
    typical = math.exp(sum(ratios) / max(1, len(ratios)))
    return (
        f"SUMMARY: {'; '.join(parts)}; simulator / engine, geometric mean {typical:,.0f}; {fixed_cost()}; "
        f"1 and 2 threads {'identical' if all(row.identical for row in rows) else 'DIFFERENT'}."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: under a minute, no targets")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--budget", type=float, default=90.0, metavar="SECONDS", help="for the simulator's tiled matmul (default 90)")
    parser.add_argument("--only", nargs="+", choices=[e.name for e in ENTRIES], metavar="NAME", help="only these kernels")
    parser.add_argument("--simulate", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.simulate:
        name, *shape = options.simulate
        simulate(name, tuple(map(int, shape)))
        return 0
    print(HEADER, "-" * len(HEADER), sep="\n")
    rows = []
    for entry in ENTRIES:
        if not options.only or entry.name in options.only:
            rows.append(measure(entry, options.quick, options.budget))
            print(line(rows[-1]), flush=True)
    print(summary(rows))
    if options.check and (failures := missed(figures(rows))):
        print("MISSED:", "; ".join(failures))
        return 1
    return 0 if all(row.identical for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
