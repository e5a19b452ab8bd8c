"""Gaussian classes with a covariance each: naive Bayes and quadratic discriminants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.support.types import Floats, Ints, Matrix


@dataclass(frozen=True)
class QuadraticHead:
    """Scores log pi_c + log N(f; mu_c, Sigma_c), without the constant that all classes share.

    Attributes:
        classes: Shape (P,), ascending.
        priors: pi, shape (P,), positive.
        means: Shape (P, d).
        covariances: Positive definite, shape (P, d, d); or variances, shape (P, d).
    """

    classes: Ints
    priors: Matrix
    means: Matrix
    covariances: Matrix

    def scores(self, features: Floats) -> Matrix:
        """Scores of features (n, d), shape (n, P)."""
        rows = np.asarray(features, dtype=np.float64)
        found = np.empty((len(rows), len(self.classes)))
        for column, (mean, covariance) in enumerate(zip(self.means, self.covariances, strict=True)):
            away = rows - mean
            if covariance.ndim == 1:
                distance, volume = away**2 @ (1 / covariance), float(np.log(covariance).sum())
            else:
                factor = np.linalg.cholesky(covariance)
                distance = (np.linalg.solve(factor, away.T) ** 2).sum(axis=0)
                volume = 2 * float(np.log(np.diagonal(factor)).sum())
            found[:, column] = np.log(self.priors[column]) - 0.5 * (distance + volume)
        return found

    def predict(self, features: Floats) -> Ints:
        """Classes of features (n, d), shape (n,)."""
        return np.asarray(self.classes[self.scores(features).argmax(axis=1)], dtype=np.int64)
