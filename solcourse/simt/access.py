"""Memory instructions as 32-lane code: bounds checks, the three ways to move 32 values, and the hooks that count them.

Each (operation, type, space) becomes one small LLVM function, inlined into the kernel while there are few of them. With
counters, a site remembers lane patterns (MEMO): a known pattern costs one vector comparison and brings its bounds, sectors,
wavefronts and lines with it; a new one goes through `simt_miss`. A site whose stride the program tells (strides.py) looks for all 32
lanes at that stride first, in an entry for each place in a line, and only then, out of line, for other patterns. Global accesses also
mark the words they touch and go into the Trace. This code runs for every request of every warp: an instruction saved here is seen in
benchmarks/engine.py.
"""

from __future__ import annotations

from solcourse.simt.layout import ALLOC, ALLOC_BYTES, LINE_UP, MEMO, MEMO_BYTES, MEMO_WAYS, SITE_BYTES, THREAD, TOTALS_BYTES
from solcourse.simt.miss import CONSTANT, LOCAL, SHARED
from solcourse.simt.pieces import V1, V64, at, field, lanes, splat
from solcourse.simt.records import WARP
from solcourse.simt.shadow import ALIGN_UP, ATOMIC, KIND_UP, LOAD, STORE

_FLAGS = {"shared": SHARED, "constant": SHARED | CONSTANT}  # constant memory is not traced either
LANES32 = lanes("i64", range(32))
VALUES = 256  # where in the thread's scratch the values are, behind 32 addresses


def _limit(size: int) -> str:
    """%limit: offsets below it are inside an array of %bytes for an access of `size` bytes."""
    return f"  %starts = sub i64 %bytes, {size - 1}\n  %limit = call i64 @llvm.smax.i64(i64 %starts, i64 0)\n"


def limit_of(size: int) -> str:
    """The same of the array %a, whose size %bytes is loaded."""
    return field("bytes", "%a", ALLOC["size"], "i64", ", !invariant.load !0") + _limit(size)


def _base() -> str:
    return "  %base = load i64, ptr %a, !invariant.load !0\n"


def _offsets() -> str:
    return splat("base.v", "%base", "i64") + f"  %off = sub {V64} %p, %base.v\n"


def _spill(value: str = "%off", name: str = "scratch") -> str:
    """The offsets to where simt_miss and simt_stray look for them."""
    return field(name, "%t", THREAD["scratch"], "ptr") + f"  store {V64} {value}, ptr %{name}, align 64\n"


def _stray(ret: str, first: str = "") -> str:
    code = "stray:\n" + first + _spill(name="sc") + "  call void @simt_stray(ptr %t, i64 %limit, i32 %site, i32 %m)\n"
    return code + f"  ret {ret}\n"


def _vector_bounds() -> str:
    """All active lanes below the limit, by one comparison per lane."""
    return (
        splat("limit.v", "%limit", "i64")
        + f"  %below = icmp ult {V64} %off, %limit.v\n  %below.bits = bitcast {V1} %below to i32\n"
        + "  %idle = xor i32 %m, -1\n  %ok.bits = or i32 %below.bits, %idle\n  %inside = icmp eq i32 %ok.bits, -1\n"
    )


def _is_run(stride: int) -> str:
    """%is.run: all 32 lanes active, each `stride` bytes behind the one before; %first: the address of lane 0."""
    code = f"  %first = extractelement {V64} %p, i64 0\n" + splat("first.v", "%first", "i64")
    code += f"  %ahead = sub {V64} %p, %first.v\n  %run.eq = icmp eq {V64} %ahead, {lanes('i64', [k * stride for k in range(32)])}\n"
    code += f"  %run.bits = bitcast {V1} %run.eq to i32\n  %run.m = and i32 %run.bits, %m\n  %is.run = icmp eq i32 %run.m, -1\n"
    return code


def _entry(way: str) -> str:
    """%e and pointers to its fields: the site's memo entry number `way`."""
    code = field("memo", "%t", THREAD["memo"], "ptr", ", !invariant.load !0")
    code += f"  %site.64 = zext i32 %site to i64\n  %site.off = mul i64 %site.64, {SITE_BYTES}\n"
    code += f"  %way.off = mul i64 {way}, {MEMO_BYTES}\n  %e.off = add i64 %site.off, %way.off\n  %e = getelementptr i8, ptr %memo, i64 %e.off\n"
    return code + "".join(at(f"e.{n}", "%e", o) for n, o in MEMO.items())


_HIT = "  %hits = load i64, ptr %e.hits\n  %hits1 = add i64 %hits, 1\n  store i64 %hits1, ptr %e.hits\n"


