"""`python -m tests.peer.peer_suite`: numba-cuda's own tests through the engine; the last line is `peer suite: N passed of M`.

The list is `drivable.txt`: every test of numba-cuda's suite that launches a kernel one can run on one device, in one process, from
Python source alone. Left out: tests that read PTX or SASS, link foreign code, need several devices or processes, or test the
compiler without a launch; and those that numba itself expects to fail. What must pass is in `recorded.toml`.

    python -m tests.peer.peer_suite                    all of it; exits 1 below the recorded number
    python -m tests.peer.peer_suite sync warp_ops      these modules only; no verdict
    python -m tests.peer.peer_suite --survey           every test of these modules: which of them launch, and how they end
    PEER_LAUNCHES=none python -m tests.peer.peer_suite   nothing executes: 83 of them pass even so, and 572 do not
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass(frozen=True)
class Outcome:
    """How one test ended. kind: the exception's class, "hang", "crash", "skipped", or "missing" (numba-cuda has no such test)."""

    name: str
    passed: bool
    kind: str = ""
    said: str = ""
    launches: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}  {self.kind}: {next(iter(self.said.split(chr(10))), '')[:160]}"


def listed() -> list[str]:
    """The tests of the list: `folder/module.py::Class::test`."""
    lines = (HERE / "drivable.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def read(results: Iterable[str], wanted: Iterable[str]) -> list[Outcome]:
    """One Outcome per wanted test, in their order, from the plugin's lines. A test's first failure says what failed."""
    ended: dict[str, dict] = {}
    for line in map(json.loads, results):
        name = line["id"]
        if name not in ended or ended[name]["outcome"] != "failed":
            ended[name] = line
    missing = {"outcome": "missing", "said": "numba-cuda has no such test, or its module does not load"}
    outcomes = []
    for name in wanted:
        line = ended.get(name, missing)
        passed = line["outcome"] == "passed"
        kind = "" if passed else line.get("kind") or line["outcome"]
        outcomes.append(Outcome(name, passed, kind, line["said"], line.get("launches", 0), line.get("seconds", 0.0)))
    return outcomes


def run(tests: list[str], workers: int) -> list[str]:
    """Run them; the plugin's lines. The tests' own output is shown only where pytest could not start."""
    package = importlib.metadata.distribution("numba-cuda").locate_file("numba_cuda")
    folder = Path(str(package)) / "numba" / "cuda" / "tests"
    modules = sorted({name.split("::")[0] for name in tests})
    with tempfile.TemporaryDirectory(prefix="solcourse-peer-") as temporary:
        results, chosen = Path(temporary, "results.jsonl"), Path(temporary, "chosen.txt")
        results.touch()
        chosen.write_text("\n".join(tests), "utf-8")
        path = os.pathsep.join([str(ROOT), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": path, "PEER_RESULTS": str(results), "PEER_CHOSEN": str(chosen)}
        environment.pop("NUMBA_ENABLE_CUDASIM", None)
        command = [sys.executable, "-m", "pytest", "-p", "peer_plugin", "-c", str(HERE / "peer.ini"), "--rootdir", str(package)]
        command += ["-n", str(workers), "--dist", "worksteal", "--max-worker-restart", "100", *(str(folder / m) for m in modules)]
        done = subprocess.run(command, env=environment, cwd=temporary, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            print(done.stdout[-4000:], done.stderr[-4000:], sep="\n", file=sys.stderr)
        return results.read_text("utf-8").splitlines()


def report(outcomes: list[Outcome], known: dict[str, str]) -> str:
    """What failed, by kind, and the one line that counts."""
    failed = [outcome for outcome in outcomes if not outcome.passed]
    kinds = Counter(outcome.kind for outcome in failed)
    lines = []
    for kind, count in kinds.most_common():
        lines.append(f"{kind}: {count}")
        for outcome in sorted((o for o in failed if o.kind == kind), key=lambda o: o.name):
            reason = known.get(outcome.name)
            lines.append(f"  {outcome}" + (f"\n    known: {reason}" if reason else "\n    NEW"))
    return "\n".join([*lines, f"peer suite: {len(outcomes) - len(failed)} passed of {len(outcomes)}"])


def verdict(outcomes: list[Outcome], recorded: int, same_version: bool) -> int:
    """The exit status. Another version of numba-cuda may have renamed a few tests: those few are not held against the engine."""
    passed = sum(outcome.passed for outcome in outcomes)
    gone = 0 if same_version else sum(outcome.kind == "missing" for outcome in outcomes)
    lost = recorded - passed - min(gone, len(outcomes) // 20)
    if lost > 0:
        print(f"recorded.toml says that {recorded} pass: {lost} fewer is a regression.", file=sys.stderr)
    return int(lost > 0)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.peer.peer_suite", description="numba-cuda's own tests through the engine.")
    parser.add_argument("modules", nargs="*", help="parts of module names: sync, doc_examples, ...; none: the whole list")
    parser.add_argument("-n", "--workers", type=int, default=2)
    parser.add_argument("--survey", action="store_true", help="every test of the modules, listed or not")
    options = parser.parse_args(arguments)
    record = tomllib.loads((HERE / "recorded.toml").read_text("utf-8"))
    version = importlib.metadata.version("numba-cuda")
    if version != record["numba_cuda"]:
        print(f"The list was made for numba-cuda {record['numba_cuda']}; this is {version}.", file=sys.stderr)
    names = [name for name in listed() if not options.modules or any(part in name.split("::")[0] for part in options.modules)]
    began = time.monotonic()
    if options.survey:
        survey(run(sorted({name.split("::")[0] for name in names}), options.workers), set(names))
        return 0
    outcomes = read(run(names, options.workers), names)
    print(f"numba-cuda {version}, {time.monotonic() - began:.0f} s, {sum(o.launches for o in outcomes)} launches")
    print(report(outcomes, record["known_failures"]))
    if options.modules:
        return 0
    return verdict(outcomes, record["passed"], version == record["numba_cuda"])


def survey(results: list[str], names: set[str]) -> None:
    """Where the list and what launches differ: what to look at when numba-cuda changes."""
    found = sorted({json.loads(line)["id"] for line in results})
    for outcome in read(results, found):
        if (outcome.launches > 0) != (outcome.name in names):
            why = "launches, and is not listed" if outcome.launches else "is listed, and launches nothing"
            print(f"{outcome.name}  {why} ({outcome.kind or 'passed'})")
    print(f"{len(found)} tests, {len(names)} of them listed")


if __name__ == "__main__":
    sys.exit(main())
