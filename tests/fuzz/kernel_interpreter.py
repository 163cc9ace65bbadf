"""A thread alone: kernel trees as Python closures, expression by expression, statement by statement.

Independent of the engine and of numba: it reads the tree, not the source, and numba's promotion rules are those of
kernel_tree. Plain Python numbers, wrapped to the width of their type after every operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from kernel_frames import Frame, flat, own
from kernel_numbers import COMPARE, FLOAT, INTEGER, TO, WRAP, bit_operation, clamped_floor, single, to, updated, wrap
from kernel_source import Writer, used_variables
from kernel_tree import NAMES, Expr, Function, Kernel, Stmt, is_float
from raw_operations import evaluate, operands_of

BREAK, CONTINUE, RETURN = 1, 2, 3  # how a statement ended; 0: normally
STEPS = 150_000  # statements of one launch


class TooSlow(Exception):
    """More statements than a short test can afford."""


@dataclass
class Interpreter:
    """expr() and block() make functions of a Frame; a block's returns how it ended."""

    kernel: Kernel
    limit: int = STEPS
    functions: dict[str, tuple[Function, list, Callable]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrays = {a.name: a for a in self.kernel.arrays}
        for f in self.kernel.functions:
            self.functions[f.name] = (f, [(v.name, self.expr(v.init)) for v in f.variables], self.block(f.body))
        used = used_variables(self.kernel.variables, Writer(self.kernel).body(self.kernel.body))
        self.init = [(v.name, self.expr(v.init)) for v in used]

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
