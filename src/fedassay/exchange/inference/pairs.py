"""A symmetric matrix and a table beside it, read together: the readings that are left when all are tried."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.exchange.inference.beside_gram import Trial, plausible, records_of, try_reading
from fedassay.exchange.inference.grams import WIDEST, read_gram, rounding, spectrum
from fedassay.exchange.inference.reading import Reading, sure, unsure
from fedassay.exchange.inference.sheets import Matrix, Sheet
from fedassay.exchange.message import FieldKind

_TABLES: dict[FieldKind, tuple[FieldKind, ...]] = {
    "second_moment": ("class_sums", "class_means"),
    "regularised_gram": ("ridge_weights", "class_sums"),
    "inverse_gram": ("ridge_weights", "class_sums"),
}
_APART = 100.0
"""How many times as many records a reading must make as another to be the less likely one."""


def read_pair(
    gram: Sheet, matrices: Sequence[Matrix], table: Sheet, tables: Sequence[Matrix]
) -> tuple[Reading, Reading]:
    """Read a matrix (d, d) and the table (P, d) beside it."""
    alone = read_gram(gram, matrices)
    if not alone.kinds or len(matrices[0]) > WIDEST:
        return alone, unsure("class_sums", "class_means", "ridge_weights", why="the matrix beside it is not told")
    column = _constant(matrices, tables, max(gram.unit, table.unit))
    if column is not None and "second_moment" in alone.kinds:
        words = f"row {column} of the matrix is the sum of the table's rows: a feature that is 1 for every record"
        return sure("second_moment", *alone.evidence[:1], words), sure("class_sums", words)
    unit = max(gram.unit, table.unit)
    ridges = [spectrum(matrix, gram.unit).ridge or 0.0 for matrix in matrices]
    trials = [
        try_reading(one, other, matrices, tables, ridges, unit) for one in alone.kinds for other in _TABLES[one]
    ]
    left = [trial for trial in trials if not trial.refuted]
    if not left:
        why = "; ".join(dict.fromkeys(trial.refuted for trial in trials))
        return alone, Reading((), (f"beside the matrix it can be neither sums, means nor ridge weights: {why}",))
    return _decided(alone, left, len(matrices[0]))


def _decided(alone: Reading, left: list[Trial], width: int) -> tuple[Reading, Reading]:
    short = sum(not full for full in left[0].full)
    exact = [trial for trial in left if trial.exact and trial.exact >= 0.9 * short]
    if len(exact) == 1:
        words = {
            "class_sums": "A G^+ A^T gives whole numbers of records that add up to the rank",
            "class_means": "1 / (m G^+ m^T) gives whole numbers of records that add up to the rank",
            "ridge_weights": "the table times the matrix gives whole numbers of records that add up to the rank",
        }[exact[0].table]
        return _both(alone, exact[0], words)
    if len(exact) > 1:
        return _open(alone, exact, "every reading gives whole numbers of records: one record a class")
    likely = sorted((trial for trial in left if plausible(trial, width)), key=records_of)
    if not likely:
        return _open(alone, left, "no reading gives as many records as the matrix takes")
    best = likely[0]
    # Means make no number of records of their own; that they are not refuted is what speaks for them.
    means = [trial for trial in likely if trial.table == "class_means"]
    if means and any(trial.table == "class_sums" for trial in likely):
        return _open(alone, likely, "m G^+ m^T is at most 1, as of means or of single records")
    others = [trial for trial in likely[1:] if (trial.table, trial.gram) != (best.table, best.gram)]
    rivals = [trial for trial in others if trial.table != best.table]
    if rivals and records_of(rivals[0]) < _APART * max(records_of(best), 1.0):
        return _open(alone, likely, "several readings give numbers of records that may be")
    same = [trial for trial in likely if trial.table == best.table]
    plain = next((trial for trial in same if trial.gram == "second_moment"), best)
    if best.table == "class_sums" and len(same) > 1 and plain.gram != "second_moment":
        return _open(alone, same, "a ridge and its inverse are not told apart")
    words = f"as {plain.table} it makes {records_of(plain):,.0f} records at least, of {width} features"
    if plain.gram == "second_moment" and "regularised_gram" in alone.kinds:
        words += "; a ridge would not show beside sums at full rank"
    return _both(alone, plain, words)


def _both(alone: Reading, trial: Trial, words: str) -> tuple[Reading, Reading]:
    return sure(trial.gram, *alone.evidence, f"its table: {words}"), sure(trial.table, words)


def _open(alone: Reading, trials: Sequence[Trial], why: str) -> tuple[Reading, Reading]:
    grams = tuple(dict.fromkeys(trial.gram for trial in trials))
    tables = tuple(dict.fromkeys(trial.table for trial in trials))
    gram = alone if alone.kind is not None else Reading(grams, alone.evidence)
    return gram, (unsure(*tables, why=why) if len(tables) > 1 else sure(tables[0], why))


def _constant(matrices: Sequence[Matrix], tables: Sequence[Matrix], unit: float) -> int | None:
    """The column of the one feature that is 1 for every record: its row of G is the sum of all records."""
    held = np.ones(len(matrices[0]), np.bool_)
    for matrix, table in zip(matrices, tables, strict=True):
        total = table.sum(axis=0)
        near = 4 * rounding(matrix, unit) + 1e-6 * float(np.abs(total).max(initial=0.0))
        held &= (np.abs(matrix - total).max(axis=1) <= near) & (np.diagonal(matrix) > 0.5)
    found = np.flatnonzero(held)
    return int(found[0]) if len(found) == 1 else None
