"""The networks that clients train themselves, and predictions with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor, nn

from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.methods.shared.dp_sgd import NoisedTraining, training_mechanism
from fedassay.methods.shared.personalized import Personalized, personalized_accuracy
from fedassay.nets.dp_sgd.clipped_update import parameters_of, release_update
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.tape import Training
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.nets.local_training import RecordLoss, record_objective, train, train_privately
from fedassay.nets.state import moving_statistics
from fedassay.support.errors import DataError, PlanError
from fedassay.support.optimisation import Minibatches, Optimizer
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images, Ints

_BATCH = 1024


@dataclass(frozen=True, eq=False)
class LocalNetwork:
    """A network and the records it is trained on.

    Attributes:
        name: Name of its random streams: the client, or another owner of its training.
        module: From images (n, channels, height, width), 0 to 255, to outputs (n, k); changed in place.
        inputs: The records' images in that layout, uint8.
        labels: Their labels, shape (n,).
        persons: Places of each person's records, where private training is of persons; see `MethodInput.persons`.
    """

    name: str
    module: nn.Module
    inputs: Tensor
    labels: Tensor
    persons: Ints | None = None


def local_network(
    name: str, module: nn.Module, records: Records, device: str, persons: Ints | None = None
) -> LocalNetwork:
    """Put a module and the records it is to be trained on onto a device."""
    labels = torch.tensor(records.labels, device=device)
    return LocalNetwork(name, module.to(device), to_inputs(records.images, device), labels, persons)


def to_inputs(images: Images, device: str) -> Tensor:
    """(n, height, width, channels) to (n, channels, height, width), uint8, contiguous."""
    return torch.tensor(images, device=device).permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True)
class LocalTraining:
    """Settings of networks' training in a round.

    Attributes:
        epochs: Passes over the records; DP-SGD has its own steps.
        batch: Minibatch size.
        rate: Learning rate.
        private: DP-SGD in place of plain training, or the release of its clipped update; None: neither.
        field: Name of the privately trained field in the message: group or field.
        optimizer: None: Adam.
        pull: See `fedassay.support.optimisation.pulled`.
    """

    epochs: int
    batch: int
    rate: float
    private: NoisedTraining | None
    field: str = "parameters"
    optimizer: Optimizer | None = None
    pull: float = 0.0

    def __call__(
        self, network: LocalNetwork, loss: RecordLoss, task: MethodInput, number: int, seeds: Seeds | None = None
    ) -> None:
        """Train a network in place; its random draws depend on its name and on the round.

        Args:
            network: The network and its records.
            loss: See `RecordLoss`.
            task: Source of the streams of private training.
            number: Global round.
            seeds: Source of the draws of plain training; None: the task's.

        Raises:
            PlanError: The network mixes records, and training is private.
        """
        if self.private is not None and moving_statistics(network.module):
            raise PlanError(
                "bodies: a network with batch normalisation mixes the records of a batch, and DP-SGD "
                "cannot clip one alone; allowed with a finite epsilon: resnet16_group, or another body"
            )
        if isinstance(self.private, PrivateSteps):
            mechanism = training_mechanism(task, network.name, number, self.field)
            updates, objective = Updates.by(self.optimizer, self.rate, self.pull), record_objective(loss)
            records = (network.inputs, network.labels)
            train_privately(
                Training(network.module, *records, objective, self.private, updates, mechanism), network.persons
            )
            return
        start = parameters_of(network.module) if self.private is not None else None
        seed = (seeds or task.seeds).integer("training", number, network.name)
        generator = torch.Generator().manual_seed(seed)
        minibatches = Minibatches(self.epochs, self.batch, self.rate, self.optimizer, self.pull)
        train(network.module, network.inputs, network.labels, loss, minibatches, generator)
        if self.private is not None and start is not None:
            release_update(network.module, start, self.private, task.mechanism(network.name, number, self.field))


def outputs(module: nn.Module, images: Images) -> NDArray[np.float32]:
    """Return a network's outputs on images, shape (n, k)."""
    device = next(module.parameters()).device
    with torch.inference_mode():
        parts = [
            module(to_inputs(images[start : start + _BATCH], str(device))).cpu().numpy()
            for start in range(0, max(len(images), 1), _BATCH)
        ]
    return np.concatenate(parts)


def finite(values: NDArray[np.float32], problem: str) -> NDArray[np.float32]:
    """Return trained values unchanged, after a check that they are finite.

    Raises:
        DataError: Some are not finite, which is the `problem`.
    """
    if not np.isfinite(values).all():
        raise DataError(f"{problem}; try a smaller learning_rate")
    return values


Scores = Callable[[Images], NDArray[np.float64]]
"""Class scores (n, C) of images, comparable between the networks of one method."""


def scores_of(module: nn.Module, classes: int | None = None) -> Scores:
    """The outputs of a network as class scores; the first C of them where there are more."""
    return lambda images: outputs(module, images)[:, :classes].astype(np.float64)


@dataclass(frozen=True, eq=False)
class MeanModel:
    """Predicts by the mean class probabilities of several models: a `fedassay.contracts.method.Model`.

    Clients of a personalized method hold one model each. No party of the protocol holds their mean: it is their
    joint prediction.

    Attributes:
        members: Class scores (logits) of each model, at least one.
    """

    members: Sequence[Scores]

    def predict(self, records: Records) -> Ints:
        """Predicted classes, shape (n,)."""
        total = sum(softmax(scores(records.images), axis=1) for scores in self.members)
        return np.asarray(np.argmax(total, axis=1), dtype=np.int64)


def personalized(
    scores: Sequence[Scores], of_client: Sequence[int], clients: Sequence[Records], test: Records
) -> Personalized:
    """Personalized accuracy of clients that predict by the models they have.

    Args:
        scores: Class scores of each model.
        of_client: For each client, the position of its model in `scores`.
        clients: Their records.
        test: The test role.
    """
    predicted = []
    for index, model in enumerate(scores):
        users = [client.labels for client, own in zip(clients, of_client, strict=True) if own == index]
        needed = np.isin(test.labels, np.concatenate([*users, np.zeros(0, np.int64)]))
        guesses = np.full(len(test), -1, dtype=np.int64)
        if needed.any():
            guesses[needed] = model(test.images[needed]).argmax(axis=1)
        predicted.append(guesses)
    return personalized_accuracy([predicted[own] for own in of_client], clients, test)
