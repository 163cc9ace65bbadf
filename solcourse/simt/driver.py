"""The generated loop around warps: hands out blocks, runs their warps phase by phase between barriers, follows the Trace."""

from __future__ import annotations

from solcourse.simt.layout import (
    AT_BARRIER,
    AT_GRID,
    CONTINUED,
    DONE,
    ENDED,
    FAILED,
    FRESH,
    LAUNCH,
    RELEASED,
    SAVED_ENDED,
    SAVED_HOW,
    SPINNING,
    THREAD,
    TRACE_WARP,
    TRACED_BYTES,
)
from solcourse.simt.pieces import field
from solcourse.simt.plan import SPIN_ROUNDS, Plan


def _put(name: str, value: str, t: str = "i64") -> str:
    return f"  %put.{name} = getelementptr i8, ptr %t, i64 {THREAD[name]}\n  store {t} {value}, ptr %put.{name}\n"


def text(plan: Plan, checks: bool) -> str:
    """simt_run(thread): takes blocks until none is left. Returns DONE, or FAILED after an error (recorded in the thread).

    Where warps may wait for other blocks (plan.waits) it also returns when a block can only be suspended: SPINNING or AT_GRID.
    Called with THREAD's `enter` other than FRESH, it goes on with the block in THREAD's `block`, and returns ENDED after it."""
    told = "  call void @{}(i64 %t.i)\n" if checks else ""  # shadow.py is told of blocks and of barriers
    code = "define i32 @simt_run(ptr %t) {\nentry:\n  %t.i = ptrtoint ptr %t to i64\n" + field(
        "launch", "%t", THREAD["launch"], "ptr"
    ).replace("%launch", "%l")
    code += "".join(
        field(n, "%l", LAUNCH[n])
        for n in "end chunk first grid_x grid_y warps shared_bytes local_bytes saved_bytes exec_rows exec_rows_blocks exec_row_bytes trace_blocks".split()
    )
    code += "".join(field(n, "%t", THREAD[n]) for n in ("shared", "local", "saved", "exec_common", "trace_limit", "blocks"))
    code += f"  %next.at = getelementptr i8, ptr %l, i64 {LAUNCH['next']}\n  %done.at = getelementptr i8, ptr %l, i64 {LAUNCH['done']}\n"
    code += f"  %stop.at = getelementptr i8, ptr %l, i64 {LAUNCH['stop']}\n"
    code += f"  %count.at = getelementptr i8, ptr %t, i64 {THREAD['blocks_count']}\n"
    code += f"  %cursor.at = getelementptr i8, ptr %t, i64 {THREAD['trace']}\n  %dead.at = getelementptr i8, ptr %t, i64 {THREAD['trace_dead']}\n"
    code += f"  %exec.at = getelementptr i8, ptr %t, i64 {THREAD['exec']}\n  %warp.at = getelementptr i8, ptr %t, i64 {THREAD['warp']}\n"
    code += (
        f"  %local.at2 = getelementptr i8, ptr %t, i64 {THREAD['local']}\n  %saved.at2 = getelementptr i8, ptr %t, i64 {THREAD['saved']}\n"
    )
    code += _choose(plan) + "take:\n  %b0 = atomicrmw add ptr %next.at, i64 %chunk monotonic\n  %none = icmp sge i64 %b0, %end\n"
    code += "  br i1 %none, label %finish, label %chunk.go\nchunk.go:\n  %b1 = add i64 %b0, %chunk\n  %over = icmp sgt i64 %b1, %end\n"
    code += "  %b.end = select i1 %over, i64 %end, i64 %b1\n  br label %block\nblock:\n"
    if plan.waits:
        code += f"  %b = phi i64 [ %b0, %chunk.go ], [ %b.own, %go.on ]\n  %way = phi i64 [ {FRESH}, %chunk.go ], [ %enter, %go.on ]\n"
    else:
        code += "  %b = phi i64 [ %b0, %chunk.go ], [ %b.next, %trace.noted ]\n"
    code += "  %lin = add i64 %first, %b\n"
    # a stray access in block k ends the launch for the blocks after k only, so that the first one is found whatever the threads
    code += "  %end.now = load atomic i64, ptr %end.at monotonic, align 8\n  %late = icmp sge i64 %b, %end.now\n"
    code += "  %stop = load atomic i64, ptr %stop.at monotonic, align 8\n  %asked = icmp ne i64 %stop, 0\n  %quit = or i1 %late, %asked\n"
    code += "  br i1 %quit, label %finish, label %block.go\nblock.go:\n"
    code += "  %x = urem i64 %lin, %grid_x\n  %yz = udiv i64 %lin, %grid_x\n  %y = urem i64 %yz, %grid_y\n  %z = udiv i64 %yz, %grid_y\n"
    for axis in "xyz":
        code += f"  %{axis}.32 = trunc i64 %{axis} to i32\n" + _put(f"ctaid_{axis}", f"%{axis}.32", "i32")
    code += _put("block", "%lin")
    code += "  %dead = load i64, ptr %dead.at\n  %alive = icmp eq i64 %dead, 0\n  %early = icmp slt i64 %b, %trace_blocks\n  %traced = and i1 %alive, %early\n"
    code += "  %end.trace = select i1 %traced, i64 %trace_limit, i64 0\n" + _put("trace_end", "%end.trace")
    code += "  %cursor0 = load i64, ptr %cursor.at\n"
    code += "  %row.kept = icmp slt i64 %b, %exec_rows_blocks\n  %row.first = mul i64 %b, %warps\n"
    if plan.waits:
        code += (
            _put("trace_from", "%cursor0")
            + f"  %is.fresh = icmp eq i64 %way, {FRESH}\n  br i1 %is.fresh, label %fresh, label %filled\nfresh:\n"
        )
    if plan.has_barriers:
        code += "".join(_put(name, "0").replace(f"%put.{name}", f"%zero.{name}") for name in ("sum0", "sum1", "phase", "arrival"))
    code += told.format("simt_begin")
    code += "  %has.shared = icmp ne i64 %shared_bytes, 0\n  br i1 %has.shared, label %fill, label %filled\n"
    # uninitialised shared and local memory is poisoned, so that results do not depend on which thread ran the block
    code += "fill:\n  %shared.p = inttoptr i64 %shared to ptr\n  call void @llvm.memset.p0.i64(ptr %shared.p, i8 -1, i64 %shared_bytes, i1 false)\n  br label %filled\nfilled:\n"
    code += _phases(plan, told) if plan.has_barriers else _warps(plan)
    code += "block.done:\n  %prog = atomicrmw add ptr %done.at, i64 1 monotonic\n"
    if plan.waits:
        code += f"  br i1 %is.fresh, label %noting, label %ended\nended:\n  ret i32 {ENDED}\nnoting:\n"
    code += "  br i1 %traced, label %trace.note, label %trace.noted\ntrace.note:\n  %n0 = load i64, ptr %count.at\n"
    code += f"  %no = mul i64 %n0, {TRACED_BYTES}\n  %blocks.p = inttoptr i64 %blocks to ptr\n  %note = getelementptr i8, ptr %blocks.p, i64 %no\n"
    code += "  %cursor1 = load i64, ptr %cursor.at\n  store i64 %lin, ptr %note\n  %note8 = getelementptr i8, ptr %note, i64 8\n"
    code += "  store i64 %cursor0, ptr %note8\n  %note16 = getelementptr i8, ptr %note, i64 16\n  store i64 %cursor1, ptr %note16\n"
    code += "  %n1 = add i64 %n0, 1\n  store i64 %n1, ptr %count.at\n  %full = icmp uge i64 %cursor1, %trace_limit\n"
    code += "  %full.64 = zext i1 %full to i64\n  store i64 %full.64, ptr %dead.at\n  br label %trace.noted\ntrace.noted:\n"
    on = "  %b.next = add i64 %b, 1\n  %more = icmp slt i64 %b.next, %b.end\n  br i1 %more, label %block, label %take\n"
    code += "  br label %take\n" if plan.waits else on
    code += f"finish:\n  ret i32 {DONE}\nfailed:\n  %low = atomicrmw min ptr %end.at, i64 %b monotonic\n  ret i32 {FAILED}\n}}\ndeclare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n"
    return code


