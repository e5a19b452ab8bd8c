"""Whether a model does better than one that learned nothing: it always names the largest class."""

from __future__ import annotations

from fedassay.records.record import CellRecord, Metric
from fedassay.reports.gate.judgement import Judgement
from fedassay.reports.words.metrics import utility
from fedassay.reports.words.numbers import interval, significant

MAJORITY = "majority_share"
"""Share of the largest class among the records that accuracy is measured on, as cells hold it."""

_RULE = "above_majority"


def majority(cell: CellRecord) -> Metric:
    """The accuracy of always naming the largest class; not measured in records that hold no class counts."""
    value = cell.utility.get(MAJORITY)
    return Metric(value=value, reason="" if value is not None else "the record does not hold it")


def above_majority(cell: CellRecord, name: str) -> Judgement:
    """Whether the whole interval of a cell's accuracy lies above the share of the largest class."""
    ours, theirs = utility(cell, "accuracy"), majority(cell)
    if ours.value is None or theirs.value is None:
        what = "the share of the largest class is not on record"
        words = "no accuracy was measured" if ours.value is None else what
        return Judgement(_RULE, name, "undecided", words, about="use")
    low = ours.value if ours.low is None else ours.low
    high = ours.value if ours.high is None else ours.high
    shown = f"{significant(ours.value)} {interval(ours, count=False)}".strip()
    largest = f"{significant(theirs.value)} of always naming the largest class"
    if low > theirs.value:
        return Judgement(_RULE, name, "pass", f"Accuracy {shown} is above the {largest}", about="use")
    if high <= theirs.value:
        return Judgement(_RULE, name, "broken", f"Accuracy {shown} is no better than the {largest}", about="use")
    words = f"Accuracy {shown} cannot be told from the {largest}"
    return Judgement(_RULE, name, "undecided", words, about="use")
