"""Who of these candidates is in this message? Sums over records are solved for the records.

Counts, class sums, second moments, class-wise moments, means beside counts and mixtures of one component a class
are linear in who is in (`fedassay.exchange.linear`): one equation for every number that is sent. Whoever has a
gallery of candidates solves for their weights. Nothing is learned, the number of members does not matter, and it
does not matter whether a message is one client's or the sum of all (secure aggregation). It is the
reconstruction of Dinur and Nissim (2003) and De (2012), with the equations of one-shot federated learning for
queries.

- Without noise, weights are solved for exactly (`solving`), and certify themselves (`certificate.whole`).
- Where the gallery lacks members, holds them re-encoded, or Gaussian noise is declared, weights are a
  posterior's; names are given at a false-discovery rate of 1 %, which the attacker's own records calibrate
  (`certificate.named`).

Assumes: the backbone, what was sent of it, and a gallery, which is the attacker's knowledge: of a plan the
clients' records among others that nobody holds, thinned to `coverage`; of captured messages a folder. How many
records of each class a client has is known where the message does not say it.

A null result does not mean that records are safe: more equations than candidates are needed, the gallery may
cover too few members, or show them too differently. Mixtures of several components are not linear, and are not
attacked here.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedassay.attacks.gallery.certificate import named, whole
from fedassay.attacks.gallery.solving import DENSE, exact_weights, matvec_operations, posterior_weights
from fedassay.attacks.gallery.system import System, system_of
from fedassay.attacks.membership.signals import Group, encoded
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.membership import MembershipGame
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.data.records import Records, joined
from fedassay.exchange.blocks import LinearBlock
from fedassay.exchange.linear import linear_blocks
from fedassay.exchange.public_map import as_summed
from fedassay.exchange.statistics import any_protected
from fedassay.exchange.transcript import AGGREGATE, Message
from fedassay.exchange.view import View
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.types import Bools, Floats, Ints, Parameters

Matrix = NDArray[np.float64]

NAME = "gallery"
KEY = "messages/gallery"
"""Under which its scores are judged."""
_STEPS = 100
"""Steps of conjugate gradients that a time is estimated for."""


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    # A kernel and its factor for every sender, in each of the audit's questions.
    size = 2.0 * sizes.private
    return float(load.cells * size**2 * (sizes.width + size / 3) / rate.DENSE_FLOPS)


@dataclass(frozen=True, eq=False)
class _Gallery:
    """Candidates and decoys, equal ones merged.

    Attributes:
        records: One of each kind, shape (N,).
        copies: How many candidates each stands for, shape (N,).
        decoys: Which are known to be in no message, shape (N,).
        keys: Names each by image and label.
    """

    records: Records
    copies: Ints
    decoys: Bools
    keys: dict[tuple[bytes, int], int]


@dataclass(frozen=True, eq=False)
class _Answer:
    """What one sender's messages say of the gallery.

    Attributes:
        weights: Shape (N,).
        names: Who is named, shape (N,).
        whole: Whether the whole message is explained.
        words: How, as one sentence.
    """

    weights: Matrix
    names: Bools
    whole: bool
    words: str


@register("attack", "gallery")
class Gallery(Parameters):
    """Solve a message's sums for who of a gallery of candidates is in it."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("scores",),
        needs=("membership_game",),
        reads=(
            "features",
            "class_sums",
            "second_moment",
            "regularised_gram",
            "inverse_gram",
            "class_second_moments",
            ("class_means", "class_counts"),
            ("mixture_means", "mixture_covariances", "class_counts"),
            ("magnitude_mean", "class_counts"),
        ),
        cost=_seconds,
        takes_gallery=True,
    )

    coverage: float = Field(default=1.0, gt=0, le=1)
    """Share of the candidates, members among them, that the attacker's gallery holds, drawn at random."""
    candidates: Literal["all", "asked"] = "all"
    """Who is in the gallery: `all` records that clients hold or nobody does; or those `asked` about, each client's
    for itself."""
    decoys: int = Field(default=1000, ge=0)
    """The attacker's own records at most that calibrate names where the gallery does not explain a message."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Solve the messages of every client that is seen, or of all together.

        Returns:
            Scores `messages/gallery`, the weights of the game's candidates in their order, NaN for those that the
            gallery lacks. Artifacts: `clients`, whose candidate each is; `named`, which are named (0 or 1);
            `whole`, whether the message behind each is explained as a whole.

        Raises:
            NotRunError: Nobody asks.
            NothingToReadError: No message is a sum.
        """
        game = knowledge.game
        if game is None:
            raise NotRunError("there is no gallery: candidates are given by a plan, or by --gallery")
        asked = joined("candidates", list(game.questions.values()))
        clients = np.concatenate([[name] * len(each) for name, each in game.questions.items()]).astype(np.str_)
        everybody = asked if game.gallery is None else game.gallery
        kept: _Gallery | None = None
        keys = _keys(asked)
        values, names = np.full(len(asked), np.nan), np.zeros(len(asked), np.int8)
        complete, notes = np.zeros(len(asked), np.int8), []
        for group in _groups(view, list(game.questions)):
            own = np.flatnonzero(np.isin(clients, group.clients))
            if kept is None or self.candidates == "asked":
                kept = self._gallery(everybody if self.candidates == "all" else asked.take(own), knowledge)
            known = _sizes(game, group)
            answer = self._answer(view, group.sender, kept, known, knowledge)
            if isinstance(answer, str):
                notes.append(f"{group.sender}: {answer}")
                continue
            notes.append(f"{group.sender}: {answer.words}")
            places = np.array([kept.keys.get(keys[row], -1) for row in own], np.int64)
            rows, places = own[places >= 0], places[places >= 0]
            values[rows], names[rows], complete[rows] = answer.weights[places], answer.names[places], answer.whole
        if np.isnan(values).all():
            raise NothingToReadError("; ".join(notes) or "no message is a sum over records")
        artifacts = {"clients": clients, "named": names, "whole": complete}
        return AttackResult(NAME, scores={KEY: values}, artifacts=artifacts, notes=tuple(dict.fromkeys(notes)))

    def _gallery(self, candidates: Records, knowledge: Knowledge) -> _Gallery:
        """The candidates that the attacker holds, and its decoys."""
        seed = int(knowledge.seeds.numpy("coverage").integers(1 << 31))
        # By content: the same candidate is held, or is not, whatever is asked beside it.
        drawn = np.array([zlib.crc32(image.tobytes(), seed) / 2**32 for image in candidates.images])
        held = candidates.take(np.flatnonzero(drawn < self.coverage))
        if not len(held):
            raise NotRunError("the gallery is empty; a larger coverage would give it candidates")
        own = knowledge.attacker
        parts = [held]
        if own is not None and self.decoys:
            free = own.without(candidates)
            order = knowledge.seeds.numpy("decoys").permutation(len(free))[: self.decoys]
            parts = [held, free.take(np.sort(order))]
        together = joined("candidates", parts)
        return _merged(together, len(held))

    def _answer(
        self, view: View, sender: str, gallery: _Gallery, sizes: Ints | None, knowledge: Knowledge
    ) -> _Answer | str:
        """What a sender's messages say; in words why they say nothing."""
        blocks = blocks_of(view, sender, sizes)
        sent = [message.of_kind("features") for message in view.from_clients() if message.sender == sender]
        captured = knowledge.game is not None and not knowledge.game.sizes
        features = features_of(view, gallery.records, blocks, captured)
        if isinstance(features, str):
            return features
        for raw in sent:
            if raw is not None and raw.ndim == 2 and raw.shape[1] == features.shape[1]:
                return _matched(raw, features, gallery)
        if not blocks:
            return "no message is a sum over records"
        count = _count(blocks, sizes)
        missing = (1 - self.coverage) * count
        images, labels = gallery.records.images, gallery.records.labels
        here = np.flatnonzero(~gallery.decoys)
        system = system_of(blocks, features[here], images[here], labels[here], missing=missing)
        if system is None:
            return f"its sums are not of the {features.shape[1]} features that candidates have"
        self._announce(system, knowledge)
        words = f"{system.size} candidates, {system.equations} equations"
        if not system.noised:
            solved = exact_weights(system)
            words += "" if solved.rank is None else f", rank {solved.rank}"
            if whole(system, solved, gallery.copies[here]):
                weights = np.zeros(len(features))
                weights[here] = solved.weights
                names = np.rint(weights) >= np.maximum(gallery.copies, 1)
                return _Answer(weights, names & ~gallery.decoys, True, f"{words}: explained as a whole")
            missing = max(missing, system.left(solved.weights) / max(system.equations - system.size, system.size))
        weights = self._posterior(blocks, features, gallery, sizes, missing)
        names = named(weights, gallery.decoys)
        return _Answer(weights, names, False, f"{words}: not explained as a whole, {int(names.sum())} named")

    def _posterior(
        self,
        blocks: Sequence[LinearBlock],
        features: Matrix,
        gallery: _Gallery,
        sizes: Ints | None,
        missing: float,
    ) -> Matrix:
        """Weights of candidates and decoys, solved for alike."""
        labels, count = gallery.records.labels, max(1.0, _count(blocks, sizes))
        system = system_of(blocks, features, gallery.records.images, labels, missing=missing)
        assert system is not None
        if sizes is None:
            share = np.full(len(labels), min(1.0, max(0.0, count - missing) / len(labels)))
        else:
            there = np.maximum(np.bincount(labels, minlength=len(sizes)), 1)
            share = (sizes * max(0.0, 1 - missing / count) / there)[labels]
        return posterior_weights(system, share)

    def _announce(self, system: System, knowledge: Knowledge) -> None:
        """Say how long the candidates that are no kernel's will take, before they are solved for."""
        if system.size <= DENSE or system.separate:
            return
        seconds = _STEPS * matvec_operations(system) / rate.DENSE_FLOPS
        with knowledge.progress.step(f"{system.size:,} candidates, about {rate.in_words(seconds)}"):
            return


