"""Public maps of features: made known by the server, exact sensitivities behind them, and no protection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, minimize

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.contracts.attack import Knowledge
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.records import Records
from fedassay.exchange.public_map import PublicMap, as_summed, fourier_features, public_map
from fedassay.exchange.view import ThreatModel, view
from fedassay.methods.closed_forms.fed3r import Fed3R
from fedassay.methods.closed_forms.gh_ofl import GHOFL
from fedassay.methods.closed_forms.statistics import FeatureMap
from fedassay.privacy.mechanisms import ridge_sums, shared_sums
from fedassay.privacy.symmetric import vech
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
Matrix = NDArray[np.float64]

ANGLES = {"opposite": (1, 1, 1, 1), "orthogonal": (0, 0, 1, 1), "two thirds": (0, 1, 1, 1)}
"""Which of four cosines two records have with another sign: their features are at 180, 90 or 120 degrees."""
WORST = [
    ("joint", "add_remove", 6.0, None, False),
    ("joint", "replace_one", 12.0, "opposite", True),
    ("joint", "replace_one_same_label", 12.0, "opposite", False),
    ("assembled", "add_remove", 3.0, None, False),
    ("assembled", "replace_one", 6.0, "orthogonal", True),
    ("assembled", "replace_one_same_label", 4.5, "two thirds", False),
]


def _declared(make_task: MakeTask, method: Method, adjacency: str) -> float:
    outcome = method.run(make_task(clients=1, records=40, epsilon=3.0, adjacency=adjacency))
    message = next(outcome.transcript.from_clients())
    (found,) = {item.release.sensitivity for item in message.fields.values()}
    assert found is not None
    return found[0]


def _statistic(mechanism: str, mapped: FeatureMap, features: Matrix, labels: NDArray[np.int64]) -> Matrix:
    """Everything that a private run noises, in isometric coordinates."""
    rows = mapped(features)
    if mechanism == "joint":
        sums, gram = ridge_sums(rows, labels, 2)
        return np.concatenate([sums.ravel(), vech(gram).ravel()])
    counts, sums, second = shared_sums(rows[:, :-1], labels, 2)
    return np.concatenate([counts, sums.ravel(), vech(second).ravel()])


def _moved(mechanism: str, mapped: FeatureMap, pair: Matrix, *, removed: bool, relabelled: bool) -> float:
    one = _statistic(mechanism, mapped, pair[:1], np.zeros(1, np.int64))
    if removed:
        return float(np.linalg.norm(one - _statistic(mechanism, mapped, pair[:0], np.zeros(0, np.int64))))
    other = _statistic(mechanism, mapped, pair[1:], np.full(1, int(relabelled)))
    return float(np.linalg.norm(one - other))


@pytest.mark.parametrize(("mechanism", "adjacency", "square", "angle", "relabelled"), WORST)
def test_a_pair_of_features_attains_the_sensitivity(
    make_task: MakeTask, mechanism: str, adjacency: str, square: float, angle: str | None, relabelled: bool
) -> None:
    """With no more random features than features, any phases can be reached."""
    method = Fed3R.model_validate({"random_features": 4, "mechanism": mechanism})
    declared = _declared(make_task, method, adjacency)
    assert declared == pytest.approx(math.sqrt(square))
    public = fourier_features(8, 4, 1.0, np.random.default_rng(0))
    assert public.phases is not None
    turned = np.pi * np.array([(0,) * 4, ANGLES[angle or "opposite"]])
    solved = np.linalg.lstsq(public.matrix.T.astype(np.float64), (turned - public.phases).T, rcond=None)[0].T
    mapped = FeatureMap(public, constant=True, clip=True)
    reached = _moved(mechanism, mapped, solved, removed=angle is None, relabelled=relabelled)
    assert reached == pytest.approx(declared, rel=1e-6)


@pytest.mark.parametrize(("mechanism", "adjacency", "square", "angle", "relabelled"), WORST)
def test_an_adversary_comes_near_the_sensitivity_and_never_above(
    mechanism: str, adjacency: str, square: float, angle: str | None, relabelled: bool
) -> None:
    """With more random features than features, their phases are no longer free."""
    rng, worst = np.random.default_rng(1), math.sqrt(square)
    mapped = FeatureMap(fourier_features(3, 6, 1.0, rng), constant=True, clip=True)

    def moved(flat: Matrix) -> float:
        return _moved(mechanism, mapped, flat.reshape(2, 3), removed=angle is None, relabelled=relabelled)

    best = 0.0
    for _ in range(40):
        start = rng.uniform(-40, 40, 6)
        best = max(best, moved(start), -minimize(lambda flat: -moved(flat), start, options={"maxiter": 40}).fun)
        if best > 0.97 * worst:
            break
    assert 0.97 * worst < best <= worst * (1 + 1e-9)


def test_features_that_are_not_clipped_are_no_longer_than_the_root_of_two() -> None:
    mapped = fourier_features(5, 64, 1.0, np.random.default_rng(0))
    squares = (mapped(np.random.default_rng(1).normal(0, 3, (2000, 5))) ** 2).sum(axis=1)
    assert squares.max() <= 2
    assert squares.mean() == pytest.approx(1, abs=0.02)


def test_inner_products_approximate_the_gaussian_kernel() -> None:
    features = np.random.default_rng(1).normal(size=(12, 5))
    mapped = fourier_features(5, 20_000, 2.0, np.random.default_rng(0))(features)
    squares = ((features[:, None] - features) ** 2).sum(axis=2)
    np.testing.assert_allclose(mapped @ mapped.T, np.exp(-squares / 8), atol=0.04)


@pytest.mark.parametrize("method", [Fed3R(random_features=40), GHOFL(sketch=40, head="lda")])
@pytest.mark.parametrize("epsilon", [math.inf, 20.0])
def test_the_server_makes_the_map_known(make_task: MakeTask, method: Method, epsilon: float) -> None:
    task = make_task(clients=3, records=300, epsilon=epsilon)
    outcome = method.run(task)
    for threat in (ThreatModel(), ThreatModel(view="aggregate"), ThreatModel(view="broadcast")):
        seen = view(outcome.transcript, threat)
        known = public_map(seen, task.backbone.width)
        assert known is not None
        for message in seen.messages:
            for item in message.fields.values():
                assert item.release.mechanism == "public" or item.kind not in ("projection", "phases")
    if epsilon == math.inf:
        client, message = task.clients[0], next(outcome.transcript.from_clients())
        name = "b" if isinstance(method, Fed3R) else "A"
        sums = message.fields[name].values
        rows = as_summed(view(outcome.transcript, ThreatModel()), client.features, sums.shape[1])
        assert rows is not None
        member = (client.labels[:, None] == np.arange(10)).astype(float)
        np.testing.assert_allclose(member.T @ rows, sums, rtol=1e-5, atol=1e-5)


def test_without_a_map_features_are_summed_as_they_are(make_task: MakeTask) -> None:
    """But for the constant, which widens sums by one; of any other width nothing is known."""
    seen = view(Fed3R().run(make_task(clients=1, records=30)).transcript, ThreatModel())
    features = np.random.default_rng(0).normal(size=(4, 64))
    assert public_map(seen, 64) is None
    rows = as_summed(seen, features, 65)
    assert rows is not None
    assert (rows[:, -1] == 1).all()
    np.testing.assert_array_equal(as_summed(seen, features, 64), features)
    assert as_summed(seen, features, 63) is None


@pytest.mark.parametrize(
    "method", [Fed3R(random_features=32, bandwidth=30.0, transport="float64"), GHOFL(sketch=32)]
)
def test_the_gram_attack_goes_through_the_map(make_task: MakeTask, method: Method) -> None:
    """Dense and signed features come back nearer than their mean, for an attacker who maps its own."""
    rng = np.random.default_rng(0)
    mixing = np.random.default_rng(99).standard_normal((24, 24))

    def signed(name: str, size: int) -> Records:
        features = (rng.laplace(size=(size, 24)) ** 3 @ mixing + 2).astype(np.float32)
        return Records(name, np.zeros((size, 1, 1, 1), np.uint8), np.zeros(size, np.int64), lambda _: features)

    task = make_task(clients=1)
    client, backbone = signed("client/0", 3), replace(task.backbone, width=24)
    outcome = method.run(replace(task, clients=(client,), test=client, backbone=backbone))
    seen = view(outcome.transcript, ThreatModel())
    known = Knowledge(signed("attacker", 1500), 10, None, False, Seeds(0), "cpu", SILENT)
    result = GramFactorization(trust=1e9).run(seen, known)
    found = np.asarray(result.artifacts["vectors"], np.float64)
    truth = as_summed(seen, client.features, found.shape[1])
    assert truth is not None
    apart = np.linalg.norm(found[:, None] - truth, axis=2)
    rows, columns = linear_sum_assignment(apart)
    mean = np.linalg.norm(truth - truth.mean(axis=0), axis=1)
    assert np.median(apart[rows, columns] / mean[columns]) < 0.5
    unknown = replace(seen, messages=seen.from_clients())
    assert not GramFactorization().run(unknown, known).vectors


def test_a_map_of_other_features_is_none(make_task: MakeTask) -> None:
    outcome = GHOFL(sketch=8, head="lda").run(make_task(clients=1, records=100))
    assert public_map(view(outcome.transcript, ThreatModel()), 63) is None
    assert isinstance(public_map(view(outcome.transcript, ThreatModel()), 64), PublicMap)
