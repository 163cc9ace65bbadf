"""A program's profile as text, HTML and JSON: one table of kernels, then each kernel's shapes and the report of its heaviest launch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from solcourse import report_html, report_text, units, what_if_looks
from solcourse.launches import MOST_SHAPES, launched, named
from solcourse.report_json import as_dict as report_as_dict

if TYPE_CHECKING:
    from solcourse.launches import KernelLaunches, Launches, Row

MOST_ROWS = 12
KERNELS = ("share", "predicted", "launches", "kernel")
SHAPES = ("predicted", "launches", "each", "grid", "block", "arguments")
NOTHING = "No kernel was launched."
UNRECORDED = "Launches are not recorded: use_engine(profile=True) does it, or `solcourse run --profile`."


def _share(kernel: KernelLaunches, launches: Launches) -> str:
    return f"{100 * kernel.time_s / launches.time_s:.0f} %" if launches.time_s else ""


def _place(kernel: KernelLaunches) -> str:
    return f"{os.path.basename(kernel.file)}, line {kernel.line}"


def _kernel_rows(launches: Launches) -> list[tuple[str, ...]]:
    return [
        (_share(k, launches), units.seconds(k.time_s), f"{k.launches:,}", f"{k.name} ({_place(k)})") for k in launches.kernels
    ]  # fmt: skip


def _dims(dims: tuple[int, int, int]) -> str:
    last = max((i for i in range(3) if dims[i] != 1), default=0)
    return " x ".join(f"{n:,}" for n in dims[: last + 1])


def _shape_rows(kernel: KernelLaunches) -> list[tuple[str, ...]]:
    def cells(row: Row) -> tuple[str, ...]:
        about = "" if row.report else "~"
        shape = row.shape
        dynamic = f", {shape.dynamic_shared_bytes:,} B dynamic shared" if shape.dynamic_shared_bytes else ""
        arguments = ", ".join(shape.arguments) + dynamic
        each = about + units.seconds(kernel.each_s(row))
        return about + units.seconds(kernel.row_s(row)), f"{row.launches:,}", each, _dims(shape.grid), _dims(shape.block), arguments

    return [cells(row) for row in kernel.rows[:MOST_ROWS]]


def _title(launches: Launches) -> str:
    return (
        f"{named(launches.kernels)}, {launched(launches.launches)} on {launches.device.name}: "
        f"predicted {units.seconds(launches.time_s)} in kernels, without copies and the host's work"
    )


def _kernel_title(kernel: KernelLaunches, launches: Launches) -> str:
    share = _share(kernel, launches)
    return f"{kernel.name} ({_place(kernel)}): {launched(kernel.launches)}, predicted {units.seconds(kernel.time_s)}, {share} of the total"


def _notes(kernel: KernelLaunches) -> Iterator[str]:
    """What the table does not show."""
    rows = kernel.rows
    if len(rows) > MOST_ROWS:
        rest = rows[MOST_ROWS:]
        left = f"{launched(sum(row.launches for row in rest))}, {units.seconds(sum(map(kernel.row_s, rest)))}"
        yield f"... and {len(rest)} shapes more: {left}."
    if kernel.launches > sum(1 for row in rows if row.report):
        yield "The first launch of each shape was counted in full; the others of that shape are taken to do the same."
    warm = sum(row.launches - row.states.get((0, 0), 0) for row in rows if row.report)
    if warm:
        found = sum(row.found * row.launches for row in rows if row.report) / sum(row.launches for row in rows if row.report)
        yield (
            f"{launched(warm)} found in L2 what launches before had left there, on average {100 * found:.0f} % of what a launch reads: "
            "the times above count that, the report below is of a launch that finds nothing."
        )
    if not all(row.report for row in rows):
        yield f"~ : of more than {MOST_SHAPES} shapes, those that were no larger than one before take the time of the nearest counted one."
    copied = sum(row.launches * row.shape.host_bytes for row in rows)
    if copied:
        yield (
            f"Arrays in the host's memory were passed to it: numba copies them to the GPU and back around every launch, "
            f"{units.size(copied)} each way in all, which is not in these times. cuda.to_device keeps them on the GPU."
        )


# ---------------------------------------------------------------------------------------------------------------------- text
def _columns(head: Sequence[str], rows: Sequence[Sequence[str]], last_left: int) -> Iterator[str]:
    """A table as lines: numbers to the right, the last `last_left` columns to the left."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        cells = [cell.rjust(w) for cell, w in zip(row, widths, strict=True)]
        for i in range(len(head) - last_left, len(head)):
            cells[i] = row[i].ljust(widths[i])
        yield ("  " + "  ".join(cells)).rstrip()