def blocks_of(view: View, sender: str, sizes: Ints | None) -> list[LinearBlock]:
    """The sums in all messages of a sender, as its method declares them or by the kinds of their fields."""
    found: list[LinearBlock] = []
    for message in view.from_clients():
        if message.sender == sender:
            found += _declared(view, message, sizes)
    return found


def _declared(view: View, message: Message, sizes: Ints | None) -> Sequence[LinearBlock]:
    if view.enters is not None:
        return view.enters(message, view.classes)
    return linear_blocks(message, view.classes, sizes)


def features_of(view: View, records: Records, blocks: Sequence[LinearBlock], captured: bool) -> Matrix | str:
    """Features of records as the sums are of them, shape (n, d); in words why nobody has them."""
    try:
        features = encoded(view, records)
    except NotRunError as error:
        if not captured:
            return str(error)
        # Nobody says what was sent: the candidates' features are tried, and a certificate tells.
        features = records.features.astype(np.float64)
    widths = {block.width for block in blocks if block.of == "features"}
    if widths and features.shape[1] not in widths:
        mapped = as_summed(view, records.features, max(widths))
        features = features if mapped is None else mapped
    if any_protected(view.messages) and not any(sender == "server" for sender, _ in view.models):
        # Without a head nobody has said how features are clipped: private sums are of features of norm 1 at most.
        features = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1.0)
    return features


