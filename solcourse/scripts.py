"""`solcourse run`: any Python program, with the engine in the place of numba.cuda's driver. The definition of what a program sees.

    command()  -> python PROGRAM itself, started with solcourse/startup on PYTHONPATH and the settings in SOLCOURSE_RUN
    run()      -> becomes it; sanitize() -> waits for it, and says what was found in its launches
    start()    -> called by startup/sitecustomize.py in that process, before the program: waits for numba.cuda to be imported
    _engaged() -> then the engine takes charge

The program is Python's own: sys.argv, __main__, sys.path, standard streams, tracebacks, signals and exit status are what
`python PROGRAM` has, and its child processes (multiprocessing, subprocess, a notebook's kernel) run on the engine as well.
Nothing heavy is imported before the program imports it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.abc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from solcourse.errors import SolcourseError

HOME = os.path.dirname(os.path.abspath(__file__))
SETTINGS = "SOLCOURSE_RUN"
SIMULATOR = "NUMBA_ENABLE_CUDASIM"
SAVED_AS = (".txt", ".json", ".html")
_LIBRARIES = tuple(sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "purelib", "platlib"))
PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
FROM_TERMINAL = (signal.SIGINT, getattr(signal, "SIGQUIT", None))
PROGRAM = ("-m", "-c", "-")  # with a file's name, what a program can begin with


# ------------------------------------------------------------------------------------------------- before: the command's side
def split(arguments: Sequence[str], with_value: Sequence[str]) -> tuple[list[str], list[str]]:
    """(the command with our options, the program with its arguments). The program begins at the first word that is no option.

    >>> split(["run", "--device", "T4", "--profile", "nbody.py", "--device", "cpu"], ["--device"])
    (['run', '--device', 'T4', '--profile'], ['nbody.py', '--device', 'cpu'])
    """
    i = 1
    while i < len(arguments) and arguments[i].startswith("-") and arguments[i] not in PROGRAM:
        i += 2 if arguments[i] in with_value else 1
    return list(arguments[:i]), list(arguments[i:])


def command(program: Sequence[str]) -> list[str]:
    """The command line: this Python, with its own options."""
    return [sys.executable, *subprocess._args_from_interpreter_flags(), *program]  # type: ignore[attr-defined]


def environment(
    before: Mapping[str, str],
    device: str,
    *,
    profile: bool = False,
    save: str | None = None,
    findings: str | None = None,
    on_all: bool = False,
) -> dict[str, str]:
    """The program's environment. save: where to, None: shown; findings: the folder that sanitized launches are written to; on_all:
    the profile ends each kernel's part with its predictions for every known device.

    Raises UnknownName (device); SolcourseError for what cannot be, before anything starts.
    """
    from solcourse.hardware import device as find_device

    if before.get(SIMULATOR, "0") not in ("", "0"):
        raise SolcourseError(
            f"{SIMULATOR}={before[SIMULATOR]} puts numba's simulator in numba.cuda's place, so the engine cannot run the program. "
            f"Unset it (`unset {SIMULATOR}`, and in ~/.bashrc), then start again: no GPU is needed either way."
        )
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise SolcourseError(
            "`run` reaches the program through PYTHONPATH, which Python's options -E, -I and -S switch off: leave them out."
        )
    settings = {
        "device": find_device(device).name,
        "profile": profile,
        "save": None if save is None else os.path.abspath(save),
        "findings": findings,
        "on_all": on_all,
        "first": True,
    }
    path = os.pathsep.join(filter(None, [os.path.join(HOME, "startup"), before.get("PYTHONPATH")]))
    return {**before, "PYTHONPATH": path, SETTINGS: json.dumps(settings)}


def check_save(what: str, save: str) -> None:
    """Raises SolcourseError where `what`, "profile is" or so, cannot be saved as `save`."""
    if Path(save).suffix not in SAVED_AS:
        raise SolcourseError(f"The {what} saved as {', '.join(SAVED_AS)}, not as {save!r}.")
    if not Path(save).absolute().parent.is_dir():
        raise SolcourseError(f"The {what} not saved as {save!r}: there is no folder {str(Path(save).absolute().parent)!r}.")


def run(program: Sequence[str], env: Mapping[str, str]) -> int:
    """Becomes the program (Windows has no such thing: waits for it, and returns its exit status)."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if os.name != "nt":
        os.execve(sys.executable, command(program), env)
    return _wait_for(program, env)


def sanitize(program: Sequence[str], before: Mapping[str, str], device: str, save: str | None) -> int:
    """Runs the program with every launch sanitized, in all of its processes, and says at its end what was found.

    Returns its exit status, but 1 where that is 0 and there was an error among the findings. A program that a signal ended ends this
    process by the same signal. It is waited for, not become: nobody can change their own exit status after the last of their code.
    """
    from solcourse.hardware import device as find_device

    with tempfile.TemporaryDirectory(prefix="solcourse-", ignore_cleanup_errors=True) as folder:
        status = _wait_for(program, environment(before, device, findings=folder))
        from solcourse.sanitized import collected

        found = collected(Path(folder), find_device(device))
    if save is None or not found.launches:
        print(f"\n{found}" if found.launches else f"solcourse: {found}", file=sys.stderr)
    else:
        try:
            print(f"solcourse: {found.title}. Saved as {found.save(os.path.abspath(save))}", file=sys.stderr)
        except OSError as error:
            print(f"solcourse: the findings could not be saved: {error}\n\n{found}", file=sys.stderr)
    if status < 0:
        sys.stderr.flush()
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status or int(found.errors > 0)


