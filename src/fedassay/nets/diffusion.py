"""Conditional denoising diffusion: the model, its training and its sampling in one place to import.

    model = train(images, features, PRESETS["tiny"], seed=0)
    reconstructions = sample(model, received, seed=1)

The attack of Beitollahi et al. 2024 (section 6.4, appendix E) trains on the adversary's own features and images;
with one-hot classes as conditions the same code is a class-conditional generator.
"""

from fedassay.nets.denoising import Network, build_scheduler, denoising_loss, guided_prediction, predict
from fedassay.nets.presets import PRESETS, Preset, preset_named
from fedassay.nets.sampling import sample
from fedassay.nets.trained import TrainedDenoiser, build_network, from_arrays, load_network
from fedassay.nets.training import learning_rate, train

VERSION = 2
"""Raise it when training or sampling computes something else: trained models are cached."""

__all__ = [
    "PRESETS",
    "VERSION",
    "Network",
    "Preset",
    "TrainedDenoiser",
    "build_network",
    "build_scheduler",
    "denoising_loss",
    "from_arrays",
    "guided_prediction",
    "learning_rate",
    "load_network",
    "predict",
    "preset_named",
    "sample",
    "train",
]
