"""Certificates of recovered vectors, fitted on control clients before the truth of the audited ones is joined.

A factorization gives the expected error of each vector. The largest expected error to trust is fitted on control
clients with known truth: the largest threshold t such that

    (n / (n + 1)) mean over clients of sup over s <= t of FDP(s)  +  1 / (n + 1)  <=  alpha,

FDP(s) the share of wrong vectors among those of a client with an expected error of at most s. For an audited
client that is exchangeable with the n control clients, the expected share of wrong vectors among those certified
is then at most alpha (conformal risk control; Angelopoulos, Bates, Fisch, Lei and Schuster 2024, theorem 1, with
the loss made monotone). At alpha = .1 that takes 9 of them. The guarantee is of the share wrong of one client, in
the mean over clients: each counts once, however many vectors it has, as one without a wrong vector where none is
certified. It is no bound on the share wrong of all vectors together: large clients with wrong vectors may raise it
above alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.audits.stats.persons import interval_of_shares
from fedassay.records.record import Metric, unmeasured
from fedassay.support.types import Bools, Matrix

FALSE_DISCOVERIES = 0.1
"""Share of wrong vectors among the certified ones of a client, in the mean over clients."""

WRONG = 0.1
"""Relative error above which a certified vector is wrong: it is no longer nearly the record's."""


@dataclass(frozen=True)
class Recovered:
    """One client's vectors.

    Attributes:
        expected: Expected error of each vector, from what can be seen without the truth, shape (k,).
        errors: True relative error of each, infinite where it is no record's, shape (k,).
    """

    expected: Matrix
    errors: Matrix


@dataclass(frozen=True)
class Certificate:
    """Largest expected error at which a vector is trusted.

    Attributes:
        threshold: Vectors with an expected error of at most that are certified; below 0: none are.
        clients: Control clients that it was fitted on.
    """

    threshold: float
    clients: int

    def certified(self, expected: Matrix) -> Bools:
        """Whether each vector is certified, shape (k,)."""
        return np.asarray(expected <= self.threshold)


def fit(controls: Sequence[Recovered], alpha: float = FALSE_DISCOVERIES) -> Certificate:
    """The largest threshold at which control clients keep the expected share of wrong vectors at alpha."""
    size = len(controls)
    if size == 0 or 1 / (size + 1) > alpha + 1e-12:
        return Certificate(-1.0, size)
    levels = np.unique(np.concatenate([control.expected for control in controls]))
    best = -1.0
    worst = np.zeros(size)
    for level in levels[np.isfinite(levels)]:
        worst = np.maximum(worst, [_false_share(control, float(level)) for control in controls])
        if (float(worst.sum()) + 1) / (size + 1) > alpha + 1e-12:
            break
        best = float(level)
    return Certificate(best, size)


def _false_share(client: Recovered, level: float) -> float:
    taken = client.expected <= level
    return float((client.errors[taken] > WRONG).mean()) if taken.any() else 0.0


def certificate_metrics(certificate: Certificate, audited: Sequence[Recovered]) -> dict[str, Metric]:
    """Metrics of certificates: the number of certified vectors, and the mean share of a client's that is wrong."""
    needed = round(1 / FALSE_DISCOVERIES) - 1
    if certificate.clients < needed:
        why = (
            f"certificates at a false-discovery rate of {FALSE_DISCOVERIES:g} take {needed} control clients, and "
            f"there are {certificate.clients}"
        )
        return {"certified": unmeasured(why), "certified_wrong": unmeasured(why)}
    vectors = sum(len(client.expected) for client in audited)
    taken = sum(int(certificate.certified(client.expected).sum()) for client in audited)
    fitted = (
        f"expected error at most {max(certificate.threshold, 0):.2g}, from {certificate.clients} control clients"
    )
    found = {"certified": Metric(value=float(taken), n=vectors, reason=fitted)}
    if taken == 0:
        return {**found, "certified_wrong": unmeasured("no vector was certified")}
    shares = np.array([_false_share(client, certificate.threshold) for client in audited])
    low, high = interval_of_shares(shares)
    reason = f"{fitted}; mean over clients of the share of a client's certified features"
    share = Metric(value=float(shares.mean()), low=low, high=high, n=len(audited), reason=reason)
    return {**found, "certified_wrong": share}
