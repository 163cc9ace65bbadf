"""The panel of lesson 07: one operation as several launches and as one; bytes saved, time saved, and the gap between the two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from solcourse import units
from solcourse.errors import UnknownName
from solcourse.hardware import DEFAULT_DEVICE
from solcourse.ledger_figures import bytes_of, launches, ledger, saved
from solcourse.panels.parts import LARGEST, SIZE, Control, Panel, device_control, launch, options, room
from solcourse.work import Work, fuse

SCALE, SHIFT, SEED = np.float32(0.5), np.float32(1.0), np.uint32(7)
STEPS = (2, 3, 4, 6, 8, 12, 16)
ROWS = (1, 32, 256, 1024, 4096, 16384)  # M
COLUMNS = (256, 1024, 4096)  # N; no more than layernorm.WIDEST
DEPTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # K
OPENING = {"size": LARGEST, "steps": 4, "depth": 1024, "rows": 4096, "columns": 4096}
ELEMENT_BLOCKS = 128  # sampled: enough rows of them for a bias to be read again
TILE_STEPS, TILE_BLOCKS = 2**12, (2, 64)  # K x sampled tiles, all together; and the fewest and the most tiles


@dataclass(frozen=True)
class Step:
    """One launch. arguments: names of tensors, and numbers; of its blocks, `sampled` are run."""

    kernel: Any
    dims: tuple[Any, Any]
    arguments: tuple[Any, ...]
    work: Work
    sampled: int = ELEMENT_BLOCKS


@dataclass(frozen=True)
class Plan:
    """An operation as launches one after the other, and as one. shapes: of every tensor, the output last."""

    shapes: Mapping[str, tuple[int, ...]]
    apart: tuple[Step, ...]
    fused: Step
    line: str

    @property
    def works(self) -> list[Work]:
        """The ledgers of the launches apart."""
        return [step.work for step in self.apart]


# ------------------------------------------------------------------------------------------------------------------ plans
def chain_plan(settings: Mapping[str, Any], kernel: Any = None) -> Plan:
    """`steps` launches of one step each, against one launch of `steps` steps: the same kernel."""
    from solcourse.kernels import fusion

    n, steps, chosen = settings["size"], settings["steps"], kernel or fusion.chain
    names = ["x", *(f"t{i}" for i in range(1, steps)), "out"]

    def step(source: str, target: str, turns: int) -> Step:
        work = Work.read(source, 4 * n) + Work.write(target, 4 * n) + Work.flop("fp32", 2 * n * turns)
        return Step(chosen, fusion.on_chain(n), (source, SCALE, SHIFT, np.int32(turns), target), work)

    apart = tuple(step(a, b, 1) for a, b in zip(names, names[1:], strict=False))
    return Plan(dict.fromkeys(names, (n,)), apart, step("x", "out", steps), f"{steps} x value = value * scale + shift")


def bias_gelu_plan(settings: Mapping[str, Any], kernel: Any = None) -> Plan:
    from solcourse.kernels import fusion

    m, n = settings["rows"], settings["columns"]
    dims, first, second = fusion.on_matrix(m, n), fusion.bias_work(m, n), fusion.gelu_work(m, n)
    apart = (Step(fusion.add_bias, dims, ("x", "bias", "t"), first), Step(fusion.gelu, dims, ("t", "out"), second))
    shapes = {"x": (m, n), "bias": (n,), "t": (m, n), "out": (m, n)}
    return Plan(shapes, apart, Step(fusion.bias_gelu, dims, ("x", "bias", "out"), fuse(first, second)), "out = gelu(x + bias)")


def matmul_plan(settings: Mapping[str, Any], bias: bool, residual: bool) -> Plan:
    """The product, then bias + GELU, then the residual, as far as asked for, against the product with that epilogue."""
    from solcourse.kernels import fusion

    m, n, k = settings["rows"], settings["columns"], settings["depth"]
    kinds = {(True, False): fusion.matmul_bias_gelu, (False, True): fusion.matmul_residual, (True, True): fusion.matmul_bias_gelu_residual}
    targets = ["C", *(["G"] if bias and residual else []), "out"]
    few, many = TILE_BLOCKS
    tiles = min(max(few, TILE_STEPS // k), many)

    def product(kernel: Any, target: str, work: Work) -> Step:
        return Step(kernel, fusion.on_tiles(m, n, k), ("A", "B", "bias", "residual", target), renamed(work, out=target), tiles)

    apart = [product(fusion.matmul_plain, "C", fusion.matmul_work(m, n, k))]
    dims = fusion.on_matrix(m, n)
    if bias:
        work = renamed(fuse(fusion.bias_work(m, n), fusion.gelu_work(m, n)), x="C", out=targets[1])
        apart.append(Step(fusion.bias_gelu, dims, ("C", "bias", targets[1]), work))
    if residual:
        work = renamed(fusion.add_work(m, n), x=targets[-2])
        apart.append(Step(fusion.add, dims, (targets[-2], "residual", "out"), work))
    fused = product(kinds[bias, residual], "out", fusion.matmul_work(m, n, k, bias, residual))
    shapes = {"A": (m, k), "B": (k, n), "bias": (n,), "residual": (m, n), **dict.fromkeys(targets, (m, n))}
    inside = "gelu(A @ B + bias)" if bias else "A @ B"
    return Plan(shapes, tuple(apart), fused, f"out = {inside}{' + residual' if residual else ''}")


def layernorm_plan(settings: Mapping[str, Any], kernel: Any = None) -> Plan:
    from solcourse.kernels import fusion, layernorm

    m, n = settings["rows"], settings["columns"]
    whole, rows, ledgers = fusion.on_matrix(m, n), layernorm.on_rows(m, n), layernorm.passes(m, n)
    apart = (
        Step(layernorm.dropout, whole, ("x", SEED, "d"), ledgers["dropout"]),
        Step(fusion.add, whole, ("d", "residual", "h"), ledgers["add"]),
        Step(layernorm.row_means, rows, ("h", "mean"), ledgers["row_means"]),
        Step(layernorm.row_scales, rows, ("h", "mean", "scale"), ledgers["row_scales"]),
        Step(layernorm.normalise, whole, ("h", "mean", "scale", "weight", "bias", "out"), ledgers["normalise"]),
    )
    arguments = ("x", SEED, "residual", "weight", "bias", "out")
    fused = Step(layernorm.dropout_residual_layernorm, rows, arguments, layernorm.work(m, n))
    shapes = dict.fromkeys(("x", "d", "residual", "h"), (m, n)) | dict.fromkeys(("mean", "scale"), (m,))
    shapes |= {"weight": (n,), "bias": (n,), "out": (m, n)}
    return Plan(shapes, apart, fused, "out = layernorm(residual + dropout(x))")


def renamed(work: Work, **names: str) -> Work:
    """The ledger with other names for some tensors."""
    from dataclasses import replace

    return Work(tuple(replace(term, name=names.get(term.name, term.name)) for term in work.terms), work.flops)


PLANS: dict[str, tuple[str, Callable[..., Plan]]] = {
    "chain": ("element-wise chain", chain_plan),
    "bias_gelu": ("bias, GELU", bias_gelu_plan),
    "matmul_bias_gelu": ("matmul, bias + GELU", lambda settings, kernel: matmul_plan(settings, True, False)),
    "matmul_residual": ("matmul, + residual (o_proj)", lambda settings, kernel: matmul_plan(settings, False, True)),
    "matmul_all": ("matmul, bias + GELU, + residual", lambda settings, kernel: matmul_plan(settings, True, True)),
    "layernorm": ("dropout, + residual, LayerNorm", layernorm_plan),
}


# -------------------------------------------------------------------------------------------------------------- predictions
def placed(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Every tensor a piece of its own of the room that all launches share."""
    ends = np.cumsum([prod(shape) for shape in shapes.values()])
    whole = room("float32", "src", int(ends[-1]))
    return {name: whole[end - prod(shape) : end].reshape(shape) for (name, shape), end in zip(shapes.items(), ends, strict=True)}


