"""Training of a client's network on its own records: plainly, and with DP-SGD.

Both take a loss of single records, so that one pair of functions serves bodies under a frozen head as
well as whole classifiers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from fedassay.nets.dp_sgd.clipped_sums import Objective, RecordStreams, Rows
from fedassay.nets.dp_sgd.loop import train_with_noise
from fedassay.nets.dp_sgd.tape import Training
from fedassay.nets.dp_sgd.units import by_persons
from fedassay.support.optimisation import Minibatches, take_step
from fedassay.support.progress import Advance, no_progress
from fedassay.support.types import Ints

RecordLoss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (n, k) of the network and labels (n,) to the loss of each record, (n,)."""

Normals = Callable[[int], Tensor]
"""Width to standard normals, a row for each record of a batch, (n, width)."""

Draw = Callable[[Tensor, Normals], Tensor]
"""Map from the inputs of a batch, (n, ...), to the network's input in this step. It adds the noise of losses that
are expectations, drawn anew and independently of the records."""


def train(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    loss: RecordLoss,
    minibatches: Minibatches,
    generator: torch.Generator,
    draw: Draw | None = None,
    advance: Advance = no_progress,
) -> None:
    """Train in place, on the mean loss of shuffled minibatches. No records, no steps.

    Args:
        module: On the device of `inputs`.
        inputs: Shape (n, ...).
        labels: Shape (n,).
        loss: See `RecordLoss`.
        minibatches: Passes, size of a minibatch, and optimiser.
        generator: On the CPU.
        draw: See `Draw`; None: the inputs as they are.
        advance: Called with (passes done, all passes).
    """
    steps = minibatches.build(parameter for parameter in module.parameters() if parameter.requires_grad)
    module.train()
    for epoch in range(minibatches.epochs if len(labels) else 0):
        advance(epoch, minibatches.epochs)
        order = torch.randperm(len(labels), generator=generator).to(labels.device)
        for rows in torch.split(order, minibatches.batch):
            given = inputs[rows]
            if draw is not None:
                given = draw(given, partial(torch.randn, len(given), generator=generator))
            take_step(steps, loss(module(given), labels[rows]).mean())
    module.eval()


def train_privately(training: Training, persons: Ints | None = None) -> None:
    """Train in place by DP-SGD: the optimiser follows the noised gradients, which is post-processing.

    Records are sampled independently (Poisson), empty batches included: they release noise alone. With
    `persons`, (U, m), the places of each person's records (see `fedassay.nets.dp_sgd.units`), persons are. Nothing
    is drawn but from the streams of the training's mechanism.

    Raises:
        RuntimeError: The records' gradients differ from those of the records alone.
    """
    train_with_noise(by_persons(training, persons))


def record_objective(loss: RecordLoss, draw: Draw | None = None) -> Objective:
    """The loss of single records under a network's outputs."""

    def rows(inputs: Tensor, labels: Tensor, streams: RecordStreams) -> Rows:
        return (inputs if draw is None else draw(inputs, streams.normals)), labels

    def losses(network: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return loss(network(inputs), labels)

    return Objective(rows, losses)
