"""Labels from the gradient of the last layer.

Cross-entropy makes the bias gradient of the last layer sum_i (p_i - y_i), p_i the probabilities of record i and
y_i its label as a unit vector: negative where a label occurs (Zhao et al., "iDLG: improved deep leakage from
gradients", 2020; for batches Yin et al., "See through gradients", 2021, section 3.2).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedassay.attacks.gradients.pixels import Before
from fedassay.attacks.gradients.targets import Layer
from fedassay.support.types import Images, Ints, Matrix


def labels_of(network: nn.Module, last: Layer, images: Images) -> Ints:
    """The label of each image of a batch, where all its images are known, shape (n,).

    The last layer's gradient is a sum of outer products (p_i - y_i) h_i^T; with the h_i known its factors follow,
    and the label is the entry of p_i - y_i that is negative. -1 where there are more records than the layer has
    inputs.
    """
    with torch.no_grad():
        inputs = Before(network, last.name)(_scaled(images)).double().cpu().numpy()
    inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
    if np.linalg.matrix_rank(inputs) < len(inputs):
        return np.full(len(images), -1, np.int64)
    gradient = np.concatenate([last.gradient, last.bias_gradient[:, None]], axis=1).astype(np.float64)
    errors = np.asarray(np.linalg.lstsq(inputs.T, gradient.T, rcond=None)[0], np.float64)
    return np.asarray(errors.argmin(axis=1), np.int64)


def label_counts(bias_gradient: NDArray[np.floating], records: int, expected: Matrix) -> Ints:
    """Numbers of records of each class in a batch, shape (C,), from the last layer's bias gradient alone.

    Args:
        bias_gradient: Shape (C,), summed or averaged over the batch.
        records: n.
        expected: Mean probabilities of the network on any images, shape (C,): an approximation to the batch's.
    """
    gradient = bias_gradient.astype(np.float64)
    options = [records * expected - gradient * factor for factor in (1.0, float(records))]
    wanted = min(options, key=lambda each: float(np.abs(each - np.rint(each).clip(0)).sum()))
    counts = np.floor(wanted.clip(0)).astype(np.int64)
    for label in np.argsort(counts - wanted)[: max(0, records - int(counts.sum()))]:
        counts[label] += 1
    while counts.sum() > records:
        counts[np.argmax(np.where(counts > 0, counts - wanted, -np.inf))] -= 1
    return np.asarray(counts, np.int64)


def mean_probabilities(network: nn.Module, shape: tuple[int, int, int], seed: int) -> Matrix:
    """Mean probabilities of a network on random images, shape (C,)."""
    height, width, channels = shape
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand((32, channels, height, width), generator=generator) * 255
    with torch.no_grad():
        scores: Tensor = network(noise.to(next(network.parameters()).device))
    return np.asarray(scores.double().softmax(dim=1).mean(dim=0).cpu().numpy())


def _scaled(images: Images) -> Tensor:
    return torch.as_tensor(images).permute(0, 3, 1, 2).float() / 255
