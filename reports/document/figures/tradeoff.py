"""Accuracy against observed leakage, with the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedassay.records.record import Metric, RunRecord
from fedassay.reports.document.figures.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Datum,
    Figure,
    Frame,
    drawing,
    hover,
    linear_scale,
    marker,
    polyline,
    tag,
    text,
)
from fedassay.reports.document.leakage import MEASURES, Measure
from fedassay.reports.document.privacy_tables import leakage_over_seeds, utility_over_seeds
from fedassay.reports.words.groups import GROUP_KEYS, KIND_KEYS, Group, asked_words, groups, kinds_of, labels
from fedassay.reports.words.naming import slug
from fedassay.reports.words.numbers import short, significant
from fedassay.reports.words.sentences import listed, sentence


@dataclass(frozen=True)
class Point:
    """A group in a privacy-utility plot."""

    group: Group
    leak: Metric
    accuracy: Metric
    front: bool


def pareto(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Whether each point is undominated: no other leaks as little or less and is as accurate or more.

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
    figures = [figure for measure in MEASURES for figure in _of_measure(record, measure)]
    return tuple(figure for figure in figures if figure is not None)


def _of_measure(record: RunRecord, measure: Measure) -> list[Figure | None]:
    """One figure; of epsilons one for every kind that they are of."""
    if measure.of_findings:
        return [_against(record, measure, groups(record))]
    # An observed epsilon is of the kind of the claim that it was compared with.
    kinds: dict[str, list[Group]] = {}
    for group in groups(record):
        kinds.setdefault(leakage_over_seeds(group, measure.name).unit, []).append(group)
    absent = kinds.pop("", [])
    return [
        _against(record, measure, [*alike, *absent], unit, several=len(kinds) > 1) for unit, alike in kinds.items()
    ]


def _against(
    record: RunRecord, measure: Measure, chosen: Sequence[Group], unit: str = "", several: bool = False
) -> Figure | None:
    measured: list[tuple[Group, Metric, Metric]] = []
    absent: list[str] = []
    for group in chosen:
        leak, accuracy = leakage_over_seeds(group, measure.name), utility_over_seeds(group, "accuracy")
        if leak.value is None or accuracy.value is None or not math.isfinite(leak.value):
            absent.append(f"{group.label} {asked_words(group.asked)}")
        else:
            measured.append((group, leak, accuracy))
    if not measured:
        return None
    pairs = [(leak.value or 0.0, accuracy.value or 0.0) for _, leak, accuracy in measured]
    points = [
        Point(group, leak, accuracy, front)
        for (group, leak, accuracy), front in zip(measured, pareto(pairs), strict=True)
    ]
    name = f"accuracy_{measure.name}" + (f"_{slug(unit)}" if several else "")
    axis = measure.title if measure.title[1].isupper() else measure.title[0].lower() + measure.title[1:]
    title = f"Accuracy against {axis}" + (f" ({unit})" if unit else "")
    best = ", ".join(f"{p.group.label} at ε = {asked_words(p.group.asked)}" for p in points if p.front)
    told = "; ".join(map(_words, points))
    note = measure.definition
    if absent:
        note += f" Not placed, since not measured or unbounded (the table says why): {listed(absent, limit=6)}."
    rows: tuple[tuple[Datum, ...], ...] = tuple(
        (
            *p.group.keys,
            p.leak.value,
            p.leak.low,
            p.leak.high,
            p.accuracy.value,
            p.accuracy.low,
            p.accuracy.high,
            "yes" if p.front else "no",
            *p.group.asked.standing,
        )
        for p in points
    )
    columns = (
        *GROUP_KEYS,
        measure.name,
        f"{measure.name}_low",
        f"{measure.name}_high",
        "accuracy",
        "accuracy_low",
        "accuracy_high",
        "pareto",
        *KIND_KEYS,
    )
    description = f"{told}. On the Pareto front: {best}."
    kinds = kinds_of((p.group.label, p.group.asked) for p in points)
    note += "".join(f" {sentence(words)}" for words in kinds)
    leaks = f"{measure.title} ({unit})" if unit else measure.title
    marks, unlabelled = _scatter(record, points, measure, leaks, kinds)
    if unlabelled:
        note += f" No room for a label: {listed(unlabelled, limit=6)}."
    svg = drawing(name, WIDTH, HEIGHT, title, description, marks)
    return Figure(name, title, description, svg, columns, rows, note=note)


def _words(point: Point) -> str:
    return (
        f"{point.group.label} at ε = {asked_words(point.group.asked)}: {significant(point.leak.value)}, accuracy "
        f"{significant(point.accuracy.value)}"
    )


def _scatter(
    record: RunRecord, points: Sequence[Point], measure: Measure, axis: str, kinds: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The marks, and the points that have no label, since it would lie on something else."""
    leaks = [
        v for p in points for v in (p.leak.value, p.leak.low, p.leak.high) if v is not None and math.isfinite(v)
    ]
    good = [v for p in points for v in (p.accuracy.value, p.accuracy.low, p.accuracy.high) if v is not None]
    zero = {"auc": 0.5}.get(measure.name, 0.0)
    x = linear_scale(leaks, LEFT, RIGHT, include=[zero])
    frame = Frame(x, linear_scale(good, BOTTOM, TOP, pad=0.12))
    out = [
        frame.axes(f"{axis} →  leaks more", "Accuracy"),
        tag("line", x1=x(zero), x2=x(zero), y1=TOP, y2=BOTTOM, class_="zero"),
    ]
    front = sorted((p.leak.value or 0.0, p.accuracy.value or 0.0) for p in points if p.front)
    steps: list[tuple[float, float]] = []
    for a, b in front:
        # No mixture of two methods is on offer between them: the front is a staircase.
        if steps:
            steps.append((x(a), steps[-1][1]))
        steps.append((x(a), frame.y(b)))
    out.append(polyline(steps, "front"))
    order = labels(record)
    taken: list[_Box] = []
    words: list[tuple[bool, str, float, float]] = []
    for point in points:
        assert point.leak.value is not None
        assert point.accuracy.value is not None
        cx, cy = x(point.leak.value), frame.y(point.accuracy.value)
        index = order.index(point.group.label)
        if point.leak.low is not None and point.leak.high is not None:
            low, high = x(point.leak.low), x(min(point.leak.high, x.high))
            out.append(tag("line", x1=low, x2=high, y1=cy, y2=cy, class_=f"whisker s{index % 8}"))
            taken.append((low, high, cy - 1, cy + 1))
        if point.accuracy.low is not None and point.accuracy.high is not None:
            low, high = frame.y(point.accuracy.low), frame.y(point.accuracy.high)
            out.append(tag("line", x1=cx, x2=cx, y1=low, y2=high, class_=f"whisker s{index % 8}"))
            taken.append((cx - 1, cx + 1, high, low))
        if point.front:
            out.append(tag("circle", cx=cx, cy=cy, r=9, class_="front-ring"))
        out.append(hover(_words(point), marker(index, cx, cy, hollow=not point.group.asked.finite)))
        taken.append((cx - 8, cx + 8, cy - 8, cy + 8))
        # Below the plot and in its note stands what the numbers are of.
        words.append((not point.front, f"{point.group.label} {short(point.group.asked.bare)}", cx, cy))
    # Several kinds have no room on one line; the note below the plot has them all.
    legend = ["Pareto front", "hollow: ε = ∞", *(kinds if len(kinds) == 1 else ())]
    # Labels come last, those of the front before others, so that no mark and no whisker runs across them.
    ordered = sorted(words, key=lambda each: each[0])
    placed = [(name, _placed(name, cx, cy, taken)) for _, name, cx, cy in ordered]
    marks = [
        *out,
        *(label for _, label in placed if label is not None),
        tag("circle", cx=LEFT + 6, cy=HEIGHT - 8, r=6, class_="front-ring"),
        text(LEFT + 18, HEIGHT - 4, "; ".join(legend), "tick"),
    ]
    return marks, [name for name, label in placed if label is None]


_Box = tuple[float, float, float, float]
"""Area covered by a label, a mark or a whisker: left, right, top, bottom."""

_SHIFTS = (3.5, -9, 16, -21, 28)
"""Offsets of a label's foot below the middle of its point; a larger one would seem another point's."""


def _placed(words: str, x: float, y: float, taken: list[_Box]) -> str | None:
    """A label beside its point, where it covers no label, mark or whisker; None where there is no such place."""
    length = len(words) * 5.6
    for foot in (y + shift for shift in _SHIFTS):
        for start, anchor, side in ((x + 12, x + 12, "start"), (x - 12 - length, x - 12, "end")):
            box = (start, start + length, foot - 9, foot + 2)
            inside = start >= LEFT and box[1] < RIGHT + 10 and TOP - 4 < foot < BOTTOM + 2
            if inside and not any(_meet(box, other) for other in taken):
                taken.append(box)
                return text(anchor, foot, words, "point-label", side)
    return None


def _meet(one: _Box, other: _Box) -> bool:
    """Whether two boxes have an area in common."""
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
