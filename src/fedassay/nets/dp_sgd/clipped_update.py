"""A client as the unit of privacy: everything that its training has changed is clipped as one, and noised once.

McMahan, Ramage, Talwar and Zhang, "Learning Differentially Private Recurrent Language Models" (2018): the update
of a client, w - w0, is scaled down to an L2 norm and released by a Gaussian mechanism. How it was trained plays no
part. A client without records has no update; two clients' updates lie at most twice the norm apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedassay.nets.dp_sgd.clipped_sums import trained
from fedassay.privacy.tape import NoiseSource


@dataclass(frozen=True)
class ClippedUpdate:
    """The release of one update.

    Attributes:
        norm: L2 norm that the update is clipped to.
        sensitivity: How far the clipped update of one client moves under the adjacency asked for.
        scale: Noise standard deviation on each parameter.
    """

    norm: float
    sensitivity: float
    scale: float


def parameters_of(module: nn.Module) -> NDArray[np.float64]:
    """All parameters that are trained, as one vector."""
    return np.concatenate([each.detach().double().cpu().numpy().ravel() for each in trained(module).values()])


@torch.no_grad()
def release_update(
    module: nn.Module, start: NDArray[np.float64], private: ClippedUpdate, noise: NoiseSource
) -> None:
    """Replace the parameters of a trained module by where it started plus its clipped and noised update.

    Args:
        module: Changed in place.
        start: From `parameters_of`, before the training.
        private: Norm and noise.
        noise: Where the noise comes from.
    """
    update = parameters_of(module) - start
    length = float(np.linalg.norm(update))
    released = start + noise.add(
        "update", update * min(1.0, private.norm / length if length else 1.0), private.scale
    )
    place = 0
    for each in trained(module).values():
        own = released[place : place + each.numel()].reshape(tuple(each.shape))
        each.copy_(torch.from_numpy(np.ascontiguousarray(own)))
        place += each.numel()
