"""FedPFT: accuracy, messages, fallbacks, and what its private forms release."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from fedassay.contracts.method import MethodInput, Outcome
from fedassay.exchange.feature_sources import message_mixtures
from fedassay.exchange.ledger import account
from fedassay.exchange.release import NoClaim, PrivacyClaim
from fedassay.exchange.transcript import Message
from fedassay.methods.baselines.centralized import Centralized
from fedassay.methods.fedpft.messages import synthesise
from fedassay.methods.fedpft.method import FedPFT
from fedassay.mixtures import Family, parameters_sent
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.paper_formulas import fedpft_remark_b3_sigma, fedpft_theorem_4_1_sigma
from fedassay.privacy.reruns import llr_scores
from fedassay.support.errors import DataError, PlanError

MakeTask = Callable[..., MethodInput]
FAMILIES: tuple[Family, ...] = get_args(Family)
SAME = "replace_one_same_label"


def _accuracy(outcome: Outcome, task: MethodInput) -> float:
    assert outcome.model is not None
    return float((outcome.model.predict(task.test) == task.test.labels).mean())


def _clients(outcome: Outcome) -> list[Message]:
    return list(outcome.transcript.from_clients())


@pytest.mark.long
def test_ten_components_are_within_four_points_of_centralized(make_task: MakeTask) -> None:
    task = make_task(clients=5, records=800, backbone="small_cnn")
    ours = _accuracy(FedPFT().run(task), task)
    oracle = _accuracy(Centralized().run(task), task)
    assert oracle > 0.85
    assert ours > oracle - 0.04


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("transport", ["float16", "float32"])
def test_messages_say_what_they_hold(make_task: MakeTask, family: Family, transport: str) -> None:
    task = make_task(clients=2, records=150)
    outcome = FedPFT(components=3, covariance=family, transport=transport).run(task)
    d, sent = task.backbone.width, 0
    for client, message in zip(task.clients, _clients(outcome), strict=True):
        classes, counts = np.unique(client.labels, return_counts=True)
        np.testing.assert_array_equal(message.fields["class_ids"].values, classes)
        np.testing.assert_array_equal(message.fields["class_counts"].values, counts)
        assert message.fields["means"].values.dtype == np.dtype(transport)
        received = message_mixtures(message)
        assert received is not None
        assert received.family == family
        assert (received.components <= np.minimum(3, counts)).all()
        sent += parameters_sent(family, d, int(received.components.sum()))
        # Mixture means average to the class mean: the fit preserves first moments.
        for span, label in zip(received.spans(), classes, strict=True):
            mean = received.weights[span] @ received.means[span]
            np.testing.assert_allclose(mean, client.features[client.labels == label].mean(axis=0), atol=2e-3)
    assert outcome.communication["paper_parameters_up"] == sent
    size = np.dtype(transport).itemsize
    assert outcome.communication["paper_bytes_up"] == size * sent
    # Counts and framing come on top of the paper's closed form, and are small beside it.
    assert size * sent < outcome.transcript.bytes_up < size * sent + 2 * (4 * 3 * 10 + 800)
    assert outcome.transcript.bytes_down > 0


def test_classes_with_few_records_are_kept_and_named(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=40)
    outcome = FedPFT().run(task)
    for client, message in zip(task.clients, _clients(outcome), strict=True):
        assert set(message.fields["class_ids"].values) == set(client.labels)
    assert len(outcome.notes) == 1
    assert "fewer components than asked for" in outcome.notes[0]
    assert "client/0: class" in outcome.notes[0]


def test_components_per_client(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=300)
    one, four = _clients(FedPFT(components=(1, 4)).run(task))
    assert set(one.fields["component_counts"].values) == {1}
    assert max(four.fields["component_counts"].values) == 4
    assert one.nbytes < four.nbytes
    with pytest.raises(PlanError, match="components has 3 entries for 2 clients"):
        FedPFT(components=(1, 2, 3)).run(task)


def test_an_empty_client_sends_an_empty_message(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=200)
    nobody = task.clients[1].take(np.empty(0, dtype=np.int64))
    lone = replace(task, clients=(task.clients[0], nobody))
    outcome = FedPFT(components=2).run(lone)
    assert len(_clients(outcome)[1].fields["class_ids"].values) == 0
    alone = FedPFT(components=2).run(replace(task, clients=task.clients[:1]))
    assert outcome.model is not None
    assert alone.model is not None
    np.testing.assert_array_equal(outcome.model.predict(task.test), alone.model.predict(task.test))
    private = replace(lone, privacy=make_task(epsilon=10.0, adjacency=SAME).privacy)
    for components in (1, 2):
        assert len(_clients(FedPFT(components=components).run(private))[1].fields["means"].values) == 0
    with pytest.raises(DataError, match="no client has any record"):
        FedPFT().run(replace(task, clients=(nobody,)))


def test_features_beyond_float16_name_the_way_out(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=60)
    client = replace(task.clients[0], extract=lambda images: 1e4 * task.clients[0].extract(images))
    big = replace(task, clients=(client,))
    with pytest.raises(DataError, match=r"covariances: .* does not fit float16 .* use transport float32"):
        FedPFT(components=1).run(big)
    assert FedPFT(components=1, transport="float32").run(big).model is not None


def test_a_client_does_not_depend_on_the_others(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=300)
    together = _clients(FedPFT(components=3).run(task))
    alone = _clients(FedPFT(components=3).run(replace(task, clients=task.clients[1:2])))
    assert alone[0].serialized == together[1].serialized


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("parameters", "adjacency"),
    [
        ({"components": 1}, SAME),
        ({"components": 1, "counts": "noised"}, "add_remove"),
        ({"components": 1, "counts": "noised"}, "replace_one"),
        ({"components": 2}, SAME),
        ({"components": 2, "counts": "noised"}, "add_remove"),
        ({"components": 2, "counts": "noised", "nonnegative": True}, "replace_one"),
    ],
)
def test_tight_spends_exactly_what_was_asked(
    make_task: MakeTask, family: Family, parameters: dict[str, object], adjacency: str
) -> None:
    task = make_task(clients=2, records=300, epsilon=4.0, adjacency=adjacency)
    outcome = FedPFT(covariance=family, **parameters).run(task)
    accounted = account(outcome.transcript, task.privacy.adjacency, 1e-5)
    assert accounted.epsilon == pytest.approx(4.0, rel=1e-6)
    assert accounted.exact_fields == ()
    # The statistic handed to audits is noised as the ledger says; DP-EM hands over its first step.
    (experiment,) = outcome.mechanisms.values()
    if parameters["components"] == 1:
        assert experiment.mu == pytest.approx(accounted.mu, rel=1e-6)
    else:
        assert 0 < experiment.mu < accounted.mu
    null, alternative = llr_scores(experiment, reruns=2000, rng=np.random.default_rng(0))
    assert alternative.mean() - null.mean() == pytest.approx(experiment.mu**2, abs=0.2 * experiment.mu**2 + 0.1)


def test_the_published_mechanisms_use_the_published_noise(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=200, epsilon=10.0, adjacency=SAME)
    counts = np.unique(task.clients[0].labels, return_counts=True)[1]
    formulas = {"paper": fedpft_theorem_4_1_sigma, "second_moment": fedpft_remark_b3_sigma}
    for mechanism, formula in formulas.items():
        outcome = FedPFT(components=1, mechanism=mechanism).run(task)
        release = _clients(outcome)[0].fields["means"].release
        np.testing.assert_allclose(release.noise_scale, [formula(10.0, 1e-5, int(n)) for n in counts])
        accounted = account(outcome.transcript, SAME, 1e-5)
        assert accounted.epsilon < accounted.epsilon_stated < 11
        assert any("Lemma B.2" in note for note in outcome.transcript.notes)
    tight = _clients(FedPFT(components=1).run(task))[0].fields["means"].release
    np.testing.assert_allclose(
        tight.noise_scale, [calibrate_sigma(10.0, 1e-5, math.sqrt(4.5) / n) for n in counts]
    )


def test_a_delta_per_class_is_claimed_as_the_largest_of_them(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=200, epsilon=1.0, adjacency=SAME)
    counts = np.unique(task.clients[0].labels, return_counts=True)[1]
    outcome = FedPFT(components=1, mechanism="paper", delta="per_class").run(task)
    release = _clients(outcome)[0].fields["means"].release
    np.testing.assert_allclose(release.noise_scale, [fedpft_theorem_4_1_sigma(1.0, 1 / n, int(n)) for n in counts])
    claim = outcome.transcript.claim
    assert isinstance(claim, PrivacyClaim)
    assert (claim.epsilon, claim.delta) == (1.0, 1 / counts.min())
    # Less than claimed at that delta, by the slack of the published sensitivity; more at one that says something.
    loose, strict = (account(outcome.transcript, SAME, delta).epsilon for delta in (claim.delta, 1e-5))
    assert loose < strict / 2
    assert loose < 1


def test_a_class_of_one_record_leaves_nothing_to_claim_per_class(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=200, epsilon=1.0, adjacency=SAME)
    own = task.clients[0]
    kept = np.concatenate([np.flatnonzero(own.labels != 3), np.flatnonzero(own.labels == 3)[:1]])
    outcome = FedPFT(components=1, mechanism="paper", delta="per_class").run(
        replace(task, clients=(own.take(kept),))
    )
    assert isinstance(outcome.transcript.claim, NoClaim)
    assert "promises nothing" in outcome.transcript.claim.reason
    assert np.isfinite(account(outcome.transcript, SAME, 1e-5).epsilon)


def test_exact_counts_void_a_claim_where_counts_are_private(make_task: MakeTask) -> None:
    task = make_task(clients=2, epsilon=1.0, adjacency="add_remove")
    accounted = account(FedPFT(components=1).run(task).transcript, "add_remove", 1e-5)
    assert accounted.epsilon == math.inf
    assert accounted.exact_fields == ("class_counts",)
    published = FedPFT(components=1, mechanism="paper").run(task)
    assert account(published.transcript, "add_remove", 1e-5).epsilon == math.inf


def test_the_guarantee_is_reported_and_says_when_it_is_vacuous(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=300)
    plain, stated = FedPFT(components=3).run(task), FedPFT(components=3, guarantee=True).run(task)
    assert plain.utility == {}
    assert stated.transcript.bytes_up == plain.transcript.bytes_up
    # 64 features and 15 records a class: nothing can be said.
    assert stated.utility["loss_bounds_vacuous"] == 2
    assert 1 <= stated.utility["loss_bound_smallest"] <= stated.utility["loss_bound_largest"]
    (note,) = (note for note in stated.notes if "Theorem 6.1" in note)
    assert "vacuous (1 or more) at 2 of 2 clients" in note


def test_classes_whose_count_is_noise_are_left_out(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=400, epsilon=2.0, labels_of=[0, 1, 2])
    outcome = FedPFT(components=1, counts="noised").run(task)
    message = _clients(outcome)[0]
    assert len(message.fields["class_counts"].values) == 10
    scale = message.fields["class_counts"].release.noise_scale[0]  # type: ignore[index]
    _, labels = synthesise([message], task)
    usable = np.flatnonzero(message.fields["class_counts"].values > 2 * scale)
    assert set(labels) == set(usable)
    assert {0, 1, 2} <= set(usable)


@pytest.mark.parametrize("covariance", ["diag", "full", "spherical"])
def test_noise_beyond_the_range_of_the_transport_is_clipped_and_said(covariance: str, make_task: MakeTask) -> None:
    """At epsilon 1e-6 Theorem 4.1's noise is far above what float16 holds; records that are, are still refused."""
    task = make_task(clients=2, records=100, epsilon=1e-6, adjacency=SAME)
    outcome = FedPFT.model_validate({"components": 1, "mechanism": "paper", "covariance": covariance}).run(task)
    for message in _clients(outcome):
        assert message.fields["means"].values.dtype == np.float16
        assert all(np.isfinite(item.values).all() for item in message.fields.values())
    assert any("noised moments are beyond the range of float16 and were clipped" in note for note in outcome.notes)
    assert account(outcome.transcript, SAME, 1e-5).epsilon <= 1e-6
    wide = FedPFT(components=1, mechanism="paper", transport="float32").run(task)
    assert not any("clipped" in note for note in wide.notes)
    plain = make_task(clients=2, records=100)
    client = plain.clients[0]
    large = replace(client, extract=lambda images: client.extract(images) * 1e6)
    with pytest.raises(DataError, match="does not fit float16"):
        FedPFT(components=1).run(replace(plain, clients=(large, plain.clients[1])))


