"""The kernel as warp code: one LLVM function that runs 32 lanes from a block's entry, or a barrier, to its end or the next.

A value that is the same in all lanes is a scalar, any other a vector of 32. Control is a mask of waiting lanes per basic
block; the lowest-numbered block with waiting lanes runs next (cfg.py). Values read in other blocks live in slots (allocas
that LLVM turns into registers); what lives across a barrier is saved per warp. Pointers are 64-bit integers.
The emitter knows control flow and values; ops.py knows operations, access.py memory, observers count.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from solcourse.simt import access, ops
from solcourse.simt.cfg import BARRIER, Cfg, transitions
from solcourse.simt.ir import Address, Const, Function, Instr, type_size, type_text
from solcourse.simt.layout import (
    ALLOC,
    ALLOC_BYTES,
    AT_BARRIER,
    DONE,
    ERROR_STOPPED,
    ERROR_UNREACHABLE,
    FAILED,
    LAUNCH,
    RELEASED,
    SPINNING,
    THREAD,
)  # fmt: skip
from solcourse.simt.runtime import V1

SPIN_TURNS = 32  # turns of a waiting loop before others may run
FRAME = "%frame"  # all local arrays of a thread together
INLINE_SITES = 48  # more memory instructions than this: their code is called, not inlined, to keep compile time down


@dataclass(slots=True)
class Plan:
    """What the emitter decided that the machine must know."""

    rows: list[tuple[str, str]] = field(default_factory=list)  # (kind, name) of each ALLOC row; see Emitter._rows
    sites: list[tuple[Instr, int, str, str, int, str]] = field(default_factory=list)  # instr, node, space, op, size, array
    saved_bytes: int = 0
    local_bytes: int = 0  # per lane
    local_offsets: dict[str, int] = field(default_factory=dict)
    local_sizes: dict[str, int] = field(default_factory=dict)
    shared_offsets: dict[str, int] = field(default_factory=dict)
    shared_sizes: dict[str, int] = field(default_factory=dict)  # dynamic arrays are absent
    uniform_sites: set[int] = field(default_factory=set)
    shared_bytes: int = 0
    has_barriers: bool = False
    find_rows: int = 0
    ordered: bool = False  # blocks must run in one fixed order


class Emitter:
    def __init__(self, function: Function, cfg: Cfg, roots, counters: bool, observer, rows_uniform: bool, wide: bool):
        self.f, self.cfg, self.roots, self.counters, self.observer = function, cfg, roots, counters, observer
        self.rows_uniform, self.wide = rows_uniform, wide
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
        self._rows()
        self._slots()

    # ---- plan: arrays, slots ----------------------------------------------------------------------------------------

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
        if len(plan.local_offsets) > 1:  # for pointers that may go to several local arrays
            plan.local_offsets[FRAME], plan.local_sizes[FRAME] = 0, local
            rows.append(("local", FRAME))
        plan.rows = rows
        self.row_of = {r: k for k, r in enumerate(rows)}

    def _slots(self) -> None:
        self.slots: dict[str, list[tuple[str, str, object]]] = {}  # name -> [(slot, text type, type)]
        for k, name in enumerate(sorted(self.cfg.cross)):
            t = self.types[name]
            members = [t] if isinstance(t, str) else [t[2]] * t[1] if t[0] == "array" else list(t[1])
            self.slots[name] = [(f"%s{k}.{j}", self.text_type(m, name in self.cfg.divergent), m) for j, m in enumerate(members)]

    # ---- small helpers used by ops.py -------------------------------------------------------------------------------

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

    def typed_value(self, x: object, t: object) -> str:
        vector = self.varies(x)
        return self.value(x, vector, t) if vector else self.value(x, False, t)

    def default(self, t: object) -> str:
        return self.constant(t, 0, False)

    def aggregate(self, x: object) -> tuple:
        if isinstance(x, Const):
            raise ValueError("a compound constant")
        value = self._lookup(str(x))
        return value if isinstance(value, tuple) else (value,)

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

    def lane_ids(self) -> str:
        return access.lanes("i32", range(32))

    def special(self, name: str, i: Instr) -> str:
        """A special register."""
        axis = name[-1]
        if name.startswith("tid."):
            vector = self.is_vector(i)
            if vector:
                return f"%tid.{axis}"
            return f"%row.{axis}"
        if name.startswith("ntid."):
            return f"%ntid.{axis}"
        if name.startswith("ctaid."):
            return f"%ctaid.{axis}"
        if name.startswith("nctaid."):
            return f"%nctaid.{axis}"
        if name == "laneid":
            return self.lane_ids()
        if name == "warpsize":
            return "32"
        if name.startswith("lanemask."):
            v = "<32 x i32>"
            bit = self.op(f"shl {v} {self.constant('i32', 1, True)}, {self.lane_ids()}")
            below = self.op(f"sub {v} {bit}, {self.constant('i32', 1, True)}")
            le = self.op(f"or {v} {below}, {bit}")
            ones = self.constant("i32", -1, True)
            kind = name.split(".")[1]
            return {"eq": lambda: bit, "lt": lambda: below, "le": lambda: le,
                    "ge": lambda: self.op(f"xor {v} {below}, {ones}"), "gt": lambda: self.op(f"xor {v} {le}, {ones}")}[kind]()  # fmt: skip
        raise ops.unsupported(i, f"The special register %{name}")

    def match_any(self, value: str, t: str) -> str:
        """Per active lane the mask of active lanes with the same value."""
        name = f"match.{t}"
        if name not in self.helpers:
            self.helpers[name] = _match_function(name, t)
        return self.op(f"call <32 x i32> @{name}(<32 x {t}> {value}, i32 {self.mask()})")

    def dynamic_shared_bytes(self) -> str:
        at = self.op(f"getelementptr i8, ptr %l, i64 {LAUNCH['dynamic_shared']}")
        return self.op(f"load i32, ptr {at}, !invariant.load !0")

    def permute(self, value: str, t: str, source: str) -> str:
        """Lane k of the result is lane source[k] of value."""
        name = f"permute.{t}"
        if name not in self.helpers:
            self.helpers[name] = _permute_function(name, t, self.wide)
        return self.op(f"call <32 x {t}> @{name}(<32 x {t}> {value}, <32 x i32> {source})")

    # ---- memory -----------------------------------------------------------------------------------------------------

    def memory(self, i: Instr) -> object:
        pointer = i.args[0]
        t = i.type if i.op in ("load", "store") else i.attr[1]
        if not isinstance(t, str):
            return self._compound(i, t)
        t = self.memory_type(t)
        if t == "i1":
            raise ops.unsupported(i, "A one-bit memory access")
        space, row, array = self._space(i, pointer)
        size = type_size(t)
        site = len(self.plan.sites)
        self.plan.sites.append((i, self.node, space, i.op, size, array))
        if i.op == "load" and not self.is_vector(i):
            return self._scalar_load(pointer, t, size, space, row, site)
        p = self.value(pointer, True, "ptr")
        head = f"ptr %t, ptr {self._row(row, pointer)}, i32 {site}, <32 x i64> {p}, i32 {self.current_mask}"
        if i.op == "load":
            name = self._helper("load", t, size, space, row is None)
            r = self.op(f"call {{ <32 x {t}>, i1 }} @{name}({head})")
            self._check(self.op(f"extractvalue {{ <32 x {t}>, i1 }} {r}, 1"))
            return self.op(f"extractvalue {{ <32 x {t}>, i1 }} {r}, 0")
        if i.op == "store":
            name = self._helper("store", t, size, space, row is None)
            self._check(self.op(f"call i1 @{name}({head}, <32 x {t}> {self.value(i.args[1], True, i.type)})"))
            return ""
        return self._atomic(i, t, size, space, head)

    def _atomic(self, i: Instr, t: str, size: int, space: str, head: str) -> object:
        op = i.attr[0]
        if space not in ("global", "shared"):
            raise ops.unsupported(i, f"An atomic operation on {space} memory")
        name = f"atomic.{op}.{t}.{space}"
        if name not in self.helpers:
            self.helpers[name] = access.atomic_function(name, op, t, size, space, self.counters)
        if space == "global":
            read = any(i.dest in j.args for n in self.cfg.nodes for j in (*n.phis, *n.body, n.term))
            self.plan.ordered |= read or t in ("float", "double", "half") or op == "xchg" or op.startswith("cmpxchg")
        values = ", ".join(f"<32 x {t}> {self.value(a, True, t)}" for a in i.args[1:])
        self.atomic_out.add(t)
        self._check(self.op(f"call i1 @{name}({head}, {values}, ptr %old.{t})"))
        old = self.op(f"load <32 x {t}>, ptr %old.{t}, align 64")
        if op != "cmpxchg":  # an atomicrmw, or numba's compare-and-swap helper
            return old
        kind = "icmp" if t.startswith("i") else "fcmp"
        same = self.op(f"{kind} {'eq' if kind == 'icmp' else 'oeq'} <32 x {t}> {old}, {self.value(i.args[1], True, t)}")
        return (old, same)

    def _compound(self, i: Instr, t: tuple) -> object:
        """A compound load or store, member by member."""
        from solcourse.simt.ir import member_offset

        members = [t[2]] * t[1] if t[0] == "array" else list(t[1])
        if t[0] == "vector" or i.op not in ("load", "store"):
            raise ops.unsupported(i, f"A {type_text(t)} memory access")
        parts = []
        base = self.value(i.args[0], self.varies(i.args[0]), "ptr")
        wide = self.varies(i.args[0])
        for k, m in enumerate(members):
            offset = k * type_size(m) if t[0] == "array" else member_offset(t, k)
            name = f"{i.args[0]}+{offset}"
            self.env[name] = self.op(f"add {self.text_type('i64', wide)} {base}, {self.constant('i64', offset, wide)}")
            self.roots.alias(name, i.args[0])
            if wide:
                self.cfg.divergent.add(name)
            if i.op == "load":
                dest = f"{i.dest}.{k}"
                if self.is_vector(i):
                    self.cfg.divergent.add(dest)
                parts.append(self.memory(Instr("load", dest, m, (name,), i.line, i.file)))
            else:
                value = self.aggregate(i.args[1])[k]
                self.env[f"{name}.value"] = value
                if self.varies(i.args[1]):
                    self.cfg.divergent.add(f"{name}.value")
                self.memory(Instr("store", None, m, (name, f"{name}.value"), i.line, i.file))
        return tuple(parts)

    def _scalar_load(self, pointer: object, t: str, size: int, space: str, row: int | None, site: int) -> str:
        self.plan.uniform_sites.add(site)
        name = f"uload.{t}.{space}"
        if name not in self.helpers:
            self.helpers[name] = access.uniform_load_function(name, t, size, space, self.counters, self.attrs)
        p = self.value(pointer, False, "ptr")
        r = self.op(f"call {{ {t}, i1 }} @{name}(ptr %t, ptr {self._row(row, pointer)}, i32 {site}, i64 {p}, i32 {self.current_mask})")
        self._check(self.op(f"extractvalue {{ {t}, i1 }} {r}, 1"))
        return self.op(f"extractvalue {{ {t}, i1 }} {r}, 0")

    def _space(self, i: Instr, pointer: object) -> tuple[str, int | None, str]:
        """(space, ALLOC row or None when it depends on the lane, array name)."""
        found = self.roots.of(pointer)
        kinds = {kind for kind, _ in found}
        if not found or kinds == {"unknown"}:
            raise ops.unsupported(i, "A memory access through a pointer whose array is not known")
        spaces = {{"param": "global", "shared": "shared", "local": "local", "constant": "constant"}.get(k, "unknown") for k in kinds}
        if len(spaces) > 1 or "unknown" in spaces:
            raise ops.unsupported(i, "A memory access that may go to different memory spaces")
        space = spaces.pop()
        if space == "local" and len(found) > 1:
            return space, self.row_of[("local", FRAME)], "a local array"
        if len(found) == 1:
            root = next(iter(found))
            return space, self.row_of[root], self.roots.array_name(root)
        return space, None, " or ".join(sorted({self.roots.array_name(r) for r in found}))

    def _row(self, row: int | None, pointer: object) -> str:
        if row is not None:
            return f"%row.{row}"
        first = self.value(pointer, self.varies(pointer), "ptr")
        if self.varies(pointer):
            lane = self.op(f"call i32 @llvm.cttz.i32(i32 {self.current_mask}, i1 true)")
            first = self.op(f"extractelement <32 x i64> {first}, i32 {lane}")
        self.helpers["find"] = access.FIND
        return self.op(f"call ptr @find(ptr %t, i64 {first}, i64 {self.plan.find_rows})")

    def _helper(self, op: str, t: str, size: int, space: str, mixed: bool) -> str:
        name = f"{op}.{t}.{space}"
        if name not in self.helpers:
            self.helpers[name] = access.access_function(name, op, t, size, space, self.counters, self.attrs)
            self.declared[f"gather.{t}"] = access.gather_declarations(t)
            self.helpers.setdefault(f"general.{t}", access.general_functions(t, size))
        if mixed:
            many = f"mixed.{name}"
            self.helpers["find"] = access.FIND
            self.helpers.setdefault(many, _mixed_function(many, name, op, t, self.plan.find_rows))
            return many
        return name

    def _check(self, ok: str) -> None:
        cont = self.fresh("ok")
        self.line(f"br i1 {ok}, label %{cont}, label %fail, !prof !1")
        self.label(cont)

    # ---- control ----------------------------------------------------------------------------------------------------

    def emit(self) -> str:
        sites = sum(i.op in ("load", "store") for n in self.cfg.nodes for i in n.body)
        self.attrs = "alwaysinline" if sites <= INLINE_SITES else "noinline"
        self.atomic_out: set[str] = set()
        self._saved_layout()
        for k in range(len(self.cfg.nodes)):
            self._block(k)
        body = self.out
        self.out = []
        self._entry()
        head = self.out
        self.out = []
        self._done()
        return "\n".join(head + body + self.out)

    def _saved_layout(self) -> None:
        """Where a parked warp keeps its masks and live values: state i32, one mask per barrier, then slots."""
        self.saved: dict[str, int] = {}
        offset = 64 + 4 * len(self.barriers) + (4 * len(self.cfg.nodes) if self.cfg.spins else 0)
        lives = [self.cfg.live_in[self.cfg.nodes[b].succs[0]] for b in self.barriers]
        if not self.cfg.lockstep and self.parks:
            everything = set(self.cfg.cross) if self.cfg.spins else set().union(*lives)
            lives = [everything] * max(1, len(lives))
        self.lives = [sorted(live) for live in lives]
        for name in sorted(set().union(*lives) if lives else ()):
            for slot, tt, m in self.slots[name]:
                size = 4 if m == "i1" else type_size(m)
                size *= 32 if tt.startswith("<") else 1
                offset = -(-offset // 64) * 64 if size >= 64 else -(-offset // 8) * 8
                self.saved[slot] = offset
                offset += size
        self.plan.saved_bytes = -(-offset // 64) * 64 if self.parks else 0

    def _entry(self) -> None:
        o, nodes = self.line, self.cfg.nodes
        self.out.append("define internal i32 @warp(ptr noalias %t, ptr noalias %l, i32 %w, i32 %resume) #0 {\nentry:")
        for axis in "xyz":
            o(f"%c.{axis} = getelementptr i8, ptr %t, i64 {THREAD['ctaid_' + axis]}")
            o(f"%ctaid.{axis} = load i32, ptr %c.{axis}")
            for reg, name in (("ntid", "block_"), ("nctaid", "grid_")):
                o(f"%{reg}.{axis}.at = getelementptr i8, ptr %l, i64 {LAUNCH[name + axis]}")
                o(f"%{reg}.{axis} = load i32, ptr %{reg}.{axis}.at, !invariant.load !0")
            o(f"%ti.{axis}.at = getelementptr i8, ptr %l, i64 {LAUNCH['tid_' + axis]}")
            o(f"%ti.{axis} = load ptr, ptr %ti.{axis}.at, !invariant.load !0")
            o(f"%ti.{axis}.w = getelementptr [32 x i32], ptr %ti.{axis}, i32 %w")
            o(f"%tid.{axis} = load <32 x i32>, ptr %ti.{axis}.w, align 64, !invariant.load !0")
            o(f"%row.{axis} = extractelement <32 x i32> %tid.{axis}, i64 0")
        o(f"%masks.at = getelementptr i8, ptr %l, i64 {LAUNCH['masks']}")
        o("%masks = load ptr, ptr %masks.at, !invariant.load !0")
        o("%mask.at = getelementptr i32, ptr %masks, i32 %w")
        o("%mask0 = load i32, ptr %mask.at, !invariant.load !0")
        o(f"%stop.at = getelementptr i8, ptr %l, i64 {LAUNCH['stop']}")
        for name in ("shared", "local", "saved", "exec", "phase"):
            o(f"%{name}.at = getelementptr i8, ptr %t, i64 {THREAD[name]}")
            o(f"%{name} = load {'ptr' if name in ('exec', 'saved') else 'i64'}, ptr %{name}.at")
        o(f"%allocs.at = getelementptr i8, ptr %t, i64 {THREAD['allocs']}")
        o("%allocs = load ptr, ptr %allocs.at, !invariant.load !0")
        for k, (kind, name) in enumerate(self.plan.rows):
            o(f"%row.{k} = getelementptr i8, ptr %allocs, i64 {k * ALLOC_BYTES}")
            if kind == "local":
                o(f"%local.{k} = add i64 %local, {self.plan.local_offsets[name]}")
                o(f"store i64 %local.{k}, ptr %row.{k}")
                o(f"%lv.{k} = getelementptr i8, ptr %t, i64 {THREAD['block']}")
                o(f"%lb.{k} = load i64, ptr %lv.{k}")
                o(f"%nw.{k}.at = getelementptr i8, ptr %l, i64 {LAUNCH['warps']}")
                o(f"%nw.{k} = load i64, ptr %nw.{k}.at, !invariant.load !0")
                o(f"%w64.{k} = zext i32 %w to i64")
                o(f"%bw.{k} = mul i64 %lb.{k}, %nw.{k}")
                o(f"%gw.{k} = add i64 %bw.{k}, %w64.{k}")
                o(f"%gl.{k} = mul i64 %gw.{k}, {self.plan.local_bytes // 4}")
                lines = LOCAL_LINES + self.plan.local_offsets[name] // 4
                o(f"%vl.{k}.0 = add i64 %gl.{k}, {lines}")
                o(f"%vl.{k} = and i64 %vl.{k}.0, 2147483647")
                o(f"%vline.{k} = getelementptr i8, ptr %row.{k}, i64 {ALLOC['line']}")
                o(f"store i64 %vl.{k}, ptr %vline.{k}")
        o(f"%args.at = getelementptr i8, ptr %l, i64 {LAUNCH['args']}")
        o("%args = load ptr, ptr %args.at, !invariant.load !0")
        for k, (t, _) in enumerate(self.params):
            tt = self.memory_type(t)
            o(f"%arg.{k}.at = getelementptr i64, ptr %args, i64 {k}")
            o(f"%arg.{k} = load {tt}, ptr %arg.{k}.at, !invariant.load !0")
        for t in sorted(self.atomic_out):
            o(f"%old.{t} = alloca [32 x {t}], align 64")
        for slots in self.slots.values():
            for s, tt, _ in slots:
                o(f"{s} = alloca {tt}, align 64")
                o(f"store {tt} {'zeroinitializer' if tt.startswith('<') else self._number(tt, 0)}, ptr {s}")
        for k in range(len(nodes)):
            o(f"%m.{k} = alloca i32")
            o(f"store i32 0, ptr %m.{k}")
        for k in self.barriers:
            o(f"%k.{k} = alloca i32")
            o(f"store i32 0, ptr %k.{k}")
        if self.cfg.spins:
            o("%turns = alloca i32")
            o("store i32 0, ptr %turns")
        if self.parks:
            o("%fresh = icmp eq i32 %resume, 0")
            o("br i1 %fresh, label %start, label %again")
            self.label("start")
        o("store i32 %mask0, ptr %m.0")
        o("br label %b0")
        if self.parks:
            self._resume()

    def _resume(self) -> None:
        o = self.line
        self.label("again")
        if self.cfg.lockstep:
            o("%state = load i32, ptr %saved")
            o("switch i32 %state, label %fail [")
            for n in range(len(self.barriers)):
                o(f"  i32 {n + 1}, label %r{n}")
            o("]")
        else:
            o("br label %r0")
        if self.cfg.spins:
            self._resume_anywhere()
            return
        for n, b in enumerate(self.barriers if self.cfg.lockstep else self.barriers[:1]):
            self.label(f"r{n}")
            for name in self.lives[n]:
                self._restore(name)
            here = [(n, b)] if self.cfg.lockstep else list(enumerate(self.barriers))
            for k, bk in here:
                result = self.cfg.nodes[bk].term.attr
                if result.dest and result.dest in self.slots:
                    self._barrier_result(result)
                at = self.op(f"getelementptr i8, ptr %saved, i64 {64 + 4 * k}")
                mask = self.op(f"load i32, ptr {at}")
                o(f"store i32 {mask}, ptr %m.{self.cfg.nodes[bk].succs[0]}")
            posts = sorted(self.cfg.nodes[bk].succs[0] for _, bk in here)
            self._chain(tuple(posts))

    def _mask_at(self, k: int) -> str:
        """Where the waiting mask of block k is saved (kernels that spin save them all)."""
        return self.op(f"getelementptr i8, ptr %saved, i64 {64 + 4 * (len(self.barriers) + k)}")

    def _resume_anywhere(self) -> None:
        """Everything back; where a barrier opened, its parked lanes wait at the block behind it."""
        self.label("r0")
        for name in self.lives[0]:
            self._restore(name)
        for k in range(len(self.cfg.nodes)):
            self.line(f"store i32 {self.op(f'load i32, ptr {self._mask_at(k)}')}, ptr %m.{k}")
        released = self.op(f"icmp eq i32 %resume, {RELEASED}")
        for n, b in enumerate(self.barriers):
            at = self.op(f"getelementptr i8, ptr %saved, i64 {64 + 4 * n}")
            parked = self.op(f"load i32, ptr {at}")
            post = self.cfg.nodes[b].succs[0]
            go = self.op(f"select i1 {released}, i32 {parked}, i32 0")
            old = self.op(f"load i32, ptr %m.{post}")
            self.line(f"store i32 {self.op(f'or i32 {old}, {go}')}, ptr %m.{post}")
            self.line(f"store i32 {self.op(f'xor i32 {parked}, {go}')}, ptr %k.{b}")
            result = self.cfg.nodes[b].term.attr
            if result.dest and result.dest in self.slots:
                opened, on = self.fresh("open"), self.fresh("on")
                self.line(f"br i1 {released}, label %{opened}, label %{on}")
                self.label(opened)
                self._barrier_result(result)
                self.line(f"br label %{on}")
                self.label(on)
        self._chain(tuple(range(len(self.cfg.nodes))), "done")

    def _give_way(self, k: int, target: int) -> None:
        """After some turns of a waiting loop: other lanes of the warp first, then other warps."""
        turns = self.op("load i32, ptr %turns")
        more = self.op(f"add i32 {turns}, 1")
        self.line(f"store i32 {more}, ptr %turns")
        patient = self.op(f"icmp ult i32 {more}, {SPIN_TURNS}")
        on, tired, park = self.fresh("on"), self.fresh("tired"), self.fresh("park")
        self.line(f"br i1 {patient}, label %{on}, label %{tired}")
        self.label(tired)
        self.line("store i32 0, ptr %turns")
        self._chain(tuple(sorted(self.cfg.waiting[k] - {target})), park)
        self.label(park)
        for name in self.lives[0]:
            self._save(name)
        for j in range(len(self.cfg.nodes)):
            self.line(f"store i32 {self.op(f'load i32, ptr %m.{j}')}, ptr {self._mask_at(j)}")
        for n, b in enumerate(self.barriers):
            at = self.op(f"getelementptr i8, ptr %saved, i64 {64 + 4 * n}")
            self.line(f"store i32 {self.op(f'load i32, ptr %k.{b}')}, ptr {at}")
        self.line("store i32 1, ptr %saved")
        self.line(f"ret i32 {SPINNING}")
        self.label(on)

    def _barrier_result(self, call: Instr) -> None:
        """syncthreads_count / and / or: the block's total of the phase that just ended."""
        other = self.op("xor i64 %phase, 1")
        off = self.op(f"mul i64 {other}, 8")
        base = self.op(f"getelementptr i8, ptr %t, i64 {THREAD['sum0']}")
        at = self.op(f"getelementptr i8, ptr {base}, i64 {off}")
        total = self.op(f"load i64, ptr {at}")
        slot, tt, _ = self.slots[call.dest][0]
        if "popc" in call.attr[0]:
            value = self.op(f"trunc i64 {total} to i32")
        else:  # and counts false lanes, or counts true ones
            bit = self.op(f"icmp {'eq' if '.and' in call.attr[0] else 'ne'} i64 {total}, 0")
            value = bit if call.type == "i1" else self.op(f"zext i1 {bit} to {call.type}")
        self.line(f"store {tt} {value}, ptr {slot}")

    def _restore(self, name: str) -> None:
        for slot, tt, m in self.slots[name]:
            at = self.op(f"getelementptr i8, ptr %saved, i64 {self.saved[slot]}")
            if m == "i1" and tt.startswith("<"):
                bits = self.op(f"load i32, ptr {at}")
                value = self.op(f"bitcast i32 {bits} to {tt}")
            else:
                value = self.op(f"load {tt}, ptr {at}, align {64 if tt.startswith('<') else 8 if m != 'i1' else 4}")
            self.line(f"store {tt} {value}, ptr {slot}")

    def _save(self, name: str) -> None:
        for slot, tt, m in self.slots[name]:
            at = self.op(f"getelementptr i8, ptr %saved, i64 {self.saved[slot]}")
            value = self.op(f"load {tt}, ptr {slot}")
            if m == "i1" and tt.startswith("<"):
                frozen = self.op(f"freeze {tt} {value}")
                bits = self.op(f"bitcast {tt} {frozen} to i32")
                self.line(f"store i32 {bits}, ptr {at}")
            else:
                self.line(f"store {tt} {value}, ptr {at}, align {64 if tt.startswith('<') else 8 if m != 'i1' else 4}")

    def _block(self, k: int) -> None:
        node = self.cfg.nodes[k]
        self.node = k
        self.env, self.casts = {}, {}
        self.globals_env = {name: f"%arg.{j}" for j, (_, name) in enumerate(self.params)}
        self.globals_env[self.f.params[0][1]] = "0"
        self.label(f"b{k}")
        self.current_mask = self.op(f"load i32, ptr %m.{k}")
        self.current_mask_vector = None
        self.line(f"store i32 0, ptr %m.{k}")
        self.observer.on_block(self, k)
        for i in node.body:
            self._instr(i)
        self._terminate(k, node)

    def _instr(self, i: Instr) -> None:
        if i.op == "alloca":
            base = self.op(f"add i64 %local, {self.plan.local_offsets[i.dest]}")
            offsets = access.lanes("i64", [n * self.plan.local_bytes for n in range(32)])
            result: object = self.op(f"add <32 x i64> {self.broadcast(base, 'i64')}, {offsets}")
        elif i.op in ("load", "store", "atomicrmw", "cmpxchg"):
            if i.op == "store" and self.roots.of(i.args[0]) == {("ret", "")}:
                return
            result = self.memory(i)
        else:
            row = ops.TABLE.get(i.op) or (ops.find_call(i.attr[0]) if i.op == "call" else None)
            if row is None:
                raise ops.unsupported(i, ops.described(i))
            try:
                result = row(self, i)
            except (ValueError, KeyError, IndexError, TypeError, AttributeError) as err:
                raise ops.unsupported(i, f"The instruction `{i.op}` here ({err})") from err
        if i.dest:
            self.env[i.dest] = result
            if i.dest in self.slots:
                self._store_slot(i.dest, result, self.current_mask)

    def _store_slot(self, name: str, value: object, mask: str, blend: bool = False) -> None:
        parts = value if isinstance(value, tuple) else (value,)
        vector = name in self.cfg.divergent
        for (slot, tt, _m), part in zip(self.slots[name], parts, strict=True):
            if vector and (blend or not self.cfg.lockstep):
                old = self.op(f"load {tt}, ptr {slot}")
                mv = self.mask_vector() if mask == self.current_mask else self.op(f"bitcast i32 {mask} to {V1}")
                part = self.op(f"select {V1} {mv}, {tt} {part}, {tt} {old}")
            self.line(f"store {tt} {part}, ptr {slot}")

    def _edge(self, k: int, target: int, mask: str) -> None:
        """Lanes `mask` go from k to target: phi values, then the waiting mask."""
        name = self.cfg.nodes[k].name
        moves: list[tuple[str, object]] = []
        for p in self.cfg.nodes[target].phis:
            for a, q in zip(p.args, p.attr, strict=True):
                if q == name:
                    vector = self.varies(p.dest)
                    if isinstance(p.type, str):
                        moves.append((p.dest, self.value(a, vector, p.type)))
                    else:
                        moves.append((p.dest, self.aggregate(a)))
                    break
        for dest, value in moves:
            self._store_slot(dest, value, mask, blend=True)
        old = self.op(f"load i32, ptr %m.{target}")
        new = self.op(f"or i32 {old}, {mask}")
        self.line(f"store i32 {new}, ptr %m.{target}")

    def _chain(self, candidates: tuple[int, ...], last: str | None = None) -> None:
        """Jump to the first candidate that has waiting lanes; the last one needs no test unless `last` follows it."""
        for n, c in enumerate(candidates):
            if n == len(candidates) - 1 and last is None:
                self.line(f"br label %b{c}")
                return
            waits = self.op(f"load i32, ptr %m.{c}")
            some = self.op(f"icmp ne i32 {waits}, 0")
            other = self.fresh("n")
            self.line(f"br i1 {some}, label %b{c}, label %{other}")
            self.label(other)
        self.line(f"br label %{last}")

    def _terminate(self, k: int, node) -> None:
        term, mask = node.term, self.current_mask
        outcomes = transitions(self.cfg.nodes, k, self.cfg.divergent_branches, self.cfg.waiting[k])
        if term.op == BARRIER:
            self._park(k, term.attr)
            self._chain(outcomes[0][1], "done")
            return
        if term.op in ("ret", "unreachable"):
            self._chain(outcomes[0][1], "done")
            return
        if any(s <= k for s in node.succs):
            self._stop_check(k)
        if len(node.succs) == 1:
            self._edge(k, node.succs[0], mask)
            if k in self.cfg.spins:
                self._give_way(k, node.succs[0])
            self._chain(outcomes[0][1])
            return
        first, second = (self._index(t) for t in term.attr)
        if k not in self.cfg.divergent_branches:
            cond = self.value(term.args[0], False, "i1")
            self.observer.on_branch(self, k, None, None)
            a, c = self.fresh("u"), self.fresh("u")
            self.line(f"br i1 {cond}, label %{a}, label %{c}")
            saved = dict(self.env), dict(self.casts)
            for label, target in ((a, first), (c, second)):
                self.env, self.casts = dict(saved[0]), dict(saved[1])
                vector = self.current_mask_vector
                self.label(label)
                self._edge(k, target, mask)
                if k in self.cfg.spins and target <= k:
                    self._give_way(k, target)
                self._chain(next(cand for recv, cand in outcomes if recv == (target,)))
                self.current_mask_vector = vector
            return
        taken = self.active_bits(term.args[0])
        other = self.op(f"xor i32 {taken}, {mask}")
        self.observer.on_branch(self, k, taken, other)
        # both edges read before either writes: a phi of one target may feed the other
        self._edge(k, first, taken)
        self._edge(k, second, other)
        if k in self.cfg.spins:
            self._give_way(k, min(first, second))
        self._chain(outcomes[0][1])

    def _index(self, name: str) -> int:
        return self.index[name]

    @property
    def index(self) -> dict[str, int]:
        if not hasattr(self, "_names"):
            self._names = {n.name: j for j, n in enumerate(self.cfg.nodes)}
        return self._names

    def _stop_check(self, k: int) -> None:
        stop = self.op("load atomic i64, ptr %stop.at monotonic, align 8")
        asked = self.op(f"icmp ne i64 {stop}, 0")
        go, halt = self.fresh("go"), self.fresh("halt")
        self.line(f"br i1 {asked}, label %{halt}, label %{go}, !prof !2")
        self.label(halt)
        for name, value in (("error", ERROR_STOPPED), ("error_site", k)):
            at = self.op(f"getelementptr i8, ptr %t, i64 {THREAD[name]}")
            self.line(f"store i64 {value}, ptr {at}")
        self.line("br label %fail")
        self.label(go)

    def _park(self, k: int, call: Instr) -> None:
        mask = self.current_mask
        old = self.op(f"load i32, ptr %k.{k}")
        new = self.op(f"or i32 {old}, {mask}")
        self.line(f"store i32 {new}, ptr %k.{k}")
        name = call.attr[0]
        if call.dest:
            predicate = call.args[-1]
            t = call.attr[1][-1]
            if t == "i1":
                bits = self.active_bits(predicate)
            else:
                vector = self.varies(predicate)
                tt = self.text_type(t, vector)
                ne = self.op(f"icmp ne {tt} {self.value(predicate, vector, t)}, {self.constant(t, 0, vector)}")
                key = f"%pred.{k}"
                self.env[key] = ne
                if vector:
                    self.cfg.divergent.add(key)
                bits = self.active_bits(key)
            if ".and" in name:
                bits = self.op(f"xor i32 {bits}, {mask}")
            count = self.call("llvm.ctpop.i32", "i32", [("i32", bits)])
            wide = self.op(f"zext i32 {count} to i64")
            off = self.op("mul i64 %phase, 8")
            base = self.op(f"getelementptr i8, ptr %t, i64 {THREAD['sum0']}")
            at = self.op(f"getelementptr i8, ptr {base}, i64 {off}")
            total = self.op(f"load i64, ptr {at}")
            self.line(f"store i64 {self.op(f'add i64 {total}, {wide}')}, ptr {at}")

    def _done(self) -> None:
        o = self.line
        self.label("done")
        if not self.barriers:
            o(f"ret i32 {DONE}")
        elif self.cfg.lockstep:
            for n, b in enumerate(self.barriers):
                mask = self.op(f"load i32, ptr %k.{b}")
                some = self.op(f"icmp ne i32 {mask}, 0")
                o(f"br i1 {some}, label %y{n}, label %z{n}")
                self.label(f"y{n}")
                self._yield(n, [(n, mask)])
                self.label(f"z{n}")
            o(f"ret i32 {DONE}")
        else:
            masks = [(n, self.op(f"load i32, ptr %k.{b}")) for n, b in enumerate(self.barriers)]
            union = masks[0][1]
            for _, m in masks[1:]:
                union = self.op(f"or i32 {union}, {m}")
            some = self.op(f"icmp ne i32 {union}, 0")
            o(f"br i1 {some}, label %y, label %z")
            self.label("y")
            self._yield(0, masks)
            if self.cfg.spins:
                self.out.pop()  # nothing waits when a warp parks: its masks are saved as zeros before it returns
                for j in range(len(self.cfg.nodes)):
                    self.line(f"store i32 0, ptr {self._mask_at(j)}")
                o(f"ret i32 {AT_BARRIER}")
            self.label("z")
            o(f"ret i32 {DONE}")
        self.label("fail")
        o(f"ret i32 {FAILED}")
        self.out.append("}")

    def _yield(self, n: int, masks: list[tuple[int, str]]) -> None:
        for name in self.lives[n]:
            self._save(name)
        arrival_at = self.op(f"getelementptr i8, ptr %t, i64 {THREAD['arrival']}")
        divergent_at = self.op(f"getelementptr i8, ptr %t, i64 {THREAD['divergent']}")
        for k, mask in masks:
            at = self.op(f"getelementptr i8, ptr %saved, i64 {64 + 4 * k}")
            self.line(f"store i32 {mask}, ptr {at}")
            # arrivals of one phase at two different barriers: remembered as (first + 1) << 32 | (second + 1)
            here = self.op(f"icmp ne i32 {mask}, 0")
            before = self.op(f"load i64, ptr {arrival_at}")
            differs0 = self.op(f"icmp ne i64 {before}, {k + 1}")
            known = self.op(f"icmp ne i64 {before}, 0")
            differs1 = self.op(f"and i1 {differs0}, {known}")
            differs = self.op(f"and i1 {differs1}, {here}")
            up = self.op(f"shl i64 {before}, 32")
            pair = self.op(f"or i64 {up}, {k + 1}")
            old = self.op(f"load i64, ptr {divergent_at}")
            self.line(f"store i64 {self.op(f'select i1 {differs}, i64 {pair}, i64 {old}')}, ptr {divergent_at}")
            self.line(f"store i64 {self.op(f'select i1 {here}, i64 {k + 1}, i64 {before}')}, ptr {arrival_at}")
        self.line(f"store i32 {n + 1}, ptr %saved")
        self.line(f"ret i32 {AT_BARRIER}")


