"""Bytes that processes which run methods again and their asker send each other.

Of a tape the processes get what came out of the mechanisms, and send what went in: the asker has the outputs,
which are half of a reply. Objects that both hold are named, not sent.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedassay.contracts.audit import Replayed
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records
from fedassay.exchange.transcript import Message
from fedassay.privacy.tape import Draw, ExternalMechanism, Key, Tape, TapeEntry
from fedassay.support.types import Floats, Images, Matrix


def packed_reply(found: Replayed, answers: Tape | None) -> bytes:
    """A replay for the asker, who holds the tape with the outputs that were given out."""
    outcome = None if found.outcome is None else _plain(found.outcome)
    tape = _plain_tape(found.tape)
    inputs, tape.draws = Inputs.of(tape.draws, answers), {}
    return packed((found._replace(outcome=outcome, tape=tape), inputs))


def read_reply(said: bytes, answers: Tape | None) -> Replayed:
    """The replay in such a reply.

    Raises:
        Exception: What the method raised.
    """
    given = unpacked(said)
    if isinstance(given, BaseException):
        raise given
    assert isinstance(given, tuple)
    found, inputs = given
    assert isinstance(found, Replayed)
    assert isinstance(inputs, Inputs)
    found.tape.draws = inputs.draws(answers)
    return found


class Inputs(NamedTuple):
    """The draws of a replay, as far as they are not those of the first run: a claim compares thousands of them.

    Attributes:
        entries: In their order: the number of the first run's draw that differs by its input alone, or the entry.
        values: These inputs one after the other, flattened, by sender.
    """

    entries: list[int | TapeEntry]
    values: dict[str, Matrix]

    @classmethod
    def of(cls, draws: Mapping[Key, TapeEntry], answers: Tape | None) -> Inputs:
        """Take the inputs out of the draws of a replay."""
        known = {} if answers is None else {key: (n, draw) for n, (key, draw) in enumerate(answers.draws.items())}
        entries: list[int | TapeEntry] = []
        values: dict[str, list[Matrix]] = {}
        for key, entry in draws.items():
            number, first = known.get(key, (0, None))
            if isinstance(entry, Draw) and isinstance(first, Draw) and _by_input_alone(first, entry):
                entries.append(number)
                values.setdefault(key.sender, []).append(entry.exact.reshape(-1))
            else:
                entries.append(entry)
        return cls(entries, {sender: np.concatenate(own) for sender, own in values.items()})

    def draws(self, answers: Tape | None) -> dict[Key, TapeEntry]:
        """The draws of the replay."""
        known = [] if answers is None else list(answers.draws.values())
        taken = dict.fromkeys(self.values, 0)
        found: dict[Key, TapeEntry] = {}
        for each in self.entries:
            entry = known[each] if isinstance(each, int) else each
            if isinstance(each, int) and isinstance(entry, Draw):
                sender, start = entry.key.sender, taken[entry.key.sender]
                taken[sender] = start + entry.out.size
                exact: Matrix = self.values[sender][start : taken[sender]].reshape(entry.shape)
                entry = Draw(entry.key, exact, entry.scale, entry.layout, entry.grid, entry.out)
            found[entry.key] = entry
        return found


def _by_input_alone(first: Draw, other: Draw) -> bool:
    """Whether a draw differs from the first run's by its input alone."""
    said = ((each.scale, each.layout, each.grid, each.exact.shape, each.exact.dtype) for each in (first, other))
    return other.out is first.out and next(said) == next(said)


def outputs_of(tape: Tape) -> Tape:
    """A tape without what went in."""
    own = {
        key: replace(entry, exact=np.zeros_like(entry.out)) if isinstance(entry, Draw) else _unsealed(entry)
        for key, entry in tape.draws.items()
    }
    return Tape(draws=dict(own), trainings=tape.trainings, messages=tape.messages)


def _unsealed(entry: ExternalMechanism) -> ExternalMechanism:
    return replace(entry, mechanism=None, values=None)


def _plain(outcome: Outcome) -> Outcome:
    """Outcome reduced to the parts that audits compare, its arrays in memory."""
    messages = tuple(map(_read, outcome.transcript.messages))
    return Outcome(
        replace(outcome.transcript, messages=messages),
        None,
        utility=dict(outcome.utility),
        communication=dict(outcome.communication),
        notes=outcome.notes,
        stays=outcome.stays,
    )


def _read(message: Message) -> Message:
    fields = {name: replace(item, sent=item.values) for name, item in message.fields.items()}
    return Message(message.round, message.sender, message.receiver, fields)


def _plain_tape(tape: Tape) -> Tape:
    """A tape that can be sent: without mechanisms of others, and without trainings."""
    draws = {
        key: _unsealed(entry) if isinstance(entry, ExternalMechanism) else entry
        for key, entry in tape.draws.items()
    }
    sent: list[object] = [_read(each) for each in tape.sent if isinstance(each, Message)]
    return Tape(draws=dict(draws), faults=tape.faults, lacks=tape.lacks, root=tape.root, sent=sent)


class _Packer(pickle.Pickler):
    """Sends records with their features."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)

    def reducer_override(self, obj: object) -> Any:
        if not isinstance(obj, Records):
            return NotImplemented
        try:
            features: Floats | Exception = obj.features
        except Exception as error:  # noqa: BLE001
            features = RuntimeError(f"{type(error).__name__}: {error}")
        return _records, (obj.name, obj.images, obj.labels, features, obj.groups)


class _Namer(_Packer):
    """Names the objects that both processes know."""

    def __init__(self, stream: io.BytesIO, known: Sequence[object]) -> None:
        super().__init__(stream)
        # The packing process holds all of these, so that no other object has the address of one.
        self._names = {id(each): number for number, each in enumerate(known)}

    def persistent_id(self, obj: object) -> int | None:
        return self._names.get(id(obj))


def packed(thing: object, known: Sequence[object] = ()) -> bytes:
    """An object in bytes, with the names of what both processes hold."""
    stream = io.BytesIO()
    # To ask for the name of every object takes longer than to pack most of them.
    (_Namer(stream, known) if known else _Packer(stream)).dump(thing)
    return stream.getvalue()


class _Unpacker(pickle.Unpickler):
    """Reads what `_Packer` wrote."""

    def __init__(self, given: bytes, known: Sequence[object]) -> None:
        super().__init__(io.BytesIO(given))
        self._known = known

    def persistent_load(self, pid: Any) -> object:
        return self._known[pid]


def unpacked(given: bytes, known: Sequence[object] = ()) -> object:
    """The object in such bytes, of which both processes hold the same."""
    return _Unpacker(given, known).load()


def _records(name: str, images: Any, labels: Any, features: Floats | Exception, groups: Any) -> Records:
    def extract(_images: Images) -> Floats:
        if isinstance(features, Exception):
            raise features
        return features

    return Records(name, images, labels, extract, groups)
