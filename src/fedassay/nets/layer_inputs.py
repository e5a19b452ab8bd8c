"""Inputs of a network's layers."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


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
