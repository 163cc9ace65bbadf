"""The Trace as the machine records it: still in the workers' buffers, put together when somebody reads it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from solcourse.simt.compiler import expand_trace, expanded_words
from solcourse.simt.pieces import CHUNK
from solcourse.simt.pool import MEMORY
from solcourse.simt.records import Trace

if TYPE_CHECKING:
    from solcourse.simt.machine import Worker

TRACE_WORDS = 1 << 20  # bound of the Trace: 8 MiB, lines of half a million requests; beyond it whole blocks are left out
TRACE_BLOCKS = 1 << 17


@dataclass(frozen=True, slots=True)
class _Part:
    """What one worker traced. notes: (blocks, 3) see layout.TRACED_BYTES; shapes: their address."""

    notes: np.ndarray
    shapes: int


class RecordedTrace(Trace):
    """A Trace still in the workers' buffers; put together when it is first read, buffers given back when it is dropped."""

    _parts: list[_Part]

    def __init__(self, crew: list[Worker]):
        self.__dict__["_parts"] = [_Part(w.traced[: w["blocks_count"]], w.shapes.ctypes.data) for w in crew]
        weakref.finalize(self, MEMORY.give, [b for w in crew for b in (w.requests, w.shapes, w.traced_block)])

    @cached_property
    def _made(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _assemble(self._parts)

    def head(self, words: int, blocks: int) -> Trace:
        """Its first blocks, as many as `words` words hold, but `blocks` at least: what it costs to put together goes with the words."""
        if "_made" in self.__dict__:
            return self
        return Trace(*_assemble(self._parts, words, blocks))

    @property
    def blocks(self) -> np.ndarray:  # type: ignore[override]
        return self._made[0]

    @property
    def offsets(self) -> np.ndarray:  # type: ignore[override]
        return self._made[1]

    @property
    def words(self) -> np.ndarray:  # type: ignore[override]
        return self._made[2]

    def __reduce__(self):
        return Trace, (self.blocks, self.offsets, self.words)


def _assemble(parts: list[_Part], wanted: int = TRACE_WORDS, fewest: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The longest run of traced blocks, from the first, that fits the bound: the same whatever thread ran which block.

    wanted: stop at so many words, but not before `fewest` blocks. A first block that does not fit by itself is cut at its last whole request."""
    notes = np.concatenate([np.column_stack((p.notes, expanded_words(p.notes, p.shapes), np.full(len(p.notes), k)))
                            for k, p in enumerate(parts)])  # fmt: skip
    if len(parts) > 1:
        notes = notes[np.argsort(notes[:, 0], kind="stable")]
    if not len(notes):
        return np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint64)
    gaps = np.flatnonzero(np.diff(notes[:, 0]) != 1)
    notes = notes[: gaps[0] + 1] if len(gaps) else notes
    ends = np.cumsum(notes[:, 3])
    n = int(np.searchsorted(ends, TRACE_WORDS, side="right"))
    n = min(n, max(fewest, int(np.searchsorted(ends, wanted, side="right"))))
    notes, ends = (notes[:1], np.array([TRACE_WORDS])) if n == 0 else (notes[:n], ends[:n])  # that one is cut
    words = np.empty(int(ends[-1]) + CHUNK, np.uint64)
    at, end = words.ctypes.data, words.ctypes.data + 8 * int(ends[-1])
    # blocks are handed out in chunks: expand what one worker traced in one go as one piece
    follows = (notes[1:, 4] == notes[:-1, 4]) & (notes[1:, 1] == notes[:-1, 2])
    first = np.concatenate(([0], np.flatnonzero(~follows) + 1))
    last = np.concatenate((first[1:], [len(notes)])) - 1
    for a, b in zip(first.tolist(), last.tolist(), strict=True):
        at = expand_trace(int(notes[a, 1]), int(notes[b, 2]), parts[int(notes[a, 4])].shapes, at, end)
    size = (at - words.ctypes.data) // 8
    offsets = np.concatenate(([0], [size] if n == 0 else ends)).astype(np.int64)
    return notes[:, 0].copy(), offsets, words[:size]
