"""Coverage and level where several records are of one person and alike: by records, and by persons."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.audits.stats.below_baseline import auc_below_half
from fedassay.audits.stats.betting import betting_interval
from fedassay.audits.stats.intervals import clopper_pearson, wilson
from fedassay.audits.stats.paired import sign_flip
from fedassay.audits.stats.persons import mean_by, share_interval, share_of_persons
from fedassay.audits.stats.roc import auc

RUNS = 400
PERSONS, RECORDS = 12, 8
OF = np.repeat(np.arange(PERSONS), RECORDS)


def _alike(rng: np.random.Generator, share: float = 0.7) -> NDArray[np.float64]:
    """Records whose variance is `share` the person's own: a correlation of `share` within a person."""
    person = np.sqrt(share) * rng.standard_normal(PERSONS)
    return np.asarray(person[OF] + np.sqrt(1 - share) * rng.standard_normal(len(OF)))


@pytest.mark.long
def test_an_area_covers_by_persons_and_not_by_records() -> None:
    rng = np.random.default_rng(0)
    covered = {"records": 0, "persons": 0, "one of each": 0}
    for _ in range(RUNS):
        outside, inside = _alike(rng), _alike(rng)
        one = np.arange(PERSONS) * RECORDS + rng.integers(0, RECORDS, PERSONS)
        sides = {
            "records": (outside, inside),
            "persons": (mean_by(outside, OF), mean_by(inside, OF)),
            "one of each": (outside[one], inside[one]),
        }
        for name, side in sides.items():
            area = auc(*side)
            assert area.low is not None
            assert area.high is not None
            covered[name] += area.low <= 0.5 <= area.high
    shares = {name: count / RUNS for name, count in covered.items()}
    # 95 % less three standard errors of 400 runs, and what is far from it.
    assert shares["persons"] >= 0.92
    assert shares["one of each"] >= 0.92
    assert shares["records"] <= 0.7


@pytest.mark.long
def test_a_rank_test_holds_its_level_by_persons_and_not_by_records() -> None:
    rng = np.random.default_rng(1)
    sides = [(_alike(rng), _alike(rng)) for _ in range(RUNS)]
    by_records = np.mean([auc_below_half(inside, outside) <= 0.05 for outside, inside in sides])
    by_persons = np.mean(
        [auc_below_half(mean_by(inside, OF), mean_by(outside, OF)) <= 0.05 for outside, inside in sides]
    )
    assert by_persons <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / RUNS)
    assert by_records >= 0.2


def test_exchanges_hold_their_level_by_persons_and_not_by_records() -> None:
    rng = np.random.default_rng(2)
    runs, few = 150, 10 * RECORDS
    found = np.array(
        [
            [sign_flip(gains, rng, draws=200).p <= 0.05 for gains in (whole, mean_by(whole, OF[:few]))]
            for whole in (_alike(rng)[:few] for _ in range(runs))
        ]
    ).mean(axis=0)
    assert found[1] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert found[0] >= 0.15


@pytest.mark.parametrize("truth", [0.6, 0.9])
def test_a_share_covers_by_persons_and_not_by_records(truth: float) -> None:
    rng = np.random.default_rng(3)
    covered = np.zeros(2)
    people = np.repeat(np.arange(25), 10)
    for _ in range(RUNS):
        own = rng.beta(truth, 1 - truth, 25)
        hits = rng.random(len(people)) < own[people]
        ends = wilson(int(hits.sum()), len(hits)), share_interval(hits, people)
        covered += [low <= truth <= high for low, high in ends]
    assert covered[1] / RUNS >= 0.92
    assert covered[0] / RUNS <= 0.75


def test_a_share_of_one_record_each_is_exact() -> None:
    hits = np.arange(40) < 31
    assert share_interval(hits, np.arange(40)) == pytest.approx(np.array(clopper_pearson(31, 40)))


SIZES = {
    "evenly spread": lambda units, rng: rng.integers(1, 151, units),
    "mostly small": lambda units, rng: np.exp(rng.uniform(0, np.log(150.99), units)).astype(np.int64),
    "few large": lambda units, rng: np.where(rng.random(units) < 0.1, 150, rng.integers(1, 6, units)),
}
RATES = {
    "all or nothing": (0.5, lambda units, rng: (rng.random(units) < 0.5).astype(np.float64)),
    "all or nothing, mostly all": (0.9, lambda units, rng: (rng.random(units) < 0.9).astype(np.float64)),
    "beta": (0.3, lambda units, rng: rng.beta(1.2, 2.8, units)),
    "rare": (0.02, lambda units, rng: rng.beta(0.05, 2.45, units)),
}


@pytest.mark.long
@pytest.mark.parametrize("units", [5, 10, 20, 50])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("rates", RATES)
def test_a_share_covers_for_persons_of_unlike_sizes(units: int, sizes: str, rates: str) -> None:
    rng = np.random.default_rng(7)
    truth, draw = RATES[rates]
    covered, width, plain, runs = 0, 0.0, 0.0, 60
    for _ in range(runs):
        records = SIZES[sizes](units, rng)
        people = np.repeat(np.arange(units), records)
        hits = rng.random(len(people)) < draw(units, rng)[people]
        low, high = share_interval(hits, people)
        assert 0 <= low <= share_of_persons(hits, people) <= high <= 1
        below, above = betting_interval(mean_by(hits.astype(np.float64), people), 0.0, 1.0)
        covered += low <= truth <= high
        width, plain = width + high - low, plain + above - below
    # Nominal coverage less .02 and two standard errors of so few runs.
    assert covered / runs >= 0.93 - 2 * np.sqrt(0.95 * 0.05 / runs)
    assert width <= 1.3 * plain


def test_what_is_covered_is_persons_where_large_ones_differ() -> None:
    """Half of the persons have 150 records that are all hits, the others one that is not: half, not .993."""
    people = np.repeat(np.arange(40), np.where(np.arange(40) % 2 == 0, 150, 1))
    hits = people % 2 == 0
    low, high = share_interval(hits, people)
    assert share_of_persons(hits, people) == 0.5
    assert low < 0.5 < high < 0.8


@pytest.mark.parametrize("sizes", [(1,), (150,), (150, 1), (1, 1, 150), (149, 2, 1, 1)])
def test_no_sizes_are_refused(sizes: tuple[int, ...]) -> None:
    people = np.repeat(np.arange(len(sizes)), sizes)
    for first in range(len(people) + 1):
        low, high = share_interval(np.arange(len(people)) < first, people)
        assert 0 <= low <= high <= 1


def test_means_by_person() -> None:
    values = np.array([1.0, np.nan, 3.0, np.nan, 5.0])
    means = mean_by(values, np.array([7, 7, 2, 5, 2]))
    assert means[[0, 2]].tolist() == [4.0, 1.0]
    assert np.isnan(means[1])
