"""The repository agrees with itself: pyproject.toml is the source, and whatever says the same again is compared with it."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from solcourse import __main__ as cli
from solcourse import course, exercises, hardware, learner, stubs
from solcourse.simt import engine

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())


def tracked() -> list[Path]:
    """Every file git knows; every file, in a copy without git."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in ROOT.rglob("*") if path.is_file() and not any(part.startswith(".venv") for part in path.parts)]


def specs(requirements: list[str]) -> dict[str, str]:
    return {r.name: str(r.specifier) for r in map(Requirement, requirements)}


def test_conda_and_pip_install_the_same_packages():
    conda = specs([line for line in ENVIRONMENT["dependencies"] if isinstance(line, str)])
    assert conda.pop("python") == PYPROJECT["project"]["requires-python"]
    conda.pop("pip")
    pip = specs(PYPROJECT["project"]["dependencies"])
    # numba-cuda exists on some systems only: pip knows on which, and installs it with solcourse
    assert pip.pop("numba-cuda")
    assert conda == pip
    assert [line["pip"] for line in ENVIRONMENT["dependencies"] if isinstance(line, dict)] == [["-e ."]]


@pytest.mark.parametrize(
    ("system", "machine", "wanted"),
    [("linux", "x86_64", True), ("linux", "aarch64", True), ("win32", "AMD64", True), ("darwin", "arm64", False)],
)
def test_numba_cuda_is_asked_for_only_where_it_has_a_wheel(system: str, machine: str, wanted: bool):
    for group in (PYPROJECT["project"]["dependencies"], PYPROJECT["project"]["optional-dependencies"]["test"]):
        marker = next(r.marker for r in map(Requirement, group) if r.name == "numba-cuda")
        assert marker is not None
        assert marker.evaluate({"sys_platform": system, "platform_machine": machine}) is wanted


def test_requirements_are_floors():
    groups = [PYPROJECT["project"]["dependencies"], *PYPROJECT["project"]["optional-dependencies"].values()]
    operators = {spec.operator for group in groups for r in map(Requirement, group) for spec in r.specifier}
    assert operators == {">="}


def test_ci_tests_the_built_in_front_end_with_the_same_floors():
    text = (ROOT / ".ci" / "run").read_text()
    named = specs(re.findall(r'"([a-z-]+>=[\d.]+)"', text))
    wanted = specs(PYPROJECT["project"]["dependencies"]) | specs(PYPROJECT["project"]["optional-dependencies"]["test"])
    assert {"numba", "pytest"} <= set(named)
    assert "numba-cuda" not in named
    assert named == {name: wanted[name] for name in named}


def test_package_version_is_said_once_more_and_the_same():
    import solcourse

    assert solcourse.__version__ == PYPROJECT["project"]["version"]


README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
SHELL = [line for language, block in BLOCKS if not language for line in block.splitlines()]
INLINE = [code for code in re.findall(r"`([^`\n]+)`", README) if code.startswith(("make ", "solcourse "))]
# What sets up, which would download here; tests/engine/test_readme.py runs the Python and `solcourse check`.
SET_UPS = {
    "python3 -m venv .venv": lambda: sys.version_info >= (3, 11),
    ".venv/bin/pip install -e .": lambda: PYPROJECT["build-system"],
    "conda env create -f environment.yml": lambda: ENVIRONMENT["dependencies"],
    "conda activate solcourse": lambda: ENVIRONMENT["name"] == "solcourse",
    ".venv/bin/solcourse lab": lambda: PYPROJECT["project"]["scripts"]["solcourse"] == "solcourse.__main__:main",
    ". .venv/bin/activate": lambda: "VENV ?= .venv\n" in (ROOT / "Makefile").read_text(),
}


