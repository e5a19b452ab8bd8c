"""FedDiff: messages, accuracy, resuming, fallbacks, the budget of a private run."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from opacus.accountants import PRVAccountant
from pydantic import ValidationError

from fedassay.audits.claim.bounds import observe_mechanism
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.ledger import account, exact_fields, ledger_rows
from fedassay.exchange.release import PrivacyClaim, PrivacyTarget
from fedassay.methods.feddiff.method import FedDiff
from fedassay.methods.feddiff.private import DiffusionDpSgd, Filtering, make_budget
from fedassay.methods.feddiff.pydp_law import can_be_observed, pydp_experiment
from fedassay.methods.feddiff.server import GlobalClassifier
from fedassay.nets.generators import (
    GENERATORS,
    Computation,
    flatten_weights,
    received_generator,
    steps_of,
    train_generator,
)
from fedassay.nets.trained import build_network
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import DataError, PlanError
from fedassay.support.progress import SILENT, Progress
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
QUICK: dict[str, Any] = {"epochs": 2, "steps": 4, "classifier": {"epochs": 2}, "dp_sgd": {"epochs": 1, "draws": 1}}


def _quick(**changes: Any) -> FedDiff:
    return FedDiff.model_validate({**QUICK, **changes})


def _bytes(outcome: Outcome) -> list[bytes]:
    return [message.serialized for message in outcome.transcript.messages]


@pytest.mark.long
def test_it_learns_what_averaging_cannot(make_task: MakeTask) -> None:
    """Five clients with two classes each."""
    from fedassay.methods.baselines.fedavg import FedAvg

    task = make_task(clients=1, records=300)
    own = task.clients[0]
    parts = [own.take(np.flatnonzero(own.labels // 2 == number), f"client/{number}") for number in range(5)]
    task = replace(task, clients=tuple(parts))
    accuracies = []
    for method in (FedDiff(epochs=75, steps=10), FedAvg(local_epochs=20)):
        model = method.run(task).model
        assert model is not None
        accuracies.append((model.predict(task.test) == task.test.labels).mean())
    assert accuracies[0] > 0.7
    assert accuracies[0] > accuracies[1] + 0.2


def test_presets_have_the_papers_sizes() -> None:
    """Mendieta et al. 2025, table 3: 5.81 and 1.46 million parameters; images whose sides cannot be halved."""
    sizes = {
        name: sum(p.numel() for p in build_network(GENERATORS[name], (32, 32, 3), 10, seed=0).parameters())
        for name in ("paper", "small")
    }
    assert sizes["paper"] == pytest.approx(5.81e6, rel=0.02)
    assert sizes["small"] == pytest.approx(1.46e6, rel=0.02)
    odd = train_generator(
        np.zeros((2, 9, 11, 1), np.uint8),
        np.array([0, 1]),
        2,
        replace(GENERATORS["small"], batch=2),
        1,
        Computation(0),
    )
    assert odd.image_shape == (9, 11, 1)


def test_weights_survive_the_wire() -> None:
    preset = replace(GENERATORS["tiny"], width=16, embedding=8)
    rng = np.random.default_rng(0)
    model = train_generator(
        rng.integers(0, 256, (5, 8, 8, 1), dtype=np.uint8), np.arange(5), 5, preset, 1, Computation(3)
    )
    sent = flatten_weights(model.weights)
    again = received_generator(sent, preset, (8, 8, 1), 5)
    assert all(np.array_equal(again.weights[name], value) for name, value in model.weights.items())
    with pytest.raises(ValueError, match=rf"weights given; allowed: \({len(sent)},\)"):
        received_generator(sent[1:], preset, (8, 8, 1), 5)


def test_messages_hold_what_they_say(make_task: MakeTask) -> None:
    task = make_task()
    outcome = _quick(fmf="gaussian").run(task)
    message = outcome.transcript.messages[0]
    assert set(message.fields) == {"weights", "class_counts", "magnitude_mean"}
    weights, counts = (message.fields[name].values for name in ("weights", "class_counts"))
    assert np.array_equal(counts, np.bincount(task.clients[0].labels, minlength=10))
    spectrum = np.abs(np.fft.fft2(task.clients[0].images / 255, axes=(1, 2))).mean(axis=0)
    np.testing.assert_allclose(message.fields["magnitude_mean"].values, spectrum, rtol=1e-5)
    # Four bytes a number, and safetensors' framing.
    assert 4 * (len(weights) + 10 + 64) < message.nbytes < 4 * (len(weights) + 10 + 64) + 1000
    assert outcome.communication["paper_bytes_up"] == 4 * 3 * len(weights)
    assert set(outcome.generators) == {client.name for client in task.clients}
    images = outcome.generators["client/0"].sample(7, Seeds(0), SILENT)
    assert images.shape == (7, 8, 8, 1)
    assert images.dtype == np.uint8


def test_a_rerun_makes_its_server_part_when_somebody_asks(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, fitted = make_task(records=60), []
    whole = _quick(fmf="gaussian").run(task)
    assert whole.model is not None
    fit = GlobalClassifier.fit
    monkeypatch.setattr(GlobalClassifier, "fit", lambda *given: fitted.append(given) or fit(*given))
    rerun = _quick(fmf="gaussian").run(replace(task, simulated=True))
    assert _bytes(rerun) == _bytes(whole)
    assert set(rerun.generators) == set(whole.generators)
    assert not fitted
    assert rerun.model is not None
    for _ in range(2):
        assert np.array_equal(rerun.model.predict(task.test), whole.model.predict(task.test))
    assert len(fitted) == 1


def test_clients_may_have_different_generators(make_task: MakeTask) -> None:
    task = make_task(records=60)
    outcome = _quick(preset=["tiny", "small"], epochs=1, batch=64).run(task)
    sizes = [len(message.fields["weights"].values) for message in outcome.transcript.messages]
    assert sizes[0] == sizes[2] != sizes[1]
    assert len(outcome.generators["client/1"].sample(2, Seeds(0), SILENT)) == 2
    with pytest.raises(ValidationError, match="preset"):
        FedDiff.model_validate({"preset": ["tiny", "huge"]})


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [math.inf, 10.0])
def test_a_killed_run_resumes_to_the_same_record(epsilon: float, make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task(epsilon=epsilon, records=90)
    method = _quick(fmf="gaussian", epochs=6, batch=16)
    whole = method.run(task)

    for where in ("generator of client/1", "sampling"):
        with pytest.raises(KeyboardInterrupt):
            method.run(replace(task, scratch=tmp_path, progress=_Stops(where)))
    resumed = method.run(replace(task, scratch=tmp_path, progress=_Stops("generator")))
    assert _bytes(resumed) == _bytes(whole)
    assert resumed.model is not None
    assert whole.model is not None
    assert np.array_equal(resumed.model.predict(task.test), whole.model.predict(task.test))


class _Stops(Progress):
    """Raises in the steps whose name begins so, after some progress."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def step(self, name: str) -> Any:
        """As `Progress.step`."""

        @contextmanager
        def reporting() -> Any:
            def advance(done: int, total: int) -> None:
                if name.startswith(self.where) and done >= 3:
                    raise KeyboardInterrupt

            yield advance

        return reporting()


