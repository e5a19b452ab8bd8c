"""Optimisers as a plan names them, one key type for everything that is trained by steps, and the step they take.

PyTorch is imported where a step is taken: a plan is read without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fedassay.support.types import Frozen

if TYPE_CHECKING:
    import torch

OptimizerName = Literal["adam", "adamw", "sgd"]

_ADAMW_DECAY = 0.01
"""AdamW's weight decay where none is given, as in PyTorch."""


class Optimizer(Frozen):
    """The rule that updates weights from gradients.

    Attributes:
        name: `adam` (Kingma and Ba, ICLR 2015), `adamw` (decoupled weight decay; Loshchilov and Hutter, ICLR
            2019), or `sgd`.
        learning_rate: None: the learning rate that stands beside.
        momentum: Of `sgd`.
        weight_decay: None: 0.01 with `adamw`, as in PyTorch, and 0 with the others.
    """

    name: OptimizerName = "adam"
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _momentum_of_sgd(self) -> Self:
        if self.momentum and self.name != "sgd":
            raise ValueError(f"momentum {self.momentum:g} given with {self.name}; allowed: with sgd")
        return self

    @property
    def decay(self) -> float:
        """The weight decay that applies."""
        if self.weight_decay is not None:
            return self.weight_decay
        return _ADAMW_DECAY if self.name == "adamw" else 0.0

    def rate(self, beside: float) -> float:
        """The learning rate that applies, where `beside` stands beside."""
        return beside if self.learning_rate is None else self.learning_rate

    def build(
        self, parameters: Iterable[torch.Tensor], beside: float, *, pull: float = 0.0
    ) -> torch.optim.Optimizer:
        """A fresh optimiser.

        Args:
            parameters: The parameters to update.
            beside: The learning rate that stands beside.
            pull: See `pulled`.
        """
        import torch

        given, rate = list(parameters), self.rate(beside)
        own: torch.optim.Optimizer
        if self.name == "sgd":
            own = torch.optim.SGD(given, lr=rate, momentum=self.momentum, weight_decay=self.decay)
        elif self.name == "adamw":
            own = torch.optim.AdamW(given, lr=rate, weight_decay=self.decay)
        else:
            own = torch.optim.Adam(given, lr=rate, weight_decay=self.decay)
        return pulled(own, pull)


ADAM = Optimizer()
"""The optimizer used where a plan names none."""

OptimizerKey = Annotated[Optimizer | None, Field(exclude_if=lambda given: given is None)]
"""The type of a key `optimizer` with default None, that is Adam. A record holds it where a plan gave it."""


def chosen(given: Optimizer | None) -> Optimizer:
    """The optimiser that a key stands for."""
    return ADAM if given is None else given


@dataclass(frozen=True)
class Minibatches:
    """A training by shuffled minibatches.

    Attributes:
        epochs: Passes over the records.
        batch: Records in a minibatch; the last of a pass may be smaller.
        rate: Learning rate.
        optimizer: The optimiser; None: Adam.
        pull: See `pulled`.
    """

    epochs: int
    batch: int
    rate: float
    optimizer: Optimizer | None = None
    pull: float = 0.0

    def build(self, parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
        """A fresh optimiser of these parameters."""
        return (self.optimizer or ADAM).build(parameters, self.rate, pull=self.pull)


def pulled(optimizer: torch.optim.Optimizer, strength: float) -> torch.optim.Optimizer:
    """Let every step pull the weights towards where they are now.

    To each gradient it adds that of strength / 2 times the squared distance from the weights at this call
    (FedProx: Li et al., MLSys 2020, equation 2). The pull knows no record: in a private training it is
    post-processing.

    Args:
        optimizer: Changed in place; as it is where strength is 0.
        strength: mu, at least 0.
    """
    if not strength:
        return optimizer
    moved = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    start = [parameter.detach().clone() for parameter in moved]

    def add(_optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        for parameter, first in zip(moved, start, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - first, alpha=strength)

    optimizer.register_step_pre_hook(add)
    return optimizer


def take_step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One step of an optimiser against the gradient of a loss."""
    # `zero_grad` does the same, and takes a fifth of a small network's step to ask a compiler and a profiler.
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
