"""The estimating equations of every kind of head that the methods here fit to records.

Heads of sums with Gaussian noise solve the same equations up to an error W N - M, N the symmetric noise on second
moments and M that on class sums, both of variance s^2. Its covariance between classes is s^2 (I + W W^T / 2), by
the head that was sent. The scale of the noise, which methods add to the diagonal, is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from fedassay.heads.estimating import Equations, class_means, one_hot, whitened
from fedassay.heads.gaussian import Covariance, gaussian_head, moments, statistics
from fedassay.heads.linear import DECAY, LinearHead, train_head
from fedassay.heads.ridge import ridge_weights, without_bias
from fedassay.support.types import Floats, Ints, Matrix

_SLACK = 0.1
"""Relative error of variances of the records that are computed from weights."""


@dataclass(frozen=True)
class SoftmaxEstimator:
    """`fedassay.heads.linear.train_head` by `lbfgs`: cross-entropy with a penalty on standardised weights.

    With p(x) the probabilities of the head, n records and s_j^2 the variance of feature j over them, the gradient
    is zero where sum_i (e_y - p(x_i)) x_i^T = n decay W diag(s^2), and sum_i (e_y - p(x_i)) = 0 for the biases.
    The variances are the records': they are free at first, and then known from the weights up to `_SLACK`.

    Attributes:
        decay: The penalty, above 0.
        classes: C where the head has a row for every class, even if it does not occur; biases may then be
            penalised as well, so their equations are free. None: it has rows for the classes that occur.
    """

    decay: float = DECAY
    classes: int | None = None

    def fit(self, features: Floats, labels: Ints) -> LinearHead:
        """The head of records; see `fedassay.heads.estimating.Estimator`."""
        return train_head(features, labels, decay=self.decay, classes=self.classes, device="cpu")

    def equations(self, head: LinearHead, features: Floats, labels: Ints, weights: Matrix | None) -> Equations:
        """The head's equations; see `fedassay.heads.estimating.Estimator`."""
        rows = np.concatenate([np.asarray(features, np.float64), np.ones((len(features), 1))], axis=1)
        residuals = one_hot(labels, head.classes) - softmax(head.scores(features), axis=1)
        matrix = np.concatenate([head.weights.astype(np.float64), np.zeros((len(head.classes), 1))], axis=1)
        shares = np.ones(len(rows)) if weights is None else np.clip(weights, 0.0, 1.0)
        members = max(float(shares.sum()), 1.0)
        mean = shares @ rows / members
        variances = shares @ (rows - mean) ** 2 / members
        # Of feature j: its weights, in its own column.
        moving = np.flatnonzero((variances > 0) & (matrix**2).any(axis=0))
        free = np.zeros((len(moving), *matrix.shape))
        free[np.arange(len(moving)), :, moving] = matrix[:, moving].T
        slack = np.full(len(moving), np.inf)
        target = np.zeros_like(matrix)
        if weights is not None:
            target = members * self.decay * matrix * variances
            slack = _SLACK * members * self.decay * variances[moving]
        if self.classes is not None:
            biases = _of_each_class(mean, len(matrix))
            free, slack = np.concatenate([free, biases]), np.concatenate([slack, np.full(len(matrix), np.inf)])
        return Equations(residuals, rows, target, free, slack)


@dataclass(frozen=True)
class RidgeEstimator:
    """Ridge regression on one-hot labels (`fedassay.heads.ridge`): sum_i (e_y - W x_i) x_i^T = ridge W.

    Attributes:
        ridge: The penalty, as it stands in the head.
        noise: Standard deviation of the noise on the sums; 0 for none.
    """

    ridge: float
    noise: float = 0.0

    def fit(self, features: Floats, labels: Ints) -> LinearHead:
        """The head of records; see `fedassay.heads.estimating.Estimator`."""
        rows, classes = np.asarray(features, np.float64), np.unique(labels)
        return without_bias(classes, ridge_weights(rows.T @ rows, one_hot(labels, classes).T @ rows, self.ridge))

    def equations(self, head: LinearHead, features: Floats, labels: Ints, weights: Matrix | None) -> Equations:
        """The head's equations; see `fedassay.heads.estimating.Estimator`."""
        rows, matrix = np.asarray(features, np.float64), head.weights.astype(np.float64)
        residuals = one_hot(labels, head.classes) - rows @ matrix.T
        penalty = self.ridge + self.noise * np.sqrt(rows.shape[1])
        told = Equations(residuals, rows, penalty * matrix, *_nothing_free(matrix))
        return whitened(told, np.eye(len(matrix)) + matrix @ matrix.T / 2) if self.noise > 0 else told


