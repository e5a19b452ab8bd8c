"""Search for the layout of a form's arrays under which the readers identify most of them.

Every layout is read by the same rules as arrays in their usual order. A layout is taken if each part of its cuts
is identified, or is one of a few statistics, and it identifies more than the arrays as they were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product

import numpy as np

from fedassay.exchange.inference.joined import (
    beside_matrix,
    ends,
    flat_gradient,
    halves,
    in_one_row,
    with_offsets,
    with_whole_columns,
)
from fedassay.exchange.inference.layouts import Cut, Piece, flattened, one_hot, squares, turned
from fedassay.exchange.inference.reading import Reading, Readings, unsure
from fedassay.exchange.inference.sheets import Sheet
from fedassay.exchange.kinds import FieldKind

Sheets = dict[str, Sheet]
Read = Callable[[Sheets, int], Readings]

_LAYOUTS = 64
"""Layouts of one form that are read."""

_FIELDS = 8
"""Largest number of fields cut independently; with more, all tables are transposed, or one field is cut."""

_TURNED = 4
"""Largest number of tables with every subset transposed, where rows have sides of 1."""

_CHOICES = 12
"""Largest number of ways to cut one field."""

_SIDE_BY_SIDE: frozenset[FieldKind] = frozenset({"features", "class_sums", "class_means"})
"""Kinds of tables that may hold more than one array side by side."""

_VAGUE: frozenset[FieldKind] = frozenset({"parameters", "head", "other", "features"})
"""Kinds that no arithmetic between several arrays supports."""


@dataclass(frozen=True)
class Layout:
    """A layout of the arrays of a form, with their readings.

    Attributes:
        cuts: The fields that are not read as they were sent.
        sheets: All arrays after these cuts.
        readings: Readings of these arrays.
        score: Number of identified fields as they were sent, and the number of parts that are certain.
        complete: Whether every array is identified for certain.
    """

    cuts: Mapping[str, Cut]
    sheets: Sheets
    readings: Readings
    score: tuple[int, int]
    complete: bool


def best_layout(sheets: Sheets, classes: int, read: Read) -> Layout:
    """Return the layout that identifies most; the arrays as they were sent where none identifies more.

    Args:
        sheets: The fields of a form.
        classes: C.
        read: The readers, from fields and classes to readings.
    """
    best = _search(sheets, classes, read)
    arrays = [name for name, sheet in sheets.items() if _is_array(sheet)]
    if best.complete or not 2 < len(arrays) <= _FIELDS:
        return best
    # A field that does not belong to the others may prevent their identification.
    found = [_search({n: sheet for n, sheet in sheets.items() if n != name}, classes, read) for name in arrays]
    most = max(each.score for each in found)
    leading = [each for each in found if each.score == most]
    # Where either of two fields may be the one that does not belong, neither reading is credible.
    if most <= best.score or len(leading) > 1:
        return best
    # The other kinds that it was left with stand, so that its name can decide.
    left = {name: reading for name, reading in best.readings.items() if name not in leading[0].readings}
    return replace(leading[0], readings=left | leading[0].readings)


def _search(sheets: Sheets, classes: int, read: Read) -> Layout:
    sent = best = _layout({}, sheets, sheets, classes, read)
    rivals: list[Layout] = []
    arrays = [name for name, sheet in sheets.items() if _is_array(sheet)]
    # A table that is identified as a whole may still be several arrays side by side.
    tables = {name for name in arrays if name in best.readings and best.readings[name].kind in _SIDE_BY_SIDE}
    arrays = [name for name in arrays if name in tables or not best.complete]
    for cuts in _layouts({name: sheets[name] for name in arrays}, classes):
        layout = _laid_out(cuts, sheets, classes, read)
        if layout is None:
            continue
        doubtful = any(each.doubtful for each in cuts.values())
        more = layout.score > best.score and (best is not sent or set(cuts) <= tables)
        if more or layout.score[0] > best.score[0]:
            best, rivals = layout, []
            if best.complete and not doubtful:
                break
        elif layout.score == best.score and best is not sent and set(cuts) == set(best.cuts):
            rivals.append(layout)
    return _settled(sent, best, rivals)


def _laid_out(cuts: Mapping[str, Cut], sheets: Sheets, classes: int, read: Read) -> Layout | None:
    """Return the layout after cuts; None where a part does not fit, takes another's name, or has no reading."""
    try:
        parts = {name: cut.parts(sheets[name]) for name, cut in cuts.items()}
    except ValueError:
        return None
    cut = {new: sheet for name in sheets for new, sheet in parts.get(name, {name: sheets[name]}).items()}
    if len(cut) != sum(len(parts.get(name, [name])) for name in sheets):
        return None
    layout = _layout(cuts, cut, sheets, classes, read)
    told = (_told(layout.readings[new]) if new in layout.readings else 0 for own in parts.values() for new in own)
    return layout if all(told) else None


def _settled(sent: Layout, best: Layout, rivals: Sequence[Layout]) -> Layout:
    """Return the best layout, or the arrays as sent where a rival of equal score leaves an order in doubt."""
    if not rivals or not any(each.doubtful for each in best.cuts.values()):
        return best
    # A table that reads equally well by rows and by columns stays undecided, unless one order makes far fewer
    # records: class sums lie where a Gram matrix is large, and numbers in a wrong order do not.
    found = sorted((best, *rivals), key=_records)
    if _records(found[0]) < _records(found[1]) / _FEWER:
        return found[0]
    open_ = {
        name: unsure(why=f"it may hold {cut.words}, or in another order: no number tells which")
        for name, cut in best.cuts.items()
    }
    return replace(sent, readings=sent.readings | open_)