def _choose(plan: Plan) -> str:
    """A block of its own, or the one that the machine wants to go on."""
    if not plan.waits:
        return "  br label %take\n"
    code = field("enter", "%t", THREAD["enter"]) + field("lin.own", "%t", THREAD["block"]) + "  %b.own = sub i64 %lin.own, %first\n"
    return code + f"  %any.block = icmp eq i64 %enter, {FRESH}\n  br i1 %any.block, label %take, label %go.on\ngo.on:\n  br label %block\n"


def _before_warp(plan: Plan, saved: bool) -> str:
    code = f"  store i64 %w, ptr %warp.at\n  %w.trace = shl i64 %w, {TRACE_WARP}\n" + _put("trace_warp", "%w.trace")
    code += "  %row.w = add i64 %row.first, %w\n  %row.o = mul i64 %row.w, %exec_row_bytes\n  %row.a = add i64 %exec_rows, %row.o\n"
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


def _phases(plan: Plan, told: str) -> str:
    """Rounds over the warps. A warp runs until it ends, parks at a barrier or spins; the barrier opens when every warp has ended
    or parked, a spinning warp goes on in the next round. The saved state (layout.py) says what a warp did last."""
    enter = "%way.32" if plan.waits else str(FRESH)
    code = (field("ph0", "%t", THREAD["phase"]) + "  %way.32 = trunc i64 %way to i32\n") if plan.waits else ""
    code += f"  br label %round.head\nround.head:\n  %resume = phi i32 [ {enter}, %filled ], [ %resume.next, %round.more ]\n"
    code += f"  %ph = phi i64 [ {'%ph0' if plan.waits else 0}, %filled ], [ %ph.next, %round.more ]\n"
    if plan.waits:
        code += "  %rounds = phi i64 [ 0, %filled ], [ %rounds.next, %round.more ]\n" + _put("moved", "0")
    code += f"  %first.round = icmp eq i32 %resume, {FRESH}\n  br label %warp.head\nwarp.head:\n"
    code += "  %w = phi i64 [ 0, %round.head ], [ %w.next, %warp.next ]\n"
    for count in COUNTED:
        code += f"  %{count} = phi i64 [ 0, %round.head ], [ %{count}.new, %warp.next ]\n"
    code += _before_warp(plan, True) + f"  %sv.how = getelementptr i8, ptr %sv.p, i64 {SAVED_HOW}\n"
    code += "  br i1 %first.round, label %warp.fresh, label %warp.check\nwarp.fresh:\n" + _fill_local(plan, "%lo")
    code += f"  br label %warp.go\nwarp.check:\n  %state = load i32, ptr %sv.p\n  %over.before = icmp eq i32 %state, {SAVED_ENDED}\n"
    code += "  br i1 %over.before, label %warp.next, label %warp.ready\nwarp.ready:\n"
    # a warp that parked at a barrier stays there while others spin
    code += f"  %how = load i32, ptr %sv.how\n  %spun = icmp eq i32 %how, {SPINNING}\n  %closed = icmp eq i32 %resume, {CONTINUED}\n"
    code += (
        "  %at.barrier = xor i1 %spun, true\n  %stays = and i1 %at.barrier, %closed\n  br i1 %stays, label %warp.stays, label %warp.again\n"
    )
    code += (
        f"warp.stays:\n  br label %warp.next\nwarp.again:\n  %own = select i1 %spun, i32 {CONTINUED}, i32 {RELEASED}\n  br label %warp.go\n"
    )
    code += f"warp.go:\n  %enter.w = phi i32 [ {FRESH}, %warp.fresh ], [ %own, %warp.again ]\n  %w.32 = trunc i64 %w to i32\n"
    code += f"  %r = call i32 @warp(ptr %t, ptr %l, i32 %w.32, i32 %enter.w)\n  %bad = icmp eq i32 %r, {FAILED}\n"
    code += f"  br i1 %bad, label %failed, label %warp.ok\nwarp.ok:\n  store i32 %r, ptr %sv.how\n  %over.w = icmp eq i32 %r, {DONE}\n"
    code += f"  br i1 %over.w, label %warp.end, label %warp.kept\nwarp.end:\n  store i32 {SAVED_ENDED}, ptr %sv.p\n  br label %warp.next\n"
    code += f"warp.kept:\n  %no.spin = icmp ne i32 %r, {SPINNING}\n  %stopped = zext i1 %no.spin to i64\n  br label %warp.next\n"
    code += f"warp.next:\n  %why = phi i32 [ {DONE}, %warp.check ], [ %how, %warp.stays ], [ {DONE}, %warp.end ], [ %r, %warp.kept ]\n"
    code += "  %got.on = phi i64 [ 0, %warp.check ], [ 0, %warp.stays ], [ 1, %warp.end ], [ %stopped, %warp.kept ]\n"
    for count, (test, wanted) in COUNTED.items():
        code += f"  %is.{count} = icmp {test} i32 %why, {wanted}\n  %one.{count} = zext i1 %is.{count} to i64\n" if test else ""
        code += f"  %{count}.new = add i64 %{count}, %{f'one.{count}' if test else wanted}\n"
    code += "  %w.next = add i64 %w, 1\n  %w.more = icmp slt i64 %w.next, %warps\n  br i1 %w.more, label %warp.head, label %round.end\n"
    code += (
        "round.end:\n"
        + (_note_moves() if plan.waits else "")
        + "  %any = icmp ne i64 %left.new, 0\n  br i1 %any, label %round.open, label %phases.done\nround.open:\n"
    )
    code += (
        "  %all.parked = icmp eq i64 %parked.new, %left.new\n  br i1 %all.parked, label %release, label %shut\n"
        if plan.waits
        else "  br label %release\n"
    )
    code += (
        "release:\n"
        + told.format("simt_barrier")
        + "  %ph1 = add i64 %ph, 1\n  %par = and i64 %ph1, 1\n"
        + _put("phase", "%par")
        + _put("arrival", "0")
    )
    code += f"  %sums = getelementptr i8, ptr %t, i64 {THREAD['sum0']}\n  %sum.now = getelementptr i64, ptr %sums, i64 %par\n  store i64 0, ptr %sum.now\n"
    code += "  br label %round.more\n" + (_shut() if plan.waits else "") + "round.more:\n"
    again = f", [ {CONTINUED}, %shut.again ]", ", [ %ph, %shut.again ]"
    code += f"  %resume.next = phi i32 [ {RELEASED}, %release ]{again[0] if plan.waits else ''}\n"
    code += f"  %ph.next = phi i64 [ %ph1, %release ]{again[1] if plan.waits else ''}\n"
    code += "  %rounds.next = add i64 %rounds, 1\n" if plan.waits else ""
    restore = "  store i64 %saved, ptr %saved.at2\n  store i64 %local, ptr %local.at2\n"
    return code + "  br label %round.head\nphases.done:\n" + restore + "  br label %block.done\n"


