"""What an operation cannot do without: its FLOPs by type and its compulsory bytes, as a ledger of named terms. The definition of Work.

Compulsory (fused) bytes: every input read once, every output written once. What is produced and consumed inside a fused operation
costs nothing; a tensor read by several operands counts once; views are free; slices and gathers cost what they touch. FMA = 2 FLOPs.

Glossary: `a + b` is two launches one after the other (nothing shared: the unfused sum); `fuse(a, b)` is one launch that does both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .errors import UnknownName, WorkError
from .hardware import PEAK_COLUMNS


def _amount(what: str, value: float) -> int | float:
    """A finite, non-negative number, or WorkError. Bytes and FLOPs are counts: whole floats become ints."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise WorkError(f"{what} must be a number, not {value!r}.")
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise WorkError(f"{what} must be finite and at least 0, not {value!r}.")
    return int(value) if number.is_integer() else number


@dataclass(frozen=True)
class Term:
    """One line of the ledger: the tensor `name` is read ("read") or written ("write"): `bytes` of it."""

    name: str
    direction: str
    bytes: int | float

    def __post_init__(self) -> None:
        if self.direction not in ("read", "write"):
            raise WorkError(f"Term {self.name!r}: direction must be 'read' or 'write', not {self.direction!r}.")
        object.__setattr__(self, "bytes", _amount(f"Bytes of {self.name!r}", self.bytes))


