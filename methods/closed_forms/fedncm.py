"""FedNCM (Legate et al., NeurIPS 2023, arXiv 2306.03937): the nearest class mean, from means and counts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.heads.linear import LinearHead
from fedassay.heads.ridge import rows_of_norm_one, without_bias
from fedassay.methods.closed_forms.class_means import Transport, read_class_means, send_class_means
from fedassay.methods.closed_forms.statistics import FeatureMap, Sent, outcome_of, seconds_of_means
from fedassay.support.types import Parameters


@register("method", "fedncm")
class FedNCM(Parameters):
    """Clients send class means and counts; the pooled means, scaled to norm 1, are the head (FedNCM).

    The paper goes on from this head to fine-tune the whole network by federated averaging; here it is the model.
    Pooled means are those of the pooled records, for every partition. Private runs clip features to norm 1, and
    send counts and class sums that are noised jointly.

    Attributes:
        transport: Data type of the means in messages.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        units=EVERY_UNIT,
        cost=seconds_of_means,
        malicious="backbone",
        sends=("class_means", "class_sums", "class_counts"),
    )

    transport: Transport = "float32"

    def run(self, task: MethodInput) -> Outcome:
        """One round: means and counts up, head down.

        Raises:
            DataError: No client has a record.
        """
        task.require_records("fedncm")
        sent = send_class_means("fedncm", self.transport, task)
        return outcome_of(sent, lambda: _solve(sent, task), FeatureMap(clip=sent.noise is not None), task)


def _solve(sent: Sent, task: MethodInput) -> tuple[LinearHead, tuple[str, ...]]:
    total, means = read_class_means(sent, task.classes).pooled
    kept = np.flatnonzero(total > 0).astype(np.int64)
    return without_bias(kept, rows_of_norm_one(means[kept])), ()
