"""A client as the unit of privacy: everything that its training has changed is clipped as one, and noised once.

McMahan, Ramage, Talwar and Zhang, "Learning Differentially Private Recurrent Language Models" (2018): the update
of a client, w - w0, is scaled down to an L2 norm and released by a Gaussian mechanism. How it was trained plays no
part. A client without records has no update; two clients' updates lie at most twice the norm apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from fedassay.nets.dp_sgd.clipped_sums import trained
from fedassay.privacy.reruns import Experiment, flat_rows
from fedassay.privacy.sensitivities import Neighbours
from fedassay.privacy.tape import FreeNoise, NoiseSource
from fedassay.support.types import Ints, Matrix


@dataclass(frozen=True)
class ClippedUpdate:
    """The release of one update.

    Attributes:
        norm: L2 norm that the update is clipped to.
        sensitivity: Largest change of one client's clipped update under the adjacency.
        scale: Noise standard deviation on each parameter.
    """

    norm: float
    sensitivity: float
    scale: float


def parameters_of(module: nn.Module) -> Matrix:
    """All parameters that are trained, as one vector."""
    return np.concatenate([each.detach().double().cpu().numpy().ravel() for each in trained(module).values()])


@torch.no_grad()
def release_update(module: nn.Module, start: Matrix, private: ClippedUpdate, noise: NoiseSource) -> None:
    """Replace the parameters of a trained module by where it started plus its clipped and noised update.

    Args:
        module: Changed in place.
        start: From `parameters_of`, before the training.
        private: Norm and noise.
        noise: Source of the noise.
    """
    released = start + _noised(parameters_of(module) - start, private, noise)
    place = 0
    for each in trained(module).values():
        own = released[place : place + each.numel()].reshape(tuple(each.shape))
        each.copy_(torch.from_numpy(np.ascontiguousarray(own)))
        place += each.numel()


def clipped_updates(private: ClippedUpdate, rounds: int) -> Experiment:
    """Release all rounds of one client again on the worst updates: as long as possible, all in one direction.

    Where a client may be replaced, the other one's updates point the other way; otherwise it is absent, and the
    model is unchanged. No choice of updates moves the rounds further, for any earlier releases: each is clipped.

    Args:
        private: Norm and noise of each round.
        rounds: Number of rounds.
    """
    replaced = private.sensitivity > private.norm
    # Twice as long as is allowed: the release must have been clipped.
    far = np.array([[2 * private.norm, 0.0]])
    label = np.zeros(1, np.int64)

    def release(
        x: Matrix, _: Ints, scales: tuple[float, ...], rng: np.random.Generator, reruns: int
    ) -> tuple[Matrix, ...]:
        noise = FreeNoise(rng, (reruns,))
        return tuple(_noised(x[0], replace(private, scale=scale), noise) for scale in scales)

    return Experiment(
        Neighbours(-far if replaced else 0 * far, label, far, label),
        private.sensitivity * math.sqrt(rounds) / private.scale,
        (private.scale,) * rounds,
        release,
        (flat_rows,) * rounds,
        of_records=False,
    )


def _noised(update: Matrix, private: ClippedUpdate, noise: NoiseSource) -> Matrix:
    length = float(np.linalg.norm(update))
    clipped = update * min(1.0, private.norm / length if length else 1.0)
    return noise.add("update", clipped, private.scale)
