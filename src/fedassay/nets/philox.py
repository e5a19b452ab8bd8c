"""Counter-based normal numbers: the n-th number of a seed is the same on every device and in every batch.

Philox4x32-10 (Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011): ten rounds of
multiplications turn a counter and a key, the seed, into four random words of 32 bits. torch's own generator on a
GPU is the same function, but there the counter of a number depends on the card's size and on earlier draws. Here
it is the image, the sampler's step and the place in the image.

Words are computed in 64-bit integers, which every device has. They become normals by the transform of Box & Muller
(1958) in float64, so that devices agree up to the last bit of float32.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four random words for each counter.

    Args:
        counter: Four words each, int64 in [0, 2^32), of shapes that broadcast.
        seed: Its lowest 64 bits count.

    Returns:
        Four tensors of words, int64 in [0, 2^32), of the common shape.
    """
    a, b, c, d = torch.broadcast_tensors(*counter)  # type: ignore[no-untyped-call]
    keys = (seed & _LOW, (seed >> 32) & _LOW)
    for number in range(_ROUNDS):
        first, second = ((key + number * step) & _LOW for key, step in zip(keys, _WEYL, strict=True))
        # A product of two words wraps around in int64; its bits are right.
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        high = (right >> 32) & _LOW, (left >> 32) & _LOW
        a, b, c, d = high[0] ^ b ^ first, right & _LOW, high[1] ^ d ^ second, left & _LOW
    return a, b, c, d


def normals(seed: int, rows: range, draw: int, shape: tuple[int, ...], device: str | torch.device) -> Tensor:
    """Standard normals for some rows of a larger draw; every row's depend on seed, row, draw and shape alone.

    Args:
        seed: Its lowest 64 bits count.
        rows: Numbers of the rows, under 2^32.
        draw: Number of the draw within a row, under 2^32.
        shape: Shape of a row.
        device: Device of the result.

    Returns:
        Shape (len(rows), *shape), float32.
    """
    size = math.prod(shape)
    place = torch.arange(-(-size // 4), device=device)[None]
    row = torch.arange(rows.start, rows.stop, rows.step, device=device)[:, None]
    words = philox((place, row, torch.full_like(place, draw), torch.zeros_like(place)), seed)
    made = [part for pair in (words[:2], words[2:]) for part in _box_muller(*pair)]
    return torch.stack(made, dim=-1).flatten(1)[:, :size].reshape(len(rows), *shape)


def _box_muller(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent normals, float32, from two independent words."""
    # In (0, 1]: the logarithm of 0 is never taken.
    radius = ((first.double() + 1) * 2.0**-32).log_().mul_(-2).sqrt_()
    angle = second.double() * (2 * math.pi * 2.0**-32)
    return (radius * angle.cos()).float(), (radius * angle.sin()).float()
