"""Count, vector and matrix of all records of a client, or of each group of them, as statistics services send them.

No kind of field speaks of a population without classes. Such messages are read as of one class, all records, so
that every attack on class-wise statistics reads them; the number of classes becomes that of the groups.
The kinds of the vector and the matrix follow from their algebra (`fedassay.exchange.inference.moments`), or from
their names where the algebra leaves several readings. Where neither decides, the fields stay as they were sent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.inference.grams import bounded
from fedassay.exchange.inference.layouts import lower_of_upper
from fedassay.exchange.inference.moments import Block, Meaning, Row, Spread, meanings_of
from fedassay.exchange.inference.sheets import Sheet
from fedassay.exchange.kinds import FieldKind, called
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.shapes import MAX_COUNT, shape_problem
from fedassay.exchange.transcript import Transcript
from fedassay.mixtures.packed import side_of_triangle, unpack_lower

Array = NDArray[Any]

_UNTOLD: tuple[FieldKind, ...] = ("other", "parameters", "head")
"""Kinds that declare nothing of statistics: recorders write them where no kind was given."""
_LOOKED = 12
"""Messages that are examined for a reading that all of them share."""
_GROUPS = 4096
_ENTRIES = 1 << 24
_ROWS = {"class_sums": "sum", "class_means": "mean"}
_MATRICES = {"class_covariances": "covariance", "second_moment": "second moment"}
_SCATTER = re.compile(r"(?i)(?<![a-z])(scatter|m2|sscp|comoment|sxx)(?![a-z])")


_BY_NAME: dict[tuple[str, str], tuple[Row, Spread]] = {
    ("mean", "covariance"): ("mean", "covariance"),
    ("mean", "scatter"): ("mean", "scatter"),
    ("sum", "scatter"): ("sum", "scatter"),
}
"""Readings that names alone give; a reading with a second moment needs the algebra."""


@dataclass(frozen=True)
class Populations:
    """Messages read as counts, vectors and matrices of populations.

    Attributes:
        transcript: The transcript with the kinds of these fields.
        text: A sentence that describes the reading.
    """

    transcript: Transcript
    text: str


@dataclass(frozen=True)
class _Parts:
    """Names of the fields, the number of groups (0: one population, no side for groups) and the width d."""

    count: str
    row: str
    matrix: str
    groups: int
    width: int


def populations_of(transcript: Transcript) -> Populations | None:
    """Read a transcript as one of populations; None where its messages show no such statistics.

    Fields that declare what they are, or noise, are left alone, and so are messages that hold other tables.
    """
    sent = list(transcript.from_clients())
    if not sent or any(message.sender == SERVER and message.fields for message in transcript.messages):
        return None
    parts = _parts(sent[0])
    if parts is None or any(_parts(message) != parts for message in sent):
        return None
    blocks = [block for message in sent[:_LOOKED] for block in _blocks(message, parts)]
    fields = [message.fields for message in sent[:_LOOKED]]
    unit = max(Sheet(name, tuple(own[name] for own in fields)).unit for name in (parts.row, parts.matrix))
    meaning = _told(meanings_of(blocks, unit), parts)
    if meaning is None or (parts.groups and parts.groups == transcript.classes and not _alike(sent, parts)):
        return None
    classes = max(1, parts.groups)
    messages = tuple(_read(message, parts, meaning) for message in transcript.messages)
    if any(shape_problem(message, classes) for message in messages):
        return None
    text = (
        f"{parts.row} is read as the {meaning.row} and {parts.matrix} as the {meaning.matrix} of as many records "
        f"as {parts.count} says: {meaning.evidence}"
    )
    read = replace(transcript, classes=classes, messages=messages, notes=(*transcript.notes, text))
    return Populations(read, text)


def _parts(message: Message) -> _Parts | None:
    """The only count, vector and matrix of a message that fit together."""
    # True and false, as of settings, are no statistics.
    fields = {name: item for name, item in message.fields.items() if item.dtype.kind != "b"}
    if any(item.release.mechanism == "gaussian" for item in fields.values()):
        return None
    shapes = {
        name: tuple(side for side in item.shape if side > 1)
        for name, item in fields.items()
        if item.kind in _UNTOLD and item.dtype.kind in "iuf" and 0 < item.size <= _ENTRIES
    }
    if len(shapes) != len(fields):
        return None
    found = []
    for count, own in shapes.items():
        if len(own) > 1 or not _counts(fields[count]):
            continue
        # Counts by class may stand beside a vector and a matrix of all records, which as many as their sum made.
        groups = own[0] if own else 0
        if groups > _GROUPS:
            continue
        ways = [(name, side, groups) for name in shapes for side in widths_of(shapes[name], groups)]
        ways = ways or [(name, side, 0) for name in shapes if name != count for side in widths_of(shapes[name], 0)]
        for matrix, width, groups in ways:
            if matrix != count and _symmetric(symmetric_as(fields[matrix], groups, width), fields[matrix]):
                wanted = {(groups, width), (width, groups)} if groups else {(width,)}
                rows = [name for name in shapes if shapes[name] in wanted and name not in {count, matrix}]
                found += [_Parts(count, row, matrix, groups, width) for row in rows]
    named = [each for each in found if _word(each.row, _ROWS)]
    found = named if len(found) > 1 and named else found
    tables = sum(len(shape) > 1 for shape in shapes.values())
    return found[0] if len(found) == 1 and tables <= 1 + bool(found[0].groups) else None


def _counts(item: MessageField) -> bool:
    """Whether a field may hold counts of records: whole numbers, not all of them 0."""
    values = np.asarray(item.values, np.float64)
    return bool(
        (values >= 0).all()
        and (values > 0).any()
        and (values <= MAX_COUNT).all()
        and np.array_equal(values, np.rint(values))
    )


def widths_of(shape: tuple[int, ...], groups: int) -> tuple[int, ...]:
    """The widths of the symmetric matrices that an array of this shape may be, one a group."""
    inner = shape
    if groups:
        if not shape or shape[0] != groups:
            return ()
        inner = shape[1:]
    if len(inner) == 2:
        return inner[:1] if inner[0] == inner[1] else ()
    if len(inner) != 1:
        return ()
    side = math.isqrt(inner[0])
    return tuple(filter(None, (side_of_triangle(inner[0]), side if side * side == inner[0] else 0)))


def symmetric_as(item: MessageField, groups: int, width: int) -> Array:
    """Return symmetric matrices (P, d, d); a packed triangle is lower if its diagonal bounds it, else upper."""
    values = np.asarray(item.values, np.float64).reshape(max(1, groups), -1)
    if values.shape[1] == width * width:
        return values.reshape(-1, width, width)
    unit = _unit(item)
    lower = np.array([unpack_lower(row) for row in values])
    if all(bounded(each, unit) for each in lower):
        return lower
    return np.array([unpack_lower(lower_of_upper(row)) for row in values])


def _symmetric(matrices: Array, item: MessageField) -> bool:
    unit = max(_unit(item), 1e-12)
    near = 16 * unit * float(np.abs(matrices).max(initial=0.0))
    turned = np.moveaxis(matrices, -1, -2)
    return bool(np.abs(matrices - turned).max() <= near) and all(bounded(each, unit) for each in matrices)


def _unit(item: MessageField) -> float:
    return Sheet("", (item,)).unit


def _blocks(message: Message, parts: _Parts) -> list[Block]:
    fields, counts = message.fields, _counts_of(message, parts)
    rows, matrices = (
        _rows_of(fields[parts.row], parts),
        symmetric_as(fields[parts.matrix], parts.groups, parts.width),
    )
    return [Block(int(n), row, matrix) for n, row, matrix in zip(counts, rows, matrices, strict=True)]


def _counts_of(message: Message, parts: _Parts) -> Array:
    """Return the number of records of each population, shape (P,)."""
    counts = np.asarray(message.fields[parts.count].values, np.float64)
    return counts.reshape(parts.groups) if parts.groups else counts.sum(keepdims=True).reshape(1)


def _rows_of(item: MessageField, parts: _Parts) -> Array:
    """Return the vectors, shape (P, d), transposed where they were sent as columns."""
    values = np.asarray(item.values, np.float64)
    if parts.groups and tuple(side for side in item.shape if side > 1) == (parts.width, parts.groups):
        values = np.ascontiguousarray(values.reshape(parts.width, parts.groups).T)
    return values.reshape(max(1, parts.groups), parts.width)


def _told(found: tuple[Meaning, ...], parts: _Parts) -> Meaning | None:
    """Return the only reading that the algebra leaves, or that names select; None where neither decides."""
    row, matrix = _word(parts.row, _ROWS), _word(parts.matrix, _MATRICES)
    if not found and (row, matrix) in _BY_NAME:
        return Meaning(*_BY_NAME[row, matrix], "their names say so, and their algebra does not tell")
    if len(found) > 1:
        named = [
            each for each in found if (not row or each.row == row) and (not matrix or (matrix in each.matrix))
        ]
        found = tuple(named) or found
    usual = [each for each in found if (each.row, each.matrix) != ("mean", "scatter")]
    # A scatter beside a mean is rare, so that it is read only where the name says so.
    found = found if matrix == "scatter" else tuple(usual) or found
    return found[0] if len(found) == 1 else None


def _word(name: str, words: Mapping[FieldKind, str]) -> str:
    """Return the statistic that a field's name denotes; empty where it denotes none."""
    if words is _MATRICES and _SCATTER.search(name.replace("_", " ")):
        return "scatter"
    return next((words[kind] for kind in called(name) if kind in words), "")