@pytest.mark.parametrize("command", [part for line in SHELL + INLINE for part in line.split("#")[0].strip().split(" && ")])
def test_every_command_in_the_readme_works(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    program, *arguments = shlex.split(command)
    if command in SET_UPS:
        assert SET_UPS[command]()
    elif program == "make":
        done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        if "ARGS=--no-browser --port 8890" in arguments:
            assert "-m solcourse lab --no-browser --port 8890\n" in done.stdout
    else:
        assert program == "solcourse", f"{command!r} is not known to work: it needs a test"
        options = cli.parse(arguments)
        assert bool(options.rest) == (options.command == "run")
        if options.command in ("devices", "doctor") or "--hint" in arguments:
            status, said = cli.main(arguments), capsys.readouterr().out
            assert said.strip()
            assert status == 0 or "to solve, marked" in said  # the doctor, where something is wrong with this machine


def test_the_readme_has_commands_to_check():
    assert len(SHELL) >= 8
    assert {"make test", "make stubs"} <= set(INLINE)


def test_the_readmes_links_lead_somewhere_and_its_picture_is_small():
    files = [ROOT / link for link in re.findall(r"\]\(([^)#:\s]+)\)", README)]
    assert ROOT / "docs" / "coalescing.png" in files
    for path in files:
        assert path.is_file(), path
        assert path.suffix != ".png" or path.stat().st_size < 150_000


def test_the_readme_counts_the_devices_and_lists_every_lesson_and_exercise():
    assert f"any of {len(hardware.devices())} GPUs" in README
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        assert f"| {notebook.stem.replace('_', ' ')} |" in README
    for name in course.names(ROOT):
        assert f"{name}: " in README


def test_the_readme_states_the_two_limits_there_are():
    engine_s = inspect.signature(engine.execute).parameters["limit_s"].default
    assert f"after {learner.LIMIT_S:.0f} seconds in an exercise, after {engine_s:.0f} elsewhere" in README


def test_stubs_are_what_the_solutions_make():
    names = course.names(ROOT)
    assert names, "no exercise found: this test would compare nothing"
    for file in names.values():
        made = stubs.stub((ROOT / "solutions" / file).read_text())
        assert made == (ROOT / "exercises" / file).read_text(), f"{file}: run `make stubs`"
    assert {path.name for path in (ROOT / "exercises").glob("*.py")} == set(names.values())


def test_stubs_give_nothing_away():
    for file in course.names(ROOT).values():
        stub = (ROOT / "exercises" / file).read_text()
        assert "###" not in stub
        assert "EXERCISE" not in stub
        sections = stubs.split((ROOT / "solutions" / file).read_text())
        start = {stubs.uncommented(line).strip() for section, line in sections if section == stubs.STUB}
        answer = {line.strip() for section, line in sections if section == stubs.BEGIN} - start - {""}
        assert answer
        assert not answer & {line.strip() for line in stub.splitlines()}


def test_stubs_say_where_the_hints_are_and_not_what_they_say():
    for name, file in course.names(ROOT).items():
        stub = " ".join((ROOT / "exercises" / file).read_text().split())
        assert f"solcourse check {name} --hint 1" in stub
        for hint in exercises.sheet(name, ROOT).hints:
            words = hint.split()
            runs = [" ".join(words[n : n + 6]) for n in range(len(words) - 5)]
            assert runs
            assert not [run for run in runs if run in stub]


def test_learners_work_is_ignored_by_git():
    assert "exercises/mine/" in (ROOT / ".gitignore").read_text().splitlines()
    assert not [path for path in tracked() if path.is_relative_to(ROOT / "exercises" / "mine")]


def test_names_of_test_files_are_unique():
    # programs are started as scripts, and never imported
    counts = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if "programs" not in path.parts and path.name != "conftest.py")
    assert [name for name, n in counts.items() if n > 1] == []


def test_every_test_folder_is_run_by_make_test():
    makefile = (ROOT / "Makefile").read_text()
    # every test in one run, and last: its closing line is the last thing printed
    assert re.search(r"^test: lint .*\n(?:\t.*\n)*\t\$\(PYTEST\) tests solcourse notebooks .*\n\n", makefile, re.MULTILINE)
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("make test </dev/null")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")} - {"notebooks"}
    assert folders <= set(phony[1].split())


def test_no_registry_and_no_foreign_folder_is_named():
    foreign = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|deb\.debian|index-url|(?<![\w.])/(?:work|root|home)/")
    texts = [path for path in tracked() if path.suffix in {".py", ".toml", ".yml", ".md", ".ipynb", ""} and path.is_file()]
    assert len(texts) > 20
    # tests may name what they look for
    named = [(path.relative_to(ROOT), foreign.search(path.read_text())) for path in texts if not path.is_relative_to(ROOT / "tests")]
    found = [f"{path}: {match[0]}" for path, match in named if match]
    assert found == []


def test_import_is_light():
    heavy = ("numba", "llvmlite", "matplotlib", "ipywidgets", "IPython", "jupyterlab")
    code = f"import sys, solcourse; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_takes_the_name_of_a_public_function():
    import solcourse

    modules = {path.stem for path in (ROOT / "solcourse").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert modules & set(solcourse._HOME) == set()


@pytest.mark.parametrize(("must_run", "failed"), [("browser", True), ("nvvm browser", True), ("nvvm", False), ("", False)])
@pytest.mark.parametrize(
    "body", ["def test_x():\n    pytest.skip('no Chromium')\n", "pytest.skip('no Chromium', allow_module_level=True)\n"]
)
def test_where_a_test_must_run_a_skip_is_a_failure(tmp_path: Path, must_run: str, failed: bool, body: str):
    (tmp_path / "tests" / "browser").mkdir(parents=True)
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    browser\n    nvvm\n")
    (tmp_path / "tests" / "browser" / "test_skips.py").write_text(f"import pytest\n\n{body}")
    environment = {**os.environ, "SOLCOURSE_MUST_RUN": must_run, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ("must run" in done.stdout) is failed, done.stdout
    assert (done.returncode in (1, 2)) is failed
