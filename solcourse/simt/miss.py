"""simt_miss: what a lane pattern that is new to a memory site costs. The definition of sectors, wavefronts and bank conflicts in code.

Shared memory has 32 banks of 4 bytes; 8-byte accesses go by half-warps, 16-byte ones by quarters. Constant memory serves one address
after another. The pattern is the 32 offsets in the thread's `scratch`; what it costs goes into the site's memo entry %e (layout.MEMO),
for when it comes again. Step by step below.
"""

from __future__ import annotations

from solcourse.simt.layout import MEMO, THREAD, TOTALS_BYTES
from solcourse.simt.pieces import C64, CHUNK, V1, V8, V32, V64, at, field, lanes, splat

SHARED, LOCAL, CONSTANT = 0x100, 0x200, 0x400  # flags of simt_miss, above the access size in bytes and below the stride

_LINES = f"""
; the 128-byte lines a set of lanes touches: writes (line - base) << 32 | word mask to %out (unless null), adds each line's
; words to the per-bank counters, returns the number of lines
define internal i32 @lines({V64} %line, {V32} %words, i32 %mask, i64 %base, ptr %out, ptr %banks) {{
entry:
  br label %head
head:
  %left = phi i32 [ %mask, %entry ], [ %rest, %store ]
  %n = phi i32 [ 0, %entry ], [ %n1, %store ]
  %banks.now = phi {V8} [ zeroinitializer, %entry ], [ %banks.new, %store ]
  %done = icmp eq i32 %left, 0
  br i1 %done, label %exit, label %body
body:
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %this = extractelement {V64} %line, i32 %lane
{splat("this.v", "%this", "i64")}
  %same = icmp eq {V64} %line, %this.v
  %same.bits = bitcast {V1} %same to i32
  %who = and i32 %same.bits, %left
  %who.v = bitcast i32 %who to {V1}
  %picked = select {V1} %who.v, {V32} %words, {V32} zeroinitializer
  %mask.words = call i32 @llvm.vector.reduce.or.v32i32({V32} %picked)
  %bank.bits = bitcast i32 %mask.words to {V1}
  %bank.add = zext {V1} %bank.bits to {V8}
  %banks.new = add {V8} %banks.now, %bank.add
  %rest = xor i32 %left, %who
  %n1 = add i32 %n, 1
  %want = icmp ne ptr %out, null
  br i1 %want, label %write, label %store
write:
  %delta = sub i64 %this, %base
  %high = shl i64 %delta, 32
  %low = zext i32 %mask.words to i64
  %word = or i64 %high, %low
  %n.64 = zext i32 %n to i64
  %slot = getelementptr i64, ptr %out, i64 %n.64
  store i64 %word, ptr %slot
  br label %store
store:
  br label %head
exit:
  store {V8} %banks.now, ptr %banks
  ret i32 %n
}}
"""

# the memo entry's fields, and the site's totals
_ENTRY = f"""define void @simt_miss(ptr %t, ptr %e, i32 %site, i32 %mask, i32 %flags, i64 %bytes) {{
entry:
  %banks = alloca {V8}, align 32
{"".join(at(f"e.{n}", "%e", o) for n, o in MEMO.items())}"""


def _flush() -> str:
    """What the entry's old pattern has cost, hits times its costs, goes to the site's totals."""
    code = "  %hits = load i64, ptr %e.hits\n"
    code += field("totals", "%t", THREAD["totals"], "ptr") + "  %site.64 = zext i32 %site to i64\n"
    code += f"  %row.off = mul i64 %site.64, {TOTALS_BYTES}\n  %row = getelementptr i8, ptr %totals, i64 %row.off\n"
    for k, name in enumerate(("sectors", "wavefronts", "conflicts")):
        code += at(f"f.{name}", "%e", MEMO[name]) + at(f"t.{name}", "%row", 8 * k)
        code += f"  %fv.{name} = load i64, ptr %f.{name}\n  %fm.{name} = mul i64 %fv.{name}, %hits\n"
        code += f"  %to.{name} = load i64, ptr %t.{name}\n  %tn.{name} = add i64 %to.{name}, %fm.{name}\n"
        code += f"  store i64 %tn.{name}, ptr %t.{name}\n"
    return code + "  store i64 0, ptr %e.hits\n"


