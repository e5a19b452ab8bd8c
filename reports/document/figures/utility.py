"""Communication of a method: bytes of every method entry and epsilon."""

from __future__ import annotations

import math
from collections import Counter

from fedassay.records.record import RunRecord
from fedassay.reports.document.figures.svg import (
    WIDTH,
    Datum,
    Figure,
    drawing,
    hit,
    hover,
    log_scale,
    marker,
    tag,
    text,
)
from fedassay.reports.document.privacy_tables import bytes_over_seeds
from fedassay.reports.words.groups import GROUP_KEYS, KIND_KEYS, Group, asked_words, groups, kinds_of, labels
from fedassay.reports.words.numbers import short, size
from fedassay.reports.words.sentences import sentence

_LABEL = 52.0
"""Pixels that the label of a tick needs, such as `100 kB`."""
_LEFT, _LETTERS = 150.0, 26
"""Pixels beside the plot for the names of rows, and how many letters these hold."""


def bytes_up(record: RunRecord) -> Figure | None:
    """Bytes sent by the clients, one bar per method entry and epsilon."""
    rows = [(group, sent) for group in groups(record) if (sent := bytes_over_seeds(group, "bytes_up")).value]
    if not rows:
        return None
    # Epsilons that send equally much share a row.
    merged: dict[tuple[str, float], list[Group]] = {}
    for group, metric in rows:
        merged.setdefault((group.label, metric.value or 0.0), []).append(group)
    step = 26.0
    scale = log_scale([value for _, value in merged], _LEFT + 8, WIDTH - 70)
    order, out = labels(record), []
    rows_of = Counter(label for label, _ in merged)
    for index, ((label, value), alike) in enumerate(merged.items()):
        y = 16 + index * step
        shared = rows_of[label] == 1
        words = label if shared else f"{label}, ε = {', '.join(asked_words(group.asked) for group in alike)}"
        # Whole names stand in the row that rests under the pointer, and below the plot what the epsilons are of.
        brief = label if shared else f"{label} {', '.join(dict.fromkeys(short(g.asked.bare) for g in alike))}"
        out += [
            text(0, y + 4, brief if len(brief) <= _LETTERS else f"{brief[: _LETTERS - 1]}…", "point-label"),
            hover(
                f"{words}: {size(value)}",
                hit(_LEFT, y - step / 2, WIDTH - _LEFT, step),
                tag("line", x1=_LEFT, x2=scale(value), y1=y, y2=y, class_="leader"),
                marker(order.index(label), scale(value), y),
            ),
            text(scale(value) + 11, y + 4, size(value), "tick"),
        ]
    bottom = 16 + len(merged) * step
    out.append(tag("line", x1=_LEFT, x2=WIDTH - 62, y1=bottom - 8, y2=bottom - 8, class_="axis"))
    last = -math.inf
    for tick in scale.ticks(4):
        if scale(tick) - last < _LABEL:
            continue
        last = scale(tick)
        words = f"{short(tick / 1000)} kB" if tick < 1e6 else f"{short(tick / 1e6)} MB"
        out += [
            tag("line", x1=scale(tick), x2=scale(tick), y1=bottom - 8, y2=bottom - 4, class_="axis"),
            text(scale(tick), bottom + 9, words, "tick", "middle"),
        ]
    title = "Bytes up"
    described = "; ".join(f"{g.label} at ε = {asked_words(g.asked)}: {size(m.value)}" for g, m in rows) + "."
    svg = drawing("bytes_up", WIDTH, bottom + 20, title, described, out)
    data: tuple[tuple[Datum, ...], ...] = tuple((*g.keys, m.value, *g.asked.standing) for g, m in rows)
    kinds = kinds_of((group.label, group.asked) for group, _ in rows if rows_of[group.label] > 1)
    return Figure(
        "bytes_up",
        title,
        described,
        svg,
        (*GROUP_KEYS, "bytes_up", *KIND_KEYS),
        data,
        note=" ".join(["Sent by all clients together, as serialized; logarithmic axis.", *map(sentence, kinds)]),
    )