def test_small_clients(make_task: MakeTask) -> None:
    """One image of a class, fewer images than a batch, and none at all."""
    task = make_task(clients=1, records=60)
    own = task.clients[0]
    few = own.take(np.array([0, 1, 2]), "client/1")
    none = own.take(np.zeros(0, np.int64), "client/2")
    outcome = _quick().run(replace(task, clients=(own, few, none)))
    assert set(outcome.generators) == {"client/0", "client/1"}
    assert len(outcome.transcript.messages) == 3
    assert steps_of(3, GENERATORS["tiny"], 7) == 7
    with pytest.raises(DataError, match="no client has any record"):
        _quick().run(replace(task, clients=(none,)))


@pytest.mark.long
def test_filtering_drops_gamma_percent(make_task: MakeTask) -> None:
    task = make_task()
    for scope in ("client", "pooled"):
        outcome = _quick(fmf="gaussian", gamma=10, gamma_scope=scope).run(task)
        assert outcome.utility["generated_images"] == 270
    assert _quick(fmf="gaussian", gamma=0).run(task).utility["generated_images"] == 300


@pytest.mark.long
def test_the_oracle_keeps_what_it_gets_right(make_task: MakeTask) -> None:
    outcome = _quick(oracle_filter=True, epochs=20, classifier={"epochs": 20}).run(make_task())
    kept = outcome.utility["generated_images"]
    assert 30 < kept < 300
    assert f"{kept / 300:.1%} of the generated images kept" in outcome.notes[0]


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "replace_one_same_label"])
@pytest.mark.parametrize("fmf", ["none", "gaussian", "pydp"])
def test_one_budget_for_everything(adjacency: Adjacency, fmf: str, make_task: MakeTask) -> None:
    task = make_task(epsilon=10.0, adjacency=adjacency, records=30)
    outcome = _quick(fmf=fmf).run(task)
    assert exact_fields(outcome.transcript, adjacency) == ()
    accounted = account(outcome.transcript, adjacency, 1e-5).epsilon
    assert 9.9 < accounted <= 10.0 * (1 + 1e-6)
    row = next(row for row in ledger_rows(outcome.transcript, adjacency) if row.field == "weights")
    assert row.dp_sgd is not None
    assert row.dp_sgd["steps"] == 10
    named = {"label histogram"} if adjacency != "replace_one_same_label" else set()
    assert set(outcome.mechanisms) == named | ({"mean magnitude"} if fmf == "gaussian" else set())


