"""Weights that a malicious server puts into a network's first layers, so as to separate records.

The first linear layer computes one number of every record, and compares it with as many thresholds as it has
units: unit i is active where h . x > q_i, for one direction h and rising q_i. All weights behind it are equal from
unit to unit, so that a record contributes equally to every unit that it activates. The gradients of two
neighbouring units then differ by the records between their thresholds alone. Where there is one such record, the
difference is this record (`fedassay.attacks.gradients.bins`). A sum over clients, as secure aggregation gives it,
is a larger batch.

Source: Fowl et al., "Robbing the Fed: Directly Obtaining Private Data in Federated Learning with Modified Models"
    (ICLR 2022): its module with equal rows, in the layers that the network has. Boenisch et al., "When the Curious
    Abandon Honesty: Federated Learning Is Not Private" (2021, EuroS&P 2023), scale rows so that each unit is
    activated by few records instead; that needs no equal weights, and is not built here.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedassay.support.errors import PlanError
from fedassay.support.seeds import Seeds


def set_trap(network: nn.Module, images: Tensor, seeds: Seeds) -> None:
    """Write the trap into a network's first two linear layers.

    Args:
        network: From images to class scores; changed in place.
        images: The server's own, in the layout of the network's input, shape (n, C, H, W): the source of the
            thresholds.
        seeds: Random streams of the direction.

    Raises:
        PlanError: No rectifier and second linear layer follow the network's first one.
    """
    first, second = _pair(network)
    seen = inputs_of(network, first, images)
    direction = seeds.numpy("trap").standard_normal(first.in_features) / np.sqrt(first.in_features)
    with torch.no_grad():
        first.weight.copy_(torch.as_tensor(np.tile(direction, (first.out_features, 1))))
        assert first.bias is not None
        first.bias.copy_(torch.as_tensor(-_thresholds(seen @ direction, first.out_features)))
        # A column of its own, a share of it for each unit, so that outputs stay as large as they were.
        second.weight.copy_(second.weight[:, :1].expand_as(second.weight) / first.out_features)


def _pair(network: nn.Module) -> tuple[nn.Linear, nn.Linear]:
    """The first linear layer, and the one behind its rectifier."""
    layers = [module for module in network.modules() if not list(module.children())]
    for first, between, second in zip(layers, layers[1:], layers[2:], strict=False):
        if isinstance(first, nn.Linear):
            if isinstance(between, nn.ReLU) and isinstance(second, nn.Linear):
                return first, second
            break
    raise PlanError(
        "threat.server: malicious given, but no rectifier and second layer follow the network's first fully "
        "connected one, of which a trap is made; allowed: bodies where they do, such as mlp"
    )


def _thresholds(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Rising thresholds with equally many of some values between any two."""
    return np.asarray(np.quantile(values, np.arange(count) / count))


def inputs_of(network: nn.Module, layer: nn.Module, images: Tensor) -> NDArray[np.float64]:
    """The inputs of a layer of a network, flattened, shape (n, d).

    Args:
        network: From images.
        layer: A module in it.
        images: In the layout that the network takes, shape (n, C, H, W).
    """
    caught: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _module, given: caught.append(given[0]))
    training = network.training
    try:
        with torch.no_grad():
            network.eval()(images)
    finally:
        hook.remove()
        network.train(training)
    return np.asarray(caught[0].flatten(1).double().cpu().numpy())
