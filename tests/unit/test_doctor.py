"""The doctor, on machines that are made up: every ailment is named, with its cure, and a sound machine has none."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from solcourse import doctor
from solcourse.doctor import Facts

SOUND = Facts(
    python_version=(3, 12, 1),
    python="/course/.venv/bin/python",
    notebook_python="/course/.venv/bin/python",
    versions=(
        ("numba", "0.68.1"), ("numba-cuda", "0.30.4"), ("llvmlite", "0.50.0"), ("jupyterlab", "4.6.6"),
        ("ipywidgets", "8.1.9"), ("jupyterlab-widgets", "3.0.17"), ("ipykernel", "7.4.0"),
    ),
    course="/course",
    mine="/course/exercises/mine",
)  # fmt: skip
GPU = replace(SOUND, gpus=("NVIDIA T4",), driver="550.54", driver_cuda=(12, 4), toolkit_cuda=(12, 4))


def without(name: str) -> Facts:
    return replace(SOUND, versions=tuple(pair for pair in SOUND.versions if pair[0] != name))


def test_a_laptop_without_a_gpu_is_sound():
    text, well = doctor.report(SOUND)
    assert well
    assert "no GPU is needed" in text
    assert "solcourse lab" in text


def test_a_gpu_that_works_is_said_to_measure():
    text, well = doctor.report(GPU)
    assert well
    assert "NVIDIA T4" in text
    assert "sol.measure works here, with CUDA events" in text
    assert "pip install cupti-python" in text
    with_cupti = replace(GPU, versions=(*GPU.versions, ("cupti-python", "13.0")))
    assert "sol.measure works here, with CUPTI." in doctor.report(with_cupti)[0]


@pytest.mark.parametrize(
    ("facts", "says", "todo"),
    [
        (replace(SOUND, python_version=(3, 9, 2)), "3.9.2 is too old", "3.11"),
        (replace(SOUND, numba_error="ImportError: libllvmlite.so"), "libllvmlite.so", "Install again"),
        (without("numba"), "numba does not work", "Install again"),
        (replace(SOUND, cudasim="1"), "NUMBA_ENABLE_CUDASIM is set to 1", "unset NUMBA_ENABLE_CUDASIM"),
        (replace(GPU, toolkit_cuda=(13, 0)), "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "cuda-toolkit==12.4.*"),
        (replace(GPU, cuda_error="[222] CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "numba-cuda[cu12]"),
        (replace(GPU, cuda_error="CudaSupportError: no libnvvm"), "no libnvvm", "numba-cuda[cu12]"),
        (replace(SOUND, notebook_python="/usr/bin/python3"), "/usr/bin/python3", "make lab"),
        (replace(SOUND, notebook_python=None), "no Python kernel", "ipykernel"),
        (without("ipywidgets"), "ipywidgets 8 is needed", "pip install -U ipywidgets"),
        (
            replace(without("ipywidgets"), versions=(*without("ipywidgets").versions, ("ipywidgets", "7.8.1"))),
            "7.8.1",
            "pip install -U ipywidgets",
        ),
        (without("jupyterlab"), "JupyterLab 4 is needed", "pip install -U jupyterlab"),
        (without("jupyterlab-widgets"), "panels would show as text", "jupyterlab_widgets"),
        (replace(SOUND, course=None, mine=None), "not inside the course", "notebooks/"),
        (replace(SOUND, mine_error="Permission denied"), "Permission denied", "SOLCOURSE_MINE"),
    ],
)
def test_every_ailment_is_named_with_its_cure(facts: Facts, says: str, todo: str):
    problems = [remark for remark in doctor.diagnose(facts) if remark.status == "problem"]
    assert len(problems) == 1, problems
    assert says in problems[0].what
    assert todo in problems[0].todo
    text, well = doctor.report(facts)
    assert not well
    assert "1 problem to solve" in text


def test_an_old_driver_with_newer_libraries_of_its_own_major_version_is_a_mismatch():
    assert doctor._too_new(replace(GPU, toolkit_cuda=(12, 8)))
    assert not doctor._too_new(replace(GPU, toolkit_cuda=(11, 8)))


def test_a_simulator_switched_off_is_no_problem():
    assert doctor.report(replace(SOUND, cudasim="0"))[1]


def test_without_numba_cuda_the_built_in_front_end_is_named():
    text, well = doctor.report(without("numba-cuda"))
    assert well
    assert "built-in numba.cuda" in text


def test_a_gpu_without_libraries_still_runs_the_course():
    text, well = doctor.report(replace(GPU, toolkit_cuda=None))
    assert well
    assert "numba-cuda[cu12]" in text


def test_every_rule_speaks_when_something_is_wrong():
    bad = Facts(cudasim="1", gpus=("x",), cuda_error="e")
    assert len(doctor.diagnose(bad)) == len(doctor.RULES)


def test_this_machine_is_looked_at_without_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    facts = doctor.gather()
    assert facts.python == sys.executable
    assert facts.version("numba")
    assert facts.course is None  # not inside the course


def test_nvidia_smi_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake = tmp_path / "nvidia-smi"
    fake.write_text(
        '#!/bin/sh\nif [ -n "$1" ]; then echo "NVIDIA A100-SXM4-80GB, 535.54.03"; '
        'else echo "| NVIDIA-SMI 535.54.03   Driver Version: 535.54.03   CUDA Version: 12.2 |"; fi\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._nvidia_smi() == (("NVIDIA A100-SXM4-80GB",), "535.54.03", (12, 2))


def test_a_broken_nvidia_smi_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake = tmp_path / "nvidia-smi"
    fake.write_text('#!/bin/sh\necho "NVIDIA-SMI has failed because it could not communicate with the driver, at all"; exit 9\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._nvidia_smi() == ((), None, None)


def test_a_line_that_fails_in_a_python_of_its_own_is_told_by_its_last_line():
    assert doctor._asked("raise ValueError('no such thing')") == "ValueError: no such thing"
    assert doctor._asked("pass") == ""
    assert "CUDA_ERROR_X" in doctor._asked("import sys; print('[1] CUDA_ERROR_X'); sys.exit('later words')")
