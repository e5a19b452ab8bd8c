"""Personalized accuracy: the mean of the draws it replaces, and clients that cannot be measured."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.data.records import Records
from fedassay.methods.shared.personalized import personalized_accuracy


def _records(name: str, labels: list[int] | np.ndarray) -> Records:
    chosen = np.asarray(labels, np.int64)
    return Records(
        name, np.zeros((len(chosen), 8, 8, 1), np.uint8), chosen, lambda images: np.zeros((len(images), 1))
    )


def test_it_is_what_draws_with_the_clients_labels_average_to() -> None:
    rng = np.random.default_rng(0)
    test = _records("test", rng.integers(0, 4, 400))
    client = _records("client/0", [0] * 30 + [2] * 10)
    predicted = np.where(rng.random(400) < 0.7, test.labels, 3)
    exact = personalized_accuracy([predicted], [client], test).mean
    labels = rng.choice(client.labels, size=100_000)
    drawn = np.empty(100_000, np.int64)
    for label in (0, 2):
        drawn[labels == label] = rng.choice(np.flatnonzero(test.labels == label), size=(labels == label).sum())
    assert exact == pytest.approx(np.mean(predicted[drawn] == test.labels[drawn]), abs=0.01)


def test_every_client_weighs_the_same() -> None:
    test = _records("test", [0, 0, 1, 1])
    clients = [_records("client/0", [0] * 100), _records("client/1", [1])]
    found = personalized_accuracy([np.array([0, 0, 0, 0]), np.array([0, 0, 1, 0])], clients, test)
    assert found.accuracies == (1.0, 0.5)
    assert found.mean == 0.75


def test_clients_that_cannot_be_measured_are_named() -> None:
    test = _records("test", [0, 0, 1])
    clients = [_records("client/0", []), _records("client/1", [5, 5]), _records("client/2", [0, 5])]
    found = personalized_accuracy([np.array([0, 1, 1])] * 3, clients, test)
    assert found.clients == ("client/0", "client/1")
    assert found.accuracies == (0.5,)
    assert personalized_accuracy([np.array([0, 1, 1])], clients[:1], test).mean is None
