"""Accuracy against observed leakage, with the Pareto front; accuracy against epsilon; bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedassay.record import Metric, RunRecord
from fedassay.reports.figures.svg import (
    Datum,
    Figure,
    Frame,
    Scale,
    drawing,
    linear_scale,
    log_scale,
    marker,
    polygon,
    polyline,
    tag,
    text,
)
from fedassay.reports.groups import Group, groups, over_seeds
from fedassay.reports.leakage import MEASURES, Measure
from fedassay.reports.numbers import short, significant, size
from fedassay.reports.privacy_tables import leakage_over_seeds, utility_over_seeds

WIDTH, HEIGHT = 420.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 404.0, 34.0, 246.0


@dataclass(frozen=True)
class Point:
    """A group in a privacy-utility plot."""

    group: Group
    leak: Metric
    accuracy: Metric
    front: bool


def labels(record: RunRecord) -> tuple[str, ...]:
    """Method entries in the order of the record; the order gives colour and marker everywhere."""
    return tuple(dict.fromkeys(cell.label for cell in record.cells))


def pareto(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Which points no other point beats, leaking no more and being at least as accurate.

    Args:
        points: (leakage, accuracy) of each.

    Example:
        >>> pareto([(0.1, 0.8), (0.2, 0.9), (0.3, 0.85)])
        [True, True, False]
    """
    return [
        not any(other[0] <= point[0] and other[1] >= point[1] and other != point for other in points)
        for point in points
    ]


def privacy_utility(record: RunRecord) -> tuple[Figure, ...]:
    """One plot per leakage measure that some cell has."""
    figures = [_against(record, measure) for measure in MEASURES]
    return tuple(figure for figure in figures if figure is not None)


def _against(record: RunRecord, measure: Measure) -> Figure | None:
    measured: list[tuple[Group, Metric, Metric]] = []
    absent: list[str] = []
    for group in groups(record):
        leak, accuracy = leakage_over_seeds(group, measure.name), utility_over_seeds(group, "accuracy")
        if leak.value is None or accuracy.value is None or not math.isfinite(leak.value):
            absent.append(f"{group.label} at ε = {short(group.epsilon)} ({leak.reason or accuracy.reason})")
        else:
            measured.append((group, leak, accuracy))
    if not measured:
        return None
    pairs = [(leak.value or 0.0, accuracy.value or 0.0) for _, leak, accuracy in measured]
    points = [
        Point(group, leak, accuracy, front)
        for (group, leak, accuracy), front in zip(measured, pareto(pairs), strict=True)
    ]
    name = f"accuracy_{measure.name}"
    title = (
        f"Accuracy against {measure.title[0].lower()}{measure.title[1:]}"
        if measure.name != "auc"
        else ("Accuracy against membership AUC")
    )
    best = ", ".join(f"{p.group.label} at ε = {short(p.group.epsilon)}" for p in points if p.front)
    told = "; ".join(
        f"{p.group.label} at ε = {short(p.group.epsilon)}: {significant(p.leak.value)}, accuracy "
        f"{significant(p.accuracy.value)}"
        for p in points
    )
    note = measure.definition
    if absent:
        note += f" Not placed: {'; '.join(absent)}."
    rows: tuple[tuple[Datum, ...], ...] = tuple(
        (
            p.group.label,
            p.group.method,
            p.group.epsilon,
            p.group.delta,
            p.leak.value,
            p.leak.low,
            p.leak.high,
            p.accuracy.value,
            p.accuracy.low,
            p.accuracy.high,
            "yes" if p.front else "no",
        )
        for p in points
    )
    columns = (
        "label",
        "method",
        "epsilon",
        "delta",
        measure.name,
        f"{measure.name}_low",
        f"{measure.name}_high",
        "accuracy",
        "accuracy_low",
        "accuracy_high",
        "pareto",
    )
    description = f"{told}. On the Pareto front: {best}."
    svg = drawing(name, WIDTH, HEIGHT, title, description, _scatter(record, points, measure))
    return Figure(name, title, description, svg, columns, rows, note=note)


