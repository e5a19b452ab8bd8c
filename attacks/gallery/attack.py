"""Solve a message's sums over records for the candidates that are among its records.

Counts, class sums, second moments, class-wise moments, means beside counts and single components of mixtures are
linear in membership (`fedassay.exchange.linear`): every number of a sum is one equation. An attacker with a
gallery of candidates solves for their weights. Nothing is learned, the number of members does not matter, and the
message may be one client's or the sum of all (secure aggregation). It is the reconstruction of Dinur and Nissim
(2003) and De (2012), with the equations of one-shot federated learning for queries.

- Without noise, weights are solved for exactly (`solving`), and certify themselves (`certificate.whole`).
- Sums of one sender that change from message to message are solved at every time, and their difference for the
  records that joined or left in between; records that stayed need not be candidates (`changes`).
- Where the gallery lacks members, holds them re-encoded, or Gaussian noise is declared, weights are a
  posterior's; names are given at a false-discovery rate of 1 %, which the attacker's own records calibrate
  (`certificate.named`).

Assumes: the backbone, as far as it was sent, and a gallery, which is the attacker's knowledge. A plan gives it as
`knowledge.gallery`, or else it is the clients' records among others that no client holds, thinned to `coverage`;
for captured messages it is a folder. The number of records of each class is known where the message does not give
it.

A null result does not mean that records are safe: more equations than candidates are needed, the gallery may
cover too few members, or show them too differently.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedassay.attacks.gallery import cost
from fedassay.attacks.gallery.answers import Answer, Kept, answer, kept_of, keys_of, matched
from fedassay.attacks.gallery.changes import times_of
from fedassay.attacks.gallery.heads import ROUNDS
from fedassay.attacks.gallery.precision import MOST
from fedassay.attacks.gallery.precision import operations as inverted
from fedassay.attacks.gallery.published import answer_of_head, answer_of_scaler
from fedassay.attacks.gallery.sums import features_of, rounds_of
from fedassay.attacks.gallery.unknown import SOLVES
from fedassay.attacks.membership.signals import Group
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts
from fedassay.contracts.membership import HeadScores, MembershipGame
from fedassay.contracts.registry import register
from fedassay.data.records import Records, joined
from fedassay.exchange.blocks import LinearBlock
from fedassay.exchange.sent_head import head_in, scaler_in
from fedassay.exchange.transcript import AGGREGATE, SERVER
from fedassay.exchange.view import View
from fedassay.heads.linear import LinearHead
from fedassay.heads.penalised import coefficients
from fedassay.heads.scaler import Scaler
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.types import Ints, Matrix, Parameters

NAME = "gallery"
KEY = "messages/gallery"
"""Key of the scores that are judged."""
_THRICE = "; three times as long if they do not explain the message"
_TWICE = "; twice as long if no round penalty explains the model"
_MANY = 5_000
"""Number of candidates of a head above which the expected time is announced."""
_NOTHING = "no message is a sum over records, and no head solves equations of them"


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
            "head",
            ("scaler_mean", "scaler_variance"),
        ),
        cost=cost.seconds,
        holds=cost.held,
        takes_gallery=True,
    )

    coverage: float = Field(default=1.0, gt=0, le=1)
    """Share of the candidates, members among them, that the attacker's gallery holds, drawn at random."""
    candidates: Literal["all", "asked"] = "all"
    """Candidates in the gallery: `all` records of clients and of no client; or those `asked` about, each client's
    for itself."""
    decoys: int = Field(default=1000, ge=0)
    """The attacker's own records at most that calibrate names where the gallery does not explain a message."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Solve the messages of every client that is seen, or of all together.

        Returns:
            Scores `messages/gallery`, the weights of the game's candidates in their order, NaN for those that the
            gallery lacks. Artifacts: `clients`, the client of each candidate; `named`, 1 for named candidates;
            `whole`, 1 where the messages behind a candidate are explained as a whole; `changes`, 1 for candidates
            that joined between two times of the same sums, -1 for those that left, shape (n, times - 1).

        Raises:
            NotRunError: There are no candidates.
            NothingToReadError: No message is a sum.
        """
        game = knowledge.game
        if game is None:
            raise NotRunError("there is no gallery: candidates are given by a plan, or by --gallery")
        asked = joined("candidates", list(game.questions.values()))
        clients = np.concatenate([[name] * len(each) for name, each in game.questions.items()]).astype(np.str_)
        everybody = asked if game.gallery is None else game.gallery
        kept: Kept | None = None
        keys, there = keys_of(asked), game.places()
        values, names = np.full(len(asked), np.nan), np.zeros(len(asked), np.int8)
        complete, notes = np.zeros(len(asked), np.int8), []
        changes = np.zeros((len(asked), 0), np.int8)
        for group in _groups(view, list(game.questions)):
            own = np.concatenate([there[name] for name in group.clients])
            if kept is None or self.candidates == "asked":
                kept = self._gallery(everybody if self.candidates == "all" else asked.take(own), knowledge)
            known = _sizes(game, group)
            told = self._answer(view, group.sender, kept, known, knowledge)
            if isinstance(told, str) and (published := self._of_head(view, group.sender, kept, known, knowledge)):
                told = published
            if isinstance(told, str):
                notes.append(f"{group.sender}: {told}")
                continue
            notes.append(f"{group.sender}: {told.words}")
            places = np.array([kept.keys.get(keys[row], -1) for row in own], np.int64)
            rows, places = own[places >= 0], places[places >= 0]
            values[rows], names[rows], complete[rows] = told.weights[places], told.names[places], told.whole
            steps = told.changes.shape[1]
            changes = np.pad(changes, ((0, 0), (0, max(0, steps - changes.shape[1]))))
            changes[rows, :steps] = told.changes[places]
        if np.isnan(values).all():
            raise NothingToReadError("; ".join(notes) or _unseen(view))
        artifacts = {"clients": clients, "named": names, "whole": complete, "changes": changes}
        return AttackResult(NAME, scores={KEY: values}, artifacts=artifacts, notes=tuple(dict.fromkeys(notes)))

    def _gallery(self, candidates: Records, knowledge: Knowledge) -> Kept:
        """Return the candidates that the attacker holds, and its decoys."""
        seed = int(knowledge.seeds.numpy("coverage").integers(1 << 31))
        # The draw is by content, so that the same candidate is held, or is not, in every question.
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
        return kept_of(together, len(held))

    def _answer(
        self, view: View, sender: str, kept: Kept, sizes: Ints | None, knowledge: Knowledge
    ) -> Answer | str:
        """Solve one sender's messages; a string says why there is no answer."""
        times = times_of(rounds_of(view, sender, sizes))
        if len(times) > 1 and sizes is not None:
            # The known number of a client's records holds at one time only.
            times, sizes = times_of(rounds_of(view, sender, None)), None
        blocks = [block for each in times for block in each]
        sent = [message.of_kind("features") for message in view.from_client(sender)]
        features = features_of(view, kept.records, blocks, _captured(knowledge))
        if isinstance(features, str):
            return features
        for raw in sent:
            if raw is not None and raw.ndim == 2 and raw.shape[1] == features.shape[1]:
                return matched(raw, features, kept)
        if not blocks:
            return _no_sum(view, sender)
        self._announce(kept, blocks, knowledge)
        return answer(times, features, kept, sizes, self.coverage)

    def _of_head(
        self, view: View, sender: str, kept: Kept, sizes: Ints | None, knowledge: Knowledge
    ) -> Answer | str | None:
        """Solve a sender's last head, or a scaler in captured messages; None where there is neither.

        A string says why there are too many candidates.

        A method declares the estimator of its head. For captured messages it is unknown and has to be inferred.
        """
        rounds = view.estimator_rounds.get(sender, ())
        captured = _captured(knowledge) and not view.estimators
        seen = view.messages if sender == SERVER else view.from_client(sender)
        sent = {message.round: message for message in seen if message.sender == sender}
        last = max((sent if captured else rounds), default=-1)
        if last not in sent:
            return None
        head, scaler = head_in(sent[last]), scaler_in(sent[last])
        model = view.models.get((sender, last))
        transform = model.model.transform if isinstance(model, HeadScores) else None
        inputs = kept.records.features if transform is None else transform(kept.records.features)
        features: Matrix = np.asarray(inputs, np.float64)
        width = head.weights.shape[1] if head else len(scaler.mean) if scaler else None
        if features.shape[1] != width:
            taken = f"the model takes {width} features, and candidates have {features.shape[1]}"
            return taken if captured and width else None
        candidates = len(kept.records) - int(kept.decoys.sum())
        members = candidates / 2 if sizes is None else self.coverage * float(sizes.sum())
        rng = knowledge.seeds.numpy("head", sender)
        estimator = view.estimators.get((sender, last))
        columns = _equations(head, scaler, estimator is not None)
        if candidates > _MANY and min(candidates, columns) <= MOST:
            inferred = estimator is None and head is not None
            solves = ROUNDS + (SOLVES if inferred else 0)
            _tell(knowledge, candidates, solves * inverted(candidates, columns), _TWICE if inferred else "")
        try:
            if head is not None:
                return answer_of_head(estimator, head, features, kept, members, rng, scaler)
            return None if scaler is None else answer_of_scaler(scaler, features, kept, members, rng)
        except NotRunError as error:
            return str(error)

    def _announce(self, kept: Kept, blocks: Sequence[LinearBlock], knowledge: Knowledge) -> None:
        """Announce the expected time if there are too many candidates for a kernel."""
        operations, more = cost.solves(len(kept.records), blocks)
        if operations:
            _tell(knowledge, len(kept.records), operations, _THRICE if more else "")


