"""What numba's arrays call: the strides of a reshape, zeros in a local array, reference counts. In LLVM IR, for bodies.with_bodies."""

from __future__ import annotations

import re

_PARAMETERS = "i64 %nd, ptr %dims, ptr %strides, i64 %newnd, ptr %newdims, ptr %newstrides, i64 %itemsize, i32 %fortran"

# numba reshapes contiguous arrays only, each in its own order, so nothing has to move: 1, and the strides of the new axes, from the
# fastest one (the last in C order, the first in Fortran order); 0 where the sizes differ.
_RESHAPE = f"""define internal i32 @numba_attempt_nocopy_reshape({_PARAMETERS}) alwaysinline {{
entry:
  %c = icmp eq i32 %fortran, 0
  %last = sub i64 %newnd, 1
  %first = select i1 %c, i64 %last, i64 0
  %step = select i1 %c, i64 -1, i64 1
  br label %old
old:
  %o = phi i64 [ 0, %entry ], [ %o1, %old.one ]
  %total = phi i64 [ %itemsize, %entry ], [ %total1, %old.one ]
  %o.more = icmp slt i64 %o, %nd
  br i1 %o.more, label %old.one, label %new
old.one:
  %d.at = getelementptr i64, ptr %dims, i64 %o
  %d = load i64, ptr %d.at
  %total1 = mul i64 %total, %d
  %o1 = add i64 %o, 1
  br label %old
new:
  %n = phi i64 [ 0, %old ], [ %n1, %new.one ]
  %k = phi i64 [ %first, %old ], [ %k1, %new.one ]
  %stride = phi i64 [ %itemsize, %old ], [ %stride1, %new.one ]
  %n.more = icmp slt i64 %n, %newnd
  br i1 %n.more, label %new.one, label %done
new.one:
  %s.at = getelementptr i64, ptr %newstrides, i64 %k
  store i64 %stride, ptr %s.at
  %e.at = getelementptr i64, ptr %newdims, i64 %k
  %e = load i64, ptr %e.at
  %stride1 = mul i64 %stride, %e
  %n1 = add i64 %n, 1
  %k1 = add i64 %k, %step
  br label %new
done:
  %same = icmp eq i64 %stride, %total
  %r = zext i1 %same to i32
  ret i32 %r
}}
"""

_BODIES = {
    "numba_attempt_nocopy_reshape": _RESHAPE,
    # memory of a launch is not counted; what kernels allocate is refused by name (NRT_Allocate)
    "NRT_incref": "define internal void @NRT_incref(ptr %p) alwaysinline {\n  ret void\n}\n",
    "NRT_decref": "define internal void @NRT_decref(ptr %p) alwaysinline {\n  ret void\n}\n",
}


def body_of(name: str) -> str | None:
    return _BODIES.get(name)


_ZEROS = re.compile(r"store \[(\d+) x (\w+)\] zeroinitializer, ptr (%[^\s,]+), align \d+")
_MOST_STORES = 1024  # LLVM's own limit for taking an array apart


def with_loops(text: str) -> str:
    """numba zeroes a local array by one store of the whole; of a large one LLVM makes thousands, in minutes. Here it is a loop."""
    types: set[str] = set()

    def loop(m: re.Match) -> str:
        if int(m[1]) <= _MOST_STORES or m[2] == "x":
            return m[0]
        types.add(m[2])
        return f"call void @simt.zeros.{m[2]}(ptr {m[3]}, i64 {m[1]})"

    text = _ZEROS.sub(loop, text)
    return "\n".join((text, *map(_zeros, sorted(types))))


def _zeros(t: str) -> str:
    return f"""define internal void @simt.zeros.{t}(ptr %p, i64 %n) alwaysinline {{
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
  %at = getelementptr {t}, ptr %p, i64 %k
  store {t} zeroinitializer, ptr %at
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
