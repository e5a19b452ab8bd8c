"""Format of numbers: three significant figures, the interval, the n, the unit.

Numbers for computations are never rounded here; CSV tables hold full precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fedassay.records.record import Metric
from fedassay.support.epsilon import Epsilon

DASH = "–"
"""Printed for what was not measured; its reason stands in a footnote."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MINUS = "\N{MINUS SIGN}"


def significant(value: float | None) -> str:
    """A number to three significant figures; powers of ten outside [0.001, 1e6).

    Example:
        >>> [significant(v) for v in (0.95, 19.93, 1234.0, 9.999, -0.5, 0.0, 2e-11, float("inf"))]
        ['0.950', '19.9', '1,230', '10.0', '−0.500', '0', '2.00 × 10⁻¹¹', '∞']
    """
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    if value == 0:
        return "0"
    mantissa, exponent = _rounded(value)
    if not -3 <= exponent < 6:
        return f"{_sign(mantissa)} × 10{str(exponent).translate(_SUPERSCRIPTS)}"
    decimals = max(0, 2 - exponent)
    return _sign(f"{float(f'{value:.2e}'):,.{decimals}f}")


def short(value: float | None) -> str:
    """A parameter as somebody would write it: no trailing zeros.

    Example:
        >>> [short(v) for v in (10.0, 0.5, 6.1834, 1e-5, 2.5e-5, float("inf"))]
        ['10', '0.5', '6.18', '10⁻⁵', '2.5 × 10⁻⁵', '∞']
    """
    text = significant(value)
    head, cross, power = text.partition(" × ")
    if "." in head:
        head = head.rstrip("0").rstrip(".")
    if not cross:
        return head
    return power if head == "1" else f"{head}{cross}{power}"


def exact(value: float) -> str:
    """A parameter that names a cell: `short` where that is the whole number, every digit where it is not.

    Example:
        >>> [exact(v) for v in (10.0, 1e-5, 1.0000001, float("inf"))]
        ['10', '10⁻⁵', '1.0000001', '∞']
    """
    return short(value) if math.isinf(value) or float(f"{value:.2e}") == value else repr(value)


def with_kind(epsilon: Epsilon, number: Callable[[float], str] = short) -> str:
    """An epsilon with the unit and the relation that it is of: no text has one without them.

    Example:
        >>> with_kind(Epsilon(8.0, 1e-5, "add_remove", "person"))
        '8 (one person added or removed)'
    """
    return f"{number(epsilon.bare)} ({epsilon.kind.words})"


def beside(epsilon: Epsilon, other: Epsilon, number: Callable[[float], str] = significant) -> str:
    """An epsilon in a clause that has named the kind of another one: its own stands there where it differs."""
    return number(epsilon.bare) if epsilon.kind == other.kind else with_kind(epsilon, number)


def interval(metric: Metric, count: bool = True) -> str:
    """The 95 % interval and n of a metric, or an empty string where it has neither.

    Args:
        metric: The metric.
        count: Whether to print n; not where a column of its own has it.

    Example:
        >>> interval(Metric(value=0.9512, low=0.94, high=0.9611, n=300))
        '[0.940, 0.961] n = 300'
    """
    parts = []
    if metric.value is not None and metric.low is not None and metric.high is not None:
        parts.append(f"[{_beside(metric.value, metric.low)}, {_beside(metric.value, metric.high)}]")
    elif metric.value is not None and metric.low is not None:
        parts.append(f"at least {_beside(metric.value, metric.low)}")
    elif metric.value is not None and metric.high is not None:
        parts.append(f"at most {_beside(metric.value, metric.high)}")
    if count and metric.n is not None:
        parts.append(f"n = {metric.n:,}")
    return " ".join(parts)


def size(count: float | None) -> str:
    """A number of bytes in SI units.

    Example:
        >>> [size(v) for v in (812, 12345, 5.77e6)]
        ['812 B', '12.3 kB', '5.77 MB']
    """
    if count is None:
        return DASH
    scaled = float(count)
    if not math.isfinite(scaled):
        return significant(scaled)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(scaled) < 999.5 or unit == "TB":
            return f"{short(scaled)} {unit}" if unit == "B" else f"{significant(scaled)} {unit}"
        scaled /= 1000
    raise AssertionError("unreachable")


def duration(seconds: float) -> str:
    """Seconds as a person says them.

    Example:
        >>> [duration(v) for v in (0.0421, 12.34, 125.0, 3723.0)]
        ['0.0421 s', '12.3 s', '2 min 5 s', '1 h 2 min']
    """
    if not seconds >= 99.5 or math.isinf(seconds):
        return f"{significant(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _rounded(value: float) -> tuple[str, int]:
    mantissa, exponent = f"{value:.2e}".split("e")
    return mantissa, int(exponent)


def _beside(value: float, end: float) -> str:
    """An interval's end with as many decimals as its estimate, where that reads naturally."""
    if not math.isfinite(value) or not math.isfinite(end):
        return significant(end)
    decimals = 3 if value == 0 else max(0, 2 - _rounded(value)[1])
    if decimals > 6 or abs(end) >= 1e6:
        return significant(end)
    return _sign(f"{end:,.{decimals}f}")


def _sign(text: str) -> str:
    return text.replace("-", _MINUS, 1) if text.startswith("-") else text
