"""A trained denoiser as data, and the network that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedassay.data.images import need_pictures
from fedassay.nets.denoiser import FilmDenoiser
from fedassay.nets.presets import Preset
from fedassay.nets.unet import UNetDenoiser
from fedassay.nets.warm_start import WarmStart
from fedassay.nets.whitening import Whitening


@dataclass(frozen=True, eq=False)
class TrainedDenoiser:
    """All that sampling needs.

    Attributes:
        preset: The settings it was trained with.
        image_shape: (height, width, channels).
        whitening: The map of conditions fitted on the training conditions.
        weights: Averaged weights by parameter name, float32.
        warm_start: The regression that makes first guesses; None where the preset has none.
    """

    preset: Preset
    image_shape: tuple[int, int, int]
    whitening: Whitening
    weights: dict[str, NDArray[np.float32]]
    warm_start: WarmStart | None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything but `preset` and `image_shape`, as one flat dictionary of arrays."""
        arrays: dict[str, NDArray[Any]] = {
            "whitening.mean": self.whitening.mean,
            "whitening.matrix": self.whitening.matrix,
            **{f"weights.{name}": value for name, value in self.weights.items()},
        }
        if self.warm_start is not None:
            arrays |= {
                "warm_start.mean": self.warm_start.whitening.mean,
                "warm_start.matrix": self.warm_start.whitening.matrix,
                "warm_start.centres": self.warm_start.centres,
                "warm_start.bandwidth": self.warm_start.bandwidth,
                "warm_start.coefficients": self.warm_start.coefficients,
            }
        return arrays


def from_arrays(
    preset: Preset, image_shape: tuple[int, int, int], arrays: Mapping[str, NDArray[Any]]
) -> TrainedDenoiser:
    """The inverse of `TrainedDenoiser.to_arrays`.

    Raises:
        ValueError: The arrays are not those of a model of this preset and image shape.
    """
    warm_start = None
    try:
        whitening = Whitening(arrays["whitening.mean"], arrays["whitening.matrix"])
        if preset.centres:
            warm_start = WarmStart(
                Whitening(arrays["warm_start.mean"], arrays["warm_start.matrix"]),
                arrays["warm_start.centres"],
                arrays["warm_start.bandwidth"],
                arrays["warm_start.coefficients"],
            )
    except KeyError as missing:
        raise ValueError(f"trained denoiser: array {missing} is missing") from None
    weights = {
        name.removeprefix("weights."): value for name, value in arrays.items() if name.startswith("weights.")
    }
    network = build_network(preset, image_shape, len(whitening.mean), seed=0)
    expected = {name: tuple(p.shape) for name, p in network.named_parameters()}
    given = {name: value.shape for name, value in weights.items()}
    wrong = sorted(name for name in given.keys() | expected.keys() if given.get(name) != expected.get(name))
    if wrong:
        raise ValueError(f"trained denoiser: wrong, missing or unexpected weights: {', '.join(wrong[:5])}")
    return TrainedDenoiser(preset, image_shape, whitening, weights, warm_start)


def build_network(
    preset: Preset, image_shape: tuple[int, int, int], condition_dim: int, *, seed: int
) -> nn.Module:
    """A fresh network, initialised from `seed`; the global generator is left as it was.

    Args:
        preset: Its architecture and sizes.
        image_shape: (height, width, channels).
        condition_dim: Columns of the condition.
        seed: Seed of the initialisation.

    Returns:
        A module called as `network(noisy, timesteps, condition, keep)`; see `FilmDenoiser.forward`.

    Raises:
        DataError: There are no images, only features.
    """
    need_pictures(image_shape)
    height, width, channels = image_shape
    shape = (channels, height, width)
    guided = preset.centres > 0
    with torch.random.fork_rng(devices=[]):
        # Not `torch.manual_seed`, which would seed every GPU as well.
        torch.default_generator.manual_seed(seed)
        if preset.architecture == "film":
            return FilmDenoiser(
                shape,
                condition_dim,
                width=preset.width,
                blocks=preset.blocks,
                embedding=preset.embedding,
                direct=preset.direct,
                guided=guided,
                dropout=preset.dropout,
            )
        return UNetDenoiser(
            shape,
            condition_dim,
            width=preset.width,
            blocks=preset.blocks,
            multipliers=preset.multipliers,
            attention_levels=preset.attention_levels,
            guided=guided,
            dropout=preset.dropout,
        )


def load_network(model: TrainedDenoiser) -> nn.Module:
    """The model's network with its averaged weights, in evaluation mode, on the CPU."""
    network = build_network(model.preset, model.image_shape, len(model.whitening.mean), seed=0)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in model.weights.items()})
    return network.eval()
