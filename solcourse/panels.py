"""What a live panel asks and what it shows, without a widget: the definition of every panel's kernels, sizes and controls.

A Panel turns settings (one value per Control) into a Report; `frame` turns that Report into pictures. Widgets wire the
two together (widgets.py); tests and static pages need neither a browser nor ipywidgets.
"""

from __future__ import annotations

import html
import inspect
import mmap
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from solcourse import figures, units
from solcourse.access_maps import hottest_site, sector_map, sector_masks, sectors, traced_requests
from solcourse.errors import UnknownName
from solcourse.hardware import DEFAULT_DEVICE, devices
from solcourse.simt.records import SECTOR_BYTES
from solcourse.work import Work

SAMPLE_THREADS = 2**13  # of a launch of 2^26: enough for neighbours to meet in the caches, few enough for a slider
LARGEST = 2**26  # elements a panel's launch writes
MOST_ATTEMPTS = 12  # steps of the path that stay on the roofline
OFFSETS = tuple(range(33))
STRIDES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
_NORESERVE = 0x4000  # Linux's MAP_NORESERVE, which the mmap module names from Python 3.13 on


@dataclass(frozen=True)
class Control:
    """One thing to turn. `options` are (label, value) pairs; `note` is what it means, in a few words."""

    name: str
    label: str
    options: tuple[tuple[str, Any], ...]
    value: Any
    slider: bool = False
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel without its widgets.

    profile   settings {control name: value} -> Report, predicted from sampled blocks
    line      settings -> the source line that the settings change, as a learner would write it
    label     settings -> what to call an attempt on the roofline
    access    settings, Report -> SVG of one warp's request; None where a panel is about something else
    """

    name: str
    title: str
    controls: tuple[Control, ...]
    profile: Callable[[Mapping[str, Any]], Any]
    line: Callable[[Mapping[str, Any]], str]
    label: Callable[[Mapping[str, Any]], str]
    access: Callable[[Mapping[str, Any], Any], str] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings a panel opens with."""
        return {control.name: control.value for control in self.controls}

    def control(self, name: str) -> Control:
        """The control of that name. Raises UnknownName."""
        for control in self.controls:
            if control.name == name:
                return control
        raise UnknownName("control", name, [c.name for c in self.controls])


def lazy_array(elements: int, dtype: str | type = np.float32) -> np.ndarray:
    """(elements,) zeros that take memory only where they are touched, however large: a panel touches a few blocks of 16 GiB.

    np.zeros does the same until the operating system finds the sum of promises too large; this asks it not to reserve.
    """
    nbytes = max(1, elements * np.dtype(dtype).itemsize)
    if not sys.platform.startswith("linux"):
        return np.zeros(elements, dtype)
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    return np.frombuffer(pages, dtype=dtype, count=elements)


@cache
def _everything(dtype: str, role: str) -> np.ndarray | None:
    """The one array that every launch of a session takes its slice of, or None where so much cannot even be promised."""
    most = 3 * (LARGEST * max(STRIDES) + max(OFFSETS)) if role == "src" else LARGEST
    try:
        return lazy_array(most, dtype)
    except (OSError, MemoryError, ValueError):
        return None


def _room(dtype: str, role: str, elements: int) -> np.ndarray:
    """(elements,) zeros for one role of a launch. Raises MemoryError where they cannot even be promised."""
    everything = _everything(dtype, role)
    return lazy_array(elements, dtype) if everything is None else everything[:elements]


def _options(values: Sequence[Any], label: Callable[[Any], str] = str) -> tuple[tuple[str, Any], ...]:
    return tuple((label(value), value) for value in values)


def _power(n: int) -> str:
    return f"2^{n.bit_length() - 1}"


def _device_control() -> Control:
    return Control("device", "device", _options([d.name for d in devices()]), DEFAULT_DEVICE)


BLOCK = Control("block", "block size", _options([32, 64, 128, 256, 512, 1024]), 256, note="threads per block")
SIZE = Control("size", "elements", _options([2**n for n in (14, 16, 18, 20, 22, 24, 26)], _power), LARGEST, note="elements written")


