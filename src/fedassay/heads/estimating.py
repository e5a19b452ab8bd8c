"""Estimating equations: for a known head, they are linear in the indicators of its training records.

A head W that is fitted to records solves sum_i psi(x_i, y_i; W) = 0 up to terms that do not depend on the records.
For every head here psi is an outer product, a residual of the record times its row of features, so that

    sum_i w_i e_i a_i^T = target + sum_k nu_k free_k,

where w_i is the number of times that candidate i is in the head. The residuals e_i follow from the head that was
sent. The other quantities in the equations (class sizes, means, variances of the records) are computed from the
weights w themselves; those known only up to a factor are left `free`.

Bertran et al. (2024, arXiv 2405.20272) recover the record that was deleted between two such heads from their
difference; Haim et al. (2022, arXiv 2206.07758) fit records to the stationarity of a network. Here the candidates
are known and their weights are unknown: a linear problem for any number of records in the head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from fedassay.heads.linear import LinearHead
from fedassay.support.types import Floats, Ints, Matrix


@dataclass(frozen=True, eq=False)
class Equations:
    """The terms that each of N candidates adds to the equations of a head, and their totals.

    Attributes:
        residuals: e, shape (N, C).
        rows: a, shape (N, D).
        target: The sum over the records, shape (C, D).
        free: Directions along which the target is uncertain, shape (K, C, D).
        slack: Standard deviation of the unknown multiple of each direction in the target, shape (K,); infinite
            where it is unknown.
    """

    residuals: Matrix
    rows: Matrix
    target: Matrix
    free: Matrix
    slack: Matrix

    @property
    def count(self) -> int:
        """Number of scalar equations."""
        return int(self.target.size) - int(np.isinf(self.slack).sum())


def whitened(equations: Equations, covariance: Matrix) -> Equations:
    """Return equations with independent errors of one size in every class.

    Args:
        equations: The equations.
        covariance: Covariance (C, C) of the errors of the classes, up to a factor.
    """
    lower = np.linalg.cholesky(covariance)

    def apart(values: Matrix) -> Matrix:
        return np.asarray(np.linalg.solve(lower, values))

    return replace(
        equations,
        residuals=apart(equations.residuals.T).T,
        target=apart(equations.target),
        free=apart(equations.free),
    )


class Estimator(Protocol):
    """The fit of a head to records: the equations that it solves, and its solution."""

    def fit(self, features: Floats, labels: Ints) -> LinearHead:
        """The head of records with features (n, d) and labels (n,)."""
        ...

    def equations(self, head: LinearHead, features: Floats, labels: Ints, weights: Matrix | None) -> Equations:
        """The equations of a head that was sent, for candidates.

        Args:
            head: The head that was sent.
            features: Features of the candidates, shape (N, d).
            labels: Labels of the candidates, shape (N,).
            weights: Estimated number of times that each candidate is in the head, shape (N,); None: unknown yet.
        """
        ...


def one_hot(labels: Ints, classes: Ints) -> Matrix:
    """Whether a record is of each of the head's classes, shape (n, P)."""
    return np.asarray(labels[:, None] == classes[None, :], np.float64)


def class_means(features: Floats, inside: Matrix, weights: Matrix) -> tuple[Matrix, Matrix]:
    """Weighted means (P, d) and sizes (P,) of classes; at least a thousandth of a record is in each."""
    shares = inside * np.clip(weights, 0.0, 1.0)[:, None]
    sizes = np.maximum(shares.sum(axis=0), 1e-3)
    return np.asarray(shares.T @ features / sizes[:, None]), sizes
