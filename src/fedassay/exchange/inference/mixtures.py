"""Gaussian mixtures: weights that sum to one in every class, means, and covariances of one of three families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedassay.exchange.inference.indices import read_groups
from fedassay.exchange.inference.reading import Readings, sure, unsure
from fedassay.exchange.inference.sheets import Sheet
from fedassay.exchange.inference.tables import which_is_first
from fedassay.support.types import Matrix

_SUM = 1e-2
"""Largest distance from one of the sum of weights that travel in half precision."""

Sheets = Mapping[str, Sheet]


def read_mixture(tables: Sheets, rows: Sheets, stacks: Sheets, whole: Sheets, classes: int) -> Readings:
    """Read mixtures; empty where the rows that stand beside tables are no weights.

    Args:
        tables: Tables, one row a component.
        rows: Rows of numbers: weights, and variances of spherical components.
        stacks: Packed covariances, one a component.
        whole: Rows of whole numbers.
        classes: C.
    """
    lengths = next(iter(tables.values())).lengths()
    if any(not sheet.has_lengths(lengths) for sheet in (*tables.values(), *rows.values(), *stacks.values())):
        return {}
    if len({item.shape[1:] for sheet in tables.values() for item in sheet.items}) > 1:
        # Variances are as wide as means; those of spherical components, sent as a column, are a row.
        return {}
    groups = read_groups(whole, lengths, classes)
    weights = [name for name, sheet in rows.items() if _are_weights(sheet.arrays, groups.components)]
    if len(weights) != 1 or len(rows) + len(stacks) + len(tables) > 3:
        return {}
    found: Readings = dict(groups.readings)
    found[weights[0]] = sure("mixture_weights", "between 0 and 1, and of sum 1 in every class")
    means = _means(tables)
    for name in tables:
        if means is None:
            found[name] = unsure("mixture_means", "mixture_covariances", why="neither table has a negative entry")
        else:
            found[name] = _MEANS if name == means else _VARIANCES
    for name in (*(row for row in rows if row not in weights), *stacks):
        found[name] = sure("mixture_covariances", "positive, one a component")
    return found


_MEANS = sure("mixture_means", "one row a component, of any sign, or 0 where a variance has its floor")
_VARIANCES = sure("mixture_covariances", "as many as means, never negative")


def _means(tables: Sheets) -> str | None:
    """Return the name of the table of means, beside one of variances; None where no entry tells them apart."""
    names = list(tables)
    if len(names) == 1:
        return names[0]
    first = which_is_first(tables[names[0]].arrays, tables[names[1]].arrays)
    return None if first is None else names[first]


def _are_weights(values: Sequence[Matrix], components: Sequence[Matrix] | None) -> bool:
    """Whether numbers are between 0 and 1 and add up to 1 in every group."""
    if any((a < 0).any() or (a > 1 + _SUM).any() for a in values):
        return False
    if components is None:
        return all(np.abs(a - 1).max(initial=0.0) < _SUM for a in values)
    starts = (np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64) for sizes in components)
    sums = (np.add.reduceat(a, at) for a, at in zip(values, starts, strict=True))
    return all(bool((np.abs(total - 1) < _SUM).all()) for total in sums)
