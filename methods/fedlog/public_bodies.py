"""Dependence of FedLog's messages on a record where public records train the bodies.

A body that is trained on public records under a broadcast head is no secret. Anyone with these records, the
initial weights and the order of minibatches, which clients share, can train it again. T is then a sum of vectors
that are publicly computable from an image, different in every round: k rounds reveal k (m - 1) numbers of every
class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor, nn

from fedassay.exchange.blocks import Enters, LinearBlock, OfImages
from fedassay.exchange.linear import linear_blocks
from fedassay.exchange.message import Message
from fedassay.methods.shared.local_networks import outputs
from fedassay.support.types import Images, Matrix

Networks = tuple[nn.Module, ...]


def enters_through(rounds: Callable[[], Sequence[Networks]], of_client: dict[str, int], clip: float) -> Enters:
    """Return a reader of T as sums of the public bodies' outputs on images.

    Args:
        rounds: Trains the bodies of every round; called once, at the first use.
        of_client: The position of each client's body.
        clip: Outputs are clipped to [-clip, clip].

    Returns:
        Blocks of a message; empty for the sum of clients with different bodies.
    """
    known = functools.cache(rounds)

    def enters(message: Message, classes: int) -> list[LinearBlock]:
        networks = known()[message.round]
        place = of_client.get(message.sender, 0 if len(networks) == 1 else None)
        if place is None:
            return []
        body = networks[place]
        vectors = OfImages(functools.partial(_outputs, body, clip), nn.Sequential(_Scaled(), body, _Clipped(clip)))
        return [
            replace(block, field=f"{block.field} of round {message.round}", of=vectors)
            if block.of == "features"
            else block
            for block in linear_blocks(message, classes)
        ]

    return enters


class _Scaled(nn.Module):
    """Scale of float images from [0, 1] to the [0, 255] that bodies take."""

    def forward(self, images: Tensor) -> Tensor:
        return images * 255


class _Clipped(nn.Module):
    """Outputs clipped to [-clip, clip]."""

    def __init__(self, clip: float) -> None:
        super().__init__()
        self.clip = clip

    def forward(self, features: Tensor) -> Tensor:
        return features.clamp(-self.clip, self.clip)


def _outputs(body: nn.Module, clip: float, images: Images) -> Matrix:
    return np.clip(outputs(body, images), -clip, clip).astype(np.float64)