# of a round's warps: those that have not ended, that wait at the block's and at the grid's barrier, that got somewhere
COUNTED = {"left": ("ne", DONE), "parked": ("eq", AT_BARRIER), "at_grid": ("eq", AT_GRID), "events": ("", "got.on")}


def _note_moves() -> str:
    """What a round changed in memory is part of what this call of simt_run changed."""
    code = field("moved", "%t", THREAD["moved"]) + field("moves", "%t", THREAD["moves"])
    return code + "  %moves.new = or i64 %moves, %moved\n  store i64 %moves.new, ptr %moves.at\n"


def _shut() -> str:
    """No barrier of the block opens. Another round if something happened in this one, but not for ever; else the block is suspended."""
    code = "shut:\n  %all.at.grid = icmp eq i64 %at_grid.new, %left.new\n  %happened = or i64 %moved, %events.new\n"
    code += f"  %quiet = icmp eq i64 %happened, 0\n  %enough = icmp uge i64 %rounds, {SPIN_ROUNDS}\n"
    code += "  %give.0 = or i1 %quiet, %enough\n  %give = or i1 %give.0, %all.at.grid\n  br i1 %give, label %suspend, label %shut.again\n"
    code += f"suspend:\n  %why.b = select i1 %all.at.grid, i32 {AT_GRID}, i32 {SPINNING}\n  ret i32 %why.b\nshut.again:\n  br label %round.more\n"
    return code
