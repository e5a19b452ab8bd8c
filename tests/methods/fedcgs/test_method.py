"""FedCGS: the same head for any partition, secure aggregation, expansion, and private forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.ledger import account
from fedassay.exchange.transcript import AGGREGATE, Message
from fedassay.exchange.view import ThreatModel, view
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.methods.baselines.centralized import Centralized
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.shared.heads import HeadTraining
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.reruns import llr_scores
from fedassay.support.errors import DataError, PlanError
from fedassay.support.types import Floats, Ints

MakeTask = Callable[..., MethodInput]


def _accuracy(outcome: Outcome, task: MethodInput) -> float:
    assert outcome.model is not None
    return float((outcome.model.predict(task.test) == task.test.labels).mean())


def _weights(outcome: Outcome) -> np.ndarray:
    assert isinstance(outcome.model, FeatureModel)
    head = outcome.model.head
    return np.concatenate([head.weights, head.bias[:, None]], axis=1)


def _repartition(task: MethodInput, clients: int, alpha: float) -> MethodInput:
    rng = np.random.default_rng(clients)
    whole = _pooled(task)
    owners = np.empty(len(whole), dtype=np.int64)
    for label in range(task.classes):
        rows = np.flatnonzero(whole.labels == label)
        owners[rows] = rng.choice(clients, size=len(rows), p=rng.dirichlet([alpha] * clients))
    parts = tuple(whole.take(np.flatnonzero(owners == i), f"client/{i}") for i in range(clients))
    return replace(task, clients=parts)


def _pooled(task: MethodInput) -> Records:
    images = np.concatenate([client.images for client in task.clients])
    labels = np.concatenate([client.labels for client in task.clients])
    return Records("all", images, labels, task.clients[0].extract)


@pytest.mark.parametrize("covariance", ["total", "within"])
@pytest.mark.parametrize(("transport", "tolerance"), [("float64", 1e-5), ("float32", 2e-2)])
def test_equal_over_clients(make_task: MakeTask, covariance: str, transport: str, tolerance: float) -> None:
    base = make_task(clients=1, records=600)
    method = FedCGS(covariance=covariance, transport=transport)
    one = _weights(method.run(base))
    for clients, alpha in ((5, 0.5), (20, 0.05)):
        many = _weights(method.run(_repartition(base, clients, alpha)))
        assert np.abs(many - one).max() < tolerance * np.abs(one).max()


def test_accuracy_is_near_centralized(make_task: MakeTask) -> None:
    task = make_task(clients=5, records=800, backbone="small_cnn")
    oracle = _accuracy(Centralized().run(task), task)
    for method in (FedCGS(), FedCGS(covariance="within"), FedCGS(transport="float16")):
        assert _accuracy(method.run(task), task) > oracle - 0.05


def test_messages_say_what_they_hold(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=200)
    outcome = FedCGS(transport="float32").run(task)
    d = task.backbone.width
    for client, message in zip(task.clients, outcome.transcript.from_clients(), strict=True):
        np.testing.assert_array_equal(message.fields["N"].values, np.bincount(client.labels, minlength=10))
        assert message.fields["N"].values.dtype.kind == "i"
        first = client.features[client.labels == 3].astype(np.float64).sum(axis=0)
        np.testing.assert_allclose(message.fields["A"].values[3], first, rtol=1e-6)
        second = client.features.astype(np.float64).T @ client.features
        np.testing.assert_allclose(message.fields["B"].values, second[np.tril_indices(d)], rtol=1e-6)
    assert outcome.communication["paper_parameters_up"] == 2 * ((10 + d) * d + 10)
    # Half of the symmetric second moment stays at home.
    assert outcome.transcript.bytes_up < outcome.communication["paper_bytes_up"]


@pytest.mark.parametrize(("secure", "hidden"), [("none", set()), ("counts", {"N"}), ("all", {"N", "A", "B"})])
def test_secure_aggregation_shows_the_sum_only(make_task: MakeTask, secure: str, hidden: set[str]) -> None:
    task = make_task(clients=3, records=200)
    outcome = FedCGS(secure_aggregation=secure).run(task)
    seen = view(outcome.transcript, ThreatModel()).from_clients()
    for message in seen:
        names = set(message.fields)
        assert names == (hidden if message.sender == AGGREGATE else {"N", "A", "B"} - hidden)
    sums: list[Message] = [message for message in seen if message.sender == AGGREGATE]
    assert len(sums) == bool(hidden)
    if hidden:
        counts = np.bincount(_pooled(task).labels, minlength=10)
        np.testing.assert_array_equal(sums[0].fields["N"].values, counts)
    np.testing.assert_allclose(_weights(outcome), _weights(FedCGS().run(task)))


def test_expansion_separates_better_and_costs_more(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=900)
    plain, wide = FedCGS().run(task), FedCGS(expansion=512).run(task)
    assert _accuracy(wide, task) > _accuracy(plain, task)
    assert wide.transcript.bytes_up > 30 * plain.transcript.bytes_up
    one = FedCGS(expansion=100).run(replace(task, clients=(_pooled(task).take(np.arange(900), "client/0"),)))
    two = FedCGS(expansion=100).run(task)
    np.testing.assert_allclose(_weights(one), _weights(two), rtol=1e-4, atol=1e-6)
    with pytest.raises(PlanError, match=r"expansion 10000000 needs .* GiB"):
        FedCGS(expansion=10_000_000).run(task)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "replace_one_same_label"])
@pytest.mark.parametrize("noise", ["local", "central"])
def test_private_runs_spend_exactly_what_was_asked(make_task: MakeTask, adjacency: str, noise: str) -> None:
    task = make_task(clients=3, epsilon=3.0, adjacency=adjacency)
    outcome = FedCGS(noise=noise, secure_aggregation="all" if noise == "central" else "none").run(task)
    accounted = account(outcome.transcript, task.privacy.adjacency, 1e-5)
    assert accounted.epsilon == pytest.approx(3.0, rel=1e-6)
    assert accounted.exact_fields == ()
    joint = {"add_remove": 3.0, "replace_one": 6.0, "replace_one_same_label": 4.5}[adjacency]
    release = next(iter(outcome.transcript.from_clients())).fields["A"].release
    assert release.sensitivity == pytest.approx((math.sqrt(joint),))
    assert release.noise_scale == pytest.approx((calibrate_sigma(3.0, 1e-5, math.sqrt(joint)),))
    assert ("fail to add theirs" in release.note) == (noise == "central")
    (experiment,) = outcome.mechanisms.values()
    assert experiment.mu == pytest.approx(accounted.mu)
    null, alternative = llr_scores(experiment, reruns=2000, rng=np.random.default_rng(0))
    assert alternative.mean() - null.mean() == pytest.approx(experiment.mu**2, rel=0.2)


@pytest.mark.parametrize("noise", ["local", "central"])
def test_the_sum_carries_the_noise_it_should(make_task: MakeTask, noise: str) -> None:
    task = make_task(clients=3, records=120, epsilon=1.0)
    method = FedCGS(noise=noise, secure_aggregation="all")
    outcome = method.run(task)
    # The difference to the sums of the clipped features is the noise; pixels of digits have norms above 1.
    exact = np.zeros((10, task.backbone.width))
    for client in task.clients:
        norms = np.linalg.norm(client.features, axis=1, keepdims=True)
        clipped = client.features / np.maximum(norms, 1)
        np.add.at(exact, client.labels, clipped)
    (total,) = view(outcome.transcript, ThreatModel()).from_clients()
    scale = calibrate_sigma(1.0, 1e-5, math.sqrt(3)) * (math.sqrt(3) if noise == "local" else 1.0)
    noised = total.fields["A"].values - exact
    assert noised.std() == pytest.approx(scale, rel=5 / math.sqrt(2 * noised.size))
    second = total.fields["B"].values[np.arange(1, 65) * np.arange(2, 66) // 2 - 1]
    assert np.std(second) > 0.5 * scale


def test_a_generated_head_is_near_the_solved_one_and_needs_the_statistics(make_task: MakeTask) -> None:
    """Figure 2's Linear: trained on draws from the aggregated Gaussians, so it sees no record."""
    task = make_task(clients=4, records=900)
    solved = FedCGS(covariance="within").run(task)
    generated = FedCGS(covariance="within", generated=HeadTraining()).run(task)
    assert _accuracy(generated, task) > _accuracy(solved, task) - 0.05
    for ours, theirs in zip(generated.transcript.messages[:4], solved.transcript.messages[:4], strict=True):
        assert all(np.array_equal(ours.fields[name].values, theirs.fields[name].values) for name in "NAB")
    # The same aggregate from another partition gives the same draws, and so the same head.
    other = FedCGS(covariance="within", generated=HeadTraining()).run(_repartition(task, 4, 0.1))
    # The solver stops at a gradient, and processors round apart: of a largest weight of 67, by .024 on one.
    largest = np.abs(_weights(generated)).max()
    assert np.allclose(_weights(other), _weights(generated), atol=1e-3 * largest)


