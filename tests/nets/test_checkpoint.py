"""Checkpoints give back what was written, in the layout of what reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedassay.nets.checkpoint import TrainingState, read_checkpoint, write_checkpoint
from fedassay.support.optimisation import Optimizer


def state_of(layout: torch.memory_format, given: Optimizer | None = None) -> TrainingState:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = torch.nn.Conv2d(3, 4, 3).to(memory_format=layout)  # type: ignore[call-overload]
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    if given is not None:
        optimizer = given.build(network.parameters(), 1e-3)
    network(torch.ones(2, 3, 5, 5)).square().sum().backward()
    optimizer.step()
    parameters = dict(network.named_parameters())
    average = {name: 2 * weight.detach() for name, weight in parameters.items()}
    return TrainingState(parameters, average, {}, torch.tensor(1.0), 0, optimizer, None)


@pytest.mark.parametrize("written", [torch.contiguous_format, torch.channels_last], ids=["usual", "last"])
@pytest.mark.parametrize("read", [torch.contiguous_format, torch.channels_last], ids=["usual", "last"])
def test_moments_have_the_layout_of_their_weights(
    written: torch.memory_format, read: torch.memory_format, tmp_path: Path
) -> None:
    kept, found = state_of(written), state_of(read)
    write_checkpoint(tmp_path / "state", "run", 7, kept)
    for weight in found.parameters.values():
        weight.data.zero_()
    assert read_checkpoint(tmp_path / "state", "run", found)[0] == 7
    for name, weight in found.parameters.items():
        torch.testing.assert_close(weight, kept.parameters[name], rtol=0, atol=0)
        for moment in ("exp_avg", "exp_avg_sq"):
            ours, theirs = (
                found.optimizer.state[weight][moment],
                kept.optimizer.state[kept.parameters[name]][moment],
            )
            assert ours.stride() == weight.stride()
            assert not ours.requires_grad
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    # Fused AdamW refuses moments of another layout than their weights on a GPU.
    found.optimizer.step()


@pytest.mark.parametrize(
    "given",
    [Optimizer(name="adam"), Optimizer(name="sgd", momentum=0.9), Optimizer(name="sgd")],
    ids=["adam", "momentum", "sgd"],
)
def test_any_optimiser_goes_on_as_if_it_had_not_stopped(given: Optimizer, tmp_path: Path) -> None:
    kept, found = (state_of(torch.channels_last, given) for _ in range(2))
    write_checkpoint(tmp_path / "state", "run", 1, kept)
    found.optimizer.state.clear()
    assert read_checkpoint(tmp_path / "state", "run", found)[0] == 1
    for state in (kept, found):
        for weight in state.parameters.values():
            weight.grad = torch.ones_like(weight)
        state.optimizer.step()
    for name, weight in found.parameters.items():
        torch.testing.assert_close(weight, kept.parameters[name], rtol=0, atol=0)
