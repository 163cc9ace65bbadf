"""The generated loop around warps: hands out blocks, runs their warps phase by phase between barriers, follows the Trace."""

from __future__ import annotations

from solcourse.simt.layout import LAUNCH, THREAD, TRACED_BYTES
from solcourse.simt.plan import Plan


def _get(name: str, base: str, table: dict, t: str = "i64") -> str:
    return f"  %{name}.at = getelementptr i8, ptr {base}, i64 {table[name]}\n  %{name} = load {t}, ptr %{name}.at\n"


def _put(name: str, value: str, t: str = "i64") -> str:
    return f"  %put.{name} = getelementptr i8, ptr %t, i64 {THREAD[name]}\n  store {t} {value}, ptr %put.{name}\n"


def text(plan: Plan, counters: bool) -> str:
    """simt_run(thread): takes blocks until none is left. Returns 0, or 2 after an error (recorded in the thread)."""
    code = "define i32 @simt_run(ptr %t) {\nentry:\n" + _get("launch", "%t", THREAD, "ptr").replace("%launch", "%l")
    code += "".join(
        _get(n, "%l", LAUNCH)
        for n in "end chunk first grid_x grid_y warps shared_bytes local_bytes saved_bytes exec_rows exec_rows_blocks exec_row_bytes trace_blocks".split()
    )
    code += "".join(_get(n, "%t", THREAD) for n in ("shared", "local", "saved", "exec_common", "trace_limit", "blocks"))
    code += f"  %next.at = getelementptr i8, ptr %l, i64 {LAUNCH['next']}\n  %done.at = getelementptr i8, ptr %l, i64 {LAUNCH['done']}\n"
    code += f"  %stop.at = getelementptr i8, ptr %l, i64 {LAUNCH['stop']}\n"
    code += f"  %count.at = getelementptr i8, ptr %t, i64 {THREAD['blocks_count']}\n"
    code += f"  %cursor.at = getelementptr i8, ptr %t, i64 {THREAD['trace']}\n  %words.at = getelementptr i8, ptr %t, i64 {THREAD['trace_words']}\n  %dead.at = getelementptr i8, ptr %t, i64 {THREAD['trace_dead']}\n"
    code += f"  %exec.at = getelementptr i8, ptr %t, i64 {THREAD['exec']}\n  %warp.at = getelementptr i8, ptr %t, i64 {THREAD['warp']}\n"
    code += (
        f"  %local.at2 = getelementptr i8, ptr %t, i64 {THREAD['local']}\n  %saved.at2 = getelementptr i8, ptr %t, i64 {THREAD['saved']}\n"
    )
    code += "  br label %take\ntake:\n  %b0 = atomicrmw add ptr %next.at, i64 %chunk monotonic\n  %none = icmp sge i64 %b0, %end\n"
    code += "  br i1 %none, label %finish, label %chunk.go\nchunk.go:\n  %b1 = add i64 %b0, %chunk\n  %over = icmp sgt i64 %b1, %end\n"
    code += "  %b.end = select i1 %over, i64 %end, i64 %b1\n  br label %block\n"
    code += "block:\n  %b = phi i64 [ %b0, %chunk.go ], [ %b.next, %trace.noted ]\n  %lin = add i64 %first, %b\n"
    # a stray access in block k ends the launch for the blocks after k only, so that the first one is found whatever the threads
    code += "  %end.now = load atomic i64, ptr %end.at monotonic, align 8\n  %late = icmp sge i64 %b, %end.now\n"
    code += "  %stop = load atomic i64, ptr %stop.at monotonic, align 8\n  %asked = icmp ne i64 %stop, 0\n  %quit = or i1 %late, %asked\n"
    code += "  br i1 %quit, label %finish, label %block.go\nblock.go:\n"
    code += "  %x = urem i64 %lin, %grid_x\n  %yz = udiv i64 %lin, %grid_x\n  %y = urem i64 %yz, %grid_y\n  %z = udiv i64 %yz, %grid_y\n"
    for axis in "xyz":
        code += f"  %{axis}.32 = trunc i64 %{axis} to i32\n" + _put(f"ctaid_{axis}", f"%{axis}.32", "i32")
    code += _put("block", "%lin")
    code += "  %dead = load i64, ptr %dead.at\n  %alive = icmp eq i64 %dead, 0\n  %early = icmp slt i64 %b, %trace_blocks\n  %traced = and i1 %alive, %early\n"
    code += "  %limit.now = select i1 %traced, i64 %trace_limit, i64 0\n" + _put("trace_room", "%limit.now")
    code += "  %cursor0 = load i64, ptr %cursor.at\n  %words0 = load i64, ptr %words.at\n"
    code += "  %row.kept = icmp slt i64 %b, %exec_rows_blocks\n  %row.first = mul i64 %b, %warps\n"
    code += "  %has.shared = icmp ne i64 %shared_bytes, 0\n  br i1 %has.shared, label %fill, label %filled\n"
    # uninitialised shared and local memory is poisoned, so that results do not depend on which thread ran the block
    code += "fill:\n  %shared.p = inttoptr i64 %shared to ptr\n  call void @llvm.memset.p0.i64(ptr %shared.p, i8 -1, i64 %shared_bytes, i1 false)\n  br label %filled\nfilled:\n"
    code += _phases(plan) if plan.has_barriers else _warps(plan)
    code += "block.done:\n  br i1 %traced, label %trace.note, label %trace.skip\ntrace.skip:\n  store i64 %words0, ptr %words.at\n  br label %trace.noted\ntrace.note:\n  %n0 = load i64, ptr %count.at\n"
    code += f"  %no = mul i64 %n0, {TRACED_BYTES}\n  %blocks.p = inttoptr i64 %blocks to ptr\n  %note = getelementptr i8, ptr %blocks.p, i64 %no\n"
    code += "  %words1 = load i64, ptr %words.at\n  %taken = sub i64 %words1, %words0\n  store i64 %lin, ptr %note\n"
    code += "  %note8 = getelementptr i8, ptr %note, i64 8\n  store i64 %cursor0, ptr %note8\n  %note16 = getelementptr i8, ptr %note, i64 16\n  store i64 %taken, ptr %note16\n"
    code += "  %n1 = add i64 %n0, 1\n  store i64 %n1, ptr %count.at\n  %full = icmp ugt i64 %words1, %trace_limit\n"
    code += "  %full.64 = zext i1 %full to i64\n  store i64 %full.64, ptr %dead.at\n  br label %trace.noted\ntrace.noted:\n"
    code += "  %prog = atomicrmw add ptr %done.at, i64 1 monotonic\n  %b.next = add i64 %b, 1\n  %more = icmp slt i64 %b.next, %b.end\n"
    code += "  br i1 %more, label %block, label %take\nfinish:\n  ret i32 0\nfailed:\n  %low = atomicrmw min ptr %end.at, i64 %b monotonic\n  ret i32 2\n}\ndeclare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n"
    return code


