"""Membership in the sums of a body that only its client has, and inference of the body's architecture.

Yu et al. 2026, appendix C, hold that features cannot be inverted without the body, and a client never shares its
architecture. But the server chooses the heads that bodies are trained under, and sees sums of their features in
every round. It trains bodies of its own under the same heads, on as many images of each class (`training`), of
every architecture that it can think of, and computes a candidate's contribution to the sums (`scores`).

- With `public_seed`, which the paper has the server send to everybody, the start of the body is known but for its
  architecture. The sums of the right architecture's surrogates are nearest to the client's, which identifies it.
- Without, surrogates of all architectures are taken together. The common signal is the effect of training under
  one head: a body's confidence in an image, and its preferences among other classes.

Source: none known to us. Shadow training is from Shokri et al., "Membership Inference Attacks Against Machine
Learning Models" (IEEE S&P 2017).

Assumes: images of the server's own, what it asks its clients to do in a round (it sends that), and candidates.

A null result does not mean that sums of private bodies are safe: architectures that are not in `bodies`, and few
surrogates, make the attack weak.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import nn

from fedassay.attacks.surrogate_bodies.scores import ratios
from fedassay.attacks.surrogate_bodies.training import Heads, Recipe, Stack, to_tensor
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.data.records import Records
from fedassay.exchange.message import any_protected
from fedassay.exchange.statistics import statistics_of
from fedassay.exchange.view import View
from fedassay.nets.bodies import MIXING, BodySpec, build_body, read_bodies
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Ints, Matrix, Parameters

NAME = "surrogate_bodies"
KEY = "messages/surrogate_bodies"


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    bodies = len(given["bodies"]) * given["surrogates"] * sizes.clients
    steps = given["local_epochs"] * max(1, sizes.private // max(1, sizes.clients * given["batch"]))
    return float(load.cells * rate.AUDIT / 100 * bodies * (1 + steps))


@register("attack", "surrogate_bodies")
class SurrogateBodies(Parameters):
    """Rank candidates by bodies of the attacker's own, trained under the heads that the private ones were."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("scores",),
        needs=("attacker_records", "membership_game"),
        reads=(("class_sums", "class_counts", "head"),),
        cost=_seconds,
    )

    bodies: Annotated[tuple[BodySpec, ...], BeforeValidator(read_bodies), Field(min_length=1)] = (
        BodySpec(name="mlp"),
        BodySpec(name="mlp_deep"),
        BodySpec(name="cnn"),
        BodySpec(name="linear"),
    )
    """Architectures that the attacker thinks of."""
    surrogates: int = Field(default=8, ge=2)
    """Bodies of each, for every client."""
    public_seed: int | None = Field(default=None, ge=0)
    """The method's, where it has one: bodies start as clients' do. None: from seeds of the attacker's own."""
    local_epochs: int = Field(default=5, ge=1)
    """Passes over the records in a round, as the method has it."""
    batch: int = Field(default=32, ge=1)
    """Records in a minibatch, as the method has it."""
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    """Of Adam, as the method has it."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Share of the features that is dropped in training, as the method has it."""
    activation: Literal["relu", "none"] = "relu"
    """Activation at the end of a body, as the method has it."""

    @model_validator(mode="after")
    def _each_by_itself(self) -> Self:
        if mixing := next((each.name for each in self.bodies if each.name in MIXING), None):
            raise ValueError(
                f"bodies: {mixing} given, whose batch normalisation a stack of bodies cannot train; allowed: "
                "resnet16_group, or another body"
            )
        return self

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Train surrogates for every client that is asked about, and score its candidates.

        Returns:
            Scores `messages/surrogate_bodies`, log-likelihood ratios of the game's candidates in their order, NaN
            where the client sends no record of their class. Artifacts: `clients`, the client of each candidate;
            `senders`, and for each of them `architectures`, the position in `bodies` of the one with the nearest
            sums, and `distances` to the sums of each, shape (senders, architectures).

        Raises:
            NotRunError: There is no game, or the attacker has no images of some class.
            NothingToReadError: No client's sums without noise, with the head of every round.
        """
        game, own = knowledge.game, knowledge.attacker
        if game is None or own is None:
            raise NotRunError("there are no candidates, or no images of the attacker's own")
        sent_by = [each for name in game.questions if (each := seen(view, name)) is not None]
        if not sent_by:
            raise NothingToReadError(
                "the view holds no client's class sums and counts of every round, without noise, beside the heads "
                "that the server sent before them"
            )
        values = {name: np.full(len(asked), np.nan) for name, asked in game.questions.items()}
        distances = np.zeros((len(sent_by), len(self.bodies)))
        with knowledge.progress.step("surrogate bodies") as advance:
            for number, sent in enumerate(sent_by):
                advance(number, len(sent_by))
                asked = game.questions[sent.sender]
                made = [
                    self.surrogates_of(place, sent, own, asked, knowledge) for place in range(len(self.bodies))
                ]
                distances[number] = [each.distance(sent) for each in made]
                used = made if self.public_seed is None else [made[int(distances[number].argmin())]]
                score(values[sent.sender], used, sent, asked.labels)
        clients = np.concatenate([[name] * len(each) for name, each in game.questions.items()]).astype(np.str_)
        return AttackResult(
            NAME,
            scores={KEY: np.concatenate(list(values.values()))},
            artifacts={
                "clients": clients,
                "senders": np.array([sent.sender for sent in sent_by], np.str_),
                "architectures": distances.argmin(axis=1),
                "distances": distances,
            },
        )

    def surrogates_of(
        self, place: int, sent: Sent, own: Records, asked: Records, knowledge: Knowledge
    ) -> Surrogates:
        """Surrogates of one architecture for one client: features of its candidates, and sums of their own."""
        seeds = knowledge.seeds.child(str(place), sent.sender)
        rng = seeds.numpy("records")
        rows = np.stack([alike(own.labels, sent.counts, rng) for _ in range(self.surrogates)])
        labels, width = own.labels[rows], sent.sums.shape[2]
        stack = Stack(
            [self._body(place, own.image_shape, width, number, seeds) for number in range(self.surrogates)],
            knowledge.device,
        )
        draws = torch.Generator().manual_seed(seeds.integer("training"))
        images = to_tensor(own.images[rows], knowledge.device)
        recipe = Recipe(self.local_epochs, self.batch, self.learning_rate, self.dropout)
        kept, firsts = np.unique(rows, return_inverse=True)
        member = labels[..., None] == np.arange(len(sent.counts))
        candidates, sums = [], []
        for head in sent.heads:
            stack.train(
                images,
                torch.tensor(labels, device=knowledge.device),
                torch.tensor(head, dtype=torch.float32, device=knowledge.device),
                recipe,
                draws,
            )
            candidates.append(stack.features(asked.images))
            of_own = stack.features(own.images[kept])[np.arange(len(rows))[:, None], firsts.reshape(rows.shape)]
            sums.append(np.einsum("snc,snm->scm", member, of_own))
        return Surrogates(np.stack(candidates, axis=2), np.stack(sums, axis=1))

    def _body(self, place: int, shape: tuple[int, int, int], width: int, number: int, seeds: Seeds) -> nn.Module:
        # The method's own stream of its first body; with a public seed everybody can draw from it.
        known = None if self.public_seed is None else Seeds(self.public_seed).integer("body", "0")
        start = seeds.integer("body", str(number)) if known is None else known
        body = build_body(self.bodies[place], shape, width, start)
        return nn.Sequential(body, nn.ReLU()) if self.activation == "relu" else body


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
    messages = view.from_client(sender)
    own = [statistics_of(message, view.classes) for message in messages]
    heads = [
        head.astype(np.float64)
        for message in view.to_client(sender)
        if (head := message.of_kind("head")) is not None
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
            raise NotRunError(f"the attacker has no image of class {label}, and a client has {counts[label]}")
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
