"""Random statements. Barriers stand only where every living thread of a block passes together, breaks only leave loops that
hold no barrier or by a condition all share, shared elements are written by their owner and read after a barrier.
"""

from __future__ import annotations

from dataclasses import replace

import kernel_tree as tree
from kernel_tree import FLOATS, Array, Expr, Stmt, cast, const, is_float
from kernel_values import MAX_TRIPS, VALUES, Place, Values
from raw_operations import RAW


class Statements(Values):
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
        nests = spend > 1 and place.depth < (7 if self.winding else 4)
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
