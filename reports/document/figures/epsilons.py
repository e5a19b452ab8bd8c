"""The epsilon plot: where the true epsilon of every release must lie.

The lower wall is what an attack showed (observed), the upper wall what the ledger adds up to
(accounted); the claim should stand at the upper wall or beyond it, and no observation to its right.
Guarantees of unlike kinds (neighbours, unit, delta) are not comparable: each kind has an axis of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedassay.records.record import RunRecord, Verdict
from fedassay.reports.document.ceiling import EXPLAINED, ceiling
from fedassay.reports.document.figures.svg import (
    Figure,
    Scale,
    axis_break,
    drawing,
    hit,
    hover,
    log_scale,
    polygon,
    tag,
    text,
)
from fedassay.reports.words.allowed import KAPPA
from fedassay.reports.words.claims import ledger_stands
from fedassay.reports.words.groups import (
    GROUP_KEYS,
    KIND_KEYS,
    Group,
    asked_words,
    by_kind,
    groups,
    several_deltas,
)
from fedassay.reports.words.numbers import beside, short
from fedassay.reports.words.verdicts import LOOKS, worst
from fedassay.support.epsilon import Epsilon, Kind, largest, numbers

_ROW, _ROW_NARROW = 36, 46
"""Height of a row; a narrow one has its words above its marks."""
_TOP = 44
_PANEL = 30
"""Height of the line that says what a panel's guarantees speak of."""


@dataclass(frozen=True)
class Walls:
    """The numbers of one row; None where not measured, infinite where unbounded."""

    group: Group
    claimed: Epsilon | None
    accounted: Epsilon | None
    observed: Epsilon | None
    mu: float | None
    verdict: Verdict

    @property
    def drawn(self) -> list[Epsilon]:
        """Epsilons on the axis of the group's kind; a claim of another kind is left out."""
        known = (self.claimed, self.accounted, self.observed)
        return [each for each in known if each is not None and each.kind == self.group.asked.kind]

    @property
    def ceiling(self) -> float | None:
        """Highest success rate of a reconstruction against one record; see `fedassay.reports.document.ceiling`."""
        return ceiling(self.mu)


def epsilons(record: RunRecord, chosen: Sequence[Group] | None = None, name: str = "epsilons") -> Figure | None:
    """The epsilon plot of a run; None where no cell claims, accounts or observes anything finite.

    Args:
        record: The run.
        chosen: Only these of its groups; None: all.
        name: Of the figure.
    """
    panels = _panels([_walls(group) for group in (groups(record) if chosen is None else chosen)])
    rows = [row for _, alike in panels for row in alike]
    if not any(_finite(alike) for _, alike in panels):
        return None
    title = "Claimed, accounted and observed epsilon"
    deltas = several_deltas(record)
    described = " ".join(_described(row, deltas) for row in rows)
    drawn = [
        drawing(part, width, _height(panels, row) + 40, title, described, _body(panels, width, deltas))
        for part, width, row in ((name, 860.0, _ROW), (f"{name}-narrow", 350.0, _ROW_NARROW))
    ]
    ceilings = any(row.ceiling is not None for row in rows)
    note = (
        "Epsilon on a logarithmic axis, with everything unbounded beyond the break. The true epsilon lies in "
        "the bar: no lower than the attack showed, no higher than the ledger adds up to. Over several seeds "
        "the largest of each is drawn."
    )
    if len(panels) > 1:
        note += " Guarantees that speak of different neighbours stand on axes of their own: do not compare them."
    if ceilings:
        note += f" Ceiling (beside the plot on wide screens, in the table everywhere): {EXPLAINED}"
    data = tuple(
        (
            *row.group.keys,
            *(None if each is None else each.bare for each in (row.claimed, row.accounted, row.observed)),
            row.mu,
            row.ceiling,
            row.verdict,
            *row.group.asked.standing,
        )
        for row in rows
    )
    columns = (
        *GROUP_KEYS,
        "claimed",
        "accounted",
        "observed",
        "mu",
        "ceiling",
        "verdict",
        *KIND_KEYS,
    )
    return Figure(name, title, described, drawn[0], columns, data, narrow=drawn[1], note=note)


def _finite(rows: Sequence[Walls]) -> list[float]:
    """Everything that stands on an axis, which is of one kind."""
    return [value for value in numbers(each for row in rows for each in row.drawn if each.finite) if value > 0]


