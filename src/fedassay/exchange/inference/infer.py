"""Infer the kinds of undeclared fields from the arrays' own algebra, with the evidence.

If the fields of a captured message are called `t0` and `t1` and declare no kind, only ledger and linter examine
it. But arrays show their kinds. A Gram matrix is symmetric and semidefinite; with a ridge its smallest eigenvalue
is a multiple one. Class sums lie in its range and give whole numbers of records, and ridge weights give class sums
when multiplied with it. Mixtures have weights that sum to one, and gradients of few records have their rank.

`infer_kinds` reads every form of message that clients send by itself. Where the arrays leave several kinds, it
reports these. A declaration that exact arithmetic contradicts is reported and not followed: an adversary reads the
arrays, whatever a manifest calls them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from fedassay.exchange.inference.forms import FORMED
from fedassay.exchange.inference.gradients import in_order, read_gradients
from fedassay.exchange.inference.layouts import Piece
from fedassay.exchange.inference.networks import read_networks
from fedassay.exchange.inference.reading import Reading, Readings, sure, unsure
from fedassay.exchange.inference.search import best_layout
from fedassay.exchange.inference.sheets import MESSAGES, Form, Sheet, forms_of, holds
from fedassay.exchange.inference.statistics import read_statistics
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.release import PrivacyClaim
from fedassay.exchange.transcript import SERVER, Transcript, shape_problem

_LOOSE: tuple[FieldKind, ...] = ("parameters", "head", "other")
"""Kinds that are inferred from shapes and not from arithmetic: they contradict no declaration."""

_WHOLE: tuple[FieldKind, ...] = ("labels", "class_ids", "component_counts")
"""Kinds of whole numbers, which a message may carry as floats."""

_FORMS = 16
"""Largest number of forms of messages that are read; a captured folder may hold any number of them."""


@dataclass(frozen=True)
class Inferred:
    """Inferred kind of a field, or of one part of it.

    Attributes:
        field: Name of the field; with the part's number for one part of a field that holds several.
        declared: The kind that it declares; `other` where it declares none.
        reading: The kinds that its arrays leave, with the evidence.
        messages: Number of messages that hold it.
        source: The field as it was sent.
        piece: The part of that field; None: the field as it lies.
        layout: Contents of the field in words, where it was cut.
        rounded: The coarser type to which its numbers were rounded before, and which holds them exactly; or None.
    """

    field: str
    declared: FieldKind
    reading: Reading
    messages: int
    source: str
    piece: Piece | None = None
    layout: str = ""
    rounded: np.dtype[Any] | None = None

    @property
    def as_sent(self) -> bool:
        """Whether the array is read as it lies in the message."""
        return self.piece is None and not self.reading.transposed

    @property
    def status(self) -> str:
        """`inferred`, `ambiguous`, `unknown`; of declared fields `agrees`, `contradicts` or `not told`."""
        kinds, one = self.reading.kinds, self.reading.kind
        if self.declared == "other":
            if one is not None and one != "other":
                return "inferred"
            return "ambiguous" if len(kinds) > 1 else "unknown"
        if not kinds or (self.declared not in kinds and set(kinds) & set(_LOOSE)):
            return "not told"
        return "agrees" if self.declared in kinds else "contradicts"

    @property
    def read_as(self) -> FieldKind | None:
        """The kind that attacks read in place of the declared one; None where that stands.

        A network's arrays that may be a gradient are tried as one. Nothing is lost if they are weights, which are
        read only beside those that the server sent.
        """
        kinds, one = self.reading.kinds, self.reading.kind
        if (not self.as_sent or self.status in {"inferred", "contradicts"}) and one is not None and one != "other":
            return one
        tried = kinds[:1] == ("gradient",) and self.declared in {"other", "parameters", "head"}
        return "gradient" if tried else None

    @property
    def text(self) -> str:
        """The inference in one sentence, with its evidence."""
        evidence = "; ".join(
            (*((f"{self.source} holds {self.layout}",) if self.layout else ()), *self.reading.evidence)
        )
        kinds = " or ".join(self.reading.kinds) or "no kind that is known"
        if self.status == "contradicts":
            return f"{self.field} declares {self.declared}, but its arrays are {kinds}: {evidence}"
        if self.read_as == "gradient" and self.reading.kind is None:
            return f"{self.field} may be gradient or parameters, and is tried as gradient: {evidence}"
        how = {"inferred": "is", "ambiguous": "may be", "unknown": "is"}.get(self.status, "is declared, and is")
        turned = ", sent as columns" if self.reading.transposed else ""
        return f"{self.field} {how} {kinds}{turned}: {evidence}"


def infer_kinds(transcript: Transcript) -> tuple[Inferred, ...]:
    """Infer the kind of every field that clients send, declared or not, in the order of forms and names."""
    forms = forms_of(transcript)
    read = [found for form in forms[:_FORMS] for found in _possible(form, transcript)]
    why = f"one of more than {_FORMS} forms of messages"
    return (
        *read,
        *(
            Inferred(name, sheet.items[0].kind, unsure(why=why), form.messages, name)
            for form in forms[_FORMS:]
            for name, sheet in form.sheets.items()
        ),
    )


def _possible(form: Form, transcript: Transcript) -> Iterator[Inferred]:
    """Yield the inferences of a form; if they give an impossible message, no kind for any field, and why."""
    found = tuple(_of_form(form, transcript.classes))
    kinds = _by_source(found)
    alike = (message for message in transcript.from_clients() if set(message.fields) == set(form.sheets))
    changed = (_changed(message, kinds) for message in islice(alike, MESSAGES))
    problem = next(
        (why for each in changed if each is not None and (why := shape_problem(each, transcript.classes))), ""
    )
    if not kinds or not problem:
        yield from found
        return
    for name, sheet in form.sheets.items():
        reading = unsure(why=f"its arrays are read as a message that cannot be: {problem}")
        yield Inferred(name, sheet.items[0].kind, reading, form.messages, name)


def _of_form(form: Form, classes: int) -> Iterator[Inferred]:
    noised = sorted(name for name, sheet in form.sheets.items() if sheet.noised)
    if noised:
        why = f"{', '.join(noised)} declare Gaussian noise, which hides what arrays have to do with one another"
        for name, sheet in form.sheets.items():
            yield Inferred(name, sheet.items[0].kind, unsure(why=why), form.messages, name)
        return
    sheets = {name: sheet for name, sheet in form.sheets.items() if sheet.items[0].kind not in FORMED}
    for name, sheet in form.sheets.items():
        if name not in sheets:
            kind = sheet.items[0].kind
            yield Inferred(name, kind, sure(kind, "arithmetic does not tell this kind"), form.messages, name)
    layout = best_layout(sheets, classes, _readings)
    for source, sent in sheets.items():
        cut, declared = layout.cuts.get(source), sent.items[0].kind
        if cut is None:
            reading = _reading(sent, layout.readings)
            yield Inferred(source, declared, reading, form.messages, source, rounded=_rounded(sent, sent))
            continue
        for name, piece in zip(cut.names(source), cut.pieces, strict=True):
            reading = _reading(layout.sheets[name], layout.readings)
            own = layout.sheets[name]
            yield Inferred(name, declared, reading, form.messages, source, piece, cut.words, _rounded(own, sent))


def _rounded(own: Sheet, sent: Sheet) -> np.dtype[Any] | None:
    return None if own.dtype == sent.items[0].dtype else own.dtype


def _readings(sheets: Mapping[str, Sheet], classes: int) -> Readings:
    held = dict(sheets)
    return read_gradients(held, classes) or read_networks(held, classes) or read_statistics(held, classes)


def _reading(sheet: Sheet, readings: Readings) -> Reading:
    if sheet.sides > 1 and sheet.arrays and all(np.ptp(a) == 0 for a in sheet.arrays if a.size):
        return unsure(why="one number throughout, which says nothing")
    if sheet.name not in readings and all(item.size == 1 for item in sheet.items):
        return sure("other", "one number a message")
    return readings.get(sheet.name, unsure(why="no rule reads arrays of this shape beside the others"))


def with_inferred(transcript: Transcript, found: tuple[Inferred, ...]) -> Transcript:
    """Return the same messages with the kinds that were inferred from their arrays (`Inferred.read_as`).

    Fields that hold several arrays are cut, and a claim that covers them covers their parts. Numbers that were
    rounded before get the type to which they were rounded. Weights of the same name that the server sent are cut
    alike. A message keeps its declared kinds if its arrays would contradict the table of kinds.
    """
    kinds = _by_source(found)
    messages = tuple(_redeclared(message, kinds, transcript.classes) for message in transcript.messages)
    claim = transcript.claim
    if isinstance(claim, PrivacyClaim) and claim.covers:
        covers = (name for own in claim.covers for name in (own, *(part.field for part in kinds.get(own, ()))))
        claim = claim.model_copy(update={"covers": tuple(dict.fromkeys(covers))})
    return replace(transcript, messages=messages, claim=claim)


def _by_source(found: Sequence[Inferred]) -> dict[str, list[Inferred]]:
    """Group the inferences by sent field, for fields that are read otherwise than they were sent."""
    kinds: dict[str, list[Inferred]] = {}
    for each in found:
        kinds.setdefault(each.source, []).append(each)
    return {
        name: parts
        for name, parts in kinds.items()
        if any(part.read_as is not None or part.rounded is not None for part in parts)
    }


def _redeclared(message: Message, kinds: Mapping[str, list[Inferred]], classes: int) -> Message:
    changed = _changed(message, kinds)
    return message if changed is None or shape_problem(changed, classes) else changed


def _changed(message: Message, kinds: Mapping[str, list[Inferred]]) -> Message | None:
    """Return a message with its fields as they are read; None where an array does not allow the cut."""
    fields: dict[str, MessageField] = {}
    try:
        for name, item in message.fields.items():
            fields |= _read(name, item, kinds.get(name, ()), message.sender == SERVER)
    except ValueError:
        # A part has no such place in an array of another shape.
        return None
    return replace(message, fields=fields if message.sender == SERVER else _sorted(fields))


def _read(name: str, item: MessageField, parts: Sequence[Inferred], down: bool) -> dict[str, MessageField]:
    """Return a field's parts as they are read; of the server's, only weights are cut, and keep their kind."""
    if not parts or (item.kind not in {"parameters", "head"} if down else item.kind != parts[0].declared):
        return {name: item}
    if all(part.read_as is None for part in parts) and any(not part.as_sent for part in parts):
        return {name: item}
    if down and all(part.read_as != "gradient" for part in parts):
        return {name: item}
    read = {}
    for part in parts:
        kind = item.kind if down else part.read_as or ("other" if part.piece is not None else item.kind)
        whole = kind in _WHOLE and item.dtype.kind == "f"
        if part.as_sent and not whole and part.rounded is None:
            read[part.field] = replace(item, kind=kind)
            continue
        values = item.values if part.piece is None else part.piece.of(item.values)
        values = values.T if part.reading.transposed else values
        if whole:
            values = values.astype(np.int64)
        elif part.rounded is not None and holds(part.rounded, values):
            values = values.astype(part.rounded)
        read[part.field] = replace(item, kind=kind, sent=values)
    return read


def _sorted(fields: dict[str, MessageField]) -> dict[str, MessageField]:
    """Sort the arrays of a gradient by layer, an order that a message need not have."""
    shapes = {name: item.shape for name, item in fields.items() if item.kind == "gradient"}
    if not shapes:
        return fields
    order = (*(name for name in fields if name not in shapes), *in_order(list(shapes), shapes))
    return {name: fields[name] for name in order}
