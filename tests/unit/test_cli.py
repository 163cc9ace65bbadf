"""The command `solcourse`: what it prints, what it exits with, and that --help loads nothing heavy."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from solcourse import __main__ as cli
from solcourse import exercises

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def in_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the course's exercises, as the working folder, with the learner's folder in it."""
    for folder in ("exercises", "solutions"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("mine", "__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOLCOURSE_MINE")
    monkeypatch.delenv("SOLCOURSE_SOLUTIONS", raising=False)
    return tmp_path


class Graded:
    def __init__(self, passed: bool):
        self.passed = passed

    def __str__(self) -> str:
        return "the verdict"


def test_help_loads_nothing_heavy():
    code = "import sys, solcourse.__main__ as m; m.parser().format_help(); print(sorted({'numpy', 'numba', 'jupyterlab'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_bare_command_prints_its_help(capsys: pytest.CaptureFixture[str]):
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in ("lab", "check", "devices", "doctor"))


@pytest.mark.parametrize("arguments", [["nonsense"], ["check", "--nonsense"], ["devices", "extra"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_python_dash_m_is_the_command():
    done = subprocess.run([sys.executable, "-m", "solcourse", "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "doctor" in done.stdout


def test_devices_are_listed_with_the_default_marked(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("*")]) == 1
    assert any(line.startswith("*  A100-SXM4-80GB") and "2.04 TB/s" in line for line in lines)
    assert len(lines) == 1 + 19 + 3
    assert lines[-1].startswith("17 more")
    assert lines[-1].endswith("solcourse devices --all.")


def test_all_devices_are_listed_on_request(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["devices", "--all"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1 + 36 + 2
    assert "GeForce RTX 4060 Laptop GPU" in out
    assert "more" not in out


@pytest.mark.parametrize(("passed", "status"), [(True, 0), (False, 1)])
def test_check_exits_0_only_when_all_pass(in_course: Path, monkeypatch: pytest.MonkeyPatch, capsys, passed: bool, status: int):
    monkeypatch.setattr(exercises, "check", lambda name, device: Graded(passed))
    assert cli.main(["check"]) == status
    assert "the verdict" in capsys.readouterr().out


def test_a_hint_is_shown_instead_of_a_check(in_course: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(exercises, "check", lambda name, device: pytest.fail("checked"))
    assert cli.main(["check", "ex01", "--hint", "1"]) == 0
    assert "32 lanes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "ex5b"], "Did you mean 'ex05b'?"),
        (["check", "ex01", "--hint", "7"], "ex01 has no hint 7; it has hints 1, 2, 3."),
        (["check", "--device", "H100"], "H100-SXM5-80GB, H100-PCIe-80GB: say which"),
        (["check", "--device", "A1000"], "A100"),
    ],
)
def test_wrong_names_are_told_without_a_traceback(in_course: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str):
    assert cli.main(arguments) == 2
    assert says in capsys.readouterr().err


def test_outside_the_course_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check"]) == 2
    assert "exercises/ and solutions/" in capsys.readouterr().err


def lab_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> list:
    """The commands that would have been started, each with its folder. Whoever waits is interrupted once, as by Ctrl-C."""
    called: list = []

    class Server:
        def __init__(self, command: list[str], cwd: Path, env: dict[str, str]):
            called.append((command, cwd, env))
            self.interruptions = 1

        def wait(self) -> int:
            if self.interruptions:
                self.interruptions = 0
                raise KeyboardInterrupt
            return 0

    monkeypatch.setattr(subprocess, "Popen", Server)
    return called


def test_lab_opens_lesson_00_and_passes_options_on(in_course: Path, monkeypatch: pytest.MonkeyPatch):
    called = lab_starts_nothing(monkeypatch)
    monkeypatch.setattr(cli, "is_root", lambda: False)
    assert cli.main(["lab", "--no-browser", "--port", "8890"]) == 0
    command, cwd, _ = called[0]
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert command[-3:] == ["--no-browser", "--port", "8890"]
    assert "--LabApp.default_url=/lab/tree/notebooks/00_speed_of_light.ipynb" in command
    assert cwd == in_course


@pytest.mark.parametrize("options", [[], ["--no-browser"], ["--allow-root"]])
def test_lab_says_so_when_root_and_starts_all_the_same(in_course: Path, monkeypatch: pytest.MonkeyPatch, capsys, options: list[str]):
    called = lab_starts_nothing(monkeypatch)
    monkeypatch.setattr(cli, "is_root", lambda: True)
    assert cli.main(["lab", *options]) == 0
    assert called[0][0].count("--allow-root") == 1
    assert ("you are root" in capsys.readouterr().err) is ("--allow-root" not in options)


def test_labs_terminals_know_the_command_and_the_users_settings_stay(in_course: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/of/the/user")
    called = lab_starts_nothing(monkeypatch)
    cli.main(["lab"])
    environment = called[0][2]
    assert environment["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)
    assert environment["JUPYTER_CONFIG_PATH"].split(os.pathsep) == [str(ROOT / "solcourse" / "jupyter"), "/of/the/user"]
    assert {name for name in environment if environment[name] != os.environ.get(name)} == {"PATH", "JUPYTER_CONFIG_PATH"}


def test_jupyterlab_asks_for_no_news(tmp_path: Path):
    """JupyterLab's own reading of the settings that `solcourse lab` adds; without them it would ask ("none": not yet answered)."""
    pytest.importorskip("jupyterlab_server")
    code = """if True:
        import os
        from jupyterlab.commands import get_app_dir
        from jupyterlab_server.settings_utils import get_settings
        app = get_app_dir()
        plugin = "@jupyterlab/apputils-extension:notification"
        found, _ = get_settings(os.path.join(app, "settings"), os.path.join(app, "schemas"), "nowhere", plugin)
        schema = found["schema"]["properties"]
        print(schema["fetchNews"]["default"], schema["checkForUpdates"]["default"])
    """
    own = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    plain = {**os.environ, **own}
    said = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout.strip()
        for environment in (plain, cli.lab_environment(plain))
    ]
    assert said == ["none True", "false False"]


def test_lab_copies_each_stub_once(in_course: Path, monkeypatch: pytest.MonkeyPatch):
    lab_starts_nothing(monkeypatch)
    cli.main(["lab"])
    mine = in_course / "exercises" / "mine" / "ex01_coalescing.py"
    assert mine.read_bytes() == (in_course / "exercises" / "ex01_coalescing.py").read_bytes()
    mine.write_text("# my own work\n")
    cli.main(["lab"])
    assert mine.read_text() == "# my own work\n"


def test_doctor_exits_1_when_something_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)  # outside the course
    assert cli.main(["doctor"]) == 1
    assert "not inside the course" in capsys.readouterr().out


def test_the_labs_kernel_connection_sends_every_message_at_once(monkeypatch):
    """With Nagle's algorithm on, a slider's answer waits up to 40 ms for the browser to acknowledge the message before."""
    from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

    done: list[object] = []
    monkeypatch.setattr(ZMQChannelsWebsocketConnection, "connect", lambda self: done.append("connected"))
    module, name = cli.lab_command([], ".")[-1].removeprefix("--ServerApp.kernel_websocket_connection_class=").rsplit(".", 1)
    connection = getattr(importlib.import_module(module), name)
    made = connection.__new__(connection)
    made._trait_values["websocket_handler"] = SimpleNamespace(set_nodelay=done.append)
    made.connect()
    assert done == [True, "connected"]
