"""Gradients in a view: as sent, or as what training has changed since the weights that the server sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import MessageField
from fedassay.exchange.models import SentModule
from fedassay.exchange.transcript import SERVER, Message
from fedassay.exchange.view import View

if TYPE_CHECKING:
    from torch import nn

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Layer:
    """A linear layer's gradient, and its weights where they are known.

    Attributes:
        name: Of the layer.
        gradient: dW, shape (H, d), up to a common factor.
        bias_gradient: db, shape (H,), with the same factor.
        weights: W and b as they were, or None.
        rounding: Rounding error of an entry, relative to the largest, where that is above its type's:
            changes of weights have that of the weights.
    """

    name: str
    gradient: NDArray[Any]
    bias_gradient: NDArray[Any]
    weights: tuple[NDArray[Any], NDArray[Any]] | None
    rounding: float = 0.0


@dataclass(frozen=True)
class Target:
    """One gradient.

    Attributes:
        sender: The sender of the records.
        arrays: By name, in the order of the network's parameters.
        start: The arrays that it was taken at, by the same names; empty where they were not seen.
        network: The network with these, or None where only shapes are known.
        records: Number of records, where the message says it.
        changed: Whether it is the change of weights by training, and not a gradient as sent.
    """

    sender: str
    arrays: Arrays
    start: Arrays
    network: nn.Module | None
    records: int | None
    changed: bool = False

    def layers(self) -> list[Layer]:
        """The linear layers with a bias, in their order: a table before a row of an entry for each of its rows."""
        names, found = list(self.arrays), []
        for first, second in pairwise(names):
            table, row = self.arrays[first], self.arrays[second]
            if table.ndim == 2 and row.shape == table.shape[:1]:
                known = (self.start[first], self.start[second]) if {first, second} <= set(self.start) else None
                rounding = 0.0
                if self.changed and known is not None and table.any():
                    largest = float(np.abs(known[0]).max() / np.abs(table).max())
                    rounding = float(np.finfo(np.float32).eps) * largest
                found.append(Layer(first.rpartition(".")[0], table, row, known, rounding))
        return found


def targets(view: View) -> list[Target]:
    """Every gradient, or change of weights, of a client or of the aggregate."""
    before = _before(view)
    found = (_target(message, view, before) for message in view.from_clients())
    return [target for target in found if target is not None]


def _target(message: Message, view: View, starts: Callable[[Message], Message | None]) -> Target | None:
    counted = message.fields.get("records")
    records = None if counted is None or counted.size != 1 else int(counted.values.ravel()[0])
    sent = _of_kind(message, "gradient")
    before = starts(message)
    if sent:
        start = {} if before is None else _weights(before)
        network = _network(view)
        if network is not None and start:
            start = _split(start, network)
        return Target(message.sender, sent, start, _with(network, start), records)
    after = _of_kind(message, "parameters") or _of_kind(message, "head")
    if not after or before is None:
        return None
    start, network = _weights(before), _network(view)
    if network is not None:
        after, start = _split(after, network), _split(start, network)
    if {name: part.shape for name, part in after.items()} != {name: part.shape for name, part in start.items()}:
        return None
    # Summed steps against the gradient: the same sign as the gradient, with the rate for a factor.
    change = {name: start[name] - part for name, part in after.items()}
    return Target(message.sender, change, start, _with(network, start), records, changed=True)


def _of_kind(message: Message, kind: FieldKind) -> Arrays:
    return {name: item.values for name, item in message.fields.items() if item.kind == kind}


def _weights(message: Message) -> Arrays:
    return _of_kind(message, "parameters") or _of_kind(message, "head")


def _before(view: View) -> Callable[[Message], Message | None]:
    """Finds the server's message with the weights that a client started from; None where it was not seen."""
    sent = [message for message in view.messages if message.sender == SERVER and _weights(message)]
    of_round = cache(lambda number: _latest([other for other in sent if other.round <= number], number))

    def before(message: Message) -> Message | None:
        own = view.to_client(message.sender)
        to_it = [other for other in own if other.round <= message.round and _weights(other)]
        return _latest(to_it, message.round) if to_it else of_round(message.round)

    return before


def _latest(sent: Sequence[Message], number: int) -> Message | None:
    """The weights of a round, or of the last one before it."""
    # A round has weights that go out and weights that come back; those that go out are no sum over clients.
    same = [other for other in sent if other.round == number and not any(map(_is_answer, _fields(other)))]
    earlier = [other for other in sent if other.round < number]
    return same[0] if same else earlier[-1] if earlier else None


def _fields(message: Message) -> tuple[MessageField, ...]:
    return tuple(message.fields.values())


def _is_answer(item: MessageField) -> bool:
    """Whether a field was computed from what clients have sent."""
    return item.release.mechanism == "derived" and item.release.answers


def _network(view: View) -> nn.Module | None:
    """The architecture of any network that the view carries."""
    models = (model for model in view.models.values() if isinstance(model, SentModule))
    return next((model.network() for model in models), None)


def _split(arrays: Arrays, network: nn.Module) -> Arrays:
    """One long row of parameters as the arrays of a network; others, and other lengths, as they are."""
    shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    if len(arrays) != 1 or sum(sizes) != (row := next(iter(arrays.values()))).size:
        return arrays
    parts = np.split(row.ravel(), np.cumsum(sizes)[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def _with(network: nn.Module | None, start: Arrays) -> nn.Module | None:
    """A network with these weights; None where they are not its."""
    import torch

    if network is None:
        return None
    own = dict(network.named_parameters())
    if {name: tuple(each.shape) for name, each in own.items()} != {n: a.shape for n, a in start.items()}:
        return None
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(torch.as_tensor(start[name]))
    return network