@pytest.mark.long
def test_the_published_composition_of_fmf_is_refuted(make_task: MakeTask) -> None:
    """A share of epsilon for every coordinate, counted once: the ledger adds all up, and an attack sees it."""
    task = make_task(epsilon=10.0, adjacency="add_remove", records=30)
    outcome = _quick(fmf="pydp", fmf_composition="per_coordinate").run(task)
    claim = outcome.transcript.claim
    assert isinstance(claim, PrivacyClaim)
    assert claim.epsilon == 10.0
    assert "counted once" in claim.source
    assert account(outcome.transcript, "add_remove", 1e-5).epsilon > 64 * 0.05 * 10
    seen = observe_mechanism(
        "mean magnitude",
        pydp_experiment(0.5, 3072, (0.0, 1024.0)),
        claimed=10.0,
        delta=1e-4,
        tests=4,
        reruns=5000,
        estimators=("gaussian", "threshold"),
        seeds=Seeds(0),
    )
    assert seen.bounds.judged > 4 * 10
    # By the Gaussian estimate: a bound without assumptions cannot show so much.
    assert all(bound.epsilon is not None for bound in (*seen.bounds.shown, *seen.positive.bounds.shown))
    assert seen.positive.above
    assert not seen.negative.above
    for epsilon, coordinates, expected in (
        (10.0, 3072, True),
        (50.0, 3072, False),
        (10.0, 64, False),
        (1.0, 64, True),
    ):
        target = PrivacyTarget(epsilon=epsilon, delta=1e-4, adjacency="add_remove")
        assert can_be_observed(target, coordinates) == expected


@pytest.mark.long
def test_either_engine_of_dp_sgd_sends_the_same_weights(make_task: MakeTask) -> None:
    task = make_task(clients=1, epsilon=10.0, records=30)
    weights = []
    for engine in ("fast", "opacus"):
        outcome = _quick(dp_sgd={"epochs": 1, "draws": 2, "engine": engine}, labels="exact").run(task)
        weights.append(outcome.transcript.messages[0].fields["weights"].values)
    assert np.abs(weights[0] - weights[1]).max() < 1e-3
    assert np.abs(weights[0]).max() > 0.1


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [math.inf, 10.0])
def test_generators_are_trained_by_the_optimiser_of_the_plan(epsilon: float, make_task: MakeTask) -> None:
    """Without decay AdamW is Adam; SGD's weights are others, and a rate in the key goes before the one beside."""

    def sent(optimizer: dict[str, Any] | None, rate: float) -> NDArray[Any]:
        method = _quick(
            learning_rate=rate,
            optimizer=optimizer,
            dp_sgd={"epochs": 1, "draws": 1, "learning_rate": rate, "optimizer": optimizer},
        )
        outcome = method.run(make_task(clients=1, records=30, epsilon=epsilon))
        return outcome.transcript.messages[0].fields["weights"].values

    plain = sent(None, 1e-3)
    np.testing.assert_allclose(sent({"name": "adamw", "weight_decay": 0.0}, 1e-3), plain, atol=1e-5)
    np.testing.assert_allclose(sent({"name": "adam", "learning_rate": 1e-3}, 0.5), plain, atol=1e-5)
    assert np.abs(sent({"name": "sgd"}, 1e-3) - plain).max() > 1e-3