def _memo(size: int, flags: int, addresses: str = "%p", base: str = "%base", stride: int | None = None) -> str:
    """Finds or makes the remembered pattern %e of these lanes' addresses; leaves %first (the address of the first active lane, whose
    offset from `base` is %ref) and %e.* pointers, and is in block %known. simt_miss is told %bytes, the size of the array.
    stride: of the site; %is.run says whether this is a run at that stride, which is where _run_body looks for it."""
    # relative to the line of the first active lane: what an idle lane would address may be anywhere
    code = f"  %zeroth = extractelement {V64} {addresses}, i64 0\n  %has.zeroth = trunc i32 %m to i1\n  br label %ref.head\nref.head:\n"
    code += "  br i1 %has.zeroth, label %ref.found, label %ref.later, !prof !1\nref.later:\n  %ref.lane = call i32 @llvm.cttz.i32(i32 %m, i1 false)\n"
    code += f"  %ref.lane.in = and i32 %ref.lane, 31\n  %ref.other = extractelement {V64} {addresses}, i32 %ref.lane.in\n  br label %ref.found\nref.found:\n"
    code += f"  %first = phi i64 [ %zeroth, %ref.head ], [ %ref.other, %ref.later ]\n  %second = extractelement {V64} {addresses}, i64 1\n"
    code += f"  %ref = sub i64 %first, {base}\n  %align = and i64 %ref, 127\n  %origin = sub i64 %first, %align\n"
    # The way: the alignment, moved by a hash of step and mask, so that different alignments never compete; of the step its lowest
    # bit, so that the rows of a tile whose columns are swizzled (column XOR row) do not either
    code += "  %step = sub i64 %second, %first\n  %step.neg = sub i64 0, %step\n  %step.bit = and i64 %step, %step.neg\n"
    code += "  %m.64 = zext i32 %m to i64\n  %m.up = shl i64 %m.64, 7\n  %sm = xor i64 %step.bit, %m.up\n"
    code += "  %h0 = mul i64 %sm, -7046029254386353131\n  %h1 = lshr i64 %h0, 59\n"
    code += "  %move = select i1 %is.run, i64 0, i64 %h1\n" if stride else ""
    code += (
        f"  %place = lshr i64 %ref, 2\n  %h = add i64 {'%move' if stride else '%h1'}, %place\n  %way = and i64 %h, {MEMO_WAYS - 1}\n"
        + _entry("%way")
    )
    code += f"  %old = load {V64}, ptr %e.pattern, align 64\n  %old.mask = load i32, ptr %e.mask\n"
    code += splat("origin.v", "%origin", "i64") + f"  %delta = sub {V64} {addresses}, %origin.v\n  %eq = icmp eq {V64} %delta, %old\n"
    code += f"  %eq.bits = bitcast {V1} %eq to i32\n  %off.m = xor i32 %m, -1\n  %eq.all = or i32 %eq.bits, %off.m\n"
    code += "  %eq.ok = icmp eq i32 %eq.all, -1\n  %mask.ok = icmp eq i32 %m, %old.mask\n  %hit = and i1 %eq.ok, %mask.ok\n"
    code += "  br i1 %hit, label %known, label %new, !prof !1\nnew:\n" + splat("new.base", base, "i64")
    code += f"  %new.off = sub {V64} {addresses}, %new.base\n" + _spill("%new.off")
    code += f"  call void @simt_miss(ptr %t, ptr %e, i32 %site, i32 %m, i32 {size | flags | (stride or 0) << 16}, i64 %bytes)\n  br label %known\nknown:\n"
    return code + _HIT


def _memo_bounds(dynamic: bool) -> str:
    """%inside: whether all of the pattern is in the array. dynamic: which is not always the same one."""
    code = "  %e.low.v = load i64, ptr %e.low\n  %lo = add i64 %ref, %e.low.v\n"
    if dynamic:
        code += "  %places = add i64 %bytes, 1\n  %e.span.v = load i64, ptr %e.span\n  %room.d = sub i64 %places, %e.span.v\n"
        code += "  %room = call i64 @llvm.smax.i64(i64 %room.d, i64 0)\n"
    else:
        code += "  %room = load i64, ptr %e.room\n"
    return code + "  %inside = icmp ult i64 %lo, %room\n"


