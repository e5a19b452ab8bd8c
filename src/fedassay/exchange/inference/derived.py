"""Fields that hold statistics in another form than sums, found by declaration, name or algebra.

A field is one of these by its declaration; in files by its name (`fedassay.exchange.kinds.called`), by ones on its
diagonal, or by rows of length 1 at right angles. `fedassay.exchange.inference.forms` says what follows from them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.inference.forms import FORMED, FORMS, HALF, NEAR, Formed, Held, orthonormal
from fedassay.exchange.inference.populations import Populations, symmetric_as, widths_of
from fedassay.exchange.kinds import FieldKind, called, facts_of
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.shapes import shape_problem
from fedassay.exchange.transcript import Transcript
from fedassay.support.registry import entries
from fedassay.support.types import Matrix

_BESIDE: tuple[FieldKind, ...] = ("class_counts", "class_means", "class_sums", "labels")
_UNTOLD = ("other", "parameters", "head")
_ENTRIES = 1 << 24
_FIELDS = 6
"""Largest number of fields in a message for which the reader suggests `--kinds`."""


def derived_from(transcript: Transcript, *, names: bool) -> Populations | None:
    """Read messages of such statistics as the sums that they are; None where clients send none.

    Args:
        transcript: The messages.
        names: Whether the names of fields count as evidence of their kinds.
    """
    sent = [message for message in transcript.from_clients() if message.fields]
    read = [_message(message, names) for message in sent]
    if not sent or any(each is None for each in read):
        return None
    done = {id(message): each for message, each in zip(sent, read, strict=True) if each is not None}
    first = done[id(sent[0])]
    groups = {
        len(values)
        for each in done.values()
        for kind, values in each.fields.values()
        if kind in {"class_counts", "class_means", "class_covariances"}
    }
    classes = groups.pop() if len(groups) == 1 else transcript.classes

    def changed(message: Message) -> Message:
        if id(message) not in done:
            return message
        fields = {
            name: replace(item, kind=kind, sent=values)
            for name, item in message.fields.items()
            for kind, values in [done[id(message)].fields.get(name, (item.kind, item.values))]
        }
        return replace(message, fields=fields, stored=None)

    messages = tuple(map(changed, transcript.messages))
    if any(message.sender != SERVER and shape_problem(message, classes) for message in messages):
        return None
    notes = (*transcript.notes, first.text)
    return Populations(replace(transcript, classes=classes, messages=messages, notes=notes), first.text)


def _message(message: Message, names: bool) -> Formed | None:
    kinds = _kinds(message, names)
    if kinds is None:
        return None
    unknown = [name for name, kind in kinds.items() if kind is None and message.fields[name].size > 1]
    if unknown:
        return _asked(message, kinds, unknown)
    held = _held(message, kinds)
    if held is None:
        return None
    found = next((read for form in FORMS if (read := form(held)) is not None), None)
    if found is None:
        return None
    own: dict[str, tuple[FieldKind, NDArray[Any]]] = {
        name: (kind, values.ravel() if facts_of(kind).sides == 1 else values)
        for name, kind in kinds.items()
        for values in [message.fields[name].values]
        if kind is not None and not kind.startswith("class_")
    }
    if held.counts is not None and "class_counts" in held.names:
        own[held.names["class_counts"]] = ("class_counts", held.counts.astype(np.int64))
    if held.means is not None:
        name = held.names.get("class_means") or held.names["class_sums"]
        own[name] = ("class_means", held.means)
        if "class_sums" in held.values and name != held.names["class_sums"]:
            own[held.names["class_sums"]] = ("class_sums", held.values["class_sums"].reshape(held.groups, -1))
    return replace(found, fields=own | found.fields)


def _kinds(message: Message, names: bool) -> dict[str, FieldKind | None] | None:
    """Return the kind of every field by declaration, name or algebra; None where one is noised or too large."""
    fields = message.fields
    if any(i.release.mechanism not in {"exact", "public"} or i.size > _ENTRIES for i in fields.values()):
        return None
    found = {name: _said(name, item, names) for name, item in fields.items()}
    open_ = [name for name, kind in found.items() if kind is None and fields[name].kind in _UNTOLD]
    if names:
        tables = [name for name in open_ if fields[name].values.squeeze().ndim > 1]
        if len(tables) == 1 and not {"correlation", "axes"} & set(found.values()):
            found[tables[0]] = _by_algebra(fields[tables[0]].values.squeeze())
        elif not tables and len(fields) <= _FIELDS:
            packed = [name for name in open_ if _is_packed_correlation(fields[name])]
            found |= dict.fromkeys(packed[:1], "correlation")
        return found | _rest(message, found)
    return found


def _said(name: str, item: MessageField, names: bool) -> FieldKind | None:
    """Return the kind of a field by its declaration or by its name; None where neither gives one."""
    known = (*FORMED, *_BESIDE)
    if item.kind in known:
        return item.kind
    if not names or item.kind not in _UNTOLD:
        return None
    said = next((kind for kind in called(name) if kind in known or kind in entries("field")), None)
    return said if said in known else None


def _rest(message: Message, found: dict[str, FieldKind | None]) -> dict[str, FieldKind]:
    """Assign kinds to the vectors beside a correlation or axes where one reading is left, and to the count."""
    rows = {
        name: np.asarray(message.fields[name].values, np.float64).ravel()
        for name, kind in found.items()
        if kind is None
    }
    told: dict[str, FieldKind] = {}
    if "correlation" in found.values():
        item = next(message.fields[name] for name, kind in found.items() if kind == "correlation")
        width = item.shape[-1] if len(item.shape) > 1 and item.shape[-1] > 1 else max(widths_of((item.size,), 0))
        wide = [name for name, row in rows.items() if row.size == width]
        spread = [name for name in wide if (rows[name] >= 0).all()]
        if "deviations" not in found.values() and len(spread) == 1:
            told |= {name: "deviations" if name in spread else "class_means" for name in wide if len(wide) < 3}
    elif "axes" in found.values():
        sides = next(message.fields[name].shape for name, kind in found.items() if kind == "axes")
        falling = [name for name, row in rows.items() if row.size == min(sides) and _falls(row)]
        if len(falling) == 2:
            one, two = falling
            for along, spread_ in ((one, two), (two, one)):
                if np.ptp(ratios := _ratios(rows[along], rows[spread_])) < HALF * ratios.max():
                    told |= {along: "singular_values", spread_: "axis_variances"}
        wide = [name for name, row in rows.items() if row.size == max(sides) and name not in falling]
        told |= {name: "class_means" for name in wide if len(wide) == 1 and "class_means" not in found.values()}
    else:
        return {}
    counts = [name for name, row in rows.items() if row.size == 1 and row[0] > 1 and row[0] == np.rint(row[0])]
    if len(counts) == 1 and "class_counts" not in found.values():
        told[counts[0]] = "class_counts"
    return told


def _falls(row: Matrix) -> bool:
    """Whether numbers are non-negative and in falling order, as variances along principal axes are."""
    return bool((row >= 0).all() and (np.diff(row) <= 0).all() and row[0] > row[-1])


def _ratios(along: Matrix, variances: Matrix) -> Matrix:
    """Return s^2 / v where v is not 0; every ratio is n - 1 if both come from one decomposition."""
    live = variances > NEAR * variances.max()
    return np.asarray(np.square(along[live]) / variances[live], np.float64)


def _asked(message: Message, kinds: dict[str, FieldKind | None], unknown: list[str]) -> Formed | None:
    """Return the correlation or axes of a message, and a text that asks for the kinds of its unknown fields."""
    kind = next((each for each in ("correlation", "axes") if each in kinds.values()), None)
    if kind is None or len(kinds) > _FIELDS or any(message.fields[n].values.squeeze().ndim > 1 for n in unknown):
        return None
    name = next(name for name, each in kinds.items() if each == kind)
    if kind == "correlation":
        words, options = "has ones on its diagonal, as a correlation has", ("deviations", "class_means")
    elif any(_falls(np.asarray(message.fields[each].values, np.float64).ravel()) for each in unknown):
        words, options = "holds directions at right angles", ("axis_variances", "singular_values")
    else:
        return None
    asked = " ".join(f"--kinds {each}=..." for each in unknown)
    return Formed(
        {name: (kind, message.fields[name].values)},
        f"{name} {words}, and the arrays do not tell the others: say {asked} with {' or '.join(options)}",
    )


def _held(message: Message, kinds: dict[str, FieldKind | None]) -> Held | None:
    """The statistics of a message; None where it holds none, or they do not fit."""
    found: dict[FieldKind, str] = {}
    for name, kind in kinds.items():
        if kind is not None:
            found.setdefault(kind, name)
    if not set(found) & {*FORMED, "class_means"}:
        return None
    values = {kind: np.asarray(message.fields[name].values, np.float64) for kind, name in found.items()}
    values = {kind: each.squeeze() if each.ndim > 1 and 1 in each.shape else each for kind, each in values.items()}
    counts = values.get("class_counts")
    if counts is not None and (counts.ndim > 1 or (counts < 0).any() or (counts != np.rint(counts)).any()):
        return None
    groups = 1 if counts is None else counts.size
    if counts is None and "class_means" in values and values["class_means"].ndim == 2:
        groups = len(values["class_means"])
    if "correlation" in values:
        item = message.fields[found["correlation"]]
        shape = tuple(side for side in item.shape if side > 1)
        spread = next(
            (values[kind] for kind in ("deviations", "variances", "class_means") if kind in values), None
        )
        wide = widths_of(shape, groups if groups > 1 else 0)
        wide = tuple(side for side in wide if spread is None or side * groups == spread.size)
        if not wide:
            return None
        values["correlation"] = symmetric_as(item, groups, wide[0])
    if any(values[kind].size % groups for kind in {"class_means", "class_sums"} & set(values)):
        return None
    return Held(found, values, groups, None if counts is None else counts.reshape(-1))


def _is_packed_correlation(item: MessageField) -> bool:
    """Whether a field is a packed triangle or a flattened matrix with a diagonal of ones and other entries."""
    shape = tuple(side for side in item.shape if side > 1)
    if len(shape) != 1 or item.dtype.kind != "f":
        return False
    near = HALF if item.dtype.itemsize == 2 else NEAR
    found = (symmetric_as(item, 1, width)[0] for width in widths_of(shape, 0) if width > 2)
    return any(
        np.abs(np.diagonal(each) - 1).max() < near and np.abs(each).max() < 1 + near and np.ptp(each) > near
        for each in found
    )


def _by_algebra(values: NDArray[Any]) -> FieldKind | None:
    """A correlation, or rows of length 1 at right angles."""
    if values.ndim != 2 or min(values.shape) < 2 or values.dtype.kind != "f":
        return None
    square = values.shape[0] == values.shape[1]
    near = HALF if values.dtype.itemsize == 2 else NEAR
    whole = np.asarray(values, np.float64)
    if square and np.abs(whole - whole.T).max() < near and np.abs(np.diagonal(whole) - 1).max() < near:
        told = np.abs(whole).max() < 1 + near and (whole != np.eye(len(whole))).any() and np.ptp(whole) > near
        return "correlation" if told else None
    short = whole if whole.shape[0] <= whole.shape[1] else whole.T
    return "axes" if not square and orthonormal(short) else None
