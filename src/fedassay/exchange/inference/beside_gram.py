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

from fedassay.exchange.inference.grams import HALF, nonnegative, rounding
from fedassay.exchange.kinds import FieldKind
from fedassay.support.types import Matrix

_WHOLE = 2e-2
_GROWS = 0.5
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
        refuted: Reason why the reading is impossible, or "".
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
        gram: Assumed kind of the matrices.
        table: Assumed kind of the tables (P, d).
        matrices: One a message, (d, d).
        tables: One a message.
        ridges: gamma of each, 0 for none or unknown.
        unit: Unit roundoff of the coarser type.
    """
    trial = Trial(gram, table)
    for sent, rows, ridge in zip(matrices, tables, ridges, strict=True):
        whole = np.asarray(np.linalg.inv(sent) if gram == "inverse_gram" else sent, dtype=np.float64)
        sums = rows @ whole if table == "ridge_weights" else rows
        plain = np.asarray(whole - ridge * np.eye(len(whole)) if gram in _RIDGED else whole, dtype=np.float64)
        values, vectors = np.linalg.eigh(plain)
        kept = values > max((1 if unit > HALF else 4) * rounding(whole, unit), 1e-7 * float(values[-1]))
        within = sums @ vectors
        lost = float(np.linalg.norm(within[:, ~kept]))
        if lost > (0.1 if unit > HALF else 1e-2) * float(np.linalg.norm(sums)):
            trial.refuted = "the table is outside the range of the matrix"
            return trial
        squares = np.asarray((within[:, kept] ** 2 / values[kept]).sum(axis=1))
        if not np.isfinite(squares).all():
            trial.refuted = "the numbers of records that it gives are infinite"
            return trial
        trial.counts.append(squares)
        trial.full.append(bool(kept.all()))
        if nonnegative(plain) and float(sums.min(initial=0)) < -1e-3 * float(np.abs(sums).max(initial=0)):
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


def records_of(trial: Trial) -> float:
    """Return the least number of records in the largest message under a reading."""
    return max((float(each.sum()) for each in trial.counts), default=0.0)


def explained(trial: Trial, counts: Sequence[Matrix], unit: float) -> float:
    """Return the share of the sent counts that a reading explains; 0 where it gives a class more than it has.

    Args:
        trial: The reading.
        counts: Records of each row of the table, (P,), one a message.
        unit: Unit roundoff of the coarser type.
    """
    given = np.concatenate(list(counts))
    found = np.concatenate(trial.counts)
    found = found * given**2 if trial.table == "class_means" else found
    loose = 0.2 if unit > HALF else _WHOLE
    return 0.0 if (found > (1 + loose) * given + loose).any() else float(found.sum() / given.sum())


def grows(matrices: Sequence[Matrix], counts: Sequence[Matrix]) -> bool | None:
    """Whether matrices are larger where there are more records; None where all are of like sizes."""
    records = np.log([max(float(each.sum()), 1.0) for each in counts])
    if len(records) < 2 or np.ptp(records) < np.log(1.5):
        return None
    traces = np.log([float(np.trace(matrix)) for matrix in matrices])
    slope = (records - records.mean()) @ (traces - traces.mean()) / ((records - records.mean()) ** 2).sum()
    return None if abs(slope) < _GROWS else bool(slope > 0)


def plausible(trial: Trial, width: int) -> bool:
    """Whether the number of records under a reading can give matrices of that rank.

    Full rank takes as many records as there are features. The q_c of the class sums fall short of the number of
    records by the share of a constant that the features do not explain.
    """
    if trial.refuted:
        return False
    if trial.table == "class_means":
        return True
    sizes = [float(each.sum()) for each, full in zip(trial.counts, trial.full, strict=True) if full]
    return all(0.1 * width <= size <= 1e7 for size in sizes) and all(
        float(each.sum()) > 0.5 for each in trial.counts
    )
