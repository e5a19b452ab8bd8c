"""A client's network in federated averaging: the part that travels, a round's training, and the mean of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.methods.shared.local_networks import LocalNetwork, finite
from fedassay.methods.shared.rounds import Arrays
from fedassay.nets.state import moving_statistics, read_tensors, state_of, write_tensors
from fedassay.support.errors import PlanError

Share = Literal["all", "head", "body"]
"""The part that is averaged."""


@dataclass(frozen=True, eq=False)
class Site:
    """A client's network, and the parameters that it shares.

    Attributes:
        network: Body and head in sequence.
        shared: The averaged part: parameters, then statistics of batch normalisation.
        parameters: Number of parameters in it.
        head: Parameters of the head.
    """

    network: LocalNetwork
    shared: tuple[Tensor, ...]
    parameters: int
    head: tuple[nn.Parameter, ...]

    def read(self) -> NDArray[np.float32]:
        """The averaged part as one vector."""
        return read_tensors(self.shared)

    def write(self, values: NDArray[np.float32]) -> None:
        """Replace the averaged part."""
        write_tensors(self.shared, values)

    def train_only(self, part: Literal["all", "head", "body"]) -> None:
        """Freeze all other parameters."""
        head = {id(each) for each in self.head}
        for each in self.network.module.parameters():
            each.requires_grad_(part == "all" or (id(each) in head) == (part == "head"))


def make_site(network: LocalNetwork, share: Share, layers: int) -> Site:
    """Return a site of a network with its last fully connected layers as the head.

    Args:
        network: Body and head in sequence.
        share: The part that is averaged.
        layers: Number of fully connected layers in the head.

    Raises:
        PlanError: The network has no more layers than that.
    """
    module = network.module
    head = _head(module, layers)
    own = {id(parameter) for parameter in head}
    body: list[Tensor] = [each for each in module.parameters() if id(each) not in own]
    if not body:
        raise PlanError(f"head_layers: {layers} given, and the network has no other layer; allowed: fewer")
    statistics = moving_statistics(module)
    parts: dict[Share, Sequence[Tensor]] = {
        "all": state_of(module),
        "head": head,
        "body": [*body, *statistics],
    }
    shared = parts[share]
    behind = 0 if share == "head" else sum(each.numel() for each in statistics)
    size = sum(each.numel() for each in shared)
    return Site(network, tuple(shared), size - behind, tuple(head))


def _head(module: nn.Module, layers: int) -> list[nn.Parameter]:
    found = [each for each in module.modules() if isinstance(each, nn.Linear)]
    if len(found) < layers:
        raise PlanError(f"head_layers: {layers} given; allowed: {len(found)} at most with this body")
    return [parameter for each in found[len(found) - layers :] for parameter in each.parameters()]


def trained(
    sites: Sequence[Site],
    current: NDArray[np.float32],
    train: Callable[[Site], None],
    method: str,
    number: int,
    *,
    counted: bool,
) -> Arrays:
    """Train every client from the current parameters; returns the arrays that they send.

    Args:
        sites: The clients' networks.
        current: The averaged part as every client starts from it.
        train: Trains the network of a site in place.
        method: Registered name, for the error.
        number: The round.
        counted: Whether clients send their numbers of records.

    Raises:
        DataError: Training has diverged.
    """
    sent: Arrays = {}
    for site in sites:
        site.write(current)
        train(site)
        name = site.network.name
        sent[f"{name}/parameters"] = finite(
            site.read(), f"{method}: training at {name} has diverged in round {number}"
        )
        if counted:
            sent[f"{name}/records"] = np.array([len(site.network.labels)], dtype=np.int32)
    return sent


def upload(number: int, client: Records, sent: Arrays, fields: Mapping[str, MessageField]) -> Message:
    """A client's message of a round: its parameters' fields, and its number of records where that is sent."""
    records = sent.get(f"{client.name}/records")
    counted = {} if records is None else {"records": MessageField(records, "other", exact("size"))}
    return Message(number, client.name, SERVER, {**fields, **counted})


def average(clients: Sequence[Records], sent: Arrays) -> NDArray[np.float32]:
    """The mean over the clients, weighted by their numbers of records where those are sent."""
    weights = [float(sent.get(f"{client.name}/records", np.ones(1))[0]) for client in clients]
    vectors = [sent[f"{client.name}/parameters"].astype(np.float64) for client in clients]
    return np.average(vectors, axis=0, weights=weights).astype(np.float32)
