"""Common parts of the methods over frozen features: training a head and sending it out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeVar

import numpy as np
from pydantic import BaseModel, Field

from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.release import derived
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.heads.estimating import Estimator
from fedassay.heads.estimators import SoftmaxEstimator
from fedassay.heads.linear import DECAY, LinearHead, train_head
from fedassay.support.optimisation import Minibatches, OptimizerKey
from fedassay.support.types import Floats, Frozen, Ints

OVERFITTED = 300
"""Passes after which a network, or a head, memorizes a few dozen records."""
OVERFITTING_RATE = 3e-3
"""Learning rate of Adam at which it does so."""

_Trained = TypeVar("_Trained", bound=BaseModel)


def overfitted(trained: _Trained, local_epochs: int, learning_rate: float, rounds: int = 1) -> _Trained:
    """The same settings, with networks that memorize a few records in so many rounds."""
    epochs, rate = max(local_epochs, math.ceil(OVERFITTED / rounds)), max(learning_rate, OVERFITTING_RATE)
    return trained.model_copy(update={"local_epochs": epochs, "learning_rate": rate, "optimizer": None})


class HeadTraining(Frozen):
    """Settings of a softmax head's training; see `fedassay.heads.linear.train_head`.

    Attributes:
        solver: `lbfgs`: the convex objective to a tolerance. `adam`: minibatches, as in FedPFT.
        decay: L2 penalty of `lbfgs`.
        epochs: Passes of `adam`, or of `optimizer`.
        rate: Learning rate of these; 1e-4 in the paper.
        batch: Minibatch size of these.
        optimizer: Given: minibatches by it, in place of the solver. Guan et al. 2025 train FedPFT's heads by SGD
            for 50 epochs.
    """

    solver: Literal["lbfgs", "adam"] = "lbfgs"
    decay: float = Field(default=DECAY, ge=0, allow_inf_nan=False)
    epochs: int = Field(default=100, ge=1)
    rate: float = Field(default=1e-4, gt=0, allow_inf_nan=False)
    batch: int = Field(default=128, ge=1)
    optimizer: OptimizerKey = None

    def leakiest_form(self) -> HeadTraining:
        """Return settings that train until the head memorizes a few records: without a penalty, and for long."""
        return self.model_copy(
            update={
                "decay": 0.0,
                "epochs": max(self.epochs, OVERFITTED),
                "rate": max(self.rate, OVERFITTING_RATE),
                "optimizer": None,
            }
        )

    def estimator(self, classes: int | None = None) -> Estimator | None:
        """Return the equations of a trained head; None where it has not converged to a solution."""
        converged = self.solver == "lbfgs" and self.optimizer is None and self.decay > 0
        return SoftmaxEstimator(self.decay, classes) if converged else None

    def fit(self, features: Floats, labels: Ints, task: MethodInput, classes: int | None = None) -> LinearHead:
        """Train on features (n, d) and labels (n,), n >= 1; `classes`: see `train_head`."""
        import torch

        by_passes = self.solver == "adam" or self.optimizer is not None
        return train_head(
            features,
            labels,
            decay=self.decay,
            minibatches=Minibatches(self.epochs, self.batch, self.rate, self.optimizer) if by_passes else None,
            generator=torch.Generator().manual_seed(task.seeds.integer("head")),
            device=task.device,
            progress=task.progress,
            classes=classes,
        )


def by_server(estimator: Estimator | None) -> dict[tuple[str, int], Estimator]:
    """Return the equations of the server's only head, in the form of an `Outcome`."""
    return {} if estimator is None else {(SERVER, 0): estimator}


def broadcast(head: LinearHead, receivers: Sequence[Records], number: int = 0) -> list[Message]:
    """The server's messages that carry the head, in float32, to every client."""
    fields = {
        "head_classes": MessageField(head.classes.astype(np.int32), "other", derived()),
        "head_weights": MessageField(head.weights.astype(np.float32), "head", derived()),
        "head_bias": MessageField(head.bias.astype(np.float32), "head", derived()),
    }
    return [Message(number, SERVER, receiver.name, fields) for receiver in receivers]
