"""Latent vectors of records under a decoder: the best there is on a grid, and what a perfect fit costs."""

from __future__ import annotations

import pytest
import torch
from scipy.special import xlogy
from torch import Tensor, nn
from torch.nn import functional

from fedassay.nets.cvae import build_cvae, one_hot
from fedassay.nets.latent_search import best_latents, latent_losses


def _decoder(pixels: int = 12, latent: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(latent + 3, 16), nn.Tanh(), nn.Linear(16, pixels))


def _asked(count: int, pixels: int = 12) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(1)
    return torch.rand(count, pixels, generator=source), one_hot(torch.arange(count) % 3, 3)


def _source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_it_is_the_best_of_a_fine_grid() -> None:
    decoder, (images, known) = _decoder(), _asked(9)
    line = torch.linspace(-4, 4, 321)
    grid = torch.cartesian_prod(line, line)
    costs, places = best_latents(decoder, images, known, 2, _source(), steps=100)
    for row in range(len(images)):
        logits = decoder(torch.cat([grid, known[row].expand(len(grid), -1)], dim=1)).detach()
        goal = images[row].expand(len(grid), -1)
        error = functional.binary_cross_entropy_with_logits(logits, goal, reduction="none").sum(dim=1)
        naive = error + grid.square().sum(dim=1) / 2
        assert float(costs[row]) == pytest.approx(float(naive.min()), abs=2e-3)
        assert float((places[row] - grid[naive.argmin()]).norm()) < 0.1


def test_the_loss_is_twice_the_cost_beyond_the_entropy_over_the_pixels() -> None:
    decoder, (images, known) = _decoder(), _asked(6)
    costs, _ = best_latents(decoder, images, known, 2, _source())
    pixels = images.double().numpy()
    entropy = -(xlogy(pixels, pixels) + xlogy(1 - pixels, 1 - pixels)).sum(axis=1)
    expected = 2 * (costs.double() - torch.from_numpy(entropy)) / 12
    torch.testing.assert_close(
        latent_losses(decoder, images, known, 2, _source()).double(), expected, rtol=1e-4, atol=1e-5
    )


def test_a_perfect_fit_costs_nothing_whatever_the_image() -> None:
    """The decoder gives every record's own pixels, whatever the latent vector."""
    images = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.0, 1.0, 0.2, 0.9], [1.0, 1.0, 0.0, 0.0]])
    kept = torch.logit(images, eps=1e-7)
    exact = latent_losses(lambda given: given[:, 2:] @ kept, images, torch.eye(3), 2, _source(), steps=200)
    assert float(exact.max()) < 1e-3
    worse = latent_losses(
        lambda given: given[:, 2:] @ kept.roll(1, 0), images, torch.eye(3), 2, _source(), steps=200
    )
    assert float(worse.min()) > 0.1


def test_steps_only_lower_the_cost_and_the_best_draw_is_the_start() -> None:
    decoder, (images, known) = _decoder(), _asked(20)
    found = [best_latents(decoder, images, known, 2, _source(), draws=64, steps=steps)[0] for steps in (0, 5, 50)]
    assert bool((found[1] <= found[0] + 1e-5).all())
    assert float((found[0] - found[2]).mean()) > 0
    more = best_latents(decoder, images, known, 2, _source(), draws=1, steps=0)[0]
    assert float((more - found[0]).mean()) > 0.1


def test_records_are_computed_one_by_one_and_weights_stay() -> None:
    decoder = build_cvae((3, 4, 1), 3, latent=2, hidden=8, kind="dense", beta=1.0, seed=0).decoder
    before = [each.clone() for each in decoder.parameters()]
    images, known = _asked(300)
    whole = latent_losses(decoder, images, known, 2, _source())
    rows = torch.tensor([0, 131, 299])
    torch.testing.assert_close(
        latent_losses(decoder, images[rows], known[rows], 2, _source()), whole[rows], rtol=1e-3, atol=1e-4
    )
    assert all(bool((one == other).all()) for one, other in zip(before, decoder.parameters(), strict=True))
    assert all(each.grad is None and each.requires_grad for each in decoder.parameters())
    assert float((latent_losses(decoder, images, known, 2, _source(), steps=0) - whole).min()) >= -1e-5
