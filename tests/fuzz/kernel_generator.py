"""Random kernels that are valid, free of races and of undefined results by construction. One seed, one kernel, always the same.

Each kernel draws the features it may use (swarm testing: a kernel of few features goes deeper into them). `Place` is what is
legal at one point of the program: barriers only where every living thread of a block passes together, breaks only out of
loops that hold no barrier or by a condition all share, shared elements written by their owner and read after a barrier.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import kernel_tree as tree
import numpy as np
from kernel_source import parameters
from kernel_tree import (
    DTYPES,
    FLOATS,
    HELD,
    Array,
    Expr,
    Function,
    Kernel,
    Launch,
    Stmt,
    Variable,
    binary,
    cast,
    const,
    fits,
    is_float,
    leaf,
)  # fmt: skip
from raw_operations import KINDS, RAW

FEATURES = ("if", "for", "while", "break", "return", "shared", "warp", "vote", "atomic", "slot", "local", "function", "fill",
            "float", "raw", "stride", "else", "bool", "wide", "plane", "const", "apart", "dynamic", "lead")  # fmt: skip
MAX_THREADS = 256
MAX_TRIPS = 48
COMPARE = ("<", "<=", ">", ">=", "==", "!=")
LARGE_FROM = 1000  # seeds from here on: every fourth kernel is large (seconds to compile)
VALUES = ("i4", "i8", "u4", "f4", "f8")  # types of variables, besides b


@dataclass(frozen=True)
class Place:
    uniform: bool = True
    loop: str = ""  # the innermost loop: "" none that may be left here, "together" or "alone"
    function: bool = False
    readable: tuple[Array, ...] = ()
    busy: frozenset[str] = frozenset()  # shared arrays in use by an enclosing statement
    atomic: tuple[Array, ...] = ()  # arrays that may be updated here
    variables: tuple[tuple[str, str, bool, bool], ...] = ()  # name, type, uniform, assignable
    depth: int = 0
    trips: int = 1


class Generator:
    def __init__(self, seed: int, attempt: int = 0):
        self.seed = seed
        self.random = random.Random(f"{seed}.{attempt}")
        self.features = {f for f in FEATURES if self.random.random() < (0.8 if f == "float" else 0.6)} | {"if"}
        self.functions: list[Function] = []
        self.arrays: list[Array] = []
        self.count = 0
        self.ndim = self.random.choice((1, 1, 1, 2, 2, 3))
        self.large = seed >= LARGE_FROM and seed % 4 == 3
        self.integers = ("i4", "i8") if self.large else self.random.choice((("i4",), ("i8",), ("i4", "i8"), ("i4", "i8")))
        self.reals = FLOATS if self.large else self.random.choice((("f4",), ("f8",), ("f4", "f8")))
        if self.has("warp"):
            self.features.discard("return")

    def has(self, feature: str) -> bool:
        return feature in self.features

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def pick(self, *weighted: tuple[float, object]):
        """One of (weight, value)."""
        return self.random.choices([v for _, v in weighted], [w for w, _ in weighted])[0]

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    # ---- the kernel -------------------------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        self.arrays = self.all_arrays()
        scalars = tuple((f"n{k}", t) for k, t in enumerate(self.random.choices((*VALUES, "b"), k=3)))
        fixed = tuple((n, t, True, False) for n, t in scalars)
        for _ in range(self.random.randint(1, 3 if self.large else 1) if self.has("function") else 0):
            self.functions.append(self.function())
        if self.has("fill") and any(a.role == "local" for a in self.arrays):
            self.functions.append(self.filler())
        types = [t for t in (*VALUES, "b") if self.typed(t)]
        start = Place(variables=fixed, readable=tuple(a for a in self.arrays if a.role in ("in", "const", "local")))
        variables, scope = [], []
        for t in types:
            for uniform in (False, False, True) if self.large or self.chance(0.3) else (False, True):
                name = self.name("u" if uniform else "v")
                variables.append(Variable(name, t, self.first_value(t, start, uniform)))
                scope.append((name, t, uniform, True))
        place = replace(
            start, variables=fixed + tuple(scope), atomic=tuple(a for a in self.arrays if a.role == "acc"),
            readable=(*start.readable, *(a for a in self.arrays if a.role == "out" or (a.role == "shared" and self.has("lead")))),
        )  # fmt: skip
        r = self.random
        n, spend = (r.randint(5, 9), r.randint(12, 24)) if self.large else (r.randint(2, 5), r.randint(3, 8))
        body = self.block(place, n, spend)
        changed = assigned(body)
        body += self.results([v for v in scope if v[0] in changed])
        return Kernel(self.seed, self.ndim, tuple(self.arrays), scalars, tuple(variables), tuple(self.functions), body)

    def first_value(self, t: str, place: Place, alike: bool) -> Expr:
        """An array's element where one is of the type, so that threads differ."""
        found = self.load((t,), place, alike) if self.chance(0.6) else None
        return found or self.held(t, 1, place, alike)

    def typed(self, t: str) -> bool:
        """Whether variables and arrays of this type are used."""
        if t in FLOATS:
            return self.has("float") and t in self.reals
        return self.has({"b": "bool", "u4": "wide"}[t]) if t in ("b", "u4") else t in self.integers

    def value_types(self) -> list[str]:
        return [t for t in VALUES if self.typed(t)]

    def all_arrays(self) -> list[Array]:
        r, types = self.random, self.value_types()
        found = [Array(f"x{k}", "in", r.choice([*types, "i1", "u1", "i2", "u2"])) for k in range(r.randint(1, 3))]
        found.append(Array("xi", "in", "i4"))
        if self.has("plane"):
            found += [Array(f"m{k}", "in", r.choice(types), shape=(0, 0), order=r.choice("CF")) for k in range(r.randint(1, 2))]
        if self.has("const"):
            found.append(Array("c0", "const", r.choice(types), r.choice((7, 8, 16))))
        for k in range(r.randint(1, 2) if self.has("local") or self.has("fill") else 0):
            found.append(Array(f"loc{k}", "local", r.choice(types), r.choice((1, 3, 4, 8, 13))))
        if self.has("shared"):
            for k in range(r.randint(1, 3)):
                dynamic = "dynamic" if k == 0 and self.has("dynamic") else ""
                plane = not dynamic and self.chance(0.3)
                shape = r.choice(((16, 16), (8, 33), (64, 5), (26, 10))) if plane else ()
                size = shape[0] * shape[1] if plane else r.choice((256, 257, 300))
                found.append(Array(f"s{k}", "shared", r.choice(types), size, shape, layout=dynamic))
        for k, t in enumerate(types):
            found.append(Array(f"out{k}", "out", t, r.choice((1, 2, 3)), (0, 0) if (p := self.chance(0.25)) else (), r.choice("CF"),
                               "2d" if p else r.choice(("coalesced", "strided", "reversed"))))  # fmt: skip
        if self.chance(0.5):
            found.append(Array("outn", "out", r.choice(("i1", "u1", "i2", "u2")), 1, layout="coalesced"))
        if self.has("atomic"):
            for k in range(r.randint(1, 3)):
                t = r.choice([*types, "u8"])
                plane = self.chance(0.3)
                found.append(
                    Array(f"acc{k}", "acc", t, 15 if plane else r.choice((1, 5, 16)), (3, 5) if plane else (), op=self.shared_op(t))
                )
        if self.has("slot"):
            for k in range(2):
                found.append(Array(f"slot{k}", "slot", r.choice([*types, "u8"])))
        if self.has("raw"):
            for t in FLOATS:
                found.append(Array(f"sp{t}", "special", t))
                found += [Array(f"raw{t}{kind}", "raw", t, 2, layout="coalesced") for kind in KINDS]
        if self.has("stride"):
            found.append(Array("big0", "big", r.choice(types)))
        return found

    def shared_op(self, t: str) -> str:
        """An atomic whose final value does not depend on the order."""
        if is_float(t):
            return self.random.choice(("add", "add", "max", "min", "nanmax", "nanmin"))
        return self.random.choice(("add", "add", "sub", "max", "min", "and_", "or_", "xor", *(("inc",) if t == "u4" else ())))

    def results(self, scope) -> tuple[Stmt, ...]:
        """Every variable that changed ends in an output, so that no computation is dead."""
        found: list[Stmt] = []
        for a in self.arrays:
            if a.role == "out" and a.dtype in VALUES:
                names = [leaf("var", t, n, u) for n, t, u, _ in scope if t == a.dtype]
                for k in range(min(a.size, len(names))):
                    found.append(Stmt("store", (const("i8", k), names[k]), attr=a.name))
                if a.size == 1 and len(names) > 1 and not is_float(a.dtype):
                    found.pop()
                    mixed = names[0]
                    for other in names[1:]:
                        mixed = self.held_int(binary("^", mixed, other), a.dtype)
                    found.append(Stmt("store", (const("i8", 0), mixed), attr=a.name))
        for flag in [leaf("var", t, n, u) for n, t, u, _ in scope if t == "b"][:1]:
            found.append(Stmt("if", (flag,), ((Stmt("store", (const("i8", 0), const("i4", 77)), attr="out0"),), ())))
        return tuple(found)

    # ---- device functions -------------------------------------------------------------------------------------------

    def function(self) -> Function:
        r = self.random
        name, types = self.name("f"), self.value_types()
        arrays = ()
        if self.chance(0.3):
            arrays = ((self.name("p"), "array:" + r.choice([a.dtype for a in self.arrays if a.role == "in" and not a.shape])),)
        plain = tuple((self.name("a"), r.choice(types)) for _ in range(r.randint(1, 3)))
        result = r.choice(types)
        place = Place(
            uniform=False, function=True, readable=tuple(Array(n, "in", t[6:]) for n, t in arrays),
            variables=tuple((n, t, False, False) for n, t in plain),
        )  # fmt: skip
        variables = []
        for t in r.choices(types, k=2):
            variables.append(Variable(self.name("t"), t, self.held(t, 1, place)))
        place = replace(place, variables=place.variables + tuple((v.name, v.type, False, True) for v in variables))
        body = self.block(place, r.randint(0, 3), spend=5)
        if self.chance(0.5):
            early = Stmt("result", (self.held(result, 1, place),))
            body += (Stmt("if", (self.bools(2, place),), ((early,), ())), *self.block(place, 1, spend=2))
        return Function(name, arrays + plain, result, tuple(variables), body + (Stmt("result", (self.held(result, 2, place),)),))

    def filler(self) -> Function:
        """A device function that changes a local array."""
        t = self.random.choice([a.dtype for a in self.arrays if a.role == "local"])
        array = Array(self.name("p"), "in", t)
        plain = ((self.name("a"), "i4"),)
        place = Place(uniform=False, function=True, readable=(array,), variables=((plain[0][0], "i4", False, False),))
        k = self.name("k")
        inner = replace(place, variables=(*place.variables, (k, "i4", False, False)))
        put = Stmt("put", (leaf("var", "i4", k, False), self.held(t, 2, inner)), attr=array.name)
        loop = Stmt("for", (const("i4", 0), const("i4", self.random.choice((1, 3, 5)))), ((put,), ()), (k, "i4", 1))
        return Function(self.name("g"), ((array.name, f"local:{t}"), *plain), "i4", (), (loop, Stmt("result", (const("i4", 1),))))

    # ---- statements -------------------------------------------------------------------------------------------------

    def block(self, place: Place, n: int, spend: int) -> tuple[Stmt, ...]:
        """About n statements; `spend` bounds their number with all that is nested."""
        found: list[Stmt] = []
        left = spend
        while len(found) < n and left > 0:
            s = self.statement(place, left)
            found.append(s)
            left -= 1 + sum(1 for body in s.bodies for _ in tree.statements(body))
            if s.op in ("break", "continue", "return"):
                break
        return tuple(found)

    def statement(self, place: Place, spend: int) -> Stmt:
        nests = spend > 1 and place.depth < 4
        together = place.uniform and not place.function
        choices: list[tuple[float, object]] = [(2, self.assign)]
        choices += [(0.7, self.swap), (0.5, self.choose)] if not place.function else []
        if nests:
            choices += [(2.5, self.branch)]
            if place.trips < MAX_TRIPS:
                choices += [(2.5, self.loop)] if self.has("for") else []
                choices += [(2, self.while_loop)] if self.has("while") else []
                choices += [(1, self.stride)] if self.has("stride") and not place.function else []
        if self.has("break") and (place.loop == "alone" or (place.loop == "together" and place.uniform)):
            choices.append((3, self.leave_loop))
        if not place.function:
            choices.append((1.2, self.store))
            choices += [(1.2, self.leave)] if self.has("return") else []
            choices += [(1.0, self.put)] if self.has("local") else []
            choices += [(0.5, self.fill)] if self.has("fill") and any(f.name[0] == "g" for f in self.functions) else []
            choices += [(1.5, self.update)] if place.atomic else []
            choices += [(1.2, self.slot)] if self.has("slot") else []
            choices += [(2.5, self.raw)] if self.has("raw") else []
        if together:
            free = [a for a in self.arrays if a.role == "shared" and a.name not in place.busy]
            if free and nests:
                choices += [(3, self.exchange), (1.2, self.gather), (1, self.reduce), (0.8, self.scan)]
            choices += [(2.5, self.warp), (1.0, self.syncwarp)] if self.has("warp") else []
            choices += [(1.2, self.vote)] if self.has("vote") else []
            choices += [(0.7, self.sync)]
            choices += [(0.5, self.sync_apart)] if self.has("apart") else []
        return self.pick(*choices)(place, spend)

    def target(self, place: Place, types: tuple[str, ...], alike: bool = False) -> tuple[str, str, bool]:
        """A variable to assign to: uniform ones only where all threads assign the same (alike)."""
        names = [(n, t, u) for n, t, u, assignable in place.variables if assignable and t in types and (not u or alike)]
        return self.random.choice(names)

    def assign(self, place: Place, spend: int) -> Stmt:
        name, t, uniform = self.target(place, (*VALUES, "b"), alike=place.uniform)
        if t in ("i8", "f8", "f4") and self.chance(0.15):
            return self.augmented(place, name, t, uniform)
        return Stmt("assign", (self.held(t, self.random.choice((1, 2, 3)), place, uniform),), attr=(name, t, ""))

    def augmented(self, place: Place, name: str, t: str, uniform: bool) -> Stmt:
        """v op= e, where the result needs no reduction."""
        if t == "i8":
            op, other = self.pick((1, ("&", self.ints(2, place, uniform))), (1, ("//", const("i8", self.random.choice((2, 3, 7, -5))))),
                                  (1, ("%", const("i8", self.random.choice((2, 10, 1000))))))  # fmt: skip
            other = cast("i8", other) if other.type != "i8" else other
        else:
            op, other = self.pick((1, ("*", const(t, -1.0))), (1, ("%", const(t, 8.0))))
        return Stmt("assign", (other,), attr=(name, t, op))

    def swap(self, place: Place, spend: int) -> Stmt:
        """Two variables of one type; uniform ones only with each other, where all threads pass."""
        found = [
            (a, b)
            for a in place.variables
            for b in place.variables
            if a[0] < b[0] and a[1:] == b[1:] and a[3] and (not a[2] or place.uniform)
        ]
        if not found:
            return self.assign(place, spend)
        a, b = self.random.choice(found)
        return Stmt("swap", attr=(a[0], b[0]))

    def choose(self, place: Place, spend: int) -> Stmt:
        flat = [a for a in place.readable if a.role in ("in", "local", "shared") and not a.shape and a.dtype in VALUES]
        # the engine refuses local-or-global
        found = [
            (a, b) for a in flat for b in flat if a.dtype == b.dtype and a.name != b.name and (a.role == "local") == (b.role == "local")
        ]
        names = {t for _, t, u, assignable in place.variables if assignable and not u}
        found = [(a, b) for a, b in found if a.dtype in names]
        if not found:
            return self.assign(place, spend)
        a, b = self.random.choice(found)
        name, t, _ = self.target(place, (a.dtype,))
        return Stmt("choose", (self.bools(2, place), self.index(2, place)), attr=(name, t, self.name("p"), a.name, b.name))

    def branch(self, place: Place, spend: int) -> Stmt:
        alike = place.uniform and self.chance(0.4)
        inner = replace(place, uniform=alike, depth=place.depth + 1)
        condition = self.bools(2, place, alike)
        n = self.random.randint(1, 3)
        first = self.block(inner, n, spend // 2)
        second = self.block(inner, self.random.randint(1, 2), spend // 3) if self.chance(0.4) else ()
        return Stmt("if", (condition,), (first, second))

    def loop(self, place: Place, spend: int) -> Stmt:
        alike = place.uniform and self.chance(0.5)
        t, k = self.random.choice(("i4", "i8")), self.name("k")
        step = self.random.choice((1, 1, 1, 1, 2, 3, -1, -2))
        most = self.random.choice((3, 5, 8, 12)) if place.trips < 8 else 4
        start = self.pick((3, const(t, 0)), (1, const(t, self.random.randint(-3, 3))), (1, self.small(t, 4, place, alike)))
        stop = self.pick((2, const(t, self.random.randint(0, most))), (3, self.small(t, most, place, alike)))
        if step < 0:
            start, stop = stop, start
        inner = self.inside(place, alike, k, t, most)
        body = self.block(inner, self.random.randint(1, 3), spend // 2)
        tail = self.block(replace(place, depth=place.depth + 1, uniform=alike), 1, 2) if self.has("else") and self.chance(0.25) else ()
        return Stmt("for", (start, stop), (body, tail), (k, t, step))

    def inside(self, place: Place, alike: bool, name: str, t: str, most: int) -> Place:
        return replace(
            place, uniform=alike, loop="together" if alike else "alone", depth=place.depth + 1, trips=place.trips * most,
            variables=(*place.variables, (name, t, alike, False)),
        )  # fmt: skip

    def while_loop(self, place: Place, spend: int) -> Stmt:
        alike = place.uniform and self.chance(0.4)
        w, limit = self.name("w"), self.random.randint(1, 7 if place.trips < 8 else 3)
        inner = self.inside(place, alike, w, "i8", limit)
        condition = self.bools(2, replace(inner, uniform=place.uniform), alike)
        body = self.block(inner, self.random.randint(1, 3), spend // 2)
        return Stmt("while", (condition,), (body,), (w, limit, self.random.choice(("first", "last", "true"))))

    def leave_loop(self, place: Place, spend: int) -> Stmt:
        condition = self.bools(2, place, alike=place.loop == "together")
        return Stmt("if", (condition,), ((Stmt(self.random.choice(("break", "continue"))),), ()))

    def leave(self, place: Place, spend: int) -> Stmt:
        before = self.block(replace(place, uniform=False, loop="", depth=4), 1, 1) if self.chance(0.5) else ()
        if before and before[-1].op == "return":
            before = ()
        return Stmt("if", (self.bools(2, place),), ((*before, Stmt("return")), ()))

    def store(self, place: Place, spend: int) -> Stmt:
        array = self.random.choice([a for a in self.arrays if a.role == "out"])
        return Stmt("store", (self.index(2, place), self.stored(array.dtype, place)), attr=array.name)

    def stored(self, t: str, place: Place, depth: int = 2) -> Expr:
        """A value for an element of type t; narrow integers are cut by the store."""
        return self.held("i4" if t not in VALUES else t, depth, place)

    def put(self, place: Place, spend: int) -> Stmt:
        array = self.random.choice([a for a in self.arrays if a.role == "local"])
        return Stmt("put", (self.index(2, place), self.held(array.dtype, 2, place)), attr=array.name)

    def fill(self, place: Place, spend: int) -> Stmt:
        function = next(f for f in self.functions if f.name[0] == "g")
        array = self.random.choice([a for a in self.arrays if a.role == "local" and f"local:{a.dtype}" == function.parameters[0][1]])
        return Stmt("fill", (self.held("i4", 1, place),), attr=(function.name, array.name))

    def update(self, place: Place, spend: int) -> Stmt:
        array = self.random.choice(place.atomic)
        index = tuple(self.index(1, place) for _ in array.shape or (1,))
        return Stmt("atomic", (*index, self.operand(array.dtype, array.op, place)), attr=(array.name, array.op))

    def operand(self, t: str, op: str, place: Place) -> Expr:
        if op in ("inc", "dec"):
            return const("u4", 6)  # one limit for all: the order does not matter
        if is_float(t):
            return cast(t, self.small("i4", 15, place))
        if t == "u8":
            return cast("u8", self.held("u4", 1, place))
        return self.held(t, 2, place)

    def slot(self, place: Place, spend: int) -> Stmt:
        array = self.random.choice([a for a in self.arrays if a.role == "slot"])
        kinds = FLOATS if is_float(array.dtype) else tuple(t for t in VALUES if not is_float(t))
        name, t, _ = self.target(place, kinds)
        ops = ["add", "max", "min"]
        if not is_float(array.dtype):
            ops += ["exch", "sub", "and_", "or_", "xor", "cas", *(("inc", "dec") if array.dtype == "u4" else ())]
        op = self.random.choice(ops)
        values = [self.operand(array.dtype, op, place) for _ in range(2 if op == "cas" else 1)]
        return Stmt("slot", tuple(values), attr=(array.name, name, t, op))

    def raw(self, place: Place, spend: int) -> Stmt:
        t, name = self.random.choice(FLOATS), self.random.choice(list(RAW))
        index = tuple(self.index(1, place) for _ in range(4))
        return Stmt("raw", index, attr=(f"raw{t}{RAW[name][2]}", name, f"sp{t}"))

    def stride(self, place: Place, spend: int) -> Stmt:
        g = self.name("k")
        inner = self.inside(replace(place, uniform=False), False, g, "i8", 8)
        body = self.block(inner, self.random.randint(0, 2), spend // 2)
        return Stmt("stride", (self.held(self.big().dtype, 2, inner),), (body,), (g, "big0"))

    def big(self) -> Array:
        return next(a for a in self.arrays if a.role == "big")

    # ---- statements of all threads together -------------------------------------------------------------------------

    def free_shared(self, place: Place, *, flat: bool = False, floats: bool = True) -> Array | None:
        found = [
            a for a in self.arrays
            if a.role == "shared" and a.name not in place.busy and not (flat and a.shape) and (floats or not is_float(a.dtype))
        ]  # fmt: skip
        return self.random.choice(found) if found else None

    def taking(self, place: Place, array: Array) -> Place:
        """Inside a statement that uses a shared array; nothing there may leave an enclosing loop."""
        return replace(
            place, loop="", busy=place.busy | {array.name}, readable=tuple(a for a in place.readable if a.name != array.name),
            depth=place.depth + 1,
        )  # fmt: skip

    def exchange(self, place: Place, spend: int) -> Stmt:
        array = self.free_shared(place)
        assert array is not None
        before = self.taking(place, array)
        after = replace(before, readable=(*before.readable, array))
        value = [self.held(array.dtype, 2, before)]
        if self.chance(0.2):
            value.append(self.bools(2, before))
        kind = self.random.choice(("plain", "plain", "reversed", "rotated"))
        between = self.block(before, 1, spend // 3) if self.chance(0.3) else ()
        readers = self.block(after, self.random.randint(1, 3), spend // 2)
        return Stmt("exchange", tuple(value), (between, readers), (array.name, kind, self.random.randint(1, 40), self.has("lead")))

    def gather(self, place: Place, spend: int) -> Stmt:
        array = self.free_shared(place)
        assert array is not None
        before = self.taking(place, array)
        ops = ("max", "min") if is_float(array.dtype) else ("max", "min", "or_", "xor", *(("add",) if array.dtype != "i8" else ()))
        op = self.random.choice(ops)
        inner = replace(before, atomic=(replace(array, op=op),))
        updates = tuple(self.update(inner, 1) for _ in range(self.random.randint(1, 2)))
        if self.chance(0.4):
            updates = (Stmt("if", (self.bools(2, before),), (updates, ())),)
        readers = self.block(replace(before, readable=(*before.readable, array)), self.random.randint(1, 2), spend // 2)
        return Stmt("gather", (), (updates, readers), (array.name, self.has("lead")))

    def result_variable(self, place: Place, array: Array, alike: bool) -> tuple[str, str, bool]:
        return self.target(place, FLOATS if is_float(array.dtype) else tuple(t for t in VALUES if not is_float(t)), alike)

    def reduce(self, place: Place, spend: int) -> Stmt:
        array = self.free_shared(place, flat=True)
        if array is None:
            return self.assign(place, spend)
        name, t, _ = self.result_variable(place, array, alike=True)
        op = self.random.choice(("+", "min", "max") if is_float(array.dtype) else ("+", "min", "max", "^", "&", "|"))
        value = self.held(array.dtype, 2, self.taking(place, array))
        return Stmt("reduce", (value,), attr=(array.name, name, t, op, self.name("r"), self.has("lead")))

    def scan(self, place: Place, spend: int) -> Stmt:
        array = self.free_shared(place, flat=True, floats=False)
        if array is None:
            return self.assign(place, spend)
        name, t, _ = self.result_variable(place, array, alike=False)
        value = self.held(array.dtype, 2, self.taking(place, array))
        return Stmt("scan", (value,), attr=(array.name, name, t, self.name("r"), self.has("lead")))

    def warp(self, place: Place, spend: int) -> Stmt:
        shuffled = [t for t in ("i4", "i8", "f4", "f8") if self.typed(t)]
        kind = self.random.choice(("shuffle", "shuffle", "vote", "match"))
        if kind == "shuffle":
            t = self.random.choice(shuffled)
            name, _, _ = self.target(place, (t,))
            op = self.random.choice(("shfl_sync", "shfl_xor_sync", "shfl_up_sync", "shfl_down_sync"))
            where = self.held("i4", 1, place) if op == "shfl_sync" else const("i8", self.random.randint(0, 31))
            return Stmt("warp", (self.held(t, 2, place), where), attr=(op, name, t))
        if kind == "match":
            name, t, _ = self.target(place, ("i4", "i8"))
            return Stmt("warp", (self.small(self.random.choice(("i4", "i8")), 3, place),), attr=("match_any_sync", name, t))
        op = self.random.choice(("any_sync", "all_sync", "eq_sync", "ballot_sync", "ballot_rank"))
        kinds = ("b",) if op[:3] in ("any", "all", "eq_") and self.has("bool") else ("i4", "i8")
        name, t, _ = self.target(place, kinds)
        return Stmt("warp", (self.bools(2, place),), attr=(op, name, t))

    def vote(self, place: Place, spend: int) -> Stmt:
        op = self.random.choice(("syncthreads_count", "syncthreads_and", "syncthreads_or"))
        name, t, _ = self.target(place, ("i4", "i8"), alike=True)
        return Stmt("vote", (self.bools(2, place),), attr=(op, name, t))

    def sync(self, place: Place, spend: int) -> Stmt:
        return Stmt("sync")

    def syncwarp(self, place: Place, spend: int) -> Stmt:
        return Stmt("syncwarp")

    def sync_apart(self, place: Place, spend: int) -> Stmt:
        return Stmt("sync_apart", (self.bools(1, place),))

    # ---- expressions. alike: the same value in every thread of the block --------------------------------------------

    def held(self, t: str, depth: int, place: Place, alike: bool = False) -> Expr:
        """A value that a variable of type t may hold."""
        if t == "b":
            return cast("b", self.bools(depth, place, alike))
        if is_float(t):
            e = self.floats(t, depth, place, alike)
            return e if e.bits[0] <= HELD[t][0] and e.bits[1] >= HELD[t][1] else tree.quantised(e)
        return self.held_int(self.ints(depth, place, alike), t)

    def held_int(self, e: Expr, t: str) -> Expr:
        if t != "i8":
            return cast(t, e)
        if e.bits[0] <= HELD["i8"][0]:
            return cast("i8", e)
        return self.pick(
            (1, cast("i8", cast("i4", e))), (1, cast("i8", binary("%", e, const("i8", 1_000_000_007)))),
            (1, cast("i8", binary("&", e, const("i8", 2**40 - 1)))),
        )  # fmt: skip

    def small(self, t: str, most: int, place: Place, alike: bool = False) -> Expr:
        """An integer from 0 to most."""
        e = self.ints(1, place, alike)
        if most & (most + 1) == 0 and self.chance(0.3):
            return cast(t, binary("&", e, const("i8", most)))
        return cast(t, binary("%", e, const("i8", most + 1)))

    def index(self, depth: int, place: Place, alike: bool = False) -> Expr:
        thread = leaf("special", "i4" if self.ndim == 1 else "i8", "tid", False, (8, 0))
        choices: list[tuple[float, object]] = [
            (1, lambda: self.ints(depth, place, alike)),
            (1, lambda: const("i8", self.random.randint(0, 40))),
        ]
        if not alike and not place.function:
            choices += [
                (1.5, lambda: thread), (0.7, lambda: binary("+", thread, const("i8", self.random.randint(1, 33)))),
                (0.5, lambda: binary("*", thread, const("i8", self.random.randint(2, 33)))),
            ]  # fmt: skip
        return self.pick(*choices)()

    def leaf(self, types: tuple[str, ...], place: Place, alike: bool) -> Expr:
        """A variable, scalar argument, special register or constant of one of these types."""
        names = [(n, t, u) for n, t, u, _ in place.variables if t in types and (u or not alike)]
        if names and self.chance(0.75):
            name, t, uniform = self.random.choice(names)
            if name[0] == "w":
                return leaf("var", t, name, uniform, (4, 0))
            return leaf("scalar" if name[0] == "n" else "var", t, name, uniform)
        if "i4" in types and not place.function and self.chance(0.5):
            return self.special(alike)
        t = self.random.choice(types)
        if is_float(t):
            return const(t, self.random.choice((0.0, 1.0, -1.0, 0.5, 2.0, 3.25, -7.5, 100.0)))
        if t == "b":
            return const(t, self.chance(0.5))
        return const(t, self.random.choice((0, 1, 2, 3, 5, 7, 31, 255, *((-1, -2, -9, 2**31 - 1) if t[0] == "i" else (2**32 - 1,)))))

    def special(self, alike: bool) -> Expr:
        axes = "xyz"[: self.ndim]
        if alike or self.chance(0.2):
            return leaf(
                "special", "i4", f"cuda.{self.random.choice(('blockIdx', 'blockDim', 'gridDim'))}.{self.random.choice(axes)}", True, (9, 0)
            )
        name = self.random.choice(("gid", "tid", f"cuda.threadIdx.{self.random.choice(axes)}"))
        return leaf("special", "i8" if name == "gid" or (name == "tid" and self.ndim > 1) else "i4", name, False, (17, 0))

    def load(self, types: tuple[str, ...], place: Place, alike: bool) -> Expr | None:
        """An element of an array that may be read here, as one of these types (narrow integers as i4)."""
        found = [
            a for a in place.readable if (a.dtype if a.dtype in VALUES else "i4") in types and not (alike and a.role in ("local", "out"))
        ]
        if not found:
            return None
        array = self.random.choice(found)
        t = array.dtype if array.dtype in VALUES else "i4"
        bits = HELD[array.dtype]
        if array.role == "out":
            return Expr("own", t, (self.index(1, place),), array.name, False, bits) if array.dtype in VALUES else None
        index = tuple(self.index(1, place, alike) for _ in array.shape or (1,))
        size = array.size if array.role in ("local", "const", "shared") else 0
        how = ""
        if size and size & (size - 1) == 0 and not array.shape and self.chance(0.5):
            how = "mask"
        elif array.shape and self.chance(0.3):
            how = "view"
        elif self.chance(0.1):
            how = "negative"
        uniform = all(i.uniform for i in index) and array.role != "local" and not place.function
        return Expr("load", t, index, (array.name, how), uniform, bits)

    def call(self, types: tuple[str, ...], depth: int, place: Place, alike: bool) -> Expr | None:
        found = [f for f in self.functions if f.result in types and f.name[0] == "f"]
        if not found:
            return None
        f = self.random.choice(found)
        arrays = []
        for _, t in f.parameters:
            if t.startswith("array:"):
                same = [a.name for a in place.readable if a.dtype == t[6:] and not a.shape and a.role == "in"]
                if not same:
                    return None
                arrays.append(self.random.choice(same))
        args = tuple(self.held(t, depth - 1, place, alike) for _, t in f.parameters if ":" not in t)
        uniform = all(a.uniform for a in args) and not place.function
        return Expr("call", f.result, args, (f.name, tuple(arrays)), uniform, HELD[f.result])

    def ints(self, depth: int, place: Place, alike: bool = False) -> Expr:
        """An integer of any type, exact in it."""
        kinds = tuple(t for t in ("i4", "i8", "u4") if self.typed(t))
        if depth <= 0:
            return self.leaf(kinds, place, alike)
        kind = self.pick((2, "leaf"), (5, "binary"), (1, "shift"), (0.8, "unary"), (0.3, "power"), (0.7, "cast"), (1, "ternary"),
                         (0.8, "extreme"), (4, "load"), (1.5, "call"), (0.5, "bits"), (0.6, "float"), (0.3, "bool"))  # fmt: skip
        d = depth - 1
        match kind:
            case "binary":
                return self.integer_binary(self.ints(d, place, alike), self.ints(d, place, alike))
            case "shift":
                op, most = self.random.choice(("<<", ">>")), self.random.choice((3, 7, 15, 31))
                a, b = self.ints(d, place, alike), self.ints(d, place, alike)
                e = tree.shift(op, a, b, most)
                return e if fits(e.bits, e.type) else tree.shift(op, cast("i4", a), b, most)
            case "unary":
                op, a = self.random.choice("-~-a"), self.ints(d, place, alike)
                op = "abs" if op == "a" else op
                if op == "abs" and a.type == "i4" and a.bits[0] > 30:
                    a = cast("i8", a)
                e = tree.unary(op, a)
                return e if fits(e.bits, e.type) else tree.unary(op, cast("i8", cast("i4", a)))
            case "power":
                e = tree.power(self.ints(d, place, alike), self.random.choice((2, 3)))
                return e if e.bits[0] <= 53 else e.args[0]  # numba takes integer powers through a float64
            case "cast":
                return cast(self.random.choice((*kinds, "u8") if self.has("wide") else kinds), self.ints(d, place, alike))
            case "ternary" | "extreme":
                t = self.random.choice(kinds)
                a, b = (cast(t, self.ints(d, place, alike)) for _ in range(2))
                if kind == "extreme":
                    return tree.extreme(self.random.choice(("min", "max")), a, b)
                op = "selp" if self.chance(0.2) and not place.function else "ternary"
                return tree.select(op, self.bools(d, place, alike), a, b)
            case "load":
                return self.load(kinds, place, alike) or self.leaf(kinds, place, alike)
            case "call":
                return self.call(kinds, depth, place, alike) or self.leaf(kinds, place, alike)
            case "bits":
                return self.bit_operation(self.ints(d, place, alike))
            case "float" if self.has("float"):
                e = self.floats(self.random.choice(FLOATS), d, place, alike)
                e = e if e.bits[0] <= 30 else tree.quantised(e)
                return cast(self.random.choice(("i4", "i8")), e)
            case "bool":
                return cast("i4", self.bools(d, place, alike))
        return self.leaf(kinds, place, alike)

    def bit_operation(self, a: Expr) -> Expr:
        op = self.random.choice(("popc", "clz", "ffs", "brev"))
        t = {"popc": a.type, "clz": a.type, "ffs": "u4", "brev": "u8" if a.type == "u8" else "u4"}[op]
        if op == "brev" and a.type == "i8":
            a = cast("u4", a)
        return tree.node("bits", t, (a,), (64 if t == "u8" and op == "brev" else 32 if op == "brev" else 7, 0), op)

    def integer_binary(self, a: Expr, b: Expr) -> Expr:
        op = self.random.choice(("+", "-", "*", "+", "-", "*", "//", "%", "&", "|", "^"))
        if op in ("//", "%") and self.chance(0.6):
            b = const("i8", self.random.choice((2, 3, 7, 10, -3, 16, 1000)))
        e = binary(op, a, b)
        return e if fits(e.bits, e.type) else binary(op, cast("i4", a), cast("i4", b))

    def floats(self, t: str, depth: int, place: Place, alike: bool = False) -> Expr:
        """A float of type t, exact in it."""
        if not self.has("float"):
            return cast(t, self.small("i4", 15, place, alike))
        if depth <= 0:
            return self.leaf((t,), place, alike)
        kind = self.pick((2, "leaf"), (5, "binary"), (0.8, "divide"), (0.8, "unary"), (1, "extreme"), (1, "ternary"),
                         (0.7, "rounding"), (0.6, "fma"), (1.2, "inexact"), (0.7, "cast"), (0.7, "integer"), (2, "load"),
                         (1, "call"), (0.3, "power"))  # fmt: skip
        e = self.any_float(kind, t, depth - 1, place, alike)
        return e if fits(e.bits, t) else tree.quantised(e)

    def any_float(self, kind: str, t: str, d: int, place: Place, alike: bool) -> Expr:
        def part(kind: str = t) -> Expr:
            return self.floats(kind, d, place, alike)

        match kind:
            case "binary":
                a = part()
                b = (
                    part()
                    if t == "f4"
                    else self.pick((3, part), (1, lambda: part("f4")), (1, lambda: self.small("i4", 60, place, alike)))()
                )
                if self.chance(0.5):
                    a, b = b, a
                op = self.random.choice("++--**")
                e = binary(op, a, b)
                return e if fits(e.bits, t) else binary(op, *(tree.quantised(x) if is_float(x.type) else x for x in (a, b)))
            case "divide":
                a = tree.quantised(part())
                b = const(t, self.random.choice((0.25, 0.5, 1.5, 3.0, -2.0, 10.0)))
                if self.chance(0.3):
                    b = binary("+", tree.unary("abs", tree.quantised(part())), const(t, 1.0))
                return binary(self.random.choice(("//", "%")), a, b)
            case "unary":
                return tree.unary(self.random.choice(("-", "abs")), part())
            case "extreme":
                return tree.extreme(self.random.choice(("min", "max")), part(), part())
            case "ternary":
                op = "selp" if self.chance(0.2) and not place.function else "ternary"
                return tree.select(op, self.bools(d, place, alike), part(), part())
            case "rounding":
                op, a = self.random.choice(("floor", "ceil", "trunc", "fabs")), part()
                bits = a.bits if op == "fabs" else (max(a.bits[0], 1), max(a.bits[1], 0))
                return tree.node("rounding", t, (a,), bits, op)
            case "fma":
                a, b, c = part(), part(), part()
                bits = (max(a.bits[0] + b.bits[0], c.bits[0]) + 1, min(a.bits[1] + b.bits[1], c.bits[1]))
                if not fits(bits, t):
                    a, b, c = (tree.quantised(x) for x in (a, b, c))
                    bits = (15, -8)
                return tree.node("fma", t, (a, b, c), bits)
            case "inexact":
                return tree.quantised(self.rounded(t, part(), part()))
            case "cast":
                return cast(t, part("f4" if t == "f8" else "f8"))
            case "integer":
                return cast(t, self.small("i4", 60, place, alike))
            case "load":
                return self.load((t,), place, alike) or self.leaf((t,), place, alike)
            case "call":
                return self.call((t,), d + 1, place, alike) or self.leaf((t,), place, alike)
            case "power":
                a = part()
                e = tree.power(a, 2)
                return e if fits(e.bits, t) else tree.power(tree.quantised(a), 2)
        return self.leaf((t,), place, alike)

    def rounded(self, t: str, a: Expr, b: Expr) -> Expr:
        """One correctly rounded operation."""
        op = self.random.choice(("/", "sqrt", "*"))
        if op == "sqrt":
            return tree.inexact("sqrt", t, tree.unary("abs", a))
        if op == "/":
            b = binary("+", tree.unary("abs", tree.quantised(b)), const(t, 1.0))
        return tree.inexact(op, t, a, b)

    def bools(self, depth: int, place: Place, alike: bool = False) -> Expr:
        if depth <= 0 or self.chance(0.1):
            if self.has("bool"):
                return self.leaf(("b",), place, alike)
            depth = 1
        d = depth - 1
        kind = self.pick((5, "ints"), (2, "floats"), (1.5, "logic"), (0.5, "not"), (0.5, "chain"), (0.3, "truth"))
        op = self.random.choice(tuple(COMPARE))
        match kind:
            case "floats" if self.has("float"):
                a = self.floats(self.random.choice(FLOATS), d, place, alike)
                b = self.pick(
                    (3, lambda: self.floats(self.random.choice(FLOATS), d, place, alike)), (1, lambda: self.small("i4", 20, place, alike))
                )
                return tree.compare(op, a, b())
            case "logic":
                return tree.logical(self.random.choice(("and", "or")), self.bools(d, place, alike), self.bools(d, place, alike))
            case "not":
                return tree.logical("not", self.bools(d, place, alike))
            case "chain":
                parts = tuple(self.ints(d, place, alike) for _ in range(3))
                return tree.node("chain", "b", parts, (1, 0), (op, self.random.choice(("<", "<=", ">", ">="))))
            case "truth":
                return cast("b", self.ints(d, place, alike))
        a, b = self.ints(d, place, alike), self.ints(d, place, alike)
        if self.chance(0.3):
            a, b = binary("%", a, const("i8", self.random.choice((2, 3, 5)))), const("i8", self.random.randint(0, 4))
        return tree.compare(op, a, b)


def assigned(body: tuple[Stmt, ...]) -> set[str]:
    """Names of the variables that some statement changes."""
    where = {"assign": [0], "swap": [0, 1], "choose": [0], "slot": [1], "reduce": [1], "scan": [1], "warp": [1], "vote": [1]}
    return {s.attr[k] for s in tree.statements(body) if s.op in where for k in where[s.op]}


RICH = frozenset(
    (
        "for",
        "while",
        "break",
        "continue",
        "return",
        "atomic",
        "slot",
        "raw",
        "exchange",
        "gather",
        "reduce",
        "scan",
        "warp",
        "sync_apart",
        "vote",
        "stride",
        "fill",
        "swap",
        "choose",
    )  # fmt: skip
)


def generate(seed: int) -> Kernel:
    """The kernel of a seed: of several attempts the first with enough kinds of statements beyond assignments."""
    for attempt in range(100):
        kernel = Generator(seed, attempt).kernel()
        if len(RICH & {s.op for s in tree.statements(kernel.body)}) >= (5 if seed >= LARGE_FROM else 3):
            return kernel
    return kernel


# ---- launches and their arguments -----------------------------------------------------------------------------------

ODD_BLOCKS = {
    1: [(1,), (7,), (31,), (33,), (50,), (65,), (100,), (40,), (32,), (64,), (128,)],
    2: [(5, 7), (33, 2), (16, 4), (1, 40), (3, 11), (17, 5), (8, 8), (32, 3), (64, 2), (32, 1)],
    3: [(3, 5, 4), (7, 1, 9), (2, 2, 2), (1, 1, 37), (4, 8, 2), (5, 3, 3), (11, 3, 2), (32, 2, 1), (32, 1, 3), (64, 1, 1)],
}
FULL_BLOCKS = {
    1: [(32,), (64,), (96,), (128,)],
    2: [(8, 8), (16, 4), (2, 16), (24, 4), (32, 2), (64, 1), (32, 1)],
    3: [(4, 8, 2), (2, 4, 4), (8, 4, 3), (32, 2, 1), (32, 1, 3), (32, 1, 1)],
}
GRIDS = {1: [(1,), (2,), (3,), (5,)], 2: [(1, 1), (2, 1), (1, 3), (2, 2)], 3: [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 3), (2, 2, 1)]}
THREADS = 260  # of a launch: what the oracle can afford


def needs_full_warps(kernel: Kernel) -> bool:
    return any(s.op in ("warp", "syncwarp") for s in tree.statements(kernel.body))


def _three(dims: tuple[int, ...]) -> tuple[int, int, int]:
    return (*dims, 1, 1)[:3]  # type: ignore[return-value]


def launches(kernel: Kernel, count: int = 3) -> list[Launch]:
    """Blocks and grids of several shapes, the last ones smaller than a warp or larger than one, with data of their own."""
    r = random.Random(kernel.seed * 7919 + 1)
    blocks = (FULL_BLOCKS if needs_full_warps(kernel) else ODD_BLOCKS)[kernel.ndim]
    # one class a kernel: the engine compiles blocks whose rows are whole warps apart
    rows = r.random() < (0.5 if needs_full_warps(kernel) else 0.2)
    blocks = [b for b in blocks if (b[0] % 32 == 0) == rows] or blocks
    found = []
    for k, block in enumerate(r.sample(blocks, min(count, len(blocks)))):
        n = int(np.prod(block))
        grid = r.choice([g for g in GRIDS[kernel.ndim] if int(np.prod(g)) * n <= THREADS] or GRIDS[kernel.ndim][:1])
        found.append(Launch(_three(grid), _three(block), kernel.seed * 31 + k))
    return found


EXTREMES = {
    "i": lambda bits: [0, 1, -1, 2, -2, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 100, -100],
    "u": lambda bits: [0, 1, 2, 2**bits - 1, 2 ** (bits - 1), 100],
}
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1.5, 2.5, -2.5, 0.1, 1 / 3, 7.0, 1e-3, 65504.0, 123456.78, -9876.5]


def elements(t: str, n: int, r: np.random.Generator, plain: bool = False) -> np.ndarray:
    """n values a variable of this type may hold, extreme ones among them."""
    if plain:
        return (np.arange(n) % 5).astype(DTYPES[t])
    if is_float(t):
        return (r.integers(-1600, 1600, n) / 16).astype(DTYPES[t])
    high = HELD[t][0]
    low = 0 if t[0] == "u" else -(2**high)
    small = r.integers(0 if t[0] == "u" else -9, 10, n)
    values = np.where(r.random(n) < 0.5, small, r.integers(low, 2**high - 1, n, dtype=np.uint64 if t == "u8" else np.int64).astype(object))
    extremes = np.array(EXTREMES[t[0]](min(high + (t[0] == "i"), 64)), object)
    values = np.where(r.random(n) < 0.15, r.choice(extremes, n), values)
    return np.array([int(v) for v in values], DTYPES[t])


def specials(t: str, r: np.random.Generator, plain: bool = False) -> np.ndarray:
    info = np.finfo(DTYPES[t])
    values = (
        [1.0, 2.0, 0.5] if plain else [*SPECIAL, info.max, -info.max, info.tiny, info.smallest_subnormal, info.eps, *r.normal(0, 10, 12)]
    )
    return np.array(values, DTYPES[t])


def arguments(kernel: Kernel, launch: Launch) -> dict[str, object]:
    """Arguments by name, in the kernel's order: NumPy arrays and scalars. Every array has an order that numba accepts."""
    wanted = set(parameters(kernel))
    found: dict[str, object] = {}
    total = launch.blocks * launch.threads
    for k, a in enumerate(kernel.arrays):
        r = np.random.default_rng((launch.data_seed, k))
        if a.name not in wanted:
            continue
        shape: tuple[int, ...]
        if a.role == "special":
            found[a.name] = specials(a.dtype, r, launch.plain)
            continue
        if a.role == "in":
            shape = tuple(int(n) for n in r.integers(2, 9, 2)) if a.shape else (int(r.integers(1, 70)),)
        elif a.role in ("out", "raw"):
            shape = (total, a.size) if a.layout == "2d" else (total * a.size,)
        elif a.role == "slot":
            shape = (total,)
        elif a.role == "big":
            shape = (int(r.integers(1, 400)),)
        else:
            shape = a.shape or (a.size,)
        if a.role == "raw":
            values = np.full(shape, 9.0, DTYPES[a.dtype])
        elif a.role == "acc" and a.op == "inc":
            values = elements("u1", int(np.prod(shape)), r, True).astype(DTYPES[a.dtype])
        else:
            values = elements(a.dtype, int(np.prod(shape)), r, launch.plain)
        found[a.name] = np.array(values.reshape(shape), order=a.order if len(shape) == 2 and 1 not in shape else "C")  # type: ignore[call-overload]
    for k, (name, t) in enumerate(kernel.scalars):
        if name in wanted:
            r = np.random.default_rng((launch.data_seed, 100 + k))
            value = bool(r.integers(2)) if t == "b" else elements(t, 1, r, launch.plain)[0]
            found[name] = value.item() if t in ("i8", "f8") else value
    return found


def dynamic_bytes(kernel: Kernel) -> int:
    return sum(a.size * DTYPES[a.dtype].itemsize for a in kernel.arrays if a.role == "shared" and a.layout == "dynamic")
