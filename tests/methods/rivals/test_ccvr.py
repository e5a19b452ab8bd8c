"""CCVR: its statistics against NumPy's, what calibration mends, and one budget for both releases."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from fedassay.contracts.method import MethodInput
from fedassay.exchange.ledger import account, exact_fields
from fedassay.heads.linear import LinearHead
from fedassay.methods.baselines.fedavg import FedAvg, averaged_network
from fedassay.methods.rivals.ccvr import CCVR
from fedassay.methods.rivals.class_statistics import class_statistics, pool
from fedassay.methods.shared.heads import HeadTraining
from fedassay.methods.shared.local_networks import outputs
from fedassay.mixtures.packed import unpack_lower
from fedassay.support.types import Floats, Ints

MakeTask = Callable[..., MethodInput]
QUICK = {"fedavg": {"local_epochs": 3, "width": 9, "bodies": {"name": "mlp", "hidden": 32}}}


def _quick(**params: object) -> CCVR:
    return CCVR.model_validate({**QUICK, **params})


def test_what_is_sent_is_numpys_covariance_of_the_averaged_bodys_features(make_task: MakeTask) -> None:
    task = make_task()
    method = _quick()
    outcome = method.run(task)
    averaged = method.fedavg.run(task)
    body = averaged_network(method.fedavg, averaged, task)[0]
    for client in task.clients:
        (message,) = [m for m in outcome.transcript.messages if m.round == 1 and m.sender == client.name]
        features = outputs(body, client.images)
        received = unpack_lower(message.fields["covariances"].values.astype(np.float64))
        for row, label in enumerate(message.fields["class_ids"].values):
            own = features[client.labels == label]
            assert message.fields["class_counts"].values[row] == len(own)
            np.testing.assert_allclose(message.fields["means"].values[row], own.mean(axis=0), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(received[row], np.cov(own, rowvar=False), rtol=1e-3, atol=1e-5)


def test_pooled_statistics_are_those_of_the_pooled_records() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(90, 5)) + np.arange(5)
    labels = rng.integers(0, 3, 90)
    labels[0] = 3  # a class of one record
    parts = [class_statistics(features[i::4], labels[i::4]) for i in range(4)]
    pooled = pool(parts)
    np.testing.assert_array_equal(pooled.counts, np.bincount(labels))
    for label in range(3):
        own = features[labels == label]
        np.testing.assert_allclose(pooled.means[label], own.mean(axis=0))
        np.testing.assert_allclose(pooled.covariances[label], np.cov(own, rowvar=False))
    assert not pooled.covariances[3].any()


def test_calibration_mends_an_averaged_head(make_task: MakeTask) -> None:
    task = make_task(clients=5, records=1000)
    # Each client has two classes: the averaged head is the part that suffers most.
    pairs = [np.isin(np.concatenate([c.labels for c in task.clients]), [2 * i, 2 * i + 1]) for i in range(5)]
    whole = task.clients[0]
    images = np.concatenate([c.images for c in task.clients])
    labels = np.concatenate([c.labels for c in task.clients])
    clients = tuple(
        replace(whole, name=f"client/{i}", images=images[held], labels=labels[held])
        for i, held in enumerate(pairs)
    )
    task = replace(task, clients=clients)
    outcome = CCVR(fedavg=FedAvg(local_epochs=5)).run(task)
    assert outcome.model is not None
    after = float((outcome.model.predict(task.test) == task.test.labels).mean())
    assert after > outcome.utility["accuracy_before_calibration"] + 0.1


@pytest.mark.long
@pytest.mark.parametrize(("virtual", "expected"), [(None, 400), (700, 700)])
def test_noised_counts_ask_for_no_more_virtual_features_than_are_drawn(
    virtual: int | None, expected: int, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At epsilon 0.001 of 300 records there would be tens of thousands."""
    monkeypatch.setattr("fedassay.methods.rivals.ccvr.MAX_DRAWN", 400)
    drawn, fit = [], HeadTraining.fit

    def counted(self: HeadTraining, features: Floats, labels: Ints, task: MethodInput) -> LinearHead:
        drawn.append(len(labels))
        return fit(self, features, labels, task)

    monkeypatch.setattr(HeadTraining, "fit", counted)
    outcome = _quick(virtual=virtual).run(make_task(epsilon=1e-3))
    assert drawn[0] == pytest.approx(expected, abs=10)  # each of ten classes rounded
    assert any("400 are drawn" in note for note in outcome.notes) == (virtual is None)
    assert _quick().run(make_task(records=600)).notes == ()
    assert drawn[1] == pytest.approx(600, abs=10)


@pytest.mark.long
def test_fedavg_and_statistics_share_one_budget(make_task: MakeTask) -> None:
    task = make_task(epsilon=4.0)
    outcome = _quick().run(task)
    assert 4 * 0.99 <= account(outcome.transcript, "add_remove", 1e-5).epsilon <= 4
    assert exact_fields(outcome.transcript, "add_remove") == ()
    (statistics,) = outcome.mechanisms.values()
    # Half of the squared mu: less than all of it, and what the ledger says of that message.
    messages = tuple(m for m in outcome.transcript.messages if m.round == 1)
    alone = account(replace(outcome.transcript, messages=messages), "add_remove", 1e-5)
    assert alone.mu == pytest.approx(statistics.mu)
    assert alone.epsilon < 4
    assert account(_quick().run(make_task()).transcript, "add_remove", 1e-5).epsilon == math.inf


def test_only_whole_networks_are_calibrated() -> None:
    with pytest.raises(ValidationError, match="must average whole networks"):
        CCVR.model_validate({"fedavg": {"share": "head"}})
