"""run, profile, sanitize, measure, compare, use_engine: what one does with a launch. Each takes numba's own `kernel[grid, block]`.

    run       execute on the engine: arrays are written, as on the GPU
    profile   execute, count, and predict the time on a device -> Report
    sanitize  execute on copies and look for faults -> list[Finding]
    measure   time on a real GPU -> Report
    compare   time two launches in turn on a real GPU -> Comparison
    use_engine  send every launch of a script, and numba.cuda's host calls, to the engine

An eager signature, `@cuda.jit("void(float32[:])")`, is compiled by numba at decoration, which needs a GPU's driver before
solcourse is ever asked: call `use_engine()` first, or drop the signature.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

from solcourse.errors import LaunchError, SolcourseError, UnsupportedKernel, WorkError
from solcourse.hardware import DEFAULT_DEVICE, Device
from solcourse.hardware import device as find_device
from solcourse.simt.records import Finding

if TYPE_CHECKING:
    from solcourse.comparison import Comparison
    from solcourse.findings import Findings
    from solcourse.launches import Launches
    from solcourse.report import Report
    from solcourse.sanitized import Sanitized
    from solcourse.simt.arguments import BoundArguments
    from solcourse.simt.compiler import Compiled
    from solcourse.simt.frontend import KernelIR, LaunchSpec
    from solcourse.simt.records import EngineRun, Residency
    from solcourse.standin import Engine
    from solcourse.work import Work

KIB = 1024
MOST_PICTURE_BYTES = 1 << 28  # of arrays that are copied for a second look
CACHES = ("cold", "warm")


def run(launch: Any, *args: Any) -> None:
    """Execute `kernel[grid, block]` on the engine. Arrays are written as on a GPU; nothing is counted.

    Raises KernelTypeError, UnsupportedKernel, LaunchError (nothing ran); OutOfBounds, BarrierError, RunawayKernel.
    """
    from solcourse.simt import frontend

    _run(frontend.launch_of(launch), args)


def profile(
    launch: Any,
    *args: Any,
    device: str | Device = DEFAULT_DEVICE,
    work: Work | None = None,
    cache: str = "cold",
    sample_blocks: int | None = None,
    registers: int | None = None,
    baseline_s: float | None = None,
) -> Report:
    """Execute on the engine with every counter on, and predict the time on `device`. Arrays are written as on a GPU.

    work           the ledger behind T_SOL; None: what the engine saw
    cache          "cold" empties L2 first, as ncu does; "warm" keeps what the last launch left
    sample_blocks  run about so many blocks only and scale the counts: outputs are incomplete then
    registers      per thread, where you know better than the estimate
    baseline_s     a time on the same device, for anchored_score
    Raises what `run` raises; UnknownName (device); WorkError (work); LaunchError where the block does not fit the device.
    """
    from solcourse import report
    from solcourse.simt import frontend

    gpu = find_device(device)
    _check_cache(cache)
    _check_work(work)
    _check_sample(sample_blocks)
    result = _run(frontend.launch_of(launch), args, gpu=gpu, counters=True, sample_blocks=sample_blocks, registers=registers)
    return report.predicted(result, gpu, work=work, cache=cache, registers=registers, baseline_s=baseline_s)


def sanitize(launch: Any, *args: Any, sample_blocks: int | None = None) -> Findings:
    """Execute on copies of the arrays with every check on, and return what is wrong with the launch: a list, empty means clean.

    memcheck (accesses out of bounds, indices that wrap or overflow), racecheck (threads that get in each other's way, whether or not it
    showed in this run), initcheck (shared and device memory read before it was written), synccheck (barriers that not all threads reach,
    lanes that do not take part). `print` it, or let a notebook show it: each finding says what, where, who, and what to do.
    sample_blocks: check about so many blocks from the middle of the grid only
    Raises KernelTypeError, UnsupportedKernel, LaunchError (nothing ran; also where the launch is too large to be checked as a whole).
    """
    from solcourse.findings import Findings
    from solcourse.simt import arguments, engine, frontend

    _check_sample(sample_blocks)
    spec = frontend.launch_of(launch)
    kernel, bound = _prepare(spec, args, private=True)
    found = engine.sanitize(
        kernel, bound, spec.grid, spec.block, spec.dynamic_shared_bytes, function=spec.dispatcher.py_func, sample_blocks=sample_blocks,
        residency=_residency(spec), again=lambda: arguments.bind(kernel, args, private=True),
    )  # fmt: skip
    grid, block = (_dimensions(d) for d in (spec.grid, spec.block))
    sampled = f"about {sample_blocks:,} of {spec.blocks:,} blocks" if sample_blocks is not None and sample_blocks < spec.blocks else ""
    return Findings([*found, *_launch_findings(spec, kernel)], launch=f"{kernel.name}[{grid}, {block}]", sampled=sampled)


def measure(
    launch: Any,
    *args: Any,
    work: Work | None = None,
    device: str | Device | None = None,
    cache: str = "cold",
    repeats: int = 50,
    warm_ups: int = 10,
    baseline_s: float | None = None,
    profile: bool = False,
    sample_blocks: int | None = None,
    timer: str | None = None,
) -> Report:
    """Time on a real GPU: the median of `repeats` launches and its 95 % confidence interval. Arrays: as after one launch.

    What the timed launches leave in the arrays is compared with an earlier launch's result, on fresh inputs and poisoned outputs.
    work     the ledger behind T_SOL; without it, and without `profile`, there is no score
    device   whose figures to score against: for a GPU without published ones here, or sol.calibrate(); None: the GPU's own
    cache    "cold" empties L2 before each launch and takes copies of the arrays in turn; "warm" leaves what the last launch left
    profile  also run it on the engine, on copies: the report then holds counts, and the model's bounds and prediction beside the
             measured time. sample_blocks: on about so many blocks only
    timer    "cupti" or "events"; None: CUPTI where cupti-python works, else CUDA events. The report says which
    Raises NoGPU, which says why there is none and what to do; UnknownName for a GPU without figures; TimerFailed for a timer that
    does not work here; with `profile`, what `run` raises.
    """
    calls = [_call(launch, args)]
    options = _measuring(work, cache, repeats, warm_ups, timer, profile, sample_blocks)
    from solcourse import measuring

    return measuring.measure(calls, device=device, baseline_s=baseline_s, **options)[0][0]


def compare(
    a: tuple,
    b: tuple,
    *,
    work: Work | None = None,
    device: str | Device | None = None,
    cache: str = "cold",
    repeats: int = 50,
    warm_ups: int = 10,
    profile: bool = False,
    sample_blocks: int | None = None,
    timer: str | None = None,
) -> Comparison:
    """Time two launches against each other on a real GPU, in turn: A B A B ... Each is (kernel[grid, block], *arguments).

    Returns both Reports and how many times as fast B is, with the 95 % confidence interval of that ratio. Options and errors as of
    `measure`; work: of the operation that both do.

    >>> print(sol.compare((naive[grid, block], x, y), (tiled[grid, block], x, y)))            # doctest: +SKIP
    """
    for side in (a, b):
        if not isinstance(side, tuple) or not side:
            raise LaunchError(f"compare takes two tuples, (kernel[grid, block], *arguments) each; got a {type(side).__name__}.")
    calls = [_call(side[0], side[1:]) for side in (a, b)]
    options = _measuring(work, cache, repeats, warm_ups, timer, profile, sample_blocks)
    from solcourse import measuring

    return measuring.compare(calls, device=device, **options)


def use_engine(device: str | Device = DEFAULT_DEVICE, *, profile: bool = False, sanitize: bool = False) -> Engine:
    """From now on numba.cuda works on the engine: launches, eager signatures, cuda.to_device, streams, events, all of it.

    A function, and a context manager that gives numba.cuda back at the end; `.close()` does the same. Counts and results do not
    depend on `device`, only what cuda.get_current_device() says, how much shared memory a block may have, and predicted times.
    profile:  every launch is recorded in `.launches`, which prints one report per kernel: `solcourse run --profile` for a notebook.
    sanitize: every launch is sanitized on the program's own arrays, and `.findings` says what was found in all of them. What a kernel
              does wrong raises no error then: the program goes on with the arrays as far as they came.
    Raises UnknownName; SolcourseError under the simulator, and for both at once.

    >>> with use_engine("T4", profile=True) as engine:                        # doctest: +SKIP
    ...     kernel[128, 256](cuda.to_device(x))
    >>> print(engine.launches)                                                # doctest: +SKIP
    """
    from solcourse.launches import Launches
    from solcourse.standin import Engine

    gpu = find_device(device)
    if profile and sanitize:
        raise SolcourseError("profile and sanitize run a launch each in its own way: one at a time, in two runs.")
    launches = Launches(gpu, recording=profile)
    if not sanitize:
        return Engine(partial(_launch, launches), launches)
    from solcourse.sanitized import Sanitized

    sanitized = Sanitized(gpu)
    return Engine(partial(_sanitized_launch, sanitized), launches, sanitized)


# ------------------------------------------------------------------------------------------------------------------- parts


def _prepare(spec: LaunchSpec, args: tuple, *, private: bool = False) -> tuple[KernelIR, BoundArguments]:
    """Compile for these arguments and flatten them. Nothing runs, and no array is touched."""
    from solcourse.simt import arguments, frontend

    kernel = frontend.compile_kernel(spec.dispatcher, frontend.argument_types(spec.dispatcher, args))
    return kernel, arguments.bind(kernel, args, private=private)


def _run(spec: LaunchSpec, args: tuple, *, gpu: Device | None = None, **options: Any) -> EngineRun:
    kernel, bound = _prepare(spec, args)
    if gpu is not None:
        _check_device(kernel, spec, gpu)
    return _execute(kernel, bound, spec, gpu, **options)


def _execute(
    kernel: KernelIR,
    bound: BoundArguments,
    spec: LaunchSpec,
    gpu: Device | None = None,
    *,
    counters: bool = False,
    sample_blocks: int | None = None,
    registers: int | None = None,
) -> EngineRun:
    from solcourse.simt import engine

    bound.assume_written()
    result = engine.execute(
        kernel,
        bound,
        spec.grid,
        spec.block,
        spec.dynamic_shared_bytes,
        counters=counters,
        sample_blocks=sample_blocks,
        residency=_residency(spec, gpu, registers),
    )
    bound.write_back()
    return result


def _residency(spec: LaunchSpec, gpu: Device | None = None, registers: int | None = None) -> Callable[[Compiled], Residency]:
    """What the engine asks where blocks wait for each other: how many of them `gpu`, else use_engine's device, holds at once."""

    def answer(compiled: Compiled) -> Residency:
        from solcourse import standin
        from solcourse.registers import residency

        device = gpu or (standin.current_device().figures if standin.is_active() else find_device(DEFAULT_DEVICE))
        shared = compiled.program.static_shared_bytes + spec.dynamic_shared_bytes
        return residency(compiled, device, math.prod(spec.block), shared, registers)

    return answer


