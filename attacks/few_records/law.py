"""Law of the features of one class, from the attacker's own images: class means and one common precision.

Features that end in a rectifier are skewed, and mostly 0. Their square roots are closer to a Gaussian: on
SqueezeNet's features of photographs the pairs come back with half the error that the features themselves leave.

Source: the covariance is shrunk as in Ledoit and Wolf, "A well-conditioned estimator for large-dimensional
covariance matrices", 2004.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.support.types import Ints, Matrix

_STEADY = 1e-2
"""Share of the mean spread that is added to each feature's: one that never varied is not known to be fixed."""


@dataclass(frozen=True, eq=False)
class ClassLaw:
    """The law of features within a class.

    Attributes:
        means: Class means of transformed features, shape (C, d).
        precision: Inverse covariance within a class, shape (d, d).
        nonnegative: Whether features are never negative, and transformed by the square root.
    """

    means: Matrix
    precision: Matrix
    nonnegative: bool

    def transformed(self, features: Matrix) -> Matrix:
        """Features as the law speaks of them."""
        return np.sqrt(np.maximum(features, 0)) if self.nonnegative else features


def class_law(features: Matrix, labels: Ints, classes: int) -> ClassLaw:
    """Fit the law to the attacker's own features.

    Args:
        features: Shape (n, d), n at least 2.
        labels: Shape (n,).
        classes: Number of classes C; one without any image gets the mean of all.
    """
    from sklearn.covariance import ledoit_wolf

    nonnegative = bool(features.min(initial=0.0) >= -1e-6 * np.abs(features).max(initial=0.0))
    seen = np.sqrt(np.maximum(features, 0)) if nonnegative else features
    means = np.repeat(seen.mean(axis=0, keepdims=True), classes, axis=0)
    for label in np.unique(labels):
        means[label] = seen[labels == label].mean(axis=0)
    rest = seen - means[labels]
    spread = rest.std(axis=0)
    spread = spread + max(_STEADY * float(spread.mean()), np.finfo(float).tiny)
    covariance, _ = ledoit_wolf(rest / spread)
    precision = np.linalg.inv(covariance) / spread[:, None] / spread
    return ClassLaw(means, precision, nonnegative)
