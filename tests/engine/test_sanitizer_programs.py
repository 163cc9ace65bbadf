"""Sanitized programs: `solcourse run --sanitize` and use_engine(sanitize=True) check every launch and leave the rest as it is."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numba import cuda

import solcourse as sol
from solcourse import sanitized, standin
from solcourse.simt import engine as simt_engine
from solcourse.simt.records import Finding

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"

pytestmark = pytest.mark.slow  # many processes
N = 256


@cuda.jit
def reverse_racy(x):
    part = cuda.shared.array(64, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    part[t] = x[i]
    x[i] = part[63 - t]


@cuda.jit
def reverse(x):
    part = cuda.shared.array(64, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    part[t] = x[i]
    cuda.syncthreads()
    x[i] = part[63 - t]


@cuda.jit
def add_one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


@cuda.jit
def unguarded(x):
    x[cuda.grid(1)] = 1


@cuda.jit
def fill_some(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] = 2


@cuda.jit
def copy(source, target):
    i = cuda.grid(1)
    if i < source.size:
        target[i] = source[i]


@pytest.fixture
def engine():
    with sol.use_engine("H100-SXM5-80GB", sanitize=True) as active:
        yield active


def errors(active) -> list[tuple[str, str]]:
    return [(finding.kind, finding.array) for finding in active.findings if finding.severity == "error"]


# ------------------------------------------------------------------------------------------------------------- in a notebook
def test_the_findings_of_all_launches_are_one_for_each_place(engine):
    x = np.arange(N, dtype=np.float32)
    for _ in range(3):
        reverse_racy[4, 64](x)
    once = next(f for f in sol.sanitize(reverse_racy[4, 64], x) if f.kind == "read_after_write")
    races = [f for f in engine.findings if f.kind == "read_after_write"]
    assert [(f.line, f.other_line, f.count) for f in races] == [(once.line, once.other_line, 3 * once.count)]
    assert races[0].touches == once.touches != ()  # the first launch was looked at twice, on copies
    assert engine.findings.launches == 3
    assert engine.findings.title.startswith("1 kernel, 3 launches sanitized on H100-SXM5-80GB: ")


def test_a_clean_program_has_no_findings_and_the_results_of_a_plain_run(engine, rng):
    x = rng.random(N, np.float32)
    y, device = x.copy(), cuda.to_device(x)
    reverse[4, 64](y)
    reverse[4, 64](device)
    add_one[8, 64](device)
    np.testing.assert_array_equal(y, x.reshape(4, 64)[:, ::-1].ravel())
    np.testing.assert_array_equal(device.copy_to_host(), y + 1)
    assert engine.findings == []
    assert str(engine.findings) == "2 kernels, 3 launches sanitized on H100-SXM5-80GB: no finding"


def test_a_stray_access_is_a_finding_and_the_program_goes_on(engine):
    x = cuda.to_device(np.zeros(100, np.float32))
    unguarded[2, 64](x)  # threads 100 .. 127 stray
    add_one[2, 64](x)
    assert errors(engine) == [("out_of_bounds", "x")]
    assert (x.copy_to_host()[:64] == 2).all()
    assert engine.findings.launches == 2
    assert sanitized.WENT_ON[:60] in " ".join(str(engine.findings).split())


def test_what_one_launch_writes_the_next_may_read(engine):
    part, whole, target = cuda.device_array(N), cuda.device_array(N), cuda.device_array(N)
    fill_some[4, 64](whole, N)
    copy[4, 64](whole, target)
    add_one[4, 64](target)
    assert engine.findings == []
    fill_some[4, 64](part, N - 5)
    copy[4, 64](part, target)
    assert errors(engine) == [("uninitialized_read", "source")]
    assert engine.findings[0].count == 5


def test_a_host_copy_or_a_device_copy_in_between_is_followed(engine):
    x = cuda.device_array((2, N))
    x[0] = np.ones(N)
    y = cuda.device_array((2, N))
    y.copy_to_device(x)
    add_one[4, 64](y[0])
    assert engine.findings == []
    add_one[4, 64](y[1])
    assert errors(engine) == [("uninitialized_read", "x")]


def test_arrays_from_the_host_come_back_though_they_overlap(engine):
    x = np.zeros(N)
    copy[4, 64](x[: N - 1] + 3, x[1:])
    copy[1, 64](x[:10], x[5:15])  # each a copy on the device
    assert x[5:15].tolist() == [0] + [3] * 9
    assert engine.findings == []


def test_an_out_argument_that_is_read_was_never_on_the_device(engine):
    x = np.zeros(N)
    fill_some[4, 64](cuda.Out(x), N)
    assert engine.findings == []
    add_one[4, 64](cuda.Out(x))
    assert errors(engine) == [("uninitialized_read", "x")]


def test_an_impossible_launch_raises_as_ever_and_is_not_counted(engine):
    with pytest.raises(sol.LaunchError):
        add_one[1, 2048](np.zeros(4))
    assert engine.findings.launches == 0
    assert str(engine.findings) == sanitized.NOTHING


def test_a_launch_too_large_for_its_checks_runs_without_and_that_is_said(engine, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args, **options):
        raise sol.LaunchError("add_one cannot be checked as a whole: it is too large. Nothing ran.")

    x = np.zeros(N)
    monkeypatch.setattr(simt_engine, "sanitize", refuse)
    add_one[4, 64](x)
    add_one[4, 64](x)
    monkeypatch.undo()
    add_one[4, 64](x)
    assert (x == 3).all()
    assert str(engine.findings).splitlines() == [
        "1 kernel, 1 launch sanitized on H100-SXM5-80GB: no finding",
        "",
        "2 launches of which nothing can be said: add_one cannot be checked as a whole: it is too large.",
    ]


def test_where_nobody_looks_there_is_no_empty_list_of_findings():
    with sol.use_engine() as active, pytest.raises(sol.SolcourseError, match=r"use_engine\(sanitize=True\)"):
        active.findings  # noqa: B018


def test_profile_and_sanitize_are_two_runs():
    with pytest.raises(sol.SolcourseError, match="two runs"):
        sol.use_engine(profile=True, sanitize=True)
    assert not standin.is_active()


def test_findings_look_alike_in_text_page_and_json(engine, tmp_path: Path):
    unguarded[2, 64](np.zeros(100, np.float32))
    found = engine.findings
    assert found.save(tmp_path / "f.txt").read_text() == f"{found}\n"
    saved = json.loads(found.save(tmp_path / "f.json").read_text())
    assert (saved["launches"], saved["errors"], saved["unchecked"]) == (1, 1, 0)
    assert [(f["check"], f["kind"], f["line"], f["array"]) for f in saved["findings"]] == [
        ("memcheck", "out_of_bounds", found[0].line, "x")
    ]
    page = found.save(tmp_path / "f.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert found.title in page
    assert sanitized.WENT_ON in page


def test_a_kernel_prints_once_though_it_is_looked_at_twice(engine, capsys: pytest.CaptureFixture[str]):
    @cuda.jit
    def racy_and_loud(x):
        part = cuda.shared.array(64, np.float32)
        t = cuda.threadIdx.x
        part[t] = x[t]
        x[t] = part[63 - t]
        if t == 0:
            print(x.size)

    racy_and_loud[1, 64](np.zeros(64, np.float32))
    assert engine.findings[0].touches
    assert capsys.readouterr().out == "64\n"


def test_a_kernel_that_raises_on_purpose_is_counted(engine):
    @cuda.jit(debug=True, opt=False)
    def refuses(x):
        if x[0] == 0:
            raise ValueError("of the kernel")

    with pytest.raises(ValueError, match="of the kernel"):
        refuses[1, 1](np.zeros(1))
    assert engine.findings.launches == 1
    (said,) = engine.findings.unchecked
    assert said.startswith("ValueError: ")
    assert said.endswith(": of the kernel")
    assert "1 launch of which nothing can be said: ValueError" in str(engine.findings)


# ------------------------------------------------------------------------------------------------------- what people write
KNOWN = {
    # `level` is read plainly by the threads of other blocks while compare_and_swap changes it: whatever they see, they do the same
    "spmv_bfs": {
        ("warning", "read_after_write", "level"),
        ("warning", "write_after_read", "level"),
        ("warning", "same_value_write", "changed"),
    },
    "reductions": {("warning", "inactive_lane", "")},  # numba's own cuda.reduce: syncwarp() in the branch of two lanes
}
ELSEWHERE = ("conftest", "beside", "threads_and_processes", "fallback_cli")  # as in test_programs.py


@pytest.mark.filterwarnings("ignore:CUDA events time the CPU engine")
@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem not in ELSEWHERE))
def test_a_correct_program_is_not_accused_and_still_finds_its_results_right(
    engine, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.syspath_prepend(PROGRAMS)
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.strip()
    found = {(f.severity, f.kind, f.array) for f in engine.findings}
    assert found <= KNOWN.get(name, set()), str(engine.findings)
    assert bool(found) == (name in KNOWN)


# ------------------------------------------------------------------------------------------------ what processes leave behind
def test_a_record_that_a_process_could_not_finish_does_not_spoil_the_others(tmp_path: Path):
    gpu, kernel = sol.device("T4"), type("Kernel", (), {"name": "k", "file": "k.py", "first_line": 1})
    one = sanitized.Sanitized(gpu, tmp_path)
    for count in (1, 2):
        one.add(kernel, [Finding("out_of_bounds", "error", "", "", file="k.py", line=2, count=count)])
    (whole,) = tmp_path.iterdir()
    data = whole.read_bytes()
    for cut in range(len(data)):
        whole.write_bytes(data[:cut])
        assert sanitized.collected(tmp_path, gpu).launches == (cut >= len(data) // 2)
    whole.write_bytes(data)
    (tmp_path / "7").write_bytes(data)
    found = sanitized.collected(tmp_path, gpu)
    assert (found.kernels, found.launches, found.processes, [f.count for f in found]) == (1, 4, 2, [6])
    assert "in 2 processes" in found.title


def test_a_process_that_outlives_the_command_is_not_disturbed(tmp_path: Path):
    kernel = type("Kernel", (), {"name": "k", "file": "k.py", "first_line": 1})
    late = sanitized.Sanitized(sol.device("T4"), tmp_path / "gone")
    late.add(kernel, [])
    assert late.launches == 1


# -------------------------------------------------------------------------------------------------------- the command
HEAD = """\
import os, sys, signal, time
import numpy as np
from numba import cuda

