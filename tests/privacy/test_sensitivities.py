"""Every exact sensitivity: an adversary never exceeds it, nearly reaches it, and the stated pair attains it.

The adversary searches over whole data sets, through the very statistics that the mechanisms release.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedassay.privacy import mechanisms as m
from fedassay.privacy import sensitivities as s
from fedassay.privacy.symmetric import vech
from fedassay.support.errors import PlanError


@dataclass(frozen=True)
class Case:
    worst: s.WorstCase
    statistic: Callable[[np.ndarray, np.ndarray], np.ndarray]  # the weighted vector that is released
    feasible: Callable[[np.ndarray], np.ndarray]  # maps any (n, d) array onto legal features
    n: int
    dim: int
    adjacency: str
    classes: int


def flat(second, family, weight):
    return weight * (vech(second) if family == "full" else np.atleast_1d(second)).ravel()


def moments_case(n, dim, family, nonnegative, weights=(1.0, 1.0)):
    def statistic(x, _):
        mean, second = m.moments(x, family)
        return np.concatenate([weights[0] * mean, flat(second, family, weights[1])])

    worst = s.mean_second_moment(
        n, dim, adjacency="replace_one_same_label", family=family, nonnegative=nonnegative, weights=weights
    )
    return Case(
        worst,
        statistic,
        lambda x: m.clip_features(x, nonnegative=nonnegative),
        n,
        dim,
        "replace_one_same_label",
        1,
    )


def covariance_case(n, dim, family="full", isometric=True, weights=(1.0, 1.0)):
    def statistic(x, _):
        mean, second = m.centred_moments(x, family)
        entries = flat(second, family, 1) if isometric or family != "full" else second[np.triu_indices(dim)]
        return np.concatenate([weights[0] * mean, weights[1] * entries])

    worst = s.mean_covariance(n, dim, adjacency="replace_one_same_label", weights=weights)
    return Case(worst, statistic, m.clip_features, n, dim, "replace_one_same_label", 1)


def sums_case(kind, dim, adjacency, family="full", nonnegative=False, weights=(1.0, 1.0, 1.0)):
    def statistic(x, y):
        if kind == "class":
            counts, sums, second = m.class_sums(x, y, 2, family)
        else:
            counts, sums, second = m.shared_sums(x, y, 2)
        blocks = vech(second).ravel() if family == "full" else second.ravel()
        return np.concatenate([weights[0] * counts, weights[1] * sums.ravel(), weights[2] * blocks])

    if kind == "class":
        worst = s.class_sums(dim, adjacency=adjacency, family=family, nonnegative=nonnegative, weights=weights)
    else:
        worst = s.shared_sums(dim, adjacency=adjacency, nonnegative=nonnegative, weights=weights)
    return Case(worst, statistic, lambda x: m.clip_features(x, nonnegative=nonnegative), 2, dim, adjacency, 2)


def ridge_case(dim, adjacency, constant=False, nonnegative=False, weights=(1.0, 1.0)):
    def statistic(x, y):
        sums, second = m.ridge_sums(x, y, 2)
        return np.concatenate([weights[0] * sums.ravel(), weights[1] * vech(second).ravel()])

    worst = s.ridge_sums(dim, adjacency=adjacency, constant=constant, nonnegative=nonnegative, weights=weights)
    clip = m.clip_beside_constant if constant else m.clip_features
    return Case(worst, statistic, lambda x: clip(x, nonnegative=nonnegative), 2, dim, adjacency, 2)


def count_case(dim, adjacency, nonnegative=False, weights=(1.0, 1.0)):
    def statistic(x, y):
        counts, sums, _ = m.shared_sums(x, y, 2)
        return np.concatenate([weights[0] * counts, weights[1] * sums.ravel()])

    worst = s.count_sums(dim, adjacency=adjacency, nonnegative=nonnegative, weights=weights)
    return Case(worst, statistic, lambda x: m.clip_features(x, nonnegative=nonnegative), 2, dim, adjacency, 2)


def fedlog_case(features, clip, adjacency):
    def statistic(x, y):
        return m.fedlog_sums(x, y, 2).ravel()

    worst = s.fedlog_sums(features, clip, adjacency=adjacency)
    return Case(worst, statistic, lambda x: np.clip(x, -clip, clip), 2, features - 1, adjacency, 2)


def magnitude_case(dim, clip, adjacency):
    def statistic(x, _):
        return x.sum(axis=0)

    worst = s.magnitude_sum(dim, clip, adjacency=adjacency)
    return Case(
        worst, statistic, lambda x: clip * m.clip_features(x / clip, nonnegative=True), 2, dim, adjacency, 1
    )


def vector_case(dim, clip, adjacency):
    def statistic(x, _):
        return x.sum(axis=0)

    worst = s.vector_sum(dim, clip, adjacency=adjacency)
    return Case(worst, statistic, lambda x: clip * m.clip_features(x / clip), 2, dim, adjacency, 1)


SAME, ANY, ADD = "replace_one_same_label", "replace_one", "add_remove"
CASES = {
    **{
        f"moments-{family}-d{dim}-{'orthant' if nn else 'ball'}": moments_case(3, dim, family, nn)
        for family in ("full", "diag", "spherical")
        for dim in (1, 2, 3)
        for nn in (False, True)
    },
    **{
        f"moments-weighted-{family}-d{dim}-{w}-{nn}": moments_case(2, dim, family, nn, w)
        for family, dim, nn in (
            ("full", 2, False),
            ("spherical", 2, False),
            ("full", 1, False),
            ("spherical", 2, True),
        )
        for w in ((2.0, 1.0), (0.5, 1.0), (0.7, 1.0), (0.0, 1.0), (1.0, 0.0))
    },
    **{f"covariance-n{n}-d{dim}": covariance_case(n, dim) for n in (1, 2, 4) for dim in (1, 2, 3)},
    "covariance-mirrored": covariance_case(3, 2, isometric=False),
    "covariance-diag": covariance_case(3, 2, "diag"),
    "covariance-spherical": covariance_case(3, 2, "spherical"),
    "covariance-weighted": covariance_case(3, 2, weights=(3.0, 0.5)),
    **{
        f"class-sums-{family}-d{dim}-{adjacency}": sums_case("class", dim, adjacency, family)
        for adjacency in (SAME, ANY, ADD)
        for family, dim in (("full", 1), ("full", 2), ("diag", 2), ("spherical", 2))
    },
    **{
        f"shared-sums-d{dim}-{adjacency}-{nn}": sums_case("shared", dim, adjacency, nonnegative=nn)
        for adjacency in (SAME, ANY, ADD)
        for dim in (1, 2)
        for nn in (False, True)
    },
    **{
        f"ridge-sums-d{dim}-{adjacency}-{constant}-{nn}": ridge_case(dim, adjacency, constant, nn)
        for adjacency in (SAME, ANY, ADD)
        for dim, constant in ((1, False), (2, False), (2, True), (3, True))
        for nn in (False, True)
    },
    **{
        f"ridge-sums-weighted-d{dim}-{adjacency}-{nn}-{w}": ridge_case(dim, adjacency, True, nn, w)
        for dim, adjacency, nn in ((3, ANY, True), (2, ANY, True), (2, SAME, True), (3, SAME, False))
        for w in ((3.0, 0.5), (0.3, 1.0))
    },
    **{
        f"count-sums-d{dim}-{a}-{nn}": count_case(dim, a, nn)
        for a in (SAME, ANY, ADD)
        for dim in (1, 2)
        for nn in (0, 1)
    },
    "count-sums-weighted": count_case(2, ANY, weights=(2.0, 0.5)),
    "class-sums-weighted-same-label-wins": sums_case("class", 2, ANY, weights=(0.01, 1.0, 1.0)),
    "shared-sums-weighted": sums_case("shared", 2, ANY, weights=(0.3, 2.0, 0.7)),
    "shared-sums-weighted-d1": sums_case("shared", 1, ANY, weights=(0.3, 0.4, 2.0)),
    "shared-sums-weighted-add": sums_case("shared", 2, ADD, weights=(0.3, 2.0, 0.7)),
    **{
        f"fedlog-m{features}-b{b}-{adjacency}": fedlog_case(features, b, adjacency)
        for adjacency in (SAME, ANY, ADD)
        for features, b in ((3, 2.0), (3, 0.3), (2, 1.0))
    },
    **{f"vector-sum-d{dim}-{a}": vector_case(dim, 5.0, a) for a in (SAME, ANY, ADD) for dim in (1, 3)},
    **{f"magnitude-sum-d{dim}-{a}": magnitude_case(dim, 5.0, a) for a in (ANY, ADD) for dim in (1, 3)},
}


def distance(case, x, y, record, label):
    """Distance of the statistics of (x, y) and of its neighbour by the last record."""
    other_x, other_y = x.copy(), y.copy()
    if case.adjacency == ADD:
        other_x, other_y = other_x[:-1], other_y[:-1]
    else:
        other_x[-1], other_y[-1] = record, label
    return float(np.linalg.norm(case.statistic(x, y) - case.statistic(other_x, other_y)))


def adversary(case, rng, restarts, enough):
    """Largest distance found, over labels, by L-BFGS from random starts (a lower bound on the sensitivity).

    At least four starts for each choice of labels, and at most `restarts`, until `enough` is found.
    """
    best = 0.0
    pairs = ([(0, 1)] if case.adjacency == ANY and case.classes > 1 else []) + [(0, 0)]
    for label, moved in pairs:
        y = np.full(case.n, label)

        def objective(z, y=y, moved=moved):
            rows = case.feasible(z.reshape(case.n + 1, case.dim))
            return -distance(case, rows[:-1], y, rows[-1], moved)

        for attempt in range(restarts):
            if attempt >= 4 and best >= enough:
                break
            start = rng.standard_normal((case.n + 1) * case.dim) * rng.choice([0.5, 1, 3])
            best = max(best, -minimize(objective, start, method="L-BFGS-B", options={"maxiter": 30}).fun)
    return best


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_adversary_never_exceeds_and_nearly_reaches(name):
    case = CASES[name]
    rng = np.random.default_rng(list(name.encode()))
    found = adversary(case, rng, restarts=40, enough=0.999 * case.worst.sensitivity)
    assert found <= case.worst.sensitivity * (1 + 1e-9)
    assert found >= 0.99 * case.worst.sensitivity


@pytest.mark.parametrize("name", CASES)
def test_worst_pair_attains_the_sensitivity(name):
    case = CASES[name]
    pair = s.worst_pair(case.worst, case.n)
    np.testing.assert_allclose(case.feasible(pair.features1), pair.features1, atol=1e-15)
    np.testing.assert_allclose(case.feasible(pair.features0), pair.features0, atol=1e-15)
    assert len(pair.features0) == len(pair.features1) - (case.adjacency == ADD)
    if case.adjacency == SAME:
        assert np.array_equal(pair.labels0, pair.labels1)
    differing = len(pair.features0) - sum(
        bool(np.array_equal(a, b) and la == lb)
        for a, b, la, lb in zip(pair.features0, pair.features1, pair.labels0, pair.labels1, strict=False)
    )
    assert differing <= 1
    reached = np.linalg.norm(
        case.statistic(pair.features0, pair.labels0) - case.statistic(pair.features1, pair.labels1)
    )
    assert reached == pytest.approx(case.worst.sensitivity, rel=1e-12)


def test_published_and_known_values():
    n = 7

    def value(**arguments):
        return n * s.mean_second_moment(n, adjacency=SAME, **arguments).sensitivity

    assert value(dim=512) == pytest.approx(math.sqrt(4.5))
    assert value(dim=512, family="diag") == pytest.approx(math.sqrt(4.5))
    assert value(dim=512, family="spherical") == pytest.approx(2)
    assert value(dim=512, nonnegative=True) == pytest.approx(2)
    assert value(dim=1) == pytest.approx(2)
    worst = s.mean_second_moment(n, 2, adjacency=SAME)
    assert float(worst.record0 @ worst.record1) == pytest.approx(-0.5)
    assert s.class_sums(8, adjacency=ADD).sensitivity == pytest.approx(math.sqrt(3))
    assert s.shared_sums(8, adjacency=ADD).sensitivity == pytest.approx(math.sqrt(3))
    assert s.shared_sums(8, adjacency=SAME).sensitivity == pytest.approx(math.sqrt(4.5))
    assert s.shared_sums(8, adjacency=ANY).sensitivity == pytest.approx(math.sqrt(6))
    assert s.shared_sums(1, adjacency=ANY).sensitivity == pytest.approx(2)
    assert s.mean_covariance(n, 8, adjacency=SAME).sensitivity == pytest.approx(
        math.sqrt(4 + 16 * (n - 1) ** 2 / n**2) / n
    )
    assert s.fedlog_sums(50, 2.0, adjacency=ADD).sensitivity == pytest.approx(math.sqrt(1 + 49 * 4))
    assert s.fedlog_sums(50, 2.0, adjacency=SAME).sensitivity == pytest.approx(4 * 7)
    assert s.fedlog_sums(50, 0.1, adjacency=ANY).sensitivity == pytest.approx(math.sqrt(2 * (1 + 49 * 0.01)))
    assert s.class_counts(adjacency=ADD).sensitivity == 1
    assert s.class_counts(adjacency=ANY).sensitivity == pytest.approx(math.sqrt(2))
    assert s.class_counts(adjacency=SAME).sensitivity == 0
    # FMF on [0,1] images of 3x32x32: Parseval bounds the magnitude vector by 32 sqrt(3072) = 1773.6.
    assert s.magnitude_sum(1542, 32 * math.sqrt(3072), adjacency=ANY).sensitivity == pytest.approx(
        math.sqrt(2) * 1773.62, rel=1e-5
    )


def test_joint_entry_beats_separate_fields():
    mean_alone = s.mean_second_moment(1, 4, adjacency=SAME, weights=(1.0, 0.0)).sensitivity
    moment_alone = s.mean_second_moment(1, 4, adjacency=SAME, weights=(0.0, 1.0)).sensitivity
    assert math.hypot(mean_alone, moment_alone) == pytest.approx(math.sqrt(6))
    assert s.mean_second_moment(1, 4, adjacency=SAME).sensitivity < math.sqrt(6)


def lifted(z, weights):
    """Rows (w0, w1 z, w2 vech(z z^T)) of records z (n, d)."""
    outer = vech(z[:, :, None] * z[:, None, :])
    return np.concatenate([np.full((len(z), 1), weights[0]), weights[1] * z, weights[2] * outer], axis=1)


def test_soft_labels_are_worst_when_hard():
    """DP-EM responsibilities: random soft pairs never exceed the hard-label value, for several weightings."""
    rng = np.random.default_rng(5)
    for weights in ((1.0, 1.0, 1.0), (0.05, 1.0, 1.0), (1.0, 0.3, 2.0)):
        bound = s.responsibility_sums(2, adjacency=SAME, components=3, weights=weights).sensitivity
        r, q = rng.dirichlet([0.3] * 3, size=(2, 20_000))
        angle = rng.uniform(0, 2 * np.pi, size=(2, 20_000))
        x, y = np.stack([np.cos(angle), np.sin(angle)], -1)
        difference = (
            r[:, :, None] * lifted(x, weights)[:, None, :] - q[:, :, None] * lifted(y, weights)[:, None, :]
        )
        found = np.sqrt(np.sum(difference**2, axis=(1, 2))).max()
        assert 0.9 * bound < found <= bound * (1 + 1e-12)


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(
    w1=st.floats(0, 10),
    w2=st.floats(0, 10),
    dim=st.integers(1, 4),
    nn=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_pairs_never_exceed_a_weighted_sensitivity(w1, w2, dim, nn, seed):
    rng = np.random.default_rng(seed)
    for family in ("full", "diag", "spherical"):
        case = moments_case(1, dim, family, nn, (w1, w2))
        for _ in range(10):
            x, y = case.feasible(rng.standard_normal((2, dim)) * 2)[:, None, :]
            found = np.linalg.norm(case.statistic(x, None) - case.statistic(y, None))
            assert found <= case.worst.sensitivity * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("adjacency", [ANY, ADD])
def test_means_refuse_adjacencies_that_hide_their_count(adjacency):
    for call in (
        lambda: s.mean_second_moment(5, 3, adjacency=adjacency),
        lambda: s.mean_covariance(5, 3, adjacency=adjacency),
    ):
        with pytest.raises(PlanError, match="replace_one_same_label"):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: s.mean_second_moment(0, 3, adjacency=SAME),
        lambda: s.mean_second_moment(3, 0, adjacency=SAME),
        lambda: s.class_sums(3, adjacency=SAME, weights=(1.0, -1.0, 1.0)),
        lambda: s.class_sums(3, adjacency=SAME, weights=(1.0, math.nan, 1.0)),
        lambda: s.fedlog_sums(0, 1.0, adjacency=SAME),
        lambda: s.fedlog_sums(3, 0.0, adjacency=SAME),
        lambda: s.magnitude_sum(3, -1.0, adjacency=ANY),
        lambda: s.vector_sum(3, 0.0, adjacency=ANY),
        lambda: s.worst_pair(s.class_sums(2, adjacency=ANY), 0),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()
