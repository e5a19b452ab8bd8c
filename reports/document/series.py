"""The data that figures need from audits: names that `Finding.series` must use.

An audit puts arrays behind its figures into `Finding.series[name]`, a `fedassay.records.record.Series` with
columns of equal length. These names are drawn wherever they appear, whatever the audit:

| name | columns | drawn as |
|---|---|---|
| `scores` | `generated`, optional `heldout` | histogram, logarithmic counts, threshold marked |
| `roc` | `fpr`, `tpr`, optional `tpr_low`, `tpr_high` | ROC curve on log axes |
| `sweep` | what was varied, then one column a curve | curves; a log axis where values span decades |
| `targets` | `ssim`, `baseline` | the middle 90 % of targets behind the interval |

`scores`: the memorization score of every generated image against the training images, and of the same
images against held-out ones. `roc`: rates rising from 0 to 1. `sweep`: numbers, None where not measured.
`targets`: the SSIM of every target and of its baseline, in the same order.

The threshold of `scores` is 1 (Carlini et al. 2023); `n` in `roc` is taken from the `auc` metric.
Any other series is printed as a table in a fold. Every series is written to tables/, whole.

Pictures need no convention beyond `fedassay.records.record.Picture`: rows of tiles are named, columns carry the
numbers printed under them (`psnr`, `ssim`, `lpips`, or an audit's own).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import zip_longest

from fedassay.records.record import Series

SCORES = "scores"
ROC = "roc"
SWEEP = "sweep"
TARGETS = "targets"
DRAWN = (SCORES, ROC, SWEEP, TARGETS)
"""Series names that become figures."""


def numbers(series: Series, column: str) -> list[float | None]:
    """A column as numbers; None where it holds none.

    A record on disk writes infinity as the text "inf".
    """
    infinite = {"inf": math.inf, "-inf": -math.inf}
    values = series.columns.get(column, ())
    return [infinite.get(value) if isinstance(value, str) else value for value in values]


def rows(series: Series) -> list[tuple[float | str | None, ...]]:
    """A series row by row; columns that are too short, as in a record edited by hand, end in None."""
    return list(zip_longest(*series.columns.values()))


def finite(values: Iterable[float | None]) -> list[float]:
    """The finite numbers among values."""
    return [value for value in values if value is not None and math.isfinite(value)]