def _record(store: bool, load: bool | None = None) -> str:
    """Marks the words of each line of %e as read or written and appends the request to the Trace; ends in block %recorded.
    An atomic does both: it reads what it then writes."""
    load = not store if load is None else load
    code = "  %bl = ashr i64 %ref, 7\n  %wm = load i32, ptr %e.words\n"
    for name in ("read", "written"):
        code += at(f"{name}.at", "%a", ALLOC[name]) + f"  %{name} = load ptr, ptr %{name}.at, !invariant.load !0\n"
    code += _mark("%bl", "%wm", store, load) + "  %nl = load i16, ptr %e.lines\n  %single = icmp eq i16 %nl, 1\n"
    code += (
        "  br i1 %single, label %rec.trace, label %rec.more\nrec.more:\n  %nl.64 = zext i16 %nl to i64\n  br label %rec.head\nrec.head:\n"
    )
    code += "  %i = phi i64 [ 1, %rec.more ], [ %i1, %rec.marked ]\n  %w.at = getelementptr i64, ptr %e.line, i64 %i\n  %w = load i64, ptr %w.at\n"
    code += "  %w.words = trunc i64 %w to i32\n  %w.line = ashr i64 %w, 32\n  %w.idx = add i64 %bl, %w.line\n"
    code += _mark("%w.idx", "%w.words", store, load, "w.") + "  br label %rec.marked\nrec.marked:\n"
    code += "  %i1 = add i64 %i, 1\n  %rec.again = icmp ult i64 %i1, %nl.64\n  br i1 %rec.again, label %rec.head, label %rec.trace\nrec.trace:\n"
    return code + _trace()


def _mark(line: str, words: str, store: bool, load: bool, n: str = "") -> str:
    """These words of a line of the array: read unless they were written before, written. An array that the kernel cannot write has
    no map of written words. n: a prefix for names."""
    there = f"  %{n}wr.at = getelementptr i32, ptr %written, i64 {line}\n  %{n}wr.map = load i32, ptr %{n}wr.at\n"
    if store:
        code, was = there, f"%{n}wr.map"
    else:
        code = f"  %{n}none = icmp eq ptr %written, null\n  br i1 %{n}none, label %{n}skip, label %{n}look\n{n}look:\n{there}"
        code += f"  br label %{n}looked\n{n}skip:\n  br label %{n}looked\n{n}looked:\n"
        code, was = code + f"  %{n}wr = phi i32 [ %{n}wr.map, %{n}look ], [ 0, %{n}skip ]\n", f"%{n}wr"
    if load:
        code += f"  %{n}rd.at = getelementptr i32, ptr %read, i64 {line}\n  %{n}rd = load i32, ptr %{n}rd.at\n"
        code += (
            f"  %{n}fresh = xor i32 {was}, -1\n  %{n}rd.first = and i32 {words}, %{n}fresh\n  %{n}rd.new = or i32 %{n}rd, %{n}rd.first\n"
        )
        code += f"  store i32 %{n}rd.new, ptr %{n}rd.at\n"
    if store:
        code += f"  %{n}wr.new = or i32 {was}, {words}\n  store i32 %{n}wr.new, ptr %{n}wr.at\n"
    return code


def _trace(shape: str | None = None) -> str:
    """Appends the request to the Trace: its first lane's line, %bl of the array, and its shape (of %e, unless told); nothing when the
    Trace is off or full. Ends in block %recorded."""
    code = field("cursor", "%t", THREAD["trace"], "ptr") + field("trace.end", "%t", THREAD["trace_end"], "ptr")
    code += "  %on = icmp ult ptr %cursor, %trace.end\n  br i1 %on, label %traced, label %recorded\ntraced:\n"
    code += field("line0", "%a", ALLOC["line"]) + f"  %bl.up = shl i64 %bl, {LINE_UP}\n  %line.up = add i64 %line0, %bl.up\n"
    code += field("warp", "%t", THREAD["trace_warp"]) + "  %from.warp = or i64 %line.up, %warp\n"
    code += "" if shape else "  %shape = load i64, ptr %e.shape\n"
    code += f"  %request = or i64 %from.warp, {shape or '%shape'}\n  store i64 %request, ptr %cursor\n"
    return code + at("cursor.next", "%cursor", 8) + "  store ptr %cursor.next, ptr %cursor.at\n  br label %recorded\nrecorded:\n"


def _move(op: str, t: str, size: int, unit: str, same: str | None, apart: bool) -> str:
    """The unit-stride, one-address and general ways. %first: where the unit run starts, or the one address.
    apart: the general way is a call (general_functions)."""
    vt = f"<32 x {t}>"
    code = f"  br i1 {unit}, label %run, label %scatter\nrun:\n  %run.p = inttoptr i64 %first to ptr\n"
    if op == "load":
        code += f"  %run.v = load {vt}, ptr %run.p, align {size}\n  br label %end\nscatter:\n"
        phi = "[ %run.v, %run ], [ %all.v, %general ]"
        if same:
            code += f"  br i1 {same}, label %one, label %general\none:\n  %one.p = inttoptr i64 %first to ptr\n"
            code += f"  %one.s = load {t}, ptr %one.p, align {size}\n" + splat("one.v", "%one.s", t) + "  br label %end\n"
            phi += ", [ %one.v, %one ]"
        else:
            code += "  br label %general\n"
        code += "general:\n" + (f"  %all.v = call {vt} @general.load.{t}({V64} %p, i32 %m)\n" if apart else _general("load", t, size))
        return code + f"  br label %end\nend:\n  %v = phi {vt} {phi}\n"
    code += f"  store {vt} %v, ptr %run.p, align {size}\n  br label %end\nscatter:\n"
    code += f"  call void @general.store.{t}({V64} %p, i32 %m, {vt} %v)\n" if apart else _general("store", t, size)
    return code + "  br label %end\nend:\n"