@cuda.jit
def unguarded(x):
    x[cuda.grid(1)] = 1

@cuda.jit
def add_one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1

@cuda.jit
def racy(x):
    part = cuda.shared.array(64, np.float64)
    t = cuda.threadIdx.x
    part[t] = x[t]
    x[t] = part[(t + 32) % 64]

x = np.zeros(4096)
add_one[128, 32](x)
"""
RUN = [sys.executable, "-W", "ignore", "-m", "solcourse", "run"]


def run_program(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess:
    (folder / "program.py").write_text(HEAD + text)
    command = [*RUN, "--sanitize", *options, "program.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)


FAULT = "unguarded[129, 32](x)\n"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("print(x.sum())", 0),
        (f"{FAULT}print(x.sum())", 1),
        (f"{FAULT}sys.exit(3)", 3),
        (f"{FAULT}sys.exit()", 1),
        (f"{FAULT}os._exit(0)", 1),
        (f"{FAULT}raise ValueError('of the program')", 1),
        pytest.param(f"{FAULT}os.kill(os.getpid(), signal.SIGKILL)", -9, marks=pytest.mark.skipif(os.name == "nt", reason="POSIX")),
    ],
)
def test_the_exit_status_is_the_programs_but_not_0_after_an_error(tmp_path: Path, text: str, status: int):
    done = run_program(tmp_path, text, "--device", "T4")
    found = FAULT in text
    assert done.returncode == status, done.stderr
    assert f"launch{'es' if found else ''} sanitized on Tesla T4: {'1 error: memcheck 1' if found else 'no finding'}" in done.stderr
    assert ("of the program" in text) == ("ValueError: of the program" in done.stderr)


def test_the_programs_output_is_its_own_and_the_findings_go_to_standard_error(tmp_path: Path):
    done = run_program(tmp_path, f"{FAULT}print(x.sum())\nracy[1, 64](x)\nprint('last')\nf = open('file.txt', 'w')\nf.write('kept')")
    assert done.stdout == f"{4096.0}\nlast\n"  # all that is in x was written before the launch strayed
    assert done.stderr.index("3 kernels, 3 launches sanitized on A100-SXM4-80GB: ") < done.stderr.index("read after write")
    assert "program.py" in done.stderr
    assert "x[cuda.grid(1)] = 1" in done.stderr
    assert (tmp_path / "file.txt").read_text() == "kept"  # never closed: Python's own end does it


def test_warnings_alone_leave_the_status(tmp_path: Path):
    done = run_program(tmp_path, "add_one[256, 16](x)")  # blocks of half a warp
    assert done.returncode == 0, done.stderr
    assert "0 errors" not in done.stderr
    assert ": 1 warning: launch 1" in done.stderr


CHILDREN = """
import subprocess
if len(sys.argv) == 1:
    subprocess.run([sys.executable, "program.py", "child"], check=True)
    subprocess.run([sys.executable, "program.py", "child"], check=True)
