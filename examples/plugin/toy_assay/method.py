"""A method of another package."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.contracts.facts import MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.exchange.release import NoClaim, exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.support.types import Parameters


@register("method", "toy_sums")
class ToySums(Parameters):
    """Sends class counts and scaled class sums; the server classifies by the nearest mean."""

    facts: ClassVar[MethodFacts] = MethodFacts(
        private_form=False, cost=lambda given, sizes, private: 1e-6 * sizes.private
    )

    scale: float = Field(default=1.0, gt=0)
    """What the sums are multiplied by."""

    def run(self, task: MethodInput) -> Outcome:
        """One message a client."""
        messages, counts, sums = [], np.zeros(task.classes), np.zeros((task.classes, task.backbone.width))
        for client in task.clients:
            member = np.eye(task.classes)[client.labels]
            own, added = member.sum(axis=0), self.scale * (member.T @ client.features)
            fields = {
                "counts": MessageField(own, "class_counts", exact("labels"), additive=True),
                "sums": MessageField(added, "class_sums", exact(), additive=True),
            }
            messages.append(Message(0, client.name, SERVER, fields))
            counts, sums = counts + own, sums + added / self.scale
        transcript = Transcript("toy_sums", task.classes, tuple(messages), NoClaim(reason="no noise is added"))
        # The class with the nearest mean is the one with the largest m x - |m|^2 / 2.
        means = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
        head = LinearHead(np.arange(task.classes), means, -(means**2).sum(axis=1) / 2)
        return Outcome(transcript, FeatureModel(head))
