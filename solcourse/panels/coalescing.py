"""The panel of lesson 01: what one warp's read pulls in, by stride, offset and layout."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from solcourse import units
from solcourse.access_maps import hottest_site, sector_map, sector_masks, sectors, traced_requests
from solcourse.errors import UnknownName
from solcourse.panels.parts import BLOCK, SIZE, Control, Panel, device_control, options, predict, room
from solcourse.simt.records import SECTOR_BYTES
from solcourse.work import Work

OFFSETS = tuple(range(33))
STRIDES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)


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
        Control("stride", "stride", options(STRIDES), 1, slider=True, note="neighbouring threads read this many elements apart"),
        Control("offset", "offset", options(OFFSETS), 0, slider=True, note="every thread reads this many elements further on"),
        Control("layout", "layout", names, layouts[0].name, note="how the numbers lie in memory"),
        BLOCK,
        SIZE,
        device_control(),
    )

    def profile(settings: Mapping[str, Any]) -> Any:
        layout, n = layout_of(settings), settings["size"]
        elements = n * settings["stride"] + settings["offset"]
        src, dst = room(layout.dtype, "src", layout.stored * elements), room(layout.dtype, "dst", n)
        if layout.stored > 1:
            src = src.reshape((elements, 3) if layout.name.startswith("aos") else (3, elements))
        work = Work.read("src", layout.fields * layout.size * n) + Work.write("dst", layout.size * n)
        if layout.fields > 1:
            work = work + Work.flop("fp32", (layout.fields - 1) * n)
        chosen = kernel if layout is YOURS else _layout_kernels()[layout.name]
        block, arguments = settings["block"], (src, dst, settings["stride"], settings["offset"])
        return predict(chosen, -(-n // block), block, arguments, device=settings["device"], work=work)

    def line(settings: Mapping[str, Any]) -> str:
        at = "i" if settings["stride"] == 1 else f"i * {settings['stride']}"
        at = at if settings["offset"] == 0 else f"{at} + {settings['offset']}"
        return layout_of(settings).line.format(at=at, code=code, stride=settings["stride"], offset=settings["offset"])

    def pictures(settings: Mapping[str, Any], report: Any) -> dict[str, str]:
        size = layout_of(settings).size
        return {"sectors": request_made(report, first_addresses(settings), size, f"One warp's read: 32 lanes, {size} bytes each")}

    def label(settings: Mapping[str, Any]) -> str:
        return f"stride {settings['stride']}" + (f", offset {settings['offset']}" if settings["offset"] else "")

    return Panel("coalescing", "Coalescing: what one warp's read pulls in", controls, profile, line, label, pictures, sectors_in_words)


def sectors_in_words(settings: Mapping[str, Any], report: Any) -> str:
    """How many sectors a request pulls, and how much of them is used."""
    load, store = report.counts.global_load, report.counts.global_store
    return (
        f"Sectors per request: {load.sectors_per_request:.3g} loading, {store.sectors_per_request:.3g} storing; "
        f"{units.percent(load.sector_efficiency)} of the bytes loaded are used."
    )
