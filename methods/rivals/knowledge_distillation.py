"""Distilling a source's head into a destination's (Hinton et al. 2015).

As a rival of FedPFT: Beitollahi et al. 2024, table 2, row KD.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from scipy.special import softmax
from torch.nn import functional

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.exchange.transcript import Transcript
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.methods.shared.dp_sgd import update_experiments
from fedassay.methods.shared.local_heads import LocalHeads, head_of, module_of, received_heads, sent_heads
from fedassay.plan.work import local_heads
from fedassay.support.errors import DataError, PlanError
from fedassay.support.optimisation import OptimizerKey, chosen, take_step


@register("method", "knowledge_distillation")
class KnowledgeDistillation(LocalHeads):
    """A source sends its head to a destination, which distills it into its own on its own records.

    Each client trains a head; the last client is the destination, the others are sources (one, in the
    paper). The destination starts from its own head and minimises, over its own features,

        (1 - share) CE(y, p) + share T^2 KL(q_T || p_T),

    q_T the mean of the received heads' probabilities at temperature T, p_T its own. The paper gives optimiser,
    epochs and temperatures, not the share of the teacher: here a half. `accuracy` is that of the destination's
    head. It learns about classes without own records from the source's answers on records of other classes.

    Attributes:
        temperature: T; the paper picks the best of 1, 5 and 10 on the test set.
        share: Weight of the teacher.
        epochs: Passes over the destination's records; 50 in the paper.
        learning_rate: Learning rate of the optimiser; 1e-4 in the paper.
        optimizer: None: Adam.
        batch: Minibatch size.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(units=EVERY_UNIT, cost=local_heads)

    temperature: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    share: float = Field(default=0.5, ge=0, le=1)
    epochs: int = Field(default=50, ge=1)
    learning_rate: float = Field(default=1e-2, gt=0, allow_inf_nan=False)
    batch: int = Field(default=128, ge=1)
    optimizer: OptimizerKey = None

    def run(self, task: MethodInput) -> Outcome:
        """One message from every source to the destination.

        Raises:
            PlanError: There is one client only.
            DataError: The destination has no records, or no source has.
        """
        if len(task.clients) < 2:
            raise PlanError("knowledge_distillation: 1 client; a source and a destination are needed")
        *sources, destination = task.clients
        steps = self.steps(task)
        messages = task.spool.keep_all(
            self.message(source, self.fit(source, steps, task), steps, task, destination.name)
            for source in sources
        )
        teachers, _ = received_heads(messages)
        # The destination's head stays with it: a private run need not noise it.
        student = self.fit(destination, None, task)
        if not len(destination) and not teachers:
            raise DataError("knowledge_distillation: no client has any record")
        notes = []
        if not len(destination):
            # Whether a client has any record is protected, and a note would say it.
            if steps is None:
                notes.append("the destination has no records to distill on and keeps the first source's head")
            student = teachers[0]
        elif teachers:
            student = self._distill(student, teachers, destination, task)
        correct = {
            f"accuracy_{source.name}": float(np.mean(head.predict(task.test.features) == task.test.labels))
            for source, head in zip((each for each in sources if len(each) or steps), teachers, strict=True)
        }
        sent = float(len(messages) * task.classes * (task.backbone.width + 1))
        return Outcome(
            Transcript("knowledge_distillation", task.classes, tuple(messages), self.claim(task)),
            FeatureModel(student),
            utility=correct,
            communication={"paper_parameters_up": sent, "paper_bytes_up": 4 * sent},
            networks=sent_heads(messages),
            mechanisms=update_experiments(steps, 1),
            stays=frozenset({"model"}),
            notes=tuple(notes),
        )

    def _distill(
        self, start: LinearHead, teachers: list[LinearHead], destination: Records, task: MethodInput
    ) -> LinearHead:
        """Train the destination's head, from its own, on its own records and the teachers' answers."""
        features = destination.features
        taught = np.mean([softmax(head.scores(features) / self.temperature, axis=1) for head in teachers], axis=0)
        inputs = torch.tensor(np.asarray(features, dtype=np.float32), device=task.device)
        labels = torch.tensor(destination.labels, device=task.device)
        goals = torch.tensor(taught, dtype=torch.float32, device=task.device)
        module = module_of(start, task.device)
        optimizer = chosen(self.optimizer).build(module.parameters(), self.learning_rate)
        generator = torch.Generator().manual_seed(task.seeds.integer("distillation", destination.name))
        for _ in range(self.epochs):
            order = torch.randperm(len(labels), generator=generator).to(labels.device)
            for rows in torch.split(order, self.batch):
                scores = module(inputs[rows])
                own = functional.log_softmax(scores / self.temperature, dim=1)
                away = functional.kl_div(own, goals[rows], reduction="batchmean")
                truth = functional.cross_entropy(scores, labels[rows])
                take_step(optimizer, (1 - self.share) * truth + self.share * self.temperature**2 * away)
        return head_of(module)
