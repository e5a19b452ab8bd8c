"""Kinds of fields that nobody declared, inferred from the arrays' own algebra, with the evidence.

A captured message whose fields are called `t0` and `t1` and declare nothing is looked at by ledger and linter
alone. But arrays say what they are: a Gram matrix is symmetric and semidefinite, with a ridge its smallest
eigenvalue is a multiple one, class sums lie in its range and give whole numbers of records, ridge weights give
class sums when multiplied with it, mixtures have weights that sum to one, gradients of few records have their
rank. `infer_kinds` reads every form of message that clients send by itself. What the arrays do not tell is said,
with the kinds that remain. A declaration that exact arithmetic contradicts is said and not followed: an
adversary reads the arrays, whatever a manifest calls them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedassay.exchange.inference.gradients import in_order, read_gradients
from fedassay.exchange.inference.networks import read_networks
from fedassay.exchange.inference.reading import Reading, Readings, unsure
from fedassay.exchange.inference.sheets import Form, forms_of
from fedassay.exchange.inference.statistics import read_statistics
from fedassay.exchange.message import FieldKind, Message, MessageField
from fedassay.exchange.transcript import SERVER, Transcript, shape_problem

_LOOSE: tuple[FieldKind, ...] = ("parameters", "head", "other")
"""Kinds that shapes tell, and no arithmetic: they contradict no declaration."""

_FORMS = 16
"""Forms of messages that are read; whoever captured them, or made them up, chose how many there are."""


@dataclass(frozen=True)
class Inferred:
    """What was inferred of a field.

    Attributes:
        field: Its name.
        declared: The kind that it declares; `other` where it declares none.
        reading: The kinds that its arrays leave, with the evidence.
        messages: Messages that hold it.
    """

    field: str
    declared: FieldKind
    reading: Reading
    messages: int

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

        A network's arrays that may be a gradient are tried as one: of weights nothing is lost by it, for these are
        read only beside those that the server sent.
        """
        kinds, one = self.reading.kinds, self.reading.kind
        if self.status in {"inferred", "contradicts"} and one is not None and one != "other":
            return one
        tried = kinds[:1] == ("gradient",) and self.declared in {"other", "parameters", "head"}
        return "gradient" if tried else None

    @property
    def text(self) -> str:
        """One sentence."""
        evidence = "; ".join(self.reading.evidence)
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
    read = [found for form in forms[:_FORMS] for found in _of_form(form, transcript.classes)]
    why = f"one of more than {_FORMS} forms of messages"
    return (
        *read,
        *(
            Inferred(name, sheet.items[0].kind, unsure(why=why), form.messages)
            for form in forms[_FORMS:]
            for name, sheet in form.sheets.items()
        ),
    )


def _of_form(form: Form, classes: int) -> Iterator[Inferred]:
    noised = sorted(name for name, sheet in form.sheets.items() if sheet.noised)
    if noised:
        why = f"{', '.join(noised)} declare Gaussian noise, which hides what arrays have to do with one another"
        readings: Readings = {name: unsure(why=why) for name in form.sheets}
    else:
        readings = (
            read_gradients(form.sheets, classes)
            or read_networks(form.sheets, classes)
            or read_statistics(form.sheets, classes)
        )
    for name, sheet in form.sheets.items():
        reading = readings.get(name, unsure(why="no rule reads arrays of this shape beside the others"))
        if sheet.sides > 1 and sheet.arrays and all(np.ptp(a) == 0 for a in sheet.arrays if a.size):
            reading = unsure(why="one number throughout, which says nothing")
        yield Inferred(name, sheet.items[0].kind, reading, form.messages)


def with_inferred(transcript: Transcript, found: tuple[Inferred, ...]) -> Transcript:
    """The same messages, their fields of the kinds that their arrays tell (`Inferred.read_as`).

    A message whose arrays then contradict the table of kinds keeps what it declared.
    """
    kinds = {each.field: each for each in found if each.read_as is not None}
    messages = tuple(
        message if message.sender == SERVER else _redeclared(message, kinds, transcript.classes)
        for message in transcript.messages
    )
    return replace(transcript, messages=messages)


def _redeclared(message: Message, kinds: Mapping[str, Inferred], classes: int) -> Message:
    def as_inferred(name: str, item: MessageField) -> MessageField:
        found = kinds.get(name)
        if found is None or found.read_as is None or item.kind != found.declared:
            return item
        sent = item.values.T if found.reading.transposed else item.sent
        return replace(item, kind=found.read_as, sent=sent)

    fields = {name: as_inferred(name, item) for name, item in message.fields.items()}
    changed = replace(message, fields=_sorted(fields))
    return message if shape_problem(changed, classes) else changed


def _sorted(fields: dict[str, MessageField]) -> dict[str, MessageField]:
    """Arrays of a gradient in the order of its layers, which a message need not have."""
    shapes = {name: item.shape for name, item in fields.items() if item.kind == "gradient"}
    if not shapes:
        return fields
    order = (*(name for name in fields if name not in shapes), *in_order(list(shapes), shapes))
    return {name: fields[name] for name in order}
