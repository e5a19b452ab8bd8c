"""Cost of privacy in accuracy: the difference to the same method without it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedassay.records.record import CellRecord, Metric, RunRecord
from fedassay.reports.words.metrics import utility

NOT_RUN = "the run has no cell of this method without privacy to compare with"


def accuracy_cost(record: RunRecord, cells: Sequence[CellRecord]) -> Metric:
    """Accuracy without privacy minus accuracy with it, in points of 100, mean over seeds.

    The cells without privacy are those of the same method entry, or else of another entry of the same method; of
    several the most accurate one counts. For one seed the interval is that of Newcombe (Statistics in Medicine
    1998, method 10) for two proportions, which takes the two to be independent: they share their test records, and
    so the true interval is narrower. For several seeds it is the range over them.

    Args:
        record: The run.
        cells: One method entry at one epsilon, a cell a seed.
    """
    costs = [cost for cell in cells if (cost := _of_cell(record, cell)).value is not None]
    if not costs:
        return _of_cell(record, cells[0]) if cells else Metric(value=None, reason="no cell")
    if len(costs) == 1:
        return costs[0]
    values = [cost.value for cost in costs if cost.value is not None]
    mean, n = sum(values) / len(values), len(values)
    return Metric(
        value=mean, low=min(values), high=max(values), n=n, unit="points", reason=f"range over {n} seeds"
    )


def _of_cell(record: RunRecord, cell: CellRecord) -> Metric:
    ours = utility(cell, "accuracy")
    theirs = _without_privacy(record, cell)
    if ours.value is None or theirs is None or theirs.value is None:
        return Metric(value=None, reason=ours.reason if ours.value is None else NOT_RUN)
    value = theirs.value - ours.value
    ends = (ours.low, ours.high, theirs.low, theirs.high)
    if any(end is None for end in ends):
        return Metric(value=100 * value, unit="points", n=ours.n)
    low, high, their_low, their_high = (float(end) for end in ends if end is not None)
    below = math.hypot(theirs.value - their_low, high - ours.value)
    above = math.hypot(their_high - theirs.value, ours.value - low)
    return Metric(
        value=100 * value, low=100 * (value - below), high=100 * (value + above), n=ours.n, unit="points"
    )


def _without_privacy(record: RunRecord, cell: CellRecord) -> Metric | None:
    """The accuracy of the same method without privacy on the same seed; None where the run has none."""
    free = [
        other
        for other in record.cells
        if other.method == cell.method and other.seed == cell.seed and not other.asked.finite
    ]
    own = [other for other in free if other.label == cell.label] or free
    measured = [figure for other in own if (figure := utility(other, "accuracy")).value is not None]
    return max(measured, key=lambda figure: figure.value or 0.0, default=None)
