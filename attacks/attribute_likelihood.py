"""Likelihood of a message under each value of a record's sensitive attribute.

Attribute inference by a membership oracle (Yeom et al., "Privacy Risk in Machine Learning: Analyzing the
Connection to Overfitting", CSF 2018, section 5): an adversary who knows a record but for one attribute completes
it with every value, and computes the likelihood of the message if a client holds each completion. Questions are
those of a `MembershipGame` with the completions as candidates. Each gets a log-likelihood ratio, so that
differences between the completions of one record add to the prior log-odds without the message:

- `messages`: the law of what is sent (`fedassay.attacks.membership.tracing`): a class sum with the completion
  among its records against one without it, its density under a mixture, the range of a second moment, the nearest
  feature that was sent. Declared noise is in the law.
- `model`: where none of these fields is sent, the log-probability of the completion's label under the sender's
  heads or networks, which fit their training records better (Yeom et al. again).

Assumes: the method, the backbone, the number of a sender's records of each class, and records of the adversary's
own for the law of the others. Other records of the sender are not known.

A null result says nothing of an adversary who knows the other records of a client, or who simulates releases with
either completion.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.attacks.membership.signals import (
    Group,
    Source,
    as_ratio,
    encoded,
    groups_of,
    message_signals,
    model_signals,
)
from fedassay.contracts.attack import AttackResult, Knowledge, Note
from fedassay.contracts.facts import AttackFacts
from fedassay.contracts.membership import MembershipGame
from fedassay.contracts.registry import register
from fedassay.data.records import Records, joined
from fedassay.exchange.view import View
from fedassay.mixtures.population import Population, population_of
from fedassay.support.errors import NotRunError
from fedassay.support.types import Matrix, Parameters

NAME = "attribute_likelihood"
_SOURCES: tuple[Source, ...] = ("messages", "model")


@register("attack", "attribute_likelihood")
class AttributeLikelihood(Parameters):
    """Score completions of records by the likelihood of what is sent."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("values",),
        needs=("membership_game", "attacker_records", "attributes"),
        cost=lambda given, sizes, load: 0.05 * load.cells,
    )

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Score every candidate of the game.

        Returns:
            Scores by source, `messages` or `model`, each over all candidates in the order of the game's questions,
            NaN where a client's release says nothing; artifact `clients`, the client of each candidate.

        Raises:
            NotRunError: There is no game, the adversary has no records, or no visible field depends on single
                records.
        """
        game = knowledge.game
        if game is None:
            raise NotRunError("no candidates: attributes are asked of known records of known clients")
        if game.population is None or len(game.population) < 2:
            raise NotRunError(
                "the adversary has no records of its own to know the others' law by", role="attacker"
            )
        clients = np.concatenate([[name] * len(asked) for name, asked in game.questions.items()]).astype(np.str_)
        notes: list[str] = []
        for source in _SOURCES:
            try:
                values = _scored(source, view, game, clients)
            except NotRunError as error:
                notes.append(Note(f"{source}: {error}", source))
                continue
            if not np.isnan(values).all():
                return AttackResult(
                    NAME, scores={source: values}, artifacts={"clients": clients}, notes=tuple(notes)
                )
        raise NotRunError("; ".join(notes) or "the view holds no statistics or classifiers of single records")


def _scored(source: Source, view: View, game: MembershipGame, clients: NDArray[np.str_]) -> Matrix:
    """Scores of all candidates by one source, NaN where it says nothing, shape (n,).

    Raises:
        NotRunError: No evidence in it has a law that is known.
    """
    values, places = np.full(len(clients), np.nan), game.places()
    groups = groups_of(source, view, list(game.questions))
    if not groups:
        return values
    assert game.population is not None
    people = None
    if source == "messages":
        people = population_of(encoded(view, game.population), game.population.labels, view.classes)
    for group in groups:
        asked = joined(group.sender, [game.questions[name] for name in group.clients])
        found = of_models(view, group, asked) if people is None else of_messages(view, group, asked, game, people)
        values[np.concatenate([places[name] for name in group.clients])] = found
    return values


def of_messages(view: View, group: Group, asked: Records, game: MembershipGame, people: Population) -> Matrix:
    """Log-likelihood ratio of a sender's messages with each candidate and without it, shape (n,).

    Raises:
        NotRunError: No evidence in them has a law that is known.
    """
    known = np.sum([game.sizes[name] for name in group.clients], axis=0)
    signals = message_signals(view, group.sender, asked, people, known, game.spread)
    if game.spread and "class_sum" in signals:
        # The mean of an unknown record is no record: the law of an unknown record is known for sums alone.
        signals = {"class_sum": signals["class_sum"]}
    return as_ratio(signals, people.means.shape[1])


def of_models(view: View, group: Group, asked: Records) -> Matrix:
    """Log-probability of each candidate's label under a sender's classifiers, the mean over them, shape (n,)."""
    logits = model_signals(view, group.sender, asked)
    return np.asarray(-np.logaddexp(0.0, -logits).mean(axis=1))
