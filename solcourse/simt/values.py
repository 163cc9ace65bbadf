"""Values of the warp code: constants, scalars and vectors of 32 lanes, slots, and the small helpers that ops.py and calls.py write with."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from solcourse.simt import lanes, ops
from solcourse.simt.cfg import BARRIER, Cfg, is_grid_sync
from solcourse.simt.ir import Address, Const, Function, Instr, leaves, type_text
from solcourse.simt.layout import LAUNCH, THREAD
from solcourse.simt.pieces import LANE_IDS, V1
from solcourse.simt.plan import FRAME, Plan
from solcourse.simt.shadow import DECLARATIONS
from solcourse.simt.strides import Strides


class Values:
    """Text under construction (`out`), the plan, and the values known in the block at hand (`env`)."""

    def __init__(
        self, function: Function, cfg: Cfg, roots, counters: bool, observer, rows_uniform: bool, wide: bool, raises: bool, checks: bool
    ):
        self.checks = checks
        self.looks = {id(i) for looks in cfg.spins.values() for i in looks}
        self.f, self.cfg, self.roots, self.counters, self.observer = function, cfg, roots, counters, observer
        self.rows_uniform, self.wide, self.raises = rows_uniform, wide, raises
        self.strides = Strides(cfg, rows_uniform)
        self.plan = Plan()
        self.out: list[str] = []
        self.n = 0
        self.declared: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.env: dict[str, object] = {}
        self.globals_env: dict[str, str] = {}
        self.casts: dict[str, str] = {}
        self.node = 0
        self.current_mask = ""
        self.current_mask_vector: str | None = None
        self.types = {i.dest: i.type for n in cfg.nodes for i in (*n.phis, *n.body) if i.dest}
        for n in cfg.nodes:
            if n.term.op == BARRIER and n.term.attr.dest:
                self.types[n.term.attr.dest] = n.term.attr.type
        self.barriers = [k for k, n in enumerate(cfg.nodes) if n.term.op == BARRIER]
        self.parks = bool(self.barriers or cfg.spins)  # whether a warp can stop and go on later
        self.plan.has_barriers = self.parks
        self._waits()
        self._rows()
        self._slots()

    def _waits(self) -> None:
        """Who may wait for whom: what decides how the machine runs blocks."""
        plan, looked_at = self.plan, [i for looks in self.cfg.spins.values() for i in looks]
        calls = [i for n in self.cfg.nodes for i in (*n.body, n.term.attr if n.term.op == BARRIER else n.term) if i.op == "call"]
        plan.grid_line = next((i.line for i in calls if i.attr[0].startswith("cudaCG")), 0)
        plan.grid_barriers = tuple(n for n, b in enumerate(self.barriers) if is_grid_sync(self.cfg.nodes[b].term.attr))
        plan.waits = bool(looked_at or plan.grid_barriers)
        plan.crosses = bool(plan.grid_barriers) or any(
            kind in ("param", "unknown") for i in looked_at for kind, _ in self.roots.of(i.args[0])
        )
        plan.ordered, plan.spins, plan.lockstep = plan.crosses, bool(looked_at), self.cfg.lockstep

    def _rows(self) -> None:
        """ALLOC rows: pointer parameters, shared arrays, constants, an empty row, local arrays."""
        plan = self.plan
        self.params = self.f.params[1:]
        rows = [("param", name) for t, name in self.params if t == "ptr"]
        used = {a.name for n in self.cfg.nodes for i in (*n.phis, *n.body, n.term) for a in i.args if isinstance(a, Address)}
        offset = 0
        for name in sorted(used):
            g = self.f.globals[name]
            if g.space == 3:
                if g.size == 0:
                    continue
                offset = -(-offset // max(g.align, 8)) * max(g.align, 8)
                plan.shared_offsets[name] = offset
                plan.shared_sizes[name] = g.size
                offset += g.size
        plan.shared_bytes = offset
        dynamic = -(-offset // 16) * 16
        for name in sorted(used):
            if self.f.globals[name].space == 3 and self.f.globals[name].size == 0:
                plan.shared_offsets[name] = dynamic
        rows += [("shared", n) for n in plan.shared_offsets]
        rows += [("constant", n) for n in sorted(used) if self.f.globals[n].space != 3]
        plan.find_rows = len(rows)
        rows.append(("empty", ""))
        local = 0
        for i in (i for n in self.cfg.nodes for i in n.body if i.op == "alloca"):
            local = -(-local // 16) * 16
            plan.local_offsets[i.dest] = local
            plan.local_sizes[i.dest] = int(i.attr)
            rows.append(("local", i.dest))
            local += int(i.attr)
        plan.local_bytes = -(-local // 16) * 16
        if len(plan.local_offsets) > 1 or self._mixes_local():  # for pointers that may go to several local arrays, or elsewhere too
            plan.local_offsets[FRAME], plan.local_sizes[FRAME] = 0, local
            rows.append(("local", FRAME))
        plan.rows = rows
        self.row_of = {r: k for k, r in enumerate(rows)}

    def _mixes_local(self) -> bool:
        """Whether some access may go to local memory and to another space."""
        reached = ({kind for kind, _ in self.roots.of(i.args[0])} for n in self.cfg.nodes for i in n.body if i.op in ("load", "store"))
        return any("local" in kinds and len(kinds) > 1 for kinds in reached)

    def _slots(self) -> None:
        self.slots: dict[str, list[tuple[str, str, object]]] = {}  # name -> [(slot, text type, type)]
        for k, name in enumerate(sorted(self.cfg.cross)):
            members = leaves(self.types[name])
            self.slots[name] = [(f"%s{k}.{j}", self.text_type(m, name in self.cfg.divergent), m) for j, m in enumerate(members)]

    def op(self, text: str) -> str:
        self.n += 1
        self.out.append(f"  %t{self.n} = {text}")
        return f"%t{self.n}"

    def line(self, text: str) -> None:
        self.out.append("  " + text)

    def label(self, name: str) -> None:
        self.out.append(f"{name}:")

    def fresh(self, stem: str) -> str:
        self.n += 1
        return f"{stem}{self.n}"

    # ---- what the checks build tells shadow.py

    def tell(self, function: str, *arguments: str) -> None:
        """Calls a function of shadow.py with the thread's record and int64 arguments."""
        self.declared[function] = DECLARATIONS[function]
        record = self.op("ptrtoint ptr %t to i64")
        self.line(f"call void @{function}({', '.join(f'i64 {a}' for a in (record, *arguments))})")

    @contextmanager
    def seldom(self, lanes: str) -> Iterator[None]:
        """Code for when there are any such lanes (an i32 mask). What it computes is not known behind it."""
        known = dict(self.env), dict(self.casts), self.current_mask_vector
        some, on = self.fresh("some"), self.fresh("on")
        self.line(f"br i1 {self.op(f'icmp ne i32 {lanes}, 0')}, label %{some}, label %{on}, !prof !2")
        self.label(some)
        yield
        self.line(f"br label %{on}")
        self.label(on)
        self.env, self.casts, self.current_mask_vector = known

    def note(self, kind: str, i: Instr, lanes: str, value: str = "0", other: str = "0") -> None:
        """Remember that these lanes (i32 mask; none: nothing happens) did `kind` at i. value, other: <32 x i64> that say more, or "0"."""
        array = self._array_after(i) if kind in ("wrapped_index", "index_overflow") else ""
        self.plan.notes.append((kind, i.line, i.file, array))
        with self.seldom(lanes):
            at = self.op(f"getelementptr i8, ptr %t, i64 {THREAD['scratch']}")
            scratch = self.op(f"load ptr, ptr {at}")
            for k, v in enumerate((value, other)):
                place = self.op(f"getelementptr i8, ptr {scratch}, i64 {256 * k}")
                self.line(f"store <32 x i64> {'zeroinitializer' if v == '0' else v}, ptr {place}, align 64")
            where = self.op(f"ptrtoint ptr {scratch} to i64")
            self.tell("simt_note", str(len(self.plan.notes) - 1), self.op(f"zext i32 {lanes} to i64"), where)

    def _array_after(self, i: Instr) -> str:
        """The array that is accessed next, on the same line: a mark stands before the access whose index it is about."""
        body = self.cfg.nodes[self.node].body
        at = next((k for k, other in enumerate(body) if other is i), len(body))
        access = next((j for j in body[at:] if j.op in ("load", "store", "atomicrmw", "cmpxchg") and j.line == i.line), None)
        roots = self.roots.of(access.args[0]) if access else set()
        return self.roots.array_name(next(iter(roots))) if len(roots) == 1 else ""

    def fence(self, own: bool) -> None:
        """A threadfence() of the active lanes; own: for threads of their block only."""
        self.plan.fences = True
        self.tell("simt_fence", str(int(own)))

    def returned(self, i: Instr) -> None:
        """The active lanes are at the kernel's end, not at a `return` before it."""
        self.tell("simt_fell_off", self.op(f"zext i32 {self.current_mask} to i64"))

    @staticmethod
    def memory_type(t: object) -> str:
        if not isinstance(t, str):
            raise ValueError(f"compound type {type_text(t)}")
        return "i64" if t == "ptr" else t

    def text_type(self, t: object, vector: bool) -> str:
        t = self.memory_type(t)
        return f"<32 x {t}>" if vector else t

    def mangle(self, t: object, vector: bool) -> str:
        t = self.memory_type(t)
        short = {"float": "f32", "double": "f64", "half": "f16"}.get(t, t)
        return f"v32{short}" if vector else short

    def varies(self, x: object) -> bool:
        return isinstance(x, str) and x in self.cfg.divergent

    def is_vector(self, i: Instr) -> bool:
        return i.dest in self.cfg.divergent

    def type(self, i: Instr) -> str:
        return self.text_type(i.type, self.is_vector(i))

    def bool_type(self, i: Instr) -> str:
        return self.text_type("i1", self.is_vector(i))

    def constant(self, t: object, value: object, vector: bool) -> str:
        t = self.memory_type(t)
        text = self._number(t, value)
        return f"splat ({t} {text})" if vector else text

    @staticmethod
    def _number(t: str, value: object) -> str:
        if t in ("float", "double"):
            return f"0x{struct.unpack('<Q', struct.pack('<d', float(value or 0)))[0]:016X}"  # type: ignore[arg-type]
        if t == "half":
            return f"0xH{struct.unpack('<H', struct.pack('<e', float(value or 0)))[0]:04X}"  # type: ignore[arg-type]
        if t == "i1":
            return "true" if value else "false"
        return str(int(value or 0))  # type: ignore[call-overload]

    def splat_const(self, i: Instr, value: object) -> str:
        return self.constant(i.type, value, self.is_vector(i))

    def pair(self, i: Instr) -> tuple[str, str]:
        v = self.is_vector(i)
        return self.value(i.args[0], v, i.type), self.value(i.args[1], v, i.type)

    def value(self, x: object, vector: bool, t: object) -> str:
        """The operand as text: a scalar, or (vector=True) 32 lanes."""
        if isinstance(x, Const):
            return self.constant(t, x.value, vector)
        if isinstance(x, Address):
            scalar = self._global_address(x)
            return self.broadcast(scalar, "i64") if vector else scalar
        text = self._lookup(str(x))
        if not isinstance(text, str):
            raise ValueError("a compound value where a number is expected")
        if vector and not self.varies(x):
            return self.broadcast(text, self.memory_type(t))
        return text

    def aggregate(self, x: object, t: object, vector: bool) -> tuple:
        """The leaves of a compound value of type t."""
        if isinstance(x, Const):
            values = x.value if isinstance(x.value, tuple) else [0] * len(leaves(t))
            return tuple(self.constant(leaf, v, vector) for leaf, v in zip(leaves(t), values, strict=True))
        value = self._lookup(str(x))
        parts = value if isinstance(value, tuple) else (value,)
        if vector and not self.varies(x):
            return tuple(self.broadcast(str(p), self.memory_type(leaf)) for p, leaf in zip(parts, leaves(t), strict=True))
        return parts

    def broadcast(self, scalar: str, t: str) -> str:
        if not scalar.startswith("%"):
            return f"splat ({t} {scalar})"
        if scalar not in self.casts:
            one = self.op(f"insertelement <32 x {t}> poison, {t} {scalar}, i64 0")
            self.casts[scalar] = self.op(f"shufflevector <32 x {t}> {one}, <32 x {t}> poison, <32 x i32> zeroinitializer")
        return self.casts[scalar]

    def _lookup(self, name: str) -> object:
        if name in self.env:
            return self.env[name]
        if name in self.globals_env:
            return self.globals_env[name]
        if name not in self.slots:
            raise ValueError(f"value {name} is used before it is defined")
        parts = tuple(self.op(f"load {tt}, ptr {s}") for s, tt, _ in self.slots[name])
        self.env[name] = parts[0] if isinstance(self.types[name], str) else parts
        return self.env[name]

    def _global_address(self, a: Address) -> str:
        g = self.f.globals[a.name]
        if g.space == 3:
            return self.op(f"add i64 %shared, {self.plan.shared_offsets[a.name] + a.offset}")
        base = f"ptrtoint (ptr @{self._global_name(a.name)} to i64)"
        return self.op(f"add i64 {base}, {a.offset}")

    @staticmethod
    def _global_name(name: str) -> str:
        return f'"{name}"'

    def call(self, name: str, result: str, operands: list[tuple[str, str]]) -> str:
        self.declared.setdefault(name, f"declare {result} @{name}({', '.join(t for t, _ in operands)})")
        return self.op(f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in operands)})")

    def call_lanes(self, symbol: str, t: str, operands: list[tuple[str, str]]) -> str:
        """A scalar C function for each active lane."""
        name = f"lanes.{symbol}"
        if name not in self.helpers:
            types = [ty for ty, _ in operands]
            self.declared.setdefault(symbol, f"declare {t} @{symbol}({', '.join(types)})")
            code = (
                f"define internal <32 x {t}> @{name}("
                + ", ".join(f"<32 x {ty}> %a{k}" for k, ty in enumerate(types))
                + ", i32 %m) noinline {\nentry:\n"
            )
            code += "".join(
                f"  %p{k} = alloca [32 x {ty}], align 64\n  store <32 x {ty}> %a{k}, ptr %p{k}, align 64\n" for k, ty in enumerate(types)
            )
            code += f"  %r = alloca [32 x {t}], align 64\n  store [32 x {t}] zeroinitializer, ptr %r, align 64\n  br label %head\nhead:\n"
            code += "  %left = phi i32 [ %m, %entry ], [ %rest, %head ]\n  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)\n  %l = zext i32 %lane to i64\n"
            for k, ty in enumerate(types):
                code += f"  %q{k} = getelementptr {ty}, ptr %p{k}, i64 %l\n  %x{k} = load {ty}, ptr %q{k}\n"
            code += f"  %y = call {t} @{symbol}(" + ", ".join(f"{ty} %x{k}" for k, ty in enumerate(types)) + ")\n"
            code += f"  %rp = getelementptr {t}, ptr %r, i64 %l\n  store {t} %y, ptr %rp\n  %less = sub i32 %left, 1\n  %rest = and i32 %left, %less\n"
            code += f"  %more = icmp ne i32 %rest, 0\n  br i1 %more, label %head, label %end\nend:\n  %v = load <32 x {t}>, ptr %r, align 64\n  ret <32 x {t}> %v\n}}\n"
            self.helpers[name] = code
        args = ", ".join(f"<32 x {ty}> {v}" for ty, v in operands)
        return self.op(f"call <32 x {t}> @{name}({args}, i32 {self.mask()})")

    def rounded(self, op: str, mode: str, result: str, operands: list[tuple[str, str]], types: tuple[object, object, bool]) -> str:
        """A float operation under a rounding mode, in a function of its own: no other code may run in that mode."""
        name = f"rounded.{op}.{mode}." + ".".join(self.mangle(t, types[2]) for t in types[:2])
        if name not in self.helpers:
            intrinsic = f"llvm.experimental.constrained.{op}." + ".".join(name.split(".")[3 : 5 if op in lanes.CONVERSIONS else 4])
            arguments = [t for t, _ in operands]
            self.helpers[name] = lanes.rounded_function(name, intrinsic, mode, result, arguments)
            self.declared[intrinsic] = f"declare {result} @{intrinsic}({', '.join((*arguments, 'metadata', 'metadata'))})"
            self.declared["llvm.set.rounding"] = "declare void @llvm.set.rounding(i32)"
        return self.op(f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in operands)})")

    def mask(self) -> str:
        return self.current_mask

    def mask_vector(self) -> str:
        if self.current_mask_vector is None:
            self.current_mask_vector = self.op(f"bitcast i32 {self.current_mask} to {V1}")
        return self.current_mask_vector

    def active_bits(self, x: object) -> str:
        """The lanes of the current mask for which a boolean is true, as an i32."""
        vector = self.varies(x)
        if not vector:
            return self.op(f"select i1 {self.value(x, False, 'i1')}, i32 {self.current_mask}, i32 0")
        frozen = self.op(f"freeze {V1} {self.value(x, True, 'i1')}")  # lanes that are off may be poison
        bits = self.op(f"bitcast {V1} {frozen} to i32")
        return self.op(f"and i32 {bits}, {self.current_mask}")

    def special(self, name: str, i: Instr) -> str:
        """A special register."""
        kind, _, part = name.partition(".")
        if kind == "tid":
            return f"%{'tid' if self.is_vector(i) else 'row'}.{part}"
        if kind in ("ntid", "ctaid", "nctaid"):
            return f"%{name}"
        if kind == "lanemask":
            return self._lane_mask(part)
        if name in ("laneid", "warpsize"):
            return LANE_IDS if name == "laneid" else "32"
        raise ops.unsupported(i, f"The special register %{name}")

    def _lane_mask(self, which: str) -> str:
        """Per lane the lanes that are equal to, less than, ... it."""
        v, one, ones = "<32 x i32>", self.constant("i32", 1, True), self.constant("i32", -1, True)
        bit = self.op(f"shl {v} {one}, {LANE_IDS}")
        below = self.op(f"sub {v} {bit}, {one}")
        up_to = self.op(f"or {v} {below}, {bit}")
        if which in ("ge", "gt"):
            return self.op(f"xor {v} {below if which == 'ge' else up_to}, {ones}")
        return {"eq": bit, "lt": below, "le": up_to}[which]

    def match_any(self, value: str, t: str) -> str:
        """Per active lane the mask of active lanes with the same value."""
        name = f"match.{t}"
        if name not in self.helpers:
            self.helpers[name] = lanes.match_function(name, t)
        return self.op(f"call <32 x i32> @{name}(<32 x {t}> {value}, i32 {self.mask()})")

    def dynamic_shared_bytes(self) -> str:
        at = self.op(f"getelementptr i8, ptr %l, i64 {LAUNCH['dynamic_shared']}")
        return self.op(f"load i32, ptr {at}, !invariant.load !0")

    def permute(self, value: str, t: str, source: str) -> str:
        """Lane k of the result is lane source[k] of value."""
        name = f"permute.{t}"
        if name not in self.helpers:
            self.helpers[name] = lanes.permute_function(name, t, self.wide)
        return self.op(f"call <32 x {t}> @{name}(<32 x {t}> {value}, <32 x i32> {source})")
