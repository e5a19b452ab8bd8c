"""What privacy costs: accuracy against epsilon, with a band over seeds, and bytes beside it."""

from __future__ import annotations

import math

from fedassay.record import RunRecord
from fedassay.reports.figures.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Datum,
    Figure,
    Frame,
    Scale,
    axis_break,
    drawing,
    extra_height,
    legend,
    linear_scale,
    log_scale,
    marker,
    polygon,
    polyline,
    tag,
    text,
)
from fedassay.reports.groups import Group, groups, labels
from fedassay.reports.numbers import short, significant, size
from fedassay.reports.privacy_tables import bytes_over_seeds, utility_over_seeds

_LABEL = 52.0
"""Pixels that the label of a tick needs, such as `100 kB`."""


def accuracy_epsilon(record: RunRecord) -> Figure | None:
    """Accuracy against epsilon, one line per method entry, with a band over seeds."""
    swept = {g.epsilon for g in groups(record)}
    measured = [(g, utility_over_seeds(g, "accuracy")) for g in groups(record)]
    measured = [(group, accuracy) for group, accuracy in measured if accuracy.value is not None]
    finite = sorted(epsilon for epsilon in swept if math.isfinite(epsilon))
    if not measured or not finite:
        return None
    infinite = math.inf in swept
    infinity = RIGHT - 10
    x = log_scale(finite, LEFT + 6, RIGHT - (50 if infinite else 6))
    values = [v for _, m in measured for v in (m.value, m.low, m.high) if v is not None]
    frame = Frame(Scale(x.low, x.high, LEFT, RIGHT, log=True), linear_scale(values, BOTTOM, TOP, pad=0.1))
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
    out += legend(ends, LEFT, HEIGHT - 2, WIDTH)
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
        out.append(tag("line", x1=LEFT, x2=RIGHT, y1=frame.y(tick), y2=frame.y(tick), class_="grid"))
        out.append(text(LEFT - 6, frame.y(tick) + 3.5, short(tick), "tick", "end"))
    for tick in x.ticks(5):
        out.append(tag("line", x1=x(tick), x2=x(tick), y1=BOTTOM, y2=BOTTOM + 4, class_="axis"))
        out.append(text(x(tick), BOTTOM + 16, short(tick), "tick", "middle"))
    if infinity is None:
        out.append(tag("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="axis"))
    else:
        out.append(axis_break(LEFT, RIGHT, (x.end + infinity) / 2, BOTTOM))
        out.append(text(infinity, BOTTOM + 17, "∞", "tick infinity", "middle"))
    out.append(text(RIGHT, BOTTOM + 31, "ε asked of the method", "axis-title", "end"))
    out.append(text(LEFT - 34, TOP - 10, "Accuracy", "axis-title"))
    return "".join(out)


def bytes_up(record: RunRecord) -> Figure | None:
    """Bytes sent by the clients, one bar per method entry and epsilon."""
    rows = [(g, bytes_over_seeds(g, "bytes_up")) for g in groups(record)]
    rows = [(group, metric) for group, metric in rows if metric.value]
    if not rows:
        return None
    # Epsilons that send equally much share a row.
    merged: dict[tuple[str, float], list[Group]] = {}
    for group, metric in rows:
        merged.setdefault((group.label, metric.value or 0.0), []).append(group)
    left, step = 150.0, 26.0
    scale = log_scale([value for _, value in merged], left + 8, WIDTH - 70)
    order, out = labels(record), []
    for index, ((label, value), alike) in enumerate(merged.items()):
        y = 16 + index * step
        shared = len([key for key in merged if key[0] == label]) == 1
        words = label if shared else f"{label}, ε = {', '.join(short(group.epsilon) for group in alike)}"
        out.append(text(0, y + 4, words, "point-label"))
        out.append(tag("line", x1=left, x2=scale(value), y1=y, y2=y, class_="leader"))
        out.append(marker(order.index(label), scale(value), y))
        out.append(text(scale(value) + 11, y + 4, size(value), "tick"))
    bottom = 16 + len(merged) * step
    out.append(tag("line", x1=left, x2=WIDTH - 62, y1=bottom - 8, y2=bottom - 8, class_="axis"))
    last = -math.inf
    for tick in scale.ticks(4):
        if scale(tick) - last < _LABEL:
            continue
        last = scale(tick)
        out.append(tag("line", x1=scale(tick), x2=scale(tick), y1=bottom - 8, y2=bottom - 4, class_="axis"))
        out.append(
            text(
                scale(tick),
                bottom + 9,
                f"{short(tick / 1000)} kB" if tick < 1e6 else f"{short(tick / 1e6)} MB",
                "tick",
                "middle",
            )
        )
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
