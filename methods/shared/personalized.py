"""Accuracy on every client's own distribution of labels: the measure of personalized methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.data.records import Records
from fedassay.support.types import Ints


@dataclass(frozen=True)
class Personalized:
    """Personalized accuracy.

    Attributes:
        mean: Over the clients that could be measured, each weighing the same; None where there are none.
        clients: Names of the clients that could not be: without a record, or of classes that no test
            record has.
        accuracies: Accuracies of the others, in their order.
    """

    mean: float | None
    clients: tuple[str, ...]
    accuracies: tuple[float, ...]


def personalized_accuracy(predicted: Sequence[Ints], clients: Sequence[Records], test: Records) -> Personalized:
    """Expected accuracy of each client's model on test records with the client's own label distribution.

    A client's own test split would be a draw of test records with the labels of its training records. Its accuracy
    is estimated by the expectation over that draw, without a draw: the accuracy on ALL test records of a class,
    weighted by the class's share of the client's records. Classes without a test record are left out.

    Args:
        predicted: For each client, its model's predictions on the test records, shape (n,). Predictions
            on classes that the client does not hold are not looked at.
        clients: Their records.
        test: The test role.
    """
    accuracies, unmeasured = [], []
    classes = 1 + max(int(test.labels.max(initial=-1)), *(int(c.labels.max(initial=-1)) for c in clients))
    available = np.bincount(test.labels, minlength=classes)
    for guesses, client in zip(predicted, clients, strict=True):
        held = np.where(available > 0, np.bincount(client.labels, minlength=classes), 0)
        if not held.any():
            unmeasured.append(client.name)
            continue
        correct = np.bincount(test.labels[guesses == test.labels], minlength=classes)
        rates = correct / np.maximum(available, 1)
        accuracies.append(float(rates @ held / held.sum()))
    mean = float(np.mean(accuracies)) if accuracies else None
    return Personalized(mean, tuple(unmeasured), tuple(accuracies))
