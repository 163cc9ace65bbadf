"""The observers that count control flow: what the emitter calls at block entries and branches. One row per basic block."""

from __future__ import annotations

EXECUTIONS, ACTIVE_LANES, DIVERGENT = 0, 1, 2
ROW = 3  # int64 per basic block


class BlockCounter:
    """Counts executions and active lanes of each leading basic block (cfg.leaders), and the branches whose lanes disagreed."""

    def on_block(self, e, k: int) -> None:
        if k == 0 or e.cfg.leaders[k] != k:  # the entry runs once per warp; others follow their leader
            return
        lanes = e.call("llvm.ctpop.i32", "i32", [("i32", e.mask())])
        _add(e, k, EXECUTIONS, "1")
        _add(e, k, ACTIVE_LANES, e.op(f"zext i32 {lanes} to i64"))

    def on_branch(self, e, k: int, taken: str | None, other: str | None) -> None:
        if taken is None:
            return
        a, b = e.op(f"icmp ne i32 {taken}, 0"), e.op(f"icmp ne i32 {other}, 0")
        both = e.op(f"and i1 {a}, {b}")
        _add(e, k, DIVERGENT, e.op(f"zext i1 {both} to i64"))


class Nothing:
    """No counters."""

    def on_block(self, e, k: int) -> None:
        pass

    def on_branch(self, e, k: int, taken: str | None, other: str | None) -> None:
        pass


def _add(e, k: int, column: int, amount: str) -> None:
    at = e.op(f"getelementptr i64, ptr %exec, i64 {ROW * k + column}")
    old = e.op(f"load i64, ptr {at}")
    e.line(f"store i64 {e.op(f'add i64 {old}, {amount}')}, ptr {at}")
