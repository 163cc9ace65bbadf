"""Report: what one launch costs on one device. The one result record, and the way from an EngineRun to it.

    run -> registers -> occupancy -> traffic -> model -> Report                  (all cheap: `report.on(device)` does it again)

A Report is data; how it looks is in report_text.py, report_html.py, figures.py and plots.py. Predicted and measured never mix:
`origin` says which, and only `measured` makes the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solcourse import roofline
from solcourse.errors import SolcourseError, WorkError
from solcourse.hardware import DEFAULT_DEVICE, Device
from solcourse.hardware import device as find_device
from solcourse.occupancy import Occupancy
from solcourse.occupancy import occupancy as occupancy_of
from solcourse.simt.records import Counts, EngineRun, LineCounts, Program
from solcourse.work import Work

if TYPE_CHECKING:
    from solcourse.all_devices import AllDevices
    from solcourse.assembly import Assembly
    from solcourse.what_if import Sensitivity

ORIGINS = ("predicted", "measured")


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """One launch on one device. Seconds, bytes, counts and fractions in base units; formatting is done at the edge.

    kernel, device      the kernel's name; the Device record
    origin              "predicted" (the model) or "measured" (a real GPU)
    time_s, interval_s  the kernel's time on the device (ncu: gpu__time_duration) and (low, high) around it
    launch_s            the host's part of a launch, apart from time_s
    sol_time_s          T_SOL of `work` on the device; 0 where no byte and no FLOP is needed; None where the work is not known
    sol_score           R = sol_time_s / time_s; above 1 is an alarm (`alarm`), never clipped; None as sol_time_s
    attainable_score    the R that the best possible kernel reaches: DRAM gives less than its data sheet says; None as sol_time_s
    baseline_s, anchored_score   SOL-ExecBench's score against a baseline; None without one, or where the baseline is at T_SOL
    bound, bounds       the bound that wins, and all of them: name -> seconds each resource alone would take
    occupancy           theoretical occupancy with its limiter
    registers           per thread; registers_source says where the number comes from; spill_bytes per thread
    work, work_given    the ledger behind T_SOL; whether the caller gave it or the engine saw it
    counts, lines       what the kernel did, whole and by source line; the same on every device
    traffic             what the caches and DRAM saw (estimated)
    explanation         R = waste x rate x idle; None where it cannot be told
    sampled_blocks      None when every block ran; else how many did (counts are scaled, outputs incomplete)
    waves               blocks / (SMs x blocks per SM); ncu: launch__waves_per_multiprocessor
    run, prediction     where all this comes from; None for a measurement without an engine run
    timing              how a measured time was taken; None for a prediction
    """

    kernel: str
    device: Device
    origin: str
    time_s: float
    interval_s: tuple[float, float]
    launch_s: float
    sol_time_s: float | None
    sol_score: float | None
    attainable_score: float | None
    baseline_s: float | None = None
    anchored_score: float | None = None
    bound: str = ""
    bounds: Mapping[str, float] = field(default_factory=dict)
    occupancy: Occupancy | None = None
    registers: int | None = None
    registers_source: str = "unknown"
    spill_bytes: int = 0
    work: Work = Work()
    work_given: bool = False
    counts: Counts = Counts()
    traffic: Any = None
    lines: tuple[LineCounts, ...] = ()
    explanation: roofline.Explanation | None = None
    sampled_blocks: int | None = None
    cache: str = "cold"
    waves: float | None = None
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    run: EngineRun | None = field(default=None, compare=False)
    prediction: Any = field(default=None, compare=False)
    timing: Any = field(default=None, compare=False)
    registers_given: int | None = field(default=None, compare=False)

    # ------------------------------------------------------------------------------------------------- derived values
    @property
    def dram_bytes(self) -> float | None:
        """Bytes DRAM moved, read + written (estimated); None where it is not known."""
        return None if self.traffic is None else self.traffic.dram_read_bytes + self.traffic.dram_write_bytes

    @property
    def interval_why(self) -> tuple[str, ...]:
        """What makes the interval of a prediction as wide as it is, most important first; () for a measurement."""
        return tuple(getattr(self.prediction, "interval_why", ())) if self.origin == "predicted" else ()

    @property
    def sol_bound(self) -> str:
        """What binds at the speed of light: "dram" or a pipe; "" for empty work."""
        return roofline.sol_bound(self.work, self.device) if self.sol_time_s else ""

    @property
    def alarm(self) -> roofline.Alarm | None:
        """None, or what to suspect when the score is above 1."""
        if self.sol_score is None or self.sol_score <= 1:
            return None
        return roofline.audit(self.time_s, self.work, self.device, actual_bytes=self.dram_bytes, predicted=self.origin == "predicted")

    @cached_property
    def hot_lines(self) -> tuple[Any, ...]:
        """The source lines with their share of the time, hottest first (hot_lines.HotLine)."""
        from solcourse.hot_lines import hot_lines

        return hot_lines(self)

    @cached_property
    def advice(self) -> tuple[Any, ...]:
        """What the counts say should be looked at, most important first (advice.Advice); empty when nothing stands out."""
        from solcourse.advice import advise

        return advise(self)

    def line(self, number: int) -> LineCounts:
        """The counts of source line `number`. Raises SolcourseError, with the lines there are, when it has none."""
        for line in self.lines:
            if line.line == number:
                return line
        raise SolcourseError(f"Line {number} of {self.kernel} has no counts. Lines with counts: {[line.line for line in self.lines]}.")

    # --------------------------------------------------------------------------------------------------- other reports
    def on(self, device: str | Device) -> Report:
        """The same launch predicted for another device: nothing runs again. A baseline is a time on its own device, so it is left out.

        Raises SolcourseError for a report without an engine run; UnknownName; LaunchError where a block does not fit on that device.
        """
        if self.run is None:
            raise SolcourseError("This report was measured without an engine run: profile the kernel to see it on another device.")
        work = self.work if self.work_given else None
        return predicted(self.run, device, work=work, cache=self.cache, registers=self.registers_given)

    def on_all(self, devices: Iterable[str | Device] | str | Device | None = None) -> AllDevices:
        """The same launch predicted for every known device, or for `devices`, fastest first: nothing runs again.

        Devices on which the launch cannot run are listed with the reason. Raises SolcourseError as `on`; UnknownName.
        """
        from solcourse.all_devices import on_all

        return on_all(self, devices)

    def sensitivity(self) -> Sensitivity:
        """What would have to change on this device for the kernel to be faster, and for another bound to win: the predicted time with
        more and less bandwidth, clock, SMs, cache, registers. Nothing runs again.

        Raises SolcourseError for a report without an engine run.
        """
        from solcourse.what_if import sensitivity

        return sensitivity(self)

    def ptx(self, cc: str | None = None, compiler: str | None = None) -> Assembly:
        """The kernel's PTX, beside its source lines, for this device or for compute capability `cc`. Parameters as of sol.ptx.

        Raises SolcourseError for a report without an engine run, or where no compiler can do it.
        """
        from solcourse.assembly import make_ptx

        program = self._program()
        return make_ptx(program.source, program.ir, program.kernel, program.file, cc or self.device.cc, compiler)

    def sass(self, cc: str | None = None) -> Assembly:
        """The kernel's machine code, beside its source lines, for this device or for compute capability `cc`.

        Raises SolcourseError for a report without an engine run, or, with the cure, where a tool for it is not installed.
        """
        from solcourse.assembly import make_sass

        program = self._program()
        return make_sass(program.source, program.kernel, program.file, cc or self.device.cc)

    def _program(self) -> Program:
        if self.run is None:
            raise SolcourseError("This report was measured without an engine run: profile the kernel, or ask sol.ptx or sol.sass.")
        return self.run.program

    def to_dict(self) -> dict[str, Any]:
        """The report as plain dicts, lists, numbers and strings in base units, fit for json.dumps(..., allow_nan=False)."""
        from solcourse.report_json import as_dict

        return as_dict(self)

    # ----------------------------------------------------------------------------------------------------------- looks
    def plot(self, ax: Any = None) -> Any:
        """The bounds of this report as a matplotlib picture; returns its axes (`.figure.savefig(...)` keeps it)."""
        from solcourse import plots

        return plots.bounds(self, ax=ax)

    def save(self, path: str | Path) -> Path:
        """Writes the report to a file and returns its path: "x.html" a page that stands alone, "x.txt" text, "x.json" numbers.

        Raises SolcourseError for another ending, OSError where the file cannot be written.
        """
        from solcourse.report_html import page
        from solcourse.report_json import as_json

        forms = {".html": page, ".txt": lambda report: f"{report}\n", ".json": as_json}
        target = Path(path)
        if target.suffix not in forms:
            raise SolcourseError(f"A report is saved as {', '.join(forms)}, not as {target.name!r}. report.plot() draws a picture.")
        target.write_text(forms[target.suffix](self), encoding="utf-8")
        return target

    def __repr__(self) -> str:
        from solcourse import units

        time, score = units.seconds(self.time_s), units.score(self.sol_score)
        return f"<Report: {self.kernel} on {self.device.name}, {self.origin} {time}, SOL score {score}>"

    def __str__(self) -> str:
        from solcourse.report_text import text

        return text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from solcourse.report_html import html

        return {"text/plain": str(self), "text/html": html(self)}


# ---------------------------------------------------------------------------------------------------------- making one
def work_of(run: EngineRun) -> Work:
    """The ledger of what the engine saw: FLOPs as compiled, distinct bytes read before being written, distinct bytes written."""
    work = Work((), {kind: n for kind, n in run.counts.flops.items() if n})
    if run.compulsory_read_bytes:
        work = work + Work.read("distinct bytes", run.compulsory_read_bytes)
    if run.compulsory_write_bytes:
        work = work + Work.write("distinct bytes", run.compulsory_write_bytes)
    return work


def is_empty(work: Work) -> bool:
    """Whether the ledger asks for nothing: no byte and no FLOP."""
    return not work.compulsory_bytes and not work.total_flops


def _explain(time_s: float, work: Work, gpu: Device, counts: Counts, traffic: Any, active_s: float | None) -> roofline.Explanation | None:
    """R = waste x rate x idle, or None where nothing is needed or nothing was moved (all of it came from the caches)."""
    if is_empty(work):
        return None
    actual_flops = counts.flops.get(roofline.sol_bound(work, gpu)) or None
    dram_bytes = traffic.dram_read_bytes + traffic.dram_write_bytes if traffic is not None else None
    try:
        return roofline.explain(
            time_s, work, gpu, actual_bytes=dram_bytes or None, actual_flops=actual_flops, active_s=min(active_s or time_s, time_s)
        )
    except WorkError:
        return None


def _scores(time_s: float, work: Work, gpu: Device, baseline_s: float | None, *, known: bool = True) -> dict[str, Any]:
    """The fields that follow from a time and a ledger. known: an empty ledger means that nothing is needed, not that nobody knows."""
    from solcourse.model import attainable_time_s

    if is_empty(work):
        nothing = 0.0 if known else None
        return {
            "sol_time_s": nothing,
            "sol_score": nothing,
            "attainable_score": nothing,
            "baseline_s": baseline_s,
            "anchored_score": None,
        }
    light = roofline.sol_time_s(work, gpu)
    anchored = None if baseline_s is None else roofline.anchored_score(time_s, baseline_s, light)
    return {
        "sol_time_s": light,
        "sol_score": roofline.sol_score(time_s, work, gpu),
        "attainable_score": light / attainable_time_s(work, gpu),
        "baseline_s": baseline_s,
        "anchored_score": anchored,
    }


def predicted(
    run: EngineRun,
    device: str | Device = DEFAULT_DEVICE,
    work: Work | None = None,
    cache: str = "cold",
    registers: int | None = None,
    baseline_s: float | None = None,
) -> Report:
    """What the model says `run` costs on `device`: registers -> occupancy -> traffic -> bounds -> time.

    work        the ledger behind T_SOL; None: what the engine saw
    cache       "cold" empties L2 first, as ncu does; "warm" keeps what the last launch left
    registers   per thread, where the caller knows better than the estimate
    baseline_s  a time on the same device, for anchored_score
    Raises UnknownName (device), LaunchError (a block that can never fit), WorkError (an impossible baseline).
    """
    from solcourse.model import predict
    from solcourse.registers import registers_on
    from solcourse.traffic import traffic as traffic_of

    gpu = find_device(device)
    ledger = work_of(run) if work is None else work
    held = registers_on(gpu, run.program, run, run.threads_per_block, override=registers)
    fits = occupancy_of(gpu, run.threads_per_block, held.count, run.shared_bytes, barriers=1 if run.counts.barriers else 0)
    moved = traffic_of(run, gpu, fits, cache=cache)
    said = predict(run, moved, gpu, fits, estimated_registers=held.source.startswith("estimated"))
    return Report(
        kernel=run.program.kernel,
        device=gpu,
        origin="predicted",
        time_s=said.time_s,
        interval_s=said.interval_s,
        launch_s=said.launch_s,
        **_scores(said.time_s, ledger, gpu, baseline_s),
        bound=said.bound,
        bounds=said.bounds,
        occupancy=fits,
        registers=held.count,
        registers_source=held.source,
        spill_bytes=held.spill_bytes,
        work=ledger,
        work_given=work is not None,
        counts=run.counts,
        traffic=moved,
        lines=run.lines,
        explanation=_explain(said.time_s, ledger, gpu, run.counts, moved, getattr(said, "active_s", None)),
        sampled_blocks=run.sampled_blocks,
        cache=cache,
        waves=said.waves,
        grid=run.grid,
        block=run.block,
        run=run,
        prediction=said,
        registers_given=registers,
    )


def measured(
    kernel: str,
    device: str | Device,
    time_s: float,
    interval_s: tuple[float, float],
    *,
    work: Work | None = None,
    run: EngineRun | None = None,
    launch_s: float = 0.0,
    cache: str = "cold",
    baseline_s: float | None = None,
    registers: int | None = None,
    registers_source: str = "the driver",
    timing: Any = None,
) -> Report:
    """A report of a time taken on a real GPU. With an engine run of the same launch it also holds counts, and the model's
    bounds, which explain the time but did not make it. Without a run and without `work` there is no score. timing: how it was taken.

    Raises UnknownName, WorkError.
    """
    gpu = find_device(device)
    if run is not None:
        base = predicted(run, gpu, work=work, cache=cache, registers=registers)
        active = getattr(base.prediction, "active_s", None)
        explained = _explain(time_s, base.work, gpu, run.counts, base.traffic, active)
        source = registers_source if registers is not None else base.registers_source
        changed: dict[str, Any] = {"origin": "measured", "time_s": time_s, "interval_s": interval_s, "launch_s": launch_s}
        changed |= {"kernel": kernel, "explanation": explained, "registers_source": source, "timing": timing}
        return replace(base, **changed, **_scores(time_s, base.work, gpu, baseline_s))
    ledger = work or Work()
    return Report(
        kernel=kernel,
        device=gpu,
        origin="measured",
        time_s=time_s,
        interval_s=interval_s,
        launch_s=launch_s,
        **_scores(time_s, ledger, gpu, baseline_s, known=work is not None),
        registers=registers,
        registers_source=registers_source if registers is not None else "unknown",
        work=ledger,
        work_given=work is not None,
        cache=cache,
        timing=timing,
    )