@lru_cache(maxsize=24)  # a trace holds megabytes
def sampled(kernel: Any, dims: tuple[Any, Any], arguments: tuple[Any, ...], blocks: int) -> Any:
    """The run of one launch, which no device changes. arguments: ("array", shape) or numbers; launches that share all this share it."""
    from solcourse import verbs

    shapes = {str(i): a[1] for i, a in enumerate(arguments) if isinstance(a, tuple)}
    arrays = placed(shapes)
    made = tuple(arrays[str(i)] if isinstance(a, tuple) else a for i, a in enumerate(arguments))
    return verbs.profile(launch(kernel, *dims), *made, sample_blocks=blocks).run


def reports(plan: Plan, steps: Sequence[Step], device: str) -> list[Any]:
    """The predicted launches one after the other: the first finds an empty L2, each other what those before it have left there."""
    from solcourse.hardware import device as find_device
    from solcourse.report import predicted
    from solcourse.residency import L2Contents, Touched

    gpu = find_device(device)
    l2, found = L2Contents(gpu.l2_bytes), []
    for step in steps:
        arguments = tuple(("array", plan.shapes[a]) if isinstance(a, str) else a for a in step.arguments)
        run = sampled(step.kernel, step.dims, arguments, step.sampled)
        ways = {(term.name, term.direction) for term in step.work.terms}
        now = {
            hash(term.name): Touched(float(term.bytes), (term.name, "read") in ways, (term.name, "write") in ways)
            for term in step.work.terms
        }
        state = l2.launch(now)
        found.append(predicted(run, gpu, work=step.work, cache=state if state.read or state.rewritten else "cold"))
    return found


