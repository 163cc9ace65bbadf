"""The engine's own LLVM IR that does not depend on the kernel: what happens when a lane pattern is new (miss.py), or an access
strays; and what reads the records of a launch afterwards. Compiled once per process; generated kernels call it by symbol.
"""

from __future__ import annotations

from solcourse.simt import miss
from solcourse.simt.layout import ERROR_BOUNDS, LINE_UP, THREAD, TRACE_WARP, TRACED_BYTES
from solcourse.simt.pieces import C64, CHUNK, V1, V8, V32, V64, at, field, splat

_EXPAND = f"""
; recorded requests %src .. %end as the words of a records.Trace, at %dst, as far as they have shapes and fit whole before %dst.end
; (behind which there is room for {CHUNK} more words); returns their end
define ptr @simt_expand(ptr %src, ptr %end, ptr %shapes, ptr %dst, ptr %dst.end) {{
entry:
  br label %head
head:
  %from = phi ptr [ %src, %entry ], [ %from.next, %copied ]
  %to = phi ptr [ %dst, %entry ], [ %to.next, %copied ]
  %more = icmp ult ptr %from, %end
  br i1 %more, label %body, label %exit
body:
  %request = load i64, ptr %from
  %index = and i64 %request, {(1 << TRACE_WARP) - 1}
  %low = and i64 %request, {(1 << LINE_UP) - 1}
  %line = xor i64 %request, %low
  %warp = lshr i64 %low, {TRACE_WARP}
  %warp.up = shl i64 %warp, 16
  %shape = getelementptr i64, ptr %shapes, i64 %index
  %header.0 = load i64, ptr %shape
  %count = and i64 %header.0, 65535
  %header = or i64 %header.0, %warp.up
  %lines.to = getelementptr i64, ptr %to, i64 1
  %to.next = getelementptr i64, ptr %lines.to, i64 %count
  %room = icmp ule ptr %to.next, %dst.end
  %shaped = icmp ne i64 %count, 0
  %fits = and i1 %room, %shaped
  br i1 %fits, label %write, label %exit
write:
  store i64 %header, ptr %to
  %from.next = getelementptr i64, ptr %from, i64 1
  %lines.from = getelementptr i64, ptr %shape, i64 1
{splat("line.v", "%line", "i64", CHUNK)}
  br label %copy
copy:
  %k = phi i64 [ 0, %write ], [ %k1, %copy ]
  %a = getelementptr i64, ptr %lines.from, i64 %k
  %v = load {C64}, ptr %a, align 8
  %moved = add {C64} %v, %line.v
  %b = getelementptr i64, ptr %lines.to, i64 %k
  store {C64} %moved, ptr %b, align 8
  %k1 = add i64 %k, {CHUNK}
  %copy.more = icmp ult i64 %k1, %count
  br i1 %copy.more, label %copy, label %copied
copied:
  br label %head
exit:
  ret ptr %to
}}

; the number of words that recorded requests %src .. %end become; more than there ever are, where one has the empty shape
define i64 @simt_expanded(ptr %src, ptr %end, ptr %shapes) {{
entry:
  br label %head
head:
  %from = phi ptr [ %src, %entry ], [ %from.next, %body ]
  %words = phi i64 [ 0, %entry ], [ %words.new, %body ]
  %more = icmp ult ptr %from, %end
  br i1 %more, label %body, label %exit
body:
  %request = load i64, ptr %from
  %index = and i64 %request, {(1 << TRACE_WARP) - 1}
  %shape = getelementptr i64, ptr %shapes, i64 %index
  %header = load i64, ptr %shape
  %count = and i64 %header, 65535
  %shaped = icmp ne i64 %count, 0
  %each = select i1 %shaped, i64 %count, i64 {1 << 40}
  %with = add i64 %words, %each
  %words.new = add i64 %with, 1
  %from.next = getelementptr i64, ptr %from, i64 1
  br label %head
exit:
  ret i64 %words
}}

; the same for %n blocks' notes (layout.TRACED_BYTES), into %out
define void @simt_block_words(ptr %notes, i64 %n, ptr %shapes, ptr %out) {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %body ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %exit
body:
  %o = mul i64 %i, {TRACED_BYTES}
  %note = getelementptr i8, ptr %notes, i64 %o
  %from.at = getelementptr i8, ptr %note, i64 8
  %from = load ptr, ptr %from.at
  %end.at = getelementptr i8, ptr %note, i64 16
  %end = load ptr, ptr %end.at
  %words = call i64 @simt_expanded(ptr %from, ptr %end, ptr %shapes)
  %to = getelementptr i64, ptr %out, i64 %i
  store i64 %words, ptr %to
  %i1 = add i64 %i, 1
  br label %head
exit:
  ret void
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
{field("scratch", "%t", THREAD["scratch"], "ptr")}  %off = load {V64}, ptr %scratch, align 64
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
            "declare i64 @llvm.smax.i64(i64, i64)",
            f"declare i32 @llvm.vector.reduce.or.v32i32({V32})",
            f"declare i64 @llvm.vector.reduce.smin.v32i64({V64})",
            f"declare i64 @llvm.vector.reduce.smax.v32i64({V64})",
            f"declare i8 @llvm.vector.reduce.umax.v32i8({V8})",
            f"declare i8 @llvm.vector.reduce.add.v32i8({V8})",
            miss.MISS,
            _stray(),
            _EXPAND,
            _DISTINCT,
        )
    )
