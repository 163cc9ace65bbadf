"""How a warp stops and goes on: at barriers, and where it waits for another lane or warp. What it saves, and how it resumes."""

from __future__ import annotations

from functools import reduce

from solcourse.simt import ops
from solcourse.simt.cfg import BARRIER, counters, is_grid_sync, is_meeting
from solcourse.simt.ir import Const, Instr, type_size
from solcourse.simt.layout import AT_BARRIER, AT_BOTH, AT_GRID, CHANGED_GLOBAL, CHANGED_OWN, RELEASED, SAVED_MASKS, SPINNING, THREAD
from solcourse.simt.memory import Memory
from solcourse.simt.pieces import V1
from solcourse.simt.plan import SPIN_TURNS, SPIN_TURNS_AGAIN


class Parking(Memory):
    """Barriers and waiting loops."""

    def _chain(self, candidates: tuple[int, ...], last: str | None = None, elsewhere: str = "") -> None:
        """Jump to the first candidate that has waiting lanes; the last one needs no test unless `last` follows it.
        elsewhere: lanes that meet nobody as long as they are there; where one of them is waited for, the block cannot run."""
        for n, c in enumerate(candidates):
            if n == len(candidates) - 1 and last is None:
                self.line(f"br label %b{c}")
                return
            waits = self.op(f"load i32, ptr %m.{c}")
            some = self.op(f"icmp ne i32 {waits}, 0")
            meeting = self._meeting(c)
            if elsewhere and meeting:
                missing = self.op(f"and i32 {self._lanes_wanted(meeting, waits)}, {elsewhere}")
                some = self.op(f"and i1 {some}, {self.op(f'icmp eq i32 {missing}, 0')}")
            other = self.fresh("n")
            self.line(f"br i1 {some}, label %b{c}, label %{other}")
            self.label(other)
        self.line(f"br label %{last}")

    def _meeting(self, k: int) -> Instr | None:
        """The operation for which lanes wait at the start of block k."""
        body = self.cfg.nodes[k].body
        return body[0] if body and not self.cfg.nodes[k].phis and is_meeting(body[0]) else None

    def _lanes_wanted(self, meeting: Instr, waiting: str) -> str:
        """The lanes in the masks of those that wait."""
        mask = meeting.args[0]
        if isinstance(mask, Const):
            return str(int(mask.value))
        if mask not in self.slots:
            return self.globals_env[mask]
        slot, tt, _ = self.slots[mask][0]
        value = self.op(f"load {tt}, ptr {slot}")
        if not tt.startswith("<"):
            return value
        theirs = self.op(f"select {V1} {self.op(f'bitcast i32 {waiting} to {V1}')}, {tt} {value}, {tt} zeroinitializer")
        return self.call("llvm.vector.reduce.or.v32i32", "i32", [(tt, theirs)])

    def meet(self, i: Instr, strong: bool) -> None:
        """Tells shadow.py that the active lanes that i's mask, its first argument, names have met: strong: at a syncwarp(), which orders
        memory. Lanes at the syncwarp() of another branch are met, too."""
        varies = self.varies(i.args[0])
        wanted = self.value(i.args[0], varies, "i32")
        if varies:
            theirs = self.op(f"select {V1} {self.mask_vector()}, <32 x i32> {wanted}, <32 x i32> zeroinitializer")
            wanted = self.call("llvm.vector.reduce.or.v32i32", "i32", [("<32 x i32>", theirs)])
        self.plan.meets = True
        met = self.op(f"and i32 {wanted}, {self._lanes_at([f'%m.{j}' for j in sorted(self._same_meeting(i))], self.current_mask)}")
        self.tell("simt_meet", self.op(f"zext i32 {met} to i64"), str(int(strong)))

    def elsewhere(self, meeting: Instr) -> str:
        """Lanes that do not take part in this operation of the warp, now or later, as an i32; "0": there are none.

        One that has nothing left to do but return is as good as gone. Out of lock step a lane may still come; and to a syncwarp() those
        of another branch are the same."""
        nodes, k = self.cfg.nodes, self.node
        every = set(range(len(nodes)))
        at = {f"%m.{j}": j for j in sorted(self.cfg.waiting[k]) if not self._only_returns(j, every, set())}
        at |= {f"%k.{b}": nodes[b].succs[0] for b in self.barriers}
        if not self.cfg.lockstep:
            at = {place: j for place, j in at.items() if j not in self._same_meeting(meeting) and not self._leads_to(j, k)}
        return self._lanes_at(list(at), "0")

    def _same_meeting(self, meeting: Instr) -> set[int]:
        """Blocks whose lanes are at this meeting, too: at the syncwarp() of another branch, or just behind it (cfg.transitions)."""
        if "bar.warp" not in meeting.attr[0]:
            return set()
        others = {j for j, n in enumerate(self.cfg.nodes) if n.last and "bar.warp" in n.body[0].attr[0] and j != self.node}
        return (others | {s for j in others for s in self.cfg.nodes[j].succs}) & self.cfg.waiting[self.node]

    def _lanes_at(self, places: list[str], also: str) -> str:
        """The lanes of the masks in these places, and `also`."""
        return reduce(lambda a, b: self.op(f"or i32 {a}, {b}"), [self.op(f"load i32, ptr {place}") for place in places], also)

    def _leads_to(self, start: int, end: int) -> bool:
        """Whether block `end` is `start`, or can come after it."""
        seen, todo = {start}, [start]
        while todo:
            new = set(self.cfg.nodes[todo.pop()].succs) - seen
            seen |= new
            todo += new
        return end in seen

    def _saved_layout(self) -> None:
        """Where a parked warp keeps its masks and live values: state i32, one mask per barrier, then slots."""
        self.saved: dict[str, int] = {}
        self.plan.meetings = {k: met.line for k in range(len(self.cfg.nodes)) if self.cfg.spins and (met := self._meeting(k))}
        offset = SAVED_MASKS + 4 * len(self.barriers) + (4 * len(self.cfg.nodes) if self.cfg.spins else 0)
        lives = [self.cfg.live_in[self.cfg.nodes[b].succs[0]] for b in self.barriers]
        if not self.cfg.lockstep and self.parks:
            everything = set(self.cfg.cross) if self.cfg.spins else set().union(*lives)
            lives = [everything] * max(1, len(lives))
        self.lives = [sorted(live) for live in lives]
        idle = counters(self.cfg.nodes) if self.cfg.spins else set()
        for name in sorted(set().union(*lives) if lives else ()):
            for slot, tt, m in self.slots[name]:
                size = 4 if m == "i1" else type_size(m)
                size *= 32 if tt.startswith("<") else 1
                align = 64 if tt.startswith("<") else 8  # vectors are stored aligned, also those of 32 bytes
                offset = -(-offset // align) * align
                self.saved[slot] = offset
                offset += size
                if name in idle:
                    self.plan.idle.append((self.saved[slot], offset))
        self.plan.saved_bytes = -(-offset // 64) * 64 if self.parks else 0

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
                mask = self.op(f"load i32, ptr {self._barrier_mask_at(k)}")
                self._barrier_result(self.cfg.nodes[bk].term.attr, mask)
                o(f"store i32 {mask}, ptr %m.{self.cfg.nodes[bk].succs[0]}")
            posts = sorted(self.cfg.nodes[bk].succs[0] for _, bk in here)
            self._chain(tuple(posts))

    def _barrier_mask_at(self, n: int) -> str:
        """Where the mask of the lanes parked at barrier n is saved."""
        return self.op(f"getelementptr i8, ptr %saved, i64 {SAVED_MASKS + 4 * n}")

    def _mask_at(self, k: int) -> str:
        """Where the waiting mask of block k is saved (kernels that spin save them all)."""
        return self._barrier_mask_at(len(self.barriers) + k)

    def _resume_anywhere(self) -> None:
        """Everything back; where a barrier opened, its parked lanes wait at the block behind it."""
        self.label("r0")
        self.line(f"store i32 {self.op('load i32, ptr %turns.at')}, ptr %turns")
        for name in self.lives[0]:
            self._restore(name)
        for k in range(len(self.cfg.nodes)):
            self.line(f"store i32 {self.op(f'load i32, ptr {self._mask_at(k)}')}, ptr %m.{k}")
        released = self.op(f"icmp eq i32 %resume, {RELEASED}")
        for n, b in enumerate(self.barriers):
            parked = self.op(f"load i32, ptr {self._barrier_mask_at(n)}")
            post = self.cfg.nodes[b].succs[0]
            go = self.op(f"select i1 {released}, i32 {parked}, i32 0")
            old = self.op(f"load i32, ptr %m.{post}")
            self.line(f"store i32 {self.op(f'or i32 {old}, {go}')}, ptr %m.{post}")
            self.line(f"store i32 {self.op(f'xor i32 {parked}, {go}')}, ptr %k.{b}")
            self._barrier_result(self.cfg.nodes[b].term.attr, go)
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
        places = sorted(self.cfg.waiting[k] | {target})
        apart = [self.op(f"load i32, ptr %m.{j}") for j in places if j not in self.plan.meetings]
        elsewhere = reduce(lambda a, b: self.op(f"or i32 {a}, {b}"), apart, "0")
        self._chain(tuple(j for j in places if j != target), park, elsewhere)
        self.label(park)
        for name in self.lives[0]:
            self._save(name)
        for j in range(len(self.cfg.nodes)):
            self.line(f"store i32 {self.op(f'load i32, ptr %m.{j}')}, ptr {self._mask_at(j)}")
        for n, b in enumerate(self.barriers):
            self.line(f"store i32 {self.op(f'load i32, ptr %k.{b}')}, ptr {self._barrier_mask_at(n)}")
        self.line(f"store i32 {SPIN_TURNS - SPIN_TURNS_AGAIN}, ptr %turns.at")
        self.line("store i32 1, ptr %saved")
        self.line(f"ret i32 {SPINNING}")
        self.label(on)

    def _barrier_result(self, call: Instr, mask: str) -> None:
        """syncthreads_count / and / or: the block's total of the phase that just ended, for the lanes that waited for it."""
        if not call.dest or call.dest not in self.slots:
            return
        other = self.op("xor i64 %phase, 1")
        total = self.op(f"load i64, ptr {self._sum_at(other)}")
        slot, tt, _ = self.slots[call.dest][0]
        if is_grid_sync(call):
            value = "0"  # cudaSuccess
        elif "popc" in call.attr[0]:
            value = self.op(f"trunc i64 {total} to i32")
        else:  # and counts false lanes, or counts true ones
            bit = self.op(f"icmp {'eq' if '.and' in call.attr[0] else 'ne'} i64 {total}, 0")
            value = bit if call.type == "i1" else self.op(f"zext i1 {bit} to {call.type}")
        if tt.startswith("<"):
            lanes, every, old = self.op(f"bitcast i32 {mask} to {V1}"), self.broadcast(value, call.type), self.op(f"load {tt}, ptr {slot}")
            self.casts = {}
            value = self.op(f"select {V1} {lanes}, {tt} {every}, {tt} {old}")
        self.line(f"store {tt} {value}, ptr {slot}")

    def _sum_at(self, phase: str) -> str:
        """Where the block's total of a phase is."""
        off = self.op(f"mul i64 {phase}, 8")
        base = self.op(f"getelementptr i8, ptr %t, i64 {THREAD['sum0']}")
        return self.op(f"getelementptr i8, ptr {base}, i64 {off}")

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

    def _park(self, k: int, call: Instr) -> None:
        mask = self.current_mask
        old = self.op(f"load i32, ptr %k.{k}")
        new = self.op(f"or i32 {old}, {mask}")
        self.line(f"store i32 {new}, ptr %k.{k}")
        self._note_passers_by(k)
        if self.checks and not is_grid_sync(call):
            self.tell("simt_arrive", str(self.barriers.index(k)), self.op(f"zext i32 {mask} to i64"))
        name = call.attr[0]
        if call.dest and not is_grid_sync(call):
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
            at = self._sum_at("%phase")
            total = self.op(f"load i64, ptr {at}")
            self.line(f"store i64 {self.op(f'add i64 {total}, {wide}')}, ptr {at}")

    def _note_passers_by(self, k: int) -> None:
        """Lanes of this warp that have passed by the barrier while others wait here: they still have work to do behind it.

        Work of their own before they return is no fault, since a barrier waits for nobody who has returned."""
        behind: set[int] = set()
        todo = list(self.cfg.nodes[k].succs)
        while todo:
            x = todo.pop()
            if x not in behind:
                behind.add(x)
                todo += self.cfg.nodes[x].succs
        busy = [x for x in sorted(self.cfg.waiting[k]) if not self._only_returns(x, behind, set())]
        if not busy:
            return
        union = self.op(f"load i32, ptr %m.{busy[0]}")
        for x in busy[1:]:
            union = self.op(f"or i32 {union}, {self.op(f'load i32, ptr %m.{x}')}")
        some = self.op(f"icmp ne i32 {union}, 0")
        at = self.op(f"getelementptr i8, ptr %t, i64 {THREAD['bypassed']}")
        old = self.op(f"load i64, ptr {at}")
        self.line(f"store i64 {self.op(f'select i1 {some}, i64 {self.barriers.index(k) + 1}, i64 {old}')}, ptr {at}")

    def _only_returns(self, k: int, shared: set[int], seen: set[int]) -> bool:
        """Whether all that follows from a block meets no barrier, and touches no memory in the `shared` blocks."""
        if k in seen:
            return True
        seen.add(k)
        node = self.cfg.nodes[k]
        touches = k in shared and any(
            i.op in ("load", "store", "atomicrmw", "cmpxchg") and self.roots.of(i.args[0]) != {("ret", "")} for i in node.body
        )
        if touches or node.term.op == BARRIER:
            return False
        return all(self._only_returns(s, shared, seen) for s in node.succs)

    def _yield(self, n: int, masks: list[tuple[int, str]]) -> None:
        for name in self.lives[n]:
            self._save(name)
        arrival_at = self.op(f"getelementptr i8, ptr %t, i64 {THREAD['arrival']}")
        divergent_at = self.op(f"getelementptr i8, ptr %t, i64 {THREAD['divergent']}")
        for k, mask in masks:
            self.line(f"store i32 {mask}, ptr {self._barrier_mask_at(k)}")
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
        if self.cfg.spins:  # no lane waits anywhere else when a warp parks
            self.line(f"store i32 {self.op('load i32, ptr %turns')}, ptr %turns.at")
            for j in range(len(self.cfg.nodes)):
                self.line(f"store i32 0, ptr {self._mask_at(j)}")
        self.line(f"store i32 {n + 1}, ptr %saved")
        self.line(f"ret i32 {self._parked_where(masks)}")

    def _parked_where(self, masks: list[tuple[int, str]]) -> str:
        """The return code of a warp whose lanes wait at these barriers: the block's, the grid's, or some at each."""
        grid = [m for k, m in masks if k in self.plan.grid_barriers]
        block = [m for k, m in masks if k not in self.plan.grid_barriers]
        if not (grid and block):
            return str(AT_GRID if grid else AT_BARRIER)
        at_grid, at_block = (self.op(f"icmp ne i32 {reduce(lambda a, b: self.op(f'or i32 {a}, {b}'), part)}, 0") for part in (grid, block))
        where = self.op(f"select i1 {at_block}, i32 {AT_BOTH}, i32 {AT_GRID}")
        return self.op(f"select i1 {at_grid}, i32 {where}, i32 {AT_BARRIER}")

    # ---- what a deadlock is found by

    def _note_change(self, i: Instr, result: object) -> None:
        """Remember that memory changed. An atomic operation that leaves its word as it was, as polling does, is no change."""
        if i.op == "load":
            return
        own = {kind for kind, _ in self.roots.of(i.args[0])} <= {"shared", "local"}
        what = str(CHANGED_OWN if own else CHANGED_GLOBAL)
        changed = self._changed(i, result) if i.op in ("atomicrmw", "cmpxchg") else None
        if changed is not None:
            some = self.op(f"and i32 {self.op(f'bitcast {V1} {changed} to i32')}, {self.current_mask}")
            what = self.op(f"select i1 {self.op(f'icmp ne i32 {some}, 0')}, i64 {what}, i64 0")
        before = self.op("load i64, ptr %moved.at")
        self.line(f"store i64 {self.op(f'or i64 {before}, {what}')}, ptr %moved.at")

    def _changed(self, i: Instr, result: object) -> str | None:
        """Which lanes' atomic operation changed its word; None: unknown."""
        op, t = i.attr
        old = result[0] if isinstance(result, tuple) else result
        values = [self.value(a, True, t) for a in i.args[1:]]
        tt, new, hit = f"<32 x {t}>", values[-1], None
        if i.op == "cmpxchg":
            hit = self.op(f"fcmp oeq {tt} {old}, {values[0]}" if t in ops.FLOATS else f"icmp eq {tt} {old}, {values[0]}")
        elif op in ("max", "min", "umax", "umin") and t.startswith("i"):
            signed = op.removeprefix("u")
            return self.op(f"icmp {'u' if op != signed else 's'}{'g' if signed == 'max' else 'l'}t {tt} {new}, {old}")
        elif op in ("add", "sub", "and", "or", "xor", "fadd", "fsub"):
            new = self.op(f"{op} {tt} {old}, {new}")
        elif op != "xchg":
            return None
        bits = f"<32 x i{ops.bits_of(t)}>"
        differs = self.op(f"icmp ne {bits} {self.op(f'bitcast {tt} {old} to {bits}')}, {self.op(f'bitcast {tt} {new} to {bits}')}")
        return differs if hit is None else self.op(f"and {V1} {hit}, {differs}")
