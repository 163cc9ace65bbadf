"""The panel of lesson 04: loads in flight by elements per thread and by resident warps, and whether they cover the memory's latency."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from solcourse import occupancy_figures, timeline_figures, units
from solcourse.errors import SolcourseError
from solcourse.grading import in_flight, number
from solcourse.panels.parts import BLOCK, SAMPLE_THREADS, SIZE, Control, Panel, device_control, launch, options, room, with_globals
from solcourse.work import Work

ELEMENTS = (1, 2, 4, 8, 16, 32, 64)
SHARED_KIB = (0, 8, 16, 24, 32, 40, 48)
REGISTERS = (0, 32, 64, 96, 128, 168)
FACTOR = np.float32(1.5)
LEAST_SAMPLED = 8  # blocks: fewer would be no picture of a grid


@cache
def scaling(elements: int) -> Any:
    """out = factor x with so many elements per thread, all loaded before the first is stored."""
    from numba import cuda, float32

    @cuda.jit
    def scale(x, out, factor):
        held = cuda.local.array(elements, float32)
        first = cuda.blockIdx.x * cuda.blockDim.x * elements + cuda.threadIdx.x
        for k in range(elements):
            i = first + k * cuda.blockDim.x
            if i < out.size:
                held[k] = x[i]
        for k in range(elements):
            i = first + k * cuda.blockDim.x
            if i < out.size:
                out[i] = factor * held[k]

    return scale


def with_elements(kernel: Any) -> Callable[[int], Any]:
    """elements -> the learner's kernel, compiled with that value of the global name ELEMENTS.

    Raises SolcourseError for a kernel that does not use it.
    """
    plain = kernel.py_func
    if "ELEMENTS" not in plain.__code__.co_names:
        raise SolcourseError(f"{plain.__name__} does not use the global name ELEMENTS: so the panel says how many elements a thread takes.")

    return cache(lambda elements: with_globals(kernel, ELEMENTS=elements))


def latency(kernel: Any = None) -> Panel:
    """The panel of lesson 04: out = factor x, by elements per thread, block, and what limits the number of resident warps.

    kernel   a numba.cuda kernel of (x, out, factor), float32, that handles ELEMENTS elements in each thread, a block's width apart
    """
    made = scaling if kernel is None else with_elements(kernel)
    called = "scale" if kernel is None else kernel.py_func.__name__
    needs = options(REGISTERS, lambda n: str(n or "as compiled"))
    controls = (
        Control(
            "elements",
            "per thread",
            options(ELEMENTS),
            1,
            slider=True,
            note="elements: loads before the first store",
        ),
        Control("shared", "shared", options(SHARED_KIB, lambda kib: f"{kib} KiB"), 0, slider=True, note="reserved per block, and not used"),
        BLOCK,
        Control("registers", "registers", needs, 0, note="per thread, as if the kernel needed so many"),
        SIZE,
        device_control(),
    )

    def dims(settings: Mapping[str, Any]) -> tuple[int, int, int]:
        per_block = settings["block"] * settings["elements"]
        return max(1, -(-settings["size"] // per_block)), settings["block"], 1024 * settings["shared"]

    def profile(settings: Mapping[str, Any]) -> Any:
        from solcourse import verbs

        n, elements = settings["size"], settings["elements"]
        work = Work.read("x", 4 * n) + Work.write("out", 4 * n) + Work.flop("fp32", n)
        return verbs.profile(
            launch(made(elements), *dims(settings)), room("float32", "src", n), room("float32", "dst", n), FACTOR,
            device=settings["device"], work=work, registers=settings["registers"] or None,
            sample_blocks=max(LEAST_SAMPLED, SAMPLE_THREADS // settings["block"]),
        )  # fmt: skip

    def line(settings: Mapping[str, Any]) -> str:
        blocks, threads, shared = dims(settings)
        more = f", 0, {shared}" if shared else ""
        return f"ELEMENTS = {settings['elements']}; {called}[{blocks}, {threads}{more}](x, out, factor)"

    def label(settings: Mapping[str, Any]) -> str:
        return f"{settings['elements']} per thread" + (f", {settings['shared']} KiB" if settings["shared"] else "")

    def pictures(settings: Mapping[str, Any], report: Any) -> dict[str, str]:
        return {"occupancy": occupancy_figures.of_report(report), "timeline": timeline_figures.of_report(report)}

    title = "Latency: who waits, and who hides it"
    return Panel("latency", title, controls, profile, line, label, pictures, in_words, right=("bounds", "roofline"))


def asked_bytes(report: Any) -> float:
    """Bytes that the warps of one SM ask for at the same time, if each has as many loads under way as its code allows."""
    load = report.counts.global_load
    per_request = load.bytes / load.requests if load.requests else 0.0
    resident = min(report.occupancy.warps_per_sm, -(-report.run.blocks // report.device.sms) * report.run.warps_per_block)
    return resident * in_flight(report.run) * per_request


def needed_bytes(report: Any) -> float:
    """Little's law: the DRAM latency times the rate at which one SM's reads can come in, on the data sheet, bytes."""
    gpu, moved = report.device, report.traffic
    reads = moved.dram_read_bytes / moved.dram_bytes if moved.dram_bytes else 0.0
    return reads * gpu.dram_bytes_per_s / gpu.sms * gpu.lat_dram / gpu.clock_hz


def in_words(settings: Mapping[str, Any], report: Any) -> str:
    """Loads under way against what latency x bandwidth asks for; occupancy with its limiter; waves."""
    fits, loads = report.occupancy, in_flight(report.run)
    limits = occupancy_figures.limits_in_words(fits)
    return (
        f"Occupancy {units.percent(fits.fraction)}, {fits.warps_per_sm} warps per SM, limited by {limits}; "
        f"{report.registers} registers; {number(report.prediction.waves)} waves of blocks. "
        f"{loads} load{'s' * (loads != 1)} in flight per thread: at most {units.size(asked_bytes(report))} on their way to an SM; "
        f"latency x read rate is {units.size(needed_bytes(report))}."
    )