def _alike(sent: list[Message], parts: _Parts) -> bool:
    """Whether all groups have one count, so that size does not distinguish sums from means."""
    return all(np.ptp(np.asarray(message.fields[parts.count].values, np.float64)) == 0 for message in sent)


def _read(message: Message, parts: _Parts, meaning: Meaning) -> Message:
    """A message with its count, vector and matrix as kinds that attacks read."""
    if message.sender == SERVER:
        return message
    fields, counts = message.fields, _counts_of(message, parts)
    rows, matrices = (
        _rows_of(fields[parts.row], parts),
        symmetric_as(fields[parts.matrix], parts.groups, parts.width),
    )
    row_kind: FieldKind = "class_sums" if meaning.row == "sum" else "class_means"
    kind: FieldKind = "class_second_moments"
    means = rows / np.maximum(counts, 1)[:, None] if meaning.row == "sum" else rows
    if meaning.matrix == "covariance":
        kind, row_kind, rows = "class_covariances", "class_means", means
    elif meaning.matrix == "scatter":
        matrices = matrices + counts[:, None, None] * means[:, :, None] * means[:, None, :]
    elif meaning.matrix == "mean second moment":
        matrices = counts[:, None, None] * matrices
    if kind == "class_second_moments" and not parts.groups:
        kind, matrices = "second_moment", matrices[0]
    changed: Mapping[str, tuple[FieldKind, Array]] = {
        parts.count: ("class_counts", np.rint(counts).astype(np.int64)),
        parts.row: (row_kind, _as_sent(rows, fields[parts.row])),
        parts.matrix: (kind, _as_sent(matrices, fields[parts.matrix])),
    }
    read = {
        name: replace(item, kind=changed[name][0], sent=changed[name][1]) if name in changed else item
        for name, item in fields.items()
    }
    return Message(message.round, message.sender, message.receiver, read)


def _as_sent(values: Array, item: MessageField) -> Array:
    """Convert to the type of the field as sent, which shows how far its numbers were rounded."""
    found = Sheet("", (item,)).dtype
    return values.astype(found if found.kind == "f" else np.float64)
