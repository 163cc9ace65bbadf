"""Random kernels for as long as you like: `python -m tests.fuzz --seconds 600`, from the root of the repository.

Kernels run in a process of their own, so that a crash is a finding too. What fails is shrunk and printed as a script.
Exit status 1 when anything failed.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
import warnings
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from kernel_check import BUILDS, Failure, check  # noqa: E402
from kernel_generator import generate  # noqa: E402
from kernel_launches import launches  # noqa: E402
from kernel_oracle import TooSlow  # noqa: E402
from kernel_shrinker import reproducer, shrink, size  # noqa: E402
from kernel_source import source  # noqa: E402
from kernel_tree import Kernel, Launch  # noqa: E402
from kernel_values import LARGE_FROM  # noqa: E402

HANG_S = 180.0  # for one kernel
BATCH = 100  # kernels of a process: compiled code is kept, and fills memory
PROCESS = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")


def worker(first: int, end: float, small: bool, pipe) -> None:
    """Kernels one after the other; before each its seed is sent, after it what failed (None: nothing, "slow": not run)."""
    warnings.simplefilter("ignore")
    for seed in range(first, first + BATCH):
        if time.time() > end:
            break
        if small and seed >= LARGE_FROM and seed % 4 > 1:
            continue
        pipe.send(("begin", seed))
        try:
            pipe.send(("end", check(generate(seed))))
        except TooSlow:
            pipe.send(("end", "slow"))
    pipe.send(("done", None))


def one(kernel: Kernel, where: list[Launch] | None, builds: tuple[str, ...], pipe) -> None:
    warnings.simplefilter("ignore")
    try:
        pipe.send(check(kernel, where, builds=builds))
    except Exception as error:  # the candidate is none
        pipe.send(error)


def isolated(kernel: Kernel, where: list[Launch] | None = None, builds: tuple[str, ...] = tuple(BUILDS)) -> Failure | None:
    """check() in a process of its own; a crash and a hang are failures."""
    here, there = PROCESS.Pipe(duplex=False)
    process = PROCESS.Process(target=one, args=(kernel, where, builds, there))
    process.start()
    there.close()
    launch = (where or launches(kernel))[0]
    try:
        if not here.poll(HANG_S):
            return Failure("hang", f"no answer in {HANG_S:.0f} s", launch, builds[0])
        result = here.recv()
    except EOFError:
        process.join()
        return Failure("crash", f"the process ended with status {process.exitcode}", launch, builds[0])
    finally:
        process.kill()
        process.join()
    if isinstance(result, Exception):
        raise result
    return result


def located(kernel: Kernel, failure: Failure) -> Failure:
    """A crash's launch and build: the first that crashes alone."""
    if failure.kind not in ("crash", "hang"):
        return failure
    for launch in launches(kernel):
        for name in BUILDS:
            if (found := isolated(kernel, [launch], (name,))) and found.kind == failure.kind:
                return found
    return failure


def report(seed: int, failure: Failure, shrink_s: float) -> None:
    kernel = generate(seed)
    failure = located(kernel, failure)
    print(f"\nseed {seed} fails: {failure}", flush=True)
    if failure.launch is None:
        print("not seen again when its launches ran alone: not shrunk", flush=True)
        return
    builds = (failure.build,) if failure.build in BUILDS else tuple(BUILDS)
    before = size(kernel)
    if shrink_s:
        kernel, failure = shrink(kernel, failure, lambda k, where: isolated(k, where, builds), shrink_s)
    print(f"shrunk from {before} to {size(kernel)} nodes:\n\n{reproducer(kernel, failure)}", flush=True)


def run(seconds: float, first: int, shrink_s: float, most: float = math.inf, small: bool = False) -> int:
    """Kernels from seed `first` on, at most about `most`, without the large ones where `small`; the number of failures."""
    began = time.time()
    end, seed, kernels, slow, failures = began + seconds, first, 0, 0, 0
    while time.time() < end and kernels < most:
        here, there = PROCESS.Pipe(duplex=False)
        process = PROCESS.Process(target=worker, args=(seed, end, small, there))
        process.start()
        there.close()
        failure: Failure | None = None
        try:
            while True:
                if not here.poll(HANG_S):
                    failure = Failure("hang", f"no answer in {HANG_S:.0f} s", None)
                    break
                word, value = here.recv()
                if word == "done":
                    break
                if word == "begin":
                    seed = value
                    continue
                kernels, slow = kernels + (value != "slow"), slow + (value == "slow")
                if isinstance(value, Failure):
                    failure = value
                    break
        except EOFError:
            process.join()
            failure = Failure("crash", f"the process ended with status {process.exitcode}", None)
        process.kill()
        process.join()
        if failure:
            failures += 1
            report(seed, failure, shrink_s)
        seed += 1
    print(
        f"{kernels} kernels in {time.time() - began:.0f} s, seeds {first} to {seed - 1}, {slow} left out as too slow, {failures} failures"
    )
    return failures


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to make new kernels")
    parser.add_argument("--seed", type=int, help="check this kernel only")
    parser.add_argument("--start", type=int, default=LARGE_FROM, help=f"the first seed; large kernels come from {LARGE_FROM} on")
    parser.add_argument("--kernels", type=int, default=10**9, metavar="N", help="stop after about as many")
    parser.add_argument("--small", action="store_true", help="leave out the kernels that take seconds to compile")
    parser.add_argument("--show", type=int, metavar="SEED", help="print the source of a kernel and stop")
    parser.add_argument("--shrink", type=float, default=120.0, metavar="SECONDS", help="time for making each failing kernel small; 0: not")
    options = parser.parse_args(arguments)
    if options.show is not None:
        print(source(generate(options.show)))
        return 0
    if options.seed is None:
        return min(1, run(options.seconds, options.start, options.shrink, options.kernels, options.small))
    failure = isolated(generate(options.seed))
    if failure:
        report(options.seed, failure, options.shrink)
    print(f"seed {options.seed}: {'fails' if failure else 'passes'}")
    return int(failure is not None)


if __name__ == "__main__":
    sys.exit(main())