def text(launches: Launches) -> str:
    """The whole profile as text, heaviest kernel first."""
    if not launches.kernels:
        return NOTHING if launches.recording else UNRECORDED
    out = [_title(launches), "", *_columns(KERNELS, _kernel_rows(launches), 1)]
    for kernel in launches.kernels:
        out += ["", "-" * report_text.WIDTH, _kernel_title(kernel, launches), ""]
        out += _columns(SHAPES, _shape_rows(kernel), 3)
        for note in _notes(kernel):
            out += report_text._wrapped(note, "  ")
        out += ["", "its heaviest launch:" if kernel.launches > 1 else "the launch:", "", report_text.text(kernel.heaviest)]
        out += ["", str(kernel.heaviest.on_all())] if launches.on_all else []
    return "\n".join(out)


# ---------------------------------------------------------------------------------------------------------------------- HTML
def html(launches: Launches) -> str:
    """The whole profile as one HTML fragment; each kernel's part is folded away."""
    if not launches.kernels:
        return f"<div>{escape(NOTHING if launches.recording else UNRECORDED)}</div>"
    table, folded = report_html._table, report_html._folded
    rows = [[escape(cell) for cell in row] for row in _kernel_rows(launches)]
    parts = [table(KERNELS, rows, ("right", "right", "right", "left"), _title(launches))]
    for kernel in launches.kernels:
        shapes = [[escape(cell) for cell in row] for row in _shape_rows(kernel)]
        aligns = ("right", "right", "right", "left", "left", "left")
        inner = table(SHAPES, shapes, aligns, "") + report_html._list(_notes(kernel)) + report_html.html(kernel.heaviest)
        inner += what_if_looks.devices_html(kernel.heaviest.on_all()) if launches.on_all else ""
        parts.append(folded(_kernel_title(kernel, launches), inner))
    return f'<div style="line-height:1.45;max-width:72em">{"".join(parts)}</div>'


def page(launches: Launches) -> str:
    """The profile as a page that stands alone."""
    return report_html._PAGE.format(title=escape(f"Profile on {launches.device.name}"), body=html(launches))


# ---------------------------------------------------------------------------------------------------------------------- JSON
def as_dict(launches: Launches) -> dict[str, Any]:
    """The profile as plain dicts, lists, numbers and strings in base units."""

    def row_dict(kernel: KernelLaunches, row: Row) -> dict[str, Any]:
        shape = row.shape
        return {
            "launches": row.launches,
            "time_s": kernel.row_s(row),
            "each_s": kernel.each_s(row),
            "counted": row.report is not None,
            "read_from_l2_left_by_others": row.found,
            "grid": list(shape.grid),
            "block": list(shape.block),
            "dynamic_shared_bytes": shape.dynamic_shared_bytes,
            "arguments": list(shape.arguments),
            "host_bytes": shape.host_bytes,
        }

    kernels = [
        {
            "kernel": k.name,
            "file": k.file,
            "line": k.line,
            "launches": k.launches,
            "time_s": k.time_s,
            "shapes": [row_dict(k, row) for row in k.rows],
            "heaviest": report_as_dict(k.heaviest),
            **({"on_all": k.heaviest.on_all().to_dict()} if launches.on_all else {}),
        }
        for k in launches.kernels
    ]
    return {"device": launches.device.name, "launches": launches.launches, "time_s": launches.time_s, "kernels": kernels}


def as_json(launches: Launches) -> str:
    return json.dumps(as_dict(launches), allow_nan=False, indent=1, ensure_ascii=False) + "\n"
