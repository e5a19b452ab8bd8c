"""A person or a client moves a statistic no further than a record may, and as far where its records are alike."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from fedassay.privacy import mechanisms as m
from fedassay.privacy import reruns
from fedassay.privacy import sensitivities as s
from fedassay.privacy.symmetric import vech
from fedassay.privacy.units import contribution_weights, members, most_records, require_persons
from fedassay.support.errors import DataError
from fedassay.support.seeds import Seeds

SAME, ANY, ADD = "replace_one_same_label", "replace_one", "add_remove"
MOST = 3
"""Records of the unit that is searched for."""


def joint(fields):
    parts = [vech(each).ravel() if each.ndim >= 2 and each.shape[-1] == each.shape[-2] == 2 else each.ravel()
             for each in fields]  # fmt: skip
    return np.concatenate(parts)


def class_sums(x, y, w):
    counts, sums, second = m.class_sums(m.clip_features(x), y, 2, weights=w)
    return np.concatenate([counts, sums.ravel(), vech(second).ravel()])


def shared_sums(x, y, w):
    counts, sums, second = m.shared_sums(m.clip_features(x), y, 2, w)
    return np.concatenate([counts, sums.ravel(), vech(second)])


def ridge_sums(x, y, w):
    sums, second = m.ridge_sums(m.clip_features(x), y, 2, w)
    return np.concatenate([sums.ravel(), vech(second)])


def ridge_beside_constant(x, y, w):
    beside = m.clip_beside_constant(np.concatenate([x, np.ones((len(x), 1))], axis=1))
    sums, second = m.ridge_sums(beside, y, 2, w)
    return np.concatenate([sums.ravel(), vech(second)])


def count_sums(x, y, w):
    counts, sums, _ = m.shared_sums(m.clip_features(x), y, 2, w)
    return np.concatenate([counts, sums.ravel()])


def fedlog(x, y, w):
    return m.fedlog_sums(np.clip(x, -2.0, 2.0), y, 2, w).ravel()


def histogram(x, y, w):
    return m.release_class_counts(y, 2, sigma=0.0, noise=reruns.FreeNoise(np.random.default_rng(0)), weights=w)


def magnitudes(x, y, w):
    noise = reruns.FreeNoise(np.random.default_rng(0))
    return m.release_magnitude_sum((x[:1], x[1:]), clip=5.0, sigma=0.0, noise=noise, weights=w)


STATISTICS = {
    "class sums": (class_sums, lambda a: s.class_sums(2, adjacency=a)),
    "shared sums": (shared_sums, lambda a: s.shared_sums(2, adjacency=a)),
    "ridge sums": (ridge_sums, lambda a: s.ridge_sums(2, adjacency=a)),
    "ridge sums beside a constant": (ridge_beside_constant, lambda a: s.ridge_sums(3, adjacency=a, constant=True)),
    "count sums": (count_sums, lambda a: s.count_sums(2, adjacency=a)),
    "fedlog": (fedlog, lambda a: s.fedlog_sums(3, 2.0, adjacency=a)),
    "histogram": (histogram, lambda a: s.class_counts(adjacency=a)),
    "magnitudes": (magnitudes, lambda a: s.magnitude_sum(2, 5.0, adjacency=a)),
}


def contribution(statistic, x, y, groups, largest):
    return statistic(x, y, contribution_weights(groups, largest, Seeds(0)))


def labels_tried(adjacency):
    first = np.array([0, 0, 1])
    return {SAME: [(first, first)], ANY: [(first, 1 - first), (first * 0, first * 0 + 1)], ADD: [(first, None)]}[
        adjacency
    ]


@pytest.mark.long
@pytest.mark.parametrize("adjacency", [SAME, ANY, ADD])
@pytest.mark.parametrize("name", STATISTICS)
def test_no_unit_moves_a_sum_further_than_one_record_may(name, adjacency):
    """An adversary chooses all records of a person and of the person in its place, and a bound of 2 or none."""
    statistic, worst = STATISTICS[name]
    allowed, rng = worst(adjacency).sensitivity, np.random.default_rng(7)
    best = 0.0
    for largest in (None, 2):
        for first, second in labels_tried(adjacency):

            def away(z, first=first, second=second, largest=largest):
                one, two = z.reshape(2, MOST, 2)
                here = contribution(statistic, one, first, np.zeros(MOST, int), largest)
                if second is None:
                    return -float(np.linalg.norm(here))
                there = contribution(statistic, two, second, np.zeros(MOST, int), largest)
                return -float(np.linalg.norm(here - there))

            for _ in range(3):
                start = rng.standard_normal(4 * MOST) * rng.choice([1.0, 4.0])
                best = max(best, -minimize(away, start, method="L-BFGS-B", options={"maxiter": 15}).fun)
    assert best <= allowed * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", [SAME, ANY, ADD])
@pytest.mark.parametrize("name", STATISTICS)
def test_a_unit_whose_records_are_alike_attains_it(name, adjacency):
    statistic, of = STATISTICS[name]
    worst = of(adjacency)
    pair = s.worst_pair(worst, 2)

    def moved(features, labels):
        x = np.repeat(features[:, :2] if features.shape[1] else np.zeros((len(features), 2)), MOST, axis=0)
        return contribution(statistic, x, np.repeat(labels, MOST), np.arange(len(x)) // MOST, None)

    reached = np.linalg.norm(moved(pair.features1, pair.labels1) - moved(pair.features0, pair.labels0))
    assert reached == pytest.approx(worst.sensitivity, rel=1e-9, abs=1e-12)


def test_statistics_that_are_clipped_one_by_one_move_further():
    """What must not be done: counts, sums and second moments of a unit each clipped to 1 reach the root of 8."""

    def clipped(x, y):
        fields = [each.ravel() for each in m.shared_sums(x, y, 3)]
        return np.concatenate([each / max(1.0, np.linalg.norm(each)) for each in fields])

    many = 400
    axis = np.eye(3)

    def person(sign, label, other):
        pairs = np.concatenate([np.tile(axis[other], (many, 1)), -np.tile(axis[other], (many, 1))])
        return np.concatenate([pairs, sign * axis[:1]]), np.append(np.full(2 * many, label), 2)

    one, two = person(1.0, 0, 1), person(-1.0, 1, 2)
    assert np.linalg.norm(clipped(*one) - clipped(*two)) == pytest.approx(math.sqrt(8), rel=1e-3)
    weights = np.full(2 * many + 1, 1 / (2 * many + 1))
    means = [np.concatenate([each.ravel() for each in m.shared_sums(*side, 3, weights)]) for side in (one, two)]
    assert np.linalg.norm(means[0] - means[1]) <= math.sqrt(6)


def test_the_draw_of_a_unit_does_not_hang_on_the_others():
    groups = np.array([4, 4, 4, 4, 9, 9, 9, 2])
    own = contribution_weights(groups, 2, Seeds(3))
    assert [own[places].sum() for places in members(groups)] == pytest.approx([1.0, 1.0, 1.0])
    assert sorted(np.count_nonzero(own[places]) for places in members(groups)) == [1, 2, 2]
    # Another person in the place of 9, and nobody in the place of 2.
    other = contribution_weights(np.array([4, 4, 4, 4, 7, 7, 7]), 2, Seeds(3))
    assert np.array_equal(own[:4], other[:4])
    assert np.array_equal(contribution_weights(np.arange(5), 1, Seeds(0)), np.ones(5))
    assert len(contribution_weights(np.zeros(0, int), None, Seeds(0))) == 0
    with pytest.raises(ValueError, match="at least 1"):
        contribution_weights(groups, 0, Seeds(0))


def test_how_many_records_a_person_has_and_where():
    assert most_records([None, np.array([1, 2, 2]), np.zeros(0, int)]) == 2
    assert most_records([None]) == 1
    require_persons(["a", "b"], [np.array([1, 1]), np.zeros(0, int)])
    with pytest.raises(DataError, match="the person of each record is not known"):
        require_persons(["a", "b"], [np.array([1, 1]), None])
    with pytest.raises(DataError, match="person 1 has records at a and at b"):
        require_persons(["a", "b"], [np.array([1]), np.array([2, 1])])


@pytest.mark.parametrize("adjacency", [SAME, ANY, ADD])
@pytest.mark.parametrize("unit", ["person", "client"])
@pytest.mark.parametrize("kind", ["class_sums", "shared_sums", "ridge_sums", "count_sums"])
def test_reruns_of_units_show_what_is_accounted(kind, unit, adjacency):
    """Observed over accounted: the mean score difference of the best test is mu squared."""
    scales = {"class_sums": 3, "shared_sums": 3, "ridge_sums": 2, "count_sums": 2}[kind]
    experiment = getattr(reruns, kind)(adjacency=adjacency, sigmas=(2.0,) * scales, unit=unit)
    assert len(experiment.neighbours.labels1) == 3 * reruns.ALIKE
    zero, one = reruns.llr_scores(experiment, reruns=40_000, rng=np.random.default_rng(5))
    observed = math.sqrt(one.mean() - zero.mean())
    assert 0.97 * experiment.mu < observed < 1.03 * experiment.mu
