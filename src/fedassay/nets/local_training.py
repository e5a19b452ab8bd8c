"""Training of a client's network on its own records: plainly, and with DP-SGD.

Both take a loss of single records, so that one pair of functions serves bodies under a frozen head as
well as whole classifiers. Nothing is drawn but from the generator that is passed.

Clipped sums come from `fedassay.nets.record_gradients` where it knows every layer, in a fraction of the time of
per-record gradients that are written out. Networks with other layers (a backbone with normalisation by kept
statistics) get those, from `torch.func`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedassay.nets.private_steps import PrivateSteps
from fedassay.nets.record_gradients import CHECKED_STEPS, RecordGradients
from fedassay.nets.step_log import note_step, note_training

RecordLoss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (n, k) of the network and labels (n,) to the loss of each record, (n,)."""

Draw = Callable[[Tensor, torch.Generator], Tensor]
"""Inputs of a batch, (n, ...), to what the network is given in this step: noise that a loss is an expectation
over, drawn anew and independently of the records."""

_CHUNK = 256
"""Records whose gradients are held at once."""


def train(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    loss: RecordLoss,
    *,
    epochs: int,
    batch: int,
    rate: float,
    generator: torch.Generator,
    draw: Draw | None = None,
) -> None:
    """Train in place: Adam on the mean loss of shuffled minibatches. No records, no steps.

    Args:
        module: On the device of `inputs`.
        inputs: Shape (n, ...).
        labels: Shape (n,).
        loss: See `RecordLoss`.
        epochs: Passes over the records.
        batch: Records in a minibatch; the last of a pass may be smaller.
        rate: Learning rate.
        generator: On the CPU.
        draw: See `Draw`; None: the inputs as they are.
    """
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    module.train()
    for _ in range(epochs if len(labels) else 0):
        order = torch.randperm(len(labels), generator=generator).to(labels.device)
        for chosen in torch.split(order, batch):
            optimizer.zero_grad()
            given = inputs[chosen] if draw is None else draw(inputs[chosen], generator)
            loss(module(given), labels[chosen]).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    module.eval()


def train_privately(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    loss: RecordLoss,
    *,
    private: PrivateSteps,
    rate: float,
    generator: torch.Generator,
    draw: Draw | None = None,
) -> None:
    """Train in place by DP-SGD, with Adam on the noised gradients (which is post-processing).

    Records are sampled independently (Poisson), empty batches included: they release noise alone.
    Arguments as in `train`.
    """
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    module.train()
    checked = 0
    note_training(private)
    for _ in range(private.steps):
        drawn = torch.rand(len(labels), generator=generator) < private.sampling_rate
        chosen = drawn.nonzero().flatten().to(labels.device)
        given = inputs[chosen] if draw is None else draw(inputs[chosen], generator)
        check = checked < CHECKED_STEPS and len(chosen) > 0
        checked += check
        sums = clipped_sums(module, given, labels[chosen], loss, private.norm, check=check)
        for name, parameter in _trained(module).items():
            noise = torch.randn(parameter.shape, generator=generator).to(parameter.device)
            noised = sums[name] + private.noise_multiplier * private.norm * noise
            parameter.grad = noised / private.batch
        given_on = [parameter.grad for parameter in _trained(module).values() if parameter.grad is not None]
        note_step(private, len(labels), len(chosen), list(sums.values()), given_on)
        optimizer.step()
    module.eval()


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def record_gradients(module: nn.Module, inputs: Tensor, labels: Tensor, loss: RecordLoss) -> dict[str, Tensor]:
    """Gradient of each record's own loss, by parameter name, each (n, *parameter's shape)."""
    parameters = {name: parameter.detach() for name, parameter in _trained(module).items()}

    def one(current: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
        outputs = functional_call(module, current, (record[None],))
        return loss(outputs, label[None]).squeeze(0)

    gradients: dict[str, Tensor] = vmap(grad(one), in_dims=(None, 0, 0))(parameters, inputs, labels)
    return gradients


def clipped_sums(
    module: nn.Module, inputs: Tensor, labels: Tensor, loss: RecordLoss, norm: float, *, check: bool = False
) -> dict[str, Tensor]:
    """Sum over records of their gradients, each scaled down to L2 norm `norm` over all parameters.

    Args:
        module: What is trained.
        inputs: Shape (n, ...).
        labels: Shape (n,).
        loss: See `RecordLoss`.
        norm: The norm.
        check: Hold the gradients of the first records against autograd's.

    Returns:
        By parameter name.

    Raises:
        RuntimeError: The check has failed.
    """
    sums = {name: torch.zeros_like(parameter) for name, parameter in _trained(module).items()}
    try:
        gradients = RecordGradients(module)
    except TypeError:
        gradients = None
    for start in range(0, len(labels), _CHUNK):
        part = slice(start, start + _CHUNK)
        given = (module, inputs[part], labels[part], loss)
        found = (
            _written_sums(*given, norm) if gradients is None else _recorded_sums(gradients, *given, norm, check)
        )
        for name, each in found.items():
            sums[name] += each.detach()
        check = False
    return sums


def _recorded_sums(
    gradients: RecordGradients,
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    loss: RecordLoss,
    norm: float,
    check: bool,
) -> dict[str, Tensor]:
    with gradients.recording(len(labels)):
        loss(module(inputs), labels).sum().backward()  # type: ignore[no-untyped-call]
    if check:
        gradients.check(lambda: loss(module(inputs), labels).sum())
    return gradients.weighted_sums(norm / gradients.norms().clamp(min=norm))


def _written_sums(
    module: nn.Module, inputs: Tensor, labels: Tensor, loss: RecordLoss, norm: float
) -> dict[str, Tensor]:
    gradients = record_gradients(module, inputs, labels, loss)
    squares = torch.stack([each.flatten(1).square().sum(dim=1) for each in gradients.values()]).sum(dim=0)
    scales = norm / squares.sqrt().clamp(min=norm)
    return {name: torch.einsum("n,n...->...", scales, each) for name, each in gradients.items()}
