"""An adversary's knowledge of records in general: a Gaussian for each class, with a common covariance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.support.types import Ints, Matrix


@dataclass(frozen=True)
class Population:
    """The adversary's knowledge of records in general.

    Attributes:
        means: Class means, shape (C, d).
        errors: Variance of each class mean in units of Sigma: 1 over the records behind it, shape (C,).
        values: Eigenvalues of the covariance within classes, shape (d,), positive.
        vectors: Its eigenvectors, in columns.
    """

    means: Matrix
    errors: Matrix
    values: Matrix
    vectors: Matrix

    @property
    def covariance(self) -> Matrix:
        """Sigma, shape (d, d)."""
        return np.asarray((self.vectors * self.values) @ self.vectors.T)


def population_of(features: Matrix, labels: Ints, classes: int) -> Population:
    """Class means and the pooled covariance within classes, shrunk (Ledoit and Wolf 2004).

    A class without records takes the mean of all.
    """
    from sklearn.covariance import ledoit_wolf

    counts = np.bincount(labels, minlength=classes)
    means = np.tile(features.mean(axis=0), (classes, 1))
    for label in np.flatnonzero(counts):
        means[label] = features[labels == label].mean(axis=0)
    covariance, _ = ledoit_wolf(features - means[labels], assume_centered=True)
    covariance = covariance * len(features) / max(1, len(features) - np.count_nonzero(counts))
    values, vectors = np.linalg.eigh(covariance)
    floor = 1e-9 * max(float(values[-1]), 1e-12)
    return Population(means, 1 / np.maximum(counts, 1), np.maximum(values, floor), vectors)
