"""Decentralized FedPFT: mixtures handed on along a line of clients, without a server.

Source: Beitollahi et al. 2024, section 4.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from fedassay.contracts.facts import EVERY_UNIT, Given, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import Message, Transcript
from fedassay.heads.linear import FeatureModel
from fedassay.methods.fedpft.messages import United, clipped, mixture_message, sample_message, wanted
from fedassay.methods.fedpft.parameters import MixtureParameters, least_protected, mechanisms, mixture_seconds
from fedassay.privacy.reruns import Experiment
from fedassay.support.errors import DataError, PlanError


def _seconds(given: Given, sizes: Sizes, private: bool) -> float:
    # Client i works on what all before it had: half of all on average; each trains a head.
    return mixture_seconds(given, sizes, private) * sizes.clients / 2


@register("method", "fedpft_chain")
class FedPFTChain(MixtureParameters):
    """Each client refits the mixtures on samples of those it got and its own records, and hands them on.

    Every client trains a head of its own on the union; none is sent. `accuracy` is that of the last client's head,
    which all records have reached; every client's is reported beside it. Two clients are FedPFT's source and
    destination.

    Private runs. Message i is a function of the records of client i and of message i - 1. Given message i - 1, its
    samples are constants. A mean over the n_i own records and m_i samples moves by 1 / (n_i + m_i) of the change
    of one record: every client noises as FedPFT does with n_i + m_i records. Where the unit is a person or a
    client it noises sums; its own records add their units' means, and each sample adds as much as one unit would.
    About another client's records, message i reveals no more than message i - 1 (post-processing), and a record,
    or person, is at one client. The epsilon of the chain is therefore that of its worst hop, not their sum. The
    noise itself adds up along the chain.

    A client without records hands on the message it got, unchanged, where class counts are public or nothing is
    private. Where counts are noised it noises like any other, since handing on would reveal that it has no
    records.

    Attributes:
        order: The clients in the order of the line, each once; by default 0, 1, 2, ...
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        adjacency="replace_one_same_label",
        units=EVERY_UNIT,
        cost=_seconds,
        sends=("mixture_means", "mixture_covariances", "class_counts"),
    )

    order: tuple[int, ...] | None = None

    def run(self, task: MethodInput) -> Outcome:
        """One message from each client but the last to the next.

        Raises:
            PlanError: Fewer than two clients, `order` does not name every client once, or `components` and
                mechanism do not fit.
            DataError: No client has a record.
        """
        line = self._line(task)
        components = self.components_of(len(task.clients))
        task.require_records("fedpft_chain")
        messages: list[Message] = []
        united: list[United] = []
        worst: Experiment | None = None
        asked: list[int] = []
        notes: list[str] = []
        for hop, index in enumerate(line):
            client = task.clients[index]
            own = self._unite(client, messages[-1] if messages else None, task)
            notes += [f"{client.name}: {note}" for note in wanted(messages[-1:]).notes]
            united.append(own)
            if hop + 1 == len(line):
                break
            receiver = task.clients[line[hop + 1]].name
            if not len(client) and messages and not (task.privacy.private and self.counts == "noised"):
                messages.append(_handed_on(messages[-1], client.name, receiver))
                asked.append(asked[-1])
                notes.append(f"{client.name} has no records and hands on what it got")
                continue
            (mixtures,) = self.fit([own], [components[index]], task, hop)
            worst = least_protected([mixtures], worst)
            asked.append(components[index])
            message = mixture_message(own.name, mixtures, self.transport, number=hop, receiver=receiver)
            messages.append(task.spool.keep(message))
        models = self._models(united, task)
        untaught = [own.name for own in united if own.name not in models]
        # Where presence is private, a note would reveal whether a client has any record.
        if untaught and not (task.privacy.private and self.counts == "noised"):
            notes.append(f"without a head, for want of any record to train it on: {', '.join(untaught)}")
        if united[-1].name not in models:
            raise DataError(
                "fedpft_chain: the last client has neither records nor a received class with a usable count"
            )
        return Outcome(
            Transcript("fedpft_chain", task.classes, tuple(messages), self.claim(task), self.ledger_notes(task)),
            models[united[-1].name],
            utility={
                f"accuracy_{name}": float(np.mean(model.predict(task.test) == task.test.labels))
                for name, model in models.items()
            },
            communication=self.closed_form(messages, task.backbone.width),
            mechanisms=mechanisms(worst, messages),
            notes=(*notes, *clipped(messages), *self.shortened(messages, asked)),
            # Every client trains a head on its own features as well, and the chain ends with the last one's.
            # Of all clients: whether one has any record for a head is protected.
            stays=frozenset({"model", *(f"accuracy_{client.name}" for client in task.clients)}),
        )

    def _line(self, task: MethodInput) -> tuple[int, ...]:
        count = len(task.clients)
        if count < 2:
            raise PlanError(f"fedpft_chain: {count} client; a chain needs at least 2")
        line = tuple(range(count)) if self.order is None else self.order
        if sorted(line) != list(range(count)):
            raise PlanError(
                f"fedpft_chain: order {list(line)} for {count} clients; allowed: each of 0 to {count - 1} once"
            )
        return line

    def _unite(self, client: Records, received: Message | None, task: MethodInput) -> United:
        features = self.clip(client.features) if task.privacy.private else client.features
        if received is None:
            return United(client, features, client.labels)
        drawn, labels = sample_message(received, task)
        # Samples are clipped like records: they may not pull a noised moment out of the unit ball.
        drawn = self.clip(drawn) if task.privacy.private else drawn
        return United(client, np.concatenate([features, drawn]), np.concatenate([client.labels, labels]))

    def _models(self, united: list[United], task: MethodInput) -> dict[str, FeatureModel]:
        transform = self.clip if task.privacy.private else None
        return {
            own.name: FeatureModel(self.head.fit(own.features, own.labels, task), transform)
            for own in united
            if len(own.labels)
        }


def _handed_on(received: Message, sender: str, receiver: str) -> Message:
    """The message that a client without records passes on."""
    release = exact("size", "handed on unchanged, which tells that the sender has no records")
    fields = {name: replace(item, release=release) for name, item in received.fields.items()}
    return Message(received.round + 1, sender, receiver, fields)
