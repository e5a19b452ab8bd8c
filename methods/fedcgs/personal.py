"""FedCGS's second round (Guan et al. 2025, section 3.3): every client fine-tunes the whole model for itself."""

from __future__ import annotations

import copy
import math
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt, model_serializer
from torch import Tensor, nn
from torch.nn import functional

from fedassay.backbones.base import initialised
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.release import derived
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.heads.linear import LinearHead
from fedassay.methods.shared.local_networks import Scores, personalized, to_inputs
from fedassay.methods.shared.personalized import Personalized
from fedassay.support.errors import DataError
from fedassay.support.optimisation import Optimizer, OptimizerKey, take_step
from fedassay.support.types import Floats, Frozen, Images, Ints, Matrix

_PAPERS = Optimizer(name="sgd", momentum=0.5, weight_decay=5e-4)
_BATCH = 128
_TOGETHER = 512


class Personalize(Frozen):
    """Fine-tuning at the clients; minibatches of 128 are the paper's.

    Attributes:
        strength: Weight of the distance to the global prototypes: the paper's lambda, which it does not give; 0
            with `head: fresh` is its baseline Local-only. A plan writes `lambda`.
        epochs: Passes over a client's records; 200 in the paper.
        learning_rate: Learning rate of the optimiser.
        optimizer: Optimiser of body and head; None: the paper's SGD, of momentum 0.5 and weight decay 5e-4.
        head: Initial weights of the clients' heads: the `global` head, or a `fresh` random one; the paper does not
            say.
    """

    strength: float = Field(default=1.0, alias="lambda", ge=0, allow_inf_nan=False)
    epochs: PositiveInt = 200
    learning_rate: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None
    head: Literal["global", "fresh"] = "global"

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        """Serialise with `lambda`, which cannot be an attribute's name, and an optimiser where one was given."""
        given = {} if self.optimizer is None else {"optimizer": self.optimizer}
        return {
            "lambda": self.strength,
            "epochs": self.epochs,
            "learning_rate": self.learning_rate,
            **given,
            "head": self.head,
        }


def prototype_messages(classes: Ints, means: Matrix, task: MethodInput) -> list[Message]:
    """The second round's messages: the global prototypes (P, d), in float32, to every client."""
    fields = {
        "class_ids": MessageField(classes.astype(np.int32), "class_ids", derived()),
        "prototypes": MessageField(means.astype(np.float32), "class_means", derived()),
    }
    return [Message(1, SERVER, client.name, fields) for client in task.clients]


def fine_tune(
    settings: Personalize, head: LinearHead, means: Matrix, task: MethodInput, *, clip: bool
) -> Personalized:
    """Fine-tune at every client with records, and measure the models on the clients' own distributions.

    Normalisation layers keep the statistics of the backbone: clients hold too few records to replace them.

    Args:
        settings: Settings of the fine-tuning.
        head: The global head, over the classes that have a prototype.
        means: The prototypes of these classes, shape (P, d).
        task: Clients, backbone, seeds.
        clip: Whether features are clipped to norm 1, as they were for the statistics.

    Raises:
        DataError: Training has diverged.
    """
    prototypes = torch.full((task.classes, means.shape[1]), math.nan)
    prototypes[torch.tensor(head.classes)] = torch.tensor(means, dtype=torch.float32)
    models: list[Scores] = []
    owner = [0] * len(task.clients)
    for index, client in enumerate(task.progress.each("personalize", task.clients)):
        if len(client):
            body, top = _start(settings, head, task)
            _train(settings, body, top, client, prototypes.to(task.device), task, clip)
            owner[index] = len(models)
            models.append(_scores(body, top, task.device, clip))
    return personalized(models, owner, task.clients, task.test)


def _start(settings: Personalize, head: LinearHead, task: MethodInput) -> tuple[nn.Module, nn.Linear]:
    """A client's own copy of the backbone, and the head on it."""
    body = copy.deepcopy(task.backbone.module).requires_grad_(True).eval()
    top = initialised(lambda: nn.Linear(task.backbone.width, task.classes), task.seeds.integer("personal head"))
    if settings.head == "global":
        rows = torch.tensor(head.classes)
        with torch.no_grad():
            top.weight.zero_()
            # A class that the global head never predicts starts with a bias that its copy never predicts either.
            top.bias.fill_(float(head.bias.min()) - 10)
            top.weight[rows] = torch.tensor(head.weights, dtype=torch.float32)
            top.bias[rows] = torch.tensor(head.bias, dtype=torch.float32)
    return body, top.to(task.device)


def _train(
    settings: Personalize,
    body: nn.Module,
    top: nn.Linear,
    client: Records,
    prototypes: Tensor,
    task: MethodInput,
    clip: bool,
) -> None:
    """Minimise equation 12 by minibatches, in place."""
    inputs, labels = to_inputs(client.images, task.device), torch.tensor(client.labels, device=task.device)
    counts = torch.bincount(labels, minlength=task.classes)
    parameters = [*body.parameters(), *top.parameters()]
    optimizer = (settings.optimizer or _PAPERS).build(parameters, settings.learning_rate)
    generator = torch.Generator().manual_seed(task.seeds.integer("personal", client.name))
    for _ in range(settings.epochs):
        order = torch.randperm(len(labels), generator=generator).to(labels.device)
        for chosen in torch.split(order, _BATCH):
            features = _features(body, inputs[chosen], clip)
            loss = functional.cross_entropy(top(features), labels[chosen])
            if settings.strength:
                # A minibatch's unbiased share of the sum over classes of the mean squared distances.
                away = prototype_distance(features, labels[chosen], prototypes)
                loss = loss + settings.strength * len(labels) * (away / counts[labels[chosen]]).mean()
            take_step(optimizer, loss)
    if not all(bool(torch.isfinite(parameter).all()) for parameter in parameters):
        raise DataError(
            f"fedcgs: fine-tuning at {client.name} has diverged; try a smaller personalize.learning_rate or lambda"
        )


def prototype_distance(features: Tensor, labels: Tensor, prototypes: Tensor) -> Tensor:
    """||f - mu^y||^2 of each record, shape (n,); 0 where the class has no global prototype (a row of NaN)."""
    own = prototypes[labels]
    known = torch.isfinite(own).all(dim=1, keepdim=True)
    return torch.where(known, features - torch.nan_to_num(own), torch.zeros_like(features)).square().sum(dim=1)


def _features(body: nn.Module, inputs: Tensor, clip: bool) -> Tensor:
    features: Tensor = body(inputs.float() / 255)
    return features / features.norm(dim=1, keepdim=True).clamp(min=1) if clip else features


def _scores(body: nn.Module, top: nn.Linear, device: str, clip: bool) -> Scores:
    def scores(images: Images) -> Matrix:
        parts: list[Floats] = [np.empty((0, top.out_features))]
        with torch.inference_mode():
            for start in range(0, len(images), _TOGETHER):
                inputs = to_inputs(images[start : start + _TOGETHER], device)
                parts.append(top(_features(body, inputs, clip)).double().cpu().numpy())
        return np.concatenate(parts).astype(np.float64)

    return scores