def _wait_for(program: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs the program in a process of its own, which gets the signals that this one gets. Returns its status, negative: a signal."""
    with _signals_passed_on() as started:
        started.append(subprocess.Popen(command(program), env=env))
        return started[0].wait()


@contextlib.contextmanager
def _signals_passed_on() -> Iterator[list[subprocess.Popen]]:
    """To the processes in the list, but for those that a terminal sends to all of its processes by itself."""
    started: list[subprocess.Popen] = []

    def handle(number: int, frame: Any) -> None:
        if not (number in FROM_TERMINAL and (os.name == "nt" or _in_terminals_foreground())):
            for process in started:
                process.send_signal(number)

    numbers = [getattr(signal, name) for name in PASSED_ON if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup: the program's, too
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_terminals_foreground() -> bool:
    """Whether this process is one of those that Ctrl-C goes to."""
    try:
        with open("/dev/tty") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:  # no terminal
        return False


# ---------------------------------------------------------------------------------------------------- in the program's process
def start() -> None:
    """Arranges for the engine. Only the first process speaks and profiles; the ones it starts are like it, and silent.

    Launches are sanitized in all of them.
    """
    settings = json.loads(os.environ[SETTINGS])
    os.environ[SETTINGS] = json.dumps({name: settings.get(name) for name in ("device", "findings")})
    sys.excepthook = show_exception
    if settings.get("profile"):
        atexit.register(_report, settings, os.getpid())  # registered first, so called last
    sys.meta_path.insert(0, _Watch(settings))


class _Watch(importlib.abc.MetaPathFinder):
    """Finds numba.cuda as Python would, once, and calls `engaged` when it has been imported."""

    def __init__(self, settings: dict[str, Any]):
        self.settings = settings

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "numba.cuda":
            return None
        sys.meta_path.remove(self)
        _leave_the_simulator(self.settings)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                sys.modules["numba"].cuda = module  # type: ignore[attr-defined]  # importlib's own next step, needed now
                _engaged(module, self.settings)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _leave_the_simulator(settings: Mapping[str, Any]) -> None:
    """A program that asks for numba's simulator itself, for want of a GPU, gets the engine."""
    from numba.core import config

    if config.ENABLE_CUDASIM:
        os.environ.pop(SIMULATOR, None)
        config.ENABLE_CUDASIM = 0
        _say(settings, f"the program switches numba's simulator on ({SIMULATOR}); its kernels run on the engine instead")


def _engaged(cuda: Any, settings: Mapping[str, Any]) -> None:
    from solcourse import verbs

    if settings.get("first") and cuda.is_available():
        _say(settings, "this machine has a GPU; `solcourse run` uses the CPU engine all the same. Plain `python` uses the GPU.")
    folder = settings.get("findings")
    engine = verbs.use_engine(settings["device"], profile=bool(settings.get("profile")), sanitize=bool(folder))
    if folder and engine.sanitized is not None:
        engine.sanitized.folder = Path(folder)


def _say(settings: Mapping[str, Any], message: str) -> None:
    if settings.get("first"):
        print(f"solcourse: {message}", file=sys.stderr)


def _report(settings: Mapping[str, Any], process: int) -> None:
    """At the program's end: the profile, to standard error, so that the program's output stays its own, or to a file."""
    if os.getpid() != process:  # a fork's end
        return
    sys.stdout.flush()
    standin = sys.modules.get("solcourse.standin")
    engine = standin.first_engine() if standin else None
    if engine is None or not engine.launches.kernels:
        return _say(settings, "no kernel ran to its end in this process, so there is nothing to profile")
    engine.launches.on_all = bool(settings.get("on_all"))
    if settings["save"] is None:
        print(f"\n{engine.launches}", file=sys.__stderr__)
    else:
        try:
            _say(settings, f"profile saved as {engine.launches.save(settings['save'])}")
        except OSError as error:
            _say(settings, f"the profile could not be saved: {error}")


# ------------------------------------------------------------------------------------------------------------------ tracebacks
def show_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """sys.excepthook: Python's own, without the frames of solcourse, and of numba where it called solcourse."""
    cut(error.with_traceback(trace))
    sys.__excepthook__(kind, error, error.__traceback__)


def cut(error: BaseException) -> None:
    """Ends the traceback, and those of the errors it came from, at the last frame of the program's own where solcourse raised it."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.with_traceback(_programs_part(one.__traceback__))
        if _internal(one.__cause__):
            one.__cause__ = None
            one.__suppress_context__ = True
        if _internal(one.__context__):
            one.__context__ = None
        todo += [one.__cause__, one.__context__]


def _internal(error: BaseException | None) -> bool:
    """Raised and caught within solcourse or numba."""
    return error is not None and error.__traceback__ is not None and _owner(error.__traceback__) in ("solcourse", "numba")


def _programs_part(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    owners = [_owner(frame) for frame in frames]
    last = max((i for i, owner in enumerate(owners) if owner == "program"), default=-1)
    end = next((i for i in range(last + 1, len(frames)) if owners[i] == "solcourse"), len(frames))
    while end < len(frames) and end > 0 and owners[end - 1] == "numba":
        end -= 1
    result = None
    for frame in reversed(frames[:end]):
        result = TracebackType(result, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return result


def _owner(trace: TracebackType) -> str:
    """Whose code a frame runs: "solcourse", "numba", "library" (Python's own and what is installed), "program"."""
    file = trace.tb_frame.f_code.co_filename
    package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    if package in ("solcourse", "numba"):
        return package
    return "library" if file.startswith(("<frozen ", *_LIBRARIES)) else "program"
