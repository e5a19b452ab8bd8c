"""Raw features: the leakiest release over a frozen backbone, and the upper bound on its accuracy."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fedassay.contracts.facts import MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.heads.linear import FeatureModel
from fedassay.methods.shared.heads import HeadTraining, broadcast, by_server
from fedassay.mixtures.packed import to_transport
from fedassay.plan.work import one_head
from fedassay.support.errors import DataError
from fedassay.support.types import Parameters


@register("method", "raw_features")
class RawFeatures(Parameters):
    """Each client sends f(x) and y of every record; the server trains a head on them.

    Attributes:
        transport: Type that the features travel in.
        head: Settings of the head's training.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(private_form=False, cost=one_head, sends=("features", "labels"))

    transport: Literal["float32", "float16"] = "float32"
    head: HeadTraining = HeadTraining()

    def leakiest_form(self) -> RawFeatures:
        """The same method, with a head that memorizes a few records."""
        return self.model_copy(update={"head": self.head.leakiest_form()})

    def run(self, task: MethodInput) -> Outcome:
        """Send everything, pool it, train the head, send it back.

        Raises:
            DataError: There are no records.
        """
        messages = task.spool.keep_all(
            Message(
                0,
                client.name,
                SERVER,
                {
                    "features": MessageField(
                        to_transport(client.features, self.transport, "features"), "features", exact()
                    ),
                    "labels": MessageField(client.labels.astype(np.int32), "labels", exact("labels")),
                },
            )
            for client in task.clients
        )
        features = np.concatenate([message.fields["features"].values for message in messages])
        labels = np.concatenate([message.fields["labels"].values for message in messages]).astype(np.int64)
        if not len(labels):
            raise DataError("raw_features: no client has any record")
        head = self.head.fit(features.astype(np.float32), labels, task)
        parameters = float(features.size)
        return Outcome(
            Transcript("raw_features", task.classes, (*messages, *broadcast(head, task.clients))),
            FeatureModel(head),
            estimators=by_server(self.head.estimator()),
            communication={
                "paper_parameters_up": parameters,
                "paper_bytes_up": parameters * np.dtype(self.transport).itemsize,
            },
        )
