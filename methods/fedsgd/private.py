"""The private form: the sum of clipped gradients through one Gaussian mechanism."""

from __future__ import annotations

from dataclasses import dataclass

from fedassay.exchange.release import PrivacyTarget, Release
from fedassay.privacy import reruns
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.sensitivities import vector_sum
from fedassay.privacy.tape import NoiseSource
from fedassay.support.adjacency import Adjacency
from fedassay.support.types import Matrix

GROUP = "gradient"
"""Group of the joint release of all arrays, and the mechanism that its noise comes from."""

SOURCE = "Gaussian mechanism on the sum of clipped gradients, analytic calibration"

_DIMENSIONS = 2
"""Gradients have more; the furthest two lie on one line."""


@dataclass(frozen=True)
class GradientNoise:
    """The noise on a client's sum.

    Attributes:
        scale: Standard deviation, isometric.
        clip: L2 norm that each record's gradient is clipped to.
        sensitivity: L2 sensitivity of the sum.
        adjacency: The relation that this is for.
    """

    scale: float
    clip: float
    sensitivity: float
    adjacency: Adjacency

    def release(self) -> Release:
        """The release of each array of the gradient."""
        return Release(
            mechanism="gaussian",
            adjacency=self.adjacency,
            group=GROUP,
            noise_scale=(self.scale,),
            sensitivity=(self.sensitivity,),
        )


def calibrated(clip: float, privacy: PrivacyTarget) -> GradientNoise | None:
    """The smallest noise that meets a target; None where nothing is noised."""
    if not privacy.private:
        return None
    sensitivity = vector_sum(_DIMENSIONS, clip, adjacency=privacy.adjacency).sensitivity
    scale = calibrate_sigma(privacy.epsilon, privacy.delta, sensitivity)
    return GradientNoise(scale, clip, sensitivity, privacy.adjacency)


def noised(total: Matrix, noise: GradientNoise, noise_mechanism: NoiseSource) -> Matrix:
    """Return the noised release of a sum of clipped gradients (D,)."""
    return noise_mechanism.add("sum", total, noise.scale)


def experiment(noise: GradientNoise) -> reruns.Experiment:
    """The same mechanism on the neighbours that are the worst for it."""
    return reruns.vector_sum(noise.clip, adjacency=noise.adjacency, sigma=noise.scale)