LOCAL_LINES = 1 << 30  # local memory's part of the virtual line numbers


def _permute_function(name: str, t: str, wide: bool) -> str:
    v = f"<32 x {t}>"
    code = f"define internal {v} @{name}({v} %v, <32 x i32> %s) alwaysinline {{\n"
    if wide:  # two-source permutes of AVX-512
        cast = t != "i32"
        code += f"  %iv = bitcast {v} %v to <32 x i32>\n" if cast else "  %iv = or <32 x i32> %v, zeroinitializer\n"
        half = ["<" + ", ".join(f"i32 {k}" for k in range(a, a + 16)) + ">" for a in (0, 16)]
        for h, idx in zip("ab", half, strict=True):
            code += f"  %v.{h} = shufflevector <32 x i32> %iv, <32 x i32> poison, <16 x i32> {idx}\n"
            code += f"  %s.{h} = shufflevector <32 x i32> %s, <32 x i32> poison, <16 x i32> {idx}\n"
        for h in "ab":
            code += f"  %r.{h} = call <16 x i32> @llvm.x86.avx512.vpermi2var.d.512(<16 x i32> %v.a, <16 x i32> %s.{h}, <16 x i32> %v.b)\n"
        all_ = "<" + ", ".join(f"i32 {k}" for k in range(32)) + ">"
        code += f"  %r = shufflevector <16 x i32> %r.a, <16 x i32> %r.b, <32 x i32> {all_}\n"
        code += f"  %o = bitcast <32 x i32> %r to {v}\n" if cast else "  %o = or <32 x i32> %r, zeroinitializer\n"
        return code + f"  ret {v} %o\n}}\n"
    code += f"  %p = alloca {v}, align 64\n  store {v} %v, ptr %p, align 64\n"
    acc = "poison"
    for k in range(32):
        code += f"  %i{k} = extractelement <32 x i32> %s, i64 {k}\n  %q{k} = getelementptr {t}, ptr %p, i32 %i{k}\n  %x{k} = load {t}, ptr %q{k}\n"
        code += f"  %a{k} = insertelement {v} {acc}, {t} %x{k}, i64 {k}\n"
        acc = f"%a{k}"
    return code + f"  ret {v} {acc}\n}}\n"


