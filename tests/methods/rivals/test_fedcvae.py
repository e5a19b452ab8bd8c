"""FedCVAE: per-record gradients, the decoder as a generator, privacy, and what the samples teach."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from fedassay.contracts.method import MethodInput
from fedassay.exchange.ledger import account, exact_fields
from fedassay.methods.rivals.fedcvae import FedCVAE
from fedassay.methods.shared.classifiers import Classifiers
from fedassay.nets.cvae import CVAEKind, build_cvae, truncated_normal
from fedassay.nets.dp_sgd.clipped_sums import record_gradients
from fedassay.nets.local_training import record_objective
from fedassay.support.errors import DataError
from fedassay.support.optimisation import Optimizer, chosen
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
LEARNING = {"hidden": 64, "local_epochs": 40, "batch": 16, "learning_rate": 5e-3}
QUICK = {"hidden": 16, "local_epochs": 1, "classifier": {"local_epochs": 1}}


def _bound(found: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return found[:, 0]


@pytest.mark.parametrize("kind", get_args(CVAEKind))
def test_every_records_gradient_is_that_of_autograd(kind: CVAEKind) -> None:
    shape = (9, 8, 2)
    network = build_cvae(shape, 3, latent=4, hidden=6, kind=kind, beta=1.0, seed=0)
    generator = torch.Generator().manual_seed(0)
    rows = torch.cat([torch.rand(5, 144, generator=generator), torch.eye(3)[[0, 1, 2, 0, 1]]], dim=1)
    rows = torch.cat([rows, torch.randn(5, 4, generator=generator)], dim=1)
    labels = torch.tensor([0, 1, 2, 0, 1])
    found = record_gradients(network, record_objective(_bound), (rows, labels))
    for index in range(5):
        network.zero_grad()
        _bound(network(rows[index : index + 1]), labels).sum().backward()
        for name, parameter in network.named_parameters():
            assert parameter.grad is not None
            torch.testing.assert_close(found[name][index], parameter.grad, rtol=1e-4, atol=1e-5)


def test_the_bound_is_the_negative_evidence_lower_bound() -> None:
    network = build_cvae((7, 7, 1), 2, latent=3, hidden=5, kind="dense", beta=1.0, seed=1)
    image, known, noise = torch.rand(1, 49), torch.tensor([[0.0, 1.0]]), torch.randn(1, 3)
    mean, log_variance = network.encoder(torch.cat([image, known], dim=1)).chunk(2, dim=1)
    latent = torch.distributions.Normal(mean, torch.exp(log_variance / 2))
    logits = network.decoder(torch.cat([mean + latent.scale * noise, known], dim=1))
    error = -torch.distributions.Bernoulli(logits=logits, validate_args=False).log_prob(image).sum()
    prior = torch.distributions.Normal(torch.zeros(1, 3), torch.ones(1, 3))
    expected = error + torch.distributions.kl_divergence(latent, prior).sum()
    torch.testing.assert_close(network(torch.cat([image, known, noise], dim=1)).squeeze(), expected)


def test_truncated_normal() -> None:
    drawn = truncated_normal(20_000, 2, 2.0, torch.Generator().manual_seed(0)).double()
    assert drawn.abs().max() <= 2
    # Variance of a standard normal truncated at 2: 1 - 2 * 2 phi(2) / (2 Phi(2) - 1).
    assert float(drawn.var()) == pytest.approx(0.7737, abs=0.02)


@pytest.mark.long
@pytest.mark.parametrize("changes", [{}, {"server": "distill", "distillation_epochs": 60}])
def test_samples_teach_a_classifier(make_task: MakeTask, changes: dict[str, object]) -> None:
    task = make_task(records=600)
    outcome = FedCVAE.model_validate({**LEARNING, **changes}).run(task)
    assert outcome.model is not None
    assert (outcome.model.predict(task.test) == task.test.labels).mean() > 0.6


def test_a_rerun_makes_its_server_part_when_somebody_asks(make_task: MakeTask) -> None:
    task = make_task(records=60)
    whole, rerun = (FedCVAE.model_validate(QUICK).run(replace(task, simulated=own)) for own in (False, True))
    assert whole.model is not None
    assert rerun.model is not None
    sent = [[message.serialized for message in each.transcript.messages] for each in (whole, rerun)]
    assert sent[0] == sent[1]
    assert np.array_equal(rerun.model.predict(task.test), whole.model.predict(task.test))


@pytest.mark.long
def test_generators_sample_images_of_the_senders_classes(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=400, labels_of=[0, 1])
    outcome = FedCVAE.model_validate({**LEARNING, "classifier": {"local_epochs": 1}}).run(task)
    assert set(outcome.generators) == {"client/0", "client/1"}
    generator = outcome.generators["client/0"]
    images = generator.sample(50, Seeds(3), SILENT)
    assert images.shape == (50, 8, 8, 1)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images, generator.sample(50, Seeds(3), SILENT))
    # Nearer to the images it was trained on than to those of other digits.
    others = task.public
    assert others is not None
    strangers = others.take(np.flatnonzero(others.labels > 1)).images
    own = task.clients[0].images

    def nearest(gallery: np.ndarray) -> float:
        apart = images[:, None].astype(float) - gallery[None].astype(float)
        return float(np.sqrt((apart**2).sum(axis=(2, 3, 4))).min(axis=1).mean())

    assert nearest(own) < 0.8 * nearest(strangers)


@pytest.mark.long
def test_a_private_run_has_one_budget_for_decoder_and_histogram(make_task: MakeTask) -> None:
    task = make_task(epsilon=5.0)
    outcome = FedCVAE.model_validate(QUICK).run(task)
    assert 5 * 0.98 <= account(outcome.transcript, "add_remove", 1e-5).epsilon <= 5
    assert exact_fields(outcome.transcript, "add_remove") == ()
    (histogram,) = outcome.mechanisms.values()
    assert 0 < histogram.mu < 1
    told = FedCVAE.model_validate({**QUICK, "labels": "exact"}).run(task)
    assert account(told.transcript, "add_remove", 1e-5).epsilon == math.inf
    assert exact_fields(told.transcript, "add_remove") == ("class_counts",)


@pytest.mark.long
def test_with_labels_public_the_histogram_costs_nothing(make_task: MakeTask) -> None:
    task = make_task(epsilon=5.0, adjacency="replace_one_same_label")
    outcome = FedCVAE.model_validate(QUICK).run(task)
    for client, message in zip(task.clients, outcome.transcript.messages, strict=True):
        expected = np.bincount(client.labels, minlength=10)
        np.testing.assert_array_equal(message.fields["class_counts"].values, expected)
    assert account(outcome.transcript, "replace_one_same_label", 1e-5).epsilon <= 5
    assert not outcome.mechanisms


@pytest.mark.long
@pytest.mark.parametrize("server", ["ensemble", "distill"])
def test_noised_histograms_ask_for_no_more_images_than_are_drawn(
    server: str, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At epsilon 0.001 of 60 records there would be thousands of images, and hours of training on them."""
    monkeypatch.setattr("fedassay.methods.shared.sent_generators.MAX_IMAGES", 300)
    method = FedCVAE.model_validate({**QUICK, "server": server, "distillation_epochs": 1})
    outcome = method.run(make_task(clients=2, records=60, epsilon=1e-3))
    assert sum(int(generator.counts.sum()) for generator in outcome.generators.values()) == 300
    assert any("300 are drawn" in note for note in outcome.notes)
    plain = method.run(make_task(clients=2, records=400))
    assert sum(int(generator.counts.sum()) for generator in plain.generators.values()) == 400
    assert plain.notes == ()


