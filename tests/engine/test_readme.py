"""What the README shows works: its Python, run as a script, and its commands on an exercise."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from solcourse import __main__ as cli
from solcourse import stubs

ROOT = Path(__file__).resolve().parents[2]
PYTHON = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run(script: Path) -> str:
    """What a script prints, in a process of its own: a kernel needs its file."""
    done = subprocess.run([sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_python_prints_two_predictions_and_where_the_array_is_left(tmp_path: Path):
    example = PYTHON[0]
    script = tmp_path / "example.py"
    script.write_text(example)
    said = run(script)
    assert "scale on A100-SXM4-80GB: predicted" in said
    assert "scale on Tesla T4: predicted" in said
    # 8 floats apart: each of a warp's 32 lanes pulls a sector of its own
    assert re.search(r"global_load\.sectors_per_request +32 ", said)
    # the first i with 9 i >= 2^23 is 932,068 = block 3640 x 256 + thread 228
    line = next(n for n, text in enumerate(example.splitlines(), 1) if "x[i * stride]" in text)
    told = " ".join(said.split())
    assert f"line {line}: thread (228, 0, 0) of block (3640, 0, 0) reads x[8388612]" in told


def test_its_report_answers_for_all_gpus_and_for_what_would_help(tmp_path: Path):
    script = tmp_path / "more.py"
    script.write_text("\n\n".join(PYTHON[:2]))
    said = run(script)
    for name in ("GeForce RTX 4090", "Jetson AGX Orin 64GB", "B200-SXM-180GB"):
        assert name in said
    assert "DRAM bandwidth" in said
    assert re.search(r"ld\.global\.(b32|f32)", said)  # PTX, by whichever compiler is there


def test_its_kernel_without_a_barrier_is_found_out(tmp_path: Path):
    """Warp 0 writes tile[0..31]; it reads tile[224..255], which warp 7 writes: no barrier between lines 3 and 4 of the kernel's body."""
    script = tmp_path / "reverse.py"
    script.write_text("\n\n".join(PYTHON))
    said = " ".join(run(script).split("reverse[1, 256]")[-1].split())
    assert "tile[" in said
    assert "cuda.syncthreads()" in said
    assert said.count("error (racecheck") == 1


def test_an_ordinary_launch_works_after_use_engine(tmp_path: Path):
    kernel, rest = PYTHON[0].split("print(", 1)
    assert "sol.sanitize" in rest
    script = tmp_path / "ordinary.py"
    script.write_text(kernel + "sol.use_engine()\nscale[4096, 256](x, y, 8)\nprint(y.min(), y.max())\n")
    assert run(script).split() == ["2.0", "2.0"]


@pytest.mark.parametrize(("solved", "status", "says"), [(False, 1, "0 of 1 passed"), (True, 0, "1 of 1 passed")])
def test_check_ex01_exits_0_only_when_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, solved: bool, status: int, says: str):
    for folder in ("exercises", "solutions"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("mine", "__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOLCOURSE_MINE", raising=False)
    monkeypatch.delenv("SOLCOURSE_SOLUTIONS", raising=False)
    if solved:
        mine = tmp_path / "exercises" / "mine" / "ex01_coalescing.py"
        mine.parent.mkdir()
        mine.write_text(stubs.solved((tmp_path / "solutions" / mine.name).read_text()))
    assert cli.main(["check", "ex01"]) == status
    assert says in capsys.readouterr().out


def test_the_cache_simulator_is_warmed_by_a_profile_that_works():
    from solcourse.warm import warm

    assert 1e-6 < warm() < 1e-4
