"""FedLog: its statistic, its sensitivity, what its ledger adds up to, and what it does with bad input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import fedassay.methods.shared.rounds as rounds_module
from fedassay.contracts.method import MethodInput, Outcome, nonprivate_form
from fedassay.data.records import Records
from fedassay.exchange.blocks import OfImages
from fedassay.exchange.ledger import account, ledger_rows
from fedassay.exchange.release import PrivacyClaim, PrivacyTarget
from fedassay.exchange.transcript import SERVER, Message, Transcript
from fedassay.heads.exponential import map_head
from fedassay.methods.baselines.fedavg import FedAvg
from fedassay.methods.fedlog.bodies import Shared, body_loss, dropping
from fedassay.methods.fedlog.messages import as_sent, upload
from fedassay.methods.fedlog.method import FedLog
from fedassay.methods.fedlog.private import (
    Body,
    BodyTraining,
    Mechanism,
    Statistic,
    clamped,
    class_means,
    protection,
)
from fedassay.methods.shared.dp_sgd import DpSgd
from fedassay.methods.shared.rounds import summary
from fedassay.nets.dp_sgd.tape import Training
from fedassay.privacy.gaussian import epsilon_of, mu_of
from fedassay.privacy.mechanisms import release_fedlog_sums
from fedassay.privacy.reruns import llr_scores
from fedassay.privacy.sensitivities import fedlog_sums
from fedassay.privacy.tape import FreeNoise
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import DataError, PlanError
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
QUICK = {"rounds": 2, "local_epochs": 1, "width": 6, "bodies": {"name": "mlp", "hidden": 16}}
WHOLE = {"sampling_rate": 1.0}  # DP-SGD on whole batches: a Gaussian mechanism, accounted in no time


def _quick(**params: object) -> FedLog:
    return FedLog.model_validate({**QUICK, **params})


def _empty(client: Records) -> Records:
    return client.take(np.zeros(0, np.int64))


def _of_client(outcome: Outcome, name: str) -> list[Message]:
    return [message for message in outcome.transcript.messages if message.sender == name]


def _released(
    *,
    mechanism: Mechanism,
    rounds: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "add_remove",
    body: Body = "public",
    records: bool = False,
    width: int = 6,
) -> Transcript:
    """The transcript of one client's uploads, without any training: the ledger reads nothing else."""
    target = PrivacyTarget(epsilon=epsilon, delta=delta, adjacency=adjacency)
    statistic = Statistic(
        rounds=rounds, width=width, clip=2.0, classes=10, clients=3, mechanism=mechanism, counts=records
    )
    bodies = BodyTraining(body=body, epochs=1, batch=8, dp_sgd=DpSgd(sampling_rate=1.0), share=0.5)
    protected = protection(target, statistic, bodies)
    client = Records(
        "client/0", np.zeros((4, 8, 8, 1), np.uint8), np.arange(4), lambda images: images.reshape(4, -1)
    )
    sent = as_sent(client, np.zeros((10, width)), protected)
    claim = PrivacyClaim(epsilon=epsilon, delta=delta, adjacency=adjacency, source=protected.source)
    return Transcript("fedlog", 10, tuple(upload(k, client, sent, protected) for k in range(rounds)), claim)


# The bodies


@pytest.mark.parametrize(
    ("params", "epsilon", "signed"),
    [
        ({}, math.inf, False),
        ({"activation": "none"}, math.inf, True),
        ({"body": "private"}, 1e6, True),
        ({"body": "private", "activation": "relu"}, 1e6, False),
    ],
)
def test_bodies_end_in_a_relu_but_for_private_ones(
    make_task: MakeTask, params: dict[str, object], epsilon: float, signed: bool
) -> None:
    outcome = _quick(**params).run(make_task(epsilon=epsilon))
    sums = [m.fields["sums"].values for m in outcome.transcript.messages if m.sender != SERVER]
    assert (np.concatenate(sums).min() < -0.1) == signed