def _launch(launches: Launches, spec: LaunchSpec, args: tuple) -> None:
    """A launch of a program under use_engine()."""
    from solcourse.launches import Shape

    kernel, bound = _prepare(spec, args)
    _check_device(kernel, spec, launches.device)
    if not launches.recording:
        _execute(kernel, bound, spec, launches.device)
        return
    shape = Shape.of(kernel, spec, args)
    counters = launches.wants(kernel, shape)
    result = _execute(kernel, bound, spec, launches.device, counters=counters)
    launches.add(kernel, shape, result if counters else None, bound.allocations)


def _sanitized_launch(sanitized: Sanitized, spec: LaunchSpec, args: tuple) -> None:
    """The same under use_engine(sanitize=True). A kernel's first launch finds out who touched what, too, on copies of the arrays."""
    from solcourse.simt import arguments, engine

    kernel, bound = _prepare(spec, args)
    _check_device(kernel, spec, sanitized.device)
    picture = sanitized.is_new(kernel) and sum(a.nbytes for a in bound.allocations) <= MOST_PICTURE_BYTES
    before = arguments.bind(kernel, args, private=True) if picture else None
    try:
        found = engine.sanitize(
            kernel, bound, spec.grid, spec.block, spec.dynamic_shared_bytes, function=spec.dispatcher.py_func,
            residency=_residency(spec, sanitized.device), again=(lambda: before) if before else None,
        )  # fmt: skip
    except (LaunchError, UnsupportedKernel) as error:  # nothing ran: the launch is impossible, or only its checks are
        _execute(kernel, bound, spec, sanitized.device)
        sanitized.add(kernel, (), unchecked=str(error).removesuffix(" Nothing ran."))
        return
    except Exception as error:  # Ctrl-C, or raised by the kernel itself, made with debug=True
        sanitized.add(kernel, (), unchecked=f"{type(error).__name__}: {error}")
        raise
    bound.write_back()
    sanitized.add(kernel, (*found, *_launch_findings(spec, kernel)))


