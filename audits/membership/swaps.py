"""Records, persons or whole clients that coins swap for strangers, run after run, and guesses of the coins.

Coins are independent over runs, so that right guesses of a unit that leaves no trace are binomial with one half,
whatever the scores, the other units and the noise are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom

from fedassay.audits.evidence import ControlResult, LeakTest
from fedassay.audits.membership.controls import label_by_image
from fedassay.audits.simulation import control_seeds
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.persons import mean_by
from fedassay.audits.stats.resampling import ALONE, level_of
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.membership import MembershipGame, visible
from fedassay.contracts.method import Outcome
from fedassay.data.groups import Units, units_of
from fedassay.data.records import Records, joined
from fedassay.exchange.view import View
from fedassay.privacy.units import most_records
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.errors import FedassayError, NotRunError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Bools, Ints, Matrix

Run = Callable[[Sequence[Records], Seeds], Outcome]

_SHADOWS = 4
_LEAST = 8


@dataclass(frozen=True, eq=False)
class Swaps:
    """Units of clients, and strangers that stand in for them: records, persons or whole clients.

    Attributes:
        clients: Everybody's other records, in the order of the clients.
        owners: The client of each of the K units.
        inside: The records of each unit.
        outside: Those of the stranger that stands in for it, label by label the same where the unit is a record.
        population: The adversary's own records, or None.
    """

    clients: tuple[Records, ...]
    owners: tuple[str, ...]
    inside: tuple[Records, ...]
    outside: tuple[Records, ...]
    population: Records | None

    def held(self, included: Bools) -> list[Records]:
        """Everybody's records where these units are their client's own, (K,), and the others are strangers."""
        held: dict[str, list[Records]] = {each.name: [each] for each in self.clients}
        for owner, own, other, coin in zip(self.owners, self.inside, self.outside, included, strict=True):
            held[owner].append(own if coin else other)
        return [joined(name, parts) if len(parts) > 1 else parts[0] for name, parts in held.items()]

    def questions(self) -> tuple[dict[str, Records], Ints]:
        """Both sides of every unit by client, and each record's code, (n,): 2 k, or 2 k + 1 for a stranger."""
        asked: dict[str, list[Records]] = {}
        sides: dict[str, list[Ints]] = {}
        for side, part in enumerate((self.inside, self.outside)):
            for number, (owner, each) in enumerate(zip(self.owners, part, strict=True)):
                asked.setdefault(owner, []).append(each)
                sides.setdefault(owner, []).append(np.full(len(each), 2 * number + side))
        whole = {owner: joined(owner, parts) for owner, parts in asked.items()}
        return whole, np.concatenate([side for parts in sides.values() for side in parts])


@dataclass(frozen=True, eq=False)
class Guesses:
    """Guesses of coins, one for each tested run and unit.

    Attributes:
        guessed: Shape (runs, K).
        included: Whether the client's own unit was in, shape (runs, K).
        chosen: The attack's source and test that was chosen.
        margins: By how much each guess is one, in standard deviations, above 0 where the unit is said to be in,
            shape (runs, K).
        unit: The unit.
        tests: Tests in the run, which levels are corrected for.
    """

    guessed: Bools
    included: Bools
    chosen: str
    margins: Matrix
    unit: Unit = "record"
    tests: int = 1

    @property
    def right(self) -> Ints:
        """Right guesses of each unit, (K,)."""
        return np.asarray((self.guessed == self.included).sum(axis=0), np.int64)

    @property
    def runs(self) -> int:
        """Tested runs."""
        return len(self.included)

    @property
    def mean(self) -> float:
        """The rate of right guesses over all units."""
        return float(self.right.mean() / self.runs)

    def lower(self, error: float) -> Matrix:
        """Lower bounds on the rates of all units, which hold at once but for this error, (K,)."""
        confidence = 1 - error / len(self.right)
        return np.asarray(clopper_pearson(self.right, self.runs, confidence=confidence, side="lower").low)

    def told(self, error: float) -> int:
        """Units that are guessed better than by chance, by Holm's procedure at this error."""
        p = np.sort(binom.sf(self.right - 1, self.runs, 0.5))
        kept = p > error / np.arange(len(p), 0, -1)
        return int(np.argmax(kept)) if kept.any() else len(p)

    @property
    def test(self) -> LeakTest:
        """The test of whether some unit is guessed better than by chance."""
        worst, uncorrected = (float(self.lower(error).max()) for error in (level_of(self.tests), ALONE))
        return LeakTest(worst > 0.5, uncorrected > 0.5, f"told in at least {uncorrected:.3g} of the runs")

    def control(self, release: str, *, end_to_end: bool = False) -> ControlResult:
        """As a control."""
        worst = float(self.lower(level_of(self.tests)).max())
        shown = f"the most exposed of {len(self.right)} {self.unit}s is told in at least {worst:.3g} of the runs"
        return ControlResult(
            release,
            self.test.rejects,
            shown,
            worst,
            self.runs,
            "rate of right guesses",
            end_to_end,
            self.mean - 0.5,
            alone=self.test.uncorrected,
        )


