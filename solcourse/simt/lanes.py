"""LLVM functions over lanes that kernels call: permutation, matching, accesses whose lanes are in different arrays."""

from __future__ import annotations

from solcourse.simt.layout import ALLOC_BYTES, THREAD, TOTALS_BYTES
from solcourse.simt.pieces import V1, at, field, splat


def permute_function(name: str, t: str, wide: bool) -> str:
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


def match_function(name: str, t: str) -> str:
    return (
        f"define internal <32 x i32> @{name}(<32 x {t}> %v, i32 %m) noinline {{\nentry:\n  %o = alloca [32 x i32], align 64\n"
        "  store [32 x i32] zeroinitializer, ptr %o, align 64\n  br label %head\nhead:\n"
        "  %left = phi i32 [ %m, %entry ], [ %rest, %next ]\n  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)\n"
        f"  %x = extractelement <32 x {t}> %v, i32 %lane\n"
        + splat("x.v", "%x", t)
        + f"  %eq = icmp eq <32 x {t}> %v, %x.v\n  %bits0 = bitcast {V1} %eq to i32\n  %bits = and i32 %bits0, %m\n  br label %put\nput:\n"
        "  %who = phi i32 [ %bits, %head ], [ %who1, %put ]\n  %k = call i32 @llvm.cttz.i32(i32 %who, i1 true)\n"
        "  %at = getelementptr i32, ptr %o, i32 %k\n  store i32 %bits, ptr %at\n  %who0 = sub i32 %who, 1\n  %who1 = and i32 %who, %who0\n"
        "  %more = icmp ne i32 %who1, 0\n  br i1 %more, label %put, label %next\nnext:\n  %inv = xor i32 %bits, -1\n  %rest = and i32 %left, %inv\n"
        "  %again = icmp ne i32 %rest, 0\n  br i1 %again, label %head, label %end\nend:\n  %r = load <32 x i32>, ptr %o, align 64\n  ret <32 x i32> %r\n}\n"
    )


MODES = {"rz": 0, "rn": 1, "ru": 2, "rd": 3}  # of llvm.set.rounding
CONVERSIONS = ("sitofp", "uitofp", "fptrunc")


def rounded_function(name: str, intrinsic: str, mode: str, result: str, types: list[str]) -> str:
    """One constrained float operation in a rounding mode, never inlined: no other code runs in that mode."""
    head = f"define internal {result} @{name}({', '.join(f'{t} %a{k}' for k, t in enumerate(types))}) strictfp noinline {{\n"
    operands = ", ".join(f"{t} %a{k}" for k, t in enumerate(types))
    code = head + f"  call void @llvm.set.rounding(i32 {MODES[mode]}) strictfp\n"
    code += f'  %r = call {result} @{intrinsic}({operands}, metadata !"round.dynamic", metadata !"fpexcept.strict") strictfp\n'
    return code + f"  call void @llvm.set.rounding(i32 {MODES['rn']}) strictfp\n  ret {result} %r\n}}\n"


RAISED = f"""
; the first lane of those that raised an exception, unless a block before this one did
define internal void @raised(ptr %t, i32 %w, <32 x i32> %codes, {V1} %above, i32 %m) noinline {{
entry:
  %bits = bitcast {V1} %above to i32
  %who = and i32 %bits, %m
  %some = icmp ne i32 %who, 0
  br i1 %some, label %check, label %end
check:
{at("code.at", "%t", THREAD["raised"])}{at("first.at", "%t", THREAD["raised_block"])}{at("block.at", "%t", THREAD["block"])}
{at("thread.at", "%t", THREAD["raised_thread"])}  %old = load i64, ptr %code.at
  %first = load i64, ptr %first.at
  %block = load i64, ptr %block.at
  %none = icmp eq i64 %old, 0
  %before = icmp slt i64 %block, %first
  %take = or i1 %none, %before
  br i1 %take, label %put, label %end
put:
  %lane = call i32 @llvm.cttz.i32(i32 %who, i1 true)
  %code = extractelement <32 x i32> %codes, i32 %lane
  %code.64 = zext i32 %code to i64
  store i64 %code.64, ptr %code.at
  store i64 %block, ptr %first.at
  %w0 = shl i32 %w, 5
  %thread = or i32 %w0, %lane
  %thread.64 = zext i32 %thread to i64
  store i64 %thread.64, ptr %thread.at
  br label %end
end:
  ret void
}}
"""


def mixed_function(name: str, inner: str, op: str, t: str, rows: int) -> str:
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
    code += splat("base.v", "%base", "i64") + splat("size.v", "%size", "i64")
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


