"""Records of one client that are swapped for strangers by coins, run after run, and guesses of these coins.

Coins are independent over runs, so that right guesses of a record that nothing tells are binomial with one half,
whatever the scores, the other records and the noise are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from fedassay.audits.evidence import Control
from fedassay.audits.membership.controls import label_by_image
from fedassay.audits.simulation import control_seeds
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.membership import MembershipGame, visible
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records, joined
from fedassay.exchange.view import View
from fedassay.support.errors import FedassayError, NotRunError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Bools, Ints

Matrix = NDArray[np.float64]
Run = Callable[[Sequence[Records], Seeds], Outcome]

_SHADOWS = 4
_LEAST = 8


@dataclass(frozen=True, eq=False)
class Swaps:
    """Records of one client, and strangers that stand in for them.

    Attributes:
        clients: Everybody's other records, in the order of the clients.
        owner: Name of the client whose records are swapped.
        inside: The K records.
        outside: As many strangers, label by label the same.
        population: The adversary's own records, or None.
    """

    clients: tuple[Records, ...]
    owner: str
    inside: Records
    outside: Records
    population: Records | None


@dataclass(frozen=True, eq=False)
class Guesses:
    """Guesses of coins, one for each tested run and record.

    Attributes:
        guessed: Shape (runs, K).
        coins: Whether the client's own record was in, shape (runs, K).
        test: The attack's source and test that was chosen.
    """

    guessed: Bools
    coins: Bools
    test: str

    @property
    def right(self) -> Ints:
        """Right guesses of each record, (K,)."""
        return np.asarray((self.guessed == self.coins).sum(axis=0), np.int64)

    @property
    def runs(self) -> int:
        """Tested runs."""
        return len(self.coins)

    def lower(self, error: float) -> Matrix:
        """Lower bounds on the rates of all records, which hold at once but for this error, (K,)."""
        confidence = 1 - error / len(self.right)
        return np.asarray(clopper_pearson(self.right, self.runs, confidence=confidence, side="lower").low)

    def told(self, error: float) -> int:
        """Records that are told better than by chance, by Holm's procedure at this error."""
        p = np.sort(binom.sf(self.right - 1, self.runs, 0.5))
        kept = p > error / np.arange(len(p), 0, -1)
        return int(np.argmax(kept)) if kept.any() else len(p)

    def control(self, release: str, error: float, allowed: float, *, own_shape: bool) -> Control:
        """As a control: whether some record is told better than is allowed."""
        worst = float(self.lower(error).max())
        shown = f"the most exposed of {len(self.right)} records is told in at least {worst:.3g} of the runs"
        return Control(release, worst > allowed, shown, worst, self.runs, "rate of right guesses", own_shape)


def guesses_of(
    context: AttackedContext, run: Run, swaps: Swaps, runs: int, what: str, advance: Callable[[int, int], None]
) -> Guesses:
    """Run the method with records swapped by coins, ask the attack, and guess the coins of the second half.

    Args:
        context: The attack.
        run: The method.
        swaps: Who is swapped for whom.
        runs: Of the method.
        what: Names the streams.
        advance: Told of each run.

    Raises:
        NotRunError: The method cannot be run on such records, or the attack scores none of them.
    """
    seeds = control_seeds(context, "membership", "worst record", what)
    count = len(swaps.inside)
    coins = seeds.numpy("coins").random((runs, count)) < 0.5
    game = _game(context, run, swaps, seeds.child("shadows"))
    gains: dict[str, Matrix] = {}
    for number in range(runs):
        advance(number, runs)
        try:
            seen = visible(run(_swapped(swaps, coins[number]), seeds.child("run", number)), context.view.threat)
        except FedassayError as error:
            raise NotRunError(f"the method cannot be run with records of {swaps.owner} swapped: {error}") from None
        for key, scores in context.attack(seen, game).scores.items():
            kept = gains.setdefault(key, np.zeros((runs, count)))
            kept[number] = np.nan_to_num(scores[:count] - scores[count:], nan=0.0)
    if not gains:
        raise NotRunError("the attack scores nothing of these releases")
    first = runs // 2
    parted = {key: _parted(values[:first], coins[:first]) for key, values in gains.items()}
    test = max(parted, key=lambda key: parted[key][1])
    return Guesses(gains[test][first:] > parted[test][0], coins[first:], test)