def _panels(rows: Sequence[Walls]) -> list[tuple[str, list[Walls]]]:
    """Rows that share an axis, with what its epsilons are of.

    What has no finite epsilon guarantees nothing, whatever its neighbours: it stands with the first of its label,
    or else in the first panel.
    """
    kinds = list(by_kind(row.group for row in rows if row.group.asked.finite or any(e.finite for e in row.drawn)))
    first = {row.group.label: row.group.asked.kind for row in reversed(rows) if row.group.asked.kind in kinds}
    found: dict[Kind, list[Walls]] = {kind: [] for kind in kinds}
    for row in rows:
        own = row.group.asked.kind
        at = own if own in found else first.get(row.group.label, kinds[0] if kinds else own)
        found.setdefault(at, []).append(row)
    deltas = len({kind.delta for kind in kinds}) > 1
    return [
        (f"{kind.words}, δ = {short(kind.delta)}" if deltas else kind.words, alike)
        for kind, alike in found.items()
    ]


def _height(panels: Sequence[tuple[str, list[Walls]]], row: float) -> float:
    return sum((_PANEL if len(panels) > 1 else 0) + _TOP + row * len(rows) for _, rows in panels)


def _walls(group: Group) -> Walls:
    claimed = largest(cell.claimed for cell in group.cells)
    # A ledger that does not hold bounds nothing, and no ceiling follows from it.
    stands = all(map(ledger_stands, group.cells))
    return Walls(
        group,
        claimed if claimed is not None and claimed.finite else None,
        largest(cell.accounted for cell in group.cells) if stands else None,
        largest(cell.observed for cell in group.cells),
        max((cell.privacy.mu for cell in group.cells if cell.privacy.mu is not None), default=None)
        if stands
        else None,
        worst(cell.privacy.verdict for cell in group.cells),
    )


def _described(row: Walls, deltas: bool) -> str:
    own = row.group.asked
    claimed = "nothing claimed" if row.claimed is None else f"claimed {beside(row.claimed, own, short)}"
    accounted = "not accounted" if row.verdict != "unsound" else "what is accounted does not hold"
    if row.accounted is not None:
        accounted = f"accounted {beside(row.accounted, own)}" if row.accounted.finite else "unbounded"
    observed = "nothing observed" if row.observed is None else f"observed at least {beside(row.observed, own)}"
    label = _label(row.group, deltas, asked_words)
    return f"{label}: {claimed}, {accounted}, {observed}; {LOOKS[row.verdict].word.lower()}."


def _label(group: Group, deltas: bool, say: Callable[[Epsilon], str] = lambda asked: short(asked.bare)) -> str:
    """A row's name; its panel says what its epsilon is of."""
    words = f"{group.label}, ε = {say(group.asked)}" if group.asked.finite else f"{group.label}, no noise"
    return f"{words}, δ = {short(group.asked.delta)}" if deltas else words


def _body(panels: Sequence[tuple[str, list[Walls]]], width: float, deltas: bool) -> list[str]:
    wide = width > 500
    ceilings = any(row.ceiling is not None for _, rows in panels for row in rows)
    left = 236.0 if wide else 14.0
    right = width - (36 if wide else 16) - (110 if ceilings and wide else 0)
    out, top = [], 0.0
    for named, rows in panels:
        if len(panels) > 1:
            out.append(text(0, top + 18, f"Neighbours: {named}", "axis-title"))
            top += _PANEL
        out += _panel(rows, _Box(top + _TOP, left, right, width, wide, ceilings, named), deltas)
        top += _TOP + (_ROW if wide else _ROW_NARROW) * len(rows)
    return [*out, _legend(left if wide else 0, top + 34, wide)]


@dataclass(frozen=True)
class _Box:
    """Geometry of a panel: the top of its rows, the ends of its axis, the drawing's width; and its content."""

    top: float
    left: float
    right: float
    width: float
    wide: bool
    ceilings: bool
    named: str

    @property
    def row(self) -> float:
        """Height of a row."""
        return _ROW if self.wide else _ROW_NARROW

    @property
    def infinity(self) -> float:
        """Pixel of an unbounded epsilon."""
        return self.right - 14


def _panel(rows: Sequence[Walls], box: _Box, deltas: bool) -> list[str]:
    scale = log_scale(_finite(rows), box.left + 12, box.right - 54)
    out = [_axis(scale, box, box.top + box.row * len(rows))]
    if box.ceilings and box.wide:
        out += [
            text(box.width - 4, box.top - 26, "Reconstruction", "axis-title", "end"),
            text(box.width - 4, box.top - 12, f"ceiling, κ = {KAPPA:.0%}", "axis-title", "end"),
        ]
    return out + [
        hover(
            _described(row, deltas),
            hit(0, box.top + box.row * index, box.width, box.row),
            _row(row, scale, box, box.top + box.row * index, deltas),
        )
        for index, row in enumerate(rows)
    ]


