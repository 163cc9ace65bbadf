"""The fuzz is itself under test: the oracle against NumPy, the generator's promises, faults that it must find, the shrinker."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kernel_check import BUILDS, Failure, alike, build, check, difference, run_engine, unlike
from kernel_generator import generate
from kernel_launches import arguments, launches
from kernel_numbers import INTEGER, bit_operation, updated, warp_operation, wrap
from kernel_oracle import IllegalKernel, Oracle, TooSlow
from kernel_shrinker import reproducer, shrink, size
from kernel_source import source
from kernel_tree import (
    DTYPES,
    Array,
    Kernel,
    Launch,
    Stmt,
    all_expressions,
    binary,
    const,
    is_float,
    leaf,
    promoted,
    statements,
)  # fmt: skip
from raw_operations import RAW, evaluate, fused, rounded

SEEDS = range(500, 530)  # not those of test_fuzz_short


# ---- the oracle -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_wrapping_is_numpys(t):
    for value in (0, 1, -1, 127, 128, 255, 2**31, 2**32 - 1, 2**40 + 5, -(2**40) - 5, 2**63, -(2**63)):
        assert wrap(t, value) == np.array([value % 2**64], np.uint64).astype(DTYPES[t])[0]


def test_rounding_a_fraction_is_ieees():
    """Every float32 is itself; halves between neighbours go to the even one; beyond the largest is infinity."""
    for x in np.array([1, 1.5, 0.1, 3e38, 1e-40, 1e-45, -7.25, 2**-126, 2**24 + 2], np.float32):
        assert rounded(Fraction(float(x)), np.float32) == x
        up = np.nextafter(x, np.float32(np.inf))
        middle = (Fraction(float(x)) + Fraction(float(up))) / 2
        even = x if int(np.abs(x).view(np.int32)) % 2 == 0 else up
        assert rounded(middle, np.float32) == even
    assert rounded(Fraction(10) ** 39, np.float32) == np.inf
    assert rounded(-(Fraction(10) ** 39), np.float32) == -np.inf


def test_fused_rounds_once():
    """(1 + e)(1 - e) - 1 = -e^2, which a rounded product loses."""
    e = np.float64(2.0**-30)
    assert fused(1 + e, 1 - e, np.float64(-1)) == -(e**2)
    assert fused(np.float32(np.inf), np.float32(1), np.float32(1)) == np.inf
    assert np.isnan(fused(np.float32(np.inf), np.float32(0), np.float32(1)))


@pytest.mark.parametrize("name", list(RAW))
def test_raw_operations_keep_their_type(name):
    for t in (np.float32, np.float64):
        assert isinstance(evaluate(name, t(1.5), t(-2.0), t(0.25)), t)


def test_bit_operations():
    assert [bit_operation(op, "i4", 12) for op in ("popc", "clz", "ffs", "brev")] == [2, 28, 3, 0x30000000]
    assert [bit_operation(op, "i4", -1) for op in ("popc", "clz", "ffs", "brev")] == [32, 0, 1, 2**32 - 1]
    assert [bit_operation(op, "i8", 0) for op in ("popc", "clz", "ffs")] == [0, 64, 0]


def test_atomics_and_warp_operations():
    assert updated("inc", "u4", 6, [6]) == 0
    assert updated("inc", "u4", 5, [6]) == 6
    assert updated("dec", "u4", 0, [6]) == 6
    assert updated("cas", "i4", 3, [3, 9]) == 9
    assert updated("add", "i4", 2**31 - 1, [1]) == -(2**31)
    lanes = [(k * 10, 3) for k in range(32)]
    assert [warp_operation(f"shfl_{m}sync", "i4", 5, lanes) for m in ("", "xor_", "up_", "down_")] == [30, 60, 20, 80]
    assert warp_operation("shfl_up_sync", "i4", 1, lanes) == 10  # lane -2 does not exist: its own
    assert warp_operation("ballot_sync", "b", 0, [(k in (0, 31),) for k in range(32)]) == 1 - 2**31


A_LAUNCH = Launch((2, 1, 1), (40, 1, 1), 0, plain=True)
OUT = Array("out0", "out", "i8", 1, layout="coalesced")
TID = leaf("special", "i4", "tid", False)
ZERO = const("i8", 0)


def a_kernel(*body: Stmt, arrays: tuple[Array, ...] = (OUT,)) -> Kernel:
    return Kernel(0, 1, arrays, (), (), (), body)


def run_oracle(kernel: Kernel, **options) -> np.ndarray:
    return Oracle(kernel).run(A_LAUNCH, arguments(kernel, A_LAUNCH), **options)["out0"]


def test_exchange_reads_what_others_wrote():
    """Each thread reads the element after its own, modulo 256: shared memory begins as q % 7."""
    s = Array("s0", "shared", "i4", 256)
    read = replace(leaf("load", "i4", ("s0", ""), False), args=(binary("+", TID, const("i8", 1)),))
    kernel = a_kernel(
        Stmt("exchange", (TID,), ((), (Stmt("store", (ZERO, read), attr="out0"),)), ("s0", "plain", 0, False)), arrays=(OUT, s)
    )
    np.testing.assert_array_equal(run_oracle(kernel), [*range(1, 40), 40 % 7] * 2)


def test_a_race_depends_on_the_order():
    """Every thread exchanges its number with one element: the last one's stays."""
    racing = a_kernel(Stmt("atomic", (ZERO, TID), attr=("acc0", "exch")), arrays=(Array("acc0", "acc", "i8", 1),))
    results = [Oracle(racing).run(A_LAUNCH, arguments(racing, A_LAUNCH), backwards=b)["acc0"][0] for b in (False, True)]
    assert results == [39, 0]


