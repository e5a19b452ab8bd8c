"""False alarms of the audit of attributes, and the coverage of its interval, on people of known law."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import pytest
from people import CLASSES, context_of
from scipy.stats import binom

from fedassay.audits.attribute_inference.completions import Sensitive
from fedassay.audits.attribute_inference.judging import Guessed
from fedassay.audits.attribute_inference.trials import ReleaseGuesses, asked, drawn
from fedassay.contracts.audit import AttackedContext
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.support.seeds import Seeds

Null = Literal["nothing depends on it", "of other people", "it teaches of people"]
NULLS = get_args(Null)
Make = Callable[..., AttackedContext]


@pytest.fixture
def make(make_task: Any, make_context: Any) -> Make:
    def made(kind: Any, **given: Any) -> AttackedContext:
        return context_of(make_task, make_context, FedNCM(), kind, **given)

    return made


def _asked(context: AttackedContext, *, others: bool, most: int = 240) -> ReleaseGuesses:
    """Guesses about a release's clients, or about strangers as if they were these clients."""
    name = next(iter(context.data.attacker.attributes))
    known = Sensitive.of(name, context.data.attacker, CLASSES)
    owners, unseen = context.data.clients, context.data.test
    if others:
        order = np.random.default_rng(0).permutation(len(unseen))
        size = len(owners[0])
        owners = tuple(
            unseen.take(order[i * size : (i + 1) * size], own.name) for i, own in enumerate(context.data.clients)
        )
        unseen = unseen.take(order[len(owners) * size :])
    trials = drawn(owners, unseen, context.seeds.numpy("trials"), most)
    return asked(context.view, owners, trials, known, context, context.seeds)


def _false_alarms(make: Make, null: Null, runs: int) -> int:
    """Runs that are flagged. Of the last null one of both hypotheses holds alone: 5 % of these are flagged.

    Nine of ten people have the attribute, and half of those whom the adversary knows: the message tells of all
    people, clients or not, what the adversary does not know.
    """
    kind, others = ("none", False) if null == "nothing depends on it" else ("shift", True)
    given = {"shift": 8.0, "share": 0.9, "each": 15} if null == "it teaches of people" else {"each": 6}
    found = (_asked(make(kind, seed=seed, clients=12, **given), others=others) for seed in range(runs))
    return sum(each.audited.test.rejects for each in found)


def _kept(alarms: int, runs: int) -> bool:
    """Whether so many alarms are no more than a level of 5 % gives, but once in a thousand times."""
    return bool(binom.sf(alarms - 1, runs, 0.05) > 1e-3)


@pytest.mark.long
@pytest.mark.parametrize("null", NULLS)
def test_false_alarms_of_some_runs(make: Make, null: Null) -> None:
    assert _kept(_false_alarms(make, null, 30), 30)


@pytest.mark.slow
@pytest.mark.parametrize("null", NULLS)
def test_false_alarms_of_two_hundred_runs(make: Make, null: Null) -> None:
    alarms = _false_alarms(make, null, 200)
    print(f"{null}: {alarms} of 200 runs are flagged at 5 %")
    assert _kept(alarms, 200)


def _gains(rng: np.random.Generator, size: int, told: float, imputed: float, non_members: float) -> Guessed:
    sides = [(rng.random(size) < share).astype(float) for share in (told, imputed, non_members)]
    return Guessed(sides[0], sides[1], sides[2], 1, Seeds(0))


@pytest.mark.long
@pytest.mark.parametrize(
    ("told", "imputed", "non_members"), [(0.7, 0.5, 0.5), (0.5, 0.5, 0.5), (0.98, 0.9, 0.6), (0.6, 0.9, 0.55)]
)
@pytest.mark.parametrize(
    ("size", "runs"), [(12, 200), (100, 200), (400, 60), pytest.param(400, 200, marks=pytest.mark.slow)]
)
def test_the_interval_covers_the_advantage(
    told: float, imputed: float, non_members: float, size: int, runs: int
) -> None:
    rng, true = np.random.default_rng(size), told - max(imputed, non_members)
    inside = 0
    for _ in range(runs):
        found = _gains(rng, size, told, imputed, non_members).metrics(np.zeros(size))["attribute_advantage"]
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= true <= found.high
    assert binom.cdf(inside, runs, 0.95) > 1e-3, inside


def test_the_interval_covers_the_advantage_of_one_release(make: Make) -> None:
    """Of one release, whose clients' records are all known: each draw asks about some of them."""
    context = make("shift", clients=60, each=15, shift=6.0)
    name, inside, runs = "sick", 0, 60
    known = Sensitive.of(name, context.data.attacker, CLASSES)
    trials = drawn(context.data.clients, context.data.test, np.random.default_rng(0), 10_000)
    whole = asked(context.view, context.data.clients, trials, known, context, context.seeds).audited
    size = len(whole)
    rng = np.random.default_rng(1)
    for _ in range(runs):
        rows, others = rng.choice(size, 100, replace=False), rng.choice(size, 100, replace=False)
        some = Guessed(whole.ours[rows], whole.imputed[rows], whole.non_members[others], 1, Seeds(0))
        found = some.metrics(np.zeros(100))["attribute_advantage"]
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= whole.advantage <= found.high
    assert binom.cdf(inside, runs, 0.95) > 1e-3, inside