Guessing = Callable[[AttackedContext, Run, Swaps, int, str, Callable[[int, int], None]], Guesses]
"""Runs the method with units swapped by coins and guesses these; see `guesses_of`."""


def guesses_of(
    context: AttackedContext, run: Run, swaps: Swaps, runs: int, what: str, advance: Callable[[int, int], None]
) -> Guesses:
    """Run the method with units swapped by coins, ask the attack, and guess the coins of the second half.

    Args:
        context: The attack.
        run: The method.
        swaps: The swapped units and their strangers.
        runs: Of the method.
        what: Names the streams.
        advance: Called after each run.

    Raises:
        NotRunError: The method cannot be run on such records, or the attack scores none of them.
    """
    seeds = control_seeds(context, "membership", "worst record", what)
    count = len(swaps.inside)
    included = seeds.numpy("coins").random((runs, count)) < 0.5
    questions, sides = swaps.questions()
    game = _game(context, run, swaps, questions, seeds.child("shadows"))
    gains: dict[str, Matrix] = {}
    for number in range(runs):
        advance(number, runs)
        try:
            seen = visible(run(swaps.held(included[number]), seeds.child("run", number)), context.view.threat)
        except FedassayError as error:
            owners = ", ".join(dict.fromkeys(swaps.owners))
            raise NotRunError(f"the method cannot be run with records of {owners} swapped: {error}") from None
        for key, scores in context.attack(seen, game).scores.items():
            kept = gains.setdefault(key, np.zeros((runs, count)))
            means = mean_by(np.asarray(scores, np.float64), sides).reshape(count, 2)
            kept[number] = np.nan_to_num(means[:, 0] - means[:, 1], nan=0.0)
    if not gains:
        raise NotRunError("the attack scores nothing of these releases")
    first = runs // 2
    parted = {key: _parted(values[:first], included[:first]) for key, values in gains.items()}
    test = max(parted, key=lambda key: parted[key][1])
    cuts = parted[test][0]
    spread = gains[test][:first].std(axis=0)
    margins = (gains[test][first:] - cuts) / np.where(spread > 0, spread, 1.0)
    return Guesses(margins > 0, included[first:], test, margins)


def _parted(gains: Matrix, included: Bools) -> tuple[Matrix, float]:
    """Thresholds of each unit's differences, (K,), and the share of these runs that they guess rightly."""
    inside, outside = (
        np.where(part.any(axis=0), (gains * part).sum(axis=0) / np.maximum(part.sum(axis=0), 1), 0.0)
        for part in (included, ~included)
    )
    cuts = (inside + outside) / 2
    return cuts, float(((gains > cuts) == included).mean())


def _game(
    context: AttackedContext, run: Run, swaps: Swaps, questions: Mapping[str, Records], seeds: Seeds
) -> MembershipGame:
    """The questions about both sides of every unit."""

    def simulate(records: Sequence[Records], streams: Seeds) -> View:
        return visible(run(records, streams), context.view.threat)

    held = swaps.held(np.ones(len(swaps.inside), np.bool_))
    sizes = {each.name: np.bincount(each.labels, minlength=context.data.classes) for each in held}
    return MembershipGame(questions, sizes, swaps.population, simulate, seeds, most=_SHADOWS)


