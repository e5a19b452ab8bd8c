"""Distances of estimated label histograms from the true ones, from the public one, and as a claim allows.

A claim on records does not hide a client's number of records of each label: counts under its noise are as close as
that noise leaves them. Under a claim a leak is an estimate closer than the best release of counts that the claim
allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedassay.audits.evidence import ControlResult, LeakTest, by_arithmetic, by_p_value
from fedassay.audits.stats.below_baseline import below_baseline
from fedassay.audits.stats.decisions import PairedDecision
from fedassay.audits.stats.detection import drawn_trials, smallest_shift
from fedassay.audits.stats.paired import sign_flip
from fedassay.audits.stats.permutation import PermutationTest
from fedassay.audits.stats.resampling import ALONE
from fedassay.contracts.audit import AuditContext
from fedassay.support.types import Ints, Matrix

_ROUNDING = 1e-9
_SHIFTS = np.linspace(0.05, 1.0, 20)
_SHIFT_DRAWS = 100


@dataclass(frozen=True)
class Gain:
    """Total variation distances of estimates and of the baseline, shape (S,).

    Attributes:
        ours: Of the estimates.
        baseline: Of the public histogram.
        closer: Sign-flip test of whether the estimates are closer.
        farther: Of whether they are farther off.
        allowed: Distances of histograms that a claim allows anybody to release; None where nothing is claimed.
        beyond: Sign-flip test of whether the estimates are closer than these; None likewise.
        read: Histograms that a message which is sent without noise gives as they are: no chance is left in that.
        tests: Number of tests in the run.
    """

    ours: Matrix
    baseline: Matrix
    closer: PermutationTest
    farther: PermutationTest
    read: int
    tests: int
    allowed: Matrix | None = None
    beyond: PermutationTest | None = None

    @property
    def within_claim(self) -> bool:
        """Whether estimates under a claim beat the public guess: the claim's allowance is the baseline then."""
        return self.allowed is not None and self.closer.p <= ALONE

    @property
    def test(self) -> LeakTest:
        """The test of whether the estimates are closer than the baseline; under a claim, than what it allows."""
        if self.read:
            return by_arithmetic(True, "total_variation")
        p = self.closer.p if self.beyond is None else max(self.closer.p, self.beyond.p)
        return by_p_value(p, self.tests, "total_variation")

    def control(self, release: str, *, end_to_end: bool = False) -> ControlResult:
        """As a control."""
        return ControlResult(
            release,
            detected=self.test.rejects,
            alone=self.test.uncorrected,
            shown=f"{len(self.ours)} histograms at a total variation distance of {self.ours.mean():.3f}, the "
            f"public one at {self.baseline.mean():.3f}",
            value=float(self.ours.mean()),
            n=len(self.ours),
            detail="total variation distance",
            end_to_end=end_to_end,
            gain=float((self.baseline - self.ours).mean()),
        )


def gain_of(
    estimates: Matrix,
    owners: Sequence[Ints],
    context: AuditContext,
    rng: np.random.Generator,
    *,
    read: Sequence[bool],
    epsilon: float | None = None,
) -> Gain:
    """Distances of estimates from the histograms of these owners.

    Args:
        estimates: Shape (S, C).
        owners: Labels of each owner, shape (n,) each.
        context: The cell.
        rng: Of tests, and of releases that a claim allows.
        read: Whether each was read from a message without noise.
        epsilon: That is claimed; None: nothing is, or the release is a control without privacy.
    """
    counts = np.stack([np.bincount(labels, minlength=context.data.classes) for labels in owners]).astype(
        np.float64
    )
    true = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    prior = _histogram(context.data.fresh.labels, context.data.classes)
    ours, baseline = np.abs(estimates - true).sum(axis=1) / 2, np.abs(prior - true).sum(axis=1) / 2
    exactly = int((np.array(read, np.bool_) & (ours < _ROUNDING)).sum())
    closer = sign_flip(baseline - ours, rng, tests=context.num_tests)
    farther = below_baseline(-ours, -baseline, rng)
    gain = Gain(ours, baseline, closer, farther, exactly, context.num_tests)
    if epsilon is None:
        return gain
    allowed = np.abs(allowed_histograms(counts, epsilon, rng) - true).sum(axis=1) / 2
    return replace(gain, allowed=allowed, beyond=sign_flip(allowed - ours, rng, tests=context.num_tests))


def allowed_histograms(counts: Matrix, epsilon: float, rng: np.random.Generator) -> Matrix:
    """Label histograms that an epsilon-DP release of counts gives, for records added or removed, shape (S, C).

    The two-sided geometric mechanism: of all releases of a count it serves every use best (Ghosh, Roughgarden and
    Sundararajan, "Universally Utility-Maximizing Privacy Mechanisms", 2012), and the counts of several labels
    are of several records, so that each may have the whole of epsilon.
    """
    tail = math.exp(-epsilon)
    # Generator.geometric counts from 1; the difference of two has P(z) proportional to tail^|z|.
    noise = rng.geometric(1 - tail, counts.shape) - rng.geometric(1 - tail, counts.shape)
    found = np.maximum(counts + noise, 0.0)
    total = found.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, found / np.maximum(total, 1.0), 1 / counts.shape[1]))


def _histogram(labels: Ints, classes: int) -> Matrix:
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    return np.asarray(counts / max(float(counts.sum()), 1.0))


def smallest_saving(saved: Matrix, tests: int, rng: np.random.Generator) -> float | None:
    """The smallest distance which, saved by every sender, is found with probability .95; None where none is.

    Args:
        saved: Distances that estimates save where nothing is known, shape (S,).
        tests: Number of tests in the run.
        rng: Source of the runs.
    """
    size = len(saved)
    decision = PairedDecision(size, size, tests)

    def finds(shift: float, run: np.random.Generator) -> bool:
        gains = np.minimum(saved[drawn_trials(size, size, run)] + shift, 1.0)
        return decision.rejects(gains, np.zeros(size))

    return smallest_shift(_SHIFTS, finds, rng, draws=_SHIFT_DRAWS)
