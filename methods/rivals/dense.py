"""DENSE (Zhang et al. 2022, NeurIPS): the ensemble of clients' classifiers distilled into one, without data."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.methods.shared.classifiers import of_network
from fedassay.methods.shared.data_free import DataFree, Game, Members, away, seconds
from fedassay.methods.shared.local_heads import Ensemble


@register("method", "dense")
class Dense(DataFree):
    """The server trains a generator against the clients' classifiers, and a student on the generated images.

    A round draws latent vectors and labels, which the generator is given besides (in the paper it must guess
    them), and adapts it to both by (equations 2 to 5)

        CE(ensemble(x), y) + statistics * BN(x) - boundary * [student disagrees] KL(ensemble(x) || student(x)),

    keeps the images, and lets the student imitate the ensemble's mean scores on all that are kept (equation 6). BN
    is the distance from the statistics of the classifiers' batch normalisations; networks without any, as those
    that DP-SGD can train, leave it out.

    In a private run the classifiers are trained by DP-SGD; all the rest is post-processing.

    Attributes:
        statistics: Weight of the batch-norm term.
        temperature: Temperature of the distillation.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(units=EVERY_UNIT, cost=seconds)

    statistics: float = Field(default=1.0, ge=0, allow_inf_nan=False, exclude_if=lambda given: given == 1)
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)

    def run(self, task: MethodInput) -> Outcome:
        """One round: classifiers up, the student down.

        Raises:
            PlanError: Images do not fit through a body.
            DataError: No client has a record, or training has diverged.
        """
        _, messages = self.networks.train(task, "dense")
        members = self.networks.received(messages, task)
        game = Game(self, "dense", Members([member.module for member in members]), self.statistics, task)
        images, scores = [], []
        for _ in task.progress.each("distillation", range(self.rounds)):
            made, _ = game.generate(functional.cross_entropy, self._where_apart)
            images.append(made)
            with torch.no_grad():
                scores.append(game.ensemble(made))
            kept, goals = torch.cat(images), torch.cat(scores)
            for rows in game.lessons(kept):
                game.learn(away(goals[rows], game.student(kept[rows]), self.temperature).mean())
        together = Ensemble([of_network(member.module) for member in members], "logits")
        accuracy = float(np.mean(together.predict(task.test) == task.test.labels))
        return self.outcome("dense", task, (messages, members), game.end(), {"accuracy_ensemble": accuracy})

    def _where_apart(self, taught: Tensor, own: Tensor) -> Tensor:
        apart = (own.argmax(dim=1) != taught.argmax(dim=1)).float()
        return (away(taught, own, self.temperature) * apart).mean()
