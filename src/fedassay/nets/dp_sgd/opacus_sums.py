"""Sums of clipped gradients by Opacus: its hooks take the records' gradients, its optimiser clips and adds them.

Yousefpour et al., "Opacus: User-Friendly Differential Privacy Library in PyTorch" (2021). Sampling and noise stay
where they are for every private training, so Opacus is asked for the sum of a batch and nothing else.

Its hooks assume contiguous images: of channels-last ones, which attention leaves behind, they make gradients of
zero without a word. Every convolution is therefore given a contiguous copy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fedassay.support.errors import PlanError

_TOLERANCE = 1e-2


class OpacusSums:
    """Sums of clipped gradients of one network, batch after batch.

    Args:
        network: Gradients are taken with respect to its parameters with `requires_grad`.
        norm: L2 norm over all parameters that each record's gradient is scaled down to.

    Raises:
        PlanError: Opacus does not take a layer of the network.
    """

    def __init__(self, network: nn.Module, norm: float) -> None:
        from opacus.optimizers import DPOptimizer

        self._network = network
        self._parameters = {name: each for name, each in network.named_parameters() if each.requires_grad}
        # Only the clipping of the optimiser is used: the optimiser takes no step and adds no noise.
        self._optimizer = DPOptimizer(
            torch.optim.SGD(self._parameters.values(), lr=0.0),
            noise_multiplier=0.0,
            max_grad_norm=norm,
            expected_batch_size=1,
            loss_reduction="sum",
        )
        self._close(self._hooked())

    def __call__(
        self,
        total: Callable[[Callable[..., Any], tuple[Tensor, ...]], Tensor],
        rows: tuple[Tensor, ...],
        draws: int,
        *,
        check: bool = False,
    ) -> dict[str, Tensor]:
        """The sums, by parameter name.

        Args:
            total: From a network and rows to the sum over records of their losses.
            rows: Rows of the records, `draws` consecutive ones each.
            draws: Rows of a record.
            check: Hold the records' gradients against autograd's of their batch.

        Raises:
            RuntimeError: The check has failed.
        """
        records = len(rows[0]) // draws
        if not records:
            return {}
        for parameter in self._parameters.values():
            parameter.grad = None  # left there by the step before
        module = self._hooked()
        hooks = [
            each.register_forward_pre_hook(_contiguous)
            for each in self._network.modules()
            if isinstance(each, nn.Conv2d)
        ]
        overwriting: list[Any] = [each for each in self._network.modules() if getattr(each, "inplace", False)]
        try:
            for each in overwriting:
                each.inplace = False  # the output of a hooked layer must not be overwritten
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Full backward hook is firing")
                total(module, rows).backward()  # type: ignore[no-untyped-call]
            for name, parameter in self._parameters.items():
                parameter.grad_sample = self._of_records(parameter, records, draws)  # type: ignore[attr-defined]
                if check:
                    _check(name, parameter)
            self._optimizer.clip_and_accumulate()
            return {
                name: each.summed_grad.detach()  # type: ignore[attr-defined]
                for name, each in self._parameters.items()
            }
        finally:
            for each in overwriting:
                each.inplace = True
            for hook in hooks:
                hook.remove()
            for parameter in self._parameters.values():
                parameter.summed_grad = None  # type: ignore[attr-defined]
            self._close(module)

    def _hooked(self) -> Any:
        from opacus import GradSampleModule

        try:
            return GradSampleModule(self._network, loss_reduction="sum")
        except NotImplementedError as error:
            raise PlanError(f"dp_sgd.engine: opacus does not take this network ({error}); allowed: fast") from None

    def _close(self, module: Any) -> None:
        """Take Opacus's hooks and gradients away: the network is used by others."""
        module.to_standard_module()
        for parameter in self._parameters.values():
            parameter.grad = None

    def _of_records(self, parameter: nn.Parameter, records: int, draws: int) -> Tensor:
        """Gradient of each record, (n, *shape): a parameter without part in the loss has none."""
        found = getattr(parameter, "grad_sample", None)
        if found is None:
            return parameter.new_zeros(records, *parameter.shape)
        each: Tensor = found.detach()
        return each.reshape(records, draws, *parameter.shape).sum(dim=1)


def _contiguous(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(each.contiguous() for each in given)


def _check(name: str, parameter: nn.Parameter) -> None:
    """Records' gradients add up to the ordinary gradient of their batch.

    Raises:
        RuntimeError: They do not.
    """
    each: Tensor = parameter.grad_sample  # type: ignore[attr-defined]
    expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    sizes = torch.linalg.vector_norm(each.flatten(1), dim=1).sum() + torch.linalg.vector_norm(expected)
    if not torch.linalg.vector_norm(each.sum(dim=0) - expected) <= _TOLERANCE * sizes + 1e-6:
        raise RuntimeError(
            f"DP-SGD: Opacus's per-record gradients of {name} do not add up to the gradient of their batch; "
            "clipping would not bound what a record adds"
        )
