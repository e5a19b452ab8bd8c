"""The mission's figure: accuracy and the likeness of images against epsilon, look-alikes as a band.

All methods stand on one axis where their relations allow (`axis.py`). A point that is undecided is hollow and
never left out; the band beside a line of images is what look-alikes reach, which need no message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fedassay.contracts.metrics import SSIM
from fedassay.records.record import Metric, RunRecord
from fedassay.reports.document.audits import title_of
from fedassay.reports.document.figures.svg import (
    Datum,
    Figure,
    Frame,
    drawing,
    extra_height,
    hover,
    legend,
    linear_scale,
    log_scale,
    marker,
    polygon,
    polyline,
    tag,
)
from fedassay.reports.document.mission.axis import Axis, Placed, axes
from fedassay.reports.document.mission.lines import Line, image_audits, lines
from fedassay.reports.document.mission.shown import LOOKALIKES
from fedassay.reports.words.groups import GROUP_KEYS, KIND_KEYS, asked_words, labels
from fedassay.reports.words.metrics import title_in
from fedassay.reports.words.numbers import significant
from fedassay.support.epsilon import numbers

_WIDE, _NARROW = 1130.0, 350.0
_TALL, _TOP, _BOTTOM, _LEFT = 250.0, 34.0, 206.0, 46.0
_BETWEEN = 20.0
_HALF = 7.0
"""Half of the width of a band at a lone point, in pixels."""
_ASIDE = 3.0
"""Pixels between methods at the same epsilon."""


@dataclass(frozen=True)
class Point:
    """A value of a row, and the same without the attack.

    Attributes:
        placed: Position of the row.
        value: Of the row.
        beside: Value that it is compared with; None: none.
        why: Reason why it decides nothing, in two words; empty where it does.
    """

    placed: Placed
    value: Metric
    beside: Metric | None
    why: str


@dataclass(frozen=True)
class Panel:
    """One plot: its name, what stands at its vertical axis, and the points."""

    name: str
    title: str
    points: tuple[Point, ...]


def mission_figures(record: RunRecord) -> tuple[Figure, ...]:
    """A figure for every axis; none of a run without images, or without a finite epsilon."""
    found = axes(lines(record))
    return tuple(
        figure
        for number, axis in enumerate(found)
        if (figure := _figure(record, axis, "mission" if number == 0 else f"mission_{number + 1}")) is not None
    )


def _figure(record: RunRecord, axis: Axis, name: str) -> Figure | None:
    panels = [panel for panel in _panels(record, axis) if panel.points]
    if not panels:
        return None
    converted = {each.line.group.label for each in axis.placed if each.converted}
    order = labels(record)
    shown = [label for label in order if any(each.line.group.label == label for each in axis.placed)]
    keys = [(f"{label} (converted)" if label in converted else label, order.index(label)) for label in shown]
    title = f"Accuracy and images against epsilon ({axis.kind.words})"
    described = " ".join(_described(panel) for panel in panels)
    wide = _drawn(name, title, described, panels, axis, order, keys, across=True)
    narrow = _drawn(f"{name}-narrow", title, described, panels, axis, order, keys, across=False)
    note = (
        f"Grey bands with dashed lines are {LOOKALIKES}, which anybody has without the messages. A hollow point "
        "is undecided; the table says why."
    )
    if converted:
        note += (
            f" {', '.join(label for label in shown if label in converted)}: added up again for "
            f"{axis.kind.words}, so that all share an axis."
        )
    columns = (
        *("panel", *GROUP_KEYS, *KIND_KEYS, "at_epsilon", "converted"),
        *("value", "low", "high", "n", "lookalikes", "lookalikes_low", "lookalikes_high", "undecided"),
    )
    return Figure(name, title, described, wide, columns, tuple(_rows(panels)), narrow=narrow, note=note)


def _panels(record: RunRecord, axis: Axis) -> Iterator[Panel]:
    """Accuracy, and the likeness of each kind of images."""
    accuracy = title_in(record, "accuracy")
    yield Panel("accuracy", accuracy, _points(axis, lambda line: (line.accuracy, None, "")))
    for at, audit in enumerate(image_audits()):

        def read(line: Line, at: int = at) -> tuple[Metric, Metric | None, str]:
            found = line.images[at]
            return found.metrics.get(SSIM.name, _NONE), found.baseline.get(SSIM.name), found.why

        yield Panel(audit, f"{title_in(record, SSIM.name)}, {title_of(audit).lower()}", _points(axis, read))


_NONE = Metric(value=None)


def _points(axis: Axis, read: Callable[[Line], tuple[Metric, Metric | None, str]]) -> tuple[Point, ...]:
    found = [Point(placed, *read(placed.line)) for placed in axis.placed]
    return tuple(point for point in found if point.value.value is not None)


def _drawn(
    name: str,
    title: str,
    described: str,
    panels: Sequence[Panel],
    axis: Axis,
    order: Sequence[str],
    keys: Sequence[tuple[str, int]],
    across: bool,
) -> str:
    """The panels beside or below each other, with one legend."""
    width = _WIDE if across else _NARROW
    each = (width - _BETWEEN * (len(panels) - 1)) / len(panels) if across else width
    out = []
    for number, panel in enumerate(panels):
        body = "".join(_panel(panel, axis, order, each))
        right, down = (number * (each + _BETWEEN), 0.0) if across else (0.0, number * _TALL)
        out.append(tag("g", body, transform=f"translate({right:g} {down:g})"))
    height = _TALL * (1 if across else len(panels))
    out += legend(keys, _LEFT, height + 12, width)
    return drawing(name, width, height + 4 + extra_height(keys, width), title, described, out)


def _panel(panel: Panel, axis: Axis, order: Sequence[str], width: float) -> Iterator[str]:
    finite = sorted(set(numbers(each.at for each in axis.placed if each.at.finite)))
    infinite = any(not each.at.finite for each in axis.placed)
    right = width - 8
    x = log_scale(finite, _LEFT + 6, right - (44 if infinite else 6))
    metrics = [m for point in panel.points for m in (point.value, point.beside) if m is not None]
    values = [v for m in metrics for v in (m.value, m.low, m.high) if v is not None]
    y = linear_scale(values, _BOTTOM, _TOP, pad=0.1)
    frame = Frame(x, y, _LEFT, right, right - 10 if infinite else None)
    yield frame.axes("ε", panel.title)
    by_label = {label: _in_line(panel, label) for label in order}
    for index, label in enumerate(order):
        yield from _band(frame, by_label[label], index)
    drawn = [label for label in order if by_label[label]]
    for index, label in enumerate(order):
        points = by_label[label]
        # Methods at one epsilon stand beside each other, so that none hides another.
        aside = 0.0 if not points else _ASIDE * (drawn.index(label) - (len(drawn) - 1) / 2)
        spots = [(frame.across(p.placed.at.bare) + aside, frame.y(p.value.value or 0.0)) for p in points]
        yield polyline(spots, f"line s{index % 8}")
        for (a, b), point in zip(spots, points, strict=True):
            shapes = [*_interval(frame, a, point.value, index), marker(index, a, b, hollow=bool(point.why))]
            yield hover(_words(point), *shapes)


def _in_line(panel: Panel, label: str) -> list[Point]:
    own = [point for point in panel.points if point.placed.line.group.label == label]
    return sorted(own, key=lambda point: point.placed.at.bare)


def _band(frame: Frame, points: Sequence[Point], index: int) -> Iterator[str]:
    """Draw the reach of look-alikes along a line: an area between the ends of intervals, the middle dashed."""
    held = [(frame.across(p.placed.at.bare), p.beside) for p in points if p.beside is not None]
    known = [(a, m) for a, m in held if m.value is not None]
    if not known:
        return
    if len(known) == 1:
        known = [(known[0][0] - _HALF, known[0][1]), (known[0][0] + _HALF, known[0][1])]
    ends = [(a, _or(m.low, m), _or(m.high, m)) for a, m in known]
    around = [(a, frame.y(high)) for a, _, high in ends] + [(a, frame.y(low)) for a, low, _ in ends[::-1]]
    yield polygon(around, "lookalikes")
    yield polyline([(a, frame.y(_or(None, m))) for a, m in known], f"lookalikes-mean s{index % 8}")


def _or(end: float | None, metric: Metric) -> float:
    """An end of an interval, or the value where there is none."""
    found = metric.value if end is None else end
    assert found is not None
    return found


def _interval(frame: Frame, a: float, metric: Metric, index: int) -> Iterator[str]:
    if metric.low is not None and metric.high is not None:
        yield tag(
            "line", x1=a, x2=a, y1=frame.y(metric.low), y2=frame.y(metric.high), class_=f"whisker s{index % 8}"
        )


def _rows(panels: Sequence[Panel]) -> Iterator[tuple[Datum, ...]]:
    for panel in panels:
        for point in panel.points:
            group, beside = point.placed.line.group, point.beside or _NONE
            yield (
                *(panel.name, *group.keys, *group.asked.standing, point.placed.at.bare),
                "yes" if point.placed.converted else "no",
                *(point.value.value, point.value.low, point.value.high, point.value.n),
                *(beside.value, beside.low, beside.high, point.why),
            )


def _words(point: Point) -> str:
    group = point.placed.line.group
    said = f"{group.label} at ε = {asked_words(group.asked)}: {significant(point.value.value)}"
    if point.placed.converted:
        said += f", at {significant(point.placed.at.bare)} on this axis"
    if point.beside is not None and point.beside.value is not None:
        said += f", {LOOKALIKES} {significant(point.beside.value)}"
    return f"{said} ({point.why})" if point.why else said


def _described(panel: Panel) -> str:
    return f"{panel.title}: {'; '.join(map(_words, panel.points))}."
