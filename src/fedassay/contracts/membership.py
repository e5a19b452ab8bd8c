"""Membership questions, and shadow releases to answer them with.

A membership adversary holds candidate records and asks of each whether a client's release was computed from it.
It knows the method, so it may run it on records of its own choice as often as it likes: shadow releases. Truth
is not in a game; the audit joins it afterwards (`is_member`).

Half of the candidates of a client are its own records. The other half are held by no client but of the same
distribution (the test role), label by label, so that a label alone says nothing. Where records name their persons,
persons are drawn, with all of their records and by the label of most of these: as many strangers as members. In a
shadow release every client has as many records of each label as in the real one, which the adversary is assumed to
know:

- `online`: a random half of the candidates of each label, and the other half in the next one (Carlini et al. 2022,
  "Membership Inference Attacks From First Principles"), so that every candidate is in exactly half of them.
- `offline`: records of the adversary's own, so that no candidate is in any of them. They are unnecessary with
online shadows: half of those are without a given candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedassay.contracts.method import Outcome
from fedassay.data.groups import units_of
from fedassay.data.records import Records, joined
from fedassay.exchange.models import ScoringModel
from fedassay.exchange.transcript import SERVER
from fedassay.exchange.view import ThreatModel, View, view
from fedassay.heads.linear import FeatureModel
from fedassay.support.errors import DataError, NotRunError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Bools, Ints, Matrix

Kind = Literal["online", "offline"]

_ATTEMPTS = 5
_NONE = np.zeros(0, np.int64)

MANY = 32
"""Least number of shadows for estimates beyond a mean of every candidate."""


@dataclass(frozen=True, eq=False)
class HeadScores:
    """A head over the frozen backbone, as a `ScoringModel`.

    Attributes:
        model: The head.
        classes: C.
    """

    model: FeatureModel
    classes: int

    def scores(self, records: Records) -> Matrix:
        """Class scores, shape (n, C); -inf for a class without a row in the head."""
        head, transform = self.model.head, self.model.transform
        features = records.features if transform is None else transform(records.features)
        found = np.full((len(records), self.classes), -np.inf)
        found[:, head.classes] = head.scores(features)
        return found


@dataclass(frozen=True)
class Shadow:
    """One shadow release.

    Attributes:
        view: The adversary's view of it, under the plan's threat model.
        included: For every client with candidates, which of them it was computed from, shape (n,).
        signals: Signals that attacks have read from the view, by request: controls repeat the same requests. A
            copy with another view starts without any.
    """

    view: View
    included: Mapping[str, Bools]
    signals: dict[Hashable, Matrix] = field(init=False, default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class MembershipGame:
    """The questions of a membership adversary, and its means to answer them.

    Attributes:
        questions: The candidates of every client in question, in random order.
        sizes: Records per class of every client, shape (C,), in the order of the clients.
        population: The adversary's own records, or None.
        simulate: Runs the method on records of every client (in the order of `sizes`) and gives the view.
        seeds: Random streams of the shadows.
        most: Upper limit on shadows of a kind where fewer than `MANY` are asked for, as in controls; None: no
            limit.
        kept: Shadows made so far.
        gallery: Every client's records among the strangers that no client holds, in random order: the collection
            of an attacker. None: the candidates of all questions.
        spread: Variance of a record about the candidate that stands for it, in units of the covariance within
            classes; 0: candidates are records, 1: means of unknown records.
        why: The reason that there are no questions; empty where there are.
    """

    questions: Mapping[str, Records]
    sizes: Mapping[str, Ints]
    population: Records | None
    simulate: Callable[[Sequence[Records], Seeds], View]
    seeds: Seeds
    most: int | None = None
    kept: dict[tuple[Kind, int], Shadow] = field(default_factory=dict, repr=False)
    gallery: Records | None = None
    spread: float = 0.0
    why: str = ""

    def places(self) -> dict[str, Ints]:
        """Positions of each client's candidates among those of all questions."""
        ends = np.cumsum([len(asked) for asked in self.questions.values()])
        return {
            name: np.arange(end - len(asked), end)
            for (name, asked), end in zip(self.questions.items(), ends, strict=True)
        }

    def shadows(self, kind: Kind, count: int, advance: Callable[[int, int], None]) -> tuple[Shadow, ...]:
        """The first `count` shadows of a kind, made when they are first asked for.

        Raises:
            NotRunError: `offline`, and the adversary has no records; or the method fails on such records.
        """
        if kind == "offline" and (self.population is None or not len(self.population)):
            raise NotRunError("the adversary has no records of its own to make offline shadow releases of")
        if self.most is not None and count < MANY:
            count = min(count, self.most)
        for number in range(count):
            if (kind, number) not in self.kept:
                advance(number, count)
                self.kept[kind, number] = self._shadow(kind, number)
        return tuple(self.kept[kind, number] for number in range(count))

    def _shadow(self, kind: Kind, number: int) -> Shadow:
        rng = self.seeds.numpy(kind, number, "records")
        stock = _Stock(self.population, rng)
        included: dict[str, Bools] = {}
        clients = []
        for name, sizes in self.sizes.items():
            asked, chosen = self.questions.get(name), np.zeros(0, np.int64)
            if asked is not None:
                if kind == "online":
                    # In pairs, the second with the other half: every candidate is in exactly half of the shadows.
                    chosen = half_of_each(
                        asked.labels, self.seeds.numpy(kind, number // 2, "half", name), asked.groups
                    )
                    if number % 2:
                        chosen = np.setdiff1d(np.arange(len(asked)), chosen)
                included[name] = np.isin(np.arange(len(asked)), chosen)
            counts = sizes.copy()
            parts: list[Records] = []
            if asked is not None and len(chosen):
                parts.append(asked.take(chosen))
                counts = np.maximum(0, counts - np.bincount(asked.labels[chosen], minlength=len(counts)))
            parts += stock.draw(counts)
            clients.append(joined(name, parts) if parts else self._nobody(name))
        return Shadow(self._simulated(clients, self.seeds.child(kind, number, "run")), included)

    def _simulated(self, clients: Sequence[Records], seeds: Seeds) -> View:
        """One run; where noise has left a method nothing to make a head of, it is run again."""
        problem = ""
        for attempt in range(_ATTEMPTS):
            try:
                return self.simulate(clients, seeds.child(attempt))
            except DataError as error:
                problem = str(error)
        raise NotRunError(f"a shadow release failed {_ATTEMPTS} times: {problem}")

    def _nobody(self, name: str) -> Records:
        return next(iter(self.questions.values())).take(np.zeros(0, np.int64), name)


class _Stock:
    """The adversary's records, dealt without repeats until a class runs out, and then anew."""

    def __init__(self, population: Records | None, rng: np.random.Generator) -> None:
        self.population = population
        self.rng = rng
        self.whole: dict[int, Ints] = {}
        if population is not None:
            order = rng.permutation(len(population))
            labels = population.labels[order]
            self.whole = {int(label): order[labels == label] for label in np.unique(labels)}
        self.left = dict(self.whole)

    def draw(self, counts: Ints) -> list[Records]:
        """Draw this many records of each class for a client without replacement; fewer if there are too few."""
        rows = np.concatenate([*(self._take(label, int(wanted)) for label, wanted in enumerate(counts)), _NONE])
        return [self.population.take(rows)] if self.population is not None and len(rows) else []

    def _take(self, label: int, wanted: int) -> Ints:
        pool = self.left.get(label, _NONE)
        taken, self.left[label] = pool[:wanted], pool[wanted:]
        if len(taken) < wanted:
            # A client without records would answer nothing: the next ones share records with the ones before.
            rest = np.setdiff1d(self.whole.get(label, _NONE), taken)
            pool = self.rng.permutation(rest)
            more = pool[: wanted - len(taken)]
            taken, self.left[label] = np.concatenate([taken, more]), pool[len(more) :]
        return taken


def half_of_each(labels: Ints, rng: np.random.Generator, groups: Ints | None = None) -> Ints:
    """Draw a random half of the positions of each label; an odd one falls to either side at random.

    Args:
        labels: Shape (n,).
        rng: Source of randomness.
        groups: Person of each position, shape (n,): half of the persons of each label, with all of their
            positions.
    """
    units = units_of(labels, groups)
    chosen = []
    for label in np.unique(units.labels):
        rows = rng.permutation(np.flatnonzero(units.labels == label))
        chosen.append(rows[: (len(rows) + int(rng.integers(2))) // 2])
    return np.sort(units.rows(np.concatenate([*chosen, np.zeros(0, np.int64)])))


def make_game(
    clients: Sequence[Records],
    strangers: Records,
    population: Records | None,
    simulate: Callable[[Sequence[Records], Seeds], View],
    seeds: Seeds,
    *,
    classes: int,
    limit: int = 1000,
    candidates: Records | None = None,
) -> MembershipGame:
    """Draw the candidates of every client.

    Args:
        clients: The records that members are drawn from.
        strangers: Records of the same distribution that no client holds; each is asked about at most once. A
            person with a record at a client is no stranger.
        population: See `MembershipGame`.
        simulate: See `MembershipGame`.
        seeds: Random streams of the draw and of the shadows.
        classes: C.
        limit: Members of a client at most, and as many strangers; counted in persons, where records name them.
        candidates: The adversary's candidates, members and strangers together; None: `strangers` and all members.

    Raises:
        NotRunError: No client and stranger share a label.
    """
    every = clients
    if candidates is not None:
        strangers, clients = candidates, _among(clients, candidates)
    rng = seeds.numpy("candidates")
    known = all(client.groups is not None for client in clients) and strangers.groups is not None
    units = {each.name: units_of(each.labels, each.groups if known else None) for each in clients}
    others_of = units_of(strangers.labels, strangers.groups if known else None)
    held = strangers.among(*every)
    if known:
        held |= np.isin(_groups(strangers), np.concatenate([_groups(client) for client in clients]))
    free = np.bincount(others_of.of[held], minlength=len(others_of.labels)) == 0
    questions: dict[str, Records] = {}
    members: dict[str, list[Ints]] = {client.name: [] for client in clients}
    others: dict[str, list[Ints]] = {client.name: [] for client in clients}
    shares = [min(1.0, limit / max(1, len(units[client.name].labels))) for client in clients]
    for label in range(classes):
        own = [rng.permutation(np.flatnonzero(units[client.name].labels == label)) for client in clients]
        pool = rng.permutation(np.flatnonzero((others_of.labels == label) & free))
        wanted = np.array([int(np.ceil(share * len(rows))) for share, rows in zip(shares, own, strict=True)])
        # Where strangers are scarce, every client's share shrinks by the same factor, but none to nothing.
        scale = min(1.0, len(pool) / max(1, int(wanted.sum())))
        for client, rows, count in zip(clients, own, wanted, strict=True):
            size = min(len(pool), max(int(count > 0), int(count * scale)))
            members[client.name].append(rows[:size])
            others[client.name].append(pool[:size])
            pool = pool[size:]
    for client in clients:
        inside, outside = (np.concatenate(rows[client.name]).astype(np.int64) for rows in (members, others))
        if not len(inside):
            continue
        both = joined(
            client.name,
            [client.take(units[client.name].rows(inside)), strangers.take(others_of.rows(outside))],
        )
        questions[client.name] = both.take(rng.permutation(len(both)))
    if not questions:
        raise NotRunError("no record outside the clients shares a label with theirs: there are no strangers")
    sizes = {client.name: np.bincount(client.labels, minlength=classes) for client in every}
    whole = candidates or joined("candidates", [*clients, strangers.take(np.flatnonzero(~held))])
    gallery = whole.take(seeds.numpy("candidates kept").permutation(len(whole)))
    return MembershipGame(questions, sizes, population, simulate, seeds, gallery=gallery)


def _among(clients: Sequence[Records], candidates: Records) -> list[Records]:
    """The records of every client that are candidates.

    Raises:
        NotRunError: None is, or no candidate is anything else.
    """
    found = [client.take(np.flatnonzero(is_member(client, candidates))) for client in clients]
    strangers = int((~candidates.among(*clients)).sum())
    if not any(map(len, found)) or not strangers:
        which = "nobody's" if strangers else "a client's"
        raise NotRunError(
            f"all {len(candidates)} candidates of knowledge.gallery are {which}: there is nothing to compare with"
        )
    return found


def _groups(records: Records) -> Ints:
    assert records.groups is not None
    return records.groups


def no_questions(why: str = "there are no candidates") -> MembershipGame:
    """Return a game without questions, for a plan without candidates."""

    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        raise NotRunError(f"{why}, so no shadow release is made")

    return MembershipGame({}, {}, None, simulate, Seeds(0), why=why)


def is_member(candidates: Records, owner: Records) -> Bools:
    """Return which candidates are among the owner's records, shape (n,), by image and label."""
    held = {(image.tobytes(), int(label)) for image, label in zip(owner.images, owner.labels, strict=True)}
    pairs = zip(candidates.images, candidates.labels, strict=True)
    return np.array([(image.tobytes(), int(label)) in held for image, label in pairs], np.bool_)


def visible(outcome: Outcome, threat: ThreatModel) -> View:
    """Return the adversary's view of an outcome: messages, and the models and generators that they carry."""
    seen = view(outcome.transcript, threat)
    # Behind secure aggregation, only the summed fields of a client are seen, and no model made of other fields.
    hidden = {
        (message.sender, message.round)
        for message in outcome.transcript.messages
        if threat.view == "aggregate" and any(not item.additive for item in message.fields.values())
    }
    there = {(message.sender, message.round) for message in seen.messages}
    there = {key for key in there if key[0] == SERVER or key not in hidden}
    models: dict[tuple[str, int], ScoringModel] = {
        key: model for key, model in outcome.networks.items() if key in there
    }
    heads = [
        message for message in seen.messages if message.sender == SERVER and message.of_kind("head") is not None
    ]
    if heads and isinstance(outcome.model, FeatureModel):
        models[SERVER, heads[-1].round] = HeadScores(outcome.model, seen.classes)
    senders = {sender for sender, _ in there}
    generators = {sender: model for sender, model in outcome.generators.items() if sender in senders}
    estimators = {key: estimator for key, estimator in outcome.estimators.items() if key in there}
    return replace(seen, models=models, generators=generators, enters=outcome.enters, estimators=estimators)
