"""The panel of lesson 02: where a tile's elements lie in shared memory, which banks one warp asks for, and what a whole transpose costs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from solcourse import units
from solcourse.access_maps import Addresses
from solcourse.bank_maps import banks as drawn
from solcourse.bank_maps import shared_accesses
from solcourse.errors import UnknownName
from solcourse.grading import number
from solcourse.panels.parts import Control, Panel, device_control, options, predict, room, with_globals
from solcourse.work import Work

SIDE, TILE, ROWS = 8192, 32, 8  # of the matrix, of the tile, threads along y: each handles TILE // ROWS rows
PITCHES = (32, 33, 34, 35, 36, 37, 38, 39, 40, 48, 64)
SIZES = {"float32": 4, "float64": 8}


def straight(row: int, column: int) -> int:
    return column


def swizzle(row: int, column: int) -> int:
    return column ^ row


def column_read(lane: int, j: int) -> tuple[int, int]:
    return lane, j


def diagonal_read(lane: int, j: int) -> tuple[int, int]:
    return lane, (lane + j) % TILE


def row_read(lane: int, j: int) -> tuple[int, int]:
    return j, lane


@dataclass(frozen=True)
class Access:
    """How a transpose uses its tile; the same functions make the kernel and the picture.

    read   lane, j -> the (row, column) of the tile that the lane takes and stores: each warp makes requests j = 0..31
    kept   row, column -> the column in which shared memory keeps that element
    """

    name: str
    label: str
    line: str
    read: Callable[[int, int], tuple[int, int]] = column_read
    kept: Callable[[int, int], int] = straight


ACCESSES = (
    Access("column", "by columns", "out[left + j, top + lane] = tile[lane, j]"),
    Access("swizzled", "by columns, swizzled", "out[left + j, top + lane] = tile[lane, j ^ lane]", kept=swizzle),
    Access("diagonal", "by diagonals", "c = (lane + j) % 32; out[left + c, top + lane] = tile[lane, c]", read=diagonal_read),
    Access("row", "by rows", "out[left + lane, top + j] = tile[j, lane]", read=row_read),
)
YOURS = Access("yours", "your kernel", "{code}")


def access_of(settings: Mapping[str, Any]) -> Access:
    """The Access that the settings name. Raises UnknownName."""
    for access in (*ACCESSES, YOURS):
        if access.name == settings["access"]:
            return access
    raise UnknownName("access", settings["access"], [access.name for access in ACCESSES])


def warp_requests(settings: Mapping[str, Any]) -> list[Addresses]:
    """The 32 requests that read a tile: byte addresses of the lanes, from the tile's start."""
    access, size, pitch = access_of(settings), SIZES[settings["element"]], settings["pitch"]

    def address(lane: int, j: int) -> int:
        row, column = access.read(lane, j)
        return size * (pitch * row + access.kept(row, column))

    return [[address(lane, j) for lane in range(TILE)] for j in range(TILE)]


@cache
def transpose_by(access: Access, pitch: int, element: str) -> Any:
    """A transpose of whole tiles. Its indices are signed as a learner's are, so that all ways of reading a tile can be compared."""
    import numba
    from numba import cuda

    kept, read = cuda.jit(device=True)(access.kept), cuda.jit(device=True)(access.read)
    dtype = getattr(numba, element)

    @cuda.jit
    def transpose(a, out):
        tile = cuda.shared.array((TILE, pitch), dtype)
        lane, j = cuda.threadIdx.x, cuda.threadIdx.y
        left, top = cuda.blockIdx.x * TILE, cuda.blockIdx.y * TILE
        for k in range(0, TILE, ROWS):
            tile[j + k, kept(j + k, lane)] = a[top + j + k, left + lane]
        cuda.syncthreads()
        for k in range(0, TILE, ROWS):
            row, column = read(lane, j + k)
            out[left + column, top + row] = tile[row, kept(row, column)]

    return transpose