def test_a_barrier_that_some_threads_miss_is_illegal():
    odd = binary("&", TID, const("i8", 1))
    kernel = a_kernel(Stmt("if", (odd,), ((Stmt("vote", (const("b", True),), attr=("syncthreads_or", "v", "i4")),), (Stmt("sync"),))))
    with pytest.raises(IllegalKernel):
        run_oracle(kernel)


def test_endless_work_is_too_slow():
    forever = Stmt("while", (const("b", True),), ((),), ("w1", 10**9, "first"))
    with pytest.raises(TooSlow):
        run_oracle(a_kernel(forever, Stmt("store", (ZERO, TID), attr="out0")))


# ---- the generator --------------------------------------------------------------------------------------------------


def test_a_seed_is_one_kernel():
    assert [source(generate(s)) for s in SEEDS] == [source(generate(s)) for s in SEEDS]
    assert len({source(generate(s)) for s in SEEDS}) == len(SEEDS)


def test_kernels_have_no_races():
    """Blocks and threads in the opposite order leave the same arrays."""
    for seed in SEEDS:
        kernel = generate(seed)
        for launch in launches(kernel):
            given = arguments(kernel, launch)
            backwards = Oracle(kernel).run(launch, given, backwards=True)
            assert not difference(kernel, Oracle(kernel).run(launch, given), backwards), f"seed {seed}"


class Exact(Oracle):
    """An oracle that raises where a sum or product would have to be rounded or would overflow int64."""

    def _bin(self, e, a, b):
        run = super()._bin(e, a, b)

        def checked(f):
            x, y, result = a(f), b(f), run(f)
            if e.bits is not None and is_float(e.type) and e.attr in "+-*":
                exact = {"+": Fraction.__add__, "-": Fraction.__sub__, "*": Fraction.__mul__}[e.attr](Fraction(x), Fraction(y))
                assert exact == Fraction(result), f"{x} {e.attr} {y} is not exact in {e.type}"
            if e.type == "i8" and e.attr in "+-*":
                assert INTEGER[e.attr](x, y) == result, f"{x} {e.attr} {y} overflows"
            assert e.bits is None or e.type == "u8" or abs(result) <= 2 ** e.bits[0], f"{x} {e.attr} {y} exceeds its bits"
            return result

        return checked


def test_sums_and_products_are_exact():
    """So that fusing a multiply and an add, or another order, changes nothing; and signed overflow is undefined in numba."""
    checked = 0
    for seed in SEEDS:
        kernel = generate(seed)
        launch = launches(kernel)[0]
        Exact(kernel).run(launch, arguments(kernel, launch))
        checked += sum(1 for e in all_expressions(kernel.body) if e.op == "bin")
    assert checked > 100


