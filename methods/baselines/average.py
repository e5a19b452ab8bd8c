"""Averaging the heads that clients train alone (Beitollahi et al. 2024, tables 2 and 5, row Average)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.exchange.transcript import Transcript
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.methods.shared.dp_sgd import update_experiments
from fedassay.methods.shared.heads import broadcast
from fedassay.methods.shared.local_heads import LocalHeads, received_heads, sent_estimators, sent_heads
from fedassay.plan.work import local_heads


@register("method", "average")
class Average(LocalHeads):
    """Each client trains a head on its own features; the server averages weights and biases.

    Weighted by the clients' numbers of records (one-shot FedAvg of the head); equally in a private run,
    where these numbers do not leave. `fedavg` averages whole networks.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(units=EVERY_UNIT, cost=local_heads, sends=("head",))

    def run(self, task: MethodInput) -> Outcome:
        """One round: heads up, their average down.

        Raises:
            DataError: No client has a record.
        """
        messages = self.train(task, "average")
        heads, weights = received_heads(messages)
        head = LinearHead(
            np.arange(task.classes),
            np.average([each.weights for each in heads], axis=0, weights=weights),
            np.average([each.bias for each in heads], axis=0, weights=weights),
        )
        sent = float(len(messages) * task.classes * (task.backbone.width + 1))
        return Outcome(
            Transcript("average", task.classes, (*messages, *broadcast(head, task.clients)), self.claim(task)),
            FeatureModel(head),
            communication={"paper_parameters_up": sent, "paper_bytes_up": 4 * sent},
            networks=sent_heads(messages),
            estimators=sent_estimators(self.head, messages, task),
            mechanisms=update_experiments(self.steps(task), 1),
        )
