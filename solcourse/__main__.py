"""The command `solcourse`, also `python -m solcourse`: lab, check, run, devices, doctor. With scripts.py, all that prints.

Nothing heavy is imported before it is known to be needed: `--help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

LESSON = "notebooks/00_speed_of_light.ipynb"
RUN_OPTIONS_WITH_VALUE = ("--device", "--save")
ALL = "all"  # in the place of a device's name


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="solcourse", description="GPU kernel optimisation by score, on any laptop.")
    top.set_defaults(run=_help)
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    lab = commands.add_parser("lab", help="open the course in JupyterLab; other options go to `jupyter lab`", add_help=False)
    lab.set_defaults(run=_lab)

    check = commands.add_parser("check", help="check your solutions; exits 0 only if all pass")
    check.add_argument("exercises", nargs="*", metavar="EXERCISE", help="ex01, ex02 ...; all of them when none is named")
    check.add_argument("--hint", type=int, metavar="N", help="show hint N (1, 2, 3) instead of checking")
    check.add_argument("--device", metavar="NAME", help="the GPU to predict for: a name of `solcourse devices`, or a part of one")
    check.set_defaults(run=_check)

    run = commands.add_parser(
        "run",
        help="run any numba.cuda program without a GPU",
        usage="solcourse run [--device NAME] [--profile | --sanitize] [--save FILE] (SCRIPT | -m MODULE | -c CODE) [ARGUMENTS ...]",
        description="Runs a Python program as `python` does, with the engine in the place of a GPU. Output and exit status are its own; "
        "but with --sanitize, where it ends well and there was an error in a launch, the exit status is 1.",
    )
    run.add_argument(
        "--device",
        metavar="NAME",
        help="the GPU it sees and that times are predicted for: a name of `solcourse devices`; `all`, with --profile: the program sees "
        "the default one, and its heaviest launches are predicted for every GPU",
    )
    run.add_argument("--profile", action="store_true", help="at the end, one report per kernel on standard error")
    run.add_argument(
        "--sanitize",
        action="store_true",
        help="check every launch, in child processes too: memory, races, uninitialised reads, barriers; at the end, what was found, on "
        "standard error. A launch that goes wrong raises no error then: the program goes on",
    )
    run.add_argument("--save", metavar="FILE", help="save the profile, or the findings, as .html, .txt or .json instead of showing it")
    run.set_defaults(run=_run)

    devices = commands.add_parser("devices", help="the GPUs that times are predicted for")
    devices.add_argument("--all", action="store_true", help="also those that the course does not offer, but knows the figures of")
    devices.set_defaults(run=_devices)

    doctor = commands.add_parser("doctor", help="what works on this machine, and what to do about the rest")
    doctor.set_defaults(run=_doctor)
    return top


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; `rest`: what goes on to JupyterLab, or the program that `run` runs. Exits with 2 on wrong usage."""
    words, program = list(argv), list[str]()
    if words[:1] == ["run"]:
        from solcourse import scripts

        words, program = scripts.split(words, RUN_OPTIONS_WITH_VALUE)
    options, rest = parser().parse_known_args(words)
    if rest and options.command != "lab":
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command == "run" and not program:
        parser().error("run needs a program: SCRIPT, -m MODULE or -c CODE")
    options.rest = rest + program
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status: 0 well, 1 not (yet), 2 wrong usage; `run` has the program's."""
    options = parse(sys.argv[1:] if argv is None else argv)
    from solcourse.errors import SolcourseError

    try:
        return options.run(options)
    except SolcourseError as error:
        print(f"solcourse: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, `head` say, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


PROMPT = "--ServerApp.kernel_websocket_connection_class=solcourse.lab_socket.PromptConnection"


def lab_command(options: Sequence[str], folder: str) -> list[str]:
    """The command line that opens the course in a folder; a path among the options replaces lesson 00."""
    root = [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{LESSON}", PROMPT]
    return [sys.executable, "-m", "jupyterlab", *root, *options]


def lab_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment JupyterLab runs in: no news pop-up over the first lesson, and `solcourse` known in its terminals.

    The pop-up is off in a configuration folder that is searched besides the user's own, which stay as they are.
    """
    programs, settings = os.path.dirname(sys.executable), os.path.join(os.path.dirname(__file__), "jupyter")
    added = {"PATH": programs, "JUPYTER_CONFIG_PATH": settings}
    return {**environment, **{name: os.pathsep.join(filter(None, [own, environment.get(name)])) for name, own in added.items()}}


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _help(options: argparse.Namespace) -> int:
    parser().print_help()
    return 0


def _lab(options: argparse.Namespace) -> int:
    from solcourse import course

    folder = course.find()
    for name in course.names(folder):
        try:
            course.learner_file(folder, name)
        except OSError as error:
            print(f"solcourse: no copy of {name} could be made ({error}); `solcourse doctor` says what to do", file=sys.stderr)
            break
    if is_root() and "--allow-root" not in options.rest:
        print("solcourse: you are root, so JupyterLab is started with --allow-root", file=sys.stderr)
        options.rest.append("--allow-root")
    server = subprocess.Popen(lab_command(options.rest, str(folder)), cwd=folder, env=lab_environment(os.environ))
    while True:
        try:
            return server.wait()
        except KeyboardInterrupt:  # JupyterLab got it too: it asks, saves and shuts down in its own time
            continue


def _device(options: argparse.Namespace) -> str:
    from solcourse.hardware import DEFAULT_DEVICE

    return DEFAULT_DEVICE if options.device is None else options.device


def _check(options: argparse.Namespace) -> int:
    from solcourse import course, exercises

    names, folder = options.exercises or exercises.names(), course.find()
    for name in names:  # a wrong one is said before the first is checked
        course.file_name(folder, name)
    if options.hint is not None:
        for name in names:
            print(exercises.hint(name, options.hint))
        return 0
    verdicts = []
    for name in names:
        verdicts.append(exercises.check(name, device=_device(options)))
        print(verdicts[-1], end="\n\n", flush=True)
    passed = sum(verdict.passed for verdict in verdicts)
    print(f"{passed} of {len(verdicts)} passed")
    return 0 if passed == len(verdicts) else 1


def _run(options: argparse.Namespace) -> int:
    from solcourse import scripts
    from solcourse.errors import SolcourseError

    if options.profile and options.sanitize:
        raise SolcourseError("--profile and --sanitize execute a launch each in its own way: run the program once with each.")
    if options.save is not None:
        scripts.check_save("findings are" if options.sanitize else "profile is", options.save)
    profile, on_all = options.profile or options.save is not None, str(options.device).lower() == ALL
    if on_all:
        if options.sanitize or not profile:
            raise SolcourseError("--device all predicts times for every GPU: it goes with --profile, and only with that.")
        options.device = None
    if options.sanitize:
        return scripts.sanitize(options.rest, os.environ, _device(options), options.save)
    env = scripts.environment(os.environ, _device(options), profile=profile, save=options.save, on_all=on_all)
    return scripts.run(options.rest, env)


def _devices(options: argparse.Namespace) -> int:
    from solcourse import units
    from solcourse.hardware import DEFAULT_DEVICE, devices

    rows = [("", "name", "chip", "cc", "SMs", "fp32", "DRAM", "memory", "L2")]
    listed = devices(all=options.all)
    for d in listed:
        rows.append(
            (
                "*" if d.name == DEFAULT_DEVICE else "",
                d.name,
                d.chip,
                d.cc,
                str(d.sms),
                units.flops_per_s(d.fp32_flops_per_s),
                units.bytes_per_s(d.dram_bytes_per_s),
                units.size(d.dram_gb * 1e9),
                units.binary_size(d.l2_bytes),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print("\nData-sheet peaks. * is the default. Sources and doubts: solcourse/devices.toml.")
    if further := len(devices(all=True)) - len(listed):
        print(f"{further} more, older and laptop GPUs among them, are known by name: solcourse devices --all.")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from solcourse import doctor

    text, well = doctor.report()
    print(text)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
