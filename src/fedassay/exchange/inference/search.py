"""The layout of a form's arrays under which its readers tell the most: as sent, or cut and turned back.

Every layout is read by the same rules as arrays that lie as they should. One is taken if every part of what it
cuts is told, or is one of a few statistics, and more is told than of the arrays as they were sent.
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
"""Fields of which every one may lie in its own way; of more, all tables are turned, or one field is cut."""

_TURNED = 4
"""Tables of which every choice is turned, where rows have sides of 1."""

_CHOICES = 12
"""Ways to cut one field that are tried."""

_SIDE_BY_SIDE: frozenset[FieldKind] = frozenset({"features", "class_sums", "class_means"})
"""Kinds of tables whose columns may hold more than one array."""

_VAGUE: frozenset[FieldKind] = frozenset({"parameters", "head", "other", "features"})
"""Kinds for which no arithmetic between arrays speaks, where there are several."""


@dataclass(frozen=True)
class Layout:
    """How a form is read.

    Attributes:
        cuts: The fields that are not read as they were sent.
        sheets: All arrays after these cuts.
        readings: What they are.
        score: How much is told of the fields as they were sent, and of how many parts for certain.
        complete: Whether every array is told for certain.
    """

    cuts: Mapping[str, Cut]
    sheets: Sheets
    readings: Readings
    score: tuple[int, int]
    complete: bool


def best_layout(sheets: Sheets, classes: int, read: Read) -> Layout:
    """The layout that tells most, the arrays as they were sent where none tells more.

    Args:
        sheets: The fields of a form.
        classes: C.
        read: The readers, from fields and classes to readings.
    """
    best = _search(sheets, classes, read)
    arrays = [name for name, sheet in sheets.items() if _is_array(sheet)]
    if best.complete or not 2 < len(arrays) <= _FIELDS:
        return best
    # A field that is no part of the others may keep these from being told.
    found = [_search({n: sheet for n, sheet in sheets.items() if n != name}, classes, read) for name in arrays]
    most = max(each.score for each in found)
    leading = [each for each in found if each.score == most]
    # Where one field or another may be the stranger, neither reading is to be believed.
    return leading[0] if most > best.score and len(leading) == 1 else best


def _search(sheets: Sheets, classes: int, read: Read) -> Layout:
    sent = best = _layout({}, sheets, sheets, classes, read)
    rivals: list[Layout] = []
    arrays = [name for name, sheet in sheets.items() if _is_array(sheet)]
    # What is told whole may still be several arrays side by side.
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
    """The layout that cuts make; None where a part does not fit, takes another's name, or is told as nothing."""
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
    """The best layout where no rival of its score leaves an order in doubt; else the arrays as sent, unsure."""
    if not rivals or not any(each.doubtful for each in best.cuts.values()):
        return best
    # A table by rows that reads as well by columns is neither, but where numbers in another order make far more
    # records: sums lie where a Gram matrix is large, and what was shuffled does not.
    found = sorted((best, *rivals), key=_records)
    if _records(found[0]) < _records(found[1]) / _FEWER:
        return found[0]
    open_ = {
        name: unsure(why=f"it may hold {cut.words}, or in another order: no number tells which")
        for name, cut in best.cuts.items()
    }
    return replace(sent, readings=sent.readings | open_)


def _records(layout: Layout) -> float:
    """How many records a layout makes; infinite where nothing says."""
    made = [reading.records for reading in layout.readings.values() if reading.records is not None]
    return min(made, default=np.inf)


_FEWER = 3.0
"""By how many times fewer records one order of a table must make than another to be the right one."""


def _layout(cuts: Mapping[str, Cut], cut: Sheets, sheets: Sheets, classes: int, read: Read) -> Layout:
    """A layout with what its arrays are, and how much that tells of the fields as they were sent."""
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
    """2 for a kind that arithmetic tells, 1 for a choice of a few or what is tried as a gradient, else 0."""
    if reading.kind is not None:
        return _TOLD if reading.kind not in _VAGUE - {"features"} else 0
    if reading.kinds[:1] == ("gradient",):
        return 1
    return int(bool(reading.kinds) and not _VAGUE & set(reading.kinds))


def _layouts(sheets: Sheets, classes: int) -> Iterator[dict[str, Cut]]:
    """Fields with the cuts that are tried together, fewer first."""
    choices = {
        name: [None, *islice(_cuts(sheet, classes), _CHOICES)]
        for name, sheet in sheets.items()
        if sheet.arrays and not sheet.whole and all(a.size for a in sheet.arrays)
    }
    tables = {name: sheet for name, sheet in sheets.items() if sheet.sides == 2 and sheet.arrays}
    # The layers of one network lie alike.
    if len(tables) > 1:
        yield {name: cut for name, sheet in tables.items() for cut in turned(sheet)}
    # A sender that gives one row a side of 1 gives it to others, and more fields than are cut one by one.
    rows = {name: _without_ones(axes) for name, sheet in sheets.items() if (axes := _ones(sheet))}
    if len(rows) > 1:
        wide = [name for name in tables if name not in rows][:_TURNED]
        for some in (chosen for many in range(len(wide) + 1) for chosen in combinations(wide, many)):
            yield rows | {name: cut for name in some for cut in turned(tables[name])}
    for axis in (1, 0):
        # A table of low rank holds its last column in its range, whatever it is: the last layer has to say more.
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
    """Ways to cut a field, those first for which its own numbers speak."""
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
    """The sides of 1 of an array that has others."""
    if sheet.sides < 2 or not sheet.arrays:
        return ()
    axes = tuple(axis for axis in range(sheet.sides) if all(a.shape[axis] == 1 for a in sheet.arrays))
    return axes if len(axes) < sheet.sides else ()


def _without_ones(axes: tuple[int, ...]) -> Cut:
    return Cut("an array with sides of 1", (Piece(dropped=axes),))


def _dropping(cut: Cut, axes: tuple[int, ...]) -> Cut:
    return replace(cut, pieces=tuple(replace(piece, dropped=axes) for piece in cut.pieces))
