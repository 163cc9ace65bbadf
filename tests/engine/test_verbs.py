"""The verbs: what each does to the caller's arrays, what it refuses and says, and that imports stay light."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types

import numpy as np
import pytest
from numba import cuda, float32

import solcourse as sol

N = 1024


@cuda.jit
def triple(src, dst):
    i = cuda.grid(1)
    if i < dst.size:
        dst[i] = 3 * src[i]


@cuda.jit
def unguarded(x):
    i = cuda.grid(1)
    x[i] += 1


@cuda.jit
def two_tiles(x):
    a = cuda.shared.array((64, 64), float32)
    b = cuda.shared.array((64, 32), float32)
    t = cuda.threadIdx.x
    a[t, 0] = x[t]
    b[0, t % 32] = x[t]
    cuda.syncthreads()
    x[t] = a[t, 0] + b[0, t % 32]


@cuda.jit
def one_huge_tile(x):
    tile = cuda.shared.array((128, 128), float32)
    t = cuda.threadIdx.x
    tile[t, 0] = x[t]
    x[t] = tile[t, 0] + tile[0, t]


def arrays():
    return np.arange(N, dtype=np.float32), np.zeros(N, np.float32)


# --------------------------------------------------------------------------------------------------------------------- run


def test_run_writes_arrays_and_returns_nothing():
    src, dst = arrays()
    assert sol.run(triple[8, 128], src, dst) is None
    np.testing.assert_array_equal(dst, 3 * src)


def test_run_takes_forall():
    src, dst = arrays()
    sol.run(triple.forall(N), src, dst)
    np.testing.assert_array_equal(dst, 3 * src)


def test_run_of_one_array_twice_writes_the_last_argument_back():
    both = np.arange(N, dtype=np.float32)
    sol.run(triple[8, 128], both, both)  # the copy behind dst is written back last
    np.testing.assert_array_equal(both, 3 * np.arange(N))


@pytest.mark.parametrize(
    ("launch", "args", "said"),
    [
        (triple, arrays(), r"triple\[blocks_per_grid, threads_per_block\]"),
        (triple[8, 128], arrays()[:1], r"triple\(src, dst\) takes 2 arguments, 1 given"),
        (triple[8, 2048], arrays(), "2,048; CUDA's limit is 1,024"),
        (triple[8, 128], (arrays()[0][::2], arrays()[1]), "non-contiguous"),
        (triple[8, 128], ([1.0], arrays()[1]), r"np\.asarray\(src\)"),
    ],
)
def test_bad_launches_are_refused_and_the_next_one_works(launch, args, said):
    with pytest.raises(sol.LaunchError, match=said):
        sol.run(launch, *args)
    test_run_writes_arrays_and_returns_nothing()


def test_type_error_leaves_arrays_alone():
    dst = np.zeros(4)
    with pytest.raises(sol.KernelTypeError):
        sol.run(triple[1, 32], 1.0, dst)
    assert not dst.any()


def test_shared_arrays_above_48_kib_are_refused_with_the_numbers():
    x = np.zeros(128, np.float32)
    # 128 x 128 x 4 = 65,536
    with pytest.raises(sol.LaunchError, match=r"one_huge_tile declares 65,536 bytes.*limit.*49,152") as caught:
        sol.run(one_huge_tile[1, 128], x)
    assert caught.value.line == one_huge_tile.py_func.__code__.co_firstlineno


# ----------------------------------------------------------------------------------------------------------------- profile


def test_profile_predicts_and_writes_arrays():
    src, dst = arrays()
    report = sol.profile(triple[8, 128], src, dst)
    np.testing.assert_array_equal(dst, 3 * src)
    assert (report.origin, report.kernel, report.device.name) == ("predicted", "triple", sol.DEFAULT_DEVICE)
    # 1024 loads and stores of 4 bytes: 1024 / 32 = 32 requests of 4 sectors each
    assert (report.counts.global_load.requests, report.counts.global_load.sectors) == (32, 128)
    assert (report.counts.global_store.requests, report.counts.global_store.sectors) == (32, 128)
    assert report.time_s > 0


def test_profile_takes_device_work_registers_and_baseline():
    src, dst = arrays()
    work = sol.Work.read("src", 4 * N) + sol.Work.write("dst", 4 * N)
    report = sol.profile(triple[8, 128], src, dst, device="Tesla T4", work=work, registers=64, baseline_s=1.0, cache="warm")
    assert report.device.name == "Tesla T4"
    assert report.work is work
    assert report.registers == 64
    assert report.baseline_s == 1.0
    assert report.cache == "warm"


def test_sampled_profile_says_so_and_scales():
    src, dst = np.ones(64 * N, np.float32), np.zeros(64 * N, np.float32)
    report = sol.profile(triple[512, 128], src, dst, sample_blocks=16)
    assert report.sampled_blocks == 16
    # 65,536 elements / 32 lanes
    assert report.counts.global_load.requests == pytest.approx(2048, rel=0.02)
    assert 0 < np.count_nonzero(dst) < dst.size


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"device": "A100"}, sol.UnknownName, "could be any of A100-SXM4-40GB, A100-SXM4-80GB"),
        ({"cache": "hot"}, sol.SolcourseError, "'cold' or 'warm'; got 'hot'"),
        ({"sample_blocks": 0}, sol.LaunchError, "at least 1"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(options, error, said):
    src, dst = arrays()
    with pytest.raises(error, match=said):
        sol.profile(triple[8, 128], src, dst, **options)
    assert not dst.any()


def test_profile_refuses_shared_memory_the_device_lacks_with_the_numbers():
    x = np.zeros(64, np.float32)
    # static 64 x 64 x 4 + 64 x 32 x 4 = 24,576; T4 has 64 KiB = 65,536 per block
    with pytest.raises(sol.LaunchError, match=r"24,576 \+ 45,000 = 69,576 bytes.*Tesla T4 has 65,536"):
        sol.profile(two_tiles[1, 64, 0, 45_000], x, device="Tesla T4")
    assert not x.any()
    assert sol.profile(two_tiles[1, 64], x, device="Tesla T4").time_s > 0


# ---------------------------------------------------------------------------------------------------------------- sanitize


def test_sanitize_finds_nothing_in_a_clean_launch_and_leaves_arrays_alone():
    src, dst = arrays()
    assert sol.sanitize(triple[8, 128], src, dst) == []
    assert not dst.any()


def test_sanitize_names_the_stray_access(line_of):
    x = np.zeros(100)
    (finding,) = sol.sanitize(unguarded[4, 32], x)
    assert (finding.kind, finding.severity, finding.array) == ("out_of_bounds", "error", "x")
    assert finding.line == line_of(unguarded, "x[i] += 1")
    # 4 blocks of 32: thread 100 = block 3, thread 4
    assert (finding.block, finding.thread, finding.index) == ((3, 0, 0), (4, 0, 0), 100)
    assert not x.any()


def test_sanitize_works_on_copies_of_device_arrays():
    with sol.use_engine():
        x = cuda.to_device(np.zeros(128))
        assert sol.sanitize(unguarded[4, 32], x) == []
        assert not x.copy_to_host().any()


def test_sanitize_suspects_swapped_dimensions():
    src, dst = arrays()
    (finding,) = sol.sanitize(triple[128, 8], src, dst)
    assert (finding.kind, finding.severity) == ("launch_shape", "warning")
    assert "triple[8, 128]?" in finding.hint


def test_sanitize_raises_what_never_ran():
    with pytest.raises(sol.KernelTypeError):
        sol.sanitize(triple[1, 32], 1.0, np.zeros(3))
    with pytest.raises(ValueError, match="non-contiguous"):
        sol.sanitize(unguarded[1, 32], np.zeros(64)[::2])


# ------------------------------------------------------------------------------------------------------------ the package


def in_new_python(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_is_light():
    code = "import sys, solcourse; print([m for m in ('numba', 'matplotlib', 'ipywidgets', 'numpy') if m in sys.modules])"
    assert in_new_python(code) == "[]"


def test_import_takes_less_than_a_fifth_of_a_second():
    code = "import time; t = time.perf_counter(); import solcourse; print(time.perf_counter() - t)"
    assert min(float(in_new_python(code)) for _ in range(3)) < 0.2


def test_importing_changes_nothing_in_numba():
    code = (
        "from numba import cuda\nbefore = dict(vars(cuda))\n"
        "import solcourse, solcourse.verbs, solcourse.standin, solcourse.timing, solcourse.simt.frontend\n"
        "print([n for n, v in before.items() if vars(cuda).get(n) is not v])"
    )
    assert in_new_python(code) == "[]"


def test_public_names_exist_and_no_module_takes_one():
    lacking = {"dashboard"} if importlib.util.find_spec("ipywidgets") is None else set()
    for name in set(sol.__all__) - lacking:
        value = getattr(sol, name)
        assert not isinstance(value, types.ModuleType), name
    code = (
        "import pkgutil, importlib, types, solcourse as sol\n"
        "modules = {m.name for m in pkgutil.iter_modules(sol.__path__)}\n"
        "print(sorted(modules & set(sol.__all__)))"
    )
    assert in_new_python(code) == "[]"


def test_verbs_stay_callable_whatever_was_imported_before():
    code = "import solcourse.verbs, solcourse.report, solcourse.timing, solcourse as sol; print(callable(sol.profile), callable(sol.run))"
    assert in_new_python(code) == "True True"


def test_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'profil'"):
        sol.profil  # noqa: B018
    assert "profile" in dir(sol)


@pytest.mark.parametrize("verb", [sol.profile, sol.measure])
def test_work_that_is_no_ledger_is_refused_before_anything_runs(verb):
    x = np.zeros(8)
    with pytest.raises(sol.WorkError, match=r"work is a sol\.Work.*got 3"):
        verb(unguarded[1, 32], x, work=3)
    assert not x.any()