def _sizes(game: MembershipGame, group: Group) -> Ints | None:
    """Records per class of a group, shape (C,), where the adversary knows them of all of its clients."""
    known = [game.sizes[name] for name in group.clients if name in game.sizes]
    return np.asarray(np.sum(known, axis=0), np.int64) if len(known) == len(group.clients) else None


def _count(blocks: Sequence[LinearBlock], sizes: Ints | None) -> float:
    """Records of a sender: as they are known, or as its messages say; 1 where nothing does."""
    if sizes is not None:
        return float(sizes.sum())
    return next((max(1.0, float(block.total.sum())) for block in blocks if block.of == "ones"), 1.0)


def _groups(view: View, clients: Sequence[str]) -> list[Group]:
    present = {message.sender for message in view.from_clients()}
    own = [Group(name, (name,)) for name in clients if name in present]
    return own or ([Group(AGGREGATE, tuple(clients))] if AGGREGATE in present else [])


def _matched(sent: Floats, features: Matrix, gallery: _Gallery) -> _Answer:
    """Features that were sent as they are name their records."""
    held = {row.tobytes() for row in np.asarray(sent, np.float32)}
    names = np.array([row.tobytes() in held for row in features.astype(np.float32)]) & ~gallery.decoys
    return _Answer(names.astype(np.float64), names, False, f"{int(names.sum())} features are sent as they are")


def _keys(records: Records) -> list[tuple[bytes, int]]:
    return [(image.tobytes(), int(label)) for image, label in zip(records.images, records.labels, strict=True)]


def _merged(records: Records, candidates: int) -> _Gallery:
    """Candidates (the first ones) and decoys, those of equal features and label as one."""
    features = np.ascontiguousarray(records.features)
    keys = _keys(records)
    first: dict[tuple[bytes, int], int] = {}
    of = np.array(
        [first.setdefault((row.tobytes(), key[1]), len(first)) for row, key in zip(features, keys, strict=True)]
    )
    there = np.zeros(len(first), np.int64)
    np.add.at(there, of[:candidates], 1)
    kept = np.unique(of, return_index=True)[1]
    places = {key: int(place) for key, place in zip(keys[:candidates], of[:candidates], strict=True)}
    return _Gallery(records.take(kept), there, there == 0, places)


__all__ = ["KEY", "NAME", "Gallery", "blocks_of", "features_of"]