def test_a_control_of_a_private_run_sums_what_public_bodies_say_of_records(make_task: MakeTask) -> None:
    """Without it no control of FedLog's private run could be read, and its attack would say nothing for ever."""
    task = make_task(epsilon=2.0)
    exact = replace(task, privacy=task.privacy.model_copy(update={"epsilon": math.inf}))
    method = _quick(rounds=1)
    for private, form in ((True, nonprivate_form(method, True)), (False, nonprivate_form(method, False))):
        outcome = form.run(exact)
        assert (outcome.enters is not None) == private
        if outcome.enters is None:
            continue
        sent = next(m for m in outcome.transcript.messages if m.sender == task.clients[0].name and m.fields)
        (block,) = [each for each in outcome.enters(sent, task.classes) if isinstance(each.of, OfImages)]
        assert isinstance(block.of, OfImages)
        vectors = block.of.vectors(task.clients[0].images)
        held = np.stack([vectors[task.clients[0].labels == label].sum(axis=0) for label in range(task.classes)])
        np.testing.assert_allclose(block.total, held, atol=1e-4)


@pytest.mark.parametrize("body", ["private", "dp_sgd"])
def test_bodies_of_private_records_are_those_of_a_control_too(make_task: MakeTask, body: Body) -> None:
    form = nonprivate_form(_quick(rounds=1, body=body), True)
    assert form.run(make_task(epsilon=math.inf)).enters is None


def test_dropout_is_the_authors_and_comes_before_the_clip() -> None:
    drop = dropping(0.5, 3)
    assert drop is not None
    features = torch.full((4000, 1), 1.5)
    given = drop(features)
    assert set(given.flatten().tolist()) == {0.0, 3.0}
    assert abs(float((given == 0).float().mean()) - 0.5) < 0.04
    shared = Shared(np.array([[0.0, 1.0], [0.0, -1.0]], np.float32))
    loss = body_loss(shared, clip=2.0, through=False, alpha=0, beta=0, device="cpu", drop=dropping(0.5, 3))
    found = loss(features, torch.zeros(len(features), dtype=torch.int64))
    expected = torch.where(given[:, 0] > 0, math.log1p(math.exp(-4.0)), math.log(2.0))
    torch.testing.assert_close(found, expected)


def test_dropout_is_a_half_by_default_and_seeded(make_task: MakeTask) -> None:
    default, half, none = (_quick(**given).run(make_task()) for given in ({}, {"dropout": 0.5}, {"dropout": 0}))
    heads = [outcome.transcript.messages[-1].fields["eta"].values for outcome in (default, half, none)]
    np.testing.assert_array_equal(heads[0], heads[1])
    assert np.abs(heads[0] - heads[2]).max() > 1e-3


def test_dp_sgd_bodies_take_no_dropout(make_task: MakeTask) -> None:
    task = make_task(epsilon=8.0)
    with pytest.raises(PlanError, match=r"dropout 0\.5 with body dp_sgd"):
        _quick(body="dp_sgd", dropout=0.5).run(task)


# The statistic and the head


def test_the_statistic_is_the_naive_sum_over_records() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(50, 5)) * 3, rng.integers(0, 4, 50)
    naive = np.zeros((4, 6))
    for z, y in zip(features, labels, strict=True):
        naive += np.kron(np.eye(4)[y], np.concatenate([[1.0], np.clip(z, -2, 2)])).reshape(4, 6)
    found = release_fedlog_sums(features, labels, 4, clip=2.0, sigma=0.0, noise=FreeNoise(rng))
    np.testing.assert_allclose(found, naive, rtol=1e-12)


def test_without_privacy_counts_are_the_label_histogram(make_task: MakeTask) -> None:
    task = make_task()
    outcome = _quick().run(task)
    for client in task.clients:
        for message in _of_client(outcome, client.name):
            expected = np.bincount(client.labels, minlength=10)
            np.testing.assert_array_equal(message.fields["counts"].values, expected)
            assert message.fields["sums"].values.shape == (10, 5)