def test_exactness_is_noticed():
    third = leaf("var", "f4", "v", False)
    inexact = binary("*", third, third)
    oracle = Exact(a_kernel())
    frame = SimpleNamespace(v={"v": 1.1})
    with pytest.raises(AssertionError, match="not exact in f4"):
        oracle.expr(inexact)(frame)


def test_promotion_is_numbas():
    from numba import cuda, types

    from solcourse.simt import frontend

    names = {"i4": types.int32, "i8": types.int64, "u4": types.uint32, "u8": types.uint64, "f4": types.float32, "f8": types.float64}

    @cuda.jit
    def adds(x, y):
        r = x + y  # noqa: F841

    for a, ta in names.items():
        for b, tb in names.items():
            found = frontend.compile_kernel(adds, (ta, tb)).annotation.typemap
            assert str(found["r"]) == str(names[promoted(a, b)]), (a, b)


# ---- faults that it must find ---------------------------------------------------------------------------------------


@dataclass
class Trace:
    words: np.ndarray


@dataclass
class Run:
    branches: int
    trace: Trace
    findings: tuple = ()


def as_engine(kernel: Kernel, change=None, branches=lambda threads: 7):
    """Computes as the oracle does, then changes an array; `branches` is what it counts."""

    def runner(dispatcher, launch, args, dynamic, build):
        for name, value in Oracle(kernel).run(launch, args).items():
            args[name][...] = value
        if change:
            change(args, build)
        return Run(branches(build.threads), Trace(np.arange(3)))

    return runner


def test_a_right_engine_passes():
    kernel = generate(501)
    assert check(kernel, runner=as_engine(kernel)) is None


def test_a_wrong_element_is_found():
    kernel = a_kernel(Stmt("store", (ZERO, TID), attr="out0"))

    def spoil(args, build):
        if not build.counters:
            args["out0"][1] += 1

    failure = check(kernel, [A_LAUNCH], runner=as_engine(kernel, spoil))
    assert (failure.kind, failure.build, failure.launch) == ("result", "no counters", A_LAUNCH)
    assert failure.detail.startswith("out0[1] is np.int64(2), should be np.int64(1) (1 of 80 elements")


def test_counts_that_depend_on_threads_are_found():
    kernel = a_kernel(Stmt("store", (ZERO, TID), attr="out0"))
    failure = check(kernel, [A_LAUNCH], runner=as_engine(kernel, branches=lambda threads: threads))
    assert failure.kind == "counts"
    assert "branches: 1 and 2" in failure.detail


def test_findings_about_a_clean_kernel_are_found():
    kernel = a_kernel(Stmt("store", (ZERO, TID), attr="out0"))
    right = as_engine(kernel)

    def nervous(*args):
        return replace(right(*args), findings=("a race",))

    assert check(kernel, [A_LAUNCH], runner=nervous).kind == "findings"


def test_checks_that_change_a_bit_are_found():
    """-0.0 is 0.0 to the oracle."""
    kernel = a_kernel(Stmt("store", (ZERO, const("f8", 0.0)), attr="out0"), arrays=(replace(OUT, dtype="f8"),))

    def spoil(args, build):
        if build.checks:
            args["out0"][1] = -0.0

    failure = check(kernel, [A_LAUNCH], runner=as_engine(kernel, spoil))
    assert (failure.kind, failure.build) == ("bits", "checks")
    assert "out0" in failure.detail


def test_a_race_planted_in_a_kernel_is_found_by_its_checks_alone():
    """Without the barrier the engine computes the same; the checks say what is wrong."""
    read = replace(leaf("load", "i4", ("s0", ""), False), args=(binary("+", TID, const("i8", 1)),))
    exchange = Stmt("exchange", (TID,), ((), (Stmt("store", (ZERO, read), attr="out0"),)), ("s0", "plain", 0, False))
    kernel = a_kernel(exchange, arrays=(OUT, Array("s0", "shared", "i4", 256)))
    text = source(kernel).replace("cuda.syncthreads()", "pass")
    namespace = {"__name__": "raced"}
    linecache.cache["<raced>"] = (len(text), None, text.splitlines(True), "<raced>")
    exec(compile(text, "<raced>", "exec"), namespace)
    found = [
        run_engine(d, A_LAUNCH, arguments(kernel, A_LAUNCH), 0, BUILDS["checks"]).findings for d in (build(kernel), namespace["kernel"])
    ]
    assert not found[0]
    assert {"racecheck"} <= {f.check for f in found[1]}


