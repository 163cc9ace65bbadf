"""Random kernels that are valid, free of races and of undefined results by construction. One seed, one kernel, always the same.

Each kernel draws the features it may use (swarm testing: a kernel of few features goes deeper into them).
"""

from __future__ import annotations

from dataclasses import replace

import kernel_tree as tree
from kernel_statements import Statements
from kernel_tree import FLOATS, Array, Expr, Function, Kernel, Stmt, Variable, binary, const, is_float, leaf
from kernel_values import LARGE_FROM, VALUES, Place
from raw_operations import KINDS


class Generator(Statements):
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
        if self.winding:
            n, spend = r.randint(1, 4), r.randint(20, 40)
        body = self.block(place, n, spend)
        changed = assigned(body)
        body += self.results([v for v in scope if v[0] in changed])
        return Kernel(self.seed, self.ndim, tuple(self.arrays), scalars, tuple(variables), tuple(self.functions), body)

    def first_value(self, t: str, place: Place, alike: bool) -> Expr:
        """An array's element where one is of the type, so that threads differ."""
        found = self.load((t,), place, alike) if self.chance(0.6) else None
        return found or self.held(t, 1, place, alike)

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