@pytest.mark.parametrize("epsilon", [math.inf, 5.0])
def test_clients_of_fedlog_c_solve_for_the_servers_head(make_task: MakeTask, epsilon: float) -> None:
    """The broadcast of the last round gives the head that the final model predicts with."""
    task = make_task(epsilon=epsilon)
    outcome = _quick(variant="c").run(task)
    plain = _quick(variant="plain", rounds=1).run(task)
    one = _quick(variant="c", rounds=1).run(task)  # the first round has no means: both variants are one
    last = [message for message in one.transcript.messages if message.sender == SERVER][-1]
    statistic, weight = clamped(np.column_stack([last.fields["counts"].values, last.fields["sums"].values]), None)
    head = plain.transcript.messages[-1].fields["eta"].values
    np.testing.assert_allclose(map_head(statistic, weight).eta, head, rtol=1e-5, atol=1e-6)
    assert {"counts", "sums"} == set(outcome.transcript.messages[-1].fields)


def test_the_loss_of_fedlog_c_is_that_of_equation_15() -> None:
    rng = np.random.default_rng(0)
    eta, means = rng.normal(size=(3, 5)).astype(np.float32), rng.normal(size=(3, 4))
    features, labels = rng.normal(size=(7, 4)).astype(np.float32), rng.integers(0, 3, 7)
    shared = Shared(eta, means, np.array([True, False, True]))
    loss = body_loss(shared, clip=None, through=False, alpha=0.3, beta=0.1, device="cpu")
    naive = []
    for z, y in zip(features, labels, strict=True):
        logits = eta @ np.concatenate([[1.0], z])
        distances = [((z - means[c]) ** 2).sum() if shared.known[c] else 0.0 for c in range(3)]
        others = sum(distances[c] for c in range(3) if c != y)
        naive.append(np.log(np.exp(logits).sum()) - logits[y] + 0.3 * distances[y] - 0.1 * others)
    found = loss(torch.tensor(features), torch.tensor(labels))
    np.testing.assert_allclose(found.numpy(), naive, rtol=1e-4)


@pytest.mark.parametrize("through", [True, False])
def test_gradients_pass_through_the_clip_or_not(through: bool) -> None:
    shared = Shared(np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32))
    features = torch.tensor([[5.0, 0.5]], requires_grad=True)
    loss = body_loss(shared, clip=2.0, through=through, alpha=0, beta=0, device="cpu")
    value = loss(features, torch.tensor([1]))
    inside = loss(torch.tensor([[2.0, 0.5]]), torch.tensor([1]))
    torch.testing.assert_close(value.detach(), inside)
    value.sum().backward()
    assert features.grad is not None
    assert (features.grad[0, 0] != 0).item() is through
    assert features.grad[0, 1] != 0


# Sensitivity and accounting


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.integers(2, 9),
    clip=st.floats(0.1, 5),
    adjacency=st.sampled_from(["add_remove", "replace_one", "replace_one_same_label"]),
)
def test_no_record_moves_the_statistic_by_more_than_its_sensitivity(
    seed: int, width: int, clip: float, adjacency: Adjacency
) -> None:
    """Features of any size and either sign, at a body that is held fixed."""
    rng = np.random.default_rng(seed)
    features = rng.standard_cauchy(size=(6, width - 1)) * 10
    labels = rng.integers(0, 3, 6)
    other, other_labels = features.copy(), labels.copy()
    if adjacency == "add_remove":
        other, other_labels = other[:-1], other_labels[:-1]
    else:
        other[-1] = rng.standard_cauchy(size=width - 1) * 10
        if adjacency == "replace_one":
            other_labels[-1] = rng.integers(0, 3)
    one, two = (
        release_fedlog_sums(x, y, 3, clip=clip, sigma=0.0, noise=FreeNoise(rng))
        for x, y in ((features, labels), (other, other_labels))
    )
    bound = fedlog_sums(width, clip, adjacency=adjacency, classes=3).sensitivity
    assert np.linalg.norm(one - two) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("rounds", [1, 7, 101])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "replace_one_same_label"])
