"""The kernel as warp code: one LLVM function that runs 32 lanes from a block's entry, or a barrier, to its end or the next.

A value that is the same in all lanes is a scalar, any other a vector of 32. Control is a mask of waiting lanes per basic
block; the lowest-numbered block with waiting lanes runs next (cfg.py). Values read in other blocks live in slots (allocas
that LLVM turns into registers); what lives across a barrier is saved per warp. Pointers are 64-bit integers.
The emitter knows control flow and values; ops.py and calls.py know operations, access.py memory, observe.py counts.
"""

from __future__ import annotations

from solcourse.simt import calls, lanes, ops, pieces
from solcourse.simt.cfg import BARRIER, transitions
from solcourse.simt.ir import Const, Instr
from solcourse.simt.layout import ALLOC, ALLOC_BYTES, DONE, ERROR_STOPPED, FAILED, LAUNCH, SAVED_TURNS, THREAD
from solcourse.simt.parking import Parking
from solcourse.simt.pieces import V1
from solcourse.simt.plan import INLINE_SITES, LOCAL_LINES


class Emitter(Parking):
    """Control flow: the entry, blocks in order, edges, the choice of the next block."""

    def emit(self) -> str:
        sites = sum(i.op in ("load", "store") for n in self.cfg.nodes for i in n.body)
        self.attrs = "alwaysinline" if sites <= INLINE_SITES else "noinline"
        self.atomic_out: set[str] = set()
        self.index = {n.name: k for k, n in enumerate(self.cfg.nodes)}
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

    def _entry(self) -> None:
        self.out.append("define internal i32 @warp(ptr noalias %t, ptr noalias %l, i32 %w, i32 %resume) #0 {\nentry:")
        self._indices()
        self._memory_of_thread()
        for k, (kind, name) in enumerate(self.plan.rows):
            self.line(f"%row.{k} = getelementptr i8, ptr %allocs, i64 {k * ALLOC_BYTES}")
            if kind == "local":
                self._local_row(k, name)
        self._arguments()
        self._storage()
        if self.parks:
            self.line("%fresh = icmp eq i32 %resume, 0")
            self.line("br i1 %fresh, label %start, label %again")
            self.label("start")
        self.line("store i32 %mask0, ptr %m.0")
        self.line("br label %b0")
        if self.parks:
            self._resume()

    def _indices(self) -> None:
        """Block and grid: indices and sizes; the lanes' thread indices; the lanes that exist."""
        o = self.line
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

    def _memory_of_thread(self) -> None:
        o = self.line
        o(f"%stop.at = getelementptr i8, ptr %l, i64 {LAUNCH['stop']}")
        for name in ("shared", "local", "saved", "exec", "phase"):
            o(f"%{name}.at = getelementptr i8, ptr %t, i64 {THREAD[name]}")
            o(f"%{name} = load {'ptr' if name in ('exec', 'saved') else 'i64'}, ptr %{name}.at")
        o(f"%allocs.at = getelementptr i8, ptr %t, i64 {THREAD['allocs']}")
        o("%allocs = load ptr, ptr %allocs.at, !invariant.load !0")

    def _local_row(self, k: int, name: str) -> None:
        """A local array is elsewhere for each warp, and in lines of its own."""
        o = self.line
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
        o(f"%vl.{k}.0 = add i64 %gl.{k}, {LOCAL_LINES + self.plan.local_offsets[name] // 4}")
        o(f"%vl.{k}.1 = and i64 %vl.{k}.0, 2147483647")
        o(f"%vl.{k} = shl i64 %vl.{k}.1, 32")
        o(f"%vline.{k} = getelementptr i8, ptr %row.{k}, i64 {ALLOC['line']}")
        o(f"store i64 %vl.{k}, ptr %vline.{k}")

    def _arguments(self) -> None:
        o = self.line
        o(f"%args.at = getelementptr i8, ptr %l, i64 {LAUNCH['args']}")
        o("%args = load ptr, ptr %args.at, !invariant.load !0")
        for k, (t, _) in enumerate(self.params):
            o(f"%arg.{k}.at = getelementptr i64, ptr %args, i64 {k}")
            o(f"%arg.{k} = load {self.memory_type(t)}, ptr %arg.{k}.at, !invariant.load !0")

    def _storage(self) -> None:
        """Room for old values of atomics, for slots, and for the masks: of waiting lanes by block, of parked ones by barrier."""
        o = self.line
        for t in sorted(self.atomic_out):
            o(f"%old.{t} = alloca [32 x {t}], align 64")
        for slots in self.slots.values():
            for s, tt, _ in slots:
                o(f"{s} = alloca {tt}, align 64")
                o(f"store {tt} {'zeroinitializer' if tt.startswith('<') else self._number(tt, 0)}, ptr {s}")
        masks = [*(f"%m.{k}" for k in range(len(self.cfg.nodes))), *(f"%k.{k}" for k in self.barriers)]
        for name in (*masks, *["%turns"] * bool(self.cfg.spins)):
            o(f"{name} = alloca i32")
            o(f"store i32 0, ptr {name}")
        if self.cfg.spins:
            o(f"%turns.at = getelementptr i8, ptr %saved, i64 {SAVED_TURNS}")
            o(f"%moved.at = getelementptr i8, ptr %t, i64 {THREAD['moved']}")

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
            offsets = pieces.lanes("i64", [n * self.plan.local_bytes for n in range(32)])
            result: object = self.op(f"add <32 x i64> {self.broadcast(base, 'i64')}, {offsets}")
        elif i.op in ("load", "store", "atomicrmw", "cmpxchg"):
            if i.op == "store" and self.roots.of(i.args[0]) == {("ret", "")}:
                return
            result = self.memory(i)
            if self.cfg.spins:
                self._note_change(i, result)
        else:
            row = calls.find_call(i.attr[0]) if i.op == "call" else ops.TABLE.get(i.op)
            if row is None:
                raise ops.unsupported(i, calls.described(i.attr[0]) if i.op == "call" else f"The LLVM instruction `{i.op}`")
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

    def _edge(self, k: int, target: int, mask: str, moves: list[tuple[str, object]] | None = None) -> None:
        """Lanes `mask` go from k to target: phi values, then the waiting mask."""
        for dest, value in self._moves(k, target) if moves is None else moves:
            self._store_slot(dest, value, mask, blend=True)
        old = self.op(f"load i32, ptr %m.{target}")
        new = self.op(f"or i32 {old}, {mask}")
        self.line(f"store i32 {new}, ptr %m.{target}")

    def _moves(self, k: int, target: int) -> list[tuple[str, object]]:
        """What the phis of target get from k."""
        name = self.cfg.nodes[k].name
        moves: list[tuple[str, object]] = []
        for p in self.cfg.nodes[target].phis:
            for a, q in zip(p.args, p.attr, strict=True):
                if q == name:
                    vector = self.varies(p.dest)
                    if isinstance(p.type, str):
                        moves.append((p.dest, self.value(a, vector, p.type)))
                    else:
                        moves.append((p.dest, self.aggregate(a, p.type, vector)))
                    break
        return moves

    def _terminate(self, k: int, node) -> None:
        term, mask = node.term, self.current_mask
        outcomes = transitions(self.cfg.nodes, k, self.cfg.divergent_branches, self.cfg.waiting[k])
        if term.op == BARRIER:
            self._park(k, term.attr)
            self._chain(outcomes[0][1], "done")
            return
        if term.op in ("ret", "unreachable"):
            if self.raises and term.args and term.op == "ret":
                self._raise(term.args[0])
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
        first, second = (self.index[t] for t in term.attr)
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
        moves = self._moves(k, first), self._moves(k, second)
        self._edge(k, first, taken, moves[0])
        self._edge(k, second, other, moves[1])
        if k in self.cfg.spins:
            self._give_way(k, min(first, second))
        self._chain(outcomes[0][1])

    def _raise(self, code: object) -> None:
        """Lanes that return a status above 0 raised an exception: the launch does. Others go on, as on a GPU."""
        if isinstance(code, Const) and int(code.value or 0) <= 0:
            return
        codes = self.value(code, True, "i32")
        raised = self.op(f"icmp sgt <32 x i32> {codes}, zeroinitializer")
        self.helpers["raised"] = lanes.RAISED
        self.line(f"call void @raised(ptr %t, i32 %w, <32 x i32> {codes}, <32 x i1> {raised}, i32 {self.current_mask})")

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
            self.label("z")
            o(f"ret i32 {DONE}")
        self.label("fail")
        o(f"ret i32 {FAILED}")
        self.out.append("}")
