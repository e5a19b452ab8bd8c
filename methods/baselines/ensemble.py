"""Ensembles of models that clients train alone: heads over the backbone, or whole classifiers.

Sources: Beitollahi et al. 2024, section 5.1 (heads); Mendieta et al. 2025, section 3.1 (classifiers).
"""

from __future__ import annotations

from typing import ClassVar

from fedassay.contracts.facts import EVERY_UNIT, Given, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.exchange.transcript import Transcript
from fedassay.methods.shared.classifiers import Classifiers, of_network, sent_classifiers
from fedassay.methods.shared.dp_sgd import update_experiments
from fedassay.methods.shared.local_heads import (
    Combine,
    Ensemble,
    EnsembleOfHeads,
    LocalHeads,
    SentHead,
    received_heads,
    sent_estimators,
    sent_heads,
)
from fedassay.plan.work import local_heads, networks


def _seconds(given: Given, sizes: Sizes, private: bool) -> float:
    inner = given["networks"]
    return local_heads(given, sizes, private) if inner is None else networks(inner, sizes, private)


@register("method", "ensemble")
class EnsembleOfClients(LocalHeads):
    """Each client trains a model alone and sends it; the server predicts by all of them together.

    Nothing goes back to the clients: to predict for themselves they would need every member.

    Attributes:
        combine: The combination of members; see `fedassay.methods.shared.local_heads.Combine`. FedPFT's authors
            take `max`.
        networks: None: heads over the frozen backbone. Given: whole classifiers, with these settings
            (FedDiff's OneShot-Ens, and what `dense` distills); `head` and `dp_sgd` are then unused.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(units=EVERY_UNIT, cost=_seconds)

    combine: Combine = "mean"
    networks: Classifiers | None = None

    def leakiest_form(self) -> EnsembleOfClients:
        """The same method, with clients' models that memorize a few records."""
        networks = None if self.networks is None else self.networks.leakiest_form()
        return self.model_copy(update={"head": self.head.leakiest_form(), "networks": networks})

    def run(self, task: MethodInput) -> Outcome:
        """One round: models up.

        Raises:
            PlanError: Images do not fit through a body.
            DataError: No client has a record, or training has diverged.
        """
        if self.networks is not None:
            return self._of_networks(self.networks, task)
        messages = self.train(task, "ensemble")
        heads, _ = received_heads(messages)
        sent = float(len(messages) * task.classes * (task.backbone.width + 1))
        return Outcome(
            Transcript("ensemble", task.classes, tuple(messages), self.claim(task)),
            EnsembleOfHeads([SentHead(head).scores for head in heads], self.combine),
            communication={"paper_parameters_up": sent, "paper_bytes_up": 4 * sent},
            networks=sent_heads(messages),
            estimators=sent_estimators(self.head, messages, task),
            mechanisms=update_experiments(self.steps(task), 1),
        )

    def _of_networks(self, networks: Classifiers, task: MethodInput) -> Outcome:
        _, messages = networks.train(task, "ensemble")
        members = networks.received(messages, task)
        sent = float(sum(message.fields["parameters"].size for message in messages))
        return Outcome(
            Transcript("ensemble", task.classes, tuple(messages), networks.claim(task)),
            Ensemble([of_network(member.module) for member in members], self.combine),
            communication={"paper_parameters_up": sent, "paper_bytes_up": 4 * sent},
            networks=sent_classifiers(members),
            mechanisms=update_experiments(networks.steps(task), 1),
        )
