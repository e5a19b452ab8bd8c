"""Curves: ROC on log axes, and sweeps of one quantity against another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedassay.records.record import Series
from fedassay.reports.document.figures.svg import (
    Datum,
    Figure,
    Frame,
    Scale,
    drawing,
    extra_height,
    hover,
    legend,
    linear_scale,
    log_scale,
    marker,
    polygon,
    polyline,
)
from fedassay.reports.document.series import finite, numbers, rows
from fedassay.reports.words.numbers import short, significant

WIDTH, HEIGHT = 420.0, 290.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 404.0, 34.0, 232.0
_MOST = 8
"""Curves in one plot; more could not be distinguished."""


@dataclass(frozen=True)
class Named:
    """A series and what it belongs to."""

    name: str
    series: Series


def roc(name: str, title: str, curves: Sequence[Named]) -> tuple[Figure, ...]:
    """ROC curves on log axes, a few to a plot.

    Args:
        name: Name of the figure; further plots get a number.
        title: Its title.
        curves: `roc` series with columns `fpr` and `tpr`, and optionally `tpr_low` and `tpr_high`.
    """
    usable = [curve for curve in curves if _roc_points(curve.series)]
    parts = [usable[start : start + _MOST] for start in range(0, len(usable), _MOST)]
    names = [name] if len(parts) == 1 else [f"{name}_{number + 1}" for number in range(len(parts))]
    return tuple(_roc(own, title, part) for own, part in zip(names, parts, strict=True))


def _pairs(series: Series, column: str) -> list[tuple[float, float]]:
    """Rates at false-positive rates that a log axis holds."""
    pairs = zip(numbers(series, "fpr"), numbers(series, column), strict=False)
    return [(a, b) for a, b in pairs if a is not None and b is not None and a > 0]


def _roc_points(series: Series) -> list[tuple[float, float]]:
    return [(a, b) for a, b in _pairs(series, "tpr") if b > 0]


def _roc(name: str, title: str, curves: Sequence[Named]) -> Figure:
    smallest = min(point[0] for curve in curves for point in _roc_points(curve.series))
    low = 10.0 ** math.floor(math.log10(min(smallest, 0.1)) + 1e-9)
    x = Scale(low, 1.0, _LEFT, _RIGHT, log=True)
    y = Scale(low, 1.0, _BOTTOM, _TOP, log=True)
    out = [
        Frame(x, y).axes("false positive rate", "True positive rate"),
        polyline([(x(low), y(low)), (x(1.0), y(1.0))], "front"),
    ]
    rows: list[tuple[Datum, ...]] = []
    told = []
    for index, curve in enumerate(curves):
        points = [(a, max(b, low)) for a, b in _roc_points(curve.series)]
        lower, upper = (_pairs(curve.series, column) for column in ("tpr_low", "tpr_high"))
        if lower and upper:
            # A value below the axis, such as 0, is drawn on it.
            edge = [(x(a), y(max(b, low))) for a, b in (*upper, *reversed(lower))]
            out.append(polygon(edge, f"band s{index}"))
        middle = points[len(points) * (index + 1) // (len(curves) + 1)]
        out += [
            hover(curve.name, polyline([(x(a), y(b)) for a, b in points], f"line s{index}")),
            marker(index, x(middle[0]), y(middle[1]), 3.6),
        ]
        rows += [(curve.name, a, b) for a, b in _roc_points(curve.series)]
        at = max((point for point in points if point[0] <= 0.01 * (1 + 1e-9)), default=None)
        told.append(
            f"{curve.name}: {significant(at[1])} of members found at {significant(at[0])} of others accused"
            if at
            else f"{curve.name}: no point at or below 1 % of others accused"
        )
    out += legend([(curve.name, index) for index, curve in enumerate(curves)], _LEFT, HEIGHT - 4, WIDTH)
    description = "; ".join(told) + "."
    height = HEIGHT + extra_height([(curve.name, 0) for curve in curves], WIDTH) - 12
    svg = drawing(name, WIDTH, height, title, description, out)
    note = (
        "Both axes logarithmic; the dashed line is guessing. What matters is the left edge: members found while "
        "hardly anybody is accused wrongly."
    )
    return Figure(name, title, description, svg, ("curve", "fpr", "tpr"), tuple(rows), note=note)


def sweep(name: str, about: str, series: Series) -> Figure | None:
    """A `sweep` series as curves over its first column; None where nothing is to be drawn."""
    columns = list(series.columns)
    if len(columns) < 2:
        return None
    across = numbers(series, columns[0])
    curves = {column: numbers(series, column) for column in columns[1:][:_MOST]}
    xs = finite(across)
    ys = [value for values in curves.values() for value in finite(values)]
    if len(xs) < 2 or not ys:
        return None
    x, y = _axis(xs, _LEFT, _RIGHT, 10.0), _axis(ys, _BOTTOM, _TOP, 100.0)
    out = [Frame(x, y).axes(columns[0], "")]
    for index, (column, values) in enumerate(curves.items()):
        piece: list[tuple[float, float]] = []
        for at, value in zip(across, values, strict=False):
            if at is None or value is None or not math.isfinite(value) or (y.log and value <= 0):
                if len(piece) > 1:
                    out.append(polyline(piece, f"line s{index}"))
                piece = []
                continue
            piece.append((x(at), y(value)))
            words = f"{column}: {significant(value)} at {short(at)}"
            out.append(hover(words, marker(index, x(at), y(value), 3.6)))
        if len(piece) > 1:
            out.append(polyline(piece, f"line s{index}"))
    out += legend([(column, index) for index, column in enumerate(curves)], _LEFT, HEIGHT - 4, WIDTH)
    title = f"{series.title}: {about}"
    told = [
        f"{column}: "
        + ", ".join(
            f"{significant(value) if value is not None else 'not measured'} at {short(at)}"
            for at, value in zip(across, values, strict=False)
            if at is not None
        )
        for column, values in curves.items()
    ]
    description = f"Against {columns[0].replace('_', ' ')}. " + "; ".join(told) + "."
    svg = drawing(name, WIDTH, HEIGHT + 16, title, description, out)
    return Figure(name, title, description, svg, tuple(columns), tuple(rows(series)))


def _axis(values: Sequence[float], start: float, end: float, ratio: float) -> Scale:
    """Logarithmic where positive values span more than `ratio`, else linear."""
    if min(values) > 0 and max(values) / min(values) >= ratio:
        return log_scale(values, start, end)
    return linear_scale(values, start, end)
