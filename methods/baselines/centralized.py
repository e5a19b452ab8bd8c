"""Centralized training: the oracle for every federated method over the same backbone."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedassay.contracts.facts import MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.heads.linear import FeatureModel
from fedassay.methods.shared.heads import HeadTraining, broadcast, by_server
from fedassay.plan.work import one_head
from fedassay.support.errors import DataError
from fedassay.support.types import Parameters


@register("method", "centralized")
class Centralized(Parameters):
    """All records are pooled at the server, which trains a head on their features.

    That means sending the records themselves, and the transcript says so.

    Attributes:
        head: Settings of the head's training.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(private_form=False, cost=one_head)

    head: HeadTraining = HeadTraining()

    def run(self, task: MethodInput) -> Outcome:
        """Pool the records and train the head.

        Raises:
            DataError: There are no records.
        """
        labels = np.concatenate([client.labels for client in task.clients])
        if not len(labels):
            raise DataError("centralized: no client has any record")
        head = self.head.fit(np.concatenate([client.features for client in task.clients]), labels, task)
        messages = [
            Message(
                0,
                client.name,
                SERVER,
                {
                    "images": MessageField(client.images, "other", exact(note="the records themselves")),
                    "labels": MessageField(client.labels.astype(np.int32), "labels", exact("labels")),
                },
            )
            for client in task.clients
        ]
        return Outcome(
            Transcript("centralized", task.classes, (*messages, *broadcast(head, task.clients))),
            FeatureModel(head),
            estimators=by_server(self.head.estimator()),
        )