def _match_function(name: str, t: str) -> str:
    return (
        f"define internal <32 x i32> @{name}(<32 x {t}> %v, i32 %m) noinline {{\nentry:\n  %o = alloca [32 x i32], align 64\n"
        "  store [32 x i32] zeroinitializer, ptr %o, align 64\n  br label %head\nhead:\n"
        "  %left = phi i32 [ %m, %entry ], [ %rest, %next ]\n  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)\n"
        f"  %x = extractelement <32 x {t}> %v, i32 %lane\n"
        + access.splat("x.v", "%x", t)
        + f"  %eq = icmp eq <32 x {t}> %v, %x.v\n  %bits0 = bitcast {V1} %eq to i32\n  %bits = and i32 %bits0, %m\n  br label %put\nput:\n"
        "  %who = phi i32 [ %bits, %head ], [ %who1, %put ]\n  %k = call i32 @llvm.cttz.i32(i32 %who, i1 true)\n"
        "  %at = getelementptr i32, ptr %o, i32 %k\n  store i32 %bits, ptr %at\n  %who0 = sub i32 %who, 1\n  %who1 = and i32 %who, %who0\n"
        "  %more = icmp ne i32 %who1, 0\n  br i1 %more, label %put, label %next\nnext:\n  %inv = xor i32 %bits, -1\n  %rest = and i32 %left, %inv\n"
        "  %again = icmp ne i32 %rest, 0\n  br i1 %again, label %head, label %end\nend:\n  %r = load <32 x i32>, ptr %o, align 64\n  ret <32 x i32> %r\n}\n"
    )