def _call(launch: Any, args: tuple) -> tuple[Any, tuple, LaunchSpec]:
    from solcourse.simt import frontend

    return launch, args, frontend.launch_of(launch)


def _measuring(
    work: Work | None, cache: str, repeats: int, warm_ups: int, timer: str | None, profile: bool, sample_blocks: int | None
) -> dict[str, Any]:
    """The options of a measurement, checked before anything runs."""
    from solcourse import gpu, timers

    _check_cache(cache)
    _check_work(work)
    _check_sample(sample_blocks)
    timers.check(timer)
    for name, value, least in (("repeats", repeats, 1), ("warm_ups", warm_ups, 0)):
        if not isinstance(value, int) or value < least:
            raise LaunchError(f"{name} is a number of launches, at least {least}; got {value!r}.")
    gpu.require_cuda()

    def on_engine(spec: LaunchSpec, args: tuple, figures: Device, registers: int | None) -> EngineRun:
        return _run(spec, args, gpu=figures, counters=True, sample_blocks=sample_blocks, registers=registers)

    options: dict[str, Any] = {"work": work, "cache": cache, "repeats": repeats, "warm_ups": warm_ups, "timer": timer}
    return options | {"on_engine": on_engine if profile else None}


def _check_cache(cache: str) -> None:
    if cache not in CACHES:
        raise SolcourseError(f"cache is {' or '.join(repr(c) for c in CACHES)}; got {cache!r}.")