def test_tight_noise_composes_to_exactly_what_was_asked(rounds: int, adjacency: Adjacency) -> None:
    sent = _released(mechanism="tight", rounds=rounds, epsilon=0.5, delta=0.01, adjacency=adjacency)
    found = account(sent, adjacency, 0.01)
    assert found.epsilon == pytest.approx(0.5, rel=1e-9)
    assert found.mu == pytest.approx(mu_of(0.5, 0.01), rel=1e-9)


def test_the_released_code_does_not_compose() -> None:
    """101 releases at a nominal 0.5 each, delta 0.01: really 4.46."""
    sent = _released(mechanism="released_code", rounds=101, epsilon=0.5, delta=0.01)
    assert account(sent, "add_remove", 0.01).epsilon == pytest.approx(4.46, abs=0.005)
    mu = 0.5 / math.sqrt(2 * math.log(125)) * math.sqrt(101)
    assert account(sent, "add_remove", 0.01).mu == pytest.approx(mu, rel=1e-9)


@pytest.mark.parametrize("rounds", [1, 101])
def test_theorem_4_is_loose(rounds: int) -> None:
    """A nominal 0.5 at delta 0.01 is really 0.076, whatever the number of rounds."""
    sent = _released(mechanism="paper", rounds=rounds, epsilon=0.5, delta=0.01)
    assert account(sent, "add_remove", 0.01).epsilon == pytest.approx(0.076, abs=0.0005)


def test_published_sensitivities_are_stated_beside_the_exact_ones() -> None:
    """Theorem 4 is for add_remove; under replace_one its noise covers less than it states."""
    sent = _released(mechanism="paper", rounds=3, epsilon=5, delta=0.01, adjacency="replace_one")
    found = account(sent, "replace_one", 0.01)
    assert found.epsilon > found.epsilon_stated
    release = sent.messages[0].fields["sums"].release
    assert release.stated_sensitivity == pytest.approx((math.sqrt(1 + 5 * 4),))
    assert release.sensitivity == pytest.approx((2 * 2 * math.sqrt(5),))


def test_a_body_trained_on_the_records_is_unbounded() -> None:
    sent = _released(mechanism="tight", rounds=2, epsilon=5, delta=0.01, body="private")
    found = account(sent, "add_remove", 0.01)
    assert found.epsilon == math.inf
    assert found.exact_fields == ("body_dependence",)
    rows = {row.field: row for row in ledger_rows(sent, "add_remove")}
    assert rows["body_dependence"].nbytes == 0
    assert "Theorem 4 holds the body fixed" in rows["body_dependence"].note
    assert not rows["sums"].exact


def test_exact_counts_are_unbounded_where_the_number_of_records_is_private() -> None:
    sent = _released(mechanism="tight", rounds=2, epsilon=5, delta=0.01, records=True)
    assert account(sent, "add_remove", 0.01).epsilon == math.inf
    assert account(sent, "add_remove", 0.01).exact_fields == ("records",)


@pytest.mark.parametrize("adjacency", ["replace_one", "replace_one_same_label"])
def test_the_number_of_records_is_public_where_records_are_replaced(adjacency: Adjacency) -> None:
    sent = _released(mechanism="tight", rounds=2, epsilon=5, delta=0.01, records=True, adjacency=adjacency)
    assert account(sent, adjacency, 0.01).epsilon == pytest.approx(5, rel=1e-9)
    assert account(sent, adjacency, 0.01).exact_fields == ()


@pytest.mark.parametrize("rounds", [1, 4])
def test_private_bodies_and_statistics_share_one_budget(rounds: int) -> None:
    sent = _released(mechanism="tight", rounds=rounds, epsilon=5, delta=0.01, body="dp_sgd")
    assert 5 * 0.998 <= account(sent, "add_remove", 0.01).epsilon <= 5
    release = sent.messages[0].fields["body_dependence"].release
    assert (release.mechanism, release.steps, release.sampling_rate) == ("dp_sgd", 1, 1.0)
    scale = sent.messages[0].fields["sums"].release.noise_scale
    assert scale is not None
    # Half of mu^2 goes to each.
    assert scale[0] * mu_of(5, 0.01) * math.sqrt(0.5) == pytest.approx(math.sqrt(21 * rounds), rel=1e-9)