# the offsets relative to the line of the first active lane, their lowest and highest, and how many lowest offsets are in the array
_PATTERN = f"""{field("scratch", "%t", THREAD["scratch"], "ptr")}  %off = load {V64}, ptr %scratch, align 64
  %first.lane = call i32 @llvm.cttz.i32(i32 %mask, i1 false)
  %first.in = and i32 %first.lane, 31
  %ref = extractelement {V64} %off, i32 %first.in
  %align = and i64 %ref, 127
  %origin = sub i64 %ref, %align
{splat("origin.v", "%origin", "i64")}
  %pattern = sub {V64} %off, %origin.v
  store {V64} %pattern, ptr %e.pattern, align 64
  store i32 %mask, ptr %e.mask
  %mask.v = bitcast i32 %mask to {V1}
{splat("ref.v", "%ref", "i64")}
  %moved = sub {V64} %off, %ref.v
  %for.min = select {V1} %mask.v, {V64} %moved, {V64} {lanes("i64", [2**62] * 32)}
  %for.max = select {V1} %mask.v, {V64} %moved, {V64} {lanes("i64", [-(2**62)] * 32)}
  %low = call i64 @llvm.vector.reduce.smin.v32i64({V64} %for.min)
  %top = call i64 @llvm.vector.reduce.smax.v32i64({V64} %for.max)
  %size = and i32 %flags, 255
  %size.64 = zext i32 %size to i64
  %high = add i64 %top, %size.64
  %span = sub i64 %high, %low
  store i64 %low, ptr %e.low
  store i64 %span, ptr %e.span
  %places = add i64 %bytes, 1
  %over = sub i64 %places, %span
  %room.at = call i64 @llvm.smax.i64(i64 %over, i64 0)
  store i64 %room.at, ptr %e.room
"""

# unit stride over all lanes, one address, or anything else; and whether it is a run at the site's own stride
_KIND = f"""{splat("size.v", "%size.64", "i64")}
  %unit.want = mul {V64} %size.v, {lanes("i64", range(32))}
  %unit.eq = icmp eq {V64} %moved, %unit.want
  %unit.bits = bitcast {V1} %unit.eq to i32
  %unit.all = icmp eq i32 %unit.bits, -1
  %full = icmp eq i32 %mask, -1
  %unit = and i1 %unit.all, %full
  %one = icmp eq i64 %low, %top
  %kind.same = select i1 %one, i16 2, i16 0
  %kind = select i1 %unit, i16 1, i16 %kind.same
  store i16 %kind, ptr %e.kind
  %stride = lshr i32 %flags, 16
  %stride.64 = zext i32 %stride to i64
{splat("stride.v", "%stride.64", "i64")}
  %run.want = mul {V64} %stride.v, {lanes("i64", range(32))}
  %run.eq = icmp eq {V64} %moved, %run.want
  %run.bits = bitcast {V1} %run.eq to i32
  %run.all = icmp eq i32 %run.bits, -1
  %run.full = and i1 %run.all, %full
  %told = icmp ne i32 %stride, 0
  %run = and i1 %run.full, %told
  %odd = and i64 %ref, 3
  %even = icmp eq i64 %odd, 0
  %from.word = and i1 %run, %even
  %run.room = select i1 %from.word, i64 %room.at, i64 0
  store i64 %run.room, ptr %e.run
"""

# the words of each lane's line, and the lines of all lanes; a local 8-byte access counts as its first row of words here
_WORDS = f"""  %line = ashr {V64} %off, {lanes("i64", [7] * 32)}
  %word.64 = lshr {V64} %off, {lanes("i64", [2] * 32)}
  %word.32 = trunc {V64} %word.64 to {V32}
  %word = and {V32} %word.32, {lanes("i32", [31] * 32)}
  %is8 = icmp ugt i32 %size, 4
  %is16 = icmp ugt i32 %size, 8
  %local.bit = and i32 %flags, {LOCAL}
  %is.local = icmp ne i32 %local.bit, 0
  %bits8 = select i1 %is8, i32 3, i32 1
  %bits16 = select i1 %is16, i32 15, i32 %bits8
  %bits = select i1 %is.local, i32 1, i32 %bits16
{splat("bits.v", "%bits", "i32")}
  %words = shl {V32} %bits.v, %word
  %base = ashr i64 %ref, 7
  %shared.bit = and i32 %flags, {SHARED}
  %is.shared = icmp ne i32 %shared.bit, 0
  %out = select i1 %is.shared, ptr null, ptr %e.line
  %lines = call i32 @lines({V64} %line, {V32} %words, i32 %mask, i64 %base, ptr %out, ptr %banks)
  %lines.kept = select i1 %is.shared, i32 0, i32 %lines
"""

