"""Fit of a received decoder to single records, at the best latent vector found for each.

A receiver of a decoder has no encoder. Latent vectors from the prior are tried on all records of a label at once,
and from the best of them log p(x | z, y) + log p(z) is maximized by gradient ascent. The maximum stands for the
integral over z, which would take far more draws where hundreds of pixels determine a latent vector. The two differ
by the width of the mode, which differs less between decoders than the fit does (docs/membership.md has figures).

A pixel x in [0, 1] costs its cross-entropy less its own entropy, so that a perfect fit costs 0 for every image:
the deviance (McCullagh & Nelder, "Generalized Linear Models", 1989, section 2.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

_RATE = 0.1
"""Of Adam; it falls to 0 by a cosine."""
_TOGETHER = 256
"""Rows that go through the decoder at once."""

Decoder = Callable[[Tensor], Tensor]


def latent_losses(
    decoder: Decoder,
    images: Tensor,
    conditions: Tensor,
    latent: int,
    generator: torch.Generator,
    *,
    draws: int = 1024,
    steps: int = 25,
) -> Tensor:
    """Return the deviance of a pixel of each record at its best latent vector, and the cost of that vector.

    Args:
        decoder: From latent vectors beside conditions, (n, latent + C), to logits of pixels, (n, D).
        images: Shape (n, D), in [0, 1].
        conditions: One-hot, shape (n, C).
        latent: Width of latent vectors.
        generator: Random generator of the draws, on the CPU.
        draws: From the prior, at least 1, shared by all records.
        steps: By gradient, from the best draw.

    Returns:
        Twice the sum of both over D, shape (n,), at least 0.
    """
    costs, _ = best_latents(decoder, images, conditions, latent, generator, draws=draws, steps=steps)
    return (2 / images.shape[1] * (costs - _entropy(images))).clamp(min=0)


def best_latents(
    decoder: Decoder,
    images: Tensor,
    conditions: Tensor,
    latent: int,
    generator: torch.Generator,
    *,
    draws: int = 1024,
    steps: int = 25,
) -> tuple[Tensor, Tensor]:
    """The least -log p(x | z, y) + |z|^2 / 2 that is found for each record, (n,), and the z, (n, latent).

    Arguments are those of `latent_losses`.
    """
    prior = torch.randn(draws, latent, generator=generator).to(images.device)
    starts = _starts(decoder, images, conditions, prior)
    whole = [slice(first, first + _TOGETHER) for first in range(0, max(1, len(images)), _TOGETHER)]
    found = [_descended(decoder, images[part], conditions[part], starts[part], steps) for part in whole]
    costs, places = zip(*found, strict=True)
    return torch.cat(costs), torch.cat(places)


@torch.no_grad()
def _starts(decoder: Decoder, images: Tensor, conditions: Tensor, prior: Tensor) -> Tensor:
    """The draw that explains each record best, (n, latent)."""
    labels = conditions.argmax(dim=1)
    found = images.new_zeros(len(images), prior.shape[1])
    for label in torch.unique(labels):
        rows = torch.where(labels == label)[0]
        fits = []
        for part in torch.split(prior, _TOGETHER):
            logits = decoder(torch.cat([part, conditions[rows[:1]].expand(len(part), -1)], dim=1))
            # Cross-entropy is linear in the image: x . logits, less a constant of the draw.
            constant = functional.softplus(logits).sum(dim=1) + part.square().sum(dim=1) / 2
            fits.append(images[rows] @ logits.T - constant)
        found[rows] = prior[torch.cat(fits, dim=1).argmax(dim=1)]
    return found


def _descended(
    decoder: Decoder, images: Tensor, conditions: Tensor, starts: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """The least cost that is met on the way, in nats, (n,), and where, (n, latent)."""
    place = starts.clone().requires_grad_()
    least, best = torch.full((len(starts),), math.inf, device=images.device), starts.clone()
    optimizer = torch.optim.Adam([place], lr=_RATE)
    for step in range(steps + 1):
        with torch.enable_grad():
            logits = decoder(torch.cat([place, conditions], dim=1))
            error = functional.binary_cross_entropy_with_logits(logits, images, reduction="none").sum(dim=1)
            costs = error + place.square().sum(dim=1) / 2
            (place.grad,) = torch.autograd.grad(costs.sum(), [place])
        lower = costs.detach() < least
        least, best = torch.where(lower, costs.detach(), least), torch.where(lower[:, None], place.detach(), best)
        for group in optimizer.param_groups:
            group["lr"] = _RATE * 0.5 * (1 + math.cos(math.pi * step / (steps + 1)))
        optimizer.step()
    return least, best


def _entropy(images: Tensor) -> Tensor:
    """Sum of the pixels' own entropies, the least that their cross-entropy can be, in nats, (n,)."""
    return -(torch.xlogy(images, images) + torch.xlogy(1 - images, 1 - images)).sum(dim=1)
