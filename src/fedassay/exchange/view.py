"""View of an adversary: a transcript filtered by a threat model.

Under secure aggregation the server gets S = sum of m_i over the n clients of a round, in a ring where additions
are exact. Clients that collude with it give it their own m_i. The rest, S minus these, is the sum over the other
clients, and every attack on sums is run on it. If one client is left it is seen by itself. The view holds no other
fields of the colluders, for they know their own records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedassay.exchange.colluders import colluders_of, without_shares
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import any_protected, kinds_in
from fedassay.exchange.release import derived
from fedassay.exchange.transcript import AGGREGATE, SERVER, Message, MessageField, Transcript
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.types import Frozen

if TYPE_CHECKING:
    from fedassay.exchange.blocks import Enters
    from fedassay.exchange.models import Generator, ScoringModel
    from fedassay.heads.estimating import Estimator

T = TypeVar("T")
V = TypeVar("V")


class ThreatModel(Frozen):
    """The adversary of a plan.

    Attributes:
        view: `per_client`: an honest-but-curious server (or an eavesdropper) that sees each client's
            messages, except the fields under secure aggregation. `aggregate`: only the sums over the
            clients of fields that can be summed. `broadcast`: only what the server sends out.
        backbone: `white_box`: gradients through the feature extractor. `black_box`: its outputs only.
        attacker_share: Share of the attacker role's records that the adversary holds, in (0, 1].
        rounds: `all`, `last`, or the number of one round.
        colluding: Number of clients, the last ones, that give the server what they sent and their records. It
            subtracts their parts from every sum, and attacks what is left.
        server: `honest`: it sends out what the method says. `malicious`: it chooses weights or a public map so
            that records come apart, by what it knows of its own.
    """

    view: Literal["per_client", "aggregate", "broadcast"] = "per_client"
    backbone: Literal["white_box", "black_box"] = "white_box"
    attacker_share: float = Field(default=1.0, gt=0, le=1)
    rounds: Literal["all", "last"] | int = "all"
    colluding: int = Field(default=0, ge=0, le=limits.CLIENTS)
    server: Literal["honest", "malicious"] = "honest"

    @model_validator(mode="after")
    def _somebody_adds_up(self) -> Self:
        if self.colluding and self.view == "broadcast":
            raise ValueError(
                f"colluding: {self.colluding} given with view broadcast, which shows no sum that a part could be "
                "subtracted from; allowed: per_client, aggregate"
            )
        return self


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
        cohorts: Senders in the aggregate of each round, without colluders; a server that runs secure aggregation
            knows them. Rounds with unknown senders are left out.
        enters: The method's own linear equations of its messages; None: by the kinds of their fields.
        estimators: Estimators that the heads in messages solve, by sender and round; see
            `fedassay.contracts.method.Outcome`.
    """

    messages: tuple[Message, ...]
    classes: int
    threat: ThreatModel
    models: Mapping[tuple[str, int], ScoringModel] = field(default_factory=dict)
    generators: Mapping[str, Generator] = field(default_factory=dict)
    cohorts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    enters: Enters | None = None
    estimators: Mapping[tuple[str, int], Estimator] = field(default_factory=dict)

    def from_clients(self) -> tuple[Message, ...]:
        """Visible messages of the clients, the aggregate included."""
        return tuple(message for message in self.messages if message.sender != SERVER)

    def from_client(self, sender: str) -> tuple[Message, ...]:
        """Visible messages of one client, or of the aggregate, in their order."""
        return () if sender == SERVER else self._by_sender.get(sender, ())

    def to_client(self, receiver: str) -> tuple[Message, ...]:
        """Visible messages that the server sends to one client alone, in their order."""
        return self._to_clients.get(receiver, ())

    @cached_property
    def kinds(self) -> frozenset[FieldKind]:
        """Kinds of all visible fields, those that the server sends among them."""
        return kinds_in(self.messages)

    @cached_property
    def protected(self) -> bool:
        """Whether any visible field says that a mechanism protects it."""
        return any_protected(self.messages)

    @cached_property
    def model_rounds(self) -> Mapping[str, tuple[int, ...]]:
        """Rounds of each sender's classifiers, in the order of `models`."""
        return _grouped(self.models, lambda key: key[0], lambda key: key[1])

    @cached_property
    def estimator_rounds(self) -> Mapping[str, tuple[int, ...]]:
        """Rounds of each sender's heads with an estimator, in the order of `estimators`."""
        return _grouped(self.estimators, lambda key: key[0], lambda key: key[1])

    # Messages are grouped once: a search of all of them for each sender takes the square of their number.
    @cached_property
    def _by_sender(self) -> dict[str, tuple[Message, ...]]:
        return _grouped(self.messages, lambda message: message.sender, lambda message: message)

    @cached_property
    def _to_clients(self) -> dict[str, tuple[Message, ...]]:
        sent = [message for message in self.messages if message.sender == SERVER]
        return _grouped(sent, lambda message: message.receiver, lambda message: message)