def test_noised_counts_ask_for_no_more_features_than_are_drawn(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedassay.methods.fedpft.messages.MAX_DRAWN", 120)
    task = make_task(clients=2, records=400, epsilon=2.0, labels_of=[0, 1, 2])
    outcome = FedPFT(components=1, counts="noised").run(task)
    _, labels = synthesise(_clients(outcome), task)
    assert len(labels) == 120
    assert any("120 are drawn" in note for note in outcome.notes)
    exact = FedPFT(components=1).run(make_task(clients=2, records=400, epsilon=2.0, adjacency=SAME))
    assert exact.notes == ()
    _, labels = synthesise(_clients(exact), task)
    assert len(labels) == 400


def test_private_accuracy(make_task: MakeTask) -> None:
    plain = make_task(clients=2, records=1000, backbone="small_cnn")
    private = replace(plain, privacy=make_task(epsilon=1.0, adjacency=SAME).privacy)
    tight = _accuracy(FedPFT(components=1).run(private), plain)
    published = _accuracy(FedPFT(components=1, mechanism="paper").run(private), plain)
    assert tight > 0.75
    assert tight >= published
    several = replace(plain, privacy=make_task(epsilon=10.0, adjacency=SAME).privacy)
    assert _accuracy(FedPFT(components=3).run(several), plain) > 0.8


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mechanism": "paper"}, "mechanism paper with 10 components"),
        ({"components": 1, "mechanism": "paper", "counts": "noised"}, "mechanism paper with counts noised"),
        ({"components": 1, "delta": "per_class"}, "delta per_class with mechanism tight"),
    ],
)
def test_wrong_private_parameters(make_task: MakeTask, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        FedPFT(**parameters).run(make_task(epsilon=1.0, adjacency=SAME))


def test_more_components_bring_the_densities_nearer(make_task: MakeTask) -> None:
    """Figure 7: one Gaussian per class is further from the real densities than ten; neither beats real ones."""
    task = make_task(clients=2, records=1200)
    gaps = {k: FedPFT(components=k, densities=True).run(task).utility for k in (1, 10)}
    assert gaps[10]["density_gap"] < gaps[1]["density_gap"]
    assert gaps[1]["density_gap_real"] == gaps[10]["density_gap_real"] < gaps[10]["density_gap"]


def test_noise_that_drowns_every_count_leaves_messages_without_a_head(
    make_task: Callable[..., MethodInput],
) -> None:
    task = make_task(clients=2, epsilon=1e-3, adjacency="add_remove", seed=1)
    outcome = FedPFT(components=1, counts="noised", transport="float32").run(task)
    assert outcome.model is None
    assert {message.sender for message in outcome.transcript.messages} == {client.name for client in task.clients}
    assert any("the noise has drowned the counts" in note for note in outcome.notes)
    assert account(outcome.transcript, "add_remove", 1e-5).epsilon == pytest.approx(1e-3, rel=1e-3)
