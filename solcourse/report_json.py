"""A Report as numbers for other programs: plain dicts and lists in base units, and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from solcourse.diagnosis import float32_sol_time_s

if TYPE_CHECKING:
    from solcourse.report import Report


def as_dict(report: Report) -> dict[str, Any]:
    """Fields and derived values as dicts, lists, numbers, strings and None; what is not finite is None."""
    shown = {f.name: _plain(getattr(report, f.name)) for f in fields(report) if f.name not in ("run", "prediction", "device")}
    lines = [{"file": h.file, "line": h.line, "text": h.text, "share": h.share, "counts": _plain(h.counts)} for h in report.hot_lines]
    shown |= {"device": report.device.name, "dram_bytes": _plain(report.dram_bytes), "sol_bound": report.sol_bound, "lines": lines}
    shown |= {"float32_sol_time_s": float32_sol_time_s(report), "interval_why": list(report.interval_why)}
    return shown | {"alarm": str(report.alarm) if report.alarm else None, "advice": [_plain(a) for a in report.advice]}


def as_json(report: Report) -> str:
    return json.dumps(as_dict(report), allow_nan=False, indent=1, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """Records, mappings, tuples and NumPy scalars as JSON's own types; what is not finite as None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.repr}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
