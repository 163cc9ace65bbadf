"""What a Finding's touches tell: which two clash, what is worth showing of the others, and the same in words.

Glossary: touch (one access of one thread to the cell), step (neighbouring touches of one kind by one source line, each thread at
most once), phase (the time between two barriers of a block), clash (the two touches that nothing orders).
Blocks are never ordered by barriers: where the two that clash are of different blocks, phases mean nothing.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from solcourse.simt.records import CHECKS, Finding, Touch

MOST_ROWS, MOST_STEPS = 6, 7
VERBS = {"read": ("reads", "read"), "write": ("writes", "write"), "atomic": ("updates", "update")}  # action -> of one, of several
# kind -> (what the first of the two did, what the second did), where the touches do not say
PARTIES = {
    "read_after_write": ("write", "read"),
    "write_after_read": ("read", "write"),
    "write_after_write": ("write", "write"),
    "lost_update": ("write", "write"),
    "same_value_write": ("write", "write"),
}
Dim = tuple[int, int, int]
Who = tuple[Dim, Dim]  # block, thread


@dataclass(frozen=True)
class Step:
    """A column: the touches (numbers into the drawn ones) of one kind and source line that follow each other in one phase."""

    phase: int
    action: str
    line: int
    touches: tuple[int, ...]


def printable(words: str) -> str:
    """Without the control characters that neither XML nor a terminal takes kindly."""
    return "".join(c if c.isprintable() else " " for c in words)


def source_of(file: str) -> list[str]:
    """The lines of a source file or notebook cell; none where it cannot be read."""
    try:
        return [printable(line.rstrip().expandtabs(4)) for line in linecache.getlines(file)]
    except (OSError, ValueError, TypeError, AttributeError):  # a name that is no name of a file
        return []


def source_line(file: str, line: int | None) -> str:
    """One line, stripped; "" where it cannot be read."""
    lines = source_of(file)
    return lines[line - 1].strip() if line and 0 < line <= len(lines) else ""


def dim(at: Dim | None) -> str:
    """(4, 3, 0), whatever its integers are."""
    return f"({', '.join(f'{v}' for v in at)})" if at is not None else "(?)"


def cell_of(finding: Finding) -> str:
    """The cell as written, as far as it is known: "tile[3, 4]", "x[7]", "x", "a cell"."""
    flat = f"{finding.array}[{finding.index}]" if finding.array and finding.index is not None else finding.array
    return printable(finding.element or flat or "a cell")


def plural(count: int, noun: str) -> str:
    """1 error, 1,200 errors."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def verb(action: str, count: int = 1) -> str:
    """ "reads"; of several threads "read"."""
    return VERBS.get(action, (f"{action}s", action))[count != 1]


def who_of(touch: Touch) -> Who:
    """Thread and block: what a row stands for."""
    return touch.block, touch.thread


# --------------------------------------------------------------------------------------------------------- which two clash
def clash(finding: Finding) -> tuple[int, ...]:
    """Numbers of the touches the finding is about: the first and the second of a hazard, the one of any other finding, () if not there.

    Of all pairs that fit the finding's lines and threads, the nearest two with no barrier between; failing those, by the lines alone.
    """
    touches = finding.touches
    if finding.kind not in CHECKS["racecheck"]:
        exact = (i for i, t in enumerate(touches) if t.line == finding.line and t.thread == finding.thread and t.block == finding.block)
        return tuple(exact)[:1]
    did_first, did_second = PARTIES[finding.kind]
    two_blocks = finding.block != finding.other_block and None not in (finding.block, finding.other_block)

    def first(t: Touch) -> bool:
        return t.action in (did_first, "atomic") and finding.other_line in (None, 0, t.line)

    def second(t: Touch) -> bool:
        return t.action in (did_second, "atomic") and finding.line in (0, t.line)

    def named_first(t: Touch) -> bool:
        return first(t) and who_of(t) == (finding.other_block, finding.other_thread)

    def named_second(t: Touch) -> bool:
        return second(t) and who_of(t) == (finding.block, finding.thread)

    return _nearest(touches, named_first, named_second, two_blocks) or _nearest(touches, first, second, two_blocks)


def _nearest(
    touches: Sequence[Touch], first: Callable[[Touch], bool], second: Callable[[Touch], bool], two_blocks: bool
) -> tuple[int, ...]:
    """The first and second nearest to each other, of two threads and not both atomic; of one block in one phase, or of two blocks."""
    best: tuple[int, ...] = ()
    latest: dict[tuple, list[int]] = {}  # the last two that can be a first, of different threads (or blocks), of each action

    def one(t: Touch) -> Dim:
        return t.block if two_blocks else t.thread

    for j, b in enumerate(touches):
        room = () if two_blocks else (b.block, b.phase)
        if second(b):
            near = [i for action in VERBS for i in latest.get((room, action), ()) if not action == b.action == "atomic"]
            i = max((i for i in near if one(touches[i]) != one(b)), default=-1)
            if i >= 0 and (not best or j - i < best[1] - best[0]):
                best = i, j
        if first(b):
            alike = latest.setdefault((room, b.action), [])
            alike[:] = [j, *[i for i in alike if one(touches[i]) != one(b)][:1]]
    return best


# ------------------------------------------------------------------------------------------------------------ what is drawn
@dataclass(frozen=True)
class Scene:
    """What is drawn of a finding.

    touches  of the block of the finding, or of all blocks where two of them clash; marked: numbers of those that clash
    rows     who has a row; folded: who shares the last one
    """

    finding: Finding
    touches: tuple[Touch, ...]
    marked: tuple[int, ...]
    steps: tuple[Step, ...]
    gaps: tuple[int, ...]  # before which of `steps` something is left out; len(steps): after the last
    rows: tuple[Who, ...]
    folded: frozenset[Who]

    @property
    def two_blocks(self) -> bool:
        return len({self.touches[i].block for i in self.marked}) > 1

    def name(self, who: Who) -> str:
        return f"block {dim(who[0])} thread {dim(who[1])}" if self.two_blocks else f"thread {dim(who[1])}"