def test_noise_beyond_the_range_of_the_transport_is_clipped_where_each_message_carries_it(
    make_task: MakeTask,
) -> None:
    task = make_task(epsilon=1e-9, delta=1e-9)
    outcome = FedCGS(transport="float16").run(task)
    for message in outcome.transcript.messages[:3]:
        assert all(np.isfinite(item.values).all() for item in message.fields.values())
    assert any("beyond the range of float16 and were clipped" in note for note in outcome.notes)


@pytest.mark.parametrize("transport", ["float16", "float32"])
def test_shares_of_a_noise_are_not_rounded_on_their_way(make_task: MakeTask, transport: str) -> None:
    with pytest.raises(PlanError, match=f"central with transport {transport}.*allowed: float64"):
        FedCGS(transport=transport, noise="central", secure_aggregation="all").run(make_task(epsilon=1.0))


def test_noised_counts_ask_for_no_more_features_than_are_drawn(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedassay.methods.fedcgs.method.MAX_DRAWN", 100)
    drawn, fit = [], HeadTraining.fit

    def counted(self: HeadTraining, features: Floats, labels: Ints, task: MethodInput) -> LinearHead:
        drawn.append(len(labels))
        return fit(self, features, labels, task)

    monkeypatch.setattr(HeadTraining, "fit", counted)
    noised = FedCGS(generated=HeadTraining()).run(make_task(records=900, epsilon=5.0))
    plain = FedCGS(generated=HeadTraining()).run(make_task(records=900))
    assert drawn == [pytest.approx(100, abs=10), pytest.approx(900, abs=10)]
    assert any("100 are drawn" in note for note in noised.notes)
    assert not any("drawn" in note for note in plain.notes)


def test_private_accuracy(make_task: MakeTask) -> None:
    plain = make_task(clients=3, records=1000, backbone="small_cnn")
    private = replace(plain, privacy=make_task(epsilon=2.0).privacy)
    local = _accuracy(FedCGS().run(private), plain)
    central = _accuracy(FedCGS(noise="central", secure_aggregation="all").run(private), plain)
    assert local > 0.75
    assert central >= local - 0.02


def test_exact_counts_void_the_claim(make_task: MakeTask) -> None:
    task = make_task(epsilon=1.0)
    accounted = account(FedCGS(counts="exact").run(task).transcript, "add_remove", 1e-5)
    assert accounted.epsilon == math.inf
    assert accounted.exact_fields == ("N",)
    same = make_task(epsilon=1.0, adjacency="replace_one_same_label")
    assert account(FedCGS(counts="exact").run(same).transcript, "replace_one_same_label", 1e-5).epsilon < 1.001


def test_bad_situations_end_in_one_message(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=100)
    with pytest.raises(DataError, match="singular to working precision with ridge 0"):
        FedCGS(ridge=0.0).run(task)
    with pytest.raises(PlanError, match="noise central with secure_aggregation none"):
        FedCGS(noise="central").run(make_task(epsilon=1.0))
    client = replace(task.clients[0], extract=lambda images: 1e4 * task.clients[0].extract(images))
    with pytest.raises(DataError, match=r"class sums: magnitude .* does not fit float16"):
        FedCGS(transport="float16").run(replace(task, clients=(client,)))
    nobody = task.clients[1].take(np.empty(0, dtype=np.int64))
    assert _accuracy(FedCGS().run(replace(task, clients=(task.clients[0], nobody))), task) > 0.6
    with pytest.raises(DataError, match="too few"):
        FedCGS().run(replace(task, clients=(nobody,)))


def test_noise_that_drowns_the_statistics_leaves_messages_without_a_head(make_task: MakeTask) -> None:
    """Five records at epsilon 0.1: the noised counts sum to anything, and the messages are out all the same."""
    found = [FedCGS().run(make_task(clients=1, records=5, epsilon=0.1, seed=seed)) for seed in range(6)]
    headless = [outcome for outcome in found if outcome.model is None]
    assert headless
    for outcome in headless:
        assert "no head: the noise has drowned the statistics" in outcome.notes[0]
        assert {message.sender for message in outcome.transcript.messages} == {"client/0"}
        assert account(outcome.transcript, "add_remove", 1e-5).epsilon == pytest.approx(0.1)


def test_a_class_at_one_client_only(make_task: MakeTask) -> None:
    first, second = make_task(clients=1, labels_of=[0, 1]), make_task(clients=1, labels_of=[7])
    other = second.clients[0].take(np.arange(len(second.clients[0])), "client/1")
    task = replace(first, clients=(first.clients[0], other))
    outcome = FedCGS().run(task)
    assert outcome.model is not None
    assert set(outcome.model.predict(task.test)) == {0, 1, 7}
    assert outcome.notes == ("classes without a usable count are never predicted: 2, 3, 4, 5, 6, 8, 9",)
