"""A table of one row a class beside a symmetric matrix: class sums, class means, or ridge weights.

Of class sums A and their Gram matrix G the values q_c = A_c G^+ A_c^T are the numbers of records while these are
fewer than the features, and at most these numbers otherwise. Of class means the same is 1 / n_c, or less. Of ridge
weights W the product W G is the class sums, so that q_c is W_c G G0^+ G W_c^T, G0 without the ridge. Each reading
is tried, and whole numbers that add up to the rank decide; at full rank, signs and sizes do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedassay.exchange.inference.grams import rounding
from fedassay.exchange.inference.sheets import Matrix
from fedassay.exchange.message import FieldKind

_WHOLE = 2e-2
_RIDGED: tuple[FieldKind, ...] = ("regularised_gram", "inverse_gram")


@dataclass
class Trial:
    """A reading of a matrix and a table, over all messages.

    Attributes:
        gram: Kind of the matrix.
        table: Kind of the table.
        counts: q_c of every message.
        full: Whether the matrix has full rank, for each message.
        exact: Messages in which the counts are whole and add up to the rank.
        refuted: Why it cannot be, or "".
    """

    gram: FieldKind
    table: FieldKind
    counts: list[Matrix] = field(default_factory=list)
    full: list[bool] = field(default_factory=list)
    exact: int = 0
    refuted: str = ""


def try_reading(
    gram: FieldKind,
    table: FieldKind,
    matrices: Sequence[Matrix],
    tables: Sequence[Matrix],
    ridges: Sequence[float],
    unit: float,
) -> Trial:
    """Try one reading.

    Args:
        gram: What the matrices would be.
        table: What the tables (P, d) would be.
        matrices: One a message, (d, d).
        tables: One a message.
        ridges: gamma of each, 0 for none or unknown.
        unit: Unit roundoff of the coarser type.
    """
    trial = Trial(gram, table)
    for sent, rows, ridge in zip(matrices, tables, ridges, strict=True):
        whole = np.linalg.inv(sent) if gram == "inverse_gram" else sent
        sums = rows @ whole if table == "ridge_weights" else rows
        plain = whole - ridge * np.eye(len(whole)) if gram in _RIDGED else whole
        values, vectors = np.linalg.eigh(plain)
        kept = values > max(4 * rounding(whole, unit), 1e-7 * float(values[-1]))
        within = sums @ vectors
        lost = float(np.linalg.norm(within[:, ~kept]))
        if lost > 1e-2 * float(np.linalg.norm(sums)):
            trial.refuted = "the table is outside the range of the matrix"
            return trial
        squares = np.asarray((within[:, kept] ** 2 / values[kept]).sum(axis=1))
        trial.counts.append(squares)
        trial.full.append(bool(kept.all()))
        if _sums_of_nonnegative(plain) and float(sums.min(initial=0)) < -1e-3 * float(np.abs(sums).max(initial=0)):
            trial.refuted = "features are not negative, and the table is"
            return trial
        sizes = squares if table != "class_means" else 1 / squares[squares > 0]
        near = np.abs(sizes - np.rint(sizes)).max(initial=0.0) < _WHOLE
        # Equal records lower the rank and not the counts.
        if not kept.all() and near and np.rint(sizes).sum() >= int(kept.sum()):
            trial.exact += 1
        if table == "class_means" and (squares > 1 + _WHOLE).any():
            trial.refuted = "m G^+ m^T is above 1, which it cannot be of a mean"
            return trial
    return trial


def _sums_of_nonnegative(gram: Matrix) -> bool:
    """Whether no entry is negative, as of features that are not."""
    return bool(gram.min() >= -1e-6 * np.abs(gram).max())


def records_of(trial: Trial) -> float:
    """How many records the reading makes of the largest message, at least."""
    return max((float(each.sum()) for each in trial.counts), default=0.0)


def plausible(trial: Trial, width: int) -> bool:
    """Whether as many records as a reading makes can have given matrices of that rank.

    Full rank takes as many records as there are features; what the class sums say of them falls short of their
    number by what features do not explain of a constant.
    """
    if trial.refuted:
        return False
    if trial.table == "class_means":
        return True
    sizes = [float(each.sum()) for each, full in zip(trial.counts, trial.full, strict=True) if full]
    return all(0.1 * width <= size <= 1e7 for size in sizes) and all(
        float(each.sum()) > 0.5 for each in trial.counts
    )
