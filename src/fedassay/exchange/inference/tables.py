"""Tables of one row a class beside counts: sums or means, second moments or covariances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.exchange.inference.reading import Reading, sure, unsure
from fedassay.exchange.kinds import FieldKind
from fedassay.support.types import Matrix

_MIDDLE = 0.25
"""Middle between the slopes of log |row| over log n of means (-1/2 to 0) and of sums (1/2 to 1)."""

_ERRORS = 2.5
_FEWEST = 6
"""Rows, and standard errors from the middle, that a slope needs to decide."""

SUMS: FieldKind = "class_sums"
MEANS: FieldKind = "class_means"


def sums_or_means(
    tables: Sequence[Matrix], counts: Sequence[Matrix], ids: Sequence[Matrix] | None = None
) -> Reading:
    """Distinguish class sums from means: rows of sums grow with the number of records of their class.

    Args:
        tables: Shape (P, d), one a message.
        counts: Shape (P,), one a message.
        ids: The class of each row, shape (P,); None: 0 to P - 1.
    """
    column = _constant_column(tables, counts)
    if column is not None:
        return column
    rows = np.concatenate([np.linalg.norm(table, axis=1) for table in tables])
    sizes = np.concatenate(list(counts))
    known = np.concatenate([np.arange(len(a)) for a in counts] if ids is None else list(ids))
    held = (sizes > 0) & (rows > 0)
    if ((sizes == 0) & (rows > 0)).any():
        return Reading((), ("a class without any record has a row that is not 0",))
    x, y = np.log(sizes[held]), np.log(rows[held])
    if held.sum() < _FEWEST or np.ptp(x) == 0:
        return unsure(SUMS, MEANS, why=f"{int(held.sum())} classes of like sizes do not tell sums from means")
    # Rows of one class are alike: within classes the same slope shows with less scatter, where sizes differ.
    slope, error = min(_slope(x, y, known[held]), _slope(x, y, np.zeros(len(x))), key=lambda found: found[1])
    words = f"rows grow with the power {slope:.2f} (standard error {error:.2f}) of the number of records"
    if abs(slope - _MIDDLE) < _ERRORS * error:
        return unsure(SUMS, MEANS, why=f"{words}: neither as sums do (1/2 to 1) nor as means (-1/2 to 0)")
    return sure(SUMS if slope > _MIDDLE else MEANS, words)


def _slope(x: Matrix, y: Matrix, groups: Matrix) -> tuple[float, float]:
    """Return the slope of y over x within groups and its standard error, infinite where too few points remain."""
    inverse = np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(inverse)
    across, up = (values - (np.bincount(inverse, values) / sizes)[inverse] for values in (x, y))
    freedom, spread = len(x) - len(sizes) - 1, float(across @ across)
    if freedom < _FEWEST - 2 or spread <= 0:
        return 0.0, np.inf
    slope = float(across @ up / spread)
    rest = up - slope * across
    return slope, float(np.sqrt(rest @ rest / freedom / spread))


def _constant_column(tables: Sequence[Matrix], counts: Sequence[Matrix]) -> Reading | None:
    """A column of sums that holds the counts, or of means that is 1: a feature that is 1 for every record."""
    if not any((size > 1).any() for size in counts) or tables[0].shape[1] < 2:
        return None
    for kind, wanted in ((SUMS, list(counts)), (MEANS, [(size > 0).astype(np.float64) for size in counts])):
        whole = [
            np.abs(table - goal[:, None]).max(axis=0) <= 1e-3 * max(float(goal.max()), 1.0)
            for table, goal in zip(tables, wanted, strict=True)
        ]
        if np.logical_and.reduce(whole).sum() == 1:
            return sure(kind, "one column is the counts" if kind == SUMS else "one column is 1 for every class")
    return None


def moments_or_covariances(
    stacks: Sequence[Matrix],
    tables: Sequence[Matrix],
    counts: Sequence[Matrix],
    table: FieldKind,
    unit: float = 0.0,
) -> Reading:
    """Distinguish second moments from covariances, a matrix or a diagonal a class, beside class sums or means.

    A second moment S_c is at least A_c A_c^T / n_c. For one record both are equal, and the covariance is 0.

    Args:
        stacks: Shape (P, d, d), or (P, d) of diagonals, one a message.
        tables: Shape (P, d).
        counts: Shape (P,).
        table: Kind of these tables: `class_sums` or `class_means`.
        unit: Unit roundoff of the coarser type.
    """
    near = max(1e-4, 4 * unit)
    second: FieldKind = "class_second_moments"
    spread: FieldKind = "class_covariances"
    votes = {second: 0, spread: 0}
    for stack, rows, sizes in zip(stacks, tables, counts, strict=True):
        for own, row, size in zip(stack, rows, sizes, strict=True):
            if size < 1 or not row.any():
                continue
            mean = row / size if table == SUMS else row
            least = size * float(mean @ mean)
            trace = float(own.sum() if own.ndim == 1 else np.trace(own))
            if trace < (1 - 10 * near) * least or not _above(own, mean, size, near):
                votes[spread] += 1
            elif trace > 0:
                votes[second] += 1
    if votes[spread] and votes[second] > 0.05 * votes[spread]:
        return unsure(second, spread, why="some are at least the mean's outer product, as second moments are")
    if votes[spread]:
        return sure(spread, "smaller than the outer product of the mean, which no second moment is")
    if votes[second]:
        return sure(second, "every class's matrix minus n times the outer product of its mean is semidefinite")
    return unsure(second, spread, why="no class has a record")


def moments_by_rank(stacks: Sequence[Matrix], counts: Sequence[Matrix], unit: float) -> Reading:
    """Distinguish second moments (rank n) from covariances (rank n - 1) in classes of n < d records.

    Args:
        stacks: Shape (P, d, d), one a message.
        counts: Shape (P,), one a message.
        unit: Unit roundoff of the type.
    """
    second: FieldKind = "class_second_moments"
    spread: FieldKind = "class_covariances"
    votes = {second: 0, spread: 0}
    for stack, sizes in zip(stacks, counts, strict=True):
        for own, size in zip(stack, sizes, strict=True):
            if not 1 <= size < len(own) <= 256:
                continue
            values = np.linalg.eigvalsh(own)
            rank = int((values > 16 * max(unit, 1e-15) * max(float(np.linalg.norm(own)), 1e-300)).sum())
            for kind, wanted in ((second, size), (spread, size - 1)):
                votes[kind] += int(rank == wanted)
    found = [kind for kind in (second, spread) if votes[kind] > 2]
    if len(found) == 1 and votes[found[0]] > 10 * votes[spread if found[0] == second else second]:
        less = "" if found[0] == second else ", less one"
        return sure(found[0], f"classes of fewer records than features have the rank of their records{less}")
    return unsure(second, spread, why="no class of fewer records than features tells by its rank")


def _above(own: Matrix, mean: Matrix, size: float, near: float) -> bool:
    """Whether a matrix, or its diagonal, minus n m m^T has no negative eigenvalue."""
    if own.ndim == 1:
        return bool((own >= size * mean**2 - near * own.max()).all())
    rest = own - size * np.outer(mean, mean)
    return float(np.linalg.eigvalsh(rest)[0]) >= -near * float(np.trace(own))


def which_is_first(one: Sequence[Matrix], other: Sequence[Matrix]) -> int | None:
    """Return the index of the table of sums or means beside one of variances or squares; None: undecided.

    Variances and squares are never negative; and where a feature is 0 throughout, a variance may have a floor but
    a mean has none. For non-negative features below 1 there is no other sign.
    """
    signed = [any((table < 0).any() for table in tables) for tables in (one, other)]
    if signed[0] != signed[1]:
        return 0 if signed[0] else 1
    if all(signed):
        return None
    alone = [
        sum(int(((a == 0) & (b > 0)).sum()) for a, b in zip(first, second, strict=True))
        for first, second in ((one, other), (other, one))
    ]
    if (alone[0] > 0) != (alone[1] > 0):
        return 0 if alone[0] else 1
    return None


def squares_of(sums: Sequence[Matrix], squares: Sequence[Matrix], counts: Sequence[Matrix]) -> bool:
    """Whether squares are at least sums^2 / n, equal where n is 1, and 0 where non-negative sums are 0."""
    for first, second, sizes in zip(sums, squares, counts, strict=True):
        held = sizes > 0
        least = first[held] ** 2 / sizes[held, None]
        near = 1e-3 * (1e-9 + second[held].max(axis=1, initial=0.0, keepdims=True))
        if (second[held] < least - near).any() or (second[~held] != 0).any():
            return False
        # Non-negative features add up to 0 only where each of them is 0.
        if (first >= 0).all() and (second[first == 0] != 0).any():
            return False
        single = sizes[held] == 1
        if (np.abs(second[held] - least) > near)[single].any():
            return False
    return True