def _before_warp(plan: Plan, saved: bool) -> str:
    code = "  store i64 %w, ptr %warp.at\n  %row.w = add i64 %row.first, %w\n  %row.o = mul i64 %row.w, %exec_row_bytes\n  %row.a = add i64 %exec_rows, %row.o\n"
    code += "  %row.p = select i1 %row.kept, i64 %row.a, i64 %exec_common\n  store i64 %row.p, ptr %exec.at\n"
    if saved:
        code += "  %sv.o = mul i64 %w, %saved_bytes\n  %sv = add i64 %saved, %sv.o\n  store i64 %sv, ptr %saved.at2\n  %sv.p = inttoptr i64 %sv to ptr\n"
    if plan.local_bytes and saved:
        code += "  %lo.o = mul i64 %w, %local_bytes\n  %lo = add i64 %local, %lo.o\n  store i64 %lo, ptr %local.at2\n"
    return code


def _fill_local(plan: Plan, pointer: str) -> str:
    if not plan.local_bytes:
        return ""
    return f"  %lo.p = inttoptr i64 {pointer} to ptr\n  call void @llvm.memset.p0.i64(ptr %lo.p, i8 -1, i64 %local_bytes, i1 false)\n"


def _warps(plan: Plan) -> str:
    """No barrier: warp after warp."""
    code = (
        "  br label %warp.head\nwarp.head:\n  %w = phi i64 [ 0, %filled ], [ %w.next, %warp.ok ]\n"
        + _before_warp(plan, False)
        + _fill_local(plan, "%local")
    )
    code += "  %w.32 = trunc i64 %w to i32\n  %r = call i32 @warp(ptr %t, ptr %l, i32 %w.32, i32 0)\n  %bad = icmp eq i32 %r, 2\n"
    code += "  br i1 %bad, label %failed, label %warp.ok\nwarp.ok:\n  %w.next = add i64 %w, 1\n  %w.more = icmp slt i64 %w.next, %warps\n"
    return code + "  br i1 %w.more, label %warp.head, label %block.done\n"