@pytest.mark.parametrize("noise", ["local", "central"])
@pytest.mark.parametrize("body", ["public", "dp_sgd"])
def test_a_whole_private_run_keeps_its_claim(make_task: MakeTask, noise: str, body: str) -> None:
    task = make_task(epsilon=2.0, delta=1e-3)
    outcome = _quick(noise=noise, body=body, dp_sgd=WHOLE, variant="c").run(task)
    found = account(outcome.transcript, "add_remove", 1e-3)
    assert found.epsilon == pytest.approx(2.0, rel=2e-3)
    assert found.epsilon <= 2.0 * (1 + 1e-9)
    assert isinstance(outcome.transcript.claim, PrivacyClaim)
    secure = {item.secure for message in _of_client(outcome, "client/0") for item in message.fields.values()}
    assert (True in secure) == (noise == "central")


def test_central_shares_add_up_to_the_noise_of_the_sum(make_task: MakeTask) -> None:
    """Summed over clients without records, T is nothing but the noise that is accounted."""
    task = make_task(epsilon=1.0, delta=1e-3)
    keep = dataclasses.replace(task, clients=(task.clients[0], *(_empty(c) for c in task.clients[1:])))
    scales = {}
    for noise in ("local", "central"):
        outcome = _quick(noise=noise, width=300, rounds=1).run(keep)
        message = _of_client(outcome, "client/1")[0]
        accounted = message.fields["sums"].release.noise_scale
        assert accounted is not None
        scales[noise] = message.fields["sums"].values.std() / accounted[0]
    assert scales["local"] == pytest.approx(1.0, abs=0.05)
    assert scales["central"] == pytest.approx(3**-0.5, abs=0.03)


def test_derived_counts_never_leave_exactly(make_task: MakeTask) -> None:
    """Nothing that a client sends with counts: from_noised is its number of records, or a function of it."""
    task = make_task(epsilon=5.0)
    for body in ("public", "dp_sgd", "private"):
        for client in task.clients:
            sent = _of_client(_quick(body=body, dp_sgd=WHOLE).run(task), client.name)
            histogram = np.bincount(client.labels, minlength=10)
            for message in sent:
                assert "records" not in message.fields
                counts = message.fields["counts"].values
                assert counts.dtype.kind == "f"
                assert np.abs(counts - histogram).min() > 1e-6
                assert abs(counts.sum() - len(client)) > 1e-6


def test_exact_counts_travel_beside_the_noised_statistic(make_task: MakeTask) -> None:
    task = make_task(epsilon=5.0)
    outcome = _quick(counts="exact").run(task)
    for client in task.clients:
        for message in _of_client(outcome, client.name):
            assert message.fields["records"].values.tolist() == [len(client)]
    assert account(outcome.transcript, "add_remove", 1e-5).exact_fields == ("records",)


# What audits rerun


@pytest.mark.parametrize("mechanism", ["tight", "released_code"])
def test_reruns_have_the_mu_of_all_rounds(make_task: MakeTask, mechanism: str) -> None:
    outcome = _quick(rounds=3, mechanism=mechanism).run(make_task(epsilon=2.0, delta=1e-3))
    (experiment,) = outcome.mechanisms.values()
    accounted = account(outcome.transcript, "add_remove", 1e-3)
    assert experiment.mu == pytest.approx(accounted.mu, rel=1e-9)
    zero, one = llr_scores(experiment, reruns=20_000, rng=np.random.default_rng(0))
    for scores, sign in ((zero, -1), (one, 1)):
        assert scores.std() == pytest.approx(experiment.mu, rel=0.03)
        assert scores.mean() == pytest.approx(sign * experiment.mu**2 / 2, abs=0.03 * experiment.mu)


def test_reruns_tell_exact_counts_apart_with_certainty(make_task: MakeTask) -> None:
    outcome = _quick(counts="exact").run(make_task(epsilon=2.0))
    (experiment,) = outcome.mechanisms.values()
    zero, one = llr_scores(experiment, reruns=100, rng=np.random.default_rng(0))
    assert experiment.mu == math.inf
    assert (zero == -math.inf).all()
    assert (one == math.inf).all()