def test_traces_are_compared():
    first, second = ({"trace.words": np.array(words)} for words in ([1, 2], [1, 3]))
    assert unlike(first, second)
    assert not unlike(first, first)


def test_an_exception_is_found():
    kernel = a_kernel(Stmt("store", (ZERO, TID), attr="out0"))

    def broken(*args):
        raise KeyError("no such opcode")

    assert check(kernel, [A_LAUNCH], runner=broken).kind == "KeyError"


def test_a_fault_planted_in_the_engine_is_found(monkeypatch):
    """The engine's `and` computes `or`: 13 & tid against 13 | tid."""
    from solcourse.simt import ops

    monkeypatch.setitem(ops.TABLE, "and", lambda e, i: ops.binary(e, replace(i, op="or")))
    kernel = a_kernel(Stmt("store", (ZERO, binary("&", TID, const("i8", 13))), attr="out0"))
    failure = check(kernel, [A_LAUNCH])
    assert failure.kind == "result"
    assert "out0[0] is np.int64(13), should be np.int64(0)" in failure.detail


def test_how_results_are_compared():
    """bits: zeros of different sign differ; near: the last places do not; NaN is like NaN."""
    a, b = np.array([0.0, np.nan, 1.0]), np.array([-0.0, np.nan, 1.0 + 1e-15])
    assert alike(a, b, "bits").tolist() == [False, True, False]
    assert alike(a, b, "value").tolist() == [True, True, False]
    assert alike(a, b, "near").tolist() == [True, True, True]


# ---- the shrinker ---------------------------------------------------------------------------------------------------


def has_right_shift(kernel: Kernel) -> bool:
    return any(e.op == "shift" and e.attr[0] == ">>" for e in all_expressions(kernel.body))


def test_shrinking_keeps_what_fails_and_little_else():
    """An engine that fails wherever >> is: what is left is one statement, and the launch is one thread."""
    seed = next(s for s in range(600, 700) if has_right_shift(generate(s)))
    kernel = generate(seed)

    def evaluate(candidate, where):
        Oracle(candidate).run(where[0], arguments(candidate, where[0]))
        return Failure("result", "wrong", where[0], "no counters") if has_right_shift(candidate) else None

    small, failure = shrink(kernel, evaluate(kernel, launches(kernel)), evaluate, seconds=20)
    assert has_right_shift(small)
    assert sum(1 for _ in statements(small.body)) <= 2 < size(kernel)
    assert size(small) <= 8
    assert failure.launch.threads == failure.launch.blocks == 1


def test_shrinking_never_changes_the_kind_of_failure():
    kernel = generate(503)
    first = Failure("KeyError", "no such opcode %3", launches(kernel)[0], "no counters")

    def evaluate(candidate, where):
        return Failure("result", "another fault", where[0])

    assert shrink(kernel, first, evaluate, seconds=5) == (kernel, first)


def test_a_reproducer_runs_alone():
    """A right engine passes it; with another kernel's results it fails."""
    kernel = a_kernel(Stmt("store", (ZERO, binary("*", TID, const("i8", 3))), attr="out0"))
    text = reproducer(kernel, Failure("result", "out0 differs", A_LAUNCH, "no counters"))
    exec(compile(text, "<reproducer>", "exec"), {"__name__": "reproducer"})
    with pytest.raises(AssertionError, match="Mismatched elements"):
        exec(compile(text.replace("tid * 3", "tid * 4"), "<reproducer>", "exec"), {"__name__": "reproducer"})


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def command():
    import importlib.util

    spec = importlib.util.spec_from_file_location("fuzz_command", Path(__file__).with_name("__main__.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_command_runs_from_the_root():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seconds", "1", "--start", "500"], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failures" in done.stdout
    assert not done.stdout.startswith("0 kernels")


def test_command_shows_a_kernel(command, capsys):
    assert command.main(["--show", "500"]) == 0
    assert capsys.readouterr().out.strip() == source(generate(500)).strip()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a crash is planted by forking this process")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_crash_is_a_failure(command, monkeypatch, capsys):
    monkeypatch.setattr(command, "check", lambda *args, **options: os._exit(11))
    assert command.main(["--seed", "500", "--shrink", "0"]) == 1
    assert "crash" in capsys.readouterr().out
