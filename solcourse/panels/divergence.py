"""The panel of lesson 05: who works in which step of a reduction. A strip of lanes, drawn only where the engine's counts agree with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat
from typing import Any

from solcourse.access_maps import necessary_wavefronts, wavefronts
from solcourse.errors import UnknownName
from solcourse.lane_figures import FULL, WARP, Step, averages
from solcourse.lane_figures import steps as strip
from solcourse.panels.parts import BLOCK, SIZE, Control, Panel, device_control, predict, room, with_globals
from solcourse.simt.records import Counts, LineCounts

SAMPLE_THREADS = 2**12
MOST_THREADS = 864 * 256  # of the grid-stride launch: 8 blocks of 256 for each SM of an A100
Made = tuple[int, list[int], list[list[int]]]  # (step, threads at work, the words that each of their accesses touches, thread by thread)
Tree = Callable[[int], Iterator[Made]]  # threads of a block -> the steps


# --------------------------------------------------------------------------------------------------- who works, by the source
def interleaved(threads: int) -> Iterator[Made]:
    step = 1
    while step < threads:
        working = [t for t in range(threads) if t % (2 * step) == 0]
        yield step, working, [working, [t + step for t in working], working]
        step *= 2


def strided(threads: int) -> Iterator[Made]:
    step = 1
    while step < threads:
        working = [t for t in range(threads) if 2 * step * t < threads]
        at = [2 * step * t for t in working]
        yield step, working, [at, [word + step for word in at], at]
        step *= 2


def sequential(threads: int, down_to: int = 1) -> Iterator[Made]:
    step = threads // 2
    while step >= down_to:
        working = list(range(step))
        yield step, working, [working, [t + step for t in working], working]
        step //= 2


def above_the_last_warp(threads: int) -> Iterator[Made]:
    return sequential(threads, WARP)


def masks(working: Sequence[int], warps: int) -> tuple[int, ...]:
    """Threads of a block -> the mask of lanes of each warp.

    >>> masks([0, 2, 33], 2)
    (5, 2)
    """
    found = [0] * warps
    for t in working:
        found[t // WARP] |= 1 << t % WARP
    return tuple(found)


def in_warps(working: Sequence[int], words: Sequence[int]) -> Iterator[list[int]]:
    """The byte addresses of one access, warp by warp."""
    by_warp: dict[int, list[int]] = {}
    for t, word in zip(working, words, strict=True):
        by_warp.setdefault(t // WARP, []).append(4 * word)
    yield from by_warp.values()


@lru_cache(maxsize=64)
def tree_steps(tree: Tree, threads: int) -> tuple[Step, ...]:
    """The steps of a tree in shared memory, one `cache[a] += cache[b]` each."""
    found = []
    for step, working, accesses in tree(threads):
        asked = [addresses for words in accesses for addresses in in_warps(working, words)]
        passes = sum(wavefronts(addresses, 4) for addresses in asked)
        needed = sum(necessary_wavefronts(addresses, 4) for addresses in asked)
        found.append(Step(f"step {step}", masks(working, threads // WARP), None, passes, passes - needed))
    return tuple(found)


def shuffle_steps(threads: int, warps: int, name: str) -> tuple[Step, ...]:
    """The five steps of shuffles in the first `warps` warps of a block: every lane adds, the lower `step` lanes matter."""
    found = []
    for step in (16, 8, 4, 2, 1):
        active = [FULL if warp < warps else 0 for warp in range(threads // WARP)]
        found.append(Step(f"{name} {step}", tuple(active), tuple(mask & ((1 << step) - 1) for mask in active)))
    return tuple(found)


# ------------------------------------------------------------------------------------------------------------------ variants
@dataclass(frozen=True)
class Variant:
    """One step of the ladder. per_thread: elements; tree: its loop in shared memory; shuffles: "all" warps and then one, or the "last"."""

    name: str
    label: str
    per_thread: int = 1
    tree: Tree | None = None
    shuffles: str = ""


VARIANTS = (
    Variant("interleaved", "1 neighbours", 1, interleaved),
    Variant("strided", "2 strided", 1, strided),
    Variant("sequential", "3 upper half to lower", 1, sequential),
    Variant("first_add", "4 two elements a thread", 2, sequential),
    Variant("last_warp", "5 last warp by shuffles", 2, above_the_last_warp, "last"),
    Variant("shuffle", "6 shuffles in every warp", 2, None, "all"),
    Variant("grid_stride", "7 grid stride, one atomic", 0, None, "all"),
)
YOURS = Variant("yours", "your kernel")


def variant_of(settings: Mapping[str, Any]) -> Variant:
    """The Variant that the settings name. Raises UnknownName."""
    for variant in (*VARIANTS, YOURS):
        if variant.name == settings["variant"]:
            return variant
    raise UnknownName("variant", settings["variant"], [variant.name for variant in VARIANTS])


@lru_cache(maxsize=64)
def at_block_size(kernel: Any, threads: int) -> Any:
    """The kernel for blocks of so many threads: numba takes the globals THREADS and WARPS for constants, so it is compiled anew.

    A kernel that names neither is left as it is.
    """
    function, constants = kernel.py_func, {"THREADS": threads, "WARPS": threads // WARP}
    known = {name: function.__globals__.get(name) for name in constants if name in function.__code__.co_names}
    if all(value in (None, constants[name]) for name, value in known.items()):
        return kernel
    return with_globals(kernel, **constants)


def kernel_of(variant: Variant, threads: int, yours: Any) -> Any:
    from solcourse.kernels import reduction

    return at_block_size(yours if variant is YOURS else getattr(reduction, f"reduce_{variant.name}"), threads)


# -------------------------------------------------------------------------------------------------- what the counts agree with
def tree_agrees(steps: Sequence[Step], counts: Counts, blocks: int) -> bool:
    """Whether a line made exactly the accesses of these steps in each block: lanes, warps, and passes beyond the necessary."""
    lanes, warps = sum(step.lanes for step in steps), sum(step.warps for step in steps)
    conflicts = counts.shared_load.bank_conflicts + counts.shared_store.bank_conflicts
    made = (counts.shared_store.bytes, counts.shared_load.bytes, counts.shared_store.requests, counts.shared_load.requests, conflicts)
    meant = (4 * lanes, 8 * lanes, warps, 2 * warps, sum(step.conflicts for step in steps))
    return lanes > 0 and made == tuple(blocks * n for n in meant)


def shuffles_agree(steps: Sequence[Step], counts: Counts, blocks: int) -> bool:
    """Whether a line shuffled and added as these steps do. What the last step adds is for lane 0, and compilers leave it to that lane."""
    warps, full = sum(step.warps for step in steps), sum(step.lanes for step in steps)
    least = full - (WARP - 1) * steps[-1].warps
    return counts.pipes["lsu"] == blocks * warps and blocks * least <= counts.flops["fp32"] <= blocks * full


def busiest(lines: Sequence[LineCounts]) -> Counts:
    """Of the line that reads and writes shared memory most often."""
    both = [line.counts for line in lines if line.counts.shared_store.requests and line.counts.shared_load.requests]
    return max(both, key=lambda counts: counts.shared_store.requests, default=Counts())


def tree_made(trees: Iterable[Tree], threads: int, report: Any) -> tuple[Step, ...] | None:
    """The steps of the first of these trees that the counts agree with."""
    counts, blocks = busiest(report.lines), report.run.blocks
    every = (tree_steps(tree, threads) for tree in trees)
    return next((steps for steps in every if not steps or tree_agrees(steps, counts, blocks)), None)


def shuffles_made(variant: Variant, threads: int, report: Any) -> tuple[Step, ...] | None:
    """The steps of a variant's shuffles, one source line for each kind of them."""
    last = shuffle_steps(threads, 1, "again" if variant.shuffles == "all" else "shuffle")
    meant = (shuffle_steps(threads, threads // WARP, "shuffle"), last) if variant.shuffles == "all" else (last,)
    found = [line.counts for line in report.lines if "shfl" in line.text]
    agreed = len(found) == len(meant) and all(map(shuffles_agree, meant, found, repeat(report.run.blocks)))
    return tuple(step for steps in meant for step in steps) if agreed else None


def steps_made(variant: Variant, threads: int, report: Any) -> tuple[Step, ...] | None:
    """The steps of a launch, where the counts of its lines agree with them; else None. A learner's kernel may be any of the trees."""
    if variant is YOURS:
        return tree_made((interleaved, strided, sequential), threads, report)
    tree = tree_made((variant.tree,), threads, report) if variant.tree else ()
    shuffles = shuffles_made(variant, threads, report) if variant.shuffles else ()
    return None if tree is None or shuffles is None else (*tree, *shuffles)


# --------------------------------------------------------------------------------------------------------------------- panel
def adding_line(kernel: Any) -> str:
    """The lines of a kernel that add inside its loop: `if ...:` and the first `+=` under it; its name where there is no source."""
    name = str(kernel.py_func.__name__)
    try:
        lines = [line.strip() for line in inspect.getsource(kernel.py_func).splitlines()]
    except (OSError, TypeError):
        return name
    for n, line in enumerate(lines):
        if "cache[" in line.partition("+=")[2] or "shfl" in line:
            return f"{lines[n - 1]} {line}" if lines[n - 1].startswith("if ") else line
    return name


def divergence(kernel: Any = None) -> Panel:
    """The panel of lesson 05: the seven steps of the reduction, in blocks of any size.

    kernel   a numba.cuda kernel of (x, partial): block b leaves the sum of its THREADS elements in partial[b]; offered as "your kernel"
    """
    variants = VARIANTS if kernel is None else (YOURS, *VARIANTS)
    names = tuple((variant.label, variant.name) for variant in variants)
    controls = (
        Control("variant", "step", names, variants[0].name, note="which kernel of the ladder sums"),
        BLOCK,
        replace(SIZE, note="elements to sum"),
        device_control(),
    )

    def profile(settings: Mapping[str, Any]) -> Any:
        from solcourse.kernels import reduction

        variant, n, threads = variant_of(settings), settings["size"], settings["block"]
        grid = -(-n // (threads * (variant.per_thread or reduction.PER_THREAD)))
        if not variant.per_thread:
            grid = min(grid, MOST_THREADS // threads)
        x, out = room("float32", "src", n), room("float32", "dst", grid if variant.per_thread else 1)
        chosen = kernel_of(variant, threads, kernel)
        return predict(chosen, grid, threads, (x, out), device=settings["device"], work=reduction.work(n), sample_threads=SAMPLE_THREADS)

    def line(settings: Mapping[str, Any]) -> str:
        return adding_line(kernel_of(variant_of(settings), settings["block"], kernel))

    def pictures(settings: Mapping[str, Any], report: Any) -> dict[str, str]:
        steps = steps_made(variant_of(settings), settings["block"], report)
        if not steps:
            return {"lanes": averages(report.lines)}
        return {"lanes": strip(steps, f"Who works in which step: a block of {settings['block']} threads")}

    def label(settings: Mapping[str, Any]) -> str:
        return f"{variant_of(settings).label}, block {settings['block']}"

    title = "Divergence: who works in which step of a sum"
    return Panel("divergence", title, controls, profile, line, label, pictures, lanes_in_words)


def lanes_in_words(settings: Mapping[str, Any], report: Any) -> str:
    """Active lanes, divergent branches, bank conflicts and barriers of a block."""
    counts, blocks, warps = report.counts, report.run.blocks, report.run.warps_per_block
    conflicts = counts.shared_load.bank_conflicts + counts.shared_store.bank_conflicts
    passes = counts.shared_load.wavefronts + counts.shared_store.wavefronts
    return (
        f"On average {counts.average_active_lanes:.1f} of 32 lanes are active in an instruction. A block has "
        f"{counts.divergent_branches / blocks:.3g} divergent branches, {passes / blocks:.3g} passes through shared memory, "
        f"{conflicts / blocks:.3g} of them bank conflicts, and each warp waits at {counts.barriers / blocks / warps:.3g} barriers."
    )