def _grouped(items: Iterable[T], key: Callable[[T], str], value: Callable[[T], V]) -> dict[str, tuple[V, ...]]:
    found: dict[str, list[V]] = {}
    for item in items:
        found.setdefault(key(item), []).append(value(item))
    return {name: tuple(each) for name, each in found.items()}


def view(transcript: Transcript, threat: ThreatModel) -> View:
    """Filter a transcript: rounds first, then visibility.

    Messages of senders called `colluder/0` and so on are subtracted from every sum; where a plan's method is run,
    `threat.colluding` of its clients are called so.

    Raises:
        DataError: Fields that are to be summed over their senders are of different shapes; or clients are said to
            collude, and no other client's field is in a sum, or a sum was captured so.
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
    colluders = colluders_of(transcript.messages)
    seen = []
    cohorts: dict[int, tuple[str, ...]] = {}
    by_round: dict[int, list[Message]] = {}
    for message in messages:
        by_round.setdefault(message.round, []).append(message)
    for number, of_round in sorted(by_round.items()):
        clients = [message for message in of_round if message.sender not in {SERVER, *colluders}]
        everything = threat.view == "aggregate"
        if not everything:
            seen += [open_part for message in clients if (open_part := _open_part(message)) is not None]
        left = [message for message in clients if _summed(message, everything)]
        total = _aggregate(left, number, transcript.classes, everything, len(colluders))
        if total is not None:
            seen.append(total)
            cohorts[number] = tuple(message.sender for message in left)
        seen += [message for message in of_round if message.sender == SERVER]
    if threat.colluding:
        _check_left(transcript, colluders, cohorts)
    return View(tuple(seen), transcript.classes, threat, cohorts=cohorts)


def _check_left(
    transcript: Transcript, colluders: tuple[str, ...], cohorts: Mapping[int, tuple[str, ...]]
) -> None:
    """Refuse colluders who have nothing to subtract from."""
    who = f"{len(colluders)} of the senders collude (threat.colluding)"
    if not cohorts:
        raise DataError(
            f"{transcript.method}: {who}, but no other client sends anything that is seen in a sum over the "
            "clients; allowed: a method whose messages add up, under secure aggregation of its own or threat.view "
            "aggregate"
        )
    if any(AGGREGATE in cohort for cohort in cohorts.values()):
        raise DataError(
            f"{transcript.method}: {who}, and a sum was captured as such, of which nobody says whose messages it "
            "holds; allowed: the messages of every client"
        )


def _open_part(message: Message) -> Message | None:
    fields = {name: item for name, item in message.fields.items() if not item.secure}
    return Message(message.round, message.sender, message.receiver, fields) if fields else None


def _summed(message: Message, everything: bool) -> bool:
    """Whether any field of a message is seen as a part of a sum."""
    return any(item.additive and (everything or item.secure) for item in message.fields.values())


def _aggregate(
    clients: list[Message], number: int, classes: int, everything: bool, colluding: int
) -> Message | None:
    """Sum the additive fields over a round's senders that do not collude.

    Sums are exact in the ring that secure aggregation works in, so that the sum over all less the colluders' parts
    is the sum over the others; float64 stands in for that ring. What is left of one client is its own message.
    """
    sums: dict[str, MessageField] = {}
    alone = bool(colluding) and len(clients) == 1
    for message in clients:
        for name, item in message.fields.items():
            if not (item.additive and (everything or item.secure)):
                continue
            values = _spread(message, item, classes)
            if not alone:
                values = values.astype(np.int64 if item.dtype.kind in "iu" else np.float64)
            if name in sums and sums[name].values.shape != values.shape:
                raise DataError(
                    f"{message.sender}: field {name!r} of shape {values.shape} cannot be summed with another "
                    f"sender's of shape {sums[name].values.shape} in round {number}"
                )
            if name in sums:
                values = values + sums[name].values
            release = without_shares(item.release, colluding)
            if everything and not alone:
                release = derived("sum over the senders of the round")
            sums[name] = MessageField(values, item.kind, release, additive=True, secure=item.secure)
    if not sums:
        return None
    return Message(number, clients[0].sender if alone else AGGREGATE, SERVER, sums)


def _spread(message: Message, item: MessageField, classes: int) -> NDArray[Any]:
    """The values of a field; blocks of the classes that a sender has, over all C of them."""
    ids, values = message.of_kind("class_ids"), item.values
    if ids is None or item.kind not in {"class_counts", "class_sums"}:
        return values
    spread = np.zeros((classes, *values.shape[1:]), values.dtype)
    spread[ids] = values
    return spread