def _records(layout: Layout) -> float:
    """Return the least number of records under a layout; infinite where no reading gives one."""
    made = [reading.records for reading in layout.readings.values() if reading.records is not None]
    return min(made, default=np.inf)


_FEWER = 3.0
"""Factor by which the right order of a table must make fewer records than the other."""


def _layout(cuts: Mapping[str, Cut], cut: Sheets, sheets: Sheets, classes: int, read: Read) -> Layout:
    """Read the arrays after cuts, and score how far this identifies the fields as they were sent."""
    readings = read(cut, classes)
    told = {name: _told(readings[name]) if name in readings else 0 for name in cut}
    sent = [[told[new] for new in (cuts[name].names(name) if name in cuts else (name,))] for name in sheets]
    score = sum(map(min, sent)), sum(own.count(_TOLD) for own in sent if min(own) == _TOLD)
    complete = all(told[name] == _TOLD for name, sheet in cut.items() if _is_array(sheet))
    return Layout(cuts, cut, readings, score, complete)


_TOLD = 2


def _is_array(sheet: Sheet) -> bool:
    """Whether a field is more than one number, such as how many records there are."""
    return sheet.sides > 0 and any(item.size > 1 for item in sheet.items)


def _told(reading: Reading) -> int:
    """Return 2 for a kind that arithmetic shows, 1 for a choice of a few or a possible gradient, else 0."""
    if reading.kind is not None:
        return _TOLD if reading.kind not in _VAGUE - {"features"} else 0
    if reading.kinds[:1] == ("gradient",):
        return 1
    return int(bool(reading.kinds) and not _VAGUE & set(reading.kinds))


def _layouts(sheets: Sheets, classes: int) -> Iterator[dict[str, Cut]]:
    """Yield cuts by field that are tried together, fewer cuts first."""
    choices = {
        name: [None, *islice(_cuts(sheet, classes), _CHOICES)]
        for name, sheet in sheets.items()
        if sheet.arrays and not sheet.whole and all(a.size for a in sheet.arrays)
    }
    tables = {name: sheet for name, sheet in sheets.items() if sheet.sides == 2 and sheet.arrays}
    # The layers of one network lie alike.
    if len(tables) > 1:
        yield {name: cut for name, sheet in tables.items() for cut in turned(sheet)}
    # A sender that gives one row a side of 1 gives it to others too, possibly to more fields than are cut singly.
    rows = {name: _without_ones(axes) for name, sheet in sheets.items() if (axes := _ones(sheet))}
    if len(rows) > 1:
        wide = [name for name in tables if name not in rows][:_TURNED]
        for some in (chosen for many in range(len(wide) + 1) for chosen in combinations(wide, many)):
            yield rows | {name: cut for name in some for cut in turned(tables[name])}
    for axis in (1, 0):
        # The last column of a table of low rank is always in its range, so that the last layer has to show more.
        if any(ends(sheet, classes, axis) for sheet in tables.values()):
            yield {name: with_offsets(axis) for name, sheet in tables.items()}
    if len(choices) <= _FIELDS:
        found = [
            {name: cut for name, cut in zip(choices, picked, strict=True) if cut is not None}
            for picked in islice(product(*choices.values()), 4 * _LAYOUTS)
        ]
        yield from sorted((each for each in found if each), key=len)[:_LAYOUTS]
    else:
        each = ({name: cut} for name, own in choices.items() for cut in own if cut is not None)
        yield from islice(each, _LAYOUTS)


def _cuts(sheet: Sheet, classes: int) -> Iterator[Cut]:
    """Yield the ways to cut a field, those that its own numbers support first."""
    if axes := _ones(sheet):
        yield _without_ones(axes)
        sheet = Sheet(
            sheet.name, tuple(replace(item, sent=np.squeeze(item.values, axis=axes)) for item in sheet.items)
        )
        yield from (_dropping(cut, axes) for cut in _cuts(sheet, classes))
        return
    yield from squares(sheet)
    yield from beside_matrix(sheet)
    yield from with_whole_columns(sheet)
    yield from one_hot(sheet, classes)
    yield from in_one_row(sheet, classes)
    yield from flat_gradient(sheet, classes)
    yield from flattened(sheet, classes)
    yield from halves(sheet, classes)
    yield from turned(sheet)


def _ones(sheet: Sheet) -> tuple[int, ...]:
    """Return the axes of length 1 of an array that also has longer ones; empty where there are none."""
    if sheet.sides < 2 or not sheet.arrays:
        return ()
    axes = tuple(axis for axis in range(sheet.sides) if all(a.shape[axis] == 1 for a in sheet.arrays))
    return axes if len(axes) < sheet.sides else ()


def _without_ones(axes: tuple[int, ...]) -> Cut:
    return Cut("an array with sides of 1", (Piece(dropped=axes),))


def _dropping(cut: Cut, axes: tuple[int, ...]) -> Cut:
    return replace(cut, pieces=tuple(replace(piece, dropped=axes) for piece in cut.pieces))