def _tell(knowledge: Knowledge, size: int, operations: float, more: str = "") -> None:
    about = rate.in_words(cost.seconds_of(operations))
    knowledge.progress.tell(f"{NAME}: {size:,} candidates, about {about}{more}")


def _equations(head: LinearHead | None, scaler: Scaler | None, declared: bool) -> int:
    """Return the number of equations of a head and a scaler; an undeclared head is read as a penalised one."""
    of_scaler = 0 if scaler is None else 2 * len(scaler.mean)
    if head is None:
        return of_scaler
    weights, bias = (head.weights, head.bias[:0]) if declared else coefficients(head)
    return of_scaler + weights.size + (bias.size if bias.any() else 0)


def _captured(knowledge: Knowledge) -> bool:
    """Whether messages were captured, so that the senders' numbers of records are unknown."""
    return knowledge.game is not None and not knowledge.game.sizes


def _no_sum(view: View, sender: str) -> str:
    """Return the reason for no answer: the kinds of a sender's fields, none of them a sum over records."""
    sent = {item.kind for message in view.from_client(sender) for item in message.fields.values()}
    kinds = ", ".join(sorted(kind.replace("_", " ") for kind in sent))
    return f"{_NOTHING} ({kinds} is sent)"


def _unseen(view: View) -> str:
    if view.from_clients() or any(message.of_kind("head") is not None for message in view.messages):
        return _NOTHING
    return f"the {view.threat.view} view shows no message of any client"


def _sizes(game: MembershipGame, group: Group) -> Ints | None:
    """Return the records per class of a group, shape (C,), if known for all of its clients; else None."""
    known = [game.sizes[name] for name in group.clients if name in game.sizes]
    return np.asarray(np.sum(known, axis=0), np.int64) if len(known) == len(group.clients) else None


def _groups(view: View, clients: Sequence[str]) -> list[Group]:
    own = [Group(name, (name,)) for name in clients if view.from_client(name)]
    common = AGGREGATE if view.from_client(AGGREGATE) else SERVER
    everybody = common == AGGREGATE or SERVER in view.estimator_rounds
    return own or ([Group(common, tuple(clients))] if everybody else [])
