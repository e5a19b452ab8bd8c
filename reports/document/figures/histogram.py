"""Memorization scores: how far generated images are from the training images, counts on a log axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedassay.records.record import Series
from fedassay.reports.document.figures.svg import Figure, Scale, drawing, hover, polyline, tag, text
from fedassay.reports.document.series import finite, numbers
from fedassay.reports.words.numbers import significant

THRESHOLD = 1.0
"""Scores below are copies (Carlini et al. 2023)."""

WIDTH, HEIGHT = 420.0, 280.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 404.0, 34.0, 216.0
_BINS = 40


def histogram(name: str, about: str, series: Series) -> Figure | None:
    """The histogram of one finding's `scores`; None where there is none.

    Args:
        name: Name of the figure.
        about: The cell it belongs to.
        series: Columns `generated` and, where measured, `heldout`.
    """
    generated, heldout = (finite(numbers(series, column)) for column in ("generated", "heldout"))
    if not generated:
        return None
    top = max([2.0, *generated, *heldout])
    edges = [top * index / _BINS for index in range(_BINS + 1)]
    counts = _counts(generated, edges)
    others = _counts(heldout, edges) if heldout else []
    x = Scale(0.0, top, _LEFT, _RIGHT)
    highest = max([*counts, *others])
    # Counts of one stand half a decade above the axis, so that a single copy is seen.
    y = Scale(0.5, 10 ** math.ceil(math.log10(highest + 1)), _BOTTOM, _TOP, log=True)
    out = [_axes(x, y)]
    width = x(edges[1]) - x(edges[0])
    for left, right, count in zip(edges, edges[1:], counts, strict=False):
        if count:
            class_ = "fill s1" if left < THRESHOLD - 1e-12 else "fill s0"
            high = _BOTTOM - y(count)
            bar = tag("rect", x=x(left) + 0.4, y=y(count), width=width - 0.8, height=high, class_=class_)
            out.append(hover(f"{significant(left)} to {significant(right)}: {count:,}", bar))
    if others:
        steps = []
        for left, right, count in zip(edges, edges[1:], others, strict=False):
            at = y(count) if count else _BOTTOM
            steps += [(x(left), at), (x(right), at)]
        out.append(polyline(steps, "outline"))
    out.append(tag("line", x1=x(THRESHOLD), x2=x(THRESHOLD), y1=_TOP, y2=_BOTTOM, class_="zero"))
    below = sum(score < THRESHOLD for score in generated)
    out.append(text(x(THRESHOLD) - 6, _TOP + 8, f"{below:,} below {THRESHOLD:g}", "point-label", "end"))
    out += _legend(bool(others))
    title = f"{series.title or 'Memorization scores'}: {about}"
    description = (
        f"{len(generated):,} generated images; smallest score {significant(min(generated))}, {below:,} below "
        f"the threshold of {THRESHOLD:g}."
    )
    if heldout:
        description += f" Smallest against held-out images {significant(min(heldout))}."
    shown: list[int | None] = [*others] if others else [None] * _BINS
    rows = tuple(
        (left, right, count, other)
        for left, right, count, other in zip(edges, edges[1:], counts, shown, strict=False)
    )
    svg = drawing(name, WIDTH, HEIGHT, title, description, out)
    note = (
        "Distance to the nearest training image over half the mean distance to the 50 nearest; logarithmic counts."
    )
    return Figure(name, title, description, svg, ("from", "to", "generated", "heldout"), rows, note=note)


def _counts(values: Sequence[float], edges: Sequence[float]) -> list[int]:
    bins = len(edges) - 1
    places = (np.array(values) / (edges[1] - edges[0])).astype(int).clip(0, bins - 1)
    return [int(count) for count in np.bincount(places, minlength=bins)]


def _axes(x: Scale, y: Scale) -> str:
    out = []
    for tick in y.ticks(5):
        if tick >= 1 and abs(math.log10(tick) % 1) < 1e-9:
            out += [
                tag("line", x1=_LEFT, x2=_RIGHT, y1=y(tick), y2=y(tick), class_="grid"),
                text(_LEFT - 6, y(tick) + 3.5, f"{tick:,.0f}", "tick", "end"),
            ]
    for tick in x.ticks(5):
        out += [
            tag("line", x1=x(tick), x2=x(tick), y1=_BOTTOM, y2=_BOTTOM + 4, class_="axis"),
            text(x(tick), _BOTTOM + 16, f"{tick:g}", "tick", "middle"),
        ]
    out += [
        tag("line", x1=_LEFT, x2=_RIGHT, y1=_BOTTOM, y2=_BOTTOM, class_="axis"),
        text(_RIGHT, _BOTTOM + 31, "memorization score", "axis-title", "end"),
        text(_LEFT - 34, _TOP - 10, "Images", "axis-title"),
    ]
    return "".join(out)


def _legend(others: bool) -> list[str]:
    out, at, y = [], _LEFT, HEIGHT - 8
    for class_, words in (("fill s0", "against training images"), ("fill s1", "below the threshold")):
        out += [
            tag("rect", x=at, y=y - 9, width=10, height=10, class_=class_),
            text(at + 15, y, words, "tick"),
        ]
        at += 28 + len(words) * 5.9
    if others:
        out += [polyline([(at, y - 4), (at + 14, y - 4)], "outline"), text(at + 19, y, "held-out", "tick")]
    return out
