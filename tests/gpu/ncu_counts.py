"""Nsight Compute's counts of launches, by its command line: find it, run it on a script, read its CSV."""

from __future__ import annotations

import csv
import glob
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from solcourse.counters import COUNTERS, ncu_name

PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/NVIDIA-Nsight-Compute*/ncu")
SHOWN = ("requests", "sectors", "wavefronts", "bank_conflicts")


class NcuFailed(Exception):
    """ncu is not there, or may not count; the message says which."""


def find() -> str:
    """Raises NcuFailed."""
    found = shutil.which("ncu") or next((path for place in PLACES for path in sorted(glob.glob(place))), None)
    if found is None:
        raise NcuFailed("ncu (Nsight Compute) is not installed")
    return found


def counters(cc: float) -> dict[str, str]:
    """Counters that the engine counts exactly and ncu has as sums: name -> ncu's metrics, as counters.py writes them."""
    chosen = {}
    for name, counter in COUNTERS.items():
        part = name.split(".")
        of_memory = len(part) == 3 and part[2] in SHOWN and not part[1].startswith("local")
        in_l1 = of_memory and part[1].startswith("global") and part[2] in ("wavefronts", "bank_conflicts")
        wanted = part[0] == "counts" and (part[1] == "flops" or (of_memory and not in_l1))
        if wanted and counter.exact and ncu_name(name, cc).endswith(".sum"):
            chosen[name] = ncu_name(name, cc)
    return chosen


def metrics(pattern: str) -> dict[str, int]:
    """The metrics that a name in {braces} stands for, each with how often it counts: a fused multiply-add is two operations.

    >>> metrics("a_{x,fma}.sum")
    {'a_x.sum': 1, 'a_fma.sum': 2}
    """
    braces = re.search(r"\{([^}]*)\}", pattern)
    if braces is None:
        return {pattern: 1}
    return {pattern.replace(braces[0], word): 2 if word.endswith("fma") else 1 for word in braces[1].split(",")}


def command(ncu: str, patterns: Iterable[str], script: str) -> list[str]:
    wanted = dict.fromkeys(metric for pattern in patterns for metric in metrics(pattern))
    options = ["--csv", "--page", "raw", "--print-units", "base", "--print-fp", "--target-processes", "all"]
    return [ncu, *options, "--metrics", ",".join(wanted), sys.executable, "-c", script]


def read(text: str) -> list[dict[str, str]]:
    """The rows of `--csv --page raw`, one per launch in order: column -> value. What else a program printed is skipped.

    Raises NcuFailed with ncu's own words where there is no table.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        said = [line for line in lines if line.startswith("==ERROR==") or "ERR_" in line] or lines[-1:]
        raise NcuFailed(" ".join(said) or "ncu printed nothing")
    rows = list(csv.DictReader(line for line in lines[start:] if line.startswith('"')))
    return [row for row in rows if row["ID"]]  # the row below the head holds the units


def counts(row: Mapping[str, str], patterns: Mapping[str, str]) -> dict[str, int]:
    """Counter -> ncu's count; counters that ncu did not give are left out."""
    found = {}
    for name, pattern in patterns.items():
        parts = metrics(pattern)
        if all(row.get(metric) not in (None, "", "n/a") for metric in parts):
            found[name] = round(sum(float(row[metric].replace(",", "")) * weight for metric, weight in parts.items()))
    return found


def run(script: str, patterns: Sequence[str], timeout_s: float = 600) -> list[dict[str, str]]:
    """Rows of every launch in a script. Raises NcuFailed."""
    done = subprocess.run(command(find(), patterns, script), capture_output=True, text=True, timeout=timeout_s, check=False)
    return read(done.stdout + done.stderr)
