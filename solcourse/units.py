"""The only place that writes "GB/s", "µs", "TFLOP/s": base units in, short text out. The definition of how a number looks.

Three significant digits, decimal prefixes (1 GB = 10^9 bytes) except `binary_size`. None and NaN, "not known", read "unknown".
"""

from __future__ import annotations

import math

UNKNOWN = "unknown"
_PREFIXES = ((1e-9, "n"), (1e-6, "µ"), (1e-3, "m"), (1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"))


def _three_digits(value: float) -> str:
    """Three significant digits without an exponent: 1.23, 12.3, 123, 1234."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    if len(text.replace("-", "").replace(".", "").lstrip("0")) > 3 and digits:  # 9.996 -> "10.00": one digit too many
        text = f"{value:.{digits - 1}f}"
    return text


def _scaled(value: float | None, unit: str, smallest: str = "n", largest: str = "P", base: float = 1000.0) -> str:
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}∞ {unit}"
    names = [name for _, name in _PREFIXES]
    usable = _PREFIXES[names.index(smallest) : names.index(largest) + 1]
    # 999.6 µs would print as 1000 µs: choose by the rounded number
    rounded = abs(value) if value == 0 else float(f"{abs(value):.2e}")
    scale, prefix = next(((s, p) for s, p in reversed(usable) if rounded >= s * (1 - 1e-12)), usable[0])
    if value == 0:
        scale, prefix = 1.0, ""
    return f"{_three_digits(value / scale)} {prefix}{unit}"


def seconds(time_s: float | None) -> str:
    """A time, from seconds.

    >>> seconds(12.345e-6), seconds(0.9996e-3), seconds(2.5)
    ('12.3 µs', '1.00 ms', '2.50 s')
    """
    return _scaled(time_s, "s", largest="")


def size(bytes: float | None) -> str:
    """A number of bytes, decimal prefixes (as bandwidths have).

    >>> size(138_936_320), size(12)
    ('139 MB', '12 B')
    """
    return _whole(bytes, "B") or _scaled(bytes, "B", smallest="", largest="T")


def binary_size(bytes: float | None) -> str:
    """A capacity in KiB or MiB, as caches and shared memory are stated.

    >>> binary_size(40 * 2**20), binary_size(164 * 1024), binary_size(126.5 * 2**20)
    ('40 MiB', '164 KiB', '126.5 MiB')
    """
    if bytes is None or math.isnan(bytes):
        return UNKNOWN
    for scale, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(bytes) >= scale:
            return f"{bytes / scale:.4g} {unit}"
    return f"{bytes:.4g} B"


def bytes_per_s(rate: float | None) -> str:
    """A bandwidth, from bytes per second.

    >>> bytes_per_s(2.039e12)
    '2.04 TB/s'
    """
    return _scaled(rate, "B/s", smallest="")


def flops(count: float | None) -> str:
    """An amount of floating-point work (not a rate).

    >>> flops(107.374e9)
    '107 GFLOP'
    """
    return _whole(count, "FLOP") or _scaled(count, "FLOP", smallest="")


def flops_per_s(rate: float | None) -> str:
    """A compute rate, from FLOP per second.

    >>> flops_per_s(19.49e12)
    '19.5 TFLOP/s'
    """
    return _scaled(rate, "FLOP/s", smallest="")


def clock(rate_hz: float | None) -> str:
    """A clock, MHz, from Hz.

    >>> clock(1.41e9)
    '1410 MHz'
    """
    return UNKNOWN if rate_hz is None or math.isnan(rate_hz) else f"{rate_hz / 1e6:.0f} MHz"


def intensity(flop_per_byte: float | None) -> str:
    """An arithmetic intensity.

    >>> intensity(9.5586), intensity(float("inf"))
    ('9.56 FLOP/B', '∞ FLOP/B')
    """
    return _scaled(flop_per_byte, "FLOP/B", smallest="", largest="")


def count(number: float | None) -> str:
    """A count: exact with thousands separators below ten million, short above.

    >>> count(1048576), count(2_147_483_648)
    ('1,048,576', '2.15 G')
    """
    if number is None or math.isnan(number):
        return UNKNOWN
    if abs(number) < 1e7 and float(number).is_integer():
        return f"{int(number):,}"
    return _scaled(number, "", smallest="").rstrip()


def percent(fraction: float | None) -> str:
    """A fraction 0..1 as percent.

    >>> percent(0.641), percent(0.0005), percent(1.0)
    ('64.1 %', '0.1 %', '100.0 %')
    """
    return UNKNOWN if fraction is None or math.isnan(fraction) else f"{100 * fraction:.1f} %"


def score(value: float | None) -> str:
    """A score (sol_score, anchored_score), two decimals; below 0.1 two significant digits.

    >>> score(0.8349), score(0.0312), score(None)
    ('0.83', '0.031', 'unknown')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    return f"{value:.2f}" if abs(value) >= 0.0995 or value == 0 else f"{value:.2g}"


def factor(ratio: float | None) -> str:
    """A ratio of two times or rates.

    >>> factor(1.8), factor(123.4)
    ('1.80x', '123x')
    """
    return UNKNOWN if ratio is None or math.isnan(ratio) else "∞x" if math.isinf(ratio) else f"{_three_digits(ratio)}x"


def _whole(value: float | None, unit: str) -> str:
    """Small whole numbers keep all their digits: "12 B", not "12.0 B". Empty where that does not apply."""
    if value is None or not math.isfinite(value) or abs(value) >= 1000 or not float(value).is_integer():
        return ""
    return f"{int(value)} {unit}"
