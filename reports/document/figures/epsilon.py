"""A measured figure against epsilon: one line per method entry, with a band; infinity beyond a break."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
    extra_height,
    hover,
    legend,
    linear_scale,
    log_scale,
    marker,
    polygon,
    polyline,
)
from fedassay.reports.document.privacy_tables import utility_over_seeds
from fedassay.reports.words.groups import (
    GROUP_KEYS,
    KIND_KEYS,
    Group,
    asked_words,
    by_kind,
    groups,
    labels,
)
from fedassay.reports.words.naming import slug
from fedassay.reports.words.numbers import short, significant
from fedassay.support.epsilon import numbers


@dataclass(frozen=True)
class Drawn:
    """Description of a plot against epsilon.

    Attributes:
        name: Of the figure.
        title: Its title.
        axis: Label of the vertical axis.
        column: Header of the value in the CSV.
        single: The note where there is one seed.
    """

    name: str
    title: str
    axis: str
    column: str
    single: str


def accuracy_epsilon(record: RunRecord) -> tuple[Figure, ...]:
    """Accuracy against epsilon, one line per method entry, with a band over seeds."""
    drawn = Drawn(
        "accuracy_epsilon",
        "Accuracy against epsilon",
        "Accuracy",
        "accuracy",
        "One seed; a band is the 95 % interval over test records where the record holds one.",
    )
    return against_epsilon(record, drawn, lambda group: utility_over_seeds(group, "accuracy"))


def against_epsilon(record: RunRecord, drawn: Drawn, read: Callable[[Group], Metric]) -> tuple[Figure, ...]:
    """Figures against epsilon, one for every kind that one is of; none without a finite epsilon.

    Args:
        record: The run.
        drawn: Titles.
        read: The value of a group with its interval.
    """
    everything = groups(record)
    private = {group.label for group in everything if group.asked.finite}
    kinds = by_kind(group for group in everything if group.asked.finite)
    deltas = len({kind.delta for kind in kinds}) > 1
    figures = []
    for kind, alike in kinds.items():
        words = f"{kind.words}, δ = {short(kind.delta)}" if deltas else kind.words
        own = replace(
            drawn,
            name=f"{drawn.name}_{slug(f'{kind.adjacency} {kind.unit}' + (f' {kind.delta:g}' if deltas else ''))}",
            title=f"{drawn.title} ({words})",
        )
        # A method without any claim is no guarantee of another kind: it is the reference of every figure.
        labelled = {group.label for group in alike}
        shown = [
            group
            for group in everything
            if group in alike
            or (not group.asked.finite and (group.label in labelled or group.label not in private))
        ]
        figures.append(_one_kind(record, drawn if len(kinds) == 1 else own, f"ε ({words})", shown, read))
    return tuple(figure for figure in figures if figure is not None)


def _one_kind(
    record: RunRecord, drawn: Drawn, axis: str, alike: Sequence[Group], read: Callable[[Group], Metric]
) -> Figure | None:
    """A figure of groups with guarantees of one kind, and of groups without any."""
    measured = [(group, metric) for group in alike if (metric := read(group)).value is not None]
    finite = sorted(set(numbers(group.asked for group in alike if group.asked.finite)))
    if not measured or not finite:
        return None
    infinite = any(not group.asked.finite for group in alike)
    x = log_scale(finite, LEFT + 6, RIGHT - (50 if infinite else 6))
    values = [v for _, m in measured for v in (m.value, m.low, m.high) if v is not None]
    y = linear_scale(values, BOTTOM, TOP, pad=0.1)
    frame = Frame(x, y, LEFT, RIGHT, RIGHT - 10 if infinite else None)
    out = [frame.axes(f"{axis} asked of the method", drawn.axis)]
    ends = []
    for index, label in enumerate(labels(record)):
        line = sorted(((g, m) for g, m in measured if g.label == label), key=lambda pair: pair[0].asked.bare)
        spots = [(frame.across(g.asked.bare), frame.y(m.value), m, g) for g, m in line if m.value is not None]
        out += _band(frame, [(a, m) for a, _, m, _ in spots], index)
        out.append(polyline([(a, b) for a, b, _, _ in spots], f"line s{index % 8}"))
        out += [hover(_words(g, m), marker(index, a, b, hollow=not g.asked.finite)) for a, b, m, g in spots]
        if spots:
            ends.append((label, index))
    out += legend(ends, LEFT, HEIGHT - 2, WIDTH)
    rows: tuple[tuple[Datum, ...], ...] = tuple(
        (*g.keys, m.value, m.low, m.high, len(g.cells), *g.asked.standing) for g, m in measured
    )
    described = "; ".join(_words(g, m) for g, m in measured) + "."
    several = any(len(g.cells) > 1 for g, _ in measured)
    note = "Lines join the mean over seeds; the band is the range over seeds." if several else drawn.single
    svg = drawing(drawn.name, WIDTH, HEIGHT + extra_height(ends, WIDTH), drawn.title, described, out)
    columns = (*GROUP_KEYS, drawn.column, "low", "high", "seeds", *KIND_KEYS)
    return Figure(drawn.name, drawn.title, described, svg, columns, rows, note=note)


def _band(frame: Frame, spots: Sequence[tuple[float, Metric]], index: int) -> list[str]:
    """The area between the lower and the upper ends of a line's metrics, where two or more have both."""
    ends = [(a, frame.y(m.low), frame.y(m.high)) for a, m in spots if m.low is not None and m.high is not None]
    if len(ends) < 2:
        return []
    around = [(a, high) for a, _, high in ends] + [(a, low) for a, low, _ in ends[::-1]]
    return [polygon(around, f"band s{index % 8}")]


def _words(group: Group, metric: Metric) -> str:
    return f"{group.label} at ε = {asked_words(group.asked)}: {significant(metric.value)}"
