"""Gradients of a classifier on a client's records: their sum, and the sum of clipped ones."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fedassay.methods.shared.local_heads import head_loss
from fedassay.methods.shared.local_networks import LocalNetwork
from fedassay.nets.dp_sgd.record_gradients import RecordGradients
from fedassay.support.types import Ints, Matrix

_TOGETHER = 256
"""Number of records with gradients computed at a time."""


def summed_gradient(network: LocalNetwork, chosen: Ints) -> Matrix:
    """Sum of the gradients of cross-entropy over some records, all parameters one after the other.

    Args:
        network: The classifier and its records; left as it is.
        chosen: Their positions.
    """
    parameters = list(network.module.parameters())
    total = np.zeros(sum(each.numel() for each in parameters))
    for rows in torch.split(torch.as_tensor(chosen), _TOGETHER):
        if len(rows):
            loss = head_loss(network.module(network.inputs[rows]), network.labels[rows]).sum()
            parts = torch.autograd.grad(loss, parameters)
            total += torch.cat([part.flatten() for part in parts]).double().cpu().numpy()
    return total


def clipped_sum(network: LocalNetwork, clip: float) -> Matrix:
    """The same over all records, each record's gradient scaled down to L2 norm `clip` where it is longer.

    Raises:
        RuntimeError: The records' gradients differ from those of the records alone.
    """
    parameters = dict(network.module.named_parameters())
    total = {name: np.zeros(tuple(each.shape)) for name, each in parameters.items()}
    recorder = RecordGradients(network.module)
    for start in range(0, len(network.labels), _TOGETHER):
        inputs, labels = (part[start : start + _TOGETHER] for part in (network.inputs, network.labels))
        with recorder.recording(len(labels)):
            head_loss(network.module(inputs), labels).sum().backward()  # type: ignore[no-untyped-call]
        recorder.check(partial(_loss, network.module, inputs, labels))
        factors = (clip / recorder.norms().clamp(min=clip)).float()
        for name, part in recorder.weighted_sums(factors).items():
            total[name] += part.double().cpu().numpy()
    return np.concatenate([total[name].ravel() for name in parameters])


def _loss(module: nn.Module, inputs: Tensor, labels: Tensor, rows: slice) -> Tensor:
    """Cross-entropy summed over some records."""
    return head_loss(module(inputs[rows]), labels[rows]).sum()