def audited_swaps(context: AttackedContext, most: int) -> Swaps:
    """Records of the smallest client that has two, and strangers of the test role; persons, where these are known.

    Raises:
        NotRunError: No client has two, or no record of the test role can stand in for one of them.
    """
    known = by_person(context)
    one = "person" if known else "record"
    units = {each.name: units_of(each.labels, each.groups if known else None) for each in context.data.clients}
    held = [client for client in context.data.clients if len(units[client.name].labels) >= 2]
    if not held:
        raise NotRunError(f"no client has two {one}s")
    owner = min(held, key=len)
    rng = context.seeds.numpy("membership", "worst record", "chosen")
    unseen = context.data.test.without(*context.data.clients)
    if known:
        # A person with one record at a client is a member, even if no client holds the other records.
        there = np.concatenate([_groups(client) for client in context.data.clients])
        unseen = unseen.take(np.flatnonzero(~np.isin(_groups(unseen), there)))
    others = units_of(unseen.labels, unseen.groups if known else None)
    own = units[owner.name]
    inside, outside = _paired(*_kinds(own, owner, others, unseen, context.privacy.adjacency), most, rng)
    if not len(inside):
        raise NotRunError(f"no test {one} can stand in for one of {owner.name}'s: none has their labels")
    rest = owner.take(np.setdiff1d(np.arange(len(owner)), own.rows(inside)), owner.name)
    return Swaps(
        tuple(rest if client.name == owner.name else client for client in context.data.clients),
        (owner.name,) * len(inside),
        tuple(owner.take(own.rows(np.array([unit]))) for unit in inside),
        tuple(unseen.take(others.rows(np.array([unit]))) for unit in outside),
        context.game.population,
    )


def by_person(context: AttackedContext) -> bool:
    """Whether the persons of the clients' and the test records are known, and some person has several records."""
    if any(each.groups is None for each in (*context.data.clients, context.data.test)):
        return False
    return most_records([each.groups for each in (*context.data.clients, context.data.test)]) > 1


def _groups(records: Records) -> Ints:
    assert records.groups is not None
    return records.groups


def _kinds(own: Units, owner: Records, others: Units, unseen: Records, adjacency: Adjacency) -> tuple[Ints, Ints]:
    """A number for each unit of an owner and each non-member; units that can stand in for each other share theirs.

    Their label; of persons under `replace_one_same_label`, the labels of all of their records.
    """
    if adjacency != "replace_one_same_label" or len(own.of) == len(own.labels):
        return own.labels, others.labels
    numbers: dict[tuple[int, ...], int] = {}
    found = []
    for units, records in ((own, owner), (others, unseen)):
        sets = [sorted(records.labels[units.of == unit].tolist()) for unit in range(len(units.labels))]
        found.append(np.array([numbers.setdefault(tuple(each), len(numbers)) for each in sets], np.int64))
    return found[0], found[1]


def _paired(own: Ints, others: Ints, most: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Numbers of units with these labels in random order, and of one stranger each of their label."""
    free = {int(label): list(rng.permutation(np.flatnonzero(others == label))) for label in np.unique(own)}
    pairs: list[tuple[int, int]] = []
    for unit in rng.permutation(len(own)):
        if len(pairs) < most and free[int(own[unit])]:
            pairs.append((int(unit), free[int(own[unit])].pop()))
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def own_swaps(context: AttackedContext, unit: Unit = "record") -> Swaps:
    """One control record a label at one client, and other control records under the same labels; no other records.

    Each of these records is a unit, or two of one label are a person, or all of them are a client.

    Raises:
        NotRunError: There are too few control records.
    """
    labels = np.unique(np.concatenate([client.labels for client in context.data.clients]))
    each = 2 if unit == "person" else 1
    control, needed = context.data.control, max(2 * each * len(labels), _LEAST)
    if len(control) < needed:
        raise NotRunError(
            f"{unit}s that the method is known to give away need {needed} control records, and there are "
            f"{len(control)}: {needed - len(control)} more in data.split.control would decide",
            role="control",
            held=len(control),
            needed=needed,
        )
    rng = control_seeds(context, "membership", "worst record").numpy("records")
    order = rng.permutation(len(control))[: 2 * each * len(labels)].reshape(2, -1)
    dealt = np.repeat(labels, each)
    places = np.arange(len(dealt)) if unit == "record" else np.repeat(np.arange(len(labels)), each)
    sides = []
    for side, rows in enumerate(order):
        whole = control.take(rows).relabelled(dealt)
        if unit == "person":
            whole = replace(whole, groups=2 * places + side)
        units = [np.arange(len(dealt))] if unit == "client" else [np.flatnonzero(places == k) for k in set(places)]
        sides.append(tuple(whole.take(part) for part in units))
    nobody = tuple(client.take(np.zeros(0, np.int64)) for client in context.data.clients)
    people = context.game.population
    known = None if people is None else label_by_image(people, context.data.classes)
    return Swaps(nobody, (nobody[0].name,) * len(sides[0]), sides[0], sides[1], known)
