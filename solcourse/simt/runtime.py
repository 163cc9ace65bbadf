"""The engine's own LLVM IR that does not depend on the kernel: what happens when a lane pattern is new, or an access strays; and
what reads the records of a launch afterwards.

Compiled once per process; generated kernels call it by symbol. `simt_miss` is the definition of sectors, wavefronts and
bank conflicts in code (rules: shared memory has 32 banks of 4 bytes; 8-byte accesses go by half-warps, 16-byte by quarters).
"""

from __future__ import annotations

from solcourse.simt.layout import ERROR_BOUNDS, MEMO, THREAD, TOTALS_BYTES, TRACE_INLINE

SHARED, LOCAL = 0x100, 0x200  # flags of simt_miss, above the access size in bytes

CHUNK = 8  # lines handled at a time
C64 = f"<{CHUNK} x i64>"
V64, V32, V1, V8 = "<32 x i64>", "<32 x i32>", "<32 x i1>", "<32 x i8>"


def splat(name: str, value: str, t: str) -> str:
    """Two instructions that make %name a vector of 32 equal lanes."""
    return (
        f"  %{name}.one = insertelement <32 x {t}> poison, {t} {value}, i64 0\n"
        f"  %{name} = shufflevector <32 x {t}> %{name}.one, <32 x {t}> poison, <32 x i32> zeroinitializer\n"
    )


def at(name: str, base: str, offset: int) -> str:
    return f"  %{name} = getelementptr i8, ptr {base}, i64 {offset}\n"


def lanes(t: str, values) -> str:
    return "<" + ", ".join(f"{t} {v}" for v in values) + ">"


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


