"""Counts, means and covariances of classes: a client's own, pooled over clients, and under noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.mixtures.bounded import bounded_moments
from fedassay.privacy import reruns
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.mechanisms import Moments, release_class_sums
from fedassay.privacy.postprocess import covariance_from_moments, moments_from_sums
from fedassay.privacy.reruns import Experiment
from fedassay.privacy.sensitivities import class_sums
from fedassay.privacy.symmetric import project_psd
from fedassay.support.errors import DataError
from fedassay.support.types import Floats, Ints, Matrix

GROUP = "statistics"


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Counts, means and covariances of classes.

    Attributes:
        classes: Shape (P,).
        counts: Shape (P,); not whole where noised.
        means: Shape (P, d).
        covariances: Divided by n - 1 (0 for a single record), shape (P, d, d).
    """

    classes: Ints
    counts: Matrix
    means: Matrix
    covariances: Matrix


@dataclass(frozen=True)
class StatisticsNoise:
    """The joint Gaussian mechanism on (count, sum, second-moment sum) of every class."""

    scale: float
    sensitivity: float
    mu: float


def class_statistics(features: Floats, labels: Ints) -> ClassStatistics:
    """Count, mean and covariance of every class present, of features (n, d)."""
    classes, counts = np.unique(labels, return_counts=True)
    width = features.shape[1]
    means, covariances = np.zeros((len(classes), width)), np.zeros((len(classes), width, width))
    for row, (label, count) in enumerate(zip(classes, counts, strict=True)):
        own = features[labels == label].astype(np.float64)
        means[row] = own.mean(axis=0)
        covariances[row] = (own - means[row]).T @ (own - means[row]) / max(count - 1, 1)
    return ClassStatistics(classes.astype(np.int64), counts.astype(np.float64), means, covariances)


def pool(parts: Sequence[ClassStatistics]) -> ClassStatistics:
    """Statistics of all clients' records of each class (Luo et al. 2021, equations 4 and 5).

    Counts below 1, which noise leaves, are left out.

    Raises:
        DataError: No class has a record.
    """
    classes = np.unique(np.concatenate([part.classes[part.counts >= 1] for part in parts]))
    if not len(classes):
        raise DataError("ccvr: no class has a usable count at any client")
    width = parts[0].means.shape[1]
    counts, sums = np.zeros(len(classes)), np.zeros((len(classes), width))
    second = np.zeros((len(classes), width, width))
    for part in parts:
        kept = part.counts >= 1
        rows, own, means = np.searchsorted(classes, part.classes[kept]), part.counts[kept], part.means[kept]
        counts[rows] += own
        sums[rows] += own[:, None] * means
        second[rows] += (own - 1)[:, None, None] * part.covariances[kept]
        second[rows] += own[:, None, None] * means[:, :, None] * means[:, None, :]
    means = sums / counts[:, None]
    scatter = second - counts[:, None, None] * means[:, :, None] * means[:, None, :]
    return ClassStatistics(classes, counts, means, scatter / np.maximum(counts - 1, 1)[:, None, None])


def statistics_noise(share: float, task: MethodInput) -> StatisticsNoise | None:
    """The noise that a share of the squared Gaussian-DP parameter pays for; None without privacy."""
    if not task.privacy.private:
        return None
    mu = math.sqrt(share) * mu_of(task.privacy.epsilon, task.privacy.delta)
    # The exact sensitivity depends on the width no more than on being above one.
    sensitivity = class_sums(2, adjacency=task.privacy.adjacency, classes=task.classes).sensitivity
    return StatisticsNoise(sensitivity / mu, sensitivity, mu)


def noised_statistics(
    features: Floats, client: Records, noise: StatisticsNoise, number: int, task: MethodInput
) -> ClassStatistics:
    """Usable statistics of all classes from the noised release of a round (post-processing: see `postprocess`)."""
    released = release_class_sums(
        features,
        client.labels,
        task.classes,
        sigmas=(noise.scale,) * 3,
        noise=task.mechanism(client.name, number, GROUP),
        weights=task.weights(client),
    )
    usable = moments_from_sums(*released)
    bounded = Moments(*bounded_moments(usable.means, usable.second, "full"))
    covariances = project_psd(covariance_from_moments(bounded, "full"))
    return ClassStatistics(np.arange(task.classes), released.counts, bounded.mean, covariances)


def experiment_of(noise: StatisticsNoise, task: MethodInput) -> Experiment:
    """The noised statistics on neighbours, for an audit."""
    asked = task.privacy
    return reruns.class_sums(adjacency=asked.adjacency, sigmas=(noise.scale,) * 3, unit=asked.unit)
