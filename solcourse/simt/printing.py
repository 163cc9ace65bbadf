"""print() in kernels: what a lane leaves in its worker's buffer, and the text made of it after the launch.

numba turns print() into vprintf(format, arguments). A record is {block i64, bytes of arguments i64, format i64, arguments}, in
the order in which lanes print. As on a GPU the buffer is bounded (1 MiB) and read when the kernel has ended; here it is the
last lines that are lost, so that what is shown does not depend on the number of threads.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Iterable

from solcourse.simt.layout import THREAD
from solcourse.simt.pieces import V64, field

BUFFER_BYTES = 1 << 20  # cudaLimitPrintfFifoSize's default
HEAD_BYTES = 24


def function(nbytes: int) -> str:
    """@print.N(thread, formats, arguments, mask): a record per active lane, N bytes of arguments each."""
    size = HEAD_BYTES + -(-nbytes // 8) * 8
    return (
        f"define internal void @print.{nbytes}(ptr %t, {V64} %f, {V64} %a, i32 %m) noinline {{\nentry:\n"
        f"  %fs = alloca [32 x i64], align 64\n  store {V64} %f, ptr %fs, align 64\n"
        f"  %as = alloca [32 x i64], align 64\n  store {V64} %a, ptr %as, align 64\n"
        + field("block", "%t", THREAD["block"])
        + "  br label %head\nhead:\n  %left = phi i32 [ %m, %entry ], [ %rest, %next ]\n"
        "  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)\n  %minus = sub i32 %left, 1\n  %rest = and i32 %left, %minus\n"
        + field("print_at", "%t", THREAD["print_at"])
        + field("print_end", "%t", THREAD["print_end"])
        + f"  %after = add i64 %print_at, {size}\n  %fits = icmp ule i64 %after, %print_end\n  br i1 %fits, label %put, label %lose\nput:\n"
        "  %p = inttoptr i64 %print_at to ptr\n  store i64 %block, ptr %p\n"
        f"  %p8 = getelementptr i8, ptr %p, i64 8\n  store i64 {nbytes}, ptr %p8\n"
        "  %f.at = getelementptr i64, ptr %fs, i32 %lane\n  %f.v = load i64, ptr %f.at\n"
        "  %p16 = getelementptr i8, ptr %p, i64 16\n  store i64 %f.v, ptr %p16\n"
        "  %a.at = getelementptr i64, ptr %as, i32 %lane\n  %a.v = load i64, ptr %a.at\n  %a.p = inttoptr i64 %a.v to ptr\n"
        f"  %p24 = getelementptr i8, ptr %p, i64 {HEAD_BYTES}\n"
        f"  call void @llvm.memcpy.p0.p0.i64(ptr %p24, ptr %a.p, i64 {nbytes}, i1 false)\n"
        "  store i64 %after, ptr %print_at.at\n  br label %next\n"
        # once a line is lost all after it are: a shorter one must not slip in
        "lose:\n  store i64 %print_at, ptr %print_end.at\n"
        + field("print_lost", "%t", THREAD["print_lost"])
        + "  %lost1 = add i64 %print_lost, 1\n"
        "  store i64 %lost1, ptr %print_lost.at\n  br label %next\n"
        "next:\n  %more = icmp ne i32 %rest, 0\n  br i1 %more, label %head, label %end\nend:\n  ret void\n}\n"
    )


DECLARATION = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"

_SPECIFIER = re.compile(r"%([-+ #0]*)(\d*)(\.\d+)?(hh|h|ll|l|z|j|t)?([diouxXeEfFgGaAcsp%])")


def formatted(form: str, arguments: bytes, string_at: Callable[[int], str]) -> str:
    """What C's printf makes of a format and its arguments, laid out as a structure."""
    place = 0

    def take(kind: str) -> int | float:
        nonlocal place
        size = struct.calcsize(kind)
        place = -(-place // size) * size
        place += size
        return struct.unpack_from(kind, arguments, place - size)[0]

    def one(m: re.Match) -> str:
        flags, width, precision, length, kind = m.groups(default="")
        if kind == "%":
            return "%"
        wide = length in ("ll", "l", "z", "j", "t") or kind == "p"
        if kind in "eEfFgGaA":
            value: object = take("d")
            kind = kind if kind not in "aA" else "g"
        elif kind == "s":
            value = string_at(int(take("q")))
        elif kind == "c":
            value = chr(int(take("i")) & 0xFF)
        else:
            value = take(("q" if wide else "i") if kind in "di" else ("Q" if wide else "I"))
            kind, flags = ("x", "#") if kind == "p" else (kind.replace("u", "d"), flags)
        return f"%{flags}{width}{precision}{kind}" % value

    return _SPECIFIER.sub(one, form)


def lines(buffers: Iterable[tuple[bytes, int]], strings: dict[int, str], last_block: int | None = None) -> str:
    """The text of all workers' records, block after block, those after `last_block` left out; says how many lines were lost."""
    records: list[tuple[int, int, bytes]] = []
    lost = 0
    for data, dropped in buffers:
        lost += dropped
        place = 0
        while place < len(data):
            block, nbytes, form = struct.unpack_from("qqQ", data, place)
            records.append((block, form, data[place + HEAD_BYTES : place + HEAD_BYTES + nbytes]))
            place += HEAD_BYTES + -(-nbytes // 8) * 8
    records = [r for r in records if last_block is None or r[0] <= last_block]
    records.sort(key=lambda r: r[0])  # stable: in a block, the order in which its lanes printed

    def string_at(address: int) -> str:
        return strings.get(address, "(?)")

    parts, used = [], 0
    for _, form, arguments in records:
        used += HEAD_BYTES + -(-len(arguments) // 8) * 8
        if used > BUFFER_BYTES:
            break
        parts.append(formatted(string_at(form), arguments, string_at))
    lost += len(records) - len(parts)
    if lost:
        parts.append(
            f"[{lost:,} more lines did not fit into the {BUFFER_BYTES >> 20} MiB that kernels may print in one launch, as on a GPU]\n"
        )
    return "".join(parts)


def show(text: str) -> None:
    """Through Python's own stdout, which a notebook shows and a test can capture. A launch does not fail for want of one."""
    out = sys.stdout
    if not text or out is None or getattr(out, "closed", False):
        return
    try:
        out.write(text)
    except UnicodeEncodeError:
        out.write(text.encode(out.encoding, "backslashreplace").decode(out.encoding))
    out.flush()