def _miss() -> str:
    flush = ""
    for k, name in enumerate(("sectors", "wavefronts", "conflicts")):
        flush += at(f"f.{name}", "%e", MEMO[name]) + at(f"t.{name}", "%row", 8 * k)
        flush += f"  %fv.{name} = load i64, ptr %f.{name}\n  %fm.{name} = mul i64 %fv.{name}, %hits\n"
        flush += f"  %to.{name} = load i64, ptr %t.{name}\n  %tn.{name} = add i64 %to.{name}, %fm.{name}\n"
        flush += f"  store i64 %tn.{name}, ptr %t.{name}\n"
    fields = "".join(at(f"e.{n}", "%e", o) for n, o in MEMO.items())
    return f"""
define void @simt_miss(ptr %t, ptr %e, i32 %site, i32 %mask, i32 %flags) {{
entry:
  %banks = alloca {V8}, align 32
{fields}
  %hits = load i64, ptr %e.hits
{at("totals.at", "%t", THREAD["totals"])}  %totals = load ptr, ptr %totals.at
  %site.64 = zext i32 %site to i64
  %row.off = mul i64 %site.64, {TOTALS_BYTES}
  %row = getelementptr i8, ptr %totals, i64 %row.off
{flush}
  store i64 0, ptr %e.hits
{at("scratch.at", "%t", THREAD["scratch"])}  %scratch = load ptr, ptr %scratch.at
  %off = load {V64}, ptr %scratch, align 64
  %first.lane = call i32 @llvm.cttz.i32(i32 %mask, i1 false)
  %first.in = and i32 %first.lane, 31
  %ref = extractelement {V64} %off, i32 %first.in
{splat("ref.v", "%ref", "i64")}
  %pattern = sub {V64} %off, %ref.v
  store {V64} %pattern, ptr %e.pattern, align 64
  %mask.v = bitcast i32 %mask to {V1}
  %for.min = select {V1} %mask.v, {V64} %pattern, {V64} {lanes("i64", [2**62] * 32)}
  %for.max = select {V1} %mask.v, {V64} %pattern, {V64} {lanes("i64", [-(2**62)] * 32)}
  %low = call i64 @llvm.vector.reduce.smin.v32i64({V64} %for.min)
  %top = call i64 @llvm.vector.reduce.smax.v32i64({V64} %for.max)
  %size = and i32 %flags, 255
  %size.64 = zext i32 %size to i64
  %high = add i64 %top, %size.64
  store i64 %low, ptr %e.low
  store i64 %high, ptr %e.high
  %align = and i64 %ref, 127
  %align.up = shl i64 %align, 32
  %mask.64 = zext i32 %mask to i64
  %key = or i64 %align.up, %mask.64
  store i64 %key, ptr %e.key
  ; unit stride over all lanes, one address, or anything else
{splat("size.v", "%size.64", "i64")}
  %unit.want = mul {V64} %size.v, {lanes("i64", range(32))}
  %unit.eq = icmp eq {V64} %pattern, %unit.want
  %unit.bits = bitcast {V1} %unit.eq to i32
  %unit.all = icmp eq i32 %unit.bits, -1
  %full = icmp eq i32 %mask, -1
  %unit = and i1 %unit.all, %full
  %one = icmp eq i64 %low, %top
  %kind.same = select i1 %one, i16 2, i16 0
  %kind = select i1 %unit, i16 1, i16 %kind.same
  store i16 %kind, ptr %e.kind
  ; words of each lane's line
  %line = ashr {V64} %off, {lanes("i64", [7] * 32)}
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
  ; sectors: groups of 8 words that have a bit
  br label %sector.head
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
sector.done:
  ; wavefronts, by groups of lanes that go through the banks together
  %grouped = xor i1 %is.local, true
  %two = and i1 %is8, %grouped
  br i1 %two, label %group.head, label %whole
whole:
  %banks.v = load {V8}, ptr %banks
  %most = call i8 @llvm.vector.reduce.umax.v32i8({V8} %banks.v)
  %most.64 = zext i8 %most to i64
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
finish:
  %wave = phi i64 [ %most.64, %whole ], [ %waves, %group.head ]
  %best = phi i64 [ 1, %whole ], [ %ideal, %group.head ]
  %two.words = and i1 %is.local, %is8
  br i1 %two.words, label %double, label %last
double:
  ; a local 8-byte access is two interleaved 4-byte rows: each line again, one further
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
last:
  %lines.all = phi i32 [ %lines.kept, %finish ], [ %lines.two, %double.done ]
  %lines.16 = trunc i32 %lines.all to i16
  store i16 %lines.16, ptr %e.lines
  %factor = select i1 %two.words, i64 2, i64 1
  %sectors.f = mul i64 %sectors, %factor
  %wave.f = mul i64 %wave, %factor
  %conflict = sub i64 %wave, %best
  %conflict.f = select i1 %is.shared, i64 %conflict, i64 0
  store i64 %sectors.f, ptr %e.sectors
  store i64 %wave.f, ptr %e.wavefronts
  store i64 %conflict.f, ptr %e.conflicts
  ; while the Trace is on, the lines become one of its shapes
{at("used.at", "%t", THREAD["shapes_used"])}  %used = load i64, ptr %used.at
{at("words.at", "%t", THREAD["trace_words"])}  %words.now = load i64, ptr %words.at
{at("room.at", "%t", THREAD["trace_room"])}  %room = load i64, ptr %room.at
  %used.32 = trunc i64 %used to i32
  store i32 %used.32, ptr %e.shape
  %full.trace = icmp uge i64 %words.now, %room
  %nothing = or i1 %full.trace, %is.shared
  br i1 %nothing, label %out.ret, label %shape
shape:
{at("shapes.at", "%t", THREAD["shapes"])}  %shapes = load ptr, ptr %shapes.at
  %shape.to = getelementptr i64, ptr %shapes, i64 %used
  %lines.64 = zext i32 %lines.all to i64
  %used.new = add i64 %used, %lines.64
  store i64 %used.new, ptr %used.at
  br label %shape.head
shape.head:
  %s = phi i64 [ 0, %shape ], [ %s1, %shape.head ]
  %from.at = getelementptr i64, ptr %e.line, i64 %s
  %some.lines = load {C64}, ptr %from.at, align 64
  %to.at = getelementptr i64, ptr %shape.to, i64 %s
  store {C64} %some.lines, ptr %to.at, align 8
  %s1 = add i64 %s, {CHUNK}
  %s.more = icmp ult i64 %s1, %lines.64
  br i1 %s.more, label %shape.head, label %out.ret
out.ret:
  ret void
}}
"""


_EXPAND = f"""
; recorded requests %src .. %end as the words of a records.Trace, at %dst (with room for {CHUNK} more); returns their end
define ptr @simt_expand(ptr %src, ptr %end, ptr %shapes, ptr %dst) {{
entry:
  br label %head
head:
  %from = phi ptr [ %src, %entry ], [ %from.next, %inline ], [ %from.next, %copied ]
  %to = phi ptr [ %dst, %entry ], [ %to.inline, %inline ], [ %to.next, %copied ]
  %more = icmp ult ptr %from, %end
  br i1 %more, label %body, label %exit
body:
  %noted = load i64, ptr %from
  %word.at = getelementptr i64, ptr %from, i64 1
  %word = load i64, ptr %word.at
  %from.next = getelementptr i64, ptr %from, i64 2
  %header = and i64 %noted, {~TRACE_INLINE}
  store i64 %header, ptr %to
  %lines.to = getelementptr i64, ptr %to, i64 1
  %flag = and i64 %noted, {TRACE_INLINE}
  %is.inline = icmp ne i64 %flag, 0
  br i1 %is.inline, label %inline, label %shape
inline:
  store i64 %word, ptr %lines.to
  %to.inline = getelementptr i64, ptr %to, i64 2
  br label %head
shape:
  %count = and i64 %noted, 65535
  %index = and i64 %word, 4294967295
  %up = xor i64 %word, %index
  %up.1 = insertelement {C64} poison, i64 %up, i64 0
  %up.v = shufflevector {C64} %up.1, {C64} poison, <{CHUNK} x i32> zeroinitializer
  %lines.from = getelementptr i64, ptr %shapes, i64 %index
  br label %copy
copy:
  %k = phi i64 [ 0, %shape ], [ %k1, %copy ]
  %a = getelementptr i64, ptr %lines.from, i64 %k
  %v = load {C64}, ptr %a, align 8
  %moved = add {C64} %v, %up.v
  %b = getelementptr i64, ptr %lines.to, i64 %k
  store {C64} %moved, ptr %b, align 8
  %k1 = add i64 %k, {CHUNK}
  %copy.more = icmp ult i64 %k1, %count
  br i1 %copy.more, label %copy, label %copied
copied:
  %to.next = getelementptr i64, ptr %lines.to, i64 %count
  br label %head
exit:
  ret ptr %to
}}
"""

