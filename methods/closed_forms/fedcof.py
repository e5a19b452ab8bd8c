"""FedCOF (Goswami et al., NeurIPS 2025, arXiv 2412.14326): covariances from the spread of the clients' means."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.heads.linear import LinearHead
from fedassay.heads.ridge import ridge_weights, rows_of_norm_one, without_bias
from fedassay.methods.closed_forms.class_means import ClassMeans, Transport, read_class_means, send_class_means
from fedassay.methods.closed_forms.statistics import FeatureMap, Sent, outcome_of, seconds_of_moments
from fedassay.support.types import Matrix, Parameters


@register("method", "fedcof")
class FedCOF(Parameters):
    """Clients send class means and counts; the server estimates covariances from how the means differ (FedCOF).

    Means of n records scatter by Sigma / n, so that with K_c clients that hold class c

        Sigma_c = sum_k n_kc (mu_kc - mu_c)(mu_kc - mu_c)^T / (K_c - 1)

    estimates the class's covariance without bias where clients draw from one distribution; a class at one client
    has none. The head is ridge regression on G = N mu mu^T + sum_c (n_c - 1)(Sigma_c + gamma I), which leaves the
    scatter between classes out: rows A_c G^-1, scaled to norm 1 (algorithm 1). Unlike the other closed forms it
    depends on the partition. Private runs clip features to norm 1, and send counts and class sums that are noised
    jointly.

    Attributes:
        gamma: Shrinkage of every class's covariance.
        transport: Data type of the means in messages.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        units=EVERY_UNIT,
        cost=seconds_of_moments,
        malicious="backbone",
        sends=("class_means", "class_sums", "class_counts"),
    )

    gamma: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    transport: Transport = "float32"

    def run(self, task: MethodInput) -> Outcome:
        """One round: means and counts up, head down.

        Raises:
            DataError: No client has a record, or there are too few for an estimate that can be solved for.
        """
        task.require_records("fedcof")
        sent = send_class_means("fedcof", self.transport, task)
        return outcome_of(sent, lambda: self._solve(sent, task), FeatureMap(clip=sent.noise is not None), task)

    def _solve(self, sent: Sent, task: MethodInput) -> tuple[LinearHead, tuple[str, ...]]:
        read = read_class_means(sent, task.classes)
        total, means = read.pooled
        kept = np.flatnonzero(total > 0).astype(np.int64)
        gram = estimated_gram(read, self.gamma)
        weights = rows_of_norm_one(ridge_weights(gram, total[kept, None] * means[kept], 0.0))
        alone = int(((read.counts > 0).sum(axis=0) == 1).sum())
        notes = (f"{alone} classes are at one client each: their covariance is the shrinkage alone",)
        return without_bias(kept, weights), notes if alone else ()


def estimated_gram(read: ClassMeans, gamma: float) -> Matrix:
    """G = N mu mu^T + sum_c (n_c - 1)(Sigma_c + gamma I), shape (d, d)."""
    total, means = read.pooled
    size, width = float(total.sum()), means.shape[1]
    mean = total @ means / size
    gram = size * np.outer(mean, mean)
    for label in np.flatnonzero(total > 0):
        counts = read.counts[:, label]
        holders = int((counts > 0).sum())
        gram += max(total[label] - 1, 0.0) * gamma * np.eye(width)
        if holders > 1:
            away = np.sqrt(counts)[:, None] * (read.means[:, label] - means[label]) * (counts > 0)[:, None]
            gram += max(total[label] - 1, 0.0) / (holders - 1) * away.T @ away
    return gram
