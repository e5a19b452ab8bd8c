"""Sums over records of their clipped gradients: the input of the noise in a step of DP-SGD.

The sums come from `fedassay.nets.dp_sgd.record_gradients` where it knows every layer, in a fraction of the time of
per-record gradients that are written out. Networks with other layers (a backbone with normalisation by kept
statistics) get those, from `torch.func`, which computes every record alone. Or they come from Opacus
(`fedassay.nets.dp_sgd.opacus_sums`), where a plan asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedassay.nets.dp_sgd.opacus_sums import OpacusSums
from fedassay.nets.dp_sgd.record_gradients import RecordGradients
from fedassay.nets.dp_sgd.steps import Engine

Rows = tuple[Tensor, ...]
"""Tensors with the same number of rows, `draws` consecutive ones for each record."""


@dataclass(frozen=True, eq=False)
class RecordStreams:
    """A random stream for each of n records in one step, which no other record moves.

    Attributes:
        key: Key of the step.
        positions: The records' places in their set, (n,): the streams are named by them.
        within: Index of each record within its place, (n,), where a place holds several; None: all 0.
    """

    key: int
    positions: NDArray[np.int64]
    within: NDArray[np.int64] | None = None

    def __getitem__(self, part: slice) -> RecordStreams:
        return RecordStreams(self.key, self.positions[part], None if self.within is None else self.within[part])

    def spread(self, each: int) -> RecordStreams:
        """The streams of `each` records at every place, in their order, (n each,)."""
        within = np.tile(np.arange(each), len(self.positions))
        return RecordStreams(self.key, np.repeat(self.positions, each), within)

    def generators(self) -> list[np.random.Generator]:
        """The streams, from their beginning."""
        within = np.zeros(len(self.positions), np.int64) if self.within is None else self.within
        return [
            np.random.Generator(np.random.Philox(key=self.key, counter=[0, 0, number, position]))
            for number, position in zip(within.tolist(), self.positions.tolist(), strict=True)
        ]

    def normals(self, width: int) -> Tensor:
        """The first normals of every stream, (n, width), float32."""
        rows = [source.standard_normal(width, dtype=np.float32) for source in self.generators()]
        return torch.from_numpy(np.stack(rows) if rows else np.zeros((0, width), dtype=np.float32))


@dataclass(frozen=True, eq=False)
class Objective:
    """The loss of single records.

    Attributes:
        rows: From inputs (n, ...), labels (n,) and the records' streams to what `losses` is given, on the
            network's device. A record's rows depend on that record and on its stream alone.
        losses: From the network and these rows to the loss of each row.
        draws: Rows of a record, over which its loss is averaged before its gradient is clipped.
        together: Records that go through the network at once.
    """

    rows: Callable[[Tensor, Tensor, RecordStreams], Rows]
    losses: Callable[..., Tensor]
    draws: int = 1
    together: int = 256

    def total(self, network: Callable[..., Any], rows: Rows) -> Tensor:
        """The sum over records of their mean losses, a scalar."""
        return self.losses(network, *rows).sum() / self.draws


class ClippedSums:
    """Sums of clipped gradients of one network, batch after batch.

    Args:
        network: Gradients are taken with respect to its parameters with `requires_grad`.
        objective: The loss.
        norm: L2 norm over all parameters that each record's gradient is scaled down to.
        known: Whether every layer must be one that `RecordGradients` knows.
        engine: See `Engine`.

    Raises:
        TypeError: `known`, and some layer is not, or normalises over the batch.
        PlanError: Opacus does not take the network.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        norm: float,
        *,
        known: bool = False,
        engine: Engine = "fast",
    ) -> None:
        self._network, self._objective, self._norm = network, objective, norm
        self._parameters = trained(network)
        self._gradients: RecordGradients | None = None
        self._opacus: OpacusSums | None = None
        if engine == "opacus":
            self._opacus = OpacusSums(network, norm)
            return
        try:
            self._gradients = RecordGradients(network)
        except TypeError:
            if known:
                raise

    def __call__(
        self, inputs: Tensor, labels: Tensor, streams: RecordStreams, *, check: bool = False
    ) -> dict[str, Tensor]:
        """The sums, by parameter name.

        Args:
            inputs: Inputs of the records of the batch, (n, ...).
            labels: Shape (n,).
            streams: Random streams of these records.
            check: Hold the gradients of the first records against autograd's.

        Raises:
            RuntimeError: The check has failed.
        """
        sums: dict[str, Tensor] = {}
        for start in range(0, len(labels), self._objective.together):
            part = slice(start, start + self._objective.together)
            rows = self._objective.rows(inputs[part], labels[part], streams[part])
            if self._opacus is not None:
                added = self._opacus(self._objective.total, rows, self._objective.draws, check=check)
            elif self._gradients is None:
                added = self._written(rows)
            else:
                added = self._recorded(self._gradients, rows, check)
            for name, each in added.items():
                sums[name] = sums[name].add_(each.detach()) if name in sums else each.detach()
            check = False
        return {
            name: sums[name] if name in sums else torch.zeros_like(parameter)
            for name, parameter in self._parameters.items()
        }

    def _recorded(self, gradients: RecordGradients, rows: Rows, check: bool) -> dict[str, Tensor]:
        draws = self._objective.draws
        with gradients.recording(len(rows[0]) // draws, draws):
            self._objective.total(self._network, rows).backward()  # type: ignore[no-untyped-call]
        if check:
            gradients.check(
                lambda own: self._objective.total(
                    self._network, tuple(each[own.start * draws : own.stop * draws] for each in rows)
                )
            )
        return gradients.weighted_sums(self._norm / gradients.norms().clamp(min=self._norm))

    def _written(self, rows: Rows) -> dict[str, Tensor]:
        gradients = record_gradients(self._network, self._objective, rows)
        squares = torch.stack([each.flatten(1).square().sum(dim=1) for each in gradients.values()]).sum(dim=0)
        scales = self._norm / squares.sqrt().clamp(min=self._norm)
        return {name: torch.einsum("n,n...->...", scales, each) for name, each in gradients.items()}


def trained(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name."""
    return {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}


def record_gradients(network: nn.Module, objective: Objective, rows: Rows) -> dict[str, Tensor]:
    """Gradient of each record's own loss, by parameter name, each (n, *parameter's shape)."""
    parameters = {name: parameter.detach() for name, parameter in trained(network).items()}

    def one(current: dict[str, Tensor], *own: Tensor) -> Tensor:
        return objective.total(lambda *given: functional_call(network, current, given), own)

    apart = tuple(each.reshape(-1, objective.draws, *each.shape[1:]) for each in rows)
    gradients: dict[str, Tensor] = vmap(grad(one), in_dims=(None, *(0 for _ in apart)))(parameters, *apart)
    return gradients