def _scatter(record: RunRecord, points: Sequence[Point], measure: Measure) -> list[str]:
    leaks = [
        v for p in points for v in (p.leak.value, p.leak.low, p.leak.high) if v is not None and math.isfinite(v)
    ]
    good = [v for p in points for v in (p.accuracy.value, p.accuracy.low, p.accuracy.high) if v is not None]
    zero = {"auc": 0.5}.get(measure.name, 0.0)
    x = linear_scale(leaks, _LEFT, _RIGHT, include=[zero])
    frame = Frame(x, linear_scale(good, _BOTTOM, _TOP, pad=0.12))
    out = [frame.axes(f"{measure.title} →  leaks more", "Accuracy")]
    out.append(tag("line", x1=x(zero), x2=x(zero), y1=_TOP, y2=_BOTTOM, class_="zero"))
    front = sorted(
        ((p.leak.value or 0.0, p.accuracy.value or 0.0) for p in points if p.front), key=lambda pair: pair
    )
    out.append(polyline([(x(a), frame.y(b)) for a, b in front], "front"))
    order = labels(record)
    taken: list[tuple[float, float]] = []
    for point in points:
        assert point.leak.value is not None
        assert point.accuracy.value is not None
        cx, cy = x(point.leak.value), frame.y(point.accuracy.value)
        index = order.index(point.group.label)
        if point.leak.low is not None and point.leak.high is not None:
            low, high = x(point.leak.low), x(min(point.leak.high, x.high))
            out.append(tag("line", x1=low, x2=high, y1=cy, y2=cy, class_=f"whisker s{index % 8}"))
        if point.accuracy.low is not None and point.accuracy.high is not None:
            low, high = frame.y(point.accuracy.low), frame.y(point.accuracy.high)
            out.append(tag("line", x1=cx, x2=cx, y1=low, y2=high, class_=f"whisker s{index % 8}"))
        if point.front:
            out.append(tag("circle", cx=cx, cy=cy, r=9, class_="front-ring"))
        out.append(marker(index, cx, cy, hollow=math.isinf(point.group.epsilon)))
        words = f"{point.group.label} {'∞' if math.isinf(point.group.epsilon) else short(point.group.epsilon)}"
        out.append(_placed(words, cx, cy, taken))
    out.append(tag("circle", cx=_LEFT + 6, cy=HEIGHT - 8, r=6, class_="front-ring"))
    out.append(text(_LEFT + 18, HEIGHT - 4, "Pareto front; hollow: ε = ∞", "tick"))
    return out


def _placed(words: str, x: float, y: float, taken: list[tuple[float, float]]) -> str:
    """A label beside its point, moved off labels already there."""
    length = len(words) * 5.6
    right = x + 12 + length < _RIGHT + 10
    for shift in (3.5, -9, 16, -21, 28, -33, 40):
        spot = (x + 12 if right else x - 12 - length, y + shift)
        if _TOP - 4 < spot[1] < _BOTTOM + 2 and not any(
            abs(spot[1] - other[1]) < 11 and abs(spot[0] - other[0]) < length for other in taken
        ):
            break
    taken.append(spot)
    return text(x + 12 if right else x - 12, spot[1], words, "point-label", "start" if right else "end")


def accuracy_epsilon(record: RunRecord) -> Figure | None:
    """Accuracy against epsilon, one line per method entry, with a band over seeds."""
    swept = {g.epsilon for g in groups(record)}
    measured = [(g, utility_over_seeds(g, "accuracy")) for g in groups(record)]
    measured = [(group, accuracy) for group, accuracy in measured if accuracy.value is not None]
    finite = sorted(epsilon for epsilon in swept if math.isfinite(epsilon))
    if not measured or not finite:
        return None
    infinite = math.inf in swept
    infinity = _RIGHT - 10
    x = log_scale(finite, _LEFT + 6, _RIGHT - (50 if infinite else 6))
    values = [v for _, m in measured for v in (m.value, m.low, m.high) if v is not None]
    frame = Frame(Scale(x.low, x.high, _LEFT, _RIGHT, log=True), linear_scale(values, _BOTTOM, _TOP, pad=0.1))
    out = [_epsilon_axis(frame, x, infinity if infinite else None)]
    order, ends = labels(record), []
    for label in order:
        line = sorted(((g, m) for g, m in measured if g.label == label), key=lambda pair: pair[0].epsilon)
        spots = [
            (infinity if math.isinf(g.epsilon) else x(g.epsilon), frame.y(m.value), m, g)
            for g, m in line
            if m.value is not None
        ]
        index = order.index(label)
        band = [
            (a, frame.y(m.low), frame.y(m.high))
            for a, _, m, _ in spots
            if m.low is not None and m.high is not None
        ]
        if len(band) > 1:
            out.append(
                polygon(
                    [(a, high) for a, _, high in band] + [(a, low) for a, low, _ in band[::-1]],
                    f"band s{index % 8}",
                )
            )
        out.append(polyline([(a, b) for a, b, _, _ in spots], f"line s{index % 8}"))
        out += [marker(index, a, b, hollow=math.isinf(g.epsilon)) for a, b, _, g in spots]
        if spots:
            ends.append((label, index))
    out += legend(ends, _LEFT, HEIGHT - 2, WIDTH)
    rows: tuple[tuple[Datum, ...], ...] = tuple(
        (g.label, g.method, g.epsilon, g.delta, m.value, m.low, m.high, len(g.cells)) for g, m in measured
    )
    described = (
        "; ".join(f"{g.label} at ε = {short(g.epsilon)}: {significant(m.value)}" for g, m in measured) + "."
    )
    title = "Accuracy against epsilon"
    several = any(len(g.cells) > 1 for g, _ in measured)
    note = (
        "Lines join the mean over seeds; the band is the range over seeds."
        if several
        else ("One seed; a band is the 95 % interval over test records where the record holds one.")
    )
    svg = drawing("accuracy_epsilon", WIDTH, HEIGHT + extra_height(ends, WIDTH), title, described, out)
    columns = ("label", "method", "epsilon", "delta", "accuracy", "low", "high", "seeds")
    return Figure("accuracy_epsilon", title, described, svg, columns, rows, note=note)