def _phases(plan: Plan) -> str:
    """Rounds over the warps. A warp runs until it ends, parks at a barrier or spins; the barrier opens when every warp has ended
    or parked, a spinning warp goes on in the next round. Saved state: -1 ended, else parked; resume: layout.FRESH ... CONTINUED."""
    code = _put("sum0", "0") + _put("sum1", "0") + _put("phase", "0").replace("%put.phase", "%put.phase0")
    code += _put("arrival", "0").replace("%put.arrival", "%put.arrival0")
    code += "  br label %round.head\nround.head:\n  %resume = phi i32 [ 0, %filled ], [ %resume.next, %round.more ]\n"
    code += "  %ph = phi i64 [ 0, %filled ], [ %ph.next, %round.more ]\n  %first.round = icmp eq i32 %resume, 0\n  br label %warp.head\nwarp.head:\n"
    code += (
        "  %w = phi i64 [ 0, %round.head ], [ %w.next, %warp.next ]\n  %parked = phi i64 [ 0, %round.head ], [ %parked.new, %warp.next ]\n"
    )
    code += "  %spinning = phi i64 [ 0, %round.head ], [ %spinning.new, %warp.next ]\n"
    code += (
        _before_warp(plan, True)
        + "  %sv.how = getelementptr i8, ptr %sv.p, i64 4\n  br i1 %first.round, label %warp.fresh, label %warp.check\nwarp.fresh:\n"
    )
    code += (
        _fill_local(plan, "%lo") + "  br label %warp.go\nwarp.check:\n  %state = load i32, ptr %sv.p\n  %ended = icmp eq i32 %state, -1\n"
    )
    code += "  br i1 %ended, label %warp.next, label %warp.ready\nwarp.ready:\n"
    # a warp that parked at the barrier stays there while others spin
    code += "  %how = load i32, ptr %sv.how\n  %at.barrier = icmp eq i32 %how, 1\n  %closed = icmp eq i32 %resume, 2\n  %stays = and i1 %at.barrier, %closed\n"
    code += "  br i1 %stays, label %warp.stays, label %warp.again\nwarp.stays:\n  br label %warp.next\nwarp.again:\n"
    code += "  %own = select i1 %at.barrier, i32 1, i32 2\n  br label %warp.go\nwarp.go:\n  %enter = phi i32 [ 0, %warp.fresh ], [ %own, %warp.again ]\n"
    code += "  %w.32 = trunc i64 %w to i32\n  %r = call i32 @warp(ptr %t, ptr %l, i32 %w.32, i32 %enter)\n  %bad = icmp eq i32 %r, 2\n"
    code += "  br i1 %bad, label %failed, label %warp.ok\nwarp.ok:\n  store i32 %r, ptr %sv.how\n  %over.w = icmp eq i32 %r, 0\n"
    code += "  br i1 %over.w, label %warp.end, label %warp.kept\nwarp.end:\n  store i32 -1, ptr %sv.p\n  br label %warp.next\n"
    code += "warp.kept:\n  %spins = icmp eq i32 %r, 3\n  %spin.one = zext i1 %spins to i64\n  %park.one = xor i64 %spin.one, 1\n  br label %warp.next\n"
    code += "warp.next:\n  %add.park = phi i64 [ 0, %warp.check ], [ 1, %warp.stays ], [ 0, %warp.end ], [ %park.one, %warp.kept ]\n"
    code += "  %add.spin = phi i64 [ 0, %warp.check ], [ 0, %warp.stays ], [ 0, %warp.end ], [ %spin.one, %warp.kept ]\n"
    code += "  %parked.new = add i64 %parked, %add.park\n  %spinning.new = add i64 %spinning, %add.spin\n"
    code += "  %w.next = add i64 %w, 1\n  %w.more = icmp slt i64 %w.next, %warps\n  br i1 %w.more, label %warp.head, label %round.end\n"
    code += "round.end:\n  %left = add i64 %parked.new, %spinning.new\n  %any = icmp ne i64 %left, 0\n  br i1 %any, label %round.open, label %phases.done\n"
    code += "round.open:\n  %busy = icmp ne i64 %spinning.new, 0\n  br i1 %busy, label %round.more, label %release\nrelease:\n"
    code += "  %ph1 = add i64 %ph, 1\n  %par = and i64 %ph1, 1\n" + _put("phase", "%par") + _put("arrival", "0")
    code += f"  %sums = getelementptr i8, ptr %t, i64 {THREAD['sum0']}\n  %sum.now = getelementptr i64, ptr %sums, i64 %par\n  store i64 0, ptr %sum.now\n"
    code += "  br label %round.more\nround.more:\n  %resume.next = phi i32 [ 2, %round.open ], [ 1, %release ]\n  %ph.next = phi i64 [ %ph, %round.open ], [ %ph1, %release ]\n"
    restore = "  store i64 %saved, ptr %saved.at2\n  store i64 %local, ptr %local.at2\n"
    return code + "  br label %round.head\nphases.done:\n" + restore + "  br label %block.done\n"