@dataclass(frozen=True)
class GaussianEstimator:
    """FedCGS's head (`fedassay.heads.gaussian`): W Sigma = class means, Sigma the covariance and its ridge.

    With n records, n_c of class c and their mean m, sum_i [W (x_i - m) / (n - 1) - e_y / n_y] x_i^T = -rho W. The
    means, the sizes and rho are not known: what they move is free, and they are computed from the weights.

    Attributes:
        covariance: As in `fedassay.heads.gaussian.moments`.
        ridge: As in `fedassay.heads.gaussian.gaussian_head`.
        noise: Standard deviation of the noise on the sums; 0 for none.
    """

    covariance: Covariance
    ridge: float
    noise: float = 0.0

    def fit(self, features: Floats, labels: Ints) -> LinearHead:
        """The head of records; see `fedassay.heads.estimating.Estimator`."""
        given = statistics(features, labels, int(labels.max()) + 1)
        return gaussian_head(moments(given, self.covariance), self.ridge).head

    def equations(self, head: LinearHead, features: Floats, labels: Ints, weights: Matrix | None) -> Equations:
        """The head's equations; see `fedassay.heads.estimating.Estimator`."""
        rows, matrix = np.asarray(features, np.float64), head.weights.astype(np.float64)
        inside = one_hot(labels, head.classes)
        # Under noise, means by uncertain weights would confirm these weights: those of all candidates are taken.
        if weights is None or self.noise > 0:
            weights = np.full(len(rows), 0.5)
        means, sizes = class_means(rows, inside, weights)
        members = float(sizes.sum())
        mean = sizes @ means / members
        # About the mean of all records, or of the record's own class.
        centre = np.tile(mean, (len(rows), 1)) if self.covariance == "total" else inside @ means
        freedom = members - (1 if self.covariance == "total" else len(head.classes))
        residuals = members * ((rows - centre) @ matrix.T / max(freedom, 1.0) - inside / sizes)
        if self.noise > 0:
            spread = self.ridge * members * float(((rows - centre) ** 2).mean())
            target = -(spread + self.noise * np.sqrt(rows.shape[1])) * matrix
            told = Equations(residuals, rows, target, *_nothing_free(matrix))
            return whitened(told, np.diag((members / sizes) ** 2) + matrix @ matrix.T / 2)
        own = np.stack([_row(number, means[number], len(matrix)) for number in range(len(matrix))])
        # The records' means under W, and one over the size of each class.
        centres = [mean] if self.covariance == "total" else list(means)
        moved = [_of_each_class(each, len(matrix)) for each in centres]
        directions = np.concatenate([matrix[None], *moved, *([own] if self.covariance == "total" else [])])
        return Equations(residuals, rows, np.zeros_like(matrix), directions, np.full(len(directions), np.inf))


def _of_each_class(vector: Matrix, classes: int) -> Matrix:
    """The same vector in one class's row each, shape (C, C, D)."""
    return np.stack([_row(number, vector, classes) for number in range(classes)])


def _row(number: int, vector: Matrix, classes: int) -> Matrix:
    found = np.zeros((classes, len(vector)))
    found[number] = vector
    return found


def _nothing_free(matrix: Matrix) -> tuple[Matrix, Matrix]:
    return np.zeros((0, *matrix.shape)), np.zeros(0)
