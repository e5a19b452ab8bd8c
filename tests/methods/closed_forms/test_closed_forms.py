"""Closed forms: the heads that their papers give, whatever the partition, and private forms that spend epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedassay.audits.claim.noise_blocks import noised_arrays
from fedassay.contracts.method import Method, MethodInput, Outcome
from fedassay.data.records import Records, joined
from fedassay.exchange.ledger import account
from fedassay.exchange.transcript import AGGREGATE
from fedassay.exchange.view import ThreatModel, view
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.heads.quadratic import QuadraticHead
from fedassay.methods.closed_forms.afl import AFL
from fedassay.methods.closed_forms.class_means import ClassMeans
from fedassay.methods.closed_forms.fed3r import Fed3R
from fedassay.methods.closed_forms.fedcof import FedCOF, estimated_gram
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.closed_forms.gh_ofl import GHOFL
from fedassay.methods.closed_forms.one_shot_ridge import OneShotRidge
from fedassay.mixtures.packed import unpack_lower
from fedassay.privacy.gaussian import calibrate_sigma, epsilon_of
from fedassay.privacy.reruns import llr_scores
from fedassay.privacy.sensitivities import ridge_sums, worst_pair
from fedassay.support.errors import DataError

MakeTask = Callable[..., MethodInput]

FORMS: dict[str, Method] = {
    "afl": AFL(),
    "fed3r": Fed3R(),
    "fed3r-assembled": Fed3R(mechanism="assembled"),
    "fed3r-random": Fed3R(random_features=80),
    "gh_ofl": GHOFL(),
    "gh_ofl-lda": GHOFL(head="lda"),
    "gh_ofl-nb": GHOFL(head="nb", moments="diagonal"),
    "gh_ofl-sketch": GHOFL(head="lda", sketch=40),
    "one_shot_ridge": OneShotRidge(),
    "fedcof": FedCOF(),
    "fedncm": FedNCM(),
}
JOINT = {
    "afl": {"add_remove": 2.0, "replace_one": 4.5, "replace_one_same_label": 4.5},
    "one_shot_ridge": {"add_remove": 2.0, "replace_one": 4.5, "replace_one_same_label": 4.5},
    "fed3r": {"add_remove": 6.0, "replace_one": 12.0, "replace_one_same_label": 12.0},
    "fed3r-assembled": {"add_remove": 3.0, "replace_one": 6.0, "replace_one_same_label": 4.5},
    "gh_ofl": {"add_remove": 3.0, "replace_one": 6.0, "replace_one_same_label": 4.5},
    "gh_ofl-nb": {"add_remove": 3.0, "replace_one": 6.0, "replace_one_same_label": 4.5},
    "fedcof": {"add_remove": 2.0, "replace_one": 4.0, "replace_one_same_label": 4.0},
    "fedncm": {"add_remove": 2.0, "replace_one": 4.0, "replace_one_same_label": 4.0},
}
"""Squares of the joint sensitivities that the docstrings state."""


def _accuracy(outcome: Outcome, task: MethodInput) -> float:
    assert outcome.model is not None
    return float((outcome.model.predict(task.test) == task.test.labels).mean())


def _head(outcome: Outcome) -> LinearHead:
    assert isinstance(outcome.model, FeatureModel)
    assert isinstance(outcome.model.head, LinearHead)
    return outcome.model.head


def _pooled(task: MethodInput) -> Records:
    return joined("client/0", task.clients)


def _dealt(task: MethodInput, clients: int, alpha: float) -> MethodInput:
    """The same records at other clients."""
    rng, whole = np.random.default_rng(clients), _pooled(task)
    owners = np.empty(len(whole), dtype=np.int64)
    for label in range(task.classes):
        rows = np.flatnonzero(whole.labels == label)
        owners[rows] = rng.choice(clients, size=len(rows), p=rng.dirichlet([alpha] * clients))
    parts = tuple(whole.take(np.flatnonzero(owners == i), f"client/{i}") for i in range(clients))
    return replace(task, clients=parts)


@pytest.mark.parametrize("name", FORMS)
def test_plain_runs_learn(make_task: MakeTask, name: str) -> None:
    task = make_task(clients=4, records=900)
    least = {"fedncm": 0.6, "fedcof": 0.75, "gh_ofl-nb": 0.75, "gh_ofl-sketch": 0.8}.get(name, 0.85)
    assert _accuracy(FORMS[name].run(task), task) > least


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(FORMS.keys() - {"fedcof"}))
def test_any_partition_gives_the_same_predictions(make_task: MakeTask, name: str) -> None:
    task = make_task(clients=1, records=600, backbone="small_cnn")
    outcomes = [FORMS[name].run(each) for each in (task, _dealt(task, 5, 0.5), _dealt(task, 12, 0.1))]
    one, *others = [outcome.model.predict(task.test) for outcome in outcomes if outcome.model is not None]
    assert len(others) == 2
    for other in others:
        assert (one == other).mean() > 0.99


@pytest.mark.long
def test_afl_is_least_squares_of_the_pooled_records(make_task: MakeTask) -> None:
    """The absolute aggregation law, and the ridge removed: nothing is left of gamma."""
    task = make_task(clients=5, records=900, backbone="small_cnn")
    whole = _pooled(task)
    features, targets = whole.features.astype(np.float64), np.eye(10)[whole.labels]
    plain = np.linalg.lstsq(features, targets, rcond=None)[0].T
    kept = features.T @ features + 5 * 3.0 * np.eye(features.shape[1])
    ridge = np.linalg.solve(kept, features.T @ targets).T
    removed = AFL(gamma=3.0, transport="float64").run(task)
    assert removed.notes == ()
    np.testing.assert_allclose(_head(removed).weights, plain, atol=1e-6 * np.abs(plain).max())
    left = AFL(gamma=3.0, transport="float64", remove_ridge=False).run(task)
    np.testing.assert_allclose(_head(left).weights, ridge, atol=1e-9)


def test_afl_messages_are_what_its_authors_send(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=60)
    outcome = AFL(gamma=0.5).run(task)
    assert "singular" in outcome.notes[0]  # pixels of digits that are always dark
    for client, message in zip(task.clients, outcome.transcript.from_clients(), strict=True):
        features, targets = client.features.astype(np.float64), np.eye(10)[client.labels]
        gram = unpack_lower(message.fields["C"].values.astype(np.float64))
        np.testing.assert_allclose(gram, features.T @ features + 0.5 * np.eye(64), rtol=1e-6, atol=1e-5)
        weights = message.fields["W"].values.astype(np.float64)
        np.testing.assert_allclose(gram @ weights.T, features.T @ targets, atol=1e-3)
        assert {item.dtype for item in message.fields.values()} == {np.dtype("float32")}


def test_fed3r_is_ridge_regression_with_an_intercept(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=600, backbone="small_cnn")
    whole = _pooled(task)
    rows = np.concatenate([whole.features.astype(np.float64), np.ones((len(whole), 1))], axis=1)
    solved = np.linalg.solve(rows.T @ rows + 0.3 * np.eye(rows.shape[1]), rows.T @ np.eye(10)[whole.labels]).T
    expected = solved / np.linalg.norm(solved[:, :-1], axis=1, keepdims=True)
    found = Fed3R(ridge=0.3, transport="float64").run(task)
    np.testing.assert_allclose(_head(found).weights, expected, atol=1e-8 * np.abs(expected).max())
    message = next(found.transcript.from_clients())
    # Counts leave in the constant's column, though nobody sends them as such.
    np.testing.assert_allclose(
        message.fields["b"].values[:, -1], np.bincount(task.clients[0].labels, minlength=10)
    )


def test_gh_ofl_heads_follow_from_class_wise_moments(make_task: MakeTask) -> None:
    task = make_task(clients=4, records=900)
    whole = _pooled(task)
    outcome = GHOFL(shrinkage=0.1).run(task)
    assert isinstance(outcome.model, FeatureModel)
    head = outcome.model.head
    assert isinstance(head, QuadraticHead)
    own = whole.features[whole.labels == 3].astype(np.float64)
    covariance = np.cov(own.T, ddof=0)
    shrunk = 0.9 * covariance + 0.1 * np.trace(covariance) / 64 * np.eye(64)
    np.testing.assert_allclose(head.means[3], own.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(head.covariances[3], shrunk, atol=1e-9)
    full = GHOFL(head="nb").run(task)
    diagonal = GHOFL(head="nb", moments="diagonal").run(task)
    assert full.model is not None
    assert diagonal.model is not None
    np.testing.assert_array_equal(full.model.predict(task.test), diagonal.model.predict(task.test))
    assert full.transcript.bytes_up > 10 * diagonal.transcript.bytes_up
    with pytest.raises(ValueError, match="diagonal moments give no qda head"):
        GHOFL(moments="diagonal")


def test_fedcof_estimates_the_covariance_of_a_class_without_bias() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    sizes = np.array([5, 9, 20, 6, 12, 7])
    found = np.zeros((4, 4))
    for _ in range(400):
        means = np.array([(rng.normal(size=(size, 4)) @ root.T + 2).mean(axis=0) for size in sizes])
        read = ClassMeans(sizes[:, None].astype(np.float64), means[:, None])
        total, pooled = read.pooled
        outer = total.sum() * np.outer(pooled[0], pooled[0])
        found += (estimated_gram(read, 1e-12) - outer) / (sizes.sum() - 1) / 400
    np.testing.assert_allclose(found, root @ root.T, atol=0.12 * np.trace(root @ root.T))


def test_fedcof_says_which_classes_have_no_spread(make_task: MakeTask) -> None:
    outcome = FedCOF().run(make_task(clients=1, records=100))
    assert outcome.notes == ("10 classes are at one client each: their covariance is the shrinkage alone",)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "replace_one_same_label"])
@pytest.mark.parametrize("name", JOINT)
def test_private_runs_spend_exactly_what_was_asked(make_task: MakeTask, name: str, adjacency: str) -> None:
    task = make_task(clients=3, records=150, epsilon=3.0, adjacency=adjacency)
    outcome = FORMS[name].run(task)
    accounted = account(outcome.transcript, task.privacy.adjacency, 1e-5)
    assert accounted.epsilon == pytest.approx(3.0, rel=1e-6)
    assert accounted.exact_fields == ()
    joint = math.sqrt(JOINT[name][adjacency])
    for message in outcome.transcript.from_clients():
        for item in message.fields.values():
            assert item.release.sensitivity == pytest.approx((joint,))
            assert item.release.noise_scale == pytest.approx((calibrate_sigma(3.0, 1e-5, joint),))
    (experiment,) = outcome.mechanisms.values()
    assert experiment.mu == pytest.approx(accounted.mu)
    null, alternative = llr_scores(experiment, reruns=2000, rng=np.random.default_rng(0))
    assert alternative.mean() - null.mean() == pytest.approx(experiment.mu**2, rel=0.2)


def test_the_classical_calibration_of_two_releases_overspends(make_task: MakeTask) -> None:
    """Epsilon 1 for G and for h is more than 1 for both, which leave together."""
    task = make_task(epsilon=1.0)
    accounted = account(OneShotRidge(mechanism="classical").run(task).transcript, "add_remove", 1e-5)
    scale = math.sqrt(2 * math.log(1.25e5))
    assert accounted.epsilon == pytest.approx(epsilon_of(math.sqrt(2) / scale, 1e-5))
    assert accounted.epsilon > 1.09
    assert account(OneShotRidge().run(task).transcript, "add_remove", 1e-5).epsilon == pytest.approx(1.0)


def test_the_noise_is_in_every_field(make_task: MakeTask) -> None:
    """What leaves minus what would leave of clipped features has the declared scale, field by field."""
    plain = make_task(clients=2, records=60)
    clipped = tuple(replace(each, extract=_clipping(each.extract)) for each in plain.clients)
    for method in (OneShotRidge(), Fed3R(transport="float64"), GHOFL()):
        task = replace(plain, privacy=make_task(epsilon=2.0).privacy)
        exact = method.run(replace(plain, clients=clipped)).transcript
        for ours, theirs in zip(method.run(task).transcript.from_clients(), exact.from_clients(), strict=True):
            for name, item in ours.fields.items():
                assert item.release.noise_scale is not None
                noise = item.values - theirs.fields[name].values
                assert 0.6 < float(np.std(noise)) / item.release.noise_scale[0] < 1.2, (method, name)


@pytest.mark.parametrize("method", [AFL(), Fed3R(), GHOFL(), GHOFL(head="nb", moments="diagonal"), FedNCM()])
def test_independent_draws_have_the_scale_that_their_kind_says(make_task: MakeTask, method: Method) -> None:
    """At a tiny epsilon nothing but noise is left, on the diagonals and off them."""
    outcome = method.run(make_task(clients=1, records=40, epsilon=1e-3))
    found = [array for array in noised_arrays(outcome.transcript) if not array.reason]
    assert found
    for array in found:
        for wide in (True, False):
            chosen = (array.scales == array.scales.max()) == wide
            if chosen.sum() > 50:
                assert float(np.std(array.values[chosen] / array.scales[chosen])) == pytest.approx(1.0, rel=0.25)


def _clipping(extract: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def clipped(images: np.ndarray) -> np.ndarray:
        features = extract(images).astype(np.float64)
        return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1.0)

    return clipped


@pytest.mark.parametrize("name", sorted(FORMS.keys() - {"fed3r-assembled"}))
def test_private_heads_learn_where_there_are_records(make_task: MakeTask, name: str) -> None:
    plain = make_task(clients=2, records=1000, backbone="small_cnn")
    private = replace(plain, privacy=make_task(epsilon=20.0).privacy)
    # Noise on every class's second moment drowns QDA first.
    least = {"gh_ofl": 0.3, "gh_ofl-sketch": 0.3, "fed3r-random": 0.3}.get(name, 0.5)
    assert _accuracy(FORMS[name].run(private), plain) > least


@pytest.mark.parametrize("method", [Fed3R(secure_aggregation="all"), GHOFL(secure_aggregation="all")])
def test_secure_aggregation_shows_the_sums_only(make_task: MakeTask, method: Method) -> None:
    outcome = method.run(make_task(clients=3, records=120))
    seen = view(outcome.transcript, ThreatModel()).from_clients()
    assert [message.sender for message in seen if message.fields] == [AGGREGATE]


@pytest.mark.parametrize("name", sorted(FORMS))
def test_bad_situations_end_in_one_message(make_task: MakeTask, name: str) -> None:
    task = make_task(clients=2, records=100)
    nobody = task.clients[1].take(np.empty(0, dtype=np.int64))
    with pytest.raises(DataError, match="no client has any record"):
        FORMS[name].run(replace(task, clients=(nobody,)))
    outcome = FORMS[name].run(replace(task, clients=(task.clients[0], nobody)))
    assert _accuracy(outcome, task) > 0.3
    drowned = FORMS[name].run(make_task(clients=1, records=5, epsilon=0.1))
    assert drowned.model is not None or "drowned" in drowned.notes[0]


def test_worst_pairs_hold_the_constant() -> None:
    """The experiment's records are features as Fed3R takes statistics of them: the last one is 1."""
    pair = worst_pair(ridge_sums(3, adjacency="replace_one", constant=True), 4)
    assert (pair.features0[:, -1] == 1).all()
    assert (pair.features1[:, -1] == 1).all()
