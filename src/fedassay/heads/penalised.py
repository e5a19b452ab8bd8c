"""Heads as they are published: scikit-learn's linear models and similar ones, by the equations that they solve.

Such a head minimises sum_i loss(W x_i + b, y_i) + penalty / 2 |W|^2; in scikit-learn's notation the penalty is
1 / C, `alpha` of ridge, and 1 / (2 C) of `LinearSVC`, since its loss is not halved. Its gradient is zero:

    sum_i e_i (x_i, 1)^T = penalty (W, 0),     or penalty (W, b) where the solver penalises the bias as well,

and sum_i e_i x_i^T = penalty W where there is no bias.

| loss | e | fitted by |
|---|---|---|
| `softmax` | e_y - p(x) | `LogisticRegression` (`lbfgs`), torch heads with weight decay |
| `logistic` | 1[y = c] - sigmoid(s_c), one against the rest | `LogisticRegression(solver="liblinear")` |
| `least_squares` | t_c - s_c, t_c = 1 or -1 | `RidgeClassifier`, `LinearRegression` on such targets |
| `squared_hinge` | t_c max(0, 1 - t_c s_c) | `LinearSVC` |

A head of two classes has one row of its own, the difference of the two. Features are as the head takes them: after
a `StandardScaler`, where there is one (`fedassay.heads.scaler`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit, softmax

from fedassay.heads.estimating import Equations, one_hot
from fedassay.heads.linear import LinearHead
from fedassay.support.errors import DataError
from fedassay.support.types import Floats, Ints, Matrix

Loss = Literal["softmax", "logistic", "least_squares", "squared_hinge"]

LOSSES: tuple[Loss, ...] = ("softmax", "logistic", "least_squares", "squared_hinge")
_STEPS = 30
_EXACT = 1e-10
"""Length of a step, relative to the weights, at which Newton's method has converged."""