def _epsilon_axis(frame: Frame, x: Scale, infinity: float | None) -> str:
    out = []
    for tick in frame.y.ticks():
        out.append(tag("line", x1=_LEFT, x2=_RIGHT, y1=frame.y(tick), y2=frame.y(tick), class_="grid"))
        out.append(text(_LEFT - 6, frame.y(tick) + 3.5, short(tick), "tick", "end"))
    for tick in x.ticks(5):
        out.append(tag("line", x1=x(tick), x2=x(tick), y1=_BOTTOM, y2=_BOTTOM + 4, class_="axis"))
        out.append(text(x(tick), _BOTTOM + 16, short(tick), "tick", "middle"))
    if infinity is None:
        out.append(tag("line", x1=_LEFT, x2=_RIGHT, y1=_BOTTOM, y2=_BOTTOM, class_="axis"))
    else:
        middle = (x.end + infinity) / 2
        out.append(tag("line", x1=_LEFT, x2=middle - 4, y1=_BOTTOM, y2=_BOTTOM, class_="axis"))
        out.append(tag("line", x1=middle + 4, x2=_RIGHT, y1=_BOTTOM, y2=_BOTTOM, class_="axis"))
        for shift in (-4, 4):
            at = middle + shift
            out.append(tag("line", x1=at - 2, x2=at + 2, y1=_BOTTOM + 5, y2=_BOTTOM - 5, class_="axis"))
        out.append(text(infinity, _BOTTOM + 17, "∞", "tick infinity", "middle"))
    out.append(text(_RIGHT, _BOTTOM + 31, "ε asked of the method", "axis-title", "end"))
    out.append(text(_LEFT - 34, _TOP - 10, "Accuracy", "axis-title"))
    return "".join(out)


def legend(entries: Sequence[tuple[str, int]], left: float, y: float, width: float) -> list[str]:
    """Markers with names, in as many lines as they need."""
    out, x = [], left
    for words, index in entries:
        step = 22 + len(words) * 6.2
        if x + step > width and x > left:
            x, y = left, y + 16
        out.append(marker(index, x + 5, y - 4))
        out.append(text(x + 14, y, words, "tick"))
        x += step
    return out


def extra_height(entries: Sequence[tuple[str, int]], width: float) -> float:
    """Height of a legend's lines."""
    lines, x = 1, _LEFT
    for words, _ in entries:
        step = 22 + len(words) * 6.2
        if x + step > width and x > _LEFT:
            x, lines = _LEFT, lines + 1
        x += step
    return 16.0 * lines


def bytes_up(record: RunRecord) -> Figure | None:
    """Bytes sent by the clients, one bar per method entry and epsilon."""
    rows = [
        (g, over_seeds(g.cells, lambda cell: cell.communication.get("bytes_up"), "not recorded"))
        for g in groups(record)
    ]
    rows = [(group, metric) for group, metric in rows if metric.value]
    if not rows:
        return None
    left = 150.0
    scale = log_scale([m.value for _, m in rows if m.value], left, WIDTH - 72)
    step = 24
    order, out = labels(record), []
    for index, (group, metric) in enumerate(rows):
        assert metric.value is not None
        y = 14 + index * step
        words = f"{group.label}, ε = {short(group.epsilon)}"
        out.append(text(left - 8, y + 4, words, "tick", "end"))
        width = scale(metric.value) - left
        out.append(
            tag("rect", x=left, y=y - 6, width=width, height=12, class_=f"fill s{order.index(group.label) % 8}")
        )
        out.append(text(left + width + 6, y + 4, size(metric.value), "tick"))
    bottom = 14 + len(rows) * step
    for tick in scale.ticks(4):
        out.append(text(scale(tick), bottom + 12, size(tick), "tick", "middle"))
    title = "Bytes up"
    described = "; ".join(f"{g.label} at ε = {short(g.epsilon)}: {size(m.value)}" for g, m in rows) + "."
    svg = drawing("bytes_up", WIDTH, bottom + 20, title, described, out)
    data: tuple[tuple[Datum, ...], ...] = tuple((g.label, g.method, g.epsilon, g.delta, m.value) for g, m in rows)
    return Figure(
        "bytes_up",
        title,
        described,
        svg,
        ("label", "method", "epsilon", "delta", "bytes_up"),
        data,
        note="Sent by all clients together, as serialized; logarithmic axis.",
    )
