"""Gradient canaries: records with constant, mutually orthogonal clipped gradients, observed at every step.

A canary of a linear head has one feature and a loss that is linear in one output. Its gradient is therefore one
entry of the weights, long enough to be clipped, for all weights. Canaries of different entries never interact.
They go through the one loop of private training (`fedassay.nets.dp_sgd.loop`) with its clipping, coins, noise and
optimiser. An observer of its noise mechanism sees the noised sum of every step: the adversary of differential
privacy (Nasr et al., "Tight Auditing of Differentially Private Machine Learning", 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fedassay.nets.dp_sgd.clipped_sums import Objective, RecordStreams, Rows
from fedassay.nets.dp_sgd.loop import train_with_noise
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.tape import Training
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.support.types import Ints, Matrix

See = Callable[[Matrix], None]
"""Is shown, once a step, the noised sum along every canary's gradient over the norm, (m,)."""

_OUTPUTS = 10
_LONG = 1000.0
"""Length of a canary's gradient before it is clipped, in norms: next to nothing of it falls on the bias."""
_HEAD = "weight"


@dataclass(frozen=True)
class _WatchedMechanism(TrainingMechanism):
    """A noise mechanism that shows its noised sums to an observer."""

    seen: Callable[[Mapping[str, Tensor]], None]

    def noised(self, step: int, sums: Mapping[str, Tensor], deviation: float) -> dict[str, Tensor]:
        """See `TrainingMechanism.noised`."""
        out = super().noised(step, sums, deviation)
        self.seen(out)
        return out


def train_on_canaries(
    signs: Ints, private: PrivateSteps, updates: Updates, mechanism: TrainingMechanism, see: See
) -> None:
    """Train a linear head privately on canaries alone.

    Args:
        signs: Signs of canaries, (m,): 1 or -1, the gradient along its direction or against it; 0: left out.
        private: The steps.
        updates: The optimiser.
        mechanism: Streams of the coins and of the noise.
        see: Is shown every step.
    """
    count = len(signs)
    features = -(-count // _OUTPUTS)
    network = nn.Linear(features, _OUTPUTS)
    nn.init.zeros_(network.weight)
    nn.init.zeros_(network.bias)
    places = np.flatnonzero(signs)
    inputs = torch.from_numpy(np.stack([places // _OUTPUTS, signs[places]], axis=1))

    def seen(sums: Mapping[str, Tensor]) -> None:
        # Entry (c, f) is the direction of canary f * outputs + c.
        see(sums[_HEAD].numpy().T.reshape(-1)[:count] / private.norm)

    train_with_noise(
        Training(
            network,
            inputs,
            torch.from_numpy(places % _OUTPUTS),
            Objective(partial(_rows, features, _LONG * private.norm), _losses),
            private,
            updates,
            _WatchedMechanism(mechanism.noise, mechanism.hidden_randomness, mechanism.key, seen),
        )
    )


def _rows(features: int, length: float, inputs: Tensor, labels: Tensor, streams: RecordStreams) -> Rows:
    """Records with one feature each, (n, features), and the outputs that their losses are of, (n,)."""
    images = torch.zeros(len(inputs), features)
    images[torch.arange(len(inputs)), inputs[:, 0]] = length * inputs[:, 1].float()
    return images, labels


def _losses(network: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Tensor:
    """Linear, so that gradients do not depend on the weights: d loss / d weights is the record itself."""
    outputs = network(images)
    return outputs.gather(1, labels[:, None])[:, 0]