# groups of 8 words of a line that have a bit
_SECTORS = """  br label %sector.head
sector.head:
  %i = phi i32 [ 0, %entry ], [ %i1, %sector.body ]
  %sectors = phi i64 [ 0, %entry ], [ %sectors.new, %sector.body ]
  %more = icmp slt i32 %i, %lines.kept
  br i1 %more, label %sector.body, label %sector.done
sector.body:
  %i.64 = zext i32 %i to i64
  %lw.at = getelementptr i64, ptr %e.line, i64 %i.64
  %lw = load i64, ptr %lw.at
  %w = trunc i64 %lw to i32
  %w4 = lshr i32 %w, 4
  %wa = or i32 %w, %w4
  %w2 = lshr i32 %wa, 2
  %wb = or i32 %wa, %w2
  %w1 = lshr i32 %wb, 1
  %wc = or i32 %wb, %w1
  %wd = and i32 %wc, 16843009
  %pop = call i32 @llvm.ctpop.i32(i32 %wd)
  %pop.64 = zext i32 %pop to i64
  %sectors.new = add i64 %sectors, %pop.64
  %i1 = add i32 %i, 1
  br label %sector.head
"""

# how often the busiest bank is asked, by groups of lanes that go through the banks together
_WAVEFRONTS = f"""sector.done:
  %constant.bit = and i32 %flags, {CONSTANT}
  %is.constant = icmp ne i32 %constant.bit, 0
  %as.one = or i1 %is.local, %is.constant
  %grouped = xor i1 %as.one, true
  %two = and i1 %is8, %grouped
  br i1 %two, label %group.head, label %whole
whole:
  %banks.v = load {V8}, ptr %banks
  %most = call i8 @llvm.vector.reduce.umax.v32i8({V8} %banks.v)
  %most.bank = zext i8 %most to i64
  %every = call i8 @llvm.vector.reduce.add.v32i8({V8} %banks.v)
  %every.32 = zext i8 %every to i32
  %four = add i32 %size, 3
  %per.lane = lshr i32 %four, 2
  %addresses = udiv i32 %every.32, %per.lane
  %addresses.64 = zext i32 %addresses to i64
  %most.64 = select i1 %is.constant, i64 %addresses.64, i64 %most.bank
  br label %finish
group.head:
  %group = phi i32 [ 0, %sector.done ], [ %group1, %group.next ]
  %waves = phi i64 [ 0, %sector.done ], [ %waves.new, %group.next ]
  %ideal = phi i64 [ 0, %sector.done ], [ %ideal.new, %group.next ]
  %width = select i1 %is16, i32 8, i32 16
  %start = mul i32 %group, %width
  %end.now = icmp uge i32 %start, 32
  br i1 %end.now, label %finish, label %group.body
group.body:
  %ones = shl i32 1, %width
  %ones1 = sub i32 %ones, 1
  %gmask = shl i32 %ones1, %start
  %gm = and i32 %gmask, %mask
  %some = icmp ne i32 %gm, 0
  br i1 %some, label %group.count, label %group.next
group.count:
  %gl = call i32 @lines({V64} %line, {V32} %words, i32 %gm, i64 0, ptr null, ptr %banks)
  %gbanks = load {V8}, ptr %banks
  %gmost = call i8 @llvm.vector.reduce.umax.v32i8({V8} %gbanks)
  %gmost.64 = zext i8 %gmost to i64
  br label %group.next
group.next:
  %add = phi i64 [ 0, %group.body ], [ %gmost.64, %group.count ]
  %add.ideal = phi i64 [ 0, %group.body ], [ 1, %group.count ]
  %waves.new = add i64 %waves, %add
  %ideal.new = add i64 %ideal, %add.ideal
  %group1 = add i32 %group, 1
  br label %group.head
"""

