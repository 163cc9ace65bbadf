"""The panel of lesson 07: one operation as several launches and as one; bytes saved, time saved, and the gap between the two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from solcourse import units
from solcourse.ledger_figures import bytes_of, launches, ledger, saved
from solcourse.panels.parts import SIZE, Control, Panel, device_control, options, predict, room
from solcourse.work import Work, fuse

SCALE, SHIFT, SEED = np.float32(0.5), np.float32(1.0), np.uint32(7)
STEPS = (2, 3, 4, 6, 8, 12, 16)
ROWS = (1, 32, 256, 1024, 4096, 16384)  # M
COLUMNS = (256, 1024, 4096)  # N; no more than layernorm.WIDEST
DEPTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # K
ELEMENT_THREADS = 2**15  # sampled: enough rows of blocks for a bias to be read again
TILE_STEPS = 2**12  # steps of K that a sample of tiles takes together: a deep product from fewer blocks


@dataclass(frozen=True)
class Step:
    """One launch. arguments: names of tensors, and numbers; sample_threads: of its blocks, about so many threads are run."""

    kernel: Any
    dims: tuple[Any, Any]
    arguments: tuple[Any, ...]
    work: Work
    sample_threads: int = ELEMENT_THREADS


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
        return Step(chosen, fusion.on_chain(n), (source, SCALE, SHIFT, turns, target), work)

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
    tile = max(1, TILE_STEPS // k) * fusion.TILE_THREADS

    def product(kernel: Any, target: str, work: Work) -> Step:
        return Step(kernel, fusion.on_tiles(m, n, k), ("A", "B", "bias", "residual", target), renamed(work, out=target), tile)

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


@lru_cache(maxsize=48)
def sampled(kernel: Any, dims: tuple[Any, Any], arguments: tuple[Any, ...], sample_threads: int) -> Any:
    """The run of one launch, which no device changes. arguments: ("array", shape) or numbers; launches that share all this share it."""
    shapes = {str(i): a[1] for i, a in enumerate(arguments) if isinstance(a, tuple)}
    arrays = placed(shapes)
    made = tuple(arrays[str(i)] if isinstance(a, tuple) else a for i, a in enumerate(arguments))
    return predict(kernel, *dims, made, device=device_control().value, sample_threads=sample_threads).run


def reports(plan: Plan, steps: Sequence[Step], device: str) -> list[Any]:
    """The predicted launches one after the other: the first finds an empty L2, each other what those before it have left there."""
    from solcourse.hardware import device as find_device
    from solcourse.report import predicted
    from solcourse.residency import L2Contents, Touched

    gpu = find_device(device)
    l2, found = L2Contents(gpu.l2_bytes), []
    for step in steps:
        arguments = tuple(("array", plan.shapes[a]) if isinstance(a, str) else a for a in step.arguments)
        run = sampled(step.kernel, step.dims, arguments, step.sample_threads)
        ways = {(term.name, term.direction) for term in step.work.terms}
        now = {
            hash(term.name): Touched(float(term.bytes), (term.name, "read") in ways, (term.name, "write") in ways)
            for term in step.work.terms
        }
        state = l2.launch(now)
        found.append(predicted(run, gpu, work=step.work, cache=state if state.read or state.rewritten else "cold"))
    return found


def fusion(kernel: Any = None) -> Panel:
    """The panel of lesson 07: an operation, its sizes, a device; apart and fused.

    kernel   a numba.cuda kernel of (x, scale, shift, steps, out) with float32 arrays; takes the place of the element-wise chain
    """
    controls = (
        Control("operation", "operation", options(tuple(PLANS), lambda name: PLANS[name][0]), "chain", note="a comma is the end of a launch"),
        Control("steps", "steps", options(STEPS), 4, slider=True, note="of the element-wise chain"),
        SIZE,
        Control("depth", "K", options(DEPTHS), 1024, slider=True, note="of the matmul: multiply-adds for each element of its result"),
        Control("rows", "M", options(ROWS), 4096, note="rows, of everything but the chain"),
        Control("columns", "N", options(COLUMNS), 4096, note="columns"),
        device_control(),
    )

    def plan_of(settings: Mapping[str, Any]) -> Plan:
        return PLANS[settings["operation"]][1](settings, kernel)

    @cache
    def answered(settings: tuple[tuple[str, Any], ...]) -> tuple[Plan, list[Any], Any]:
        plan, device = plan_of(dict(settings)), dict(settings)["device"]
        return plan, reports(plan, plan.apart, device), reports(plan, [plan.fused], device)[0]

    def answer(settings: Mapping[str, Any]) -> tuple[Plan, list[Any], Any]:
        return answered(tuple(sorted(settings.items())))

    def pictures(settings: Mapping[str, Any], report: Any) -> dict[str, str]:
        plan, apart, fused = answer(settings)
        return {
            "ledger": ledger({"apart": plan.works, "fused": plan.fused.work}, settings["device"]),
            "launches": launches(apart, fused, plan.works, plan.fused.work),
        }

    def words(settings: Mapping[str, Any], report: Any) -> str:
        plan, apart, fused = answer(settings)
        return in_words(plan, apart, fused)

    def line(settings: Mapping[str, Any]) -> str:
        plan = plan_of(settings)
        return f"{plan.line}    # {len(plan.apart)} launches, or 1"

    def label(settings: Mapping[str, Any]) -> str:
        sizes = {"chain": f"{settings['steps']} steps"}
        shape = f"{settings['rows']} x {settings['columns']}"
        deep = f" x {settings['depth']}" if settings["operation"].startswith("matmul") else ""
        return f"{settings['operation']} {sizes.get(settings['operation'], shape + deep)}"

    title = "Fusion: bytes saved, time saved"
    return Panel("fusion", title, controls, lambda settings: answer(settings)[2], line, label, pictures, words)


def in_words(plan: Plan, apart: Sequence[Any], fused: Any) -> str:
    """What is saved, of bytes and of time, and where they differ for a reason that no ledger shows."""
    whole = sum(report.time_s for report in apart)
    start = sum(report.bounds["launch"] for report in apart)
    share = saved(bytes_of(plan.works), bytes_of(plan.fused.work))
    said = (
        f"Apart: {len(apart)} launches, {units.seconds(whole)}, of which {units.seconds(start)} start-up. "
        f"Fused: {units.seconds(fused.time_s)}. Saved: {units.percent(share)} of the bytes, "
        f"{units.percent(saved(whole, fused.time_s))} of the time."
    )
    warm = sum(report.cache != "cold" for report in apart)
    return f"{said} {warm} of the launches apart find data of the one before in L2." if warm else said
