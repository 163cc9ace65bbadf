"""LLVM functions over lanes that kernels call: permutation, matching, accesses whose lanes are in different arrays."""

from __future__ import annotations

from solcourse.simt import access
from solcourse.simt.runtime import V1


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
        + access.splat("x.v", "%x", t)
        + f"  %eq = icmp eq <32 x {t}> %v, %x.v\n  %bits0 = bitcast {V1} %eq to i32\n  %bits = and i32 %bits0, %m\n  br label %put\nput:\n"
        "  %who = phi i32 [ %bits, %head ], [ %who1, %put ]\n  %k = call i32 @llvm.cttz.i32(i32 %who, i1 true)\n"
        "  %at = getelementptr i32, ptr %o, i32 %k\n  store i32 %bits, ptr %at\n  %who0 = sub i32 %who, 1\n  %who1 = and i32 %who, %who0\n"
        "  %more = icmp ne i32 %who1, 0\n  br i1 %more, label %put, label %next\nnext:\n  %inv = xor i32 %bits, -1\n  %rest = and i32 %left, %inv\n"
        "  %again = icmp ne i32 %rest, 0\n  br i1 %again, label %head, label %end\nend:\n  %r = load <32 x i32>, ptr %o, align 64\n  ret <32 x i32> %r\n}\n"
    )


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
