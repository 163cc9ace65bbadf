"""One launch on its way through a measurement, and the check of what the timed launches left behind.

    launch 1      on a copy of the arrays, poisoned where the kernel only writes: compiles, and is the reference
    launch 2      on the caller's own arrays, which keep its result
    warm-ups, then the timed launches, on copies that are set back before each: fresh inputs, poisoned outputs

A kernel that does less when it is launched again, that keeps a result, or that writes only where it has written before, leaves other
bytes than the reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from solcourse.launch_arrays import Copies, LaunchArrays, Part, difference, same_bits
from solcourse.timers import Step

if TYPE_CHECKING:
    from solcourse.simt.frontend import LaunchSpec

EXPLAINED = ("rounding", "order")  # kinds of difference that the order of threads explains


@dataclass(frozen=True)
class Outputs:
    """What was found when the timed launches' arrays were looked at.

    checked  timed launches whose arrays were compared: on each copy of the arrays, the last
    written  names of the arrays that a launch changes
    wrong    differences that no order of threads explains: what was timed is not what gave the result
    loose    differences that it does explain: last digits, or the same values in another order
    """

    checked: int
    written: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()


class TimedLaunch:
    """copy(), for_the_caller(), warm_up(), the steps, check(): in this order."""

    def __init__(self, cuda: Any, launch: Any, args: tuple, spec: LaunchSpec):
        from solcourse.simt.frontend import argument_names

        self._cuda, self._launch, self.spec = cuda, launch, spec
        self.arrays = LaunchArrays(cuda, args, argument_names(spec.dispatcher)[0], only_written(spec, args))
        self.before = self.arrays.bytes_now()
        self.reference: list[np.ndarray] = []  # what launch 1 made of a copy
        self.result: list[np.ndarray] = []  # what launch 2 made of the caller's arrays
        self.copies = Copies([], [], {})
        self.host_s: list[float] = []  # the host's part of each warm-up launch
        self.outputs = Outputs(0, ())  # after check()
        self._used: set[int] = set()

    def copy(self, most: int) -> None:
        """Copies to time on, at most so many, and launch 1."""
        self.copies = self.arrays.make(self.before, most)
        self.copies.set_back(0)
        self._launch(*self.copies.args[0])
        self._cuda.synchronize()
        self.reference = self.arrays.bytes_of(self.copies.regions[0])
        began = [self.arrays.template(self.before, i) for i in range(len(self.before))]
        self.copies.only({i for i, data in enumerate(began) if not np.array_equal(data, self.reference[i])})

    def for_the_caller(self, *, again: bool = False) -> None:
        """Launch 2. again: something else may have been launched on the caller's arrays since they were looked at."""
        if again or self.copies.borrowed:
            self.arrays.restore(self.before)
        self._launch(*self.arrays.original)
        self._cuda.synchronize()
        self.result = self.arrays.bytes_now()
        self.arrays.give_back()

    def warm_up(self, repeats: int, prepare: Callable[[], None]) -> None:
        for k in range(repeats):
            step = self.step(k, prepare)
            step.prepare()
            self._cuda.synchronize()
            start = time.perf_counter()
            step.launch()
            self.host_s.append(time.perf_counter() - start)
        self._cuda.synchronize()
        self._used.clear()

    def step(self, k: int, prepare: Callable[[], None]) -> Step:
        """The k-th launch to be timed; `prepare` comes last before it."""
        number = k % len(self.copies)

        def fresh() -> None:
            self._used.add(number)
            self.copies.set_back(number)
            prepare()

        return Step(fresh, lambda: self._launch(*self.copies.args[number]), self.spec.stream)

    def check(self) -> Outputs:
        """Compares launch 2 with launch 1, and with it what the last timed launch left on each copy."""
        found = self._differences("the launch on your arrays", self.result, own=True)
        for number in sorted(self._used):
            found += self._differences("a timed launch", self.arrays.bytes_of(self.copies.regions[number]))
        if self.copies.borrowed:
            self.arrays.restore(self.result)
        wrong = dict.fromkeys(said for said, kind in found if kind not in EXPLAINED)
        loose = dict.fromkeys(said for said, kind in found if kind in EXPLAINED)
        self.outputs = Outputs(len(self._used), self._written(), tuple(wrong), tuple(loose))
        return self.outputs

    def _written(self) -> tuple[str, ...]:
        def same(part: Part) -> bool:
            began = self.arrays.template(self.before, part.region)
            return bool(same_bits(part.of(began), part.of(self.reference[part.region])).all())

        return tuple(part.name for part in self.arrays.parts if not same(part))

    def _differences(self, who: str, got: list[np.ndarray], *, own: bool = False) -> list[tuple[str, str]]:
        """(words, kind of difference from launch 1) for each array. own: the caller's arrays, which were not poisoned."""
        found = []
        for part in self.arrays.parts:
            if np.array_equal(self.reference[part.region], got[part.region]):
                continue
            began, wanted, left = (
                part.of(bytes) for bytes in (self.arrays.template(self.before, part.region), self.reference[part.region], got[part.region])
            )
            if own:  # what launch 1 left poisoned it did not write
                before = part.of(self.before[part.region])
                wanted = np.where(same_bits(wanted, began), before, wanted)
                began = before
            unlike = difference(part.name, wanted, left, began)
            if unlike is not None:
                found.append((f"{who}: {unlike}", unlike.kind))
        return found

    def registers(self) -> int | None:
        """Per thread, of the machine code that ran; None where numba does not tell."""
        try:
            kinds = tuple(self.spec.dispatcher.typeof_pyval(a) for a in self.arrays.original)
            return int(self.spec.dispatcher.overloads[kinds].regs_per_thread)
        except Exception:  # a kernel from a cache, an eager signature with other types, a front end without the number
            return None


def only_written(spec: LaunchSpec, args: tuple) -> frozenset[str]:
    """Names of the arrays that the kernel writes and never reads, by its program; empty where it cannot be told.

    Only these may be poisoned: what a kernel reads may be an index, or what a loop waits for.
    """
    from solcourse.errors import SolcourseError
    from solcourse.simt import compiler, frontend

    try:
        kernel = frontend.compile_kernel(spec.dispatcher, frontend.argument_types(spec.dispatcher, args))
        program = compiler.compile_warp(kernel, counters=True, rows_uniform=spec.block[0] % 32 == 0).program
    except SolcourseError:  # the engine does not execute it
        return frozenset()
    reads, writes = set[str](), set[str]()
    for site in program.sites:
        if site.kind.startswith("global"):
            (writes if site.kind == "global_store" else reads).update(site.array.split(" or "))
    return frozenset() if "" in reads else frozenset(writes - reads)
