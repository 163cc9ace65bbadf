"""Random values: expressions of a wanted type that are exact, in range and legal where they stand.

`Place` is what is legal at one point of the program. alike: an expression that is the same in every thread of the block.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import kernel_tree as tree
from kernel_tree import FLOATS, HELD, Array, Expr, Function, binary, cast, const, fits, is_float, leaf

FEATURES = ("if", "for", "while", "break", "return", "shared", "warp", "vote", "atomic", "slot", "local", "function", "fill",
            "float", "raw", "stride", "else", "bool", "wide", "plane", "const", "apart", "dynamic", "lead")  # fmt: skip
MAX_TRIPS = 48  # of all loops around a statement
COMPARE = ("<", "<=", ">", ">=", "==", "!=")
LARGE_FROM = 1000  # seeds from here on: every fourth kernel is large (seconds to compile), another fourth is all control flow
CONTROL = frozenset(("if", "for", "while", "break", "return", "else"))
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


class Values:
    def __init__(self, seed: int, attempt: int = 0):
        self.seed = seed
        self.random = random.Random(f"{seed}.{attempt}")
        self.features = {f for f in FEATURES if self.random.random() < (0.8 if f == "float" else 0.6)} | {"if"}
        self.functions: list[Function] = []
        self.arrays: list[Array] = []
        self.count = 0
        self.ndim = self.random.choice((1, 1, 1, 2, 2, 3))
        self.large = seed >= LARGE_FROM and seed % 4 == 3
        self.winding = seed >= LARGE_FROM and seed % 4 == 2
        if self.winding:
            self.features = CONTROL | {f for f in ("shared", "vote", "apart", "lead", "local", "bool") if self.chance(0.3)}
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

    def typed(self, t: str) -> bool:
        """Whether variables and arrays of this type are used."""
        if t in FLOATS:
            return self.has("float") and t in self.reals
        return self.has({"b": "bool", "u4": "wide"}[t]) if t in ("b", "u4") else t in self.integers

    def value_types(self) -> list[str]:
        return [t for t in VALUES if self.typed(t)]

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
        if depth <= 0 or (self.winding and depth < 2):
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
