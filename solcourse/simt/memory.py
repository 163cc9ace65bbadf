"""Memory instructions of the warp code: which array, which access function, which counters' site."""

from __future__ import annotations

from solcourse.simt import access, lanes, ops
from solcourse.simt.ir import Instr, leaf_range, member_offset, members, type_size, type_text
from solcourse.simt.layout import MOST_STRIDE, UNIFORM_SHAPES
from solcourse.simt.merged import Merged, align_of, is_part
from solcourse.simt.plan import FRAME
from solcourse.simt.shadow import WAITING
from solcourse.simt.values import Values

SEVERAL = "several"  # spaces


class Memory(Values):
    """Loads, stores and atomics."""

    attrs: str  # of the access functions: inlined or not
    atomic_out: set[str]  # types whose atomics need room for the old values

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
        reached = range(self.plan.find_rows) if row is None else (row,)
        self.plan.read_rows.update(reached if i.op != "store" else ())
        self.plan.written_rows.update(reached if i.op != "load" else ())
        self.plan.atomic_rows.update(reached if i.op not in ("load", "store") else ())
        self.plan.loaded_rows.update(reached if i.op == "load" else ())
        cell = min(size, align_of(i) or size)
        for k in reached:
            self.plan.cell_bytes[k] = min(self.plan.cell_bytes.get(k, cell), cell)
        if space == SEVERAL:
            return self._several(i, t, size, array)
        site = len(self.plan.sites)
        self.plan.sites.append((i, self.node, space, i.op, _span(i, size), array))
        if is_part(i):
            self.plan.part_sites.add(site)
        if i.op == "load" and not self.is_vector(i):
            return self._scalar_load(i, t, size, space, row, site)
        p = self.value(pointer, True, "ptr")
        head = f"ptr %t, ptr {self._row(row, pointer)}, i32 {site}, <32 x i64> {p}, i32 {self.current_mask}"
        if i.op == "load":
            name = self._helper(i, t, size, space, row is None)
            return self._loaded(f"<32 x {t}>", f"@{name}({head})")
        if i.op == "store":
            name = self._helper(i, t, size, space, row is None)
            self._check(self.op(f"call i1 @{name}({head}, <32 x {t}> {self.value(i.args[1], True, i.type)})"))
            return ""
        return self._atomic(i, t, size, space, head)

    def _atomic(self, i: Instr, t: str, size: int, space: str, head: str) -> object:
        op = i.attr[0]
        if space not in ("global", "shared"):
            raise ops.unsupported(i, f"An atomic operation on {space} memory")
        name = f"atomic.{op}.{t}.{space}"
        if name not in self.helpers:
            self.helpers[name] = access.atomic_function(name, op, t, size, space, self.counters, self._checked(i, size, space))
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
        if t[0] == "vector" or i.op not in ("load", "store"):
            raise ops.unsupported(i, f"A {type_text(t)} memory access")
        parts: list = []
        base = self.value(i.args[0], self.varies(i.args[0]), "ptr")
        wide = self.varies(i.args[0])
        for k, m in enumerate(members(t)):
            offset = member_offset(t, k)
            name = f"{i.args[0]}+{offset}"
            self.env[name] = self.op(f"add {self.text_type('i64', wide)} {base}, {self.constant('i64', offset, wide)}")
            self.roots.alias(name, i.args[0])
            if wide:
                self.cfg.divergent.add(name)
            if i.op == "load":
                dest = f"{i.dest}.{k}"
                if self.is_vector(i):
                    self.cfg.divergent.add(dest)
                part = self.memory(Instr("load", dest, m, (name,), i.line, i.file))
                parts += part if isinstance(part, tuple) else [part]
            else:
                first, last = leaf_range(t, (k,))
                value = self.aggregate(i.args[1], t, self.varies(i.args[1]))[first:last]
                self.env[f"{name}.value"] = value[0] if isinstance(m, str) else value
                if self.varies(i.args[1]):
                    self.cfg.divergent.add(f"{name}.value")
                self.memory(Instr("store", None, m, (name, f"{name}.value"), i.line, i.file))
        return tuple(parts)

    def _several(self, i: Instr, t: str, size: int, array: str) -> object:
        """A load or store whose lanes may go to different memory spaces: one site, and one access function, for each space."""
        mixed_local = any(kind == "local" for kind, _ in self.roots.of(i.args[0]))
        spaces = ("global", "shared", *["constant"] * (i.op == "load"), *["local"] * mixed_local)
        inner, sites = [], []
        for space in spaces:
            sites.append(len(self.plan.sites))
            self.plan.several_sites.add(sites[-1])
            self.plan.sites.append((i, self.node, space, i.op, size, array))
            inner.append(self._access(i.op, t, size, space, dynamic=True, checked=self._checked(i, size, space)))
        checked = self._checked(i, size, "global")
        name = f"several.{i.op}.{t}{'.local' * mixed_local}{f'.{checked}' if checked else ''}"
        kinds = [kind for kind, _ in self.plan.rows]
        first_rows = (kinds.count("param"), kinds.count("param") + kinds.count("shared"))
        self.helpers["find"] = access.FIND
        self.declared.setdefault("llvm.ctpop.i32", "declare i32 @llvm.ctpop.i32(i32)")
        frame = (self.row_of["local", FRAME], self.plan.local_bytes) if mixed_local else None
        self.helpers.setdefault(name, lanes.several_function(name, inner, i.op, t, self.plan.find_rows, first_rows, frame))
        where = ", ".join(f"i32 {s}" for s in sites)
        head = f"ptr %t, {where}, <32 x i64> {self.value(i.args[0], True, 'ptr')}, i32 {self.current_mask}"
        if i.op == "store":
            self._check(self.op(f"call i1 @{name}({head}, <32 x {t}> {self.value(i.args[1], True, i.type)})"))
            return ""
        v = self._loaded(f"<32 x {t}>", f"@{name}({head})")
        return v if self.is_vector(i) else self._of_first_lane(v, t)

    def _checked(self, i: Instr, size: int, space: str) -> int:
        """What the access is to its shadow; 0 in other builds, and where there is none."""
        if not self.checks or space not in ("global", "shared"):
            return 0
        return access.what(size, i.op, align_of(i), WAITING if id(i) in self.looks else 0)

    def _scalar_load(self, i: Instr, t: str, size: int, space: str, row: int | None, site: int) -> str:
        pointer = i.args[0]
        self.plan.uniform_sites.add(site)
        checked = self._checked(i, size, space)
        span, counters = _span(i, size), self.counters and not is_part(i)
        name = f"uload.{t}.{space}{f'.{checked}' if checked else ''}{_suffix(i)}"
        if name not in self.helpers:
            self.helpers[name] = access.uniform_load_function(name, t, size, space, counters, self.attrs, checked, span)
        p = self.value(pointer, False, "ptr")
        shapes = 1 + UNIFORM_SHAPES * len(self.plan.uniform_global)
        if space == "global":
            self.plan.uniform_global.append(site)
        head = f"ptr %t, ptr {self._row(row, pointer)}, i32 {site}, i64 {shapes}, i64 {p}, i32 {self.current_mask}"
        return self._loaded(t, f"@{name}({head})")

    def _space(self, i: Instr, pointer: object) -> tuple[str, int | None, str]:
        """(space, ALLOC row or None when it depends on the lane, array name)."""
        found = self.roots.of(pointer)
        kinds = {kind for kind, _ in found}
        if not found or kinds == {"unknown"}:
            raise ops.unsupported(i, "A memory access through a pointer whose array is not known")
        spaces = {{"param": "global", "shared": "shared", "local": "local", "constant": "constant"}.get(k, "unknown") for k in kinds}
        if spaces <= {"global", "shared", "constant", "local"} and len(spaces) > 1 and i.op in ("load", "store"):
            return SEVERAL, None, " or ".join(sorted({self.roots.array_name(r) for r in found}))
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
            first = self._of_first_lane(first, "i64")
        self.helpers["find"] = access.FIND
        return self.op(f"call ptr @find(ptr %t, i64 {first}, i64 {self.plan.find_rows})")

    def _helper(self, i: Instr, t: str, size: int, space: str, mixed: bool) -> str:
        checked = self._checked(i, size, space)
        if not mixed:
            stride = self.strides.of(i.args[0]) if self.counters and space in ("global", "shared") else None
            stride = stride if stride and 0 < stride <= MOST_STRIDE else None
            return self._access(i.op, t, size, space, stride=stride, checked=checked, merged=i)
        name = self._access(i.op, t, size, space, dynamic=True, checked=checked, merged=i)
        many = f"mixed.{name}"
        self.helpers["find"] = access.FIND
        self.helpers.setdefault(many, lanes.mixed_function(many, name, i.op, t, self.plan.find_rows))
        return many

    def _access(
        self, op: str, t: str, size: int, space: str, dynamic: bool = False, stride: int | None = None, checked: int = 0,
        merged: Instr | None = None,
    ) -> str:  # fmt: skip
        """dynamic: the array is not always the same one; merged: the instruction, where it may be part of another."""
        name = f"{op}.{t}.{space}{'.any' * dynamic}{f'.by{stride}' if stride else ''}{f'.{checked}' if checked else ''}{_suffix(merged)}"
        if name not in self.helpers:
            counters, span = self.counters and not (merged and is_part(merged)), _span(merged, size)
            self.helpers[name] = access.access_function(name, op, t, size, space, dynamic, stride, counters, self.attrs, checked, span)
            self.declared[f"gather.{t}"] = access.gather_declarations(t)
            self.helpers.setdefault(f"general.{t}", access.general_functions(t, size))
        return name

    def _of_first_lane(self, v: str, t: str) -> str:
        lane = self.op(f"call i32 @llvm.cttz.i32(i32 {self.current_mask}, i1 true)")
        return self.op(f"extractelement <32 x {t}> {v}, i32 {lane}")

    def _loaded(self, t: str, call: str) -> str:
        """The value that an access function gives, if no lane strayed."""
        r = self.op(f"call {{ {t}, i1 }} {call}")
        self._check(self.op(f"extractvalue {{ {t}, i1 }} {r}, 1"))
        return self.op(f"extractvalue {{ {t}, i1 }} {r}, 0")

    def _check(self, ok: str) -> None:
        cont = self.fresh("ok")
        self.line(f"br i1 {ok}, label %{cont}, label %fail, !prof !1")
        self.label(cont)


def _span(i: Instr | None, size: int) -> int:
    """The bytes per lane that an access is counted as."""
    return i.attr.bytes or size if i and isinstance(i.attr, Merged) else size


def _suffix(i: Instr | None) -> str:
    return f".{i.attr.bytes or 'part'}" if i and isinstance(i.attr, Merged) else ""
