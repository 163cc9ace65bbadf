"""What a kernel tree computes, thread by thread: plain Python numbers, wrapped to the width of their type after every operation.

Independent of the engine and of numba: it reads the tree, not the source, and numba's promotion rules are those of
kernel_tree. A thread runs until it needs the others (a barrier, a shuffle); when all that live wait, they go on.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from kernel_source import SYNCHRONISE, Writer, constant_values, used_variables
from kernel_tree import NAMES, Array, Expr, Function, Kernel, Launch, Stmt, is_float
from raw_operations import evaluate, operands_of

BREAK, CONTINUE, RETURN = 1, 2, 3  # how a statement ended; 0: normally
STEPS = 150_000  # statements of one launch


class TooSlow(Exception):
    """More statements than a short test can afford."""


class IllegalKernel(Exception):
    """Threads wait for each other at different places: the generator's fault."""


# ---- numbers --------------------------------------------------------------------------------------------------------


def _wrapper(t: str) -> Callable[[int], int]:
    if t == "b":
        return bool
    width = 8 * int(t[1])
    mask, half = (1 << width) - 1, 1 << (width - 1)
    if t[0] == "u":
        return lambda x: x & mask
    return lambda x: x if -half <= x < half else ((x + half) & mask) - half


# integers as two's complement numbers of a type
WRAP = {t: _wrapper(t) for t in NAMES if t[0] != "f"}


def wrap(t: str, x: int) -> int:
    return WRAP[t](x)


def single(x: float) -> float:
    return ctypes.c_float(x).value


def _converter(t: str) -> Callable[[Any], Any]:
    if t == "f4":
        return lambda x: single(float(x))
    if t in ("f8", "b"):
        return float if t == "f8" else bool
    done = WRAP[t]
    return lambda x: done(int(x))


# the value of any type, converted to a type
TO = {t: _converter(t) for t in NAMES}


def to(t: str, x: Any) -> Any:
    return TO[t](x)


def floor_divide(a: int, b: int) -> int:
    return a // b if b else 0


def floor_modulo(a: int, b: int) -> int:
    return a % b if b else 0


