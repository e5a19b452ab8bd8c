"""Membership: was this record among those that the release was computed from?

The questions, and the simulations that the adversary may run, are a
`fedassay.contracts.membership.MembershipGame`. Everything in a view is used, per client where clients are seen and
for all clients together where only a sum or a broadcast is:

- `messages`: sums, means, mixtures, second moments, features. `likelihood_ratio` is computed from the release's
  own law (`tracing`), without shadows; `joint` solves the sums for all candidates at once (`gallery`), where they
  are no more than a few thousand; `lira_online` compares with shadow releases.
- `model`: classifiers that were sent, or a broadcast head; the signal is the logit of the own class's
  probability. `generator`: the log-likelihood under a diffusion model, of several noises at each level, or under
  a decoder, at the best latent vector (`fedassay.exchange.models.ScoringGenerator`). Both by `loss` (the signal
  alone, one threshold for all: Yeom et al. 2018), `lira_online`, `lira_offline` and `rmia` (`scores`). The last
  two have offline shadows only where no online ones are made.

Assumes: the method, the backbone, and the number of a client's records of each class; records of its own from the
clients' distribution for the population's law and for offline shadows. LiRA online simulates with the candidates
themselves. More shadows give better scores: 16 by default, where the literature takes 64 to 256.

A null result does not mean that members cannot be inferred: shadows may be too few for the candidates at stake,
rounds are averaged, and no signal is a gradient. Gradients at a generator's weights gave no more than the
likelihood did (docs/membership.md); those of classifiers were not tried. The informed adversary who knows all
other records is the audit's, not this attack's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedassay.attacks.gallery.attack import KEY, Gallery
from fedassay.attacks.membership.scores import lira_offline, lira_online, rmia
from fedassay.attacks.membership.signals import (
    MESSAGE_KINDS,
    Group,
    Reader,
    Source,
    as_columns,
    as_ratio,
    encoded,
    generator_signals,
    groups_of,
    message_signals,
    model_signals,
)
from fedassay.contracts.attack import AttackResult, Knowledge, Note
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.membership import Kind, MembershipGame, Shadow
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.data.records import Records, joined
from fedassay.exchange.view import View
from fedassay.mixtures.population import Population, population_of
from fedassay.support.errors import NotRunError
from fedassay.support.types import Matrix, Parameters

Test = Literal["likelihood_ratio", "joint", "loss", "lira_online", "lira_offline", "rmia"]

NAME = "membership"
_POPULATION = 250
"""Population records that RMIA compares with at most."""

_FEWEST_SHADOWS = 4
_JOINT = 4_000
"""Candidates at most that are solved for together; the attack on galleries takes more."""

_SOURCES: tuple[Source, ...] = ("messages", "model", "generator")

_KINDS: dict[str, Kind] = {"lira_online": "online", "lira_offline": "offline", "rmia": "offline"}
"""Shadows of tests that need some."""


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    # Shadow releases run every method anew.
    return float(given["shadows"] * load.seconds * any(test in _KINDS for test in given["tests"]))


@register("attack", "membership")
class Membership(Parameters):
    """Tell members from others by likelihood ratio, LiRA and RMIA with shadow releases."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("scores",),
        needs=("membership_game",),
        reads=(*MESSAGE_KINDS, "model", "generator"),
        cost=_seconds,
    )

    tests: tuple[Test, ...] = Field(
        default=("likelihood_ratio", "joint", "loss", "lira_online", "lira_offline", "rmia"), min_length=1
    )
    """Tests to run, where they apply to what is seen."""
    shadows: int = Field(default=16, ge=0)
    """Shadow releases; below 4 the tests that need them are left out."""
    levels: tuple[float, ...] = Field(default=(0.1, 0.25, 0.5), min_length=1)
    """Noise levels that diffusion models are asked at, in (0, 1)."""
    draws: int = Field(default=4, ge=1)
    """Noises at each of these levels."""
    gamma: float = Field(default=1.0, ge=1)
    """RMIA: by how much the candidate's likelihood ratio must beat a population record's."""
    offline_scale: float = Field(default=0.3, ge=0, le=1)
    """RMIA by offline shadows: a, from the probability without a record to that with and without it."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Score every candidate by every test that applies.

        Returns:
            Scores by `source/test`, each over all candidates, in the order of the game's questions, NaN where a
            client's release says nothing, and none at all where the view does not speak of single records (the
            notes say why); artifact `clients`, the client of each candidate.

        Raises:
            NotRunError: There is no game.
        """
        game = knowledge.game
        if game is None:
            raise NotRunError(
                "no candidates: membership is asked of known records, members and others, of known clients"
            )
        scores: dict[str, Matrix] = {}
        notes: list[str] = []
        for source in _SOURCES:
            groups = groups_of(source, view, list(game.questions))
            if not groups:
                continue
            try:
                found = self._source(source, groups, view, knowledge, game, notes)
            except NotRunError as error:
                notes.append(Note(f"{source}: {error}", source))
                continue
            scores |= {f"{source}/{test}": values for test, values in found.items()}
            if source == "messages" and "joint" in self.tests:
                scores |= _jointly(view, knowledge, game, notes)
        if not scores and not notes:
            # Not an error: the audit's informed adversary needs no scores.
            notes.append("the view holds no statistics, classifiers or generators that speak of single records")
        clients = np.concatenate([[name] * len(asked) for name, asked in game.questions.items()])
        return AttackResult(
            NAME, scores=scores, artifacts={"clients": clients.astype(np.str_)}, notes=tuple(dict.fromkeys(notes))
        )

    def _source(
        self,
        source: Source,
        groups: Sequence[Group],
        view: View,
        knowledge: Knowledge,
        game: MembershipGame,
        notes: list[str],
    ) -> dict[str, Matrix]:
        """Scores of one source by test."""
        people = _people(view, game) if source == "messages" else None
        found: dict[str, Matrix] = {}
        of_messages = ("likelihood_ratio", "lira_online")
        wanted = [
            test
            for test in self.tests
            if (test in of_messages if people is not None else test not in {"likelihood_ratio", "joint"})
        ]
        places = game.places()
        signals = self._signals(source, knowledge, people, game)
        for test in wanted:
            kind = self._kind(test)
            shadows: tuple[Shadow, ...] = ()
            if kind is not None:
                if self.shadows < _FEWEST_SHADOWS:
                    notes.append(
                        f"{test} needs at least {_FEWEST_SHADOWS} shadow releases, {self.shadows} are asked for"
                    )
                    continue
                if test == "rmia" and (game.population is None or not len(game.population)):
                    notes.append(f"{test}: the adversary has no records of its own to compare candidates with")
                    continue
                try:
                    with knowledge.progress.step(f"{kind} shadows") as advance:
                        shadows = game.shadows(kind, self.shadows, advance)
                except NotRunError as error:
                    notes.append(f"{test}: {error}")
                    continue
            values = np.full(sum(len(asked) for asked in game.questions.values()), np.nan)
            for group in groups:
                usable = [shadow for shadow in shadows if _answers(source, shadow.view, view, group)]
                if kind is not None and len(usable) < _FEWEST_SHADOWS:
                    notes.append(
                        f"{source}, {test}: {len(usable)} of {len(shadows)} shadow releases hold what "
                        f"{group.sender} sends; at least {_FEWEST_SHADOWS} are needed"
                    )
                    continue
                asked = joined(group.sender, [game.questions[name] for name in group.clients])
                rows = np.concatenate([places[name] for name in group.clients])
                values[rows] = self._score(
                    test, source, signals, people, view, group, asked, usable, game, knowledge
                )
            if not np.isnan(values).all():
                found[test] = values
        return found

    def _kind(self, test: Test) -> Kind | None:
        """The shadows that a test compares with; None: it needs none.

        Every candidate is out of half of the online shadows: where these are made anyway, LiRA offline compares
        with those, and RMIA takes all of them, as its online form does.
        """
        kind = _KINDS.get(test)
        return "online" if kind is not None and "lira_online" in self.tests else kind

    def _signals(
        self, source: Source, knowledge: Knowledge, people: Population | None, game: MembershipGame
    ) -> Reader:
        def of_messages(seen: View, group: Group, records: Records) -> Matrix:
            assert people is not None
            known = np.sum([game.sizes[name] for name in group.clients], axis=0)
            return as_columns(message_signals(seen, group.sender, records, people, known))

        def of_model(seen: View, group: Group, records: Records) -> Matrix:
            return model_signals(seen, group.sender, records)

        def of_generator(seen: View, group: Group, records: Records) -> Matrix:
            # The same noise for every generator: what is left of a difference is the generator's doing.
            noise = knowledge.seeds.child("levels", group.sender)
            return generator_signals(seen, group.sender, records, self.levels, self.draws, noise)

        return {
            # Scores of messages depend on the population and on sizes as well.
            "messages": Reader(of_messages),
            "model": Reader(of_model, source),
            "generator": Reader(of_generator, (source, self.levels, self.draws, knowledge.seeds)),
        }[source]

    def _score(
        self,
        test: Test,
        source: Source,
        signals: Reader,
        people: Population | None,
        view: View,
        group: Group,
        asked: Records,
        shadows: Sequence[Shadow],
        game: MembershipGame,
        knowledge: Knowledge,
    ) -> Matrix:
        """Scores (n,) of one group's candidates by one test."""
        if test == "likelihood_ratio":
            assert people is not None
            known = np.sum([game.sizes[name] for name in group.clients], axis=0)
            return as_ratio(message_signals(view, group.sender, asked, people, known), people.means.shape[1])
        target = signals(view, group, asked)
        if test == "loss":
            return np.asarray(target.mean(axis=1))
        under = np.stack([signals(shadow, group, asked) for shadow in shadows])
        included = np.stack(
            [np.concatenate([shadow.included[name] for name in group.clients]) for shadow in shadows]
        )
        if test == "lira_online":
            return lira_online(target, under, included)
        online = self._kind(test) == "online"
        if test == "lira_offline":
            return lira_offline(target, under, included if online else None)
        assert game.population is not None
        rng = knowledge.seeds.numpy("population", group.sender)
        chosen = rng.permutation(len(game.population))[:_POPULATION]
        people_asked = game.population.take(np.sort(chosen))
        usual = signals(view, group, people_asked)
        usual_under = np.stack([signals(shadow, group, people_asked) for shadow in shadows])
        if source == "model":
            logs = [_log_probability(each) for each in (target, under, usual, usual_under)]
            # Half of the online shadows hold a candidate: their mean is the probability without knowing.
            scale = None if online else self.offline_scale
            return rmia(logs[0], logs[1], logs[2], logs[3], gamma=self.gamma, offline_scale=scale)
        pixels = float(np.prod(asked.images.shape[1:]))
        logs = [pixels * each[..., 0] for each in (target, under, usual, usual_under)]
        return rmia(logs[0], logs[1], logs[2], logs[3], gamma=self.gamma)


