"""The weights that follow from noised sums alone: a second optimiser without other inputs.

It starts from the same public weights and receives the outputs of the noise mechanism, over the declared batch
size. Any other change of the trained weights (a step on records after the last one, another divisor) makes the two
differ.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedassay.nets.checkpoint import TrainingState
from fedassay.nets.dp_sgd.clipped_sums import trained
from fedassay.nets.dp_sgd.updates import Updates


class ShadowUpdates:
    """Follows one training.

    Args:
        network: The network at the start of the training.
        updates: The declared optimiser.
        batch: The declared divisor of noised sums.
    """

    def __init__(self, network: nn.Module, updates: Updates, batch: float) -> None:
        self._updates, self._batch = updates, batch
        self._weights = {name: nn.Parameter(p.detach().clone()) for name, p in trained(network).items()}
        self._average = {n: p.detach().clone() for n, p in self._weights.items()} if updates.average else {}
        self._optimizer = updates.optimizer(self._weights.values())

    @torch.no_grad()
    def step(self, step: int, noised: Mapping[str, Tensor]) -> None:
        """Take the step that these sums lead to."""
        for name, parameter in self._weights.items():
            parameter.grad = (noised[name] / self._batch).to(parameter.dtype)
        self._optimizer.step()
        if self._average:
            self._updates.follow(list(self._average.values()), list(self._weights.values()), step)

    def difference(self, network: nn.Module) -> str:
        """Describe the difference of the trained network from the weights implied by noised sums; empty: none."""
        for name, parameter in trained(network).items():
            if torch.equal(parameter, self._weights[name]):
                continue
            used, own = parameter.grad, self._weights[name].grad
            if used is not None and own is not None and not torch.equal(used, own):
                ratio = float((used * own).sum() / own.square().sum())
                return (
                    f"the optimiser was given {ratio:.4g} times the noised sum over {self._batch:g}, the declared "
                    "expected batch size"
                )
            return f"the weights {name} do not follow from the noised sums alone"
        return ""

    def released(self) -> dict[str, Tensor]:
        """The weights to release: the last ones, or their moving average."""
        return self._average or {name: parameter.detach() for name, parameter in self._weights.items()}

    @torch.no_grad()
    def restore(self, state: TrainingState) -> None:
        """Resume from a checkpoint."""
        for name, parameter in state.parameters.items():
            self._weights[name].copy_(parameter)
            own = state.optimizer.state[parameter].items()
            self._optimizer.state[self._weights[name]] = {key: value.clone() for key, value in own}
        for name, each in self._average.items():
            each.copy_(state.average[name])
