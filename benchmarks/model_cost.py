"""What a prediction costs beside the run it rests on: traffic, the model, and all devices of the table.

    python benchmarks/model_cost.py [--quick] [--check] [--only NAME ...]

Over the reference kernels at the sizes of engine.py. A counted run has every counter and the Trace, on all threads. Times are the best
of several interleaved repeats, each on a run of its own, so that nothing is left over from the repeat before:
    traffic   one device, the first time for this run; what every device shares (the index of the Trace) is part of it
    model     one device, with traffic known
    all       traffic and model of every device in the table, the first time for this run
`part` is what the limit is set on: the cost / the counted run, or / FLOOR_S where the run is shorter than that.
Prints a table and one summary line; with --check a missed target is an exit code of 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine import ENTRIES, Launch, seconds, size

from solcourse.hardware import Device, device, devices
from solcourse.model import predict
from solcourse.occupancy import Occupancy, occupancy
from solcourse.registers import registers
from solcourse.traffic import traffic, traffics, warm_up

DEVICE = "A100-SXM4-80GB"
FLOOR_S = 1e-3  # what a run this short costs is its fixed part; nobody waits for either
TARGETS = {
    "traffic, median": 2.0,
    "traffic, worst": 4.0,
    "model, worst, ms": 50.0,
    "all devices, worst": 10.0,
}


@dataclass(frozen=True)
class Row:
    """Seconds."""

    name: str
    shape: tuple[int, ...]
    counted: float
    traffic: float
    model: float
    all_devices: float

    def part(self, cost: float) -> float:
        return cost / max(self.counted, FLOOR_S)


def fits_on(run: Any, gpu: Device) -> Occupancy:
    held = registers(run.program, run, gpu.cc)
    return occupancy(gpu, run.threads_per_block, held.count, run.shared_bytes, barriers=1 if run.counts.barriers else 0)


def timed(job: Callable[[], Any]) -> tuple[float, Any]:
    before = time.perf_counter()
    result = job()
    return time.perf_counter() - before, result


def everywhere(run: Any, table: list[Device]) -> None:
    places = [(gpu, fits_on(run, gpu)) for gpu in table]
    for (gpu, fits), moved in zip(places, traffics(run, places), strict=True):
        predict(run, moved, gpu, fits)


def measure(name: str, shape: tuple[int, ...], repeats: int) -> Row:
    launch, gpu, table = Launch(name, shape), device(DEVICE), [device(known) for known in devices()]
    counted, moved, said, swept = [], [], [], []
    for _ in range(repeats):
        for known, cost in ((gpu, moved), (None, swept)):
            taken, run = timed(launch.run)
            counted.append(taken)
            if known is None:
                cost.append(timed(lambda run=run: everywhere(run, table))[0])
                continue
            fits = fits_on(run, known)
            taken, seen = timed(lambda run=run, known=known, fits=fits: traffic(run, known, fits))
            cost.append(taken)
            said.append(timed(lambda run=run, known=known, fits=fits, seen=seen: predict(run, seen, known, fits))[0])
    return Row(name, shape, min(counted), min(moved), min(said), min(swept))


def figures(rows: list[Row]) -> dict[str, float]:
    parts = [row.part(row.traffic) for row in rows]
    return {
        "traffic, median": statistics.median(parts),
        "traffic, worst": max(parts),
        "model, worst, ms": 1e3 * max(row.model for row in rows),
        "all devices, worst": max(row.part(row.all_devices) for row in rows),
    }


def line(row: Row) -> str:
    return (
        f"{row.name:<24.24} {size(row.shape):>14} | {seconds(row.counted):>9} | {seconds(row.traffic):>9} {row.part(row.traffic):>5.1f}x"
        f" | {seconds(row.model):>9} | {seconds(row.all_devices):>9} {row.part(row.all_devices):>5.1f}x"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=[e.name for e in ENTRIES], metavar="NAME")
    options = parser.parse_args()
    warm_up()
    print(f"{'kernel':<24} {'size':>14} | {'counted':>9} | {'traffic':>9} {'part':>6} | {'model':>9} | {'all':>9} {'part':>6}")
    rows = []
    for entry in ENTRIES:
        if options.only and entry.name not in options.only:
            continue
        row = measure(entry.name, entry.quick if options.quick else entry.shape, options.repeats)
        rows.append(row)
        print(line(row), flush=True)
    found = figures(rows)
    print(
        f"cost: traffic {found['traffic, median']:.2f}x (median) {found['traffic, worst']:.2f}x (worst) of a counted run, "
        f"model {found['model, worst, ms']:.1f} ms (worst), all {len(devices())} devices {found['all devices, worst']:.1f}x (worst)"
    )
    failures = [f"{name} {found[name]:.2f} > {limit:g}" for name, limit in TARGETS.items() if found[name] > limit]
    if options.check and failures:
        print("MISSED:", "; ".join(failures))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
