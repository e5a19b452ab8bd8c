"""Generators that clients send with their label histograms: the histogram's noise, and the number of draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.counts import MAX_IMAGES, draws
from fedassay.exchange.release import PrivacyTarget, Release, exact
from fedassay.exchange.transcript import Message
from fedassay.privacy import reruns
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.mechanisms import release_class_counts
from fedassay.privacy.sensitivities import class_counts
from fedassay.support.errors import DataError
from fedassay.support.types import Ints

_Generator = TypeVar("_Generator")


@dataclass(frozen=True)
class HistogramNoise:
    """Noise on a client's label histogram in a private run.

    Attributes:
        target: The run's.
        mu: Gaussian-DP parameter of the release; 0 where counts leave exactly.
        sensitivity: L2 sensitivity of the histogram.
    """

    target: PrivacyTarget
    mu: float
    sensitivity: float

    @property
    def scale(self) -> float:
        """Standard deviation of the noise on each count; 0 where counts leave exactly."""
        return self.sensitivity / self.mu if self.mu else 0.0

    def release(self) -> Release:
        """The release of the histogram."""
        if not self.mu:
            return exact("labels")
        return self.target.gaussian(self.scale, self.sensitivity)

    def experiments(self, classes: int) -> dict[str, reruns.Experiment]:
        """The release of counts of so many classes, for audits to rerun; none where no record moves it."""
        if not self.sensitivity:
            return {}
        target = self.target
        found = reruns.class_counts(
            adjacency=target.adjacency, sigma=self.scale, classes=min(classes, 2), unit=target.unit
        )
        return {"label histogram": found}


def histogram_noise(
    target: PrivacyTarget, labels: Literal["noised", "exact"], share: float, classes: int
) -> HistogramNoise:
    """Calibrate the noise on a histogram.

    Args:
        target: A finite epsilon for everything.
        labels: Whether the histogram is noised.
        share: Share of the squared Gaussian-DP parameter that it gets.
        classes: C.
    """
    sensitivity = class_counts(adjacency=target.adjacency, classes=classes).sensitivity
    noised = labels == "noised" and sensitivity > 0
    mu = math.sqrt(share) * mu_of(target.epsilon, target.delta) if noised else 0.0
    return HistogramNoise(target, mu, sensitivity)


def sent_histogram(client: Records, noise: HistogramNoise | None, task: MethodInput) -> NDArray[np.generic]:
    """A client's label histogram (C,): int32 where it leaves exactly, float32 where it is noised."""
    if noise is None or not noise.mu:
        return np.bincount(client.labels, minlength=task.classes).astype(np.int32)
    mechanism = task.mechanism(client.name, 0, "class_counts")
    weights = task.weights(client)
    counts = release_class_counts(client.labels, task.classes, sigma=noise.scale, noise=mechanism, weights=weights)
    return counts.astype(np.float32)


def received_generators(
    method: str, messages: Sequence[Message], make: Callable[[int, Message, Ints], _Generator]
) -> tuple[dict[str, _Generator], tuple[str, ...]]:
    """Return the generator of each client with a positive count in its histogram, and notes on the draws.

    Args:
        method: Registered name, for the error.
        messages: One of each client, in their order, with the field `class_counts`.
        make: Makes the generator of a client from its position, its message and the number of draws of each class.

    Raises:
        DataError: No client's histogram has a positive count.
    """
    asked = draws([message.fields["class_counts"] for message in messages], MAX_IMAGES, "images")
    found = {
        message.sender: make(index, message, counts)
        for index, (message, counts) in enumerate(zip(messages, asked.counts, strict=True))
        if counts.any()
    }
    if not found:
        raise DataError(f"{method}: no client's histogram has a positive count")
    return found, asked.notes