else:
    unguarded[129, 32](x)
"""


def test_the_launches_of_child_processes_count_and_they_are_silent(tmp_path: Path):
    done = run_program(tmp_path, CHILDREN)
    assert done.returncode == 1
    assert "2 kernels, 5 launches sanitized on A100-SXM4-80GB in 3 processes: 1 error: memcheck 1" in done.stderr
    assert done.stderr.count("sanitized on") == 1


def test_a_pool_of_processes_is_sanitized(tmp_path: Path):
    command = [*RUN, "--sanitize", "threads_and_processes.py"]
    done = subprocess.run(command, cwd=PROGRAMS, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout) == (0, "threads and processes ok\n"), done.stderr
    assert "processes: no finding" in done.stderr


def test_a_program_without_launches_says_so(tmp_path: Path):
    done = subprocess.run([*RUN, "--sanitize", "-c", "print(1)"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", f"solcourse: {sanitized.NOTHING}\n")


def test_findings_are_saved_where_the_command_was_given(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    done = run_program(tmp_path, f"{FAULT}os.chdir('elsewhere')", "--save", "found.json")
    assert done.returncode == 1
    assert done.stderr.endswith(f"1 error: memcheck 1. Saved as {tmp_path / 'found.json'}\n")
    assert [f["kind"] for f in json.loads((tmp_path / "found.json").read_text())["findings"]] == ["out_of_bounds"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--profile"], "--profile and --sanitize"),
        (["--save", "x.pdf"], "The findings are saved as .txt, .json, .html, not as 'x.pdf'"),
        (["--save", "nowhere/x.txt"], "there is no folder"),
        (["--device", "A1000"], "Did you mean 'A10'?"),
    ],
)
def test_wrong_options_exit_with_2_before_anything_runs(options: list[str], says: str, capsys, monkeypatch: pytest.MonkeyPatch):
    from solcourse import __main__ as cli
    from solcourse import scripts

    monkeypatch.setattr(scripts, "_wait_for", lambda *given: pytest.fail("started"))
    assert cli.main(["run", "--sanitize", *options, "x.py"]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_program_and_end_the_command_alike(tmp_path: Path, number: int):
    body = (
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('ready', flush=True)\ntry:\n    time.sleep(60)\nfinally:\n    print('cleaned up', flush=True)\n"
    )
    (tmp_path / "program.py").write_text(HEAD + body)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*RUN, "--sanitize", "program.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == -number
    assert out == ("" if number == signal.SIGTERM else "cleaned up\n")
    assert err.count("1 launch sanitized on A100-SXM4-80GB: no finding") == 1
