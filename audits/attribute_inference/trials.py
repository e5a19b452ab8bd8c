"""Trials of attribute inference, records of clients with strangers of their labels, and the attack's guesses.

Each trial is a record of a client with two strangers of its label, records of the test role that no client holds.
The one is what it is held against, the other takes its place in the negative control. Where records carry a
person's identity, at most one record of each person is drawn: records of one person share the attribute and are
not independent trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.audits.attribute_inference.completions import Sensitive
from fedassay.audits.attribute_inference.judging import Guessed
from fedassay.audits.memorization.scores import one_of_each
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.membership import MembershipGame
from fedassay.data.records import Records, joined
from fedassay.exchange.view import View
from fedassay.support.errors import NotRunError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints, Matrix

FEWEST = 8
"""Trials that a test takes at least."""


@dataclass(frozen=True, eq=False)
class Trials:
    """The records that are asked about, client by client.

    Attributes:
        members: The client's own, by its name.
        non_members: As many that no client holds, of the same labels in the same order.
        others: The same again.
    """

    members: Mapping[str, Records]
    non_members: Mapping[str, Records]
    others: Mapping[str, Records]


def drawn(owners: Sequence[Records], unseen: Records, rng: np.random.Generator, most: int) -> Trials:
    """Draw trials of every client, as many of each label as strangers last, alike from all clients.

    Args:
        owners: The clients.
        unseen: Records of the same distribution that none of them holds.
        rng: Source of randomness.
        most: Trials at most.

    Raises:
        NotRunError: Fewer than `FEWEST` trials can be made.
    """
    pool, sizes = _persons(unseen, rng), [_persons(owner, rng) for owner in owners]
    share = min(1.0, most / max(1, sum(map(len, sizes))))
    rows: list[tuple[list[Ints], list[Ints], list[Ints]]] = [([], [], []) for _ in owners]
    for label in np.unique(np.concatenate([owner.labels for owner in owners])):
        free = pool[unseen.labels[pool] == label]
        own = [
            rng.permutation(held[owner.labels[held] == label]) for held, owner in zip(sizes, owners, strict=True)
        ]
        wanted = np.array([int(np.ceil(share * len(each))) for each in own])
        scale = min(1.0, len(free) / max(1, 2 * int(wanted.sum())))
        for parts, each, count in zip(rows, own, wanted, strict=True):
            size = min(len(free) // 2, max(int(count > 0), int(count * scale)))
            for part, chosen in zip(parts, (each[:size], free[:size], free[size : 2 * size]), strict=True):
                part.append(chosen)
            free = free[2 * size :]
    found: tuple[dict[str, Records], dict[str, Records], dict[str, Records]] = ({}, {}, {})
    for owner, parts in zip(owners, rows, strict=True):
        if not sum(map(len, parts[0])):
            continue
        for held, source, part in zip(found, (owner, unseen, unseen), parts, strict=True):
            held[owner.name] = source.take(np.concatenate(part), owner.name)
    count = sum(map(len, found[0].values()))
    if count < FEWEST:
        raise NotRunError(
            f"{count} records of clients have two strangers of their label each in the test role; {FEWEST} are "
            "needed",
            role="test",
            held=len(unseen),
            needed=len(unseen) + 2 * (FEWEST - count),
        )
    return Trials(*found)


def _persons(records: Records, rng: np.random.Generator) -> Ints:
    """Places of one record of each person, in random order."""
    every = np.arange(len(records)) if records.groups is None else one_of_each(records.groups, rng)
    return np.asarray(rng.permutation(every), np.int64)


@dataclass(frozen=True, eq=False)
class ReleaseGuesses:
    """Guesses of the attack about one release's trials.

    Attributes:
        source: The part of the release that it read.
        audited: Guesses of the clients' records, beside strangers.
        silent: Of other strangers in their place.
        from_features: Whether all features without any message give the attribute, for the clients' records, shape
            (n,).
    """

    source: str
    audited: Guessed
    silent: Guessed
    from_features: Matrix


def asked(
    view: View,
    owners: Sequence[Records],
    trials: Trials,
    sensitive: Sensitive,
    context: AttackedContext,
    seeds: Seeds,
) -> ReleaseGuesses:
    """Guess the attribute of every trial with the view of a release, and without it.

    Args:
        view: The view of the release.
        owners: The senders of the release; the number of records of each class of each of them is known.
        trials: The records asked about.
        sensitive: The attribute.
        context: The attack.
        seeds: Of tests.

    Raises:
        NotRunError: The attack reads nothing of the release.
    """
    sides = (trials.members, trials.non_members, trials.others)
    questions, places = {}, {}
    for name in trials.members:
        whole = joined(name, [side[name] for side in sides])
        questions[name], places[name] = sensitive.completions(whole)

    def simulate(_clients: Sequence[Records], _seeds: Seeds) -> View:
        raise NotRunError("attributes are asked about without shadow releases")

    sizes = {owner.name: np.bincount(owner.labels, minlength=context.data.classes) for owner in owners}
    game = MembershipGame(questions, sizes, sensitive.own, simulate, seeds, spread=sensitive.spread)
    scores = context.attack(view, game).scores
    if len(scores) != 1:
        raise NotRunError("the attack scores no values of attributes")
    ((source, values),) = scores.items()
    right: list[list[Matrix]] = [[], [], []]
    imputed: list[list[Matrix]] = [[], [], []]
    features: list[Matrix] = []
    start = 0
    for name, rows in places.items():
        # Where nothing is said of a record, every value is as likely as before.
        said = np.asarray(values, np.float64)[start + rows]
        evidence = np.where(np.isfinite(said).all(axis=1, keepdims=True), said, 0.0)
        start += len(questions[name])
        parts = np.split(evidence, 3)
        for number, (side, part) in enumerate(zip(sides, parts, strict=True)):
            known = sensitive.imputed(side[name])
            imputed[number].append(_right(known, side[name], sensitive))
            right[number].append(_right(known + part, side[name], sensitive))
        features.append(_right(sensitive.from_features(trials.members[name]), trials.members[name], sensitive))
    ours, non_members, others = (np.concatenate(part) for part in right)
    without, _, without_others = (np.concatenate(part) for part in imputed)
    tests = context.num_tests
    return ReleaseGuesses(
        source,
        Guessed(ours, without, non_members, tests, seeds.child("audited")),
        Guessed(others, without_others, non_members, tests, seeds.child("silent")),
        np.concatenate(features),
    )


def _right(odds: Matrix, records: Records, sensitive: Sensitive) -> Matrix:
    """Whether the likeliest value is the true one, 1 or 0, shape (n,)."""
    return np.asarray(sensitive.values[odds.argmax(axis=1)] == sensitive.truth(records), np.float64)


def merged(parts: Sequence[ReleaseGuesses]) -> ReleaseGuesses:
    """Guesses of several releases as those of one."""

    def one(guesses: Sequence[Guessed]) -> Guessed:
        first = guesses[0]
        rows = [(each.ours, each.imputed, each.non_members) for each in guesses]
        sides = [np.concatenate(side) for side in zip(*rows, strict=True)]
        return Guessed(sides[0], sides[1], sides[2], first.tests, first.seeds)

    features = np.concatenate([part.from_features for part in parts])
    return ReleaseGuesses(
        parts[0].source, one([part.audited for part in parts]), one([part.silent for part in parts]), features
    )