def launch(kernel: Any, grid: int, block: int) -> Any:
    """kernel[grid, block] without numba's advice on grids below 128 blocks: a panel offers them on purpose."""
    from numba.core.errors import NumbaPerformanceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumbaPerformanceWarning)
        return kernel[grid, block]


def predict(kernel: Any, n: int, settings: Mapping[str, Any], arguments: tuple, work: Work) -> Any:
    """The Report of `kernel` over n threads, from a sample of its blocks."""
    from solcourse import verbs

    configured = launch(kernel, -(-n // settings["block"]), settings["block"])
    sample = max(8, SAMPLE_THREADS // settings["block"])
    return verbs.profile(configured, *arguments, device=settings["device"], work=work, sample_blocks=sample)


# ---------------------------------------------------------------------------------------------------------- coalescing


@dataclass(frozen=True)
class Layout:
    """How the numbers lie in memory: elements of `stored` fields of `size` bytes, of which `fields` are read."""

    name: str
    label: str
    dtype: str
    size: int
    stored: int
    fields: int
    line: str


LAYOUTS = (
    Layout("float32", "float32 array", "float32", 4, 1, 1, "dst[i] = src[{at}]"),
    Layout("float64", "float64 array", "float64", 8, 1, 1, "dst[i] = src[{at}]"),
    Layout("aos_one", "array of structs xyz, x read", "float32", 4, 3, 1, "dst[i] = src[{at}, 0]"),
    Layout("soa_one", "struct of arrays xyz, x read", "float32", 4, 3, 1, "dst[i] = src[0, {at}]"),
    Layout("aos_all", "array of structs xyz, all read", "float32", 4, 3, 3, "j = {at}; dst[i] = src[j, 0] + src[j, 1] + src[j, 2]"),
    Layout("soa_all", "struct of arrays xyz, all read", "float32", 4, 3, 3, "j = {at}; dst[i] = src[0, j] + src[1, j] + src[2, j]"),
)
YOURS = Layout("yours", "your kernel", "float32", 4, 1, 1, "{code}    # stride = {stride}, offset = {offset}")


@cache
def _layout_kernels() -> dict[str, Any]:
    from numba import cuda

    @cuda.jit
    def copy(src, dst, stride, offset):
        i = cuda.grid(1)
        if i < dst.size:
            dst[i] = src[i * stride + offset]

    @cuda.jit
    def aos_one(src, dst, stride, offset):
        i = cuda.grid(1)
        if i < dst.size:
            dst[i] = src[i * stride + offset, 0]

    @cuda.jit
    def soa_one(src, dst, stride, offset):
        i = cuda.grid(1)
        if i < dst.size:
            dst[i] = src[0, i * stride + offset]

    @cuda.jit
    def aos_all(src, dst, stride, offset):
        i = cuda.grid(1)
        if i < dst.size:
            j = i * stride + offset
            dst[i] = src[j, 0] + src[j, 1] + src[j, 2]

    @cuda.jit
    def soa_all(src, dst, stride, offset):
        i = cuda.grid(1)
        if i < dst.size:
            j = i * stride + offset
            dst[i] = src[0, j] + src[1, j] + src[2, j]

    return {"float32": copy, "float64": copy, "aos_one": aos_one, "soa_one": soa_one, "aos_all": aos_all, "soa_all": soa_all}


def layout_of(settings: Mapping[str, Any]) -> Layout:
    """The Layout that the settings name. Raises UnknownName."""
    for layout in (*LAYOUTS, YOURS):
        if layout.name == settings["layout"]:
            return layout
    raise UnknownName("layout", settings["layout"], [layout.name for layout in LAYOUTS])


def first_addresses(settings: Mapping[str, Any]) -> list[int]:
    """Byte address, from the array's start, that each lane of the first warp reads first: what the kernels above compute."""
    layout = layout_of(settings)
    step = layout.size * (3 if layout.name.startswith("aos") else 1)
    return [(lane * settings["stride"] + settings["offset"]) * step for lane in range(32)]


def request_made(report: Any, addresses: Sequence[int], size: int, title: str) -> str:
    """SVG of the first traced request, lane by lane where `addresses` (of each lane, from some start) are what it touched.

    The trace knows words, not lanes. A learner's kernel may read something else: then the words alone are drawn.
    """
    fetch_bytes, site = report.device.dram_fetch_bytes, hottest_site(report.run)
    if site is not None:
        made = next(traced_requests(report.run.trace, site.index), {})
        meant = sector_masks(addresses, size)
        shift = min(made, default=0) - min(meant)
        if made == {sector + shift: mask for sector, mask in meant.items()}:
            moved = [address + shift * SECTOR_BYTES for address in addresses]
            return sector_map(moved, size, title=title, fetch_bytes=fetch_bytes)
    return sectors(report.run, fetch_bytes=fetch_bytes)


def reading_line(kernel: Any) -> str:
    """The line of a kernel (src, dst, stride, offset) that reads src, stripped; its name where the source cannot be read."""
    if kernel is None:
        return ""
    try:
        lines = inspect.getsource(kernel.py_func).splitlines()
    except (OSError, TypeError):
        return str(kernel.py_func.__name__)
    return next((line.strip() for line in lines if "src[" in line), str(kernel.py_func.__name__))


def coalescing(kernel: Any = None) -> Panel:
    """The panel of lesson 01: dst[i] = src[i * stride + offset], in several layouts.

    kernel   a numba.cuda kernel of (src, dst, stride, offset) with float32 arrays; offered as the layout "your kernel"
    """
    layouts = LAYOUTS if kernel is None else (YOURS, *LAYOUTS)
    names = tuple((layout.label, layout.name) for layout in layouts)
    code = reading_line(kernel)
    controls = (
        Control("stride", "stride", _options(STRIDES), 1, slider=True, note="neighbouring threads read this many elements apart"),
        Control("offset", "offset", _options(OFFSETS), 0, slider=True, note="every thread reads this many elements further on"),
        Control("layout", "layout", names, layouts[0].name, note="how the numbers lie in memory"),
        BLOCK,
        SIZE,
        _device_control(),
    )

    def profile(settings: Mapping[str, Any]) -> Any:
        layout, n = layout_of(settings), settings["size"]
        elements = n * settings["stride"] + settings["offset"]
        src, dst = _room(layout.dtype, "src", layout.stored * elements), _room(layout.dtype, "dst", n)
        if layout.stored > 1:
            src = src.reshape((elements, 3) if layout.name.startswith("aos") else (3, elements))
        work = Work.read("src", layout.fields * layout.size * n) + Work.write("dst", layout.size * n)
        if layout.fields > 1:
            work = work + Work.flop("fp32", (layout.fields - 1) * n)
        chosen = kernel if layout is YOURS else _layout_kernels()[layout.name]
        return predict(chosen, n, settings, (src, dst, settings["stride"], settings["offset"]), work)

    def line(settings: Mapping[str, Any]) -> str:
        at = "i" if settings["stride"] == 1 else f"i * {settings['stride']}"
        at = at if settings["offset"] == 0 else f"{at} + {settings['offset']}"
        return layout_of(settings).line.format(at=at, code=code, stride=settings["stride"], offset=settings["offset"])

    def access(settings: Mapping[str, Any], report: Any) -> str:
        size = layout_of(settings).size
        return request_made(report, first_addresses(settings), size, f"One warp's read: 32 lanes, {size} bytes each")

    def label(settings: Mapping[str, Any]) -> str:
        return f"stride {settings['stride']}" + (f", offset {settings['offset']}" if settings["offset"] else "")

    return Panel("coalescing", "Coalescing: what one warp's read pulls in", controls, profile, line, label, access)


# ------------------------------------------------------------------------------------------------------ speed of light

# Multiples of 8: the compiler unrolls the loop by 8, and each turn left over costs six integer instructions of its own.
# Between these stops the time is a saw.
DEGREES = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
OPERATIONS = (
    ("copy: y = x", "copy"),
    ("saxpy: y = a x + y", "saxpy"),
    ("polynomial of the degree above", "polynomial"),
)


def speed_of_light(kernel: Any = None) -> Panel:
    """The panel of lesson 00: from an operation that only moves bytes to one that mostly computes.

    kernel   a numba.cuda kernel of (x, out, degree) with float32 arrays; takes the place of the polynomial
    """
    controls = (
        Control("degree", "degree", _options(DEGREES), 8, slider=True, note="multiply-adds on every element"),
        Control("operation", "operation", OPERATIONS, "polynomial" if kernel is not None else "copy", note="what is computed"),
        BLOCK,
        SIZE,
        _device_control(),
    )

    def profile(settings: Mapping[str, Any]) -> Any:
        from solcourse.kernels import copy, polynomial, saxpy

        n = settings["size"]
        both, out = _room("float32", "src", 2 * n), _room("float32", "dst", n)
        x, y = both[:n], both[n:]
        if settings["operation"] == "copy":
            return predict(copy.copy, n, settings, (x, out), copy.work(n))
        if settings["operation"] == "saxpy":
            return predict(saxpy.saxpy, n, settings, (np.float32(2), x, y, out), saxpy.work(n))
        chosen = polynomial.polynomial if kernel is None else kernel
        return predict(chosen, n, settings, (x, out, settings["degree"]), polynomial.work(n, settings["degree"]))

    def line(settings: Mapping[str, Any]) -> str:
        if settings["operation"] == "polynomial":
            return f"{settings['degree']} x total = total * x + c    # 2 FLOPs each, on 8 bytes per element"
        return {"copy": "out[i] = x[i]", "saxpy": "out[i] = a * x[i] + y[i]"}[settings["operation"]]

    def label(settings: Mapping[str, Any]) -> str:
        return f"degree {settings['degree']}" if settings["operation"] == "polynomial" else settings["operation"]

    return Panel("speed_of_light", "Speed of light: bytes against FLOPs", controls, profile, line, label)


PANELS: dict[str, Callable[..., Panel]] = {"coalescing": coalescing, "speed_of_light": speed_of_light}


def panel(name: str, kernel: Any = None) -> Panel:
    """The panel of that name, around the learner's kernel where one is given. Raises UnknownName."""
    if name not in PANELS:
        raise UnknownName("panel", name, PANELS)
    return PANELS[name](kernel)


# -------------------------------------------------------------------------------------------------------------- frames


def columns(pictures: Mapping[str, str], right: Sequence[str], under: str = "") -> str:
    """Pictures in two columns, one where there is little room: those named in `right` in the second, with `under` below them."""

    def column(names: Sequence[str], more: str = "") -> str:
        cells = "".join(f'<div class="sol-{name}" style="margin-bottom:8px">{pictures[name]}</div>' for name in names)
        return f'<div style="flex:1 1 400px;min-width:0;max-width:660px">{cells}{more}</div>'

    left = [name for name in pictures if name not in right]
    return f'<div style="display:flex;flex-wrap:wrap;gap:0 24px">{column(left)}{column(right, under)}</div>'


@dataclass(frozen=True)
class Frame:
    """What a panel shows for one setting: SVG pictures by name and the same values as a sentence.

    report    without its run, whose trace holds much memory
    """

    report: Any
    label: str
    line: str
    values: str
    pictures: Mapping[str, str]

    @property
    def html(self) -> str:
        """The pictures with the line of code above and the values in words below."""
        code = f'<code class="sol-line" style="font-size:1.05em;white-space:pre-wrap">{html.escape(self.line)}</code>'
        values = f'<p class="sol-values" role="status" style="margin:4px 0;line-height:1.45">{html.escape(self.values)}</p>'
        return f'<div class="sol-panel" style="line-height:1.45">{code}{columns(self.pictures, ["roofline"], values)}</div>'

    def along(self, attempts: Sequence[Any]) -> Frame:
        """This frame with a roofline: the path so far, and this as its last step. See `path`."""
        return replace(self, pictures={**self.pictures, "roofline": figures.roofline(self.report.device, path(attempts, self.report))})


def draw(panel: Panel, settings: Mapping[str, Any]) -> Frame:
    """Predicts for the settings and draws what depends on nothing else: all but the roofline."""
    report, label = panel.profile(settings), panel.label(settings)
    pictures = {"gauge": figures.gauge(report)}
    if panel.access is not None:
        pictures["sectors"] = panel.access(settings, report)
    pictures["bounds"] = figures.bounds(report)
    return Frame(attempt(report, label), label, panel.line(settings), values_of(report), pictures)


def frame(panel: Panel, settings: Mapping[str, Any], attempts: Sequence[Any] = ()) -> Frame:
    """Predicts for the settings and draws. attempts: the path so far; see `path`."""
    return draw(panel, settings).along(attempts)


def attempt(report: Any, label: str) -> Any:
    """A report as a step of a path: under its own name, without the run, whose trace holds much memory."""
    return replace(report, kernel=label, run=None, prediction=None)


def path(attempts: Sequence[Any], now: Any) -> list[Any]:
    """The attempts a roofline shows: those on the device of `now`, at most MOST_ATTEMPTS, `now` last, nothing twice."""
    before = [
        a for a in attempts if (a.device is now.device or a.device == now.device) and (a.kernel, a.time_s) != (now.kernel, now.time_s)
    ]
    return [*before, now][-MOST_ATTEMPTS:]


def values_of(report: Any) -> str:
    """The numbers of a panel as a sentence: what a screen reader, or a reader of a saved notebook, gets."""
    load, store = report.counts.global_load, report.counts.global_store
    sampled = f" {report.sampled_blocks:,} of {report.run.blocks:,} blocks were run." if report.sampled_blocks else ""
    return (
        f"SOL score {units.score(report.sol_score)} {report.origin} on {report.device.name} "
        f"(attainable {units.score(report.attainable_score)}): {figures.interval(report)}, {figures.bound_words(report.bound)} binds. "
        f"Sectors per request: {load.sectors_per_request:.3g} loading, {store.sectors_per_request:.3g} storing; "
        f"{units.percent(load.sector_efficiency)} of the bytes loaded are used.{sampled}"
    )


def since_last(attempts: Sequence[Any]) -> str:
    """What the last attempt changed, as a sentence; "" for the first one."""
    if len(attempts) < 2:
        return ""
    before, now = attempts[-2:]
    change = now.time_s / before.time_s - 1
    told = "as long as before" if abs(change) < 0.005 else f"{abs(change):.0%} {'longer' if change > 0 else 'shorter'}"
    return (
        f"The attempt before: {units.seconds(before.time_s)}, SOL score {units.score(before.sol_score)}. "
        f"Now: {units.seconds(now.time_s)}, {units.score(now.sol_score)}, {told}; both {now.origin}."
    )


def verdict_html(verdict: Any, attempts: Sequence[Any]) -> str:
    """A verdict with the pictures of its counted launch: the score, the bounds, and the path of the attempts so far.

    attempts   as `path` gives them: the present one last
    """
    said = verdict._repr_html_()
    if verdict.report is None:
        return f'<div class="sol-verdict">{said}</div>'
    report = verdict.report
    pictures = {
        "gauge": figures.gauge(report),
        "sectors": sectors(report.run, fetch_bytes=report.device.dram_fetch_bytes),
        "bounds": figures.bounds(report),
        "roofline": figures.roofline(report.device, path(attempts, attempt(report, report.kernel))),
    }
    change = since_last(attempts)
    under = f'<p class="sol-change" style="margin:4px 0;line-height:1.45">{html.escape(change)}</p>' if change else ""
    return f'<div class="sol-verdict">{said}{columns(pictures, ["roofline"], under)}</div>'


def error_html(error: BaseException) -> str:
    """An error as a box inside the panel: its first line in bold, the rest as it is."""
    first, _, rest = str(error).partition("\n")
    more = f'<pre style="margin:4px 0 0;white-space:pre-wrap">{html.escape(rest)}</pre>' if rest.strip() else ""
    box = "border-left:4px solid #D55E00;padding:6px 10px;margin:6px 0"
    return f'<div class="sol-error" role="alert" style="{box}"><strong>{html.escape(first or type(error).__name__)}</strong>{more}</div>'
