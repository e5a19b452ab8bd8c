"""Whole classifiers that clients train alone, once: a body and a head, from scratch or from the backbone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from fedassay.backbones.base import initialised
from fedassay.contracts.method import MethodInput, Model
from fedassay.data.records import Records
from fedassay.exchange.release import Claim, exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.methods.shared.dp_sgd import DpSgd, NoisedTraining, training_release, training_words
from fedassay.methods.shared.heads import overfitted
from fedassay.methods.shared.local_heads import head_loss
from fedassay.methods.shared.local_networks import LocalNetwork, LocalTraining, finite, local_network, outputs
from fedassay.methods.shared.sent_networks import SentNetwork
from fedassay.nets.bodies import BodySpec, build_body, features_of, read_bodies
from fedassay.nets.state import read_tensors, state_of, write_tensors
from fedassay.support.optimisation import OptimizerKey
from fedassay.support.types import Frozen, Ints

Bodies = Annotated[tuple[BodySpec, ...], BeforeValidator(read_bodies), Field(min_length=1)]
Start = Literal["random", "backbone"]
"""Initial weights of a body: its own random initialisation, or a copy of the plan's backbone."""


class Classifiers(Frozen):
    """Settings of the classifier that every client trains for itself, once.

    Attributes:
        bodies: One or several; client i gets entry i modulo their number. Unused with `start: backbone`.
        start: Initial weights of bodies: their own `random` initialisation, or a copy of the plan's `backbone`.
        width: Number of features m under the head, its bias counted as one; a `resnet16` has its own 512,
            `mobilenet_v2` 1,280.
        local_epochs: Passes over a client's records.
        batch: Minibatch size; the divisor of noised gradient sums in a private run.
        learning_rate: Learning rate of the optimiser.
        optimizer: None: Adam.
        dp_sgd: Parameters of a private run.
    """

    bodies: Bodies = (BodySpec(name="cnn"),)
    start: Start = "random"
    width: int = Field(default=32, ge=2)
    local_epochs: int = Field(default=20, ge=1)
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None
    dp_sgd: DpSgd = DpSgd()

    def leakiest_form(self) -> Classifiers:
        """Return settings that train until the classifiers memorize a few records."""
        return overfitted(self, self.local_epochs, self.learning_rate)

    def steps(self, task: MethodInput) -> NoisedTraining | None:
        """The training of a private run; None otherwise."""
        if not task.privacy.private:
            return None
        return self.dp_sgd.steps(task.privacy, epochs=self.local_epochs, rounds=1, batch=self.batch)

    def network(self, index: int, client: Records, task: MethodInput) -> LocalNetwork:
        """A client's classifier as it starts: with an initialisation of its own."""
        body, head = make_classifier(
            task,
            client,
            self.bodies[index % len(self.bodies)],
            start=self.start,
            width=self.width,
            body_seed=task.seeds.integer("body", client.name),
            head_seed=task.seeds.integer("head", client.name),
        )
        return local_network(client.name, nn.Sequential(body, head), client, task.device, task.persons(client))

    def train(self, task: MethodInput, method: str) -> tuple[list[LocalNetwork], list[Message]]:
        """Every client's trained classifier, and the messages that carry them.

        Raises:
            DataError: No client has a record, or training has diverged.
        """
        task.require_records(method)
        steps = self.steps(task)
        training = LocalTraining(
            self.local_epochs, self.batch, self.learning_rate, steps, optimizer=self.optimizer
        )
        networks, messages = [], []
        for index, client in enumerate(task.progress.each("classifiers", task.clients)):
            network = self.network(index, client, task)
            training(network, head_loss, task, 0)
            networks.append(network)
            messages.append(task.spool.keep(_message(client, network, steps, task, method)))
        return networks, messages

    def received(self, messages: Sequence[Message], task: MethodInput) -> list[LocalNetwork]:
        """Return the classifiers at the server: only of clients with records, where their number is sent."""
        found = []
        for index, (client, message) in enumerate(zip(task.clients, messages, strict=True)):
            records = message.fields.get("records")
            if records is None or records.values[0] > 0:
                network = self.network(index, client, task)
                write(network.module, message.fields["parameters"].values)
                network.module.eval()
                found.append(network)
        return found

    def claim(self, task: MethodInput) -> Claim:
        """Return a private run's claim."""
        return task.privacy.claim(
            f"{training_words(task.privacy)} on each client's classifier, by privacy loss distributions"
        )