def test_per_coordinate_is_for_pydp() -> None:
    with pytest.raises(ValidationError, match="per_coordinate given with fmf gaussian"):
        _quick(fmf="gaussian", fmf_composition="per_coordinate")


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1.0, 10.0, 25.0, 50.0])
def test_the_accounted_epsilon_is_opacus_own(epsilon: float, make_task: MakeTask) -> None:
    """With the histogram public everything goes to the weights, and Opacus accounts the whole run."""
    task = make_task(epsilon=epsilon, adjacency="add_remove", records=30)
    outcome = _quick(labels="exact").run(task)
    row = next(row for row in ledger_rows(outcome.transcript, "add_remove") if row.field == "weights")
    assert row.dp_sgd is not None
    accountant = PRVAccountant()
    accountant.history = [(row.dp_sgd["noise_multiplier"], row.dp_sgd["sampling_rate"], int(row.dp_sgd["steps"]))]
    weights_alone = replace(
        outcome.transcript,
        messages=tuple(
            replace(message, fields={"weights": message.fields["weights"]})
            for message in outcome.transcript.messages
        ),
    )
    ours = account(weights_alone, "add_remove", 1e-5).epsilon
    assert ours == pytest.approx(accountant.get_epsilon(delta=1e-5), rel=0.01)
    assert ours == pytest.approx(epsilon, rel=0.01)
    # The histogram itself leaves exactly, and is named.
    assert exact_fields(outcome.transcript, "add_remove") == ("class_counts",)


def test_an_epsilon_that_cannot_be_met() -> None:
    target = PrivacyTarget(epsilon=1e-9, delta=1e-12, adjacency="add_remove")
    with pytest.raises(PlanError, match="epsilon"):
        make_budget(
            target,
            DiffusionDpSgd(),
            labels="noised",
            label_share=0.05,
            filtering=Filtering("none", 0.05, "total", 1.0, 64),
            classes=10,
        )


@pytest.mark.long
@pytest.mark.parametrize("fmf", ["gaussian", "pydp"])
def test_private_clients_without_records_send_noise_all_the_same(make_task: MakeTask, fmf: str) -> None:
    """Under add_remove nothing may tell that a client is empty but what it sends."""
    task = make_task(clients=1, epsilon=5.0, records=20)
    own = task.clients[0]
    none = Records("client/1", own.images[:0], own.labels[:0], own.extract)
    outcome = _quick(fmf=fmf).run(replace(task, clients=(own, none)))
    first, second = outcome.transcript.messages
    assert {name: item.values.shape for name, item in first.fields.items()} == {
        name: item.values.shape for name, item in second.fields.items()
    }
    assert np.ptp(second.fields["magnitude_mean"].values) > 0


@pytest.mark.long
def test_noised_histograms_ask_for_no_more_images_than_are_drawn(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedassay.methods.shared.sent_generators.MAX_IMAGES", 50)
    outcome = _quick().run(make_task(clients=2, records=60, epsilon=1e-3))
    assert sum(int(generator.counts.sum()) for generator in outcome.generators.values()) == 50
    assert outcome.utility["generated_images"] == 50
    assert any("50 are drawn" in note for note in outcome.notes)
    plain = _quick().run(make_task(clients=2, records=60))
    assert plain.utility["generated_images"] == 60
    assert plain.notes == ()
