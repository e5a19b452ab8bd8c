"""What an adversary sees: a transcript filtered by a threat model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from fedassay.exchange.release import derived
from fedassay.exchange.transcript import AGGREGATE, SERVER, Message, MessageField, Transcript
from fedassay.support.errors import DataError
from fedassay.support.types import Frozen

if TYPE_CHECKING:
    from fedassay.exchange.blocks import Enters
    from fedassay.exchange.models import Generator, ScoringModel


class ThreatModel(Frozen):
    """The adversary of a plan.

    Attributes:
        view: `per_client`: an honest-but-curious server (or an eavesdropper) that sees each client's
            messages, except the fields under secure aggregation. `aggregate`: only the sums over the
            clients of fields that can be summed. `broadcast`: only what the server sends out.
        backbone: `white_box`: gradients through the feature extractor. `black_box`: its outputs only.
        attacker_share: Share of the attacker role's records that the adversary holds, in (0, 1].
        rounds: `all`, `last`, or the number of one round.
    """

    view: Literal["per_client", "aggregate", "broadcast"] = "per_client"
    backbone: Literal["white_box", "black_box"] = "white_box"
    attacker_share: float = Field(default=1.0, gt=0, le=1)
    rounds: Literal["all", "last"] | int = "all"


@dataclass(frozen=True)
class View:
    """The messages an adversary sees, in order, and under which threat model.

    Attributes:
        messages: Visible messages; a field under secure aggregation appears only in a message from
            `aggregate`, summed over the senders of its round.
        classes: Number of classes C.
        threat: The threat model that filtered the transcript.
        models: Classifiers that the visible messages carry, by sender and round; see
            `fedassay.contracts.membership.visible`.
        generators: Generative models that they carry, by sender.
        cohorts: Whose messages the aggregate of a round is the sum of, which a server knows that runs secure
            aggregation, by round. Rounds of which nobody says it are left out.
        enters: How a record enters the messages, where their method says so; None: by the kinds of their fields.
    """

    messages: tuple[Message, ...]
    classes: int
    threat: ThreatModel
    models: Mapping[tuple[str, int], ScoringModel] = field(default_factory=dict)
    generators: Mapping[str, Generator] = field(default_factory=dict)
    cohorts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    enters: Enters | None = None

    def from_clients(self) -> tuple[Message, ...]:
        """What is seen of the clients' messages, the aggregate included."""
        return tuple(message for message in self.messages if message.sender != SERVER)


def view(transcript: Transcript, threat: ThreatModel) -> View:
    """Filter a transcript: rounds first, then who can see what.

    Raises:
        DataError: Fields that are to be summed over their senders are of different shapes.
    """
    rounds = {message.round for message in transcript.messages}
    wanted = {
        "all": rounds,
        "last": {max(rounds)} if rounds else set(),
    }.get(str(threat.rounds), {threat.rounds})
    messages = [message for message in transcript.messages if message.round in wanted]
    if threat.view == "broadcast":
        seen = [message for message in messages if message.sender == SERVER]
        return View(tuple(seen), transcript.classes, threat)
    seen = []
    cohorts: dict[int, tuple[str, ...]] = {}
    for number in sorted({message.round for message in messages}):
        of_round = [message for message in messages if message.round == number]
        clients = [message for message in of_round if message.sender != SERVER]
        everything = threat.view == "aggregate"
        if not everything:
            seen += [open_part for message in clients if (open_part := _open_part(message)) is not None]
        total = _aggregate(clients, number, transcript.classes, everything)
        if total is not None:
            seen.append(total)
            cohorts[number] = tuple(message.sender for message in clients if _summed(message, everything))
        seen += [message for message in of_round if message.sender == SERVER]
    return View(tuple(seen), transcript.classes, threat, cohorts=cohorts)


def _open_part(message: Message) -> Message | None:
    fields = {name: item for name, item in message.fields.items() if not item.secure}
    return Message(message.round, message.sender, message.receiver, fields) if fields else None


def _summed(message: Message, everything: bool) -> bool:
    """Whether any field of a message is seen as a part of a sum."""
    return any(item.additive and (everything or item.secure) for item in message.fields.values())


def _aggregate(clients: list[Message], number: int, classes: int, everything: bool) -> Message | None:
    """Sum the additive fields over a round's senders, spreading class blocks over all C classes."""
    sums: dict[str, MessageField] = {}
    for message in clients:
        ids = message.of_kind("class_ids")
        for name, item in message.fields.items():
            if not (item.additive and (everything or item.secure)):
                continue
            # Sums are exact in the ring that secure aggregation works in; float64 stands in for it.
            values = item.values.astype(np.int64 if item.dtype.kind in "iu" else np.float64)
            if ids is not None and item.kind in {"class_counts", "class_sums"}:
                spread = np.zeros((classes, *values.shape[1:]), values.dtype)
                spread[ids] = values
                values = spread
            if name in sums and sums[name].values.shape != values.shape:
                raise DataError(
                    f"{message.sender}: field {name!r} of shape {values.shape} cannot be summed with another "
                    f"sender's of shape {sums[name].values.shape} in round {number}"
                )
            if name in sums:
                values = values + sums[name].values
            release = derived("sum over the senders of the round") if everything else item.release
            sums[name] = MessageField(values, item.kind, release, additive=True, secure=item.secure)
    return Message(number, AGGREGATE, SERVER, sums) if sums else None
