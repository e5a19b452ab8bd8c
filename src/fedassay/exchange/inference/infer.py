"""Kinds of fields that nobody declared, inferred from the arrays' own algebra, with the evidence.

A captured message whose fields are called `t0` and `t1` and declare nothing is looked at by ledger and linter
alone. But arrays say what they are: a Gram matrix is symmetric and semidefinite, with a ridge its smallest
eigenvalue is a multiple one, class sums lie in its range and give whole numbers of records, ridge weights give
class sums when multiplied with it, mixtures have weights that sum to one. `infer_kinds` reads every form of
message that clients send by itself. What the arrays do not tell is said, with the kinds that remain, and stays
undeclared; nothing that is declared is overridden, and what contradicts its declaration is said as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fedassay.exchange.inference.networks import read_networks
from fedassay.exchange.inference.reading import Reading, Readings, unsure
from fedassay.exchange.inference.sheets import Form, forms_of
from fedassay.exchange.inference.statistics import read_statistics
from fedassay.exchange.message import FieldKind, Message, MessageField
from fedassay.exchange.transcript import SERVER, Transcript, shape_problem

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
        if not kinds or kinds == ("other",):
            return "not told"
        return "agrees" if self.declared in kinds else "contradicts"

    @property
    def text(self) -> str:
        """One sentence."""
        evidence = "; ".join(self.reading.evidence)
        kinds = " or ".join(self.reading.kinds) or "no kind that is known"
        if self.status == "contradicts":
            return f"{self.field} declares {self.declared}, but its arrays are {kinds}: {evidence}"
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
        readings = read_networks(form.sheets, classes) or read_statistics(form.sheets, classes)
    for name, sheet in form.sheets.items():
        reading = readings.get(name, unsure(why="no rule reads arrays of this shape beside the others"))
        yield Inferred(name, sheet.items[0].kind, reading, form.messages)


def with_inferred(transcript: Transcript, found: tuple[Inferred, ...]) -> Transcript:
    """The same messages, their undeclared fields of the inferred kinds where these leave one.

    A message whose arrays then contradict the table of kinds keeps what it declared.
    """
    kinds = {each.field: each.reading for each in found if each.status == "inferred"}
    messages = tuple(
        message if message.sender == SERVER else _redeclared(message, kinds, transcript.classes)
        for message in transcript.messages
    )
    return replace(transcript, messages=messages)


def _redeclared(message: Message, kinds: Readings, classes: int) -> Message:
    def as_inferred(name: str, item: MessageField) -> MessageField:
        reading = kinds.get(name)
        if reading is None or reading.kind is None or item.kind != "other":
            return item
        sent = item.values.T if reading.transposed else item.sent
        return replace(item, kind=reading.kind, sent=sent)

    fields = {name: as_inferred(name, item) for name, item in message.fields.items()}
    changed = replace(message, fields=fields)
    return message if shape_problem(changed, classes) else changed