def _check_sample(sample_blocks: Any) -> None:
    if sample_blocks is None or (isinstance(sample_blocks, Integral) and sample_blocks is not True and int(sample_blocks) >= 1):
        return
    raise LaunchError(f"sample_blocks is a number of blocks, at least 1, or None for all; got {sample_blocks!r}.")


def _check_work(work: object) -> None:
    """Before anything runs."""
    from solcourse.work import Work

    if work is not None and not isinstance(work, Work):
        raise WorkError(
            f"work is a sol.Work, the bytes and FLOPs that cannot be avoided, or None for what the engine sees; got {work!r}. "
            'For example: sol.Work.read("x", x.nbytes) + sol.Work.write("y", y.nbytes) + sol.Work(flops={"fp32": n}).'
        )


def _check_device(kernel: KernelIR, spec: LaunchSpec, gpu: Device) -> None:
    """Before anything runs: what this device has no room for. Registers are known, and checked, afterwards."""
    static, dynamic, limit = kernel.static_shared_bytes, spec.dynamic_shared_bytes, gpu.smem_max_kib_block * KIB
    if static + dynamic > limit:
        raise LaunchError(
            f"{kernel.name} needs {static:,} + {dynamic:,} = {static + dynamic:,} bytes of shared memory per block (static + dynamic); "
            f"{gpu.name} has {limit:,}.",
            file=kernel.file,
            line=kernel.first_line,
        )


def _dimensions(d: tuple[int, int, int]) -> str:
    """As one writes it: 128, or (16, 16)."""
    used = max((k + 1 for k in range(3) if d[k] > 1), default=1)
    return str(d[0]) if used == 1 else str(d[:used])


def _launch_findings(spec: LaunchSpec, kernel: KernelIR) -> list[Finding]:
    if not spec.looks_swapped:
        return []
    message = f"grid {spec.blocks} x block {spec.threads_per_block}: {spec.threads_per_block} threads per block, less than one warp"
    hint = f"The first number is blocks, the second threads per block: did you mean {kernel.name}[{spec.threads_per_block}, {spec.blocks}]?"
    return [Finding("launch_shape", "warning", message, hint, file=kernel.file, line=kernel.first_line)]
