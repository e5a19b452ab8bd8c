"""Inputs of a layer with units that ask one question at many thresholds: the records between two of them.

Units with equal weights and other biases are on for nested sets of records. Where the next layer treats them
equally, too, a record has the same part in the gradients of all units that it activates, and the gradients of two
neighbours differ by the records between their thresholds. For one record, dW over db is its input.

The weights show whether there are such units; an honest network has none. A candidate that does not lie between
the thresholds that it was read from is left out. Several records between two thresholds come back as a mean of
them, with unknown weights, and nothing here distinguishes that from one record.

Source: Fowl et al., "Robbing the Fed" (ICLR 2022), for gradients that are sent as they are or summed up.
"""

from __future__ import annotations

import numpy as np

from fedassay.attacks.gradients.targets import Layer
from fedassay.support.types import Ints, Matrix

_ALIKE = 1e-5
"""Distance of rows of weights, relative to their norm, up to which they are one question."""
_FEWEST = 3
"""Units at least that ask it."""
_FAINT = 1e-5
"""Differences of bias gradients below this share of the largest are rounding."""
_SLACK = 1e-3
"""Largest distance of a candidate from its thresholds, as a share of the range of all."""


def binned_inputs(layer: Layer) -> Matrix:
    """One input for each pair of neighbouring thresholds that something lies between, shape (k, d).

    None where the weights are not known, or no three units have them in common.
    """
    nothing = np.zeros((0, layer.gradient.shape[1]))
    if layer.weights is None:
        return nothing
    weights, bias = (np.asarray(part, np.float64) for part in layer.weights)
    alike = _alike(weights)
    if len(alike) < _FEWEST:
        return nothing
    # From the lowest threshold, which most records pass, to the highest.
    order = alike[np.argsort(-bias[alike], kind="stable")]
    whole = np.concatenate([layer.gradient, layer.bias_gradient[:, None]], axis=1).astype(np.float64)[order]
    parts = whole - np.concatenate([whole[1:], np.zeros((1, whole.shape[1]))])
    low = -bias[order]
    high = np.append(low[1:], np.inf)
    told = np.abs(parts[:, -1]) > _FAINT * np.abs(parts[:, -1]).max(initial=0)
    rows = parts[told, :-1] / parts[told, -1:]
    answers = rows @ weights[order[0]]
    slack = _SLACK * float(low[-1] - low[0])
    inside = (answers > low[told] - slack) & (answers < high[told] + slack)
    return np.asarray(rows[inside])


def _alike(weights: Matrix) -> Ints:
    """Positions of the largest set of rows that are equal to one of them."""
    norms = np.linalg.norm(weights, axis=1)
    squares = norms**2
    apart = np.maximum(squares[:, None] + squares[None] - 2 * weights @ weights.T, 0)
    equal = apart <= (_ALIKE * norms.max(initial=0)) ** 2 + 1e-12 * squares.max(initial=0)
    return np.flatnonzero(equal[int(equal.sum(axis=1).argmax())]).astype(np.int64)
