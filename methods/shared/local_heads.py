"""Heads that clients train alone on their own features: the parts of ensembles and averages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field
from scipy.special import softmax
from torch import Tensor, nn
from torch.nn import functional

from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.release import Claim, exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.heads.estimating import Estimator
from fedassay.heads.linear import LinearHead
from fedassay.methods.shared.dp_sgd import (
    DpSgd,
    NoisedTraining,
    training_mechanism,
    training_release,
    training_words,
)
from fedassay.methods.shared.heads import HeadTraining
from fedassay.nets.dp_sgd.clipped_update import ClippedUpdate, parameters_of, release_update
from fedassay.nets.dp_sgd.tape import Training
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.nets.local_training import record_objective, train, train_privately
from fedassay.support.optimisation import Minibatches, OptimizerKey
from fedassay.support.types import Floats, Ints, Matrix, Parameters

Combine = Literal["mean", "max", "logits"]
"""The combination of members: the mean of their probabilities; the class with the highest probability at any of
them (Beitollahi et al. 2024, section 5.1); or the mean of their scores (DENSE, equation 1). `max` follows the most
confident member: heads of few records, fitted by `lbfgs` on their own scale, are confident about classes they have
never seen."""

_GROUP = "head"


class HeadDpSgd(DpSgd):
    """Settings of a head's differentially private training.

    Attributes:
        epochs: Times that each record is sampled, on average.
        batch: Divisor of the noised gradient sums.
        learning_rate: Learning rate of the optimiser.
        optimizer: None: Adam.
    """

    epochs: int = Field(default=20, ge=1)
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1e-2, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None


class LocalHeads(Parameters):
    """Parameters of methods with one head for each client.

    Attributes:
        head: Settings of its training; over all C classes, for a client cannot leave the others' to chance.
        dp_sgd: Settings of its training in a private run: by DP-SGD from a head of zeros.
    """

    head: HeadTraining = HeadTraining()
    dp_sgd: HeadDpSgd = HeadDpSgd()

    def leakiest_form(self) -> Self:
        """The same method, with heads that memorize a few records."""
        return self.model_copy(update={"head": self.head.leakiest_form()})

    def steps(self, task: MethodInput) -> NoisedTraining | None:
        """The training of a private run; None otherwise."""
        if not task.privacy.private:
            return None
        return self.dp_sgd.steps(task.privacy, epochs=self.dp_sgd.epochs, rounds=1, batch=self.dp_sgd.batch)

    def fit(self, client: Records, steps: NoisedTraining | None, task: MethodInput) -> LinearHead:
        """A client's own head over C classes; zeros where it has no records (noise, in a private run)."""
        width = task.backbone.width
        if steps is not None:
            return self._privately(client, steps, task)
        if not len(client):
            return LinearHead(np.arange(task.classes), np.zeros((task.classes, width)), np.zeros(task.classes))
        return self.head.fit(client.features, client.labels, task, task.classes)

    def _privately(self, client: Records, steps: NoisedTraining, task: MethodInput) -> LinearHead:
        module = nn.Linear(task.backbone.width, task.classes)
        with torch.no_grad():
            module.weight.zero_()
            module.bias.zero_()
        module.to(task.device)
        features = torch.tensor(np.asarray(client.features, dtype=np.float32), device=task.device)
        records = (features, torch.tensor(client.labels, device=task.device))
        settings = self.dp_sgd
        if isinstance(steps, ClippedUpdate):
            start, source = parameters_of(module), task.seeds.integer("training", client.name)
            minibatches = Minibatches(settings.epochs, settings.batch, settings.learning_rate, settings.optimizer)
            train(module, *records, head_loss, minibatches, torch.Generator().manual_seed(source))
            release_update(module, start, steps, task.mechanism(client.name, 0, _GROUP))
            return head_of(module)
        mechanism = training_mechanism(task, client.name, 0, _GROUP)
        updates, objective = Updates.by(settings.optimizer, settings.learning_rate), record_objective(head_loss)
        training = Training(module, *records, objective, steps, updates, mechanism)
        train_privately(training, task.persons(client))
        return head_of(module)

    def message(
        self,
        client: Records,
        head: LinearHead,
        steps: NoisedTraining | None,
        task: MethodInput,
        receiver: str = SERVER,
    ) -> Message:
        """A client's head on its way, in float32; without privacy also the number of its records."""
        release = exact() if steps is None else training_release(steps, task.privacy, group=_GROUP)
        fields = {
            "head_weights": MessageField(head.weights.astype(np.float32), "head", release),
            "head_bias": MessageField(head.bias.astype(np.float32), "head", release),
        }
        if steps is None:
            fields["records"] = MessageField(np.array([len(client)], dtype=np.int32), "other", exact("size"))
        return Message(0, client.name, receiver, fields)

    def train(self, task: MethodInput, method: str) -> list[Message]:
        """Every client's head, on its way to the server.

        Raises:
            DataError: No client has a record.
        """
        task.require_records(method)
        steps = self.steps(task)
        return task.spool.keep_all(
            self.message(client, self.fit(client, steps, task), steps, task)
            for client in task.progress.each("heads", task.clients)
        )

    def claim(self, task: MethodInput) -> Claim:
        """Return a private run's claim."""
        return task.privacy.claim(
            f"{training_words(task.privacy)} on each client's head, by privacy loss distributions"
        )


