"""`solcourse run`: the program is Python's own in all that can be told from outside, and numba.cuda in it works on the engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from solcourse import __main__ as cli
from solcourse import scripts

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "engine" / "programs"
RUN = [sys.executable, "-m", "solcourse", "run"]

KERNEL = """\
import sys
import numpy as np
from numba import cuda

@cuda.jit
def add_one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1

@cuda.jit
def beyond(x):
    x[cuda.grid(1)] = 1

"""

pytestmark = pytest.mark.slow  # many processes


def python(command: list[str], folder: Path, **more) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **more)


def run_program(folder: Path, text: str, *options: str, **more) -> subprocess.CompletedProcess:
    (folder / "program.py").write_text(KERNEL + text)
    return python([*RUN, *options, "program.py"], folder, **more)


# ------------------------------------------------------------------------------------------------------- as `python` has it
@pytest.mark.parametrize(
    "text",
    [
        "import sys; sys.exit(3)",
        "import sys; sys.exit('a message')",
        "import os; print('x', flush=True); os._exit(7)",
        "def f():\n    raise ValueError('boom')\nprint('before')\nf()",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
        "print('never closed'\nx = 1",
        "import atexit; atexit.register(print, 'bye'); raise KeyboardInterrupt",
        "import sys; print(sys.stdin.read().upper()); print('err', file=sys.stderr)",
        "import sys, __main__; print(__name__, __file__, sys.argv, sys.path, __spec__, sorted(vars(__main__)), 'numba' in sys.modules)",
        "import sys; sys.excepthook = lambda *error: print('own hook', error[0]); 1 / 0",
        "import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    ],
)
def test_status_output_and_traceback_are_the_programs_own(tmp_path: Path, text: str):
    (tmp_path / "program.py").write_text(f"{text}\n")
    words = ["program.py", "a", "--device", "of the program", "--help"]
    plain = python([sys.executable, *words], tmp_path, input="from stdin")
    ours = python([*RUN, "--device", "T4", *words], tmp_path, input="from stdin")
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.parametrize("words", [["-m", "json.tool", "--help"], ["-c", "import sys; print(sys.argv)", "-m", "x"], ["-"], ["absent.py"]])
def test_a_module_a_command_stdin_and_an_absent_file(tmp_path: Path, words: list[str]):
    plain = python([sys.executable, *words], tmp_path, input="print(__name__)")
    ours = python([*RUN, *words], tmp_path, input="print(__name__)")
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_pythons_own_options_are_passed_on(tmp_path: Path):
    code = "import sys; print(sys.flags.optimize, sys.warnoptions)"
    ours = python([sys.executable, "-O", "-W", "error", *RUN[1:], "-c", code], tmp_path)
    assert ours.stdout == "1 ['error']\n"


# ------------------------------------------------------------------------------------------------------------ on the engine
def test_a_launch_works_and_the_device_is_the_chosen_one(tmp_path: Path):
    done = run_program(
        tmp_path, "x = np.zeros(300)\nadd_one[256, 32](x)\nprint(x.sum(), cuda.get_current_device().name)\nsys.exit(5)", "--device", "T4"
    )
    assert (done.returncode, done.stderr) == (5, "")
    assert done.stdout == "300.0 Tesla T4 (solcourse engine)\n"


def test_a_package_with_relative_imports(tmp_path: Path):
    done = python([*RUN, "-m", "pkg_demo", "1", "2"], PROGRAMS)
    assert (done.returncode, done.stdout) == (5, "package ok ['1', '2']\n")


def test_child_processes_work_on_the_engine_too():
    done = python([*RUN, "--profile", "threads_and_processes.py"], PROGRAMS)
    assert (done.returncode, done.stdout) == (0, "threads and processes ok\n"), done.stderr
    assert done.stderr.count("launches on A100-SXM4-80GB") == 1  # children are silent


def test_a_program_that_falls_back_to_the_cpu_finds_a_gpu():
    assert python([*RUN, "fallback_cli.py"], PROGRAMS).stderr.endswith("exit 3\n")


def test_an_error_in_a_kernel_ends_at_the_programs_own_line(tmp_path: Path):
    done = run_program(tmp_path, "def main():\n    beyond[2, 64](np.zeros(100))\nmain()")
    assert done.returncode == 1
    trace = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert [line.split(", in ")[-1] for line in trace if line.startswith("  File")] == ["<module>", "main"]
    assert trace[-1].startswith("solcourse.errors.OutOfBounds: Out-of-bounds access in kernel beyond, line 13")


def test_an_error_of_numbas_own_keeps_its_frames(tmp_path: Path):
    done = run_program(tmp_path, "add_one(np.zeros(3))")
    assert "Kernel launch configuration was not specified" in done.stderr
    assert "dispatcher.py" in done.stderr


def test_small_grids_are_mentioned_once_with_what_the_device_has(tmp_path: Path):
    done = run_program(tmp_path, "x = np.zeros(9)\nfor n in range(1, 6):\n    add_one[n, 32](x)\n    cuda.jit(add_one.py_func)[n, 32](x)")
    assert done.stderr.count("NumbaPerformanceWarning") == 1
    assert "Grid size 1 will likely result in GPU under-utilization due to low occupancy. A100-SXM4-80GB has 108 SMs" in done.stderr
    quiet = run_program(tmp_path, "x = np.zeros(9)\nadd_one[40, 32](x)", "--device", "T4")  # a block for each of its 40 SMs
    assert quiet.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_in_a_launch_is_pythons_keyboard_interrupt(tmp_path: Path):
    spin = (
        "@cuda.jit\ndef spin(x):\n    while x[0] == 0:\n        x[1] += 1\n"
        "print('ready', flush=True)\n"
        "try:\n    spin[1, 1](np.zeros(2))\nfinally:\n    print('cleaned up')\n"
    )
    (tmp_path / "program.py").write_text(f"{KERNEL}import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{spin}")
    process = subprocess.Popen([*RUN, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(3)  # it compiles, and then it spins
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert out == "cleaned up\n"
    assert err.splitlines()[-1].startswith("KeyboardInterrupt")


# ------------------------------------------------------------------------------------------------------------- the profile
PROFILED = """
y = cuda.to_device(np.zeros(4096))
for k in range(7):
    add_one[128, 32](y)