@dataclass(frozen=True)
class Work:
    """FLOPs by type and compulsory bytes by tensor. Build it by adding: `Work.read("x", 4 * n) + Work.write("y", 4 * n)`.

    terms  the ledger, in the order added
    flops  kind -> FLOPs (FMA = 2). Kinds: "fp16", "fp32", "fp64" and the tensor cores' "tensor_fp16", "tensor_bf16", ...

    >>> n = 1000
    >>> saxpy = Work.read("x", 4 * n) + Work.read("y", 4 * n) + Work.write("y", 4 * n) + Work.flop("fp32", 2 * n)
    >>> saxpy.compulsory_bytes, saxpy.total_flops, round(saxpy.arithmetic_intensity, 4)
    (12000, 2000, 0.1667)
    """

    terms: tuple[Term, ...] = ()
    flops: Mapping[str, int | float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for kind in self.flops:
            if kind not in PEAK_COLUMNS:
                raise UnknownName("kind of FLOP", kind, PEAK_COLUMNS)
        checked = {kind: _amount(f"FLOPs of kind {kind!r}", n) for kind, n in self.flops.items()}
        object.__setattr__(self, "terms", tuple(self.terms))
        object.__setattr__(self, "flops", checked)

    @staticmethod
    def read(name: str, bytes: float) -> Work:
        """The ledger line "this many bytes of tensor `name` are read". Raises: WorkError for a negative number."""
        return Work((Term(name, "read", bytes),))

    @staticmethod
    def write(name: str, bytes: float) -> Work:
        """The ledger line "this many bytes of tensor `name` are written". Raises: WorkError for a negative number."""
        return Work((Term(name, "write", bytes),))

    @staticmethod
    def flop(kind: str, count: float) -> Work:
        """`count` floating-point operations of one kind, FMA = 2. Raises: UnknownName, WorkError."""
        return Work((), {kind: count})

    def __add__(self, other: Work) -> Work:
        """One after the other, nothing shared: every line of both."""
        if not isinstance(other, Work):
            return NotImplemented
        kinds = dict.fromkeys((*self.flops, *other.flops))
        return Work(self.terms + other.terms, {k: self.flops.get(k, 0) + other.flops.get(k, 0) for k in kinds})

    def __radd__(self, other: object) -> Work:
        return self if other == 0 else NotImplemented  # so that sum() works

    @property
    def read_bytes(self) -> int | float:
        return sum(t.bytes for t in self.terms if t.direction == "read")

    @property
    def write_bytes(self) -> int | float:
        return sum(t.bytes for t in self.terms if t.direction == "write")

    @property
    def compulsory_bytes(self) -> int | float:
        """Bytes that must cross the DRAM interface = sum of the ledger."""
        return self.read_bytes + self.write_bytes

    @property
    def total_flops(self) -> int | float:
        return sum(self.flops.values())

    @property
    def arithmetic_intensity(self) -> float:
        """FLOPs / compulsory bytes (FLOP/byte, not MAC/byte); infinite when no byte is moved. Raises: WorkError when empty."""
        if not self.total_flops and not self.compulsory_bytes:
            raise WorkError("This ledger is empty: it has neither bytes nor FLOPs. Add Work.read, Work.write or Work.flop terms.")
        return self.total_flops / self.compulsory_bytes if self.compulsory_bytes else math.inf


def _by_tensor(work: Work, direction: str) -> dict[str, int | float]:
    """Tensor -> bytes; a tensor named several times counts once, with its largest line."""
    sizes: dict[str, int | float] = {}
    for t in work.terms:
        if t.direction == direction:
            sizes[t.name] = max(t.bytes, sizes.get(t.name, 0))
    return sizes


def fuse(first: Work, second: Work, *, keep: Iterable[str] = ()) -> Work:
    """`first` then `second` in one launch, tensors matched by name. FLOPs add; bytes shrink.

    Written by `first` and read by `second`: costs nothing, except the write of tensors in `keep` (others still need them). Read by
    both, or written by both: once. Law: never more bytes than `first + second`.

    Raises: UnknownName when `keep` names a tensor that `first` does not write.

    >>> n = 1000
    >>> scale = Work.read("x", 4 * n) + Work.write("t", 4 * n)
    >>> add = Work.read("t", 4 * n) + Work.read("b", 4 * n) + Work.write("y", 4 * n)
    >>> (scale + add).compulsory_bytes, fuse(scale, add).compulsory_bytes, fuse(scale, add, keep=["t"]).compulsory_bytes
    (20000, 12000, 16000)
    """
    reads, made = _by_tensor(first, "read"), _by_tensor(first, "write")
    late_reads, writes = _by_tensor(second, "read"), _by_tensor(second, "write")
    keep = set(keep)
    for name in keep:
        if name not in made:
            raise UnknownName("tensor written by the first operation", name, made)
    for name, size in late_reads.items():
        outside = max(0, size - made.get(name, 0))  # what `first` did not make must still come from memory
        if outside:
            reads[name] = max(outside, reads.get(name, 0))
    for name, size in made.items():
        if name not in late_reads or name in keep:
            writes[name] = max(size, writes.get(name, 0))
    terms = [Term(n, "read", b) for n, b in reads.items()] + [Term(n, "write", b) for n, b in writes.items()]
    return Work(tuple(terms), (first + second).flops)


def cache_aware(first: Work, second: Work, l2_bytes: float) -> Work:
    """`first` then `second` in two launches whose shared tensors are still in L2 (of `l2_bytes`) when the second one reads them.

    Rule: if everything `first` touches fits, what `second` reads of it is free; else nothing is. Writes always reach DRAM in the end.
    Law: fuse <= cache_aware <= first + second.

    >>> a, b = Work.read("x", 10) + Work.write("t", 10), Work.read("t", 10) + Work.write("y", 10)
    >>> cache_aware(a, b, l2_bytes=20).compulsory_bytes, cache_aware(a, b, l2_bytes=19).compulsory_bytes
    (30, 40)
    """
    touched: dict[str, int | float] = _by_tensor(first, "read")
    for name, size in _by_tensor(first, "write").items():
        touched[name] = max(size, touched.get(name, 0))
    if sum(touched.values()) > _amount("L2 bytes", l2_bytes):
        return first + second
    terms = [
        Term(t.name, t.direction, max(0, t.bytes - touched.get(t.name, 0)) if t.direction == "read" else t.bytes) for t in second.terms
    ]
    return Work(first.terms + tuple(terms), (first + second).flops)


def saved_fraction(before: Work, after: Work) -> float:
    """Share of the compulsory bytes that `after` does without, 0..1 (negative if it moves more). It is bytes, not time.

    Raises: WorkError when `before` moves nothing.
    """
    if not before.compulsory_bytes:
        raise WorkError("The ledger to compare with moves no bytes.")
    return 1 - after.compulsory_bytes / before.compulsory_bytes


def side_by_side(**ledgers: Work) -> tuple[tuple[str, ...], ...]:
    """Rows for a table: a head, one row per tensor and direction with its bytes in each ledger, and the sum. All as plain text.

    >>> a, b = Work.read("x", 8) + Work.write("t", 8), Work.read("t", 8) + Work.write("y", 8)
    >>> for row in side_by_side(unfused=a + b, fused=fuse(a, b)):
    ...     print(*row, sep="|")
    term|unfused|fused
    read x|8|8
    write t|8|0
    read t|8|0
    write y|8|8
    compulsory bytes|32|16
    """
    columns = []
    for work in ledgers.values():
        column: dict[str, int | float] = {}
        for t in work.terms:
            key = f"{t.direction} {t.name}"
            column[key] = column.get(key, 0) + t.bytes
        columns.append(column)
    keys = dict.fromkeys(key for column in columns for key in column)
    rows = [("term", *ledgers)]
    rows += [(key, *(str(column.get(key, 0)) for column in columns)) for key in keys]
    rows.append(("compulsory bytes", *(str(work.compulsory_bytes) for work in ledgers.values())))
    return tuple(rows)
