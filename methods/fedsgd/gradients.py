"""The gradient that a client of FedSGD sends: its sum over records, clipped and noised, and the noise's law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fedassay.exchange.release import PrivacyTarget, Release
from fedassay.methods.shared.local_heads import head_loss
from fedassay.methods.shared.local_networks import LocalNetwork
from fedassay.nets.dp_sgd.record_gradients import RecordGradients
from fedassay.privacy import reruns
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.sensitivities import vector_sum
from fedassay.privacy.tape import NoiseSource
from fedassay.support.types import Ints, Matrix

GROUP = "gradient"
"""Group of the joint release of all arrays, and the mechanism that its noise comes from."""

_DIMENSIONS = 2
"""Gradients have more; the furthest two lie on one line."""

_TOGETHER = 256
"""Number of records with gradients computed at a time."""


@dataclass(frozen=True)
class GradientNoise:
    """The noise on a client's sum.

    Attributes:
        scale: Standard deviation, isometric.
        clip: L2 norm that each record's gradient is clipped to.
        sensitivity: L2 sensitivity of the sum.
        target: The run's.
    """

    scale: float
    clip: float
    sensitivity: float
    target: PrivacyTarget

    def release(self) -> Release:
        """The release of each array of the gradient."""
        return self.target.gaussian(self.scale, self.sensitivity, group=GROUP)


def calibrated(clip: float, privacy: PrivacyTarget) -> GradientNoise | None:
    """The smallest noise that meets a target; None where nothing is noised."""
    if not privacy.private:
        return None
    sensitivity = vector_sum(_DIMENSIONS, clip, adjacency=privacy.adjacency).sensitivity
    scale = calibrate_sigma(privacy.epsilon, privacy.delta, sensitivity)
    return GradientNoise(scale, clip, sensitivity, privacy)


def noised(total: Matrix, noise: GradientNoise, noise_mechanism: NoiseSource) -> Matrix:
    """Return the noised release of a sum of clipped gradients (D,)."""
    return noise_mechanism.add("sum", total, noise.scale)


def experiment(noise: GradientNoise) -> reruns.Experiment:
    """The same mechanism on the neighbours that are the worst for it."""
    return reruns.vector_sum(noise.clip, adjacency=noise.target.adjacency, sigma=noise.scale)


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