@dataclass(frozen=True)
class PenalisedEstimator:
    """A head that minimises a sum of losses and a penalty; see the module.

    Attributes:
        loss: See the module.
        penalty: Above 0; None: not known, and found from the weights of the candidates.
        bias_penalised: Whether the bias is penalised like the weights, as liblinear does.
        intercept: Whether the bias is fitted; else it is 0 (`fit_intercept`).
    """

    loss: Loss
    penalty: float | None
    bias_penalised: bool = False
    intercept: bool = True

    def fit(self, features: Floats, labels: Ints) -> LinearHead:
        """The head of records; see `fedassay.heads.estimating.Estimator`.

        Raises:
            DataError: There are fewer than two classes, the penalty is not known, or the solver fails.
        """
        rows, classes = np.asarray(features, np.float64), np.unique(labels)
        if self.penalty is None or len(classes) < 2:
            raise DataError(f"a {self.loss} head of {len(classes)} classes and penalty {self.penalty} has no fit")
        if self.loss == "softmax":
            weights, bias = _softmax_fit(rows, labels, self.penalty, self.intercept)
        else:
            inside = one_hot(labels, classes)[:, -1:] if len(classes) == 2 else one_hot(labels, classes)
            fitted = np.array([self._row(rows, 2 * column - 1, self.penalty) for column in inside.T])
            weights = fitted[:, : rows.shape[1]]
            bias = fitted[:, -1] if self.intercept else np.zeros(len(fitted))
        return head_of(weights, bias, classes)

    def equations(self, head: LinearHead, features: Floats, labels: Ints, weights: Matrix | None) -> Equations:
        """The head's equations; see `fedassay.heads.estimating.Estimator`."""
        rows, known = self._rows(features), self._penalised(head)
        matrix, bias = coefficients(head)
        inside = one_hot(labels, head.classes)
        residuals = self._residuals(rows[:, : matrix.shape[1]] @ matrix.T + bias, inside[:, -len(matrix) :])
        if self.penalty is not None:
            return Equations(residuals, rows, self.penalty * known, np.zeros((0, *known.shape)), np.zeros(0))
        return Equations(residuals, rows, np.zeros_like(known), known[None], np.array([np.inf]))

    def penalty_of(self, head: LinearHead, features: Floats, labels: Ints, weights: Matrix) -> float:
        """The penalty that explains a head best if its records are candidates with these weights (N,)."""
        equations, known = self.equations(head, features, labels, weights), self._penalised(head)
        total = (equations.residuals * weights[:, None]).T @ equations.rows
        return float((total * known).sum() / max(float((known**2).sum()), 1e-300))

    def _rows(self, features: Floats) -> Matrix:
        """Return features, and 1 for the bias where it is fitted: (n, d + 1), or (n, d)."""
        rows = np.asarray(features, np.float64)
        return np.concatenate([rows, np.ones((len(rows), 1))], axis=1) if self.intercept else rows

    def _penalised(self, head: LinearHead) -> Matrix:
        """Return the coefficients that the penalty is on, shape (rows, d + 1) or (rows, d)."""
        matrix, bias = coefficients(head)
        return np.concatenate([matrix, bias[:, None] * self.bias_penalised], axis=1) if self.intercept else matrix

    def _residuals(self, scores: Matrix, inside: Matrix) -> Matrix:
        """Return the residual of each record for the head's rows, shape (n, rows)."""
        if self.loss == "softmax" and scores.shape[1] > 1:
            return np.asarray(inside - softmax(scores, axis=1))
        if self.loss in ("softmax", "logistic"):
            return np.asarray(inside - expit(scores))
        target = 2 * inside - 1
        if self.loss == "least_squares":
            return np.asarray(target - scores)
        return np.asarray(target * np.maximum(0.0, 1 - target * scores))

    def _row(self, features: Matrix, target: Matrix, penalty: float) -> Matrix:
        """Weights, and the bias last, of one class against the rest, by Newton's method with step halving."""
        rows = self._rows(features)
        ridge = np.full(rows.shape[1], penalty)
        ridge[features.shape[1] :] = penalty if self.bias_penalised else 0.0
        found = np.zeros(rows.shape[1])
        value = self._value(rows @ found, target) + float(ridge @ found**2) / 2
        for _ in range(_STEPS):
            scores = rows @ found
            slope = ridge * found - rows.T @ self._residuals(scores[:, None], (target[:, None] + 1) / 2)[:, 0]
            curved = np.diag(ridge + 1e-12) + (rows * self._curvature(scores, target)[:, None]).T @ rows
            step = np.linalg.solve(curved, slope)
            for half in range(30):
                ahead = found - step / 2**half
                reached = self._value(rows @ ahead, target) + float(ridge @ ahead**2) / 2
                if reached <= value:
                    break
            moved = float(np.linalg.norm(ahead - found))
            found, value = ahead, reached
            if moved <= _EXACT * max(float(np.linalg.norm(found)), 1e-300):
                break
        return np.asarray(found)

    def _value(self, scores: Matrix, target: Matrix) -> float:
        if self.loss == "logistic":
            return float(np.logaddexp(0.0, -target * scores).sum())
        left = target - scores if self.loss == "least_squares" else np.maximum(0.0, 1 - target * scores)
        return float((left**2).sum()) / 2

    def _curvature(self, scores: Matrix, target: Matrix) -> Matrix:
        if self.loss == "logistic":
            return np.asarray(expit(scores) * expit(-scores))
        if self.loss == "least_squares":
            return np.ones_like(scores)
        return (target * scores < 1).astype(np.float64)


def head_of(weights: Floats, bias: Floats, classes: Ints) -> LinearHead:
    """A head from rows as scikit-learn holds them.

    Args:
        weights: `coef_`, shape (C, d), or (1, d) or (d,) of two classes.
        bias: `intercept_`, shape (C,) or (1,).
        classes: `classes_`, shape (C,).

    Returns:
        A head with a row for each class: of two classes, minus and plus half of the one row.
    """
    # Some models of two classes hold their one row as a vector.
    rows, offsets = np.atleast_2d(np.asarray(weights, np.float64)), np.atleast_1d(np.asarray(bias, np.float64))
    if len(rows) == 1 and len(classes) == 2:
        rows, offsets = np.concatenate([-rows, rows]) / 2, np.concatenate([-offsets, offsets]) / 2
    return LinearHead(classes, rows, offsets)


def coefficients(head: LinearHead) -> tuple[Matrix, Matrix]:
    """A head's rows and biases, of two classes their difference: shapes (C, d) and (C,), or (1, d) and (1,)."""
    rows, bias = head.weights.astype(np.float64), head.bias.astype(np.float64)
    if len(rows) == 2:
        return rows[1:] - rows[:1], bias[1:] - bias[:1]
    return rows, bias


def _softmax_fit(features: Matrix, labels: Ints, penalty: float, intercept: bool) -> tuple[Matrix, Matrix]:
    """Fit by scikit-learn with its defaults: a fit without convergence there must be repeated as well."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(C=1 / penalty, fit_intercept=intercept).fit(features, labels)
    return np.asarray(fitted.coef_), np.broadcast_to(fitted.intercept_, len(fitted.coef_))
