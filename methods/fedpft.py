"""FedPFT (papers 000 and 003): Gaussian mixtures of each class's features from every client, one round."""

from __future__ import annotations

from fedassay.errors import DataError
from fedassay.linear_head import FeatureModel
from fedassay.methods.fedpft_messages import mixture_message, synthesise
from fedassay.methods.fedpft_parameters import MixtureParameters, worst
from fedassay.methods.heads import broadcast
from fedassay.registry import register
from fedassay.task import Outcome, Task
from fedassay.transcript import Transcript


@register("method", "fedpft")
class FedPFT(MixtureParameters):
    """Clients send a Gaussian mixture per class; the server samples them and trains a head.

    Private runs clip features to norm 1. One component: one joint Gaussian release of mean and second
    moment per class (or of count, sum and second-moment sum where counts are private). Several: DP-EM.
    """

    def run(self, task: Task) -> Outcome:
        """One round: mixtures up, head down.

        Raises:
            PlanError: `components` does not match the clients, or does not fit the mechanism.
            DataError: No client has a usable record.
        """
        wanted = self.components_of(len(task.clients))
        if not any(len(client) for client in task.clients):
            raise DataError("fedpft: no client has any record")
        fitted = self.fit(task.clients, wanted, task)
        messages = [
            mixture_message(client.name, own, self.transport)
            for client, own in zip(task.clients, fitted, strict=True)
        ]
        features, labels = synthesise(messages, task)
        head = self.head.fit(features, labels, task)
        return Outcome(
            Transcript(
                "fedpft",
                task.classes,
                (*messages, *broadcast(head, task.clients)),
                self.claim(task),
                self.ledger_notes(task),
            ),
            FeatureModel(head, self.clip if task.privacy.private else None),
            communication=self.closed_form(fitted, task.backbone.width),
            mechanisms=worst(fitted),
            notes=self.shortened(task.clients, fitted, wanted),
        )
