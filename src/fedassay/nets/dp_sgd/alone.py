"""Gradients of single records with plain autograd: the reference for the sum in a step of DP-SGD.

One record goes through the network at a time, in the mode of its training. Other records therefore cannot enter
its gradient, even if layers mix the records of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedassay.nets.dp_sgd.clipped_sums import Objective, RecordStreams, trained

_TOLERANCE = 2e-3
"""Largest error of a sum of gradients over the sum of their norms: float32, in another order of summation."""


@dataclass(frozen=True, eq=False)
class Alone:
    """Sums over the records of a batch, by parameter name, float64.

    Attributes:
        clipped: Sum of the clipped gradients.
        plain: Sum of the unclipped gradients.
        longest: Sum of the clipped gradients' norms.
    """

    clipped: dict[str, Tensor]
    plain: dict[str, Tensor]
    longest: float

    def matches(self, sums: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
        """Whether sums are the expected ones to float32's rounding."""
        if sums.keys() != expected.keys():
            return False
        away = length_of({name: sums[name].double() - each for name, each in expected.items()})
        return away <= _TOLERANCE * max(self.longest, length_of(expected))


def each_alone(
    network: nn.Module, objective: Objective, inputs: Tensor, labels: Tensor, streams: RecordStreams, norm: float
) -> Alone:
    """Compute the records of a batch one by one.

    Args:
        network: With the weights and in the mode of the step.
        objective: The loss.
        inputs: Inputs of all records.
        labels: Labels of all records.
        streams: Random streams of the batch's records, with their places.
        norm: Clipping norm of each gradient.

    Raises:
        ValueError: A layer does not accept a single record.
        RuntimeError: A layer fails on this record.
    """
    parameters = trained(network)
    # In one row: an operation for each parameter and record would take longer than their gradients.
    clipped, plain = (
        torch.zeros(sum(p.numel() for p in parameters.values()), dtype=torch.float64, device=inputs.device)
        for _ in "12"
    )
    longest = 0.0
    for index, position in enumerate(streams.positions.tolist()):
        own = slice(position, position + 1)
        rows = objective.rows(inputs[own], labels[own], streams[index : index + 1])
        with torch.enable_grad():
            loss = objective.total(network, rows)
            found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        gradient = torch.cat(
            [
                (torch.zeros_like(parameter) if each is None else each).flatten()
                for parameter, each in zip(parameters.values(), found, strict=True)
            ]
        ).double()
        length = float(torch.linalg.vector_norm(gradient))
        scale = min(1.0, norm / length) if length else 1.0
        longest += scale * length
        plain += gradient
        clipped.add_(gradient, alpha=scale)
    return Alone(_by_name(clipped, parameters), _by_name(plain, parameters), longest)


def _by_name(row: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parts of a row, in the shapes of the parameters."""
    parts = torch.split(row, [parameter.numel() for parameter in parameters.values()])
    return {name: part.view_as(p) for (name, p), part in zip(parameters.items(), parts, strict=True)}


def scaled_to(sums: Mapping[str, Tensor], norm: float) -> dict[str, Tensor]:
    """The sums scaled down to an L2 norm over all of them."""
    length = length_of(sums)
    return {name: each * min(1.0, norm / length if length else 1.0) for name, each in sums.items()}


def length_of(sums: Mapping[str, Tensor]) -> float:
    """L2 norm over all parameters."""
    if not sums:
        return 0.0
    return math.sqrt(float(torch.stack([each.detach().double().square().sum() for each in sums.values()]).sum()))