def _general(op: str, t: str, size: int) -> str:
    """%all.v: the gather, or the scatter of %v."""
    vt, suffix = f"<32 x {t}>", f"v32{_short(t)}.v32p0"
    code = f"  %mv = bitcast i32 %m to {V1}\n  %ptrs = inttoptr {V64} %p to <32 x ptr>\n"
    if op == "load":
        return code + f"  %all.v = call {vt} @llvm.masked.gather.{suffix}(<32 x ptr> align {size} %ptrs, {V1} %mv, {vt} zeroinitializer)\n"
    return code + f"  call void @llvm.masked.scatter.{suffix}({vt} %v, <32 x ptr> align {size} %ptrs, {V1} %mv)\n"


def general_functions(t: str, size: int) -> str:
    """The gather and the scatter of type t, out of line: what is rare in tuned code should not be compiled at every access."""
    vt = f"<32 x {t}>"
    code = (
        f"define internal {vt} @general.load.{t}({V64} %p, i32 %m) noinline {{\n" + _general("load", t, size) + f"  ret {vt} %all.v\n}}\n"
    )
    code += f"define internal void @general.store.{t}({V64} %p, i32 %m, {vt} %v) noinline {{\n" + _general("store", t, size)
    return code + "  ret void\n}\n"


def _short(t: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16"}.get(t, t)


def gather_declarations(t: str) -> str:
    vt, suffix = f"<32 x {t}>", f"v32{_short(t)}.v32p0"
    return (
        f"declare {vt} @llvm.masked.gather.{suffix}(<32 x ptr>, {V1}, {vt})\n"
        f"declare void @llvm.masked.scatter.{suffix}({vt}, <32 x ptr>, {V1})\n"
    )


def _signature(op: str, t: str, name: str, attrs: str, more: str = "") -> tuple[str, str, str]:
    """The head of an access function (more: of its parameters), its failing and its succeeding return."""
    value = f", <32 x {t}> %v" if op == "store" else ""
    rt = "i1" if op == "store" else f"{{ <32 x {t}>, i1 }}"
    head = f"define internal {rt} @{name}(ptr %t, ptr %a, i32 %site, {V64} %p, i32 %m{value}{more}) {attrs} {{\nentry:\n"
    if op == "store":
        return head, "i1 false", "  ret i1 true\n}\n"
    good = f"  %r0 = insertvalue {rt} poison, <32 x {t}> %v, 0\n  %r = insertvalue {rt} %r0, i1 true, 1\n  ret {rt} %r\n}}\n"
    return head, f"{rt} zeroinitializer", good


def access_function(
    name: str,
    op: str,
    t: str,
    size: int,
    space: str,
    dynamic: bool,
    stride: int | None,
    counters: bool,
    attrs: str,
    checked: int,
    span: int,
) -> str:
    """One load or store of type t in `space` ("global", "shared", "local", "constant"). dynamic: of an array that is not always the same;
    stride: bytes between neighbouring lanes, None where the program does not tell; checked: see what(), 0 where no shadow is; span: the
    bytes that are counted, more than `size` where the access stands for its neighbours (merged.py)."""
    head, bad, good = _signature(op, t, name, attrs)
    if space == "local":
        return head + _local_body(op, t, size, counters, bad) + good
    if not counters:
        return head + _bounded_body(op, t, size, bad, checked) + good
    if not stride:
        return head + _counted_body(op, t, size, space, dynamic, None, bad, span) + good
    other = _signature(op, t, f"other.{name}", "noinline", ", i1 %is.run")[0]
    other += _counted_body(op, t, size, space, dynamic, stride, bad, span) + good
    return head + _run_body(op, t, size, space, stride, f"other.{name}") + other


def _bounded_body(op: str, t: str, size: int, bad: str, checked: int) -> str:
    code = _base() + _offsets() + limit_of(size) + _vector_bounds() + "  br i1 %inside, label %go, label %stray, !prof !1\n" + _stray(bad)
    code += "go:\n" + (_check(checked, "%p", f"<32 x {t}> %v" if op == "store" else "") if checked else "")
    return code + _is_run(size) + _move(op, t, size, "%is.run", None, apart=True)


def what(size: int, op: str, align: int | None, waiting: int = 0) -> int:
    """What an access is, as shadow.py wants to know it. op: "load", "store", or an atomic one; waiting: instead of LOAD."""
    kind = {"load": waiting or LOAD, "store": STORE}.get(op, ATOMIC)
    return size | kind << KIND_UP | min(align or size, size) << ALIGN_UP


def _check(checked: int, addresses: str, values: str) -> str:
    """Tells the array's shadow, if it has one, of an access of the lanes %m; ends in block %checked."""
    code = field("shape", "%a", ALLOC["count"]) + "  %has.shadow = icmp ne i64 %shape, 0\n"
    code += "  br i1 %has.shadow, label %shadowed, label %checked\nshadowed:\n" + field("seen", "%t", THREAD["scratch"], "ptr")
    code += f"  store {V64} {addresses}, ptr %seen, align 64\n" + at("stored", "%seen", VALUES)
    code += f"  store {values}, ptr %stored, align 64\n" if values else ""
    code += (
        "  %t.i = ptrtoint ptr %t to i64\n  %a.i = ptrtoint ptr %a to i64\n  %site.i = zext i32 %site to i64\n  %m.i = zext i32 %m to i64\n"
    )
    code += "  %seen.i = ptrtoint ptr %seen to i64\n  %stored.i = ptrtoint ptr %stored to i64\n"
    code += f"  call void @simt_touch(i64 %t.i, i64 %a.i, i64 %site.i, i64 {checked}, i64 %m.i, i64 %seen.i, i64 %stored.i)\n"
    return code + "  br label %checked\nchecked:\n"


def _counted_body(op: str, t: str, size: int, space: str, dynamic: bool, stride: int | None, bad: str, span: int) -> str:
    code = _base() + field("bytes", "%a", ALLOC["size"], "i64", ", !invariant.load !0")
    code += _memo(span, _FLAGS.get(space, 0), stride=stride) + _memo_bounds(dynamic)
    if span == size:
        code += "  br i1 %inside, label %go, label %stray, !prof !1\n" + _stray(bad, _offsets() + _limit(size)) + "go:\n"
    else:  # part of the whole strays: whether this access does is asked of itself, and its neighbours answer for themselves
        code += "  br i1 %inside, label %go, label %near, !prof !1\nnear:\n" + _offsets() + _limit(size)
        code += _vector_bounds().replace("%inside", "%own") + "  br i1 %own, label %go, label %stray, !prof !1\n" + _stray(bad) + "go:\n"
    code += _record(op == "store") if space == "global" else ""
    code += "  %kind = load i16, ptr %e.kind\n  %is.unit = icmp eq i16 %kind, 1\n  %is.same = icmp eq i16 %kind, 2\n"
    return code + _move(op, t, size, "%is.unit" if span == size else "false", "%is.same", apart=not dynamic and not stride)


def _run_body(op: str, t: str, size: int, space: str, stride: int, other: str) -> str:
    """32 lanes at the site's stride, from the start of a word, inside the array and seen before at this place in a line: 'run' says how
    many starts are (0: none)."""
    vt = f"<32 x {t}>"
    code = _is_run(stride) + "  br i1 %is.run, label %straight, label %other, !prof !1\nstraight:\n" + _base()
    code += f"  %ref = sub i64 %first, %base\n  %place = lshr i64 %ref, 2\n  %way = and i64 %place, {MEMO_WAYS - 1}\n" + _entry("%way")
    code += (
        "  %starts = load i64, ptr %e.run\n  %known = icmp ult i64 %ref, %starts\n  %odd = and i64 %ref, 3\n  %even = icmp eq i64 %odd, 0\n"
    )
    code += "  br i1 %known, label %inside, label %other, !prof !1\ninside:\n  br i1 %even, label %go, label %other, !prof !1\ngo:\n"
    code += _HIT + (_record(op == "store") if space == "global" else "")
    if stride != size:
        code += f"  %run.v = call {vt} @general.load.{t}({V64} %p, i32 -1)\n" if op == "load" else ""
        code += f"  call void @general.store.{t}({V64} %p, i32 -1, {vt} %v)\n" if op == "store" else ""
    else:
        code += "  %run.p = inttoptr i64 %first to ptr\n"
        code += f"  %run.v = load {vt}, ptr %run.p, align {size}\n" if op == "load" else f"  store {vt} %v, ptr %run.p, align {size}\n"
    given = f"{V64} %p, i32 %m{f', {vt} %v' if op == 'store' else ''}, i1 %is.run"
    if op == "store":
        return code + f"  ret i1 true\nother:\n  %done = call i1 @{other}(ptr %t, ptr %a, i32 %site, {given})\n  ret i1 %done\n}}\n"
    rt = f"{{ {vt}, i1 }}"
    code += f"  %r0 = insertvalue {rt} poison, {vt} %run.v, 0\n  %r1 = insertvalue {rt} %r0, i1 true, 1\n  ret {rt} %r1\n"
    return code + f"other:\n  %r = call {rt} @{other}(ptr %t, ptr %a, i32 %site, {given})\n  ret {rt} %r\n}}\n"


def _local_body(op: str, t: str, size: int, counters: bool, bad: str) -> str:
    """Local memory: %a holds the array's base for lane 0 and its size; lanes are `stride` bytes apart (ALLOC 'spare').
    It counts as the hardware lays it out: 4-byte rows interleaved over the 32 lanes."""
    code = "  %base = load i64, ptr %a\n" + field("stride", "%a", ALLOC["spare"], "i64", ", !invariant.load !0")
    code += splat("base.v", "%base", "i64") + splat("stride.v", "%stride", "i64") + f"  %lane.off = mul {V64} %stride.v, {LANES32}\n"
    code += f"  %raw0 = sub {V64} %p, %base.v\n  %off = sub {V64} %raw0, %lane.off\n" + limit_of(size) + _vector_bounds()
    code += "  br i1 %inside, label %fine, label %stray, !prof !1\n" + _stray(bad) + "fine:\n"
    if counters:
        code += f"  %row = lshr {V64} %off, {lanes('i64', [2] * 32)}\n  %row.b = shl {V64} %row, {lanes('i64', [7] * 32)}\n"
        code += f"  %low2 = and {V64} %off, {lanes('i64', [3] * 32)}\n  %voff0 = or {V64} %row.b, %low2\n"
        code += f"  %voff = add {V64} %voff0, {lanes('i64', [4 * k for k in range(32)])}\n"
        code += _memo(size, LOCAL, "%voff", "0") + "  br label %go\ngo:\n  %bl = ashr i64 %ref, 7\n" + _trace()
    code += f"  %mv = bitcast i32 %m to {V1}\n  %ptrs = inttoptr {V64} %p to <32 x ptr>\n"
    vt, suffix = f"<32 x {t}>", f"v32{_short(t)}.v32p0"
    if op == "load":
        return code + f"  %v = call {vt} @llvm.masked.gather.{suffix}(<32 x ptr> align {size} %ptrs, {V1} %mv, {vt} zeroinitializer)\n"
    return code + f"  call void @llvm.masked.scatter.{suffix}({vt} %v, <32 x ptr> align {size} %ptrs, {V1} %mv)\n"


def words_of(size: int) -> int:
    """The words of a line that an access of `size` bytes at its start touches, one bit each."""
    return (1 << -(-size // 4)) - 1


def uniform_load_function(name: str, t: str, size: int, space: str, counters: bool, attrs: str, checked: int, span: int) -> str:
    """A load whose address is the same in all lanes: one scalar load; a request of one line. %shapes: the first of the site's shapes;
    span: as above."""
    rt = f"{{ {t}, i1 }}"
    code = f"define internal {rt} @{name}(ptr %t, ptr %a, i32 %site, i64 %shapes, i64 %p, i32 %m) {attrs} {{\nentry:\n"
    code += "  %base = load i64, ptr %a, !invariant.load !0\n  %off.s = sub i64 %p, %base\n" + limit_of(size)
    code += "  %inside = icmp ult i64 %off.s, %limit\n  br i1 %inside, label %go, label %stray, !prof !1\n"
    code += "stray:\n" + splat("off", "%off.s", "i64") + _spill()
    code += f"  call void @simt_stray(ptr %t, i64 %limit, i32 %site, i32 %m)\n  ret {rt} zeroinitializer\ngo:\n"
    if counters and space == "global":
        code += "  %bl = ashr i64 %off.s, 7\n  %wi = lshr i64 %off.s, 2\n  %wi.in = and i64 %wi, 31\n  %wb = trunc i64 %wi.in to i32\n"
        code += f"  %wm = shl i32 {words_of(size)}, %wb\n"
        for row in ("read", "written"):
            code += at(f"{row}.at", "%a", ALLOC[row]) + f"  %{row} = load ptr, ptr %{row}.at, !invariant.load !0\n"
        code += _mark("%bl", "%wm", False, True) + "  %wi.2 = shl i64 %wi.in, 1\n  %shape.w = add i64 %shapes, %wi.2\n" + _trace("%shape.w")
    if counters and span > 4 and space in ("global", "shared"):  # one pass per half or quarter of a warp that has an active lane
        code += field("tot", "%t", THREAD["totals"], "ptr", ", !invariant.load !0")
        code += f"  %s.64 = zext i32 %site to i64\n  %row.b = mul i64 %s.64, {TOTALS_BYTES}\n  %row.b8 = add i64 %row.b, 8\n  %wave.at = getelementptr i8, ptr %tot, i64 %row.b8\n"
        code += "  %passes.0 = load i64, ptr %wave.at\n"
        width = 4 * WARP // span
        for k in range(WARP // width):
            code += f"  %part.{k} = and i32 %m, {((1 << width) - 1) << k * width}\n  %some.{k} = icmp ne i32 %part.{k}, 0\n"
            code += f"  %one.{k} = zext i1 %some.{k} to i64\n  %passes.{k + 1} = add i64 %passes.{k}, %one.{k}\n"
        code += f"  store i64 %passes.{WARP // width}, ptr %wave.at\n"
    if checked:
        code += splat("p.v", "%p", "i64") + _check(checked, "%p.v", "")
    code += "  %i = inttoptr i64 %p to ptr\n" + f"  %v = load {t}, ptr %i, align {size}\n"
    return code + f"  %r0 = insertvalue {rt} poison, {t} %v, 0\n  %r = insertvalue {rt} %r0, i1 true, 1\n  ret {rt} %r\n}}\n"


def atomic_function(name: str, op: str, t: str, size: int, space: str, counters: bool, checked: int) -> str:
    """atomicrmw `op` or cmpxchg, lane after lane in lane order; old values go to %out."""
    swap = op.startswith("cmpxchg")
    extra = f", <32 x {t}> %c" if swap else ""
    code = f"define internal i1 @{name}(ptr %t, ptr %a, i32 %site, {V64} %p, i32 %m, <32 x {t}> %v{extra}, ptr %out) noinline {{\nentry:\n"
    code += f"  %ps = alloca [32 x i64], align 64\n  %vs = alloca [32 x {t}], align 64\n  %cs = alloca [32 x {t}], align 64\n"
    code += "  %banks = alloca <32 x i8>, align 32\n" if counters and space == "shared" else ""
    code += _base() + _offsets() + limit_of(size) + _vector_bounds() + "  br i1 %inside, label %fine, label %stray, !prof !1\n"
    code += _stray("i1 false") + "fine:\n"
    code += _check(checked, "%p", "") if checked else ""
    if counters and space == "global":
        code += _memo(size, 0) + _record(True, True)
    elif counters:  # their patterns are nearly always new: count as they run; lanes of one bank wait for each other, equal addresses too
        code += "  store <32 x i8> zeroinitializer, ptr %banks, align 32\n"
    code += f"  store {V64} %p, ptr %ps, align 64\n  store <32 x {t}> %v, ptr %vs, align 64\n"
    if swap:
        code += f"  store <32 x {t}> %c, ptr %cs, align 64\n"
    if counters and space == "global":
        code += at("stamp.at", "%a", ALLOC["stamp"]) + "  %stamps = load ptr, ptr %stamp.at\n"
        code += at("count.at", "%a", ALLOC["count"]) + "  %counts = load ptr, ptr %count.at\n" + at("wn.at", "%t", THREAD["words"])
        code += "  %wn0 = load i64, ptr %wn.at\n  %wn = add i64 %wn0, 1\n  store i64 %wn, ptr %wn.at\n  %stamp = trunc i64 %wn to i32\n"
    before = "recorded" if counters and space == "global" else "checked" if checked else "fine"
    code += f"  br label %head\nhead:\n  %from = phi i32 [ %m, %{before}"
    code += " ], [ %rest, %tail ]\n"
    code += "  %waves = phi i8 [ 0, %fine ], [ %waves.new, %tail ]\n" if counters and space == "shared" else ""
    code += "  %lane = call i32 @llvm.cttz.i32(i32 %from, i1 true)\n  %l = zext i32 %lane to i64\n"
    code += "  %minus = sub i32 %from, 1\n  %rest = and i32 %from, %minus\n"
    code += f"  %pp = getelementptr i64, ptr %ps, i64 %l\n  %pi = load i64, ptr %pp\n  %q = inttoptr i64 %pi to ptr\n  %vp = getelementptr {t}, ptr %vs, i64 %l\n  %vv = load {t}, ptr %vp\n"
    code += _exchange(op, t, size, space)
    code += f"  %op = getelementptr {t}, ptr %out, i64 %l\n  store {t} %old.v, ptr %op\n"
    if counters and space == "global":  # how often one address is hit, lanes of one warp combined
        code += "  %ao = sub i64 %pi, %base\n  %aw = lshr i64 %ao, 2\n  %st.at = getelementptr i32, ptr %stamps, i64 %aw\n  %st = load i32, ptr %st.at\n"
        code += "  %seen = icmp eq i32 %st, %stamp\n  br i1 %seen, label %tail, label %first.time\nfirst.time:\n  store i32 %stamp, ptr %st.at\n"
        code += "  %ct.at = getelementptr i32, ptr %counts, i64 %aw\n  %ct = load i32, ptr %ct.at\n  %ct1 = add i32 %ct, 1\n  store i32 %ct1, ptr %ct.at\n"
    if counters and space == "shared":
        code += "  %word = sub i64 %pi, %base\n  %word.i = lshr i64 %word, 2\n  %bank = and i64 %word.i, 31\n  %bank.at = getelementptr i8, ptr %banks, i64 %bank\n"
        code += "  %turn0 = load i8, ptr %bank.at\n  %turn = add i8 %turn0, 1\n  store i8 %turn, ptr %bank.at\n  %longer = icmp ugt i8 %turn, %waves\n  %waves.new = select i1 %longer, i8 %turn, i8 %waves\n"
    code += "  br label %tail\ntail:\n  %more = icmp ne i32 %rest, 0\n  br i1 %more, label %head, label %out.done\nout.done:\n"
    if counters and space == "shared":
        code += field("tot", "%t", THREAD["totals"], "ptr", ", !invariant.load !0") + "  %s.64 = zext i32 %site to i64\n"
        code += f"  %row.b = mul i64 %s.64, {TOTALS_BYTES}\n  %row = getelementptr i8, ptr %tot, i64 %row.b\n  %waves.64 = zext i8 %waves.new to i64\n  %beyond = sub i64 %waves.64, 1\n"
        for name, column, amount in (("w", 8, "%waves.64"), ("c", 16, "%beyond")):
            code += (
                at(f"{name}.at", "%row", column)
                + f"  %{name}0 = load i64, ptr %{name}.at\n  %{name}1 = add i64 %{name}0, {amount}\n  store i64 %{name}1, ptr %{name}.at\n"
            )
    return code + "  ret i1 true\n}\n"


def _exchange(op: str, t: str, size: int, space: str) -> str:
    """One lane's operation at %q with %vv (and %cc): leaves what was there in %old.v."""
    if op.startswith("cmpxchg"):
        code = f"  %cp = getelementptr {t}, ptr %cs, i64 %l\n  %cc = load {t}, ptr %cp\n  %pair = cmpxchg ptr %q, {t} %vv, {t} %cc monotonic monotonic, align {size}\n"
        return code + f"  %old.v = extractvalue {{ {t}, i1 }} %pair, 0\n"
    plain = f"  %old.v = load {t}, ptr %q, align {size}\n"
    if op in _NAN_RULES and t in ("float", "double"):  # blocks run in one fixed order where this is global
        code = plain + _NAN_RULES[op].replace("T ", f"{t} ")
        return code + f"  %new.v = select i1 %win, {t} %vv, {t} %old.v\n  store {t} %new.v, ptr %q, align {size}\n"
    if space == "shared" and op == "xchg":  # a block runs on one thread
        return plain + f"  store {t} %vv, ptr %q, align {size}\n"
    if space == "shared" and op in ("add", "sub", "and", "or", "xor", "fadd"):
        return plain + f"  %new.v = {op} {t} %old.v, %vv\n  store {t} %new.v, ptr %q, align {size}\n"
    return f"  %old.v = atomicrmw {op} ptr %q, {t} %vv monotonic, align {size}\n"


# numba's own rules: max and min leave a NaN alone; nanmax and nanmin replace it
_NAN_RULES = {
    "max": "  %win = fcmp olt T %old.v, %vv\n",
    "min": "  %win = fcmp ogt T %old.v, %vv\n",
    "nanmax": "  %lt = fcmp ult T %old.v, %vv\n  %real = fcmp ord T %vv, %vv\n  %win = and i1 %lt, %real\n",
    "nanmin": "  %gt = fcmp ugt T %old.v, %vv\n  %real = fcmp ord T %vv, %vv\n  %win = and i1 %gt, %real\n",
}

FIND = f"""
; the row of the array that holds an address, or the last row (an empty array) when none does
define internal ptr @find(ptr %t, i64 %p, i64 %rows) noinline {{
entry:
{field("allocs", "%t", THREAD["allocs"], "ptr")}  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k1, %next ]
  %o = mul i64 %k, {ALLOC_BYTES}
  %row = getelementptr i8, ptr %allocs, i64 %o
  %end = icmp eq i64 %k, %rows
  br i1 %end, label %out, label %body
body:
  %base = load i64, ptr %row
{field("size", "%row", ALLOC["size"])}  %off = sub i64 %p, %base
  %in = icmp ult i64 %off, %size
  br i1 %in, label %out, label %next
next:
  %k1 = add i64 %k, 1
  br label %head
out:
  ret ptr %row
}}
"""
