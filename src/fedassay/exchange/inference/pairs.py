"""Read a symmetric matrix and a table beside it together: try all readings, and keep those that are possible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.exchange.inference.beside_gram import (
    Trial,
    explained,
    grows,
    plausible,
    records_of,
    try_reading,
)
from fedassay.exchange.inference.grams import WIDEST, read_gram, rounding, spectrum
from fedassay.exchange.inference.reading import Reading, sure, unsure
from fedassay.exchange.inference.sheets import Sheet
from fedassay.exchange.kinds import FieldKind
from fedassay.support.types import Matrix

_TABLES: dict[FieldKind, tuple[FieldKind, ...]] = {
    "second_moment": ("class_sums", "class_means"),
    "regularised_gram": ("ridge_weights", "class_sums"),
    "inverse_gram": ("ridge_weights", "class_sums"),
}
_SHARE = 5.0
"""Factor by which one reading must explain more of the counts than another to exclude it."""

_APART = 100.0
"""Factor by which one reading must make more records than another to be excluded."""


def read_pair(
    gram: Sheet,
    matrices: Sequence[Matrix],
    table: Sheet,
    tables: Sequence[Matrix],
    counts: Sequence[Matrix] | None,
) -> tuple[Reading, Reading]:
    """Read a matrix (d, d) and the table (P, d) beside it, with the counts of its rows where they are sent."""
    alone = read_gram(gram, matrices)
    if not alone.kinds or len(matrices[0]) > WIDEST:
        return alone, unsure(
            "class_sums", "class_means", "ridge_weights", why="the matrix beside it is not identified"
        )
    unit = max(gram.unit, table.unit)
    column = _constant(matrices, tables, unit)
    if column is not None and "second_moment" in alone.kinds:
        words = f"row {column} of the matrix is the sum of the table's rows: a feature that is 1 for every record"
        return sure("second_moment", *alone.evidence[:1], words), sure("class_sums", words)
    ridges = [spectrum(matrix, gram.unit).ridge or 0.0 for matrix in matrices]
    trials = [
        try_reading(one, other, matrices, tables, ridges, unit) for one in alone.kinds for other in _TABLES[one]
    ]
    left = [trial for trial in trials if not trial.refuted]
    if counts is not None and (larger := grows(matrices, counts)) is not None:
        left = [trial for trial in left if larger == (trial.gram != "inverse_gram")]
    if not left:
        why = "; ".join(dict.fromkeys(trial.refuted for trial in trials if trial.refuted))
        return alone, Reading((), (f"beside the matrix it can be neither sums, means nor ridge weights: {why}",))
    if counts is not None:
        return _by_counts(alone, left, counts, unit)
    return _decided(alone, left, len(matrices[0]))


_WHOLE_NUMBERS: dict[FieldKind, str] = {
    "class_sums": "A G^+ A^T gives whole numbers of records that add up to the rank",
    "class_means": "1 / (m G^+ m^T) gives whole numbers of records that add up to the rank",
    "ridge_weights": "the table times the matrix gives whole numbers of records that add up to the rank",
}


def _exact(left: Sequence[Trial]) -> list[Trial]:
    """Return the readings that give whole numbers of records in messages of fewer records than features."""
    short = sum(not full for full in left[0].full)
    return [trial for trial in left if trial.exact and trial.exact >= 0.9 * short]


def _by_counts(
    alone: Reading, left: Sequence[Trial], counts: Sequence[Matrix], unit: float
) -> tuple[Reading, Reading]:
    """Return the reading that explains the sent counts, or the readings that remain."""
    exact = [trial for trial in _exact(left) if explained(trial, counts, unit) > 0]
    if len(exact) == 1:
        return _both(alone, exact[0], _WHOLE_NUMBERS[exact[0].table])
    shares = sorted(((explained(trial, counts, unit), place) for place, trial in enumerate(left)), reverse=True)
    best = left[shares[0][1]]
    if shares[0][0] <= 0:
        return alone, Reading((), ("no reading beside the matrix goes with the counts that are sent",))
    near = [left[place] for share, place in shares if share > shares[0][0] / _SHARE]
    words = f"as {best.table} it gives {shares[0][0]:.0%} of the counts back that are sent, and no class more"
    if len({trial.table for trial in near}) > 1:
        return _open(alone, near, f"{words}; others do as well")
    plain = next((trial for trial in near if trial.gram == "second_moment"), best)
    if plain.gram != "second_moment" and len({trial.gram for trial in near}) > 1:
        return _open(alone, near, words)
    return _both(alone, plain, words)


def _decided(alone: Reading, left: list[Trial], width: int) -> tuple[Reading, Reading]:
    """Return the reading with whole numbers of records, or at full rank the only one with a likely number."""
    exact = _exact(left)
    if len(exact) == 1:
        return _both(alone, exact[0], _WHOLE_NUMBERS[exact[0].table])
    if len(exact) > 1:
        return _open(alone, exact, "every reading gives whole numbers of records: one record a class")
    if "inverse_gram" in alone.kinds and len(alone.kinds) > 1:
        # A Gram matrix with class sums may as well be an inverse with ridge weights. With signed features any
        # table beside a matrix of full rank looks like sums.
        return _open(alone, left, "no sign, rank or count says what it is")
    likely = sorted((trial for trial in left if plausible(trial, width)), key=records_of)
    if not likely:
        return _open(alone, left, "no reading gives as many records as the matrix takes")
    # Means give no number of records, and sums of single records are means.
    if {"class_means", "class_sums"} <= {trial.table for trial in likely}:
        return _open(alone, likely, "m G^+ m^T is at most 1, as of means or of single records")
    near = [trial for trial in likely if records_of(trial) < _APART * max(records_of(likely[0]), 1.0)]
    if len({trial.table for trial in near}) > 1:
        return _open(alone, near, "a Gram matrix and class sums, or the inverse of one and ridge weights")
    plain = next((trial for trial in near if trial.gram == "second_moment"), near[0])
    if plain.gram != "second_moment" and len(near) > 1:
        return _open(alone, near, "a ridge and its inverse are not distinguished")
    words = f"as {plain.table} it makes {records_of(plain):,.0f} records at least, of {width} features"
    if plain.gram == "second_moment" and "regularised_gram" in alone.kinds:
        words += "; a ridge would not show beside sums at full rank"
    return _both(alone, plain, words)


def _both(alone: Reading, trial: Trial, words: str) -> tuple[Reading, Reading]:
    table = Reading((trial.table,), (words,), records=records_of(trial))
    return sure(trial.gram, *alone.evidence, f"its table: {words}"), table


def _open(alone: Reading, trials: Sequence[Trial], why: str) -> tuple[Reading, Reading]:
    grams = tuple(dict.fromkeys(trial.gram for trial in trials))
    tables = tuple(dict.fromkeys(trial.table for trial in trials))
    gram = alone if alone.kind is not None else Reading(grams, alone.evidence)
    return gram, (unsure(*tables, why=why) if len(tables) > 1 else sure(tables[0], why))


def _constant(matrices: Sequence[Matrix], tables: Sequence[Matrix], unit: float) -> int | None:
    """Return the index of the one feature that is 1 for every record: its row of G is the sum of all records."""
    held = np.ones(len(matrices[0]), np.bool_)
    for matrix, table in zip(matrices, tables, strict=True):
        total = table.sum(axis=0)
        near = 4 * rounding(matrix, unit) + 1e-6 * float(np.abs(total).max(initial=0.0))
        held &= (np.abs(matrix - total).max(axis=1) <= near) & (np.diagonal(matrix) > 0.5)
    found = np.flatnonzero(held)
    return int(found[0]) if len(found) == 1 else None
