"""Second moments and sums from what ridge regression sends: X^T X + gamma I, its inverse, and ridge weights.

C = X^T X + gamma I has gamma as its smallest eigenvalue, of multiplicity d - rank X, while there are fewer
independent records than features; a feature that is never active has gamma itself on the diagonal and 0 beside it.
At full rank the smallest eigenvalue is an upper bound of gamma and no more. Ridge weights W = A C^-1 (a row a
class) give the class sums back, A = W C, so that (W, C, gamma) and (X^T X, A) follow from each other; counts
follow from neither alone.

Source: the identities of He et al. 2025 (AFL, CVPR, arXiv 2405.16240, section 3.2), turned round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.exchange.message import Message, MessageField
from fedassay.mixtures.packed import unpack_lower
from fedassay.support.types import Floats, Matrix


@dataclass(frozen=True)
class Regularised:
    """A regularised second moment, and what it says of its ridge.

    Attributes:
        second: C, shape (d, d).
        gamma: The ridge; only an upper bound of it where `certain` is false.
        certain: Whether a multiple eigenvalue or an inactive feature fixes it.
        unit: Roundoff of C relative to its entries, as it was sent or after it was inverted.
    """

    second: Matrix
    gamma: float
    certain: bool
    unit: float

    def without(self, gamma: float) -> Matrix:
        """X^T X for a ridge."""
        return np.asarray(self.second - gamma * np.eye(len(self.second)))


def square(values: Floats) -> Matrix:
    """A symmetric matrix (d, d), from itself or from its packed lower triangle, in float64."""
    whole = values.astype(np.float64)
    return unpack_lower(whole) if whole.ndim == 1 else np.asarray((whole + whole.T) / 2)


def regularised(message: Message) -> Regularised | None:
    """The regularised second moment of a message, as sent or from its inverse; None where it holds none."""
    sent = _first(message, "regularised_gram")
    if sent is not None:
        return _read(square(sent.values), _unit(sent), _noise(sent))
    sent = _first(message, "inverse_gram")
    if sent is None:
        return None
    values, vectors = np.linalg.eigh(square(sent.values))
    if not len(values) or values[0] <= 0:
        return None  # rounding or noise has left no inverse
    # An error of relative size u in C^-1 is one of u (largest / smallest eigenvalue) in C.
    unit = max(_unit(sent), float(np.finfo(np.float64).eps)) * float(values[-1] / values[0])
    return _read((vectors / values) @ vectors.T, unit, _noise(sent))


def sums_from_weights(message: Message, second: Matrix) -> Matrix | None:
    """Class sums (P, d) from ridge weights and the matrix C that they were solved with; None without weights."""
    weights = _first(message, "ridge_weights")
    return None if weights is None else np.asarray(weights.values.astype(np.float64) @ second)


def _read(second: Matrix, unit: float, noise: float) -> Regularised:
    diagonal = np.diag(second)
    beside = np.abs(second - np.diag(diagonal)).max(axis=1, initial=0.0)
    dead = (beside == 0) & (diagonal <= 1.01 * diagonal.min(initial=np.inf))
    if dead.any() and noise == 0:
        return Regularised(second, float(np.median(diagonal[dead])), True, unit)
    values = np.linalg.eigvalsh(second)
    reach = max(
        2 * unit * float(np.sqrt((second**2).sum(axis=1).max() / 3)),
        len(values) * np.finfo(float).eps * abs(float(values[-1])),
        1.1 * noise * float(np.sqrt(2 * len(values))),
    )
    alike = values[values <= values[0] + 4 * reach]
    return Regularised(second, float(np.mean(alike)), len(alike) > 1, unit)


def _first(message: Message, kind: str) -> MessageField | None:
    return next((item for item in message.fields.values() if item.kind == kind), None)


def _unit(item: MessageField) -> float:
    return float(np.finfo(item.dtype).eps) / 2 if item.dtype.kind == "f" else 0.0


def _noise(item: MessageField) -> float:
    scales = item.release.noise_scale if item.release.mechanism == "gaussian" else None
    return 0.0 if scales is None else float(max(scales))
