"""Symmetric matrices: a Gram matrix, one with a ridge, the inverse of that, or none of these.

A Gram matrix X^T X of fewer records than features is singular. With a ridge its smallest eigenvalue is gamma, of
multiplicity d - rank, and the inverse has 1 / gamma as its largest, as often. A feature that is never active has
nothing but the ridge (or 0) on the diagonal. At full rank without such a feature the spectrum does not decide; the
arrays beside the matrix must.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.exchange.inference.reading import Reading, sure, unsure
from fedassay.exchange.inference.sheets import Sheet
from fedassay.exchange.kinds import FieldKind
from fedassay.mixtures.packed import side_of_triangle, unpack_lower
from fedassay.support.types import Matrix

WIDEST = 768
"""Width above which a matrix is not decomposed here."""

_SUMMED: tuple[FieldKind, ...] = ("second_moment", "regularised_gram")
"""Kinds of matrices that are sums over records."""

_SLACK = 16.0
"""Roundings that a sender may have accumulated in the type that it sends; sums are not made in half precision."""

HALF = 1e-4
"""Unit roundoff of types of two bytes, and more."""


@dataclass(frozen=True)
class Spectrum:
    """Reading of one symmetric matrix by its eigenvalues.

    Attributes:
        says: The kind; None where any positive matrix may have such eigenvalues.
        ridge: gamma, where the eigenvalues show it; else None.
        indefinite: Whether an eigenvalue is below 0 by more than rounding.
    """

    says: FieldKind | None
    ridge: float | None
    indefinite: bool


def matrices_of(sheet: Sheet) -> tuple[Matrix, ...]:
    """Return a field's symmetric matrices (d, d), d > 1, sent whole or packed; empty where it holds none.

    Entries of a positive matrix are bounded by its diagonal, |G_ij|^2 <= G_ii G_jj. Other rows of
    numbers that happen to be as long as a triangle are not.
    """
    if sheet.sides == 2 and all(a.shape[0] == a.shape[1] > 1 for a in sheet.arrays):
        found = sheet.arrays
        scale = max((float(np.abs(a).max()) for a in found), default=0.0)
        if not all(np.allclose(a, a.T, rtol=0, atol=_SLACK * max(sheet.unit, 1e-15) * scale) for a in found):
            return ()
    elif sheet.sides == 1 and sheet.arrays and all(side_of_triangle(a.size) > 1 for a in sheet.arrays):
        if max(side_of_triangle(a.size) for a in sheet.arrays) > WIDEST:
            return ()
        found = tuple(unpack_lower(a) for a in sheet.arrays)
    else:
        return ()
    return found if found and all(bounded(each, sheet.unit) for each in found) else ()


def bounded(matrix: Matrix, unit: float) -> bool:
    """Whether the diagonal bounds all entries, as in a positive semidefinite matrix."""
    diagonal = np.diagonal(matrix)
    if (diagonal < 0).any():
        return False
    limit = np.sqrt(np.outer(diagonal, diagonal))
    return bool((np.abs(matrix) <= limit * (1 + 1e-6) + _SLACK * unit * float(diagonal.max(initial=0.0))).all())


def rounding(matrix: Matrix, unit: float) -> float:
    """Return the largest shift of an eigenvalue by rounding."""
    slack = 1.0 if unit > HALF else _SLACK
    return slack * max(unit, 1e-16) * float(np.linalg.norm(matrix))


def spectrum(matrix: Matrix, unit: float) -> Spectrum:
    """Read one symmetric matrix (d, d) by its eigenvalues."""
    values = np.asarray(np.linalg.eigvalsh(matrix), dtype=np.float64)
    near = rounding(matrix, unit)
    low, high = float(values[0]), float(values[-1])
    if low < -near:
        return Spectrum(None, None, True)
    if low <= near:
        return Spectrum("second_moment", 0.0, False)
    alone = np.count_nonzero(matrix, axis=0) == 1
    if alone.sum() > 1 and np.ptp(np.diagonal(matrix)[alone]) <= near:
        level = float(np.diagonal(matrix)[alone][0])
        if level <= low + near:
            return Spectrum("regularised_gram", level, False)
        if level >= high - near:
            return Spectrum("inverse_gram", 1 / level, False)
    if _plateau(values, near):
        return Spectrum("regularised_gram", low, False)
    if _plateau(-values[::-1], near):
        return Spectrum("inverse_gram", 1 / high, False)
    return Spectrum(None, None, False)


def _plateau(rising: Matrix, near: float) -> bool:
    """Whether two or more of the lowest values are equal and the next one is larger."""
    level = int((rising <= rising[0] + 2 * near).sum())
    return 1 < level < len(rising) and bool(rising[level] > rising[0] + 20 * near)


def read_gram(sheet: Sheet, matrices: Sequence[Matrix]) -> Reading:
    """Return the kinds that a field of symmetric matrices may be, by their spectra alone."""
    width = len(matrices[0])
    if width > WIDEST:
        return unsure("second_moment", "regularised_gram", "inverse_gram", why=f"{width} wide: not decomposed")
    found = [spectrum(matrix, sheet.unit) for matrix in matrices]
    if any(each.indefinite for each in found):
        return Reading((), ("symmetric with negative eigenvalues: no Gram matrix, nor the inverse of one",))
    said = {each.says for each in found} - {None}
    if len(said) > 1:
        return Reading((), ("spectra of several kinds in messages of one form",))
    if said == {"second_moment"}:
        return sure(
            "second_moment", "symmetric, positive semidefinite and singular: a Gram matrix without a ridge"
        )
    if said:
        ridges = [each.ridge for each in found if each.ridge is not None]
        level = f"gamma = {min(ridges):.4g}" + (
            f" to {max(ridges):.4g}" if max(ridges) > 1.01 * min(ridges) else ""
        )
        if said == {"regularised_gram"}:
            return sure("regularised_gram", f"the smallest eigenvalue is a multiple one above 0: {level}")
        return sure("inverse_gram", f"the largest eigenvalue is a multiple one, 1 / gamma: {level}")
    words = "symmetric and positive definite without a multiple eigenvalue: at least as many records as features"
    if width > 2 and all(nonnegative(matrix) for matrix in matrices):
        return unsure(*_SUMMED, why=f"{words}; no entry is negative, as of features that are not")
    if width > 2 and all(nonnegative(np.asarray(np.linalg.inv(matrix), dtype=np.float64)) for matrix in matrices):
        return sure("inverse_gram", words, "no entry of its inverse is negative, as of features that are not")
    return unsure(*_SUMMED, "inverse_gram", why=words)


def nonnegative(matrix: Matrix) -> bool:
    """Whether no entry is negative, as in a Gram matrix of non-negative features, and never in its inverse."""
    return bool(matrix.min() >= -1e-6 * np.abs(matrix).max())
