"""Differences between two runs: messages, their declarations, and the other reports of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.tape.answers import Fault
from fedassay.contracts.audit import Replayed
from fedassay.contracts.method import Outcome
from fedassay.exchange.transcript import SERVER, Message, Transcript
from fedassay.privacy.tape import Tape


def differences(first: Transcript, second: Transcript, skipped: frozenset[str]) -> list[Fault]:
    """Differences between two transcripts, field by field."""
    found = unlike_messages(first.messages, second.messages, skipped)
    if (first.claim, first.notes, first.classes) != (second.claim, second.notes, second.classes):
        found.append(Fault("", "the claim or the notes of the transcript change with the records"))
    return found


def unlike_messages(first: Sequence[Message], second: Sequence[Message], skipped: frozenset[str]) -> list[Fault]:
    """Differences between the messages of two runs, field by field."""
    found = []
    if len(first) != len(second):
        found.append(Fault("", f"{len(second)} messages are sent where {len(first)} were"))
    for own, other in _paired(first, second):
        found += _in_message(own, other, skipped)
    return found


def of_clients(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages that no server sends."""
    return tuple(message for message in messages if message.sender != SERVER)


def unlike_outcomes(same: Replayed, replay: Replayed, skipped: frozenset[str]) -> list[Fault]:
    """Differences between two replays, the second one whole or up to its last message.

    Args:
        same: Whole, on the same records.
        replay: The other one.
        skipped: Fields of messages that are not compared. Figures and the model may follow from them, and then are
            not compared either.
    """
    first, second = same.whole, replay.outcome
    if second is None:
        return unlike_messages(of_clients(first.transcript.messages), of_clients(replay.messages), skipped)
    found = differences(first.transcript, second.transcript, skipped) + beside(first, second)
    if skipped:
        return found
    found += unlike_figures(first, second)
    if same.model != replay.model and "model" not in first.stays:
        found.append(Fault("", "the model that comes back depends on records beside what was sent"))
    return found


def beside(first: Outcome, second: Outcome) -> list[Fault]:
    """Differences beside the transcript, in the reports of a run."""
    found = []
    if names := _changed(first.communication, second.communication):
        found.append(Fault("", f"the reported communication changes with the records: {', '.join(names)}"))
    if first.notes != second.notes:
        found.append(Fault("", "the reported notes change with the records"))
    if first.stays != second.stays:
        found.append(Fault("", "what is declared to stay at clients changes with the records"))
    return found


def unlike_figures(first: Outcome, second: Outcome) -> list[Fault]:
    """Figures of utility that are not the same, those aside that are measured where they stay."""
    names = [name for name in _changed(first.utility, second.utility) if name not in first.stays]
    return [Fault("", f"the reported utility changes with the records: {', '.join(names)}")] if names else []


def _changed(first: Mapping[str, float], second: Mapping[str, float]) -> list[str]:
    names = sorted(first.keys() | second.keys())
    return [name for name in names if repr(first.get(name)) != repr(second.get(name))]


def faults_of(tape: Tape) -> list[Fault]:
    """Faults that a tape has recorded."""
    return [Fault(fault.field, fault.words) for fault in tape.faults]


def _paired(first: Sequence[Message], second: Sequence[Message]) -> Iterator[tuple[Message, Message]]:
    """Messages in their order; where some are sent in one run alone, those that both send the same way."""
    if len(first) == len(second):
        yield from zip(first, second, strict=True)
        return
    waiting = list(second)
    for own in first:
        way = (own.round, own.sender, own.receiver)
        other = next((each for each in waiting if (each.round, each.sender, each.receiver) == way), None)
        if other is not None:
            waiting.remove(other)
            yield own, other


def _in_message(own: Message, other: Message, skipped: frozenset[str]) -> list[Fault]:
    way = (own.round, own.sender, own.receiver)
    where = f"of {own.sender} in round {own.round}"
    if way != (other.round, other.sender, other.receiver):
        return [
            Fault("", f"the message {where} is sent to {other.receiver} by {other.sender} in round {other.round}")
        ]
    if list(own.fields) != list(other.fields):
        changed = sorted(own.fields.keys() ^ other.fields.keys()) or list(own.fields)
        return [Fault(changed[0], f"the fields {where} change with the records: {', '.join(changed)}")]
    found = []
    for name in own.fields:
        if name in skipped:
            continue
        one, two = own.fields[name], other.fields[name]
        words = f"{name} {where}"
        if (one.shape, one.dtype) != (two.shape, two.dtype):
            found.append(Fault(name, f"{words} becomes {two.dtype} {two.shape} from {one.dtype} {one.shape}"))
        elif (one.kind, one.release, one.additive, one.secure) != (
            two.kind,
            two.release,
            two.additive,
            two.secure,
        ):
            found.append(Fault(name, f"what is declared of {words} changes with the records"))
        elif (size := _unlike(one.values, two.values)) > 0:
            found.append(
                Fault(
                    name, f"{words} depends on records beside its noise ({size:,} of {one.size:,} numbers change)"
                )
            )
    return found


def _unlike(first: NDArray[np.generic], second: NDArray[np.generic]) -> int:
    """Number of entries that are not equal to the bit."""
    if first.tobytes() == second.tobytes():
        return 0
    one = np.ascontiguousarray(first).reshape(-1).view(np.uint8).reshape(first.size, -1)
    two = np.ascontiguousarray(second).reshape(-1).view(np.uint8).reshape(first.size, -1)
    return int(np.count_nonzero((one != two).any(axis=1)))