@pytest.mark.parametrize(
    ("params", "retrained"),
    [
        ({"body": "private", "public_seed": 3}, True),
        ({"body": "private"}, False),
        ({"body": "public", "public_seed": 3}, False),
        ({"body": "dp_sgd", "public_seed": 3, "dp_sgd": WHOLE}, False),
    ],
)
def test_only_a_private_body_of_a_public_seed_can_be_trained_again(
    make_task: MakeTask, params: dict[str, object], retrained: bool
) -> None:
    outcome = _quick(**params).run(make_task(epsilon=2.0))
    assert bool(outcome.retrained) == retrained
    assert bool(outcome.mechanisms) == (params["body"] != "private")


# Post-processing


def test_what_noise_leaves_is_clamped() -> None:
    statistic, weight = clamped(np.array([[-3.0, 4.0], [5.0, -20.0], [0.5, 0.4]]), None)
    np.testing.assert_array_equal(statistic, [[0, 0], [5, -20], [0.5, 0.4]])
    assert weight == 5.5
    means, known = class_means(statistic, 2.0)
    np.testing.assert_array_equal(known, [False, True, False])
    np.testing.assert_allclose(means, [[0], [-2], [0]])
    assert clamped(np.full((2, 2), -1.0), None)[1] == 1.0
    assert clamped(np.full((2, 2), -1.0), 40.0)[1] == 40.0


@pytest.mark.parametrize("mechanism", ["tight", "paper", "released_code"])
@pytest.mark.parametrize("variant", ["plain", "c"])
def test_noise_beyond_all_signal_leaves_finite_numbers(make_task: MakeTask, mechanism: str, variant: str) -> None:
    task = make_task(epsilon=1e-3, records=30)
    outcome = _quick(mechanism=mechanism, variant=variant).run(task)
    for message in outcome.transcript.messages:
        for item in message.fields.values():
            assert np.isfinite(item.values).all()
    assert outcome.model is not None
    assert set(np.unique(outcome.model.predict(task.test))) <= set(range(10))


# Bodies, rounds, resuming


def test_bodies_of_any_architecture_share_one_head(make_task: MakeTask) -> None:
    task = make_task(clients=4)
    bodies = ["linear", "mlp", "mlp_deep", "cnn"]
    outcome = _quick(bodies=bodies, width=16, rounds=3, local_epochs=8, dropout=0).run(task)
    assert {m.fields["sums"].values.shape for m in outcome.transcript.from_clients()} == {(10, 15)}
    assert outcome.utility["personalized_accuracy"] > 0.6


def test_own_initialisations_differ(make_task: MakeTask) -> None:
    task = make_task()
    same = dataclasses.replace(
        task, clients=tuple(task.clients[0].take(np.arange(50), c.name) for c in task.clients)
    )
    for start, alike in (("shared", True), ("own", False)):
        # No training to speak of: what differs is where bodies start from.
        sent = _quick(rounds=1, initialization=start, learning_rate=1e-12).run(same).transcript.from_clients()
        first, second, _ = (message.fields["sums"].values for message in sent)
        assert np.allclose(first, second, rtol=1e-3) == alike


@pytest.mark.parametrize(("seed", "alike"), [(7, True), (None, False)])
def test_a_public_seed_fixes_everything_but_the_noise(make_task: MakeTask, seed: int | None, alike: bool) -> None:
    def sent(run: int) -> np.ndarray:
        task = dataclasses.replace(make_task(epsilon=1e9, delta=0.1), seeds=Seeds(run))
        outcome = _quick(body="private", public_seed=seed, rounds=1).run(task)
        return _of_client(outcome, "client/0")[0].fields["sums"].values

    first, second = sent(0), sent(1)
    assert not np.array_equal(first, second)
    assert np.allclose(first, second, atol=0.05) == alike