add_one[256, 32](y)
beyond[16, 32](np.zeros(512))
print("the program's output")
"""


def test_the_profile_folds_launches_and_leaves_standard_output_alone(tmp_path: Path):
    done = run_program(tmp_path, PROFILED, "--profile", "--device", "T4")
    assert (done.returncode, done.stdout) == (0, "the program's output\n")
    assert "2 kernels, 9 launches on Tesla T4: predicted" in done.stderr
    assert "add_one (program.py, line 5): 8 launches, predicted" in done.stderr
    rows = [line.split() for line in done.stderr.splitlines() if line.endswith("float64[4096]")]
    assert sorted((row[2], row[-3], row[-2]) for row in rows) == [("1", "256", "32"), ("7", "128", "32")]
    assert "the others of that shape are taken to do the same" in done.stderr
    assert "add_one on Tesla T4: predicted" in done.stderr  # the usual report of the heaviest launch
    assert "beyond on Tesla T4: predicted" in done.stderr
    # 512 float64 of one launch: the only array that was the host's
    assert done.stderr.count("4.10 kB each way") == 1


def test_the_profile_is_saved_where_the_command_was_given(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    done = run_program(tmp_path, f"{PROFILED}\nimport os\nos.chdir('elsewhere')", "--save", "profile.json")
    assert done.stderr.endswith(f"profile saved as {tmp_path / 'profile.json'}\n")
    saved = json.loads((tmp_path / "profile.json").read_text())
    assert {(k["kernel"], k["launches"], k["heaviest"]["kernel"]) for k in saved["kernels"]} == {
        ("add_one", 8, "add_one"),
        ("beyond", 1, "beyond"),
    }
    assert saved["time_s"] == pytest.approx(sum(k["time_s"] for k in saved["kernels"]))


def test_a_program_that_fails_is_profiled_up_to_there(tmp_path: Path):
    done = run_program(tmp_path, "add_one[128, 32](np.zeros(64))\n1 / 0", "--profile")
    assert done.returncode == 1
    assert done.stderr.index("ZeroDivisionError") < done.stderr.index("1 kernel, 1 launch")


def test_a_program_without_launches_says_so(tmp_path: Path):
    (tmp_path / "program.py").write_text("print(1)\n")
    done = python([*RUN, "--profile", "program.py"], tmp_path)
    assert (done.stdout, done.stderr) == ("1\n", "solcourse: no kernel ran to its end in this process, so there is nothing to profile\n")


# ------------------------------------------------------------------------------------------------------------- wrong usage
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--device", "A1000", "x.py"], "Did you mean 'A10'?"),
        (["--device", "H100", "x.py"], "H100-SXM5-80GB, H100-PCIe-80GB: say which"),
        (["--device", "", "x.py"], "There is no device named ''"),
        (["--save", "x.pdf", "x.py"], "The profile is saved as .txt, .json, .html"),
        (["--save", "nowhere/x.txt", "x.py"], "there is no folder"),
    ],
)
def test_wrong_options_exit_with_2_before_anything_runs(options: list[str], says: str, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scripts, "run", lambda *given: pytest.fail("started"))
    assert cli.main(["run", *options]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(("options", "says"), [([], "SCRIPT, -m MODULE or -c CODE"), (["--nonsense", "x.py"], "--nonsense")])
def test_a_command_line_that_is_none_exits_with_2(options: list[str], says: str, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["run", *options])
    assert exit_.value.code == 2
    assert says in capsys.readouterr().err


def test_numbas_simulator_has_to_be_unset(capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    monkeypatch.setattr(scripts, "run", lambda *given: pytest.fail("started"))
    assert cli.main(["run", "x.py"]) == 2
    assert "Unset it (`unset NUMBA_ENABLE_CUDASIM`" in capsys.readouterr().err


def test_a_program_that_sets_the_simulator_itself_gets_the_engine(tmp_path: Path):
    text = (
        "import os\nos.environ['NUMBA_ENABLE_CUDASIM'] = '1'\n"
        + KERNEL
        + "x = np.zeros(64)\nadd_one[128, 32](x)\nprint(x.sum(), type(add_one))"
    )
    (tmp_path / "program.py").write_text(text)
    done = python([*RUN, "program.py"], tmp_path)
    assert done.stdout.startswith("64.0 <class 'numba.cuda.dispatcher.CUDADispatcher'>")
    assert (
        done.stderr
        == "solcourse: the program switches numba's simulator on (NUMBA_ENABLE_CUDASIM); its kernels run on the engine instead\n"
    )


@pytest.mark.parametrize(("first", "said"), [(True, 1), (False, 0)])
def test_with_a_gpu_present_it_says_once_that_the_engine_runs(monkeypatch: pytest.MonkeyPatch, capsys, first: bool, said: int):
    from solcourse import verbs

    engaged = []
    monkeypatch.setattr(verbs, "use_engine", lambda device, **options: engaged.append(device))
    scripts._engaged(types.SimpleNamespace(is_available=lambda: True), {"device": "L4", "first": first})
    assert engaged == ["L4"]
    assert capsys.readouterr().err.count("this machine has a GPU") == said


@pytest.mark.parametrize("before", ["", "add_one[256, 32](x)\n"])
def test_a_launch_in_an_atexit_function_works(tmp_path: Path, before: str):
    text = f"import atexit\nx = np.zeros(300)\n{before}\n@atexit.register\ndef end():\n    add_one[256, 32](x)\n    print(x.sum())\n"
    done = run_program(tmp_path, text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "600.0\n" if before else "300.0\n", "")