class BackboneBody(nn.Module):
    """A trainable copy of the backbone as a body: from images, 0 to 255, to its features.

    Normalisation layers keep the statistics of the backbone: statistics over a client's own records would be a
    release of their own, and no record's gradient would be its own.
    """

    keeps_statistics = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(module).requires_grad_(True).eval()

    def train(self, mode: bool = True) -> BackboneBody:
        """Stays in evaluation mode, see above."""
        self.training = mode
        return self

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) to (n, d)."""
        features: Tensor = self.module(images.float() / 255)
        return features


def make_classifier(
    task: MethodInput, client: Records, spec: BodySpec, *, start: Start, width: int, body_seed: int, head_seed: int
) -> tuple[nn.Module, nn.Linear]:
    """A body and the head on it, as they start.

    Args:
        task: The classes; with `start: backbone`, the backbone.
        client: The images' shape.
        spec: The body.
        start: See `Start`.
        width: m, for a body with m - 1 outputs; the backbone brings its own, and so does a ResNet.
        body_seed: Seed of the body's initialisation.
        head_seed: Seed of the head's initialisation.

    Raises:
        PlanError: Images of this size do not fit through the body.
    """
    outputs = task.backbone.width if start == "backbone" else features_of(spec, width)
    if start == "backbone":
        body: nn.Module = BackboneBody(task.backbone.module)
    else:
        body = build_body(spec, client.image_shape, outputs, body_seed)
    return body, initialised(lambda: nn.Linear(outputs, task.classes), head_seed)


def read(module: nn.Module) -> NDArray[np.float32]:
    """All that training changes in a module as one vector (see `fedassay.nets.state`)."""
    return read_tensors(state_of(module))


def write(module: nn.Module, values: NDArray[np.float32]) -> None:
    """Replace all that training changes in a module."""
    write_tensors(state_of(module), values)


def sent_classifiers(members: Sequence[LocalNetwork]) -> dict[tuple[str, int], SentNetwork]:
    """Return the network of each member's message, by sender and round."""
    return {(member.name, 0): SentNetwork(member.module, read(member.module)) for member in members}


@dataclass(frozen=True, eq=False)
class MadeWhenAsked:
    """A server's global model from the received messages, which reruns by attacks and audits rarely use.

    Attributes:
        make: Makes the model: a function of the messages and of named streams, so that when changes nothing.
    """

    make: Callable[[], Model]

    @cached_property
    def _made(self) -> Model:
        return self.make()

    def predict(self, records: Records) -> Ints:
        """Predicted classes, shape (n,)."""
        return self._made.predict(records)


def of_network(module: nn.Module) -> Callable[[Records], NDArray[np.float64]]:
    """A member that is a classifier of images."""
    return lambda records: outputs(module, records.images).astype(np.float64)


def _message(
    client: Records, network: LocalNetwork, steps: NoisedTraining | None, task: MethodInput, method: str
) -> Message:
    trained = finite(read(network.module), f"{method}: training at {client.name} has diverged")
    release = exact() if steps is None else training_release(steps, task.privacy)
    fields = {"parameters": MessageField(trained, "parameters", release)}
    if steps is None:
        fields["records"] = MessageField(np.array([len(client)], dtype=np.int32), "other", exact("size"))
    return Message(0, client.name, SERVER, fields)