def test_clients_without_records_are_left_out(make_task: MakeTask) -> None:
    task = make_task(records=60)
    nobody = task.clients[0].take(np.zeros(0, np.int64))
    outcome = FedCVAE.model_validate(QUICK).run(replace(task, clients=(nobody, *task.clients[1:])))
    assert set(outcome.generators) == {"client/1", "client/2"}
    with pytest.raises(DataError, match="no client has any record"):
        FedCVAE(classifier=Classifiers()).run(replace(task, clients=(nobody,)))


def test_the_distilled_decoder_follows_the_plans_optimiser(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Optimizer | None] = []

    def spy(given: Optimizer | None) -> Optimizer:
        asked.append(given)
        return chosen(given)

    monkeypatch.setattr("fedassay.methods.rivals.fedcvae.chosen", spy)
    given = {**QUICK, "server": "distill", "distillation_epochs": 1, "optimizer": {"name": "sgd", "momentum": 0.5}}
    FedCVAE.model_validate(given).run(make_task(clients=2, records=60))
    assert asked == [Optimizer(name="sgd", momentum=0.5)]


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [math.inf, 5.0])
def test_residual_networks_are_sent_and_sampled(make_task: MakeTask, epsilon: float) -> None:
    task = make_task(records=45, epsilon=epsilon)
    given = {**QUICK, "decoder": "residual", "optimizer": {"name": "adamw"}}
    outcome = FedCVAE.model_validate(given).run(task)
    network = build_cvae((8, 8, 1), 10, latent=10, hidden=16, kind="residual", beta=1.0, seed=0)
    decoder = sum(parameter.numel() for parameter in network.decoder.parameters())
    assert {message.fields["decoder"].size for message in outcome.transcript.messages} == {decoder}
    images = outcome.generators["client/0"].sample(5, Seeds(0), SILENT)
    assert (images.shape, images.dtype) == ((5, 8, 8, 1), np.uint8)
    if epsilon < math.inf:
        assert 4.9 <= account(outcome.transcript, "add_remove", 1e-5).epsilon <= 5
        assert exact_fields(outcome.transcript, "add_remove") == ()
