"""A published scaler is a sum over records, too: scikit-learn's `StandardScaler`, or running moments.

The mean m and variance v of every feature imply, in z = (x - m) / sqrt(v),

    sum_i z_i = 0,     sum_i (z_i^2 - 1) = 0,

2 d equations that need no label. How many records there are does not enter; where it is published beside them
(`n_samples_seen_`), the number of members is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.heads.estimating import Equations
from fedassay.heads.linear import LinearHead
from fedassay.support.types import Bools, Floats, Ints, Matrix


@dataclass(frozen=True, eq=False)
class Scaler:
    """Moments that features are standardised by.

    Attributes:
        mean: `mean_`, shape (d,).
        variance: `var_`, shape (d,), of the records and not of a population (no Bessel correction).
        count: `n_samples_seen_`; None: not published.
    """

    mean: Matrix
    variance: Matrix
    count: int | None = None

    def transform(self, features: Floats) -> Matrix:
        """Standardised features (n, d); a feature without variance is only centred, as by scikit-learn."""
        return np.asarray((np.asarray(features, np.float64) - self.mean) / self._scale())

    def inputs(self, head: LinearHead, features: Floats, labels: Ints) -> Matrix:
        """Return features (n, d) as a published head takes them: standardised, or not centred.

        `StandardScaler(with_mean=False)` keeps the same mean and variance; it is recognised by a head that is
        right about more labels (n,) of features that are only scaled.
        """
        standardised = self.transform(features)
        scaled = standardised + self.mean / self._scale()
        right = [np.mean(head.predict(each) == labels) for each in (standardised, scaled)]
        return scaled if right[1] > right[0] else standardised

    def equations(self, features: Floats) -> Equations:
        """Return the equations of the moments for candidates with raw features (N, d)."""
        rows = self.transform(features)[:, self._moving()]
        rows = np.concatenate([rows, rows**2 - 1], axis=1)
        # A feature that hardly moves in the records may be of any size in others; an equation has no scale.
        rows = rows / np.sqrt(np.maximum((rows**2).mean(axis=0), 1e-300))
        nothing = np.zeros((1, rows.shape[1]))
        return Equations(np.ones((len(rows), 1)), rows, nothing, np.zeros((0, *nothing.shape)), np.zeros(0))

    def _scale(self) -> Matrix:
        return np.asarray(np.sqrt(np.where(self._moving(), self.variance, 1.0)))

    def distance(self, features: Floats) -> float | None:
        """Return the distance of the scaler of records (n, d) to this one, in units of a usual record's effect.

        The distance is that of the equations' sums. It is None for fewer than two records, and where their number
        differs from the published one.
        """
        if len(features) < 2 or (self.count is not None and len(features) != self.count):
            return None
        rows = self.equations(features).rows
        usual = float(np.median(np.linalg.norm(rows, axis=1)))
        return float(np.linalg.norm(rows.sum(axis=0))) / usual if usual > 0 else None

    def _moving(self) -> Bools:
        return np.asarray(self.variance > 10 * np.finfo(np.float64).eps * np.maximum(self.mean**2, 1e-300))
