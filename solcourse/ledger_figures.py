"""Pictures of fusion: the ledger apart and fused, byte by byte, and what it does to the time. Pure functions, records -> SVG string.

ledger: what crosses the memory bus, by tensor, and T_SOL. launches: the predicted launches one after the other, and the two savings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from solcourse import svg, units
from solcourse.hardware import DEFAULT_DEVICE, Device
from solcourse.hardware import device as find_device
from solcourse.roofline import sol_bound, sol_time_s
from solcourse.work import Work

Launches = Work | Sequence[Work]  # one launch, or several one after the other
MOST_TENSORS = 10  # with a row of their own
LIMITS = {"dram": "DRAM", "tensor": "tensor cores"}  # roofline.sol_bound in plain words
MOST_SEGMENTS = 24  # launches that get a segment each


def works(launches: Launches) -> tuple[Work, ...]:
    return (launches,) if isinstance(launches, Work) else tuple(launches)


def bytes_of(launches: Launches) -> float:
    """Compulsory bytes of launches one after the other: what one leaves for the next crosses the bus twice."""
    return sum(work.compulsory_bytes for work in works(launches))


def light_s(launches: Launches, device: str | Device = DEFAULT_DEVICE) -> float:
    """T_SOL of launches one after the other: each has its own. The sum of maxima, not the maximum of sums."""
    return sum(sol_time_s(work, device) for work in works(launches))


def saved(before: float, after: float) -> float:
    """
    >>> saved(5.0, 3.0)
    0.4
    """
    return 1 - after / before if before else 0.0


def tensors(ledgers: Mapping[str, Launches]) -> dict[str, dict[str, tuple[float, float]]]:
    """tensor -> ledger -> (bytes read, bytes written), in the order they come; of more than MOST_TENSORS the last but one share a row."""
    order = list(dict.fromkeys(term.name for launches in ledgers.values() for work in works(launches) for term in work.terms))
    extra = order[MOST_TENSORS - 2 : -1] if len(order) > MOST_TENSORS else []
    row_of = {name: f"{len(extra)} others" if name in extra else name for name in order}
    found: dict[str, dict[str, tuple[float, float]]] = {row: {} for row in row_of.values()}
    for ledger, launches in ledgers.items():
        for term in (term for work in works(launches) for term in work.terms):
            row = found[row_of[term.name]]
            read, written = row.get(ledger, (0.0, 0.0))
            row[ledger] = (read + term.bytes, written) if term.direction == "read" else (read, written + term.bytes)
    return found


def _amount(read: float, written: float) -> str:
    """ "268 MB r+w": what a bar stands for, whatever its colours."""
    ways = "+".join(way for way, n in (("r", read), ("w", written)) if n)
    return f"{units.size(read + written)} {ways}" if ways else "none"


def _cells(rows: Mapping[str, Mapping[str, tuple[float, float]]], names: Sequence[str], place: Any, top: float) -> Iterator[str]:
    most = max((sum(cell) for row in rows.values() for cell in row.values()), default=0) or 1
    for n, (tensor, row) in enumerate(rows.items()):
        y = top + 20 * n
        yield svg.text(place.left - 8, y + 12, svg.shorten(tensor, 14), anchor="end")
        for column, name in enumerate(names):
            read, written = row.get(name, (0.0, 0.0))
            x, split, end = place.x(column), place.bar * read / most, place.bar * (read + written) / most
            yield svg.rect(x, y + 1, split, 14, svg.BLUE)
            yield svg.rect(x + split, y + 1, end - split, 14, svg.ORANGE)
            yield svg.text(x + end + 5, y + 12, _amount(read, written), size=11, opacity=None if read + written else svg.FAINT)


class _Columns:
    """Where the columns of ledgers stand: a name, then a bar with its amount for each."""

    left, bar, wide = 96, 84, 186

    def x(self, column: int) -> float:
        return self.left + self.wide * column


def ledger(ledgers: Mapping[str, Launches], device: str | Device = DEFAULT_DEVICE) -> str:
    """Ledgers side by side: a row for each tensor, blue what is read, orange what is written; then the sums, T_SOL, and what is saved.

    The last ledger is compared with the first.
    """
    gpu, place, names, top = find_device(device), _Columns(), list(ledgers), 40
    rows = tensors(ledgers)
    end = top + 20 * len(rows)
    width = place.x(len(names))
    totals = [(units.size(float(bytes_of(ledgers[name]))), units.seconds(light_s(ledgers[name], gpu))) for name in names]
    children = [svg.text(place.x(n), 16, name, font_weight="bold") for n, name in enumerate(names)]
    children += [svg.text(place.x(n), 31, _how_many(works(ledgers[name])), size=11, opacity=svg.FAINT) for n, name in enumerate(names)]
    children += _cells(rows, names, place, top)
    children.append(svg.line(8, end + 4, width - 8, end + 4, opacity=svg.FAINT))
    for n, (nbytes, time_s) in enumerate(totals):
        children += [svg.text(place.x(n), end + 20, nbytes, font_weight="bold"), svg.text(place.x(n), end + 37, time_s, font_weight="bold")]
    children += [svg.text(place.left - 8, end + 20, "bytes", anchor="end"), svg.text(place.left - 8, end + 37, "T_SOL", anchor="end")]
    closing = _closing(ledgers, gpu)
    children += [svg.text(8, end + 57 + 16 * n, line, size=11) for n, line in enumerate(closing)]
    bottom = end + 58 + 16 * len(closing)
    children += _legend(8, bottom, (("read (r)", svg.BLUE), ("written (w)", svg.ORANGE)), f"T_SOL on {gpu.name}")
    said = ". ".join(
        f"{name}: " + ", ".join(f"{tensor} {_amount(*row.get(name, (0.0, 0.0)))}" for tensor, row in rows.items())
        + f"; {nbytes} in all, T_SOL {time_s}"
        for name, (nbytes, time_s) in zip(names, totals, strict=True)
    )  # fmt: skip
    return svg.document(width, bottom + 8, f"Ledger of bytes on {gpu.name}. {said}. {' '.join(closing)}".strip(), children)


def _how_many(launches: Sequence[Any]) -> str:
    return "1 launch" if len(launches) == 1 else f"{len(launches)} launches"


def _closing(ledgers: Mapping[str, Launches], gpu: Device) -> tuple[str, ...]:
    """What the last ledger saves of the first, and what limited that one; nothing of one ledger alone."""
    if len(ledgers) < 2:
        return ()
    first, last = list(ledgers.values())[0], list(ledgers.values())[-1]
    by_bytes = saved(bytes_of(first), bytes_of(last))
    by_time = saved(light_s(first, gpu), light_s(last, gpu))
    limits = dict.fromkeys(sol_bound(work, gpu) for work in works(first) if work.terms or work.flops)
    binds = " and ".join(LIMITS.get(limit, limit) for limit in limits)
    return f"Saved: {units.percent(by_bytes)} of the bytes, {units.percent(by_time)} of T_SOL.", f"{list(ledgers)[0]}: limited by {binds}."


def _legend(x: float, y: float, keys: Sequence[tuple[str, str]], note: str) -> list[str]:
    children = []
    for name, colour in keys:
        children += [svg.rect(x, y - 9, 10, 10, colour), svg.text(x + 14, y, name, size=11)]
        x += 26 + 6.2 * len(name)
    return [*children, svg.text(x + 4, y, note, size=11, opacity=svg.FAINT)]


# ------------------------------------------------------------------------------------------------------------------- time
def launches(apart: Sequence[Any], fused: Any, before: Launches, after: Launches) -> str:
    """The predicted times of the separate launches, end to end, above that of the fused one; then the share of bytes and of time saved.

    apart, fused    their Reports; orange is the start-up of a launch, blue its body
    before, after   their ledgers
    """
    left, span, right = 96, 230, 440
    whole = sum(report.time_s for report in apart)
    most = max(whole, fused.time_s)
    by_bytes, by_time = saved(bytes_of(before), bytes_of(after)), saved(whole, fused.time_s)
    children = [
        svg.text(8, 15, f"Launch after launch, {fused.origin}", font_weight="bold"),
        svg.text(right, 15, fused.device.name, size=11, anchor="end"),
    ]
    for n, (name, reports, time_s) in enumerate((("apart", apart, whole), ("fused", [fused], fused.time_s))):
        y = 28 + 24 * n
        children += [svg.text(left - 8, y + 13, name, anchor="end"), *_segments(reports, left, y, span / most)]
        children.append(svg.text(left + span * time_s / most + 6, y + 13, units.seconds(time_s)))
    for n, (name, share) in enumerate((("bytes saved", by_bytes), ("time saved", by_time))):
        y = 86 + 22 * n
        children += [svg.text(left - 8, y + 13, name, anchor="end"), svg.rect(left, y + 2, span * max(share, 0.0), 14, svg.GREEN)]
        children.append(svg.text(left + span + 8, y + 13, units.percent(share), font_weight="bold"))
    children.append(svg.path(f"M{left} 84V130M{left + span} 84V130", stroke=svg.INK, opacity=svg.FAINT))
    children.append(svg.text(left + span, 142, "all of it", size=11, anchor="middle", opacity=svg.FAINT))
    children += _legend(8, 158, (("start-up", svg.ORANGE), ("body", svg.BLUE)), "of each launch")
    each = ", ".join(f"{report.kernel} {units.seconds(report.time_s)}" for report in apart[:MOST_SEGMENTS])
    takes = f"{_how_many(apart)} apart {'takes' if len(apart) == 1 else 'take'}"
    label = (
        f"{takes} {units.seconds(whole)} {fused.origin} on {fused.device.name} ({each}), fused "
        f"{units.seconds(fused.time_s)}: {units.percent(by_bytes)} of the bytes saved, {units.percent(by_time)} of the time"
    )
    return svg.document(448, 166, label, children)


def _segments(reports: Sequence[Any], left: float, y: float, scale: float) -> Iterator[str]:
    """One box for each launch, its start-up first. Too many to tell apart: all start-ups in one, then all bodies."""
    starts = [report.bounds.get("launch", 0.0) for report in reports]
    pairs = [(start, report.time_s - start) for start, report in zip(starts, reports, strict=True)]
    if len(pairs) > MOST_SEGMENTS:
        pairs = [(sum(starts), sum(body for _, body in pairs))]
    x = left
    for start, body in pairs:
        yield svg.rect(x, y, scale * start, 18, svg.ORANGE)
        # a gap of a pixel says where one launch ends
        yield svg.rect(x + scale * start, y, max(scale * body - 1, 0.5), 18, svg.BLUE)
        x += scale * (start + body)