def several_function(
    name: str, inner: list[str], op: str, t: str, rows: int, first_rows: tuple[int, int], frame: tuple[int, int] | None = None
) -> str:
    """An access whose lanes may be in different spaces: array after array, each by its space's access function and site.

    frame: the row of all local arrays, and the bytes of a lane's, where local memory is one of the spaces (the last of `inner`).
    """
    v = f"<32 x {t}>"
    rt = f"{{ {v}, i1 }}" if op == "load" else "i1"
    value = f", {v} %v" if op == "store" else ""
    sites = ", ".join(f"i32 %site.{k}" for k in range(len(inner)))
    code = f"define internal {rt} @{name}(ptr %t, {sites}, <32 x i64> %p, i32 %m{value}) noinline {{\nentry:\n"
    code += "  %ps = alloca [32 x i64], align 64\n  store <32 x i64> %p, ptr %ps, align 64\n"
    code += field("allocs", "%t", THREAD["allocs"])
    code += "  %allocs.p = inttoptr i64 %allocs to ptr\n"
    code += field("tot", "%t", THREAD["totals"], "ptr") + "  br label %head\nhead:\n"
    code += "  %left = phi i32 [ %m, %entry ], [ %rest, %next ]\n"
    code += f"  %acc = phi {v} [ zeroinitializer, %entry ], [ %acc1, %next ]\n" if op == "load" else ""
    code += (
        "  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)\n  %l = zext i32 %lane to i64\n  %q = getelementptr i64, ptr %ps, i64 %l\n"
    )
    code += "  %x = load i64, ptr %q\n"
    if frame:
        code += at("frame", "%allocs.p", frame[0] * ALLOC_BYTES) + "  %frame.base = load i64, ptr %frame\n"
        code += splat("frame.v", "%frame.base", "i64") + "  %f.off = sub <32 x i64> %p, %frame.v\n  %f.own = sub i64 %x, %frame.base\n"
        code += f"  %f.in = icmp ult <32 x i64> %f.off, splat (i64 {32 * frame[1]})\n  %f.bits = bitcast {V1} %f.in to i32\n"
        code += f"  %f.mask = and i32 %f.bits, %left\n  %is.local = icmp ult i64 %f.own, {32 * frame[1]}\n"
        code += "  br i1 %is.local, label %space.local, label %elsewhere\nelsewhere:\n"
    code += f"  %row = call ptr @find(ptr %t, i64 %x, i64 {rows})\n  %base = load i64, ptr %row\n"
    code += "  %size.at = getelementptr i8, ptr %row, i64 8\n  %size = load i64, ptr %size.at\n"
    code += splat("base.v", "%base", "i64") + splat("size.v", "%size", "i64")
    code += f"  %off = sub <32 x i64> %p, %base.v\n  %in = icmp ult <32 x i64> %off, %size.v\n  %in.bits = bitcast {V1} %in to i32\n"
    code += "  %one = shl i32 1, %lane\n  %some = or i32 %in.bits, %one\n  %sub = and i32 %some, %left\n"
    code += f"  %row.i = ptrtoint ptr %row to i64\n  %row.o = sub i64 %row.i, %allocs\n  %global = icmp ult i64 %row.o, {first_rows[0] * ALLOC_BYTES}\n"
    code += "  br i1 %global, label %space.0, label %other\nother:\n"
    places = ["local" if frame and k == len(inner) - 1 else str(k) for k in range(len(inner))]
    if len(places) - bool(frame) > 2:
        code += f"  %shared = icmp ult i64 %row.o, {first_rows[1] * ALLOC_BYTES}\n  br i1 %shared, label %space.1, label %space.2\n"
    else:
        code += "  br label %space.1\n"
    for k, f in enumerate(inner):
        row, mask = ("%frame", "%f.mask") if places[k] == "local" else ("%row", "%sub")
        args = f"ptr %t, ptr {row}, i32 %site.{k}, <32 x i64> %p, i32 {mask}"
        code += f"space.{places[k]}:\n"
        if op == "load":
            code += f"  %r.{k} = call {rt} @{f}({args})\n  %ok.{k} = extractvalue {rt} %r.{k}, 1\n  %v.{k} = extractvalue {rt} %r.{k}, 0\n"
        else:
            code += f"  %ok.{k} = call i1 @{f}({args}, {v} %v)\n"
        code += "  br label %done\n"
    pairs = range(len(inner))
    masks = ", ".join(f"[ {'%f.mask' if p == 'local' else '%sub'}, %space.{p} ]" for p in places)
    code += f"done:\n  %went = phi i32 {masks}\n"
    code += "  %ok = phi i1 " + ", ".join(f"[ %ok.{k}, %space.{places[k]} ]" for k in pairs) + "\n"
    code += "  %site = phi i32 " + ", ".join(f"[ %site.{k}, %space.{places[k]} ]" for k in pairs) + "\n"
    if op == "load":
        code += f"  %rv = phi {v} " + ", ".join(f"[ %v.{k}, %space.{places[k]} ]" for k in pairs) + "\n"
        code += f"  %sub.v = bitcast i32 %went to {V1}\n  %acc1 = select {V1} %sub.v, {v} %rv, {v} %acc\n"
    code += f"  %s.64 = zext i32 %site to i64\n  %t.o = mul i64 %s.64, {TOTALS_BYTES}\n  %t.o24 = add i64 %t.o, 24\n  %t.o32 = add i64 %t.o, 32\n"
    code += "  %runs.at = getelementptr i8, ptr %tot, i64 %t.o24\n  %runs = load i64, ptr %runs.at\n  %runs1 = add i64 %runs, 1\n  store i64 %runs1, ptr %runs.at\n"
    code += "  %pop = call i32 @llvm.ctpop.i32(i32 %went)\n  %pop64 = zext i32 %pop to i64\n  %lanes.at = getelementptr i8, ptr %tot, i64 %t.o32\n"
    code += "  %lanes = load i64, ptr %lanes.at\n  %lanes1 = add i64 %lanes, %pop64\n  store i64 %lanes1, ptr %lanes.at\n"
    code += "  br i1 %ok, label %next, label %bad\nnext:\n  %rest = xor i32 %left, %went\n  %more = icmp ne i32 %rest, 0\n  br i1 %more, label %head, label %end\n"
    if op == "load":
        return (
            code
            + f"end:\n  %o0 = insertvalue {rt} poison, {v} %acc1, 0\n  %o = insertvalue {rt} %o0, i1 true, 1\n  ret {rt} %o\nbad:\n  ret {rt} zeroinitializer\n}}\n"
        )
    return code + "end:\n  ret i1 true\nbad:\n  ret i1 false\n}\n"
