"""The small pieces of LLVM IR that several files write with."""

from __future__ import annotations

from collections.abc import Iterable

CHUNK = 8  # lines handled at a time
C64 = f"<{CHUNK} x i64>"
V64, V32, V1, V8 = "<32 x i64>", "<32 x i32>", "<32 x i1>", "<32 x i8>"


def splat(name: str, value: str, t: str, n: int = 32) -> str:
    """Two instructions that make %name a vector of n equal lanes."""
    return (
        f"  %{name}.one = insertelement <{n} x {t}> poison, {t} {value}, i64 0\n"
        f"  %{name} = shufflevector <{n} x {t}> %{name}.one, <{n} x {t}> poison, <{n} x i32> zeroinitializer\n"
    )


def at(name: str, base: str, offset: int) -> str:
    """%name: the address `offset` bytes after another."""
    return f"  %{name} = getelementptr i8, ptr {base}, i64 {offset}\n"


def field(name: str, base: str, offset: int, t: str = "i64", tail: str = "") -> str:
    """%name: what a record at `base` has at `offset` (layout.py); %name.at: where that is."""
    return at(f"{name}.at", base, offset) + f"  %{name} = load {t}, ptr %{name}.at{tail}\n"


def lanes(t: str, values: Iterable[object]) -> str:
    """A constant vector."""
    return "<" + ", ".join(f"{t} {v}" for v in values) + ">"


LANE_IDS = lanes("i32", range(32))