_DISTINCT = """
; the number of bits set in any of %n bitmaps of %words 64-bit words (a multiple of 8); leaves the bitmaps cleared
define i64 @simt_distinct(ptr %maps, i64 %n, i64 %words) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %counted ]
  %sum = phi <8 x i64> [ zeroinitializer, %entry ], [ %sum1, %counted ]
  %more = icmp ult i64 %i, %words
  br i1 %more, label %gather, label %exit
gather:
  %k = phi i64 [ 0, %head ], [ %k1, %gather ]
  %any = phi <8 x i64> [ zeroinitializer, %head ], [ %any1, %gather ]
  %map.at = getelementptr ptr, ptr %maps, i64 %k
  %map = load ptr, ptr %map.at
  %at = getelementptr i64, ptr %map, i64 %i
  %v = load <8 x i64>, ptr %at, align 64
  store <8 x i64> zeroinitializer, ptr %at, align 64
  %any1 = or <8 x i64> %any, %v
  %k1 = add i64 %k, 1
  %again = icmp ult i64 %k1, %n
  br i1 %again, label %gather, label %counted
counted:
  %bits = call <8 x i64> @llvm.ctpop.v8i64(<8 x i64> %any1)
  %sum1 = add <8 x i64> %sum, %bits
  %i1 = add i64 %i, 8
  br label %head
exit:
  %total = call i64 @llvm.vector.reduce.add.v8i64(<8 x i64> %sum)
  ret i64 %total
}
declare <8 x i64> @llvm.ctpop.v8i64(<8 x i64>)
declare i64 @llvm.vector.reduce.add.v8i64(<8 x i64>)
"""


def _stray() -> str:
    put = ""
    for name, value in (("error", str(ERROR_BOUNDS)), ("error_site", "%site.64"), ("error_lane", "%lane.64"), ("error_offset", "%o"),
                        ("error_mask", "%mask.64"), ("error_size", "%limit")):  # fmt: skip
        put += at(f"p.{name}", "%t", THREAD[name]) + f"  store i64 {value}, ptr %p.{name}\n"
    return f"""
; the first active lane whose offset is not below the limit goes into the thread's error record
define void @simt_stray(ptr %t, i64 %limit, i32 %site, i32 %mask) {{
{at("scratch.at", "%t", THREAD["scratch"])}  %scratch = load ptr, ptr %scratch.at
  %off = load {V64}, ptr %scratch, align 64
{splat("limit.v", "%limit", "i64")}
  %fine = icmp ult {V64} %off, %limit.v
  %bits = bitcast {V1} %fine to i32
  %wrong = xor i32 %bits, -1
  %bad = and i32 %wrong, %mask
  %lane = call i32 @llvm.cttz.i32(i32 %bad, i1 false)
  %lane.in = and i32 %lane, 31
  %o = extractelement {V64} %off, i32 %lane.in
  %lane.64 = zext i32 %lane.in to i64
  %mask.64 = zext i32 %bad to i64
  %site.64 = zext i32 %site to i64
{put}
  ret void
}}
"""


def text() -> str:
    return "\n".join(
        (
            "declare i32 @llvm.cttz.i32(i32, i1)",
            "declare i32 @llvm.ctpop.i32(i32)",
            f"declare i32 @llvm.vector.reduce.or.v32i32({V32})",
            f"declare i64 @llvm.vector.reduce.smin.v32i64({V64})",
            f"declare i64 @llvm.vector.reduce.smax.v32i64({V64})",
            f"declare i8 @llvm.vector.reduce.umax.v32i8({V8})",
            _LINES,
            _miss(),
            _stray(),
            _EXPAND,
            _DISTINCT,
        )
    )
