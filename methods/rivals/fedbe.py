"""FedBE (Chen and Chao, ICLR 2021): an ensemble drawn from a distribution over models, distilled on public data.

As a rival of FedPFT: Beitollahi et al. 2024, figure 4 and table 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from scipy.special import softmax
from torch.nn import functional

from fedassay.contracts.facts import Given, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.exchange.transcript import Transcript
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.methods.shared.heads import broadcast
from fedassay.methods.shared.local_heads import LocalHeads, head_of, mean_of, module_of, received_heads, sent_heads
from fedassay.plan.work import head, local_heads
from fedassay.support.optimisation import OptimizerKey, chosen, take_step
from fedassay.support.types import Floats, Matrix


def _seconds(given: Given, sizes: Sizes, private: bool) -> float:
    return local_heads(given, sizes, private) + head(sizes, sizes.public * given["epochs"] / 100)


@register("method", "fedbe")
class FedBE(LocalHeads):
    """The server samples heads around those of the clients, and distills their joint predictions into one.

    Each client trains a head on its own features. The server fits a distribution over heads (section 4.2): a
    Gaussian of their weighted mean and, for each weight by itself, their weighted variance; or mixtures of them
    with proportions from a Dirichlet distribution. Their mean, the heads themselves and `samples` draws predict
    the public records; their mean probabilities teach the final head, which starts from the mean (algorithm 1).
    As in the paper its weights are averaged along the way (stochastic weight averaging), here those after each
    epoch, at a constant learning rate. Labels of public records are not used.

    In a private run the heads are trained by DP-SGD; all the rest is post-processing.

    Attributes:
        samples: M; 15 in Beitollahi et al. 2024, appendix D.
        distribution: Over the clients' heads.
        concentration: Of `dirichlet`, times each client's share of the records.
        epochs: Passes over the public records.
        learning_rate: That of the optimiser; 1e-4 in Beitollahi et al. 2024.
        optimizer: None: Adam.
        batch: Minibatch size.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(cost=_seconds)

    samples: int = Field(default=15, ge=1)
    distribution: Literal["gaussian", "dirichlet"] = "gaussian"
    concentration: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    epochs: int = Field(default=20, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None
    batch: int = Field(default=128, ge=1)

    def run(self, task: MethodInput) -> Outcome:
        """One round: heads up, the distilled one down.

        Raises:
            PlanError: There are no public records.
            DataError: No client has a record.
        """
        public = task.require_public("fedbe", "to distill on")
        messages = self.train(task, "fedbe")
        heads, weights = received_heads(messages)
        mean, drawn = self._sampled(heads, weights, task)
        teachers = [mean, *heads, *drawn]
        taught = np.mean([softmax(each.scores(public.features), axis=1) for each in teachers], axis=0)
        final = self._distilled(mean, public.features, taught, task)
        sent = float(len(messages) * task.classes * (task.backbone.width + 1))
        votes = np.mean([softmax(each.scores(task.test.features), axis=1) for each in teachers], axis=0)
        return Outcome(
            Transcript("fedbe", task.classes, (*messages, *broadcast(final, task.clients)), self.claim(task)),
            FeatureModel(final),
            utility={"accuracy_ensemble": float(np.mean(votes.argmax(axis=1) == task.test.labels))},
            communication={"paper_parameters_up": sent, "paper_bytes_up": 4 * sent},
            networks=sent_heads(messages),
        )

    def _sampled(
        self, heads: Sequence[LinearHead], weights: Matrix, task: MethodInput
    ) -> tuple[LinearHead, list[LinearHead]]:
        """The mean of the heads, and heads drawn from the distribution over them."""
        rng = task.seeds.numpy("fedbe")
        rows = np.array([np.concatenate([each.weights.ravel(), each.bias]) for each in heads], dtype=np.float64)
        shares = weights / weights.sum()
        mean = shares @ rows
        if self.distribution == "gaussian":
            spread = np.sqrt(shares @ (rows - mean) ** 2)
            drawn = mean + spread * rng.standard_normal((self.samples, len(mean)))
        else:
            drawn = rng.dirichlet(self.concentration * len(rows) * shares, self.samples) @ rows
        return _head(mean, task.classes), [_head(row, task.classes) for row in drawn]

    def _distilled(self, start: LinearHead, features: Floats, taught: Matrix, task: MethodInput) -> LinearHead:
        """The head that learns probabilities (n, C) of features (n, d), averaged over its epochs."""
        inputs = torch.tensor(np.asarray(features, dtype=np.float32), device=task.device)
        goals = torch.tensor(taught, dtype=torch.float32, device=task.device)
        module = module_of(start, task.device)
        optimizer = chosen(self.optimizer).build(module.parameters(), self.learning_rate)
        source = torch.Generator().manual_seed(task.seeds.integer("fedbe", "distillation"))
        passed: list[LinearHead] = []
        for _ in task.progress.each("distillation", range(self.epochs)):
            for rows in torch.split(torch.randperm(len(inputs), generator=source).to(inputs.device), self.batch):
                take_step(optimizer, functional.cross_entropy(module(inputs[rows]), goals[rows]))
            passed.append(head_of(module))
        return mean_of(passed)


def _head(values: Matrix, classes: int) -> LinearHead:
    """The head that a vector holds, weights before bias."""
    return LinearHead(np.arange(classes), values[:-classes].reshape(classes, -1), values[-classes:])
