"""What a launch computes, thread by thread: the oracle. A thread runs until it needs the others (a barrier, a shuffle).

When all threads that live wait, they go on; a warp goes on when its lanes have met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from kernel_frames import Frame, Memory, Meter, initial, positions, shared_own
from kernel_interpreter import BREAK, RETURN, Interpreter, TooSlow
from kernel_numbers import clamped_floor, combined, to, warp_operation, wrap
from kernel_source import SYNCHRONISE, constant_values
from kernel_tree import Launch, Stmt, is_float

__all__ = ["IllegalKernel", "Oracle", "TooSlow"]


class IllegalKernel(Exception):
    """Threads wait for each other at different places: the generator's fault."""


class Oracle(Interpreter):
    """A kernel tree made ready to run: run(launch, arguments) returns the arrays as the launch leaves them."""

    # ---- statements that wait for others: generators that yield what they wait for ----------------------------------

    def coroutine(self, body: tuple[Stmt, ...]) -> Callable[[Frame], Iterator]:
        steps = [(True, self.waiting(s)) if waits(s) else (False, self.statement(s)) for s in body]

        def run(f: Frame):
            for is_waiting, step in steps:
                end = (yield from step(f)) if is_waiting else step(f)
                if end:
                    return end
            return 0

        return run

    def waiting(self, s: Stmt) -> Callable[[Frame], Iterator]:
        return getattr(self, f"wait_{s.op}")(s, [self.expr(e) for e in s.exprs], [self.coroutine(b) for b in s.bodies])

    def wait_if(self, s, e, bodies):
        def run(f: Frame):
            return (yield from bodies[0 if e[0](f) else 1](f))

        return run

    def wait_for(self, s, e, bodies):
        name, _, step = s.attr

        def run(f: Frame):
            for i in range(e[0](f), e[1](f), step):
                self.count(f)
                f.v[name] = i
                end = yield from bodies[0](f)
                if end == BREAK:
                    return 0
                if end == RETURN:
                    return end
            return (yield from bodies[1](f))

        return run

    def wait_while(self, s, e, bodies):
        name, limit, _ = s.attr

        def run(f: Frame):
            f.v[name] = 0
            while f.v[name] < limit and e[0](f):
                self.count(f)
                f.v[name] += 1
                end = yield from bodies[0](f)
                if end == BREAK:
                    return 0
                if end == RETURN:
                    return end
            return 0

        return run

    def wait_exchange(self, s, e, bodies):
        (name, kind, c, lead), array = s.attr, self.arrays[s.attr[0]]

        def run(f: Frame):
            if lead:
                yield "barrier"
            if len(e) == 1 or e[1](f):
                f.memory[name].data[shared_own(array, f, kind, c)] = to(array.dtype, e[0](f))
            end = yield from bodies[0](f)
            if end:
                return end
            yield "barrier"
            end = yield from bodies[1](f)
            if end:
                return end
            yield "barrier"
            return 0

        return run

    def wait_gather(self, s, e, bodies):
        def run(f: Frame):
            if s.attr[1]:
                yield "barrier"
            for body in bodies:
                end = yield from body(f)
                if end:
                    return end
                yield "barrier"
            return 0

        return run

    def wait_reduce(self, s, e, bodies):
        name, result, t, op, step, lead = s.attr
        array = self.arrays[name]

        def run(f: Frame):
            if lead:
                yield "barrier"
            data, tid, n = f.memory[name].data, f.at["tid"], f.at["nt"]
            data[tid] = to(array.dtype, e[0](f))
            yield "barrier"
            k = 128
            while k > 0:
                if tid < k and tid + k < n:
                    data[tid] = to(array.dtype, combined(op, data[tid], data[tid + k]))
                yield "barrier"
                k //= 2
            f.v[step] = 0
            f.v[result] = to(t, clamped_floor(data[0])) if is_float(t) else to(t, data[0] % 1000003 if t == "i8" else data[0])
            yield "barrier"
            data[tid] = to(array.dtype, 1)
            yield "barrier"
            return 0

        return run

    def wait_scan(self, s, e, bodies):
        name, result, t, step, lead = s.attr
        array = self.arrays[name]

        def run(f: Frame):
            if lead:
                yield "barrier"
            data, tid, n = f.memory[name].data, f.at["tid"], f.at["nt"]
            data[tid] = to(array.dtype, e[0](f))
            yield "barrier"
            d = 1
            while d < n:
                before = data[tid - d] if tid >= d else 0
                yield "barrier"
                data[tid] = wrap(array.dtype, data[tid] + before)
                yield "barrier"
                d *= 2
            f.v[step] = d
            f.v[result] = to(t, data[tid] % 1000003)
            yield "barrier"
            data[tid] = to(array.dtype, 1)
            yield "barrier"
            return 0

        return run

    def wait_sync(self, s, e, bodies):
        def run(f: Frame):
            yield "barrier"
            return 0

        return run

    wait_sync_apart = wait_sync

    def wait_syncwarp(self, s, e, bodies):
        def run(f: Frame):
            return 0
            yield

        return run

    def wait_vote(self, s, e, bodies):
        op, result, t = s.attr

        def run(f: Frame):
            count, live = yield ("vote", bool(e[0](f)))
            value = {"syncthreads_count": count, "syncthreads_and": count == live, "syncthreads_or": count > 0}[op]
            f.v[result] = to(t, value)
            return 0

        return run

    def wait_warp(self, s, e, bodies):
        op, result, t = s.attr
        source = s.exprs[0].type

        def run(f: Frame):
            lanes = yield ("warp", tuple(x(f) for x in e))
            f.v[result] = to(t, warp_operation(op, source, f.at["cuda.laneid"], lanes))
            return 0

        return run

    # ---- launches ---------------------------------------------------------------------------------------------------

    def run(self, launch: Launch, arguments: dict[str, Any], backwards: bool = False) -> dict[str, np.ndarray]:
        """The arrays among the arguments, as the launch leaves them. backwards: blocks and threads in the opposite order.

        Raises TooSlow, IllegalKernel.
        """
        memory, scalars = {}, {}
        for name, value in arguments.items():
            if isinstance(value, np.ndarray):
                t = self.arrays[name].dtype
                memory[name] = Memory(t, value.reshape(-1).tolist(), value.shape)
            else:
                scalars[name] = value.item() if isinstance(value, np.generic) else value
        meter, program = Meter(), self.coroutine(self.kernel.body)
        gx, gy, gz = launch.grid
        for block in reversed(range(launch.blocks)) if backwards else range(launch.blocks):
            at = (block % gx, block // gx % gy, block // (gx * gy))
            self.schedule(self.threads(launch, block, at, program, memory, scalars, meter), backwards)
        for name, value in arguments.items():
            if isinstance(value, np.ndarray):
                memory[name].data = np.array(memory[name].data, value.dtype).reshape(value.shape)  # type: ignore[assignment]
        return {name: m.data for name, m in memory.items()}  # type: ignore[misc]

    def threads(self, launch: Launch, number: int, block, program, memory, scalars, meter) -> list[Iterator]:
        """The threads of a block, none of them begun."""
        shared = {a.name: initial(a, 7) for a in self.kernel.arrays if a.role == "shared"}
        constant = {a.name: Memory(a.dtype, constant_values(a).tolist(), (a.size,)) for a in self.kernel.arrays if a.role == "const"}
        threads = []
        for tid in range(launch.threads):
            local = {a.name: initial(a, 5) for a in self.kernel.arrays if a.role == "local"}
            at = positions(launch, number, block, tid)
            f = Frame(dict(scalars), {**memory, **shared, **constant, **local}, at, meter)
            for name, init in self.init:
                f.v[name] = init(f)
            threads.append(program(f))
        return threads

    def schedule(self, threads: list, backwards: bool = False) -> None:
        """Threads in turn, each until it waits; warps go on when their lanes do, the block when all threads do."""
        answers: dict[int, Any] = dict.fromkeys(range(len(threads)))
        while answers:
            waits_for: dict[int, Any] = {}
            while answers:
                for tid, answer in sorted(answers.items(), reverse=backwards, key=lambda item: item[0]):
                    with suppress(StopIteration):
                        waits_for[tid] = threads[tid].send(answer)
                answers = warps_that_meet(waits_for)
                for tid in answers:
                    del waits_for[tid]
            kinds = {w if isinstance(w, str) else w[0] for w in waits_for.values()}
            if len(kinds) > 1 or "warp" in kinds:
                raise IllegalKernel(f"threads wait for different things: {kinds}")
            count = sum(w[1] for w in waits_for.values()) if kinds == {"vote"} else None
            answers = {tid: count if count is None else (count, len(waits_for)) for tid in waits_for}


def warps_that_meet(waits_for: dict[int, Any]) -> dict[int, Any]:
    """Lanes of the warps that wait at a warp operation together, with the operands of all their lanes."""
    answers: dict[int, Any] = {}
    for first in {tid - tid % 32 for tid, w in waits_for.items() if w[0] == "warp"}:
        lanes = [waits_for.get(tid) for tid in range(first, first + 32)]
        if any(w is None or w[0] != "warp" for w in lanes):
            raise IllegalKernel("a warp operation without some of its lanes")
        operands = [w[1] for w in lanes]
        answers.update(dict.fromkeys(range(first, first + 32), operands))
    return answers


def waits(s: Stmt) -> bool:
    return s.op in SYNCHRONISE or any(waits(x) for body in s.bodies for x in body)