def with_constants(kernel: Any, pitch: int, element: str) -> Any:
    """The learner's kernel, compiled with other values of the global names it takes its tile's rows and type from: PITCH, float32."""
    import numba

    return with_globals(kernel, PITCH=pitch, float32=getattr(numba, element))


def reading_line(kernel: Any) -> str:
    """The line of a kernel (a, out) that writes out, stripped; its name where the source cannot be read."""
    if kernel is None:
        return ""
    try:
        lines = inspect.getsource(kernel.py_func).splitlines()
    except (OSError, TypeError):
        return str(kernel.py_func.__name__)
    return next((line.strip() for line in lines if "out[" in line), str(kernel.py_func.__name__))


def banks(kernel: Any = None) -> Panel:
    """The panel of lesson 02: an 8192 x 8192 transpose through a tile of 32 rows, whose length and use are the settings.

    kernel   a numba.cuda kernel of (a, out) with blocks of 32 x 8 threads, whose tile is (32, PITCH) of float32; offered as "your kernel"
    """
    accesses = ACCESSES if kernel is None else (YOURS, *ACCESSES)
    code = reading_line(kernel)
    turns = tuple((access.label, access.name) for access in accesses)
    controls = (
        Control("pitch", "PITCH", options(PITCHES), 32, slider=True, note="elements from one row of the tile to the next"),
        Control("access", "tile read", turns, accesses[0].name, note="how a warp walks through the tile"),
        Control("element", "element", options(tuple(SIZES)), "float32", note="what the matrix holds"),
        device_control(),
    )
    mine = cache(lambda pitch, element: with_constants(kernel, pitch, element))

    def profile(settings: Mapping[str, Any]) -> Any:
        access, element, size = access_of(settings), settings["element"], SIZES[settings["element"]]
        arrays = tuple(room(element, role, SIDE * SIDE).reshape(SIDE, SIDE) for role in ("src", "dst"))
        work = Work.read("a", size * SIDE * SIDE) + Work.write("out", size * SIDE * SIDE)
        chosen = mine(settings["pitch"], element) if access is YOURS else transpose_by(access, settings["pitch"], element)
        return predict(chosen, (SIDE // TILE, SIDE // TILE), (TILE, ROWS), arrays, device=settings["device"], work=work)

    def line(settings: Mapping[str, Any]) -> str:
        shape = f"tile = cuda.shared.array((32, {settings['pitch']}), {settings['element']})"
        return f"{shape}; {access_of(settings).line.format(code=code)}"

    def pictures(settings: Mapping[str, Any], report: Any) -> dict[str, str]:
        site = next((access.line for access in shared_accesses(report.run) if access.kind == "load"), None)
        title = f"One warp reads the tile {access_of(settings).label}" if access_of(settings) is not YOURS else ""
        return {"banks": drawn(report.run, warp_requests(settings), SIZES[settings["element"]], title=title, line=site)}

    def label(settings: Mapping[str, Any]) -> str:
        access = access_of(settings)
        return f"{access.name} {settings['pitch']}" + ("" if settings["element"] == "float32" else f" {settings['element']}")

    title = "Shared memory: which banks one warp asks for"
    return Panel("banks", title, controls, profile, line, label, pictures, banks_in_words, right=("bounds", "roofline"))


def banks_in_words(settings: Mapping[str, Any], report: Any) -> str:
    """Wavefronts and conflicts of the tile, and sectors of the global side: a cure of one must not spoil the other."""
    load, store, out = report.counts.shared_load, report.counts.shared_store, report.counts.global_store
    if not load.requests:
        return "No loads from shared memory."
    passes = load.wavefronts / load.requests
    return (
        f"Shared memory: {number(passes)} wavefront{'' if passes == 1 else 's'} per load, "
        f"{units.count(load.bank_conflicts)} bank conflicts in loads, {units.count(store.bank_conflicts)} in stores. "
        f"Global memory: {out.sectors_per_request:.3g} sectors per store."
    )