def _jointly(view: View, knowledge: Knowledge, game: MembershipGame, notes: list[str]) -> dict[str, Matrix]:
    """The weights of all candidates at once, where the messages are sums."""
    seen = {group.sender: group.clients for group in groups_of("messages", view, list(game.questions))}
    largest = max(sum(len(game.questions[name]) for name in clients) for clients in seen.values())
    if largest > _JOINT:
        notes.append(
            f"joint: {largest:,} candidates are asked about together, and at most {_JOINT:,} are solved for"
        )
        return {}
    try:
        result = Gallery(candidates="asked").run(view, knowledge)
    except NotRunError as error:
        notes.append(f"joint: {error}")
        return {}
    return {"messages/joint": np.asarray(result.scores[KEY], np.float64)}


def _answers(source: Source, shadow: View, view: View, group: Group) -> bool:
    """Whether a shadow release holds of a sender what the release under attack does: a server may fit no model."""
    if source == "model":
        rounds = (seen.model_rounds.get(group.sender, ()) for seen in (shadow, view))
        return len({frozenset(each) for each in rounds}) == 1
    return group.sender in {other.sender for other in groups_of(source, shadow, group.clients)}


def _log_probability(logits: Matrix) -> Matrix:
    """Mean over the networks of log p of the own class, from its logits (..., k)."""
    return np.asarray(-np.logaddexp(0.0, -logits).mean(axis=-1))


def _people(view: View, game: MembershipGame) -> Population:
    """The population's law, from the adversary's records, or from all candidates where it has none."""
    known = game.population
    if known is None or len(known) < 2:
        known = joined("candidates", list(game.questions.values()))
    return population_of(encoded(view, known), known.labels, view.classes)