def _axis(scale: Scale, box: _Box, bottom: float) -> str:
    out = []
    for tick in scale.ticks(7 if box.wide else 4):
        out += [
            tag("line", x1=scale(tick), x2=scale(tick), y1=box.top - 4, y2=bottom, class_="grid"),
            text(scale(tick), box.top - 10, short(tick), "tick", "middle"),
        ]
    middle = (scale.end + box.infinity) / 2 + 2
    out += [
        tag("line", x1=box.infinity, x2=box.infinity, y1=box.top - 4, y2=bottom, class_="grid"),
        text(box.infinity, box.top - 9, "∞", "tick infinity", "middle"),
        text(box.left, box.top - 28, f"ε ({box.named})", "axis-title"),
        *(axis_break(box.left, box.right, middle, y) for y in (box.top - 4, bottom)),
    ]
    return "".join(out)


def _row(row: Walls, scale: Scale, box: _Box, top: float, deltas: bool) -> str:
    look = LOOKS[row.verdict]
    y = top + (box.row / 2 if box.wide else 31)

    def at(value: Epsilon) -> float:
        if not value.finite:
            return box.infinity
        return max(scale(value.bare), box.left) if value.bare > 0 else box.left

    label = _label(row.group, deltas)
    verdict = f"{look.mark} {look.word}" if row.claimed is not None else "no claim"
    tone = look.tone if row.claimed is not None else "none"
    if box.wide:
        out = [text(0, y - 2, label, "row-label"), text(0, y + 13, verdict, f"row-verdict tone-{tone}")]
    else:
        out = [
            text(0, top + 15, label, "row-label"),
            text(box.width, top + 15, verdict, f"row-verdict tone-{tone}", "end"),
        ]
    claimed, accounted, observed = (
        each if each in row.drawn else None for each in (row.claimed, row.accounted, row.observed)
    )
    if accounted is not None or observed is not None:
        low = at(observed) if observed is not None else box.left
        high = at(accounted) if accounted is not None else box.right
        bar = f"bar tone-{tone}" + (" open" if observed is None else "")
        out.append(tag("rect", x=min(low, high), y=y - 5, width=abs(high - low), height=10, class_=bar))
    if observed is not None:
        x = at(observed)
        out.append(polygon([(x - 10, y - 8), (x, y), (x - 10, y + 8)], "mark observed"))
    if accounted is not None:
        x = at(accounted)
        out.append(polygon([(x + 10, y - 8), (x, y), (x + 10, y + 8)], "mark accounted"))
    if claimed is not None:
        x = at(claimed)
        out.append(tag("line", x1=x, x2=x, y1=y - 12, y2=y + 12, class_="claimed"))
    if row.ceiling is not None and box.ceilings and box.wide:
        out += [
            tag("rect", x=box.width - 84, y=y - 4, width=50, height=8, class_="ceiling-track"),
            tag("rect", x=box.width - 84, y=y - 4, width=50 * row.ceiling, height=8, class_="ceiling"),
            text(box.width - 2, y + 4, f"{math.ceil(1000 * row.ceiling - 1e-9) / 10:g} %", "tick", "end"),
        ]
    out.append(tag("line", x1=0, x2=box.right, y1=top + box.row, y2=top + box.row, class_="rule"))
    return "".join(out)


def _legend(left: float, y: float, wide: bool) -> str:
    # "claimed" is short: where there is little room the others are nearer to it than to each other.
    claimed, accounted, observed = (left + start + 6 for start in ((0, 128, 256) if wide else (0, 88, 214)))
    return "".join(
        [
            tag("line", x1=claimed, x2=claimed, y1=y - 12, y2=y + 4, class_="claimed"),
            text(claimed + 9, y, "claimed", "tick"),
            polygon([(accounted + 3, y - 10), (accounted - 5, y - 4), (accounted + 3, y + 2)], "mark accounted"),
            text(accounted + 9, y, "accounted (upper)", "tick"),
            polygon([(observed - 4, y - 10), (observed + 4, y - 4), (observed - 4, y + 2)], "mark observed"),
            text(observed + 9, y, "observed (lower)", "tick"),
        ]
    )
