"""One client's rounds as the server sees them, and what surrogates make of the same images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.attacks.surrogate_bodies.scores import ratios
from fedassay.attacks.surrogate_bodies.training import Heads
from fedassay.exchange.statistics import any_protected, statistics_of
from fedassay.exchange.transcript import SERVER
from fedassay.exchange.view import View
from fedassay.support.errors import NotRunError
from fedassay.support.types import Floats, Ints, Matrix


@dataclass(frozen=True, eq=False)
class Sent:
    """Messages of a client, and the heads sent to it.

    Attributes:
        sender: Its name.
        heads: Of every round, shape (R, C, m + 1).
        counts: Records of each class, shape (C,).
        sums: Class sums of every round, shape (R, C, m).
    """

    sender: str
    heads: Heads
    counts: Ints
    sums: Matrix


@dataclass(frozen=True, eq=False)
class Surrogates:
    """Features of images under surrogates of one architecture.

    Attributes:
        candidates: Features in every round, shape (S, N, R, m).
        sums: Class sums of their own records, shape (S, R, C, m).
    """

    candidates: Matrix
    sums: Matrix

    def distance(self, sent: Sent) -> float:
        """Mean squared distance of the surrogates' class means to the client's."""
        apart = (self.sums - sent.sums) / np.maximum(sent.counts, 1)[:, None]
        return float((apart**2).sum(axis=(1, 2, 3)).mean())


def seen(view: View, sender: str) -> Sent | None:
    """The rounds of one client; None where its sums are noised, or not every head is seen."""
    messages = [message for message in view.from_clients() if message.sender == sender]
    own = [statistics_of(message, view.classes) for message in messages]
    heads = [
        head.astype(np.float64)
        for message in view.messages
        if message.sender == SERVER
        and message.receiver == sender
        and (head := message.of_kind("head")) is not None
    ]
    sums = [each.sums for each in own if each.sums is not None and len(each.sums) == view.classes]
    if not own or len(sums) < len(own) or len(heads) < len(own) or any_protected(messages):
        return None
    if own[0].counts is None or any(head.shape != (view.classes, sums[0].shape[1] + 1) for head in heads):
        return None
    return Sent(sender, np.stack(heads[: len(own)]), np.rint(own[0].counts).astype(np.int64), np.stack(sums))


def alike(labels: Ints, counts: Ints, rng: np.random.Generator) -> Ints:
    """Positions of as many records of each class as a client has.

    Raises:
        NotRunError: There are none of some class.
    """
    rows = []
    for label in np.flatnonzero(counts):
        held = np.flatnonzero(labels == label)
        if not len(held):
            raise NotRunError(f"the attacker has no image of class {label}, of which a client has {counts[label]}")
        rows.append(rng.choice(held, int(counts[label]), replace=len(held) < counts[label]))
    return np.concatenate(rows).astype(np.int64)


def score(values: Floats, made: list[Surrogates], sent: Sent, labels: Ints) -> None:
    """Write the ratios of a client's candidates, class by class.

    Args:
        values: Of the candidates, shape (N,), in place; left as they are where the client has none of their class.
        made: Of every architecture that is used.
        sent: By the client.
        labels: Of the candidates, shape (N,).
    """
    for label in np.unique(labels):
        asked, records = np.flatnonzero(labels == label), int(sent.counts[label])
        if not records:
            continue
        under = np.concatenate([_flat(each.candidates[:, asked]) for each in made])
        own = np.concatenate([_flat(each.sums[:, :, label]) for each in made]) / records
        values[asked] = ratios(_flat(sent.sums[None, :, label])[0] / records, own, under, records)


def _flat(rounds: Matrix) -> Matrix:
    """Features of all rounds (..., R, m) as one row (..., R m)."""
    return rounds.reshape(*rounds.shape[:-2], -1)
