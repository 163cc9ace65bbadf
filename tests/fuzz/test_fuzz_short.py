"""Random kernels on the engine and in the per-thread oracle: the same arrays, whatever the counters and the threads.

One seed a test: `python -m tests.fuzz --seed N` runs it alone, `--show N` prints it, `--seconds S` runs new ones.
"""

from __future__ import annotations

import pytest
from kernel_check import check
from kernel_generator import generate
from kernel_shrinker import reproducer, shrink
from kernel_source import STATEMENTS
from kernel_tree import all_expressions, statements
from raw_operations import RAW

SEEDS = range(40)
SOON = range(20)  # of these, make test waits for the first half
WRONG_ONCE = (80100,)  # a loop's exit read what the loop's next turn had just been given


LATER = [pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS if seed not in SOON]


@pytest.mark.parametrize("seed", [*SOON, *WRONG_ONCE, *LATER])
def test_engine_and_oracle_agree(seed):
    failure = check(generate(seed))
    if failure:
        kernel, failure = shrink(generate(seed), failure, check, seconds=60)
        pytest.fail(f"python -m tests.fuzz --seed {seed}\n{failure}\n\n{reproducer(kernel, failure)}")


def test_the_seeds_cover_the_language():
    """Every kind of statement, every operation on numbers, all dimensions and types are in some kernel of these seeds."""
    kernels = [generate(seed) for seed in SEEDS]
    bodies = [body for k in kernels for body in (k.body, *(f.body for f in k.functions))]
    used = {s.op for body in bodies for s in statements(body)}
    assert used == set(STATEMENTS)
    operations = {e.op for body in bodies for e in all_expressions(body)}
    assert {"bin", "shift", "unary", "cmp", "chain", "logic", "ternary", "selp", "extreme", "rounding", "bits", "fma"} <= operations
    assert {"inexact", "quantised", "load", "own", "call", "cast", "power", "special", "scalar", "var", "const"} <= operations
    assert {e.attr for body in bodies for e in all_expressions(body) if e.op == "bin"} == {"+", "-", "*", "//", "%", "&", "|", "^"}
    assert {k.ndim for k in kernels} == {1, 2, 3}
    assert len({s.attr[1] for body in bodies for s in statements(body) if s.op == "raw"}) > len(RAW) / 4