# a local 8-byte access is two interleaved 4-byte rows: each line again, one further
_LOCAL_ROWS = """finish:
  %wave = phi i64 [ %most.64, %whole ], [ %waves, %group.head ]
  %best = phi i64 [ 1, %whole ], [ %ideal, %group.head ]
  %two.words = and i1 %is.local, %is8
  br i1 %two.words, label %double, label %last
double:
  br label %double.head
double.head:
  %d = phi i32 [ 0, %double ], [ %d1, %double.body ]
  %dmore = icmp slt i32 %d, %lines.kept
  br i1 %dmore, label %double.body, label %double.done
double.body:
  %d.64 = zext i32 %d to i64
  %src = getelementptr i64, ptr %e.line, i64 %d.64
  %src.v = load i64, ptr %src
  %next.v = add i64 %src.v, 4294967296
  %place = add i32 %d, %lines.kept
  %place.64 = zext i32 %place to i64
  %dst = getelementptr i64, ptr %e.line, i64 %place.64
  store i64 %next.v, ptr %dst
  %d1 = add i32 %d, 1
  br label %double.head
double.done:
  %lines.two = shl i32 %lines.kept, 1
  br label %last
"""

# into the entry
_COSTS = """last:
  %lines.all = phi i32 [ %lines.kept, %finish ], [ %lines.two, %double.done ]
  %lines.16 = trunc i32 %lines.all to i16
  store i16 %lines.16, ptr %e.lines
  %line.first = load i32, ptr %e.line
  store i32 %line.first, ptr %e.words
  %factor = select i1 %two.words, i64 2, i64 1
  %sectors.f = mul i64 %sectors, %factor
  %wave.f = mul i64 %wave, %factor
  %conflict = sub i64 %wave, %best
  %conflict.f = select i1 %is.shared, i64 %conflict, i64 0
  store i64 %sectors.f, ptr %e.sectors
  store i64 %wave.f, ptr %e.wavefronts
  store i64 %conflict.f, ptr %e.conflicts
"""

# the lines become one of the Trace's shapes; without room (more patterns than a Trace holds requests) the empty one
_SHAPE = f"""{field("used", "%t", THREAD["shapes_used"])}{field("shapes.limit", "%t", THREAD["shapes_limit"])}  store i64 0, ptr %e.shape
  %lines.64 = zext i32 %lines.all to i64
  %lines.up = add i64 %used, %lines.64
  %used.new = add i64 %lines.up, 1
  %fits = icmp sle i64 %used.new, %shapes.limit
  %global = xor i1 %is.shared, true
  %shaped = and i1 %fits, %global
  br i1 %shaped, label %shape, label %out.ret
shape:
  store i64 %used, ptr %e.shape
  store i64 %used.new, ptr %used.at
{field("shapes", "%t", THREAD["shapes"], "ptr")}  %shape.to = getelementptr i64, ptr %shapes, i64 %used
  %site.up = shl i64 %site.64, 32
  %header.0 = or i64 %site.up, {-(2**63)}
  %header = or i64 %header.0, %lines.64
  store i64 %header, ptr %shape.to
  %lines.to = getelementptr i64, ptr %shape.to, i64 1
  br label %shape.head
shape.head:
  %s = phi i64 [ 0, %shape ], [ %s1, %shape.head ]
  %from.at = getelementptr i64, ptr %e.line, i64 %s
  %some.lines = load {C64}, ptr %from.at, align 64
  %to.at = getelementptr i64, ptr %lines.to, i64 %s
  store {C64} %some.lines, ptr %to.at, align 8
  %s1 = add i64 %s, {CHUNK}
  %s.more = icmp ult i64 %s1, %lines.64
  br i1 %s.more, label %shape.head, label %out.ret
out.ret:
  ret void
}}
"""

_STEPS = (_ENTRY, _flush(), _PATTERN, _KIND, _WORDS, _SECTORS, _WAVEFRONTS, _LOCAL_ROWS, _COSTS, _SHAPE)
MISS = _LINES + "".join(_STEPS)