def _mixed_function(name: str, inner: str, op: str, t: str, rows: int) -> str:
    """An access whose lanes may be in different arrays: array after array."""
    v = f"<32 x {t}>"
    rt = f"{{ {v}, i1 }}" if op == "load" else "i1"
    value = f", {v} %v" if op == "store" else ""
    code = f"define internal {rt} @{name}(ptr %t, ptr %a, i32 %site, <32 x i64> %p, i32 %m{value}) noinline {{\nentry:\n"
    code += "  %ps = alloca [32 x i64], align 64\n  store <32 x i64> %p, ptr %ps, align 64\n  br label %head\nhead:\n"
    code += "  %left = phi i32 [ %m, %entry ], [ %rest, %next ]\n"
    code += f"  %acc = phi {v} [ zeroinitializer, %entry ], [ %acc1, %next ]\n" if op == "load" else ""
    code += "  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)\n  %l = zext i32 %lane to i64\n  %q = getelementptr i64, ptr %ps, i64 %l\n  %x = load i64, ptr %q\n"
    code += f"  %row = call ptr @find(ptr %t, i64 %x, i64 {rows})\n  %base = load i64, ptr %row\n  %size.at = getelementptr i8, ptr %row, i64 8\n  %size = load i64, ptr %size.at\n"
    code += access.splat("base.v", "%base", "i64") + access.splat("size.v", "%size", "i64")
    code += f"  %off = sub <32 x i64> %p, %base.v\n  %in = icmp ult <32 x i64> %off, %size.v\n  %in.bits = bitcast {V1} %in to i32\n"
    code += "  %one = shl i32 1, %lane\n  %some = or i32 %in.bits, %one\n  %sub = and i32 %some, %left\n"
    if op == "load":
        code += f"  %r = call {rt} @{inner}(ptr %t, ptr %row, i32 %site, <32 x i64> %p, i32 %sub)\n  %ok = extractvalue {rt} %r, 1\n  %rv = extractvalue {rt} %r, 0\n"
        code += f"  %sub.v = bitcast i32 %sub to {V1}\n  %acc1 = select {V1} %sub.v, {v} %rv, {v} %acc\n"
    else:
        code += f"  %ok = call i1 @{inner}(ptr %t, ptr %row, i32 %site, <32 x i64> %p, i32 %sub, {v} %v)\n"
    code += "  br i1 %ok, label %next, label %bad\nnext:\n  %rest = xor i32 %left, %sub\n  %more = icmp ne i32 %rest, 0\n  br i1 %more, label %head, label %end\n"
    if op == "load":
        return (
            code
            + f"end:\n  %o0 = insertvalue {rt} poison, {v} %acc1, 0\n  %o = insertvalue {rt} %o0, i1 true, 1\n  ret {rt} %o\nbad:\n  ret {rt} zeroinitializer\n}}\n"
        )
    return code + "end:\n  ret i1 true\nbad:\n  ret i1 false\n}\n"


__all__ = ["ERROR_UNREACHABLE", "Emitter", "Plan"]
