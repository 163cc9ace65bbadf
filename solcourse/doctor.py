"""What works on this machine and what to do about the rest: facts gathered, then judged. Judging is pure, so it is tested on any machine.

Each finding is one sentence on what is, and one on what to do. Nothing here needs a GPU; nothing is downloaded or changed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from solcourse import course
from solcourse.errors import CourseNotFound

MARKS = {"ok": "ok", "note": "--", "problem": "!!"}


@dataclass(frozen=True)
class Facts:
    """What a look around this machine found. None: not there, or not to be found out.

    versions        distribution name -> installed version
    python          this interpreter; notebook_python: the one notebooks run in, as Jupyter's kernel "python3" says
    driver_cuda     newest CUDA version the GPU's driver understands; toolkit_cuda: the one of the installed CUDA compiler
    cuda_error      what numba said when asked for the GPU, "" if it found one
    """

    python_version: tuple[int, ...] = (3, 11)
    python: str = ""
    notebook_python: str | None = None
    versions: tuple[tuple[str, str], ...] = ()
    numba_error: str = ""
    cudasim: str | None = None
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    toolkit_cuda: tuple[int, int] | None = None
    cuda_error: str = ""
    course: str | None = None
    mine: str | None = None
    mine_error: str = ""

    def version(self, name: str) -> str | None:
        return dict(self.versions).get(name)


@dataclass(frozen=True)
class Remark:
    """One thing a doctor has to say: status "ok", "note" (works, could be more) or "problem"; what is; what to do about it."""

    status: str
    what: str
    todo: str = ""

    def __str__(self) -> str:
        return f"{MARKS[self.status]} {self.what}" + (f"\n   -> {self.todo}" if self.todo else "")


def diagnose(facts: Facts) -> tuple[Remark, ...]:
    """Every remark on a machine, in the order a learner needs them."""
    return tuple(remark for rule in RULES if (remark := rule(facts)) is not None)


def _python(facts: Facts) -> Remark:
    version = ".".join(map(str, facts.python_version))
    if facts.python_version < (3, 11):
        return Remark("problem", f"Python {version} is too old.", "Install Python 3.11 or newer, remove .venv, and `make lab` again.")
    return Remark("ok", f"Python {version} ({facts.python})")


def _numba(facts: Facts) -> Remark:
    numba, llvmlite = facts.version("numba"), facts.version("llvmlite")
    if facts.numba_error or not numba:
        said = f": {facts.numba_error}" if facts.numba_error else ""
        return Remark(
            "problem", f"numba does not work here{said}.", "Install again: `make clean lab`, or `pip install --force-reinstall numba`."
        )
    return Remark("ok", f"numba {numba}, llvmlite {llvmlite}")


def _simulator(facts: Facts) -> Remark | None:
    if facts.cudasim in (None, "", "0"):
        return None
    return Remark(
        "problem",
        f"NUMBA_ENABLE_CUDASIM is set to {facts.cudasim}: numba.cuda is replaced by numba's slow simulator, and nothing is counted.",
        "Unset it (`unset NUMBA_ENABLE_CUDASIM`, and in ~/.bashrc or .numba_config.yaml), then start again.",
    )


def _front_end(facts: Facts) -> Remark:
    cuda = facts.version("numba-cuda")
    if cuda:
        return Remark("ok", f"Front end: numba-cuda {cuda}. Kernels run on the CPU engine; no GPU is needed.")
    what = "Front end: numba's built-in numba.cuda. Kernels run on the CPU engine; no GPU is needed."
    return Remark("ok", what, "On Linux or Windows `pip install numba-cuda` brings the maintained one; macOS has none, and needs none.")


def _gpu(facts: Facts) -> Remark:
    if not facts.gpus:
        return Remark(
            "note",
            "No NVIDIA GPU found: times are predicted, and say so.",
            "Nothing to do. On a machine with a GPU `sol.measure` measures.",
        )
    found = f"GPU: {', '.join(facts.gpus)}; driver {facts.driver}, CUDA {_dots(facts.driver_cuda)}."
    if _too_new(facts) or "UNSUPPORTED_PTX" in facts.cuda_error:
        return Remark("problem", f"{found} {_mismatch(facts)}", _mismatch_cure(facts))
    if facts.cuda_error:
        return Remark(
            "problem", f"{found} numba cannot use it: {facts.cuda_error}.", _libraries(facts) + " Until then times are predicted."
        )
    if facts.toolkit_cuda is None:
        return Remark("note", f"{found} The CUDA libraries that measuring needs are missing.", _libraries(facts))
    if facts.version("cupti-python") is None:
        how = "pip install cupti-python, for the GPU's own time stamps of each kernel: short ones are measured more exactly."
        return Remark("ok", f"{found} sol.measure works here, with CUDA events.", how)
    return Remark("ok", f"{found} sol.measure works here, with CUPTI.")


def _too_new(facts: Facts) -> bool:
    """A compiler newer than the driver makes PTX that the driver cannot read."""
    return facts.driver_cuda is not None and facts.toolkit_cuda is not None and facts.toolkit_cuda > facts.driver_cuda


def _mismatch(facts: Facts) -> str:
    return (
        f"The CUDA compiler here is {_dots(facts.toolkit_cuda)}, newer than the driver understands: kernels may fail with "
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION."
    )


def _mismatch_cure(facts: Facts) -> str:
    if facts.driver_cuda is None:
        return "Update the driver, or install CUDA libraries no newer than it. Until then times are predicted."
    major, minor = facts.driver_cuda
    fit = f'`pip install "numba-cuda[cu{major}]" "cuda-toolkit=={major}.{minor}.*"`' if major >= 12 else "a newer driver is the only way"
    return (
        f"Install CUDA libraries no newer than the driver: {fit}; or update the driver. Until then the engine runs everything, predicted."
    )


def _libraries(facts: Facts) -> str:
    extra = "cu12" if facts.driver_cuda is not None and facts.driver_cuda < (13, 0) else "cu13"
    return f'`pip install "numba-cuda[{extra}]"` brings the libraries for this driver.'


def _kernel(facts: Facts) -> Remark:
    if facts.notebook_python is None:
        return Remark("problem", "Jupyter has no Python kernel here.", "`pip install ipykernel`, or `make lab`, which installs it.")
    if os.path.realpath(os.path.dirname(facts.notebook_python)) != os.path.realpath(os.path.dirname(facts.python)):
        return Remark(
            "problem",
            f"Notebooks run in another Python ({facts.notebook_python}) than this one ({facts.python}): they may not find solcourse.",
            "Start JupyterLab with `make lab` or `solcourse lab`; an old kernel is removed with `jupyter kernelspec uninstall python3`.",
        )
    return Remark("ok", "Notebooks run in this Python.")


def _widgets(facts: Facts) -> Remark:
    lab, widgets = facts.version("jupyterlab"), facts.version("ipywidgets")
    if not lab or int(lab.split(".")[0]) < 4:
        return Remark("problem", f"JupyterLab 4 is needed, and {lab or 'none'} is installed.", "`pip install -U jupyterlab`.")
    if not widgets or int(widgets.split(".")[0]) < 8:
        return Remark(
            "problem", f"ipywidgets 8 is needed for the live panels, and {widgets or 'none'} is installed.", "`pip install -U ipywidgets`."
        )
    if not facts.version("jupyterlab-widgets"):
        return Remark(
            "problem", "JupyterLab's half of ipywidgets is missing: panels would show as text.", "`pip install -U jupyterlab_widgets`."
        )
    return Remark("ok", f"JupyterLab {lab}, ipywidgets {widgets}: panels are live.")


def _course(facts: Facts) -> Remark:
    if facts.course is None:
        return Remark(
            "problem", "This is not inside the course's folder.", "Go to the folder that holds notebooks/ and exercises/, and ask again."
        )
    if facts.mine_error:
        cure = "Make the folder writable, or set SOLCOURSE_MINE to one that is."
        return Remark("problem", f"Your work cannot be kept in {facts.mine}: {facts.mine_error}.", cure)
    return Remark("ok", f"Course: {facts.course}; your work: {facts.mine}")


RULES: tuple[Callable[[Facts], Remark | None], ...] = (_python, _numba, _simulator, _front_end, _gpu, _kernel, _widgets, _course)


def _dots(version: tuple[int, int] | None) -> str:
    return "unknown" if version is None else f"{version[0]}.{version[1]}"


# ---- gathering: every look may fail, and then the fact is simply not known


def gather() -> Facts:
    """A look around this machine. Takes a second or two; changes nothing."""
    names = ("numba", "numba-cuda", "llvmlite", "numpy", "jupyterlab", "ipywidgets", "jupyterlab-widgets", "ipykernel", "cupti-python")
    versions = tuple((name, version) for name in names if (version := _version(name)))
    gpus, driver, driver_cuda = _nvidia_smi()
    folder, mine, mine_error = _folders()
    return Facts(
        python_version=sys.version_info[:3],
        python=sys.executable,
        notebook_python=_notebook_python(),
        versions=versions,
        numba_error=_asked("import numba, llvmlite.binding"),
        cudasim=os.environ.get("NUMBA_ENABLE_CUDASIM"),
        gpus=gpus,
        driver=driver,
        driver_cuda=driver_cuda,
        toolkit_cuda=_toolkit_cuda(),
        cuda_error=_asked("from numba import cuda; cuda.current_context(); cuda.jit('void()')(lambda: None)[1, 1]()") if gpus else "",
        course=folder,
        mine=mine,
        mine_error=mine_error,
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _output(*command: str, timeout_s: float = 60) -> tuple[int, str]:
    """(exit status, what a command printed); (-1, why) where it could not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return done.returncode, done.stdout + done.stderr