INTEGER = {
    "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "&": int.__and__, "|": int.__or__, "^": int.__xor__,
    "//": floor_divide, "%": floor_modulo,
}  # fmt: skip
FLOAT = {"+": float.__add__, "-": float.__sub__, "*": float.__mul__, "//": lambda a, b: float(a // b), "%": lambda a, b: a % b}
COMPARE = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip


def clamped_floor(x: float) -> float:
    return float(math.floor(min(max(x, -100.0), 100.0)))


def leading_zeros(x: int, width: int) -> int:
    return width - (x & ((1 << width) - 1)).bit_length()


def reversed_bits(x: int, width: int) -> int:
    return int(format(x & ((1 << width) - 1), f"0{width}b")[::-1], 2)


def bit_operation(op: str, t: str, x: int) -> int:
    width = 8 * int(t[1])
    x &= (1 << width) - 1
    match op:
        case "popc":
            return x.bit_count()
        case "clz":
            return leading_zeros(x, width)
        case "ffs":
            return (x & -x).bit_length()
        case "brev":
            return reversed_bits(x, width)
    raise AssertionError(op)


# ---- threads --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Memory:
    """Elements in the order of the index (shape is C order here, whatever the layout of the argument)."""

    type: str
    data: list
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass
class Meter:
    steps: int = 0


@dataclass(slots=True)
class Frame:
    """Variables and memories that a function sees; `at`: thread numbers and dimensions by their text in the source."""

    v: dict[str, Any]
    memory: dict[str, Memory]
    at: dict[str, int]
    meter: Meter
    result: Any = None


@dataclass
class Oracle:
    """A kernel tree made ready to run: run(launch, arguments) returns the arrays as the launch leaves them."""

    kernel: Kernel
    limit: int = STEPS
    functions: dict[str, tuple[Function, list, Callable]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrays = {a.name: a for a in self.kernel.arrays}
        for f in self.kernel.functions:
            self.functions[f.name] = (f, [(v.name, self.expr(v.init)) for v in f.variables], self.block(f.body))
        used = used_variables(self.kernel.variables, Writer(self.kernel).body(self.kernel.body))
        self.init = [(v.name, self.expr(v.init)) for v in used]
        self.body = self.coroutine(self.kernel.body)

    # ---- expressions: closures over a Frame -------------------------------------------------------------------------

    def expr(self, e: Expr) -> Callable[[Frame], Any]:
        return getattr(self, f"_{e.op}")(e, *(self.expr(a) for a in e.args))

    def _const(self, e: Expr):
        value = to(e.type, e.attr)
        return lambda f: value

    def _var(self, e: Expr):
        name = e.attr
        return lambda f: f.v[name]

    _scalar = _var

    def _special(self, e: Expr):
        name = e.attr
        return lambda f: f.at[name]

    def _cast(self, e: Expr, a):
        done, t = TO[e.type], e.type
        if not is_float(t) and t != "b" and not is_float(e.args[0].type):
            done = WRAP[t]
        return lambda f: done(a(f))

    def _bin(self, e: Expr, a, b):
        t, op = e.type, e.attr
        if is_float(t):
            call, done = FLOAT[op], single if t == "f4" else float
            return lambda f: done(call(float(a(f)), float(b(f))))
        call, done = INTEGER[op], WRAP[t]
        if op in ("//", "%") and e.args[0].type[0] != e.args[1].type[0]:  # converted to int64 first
            return lambda f: done(call(done(a(f)), done(b(f))))
        return lambda f: done(call(a(f), b(f)))

    def _shift(self, e: Expr, a, b):
        t, (op, most) = e.type, e.attr
        done = WRAP[t]
        if op == "<<":
            return lambda f: done(a(f) << (b(f) & most))
        return lambda f: done(a(f) >> (b(f) & most))

    def _power(self, e: Expr, a):
        t, n = e.type, e.attr
        return lambda f: to(t, a(f) ** n)

    def _unary(self, e: Expr, a):
        t, op = e.type, e.attr
        call = {"-": lambda x: -x, "~": lambda x: ~x, "abs": abs}[op]
        narrow = TO[e.args[0].type]  # numba negates and inverts before it widens
        return lambda f: to(t, narrow(call(a(f))))

    def _cmp(self, e: Expr, a, b):
        call = COMPARE[e.attr]
        return lambda f: call(a(f), b(f))

    def _chain(self, e: Expr, a, b, c):
        first, second = (COMPARE[op] for op in e.attr)
        return lambda f: first(a(f), b(f)) and second(b(f), c(f))

    def _logic(self, e: Expr, a, b=None):
        if e.attr == "not":
            return lambda f: not a(f)
        if e.attr == "and":
            return lambda f: a(f) and b(f)
        return lambda f: a(f) or b(f)

    def _ternary(self, e: Expr, c, a, b):
        return lambda f: a(f) if c(f) else b(f)

    _selp = _ternary

    def _extreme(self, e: Expr, a, b):
        call = min if e.attr == "min" else max
        return lambda f: call(a(f), b(f))

    def _rounding(self, e: Expr, a):
        call = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "fabs": abs}[e.attr]
        return lambda f: float(call(a(f)))

    def _bits(self, e: Expr, a):
        op, t = e.attr, e.args[0].type
        result = e.type
        return lambda f: wrap(result, bit_operation(op, t, a(f)))

    def _fma(self, e: Expr, a, b, c):
        done = single if e.type == "f4" else float
        return lambda f: done(a(f) * b(f) + c(f))  # exact by construction

    def _inexact(self, e: Expr, a, b=None):
        done = single if e.type == "f4" else float
        match e.attr:
            case "sqrt":
                return lambda f: done(math.sqrt(a(f)))
            case "/":
                return lambda f: done(float(a(f)) / float(b(f)))
            case "*":
                return lambda f: done(float(a(f)) * float(b(f)))
        raise AssertionError(e.attr)

    def _quantised(self, e: Expr, a):
        return lambda f: math.floor(min(max(a(f), -100.0), 100.0) * 16.0) * 0.0625

    def _load(self, e: Expr, *index):
        name, how = e.attr
        t = e.type

        def load(f: Frame):
            m = f.memory[name]
            value = m.data[flat(m.shape, [i(f) for i in index], how)]
            return value if m.type == t else to(t, value)

        return load

    def _own(self, e: Expr, slot):
        name, array = e.attr, self.arrays[e.attr]
        return lambda f: f.memory[name].data[own(array, f, slot)]

    def _call(self, e: Expr, *args):
        name, array_names = e.attr
        return lambda f: self.call(f, name, array_names, [a(f) for a in args])

    def call(self, f: Frame, name: str, array_names: tuple[str, ...], values: list) -> Any:
        function, init, body = self.functions[name]
        names = [n for n, _ in function.parameters]
        memory = {n: f.memory[a] for n, a in zip(names, array_names, strict=False)}
        inner = Frame(dict(zip(names[len(array_names) :], values, strict=True)), memory, f.at, f.meter)
        for variable, value in init:
            inner.v[variable] = value(inner)
        body(inner)
        return inner.result

    # ---- statements that need no other thread: functions that return how they ended ---------------------------------

    def block(self, body: tuple[Stmt, ...]) -> Callable[[Frame], int]:
        steps = [self.statement(s) for s in body]

        def run(f: Frame) -> int:
            for step in steps:
                end = step(f)
                if end:
                    return end
            return 0

        return run

    def statement(self, s: Stmt) -> Callable[[Frame], int]:
        do = getattr(self, f"do_{s.op}")(s, [self.expr(e) for e in s.exprs], [self.block(b) for b in s.bodies])
        limit = self.limit

        def counted(f: Frame) -> int:
            meter = f.meter
            meter.steps += 1
            if meter.steps > limit:
                raise TooSlow
            return do(f) or 0

        return counted

    def count(self, f: Frame) -> None:
        f.meter.steps += 1
        if f.meter.steps > self.limit:
            raise TooSlow

    def do_assign(self, s: Stmt, e, bodies):
        (name, t, op), value = s.attr, e[0]
        if not op:
            return lambda f: f.v.__setitem__(name, value(f))
        if is_float(t):
            return lambda f: f.v.__setitem__(name, to(t, FLOAT[op](f.v[name], float(value(f)))))
        return lambda f: f.v.__setitem__(name, wrap(t, INTEGER[op](f.v[name], wrap(t, value(f)))))

    def do_swap(self, s: Stmt, e, bodies):
        a, b = s.attr

        def swap(f: Frame) -> None:
            f.v[a], f.v[b] = f.v[b], f.v[a]

        return swap

    def do_choose(self, s: Stmt, e, bodies):
        name, _, _, a, b = s.attr

        def choose(f: Frame) -> None:
            m = f.memory[a if e[0](f) else b]
            f.v[name] = m.data[flat(m.shape, [e[1](f)])]

        return choose

    def do_if(self, s: Stmt, e, bodies):
        return lambda f: bodies[0](f) if e[0](f) else bodies[1](f)

    def do_for(self, s: Stmt, e, bodies):
        name, _, step = s.attr

        def loop(f: Frame) -> int:
            for i in range(e[0](f), e[1](f), step):
                self.count(f)
                f.v[name] = i
                end = bodies[0](f)
                if end == BREAK:
                    return 0
                if end == RETURN:
                    return end
            return bodies[1](f)

        return loop

    def do_while(self, s: Stmt, e, bodies):
        name, limit, _ = s.attr

        def loop(f: Frame) -> int:
            f.v[name] = 0
            while f.v[name] < limit and e[0](f):
                self.count(f)
                f.v[name] += 1
                end = bodies[0](f)
                if end == BREAK:
                    return 0
                if end == RETURN:
                    return end
            return 0

        return loop

    def do_break(self, s, e, bodies):
        return lambda f: BREAK

    def do_continue(self, s, e, bodies):
        return lambda f: CONTINUE

    def do_return(self, s, e, bodies):
        return lambda f: RETURN

    def do_result(self, s, e, bodies):
        def give(f: Frame) -> int:
            f.result = e[0](f)
            return RETURN

        return give

    def do_store(self, s: Stmt, e, bodies):
        name, array = s.attr, self.arrays[s.attr]

        def store(f: Frame) -> None:
            f.memory[name].data[own(array, f, e[0])] = to(array.dtype, e[1](f))

        return store

    def do_put(self, s: Stmt, e, bodies):
        name = s.attr

        def put(f: Frame) -> None:
            m = f.memory[name]
            m.data[flat(m.shape, [e[0](f)])] = to(m.type, e[1](f))

        return put

    def do_atomic(self, s: Stmt, e, bodies):
        name, op = s.attr

        def update(f: Frame) -> None:
            m = f.memory[name]
            at = flat(m.shape, [i(f) for i in e[:-1]])
            m.data[at] = updated(op, m.type, m.data[at], [to(m.type, e[-1](f))])

        return update

    def do_slot(self, s: Stmt, e, bodies):
        name, result, t, op = s.attr

        def update(f: Frame) -> None:
            m = f.memory[name]
            at = f.at["gid"]
            old = m.data[at]
            m.data[at] = updated(op, m.type, old, [to(m.type, x(f)) for x in e])
            f.v[result] = to(t, clamped_floor(old)) if is_float(t) else to(t, wrap("i8", old) % 1000003)

        return update

    def do_raw(self, s: Stmt, e, bodies):
        (name, op, special), array = s.attr, self.arrays[s.attr[0]]
        scalar = np.dtype(NAMES[array.dtype]).type
        operands = [i if name_of in operands_of(op) else lambda f: 0 for name_of, i in zip("xyz", e[1:4], strict=True)]

        def store(f: Frame) -> None:
            source = f.memory[special]
            x, y, z = (scalar(source.data[flat(source.shape, [i(f)])]) for i in operands)
            f.memory[name].data[own(array, f, e[0])] = float(evaluate(op, x, y, z))

        return store

    def do_stride(self, s: Stmt, e, bodies):
        name, array = s.attr

        def loop(f: Frame) -> int:
            data = f.memory[array].data
            for i in range(f.at["gid"], len(data), f.at["total"]):
                self.count(f)
                f.v[name] = i
                end = bodies[0](f)
                if end == BREAK:
                    return 0
                if end == RETURN:
                    return end
                if end != CONTINUE:
                    data[i] = to(f.memory[array].type, e[0](f))
            return 0

        return loop

    def do_fill(self, s: Stmt, e, bodies):
        function, array = s.attr

        def fill(f: Frame) -> None:
            self.call(f, function, (array,), [x(f) for x in e])

        return fill

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
        meter = Meter()
        gx, gy, gz = launch.grid
        for block in reversed(range(launch.blocks)) if backwards else range(launch.blocks):
            at = (block % gx, block // gx % gy, block // (gx * gy))
            self.run_block(launch, block, at, memory, scalars, meter, backwards)
        for name, value in arguments.items():
            if isinstance(value, np.ndarray):
                memory[name].data = np.array(memory[name].data, value.dtype).reshape(value.shape)  # type: ignore[assignment]
        return {name: m.data for name, m in memory.items()}  # type: ignore[misc]

    def run_block(self, launch: Launch, number: int, block, memory, scalars, meter, backwards: bool) -> None:
        shared = {a.name: initial(a, 7) for a in self.kernel.arrays if a.role == "shared"}
        constant = {a.name: Memory(a.dtype, constant_values(a).tolist(), (a.size,)) for a in self.kernel.arrays if a.role == "const"}
        threads = []
        for tid in range(launch.threads):
            local = {a.name: initial(a, 5) for a in self.kernel.arrays if a.role == "local"}
            at = positions(launch, number, block, tid)
            f = Frame(dict(scalars), {**memory, **shared, **constant, **local}, at, meter)
            for name, init in self.init:
                f.v[name] = init(f)
            threads.append(self.body(f))
        self.schedule(threads, backwards)

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


def initial(a: Array, modulus: int) -> Memory:
    return Memory(a.dtype, [to(a.dtype, q % modulus) for q in range(a.size)], a.shape or (a.size,))


def positions(launch: Launch, number: int, block, tid: int) -> dict[str, int]:
    bx, by, _ = launch.block
    thread = (tid % bx, tid // bx % by, tid // (bx * by))
    at = {"tid": tid, "nt": launch.threads, "gid": number * launch.threads + tid, "total": launch.blocks * launch.threads,
          "cuda.laneid": tid % 32, "cuda.warpsize": 32}  # fmt: skip
    for k, axis in enumerate("xyz"):
        at |= {f"cuda.threadIdx.{axis}": thread[k], f"cuda.blockIdx.{axis}": block[k], f"cuda.blockDim.{axis}": launch.block[k],
               f"cuda.gridDim.{axis}": launch.grid[k]}  # fmt: skip
    return at


def flat(shape: tuple[int, ...], index: list[int], how: str = "") -> int:
    """Position of an element in index order; every index is taken modulo its extent. "negative": from the end, -1 - i."""
    at = 0
    for n, i in zip(shape, index, strict=True):
        i = wrap("i8", i) % n
        at = at * n + (n - 1 - i if how == "negative" else i)
    return at


def own(array: Array, f: Frame, slot: Callable[[Frame], int]) -> int:
    gid, k = f.at["gid"], array.size
    if array.role == "slot" or k == 1:
        return gid
    which = wrap("i8", slot(f)) % k
    match array.layout:
        case "coalesced":
            return which * f.at["total"] + gid
        case "strided" | "2d":
            return gid * k + which
        case "reversed":
            return f.at["total"] * k - 1 - gid * k - which
    raise AssertionError(array.layout)


def shared_own(array: Array, f: Frame, kind: str, c: int) -> int:
    tid, n = f.at["tid"], f.at["nt"]
    if array.shape:
        rows, columns = array.shape
        return tid if kind != "reversed" else tid % rows * columns + tid // rows
    return {"plain": tid, "reversed": n - 1 - tid, "rotated": (tid + c) % n}[kind]


def combined(op: str, a, b):
    if op in ("min", "max"):
        return min(a, b) if op == "min" else max(a, b)
    return FLOAT[op](a, b) if isinstance(a, float) else INTEGER[op](a, b)


def updated(op: str, t: str, old, operands: list):
    """What an atomic leaves behind."""
    x = operands[0]
    match op:
        case "add":
            new = old + x
        case "sub":
            new = old - x
        case "max" | "nanmax":
            new = max(old, x)
        case "min" | "nanmin":
            new = min(old, x)
        case "and_":
            new = old & x
        case "or_":
            new = old | x
        case "xor":
            new = old ^ x
        case "exch":
            new = x
        case "inc":
            new = 0 if old >= x else old + 1
        case "dec":
            new = x if old == 0 or old > x else old - 1
        case "cas":
            new = operands[1] if old == x else old
        case _:
            raise AssertionError(op)
    return to(t, new)


def warp_operation(op: str, t: str, lane: int, lanes: list[tuple]):
    """What a lane gets; lanes: the operands of all 32."""
    mine = lanes[lane]
    if op.startswith("shfl"):
        n = mine[1] & 31
        source = {"shfl_sync": n, "shfl_xor_sync": lane ^ n, "shfl_up_sync": lane - n, "shfl_down_sync": lane + n}[op]
        return lanes[source if 0 <= source < 32 else lane][0]
    values = [x[0] for x in lanes]
    bits = sum(1 << k for k, v in enumerate(values) if v)
    match op:
        case "any_sync":
            return any(values)
        case "all_sync":
            return all(values)
        case "eq_sync":
            return len({bool(v) for v in values}) == 1
        case "ballot_sync":
            return wrap("i4", bits)
        case "ballot_rank":
            return (bits & ((1 << lane) - 1)).bit_count()
        case "match_any_sync":
            return wrap("i4", sum(1 << k for k, v in enumerate(values) if v == values[lane]))
    raise AssertionError(op)
