"""units.py: the only place that writes a unit. Every function: typical, edges between prefixes, zero, unknown."""

import ast
import math
from pathlib import Path

import pytest

import solcourse.units as units

PACKAGE = Path(units.__file__).parent


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-9, "1.00 ns"),
        (59.28e-6, "59.3 µs"),
        (999.4e-6, "999 µs"),
        (999.6e-6, "1.00 ms"),  # not "1000 µs"
        (0.0, "0 s"),
        (-2.5e-3, "-2.50 ms"),
        (3600.0, "3600 s"),  # no larger unit of time than the second
        (2.5e-12, "0.00250 ns"),
        (None, "unknown"),
        (math.nan, "unknown"),
        (math.inf, "∞ s"),
    ],
)
def test_seconds_keeps_three_digits(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (units.size, 0, "0 B"),
        (units.size, 999, "999 B"),
        (units.size, 1000, "1.00 kB"),
        (units.size, 999_600, "1.00 MB"),
        (units.size, 5e15, "5000 TB"),
        (units.binary_size, 0, "0 B"),
        (units.binary_size, 1023, "1023 B"),
        (units.binary_size, 8 * 1024, "8 KiB"),
        (units.binary_size, 5.5 * 2**20, "5.5 MiB"),
        (units.binary_size, 80 * 2**30, "80 GiB"),
        (units.bytes_per_s, 320e9, "320 GB/s"),
        (units.bytes_per_s, 7.667e12, "7.67 TB/s"),
        (units.flops, 857_246_208, "857 MFLOP"),
        (units.flops, 0, "0 FLOP"),
        (units.flops_per_s, 1.811e15, "1.81 PFLOP/s"),
        (units.intensity, 236.2, "236 FLOP/B"),
        (units.intensity, 0.0833, "0.0833 FLOP/B"),
        (units.clock, 1.98e9, "1980 MHz"),
        (units.count, 9_999_999, "9,999,999"),
        (units.count, 10_000_000, "10.0 M"),
        (units.count, 2.5, "2.50"),
        (units.percent, 0.3333, "33.3 %"),
        (units.percent, -0.191, "-19.1 %"),
        (units.score, 1.083, "1.08"),
        (units.score, 0.0, "0.00"),
        (units.score, 0.0996, "0.10"),
        (units.score, 0.00123, "0.0012"),
        (units.factor, 0.5, "0.500x"),
        (units.factor, math.inf, "∞x"),
    ],
)
def test_amount_is_written_with_its_unit(function, value, text):
    assert function(value) == text


@pytest.mark.parametrize(
    "function",
    [
        units.seconds, units.size, units.binary_size, units.bytes_per_s, units.flops, units.flops_per_s, units.clock,
        units.intensity, units.count, units.percent, units.score, units.factor,
    ],
)  # fmt: skip
def test_what_is_not_known_reads_unknown(function):
    assert function(None) == function(math.nan) == "unknown"


@pytest.mark.parametrize("module", ["units", "hardware", "work", "roofline", "occupancy", "errors"])
def test_arithmetic_imports_no_numba_matplotlib_or_ipywidgets(module):
    tree = ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))
    names = {a.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "__future__" in names  # the walk saw the imports
    assert not names & {"numba", "llvmlite", "matplotlib", "ipywidgets", "numpy"}
