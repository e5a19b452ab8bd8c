"""Scores of a membership attack of any tool: AUC, rates at few false alarms, and the epsilon that they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest

from fedassay.audits.stats.epsilon_bound import EpsilonBound, checked_scores
from fedassay.audits.stats.one_run_fdp import one_run_fdp_bound
from fedassay.audits.stats.roc import auc, tpr_at_fpr
from fedassay.audits.stats.threshold_bound import threshold_bound
from fedassay.data.named_images import as_array
from fedassay.records.record import Metric
from fedassay.reports.document.tables import csv_text
from fedassay.reports.words.numbers import interval, significant
from fedassay.support.errors import PlanError
from fedassay.support.extras import optional
from fedassay.support.types import Floats

if TYPE_CHECKING:
    import pandas

Trials = Literal["one_run", "runs"]
"""The origin of the scores: the records of one run, or a run of its own for each."""

_NO_COIN = 1e-6
"""Chance below which no fair coin gave so unequal numbers of members and others."""
_REVERSED = "members score lower than others; a score of which low values mean members is given as its negative"
_FEWEST = 4
_CONFIDENCE = 0.95
_COLUMNS = ("metric", "value", "low", "high", "n", "reason")


@dataclass(frozen=True, repr=False)
class MembershipReport:
    """The result of `fedassay.membership_report`; each interval and the bound hold with 95 % by themselves.

    Attributes:
        auc: Area under the ROC curve, with its two-sided interval and the number of scores.
        rates: True-positive rates with their two-sided intervals, by the false-positive rate that is allowed.
        epsilon: Lower bound on epsilon, one-sided; its value is None, with the reason, where scores bound none.
        delta: Delta of the bound.
    """

    auc: Metric
    rates: Mapping[float, Metric]
    epsilon: Metric
    delta: float

    @property
    def table(self) -> pandas.DataFrame:
        """One row a metric: value, low, high, n, reason. `fedassay.latex` takes it."""
        pandas = optional("pandas", "notebook", "MembershipReport.table")
        return pandas.DataFrame(self._rows(), columns=list(_COLUMNS))

    def csv(self) -> str:
        """The table as CSV."""
        return csv_text(list(_COLUMNS), self._rows())

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON holds it."""
        return {
            "auc": self.auc.model_dump(),
            "rates": {f"{rate:g}": metric.model_dump() for rate, metric in self.rates.items()},
            "epsilon": self.epsilon.model_dump(),
            "delta": self.delta,
        }

    def lines(self) -> list[str]:
        """A line a metric, for a terminal."""
        return [f"{title}: {_said(metric)}" for title, metric in self._titled()]

    def __repr__(self) -> str:
        """All lines."""
        return "\n".join(("MembershipReport", *(f"  {line}" for line in self.lines())))

    def _titled(self) -> list[tuple[str, Metric]]:
        rates = [(f"TPR at FPR {rate:g}", metric) for rate, metric in self.rates.items()]
        return [("AUC", self.auc), *rates, (f"epsilon at delta {self.delta:g}", self.epsilon)]

    def _rows(self) -> list[list[Any]]:
        return [
            [title, metric.value, metric.low, metric.high, metric.n, metric.reason]
            for title, metric in self._titled()
        ]


def membership_report(
    members: ArrayLike,
    others: ArrayLike,
    *,
    trials: Trials | None = None,
    false_alarms: Sequence[float] | float = (0.001, 0.01, 0.1),
    delta: float = 0.0,
    seed: int = 0,
) -> MembershipReport:
    """Evaluate the scores of a membership attack by any tool.

    The AUC has Newcombe's interval (2006); rates have order statistics and Clopper-Pearson. A bound on epsilon
    depends on how the scores came about:

    - `one_run`: every score is of another record of one run, and a fair coin made each of these records a member
      or not, independently of the others (canaries; Mahloujifar et al. 2024).
    - `runs`: every score is of another run, with one and the same record (`members`) or without it (`others`)
      (Clopper-Pearson at ranks that are fixed beforehand).

    Args:
        members: Scores (n1,) of members, higher where a record looks like a member; infinities are allowed.
        others: Scores (n0,) of non-members.
        trials: Origin of the scores, as above; None: epsilon is not bounded.
        false_alarms: False-positive rates, each in (0, 1), or one of them.
        delta: Delta of the bound, in [0, 1).
        seed: Seed of the order of guesses among equal scores.

    Raises:
        PlanError: Scores are not two axes of at least two numbers without NaN, or a level is out of range.
    """
    try:
        one, zero = _scores(members, "members"), _scores(others, "others")
        delta, rates = float(delta), [float(rate) for rate in np.atleast_1d(np.asarray(false_alarms))]
    except (TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"membership_report: {error}") from None
    if not 0 <= delta < 1 or not all(0 < rate < 1 for rate in rates):
        raise PlanError(
            f"membership_report: delta {delta:g}, false_alarms {rates}; allowed: a delta from 0 to "
            "below 1, and rates above 0 and below 1"
        )
    if trials not in (None, "one_run", "runs"):
        raise PlanError(f"membership_report: trials={trials!r}; allowed: one_run, runs, or None")
    shown = _bounded(one, zero, trials, delta, seed)
    area = auc(zero, one).metric()
    if area.high is not None and area.high < 0.5:
        area = area.model_copy(update={"reason": _REVERSED})
    return MembershipReport(
        auc=area,
        rates={rate: tpr_at_fpr(zero, one, rate).metric() for rate in rates},
        epsilon=Metric(
            value=shown.epsilon, low=shown.epsilon, n=len(one) + len(zero), reason=shown.reason or shown.estimator
        ),
        delta=delta,
    )


def _scores(given: ArrayLike, name: str) -> Floats:
    """Return the scores of a list, an array or a tensor.

    Raises:
        ValueError: They are no real numbers, some are masked, or as `checked_scores`.
    """
    array = as_array(given)
    if np.iscomplexobj(array) or np.ma.is_masked(given):
        raise ValueError(f"{name} hold complex or masked numbers; allowed: real numbers")
    return checked_scores(array, name)


def _bounded(one: Floats, zero: Floats, trials: Trials | None, delta: float, seed: int) -> EpsilonBound:
    """Return the lower bound on epsilon, or the reason that there is none."""
    total = len(one) + len(zero)
    reason = None
    if trials is None:
        reason = "a bound depends on how scores came about, which `trials` says: one_run or runs"
    elif min(len(one), len(zero)) < _FEWEST:
        reason = f"{len(one)} members and {len(zero)} others are too few; each side needs {_FEWEST}"
    elif trials == "one_run" and binomtest(len(one), total).pvalue < _NO_COIN:
        reason = f"no fair coin made {len(one)} of {total} records members, which one_run assumes"
    if reason is not None:
        return EpsilonBound(None, _CONFIDENCE, "", reason=reason)
    rng = np.random.default_rng(seed)
    if trials == "runs":
        return threshold_bound(zero, one, delta=delta, rng=rng, confidence=_CONFIDENCE, choice="bonferroni")
    # Equal scores are guessed in the order of the list, which must be independent of membership.
    order = rng.permutation(total)
    scores = np.concatenate([one, zero])[order]
    return one_run_fdp_bound(scores, order < len(one), delta=delta, confidence=_CONFIDENCE)


def _said(metric: Metric) -> str:
    if metric.value is None:
        return f"not available: {metric.reason}"
    if metric.high is None:
        return f"at least {significant(metric.value)}, n = {metric.n}"
    return f"{significant(metric.value)} {interval(metric)}{metric.reason and f' ({metric.reason})'}"