def received_heads(messages: Sequence[Message]) -> tuple[list[LinearHead], Matrix]:
    """Heads as the receiver has them, of the senders that have records, and the weight of each.

    Returns:
        The heads, and their weights (k,): numbers of records; 1 each where these are not sent.
    """
    heads, weights = [], []
    for message in messages:
        records = message.fields.get("records")
        weight = 1.0 if records is None else float(records.values[0])
        if weight > 0:
            matrix = message.fields["head_weights"].values
            heads.append(LinearHead(np.arange(len(matrix)), matrix, message.fields["head_bias"].values))
            weights.append(weight)
    return heads, np.array(weights)


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Predicts by the agreement of several members: a `fedassay.contracts.method.Model`.

    Attributes:
        members: From records to scores over all C classes (n, C); their softmax gives probabilities.
        combine: See `Combine`.
    """

    members: Sequence[Callable[[Records], Matrix]]
    combine: Combine = "mean"

    def predict(self, records: Records) -> Ints:
        """Predicted classes, shape (n,)."""
        join = np.maximum if self.combine == "max" else np.add
        total: Matrix | float = 0.0
        for member in self.members:
            own = member(records)
            total = join(total, own if self.combine == "logits" else softmax(own, axis=1))
        return np.asarray(np.argmax(total, axis=1), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class EnsembleOfHeads(Ensemble):
    """An ensemble of heads over the backbone: a `fedassay.contracts.method.OnFeatures` as well.

    Attributes:
        transform: None: the heads take features as they are.
    """

    transform: None = None


@dataclass(frozen=True, eq=False)
class SentHead:
    """A classifier that a message's head is over the backbone: a `fedassay.exchange.models.ScoringModel`.

    Attributes:
        head: The received head.
    """

    head: LinearHead

    def scores(self, records: Records) -> Matrix:
        """Class scores (logits), shape (n, C)."""
        return self.head.scores(records.features)


def sent_estimators(
    training: HeadTraining, messages: Sequence[Message], task: MethodInput
) -> dict[tuple[str, int], Estimator]:
    """Return the equations of the head in every message of a sender, where it is trained without privacy."""
    estimator = None if task.privacy.private else training.estimator(task.classes)
    return {} if estimator is None else {(message.sender, message.round): estimator for message in messages}


def sent_heads(messages: Sequence[Message]) -> dict[tuple[str, int], SentHead]:
    """The head in every message of a sender that has records, by sender and round."""
    return {
        (message.sender, message.round): SentHead(head)
        for message in messages
        for head in received_heads([message])[0]
    }


def head_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each record."""
    return functional.cross_entropy(scores, labels, reduction="none")


def head_of(module: nn.Linear) -> LinearHead:
    """The head that a linear layer over all classes is; later steps of the layer leave it as it is."""
    weights: Floats = module.weight.detach().cpu().numpy().copy()
    return LinearHead(np.arange(len(weights)), weights, module.bias.detach().cpu().numpy().copy())


def module_of(head: LinearHead, device: str) -> nn.Linear:
    """The linear layer over all classes that a head is, to be trained further."""
    module = nn.Linear(head.weights.shape[1], len(head.classes))
    with torch.no_grad():
        module.weight.copy_(torch.tensor(np.asarray(head.weights)))
        module.bias.copy_(torch.tensor(np.asarray(head.bias)))
    return module.to(device)


def mean_of(heads: Sequence[LinearHead]) -> LinearHead:
    """Return a head with the mean scores of several heads, at least one, over the same classes."""
    weights = np.mean([each.weights for each in heads], axis=0)
    return LinearHead(heads[0].classes, weights, np.mean([each.bias for each in heads], axis=0))
