"""Norms and weighted sums of the gradients of single records, from one backward pass over all of them.

DP-SGD needs two things of a batch: every record's gradient norm over all parameters, and then the sum of the
gradients with a factor for each record. Hooks on the layers catch a layer's input and the gradient of its output;
`fedassay.nets.dp_sgd.record_factors` computes the rest, layer by layer. Meanwhile the parameters are frozen, so
that autograd does not compute the ordinary gradient as well.

A layer of an unknown kind with parameters is refused. Hooks cannot see a parameter that is used outside its layer
(as an argument of a function). `RecordGradients.check` finds this and other errors: it compares the batch with
autograd's gradient, and single records with the gradient of the record alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedassay.nets.dp_sgd.record_factors import KINDS, Part, add_parts, is_known

CHECKED_STEPS = 2
"""Steps of a run, with records, to `check`. In the first one a layer that starts at zero hides those before it."""

_TOLERANCE = 1e-2
_ROUNDING = 1e-5
"""Share of the records' whole gradients below which a difference may be rounding. Some parameters have no gradient
but for rounding, as the bias before a normalisation of each channel."""


class RecordGradients:
    """Takes the gradients of single records of a network, one batch at a time.

    Every layer must be given the records along its first dimension and must treat them one by one (as
    normalisation over the batch does not).

    Args:
        network: Gradients are taken with respect to its parameters with `requires_grad`.

    Raises:
        TypeError: A layer of an unknown kind has parameters with `requires_grad`, or normalises over the batch.
    """

    def __init__(self, network: nn.Module) -> None:
        self._parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
        names = {parameter: name for name, parameter in self._parameters.items()}
        self._layers: dict[nn.Module, dict[str, str]] = {}
        self._channels_last: set[str] = set()
        for path, module in network.named_modules():
            if isinstance(module, _BatchNorm):
                raise TypeError(f"DP-SGD: {path or 'the network'} is {module}, which mixes records")
            own = {local: names[p] for local, p in module._parameters.items() if p is not None and p in names}
            if not own:
                continue
            if not is_known(module, own):
                raise TypeError(
                    f"DP-SGD: the records' gradients of {', '.join(own.values())} are not known: "
                    f"{path or 'the network'} is {module}; known: "
                    f"{', '.join(kind.__name__ for kind in KINDS)}, with their usual options"
                )
            self._layers[module] = own
            if isinstance(module, nn.Conv2d) and "weight" in own:
                self._channels_last.add(own["weight"])
        self._records, self._draws = 0, 1
        self._open: Counter[str] = Counter()
        self._pending: dict[str, list[Part]] = {}
        self._parts: dict[str, Part] = {}

    @contextmanager
    def recording(self, records: int, draws: int = 1) -> Iterator[None]:
        """Record the forward and backward pass in this block; the network's parameters get no `grad`.

        Args:
            records: n. The loss must be a sum over records.
            draws: Consecutive rows of the batch, of n times as many, that belong to one record.
        """
        self._records, self._draws = records, draws
        self._open, self._pending, self._parts = Counter(), {}, {}
        hooks = [module.register_forward_hook(self._after_forward) for module in self._layers]
        self._require(False)
        try:
            yield
        finally:
            self._require(True)
            for hook in hooks:
                hook.remove()
        # A layer used in the forward pass but not in the loss never gets a gradient.
        for name in list(self._pending):
            self._settle(name)

    def norms(self) -> Tensor:
        """L2 norm of each record's gradient over all parameters, (n,)."""
        if not self._parts:
            return torch.zeros(self._records)
        norms: Tensor = torch.linalg.vector_norm(torch.stack([p.norms() for p in self._parts.values()]), dim=0)
        return norms

    def weighted_sums(self, weights: Tensor) -> dict[str, Tensor]:
        """Sum over records of their gradients, each times its weight.

        Args:
            weights: Shape (n,).

        Returns:
            By parameter name, in the parameter's shape; parameters without part in the loss are absent.
        """
        return {name: self._restored(name, part.weighted(weights)[None])[0] for name, part in self._parts.items()}

    def each(self, name: str) -> Tensor:
        """The gradients of one parameter themselves, (n, *shape of the parameter)."""
        part = self._parts.get(name)
        if part is None:
            return self._parameters[name].new_zeros(self._records, *self._parameters[name].shape)
        return self._restored(name, part.each())

    def check(self, loss: Callable[[slice], Tensor]) -> None:
        """Compare the recorded factors with autograd's gradients, parameter by parameter.

        The first and the last record are computed again alone: sums over records do not show a layer that mixes
        them.

        Args:
            loss: Computes the loss of some records of the recorded pass again, outside of `recording`.

        Raises:
            RuntimeError: The records' gradients do not add up to autograd's of their batch, norms or weighted sums
                are not theirs, or a record has another gradient alone than among the others.
        """
        ordinary = torch.autograd.grad(
            loss(slice(0, self._records)), list(self._parameters.values()), allow_unused=True
        )
        norms = self.norms()
        rounding = _ROUNDING * norms.sum()
        ends = sorted({0, self._records - 1})
        recorded: list[dict[str, Tensor]] = [{} for _ in ends]
        for (name, parameter), expected in zip(self._parameters.items(), ordinary, strict=True):
            each = self.each(name).flatten(1)
            for own, row in zip(recorded, ends, strict=True):
                own[name] = each[row].clone()
            total = torch.zeros_like(parameter) if expected is None else expected
            sizes = torch.linalg.vector_norm(each, dim=1)
            # Records' gradients may cancel: rounding grows with their norms, not with that of the sum.
            allowed = rounding + _TOLERANCE * (sizes.sum() + torch.linalg.vector_norm(total))
            wrong = [torch.linalg.vector_norm(each.sum(dim=0) - total.flatten())]
            if name in self._parts:
                part = self._parts[name]
                added = self._restored(name, part.weighted(torch.ones_like(sizes))[None])[0]
                wrong += [torch.linalg.vector_norm(added - total), torch.linalg.vector_norm(part.norms() - sizes)]
            # The other way round, a difference that is not a number would pass.
            if not all(bool(value <= allowed) for value in wrong):
                raise RuntimeError(
                    f"DP-SGD: the per-record gradients of {name} do not add up to the gradient of their batch; "
                    "clipping would not bound what a record adds"
                )
        for own, row in zip(recorded, ends, strict=True):
            self._check_alone(row, own, float(norms[row]), float(rounding), loss)

    def _check_alone(
        self, row: int, own: Mapping[str, Tensor], norm: float, rounding: float, loss: Callable[[slice], Tensor]
    ) -> None:
        """Hold one record's gradient, flat by parameter name, against autograd's of that record by itself."""
        mixed = "clipping would not bound what a record adds, for layers mix records"
        try:
            alone = torch.autograd.grad(
                loss(slice(row, row + 1)), list(self._parameters.values()), allow_unused=True
            )
        except (ValueError, IndexError, RuntimeError) as error:
            raise RuntimeError(f"DP-SGD: a record cannot be computed alone ({error}); {mixed}") from error
        square = away = 0.0
        for (name, parameter), expected in zip(self._parameters.items(), alone, strict=True):
            by_itself = (torch.zeros_like(parameter) if expected is None else expected).flatten()
            square += float(by_itself.double().square().sum())
            away += float((own[name] - by_itself).double().square().sum())
        if not away**0.5 <= _TOLERANCE * (square**0.5 + norm) + rounding:
            raise RuntimeError(
                f"DP-SGD: record {row} of the batch has another gradient alone than among the others "
                f"(norms {square**0.5:.4g} and {norm:.4g}); {mixed}"
            )

    def _require(self, gradients: bool) -> None:
        for parameter in self._parameters.values():
            parameter.requires_grad_(gradients)

    def _after_forward(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return output
        if len(inputs) != 1 or len(inputs[0]) != self._records * self._draws:
            raise ValueError(
                f"DP-SGD: {module} must be given one tensor with a row for each of "
                f"{self._records * self._draws} records and draws"
            )
        if not output.requires_grad:
            # Nothing before this layer needs a gradient, and its parameters are frozen. The next layer may work in
            # place, which a leaf does not allow.
            output = output.requires_grad_().clone()
        self._open.update(self._layers[module].values())
        then = partial(self._after_backward, module, inputs[0], inputs[0]._version)
        output.register_hook(then)  # type: ignore[no-untyped-call]
        return output

    def _after_backward(self, module: nn.Module, given: Tensor, version: int, gradient: Tensor) -> None:
        if given._version != version:
            raise RuntimeError(f"DP-SGD: the input of {module} was changed in place after its forward pass")
        own = self._layers[module]
        for local, part in KINDS[type(module)](module, given.detach(), gradient).items():
            name = own.get(local)
            if name is None:  # a parameter that was frozen from the start
                continue
            if not self._open[name]:
                raise RuntimeError(f"DP-SGD: more than one backward pass through {module}")
            self._pending.setdefault(name, []).append(part.merged(self._draws))
            self._open[name] -= 1
            if not self._open[name]:
                self._settle(name)

    def _settle(self, name: str) -> None:
        self._parts[name] = add_parts(self._pending.pop(name)).settled()

    def _restored(self, name: str, found: Tensor) -> Tensor:
        """From rows in the order of `Part` to rows in the shape of the parameter, (n, *shape)."""
        shape = self._parameters[name].shape
        if name in self._channels_last:
            return found.reshape(len(found), shape[0], *shape[2:], shape[1]).movedim(-1, 2)
        return found.reshape(len(found), *shape)