def scene_of(finding: Finding) -> Scene:
    """Of a finding with at least one touch: the steps next to the clash, and the threads that matter there."""
    marked = clash(finding)
    touches = finding.touches
    blocks = {touches[i].block for i in marked or (0,)}
    if len(blocks) == 1:  # what other blocks do in the meantime is another story
        kept = [i for i, t in enumerate(touches) if t.block in blocks]
        marked, touches = tuple(kept.index(i) for i in marked), tuple(touches[i] for i in kept)
    every = list(_steps(touches, len(blocks) == 1))
    clashing = [n for n, step in enumerate(every) if set(step.touches) & set(marked)] or [0]
    order = sorted(range(len(every)), key=lambda n: (n not in clashing, min(abs(n - c) for c in clashing), n))
    shown = sorted(order[:MOST_STEPS])
    gaps = [k for k, n in enumerate(shown) if n != (shown[k - 1] + 1 if k else 0)]
    gaps += [len(shown)] if shown[-1] != len(every) - 1 else []
    steps = tuple(every[n] for n in shown)
    rows, folded = _rows(touches, steps, marked)
    return Scene(finding, touches, marked, steps, tuple(gaps), rows, folded)


def _steps(touches: Sequence[Touch], phases: bool) -> Iterator[Step]:
    members: dict[Who, int] = {}
    now: tuple[int, str, int] | None = None
    for i, t in enumerate(touches):
        before, now = now, (t.phase if phases else 0, t.action, t.line)
        if before is not None and (now != before or who_of(t) in members):
            yield Step(*before, tuple(members.values()))
            members = {}
        members[who_of(t)] = i
    if now is not None:
        yield Step(*now, tuple(members.values()))


def _rows(touches: Sequence[Touch], steps: Sequence[Step], marked: Sequence[int]) -> tuple[tuple[Who, ...], frozenset[Who]]:
    """Who has a row, top to bottom: the two that clash, then by coordinates those that write or come first; and who shares the last."""
    top = list(dict.fromkeys(who_of(touches[i]) for i in marked))
    present = [touches[i] for step in steps for i in step.touches]
    others = dict.fromkeys(who_of(t) for t in sorted(present, key=lambda t: t.action == "read") if who_of(t) not in top)
    room = MOST_ROWS - len(top)
    own = list(others)[: room if len(others) <= room else room - 1]
    down = sorted(own, key=lambda who: (who[0][::-1], who[1][::-1]))
    return (*top, *down), frozenset(set(others) - set(own))


# ------------------------------------------------------------------------------------------------------------------ in words
def title(scene: Scene) -> str:
    """The cell, and whose it is."""
    cell = cell_of(scene.finding)
    if scene.two_blocks:
        return f"{cell}, between blocks"
    where = f"block {dim(scene.touches[0].block)}"
    return f"{cell} in global memory, used by {where}" if scene.finding.space == "global" else f"{cell} of {where}"


def sentence(scene: Scene) -> str:
    """What the picture shows, for those who do not see it and those who are tired."""
    parties = [scene.touches[i] for i in scene.marked]
    names = [scene.name(who_of(t)) for t in parties]
    did = [f"{name} {verb(t.action)} it at line {t.line}" for name, t in zip(names, parties, strict=True)]
    if not parties:
        return f"{len(scene.touches):,} accesses in this run." if len(scene.touches) > 1 else "One access in this run."
    if len(parties) == 1:
        before = scene.touches[: scene.marked[0]]
        unwritten = scene.finding.kind == "uninitialized_read" and all(t.action == "read" for t in before)
        return upper(f"{did[0]}{', and no thread has written it before' if unwritten else ''}.")
    between = _between(scene)
    if scene.finding.kind == "lost_update" and parties[0].line == parties[1].line:
        together = f"{names[0]} and {names[1]} both read it, change it and write it back at line {parties[1].line}"
        return upper(f"{together}; {between}: one of the changes can get lost.")
    same = scene.finding.kind == "same_value_write"
    then = "Both wrote the same value, so no harm was done in this run." if same else "A GPU may do them in the other order."
    return upper(f"{' and '.join(did)}; {between}. {then}")


def _between(scene: Scene) -> str:
    a, b = (scene.touches[i] for i in scene.marked)
    if scene.two_blocks:
        return "no barrier orders two blocks"
    earlier = scene.touches[: scene.marked[0]]
    again = b.line < a.line and any(t.line == b.line and t.action == b.action for t in earlier)
    return f"no barrier lies between, on the way round to line {b.line} again" if again else "no barrier lies between"


def upper(words: str) -> str:
    return words[:1].upper() + words[1:]


def story(scene: Scene) -> str:
    """The steps one by one."""
    said = []
    before: Step | None = None
    for n, step in enumerate(scene.steps):
        if n in scene.gaps:
            said.append("some accesses are left out")
        elif before is not None and before.phase != step.phase:
            said.append("barrier" if step.phase == before.phase + 1 else f"{step.phase - before.phase} barriers")
        phase = "" if scene.two_blocks else f"phase {step.phase}: "
        count = len(step.touches)
        who = scene.name(who_of(scene.touches[step.touches[0]])) if count == 1 else plural(count, "thread")
        said.append(f"{phase}{who} {verb(step.action, count)} it at line {step.line}")
        before = step
    said += ["some accesses are left out"] if len(scene.steps) in scene.gaps else []
    return "; ".join(said) + "."