@dataclass(frozen=True)
class Both:
    """One operation on one device, both ways: the Reports of its launches apart, in order, and of the one fused launch."""

    plan: Plan
    apart: tuple[Any, ...]
    fused: Any

    @property
    def apart_s(self) -> float:
        """Predicted seconds of the launches apart, one after the other."""
        return sum(report.time_s for report in self.apart)

    @property
    def bytes_saved(self) -> float:
        """Share of the compulsory bytes, 0..1."""
        return saved(bytes_of(self.plan.works), self.plan.fused.work.compulsory_bytes)

    @property
    def time_saved(self) -> float:
        """Share of the predicted time, 0..1; negative where the fused launch takes longer."""
        return saved(self.apart_s, self.fused.time_s)


def both(operation: str, device: str = DEFAULT_DEVICE, kernel: Any = None, **sizes: int) -> Both:
    """An operation of PLANS both ways, at `sizes` or what the panel opens with: size, steps, depth, rows, columns. Raises UnknownName."""
    if operation not in PLANS:
        raise UnknownName("operation", operation, PLANS)
    for name in sizes:
        if name not in OPENING:
            raise UnknownName("size", name, OPENING)
    return _both(operation, device, kernel, tuple(sorted({**OPENING, **sizes}.items())))


@lru_cache(maxsize=16)
def _both(operation: str, device: str, kernel: Any, sizes: tuple[tuple[str, int], ...]) -> Both:
    plan = PLANS[operation][1](dict(sizes), kernel)
    return Both(plan, tuple(reports(plan, plan.apart, device)), reports(plan, [plan.fused], device)[0])


def fusion(kernel: Any = None) -> Panel:
    """The panel of lesson 07: an operation, its sizes, a device; apart and fused.

    kernel   a numba.cuda kernel of (x, scale, shift, steps, out) with float32 arrays; takes the place of the element-wise chain
    """
    operations, opening = options(tuple(PLANS), lambda name: PLANS[name][0]), OPENING
    controls = (
        Control("operation", "operation", operations, "chain", note="a comma is the end of a launch"),
        Control("steps", "steps", options(STEPS), opening["steps"], slider=True, note="of the element-wise chain"),
        SIZE,
        Control("depth", "K", options(DEPTHS), opening["depth"], slider=True, note="of the matmul: multiply-adds for each result"),
        Control("rows", "M", options(ROWS), opening["rows"], note="rows, of everything but the chain"),
        Control("columns", "N", options(COLUMNS), opening["columns"], note="columns"),
        device_control(),
    )

    def answer(settings: Mapping[str, Any]) -> Both:
        sizes = {name: value for name, value in settings.items() if name in OPENING}
        return both(settings["operation"], settings["device"], kernel, **sizes)

    def pictures(settings: Mapping[str, Any], report: Any) -> dict[str, str]:
        now = answer(settings)
        works, work = now.plan.works, now.plan.fused.work
        return {
            "ledger": ledger({"apart": works, "fused": work}, settings["device"]),
            "launches": launches(now.apart, now.fused, works, work),
        }

    def line(settings: Mapping[str, Any]) -> str:
        plan = PLANS[settings["operation"]][1](settings, kernel)
        return f"{plan.line}    # {len(plan.apart)} launches, or 1"

    def label(settings: Mapping[str, Any]) -> str:
        operation = settings["operation"]
        if operation == "chain":
            return f"chain of {settings['steps']}"
        shape = f"{settings['rows']} x {settings['columns']}"
        return f"K {settings['depth']}, {operation[7:]}" if operation.startswith("matmul") else f"{operation} {shape}"

    return Panel(
        "fusion", "Fusion: bytes saved, time saved", controls, lambda settings: answer(settings).fused, line, label, pictures,
        lambda settings, report: in_words(answer(settings)), idle=idle, right=("bounds", "roofline"),
    )  # fmt: skip


def idle(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The sizes that an operation does not have."""
    if settings["operation"] == "chain":
        return "depth", "rows", "columns"
    return ("steps", "size") if settings["operation"].startswith("matmul") else ("steps", "size", "depth")


def in_words(now: Both) -> str:
    """What is saved, of bytes and of time; and whether a launch found in L2 what the one before it had left there."""
    start = sum(report.bounds["launch"] for report in now.apart)
    said = (
        f"Apart: {len(now.apart)} launches, {units.seconds(now.apart_s)}, of which {units.seconds(start)} start-up. "
        f"Fused: {units.seconds(now.fused.time_s)}. Saved: {units.percent(now.bytes_saved)} of the bytes, "
        f"{units.percent(now.time_saved)} of the time."
    )
    warm = sum(report.cache != "cold" for report in now.apart)
    return f"{said} {warm} of the launches apart find data of the one before in L2." if warm else said