def _asked(code: str) -> str:
    """Runs a line in a Python of its own: a crash there is an answer. Returns '' or the last line of the error."""
    status, text = _output(sys.executable, "-W", "ignore", "-c", code)
    lines = [line for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "CUDA_ERROR" in line]
    return "" if status == 0 else (named or lines or [f"exit status {status}"])[-1].strip()


def _nvidia_smi() -> tuple[tuple[str, ...], str | None, tuple[int, int] | None]:
    """(GPU names, driver version, newest CUDA version of the driver), as nvidia-smi says."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return (), None, None
    status, text = _output(tool, "--query-gpu=name,driver_version", "--format=csv,noheader", timeout_s=20)
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.count(",") == 1]
    if status != 0 or not rows:
        return (), None, None
    match = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.(\d+)", _output(tool, timeout_s=20)[1])
    return tuple(row[0] for row in rows), rows[0][1], (int(match[1]), int(match[2])) if match else None


def _toolkit_cuda() -> tuple[int, int] | None:
    """The version of the installed CUDA compiler (NVVM), from the packages numba-cuda uses."""
    for name in ("nvidia-nvvm", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc", "cuda-toolkit"):
        version = _version(name)
        if version:
            major, minor = version.split(".")[:2]
            return int(major), int(minor)
    return None


def _notebook_python() -> str | None:
    """The interpreter of Jupyter's kernel "python3"."""
    if importlib.util.find_spec("jupyter_client") is None or importlib.util.find_spec("ipykernel") is None:
        return None
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        program = str(KernelSpecManager().get_kernel_spec("python3").argv[0])
    except (NoSuchKernel, json.JSONDecodeError, OSError):
        return None
    # Jupyter starts a bare "python" as the interpreter it runs in itself
    return sys.executable if program in ("python", "python3") else program


def _folders() -> tuple[str | None, str | None, str]:
    try:
        folder = course.find()
    except CourseNotFound:
        return None, None, ""
    mine = course.mine(folder)
    try:
        mine.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=mine):
            pass
    except OSError as error:
        return str(folder), str(mine), error.strerror or str(error)
    return str(folder), str(mine), ""


def summary(remarks: tuple[Remark, ...]) -> str:
    """The last line: can one go on?"""
    problems = sum(remark.status == "problem" for remark in remarks)
    if not problems:
        return "All is well: `solcourse lab` opens the course."
    return f"{problems} problem{'s' * (problems > 1)} to solve, marked {MARKS['problem']} above."


def report(facts: Facts | None = None) -> tuple[str, bool]:
    """(the doctor's words, whether all is well) for this machine, or for facts handed in."""
    remarks = diagnose(facts if facts is not None else gather())
    return "\n".join([*map(str, remarks), "", summary(remarks)]), all(remark.status != "problem" for remark in remarks)