def test_dp_sgd_never_draws_from_the_public_seed(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def spy(training: Training, _persons: object) -> None:
        mechanism = training.mechanism
        drawn.append(
            (
                mechanism.noise.integer("root"),
                mechanism.hidden_randomness.integer("root"),
                mechanism.key,
            )
        )

    monkeypatch.setattr("fedassay.methods.shared.local_networks.train_privately", spy)
    for run in (0, 1):
        task = dataclasses.replace(make_task(epsilon=5.0), seeds=Seeds(run))
        _quick(body="dp_sgd", public_seed=7, dp_sgd=WHOLE).run(task)
    assert len(set(drawn)) == len(drawn) == 2 * 2 * 3


def test_bytes_to_target_are_those_sent_until_then(make_task: MakeTask) -> None:
    task = make_task()
    outcome = _quick(rounds=6, local_epochs=4, target=0.5).run(task)
    rounds = outcome.utility["rounds_to_target"]
    assert 1 <= rounds <= 6
    # One broadcast to start with, and in every round one message each way and client.
    sent = outcome.transcript.messages[: int(3 + 6 * rounds)]
    assert outcome.utility["bytes_to_target"] == sum(message.nbytes for message in sent)
    missed = _quick(target=1.0).run(task)
    assert "rounds_to_target" not in missed.utility
    assert any("target 1 was not reached in 2 rounds" in note for note in missed.notes)


def test_accuracy_is_measured_when_it_is_due_and_at_the_end(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = _quick(rounds=5).run(make_task())
    seen = []
    monkeypatch.setattr(
        rounds_module, "summary", lambda history, target: seen.append(history) or summary(history, target)
    )
    rare = _quick(rounds=5, measure_every=2).run(make_task())
    assert [entry.accuracy is not None for entry in seen[0]] == [False, True, False, True, True]
    assert rare.utility["personalized_accuracy"] == every.utility["personalized_accuracy"]


@pytest.mark.parametrize(("variant", "epsilon"), [("plain", math.inf), ("c", math.inf), ("c", 5.0)])
def test_a_resumed_run_is_an_uninterrupted_one(
    make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str, epsilon: float
) -> None:
    task = make_task(epsilon=epsilon, records=90)
    method = _quick(variant=variant, rounds=4, body="private", counts="exact")
    whole = method.run(task)
    kept = rounds_module.keep_round

    def interrupted(task: MethodInput, run: str, number: int, *rest: object) -> None:
        if number == 2:
            raise KeyboardInterrupt
        kept(task, run, number, *rest)

    resumable = dataclasses.replace(task, scratch=tmp_path)
    monkeypatch.setattr(rounds_module, "keep_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        method.run(resumable)
    monkeypatch.undo()
    trained = []
    monkeypatch.setattr(
        FedLog, "_round", lambda self, number, *rest: trained.append(number) or _round(self, number, *rest)
    )
    again = method.run(resumable)
    assert trained == [2, 3]
    assert [m.serialized for m in again.transcript.messages] == [m.serialized for m in whole.transcript.messages]
    assert again.utility == whole.utility
    np.testing.assert_array_equal(again.model.predict(task.test), whole.model.predict(task.test))


_round = FedLog._round


@pytest.mark.parametrize("change", ["parameters", "records", "damage"])
def test_rounds_of_another_run_are_not_continued(make_task: MakeTask, tmp_path: Path, change: str) -> None:
    task = dataclasses.replace(make_task(records=60), scratch=tmp_path)
    _quick().run(task)
    method = _quick(local_epochs=2) if change == "parameters" else _quick()
    if change == "records":
        task = dataclasses.replace(make_task(records=57), scratch=tmp_path)
    if change == "damage":
        (tmp_path / "round-00001.safetensors").write_bytes(b"not a file of tensors")
    fresh = method.run(dataclasses.replace(task, scratch=None))
    assert [m.serialized for m in method.run(task).transcript.messages] == [
        m.serialized for m in fresh.transcript.messages
    ]


# Bad input


@pytest.mark.parametrize("variant", ["plain", "c"])
@pytest.mark.parametrize("body", ["private", "public", "dp_sgd"])
def test_clients_with_little_or_nothing(make_task: MakeTask, body: str, variant: str) -> None:
    """One without records, one of one class, one with a record of each class; with and without noise."""
    for epsilon in (math.inf, 5.0):
        task = make_task(epsilon=epsilon)
        first, second, third = task.clients
        each = np.array([np.flatnonzero(third.labels == c)[0] for c in range(10)])
        odd = (_empty(first), second.take(np.flatnonzero(second.labels == 3)), third.take(each))
        outcome = _quick(body=body, variant=variant, dp_sgd=WHOLE).run(dataclasses.replace(task, clients=odd))
        assert outcome.utility["personalized_accuracy"] > 0
        assert len(_of_client(outcome, "client/0")) == 2
        assert outcome.model is not None
        for message in outcome.transcript.messages:
            for item in message.fields.values():
                assert np.isfinite(item.values).all()
        if epsilon == math.inf:
            assert not _of_client(outcome, "client/0")[0].fields["sums"].values.any()
    with pytest.raises(DataError, match="no client has any record"):
        _quick().run(dataclasses.replace(task, clients=(_empty(first),)))


def test_parameters_that_cannot_be() -> None:
    for wrong in ({"rounds": 0}, {"width": 1}, {"bodies": []}, {"bodies": "resnet"}, {"clip": 0}, {"target": 2}):
        with pytest.raises(ValidationError):
            FedLog.model_validate(wrong)
    with pytest.raises(ValidationError, match=r"bodies.1.width: 9 given for cnn; allowed: 6, the width that all"):
        _quick(bodies=["mlp", {"name": "cnn", "width": 9}])


def test_parameters_that_do_not_fit_the_task(make_task: MakeTask) -> None:
    task, private = make_task(), make_task(epsilon=5.0)
    with pytest.raises(PlanError, match="pushed away without end"):
        _quick(variant="c", alpha=0.01, beta=0.01).run(task)
    with pytest.raises(PlanError, match=r"data\.split\.public has no records"):
        _quick().run(dataclasses.replace(private, public=None))
    with pytest.raises(PlanError, match="allowed: mechanism tight"):
        _quick(body="dp_sgd", mechanism="paper").run(private)
    with pytest.raises(PlanError, match="16x16 or larger"):
        _quick(bodies="lenet_mnist").run(task)


def test_a_solver_that_does_not_converge_is_named(make_task: MakeTask) -> None:
    outcome = _quick(tolerance=1e-300).run(make_task())
    assert sum("solver stopped at a relative gradient" in note for note in outcome.notes) == 2
    assert not _quick().run(make_task()).notes


def test_training_that_diverges_is_an_error(make_task: MakeTask) -> None:
    with pytest.raises(DataError, match="NaN or infinite"):
        _quick(learning_rate=1e30, local_epochs=3).run(make_task(records=60))


# What it is good for


@pytest.mark.long
def test_less_is_sent_than_by_federated_averaging_for_more(make_task: MakeTask) -> None:
    """Clients of two classes each: the best that averaging reaches in six rounds, for under 1 % of its bytes."""
    task = make_task(records=600, clients=1)
    pooled = task.clients[0]
    pairs = (pooled.take(np.flatnonzero(pooled.labels // 2 == i), f"client/{i}") for i in range(5))
    task = dataclasses.replace(task, clients=tuple(pairs))
    averaged = FedAvg(rounds=6, local_epochs=3).run(task).utility
    logged = FedLog(rounds=2, target=averaged["best_personalized_accuracy"]).run(task).utility
    assert logged["bytes_to_target"] < 0.01 * averaged["bytes_to_best"]


def test_the_accounted_epsilon_of_a_run_is_its_claim(make_task: MakeTask) -> None:
    outcome = _quick(rounds=3).run(make_task(epsilon=3.0))
    release = _of_client(outcome, "client/0")[0].fields["counts"].release
    assert release.noise_scale is not None
    assert release.sensitivity is not None
    mu = math.sqrt(3) * release.sensitivity[0] / release.noise_scale[0]
    assert epsilon_of(mu, 1e-5) == pytest.approx(3.0, rel=1e-9)