def _parted(gains: Matrix, coins: Bools) -> tuple[Matrix, float]:
    """Where to part each record's differences, (K,), and the share of these runs that it guesses rightly."""
    inside, outside = (
        np.where(part.any(axis=0), (gains * part).sum(axis=0) / np.maximum(part.sum(axis=0), 1), 0.0)
        for part in (coins, ~coins)
    )
    cuts = (inside + outside) / 2
    return cuts, float(((gains > cuts) == coins).mean())


def _swapped(swaps: Swaps, coins: Bools) -> list[Records]:
    own = [swaps.inside.take(np.flatnonzero(coins)), swaps.outside.take(np.flatnonzero(~coins))]
    return [joined(each.name, [each, *own]) if each.name == swaps.owner else each for each in swaps.clients]


def _game(context: AttackedContext, run: Run, swaps: Swaps, seeds: Seeds) -> MembershipGame:
    """The questions about records and strangers, the records first."""

    def simulate(records: Sequence[Records], streams: Seeds) -> View:
        return visible(run(records, streams), context.view.threat)

    held = _swapped(swaps, np.ones(len(swaps.inside), np.bool_))
    sizes = {each.name: np.bincount(each.labels, minlength=context.classes) for each in held}
    questions: Mapping[str, Records] = {swaps.owner: joined(swaps.owner, [swaps.inside, swaps.outside])}
    return MembershipGame(questions, sizes, swaps.population, simulate, seeds, most=_SHADOWS)


def audited_swaps(context: AttackedContext, records: int) -> Swaps:
    """Records of the smallest client that has two, and strangers of the test role."""
    held = [client for client in context.clients if len(client) >= 2]
    if not held:
        raise NotRunError("no client has two records")
    owner = min(held, key=len)
    rng = context.seeds.numpy("membership", "worst record", "chosen")
    inside, outside = _paired(owner, context.test.without(*context.clients), records, rng)
    if not len(inside):
        raise NotRunError(f"no test record can stand in for one of {owner.name}'s: none has their labels")
    rest = owner.take(np.setdiff1d(np.arange(len(owner)), inside), owner.name)
    clients = tuple(rest if client.name == owner.name else client for client in context.clients)
    strangers = context.test.without(*context.clients).take(outside)
    return Swaps(clients, owner.name, owner.take(inside), strangers, context.game.population)


def _paired(owner: Records, strangers: Records, most: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Places of an owner's records in random order, and of one stranger each of their label."""
    free = {
        int(label): list(rng.permutation(np.flatnonzero(strangers.labels == label)))
        for label in np.unique(owner.labels)
    }
    pairs: list[tuple[int, int]] = []
    for place in rng.permutation(len(owner)):
        if len(pairs) < most and free[int(owner.labels[place])]:
            pairs.append((int(place), free[int(owner.labels[place])].pop()))
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def own_swaps(context: AttackedContext) -> Swaps:
    """One control record a label at one client, and other control records under the same labels; nobody else."""
    labels = np.unique(np.concatenate([client.labels for client in context.clients]))
    control = context.control
    if len(control) < max(2 * len(labels), _LEAST):
        raise NotRunError(
            f"records that the method is known to give away need {2 * len(labels)} control records, and there are "
            f"{len(control)}: {2 * len(labels) - len(control)} more in data.split.control would decide"
        )
    rng = control_seeds(context, "membership", "worst record").numpy("records")
    order = rng.permutation(len(control))[: 2 * len(labels)].reshape(2, -1)
    inside, outside = (control.take(rows).relabelled(labels) for rows in order)
    nobody = tuple(client.take(np.zeros(0, np.int64)) for client in context.clients)
    people = context.game.population
    known = None if people is None else label_by_image(people, context.classes)
    return Swaps(nobody, nobody[0].name, inside, outside, known)
